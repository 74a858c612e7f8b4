//! The state word of a stripe: the operations that are changing keys of the stripe in the index, and the number of past
//! changes.
//!
//! | bits | meaning |
//! | --- | --- |
//! | 0 | *held*: the cache is growing |
//! | 1 to 15 | *writers*: operations of the index under way that may change a key of this stripe |
//! | 16 to 63 | *version*: changes up to now |
//!
//! The word is *even* while its low 16 bits are zero: nothing is under way, so the cached pair is that of the index.
//! That is the parity of a version that has two states, with several writers at once: two threads that update keys of
//! one stripe need not wait for each other's fences.

/// The cache is growing.
pub(super) const HELD: u64 = 1;
/// One writer.
pub(super) const WRITER: u64 = 1 << 1;
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

/// Whether the writer that found `entered` was alone from then until `now`, with no other writer in between.
#[inline]
pub(super) fn is_alone(entered: u64, now: u64) -> bool {
    entered & WRITERS == 0 && now & WRITERS == WRITER && now / VERSION == entered / VERSION
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_even_only_without_anybody_inside() {
        for version in [0, VERSION, 77 * VERSION] {
            assert!(is_even(version));
            for state in [HELD, WRITER, 5 * WRITER, WRITER | HELD] {
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
    }
}
