//! The simplest engine: sorted maps in DRAM under one lock. It tests the workloads and their rules.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::engine::{EngineError, Environment, Result};
use crate::oltp::{Access, Key, OltpEngine, Order, Table, TableSpec, Transaction, Visit, Worker};

type OwnedKey = (u64, String);
type Rows = BTreeMap<OwnedKey, Vec<u8>>;

/// Tables in DRAM as an [`OltpEngine`]. Transactions run one at a time.
///
/// ```
/// use lodestone_workload::oltp::memory::MemoryTables;
/// use lodestone_workload::oltp::{Key, Table, TableSpec};
///
/// let tables = MemoryTables::new(&[TableSpec::numbers("t")]);
/// tables.set(Table(0), Key::from(7), Some(b"row"));
/// assert_eq!(tables.row(Table(0), Key::from(7)).as_deref(), Some(&b"row"[..]));
/// ```
#[derive(Debug)]
pub struct MemoryTables {
    tables: Mutex<Vec<Rows>>,
}

impl MemoryTables {
    /// Empty tables.
    #[must_use]
    pub fn new(tables: &[TableSpec]) -> Self {
        Self { tables: Mutex::new(vec![Rows::new(); tables.len()]) }
    }

    /// Sets a row outside transactions; `None` removes it. For tests of rules.
    ///
    /// # Panics
    /// If there is no such table.
    pub fn set(&self, table: Table, key: Key<'_>, row: Option<&[u8]>) {
        let (rows, key) = (&mut self.lock()[table.0], owned(key));
        match row {
            Some(row) => drop(rows.insert(key, row.into())),
            None => drop(rows.remove(&key)),
        }
    }

    /// A row, outside transactions.
    ///
    /// # Panics
    /// If there is no such table.
    #[must_use]
    pub fn row(&self, table: Table, key: Key<'_>) -> Option<Vec<u8>> {
        self.lock()[table.0].get(&owned(key)).cloned()
    }

    // A transaction that panics leaves its changes. The run then ends, and its rows are not used.
    fn lock(&self) -> MutexGuard<'_, Vec<Rows>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn owned(key: Key<'_>) -> OwnedKey {
    (key.number, key.text.into())
}

impl OltpEngine for MemoryTables {
    type Worker<'e> = MemoryWorker<'e>;

    fn name(&self) -> String {
        "memory".into()
    }

    fn worker(&self) -> Result<MemoryWorker<'_>> {
        Ok(MemoryWorker { engine: self, attempts: 0 })
    }

    fn environment(&self) -> Environment {
        Environment { domain: None, media: Some("dram".into()), durability: Some("none".into()) }
    }
}

/// A worker of [`MemoryTables`].
#[derive(Debug)]
pub struct MemoryWorker<'e> {
    engine: &'e MemoryTables,
    attempts: u64,
}

/// A transaction that holds the lock.
#[derive(Debug)]
pub struct MemoryAccess<'t> {
    tables: MutexGuard<'t, Vec<Rows>>,
    /// The rows before the changes, in the order of the changes.
    undo: Vec<(usize, OwnedKey, Option<Vec<u8>>)>,
}

/// How a transaction ends without a commit.
#[derive(Debug)]
pub enum Stop {
    /// By its own decision.
    Cancelled,
    /// With an error.
    Fault(String),
}

impl Worker for MemoryWorker<'_> {
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Option<T::Out>> {
        self.attempts += 1;
        let mut access = MemoryAccess { tables: self.engine.lock(), undo: Vec::new() };
        let outcome = transaction.run(&mut access);
        if outcome.is_err() {
            access.undo();
        }
        match outcome {
            Ok(out) => Ok(Some(out)),
            Err(Stop::Cancelled) => Ok(None),
            Err(Stop::Fault(finding)) => Err(EngineError::new(finding)),
        }
    }

    fn attempts(&self) -> u64 {
        self.attempts
    }
}

impl MemoryAccess<'_> {
    fn change(&mut self, table: Table, key: Key<'_>, row: Option<&[u8]>) -> bool {
        let (rows, key) = (&mut self.tables[table.0], owned(key));
        let before = match row {
            Some(row) => rows.insert(key.clone(), row.into()),
            None => rows.remove(&key),
        };
        let was_there = before.is_some();
        self.undo.push((table.0, key, before));
        was_there
    }

    fn undo(&mut self) {
        for (table, key, before) in self.undo.drain(..).rev() {
            match before {
                Some(row) => drop(self.tables[table].insert(key, row)),
                None => drop(self.tables[table].remove(&key)),
            }
        }
    }
}

impl Access for MemoryAccess<'_> {
    type Abort = Stop;

    fn get(&mut self, table: Table, key: Key<'_>, row: &mut Vec<u8>) -> Result<bool, Stop> {
        row.clear();
        let found = self.tables[table.0].get(&owned(key));
        found.inspect(|found| row.extend_from_slice(found));
        Ok(found.is_some())
    }

    fn put(&mut self, table: Table, key: Key<'_>, row: &[u8]) -> Result<(), Stop> {
        self.change(table, key, Some(row));
        Ok(())
    }

    fn insert(&mut self, table: Table, key: Key<'_>, row: &[u8]) -> Result<(), Stop> {
        if self.change(table, key, Some(row)) {
            return Err(Stop::Fault(format!("table {}: a second row with the key {key:?}", table.0)));
        }
        Ok(())
    }

    fn delete(&mut self, table: Table, key: Key<'_>) -> Result<bool, Stop> {
        Ok(self.change(table, key, None))
    }

    fn scan(&mut self, table: Table, range: Range<Key<'_>>, order: Order, visit: &mut Visit<'_>) -> Result<(), Stop> {
        if range.is_empty() {
            return Ok(());
        }
        let mut rows = self.tables[table.0].range(owned(range.start)..owned(range.end));
        while let Some(((number, text), row)) = match order {
            Order::Ascending => rows.next(),
            Order::Descending => rows.next_back(),
        } {
            if visit(Key { number: *number, text }, row).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn cancel(&mut self) -> Stop {
        Stop::Cancelled
    }

    fn fault(&mut self, finding: String) -> Stop {
        Stop::Fault(finding)
    }
}
