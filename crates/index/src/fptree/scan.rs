//! Reading the tree in order, forward and back, one leaf at a time.
//!
//! 1. The leaf that covers the next key is copied under a stamp and sorted; no lock is held.
//! 2. Unless relaxed, the copy waits until it is durable.
//! 3. The visitor sees the pairs inside the range.
//! 4. The next leaf begins at this one's upper bound (or ends at its lower one), whatever happened meanwhile.
//!
//! So keys ascend strictly, and each leaf's stretch is shown as it was at one moment.

use std::borrow::Borrow;
use std::ops::{Bound, ControlFlow};

use lodestone_pmem::WORD_BYTES;

use crate::bulk;
use crate::cells::Turn;
use crate::error::Result;
use crate::fptree::leaf::{Sought, TreeLeaf};
use crate::fptree::tree::FpTree;
use crate::map::Durability;
use crate::scan::{Direction, is_before_start, is_behind_end};
use crate::traits::{IndexKey, OrderedIndex};

type Edge = Bound<Vec<u8>>;

/// A leaf's bounds and pairs; keys are bytes in order.
struct Batch {
    low: Vec<u8>,
    upper: Option<Vec<u8>>,
    pairs: Vec<(Vec<u8>, u64)>,
}

fn edge_of<K: IndexKey + ?Sized>(bound: Bound<&K>) -> Edge {
    bound.map(|key| key.with_bytes(<[u8]>::to_vec))
}

fn edge_ref(edge: &Edge) -> Bound<&[u8]> {
    edge.as_ref().map(|key| &key[..])
}

impl<K: IndexKey + ?Sized> FpTree<K> {
    /// The leaf where a scan begins: that of the smallest key after `start`, or of the largest before `end`. Ask
    /// [`is_first_leaf`](Self::is_first_leaf) under a stamp.
    fn first_leaf(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, direction: Direction) -> &TreeLeaf {
        self.leaves.leaf(match (direction, start, end) {
            (Direction::Ascending, Bound::Unbounded, _) => 0,
            (Direction::Ascending, Bound::Included(key) | Bound::Excluded(key), _) => self.leaf_of(Sought::new(key)),
            (Direction::Descending, _, Bound::Unbounded) => self.last_leaf(),
            (Direction::Descending, _, Bound::Included(key)) => self.leaf_of(Sought::new(key)),
            (Direction::Descending, _, Bound::Excluded(key)) => self.leaf_before(Sought::new(key)),
        })
    }

    fn is_first_leaf(&self, leaf: &TreeLeaf, start: Bound<&[u8]>, end: Bound<&[u8]>, direction: Direction) -> bool {
        let covers = |key| self.leaves.covers::<K>(leaf, Sought::new(key));
        match (direction, start, end) {
            (Direction::Ascending, Bound::Unbounded, _) => leaf.is_first(),
            (Direction::Ascending, Bound::Included(key) | Bound::Excluded(key), _) => covers(key),
            (Direction::Descending, _, Bound::Unbounded) => leaf.next().is_none(),
            (Direction::Descending, _, Bound::Included(key)) => covers(key),
            (Direction::Descending, _, Bound::Excluded(key)) => self.leaves.covers_before::<K>(leaf, Sought::new(key)),
        }
    }

    /// A leaf of the scan with its pairs at one moment, in order.
    fn batch(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, direction: Direction) -> Result<Batch> {
        let mut turn = Turn::default();
        loop {
            let leaf = self.first_leaf(start, end, direction);
            if let Some(stamp) = leaf.lock.stamp()
                && self.is_first_leaf(leaf, start, end, direction)
            {
                let Some((at, table)) = leaf.place(stamp) else { continue };
                let (sorted, low, upper) = (self.sorted(table), leaf.low(), self.leaves.upper(leaf));
                if leaf.lock.is_still(stamp) {
                    let mut pairs: Vec<_> = sorted?.into_iter().map(|(key, pair)| (key, pair.value)).collect();
                    let is_inside = |key: &Vec<u8>| *key >= low && upper.as_ref().is_none_or(|upper| key < upper);
                    if !pairs.is_sorted_by(|left, right| left.0 < right.0)
                        || !pairs.iter().all(|(key, _)| is_inside(key))
                    {
                        let finding = "holds keys twice or outside its bounds";
                        return Err(self.medium().damaged(at.0, "tree leaf", finding));
                    }
                    if direction == Direction::Descending {
                        pairs.reverse();
                    }
                    if self.durability == Durability::Sync {
                        // No caller hears of anything that could still be lost; that keys are absent rests on the whole
                        // leaf, and on its link: they may have gone with a leaf that joined this one.
                        let memory = self.heap.memory();
                        memory.wait_durable(memory.flushed_at(at.next(), WORD_BYTES))?;
                        memory.wait_durable(memory.flushed_at(table.first, table.shape.bytes()))?;
                    }
                    return Ok(Batch { low, upper, pairs });
                }
            }
            turn.wait();
        }
    }
}

impl<K: IndexKey + ?Sized> OrderedIndex for FpTree<K> {
    fn scan(
        &self,
        start: Bound<&K>,
        end: Bound<&K>,
        direction: Direction,
        mut visit: impl FnMut(&K, u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        let (mut start, mut end) = (edge_of(start), edge_of(end));
        let mut seen = 0;
        loop {
            let Batch { low, upper, pairs } = self.batch(edge_ref(&start), edge_ref(&end), direction)?;
            for (key, value) in pairs {
                if is_before_start(&key, start.as_ref()) || is_behind_end(&key, end.as_ref()) {
                    continue;
                }
                let Some(key) = K::from_bytes(&key) else { continue };
                seen += 1;
                if visit(key.borrow(), value).is_break() {
                    return Ok(seen);
                }
            }
            match (direction, upper) {
                (Direction::Ascending, Some(upper)) if !is_behind_end(&upper, end.as_ref()) => {
                    start = Bound::Included(upper);
                }
                (Direction::Descending, _) if !low.is_empty() && !is_before_start(&low, start.as_ref()) => {
                    end = Bound::Excluded(low);
                }
                _ => return Ok(seen),
            }
        }
    }
    fn bulk_load<S>(&self, sorted: S) -> Result<u64>
    where
        S: IntoIterator<Item = (K::Owned, u64)>,
    {
        let load = |pairs: &[_], is_first| self.load_leaf_of(pairs, is_first);
        bulk::load_sorted(self, self.bulk_pairs(), sorted.into_iter(), load)
    }
}
