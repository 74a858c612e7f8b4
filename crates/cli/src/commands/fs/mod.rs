//! `lodestone fs`: volumes, and their mounts.

mod bench;
mod format;
mod fsck;
mod mount;
mod status;

use std::path::PathBuf;

use anyhow::{Context, Result};
use lodestone_fs::{Volume, VolumeOptions};
use lodestone_pmem::{DomainChoice, PoolOptions};

use super::pool::WaitArgs;
use super::pool::domain;

const AFTER_HELP: &str = "\
Examples:
  lodestone fs format notes.vol --size 1GiB
  lodestone fs mount notes.vol /mnt/notes
  lodestone fs status notes.vol
  lodestone fs fsck notes.vol
  lodestone fs bench /mnt/notes /tmp

A volume is one file. The mount runs until Ctrl-C, SIGTERM or umount. An fsync makes
everything durable that was done before in the volume. See docs/fs.md.";

crate::subcommands! {
    /// Commands of `lodestone fs`.
    #[command(after_help = AFTER_HELP)]
    pub enum FsCommand {
        /// Make a volume in a new file
        Format(format::Args) => format::run,
        /// Mount a volume at a folder
        Mount(mount::Args) => mount::run,
        /// Check names, links, pages and checksums of a volume
        Fsck(fsck::Args) => fsck::run,
        /// Show room, files and recovery of a volume
        Status(status::Args) => status::run,
        /// Measure small synced writes in a folder: of a mount, and of another file system beside it
        Bench(bench::Args) => bench::run,
    }
}

/// A volume, and the domain to open it in.
#[derive(Clone, Debug, clap::Args)]
pub struct VolumeArgs {
    /// The file or device of the volume
    #[arg(value_name = "VOLUME")]
    pub path: PathBuf,

    /// Persistence domain: auto, dax, eadr, block, process (not safe against power loss)
    #[arg(long, value_name = "DOMAIN", default_value = "auto", value_parser = domain)]
    pub domain: DomainChoice,

    #[command(flatten)]
    wait: WaitArgs,
}

impl VolumeArgs {
    /// Opens the volume as its one user.
    fn open(&self) -> Result<Volume> {
        let pool = PoolOptions { domain: self.domain, ..PoolOptions::default() };
        let open = || Volume::open_with(&self.path, &pool, &VolumeOptions::default());
        self.wait.retry(|| open().with_context(|| format!("{}: opening the volume failed", self.path.display())))
    }
}
