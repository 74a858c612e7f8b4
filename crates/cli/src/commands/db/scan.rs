//! `lodestone db scan`.

use std::io::{BufWriter, Write};
use std::ops::Bound;

use anyhow::Result;
use lodestone_engine::Row;

use super::place::TableArgs;
use super::values;
use crate::commands::pool::ReadArgs;
use crate::output::{Output, stdout_error};

const AFTER_HELP: &str = "\
Examples:
  lodestone db scan shop.pool accounts
  lodestone db scan shop.pool accounts --from 5 --to 9 --reverse --limit 2
  lodestone db scan shop.pool orders --prefix alice
  lodestone db scan shop.pool accounts --index by_owner --prefix alice
  lodestone db scan shop.pool accounts > accounts.jsonl

Each row is a JSON object on a line, and `lodestone db import` reads it back. Bounds
may have the first columns of the key only: --prefix alice means every order of
alice, and --from alice begins with the first of them.";

/// Arguments of `lodestone db scan`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    table: TableArgs,

    #[command(flatten)]
    read: ReadArgs,

    /// The first key, or its first columns
    #[arg(long, value_name = "KEY", num_args = 1.., allow_negative_numbers = true)]
    from: Vec<String>,

    /// The end of the keys, exclusive
    #[arg(long, value_name = "KEY", num_args = 1.., allow_negative_numbers = true)]
    to: Vec<String>,

    /// Rows whose keys begin with these columns
    #[arg(long, value_name = "KEY", num_args = 1.., allow_negative_numbers = true, conflicts_with_all = ["from", "to"])]
    prefix: Vec<String>,

    /// In the order of this index; the bounds are values of its columns
    #[arg(long, value_name = "NAME")]
    index: Option<String>,

    /// From the last key to the first
    #[arg(long)]
    reverse: bool,

    /// Print at most so many rows
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
}

/// Prints the rows.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let (database, table) = args.table.open_to_read(args.read, output)?;
    let bound = |words: &[String], bound: fn(Row) -> Bound<Row>| {
        let key = || match &args.index {
            None => values::key_from_words(table.schema(), words, true).map(bound),
            Some(name) => {
                let index = table.index(name)?;
                let columns: Vec<_> = index.index().columns.iter().map(String::as_str).collect();
                values::columns_from_words(table.schema(), &columns, words).map(bound)
            }
        };
        if words.is_empty() { Ok(Bound::Unbounded) } else { key() }
    };
    let range = if args.prefix.is_empty() {
        (bound(&args.from, Bound::Included)?, bound(&args.to, Bound::Excluded)?)
    } else {
        (bound(&args.prefix, Bound::Included)?, bound(&args.prefix, Bound::Included)?)
    };
    let mut stdout = BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    let limit = args.limit.unwrap_or(usize::MAX);
    if let Some(name) = &args.index {
        let index = table.index(name)?;
        // One transaction: an entry that many rows share is no place to go on from.
        let rows = database.update(|tx| {
            let rows = index.range(tx, range.clone())?;
            if args.reverse {
                rows.rev().take(limit).collect()
            } else {
                rows.take(limit).collect::<Result<Vec<_>, _>>()
            }
        })?;
        for row in &rows {
            writeln!(stdout, "{}", values::to_json(table.schema(), row)).map_err(stdout_error)?;
        }
        stdout.flush().map_err(stdout_error)?;
        return Ok(());
    }
    // A snapshot notes nothing of what it reads, however many rows there are.
    let snapshot = database.snapshot()?;
    let rows = table.range(&snapshot, range)?;
    let rows: Box<dyn Iterator<Item = _>> = if args.reverse { Box::new(rows.rev()) } else { Box::new(rows) };
    for row in rows.take(limit) {
        writeln!(stdout, "{}", values::to_json(table.schema(), &row?)).map_err(stdout_error)?;
    }
    stdout.flush().map_err(stdout_error)
}
