//! A B+-tree: entries in linked leaves of [`SLOTS`] entries, separators above.
//!
//! 1. A descent notes the path. A full leaf is split in two, and the separator goes into the parent, which may split
//!    too.
//! 2. A remove takes the entry out of its leaf and leaves the leaf where it is, empty or not. With keys from a fixed
//!    range an emptied leaf is filled again, and neighbours need no locks for a merge.
//!
//! Invariant: every key of a subtree is at least the separator before it and below the one after it.

use lodestone_stm::PmObject;
use lodestone_workload::engine::EngineError;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Entries, Head, Map, find_head, make_head};
use crate::tm::{Object, Reading, Ref, TransactionalMemory, Writing};

/// The B+-tree.
#[derive(Debug, Clone, Copy, Default)]
pub struct BTree;

/// Entries of a leaf, separators of an inner node: a node has 240 bytes, with a header of 16 four lines.
const SLOTS: usize = 14;
/// Levels that are possible below 2^64 keys with half-full nodes, and a few more.
const LEVELS_MAX: usize = 24;
const LEAF: u64 = 1 << 32;

/// A leaf or an inner node.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[pm(name = "bench.BTreePage")]
struct Page {
    /// Number of entries, and [`LEAF`].
    meta: u64,
    /// Of a leaf: the next leaf. Of an inner node: the child before the first separator.
    first: u64,
    keys: [u64; SLOTS],
    /// Of a leaf: values. Of an inner node: the children after the separators.
    slots: [u64; SLOTS],
}

impl Object for Page {}

impl Page {
    const EMPTY_LEAF: Self = Self { meta: LEAF, first: 0, keys: [0; SLOTS], slots: [0; SLOTS] };

    #[inline]
    fn is_leaf(&self) -> bool {
        self.meta & LEAF != 0
    }

    #[inline]
    fn count(&self) -> usize {
        ((self.meta & 0xFFFF) as usize).min(SLOTS)
    }

    fn set_count(&mut self, count: usize) {
        self.meta = (self.meta & LEAF) | count as u64;
    }

    /// Number of keys that are below `key`, or equal to it where `or_equal` says so.
    #[inline]
    fn rank(&self, key: u64, or_equal: bool) -> usize {
        let keys = &self.keys[..self.count()];
        keys.iter().filter(|&&found| found < key || (or_equal && found == key)).count()
    }

    /// The child for `key`.
    #[inline]
    fn child(&self, key: u64) -> Ref<Page> {
        let rank = self.rank(key, true);
        Ref::from_raw(if rank == 0 { self.first } else { self.slots[rank - 1] })
    }

    /// The position of `key` in a leaf.
    #[inline]
    fn position(&self, key: u64) -> Option<usize> {
        self.keys[..self.count()].iter().position(|&found| found == key)
    }

    /// Inserts an entry at its position. The page must have room.
    fn put(&mut self, key: u64, slot: u64) {
        let (at, count) = (self.rank(key, false), self.count());
        self.keys.copy_within(at..count, at + 1);
        self.slots.copy_within(at..count, at + 1);
        self.keys[at] = key;
        self.slots[at] = slot;
        self.set_count(count + 1);
    }

    /// Takes the entry at `at` out.
    fn take(&mut self, at: usize) {
        let count = self.count();
        self.keys.copy_within(at + 1..count, at);
        self.slots.copy_within(at + 1..count, at);
        self.set_count(count - 1);
    }

    /// Moves the upper half into a new page. Returns that page and its separator.
    fn split(&mut self) -> (u64, Self) {
        let (count, half) = (self.count(), self.count() / 2);
        let mut upper = Self { meta: self.meta & LEAF, ..Self::EMPTY_LEAF };
        // An inner node's middle separator moves up instead of over: its child becomes the first of the upper half.
        let from = if self.is_leaf() { half } else { half + 1 };
        upper.keys[..count - from].copy_from_slice(&self.keys[from..count]);
        upper.slots[..count - from].copy_from_slice(&self.slots[from..count]);
        upper.set_count(count - from);
        let separator = self.keys[half];
        upper.first = if self.is_leaf() { self.first } else { self.slots[half] };
        self.set_count(half);
        (separator, upper)
    }
}

/// The pages from the root to the leaf of a key.
struct Path {
    pages: [Ref<Page>; LEVELS_MAX],
    depth: usize,
    leaf: Page,
}

impl Path {
    /// The leaf's reference, if the tree is not empty.
    fn leaf_at(&self) -> Option<Ref<Page>> {
        self.depth.checked_sub(1).map(|last| self.pages[last])
    }
}

#[inline]
fn descend<X: Reading>(head: Ref<Head>, tx: &mut X, key: u64) -> Result<Path, X::Abort> {
    let mut path = Path { pages: [Ref::NULL; LEVELS_MAX], depth: 0, leaf: Page::EMPTY_LEAF };
    let mut at = Ref::<Page>::from_raw(tx.read(head)?.first);
    while !at.is_null() && path.depth < LEVELS_MAX {
        path.pages[path.depth] = at;
        path.depth += 1;
        let page = tx.read(at)?;
        if page.is_leaf() {
            path.leaf = page;
            break;
        }
        at = page.child(key);
    }
    Ok(path)
}

/// Splits the full page at `level` of the path around a new entry and tells the level above.
fn split_upwards<X: Writing>(head: Ref<Head>, tx: &mut X, path: &Path, key: u64, slot: u64) -> Result<(), X::Abort> {
    let (mut key, mut slot) = (key, slot);
    for level in (0..path.depth).rev() {
        let at = path.pages[level];
        let page = tx.read(at)?;
        if page.count() < SLOTS {
            return tx.write(at, |page| page.put(key, slot));
        }
        let mut lower = page;
        let (separator, mut upper) = lower.split();
        if key < separator {
            lower.put(key, slot)
        } else {
            upper.put(key, slot)
        }
        let upper_at = tx.alloc(upper)?;
        if lower.is_leaf() {
            lower.first = upper_at.to_raw();
        }
        tx.write(at, |page| *page = lower)?;
        (key, slot) = (separator, upper_at.to_raw());
    }
    let mut root = Page { meta: 0, first: path.pages[0].to_raw(), ..Page::EMPTY_LEAF };
    root.put(key, slot);
    let root = tx.alloc(root)?;
    tx.write(head, |head| head.first = root.to_raw())
}

impl BTree {
    /// Replaces the value of `key` by `value` and returns the old one. If the key is absent, changes nothing and
    /// returns `None`.
    ///
    /// # Errors
    /// An abort.
    pub fn replace<X: Writing>(
        map: &<Self as Map>::Handle,
        tx: &mut X,
        key: u64,
        value: u64,
    ) -> Result<Option<u64>, X::Abort> {
        let path = descend(*map, tx, key)?;
        let (Some(at), Some(position)) = (path.leaf_at(), path.leaf.position(key)) else { return Ok(None) };
        tx.write(at, |page| page.slots[position] = value)?;
        Ok(Some(path.leaf.slots[position]))
    }

    /// Calls `visit` with the value of each key from `start` on, ascending, until it returns false.
    ///
    /// # Errors
    /// An abort, also one that `visit` returns.
    pub fn scan<X: Reading>(
        map: &<Self as Map>::Handle,
        tx: &mut X,
        start: u64,
        mut visit: impl FnMut(&mut X, u64, u64) -> Result<bool, X::Abort>,
    ) -> Result<(), X::Abort> {
        let mut leaf = descend(*map, tx, start)?.leaf;
        loop {
            for position in leaf.rank(start, false)..leaf.count() {
                if !visit(tx, leaf.keys[position], leaf.slots[position])? {
                    return Ok(());
                }
            }
            if leaf.first == 0 {
                return Ok(());
            }
            leaf = tx.read(Ref::from_raw(leaf.first))?;
        }
    }
}

impl Map for BTree {
    type Handle = Ref<Head>;

    fn name(&self) -> &'static str {
        "btree"
    }

    fn create<M: TransactionalMemory>(&self, memory: &M, slot: usize) -> Result<Ref<Head>, EngineError> {
        make_head(memory, slot)
    }

    fn open<M: TransactionalMemory>(&self, memory: &M, slot: usize) -> Result<Ref<Head>, EngineError> {
        find_head(memory, slot)
    }

    #[inline]
    fn get<X: Reading>(map: &Ref<Head>, tx: &mut X, key: u64) -> Result<Option<u64>, X::Abort> {
        let leaf = descend(*map, tx, key)?.leaf;
        Ok(leaf.position(key).map(|position| leaf.slots[position]))
    }

    fn insert<X: Writing>(map: &Ref<Head>, tx: &mut X, key: u64, value: u64) -> Result<bool, X::Abort> {
        let path = descend(*map, tx, key)?;
        let Some(at) = path.leaf_at() else {
            let mut leaf = Page::EMPTY_LEAF;
            leaf.put(key, value);
            let leaf = tx.alloc(leaf)?;
            tx.write(*map, |head| head.first = leaf.to_raw())?;
            return Ok(true);
        };
        if path.leaf.position(key).is_some() {
            return Ok(false);
        }
        if path.leaf.count() < SLOTS {
            tx.write(at, |leaf| leaf.put(key, value))?;
        } else {
            split_upwards(*map, tx, &path, key, value)?;
        }
        Ok(true)
    }

    fn remove<X: Writing>(map: &Ref<Head>, tx: &mut X, key: u64) -> Result<bool, X::Abort> {
        let path = descend(*map, tx, key)?;
        let (Some(at), Some(position)) = (path.leaf_at(), path.leaf.position(key)) else { return Ok(false) };
        tx.write(at, |leaf| leaf.take(position))?;
        Ok(true)
    }

    fn entries<X: Reading>(map: &Ref<Head>, tx: &mut X) -> Result<Entries, X::Abort> {
        let mut all = Entries { objects: 1, ..Entries::default() };
        let mut todo = vec![(tx.read(*map)?.first, 0, u64::MAX)];
        while let Some((at, from, to)) = todo.pop() {
            if at == 0 {
                continue;
            }
            let page = tx.read(Ref::<Page>::from_raw(at))?;
            all.objects += 1;
            let keys = &page.keys[..page.count()];
            if !keys.is_sorted() || keys.iter().any(|&key| key < from || key > to) {
                all.fault = Some(format!("page {at:#x} holds keys outside of {from}..={to}: {keys:?}"));
            }
            if page.is_leaf() {
                all.pairs.extend(keys.iter().copied().zip(page.slots));
                continue;
            }
            // The leftmost child is visited first, so it is pushed last.
            for index in (0..page.count()).rev() {
                let end = keys.get(index + 1).map_or(to, |next| next - 1);
                todo.push((page.slots[index], keys[index], end));
            }
            todo.push((page.first, from, keys.first().map_or(to, |first| first.saturating_sub(1))));
        }
        if !all.pairs.is_sorted_by_key(|(key, _)| *key) {
            all.fault = Some("leaves are out of order".into());
        }
        Ok(all)
    }
}
