//! Structure changes: a full leaf splits, a small one joins its left neighbour. Each is one heap action.
//!
//! *Split* of leaf L, under its lock:
//! 1. A new leaf R is reserved and written: the upper half of L's records, L's successor, and as lower bound the
//!    shortest key that separates the halves.
//! 2. One action allocates R, points L at R and clears the moved slots of L.
//! 3. L's upper bound becomes R's lower one, R enters the directory, and the lock is released. The insert that found L
//!    full starts again. When the new key comes after all others of the last leaf, no record moves: R starts empty, so
//!    that a sorted import fills its leaves.
//!
//! *Merge* of leaf R into its left neighbour L, under both locks, taken left to right. One action sets free slots of L
//! to R's records, points L at R's successor and frees R. The first leaf is never merged away.
//!
//! Invariant: no record is reachable twice or not at all in any crash state, because slots of both leaves, the link
//! and the allocation change in one action.

use std::sync::{Arc, PoisonError};

use lodestone_pmem::{PmAddr, checked, planted};

use crate::error::{Result, committed};
use crate::layout::{LeafAt, encode_leaf};
use crate::leaf::{Leaf, LeafState, tag_of};
use crate::map::OrderedMap;

/// The shortest key that is above `left` and at most `right`; `None` when `left` is not below `right`.
pub(crate) fn separator<'k>(left: &[u8], right: &'k [u8]) -> Option<&'k [u8]> {
    let common = left.iter().zip(right).take_while(|(l, r)| l == r).count();
    right.get(..=common).filter(|_| left < right)
}

impl OrderedMap {
    /// Splits the full `leaf`, whose lock the caller holds, to make room for `key`.
    pub(crate) fn split(&self, leaf: &Leaf, state: &mut LeafState, key: &[u8]) -> Result<()> {
        let medium = self.medium();
        let keys = state.sorted_keys(leaf.at, medium)?;
        let [(first, _), .., (last, _)] = &keys[..] else {
            return Err(medium.damaged(leaf.at.shape(), "leaf", "is full of fewer than two records"));
        };
        if first[..] < *leaf.low || state.upper.as_ref().is_some_and(|upper| last[..] >= **upper) {
            return Err(medium.damaged(leaf.at.0, "leaf", "holds keys outside its bounds"));
        }
        let appends = state.upper.is_none() && key > &last[..];
        // The moved slots, the link and the allocation must fit one action of the heap.
        let moved_max = self.heap.action_words_max().saturating_sub(2);
        let cut = if appends { keys.len() } else { (keys.len() / 2).max(keys.len() - moved_max.min(keys.len())) };
        let low = if appends { separator(last, key) } else { separator(&keys[cut - 1].0, &keys[cut].0) };
        let Some(low) = low else { return Err(medium.damaged(leaf.at.0, "leaf", "holds a key twice")) };
        let moved: Vec<(u16, PmAddr)> =
            keys[cut..].iter().map(|(key, slot)| (tag_of(key), state.addr(*slot))).collect();
        let addrs: Vec<PmAddr> = moved.iter().map(|&(_, at)| at).collect();

        let mut action = self.heap.action();
        let right = LeafAt(action.alloc(LeafAt::bytes(self.slots_per_leaf, low.len()))?);
        let content = encode_leaf(medium.owner, right, self.slots_per_leaf, low, state.next, &addrs);
        if planted::active("index-split-content-not-flushed") {
            medium.memory.write(right.0, &content);
        } else {
            // The link to the new leaf may not overtake its content: the action's first fence comes between.
            medium.memory.write_back(right.0, &content);
        }
        action.set(leaf.at.next(), checked::encode_addr(leaf.at.next(), right.0));
        if planted::active("index-split-leaves-duplicate") {
            action = self.commit_and_begin_another(action)?;
        }
        for &(_, slot) in &keys[cut..] {
            let word = leaf.at.slot(slot);
            action.set(word, checked::encode_addr(word, PmAddr::NULL));
        }
        let (took_effect, outcome) = committed(action.commit());
        if !took_effect {
            return outcome;
        }
        for &(_, slot) in &keys[cut..] {
            state.clear(slot);
        }
        let upper = state.upper.replace(low.into());
        let fresh = Leaf::fresh(right, self.slots_per_leaf, low.into(), state.next, upper, &moved);
        state.next = right.0;
        self.directory.write().unwrap_or_else(PoisonError::into_inner).insert(Arc::new(fresh));
        outcome
    }

    /// Lets the small `leaf` join its left neighbour if that has room. A failure changes nothing and is not reported: a
    /// small leaf is no fault. A fault of the pool shows in the operation that meets it.
    pub(crate) fn merge_left(&self, leaf: &Leaf) {
        let _ = self.try_merge_left(leaf);
    }

    fn try_merge_left(&self, leaf: &Leaf) -> Result<()> {
        let medium = self.medium();
        let directory = self.directory.read().unwrap_or_else(PoisonError::into_inner);
        let Some(left_leaf) = directory.find_before(&leaf.low).map(Arc::clone) else { return Ok(()) };
        drop(directory);
        let mut left = left_leaf.write(medium)?;
        let mut right = leaf.write(medium)?;
        let neighbours = left.alive && right.alive && left.upper.as_ref() == Some(&leaf.low);
        let has_room = right.count() == 0 || left.count() + right.count() <= left.capacity() / 4 * 3;
        let fits_action = right.count() + 2 <= self.heap.action_words_max();
        if !neighbours || !has_room || !fits_action {
            return Ok(());
        }
        right.intact(leaf.at, medium)?;
        let moved: Vec<(usize, u16, PmAddr)> =
            left.free_slots().zip(right.records()).map(|(slot, (_, tag, at))| (slot, tag, at)).collect();

        let mut action = self.heap.action();
        if planted::active("index-merge-unlinks-first") {
            action.set(left_leaf.at.next(), checked::encode_addr(left_leaf.at.next(), right.next));
            action = self.commit_and_begin_another(action)?;
        }
        for &(slot, _, at) in &moved {
            let word = left_leaf.at.slot(slot);
            action.set(word, checked::encode_addr(word, at));
        }
        action.set(left_leaf.at.next(), checked::encode_addr(left_leaf.at.next(), right.next));
        action.free(leaf.at.0)?;
        let (took_effect, outcome) = committed(action.commit());
        if !took_effect {
            return outcome;
        }
        for (slot, tag, at) in moved {
            left.put(slot, tag, at);
        }
        left.next = right.next;
        left.upper = right.upper.take();
        right.alive = false;
        self.directory.write().unwrap_or_else(PoisonError::into_inner).remove(&leaf.low);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_short_and_separate() {
        assert_eq!(separator(b"", b"a"), Some(&b"a"[..]));
        assert_eq!(separator(b"a", b"ab"), Some(&b"ab"[..]));
        assert_eq!(separator(b"apple", b"banana"), Some(&b"b"[..]));
        assert_eq!(separator(b"user100", b"user2"), Some(&b"user2"[..]));
        assert_eq!(separator(b"user1", b"user10000"), Some(&b"user10"[..]));
        assert_eq!(separator(b"a", b"a"), None);
        assert_eq!(separator(b"ab", b"a"), None);
        assert_eq!(separator(b"b", b"a"), None);
    }
}
