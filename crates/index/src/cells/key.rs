//! The content of a pair's key word.
//!
//! A `u64` key is its own key word. A byte string has its own block (a record of the ordered map without a value, so
//! its bytes are checked). Its key word is the block's address with 16 bits of the key's hash above it. So a search
//! reads the block of another key once in 65,536 comparisons.

use lodestone_pmem::PmAddr;
use lodestone_width::low_u8;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::Result;
use crate::layout::RecordHead;
use crate::medium::IndexMemory;
use crate::traits::IndexKey;

/// Bits of an address in a key word.
const ADDR_BITS: u32 = 48;
/// Bits of the offset, in units of eight bytes, in a key word.
const OFFSET_BITS: u32 = 40;

/// A key of a cell structure, by reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyRef<'k> {
    /// A number.
    Number(u64),
    /// A byte string.
    Bytes(&'k [u8]),
}

/// The kind of keys that a structure holds; stored in its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    /// Numbers.
    Number,
    /// Byte strings.
    Bytes,
}

/// Calls `use_key` with `key` as the structures see it.
#[inline]
pub(crate) fn with_key<K: IndexKey + ?Sized, R>(key: &K, use_key: impl FnOnce(KeyRef<'_>) -> R) -> R {
    if K::IS_WORD {
        use_key(KeyRef::Number(key.order_word()))
    } else {
        key.with_bytes(|bytes| use_key(KeyRef::Bytes(bytes)))
    }
}

impl KeyKind {
    /// The kind of `K`.
    pub(crate) fn of<K: IndexKey + ?Sized>() -> Self {
        if K::IS_WORD { Self::Number } else { Self::Bytes }
    }

    /// The code in the header.
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::Number => 1,
            Self::Bytes => 2,
        }
    }

    /// The hash of the key that `word` holds.
    pub(crate) fn hash(self, medium: IndexMemory<'_>, word: u64, seed: u64) -> Result<u64> {
        match self {
            Self::Number => Ok(KeyRef::Number(word).hash(seed)),
            Self::Bytes => {
                let mut key = Vec::new();
                medium.key(record_at(medium, word)?, &mut key)?;
                Ok(KeyRef::Bytes(&key).hash(seed))
            }
        }
    }

    /// The key that `word` holds, as bytes that order as keys do: of a number, big-endian.
    pub(crate) fn bytes(self, medium: IndexMemory<'_>, word: u64) -> Result<Vec<u8>> {
        match self {
            Self::Number => Ok(word.to_be_bytes().to_vec()),
            Self::Bytes => {
                let mut key = Vec::new();
                medium.key(record_at(medium, word)?, &mut key)?;
                Ok(key)
            }
        }
    }
}

impl KeyRef<'_> {
    /// XXH3 of the key's bytes (little-endian of a number).
    #[inline]
    pub(crate) fn hash(self, seed: u64) -> u64 {
        match self {
            Self::Number(number) => xxh3_64_with_seed(&number.to_le_bytes(), seed),
            Self::Bytes(bytes) => xxh3_64_with_seed(bytes, seed),
        }
    }

    /// Calls `use_bytes` with the key as bytes that order as keys do.
    #[inline]
    pub(crate) fn with_order_bytes<R>(self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Self::Number(number) => use_bytes(&number.to_be_bytes()),
            Self::Bytes(bytes) => use_bytes(bytes),
        }
    }

    /// Whether the key word `word` holds this key, whose hash is `hash`.
    ///
    /// # Errors
    /// When the bytes of the key in question are damaged, or `word` changed under a reader without a lock.
    #[inline]
    pub(crate) fn is_in(self, medium: IndexMemory<'_>, word: u64, hash: u64) -> Result<bool> {
        match self {
            Self::Number(number) => Ok(word == number),
            Self::Bytes(bytes) => {
                Ok(word >> ADDR_BITS == tag_of(hash) && medium.match_key(record_at(medium, word)?, bytes)?.is_some())
            }
        }
    }
}

/// The tag of a key with the hash `hash`: bits that neither choose its segment (the upper ones) nor its line.
#[inline]
fn tag_of(hash: u64) -> u64 {
    hash >> 32 & 0xFFFF
}

/// The key word of a byte string in the record at `at`.
#[inline]
pub(crate) fn record_word(at: PmAddr, hash: u64) -> u64 {
    tag_of(hash) << ADDR_BITS | u64::from(at.part()) << OFFSET_BITS | at.offset() >> 3
}

/// The record that the key word `word` names, checked to lie inside the pool.
#[inline]
pub(crate) fn record_at(medium: IndexMemory<'_>, word: u64) -> Result<PmAddr> {
    let part = low_u8(word >> OFFSET_BITS);
    let at = PmAddr::new(u16::from(part), (word & ((1 << OFFSET_BITS) - 1)) << 3);
    if medium.memory.contains(at, RecordHead::BYTES) {
        Ok(at)
    } else {
        Err(medium.damaged(at, "key of a pair", "points outside the pool"))
    }
}
