//! Rows of a leaf that is not loaded: a cold leaf may have some of its rows in DRAM.
//!
//! A row that is read alone may be *kept*: the leaf refers to its slot until the hand of the cache takes it. Later
//! looks find it here. When the hand has taken it, and when it is not kept, the leaf still finds the slot as long as a
//! thread holds it: a transaction that has read a row must meet the changes of others. When the leaf is loaded, its
//! rows are in these slots.

use std::sync::{Arc, Weak};

use lodestone_pages::Image;
use lodestone_pmem::sync::atomic::Ordering;
use lodestone_pmem::sync::lock;
use lodestone_width::{low_u32, to_u64};
use smallvec::SmallVec;

use super::Leaf;
use crate::slot::Slot;

/// A cold leaf keeps at most so many rows that were used when it was loaded: a look at one of them passes the others.
pub const ROWS_KEPT_MAX: usize = 8;
/// About how many bytes of DRAM a kept row takes beside its slot: here, and on the clock of the cache.
const KEPT_BYTES: u64 = 128;

/// More looks at a cold leaf are not counted.
const LOOKS_MAX: u32 = (1 << LOOKS_BITS) - 1;
const LOOKS_BITS: u32 = 2;
/// Bits that tell the row of the last look from others.
const TAG_BITS: u32 = 8;
const TIME_BITS: u32 = 32 - TAG_BITS - LOOKS_BITS;

/// A look at a row of a cold leaf that is not in DRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Whether the last look, not long ago, was at the same row.
    pub is_again: bool,
    /// How many looks at other rows than the one before it there were, each soon after that: up to [`LOOKS_MAX`].
    pub looks: u32,
}

/// How long a look counts.
#[derive(Clone, Copy, Debug)]
pub struct LookTurns {
    /// For the same row: the time in which as many rows are read as fit into the cache.
    pub row: u64,
    /// For other rows of the leaf twice as long as it counts: the time in which the hand of the cache passes all.
    pub leaf: u64,
}

/// Addresses of rows.
pub type FewRows = SmallVec<[usize; ROWS_KEPT_MAX]>;

/// The rows of a leaf that were used for themselves.
#[derive(Debug, PartialEq, Eq)]
pub enum UsedRows {
    None,
    /// They take at most two thirds of the memory: the leaf may become cold and keep those at these
    /// [addresses](Slot::address).
    Few(FewRows),
    Many,
}

/// Bytes that a kept row counts for the cache.
pub fn charge_of(slot: &Slot) -> u64 {
    to_u64(slot.bytes()) + KEPT_BYTES
}

/// The rows. Mostly there is none.
#[derive(Debug, Default)]
pub struct Early {
    rows: Option<Box<SmallVec<[Row; 1]>>>,
    /// Whether the cache has the leaf in its list of those that are to [forget](Leaf::forget_early) rows.
    is_listed: bool,
}

#[derive(Debug)]
struct Row {
    slot: Weak<Slot>,
    /// `None`: it is here as long as a thread holds it.
    kept: Option<Kept>,
    /// [Of its key](tag_of).
    tag: u32,
}

/// Tells most keys from each other: so a look for a row does not wait for the keys of the others, which are elsewhere
/// in DRAM.
fn tag_of(key: &[u8]) -> u32 {
    crc32c::crc32c(key)
}

#[derive(Debug)]
struct Kept {
    slot: Arc<Slot>,
    /// Bytes that it counts for the cache.
    charged: u64,
}

/// A row of a cold leaf.
#[derive(Debug)]
pub enum EarlyRow {
    /// Another thread has read it.
    Present(Arc<Slot>),
    /// It was read, and is kept: it counts so many bytes.
    Kept((Arc<Slot>, u64)),
    /// It was read, and is not kept.
    Held(Arc<Slot>),
}

/// The end of a pass of the hand at a row.
#[derive(Debug, PartialEq, Eq)]
pub enum EarlyPass {
    /// It was used, and stays.
    Used,
    /// It is not kept any more, and has counted so many bytes. A thread may still hold it.
    Taken(u64),
    /// It was not kept any more before.
    Gone,
}

impl Early {
    pub fn keeping(rows: Vec<(Arc<Slot>, u64)>) -> Self {
        let mut early = Self::default();
        rows.into_iter().for_each(|(slot, charged)| early.add(&slot, Some(charged)));
        early
    }

    fn rows(&self) -> &[Row] {
        self.rows.as_deref().map_or(&[], SmallVec::as_slice)
    }

    /// `charged`: it is kept, and counts so many bytes.
    fn add(&mut self, slot: &Arc<Slot>, charged: Option<u64>) {
        let rows = self.rows.get_or_insert_default();
        rows.retain(|row| row.slot.strong_count() > 0);
        let kept = charged.map(|charged| Kept { slot: slot.clone(), charged });
        rows.push(Row { slot: Arc::downgrade(slot), kept, tag: tag_of(slot.key()) });
    }

    fn find(&self, key: &[u8]) -> Option<Arc<Slot>> {
        let tag = tag_of(key);
        self.rows().iter().filter(|row| row.tag == tag).find_map(|row| match &row.kept {
            Some(kept) => (**kept.slot.key() == *key).then(|| kept.slot.clone()),
            None => row.slot.upgrade().filter(|slot| **slot.key() == *key),
        })
    }

    /// Forgets rows that no thread holds. Returns whether others are left that are not kept.
    fn forget(&mut self) -> bool {
        let Some(rows) = &mut self.rows else { return false };
        rows.retain(|row| row.slot.strong_count() > 0);
        rows.shrink_to_fit();
        let is_held = rows.iter().any(|row| row.kept.is_none());
        if rows.is_empty() {
            self.rows = None;
        }
        is_held
    }

    /// No row is kept any more. Returns how many bytes they counted.
    fn take_all(&mut self) -> u64 {
        let rows = self.rows.iter_mut().flat_map(|rows| rows.iter_mut());
        rows.filter_map(|row| row.kept.take()).map(|kept| kept.charged).sum()
    }

    /// The leaf is loaded: its rows, by key, are in these slots from now on, in which threads see changes. Returns how
    /// many bytes they counted.
    pub fn move_to(&mut self, slots: &mut [Arc<Slot>]) -> u64 {
        let (mut charged, rows) = (0, self.rows.take());
        for row in rows.into_iter().flat_map(|rows| rows.into_iter()) {
            charged += row.kept.as_ref().map_or(0, |kept| kept.charged);
            if let Some(early) = row.slot.upgrade()
                && let Ok(number) = slots.binary_search_by(|slot| slot.key().cmp(early.key()))
            {
                slots[number] = early;
            }
        }
        charged
    }
}

impl Leaf {
    /// The row with `key`, if the leaf is not loaded and has it in DRAM.
    pub fn find_early(&self, key: &[u8]) -> Option<Arc<Slot>> {
        let early = lock(&self.early);
        let slot = early.find(key).filter(|_| !self.is_loaded())?;
        slot.note_use();
        Some(slot)
    }

    /// Whether the row with `key` is in DRAM, or all rows are.
    pub fn is_in_memory(&self, key: &[u8]) -> bool {
        let early = lock(&self.early);
        self.is_loaded() || early.find(key).is_some()
    }

    /// The row with `key` of a leaf that is not loaded. If it is not in DRAM, `read` reads it from the image, and says
    /// how many bytes it counts for the cache if it is to be kept from now on. `None`: the leaf is loaded, or `read`
    /// finds no such row in the image.
    pub fn early_row(
        &self,
        key: &[u8],
        read: impl FnOnce(&Image) -> Option<(Arc<Slot>, Option<u64>)>,
    ) -> Option<EarlyRow> {
        // As in `load`: the image counts.
        let mut early = lock(&self.early);
        if self.is_loaded() {
            return None;
        }
        if let Some(slot) = early.find(key) {
            slot.note_use();
            return Some(EarlyRow::Present(slot));
        }
        let (slot, charged) = read(&self.page.home()?)?;
        early.add(&slot, charged);
        Some(match charged {
            Some(charged) => EarlyRow::Kept((slot, charged)),
            None => EarlyRow::Held(slot),
        })
    }

    /// Notes a look at the row with `key`, which is not in DRAM, at the time `now`.
    pub fn note_look(&self, key: &[u8], now: u64, turns: LookTurns) -> Look {
        const TIME_MASK: u32 = (1 << TIME_BITS) - 1;
        let (now, tag) = (low_u32(now) & TIME_MASK, tag_of(key) >> (32 - TAG_BITS));
        let before = self.looked.load(Ordering::Relaxed);
        let looks = before & LOOKS_MAX;
        // A mistake when the time has gone round does no harm, and neither does one of two threads at the same time.
        let age = u64::from(now.wrapping_sub(before >> (TAG_BITS + LOOKS_BITS)) & TIME_MASK);
        let is_again = looks > 0 && (before >> LOOKS_BITS) & ((1 << TAG_BITS) - 1) == tag && age < turns.row;
        let looks = match age < turns.leaf.div_ceil(2) {
            true if is_again => looks,
            true => (looks + 1).min(LOOKS_MAX),
            false => 1,
        };
        self.looked.store((now << TAG_BITS | tag) << LOOKS_BITS | looks, Ordering::Relaxed);
        Look { is_again, looks }
    }

    /// The hand of the cache passes a row.
    pub fn pass_early(&self, row: &Weak<Slot>, must_go: bool) -> EarlyPass {
        let mut early = lock(&self.early);
        let Some(row) = early.rows.iter_mut().flat_map(|rows| rows.iter_mut()).find(|early| early.slot.ptr_eq(row))
        else {
            return EarlyPass::Gone;
        };
        match &row.kept {
            None => EarlyPass::Gone,
            Some(kept) if kept.slot.take_use() && !must_go => EarlyPass::Used,
            Some(_) => {
                let charged = row.kept.take().map_or(0, |kept| kept.charged);
                early.forget();
                EarlyPass::Taken(charged)
            }
        }
    }

    /// Notes that the cache lists the leaf. Returns whether it did not before.
    pub fn list_early(&self) -> bool {
        !std::mem::replace(&mut lock(&self.early).is_listed, true)
    }

    /// Forgets rows that were read early and that no thread holds. Returns whether the leaf stays in the list of the
    /// cache: there are others, or another thread reads one now, for whose page this one does not wait.
    pub fn forget_early(&self) -> bool {
        let Ok(mut early) = self.early.try_lock() else { return true };
        early.is_listed = early.forget();
        early.is_listed
    }

    /// Bytes that it counts for the cache.
    #[cfg(test)]
    pub fn charged(&self) -> u64 {
        let early = || lock(&self.early).rows().iter().filter_map(|row| Some(row.kept.as_ref()?.charged)).sum();
        self.body.get().map_or_else(early, |body| body.charged.load(Ordering::Relaxed))
    }

    /// It counts nothing for the cache any more, and keeps no row. Returns how many bytes it counted.
    pub fn uncharge(&self) -> u64 {
        match self.body.get() {
            Some(_) => self.charge(0),
            None => lock(&self.early).take_all(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leaf::{Page, Purged, Span};

    #[test]
    fn looks_at_one_row_are_told_from_looks_at_many() {
        let span = Span { low: b""[..].into(), high: None };
        let leaf = Leaf::cold(span, Purged::default(), Page::new(None, false));
        let look = |key: &[u8], now| {
            let Look { is_again, looks } = leaf.note_look(key, now, LookTurns { row: 64, leaf: 64 });
            (is_again, looks)
        };
        assert_eq!(look(b"a", 5), (false, 1));
        assert_eq!(look(b"a", 10), (true, 1));
        assert_eq!(look(b"b", 41), (false, 2));
        assert_eq!(look(b"a", 72), (false, 3));
        assert_eq!(look(b"b", 72), (false, LOOKS_MAX));
        // Soon enough for the same row, and not for others.
        assert_eq!(look(b"b", 72 + 63), (true, 1));
        assert_eq!(look(b"b", 72 + 63 + 64), (false, 1));
        assert_eq!(look(b"a", 72 + 63 + 64 + 32), (false, 1));
        // The time goes round.
        let end = (1 << TIME_BITS) - 1;
        assert_eq!(look(b"a", end), (false, 1));
        assert_eq!(look(b"b", end + 2), (false, 2));
        assert_eq!(look(b"b", end + 4), (true, 2));
    }
}
