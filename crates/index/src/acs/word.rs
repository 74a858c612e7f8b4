//! The state word of a bucket: who is changing what the bucket caches, and how often that has happened.
//!
//! | bits | meaning |
//! | --- | --- |
//! | 0 | *latch*: somebody is changing the bucket's content; held for some stores, never during an operation of the index |
//! | 1 | *held*: the cache is growing |
//! | 2 to 15 | *writers*: operations of the index under way that may change a key of this bucket |
//! | 16 to 63 | *version*: changes up to now |
//!
//! The word is *even* while its low 16 bits are zero: nothing is under way, so what is cached is what the index holds. That is
//! the parity of a version that has two states, with several writers at once: two threads that update keys of one
//! bucket need not wait for each other's fences.

use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_pmem::sync::spin;

/// The content is being changed.
pub(super) const LATCH: u64 = 1;
/// The cache is growing.
pub(super) const HELD: u64 = 1 << 1;
/// One writer.
pub(super) const WRITER: u64 = 1 << 2;
/// One change.
pub(super) const VERSION: u64 = 1 << 16;

const WRITERS: u64 = VERSION - WRITER;

/// Whether nothing is under way.
#[inline]
pub(super) fn is_even(word: u64) -> bool {
    word & (VERSION - 1) == 0
}

/// Whether some writer is inside.
pub(super) fn has_writers(word: u64) -> bool {
    word & WRITERS != 0
}

/// Whether the writer that found `entered` was alone from then until `now`, with nobody having been in between.
#[inline]
pub(super) fn is_alone(entered: u64, now: u64) -> bool {
    entered & (LATCH | WRITERS) == 0 && now & WRITERS == WRITER && now / VERSION == entered / VERSION
}

/// Takes the latch; the word before.
pub(super) fn latch(word: &AtomicU64) -> u64 {
    let mut turn = 0;
    loop {
        let found = word.load(Ordering::Relaxed);
        let free = found & LATCH == 0;
        if free && word.compare_exchange(found, found | LATCH, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return found;
        }
        turn += 1;
        spin(turn);
    }
}

/// Waits until nobody holds the latch.
pub(super) fn wait_for_latch(word: &AtomicU64) {
    let mut turn = 0;
    while word.load(Ordering::Acquire) & LATCH != 0 {
        turn += 1;
        spin(turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_even_only_without_anybody_inside() {
        for version in [0, VERSION, 77 * VERSION] {
            assert!(is_even(version));
            for state in [LATCH, HELD, WRITER, 5 * WRITER, WRITER | LATCH] {
                assert!(!is_even(version | state));
            }
        }
    }

    #[test]
    fn a_writer_is_alone_only_if_nobody_came_or_went() {
        let entered = 7 * VERSION;
        assert!(is_alone(entered, entered + WRITER));
        assert!(is_alone(entered, (entered + WRITER) | HELD), "who makes the cache grow waits for it");
        assert!(!is_alone(entered + WRITER, entered + WRITER), "somebody was inside and has left without a change");
        assert!(!is_alone(entered, entered + 2 * WRITER), "somebody is inside");
        assert!(!is_alone(entered, entered + VERSION + WRITER), "somebody came and left");
        assert!(!is_alone(entered | LATCH, entered + WRITER), "a fill was under way");
    }
}
