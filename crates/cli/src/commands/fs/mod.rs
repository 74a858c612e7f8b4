//! `lodestone fs`: volumes, and their mounts.

mod bench;
mod control;
mod format;
mod fsck;
mod machines;
mod metrics;
mod mount;
mod nodes;
mod scrub;
mod serve;
mod status;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use lodestone_fs::cluster::{Cluster, ClusterOptions};
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
  lodestone fs mount notes.vol /mnt/notes --try 3
  lodestone fs scrub notes.vol
  lodestone fs bench /mnt/notes /tmp

A volume is one file, or on several machines (`lodestone fs format --help`). The mount runs until Ctrl-C, SIGTERM or umount. An fsync makes
everything durable that was done before in the volume. With --try the volume has replicas
and a standby, all in one process. See docs/fs.md.";

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
        /// Read all replicas of a volume, and repair damage
        Scrub(scrub::Args) => scrub::run,
        /// Run a machine of a volume on several, or keep replicas of volumes that are mounted elsewhere
        Serve(serve::Args) => serve::run,
        /// Add a machine to a volume on several, or a replica in another process to a mounted volume
        Add(nodes::AddArgs) => nodes::add,
        /// Drain a machine of a volume on several: its nodes leave when the others have everything
        Drain(nodes::DrainArgs) => nodes::drain,
        /// Remove a machine, or a replica in another process; the others have everything first
        Remove(nodes::RemoveArgs) => nodes::remove,
        /// Stop a node of a mounted volume, as a kill does
        Stop(nodes::Args) => nodes::stop,
        /// Start a node of a mounted volume that was stopped
        Start(nodes::Args) => nodes::start,
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

    /// Trust everything that can reach nodes of the volume in other processes
    #[arg(long)]
    pub plain_network: bool,

    /// Folder with your certificate, for a volume on several machines
    #[arg(long, value_name = "DIR")]
    pub credentials: Option<PathBuf>,

    #[command(flatten)]
    wait: WaitArgs,
}

/// An open volume: of one file, or with the nodes that it has beside it.
#[derive(Debug)]
enum Opened {
    One(Volume),
    Many(Cluster),
}

impl Opened {
    /// The volume, at the present metadata node.
    fn volume(&self) -> Result<Volume> {
        Ok(match self {
            Self::One(volume) => volume.clone(),
            Self::Many(cluster) => cluster.volume()?,
        })
    }
}

impl VolumeArgs {
    fn pool(&self) -> PoolOptions {
        PoolOptions { domain: self.domain, ..PoolOptions::default() }
    }

    fn failed(&self) -> String {
        format!("{}: opening the volume failed", self.path.display())
    }

    /// Opens the volume as its one user, with the nodes that it has.
    fn open(&self) -> Result<Opened> {
        if self.site()?.is_some() {
            bail!(
                "{}: it describes a volume on several machines, which this command does not open; `lodestone fs mount` \
                 and `status` do",
                self.path.display()
            );
        }
        let open = || match Volume::open_with(&self.path, &self.pool(), &VolumeOptions::default()) {
            Ok(volume) => Ok(Opened::One(volume)),
            Err(lodestone_fs::Error::Replicated { .. }) => {
                let is_elsewhere = control::folder(&self.path).join("addresses").exists();
                serve::need_plain(self.plain_network || !is_elsewhere)?;
                self.cluster(0).map(Opened::Many)
            }
            Err(error) => Err(error.into()),
        };
        self.wait.retry(|| open().with_context(|| self.failed()))
    }

    /// Opens the volume with so many replicas of its pages, and a standby; 0: as it is.
    fn cluster(&self, replicas: u16) -> Result<Cluster> {
        let mut options = ClusterOptions::default();
        options.replicas = replicas;
        self.cluster_with(&options)
    }

    fn cluster_with(&self, options: &ClusterOptions) -> Result<Cluster> {
        Ok(Cluster::open(&self.path, &self.pool(), options)?)
    }
}
