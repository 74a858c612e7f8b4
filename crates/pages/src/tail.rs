//! The tail of a page: rows that are added to an image in place, after its cells.
//!
//! ```text
//! two words: where the rows end that count up to a batch u16 (times 8 bytes), the batch u32, checksum u16
//! for each row: key bytes u32, room for its payload u32, checksum u32, zero u32, key, a cell (`cell.rs`), up to a
//! multiple of 8
//! ```
//!
//! A batch that adds rows writes the word that the other one outlives: the older of the two. So one store says that the
//! rows are there, and a crash before the batch is published leaves the word that counts. The rows of a batch that was
//! not published are ignored, whole or not: the logs have them, and one of them may belong to another leaf after the
//! crash. Then the word must end before another batch gets its number: by an open, or by the batch itself where that is
//! given up.

use std::ops::Range;

use lodestone_pmem::{PmAddr, checked, planted};
use lodestone_width::{exact_u32, to_u64, to_usize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::cell::{CELL_HEAD_BYTES, CellPlace};
use crate::image::PageRow;

/// Bytes of the two words.
pub const WORDS_BYTES: usize = 16;
/// Ends are multiples of it.
const GRAIN: usize = 8;
/// Bytes that the ends of words can say.
const BYTES_MAX: usize = GRAIN * 0xFFFF;
/// Smallest tail that a page gets: that of a short row.
const BYTES_MIN: usize = WORDS_BYTES + 64;

/// The beginning of a row that was added.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct AddedHead {
    key_bytes: u32,
    room: u32,
    /// CRC-32C of page, batch and number of the row, then of the fields before this one, then of the key.
    crc: u32,
    zero: u32,
}

impl AddedHead {
    fn checksum(&self, place: CellPlace, key: &[u8]) -> u32 {
        let seed = crc32c::crc32c(place.page.as_bytes());
        let seed = crc32c::crc32c_append(seed, place.batch.as_bytes());
        let seed = crc32c::crc32c_append(seed, place.row.as_bytes());
        crc32c::crc32c_append(crc32c::crc32c_append(seed, &self.as_bytes()[..8]), key)
    }
}

/// A word of a tail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TailWord {
    /// The batch that wrote it; 0: none.
    pub batch: u64,
    /// Bytes of the rows up to there.
    pub end: usize,
}

impl TailWord {
    /// The word at `at`. `None`: it is damaged.
    pub fn decode(at: PmAddr, word: u64) -> Option<Self> {
        let payload = checked::decode(at, word)?;
        Some(Self { batch: payload & 0xFFFF_FFFF, end: to_usize(payload >> 32) * GRAIN })
    }

    /// The word for `at`.
    pub fn encode(self, at: PmAddr) -> u64 {
        checked::encode(at, (to_u64(self.end / GRAIN) << 32) | self.batch)
    }

    /// Whether words can say this batch.
    pub fn has_number(batch: u64) -> bool {
        batch <= u64::from(u32::MAX)
    }
}

/// The words of a tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Where the tail begins in the page.
    pub begin: usize,
    pub words: [TailWord; 2],
    /// The number of the word that counts.
    pub counting: usize,
}

impl Tail {
    /// Where the tail of a page of `page_bytes` begins whose image ends at `end`, if there is room for one.
    pub fn place(end: usize, page_bytes: usize) -> Option<usize> {
        let begin = end.next_multiple_of(GRAIN);
        (begin + BYTES_MIN <= page_bytes).then_some(begin)
    }

    /// The words in `bytes`, those of the page at `at`, of which one counts at the checkpoint of batch `published`.
    ///
    /// # Errors
    /// The finding.
    pub fn read(at: PmAddr, begin: usize, bytes: &[u8], published: u64) -> Result<Self, &'static str> {
        let mut words = [TailWord::default(); 2];
        for (number, word) in words.iter_mut().enumerate() {
            let place = begin + number * 8;
            let raw = bytes[place..place + 8].try_into().map(u64::from_le_bytes).expect("eight bytes");
            *word = TailWord::decode(at.plus(to_u64(place)), raw).ok_or("a word of its tail fails its checksum")?;
        }
        // A writer in another process may have gone on since this one has read the checkpoint.
        let counting = Self::counting(words, published).ok_or("both words of its tail are of later batches")?;
        Ok(Self { begin, words, counting })
    }

    /// Bytes of the rows that count.
    pub fn rows_bytes(&self) -> usize {
        self.words[self.counting].end
    }

    /// Where the rows begin in the page.
    pub fn rows_begin(&self) -> usize {
        self.begin + WORDS_BYTES
    }

    /// The number of the word that counts at the checkpoint of batch `published`. `None`: both are of later batches.
    fn counting(words: [TailWord; 2], published: u64) -> Option<usize> {
        let counts = |word: TailWord| word.batch <= published || planted::active("pages-tail-unpublished-counts");
        match words.map(counts) {
            [true, true] => Some(usize::from(words[1].batch > words[0].batch)),
            [true, false] => Some(0),
            [false, true] => Some(1),
            [false, false] => None,
        }
    }

    /// The number of a word that is of a batch after `published`.
    pub fn unpublished(&self, published: u64) -> Option<usize> {
        self.words.iter().position(|word| word.batch > published)
    }

    /// The place of a word in the page.
    pub fn word_place(&self, number: usize) -> usize {
        self.begin + number * 8
    }
}

/// A row that was added, among the bytes of the tail's rows: its number, its key and its cell.
#[derive(Clone, Debug)]
pub struct Added {
    pub number: u32,
    pub key: Range<usize>,
    pub cell: Range<usize>,
}

/// The rows in `bytes`, which all count, in the order in which they were added. `place` is that of the first one.
/// `None`: they are damaged.
pub fn parse(place: CellPlace, bytes: &[u8]) -> Option<Vec<Added>> {
    let (mut added, mut begin, mut place) = (Vec::new(), 0, place);
    while begin < bytes.len() {
        let (head, _) = AddedHead::read_from_prefix(&bytes[begin..]).ok()?;
        let key_begin = begin + size_of::<AddedHead>();
        let key = key_begin..key_begin.checked_add(to_usize(head.key_bytes))?;
        let cell = key.end..key.end.checked_add(CELL_HEAD_BYTES)?.checked_add(to_usize(head.room))?;
        if cell.end > bytes.len() || head.crc != head.checksum(place, &bytes[key.clone()]) {
            return None;
        }
        begin = cell.end.next_multiple_of(GRAIN);
        added.push(Added { number: place.row, key, cell });
        place.row += 1;
    }
    (begin == bytes.len()).then_some(added)
}

/// Adds a row to the bytes of a page, with its cell. `page_bytes`: those that the page has. Returns whether there is
/// room.
pub fn add(page: &mut Vec<u8>, rows_begin: usize, page_bytes: usize, place: CellPlace, row: &PageRow<'_>) -> bool {
    let begin = page.len();
    let key = begin + size_of::<AddedHead>();
    let cell = key + row.key.len();
    let end = cell + CELL_HEAD_BYTES + row.payload.len();
    let after = end.next_multiple_of(GRAIN);
    if after > page_bytes || after - rows_begin > BYTES_MAX {
        return false;
    }
    let (key_bytes, room) = (exact_u32(row.key.len()), exact_u32(row.payload.len()));
    let mut head = AddedHead { key_bytes, room, crc: 0, zero: 0 };
    head.crc = head.checksum(place, row.key);
    page.extend(head.as_bytes());
    page.extend(row.key);
    page.resize(after, 0);
    place.write(&mut page[cell..end], row);
    true
}
