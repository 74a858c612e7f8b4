//! Memory for the rows that are read, and the holes in it.

use std::sync::{Arc, Weak};

use lodestone_blocks::Arena;
use lodestone_pmem::sync::atomic::Ordering;
use lodestone_pmem::sync::{Mutex, lock};
use lodestone_width::{to_u64, to_usize};

use super::{Cache, Entry, Queue};
use crate::core::Core;
use crate::leaf::Leaf;

/// A part of the arena is evacuated when holes are more than this part of the bound.
pub(super) const HOLES_MAX_PART: u64 = 10;
/// Then so many are left: for fewer, parts would be evacuated that are nearly full.
const HOLES_LEFT_PART: u64 = 16;
/// Holes are counted again after so many reads of leaves and rows.
const HOLES_EACH: u64 = 64;
/// The arena takes memory in so many parts of the bound.
const REGIONS: u64 = 128;
/// A block of less is a key, or short as most keys.
const SHORT_BYTES: usize = 256;
/// A block of more than such a part of a page has most rows of a leaf.
const LONG_PART: usize = 3;
/// A smaller cache has no arena: a few regions that are not full would be a large part of it.
pub(super) const ARENA_BYTES_MIN: u64 = 8 << 20;

/// Memory for the rows of a cache of `bytes_max`, for pages of `page_bytes`. `None`: that of the allocator will do.
pub fn arena(bytes_max: u64, page_bytes: usize) -> Option<Arena> {
    // Keys and short rows, rows that are read alone, and leaves with most of their rows.
    let bounds = [SHORT_BYTES, page_bytes / LONG_PART];
    (bytes_max >= ARENA_BYTES_MIN).then(|| Arena::new(to_usize(bytes_max / REGIONS), bounds))
}

impl Cache {
    /// Counts the bytes of the arena that no row has.
    pub(super) fn hole_bytes(&self) -> u64 {
        let holes = self.arena.as_ref().map_or(0, |arena| arena.taken().saturating_sub(arena.used()));
        self.holes.store(holes, Ordering::Relaxed);
        holes
    }

    /// Now and then the holes are counted again.
    pub(super) fn note_read(&self) {
        if self.reads().is_multiple_of(HOLES_EACH) {
            self.hole_bytes();
        }
    }

    /// Whether holes are too many, and a part of the arena may be evacuated.
    pub(super) fn has_to_evacuate(&self) -> bool {
        self.holes.load(Ordering::Relaxed) > self.bytes_max / HOLES_MAX_PART
            && self.reads() >= self.evacuates_from.load(Ordering::Relaxed)
    }

    /// Evicts the leaves of the emptiest parts of the arena, until there are few holes. Stops at a part that cannot go
    /// yet: a leaf is dirty, or a thread holds a row.
    pub(super) fn evacuate(&self) {
        let (Some(arena), Some(core)) = (&self.arena, self.core.get().and_then(Weak::upgrade)) else { return };
        // Parts that could not go the last time may be used again: the rows that kept them may stay for ever.
        arena.end_evacuation();
        while self.hole_bytes() > self.bytes_max / HOLES_MAX_PART {
            arena.evacuate(self.hole_bytes().saturating_sub(self.bytes_max / HOLES_LEFT_PART));
            let mut passed = 0;
            for entries in [&self.fresh, &self.clock] {
                let count = lock(entries).entries.len();
                passed += count;
                for _ in 0..count {
                    let Some(entry) = lock(entries).pop() else { break };
                    self.pass_by(&core, entry, entries);
                }
            }
            if arena.is_evacuating() {
                self.evacuates_from.store(self.reads() + to_u64(passed / 8), Ordering::Relaxed);
                return;
            }
        }
    }

    /// Evicts a leaf or a row that has to move, and leaves others as they are.
    fn pass_by(&self, core: &Core, entry: Entry, entries: &Mutex<Queue>) {
        if let Some((row, _)) = &entry.row {
            let has_to_go = row.upgrade().is_none_or(|slot| slot.is_evacuating());
            if !has_to_go || self.pass_row(&entry, row, true) {
                lock(entries).push(entry);
            }
            return;
        }
        let has_to_go = |leaf: &Arc<Leaf>| leaf.is_evacuating() && !leaf.is_ended();
        if let (Some(tree), Some(leaf)) = (entry.tree.upgrade(), entry.leaf.upgrade())
            && has_to_go(&leaf)
            && !tree.is_kept()
            && tree.evict(core, &leaf, &[])
        {
            self.evictions.fetch_add(1, Ordering::Relaxed);
            self.on_clock.fetch_sub(1, Ordering::Relaxed);
        } else {
            lock(&self.clock).push(entry);
        }
    }
}
