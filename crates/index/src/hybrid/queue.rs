//! A bounded queue of updates whose order is fixed before they exist.
//!
//! 1. A writer *reserves* a ticket before it changes the hash, and *fills* it afterwards (or skips it, when nothing
//!    changed).
//! 2. Updates are applied in the order of the tickets. So a ticket that is reserved and not filled holds up those after
//!    it.
//! 3. A *watermark* is the number of tickets reserved so far: when as many are applied, every change of the hash that
//!    could be seen when the watermark was read has reached the tree.
//!
//! Why the ticket comes first: suppose a writer queued its update after its change. A range could then begin in
//! between, find the queue empty, and miss a value that a point read has already shown.
//!
//! *Back-pressure.* A thread that finds no room applies updates itself. So does a range that waits for a watermark. One
//! thread applies at a time. There may be a thread of the index that applies. It may be slow or dead: no operation
//! depends on it.
//!
//! *Waking.* Waking a thread costs more than an update. The thread of the index naps before it sleeps. A thread that
//! fills a ticket wakes it when it sleeps or when many updates wait.

use std::collections::VecDeque;
use std::sync::PoisonError;
#[cfg(not(feature = "shuttle"))]
use std::time::Duration;

use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_pmem::sync::{Condvar, Mutex, MutexGuard, lock};
use lodestone_width::{to_u64, to_usize};

/// Updates that are worth waking the thread of the index from a nap.
const WORTH_WAKING: usize = if cfg!(feature = "shuttle") { 1 } else { 64 };
/// Naps without work before it sleeps.
#[cfg(not(feature = "shuttle"))]
const NAPS: u32 = 20;
#[cfg(not(feature = "shuttle"))]
const NAP: Duration = Duration::from_micros(500);

enum Slot<T> {
    Reserved,
    Filled(T),
    Skipped,
}

struct State<T> {
    /// Tickets that were not taken to be applied.
    slots: VecDeque<Slot<T>>,
    /// Number of the first slot.
    first: u64,
    /// Threads that wait for a ticket to be filled or applied.
    waiting: usize,
    sleeps: bool,
    is_closed: bool,
}

/// See the module text. `C`: state that the applying thread keeps from one time to the next.
pub(super) struct Queue<T, C> {
    state: Mutex<State<T>>,
    /// Tickets reserved and tickets applied, as in `state`, for threads that only look.
    reserved: AtomicU64,
    applied: AtomicU64,
    limit: u64,
    consumer: Mutex<C>,
    work: Condvar,
    changed: Condvar,
}

/// A place in the order of updates. Dropped without an update it is skipped.
pub(super) struct QueuePlace<'q, T, C> {
    queue: &'q Queue<T, C>,
    number: u64,
    update: Option<T>,
}

/// Counts updates as applied, also when applying them panics.
struct Taken<'q, T, C> {
    queue: &'q Queue<T, C>,
    count: u64,
}

impl<T, C> Drop for Taken<'_, T, C> {
    fn drop(&mut self) {
        let state = lock(&self.queue.state);
        // Release: a thread that sees the count sees the applied updates.
        self.queue.applied.fetch_add(self.count, Ordering::Release);
        if state.waiting > 0 {
            self.queue.changed.notify_all();
        }
    }
}

impl<T> State<T> {
    fn is_ready(&self) -> bool {
        self.slots.front().is_some_and(|slot| !matches!(slot, Slot::Reserved))
    }
}

impl<T, C> Queue<T, C> {
    /// An empty queue for up to `limit` updates.
    pub(super) fn new(limit: usize, consumer: C) -> Self {
        let (slots, first, waiting, sleeps, is_closed) = (VecDeque::new(), 0, 0, false, false);
        Self {
            state: Mutex::new(State { slots, first, waiting, sleeps, is_closed }),
            reserved: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            limit: to_u64(limit.max(1)),
            consumer: Mutex::new(consumer),
            work: Condvar::new(),
            changed: Condvar::new(),
        }
    }

    /// Takes the next place in the order; where there is no room, `apply` makes some.
    pub(super) fn reserve(&self, mut apply: impl FnMut(&mut C, T)) -> QueuePlace<'_, T, C> {
        let mut state = lock(&self.state);
        while self.reserved.load(Ordering::Relaxed) - self.applied.load(Ordering::Relaxed) >= self.limit {
            if state.is_ready() {
                drop(state);
                self.apply_ready(&mut apply);
                state = lock(&self.state);
            } else {
                state = self.wait(state);
            }
        }
        state.slots.push_back(Slot::Reserved);
        let number = self.reserved.load(Ordering::Relaxed);
        // Before the hash is changed: a thread that sees that change sees this count.
        self.reserved.store(number + 1, Ordering::Release);
        QueuePlace { queue: self, number, update: None }
    }

    /// Tickets reserved so far.
    pub(super) fn watermark(&self) -> u64 {
        self.reserved.load(Ordering::Acquire)
    }

    /// Returns when as many tickets as `watermark` says are applied. Applies them itself where no other thread does.
    pub(super) fn drain(&self, watermark: u64, mut apply: impl FnMut(&mut C, T)) {
        while self.applied.load(Ordering::Acquire) < watermark {
            if self.apply_ready(&mut apply) {
                continue;
            }
            let state = lock(&self.state);
            if !state.is_ready() && self.applied.load(Ordering::Acquire) < watermark {
                drop(self.wait(state));
            }
        }
    }

    /// Applies the updates that are ready, in order. Returns whether there were any.
    pub(super) fn apply_ready(&self, mut apply: impl FnMut(&mut C, T)) -> bool {
        let mut consumer = lock(&self.consumer);
        let mut state = lock(&self.state);
        let mut batch = Vec::new();
        let mut taken = Taken { queue: self, count: 0 };
        while state.is_ready() {
            if let Some(Slot::Filled(update)) = state.slots.pop_front() {
                batch.push(update);
            }
            taken.count += 1;
        }
        state.first += taken.count;
        drop(state);
        batch.into_iter().for_each(|update| apply(&mut consumer, update));
        taken.count > 0
    }

    /// Calls `visit` with the applying thread's state, while no thread applies.
    pub(super) fn with_consumer<R>(&self, visit: impl FnOnce(&mut C) -> R) -> R {
        visit(&mut lock(&self.consumer))
    }

    /// Waits for work; `false`: the queue was closed.
    pub(super) fn wait_for_work(&self) -> bool {
        let mut state = lock(&self.state);
        #[cfg(not(feature = "shuttle"))]
        for _ in 0..NAPS {
            if state.is_ready() || state.is_closed {
                return !state.is_closed;
            }
            state = self.work.wait_timeout(state, NAP).unwrap_or_else(PoisonError::into_inner).0;
        }
        while !state.is_ready() && !state.is_closed {
            state.sleeps = true;
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.sleeps = false;
        !state.is_closed
    }

    /// Lets [`wait_for_work`](Self::wait_for_work) return `false` from now on.
    pub(super) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.work.notify_all();
    }

    /// Threads that wait until something is filled or applied.
    #[cfg(all(test, not(feature = "shuttle")))]
    pub(super) fn waiting(&self) -> usize {
        lock(&self.state).waiting
    }

    /// Waits until something is filled or applied.
    fn wait<'s>(&self, mut state: MutexGuard<'s, State<T>>) -> MutexGuard<'s, State<T>> {
        state.waiting += 1;
        state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state
    }
}

impl<T, C> QueuePlace<'_, T, C> {
    /// The update whose place this is.
    pub(super) fn fill(mut self, update: T) {
        self.update = Some(update);
    }
}

impl<T, C> Drop for QueuePlace<'_, T, C> {
    fn drop(&mut self) {
        let mut state = lock(&self.queue.state);
        let index = to_usize(self.number - state.first);
        state.slots[index] = self.update.take().map_or(Slot::Skipped, Slot::Filled);
        if state.waiting > 0 {
            self.queue.changed.notify_all();
        }
        if index == 0 && state.sleeps || state.slots.len() == WORTH_WAKING {
            self.queue.work.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_are_applied_in_the_order_of_their_tickets() {
        let queue = Queue::<u32, Vec<u32>>::new(4, Vec::new());
        let apply = |applied: &mut Vec<u32>, update| applied.push(update);
        let (first, second, third) = (queue.reserve(apply), queue.reserve(apply), queue.reserve(apply));
        second.fill(2);
        assert!(!queue.apply_ready(apply), "the first ticket holds up the second");
        first.fill(1);
        drop(third);
        queue.drain(queue.watermark(), apply);
        assert_eq!(queue.with_consumer(std::mem::take), [1, 2]);
        for number in 0..100 {
            queue.reserve(apply).fill(number);
        }
        queue.drain(queue.watermark(), apply);
        assert_eq!(queue.with_consumer(std::mem::take), (0..100).collect::<Vec<_>>());
        queue.close();
        assert!(!queue.wait_for_work());
    }
}
