//! The records of YCSB in a table of a database: the columns `k bytes` and `v bytes`. Each operation is a transaction.

use lodestone_engine::{Database, Schema, Table, Ticket, Tx, Type, Value, row};
use lodestone_index_bench::lodestone::counters_in;
use lodestone_pmem::process_counters;
use lodestone_workload::engine::{Engine, EngineCounters, EngineError, Environment, Footprint, Result, Session};

use crate::environment;

/// Records in a table.
///
/// ```
/// use lodestone_engine::{Database, DatabaseOptions};
/// use lodestone_engine_bench::records::DatabaseRecords;
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_workload::ycsb::{Runner, Spec, Workload};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("records.pool");
/// let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let options = DatabaseOptions { pool, log_bytes: 4 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
/// let records = DatabaseRecords::open(Database::open_with(&path, &options)?)?;
/// let spec = Spec { records: 500, operations: 500, ..Spec::new(Workload::F) };
/// Runner::new(&records, &spec).load()?;
/// assert_eq!(Runner::new(&records, &spec).verify_reads(true).run()?.missing, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DatabaseRecords {
    database: Database,
    table: Table,
}

impl DatabaseRecords {
    /// Makes or opens the table in `database`.
    ///
    /// # Errors
    /// Those of the database.
    pub fn open(database: Database) -> Result<Self> {
        let schema = Schema::new("records").column("k", Type::Bytes).column("v", Type::Bytes).key(["k"]);
        let table = database.create_table(&schema).map_err(EngineError::new)?;
        Ok(Self { database, table })
    }

    /// Whether a read of the record with this key would read nothing from the pool now.
    ///
    /// # Errors
    /// Those of the table.
    pub fn is_in_memory(&self, key: &[u8]) -> Result<bool> {
        self.table.is_in_memory(&row![key]).map_err(EngineError::new)
    }

    /// The database.
    #[must_use]
    pub fn database(&self) -> &Database {
        &self.database
    }
}

impl Engine for DatabaseRecords {
    type Session<'a> = DatabaseSession<'a>;

    fn name(&self) -> &str {
        "lodestone-db"
    }

    fn session(&self) -> Result<DatabaseSession<'_>> {
        Ok(DatabaseSession { records: self, waits: true })
    }

    /// Its transactions are ordered, and durable with the checkpoint of [`finish_load`](Engine::finish_load).
    fn load_session(&self) -> Result<DatabaseSession<'_>> {
        Ok(DatabaseSession { records: self, waits: false })
    }

    fn finish_load(&self) -> Result<()> {
        self.database.checkpoint().map(drop).map_err(EngineError::new)
    }

    fn environment(&self) -> Environment {
        environment(&self.database)
    }

    fn counters(&self) -> EngineCounters {
        counters_in(self.database.pool().memory().domain(), &process_counters())
    }

    fn footprint(&self) -> Footprint {
        let (pages, log) = (self.database.page_stats(), self.database.log_stats());
        let bytes = (pages.pages - pages.pages_free) * pages.page_bytes
            + (log.segments - log.segments_free) * log.segment_bytes;
        Footprint { pm_bytes: Some(bytes), dram_bytes: None }
    }
}

/// A thread's session.
#[derive(Debug)]
pub struct DatabaseSession<'a> {
    records: &'a DatabaseRecords,
    /// Whether a put returns when it is durable.
    waits: bool,
}

impl DatabaseSession<'_> {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let DatabaseRecords { database, table } = self.records;
        let row = row![key, value];
        let put = |tx: &Tx| table.put(tx, &row);
        let done = if self.waits { database.update(put) } else { database.update_async(put).map(Ticket::into_value) };
        done.map_err(EngineError::new)
    }
}

impl Session for DatabaseSession<'_> {
    fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let DatabaseRecords { database, table } = self.records;
        let key = row![key];
        let found = database.update(|tx| table.get(tx, &key)).map_err(EngineError::new)?;
        value.clear();
        let bytes = found.as_ref().and_then(|row| row[1].as_bytes());
        bytes.inspect(|bytes| value.extend_from_slice(bytes));
        Ok(bytes.is_some())
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put(key, value)
    }

    /// A blind write, as the peers do it. A missing record is made.
    fn update(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.put(key, value).map(|()| true)
    }

    fn scan(&mut self, start: &[u8], count: usize) -> Result<usize> {
        let DatabaseRecords { database, table } = self.records;
        let start = row![start];
        let seen = database.update(|tx| {
            let mut seen = 0;
            for row in table.range(tx, start.clone()..)?.take(count) {
                let row = row?;
                let columns = row.iter().filter_map(Value::as_bytes);
                std::hint::black_box(columns.flatten().fold(0_u8, |sum, byte| sum ^ byte));
                seen += 1;
            }
            Ok(seen)
        });
        seen.map_err(EngineError::new)
    }

    fn remove(&mut self, key: &[u8]) -> Result<bool> {
        let DatabaseRecords { database, table } = self.records;
        let key = row![key];
        database.update(|tx| table.delete(tx, &key)).map_err(EngineError::new)
    }

    fn read_modify_write(
        &mut self,
        key: &[u8],
        value: &mut Vec<u8>,
        change: &mut dyn FnMut(&mut Vec<u8>),
    ) -> Result<bool> {
        let DatabaseRecords { database, table } = self.records;
        let key = row![key];
        let done = database.update(|tx| {
            let Some(found) = table.get(tx, &key)? else { return Ok(false) };
            value.clear();
            value.extend_from_slice(found[1].as_bytes().unwrap_or_default());
            change(value);
            table.put(tx, &row![key[0].clone(), &value[..]])?;
            Ok(true)
        });
        done.map_err(EngineError::new)
    }
}
