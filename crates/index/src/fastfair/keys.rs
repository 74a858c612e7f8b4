//! Keys on the medium: a `u64` is in its entry; a string has its own block, with eight bytes in the entry.
//!
//! A string's entry holds its first eight bytes as a number that orders as strings do, so a search compares numbers and
//! follows the pointer only where they are equal: one or two blocks per lookup for strings that differ early, one per
//! probe when all share a prefix. In inner nodes the entry's pointer is the child, whose header names the block of its
//! lower bound; that is followed on equal prefixes only.
//!
//! ```text
//! key block:  0 value head: checked, which value counts | lower bound << 1 | CRC-32C of the value << 8    8 value 0    16 value 1
//!            24 key: length | CRC-32C of place, owner, length and key << 32            32 the key's bytes, filled up with zeroes
//! ```
//!
//! The value's three words share a line. The new value is written over the unused one, then the head switches to it.
//! The order of stores within a line makes that atomic, with one flush and one fence.

use std::cmp::Ordering;

use lodestone_pmem::{LINE_BYTES, PmAddr, checked};
use lodestone_width::{to_u64, to_usize};

use crate::error::Result;
use crate::fastfair::node::{Entry, Header};
use crate::layout::KEY_BYTES_MAX;
use crate::medium::IndexMemory;
use crate::traits::IndexKey;

/// Bit of the value head's payload: the block holds the lower bound of a leaf.
const BOUND: u64 = 2;
/// Offset of the key in its block.
const KEY_OFFSET: u64 = 32;

/// Bytes of the block of a key; at least a line, so that the block starts one.
pub(crate) fn block_bytes(key_bytes: usize) -> u64 {
    (KEY_OFFSET + to_u64(key_bytes)).max(LINE_BYTES)
}

fn key_crc(owner: PmAddr, at: PmAddr, key: &[u8]) -> u32 {
    let place = [at.to_raw(), owner.to_raw(), to_u64(key.len())];
    let head = place.iter().fold(0, |crc, word| crc32c::crc32c_append(crc, &word.to_le_bytes()));
    crc32c::crc32c_append(head, key)
}

fn value_head(at: PmAddr, which: u64, value: u64) -> u64 {
    checked::encode(at, which | u64::from(crc32c::crc32c(&value.to_le_bytes())) << 8)
}

/// Writes a key's block at the reserved place `at` and starts its write-back; the action that publishes it fences
/// first.
pub(crate) fn write_block(medium: IndexMemory<'_>, at: PmAddr, key: &[u8], value: u64) {
    write_either(medium, at, value_head(at, 0, value), key, value);
}

/// As [`write_block`], of a leaf's lower bound, which is no key of the index.
pub(crate) fn write_bound(medium: IndexMemory<'_>, at: PmAddr, low: &[u8]) {
    write_either(medium, at, value_head(at, BOUND, 0), low, 0);
}

fn write_either(medium: IndexMemory<'_>, at: PmAddr, head: u64, key: &[u8], value: u64) {
    let mut bytes = Vec::with_capacity(to_usize(KEY_OFFSET) + key.len());
    bytes.extend_from_slice(&head.to_le_bytes());
    bytes.extend_from_slice(&value.to_le_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&(to_u64(key.len()) | u64::from(key_crc(medium.owner, at, key)) << 32).to_le_bytes());
    bytes.extend_from_slice(key);
    medium.memory.write_back(at, &bytes);
}

/// Changes the value in a key's block: one line, one fence.
pub(crate) fn set_block_value(medium: IndexMemory<'_>, at: PmAddr, value: u64) -> Result<()> {
    let which = 1 - (medium.word(at, "value head of a key block")? & 1);
    medium.memory.store(at.plus(8 + 8 * which), value);
    // In the same line, after the value: no fence between them.
    medium.memory.store(at, value_head(at, which, value));
    // Nothing the caller does next may overtake the value.
    medium.memory.persist(at, 8);
    Ok(())
}

pub(crate) fn block_value(medium: IndexMemory<'_>, at: PmAddr) -> Result<u64> {
    check_block(medium, at)?;
    let head = medium.word(at, "value head of a key block")?;
    let value = medium.memory.load(at.plus(8 + 8 * (head & 1)));
    if head >> 8 == u64::from(crc32c::crc32c(&value.to_le_bytes())) {
        return Ok(value);
    }
    Err(medium.damaged(at, "value of a key", "checksum mismatch"))
}

fn check_block(medium: IndexMemory<'_>, at: PmAddr) -> Result<()> {
    if medium.memory.contains(at, KEY_OFFSET) && at.offset().is_multiple_of(16) {
        return Ok(());
    }
    Err(medium.damaged(at, "address of a key block", "is no place of the pool where one can be"))
}

/// The content of the block at `at` when it verifies: its key, and the value unless it is a lower bound.
pub(crate) fn read_block(medium: IndexMemory<'_>, at: PmAddr) -> Result<(Vec<u8>, Result<Option<u64>>)> {
    let mut key = Vec::new();
    block_key(medium, at, &mut key)?;
    let is_bound = medium.word(at, "value head of a key block").map(|head| head & BOUND != 0);
    let value = match is_bound {
        Ok(true) => Ok(None),
        Ok(false) => block_value(medium, at).map(Some),
        Err(error) => Err(error),
    };
    Ok((key, value))
}

/// Calls `use_key` with the key in the block at `at`, verified.
#[inline]
pub(crate) fn with_block_key<T>(medium: IndexMemory<'_>, at: PmAddr, use_key: impl FnOnce(&[u8]) -> T) -> Result<T> {
    const SHORT: usize = 64;
    check_block(medium, at)?;
    let word = medium.memory.load(at.plus(24));
    let bytes = to_usize(word & u64::from(u32::MAX));
    if bytes <= KEY_BYTES_MAX && medium.memory.contains(at, KEY_OFFSET + to_u64(bytes).next_multiple_of(8)) {
        let (mut short, mut long) = ([0; SHORT], Vec::new());
        let key = if bytes <= SHORT {
            &mut short[..bytes]
        } else {
            long.resize(bytes, 0);
            &mut long[..]
        };
        medium.memory.read(at.plus(KEY_OFFSET), key);
        if u64::from(key_crc(medium.owner, at, key)) == word >> 32 {
            return Ok(use_key(key));
        }
    }
    Err(medium.damaged(at, "key of a block", "checksum mismatch"))
}

/// Reads and verifies the key in the block at `at`, appended to `out`.
pub(crate) fn block_key(medium: IndexMemory<'_>, at: PmAddr, out: &mut Vec<u8>) -> Result<()> {
    with_block_key(medium, at, |key| out.extend_from_slice(key))
}

#[inline]
pub(crate) fn compare_block<K: IndexKey + ?Sized>(medium: IndexMemory<'_>, key: &K, at: PmAddr) -> Result<Ordering> {
    with_block_key(medium, at, |found| key.with_bytes(|key| key.cmp(found)))
}

/// How `key` compares with a bound word; a null block is the smallest key.
#[inline]
pub(crate) fn compare_bound<K: IndexKey + ?Sized>(medium: IndexMemory<'_>, key: &K, bound: u64) -> Result<Ordering> {
    if K::IS_WORD {
        return Ok(key.order_word().cmp(&bound));
    }
    if bound == 0 {
        return Ok(if key.key_bytes() == 0 { Ordering::Equal } else { Ordering::Greater });
    }
    compare_block(medium, key, PmAddr::from_raw(bound))
}

/// How `key` compares with the key of an entry at `level`.
#[inline]
pub(crate) fn compare<K: IndexKey + ?Sized>(
    medium: IndexMemory<'_>,
    key: &K,
    level: u8,
    entry: Entry,
) -> Result<Ordering> {
    let order = key.order_word().cmp(&entry.0);
    if K::IS_WORD || order != Ordering::Equal {
        return Ok(order);
    }
    if level == 0 {
        return compare_block(medium, key, PmAddr::from_raw(entry.1));
    }
    // A lower bound never changes while its node lives, nor goes while a reader is there.
    let child = Header::load(medium, PmAddr::from_raw(entry.1))?;
    compare_bound(medium, key, child.low)
}

/// The key of a leaf's entry.
#[inline]
pub(crate) fn key_of<K: IndexKey + ?Sized>(medium: IndexMemory<'_>, entry: Entry) -> Result<K::Owned> {
    if K::IS_WORD { word_key::<K>(medium, entry.0) } else { bound_key::<K>(medium, entry.1) }
}

/// The value of a leaf's entry.
#[inline]
pub(crate) fn value_of<K: IndexKey + ?Sized>(medium: IndexMemory<'_>, entry: Entry) -> Result<u64> {
    if K::IS_WORD { Ok(entry.1) } else { block_value(medium, PmAddr::from_raw(entry.1)) }
}

/// The key that a bound word represents.
pub(crate) fn bound_key<K: IndexKey + ?Sized>(medium: IndexMemory<'_>, bound: u64) -> Result<K::Owned> {
    if K::IS_WORD {
        return word_key::<K>(medium, bound);
    }
    let mut bytes = Vec::new();
    if bound != 0 {
        block_key(medium, PmAddr::from_raw(bound), &mut bytes)?;
    }
    K::from_bytes(&bytes).ok_or_else(|| medium.damaged(PmAddr::from_raw(bound), "key of a block", "is no key"))
}

#[inline]
fn word_key<K: IndexKey + ?Sized>(medium: IndexMemory<'_>, word: u64) -> Result<K::Owned> {
    K::from_bytes(&word.to_be_bytes()).ok_or_else(|| medium.damaged(PmAddr::NULL, "key", "is no key"))
}
