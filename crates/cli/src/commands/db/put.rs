//! `lodestone db put`.

use std::io::Read;

use anyhow::{Context, Result};
use lodestone_engine::Row;
use serde::Serialize;

use super::place::TableArgs;
use super::values;
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone db put shop.pool accounts '{\"id\":7,\"owner\":\"alice\"}'
  lodestone db put shop.pool accounts '{\"id\":7,\"owner\":\"al\"}' \\
    '{\"id\":8,\"owner\":\"bob\"}'
  lodestone db put shop.pool accounts --new - < rows.jsonl

All rows are one transaction: a power cut leaves all of them or none.";

/// Arguments of `lodestone db put`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    table: TableArgs,

    /// Rows as JSON objects, or - for lines of standard input
    #[arg(value_name = "ROW", required = true)]
    rows: Vec<String>,

    /// Refuse rows whose keys are there
    #[arg(long)]
    new: bool,
}

#[derive(Serialize)]
struct Put {
    rows: usize,
    domain: String,
}

/// Stores the rows. Durable when this returns.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let mut input = String::new();
    let lines = if args.rows == ["-"] {
        std::io::stdin().lock().read_to_string(&mut input).context("reading the rows from standard input failed")?;
        input.lines().filter(|line| !line.trim().is_empty()).collect()
    } else {
        args.rows.iter().map(String::as_str).collect::<Vec<_>>()
    };
    let (database, table) = args.table.open(output)?;
    let row = |(number, line): (usize, &&str)| {
        values::from_json(table.schema(), line).with_context(|| format!("row {}; nothing was stored", number + 1))
    };
    let rows: Vec<Row> = lines.iter().enumerate().map(row).collect::<Result<_>>()?;
    database.update(|tx| {
        rows.iter().try_for_each(|row| if args.new { table.insert(tx, row) } else { table.put(tx, row) })
    })?;
    if output.is_json() {
        output.json(&Put { rows: rows.len(), domain: database.pool().info().domain_label() })?;
    }
    Ok(())
}
