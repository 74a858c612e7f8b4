//! The records of YCSB in SQLite, with the log, the connections and the durability of the tables of transactions.
//!
//! ```text
//! records: k BLOB PRIMARY KEY, v BLOB, no rowid       one tree, ordered by the bytes of the key
//! ```
//!
//! Each operation is a transaction, with a prepared statement. A load commits 1,000 records together.

use std::path::{Path, PathBuf};

use anyhow::Result;
use lodestone_workload::engine::{self, Engine, Environment, Footprint, Session};

use super::{Connection, Statement, ffi};
use crate::{Durability, environment, folder_bytes};

/// Records that a load session commits together.
const LOAD_BATCH: usize = 1_000;

/// A database file with one table.
pub(crate) struct SqliteRecords {
    path: PathBuf,
    folder: PathBuf,
    durability: Durability,
    /// Keeps the log between connections.
    _first: Connection,
}

impl SqliteRecords {
    /// Creates a database in `folder`.
    pub(crate) fn create(folder: &Path, durability: Durability) -> Result<Self> {
        let path = folder.join("records.sqlite");
        let first = Connection::open(&path, durability)?;
        first.execute("CREATE TABLE records (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID")?;
        Ok(Self { path, folder: folder.into(), durability, _first: first })
    }
}

impl Engine for SqliteRecords {
    type Session<'a> = SqliteSession;

    fn name(&self) -> &str {
        "sqlite"
    }

    fn session(&self) -> engine::Result<SqliteSession> {
        SqliteSession::open(&self.path, self.durability, None)
    }

    fn load_session(&self) -> engine::Result<SqliteSession> {
        SqliteSession::open(&self.path, Durability::Process, Some(0))
    }

    fn finish_load(&self) -> engine::Result<()> {
        Connection::open(&self.path, Durability::Sync)?.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    }

    fn environment(&self) -> Environment {
        environment(self.durability, &self.folder)
    }

    fn footprint(&self) -> Footprint {
        Footprint { pm_bytes: folder_bytes(&self.folder), dram_bytes: None }
    }
}

/// One thread's access. The statements are dropped before the connection.
pub(crate) struct SqliteSession {
    get: Statement,
    put: Statement,
    update: Statement,
    delete: Statement,
    scan: Statement,
    begin: Statement,
    commit: Statement,
    rollback: Statement,
    connection: Connection,
    /// Records of a load that are not committed.
    uncommitted: Option<usize>,
}

impl SqliteSession {
    fn open(path: &Path, durability: Durability, uncommitted: Option<usize>) -> engine::Result<Self> {
        let connection = Connection::open(path, durability)?;
        Ok(Self {
            get: connection.prepare("SELECT v FROM records WHERE k = ?1")?,
            put: connection.prepare("INSERT OR REPLACE INTO records (k, v) VALUES (?1, ?2)")?,
            update: connection.prepare("UPDATE records SET v = ?2 WHERE k = ?1")?,
            delete: connection.prepare("DELETE FROM records WHERE k = ?1")?,
            scan: connection.prepare("SELECT k, v FROM records WHERE k >= ?1 ORDER BY k LIMIT ?2")?,
            begin: connection.prepare("BEGIN IMMEDIATE")?,
            commit: connection.prepare("COMMIT")?,
            rollback: connection.prepare("ROLLBACK")?,
            connection,
            uncommitted,
        })
    }

    /// Runs a statement that returns no rows. A statement that finds the writer's place taken too long is tried again.
    fn execute(&self, statement: &Statement) -> engine::Result<()> {
        loop {
            let code = statement.step();
            let outcome = self.connection.expect(code, ffi::DONE);
            statement.reset();
            if code != ffi::BUSY {
                return outcome;
            }
        }
    }

    fn write(&self, statement: &Statement, key: &[u8], value: &[u8]) -> engine::Result<bool> {
        statement.bind_row(1, key);
        statement.bind_row(2, value);
        self.execute(statement)?;
        Ok(self.connection.changes() > 0)
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> engine::Result<bool> {
        value.clear();
        self.get.bind_row(1, key);
        let code = self.get.step();
        let outcome = match code {
            ffi::ROW => {
                self.get.column(0, false, |bytes| value.extend_from_slice(bytes));
                Ok(true)
            }
            code => self.connection.expect(code, ffi::DONE).map(|()| false),
        };
        self.get.reset();
        outcome
    }

    /// Commits the records of a load.
    fn commit_load(&mut self) -> engine::Result<()> {
        if let Some(1..) = self.uncommitted {
            self.execute(&self.commit)?;
            self.uncommitted = Some(0);
        }
        Ok(())
    }
}

impl Session for SqliteSession {
    fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> engine::Result<bool> {
        self.get(key, value)
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> engine::Result<()> {
        if self.uncommitted == Some(0) {
            self.execute(&self.begin)?;
        }
        self.write(&self.put, key, value)?;
        self.uncommitted = self.uncommitted.map(|count| count + 1);
        if self.uncommitted >= Some(LOAD_BATCH) { self.commit_load() } else { Ok(()) }
    }

    fn update(&mut self, key: &[u8], value: &[u8]) -> engine::Result<bool> {
        self.write(&self.update, key, value)
    }

    fn scan(&mut self, start: &[u8], count: usize) -> engine::Result<usize> {
        self.scan.bind_row(1, start);
        self.scan.bind_number(2, i64::try_from(count).unwrap_or(i64::MAX));
        let mut seen = 0;
        let outcome = loop {
            match self.scan.step() {
                ffi::ROW => {
                    self.scan.column(0, false, crate::touch);
                    self.scan.column(1, false, crate::touch);
                    seen += 1;
                }
                code => break self.connection.expect(code, ffi::DONE),
            }
        };
        self.scan.reset();
        outcome.map(|()| seen)
    }

    fn remove(&mut self, key: &[u8]) -> engine::Result<bool> {
        self.delete.bind_row(1, key);
        self.execute(&self.delete)?;
        Ok(self.connection.changes() > 0)
    }

    fn read_modify_write(
        &mut self,
        key: &[u8],
        value: &mut Vec<u8>,
        change: &mut dyn FnMut(&mut Vec<u8>),
    ) -> engine::Result<bool> {
        self.execute(&self.begin)?;
        let outcome = self.get(key, value).and_then(|is_there| {
            if is_there {
                change(value);
                self.write(&self.update, key, value)?;
            }
            Ok(is_there)
        });
        self.execute(if outcome.is_ok() { &self.commit } else { &self.rollback })?;
        outcome
    }
}

impl Drop for SqliteSession {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // A load that loses rows must not look like a fast one.
            self.commit_load().unwrap_or_else(|error| panic!("sqlite: the last rows of the load: {error}"));
        }
    }
}
