//! `lodestone pool create`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use lodestone_pmem::{Pool, PoolOptions};
use serde::Serialize;

use crate::output::{Output, exit};
use crate::size;

use super::OpenArgs;

const AFTER_HELP: &str = "\
Examples:
  lodestone pool create orders.pool
  lodestone pool create orders.pool --size 1GiB --journal 64MiB
  lodestone pool create /mnt/pmem/orders.pool --domain dax --layout orders";

/// Arguments of `lodestone pool create`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    open: OpenArgs,

    /// Size of the pool
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size::parse)]
    size: u64,

    /// Size of the journal inside it, which the block domain needs
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = size::parse)]
    journal: u64,

    /// Name of the layout: a program that expects another one refuses the pool
    #[arg(long, value_name = "NAME", default_value = "")]
    layout: String,

    /// Replace the file or pool that is there
    #[arg(long)]
    overwrite: bool,

    /// Further parts, one per NUMA node as a rule
    #[arg(long = "part", value_name = "FILE")]
    parts: Vec<PathBuf>,
}

#[derive(Serialize)]
struct Created {
    path: String,
    domain: String,
    promise: &'static str,
    size_bytes: u64,
    journal_bytes: u64,
    layout: String,
}

/// Creates the pool.
pub fn run(args: &Args, output: &Output) -> Result<ExitCode> {
    let options = PoolOptions {
        size_bytes: args.size,
        journal_bytes: args.journal,
        layout_name: args.layout.clone(),
        overwrite: args.overwrite,
        parts: args.parts.clone(),
        ..args.open.options()
    };
    let pool = Pool::create(&args.open.path, &options)?;
    let domain = pool.memory().domain();
    let created = Created {
        path: args.open.path.display().to_string(),
        domain: domain.to_string(),
        promise: domain.promise(),
        size_bytes: pool.memory().part_len(0),
        journal_bytes: args.journal,
        layout: args.layout.clone(),
    };
    output.result(&created, |created| {
        format!(
            "{}: created, {} in the {} domain: {}",
            created.path,
            size::human(created.size_bytes),
            created.domain,
            created.promise
        )
    })?;
    Ok(exit::ok())
}
