//! The tree: leaves as DRAM sees them, and point operations.
//!
//! *Lookup.* 1. The directory names the leaf that covers the key; its lock gives a stamp. 2. The key's hash names its home
//! line in the leaf; that line is read, and others only where its header says so. 3. If the stamp is still true, so is
//! the answer.
//!
//! *Change.* The same under the leaf's lock. A full leaf splits, and the change starts again.
//!
//! Invariants: a leaf's bounds never change while it is alive; a structure change ends its life in DRAM and begins another,
//! also where the block on the medium stays. Alive leaves cover every key exactly once.
//!
//! Order of locks: leaves from left to right, then the directory's.

use std::marker::PhantomData;
use std::sync::{Arc, PoisonError};

use lodestone_heap::Heap;
use lodestone_pmem::planted;
use lodestone_pmem::sync::RwLock;

use crate::anchor::Anchor;
use crate::cells::{self, Attempt, KeyKind, KeyRef, Level, Site, TableAt, Turn, VersionLock, Wish, with_key};
use crate::check::CheckReport;
use crate::directory::{Bounded, Directory};
use crate::error::Result;
use crate::fptree::layout::{HOME_SEED, TreeLeafAt};
use crate::fptree::open::TreeOptions;
use crate::layout::KEY_BYTES_MAX;
use crate::map::Durability;
use crate::medium::Medium;
use crate::recovery::Recovery;
use crate::traits::{IndexKey, OpenIndex, PointIndex, Swap};

/// A leaf in DRAM.
#[derive(Debug)]
pub(crate) struct TreeLeaf {
    pub(crate) at: TreeLeafAt,
    pub(crate) table: TableAt,
    /// Smallest key that belongs here, as bytes in order.
    pub(crate) low: Box<[u8]>,
    /// Smallest key that belongs to the next leaf; `None` in the last one.
    pub(crate) upper: Option<Box<[u8]>>,
    pub(crate) lock: VersionLock,
}

impl TreeLeaf {
    /// A leaf of `lines` lines at `at`.
    pub(crate) fn new(at: TreeLeafAt, lines: u32, low: Box<[u8]>, upper: Option<Box<[u8]>>) -> Self {
        Self { at, table: at.table(lines, low.len()), low, upper, lock: VersionLock::default() }
    }
}

impl Bounded for TreeLeaf {
    fn low(&self) -> &[u8] {
        &self.low
    }
}

/// A durable ordered index from `u64` or byte-string keys to `u64` values: leaves in persistent memory, everything above
/// them in DRAM.
///
/// ```
/// use std::ops::Bound;
/// use lodestone_heap::{Heap, HeapOptions};
/// use lodestone_index::{FpTree, OrderedIndex, PointIndex};
/// use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
///
/// let folder = tempfile::tempdir()?;
/// let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let pool = Pool::create(folder.path().join("example.pool"), &options)?;
/// let heap = Heap::open(&pool, &HeapOptions::default())?;
/// let tree: FpTree<u64> = FpTree::open(&heap, "orders")?;
/// tree.insert(&8, 800)?;
/// tree.insert(&7, 700)?;
/// let pairs: lodestone_index::Result<Vec<_>> = tree.range(Bound::Unbounded, Bound::Unbounded).collect();
/// assert_eq!(pairs?, [(7, 700), (8, 800)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FpTree<K: IndexKey + ?Sized> {
    pub(crate) heap: Heap,
    pub(crate) anchor: Anchor,
    pub(crate) kind: KeyKind,
    pub(crate) lines: u32,
    pub(crate) directory: RwLock<Directory<TreeLeaf>>,
    pub(crate) recovery: Recovery,
    pub(crate) durability: Durability,
    pub(crate) _keys: PhantomData<fn(&K)>,
}

impl<K: IndexKey + ?Sized> std::fmt::Debug for FpTree<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FpTree").field("anchor", &self.anchor).field("lines", &self.lines).finish_non_exhaustive()
    }
}

impl<K: IndexKey + ?Sized> FpTree<K> {
    pub(crate) fn medium(&self) -> Medium<'_> {
        Medium { memory: self.heap.memory(), path: self.heap.pool().path() }
    }

    /// The leaf that covers `key`, which is bytes in order, at this moment.
    #[inline]
    pub(crate) fn leaf_of(&self, key: &[u8]) -> Arc<TreeLeaf> {
        Arc::clone(self.directory.read().unwrap_or_else(PoisonError::into_inner).find(key))
    }

    fn find(&self, key: KeyRef<'_>) -> Result<Option<u64>> {
        let medium = self.medium();
        let hash = key.hash(HOME_SEED);
        let mut turn = Turn::default();
        loop {
            let leaf = key.with_order_bytes(|bytes| self.leaf_of(bytes));
            if let Some(stamp) = leaf.lock.stamp() {
                let answer = cells::find(leaf.table, medium, key, hash);
                // An answer, an error too, means something only if no writer came between.
                if leaf.lock.is_still(stamp) || planted::active("fptree-stale-leaf") {
                    let found = answer?;
                    if self.durability == Durability::Sync {
                        cells::settle(leaf.table, medium.memory, hash, found.map(|found| found.line))?;
                    }
                    return Ok(found.map(|found| found.value));
                }
            }
            turn.wait();
        }
    }

    fn change(&self, key: KeyRef<'_>, wish: Wish) -> Result<Option<u64>> {
        let medium = self.medium();
        cells::changeable(medium, key)?;
        let hash = key.hash(HOME_SEED);
        let mut turn = Turn::default();
        loop {
            let leaf = key.with_order_bytes(|bytes| self.leaf_of(bytes));
            if let Some(held) = leaf.lock.lock() {
                let attempt = self.attempt(&leaf, key, hash, wish)?;
                drop(held);
                let Attempt::Done { before, emptied } = attempt else {
                    key.with_order_bytes(|bytes| self.split(&leaf, bytes))?;
                    continue;
                };
                if emptied {
                    self.after_removal(&leaf);
                }
                if self.durability == Durability::Sync {
                    // What was found, also if nothing was changed, may be another thread's and in flight.
                    cells::settle(leaf.table, medium.memory, hash, None)?;
                    medium.memory.durable()?;
                }
                return Ok(before);
            }
            turn.wait();
        }
    }

    /// One attempt at a change, under the leaf's lock.
    fn attempt(&self, leaf: &TreeLeaf, key: KeyRef<'_>, hash: u64, wish: Wish) -> Result<Attempt> {
        let site = Site { heap: &self.heap, medium: self.medium(), kind: self.kind, table: leaf.table };
        if planted::active("fptree-lock-persisted") {
            cells::lock_on_medium(site.medium, leaf.at.0.plus(56), true)?;
        }
        let attempt = match (cells::find(leaf.table, site.medium, key, hash)?, wish.value) {
            (Some(found), _) => cells::change_pair(site, &found, wish)?,
            (None, Some(value)) if wish.inserts => {
                if cells::insert_pair(site, key, hash, value, Level::BUCKET)? {
                    Attempt::Done { before: None, emptied: false }
                } else {
                    Attempt::Full
                }
            }
            (None, _) => Attempt::Done { before: None, emptied: false },
        };
        if planted::active("fptree-lock-persisted") {
            cells::lock_on_medium(site.medium, leaf.at.0.plus(56), false)?;
        }
        Ok(attempt)
    }
}

impl<K: IndexKey + ?Sized> PointIndex for FpTree<K> {
    type Key = K;

    #[inline]
    fn get(&self, key: &K) -> Result<Option<u64>> {
        with_key(key, |key| self.find(key))
    }

    #[inline]
    fn insert(&self, key: &K, value: u64) -> Result<bool> {
        Ok(with_key(key, |key| self.change(key, Wish::insert(value)))?.is_none())
    }

    #[inline]
    fn update(&self, key: &K, value: u64) -> Result<Option<u64>> {
        with_key(key, |key| self.change(key, Wish::update(value)))
    }

    #[inline]
    fn upsert(&self, key: &K, value: u64) -> Result<Option<u64>> {
        with_key(key, |key| self.change(key, Wish::upsert(value)))
    }

    #[inline]
    fn remove(&self, key: &K) -> Result<Option<u64>> {
        with_key(key, |key| self.change(key, Wish::remove()))
    }

    fn compare_and_swap(&self, key: &K, current: u64, new: u64) -> Result<Swap> {
        let found = with_key(key, |key| self.change(key, Wish::exchange(current, new)))?;
        Ok(cells::swap_of(found, current))
    }

    /// Visits every leaf: exact while nobody changes the tree.
    fn len(&self) -> Result<u64> {
        let leaves: Vec<_> =
            self.directory.read().unwrap_or_else(PoisonError::into_inner).leaves().map(|leaf| leaf.table).collect();
        let memory = self.heap.memory();
        let lines = leaves.iter().flat_map(|table| table.lines());
        // A damaged header counts as empty until an operation needs it and reports it.
        Ok(lines.filter_map(|line| line.load(memory)).map(|meta| meta.count() as u64).sum())
    }

    fn key_bytes_max(&self) -> usize {
        if K::IS_WORD { size_of::<u64>() } else { KEY_BYTES_MAX }
    }

    fn sync(&self) -> Result<()> {
        Ok(self.heap.memory().durable()?)
    }

    fn check(&self) -> CheckReport {
        FpTree::check(self)
    }
}

impl<K: IndexKey + ?Sized> OpenIndex for FpTree<K> {
    type Options = TreeOptions;

    fn open_index(heap: &Heap, name: &str, options: &TreeOptions, durability: Durability) -> Result<Self> {
        let mut tree = Self::open_with(heap, name, options)?;
        tree.durability = durability;
        Ok(tree)
    }
}

/// Keeps the compiler honest: a tree is shared between threads.
const _: fn() = || {
    fn assert_shared<T: Send + Sync>() {}
    assert_shared::<FpTree<u64>>();
    assert_shared::<FpTree<[u8]>>();
};
