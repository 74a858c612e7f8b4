//! `lodestone pool copy` and `lodestone pool backup`.

use std::path::PathBuf;

use anyhow::Result;
use lodestone_pmem::{CopyOptions, CopyReport, Pool, PoolOptions};
use serde::Serialize;

use crate::interrupt;
use crate::output::Output;
use crate::size;

use super::WaitArgs;

/// The identity of the second pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyKind {
    /// A new pool with new identities.
    Copy,
    /// The same pool at one moment.
    Backup,
}

/// Arguments of `lodestone pool copy` and `lodestone pool backup`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The pool
    #[arg(value_name = "POOL")]
    source: PathBuf,

    /// The file to make
    target: PathBuf,

    /// Replace an existing file
    #[arg(long)]
    overwrite: bool,

    /// Files for further parts [default: beside the target]
    #[arg(long = "part", value_name = "FILE")]
    parts: Vec<PathBuf>,

    /// For symmetry with the other commands that read: the source is never changed
    #[arg(long)]
    read_only: bool,

    #[command(flatten)]
    wait: WaitArgs,
}

#[derive(Serialize)]
struct Copied {
    source: String,
    target: String,
    parts: Vec<String>,
    uuid: String,
    pool_bytes: u64,
    written_bytes: u64,
}

/// Makes a new pool of the source, which is not changed.
pub fn run_copy(args: &Args, output: &Output) -> Result<()> {
    run(args, CopyKind::Copy, output)
}

/// Makes the same pool again.
pub fn run_backup(args: &Args, output: &Output) -> Result<()> {
    run(args, CopyKind::Backup, output)
}

fn run(args: &Args, kind: CopyKind, output: &Output) -> Result<()> {
    let pool = args.wait.retry(|| Ok(Pool::open_read_only(&args.source, &PoolOptions::default())?))?;
    let _busy = output.busy(if kind == CopyKind::Copy { "copy" } else { "backup" });
    interrupt::so_far(format!("{}: not made, and what was there is as it was; run it again", args.target.display()));
    let options = CopyOptions { overwrite: args.overwrite, parts: args.parts.clone(), share_percent: 100 };
    let report = match kind {
        CopyKind::Copy => pool.copy(&args.target, &options)?,
        CopyKind::Backup => pool.backup(&args.target, &options)?,
    };
    let CopyReport { paths, set_uuid, pool_bytes, written_bytes, .. } = &report;
    let copied = Copied {
        source: args.source.display().to_string(),
        target: args.target.display().to_string(),
        parts: paths.iter().map(|path| path.display().to_string()).collect(),
        uuid: set_uuid.to_string(),
        pool_bytes: *pool_bytes,
        written_bytes: *written_bytes,
    };
    output.result(&copied, |copied| {
        let what = if kind == CopyKind::Copy { "copied to a new pool" } else { "backed up to" };
        format!(
            "{}: {what} {}, {} ({} written), uuid {}",
            copied.source,
            copied.target,
            size::human(copied.pool_bytes),
            size::human(copied.written_bytes),
            copied.uuid
        )
    })
}
