//! `lodestone kv check`.

use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

use crate::output::{Output, exit};

use super::MapArgs;

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
}

#[derive(Serialize)]
struct Checked {
    map: String,
    records: u64,
    leaves: u64,
    pm_bytes: u64,
    dram_bytes: u64,
    findings: Vec<String>,
}

/// Verifies every leaf and record of the map.
pub fn run(args: &Args, output: &Output) -> Result<ExitCode> {
    let opened = args.map.open_to_read()?;
    let report = opened.map.check();
    let stats = opened.map.stats();
    let checked = Checked {
        map: args.map.map.clone(),
        records: report.records,
        leaves: report.leaves,
        pm_bytes: stats.pm_bytes,
        dram_bytes: stats.dram_bytes,
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
        format!("{text}map {}: {} records in {} leaves: {verdict}", checked.map, checked.records, checked.leaves)
    })?;
    Ok(exit::holds(report.is_intact()))
}
