//! Other engines under the same workloads, through the same runner, with the same lines of results.
//!
//! 1. Make a fresh folder and measure the cost of one fdatasync there.
//! 2. Create the engine, load the records (relaxed, then made durable), and run the workload.
//! 3. Print one [`lodestone_workload::result::BenchResult`] for each run and remove the folder.

mod index;
mod lmdb;
mod oltp;
mod pmemobj;
mod redb;
mod rocksdb;
mod sqlite;
mod stm;

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use lodestone_workload::engine::{Engine, Environment};
use lodestone_workload::keys::Distribution;
use lodestone_workload::result::BenchResult;
use lodestone_workload::syncprobe::SyncLatency;
use lodestone_workload::ycsb::{Runner, Spec, Workload};

const SYNC_SAMPLES: u64 = 20_000;
const SYNC_TIME: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EngineName {
    Rocksdb,
    Lmdb,
    Redb,
    Pmemobj,
}

/// The failure that an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Durability {
    /// Power loss: every write waits for the device.
    Sync,
    /// The death of the process, but not power loss.
    Process,
}

/// Runs YCSB on another engine and prints the same result lines as `lodestone bench ycsb`.
#[derive(Debug, Parser)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Example:\n  lodestone-peers --engine rocksdb --workload a --threads 8 --durability sync --records 1000000 --json"
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// The engine.
    #[arg(long, value_enum, required = true)]
    engine: Option<EngineName>,
    /// Workload: a to f, or load.
    #[arg(long, default_value = "a")]
    workload: Workload,
    /// Threads of the load and of the run.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// The failure that an acknowledged write survives.
    #[arg(long, value_enum, default_value = "sync")]
    durability: Durability,
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
    /// Check every value that is read.
    #[arg(long)]
    verify: bool,
    /// rocksdb: pipelined writes.
    #[arg(long)]
    pipelined: bool,
    /// rocksdb: count log syncs (costs some throughput).
    #[arg(long)]
    statistics: bool,
    /// One JSON object for each line instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run the structures of `lodestone bench stm` on libpmemobj
    Stm(stm::Arguments),
    /// Run the mixes of `lodestone bench index` on redb and LMDB
    Index(index::Arguments),
    /// Run TPC-C, TPC-B and SmallBank on SQLite, RocksDB and Lodestone
    Oltp(oltp::Arguments),
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(Command::Stm(arguments)) = &arguments.command {
        return stm::run(arguments);
    }
    if let Some(Command::Index(arguments)) = &arguments.command {
        return index::run(arguments);
    }
    if let Some(Command::Oltp(arguments)) = &arguments.command {
        return oltp::run(arguments);
    }
    let engine = arguments.engine.context("which engine? say --engine NAME")?;
    if engine == EngineName::Pmemobj {
        anyhow::ensure!(arguments.durability == Durability::Sync, "pmemobj knows --durability sync only");
        pmemobj::force_flushes()?;
    }
    let own = Spec::new(arguments.workload);
    let spec = Spec {
        records: arguments.records,
        operations: arguments.operations,
        threads: arguments.threads,
        key_bytes: arguments.key_bytes,
        value_bytes: arguments.value_bytes,
        distribution: arguments.distribution.unwrap_or(own.distribution),
        seed: arguments.seed,
        ..own
    };
    spec.validate()?;
    let folder = tempfile::Builder::new()
        .prefix("lodestone-peers-")
        .tempdir_in(&arguments.folder)
        .with_context(|| format!("cannot make a folder in {}", arguments.folder.display()))?;
    let sync_latency = SyncLatency::measure(folder.path(), SYNC_SAMPLES, SYNC_TIME)?;
    match engine {
        EngineName::Rocksdb => {
            let tuning = rocksdb::Tuning { pipelined: arguments.pipelined, statistics: arguments.statistics };
            let engine = rocksdb::RocksDb::create(folder.path(), arguments.durability, arguments.threads, tuning)?;
            bench(&engine, &spec, &arguments, &sync_latency)
        }
        EngineName::Lmdb => {
            let engine = lmdb::Lmdb::create(folder.path(), arguments.durability, map_bytes(&spec))?;
            bench(&engine, &spec, &arguments, &sync_latency)
        }
        EngineName::Redb => {
            bench(&redb::Redb::create(folder.path(), arguments.durability)?, &spec, &arguments, &sync_latency)
        }
        EngineName::Pmemobj => {
            let engine = pmemobj::PmemObj::create(folder.path(), map_bytes(&spec) as u64, 1)?;
            bench(&engine, &spec, &arguments, &sync_latency)
        }
    }
}

fn bench<E: Engine>(engine: &E, spec: &Spec, arguments: &Arguments, sync_latency: &SyncLatency) -> Result<()> {
    let mut loaded = Runner::new(engine, spec).load()?.result;
    let limit = Duration::try_from_secs_f64(arguments.seconds).context("--seconds must be a positive number")?;
    let runner = Runner::new(engine, spec).verify_reads(arguments.verify).time_limit(limit);
    let mut run = runner.run()?.result;
    for result in [&mut loaded, &mut run] {
        sync_latency.add_to(&mut result.extra);
        if arguments.json {
            println!("{}", result.to_json_line());
        }
    }
    if !arguments.json {
        print_table(&[loaded, run], sync_latency);
    }
    Ok(())
}

fn print_table(results: &[BenchResult], sync_latency: &SyncLatency) {
    let rows: Vec<Vec<String>> = results.iter().map(|result| result.row(&BenchResult::MAIN)).collect();
    for (column, (title, _)) in BenchResult::MAIN.iter().enumerate() {
        let cells: Vec<&str> = rows.iter().map(|row| row[column].as_str()).collect();
        println!("{title:>16}  {}", cells.iter().map(|cell| format!("{cell:>12}")).collect::<String>());
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

/// The domain whose guarantee the engine offers, and the file system below it.
fn environment(durability: Durability, folder: &Path) -> Environment {
    let (domain, durability) = match durability {
        Durability::Sync => ("block", "sync"),
        Durability::Process => ("process", "process"),
    };
    Environment { domain: Some(domain.into()), media: file_system_of(folder), durability: Some(durability.into()) }
}

/// The type of the file system that holds `folder`, from the longest mount point above it.
fn file_system_of(folder: &Path) -> Option<String> {
    let folder = folder.canonicalize().ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let above = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (point, kind) = (words.next()?, words.next()?);
        folder.starts_with(point).then_some((point.len(), kind.to_string()))
    });
    above.max_by_key(|(length, _)| *length).map(|(_, kind)| kind)
}

/// Bytes that the files of a folder occupy.
fn folder_bytes(folder: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(folder).ok()?;
    Some(entries.filter_map(|entry| entry.ok()?.metadata().ok()).map(|file| file.blocks() * 512).sum())
}

/// Reads every byte, so that a scan costs as much as it does for a real caller.
fn touch(bytes: &[u8]) {
    black_box(bytes.iter().fold(0_u8, |sum, byte| sum ^ byte));
}

#[cfg(test)]
mod tests {
    use lodestone_workload::conformance::{Licence, check};
    use lodestone_workload::engine::Session;

    use super::*;

    #[test]
    fn rocksdb_keeps_to_the_contract() {
        for durability in [Durability::Sync, Durability::Process] {
            let folder = tempfile::tempdir().unwrap();
            let tuning = rocksdb::Tuning { statistics: true, pipelined: false };
            let engine = rocksdb::RocksDb::create(folder.path(), durability, 1, tuning).unwrap();
            check(&engine, 1, 600, Licence { blind_updates: true, blind_removals: true }).unwrap();
            let syncs = engine.counters().syncs.unwrap();
            assert_eq!(syncs > 0, durability == Durability::Sync, "{syncs}");
        }
    }

    #[test]
    fn lmdb_keeps_to_the_contract() {
        for durability in [Durability::Sync, Durability::Process] {
            let folder = tempfile::tempdir().unwrap();
            let engine = lmdb::Lmdb::create(folder.path(), durability, 1 << 28).unwrap();
            check(&engine, 1, 600, Licence { blind_updates: true, blind_removals: false }).unwrap();
        }
    }

    #[test]
    fn redb_keeps_to_the_contract() {
        for durability in [Durability::Sync, Durability::Process] {
            let folder = tempfile::tempdir().unwrap();
            let engine = redb::Redb::create(folder.path(), durability).unwrap();
            check(&engine, 1, 300, Licence { blind_updates: true, blind_removals: false }).unwrap();
        }
    }

    #[test]
    fn pmemobj_answers_what_was_written() {
        for workload in [Workload::A, Workload::D, Workload::E, Workload::F] {
            let folder = tempfile::tempdir().unwrap();
            let engine = pmemobj::PmemObj::create(folder.path(), 64 << 20, 1).unwrap();
            let spec = Spec { records: 2_345, operations: 5_000, threads: 2, ..Spec::new(workload) };
            Runner::new(&engine, &spec).load().unwrap();
            let outcome = Runner::new(&engine, &spec).verify_reads(true).run().unwrap();
            assert_eq!(outcome.missing, 0, "{workload:?}");
            let mut session = engine.session().unwrap();
            let key = [7; 8];
            assert!(!session.remove(&key).unwrap());
            session.insert(&key, b"short").unwrap();
            // Another length, so another block.
            session.update(&key, b"something longer").unwrap();
            let mut value = Vec::new();
            assert!(session.read(&key, &mut value).unwrap() && value == b"something longer");
            assert!(session.remove(&key).unwrap() && !session.read(&key, &mut value).unwrap());
        }
    }

    #[test]
    fn a_load_loses_no_row() {
        let folder = tempfile::tempdir().unwrap();
        let engine = lmdb::Lmdb::create(folder.path(), Durability::Process, 1 << 28).unwrap();
        let spec = Spec { records: 2_345, operations: 5_000, threads: 2, ..Spec::new(Workload::C) };
        Runner::new(&engine, &spec).load().unwrap();
        let outcome = Runner::new(&engine, &spec).verify_reads(true).run().unwrap();
        assert_eq!(outcome.missing, 0);
    }
}
