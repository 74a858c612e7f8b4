//! `lodestone db get`.

use anyhow::Result;

use super::place::TableArgs;
use super::values;
use crate::commands::pool::ReadArgs;
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone db get shop.pool accounts 7
  lodestone db get shop.pool orders alice 3

A value for each column of the key. Exit code 1 when there is no such row.";

/// Arguments of `lodestone db get`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    table: TableArgs,

    #[command(flatten)]
    read: ReadArgs,

    /// The key: a value for each of its columns
    #[arg(value_name = "KEY", required = true, allow_negative_numbers = true)]
    key: Vec<String>,
}

/// Prints the row.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    let (database, table) = args.table.open_to_read(args.read, output)?;
    let key = values::key_from_words(table.schema(), &args.key, false)?;
    let Some(row) = database.update(|tx| table.get(tx, &key))? else {
        let path = database.pool().path().display();
        output.note(&format!("{path}: table `{}` has no row with the key {key}", args.table.table));
        return Ok(false);
    };
    output.line(&values::to_json(table.schema(), &row))?;
    Ok(true)
}
