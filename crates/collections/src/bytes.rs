//! Byte strings as keys and values.
//!
//! A *key* takes three words: length and a tag of its hash, then 16 bytes. A key of up to 16 bytes is stored there. A
//! longer key stores its first 8 bytes and the address of a byte string that holds all of it, so most comparisons read
//! nothing else. The bytes are stored as big-endian numbers, so comparing words compares keys.
//!
//! A *value* takes one word: the address of a box. The low bits, which are zero in an address, hold the size of the
//! box. The box holds length and bytes, in one of four sizes (36, 100, 228 and 484 bytes). It is changed in place while
//! the new value needs a box of the same size. Such an update writes one object, whatever the collection's size. Longer
//! values are in a blob that the box holds.

use std::cmp::Ordering;

use lodestone_stm::{IntoBytes, PmAddr, Tx, TxResult};
use lodestone_width::{exact_u32, to_u64, to_usize, u32_to_u64};
use zerocopy::FromBytes;

use crate::blob::PmBlob;
use crate::damaged;
use crate::hash::Hasher;
use crate::item::{PmKey, PmValue};
use crate::words;

/// Byte strings of any length, as keys and values. Passed as `&[u8]`, read as `Vec<u8>`.
///
/// ```
/// use lodestone_collections::{Bytes, PmBTreeMap};
/// type Documents = PmBTreeMap<Bytes, Bytes>;
/// ```
#[derive(Debug)]
pub struct Bytes;

/// Bytes of a key that is stored in its entry.
const INLINE_BYTES: usize = 16;
const LENGTH_MASK: u64 = u32_to_u64(u32::MAX);
const TAG_SHIFT: u32 = 32;

/// The bytes from `at` on as a number with the same order.
fn ordered(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    let rest = bytes.get(at..).unwrap_or_default();
    let len = rest.len().min(8);
    word[..len].copy_from_slice(&rest[..len]);
    u64::from_be_bytes(word)
}

fn key_len(stored: &[u64]) -> usize {
    to_usize(stored[0] & LENGTH_MASK)
}

fn long_key(stored: &[u64]) -> TxResult<PmBlob> {
    let len = stored[0] & LENGTH_MASK;
    let content = if to_usize(len) <= crate::blob::CHUNK_BYTES { len } else { table_bytes(len) };
    let parts = [stored[2], content, len];
    PmBlob::read_from_bytes(parts.as_bytes()).map_err(|_| damaged(PmAddr::from_raw(stored[2]), "a key of no length"))
}

/// Bytes of the table of a blob of `len` bytes.
fn table_bytes(len: u64) -> u64 {
    len.div_ceil(to_u64(crate::blob::CHUNK_BYTES)) * 16
}

impl PmKey for Bytes {
    type View = [u8];
    type Owned = Vec<u8>;
    const WORDS: usize = 3;

    fn signature() -> String {
        "bytes".into()
    }

    fn store(tx: &mut Tx<'_>, view: &[u8], stored: &mut [u64]) -> TxResult<()> {
        let Ok(len) = u32::try_from(view.len()) else {
            return Err(lodestone_stm::Error::TooLarge { bytes: to_u64(view.len()), limit_bytes: LENGTH_MASK }.into());
        };
        stored[0] = u64::from(len) | (Hasher::of(view) >> TAG_SHIFT << TAG_SHIFT);
        stored[1] = ordered(view, 0);
        stored[2] = if view.len() <= INLINE_BYTES {
            ordered(view, 8)
        } else {
            let blob = PmBlob::store(tx, view)?;
            blob.content_addr().to_raw()
        };
        Ok(())
    }

    fn load(tx: &mut Tx<'_>, stored: &[u64]) -> TxResult<Vec<u8>> {
        let len = key_len(stored);
        if len > INLINE_BYTES {
            return long_key(stored)?.load(tx);
        }
        let mut all = [0; INLINE_BYTES];
        all[..8].copy_from_slice(&stored[1].to_be_bytes());
        all[8..].copy_from_slice(&stored[2].to_be_bytes());
        Ok(all[..len].to_vec())
    }

    fn free(tx: &mut Tx<'_>, stored: &[u64]) -> TxResult<()> {
        if key_len(stored) > INLINE_BYTES { long_key(stored)?.free(tx) } else { Ok(()) }
    }

    fn objects(tx: &mut Tx<'_>, stored: &[u64]) -> TxResult<u64> {
        if key_len(stored) > INLINE_BYTES { long_key(stored)?.objects(tx) } else { Ok(0) }
    }

    #[inline]
    fn compare(tx: &mut Tx<'_>, stored: &[u64], view: &[u8]) -> TxResult<Ordering> {
        let first = stored[1].cmp(&ordered(view, 0));
        if first != Ordering::Equal {
            return Ok(first);
        }
        let len = key_len(stored);
        if len > INLINE_BYTES {
            return Ok(long_key(stored)?.load(tx)?.as_slice().cmp(view));
        }
        // Zeroes follow a short key. Where all words agree, the shorter of two keys comes first.
        let second = stored[2].cmp(&ordered(view, 8));
        Ok(second.then(len.cmp(&view.len())))
    }

    #[inline]
    fn is_equal(tx: &mut Tx<'_>, stored: &[u64], view: &[u8]) -> TxResult<bool> {
        if key_len(stored) != view.len() || stored[1] != ordered(view, 0) {
            return Ok(false);
        }
        if view.len() <= INLINE_BYTES {
            return Ok(stored[2] == ordered(view, 8));
        }
        Ok(stored[0] >> TAG_SHIFT == Hasher::of(view) >> TAG_SHIFT && long_key(stored)?.load(tx)? == view)
    }

    fn hash(view: &[u8]) -> u64 {
        Hasher::of(view)
    }

    fn hash_stored(tx: &mut Tx<'_>, stored: &[u64]) -> TxResult<u64> {
        Ok(Hasher::of(&<Self as PmKey>::load(tx, stored)?))
    }

    fn separator(tx: &mut Tx<'_>, left: &[u64], right: &[u64], stored: &mut [u64]) -> TxResult<()> {
        let (left, right) = (<Self as PmKey>::load(tx, left)?, <Self as PmKey>::load(tx, right)?);
        let common = left.iter().zip(&right).take_while(|(left, right)| left == right).count();
        // With one byte more than the common prefix the key is above `left`, and a prefix of `right`.
        <Self as PmKey>::store(tx, &right[..(common + 1).min(right.len())], stored)
    }
}

/// Low bits of a value's word: the size of its box.
const SIZE_MASK: u64 = 7;
/// Sizes of boxes that hold the value itself, by number.
const BOX_WORDS: [usize; 4] = [5, 13, 29, 61];
/// Bytes of the length in front of the value: with it, a value of 100 bytes fits a slot of two lines.
const LENGTH_BYTES: usize = 4;
/// The number of a box that holds a blob.
const LARGE: u64 = 7;
/// Words of a box that holds a blob.
const LARGE_WORDS: usize = 3;

fn box_size(bytes: usize) -> u64 {
    BOX_WORDS.iter().position(|&words| LENGTH_BYTES + bytes <= words * 8).map_or(LARGE, to_u64)
}

fn fill(words: &mut [u64], view: &[u8]) {
    words.fill(0);
    let bytes = words.as_mut_bytes();
    bytes[..LENGTH_BYTES].copy_from_slice(&exact_u32(view.len()).to_le_bytes());
    bytes[LENGTH_BYTES..][..view.len()].copy_from_slice(view);
}

fn box_addr(word: u64) -> PmAddr {
    PmAddr::from_raw(word & !SIZE_MASK)
}

fn box_words(word: u64) -> TxResult<usize> {
    let size = word & SIZE_MASK;
    let known = BOX_WORDS.get(to_usize(size)).copied();
    known.ok_or_else(|| damaged(box_addr(word), "a value in a box of unknown size"))
}

fn load_blob(tx: &mut Tx<'_>, word: u64) -> TxResult<PmBlob> {
    let mut parts = [0; LARGE_WORDS];
    words::read(tx, box_addr(word), &mut parts)?;
    PmBlob::read_from_bytes(parts.as_bytes()).map_err(|_| damaged(box_addr(word), "a value of no length"))
}

fn blob_words(blob: &PmBlob) -> [u64; LARGE_WORDS] {
    let mut parts = [0; LARGE_WORDS];
    parts.as_mut_bytes().copy_from_slice(blob.as_bytes());
    parts
}

impl PmValue for Bytes {
    type View = [u8];
    type Owned = Vec<u8>;
    const WORDS: usize = 1;

    fn signature() -> String {
        "bytes".into()
    }

    fn store(tx: &mut Tx<'_>, view: &[u8], stored: &mut [u64]) -> TxResult<()> {
        let size = box_size(view.len());
        let at = if size == LARGE {
            let blob = PmBlob::store(tx, view)?;
            words::alloc(tx, &blob_words(&blob))?
        } else {
            let mut content = [0; BOX_WORDS[BOX_WORDS.len() - 1]];
            let content = &mut content[..BOX_WORDS[to_usize(size)]];
            fill(content, view);
            words::alloc(tx, content)?
        };
        stored[0] = at.to_raw() | size;
        Ok(())
    }

    fn load(tx: &mut Tx<'_>, stored: &[u64]) -> TxResult<Vec<u8>> {
        let word = stored[0];
        if word & SIZE_MASK == LARGE {
            return load_blob(tx, word)?.load(tx);
        }
        let mut content = [0; BOX_WORDS[BOX_WORDS.len() - 1]];
        let content = &mut content[..box_words(word)?];
        words::read(tx, box_addr(word), content)?;
        let len = to_usize(content[0] & LENGTH_MASK);
        let bytes = content.as_bytes()[LENGTH_BYTES..].get(..len);
        Ok(bytes.ok_or_else(|| damaged(box_addr(word), "a value that is longer than its box"))?.to_vec())
    }

    fn replace(tx: &mut Tx<'_>, view: &[u8], stored: &mut [u64]) -> TxResult<bool> {
        let (word, size) = (stored[0], box_size(view.len()));
        if word & SIZE_MASK != size {
            <Self as PmValue>::free(tx, stored)?;
            <Self as PmValue>::store(tx, view, stored)?;
            return Ok(true);
        }
        if size == LARGE {
            load_blob(tx, word)?.free(tx)?;
            let blob = blob_words(&PmBlob::store(tx, view)?);
            words::write(tx, box_addr(word), LARGE_WORDS)?.copy_from_slice(&blob);
        } else {
            fill(words::write(tx, box_addr(word), BOX_WORDS[to_usize(size)])?, view);
        }
        Ok(false)
    }

    fn free(tx: &mut Tx<'_>, stored: &[u64]) -> TxResult<()> {
        let word = stored[0];
        if word & SIZE_MASK == LARGE {
            load_blob(tx, word)?.free(tx)?;
            return words::free(tx, box_addr(word), LARGE_WORDS);
        }
        words::free(tx, box_addr(word), box_words(word)?)
    }

    fn objects(tx: &mut Tx<'_>, stored: &[u64]) -> TxResult<u64> {
        let is_large = stored[0] & SIZE_MASK == LARGE;
        Ok(1 + if is_large { load_blob(tx, stored[0])?.objects(tx)? } else { 0 })
    }
}
