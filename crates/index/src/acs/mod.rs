//! A bounded cache in DRAM in front of any index: the asynchronous cache scheme (ACS) of paper 2, section 3.2, repaired.
//!
//! What is persistent is the index, unchanged; nothing here writes, flushes or fences. After a crash the cache is empty, serves
//! at once and warms by what is read.
//!
//! The cache is a table of *buckets* of six entries; all keys of a bucket share its *state word* (`word`): even while nothing is under
//! way, odd while an operation may be changing one of its keys in the index; its upper bits count changes.
//!
//! 1. **Read**: load the state. Odd: the index answers. Even: look for the key. *Hit*: load the state again; if it is the same, the
//!    value is the answer. *Miss*: the index answers, and the value is filled in with the state that was loaded first: under the latch, which
//!    is taken by a compare-and-swap from exactly that state. If that fails, the fill is dropped.
//! 2. **Update, upsert, remove, compare-and-swap**: enter (the state is odd); change the index, durably if it was opened so; then change
//!    the cache: the new value if no other writer was in the bucket meanwhile, else the key is thrown out; leave with a new version.
//! 3. **Insert** changes the index only. **Scans** read the index only.
//!
//! # Why it is linearizable
//!
//! *Invariant*: while the state of a bucket is even, each value that it caches is the value that the index has for the key.
//! - A fill keeps it: its value was read from the index after the state was even with version `v`, and the latch was taken from `v`
//!   itself. So no writer was inside between, the key had this value in the index all the time, and a writer that
//!   enters now finds the entry when it leaves (it waits for the latch). The key had no other entry: the probe missed in this very state.
//! - A writer keeps it: from before its change of the index until after its change of the cache the state is odd. If it was
//!   alone, the index's last value is the one it wrote; if not, the key goes. An operation that failed, or whose thread panicked, throws
//!   the key out as well.
//! - An insert keeps it: a key that is absent from the index is not cached, for its removal threw it out, and a fill with a value from before
//!   the removal carries an older version. A value that is read after the insert is the inserted one.
//! - Nothing else changes the index: it is owned by the [`Acs`].
//!
//! So a hit is the index's value at the second load of the state, which lies between call and return: it takes effect there. Every other
//! operation takes effect where the index says. Both orders agree, because they are one: the index's. What is cached was told
//! by an index that tells only what it may (durable with [`Durability::Sync`](crate::Durability::Sync)), so a hit tells nothing that a crash could lose.
//!
//! # What is different from the paper
//!
//! - *A fill is not queued.* The reader has the bucket in its processor's cache, so the fill costs it two exchanges of one word and some
//!   stores, less than handing it to another thread would. It never waits: whoever finds the latch taken drops the fill.
//! - *LRU* would take a lock or write shared memory at every hit, and hits less often: see `policy`.
//! - *Parallel search* ([`CacheMode::Parallel`]) is there, and right: a hit decides, an answer of the index began within the call, and a fill carries the
//!   state from before the search. But handing a search to another thread costs more than the one or two lines that asking the cache reads.
//! - *A low hit rate* is therefore answered by not asking the cache ([`CacheMode::Adaptive`]), not by a second search beside the first.
//!
//! Files: `word` (state), `table` (buckets), `cache` (levels of tables, growth), `core` (what threads share), `helper` (parallel search), `policy` (eviction), `key` (keys as words), `meter`
//! (counts, adaptive), `point` (the traits).

mod cache;
mod core;
#[cfg(feature = "explore")]
pub(crate) mod explore;
mod helper;
mod key;
mod meter;
mod options;
mod point;
mod policy;
mod table;
mod word;

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use lodestone_pmem::sync::atomic::AtomicU64;
use lodestone_pmem::sync::thread;

pub use meter::CacheStats;
pub use options::{AcsOptions, CacheCapacity, CacheMode, CacheOptions};

use self::cache::Cache;
use self::core::{Core, ENTRIES_MIN, UNKNOWN};
use self::helper::Helper;
use self::meter::Meter;
use crate::error::Result;
use crate::traits::{IndexKey, PointIndex};

/// An index behind a cache; see the module for the protocol, [`PointIndex`] and [`OrderedIndex`](crate::OrderedIndex) for the
/// operations. Share it by reference or [`Arc`](std::sync::Arc).
///
/// ```
/// use lodestone_heap::{Heap, HeapOptions};
/// use lodestone_index::{Acs, AcsOptions, Durability, FastFair, OpenIndex, PointIndex};
/// use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
///
/// let folder = tempfile::tempdir()?;
/// let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let pool = Pool::create(folder.path().join("cached.pool"), &options)?;
/// let heap = Heap::open(&pool, &HeapOptions::default())?;
/// let index = Acs::<FastFair<u64>>::open_index(&heap, "numbers", &AcsOptions::default(), Durability::Sync)?;
/// index.insert(&7, 49)?;
/// assert_eq!((index.get(&7)?, index.get(&7)?), (Some(49), Some(49)));
/// assert_eq!(index.update(&7, 50)?, Some(49));
/// assert_eq!(index.get(&7)?, Some(50));
/// let stats = index.stats();
/// assert_eq!((stats.misses, stats.hits), (1, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Acs<I: PointIndex> {
    core: Arc<Core<I>>,
    /// Searches beside readers, in the mode for that.
    helper: Option<Helper>,
    /// Counts the keys, when the capacity is a share of them.
    counting: Option<Counting>,
}

/// A thread that counts the keys of the index; waited for when this is dropped.
struct Counting(Option<thread::JoinHandle<()>>);

impl Drop for Counting {
    fn drop(&mut self) {
        // A panic in the index has been told by the thread itself.
        let _ = self.0.take().map(thread::JoinHandle::join);
    }
}

impl<I: PointIndex> std::fmt::Debug for Acs<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acs").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl<I: PointIndex + 'static> Acs<I> {
    /// Puts a cache in front of `index`, which nobody else may change from now on. With [`CacheCapacity::Share`] a thread counts the keys of an
    /// index that holds some, and a small cache serves until it has; if they cannot be counted it stays small.
    ///
    /// # Errors
    /// As [`PointIndex::is_empty`].
    pub fn new(index: I, options: &CacheOptions) -> Result<Self> {
        let key_words = if <I::Key as IndexKey>::IS_WORD { 1 } else { options.key_words() };
        let (entries, share) = match options.capacity {
            CacheCapacity::Entries(entries) => (entries, None),
            CacheCapacity::Bytes(bytes) => (Cache::<I::Key>::entries_of(bytes, key_words), None),
            CacheCapacity::Share(share) => (ENTRIES_MIN, Some(share)),
        };
        let is_known = share.is_none() || index.is_empty()?;
        let seed = options.seed.unwrap_or_else(|| RandomState::new().hash_one("cache"));
        let core = Arc::new(Core {
            index,
            meter: Meter::new(options),
            starter: Cache::new(entries, key_words, seed),
            sized: OnceLock::new(),
            share,
            keys: AtomicU64::new(if is_known { 0 } else { UNKNOWN }),
        });
        let counting = share.filter(|_| !is_known).map(|share| {
            let core = Arc::clone(&core);
            // What keeps the keys from being counted comes up again where it matters: in an operation.
            let count = move || drop(core.size(share));
            Counting(thread::Builder::new().name("index-cache-size".into()).spawn(count).ok())
        });
        let helper = if options.mode == CacheMode::Parallel { Helper::start(&core) } else { None };
        Ok(Self { core, helper, counting })
    }
}

impl<I: PointIndex> Acs<I> {
    /// The index behind the cache. Changing it past the cache would make the cache lie.
    pub fn index(&self) -> &I {
        &self.core.index
    }

    /// The index without its cache.
    pub fn into_index(self) -> I {
        let Self { core, helper, counting } = self;
        // Their threads have ended then, and with them every other share.
        drop((helper, counting));
        match Arc::try_unwrap(core) {
            Ok(core) => core.index,
            Err(_) => unreachable!("only the threads of the cache have shares"),
        }
    }

    /// Waits until the cache has the size that was asked for: needed only by who measures.
    pub fn wait_until_sized(&mut self) {
        self.counting = None;
    }

    /// What the cache has done. Other threads go on counting meanwhile; with more than 64 threads a few counts are lost.
    pub fn stats(&self) -> CacheStats {
        let (cache, meter) = (self.core.cache(), &self.core.meter);
        let (capacity, dram_bytes) = (cache.capacity() as u64, cache.bytes() as u64 + meter.bytes());
        CacheStats { capacity, dram_bytes, ..meter.stats() }
    }

    /// Reads `keys`, so that what fits is cached before anybody asks for it; how many were there.
    ///
    /// # Errors
    /// As [`PointIndex::get`]; the keys before are cached then.
    pub fn warm<'k>(&self, keys: impl IntoIterator<Item = &'k I::Key>) -> Result<u64>
    where
        I::Key: 'k,
    {
        let mut found = 0;
        for key in keys {
            found += u64::from(self.get(key)?.is_some());
        }
        Ok(found)
    }
}
