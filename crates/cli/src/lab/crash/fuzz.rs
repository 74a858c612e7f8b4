//! `lodestone crash fuzz`: crash states of random programs.
//!
//! The targets of `crash run` are small and exhausted. A state that takes an unforeseen history is in none of them.
//! Here the history is random: the content of an index, the changes that produced it, and the few operations during
//! which power fails.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lodestone_crash::{Config, Failure, Profile, run_target};
use lodestone_proof::index::{PROGRAM_KINDS, program, program_name};
use serde::Serialize;

use lodestone_cli::output::{Output, ProgressUnit};

use super::run::print_violation;

const AFTER_HELP: &str = "\
Examples:
  lodestone crash fuzz --programs 100
  lodestone crash fuzz --kind fastfair,fptree-text --seconds 600 \\
    --seed 20000 --profile adr,block --json

Kinds: fastfair, fastfair-text, fptree, fptree-text, skiplist, skiplist-text, hash, hash-text, hybrid-plus, acs-fptree, map.

Program SEED + n of a kind is the same everywhere. Exit code 1 when there is a violation; it comes with the command that shows it again.";

/// Arguments of `lodestone crash fuzz`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Kinds of indexes [default: all]
    #[arg(long, value_name = "KINDS", value_delimiter = ',', value_parser = kind)]
    kind: Vec<&'static str>,

    /// Programs of each kind
    #[arg(long, value_name = "COUNT", default_value_t = 50, conflicts_with = "seconds")]
    programs: u64,

    /// Go on with further programs for so many seconds
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,

    /// Number of the first program
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Memory that survives a power failure: adr, eadr, block (several: separated by commas)
    #[arg(long, value_name = "PROFILES", value_delimiter = ',', default_value = "adr", value_parser = profile)]
    profile: Vec<Profile>,

    /// Most crash states per program
    #[arg(long, value_name = "STATES", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    bound: u64,

    /// How often recovery itself is crashed again
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    depth: u32,

    /// End after so many violations
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    violations: u64,

    /// Planted bug to switch on (needs a build with the feature `planted-bugs`)
    #[arg(long, value_name = "NAME", hide = true)]
    planted: Option<String>,
}

fn kind(text: &str) -> Result<&'static str, String> {
    let found = PROGRAM_KINDS.into_iter().find(|kind| *kind == text);
    found.ok_or_else(|| format!("no programs run on '{text}'; the kinds are {}", PROGRAM_KINDS.join(", ")))
}

fn profile(text: &str) -> Result<Profile, String> {
    text.parse().map_err(|error: Failure| error.to_string())
}

/// The findings in all programs of a kind under a profile.
#[derive(Debug, Default, Serialize)]
struct Fuzzed {
    kind: &'static str,
    profile: &'static str,
    programs: u64,
    first_seed: u64,
    states: u64,
    /// Programs whose crash states were all judged.
    exhausted: u64,
    violations: u64,
    bound: u64,
    nested_depth: u32,
}

/// Explores program after program.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    if args.planted.is_some() && !cfg!(feature = "planted-bugs") {
        bail!(
            "--planted needs a build with the feature: cargo run -p lodestone-cli --bin lodestone-lab --features planted-bugs -- ..."
        );
    }
    let kinds = if args.kind.is_empty() { PROGRAM_KINDS.to_vec() } else { args.kind.clone() };
    let pairs = kinds.iter().flat_map(|&kind| args.profile.iter().map(move |&profile| (kind, profile)));
    let mut all: Vec<(Profile, Fuzzed)> = pairs.map(|(kind, profile)| (profile, begun(args, kind, profile))).collect();
    let limit = args.seconds.map(Duration::from_secs);
    let total = limit.is_none().then(|| args.programs.saturating_mul(all.len() as u64));
    let bar = output.progress(total, ProgressUnit::Steps).with_prefix("program");
    let (started, mut violations) = (Instant::now(), 0);
    'programs: for number in 0.. {
        if limit.is_none() && number >= args.programs {
            break;
        }
        for (profile, fuzzed) in &mut all {
            if limit.is_some_and(|limit| started.elapsed() >= limit) || violations >= args.violations {
                break 'programs;
            }
            violations += one(args, *profile, args.seed.wrapping_add(number), fuzzed, output)?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    for (_, fuzzed) in &all {
        output.result(fuzzed, |fuzzed| {
            format!(
                "{} under {}: {} programs from {}, {} crash states, {} programs exhausted, {} violations",
                fuzzed.kind,
                fuzzed.profile,
                fuzzed.programs,
                fuzzed.first_seed,
                fuzzed.states,
                fuzzed.exhausted,
                fuzzed.violations
            )
        })?;
    }
    Ok(violations == 0)
}

fn begun(args: &Args, kind: &'static str, profile: Profile) -> Fuzzed {
    let (bound, nested_depth) = (args.bound, args.depth);
    Fuzzed { kind, profile: profile.name(), first_seed: args.seed, bound, nested_depth, ..Fuzzed::default() }
}

/// Explores one program. Returns the number of its violations.
fn one(args: &Args, profile: Profile, number: u64, fuzzed: &mut Fuzzed, output: &Output) -> Result<u64> {
    let name = program_name(fuzzed.kind, number);
    let target = program(&name).with_context(|| format!("{name} is no program"))?;
    let (states_max, nested_depth, planted) = (args.bound, args.depth, args.planted.clone());
    // Values given on the command line override those of the programs.
    let config = Config {
        profile,
        states_max,
        states_max_wins: true,
        nested_depth,
        nested_depth_wins: true,
        planted,
        ..Config::default()
    };
    let report = run_target(target.as_ref(), &config, &mut |_| {});
    fuzzed.programs += 1;
    fuzzed.states += report.states;
    fuzzed.exhausted += u64::from(report.exhausted);
    fuzzed.violations += report.found.len() as u64;
    for found in &report.found {
        if output.is_json() {
            print_violation(&report.target, found, output)?;
        } else {
            output.line(&report.to_string())?;
        }
    }
    Ok(report.found.len() as u64)
}
