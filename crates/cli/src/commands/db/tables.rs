//! `lodestone db tables`.

use anyhow::Result;
use serde::Serialize;

use super::place::DbArgs;
use crate::commands::pool::ReadArgs;
use crate::output::{Output, table};

const AFTER_HELP: &str = "\
Examples:
  lodestone db tables shop.pool
  lodestone db tables shop.pool --json

The schemas are in the form that `lodestone db create` takes.";

/// Arguments of `lodestone db tables`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    db: DbArgs,

    #[command(flatten)]
    read: ReadArgs,
}

#[derive(Serialize)]
struct Found {
    table: String,
    schema: String,
    rows: u64,
}

/// Prints the tables.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let database = args.db.open_to_read(args.read, output)?;
    let mut text = table(&["table", "rows", "columns and key"]);
    for name in database.tables()? {
        let found = database.table(&name)?;
        let rows = database.update(|tx| found.range(tx, ..)?.try_fold(0, |rows, row| row.map(|_| rows + 1)))?;
        let schema = found.schema().to_string();
        if output.is_json() {
            output.json(&Found { table: name, schema, rows })?;
        } else {
            let columns = schema.strip_prefix(&name).unwrap_or(&schema).trim().to_owned();
            text.add_row([name, rows.to_string(), columns]);
        }
    }
    if !output.is_json() {
        output.line(&text.to_string())?;
    }
    Ok(())
}
