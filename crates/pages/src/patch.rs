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
//!
//! Of a page with long rows only the lines are read that the work needs: the keys, the heads of the cells, and the
//! lines of which a part is written.

use std::ops::Range;

use lodestone_pmem::{LINE_BYTES, PmAddr, planted};
use lodestone_txn::Tick;
use lodestone_width::{exact_u32, to_u64, to_usize};

use crate::cell::{CELL_HEAD_BYTES, CellPlace};
use crate::error::Result;
use crate::image::{Image, PageRow, cells};
use crate::layout::{LINE, PAGE_HEAD_BYTES};
use crate::reader::Reader;
use crate::share::Work;
use crate::tail::{self, TailWord};

/// Whether [`Batch::patch`](crate::Batch::patch) may write a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowWrite {
    /// It may.
    Allowed,
    /// It may not: a crash could tear the row, and no record has all of it. A row that is equal needs no write.
    Refused,
    /// It need not: the image is known to have this version. The row is not looked at.
    Needless,
}

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
        leaf: (u32, &[u8]),
        rows: impl Iterator<Item = (PageRow<'r>, RowWrite)>,
        floor: Tick,
    ) -> Result<Patch> {
        let memory = self.reader.heap.memory().clone();
        let &[(_, at)] = &image.pages[..] else { return Ok(Patch::OtherImage) };
        if memory.direct_unit() != LINE_BYTES {
            return Ok(Patch::OtherImage);
        }
        let bytes = std::mem::take(&mut self.page);
        let mut sheet = Sheet { reader: &self.reader, at, bytes, is_read: Vec::new() };
        let changes = Changes::of(&mut sheet, image, leaf, self.number, rows, floor);
        self.page = sheet.bytes;
        // A page that is damaged is replaced.
        let Some(mut changes) = changes.unwrap_or(None) else { return Ok(Patch::OtherImage) };
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
        self.added.extend(changes.word);
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

/// Rows at least so long are looked at alone, each in a block of the medium or several.
const LONG_BYTES: usize = 256;

/// A page of which some lines were read.
struct Sheet<'w> {
    reader: &'w Reader,
    at: PmAddr,
    bytes: Vec<u8>,
    /// By line.
    is_read: Vec<bool>,
}

impl Sheet<'_> {
    /// The page ends here, as far as it has content.
    fn end_at(&mut self, end: usize) {
        self.bytes.resize(end, 0);
        self.is_read.resize(end.div_ceil(LINE), false);
    }

    /// Reads the lines of these bytes, as far as they were not read.
    fn need(&mut self, bytes: Range<usize>) -> Result<()> {
        let mut lines = bytes.start / LINE..bytes.end.div_ceil(LINE);
        while let Some(first) = lines.find(|line| !self.is_read[*line]) {
            let missing = 1 + lines.clone().take_while(|line| !self.is_read[*line]).count();
            let end = ((first + missing) * LINE).min(self.bytes.len());
            self.reader.fetch(self.at.plus(to_u64(first * LINE)), &mut self.bytes[first * LINE..end])?;
            self.is_read[first..first + missing].fill(true);
        }
        Ok(())
    }

    /// Reads the lines at both ends of these bytes: all others will be written whole.
    fn need_ends(&mut self, bytes: &Range<usize>) -> Result<()> {
        self.need(bytes.start..bytes.start + 1)?;
        self.need(bytes.end - 1..bytes.end)
    }
}

/// A row of a page.
struct Row<'k> {
    number: u32,
    key: &'k [u8],
    /// Its cell in the page.
    cell: Range<usize>,
}

/// The changes of a page.
#[derive(Debug, Default)]
struct Changes {
    /// By line, up to the last dirty one.
    dirty: Vec<bool>,
    done: Patched,
    /// Whether a row may not be written.
    is_refused: bool,
    /// The word that says which rows were added, and its value before.
    word: Option<(PmAddr, TailWord)>,
}

impl Changes {
    /// Makes the rows in `sheet`, the page of `image`, equal to `rows`, and adds those that it lacks. `None`: that
    /// cannot be done.
    fn of<'r>(
        sheet: &mut Sheet<'_>,
        image: &Image,
        (tree, low): (u32, &[u8]),
        batch: u64,
        rows: impl Iterator<Item = (PageRow<'r>, RowWrite)>,
        floor: Tick,
    ) -> Result<Option<Self>> {
        let (page, at) = image.pages[0];
        let head = sheet.reader.read_fixed(page, at, image.batch, &mut sheet.bytes)?;
        let (fixed_end, image_end) = (PAGE_HEAD_BYTES + to_usize(head.fixed), PAGE_HEAD_BYTES + to_usize(head.bytes));
        let fixed = sheet.bytes[PAGE_HEAD_BYTES..fixed_end].to_vec();
        let places = cells(&fixed, low).filter(|_| head.tree == tree);
        let Some(places) =
            places.filter(|places| places.last().map_or(fixed_end, |last| fixed_end + last.1.end) == image_end)
        else {
            return Ok(None);
        };
        let tail = sheet.reader.read_tail(page, at, (&head, false), &mut sheet.bytes)?;
        // Rows of a batch that was not published would count with this one.
        if tail.is_some_and(|tail| tail.unpublished(batch - 1).is_some()) {
            return Ok(None);
        }
        let rows_begin = tail.map_or(image_end, |tail| tail.rows_begin());
        let end = rows_begin + tail.map_or(0, |tail| tail.rows_bytes());
        let of_tail = sheet.bytes.get(rows_begin..end).map(<[u8]>::to_vec).unwrap_or_default();
        let first = CellPlace { page, batch: image.batch, row: head.rows };
        let Some(added) = tail::parse(first, &of_tail) else { return Ok(None) };
        let count = to_u64(places.len() + added.len());
        let mut present: Vec<_> = (0..)
            .zip(&places)
            .map(|(number, (key, cell))| Row { number, key, cell: fixed_end + cell.start..fixed_end + cell.end })
            .collect();
        present.extend(added.iter().map(|added| Row {
            number: added.number,
            key: &of_tail[added.key.clone()],
            cell: rows_begin + added.cell.start..rows_begin + added.cell.end,
        }));
        if !added.is_empty() {
            present.sort_unstable_by_key(|row| row.key);
        }
        sheet.end_at(end);
        if to_usize(count) * LONG_BYTES > end {
            sheet.need(0..end)?;
        }
        let mut changes = Self::default();
        let has_room = tail.is_some() && TailWord::has_number(batch);
        let page_bytes = if has_room { PAGE_HEAD_BYTES + sheet.reader.piece_bytes } else { end };
        let (mut present, mut number) = (present.into_iter().peekable(), head.rows + exact_u32(added.len()));
        for (row, write) in rows {
            let is_written = match present.next_if(|present| present.key <= row.key) {
                Some(found) if found.key == row.key && write == RowWrite::Needless => false,
                Some(found) if found.key == row.key => {
                    let place = CellPlace { row: found.number, ..first };
                    match changes.change(sheet, place, &found.cell, &row, floor)? {
                        Some(is_written) => is_written,
                        None => return Ok(None),
                    }
                }
                // A row of the image is gone.
                Some(_) => return Ok(None),
                None => {
                    let place = CellPlace { row: number, ..first };
                    if changes.done.added == 0 {
                        sheet.need_ends(&(end.saturating_sub(1)..end))?;
                    }
                    if !tail::add(&mut sheet.bytes, rows_begin, page_bytes, place, &row) {
                        return Ok(None);
                    }
                    number += 1;
                    changes.done.added += 1;
                    true
                }
            };
            changes.done.rows += u64::from(is_written);
            changes.is_refused |= is_written && write != RowWrite::Allowed;
        }
        if present.next().is_some() {
            return Ok(None);
        }
        if let Some(tail) = tail.filter(|_| changes.done.added > 0) {
            // The other word goes on to say which rows the newest checkpoint has.
            let number = 1 - tail.counting;
            let place = tail.word_place(number);
            let (word, after) = (at.plus(to_u64(place)), TailWord { batch, end: sheet.bytes.len() - rows_begin });
            sheet.need(place..place + 8)?;
            sheet.bytes[place..place + 8].copy_from_slice(&after.encode(word).to_le_bytes());
            changes.mark(place..place + 8);
            changes.mark(end..sheet.bytes.len());
            changes.word = Some((word, tail.words[number]));
        }
        Ok(Some(changes))
    }

    fn mark(&mut self, bytes: Range<usize>) {
        let lines = bytes.start / LINE..bytes.end.div_ceil(LINE);
        self.dirty.resize(self.dirty.len().max(lines.end), false);
        self.dirty[lines].fill(true);
    }

    /// Writes a row of the image into its cell. Returns whether it had another version. `None`: there is no room.
    fn change(
        &mut self,
        sheet: &mut Sheet<'_>,
        place: CellPlace,
        cell: &Range<usize>,
        row: &PageRow<'_>,
        floor: Tick,
    ) -> Result<Option<bool>> {
        sheet.need(cell.start..cell.start + CELL_HEAD_BYTES)?;
        // Of rows in cells all versions of a life have one tick, also after the row went to another cell. Other rows
        // with equal ticks are equal.
        let is_of_life = row.tick > floor || planted::active("pages-ticks-say-all");
        let has_tick = CellPlace::tick(&sheet.bytes[cell.clone()]) == row.tick;
        if is_of_life && has_tick {
            return Ok(Some(false));
        }
        if !is_of_life {
            sheet.need(cell.clone())?;
            let before = place.read(&sheet.bytes[cell.clone()]);
            if before.is_some_and(|(_, _, payload)| payload == row.payload) {
                return Ok(Some(false));
            }
        }
        let end = cell.start + CELL_HEAD_BYTES + row.payload.len();
        if end > cell.end {
            return Ok(None);
        }
        sheet.need_ends(&(cell.start..end))?;
        place.write(&mut sheet.bytes[cell.clone()], row);
        self.mark(cell.start..end);
        Ok(Some(true))
    }
}
