//! `lodestone db del`.

use anyhow::Result;
use serde::Serialize;

use super::place::TableArgs;
use super::values;
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone db del shop.pool accounts 7
  lodestone db del shop.pool orders alice 3

A value for each column of the key. Exit code 1 when there was no such row.";

/// Arguments of `lodestone db del`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    table: TableArgs,

    /// The key: a value for each of its columns
    #[arg(value_name = "KEY", required = true, allow_negative_numbers = true)]
    key: Vec<String>,
}

#[derive(Serialize)]
struct Deleted {
    removed: bool,
}

/// Removes the row. Durable when this returns.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    let (database, table) = args.table.open(output)?;
    let key = values::key_from_words(table.schema(), &args.key, false)?;
    let removed = database.update(|tx| table.delete(tx, &key))?;
    if output.is_json() {
        output.json(&Deleted { removed })?;
    } else if !removed {
        let path = database.pool().path().display();
        output.note(&format!("{path}: table `{}` has no row with the key {key}", args.table.table));
    }
    Ok(removed)
}
