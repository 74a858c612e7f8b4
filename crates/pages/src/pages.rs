//! The page store: opening it, and the states of its pages.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use lodestone_heap::{Action, Heap};
use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_pmem::{DurablePoint, Memory, PmAddr, PmPtr, checked, planted, work};
use lodestone_txn::{Writer, copies};
use lodestone_width::{exact_u32, to_u64, to_usize};
use zerocopy::{FromZeros, IntoBytes};

use crate::batch::Batch;
use crate::bytes::BytesByPart;
use crate::checkpoint::Block;
use crate::error::{Error, Result};
use crate::free::FreePages;
use crate::image::{Found, Image, Listed};
use crate::layout::{
    BlockLine, DirectoryLine, ENTRY_BYTES, EXTENT_MAGIC, Entry, ExtentLine, HEAD_BYTES, MAGIC, PAGE_HEAD_BYTES,
    PAGE_MAGIC, PageHead, Places, SUMMARY_KEY_BYTES, Summary, VERSION, VERSION_WITHOUT_TAILS, head_lines, links,
};
use crate::options::PageOptions;
use crate::reader::Reader;
use crate::share::Sheet;

/// The batches in which a page began and ended; 0: it did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub born: u64,
    pub died: u64,
}

impl Span {
    /// Whether the page counts in the state that `batch` left.
    fn counts_at(self, batch: u64) -> bool {
        (1..=batch).contains(&self.born) && !self.ended_by(batch)
    }

    /// A page that is used again keeps its former end, which is not after its new beginning.
    fn ended_by(self, batch: u64) -> bool {
        self.died > self.born && self.died <= batch
    }
}

/// A page of an image, as the page table says.
struct Piece {
    page: u32,
    batch: u64,
    summary: Summary,
}

/// Figures about the pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageStats {
    /// Pages that exist.
    pub pages: u64,
    /// Those of them that can be written.
    pub pages_free: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Batches that were published since the store was made.
    pub batches: u64,
    /// Bytes of pages, and of lines of the page table for new ones, that were written since the store was opened.
    pub written_bytes: u64,
}

/// The pages of a database. One thread at a time changes them.
#[derive(Debug)]
pub struct Pages {
    pub(crate) heap: Heap,
    pub(crate) places: Places,
    pub(crate) line: DirectoryLine,
    pub(crate) extents: Vec<PmAddr>,
    /// By page.
    pub(crate) spans: Vec<Span>,
    /// Pages that no kept checkpoint has.
    pub(crate) free: FreePages,
    /// Pages that the newest checkpoint has no more, and the one before has.
    pub(crate) ended: Vec<u32>,
    /// Pages that no kept checkpoint has, but one that a repair would bring back which gives up the journal; oldest
    /// first. They are free when everything up to the point is in the file.
    pub(crate) waiting: VecDeque<(DurablePoint, Vec<u32>)>,
    /// By place.
    pub(crate) blocks: [Option<Block>; 2],
    /// The newest block is durable there, or was before. Another opening in this life of the pool may have written it.
    pub(crate) block_point: DurablePoint,
    damaged: Vec<PmAddr>,
    /// The batch of the newest checkpoint, for readers.
    pub(crate) published: Arc<AtomicU64>,
    /// Extents that the next batch needs beyond those that are there.
    pub(crate) expected: usize,
    pub(crate) written_bytes: BytesByPart,
    /// Pages that a kept checkpoint has, whose heads alone are right.
    pub(crate) summaries_damaged: Vec<u32>,
    random: RandomReads,
}

/// The extents that the kernel knows to be read at random.
#[derive(Debug, Default)]
struct RandomReads {
    /// The bytes of the last one, by part.
    last: BTreeMap<u16, Range<u64>>,
    /// How many runs of them there are.
    runs: usize,
}

impl Pages {
    /// Makes an empty store as part of `action`, which must also make the returned address reachable.
    ///
    /// # Errors
    /// [`Error::BadOption`]; those of the heap.
    pub fn make(heap: &Heap, action: &mut Action<'_>, options: &PageOptions) -> Result<PmAddr> {
        options.check()?;
        let places = Places { directory: PmAddr::NULL, options: *options };
        let directory = action.alloc_zeroed(places.directory_bytes())?;
        let (memory, places) = (heap.memory(), Places { directory, ..places });
        make_head(memory, directory, &DirectoryLine::new(options));
        for (place, batch) in places.blocks().into_iter().zip([1, 0]) {
            memory.write(place, &BlockLine::block(batch, &vec![0; usize::from(options.writers)]));
        }
        // Before the fence of the action that makes the directory reachable.
        memory.flush(directory, places.directory_bytes());
        Ok(directory)
    }

    /// Opens the store at `at`. Damaged copies are mended, and traces of a batch that was not published are erased,
    /// unless the pool is open read-only.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn open(heap: &Heap, at: PmAddr) -> Result<Self> {
        let damaged = |finding: &str| damage(heap, "directory of the pages", at, finding);
        let memory = heap.memory();
        if !at.offset().is_multiple_of(64) || !memory.contains(at, HEAD_BYTES) {
            return Err(damaged("its address leads nowhere"));
        }
        let intact = |line: &DirectoryLine| line.magic == MAGIC && line.crc == line.checksum();
        let line = copies::read(memory, head_lines(at), intact).map_err(damaged)?;
        if ![VERSION, VERSION_WITHOUT_TAILS].contains(&line.version) {
            let (path, what) = (heap.pool().path().to_owned(), "directory of the pages");
            return Err(
                lodestone_pmem::Error::OtherVersion { path, what, at, found: line.version, known: VERSION }.into()
            );
        }
        let places = line.options().map(|options| Places { directory: at, options });
        let Some(places) = places.filter(|places| memory.contains(at, places.directory_bytes())) else {
            return Err(damaged("its sizes are outside the limits"));
        };
        let mut pages = Self {
            heap: heap.clone(),
            places,
            line,
            extents: Vec::new(),
            spans: Vec::new(),
            free: FreePages::default(),
            ended: Vec::new(),
            waiting: VecDeque::new(),
            blocks: places.blocks().map(|place| Block::read(memory, place, places.options.writers)),
            block_point: memory.flushed_anywhere(),
            damaged: copies::damaged(memory, head_lines(at), &line),
            published: Arc::default(),
            expected: 0,
            written_bytes: BytesByPart::default(),
            summaries_damaged: Vec::new(),
            random: RandomReads::default(),
        };
        if pages.newest().is_none() {
            return Err(damage(heap, "checkpoint", places.blocks()[0], "neither of the two blocks is whole"));
        }
        pages.note_published();
        pages.read_extents()?;
        pages.read_spans()?;
        if !memory.is_read_only() {
            pages.heal();
        }
        // Another opening in this life of the pool may have ended some of them.
        let free = pages.free.take_all();
        pages.waiting.push_back((pages.block_point, free));
        pages.reclaim();
        Ok(pages)
    }

    pub(crate) fn memory(&self) -> &Memory {
        self.heap.memory()
    }

    pub(crate) fn damage(&self, what: &'static str, at: PmAddr, finding: &str) -> Error {
        damage(&self.heap, what, at, finding)
    }

    /// The place of the newest checkpoint, and the checkpoint.
    pub(crate) fn newest(&self) -> Option<(usize, &Block)> {
        let blocks = self.blocks.iter().enumerate();
        blocks.filter_map(|(place, block)| Some((place, block.as_ref()?))).max_by_key(|(_, block)| block.batch)
    }

    /// The number of the newest batch. Pages of later ones do not count.
    pub(crate) fn published(&self) -> u64 {
        self.newest().map_or(0, |(_, block)| block.batch)
    }

    /// Tells readers which checkpoint is the newest.
    pub(crate) fn note_published(&self) {
        self.published.store(self.published(), Ordering::Release);
    }

    /// The position from which the log of `writer` must be kept and read: that of the older checkpoint. So damage to
    /// the newer one loses nothing.
    #[must_use]
    pub fn from(&self, writer: Writer) -> u64 {
        let positions = self.blocks.iter().flatten().map(|block| block.from.get(writer.index()).copied().unwrap_or(0));
        positions.min().unwrap_or(0)
    }

    fn read_extents(&mut self) -> Result<()> {
        let memory = self.heap.memory().clone();
        let mut node = self.places.directory;
        loop {
            let next = self.read_link(node)?;
            if next.is_null() {
                return Ok(());
            }
            let is_place = next.offset().is_multiple_of(64) && memory.contains(next, self.places.extent_bytes());
            if is_place {
                self.expect_reads_of(next);
            }
            let bad = |finding: &str| Err(self.damage("extent of pages", next, finding));
            if !is_place {
                return bad("a link to it leads nowhere");
            }
            let intact = |line: &ExtentLine| line.magic == EXTENT_MAGIC && line.crc == line.checksum();
            let line = match copies::read(&memory, head_lines(next), intact) {
                Ok(line) => line,
                Err(finding) => return bad(finding),
            };
            if to_usize(line.number) != self.extents.len() {
                return bad(&format!("its number is {}, its place in the chain {}", line.number, self.extents.len()));
            }
            self.damaged.extend(copies::damaged(&memory, head_lines(next), &line));
            self.extents.push(next);
            node = next;
        }
    }

    /// Through the memory only the page table of the extent at `at` is read, and few bytes of the pages at a time.
    fn expect_reads_of(&mut self, at: PmAddr) {
        /// Extents are one run if they are not further apart.
        const GAP_MAX: u64 = 64 << 10;
        /// The kernel notes each run, and has room for some ten thousand of them in a process.
        const RUNS_MAX: usize = 1000;
        /// The chain of extents is read one by one. Mostly they are at even distances: tables of later ones are read
        /// meanwhile.
        const AHEAD: u64 = 8;
        let (memory, bytes) = (self.heap.memory(), self.places.extent_bytes());
        let table_bytes = HEAD_BYTES + self.places.table_bytes();
        let (mut begin, mut end) = (at.offset(), at.offset() + bytes);
        let last = self.random.last.get(&at.part()).cloned();
        if let Some(last) = &last {
            // In both directions: a distance below zero wraps.
            let later = begin.wrapping_add(begin.wrapping_sub(last.start).wrapping_mul(AHEAD));
            if later < memory.part_len(at.part()) {
                memory.read_ahead(PmAddr::new(at.part(), later), table_bytes);
            }
        }
        match last.filter(|last| begin <= last.end + GAP_MAX && last.start <= end + GAP_MAX) {
            Some(last) => (begin, end) = (begin.min(last.end), end.max(last.start)),
            None => self.random.runs += 1,
        }
        if self.random.runs <= RUNS_MAX {
            memory.expect_random_reads(PmAddr::new(at.part(), begin), end - begin);
            self.random.last.insert(at.part(), at.offset()..at.offset() + bytes);
        }
        memory.read_ahead(at, table_bytes);
    }

    /// The extent after `node`.
    fn read_link(&mut self, node: PmAddr) -> Result<PmAddr> {
        let places = links(node);
        match places.map(|place| checked::decode_addr(place, self.memory().load(place))) {
            [Some(first), Some(second)] if first == second => Ok(first),
            [Some(at), None] => {
                self.damaged.push(places[1]);
                Ok(at)
            }
            [None, Some(at)] => {
                self.damaged.push(places[0]);
                Ok(at)
            }
            [None, None] => Err(self.damage("link of pages", places[0], "both copies fail their checksum")),
            [Some(_), Some(_)] => Err(self.damage("link of pages", places[0], "the two copies differ")),
        }
    }

    fn read_spans(&mut self) -> Result<()> {
        let published = self.published();
        let count = to_u64(self.extents.len()) * u64::from(self.places.options.extent_pages);
        let Ok(count) = u32::try_from(count) else {
            return Err(self.damage("extent of pages", self.places.directory, "there are too many of them"));
        };
        let of_extent = |extent| self.spans_of(extent, published);
        let lists = work::each(work::threads(self.memory()), self.extents.len(), of_extent)?;
        self.spans.reserve(to_usize(count));
        for (page, span) in (0..).zip(lists.iter().flat_map(|(spans, _)| spans)) {
            self.spans.push(*span);
            if span.born == 0 || span.ended_by(published.saturating_sub(1)) {
                self.give([page]);
            } else if span.ended_by(published) {
                self.ended.push(page);
            }
        }
        for page in lists.iter().flat_map(|(_, damaged)| damaged) {
            self.damaged.push(self.summary(*page));
            self.summaries_damaged.push(*page);
        }
        Ok(())
    }

    /// The spans of the pages of an extent, and those of the pages that a kept checkpoint has whose summaries are
    /// damaged. A batch fences them before it counts, so no crash leaves one torn.
    fn spans_of(&self, extent: usize, published: u64) -> Result<(Vec<Span>, Vec<u32>)> {
        let (mut spans, mut damaged) = (Vec::with_capacity(to_usize(self.places.options.extent_pages)), Vec::new());
        for (page, entry) in self.entries(extent) {
            let span = self.span(page, &entry, published)?;
            let is_free = span.born == 0 || span.ended_by(published.saturating_sub(1));
            if !is_free && !entry.summary.is_of(page, span.born) {
                damaged.push(page);
            }
            spans.push(span);
        }
        Ok((spans, damaged))
    }

    /// The batches in which a page began and ended, without those after `published`.
    fn span(&self, page: u32, entry: &Entry, published: u64) -> Result<Span> {
        let [born, died] = self.words(page);
        let read = |at, word| {
            let word = checked::decode(at, word);
            word.ok_or_else(|| self.damage("entry of the page table", at, "its checksum fails"))
        };
        let mut span = Span { born: read(born, entry.born)?, died: read(died, entry.died)? };
        if planted::active("pages-head-decides") {
            // The head of a page says when it began, and not that it ended.
            span.died = 0;
        }
        if !planted::active("pages-unpublished-kept") {
            span.born = if span.born > published { 0 } else { span.born };
            span.died = if span.died > published { 0 } else { span.died };
        }
        Ok(span)
    }

    /// The entries of the pages of an extent, with the numbers of these.
    fn entries(&self, extent: usize) -> impl Iterator<Item = (u32, Entry)> + use<> {
        let pages = self.places.options.extent_pages;
        let mut entries = vec![Entry::new_zeroed(); to_usize(pages)];
        self.memory().read(self.places.words(self.extents[extent], 0)[0], entries.as_mut_bytes());
        (exact_u32(extent) * pages..).zip(entries)
    }

    fn place(&self, page: u32) -> (PmAddr, u32) {
        let pages = self.places.options.extent_pages;
        (self.extents[to_usize(page / pages)], page % pages)
    }

    /// The words of `page`: the batches in which it began and ended.
    pub(crate) fn words(&self, page: u32) -> [PmAddr; 2] {
        let (extent, index) = self.place(page);
        self.places.words(extent, index)
    }

    /// The summary of `page` in the page table.
    pub(crate) fn summary(&self, page: u32) -> PmAddr {
        let (extent, index) = self.place(page);
        self.places.summary(extent, index)
    }

    /// Takes `count` pages as [`take`](Self::take) does.
    pub(crate) fn take_sheets(&mut self, count: usize, part: Option<u16>) -> Result<Vec<Sheet>> {
        let pages = self.take(count, part)?;
        Ok(pages.into_iter().map(|page| Sheet { page, at: self.page(page), summary: self.summary(page) }).collect())
    }

    pub(crate) fn page(&self, page: u32) -> PmAddr {
        let (extent, index) = self.place(page);
        self.places.page(extent, index)
    }

    /// Frees the pages whose wait is over.
    pub(crate) fn reclaim(&mut self) {
        let is_over = |point| self.heap.memory().has_left_journal(point) || planted::active("pages-block-in-journal");
        let count = self.waiting.iter().take_while(|(point, _)| is_over(*point)).count();
        let over: Vec<u32> = self.waiting.drain(..count).flat_map(|(_, pages)| pages).collect();
        self.give(over);
    }

    /// Ends the wait of all pages.
    ///
    /// # Errors
    /// A medium that failed.
    pub(crate) fn reclaim_all(&mut self) -> Result<()> {
        if let Some((newest, _)) = self.waiting.back() {
            self.memory().leave_journal(*newest)?;
            self.reclaim();
        }
        Ok(())
    }

    /// Ends the wait of all pages if they are more than those in use. Else it ends with the next checkpoint of the pool
    /// that comes this far. Until then most of the log bytes in the journal are discarded.
    pub(crate) fn reclaim_if_many(&mut self) -> Result<()> {
        self.reclaim();
        let waiting = self.waiting.iter().map(|(_, pages)| pages.len()).sum::<usize>();
        let used = self.spans.len() - self.free.count() - waiting;
        if waiting > used.max(to_usize(self.places.options.extent_pages)) { self.reclaim_all() } else { Ok(()) }
    }

    /// Adds pages to those that can be written.
    pub(crate) fn give(&mut self, pages: impl IntoIterator<Item = u32>) {
        for page in pages {
            let part = self.place(page).0.part();
            self.free.give(part, page);
        }
    }

    /// The part for which pages are counted apart: none if there is only one, or no such one.
    pub(crate) fn wanted(&self, part: Option<u16>) -> Option<u16> {
        let parts = self.memory().part_count();
        part.filter(|part| parts > 1 && *part < parts)
    }

    /// How many pages are free for images in `part`; `None`: anywhere.
    pub(crate) fn free_for(&self, part: Option<u16>) -> usize {
        part.map_or_else(|| self.free.count(), |part| self.free.count_in(part))
    }

    /// Takes `count` free pages in `part`, or anywhere if that is full. Without a part: the nearest to this thread.
    ///
    /// # Errors
    /// A full pool; a medium that failed.
    pub(crate) fn take(&mut self, count: usize, part: Option<u16>) -> Result<Vec<u32>> {
        let part = self.wanted(part);
        if self.free_for(part) < count {
            self.reclaim();
        }
        while self.free_for(part) < count {
            match self.grow(part) {
                // The pool may be full.
                Err(_) if !self.waiting.is_empty() => self.reclaim_all()?,
                // Pages of another part are better than none.
                Err(error) if part.is_some() && error.is_full() => return self.take(count, None),
                outcome => outcome?,
            }
        }
        Ok(match part {
            Some(part) => self.free.take(count, &[part]),
            None => self.free.take(count, self.heap.parts_for(self.places.extent_bytes())),
        })
    }

    /// Takes extents from the heap, in `part` if there is one: as many as [`find_room`](Self::find_room) has found room
    /// for, so that the journal is left once for all of them.
    ///
    /// # Errors
    /// A full pool, if there is no room for any; a medium that failed.
    fn grow(&mut self, part: Option<u16>) -> Result<()> {
        let first = self.extents.len();
        for number in 0..std::mem::take(&mut self.expected).max(1) {
            match self.link_extent(part) {
                // The room was another's meanwhile. Those that are linked are pages all the same.
                Err(_) if number > 0 => break,
                outcome => outcome?,
            }
        }
        // A block may have been another object's in this life, whose end is not durable yet. A power cut, or a repair
        // that gives up the journal, would bring that object back.
        if !planted::active("pages-grow-over-live") {
            self.memory().leave_journal(self.memory().flushed_here())?;
        }
        // The last pages that are given are taken first: so images are written in the order of their places.
        (first..self.extents.len()).rev().try_for_each(|number| self.open_extent(number))
    }

    /// Makes an extent, and the links to it. Its pages cannot be written yet.
    fn link_extent(&mut self, part: Option<u16>) -> Result<()> {
        let memory = self.heap.memory();
        let mut action = self.heap.action();
        let bytes = self.places.extent_bytes();
        let at = match part {
            Some(part) => action.alloc_in(part, bytes)?,
            None => action.alloc(bytes)?,
        };
        make_head(memory, at, &ExtentLine::new(exact_u32(self.extents.len())));
        for index in 0..self.places.options.extent_pages {
            for word in self.places.words(at, index) {
                memory.store(word, checked::encode(word, 0));
            }
        }
        // Before the fence of the action that makes the extent reachable.
        memory.flush(at, HEAD_BYTES + u64::from(self.places.options.extent_pages) * ENTRY_BYTES);
        let node = self.extents.last().copied().unwrap_or(self.places.directory);
        for link in links(node) {
            action.set(link, checked::encode_addr(link, at));
        }
        action.commit()?;
        self.expect_reads_of(at);
        self.extents.push(at);
        let pages = self.spans.len() + to_usize(self.places.options.extent_pages);
        self.spans.resize(pages, Span::default());
        Ok(())
    }

    /// From here on the pages of the extent with this number can be written.
    fn open_extent(&mut self, number: usize) -> Result<()> {
        let (at, pages) = (self.extents[number], self.places.options.extent_pages);
        let bodies = self.places.page(at, 0);
        let bytes = at.plus(self.places.extent_bytes()).offset() - bodies.offset();
        self.memory().clear_for_direct_writes(bodies, bytes)?;
        let first = exact_u32(number) * pages;
        self.give((first..first + pages).rev());
        Ok(())
    }

    /// Begins a batch. Nothing of it counts before it is published.
    pub fn batch(&mut self) -> Batch<'_> {
        Batch::new(self)
    }

    /// Calls `visit` for each image that counts, by tree and first key.
    ///
    /// # Errors
    /// [`Error::Damaged`] names the page; errors of `visit`.
    pub fn images<E: From<Error>>(
        &self,
        visit: &mut dyn FnMut(Found) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.listed()?.iter().try_for_each(|listed| visit(self.reader().read(&listed.image)?))
    }

    /// The images that count, by tree and first key. Only the page table is read, and the heads of pages whose first
    /// possible key is too long for it.
    ///
    /// # Errors
    /// [`Error::Damaged`] names the page.
    pub fn listed(&self) -> Result<Vec<Listed>> {
        let published = self.published();
        let of_extent = |extent| self.listed_of(extent, published);
        let lists = work::each(work::threads(self.memory()), self.extents.len(), of_extent)?;
        let mut images = Vec::with_capacity(lists.iter().map(|(images, _)| images.len()).sum());
        let mut pieces = Vec::new();
        for (whole, of_several) in lists {
            images.extend(whole);
            pieces.extend(of_several);
        }
        pieces.sort_unstable_by_key(|piece| (piece.summary.first, piece.summary.piece));
        for pieces in pieces.chunk_by(|one, next| one.summary.first == next.summary.first) {
            images.push(self.list(pieces)?);
        }
        images.sort_unstable_by(|one, other| one.order.cmp(&other.order).then_with(|| one.low.cmp(&other.low)));
        Ok(images)
    }

    /// The images that count, each of one page of an extent, and the pages of the extent that are pieces of others.
    fn listed_of(&self, extent: usize, published: u64) -> Result<(Vec<Listed>, Vec<Piece>)> {
        let pages = to_usize(self.places.options.extent_pages);
        let spans = &self.spans[extent * pages..][..pages];
        let count = spans.iter().filter(|span| span.counts_at(published)).count();
        if count == 0 {
            return Ok((Vec::new(), Vec::new()));
        }
        let (mut images, mut pieces) = (Vec::with_capacity(count), Vec::new());
        let entries = self.entries(extent).zip(spans).filter(|(_, span)| span.counts_at(published));
        for ((page, Entry { summary, .. }), span) in entries {
            let summary = match summary.is_of(page, span.born) {
                true => summary,
                false => self.head(page, span.born).map(|(head, low)| Summary::new(&head, &low))?,
            };
            let piece = Piece { page, batch: span.born, summary };
            if (summary.piece, summary.pieces) == (0, 1) {
                images.push(self.list(&[piece])?);
            } else {
                pieces.push(piece);
            }
        }
        Ok((images, pieces))
    }

    /// The head of `page`, which the page table says to be of `batch`, and the first possible key as far as it is in
    /// the page. Both are verified.
    pub(crate) fn head(&self, page: u32, batch: u64) -> Result<(PageHead, Vec<u8>)> {
        let at = self.page(page);
        let bad = |finding: &str| Err(self.damage("page", at, &format!("page {page}: {finding}")));
        let head: PageHead = self.memory().get(PmPtr::new(at));
        if head.magic != PAGE_MAGIC || to_usize(head.bytes) > self.places.piece_bytes() {
            return bad("its head is not that of a page");
        }
        if (head.page, head.batch) != (page, batch) {
            return bad("it is another page, or of another batch than the page table says");
        }
        let mut low = vec![0; head.low().len()];
        if !low.is_empty() {
            self.memory().read(at.plus(to_u64(PAGE_HEAD_BYTES + head.low().start)), &mut low);
        }
        if head.head_crc != head.head_checksum(&low) {
            return bad("the checksum of its head fails");
        }
        if head.piece == 0 && !head.has_low() && (head.pieces == 1 || to_usize(head.low_bytes) <= SUMMARY_KEY_BYTES) {
            return bad("its head says more bytes of a key than the image has");
        }
        Ok((head, low))
    }

    /// The image of which these are all pieces, in order.
    fn list(&self, pieces: &[Piece]) -> Result<Listed> {
        let Piece { page, batch, summary: Summary { first, tree, rows, .. } } = pieces[0];
        let of_all = (first, exact_u32(pieces.len()), tree, batch);
        let is_piece = |(number, piece): (u32, &Piece)| {
            let Summary { first, pieces, tree, .. } = piece.summary;
            piece.summary.piece == number && (first, pieces, tree, piece.batch) == of_all
        };
        if page != first || !(0..).zip(pieces).all(is_piece) {
            let finding = format!("page {page}: pieces of the image at page {first} are missing, or of another one");
            return Err(self.damage("page", self.page(page), &finding));
        }
        let image = Image { batch, pages: pieces.iter().map(|piece| (piece.page, self.page(piece.page))).collect() };
        let low = match pieces[0].summary.low() {
            Some(low) => lodestone_blocks::Block::new(low),
            None => match self.head(page, batch)? {
                (head, low) if head.has_low() => lodestone_blocks::Block::new(&low),
                _ => lodestone_blocks::Block::new(&self.reader().read(&image)?.low),
            },
        };
        Ok(Listed { order: order(tree, &low), image, tree, low, rows })
    }

    /// A reader of images. It needs no share in the pages, which one thread at a time changes.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader {
            heap: self.heap.clone(),
            piece_bytes: self.places.piece_bytes(),
            published: self.published.clone(),
            has_tails: self.line.version != VERSION_WITHOUT_TAILS,
            far: None,
            arena: None,
            is_around_cache: false,
        }
    }

    /// Figures about the pages.
    #[must_use]
    pub fn stats(&self) -> PageStats {
        PageStats {
            pages: to_u64(self.spans.len()),
            pages_free: to_u64(self.free.count() + self.waiting.iter().map(|(_, pages)| pages.len()).sum::<usize>()),
            page_bytes: self.places.options.page_bytes.into(),
            batches: self.published().saturating_sub(1),
            written_bytes: self.written_bytes.sum(),
        }
    }

    /// Parts of the pool that pages may be in.
    #[must_use]
    pub fn part_count(&self) -> u16 {
        self.memory().part_count()
    }

    /// Figures about the pages in `part` of the pool.
    #[must_use]
    pub fn stats_in(&self, part: u16) -> PageStats {
        let extents = self.extents.iter().filter(|at| at.part() == part).count();
        let waiting = self.waiting.iter().flat_map(|(_, pages)| pages);
        let waiting = waiting.filter(|page| self.place(**page).0.part() == part).count();
        PageStats {
            pages: to_u64(extents) * u64::from(self.places.options.extent_pages),
            pages_free: to_u64(self.free.count_in(part) + waiting),
            written_bytes: self.written_bytes.of(part),
            ..self.stats()
        }
    }

    /// Places of copies that were not whole when the store was opened. An open for writing has mended them.
    #[must_use]
    pub fn copies_damaged(&self) -> &[PmAddr] {
        &self.damaged
    }

    /// Places of checkpoint blocks that are not whole. A crash while one was written leaves one so.
    #[must_use]
    pub fn blocks_damaged(&self) -> Vec<PmAddr> {
        let blocks = self.places.blocks().into_iter().zip(&self.blocks);
        blocks.filter(|(_, block)| block.is_none()).map(|(place, _)| place).collect()
    }

    /// The place of the newest checkpoint. For proofs that damage it.
    #[doc(hidden)]
    #[must_use]
    pub fn newest_checkpoint(&self) -> PmAddr {
        self.places.blocks()[self.newest().map_or(0, |(place, _)| place)]
    }

    /// Blocks of the heap that the pages own, with the bytes they keep there.
    #[must_use]
    pub fn heap_blocks(&self) -> Vec<(PmAddr, u64)> {
        let directory = (self.places.directory, self.places.directory_bytes());
        let extents = self.extents.iter().map(|at| (*at, self.places.extent_bytes()));
        std::iter::once(directory).chain(extents).collect()
    }
}

/// A number in the order of trees and first bytes of keys: most comparisons end with it, without a look at the bytes.
fn order(tree: u32, low: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&tree.to_be_bytes());
    let count = low.len().min(12);
    bytes[4..4 + count].copy_from_slice(&low[..count]);
    u128::from_be_bytes(bytes)
}

/// Writes both copies of a head line, and links that lead nowhere.
fn make_head<T: IntoBytes + zerocopy::Immutable>(memory: &Memory, at: PmAddr, line: &T) {
    for place in head_lines(at) {
        memory.put(PmPtr::new(place), line);
    }
    for link in links(at) {
        memory.store(link, checked::encode_addr(link, PmAddr::NULL));
    }
}

pub(crate) fn damage(heap: &Heap, what: &'static str, at: PmAddr, finding: &str) -> Error {
    Error::Damaged { path: heap.pool().path().to_owned(), what, at, finding: finding.into() }
}
