//! Keys and values of a record, computed from its number by a few multiplications and never looked up.
//!
//! A value tells its record: its upper half is a hash of the record, its lower half the version that wrote it. So every
//! value that is read can be checked by itself.

use std::fmt;
use std::str::FromStr;

use lodestone_index::IndexKey;
use lodestone_workload::keys::{KeyCodec, KeyOrder};
use lodestone_workload::random::mix64;

/// The kind of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyShape {
    /// Numbers of 64 bits.
    Word,
    /// Strings of this many bytes.
    Bytes(usize),
}

/// The longest string that every index takes.
const KEY_BYTES_LIMIT: usize = 1024;

impl FromStr for KeyShape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "u64" {
            return Ok(Self::Word);
        }
        let bytes = text.strip_prefix("bytes:").and_then(|count| count.parse().ok());
        let fits = bytes.filter(|bytes| (8..=KEY_BYTES_LIMIT).contains(bytes));
        fits.map(Self::Bytes).ok_or_else(|| format!("'{text}' is no kind of key; use u64 or bytes:N, N from 8 to 1024"))
    }
}

impl fmt::Display for KeyShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word => f.write_str("u64"),
            Self::Bytes(bytes) => write!(f, "bytes:{bytes}"),
        }
    }
}

/// Makes the keys of records; one for each thread.
pub trait KeyMaker: Clone + Send + Sync {
    /// The type of the keys.
    type Key: IndexKey + ?Sized;

    /// The key of `record`, valid until the next call.
    fn key(&mut self, record: u64) -> &Self::Key;
}

/// A type of keys, with the maker of such keys.
pub trait KeysOf: IndexKey {
    /// The type of the maker.
    type Maker: KeyMaker<Key = Self>;

    /// The maker of keys of this shape.
    fn maker(shape: KeyShape) -> Self::Maker;
}

impl KeysOf for u64 {
    type Maker = WordKeys;

    fn maker(_: KeyShape) -> WordKeys {
        WordKeys::default()
    }
}

impl KeysOf for [u8] {
    type Maker = StringKeys;

    fn maker(shape: KeyShape) -> StringKeys {
        StringKeys::new(if let KeyShape::Bytes(bytes) = shape { bytes } else { 8 })
    }
}

/// Numbers, scattered over all 64 bits by a bijection.
#[derive(Debug, Clone, Default)]
pub struct WordKeys {
    word: u64,
}

impl KeyMaker for WordKeys {
    type Key = u64;

    #[inline]
    fn key(&mut self, record: u64) -> &u64 {
        self.word = mix64(record);
        &self.word
    }
}

/// Strings whose first eight bytes are the scattered number.
#[derive(Debug, Clone)]
pub struct StringKeys {
    codec: KeyCodec,
    bytes: Vec<u8>,
}

impl StringKeys {
    /// Strings of `key_bytes` bytes. A length below 8 is taken as 8.
    ///
    /// # Panics
    /// Never: the length is raised to the size of a record number.
    #[must_use]
    pub fn new(key_bytes: usize) -> Self {
        let codec = KeyCodec::new(key_bytes.max(8), KeyOrder::Hashed);
        Self { codec: codec.unwrap_or_else(|error| unreachable!("eight bytes are enough: {error}")), bytes: Vec::new() }
    }
}

impl KeyMaker for StringKeys {
    type Key = [u8];

    #[inline]
    fn key(&mut self, record: u64) -> &[u8] {
        self.codec.encode_into(record, &mut self.bytes);
        &self.bytes
    }
}

/// Makes values differ from keys.
const VALUE_SALT: u64 = 0x7A1D_0B5E_55ED_0A7E;

/// The value of version `version` of `record`.
#[inline]
#[must_use]
pub fn value_of(record: u64, version: u32) -> u64 {
    (mix64(record ^ VALUE_SALT) & !u64::from(u32::MAX)) | u64::from(version)
}

/// Whether `value` was written under `record`.
#[inline]
#[must_use]
pub fn belongs(record: u64, value: u64) -> bool {
    (mix64(record ^ VALUE_SALT) ^ value) >> 32 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_know_their_record() {
        for record in 0..1000 {
            assert!(belongs(record, value_of(record, 7)));
            assert!(!belongs(record + 1, value_of(record, 7)));
        }
    }

    #[test]
    fn shapes_are_parsed_and_bad_ones_refused() {
        assert_eq!("u64".parse(), Ok(KeyShape::Word));
        assert_eq!("bytes:16".parse(), Ok(KeyShape::Bytes(16)));
        for bad in ["u32", "bytes", "bytes:7", "bytes:1025", "bytes:x"] {
            assert!(bad.parse::<KeyShape>().is_err(), "{bad}");
        }
    }
}
