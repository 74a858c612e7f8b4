//! `lodestone crash mutants`.

use anyhow::Result;
use lodestone_crash::{AuditReport, MutantFate, audit_target, calls_nobody_audits};
use serde::Serialize;

use lodestone_cli::output::{Output, ProgressUnit};

use super::select::{ConfigArgs, TargetArgs};

const AFTER_HELP: &str = "\
Examples:
  lodestone crash mutants --all
  lodestone crash mutants pool-roots --json
  lodestone crash mutants --target stm

Each flush and each fence that a target executes is dropped, or moved past its neighbour, and the target explored again.
A mutant that nobody notices is an unnecessary flush or a weak check: exit code 1, unless the target says why it is
redundant.";

/// Arguments of `lodestone crash mutants`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    targets: TargetArgs,

    #[command(flatten)]
    config: ConfigArgs,
}

/// An audit as `--json` prints it.
#[derive(Serialize)]
struct AuditLine<'a> {
    target: &'a str,
    mutants: usize,
    killed: usize,
    redundant: usize,
    survived: usize,
}

/// A mutant that was not killed, as `--json` prints it after its audit.
#[derive(Serialize)]
struct MutantLine<'a> {
    target: &'a str,
    mutation: &'a str,
    fate: &'static str,
    reason: &'a str,
}

/// Audits.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    let targets = args.targets.select()?;
    let configs = args.config.configs()?;
    let mut clean = true;
    let (mut mutants, mut killed, mut redundant) = (0, 0, 0);
    let mut reports = Vec::new();
    for (target, config) in targets.iter().flat_map(|target| configs.iter().map(move |config| (target, config))) {
        let bar = output.progress(Some(0), ProgressUnit::Steps).with_prefix(target.name());
        let audited = audit_target(target.as_ref(), config, &mut |done, of| {
            bar.set_length(of as u64);
            bar.set_position(done as u64);
        });
        bar.finish_and_clear();
        match audited {
            Ok(report) => {
                clean &= report.is_clean();
                mutants += report.mutants;
                killed += report.killed;
                redundant += report.redundant;
                print(&report, output)?;
                reports.push(report);
            }
            Err(why) => {
                clean = false;
                output.error(&anyhow::anyhow!("{}: the audit failed: {why}", target.name()));
            }
        }
    }
    // A target audits its floor's calls and leaves those of lower layers. Report the calls that no target audited.
    if args.targets.is_all() && !output.is_json() {
        for call in calls_nobody_audits(&reports) {
            output.line(&format!("not audited, because no target answers for it: {call}"))?;
        }
    }
    if mutants == 0 && clean {
        output.note("these targets execute no flush and no fence of their own: the floors below answer for theirs");
    }
    if !output.is_json() {
        let verdict = if clean { "nothing survived" } else { "SURVIVORS" };
        output.line(&format!("{killed} of {mutants} mutants killed, {redundant} redundant: {verdict}"))?;
    }
    Ok(clean)
}

fn print(report: &AuditReport, output: &Output) -> Result<()> {
    if !output.is_json() {
        return output.line(&report.to_string());
    }
    output.json(&AuditLine {
        target: &report.target,
        mutants: report.mutants,
        killed: report.killed,
        redundant: report.redundant,
        survived: report.survived,
    })?;
    for mutant in &report.list {
        let (fate, reason) = match &mutant.fate {
            MutantFate::Killed { .. } => continue,
            MutantFate::Redundant { reason } => ("redundant", reason.as_str()),
            MutantFate::Survived { exhausted: true } => ("survived", "every state was judged"),
            MutantFate::Survived { exhausted: false } => ("survived", "the bound was reached"),
            MutantFate::Stale { reason } => ("stale", reason.as_str()),
        };
        output.json(&MutantLine { target: &report.target, mutation: &mutant.mutation, fate, reason })?;
    }
    Ok(())
}
