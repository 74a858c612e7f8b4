//! A lock in DRAM that optimistic readers pass without writing to it.
//!
//! 1. A reader takes a [`Stamp`], reads the data that the lock guards (words of the medium, each by value), and asks
//!    whether the stamp is [still](VersionLock::is_still) true. If not, the data read is invalid and it starts again.
//! 2. A writer [locks](VersionLock::lock); readers wait until it is done, so they see nothing that is not persistent
//!    yet.
//! 3. A structure change [freezes](VersionLock::freeze): writers wait, readers continue. The guarded data is copied.
//!    Then the lock is [killed](VersionLock::kill), and a thread that finds it dead looks for the copy.
//!
//! Why loads suffice: a reader's loads acquire and a writer's stores release, so a reader that saw any store of a
//! writer also sees that writer's version.
//!
//! No lock is on the medium: no crash leaves one there.

use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_pmem::sync::thread;
use lodestone_pmem::{count_shared_rmws, planted};

const LOCKED: u64 = 1;
const FROZEN: u64 = 2;
const DEAD: u64 = 4;
const VERSION_STEP: u64 = 8;

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct VersionLock(AtomicU64);

/// A moment at which no thread was changing the data that a lock guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

/// The lock, held for changes; dropping it lets readers go on.
#[derive(Debug)]
pub(crate) struct Held<'l>(&'l VersionLock);

/// Counts the waits of one thread for another.
#[derive(Debug, Default)]
pub(crate) struct Turn(u32);

impl Turn {
    /// Waits a little.
    #[inline]
    pub(crate) fn wait(&mut self) {
        self.0 = self.0.wrapping_add(1);
        // A deterministic scheduler must be told that this thread waits; elsewhere a holder is done within a
        // microsecond, unless it lost its processor.
        if cfg!(feature = "shuttle") || self.0.is_multiple_of(64) {
            thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

impl VersionLock {
    /// A moment without a writer, or `None` when the lock is dead.
    #[inline]
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        let mut turn = Turn::default();
        loop {
            let word = self.0.load(Ordering::Acquire);
            match word & (LOCKED | DEAD) {
                0 => return Some(Stamp(word & !FROZEN)),
                LOCKED => turn.wait(),
                _ => return None,
            }
        }
    }

    /// Whether nothing changed since `stamp`.
    #[inline]
    pub(crate) fn is_still(&self, stamp: Stamp) -> bool {
        self.0.load(Ordering::Acquire) & !FROZEN == stamp.0
    }

    /// Whether the lock is dead.
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.0.load(Ordering::Acquire) & DEAD != 0
    }

    /// Sets `bit` once none of `bits` is set; `false` when the lock is dead.
    #[inline]
    fn acquire(&self, bits: u64, bit: u64) -> bool {
        let mut turn = Turn::default();
        loop {
            let word = self.0.load(Ordering::Relaxed);
            if word & DEAD != 0 {
                return false;
            }
            if word & bits == 0 {
                count_shared_rmws(1);
            }
            if word & bits == 0
                && self.0.compare_exchange(word, word | bit, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                return true;
            }
            turn.wait();
        }
    }

    /// Waits for the lock and takes it for changes, or `None` when it is dead.
    #[inline]
    pub(crate) fn lock(&self) -> Option<Held<'_>> {
        // Made only when the lock was taken: a `Held` that is dropped here would release another's.
        self.acquire(LOCKED | FROZEN, LOCKED).then(|| Held(self))
    }

    /// Waits for the lock and stops writers until [`thaw`](Self::thaw) or [`kill`](Self::kill); readers go on. `false`
    /// when it is dead.
    pub(crate) fn freeze(&self) -> bool {
        self.acquire(LOCKED | FROZEN, FROZEN)
    }

    /// Stops readers as well; only the one who froze the lock may.
    pub(crate) fn lock_frozen(&self) -> Held<'_> {
        let locked = self.acquire(LOCKED, LOCKED);
        assert!(locked, "only the one who froze a lock ends it");
        Held(self)
    }

    /// Ends a freeze.
    pub(crate) fn thaw(&self) {
        self.0.fetch_and(!FROZEN, Ordering::Release);
    }

    /// Ends a freeze and the life of what the lock guards: every reader and writer finds out.
    pub(crate) fn kill(&self) {
        self.0.fetch_add(VERSION_STEP | DEAD, Ordering::AcqRel);
    }

    /// Begins a new life of the lock: no stamp from before is true again.
    pub(crate) fn revive(&self) {
        let word = self.0.load(Ordering::Relaxed);
        assert!(word & DEAD != 0, "only what died is used again");
        let fresh = (word | LOCKED | FROZEN | DEAD).wrapping_add(1);
        // Planted: versions begin again.
        let fresh = if planted::active("cells-lock-revived-young") { 0 } else { fresh };
        self.0.store(fresh, Ordering::Release);
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        let word = self.0.0.load(Ordering::Relaxed);
        // No other thread changes a locked word, except the thaw or death that its own holder asks for.
        self.0.0.fetch_add(VERSION_STEP - LOCKED, Ordering::Release);
        debug_assert!(word & LOCKED != 0, "a held lock is locked");
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_lives_until_a_writer_comes() {
        let lock = VersionLock::default();
        let stamp = lock.stamp().expect("alive");
        assert!(lock.freeze() && lock.is_still(stamp), "a freeze does not stop readers");
        lock.thaw();
        drop(lock.lock());
        assert!(!lock.is_still(stamp));
    }

    #[test]
    fn what_died_and_was_used_again_has_a_new_version() {
        let lock = VersionLock::default();
        let stamp = lock.stamp().expect("alive");
        assert!(lock.freeze());
        lock.kill();
        assert!(lock.stamp().is_none() && lock.lock().is_none() && !lock.freeze());
        lock.revive();
        assert!(!lock.is_still(stamp) && lock.lock().is_some());
        assert!(lock.freeze());
        drop(lock.lock_frozen());
        assert!(lock.stamp().is_some());
        lock.thaw();
        assert!(lock.lock().is_some());
    }
}
