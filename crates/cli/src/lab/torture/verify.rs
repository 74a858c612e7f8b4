//! `lodestone torture verify`: judges a pool against a writer's report.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use anyhow::{Context, Result};
use lodestone_workload::kv::History;
use serde::Serialize;

use lodestone_cli::commands::pool::OpenArgs;
use lodestone_cli::output::Output;

use super::report;
use super::verdict::{self, Tally};

const AFTER_HELP: &str = "\
Example:
  lodestone torture verify a.pool acks

Exit code 0 only when every acknowledged write is there, whole, and nothing else is.";

/// Arguments of `lodestone torture verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    open: OpenArgs,

    /// The output of the writer
    report: PathBuf,
}

#[derive(Serialize)]
struct Verified {
    acked: u64,
    records: u64,
    uncertain: u64,
    uncertain_applied: u64,
    #[serde(flatten)]
    tally: Tally,
    domain: String,
}

/// Opens the pool (which recovers it) and judges.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    let mut history = History::new(report::codec()?);
    let failed = || format!("{}: reading the report failed", args.report.display());
    let source = BufReader::new(File::open(&args.report).with_context(failed)?);
    report::read(source, |line| {
        line.tell(&mut history);
        Ok(())
    })
    .with_context(failed)?;
    let pool = args.open.open()?;
    let verdict = verdict::judge(&pool, &history)?;
    for violation in &verdict.violations {
        output.note(&violation.to_string());
    }
    let mut tally = Tally::default();
    tally.add(&verdict.violations);
    let verified = Verified {
        acked: history.acknowledgements(),
        records: verdict.present,
        uncertain: verdict.uncertain,
        uncertain_applied: verdict.uncertain_applied,
        tally,
        domain: pool.info().domain_label(),
    };
    output.result(&verified, |verified| {
        format!(
            "{} acknowledged writes, {} records: {} lost, {} torn, {} otherwise wrong ({} domain)",
            verified.acked, verified.records, tally.lost, tally.torn, tally.other, verified.domain
        )
    })?;
    Ok(verdict.holds())
}
