//! Parts of a batch that threads write side by side, each on the node of its pages (paper 4, section 2.2.3: a writer of
//! pages for each node).
//!
//! Free pages are taken from the one stock, under a lock. All else a thread has for itself: buffers, and lists of the
//! pages that begin and end. The batch joins the lists before it is published. A thread makes persistent what it has
//! flushed by a fence of its own ([`Share::finish`]): the fence of the batch does nothing for that. So a batch by `n`
//! threads costs `n - 1` fences more, side by side.

use lodestone_pmem::sync::{Mutex, lock};
use lodestone_pmem::{Domain, LINE_BYTES, Memory, PmAddr, PmPtr, planted};
use lodestone_txn::Tick;
use lodestone_width::{exact_u32, to_u64, to_usize};
use zerocopy::{FromZeros, IntoBytes};

use crate::bytes::BytesByPart;
use crate::error::Result;
use crate::image::{Encoder, Image, PageRow};
use crate::layout::{ENTRY_BYTES, PAGE_HEAD_BYTES, PAGE_MAGIC, PageHead, Summary};
use crate::pages::Pages;
use crate::patch::{Patch, RowWrite};
use crate::reader::Reader;
use crate::tail::{Tail, TailWord, WORDS_BYTES};

/// Bytes that are written before they are made durable, in the block domain.
const GROUP_BYTES: usize = 8 << 20;

/// A page to write: its number and place, and that of its summary.
pub(crate) struct Sheet {
    pub page: u32,
    pub at: PmAddr,
    pub summary: PmAddr,
}

/// Gives so many pages in a part.
type Stock<'s> = dyn FnMut(usize, Option<u16>) -> Result<Vec<Sheet>> + 's;

/// The things that a thread writes of a batch.
#[derive(Debug)]
pub(crate) struct Work {
    pub number: u64,
    pub reader: Reader,
    /// Where images go.
    pub part: Option<u16>,
    pub begun: Vec<u32>,
    pub ended: Vec<u32>,
    encoder: Encoder,
    pub page: Vec<u8>,
    /// Bytes since the last wait.
    streamed: usize,
    /// Whether lines of older images were written.
    pub has_patched: bool,
    /// The words that say which rows were added to older images, each with its value before.
    pub added: Vec<(PmAddr, TailWord)>,
    pub written_bytes: BytesByPart,
}

impl Work {
    pub fn new(number: u64, reader: Reader) -> Self {
        Self {
            number,
            reader,
            part: None,
            begun: Vec::new(),
            ended: Vec::new(),
            encoder: Encoder::default(),
            page: Vec::new(),
            streamed: 0,
            has_patched: false,
            added: Vec::new(),
            written_bytes: BytesByPart::default(),
        }
    }

    fn memory(&self) -> Memory {
        self.reader.heap.memory().clone()
    }

    pub fn write<'r>(
        &mut self,
        stock: &mut Stock<'_>,
        tree: u32,
        low: &[u8],
        rows: impl Iterator<Item = PageRow<'r>>,
    ) -> Result<Image> {
        let mut encoder = std::mem::take(&mut self.encoder);
        let rows = encoder.encode(low, rows);
        let mut head = PageHead::new_zeroed();
        (head.magic, head.batch, head.tree) = (PAGE_MAGIC, self.number, tree);
        (head.low_bytes, head.rows) = (exact_u32(low.len()), rows);
        let outcome = self.write_pieces(stock, head, low, &mut encoder);
        self.encoder = encoder;
        outcome
    }

    fn write_pieces(
        &mut self,
        stock: &mut Stock<'_>,
        mut head: PageHead,
        low: &[u8],
        encoder: &mut Encoder,
    ) -> Result<Image> {
        let (memory, piece_bytes) = (self.memory(), self.reader.piece_bytes);
        // Rows are changed in place where the medium has lines.
        let has_lines = memory.direct_unit() == LINE_BYTES;
        let has_tail = self.reader.has_tails && has_lines;
        if has_lines {
            encoder.spread(piece_bytes);
        }
        let count = encoder.len().div_ceil(piece_bytes);
        let sheets = stock(count, self.part)?;
        self.begun.extend(sheets.iter().map(|sheet| sheet.page));
        (head.first, head.pieces) = (sheets[0].page, exact_u32(count));
        let (fixed, bytes) = (encoder.fixed, encoder.seal(sheets[0].page, self.number));
        for ((piece, sheet), bytes) in (0..).zip(&sheets).zip(bytes.chunks(piece_bytes)) {
            (head.page, head.piece) = (sheet.page, piece);
            let tail = match has_tail && count == 1 {
                true => Tail::place(PAGE_HEAD_BYTES + bytes.len(), PAGE_HEAD_BYTES + piece_bytes),
                false => None,
            };
            head.tail = tail.map_or(0, exact_u32);
            // Rows of an image in several pages are not changed in place.
            head.seal(bytes, if count == 1 { fixed } else { bytes.len() });
            self.page.clear();
            self.page.extend(head.as_bytes());
            self.page.extend(bytes);
            if let Some(begin) = tail {
                self.page.resize(begin, 0);
                for place in [begin, begin + WORDS_BYTES / 2] {
                    self.page.extend(TailWord::default().encode(sheet.at.plus(to_u64(place))).to_le_bytes());
                }
            }
            let unit = to_usize(memory.direct_unit()).min(piece_bytes + PAGE_HEAD_BYTES);
            self.page.resize(self.page.len().next_multiple_of(unit), 0);
            // Settled before the fence of the batch, or of the share.
            memory.write_directly(sheet.at, &self.page)?;
            // In the line of the word that makes the page begin. The flush of that word is another thread's where this
            // is a share, and starts the write-back of all of the line: the caches of the threads agree.
            memory.put(PmPtr::new(sheet.summary), &Summary::new(&head, low));
            self.streamed += self.page.len() + to_usize(ENTRY_BYTES);
            self.written_bytes.add(sheet.at.part(), to_u64(self.page.len()) + ENTRY_BYTES);
        }
        if self.streamed >= GROUP_BYTES && memory.domain() == Domain::Block {
            self.streamed = 0;
            // In parts, so that commits do not wait for all of it. And a commit group has room for the summaries.
            memory.settle()?;
            memory.fence();
            memory.durable()?;
        }
        Ok(Image { batch: self.number, pages: sheets.into_iter().map(|sheet| (sheet.page, sheet.at)).collect() })
    }

    pub fn end(&mut self, image: Image) {
        self.ended.extend(image.pages.iter().map(|(page, _)| *page));
    }

    /// Takes over the lists of another one.
    pub fn join(&mut self, mut other: Self) {
        self.begun.append(&mut other.begun);
        self.ended.append(&mut other.ended);
        self.has_patched |= other.has_patched;
        self.added.append(&mut other.added);
        self.written_bytes.join(&other.written_bytes);
    }

    /// Ends the rows that were added to images, as the batch is given up. Flushed, not fenced.
    pub fn end_added(&mut self) {
        let memory = self.memory();
        for (word, before) in self.added.drain(..) {
            if !planted::active("pages-tail-given-up-counts") {
                memory.store(word, before.encode(word));
                // Before the fence of patches, which this batch has.
                memory.flush(word, 8);
                self.has_patched = true;
            }
        }
    }

    /// Fences rows that were changed in place, if there are some that no fence covers.
    pub fn fence_patches(&mut self) {
        if std::mem::take(&mut self.has_patched) {
            self.memory().fence();
        }
    }
}

/// The stock of pages, and what threads have written.
#[derive(Debug)]
pub(crate) struct Desk<'p> {
    pub pages: &'p mut Pages,
    pub done: Vec<Work>,
}

/// The shares of a batch: see [`Batch::side_by_side`](crate::Batch::side_by_side).
#[derive(Debug)]
pub struct Shares<'p> {
    pub(crate) desk: Mutex<Desk<'p>>,
    pub(crate) number: u64,
    pub(crate) reader: Reader,
}

impl<'p> Shares<'p> {
    /// A share for the calling thread, whose images go to this part of the pool as long as it has room.
    pub fn share(&self, part: Option<u16>) -> Share<'_, 'p> {
        let work = Work { part, ..Work::new(self.number, self.reader.clone()) };
        Share { shares: self, work: Some(work), is_fenced_later: false }
    }

    /// The shares that have ended.
    pub(crate) fn done(&self) -> Vec<Work> {
        std::mem::take(&mut lock(&self.desk).done)
    }
}

/// A part of a batch that one thread writes. Dropped without [`finish`](Self::finish)
/// or [`finish_later`](Self::finish_later), the batch must not be published.
#[derive(Debug)]
#[must_use = "a share is written before it is finished"]
pub struct Share<'s, 'p> {
    shares: &'s Shares<'p>,
    /// Taken when this is dropped.
    work: Option<Work>,
    /// Whether this thread publishes the batch.
    is_fenced_later: bool,
}

impl Share<'_, '_> {
    fn work(&mut self) -> &mut Work {
        self.work.as_mut().expect("until it is dropped")
    }

    /// As [`Batch::place`](crate::Batch::place).
    pub fn place(&mut self, part: Option<u16>) {
        self.work().part = part;
    }

    /// As [`Batch::write`](crate::Batch::write).
    ///
    /// # Errors
    /// A full pool; a medium that failed.
    pub fn write<'r>(&mut self, tree: u32, low: &[u8], rows: impl Iterator<Item = PageRow<'r>>) -> Result<Image> {
        let shares = self.shares;
        self.work().write(&mut |count, part| lock(&shares.desk).pages.take_sheets(count, part), tree, low, rows)
    }

    /// As [`Batch::end`](crate::Batch::end).
    pub fn end(&mut self, image: Image) {
        self.work().end(image);
    }

    /// As [`Batch::patch`](crate::Batch::patch).
    ///
    /// # Errors
    /// A medium that failed.
    pub fn patch<'r>(
        &mut self,
        image: &Image,
        leaf: (u32, &[u8]),
        rows: impl Iterator<Item = (PageRow<'r>, RowWrite)>,
        floor: Tick,
    ) -> Result<Patch> {
        self.work().patch(image, leaf, rows, floor)
    }

    /// Makes all of the share persistent, by one fence. The batch may be published then.
    ///
    /// # Errors
    /// A medium that failed.
    pub fn finish(mut self) -> Result<()> {
        let work = self.work();
        let memory = work.memory();
        memory.settle()?;
        // Images and rows in place, before the block that makes the batch count: its fence is another thread's.
        memory.fence();
        work.has_patched = false;
        Ok(())
    }

    /// Ends the share of the thread that publishes the batch, whose fence is for the share as well.
    pub fn finish_later(mut self) {
        self.is_fenced_later = true;
    }
}

impl Drop for Share<'_, '_> {
    fn drop(&mut self) {
        let Some(mut work) = self.work.take() else { return };
        if !self.is_fenced_later {
            // As when a batch is dropped.
            work.fence_patches();
        }
        lock(&self.shares.desk).done.push(work);
    }
}
