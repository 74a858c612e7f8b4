//! YCSB on Lodestone and its peers.
//!
//! For each durability and number of threads, and in each turn, for each engine:
//! 1. Make a fresh folder and measure the cost of one fdatasync there.
//! 2. Create the engine, load the records (relaxed, then made durable), and run the workload. `--loaded` takes those
//!    of a process before.
//! 3. Print one [`BenchResult`] for the load and one for the run, and remove the folder.
//!
//! Every other turn goes through the engines backwards, so that none of them always comes first.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use lodestone_engine_bench::records::DatabaseRecords;
use lodestone_workload::engine::Engine;
use lodestone_workload::keys::Distribution;
use lodestone_workload::result::BenchResult;
use lodestone_workload::syncprobe::SyncLatency;
use lodestone_workload::ycsb::{Runner, Spec, Workload};
use tempfile::TempDir;

use crate::ratios::Conditions;
use crate::sqlite::records::SqliteRecords;
use crate::{Durability, SYNC_SAMPLES, SYNC_TIME, lmdb, pmemobj, redb, rocksdb};

pub(crate) const AFTER_HELP: &str = "\
Examples:
  lodestone-peers --engine rocksdb --workload a --threads 8 --durability sync --records 1000000 --json
  lodestone-peers --engine lodestone,rocksdb,lmdb,sqlite --workload a --threads 1,8 --durability sync,process \\
    --records 1000000 --operations 1000000000 --seconds 10 --turns 3";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EngineName {
    /// A table of Lodestone's database engine.
    Lodestone,
    Rocksdb,
    Lmdb,
    Sqlite,
    Redb,
    Pmemobj,
}

/// The runs of YCSB.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Engines, one after the other; the ratios are those of the first to the others.
    #[arg(long, value_enum, required = true, value_delimiter = ',')]
    engine: Vec<EngineName>,
    /// Workload: a to f, or load.
    #[arg(long, default_value = "a")]
    workload: Workload,
    #[command(flatten)]
    conditions: Conditions,
    /// Records loaded before the run.
    #[arg(long, default_value_t = 1_000_000)]
    records: u64,
    /// Operations of all threads together.
    #[arg(long, default_value_t = 1_000_000)]
    operations: u64,
    /// Bytes of each key.
    #[arg(long, default_value_t = 8)]
    key_bytes: usize,
    /// Bytes of each value.
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,
    /// zipfian, zipfian:THETA, uniform, latest or sequential; by default the workload's own.
    #[arg(long)]
    distribution: Option<Distribution>,
    /// Seed of the random draws.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Ends the run after this many seconds.
    #[arg(long, default_value_t = 20.0)]
    seconds: f64,
    /// Folder for the engine's files. A fresh folder is made there and removed at the end.
    #[arg(long, default_value = "/tmp")]
    folder: PathBuf,
    /// Keeps the folder with the engine's files, and prints where it is.
    #[arg(long)]
    keep: bool,
    /// Uses the files that an engine left in this folder with `--keep`, of as many records of these sizes, and loads
    /// nothing: so the run can have less memory than the load.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["keep", "folder"])]
    loaded: Option<PathBuf>,
    /// Check every value that is read.
    #[arg(long)]
    verify: bool,
    /// lodestone, rocksdb: bytes of the cache of rows or blocks. Without it all rows of lodestone are in memory, and
    /// rocksdb has 1 GiB. The others have no such bound: limit the memory of the process, with its part of the page
    /// cache. lmdb does not read ahead then.
    #[arg(long, value_name = "BYTES")]
    cache: Option<u64>,
    /// lodestone, with `--cache`: read pages around the page cache of the system. rocksdb: the same of its files.
    #[arg(long, requires = "cache")]
    direct_reads: bool,
    /// lodestone: bytes of a page, a power of two, 8,192 without it.
    #[arg(long, value_name = "BYTES")]
    page_bytes: Option<u32>,
    /// rocksdb: pipelined writes.
    #[arg(long)]
    pipelined: bool,
    /// rocksdb: count log syncs (costs some throughput).
    #[arg(long)]
    statistics: bool,
}

/// Runs all combinations.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let is_kept = arguments.keep || arguments.loaded.is_some();
    anyhow::ensure!(!is_kept || arguments.engine.len() == 1, "--keep and --loaded are for one engine");
    if arguments.engine.contains(&EngineName::Pmemobj) {
        anyhow::ensure!(arguments.conditions.durability == [Durability::Sync], "pmemobj knows --durability sync only");
        pmemobj::force_flushes()?;
    }
    arguments.conditions.run_all(arguments.engine.len(), |place, durability, threads| {
        arguments.measure(arguments.engine[place], durability, threads)
    })
}

impl Arguments {
    fn spec(&self, threads: usize) -> Result<Spec> {
        let own = Spec::new(self.workload);
        let spec = Spec {
            records: self.records,
            operations: self.operations,
            threads,
            key_bytes: self.key_bytes,
            value_bytes: self.value_bytes,
            distribution: self.distribution.unwrap_or(own.distribution),
            seed: self.seed,
            ..own
        };
        spec.validate()?;
        Ok(spec)
    }

    /// The load, unless the records are there, and the run of one engine. Returns the figures of the run.
    fn measure(&self, engine: EngineName, durability: Durability, threads: usize) -> Result<BenchResult> {
        let spec = self.spec(threads)?;
        crate::free_memory::stays(engine == EngineName::Lodestone);
        let fresh = match &self.loaded {
            Some(_) => None,
            None => Some(self.fresh_folder()?),
        };
        let place = fresh.as_ref().map(TempDir::path).or(self.loaded.as_deref()).expect("one of them");
        let outcome = self.measure_in(place, engine, durability, &spec);
        if self.keep
            && let Some(folder) = fresh
        {
            eprintln!("the files are in {}", folder.keep().display());
        }
        outcome
    }

    fn fresh_folder(&self) -> Result<TempDir> {
        let folder = tempfile::Builder::new().prefix("lodestone-peers-").tempdir_in(&self.folder);
        folder.with_context(|| format!("cannot make a folder in {}", self.folder.display()))
    }

    fn measure_in(&self, place: &Path, engine: EngineName, durability: Durability, spec: &Spec) -> Result<BenchResult> {
        let sync_latency = SyncLatency::measure(place, SYNC_SAMPLES, SYNC_TIME)?;
        match engine {
            EngineName::Lodestone => {
                let database = crate::lodestone(place, durability, map_bytes(spec) as u64, |options| {
                    (options.cache_bytes, options.direct_reads) = (self.cache, self.direct_reads);
                    options.page_bytes = self.page_bytes.unwrap_or(options.page_bytes);
                })?;
                self.bench(&DatabaseRecords::open(database)?, spec, &sync_latency)
            }
            EngineName::Rocksdb => {
                let Self { pipelined, statistics, cache, direct_reads, .. } = *self;
                let tuning = rocksdb::Tuning { pipelined, statistics, cache, direct_reads };
                self.bench(&rocksdb::RocksDb::create(place, durability, spec.threads, tuning)?, spec, &sync_latency)
            }
            EngineName::Lmdb => {
                let lmdb = lmdb::Lmdb::create(place, durability, map_bytes(spec), self.cache.is_some())?;
                self.bench(&lmdb, spec, &sync_latency)
            }
            EngineName::Sqlite => self.bench(&SqliteRecords::create(place, durability)?, spec, &sync_latency),
            EngineName::Redb => self.bench(&redb::Redb::create(place, durability)?, spec, &sync_latency),
            EngineName::Pmemobj => {
                self.bench(&pmemobj::PmemObj::create(place, map_bytes(spec) as u64, 1)?, spec, &sync_latency)
            }
        }
    }

    fn bench<E: Engine>(&self, engine: &E, spec: &Spec, sync_latency: &SyncLatency) -> Result<BenchResult> {
        let loaded = match self.loaded {
            Some(_) => None,
            None => Some(Runner::new(engine, spec).load()?.result),
        };
        let limit = Duration::try_from_secs_f64(self.seconds).context("--seconds must be a positive number")?;
        let runner = Runner::new(engine, spec).verify_reads(self.verify).time_limit(limit);
        let outcome = runner.run()?;
        anyhow::ensure!(outcome.missing == 0, "{}: {} records were not found", engine.name(), outcome.missing);
        let mut results: Vec<_> = loaded.into_iter().chain([outcome.result]).collect();
        for result in &mut results {
            sync_latency.add_to(&mut result.extra);
            if self.conditions.json {
                println!("{}", result.to_json_line());
            }
        }
        if !self.conditions.json {
            print_table(&results, sync_latency);
        }
        Ok(results.pop().expect("the run"))
    }
}

fn print_table(results: &[BenchResult], sync_latency: &SyncLatency) {
    let rows: Vec<Vec<String>> = results.iter().map(|result| result.row(&BenchResult::MAIN)).collect();
    for (column, (title, _)) in BenchResult::MAIN.iter().enumerate() {
        let cells: Vec<&str> = rows.iter().map(|row| row[column].as_str()).collect();
        println!("{title:>16}  {}", cells.iter().map(|cell| format!("{cell:>14}")).collect::<String>());
    }
    println!(
        "one fdatasync of 4 KiB: p50 {} ns, p99 {} ns, mean {:.0} ns",
        sync_latency.p50_ns, sync_latency.p99_ns, sync_latency.mean_ns
    );
}

/// LMDB needs its largest size in advance. The file is sparse.
fn map_bytes(spec: &Spec) -> usize {
    let record = spec.key_bytes + spec.value_bytes + 64;
    let records = usize::try_from(spec.capacity()).unwrap_or(usize::MAX);
    records.saturating_mul(record).saturating_mul(4).max(1 << 30).next_multiple_of(1 << 20)
}
