//! `--publish`: a long command shows its figures to `lodestone db top`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use lodestone_engine::{Database, PublishOptions};

use crate::interrupt::Scratch;

/// `--publish` of a command that has a pool of the user open.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct PublishArgs {
    /// Publish figures for `lodestone db top`, in POOL.stats or in this file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    #[expect(clippy::option_option, reason = "not given, given without a file, given with one")]
    publish: Option<Option<PathBuf>>,
}

impl PublishArgs {
    /// Publishes the figures of `database` until it is closed, if that was asked for. The result is to live as long.
    ///
    /// # Errors
    /// When the file cannot be written, or has another writer.
    pub fn begin(&self, database: &Database) -> Result<Option<Scratch>> {
        self.publish.as_ref().map(|file| publish(database, file.as_deref())).transpose()
    }
}

/// Publishes the figures of `database` until it is closed, in `file` or beside the pool. A signal removes the file as
/// long as the result lives.
///
/// # Errors
/// When the file cannot be written, or has another writer.
pub fn publish(database: &Database, file: Option<&Path>) -> Result<Scratch> {
    database.publish(&PublishOptions { path: file.map(Path::to_owned), ..PublishOptions::default() })?;
    let beside = || PublishOptions::default_path(database.pool().path());
    // It is ours only now.
    Ok(Scratch::new(&file.map_or_else(beside, Path::to_owned)))
}
