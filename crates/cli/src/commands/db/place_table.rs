//! `lodestone db move`.

use anyhow::Result;
use serde::Serialize;

use super::place::{DbArgs, find};
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone db move wide.pool orders 1
  lodestone db move wide.pool --virtual-nodes 2 orders 0 --json

All pages of the table, its indexes and its long values are written again in the
first part of the pool on that node, and their former places are free after the
next checkpoints. `lodestone db tables` shows where they are. After an error or a
crash some pages may be in both parts: repeat the command.";

/// Arguments of `lodestone db move`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    db: DbArgs,

    /// The table
    #[arg(value_name = "TABLE")]
    table: String,

    /// Number of the node, as `lodestone topology` prints it
    #[arg(value_name = "NODE")]
    to: u32,
}

#[derive(Serialize)]
struct Moved {
    table: String,
    node: u32,
    part: u16,
    leaves: u64,
    checkpoints: u64,
}

/// Moves the table. Durable when this returns.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let database = args.db.open(output)?;
    let (part, table) = (database.part_on(args.to)?, find(&database, &args.table)?.schema().name().to_owned());
    let report = database.move_table(&table, Some(part))?;
    let moved = Moved { table, node: args.to, part, leaves: report.leaves, checkpoints: report.checkpoints };
    output.result(&moved, |moved| {
        format!("`{}`: {} leaves moved to part {} on node {}", moved.table, moved.leaves, moved.part, moved.node)
    })
}
