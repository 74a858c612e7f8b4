//! The words of a mapping: the one place that copies bytes out of them and into them.
//!
//! 1. [`Words`] is a range of words whose bounds and alignment were checked. It is made by [`Memory`](crate::Memory)
//!    and by [`View`](crate::View).
//! 2. Every wider access of this crate is one of its loops: ascending, word by word, of the last word as many bytes as
//!    are asked for.
//!
//! Users hold one of three handles on such words. [`Memory`](crate::Memory) looks at its hooks and panics outside a
//! part. [`Window`](crate::Window) checks a place once and looks at the hooks, because the explorer walks trees through
//! it. [`Block`](crate::Block) has no hooks and a length that the compiler knows, so a read costs no branch. One handle
//! for both would bring that branch back into each read of a transaction.
//!
//! Invariant: bytes of a mapping are only accessed as atomic words, here, by the instructions of `cpu`, and where a
//! medium is measured.
#![expect(unsafe_code, reason = "words of a mapping as atomics")]

use std::hint::select_unpredictable;
use std::sync::atomic::{AtomicU64, Ordering};

use lodestone_width::to_u64;

use crate::addr::WORD_BYTES;

/// Checked words of a mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words<'m>(&'m [AtomicU64]);

impl<'m> Words<'m> {
    /// The `count` words at `first`.
    ///
    /// # Safety
    /// They are mapped and aligned for as long as `'m`, and are accessed by word atomics or whole-word streams only.
    #[inline(always)]
    pub(crate) unsafe fn from_raw(first: *const u8, count: usize) -> Self {
        // SAFETY: the caller vouches for place, alignment and lifetime. Atomics may be shared.
        Self(unsafe { std::slice::from_raw_parts(first.cast::<AtomicU64>(), count) })
    }

    /// `words`, which are already known as atomics.
    #[inline(always)]
    pub(crate) fn of(words: &'m [AtomicU64]) -> Self {
        Self(words)
    }

    /// Number of bytes.
    #[inline(always)]
    pub(crate) fn bytes(self) -> u64 {
        to_u64(self.0.len()) * WORD_BYTES
    }

    /// Where the first one is mapped.
    #[inline(always)]
    pub(crate) fn pointer(self) -> *const u8 {
        self.0.as_ptr().cast::<u8>()
    }

    /// Word `index` as an atomic.
    ///
    /// # Panics
    /// When there are not that many.
    #[inline(always)]
    pub(crate) fn word(self, index: usize) -> &'m AtomicU64 {
        &self.0[index]
    }

    /// The `count` words from word `first` on.
    ///
    /// # Panics
    /// When there are not that many.
    #[inline(always)]
    pub(crate) fn part(self, first: usize, count: usize) -> Self {
        Self(&self.0[first..][..count])
    }

    /// The words, loaded in ascending order.
    #[inline(always)]
    pub(crate) fn loads(self, order: Ordering) -> impl Iterator<Item = u64> + 'm {
        self.0.iter().map(move |word| word.load(order))
    }

    /// The first words (acquire), of which there are enough. A plain loop: it is inlined in every build.
    #[inline(always)]
    pub(crate) fn load_each<const WORDS: usize>(self) -> [u64; WORDS] {
        let words = &self.0[..WORDS];
        let mut loaded = [0; WORDS];
        let mut index = 0;
        while index < WORDS {
            loaded[index] = words[index].load(Ordering::Acquire);
            index += 1;
        }
        loaded
    }

    /// Fills `out` with the bytes of these words in ascending order: of the last word as many as are asked for.
    #[inline(always)]
    pub(crate) fn read(self, out: &mut [u8], order: Ordering) {
        let (chunks, rest) = out.as_chunks_mut::<8>();
        // Arrays, not slices: a slice of eight bytes is copied by a call.
        for (chunk, word) in chunks.iter_mut().zip(self.0) {
            *chunk = word.load(order).to_le_bytes();
        }
        if !rest.is_empty()
            && let Some(word) = self.0.last()
        {
            let bytes = word.load(order).to_le_bytes();
            rest.copy_from_slice(&bytes[..rest.len()]);
        }
    }

    /// As [`read`](Self::read), of `other` when `is_other`. Reads both, which are equally long.
    ///
    /// Each word is chosen by itself, in a register. A choice between whole values would go through memory, where a
    /// wide load waits until the narrow stores before it have left the store buffer.
    #[inline(always)]
    pub(crate) fn read_either(self, other: Self, is_other: bool, out: &mut [u8], order: Ordering) {
        let (chunks, rest) = out.as_chunks_mut::<8>();
        for ((chunk, word), other) in chunks.iter_mut().zip(self.0).zip(other.0) {
            let (word, other) = (word.load(order), other.load(order));
            *chunk = select_unpredictable(is_other, other, word).to_le_bytes();
        }
        if !rest.is_empty()
            && let (Some(word), Some(other)) = (self.0.last(), other.0.last())
        {
            let (word, other) = (word.load(order), other.load(order));
            let bytes = select_unpredictable(is_other, other, word).to_le_bytes();
            rest.copy_from_slice(&bytes[..rest.len()]);
        }
    }

    /// Stores `words` here (release), of which there are no more.
    #[inline(always)]
    pub(crate) fn store_each(self, words: &[u64]) {
        for (place, word) in self.0.iter().zip(words) {
            place.store(*word, Ordering::Release);
        }
    }

    /// Stores `words` here, word by word (release), the first one last.
    #[inline(always)]
    pub(crate) fn store_each_first_last(self, words: &[u64]) {
        for (place, word) in self.0.iter().zip(words).skip(1) {
            place.store(*word, Ordering::Release);
        }
        if let (Some(place), Some(word)) = (self.0.first(), words.first()) {
            place.store(*word, Ordering::Release);
        }
    }

    /// Stores `bytes` here (release). The last word is filled up with zeroes.
    #[inline(always)]
    pub(crate) fn write(self, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks::<8>();
        for (word, chunk) in self.0.iter().zip(chunks) {
            word.store(u64::from_le_bytes(*chunk), Ordering::Release);
        }
        if !rest.is_empty()
            && let Some(word) = self.0.last()
        {
            word.store(word_from(rest), Ordering::Release);
        }
    }
}

/// At most eight bytes as a word that is filled up with zeroes.
#[inline]
pub(crate) fn word_from(chunk: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..chunk.len()].copy_from_slice(chunk);
    u64::from_le_bytes(word)
}
