//! The ordered half of the hybrid: a tree in DRAM, two levels deep.
//!
//! A directory of leaves (the one of the ordered map, see `directory`), and leaves that are sorted arrays, each under
//! its own lock.
//!
//! Invariants: a leaf covers the keys from its `low`, which never changes, up to its `upper`. Alive leaves cover every
//! key once. A leaf that was merged away is dead, and a thread that finds it looks again.
//!
//! Order of locks: merges, leaves from left to right, the directory's. A thread that looks in the directory releases it
//! before it locks a leaf. Therefore it asks the leaf whether it still covers the key.

use std::borrow::Borrow;
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, PoisonError};

use lodestone_pmem::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard, lock};
use lodestone_width::to_u64;

use crate::directory::{Bounded, Directory};
use crate::scan::{Direction, is_before_start, is_behind_end};
use crate::traits::IndexKey;

/// A leaf.
struct Leaf<K: IndexKey + ?Sized> {
    low: Box<[u8]>,
    pairs: RwLock<Pairs<K>>,
}

/// The content of a leaf.
struct Pairs<K: IndexKey + ?Sized> {
    sorted: Vec<(K::Owned, u64)>,
    /// Where the next leaf begins; `None` in the last one.
    upper: Option<Box<[u8]>>,
    is_dead: bool,
}

impl<K: IndexKey + ?Sized> Bounded for Leaf<K> {
    fn low(&self) -> &[u8] {
        &self.low
    }
}

/// See the module text.
pub(super) struct Tree<K: IndexKey + ?Sized> {
    directory: RwLock<Directory<Leaf<K>>>,
    /// Most pairs of a leaf.
    leaf_pairs: usize,
    merges: Mutex<()>,
}

fn read<T>(locked: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    locked.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(locked: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    locked.write().unwrap_or_else(PoisonError::into_inner)
}

fn bytes_of<K: IndexKey + ?Sized>(key: &K) -> Box<[u8]> {
    key.with_bytes(|bytes| bytes.into())
}

/// The leaf at which a scan continues: the one that covers a key, the one that covers the keys before it, or the
/// outermost.
#[derive(Clone)]
enum Target {
    At(Box<[u8]>),
    Below(Box<[u8]>),
    Last,
}

impl<K: IndexKey + ?Sized> Leaf<K> {
    fn new(low: Box<[u8]>, sorted: Vec<(K::Owned, u64)>, upper: Option<Box<[u8]>>) -> Arc<Self> {
        Arc::new(Self { low, pairs: RwLock::new(Pairs { sorted, upper, is_dead: false }) })
    }
}

impl<K: IndexKey + ?Sized> Pairs<K> {
    fn covers(&self, target: &Target) -> bool {
        !self.is_dead
            && match (target, &self.upper) {
                (_, None) => true,
                (Target::At(key), Some(upper)) => key < upper,
                (Target::Below(key), Some(upper)) => key <= upper,
                (Target::Last, Some(_)) => false,
            }
    }

    /// Whether `key`, not below the leaf's lower bound, belongs here.
    fn covers_key(&self, key: &K) -> bool {
        let is_below = |upper: &[u8]| key.with_bytes(|key| key < upper);
        !self.is_dead && self.upper.as_deref().is_none_or(is_below)
    }

    fn position(&self, key: &K) -> Result<usize, usize> {
        self.sorted.binary_search_by(|(found, _)| Borrow::<K>::borrow(found).cmp(key))
    }
}

impl<K: IndexKey + ?Sized> Tree<K> {
    /// A tree of `sorted`, whose keys ascend strictly, in leaves of up to `leaf_pairs` pairs.
    pub(super) fn new(sorted: Vec<(K::Owned, u64)>, leaf_pairs: usize) -> Self {
        assert!(leaf_pairs >= 4, "a leaf that is split leaves two that are not empty");
        let each = leaf_pairs * 3 / 4;
        let mut leaves: Vec<Arc<Leaf<K>>> = Vec::with_capacity(sorted.len() / each + 1);
        let mut sorted = sorted.into_iter().peekable();
        let mut low: Box<[u8]> = Box::default();
        loop {
            let mut pairs = Vec::with_capacity(leaf_pairs);
            pairs.extend(sorted.by_ref().take(each));
            let next = sorted.peek().map(|(key, _)| bytes_of::<K>(key.borrow()));
            leaves.push(Leaf::new(low, pairs, next.clone()));
            match next {
                Some(next) => low = next,
                None => break,
            }
        }
        Self { directory: RwLock::new(Directory::new(leaves)), leaf_pairs, merges: Mutex::new(()) }
    }

    /// Sets the value of `key`.
    pub(super) fn put(&self, key: K::Owned, value: u64) {
        loop {
            let leaf = (*key.borrow()).with_bytes(|bytes| Arc::clone(read(&self.directory).find(bytes)));
            let mut pairs = write(&leaf.pairs);
            if !pairs.covers_key(key.borrow()) {
                continue;
            }
            match pairs.position(key.borrow()) {
                Ok(at) => pairs.sorted[at].1 = value,
                Err(at) if pairs.sorted.len() < self.leaf_pairs => pairs.sorted.insert(at, (key, value)),
                Err(at) => {
                    self.split(&mut pairs, at);
                    continue;
                }
            }
            return;
        }
    }

    /// Removes `key`, if it is there.
    pub(super) fn remove(&self, key: &K) {
        loop {
            let leaf = key.with_bytes(|bytes| Arc::clone(read(&self.directory).find(bytes)));
            let mut pairs = write(&leaf.pairs);
            if !pairs.covers_key(key) {
                continue;
            }
            if let Ok(at) = pairs.position(key) {
                pairs.sorted.remove(at);
            }
            let is_sparse = pairs.sorted.len() < self.leaf_pairs / 4 && !leaf.low.is_empty();
            drop(pairs);
            if is_sparse {
                self.merge(&leaf);
            }
            return;
        }
    }

    /// Moves the upper half of a full leaf to a new one. If the new key comes at the end of the last leaf, only the new
    /// key moves.
    #[cold]
    fn split(&self, pairs: &mut Pairs<K>, at: usize) {
        let appends = pairs.upper.is_none() && at == pairs.sorted.len();
        let from = if appends { pairs.sorted.len() - 1 } else { pairs.sorted.len() / 2 };
        let mut moved = Vec::with_capacity(self.leaf_pairs);
        moved.extend(pairs.sorted.drain(from..));
        let low = bytes_of::<K>(moved[0].0.borrow());
        let upper = pairs.upper.replace(low.clone());
        write(&self.directory).insert(Leaf::new(low, moved, upper));
    }

    /// Lets the left neighbour of a sparse leaf take its pairs, if they fit.
    #[cold]
    fn merge(&self, right: &Leaf<K>) {
        let _merges = lock(&self.merges);
        let Some(left) = read(&self.directory).find_before(&right.low).map(Arc::clone) else { return };
        let mut into = write(&left.pairs);
        let mut from = write(&right.pairs);
        let are_neighbours = !into.is_dead && !from.is_dead && into.upper.as_deref() == Some(&*right.low);
        if !are_neighbours || into.sorted.len() + from.sorted.len() > self.leaf_pairs * 3 / 4 {
            return;
        }
        into.sorted.append(&mut from.sorted);
        into.upper = from.upper.take();
        from.is_dead = true;
        write(&self.directory).remove(&right.low);
    }

    /// Shows `visit` the pairs between `start` and `end` until it breaks; how many it saw. Each leaf is read at one
    /// moment; no lock is held while `visit` runs.
    pub(super) fn scan(
        &self,
        start: Bound<&K>,
        end: Bound<&K>,
        direction: Direction,
        mut visit: impl FnMut(&K, u64) -> ControlFlow<()>,
    ) -> u64 {
        let mut target = match (direction, start, end) {
            (Direction::Ascending, Bound::Unbounded, _) => Target::At(Box::default()),
            (Direction::Ascending, Bound::Included(key) | Bound::Excluded(key), _) => Target::At(bytes_of(key)),
            (Direction::Descending, _, Bound::Unbounded) => Target::Last,
            (Direction::Descending, _, Bound::Included(key)) => Target::At(bytes_of(key)),
            (Direction::Descending, _, Bound::Excluded(key)) => Target::Below(bytes_of(key)),
        };
        let (mut batch, mut seen, mut is_first) = (Vec::new(), 0, true);
        loop {
            let Some(leaf) = self.leaf(&target) else { return seen };
            let pairs = read(&leaf.pairs);
            if !pairs.covers(&target) {
                continue;
            }
            batch.clear();
            // A leaf merged into this one meanwhile may have been shown: only keys beyond the target come.
            let is_beyond = |key: &K| {
                is_first
                    || match &target {
                        Target::At(from) => key.with_bytes(|key| key >= &**from),
                        Target::Below(from) => key.with_bytes(|key| key < &**from),
                        Target::Last => true,
                    }
            };
            let range = pairs.sorted.partition_point(|(key, _)| is_before_start(key.borrow(), start))
                ..pairs.sorted.partition_point(|(key, _)| !is_behind_end(key.borrow(), end));
            let inside = pairs.sorted.get(range).unwrap_or_default();
            batch.extend(inside.iter().filter(|(key, _)| is_beyond(key.borrow())).cloned());
            let next = match direction {
                Direction::Ascending => pairs.upper.clone().map(Target::At),
                Direction::Descending if leaf.low.is_empty() => None,
                Direction::Descending => Some(Target::Below(leaf.low.clone())),
            };
            drop(pairs);
            if direction == Direction::Descending {
                batch.reverse();
            }
            for (key, value) in &batch {
                seen += 1;
                if visit(key.borrow(), *value).is_break() {
                    return seen;
                }
            }
            let is_over = match &next {
                None => true,
                Some(Target::At(low)) => !may_hold(end, |end| **low <= *end),
                Some(Target::Below(low)) => !may_hold(start, |start| *start < **low),
                Some(Target::Last) => false,
            };
            match next {
                Some(next) if !is_over => (target, is_first) = (next, false),
                _ => return seen,
            }
        }
    }

    fn leaf(&self, target: &Target) -> Option<Arc<Leaf<K>>> {
        let directory = read(&self.directory);
        match target {
            Target::At(key) => Some(Arc::clone(directory.find(key))),
            Target::Below(key) => directory.find_before(key).map(Arc::clone),
            Target::Last => Some(Arc::clone(directory.last())),
        }
    }

    /// Pairs, and bytes of DRAM.
    pub(super) fn size(&self) -> (u64, u64) {
        let directory = read(&self.directory);
        let leaves: Vec<_> = directory.leaves().cloned().collect();
        let (mut count, mut bytes) = (0, directory.dram_bytes());
        // A thread that splits or merges a leaf holds it and waits for the directory.
        drop(directory);
        for leaf in leaves {
            let pairs = read(&leaf.pairs);
            count += to_u64(pairs.sorted.len());
            bytes += to_u64(pairs.sorted.capacity() * size_of::<(K::Owned, u64)>());
            if !K::IS_WORD {
                bytes += pairs.sorted.iter().map(|(key, _)| to_u64(Borrow::<K>::borrow(key).key_bytes())).sum::<u64>();
            }
        }
        (count, bytes)
    }
}

/// Whether `holds` is true of the bound's key; of no bound it is.
fn may_hold<K: IndexKey + ?Sized>(bound: Bound<&K>, holds: impl FnOnce(&[u8]) -> bool) -> bool {
    match bound {
        Bound::Unbounded => true,
        Bound::Included(key) | Bound::Excluded(key) => key.with_bytes(holds),
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// A count asks every leaf, while a leaf that splits waits for the directory.
    #[test]
    fn a_count_and_a_split_do_not_wait_for_each_other() {
        let tree = Arc::new(Tree::<u64>::new(Vec::new(), 4));
        let (done, is_done) = mpsc::channel();
        let writer = Arc::clone(&tree);
        let ended = done.clone();
        thread::spawn(move || {
            (0..20_000_u64).for_each(|key| writer.put(key.wrapping_mul(0x9E37_79B9_7F4A_7C15), key));
            ended.send(())
        });
        let counter = Arc::clone(&tree);
        thread::spawn(move || {
            while counter.size().0 < 20_000 {}
            done.send(())
        });
        for _ in 0..2 {
            is_done.recv_timeout(Duration::from_secs(60)).expect("both end");
        }
    }
}
