//! Structure changes: a full leaf splits, a sparse one joins its left neighbour. Each is one heap action.
//!
//! *Split* of leaf L:
//! 1. L is frozen: writers wait, readers continue.
//! 2. A new leaf R is reserved and written: the upper half of L's pairs, L's successor, and as lower bound the shortest
//!    key that separates the halves.
//! 3. Readers of L wait. One action allocates R, points L at R and takes the moved pairs out of L's headers (whose
//!    levels it makes as low as the rest allows).
//! 4. In DRAM, R gets a descriptor and is entered in the guide; L ends where R begins. When the new key comes after all
//!    others of the last leaf, nothing moves: R starts empty, so that a sorted import fills its leaves.
//!
//! *Merge* of leaf R into its left neighbour L, both frozen from left to right:
//! 1. R's pairs are written into free cells of L and fenced: no header names them.
//! 2. Readers wait. One action sets L's headers, points L at R's successor and frees R.
//! 3. R leaves the guide and its descriptor dies; L ends where R ended. The first leaf is never merged away.
//!
//! There is no split log to replay (FPTree's micro-log): the action's record is one, and replaying it twice changes
//! nothing.

use std::collections::BTreeSet;

use lodestone_heap::Action;
use lodestone_pmem::{PmAddr, WORD_BYTES, checked, planted};

use crate::cells::{Image, Pair, TableAt, pairs_of};
use crate::error::{Result, committed};
use crate::fptree::layout::{HOME_SEED, TreeLeafAt, lines_max};
use crate::fptree::leaf::{Sought, TreeLeaf};
use crate::fptree::tree::FpTree;
use crate::structure::separator;
use crate::traits::IndexKey;

/// A pair with the bytes of its key.
type Sorted = Vec<(Vec<u8>, Pair)>;

impl<K: IndexKey + ?Sized> FpTree<K> {
    /// The pairs of `table` in ascending order of keys.
    pub(crate) fn sorted(&self, table: TableAt) -> Result<Sorted> {
        let medium = self.medium();
        let pairs = pairs_of(table, medium, self.kind, HOME_SEED)?;
        let with_key = pairs.into_iter().map(|pair| Ok((self.kind.bytes(medium, pair.key)?, pair)));
        let mut sorted = with_key.collect::<Result<Sorted>>()?;
        sorted.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        Ok(sorted)
    }

    /// Splits leaf `number`, which had no room for `key`, unless that changed meanwhile.
    #[cold]
    pub(crate) fn split(&self, number: u32, key: Sought<'_>) -> Result<()> {
        let leaf = self.leaves.leaf(number);
        if !leaf.lock.freeze() {
            return Ok(());
        }
        // Somebody may have made room meanwhile, and left nothing to cut.
        let is_full = self.count_in(leaf.table()) == leaf.table().shape.pairs_max();
        let is_full = is_full || planted::active("fptree-split-unasked");
        let covers = self.leaves.covers::<K>(leaf, key);
        let outcome = if is_full && covers { self.split_frozen(leaf, key.bytes) } else { Ok(()) };
        leaf.lock.thaw();
        outcome
    }

    fn split_frozen(&self, leaf: &TreeLeaf, key: &[u8]) -> Result<()> {
        let (medium, at, table) = (self.medium(), leaf.at(), leaf.table());
        let sorted = self.sorted(table)?;
        let [(first, _), .., (last, _)] = &sorted[..] else {
            return Err(medium.damaged(at.0, "tree leaf", "is full of fewer than two pairs"));
        };
        if *first < leaf.low() || self.leaves.upper(leaf).is_some_and(|upper| *last >= upper) {
            return Err(medium.damaged(at.0, "tree leaf", "holds keys outside its bounds"));
        }
        let appends = leaf.next().is_none() && key > &last[..];
        let cut = if appends { sorted.len() } else { sorted.len() / 2 };
        let low = if appends { separator(last, key) } else { separator(&sorted[cut - 1].0, &sorted[cut].0) };
        let Some(low) = low else { return Err(medium.damaged(at.0, "tree leaf", "holds a key twice")) };
        let next = medium.link(at.next(), "link to the next leaf", 64)?;

        let mut action = self.heap.action();
        let right = TreeLeafAt(action.alloc(TreeLeafAt::bytes(self.lines, low.len()))?);
        let fresh = right.table(self.lines, low.len());
        // A leaf has room for half of another, and for all of it, whatever the homes: every line of a bucket will do.
        let Some(image) = Image::of(fresh, sorted[cut..].iter().map(|(_, pair)| *pair)) else {
            return Err(medium.damaged(at.0, "tree leaf", "holds more pairs than a leaf can"));
        };
        self.write_leaf(right, low, next, &image);
        let moved: Vec<u64> = sorted[cut..].iter().map(|(_, pair)| pair.key).collect();
        let hash_of = |word| self.kind.hash(medium, word, HOME_SEED);
        let rest = Image::without(table, medium, hash_of, |word| moved.contains(&word))?;
        if planted::active("fptree-split-in-two-actions") {
            action.set(at.next(), checked::encode_addr(at.next(), right.0));
            action.commit()?;
            action = self.heap.action();
        }
        self.set_headers(&mut action, &rest);
        self.publish_right(leaf, right, low, action)
    }

    /// Lets the frozen `leaf` link to the new leaf `right`, which begins at `low`, and commits `action`; then DRAM
    /// follows.
    pub(crate) fn publish_right(
        &self,
        leaf: &TreeLeaf,
        right: TreeLeafAt,
        low: &[u8],
        mut action: Action<'_>,
    ) -> Result<()> {
        let link = leaf.at().next();
        action.set(link, checked::encode_addr(link, right.0));
        // Readers wait: what they read is changed now.
        let held = leaf.lock.lock_frozen();
        let (took_effect, outcome) = committed(action.commit());
        if took_effect {
            let number = self.leaves.add(right, self.lines, low, leaf.next());
            self.enter(number, low);
            leaf.set_next(Some((number, self.leaves.leaf(number))));
        }
        drop(held);
        outcome
    }

    /// Writes a new leaf and starts its write-back; the action that publishes it fences.
    pub(crate) fn write_leaf(&self, at: TreeLeafAt, low: &[u8], next: PmAddr, image: &Image) {
        let memory = self.heap.memory();
        let (frame, table) = at.encode(self.anchor.at, low, next, image);
        // The link to the new leaf may not overtake its content: the action's first fence comes between.
        memory.write_back(at.0, &frame);
        if planted::active("fptree-leaf-not-flushed") {
            memory.write(image.at().first, &table);
        } else {
            memory.write_back(image.at().first, &table);
        }
    }

    /// Notes in `action` the headers of `image` that differ from those at its place.
    fn set_headers(&self, action: &mut Action<'_>, image: &Image) {
        for (number, header) in image.headers() {
            let at = image.at().line(number).header();
            if self.heap.memory().load(at) != header {
                action.set(at, header);
            }
        }
    }

    /// Whether `leaf`, of which a removal left a line empty, is so sparse that it should join its left neighbour. Under
    /// its lock.
    pub(crate) fn wants_to_join(&self, leaf: &TreeLeaf) -> bool {
        self.is_sparse(leaf) && !leaf.is_first()
    }

    /// Lets the sparse leaf `number` join its left neighbour, unless that changed meanwhile. A failure changes nothing
    /// and is not reported: a sparse leaf is no fault, and what is wrong with the pool shows in the operation that
    /// needs it.
    #[cold]
    pub(crate) fn join_left(&self, number: u32) {
        let _ = self.try_merge(number);
    }

    fn is_sparse(&self, leaf: &TreeLeaf) -> bool {
        self.count_in(leaf.table()) <= leaf.table().shape.pairs_max() / 3
    }

    /// Number of pairs of `table`, from its headers. A damaged one counts as empty until an operation needs it and
    /// reports it.
    pub(crate) fn count_in(&self, table: TableAt) -> usize {
        let memory = self.heap.memory();
        table.lines().filter_map(|line| line.load(memory)).map(|meta| meta.count()).sum()
    }

    #[cold]
    fn try_merge(&self, number: u32) -> Result<()> {
        let right = self.leaves.leaf(number);
        let left = self.leaves.leaf(self.leaf_before(Sought::new(&right.low())));
        if !left.lock.freeze() {
            return Ok(());
        }
        // As long as `left` is frozen and says so, `right` is alive and follows.
        let freezes = left.next() == Some(number) && right.lock.freeze();
        let outcome = if freezes && self.is_sparse(right) { self.merge_frozen(left, number) } else { Ok(()) };
        left.lock.thaw();
        if freezes && !right.lock.is_dead() {
            right.lock.thaw();
        } else if freezes {
            self.leaves.give(number);
        }
        outcome
    }

    fn merge_frozen(&self, left: &TreeLeaf, number: u32) -> Result<()> {
        let (medium, memory) = (self.medium(), self.heap.memory());
        let right = self.leaves.leaf(number);
        let (at, table) = (left.at(), left.table());
        let counts = (self.count_in(table), self.count_in(right.table()));
        let fits_action = table.shape.lines <= lines_max(&self.heap);
        if counts.0 + counts.1 > table.shape.pairs_max() * 3 / 4 || !fits_action {
            return Ok(());
        }
        let hash_of = |word| self.kind.hash(medium, word, HOME_SEED);
        let mut image = Image::without(table, medium, hash_of, |_| false)?;
        let pairs = pairs_of(right.table(), medium, self.kind, HOME_SEED)?;
        let next = medium.link(right.at().next(), "link to the next leaf", 64)?;
        if !pairs.into_iter().all(|pair| image.insert(pair)) {
            return Ok(());
        }
        let mut action = self.heap.action();
        let mut lines = BTreeSet::new();
        for &(line, offset, word) in image.added() {
            memory.store(table.line(line).header().plus(offset), word);
            lines.insert(line);
        }
        for line in lines {
            // The headers may not overtake the pairs: the fence below comes between.
            memory.flush(table.line(line).header(), WORD_BYTES);
        }
        // The headers, which the action stores, may not overtake the pairs they name: it allocates nothing, so it does
        // not fence before its record.
        memory.fence();
        self.set_headers(&mut action, &image);
        action.set(at.next(), checked::encode_addr(at.next(), next));
        action.free(right.at().0)?;
        // Readers wait: what they read is changed now, and the freed leaf may belong to others at once.
        let held = (left.lock.lock_frozen(), right.lock.lock_frozen());
        let (took_effect, outcome) = committed(action.commit());
        if took_effect {
            self.leave(number, &right.low());
            left.set_next(right.next().map(|next| (next, self.leaves.leaf(next))));
            right.lock.kill();
        }
        drop(held);
        outcome
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::ops::{Bound, ControlFlow};
    use std::task::{Context, Waker};

    use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
    use lodestone_store::Store;

    use super::*;
    use crate::fptree::TreeOptions;
    use crate::{Direction, Durability, OrderedIndex, PointIndex};

    #[test]
    fn a_tree_is_told_empty_when_the_removal_is_durable() -> std::result::Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let options = PoolOptions { domain: DomainChoice::Block, ..PoolOptions::default() };
        let store = Store::over(&Pool::create(folder.path().join("a.pool"), &options)?)?;
        let mut tree = FpTree::<u64>::open(&store, "tree")?;
        tree.insert(&5, 50)?;
        tree.durability = Durability::Relaxed;
        assert_eq!(tree.remove(&5)?, Some(50));
        tree.durability = Durability::Sync;
        let table = tree.leaves.leaf(0).table();
        let gone = store.memory().flushed_at(table.first, table.shape.bytes());
        assert!(tree.is_empty()?);
        let mut task = Context::from_waker(Waker::noop());
        assert!(store.memory().poll_durable(gone, &mut task).is_ready(), "a power failure would bring the key back");
        Ok(())
    }

    /// A key goes, and its leaf with it, into one that changes in nothing but its link; the writer waits for its commit
    /// group.
    #[test]
    fn a_key_that_went_with_its_leaf_is_told_absent_when_that_is_durable()
    -> std::result::Result<(), Box<dyn std::error::Error>> {
        type Look = fn(&FpTree<u64>) -> Result<bool>;
        let looks: [Look; 2] = [
            |tree| Ok(tree.get(&60)?.is_none()),
            |tree| {
                let mut found = false;
                let visit = |key: &u64, _| {
                    found |= *key == 60;
                    ControlFlow::Continue(())
                };
                tree.scan(Bound::Included(&20), Bound::Unbounded, Direction::Ascending, visit)?;
                Ok(!found)
            },
        ];
        for is_absent in looks {
            let folder = tempfile::tempdir()?;
            let options = PoolOptions { domain: DomainChoice::Block, ..PoolOptions::default() };
            let store = Store::over(&Pool::create(folder.path().join("a.pool"), &options)?)?;
            let mut tree =
                FpTree::<u64>::open_with(&store, "tree", &TreeOptions { lines_per_leaf: 2, ..TreeOptions::default() })?;
            (0..7).try_for_each(|number| tree.insert(&(10 * number), number).map(drop))?;
            (2..6).try_for_each(|number| tree.remove(&(10 * number)).map(drop))?;
            tree.durability = Durability::Relaxed;
            assert_eq!(tree.remove(&60)?, Some(6));
            tree.durability = Durability::Sync;
            assert_eq!(tree.check().leaves, 1);
            let memory = store.memory();
            let gone = memory.flushed_at(tree.leaves.leaf(0).at().next(), WORD_BYTES);
            assert!(is_absent(&tree)?);
            let mut task = Context::from_waker(Waker::noop());
            assert!(memory.poll_durable(gone, &mut task).is_ready(), "a power failure would bring the key back");
        }
        Ok(())
    }
}
