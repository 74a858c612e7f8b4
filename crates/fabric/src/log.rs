//! A circular log of self-verifying entries in a range of a pool: the base of the ring and of the applied log.
//!
//! ```text
//! range    two mirrored head lines, 256 bytes apart, then entries from 512 on, each at a multiple of 64
//! head     magic 3, version 1, standing 4, change 8, begin 8, first 8, cut 8, generation 4, promised 4, viewed 4,
//!          view 4, first term 4, crc 4                                                             (64 bytes)
//! entry    crc 4, bytes 4, position 8, settled 8, generation 4, covered 4, then the payload
//! ```
//!
//! 1. Positions rise for ever; the place of position p is p modulo the capacity. So an entry of an earlier lap has
//!    another position and never counts.
//! 2. *Append*: write, no fence. After the caller's fence the entry survives. The checksum has salt and position in
//!    it, and covers the first `covered` bytes of the payload; the rest has a checksum of its own.
//! 3. *Cut*: what comes after a position is void. The head gets the position and a new generation. From there on only
//!    entries of that generation count, and everything before must be there: a missing one is damage, not the end.
//!    The caller has fenced what is before. An open for writing cuts at the end that it found. Otherwise an entry that
//!    a crash tore could be followed by an older whole one when its place is used again.
//! 4. *Trim*: the head gets the new begin before the bytes below are used again.
//!
//! `settled` is the sequence up to which the owner had everything durable when it appended the entry. `standing`,
//! `promised`, `viewed` and `view` are the owner's: they change together with cuts, in one line.

use lodestone_pmem::mirror::{self, Line, Mirror};
use lodestone_pmem::{Memory, PmAddr, PmPtr, planted};
use lodestone_width::{exact_u32, to_u64, to_usize};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::error::{Error, Result};

/// Bytes before the entries.
pub(crate) const LOG_HEAD_BYTES: u64 = 512;
const COPY_OFFSET: u64 = 256;
/// Bytes of an entry before its payload.
pub(crate) const ENTRY_HEAD_BYTES: usize = 32;
const LINE: u64 = 64;

/// The head line. Its owner changes the fields after `generation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct HeadLine {
    magic: u32,
    /// The owner's state.
    pub(crate) standing: u32,
    change: u64,
    /// Position of the first entry.
    begin: u64,
    /// The sequence before the first record.
    pub(crate) first: u64,
    cut: u64,
    generation: u32,
    /// The newest term that the owner promised to follow.
    pub(crate) promised: u32,
    /// The newest term whose view it has entered.
    pub(crate) viewed: u32,
    /// That view.
    pub(crate) view: u32,
    /// The term of the record before the first.
    pub(crate) first_term: u32,
    crc: u32,
}

const _: () = assert!(to_u64(size_of::<HeadLine>()) == LINE);

impl Line for HeadLine {
    const SEQUENCE_MAX: u64 = u64::MAX;

    fn sequence(&self) -> u64 {
        self.change
    }

    fn crc(&self) -> u32 {
        self.crc
    }

    fn seal(&mut self, sequence: u64) {
        self.change = sequence;
        self.crc = crc32c::crc32c(&self.as_bytes()[..60]);
    }
}

/// Positions and sequences stay below this, so that sums of them do not overflow.
const LARGE: u64 = 1 << 62;

impl HeadLine {
    /// The first field whose value nothing wrote, in a log of so many bytes. Which standings exist its owner knows.
    fn impossible(&self, capacity: u64) -> Option<&'static str> {
        let is_position = |position: u64| position < LARGE && position.is_multiple_of(LINE);
        let wrong = [
            ("its begin", !is_position(self.begin)),
            ("its cut", !is_position(self.cut) || self.cut < self.begin || self.cut - self.begin > capacity),
            ("its generation", self.generation == 0 || self.generation == u32::MAX),
            ("its first sequence", self.first >= LARGE),
            ("the term of its view", self.viewed > self.promised),
        ];
        wrong.into_iter().find(|field| field.1).map(|field| field.0)
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct EntryHead {
    crc: u32,
    bytes: u32,
    position: u64,
    settled: u64,
    generation: u32,
    covered: u32,
}

const _: () = assert!(size_of::<EntryHead>() == ENTRY_HEAD_BYTES);

impl EntryHead {
    fn checksum(&self, salt: u64, payload: &[u8]) -> u32 {
        let seed = crc32c::crc32c(&salt.to_le_bytes());
        let covered = payload.get(..to_usize(self.covered)).unwrap_or(payload);
        crc32c::crc32c_append(crc32c::crc32c_append(seed, &self.as_bytes()[4..]), covered)
    }
}

/// The version of the format of logs.
const VERSION: u8 = 1;

/// The purpose of a log: its magic and its name in errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogKind {
    pub(crate) magic: [u8; 3],
    pub(crate) name: &'static str,
}

impl LogKind {
    const fn word(self) -> u32 {
        let [first, second, third] = self.magic;
        u32::from_le_bytes([first, second, third, VERSION])
    }
}

/// An entry that a scan found.
pub(crate) struct Found<'l> {
    pub(crate) position: u64,
    /// The position after it.
    pub(crate) end: u64,
    pub(crate) settled: u64,
    pub(crate) payload: &'l [u8],
}

/// The log.
#[derive(Debug)]
pub(crate) struct Log {
    kind: LogKind,
    memory: Memory,
    at: PmAddr,
    capacity: u64,
    salt: u64,
    head: HeadLine,
    begin: u64,
    end: u64,
    scratch: Vec<u8>,
}

impl Log {
    /// Makes an empty log in `bytes` bytes at `at`: durable on return.
    pub(crate) fn create(kind: LogKind, memory: &Memory, at: PmAddr, bytes: u64, salt: u64) -> Result<Self> {
        let mut log = Self::at(kind, memory, at, bytes, salt)?;
        // Positions go on from an older log in the same place, so that its entries never fit.
        let old = Mirror::<HeadLine>::read(memory, log.lines()).newest();
        let mut head = HeadLine::new_zeroed();
        head.magic = kind.word();
        let old = old.filter(|(old, _)| old.magic == kind.word() && old.impossible(u64::MAX).is_none());
        head.generation = old.map_or(1, |(old, _)| old.generation + 1);
        let begin = old.map_or(0, |(old, _)| (old.cut + log.capacity).next_multiple_of(LINE));
        (head.begin, head.cut) = (begin, begin);
        (log.head, log.begin, log.end) = (head, begin, begin);
        log.write_head();
        Ok(log)
    }

    fn at(kind: LogKind, memory: &Memory, at: PmAddr, bytes: u64, salt: u64) -> Result<Self> {
        let needed = LOG_HEAD_BYTES + 64 * LINE;
        if bytes < needed || !bytes.is_multiple_of(LINE) || !at.offset().is_multiple_of(LINE) {
            return Err(Error::RangeTooSmall { at, bytes, what: kind.name, needed });
        }
        let capacity = bytes - LOG_HEAD_BYTES;
        let head = HeadLine::new_zeroed();
        Ok(Self { kind, memory: memory.clone(), at, capacity, salt, head, begin: 0, end: 0, scratch: Vec::new() })
    }

    /// Opens the log and passes each entry to `visit`, which says whether its content counts. The first that does not
    /// is the end. The caller [cuts](Self::cut) there before it appends.
    pub(crate) fn open(
        kind: LogKind,
        memory: &Memory,
        at: PmAddr,
        bytes: u64,
        salt: u64,
        visit: &mut dyn FnMut(&Found<'_>) -> bool,
    ) -> Result<Self> {
        let mut log = Self::at(kind, memory, at, bytes, salt)?;
        let newest = Mirror::<HeadLine>::read(memory, log.lines()).newest();
        let Some((head, _)) = newest else { return Err(Error::NoLog { what: kind.name, at }) };
        let [magic @ .., version] = head.magic.to_le_bytes();
        if magic != kind.magic {
            return Err(Error::NoLog { what: kind.name, at });
        }
        if version != VERSION {
            return Err(Error::Version { what: kind.name, at, found: version, known: VERSION });
        }
        if let Some(field) = head.impossible(log.capacity) {
            return Err(Error::Impossible { what: kind.name, at, field });
        }
        (log.head, log.begin, log.end) = (head, head.begin, head.begin);
        let mut generation = 0;
        while let Some((entry, payload)) = log.entry_at(log.end, generation) {
            let end = log.end + span(payload.len());
            let found = Found { position: log.end, end, settled: entry.settled, payload: &payload };
            if !visit(&found) {
                break;
            }
            (generation, log.end) = (entry.generation, end);
        }
        // A head is durable before the first entry of its generation. If this one were the end, the next cut would make
        // it count.
        if log.intact_at(log.end).is_some_and(|(entry, _)| entry.generation > head.generation) {
            return Err(Error::Impossible { what: kind.name, at, field: "the generation of an entry" });
        }
        if log.end < head.cut {
            return Err(Error::Damaged { what: kind.name, at, position: log.end, durable: head.cut });
        }
        Ok(log)
    }

    /// The entry at `position`, if an intact one of a possible generation is there.
    fn entry_at(&self, position: u64, generation: u32) -> Option<(EntryHead, Vec<u8>)> {
        let is_new = position >= self.head.cut;
        self.intact_at(position).filter(|(entry, _)| {
            entry.generation >= generation
                && entry.generation <= self.head.generation
                && (entry.generation == self.head.generation || !is_new || planted::active("fabric-cut-forgotten"))
        })
    }

    /// The entry at `position`, if an intact one of any generation is there.
    fn intact_at(&self, position: u64) -> Option<(EntryHead, Vec<u8>)> {
        let mut bytes = [0; ENTRY_HEAD_BYTES];
        self.read_at(position, &mut bytes);
        let entry = EntryHead::read_from_bytes(&bytes).ok()?;
        let fits = entry.position == position
            && entry.covered <= entry.bytes
            && entry.settled < LARGE
            && position < LARGE
            && span(to_usize(entry.bytes)) <= self.capacity - (position - self.begin).min(self.capacity);
        fits.then_some(())?;
        let mut payload = vec![0; to_usize(entry.bytes)];
        self.read_at(position + to_u64(ENTRY_HEAD_BYTES), &mut payload);
        (entry.checksum(self.salt, &payload) == entry.crc).then_some((entry, payload))
    }

    /// The payload of the entry at `position`, which is in the log.
    pub(crate) fn payload(&self, position: u64) -> Option<Vec<u8>> {
        (position >= self.begin && position < self.end).then(|| self.entry_at(position, 0))?.map(|found| found.1)
    }

    fn lines(&self) -> [PmPtr<HeadLine>; 2] {
        [0, COPY_OFFSET].map(|offset| PmPtr::new(self.at.plus(offset)))
    }

    fn write_head(&mut self) {
        // Two persists inside: the head is durable before anything that follows from it.
        self.head = mirror::write(&self.memory, self.lines(), self.head);
    }

    fn place(&self, position: u64) -> PmAddr {
        self.at.plus(LOG_HEAD_BYTES + position % self.capacity)
    }

    /// How many of `bytes` bytes from `position` on are before the end of the range.
    fn before_wrap(&self, position: u64, bytes: usize) -> usize {
        to_usize(self.capacity - position % self.capacity).min(bytes)
    }

    fn read_at(&self, position: u64, out: &mut [u8]) {
        let first = self.before_wrap(position, out.len());
        let (head, tail) = out.split_at_mut(first);
        self.memory.read(self.place(position), head);
        if !tail.is_empty() {
            self.memory.read(self.place(position + to_u64(first)), tail);
        }
    }

    /// Position of the first entry that is kept.
    pub(crate) const fn begin(&self) -> u64 {
        self.begin
    }

    /// The position after the last entry.
    pub(crate) const fn end(&self) -> u64 {
        self.end
    }

    /// Position before which all entries were durable at the last open or cut.
    pub(crate) const fn durable_cut(&self) -> u64 {
        self.head.cut
    }

    /// The head as it is durable.
    pub(crate) const fn head(&self) -> &HeadLine {
        &self.head
    }

    /// The memory of the log.
    pub(crate) const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Bytes that the log can hold.
    pub(crate) const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Whether an entry with so many bytes of payload has room now, without another trim.
    pub(crate) fn has_room(&self, payload_bytes: usize) -> bool {
        self.end + span(payload_bytes) - self.begin <= self.capacity
    }

    /// Appends an entry, not fenced. Returns its position.
    pub(crate) fn append(&mut self, pieces: &[&[u8]], covered: usize, settled: u64) -> Result<u64> {
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        let needed = span(bytes);
        if !self.has_room(bytes) {
            let free = self.capacity - (self.end - self.begin);
            return Err(Error::Full { what: self.kind.name, needed, free, capacity: self.capacity });
        }
        if self.end + needed - self.head.begin > self.capacity {
            self.save_begin();
        }
        let mut entry = EntryHead {
            crc: 0,
            bytes: exact_u32(bytes),
            position: self.end,
            settled,
            generation: self.head.generation,
            covered: exact_u32(covered.min(bytes)),
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.extend(entry.as_bytes());
        pieces.iter().for_each(|piece| scratch.extend(*piece));
        entry.crc = entry.checksum(self.salt, &scratch[ENTRY_HEAD_BYTES..]);
        scratch[..4].copy_from_slice(&entry.crc.to_le_bytes());
        scratch.resize(to_usize(needed), 0);
        let first = self.before_wrap(self.end, scratch.len());
        // Persistent with the owner's fence at the end of its batch.
        self.memory.append(self.place(self.end), &scratch[..first]);
        if first < scratch.len() {
            self.memory.append(self.place(self.end + to_u64(first)), &scratch[first..]);
        }
        self.scratch = scratch;
        let position = self.end;
        self.end += needed;
        Ok(position)
    }

    /// The log begins at `position` from now on, after `first`. Durable when the bytes below are used again.
    pub(crate) fn trim(&mut self, position: u64, first: u64, first_term: u32) {
        if position > self.begin && position <= self.end {
            self.begin = position;
            (self.head.first, self.head.first_term) = (first, first_term);
            // Below the cut nothing may be missing, and everything below the begin is.
            self.head.cut = self.head.cut.max(position);
        }
    }

    /// Makes the begin durable. Everything before it was fenced by its owner.
    fn save_begin(&mut self) {
        self.head.begin = self.begin;
        self.write_head();
    }

    /// Makes what comes after `end` void, and whatever `change` does to the head, in one step: durable on return. The
    /// caller has fenced what is before `end`.
    pub(crate) fn cut(&mut self, end: u64, change: impl FnOnce(&mut HeadLine)) {
        debug_assert!(end >= self.begin && end <= self.end);
        self.end = end;
        self.head.begin = self.begin;
        if planted::active("fabric-cut-forgotten") {
            self.head.cut = self.head.cut.max(self.begin);
        } else {
            self.head.cut = end;
            self.head.generation += 1;
        }
        change(&mut self.head);
        self.write_head();
    }

    /// From now on a missing entry before the end is damage, not the end: durable after the next `durable`.
    pub(crate) fn settle(&mut self) {
        // The entries are persistent before the head says that they must be there.
        self.memory.fence();
        self.head.begin = self.begin;
        self.head.cut = self.end;
        self.write_head();
    }

    /// Changes the head alone: durable on return.
    pub(crate) fn change_head(&mut self, change: impl FnOnce(&mut HeadLine)) {
        change(&mut self.head);
        self.head.begin = self.begin;
        self.write_head();
    }

    /// Empties the log, which goes on after the record `first`: durable on return.
    pub(crate) fn restart(&mut self, change: impl FnOnce(&mut HeadLine)) {
        self.begin = self.end;
        self.cut(self.end, change);
    }
}

/// Bytes of an entry with so many bytes of payload.
pub(crate) fn span(payload_bytes: usize) -> u64 {
    to_u64(ENTRY_HEAD_BYTES + payload_bytes).next_multiple_of(LINE)
}
