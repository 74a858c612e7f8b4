//! The volume that a mount shows: always the same one, or that of the present metadata node, here or elsewhere.

use lodestone_fs::cluster::{RemoteVolume, VolumeSource};
use lodestone_fs::{
    Allocation, Attributes, Caller, Changes, Error, ExtraMode, FolderEntry, NewFile, RenameMode, Result, Room, SeekTo,
    Volume,
};

/// A volume to mount.
#[derive(Clone, Debug)]
pub enum Source {
    /// A volume in one file.
    One(Volume),
    /// A volume with replicas, whose metadata node may change.
    Replicated(VolumeSource),
    /// A volume whose metadata node is in another process.
    Remote(RemoteVolume),
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

impl From<RemoteVolume> for Source {
    fn from(volume: RemoteVolume) -> Self {
        Self::Remote(volume)
    }
}

/// Declares the operations that a mount needs, for a volume here and for one elsewhere.
macro_rules! operations {
    ($(fn $name:ident(&self $(, $argument:ident: $type:ty)*) -> $answer:ty;)*) => {
        /// The operations that a mount needs, by numbers of files.
        pub(crate) trait Files {
            $(fn $name(&self $(, $argument: $type)*) -> Result<$answer>;)*

            /// The file is used.
            fn pin(&self, ino: u64) -> Result<()>;

            /// Room in the volume.
            fn room(&self) -> Result<Room>;
        }

        impl Files for Volume {
            $(fn $name(&self $(, $argument: $type)*) -> Result<$answer> {
                Self::$name(self $(, $argument)*)
            })*

            fn pin(&self, ino: u64) -> Result<()> {
                Self::pin(self, ino);
                Ok(())
            }

            fn room(&self) -> Result<Room> {
                Ok(Self::room(self))
            }
        }

        impl Files for RemoteVolume {
            $(fn $name(&self $(, $argument: $type)*) -> Result<$answer> {
                Self::$name(self $(, $argument)*)
            })*

            fn pin(&self, ino: u64) -> Result<()> {
                Self::pin(self, ino)
            }

            fn room(&self) -> Result<Room> {
                Self::room(self)
            }
        }
    };
}

operations! {
    fn lookup(&self, caller: &Caller, parent: u64, name: &[u8]) -> Attributes;
    fn attributes(&self, ino: u64) -> Attributes;
    fn truncate(&self, caller: &Caller, ino: u64, size: u64) -> Attributes;
    fn set_attributes(&self, caller: &Caller, ino: u64, changes: &Changes) -> Attributes;
    fn read_link(&self, ino: u64) -> Vec<u8>;
    fn make_file(&self, caller: &Caller, parent: u64, name: &[u8], new: &NewFile<'_>, pin: bool) -> Attributes;
    fn link(&self, caller: &Caller, ino: u64, parent: u64, name: &[u8]) -> Attributes;
    fn unlink(&self, caller: &Caller, parent: u64, name: &[u8]) -> ();
    fn remove_folder(&self, caller: &Caller, parent: u64, name: &[u8]) -> ();
    fn rename(&self, caller: &Caller, from: (u64, &[u8]), to: (u64, &[u8]), mode: RenameMode) -> ();
    fn unpin(&self, ino: u64, count: u64) -> ();
    fn read(&self, ino: u64, offset: u64, out: &mut [u8]) -> usize;
    fn note_read(&self, ino: u64) -> ();
    fn write(&self, caller: &Caller, ino: u64, offset: u64, bytes: &[u8]) -> ();
    fn sync(&self) -> ();
    fn read_folder(&self, caller: &Caller, ino: u64, cookie: u64, count: usize) -> Vec<FolderEntry>;
    fn read_folder_plus(&self, caller: &Caller, ino: u64, cookie: u64, count: usize) -> Vec<(FolderEntry, Attributes)>;
    fn set_extra(&self, caller: &Caller, ino: u64, name: &[u8], value: &[u8], mode: ExtraMode) -> ();
    fn extra(&self, caller: &Caller, ino: u64, name: &[u8]) -> Vec<u8>;
    fn extra_names(&self, caller: &Caller, ino: u64) -> Vec<Vec<u8>>;
    fn remove_extra(&self, caller: &Caller, ino: u64, name: &[u8]) -> ();
    fn allocate(&self, caller: &Caller, ino: u64, offset: u64, length: u64, what: Allocation) -> ();
    fn seek(&self, ino: u64, offset: u64, to: SeekTo) -> u64;
}

impl Source {
    /// Whether an operation is durable when it returns, and a name for the list of mounts.
    ///
    /// # Errors
    /// No node with metadata takes over.
    pub(crate) fn kind(&self) -> Result<(bool, String)> {
        let of = |volume: &Volume| (volume.is_durable_at_once(), volume.store().pool().path().display().to_string());
        match self {
            Self::One(volume) => Ok(of(volume)),
            Self::Replicated(source) => source.volume().map(|volume| of(&volume)),
            Self::Remote(volume) => Ok((false, format!("lodestone:{:016x}", volume.id()))),
        }
    }

    /// Does something on the volume. When its metadata node is gone, nothing has happened there, so it is done again at
    /// the next one: the caller sees a delay.
    pub(crate) fn on<T>(&self, mut act: impl FnMut(&dyn Files) -> Result<T>) -> Result<T> {
        match self {
            Self::One(volume) => act(volume),
            Self::Replicated(source) => loop {
                match act(&source.volume()?) {
                    Err(Error::Gone) => {}
                    outcome => return outcome,
                }
            },
            // It looks for the next one by itself.
            Self::Remote(volume) => act(volume),
        }
    }
}
