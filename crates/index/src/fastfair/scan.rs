//! Reading in order: leaf by leaf.
//!
//! 1. The leaf that covers the next key is read at one moment: its entries within the range, copied, and its bounds.
//! 2. If the tree was opened so, the copies wait until they would survive power loss.
//! 3. The visitor sees them; no lock is held.
//!    While it sees them, the leaves that follow are on their way from the medium: the guide names them (`Ahead`).
//! 4. The scan continues at the leaf's high bound (low bound, descending): by the leaf's link if the leaf there still
//!    begins at that bound, else by a search. So changes of leaves meanwhile do not matter.
//!
//! Keys come in strictly ascending (descending) order because only keys beyond that bound are copied next: the leaf
//! there may have merged with the one before it meanwhile.

use std::borrow::Borrow;
use std::ops::{Bound, ControlFlow};

use lodestone_pmem::{PmAddr, WORD_BYTES};

use crate::error::{Error, Result};
use crate::fastfair::FastFair;
use crate::fastfair::keys;
use crate::fastfair::node::{DEAD, Entry, EntryList, Header, Line, NodeAt};
use crate::fastfair::read::Target;
use crate::scan::{Direction, is_before_start, is_behind_end};
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

/// Leaves that an ascending scan is about to come to, as the guide knows them: they are asked for before their turn, so
/// that the medium works on several of them at once. Hints only: the scan itself follows the links.
struct Ahead {
    places: [u64; AHEAD_PLACES],
    /// Places that are known; how many of them were asked for; the one whose turn is next.
    known: usize,
    asked: usize,
    next: usize,
    /// Leaves that are asked for before their turn: a scan that goes on gets further ahead, for its first leaf may be
    /// all of it.
    window: usize,
    /// Word of the last key of the scan.
    until: u64,
}

/// Places that one look at the guide returns.
const AHEAD_PLACES: usize = 8;
/// Leaves that are on their way at a time.
const AHEAD_LEAVES: usize = 3;

impl Ahead {
    const fn new(until: u64) -> Self {
        Self { places: [0; AHEAD_PLACES], known: 0, asked: 0, next: 0, window: 2, until }
    }
}

impl<K: IndexKey + ?Sized> FastFair<K> {
    /// Starts at the leaf for `key`; that leaf, if the guide knows it.
    #[inline]
    fn look_ahead(&self, ahead: &mut Ahead, key: u64) -> Option<PmAddr> {
        if !K::IS_WORD {
            return None;
        }
        ahead.known = self.guide.run(key, ahead.until, &mut ahead.places);
        (ahead.asked, ahead.next) = (0, 0);
        self.ask_ahead(ahead);
        (ahead.known > 0).then(|| PmAddr::from_raw(ahead.places[0]))
    }

    /// Asks for the leaves in the window.
    #[inline]
    fn ask_ahead(&self, ahead: &mut Ahead) {
        let memory = self.heap.memory();
        while ahead.asked < ahead.known.min(ahead.next + ahead.window) {
            memory.prefetch(PmAddr::from_raw(ahead.places[ahead.asked]), NodeAt::bytes(self.lines));
            ahead.asked += 1;
        }
    }

    /// A leaf was copied that ends at `high`, the next key of the scan.
    #[inline]
    fn go_ahead(&self, ahead: &mut Ahead, high: u64) {
        ahead.next += 1;
        ahead.window = (ahead.window + 1).min(AHEAD_LEAVES);
        if ahead.next + 1 < ahead.known {
            self.ask_ahead(ahead);
        } else {
            self.look_ahead(ahead, high);
        }
    }

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
        let mut ahead = Ahead::new(match end {
            Bound::Included(key) | Bound::Excluded(key) => key.order_word(),
            Bound::Unbounded => u64::MAX,
        });
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
            // The leaf at the bound may have merged with one that was shown already: only keys beyond the bound come.
            let (from_start, to_end) = match (direction, &from) {
                (Direction::Ascending, Some(key)) => (Bound::Included(key.borrow()), end),
                (Direction::Descending, Some(key)) => (start, Bound::Excluded(key.borrow())),
                (_, None) => (start, end),
            };
            match (direction, &from) {
                (Direction::Ascending, Some(_)) if self.fill_next(&mut batch, from_start, to_end)? => {}
                (Direction::Ascending, None) => {
                    let hint = self.look_ahead(&mut ahead, Self::word_of(target));
                    self.at_hinted_leaf(hint, target, |header| self.copy(&mut batch, header, from_start, to_end))?;
                }
                _ => self.at_leaf(target, |header| self.copy(&mut batch, header, from_start, to_end))?,
            }
            if K::IS_WORD && direction == Direction::Ascending && !batch.next.0.is_null() {
                self.go_ahead(&mut ahead, batch.next.1);
            }
            self.settle(batch.leaf, batch.bytes)?;
            batch.blocks.iter().try_for_each(|block| self.settle(PmAddr::from_raw(*block), 3 * WORD_BYTES))?;
            let (shown, flow) = self.show(&batch, (from_start, to_end), direction, &mut visit)?;
            seen += shown;
            if flow.is_break() {
                return Ok(seen);
            }
            from = match direction {
                Direction::Ascending => batch.high.take().filter(|high| !is_behind_end(high.borrow(), end)),
                Direction::Descending => batch.low.take().filter(|low| !is_before_start(low.borrow(), start)),
            };
            if from.is_none() {
                return Ok(seen);
            }
        }
    }

    /// Shows the copies in the range. Returns how many, and the visitor's answer.
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
        // Words order as their keys do, so the entries in the range are contiguous. All of them are, but for the first
        // leaf and the last one.
        let first = match start {
            Bound::Included(key) if batch.entries.first().is_some_and(|entry| entry.0 < key.order_word()) => {
                batch.entries.partition_point(|entry| entry.0 < key.order_word())
            }
            Bound::Excluded(key) => batch.entries.partition_point(|entry| entry.0 <= key.order_word()),
            Bound::Unbounded | Bound::Included(_) => 0,
        };
        let last = match end {
            Bound::Unbounded => batch.entries.len(),
            Bound::Included(key) => batch.entries.partition_point(|entry| entry.0 <= key.order_word()),
            Bound::Excluded(key) => batch.entries.partition_point(|entry| entry.0 < key.order_word()),
        };
        let entries = &batch.entries[first.min(last)..last];
        let mut one = |entry: &Entry| -> Result<bool> {
            let key = keys::key_of::<K>(medium, *entry)?;
            shown += 1;
            Ok(visit(key.borrow(), entry.1).is_continue())
        };
        // Two loops: in one the direction would be asked for each entry.
        let mut goes_on = true;
        if ascends {
            for entry in entries {
                goes_on = one(entry)?;
                if !goes_on {
                    break;
                }
            }
        } else {
            for entry in entries.iter().rev() {
                goes_on = one(entry)?;
                if !goes_on {
                    break;
                }
            }
        }
        Ok((shown, if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }))
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
            self.verify_size(&header)?;
            self.copy(batch, &header, start, end).map(|()| true)
        })
    }

    fn copy(&self, batch: &mut Batch<K>, header: &Header, start: Bound<&K>, end: Bound<&K>) -> Result<()> {
        let medium = self.medium();
        batch.pairs.clear();
        batch.blocks.clear();
        (batch.leaf, batch.bytes) = (header.at.0, NodeAt::bytes(header.lines));
        batch.next = (header.follow(medium)?, header.high);
        if !K::IS_WORD {
            // While the copies of this leaf are shown, the next one comes.
            medium.memory.prefetch(batch.next.0, NodeAt::bytes(header.lines));
        }
        batch.high = if header.next.is_null() { None } else { Some(keys::bound_key::<K>(medium, header.high)?) };
        batch.low = if header.low == 0 { None } else { Some(keys::bound_key::<K>(medium, header.low)?) };
        // The next leaf of a scan begins at this bound: one that does not ascend would lead in a circle.
        let ascends = match (&batch.low, &batch.high) {
            (_, None) => true,
            (Some(low), Some(high)) => low < high,
            (None, Some(_)) => header.high != 0,
        };
        if !ascends {
            return Err(medium.damaged(header.at.0, "bounds of a tree node", "do not ascend"));
        }
        self.live_entries(header, &mut batch.entries)?;
        if K::IS_WORD {
            let below_high = |entry: &Entry| header.next.is_null() || entry.0 < header.high;
            let ascends = batch.entries.ascends()
                && batch.entries.first().is_none_or(|first| first.0 >= header.low)
                && batch.entries.last().is_none_or(below_high);
            return if ascends { Ok(()) } else { Err(self.disordered(header)) };
        }
        // The reader continues after this key, so it must not be before the last one.
        let mut last: Option<K::Owned> = None;
        for entry in batch.entries.iter() {
            let key = keys::key_of::<K>(medium, *entry)?;
            let is_low = match &last {
                Some(last) => *last >= key,
                None => batch.low.as_ref().is_some_and(|low| *low > key),
            };
            if is_low || batch.high.as_ref().is_some_and(|high| *high <= key) {
                return Err(self.disordered(header));
            }
            if !is_before_start(key.borrow(), start) && !is_behind_end(key.borrow(), end) {
                batch.pairs.push((key.clone(), keys::value_of::<K>(medium, *entry)?));
                batch.blocks.push(entry.1);
            }
            last = Some(key);
        }
        Ok(())
    }

    #[cold]
    fn disordered(&self, header: &Header) -> Error {
        self.medium().damaged(header.at.0, "leaf of a tree", "holds keys that do not ascend between its bounds")
    }

    /// The entries of a leaf in order, every line verified, without the copies that a crash in the split of a line
    /// left: whatever is not below the line after it.
    #[inline]
    pub(super) fn live_entries(&self, header: &Header, live: &mut EntryList) -> Result<()> {
        live.clear();
        // Only a leaf that was not written since the open can hold leftovers of a crash.
        let has_copies = header.stamp != self.boot;
        let medium = self.medium();
        let Some(lines) = header.lines(medium) else { return Err(header.nowhere(medium)) };
        let damaged = if has_copies {
            (0..header.order.count()).find(|position| {
                Self::drop_copies(&lines.line(*position), live);
                !lines.append(*position, live)
            })
        } else {
            lines.append_first(header.order.count(), live)
        };
        damaged.map_or(Ok(()), |position| Err(lines.line(position).damaged(medium)))
    }

    /// Takes what `line`, which is verified next, holds, too, off the end of the entries before it.
    #[cold]
    pub(crate) fn drop_copies(line: &Line, live: &mut EntryList) {
        if line.count() == 0 {
            return;
        }
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
