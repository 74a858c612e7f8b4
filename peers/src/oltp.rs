//! `lodestone-peers oltp`: TPC-C, TPC-B and SmallBank on SQLite and RocksDB, beside Lodestone on the same disk.
//!
//! Each engine gets a fresh folder, the same rows, transactions, seeds, threads and clock. After each run the rules of
//! the workload are checked on all rows, and a run that breaks one has no figures.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use lodestone_engine_bench::tables::DatabaseTables;
use lodestone_workload::oltp::smallbank::SmallBank;
use lodestone_workload::oltp::tpcb::TpcB;
use lodestone_workload::oltp::tpcc::TpcC;
use lodestone_workload::oltp::{self, OltpEngine, Workload};
use lodestone_workload::race::{Length, Plan};
use lodestone_workload::result::{BenchResult, rounded};
use lodestone_workload::syncprobe::SyncLatency;

use crate::ratios::Conditions;
use crate::rocksdb::tables::RocksTables;
use crate::sqlite::SqliteTables;
use crate::{Durability, SYNC_SAMPLES, SYNC_TIME};

/// Runs transactions over tables on several engines, as `lodestone bench tpcc`, `tpcb` and `smallbank` run them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
lodestone-peers oltp --workload tpcc --warehouses 2 --threads 1,8 --json\n  \
lodestone-peers oltp --workload tpcc --threads 8 --durability sync,process --turns 3")]
pub(crate) struct Arguments {
    /// Engines, one after the other; the ratios are those of the first to the others.
    #[arg(long, value_enum, default_value = "lodestone,sqlite,rocksdb", value_delimiter = ',')]
    engine: Vec<Name>,
    /// The workload.
    #[arg(long, value_enum, default_value = "tpcc")]
    workload: WorkloadName,
    /// tpcc: warehouses; tpcb: branches.
    #[arg(long, default_value_t = 1)]
    warehouses: u64,
    /// tpcc: items.
    #[arg(long, default_value_t = 100_000)]
    items: u64,
    /// tpcc: customers of a district; smallbank: thousands of customers.
    #[arg(long, default_value_t = 3_000)]
    customers: u64,
    #[command(flatten)]
    conditions: Conditions,
    /// Measured time of each run.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Time before it that is not measured.
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    /// Seed of the random draws.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder for the engines' files. A fresh folder is made there and removed at the end.
    #[arg(long, default_value = "/tmp")]
    folder: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Name {
    Lodestone,
    Sqlite,
    Rocksdb,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum WorkloadName {
    Tpcc,
    Tpcb,
    Smallbank,
}

/// Runs all combinations.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { warehouses, items, customers, .. } = *arguments;
    match arguments.workload {
        WorkloadName::Tpcc => all(arguments, &TpcC { warehouses, items, customers }),
        WorkloadName::Tpcb => all(arguments, &TpcB::new(warehouses)),
        WorkloadName::Smallbank => all(arguments, &SmallBank::new(customers * 1_000)),
    }
}

fn all<L: Workload>(arguments: &Arguments, workload: &L) -> Result<()> {
    arguments.conditions.run_all(arguments.engine.len(), |place, durability, threads| {
        one(arguments, workload, arguments.engine[place], durability, threads)
    })
}

/// One engine in a fresh folder.
fn one<L: Workload>(
    arguments: &Arguments,
    workload: &L,
    name: Name,
    durability: Durability,
    threads: usize,
) -> Result<BenchResult> {
    let folder = tempfile::Builder::new().prefix("lodestone-peers-").tempdir_in(&arguments.folder)?;
    let place = folder.path();
    match name {
        Name::Lodestone => {
            let database = crate::lodestone(place, durability, workload.rows() * 1_024, |_| {})?;
            measure(&DatabaseTables::open(database, L::TABLES)?, arguments, workload, threads, place)
        }
        Name::Sqlite => {
            let engine = SqliteTables::create(place, durability, L::TABLES)?;
            measure(&engine, arguments, workload, threads, place)
        }
        Name::Rocksdb => {
            let engine = RocksTables::create(place, durability, threads)?;
            measure(&engine, arguments, workload, threads, place)
        }
    }
}

fn measure<E: OltpEngine, L: Workload>(
    engine: &E,
    arguments: &Arguments,
    workload: &L,
    threads: usize,
    folder: &Path,
) -> Result<BenchResult> {
    let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).context("a time must be a positive number");
    let load = oltp::load(engine, workload, 1, arguments.seed)?;
    let sync_latency = SyncLatency::measure(folder, SYNC_SAMPLES, SYNC_TIME)?;
    let length = Length::Time(seconds(arguments.seconds)?);
    let plan = Plan { warm_up: seconds(arguments.warm_up)?, time_one_of: 1, ..Plan::new(threads, length) };
    let outcome = oltp::run(engine, workload, &plan, arguments.seed)?;
    oltp::refuse(&oltp::verify(engine, workload, outcome.tally.effect)?)?;
    let mut result = outcome.result(engine, workload, arguments.seed);
    result.set_extra("load_seconds", rounded(load.elapsed.as_secs_f64()));
    sync_latency.add_to(&mut result.extra);
    if arguments.conditions.json {
        println!("{}", result.to_json_line());
        return Ok(result);
    }
    println!(
        "{:>10} {:>10} x{threads}: {:>9.0} transactions/s, p50 {} ns, p99 {} ns, {} retries, domain {}, fdatasync p50 {} ns",
        result.engine,
        result.bench,
        result.ops_per_s.unwrap_or(0.0),
        result.latency_ns_p50.unwrap_or(0),
        result.latency_ns_p99.unwrap_or(0),
        outcome.tally.lost(),
        result.domain.as_deref().unwrap_or("unknown"),
        sync_latency.p50_ns,
    );
    Ok(result)
}

#[cfg(test)]
mod tests {
    use lodestone_workload::oltp::verify;

    use super::*;

    /// Both peers keep all rules under several threads, and their sums are known.
    #[test]
    fn peers_keep_the_rules() {
        let folder = || tempfile::tempdir().unwrap();
        let tpcc = TpcC { items: 60, customers: 20, ..TpcC::new(2) };
        let (tpcb, bank) = (TpcB { branches: 2, accounts_per_branch: 100 }, SmallBank::new(50));
        for threads in [1, 3] {
            let sqlite = |folder: &Path, tables| SqliteTables::create(folder, Durability::Process, tables).unwrap();
            let rocks = |folder: &Path| RocksTables::create(folder, Durability::Process, 2).unwrap();
            let places = [folder(), folder(), folder()];
            keeps(&sqlite(places[0].path(), TpcC::TABLES), &tpcc, threads);
            keeps(&sqlite(places[1].path(), TpcB::TABLES), &tpcb, threads);
            keeps(&sqlite(places[2].path(), SmallBank::TABLES), &bank, threads);
            let places = [folder(), folder(), folder()];
            keeps(&rocks(places[0].path()), &tpcc, threads);
            keeps(&rocks(places[1].path()), &tpcb, threads);
            keeps(&rocks(places[2].path()), &bank, threads);
        }
    }

    fn keeps<E: OltpEngine, L: Workload>(engine: &E, workload: &L, threads: usize) {
        oltp::load(engine, workload, 1, 1).unwrap();
        let outcome = oltp::run(engine, workload, &Plan::new(threads, Length::Operations(1_000)), 1).unwrap();
        assert_eq!(outcome.tally.committed() + outcome.tally.cancelled(), 1_000);
        let found = verify(engine, workload, outcome.tally.effect).unwrap();
        assert!(found.is_empty(), "{} on {}: {found:#?}", L::NAME, engine.name());
    }
}
