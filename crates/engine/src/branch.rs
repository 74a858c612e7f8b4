//! The nodes above the leaves of a tree. Their keys never change: where leaves of other keys take the place of one that
//! ends, they do so in a copy of its branch, and of all those above. So a search from the root that a thread has loaded
//! needs no lock. It may find an ended leaf: then the next root, or the next look, has the leaf in its place.
//!
//! A leaf that takes the place of one with the same keys is stored in the branch itself. Each leaf that leaves the
//! cache is replaced by a cold one, and a copy would count a reference to all leaves beside it, and to all branches
//! above.

use std::cmp::Ordering;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use lodestone_pmem::prefetch_value;
use lodestone_width::{exact_u32, to_usize};
use smallvec::SmallVec;

use crate::leaf::{Leaf, common, head};
use crate::slot::Bytes;

/// Most children of a branch. A copy of one counts a reference to each of them.
const CHILDREN_MAX: usize = 32;

/// See the module.
#[derive(Debug)]
pub struct Branch {
    /// The first possible key of the first child.
    low: Bytes,
    /// Bytes that the first possible keys of all other children begin with.
    skip: usize,
    /// The first 8 of those bytes: mostly a search looks at them and at the heads alone.
    start: u64,
    /// Of the keys of `keys`, what comes after those bytes. In the branch itself: to follow one more reference costs
    /// more than the search.
    heads: SmallVec<[u64; CHILDREN_MAX - 1]>,
    /// The first possible keys of all children but the first one.
    keys: Keys,
    children: Children,
}

/// Keys in one block of memory.
#[derive(Debug, Default)]
struct Keys {
    bytes: Box<[u8]>,
    ends: Box<[u32]>,
}

#[derive(Debug)]
enum Children {
    Branches(Vec<Arc<Branch>>),
    Leaves(Vec<ArcSwap<Leaf>>),
}

impl Keys {
    fn get(&self, number: usize) -> &[u8] {
        let begin = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[to_usize(begin)..to_usize(self.ends[number])]
    }
}

/// A node with a first possible key.
trait Node {
    fn low(&self) -> &Bytes;
}

impl Node for Arc<Branch> {
    fn low(&self) -> &Bytes {
        &self.low
    }
}

impl Node for Arc<Leaf> {
    fn low(&self) -> &Bytes {
        &self.span.low
    }
}

impl Branch {
    /// The root over `leaves`, which are sorted. There is one at least.
    pub fn root(leaves: Vec<Arc<Leaf>>) -> Arc<Self> {
        Self::above(group(leaves, of_leaves))
    }

    fn above(mut branches: Vec<Arc<Self>>) -> Arc<Self> {
        while branches.len() > 1 {
            branches = group(branches, Children::Branches);
        }
        branches.pop().expect("a tree has a leaf")
    }

    fn new<C: Node>(children: Vec<C>, wrap: impl Fn(Vec<C>) -> Children) -> Arc<Self> {
        let length = children[1..].iter().map(|child| child.low().len()).sum();
        let (mut bytes, mut ends) = (Vec::with_capacity(length), Vec::with_capacity(children.len() - 1));
        for child in &children[1..] {
            bytes.extend_from_slice(child.low());
            ends.push(exact_u32(bytes.len()));
        }
        let skip = match &children[1..] {
            [first, .., last] => common(first.low(), last.low()),
            _ => 0,
        };
        let start = children.get(1).map_or(0, |child| head(child.low(), 0));
        let heads = children[1..].iter().map(|child| head(child.low(), skip)).collect();
        let (low, keys) = (children[0].low().clone(), Keys { bytes: bytes.into(), ends: ends.into() });
        Arc::new(Self { low, skip, start, heads, keys, children: wrap(children) })
    }

    /// The leaf that may have `key`.
    pub fn leaf_of(&self, key: &[u8]) -> Guard<Arc<Leaf>> {
        self.leaf(|branch| branch.keys_before(key, true))
    }

    /// The last leaf that may have a key before `end`, or the first leaf. `None`: no end.
    pub fn leaf_before(&self, end: Option<&[u8]>) -> Guard<Arc<Leaf>> {
        self.leaf(|branch| end.map_or(branch.heads.len(), |end| branch.keys_before(end, false)))
    }

    fn leaf(&self, child: impl Fn(&Self) -> usize) -> Guard<Arc<Leaf>> {
        self.cell(child).load()
    }

    fn cell(&self, child: impl Fn(&Self) -> usize) -> &ArcSwap<Leaf> {
        let mut branch = self;
        loop {
            match &branch.children {
                Children::Branches(branches) => {
                    branch = &branches[child(branch)];
                    // Of a large tree most are in no cache of the processor: its lines cost one wait.
                    prefetch_value(branch);
                }
                Children::Leaves(leaves) => return &leaves[child(branch)],
            }
        }
    }

    /// Whether `key` is before all keys that begin as those of this branch do, after them, or may be one. A short key
    /// is as one with zeros after it: those are looked at as a whole where that matters.
    fn compare_start(&self, key: &[u8]) -> Ordering {
        let unequal_bits = 64_usize.saturating_sub(8 * self.skip);
        // No bit counts if no byte is the same in all.
        let counted = |start: u64| start.checked_shr(exact_u32(unequal_bits)).unwrap_or(0);
        let order = counted(head(key, 0)).cmp(&counted(self.start));
        if order.is_eq() && self.skip > size_of::<u64>() {
            return key[..self.skip.min(key.len())].cmp(&self.keys.get(0)[..self.skip]);
        }
        order
    }

    /// How many keys are before `key`, or equal to it if that counts.
    fn keys_before(&self, key: &[u8], equal_counts: bool) -> usize {
        match self.compare_start(key) {
            Ordering::Less => return 0,
            Ordering::Greater => return self.heads.len(),
            Ordering::Equal => {}
        }
        let wanted = head(key, self.skip);
        let (mut from, mut to) = (0, self.heads.len());
        while from < to {
            let middle = from.midpoint(to);
            let order = self.heads[middle].cmp(&wanted).then_with(|| self.keys.get(middle).cmp(key));
            if order.is_lt() || (equal_counts && order.is_eq()) {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        from
    }

    /// A copy of this root that has `new` in the place of a leaf. The first of them begins where that leaf does.
    pub fn replace(&self, new: Vec<Arc<Leaf>>) -> Arc<Self> {
        Self::above(self.with(new))
    }

    fn with(&self, new: Vec<Arc<Leaf>>) -> Vec<Arc<Self>> {
        let number = self.keys_before(new[0].low(), true);
        match &self.children {
            Children::Branches(branches) => {
                group(with(branches, number, branches[number].with(new)), Children::Branches)
            }
            Children::Leaves(leaves) => {
                let leaves: Vec<_> = leaves.iter().map(ArcSwap::load_full).collect();
                group(with(&leaves, number, new), of_leaves)
            }
        }
    }

    /// Puts `new` in the place of the leaf with the same keys, for all who have this root. No other thread changes the
    /// tree meanwhile.
    pub fn swap(&self, new: Arc<Leaf>) {
        self.cell(|branch| branch.keys_before(new.low(), true)).store(new.clone());
    }

    /// A copy of this root that has `new` in the place of the leaf with the same first possible key, and of the leaves
    /// after it that begin at the keys `gone`.
    pub fn merge(&self, new: &Arc<Leaf>, gone: &[Bytes]) -> Arc<Self> {
        Self::above(self.without(new, gone))
    }

    fn without(&self, new: &Arc<Leaf>, gone: &[Bytes]) -> Vec<Arc<Self>> {
        let from = self.keys_before(new.low(), true);
        let to = gone.last().map_or(from, |last| self.keys_before(last, true));
        match &self.children {
            Children::Branches(branches) => {
                let (before, after) = (&branches[..from], &branches[to + 1..]);
                let changed = branches[from..=to].iter().flat_map(|branch| branch.without(new, gone));
                group(before.iter().cloned().chain(changed).chain(after.iter().cloned()).collect(), Children::Branches)
            }
            Children::Leaves(leaves) => {
                let leaves = leaves.iter().map(ArcSwap::load_full);
                let kept = leaves.filter(|leaf| gone.binary_search(leaf.low()).is_err());
                let new_or = |leaf: Arc<Leaf>| if leaf.low() == new.low() { new.clone() } else { leaf };
                group(kept.map(new_or).collect(), of_leaves)
            }
        }
    }

    /// Calls `visit` with all leaves, in the order of their keys.
    pub fn for_each_leaf(&self, visit: &mut impl FnMut(&Arc<Leaf>)) {
        match &self.children {
            Children::Branches(branches) => branches.iter().for_each(|branch| branch.for_each_leaf(visit)),
            Children::Leaves(leaves) => leaves.iter().for_each(|leaf| visit(&leaf.load())),
        }
    }
}

fn of_leaves(leaves: Vec<Arc<Leaf>>) -> Children {
    Children::Leaves(leaves.into_iter().map(ArcSwap::new).collect())
}

/// `nodes` with `new` in the place of number `number`.
fn with<N: Clone>(nodes: &[N], number: usize, new: Vec<N>) -> Vec<N> {
    [&nodes[..number], &new, &nodes[number + 1..]].concat()
}

/// As few branches over `children` as there may be, of about equal length.
fn group<C: Node>(children: Vec<C>, wrap: impl Fn(Vec<C>) -> Children + Copy) -> Vec<Arc<Branch>> {
    let count = children.len().div_ceil(CHILDREN_MAX);
    let each = children.len().div_ceil(count.max(1)).max(1);
    let mut children = children.into_iter();
    (0..count).map(|_| Branch::new(children.by_ref().take(each).collect(), wrap)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::leaf::{Page, Purged, Span};

    fn leaf(low: &[u8]) -> Arc<Leaf> {
        Leaf::new(4, Span { low: low.into(), high: None }, Vec::new(), Purged::default(), Page::new(None, true))
    }

    fn lows(root: &Branch) -> Vec<Bytes> {
        let mut lows = Vec::new();
        root.for_each_leaf(&mut |leaf| lows.push(leaf.span.low.clone()));
        lows
    }

    proptest! {
        /// Bytes of few values, so that keys are often equal, or begin with one another.
        #[test]
        fn the_leaf_of_a_key_is_the_last_one_that_begins_before_it(
            keys in prop::collection::btree_set(prop::collection::vec(0..3_u8, 1..14), 0..200),
            wanted in prop::collection::vec(prop::collection::vec(0..3_u8, 0..14), 50),
            grows in any::<bool>(),
        ) {
            let lows_wanted: Vec<Bytes> = std::iter::once(Vec::new()).chain(keys).map(Bytes::from).collect();
            let root = if grows {
                // Leaves are split one by one.
                let mut root = Branch::root(vec![leaf(&[])]);
                for low in lows_wanted.iter().skip(1).rev() {
                    let old = root.leaf_of(low);
                    root = root.replace(vec![leaf(&old.span.low), leaf(low)]);
                    // One leaf takes the place of another one.
                    let new = leaf(&old.span.low);
                    root.swap(new.clone());
                    prop_assert!(Arc::ptr_eq(&root.leaf_of(&old.span.low), &new));
                }
                root
            } else {
                Branch::root(lows_wanted.iter().map(|low| leaf(low)).collect())
            };
            prop_assert_eq!(&lows(&root), &lows_wanted);
            // Some leaves in a row are merged.
            let number = |text: &[u8]| text.iter().map(|byte| usize::from(*byte)).sum::<usize>() % lows_wanted.len();
            let (first, end) = (number(&wanted[0]), number(&wanted[1]));
            let mut merged_lows = lows_wanted.clone();
            let mut root = root;
            if first + 1 < end {
                let gone: Vec<Bytes> = merged_lows.drain(first + 1..end).collect();
                let new = leaf(&merged_lows[first]);
                root = root.merge(&new, &gone);
                prop_assert!(Arc::ptr_eq(&root.leaf_of(&gone[0]), &new));
                prop_assert_eq!(&lows(&root), &merged_lows);
            }
            let lows_wanted = merged_lows;
            for key in wanted.iter().map(Vec::as_slice).chain(lows_wanted.iter().map(|low| &**low)) {
                let (at, before) = (
                    lows_wanted.iter().rfind(|low| &***low <= key).expect("the first one is empty"),
                    lows_wanted.iter().rfind(|low| &***low < key).unwrap_or(&lows_wanted[0]),
                );
                prop_assert_eq!(&root.leaf_of(key).span.low, at);
                prop_assert_eq!(&root.leaf_before(Some(key)).span.low, before);
            }
            prop_assert_eq!(Some(&root.leaf_before(None).span.low), lows_wanted.last());
        }
    }
}
