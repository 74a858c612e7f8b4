//! A cell line, byte for byte: `docs/format.md` draws the same map.
//!
//! Word 0 is the header, words 1 to 3 are keys, words 4 to 7 value cells. The header says which of the three slots are
//! used, which value cell each has, how far keys at home here may have gone elsewhere ([`Level`](super::Level)),
//! carries 14 bits of check for each pair and 11 bits for itself. All checks mix in the line's place, so that a line
//! copied elsewhere does not verify; a zeroed line never does.
//!
//! Invariant: of the four value cells at most three are named, so an update always finds a free one.

use lodestone_pmem::{LINE_BYTES, Memory, PmAddr, WORD_BYTES};
use lodestone_width::{const_usize, low_u8, low_u32, to_u64, to_usize};

use crate::fold::fold;

/// Pairs in a line.
pub(crate) const CHECKED_SLOTS: usize = 3;
/// Value cells in a line: one more than pairs.
const VALUE_CELLS: usize = 4;
/// Words of a line.
const LINE_WORDS: usize = const_usize(LINE_BYTES / WORD_BYTES);
const _: () = assert!(1 + CHECKED_SLOTS + VALUE_CELLS == LINE_WORDS, "header, keys and values fill a line");

const CELL_SHIFT: u32 = 3;
const LEVEL_SHIFT: u32 = cell_shift(CHECKED_SLOTS);
const PAIR_CHECK_SHIFT: u32 = LEVEL_SHIFT + 2;
const PAIR_CHECK_BITS: u32 = 14;
const CHECK_SHIFT: u32 = check_shift(CHECKED_SLOTS);
const _: () = assert!(CHECK_SHIFT == 53, "eleven bits are left for the check of the header");

/// First bit of the cell of the pair in `slot`.
const fn cell_shift(slot: usize) -> u32 {
    CELL_SHIFT + 2 * low_u32(to_u64(slot))
}

/// First bit of the check of the pair in `slot`.
const fn check_shift(slot: usize) -> u32 {
    PAIR_CHECK_SHIFT + PAIR_CHECK_BITS * low_u32(to_u64(slot))
}

/// The place of a cell line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineAt(pub(crate) PmAddr);

/// The content of a line's header word, without its own check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Meta(u64);

impl LineAt {
    /// Number of the line in its pool, spread over all bits.
    #[inline]
    const fn place(self) -> u64 {
        (self.0.to_raw() / LINE_BYTES).wrapping_mul(0xA076_1D64_78BD_642F)
    }

    /// Address of the header word.
    #[inline]
    pub(crate) fn header(self) -> PmAddr {
        self.0
    }

    /// Address of the key of `slot`.
    #[inline]
    pub(crate) fn key(self, slot: usize) -> PmAddr {
        self.0.plus(WORD_BYTES * (1 + to_u64(slot)))
    }

    /// Address of value cell `cell`.
    #[inline]
    pub(crate) fn value(self, cell: usize) -> PmAddr {
        self.0.plus(WORD_BYTES * (1 + to_u64(CHECKED_SLOTS) + to_u64(cell)))
    }

    /// The check of a pair in this line.
    #[inline]
    pub(crate) const fn pair_check(self, key: u64, value: u64) -> u64 {
        fold(key ^ self.place(), value) >> (64 - PAIR_CHECK_BITS)
    }

    #[inline]
    const fn header_check(self, payload: u64) -> u64 {
        let check = fold(payload, self.place()) >> CHECK_SHIFT;
        // Zeroed memory must not pass for an empty line.
        if payload == 0 && check == 0 { 1 } else { check }
    }

    /// The header word that says `meta` in this line.
    #[inline]
    pub(crate) const fn encode(self, meta: Meta) -> u64 {
        meta.0 | self.header_check(meta.0) << CHECK_SHIFT
    }

    /// The header in `word`, for this line, or `None` when it is damaged.
    #[inline]
    pub(crate) const fn decode(self, word: u64) -> Option<Meta> {
        let payload = word & ((1 << CHECK_SHIFT) - 1);
        if word >> CHECK_SHIFT == self.header_check(payload) { Some(Meta(payload)) } else { None }
    }

    /// The header word with this payload, whatever it says.
    #[cfg(test)]
    pub(crate) const fn seal(self, payload: u64) -> u64 {
        self.encode(Meta(payload & ((1 << CHECK_SHIFT) - 1)))
    }

    /// Reads the header.
    #[inline]
    pub(crate) fn load(self, memory: &Memory) -> Option<Meta> {
        self.decode(memory.load(self.header()))
    }
}

impl Meta {
    /// Whether `slot` holds a pair.
    #[inline]
    pub(crate) const fn is_used(self, slot: usize) -> bool {
        self.0 >> slot & 1 != 0
    }

    /// The slots that hold pairs, ascending.
    #[inline]
    pub(crate) fn used(self) -> impl Iterator<Item = usize> {
        (0..CHECKED_SLOTS).filter(move |&slot| self.is_used(slot))
    }

    /// Number of pairs.
    #[inline]
    pub(crate) fn count(self) -> usize {
        to_usize((self.0 & ((1 << CHECKED_SLOTS) - 1)).count_ones())
    }

    /// A slot that holds nothing.
    #[inline]
    pub(crate) fn free_slot(self) -> Option<usize> {
        (0..CHECKED_SLOTS).find(|&slot| !self.is_used(slot))
    }

    /// The value cell of `slot`.
    #[inline]
    pub(crate) const fn cell(self, slot: usize) -> usize {
        const_usize(self.0 >> cell_shift(slot) & 3)
    }

    /// A value cell that no pair has.
    #[inline]
    pub(crate) fn free_cell(self) -> usize {
        let taken = self.used().fold(0_u32, |taken, slot| taken | 1 << self.cell(slot));
        to_usize((!taken).trailing_zeros())
    }

    /// The check of the pair in `slot`.
    #[inline]
    pub(crate) const fn check(self, slot: usize) -> u64 {
        self.0 >> check_shift(slot) & ((1 << PAIR_CHECK_BITS) - 1)
    }

    /// How far keys at home in this line may have gone elsewhere, 0 to 3.
    #[inline]
    pub(crate) const fn level(self) -> u8 {
        low_u8(self.0 >> LEVEL_SHIFT & 3)
    }

    /// With another level.
    #[inline]
    pub(crate) fn with_level(self, level: u8) -> Self {
        Self(self.0 & !(3 << LEVEL_SHIFT) | (u64::from(level) & 3) << LEVEL_SHIFT)
    }

    /// With a pair in `slot`, whose value is in `cell` and whose check is `check`.
    #[inline]
    pub(crate) const fn with(self, slot: usize, cell: usize, check: u64) -> Self {
        let cleared = self.without(slot).0;
        let cell = to_u64(cell) << cell_shift(slot);
        Self(cleared | 1 << slot | cell | check << check_shift(slot))
    }

    /// Without the pair of `slot`.
    #[inline]
    pub(crate) const fn without(self, slot: usize) -> Self {
        let check = ((1 << PAIR_CHECK_BITS) - 1) << check_shift(slot);
        Self(self.0 & !(1 << slot | 3 << cell_shift(slot) | check))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: u64) -> LineAt {
        LineAt(PmAddr::new(0, number * LINE_BYTES))
    }

    #[test]
    fn what_is_put_into_a_header_is_found_there() {
        let mut meta = Meta::default().with_level(2);
        for (slot, cell) in [(0, 3), (1, 0), (2, 2)] {
            meta = meta.with(slot, cell, 0x2A00 + slot as u64);
        }
        assert_eq!((meta.count(), meta.free_slot(), meta.free_cell(), meta.level()), (3, None, 1, 2));
        let meta = meta.without(1);
        assert_eq!((meta.cell(0), meta.cell(2), meta.check(2)), (3, 2, 0x2A02));
        assert_eq!((meta.free_slot(), meta.free_cell(), meta.used().collect::<Vec<_>>()), (Some(1), 0, vec![0, 2]));
        let line = line(77);
        assert_eq!(line.decode(line.encode(meta)), Some(meta));
        assert_eq!(LineAt(line.0.plus(LINE_BYTES)).decode(line.encode(meta)), None);
    }

    #[test]
    fn zeroed_memory_is_never_a_line() {
        assert!((1..20_000).all(|number| line(number).decode(0).is_none()));
    }

    /// A damaged byte of a header goes unnoticed about once in 2^11, one of a pair once in 2^14.
    #[test]
    fn damaged_bytes_are_noticed() {
        let (mut headers, mut pairs, mut tried) = (0, 0, 0);
        for number in 1..200_u64 {
            let line = line(number);
            let (key, value) = (number.wrapping_mul(0x1234_5678_9ABC_DEF1), number.wrapping_mul(number));
            let meta = Meta::default().with(0, 1, line.pair_check(key, value));
            for byte in 0..8 {
                for flip in [0x01_u64, 0x80, 0xFF, 0x5A] {
                    let flip = flip << (8 * byte);
                    tried += 1;
                    headers += u64::from(line.decode(line.encode(meta) ^ flip).is_some());
                    pairs += u64::from(line.pair_check(key ^ flip, value) == meta.check(0));
                    pairs += u64::from(line.pair_check(key, value ^ flip) == meta.check(0));
                }
            }
        }
        assert!(headers * 512 < tried && pairs * 2048 < 2 * tried, "{headers} and {pairs} of {tried} unnoticed");
    }
}
