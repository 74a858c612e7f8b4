//! A small database of one table, for the tests of this crate.
#![allow(dead_code, reason = "each test uses a part")]

pub mod hardware;

use std::path::Path;
use std::sync::Arc;

use lodestone_engine::{
    DATABASE_NAME, Database, DatabaseOptions, Reader, Result, Row, Schema, Table, Tx, Type, Value, row,
};
use lodestone_heap::HeapOptions;
use lodestone_pmem::storage::{FaultPlan, FaultyStorage, OpenFile, SimulatedDisk};
use lodestone_pmem::{DomainChoice, Pool, PoolOptions, SilentTracer};
use lodestone_store::{Store, StoreOptions};

pub fn options(domain: DomainChoice) -> DatabaseOptions {
    let pool = PoolOptions { domain, size_bytes: 16 << 20, journal_bytes: 1 << 20, ..PoolOptions::default() };
    DatabaseOptions {
        pool,
        log_bytes: 8 << 20,
        segment_bytes: 64 << 10,
        leaf_rows_max: 4,
        page_bytes: 512,
        extent_pages: 64,
        ..DatabaseOptions::default()
    }
}

/// A small store in traced memory, for schedules, and options of a database of three threads in it.
pub fn traced() -> (Store, DatabaseOptions) {
    let sizes =
        PoolOptions { size_bytes: 96 << 10, journal_bytes: 0, reserve_bytes: 1 << 20, ..PoolOptions::default() };
    let pool = Pool::create_traced(&sizes, Arc::new(SilentTracer)).expect("a pool");
    let store = Store::over_with(&pool, &StoreOptions::with_heap(HeapOptions::small())).expect("a store");
    let options = DatabaseOptions {
        threads_max: 3,
        log_bytes: 32 << 10,
        segment_bytes: 2 << 10,
        leaf_rows_max: 2,
        page_bytes: 256,
        extent_pages: 8,
        ..DatabaseOptions::default()
    };
    (store, options)
}

/// Runs schedules of `execution` under the deterministic scheduler: random ones, and by priorities.
///
/// # Errors
/// The first violation.
#[cfg(feature = "shuttle")]
pub fn explore(
    execution: impl Fn() + Copy + Send + Sync + 'static,
    schedules: usize,
) -> std::result::Result<(), String> {
    schedules_of(execution, 1, schedules)
}

/// Runs schedules of an execution with a planted bug, until one shows it: few of each kind in turns, as each bug has a
/// kind that finds it soon, and others that hardly do.
///
/// # Errors
/// The first violation. Its absence after `schedules` of each kind is no error.
#[cfg(feature = "shuttle")]
pub fn hunt(execution: impl Fn() + Copy + Send + Sync + 'static, schedules: usize) -> std::result::Result<(), String> {
    let turn = 50;
    (1..=schedules.div_ceil(turn)).try_for_each(|seed| schedules_of(execution, seed as u64, turn))
}

#[cfg(feature = "shuttle")]
fn schedules_of(
    execution: impl Fn() + Copy + Send + Sync + 'static,
    seed: u64,
    schedules: usize,
) -> std::result::Result<(), String> {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use shuttle::scheduler::{PctScheduler, RandomScheduler};
    use shuttle::{FailurePersistence, MaxSteps, Runner};

    let mut config = shuttle::Config::new();
    (config.stack_size, config.max_steps) = (1 << 20, MaxSteps::FailAfter(2_000_000));
    config.failure_persistence = FailurePersistence::None;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        Runner::new(RandomScheduler::new_from_seed(seed, schedules), config.clone()).run(execution);
        for depth in [2, 3, 4] {
            Runner::new(PctScheduler::new_from_seed(seed, depth, schedules), config.clone()).run(execution);
        }
    }));
    outcome.map_err(|payload| payload.downcast_ref::<String>().cloned().unwrap_or_default())
}

/// A simulated disk, and the way to it that fails on request.
pub struct Device {
    pub disk: Arc<SimulatedDisk>,
    pub faulty: Arc<FaultyStorage<Arc<SimulatedDisk>>>,
}

/// The findings of the check of the pool about the database, which is closed.
pub fn findings(path: &Path, options: &DatabaseOptions) -> Vec<String> {
    let store = Store::open_or_create(path, &options.pool).expect("the store");
    let object = store.open_object(DATABASE_NAME).expect("the database");
    let kind = store.kind_of(&object).expect("a kind");
    let contents = kind.examine(object).expect("the database opens");
    contents.flaws.into_iter().map(|flaw| flaw.text).collect()
}

/// A database with the table `t (k u64, v i64)`.
pub struct Open {
    pub db: Database,
    pub table: Table,
}

impl Open {
    pub fn at(path: &Path, options: &DatabaseOptions) -> Result<Self> {
        let db = Database::open_with(path, options)?;
        let table = db.create_table(&Schema::new("t").column("k", Type::U64).column("v", Type::I64).key(["k"]))?;
        Ok(Self { db, table })
    }

    /// As [`at`](Self::at), on a simulated disk that fails and counts on request. `options`: of the block domain.
    pub fn on_device(options: &DatabaseOptions) -> Result<(Device, Self)> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pool");
        drop(Self::at(&path, options)?);
        Self::on_disk(std::fs::read(&path).expect("the pool"), options)
    }

    /// As [`on_device`](Self::on_device), with the content of a disk.
    pub fn on_disk(content: Vec<u8>, options: &DatabaseOptions) -> Result<(Device, Self)> {
        let disk = Arc::new(SimulatedDisk::new(content));
        let faulty = Arc::new(FaultyStorage::new(disk.clone(), FaultPlan::default()));
        let pool = Pool::open_on_device(|| Arc::new(OpenFile::new(&faulty)), options.pool.size_bytes, &options.pool)?;
        let db = Database::open_in(&Store::over(&pool)?, options)?;
        let table = db.table("t")?;
        Ok((Device { disk, faulty }, Self { db, table }))
    }

    pub fn set(&self, rows: &[(u64, i64)]) -> Result<()> {
        self.db.update(|tx| rows.iter().try_for_each(|(k, v)| self.put(tx, *k, *v)))
    }

    pub fn put(&self, tx: &Tx, k: u64, v: i64) -> Result<()> {
        self.table.put(tx, &row![k, v])
    }

    pub fn get(&self, reader: &impl Reader, k: u64) -> Result<Option<i64>> {
        Ok(self.table.get(reader, &row![k])?.and_then(|row| row[1].as_i64()))
    }

    pub fn count(&self, reader: &impl Reader, from: u64, to: u64) -> Result<usize> {
        self.table.range(reader, row![from]..row![to])?.try_fold(0, |count, row| row.map(|_| count + 1))
    }

    pub fn rows(&self, reader: &impl Reader) -> Result<Vec<(u64, i64)>> {
        self.table.range(reader, ..)?.map(|row| row.map(pair)).collect()
    }

    pub fn all(&self) -> Result<Vec<(u64, i64)>> {
        self.db.update(|tx| self.rows(tx))
    }
}

fn pair(row: Row) -> (u64, i64) {
    match (&row[0], &row[1]) {
        (Value::U64(k), Value::I64(v)) => (*k, *v),
        _ => unreachable!("the types of the columns"),
    }
}
