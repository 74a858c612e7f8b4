//! The gate in `fence`: how a copy of a pool in use is made consistent without stopping its readers.
//!
//! 1. [`Gate::close`] raises a flag and then makes every thread of the process execute a memory barrier
//!    (`membarrier(2)`).
//! 2. A thread that comes to a fence looks at the flag first and waits while it is raised.
//! 3. The pages that changed last are read (`changes.rs`); the guard's drop lowers the flag and wakes the waiters.
//!
//! **Why the copy is a state that the persistence contract allows.** Take a thread that came to a fence. Its look at
//! the flag was before or after the barrier that it executed for `close`.
//!
//! - Before: all its stores before that fence were visible when `close` returned, and the copy has them.
//! - After: it saw the flag and waits. Nothing that it stores after the fence is in the copy.
//!
//! So the copy holds everything that was fenced. Of the stores after a thread's last fence it holds any part of each
//! line, as after a power cut at the moment of the copy.
//!
//! The look costs one relaxed load and a predictable branch per fence. The thread pays no barrier; the rare copy does.
//! The stores come before the look in program order. A compiler fence holds the compiler to that order. The processor
//! is held by the barrier that `membarrier` makes it execute between two of its instructions. That barrier drains
//! write-combining buffers, so streamed data is covered too.

use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::barrier;

/// The gate of one memory.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    closed: AtomicU32,
    /// Held while the gate is closed; one closer at a time.
    turn: Mutex<()>,
    waiting: Mutex<()>,
    opened: Condvar,
}

fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gate {
    /// The look at the flag that every fence makes first.
    #[inline(always)]
    pub(crate) fn pass(&self) {
        compiler_fence(Ordering::SeqCst);
        if self.closed.load(Ordering::Relaxed) != 0 {
            self.wait();
        }
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) {
        let mut guard = lock(&self.waiting);
        while self.closed.load(Ordering::SeqCst) != 0 {
            guard = self.opened.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Closes the gate until the guard is dropped. Threads stop at their next fence, one after the other. So no thread
    /// may wait for another thread's fence meanwhile.
    pub(crate) fn close(&self) -> rustix::io::Result<ClosedGate<'_>> {
        let turn = lock(&self.turn);
        self.closed.store(1, Ordering::SeqCst);
        let guard = ClosedGate { gate: self, _turn: turn };
        barrier::everywhere()?;
        Ok(guard)
    }
}

/// The gate is closed while this lives.
#[derive(Debug)]
pub(crate) struct ClosedGate<'g> {
    gate: &'g Gate,
    _turn: MutexGuard<'g, ()>,
}

impl Drop for ClosedGate<'_> {
    fn drop(&mut self) {
        let guard = lock(&self.gate.waiting);
        self.gate.closed.store(0, Ordering::SeqCst);
        drop(guard);
        self.gate.opened.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64};
    use std::thread;

    #[test]
    fn nobody_passes_a_closed_gate_and_everybody_does_afterwards() {
        let (gate, stop, passed) = (Gate::default(), AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !stop.load(Ordering::SeqCst) {
                        gate.pass();
                        passed.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            for _ in 0..50 {
                let before = passed.load(Ordering::SeqCst);
                while passed.load(Ordering::SeqCst) == before {
                    thread::yield_now();
                }
                let closed = gate.close().expect("membarrier");
                // Each thread may be between its look and its count: three more at most.
                let at_close = passed.load(Ordering::SeqCst);
                for _ in 0..100 {
                    thread::yield_now();
                    assert!(passed.load(Ordering::SeqCst) <= at_close + 3);
                }
                drop(closed);
            }
            stop.store(true, Ordering::SeqCst);
        });
    }
}
