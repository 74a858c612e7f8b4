//! `lodestone db move`.

use std::ops::Bound;

use anyhow::Result;
use lodestone_engine::Row;
use serde::Serialize;

use super::place::{DbArgs, find};
use super::values;
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone db move wide.pool orders 1
  lodestone db move wide.pool orders 1 --from 5000
  lodestone db move wide.pool events 0 --from 2026-01-01 --to 2026-07-01
  lodestone db move wide.pool --virtual-nodes 2 orders 0 --json

All pages of the table, its indexes and its long values are written again in the
first part of the pool on that node, and their former places are free after the
next checkpoints. With bounds only the rows in that range of keys move, and no
index does. Later rows go where the range says, until the whole table is moved.
Bounds may have the first columns of the key only.

`lodestone db tables` shows where the pages are. After an error or a crash some may
be in both parts: repeat the command.";

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
    to_node: u32,

    /// Only rows from this key on: a key, or its first columns
    #[arg(long, value_name = "KEY", num_args = 1.., allow_negative_numbers = true)]
    from: Vec<String>,

    /// Only rows before this key
    #[arg(long, value_name = "KEY", num_args = 1.., allow_negative_numbers = true)]
    to: Vec<String>,
}

#[derive(Serialize)]
struct Moved {
    table: String,
    node: u32,
    part: u16,
    leaves: u64,
    checkpoints: u64,
}

/// Moves the table, or a range of it. Durable when this returns.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let database = args.db.open(output)?;
    let (part, table) = (database.part_on(args.to_node)?, find(&database, &args.table)?);
    let bound = |words: &[String], bound: fn(Row) -> Bound<Row>| {
        let key = || values::key_from_words(table.schema(), words, true).map(bound);
        if words.is_empty() { Ok(Bound::Unbounded) } else { key() }
    };
    let keys = (bound(&args.from, Bound::Included)?, bound(&args.to, Bound::Excluded)?);
    let table = table.schema().name().to_owned();
    let report = match keys {
        (Bound::Unbounded, Bound::Unbounded) => database.move_table(&table, Some(part))?,
        keys => database.move_range(&table, keys, Some(part))?,
    };
    let moved = Moved { table, node: args.to_node, part, leaves: report.leaves, checkpoints: report.checkpoints };
    output.result(&moved, |moved| {
        format!("`{}`: {} leaves moved to part {} on node {}", moved.table, moved.leaves, moved.part, moved.node)
    })
}
