//! Cells: the places of objects, and the places of the version word and the two slots inside a cell.
//!
//! ```text
//! pair:   | version word | slot 0 | ... line ... | slot 1 |      every cell starts a line
//! single: | version word | slot 1: header only | slot 0 |
//! ```
//!
//! Version word and slot 0 begin in one line, and slot 1 begins a line. With up to 40 bytes of payload a slot is one
//! line. With up to 104 bytes it is two lines, and the cell is one media block of 256 bytes. So both versions are side
//! by side in one block (paper 1, section 4.1). With up to 8 bytes of payload the whole cell is one line.
//!
//! A single cell is for data that is written once. Its second slot can only say "deleted".
//!
//! Invariant: the places of the slots follow from kind and size of the cell alone, so recovery needs no types.

use lodestone_pmem::{LINE_BYTES, PmAddr};
use lodestone_txn::{SLOT_HEADER_BYTES, SLOT_WORDS_MAX, Which};
use lodestone_width::{const_usize, low_u32, u32_to_u64};

/// The use of a slab's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CellKind {
    /// Two whole slots.
    Pair,
    /// One whole slot, and one for the word "deleted".
    Single,
    /// No objects: the slab is one block for long intent records.
    Spill,
}

/// Size and kind of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    /// The use.
    pub kind: CellKind,
    /// Bytes of a cell, a multiple of 64.
    pub cell_bytes: u32,
}

const WORD: u32 = 8;
const LINE: u32 = low_u32(LINE_BYTES);
const HEADER: u32 = low_u32(SLOT_HEADER_BYTES);
/// Sizes above this grow in steps of a quarter of the next lower power of two.
const EXACT_MAX: u32 = 1024;
/// Most bytes of payload.
pub const PAYLOAD_BYTES_MAX: u64 = u32_to_u64(SLOT_WORDS_MAX) * 8;

const fn round_line(bytes: u32) -> u32 {
    bytes.div_ceil(LINE) * LINE
}

const fn round_class(bytes: u32) -> u32 {
    if bytes <= EXACT_MAX {
        return bytes;
    }
    let step = (1 << (31 - (bytes - 1).leading_zeros())) / 4;
    bytes.div_ceil(step) * step
}

impl Shape {
    /// The cell for objects of `payload_bytes` bytes that are updated.
    #[must_use]
    pub const fn pair(payload_bytes: u32) -> Self {
        let slot = HEADER + payload_bytes.div_ceil(WORD) * WORD;
        let cell = if WORD + 2 * slot <= LINE { LINE } else { round_line(round_line(WORD + slot) + slot) };
        Self { kind: CellKind::Pair, cell_bytes: round_class(cell) }
    }

    /// The cell for `payload_bytes` bytes that are written once.
    #[must_use]
    pub const fn single(payload_bytes: u32) -> Self {
        let cell = round_line(WORD + 2 * HEADER + payload_bytes.div_ceil(WORD) * WORD);
        Self { kind: CellKind::Single, cell_bytes: round_class(cell) }
    }

    /// Offset of a slot in the cell.
    #[inline(always)]
    #[must_use]
    pub const fn slot_offset(self, which: Which) -> u32 {
        match (self.kind, which) {
            (CellKind::Single, Which::Second) => WORD,
            (CellKind::Single, Which::First) => WORD + HEADER,
            (_, Which::First) => WORD,
            (_, Which::Second) if self.cell_bytes == LINE => LINE / 2,
            (_, Which::Second) => self.cell_bytes.div_ceil(2 * LINE) * LINE,
        }
    }

    /// Number of the cell's word at which the payload of a slot begins.
    #[must_use]
    pub const fn payload_word(self, which: Which) -> usize {
        const_usize(u32_to_u64((self.slot_offset(which) + HEADER) / WORD))
    }

    /// Address of a slot of the cell at `cell`.
    #[inline(always)]
    #[must_use]
    pub const fn slot_at(self, cell: PmAddr, which: Which) -> PmAddr {
        cell.plus(u32_to_u64(self.slot_offset(which)))
    }

    /// Payload words that a slot has room for.
    #[must_use]
    pub const fn slot_words(self, which: Which) -> u32 {
        let end = match (self.kind, which) {
            (CellKind::Single, Which::Second) => return 0,
            (CellKind::Pair, Which::First) => self.slot_offset(Which::Second),
            _ => self.cell_bytes,
        };
        (end - self.slot_offset(which) - HEADER) / WORD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_fit_their_cells_and_touch_no_more_lines_than_they_must() {
        for payload in (0..3000).chain([8 << 10, 100_000, PAYLOAD_BYTES_MAX as u32]) {
            let words = payload.div_ceil(8);
            let pair = Shape::pair(payload);
            assert!(pair.cell_bytes.is_multiple_of(64), "{payload}");
            for which in [Which::First, Which::Second] {
                assert!(pair.slot_words(which) >= words, "{payload} bytes in {pair:?}");
            }
            assert!(pair.slot_offset(Which::First) + HEADER + words * 8 <= pair.slot_offset(Which::Second));
            let single = Shape::single(payload);
            assert!(single.slot_words(Which::First) >= words, "{payload} bytes in {single:?}");
        }
        let cells = |payload| Shape::pair(payload).cell_bytes;
        assert_eq!([0, 8, 9, 40, 48, 104, 105].map(cells), [64, 64, 128, 128, 192, 256, 320]);
    }
}
