//! Reading a slot of a cell.

use lodestone_pmem::{Memory, PmAddr, planted};
use lodestone_txn::{SLOT_HEADER_WORDS, SlotHeader, Which, is_erased, verify};
use lodestone_width::to_u64;

use crate::shape::Shape;

/// The content of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Nothing was written there.
    Absent,
    /// A version that counts.
    Counts(SlotHeader),
    /// A whole version of a transaction that a crash cut short.
    Lost(SlotHeader),
    /// The checksum fails, or the header is erased. Then its tick is zero.
    Broken(SlotHeader),
}

/// Reads and judges a slot. `counts` says of a whole version whether a crash has not cut its transaction short.
/// `scratch` is overwritten: it has header and payload then.
pub fn read_slot(
    memory: &Memory,
    counts: impl FnOnce(&SlotHeader) -> bool,
    (shape, cell, which): (Shape, PmAddr, Which),
    scratch: &mut Vec<u64>,
) -> Version {
    let at = shape.slot_at(cell, which);
    let (tick, meta) = (memory.load(at), memory.load(at.plus(8)));
    let header = SlotHeader::decode(tick, meta);
    if tick == 0 {
        return if is_erased(tick, meta) { Version::Broken(header) } else { Version::Absent };
    }
    if planted::active("stm-slot-crc-ignored") {
        return Version::Counts(header);
    }
    if header.words > shape.slot_words(which) {
        return Version::Broken(header);
    }
    scratch.clear();
    scratch.extend([tick, meta]);
    let payload = at.plus(to_u64(SLOT_HEADER_WORDS) * 8);
    scratch.extend((0..u64::from(header.words)).map(|word| memory.load(payload.plus(word * 8))));
    if !verify(at, scratch) {
        Version::Broken(header)
    } else if counts(&header) || planted::active("stm-final-ignored") {
        Version::Counts(header)
    } else {
        Version::Lost(header)
    }
}
