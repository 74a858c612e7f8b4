//! redb: a copy-on-write B-tree in one file.
//!
//! Durability: `sync` is the default of redb, and each commit syncs before it returns. `process` commits without a sync
//! (`Durability::None`). Until the next durable commit this promises less than survival of the process's death, so the
//! figure is an upper bound.
//!
//! Every operation is a separate transaction. There is one writer at a time.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use lodestone_workload::engine::{self, Engine, EngineError, Environment, Footprint, Session};
use redb::{Database, ReadableDatabase, TableDefinition};

use crate::{Durability, environment, folder_bytes};

const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");

/// An open database with one table.
pub(crate) struct Redb {
    database: Database,
    durability: Durability,
    folder: PathBuf,
}

/// Any of redb's errors.
fn failed(error: impl Into<redb::Error>) -> EngineError {
    EngineError::new(error.into())
}

impl Redb {
    /// Creates a database in `folder`.
    pub(crate) fn create(folder: &Path, durability: Durability) -> Result<Self> {
        let path = folder.join("records.redb");
        let database = Database::create(&path).with_context(|| format!("redb cannot create {}", path.display()))?;
        let made = Self { database, durability, folder: folder.into() };
        made.write(|_| Ok(()))?;
        Ok(made)
    }

    fn write<T>(
        &self,
        change: impl FnOnce(&mut redb::Table<'_, &'static [u8], &'static [u8]>) -> engine::Result<T>,
    ) -> engine::Result<T> {
        let mut transaction = self.database.begin_write().map_err(failed)?;
        if self.durability == Durability::Process {
            transaction.set_durability(redb::Durability::None).map_err(failed)?;
        }
        let out = change(&mut transaction.open_table(TABLE).map_err(failed)?)?;
        transaction.commit().map_err(failed)?;
        Ok(out)
    }

    fn table(&self) -> engine::Result<redb::ReadOnlyTable<&'static [u8], &'static [u8]>> {
        let transaction = self.database.begin_read().map_err(failed)?;
        transaction.open_table(TABLE).map_err(failed)
    }
}

impl Engine for Redb {
    type Session<'a> = RedbSession<'a>;

    fn name(&self) -> &str {
        "redb"
    }

    fn session(&self) -> engine::Result<RedbSession<'_>> {
        Ok(RedbSession { engine: self, batch: None })
    }

    fn load_session(&self) -> engine::Result<RedbSession<'_>> {
        Ok(RedbSession { engine: self, batch: Some(Vec::new()) })
    }

    fn environment(&self) -> Environment {
        environment(self.durability, &self.folder)
    }

    fn footprint(&self) -> Footprint {
        Footprint { pm_bytes: folder_bytes(&self.folder), dram_bytes: None }
    }
}

/// Records that a load session commits together.
const LOAD_BATCH: usize = 1_000;

/// One thread's access.
pub(crate) struct RedbSession<'a> {
    engine: &'a Redb,
    /// Rows of a load that wait for their common commit.
    batch: Option<Vec<(Vec<u8>, Vec<u8>)>>,
}

impl RedbSession<'_> {
    fn put(&self, rows: &[(Vec<u8>, Vec<u8>)]) -> engine::Result<bool> {
        self.engine.write(|table| {
            let mut existed = false;
            for (key, value) in rows {
                existed = table.insert(key.as_slice(), value.as_slice()).map_err(failed)?.is_some();
            }
            Ok(existed)
        })
    }
}

impl Session for RedbSession<'_> {
    fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> engine::Result<bool> {
        value.clear();
        let table = self.engine.table()?;
        let found = table.get(key).map_err(failed)?;
        Ok(found.is_some_and(|found| {
            value.extend_from_slice(found.value());
            true
        }))
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> engine::Result<()> {
        let row = (key.to_vec(), value.to_vec());
        let Some(mut rows) = self.batch.take() else { return self.put(&[row]).map(|_| ()) };
        rows.push(row);
        if rows.len() >= LOAD_BATCH {
            self.put(&rows)?;
            rows.clear();
        }
        self.batch = Some(rows);
        Ok(())
    }

    /// A blind write, as in the other peers.
    fn update(&mut self, key: &[u8], value: &[u8]) -> engine::Result<bool> {
        self.put(&[(key.to_vec(), value.to_vec())]).map(|_| true)
    }

    fn scan(&mut self, start: &[u8], count: usize) -> engine::Result<usize> {
        let table = self.engine.table()?;
        let mut seen = 0;
        for row in table.range(start..).map_err(failed)?.take(count) {
            let (key, value) = row.map_err(failed)?;
            crate::touch(key.value());
            crate::touch(value.value());
            seen += 1;
        }
        Ok(seen)
    }

    fn remove(&mut self, key: &[u8]) -> engine::Result<bool> {
        self.engine.write(|table| Ok(table.remove(key).map_err(failed)?.is_some()))
    }
}

impl Drop for RedbSession<'_> {
    fn drop(&mut self) {
        if let Some(rows) = self.batch.take()
            && !rows.is_empty()
            && !std::thread::panicking()
        {
            // A load that loses rows must not look like a fast one.
            self.put(&rows).unwrap_or_else(|error| panic!("redb: the last rows of the load: {error}"));
        }
    }
}
