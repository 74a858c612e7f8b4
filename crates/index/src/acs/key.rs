//! Keys as words: a bucket stores and compares these.
//!
//! A `u64` is one word. A string takes the same number of words whatever its length: its bytes, zeroes, and its length
//! in the last byte, so different strings have different words. A string that is too long for that is never cached.

use lodestone_width::{product, to_u64};

use crate::traits::IndexKey;

/// Most words of a key.
pub(super) const WORDS_MAX: usize = 16;

/// Longest string that fits `words` words.
pub(super) const fn bytes_max(words: usize) -> usize {
    words * size_of::<u64>() - 1
}

const _: () = assert!(bytes_max(WORDS_MAX) <= 0xFF);

/// Calls `use_words` with `key` as `count` words; `None` when it does not fit.
#[inline]
pub(super) fn with_words<K: IndexKey + ?Sized, R>(
    key: &K,
    count: usize,
    use_words: impl FnOnce(&[u64]) -> R,
) -> Option<R> {
    if K::IS_WORD {
        return Some(use_words(&[key.order_word()]));
    }
    if key.key_bytes() > bytes_max(count) {
        return None;
    }
    let mut words = [0; WORDS_MAX];
    let words = &mut words[..count];
    key.with_bytes(|bytes| {
        for (word, chunk) in words.iter_mut().zip(bytes.chunks(size_of::<u64>())) {
            let mut filled = [0; size_of::<u64>()];
            filled[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_be_bytes(filled);
        }
        words[count - 1] |= to_u64(bytes.len());
    });
    Some(use_words(words))
}

/// The key that `words` are.
pub(super) fn key_of<K: IndexKey + ?Sized>(words: &[u64]) -> Option<K::Owned> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    if !K::IS_WORD {
        let length = usize::from(*bytes.last()?);
        bytes.truncate(length);
    }
    K::from_bytes(&bytes)
}

/// The hash of `words`: one folded product per word. `seed` is secret, so an attacker cannot choose keys that crowd one
/// bucket.
#[inline]
pub(super) fn hash(seed: u64, words: &[u64]) -> u64 {
    const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
    let fold = |left: u64, right: u64| {
        let (low, high) = product(left, right);
        low ^ high
    };
    let mixed = words.iter().fold(seed, |hash, word| fold(hash ^ word, MULTIPLIER));
    fold(mixed ^ seed.rotate_left(32), 0xD6E8_FEB8_6659_FD93)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_key() {
        assert_eq!(with_words(&7_u64, 1, |words| words.to_vec()), Some(vec![7]));
        assert_eq!(key_of::<u64>(&[7]), Some(7));
        let mut seen = std::collections::HashSet::new();
        for length in 0..=bytes_max(3) {
            for last in [0, 1, 255] {
                let mut key = vec![0; length];
                key.iter_mut().last().into_iter().for_each(|byte| *byte = last);
                let words = with_words(&key[..], 3, |words| words.to_vec()).expect("it fits");
                assert_eq!(key_of::<[u8]>(&words).as_ref(), Some(&key));
                assert!(seen.insert(words) || length == 0, "two keys with the same words");
            }
        }
        assert_eq!(with_words(&[0; bytes_max(3) + 1][..], 3, |_| ()), None);
    }

    #[test]
    fn hashes_spread_and_depend_on_the_seed() {
        let mut buckets = [0_u32; 64];
        for number in 0..64_000_u64 {
            buckets[(hash(1, &[number]) >> 58) as usize] += 1;
        }
        assert!(buckets.iter().all(|count| (700..1300).contains(count)), "{buckets:?}");
        assert_ne!(hash(1, &[5]), hash(2, &[5]));
        assert_ne!(hash(1, &[5, 6]), hash(1, &[6, 5]));
    }
}
