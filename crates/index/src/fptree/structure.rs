//! Structure changes: a full leaf splits, a sparse one joins its left neighbour. Each is one heap action.
//!
//! *Split* of leaf L. 1. L is frozen: writers wait, readers go on. 2. A new leaf R is reserved and written: the upper half
//! of L's pairs, L's successor, and as lower bound the shortest key that separates the halves. 3. Readers of L wait; one
//! action allocates R, points L at R and takes the moved pairs out of L's headers (whose levels it makes as low as the
//! rest allows). 4. In DRAM, L's life ends; two leaves with the new bounds take its place. When the new key lies behind
//! all others of the last leaf, nothing moves: R starts empty, so that a sorted import fills its leaves.
//!
//! *Merge* of leaf R into its left neighbour L, both frozen from left to right. 1. R's pairs are written into free cells
//! of L and fenced: no header names them. 2. Readers wait; one action sets L's headers, points L at R's successor and
//! frees R. The first leaf stays for ever.
//!
//! There is no split log to replay (FPTree's micro-log): the action's record is one, and replaying it twice changes nothing.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use lodestone_heap::Action;
use lodestone_pmem::{PmAddr, WORD_BYTES, checked, planted};

use crate::cells::{Image, Pair, pairs_of};
use crate::error::{Result, committed};
use crate::fptree::layout::{HOME_SEED, TreeLeafAt};
use crate::fptree::tree::{FpTree, TreeLeaf};
use crate::structure::separator;
use crate::traits::IndexKey;

/// A pair with the bytes of its key.
type Sorted = Vec<(Vec<u8>, Pair)>;

impl<K: IndexKey + ?Sized> FpTree<K> {
    /// The pairs of `leaf` in ascending order of keys.
    pub(crate) fn sorted(&self, leaf: &TreeLeaf) -> Result<Sorted> {
        let medium = self.medium();
        let pairs = pairs_of(leaf.table, medium, self.kind, HOME_SEED)?;
        let with_key = pairs.into_iter().map(|pair| Ok((self.kind.bytes(medium, pair.key)?, pair)));
        let mut sorted = with_key.collect::<Result<Sorted>>()?;
        sorted.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        Ok(sorted)
    }

    /// Splits `leaf`, which had no room for `key`, unless its life ended meanwhile.
    #[cold]
    pub(crate) fn split(&self, leaf: &TreeLeaf, key: &[u8]) -> Result<()> {
        if !leaf.lock.freeze() {
            return Ok(());
        }
        let outcome = self.split_frozen(leaf, key);
        if outcome.is_err() && !leaf.lock.is_dead() {
            leaf.lock.thaw();
        }
        outcome
    }

    fn split_frozen(&self, leaf: &TreeLeaf, key: &[u8]) -> Result<()> {
        let medium = self.medium();
        let sorted = self.sorted(leaf)?;
        let last = &sorted[sorted.len() - 1].0;
        let appends = leaf.upper.is_none() && key > &last[..];
        let cut = if appends { sorted.len() } else { sorted.len() / 2 };
        let low = if appends { separator(last, key) } else { separator(&sorted[cut - 1].0, &sorted[cut].0) };
        let next = medium.link(leaf.at.next(), "link to the next leaf", 64)?;

        let mut action = self.heap.action();
        let right = TreeLeafAt(action.alloc(TreeLeafAt::bytes(self.lines, low.len()))?);
        let table = right.table(self.lines, low.len());
        // A leaf has room for half of another, and for all of it, whatever the homes: every line of a bucket will do.
        let Some(image) = Image::of(table, sorted[cut..].iter().map(|(_, pair)| *pair)) else {
            return Err(medium.damaged(leaf.at.0, "tree leaf", "holds more pairs than a leaf can"));
        };
        self.write_leaf(right, low, next, &image);
        let moved: Vec<u64> = sorted[cut..].iter().map(|(_, pair)| pair.key).collect();
        let hash_of = |word| self.kind.hash(medium, word, HOME_SEED);
        let rest = Image::without(leaf.table, medium, hash_of, |word| moved.contains(&word))?;
        action.set(leaf.at.next(), checked::encode_addr(leaf.at.next(), right.0));
        if planted::active("fptree-split-in-two-actions") {
            action.commit()?;
            action = self.heap.action();
        }
        self.set_headers(&mut action, leaf, &rest);
        let lines = leaf.table.shape.lines;
        self.publish(&[leaf], action, |old| {
            let left = TreeLeaf::new(leaf.at, lines, leaf.low.clone(), Some(low.into()));
            vec![left, TreeLeaf::new(right, self.lines, low.into(), old[0].upper.clone())]
        })
    }

    /// Writes a new leaf and starts its write-back; the action that publishes it fences.
    pub(crate) fn write_leaf(&self, at: TreeLeafAt, low: &[u8], next: PmAddr, image: &Image) {
        let memory = self.heap.memory();
        let (frame, table) = at.encode(low, next, image);
        // The link to the new leaf may not overtake its content: the action's first fence comes between.
        memory.write_back(at.0, &frame);
        if planted::active("fptree-leaf-not-flushed") {
            memory.write(image.at().first, &table);
        } else {
            memory.write_back(image.at().first, &table);
        }
    }

    /// Notes in `action` the headers of `leaf` that differ from those of `image`.
    fn set_headers(&self, action: &mut Action<'_>, leaf: &TreeLeaf, image: &Image) {
        for (number, header) in image.headers() {
            let at = leaf.table.line(number).header();
            if self.heap.memory().load(at) != header {
                action.set(at, header);
            }
        }
    }

    /// Commits `action` while readers of the frozen leaves `old` wait, then lets `fresh` leaves take their place in DRAM.
    fn publish(
        &self,
        old: &[&TreeLeaf],
        action: Action<'_>,
        fresh: impl FnOnce(&[&TreeLeaf]) -> Vec<TreeLeaf>,
    ) -> Result<()> {
        // Readers wait: what they read is changed now, and a freed leaf may belong to others at once.
        let held: Vec<_> = old.iter().map(|leaf| leaf.lock.lock_frozen()).collect();
        let (took_effect, outcome) = committed(action.commit());
        if !took_effect {
            return outcome;
        }
        for leaf in old {
            leaf.lock.kill();
        }
        drop(held);
        let mut directory = self.directory.write().unwrap_or_else(PoisonError::into_inner);
        let mut fresh = fresh(old).into_iter();
        if let Some(first) = fresh.next() {
            directory.replace(Arc::new(first));
        }
        fresh.for_each(|leaf| directory.insert(Arc::new(leaf)));
        old[1..].iter().for_each(|leaf| directory.remove(&leaf.low));
        outcome
    }

    /// After a removal left a line of `leaf` empty: if the leaf became sparse, it joins its left neighbour. A failure
    /// changes nothing and is not reported: a sparse leaf is no fault, and what is wrong with the pool shows in the
    /// operation that needs it.
    #[inline]
    pub(crate) fn after_removal(&self, leaf: &TreeLeaf) {
        if self.count_in(leaf) <= leaf.table.shape.pairs_max() / 3 && !leaf.low.is_empty() {
            let _ = self.try_merge(leaf);
        }
    }

    /// Number of pairs of `leaf`, from its headers.
    pub(crate) fn count_in(&self, leaf: &TreeLeaf) -> usize {
        let memory = self.heap.memory();
        leaf.table.lines().filter_map(|line| line.load(memory)).map(|meta| meta.count()).sum()
    }

    #[cold]
    fn try_merge(&self, right: &TreeLeaf) -> Result<()> {
        let directory = self.directory.read().unwrap_or_else(PoisonError::into_inner);
        let Some(left) = directory.find_before(&right.low).map(Arc::clone) else { return Ok(()) };
        drop(directory);
        if !left.lock.freeze() {
            return Ok(());
        }
        if left.upper.as_deref() != Some(&right.low) || !right.lock.freeze() {
            left.lock.thaw();
            return Ok(());
        }
        let outcome = self.merge_frozen(&left, right);
        for leaf in [&left, right] {
            if !leaf.lock.is_dead() {
                leaf.lock.thaw();
            }
        }
        outcome
    }

    fn merge_frozen(&self, left: &TreeLeaf, right: &TreeLeaf) -> Result<()> {
        let (medium, memory) = (self.medium(), self.heap.memory());
        let counts = (self.count_in(left), self.count_in(right));
        let fits_action = left.table.shape.lines as usize + 2 <= self.heap.action_words_max();
        if counts.0 + counts.1 > left.table.shape.pairs_max() * 3 / 4 || !fits_action {
            return Ok(());
        }
        let hash_of = |word| self.kind.hash(medium, word, HOME_SEED);
        let mut image = Image::without(left.table, medium, hash_of, |_| false)?;
        let pairs = pairs_of(right.table, medium, self.kind, HOME_SEED)?;
        let next = medium.link(right.at.next(), "link to the next leaf", 64)?;
        if !pairs.into_iter().all(|pair| image.insert(pair)) {
            return Ok(());
        }
        let mut action = self.heap.action();
        let mut lines = BTreeSet::new();
        for &(line, offset, word) in image.added() {
            memory.store(left.table.line(line).header().plus(offset), word);
            lines.insert(line);
        }
        for line in lines {
            // The headers may not overtake the pairs: the fence below comes between.
            memory.flush(left.table.line(line).header(), WORD_BYTES);
        }
        if !planted::active("fptree-merge-without-fence") {
            // The headers, which the action stores, may not overtake the pairs they name: it allocates nothing, so it
            // does not fence before its record.
            memory.fence();
        }
        self.set_headers(&mut action, left, &image);
        action.set(left.at.next(), checked::encode_addr(left.at.next(), next));
        action.free(right.at.0)?;
        let lines = left.table.shape.lines;
        self.publish(&[left, right], action, |old| {
            vec![TreeLeaf::new(left.at, lines, left.low.clone(), old[1].upper.clone())]
        })
    }
}
