//! When freed blocks may be given out again: after every reader that could still be in them has left.
//!
//! 1. A reader pins: it puts the epoch, which never is 0, into a slot of its own, and takes it out when it leaves. When no slot is free it is
//!    noted in a list under a lock: who has a pin may ask for another (a scan's visitor reads), so nobody may wait for one.
//! 2. Who unlinked blocks (persistently, by a heap action that keeps them) retires them under the present epoch and moves the
//!    epoch on by one.
//! 3. Blocks retired under epoch *e* go back to the heap once no pin is *e* or smaller.
//!
//! Why that is enough: a reader whose pin is larger than *e* read the epoch after the retirement moved it on, hence after
//! the blocks were unlinked, so it cannot find them. After a crash there are no readers: the blocks are free at once.
//!
//! A small seam: the operations that structures use are `pin`, `retire` and `collect`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::PoisonError;

use crossbeam_utils::CachePadded;
use lodestone_heap::{Freed, FreedBlocks, Heap};
use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
#[cfg(feature = "shuttle")]
use lodestone_pmem::sync::thread;
use lodestone_pmem::sync::{Mutex, lock};

/// Readers with a slot at one time; further ones are noted in a list.
const SLOTS: usize = 64;

/// The readers of an index, and what waits for them.
pub(crate) struct Readers {
    heap: Heap,
    epoch: CachePadded<AtomicU64>,
    slots: Box<[CachePadded<AtomicU64>]>,
    /// Readers without a slot: how many pinned each epoch. Never held while anything else is waited for, so it need not be a lock of the
    /// scheduler.
    crowd: std::sync::Mutex<BTreeMap<u64, usize>>,
    waiting: Mutex<VecDeque<(u64, FreedBlocks)>>,
}

/// While it lives, no block that its holder can find is given out again.
pub(crate) struct Pin<'r>(Place<'r>);

/// Where a reader stands.
enum Place<'r> {
    Slot(&'r AtomicU64),
    Crowd { readers: &'r Readers, epoch: u64 },
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.0 {
            Place::Slot(slot) => slot.store(0, Ordering::Release),
            Place::Crowd { readers, epoch } => readers.leave_crowd(epoch),
        }
    }
}

#[cfg(not(feature = "shuttle"))]
fn first_slot() -> usize {
    use std::cell::Cell;
    use std::sync::atomic::AtomicUsize;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! { static FIRST: Cell<usize> = const { Cell::new(usize::MAX) }; }
    if FIRST.get() == usize::MAX {
        FIRST.set(NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % SLOTS);
    }
    FIRST.get()
}

#[cfg(feature = "shuttle")]
fn first_slot() -> usize {
    usize::from(thread::current().id()) % SLOTS
}

impl Readers {
    pub(crate) fn new(heap: &Heap) -> Self {
        Self {
            heap: heap.clone(),
            epoch: CachePadded::new(AtomicU64::new(1)),
            slots: (0..SLOTS).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            crowd: std::sync::Mutex::new(BTreeMap::new()),
            waiting: Mutex::new(VecDeque::new()),
        }
    }

    /// Announces a reader.
    #[inline]
    pub(crate) fn pin(&self) -> Pin<'_> {
        let mut number = first_slot();
        loop {
            let slot = &*self.slots[number];
            let mut epoch = self.epoch.load(Ordering::SeqCst);
            if slot.compare_exchange(0, epoch, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                // A retirement that did not see the slot yet moved the epoch on: look again until it stands still.
                loop {
                    let now = self.epoch.load(Ordering::SeqCst);
                    if now == epoch {
                        return Pin(Place::Slot(slot));
                    }
                    epoch = now;
                    slot.store(epoch, Ordering::SeqCst);
                }
            }
            number = (number + 1) % SLOTS;
            if number == first_slot() {
                return self.join_crowd();
            }
        }
    }

    fn crowd(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, usize>> {
        self.crowd.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn join_crowd(&self) -> Pin<'_> {
        let mut crowd = self.crowd();
        // Under the lock: a retirement that looked into the list before had moved the epoch on, one that looks later finds this.
        let epoch = self.epoch.load(Ordering::SeqCst);
        *crowd.entry(epoch).or_default() += 1;
        Pin(Place::Crowd { readers: self, epoch })
    }

    #[cold]
    fn leave_crowd(&self, epoch: u64) {
        let mut crowd = self.crowd();
        match crowd.get_mut(&epoch) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(crowd.remove(&epoch)),
        }
    }

    /// Takes what a commit freed, blocks that nobody can find any more, and gives back what nobody can be in any more.
    pub(crate) fn retire(&self, freed: Option<Freed<'_>>) {
        let Some(freed) = freed else { return };
        let mut waiting = lock(&self.waiting);
        let epoch = self.epoch.fetch_add(1, Ordering::SeqCst);
        waiting.push_back((epoch, freed.detach()));
        self.give_back(&mut waiting);
    }

    /// Gives back what nobody can be in any more.
    pub(crate) fn collect(&self) {
        self.give_back(&mut lock(&self.waiting));
    }

    fn give_back(&self, waiting: &mut VecDeque<(u64, FreedBlocks)>) {
        let pins = self.slots.iter().map(|slot| slot.load(Ordering::SeqCst)).filter(|pin| *pin != 0);
        let in_crowd = self.crowd().first_key_value().map(|(epoch, _)| *epoch);
        let oldest = pins.chain(in_crowd).min().unwrap_or(u64::MAX);
        while waiting.front().is_some_and(|(epoch, _)| *epoch < oldest) {
            if let Some((_, blocks)) = waiting.pop_front() {
                self.heap.give_out_again(blocks);
            }
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.collect();
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use lodestone_heap::HeapOptions;
    use lodestone_pmem::{DomainChoice, Pool, PoolOptions};

    use super::*;

    /// `before`: readers that are there from the start to the end, so that a few or all slots are taken.
    fn blocks_wait_beside(before: usize) -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
        let heap = Heap::open(&Pool::create(folder.path().join("a.pool"), &options)?, &HeapOptions::default())?;
        let readers = Readers::new(&heap);
        let mut action = heap.action();
        let block = action.alloc(4000)?;
        action.commit()?;
        let pin: Vec<Pin<'_>> = (0..=before).map(|_| readers.pin()).collect();
        let mut action = heap.action();
        action.free(block)?;
        let (freed, outcome) = action.commit_keeping();
        outcome?;
        readers.retire(freed);
        let later = readers.pin();
        let given = |heap: &Heap| {
            let mut action = heap.action();
            action.alloc(4000)
        };
        assert_ne!(given(&heap)?, block, "a reader is there");
        drop(pin);
        readers.collect();
        assert_eq!(given(&heap)?, block, "the later reader cannot find it");
        drop(later);
        assert!(readers.crowd().is_empty());
        Ok(())
    }

    #[test]
    fn blocks_wait_for_the_readers_that_were_there() -> Result<(), Box<dyn std::error::Error>> {
        blocks_wait_beside(0)
    }

    /// A thread with a pin that asks for another never waits, however many there are: its own pin could be what it waits for.
    #[test]
    fn readers_beyond_the_slots_count_as_well() -> Result<(), Box<dyn std::error::Error>> {
        blocks_wait_beside(SLOTS - 1)?;
        blocks_wait_beside(SLOTS)?;
        blocks_wait_beside(3 * SLOTS)
    }
}
