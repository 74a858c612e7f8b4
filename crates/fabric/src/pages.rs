//! The pages of a member: an area of a pool, and a table of their checksums.
//!
//! ```text
//! area   checksums: 8 bytes for each page (CRC-32C in the low half, 1 in bit 32 when it is known), to 4,096 bytes
//!        pages
//! ```
//!
//! A page is written before anything refers to it. [`settle`](PageArea::settle) and a fence make it persistent. The
//! table is written later, from the log of applied records, before that is trimmed; until then the checksums of newer
//! pages are in the log, and in DRAM.
//!
//! Page 0 does not exist: 0 is "no page".

use std::collections::HashMap;

use lodestone_pmem::{Memory, PmAddr};
use lodestone_width::{low_u32, to_u64, to_usize};

use crate::error::{Error, Result};

const KNOWN: u64 = 1 << 32;

/// An area of pages in a pool.
#[derive(Debug)]
pub struct PageArea {
    memory: Memory,
    at: PmAddr,
    page_bytes: u32,
    pages: u64,
    /// Checksums that are newer than the table.
    newer: HashMap<u64, u32>,
}

/// Bytes of the table of checksums.
const fn table_bytes(pages: u64) -> u64 {
    (pages * 8).next_multiple_of(4096)
}

impl PageArea {
    /// Bytes that an area of so many pages takes.
    #[must_use]
    pub fn bytes_for(page_bytes: u32, pages: u64) -> u64 {
        table_bytes(pages) + u64::from(page_bytes) * pages
    }

    /// The area in `bytes` bytes at `at`, zeroed when it is used for the first time. `page_bytes` is a multiple of 64.
    ///
    /// # Errors
    /// [`Error::RangeTooSmall`]; a device that failed.
    pub fn open(memory: &Memory, at: PmAddr, bytes: u64, page_bytes: u32, pages: u64) -> Result<Self> {
        let needed = Self::bytes_for(page_bytes, pages);
        let is_aligned = page_bytes > 0 && page_bytes.is_multiple_of(64) && at.offset().is_multiple_of(64);
        if bytes < needed || !is_aligned {
            return Err(Error::RangeTooSmall { at, bytes, what: "an area of pages", needed });
        }
        memory.clear_for_direct_writes(at.plus(table_bytes(pages)), u64::from(page_bytes) * pages)?;
        Ok(Self { memory: memory.clone(), at, page_bytes, pages, newer: HashMap::new() })
    }

    /// Bytes of a page.
    #[must_use]
    pub const fn page_bytes(&self) -> u32 {
        self.page_bytes
    }

    /// Pages, with page 0.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    fn place(&self, page: u64) -> PmAddr {
        self.at.plus(table_bytes(self.pages) + page * u64::from(self.page_bytes))
    }

    /// Where a page is, as a reader that goes around this node needs it.
    #[must_use]
    pub fn address(&self, page: u64) -> PmAddr {
        self.place(page)
    }

    /// Writes a page, not yet settled. Returns its checksum.
    ///
    /// # Errors
    /// A device that failed.
    pub fn write(&mut self, page: u64, bytes: &[u8]) -> Result<u32> {
        debug_assert!(page < self.pages && to_u64(bytes.len()) == u64::from(self.page_bytes));
        self.memory.write_directly(self.place(page), bytes)?;
        Ok(crc32c::crc32c(bytes))
    }

    /// Reads a page, whatever its checksum.
    ///
    /// # Errors
    /// A device that failed.
    pub fn read(&self, page: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; to_usize(self.page_bytes)];
        self.memory.read_directly(self.place(page), &mut bytes)?;
        Ok(bytes)
    }

    /// Whether the page has the checksum.
    ///
    /// # Errors
    /// A device that failed.
    pub fn verifies(&self, page: u64, crc: u32) -> Result<bool> {
        Ok(crc32c::crc32c(&self.read(page)?) == crc)
    }

    /// Remembers the checksum of a page that a record made count.
    pub fn note(&mut self, page: u64, crc: u32) {
        self.newer.insert(page, crc);
    }

    /// The checksum of a page, if it ever counted.
    #[must_use]
    pub fn checksum(&self, page: u64) -> Option<u32> {
        let in_table = || {
            let word = self.memory.load(self.at.plus(page * 8));
            (word & KNOWN != 0).then_some(low_u32(word))
        };
        self.newer.get(&page).copied().or_else(in_table)
    }

    /// Puts the checksums of `pages` into the table and flushes them. The caller fences before it trims the log.
    pub fn save(&mut self, pages: impl Iterator<Item = (u64, u32)>) {
        for (page, crc) in pages.filter(|(page, _)| *page < self.pages) {
            let at = self.at.plus(page * 8);
            self.memory.store(at, KNOWN | u64::from(crc));
            // With the caller's fence, before the log's entry with the same checksum is given up.
            self.memory.flush(at, 8);
            if self.newer.get(&page) == Some(&crc) {
                self.newer.remove(&page);
            }
        }
    }

    /// The pages that were written are on the device; in domains without one the caller's fence does that.
    ///
    /// # Errors
    /// A device that failed.
    pub fn settle(&self) -> Result<()> {
        Ok(self.memory.settle()?)
    }
}
