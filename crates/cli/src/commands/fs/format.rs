//! `lodestone fs format`.

use anyhow::{Context, Result};
use lodestone_fs::{FormatOptions, Volume};
use lodestone_pmem::PoolOptions;
use serde::Serialize;

use super::VolumeArgs;
use crate::output::Output;
use crate::size;

const AFTER_HELP: &str = "\
Examples:
  lodestone fs format notes.vol
  lodestone fs format big.vol --size 4GiB

The file takes its whole size on the disk at once. The root folder
belongs to the user who formats.";

/// Bytes of the journal, by the size of the volume.
const JOURNAL_BYTES: (u64, u64) = (8 << 20, 64 << 20);

/// Arguments of `lodestone fs format`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    volume: VolumeArgs,

    /// Size of the volume
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size::parse)]
    size: u64,

    /// Size of the log of operations [default: a thirty-second part of the volume, at most 64 MiB]
    #[arg(long, value_name = "SIZE", default_value = "0", hide_default_value = true, value_parser = size::parse)]
    log_bytes: u64,

    /// Replace an existing file
    #[arg(long)]
    overwrite: bool,
}

#[derive(Serialize)]
struct Formatted {
    path: String,
    domain: String,
    promise: String,
    size_bytes: u64,
    room_bytes: u64,
}

/// Makes the volume.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let pool = PoolOptions {
        size_bytes: args.size,
        journal_bytes: (args.size / 16).clamp(JOURNAL_BYTES.0, JOURNAL_BYTES.1),
        domain: args.volume.domain,
        overwrite: args.overwrite,
        ..PoolOptions::default()
    };
    let mut options = FormatOptions::default();
    options.log_bytes = args.log_bytes;
    (options.uid, options.gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let path = &args.volume.path;
    let made = Volume::format_with(path, &pool, &options);
    let volume = made.with_context(|| format!("{}: formatting failed", path.display()))?;
    let (room, info) = (volume.room(), volume.store().pool().info());
    let formatted = Formatted {
        path: path.display().to_string(),
        domain: info.domain_label(),
        promise: info.promise,
        size_bytes: args.size,
        room_bytes: room.available * room.page_bytes,
    };
    output.result(&formatted, |formatted| {
        format!(
            "{}: a volume with {} for files, in the {} domain: {}\nmount it by `lodestone fs mount {} FOLDER`",
            formatted.path,
            size::human(formatted.room_bytes),
            formatted.domain,
            formatted.promise,
            formatted.path
        )
    })
}
