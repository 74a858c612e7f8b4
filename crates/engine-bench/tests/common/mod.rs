//! A small TPC-C in a small database, for the tests of this crate.
#![allow(dead_code, reason = "each test uses a part")]

use std::path::Path;

use lodestone_engine::{Database, DatabaseOptions};
use lodestone_engine_bench::tables::DatabaseTables;
use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_workload::engine::{EngineError, Result};
use lodestone_workload::oltp::tpcc::TpcC;
use lodestone_workload::oltp::{
    Access, Key, OltpEngine, Table, TableSpec, Transaction, Violation, Worker, Workload, load, verify,
};

pub const SCALE: TpcC = TpcC { items: 60, customers: 20, ..TpcC::new(2) };

/// Logs that are half full after some hundred transactions, so that checkpoints are made meanwhile.
pub fn options(domain: DomainChoice) -> DatabaseOptions {
    let pool = PoolOptions { domain, size_bytes: 64 << 20, journal_bytes: 4 << 20, ..PoolOptions::default() };
    DatabaseOptions {
        pool,
        log_bytes: 2 << 20,
        segment_bytes: 64 << 10,
        leaf_rows_max: 16,
        page_bytes: 1024,
        extent_pages: 256,
        ..DatabaseOptions::default()
    }
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

/// Finds out which rows are missing.
struct Missing<'r>(&'r [(Table, u64)]);

impl Transaction for Missing<'_> {
    type Out = Vec<(Table, u64)>;
    const IS_READ_ONLY: bool = true;

    fn run<X: Access>(&mut self, x: &mut X) -> Result<Self::Out, X::Abort> {
        let (mut row, mut missing) = (Vec::new(), Vec::new());
        for (table, key) in self.0 {
            if !x.get(*table, Key::from(*key), &mut row)? {
                missing.push((*table, *key));
            }
        }
        Ok(missing)
    }
}

/// The acknowledged rows that are not there.
pub fn lost(engine: &DatabaseTables, receipts: &[(Table, u64)]) -> Result<Vec<(Table, u64)>> {
    let mut worker = engine.worker()?;
    let mut lost = Vec::new();
    for part in receipts.chunks(500) {
        lost.extend(worker.run(&mut Missing(part))?.unwrap_or_default());
    }
    Ok(lost)
}
