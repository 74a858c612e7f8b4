//! A slot: one version of an object, verified by its own checksum.
//!
//! ```text
//! word 0: tick, 0 = never written or made invalid
//! word 1: bits 0..10 writer, 10 SELF, 11 DELETED, 12 one, 13..32 payload words, 32..64 CRC-32C
//! word 2..: payload
//! ```
//!
//! The checksum covers both header words (without the checksum itself), the payload and the slot's own address. A slot
//! whose checksum fails was torn by a crash or damaged on the medium. An intact slot may still be the loser of a crash:
//! [`Lives`](crate::Lives) decides whether it counts.
//!
//! A new cell's slots hold [`NEVER_WRITTEN`] before the cell can be reached. From then on bit 12 of word 1 is one for
//! ever, because every store to the word keeps it. So a header of zeros ([`is_erased`]) is a lost line, whatever
//! crashes happened. Without the bit a lost line would look like a slot that was never written, and the object would
//! silently return to its older version.
//!
//! The tick is stored last of the words in its line. A crash tears a line between two of its stores. So a tick never
//! stands beside the writer of the version before, which may have committed another version of that tick.
//!
//! Invariant: a slot is written only while its object's version word says "committing", and it is never the newest one.

use lodestone_pmem::PmAddr;
use lodestone_width::{exact_u32, low_u32, to_usize, u16_to_u64, u32_to_u64};

use crate::crc;
use crate::tick::{Tick, WRITER_BITS, Writer};

/// Words of a slot's header.
pub const SLOT_HEADER_WORDS: usize = 2;
/// Bytes of a slot's header.
pub const SLOT_HEADER_BYTES: u64 = 16;
/// Largest payload of a slot in words: 4 MiB less one word.
pub const SLOT_WORDS_MAX: u32 = (1 << 19) - 1;

const SELF_BIT: u64 = 1 << WRITER_BITS;
const DELETED_BIT: u64 = 1 << (WRITER_BITS + 1);
const WRITTEN_BIT: u64 = 1 << (WRITER_BITS + 2);
const WORDS_SHIFT: u32 = 13;
const CRC_SHIFT: u32 = 32;

/// The header of a slot that was never written.
pub const NEVER_WRITTEN: [u64; SLOT_HEADER_WORDS] = [0, WRITTEN_BIT];

/// Whether a header of these two words was lost with its line: no slot of a cell has it, written or not.
#[must_use]
#[inline]
pub const fn is_erased(tick: u64, meta: u64) -> bool {
    tick == 0 && meta == 0
}

/// The kind of a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotFlags {
    /// The version counts by itself, without an intent record. Its transaction wrote nothing else, or was recorded and
    /// ended by other means.
    pub certifies_itself: bool,
    /// The object ends with this version, which has no payload.
    pub deleted: bool,
}

/// The decoded header of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotHeader {
    /// When the version was committed.
    pub tick: Tick,
    /// The thread that committed it.
    pub writer: Writer,
    /// Its kind.
    pub flags: SlotFlags,
    /// Payload words.
    pub words: u32,
}

impl SlotHeader {
    /// Decodes the two header words without checking the checksum.
    #[must_use]
    #[inline]
    pub const fn decode(tick: u64, meta: u64) -> Self {
        Self {
            tick: Tick(tick),
            writer: Writer::from_bits(meta),
            flags: SlotFlags { certifies_itself: meta & SELF_BIT != 0, deleted: meta & DELETED_BIT != 0 },
            words: low_u32(meta >> WORDS_SHIFT) & SLOT_WORDS_MAX,
        }
    }

    #[inline]
    const fn meta(&self) -> u64 {
        let mut meta = WRITTEN_BIT | u16_to_u64(self.writer.number()) | (u32_to_u64(self.words) << WORDS_SHIFT);
        if self.flags.certifies_itself {
            meta |= SELF_BIT;
        }
        if self.flags.deleted {
            meta |= DELETED_BIT;
        }
        meta
    }
}

/// Checksum of a slot at `at` whose words are `words`, with the checksum's own bits taken as zero.
#[inline(always)]
fn checksum(at: PmAddr, words: &[u64]) -> u32 {
    let place = at.to_raw();
    let header = [words[0], words[1] & !(u64::MAX << CRC_SHIFT)];
    crc::append(low_u32(place ^ (place >> 32)), header, &words[SLOT_HEADER_WORDS..])
}

/// Writes the header into the first two words of `words` (header and payload), for the slot at `at`.
///
/// # Panics
/// If `words` has another length than the header and `header.words` words.
#[inline(always)]
pub fn seal(at: PmAddr, header: &SlotHeader, words: &mut [u64]) {
    assert_eq!(words.len(), SLOT_HEADER_WORDS + to_usize(header.words), "a slot is sealed whole");
    words[0] = header.tick.0;
    words[1] = header.meta();
    words[1] |= u64::from(checksum(at, words)) << CRC_SHIFT;
}

/// Whether `words` (header and payload) is the result of [`seal`] for the slot at `at`.
#[must_use]
#[inline]
pub fn verify(at: PmAddr, words: &[u64]) -> bool {
    words.len() >= SLOT_HEADER_WORDS
        && words.len() == SLOT_HEADER_WORDS + to_usize(SlotHeader::decode(words[0], words[1]).words)
        && exact_u32(words[1] >> CRC_SHIFT) == checksum(at, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_and_every_other_place_is_found() {
        let at = PmAddr::new(1, 4096 + 8);
        let flags = SlotFlags { certifies_itself: true, deleted: false };
        let header = SlotHeader { tick: Tick(99), writer: Writer::new(7).expect("small"), flags, words: 3 };
        let mut words = [0, 0, 11, 22, 33];
        seal(at, &header, &mut words);
        assert!(verify(at, &words));
        assert_eq!(SlotHeader::decode(words[0], words[1]), header);
        assert!(!verify(at.plus(64), &words), "another place");
        for word in 0..words.len() {
            for bit in 0..64 {
                let mut broken = words;
                broken[word] ^= 1 << bit;
                assert!(!verify(at, &broken), "word {word} bit {bit}");
            }
        }
    }
}
