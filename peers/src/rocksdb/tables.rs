//! The tables of an OLTP workload in RocksDB's `TransactionDB`: pessimistic locks, one key space.
//!
//! ```text
//! key: table 1, number 8 (big-endian), text
//! ```
//!
//! A row that a transaction will change is read with an exclusive lock (`GetForUpdate`). Other reads and scans take no
//! lock, as usual with RocksDB: they see the newest committed rows, so this is weaker than serializable. An insert
//! locks its key and looks for a row. A transaction that meets a deadlock or waits too long runs again.
//!
//! Options are those of the records (see the module above). A synced commit is one write of the log.

use std::ffi::CString;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::ptr;

use anyhow::{Context, Result, anyhow};
use lodestone_workload::engine::{self, EngineError, Environment};
use lodestone_workload::oltp::{Access, Key, OltpEngine, Order, Table, Transaction, Visit, Worker};

use super::{Tuning, checked, ffi, make_options, make_write_options, raw};
use crate::{Durability, environment};

/// An open database.
pub(crate) struct RocksTables {
    db: *mut ffi::TransactionDb,
    options: *mut ffi::Options,
    write: *mut ffi::WriteOptions,
    write_relaxed: *mut ffi::WriteOptions,
    read: *mut ffi::ReadOptions,
    transactions: *mut ffi::TransactionOptions,
    durability: Durability,
    folder: PathBuf,
}

#[expect(unsafe_code, reason = "the handle of a C library")]
// SAFETY: RocksDB's handles may move between threads.
unsafe impl Send for RocksTables {}
#[expect(unsafe_code, reason = "the handle of a C library")]
// SAFETY: a database may be used by many threads at once. Options are only read after `open`.
unsafe impl Sync for RocksTables {}

impl RocksTables {
    /// Creates a database in `folder`.
    #[expect(unsafe_code, reason = "C library")]
    pub(crate) fn create(folder: &Path, durability: Durability, threads: usize) -> Result<Self> {
        let name = CString::new(folder.as_os_str().as_encoded_bytes()).context("the folder's name has a zero byte")?;
        let options = make_options(threads, Tuning::default());
        // SAFETY: all handles are fresh and alive, and RocksDB copies the data it keeps.
        let (db, read, transactions) = unsafe {
            let defaults = ffi::rocksdb_transactiondb_options_create();
            let db = checked(|error| ffi::rocksdb_transactiondb_open(options, defaults, name.as_ptr(), error));
            ffi::rocksdb_transactiondb_options_destroy(defaults);
            let transactions = ffi::rocksdb_transaction_options_create();
            ffi::rocksdb_transaction_options_set_deadlock_detect(transactions, 1);
            (db, ffi::rocksdb_readoptions_create(), transactions)
        };
        Ok(Self {
            db: db.map_err(|error| anyhow!("rocksdb cannot open {}: {error}", folder.display()))?,
            options,
            write: make_write_options(durability == Durability::Sync),
            write_relaxed: make_write_options(false),
            read,
            transactions,
            durability,
            folder: folder.into(),
        })
    }
}

impl Drop for RocksTables {
    #[expect(unsafe_code, reason = "C library")]
    fn drop(&mut self) {
        // SAFETY: workers borrow the engine, so none is left. Each handle is released once.
        unsafe {
            ffi::rocksdb_transactiondb_close(self.db);
            ffi::rocksdb_transaction_options_destroy(self.transactions);
            ffi::rocksdb_readoptions_destroy(self.read);
            ffi::rocksdb_writeoptions_destroy(self.write);
            ffi::rocksdb_writeoptions_destroy(self.write_relaxed);
            ffi::rocksdb_options_destroy(self.options);
        }
    }
}

impl OltpEngine for RocksTables {
    type Worker<'e> = RocksWorker<'e>;

    fn name(&self) -> String {
        "rocksdb".into()
    }

    fn worker(&self) -> engine::Result<RocksWorker<'_>> {
        Ok(RocksWorker { engine: self, write: self.write, transaction: ptr::null_mut(), attempts: 0 })
    }

    fn load_worker(&self) -> engine::Result<RocksWorker<'_>> {
        Ok(RocksWorker { engine: self, write: self.write_relaxed, transaction: ptr::null_mut(), attempts: 0 })
    }

    #[expect(unsafe_code, reason = "C library")]
    fn finish_load(&self) -> engine::Result<()> {
        // SAFETY: the handle is alive. The options are released after the call, which waits by default.
        checked(|error| unsafe {
            let options = ffi::rocksdb_flushoptions_create();
            ffi::rocksdb_transactiondb_flush(self.db, options, error);
            ffi::rocksdb_flushoptions_destroy(options);
        })
    }

    fn environment(&self) -> Environment {
        environment(self.durability, &self.folder)
    }
}

/// One thread's access.
pub(crate) struct RocksWorker<'e> {
    engine: &'e RocksTables,
    write: *const ffi::WriteOptions,
    /// Used again by each transaction.
    transaction: *mut ffi::Transaction,
    attempts: u64,
}

impl Drop for RocksWorker<'_> {
    #[expect(unsafe_code, reason = "C library")]
    fn drop(&mut self) {
        if !self.transaction.is_null() {
            // SAFETY: no attempt is under way, and the handle is released once.
            unsafe { ffi::rocksdb_transaction_destroy(self.transaction) };
        }
    }
}

/// How an attempt ended without a commit.
pub(crate) enum Stop {
    /// Another attempt may succeed.
    Conflict,
    Cancelled,
    Error(EngineError),
}

impl From<EngineError> for Stop {
    fn from(error: EngineError) -> Self {
        let text = error.to_string();
        let is_conflict = ["Resource busy", "timed out", "Deadlock", "TimedOut", "Busy"];
        if is_conflict.iter().any(|word| text.contains(word)) { Self::Conflict } else { Self::Error(error) }
    }
}

impl Worker for RocksWorker<'_> {
    #[expect(unsafe_code, reason = "C library")]
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> engine::Result<Option<T::Out>> {
        loop {
            self.attempts += 1;
            let RocksTables { db, transactions, read, .. } = *self.engine;
            // SAFETY: the handles are alive. The old transaction, if any, was committed or rolled back.
            self.transaction =
                unsafe { ffi::rocksdb_transaction_begin(db, self.write, transactions, self.transaction) };
            let handle = self.transaction;
            let mut access = RocksAccess { transaction: handle, read, key: Vec::with_capacity(64) };
            let outcome = transaction.run(&mut access).and_then(|out| {
                // SAFETY: the handle is alive.
                checked(|error| unsafe { ffi::rocksdb_transaction_commit(handle, error) })?;
                Ok(out)
            });
            if outcome.is_err() {
                // SAFETY: as above.
                checked(|error| unsafe { ffi::rocksdb_transaction_rollback(handle, error) })?;
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
pub(crate) struct RocksAccess {
    transaction: *mut ffi::Transaction,
    read: *const ffi::ReadOptions,
    key: Vec<u8>,
}

impl RocksAccess {
    fn set_key(&mut self, table: Table, key: Key<'_>) {
        self.key.clear();
        self.key.push(u8::try_from(table.0).unwrap_or(u8::MAX));
        self.key.extend_from_slice(&key.number.to_be_bytes());
        self.key.extend_from_slice(key.text.as_bytes());
    }

    #[expect(unsafe_code, reason = "C library")]
    fn read(&mut self, table: Table, key: Key<'_>, locks: bool, row: &mut Vec<u8>) -> Result<bool, Stop> {
        self.set_key(table, key);
        row.clear();
        let (bytes, length) = (raw(&self.key), self.key.len());
        // SAFETY: handles and key are alive.
        let slice = checked(|error| unsafe {
            if locks {
                let (handle, options) = (self.transaction, self.read);
                ffi::rocksdb_transaction_get_pinned_for_update(handle, options, bytes, length, 1, error)
            } else {
                ffi::rocksdb_transaction_get_pinned(self.transaction, self.read, bytes, length, error)
            }
        })?;
        if slice.is_null() {
            return Ok(false);
        }
        // SAFETY: the slice is alive until it is destroyed, after the copy.
        unsafe {
            let mut length = 0;
            let bytes = ffi::rocksdb_pinnableslice_value(slice, &raw mut length);
            row.extend_from_slice(std::slice::from_raw_parts(bytes.cast(), length));
            ffi::rocksdb_pinnableslice_destroy(slice);
        }
        Ok(true)
    }
}

impl Access for RocksAccess {
    type Abort = Stop;

    fn get(&mut self, table: Table, key: Key<'_>, row: &mut Vec<u8>) -> Result<bool, Stop> {
        self.read(table, key, false, row)
    }

    fn get_to_change(&mut self, table: Table, key: Key<'_>, row: &mut Vec<u8>) -> Result<bool, Stop> {
        self.read(table, key, true, row)
    }

    #[expect(unsafe_code, reason = "C library")]
    fn put(&mut self, table: Table, key: Key<'_>, row: &[u8]) -> Result<(), Stop> {
        self.set_key(table, key);
        let (bytes, length) = (raw(&self.key), self.key.len());
        // SAFETY: handle, key and row are alive; RocksDB copies key and row.
        checked(|error| unsafe {
            ffi::rocksdb_transaction_put(self.transaction, bytes, length, raw(row), row.len(), error);
        })?;
        Ok(())
    }

    fn insert(&mut self, table: Table, key: Key<'_>, row: &[u8]) -> Result<(), Stop> {
        if self.read(table, key, true, &mut Vec::new())? {
            return Err(self.fault(format!("table {}: a second row with the key {key:?}", table.0)));
        }
        self.put(table, key, row)
    }

    #[expect(unsafe_code, reason = "C library")]
    fn delete(&mut self, table: Table, key: Key<'_>) -> Result<bool, Stop> {
        let was_there = self.read(table, key, true, &mut Vec::new())?;
        let (bytes, length) = (raw(&self.key), self.key.len());
        // SAFETY: handle and key are alive.
        checked(|error| unsafe { ffi::rocksdb_transaction_delete(self.transaction, bytes, length, error) })?;
        Ok(was_there)
    }

    #[expect(unsafe_code, reason = "C library")]
    fn scan(&mut self, table: Table, range: Range<Key<'_>>, order: Order, visit: &mut Visit<'_>) -> Result<(), Stop> {
        self.set_key(table, range.start);
        let from = self.key.clone();
        self.set_key(table, range.end);
        let to = self.key.clone();
        // SAFETY: the iterator is destroyed before the transaction ends. Key and row are read before it moves on.
        unsafe {
            let iterator = ffi::rocksdb_transaction_create_iterator(self.transaction, self.read);
            if order == Order::Ascending {
                ffi::rocksdb_iter_seek(iterator, raw(&from), from.len());
            } else {
                ffi::rocksdb_iter_seek_for_prev(iterator, raw(&to), to.len());
            }
            while ffi::rocksdb_iter_valid(iterator) != 0 {
                let (mut key_length, mut row_length) = (0, 0);
                let key = ffi::rocksdb_iter_key(iterator, &raw mut key_length);
                let row = ffi::rocksdb_iter_value(iterator, &raw mut row_length);
                let key: &[u8] = std::slice::from_raw_parts(key.cast(), key_length);
                if key < &from[..] || order == Order::Ascending && key >= &to[..] {
                    break;
                }
                // The end itself is not in the range.
                if key < &to[..] {
                    let number = key.get(1..9).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes);
                    let text = std::str::from_utf8(key.get(9..).unwrap_or_default()).unwrap_or_default();
                    let row = std::slice::from_raw_parts(row.cast(), row_length);
                    if visit(Key { number, text }, row).is_break() {
                        break;
                    }
                }
                match order {
                    Order::Ascending => ffi::rocksdb_iter_next(iterator),
                    Order::Descending => ffi::rocksdb_iter_prev(iterator),
                }
            }
            let failed = checked(|error| ffi::rocksdb_iter_get_error(iterator, error));
            ffi::rocksdb_iter_destroy(iterator);
            Ok(failed?)
        }
    }

    fn cancel(&mut self) -> Stop {
        Stop::Cancelled
    }

    fn fault(&mut self, finding: String) -> Stop {
        Stop::Error(EngineError::new(finding))
    }
}
