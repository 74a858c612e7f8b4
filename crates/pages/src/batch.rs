//! A batch: images that are written, images that end, and the one store after which all of that counts.
//!
//! 1. Images are written directly into free pages, and their summaries stored into the page table. No checkpoint
//!    that is kept has such a page.
//! 2. The page table says in which batch each page begins or ends. Neither counts yet.
//! 3. A fence.
//! 4. The checkpoint block with the number of the batch is written to the place of the older block, and fenced. Before
//!    that the batch has not happened, after it all of it has.
//!
//! So a batch costs two fences, those of the heap for each extent that it takes, and in the block domain one for each
//! `GROUP_BYTES`. A block that a crash tears leaves the other one.

use lodestone_pmem::{Domain, PmPtr, checked, planted};
use lodestone_width::{exact_u32, to_u64, to_usize};
use zerocopy::{FromZeros, IntoBytes};

use crate::checkpoint::Block;
use crate::error::Result;
use crate::image::{Encoder, Image, PageRow};
use crate::layout::{ENTRY_BYTES, PAGE_HEAD_BYTES, PAGE_MAGIC, PageHead, Summary};
use crate::pages::Pages;

/// Bytes that are written before they are made durable, in the block domain.
const GROUP_BYTES: usize = 8 << 20;

/// See the module. Dropped without [`publish`](Self::publish), it has not happened, but for rows that were changed
/// [in place](Self::patch).
#[derive(Debug)]
#[must_use = "a batch counts when it is published"]
pub struct Batch<'p> {
    pub(crate) pages: &'p mut Pages,
    number: u64,
    begun: Vec<u32>,
    ended: Vec<u32>,
    encoder: Encoder,
    pub(crate) page: Vec<u8>,
    /// Bytes since the last wait.
    streamed: usize,
    /// Whether lines of older images were written.
    pub(crate) has_patched: bool,
}

impl<'p> Batch<'p> {
    pub(crate) fn new(pages: &'p mut Pages) -> Self {
        let number = pages.published() + 1;
        Self {
            pages,
            number,
            begun: Vec::new(),
            ended: Vec::new(),
            encoder: Encoder::default(),
            page: Vec::new(),
            streamed: 0,
            has_patched: false,
        }
    }

    /// Writes the image of a leaf of `tree` whose first possible key is `low`. Not fenced.
    ///
    /// # Errors
    /// A full pool; a medium that failed.
    pub fn write<'r>(&mut self, tree: u32, low: &[u8], rows: impl Iterator<Item = PageRow<'r>>) -> Result<Image> {
        let mut encoder = std::mem::take(&mut self.encoder);
        let rows = encoder.encode(low, rows);
        let mut head = PageHead::new_zeroed();
        (head.magic, head.batch, head.tree) = (PAGE_MAGIC, self.number, tree);
        (head.low_bytes, head.rows) = (exact_u32(low.len()), rows);
        let outcome = self.write_pieces(head, low, &mut encoder);
        self.encoder = encoder;
        outcome
    }

    fn write_pieces(&mut self, mut head: PageHead, low: &[u8], encoder: &mut Encoder) -> Result<Image> {
        let piece_bytes = self.pages.places.piece_bytes();
        let count = encoder.len().div_ceil(piece_bytes);
        self.pages.find_free(count)?;
        let pages = self.pages.free.split_off(self.pages.free.len() - count);
        self.begun.extend(&pages);
        (head.first, head.pieces) = (pages[0], exact_u32(count));
        let (fixed, bytes) = (encoder.fixed, encoder.seal(pages[0], self.number));
        for ((piece, &page), bytes) in (0..).zip(&pages).zip(bytes.chunks(piece_bytes)) {
            (head.page, head.piece) = (page, piece);
            // Rows of an image in several pages are not changed in place.
            head.seal(bytes, if count == 1 { fixed } else { bytes.len() });
            self.page.clear();
            self.page.extend(head.as_bytes());
            self.page.extend(bytes);
            let unit = to_usize(self.pages.memory().direct_unit()).min(piece_bytes + PAGE_HEAD_BYTES);
            self.page.resize(self.page.len().next_multiple_of(unit), 0);
            // Settled before the fence of the batch.
            self.pages.memory().write_directly(self.pages.page(page), &self.page)?;
            // In the line of the word that makes the page begin, and flushed with it.
            self.pages.memory().put(PmPtr::new(self.pages.summary(page)), &Summary::new(&head, low));
            self.streamed += self.page.len() + to_usize(ENTRY_BYTES);
            self.pages.written_bytes += to_u64(self.page.len()) + ENTRY_BYTES;
        }
        if self.streamed >= GROUP_BYTES && self.pages.memory().domain() == Domain::Block {
            self.streamed = 0;
            // In parts, so that commits do not wait for all of it. And a commit group has room for the summaries.
            self.pages.memory().settle()?;
            self.pages.memory().fence();
            self.pages.memory().durable()?;
        }
        let pages = pages.into_iter().map(|page| (page, self.pages.page(page))).collect();
        Ok(Image { batch: self.number, pages })
    }

    /// Ends an image of an earlier batch.
    pub fn end(&mut self, image: Image) {
        self.ended.extend(image.pages.iter().map(|(page, _)| *page));
    }

    /// As [`publish`](Self::publish), with the positions of the newest checkpoint: all of its log records are needed
    /// further. For images of rows that no log has.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub fn publish_beside(self) -> Result<()> {
        let from = self.pages.newest().map_or_else(Vec::new, |(_, block)| block.from.clone());
        self.publish(from)
    }

    /// Makes the batch count. `from` has the position for each writer below which records are no longer needed. On
    /// return that is durable. Afterwards logs may be truncated up to [`Pages::from`].
    ///
    /// # Errors
    /// A medium that failed. Then the batch has happened or not.
    ///
    /// # Panics
    /// If `from` does not have a position for each writer of the store.
    pub fn publish(self, from: Vec<u64>) -> Result<()> {
        self.publish_then(from, |_| ())
    }

    /// As [`publish`](Self::publish). Calls `truncate` as soon as logs may be truncated: what they discard then is not
    /// written to the file with the block.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    ///
    /// # Panics
    /// As [`publish`](Self::publish).
    pub fn publish_then(mut self, from: Vec<u64>, truncate: impl FnOnce(&Pages)) -> Result<()> {
        let Self { pages, number, begun, ended, has_patched, .. } = &mut self;
        assert_eq!(from.len(), usize::from(pages.places.options.writers), "a position for each writer");
        let memory = pages.memory().clone();
        let place = pages.newest().map_or(0, |(place, _)| 1 - place);
        let (block, at) = (Block { batch: *number, from }, pages.places.blocks()[place]);
        let mut mark = |page: u32, word: usize| {
            let at = pages.words(page)[word];
            memory.store(at, checked::encode(at, *number));
            // The line, before the fence of the batch.
            memory.flush(at, 8);
            let span = &mut pages.spans[to_usize(page)];
            *if word == 0 { &mut span.born } else { &mut span.died } = *number;
        };
        if planted::active("pages-publish-one-by-one") {
            begun.iter().take(1).for_each(|page| mark(*page, 0));
            memory.settle()?;
            memory.fence();
            block.write(&memory, at)?;
        }
        begun.iter().for_each(|page| mark(*page, 0));
        ended.iter().for_each(|page| mark(*page, 1));
        if !planted::active("pages-direct-before-durable") {
            memory.settle()?;
        }
        if !planted::active("pages-publish-before-content") {
            // Pages and page table, before the block that makes them count.
            memory.fence();
        }
        block.write(&memory, at)?;
        let previous = std::mem::replace(&mut pages.block_point, memory.flushed_here());
        pages.blocks[place] = Some(block);
        begun.clear();
        *has_patched = false;
        truncate(pages);
        let ended = std::mem::replace(&mut pages.ended, std::mem::take(ended));
        // A repair may give up a journal that is damaged. It must not take the other block back too, which these pages
        // are not in: they will be written directly.
        pages.waiting.push_back((previous, ended));
        pages.reclaim_if_many()?;
        if planted::active("pages-old-freed-early") {
            let early = std::mem::take(&mut pages.ended);
            pages.free.extend(early);
        }
        Ok(())
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        // Nothing says yet that these pages are used.
        self.pages.free.append(&mut self.begun);
        if self.has_patched {
            // The next batch finds these rows as they are to be, and may be of another thread, whose fence does nothing
            // for what this one has flushed.
            self.pages.memory().fence();
        }
    }
}
