//! The lines of a key: buckets of lines, each key at home in one, and a few spare lines after them.
//!
//! A key's hash names its home line. A key that finds its home full goes to another line of the same 256-byte media
//! block, else of the same bucket, else to the *stash* after the buckets. The home line's header says how far a search
//! must go ([`Level`]), so that nearly every search, even of an absent key, reads one line. A segment of the hash index
//! is a table of many buckets with a stash; a leaf of the tree is a table of one bucket without.

use lodestone_pmem::{LINE_BYTES, MEDIA_BLOCK_BYTES, PmAddr};
use lodestone_width::{low_u32, to_usize};

use super::line::{CHECKED_SLOTS, LineAt};

/// Lines of a media block.
const BLOCK_LINES: u32 = low_u32(MEDIA_BLOCK_BYTES / LINE_BYTES);

/// How far from its home line a key may be. Each level includes those before it.
pub(crate) struct Level;

impl Level {
    /// In the home line.
    pub(crate) const HOME: u8 = 0;
    /// In the home line's block of four lines.
    pub(crate) const BLOCK: u8 = 1;
    /// In the home line's bucket.
    pub(crate) const BUCKET: u8 = 2;
    /// In the stash.
    pub(crate) const STASH: u8 = 3;
}

/// How many lines a table has, and how they are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Buckets.
    pub(crate) buckets: u32,
    /// Lines in a bucket.
    pub(crate) lines: u32,
    /// Lines after the buckets.
    pub(crate) stash: u32,
}

/// The home of a key in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    /// Number of the bucket.
    pub(crate) bucket: u32,
    /// Number of the line, counted over all buckets.
    pub(crate) line: u32,
}

/// A table on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableAt {
    /// Its first line.
    pub(crate) first: PmAddr,
    /// How many lines follow.
    pub(crate) shape: Shape,
}

impl Shape {
    /// Lines of all buckets.
    #[inline]
    pub(crate) const fn home_lines(self) -> u32 {
        self.buckets * self.lines
    }

    /// Lines of the table.
    #[inline]
    pub(crate) const fn all_lines(self) -> u32 {
        self.home_lines() + self.stash
    }

    /// Bytes of the table.
    pub(crate) fn bytes(self) -> u64 {
        u64::from(self.all_lines()) * LINE_BYTES
    }

    /// Pairs that fit if none is in the wrong place.
    pub(crate) fn pairs_max(self) -> usize {
        to_usize(self.all_lines()) * CHECKED_SLOTS
    }

    /// The home of a key with the hash `hash`: its lower half, scaled to the number of lines.
    #[inline]
    pub(crate) fn home(self, hash: u64) -> Home {
        let line = low_u32(((hash & 0xFFFF_FFFF) * u64::from(self.home_lines())) >> 32);
        Home { bucket: line / self.lines, line }
    }

    /// The lines where a key at home in `home` may be, nearest first, each with the level that leads there; up to
    /// `level`.
    #[inline]
    pub(crate) fn candidates(self, home: Home, level: u8) -> impl Iterator<Item = (u32, u8)> {
        let bucket = home.bucket * self.lines;
        let block = bucket + (home.line - bucket) / BLOCK_LINES * BLOCK_LINES;
        let block_end = (block + BLOCK_LINES).min(bucket + self.lines);
        let up_to = move |wanted: u8, from: u32, to: u32| if level >= wanted { from..to } else { 0..0 };
        let near = up_to(Level::BLOCK, block, block_end).filter(move |&line| line != home.line);
        let before = up_to(Level::BUCKET, bucket, block);
        let behind = up_to(Level::BUCKET, block_end, bucket + self.lines);
        let stash = up_to(Level::STASH, self.home_lines(), self.all_lines());
        std::iter::once((home.line, Level::HOME))
            .chain(near.map(|line| (line, Level::BLOCK)))
            .chain(behind.chain(before).map(|line| (line, Level::BUCKET)))
            .chain(stash.map(|line| (line, Level::STASH)))
    }
}

impl TableAt {
    /// Line number `line`.
    #[inline]
    pub(crate) fn line(self, line: u32) -> LineAt {
        LineAt(self.first.plus(u64::from(line) * LINE_BYTES))
    }

    /// All lines.
    pub(crate) fn lines(self) -> impl Iterator<Item = LineAt> {
        (0..self.shape.all_lines()).map(move |line| self.line(line))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_level_reaches_each_of_its_lines_once_and_nearer_ones_first() {
        for shape in [Shape { buckets: 3, lines: 8, stash: 2 }, Shape { buckets: 1, lines: 5, stash: 0 }] {
            for hash in (0..2000_u64).map(|number| number.wrapping_mul(0x9E37_79B9_7F4A_7C15)) {
                let home = shape.home(hash);
                assert_eq!(home.bucket, home.line / shape.lines);
                let all: Vec<_> = shape.candidates(home, Level::STASH).collect();
                assert!(all.is_sorted_by_key(|&(_, level)| level) && all[0] == (home.line, Level::HOME));
                let lines: BTreeSet<u32> = all.iter().map(|&(line, _)| line).collect();
                assert_eq!(lines.len(), all.len());
                assert_eq!(lines.len() as u32, shape.lines + shape.stash);
                assert_eq!(
                    all.iter().filter(|(line, _)| line / shape.lines == home.bucket).count(),
                    shape.lines as usize
                );
                assert!(shape.candidates(home, Level::HOME).eq([(home.line, 0)]));
            }
        }
    }
}
