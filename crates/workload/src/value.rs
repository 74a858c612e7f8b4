//! Values that describe themselves: the bytes alone tell which key and which write a value belongs to, and whether it
//! is whole.
//!
//! Byte map (little-endian):
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 8 | hash of the key |
//! | 8 | 8 | version: the number of the write |
//! | 16 | 8 | seal: mixes key hash, version and length |
//! | 24 | rest | filler: word `i` is a function of the seal and `i`; the last word may be cut |
//!
//! Invariants:
//! - Each filler word depends on key, version and length. So [`verify`] refuses a value put together from two writes at
//!   any 8-byte boundary. It also refuses a swapped value (key hash) and a truncated one (length in the seal).
//! - Random filler does not compress, so engines that compress have no advantage.

use crate::random::{GOLDEN, hash_bytes, mix64};

/// The shortest value: its three header words.
pub const VALUE_BYTES_MIN: usize = 24;

/// Why bytes are not a value of this key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// Too short to hold the header.
    #[error("value of {length} bytes is shorter than its header of {VALUE_BYTES_MIN} bytes: truncated or foreign")]
    Short {
        /// Bytes found.
        length: usize,
    },
    /// A whole value, but of another key.
    #[error("value belongs to another key: key hash {found:#018x} where {expected:#018x} belongs")]
    ForeignKey {
        /// Hash of the key under which it was found.
        expected: u64,
        /// Hash in the value.
        found: u64,
    },
    /// Its parts do not belong together.
    #[error("value is torn: byte {offset} does not belong to version {version}")]
    Torn {
        /// Version that the header names.
        version: u64,
        /// First byte of the first word that does not fit.
        offset: usize,
    },
}

/// The value of write `version` to `key`, `length` bytes long.
///
/// # Panics
/// If `length` is below [`VALUE_BYTES_MIN`].
///
/// ```
/// use lodestone_workload::value;
///
/// let mut bytes = value::make(b"key", 7, 100);
/// assert_eq!(value::verify(b"key", &bytes), Ok(7));
/// bytes[60] ^= 1;
/// assert!(value::verify(b"key", &bytes).is_err());
/// ```
#[must_use]
pub fn make(key: &[u8], version: u64, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length);
    make_into(key, version, length, &mut bytes);
    bytes
}

/// As [`make`], into a buffer that is reused.
///
/// # Panics
/// If `length` is below [`VALUE_BYTES_MIN`].
#[inline]
pub fn make_into(key: &[u8], version: u64, length: usize, bytes: &mut Vec<u8>) {
    assert!(length >= VALUE_BYTES_MIN, "a value needs at least {VALUE_BYTES_MIN} bytes, not {length}");
    let key_hash = hash_bytes(key);
    let seal = seal_of(key_hash, version, length);
    if bytes.len() != length {
        bytes.clear();
        bytes.resize(length, 0);
    }
    let (header, filler) = bytes.split_at_mut(VALUE_BYTES_MIN);
    header[..8].copy_from_slice(&key_hash.to_le_bytes());
    header[8..16].copy_from_slice(&version.to_le_bytes());
    header[16..].copy_from_slice(&seal.to_le_bytes());
    let (words, rest) = filler.as_chunks_mut::<8>();
    for (index, word) in words.iter_mut().enumerate() {
        *word = filler_word(seal, index);
    }
    rest.copy_from_slice(&filler_word(seal, words.len())[..rest.len()]);
}

/// Checks that `bytes` is one whole value of `key` and returns its version.
///
/// # Errors
/// [`ValueError`] names the fault.
#[inline]
pub fn verify(key: &[u8], bytes: &[u8]) -> Result<u64, ValueError> {
    let Some((header, filler)) = bytes.split_first_chunk::<VALUE_BYTES_MIN>() else {
        return Err(ValueError::Short { length: bytes.len() });
    };
    let word = |index: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&header[index * 8..index * 8 + 8]);
        u64::from_le_bytes(word)
    };
    let (found, version, seal) = (word(0), word(1), word(2));
    let torn_at = |offset| Err(ValueError::Torn { version, offset });
    if seal != seal_of(found, version, bytes.len()) {
        return torn_at(16);
    }
    let (words, rest) = filler.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        if *word != filler_word(seal, index) {
            return torn_at(VALUE_BYTES_MIN + index * 8);
        }
    }
    if *rest != filler_word(seal, words.len())[..rest.len()] {
        return torn_at(VALUE_BYTES_MIN + words.len() * 8);
    }
    let expected = hash_bytes(key);
    if found != expected {
        return Err(ValueError::ForeignKey { expected, found });
    }
    Ok(version)
}

#[inline]
fn seal_of(key_hash: u64, version: u64, length: usize) -> u64 {
    mix64(mix64(key_hash ^ version.wrapping_mul(GOLDEN)) ^ length as u64 ^ version)
}

#[inline]
fn filler_word(seal: u64, index: usize) -> [u8; 8] {
    mix64(seal.wrapping_add((index as u64 + 1).wrapping_mul(GOLDEN))).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_values_verify_at_every_length() {
        for length in VALUE_BYTES_MIN..140 {
            for version in [0, 1, u64::MAX] {
                let bytes = make(b"some key", version, length);
                assert_eq!(bytes.len(), length);
                assert_eq!(verify(b"some key", &bytes), Ok(version));
            }
        }
    }

    #[test]
    fn every_mix_of_two_versions_is_torn() {
        let (old, new) = (make(b"k", 41, 100), make(b"k", 42, 100));
        for cut in (8..100).step_by(8) {
            let mut front_new = new.clone();
            front_new[cut..].copy_from_slice(&old[cut..]);
            let mut front_old = old.clone();
            front_old[cut..].copy_from_slice(&new[cut..]);
            // The first word is the key hash, equal in both values: a cut there changes nothing.
            if cut > 8 {
                assert!(matches!(verify(b"k", &front_new), Err(ValueError::Torn { .. })), "{cut}");
                assert!(matches!(verify(b"k", &front_old), Err(ValueError::Torn { .. })), "{cut}");
            }
        }
        // One stale word in the middle, as after a lost cache line or journal block.
        for word in 1..12 {
            let mut mixed = new.clone();
            mixed[word * 8..word * 8 + 8].copy_from_slice(&old[word * 8..word * 8 + 8]);
            assert!(verify(b"k", &mixed).is_err(), "{word}");
        }
    }

    #[test]
    fn flipped_bits_truncation_zeroes_and_foreign_values_are_found() {
        let whole = make(b"k", 3, 64);
        for bit in 0..64 * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(verify(b"k", &flipped).is_err(), "bit {bit}");
        }
        for length in 0..64 {
            assert!(verify(b"k", &whole[..length]).is_err(), "length {length}");
        }
        assert!(verify(b"k", &[0; 64]).is_err());
        assert!(matches!(verify(b"other", &whole), Err(ValueError::ForeignKey { .. })));
    }
}
