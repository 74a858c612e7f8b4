//! Copies of byte-string keys in DRAM, with their values: blocks of words in an array that never moves.
//!
//! ```text
//! block:  0 value    1 bytes of the key    2 the key's bytes, filled up with zeroes
//! ```
//!
//! Readers walk into blocks without a lock and ask the stripe's version afterwards, so a block that is freed and taken
//! again under them is harmless: every access is bounded by the array. One thread at a time allocates and frees.

use std::collections::BTreeMap;

use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_pmem::sync::{Mutex, lock};
use lodestone_width::{to_u64, to_usize};

use crate::hybrid_plus::grown::Grown;
use crate::layout::KEY_BYTES_MAX;

/// Words before a key's bytes.
const HEAD_WORDS: usize = 2;
/// Words of the first segment, as a power of two: the longest key fits.
const BASE_BITS: u32 = 10;

const _: () = assert!(HEAD_WORDS + KEY_BYTES_MAX / 8 <= 1 << BASE_BITS, "a block never crosses two segments");

/// The blocks as readers see them, and which words are free, for the one who writes.
pub(super) struct Blocks {
    words: Grown<AtomicU64>,
    free: Mutex<FreeWords>,
}

#[derive(Default)]
struct FreeWords {
    /// Starts of free blocks by their words.
    blocks: BTreeMap<usize, Vec<usize>>,
    /// First word that was never used, and end of the array.
    end: usize,
    len: usize,
}

fn block_words(key_bytes: usize) -> usize {
    HEAD_WORDS + key_bytes.div_ceil(8)
}

fn word_of(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

impl FreeWords {
    /// Takes every block for free.
    fn clear(&mut self) {
        // One block would cross segments: each segment is a block of its own.
        self.blocks.clear();
        let (mut at, mut words) = (0, (1 << BASE_BITS).min(self.len));
        while at < self.len {
            self.put(at, words);
            at += words;
            words = at;
        }
        self.end = self.len;
    }

    fn put(&mut self, at: usize, words: usize) {
        if words > 0 {
            self.blocks.entry(words).or_default().push(at);
        }
    }

    /// The smallest free block of at least `words` words, cut to size.
    fn take(&mut self, words: usize) -> Option<usize> {
        let (&found, places) = self.blocks.range_mut(words..).next()?;
        let at = places.pop()?;
        if places.is_empty() {
            self.blocks.remove(&found);
        }
        self.put(at + words, found - words);
        Some(at)
    }
}

impl Blocks {
    pub(super) fn new() -> Self {
        Self { words: Grown::new(BASE_BITS, 0), free: Mutex::default() }
    }

    /// Bytes of DRAM, free blocks included.
    pub(super) fn dram_bytes(&self) -> u64 {
        self.words.dram_bytes()
    }

    fn store(&self, at: usize, word: u64) {
        // Release: a reader that sees this word sees that the stripe is busy.
        self.words.get(0, at).expect("a block lies within the array").store(word, Ordering::Release);
    }

    fn load(&self, at: usize) -> Option<u64> {
        self.words.get(0, at).map(|word| word.load(Ordering::Acquire))
    }

    /// A new block with `key` and `value`; its start.
    pub(super) fn add(&self, key: &[u8], value: u64) -> usize {
        let words = block_words(key.len());
        let free = &mut *lock(&self.free);
        let at = free.take(words).unwrap_or_else(|| {
            if free.end + words > free.len {
                let rest = free.len - free.end;
                free.put(free.end, rest);
                free.end = free.len;
                free.len = self.words.grow(free.len);
            }
            free.end += words;
            free.end - words
        });
        self.store(at, value);
        self.store(at + 1, to_u64(key.len()));
        key.chunks(8).enumerate().for_each(|(number, bytes)| self.store(at + HEAD_WORDS + number, word_of(bytes)));
        at
    }

    /// Returns the block at `at`.
    pub(super) fn free(&self, at: usize) {
        let bytes = self.load(at + 1).expect("a block lies within the array");
        lock(&self.free).put(at, block_words(to_usize(bytes)));
    }

    /// Takes every block for free.
    pub(super) fn clear(&self) {
        lock(&self.free).clear();
    }

    /// Whether the block at `at` holds `key`.
    #[inline]
    pub(super) fn holds(&self, at: usize, key: &[u8]) -> bool {
        self.load(at + 1) == Some(to_u64(key.len()))
            && key
                .chunks(8)
                .enumerate()
                .all(|(number, bytes)| self.load(at + HEAD_WORDS + number) == Some(word_of(bytes)))
    }

    /// The value in the block at `at`.
    #[inline]
    pub(super) fn value(&self, at: usize) -> Option<u64> {
        self.load(at)
    }

    pub(super) fn set_value(&self, at: usize, value: u64) {
        self.store(at, value);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn blocks_keep_keys_and_freed_words_serve_again() {
        let blocks = Blocks::new();
        let key = |number: usize| vec![number as u8; number % 50];
        let all: Vec<usize> = (0..500).map(|number| blocks.add(&key(number), number as u64)).collect();
        for (number, at) in all.iter().enumerate() {
            assert!(blocks.holds(*at, &key(number)));
            assert!(!blocks.holds(*at, &[key(number), vec![1]].concat()));
            assert_eq!(blocks.value(*at), Some(number as u64));
        }
        let bytes = blocks.dram_bytes();
        let mut all = all;
        for round in 0..20 {
            all.iter().for_each(|at| blocks.free(*at));
            all = (0..500).map(|number| blocks.add(&key(number), round)).collect();
            assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 500, "a block for each key");
            assert!(all.iter().enumerate().all(|(number, at)| blocks.holds(*at, &key(number))));
            assert_eq!(blocks.dram_bytes(), bytes, "what was freed is enough");
        }
    }
}
