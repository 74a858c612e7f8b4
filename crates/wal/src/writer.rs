//! Appending: room first, before any lock; then one streamed record.

use std::sync::Arc;

use lodestone_pmem::PmAddr;
use lodestone_txn::{Tick, Writer};
use lodestone_width::{exact_u32, to_u64, to_usize};
use zerocopy::IntoBytes;

use crate::error::{Error, Result};
use crate::layout::{RECORD_HEAD_BYTES, RecordHead, Seed};
use crate::options::LogStore;
use crate::reader::End;
use crate::record::Record;
use crate::segments::Segment;
use crate::wal::Shared;

/// Room for a record, from [`LogWriter::reserve`]. It is for the next append of that writer only.
#[derive(Debug)]
#[must_use = "room is for an append"]
pub struct Room {
    /// Where the record will be.
    position: u64,
    /// The checksum of the entries; none for a record in pieces.
    body: Option<u32>,
    pieces: u16,
}

/// The log of one writer. One thread appends at a time; dropping it frees the log for another owner.
#[derive(Debug)]
pub struct LogWriter {
    shared: Arc<Shared>,
    writer: Writer,
    /// The segment of the last record. None before the first.
    segment: Option<Segment>,
    position: u64,
    last_tick: u64,
    /// Whether the last record has entries.
    has_entries: bool,
    /// Segments for the next record.
    held: Vec<PmAddr>,
    /// Where further segments are best. `None`: near the thread that appends.
    part: Option<u16>,
    /// Whether a segment was handed out since [`took_segment`](Self::took_segment) was called.
    took_segment: bool,
}

impl LogWriter {
    pub(crate) fn new(shared: Arc<Shared>, writer: Writer, end: End) -> Self {
        let segment = shared.segments.chain(writer.number()).last().copied();
        let End { position, last_tick, has_entries } = end;
        let (held, part) = Default::default();
        Self { shared, writer, segment, position, last_tick, has_entries, held, part, took_segment: false }
    }

    /// The position after the last record.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Takes further segments from this part of the pool while it has room, whatever the node of the thread. `None`:
    /// near the thread that appends, as at the beginning.
    pub fn place(&mut self, part: Option<u16>) {
        self.part = part;
    }

    /// Whether the log got another segment since the last call: the time to look how full all logs are.
    pub fn took_segment(&mut self) -> bool {
        std::mem::take(&mut self.took_segment)
    }

    /// The tick of the last record; 0 before the first.
    #[must_use]
    pub fn last_tick(&self) -> Tick {
        Tick(self.last_tick)
    }

    /// Makes sure that `record` will fit, and computes the checksum of its entries. Call it before locks are taken: it
    /// may take a segment, which costs two fences each time that one is full, and those of the heap while the log has
    /// not made all of its segments. The room is lost when another one is reserved.
    ///
    /// # Errors
    /// [`Error::Full`] when all segments hold live records; [`Error::TransactionTooLarge`] for a record above a quarter
    /// of the log; [`Error::ReadOnly`]; those of the heap.
    pub fn reserve(&mut self, record: &mut Record) -> Result<Room> {
        let segments = &self.shared.segments;
        if segments.memory().is_read_only() {
            return Err(Error::ReadOnly { path: segments.heap.pool().path().to_owned() });
        }
        let bytes = record.entry_bytes();
        let capacity = segments.capacity;
        let limit = segments.record_bytes_max();
        if bytes > limit {
            return Err(Error::TransactionTooLarge { bytes, limit });
        }
        let padded = (to_u64(RECORD_HEAD_BYTES) + bytes).next_multiple_of(segments.align.bytes());
        let used = self.segment.map_or(capacity, |segment| self.position - segment.first);
        if used + padded <= capacity {
            return Ok(self.room_in_one(record));
        }
        let piece_bytes = capacity - to_u64(RECORD_HEAD_BYTES);
        let pieces = bytes.div_ceil(piece_bytes).max(1);
        segments.take(&mut self.held, to_usize(pieces), self.part)?;
        self.took_segment = true;
        if pieces == 1 {
            if let Some(at) = self.held.pop() {
                self.segment = Some(segments.hand_out(self.writer.number(), at, self.position, self.last_tick));
            }
            return Ok(self.room_in_one(record));
        }
        let pieces = u16::try_from(pieces).map_err(|_| Error::TransactionTooLarge { bytes, limit })?;
        Ok(Room { position: self.position, body: None, pieces })
    }

    fn room_in_one(&self, record: &Record) -> Room {
        let generation = self.segment.map_or(0, |segment| segment.generation);
        let body = self.seed(generation, self.position).body(&record.bytes[RECORD_HEAD_BYTES..]);
        Room { position: self.position, body: Some(body), pieces: 1 }
    }

    /// Appends `record`, which is unchanged since its room was reserved, as the transaction of `tick`. It is streamed,
    /// not fenced: after the caller's next fence the transaction survives. Returns the position after it.
    ///
    /// No record of this writer ever had that tick, not even one that a crash tore in an earlier life: the first words
    /// of the new record could complete it.
    ///
    /// A record longer than a segment makes three fences for each segment. A record without entries is a
    /// [mark](crate::Wal::mark_ends).
    ///
    /// # Errors
    /// [`Error::TickNotRising`]: the log would end at this record. Nothing was stored.
    ///
    /// # Panics
    /// If the room is not the last one of this writer.
    pub fn append(&mut self, room: Room, record: &mut Record, tick: Tick) -> Result<u64> {
        assert_eq!(room.position, self.position, "the room is of this writer and not used");
        if tick.0 <= self.last_tick {
            return Err(Error::TickNotRising { writer: self.writer.number(), tick: tick.0, last: self.last_tick });
        }
        match (room.body, self.segment) {
            (Some(body), Some(segment)) => self.append_whole(&segment, body, record, tick),
            _ => self.append_pieces(room.pieces, record, tick),
        }
        self.last_tick = tick.0;
        self.has_entries = record.entries > 0;
        Ok(self.position)
    }

    fn append_whole(&mut self, segment: &Segment, body: u32, record: &mut Record, tick: Tick) {
        let entry_bytes = record.bytes.len() - RECORD_HEAD_BYTES;
        let mut head = RecordHead {
            tick: tick.0,
            bytes: exact_u32(entry_bytes),
            entries: record.entries,
            piece: 0,
            pieces: 1,
            crc: 0,
        };
        head.crc = head.checksum(body);
        record.bytes[..RECORD_HEAD_BYTES].copy_from_slice(head.as_bytes());
        let padded = record.bytes.len().next_multiple_of(to_usize(self.shared.segments.align.bytes()));
        record.bytes.resize(padded, 0);
        self.put(segment.address(self.position), &record.bytes);
        record.bytes.truncate(RECORD_HEAD_BYTES + entry_bytes);
        self.position += to_u64(padded);
    }

    #[cold]
    fn append_pieces(&mut self, pieces: u16, record: &Record, tick: Tick) {
        let capacity = self.shared.segments.capacity;
        let entries = &record.bytes[RECORD_HEAD_BYTES..];
        let mut image = Vec::new();
        for (piece, body) in (0_u16..).zip(entries.chunks(to_usize(capacity) - RECORD_HEAD_BYTES)) {
            let segment = self.segment_for_piece();
            let mut head = RecordHead {
                tick: tick.0,
                bytes: exact_u32(body.len()),
                entries: record.entries,
                piece,
                pieces,
                crc: 0,
            };
            head.crc = head.checksum(self.seed(segment.generation, self.position).body(body));
            image.clear();
            image.extend(head.as_bytes());
            image.extend(body);
            image.resize(image.len().next_multiple_of(to_usize(self.shared.segments.align.bytes())), 0);
            self.put(segment.address(self.position), &image);
            self.position += to_u64(image.len());
            self.segment = Some(segment);
        }
    }

    /// A segment that begins at the present position. An empty one at the end of the chain serves: no two segments of a
    /// chain begin at one position.
    fn segment_for_piece(&mut self) -> Segment {
        match (self.segment.filter(|last| last.first == self.position), self.held.pop()) {
            (Some(empty), held) => {
                self.held.extend(held);
                empty
            }
            (None, Some(at)) => {
                // The piece before, before the first line of the head: a segment that begins too late for what is
                // there before it would be damage.
                self.shared.segments.memory().fence();
                self.shared.segments.hand_out(self.writer.number(), at, self.position, self.last_tick)
            }
            (None, None) => unreachable!("the room has a segment for each piece"),
        }
    }

    fn put(&self, at: PmAddr, bytes: &[u8]) {
        let memory = self.shared.segments.memory();
        match self.shared.store {
            // Before the caller's fence, after which the transaction counts.
            LogStore::Stream => memory.append(at, bytes),
            LogStore::Flush => {
                memory.write(at, bytes);
                memory.flush(at, to_u64(bytes.len()));
            }
        }
    }

    fn seed(&self, generation: u64, position: u64) -> Seed {
        Seed { salt: self.shared.segments.salt, generation, position, writer: u32::from(self.writer.number()) }
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.shared.segments.give(&mut self.held);
        let Self { position, last_tick, has_entries, .. } = *self;
        self.shared.end_of(self.writer, End { position, last_tick, has_entries });
    }
}
