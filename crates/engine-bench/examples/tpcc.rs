//! TPC-C alone, for a profiler: two warehouses on one thread for ten seconds, in a new pool in the domain
//! `dax-emulated`.
//!
//! ```text
//! cargo run --profile profiling -p lodestone-engine-bench --example tpcc -- /dev/shm/a.pool 2 1 10
//! ```
//!
//! It prints `measured` when the load is done, so that `perf record` can be attached there.

use std::time::Duration;

use lodestone_engine::{Database, DatabaseOptions};
use lodestone_engine_bench::tables::DatabaseTables;
use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_workload::oltp::tpcc::TpcC;
use lodestone_workload::oltp::{Workload, load, refuse, run_and_tell, verify};
use lodestone_workload::race::{Length, Moment, Plan};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, warehouses, threads, seconds] = &words[..] else {
        return Err("usage: POOL_FILE WAREHOUSES THREADS SECONDS".into());
    };
    let (tpcc, threads) = (TpcC::new(warehouses.parse()?), threads.parse()?);
    let size_bytes = (4 << 30) + tpcc.rows() * 1_024;
    let pool = PoolOptions {
        domain: DomainChoice::DaxEmulated,
        size_bytes: size_bytes.next_multiple_of(1 << 20),
        ..PoolOptions::default()
    };
    let options = DatabaseOptions { pool, ..DatabaseOptions::default() };
    let engine = DatabaseTables::open(Database::open_with(path, &options)?, TpcC::TABLES)?;
    load(&engine, &tpcc, threads, 1)?;
    let length = Length::Time(Duration::from_secs_f64(seconds.parse()?));
    let plan = Plan { time_one_of: 1, ..Plan::new(threads, length) };
    let outcome = run_and_tell(&engine, &tpcc, &plan, 1, &mut |moment| {
        if moment == Moment::Start {
            println!("measured");
        }
    })?;
    println!("{}", outcome.result(&engine, &tpcc, 1).to_json_line());
    refuse(&verify(&engine, &tpcc, None)?)?;
    Ok(())
}
