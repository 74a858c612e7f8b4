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

use lodestone_pmem::{LINE_BYTES, planted};
use lodestone_txn::Tick;
use lodestone_width::{to_u64, to_usize};

use crate::error::Result;
use crate::image::{Found, Image, PageRow};
use crate::layout::PAGE_HEAD_BYTES;
use crate::share::Work;

/// The work of [`Batch::patch`](crate::Batch::patch).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Patched {
    /// Rows that were written.
    pub rows: u64,
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
    /// The image has other keys, no room for a row, several pages, or is damaged; or the medium has no lines (the
    /// `block` domain).
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
        self.page.truncate(PAGE_HEAD_BYTES + to_usize(head.bytes));
        let (bytes, fixed) = (&self.page[PAGE_HEAD_BYTES..], to_usize(head.fixed));
        let found = Found::decode(image.clone(), head.tree, bytes, fixed, None);
        let Some(found) = found.filter(|found| (found.tree, &found.low[..]) == (tree, low)) else {
            return Ok(Patch::OtherImage);
        };
        let count = self.page.len().div_ceil(LINE);
        self.page.resize(count * LINE, 0);
        let Some(Changed { dirty, rows, is_refused }) = change(&mut self.page, &found, rows, floor) else {
            return Ok(Patch::OtherImage);
        };
        let lines = dirty.iter().filter(|is_dirty| **is_dirty).count();
        if lines * 2 > count {
            return Ok(Patch::MostLines);
        }
        if is_refused {
            return Ok(Patch::Refused);
        }
        self.has_patched = true;
        let mut begin = 0;
        for run in dirty.chunk_by(|one, next| one == next) {
            let end = begin + run.len();
            if run[0] {
                // Persistent with the fence of the batch, before the logs end where its checkpoint says.
                memory.write_directly(at.plus(to_u64(begin * LINE)), &self.page[begin * LINE..end * LINE])?;
            }
            begin = end;
        }
        self.written_bytes.add(at.part(), to_u64(lines * LINE));
        Ok(Patch::Done(Patched { rows, lines: to_u64(lines) }))
    }
}

const LINE: usize = 64;
const _: () = assert!(to_u64(LINE) == LINE_BYTES);

/// The changes of a page.
struct Changed {
    /// By line.
    dirty: Vec<bool>,
    /// How many rows changed.
    rows: u64,
    /// Whether one of them may not be written.
    is_refused: bool,
}

/// Makes the rows of `found` in `page` equal to `rows`. `None`: that cannot be done.
fn change<'r>(
    page: &mut [u8],
    found: &Found,
    rows: impl Iterator<Item = (PageRow<'r>, bool)>,
    floor: Tick,
) -> Option<Changed> {
    let mut changed = Changed { dirty: vec![false; page.len() / LINE], rows: 0, is_refused: false };
    let mut entries = found.entries();
    for (row, may_write) in rows {
        let entry = entries.next().filter(|entry| entry.key == row.key)?;
        let (place, cell) = (found.place(entry.number), &found.bytes()[entry.cell.clone()]);
        let before = place.read(cell);
        // Of rows in cells all versions of a life have one tick, also after the row went to another cell. Other rows
        // with equal ticks are equal.
        let is_equal = |payload: &[u8]| payload == row.payload || planted::active("pages-ticks-say-all");
        let is_same =
            |(tick, _, payload): (Tick, _, &[u8])| (tick == row.tick || row.tick <= floor) && is_equal(payload);
        if before.is_some_and(is_same) {
            continue;
        }
        let begin = PAGE_HEAD_BYTES + found.begin() + entry.cell.start;
        let end = begin + cell.len();
        let room = end - begin - crate::cell::CELL_HEAD_BYTES;
        if row.payload.len() > room {
            return None;
        }
        place.write(&mut page[begin..end], &row);
        let end = end - (room - row.payload.len());
        changed.dirty[begin / LINE..end.div_ceil(LINE)].fill(true);
        changed.rows += 1;
        changed.is_refused |= !may_write;
    }
    entries.next().is_none().then_some(changed)
}
