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
use crate::fastfair::node::{DEAD, Entry, EntryList, Header, Line, NodeAt};
use crate::fastfair::read::Target;
use crate::scan::Direction;
use crate::traits::IndexKey;

/// Copies of one leaf's entries.
struct Batch<K: IndexKey + ?Sized> {
    entries: EntryList,
    /// Keys and values, where keys are not words.
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
        let (entries, pairs, blocks) = (EntryList::new(), Vec::new(), Vec::new());
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
            let (shown, flow) = self.show(&batch, (from_start, to_end), direction, &mut visit)?;
            seen += shown;
            if flow.is_break() {
                return Ok(seen);
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

    /// Shows the copies in the range; how many, and what the visitor said.
    #[inline]
    fn show(
        &self,
        batch: &Batch<K>,
        (start, end): (Bound<&K>, Bound<&K>),
        direction: Direction,
        visit: &mut impl FnMut(&K, u64) -> ControlFlow<()>,
    ) -> Result<(u64, ControlFlow<()>)> {
        let ascends = direction == Direction::Ascending;
        let mut shown = 0;
        if !K::IS_WORD {
            for turn in 0..batch.pairs.len() {
                let (key, value) = &batch.pairs[if ascends { turn } else { batch.pairs.len() - 1 - turn }];
                shown += 1;
                if visit(key.borrow(), *value).is_break() {
                    return Ok((shown, ControlFlow::Break(())));
                }
            }
            return Ok((shown, ControlFlow::Continue(())));
        }
        let medium = self.medium();
        for turn in 0..batch.entries.len() {
            let entry = batch.entries[if ascends { turn } else { batch.entries.len() - 1 - turn }];
            let key = keys::key_of::<K>(medium, entry)?;
            if !is_before(key.borrow(), start) && !is_behind(key.borrow(), end) {
                shown += 1;
                if visit(key.borrow(), entry.1).is_break() {
                    return Ok((shown, ControlFlow::Break(())));
                }
            }
        }
        Ok((shown, ControlFlow::Continue(())))
    }

    /// Copies the right sibling of the leaf that was copied last, if it still begins where that one ended.
    fn fill_next(&self, batch: &mut Batch<K>, start: Bound<&K>, end: Bound<&K>) -> Result<bool> {
        let (medium, (next, low)) = (self.medium(), batch.next);
        if next.is_null() {
            return Ok(false);
        }
        self.stripes.read(next, || {
            let header = Header::load_leaf(medium, next)?;
            if header.stamp == DEAD || header.level != 0 || header.low != low {
                return Ok(false);
            }
            self.copy(batch, &header, start, end).map(|()| true)
        })
    }

    fn copy(&self, batch: &mut Batch<K>, header: &Header, start: Bound<&K>, end: Bound<&K>) -> Result<()> {
        let medium = self.medium();
        batch.pairs.clear();
        batch.blocks.clear();
        (batch.leaf, batch.bytes) = (header.at.0, NodeAt::bytes(header.lines));
        batch.next = (header.follow(medium)?, header.high);
        // While the copies of this leaf are shown, the next one comes.
        medium.memory.prefetch(batch.next.0, NodeAt::bytes(header.lines));
        batch.high = if header.next.is_null() { None } else { Some(keys::bound_key::<K>(medium, header.high)?) };
        batch.low = if header.low == 0 { None } else { Some(keys::bound_key::<K>(medium, header.low)?) };
        self.live_entries(header, &mut batch.entries)?;
        if K::IS_WORD {
            return Ok(());
        }
        for entry in batch.entries.iter() {
            let key = keys::key_of::<K>(medium, *entry)?;
            if !is_before(key.borrow(), start) && !is_behind(key.borrow(), end) {
                batch.pairs.push((key, keys::value_of::<K>(medium, *entry)?));
                batch.blocks.push(entry.1);
            }
        }
        Ok(())
    }

    /// The entries of a leaf in order, every line verified, without the copies that a crash in the split of a line left: what
    /// is not below the line behind it.
    #[inline]
    pub(super) fn live_entries(&self, header: &Header, live: &mut EntryList) -> Result<()> {
        live.truncate(0);
        // Only a leaf that was not written in this life can hold what a crash left.
        let has_copies = header.stamp != self.boot;
        for position in 0..header.order.count() {
            let line = header.verified_line(self.medium(), position)?;
            let count = line.count();
            if count > 0 && has_copies {
                Self::drop_copies(&line, live);
            }
            for index in 0..count {
                live.push(line.entry(index));
            }
        }
        Ok(())
    }

    /// Takes what `line` holds, too, off the end of the entries before it.
    #[cold]
    fn drop_copies(line: &Line, live: &mut EntryList) {
        let first = line.entry(0);
        // A string's copies name the same block.
        let is_copy = |last: &Entry| {
            if K::IS_WORD { last.0 >= first.0 } else { line.entries().any(|entry| entry.1 == last.1) }
        };
        while live.last().is_some_and(is_copy) {
            live.truncate(live.len() - 1);
        }
    }
}
