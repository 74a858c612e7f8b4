//! Loading sorted input: leaf by leaf, not key by key.
//!
//! 1. The first pairs go in one by one: the first leaf is there already.
//! 2. As many further pairs as fill four fifths of a leaf are written, with their keys' records, as a leaf after the
//!    last one.
//! 3. One action allocates the leaf and the records and links it, as a split at the end does.
//!
//! So a crash leaves a prefix of the input, whole leaves of it, and nothing leaks. Cost of a leaf of 48 words: its
//! lines, written past the caches, the action's record and its end, the allocation and the link: 0.12 flushed lines and
//! 0.1 fences a key, where an insert takes 2 and 1.4.

use std::borrow::Borrow;

use lodestone_heap::Action;
use lodestone_pmem::{PmAddr, planted};

use crate::bulk;
use crate::cells::{self, Image, Pair, pairs_of};
use crate::error::{Result, committed};
use crate::fptree::layout::{HOME_SEED, TreeLeafAt, shape_of};
use crate::fptree::leaf::TreeLeaf;
use crate::fptree::tree::FpTree;
use crate::structure::separator;
use crate::traits::IndexKey;

impl<K: IndexKey + ?Sized> FpTree<K> {
    /// Pairs of a leaf that is filled at once: room for some inserts stays, and one action holds their records.
    pub(super) fn bulk_pairs(&self) -> usize {
        let pairs = shape_of(self.lines).pairs_max() * 4 / 5;
        if K::IS_WORD { pairs } else { pairs.min(self.heap.action_words_max().saturating_sub(4)).max(1) }
    }

    /// Adds pairs, no more than a leaf holds, that come after all others.
    #[doc(hidden)]
    pub fn load_leaf_of(&self, pairs: &[(K::Owned, u64)], is_first: bool) -> Result<()> {
        if is_first || pairs.is_empty() || !self.append_leaf(pairs)? {
            return bulk::insert_each(self, pairs);
        }
        Ok(())
    }

    /// Adds a leaf of `pairs` after the last one, unless that is empty or covers keys after the first of them.
    fn append_leaf(&self, pairs: &[(K::Owned, u64)]) -> Result<bool> {
        let leaf = self.leaves.leaf(self.last_leaf());
        if !leaf.lock.freeze() {
            return Ok(false);
        }
        let outcome = if leaf.next().is_none() { self.append_behind(leaf, pairs) } else { Ok(false) };
        leaf.lock.thaw();
        outcome
    }

    fn append_behind(&self, leaf: &TreeLeaf, pairs: &[(K::Owned, u64)]) -> Result<bool> {
        let medium = self.medium();
        let present = pairs_of(leaf.table(), medium, self.kind, HOME_SEED)?.into_iter();
        let present = present.map(|pair| self.kind.bytes(medium, pair.key)).collect::<Result<Vec<_>>>()?;
        let Some(last) = present.into_iter().max() else { return Ok(false) };
        let first = Borrow::<K>::borrow(&pairs[0].0).with_bytes(<[u8]>::to_vec);
        if last >= first {
            return Ok(false);
        }
        let Some(low) = separator(&last, &first) else { return Ok(false) };
        let mut action = self.heap.action();
        let content = self.pairs_for(&mut action, pairs)?;
        let right = TreeLeafAt(action.alloc(TreeLeafAt::bytes(self.lines, low.len()))?);
        let Some(image) = Image::of(right.table(self.lines, low.len()), content) else { return Ok(false) };
        self.write_leaf(right, low, PmAddr::NULL, &image);
        if planted::active("fptree-load-unlinked") {
            // Planted: the leaf is allocated before anything names it.
            committed(action.commit()).1?;
            action = self.heap.action();
        }
        self.publish_right(leaf, right, low, action).map(|()| true)
    }

    /// `pairs` as they are in a leaf, with the records of keys that are strings written.
    fn pairs_for(&self, action: &mut Action<'_>, pairs: &[(K::Owned, u64)]) -> Result<Vec<Pair>> {
        let pair_for = |(key, value): &(K::Owned, u64)| {
            cells::with_key(Borrow::<K>::borrow(key), |key| {
                let hash = key.hash(HOME_SEED);
                Ok(Pair { key: cells::key_word(action, self.medium(), key, hash)?, value: *value, hash })
            })
        };
        pairs.iter().map(pair_for).collect()
    }
}
