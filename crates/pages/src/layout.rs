//! Bytes of the directory, of extents, checkpoint blocks and pages. `docs/format.md` repeats them.
//!
//! ```text
//! directory: two equal header lines, 256 bytes apart, each followed by a link to the first extent;
//!            from 512 on two places for a checkpoint block
//! extent:    two equal head lines, 256 bytes apart, each followed by a link to the next extent;
//!            from 512 on a line of the page table for each page, then the pages
//! block:     a line with the number of its batch, then a position for each writer
//! page:      a head of 64 bytes, then a piece of an image, whose cells change in place (`cell.rs`), then rows that
//!            are added in place (`tail.rs`)
//! ```
//!
//! A line of the page table has two words and a *summary* of the page's head: the tree, and the first possible key if
//! it is short. So an open reads the page table alone, in order. The head has a checksum of its own, over the first
//! possible key as well: it serves where the key is longer, and where the summary is damaged.

use std::ops::Range;

use lodestone_pmem::{LINE_BYTES, PmAddr};
use lodestone_width::{exact_u32, to_u64, to_usize};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::options::PageOptions;

/// `LDSTPGS` and a zero.
pub const MAGIC: u64 = u64::from_le_bytes(*b"LDSTPGS\0");
/// `LDSTEXT` and a zero.
pub const EXTENT_MAGIC: u64 = u64::from_le_bytes(*b"LDSTEXT\0");
/// `LDSTCHK` and a zero.
pub const BLOCK_MAGIC: u64 = u64::from_le_bytes(*b"LDSTCHK\0");
/// `LDPG`.
pub const PAGE_MAGIC: u32 = u32::from_le_bytes(*b"LDPG");
/// The format that this crate writes.
pub const VERSION: u32 = 6;
/// The format before it, which this crate reads and goes on writing where it is: pages have no tails.
pub const VERSION_WITHOUT_TAILS: u32 = 5;
/// Bytes before the rest of a directory or extent.
pub const HEAD_BYTES: u64 = 512;
/// Bytes of a line, for places in a page.
pub const LINE: usize = 64;
const _: () = assert!(to_u64(LINE) == LINE_BYTES);
/// Bytes of a page's head.
pub const PAGE_HEAD_BYTES: usize = 64;
/// Bytes of the page table for each page.
pub const ENTRY_BYTES: u64 = 64;
/// Bytes of an image before its first possible key.
pub const IMAGE_HEAD_BYTES: usize = 8;
const COPY_OFFSET: u64 = 256;
/// Bytes of a page of the operating system.
const SYSTEM_PAGE_BYTES: u32 = 4096;
/// Copies share no block of the media.
const GRAIN: u64 = 256;

/// Header of the directory. It never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DirectoryLine {
    pub magic: u64,
    pub version: u32,
    pub page_bytes: u32,
    pub extent_pages: u32,
    /// Positions in a checkpoint block.
    pub writers: u32,
    pub zero: [u8; 36],
    pub crc: u32,
}

const _: () = assert!(to_u64(size_of::<DirectoryLine>()) == LINE_BYTES);

impl DirectoryLine {
    pub fn new(options: &PageOptions) -> Self {
        let mut line = Self::new_zeroed();
        (line.magic, line.version) = (MAGIC, VERSION);
        (line.page_bytes, line.extent_pages) = (options.page_bytes, options.extent_pages);
        line.writers = options.writers.into();
        line.crc = line.checksum();
        line
    }

    pub fn checksum(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..to_usize(LINE_BYTES) - 4])
    }

    /// The sizes, if they are such as options allow.
    pub fn options(&self) -> Option<PageOptions> {
        let writers = u16::try_from(self.writers).ok()?;
        let options = PageOptions { page_bytes: self.page_bytes, extent_pages: self.extent_pages, writers };
        (self.zero == [0; 36] && options.check().is_ok()).then_some(options)
    }
}

/// Head of an extent. It never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ExtentLine {
    pub magic: u64,
    /// Its place in the chain, from 0.
    pub number: u32,
    pub zero: [u8; 48],
    pub crc: u32,
}

const _: () = assert!(to_u64(size_of::<ExtentLine>()) == LINE_BYTES);

impl ExtentLine {
    pub fn new(number: u32) -> Self {
        let mut line = Self::new_zeroed();
        (line.magic, line.number) = (EXTENT_MAGIC, number);
        line.crc = line.checksum();
        line
    }

    pub fn checksum(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..to_usize(LINE_BYTES) - 4])
    }
}

/// Places of the two head lines of the directory or extent at `at`.
pub fn head_lines(at: PmAddr) -> [PmAddr; 2] {
    [0, COPY_OFFSET].map(|offset| at.plus(offset))
}

/// Places of the two links of the directory or extent at `at`.
pub fn links(at: PmAddr) -> [PmAddr; 2] {
    head_lines(at).map(|line| line.plus(LINE_BYTES))
}

/// Head of a checkpoint block. The positions follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BlockLine {
    pub magic: u64,
    /// Pages of this batch and those before count.
    pub batch: u64,
    pub zero: [u8; 44],
    /// CRC-32C of the positions, then of the line before this field.
    pub crc: u32,
}

const _: () = assert!(to_u64(size_of::<BlockLine>()) == LINE_BYTES);

impl BlockLine {
    /// The bytes of a block.
    pub fn block(batch: u64, from: &[u64]) -> Vec<u8> {
        let mut line = Self { magic: BLOCK_MAGIC, batch, zero: [0; 44], crc: 0 };
        line.crc = line.checksum(from);
        [line.as_bytes(), from.as_bytes()].concat()
    }

    pub fn checksum(&self, from: &[u64]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(from.as_bytes()), &self.as_bytes()[..to_usize(LINE_BYTES) - 4])
    }
}

/// All places that follow from the options.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    pub directory: PmAddr,
    pub options: PageOptions,
}

impl Places {
    /// Bytes of a checkpoint block.
    pub fn block_bytes(&self) -> u64 {
        (LINE_BYTES + u64::from(self.options.writers) * 8).next_multiple_of(GRAIN)
    }

    pub fn directory_bytes(&self) -> u64 {
        HEAD_BYTES + 2 * self.block_bytes()
    }

    /// The two places of checkpoint blocks.
    pub fn blocks(&self) -> [PmAddr; 2] {
        [0, self.block_bytes()].map(|offset| self.directory.plus(HEAD_BYTES + offset))
    }

    pub fn table_bytes(&self) -> u64 {
        (u64::from(self.options.extent_pages) * ENTRY_BYTES).next_multiple_of(GRAIN)
    }

    /// Pages of this size begin at multiples of so many bytes: whole pages of the system are read and written.
    fn page_grain(&self) -> u64 {
        if self.options.page_bytes.is_multiple_of(SYSTEM_PAGE_BYTES) { SYSTEM_PAGE_BYTES.into() } else { GRAIN }
    }

    pub fn extent_bytes(&self) -> u64 {
        let pages = u64::from(self.options.extent_pages) * u64::from(self.options.page_bytes);
        // Wherever the extent begins, at a line, its first page has room after the table.
        HEAD_BYTES + self.table_bytes() + pages + self.page_grain() - LINE_BYTES
    }

    /// The words of the page with number `index` in the extent at `extent`: the batches in which it began and ended.
    pub fn words(&self, extent: PmAddr, index: u32) -> [PmAddr; 2] {
        let at = extent.plus(HEAD_BYTES + u64::from(index) * ENTRY_BYTES);
        [at, at.plus(8)]
    }

    /// The summary of the page with number `index` in the extent at `extent`: in the line of its words.
    pub fn summary(&self, extent: PmAddr, index: u32) -> PmAddr {
        self.words(extent, index)[1].plus(8)
    }

    /// The page with number `index` in the extent at `extent`.
    pub fn page(&self, extent: PmAddr, index: u32) -> PmAddr {
        let after_table = extent.plus(HEAD_BYTES + self.table_bytes()).offset();
        let first = after_table.next_multiple_of(self.page_grain());
        PmAddr::new(extent.part(), first + u64::from(index) * u64::from(self.options.page_bytes))
    }

    /// Bytes of an image in one page.
    pub fn piece_bytes(&self) -> usize {
        to_usize(self.options.page_bytes) - PAGE_HEAD_BYTES
    }
}

/// A line of the page table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Entry {
    pub born: u64,
    pub died: u64,
    pub summary: Summary,
}

const _: () = assert!(to_u64(size_of::<Entry>()) == ENTRY_BYTES);

/// Bytes of the longest first possible key that a summary has.
pub const SUMMARY_KEY_BYTES: usize = 20;

/// The rest of a line of the page table: what an open has to know of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Summary {
    pub first: u32,
    pub tree: u32,
    pub piece: u32,
    pub pieces: u32,
    pub rows: u32,
    pub low_bytes: u32,
    /// The first possible key, if it is not longer than this, and zeros.
    pub low: [u8; SUMMARY_KEY_BYTES],
    /// CRC-32C of the numbers of page and batch, then of the summary before this field.
    pub crc: u32,
}

impl Summary {
    /// That of a page with this head, of an image with this first possible key, which only that of a first page has.
    pub fn new(head: &PageHead, low: &[u8]) -> Self {
        let &PageHead { first, tree, piece, pieces, rows, low_bytes, .. } = head;
        let mut summary = Self { first, tree, piece, pieces, rows, low_bytes, low: [0; SUMMARY_KEY_BYTES], crc: 0 };
        if piece == 0
            && let Some(short) = summary.low.get_mut(..to_usize(low_bytes))
        {
            short.copy_from_slice(low);
        }
        summary.crc = summary.checksum(head.page, head.batch);
        summary
    }

    /// Whether it verifies as that of a page of this number, of this batch.
    pub fn is_of(&self, page: u32, batch: u64) -> bool {
        self.crc == self.checksum(page, batch)
    }

    fn checksum(&self, page: u32, batch: u64) -> u32 {
        let crc = crc32c::crc32c_append(crc32c::crc32c(page.as_bytes()), batch.as_bytes());
        crc32c::crc32c_append(crc, &self.as_bytes()[..size_of::<Self>() - 4])
    }

    /// The first possible key, if it is here.
    pub fn low(&self) -> Option<&[u8]> {
        self.low.get(..to_usize(self.low_bytes))
    }
}

/// Head of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PageHead {
    pub magic: u32,
    /// The page's own number.
    pub page: u32,
    /// The batch that wrote it.
    pub batch: u64,
    /// The first page of the image.
    pub first: u32,
    pub tree: u32,
    /// Number of this piece of the image, from 0.
    pub piece: u32,
    pub pieces: u32,
    /// Bytes of the image in this page.
    pub bytes: u32,
    /// Bytes of the first possible key.
    pub low_bytes: u32,
    /// Rows of the image.
    pub rows: u32,
    /// Bytes of the image in this page that never change, from the first one.
    pub fixed: u32,
    /// Where the tail of the page begins among the bytes of the page: see `tail.rs`. 0: it has none.
    pub tail: u32,
    pub zero: [u8; 4],
    /// CRC-32C of the head before this field, then of the first possible key, as far as it is in this page.
    pub head_crc: u32,
    /// CRC-32C of the bytes that never change, then of the head before this field.
    pub crc: u32,
}

const _: () = assert!(size_of::<PageHead>() == PAGE_HEAD_BYTES);

impl PageHead {
    /// Completes the head of a page with these bytes, of which so many never change.
    pub fn seal(&mut self, bytes: &[u8], fixed: usize) {
        (self.bytes, self.fixed) = (exact_u32(bytes.len()), exact_u32(fixed));
        self.head_crc = self.head_checksum(&bytes[self.low()]);
        self.crc = self.checksum(bytes).expect("a part of the bytes");
    }

    /// Where the first possible key is among the bytes of the page, as far as it is there.
    pub fn low(&self) -> Range<usize> {
        let bytes = to_usize(self.bytes);
        let from = if self.piece == 0 { IMAGE_HEAD_BYTES.min(bytes) } else { bytes };
        from..from.saturating_add(to_usize(self.low_bytes)).min(bytes)
    }

    /// Whether all of the first possible key is in the page.
    pub fn has_low(&self) -> bool {
        self.low().len() == to_usize(self.low_bytes)
    }

    pub fn head_checksum(&self, low: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.as_bytes()[..PAGE_HEAD_BYTES - 8]), low)
    }

    /// The checksum of the page. `None`: the head makes no sense.
    pub fn checksum(&self, bytes: &[u8]) -> Option<u32> {
        let fixed = bytes.get(..to_usize(self.fixed))?;
        Some(crc32c::crc32c_append(crc32c::crc32c(fixed), &self.as_bytes()[..PAGE_HEAD_BYTES - 4]))
    }
}
