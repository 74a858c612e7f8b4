//! TPC-C in a process that is killed again and again: what each life does, and what must be there afterwards.
//!
//! 1. The first life makes the tables and loads them ([`load`]).
//! 2. A life works until it is stopped ([`Life::run`]). It tells a [`Receipt`] after each transaction that was
//!    acknowledged as durable and added a row that stays. In two of three lives another thread moves tables and ranges
//!    of keys between the parts of the pool, keeps tables in DRAM or lets them go, and makes checkpoints.
//! 3. After the kill all conditions of clause 3.3.2 hold, and the row of each receipt is there ([`judge`]).
//!
//! The number of a life is its seed. It also chooses whether most rows are in pages alone, and the logs of each record
//! ([`options`]).

use std::fmt::{self, Display, Formatter};
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lodestone_engine::{Database, DatabaseOptions, LogPlacement, row};
use lodestone_pmem::PoolOptions;
use lodestone_workload::engine::{EngineError, Result};
use lodestone_workload::oltp::tpcc::TpcC;
use lodestone_workload::oltp::{
    Access, Key, OltpEngine, Table, Terminal, Transaction, Worker, Workload, load as load_tables, verify,
};
use lodestone_workload::random::Random;

use crate::tables::DatabaseTables;

/// A small TPC-C, so that threads meet often.
pub const SCALE: TpcC = TpcC { items: 60, customers: 20, ..TpcC::new(2) };
/// Rows that one transaction looks for.
const LOOKED_FOR: usize = 500;
/// Most milliseconds between two moves: they take a share of the time, and a life is short.
const REST_MS_MAX: u64 = 20;

/// A transaction that was acknowledged added this row, which no transaction deletes.
///
/// ```
/// use lodestone_engine_bench::lives::Receipt;
/// let receipt: Receipt = "ack 7 4711".parse()?;
/// assert_eq!(receipt.to_string(), "ack 7 4711");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The table, by its place in [`TpcC::TABLES`](Workload::TABLES).
    pub table: Table,
    /// The key.
    pub key: u64,
}

impl Display for Receipt {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "ack {} {}", self.table.0, self.key)
    }
}

impl std::str::FromStr for Receipt {
    type Err = EngineError;

    fn from_str(text: &str) -> Result<Self> {
        let damaged = || EngineError::new(format!("`{text}` is no receipt: it is `ack TABLE KEY`"));
        let words = text.strip_prefix("ack ").and_then(|words| words.split_once(' ')).ok_or_else(damaged)?;
        let table: usize = words.0.parse().map_err(|_| damaged())?;
        let key = words.1.parse().map_err(|_| damaged())?;
        if table < TpcC::TABLES.len() { Ok(Self { table: Table(table), key }) } else { Err(damaged()) }
    }
}

/// The tables whose rows are updated most.
const UPDATED: [&str; 4] = ["warehouse", "district", "customer", "stock"];

/// The options of a database in its life `number`: logs that are half full after some hundred transactions, so that
/// checkpoints are made meanwhile. In each odd life most rows are in pages alone. In half of the lives each record is
/// in the log of the part of its rows.
#[must_use]
pub fn options(pool: PoolOptions, number: u64) -> DatabaseOptions {
    DatabaseOptions {
        pool,
        log_bytes: 2 << 20,
        segment_bytes: 64 << 10,
        leaf_rows_max: 16,
        page_bytes: 1024,
        extent_pages: 256,
        cache_bytes: (number % 2 == 1).then_some(256 << 10),
        log_placement: if number % 4 >= 2 { LogPlacement::ByTable } else { LogPlacement::Home },
        ..DatabaseOptions::default()
    }
}

/// Makes and loads the tables. `is_dual`: rows that are updated most are in cells, so transactions are over several
/// placements.
///
/// # Errors
/// Those of the database.
pub fn load(database: Database, is_dual: bool) -> Result<DatabaseTables> {
    let tables = DatabaseTables::open_placed(database, TpcC::TABLES, |table| is_dual && UPDATED.contains(&table.name))?;
    load_tables(&tables, &SCALE, 2, 11)?;
    Ok(tables)
}

/// One life of a process.
///
/// ```
/// use std::sync::Mutex;
///
/// use lodestone_engine::Database;
/// use lodestone_engine_bench::lives::{Life, judge, load, options};
/// use lodestone_pmem::{DomainChoice, PoolOptions};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// let pool = PoolOptions { domain: DomainChoice::Process, size_bytes: 64 << 20, ..PoolOptions::default() };
/// let tables = load(Database::open_with(&path, &options(pool, 0))?, false)?;
/// let told = Mutex::new(Vec::new());
/// // A real life ends by a kill, and this one by an error of its listener.
/// let ended = Life { number: 3, threads: 2 }.run(&tables, &|receipt| {
///     let mut told = told.lock().unwrap();
///     told.push(receipt);
///     if told.len() < 10 { Ok(()) } else { Err(std::io::Error::other("enough")) }
/// });
/// assert!(ended.is_err());
/// assert!(judge(&tables, &told.into_inner()?)?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// Its number, the seed of all choices.
    pub number: u64,
    /// Threads that work.
    pub threads: usize,
}

impl Life {
    /// Works until an error. `say` is called with each receipt when its transaction is durable, by the thread that made
    /// it, before that thread goes on.
    ///
    /// # Errors
    /// The first error of the database, or of `say`.
    pub fn run(&self, tables: &DatabaseTables, say: &(dyn Fn(Receipt) -> io::Result<()> + Sync)) -> Result<()> {
        let (is_over, first) = (AtomicBool::new(false), Mutex::new(None));
        let end = |outcome: Result<()>| {
            is_over.store(true, Ordering::Relaxed);
            if let (Err(error), Ok(mut first)) = (outcome, first.lock()) {
                first.get_or_insert(error);
            }
        };
        std::thread::scope(|scope| {
            let (is_over, end) = (&is_over, &end);
            if !self.number.is_multiple_of(3) {
                scope.spawn(move || end(self.move_rows(tables.database(), is_over)));
            }
            for thread in 0..self.threads {
                scope.spawn(move || end(self.work(thread, tables, say, is_over)));
            }
        });
        first.into_inner().ok().flatten().map_or(Ok(()), Err)
    }

    fn work(
        &self,
        thread: usize,
        tables: &DatabaseTables,
        say: &(dyn Fn(Receipt) -> io::Result<()> + Sync),
        is_over: &AtomicBool,
    ) -> Result<()> {
        let mut worker = tables.worker()?;
        let mut terminal = SCALE.terminal(&mut worker, thread, self.threads, self.number)?;
        while !is_over.load(Ordering::Relaxed) {
            terminal.draw();
            if let Some((table, key)) = terminal.step(&mut worker)?.receipt {
                say(Receipt { table, key }).map_err(EngineError::new)?;
            }
        }
        Ok(())
    }

    /// Changes where the rows are.
    fn move_rows(&self, database: &Database, is_over: &AtomicBool) -> Result<()> {
        let tables = database.tables().map_err(EngineError::new)?;
        let parts = database.pool().part_nodes().len() as u64;
        let mut random = Random::for_stream(self.number, u64::MAX);
        while !is_over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(random.below(REST_MS_MAX)));
            let Some(table) = tables.get(random.below(tables.len() as u64) as usize) else { return Ok(()) };
            // One more than there are: no part of its own.
            let part = u16::try_from(random.below(parts + 1)).ok().filter(|part| u64::from(*part) < parts);
            let outcome = match random.below(6) {
                0 => database.move_table(table, part).map(drop),
                1 | 2 => {
                    let from = random.below(2000);
                    let keys = row![from]..row![from + 1 + random.below(2000)];
                    database.move_range(table, keys, part).map(drop)
                }
                3 => database.keep_table(table, true),
                4 => database.keep_table(table, false),
                _ => database.checkpoint().map(drop),
            };
            outcome.map_err(EngineError::new)?;
        }
        Ok(())
    }
}

/// The faults of the tables, in words: a condition that does not hold, or a row of `told` that is not there.
///
/// # Errors
/// Those of the database.
pub fn judge(tables: &DatabaseTables, told: &[Receipt]) -> Result<Vec<String>> {
    let mut wrong: Vec<String> = verify(tables, &SCALE, None)?.iter().map(ToString::to_string).collect();
    let lost = lost(tables, told)?;
    wrong.extend(lost.iter().map(|receipt| {
        format!("acknowledged and lost: row {:#x} of table {}", receipt.key, TpcC::TABLES[receipt.table.0].name)
    }));
    Ok(wrong)
}

/// Finds out which rows are missing.
struct Missing<'r>(&'r [Receipt]);

impl Transaction for Missing<'_> {
    type Out = Vec<Receipt>;
    const IS_READ_ONLY: bool = true;

    fn run<X: Access>(&mut self, x: &mut X) -> Result<Self::Out, X::Abort> {
        let (mut row, mut missing) = (Vec::new(), Vec::new());
        for receipt in self.0 {
            if !x.get(receipt.table, Key::from(receipt.key), &mut row)? {
                missing.push(*receipt);
            }
        }
        Ok(missing)
    }
}

/// The receipts whose rows are not there.
///
/// # Errors
/// Those of the database.
pub fn lost(tables: &DatabaseTables, told: &[Receipt]) -> Result<Vec<Receipt>> {
    let mut worker = tables.worker()?;
    let mut lost = Vec::new();
    for part in told.chunks(LOOKED_FOR) {
        lost.extend(worker.run(&mut Missing(part))?.unwrap_or_default());
    }
    Ok(lost)
}
