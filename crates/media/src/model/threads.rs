//! The state that belongs to the running thread.
//!
//! Each thread keeps its states of the models it uses, and the model keeps all of them for sums. While a simulated
//! thread runs, its state replaces the running thread's own. States of finished threads are added up in one sum.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::counts::MediaCounts;
use super::simulate::SimulatedThread;
use super::thread::ThreadState;
use super::{Model, lock};

/// The threads of a model.
#[derive(Debug, Default)]
pub(super) struct Threads {
    /// By slot; `None` if the slot is free.
    slots: Vec<Option<Arc<Mutex<ThreadState>>>>,
    simulated: BTreeMap<SimulatedThread, Arc<Mutex<ThreadState>>>,
    /// Counts of threads that have ended.
    gone: MediaCounts,
}

impl Threads {
    pub(super) fn counts(&self) -> MediaCounts {
        let mut sum = self.gone;
        for state in self.slots.iter().flatten() {
            sum += lock(state).snapshot();
        }
        sum
    }
}

type Entry = (u64, Arc<Mutex<ThreadState>>);

thread_local! {
    /// The states of this thread by model; the last entry of a model is the one in use.
    static CURRENT: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

/// Ends a simulation, also by a panic.
struct Simulated;

impl Drop for Simulated {
    fn drop(&mut self) {
        let _ = CURRENT.try_with(|current| current.borrow_mut().pop());
    }
}

impl Model {
    /// Runs `action` on the state of the calling (simulated) thread.
    pub(super) fn with_thread<R>(&self, action: impl FnOnce(&mut ThreadState) -> R) -> R {
        CURRENT.with_borrow_mut(|current| {
            if let Some((_, state)) = current.iter().rev().find(|(id, _)| *id == self.id) {
                return action(&mut lock(state));
            }
            let state = self.register(self.topology.node_of_thread());
            let result = action(&mut lock(&state));
            // Models without any other owner are dropped here, so that short-lived ones do not pile up.
            current.retain(|(_, state)| Arc::strong_count(state) > 1);
            current.push((self.id, state));
            result
        })
    }

    /// Runs `action` as the simulated thread `thread` on node `node`, with its clock, cache and counts. A new thread
    /// starts at the latest time that any thread has reached.
    pub fn as_thread<R>(&self, thread: SimulatedThread, node: usize, action: impl FnOnce() -> R) -> R {
        let state = self.simulated(thread, node);
        lock(&state).node = node;
        CURRENT.with_borrow_mut(|current| current.push((self.id, state)));
        let _end = Simulated;
        action()
    }

    fn simulated(&self, thread: SimulatedThread, node: usize) -> Arc<Mutex<ThreadState>> {
        if let Some(state) = lock(&self.threads).simulated.get(&thread) {
            return Arc::clone(state);
        }
        let state = self.register(node);
        lock(&self.threads).simulated.insert(thread, Arc::clone(&state));
        state
    }

    /// Clock of the simulated thread `thread`, ns; `None` before its first step.
    #[must_use]
    pub fn simulated_ns(&self, thread: SimulatedThread) -> Option<u64> {
        let state = lock(&self.threads).simulated.get(&thread).cloned()?;
        let clock_ps = lock(&state).clock_ps;
        Some(clock_ps / 1000)
    }

    /// A state for a new thread, in the first free slot.
    fn register(&self, node: usize) -> Arc<Mutex<ThreadState>> {
        let mut threads = lock(&self.threads);
        let mut latest_ps = 0;
        for slot in 0..threads.slots.len() {
            let Some(state) = threads.slots[slot].clone() else { continue };
            latest_ps = latest_ps.max(lock(&state).clock_ps);
            // Two: the table and this loop. The thread itself has ended.
            if Arc::strong_count(&state) == 2 {
                threads.gone += lock(&state).snapshot();
                threads.slots[slot] = None;
                for part in &self.parts {
                    lock(part).forget(slot);
                }
            }
        }
        let slot = threads.slots.iter().position(Option::is_none).unwrap_or(threads.slots.len());
        if slot == threads.slots.len() {
            threads.slots.push(None);
        }
        let state = ThreadState::new(slot, node, latest_ps, &self.profile.cpu_cache, self.parts.len());
        let state = Arc::new(Mutex::new(state));
        threads.slots[slot] = Some(Arc::clone(&state));
        state
    }
}
