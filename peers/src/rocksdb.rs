//! RocksDB through its C interface.
//!
//! Configuration: the defaults, and the recommendations of RocksDB's tuning guide for point access to data that fits in
//! memory. These are one background job for each CPU, a block cache of 1 GiB, and full bloom filters of 10 bits for
//! each key. Log files are recycled, so that a synced write need not change the file's size. There is no compression,
//! because values are random bytes.
//!
//! Durability: `sync` sets `WriteOptions.sync`, so each write returns after fdatasync of the log (writers that wait
//! together share one). `process` leaves the log in the page cache.
//!
//! An update is a plain put, as in YCSB's own binding: it does not check whether the record exists.

mod ffi;
pub(crate) mod tables;

use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use std::ptr;

use anyhow::{Context, Result, anyhow};
use lodestone_workload::engine::{self, Engine, EngineCounters, EngineError, Environment, Footprint, Session};

use crate::{Durability, environment, folder_bytes};

const BLOCK_CACHE_BYTES: usize = 1 << 30;
const BLOOM_BITS_PER_KEY: f64 = 10.0;
const RECYCLED_LOGS: usize = 4;
const NO_COMPRESSION: i32 = 0;

/// Options that can be changed from the command line.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tuning {
    /// Pipelined log and memtable writes.
    pub(crate) pipelined: bool,
    /// Count syncs; costs some throughput.
    pub(crate) statistics: bool,
    /// Bytes of the block cache, 1 GiB without it.
    pub(crate) cache: Option<u64>,
    /// Reads of its files go around the page cache of the system.
    pub(crate) direct_reads: bool,
}

/// An open database.
pub(crate) struct RocksDb {
    db: *mut ffi::Db,
    options: *mut ffi::Options,
    write: *mut ffi::WriteOptions,
    write_relaxed: *mut ffi::WriteOptions,
    read: *mut ffi::ReadOptions,
    durability: Durability,
    statistics: bool,
    folder: std::path::PathBuf,
}

#[expect(unsafe_code, reason = "the handle of a C library")]
// SAFETY: RocksDB's handles may move between threads.
unsafe impl Send for RocksDb {}
#[expect(unsafe_code, reason = "the handle of a C library")]
// SAFETY: a database may be used by many threads at once. Options are only read after `open`.
unsafe impl Sync for RocksDb {}

impl RocksDb {
    /// Creates a database in `folder`.
    pub(crate) fn create(folder: &Path, durability: Durability, threads: usize, tuning: Tuning) -> Result<Self> {
        let name =
            CString::new(folder.as_os_str().as_encoded_bytes()).context("the folder's name holds a zero byte")?;
        let options = make_options(threads, tuning);
        #[expect(unsafe_code, reason = "C library")]
        // SAFETY: options and name are alive, and RocksDB copies the data it keeps.
        let db = checked(|error| unsafe { ffi::rocksdb_open(options, name.as_ptr(), error) })
            .map_err(|error| anyhow!("rocksdb cannot open {}: {error}", folder.display()))?;
        Ok(Self {
            db,
            options,
            write: make_write_options(durability == Durability::Sync),
            write_relaxed: make_write_options(false),
            #[expect(unsafe_code, reason = "C library")]
            // SAFETY: no precondition.
            read: unsafe { ffi::rocksdb_readoptions_create() },
            durability,
            statistics: tuning.statistics,
            folder: folder.into(),
        })
    }

    fn open_session(&self, write: *const ffi::WriteOptions) -> RocksSession<'_> {
        RocksSession { engine: self, write }
    }
}

#[expect(unsafe_code, reason = "C library")]
fn make_options(threads: usize, tuning: Tuning) -> *mut ffi::Options {
    let jobs =
        i32::try_from(std::thread::available_parallelism().map_or(2, usize::from).max(threads / 2)).unwrap_or(16);
    // SAFETY: every handle is fresh. The table options own the filter policy. The cache is reference-counted, and our
    // reference is released. The factory copies the table options.
    unsafe {
        let options = ffi::rocksdb_options_create();
        ffi::rocksdb_options_set_create_if_missing(options, 1);
        ffi::rocksdb_options_increase_parallelism(options, jobs);
        ffi::rocksdb_options_set_compression(options, NO_COMPRESSION);
        ffi::rocksdb_options_set_recycle_log_file_num(options, RECYCLED_LOGS);
        ffi::rocksdb_options_set_use_direct_reads(options, u8::from(tuning.direct_reads));
        ffi::rocksdb_options_set_enable_pipelined_write(options, u8::from(tuning.pipelined));
        if tuning.statistics {
            ffi::rocksdb_options_enable_statistics(options);
        }
        let table = ffi::rocksdb_block_based_options_create();
        let cache_bytes = tuning.cache.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(BLOCK_CACHE_BYTES);
        let cache = ffi::rocksdb_cache_create_lru(cache_bytes);
        ffi::rocksdb_block_based_options_set_block_cache(table, cache);
        ffi::rocksdb_cache_destroy(cache);
        let policy = ffi::rocksdb_filterpolicy_create_bloom_full(BLOOM_BITS_PER_KEY);
        ffi::rocksdb_block_based_options_set_filter_policy(table, policy);
        ffi::rocksdb_options_set_block_based_table_factory(options, table);
        ffi::rocksdb_block_based_options_destroy(table);
        options
    }
}

#[expect(unsafe_code, reason = "C library")]
fn make_write_options(sync: bool) -> *mut ffi::WriteOptions {
    // SAFETY: the handle is fresh.
    unsafe {
        let options = ffi::rocksdb_writeoptions_create();
        ffi::rocksdb_writeoptions_set_sync(options, u8::from(sync));
        options
    }
}

/// Runs a call that reports errors as a message to be freed.
fn checked<T>(call: impl FnOnce(*mut *mut c_char) -> T) -> engine::Result<T> {
    let mut message: *mut c_char = ptr::null_mut();
    let result = call(&raw mut message);
    if message.is_null() {
        return Ok(result);
    }
    #[expect(unsafe_code, reason = "C library")]
    // SAFETY: RocksDB left a terminated string that is ours to free. It is copied first.
    let text = unsafe {
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        ffi::rocksdb_free(message);
        text
    };
    Err(EngineError::new(text))
}

impl Drop for RocksDb {
    #[expect(unsafe_code, reason = "C library")]
    fn drop(&mut self) {
        // SAFETY: sessions borrow the engine, so none is left. Each handle is released once.
        unsafe {
            ffi::rocksdb_close(self.db);
            ffi::rocksdb_readoptions_destroy(self.read);
            ffi::rocksdb_writeoptions_destroy(self.write);
            ffi::rocksdb_writeoptions_destroy(self.write_relaxed);
            ffi::rocksdb_options_destroy(self.options);
        }
    }
}

impl Engine for RocksDb {
    type Session<'a> = RocksSession<'a>;

    fn name(&self) -> &str {
        "rocksdb"
    }

    fn session(&self) -> engine::Result<RocksSession<'_>> {
        Ok(self.open_session(self.write))
    }

    fn load_session(&self) -> engine::Result<RocksSession<'_>> {
        Ok(self.open_session(self.write_relaxed))
    }

    #[expect(unsafe_code, reason = "C library")]
    fn finish_load(&self) -> engine::Result<()> {
        // SAFETY: the handle is alive. The options are released after the call, which waits by default.
        checked(|error| unsafe {
            let options = ffi::rocksdb_flushoptions_create();
            ffi::rocksdb_flush(self.db, options, error);
            ffi::rocksdb_flushoptions_destroy(options);
        })
    }

    fn environment(&self) -> Environment {
        environment(self.durability, &self.folder)
    }

    fn counters(&self) -> EngineCounters {
        let syncs = self.statistics.then(|| {
            #[expect(unsafe_code, reason = "C library")]
            // SAFETY: the options are alive. The string is ours to free and is copied first.
            let text = unsafe {
                let raw = ffi::rocksdb_options_statistics_get_string(self.options);
                if raw.is_null() {
                    return None;
                }
                let text = CStr::from_ptr(raw).to_string_lossy().into_owned();
                ffi::rocksdb_free(raw);
                text
            };
            let line = text.lines().find(|line| line.starts_with("rocksdb.wal.synced "))?;
            line.rsplit(' ').next()?.parse().ok()
        });
        EngineCounters { syncs: syncs.flatten(), ..EngineCounters::default() }
    }

    fn footprint(&self) -> Footprint {
        Footprint { pm_bytes: folder_bytes(&self.folder), dram_bytes: None }
    }
}

/// One thread's access. RocksDB needs no state for it.
pub(crate) struct RocksSession<'a> {
    engine: &'a RocksDb,
    write: *const ffi::WriteOptions,
}

fn raw(bytes: &[u8]) -> *const c_char {
    bytes.as_ptr().cast()
}

impl Session for RocksSession<'_> {
    #[expect(unsafe_code, reason = "C library")]
    fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> engine::Result<bool> {
        value.clear();
        let engine = self.engine;
        // SAFETY: handles and key are alive.
        let slice =
            checked(|error| unsafe { ffi::rocksdb_get_pinned(engine.db, engine.read, raw(key), key.len(), error) })?;
        if slice.is_null() {
            return Ok(false);
        }
        // SAFETY: the slice is alive until it is destroyed, after the copy.
        unsafe {
            let mut length = 0;
            let bytes = ffi::rocksdb_pinnableslice_value(slice, &raw mut length);
            value.extend_from_slice(std::slice::from_raw_parts(bytes.cast(), length));
            ffi::rocksdb_pinnableslice_destroy(slice);
        }
        Ok(true)
    }

    #[expect(unsafe_code, reason = "C library")]
    fn insert(&mut self, key: &[u8], value: &[u8]) -> engine::Result<()> {
        // SAFETY: handles, key and value are alive; RocksDB copies key and value.
        checked(|error| unsafe {
            ffi::rocksdb_put(self.engine.db, self.write, raw(key), key.len(), raw(value), value.len(), error);
        })
    }

    fn update(&mut self, key: &[u8], value: &[u8]) -> engine::Result<bool> {
        self.insert(key, value).map(|()| true)
    }

    #[expect(unsafe_code, reason = "C library")]
    fn scan(&mut self, start: &[u8], count: usize) -> engine::Result<usize> {
        // SAFETY: the iterator is destroyed before the engine. Key and value are read before it moves on.
        unsafe {
            let iterator = ffi::rocksdb_create_iterator(self.engine.db, self.engine.read);
            ffi::rocksdb_iter_seek(iterator, raw(start), start.len());
            let mut seen = 0;
            while seen < count && ffi::rocksdb_iter_valid(iterator) != 0 {
                let (mut key_length, mut value_length) = (0, 0);
                let key = ffi::rocksdb_iter_key(iterator, &raw mut key_length);
                let value = ffi::rocksdb_iter_value(iterator, &raw mut value_length);
                crate::touch(std::slice::from_raw_parts(key.cast(), key_length));
                crate::touch(std::slice::from_raw_parts(value.cast(), value_length));
                ffi::rocksdb_iter_next(iterator);
                seen += 1;
            }
            let failed = checked(|error| ffi::rocksdb_iter_get_error(iterator, error));
            ffi::rocksdb_iter_destroy(iterator);
            failed.map(|()| seen)
        }
    }

    #[expect(unsafe_code, reason = "C library")]
    fn remove(&mut self, key: &[u8]) -> engine::Result<bool> {
        // SAFETY: handles and key are alive.
        checked(|error| unsafe {
            ffi::rocksdb_delete(self.engine.db, self.write, raw(key), key.len(), error);
        })
        .map(|()| true)
    }
}
