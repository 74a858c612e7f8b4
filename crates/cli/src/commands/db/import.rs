//! `lodestone db import`.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use lodestone_engine::{Database, Row, Table};
use lodestone_width::to_u64;
use serde::Serialize;

use super::place::TableArgs;
use super::values;
use crate::interrupt;
use crate::output::{Output, ProgressUnit};
use crate::publish::PublishArgs;

const AFTER_HELP: &str = "\
Examples:
  lodestone db import shop.pool accounts accounts.jsonl
  lodestone db scan old.pool accounts \\
    | lodestone db import new.pool accounts -
  lodestone db import shop.pool accounts accounts.jsonl --batch 1 --skip 5000
  lodestone db import shop.pool accounts large.jsonl --publish

Rows replace those with the same keys. A line that is no row of the table ends the
import. The message names the line, and says which lines are in the table: all
before its batch. With --publish, `lodestone db top shop.pool` shows figures of
the database meanwhile.";

/// Arguments of `lodestone db import`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    table: TableArgs,

    /// JSON Lines: an object for each row; - is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Rows in a transaction
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    batch: u64,

    /// Leave out so many lines at the beginning
    #[arg(long, value_name = "COUNT", default_value_t = 0, hide_default_value = true)]
    skip: u64,

    #[command(flatten)]
    publish: PublishArgs,
}

#[derive(Serialize)]
struct Imported {
    rows: u64,
    transactions: u64,
    domain: String,
}

/// Imports the rows. All of them are durable when this returns.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let name = args.file.display();
    let input: Box<dyn BufRead> = if args.file.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(BufReader::new(File::open(&args.file).with_context(|| format!("{name}: opening the file failed"))?))
    };
    let (database, table) = args.table.open(output)?;
    let _published = args.publish.begin(&database)?;
    let mut imported = Imported { rows: 0, transactions: 0, domain: database.pool().info().domain_label() };
    let bar = output.progress(None, ProgressUnit::Steps).with_prefix("rows");
    let (mut rows, mut stored_lines) = (Vec::new(), args.skip);
    let go_on = |lines: u64| format!("lines 1 to {lines} are in the table; --skip {lines} goes on after them");
    let mut number = 0;
    for line in input.lines() {
        number += 1;
        let line = line.with_context(|| format!("{name}: reading line {number} failed; {}", go_on(stored_lines)))?;
        if number <= args.skip || line.trim().is_empty() {
            continue;
        }
        let row = values::from_json(table.schema(), &line);
        rows.push(row.map_err(|error| anyhow!("{name}: line {number}: {error:#}; {}", go_on(stored_lines)))?);
        if to_u64(rows.len()) == args.batch {
            store(&database, &table, &mut rows, &mut imported).with_context(|| go_on(stored_lines))?;
            stored_lines = number;
            interrupt::so_far(go_on(stored_lines));
            bar.set_position(imported.rows);
        }
    }
    store(&database, &table, &mut rows, &mut imported).with_context(|| go_on(stored_lines))?;
    bar.finish_and_clear();
    output.result(&imported, |imported| {
        format!(
            "{} rows in {} transactions, durable in domain {}",
            imported.rows, imported.transactions, imported.domain
        )
    })
}

/// Puts the rows in one transaction.
fn store(database: &Database, table: &Table, rows: &mut Vec<Row>, imported: &mut Imported) -> Result<()> {
    if !rows.is_empty() {
        database.update(|tx| rows.iter().try_for_each(|row| table.put(tx, row)))?;
        imported.rows += to_u64(rows.len());
        imported.transactions += 1;
        rows.clear();
    }
    Ok(())
}
