//! Starts all threads of a run at once and tells the coordinator when all have finished.
//!
//! Invariants:
//! - Each thread holds one [`Presence`]. Dropping it counts as arrived and finished. So an error or a panic before the
//!   gate cannot leave the others or the coordinator waiting for ever.
//! - `finished <= arrived <= threads`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

#[derive(Debug, Default)]
struct State {
    arrived: usize,
    finished: usize,
    opened: Option<Instant>,
}

/// The meeting point of one run.
#[derive(Debug)]
pub(super) struct Gate {
    threads: usize,
    state: Mutex<State>,
    changed: Condvar,
    stop: AtomicBool,
    done: Box<[CachePadded<AtomicU64>]>,
}

impl Gate {
    pub(super) fn new(threads: usize) -> Self {
        Self {
            threads,
            state: Mutex::default(),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
            done: (0..threads).map(|_| CachePadded::default()).collect(),
        }
    }

    pub(super) fn wait_until_all_arrived(&self) {
        let mut state = self.lock();
        while state.arrived < self.threads {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn open(&self, now: Instant) {
        self.lock().opened = Some(now);
        self.changed.notify_all();
    }

    /// Waits at most `patience`; true when all threads have finished.
    pub(super) fn wait_until_all_finished(&self, patience: Duration) -> bool {
        let state = self.lock();
        let waiting = |state: &mut State| state.finished < self.threads;
        let waited = self.changed.wait_timeout_while(state, patience, waiting);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.finished == self.threads
    }

    /// Operations that the threads reported so far.
    pub(super) fn done(&self) -> u64 {
        self.done.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    // Every change of the state is one assignment, so a panicked holder leaves it sound.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One thread's place in the run.
#[derive(Debug)]
pub(super) struct Presence<'a> {
    gate: &'a Gate,
    thread: usize,
    arrived: bool,
}

impl<'a> Presence<'a> {
    pub(super) fn new(gate: &'a Gate, thread: usize) -> Self {
        Self { gate, thread, arrived: false }
    }

    pub(super) fn thread(&self) -> usize {
        self.thread
    }

    /// Arrives and waits for the gate to open. Returns the time of the opening.
    pub(super) fn arrive(&mut self) -> Instant {
        let mut state = self.gate.lock();
        state.arrived += 1;
        self.arrived = true;
        self.gate.changed.notify_all();
        loop {
            if let Some(opened) = state.opened {
                return opened;
            }
            state = self.gate.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Reports operations done. Returns false if another thread failed and this one must stop.
    #[inline]
    pub(super) fn report(&self, done: u64) -> bool {
        self.gate.done[self.thread].store(done, Ordering::Relaxed);
        !self.gate.stop.load(Ordering::Relaxed)
    }

    /// Asks all threads to stop.
    pub(super) fn stop_all(&self) {
        self.gate.stop.store(true, Ordering::Relaxed);
    }
}

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.stop_all();
        }
        let mut state = self.gate.lock();
        state.arrived += usize::from(!self.arrived);
        state.finished += 1;
        drop(state);
        self.gate.changed.notify_all();
    }
}
