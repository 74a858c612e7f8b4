//! `lodestone db keep`.

use anyhow::Result;
use serde::Serialize;

use super::place::{DbArgs, find};
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone db keep shop.pool towns
  lodestone db keep shop.pool towns --not

A program that opens the database with a bound of its cache (--cache, cache_bytes)
reads the rows of others from their pages when they are used, and the bound is for
those. The rows of a kept table, its indexes and its long values are read after each
open, and stay. `lodestone db tables` says which tables are kept.";

/// Arguments of `lodestone db keep`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    db: DbArgs,

    /// The table
    #[arg(value_name = "TABLE")]
    table: String,

    /// Let it be in the cache like others again
    #[arg(long)]
    not: bool,
}

#[derive(Serialize)]
struct Kept {
    table: String,
    kept: bool,
}

/// Keeps the table, or not. Durable when this returns.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let database = args.db.open(output)?;
    let table = find(&database, &args.table)?.schema().name().to_owned();
    database.keep_table(&table, !args.not)?;
    output.result(&Kept { table, kept: !args.not }, |kept| {
        let how = if kept.kept { "stays in DRAM" } else { "is in the cache like others" };
        format!("`{}` {how}", kept.table)
    })
}
