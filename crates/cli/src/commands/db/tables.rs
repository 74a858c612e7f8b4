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
    /// The part that new pages go to, and its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<u32>,
    /// By part, where the pool has several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pages: Vec<u64>,
}

/// Prints the tables.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let database = args.db.open_to_read(args.read, output)?;
    // With one part all of them are there.
    let has_parts = database.pool().part_nodes().len() > 1;
    let titles = ["table", "rows", "part", "node", "pages by part", "columns and key"];
    let shown = |title: &&&str| has_parts || !["part", "node", "pages by part"].contains(*title);
    let mut text = table(&titles.iter().filter(shown).copied().collect::<Vec<_>>());
    for name in database.tables()? {
        let found = database.table(&name)?;
        let rows = database.update(|tx| found.range(tx, ..)?.try_fold(0, |rows, row| row.map(|_| rows + 1)))?;
        let schema = found.schema().to_string();
        let placement = database.placement(&name)?;
        if output.is_json() {
            let pages = if has_parts { placement.pages } else { Vec::new() };
            let (part, node) = (placement.part, placement.node);
            output.json(&Found { table: name, schema, rows, part, node, pages })?;
        } else {
            let columns = schema.strip_prefix(&name).unwrap_or(&schema).trim().to_owned();
            let any = |number: Option<String>| number.unwrap_or_else(|| "-".into());
            let pages = placement.pages.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
            let (part, node) =
                (placement.part.map(|part| part.to_string()), placement.node.map(|node| node.to_string()));
            let cells = [name, rows.to_string(), any(part), any(node), pages, columns];
            text.add_row(titles.iter().zip(cells).filter(|(title, _)| shown(title)).map(|(_, cell)| cell));
        }
    }
    if !output.is_json() {
        output.line(&text.to_string())?;
    }
    Ok(())
}
