//! Leaves without rows go: the leaf before them takes over their keys.
//!
//! A queue inserts at its end and deletes at its beginning. Without this a reader of its first row would pass every
//! leaf that ever had one.
//!
//! A leaf is *spare* when all of its rows are deleted and may be purged, and it has no image: then the last round has
//! seen it so, and ended the image. No image changes when it goes, because an image ends where the next one begins. An
//! open makes no such leaf either.
//!
//! Only the thread of a round merges, before it looks at the leaves: a round that has found the beginning of a leaf
//! must find the leaf there.
//!
//! A commit may lock a deleted row of a spare leaf meanwhile, to insert it again. It makes the page of the leaf dirty,
//! and then looks whether the leaf has ended. Here the leaf ends first, and then its page is looked at. So one of the
//! two makes the page of the new leaf dirty.

use std::sync::Arc;
use std::sync::atomic::Ordering as PlainOrdering;

use lodestone_pmem::planted;
use lodestone_pmem::sync::atomic::Ordering;
use lodestone_pmem::sync::lock;

use super::{Tree, may_purge, room, soil};
use crate::core::Core;
use crate::leaf::{Leaf, Purged, ROWS_MAX, Span};
use crate::slot::Bytes;

/// Most leaves that go at a time: they are locked meanwhile.
const LEAVES_MAX: usize = 256;

impl Tree {
    /// Takes the spare leaves out. The thread makes a round, and has not looked at the leaves yet.
    pub fn merge_spare(&self, core: &Core) {
        let mut runs: Vec<Vec<Arc<Leaf>>> = Vec::new();
        let mut run: Vec<Arc<Leaf>> = Vec::new();
        self.root.load().for_each_leaf(&mut |leaf| {
            if !run.is_empty() && is_spare(core, leaf) {
                run.push(leaf.clone());
                return;
            }
            let before = std::mem::take(&mut run);
            runs.extend((before.len() > 1).then_some(before));
            // A cold leaf cannot take over keys: threads read rows of it without its lock.
            run.extend(leaf.is_loaded().then(|| leaf.clone()));
        });
        runs.extend((run.len() > 1).then_some(run));
        runs.iter().for_each(|run| self.merge(core, run));
    }

    /// One leaf takes the place of the first of `run` and of the spare ones after it.
    fn merge(&self, core: &Core, run: &[Arc<Leaf>]) {
        let _shape = lock(&self.shape);
        let Some((first, others)) = run.split_first() else { return };
        let Some(mut first) = first.lock().filter(|_| !self.is_dropped.load(Ordering::SeqCst)) else { return };
        // The others go with the next round.
        let mut rows = if first.is_loaded() { first.leaf.len() } else { ROWS_MAX };
        let spare = others.iter().take(LEAVES_MAX).map_while(|leaf| {
            let locked = leaf.lock().filter(|locked| is_spare(core, locked.leaf))?;
            rows += locked.leaf.len();
            (rows <= ROWS_MAX).then_some(locked)
        });
        let mut spare: Vec<_> = spare.collect();
        // Evicted, or split, or none of the others is spare any more.
        let Some(last) = spare.last().filter(|_| first.is_loaded()) else { return };
        let span = Span { low: first.leaf.span.low.clone(), high: last.leaf.span.high.clone() };
        let (mut slots, mut purged) = (first.slots(), first.leaf.purged());
        for leaf in &spare {
            let mut rest = leaf.slots();
            let of_leaf = self.purge(core, leaf.leaf, &mut rest);
            // A commit has locked a row: it stays, and its slot is found in the new leaf.
            slots.extend(rest);
            let Purged { floor, number, point } = of_leaf;
            purged.floor = purged.floor.max(floor);
            (purged.number, purged.point) = (purged.number.max(number), purged.point.max(point));
        }
        let page = first.leaf.page.clone();
        let new = Leaf::new(room(&self.ground.leaf_size, &slots), span, slots, purged, page);
        let gone: Vec<Bytes> = spare.iter().map(|leaf| leaf.leaf.span.low.clone()).collect();
        self.leaves.fetch_sub(gone.len(), PlainOrdering::Relaxed);
        if let Some(cache) = &self.ground.cache {
            self.give_to_clock(&new);
            cache.forget_leaves(gone.len());
        }
        // Before the leaves end, since readers wait from then on.
        let root = self.root.load().merge(&new, &gone);
        first.end();
        spare.iter_mut().for_each(|leaf| leaf.end());
        self.forget(first.leaf);
        spare.iter().for_each(|leaf| self.forget(leaf.leaf));
        self.root.store(root);
        if spare.iter().any(|leaf| leaf.leaf.page.is_busy()) && !planted::active("engine-merge-forgets-dirt") {
            soil(&new);
        }
    }
}

/// Whether nothing is lost with the leaf. Deleted rows that a snapshot sees are not: they would gather in one leaf.
fn is_spare(core: &Core, leaf: &Leaf) -> bool {
    let is_clean = || !leaf.page.is_busy() && leaf.page.home().is_none();
    let mut slots = (0..if leaf.is_loaded() { leaf.len() } else { 0 }).map(|number| leaf.slot(number));
    leaf.is_loaded() && is_clean() && slots.all(|slot| slot.is_some_and(|slot| may_purge(core, slot.word())))
}
