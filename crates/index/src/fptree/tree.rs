//! The tree: leaves as DRAM sees them, and point operations.
//!
//! *Lookup.*
//! 1. The guide names the leaf that covers the key, as far as it knows; the leaf's lock returns a stamp.
//! 2. The leaf is asked whether it covers the key. If not, the guide was just changing and is asked again.
//! 3. The key's hash names its home line in the leaf. That line is read, and others only where its header says so.
//! 4. If the stamp is still true, so is the answer. A lookup writes no memory that another thread reads.
//!
//! *Change.* The same under the leaf's lock. A full leaf splits, and the change starts again.
//!
//! Invariants: alive leaves cover every key exactly once; each is in the guide, but while the change that made it is
//! under way.
//!
//! Order of locks: leaves from left to right, then the guide's.

use std::marker::PhantomData;

use lodestone_heap::Heap;

use lodestone_pmem::{WORD_BYTES, planted};
use lodestone_store::{Object, Store};
use lodestone_width::{exact_u32, to_u64};

use crate::anchor::Anchor;
use crate::cells::{self, Attempt, KeyKind, KeyRef, Level, LineAt, Site, TableAt, Turn, Wish, with_key};
use crate::check::IndexReport;
use crate::error::Result;
use crate::fptree::layout::{HOME_SEED, TreeLeafAt};
use crate::fptree::leaf::{Leaves, Sought};
use crate::fptree::open::TreeOptions;
use crate::guide::{Asker, Guide};
use crate::map::Durability;
use crate::medium::IndexMemory;
use crate::recovery::Recovery;
use crate::scan::Direction;
use crate::traits::{IndexKey, OpenIndex, OrderedIndex, PointIndex, Swap};

/// Asks the guide for the leaf that covers a key, or, if `before`, the keys before it.
struct Question<'t, K: IndexKey + ?Sized> {
    leaves: &'t Leaves,
    key: Sought<'t>,
    before: bool,
    _keys: PhantomData<fn(&K)>,
}

impl<K: IndexKey + ?Sized> Asker for Question<'_, K> {
    const IS_WORD: bool = K::IS_WORD;

    fn is_above(&self, place: u64) -> bool {
        let order = self.leaves.leaf(exact_u32(place)).compare_low::<K>(self.key);
        order.is_gt() || self.before && order.is_eq()
    }
}

/// A durable ordered index from `u64` or byte-string keys to `u64` values: leaves in persistent memory, everything
/// above them in DRAM.
///
/// ```
/// use std::ops::Bound;
/// use lodestone_store::Store;
/// use lodestone_index::{FpTree, OrderedIndex, PointIndex};
/// use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
///
/// let folder = tempfile::tempdir()?;
/// let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let pool = Pool::create(folder.path().join("example.pool"), &options)?;
/// let store = Store::over(&pool)?;
/// let tree: FpTree<u64> = FpTree::open(&store, "orders")?;
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
    /// The leaves as DRAM sees them.
    pub(crate) leaves: Leaves,
    /// Their lower bounds, in order, with their numbers.
    pub(crate) guide: Guide,
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
    pub(crate) fn medium(&self) -> IndexMemory<'_> {
        IndexMemory::of(&self.heap, self.anchor.at)
    }

    /// Number of the leaf that covers `key` at this moment, as far as the guide knows; ask it again under a stamp or
    /// the lock.
    #[inline]
    pub(crate) fn leaf_of(&self, key: Sought<'_>) -> u32 {
        self.ask(key.word, key, false)
    }

    /// As [`leaf_of`](Self::leaf_of), of the largest key below `key`; the first leaf if there is none.
    pub(crate) fn leaf_before(&self, key: Sought<'_>) -> u32 {
        let word = if K::IS_WORD { key.word.saturating_sub(1) } else { key.word };
        self.ask(word, key, true)
    }

    /// As [`leaf_of`](Self::leaf_of), of the largest key of all.
    pub(crate) fn last_leaf(&self) -> u32 {
        self.guide.floor(u64::MAX).map_or(0, |(_, number)| exact_u32(number))
    }

    #[inline]
    fn ask(&self, word: u64, key: Sought<'_>, before: bool) -> u32 {
        let question = Question::<K> { leaves: &self.leaves, key, before, _keys: PhantomData };
        self.guide.floor_by(word, &question).map_or(0, |(_, number)| exact_u32(number))
    }

    /// Lets the guide name the leaf `number`, which begins at `low`.
    pub(crate) fn enter(&self, number: u32, low: &[u8]) {
        let key = Sought::new(low);
        let question = Question::<K> { leaves: &self.leaves, key, before: false, _keys: PhantomData };
        self.guide.insert_by(key.word, u64::from(number), &question);
    }

    /// Takes the leaf `number`, which begins at `low`, out of the guide.
    pub(crate) fn leave(&self, number: u32, low: &[u8]) {
        let key = Sought::new(low);
        let question = Question::<K> { leaves: &self.leaves, key, before: false, _keys: PhantomData };
        self.guide.remove_by(key.word, u64::from(number), &question);
    }

    fn find(&self, key: KeyRef<'_>) -> Result<Option<u64>> {
        let hash = key.hash(HOME_SEED);
        key.with_order_bytes(|bytes| self.find_in_leaf(key, hash, Sought::new(bytes)))
    }

    #[inline]
    fn find_in_leaf(&self, key: KeyRef<'_>, hash: u64, sought: Sought<'_>) -> Result<Option<u64>> {
        let medium = self.medium();
        let mut turn = Turn::default();
        loop {
            let leaf = self.leaves.leaf(self.leaf_of(sought));
            let asked_early = planted::active("fptree-bounds-before-stamp") && self.leaves.covers::<K>(leaf, sought);
            if let Some(stamp) = leaf.lock.stamp()
                // After the stamp: the descriptor may have been reused for another leaf since the guide named it.
                && (asked_early || self.leaves.covers::<K>(leaf, sought))
            {
                let Some((at, table)) = leaf.place(stamp) else { continue };
                let answer = cells::find(table, medium, key, hash);
                // An answer, an error too, means something only if no writer came between.
                if leaf.lock.is_still(stamp) || planted::active("fptree-stale-leaf") {
                    let found = answer?;
                    self.settle(at, table, hash, found.map(|found| found.line))?;
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
        key.with_order_bytes(|bytes| self.change_in_leaf(key, hash, Sought::new(bytes), wish))
    }

    fn change_in_leaf(&self, key: KeyRef<'_>, hash: u64, sought: Sought<'_>, wish: Wish) -> Result<Option<u64>> {
        let medium = self.medium();
        let mut turn = Turn::default();
        loop {
            let number = self.leaf_of(sought);
            let leaf = self.leaves.leaf(number);
            let asked_early = planted::active("fptree-bounds-before-lock") && self.leaves.covers::<K>(leaf, sought);
            if let Some(held) = leaf.lock.lock()
                && (asked_early || self.leaves.covers::<K>(leaf, sought))
            {
                let (at, table) = (leaf.at(), leaf.table());
                let attempt = self.attempt(at, table, key, hash, wish)?;
                // Asked now: without the lock the descriptor may be another leaf's already.
                let joins = matches!(attempt, Attempt::Done { emptied: true, .. }) && self.wants_to_join(leaf);
                drop(held);
                let Attempt::Done { before, .. } = attempt else {
                    self.split(number, sought)?;
                    continue;
                };
                if joins {
                    self.join_left(number);
                }
                // The state found, even if nothing was changed, may be another thread's and in flight.
                self.settle(at, table, hash, None)?;
                if self.durability == Durability::Sync {
                    medium.memory.durable()?;
                }
                return Ok(before);
            }
            turn.wait();
        }
    }

    /// Waits until an answer about a key with this hash would survive power loss, if the tree was opened so: the line
    /// of what was `found`; for an absence all lines where the key could be in the leaf at `at`, and its link: the key
    /// may have gone with a leaf that joined this one.
    fn settle(&self, at: TreeLeafAt, table: TableAt, hash: u64, found: Option<LineAt>) -> Result<()> {
        if self.durability == Durability::Sync {
            let memory = self.heap.memory();
            cells::settle(table, memory, hash, found)?;
            if found.is_none() {
                memory.wait_durable(memory.flushed_at(at.next(), WORD_BYTES))?;
            }
        }
        Ok(())
    }

    /// Number of pairs.
    fn count(&self) -> Result<u64> {
        let (mut turn, mut from, mut count) = (Turn::default(), Vec::new(), 0);
        loop {
            let Some((found, upper)) = self.count_from(&from)? else {
                turn.wait();
                continue;
            };
            count += found;
            match upper {
                Some(upper) => from = upper,
                None => return Ok(count),
            }
        }
    }

    /// Number of pairs from `from` on in the leaf that covers it, and where that leaf ends, at one moment; `None` when
    /// a writer came between.
    fn count_from(&self, from: &[u8]) -> Result<Option<(u64, Option<Vec<u8>>)>> {
        let sought = Sought::new(from);
        let leaf = self.leaves.leaf(self.leaf_of(sought));
        let Some(stamp) = leaf.lock.stamp() else { return Ok(None) };
        let (covers, upper) = (self.leaves.covers::<K>(leaf, sought), self.leaves.upper(leaf));
        let begins_before = leaf.compare_low::<K>(sought).is_lt();
        let Some((_, table)) = leaf.place(stamp).filter(|_| covers) else { return Ok(None) };
        let found = if begins_before {
            // It took in a leaf meanwhile: keys before `from` were counted.
            self.sorted(table).map(|sorted| sorted.iter().filter(|(key, _)| &key[..] >= from).count())
        } else {
            Ok(self.count_in(table))
        };
        // A number, an error too, means something only if no writer came between: the lines may be another leaf's.
        if !leaf.lock.is_still(stamp) {
            return Ok(None);
        }
        found.map(|found| Some((to_u64(found), upper)))
    }

    /// One attempt at a change, under the leaf's lock.
    fn attempt(&self, at: TreeLeafAt, table: TableAt, key: KeyRef<'_>, hash: u64, wish: Wish) -> Result<Attempt> {
        let site = Site { heap: &self.heap, medium: self.medium(), kind: self.kind, table };
        if planted::active("fptree-lock-persisted") {
            cells::lock_on_medium(site.medium, at.0.plus(56), true)?;
        }
        let attempt = match (cells::find(table, site.medium, key, hash)?, wish.value) {
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
            cells::lock_on_medium(site.medium, at.0.plus(56), false)?;
        }
        Ok(attempt)
    }
}

impl<K: IndexKey + ?Sized> PointIndex for FpTree<K> {
    type Key = K;

    crate::change::operations_by_wish!();

    /// Visits every leaf: exact while no thread changes the tree. Does not wait until the counted keys are durable.
    fn len(&self) -> Result<u64> {
        self.count()
    }

    fn is_empty(&self) -> Result<bool> {
        // A scan returns only data that would survive.
        Ok(self.outermost(Direction::Ascending)?.is_none())
    }

    fn check(&self) -> IndexReport {
        FpTree::check(self)
    }
}

impl<K: IndexKey + ?Sized> OpenIndex for FpTree<K> {
    type Options = TreeOptions;

    fn open_index(store: &Store, name: &str, options: &TreeOptions, durability: Durability) -> Result<Self> {
        let mut tree = Self::open_with(store, name, options)?;
        tree.durability = durability;
        Ok(tree)
    }

    fn open_object(object: Object, options: &TreeOptions, durability: Durability) -> Result<Self> {
        let (heap, at) = (object.heap().clone(), object.at());
        let mut tree = Self::open_at(&heap, at, Some(object), options)?;
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

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {

    use lodestone_pmem::{DomainChoice, Pool, PoolOptions};

    use super::*;

    /// The leaves of which the first was counted already merge before the second one is.
    #[test]
    fn a_count_counts_no_pair_twice_when_leaves_merge_behind_it() -> std::result::Result<(), Box<dyn std::error::Error>>
    {
        let folder = tempfile::tempdir()?;
        let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
        let store = Store::over(&Pool::create(folder.path().join("a.pool"), &options)?)?;
        let tree =
            FpTree::<u64>::open_with(&store, "tree", &TreeOptions { lines_per_leaf: 2, ..TreeOptions::default() })?;
        // Six pairs fill a leaf; the seventh begins another one.
        (0..10).try_for_each(|key| tree.insert(&key, key).map(drop))?;
        (2..6).try_for_each(|key| tree.remove(&key).map(drop))?;
        assert_eq!(tree.check().leaves, 2);
        let (first, upper) = tree.count_from(&[])?.ok_or("nobody writes")?;
        let upper = upper.ok_or("a second leaf")?;
        (6..10).try_for_each(|key| tree.remove(&key).map(drop))?;
        assert_eq!(tree.check().leaves, 1);
        tree.insert(&9, 9)?;
        let (second, end) = tree.count_from(&upper)?.ok_or("nobody writes")?;
        assert_eq!((first, second, end), (2, 1, None));
        assert_eq!(tree.len()?, 3);
        Ok(())
    }
}
