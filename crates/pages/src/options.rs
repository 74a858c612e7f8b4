//! Sizes of pages.

use crate::error::{Error, Result};

/// Sizes of a page store. They are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageOptions {
    /// Bytes of a page, 8 KiB by default.
    pub page_bytes: u32,
    /// Pages that are taken from the heap at a time, 128 by default.
    pub extent_pages: u32,
    /// Logs whose positions a checkpoint has.
    pub writers: u16,
}

impl Default for PageOptions {
    fn default() -> Self {
        Self { page_bytes: 8 << 10, extent_pages: 128, writers: 128 }
    }
}

impl PageOptions {
    pub(crate) fn check(&self) -> Result<()> {
        let bad = |option, value: u32, rule| Err(Error::BadOption { option, value: value.into(), rule });
        if !self.page_bytes.is_power_of_two() || self.page_bytes < 256 || self.page_bytes > 1 << 20 {
            return bad("page_bytes", self.page_bytes, "it is a power of two from 256 to 1 MiB");
        }
        if self.extent_pages == 0 || self.extent_pages > 1 << 16 {
            return bad("extent_pages", self.extent_pages, "it is 1 to 65536");
        }
        if self.writers == 0 || self.writers > lodestone_txn::WRITERS_MAX {
            return bad("writers", self.writers.into(), "it is 1 to 1024");
        }
        Ok(())
    }
}
