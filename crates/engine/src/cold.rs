//! Leaves that are read from their pages when they are first used.
//!
//! An open reads the page table, which says between which keys each image is. A leaf that no record of the logs
//! changes stays *cold*: it has its keys and its image, and no rows. The first thread that looks for a row in it reads
//! the image. So the time of an open does not grow with the rows, and a damaged page is named by the first look at it.
//!
//! A cold leaf has no row that changed, so no round writes it: its image counts until it is read. The exception is a
//! tree that was dropped. Rounds leave its images alone while a snapshot may still look at a cold leaf of it. All other
//! transactions that do so meet a conflict.

use std::sync::Arc;

use lodestone_pages::{Found, Image, PageRow, Reader};
use lodestone_txn::{RowWord, Tick, Writer};

use crate::error::Result;
use crate::leaf::Span;
use crate::slot::Slot;

/// Where the rows of cold leaves are.
#[derive(Clone, Debug)]
pub struct Source {
    reader: Reader,
    /// No tick above it was reserved in earlier lives.
    limit: Tick,
}

impl Source {
    pub fn new(reader: Reader, limit: Tick) -> Self {
        Self { reader, limit }
    }

    /// Reads the image of a leaf of `tree` with keys from `low` to before `high`.
    ///
    /// # Errors
    /// `Error::Damaged` names the page.
    pub fn read(&self, image: &Image, tree: u32, low: &[u8], high: Option<&[u8]>) -> Result<Found> {
        let found = self.reader.read(image)?;
        let senseless = |finding: &str| Err(self.reader.senseless(image, finding).into());
        if (found.tree, &found.low[..]) != (tree, low) {
            return senseless("its content is of another leaf than its head says");
        }
        let mut before = None;
        for PageRow { key, tick, .. } in found.rows() {
            if key < low || high.is_some_and(|high| key >= high) {
                return senseless(&format!("the row `{}` is not between the keys of its leaf", key.escape_ascii()));
            }
            if before.is_some_and(|before| key <= before) {
                return senseless(&format!("the row `{}` is not after the one before it", key.escape_ascii()));
            }
            if tick > self.limit {
                return senseless(&format!("the row `{}` has a tick that was never reserved", key.escape_ascii()));
            }
            before = Some(key);
        }
        Ok(found)
    }

    /// The rows of a leaf, as they were when the life that began at `base` began.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn slots(&self, image: &Image, tree: u32, span: &Span, base: Tick) -> Result<Vec<Arc<Slot>>> {
        let found = self.read(image, tree, &span.low, span.high.as_deref())?;
        let word = RowWord::new(base, Writer::default(), false);
        Ok(found.rows().map(|row| Slot::new(row.key.into(), word, row.payload.into())).collect())
    }
}
