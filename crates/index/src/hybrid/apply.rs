//! From the queues into the tree, and into the updates that are kept while the tree is rebuilt.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use lodestone_pmem::planted;
use lodestone_pmem::sync::atomic::Ordering;
use lodestone_pmem::sync::lock;
use lodestone_width::{to_u64, to_usize};

use crate::error::Result;
use crate::hybrid::index::Shared;
use crate::hybrid::queue::{Queue, QueuePlace};
use crate::hybrid::tree::Tree;
use crate::traits::{IndexKey, PointIndex};

/// A change of one key: its value from now on, or that it is gone.
pub(super) struct Update<K: IndexKey + ?Sized> {
    pub(super) key: K::Owned,
    pub(super) value: Option<u64>,
}

/// Updates that came before there was a tree, the last of each key.
pub(super) type Kept<K> = BTreeMap<<K as IndexKey>::Owned, Option<u64>>;
pub(super) type UpdateQueue<K> = Queue<Update<K>, Kept<K>>;

/// A change of the hash that the tree does not know of yet. If it is dropped without its result, its key becomes
/// suspect.
pub(super) struct Pending<'s, K: IndexKey + ?Sized> {
    shared: &'s Shared<K>,
    key: &'s K,
    ticket: Option<QueuePlace<'s, Update<K>, Kept<K>>>,
}

impl<K: IndexKey + ?Sized> Pending<'_, K> {
    /// The hash holds `value` for the key now.
    pub(super) fn became(mut self, value: Option<u64>) {
        if let Some(ticket) = self.ticket.take() {
            ticket.fill(Update { key: self.key.to_key(), value });
        }
    }

    /// The hash did not change.
    pub(super) fn stayed(mut self) {
        self.ticket = None;
    }
}

impl<K: IndexKey + ?Sized> Drop for Pending<'_, K> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.shared.suspect(self.key.to_key());
            drop(ticket);
        }
    }
}

fn put_in<K: IndexKey + ?Sized>(tree: &Tree<K>, key: K::Owned, value: Option<u64>) {
    match value {
        Some(value) => tree.put(key, value),
        None => tree.remove(key.borrow()),
    }
}

impl<K: IndexKey + ?Sized> Shared<K> {
    /// Takes the place of a change of `key` in the order of updates. The caller holds the lock of the key's stripe.
    pub(super) fn begin<'s>(&'s self, key: &'s K, stripe: usize) -> Pending<'s, K> {
        let queue = if planted::active("hybrid-two-queues") {
            &self.queues[to_usize(self.turn.fetch_add(1, Ordering::Relaxed)) % self.queues.len()]
        } else {
            &self.queues[stripe % self.queues.len()]
        };
        Pending { shared: self, key, ticket: Some(queue.reserve(|kept, update| self.apply(kept, update))) }
    }

    /// Applies one update.
    pub(super) fn apply(&self, kept: &mut Kept<K>, update: Update<K>) {
        match self.tree.get() {
            Some(tree) => {
                self.release(tree, kept);
                put_in(tree, update.key, update.value);
            }
            None => {
                kept.insert(update.key, update.value);
            }
        }
    }

    /// Puts the updates that were kept over the tree.
    pub(super) fn release(&self, tree: &Tree<K>, kept: &mut Kept<K>) {
        if planted::active("hybrid-rebuild-forgets") {
            kept.clear();
        }
        while let Some((key, value)) = kept.pop_first() {
            put_in(tree, key, value);
        }
    }

    /// Returns when every change of the hash that could be seen at the call has reached the tree.
    pub(super) fn drain(&self) {
        if planted::active("hybrid-no-drain") {
            return;
        }
        for queue in &self.queues {
            queue.drain(queue.watermark(), |kept, update| self.apply(kept, update));
        }
    }

    /// Returns when every change of the hash that could be seen at the call has reached the tree, or its key is
    /// suspect.
    pub(super) fn catch_up(&self) -> Result<()> {
        loop {
            self.settle_suspects()?;
            self.drain();
            // A change that failed half-way gave up its place in the queue while that drained, and its key was suspect
            // before that.
            if self.suspects_count.load(Ordering::Acquire) == 0 || planted::active("hybrid-no-drain") {
                return Ok(());
            }
        }
    }

    /// The loop of a thread of the index.
    pub(super) fn work(&self, number: usize) {
        let queue = &self.queues[number];
        while queue.wait_for_work() {
            queue.apply_ready(|kept, update| self.apply(kept, update));
        }
    }

    /// Notes a key for which tree and hash may differ.
    pub(super) fn suspect(&self, key: K::Owned) {
        let mut suspects = lock(&self.suspects);
        suspects.push(key);
        self.suspects_count.store(to_u64(suspects.len()), Ordering::Release);
    }

    /// Reads the hash again for the keys whose changes failed half-way.
    pub(super) fn settle_suspects(&self) -> Result<()> {
        if self.suspects_count.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        // One at a time: any other reader waits until each of them is known, or suspect again.
        let _settling = lock(&self.settling);
        let keys = std::mem::take(&mut *lock(&self.suspects));
        let mut outcome = Ok(());
        for key in keys {
            let key: &K = key.borrow();
            let stripe = self.stripe_of(key);
            let _held = lock(&self.stripes[stripe]);
            // Dropped at an error: the key stays suspect.
            let pending = self.begin(key, stripe);
            match self.hash.get(key) {
                Ok(value) => pending.became(value),
                Err(error) => outcome = Err(error),
            }
        }
        let suspects = lock(&self.suspects);
        self.suspects_count.store(to_u64(suspects.len()), Ordering::Release);
        outcome
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::ops::{Bound, ControlFlow};

    use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
    use lodestone_store::Store;

    use crate::hybrid::{Hybrid, HybridOptions};
    use crate::{Direction, Durability, OpenIndex, OrderedIndex, PointIndex};

    /// A range that waits for a change under way sees what the hash holds for its key, also when the change does not
    /// say.
    #[test]
    fn a_change_that_fails_while_a_range_waits_for_it_is_looked_at() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
        let store = Store::over(&Pool::create(folder.path().join("a.pool"), &options)?)?;
        let index = Hybrid::<u64>::open_index(&store, "index", &HybridOptions::small(), Durability::Sync)?;
        index.insert(&1, 10)?;
        index.wait_warm()?;
        let shared = &index.shared;
        let pending = shared.begin(&7, shared.stripe_of(&7));
        let found = std::thread::scope(|scope| {
            let range = scope.spawn(|| {
                let mut found = Vec::new();
                let visit = |key: &u64, value| {
                    found.push((*key, value));
                    ControlFlow::Continue(())
                };
                index.scan(Bound::Unbounded, Bound::Unbounded, Direction::Ascending, visit).map(|_| found)
            });
            while shared.queues.iter().all(|queue| queue.waiting() == 0) {
                std::thread::yield_now();
            }
            // As a change does that took effect and cannot report it.
            let outcome = shared.hash.insert(&7, 70);
            drop(pending);
            outcome.and_then(|_| range.join().unwrap_or_else(|_| panic!("the range")))
        })?;
        assert_eq!(found, [(1, 10), (7, 70)]);
        Ok(())
    }
}
