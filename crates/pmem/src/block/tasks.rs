//! Tasks that wait for a group without a thread.
//!
//! A task adds its waker and looks at the durable group again; whoever moves that group takes the wakers afterwards. Both
//! hold the lock: either the task sees the new group, or its waker is found.

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
        let mut waiting = lock(&self.waiting);
        let known = waiting.last().is_some_and(|(last, other)| *last == group && other.will_wake(waker));
        if !known {
            waiting.push((group, waker.clone()));
        }
    }

    /// Wakes everybody who waits for a group up to `group`. Not under a lock of the caller: a waker is foreign code.
    pub(super) fn wake(&self, group: u64) {
        let mut waiting = lock(&self.waiting);
        if waiting.is_empty() {
            return;
        }
        let (ready, later) = std::mem::take(&mut *waiting).into_iter().partition(|(wanted, _)| *wanted <= group);
        *waiting = later;
        drop(waiting);
        let ready: Vec<(u64, Waker)> = ready;
        ready.into_iter().for_each(|(_, waker)| waker.wake());
    }
}
