//! Reading images, by any threads.

use std::cell::RefCell;
use std::sync::Arc;

use lodestone_blocks::{Arena, Block};
use lodestone_heap::Heap;
use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_pmem::sync::thread_local;
use lodestone_pmem::{LINE_BYTES, PmAddr};
use lodestone_txn::{Tick, Writer};
use lodestone_width::{exact_u32, to_u64, to_usize};
use zerocopy::FromBytes;

use crate::buffer::{Buffer, PageBuffer};
use crate::cell::CellPlace;
use crate::error::Result;
use crate::image::{Found, Image, ImageBytes, find_cell};
use crate::layout::{PAGE_HEAD_BYTES, PAGE_MAGIC, PageHead};
use crate::pages::damage;
use crate::tail::{self, Tail, TailWord, WORDS_BYTES};

thread_local! {
    /// Bytes of a page that was read last: to allocate them and fill them with zeroes would cost as much as to read.
    static SCRATCH: RefCell<PageBuffer> = const { RefCell::new(PageBuffer::new()) };
}

/// Reads pages of other nodes for the calling thread, as I/O agents do (paper 4, section 2.1.3).
pub trait FarReads: std::fmt::Debug + Send + Sync {
    /// Reads `bytes.len()` bytes at `at`, which is a multiple of 8. Returns whether it did: if not, the caller reads
    /// them itself.
    fn read(&self, at: PmAddr, bytes: &mut [u8]) -> bool;

    /// Runs `work` as if on the node with this index. Returns whether it did: if not, the caller has a thread for that.
    /// For simulations, in which one thread is all of them.
    fn run_on(&self, _node: usize, _work: &mut dyn FnMut()) -> bool {
        false
    }

    /// Runs `work` as a thread on the node with this index that reads ahead for the calling one, not before `from_ns`.
    /// Then the calling thread waits for its end, and takes what it has read. Returns its time after that. `None`: the
    /// caller has a thread for that, and `work` did not run. For simulations.
    fn read_ahead(&self, _node: usize, _from_ns: u64, _work: &mut dyn FnMut()) -> Option<u64> {
        None
    }
}

/// A reader of images: see [`Pages::reader`](crate::Pages::reader).
#[derive(Clone, Debug)]
pub struct Reader {
    pub(crate) heap: Heap,
    pub(crate) piece_bytes: usize,
    /// The batch of the newest checkpoint: rows that later ones have added do not count.
    pub(crate) published: Arc<AtomicU64>,
    /// Whether new pages have tails.
    pub(crate) has_tails: bool,
    pub(crate) far: Option<Arc<dyn FarReads>>,
    /// Where the bytes that are read stay.
    pub(crate) arena: Option<Arena>,
    /// Whether pages in a file are read around the page cache of the system.
    pub(crate) is_around_cache: bool,
}

impl Reader {
    /// With reads through `far`, where memory is read by loads: not in the `block` domain, whose pages are in a file.
    #[must_use]
    pub fn through(self, far: Arc<dyn FarReads>) -> Self {
        let far = (self.heap.memory().direct_unit() == LINE_BYTES).then_some(far);
        Self { far, ..self }
    }

    /// Rows that are read stay in memory of `arena`: for a cache with a bound.
    #[must_use]
    pub fn into_arena(self, arena: Option<Arena>) -> Self {
        Self { arena, ..self }
    }

    /// Pages in a file are read around the page cache of the system: see
    /// [`read_around_cache`](lodestone_pmem::Memory::read_around_cache).
    #[must_use]
    pub fn around_cache(self, is_around_cache: bool) -> Self {
        Self { is_around_cache, ..self }
    }

    /// The memory of rows that are read. `None`: that of the allocator.
    #[must_use]
    pub fn arena(&self) -> Option<&Arena> {
        self.arena.as_ref()
    }

    /// The reads of other nodes.
    #[must_use]
    pub fn far(&self) -> Option<&dyn FarReads> {
        self.far.as_deref()
    }

    /// Reads bytes of a page.
    pub(crate) fn fetch(&self, at: PmAddr, bytes: &mut [u8]) -> Result<()> {
        match &self.far {
            Some(far) if far.read(at, bytes) => Ok(()),
            _ if self.is_around_cache => Ok(self.heap.memory().read_around_cache(at, bytes)?),
            _ => Ok(self.heap.memory().read_directly(at, bytes)?),
        }
    }

    /// Tells the processor that [`read_row`](Self::read_row) will read the head of the image, and the keys after it. A
    /// hint, where memory is read by loads.
    pub fn prefetch(&self, image: &Image) {
        /// A block of the medium.
        const BYTES: u64 = 256;
        let memory = self.heap.memory();
        if self.far.is_none() && memory.direct_unit() == LINE_BYTES {
            memory.prefetch(image.pages[0].1, BYTES);
        }
    }

    /// Reads an image. The caller makes sure that it counts until this returns, and that no thread changes a row in its
    /// page.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged) names the page, and a row whose content fails its checksum.
    pub fn read(&self, image: &Image) -> Result<Found> {
        let found = self.read_with_torn(image)?;
        if let Some(key) = found.torn().next() {
            return Err(self.torn(image, key));
        }
        Ok(found)
    }

    /// As [`read`](Self::read), but [some rows](Found::torn) may be torn. They are mended by their records in the logs.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged) names the page.
    pub fn read_with_torn(&self, image: &Image) -> Result<Found> {
        SCRATCH.with(|page_bytes| self.read_pages(image, &mut *page_bytes.borrow_mut()))
    }

    fn read_pages(&self, image: &Image, page_bytes: &mut impl Buffer) -> Result<Found> {
        let (mut several, mut fixed, mut tree, mut end) = (Vec::new(), 0, 0, 0);
        let (mut tail, mut has_unpublished) = (0..0, false);
        let (first, first_at) = image.pages[0];
        for (piece, &(page, at)) in (0..).zip(image.pages.iter()) {
            let head = self.read_page(page, at, image.batch, page_bytes)?;
            end = PAGE_HEAD_BYTES + to_usize(head.bytes);
            tree = if piece == 0 { head.tree } else { tree };
            let of = (head.first, head.piece, head.pieces, tree);
            if of != (first, piece, exact_u32(image.pages.len()), head.tree) {
                let finding = format!("page {page}: it is not piece {piece} of the image that begins at page {first}");
                return Err(self.damaged(at, &finding));
            }
            fixed += to_usize(head.fixed);
            if image.pages.len() > 1 {
                several.extend_from_slice(&page_bytes[PAGE_HEAD_BYTES..end]);
            } else if let Some(of_page) = self.read_tail(page, at, (&head, true), page_bytes)? {
                tail = of_page.rows_begin()..of_page.rows_begin() + of_page.rows_bytes();
                has_unpublished = of_page.unpublished(self.published()).is_some();
            }
        }
        let bytes = if image.pages.len() > 1 { &several[..] } else { &page_bytes[PAGE_HEAD_BYTES..end] };
        let bytes = ImageBytes { bytes, fixed, tail: &page_bytes[tail], has_unpublished };
        Found::decode(image.clone(), tree, &bytes, self.arena())
            .ok_or_else(|| self.damaged(first_at, "its checksums are right, but its rows are not whole"))
    }

    /// The batch of the newest checkpoint.
    pub(crate) fn published(&self) -> u64 {
        self.published.load(Ordering::Acquire)
    }

    /// Reads the tail of a page whose head was read: its words, unless these were read, and all rows that the later of
    /// them says. `None`: the page has none.
    pub(crate) fn read_tail(
        &self,
        page: u32,
        at: PmAddr,
        (head, has_words): (&PageHead, bool),
        bytes: &mut impl Buffer,
    ) -> Result<Option<Tail>> {
        if head.tail == 0 {
            return Ok(None);
        }
        let bad = |finding: &str| damage(&self.heap, "page", at, &format!("page {page}: {finding}"));
        let page_bytes = PAGE_HEAD_BYTES + self.piece_bytes;
        let begin = to_usize(head.tail);
        if begin < PAGE_HEAD_BYTES + to_usize(head.bytes)
            || begin + WORDS_BYTES > page_bytes
            || !begin.is_multiple_of(8)
        {
            return Err(bad("its tail is not after its rows"));
        }
        // A device has given all of the page.
        let is_memory = self.heap.memory().direct_unit() == LINE_BYTES;
        bytes.lengthen(begin + WORDS_BYTES);
        if is_memory && !has_words {
            self.fetch(at.plus(to_u64(begin)), &mut bytes[begin..begin + WORDS_BYTES])?;
        }
        let tail = Tail::read(at, begin, bytes, self.published()).map_err(bad)?;
        let rows_bytes = tail.words.iter().map(|word| word.end).max().unwrap_or(0);
        let end = tail.rows_begin() + rows_bytes;
        if end > page_bytes {
            return Err(bad("its tail ends after the page"));
        }
        bytes.lengthen(end);
        if rows_bytes > 0 && is_memory {
            self.fetch(at.plus(to_u64(tail.rows_begin())), &mut bytes[tail.rows_begin()..end])?;
        }
        Ok(Some(tail))
    }

    /// Ends the rows that a batch after the newest checkpoint has added to this image, which was read. Persistent on
    /// return, so that the next batch may have the number of that one. Returns whether there were some.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged) names the page; a medium that failed.
    pub fn end_unpublished(&self, image: &Image) -> Result<bool> {
        let &[(page, at)] = &image.pages[..] else { return Ok(false) };
        SCRATCH.with(|bytes| {
            let bytes = &mut *bytes.borrow_mut();
            let head = self.read_page(page, at, image.batch, bytes)?;
            let tail = self.read_tail(page, at, (&head, true), bytes)?;
            let Some((tail, number)) = tail.and_then(|tail| Some((tail, tail.unpublished(self.published())?))) else {
                return Ok(false);
            };
            let (memory, place) = (self.heap.memory(), tail.word_place(number));
            let at_word = at.plus(to_u64(place));
            let word = TailWord::default().encode(at_word);
            if memory.direct_unit() == LINE_BYTES {
                memory.store(at_word, word);
                // Here, since the fence of the next batch may be another thread's.
                memory.persist(at_word, 8);
            } else {
                // The pool was moved to a device. Its pages are written directly, never through the journal. Nothing
                // else of the page changes, so a crash tears nothing.
                bytes[place..place + 8].copy_from_slice(&word.to_le_bytes());
                memory.write_directly(at, &bytes[..PAGE_HEAD_BYTES + self.piece_bytes])?;
                memory.settle()?;
            }
            Ok(true)
        })
    }

    /// Reads one row of an image in one page, as far as possible without the others: the keys, and the cell of the row.
    /// The caller makes sure of the same as for [`read`](Self::read).
    ///
    /// The payload is in memory of `arena`; without one, in that of the allocator.
    ///
    /// `None`: the image has no such row, it takes several pages, or it cannot be read or is damaged. Then
    /// [`read`](Self::read) tells.
    #[must_use]
    pub fn read_row(
        &self,
        image: &Image,
        of: (u32, &[u8]),
        key: &[u8],
        arena: Option<&Arena>,
    ) -> Option<(Tick, Writer, Block)> {
        let block = |payload: &[u8]| Block::of_parts_in(arena, payload.len(), [payload]);
        SCRATCH.with(|bytes| self.read_row_with(image, of, key, &mut *bytes.borrow_mut(), block))
    }

    fn read_row_with(
        &self,
        image: &Image,
        (tree, low): (u32, &[u8]),
        key: &[u8],
        bytes: &mut impl Buffer,
        block: impl Fn(&[u8]) -> Block,
    ) -> Option<(Tick, Writer, Block)> {
        let &[(page, at)] = &image.pages[..] else { return None };
        let head = self.read_fixed(page, at, image.batch, bytes).ok()?;
        if (head.first, head.pieces, head.tree) != (page, 1, tree) {
            return None;
        }
        let (fixed, end) = (to_usize(head.fixed), PAGE_HEAD_BYTES + to_usize(head.bytes));
        let Some((row, cell)) = find_cell(&bytes[PAGE_HEAD_BYTES..PAGE_HEAD_BYTES + fixed], low, key) else {
            return self.read_added(image, &head, key, bytes, block);
        };
        let cell = PAGE_HEAD_BYTES + fixed + cell.start..PAGE_HEAD_BYTES + fixed + cell.end;
        if cell.end > end {
            return None;
        }
        if self.heap.memory().direct_unit() == LINE_BYTES {
            // Memory is read in words.
            let from = cell.start & !7;
            bytes.lengthen(cell.end);
            self.fetch(at.plus(to_u64(from)), &mut bytes[from..cell.end]).ok()?;
        }
        let (tick, writer, payload) = CellPlace { page, batch: image.batch, row }.read(&bytes[cell])?;
        Some((tick, writer, block(payload)))
    }

    /// One row that was added to an image, whose page without its cells is in `bytes`.
    fn read_added(
        &self,
        image: &Image,
        head: &PageHead,
        key: &[u8],
        bytes: &mut impl Buffer,
        block: impl Fn(&[u8]) -> Block,
    ) -> Option<(Tick, Writer, Block)> {
        let &[(page, at)] = &image.pages[..] else { return None };
        let tail = self.read_tail(page, at, (head, false), bytes).ok()??;
        let rows = &bytes[tail.rows_begin()..][..tail.rows_bytes()];
        let place = CellPlace { page, batch: image.batch, row: head.rows };
        let added = tail::parse(place, rows)?;
        let row = added.into_iter().find(|added| rows[added.key.clone()] == *key)?;
        let (tick, writer, payload) = CellPlace { row: row.number, ..place }.read(&rows[row.cell])?;
        Some((tick, writer, block(payload)))
    }

    /// Reads the page with this number, of this batch, into `bytes`: its head, then `head.bytes` bytes of an image,
    /// then the words of its tail. After those may be others, of a page that was read before.
    pub(crate) fn read_page(&self, page: u32, at: PmAddr, batch: u64, bytes: &mut impl Buffer) -> Result<PageHead> {
        self.read_part(page, at, batch, bytes, |head| {
            // The words are in the line after the image, or in the same one.
            let words = (to_usize(head.tail) + WORDS_BYTES).min(PAGE_HEAD_BYTES + self.piece_bytes);
            to_usize(head.bytes).max(words.saturating_sub(PAGE_HEAD_BYTES))
        })
    }

    /// As [`read_page`](Self::read_page), but of the image only the bytes are read that never change.
    pub(crate) fn read_fixed(&self, page: u32, at: PmAddr, batch: u64, bytes: &mut impl Buffer) -> Result<PageHead> {
        self.read_part(page, at, batch, bytes, |head| to_usize(head.fixed))
    }

    fn read_part(
        &self,
        page: u32,
        at: PmAddr,
        batch: u64,
        bytes: &mut impl Buffer,
        part: impl Fn(&PageHead) -> usize,
    ) -> Result<PageHead> {
        let bad = |finding: &str| Err(damage(&self.heap, "page", at, &format!("page {page}: {finding}")));
        let memory = self.heap.memory();
        // A call of the device for all of it, which costs hardly more than one for a part. In memory only what is
        // needed is read.
        let ahead = if memory.direct_unit() > LINE_BYTES { self.piece_bytes } else { 0 };
        bytes.lengthen(PAGE_HEAD_BYTES + ahead);
        self.fetch(at, &mut bytes[..PAGE_HEAD_BYTES + ahead])?;
        let head = PageHead::read_from_bytes(&bytes[..PAGE_HEAD_BYTES]).expect("so many bytes");
        if head.magic != PAGE_MAGIC || to_usize(head.bytes) > self.piece_bytes || head.fixed > head.bytes {
            return bad("its head is not that of a page");
        }
        let end = PAGE_HEAD_BYTES + part(&head);
        bytes.lengthen(end);
        if ahead == 0 {
            self.fetch(at.plus(to_u64(PAGE_HEAD_BYTES)), &mut bytes[PAGE_HEAD_BYTES..end])?;
        }
        if head.checksum(&bytes[PAGE_HEAD_BYTES..end]) != Some(head.crc) {
            return bad("its checksum fails");
        }
        if (head.page, head.batch) != (page, batch) {
            return bad("it is another page, or of another batch than the page table says");
        }
        Ok(head)
    }

    /// An error about a row of a page that is not whole, and that nothing mends.
    #[must_use]
    pub fn torn(&self, image: &Image, key: &[u8]) -> crate::Error {
        self.senseless(image, &format!("the checksum of the row `{}` fails", key.escape_ascii()))
    }

    /// An error about a page that verifies and makes no sense.
    #[must_use]
    pub fn senseless(&self, image: &Image, finding: &str) -> crate::Error {
        let (page, at) = image.pages[0];
        self.damaged(at, &format!("page {page}: {finding}"))
    }

    fn damaged(&self, at: PmAddr, finding: &str) -> crate::Error {
        damage(&self.heap, "page", at, finding)
    }
}
