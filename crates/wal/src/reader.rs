//! Reading a log: every record from a position to the end, and the verdict about the end.
//!
//! At a position where no record verifies there are four cases:
//! - the next segment begins there: go on in it;
//! - the next segment begins later: all before it was persistent when it was handed out, so this is damage;
//! - there is no next segment, and a whole record follows in this one: the same, because a writer has one record in
//!   flight;
//! - nothing follows: this is the end. A crash may have torn a record here, which no thread was told about.
//!
//! A record in pieces counts when all of them are whole. A crash may have torn the last one that was begun, at the end
//! of the log. Then the first piece is the end.

use std::collections::BTreeSet;

use lodestone_pmem::{PmAddr, planted};
use lodestone_txn::{Tick, Writer};
use lodestone_width::{to_u64, to_usize};

use crate::error::Result;
use crate::layout::{RECORD_HEAD_BYTES, RecordHead, Seed};
use crate::record::Entries;
use crate::segments::{Segment, Segments};

/// A whole record of a log.
#[derive(Debug)]
pub struct Found<'r> {
    /// The log.
    pub writer: Writer,
    /// The tick of the transaction.
    pub tick: Tick,
    /// The position of the record.
    pub position: u64,
    entries: &'r [u8],
}

impl Found<'_> {
    /// Whether it is a [mark](crate::Wal::mark_ends), which has no changes. Its tick is used up all the same.
    #[must_use]
    pub fn is_mark(&self) -> bool {
        self.entries.is_empty()
    }

    /// The changes of the transaction.
    #[must_use]
    pub fn entries(&self) -> Entries<'_> {
        Entries { rest: self.entries }
    }
}

/// Records that outlive the read.
#[derive(Debug, Default)]
pub struct Kept {
    /// The tick of each, and where its entries end.
    records: Vec<(Tick, usize)>,
    entries: Vec<u8>,
}

impl Kept {
    /// Adds a copy.
    pub fn push(&mut self, found: &Found<'_>) {
        self.entries.extend_from_slice(found.entries);
        self.records.push((found.tick, self.entries.len()));
    }

    /// Takes out the records with these ticks. Each record of a log has one of its own.
    pub fn remove(&mut self, ticks: &BTreeSet<Tick>) {
        let mut left = Self::default();
        for (tick, entries) in self.records(0..self.len()).filter(|(tick, _)| !ticks.contains(tick)) {
            left.entries.extend_from_slice(entries.rest);
            left.records.push((tick, left.entries.len()));
        }
        *self = left;
    }

    /// The number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The tick and the changes of the records with these numbers, counted from 0.
    ///
    /// # Panics
    /// When there is no such record.
    pub fn records(&self, numbers: std::ops::Range<usize>) -> impl Iterator<Item = (Tick, Entries<'_>)> {
        let mut begin = numbers.start.checked_sub(1).map_or(0, |before| self.records[before].1);
        self.records[numbers].iter().map(move |(tick, end)| {
            let rest = &self.entries[begin..*end];
            begin = *end;
            (*tick, Entries { rest })
        })
    }
}

/// The end of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    pub position: u64,
    pub last_tick: u64,
    /// Whether the last record has entries. Otherwise it is a mark, or there is none.
    pub has_entries: bool,
}

/// A record whose pieces are being collected.
struct Pieces {
    head: RecordHead,
    position: u64,
    bytes: Vec<u8>,
}

/// One pass over the log of a writer.
pub struct Reader<'l> {
    pub segments: &'l Segments,
    pub writer: Writer,
    pub chain: &'l [Segment],
}

impl Reader<'_> {
    /// Calls `visit` for each whole record from `from` on. Returns the end.
    pub fn read(&self, from: u64, visit: &mut dyn FnMut(&Found<'_>) -> Result<()>) -> Result<End> {
        self.read_to(from, None, visit)
    }

    /// As [`read`](Self::read), up to the position `to`. All records before it were acknowledged.
    pub fn read_to(&self, from: u64, to: Option<u64>, visit: &mut dyn FnMut(&Found<'_>) -> Result<()>) -> Result<End> {
        let Some(mut index) = self.chain.iter().rposition(|segment| segment.first <= from) else {
            return match self.chain.first() {
                None => Ok(End { position: from, ..End::default() }),
                Some(first) => Err(self.damaged(first.at, &format!("it begins after position {from}"))),
            };
        };
        let segment = &self.chain[index];
        let is_possible = |position: u64| position.is_multiple_of(self.align());
        if from - segment.first > self.segments.capacity || !is_possible(segment.first) || !is_possible(from) {
            let finding = format!("the log is needed from position {from}, where no record of it can begin or end");
            return Err(self.damaged(segment.at, &finding));
        }
        let mut end = End { position: from, ..End::default() };
        let mut position = from;
        let mut pieces: Option<Pieces> = None;
        let mut body = Vec::new();
        loop {
            let segment = &self.chain[index];
            if to.is_some_and(|to| position >= to) {
                return Ok(end);
            }
            let Some(head) = self.piece(segment, position, end.last_tick, &mut body) else {
                match self.chain.get(index + 1) {
                    Some(next) if next.first == position => index += 1,
                    Some(next) => {
                        let finding = format!(
                            "the record at position {position} fails its checksum, the log goes on at {}",
                            next.first
                        );
                        return Err(self.damaged(segment.address(position), &finding));
                    }
                    None if self.has_later(segment, position, end.last_tick) => {
                        let finding = "a record fails its checksum, and a whole one follows";
                        return Err(self.damaged(segment.address(position), finding));
                    }
                    None if to.is_some() => {
                        return Err(
                            self.damaged(segment.address(position), "an acknowledged record fails its checksum")
                        );
                    }
                    None => return Ok(end),
                }
                continue;
            };
            let after = position + (to_u64(RECORD_HEAD_BYTES) + u64::from(head.bytes)).next_multiple_of(self.align());
            let record = match pieces.take() {
                None if head.piece == 0 => Pieces { head, position, bytes: std::mem::take(&mut body) },
                Some(mut record) if follows(&record.head, &head) => {
                    record.head.piece = head.piece;
                    record.bytes.append(&mut body);
                    record
                }
                _ => return Err(self.damaged(segment.address(position), "a piece of a record is missing before it")),
            };
            position = after;
            if record.head.piece + 1 < record.head.pieces && !planted::active("wal-piece-counts-alone") {
                pieces = Some(record);
                continue;
            }
            let has_entries = record.head.entries > 0;
            self.visit(segment, &record, visit)?;
            end = End { position, last_tick: record.head.tick, has_entries };
            // The next record has the room of this one.
            body = record.bytes;
        }
    }

    /// The tick of the last record before position `from`, as far as the segment says that has this position: of a
    /// record in it, or of the last one before it in the same life. `None`: the log has no segment.
    pub fn tick_before(&self, from: u64) -> Result<Option<Tick>> {
        let Some(segment) = self.chain.iter().rfind(|segment| segment.first <= from) else { return Ok(None) };
        let (mut last, mut position, mut body) = (segment.last_tick, segment.first, Vec::new());
        while position < from {
            // Pieces of one record have one tick, so nothing is said about the order here.
            let Some(head) = self.piece(segment, position, 0, &mut body) else {
                return Err(self.damaged(segment.address(position), "an acknowledged record fails its checksum"));
            };
            last = head.tick;
            position += (to_u64(RECORD_HEAD_BYTES) + u64::from(head.bytes)).next_multiple_of(self.align());
        }
        Ok(Some(Tick(last)))
    }

    fn visit(&self, segment: &Segment, record: &Pieces, visit: &mut dyn FnMut(&Found<'_>) -> Result<()>) -> Result<()> {
        let entries = Entries { rest: &record.bytes };
        if entries.count_whole() != Some(record.head.entries) && !planted::active("wal-piece-counts-alone") {
            return Err(self.damaged(segment.at, "a record's checksum is right, but its entries are not whole"));
        }
        let (writer, tick) = (self.writer, Tick(record.head.tick));
        visit(&Found { writer, tick, position: record.position, entries: &record.bytes })
    }

    /// The head of the piece at `position` of `segment`, if one verifies there. Its entries are in `body` then.
    fn piece(&self, segment: &Segment, position: u64, last_tick: u64, body: &mut Vec<u8>) -> Option<RecordHead> {
        let room = self.segments.capacity.checked_sub(position - segment.first)?;
        let bytes_max = room.checked_sub(to_u64(RECORD_HEAD_BYTES))?;
        let memory = self.segments.memory();
        let at = segment.address(position);
        let head = RecordHead::read(memory, at);
        let is_plausible = head.tick > last_tick && head.piece < head.pieces && u64::from(head.bytes) <= bytes_max;
        if !is_plausible {
            return None;
        }
        body.resize(to_usize(head.bytes), 0);
        memory.read(at.plus(to_u64(RECORD_HEAD_BYTES)), body);
        let seed = Seed {
            salt: self.segments.salt,
            generation: segment.generation,
            position,
            writer: u32::from(self.writer.number()),
        };
        let verifies = head.crc == head.checksum(seed.body(body)) || planted::active("wal-no-crc");
        verifies.then_some(head)
    }

    /// Whether a whole record or piece begins after `position` in the segment.
    fn has_later(&self, segment: &Segment, position: u64, last_tick: u64) -> bool {
        let end = segment.first + self.segments.capacity;
        let (mut next, mut body) = (position + self.align(), Vec::new());
        while next + to_u64(RECORD_HEAD_BYTES) <= end {
            if self.piece(segment, next, last_tick, &mut body).is_some() {
                return true;
            }
            next += self.align();
        }
        false
    }

    fn align(&self) -> u64 {
        self.segments.align.bytes()
    }

    fn damaged(&self, at: PmAddr, finding: &str) -> crate::Error {
        let finding = format!("log of writer {}: {finding}", self.writer.number());
        self.segments.damaged(at, "log", &finding)
    }
}

fn follows(record: &RecordHead, piece: &RecordHead) -> bool {
    piece.piece == record.piece + 1
        && (piece.tick, piece.pieces, piece.entries) == (record.tick, record.pieces, record.entries)
}
