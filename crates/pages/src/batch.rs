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

use lodestone_pmem::sync::Mutex;
use lodestone_pmem::{checked, planted};
use lodestone_txn::Tick;
use lodestone_width::to_usize;

use crate::checkpoint::Block;
use crate::error::Result;
use crate::image::{Image, PageRow};
use crate::pages::Pages;
use crate::patch::{Patch, RowWrite};
use crate::share::{Desk, Shares, Work};

/// See the module. Dropped without [`publish`](Self::publish), it has not happened, but for rows that were changed
/// [in place](Self::patch).
#[derive(Debug)]
#[must_use = "a batch counts when it is published"]
pub struct Batch<'p> {
    pages: &'p mut Pages,
    number: u64,
    work: Work,
}

impl<'p> Batch<'p> {
    pub(crate) fn new(pages: &'p mut Pages) -> Self {
        let (number, reader) = (pages.published() + 1, pages.reader());
        Self { pages, number, work: Work::new(number, reader) }
    }

    /// Images are written in this part of the pool from now on, as long as it has room. `None`: where there is room,
    /// near this thread first. So it is at the beginning.
    pub fn place(&mut self, part: Option<u16>) {
        self.work.part = part;
    }

    /// Writes the image of a leaf of `tree` whose first possible key is `low`. Not fenced.
    ///
    /// # Errors
    /// A full pool; a medium that failed.
    pub fn write<'r>(&mut self, tree: u32, low: &[u8], rows: impl Iterator<Item = PageRow<'r>>) -> Result<Image> {
        let Self { pages, work, .. } = self;
        work.write(&mut |count, part| pages.take_sheets(count, part), tree, low, rows)
    }

    /// Ends an image of an earlier batch.
    pub fn end(&mut self, image: Image) {
        self.work.end(image);
    }

    /// Makes the rows of a published image equal to `rows`, which are in the order of their keys, in place. Flushed,
    /// not fenced. The changes may survive whether the batch is published or not: see the module `patch`.
    ///
    /// With each row it is said whether it may be written, or is known to be there. A version that is not later than
    /// `floor` counts as in the image if that has the same payload.
    ///
    /// ```
    /// # use lodestone_heap::{Heap, HeapOptions};
    /// # use lodestone_pages::{Error, PageOptions, Pages};
    /// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
    /// use lodestone_pages::{PageRow, Patch, RowWrite};
    /// use lodestone_txn::{Tick, Writer};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let heap = Heap::open(&Pool::create(folder.path().join("a.pool"), &options)?, &HeapOptions::default())?;
    /// # let mut action = heap.action();
    /// # let at = Pages::make(&heap, &mut action, &PageOptions { writers: 1, ..PageOptions::default() })?;
    /// # action.set(heap.root_word(0), at.to_raw());
    /// # action.commit()?;
    /// # let mut pages = Pages::open(&heap, at)?;
    /// let row = |tick, payload| PageRow { key: b"alice", tick: Tick(tick), writer: Writer::default(), payload };
    /// let mut batch = pages.batch();
    /// let image = batch.write(1, b"", [row(7, &[1; 900])].into_iter())?;
    /// batch.publish(vec![0])?;
    /// let mut batch = pages.batch();
    /// // Most lines would change, so a new image is due.
    /// let patch = batch.patch(&image, (1, b""), [(row(8, &[2; 900]), RowWrite::Allowed)].into_iter(), Tick(0))?;
    /// assert_eq!(patch, Patch::MostLines);
    /// let patch = batch.patch(&image, (1, b""), [(row(8, b"short"), RowWrite::Allowed)].into_iter(), Tick(0))?;
    /// let Patch::Done(patched) = patch else { panic!("{patch:?}") };
    /// assert_eq!((patched.rows, patched.lines <= 2), (1, true));
    /// batch.publish(vec![0])?;
    /// assert_eq!(pages.reader().read(&image)?.rows().next().unwrap().payload, b"short");
    /// # Ok::<(), Error>(())
    /// ```
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
        self.work.patch(image, leaf, rows, floor)
    }

    /// Lets `with` write parts of the batch side by side, each by a thread of its own. All of them belong to the batch
    /// afterwards, however `with` ends.
    ///
    /// ```
    /// # use lodestone_heap::{Heap, HeapOptions};
    /// # use lodestone_pages::{Error, PageOptions, PageRow, Pages};
    /// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
    /// # use lodestone_txn::{Tick, Writer};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let heap = Heap::open(&Pool::create(folder.path().join("a.pool"), &options)?, &HeapOptions::default())?;
    /// # let mut action = heap.action();
    /// # let at = Pages::make(&heap, &mut action, &PageOptions { writers: 1, ..PageOptions::default() })?;
    /// # action.set(heap.root_word(0), at.to_raw());
    /// # action.commit()?;
    /// # let mut pages = Pages::open(&heap, at)?;
    /// let mut batch = pages.batch();
    /// batch.side_by_side(|shares| {
    ///     std::thread::scope(|scope| {
    ///         let write = |tree| {
    ///             let row = PageRow { key: b"k", tick: Tick(1), writer: Writer::default(), payload: b"v" };
    ///             let mut share = shares.share(None);
    ///             share.write(tree, b"", std::iter::once(row)).and_then(|_| share.finish())
    ///         };
    ///         let threads = [1, 2].map(|tree| scope.spawn(move || write(tree)));
    ///         threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    ///     })
    /// })?;
    /// batch.publish(vec![0])?;
    /// assert_eq!(pages.listed()?.len(), 2);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn side_by_side<R>(&mut self, with: impl FnOnce(&Shares<'_>) -> R) -> R {
        let desk = Mutex::new(Desk { pages: self.pages, done: Vec::new() });
        let shares = Shares { desk, number: self.number, reader: self.work.reader.clone() };
        // Taken over also when `with` panics: pages that it has taken would be lost.
        let mut after = After { shares, work: &mut self.work };
        let outcome = with(&after.shares);
        after.take_over();
        outcome
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
        let Self { pages, number, work } = &mut self;
        let Work { begun, ended, added, has_patched, .. } = work;
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
        pages.note_published();
        begun.clear();
        added.clear();
        *has_patched = false;
        truncate(pages);
        let ended = std::mem::replace(&mut pages.ended, std::mem::take(ended));
        // A repair may give up a journal that is damaged. It must not take the other block back too, which these pages
        // are not in: they will be written directly.
        pages.waiting.push_back((previous, ended));
        pages.reclaim_if_many()?;
        if planted::active("pages-old-freed-early") {
            let early = std::mem::take(&mut pages.ended);
            pages.give(early);
        }
        Ok(())
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        // Nothing says yet that these pages are used.
        self.pages.give(std::mem::take(&mut self.work.begun));
        self.pages.expected = 0;
        self.pages.written_bytes.join(&self.work.written_bytes);
        // The next batch finds rows that were changed in place as they are to be, and may be of another thread, whose
        // fence does nothing for what this one has flushed. It has the number of this one, so rows that were added must
        // end.
        self.work.end_added();
        self.work.fence_patches();
    }
}

/// Takes the shares over when it is dropped.
struct After<'d, 'w> {
    shares: Shares<'d>,
    work: &'w mut Work,
}

impl After<'_, '_> {
    fn take_over(&mut self) {
        self.shares.done().into_iter().for_each(|share| self.work.join(share));
    }
}

impl Drop for After<'_, '_> {
    fn drop(&mut self) {
        self.take_over();
    }
}
