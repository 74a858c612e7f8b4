//! Group commit: one waiter at a time writes the open group for all.
//!
//! **A failure ends everything.** Linux reports a failed write or sync to one caller and then succeeds. A group that is
//! written after a failed one would be acknowledged, and replay stops before it. So the first failure is noted under
//! the lock under which the next committer is chosen, before that choice. From then on every wait is an error.
//!
//! A checkpoint may fail while a committer is at work. From then on a flush that finds its group full leaves its line
//! out, since nothing becomes durable any more. So a committer looks again after it has closed the group: lines that
//! were stored after such a flush may be in it, without the line on which they depend.

use std::time::{Duration, Instant};

use lodestone_width::to_usize;

use super::checkpoint::Upto;
use super::record::Record;
use super::{CommitState, Engine, Halt};
use crate::error::{Error, Result};
use crate::events;
use crate::planted;
use crate::sync::atomic::Ordering;
use crate::sync::{Condvar, MutexGuard, lock, thread};

impl Engine {
    /// Whether anything can still become durable here.
    pub(super) fn check_halt(&self) -> Result<()> {
        if self.halted.load(Ordering::Acquire) { Err(self.halt_error()) } else { Ok(()) }
    }

    /// How waiting for `group` ended.
    pub(super) fn outcome(&self, group: u64) -> Result<()> {
        let halted = self.check_halt();
        // A close made everything durable up to its end, so a later question about that returns `Ok`.
        if matches!(halted, Err(Error::Closed { .. })) && self.durable.load(Ordering::Acquire) >= group {
            return Ok(());
        }
        halted
    }

    fn halt_error(&self) -> Error {
        let path = self.files.path.clone();
        match self.halt.get() {
            Some(Halt::Closed) => Error::Closed { path },
            Some(Halt::Poisoned(cause)) => Error::Poisoned { path, cause: cause.clone() },
            None => Error::Poisoned { path, cause: String::new() },
        }
    }

    /// Nothing becomes durable any more. The first reason is kept: later ones follow from it.
    ///
    /// Takes no lock, because callers hold the locks under which other threads would go on. They call
    /// [`wake_all`](Self::wake_all) when they have released them.
    pub(super) fn halt(&self, reason: Halt) -> Error {
        let _ = self.halt.set(reason);
        self.halted.store(true, Ordering::SeqCst);
        self.halt_error()
    }

    /// Halts because of a failure of the device.
    pub(super) fn poison(&self, failure: &Error) -> Error {
        self.halt(Halt::Poisoned(failure.to_string()))
    }

    /// Wakes all waiters after a halt. Never under a lock: a waker is foreign code.
    pub(super) fn wake_all(&self) {
        // Taking the lock once makes sure that a waiter is either woken or has not looked yet.
        drop(lock(&self.commit));
        self.waiters[0].notify_all();
        self.waiters[1].notify_all();
        drop(lock(&self.ring));
        self.ring_moved.notify_all();
        self.tasks.wake(u64::MAX);
        self.tell_failure();
    }

    /// Emits the event about a failure of the device, once. A subscriber is foreign code as well.
    fn tell_failure(&self) {
        if let Some(Halt::Poisoned(cause)) = self.halt.get()
            && !self.is_told.swap(true, std::sync::atomic::Ordering::Relaxed)
        {
            events::device_failed(&self.files.path, cause);
        }
    }

    /// Whether `group` is on disk.
    pub(super) fn is_on_disk(&self, group: u64) -> bool {
        self.durable.load(Ordering::Acquire) >= group
    }

    /// Whether waiting for `group` is over, for better or worse.
    pub(super) fn is_settled(&self, group: u64) -> bool {
        self.is_on_disk(group) || self.halted.load(Ordering::Acquire)
    }

    /// Waits until `group` is on disk, committing it if no other thread does.
    pub(super) fn wait_for(&self, group: u64) -> Result<()> {
        if !self.is_settled(group) {
            let side = to_usize(group % 2);
            self.arrived[side].fetch_add(1, Ordering::AcqRel);
            let waited = self.commit_or_wait(group, side);
            self.arrived[side].fetch_sub(1, Ordering::AcqRel);
            waited?;
        }
        self.outcome(group)
    }

    /// Waits for the commit under way by spinning, then asleep; commits as soon as no other thread does.
    ///
    /// Spinning threads yield the processor in every turn. They find their group durable without being woken. That
    /// matters: waking a sleeping thread on an idle processor takes about as long as a sync of a fast device.
    fn commit_or_wait(&self, group: u64, side: usize) -> Result<()> {
        let spin = self.options.spin.min(Duration::from_nanos(self.sync_ns.load(Ordering::Relaxed) * 2));
        let start = Instant::now();
        while !self.is_settled(group) {
            let patient = !spin.is_zero() && start.elapsed() < spin;
            if patient && self.busy.load(Ordering::Acquire) {
                thread::yield_now();
                continue;
            }
            let mut state = lock(&self.commit);
            if !state.committing {
                if !self.is_settled(group) {
                    self.lead(state, side)?;
                }
            } else if !patient && !self.is_settled(group) {
                state.parked[side] += 1;
                state = wait(&self.waiters[side], state);
                state.parked[side] -= 1;
            }
        }
        Ok(())
    }

    /// Commits the open group as the only committer.
    fn lead(&self, mut state: MutexGuard<'_, CommitState>, side: usize) -> Result<()> {
        state.committing = true;
        self.busy.store(true, Ordering::Release);
        let expected = state.served;
        drop(state);
        self.gather(side, expected);
        let result = self.commit_group();
        let mut state = lock(&self.commit);
        // Before another waiter can be chosen: its group would follow one that is not on disk.
        let result = result.map_err(|failure| self.poison(&failure));
        state.committing = false;
        self.busy.store(false, Ordering::Release);
        match result {
            Ok(done) => {
                self.hand_over(&mut state, done);
                drop(state);
                self.tasks.wake(done);
                Ok(())
            }
            Err(error) => {
                drop(state);
                self.wake_all();
                Err(error)
            }
        }
    }

    /// Wakes the sleepers of `done` and one sleeper of the group after it, which commits next.
    fn hand_over(&self, state: &mut CommitState, done: u64) {
        let side = to_usize(done % 2);
        state.served = self.arrived[side].load(Ordering::Acquire);
        self.durable.store(done, Ordering::Release);
        if state.parked[side] > 0 {
            self.waiters[side].notify_all();
        }
        if state.parked[1 - side] > 0 {
            self.waiters[1 - side].notify_one();
        }
    }

    /// Waits a moment, so that threads that the last commit served can join: a sync for eight costs as much as a sync
    /// for one.
    fn gather(&self, side: usize, expected: u64) {
        if expected <= 1 || self.options.gather.is_zero() {
            return;
        }
        let limit = self.options.gather.min(Duration::from_nanos(self.sync_ns.load(Ordering::Relaxed) / 2));
        let start = Instant::now();
        while self.arrived[side].load(Ordering::Acquire) < expected && start.elapsed() < limit {
            thread::yield_now();
        }
    }

    /// Closes the open group, writes its record and syncs. One caller at a time.
    fn commit_group(&self) -> Result<u64> {
        let mut record = Record::default();
        let group = self.groups.close(&mut record);
        if !planted::active("block-commits-after-halt") {
            // The flusher that left a line out had seen the halt before it put others into the group.
            self.check_halt()?;
        }
        let position = self.reserve(record.len())?;
        record.seal(&self.life, position, group);
        let start = Instant::now();
        self.files.area().append(&record, position).map_err(|source| {
            Error::io(
                &self.files.path,
                "writing and syncing the journal",
                "free space or replace the device, then reopen",
                source,
            )
        })?;
        let sync_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.sync_ns.store((self.sync_ns.load(Ordering::Relaxed) * 7 + sync_ns) / 8, Ordering::Relaxed);
        let mut ring = lock(&self.ring);
        ring.head = position + record.len();
        ring.unapplied.push(record);
        let half_full = ring.head - ring.tail > self.files.area().ring_bytes() / 2;
        drop(ring);
        if half_full {
            self.ring_moved.notify_all();
        }
        Ok(group)
    }

    /// Makes room for `bytes` in the ring and returns the position to write at.
    ///
    /// Checkpoints itself, even if another thread does: the checkpointer may be waiting for this very commit.
    pub(super) fn reserve(&self, bytes: u64) -> Result<u64> {
        let ring_bytes = self.files.area().ring_bytes();
        assert!(bytes <= ring_bytes / 4, "groups are bounded by a quarter of the ring");
        let mut ring = lock(&self.ring);
        while ring.head + bytes - ring.tail > ring_bytes {
            drop(ring);
            self.checkpoint(Upto::Oldest)?;
            ring = lock(&self.ring);
        }
        Ok(ring.head)
    }

    /// No further group is committed; the one under way is waited for.
    pub(super) fn stop_committing(&self) -> Result<()> {
        loop {
            let state = lock(&self.commit);
            self.check_halt()?;
            if !state.committing {
                // Under the lock, as in `lead`: an open would not look for anything acknowledged from here on.
                self.halt(Halt::Closed);
                return Ok(());
            }
            drop(state);
            thread::yield_now();
        }
    }
}

fn wait<'m, T>(condition: &Condvar, guard: MutexGuard<'m, T>) -> MutexGuard<'m, T> {
    condition.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner)
}
