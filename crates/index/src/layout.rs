//! The layout of a map's blocks, byte for byte; `docs/format.md` draws the same map.
//!
//! Three kinds of block: one *anchor* (see `anchor`), *leaves* linked in ascending order of keys, and *records*. All
//! words are little-endian. Links and slots are checked words (48 bits of address, CRC-16 of address and place), so
//! that each can change by one atomic store and still verify itself. All other bytes are written before their block is
//! published, never change while it is published, and are covered by a CRC-32C.

use lodestone_pmem::{PmAddr, WORD_BYTES, checked};
use lodestone_width::{exact_u32, low_u32, to_u64, to_usize};

use crate::anchor::AnchorKind;
use crate::kinds::ORDERED_MAP;

/// The anchor of a map; its options are the slots of a new leaf.
pub(crate) const MAP_ANCHOR: AnchorKind =
    AnchorKind { magic: u64::from_le_bytes(*b"LDSTOMAP"), version: 3, kind: &ORDERED_MAP };
/// Most slots that a leaf can have; a leaf's occupancy is one 64-bit mask.
pub(crate) const SLOTS_LIMIT: usize = 64;
/// Slots of a leaf unless asked otherwise: with a lower bound of up to 8 bytes a leaf then takes 512 bytes.
pub(crate) const SLOTS_DEFAULT: usize = 60;

/// Longest key in bytes.
pub const KEY_BYTES_MAX: usize = 4096;
/// Longest value in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

/// Words of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeafAt(pub(crate) PmAddr);

impl LeafAt {
    /// Bytes of a leaf of `slots` slots with a lower bound of `low_bytes` bytes.
    pub(crate) fn bytes(slots: usize, low_bytes: usize) -> u64 {
        WORD_BYTES * (3 + to_u64(slots) + to_u64(low_bytes).div_ceil(WORD_BYTES))
    }
    /// Checked address of the next leaf, null in the last one.
    pub(crate) fn next(self) -> PmAddr {
        self.0
    }
    /// Checked word: slots in bits 0 to 15, bytes of the lower bound in bits 16 to 31.
    pub(crate) fn shape(self) -> PmAddr {
        self.0.plus(8)
    }
    /// Checked word: CRC-32C of the lower bound.
    pub(crate) fn low_crc(self) -> PmAddr {
        self.0.plus(16)
    }
    /// Checked address of the record in `slot`, null when the slot is free.
    pub(crate) fn slot(self, slot: usize) -> PmAddr {
        self.0.plus(24 + WORD_BYTES * to_u64(slot))
    }
    /// First byte of the lower bound of a leaf with `slots` slots.
    pub(crate) fn low(self, slots: usize) -> PmAddr {
        self.slot(slots)
    }
}

/// Number of slots, at least two, and bytes of the lower bound in the payload of a leaf's shape word.
pub(crate) fn decode_shape(payload: u64) -> Option<(usize, usize)> {
    let (slots, low_bytes) = (to_usize(payload & 0xFFFF), to_usize(payload >> 16));
    ((2..=SLOTS_LIMIT).contains(&slots) && low_bytes <= KEY_BYTES_MAX).then_some((slots, low_bytes))
}

/// The shape word's payload.
pub(crate) fn encode_shape(slots: usize, low_bytes: usize) -> u64 {
    to_u64(slots) | to_u64(low_bytes) << 16
}

/// The checksum of the lower bound of a leaf of the structure whose anchor is at `owner`.
pub(crate) fn low_check(owner: PmAddr, low: &[u8]) -> u64 {
    u64::from(crc32c::crc32c_append(crc32c::crc32c(&owner.to_raw().to_le_bytes()), low))
}

/// The whole content of a new leaf at `leaf`, of the map whose anchor is at `owner`.
pub(crate) fn encode_leaf(
    owner: PmAddr,
    leaf: LeafAt,
    slots: usize,
    low: &[u8],
    next: PmAddr,
    records: &[PmAddr],
) -> Vec<u8> {
    assert!(records.len() <= slots, "a leaf holds at most its slots");
    let mut out = Vec::with_capacity(to_usize(LeafAt::bytes(slots, low.len())));
    let mut word = |value: u64| out.extend_from_slice(&value.to_le_bytes());
    word(checked::encode_addr(leaf.next(), next));
    word(checked::encode(leaf.shape(), encode_shape(slots, low.len())));
    word(checked::encode(leaf.low_crc(), low_check(owner, low)));
    for slot in 0..slots {
        let record = records.get(slot).copied().unwrap_or(PmAddr::NULL);
        word(checked::encode_addr(leaf.slot(slot), record));
    }
    out.extend_from_slice(low);
    out.resize(to_usize(LeafAt::bytes(slots, low.len())), 0);
    out
}

/// Head of a record: lengths and checksums; the key follows, filled up to a word, then the value.
///
/// Two checksums, so that a key can be verified without reading a value of megabytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHead {
    pub(crate) key_bytes: u32,
    pub(crate) value_bytes: u32,
    /// CRC-32C of the key, started from owner, place and lengths ([`key_crc`](Self::key_crc)).
    pub(crate) key_crc: u32,
    /// CRC-32C of the value, started from `key_crc`.
    pub(crate) value_crc: u32,
}

impl RecordHead {
    /// Bytes of the head.
    pub(crate) const BYTES: u64 = 16;

    /// The head of the record of `key` and `value` at the place `at`, of the structure whose anchor is at `owner`.
    pub(crate) fn new(owner: PmAddr, at: PmAddr, key: &[u8], value: &[u8]) -> Self {
        let (key_bytes, value_bytes) = (exact_u32(key.len()), exact_u32(value.len()));
        let key_crc = Self::key_crc(owner, at, key, value_bytes);
        Self { key_bytes, value_bytes, key_crc, value_crc: crc32c::crc32c_append(key_crc, value) }
    }

    #[inline]
    pub(crate) fn from_words(lengths: u64, crcs: u64) -> Self {
        Self {
            key_bytes: low_u32(lengths),
            value_bytes: low_u32(lengths >> 32),
            key_crc: low_u32(crcs),
            value_crc: low_u32(crcs >> 32),
        }
    }

    fn to_words(self) -> [u64; 2] {
        [
            u64::from(self.key_bytes) | u64::from(self.value_bytes) << 32,
            u64::from(self.key_crc) | u64::from(self.value_crc) << 32,
        ]
    }

    /// Whether a writer can have written these lengths.
    #[inline]
    pub(crate) fn is_plausible(self) -> bool {
        to_usize(self.key_bytes) <= KEY_BYTES_MAX && to_usize(self.value_bytes) <= VALUE_BYTES_MAX
    }

    /// Whether a writer can have written these lengths into a block of so many bytes.
    pub(crate) fn fits(self, block_bytes: u64) -> bool {
        self.is_plausible() && self.record_bytes() <= block_bytes
    }

    /// Address of the key of the record at `at`.
    #[inline]
    pub(crate) fn key_at(at: PmAddr) -> PmAddr {
        at.plus(Self::BYTES)
    }

    /// Offset of the value from the start of the record.
    #[inline]
    pub(crate) fn value_offset(self) -> u64 {
        Self::BYTES + u64::from(self.key_bytes).next_multiple_of(WORD_BYTES)
    }

    /// Bytes of the whole record, a multiple of the word.
    #[inline]
    pub(crate) fn record_bytes(self) -> u64 {
        self.value_offset() + u64::from(self.value_bytes).next_multiple_of(WORD_BYTES)
    }

    /// Checksum over owner, place, lengths and key: a record of another structure, or one that was copied elsewhere,
    /// does not verify.
    ///
    /// Owner, place and lengths choose the value that the CRC starts from; odd factors, so that no change of one alone
    /// cancels.
    #[inline]
    pub(crate) fn key_crc(owner: PmAddr, at: PmAddr, key: &[u8], value_bytes: u32) -> u32 {
        let raw = at.to_raw() >> 3;
        let place = low_u32(raw).wrapping_mul(0x9E37_79B1) ^ low_u32(raw >> 32);
        let lengths = exact_u32(key.len()).wrapping_mul(0x85EB_CA6B) ^ value_bytes.wrapping_mul(0xC2B2_AE35);
        let owner = (owner.to_raw() >> 3).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 32;
        crc32c::crc32c_append(place ^ lengths ^ low_u32(owner), key)
    }
}

/// Writes the record of `key` and `value` for the place `at`, of the structure whose anchor is at `owner`, into `out`.
pub(crate) fn encode_record(owner: PmAddr, at: PmAddr, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let head = RecordHead::new(owner, at, key, value);
    out.clear();
    out.reserve(to_usize(head.record_bytes()));
    for word in head.to_words() {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(key);
    out.resize(to_usize(head.value_offset()), 0);
    out.extend_from_slice(value);
    out.resize(to_usize(head.record_bytes()), 0);
}

/// Bytes of the record of a key and a value of these lengths.
pub(crate) fn record_bytes(key_bytes: usize, value_bytes: usize) -> u64 {
    RecordHead { key_bytes: exact_u32(key_bytes), value_bytes: exact_u32(value_bytes), key_crc: 0, value_crc: 0 }
        .record_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_leaf_with_a_short_bound_takes_512_bytes() {
        assert_eq!(LeafAt::bytes(SLOTS_DEFAULT, 8), 512);
    }

    #[test]
    fn records_are_padded_to_words_and_bound_to_their_place() {
        let (owner, at) = (PmAddr::new(0, 64), PmAddr::new(0, 4096));
        let mut out = Vec::new();
        encode_record(owner, at, b"abc", b"0123456789", &mut out);
        assert_eq!(out.len(), 16 + 8 + 16);
        assert_eq!(&out[16..24], b"abc\0\0\0\0\0");
        assert_eq!(record_bytes(3, 10), out.len() as u64);
        let crc = RecordHead::key_crc(owner, at, b"abc", 1);
        assert_ne!(crc, RecordHead::key_crc(owner, at.plus(64), b"abc", 1), "the same record elsewhere");
        assert_ne!(crc, RecordHead::key_crc(owner.plus(64), at, b"abc", 1), "the same record of another owner");
        assert_ne!(crc, RecordHead::key_crc(owner, at, b"abc", 2), "another length of value");
    }
}
