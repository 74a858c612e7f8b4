//! LMDB through heed.
//!
//! Durability: `sync` opens with no flags, so each commit syncs data and meta page before it returns. `process` is
//! LMDB's best mode, `MDB_NOSYNC | MDB_WRITEMAP`: a commit is in the shared mapping, which survives the death of the
//! process but not power loss.
//!
//! Every operation is a separate transaction. A read-modify-write is one write transaction.

use std::ops::Bound;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions};
use lodestone_workload::engine::{self, Engine, EngineError, Environment, Footprint, Session};

use crate::{Durability, environment, folder_bytes};

type Map = Database<Bytes, Bytes>;

/// An open environment with one map.
pub(crate) struct Lmdb {
    env: Env,
    map: Map,
    durability: Durability,
    folder: PathBuf,
}

impl Lmdb {
    /// Creates a map in `folder`, or opens the one there, that may grow to `map_bytes`. With `is_bounded` it is larger
    /// than the memory for it: the kernel is asked not to read ahead, as the documentation of LMDB advises for that.
    pub(crate) fn create(folder: &Path, durability: Durability, map_bytes: usize, is_bounded: bool) -> Result<Self> {
        let mut options = EnvOpenOptions::new();
        options.map_size(map_bytes).max_readers(1_024);
        let fast =
            if durability == Durability::Process { EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP } else { EnvFlags::empty() };
        let flags = if is_bounded { fast | EnvFlags::NO_READ_AHEAD } else { fast };
        #[expect(unsafe_code, reason = "heed asks for care with these flags")]
        // SAFETY: only a throw-away file loses crash safety, and no other code writes to the mapping.
        unsafe {
            options.flags(flags);
        }
        #[expect(unsafe_code, reason = "heed maps a file that others could change")]
        // SAFETY: the folder is fresh and ours; it is opened once.
        let env = unsafe { options.open(folder) };
        let env = env.with_context(|| format!("lmdb cannot open {}", folder.display()))?;
        let mut txn = env.write_txn()?;
        let map = env.create_database(&mut txn, None)?;
        txn.commit()?;
        Ok(Self { env, map, durability, folder: folder.into() })
    }
}

impl Engine for Lmdb {
    type Session<'a> = LmdbSession<'a>;

    fn name(&self) -> &str {
        "lmdb"
    }

    fn session(&self) -> engine::Result<LmdbSession<'_>> {
        Ok(LmdbSession { engine: self, batch: None })
    }

    fn load_session(&self) -> engine::Result<LmdbSession<'_>> {
        Ok(LmdbSession { engine: self, batch: Some(Vec::new()) })
    }

    fn finish_load(&self) -> engine::Result<()> {
        self.env.force_sync().map_err(EngineError::new)
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

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// One thread's access. LMDB keeps its reader slot in thread-local storage.
pub(crate) struct LmdbSession<'a> {
    engine: &'a Lmdb,
    /// Rows of a load that wait for their common commit.
    batch: Option<Rows>,
}

impl LmdbSession<'_> {
    fn commit_rows(&self, rows: &Rows) -> heed::Result<()> {
        let mut txn = self.engine.env.write_txn()?;
        for (key, value) in rows {
            self.engine.map.put(&mut txn, key, value)?;
        }
        txn.commit()
    }

    fn put(&self, key: &[u8], value: &[u8]) -> heed::Result<()> {
        let mut txn = self.engine.env.write_txn()?;
        self.engine.map.put(&mut txn, key, value)?;
        txn.commit()
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> heed::Result<bool> {
        value.clear();
        let txn = self.engine.env.read_txn()?;
        let Some(found) = self.engine.map.get(&txn, key)? else {
            return Ok(false);
        };
        value.extend_from_slice(found);
        Ok(true)
    }

    fn count_range(&self, start: &[u8], count: usize) -> heed::Result<usize> {
        let txn = self.engine.env.read_txn()?;
        let mut seen = 0;
        let range = (Bound::Included(start), Bound::Unbounded);
        for row in self.engine.map.range(&txn, &range)?.take(count) {
            let (key, value) = row?;
            crate::touch(key);
            crate::touch(value);
            seen += 1;
        }
        Ok(seen)
    }

    fn delete(&self, key: &[u8]) -> heed::Result<bool> {
        let mut txn = self.engine.env.write_txn()?;
        let found = self.engine.map.delete(&mut txn, key)?;
        txn.commit()?;
        Ok(found)
    }

    fn change(&self, key: &[u8], value: &mut Vec<u8>, change: &mut dyn FnMut(&mut Vec<u8>)) -> heed::Result<bool> {
        let mut txn = self.engine.env.write_txn()?;
        value.clear();
        let Some(found) = self.engine.map.get(&txn, key)? else {
            return Ok(false);
        };
        value.extend_from_slice(found);
        change(value);
        self.engine.map.put(&mut txn, key, value)?;
        txn.commit()?;
        Ok(true)
    }
}

impl Session for LmdbSession<'_> {
    fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> engine::Result<bool> {
        self.get(key, value).map_err(EngineError::new)
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> engine::Result<()> {
        let Some(mut rows) = self.batch.take() else {
            return self.put(key, value).map_err(EngineError::new);
        };
        rows.push((key.into(), value.into()));
        if rows.len() >= LOAD_BATCH {
            self.commit_rows(&rows).map_err(EngineError::new)?;
            rows.clear();
        }
        self.batch = Some(rows);
        Ok(())
    }

    fn update(&mut self, key: &[u8], value: &[u8]) -> engine::Result<bool> {
        self.put(key, value).map(|()| true).map_err(EngineError::new)
    }

    fn scan(&mut self, start: &[u8], count: usize) -> engine::Result<usize> {
        self.count_range(start, count).map_err(EngineError::new)
    }

    fn remove(&mut self, key: &[u8]) -> engine::Result<bool> {
        self.delete(key).map_err(EngineError::new)
    }

    fn read_modify_write(
        &mut self,
        key: &[u8],
        value: &mut Vec<u8>,
        change: &mut dyn FnMut(&mut Vec<u8>),
    ) -> engine::Result<bool> {
        self.change(key, value, change).map_err(EngineError::new)
    }
}

impl Drop for LmdbSession<'_> {
    fn drop(&mut self) {
        if let Some(rows) = self.batch.take()
            && !rows.is_empty()
            && !std::thread::panicking()
        {
            // A load that loses rows must not look like a fast one.
            self.commit_rows(&rows).unwrap_or_else(|error| panic!("lmdb: the last rows of the load: {error}"));
        }
    }
}
