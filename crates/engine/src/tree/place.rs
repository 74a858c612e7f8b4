//! Where the rows of a tree are: in which part of the pool their images, and whether all of them stay in DRAM.

use std::sync::Arc;

use lodestone_pages::Image;
use lodestone_pmem::sync::atomic::Ordering;
use lodestone_pmem::sync::lock;

use super::Tree;
use crate::error::Result;
use crate::leaf::Leaf;
use crate::slot::Bytes;

impl Tree {
    /// From now on its leaves stay in DRAM once they are loaded, or no more.
    pub fn keep(&self, is_kept: bool) {
        // The hand and splits hold this: from here on no leaf becomes cold, and each new one counts once.
        let _shape = lock(&self.shape);
        let was_kept = self.is_kept.swap(is_kept, Ordering::SeqCst);
        match &self.ground.cache {
            Some(cache) if is_kept && !was_kept => cache.take_out(&self.me),
            Some(_) if was_kept && !is_kept => self.give_all_to_clock(),
            _ => {}
        }
    }

    /// Whether its leaves stay in DRAM.
    pub fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::SeqCst)
    }

    /// Loads all leaves, as long as `goes_on` says so. Returns how many were cold.
    ///
    /// # Errors
    /// An image that cannot be read.
    pub fn load_while(&self, mut goes_on: impl FnMut() -> bool) -> Result<u64> {
        let (mut loaded, mut next) = (0, Some(Bytes::default()));
        while let Some(low) = next.filter(|_| goes_on()) {
            loaded += u64::from(self.load_at(&low)?);
            next = self.next_low(&low);
        }
        Ok(loaded)
    }

    /// Its leaves, loaded or not.
    #[cfg(test)]
    pub fn all_leaves(&self) -> Vec<Arc<Leaf>> {
        let mut leaves = Vec::new();
        self.root.load().for_each_leaf(&mut |leaf| leaves.push(leaf.clone()));
        leaves
    }

    /// The rows of a leaf were loaded: they count for the cache, unless they stay.
    pub(super) fn give_to_clock(&self, leaf: &Arc<Leaf>) {
        // If the tree is kept in this moment, the hand takes the leaf out when it meets it.
        if let Some(cache) = self.ground.cache.as_ref().filter(|_| !self.is_kept()) {
            cache.add(&self.me, leaf);
        }
    }

    /// The same for all leaves that are loaded.
    pub(super) fn give_all_to_clock(&self) {
        self.root.load().for_each_leaf(&mut |leaf| {
            if leaf.is_loaded() {
                self.give_to_clock(leaf);
            }
        });
    }

    /// Makes the next round write the leaf of `low` to `part`, if its image is elsewhere. Returns whether it is.
    ///
    /// # Errors
    /// An image that cannot be read.
    pub fn renew_outside(&self, low: &[u8], part: u16) -> Result<bool> {
        let is_outside = |leaf: &Leaf| leaf.page.home().is_some_and(|home| home.parts().any(|of| of != part));
        loop {
            let leaf = self.root.load().leaf_of(low).clone();
            if !is_outside(&leaf) {
                return Ok(false);
            }
            self.warm(&leaf)?;
            // With its lock held it does not become cold, and no cold leaf is dirty.
            if let Some(locked) = leaf.lock() {
                locked.leaf.page.renew();
                return Ok(true);
            }
        }
    }

    /// Calls `look` with the image of each leaf that has one, and the key that the leaf begins with.
    pub fn for_each_home(&self, mut look: impl FnMut(&[u8], Image)) {
        self.root
            .load()
            .for_each_leaf(&mut |leaf| leaf.page.home().into_iter().for_each(|home| look(&leaf.span.low, home)));
    }

    /// Where the first leaf begins that begins with `key` or a later one.
    pub fn low_from(&self, key: &[u8]) -> Option<Bytes> {
        let root = self.root.load();
        let span = &root.leaf_of(key).span;
        if *span.low == *key { Some(span.low.clone()) } else { span.high.clone() }
    }
}
