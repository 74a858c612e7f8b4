//! How a thread sleeps until another has something for it, without a lost wake-up and without a locked instruction on a
//! line that both write as long as nobody sleeps.
//!
//! 1. The sleeper takes the lock, raises `sleeping`, executes a full barrier and looks once more whether it is needed.
//!    Only then it waits, which gives the lock up.
//! 2. Who has published something executes a full barrier and looks at `sleeping`. If it is raised, takes the lock,
//!    gives it up and notifies.
//!
//! Why no wake-up is lost: of the two barriers one comes first. If the sleeper's, the publisher sees `sleeping`; if the
//! publisher's, the sleeper's look sees what was published. And the publisher gets the lock only when the sleeper
//! waits, so the notification finds it. Schedules under shuttle fail when the look is left out.

use lodestone_pmem::sync::atomic::{AtomicBool, Ordering, fence};
use lodestone_pmem::sync::{Condvar, Mutex, lock};
use lodestone_pmem::{count_shared_rmws, planted};

/// Where one thread sleeps.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    sleeping: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Parker {
    /// Sleeps until `is_ready`, which every [`wake`](Self::wake) makes it ask again.
    pub(crate) fn park_until(&self, mut is_ready: impl FnMut() -> bool) {
        // Taking and giving up the lock: two read-modify-writes on a line that wakers use too.
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

    /// Wakes the sleeper, if there is one, after the caller has published what it is to see and executed a full barrier
    /// (`fence(SeqCst)`); one barrier serves for any number of sleepers. Gives whether one was asleep.
    pub(crate) fn wake_after_barrier(&self) -> bool {
        if !self.sleeping.load(Ordering::Relaxed) {
            return false;
        }
        count_shared_rmws(2);
        drop(lock(&self.lock));
        self.wake.notify_all();
        true
    }

    /// Publishes nothing itself: barrier and wake.
    pub(crate) fn wake(&self) -> bool {
        fence(Ordering::SeqCst);
        self.wake_after_barrier()
    }
}
