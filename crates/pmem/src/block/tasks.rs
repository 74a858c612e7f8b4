//! Tasks that wait for a group without a thread.
//!
//! A task adds its waker and looks at the durable group again; the thread that moves that group takes the wakers
//! afterwards. Both hold the lock: either the task sees the new group, or its waker is found.
//!
//! A waker is foreign code. It is cloned and called without a lock, and it may drop the last handle of the pool. A
//! waker that panics stops neither the other wake-ups nor the thread that calls it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use crate::sync::{Mutex, lock};

/// Wakers by the group that they wait for.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    waiting: Mutex<Vec<(u64, Waker)>>,
}

impl Tasks {
    /// Adds a waker for `group`.
    pub(super) fn add(&self, group: u64, waker: &Waker) {
        let is_known = |waiting: &[(u64, Waker)]| {
            waiting.last().is_some_and(|(last, other)| *last == group && other.will_wake(waker))
        };
        if !is_known(&lock(&self.waiting)) {
            let waker = waker.clone();
            lock(&self.waiting).push((group, waker));
        }
    }

    /// Wakes all tasks that wait for a group up to `group`. Not under a lock of the caller: a waker is foreign code.
    pub(super) fn wake(&self, group: u64) {
        let mut waiting = lock(&self.waiting);
        if waiting.is_empty() {
            return;
        }
        let (ready, later) = std::mem::take(&mut *waiting).into_iter().partition(|(wanted, _)| *wanted <= group);
        *waiting = later;
        drop(waiting);
        let ready: Vec<(u64, Waker)> = ready;
        for (_, waker) in ready {
            // The panic hook has reported it already.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }
}
