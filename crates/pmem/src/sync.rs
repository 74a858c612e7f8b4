//! The one place where locks and threads come from.
//!
//! Crates above take `Mutex`, `RwLock`, `Condvar`, `thread` and `thread_local` from here. With the feature `shuttle`
//! they are the explorer's: a deterministic scheduler then decides every interleaving. Without it they are the standard
//! library's.

#[cfg(not(feature = "shuttle"))]
pub use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(feature = "shuttle"))]
pub use std::thread;

#[cfg(feature = "shuttle")]
pub use shuttle::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(feature = "shuttle")]
pub use shuttle::thread;

#[cfg(feature = "shuttle")]
pub use shuttle::thread_local;
#[cfg(not(feature = "shuttle"))]
pub use std::thread_local;

/// Atomics that the scheduler can interleave.
pub mod atomic {
    #[cfg(feature = "shuttle")]
    pub use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
    #[cfg(not(feature = "shuttle"))]
    pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
}

/// A point at which the explorer may switch threads: before every access to traced memory.
#[inline]
pub fn interleave() {
    // A plain switch point. `yield_now` would tell the scheduler to prefer others, after every single access.
    #[cfg(feature = "shuttle")]
    shuttle::thread::sleep(std::time::Duration::ZERO);
}

/// Turn number `turn` of a loop that waits for another thread. Now and then the processor is offered to other threads,
/// since the awaited one may be among them.
#[inline]
pub fn spin(turn: u32) {
    #[cfg(not(feature = "shuttle"))]
    if turn.is_multiple_of(SPINS_PER_YIELD) {
        thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
    // Tells the explorer's scheduler to prefer other threads.
    #[cfg(feature = "shuttle")]
    {
        let _ = turn;
        thread::yield_now();
    }
}

/// Turns of [`spin`] between two offers of the processor: about a microsecond apart.
pub const SPINS_PER_YIELD: u32 = 32;

/// Locks `mutex`; a panic of another holder does not matter where the data is valid between any two statements.
#[inline]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
