//! Eight bytes that verify themselves: 48 bits of payload and a 16-bit checksum of payload and place.
//!
//! Metadata that changes by single atomic stores (bitmaps, slots, links) cannot carry a checksum of a larger range: two
//! words would have to change at once. A checked word holds its checksum in the same eight bytes, so it is always
//! whole.
//!
//! The checksum is CRC-16/CCITT over the payload, mixed with the word's own address. A flipped byte is found with
//! certainty, because the CRC finds every burst of up to 16 bits. A word that was copied to another place is found with
//! probability 1 - 2^-16.

use lodestone_width::{const_usize, low_u8, low_u16, to_u64, u8_to_u64, u16_to_u64};

use crate::addr::PmAddr;

/// Largest payload, exclusive.
pub const PAYLOAD_LIMIT: u64 = 1 << 48;

/// Encodes `payload` for the word at `at`.
///
/// # Panics
/// When `payload` needs more than 48 bits.
///
/// ```
/// use lodestone_pmem::{PmAddr, checked};
/// let at = PmAddr::new(0, 4096);
/// let word = checked::encode(at, 77);
/// assert_eq!(checked::decode(at, word), Some(77));
/// assert_eq!(checked::decode(at, word ^ 0x100), None);
/// ```
#[must_use]
#[inline]
pub const fn encode(at: PmAddr, payload: u64) -> u64 {
    assert!(payload < PAYLOAD_LIMIT, "a checked word holds 48 bits");
    payload | (u16_to_u64(checksum(at, payload)) << 48)
}

/// The payload of `word` at `at`, or `None` when the word is damaged.
#[must_use]
#[inline]
pub const fn decode(at: PmAddr, word: u64) -> Option<u64> {
    let payload = word & (PAYLOAD_LIMIT - 1);
    if low_u16(word >> 48) == checksum(at, payload) { Some(payload) } else { None }
}

/// Encodes an address (which must be a multiple of 8) for the word at `at`: 8 bits of part, 40 bits of offset / 8.
///
/// # Panics
/// When the offset is no multiple of 8, the part is above 255 or the offset is 8 TiB or more.
#[must_use]
#[inline]
pub const fn encode_addr(at: PmAddr, target: PmAddr) -> u64 {
    encode(at, addr_payload(target))
}

/// The payload of a word that holds the address `target`: for words that hold numbers as well as addresses.
///
/// # Panics
/// As [`encode_addr`].
#[must_use]
#[inline]
pub const fn addr_payload(target: PmAddr) -> u64 {
    assert!(
        target.offset().is_multiple_of(8) && target.part() < 256 && target.offset() < 1 << 43,
        "not an encodable address"
    );
    (u16_to_u64(target.part()) << 40) | (target.offset() >> 3)
}

/// The address in a payload that [`addr_payload`] returned. It may still point anywhere.
#[must_use]
#[inline]
pub const fn payload_addr(payload: u64) -> PmAddr {
    PmAddr::new(low_u16(payload >> 40), (payload & ((1 << 40) - 1)) << 3)
}

/// Decodes a word made by [`encode_addr`]; `None` when the word is damaged. The address may still point anywhere.
#[must_use]
#[inline]
pub const fn decode_addr(at: PmAddr, word: u64) -> Option<PmAddr> {
    match decode(at, word) {
        Some(payload) => Some(payload_addr(payload)),
        None => None,
    }
}

/// CRC-16/CCITT of the payload, mixed with a hash of the address. Never maps the all-zero word to a valid payload 0,
/// so that zeroed space is recognised as such.
const fn checksum(at: PmAddr, payload: u64) -> u16 {
    // The CRC is linear, so the share of each byte is looked up on its own, without waiting for the byte before.
    let mut crc = ZERO_CRC;
    let mut index = 0;
    while index < 6 {
        crc ^= BYTE_TABLES[index][const_usize(u8_to_u64(low_u8(payload >> (8 * index))))];
        index += 1;
    }
    let place = (at.to_raw() >> 3).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48;
    let mixed = crc ^ low_u16(place);
    // Payload 0 with checksum 0 would make zeroed memory valid at some addresses; shift those places by one constant.
    if crc_of_zero() ^ low_u16(place) == 0 { mixed ^ 0x5A5A } else { mixed }
}

const fn crc_of_zero() -> u16 {
    ZERO_CRC
}

const ZERO_CRC: u16 = {
    let mut crc = 0xFFFF_u16;
    let mut index = 0;
    while index < 6 {
        crc = (crc << 8) ^ TABLE[const_usize(u16_to_u64(crc >> 8))];
        index += 1;
    }
    crc
};

/// The share of byte `index` of the payload in the CRC: its own step, then a step for each byte after it.
const BYTE_TABLES: [[u16; 256]; 6] = {
    let mut tables = [[0_u16; 256]; 6];
    let mut index = 0;
    while index < 6 {
        let mut byte = 0;
        while byte < 256 {
            let mut crc = TABLE[byte];
            let mut behind = index + 1;
            while behind < 6 {
                crc = (crc << 8) ^ TABLE[const_usize(u16_to_u64(crc >> 8))];
                behind += 1;
            }
            tables[index][byte] = crc;
            byte += 1;
        }
        index += 1;
    }
    tables
};

const TABLE: [u16; 256] = {
    let mut table = [0_u16; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = low_u16(to_u64(byte)) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_byte_is_found_and_zeroes_are_never_valid() {
        for place in 0..2000_u64 {
            let at = PmAddr::new((place % 3) as u16, 64 + place * 8);
            assert_eq!(decode(at, 0), None, "zeroed memory at {at}");
            for payload in [0, 1, 0xFFFF_FFFF_FFFF, place.wrapping_mul(0x1234_5678_9ABC) & (PAYLOAD_LIMIT - 1)] {
                let word = encode(at, payload);
                assert_eq!(decode(at, word), Some(payload));
                for byte in 0..8 {
                    for flip in [0x01_u64, 0x80, 0xFF, 0x5A] {
                        assert_eq!(decode(at, word ^ (flip << (8 * byte))), None);
                    }
                }
            }
        }
    }

    #[test]
    fn the_checksum_is_the_crc_of_the_format() {
        let mut payload = 0x1234_5678_9ABC_u64;
        for place in 0..1000_u64 {
            let at = PmAddr::new(1, 64 + place * 8);
            let crc = (0..6).fold(0xFFFF_u16, |crc, index| {
                let byte = (payload >> (8 * index)) as u8;
                (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)]
            });
            let mixed = crc ^ ((at.to_raw() >> 3).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48) as u16;
            let found = (encode(at, payload) >> 48) as u16;
            assert!(found == mixed || found == mixed ^ 0x5A5A, "payload {payload:#x} at {at}");
            payload = payload.wrapping_mul(6_364_136_223_846_793_005) & (PAYLOAD_LIMIT - 1);
        }
    }

    #[test]
    fn addresses_round_trip() {
        let at = PmAddr::new(0, 8);
        for target in [PmAddr::NULL, PmAddr::new(3, 8), PmAddr::new(255, (1 << 43) - 8)] {
            assert_eq!(decode_addr(at, encode_addr(at, target)), Some(target));
        }
    }
}
