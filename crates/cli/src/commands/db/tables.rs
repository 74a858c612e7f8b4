//! `lodestone db tables`.

use anyhow::Result;
use lodestone_engine::{RangePlacement, TablePlacement};
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
    /// Each row is in two versions side by side.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dual: bool,
    /// Its rows stay in DRAM.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    kept: bool,
    /// Keys whose rows go to other parts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ranges: Vec<Range>,
    /// By part, where the pool has several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pages: Vec<u64>,
    /// Of them, those that are not in the part that they should be in.
    #[serde(skip_serializing_if = "is_zero")]
    pages_elsewhere: u64,
}

#[derive(Serialize)]
struct Range {
    from: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<u32>,
}

/// The signature is that of serde.
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Prints the tables.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let database = args.db.open_to_read(args.read, output)?;
    // With one part all of them are there.
    let has_parts = database.pool().part_nodes().len() > 1;
    let names = database.tables()?;
    let has_dual = names.iter().any(|name| database.placement(name).is_ok_and(|placement| placement.is_dual));
    let has_kept = names.iter().any(|name| database.placement(name).is_ok_and(|placement| placement.is_kept));
    let titles = ["table", "rows", "dual", "kept in DRAM", "part", "node", "pages by part", "columns and key"];
    let shown = |title: &&&str| match **title {
        "dual" => has_dual,
        "kept in DRAM" => has_kept,
        "part" | "node" | "pages by part" => has_parts,
        _ => true,
    };
    let mut text = table(&titles.iter().filter(shown).copied().collect::<Vec<_>>());
    for name in names {
        let found = database.table(&name)?;
        let rows = database.update(|tx| found.range(tx, ..)?.try_fold(0, |rows, row| row.map(|_| rows + 1)))?;
        let schema = found.schema().to_string();
        let placement = database.placement(&name)?;
        if output.is_json() {
            output.json(&found_in(name, schema, rows, placement, has_parts))?;
        } else {
            let columns = schema.strip_prefix(&name).unwrap_or(&schema).trim().to_owned();
            let pages = placement.pages.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
            let part = in_ranges(&placement, placement.part, |range| range.part);
            let node = in_ranges(&placement, placement.node, |range| range.node);
            let [dual, kept] =
                [placement.is_dual, placement.is_kept].map(|is_so| if is_so { "yes" } else { "no" }.to_owned());
            let cells = [name, rows.to_string(), dual, kept, part, node, pages, columns];
            text.add_row(titles.iter().zip(cells).filter(|(title, _)| shown(title)).map(|(_, cell)| cell));
        }
    }
    if !output.is_json() {
        output.line(&text.to_string())?;
    }
    Ok(())
}

fn found_in(table: String, schema: String, rows: u64, placement: TablePlacement, has_parts: bool) -> Found {
    let TablePlacement { part, node, pages_elsewhere, .. } = placement;
    let ranges = placement.ranges.into_iter();
    Found {
        table,
        schema,
        rows,
        part,
        node,
        dual: placement.is_dual,
        kept: placement.is_kept,
        ranges: ranges.map(|range| Range { from: range.from, part: range.part, node: range.node }).collect(),
        pages: if has_parts { placement.pages } else { Vec::new() },
        pages_elsewhere,
    }
}

/// A number for the table, and those of its ranges: `0; from (5000): 1`.
fn in_ranges<N: ToString>(
    placement: &TablePlacement,
    whole: Option<N>,
    of: impl Fn(&RangePlacement) -> Option<N>,
) -> String {
    let any = |number: Option<N>| number.map_or_else(|| "-".into(), |number| number.to_string());
    let ranges = placement.ranges.iter().map(|range| format!("from {}: {}", range.from, any(of(range))));
    std::iter::once(any(whole)).chain(ranges).collect::<Vec<_>>().join("; ")
}
