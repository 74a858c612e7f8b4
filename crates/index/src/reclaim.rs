//! When freed blocks may be allocated again: after every reader that could still be in them has left.
//!
//! 1. A reader pins: it puts the epoch, which is never 0, into its thread's slot, and takes it out when it leaves. The
//!    slot may be taken already (a thread with a pin may ask for another: a scan's visitor reads), or there may be more
//!    threads than slots. Then the pin is noted in a list under a lock, so no thread ever waits for a pin.
//! 2. A thread that unlinked blocks (persistently, by a heap action that keeps them) retires them under the present
//!    epoch and advances the epoch by one.
//! 3. When enough blocks wait, or a caller wants them, every thread of the process is made to execute a memory barrier.
//!    After that barrier the slots are read. Blocks retired under epoch *e* go back to the heap if no pin is *e* or
//!    smaller.
//!
//! Why that is enough: a reader whose pin is larger than *e* read the epoch after the retirement advanced it. So it
//! read the epoch after the blocks were unlinked, and it cannot find them. A reader whose pin was not seen in its slot
//! stored it after the barrier. All its later loads are after the barrier too, hence after the unlinking. After a crash
//! there are no readers: the blocks are free at once.
//!
//! Why the rare side pays: a pin with its own barrier would wait for the line that the thread's last operation flushed,
//! a tenth of the time of an insert.
//!
//! A small seam: the operations that structures use are `pin`, `retire` and `collect`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::PoisonError;

use crossbeam_utils::CachePadded;
use lodestone_heap::{Freed, FreedBlocks, Heap};
use lodestone_pmem::AsymmetricBarrier;
use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
#[cfg(feature = "shuttle")]
use lodestone_pmem::sync::thread;
use lodestone_pmem::sync::{Mutex, lock};

/// Threads with a slot; the readers of further ones are noted in a list.
const SLOTS: usize = 256;
/// Number of waiting retirements at which the slots are looked at. A retirement of a large block waits for no other.
const BATCH: usize = if cfg!(feature = "shuttle") { 1 } else { 32 };

/// The readers of an index, and the blocks that wait for them.
pub(crate) struct Readers {
    heap: Heap,
    epoch: CachePadded<AtomicU64>,
    slots: Box<[CachePadded<AtomicU64>]>,
    barrier: AsymmetricBarrier,
    /// Readers without a slot: how many pinned each epoch. A thread holding this lock waits for nothing else, so it
    /// need not be a lock of the scheduler.
    crowd: std::sync::Mutex<BTreeMap<u64, usize>>,
    waiting: Mutex<Waiting>,
}

/// The retired blocks that readers may still be in.
#[derive(Default)]
struct Waiting {
    /// Retired in these epochs.
    blocks: VecDeque<(u64, FreedBlocks)>,
    /// Retirements since a thread last looked whether they can go back.
    retired: usize,
}

/// While it lives, no block that its holder can find is allocated again.
pub(crate) struct Pin<'r>(Place<'r>);

/// The place where a reader is noted.
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

/// The number of the calling thread, while no other living thread has it; at least [`SLOTS`] if there are so many.
#[cfg(not(feature = "shuttle"))]
#[inline]
fn thread_number() -> usize {
    use std::cell::Cell;
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    /// Numbers below [`SLOTS`] that ended threads have left.
    static FREE: Mutex<(BTreeSet<usize>, usize)> = Mutex::new((BTreeSet::new(), 0));
    struct Number(Cell<usize>);
    impl Drop for Number {
        fn drop(&mut self) {
            // The thread's other destructors run without a slot: another thread may have it by then.
            NUMBER.set(SLOTS);
            if self.0.get() < SLOTS {
                FREE.lock().unwrap_or_else(PoisonError::into_inner).0.insert(self.0.get());
            }
        }
    }
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
        static OWNED: Number = const { Number(Cell::new(usize::MAX)) };
    }
    #[cold]
    fn numbered() -> usize {
        // A thread that is ending has no slot.
        let own = |owned: &Number| {
            let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
            let number = match free.0.pop_first() {
                Some(number) => number,
                None => {
                    let number = free.1.min(SLOTS);
                    free.1 = number + 1;
                    number
                }
            };
            owned.0.set(number);
            NUMBER.set(number);
            number
        };
        OWNED.try_with(own).unwrap_or(SLOTS)
    }
    match NUMBER.get() {
        usize::MAX => numbered(),
        number => number,
    }
}

#[cfg(feature = "shuttle")]
fn thread_number() -> usize {
    usize::from(thread::current().id())
}

impl Readers {
    pub(crate) fn new(heap: &Heap) -> Self {
        Self {
            heap: heap.clone(),
            epoch: CachePadded::new(AtomicU64::new(1)),
            slots: (0..SLOTS).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            crowd: std::sync::Mutex::new(BTreeMap::new()),
            waiting: Mutex::new(Waiting::default()),
            barrier: AsymmetricBarrier::of_process(),
        }
    }

    /// Announces a reader.
    #[inline]
    pub(crate) fn pin(&self) -> Pin<'_> {
        let Some(slot) = self.slots.get(thread_number()) else { return self.join_crowd() };
        // Only its thread fills an empty slot. Another thread may empty it: one that received the pin.
        if slot.load(Ordering::Acquire) != 0 {
            return self.join_crowd();
        }
        slot.store(self.epoch.load(Ordering::Acquire), Ordering::Relaxed);
        // Any thread that has run the process-wide barrier sees these loads after the pin: see the module.
        self.barrier.light();
        Pin(Place::Slot(slot))
    }

    fn crowd(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, usize>> {
        self.crowd.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn join_crowd(&self) -> Pin<'_> {
        let mut crowd = self.crowd();
        // Under the lock: a retirement that read the list before had advanced the epoch; one that reads it later finds
        // this.
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

    /// Takes the blocks that a commit freed, which no reader can find any more. At times it returns to the heap the
    /// blocks that no reader can be in.
    pub(crate) fn retire(&self, freed: Option<Freed<'_>>) {
        let Some(freed) = freed else { return };
        let mut waiting = lock(&self.waiting);
        let epoch = self.epoch.fetch_add(1, Ordering::SeqCst);
        waiting.retired += 1;
        let is_large = freed.is_large();
        waiting.blocks.push_back((epoch, freed.detach()));
        if waiting.retired >= BATCH || is_large {
            self.give_back(&mut waiting);
        }
    }

    /// Returns to the heap the blocks that no reader can be in any more.
    pub(crate) fn collect(&self) {
        self.give_back(&mut lock(&self.waiting));
    }

    fn give_back(&self, waiting: &mut Waiting) {
        waiting.retired = 0;
        // Without the barrier it is unknown which readers are inside: the blocks wait on.
        if waiting.blocks.is_empty() || self.barrier.heavy().is_err() {
            return;
        }
        let pins = self.slots.iter().map(|slot| slot.load(Ordering::SeqCst)).filter(|pin| *pin != 0);
        let in_crowd = self.crowd().first_key_value().map(|(epoch, _)| *epoch);
        let oldest = pins.chain(in_crowd).min().unwrap_or(u64::MAX);
        while waiting.blocks.front().is_some_and(|(epoch, _)| *epoch < oldest) {
            if let Some((_, blocks)) = waiting.blocks.pop_front() {
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
    use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
    use lodestone_store::Store;

    use super::*;

    /// `before`: readers that are there from the start to the end, so that a few or all slots are taken.
    fn blocks_wait_beside(before: usize) -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
        let store = Store::over(&Pool::create(folder.path().join("a.pool"), &options)?)?;
        let readers = Readers::new(store.heap());
        let mut action = store.heap().action();
        let block = action.alloc(4000)?;
        action.commit()?;
        let pin: Vec<Pin<'_>> = (0..=before).map(|_| readers.pin()).collect();
        let mut action = store.heap().action();
        action.free(block)?;
        let (freed, outcome) = action.commit_keeping();
        outcome?;
        readers.retire(freed);
        // A batch is not full yet: only an explicit collect finds out that a reader is inside.
        readers.collect();
        let later = readers.pin();
        let given = |store: &Store| {
            let mut action = store.heap().action();
            action.alloc(4000)
        };
        assert_ne!(given(&store)?, block, "a reader is there");
        drop(pin);
        readers.collect();
        assert_eq!(given(&store)?, block, "the later reader cannot find it");
        drop(later);
        assert!(readers.crowd().is_empty());
        Ok(())
    }

    #[test]
    fn blocks_wait_for_the_readers_that_were_there() -> Result<(), Box<dyn std::error::Error>> {
        blocks_wait_beside(0)
    }

    /// Threads that have ended leave their slots to others.
    #[test]
    fn every_thread_of_few_has_a_slot() {
        for _ in 0..3 * SLOTS {
            let number = std::thread::spawn(thread_number).join().expect("a number");
            assert!(number < SLOTS);
        }
    }

    /// Waiting blocks go back when there are enough of them, without an explicit collect.
    #[test]
    fn blocks_go_back_in_batches() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
        let store = Store::over(&Pool::create(folder.path().join("a.pool"), &options)?)?;
        let readers = Readers::new(store.heap());
        let mut waited_most = 0;
        for _ in 0..5 * BATCH {
            let _pin = readers.pin();
            let mut action = store.heap().action();
            let block = action.alloc(100)?;
            action.commit()?;
            let mut action = store.heap().action();
            action.free(block)?;
            let (freed, outcome) = action.commit_keeping();
            outcome?;
            readers.retire(freed);
            waited_most = waited_most.max(lock(&readers.waiting).blocks.len());
        }
        // The last one retired is the pinned reader's own.
        assert!((BATCH - 1..=BATCH + 1).contains(&waited_most), "{waited_most}");
        readers.collect();
        assert!(lock(&readers.waiting).blocks.is_empty());
        Ok(())
    }

    /// A thread with a pin that asks for another never waits, however many there are: it could be waiting for its own
    /// pin.
    #[test]
    fn readers_beyond_the_slots_count_as_well() -> Result<(), Box<dyn std::error::Error>> {
        blocks_wait_beside(SLOTS - 1)?;
        blocks_wait_beside(SLOTS)?;
        blocks_wait_beside(3 * SLOTS)
    }
}
