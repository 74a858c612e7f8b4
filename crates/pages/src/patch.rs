//! Rows that are changed in place: only the dirty lines of a page are written (paper 4, section 2.1.4).
//!
//! The page is that of the newest checkpoint and perhaps of the one before. A crash may leave any of the lines as they
//! were, and others as they are to be. Then the cell of a row may be torn, which its checksum shows. So the caller
//! makes sure of four things:
//!
//! 1. The record of each version is persistent before it is written here. Else a crash could leave one row of a
//!    transaction alone.
//! 2. From the records after the cut of the newest checkpoint alone, the version can be made again: one of them has all
//!    of the row, and the later ones follow. So a torn row is mended by the log.
//! 3. The logs keep these records until the batch is published, whose fence makes the lines persistent.
//! 4. No process that was killed has stored lines of the page without a flush. A row that is equal is not written
//!    again, so this batch would not make it persistent.
//!
//! A version in a page may be later than the checkpoint. Records with its tick and earlier ones do nothing to it.
//!
//! Rows that the image lacks are added in its tail (`tail.rs`). They count only when the batch is published.

use std::ops::Range;

use lodestone_pmem::{LINE_BYTES, planted};
use lodestone_txn::Tick;
use lodestone_width::{to_u64, to_usize};

use crate::cell::CELL_HEAD_BYTES;
use crate::error::Result;
use crate::image::{Entry, Found, Image, ImageBytes, PageRow};
use crate::layout::PAGE_HEAD_BYTES;
use crate::share::Work;
use crate::tail::{self, TailWord};

/// The work of [`Batch::patch`](crate::Batch::patch).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Patched {
    /// Rows that were written, added ones as well.
    pub rows: u64,
    /// Rows that were added.
    pub added: u64,
    /// Lines of 64 bytes that were written.
    pub lines: u64,
}

/// The outcome of [`Batch::patch`](crate::Batch::patch). In all cases but the first one nothing was written, and a new
/// image is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Patch {
    /// The page has the rows.
    Done(Patched),
    /// It would have, but a row may not be written.
    Refused,
    /// Most lines change: a new image costs hardly more.
    MostLines,
    /// The image has a key that the rows lack, no room for a row, several pages, or is damaged; or the medium has no
    /// lines (the `block` domain).
    OtherImage,
}

impl Work {
    /// See [`Batch::patch`](crate::Batch::patch).
    pub fn patch<'r>(
        &mut self,
        image: &Image,
        (tree, low): (u32, &[u8]),
        rows: impl Iterator<Item = (PageRow<'r>, bool)>,
        floor: Tick,
    ) -> Result<Patch> {
        let (&[(page, at)], memory) = (&image.pages[..], self.reader.heap.memory().clone()) else {
            return Ok(Patch::OtherImage);
        };
        if memory.direct_unit() != LINE_BYTES {
            return Ok(Patch::OtherImage);
        }
        // A page that is damaged is replaced.
        let Ok(head) = self.reader.read_page(page, at, image.batch, &mut self.page) else {
            return Ok(Patch::OtherImage);
        };
        let Ok(tail) = self.reader.read_tail(page, at, &head, &mut self.page) else {
            return Ok(Patch::OtherImage);
        };
        let published = self.number - 1;
        // Rows of a batch that was not published would count with this one.
        if tail.is_some_and(|tail| tail.unpublished(published).is_some()) {
            return Ok(Patch::OtherImage);
        }
        let image_end = PAGE_HEAD_BYTES + to_usize(head.bytes);
        let rows_begin = tail.map_or(image_end, |tail| tail.rows_begin());
        let end = rows_begin + tail.map_or(0, |tail| tail.rows_bytes());
        self.page.truncate(end);
        let bytes = &self.page[PAGE_HEAD_BYTES..image_end];
        let bytes =
            ImageBytes { bytes, fixed: to_usize(head.fixed), tail: &self.page[rows_begin..], has_unpublished: false };
        let found = Found::decode(image.clone(), head.tree, &bytes, None);
        let Some(found) = found.filter(|found| (found.tree, &found.low[..]) == (tree, low)) else {
            return Ok(Patch::OtherImage);
        };
        let has_room = tail.is_some() && TailWord::has_number(self.number);
        let page_bytes = if has_room { PAGE_HEAD_BYTES + self.reader.piece_bytes } else { end };
        let mut changes = Changes { rows_begin, page_bytes, ..Changes::default() };
        if !changes.make(&mut self.page, &found, rows, floor) {
            return Ok(Patch::OtherImage);
        }
        let mut word = None;
        if let Some(tail) = tail.filter(|_| changes.done.added > 0) {
            // The other word goes on to say which rows the newest checkpoint has.
            let number = 1 - tail.counting;
            let (place, after) =
                (tail.word_place(number), TailWord { batch: self.number, end: self.page.len() - rows_begin });
            let at = at.plus(to_u64(place));
            self.page[place..place + 8].copy_from_slice(&after.encode(at).to_le_bytes());
            changes.mark(place..place + 8);
            changes.mark(end..self.page.len());
            word = Some((at, tail.words[number]));
        }
        let count = self.page.len().div_ceil(LINE);
        self.page.resize(count * LINE, 0);
        changes.dirty.resize(count, false);
        let lines = changes.dirty.iter().filter(|is_dirty| **is_dirty).count();
        if lines * 2 > count {
            return Ok(Patch::MostLines);
        }
        if changes.is_refused {
            return Ok(Patch::Refused);
        }
        self.has_patched = true;
        self.added.extend(word);
        let mut begin = 0;
        for run in changes.dirty.chunk_by(|one, next| one == next) {
            let end = begin + run.len();
            if run[0] {
                // Persistent with the fence of the batch, before the logs end where its checkpoint says.
                memory.write_directly(at.plus(to_u64(begin * LINE)), &self.page[begin * LINE..end * LINE])?;
            }
            begin = end;
        }
        self.written_bytes.add(at.part(), to_u64(lines * LINE));
        Ok(Patch::Done(Patched { lines: to_u64(lines), ..changes.done }))
    }
}

const LINE: usize = 64;
const _: () = assert!(to_u64(LINE) == LINE_BYTES);

/// The changes of a page.
#[derive(Debug, Default)]
struct Changes {
    /// Where the rows of the tail begin in the page.
    rows_begin: usize,
    /// Bytes that the page may have.
    page_bytes: usize,
    /// By line, up to the last dirty one.
    dirty: Vec<bool>,
    done: Patched,
    /// Whether a row may not be written.
    is_refused: bool,
}

impl Changes {
    fn mark(&mut self, bytes: Range<usize>) {
        let lines = bytes.start / LINE..bytes.end.div_ceil(LINE);
        self.dirty.resize(self.dirty.len().max(lines.end), false);
        self.dirty[lines].fill(true);
    }

    /// Makes the rows of `found` in `page` equal to `rows`, and adds those that it lacks. Returns whether that can be
    /// done.
    fn make<'r>(
        &mut self,
        page: &mut Vec<u8>,
        found: &Found,
        rows: impl Iterator<Item = (PageRow<'r>, bool)>,
        floor: Tick,
    ) -> bool {
        let (mut entries, mut number) = (found.entries().peekable(), found.row_count());
        for (row, may_write) in rows {
            let is_written = match entries.next_if(|entry| entry.key <= row.key) {
                Some(entry) if entry.key == row.key => self.change(page, found, &entry, &row, floor),
                // A row of the image is gone.
                Some(_) => return false,
                None => {
                    number += 1;
                    let is_added = tail::add(page, self.rows_begin, self.page_bytes, found.place(number - 1), &row);
                    self.done.added += 1;
                    is_added.then_some(true)
                }
            };
            match is_written {
                Some(true) => {
                    self.done.rows += 1;
                    self.is_refused |= !may_write;
                }
                Some(false) => {}
                None => return false,
            }
        }
        entries.next().is_none()
    }

    /// Writes a row of the image into its cell. Returns whether it had another version. `None`: there is no room.
    fn change(
        &mut self,
        page: &mut [u8],
        found: &Found,
        entry: &Entry<'_>,
        row: &PageRow<'_>,
        floor: Tick,
    ) -> Option<bool> {
        let (place, cell) = (found.place(entry.number), &found.bytes()[entry.cell.clone()]);
        let before = place.read(cell);
        // Of rows in cells all versions of a life have one tick, also after the row went to another cell. Other rows
        // with equal ticks are equal.
        let is_equal = |payload: &[u8]| payload == row.payload || planted::active("pages-ticks-say-all");
        let is_same =
            |(tick, _, payload): (Tick, _, &[u8])| (tick == row.tick || row.tick <= floor) && is_equal(payload);
        if before.is_some_and(is_same) {
            return Some(false);
        }
        let begin = found.in_page(entry.cell.start, self.rows_begin);
        let end = begin + cell.len();
        let room = cell.len() - CELL_HEAD_BYTES;
        if row.payload.len() > room {
            return None;
        }
        place.write(&mut page[begin..end], row);
        self.mark(begin..end - (room - row.payload.len()));
        Some(true)
    }
}
