//! Leaves that are cold, and single rows of them.

use std::sync::Arc;

use lodestone_pages::Image;
use lodestone_pmem::sync::atomic::Ordering;
use lodestone_pmem::sync::lock;
use lodestone_pmem::{planted, prefetch_value};
use lodestone_txn::{RowState, RowWord, Tick};

use super::{Ground, Slot, Tree};
use crate::cache::{Looked, Stay};
use crate::cold::Source;
use crate::core::Core;
use crate::dual::is_dual;
use crate::leaf::{EarlyRow, Leaf, LockedLeaf, Purged};

impl Tree {
    /// The row with `key` of a leaf that is not loaded, and need not be.
    #[cold]
    pub(super) fn cold_row(&self, leaf: &Arc<Leaf>, key: &[u8]) -> Option<Arc<Slot>> {
        let cache = self.ground.cache.as_ref().filter(|cache| cache.reads_rows() && !self.is_kept())?;
        // While the leaf is looked at: most rows of such leaves are read from the page.
        prefetch_value(&*leaf.page);
        if let Some(slot) = leaf.find_early(key) {
            return Some(slot);
        }
        let stay = match cache.look(leaf, key) {
            Looked::Leaf => return None,
            Looked::Row(stay) => stay,
        };
        let Ground { source, base, .. } = &self.ground;
        // The medium and the hand are waited for at the same time.
        leaf.page.home().iter().for_each(|image| source.prefetch(image));
        // Before: the hand must not take this row away before it is used.
        cache.make_room();
        let read = |image: &Image| {
            let slot = source.slot(image, (self.number, &leaf.span), key, *base, stay != Stay::No)?;
            Some(match stay {
                Stay::No => (slot, None),
                Stay::Fresh | Stay::OnClock => {
                    let (slot, charged) = cache.charge_row(slot);
                    (slot, Some(charged))
                }
            })
        };
        match leaf.early_row(key, read)? {
            EarlyRow::Present(slot) => Some(slot),
            EarlyRow::Kept(row) => {
                cache.note_row_read();
                cache.add_row(&self.me, leaf, &row, stay);
                Some(row.0)
            }
            EarlyRow::Held(slot) => {
                cache.note_row_read();
                cache.note_held(leaf);
                Some(slot)
            }
        }
    }

    /// A row of a loaded leaf was used.
    #[inline]
    pub(super) fn used<'s>(&self, slot: &'s Arc<Slot>) -> &'s Arc<Slot> {
        if self.ground.cache.is_some() {
            slot.note_use();
        }
        slot
    }

    /// Makes `leaf` cold: its rows are read from its image when they are used again. Those at the addresses `kept` stay
    /// in DRAM. Returns whether it is cold, or ended.
    ///
    /// It stays as it is when the image does not have the newest version of each row, when a thread holds one of its
    /// rows, and when a deleted row is still seen by a snapshot.
    pub fn evict(&self, core: &Core, leaf: &Arc<Leaf>, kept: &[usize]) -> bool {
        let is_busy = || leaf.page.is_busy() && !planted::active("engine-evicts-dirty");
        let is_due = || leaf.is_loaded() && !is_busy();
        if !is_due() {
            return false;
        }
        let _shape = lock(&self.shape);
        let Some(mut old) = leaf.lock() else { return true };
        if self.is_dropped.load(Ordering::SeqCst) || self.is_kept() || !is_due() || leaf.page.home().is_none() {
            return false;
        }
        let Some(rows) = LockedRows::of(core, &old) else { return false };
        // A commit that changed a row before it was locked here has made the page dirty before.
        if is_busy() {
            return false;
        }
        let purged = rows.purged(core, leaf.purged(), self.ground.base);
        let charge = |slot| match &self.ground.cache {
            Some(cache) => cache.charge_row(slot),
            None => (slot, 0),
        };
        // A slot of such a tree is not whole while a commit writes its cell: see `Source::slot`.
        let copies = rows.copies(&self.ground.source, if is_dual(self.number) { &[] } else { kept });
        let copies: Vec<_> = copies.map(charge).collect();
        let cold = Leaf::cold_with(leaf.span.clone(), purged, leaf.page.clone(), copies.clone());
        rows.keep_locked(&self.ground.source, self.ground.base);
        old.end();
        self.forget(leaf);
        if let Some(cache) = &self.ground.cache {
            copies.iter().for_each(|row| cache.add_row(&self.me, &cold, row, Stay::OnClock));
        }
        self.root.load().swap(cold);
        true
    }
}

/// All rows of a leaf, locked. Dropped before they are to stay so, they are as they were.
struct LockedRows(Vec<(Arc<Slot>, RowWord)>);

impl LockedRows {
    /// `None`: a row is in use.
    fn of(core: &Core, leaf: &LockedLeaf<'_>) -> Option<Self> {
        let mut rows = Self(Vec::with_capacity(leaf.leaf.len()));
        for number in 0..leaf.leaf.len() {
            let slot = leaf.slot(number);
            let word = slot.word();
            let is_idle = match word.state() {
                RowState::Live => true,
                RowState::Absent => core.may_purge(word),
                RowState::Locked | RowState::Pending => false,
            };
            // A thread that gets hold of it from here on meets a conflict.
            let may_evict = || Arc::strong_count(slot) == 1 && slot.try_lock(word);
            if !is_idle || !(planted::active("engine-evicts-unlocked") || may_evict()) {
                return None;
            }
            rows.0.push((slot.clone(), word));
        }
        Some(rows)
    }

    /// The trace of the deleted rows, after that of earlier ones.
    fn purged(&self, core: &Core, mut purged: Purged, base: Tick) -> Purged {
        let deleted = self.0.iter().filter(|(_, word)| word.is_absent());
        let ticks = deleted.map(|(_, word)| word.version().tick(base));
        if let Some(floor) = ticks.max() {
            // After the rows are locked, as in a purge.
            let (number, point) = (core.next_purge(), core.memory.flushed_anywhere());
            purged = Purged { floor: purged.floor.max(floor), number, point };
        }
        purged
    }

    /// Copies of those at the addresses `kept`, in the versions that were locked: as if they were read from the image.
    fn copies(&self, source: &Source, kept: &[usize]) -> impl Iterator<Item = Arc<Slot>> {
        let is_kept = |slot: &Slot, word: RowWord| kept.contains(&slot.address()) && word.state() == RowState::Live;
        let rows = self.0.iter().filter(move |(slot, word)| is_kept(slot, *word));
        rows.map(|(slot, word)| source.copy(slot, *word))
    }

    /// They stay locked for ever: a thread that still finds one looks for its key again.
    fn keep_locked(mut self, source: &Source, base: Tick) {
        for (_, word) in self.0.drain(..) {
            source.note(word.version().tick(base));
        }
    }
}

impl Drop for LockedRows {
    fn drop(&mut self) {
        self.0.iter().for_each(|(slot, word)| slot.set_word(*word));
    }
}
