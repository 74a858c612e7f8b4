//! Bugs on request: proof that the explorer can fail.
//!
//! With the feature `planted-bugs`, code may ask [`active`] whether a named bug is switched on and then do the wrong
//! thing. Without the feature the answer is the constant `false`, and the wrong code is compiled away. The feature is
//! for tests only; no release is built with it.

#[cfg(feature = "planted-bugs")]
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the planted bug `name` is switched on.
#[cfg(feature = "planted-bugs")]
#[must_use]
#[inline]
pub fn active(name: &str) -> bool {
    // Hot paths ask: a lock that threads share would slow every test down.
    IS_ANY_ACTIVE.load(Ordering::Relaxed) && is_active(name)
}

#[cfg(feature = "planted-bugs")]
#[cold]
fn is_active(name: &str) -> bool {
    ACTIVE.read().unwrap_or_else(std::sync::PoisonError::into_inner).as_deref() == Some(name)
}

/// Whether the planted bug `name` is switched on: never, in a build without the feature `planted-bugs`.
#[cfg(not(feature = "planted-bugs"))]
#[must_use]
#[inline(always)]
pub const fn active(name: &str) -> bool {
    let _ = name;
    false
}

/// Releases a lock too early, and gives the threads that wait for it time.
pub fn let_others_in(lock: impl Sized) {
    drop(lock);
    std::thread::sleep(std::time::Duration::from_millis(100));
}

#[cfg(feature = "planted-bugs")]
static ACTIVE: std::sync::RwLock<Option<String>> = std::sync::RwLock::new(None);

#[cfg(feature = "planted-bugs")]
static IS_ANY_ACTIVE: AtomicBool = AtomicBool::new(false);

/// Switches on the bug `name` for the whole process, or all bugs off with `None`.
#[cfg(feature = "planted-bugs")]
pub fn plant(name: Option<&str>) {
    *ACTIVE.write().unwrap_or_else(std::sync::PoisonError::into_inner) = name.map(str::to_owned);
    // Threads that a test starts after this call see it. Others may see it a moment later.
    IS_ANY_ACTIVE.store(name.is_some(), Ordering::Release);
}
