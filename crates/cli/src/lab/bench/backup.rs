//! `lodestone bench backup`: the price of a backup for the transactions beside it.
//!
//! 1. The tables of TPC-C are loaded into a fresh pool.
//! 2. The transactions run for a while alone, then beside backups that follow each other without a rest, then alone
//!    again. The throughput beside backups is compared with the mean of the other two.
//! 3. The conditions of the workload are checked on the database, and on the last backup, which is opened for that.
//!
//! A thread looks all the time whether a transaction has been acknowledged since its last look. The longest time
//! between two looks that saw the same number is a pause that all threads had. The processors may be busy with other
//! threads meanwhile, so the times without backups are measured as well.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use lodestone_engine::{Database, DatabaseOptions};
use lodestone_engine_bench::tables::DatabaseTables;
use lodestone_pmem::{CopyOptions, CopyReport};
use lodestone_store::Store;
use lodestone_workload::engine::EngineError;
use lodestone_workload::oltp::tpcc::TpcC;
use lodestone_workload::oltp::{self, Outcome, Workload};
use lodestone_workload::race::{Length, Plan};
use lodestone_workload::result::{human_figure, human_ns, rounded};
use serde::Serialize;

use lodestone_cli::interrupt;
use lodestone_cli::output::{Output, properties};
use lodestone_cli::size;

use super::duration;
use super::oltp::TpcCSizes;
use super::place::Place;

const AFTER_HELP: &str = "\
Examples:
  lodestone bench backup --warehouses 4 --threads 8
  lodestone bench backup --path . --domain block --target /mnt/backups
  lodestone bench backup --warehouses 1 --items 1000 --customers 100 \\
    --seconds 1 --json

The mix is that of `lodestone bench tpcc`. The twelve conditions of clause 3.3.2 are checked on the database and on the
last backup.";

/// Arguments of `lodestone bench backup`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    sizes: TpcCSizes,

    /// Threads that run transactions
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    threads: usize,

    /// Time of each of the three runs
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    seconds: f64,

    /// Bytes of the logs
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size::parse)]
    log_bytes: u64,

    /// Bytes of the pool at first [default: by the rows, and 512 MiB]; it grows
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pool_bytes: Option<u64>,

    /// How much of its time a backup works, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = CopyOptions::default().share_percent)]
    share: u8,

    /// Folder for the backups, which are removed at the end [default: that of the pool]
    #[arg(long, value_name = "FOLDER")]
    target: Option<PathBuf>,

    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    place: Place,
}

/// The figures.
#[derive(Debug, Serialize)]
struct Figures {
    threads: usize,
    rows: u64,
    share_percent: u8,
    backups: usize,
    backup_seconds: f64,
    backup_bytes: u64,
    backup_bytes_again: u64,
    backup_passes_max: u32,
    ops_per_s_alone: f64,
    ops_per_s_beside: f64,
    beside_to_alone: f64,
    writers_stopped_ns_max: u64,
    pause_ns_alone: u64,
    pause_ns_beside: u64,
    latency_ns_p99_alone: u64,
    latency_ns_p99_beside: u64,
    latency_ns_max_alone: u64,
    latency_ns_max_beside: u64,
    domain: String,
    medium: String,
}

/// A run of the transactions.
struct Run {
    outcome: Outcome,
    pause: Duration,
    backups: Vec<(CopyReport, Duration)>,
}

impl Run {
    fn per_s(&self) -> f64 {
        self.outcome.tally.committed() as f64 / self.outcome.run.elapsed.as_secs_f64()
    }
}

/// Runs `lodestone bench backup`.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let place = args.place.or_memory();
    if !output.is_json() {
        output.line(&place.origin()?.to_string())?;
    }
    interrupt::so_far("nothing was measured yet");
    let figures = args.measure(&place, output)?;
    output.result(&figures, text)
}

impl Args {
    fn measure(&self, place: &Place, output: &Output) -> Result<Figures> {
        let workload = self.sizes.workload();
        let busy = output.busy("bench backup");
        let pool_bytes = self
            .pool_bytes
            .unwrap_or_else(|| (512 << 20) + 2 * self.log_bytes + (workload.rows() * 640).next_multiple_of(1 << 20));
        let pool = place.create(pool_bytes, 4 * self.log_bytes.min(64 << 20))?;
        // Each writer keeps a segment.
        let segment_bytes = (self.log_bytes / 64).min(DatabaseOptions::default().segment_bytes);
        let options = DatabaseOptions { log_bytes: self.log_bytes, segment_bytes, ..DatabaseOptions::default() };
        let engine = DatabaseTables::open(Database::open_in(&Store::over(&pool)?, &options)?, TpcC::TABLES)?;
        output.note("loading ...");
        oltp::load(&engine, &workload, self.threads, self.seed).context("the load failed")?;
        let folder = tempfile::tempdir_in(self.target.clone().unwrap_or_else(|| place.folder()))
            .context("making a folder for the backups")?;
        let target = folder.path().join("backup.pool");
        let [before, beside, after] = [None, Some(&*target), None].map(|target| {
            output.note(if target.is_some() { "running beside backups ..." } else { "running alone ..." });
            self.run_once(&engine, &workload, target)
        });
        let (before, beside, after) = (before?, beside?, after?);
        output.note("checking ...");
        let effect = [&before, &beside, &after].iter().map(|run| run.outcome.tally.effect).sum::<i64>();
        let refuse = |violations: &[_], of: &str| {
            oltp::refuse(violations).map_err(|error: EngineError| anyhow!("{of}: {error}"))
        };
        refuse(&oltp::verify(&engine, &workload, effect)?, "the database")?;
        let info = pool.info();
        drop(engine);
        // In the process domain or that of an ordinary file, whatever the pool is in.
        let backup = DatabaseTables::open(Database::open_with(&target, &options)?, TpcC::TABLES)?;
        refuse(&oltp::verify(&backup, &workload, None)?, "the last backup")?;
        drop(busy);
        ensure!(!beside.backups.is_empty(), "no backup ended within {} seconds: say --seconds", self.seconds);
        let alone = f64::midpoint(before.per_s(), after.per_s());
        let backups = beside.backups.len();
        let total = |figure: fn(&CopyReport) -> u64| {
            beside.backups.iter().map(|(report, _)| figure(report)).sum::<u64>() / backups as u64
        };
        let seconds: f64 = beside.backups.iter().map(|(_, time)| time.as_secs_f64()).sum();
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let quantile = |run: &Run, quantile| run.outcome.run.latency.value_at_quantile(quantile);
        Ok(Figures {
            share_percent: self.share,
            threads: self.threads,
            rows: workload.rows(),
            backups,
            backup_seconds: rounded(seconds / backups as f64),
            backup_bytes: total(|report| report.written_bytes),
            backup_bytes_again: total(|report| report.rewritten_bytes),
            backup_passes_max: beside.backups.iter().map(|(report, _)| report.passes).max().unwrap_or(0),
            ops_per_s_alone: rounded(alone),
            ops_per_s_beside: rounded(beside.per_s()),
            beside_to_alone: rounded(beside.per_s() / alone),
            writers_stopped_ns_max: beside
                .backups
                .iter()
                .map(|(report, _)| report.writers_stopped_ns)
                .max()
                .unwrap_or(0),
            pause_ns_alone: nanoseconds(before.pause.max(after.pause)),
            pause_ns_beside: nanoseconds(beside.pause),
            latency_ns_p99_alone: quantile(&before, 0.99).max(quantile(&after, 0.99)),
            latency_ns_p99_beside: quantile(&beside, 0.99),
            latency_ns_max_alone: quantile(&before, 1.0).max(quantile(&after, 1.0)),
            latency_ns_max_beside: quantile(&beside, 1.0),
            domain: info.domain_label(),
            medium: info.media_label(),
        })
    }

    /// Runs the transactions for the time of a run, beside backups to `target` if there is one.
    fn run_once(&self, engine: &DatabaseTables, workload: &TpcC, target: Option<&Path>) -> Result<Run> {
        let length = Length::Time(duration(self.seconds, "--seconds")?);
        let plan = Plan { warm_up: Duration::ZERO, time_one_of: 1, ..Plan::new(self.threads, length) };
        let (db, is_over) = (engine.database(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let pause = scope.spawn(|| longest_pause(db, &is_over));
            let backups = scope.spawn(|| {
                let mut done = Vec::new();
                let options = CopyOptions { overwrite: true, share_percent: self.share, ..CopyOptions::default() };
                while let Some(target) = target.filter(|_| !is_over.load(Ordering::Relaxed)) {
                    let started = Instant::now();
                    let report = db.backup(target, &options)?;
                    done.push((report, started.elapsed()));
                }
                Ok::<_, lodestone_engine::Error>(done)
            });
            let outcome = oltp::run(engine, workload, &plan, self.seed);
            is_over.store(true, Ordering::Relaxed);
            let pause = pause.join().expect("it does not panic");
            let backups = backups.join().expect("it does not panic")?;
            Ok(Run { outcome: outcome?, pause, backups })
        })
    }
}

/// The longest time in which no transaction was committed.
fn longest_pause(db: &Database, is_over: &AtomicBool) -> Duration {
    let (mut count, mut since, mut longest) = (db.stats().commits, Instant::now(), Duration::ZERO);
    while !is_over.load(Ordering::Relaxed) {
        let (now, moment) = (db.stats().commits, Instant::now());
        if now == count {
            longest = longest.max(moment - since);
        } else {
            (count, since) = (now, moment);
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    longest
}

fn text(figures: &Figures) -> String {
    let Figures { threads, rows, backups, backup_seconds, .. } = figures;
    let bytes = |bytes: u64| human_figure(bytes as f64);
    properties([
        ("database", format!("TPC-C, {rows} rows, {threads} threads, {}, {}", figures.domain, figures.medium)),
        (
            "backups",
            format!(
                "{backups}, one after the other, of {backup_seconds} s: {} bytes, {} again in at most {} passes",
                bytes(figures.backup_bytes),
                bytes(figures.backup_bytes_again),
                figures.backup_passes_max
            ),
        ),
        (
            "transactions/s",
            format!(
                "{} alone, {} beside: {}",
                human_figure(figures.ops_per_s_alone),
                human_figure(figures.ops_per_s_beside),
                figures.beside_to_alone
            ),
        ),
        ("writers stopped", format!("{} at most", human_ns(figures.writers_stopped_ns_max))),
        (
            "no commit for",
            format!("{} alone, {} beside", human_ns(figures.pause_ns_alone), human_ns(figures.pause_ns_beside)),
        ),
        (
            "latency p99",
            format!(
                "{} alone, {} beside",
                human_ns(figures.latency_ns_p99_alone),
                human_ns(figures.latency_ns_p99_beside)
            ),
        ),
        (
            "latency max",
            format!(
                "{} alone, {} beside",
                human_ns(figures.latency_ns_max_alone),
                human_ns(figures.latency_ns_max_beside)
            ),
        ),
        ("conditions", "hold in the database and in the last backup".into()),
    ])
}
