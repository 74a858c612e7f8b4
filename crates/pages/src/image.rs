//! An image: the rows of a leaf as bytes, in one page or several.
//!
//! ```text
//! low key bytes u32, rows u32, low key
//! for each row: key bytes u32, room for its payload u32, key
//! for each row: a cell (`cell.rs`): tick u64, payload bytes u32, writer u16, checksum u32, payload, up to the room
//! ```
//!
//! The cells of an image in one page may change. All before them is *fixed*: the checksum of the page is of that part.
//! An image in several pages has no part that changes. Rows may be added to an image in one page, in its tail
//! (`tail.rs`).

use std::ops::{Deref, Range};

use lodestone_blocks::{Arena, Block};
use lodestone_pmem::PmAddr;
use lodestone_txn::{Tick, Writer};
use lodestone_width::{exact_u32, to_usize};

use crate::cell::{CELL_HEAD_BYTES, CellPlace};
use crate::layout::{LINE, PAGE_HEAD_BYTES};
use crate::tail::{self, Added};

/// Bytes of a row before its key.
const KEY_HEAD_BYTES: usize = 8;
/// Bytes of a row beside key and payload.
pub(crate) const ROW_BYTES: usize = KEY_HEAD_BYTES + CELL_HEAD_BYTES;

/// The place of an image: the pages that it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The batch that wrote it.
    pub(crate) batch: u64,
    /// The number and the place of each page, by piece.
    pub(crate) pages: ImagePages,
}

/// Mostly one page. There is an image in DRAM for each leaf, loaded or not: this takes no more than a small vector, and
/// the option of an image takes no more than the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ImagePages {
    One([(u32, PmAddr); 1]),
    Other(Box<[(u32, PmAddr)]>),
}

impl Deref for ImagePages {
    type Target = [(u32, PmAddr)];

    fn deref(&self) -> &[(u32, PmAddr)] {
        match self {
            Self::One(page) => page,
            Self::Other(pages) => pages,
        }
    }
}

impl FromIterator<(u32, PmAddr)> for ImagePages {
    fn from_iter<I: IntoIterator<Item = (u32, PmAddr)>>(pages: I) -> Self {
        let mut pages = pages.into_iter();
        match (pages.next(), pages.next()) {
            (Some(page), None) => Self::One([page]),
            (first, second) => Self::Other(first.into_iter().chain(second).chain(pages).collect()),
        }
    }
}

impl Image {
    /// Number of pages.
    #[must_use]
    pub fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// The part of the pool that each page is in.
    pub fn parts(&self) -> impl Iterator<Item = u16> {
        self.pages.iter().map(|(_, at)| at.part())
    }
}

/// A row of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRow<'p> {
    /// Its key.
    pub key: &'p [u8],
    /// The tick of its version.
    pub tick: Tick,
    /// The writer of its version. It means nothing in later lives.
    pub writer: Writer,
    /// The rest of the row.
    pub payload: &'p [u8],
}

/// An image of which only what the page table says was read.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Of two images with different ones, that with the smaller one comes first.
    pub(crate) order: u128,
    /// Its pages.
    pub image: Image,
    /// The tree.
    pub tree: u32,
    /// The first key that could be in the leaf.
    pub low: Block,
    /// How many rows it had when it was written.
    pub rows: u32,
}

/// An image that was read.
#[derive(Debug)]
pub struct Found {
    /// Its pages.
    pub image: Image,
    /// The tree.
    pub tree: u32,
    /// The first key that could be in the leaf.
    pub low: Vec<u8>,
    rows: u32,
    /// Bytes of the keys with what is before each.
    keys_bytes: usize,
    /// Where the rows of the tail begin among the bytes.
    tail_begin: usize,
    /// The rows of the tail, in the order of their keys.
    added: Vec<Added>,
    /// Whether a batch that was not published has added rows.
    has_unpublished: bool,
    /// The numbers of the rows whose cells are not whole.
    torn: Vec<u32>,
    /// The keys, then the cells, then the rows of the tail.
    bytes: Block,
}

/// The bytes of an image, as the pages have them.
pub(crate) struct ImageBytes<'p> {
    /// Those that a batch wrote.
    pub bytes: &'p [u8],
    /// How many of them never change.
    pub fixed: usize,
    /// The rows of the tail that count.
    pub tail: &'p [u8],
    /// Whether a batch that was not published has added others.
    pub has_unpublished: bool,
}

/// A row of an image that was read: its number, its key, and its cell among the bytes.
pub(crate) struct Entry<'f> {
    pub number: u32,
    pub key: &'f [u8],
    pub cell: Range<usize>,
}

impl Found {
    /// The keys with what is before each, then the cells, as they are in the image, then the rows of its tail.
    #[must_use]
    pub fn bytes(&self) -> &Block {
        &self.bytes
    }

    /// Whether a batch that was not published has added rows to it. They are not among its rows. Before another batch
    /// is published, [`Reader::end_unpublished`](crate::Reader::end_unpublished) must end them.
    #[must_use]
    pub fn has_unpublished(&self) -> bool {
        self.has_unpublished
    }

    /// The keys of all rows, also of torn ones, in their order.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.entries().map(|entry| entry.key)
    }

    /// The keys of the rows whose content a crash has torn, or damage has changed, in their order.
    pub fn torn(&self) -> impl Iterator<Item = &[u8]> {
        self.entries().filter(|entry| self.torn.binary_search(&entry.number).is_ok()).map(|entry| entry.key)
    }

    /// As [`rows`](Self::rows), with the place of each payload in [`bytes`](Self::bytes).
    pub fn rows_with_places(&self) -> impl Iterator<Item = (PageRow<'_>, Range<usize>)> {
        let whole = self.entries().filter(|entry| self.torn.binary_search(&entry.number).is_err());
        whole.map(|Entry { key, cell, .. }| {
            let (tick, writer, payload) = CellPlace::content(&self.bytes[cell.clone()]);
            let begin = cell.start + CELL_HEAD_BYTES;
            (PageRow { key, tick, writer, payload }, begin..begin + payload.len())
        })
    }

    /// The rows that are whole, in the order of their keys.
    pub fn rows(&self) -> impl Iterator<Item = PageRow<'_>> {
        self.rows_with_places().map(|(row, _)| row)
    }

    /// All rows, torn ones as well, in the order of their keys.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let (mut rest, mut begin) = (&self.bytes[..self.keys_bytes], self.keys_bytes);
        let written = (0..self.rows).map_while(move |number| {
            let (key, room) = take_key(&mut rest)?;
            let cell = begin..begin + CELL_HEAD_BYTES + room;
            begin = cell.end;
            Some(Entry { number, key, cell })
        });
        let of_tail = |range: &Range<usize>| self.tail_begin + range.start..self.tail_begin + range.end;
        let added = self.added.iter().map(move |Added { number, key, cell }| Entry {
            number: *number,
            key: &self.bytes[of_tail(key)],
            cell: of_tail(cell),
        });
        let (mut written, mut added) = (written.peekable(), added.peekable());
        std::iter::from_fn(move || match (written.peek(), added.peek()) {
            (Some(one), Some(other)) if other.key < one.key => added.next(),
            (Some(_), _) => written.next(),
            (None, _) => added.next(),
        })
    }

    /// The place of a row, for the checksum of its cell.
    pub(crate) fn place(&self, row: u32) -> CellPlace {
        CellPlace { page: self.image.pages[0].0, batch: self.image.batch, row }
    }

    /// `None` when the bytes are no image, or another part of it is fixed than the heads of its pages say.
    pub(crate) fn decode(image: Image, tree: u32, of: &ImageBytes<'_>, arena: Option<&Arena>) -> Option<Self> {
        let ImageBytes { bytes, fixed, tail, has_unpublished } = *of;
        let mut rest = bytes;
        let (low_bytes, rows) = (take_u32(&mut rest)?, take_u32(&mut rest)?);
        let low = rest.split_off(..to_usize(low_bytes))?.to_vec();
        let (mut after, mut cells_bytes) = (rest, 0_usize);
        for _ in 0..rows {
            cells_bytes += CELL_HEAD_BYTES + take_key(&mut after)?.1;
        }
        let keys_bytes = rest.len() - after.len();
        let is_fixed = if image.pages.len() == 1 { bytes.len() - after.len() } else { bytes.len() };
        if after.len() != cells_bytes || fixed != is_fixed {
            return None;
        }
        let first = CellPlace { page: image.pages[0].0, batch: image.batch, row: rows };
        let mut added = tail::parse(first, tail)?;
        added.sort_unstable_by(|one, other| tail[one.key.clone()].cmp(&tail[other.key.clone()]));
        let tail_begin = rest.len();
        let bytes = Block::of_parts_in(arena, rest.len() + tail.len(), [rest, tail]);
        let mut found =
            Self { image, tree, low, rows, keys_bytes, tail_begin, added, has_unpublished, torn: Vec::new(), bytes };
        let is_torn = |entry: &Entry<'_>| found.place(entry.number).read(&found.bytes[entry.cell.clone()]).is_none();
        found.torn = found.entries().filter(is_torn).map(|entry| entry.number).collect();
        found.torn.sort_unstable();
        Some(found)
    }
}

/// The key of each row in the fixed part of an image whose first possible key is `low`, and its cell among all cells.
pub(crate) fn cells<'p>(fixed: &'p [u8], low: &[u8]) -> Option<Vec<(&'p [u8], Range<usize>)>> {
    let mut rest = fixed;
    let (low_bytes, rows) = (take_u32(&mut rest)?, take_u32(&mut rest)?);
    if rest.split_off(..to_usize(low_bytes))? != low {
        return None;
    }
    let (mut cells, mut begin) = (Vec::new(), 0);
    for _ in 0..rows {
        let (key, room) = take_key(&mut rest)?;
        let cell = begin..begin + CELL_HEAD_BYTES + room;
        begin = cell.end;
        cells.push((key, cell));
    }
    rest.is_empty().then_some(cells)
}

/// The number of the row with `key`, and its cell among all cells, in the fixed part of an image whose first possible
/// key is `low`.
pub(crate) fn find_cell(fixed: &[u8], low: &[u8], key: &[u8]) -> Option<(u32, Range<usize>)> {
    let mut rest = fixed;
    let (low_bytes, rows) = (take_u32(&mut rest)?, take_u32(&mut rest)?);
    if rest.split_off(..to_usize(low_bytes))? != low {
        return None;
    }
    let mut begin = 0;
    for row in 0..rows {
        let (found, room) = take_key(&mut rest)?;
        let cell = begin..begin + CELL_HEAD_BYTES + room;
        if found >= key {
            return (found == key).then_some((row, cell));
        }
        begin = cell.end;
    }
    None
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    rest.split_off(..4)?.try_into().ok().map(u32::from_le_bytes)
}

/// The next key, and the room for the payload.
fn take_key<'p>(rest: &mut &'p [u8]) -> Option<(&'p [u8], usize)> {
    let (key, room) = (take_u32(rest)?, take_u32(rest)?);
    Some((rest.split_off(..to_usize(key))?, to_usize(room)))
}

/// Bytes that are skipped before cells are at most such a part of the cells, and a line.
const SKIPPED_PART: usize = 32;

/// How many bytes to skip before a cell of `bytes` bytes that would begin at `begin` in its page, so that it is in a
/// line less. 0: that does not help.
fn skipped_before(begin: usize, bytes: usize) -> usize {
    let is_shorter = bytes.div_ceil(LINE) < (begin % LINE + bytes).div_ceil(LINE);
    if is_shorter { begin.next_multiple_of(LINE) - begin } else { 0 }
}

/// The bytes of an image. They are kept from one image to the next.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    bytes: Vec<u8>,
    cells: Vec<u8>,
    rows: Vec<EncodedRow>,
    /// Bytes that are skipped before all cells.
    skipped: usize,
    /// Bytes before the cells.
    pub fixed: usize,
}

impl Encoder {
    /// Takes the rows in. Returns their number.
    pub fn encode<'r>(&mut self, low: &[u8], rows: impl Iterator<Item = PageRow<'r>>) -> u32 {
        self.bytes.clear();
        self.cells.clear();
        self.rows.clear();
        self.skipped = 0;
        self.bytes.extend(exact_u32(low.len()).to_le_bytes());
        self.bytes.extend([0; 4]);
        self.bytes.extend(low);
        for row in rows {
            self.bytes.extend(exact_u32(row.key.len()).to_le_bytes());
            let room_at = self.bytes.len();
            self.bytes.extend(exact_u32(row.payload.len()).to_le_bytes());
            self.bytes.extend(row.key);
            let begin = self.cells.len();
            self.cells.resize(begin + CELL_HEAD_BYTES + row.payload.len(), 0);
            CellPlace::fill(&mut self.cells[begin..], &row);
            self.rows.push(EncodedRow { room_at, cell: begin..self.cells.len(), skipped: 0 });
        }
        let count = exact_u32(self.rows.len());
        self.bytes[4..8].copy_from_slice(&count.to_le_bytes());
        self.fixed = self.bytes.len();
        count
    }

    /// Lets cells begin at lines where that saves one, for [a few bytes](SKIPPED_PART) in all, as long as the image
    /// ends in one page with room for `piece_bytes`: a row that is changed in place dirties a line less then. The bytes
    /// are room of the row before, so the first cell begins where the keys end.
    pub fn spread(&mut self, piece_bytes: usize) {
        let (mut end, mut before) = (PAGE_HEAD_BYTES + self.fixed, None);
        let mut left = piece_bytes.saturating_sub(self.len());
        for row in &mut self.rows {
            let bytes = row.cell.len();
            if let Some((room_at, room)) = before {
                let skipped = skipped_before(end, bytes);
                if skipped <= left && self.skipped + skipped <= LINE + row.cell.end / SKIPPED_PART {
                    row.skipped = skipped;
                    left -= skipped;
                    self.skipped += skipped;
                    self.bytes[room_at..room_at + 4].copy_from_slice(&exact_u32(room + skipped).to_le_bytes());
                }
            }
            end += row.skipped + bytes;
            before = Some((row.room_at, bytes - CELL_HEAD_BYTES));
        }
    }

    /// Bytes of the image.
    pub fn len(&self) -> usize {
        self.fixed + self.cells.len() + self.skipped
    }

    /// The bytes of the image that `batch` writes with `page` as its first one.
    pub fn seal(&mut self, page: u32, batch: u64) -> &[u8] {
        self.bytes.truncate(self.fixed);
        for (row, EncodedRow { cell, skipped, .. }) in (0..).zip(&self.rows) {
            let cell = &mut self.cells[cell.clone()];
            CellPlace { page, batch, row }.seal(cell);
            self.bytes.resize(self.bytes.len() + skipped, 0);
            self.bytes.extend_from_slice(cell);
        }
        &self.bytes
    }
}

/// A row of an [`Encoder`].
#[derive(Debug)]
struct EncodedRow {
    /// Where its room is among the bytes.
    room_at: usize,
    /// Its cell among the cells.
    cell: Range<usize>,
    /// How many bytes are skipped before its cell.
    skipped: usize,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(key: &[u8], bytes: usize) -> PageRow<'_> {
        PageRow { key, tick: Tick(1), writer: Writer::default(), payload: &PAYLOAD[..bytes] }
    }

    static PAYLOAD: [u8; 4096] = [7; 4096];
    const PIECE_BYTES: usize = 8192 - PAGE_HEAD_BYTES;

    /// The lines of the cells of these rows in their page, without and with skipped bytes, and how many are skipped.
    fn lines(payloads: &[usize], piece_bytes: usize) -> ([usize; 2], usize) {
        let mut encoder = Encoder::default();
        encoder.encode(b"low", payloads.iter().map(|bytes| row(b"key", *bytes)));
        let before = encoder.len();
        let mut count = |is_spread: bool| {
            if is_spread {
                encoder.spread(piece_bytes);
            }
            let (len, fixed) = (encoder.len(), encoder.fixed);
            let bytes = encoder.seal(1, 2);
            assert_eq!(bytes.len(), len);
            let cells = cells(&bytes[..fixed], b"low").expect("an image");
            let mut lines = 0;
            for ((number, payload), (_, cell)) in (0..).zip(payloads).zip(&cells) {
                let place = CellPlace { page: 1, batch: 2, row: number };
                let (.., found) = place.read(&bytes[fixed..][cell.clone()]).expect("a whole cell");
                assert_eq!(found, &PAYLOAD[..*payload]);
                let begin = PAGE_HEAD_BYTES + fixed + cell.start;
                lines += (begin % LINE + CELL_HEAD_BYTES + payload).div_ceil(LINE);
            }
            lines
        };
        let lines = [count(false), count(true)];
        (lines, encoder.len() - before)
    }

    #[test]
    fn cells_begin_at_lines_where_few_bytes_save_one() {
        // Cells of 125 bytes: once at a line, three bytes keep the next one there.
        let ([before, after], skipped) = lines(&[107; 50], PIECE_BYTES);
        assert!(before > 140 && after <= 101, "{before} and {after} lines");
        assert!(skipped <= 48 * 3 + LINE, "{skipped}");
        // A page that is full has nothing to skip.
        assert_eq!(lines(&[107; 50], LINE), ([before; 2], 0));
        // To begin each of these at a line would take a third more.
        let ([before, after], skipped) = lines(&[30; 100], PIECE_BYTES);
        assert!(after < before && skipped <= LINE + 48 * 100 / SKIPPED_PART, "{before}, {after}, {skipped}");
    }

    proptest! {
        #[test]
        fn rows_are_there_wherever_their_cells_begin(payloads in prop::collection::vec(0_usize..300, 0..40)) {
            let ([before, after], skipped) = lines(&payloads, PIECE_BYTES);
            prop_assert!(after <= before, "{} and {} lines", before, after);
            let cells: usize = payloads.iter().map(|bytes| CELL_HEAD_BYTES + bytes).sum();
            prop_assert!(skipped <= LINE + cells / SKIPPED_PART, "{} bytes of {}", skipped, cells);
            // With less room it skips less, and not more than there is.
            let natural = cells + payloads.len() * 11 + 11;
            prop_assert!(lines(&payloads, natural + skipped / 2).1 <= skipped / 2);
        }
    }
}
