//! `lodestone fs mount`.

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result};
use lodestone_fs_fuse::{Error, MountOptions, Mounted};
use serde::Serialize;

use super::VolumeArgs;
use crate::interrupt;
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone fs mount notes.vol /mnt/notes
  lodestone fs mount notes.vol /mnt/notes --read-only

The command runs until Ctrl-C, SIGTERM or `umount FOLDER`. SIGKILL and a power cut lose
nothing that fsync acknowledged; the next mount takes the dead one away and goes on from
there. docs/posix.md says how the mount differs from POSIX.";

/// How often the mount is looked at.
const WATCH: Duration = Duration::from_millis(200);
/// Looks while files are open, before the mount is hidden: five seconds.
const BUSY_LOOKS: u32 = 25;

/// Arguments of `lodestone fs mount`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    volume: VolumeArgs,

    /// The folder
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,

    /// Threads that answer the kernel
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    threads: usize,

    /// Let other users use it, with their permissions [default: when root mounts]
    #[arg(long)]
    allow_other: bool,

    /// Refuse all changes
    #[arg(long)]
    read_only: bool,

    /// Leave access times alone
    #[arg(long)]
    no_atime: bool,
}

#[derive(Serialize)]
struct Serving {
    volume: String,
    folder: PathBuf,
    domain: String,
    promise: String,
    replayed: u64,
    dropped: u64,
    orphans: u64,
}

/// Mounts, and serves until a signal or an unmount.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let volume = args.volume.open()?;
    let (info, recovery) = (volume.store().pool().info(), volume.recovery());
    let mut options = MountOptions::default();
    options.threads = args.threads.clamp(1, 64);
    options.allow_other |= args.allow_other;
    options.read_only = args.read_only;
    options.atime = !args.no_atime;
    let (stop, stopped) = mpsc::channel();
    interrupt::on_signal(move || {
        // The receiver is gone only when the command has ended.
        let _ = stop.send(());
    });
    let mounted = lodestone_fs_fuse::mount(volume.clone(), &args.folder, &options)?;
    let serving = Serving {
        volume: args.volume.path.display().to_string(),
        folder: mounted.point().to_owned(),
        domain: info.domain_label(),
        promise: info.promise,
        replayed: recovery.replayed,
        dropped: recovery.dropped,
        orphans: recovery.orphans,
    };
    output.result(&serving, |serving| {
        let recovered = match (serving.replayed, serving.dropped) {
            (0, 0) => String::new(),
            (replayed, dropped) => format!("; {replayed} operations replayed, {dropped} unsynced ones dropped"),
        };
        let (volume, folder) = (&serving.volume, serving.folder.display());
        format!("{volume} is mounted at {folder} ({}: {}){recovered}", serving.domain, serving.promise)
    })?;
    while !mounted.has_ended() && stopped.recv_timeout(WATCH) == Err(mpsc::RecvTimeoutError::Timeout) {}
    end(&mounted, output)?;
    mounted.wait()?;
    volume.sync().context("the last sync failed")?;
    volume.write_image().context("the last batch failed")?;
    output.note("unmounted; everything is durable");
    Ok(())
}

/// Unmounts. While files are open it waits some seconds, then it hides the mount, which ends with the last of them.
fn end(mounted: &Mounted, output: &Output) -> Result<()> {
    for look in 0..BUSY_LOOKS {
        match mounted.unmount() {
            Err(error @ Error::Busy { .. }) => {
                if look == 0 {
                    output.note(&format!("{error}; waiting"));
                }
                std::thread::sleep(WATCH);
            }
            outcome => return outcome.map_err(anyhow::Error::from),
        }
    }
    output.note("the mount is hidden now and ends with the last open file; a second signal ends it at once");
    Ok(mounted.detach()?)
}
