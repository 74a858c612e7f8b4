//! `lodestone db feed`.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};

use anyhow::Result;
use lodestone_engine::{Database, FeedPosition, FeedStart, FeedTransaction, Schema};

use super::place::DbArgs;
use super::values;
use crate::commands::pool::ReadArgs;
use crate::output::{Output, stdout_error};

const AFTER_HELP: &str = "\
Examples:
  lodestone db feed shop.pool
  lodestone db feed shop.pool > changes.jsonl

Each line is a committed transaction: its changes with table, key, and the row
after it, or null when it was deleted. The lines are in an order of their effects.
The last line is the position to go on from with --after. The logs keep the transactions since
the last checkpoint but one, and some before; an older position is refused. A program
follows the changes as they happen with `Database::feed`.";

/// Arguments of `lodestone db feed`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    db: DbArgs,

    #[command(flatten)]
    read: ReadArgs,

    /// Begin after this position [default: the oldest transaction that the logs have]
    #[arg(long, value_name = "POSITION")]
    after: Option<FeedPosition>,
}

/// Prints the transactions, then the position.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let database = args.db.open_to_read(args.read, output)?;
    let start = args.after.clone().map_or(FeedStart::Oldest, FeedStart::After);
    let batch = database.feed(&start)?.next_batch()?;
    let mut schemas = BTreeMap::new();
    let mut stdout = BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    for transaction in &batch.transactions {
        let line = to_json(&database, &mut schemas, transaction)?;
        writeln!(stdout, "{line}").map_err(stdout_error)?;
    }
    writeln!(stdout, "{{\"position\":\"{}\"}}", batch.position).map_err(stdout_error)?;
    stdout.flush().map_err(stdout_error)
}

/// The transaction on one line.
fn to_json(database: &Database, schemas: &mut BTreeMap<String, Schema>, found: &FeedTransaction) -> Result<String> {
    let mut changes = Vec::new();
    for change in &found.changes {
        if !schemas.contains_key(&change.table) {
            schemas.insert(change.table.clone(), database.table(&change.table)?.schema().clone());
        }
        let schema = &schemas[&change.table];
        let (table, key) = (serde_json::to_string(&change.table)?, values::key_to_json(schema, &change.key));
        let row = change.row.as_ref().map_or_else(|| "null".into(), |row| values::to_json(schema, row));
        changes.push(format!("{{\"table\":{table},\"key\":{key},\"row\":{row}}}"));
    }
    let (tick, writer, changes) = (found.tick, found.writer, changes.join(","));
    Ok(format!("{{\"tick\":{tick},\"writer\":{writer},\"changes\":[{changes}]}}"))
}
