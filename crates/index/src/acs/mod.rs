//! A bounded cache in DRAM in front of any index: the asynchronous cache scheme (ACS) of paper 2, section 3.2,
//! repaired.
//!
//! Only the index is persistent, and it is unchanged: the cache never writes to the medium, flushes or fences. After a
//! crash the cache is empty, serves at once and warms by the reads that follow.
//!
//! The cache is a table of *buckets* of 24 entries; each key has two that it may be in (`pair`). Apart from it there
//! are some thousand *stripes* (`stripes`), which keys share by their hash. Each stripe has a *state word* (`word`). It
//! is even while no operation is under way, and odd while an operation may be changing one of its keys in the index.
//! Its upper bits count changes. A bucket has its own *latch* and version, for threads that change its content.
//!
//! 1. **Read**: load the stripe's state. Odd: the index answers. Even: look for the key in its buckets. *Hit*: if the
//!    bucket did not change during the look, the value is the answer. *Miss*: the index answers, and the value is
//!    filled into one of the two buckets. The fill takes the bucket's latch by a compare-and-swap from exactly the
//!    version that missed. Under the latch it loads the other bucket's version and the stripe's state again. If one of
//!    them has changed since it was first loaded, or the latch was taken, the fill is dropped.
//! 2. **Update, upsert, remove, compare-and-swap**: enter the stripe (its state is odd). Request the buckets' lines,
//!    and do not wait for them. Change the index, durably if it was opened so. Wait until no thread has the latches,
//!    and look whether the key is cached. If so, take the latch and set the new value, if no other writer was in the
//!    stripe meanwhile; otherwise throw the key out. Leave with a new version.
//! 3. **Insert** changes the index only. **Scans** read the index only.
//!
//! A writer of a key that is not cached thus exchanges two words that stay in its processor's cache, and looks at two
//! lines that have come from memory while the index was changing.
//!
//! # Why it is linearizable
//!
//! *Invariant*: while the state of a stripe is even, each of its keys that is cached (where its hash leads at this
//! moment) has the value that the index has for it.
//! - A fill keeps it. Under the latch the stripe had the state that it had before the index was read. So no writer was
//!   inside between, and the value is right at that moment. A writer that enters later sees the latch when it leaves,
//!   and waits. The fill takes the latch and then loads the state, while the writer enters and then loads the latch.
//!   All of it is sequentially consistent, so one of the two sees the other. The key had no other entry: neither of its
//!   buckets had changed since they missed (`pair`).
//! - A writer keeps it: from before its change of the index until after its change of the cache the state is odd. If it
//!   was alone, the index's last value is the one it wrote. It checks under the latch whether it was alone. A writer
//!   that enters later finds it inside and so is not alone itself; it waits for the latch, and throws the key out. An
//!   operation that failed, or whose thread panicked, throws the key out as well.
//! - An insert keeps it: a key that is absent from the index is not cached, for its removal threw it out, and a fill
//!   with a value from before the removal saw an older state. A value that is read after the insert is the inserted
//!   one.
//! - Growth keeps it: it happens with all stripes held, and leaves them with new versions (`cache`).
//! - No other code changes the index: it is owned by the [`Acs`].
//!
//! So a hit is the index's value when the state was loaded; or, if the entry was changed between that and the look, at
//! that change. Both are between call and return: the hit takes effect there. Every other operation takes effect at the
//! moment that the index determines. Both orders agree, because they are one: the index's. Cached values were returned
//! by an index that returns only data that it may (durable with [`Durability::Sync`](crate::Durability::Sync)). So a
//! hit returns no data that a crash could lose. The targets `index-acs-*` and `acs-threads-*` read through the cache,
//! and demand that the answers of acknowledged reads are in the recovered state.
//!
//! # Differences from the paper
//!
//! - *A fill is not queued.* The reader has the bucket in its processor's cache, so the fill costs it an exchange of
//!   one word and some stores, less than handing it to another thread would. It never waits: a thread that finds the
//!   latch taken drops the fill.
//! - *LRU* would take a lock or write shared memory at every hit, and hits less often where some keys are popular: see
//!   `policy`.
//! - *Parallel search* ([`CacheMode::Parallel`]) is there, and right: a hit decides, an answer of the index began
//!   within the call, and a fill carries the state from before the search. But handing a search to another thread costs
//!   more than the one or two lines that asking the cache reads.
//! - *A low hit rate* is therefore answered by not asking the cache ([`CacheMode::Adaptive`]), not by a second search
//!   beside the first: see `meter`, also for the thresholds and how they were measured.
//! - *Long strings are not cached*: longer than [`CacheOptions::key_bytes`], at most 127 bytes. An entry has room for
//!   the longest key, so that a hit compares words in place, without a pointer to a block that would have to be kept
//!   from being freed under a reader; with room for a kilobyte, the longest key of the indexes, each value of eight
//!   bytes would take a kilobyte of DRAM, and a pool's worth of DRAM would cache next to nothing. A digest instead of
//!   the key would be short, but two keys with one digest would have one value. Such keys go to the index at once, and
//!   are never wrong.
//!
//! Files: `word` (state), `stripes`, `table` (buckets), `pair` (the two of a key), `cache` (levels of tables, growth),
//! `core` (what threads share), `helper` (parallel search), `policy` (eviction), `key` (keys as words), `meter`
//! (counts, adaptive), `point` (the traits).

mod cache;
mod core;
mod helper;
mod key;
mod meter;
mod options;
mod pair;
mod point;
mod policy;
mod stripes;
mod table;
mod word;

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use lodestone_pmem::sync::atomic::AtomicU64;
use lodestone_pmem::sync::thread;
use lodestone_width::to_u64;

pub use meter::CacheStats;
pub use options::{AcsOptions, CacheCapacity, CacheMode, CacheOptions};

use self::cache::Cache;
use self::core::{Core, ENTRIES_MIN, UNKNOWN};
use self::helper::Helper;
use self::meter::Meter;
use self::stripes::Stripes;
use crate::error::Result;
use crate::traits::{IndexKey, PointIndex};

/// An index with a cache before it; see the module for the protocol, [`PointIndex`] and
/// [`OrderedIndex`](crate::OrderedIndex) for the operations. Share it by reference or [`Arc`](std::sync::Arc).
///
/// ```
/// use lodestone_store::Store;
/// use lodestone_index::{Acs, AcsOptions, Durability, FastFair, OpenIndex, PointIndex};
/// use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
///
/// let folder = tempfile::tempdir()?;
/// let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let pool = Pool::create(folder.path().join("cached.pool"), &options)?;
/// let store = Store::over(&pool)?;
/// let index = Acs::<FastFair<u64>>::open_index(&store, "numbers", &AcsOptions::default(), Durability::Sync)?;
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
    /// Puts a cache in front of `index`, which no other code may change from now on. With [`CacheCapacity::Share`] a
    /// thread counts the keys of a non-empty index, and a small cache serves until it has. If they cannot be counted
    /// the cache stays small.
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
            stripes: Stripes::new(),
            seed,
            key_words,
            starter: Cache::new(entries, key_words, seed),
            sized: OnceLock::new(),
            share,
            keys: AtomicU64::new(if is_known { 0 } else { UNKNOWN }),
        });
        let counting = share.filter(|_| !is_known).map(|share| {
            let core = Arc::clone(&core);
            // An error that prevents the count comes up again where it matters: in an operation.
            let count = move || drop(core.size(share));
            Counting(thread::Builder::new().name("index-cache-size".into()).spawn(count).ok())
        });
        let helper = if options.mode == CacheMode::Parallel { Helper::start(&core) } else { None };
        Ok(Self { core, helper, counting })
    }
}

impl<I: PointIndex> Acs<I> {
    /// The index that is cached. Changing it past the cache would make the cache return wrong values.
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

    /// Waits until the cache has the size that was asked for. Only measurements need it.
    pub fn wait_until_sized(&mut self) {
        self.counting = None;
    }

    /// The counts of the cache. Other threads continue to count meanwhile; with more than 64 threads a few counts are
    /// lost.
    pub fn stats(&self) -> CacheStats {
        let (cache, meter) = (self.core.cache(), &self.core.meter);
        let beside = to_u64(self.core.stripes.bytes()) + meter.bytes();
        let (capacity, dram_bytes) = (to_u64(cache.capacity()), to_u64(cache.bytes()) + beside);
        CacheStats { capacity, dram_bytes, ..meter.stats() }
    }

    /// Reads `keys`, so that those that fit are cached before they are needed. Returns how many were there.
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
