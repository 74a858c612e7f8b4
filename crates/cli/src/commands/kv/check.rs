//! `lodestone kv check`.

use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

use crate::commands::pool::ReadArgs;
use crate::output::{Output, exit};

use super::MapArgs;
use super::map::MapKind;

const AFTER_HELP: &str = "\
Examples:
  lodestone kv check orders.pool
  lodestone kv check orders.pool --map users --json

Exit code 1 when something does not verify. `lodestone pool check` verifies the pool and its heap as well.";

/// Arguments of `lodestone kv check`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    map: MapArgs,

    #[command(flatten)]
    read: ReadArgs,
}

#[derive(Serialize)]
struct Checked {
    map: String,
    index: String,
    records: u64,
    leaves: u64,
    pm_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dram_bytes: Option<u64>,
    findings: Vec<String>,
}

/// Verifies every leaf and record of the map.
pub fn run(args: &Args, output: &Output) -> Result<ExitCode> {
    let opened = args.map.open_to_read(args.read)?;
    let report = opened.map.check();
    let checked = Checked {
        map: args.map.map.clone(),
        index: opened.kind.to_string(),
        records: report.records,
        leaves: report.leaves,
        pm_bytes: report.blocks.iter().filter_map(|at| opened.heap.block_bytes(*at)).sum(),
        dram_bytes: opened.map.dram_bytes(),
        findings: report.findings.iter().map(ToString::to_string).collect(),
    };
    output.result(&checked, |checked| {
        let mut text = String::new();
        for finding in &checked.findings {
            text.push_str(&format!("{}: {finding}\n", opened.pool.path().display()));
        }
        let verdict = if checked.findings.is_empty() {
            "everything verifies".to_owned()
        } else {
            format!("{} findings; restore a backup, or export what is readable into a new pool", checked.findings.len())
        };
        let place = match opened.kind {
            MapKind::Ordered => format!("in {} leaves", checked.leaves),
            MapKind::Over(kind) => format!("over the index {kind}"),
        };
        format!("{text}map {}: {} records {place}: {verdict}", checked.map, checked.records)
    })?;
    Ok(exit::holds(report.is_intact()))
}
