//! Leaves that are read from their pages when they are first used.
//!
//! An open reads the page table, which says between which keys each image is. A leaf that no record of the logs
//! changes stays *cold*: it has its keys and its image, and no rows. The first thread that looks for a row in it reads
//! the image. So the time of an open does not grow with the rows, and a damaged page is named by the first look at it.
//!
//! A database with a bound for its cache makes leaves cold again (`cache.rs`). The image of such a leaf has its rows in
//! the versions that were committed last, and the reader gives them back as they were: with tick and writer.
//!
//! With a bound for the cache, the first looks at single rows of a cold leaf read these rows alone
//! ([`Leaf::early_row`](crate::leaf::Leaf::early_row)): one row of a leaf may be used all the time, and the others of
//! its page would only take the room of others like it. One that is read again soon stays in DRAM while it is used. The
//! others are there as long as a transaction holds them. A third look at a row that is not there, each soon after the
//! one before it, loads the leaf. A row that was read early keeps its slot when the leaf is loaded, so a transaction
//! that holds it meets the changes of others.
//!
//! A cold leaf has no row that changed, so no round writes it: its image counts until it is read. The exception is a
//! tree that was dropped. Rounds leave its images alone while a snapshot may still look at a cold leaf of it. All other
//! transactions that do so meet a conflict.

use std::sync::Arc;

use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};

use lodestone_blocks::{Arena, Block};
use lodestone_pages::{FarReads, Found, Image, PageRow, Reader};
use lodestone_txn::{RowWord, SlotHeader, Tick, Writer};

use crate::dual::{Cells, is_dual};
use crate::error::{Error, Result};
use crate::leaf::Span;
use crate::slot::{Bytes, Slot};

/// Where the rows of cold leaves are.
#[derive(Clone, Debug)]
pub struct Source {
    reader: Reader,
    /// The rows of trees of addresses.
    pub cells: Option<Arc<Cells>>,
    /// No row of an image that counts has a tick above it.
    limit: Arc<AtomicU64>,
}

impl Source {
    /// `limit`: no tick above it was reserved in earlier lives.
    pub fn new(reader: Reader, cells: Option<Arc<Cells>>, limit: Tick) -> Self {
        Self { reader, cells, limit: Arc::new(AtomicU64::new(limit.0)) }
    }

    /// The reads of pages on other nodes.
    pub fn far(&self) -> Option<&dyn FarReads> {
        self.reader.far()
    }

    /// Where the rows that are read stay, if the cache has a bound.
    pub fn arena(&self) -> Option<&Arena> {
        self.reader.arena()
    }

    /// A row with this tick may be read from an image from now on.
    pub fn note(&self, tick: Tick) {
        if tick.0 > self.limit.load(Ordering::Relaxed) {
            self.limit.fetch_max(tick.0, Ordering::SeqCst);
        }
    }

    /// Reads the image of a leaf of `tree` with keys from `low` to before `high`.
    ///
    /// # Errors
    /// `Error::Damaged` names the page.
    pub fn read(&self, image: &Image, tree: u32, low: &[u8], high: Option<&[u8]>) -> Result<Found> {
        let found = self.read_with_torn(image, tree, low, high)?;
        if let Some(key) = found.torn().next() {
            return Err(self.torn(image, key));
        }
        Ok(found)
    }

    /// An error about a row of an image that is torn, and that no record mends.
    pub fn torn(&self, image: &Image, key: &[u8]) -> Error {
        self.reader.torn(image, key).into()
    }

    /// As [`read`](Self::read), but some rows may be torn.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_with_torn(&self, image: &Image, tree: u32, low: &[u8], high: Option<&[u8]>) -> Result<Found> {
        let found = self.reader.read_with_torn(image)?;
        let senseless = |finding: &str| Err(self.reader.senseless(image, finding).into());
        if (found.tree, &found.low[..]) != (tree, low) {
            return senseless("its content is of another leaf than its head says");
        }
        let limit = Tick(self.limit.load(Ordering::SeqCst));
        let mut before = None;
        for key in found.keys() {
            if key < low || high.is_some_and(|high| key >= high) {
                return senseless(&format!("the row `{}` is not between the keys of its leaf", key.escape_ascii()));
            }
            if before.is_some_and(|before| key <= before) {
                return senseless(&format!("the row `{}` is not after the one before it", key.escape_ascii()));
            }
            before = Some(key);
        }
        if let Some(PageRow { key, .. }) = found.rows().find(|row| row.tick > limit) {
            return senseless(&format!("the row `{}` has a tick that was never reserved", key.escape_ascii()));
        }
        Ok(found)
    }

    /// Ends rows that a round added to an image before a crash, if there are some: they do not count. Persistent on
    /// return.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn end_unpublished(&self, image: &Image) -> Result<()> {
        self.reader.end_unpublished(image)?;
        Ok(())
    }

    /// A hint: [`slot`](Self::slot) will look at the image.
    pub fn prefetch(&self, image: &Image) {
        self.reader.prefetch(image);
    }

    /// One row of the leaf of `tree` with the keys of `span`, in the life that began at `base`. `stays`: it is to stay
    /// in the cache. `None`: there is none, or all of the leaf must be read.
    pub fn slot(
        &self,
        image: &Image,
        (tree, span): (u32, &Span),
        key: &[u8],
        base: Tick,
        stays: bool,
    ) -> Option<Arc<Slot>> {
        if is_dual(tree) {
            // A slot that is read while a commit writes it is not whole: so all rows of a leaf are read first.
            return None;
        }
        // The memory of a row that goes at once is soon used again: that of the allocator is in the processor's cache.
        let arena = self.arena().filter(|_| stays);
        let (tick, writer, payload) = self.reader.read_row(image, (tree, &span.low), key, arena)?;
        let is_known = tick.0 <= self.limit.load(Ordering::SeqCst);
        let key = || Block::of_parts_in(arena, key.len(), [key]);
        is_known.then(|| Slot::new(key().into(), word_of(tick, writer, base), payload.into()))
    }

    /// A copy of a row whose version `word` the caller has locked. The page that it came from need not stay in DRAM for
    /// it.
    pub fn copy(&self, slot: &Slot, word: RowWord) -> Arc<Slot> {
        let block = |bytes: &[u8]| Block::of_parts_in(self.arena(), bytes.len(), [bytes]);
        Slot::new(block(slot.key()).into(), word, block(&slot.payload()).into())
    }

    /// The rows of a leaf, in the life that began at `base`. Those that it did not write have its first version.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn slots(&self, image: &Image, tree: u32, span: &Span, base: Tick) -> Result<Vec<Arc<Slot>>> {
        let found = self.read(image, tree, &span.low, span.high.as_deref())?;
        if is_dual(tree) {
            let slot = |row: PageRow<'_>| {
                let (header, payload) = self.row_in_cell(tree, row.key, row.payload)?;
                Ok(Slot::new(row.key.into(), word_of(header.tick, header.writer, base), payload))
            };
            return found.rows().map(slot).collect();
        }
        // Two blocks of memory for all rows: to allocate two for each would cost more than the read. The keys are not
        // in the block of the payloads, which is free when no row has its payload there.
        let bytes = found.rows().map(|row| row.key.len()).sum();
        let keys = Block::of_parts_in(self.arena(), bytes, found.rows().map(|row| row.key));
        let mut begin = 0;
        let slot = |(row, payload): (PageRow<'_>, _)| {
            let key = begin..begin + row.key.len();
            begin = key.end;
            let word = word_of(row.tick, row.writer, base);
            Slot::new(Bytes::part(&keys, key), word, Bytes::part(found.bytes(), payload))
        };
        Ok(found.rows_with_places().map(slot).collect())
    }
}

impl Source {
    /// The row of a tree of addresses, of which a page or a record has `reference`.
    ///
    /// # Errors
    /// `Error::Damaged` names the cell.
    pub fn row_in_cell(&self, tree: u32, key: &[u8], reference: &[u8]) -> Result<(SlotHeader, Bytes)> {
        match &self.cells {
            Some(cells) => cells.load(tree, key, reference),
            None => Err(Error::OlderDatabase),
        }
    }
}

/// The word of a row of an image in the life that began at `base`.
fn word_of(tick: Tick, writer: Writer, base: Tick) -> RowWord {
    if tick > base { RowWord::new(tick, writer, false) } else { RowWord::new(base, Writer::default(), false) }
}
