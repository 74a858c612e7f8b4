//! `lodestone db check`.

use anyhow::Result;
use lodestone_store::{Contents, Store};
use serde::Serialize;

use super::place::DbArgs;
use crate::commands::pool::ReadArgs;
use crate::output::Output;

const AFTER_HELP: &str = "\
Examples:
  lodestone db check shop.pool
  lodestone db check shop.pool --json

Exit code 1 when rows and indexes disagree or something is left over, 2 when the
database cannot be read: the message names the damaged page or record. `lodestone
pool check` verifies the pool and its heap as well.";

/// Arguments of `lodestone db check`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    db: DbArgs,

    #[command(flatten)]
    read: ReadArgs,
}

#[derive(Serialize)]
struct Checked {
    database: String,
    /// Of all tables.
    rows: u64,
    pm_bytes: u64,
    findings: Vec<String>,
    notes: Vec<String>,
}

/// Verifies everything of the database.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    let store = args.db.store_to_read(args.read)?;
    args.db.must_exist(&store)?;
    let contents = examine(&store, &args.db.db)?;
    let checked = Checked {
        database: args.db.db.clone(),
        rows: contents.records,
        pm_bytes: contents.blocks.iter().filter_map(|(at, _)| store.heap().block_bytes(*at)).sum(),
        findings: contents.flaws.iter().map(|flaw| format!("{}: {}", flaw.at, flaw.text)).collect(),
        notes: contents.notes,
    };
    output.result(&checked, |checked| {
        let lines = checked.findings.iter().chain(&checked.notes);
        let text: String = lines.map(|line| format!("{}: {line}\n", store.pool().path().display())).collect();
        let verdict = match checked.findings.len() {
            0 => "everything verifies".to_owned(),
            findings => format!("{findings} findings; restore a backup"),
        };
        format!("{text}database {}: {} rows: {verdict}", checked.database, checked.rows)
    })?;
    Ok(checked.findings.is_empty())
}

/// Everything of the database `name`, verified.
pub fn examine(store: &Store, name: &str) -> Result<Contents> {
    let object = store.open_object(name)?;
    let kind = store.kind_of(&object)?;
    kind.examine(object).map_err(anyhow::Error::from_boxed)
}
