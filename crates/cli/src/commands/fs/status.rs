//! `lodestone fs status`.

use anyhow::Result;
use serde::Serialize;

use super::VolumeArgs;
use crate::output::Output;
use crate::size;

const AFTER_HELP: &str = "\
Examples:
  lodestone fs status notes.vol
  lodestone fs status notes.vol --json

A mounted volume is in use; `df FOLDER` shows its room.";

/// Arguments of `lodestone fs status`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    volume: VolumeArgs,
}

#[derive(Serialize)]
struct Status {
    volume: String,
    id: String,
    domain: String,
    promise: String,
    files: u64,
    size_bytes: u64,
    used_bytes: u64,
    available_bytes: u64,
    replayed: u64,
    dropped: u64,
    copies: u32,
}

/// Shows the state of the volume.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let volume = args.volume.open()?;
    let (room, recovery, info) = (volume.room(), volume.recovery(), volume.store().pool().info());
    let status = Status {
        volume: args.volume.path.display().to_string(),
        id: format!("{:016x}", volume.id()),
        domain: info.domain_label(),
        promise: info.promise,
        files: room.files,
        size_bytes: room.pages * room.page_bytes,
        used_bytes: (room.pages - room.free) * room.page_bytes,
        available_bytes: room.available * room.page_bytes,
        replayed: recovery.replayed,
        dropped: recovery.dropped,
        copies: 1,
    };
    output.result(&status, |status| {
        format!(
            "volume     {} ({})\ndomain     {}: {}\nfiles      {}\nused       {} of {}, {} available\n\
             recovery   {} operations replayed, {} unsynced ones dropped\ncopies     1 of data, 1 of metadata",
            status.volume,
            status.id,
            status.domain,
            status.promise,
            status.files,
            size::human(status.used_bytes),
            size::human(status.size_bytes),
            size::human(status.available_bytes),
            status.replayed,
            status.dropped
        )
    })
}
