//! libpmemobj: the structures of the transactional memory benchmark, and a B+-tree of records for YCSB.
//!
//! - The structures are written in C (`pmemobj/maps.c`), with one reader-writer lock around each. Threads, draws, clock
//!   and checks are the runner's own, as for every engine.
//! - `PMEM_IS_PMEM_FORCE=1` makes the library flush cache lines on any file, as our `dax-emulated` domain does: the
//!   same instructions on both sides. The library reads the variable when it is loaded, so [`force_flushes`] runs this
//!   program again.
//! - Durability `sync` is the only mode.

mod ffi;

use std::ffi::{CStr, CString, c_int, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use lodestone_stm_bench::driver::{Driver, Session as MapSession};
use lodestone_stm_bench::structures::Entries;
use lodestone_workload::engine::{self, Engine, EngineError, Environment, Session};

use crate::file_system_of;

/// The variable that makes the library treat any file as persistent memory.
const FORCE: &str = "PMEM_IS_PMEM_FORCE";

/// Runs this program again with flushes forced, unless they already are.
pub(crate) fn force_flushes() -> Result<()> {
    use std::os::unix::process::CommandExt;
    if std::env::var_os(FORCE).is_some() {
        return Ok(());
    }
    let program = std::env::current_exe().context("this program has no path")?;
    let error = std::process::Command::new(program).args(std::env::args_os().skip(1)).env(FORCE, "1").exec();
    bail!("running this program again with {FORCE}=1 failed: {error}");
}

/// A pool with one of each structure.
pub(crate) struct PmemObj {
    pool: *mut ffi::Pool,
    media: Option<String>,
}

#[expect(unsafe_code, reason = "the C side locks each structure")]
// SAFETY: every call on a pool locks the structure that it touches. The pool is closed when nothing borrows it any
// more.
unsafe impl Send for PmemObj {}
#[expect(unsafe_code, reason = "the C side locks each structure")]
// SAFETY: as above.
unsafe impl Sync for PmemObj {}

impl PmemObj {
    /// Creates a pool of `bytes` in `folder`. Its hash table has `buckets` buckets.
    pub(crate) fn create(folder: &Path, bytes: u64, buckets: u64) -> Result<Self> {
        let path = CString::new(folder.join("pmemobj.pool").as_os_str().as_bytes()).context("a path without zeroes")?;
        #[expect(unsafe_code, reason = "a C call")]
        // SAFETY: the path is a C string; a null result is handled.
        let pool = unsafe { ffi::peer_create(path.as_ptr(), bytes, buckets) };
        if pool.is_null() {
            bail!("libpmemobj cannot create a pool of {bytes} bytes in {}: {}", folder.display(), last_error());
        }
        Ok(Self { pool, media: file_system_of(folder) })
    }

    fn environment(&self) -> Environment {
        let forced = std::env::var_os(FORCE).is_some();
        let domain = if forced { "dax-emulated" } else { "dax" };
        Environment { domain: Some(domain.into()), media: self.media.clone(), durability: Some("sync".into()) }
    }
}

impl Drop for PmemObj {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "a C call")]
        // SAFETY: the pool came from peer_create and is closed once.
        unsafe {
            ffi::peer_close(self.pool);
        }
    }
}

fn last_error() -> String {
    #[expect(unsafe_code, reason = "a C call")]
    // SAFETY: the library returns a C string that lives as long as the thread.
    unsafe { CStr::from_ptr(ffi::peer_error()) }.to_string_lossy().into_owned()
}

fn outcome(code: c_int) -> std::result::Result<bool, EngineError> {
    match code {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(EngineError::new(format!("libpmemobj: {}", last_error()))),
    }
}

/// A structure of the C side.
pub(crate) trait Structure: Sync {
    const NAME: &'static str;
    fn get(pool: *mut ffi::Pool, key: u64, value: &mut u64) -> c_int;
    fn insert(pool: *mut ffi::Pool, key: u64, value: u64) -> c_int;
    fn remove(pool: *mut ffi::Pool, key: u64) -> c_int;
    fn visit(pool: *mut ffi::Pool, visit: ffi::Visit, context: *mut c_void);
}

macro_rules! structure {
    ($kind:ident $name:literal $get:ident $insert:ident $remove:ident $visit:ident) => {
        /// The structure of this name.
        pub(crate) struct $kind;

        #[expect(unsafe_code, reason = "C calls")]
        impl Structure for $kind {
            const NAME: &'static str = $name;

            #[inline]
            fn get(pool: *mut ffi::Pool, key: u64, value: &mut u64) -> c_int {
                // SAFETY: the pool is open while it is borrowed; the value is a live word.
                unsafe { ffi::$get(pool, key, value) }
            }

            #[inline]
            fn insert(pool: *mut ffi::Pool, key: u64, value: u64) -> c_int {
                // SAFETY: the pool is open while it is borrowed.
                unsafe { ffi::$insert(pool, key, value) }
            }

            #[inline]
            fn remove(pool: *mut ffi::Pool, key: u64) -> c_int {
                // SAFETY: the pool is open while it is borrowed.
                unsafe { ffi::$remove(pool, key) }
            }

            fn visit(pool: *mut ffi::Pool, visit: ffi::Visit, context: *mut c_void) {
                // SAFETY: the pool is open while it is borrowed; visit and context belong together.
                unsafe { ffi::$visit(pool, visit, context) }
            }
        }
    };
}

structure!(Hash "hash" peer_hash_get peer_hash_insert peer_hash_remove peer_hash_visit);
structure!(Tree "tree" peer_tree_get peer_tree_insert peer_tree_remove peer_tree_visit);
structure!(List "list" peer_list_get peer_list_insert peer_list_remove peer_list_visit);
structure!(BTree "btree" peer_btree_get peer_btree_insert peer_btree_remove peer_btree_visit);

/// A structure in a pool, for the runner.
pub(crate) struct PmemObjMap<S> {
    pool: PmemObj,
    kind: PhantomData<fn() -> S>,
}

impl<S: Structure> PmemObjMap<S> {
    /// The structure in `pool`, empty in a new one.
    pub(crate) fn new(pool: PmemObj) -> Self {
        Self { pool, kind: PhantomData }
    }
}

impl<S: Structure> Driver for PmemObjMap<S> {
    type Session<'d>
        = PmemObjMapSession<'d, S>
    where
        S: 'd;

    fn engine(&self) -> String {
        "pmemobj".into()
    }

    fn structure(&self) -> &str {
        S::NAME
    }

    fn session(&self) -> std::result::Result<Self::Session<'_>, EngineError> {
        Ok(PmemObjMapSession { map: self })
    }

    fn threads_max(&self) -> usize {
        usize::MAX
    }

    fn environment(&self) -> Environment {
        self.pool.environment()
    }

    fn is_counted(&self) -> bool {
        false
    }

    fn entries(&self) -> std::result::Result<Entries, EngineError> {
        extern "C" fn add(pairs: *mut c_void, key: u64, value: u64) {
            #[expect(unsafe_code, reason = "the C side hands the context back")]
            // SAFETY: the context is the vector below, and no other code uses it while the visit runs.
            let pairs = unsafe { &mut *pairs.cast::<Vec<(u64, u64)>>() };
            pairs.push((key, value));
        }
        let mut pairs: Vec<(u64, u64)> = Vec::new();
        S::visit(self.pool.pool, add, std::ptr::from_mut(&mut pairs).cast());
        let ordered = S::NAME == "hash" || pairs.is_sorted_by_key(|(key, _)| *key);
        let fault = (!ordered).then(|| "keys are out of order".to_string());
        Ok(Entries { objects: pairs.len() as u64, pairs, fault })
    }
}

/// A session of a [`PmemObjMap`].
pub(crate) struct PmemObjMapSession<'d, S> {
    map: &'d PmemObjMap<S>,
}

impl<S: Structure> MapSession for PmemObjMapSession<'_, S> {
    #[inline]
    fn get(&mut self, key: u64) -> std::result::Result<Option<u64>, EngineError> {
        let mut value = 0;
        Ok(outcome(S::get(self.map.pool.pool, key, &mut value))?.then_some(value))
    }

    #[inline]
    fn insert(&mut self, key: u64, value: u64) -> std::result::Result<bool, EngineError> {
        outcome(S::insert(self.map.pool.pool, key, value))
    }

    #[inline]
    fn remove(&mut self, key: u64) -> std::result::Result<bool, EngineError> {
        outcome(S::remove(self.map.pool.pool, key))
    }
}

/// Largest value of YCSB that is read back.
const VALUE_BYTES_MAX: usize = 65_535;

impl Engine for PmemObj {
    type Session<'a> = PmemObjSession<'a>;

    fn name(&self) -> &str {
        "pmemobj"
    }

    fn session(&self) -> engine::Result<PmemObjSession<'_>> {
        Ok(PmemObjSession { pool: self })
    }

    fn environment(&self) -> Environment {
        PmemObj::environment(self)
    }
}

/// A thread's access to the B+-tree of records.
pub(crate) struct PmemObjSession<'a> {
    pool: &'a PmemObj,
}

/// Keys are record numbers in eight bytes, big-endian, so that their order is that of the bytes.
fn key_word(key: &[u8]) -> engine::Result<u64> {
    let bytes = <[u8; 8]>::try_from(key);
    bytes.map(u64::from_be_bytes).map_err(|_| EngineError::new("this engine takes keys of 8 bytes only"))
}

impl PmemObjSession<'_> {
    fn put(&self, key: &[u8], value: &[u8]) -> engine::Result<bool> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(EngineError::new(format!("values have at most {VALUE_BYTES_MAX} bytes")));
        }
        #[expect(unsafe_code, reason = "a C call")]
        // SAFETY: the value is a live slice of that length; the pool is open while it is borrowed.
        let code = unsafe { ffi::peer_record_put(self.pool.pool, key_word(key)?, value.as_ptr(), value.len() as u64) };
        outcome(code)
    }
}

impl Session for PmemObjSession<'_> {
    fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> engine::Result<bool> {
        value.resize(VALUE_BYTES_MAX, 0);
        #[expect(unsafe_code, reason = "a C call")]
        // SAFETY: the buffer has that capacity; the pool is open while it is borrowed.
        let length = unsafe {
            ffi::peer_record_read(self.pool.pool, key_word(key)?, value.as_mut_ptr(), VALUE_BYTES_MAX as u64)
        };
        value.truncate(usize::try_from(length).unwrap_or(0));
        Ok(length >= 0)
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> engine::Result<()> {
        self.put(key, value).map(|_| ())
    }

    /// A blind write, as in the other peers.
    fn update(&mut self, key: &[u8], value: &[u8]) -> engine::Result<bool> {
        self.put(key, value).map(|_| true)
    }

    fn scan(&mut self, start: &[u8], count: usize) -> engine::Result<usize> {
        let mut sum = 0;
        #[expect(unsafe_code, reason = "a C call")]
        // SAFETY: the sum is a live byte; the pool is open while it is borrowed.
        let seen = unsafe { ffi::peer_record_scan(self.pool.pool, key_word(start)?, count as u64, &mut sum) };
        std::hint::black_box(sum);
        Ok(usize::try_from(seen).unwrap_or(usize::MAX))
    }

    fn remove(&mut self, key: &[u8]) -> engine::Result<bool> {
        #[expect(unsafe_code, reason = "a C call")]
        // SAFETY: the pool is open while it is borrowed.
        let code = unsafe { ffi::peer_record_remove(self.pool.pool, key_word(key)?) };
        outcome(code)
    }
}
