//! A small TPC-C in a small database, for the tests of this crate.
#![allow(dead_code, reason = "each test uses a part")]

use std::path::Path;

use lodestone_engine::{Database, DatabaseOptions};
use lodestone_engine_bench::lives;
pub use lodestone_engine_bench::lives::SCALE;
use lodestone_engine_bench::tables::DatabaseTables;
use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_workload::engine::{EngineError, Result};
use lodestone_workload::oltp::tpcc::TpcC;
use lodestone_workload::oltp::{TableSpec, Violation, Workload, load, verify};

/// Logs that are half full after some hundred transactions, so that checkpoints are made meanwhile.
pub fn options(domain: DomainChoice) -> DatabaseOptions {
    let pool = PoolOptions { domain, size_bytes: 64 << 20, journal_bytes: 4 << 20, ..PoolOptions::default() };
    lives::options(pool, 0)
}

pub fn open(path: &Path, options: &DatabaseOptions, tables: &[TableSpec]) -> Result<DatabaseTables> {
    DatabaseTables::open(Database::open_with(path, options).map_err(EngineError::new)?, tables)
}

/// A loaded TPC-C at `path`.
pub fn loaded(path: &Path, domain: DomainChoice, scale: &TpcC) -> Result<DatabaseTables> {
    loaded_with(path, &options(domain), scale)
}

/// The same with other options.
pub fn loaded_with(path: &Path, options: &DatabaseOptions, scale: &TpcC) -> Result<DatabaseTables> {
    let engine = open(path, options, TpcC::TABLES)?;
    load(&engine, scale, 2, 11)?;
    Ok(engine)
}

/// Fails with the violations of `workload`.
pub fn expect_consistent<L: Workload>(engine: &DatabaseTables, workload: &L, what: &str) -> Result<()> {
    let found: Vec<Violation> = verify(engine, workload, None)?;
    assert!(found.is_empty(), "{what}: {found:#?}");
    Ok(())
}
