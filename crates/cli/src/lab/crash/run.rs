//! `lodestone crash run`.

use std::time::{Duration, Instant};

use anyhow::Result;
use lodestone_crash::{Config, Mode, Profile, Report, Target, Violation, run_target};
use serde::Serialize;

use lodestone_cli::interrupt;
use lodestone_cli::output::{Output, ProgressUnit};

use super::select::{ConfigArgs, TargetArgs};

const AFTER_HELP: &str = "\
Examples:
  lodestone crash run --all
  lodestone crash run --all --profile adr,eadr,block --json
  lodestone crash run pool heap-alloc --depth 2 --bound 1000000
  lodestone crash run --target stm,collections --json
  lodestone crash run --all --mode representative --seconds 60

Exit code 1 when there is a violation; it comes with the one command that shows it again. A target whose states were not
all judged is named at the end: no violation was found in it, which is not the same as none.";

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

/// A violation as `--json` prints it, after its report.
#[derive(Serialize)]
struct ViolationLine<'a> {
    target: &'a str,
    violation: &'a str,
    operations: &'a [String],
    account: &'a str,
    token: &'a str,
    command: &'a str,
}

/// A target of which some states were not judged.
#[derive(Debug, Serialize)]
struct NotExhausted {
    target: String,
    profile: Profile,
    /// Most states that would have been judged.
    bound: u64,
    states: u64,
}

/// The summary, as `--json` prints it at the end.
#[derive(Debug, Default, Serialize)]
struct Summary {
    event: &'static str,
    targets: usize,
    /// Number of runs (a target under a profile) in the last round.
    runs: usize,
    states: u64,
    violations: usize,
    exhausted: usize,
    not_exhausted: Vec<NotExhausted>,
    seconds: f64,
}

/// Explores.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    let targets = args.targets.select()?;
    let configs = args.config.configs()?;
    let started = Instant::now();
    let limit = Duration::from_secs(args.seconds.unwrap_or(0));
    let mut all = Summary { event: "summary", targets: targets.len(), ..Summary::default() };
    for round in 0.. {
        // Another round judges other samples of the same runs.
        (all.runs, all.exhausted) = (0, 0);
        all.not_exhausted.clear();
        for (target, config) in targets.iter().flat_map(|target| configs.iter().map(move |config| (target, config))) {
            if round > 0 && started.elapsed() >= limit {
                break;
            }
            interrupt::so_far(all.so_far());
            let config = Config { seed: config.seed.wrapping_add(round), ..config.clone() };
            let report = explore(target.as_ref(), &config, output);
            all.add(&report);
            print(&report, output)?;
        }
        // A second round repeats the same states, except in the mode that draws them.
        if started.elapsed() >= limit || configs.iter().all(|config| config.mode != Mode::Representative) {
            break;
        }
    }
    all.seconds = started.elapsed().as_secs_f64();
    output.result(&all, |all| all.text(args.config.is_sample()))?;
    Ok(all.violations == 0)
}

impl Summary {
    fn add(&mut self, report: &Report) {
        self.runs += 1;
        self.states += report.states;
        self.violations += report.violations;
        if report.exhausted {
            self.exhausted += 1;
        } else {
            let (target, profile) = (report.target.clone(), report.profile);
            self.not_exhausted.push(NotExhausted { target, profile, bound: report.bound, states: report.states });
        }
    }

    fn so_far(&self) -> String {
        let (runs, states) = (self.runs, self.states);
        format!(
            "{runs} runs and {states} crash states were judged, with {} violations; the rest was not",
            self.violations
        )
    }

    fn text(&self, is_sample: bool) -> String {
        let plural = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
        let (targets, states) = (plural(self.targets, "target"), self.states);
        let verdict = match (self.violations, self.not_exhausted.is_empty()) {
            (0, true) => "no violation; every state of every run was judged".to_owned(),
            (0, false) => "no violation found".to_owned(),
            (count, _) => plural(count, "VIOLATION"),
        };
        let mut text = format!("{targets}, {states} crash states in {:.1} s: {verdict}", self.seconds);
        if self.not_exhausted.is_empty() {
            return text;
        }
        if is_sample {
            text.push_str("; a sample: the representative mode never judges every state");
            return text;
        }
        let named = |one: &NotExhausted| format!("{} ({}, {} states)", one.target, one.profile, one.states);
        let names: Vec<String> = self.not_exhausted.iter().map(named).collect();
        let (count, runs) = (names.len(), plural(self.runs, "run"));
        text.push_str(&format!(
            "; {count} of {runs} {} not exhausted: {}; raise --bound, which counts above the targets' own bounds",
            if count == 1 { "was" } else { "were" },
            names.join(", ")
        ));
        text
    }
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
        command: &found.command,
    })
}
