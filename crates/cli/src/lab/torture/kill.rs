//! `lodestone torture kill`: SIGKILL at random moments, reopen, judge, again and again on one pool.
//!
//! 1. A writer runs in a child process and reports over a pipe.
//! 2. It is killed: while it starts (and recovers), or after a random stretch of load. All moments come from the seed.
//! 3. The pipe is read to its end. The pool is opened and judged against every acknowledgement that any writer ever
//!    got.
//! 4. Uncertain writes are now decided: the next life must not bring a discarded write back.
//!
//! Invariant: the history covers the pool's whole life, so a write that is lost later than at its own kill is found.

use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ChildStdout;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lodestone_pmem::{Pool, PoolOptions};
use lodestone_workload::kv::{History, Verdict};
use lodestone_workload::random::Random;
use serde::Serialize;

use lodestone_cli::commands::pool::domain;
use lodestone_cli::emulation::{self, EmulationArgs};
use lodestone_cli::interrupt::TempFolder;
use lodestone_cli::output::{Output, ProgressUnit};

use super::life::{self, Moment, ReportLine};
use super::report::{self, Event, Line};
use super::verdict::{self, Tally};

const AFTER_HELP: &str = "\
Examples:
  lodestone torture kill --kills 1000 --domain block
  lodestone torture kill --kills 1000 --domain process --json
  lodestone torture kill --kills 100 --domain dax-emulated --profile optane

Exit code 0 only when no kill lost or tore anything. With --profile, writers and judge work on the emulated medium; what the
last line counts is the judge's own reading, since a killed writer tells nothing.";

/// Arguments of `lodestone torture kill`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Number of kills
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub kills: u64,

    /// Persistence domain
    #[arg(long, default_value = "block", value_parser = ["block", "process", "auto", "dax", "eadr", "dax-emulated"])]
    pub domain: String,

    /// Seed of the moments and of the load
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// Writing threads
    #[arg(long, default_value_t = 2)]
    pub threads: u64,

    /// Longest time of load before a kill, in milliseconds
    #[arg(long, default_value_t = 40, value_name = "MS")]
    pub load_ms_max: u64,

    /// The pool, which must not exist [default: a temporary one]
    #[arg(long)]
    pub pool: Option<PathBuf>,

    #[command(flatten)]
    pub emulation: EmulationArgs,
}

/// The result of the loop.
#[derive(Default, Serialize)]
pub struct Killed {
    pub kills: u64,
    pub kills_during_open: u64,
    pub acked: u64,
    #[serde(flatten)]
    pub tally: Tally,
    pub uncertain_applied: u64,
    pub domain: String,
    pub promise: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub medium: Option<String>,
    pub threads: u64,
    pub seed: u64,
    pub seconds: f64,
}

/// The state after one kill.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    /// Number of the kill, from 1.
    pub kill: u64,
    /// Writes that this life acknowledged.
    pub acked: u64,
    /// Records in the map afterwards.
    pub records: u64,
    #[serde(flatten)]
    pub tally: Tally,
    /// Writes that were not acknowledged but are present.
    pub uncertain_applied: u64,
    /// From the start of the writer to its death.
    pub life_ms: f64,
    /// Opening the pool (which recovers it) and reading every record.
    pub reopen_ms: f64,
}

/// Kills and judges.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    let folder = TempFolder::new()?;
    let path = args.pool.clone().unwrap_or_else(|| folder.path().join("torture.pool"));
    let bar = output.progress(Some(args.kills), ProgressUnit::Steps).with_prefix("kill");
    let killed = rounds(args, &path, output, &mut |_| {
        bar.inc(1);
        Ok(())
    })?;
    bar.finish_and_clear();
    output.result(&killed, |killed| {
        let tally = killed.tally;
        format!(
            "{} kills ({} during open), {} acknowledged writes: {} lost, {} torn, {} otherwise wrong; {} domain ({}){}, seed {}, {:.1} s",
            killed.kills,
            killed.kills_during_open,
            killed.acked,
            tally.lost,
            tally.torn,
            tally.other,
            killed.domain,
            killed.promise,
            killed.medium.as_ref().map_or_else(String::new, |medium| format!(", emulated medium {medium}")),
            killed.seed,
            killed.seconds
        )
    })?;
    Ok(killed.tally.is_clean())
}

/// Kills and judges on the pool at `path`, which must not exist. `each` is called after every kill. Ends early when a
/// kill left something wrong.
pub fn rounds(args: &Args, path: &Path, output: &Output, each: &mut dyn FnMut(&Round) -> Result<()>) -> Result<Killed> {
    let started = Instant::now();
    ensure!(!path.exists(), "{}: exists; the kill test needs a pool of its own", path.display());
    let mut history = History::new(report::codec()?);
    let mut random = Random::for_stream(args.seed, u64::MAX);
    let Args { domain, threads, seed, .. } = args;
    let mut killed = Killed { domain: domain.clone(), threads: *threads, seed: *seed, ..Killed::default() };
    for kill in 0..args.kills {
        let (acked_before, born) = (history.acknowledgements(), Instant::now());
        let lines = one_life(args, path, kill, &mut random)?;
        let life_ms = milliseconds(born);
        killed.kills += 1;
        killed.kills_during_open += u64::from(lines.is_empty());
        lines.into_iter().for_each(|line| line.tell(&mut history));
        let acked = history.acknowledgements() - acked_before;
        let died = Instant::now();
        let verdict = judge(args, path, kill, &mut history, &mut killed, output)?;
        let mut tally = Tally::default();
        tally.add(&verdict.violations);
        killed.tally.add(&verdict.violations);
        killed.uncertain_applied += verdict.uncertain_applied;
        each(&Round {
            kill: kill + 1,
            acked,
            records: verdict.present,
            tally,
            uncertain_applied: verdict.uncertain_applied,
            life_ms,
            reopen_ms: milliseconds(died),
        })?;
        if !verdict.holds() {
            break;
        }
    }
    killed.acked = history.acknowledgements();
    killed.seconds = started.elapsed().as_secs_f64();
    Ok(killed)
}

/// Milliseconds since then, to the microsecond.
pub fn milliseconds(since: Instant) -> f64 {
    (since.elapsed().as_secs_f64() * 1e6).round() / 1e3
}

/// Opens the pool and judges it.
fn judge(
    args: &Args,
    path: &Path,
    kill: u64,
    history: &mut History,
    killed: &mut Killed,
    output: &Output,
) -> Result<Verdict> {
    if !path.exists() {
        // Killed before the pool was created: nothing was acknowledged.
        return Ok(Verdict::default());
    }
    let context = || format!("after kill {kill} of seed {}", args.seed);
    let choice = domain(&args.domain).map_err(anyhow::Error::msg)?;
    let options = args.emulation.apply(PoolOptions { domain: choice, ..PoolOptions::default() })?;
    let pool = Pool::open(path, &options).with_context(context)?;
    emulation::place(&pool);
    let info = pool.info();
    (killed.domain, killed.promise, killed.medium) = (info.domain_label(), info.promise, info.medium);
    let verdict = verdict::judge(&pool, history).with_context(context)?;
    for violation in &verdict.violations {
        output.note(&format!("{}: {violation}", context()));
    }
    history.adopt(&verdict);
    Ok(verdict)
}

/// Runs one writer from its start to its kill. Returns its whole report.
fn one_life(args: &Args, path: &Path, kill: u64, random: &mut Random) -> Result<Vec<Line>> {
    let mut command = life::own_binary()?;
    command
        .args(["torture", "writer", "--known", "--domain", &args.domain])
        .args(args.emulation.to_args())
        .args(["--seed", &(args.seed.wrapping_add(kill)).to_string(), "--threads", &args.threads.to_string()])
        .arg(path);
    life::one_life(&mut command, moment(random, args.load_ms_max))
        .with_context(|| format!("kill {kill} of seed {}", args.seed))
}

/// One kill in eight hits a writer that is still opening the pool, and so recovering it.
pub fn moment(random: &mut Random, load_ms_max: u64) -> Moment {
    if random.below(8) == 0 {
        Moment::Opening(Duration::from_micros(random.below(2_500)))
    } else {
        Moment::Load(Duration::from_micros(random.below(load_ms_max.max(1) * 1000)))
    }
}

impl ReportLine for Line {
    fn read(source: BufReader<ChildStdout>, each: &mut dyn FnMut(Self) -> Result<()>) -> Result<()> {
        report::read(source, each)
    }

    fn is_ack(&self) -> bool {
        matches!(self.event, Event::Ack(_))
    }
}
