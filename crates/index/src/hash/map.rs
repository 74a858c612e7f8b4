//! The hash index: point operations.
//!
//! *Lookup.*
//! 1. The directory names the segment, the hash names the bucket, and the bucket's lock returns a stamp.
//! 2. The lookup verifies that the segment covers the hash, and reads the lines.
//! 3. If the stamp is still true, so is the answer. A lookup writes no memory that another thread reads.
//!
//! *Change.* The same under the bucket's lock. The stash's lock is taken too when the key's home says that keys went
//! there. If bucket and stash have no room, the segment splits and the change starts again.
//!
//! *The stash* is shared by all buckets. So a reader whose key went there passes pairs that change although its
//! bucket's stamp stays. Its own pair does not move. It looks again, under both locks, at any part that does not
//! verify, before it reports damage.
//!
//! Order of locks: a segment's structure lock, buckets ascending, the stash, the directory's. Of two segments'
//! structure locks, the one of the descriptor with the smaller number comes first.

use std::marker::PhantomData;

use lodestone_heap::Heap;

use lodestone_pmem::sync::lock;
use lodestone_pmem::{PmAddr, planted};
use lodestone_store::{Object, Store};
use lodestone_width::to_usize;

use crate::anchor::Anchor;
use crate::cells::{self, Attempt, Found, KeyRef, Level, Site, TableAt, Turn, Wish, with_key};
use crate::check::IndexReport;
use crate::error::Result;
use crate::hash::directory::{Directory, Segment};
use crate::hash::layout::HashShape;
use crate::hash::open::HashOptions;
use crate::map::Durability;
use crate::medium::IndexMemory;
use crate::traits::{IndexKey, OpenIndex, PointIndex, Swap};

/// A durable hash index from `u64` or byte-string keys to `u64` values: constant-time operations, instant recovery.
///
/// ```
/// use lodestone_store::Store;
/// use lodestone_index::{HashIndex, PointIndex};
/// use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
///
/// let folder = tempfile::tempdir()?;
/// let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let pool = Pool::create(folder.path().join("example.pool"), &options)?;
/// let store = Store::over(&pool)?;
/// let index: HashIndex<u64> = HashIndex::open(&store, "orders")?;
/// assert_eq!(index.upsert(&7, 700)?, None);
/// assert_eq!(index.get(&7)?, Some(700));
/// assert_eq!(index.remove(&7)?, Some(700));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct HashIndex<K: IndexKey + ?Sized> {
    pub(crate) heap: Heap,
    pub(crate) anchor: Anchor,
    pub(crate) root: PmAddr,
    /// Start value of the hash.
    pub(crate) seed: u64,
    pub(crate) shape: HashShape,
    pub(crate) directory: Directory,
    pub(crate) durability: Durability,
    pub(crate) _keys: PhantomData<fn(&K)>,
}

impl<K: IndexKey + ?Sized> std::fmt::Debug for HashIndex<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HashIndex").field("anchor", &self.anchor).field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl<K: IndexKey + ?Sized> HashIndex<K> {
    pub(crate) fn medium(&self) -> IndexMemory<'_> {
        IndexMemory::of(&self.heap, self.anchor.at)
    }

    fn find(&self, key: KeyRef<'_>) -> Result<Option<u64>> {
        let medium = self.medium();
        let hash = key.hash(self.seed);
        let bucket = to_usize(self.shape.table.home(hash).bucket);
        let mut turn = Turn::default();
        loop {
            let (_, segment) = self.directory.find(medium, hash)?;
            let lock = &segment.locks[bucket];
            if let Some(stamp) = lock.stamp()
                && segment.cover().covers(hash)
            {
                let table = self.shape.table_at(segment.at());
                let answer = cells::find(table, medium, key, hash);
                // An answer or an error is valid only if no writer came between.
                if lock.is_still(stamp) || planted::active("hash-stale-segment") {
                    let found = match answer {
                        Ok(found) => found,
                        Err(error)
                            if planted::active("hash-stash-unlocked") || planted::active("hash-stale-segment") =>
                        {
                            return Err(error);
                        }
                        Err(_) => match self.find_alone(segment, table, key, hash)? {
                            Some(found) => found,
                            None => continue,
                        },
                    };
                    if self.durability == Durability::Sync {
                        cells::settle(table, medium.memory, hash, found.map(|found| found.line))?;
                    }
                    return Ok(found.map(|found| found.value));
                }
            }
            turn.wait();
        }
    }

    /// The pair of `key` in `table` while no thread changes its bucket or the stash; `None` when the table is no longer
    /// the segment's.
    #[cold]
    fn find_alone(
        &self,
        segment: &Segment,
        table: TableAt,
        key: KeyRef<'_>,
        hash: u64,
    ) -> Result<Option<Option<Found>>> {
        let bucket = to_usize(self.shape.table.home(hash).bucket);
        let Some(_held) = segment.locks[bucket].lock() else { return Ok(None) };
        if !segment.cover().covers(hash) || self.shape.table_at(segment.at()) != table {
            return Ok(None);
        }
        let _stash = lock(&segment.stash);
        cells::find(table, self.medium(), key, hash).map(Some)
    }

    fn change(&self, key: KeyRef<'_>, wish: Wish) -> Result<Option<u64>> {
        let medium = self.medium();
        cells::changeable(medium, key)?;
        let hash = key.hash(self.seed);
        let bucket = to_usize(self.shape.table.home(hash).bucket);
        let mut turn = Turn::default();
        loop {
            let (index, segment) = self.directory.find(medium, hash)?;
            if let Some(held) = segment.locks[bucket].lock()
                && segment.cover().covers(hash)
            {
                let table = self.shape.table_at(segment.at());
                let attempt = self.attempt(segment, table, key, hash, wish)?;
                drop(held);
                let Attempt::Done { before, emptied } = attempt else {
                    self.split(index, hash)?;
                    continue;
                };
                if emptied {
                    self.after_removal(index, hash);
                }
                if self.durability == Durability::Sync {
                    // The state found, even if nothing was changed, may be another thread's and in flight.
                    cells::settle(table, medium.memory, hash, None)?;
                    medium.memory.durable()?;
                }
                return Ok(before);
            }
            turn.wait();
        }
    }

    /// One attempt at a change, under the lock of the key's bucket.
    fn attempt(&self, segment: &Segment, table: TableAt, key: KeyRef<'_>, hash: u64, wish: Wish) -> Result<Attempt> {
        let site = Site { heap: &self.heap, medium: self.medium(), kind: self.shape.kind, table };
        if planted::active("hash-lock-persisted") {
            cells::lock_on_medium(site.medium, segment.at().plus(56), true)?;
        }
        // Under the bucket's lock no other thread raises its level, so only a bucket with keys in the stash needs the
        // lock.
        let in_stash = cells::home_level(table, site.medium, hash)? == Level::STASH;
        let stash = in_stash.then(|| lock(&segment.stash));
        let attempt = match (cells::find(table, site.medium, key, hash)?, wish.value) {
            (Some(found), _) => cells::change_pair(site, &found, wish)?,
            (None, Some(value)) if wish.inserts => {
                let near = cells::insert_pair(site, key, hash, value, Level::BUCKET)?;
                let stash = if near { stash } else { stash.or_else(|| Some(lock(&segment.stash))) };
                let there = near || cells::insert_pair(site, key, hash, value, Level::STASH)?;
                drop(stash);
                if there { Attempt::Done { before: None, emptied: false } } else { Attempt::Full }
            }
            (None, _) => Attempt::Done { before: None, emptied: false },
        };
        if planted::active("hash-lock-persisted") {
            cells::lock_on_medium(site.medium, segment.at().plus(56), false)?;
        }
        Ok(attempt)
    }
}

impl<K: IndexKey + ?Sized> PointIndex for HashIndex<K> {
    type Key = K;

    crate::change::operations_by_wish!();

    /// Visits every segment: exact while no thread changes the index. Does not wait until the counted keys are durable.
    fn len(&self) -> Result<u64> {
        self.count()
    }

    fn is_empty(&self) -> Result<bool> {
        self.holds_nothing()
    }

    fn check(&self) -> IndexReport {
        HashIndex::check(self)
    }
}

impl<K: IndexKey + ?Sized> OpenIndex for HashIndex<K> {
    type Options = HashOptions;

    fn open_index(store: &Store, name: &str, options: &HashOptions, durability: Durability) -> Result<Self> {
        let mut index = Self::open_with(store, name, options)?;
        index.durability = durability;
        Ok(index)
    }

    fn open_object(object: Object, _: &HashOptions, durability: Durability) -> Result<Self> {
        let (heap, at) = (object.heap().clone(), object.at());
        let mut index = Self::open_at(&heap, at, Some(object))?;
        index.durability = durability;
        Ok(index)
    }
}
