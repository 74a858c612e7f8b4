//! `lodestone crash run`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use lodestone_crash::{Config, Mode, Profile, Report, Target, Violation, run_target};
use serde::Serialize;

use crate::output::{Output, ProgressUnit, exit};

use super::select::{ConfigArgs, TargetArgs};

const AFTER_HELP: &str = "\
Examples:
  lodestone crash run --all
  lodestone crash run --all --profile adr,eadr,block --json
  lodestone crash run pool heap-alloc --depth 2 --bound 1000000
  lodestone crash run --target stm,collections --json
  lodestone crash run --all --mode representative --seconds 60

Exit code 1 when there is a violation; it comes with the one command that shows it again.";

/// Arguments of `lodestone crash run`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    targets: TargetArgs,

    #[command(flatten)]
    config: ConfigArgs,

    /// Repeat the representative mode with new seeds until so many seconds are over
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
}

/// A report as `--json` prints it.
#[derive(Serialize)]
struct ReportLine<'a> {
    target: &'a str,
    profile: Profile,
    mode: Mode,
    bound: u64,
    states: u64,
    exhausted: bool,
    nested_depth: u32,
    violations: usize,
    seed: u64,
    seconds: f64,
}

/// A violation as `--json` prints it, behind its report.
#[derive(Serialize)]
struct ViolationLine<'a> {
    target: &'a str,
    violation: &'a str,
    operations: &'a [String],
    account: &'a str,
    token: &'a str,
    command: String,
}

/// Explores.
pub fn run(args: &Args, output: &Output) -> Result<ExitCode> {
    let targets = args.targets.select()?;
    let configs = args.config.configs()?;
    let started = Instant::now();
    let limit = Duration::from_secs(args.seconds.unwrap_or(0));
    let mut clean = true;
    let mut all_exhausted = true;
    let mut states = 0;
    for round in 0.. {
        for (target, config) in targets.iter().flat_map(|target| configs.iter().map(move |config| (target, config))) {
            if round > 0 && started.elapsed() >= limit {
                break;
            }
            let config = Config { seed: config.seed.wrapping_add(round), ..config.clone() };
            let report = explore(target.as_ref(), &config, output);
            clean &= report.is_clean();
            all_exhausted &= report.exhausted;
            states += report.states;
            print(&report, output)?;
        }
        // A second round repeats the same states, except in the mode that draws them.
        if started.elapsed() >= limit || configs.iter().all(|config| config.mode != Mode::Representative) {
            break;
        }
    }
    if !output.is_json() {
        output.line(&format!(
            "{} target{}, {states} crash states in {:.1} s: {}{}",
            targets.len(),
            if targets.len() == 1 { "" } else { "s" },
            started.elapsed().as_secs_f64(),
            if clean { "no violation" } else { "VIOLATIONS" },
            if all_exhausted { ", every state of every run judged" } else { "" },
        ))?;
    }
    Ok(exit::holds(clean))
}

fn explore(target: &dyn Target, config: &Config, output: &Output) -> Report {
    let bar = output.progress(None, ProgressUnit::Steps).with_prefix(target.name());
    bar.set_message("crash states");
    let report = run_target(target, config, &mut |states| bar.set_position(states));
    bar.finish_and_clear();
    report
}

fn print(report: &Report, output: &Output) -> Result<()> {
    if !output.is_json() {
        return output.line(&report.to_string());
    }
    output.json(&ReportLine {
        target: &report.target,
        profile: report.profile,
        mode: report.mode,
        bound: report.bound,
        states: report.states,
        exhausted: report.exhausted,
        nested_depth: report.nested_depth,
        violations: report.violations,
        seed: report.seed,
        seconds: report.seconds,
    })?;
    report.found.iter().try_for_each(|found| print_violation(&report.target, found, output))
}

/// Prints a violation as one line of JSON.
pub(super) fn print_violation(target: &str, found: &Violation, output: &Output) -> Result<()> {
    output.json(&ViolationLine {
        target,
        violation: &found.message,
        operations: &found.ops,
        account: &found.account,
        token: &found.token,
        command: found.command(),
    })
}
