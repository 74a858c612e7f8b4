//! A leaf as DRAM sees it: its lock, and under the lock a tag and the address of each record.
//!
//! 1. `open` makes an unloaded leaf from the frame on the medium: address, lower bound, successor.
//! 2. The first operation that locks it *loads* it: reads its slots and the keys that they name, and keeps for each
//!    slot the record's address and a 16-bit tag of the key. From then on a point operation reads the medium only where
//!    a tag matches. It reads the record itself, and in one of a thousand operations a second one.
//! 3. A scan keeps the order of keys it found until an insert or a removal makes it stale; an update does not.
//!
//! Invariants, while the lock is free:
//! - a loaded state equals the slots on the medium;
//! - a leaf that is alive covers the keys from `low` (inclusive, fixed for its life) to `upper` (exclusive), and the
//!   alive leaves cover every key exactly once;
//! - a dead leaf stays dead: a thread that finds one looks in the directory again.

use lodestone_pmem::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use lodestone_pmem::{PmAddr, planted};
use lodestone_width::{exact_u8, low_u16, to_usize};

use crate::error::Result;
use crate::layout::{LeafAt, RecordHead, SLOTS_LIMIT};
use crate::medium::IndexMemory;

/// The tag of a key: 16 bits of a checksum of it.
#[inline]
pub(crate) fn tag_of(key: &[u8]) -> u16 {
    let crc = crc32c::crc32c(key);
    low_u16(u64::from(crc ^ (crc >> 16)))
}

/// A leaf in DRAM.
pub(crate) struct Leaf {
    pub(crate) at: LeafAt,
    pub(crate) slots: usize,
    pub(crate) low: Box<[u8]>,
    state: RwLock<LeafState>,
}

/// The state that the lock of a leaf guards.
pub(crate) struct LeafState {
    pub(crate) alive: bool,
    loaded: bool,
    ordered: bool,
    pub(crate) upper: Option<Box<[u8]>>,
    pub(crate) next: PmAddr,
    used: u64,
    damaged: u64,
    slots: u8,
    tags: [u16; SLOTS_LIMIT],
    order: [u8; SLOTS_LIMIT],
    addrs: [PmAddr; SLOTS_LIMIT],
}

/// A record found in a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) slot: usize,
    pub(crate) at: PmAddr,
    pub(crate) head: RecordHead,
}

fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let slot = to_usize(mask.trailing_zeros());
        mask &= mask.wrapping_sub(1);
        (slot < 64).then_some(slot)
    })
}

impl Leaf {
    /// A leaf on the medium that no thread has used yet.
    pub(crate) fn unloaded(at: LeafAt, slots: usize, low: Box<[u8]>, next: PmAddr, upper: Option<Box<[u8]>>) -> Self {
        let state = LeafState {
            alive: true,
            loaded: false,
            ordered: false,
            upper,
            next,
            used: 0,
            damaged: 0,
            slots: exact_u8(slots),
            tags: [0; SLOTS_LIMIT],
            order: [0; SLOTS_LIMIT],
            addrs: [PmAddr::NULL; SLOTS_LIMIT],
        };
        Self { at, slots, low, state: RwLock::new(state) }
    }

    /// A leaf that this thread has just written: `records` are in its first slots.
    pub(crate) fn fresh(
        at: LeafAt,
        slots: usize,
        low: Box<[u8]>,
        next: PmAddr,
        upper: Option<Box<[u8]>>,
        records: &[(u16, PmAddr)],
    ) -> Self {
        let mut leaf = Self::unloaded(at, slots, low, next, upper);
        let state = leaf.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.loaded = true;
        for (slot, &(tag, record)) in records.iter().enumerate() {
            state.put(slot, tag, record);
        }
        leaf
    }

    /// Bytes of the leaf on the medium.
    pub(crate) fn bytes(&self) -> u64 {
        LeafAt::bytes(self.slots, self.low.len())
    }

    /// Locks the leaf for reading, and loads it first if needed.
    #[inline]
    pub(crate) fn read(&self, medium: IndexMemory<'_>) -> Result<RwLockReadGuard<'_, LeafState>> {
        loop {
            let state = self.state.read().unwrap_or_else(std::sync::PoisonError::into_inner);
            if state.loaded || !state.alive {
                return Ok(state);
            }
            drop(state);
            drop(self.write(medium)?);
        }
    }

    /// Locks the leaf for changes, and loads it first if needed.
    #[inline]
    pub(crate) fn write(&self, medium: IndexMemory<'_>) -> Result<RwLockWriteGuard<'_, LeafState>> {
        let mut state = self.state.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !state.loaded && state.alive {
            state.load(self.at, medium);
        }
        Ok(state)
    }

    /// Locks the leaf for reading with its order known, so that a scan can go through it.
    pub(crate) fn read_ordered(&self, medium: IndexMemory<'_>) -> Result<RwLockReadGuard<'_, LeafState>> {
        loop {
            let state = self.read(medium)?;
            if state.ordered || !state.alive {
                return Ok(state);
            }
            drop(state);
            let mut state = self.write(medium)?;
            if state.alive {
                state.sort(self.at, &self.low, medium)?;
            }
        }
    }
}

impl LeafState {
    /// Whether `key`, which is not below the leaf's lower bound, belongs here.
    #[inline]
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        let stale_is_fine = planted::active("index-stale-leaf");
        stale_is_fine || (self.alive && self.upper.as_ref().is_none_or(|upper| key < &upper[..]))
    }

    /// Number of slots.
    pub(crate) fn capacity(&self) -> usize {
        usize::from(self.slots)
    }

    /// Address of the record in `slot`.
    pub(crate) fn addr(&self, slot: usize) -> PmAddr {
        self.addrs[slot]
    }

    /// Number of records, damaged ones included.
    pub(crate) fn count(&self) -> usize {
        to_usize(self.used.count_ones())
    }

    /// An empty slot.
    #[inline]
    pub(crate) fn free_slot(&self) -> Option<usize> {
        let slot = to_usize((!self.used).trailing_zeros());
        (slot < usize::from(self.slots)).then_some(slot)
    }

    /// The empty slots, ascending.
    pub(crate) fn free_slots(&self) -> impl Iterator<Item = usize> + use<> {
        let slots = usize::from(self.slots);
        bits(!self.used).take_while(move |&slot| slot < slots)
    }

    /// Notes that `slot` holds the record at `at`.
    #[inline]
    pub(crate) fn put(&mut self, slot: usize, tag: u16, at: PmAddr) {
        self.ordered = self.ordered && self.used & (1 << slot) != 0;
        self.used |= 1 << slot;
        self.tags[slot] = tag;
        self.addrs[slot] = at;
    }

    /// Notes that `slot` is empty.
    #[inline]
    pub(crate) fn clear(&mut self, slot: usize) {
        self.ordered = false;
        self.used &= !(1 << slot);
        self.addrs[slot] = PmAddr::NULL;
    }

    /// Tags and addresses of the records, by slot.
    pub(crate) fn records(&self) -> impl Iterator<Item = (usize, u16, PmAddr)> + '_ {
        bits(self.used).map(|slot| (slot, self.tags[slot], self.addrs[slot]))
    }

    /// The record of `key`, whose tag is `tag`.
    ///
    /// # Errors
    /// When the key is not found but a record of the leaf is damaged: it may have been this one.
    #[inline]
    pub(crate) fn find(&self, leaf: LeafAt, medium: IndexMemory<'_>, key: &[u8], tag: u16) -> Result<Option<Found>> {
        for slot in bits(self.candidates(tag)) {
            let at = self.addrs[slot];
            if let Some(head) = medium.match_key(at, key)? {
                return Ok(Some(Found { slot, at, head }));
            }
        }
        if self.damaged == 0 { Ok(None) } else { self.intact(leaf, medium).map(|()| None) }
    }

    /// Used and intact slots whose tag is `tag`.
    #[inline]
    fn candidates(&self, tag: u16) -> u64 {
        // Written so that the compiler compares eight and more tags at once: first bytes of 0 or 1, then eight of them
        // to eight bits by a multiplication that shifts byte i to bit 56 + i.
        const GATHER: u64 = 0x0102_0408_1020_4080;
        let mut equal = [0_u8; SLOTS_LIMIT];
        for (equal, &found) in equal.iter_mut().zip(&self.tags) {
            *equal = u8::from(found == tag);
        }
        let mut mask = 0;
        for (group, bytes) in equal.as_chunks::<8>().0.iter().enumerate() {
            mask |= (u64::from_le_bytes(*bytes).wrapping_mul(GATHER) >> 56) << (8 * group);
        }
        mask & self.used & !self.damaged
    }

    /// `Ok` when no record of the leaf is damaged, else the error of the first that is.
    pub(crate) fn intact(&self, leaf: LeafAt, medium: IndexMemory<'_>) -> Result<()> {
        let Some(slot) = bits(self.damaged).next() else { return Ok(()) };
        let record = medium.slot(leaf, slot)?;
        if record.is_null() {
            return Err(medium.damaged(leaf.slot(slot), "slot of a leaf", "changed while the pool was open"));
        }
        medium.key(record, &mut Vec::new())?;
        Err(medium.damaged(record, "record", "was damaged when it was first read, and is intact now"))
    }

    /// Reads the slots and the keys that they name. Damage is noted, not reported: only operations that need the
    /// damaged record report it.
    fn load(&mut self, leaf: LeafAt, medium: IndexMemory<'_>) {
        let mut key = Vec::new();
        for slot in 0..usize::from(self.slots) {
            match medium
                .slot(leaf, slot)
                .and_then(|at| if at.is_null() { Ok(None) } else { medium.key(at, &mut key).map(|_| Some(at)) })
            {
                Ok(None) => {}
                Ok(Some(at)) => self.put(slot, tag_of(&key), at),
                Err(_) => {
                    self.used |= 1 << slot;
                    self.damaged |= 1 << slot;
                }
            }
        }
        self.loaded = true;
    }

    /// The keys of the leaf in ascending order, each with its slot.
    pub(crate) fn sorted_keys(&self, leaf: LeafAt, medium: IndexMemory<'_>) -> Result<Vec<(Vec<u8>, usize)>> {
        self.intact(leaf, medium)?;
        let mut keys = Vec::with_capacity(self.count());
        for (slot, _, at) in self.records() {
            let mut key = Vec::new();
            medium.key(at, &mut key)?;
            keys.push((key, slot));
        }
        keys.sort_unstable();
        Ok(keys)
    }

    fn sort(&mut self, leaf: LeafAt, low: &[u8], medium: IndexMemory<'_>) -> Result<()> {
        if !self.ordered {
            let keys = self.sorted_keys(leaf, medium)?;
            let is_inside = |key: &[u8]| key >= low && self.upper.as_ref().is_none_or(|upper| key < &**upper);
            // A scan continues after the last key that it has shown, so that key must not be before it.
            if !keys.is_sorted_by(|left, right| left.0 < right.0) || !keys.iter().all(|(key, _)| is_inside(key)) {
                return Err(medium.damaged(leaf.0, "leaf", "holds keys twice or outside its bounds"));
            }
            for (place, (_, slot)) in self.order.iter_mut().zip(keys) {
                *place = exact_u8(slot);
            }
            self.ordered = true;
        }
        Ok(())
    }

    /// The addresses of the records in ascending order of keys. Only after [`Leaf::read_ordered`].
    pub(crate) fn in_order(&self) -> impl DoubleEndedIterator<Item = PmAddr> + ExactSizeIterator + '_ {
        assert!(self.ordered, "a scan sorts the leaf before it goes through it");
        self.order[..self.count()].iter().map(|&slot| self.addrs[usize::from(slot)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_found_in_every_slot_and_only_where_used() {
        let mut leaf = Leaf::unloaded(LeafAt(PmAddr::new(0, 64)), 64, Box::default(), PmAddr::NULL, None);
        let state = leaf.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        for slot in 0..64 {
            state.put(slot, (slot % 5) as u16 * 257, PmAddr::new(0, 4096));
        }
        for slot in [0, 7, 31, 63] {
            state.clear(slot);
        }
        for tag in 0..6_u16 {
            let expected: Vec<usize> =
                (0..64).filter(|slot| *slot % 5 == usize::from(tag) && ![0, 7, 31, 63].contains(slot)).collect();
            assert_eq!(bits(state.candidates(tag * 257)).collect::<Vec<_>>(), expected);
        }
        assert_eq!(state.free_slots().collect::<Vec<_>>(), [0, 7, 31, 63]);
    }
}
