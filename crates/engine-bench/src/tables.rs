//! The tables of an OLTP workload in a database.
//!
//! A table has the columns `k u64`, `t text` where its keys have texts, and `v bytes`. So the engine finds keys in
//! their order, and moves rows without a look into them.
//!
//! A transaction that a workload cancels ends its closure with an error. The engine validates its reads before, so the
//! decision was true.
//!
//! Workers may go on before their transactions are acknowledged ([`DatabaseTables::unacknowledged`]). Then each
//! transaction has a ticket, and one that is cancelled is a transaction that takes its changes back and commits: the
//! engine makes an error wait until it is durable.

use std::collections::VecDeque;
use std::ops::Range;

use lodestone_engine::{Database, Durability, Error, Row, Schema, Ticket, Tx, Type, Value, row};
use lodestone_index_bench::lodestone::counters_in;
use lodestone_pmem::{process_counters, thread_counters};
use lodestone_workload::engine::{EngineCounters, EngineError, Environment, Result};
use lodestone_workload::oltp::{Access, Key, OltpEngine, Order, Table, TableSpec, Transaction, Visit, Worker};

use crate::environment;

/// The tables of a workload in a database.
///
/// ```
/// use lodestone_engine::{Database, DatabaseOptions};
/// use lodestone_engine_bench::tables::DatabaseTables;
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_workload::oltp::tpcb::TpcB;
/// use lodestone_workload::oltp::{Workload, load, run, verify};
/// use lodestone_workload::race::{Length, Plan};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("bank.pool");
/// let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let options = DatabaseOptions { pool, log_bytes: 4 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
/// let database = Database::open_with(&path, &options)?;
/// let (tables, bank) = (DatabaseTables::open(database, TpcB::TABLES)?, TpcB { branches: 1, accounts_per_branch: 100 });
/// load(&tables, &bank, 1, 1)?;
/// let outcome = run(&tables, &bank, &Plan::new(2, Length::Operations(200)), 1)?;
/// assert!(verify(&tables, &bank, outcome.tally.effect)?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DatabaseTables {
    database: Database,
    tables: Vec<(lodestone_engine::Table, TableSpec)>,
    unacknowledged_max: usize,
}

/// Transactions of a worker of the load that are not durable. The load ends with a wait for all.
const UNACKNOWLEDGED_OF_LOAD: usize = 1_000;

fn schema(spec: &TableSpec) -> Schema {
    let keyed = Schema::new(spec.name).column("k", Type::U64);
    let (keyed, key) = match spec.has_text {
        true => (keyed.column("t", Type::Text), &["k", "t"][..]),
        false => (keyed, &["k"][..]),
    };
    keyed.column("v", Type::Bytes).key(key.iter().copied())
}

impl DatabaseTables {
    /// Makes or opens the tables in `database`.
    ///
    /// # Errors
    /// Those of the database.
    pub fn open(database: Database, tables: &[TableSpec]) -> Result<Self> {
        Self::open_placed(database, tables, |_| false)
    }

    /// As [`open`](Self::open). The rows of tables that it makes are in cells ([`Schema::dual`]) where `is_dual` says
    /// so. Tables that are there stay as they are.
    ///
    /// ```
    /// # use lodestone_engine::{Database, DatabaseOptions};
    /// # use lodestone_engine_bench::tables::DatabaseTables;
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # use lodestone_workload::oltp::Workload;
    /// # use lodestone_workload::oltp::tpcb::TpcB;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("bank.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let options =
    /// #     DatabaseOptions { pool, log_bytes: 4 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// let database = Database::open_with(&path, &options)?;
    /// // Balances are updated in place. The history only grows.
    /// let tables = DatabaseTables::open_placed(database, TpcB::TABLES, |table| table.name != "history")?;
    /// assert!(tables.database().table("account")?.schema().is_dual());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of the database.
    pub fn open_placed(database: Database, tables: &[TableSpec], is_dual: impl Fn(&TableSpec) -> bool) -> Result<Self> {
        let open = |spec: &TableSpec| {
            let is_dual = match database.table(spec.name) {
                Err(Error::NoTable { .. }) => is_dual(spec),
                found => found?.schema().is_dual(),
            };
            let schema = schema(spec);
            Ok((database.create_table(&if is_dual { schema.dual() } else { schema })?, *spec))
        };
        let tables = tables.iter().map(open).collect::<Result<_, Error>>().map_err(EngineError::new)?;
        Ok(Self { database, tables, unacknowledged_max: 0 })
    }

    /// Workers go on until so many of their transactions are not acknowledged. With 0 they wait for each one.
    ///
    /// ```
    /// # use lodestone_engine::{Database, DatabaseOptions, Durability};
    /// # use lodestone_engine_bench::tables::DatabaseTables;
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # use lodestone_workload::oltp::tpcb::TpcB;
    /// # use lodestone_workload::oltp::{Workload, load, run, verify};
    /// # use lodestone_workload::race::{Length, Plan};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("bank.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let options =
    /// #     DatabaseOptions { pool, log_bytes: 4 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// let grouped = DatabaseOptions { durability: Durability::EPOCH, ..options };
    /// let bank = TpcB { branches: 1, accounts_per_branch: 100 };
    /// let tables = DatabaseTables::open(Database::open_with(&path, &grouped)?, TpcB::TABLES)?.unacknowledged(1_000);
    /// load(&tables, &bank, 1, 1)?;
    /// let outcome = run(&tables, &bank, &Plan::new(2, Length::Operations(200)), 1)?;
    /// // The epoch ends, and then all of them are acknowledged.
    /// assert_eq!(outcome.run.latency.len(), 200);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn unacknowledged(self, unacknowledged_max: usize) -> Self {
        Self { unacknowledged_max, ..self }
    }

    fn worker_with(&self, unacknowledged_max: usize) -> DatabaseWorker<'_> {
        DatabaseWorker { engine: self, attempts: 0, unacknowledged_max, tickets: VecDeque::new() }
    }

    /// The database.
    #[must_use]
    pub fn database(&self) -> &Database {
        &self.database
    }
}

impl OltpEngine for DatabaseTables {
    type Worker<'e> = DatabaseWorker<'e>;

    fn name(&self) -> String {
        "lodestone".into()
    }

    fn worker(&self) -> Result<DatabaseWorker<'_>> {
        Ok(self.worker_with(self.unacknowledged_max))
    }

    fn load_worker(&self) -> Result<DatabaseWorker<'_>> {
        Ok(self.worker_with(UNACKNOWLEDGED_OF_LOAD))
    }

    fn unacknowledged_max(&self) -> usize {
        self.unacknowledged_max
    }

    /// Rows go to pages, so that a run begins with empty logs.
    fn finish_load(&self) -> Result<()> {
        if self.database.durability() == Durability::None {
            return Ok(());
        }
        self.database.checkpoint().map(drop).map_err(EngineError::new)
    }

    fn environment(&self) -> Environment {
        environment(&self.database)
    }

    fn counters(&self) -> EngineCounters {
        counters_in(self.database.pool().memory().domain(), &process_counters())
    }
}

/// One thread's access to the tables.
#[derive(Debug)]
pub struct DatabaseWorker<'e> {
    engine: &'e DatabaseTables,
    attempts: u64,
    unacknowledged_max: usize,
    /// Of the transactions that are not acknowledged, in their order. `None`: the answer was durable at once.
    tickets: VecDeque<Option<Ticket<()>>>,
}

impl DatabaseWorker<'_> {
    /// Runs a transaction and keeps its ticket.
    fn run_ahead<T: Transaction>(&mut self, transaction: &mut T) -> Result<Option<T::Out>> {
        let Self { engine, attempts, tickets, .. } = self;
        let (mut fault, mut out) = (None, None);
        let ticket = engine.database.update_async(|tx| {
            *attempts += 1;
            (fault, out) = (None, None);
            let begin = if T::CANCELS_LATE { Some(tx.savepoint()?) } else { None };
            let mut access = DatabaseAccess { engine, tx, fault: &mut fault, has_changed: false };
            match (transaction.run(&mut access), begin) {
                (Ok(found), _) => out = Some(found),
                (Err(error), _) if !matches!(error, Error::Cancelled { .. }) || access.fault.is_some() => {
                    return Err(error);
                }
                (Err(_), Some(begin)) => tx.rollback_to(begin)?,
                // Without changes it commits as one that only reads.
                (Err(_), None) if !access.has_changed => {}
                (Err(error), None) => return Err(error),
            }
            Ok(())
        });
        match (ticket, fault) {
            (Ok(ticket), _) => tickets.push_back(Some(ticket)),
            (Err(Error::Cancelled { .. }), Some(finding)) => return Err(EngineError::new(finding)),
            (Err(Error::Cancelled { .. }), None) => tickets.push_back(None),
            (Err(error), _) => return Err(EngineError::new(error)),
        }
        Ok(out)
    }
}

impl Worker for DatabaseWorker<'_> {
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Option<T::Out>> {
        if self.unacknowledged_max > 0 {
            return self.run_ahead(transaction);
        }
        let Self { engine, attempts, .. } = self;
        let mut fault = None;
        let outcome = engine.database.update(|tx| {
            *attempts += 1;
            fault = None;
            transaction.run(&mut DatabaseAccess { engine, tx, fault: &mut fault, has_changed: false })
        });
        match (outcome, fault) {
            (Ok(out), _) => Ok(Some(out)),
            (Err(Error::Cancelled { .. }), Some(finding)) => Err(EngineError::new(finding)),
            (Err(Error::Cancelled { .. }), None) => Ok(None),
            (Err(error), _) => Err(EngineError::new(error)),
        }
    }

    fn acknowledge(&mut self, count_max: usize) -> Result<usize> {
        while let Some(first) = self.tickets.front() {
            if self.tickets.len() <= count_max && first.as_ref().is_some_and(|ticket| !ticket.is_durable()) {
                break;
            }
            let first = self.tickets.pop_front().flatten();
            first.map_or(Ok(()), Ticket::durable).map_err(EngineError::new)?;
        }
        Ok(self.tickets.len())
    }

    fn attempts(&self) -> u64 {
        self.attempts
    }

    fn counters(&self) -> EngineCounters {
        counters_in(self.engine.database.pool().memory().domain(), &thread_counters())
    }
}

/// The operations of one attempt.
#[derive(Debug)]
pub struct DatabaseAccess<'a> {
    engine: &'a DatabaseTables,
    tx: &'a Tx,
    fault: &'a mut Option<String>,
    has_changed: bool,
}

/// The columns of a key.
fn columns(spec: &TableSpec, key: Key<'_>) -> Row {
    if spec.has_text { row![key.number, key.text] } else { row![key.number] }
}

/// A bound of a range: the text only where there is one, so that a number alone means all of its texts.
fn bound(key: Key<'_>) -> Row {
    if key.text.is_empty() { row![key.number] } else { row![key.number, key.text] }
}

impl DatabaseAccess<'_> {
    fn row(spec: &TableSpec, key: Key<'_>, row: &[u8]) -> Row {
        let mut columns = columns(spec, key);
        columns.0.push(Value::Bytes(row.into()));
        columns
    }
}

impl Access for DatabaseAccess<'_> {
    type Abort = Error;

    fn get(&mut self, table: Table, key: Key<'_>, row: &mut Vec<u8>) -> Result<bool, Error> {
        let (table, spec) = &self.engine.tables[table.0];
        row.clear();
        let Some(found) = table.get(self.tx, &columns(spec, key))? else { return Ok(false) };
        row.extend_from_slice(found.last().and_then(Value::as_bytes).unwrap_or_default());
        Ok(true)
    }

    fn put(&mut self, table: Table, key: Key<'_>, row: &[u8]) -> Result<(), Error> {
        self.has_changed = true;
        let (table, spec) = &self.engine.tables[table.0];
        table.put(self.tx, &Self::row(spec, key, row))
    }

    fn insert(&mut self, table: Table, key: Key<'_>, row: &[u8]) -> Result<(), Error> {
        self.has_changed = true;
        let (table, spec) = &self.engine.tables[table.0];
        table.insert(self.tx, &Self::row(spec, key, row))
    }

    fn delete(&mut self, table: Table, key: Key<'_>) -> Result<bool, Error> {
        self.has_changed = true;
        let (table, spec) = &self.engine.tables[table.0];
        table.delete(self.tx, &columns(spec, key))
    }

    fn scan(&mut self, table: Table, range: Range<Key<'_>>, order: Order, visit: &mut Visit<'_>) -> Result<(), Error> {
        let (table, _) = &self.engine.tables[table.0];
        let rows = table.range(self.tx, bound(range.start)..bound(range.end))?;
        let rows = if order == Order::Descending { rows.rev() } else { rows };
        for row in rows {
            let row = row?;
            let (number, text) = (row[0].as_u64().unwrap_or(0), row[1].as_text().unwrap_or_default());
            let bytes = row.last().and_then(Value::as_bytes).unwrap_or_default();
            if visit(Key { number, text }, bytes).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn cancel(&mut self) -> Error {
        Error::cancelled("the workload cancelled the transaction")
    }

    fn fault(&mut self, finding: String) -> Error {
        *self.fault = Some(finding);
        Error::cancelled("the workload found a fault")
    }
}
