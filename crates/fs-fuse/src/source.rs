//! The volume that a mount shows: always the same one, or that of the present metadata node.

use lodestone_fs::cluster::VolumeSource;
use lodestone_fs::{Error, Result, Volume};

/// A volume to mount.
#[derive(Clone, Debug)]
pub enum Source {
    /// A volume in one file.
    One(Volume),
    /// A volume with replicas, whose metadata node may change.
    Replicated(VolumeSource),
}

impl From<Volume> for Source {
    fn from(volume: Volume) -> Self {
        Self::One(volume)
    }
}

impl From<VolumeSource> for Source {
    fn from(source: VolumeSource) -> Self {
        Self::Replicated(source)
    }
}

impl Source {
    /// The present volume.
    ///
    /// # Errors
    /// No node with metadata takes over.
    pub(crate) fn volume(&self) -> Result<Volume> {
        match self {
            Self::One(volume) => Ok(volume.clone()),
            Self::Replicated(source) => source.volume(),
        }
    }

    /// Does something on the volume. When its metadata node is gone, nothing has happened there, so it is done again at
    /// the next one: the caller sees a delay.
    pub(crate) fn on<T>(&self, mut act: impl FnMut(&Volume) -> Result<T>) -> Result<T> {
        match self {
            Self::One(volume) => act(volume),
            Self::Replicated(source) => loop {
                match act(&source.volume()?) {
                    Err(Error::Gone) => {}
                    outcome => return outcome,
                }
            },
        }
    }
}
