//! Keys: fixed words and strings of bytes, both in an order that eight bytes can approximate.

use std::borrow::Borrow;
use std::fmt::Debug;
use std::hash::Hash;

/// A key of an index.
///
/// Implemented by `u64` and `[u8]`. Signed numbers and tuples become keys by an order-preserving encoding: big-endian
/// bytes, the sign bit flipped.
///
/// ```
/// use lodestone_index::IndexKey;
///
/// /// Signed numbers as keys: big-endian bytes, the sign bit flipped.
/// fn key(number: i64) -> [u8; 8] {
///     number.cast_unsigned().wrapping_add(1 << 63).to_be_bytes()
/// }
///
/// assert!(key(-5) < key(-4) && key(-1) < key(0) && key(0) < key(7));
/// assert!(key(-5)[..].order_word() < key(7)[..].order_word());
/// assert_eq!(5_u64.with_bytes(<u64 as IndexKey>::from_bytes), Some(5));
/// ```
pub trait IndexKey: Ord + Hash + Debug + Send + Sync + 'static {
    /// The key as an owned value.
    type Owned: Borrow<Self> + Ord + Hash + Clone + Debug + Send + Sync + 'static;

    /// A copy.
    fn to_key(&self) -> Self::Owned;

    /// Makes `target` a copy of this key, in the memory that `target` has if it is enough.
    fn assign_to(&self, target: &mut Self::Owned);

    /// The first eight bytes as a number that orders as keys do: `a < b` implies `a.order_word() <= b.order_word()`.
    /// For a `u64` it is the key itself; a shorter string is filled up with zeroes.
    fn order_word(&self) -> u64;

    /// Whether [`order_word`](Self::order_word) identifies the key.
    const IS_WORD: bool;

    /// Bytes of the key.
    fn key_bytes(&self) -> usize;

    /// Calls `use_bytes` with the key as bytes that order as keys do: for a `u64`, big-endian.
    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R;

    /// The key with the bytes that [`with_bytes`](Self::with_bytes) passes; `None` when no key has these bytes.
    fn from_bytes(bytes: &[u8]) -> Option<Self::Owned>;
}

impl IndexKey for u64 {
    type Owned = Self;
    const IS_WORD: bool = true;

    #[inline]
    fn to_key(&self) -> Self {
        *self
    }

    #[inline]
    fn assign_to(&self, target: &mut Self) {
        *target = *self;
    }

    #[inline]
    fn order_word(&self) -> u64 {
        *self
    }

    #[inline]
    fn key_bytes(&self) -> usize {
        size_of::<Self>()
    }

    #[inline]
    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        use_bytes(&self.to_be_bytes())
    }

    #[inline]
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self::from_be_bytes)
    }
}

impl IndexKey for [u8] {
    type Owned = Vec<u8>;
    const IS_WORD: bool = false;

    fn to_key(&self) -> Vec<u8> {
        self.to_vec()
    }

    fn assign_to(&self, target: &mut Vec<u8>) {
        target.clear();
        target.extend_from_slice(self);
    }

    #[inline]
    fn order_word(&self) -> u64 {
        match self.first_chunk::<8>() {
            Some(first) => u64::from_be_bytes(*first),
            None => {
                let mut first = [0; 8];
                first[..self.len()].copy_from_slice(self);
                u64::from_be_bytes(first)
            }
        }
    }

    fn key_bytes(&self) -> usize {
        self.len()
    }

    #[inline]
    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        use_bytes(self)
    }

    fn from_bytes(bytes: &[u8]) -> Option<Vec<u8>> {
        Some(bytes.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_words_never_contradict_the_order_of_the_keys() {
        let mut keys: Vec<Vec<u8>> = vec![vec![], vec![0], vec![0; 8], vec![0; 9], vec![255; 9], vec![1, 0], vec![1]];
        keys.extend((0..200_u64).map(|number| (number * 977).to_be_bytes()[(number % 8) as usize..].to_vec()));
        keys.sort();
        assert!(keys.is_sorted_by_key(|key| key.order_word()));
        for number in [0, 1, u64::MAX] {
            assert_eq!(number.with_bytes(<u64 as IndexKey>::from_bytes), Some(number));
        }
        assert_eq!(<u64 as IndexKey>::from_bytes(b"seven b"), None);
    }
}
