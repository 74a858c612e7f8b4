//! How a thread sleeps until another has work for it. No wake-up is lost, and while no thread sleeps there is no locked
//! instruction on a line that both write.
//!
//! 1. The sleeper takes the lock, raises `sleeping`, executes a full barrier and checks once more whether it is needed.
//!    Only then does it wait, which releases the lock.
//! 2. A thread that has published something executes a full barrier and reads `sleeping`. If it is raised, the thread
//!    takes the lock, releases it and notifies.
//!
//! Why no wake-up is lost: one of the two barriers comes first. If it is the sleeper's, the publisher sees `sleeping`.
//! If it is the publisher's, the sleeper's check sees the published data. The publisher obtains the lock only once the
//! sleeper waits, so the notification reaches it. Schedules under shuttle fail if the check is left out.

use lodestone_pmem::sync::atomic::{AtomicBool, Ordering, fence};
use lodestone_pmem::sync::{Condvar, Mutex, lock};
use lodestone_pmem::{count_shared_rmws, planted};

/// The place where one thread sleeps.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    sleeping: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Parker {
    /// Sleeps until `is_ready` returns true. Every [`wake`](Self::wake) evaluates it again.
    pub(crate) fn park_until(&self, mut is_ready: impl FnMut() -> bool) {
        // Taking and releasing the lock: two read-modify-writes on a line that wakers use too.
        count_shared_rmws(2);
        let mut guard = lock(&self.lock);
        self.sleeping.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if planted::active("numa-sleep-without-looking") {
            guard = self.wake.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        while !is_ready() {
            guard = self.wake.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        self.sleeping.store(false, Ordering::Relaxed);
        drop(guard);
    }

    /// Wakes the sleeper, if there is one. The caller must first publish the data that the sleeper is to see, and
    /// execute a full barrier (`fence(SeqCst)`). One barrier serves for any number of sleepers. Returns whether a
    /// thread was asleep.
    pub(crate) fn wake_after_barrier(&self) -> bool {
        if !self.sleeping.load(Ordering::Relaxed) {
            return false;
        }
        count_shared_rmws(2);
        drop(lock(&self.lock));
        self.wake.notify_all();
        true
    }

    /// Barrier and wake, without publishing anything.
    pub(crate) fn wake(&self) -> bool {
        fence(Ordering::SeqCst);
        self.wake_after_barrier()
    }
}
