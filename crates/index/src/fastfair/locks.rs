//! Versions and locks of nodes, in DRAM: none of them is ever on the medium, and after an open all of them are free.
//!
//! Each stripe has one word. A node belongs to the stripe that its address hashes to. Even: no thread writes. Odd: a
//! writer is inside.
//!
//! 1. A writer makes the word odd, changes the node, *makes the change persistent*, and makes the word even again.
//! 2. A reader waits for an even word, reads, and looks at the word again: if it differs, it reads anew.
//!
//! So a reader stores nothing, sees no half-done change, and sees only data that is persistent in order: publication
//! comes after the fence. It waits for a writer of its own leaf only, from that writer's first store to its fence.

use lodestone_pmem::PmAddr;
use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
#[cfg(feature = "shuttle")]
use lodestone_pmem::sync::thread;
use lodestone_width::{to_u64, to_usize};

use crate::error::Result;

/// Stripes, a power of two: 32 KiB, so that they stay in the cache.
const STRIPES: usize = if cfg!(feature = "shuttle") { 16 } else { 4096 };

/// The versions of all nodes of an index.
pub(crate) struct Stripes(Box<[AtomicU64]>);

/// While it lives, its nodes have one writer.
pub(crate) struct Locked<'s> {
    stripes: &'s Stripes,
    /// Ascending, each once.
    held: [usize; 3],
    count: usize,
}

#[cfg(not(feature = "shuttle"))]
pub(crate) fn pause(turns: &mut u32) {
    *turns += 1;
    if turns.is_multiple_of(64) {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

#[cfg(feature = "shuttle")]
pub(crate) fn pause(_turns: &mut u32) {
    thread::yield_now();
}

impl Stripes {
    pub(crate) fn new() -> Self {
        Self((0..STRIPES).map(|_| AtomicU64::new(0)).collect())
    }

    /// Bytes of DRAM.
    pub(crate) fn dram_bytes(&self) -> u64 {
        to_u64(size_of_val(&*self.0))
    }

    #[inline]
    fn number(at: PmAddr) -> usize {
        to_usize((at.to_raw() >> 6).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) & (STRIPES - 1)
    }

    /// The result of `read` on the node at `at` at one moment. It may run several times. Its result (an error as well)
    /// counts only if no thread wrote meanwhile.
    #[inline]
    pub(crate) fn read<T>(&self, at: PmAddr, mut read: impl FnMut() -> Result<T>) -> Result<T> {
        let word = &self.0[Self::number(at)];
        let mut turns = 0;
        loop {
            let version = word.load(Ordering::Acquire);
            if version & 1 == 0 {
                let found = read();
                // The words were loaded with acquire order, so this load stays after them.
                if word.load(Ordering::Acquire) == version {
                    return found;
                }
            } else {
                pause(&mut turns);
            }
        }
    }

    /// Locks one node.
    #[inline]
    pub(crate) fn lock_one(&self, node: PmAddr) -> Locked<'_> {
        let number = Self::number(node);
        self.take(number);
        Locked { stripes: self, held: [number, usize::MAX, usize::MAX], count: 1 }
    }

    #[inline]
    fn take(&self, number: usize) {
        let (word, mut turns) = (&self.0[number], 0);
        loop {
            let version = word.load(Ordering::Relaxed);
            let exchange = || word.compare_exchange(version, version + 1, Ordering::AcqRel, Ordering::Relaxed);
            if version & 1 == 0 && exchange().is_ok() {
                return;
            }
            pause(&mut turns);
        }
    }

    /// Locks up to three nodes. A thread that locks more than one holds the lock of structure changes.
    pub(crate) fn lock(&self, nodes: &[PmAddr]) -> Locked<'_> {
        let mut held = [usize::MAX; 3];
        let mut count = 0;
        for node in nodes {
            let number = Self::number(*node);
            if !held[..count].contains(&number) {
                held[count] = number;
                count += 1;
            }
        }
        held[..count].sort_unstable();
        held[..count].iter().for_each(|number| self.take(*number));
        Locked { stripes: self, held, count }
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        for number in &self.held[..self.count] {
            let word = &self.stripes.0[*number];
            let version = word.load(Ordering::Relaxed);
            word.store(version + 1, Ordering::Release);
        }
    }
}
