//! Search, insert, update, remove.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Bound;

use lodestone_pmem::{Domain, PmAddr, checked, planted};

use crate::change::Change;
use crate::circle::Walk;
use crate::error::{Error, Result, committed};
use crate::fastfair::keys;
use crate::layout::KEY_BYTES_MAX;
use crate::map::{Durability, limit};
use crate::skiplist::{NodeAt, REMOVED, SkipList, Spot, is_upper};
use crate::traits::IndexKey;

/// Where a key is, or would be.
pub(super) struct Place {
    /// The last spot before the key.
    pub(super) before: Spot,
    /// The target of its link.
    pub(super) next: Option<NodeAt>,
    /// Whether that is the key's node.
    pub(super) found: bool,
}

/// Looks at a place that somebody else changes meanwhile before it is taken for damaged: each loses against a change
/// that was made.
const TRIES_MAX: usize = 20_000;

impl<K: IndexKey + ?Sized> SkipList<K> {
    /// Walks to the key. Only while pinned.
    pub(super) fn find(&self, key: &K) -> Result<Place> {
        let mut before = self.upper.before(Bound::Excluded(key)).map_or(self.head(), NodeAt::spot);
        let mut walk = Walk::new();
        loop {
            let next = self.next(before)?;
            let order = match next {
                Some(node) => keys::compare_block(self.medium(), key, node.block())?,
                None => Ordering::Less,
            };
            match (order, next) {
                (Ordering::Greater, Some(node)) => {
                    self.goes_on(&mut walk, node)?;
                    before = node.spot();
                }
                _ => return Ok(Place { before, next, found: order == Ordering::Equal }),
            }
        }
    }

    pub(super) fn lookup(&self, key: &K) -> Result<Option<u64>> {
        let _pin = self.readers.pin();
        let place = self.find(key)?;
        let value = match place.next {
            Some(node) if place.found => Some(self.value_of(node)?),
            _ => None,
        };
        self.settle(place.before)?;
        if let (Some(node), true) = (place.next, place.found) {
            self.settle(node.spot())?;
        }
        Ok(value)
    }

    /// Does with `key` as `decide` says, given its value; `new` is the value to set. Returns the value before.
    pub(super) fn change(&self, key: &K, new: u64, decide: impl Fn(Option<u64>) -> Change) -> Result<Option<u64>> {
        limit("key", key.key_bytes(), KEY_BYTES_MAX)?;
        if self.heap.memory().is_read_only() {
            return Err(Error::ReadOnly { path: self.heap.pool().path().to_owned(), what: "a change" });
        }
        let (mut collected, mut tries) = (false, 0);
        let (before, changed) = loop {
            match self.change_once(key, new, &decide) {
                Ok(Some(done)) => break done,
                Ok(None) if tries < TRIES_MAX => tries += 1,
                Ok(None) => {
                    let at = self.head().at;
                    return Err(self.medium().damaged(at, "list", "the place of a key does not stay what it was"));
                }
                // The missing room may be in blocks that wait for readers.
                Err(error) if error.is_full() && !collected => {
                    collected = true;
                    self.readers.collect();
                }
                Err(error) => return Err(error),
            }
        };
        if changed && self.durability == Durability::Sync {
            self.heap.memory().durable()?;
        } else if !changed && self.heap.memory().domain() == Domain::Block {
            // The answer depends on another thread's write.
            self.lookup(key)?;
        }
        Ok(before)
    }

    /// `None`: somebody changed the place meanwhile. Else the value before, and whether anything changed.
    fn change_once(
        &self,
        key: &K,
        new: u64,
        decide: &impl Fn(Option<u64>) -> Change,
    ) -> Result<Option<(Option<u64>, bool)>> {
        let _pin = self.readers.pin();
        let place = self.find(key)?;
        let node = place.next.filter(|_| place.found);
        let _locked = match node {
            Some(node) => self.stripes.lock(&[place.before.at, node.0]),
            None => self.stripes.lock(&[place.before.at]),
        };
        if !self.is_linked(place.before) || self.next(place.before)? != place.next {
            return Ok(None);
        }
        let before = match node {
            Some(node) => Some(keys::block_value(self.medium(), node.block())?),
            None => None,
        };
        match (decide(before), node) {
            (Change::Keep, _) | (Change::Remove, None) => return Ok(Some((before, false))),
            (Change::Put, Some(node)) => keys::set_block_value(self.medium(), node.block(), new)?,
            (Change::Put, None) => self.link(place.before, place.next, key, new)?,
            (Change::Remove, Some(node)) => self.unlink(place.before, node, key)?,
        }
        Ok(Some((before, true)))
    }

    pub(super) fn is_linked(&self, spot: Spot) -> bool {
        spot == self.head() || self.heap.memory().load(NodeAt(spot.at).mark()) != REMOVED
    }

    fn link(&self, before: Spot, next: Option<NodeAt>, key: &K, value: u64) -> Result<()> {
        let memory = self.heap.memory();
        let mut action = self.heap.action();
        let node = NodeAt(action.alloc(NodeAt::bytes(key.key_bytes()))?);
        let next = next.map_or(PmAddr::NULL, |next| next.0);
        let mut words = [0; 16];
        words[..8].copy_from_slice(&checked::encode_addr(node.0, next).to_le_bytes());
        memory.write(node.0, &words);
        // Writes back the node's first line with the block; the link to it may not overtake them: the action's first
        // fence comes between.
        key.with_bytes(|key| keys::write_block(self.medium(), node.block(), key, value));
        action.set(before.link, Self::encoded(before, node.0));
        if planted::active("skiplist-link-before-node") {
            memory.store(before.link, Self::encoded(before, node.0));
            // Planted: the link is persistent before the node is allocated.
            memory.persist(before.link, 8);
        }
        let (took_effect, outcome) = committed(action.commit());
        if took_effect && is_upper(key) {
            // Under the lock of `before`: no thread can remove the node yet.
            self.upper.insert(key, node.0);
        }
        outcome
    }

    fn unlink(&self, before: Spot, node: NodeAt, key: &K) -> Result<()> {
        let after = self.next(node.spot())?.map_or(PmAddr::NULL, |next| next.0);
        let mut action = self.heap.action();
        if planted::active("skiplist-frees-first") {
            action.free(node.0)?;
            committed(action.commit()).1?;
            action = self.heap.action();
            action.set(before.link, Self::encoded(before, after));
            return committed(action.commit()).1;
        }
        action.set(before.link, Self::encoded(before, after));
        action.free(node.0)?;
        // No search may start from the node once it is unlinked.
        let leaves = is_upper(key);
        if leaves {
            self.upper.remove(key, node.0);
        }
        let (freed, outcome) = action.commit_keeping();
        if freed.is_some() {
            // For writers that found it as their predecessor. The block is no thread's: its content does not matter
            // to a crash.
            self.heap.memory().store(node.mark(), REMOVED);
            self.readers.retire(freed);
        } else if leaves {
            self.upper.insert(key, node.0);
        }
        Ok(outcome?)
    }

    /// The last spot before every node that is not before `start`. Only while pinned.
    pub(super) fn spot_before(&self, start: Bound<&K>) -> Result<Spot> {
        match start {
            Bound::Unbounded => Ok(self.head()),
            Bound::Included(key) => Ok(self.find(key)?.before),
            Bound::Excluded(key) => {
                let place = self.find(key.borrow())?;
                Ok(place.next.filter(|_| place.found).map_or(place.before, NodeAt::spot))
            }
        }
    }
}
