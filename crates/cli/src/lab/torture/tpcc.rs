//! `lodestone torture tpcc`: a database that works on TPC-C is killed at random moments, reopened and judged, again and
//! again on one pool.
//!
//! After each kill all twelve conditions hold, and the row of each acknowledged order and payment of any life is there.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::ChildStdout;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use lodestone_engine_bench::lives::Receipt;
use lodestone_workload::random::Random;
use serde::Serialize;

use lodestone_cli::commands::pool::domain;
use lodestone_cli::interrupt::TempFolder;
use lodestone_cli::output::{Output, ProgressUnit};

use super::kill;
use super::life::{self, Moment, ReportLine};
use super::tpcc_worker::{Place, engine_error, judge, make};

const AFTER_HELP: &str = "\
Examples:
  lodestone torture tpcc --kills 200 --domain block
  lodestone torture tpcc --kills 200 --domain auto --pool /mnt/pmem0/t.pool \\
    --part /mnt/pmem1/t.pool.1
  lodestone torture tpcc --kills 50 --domain process --parts 2 \\
    --virtual-nodes 2 --json

In two of three lives tables and ranges of keys move between the parts meanwhile, stay in DRAM or do not, and
checkpoints are made. In every second pool the rows that are updated most are in cells (placement dual). Exit code 0
only when every condition held and no acknowledged row was lost.";

/// Arguments of `lodestone torture tpcc`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Number of kills
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    kills: u64,

    /// Persistence domain
    #[arg(long, default_value = "block", value_parser = ["block", "process", "auto", "dax", "eadr", "dax-emulated"])]
    domain: String,

    /// Seed of the moments and of the transactions
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Threads that work
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: u64,

    /// Longest time of load before a kill, in milliseconds
    #[arg(long, default_value_t = 200, value_name = "MS")]
    load_ms_max: u64,

    /// Kills after which a new pool is made, before its rows fill it
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    lives: u64,

    /// The pool, which must not exist [default: a temporary one]
    #[arg(long)]
    pool: Option<PathBuf>,

    /// A further part of it
    #[arg(long = "part", value_name = "FILE", requires = "pool")]
    files: Vec<PathBuf>,

    /// Parts of a temporary pool
    #[arg(long, default_value_t = 1, conflicts_with = "pool", value_parser = clap::value_parser!(u64).range(1..=8))]
    parts: u64,

    /// Split the processors into this many virtual nodes, over which the parts are spread
    #[arg(long, value_name = "COUNT", default_value_t = 0, hide_default_value = true)]
    virtual_nodes: usize,
}

impl ReportLine for Receipt {
    fn read(mut source: BufReader<ChildStdout>, each: &mut dyn FnMut(Self) -> Result<()>) -> Result<()> {
        let mut text = String::new();
        while source.read_line(&mut text)? > 0 {
            // A last line without its end was cut by the kill.
            let Some(line) = text.strip_suffix('\n') else { break };
            each(line.parse().map_err(engine_error)?)?;
            text.clear();
        }
        Ok(())
    }

    fn is_ack(&self) -> bool {
        true
    }
}

/// The result of the loop.
#[derive(Default, Serialize)]
struct Killed {
    kills: u64,
    kills_during_open: u64,
    acked: u64,
    wrong: Vec<String>,
    reopen_ms_max: f64,
    threads: u64,
    parts: usize,
    domain: String,
    seed: u64,
    seconds: f64,
}

/// Kills and judges.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    let folder = TempFolder::new()?;
    let place = place(args, &folder)?;
    for path in place.paths() {
        ensure!(!path.exists(), "{}: exists; the kill test needs a pool of its own", path.display());
    }
    let started = Instant::now();
    let mut random = Random::for_stream(args.seed, u64::MAX);
    let parts = 1 + place.parts.len();
    let mut killed = Killed { threads: args.threads, seed: args.seed, parts, ..Killed::default() };
    let (mut told, mut new) = (Vec::new(), true);
    let bar = output.progress(Some(args.kills), ProgressUnit::Steps).with_prefix("kill");
    while killed.kills < args.kills && killed.wrong.is_empty() {
        if killed.kills.is_multiple_of(args.lives) {
            if !new {
                place.paths().try_for_each(|path| {
                    std::fs::remove_file(path).with_context(|| format!("{}: removing it failed", path.display()))
                })?;
            }
            // In every second pool rows are in cells: a transaction then is over several placements.
            killed.domain = make(&place, killed.kills / args.lives % 2 == 1)?;
            (new, told) = (false, Vec::new());
        }
        let number = args.seed.wrapping_add(killed.kills);
        let lines = one_life(args, &place, number, kill::moment(&mut random, args.load_ms_max))
            .with_context(|| format!("kill {} of seed {}", killed.kills + 1, args.seed))?;
        killed.kills += 1;
        killed.kills_during_open += u64::from(lines.is_empty());
        killed.acked += lines.len() as u64;
        told.extend(lines);
        let born = Instant::now();
        let tables = place.open(number)?;
        killed.reopen_ms_max = killed.reopen_ms_max.max(kill::milliseconds(born));
        killed.wrong = judge(&tables, &told)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    killed.seconds = started.elapsed().as_secs_f64();
    killed.wrong.iter().for_each(|wrong| output.note(&format!("kill {} of seed {}: {wrong}", killed.kills, args.seed)));
    output.result(&killed, |killed| {
        format!(
            "{} kills ({} during open), {} acknowledged orders and payments by {} threads, {} parts: {} wrong; reopened \
             within {:.1} ms; {} domain, seed {}, {:.1} s",
            killed.kills,
            killed.kills_during_open,
            killed.acked,
            killed.threads,
            killed.parts,
            killed.wrong.len(),
            killed.reopen_ms_max,
            killed.domain,
            killed.seed,
            killed.seconds
        )
    })?;
    Ok(killed.wrong.is_empty())
}

fn place(args: &Args, folder: &TempFolder) -> Result<Place> {
    let (pool, parts) = match &args.pool {
        Some(pool) => (pool.clone(), args.files.clone()),
        None => {
            let file = |part| folder.path().join(format!("tpcc.pool.{part}"));
            (folder.path().join("tpcc.pool"), (1..args.parts).map(file).collect())
        }
    };
    let domain = domain(&args.domain).map_err(anyhow::Error::msg)?;
    Ok(Place { pool, parts, domain, virtual_nodes: args.virtual_nodes })
}

fn one_life(args: &Args, place: &Place, number: u64, moment: Moment) -> Result<Vec<Receipt>> {
    let mut command = life::own_binary()?;
    command.args(["torture", "tpcc-worker", "--domain", &args.domain, "--life", &number.to_string()]);
    command.args(["--threads", &args.threads.to_string(), "--virtual-nodes", &place.virtual_nodes.to_string()]);
    place.parts.iter().for_each(|part| _ = command.arg("--part").arg(part));
    life::one_life(command.arg(&place.pool), moment)
}
