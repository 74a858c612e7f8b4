//! Other engines under the same workloads, through the same runner, with the same lines of results.
//!
//! Each run has a fresh folder, which is removed after it, and the cost of one fdatasync there in its line. Engines run
//! one after the other on the same disk. At the end come the ratios of the first engine to the others.

mod free_memory;
mod index;
mod lmdb;
mod oltp;
mod pmemobj;
mod ratios;
mod redb;
mod rocksdb;
mod sqlite;
mod stm;
mod ycsb;

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use lodestone_engine::{Database, DatabaseOptions};
use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_workload::engine::Environment;
use mimalloc::MiMalloc;

/// For all engines: see `Cargo.toml`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const SYNC_SAMPLES: u64 = 20_000;
const SYNC_TIME: Duration = Duration::from_secs(2);

/// The failure that an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Durability {
    /// Power loss: every write waits for the device.
    Sync,
    /// The death of the process, but not power loss.
    Process,
}

/// Runs YCSB on several engines and prints the same result lines as `lodestone bench ycsb`.
#[derive(Debug, Parser)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = ycsb::AFTER_HELP
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    ycsb: ycsb::Arguments,
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
    let Arguments { command, ycsb } = Arguments::parse();
    match command {
        Some(Command::Stm(arguments)) => stm::run(&arguments),
        Some(Command::Index(arguments)) => index::run(&arguments),
        Some(Command::Oltp(arguments)) => oltp::run(&arguments),
        None => ycsb::run(&ycsb),
    }
}

/// A Lodestone database in the domain of the durability, with room for `rows_bytes` and a run. `choose` changes the
/// options of a default database.
fn lodestone(
    folder: &Path,
    durability: Durability,
    rows_bytes: u64,
    choose: impl FnOnce(&mut DatabaseOptions),
) -> Result<Database> {
    let domain = match durability {
        Durability::Sync => DomainChoice::Block,
        Durability::Process => DomainChoice::Process,
    };
    let size_bytes = (3 << 30) + rows_bytes.next_multiple_of(1 << 20);
    let pool = PoolOptions { domain, size_bytes, journal_bytes: 256 << 20, ..PoolOptions::default() };
    let mut options = DatabaseOptions { pool, ..DatabaseOptions::default() };
    choose(&mut options);
    Ok(Database::open_with(folder.join("tables.pool"), &options)?)
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
    use lodestone_workload::engine::{Engine, Session};
    use lodestone_workload::ycsb::{Runner, Spec, Workload};

    use super::*;

    #[test]
    fn rocksdb_keeps_to_the_contract() {
        for durability in [Durability::Sync, Durability::Process] {
            let folder = tempfile::tempdir().unwrap();
            let tuning = rocksdb::Tuning { statistics: true, ..rocksdb::Tuning::default() };
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
            let engine = lmdb::Lmdb::create(folder.path(), durability, 1 << 28, false).unwrap();
            check(&engine, 1, 600, Licence { blind_updates: true, blind_removals: false }).unwrap();
        }
    }

    #[test]
    fn sqlite_keeps_to_the_contract() {
        for durability in [Durability::Sync, Durability::Process] {
            let folder = tempfile::tempdir().unwrap();
            let engine = sqlite::records::SqliteRecords::create(folder.path(), durability).unwrap();
            check(&engine, 1, 600, Licence::default()).unwrap();
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
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        loads_all(&lmdb::Lmdb::create(folders[0].path(), Durability::Process, 1 << 28, false).unwrap());
        loads_all(&sqlite::records::SqliteRecords::create(folders[1].path(), Durability::Process).unwrap());
    }

    fn loads_all(engine: &impl Engine) {
        let spec = Spec { records: 2_345, operations: 5_000, threads: 2, ..Spec::new(Workload::C) };
        Runner::new(engine, &spec).load().unwrap();
        let outcome = Runner::new(engine, &spec).verify_reads(true).run().unwrap();
        assert_eq!(outcome.missing, 0, "{}", engine.name());
    }
}
