//! The one place where locks and threads come from.
//!
//! Crates above take `Mutex`, `RwLock`, `Condvar` and `thread` from here. With the feature `shuttle` they are the
//! explorer's: a deterministic scheduler then decides every interleaving. Without it they are the standard library's.

#[cfg(not(feature = "shuttle"))]
pub use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(feature = "shuttle"))]
pub use std::thread;

#[cfg(feature = "shuttle")]
pub use shuttle::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(feature = "shuttle")]
pub use shuttle::thread;

/// A point at which the explorer may switch threads: before every access to traced memory.
#[inline]
pub fn interleave() {
    #[cfg(feature = "shuttle")]
    shuttle::thread::yield_now();
}
