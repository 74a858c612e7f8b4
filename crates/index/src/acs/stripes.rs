//! The stripes: the state words that keys share by their hash, apart from the buckets.
//!
//! They are few, so they stay in the processor's second-level cache: a writer of a key that is not cached enters and
//! leaves there, and its bucket is on its way from memory meanwhile. Two keys of one stripe cost each other a dropped
//! fill, or a key that is thrown out, at most.

use lodestone_pmem::count_shared_rmws;
use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_pmem::sync::{Mutex, lock, spin};
use lodestone_width::to_usize;

use super::word::{self, HELD, VERSION, WRITER};

/// Stripes: 32 KiB of state words.
const STRIPES: usize = if cfg!(feature = "shuttle") { 2 } else { 1 << 12 };
/// First bit of the hash that chooses the stripe: after those of the tag and the ghost, before those of the level.
const STRIPE_SHIFT: u32 = 8;

const _: () = assert!(STRIPES.is_power_of_two());

/// All stripes.
pub(super) struct Stripes {
    words: Box<[AtomicU64]>,
    /// Held by who keeps everybody out.
    alone: Mutex<()>,
}

/// The stripe of a key.
#[derive(Clone, Copy)]
pub(super) struct Stripe<'s>(&'s AtomicU64);

impl Stripes {
    pub(super) fn new() -> Self {
        Self { words: (0..STRIPES).map(|_| AtomicU64::new(0)).collect(), alone: Mutex::new(()) }
    }

    /// Bytes of DRAM.
    pub(super) fn bytes(&self) -> usize {
        std::mem::size_of_val(&*self.words)
    }

    /// The stripe of a key with this hash.
    #[inline]
    pub(super) fn of(&self, hash: u64) -> Stripe<'_> {
        Stripe(&self.words[to_usize(hash >> STRIPE_SHIFT) % STRIPES])
    }

    /// Does `work` while no thread is inside: no hit and no fill meanwhile, no writer can enter, and those that were
    /// inside have left. Fills that began before are dropped. The caller is not inside an operation.
    pub(super) fn exclusively<T>(&self, work: impl FnOnce() -> T) -> T {
        let _alone = lock(&self.alone);
        for stripe in &self.words {
            stripe.fetch_or(HELD, Ordering::SeqCst);
        }
        for stripe in &self.words {
            let mut turn = 0;
            while word::has_writers(stripe.load(Ordering::Acquire)) {
                turn += 1;
                spin(turn);
            }
        }
        let done = work();
        for stripe in &self.words {
            stripe.fetch_add(VERSION - HELD, Ordering::AcqRel);
        }
        done
    }
}

impl Stripe<'_> {
    /// The state, for who is going to ask the cache or the index.
    #[inline]
    pub(super) fn state(self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Enters an operation that may change a key of the stripe in the index; the state before.
    #[inline]
    pub(super) fn enter(self) -> u64 {
        let mut turn = 0;
        loop {
            count_shared_rmws(1);
            // Before the index changes: who reads what the index holds from now on fills nothing. Sequentially
            // consistent, as the latch of a fill: either the fill sees this, or this writer sees the fill (`table`).
            let found = self.0.fetch_add(WRITER, Ordering::SeqCst);
            if found & HELD == 0 {
                return found;
            }
            self.0.fetch_sub(WRITER, Ordering::Release);
            turn += 1;
            spin(turn);
        }
    }

    /// Leaves an operation that changed nothing.
    #[inline]
    pub(super) fn leave_unchanged(self) {
        count_shared_rmws(1);
        self.0.fetch_sub(WRITER, Ordering::Release);
    }

    /// Leaves an operation whose change the cache has followed.
    #[inline]
    pub(super) fn leave(self) {
        count_shared_rmws(1);
        self.0.fetch_add(VERSION - WRITER, Ordering::Release);
    }
}
