//! Bytes of the directory, of extents, checkpoint blocks and pages. `docs/format.md` repeats them.
//!
//! ```text
//! directory: two equal header lines, 256 bytes apart, each followed by a link to the first extent;
//!            from 512 on two places for a checkpoint block
//! extent:    two equal head lines, 256 bytes apart, each followed by a link to the next extent;
//!            from 512 on two words for each page, then the pages
//! block:     a line with the number of its batch, then a position for each writer
//! page:      a head of 64 bytes, then a piece of an image
//! ```
//!
//! The head of a page has a checksum of its own, over the first possible key as well. So an open that reads nothing
//! else of an image can trust the keys between which it is.

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
/// The format that this crate writes and reads.
pub const VERSION: u32 = 2;
/// Bytes before the rest of a directory or extent.
pub const HEAD_BYTES: u64 = 512;
/// Bytes of a page's head.
pub const PAGE_HEAD_BYTES: usize = 64;
/// Bytes of an image before its first possible key.
pub const IMAGE_HEAD_BYTES: usize = 8;
const COPY_OFFSET: u64 = 256;
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
    fn block_bytes(&self) -> u64 {
        (LINE_BYTES + u64::from(self.options.writers) * 8).next_multiple_of(GRAIN)
    }

    pub fn directory_bytes(&self) -> u64 {
        HEAD_BYTES + 2 * self.block_bytes()
    }

    /// The two places of checkpoint blocks.
    pub fn blocks(&self) -> [PmAddr; 2] {
        [0, self.block_bytes()].map(|offset| self.directory.plus(HEAD_BYTES + offset))
    }

    fn table_bytes(&self) -> u64 {
        (u64::from(self.options.extent_pages) * 16).next_multiple_of(GRAIN)
    }

    pub fn extent_bytes(&self) -> u64 {
        HEAD_BYTES + self.table_bytes() + u64::from(self.options.extent_pages) * u64::from(self.options.page_bytes)
    }

    /// The words of the page with number `index` in the extent at `extent`: the batches in which it began and ended.
    pub fn words(&self, extent: PmAddr, index: u32) -> [PmAddr; 2] {
        let at = extent.plus(HEAD_BYTES + u64::from(index) * 16);
        [at, at.plus(8)]
    }

    /// The page with number `index` in the extent at `extent`.
    pub fn page(&self, extent: PmAddr, index: u32) -> PmAddr {
        extent.plus(HEAD_BYTES + self.table_bytes() + u64::from(index) * u64::from(self.options.page_bytes))
    }

    /// Bytes of an image in one page.
    pub fn piece_bytes(&self) -> usize {
        to_usize(self.options.page_bytes) - PAGE_HEAD_BYTES
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
    pub zero: [u8; 12],
    /// CRC-32C of the head before this field, then of the first possible key, as far as it is in this page.
    pub head_crc: u32,
    /// CRC-32C of the bytes, then of the head before this field.
    pub crc: u32,
}

const _: () = assert!(size_of::<PageHead>() == PAGE_HEAD_BYTES);

impl PageHead {
    /// Completes the head of a page with these bytes.
    pub fn seal(&mut self, bytes: &[u8]) {
        self.bytes = exact_u32(bytes.len());
        self.head_crc = self.head_checksum(&bytes[self.low()]);
        self.crc = self.checksum(bytes);
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

    pub fn checksum(&self, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(bytes), &self.as_bytes()[..PAGE_HEAD_BYTES - 4])
    }
}
