//! Reading in order: leaf by leaf.
//!
//! 1. The leaf that covers the next key is read at one moment: its entries within the range, copied, and its bounds.
//! 2. If the tree was opened so, the copies wait until they would survive power loss.
//! 3. The visitor sees them; no lock is held.
//! 4. The scan goes on at the leaf's high bound (low bound, descending): by the leaf's link if the leaf there still begins at that
//!    bound, else by a search, so what happens to leaves meanwhile does not matter.
//!
//! Keys come in strictly ascending (descending) order because only what lies beyond that bound is copied next: the leaf there may have
//! merged with the one before it meanwhile.

use std::borrow::Borrow;
use std::ops::{Bound, ControlFlow};

use lodestone_pmem::{PmAddr, WORD_BYTES};

use crate::error::Result;
use crate::fastfair::FastFair;
use crate::fastfair::keys;
use crate::fastfair::node::{DEAD, Entry, Header, NodeAt};
use crate::fastfair::read::Target;
use crate::scan::Direction;
use crate::traits::IndexKey;

/// Copies of one leaf's entries.
struct Batch<K: IndexKey + ?Sized> {
    entries: Vec<Entry>,
    pairs: Vec<(K::Owned, u64)>,
    /// Blocks of keys that the copies rest on.
    blocks: Vec<u64>,
    leaf: PmAddr,
    bytes: u64,
    low: Option<K::Owned>,
    high: Option<K::Owned>,
    /// The right sibling and the word of its low bound.
    next: (PmAddr, u64),
}

impl<K: IndexKey + ?Sized> Batch<K> {
    fn new() -> Self {
        let (entries, pairs, blocks) = (Vec::new(), Vec::new(), Vec::new());
        Self { entries, pairs, blocks, leaf: PmAddr::NULL, bytes: 0, low: None, high: None, next: (PmAddr::NULL, 0) }
    }
}

fn is_before<K: Ord + ?Sized>(key: &K, start: Bound<&K>) -> bool {
    match start {
        Bound::Unbounded => false,
        Bound::Included(bound) => key < bound,
        Bound::Excluded(bound) => key <= bound,
    }
}

fn is_behind<K: Ord + ?Sized>(key: &K, end: Bound<&K>) -> bool {
    match end {
        Bound::Unbounded => false,
        Bound::Included(bound) => key > bound,
        Bound::Excluded(bound) => key >= bound,
    }
}

impl<K: IndexKey + ?Sized> FastFair<K> {
    pub(super) fn scan_range(
        &self,
        start: Bound<&K>,
        end: Bound<&K>,
        direction: Direction,
        mut visit: impl FnMut(&K, u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        let mut batch = Batch::new();
        // Pinned to the end: the way to the next leaf is the link of this one, if it still is the next.
        let _pin = self.readers.pin();
        let mut seen = 0;
        let mut from: Option<K::Owned> = None;
        loop {
            let target = match (direction, &from) {
                (Direction::Ascending, Some(key)) => Target::At(key.borrow()),
                (Direction::Descending, Some(key)) => Target::Below(key.borrow()),
                (Direction::Ascending, None) => match start {
                    Bound::Included(key) | Bound::Excluded(key) => Target::At(key),
                    Bound::Unbounded => Target::First,
                },
                (Direction::Descending, None) => match end {
                    Bound::Included(key) => Target::At(key),
                    Bound::Excluded(key) => Target::Below(key),
                    Bound::Unbounded => Target::Last,
                },
            };
            // The leaf at the bound may have swallowed what was shown already: only what lies beyond the bound comes.
            let (from_start, to_end) = match (direction, &from) {
                (Direction::Ascending, Some(key)) => (Bound::Included(key.borrow()), end),
                (Direction::Descending, Some(key)) => (start, Bound::Excluded(key.borrow())),
                (_, None) => (start, end),
            };
            if !(direction == Direction::Ascending
                && from.is_some()
                && self.fill_next(&mut batch, from_start, to_end)?)
            {
                self.at_leaf(target, |header| self.copy(&mut batch, header, from_start, to_end))?;
            }
            self.settle(batch.leaf, batch.bytes)?;
            batch.blocks.iter().try_for_each(|block| self.settle(PmAddr::from_raw(*block), 3 * WORD_BYTES))?;
            for turn in 0..batch.pairs.len() {
                let turn = if direction == Direction::Ascending { turn } else { batch.pairs.len() - 1 - turn };
                let (key, value) = &batch.pairs[turn];
                seen += 1;
                if visit(key.borrow(), *value).is_break() {
                    return Ok(seen);
                }
            }
            from = match direction {
                Direction::Ascending => batch.high.take().filter(|high| !is_behind(high.borrow(), end)),
                Direction::Descending => batch.low.take().filter(|low| !is_before(low.borrow(), start)),
            };
            if from.is_none() {
                return Ok(seen);
            }
        }
    }

    /// Copies the right sibling of the leaf that was copied last, if it still begins where that one ended.
    fn fill_next(&self, batch: &mut Batch<K>, start: Bound<&K>, end: Bound<&K>) -> Result<bool> {
        let (medium, (next, low)) = (self.medium(), batch.next);
        self.stripes.read(next, || {
            let header = Header::load(medium, next)?;
            if header.stamp == DEAD || header.level != 0 || header.low != low {
                return Ok(false);
            }
            header.verify_bounds(medium)?;
            self.copy(batch, &header, start, end).map(|()| true)
        })
    }

    fn copy(&self, batch: &mut Batch<K>, header: &Header, start: Bound<&K>, end: Bound<&K>) -> Result<()> {
        let medium = self.medium();
        batch.pairs.clear();
        batch.blocks.clear();
        (batch.leaf, batch.bytes) = (header.at.0, NodeAt::bytes(header.lines));
        batch.next = (header.next, header.high);
        batch.high = if header.next.is_null() { None } else { Some(keys::bound_key::<K>(medium, header.high)?) };
        batch.low = if header.low == 0 { None } else { Some(keys::bound_key::<K>(medium, header.low)?) };
        self.live_entries(header, &mut batch.entries)?;
        for entry in &batch.entries {
            let key = keys::key_of::<K>(medium, *entry)?;
            if !is_before(key.borrow(), start) && !is_behind(key.borrow(), end) {
                batch.pairs.push((key, keys::value_of::<K>(medium, *entry)?));
                if !K::IS_WORD {
                    batch.blocks.push(entry.1);
                }
            }
        }
        Ok(())
    }

    /// The entries of a leaf in order, every line verified, without the copies that a crash in the split of a line left: what
    /// is not below the line behind it.
    pub(super) fn live_entries(&self, header: &Header, live: &mut Vec<Entry>) -> Result<()> {
        live.clear();
        for position in 0..header.order.count() {
            let line = header.verified_line(self.medium(), position)?;
            if line.count() == 0 {
                continue;
            }
            let first = line.entry(0);
            // A string's copies name the same block.
            let is_copy = |last: &mut Entry| {
                if K::IS_WORD { last.0 >= first.0 } else { line.entries().any(|entry| entry.1 == last.1) }
            };
            while live.pop_if(is_copy).is_some() {}
            live.extend(line.entries());
        }
        Ok(())
    }
}
