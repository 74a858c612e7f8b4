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
//!   enters now finds the entry when it leaves (it waits for the latch).
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
//! - *A low hit rate* is answered by not asking the cache ([`CacheMode::Adaptive`]), not by a second search beside the first.
//!
//! Files: `word` (state), `table` (buckets), `cache` (levels of tables, growth), `policy` (eviction), `key` (keys as words), `meter`
//! (counts, adaptive), `point` (the traits).

mod cache;
#[cfg(feature = "explore")]
pub(crate) mod explore;
mod key;
mod meter;
mod options;
mod point;
mod policy;
mod table;
mod word;

use std::hash::{BuildHasher, RandomState};

pub use meter::CacheStats;
pub use options::{AcsOptions, CacheCapacity, CacheMode, CacheOptions};

use self::cache::Cache;
use self::meter::Meter;
use crate::error::Result;
use crate::traits::PointIndex;

/// Fewest entries of a cache whose capacity is a share of the index.
const ENTRIES_MIN: usize = if cfg!(feature = "shuttle") { 6 } else { 1 << 10 };

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
    index: I,
    cache: Cache<I::Key>,
    meter: Meter,
    /// Keys of the index for each entry of the cache, when the cache follows the index's size.
    share: Option<f64>,
    /// Keys that were there when the cache was made.
    keys: u64,
}

impl<I: PointIndex> std::fmt::Debug for Acs<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acs").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl<I: PointIndex> Acs<I> {
    /// Puts a cache in front of `index`, which nobody else may change from now on. With [`CacheCapacity::Share`] the keys of the index are counted.
    ///
    /// # Errors
    /// As [`PointIndex::len`].
    pub fn new(index: I, options: &CacheOptions) -> Result<Self> {
        let key_words = if <I::Key as crate::IndexKey>::IS_WORD { 1 } else { options.key_words() };
        let (entries, share, keys) = match options.capacity {
            CacheCapacity::Entries(entries) => (entries, None, 0),
            CacheCapacity::Bytes(bytes) => (Cache::<I::Key>::entries_of(bytes, key_words), None, 0),
            CacheCapacity::Share(share) => {
                let keys = index.len()?;
                (entries_for(keys, share), Some(share), keys)
            }
        };
        let seed = options.seed.unwrap_or_else(|| RandomState::new().hash_one("cache"));
        let cache = Cache::new(entries, key_words, seed);
        Ok(Self { index, cache, meter: Meter::new(options), share, keys })
    }

    /// The index behind the cache. Changing it past the cache would make the cache lie.
    pub fn index(&self) -> &I {
        &self.index
    }

    /// What the cache has done. Other threads go on counting meanwhile; with more than 64 threads a few counts are lost.
    pub fn stats(&self) -> CacheStats {
        let (capacity, dram_bytes) = (self.cache.capacity() as u64, self.cache.bytes() as u64 + self.meter.bytes());
        CacheStats { capacity, dram_bytes, ..self.meter.stats() }
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

    /// Lets the cache grow if the index has grown to twice what it is sized for.
    #[cold]
    fn follow_size(&self) {
        let Some(share) = self.share else { return };
        let wanted = entries_for(self.meter.keys(self.keys), share);
        if wanted >= 2 * self.cache.capacity() {
            self.cache.grow(wanted / 2 + 1);
        }
    }
}

/// Entries of a cache of `share` of `keys` keys.
fn entries_for(keys: u64, share: f64) -> usize {
    ((keys as f64 * share.clamp(0.0, 1.0)) as usize).max(ENTRIES_MIN)
}
