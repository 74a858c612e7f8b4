//! `lodestone db backup`.

use std::path::PathBuf;

use anyhow::Result;
use lodestone_pmem::{CopyOptions, PoolOptions};
use lodestone_store::Store;
use serde::Serialize;

use super::check;
use super::place::DbArgs;
use crate::commands::pool::ReadArgs;
use crate::interrupt;
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone db backup shop.pool monday.pool
  lodestone db backup shop.pool monday.pool --overwrite --json

The copy is the whole pool at one moment. It is opened and verified before the
command succeeds; exit code 1 when something in it does not verify. A program that
has the pool open makes one with `Database::backup`.";

/// Arguments of `lodestone db backup`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    db: DbArgs,

    /// The file to make
    #[arg(value_name = "TARGET")]
    target: PathBuf,

    /// Replace an existing file
    #[arg(long)]
    overwrite: bool,

    #[command(flatten)]
    read: ReadArgs,
}

#[derive(Serialize)]
struct Copied {
    database: String,
    target: String,
    pool_bytes: u64,
    /// Of all tables of the copy.
    rows: u64,
    findings: Vec<String>,
}

/// Copies the pool, and verifies the database in the copy.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    let store = args.db.store_to_read(args.read)?;
    args.db.must_exist(&store)?;
    let _busy = output.busy("backup");
    interrupt::so_far(format!("{}: not made, and what was there is as it was; run it again", args.target.display()));
    let options = CopyOptions { overwrite: args.overwrite, share_percent: 100, ..CopyOptions::default() };
    let report = store.pool().backup(&args.target, &options)?;
    drop(store);
    interrupt::so_far(format!("{}: made, and not verified", args.target.display()));
    let copy = Store::open_read_only(&args.target, &PoolOptions::default())?;
    let contents = check::examine(&copy, &args.db.db)?;
    let copied = Copied {
        database: args.db.db.clone(),
        target: args.target.display().to_string(),
        pool_bytes: report.pool_bytes,
        rows: contents.records,
        findings: contents.flaws.iter().map(|flaw| format!("{}: {}", flaw.at, flaw.text)).collect(),
    };
    output.result(&copied, |copied| {
        let lines: String = copied.findings.iter().map(|line| format!("{}: {line}\n", copied.target)).collect();
        let verdict = if copied.findings.is_empty() { "verified" } else { "does not verify" };
        format!("{lines}{}: {verdict}, {} rows", copied.target, copied.rows)
    })?;
    Ok(copied.findings.is_empty())
}
