//! The tables of an OLTP workload in SQLite, and in [`records`] the records of YCSB: write-ahead log, a connection and
//! prepared statements for each thread.
//!
//! ```text
//! numbers: k INTEGER PRIMARY KEY, v BLOB             texts: k INTEGER, t TEXT, v BLOB, PRIMARY KEY (k, t), no rowid
//! ```
//!
//! Durability: `sync` is `synchronous = FULL`, so each commit syncs the log. `process` is `synchronous = OFF`. The page
//! cache has 1 GiB. A transaction that will write says so first (`BEGIN IMMEDIATE`), as SQLite's manual recommends, and
//! waits for the one writer before it.

mod ffi;
pub(crate) mod records;

use std::ffi::{CStr, CString, c_int};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::ptr;

use anyhow::Result;
use lodestone_workload::engine::{self, EngineError, Environment};
use lodestone_workload::oltp::{Access, Key, OltpEngine, Order, Table, TableSpec, Transaction, Visit, Worker};

use crate::{Durability, environment};

/// How long a transaction waits for the writer before it.
const BUSY_MS: c_int = 60_000;

/// A database file.
pub(crate) struct SqliteTables {
    path: PathBuf,
    tables: &'static [TableSpec],
    durability: Durability,
    /// Keeps the log between connections.
    _first: Connection,
}

impl SqliteTables {
    /// Creates a database in `folder`.
    pub(crate) fn create(folder: &Path, durability: Durability, tables: &'static [TableSpec]) -> Result<Self> {
        let path = folder.join("tables.sqlite");
        let first = Connection::open(&path, durability)?;
        for TableSpec { name, has_text } in tables {
            first.execute(&match has_text {
                false => format!("CREATE TABLE {name} (k INTEGER PRIMARY KEY, v BLOB NOT NULL)"),
                true => format!(
                    "CREATE TABLE {name} (k INTEGER, t TEXT, v BLOB NOT NULL, PRIMARY KEY (k, t)) WITHOUT ROWID"
                ),
            })?;
        }
        Ok(Self { path, tables, durability, _first: first })
    }
}

impl OltpEngine for SqliteTables {
    type Worker<'e> = SqliteWorker;

    fn name(&self) -> String {
        "sqlite".into()
    }

    fn worker(&self) -> engine::Result<SqliteWorker> {
        SqliteWorker::open(self, self.durability)
    }

    fn load_worker(&self) -> engine::Result<SqliteWorker> {
        SqliteWorker::open(self, Durability::Process)
    }

    fn finish_load(&self) -> engine::Result<()> {
        Connection::open(&self.path, Durability::Sync)?.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    }

    fn environment(&self) -> Environment {
        environment(self.durability, self.path.parent().unwrap_or(&self.path))
    }
}

/// A connection. One thread at a time uses it.
struct Connection(*mut ffi::Connection);

#[expect(unsafe_code, reason = "the handle of a C library")]
// SAFETY: a connection may move between threads.
unsafe impl Send for Connection {}
#[expect(unsafe_code, reason = "the handle of a C library")]
// SAFETY: the one connection that threads share, that of the engine, is not used but to be closed.
unsafe impl Sync for Connection {}

impl Connection {
    #[expect(unsafe_code, reason = "C library")]
    fn open(path: &Path, durability: Durability) -> engine::Result<Self> {
        let name = CString::new(path.as_os_str().as_encoded_bytes()).map_err(EngineError::new)?;
        let mut handle = ptr::null_mut();
        // SAFETY: the name is alive. The handle is closed by the drop, after a failed open as well.
        let code = unsafe { ffi::sqlite3_open_v2(name.as_ptr(), &raw mut handle, ffi::OPEN_FLAGS, ptr::null()) };
        let connection = Self(handle);
        connection.expect(code, ffi::OK)?;
        // SAFETY: the connection is open.
        unsafe { ffi::sqlite3_busy_timeout(handle, BUSY_MS) };
        let synchronous = if durability == Durability::Sync { "FULL" } else { "OFF" };
        connection.execute(&format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}; PRAGMA cache_size = -1048576"
        ))?;
        Ok(connection)
    }

    #[expect(unsafe_code, reason = "C library")]
    fn expect(&self, code: c_int, expected: c_int) -> engine::Result<()> {
        if code == expected {
            return Ok(());
        }
        // SAFETY: the message is terminated and alive until the next call; it is copied.
        let text = unsafe { CStr::from_ptr(ffi::sqlite3_errmsg(self.0)) }.to_string_lossy().into_owned();
        Err(EngineError::new(format!("sqlite: {text} ({code})")))
    }

    #[expect(unsafe_code, reason = "C library")]
    fn execute(&self, sql: &str) -> engine::Result<()> {
        let sql = CString::new(sql).map_err(EngineError::new)?;
        // SAFETY: connection and text are alive.
        let code = unsafe { ffi::sqlite3_exec(self.0, sql.as_ptr(), ptr::null(), ptr::null_mut(), ptr::null_mut()) };
        self.expect(code, ffi::OK)
    }

    /// Rows that the last statement changed.
    #[expect(unsafe_code, reason = "C library")]
    fn changes(&self) -> c_int {
        // SAFETY: the connection is alive.
        unsafe { ffi::sqlite3_changes(self.0) }
    }

    #[expect(unsafe_code, reason = "C library")]
    fn prepare(&self, sql: &str) -> engine::Result<Statement> {
        let sql = CString::new(sql).map_err(EngineError::new)?;
        let mut handle = ptr::null_mut();
        // SAFETY: connection and text are alive.
        let code = unsafe { ffi::sqlite3_prepare_v2(self.0, sql.as_ptr(), -1, &raw mut handle, ptr::null_mut()) };
        self.expect(code, ffi::OK)?;
        Ok(Statement(handle))
    }
}

impl Drop for Connection {
    #[expect(unsafe_code, reason = "C library")]
    fn drop(&mut self) {
        // SAFETY: closed once. Statements that are left keep it alive.
        unsafe { ffi::sqlite3_close_v2(self.0) };
    }
}

/// A prepared statement.
struct Statement(*mut ffi::Statement);

impl Drop for Statement {
    #[expect(unsafe_code, reason = "C library")]
    fn drop(&mut self) {
        // SAFETY: finalized once.
        unsafe { ffi::sqlite3_finalize(self.0) };
    }
}

impl Statement {
    /// Binds number and text from parameter `place` on. The text must live until the statement is reset.
    #[expect(unsafe_code, reason = "C library")]
    fn bind_key(&self, place: c_int, key: Key<'_>, has_text: bool) {
        // SAFETY: the statement is alive and reset, and the caller keeps the text.
        unsafe {
            ffi::sqlite3_bind_int64(self.0, place, key.number.cast_signed());
            if has_text {
                let (text, bytes) = (key.text.as_ptr().cast(), length(key.text.as_bytes()));
                ffi::sqlite3_bind_text(self.0, place + 1, text, bytes, ptr::null());
            }
        }
    }

    #[expect(unsafe_code, reason = "C library")]
    fn bind_number(&self, place: c_int, number: i64) {
        // SAFETY: the statement is alive and reset.
        unsafe { ffi::sqlite3_bind_int64(self.0, place, number) };
    }

    /// Binds a row, which must live until the statement is reset.
    #[expect(unsafe_code, reason = "C library")]
    fn bind_row(&self, place: c_int, row: &[u8]) {
        // SAFETY: as above. An empty slice has a pointer that is not null, so the blob is empty and not null.
        unsafe { ffi::sqlite3_bind_blob(self.0, place, row.as_ptr().cast(), length(row), ptr::null()) };
    }

    #[expect(unsafe_code, reason = "C library")]
    fn step(&self) -> c_int {
        // SAFETY: the statement is alive.
        unsafe { ffi::sqlite3_step(self.0) }
    }

    #[expect(unsafe_code, reason = "C library")]
    fn reset(&self) {
        // SAFETY: the statement is alive. The code repeats that of the step.
        unsafe { ffi::sqlite3_reset(self.0) };
    }

    /// Calls `read` with the bytes of a column of the row under the statement.
    #[expect(unsafe_code, reason = "C library")]
    fn column<R>(&self, column: c_int, is_text: bool, read: impl FnOnce(&[u8]) -> R) -> R {
        // SAFETY: the bytes are alive until the statement moves on, which `read` cannot do. Null goes with length 0.
        unsafe {
            let bytes = match is_text {
                true => ffi::sqlite3_column_text(self.0, column).cast::<u8>(),
                false => ffi::sqlite3_column_blob(self.0, column).cast::<u8>(),
            };
            let length = usize::try_from(ffi::sqlite3_column_bytes(self.0, column)).unwrap_or(0);
            if bytes.is_null() { read(&[]) } else { read(std::slice::from_raw_parts(bytes, length)) }
        }
    }

    #[expect(unsafe_code, reason = "C library")]
    fn number(&self, column: c_int) -> u64 {
        // SAFETY: the statement is at a row.
        unsafe { ffi::sqlite3_column_int64(self.0, column) }.cast_unsigned()
    }
}

fn length(bytes: &[u8]) -> c_int {
    c_int::try_from(bytes.len()).unwrap_or(c_int::MAX)
}

/// The statements of a table.
struct Statements {
    has_text: bool,
    get: Statement,
    put: Statement,
    insert: Statement,
    delete: Statement,
    ascending: Statement,
    descending: Statement,
}

impl Statements {
    fn prepare(connection: &Connection, TableSpec { name, has_text }: &TableSpec) -> engine::Result<Self> {
        let (key, columns, values, range, text, order) = match has_text {
            false => ("k = ?1", "k, v", "?1, ?2", "k >= ?1 AND k < ?2", "''", ["k", "k DESC"]),
            true => {
                let range = "(k, t) >= (?1, ?2) AND (k, t) < (?3, ?4)";
                ("k = ?1 AND t = ?2", "k, t, v", "?1, ?2, ?3", range, "t", ["k, t", "k DESC, t DESC"])
            }
        };
        let scan =
            |order| connection.prepare(&format!("SELECT k, v, {text} FROM {name} WHERE {range} ORDER BY {order}"));
        Ok(Self {
            has_text: *has_text,
            get: connection.prepare(&format!("SELECT v FROM {name} WHERE {key}"))?,
            put: connection.prepare(&format!("INSERT OR REPLACE INTO {name} ({columns}) VALUES ({values})"))?,
            insert: connection.prepare(&format!("INSERT INTO {name} ({columns}) VALUES ({values})"))?,
            delete: connection.prepare(&format!("DELETE FROM {name} WHERE {key}"))?,
            ascending: scan(order[0])?,
            descending: scan(order[1])?,
        })
    }
}

/// One thread's access. The statements are dropped before the connection.
pub(crate) struct SqliteWorker {
    tables: Vec<Statements>,
    begin: Statement,
    begin_to_write: Statement,
    commit: Statement,
    rollback: Statement,
    connection: Connection,
    attempts: u64,
}

/// How an attempt ended without a commit.
pub(crate) enum Stop {
    /// Another attempt may succeed.
    Conflict,
    Cancelled,
    Error(EngineError),
}

impl SqliteWorker {
    fn open(engine: &SqliteTables, durability: Durability) -> engine::Result<Self> {
        let connection = Connection::open(&engine.path, durability)?;
        Ok(Self {
            tables: engine
                .tables
                .iter()
                .map(|spec| Statements::prepare(&connection, spec))
                .collect::<Result<_, _>>()?,
            begin: connection.prepare("BEGIN")?,
            begin_to_write: connection.prepare("BEGIN IMMEDIATE")?,
            commit: connection.prepare("COMMIT")?,
            rollback: connection.prepare("ROLLBACK")?,
            connection,
            attempts: 0,
        })
    }

    /// Runs a statement that returns no rows.
    fn execute(&self, statement: &Statement) -> Result<(), Stop> {
        let code = statement.step();
        let outcome = match code {
            ffi::BUSY => Err(Stop::Conflict),
            code => self.connection.expect(code, ffi::DONE).map_err(Stop::Error),
        };
        statement.reset();
        outcome
    }
}

impl Worker for SqliteWorker {
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> engine::Result<Option<T::Out>> {
        loop {
            self.attempts += 1;
            let begin = if T::IS_READ_ONLY { &self.begin } else { &self.begin_to_write };
            let began = self.execute(begin);
            let has_begun = began.is_ok();
            let worker = &*self;
            let outcome = began.and_then(|()| {
                let out = transaction.run(&mut SqliteAccess { worker })?;
                worker.execute(&worker.commit)?;
                Ok(out)
            });
            if outcome.is_err() && has_begun {
                // A failed commit may have ended the transaction already; then this fails and changes nothing.
                let _ = self.execute(&self.rollback);
            }
            match outcome {
                Ok(out) => return Ok(Some(out)),
                Err(Stop::Cancelled) => return Ok(None),
                Err(Stop::Error(error)) => return Err(error),
                Err(Stop::Conflict) => {}
            }
        }
    }

    fn attempts(&self) -> u64 {
        self.attempts
    }
}

/// The operations of one attempt.
pub(crate) struct SqliteAccess<'w> {
    worker: &'w SqliteWorker,
}

impl SqliteAccess<'_> {
    fn write(&self, statement: &Statement, key: Key<'_>, row: &[u8], has_text: bool) -> Result<(), Stop> {
        statement.bind_key(1, key, has_text);
        statement.bind_row(if has_text { 3 } else { 2 }, row);
        self.worker.execute(statement)
    }
}

impl Access for SqliteAccess<'_> {
    type Abort = Stop;

    fn get(&mut self, table: Table, key: Key<'_>, row: &mut Vec<u8>) -> Result<bool, Stop> {
        let Statements { has_text, get, .. } = &self.worker.tables[table.0];
        row.clear();
        get.bind_key(1, key, *has_text);
        let outcome = match get.step() {
            ffi::ROW => {
                get.column(0, false, |bytes| row.extend_from_slice(bytes));
                Ok(true)
            }
            ffi::BUSY => Err(Stop::Conflict),
            code => self.worker.connection.expect(code, ffi::DONE).map(|()| false).map_err(Stop::Error),
        };
        get.reset();
        outcome
    }

    fn put(&mut self, table: Table, key: Key<'_>, row: &[u8]) -> Result<(), Stop> {
        let Statements { has_text, put, .. } = &self.worker.tables[table.0];
        self.write(put, key, row, *has_text)
    }

    fn insert(&mut self, table: Table, key: Key<'_>, row: &[u8]) -> Result<(), Stop> {
        let Statements { has_text, insert, .. } = &self.worker.tables[table.0];
        self.write(insert, key, row, *has_text)
    }

    fn delete(&mut self, table: Table, key: Key<'_>) -> Result<bool, Stop> {
        let Statements { has_text, delete, .. } = &self.worker.tables[table.0];
        delete.bind_key(1, key, *has_text);
        self.worker.execute(delete)?;
        Ok(self.worker.connection.changes() > 0)
    }

    fn scan(&mut self, table: Table, range: Range<Key<'_>>, order: Order, visit: &mut Visit<'_>) -> Result<(), Stop> {
        let Statements { has_text, ascending, descending, .. } = &self.worker.tables[table.0];
        let statement = if order == Order::Ascending { ascending } else { descending };
        statement.bind_key(1, range.start, *has_text);
        statement.bind_key(if *has_text { 3 } else { 2 }, range.end, *has_text);
        let outcome = loop {
            match statement.step() {
                ffi::ROW => {
                    let number = statement.number(0);
                    let text = statement.column(2, true, |text| String::from_utf8_lossy(text).into_owned());
                    if statement.column(1, false, |row| visit(Key { number, text: &text }, row)).is_break() {
                        break Ok(());
                    }
                }
                ffi::BUSY => break Err(Stop::Conflict),
                code => break self.worker.connection.expect(code, ffi::DONE).map_err(Stop::Error),
            }
        };
        statement.reset();
        outcome
    }

    fn cancel(&mut self) -> Stop {
        Stop::Cancelled
    }

    fn fault(&mut self, finding: String) -> Stop {
        Stop::Error(EngineError::new(finding))
    }
}
