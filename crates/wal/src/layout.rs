//! Bytes of the directory, of segments and of record headers. `docs/format.md` repeats them.
//!
//! ```text
//! directory: two equal header lines, 256 bytes apart, then two equal lists of checked addresses, one for each segment
//!            (null: not made yet)
//! segment:   two mirrored head lines, 256 bytes apart, then records
//! record:    header of 24 bytes, entries, zeroes up to the next boundary
//! ```

use lodestone_pmem::mirror::Line;
use lodestone_pmem::{LINE_BYTES, Memory, PmAddr, PmPtr, planted};
use lodestone_width::{exact_u32, to_u64, to_usize};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::options::{LogAlign, LogOptions};

/// `LDSTWAL` and a zero.
pub const MAGIC: u64 = u64::from_le_bytes(*b"LDSTWAL\0");
/// `LDSTSEG` and a zero.
pub const SEGMENT_MAGIC: u64 = u64::from_le_bytes(*b"LDSTSEG\0");
/// The format that this crate writes and reads.
pub const VERSION: u32 = 2;
/// Bytes before the records of a segment.
pub const SEGMENT_HEAD_BYTES: u64 = 512;
/// Bytes before the addresses in the directory.
pub const DIRECTORY_HEAD_BYTES: u64 = 512;
/// Bytes of a record's header.
pub const RECORD_HEAD_BYTES: usize = 24;
const COPY_OFFSET: u64 = 256;
/// Writer of a segment that no log has.
pub const NO_WRITER: u32 = u32::MAX;

/// Header of the directory. It never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DirectoryLine {
    pub magic: u64,
    pub version: u32,
    pub align: u32,
    pub segment_bytes: u64,
    pub segments: u64,
    pub salt: u64,
    pub zero: [u8; 20],
    pub crc: u32,
}

const _: () = assert!(to_u64(size_of::<DirectoryLine>()) == LINE_BYTES);

impl DirectoryLine {
    pub fn new(options: &LogOptions, salt: u64) -> Self {
        let mut line = Self::new_zeroed();
        (line.magic, line.version) = (MAGIC, VERSION);
        line.align = exact_u32(options.align.bytes());
        (line.segment_bytes, line.segments, line.salt) = (options.segment_bytes, options.segments(), salt);
        line.crc = line.checksum();
        line
    }

    pub fn checksum(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..to_usize(LINE_BYTES) - 4])
    }

    /// The sizes, if they are such as options allow.
    pub fn options(&self) -> Option<LogOptions> {
        let options = LogOptions {
            log_bytes: self.segment_bytes.checked_mul(self.segments)?,
            segment_bytes: self.segment_bytes,
            align: LogAlign::from_bytes(u64::from(self.align))?,
            salt: Some(self.salt),
        };
        (self.zero == [0; 20] && options.check().is_ok()).then_some(options)
    }
}

/// Places of the two header lines of the directory at `at`.
pub fn directory_lines(at: PmAddr) -> [PmPtr<DirectoryLine>; 2] {
    [0, COPY_OFFSET].map(|offset| PmPtr::new(at.plus(offset)))
}

/// Bytes of a directory of so many segments.
pub const fn directory_bytes(segments: u64) -> u64 {
    DIRECTORY_HEAD_BYTES + 2 * list_bytes(segments)
}

/// Bytes of a list of addresses. The lists share no block of the media.
const fn list_bytes(segments: u64) -> u64 {
    (segments * 8).next_multiple_of(COPY_OFFSET)
}

/// Places of the address of segment `number` of so many segments, in both lists.
pub fn directory_entries(directory: PmAddr, segments: u64, number: u64) -> [PmAddr; 2] {
    [0, list_bytes(segments)].map(|list| directory.plus(DIRECTORY_HEAD_BYTES + list + number * 8))
}

/// Head of a segment: who has it, since which generation, from which position on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SegmentLine {
    pub magic: u64,
    /// Rises with every change, so it names this use of the segment.
    pub generation: u64,
    /// Position in the log of the writer at which the segment begins.
    pub first: u64,
    /// The writer, or [`NO_WRITER`].
    pub writer: u32,
    pub zero: [u8; 4],
    /// The tick of the last record before the segment, of the same life; 0: none, or an earlier version did not say.
    pub last_tick: u64,
    pub zeroes: [u8; 20],
    pub crc: u32,
}

const _: () = assert!(to_u64(size_of::<SegmentLine>()) == LINE_BYTES);

impl Line for SegmentLine {
    const SEQUENCE_MAX: u64 = u64::MAX;

    fn sequence(&self) -> u64 {
        self.generation
    }

    fn crc(&self) -> u32 {
        self.crc
    }

    fn seal(&mut self, sequence: u64) {
        self.generation = sequence;
        self.crc = crc32c::crc32c(&self.as_bytes()[..to_usize(LINE_BYTES) - 4]);
    }
}

impl SegmentLine {
    /// A head that is not sealed yet.
    pub fn new(writer: u32, first: u64, last_tick: u64) -> Self {
        let (zero, zeroes) = ([0; 4], [0; 20]);
        Self { magic: SEGMENT_MAGIC, generation: 0, first, writer, zero, last_tick, zeroes, crc: 0 }
    }
}

/// Places of the two head lines of the segment at `at`.
pub fn segment_lines(at: PmAddr) -> [PmPtr<SegmentLine>; 2] {
    [0, COPY_OFFSET].map(|offset| PmPtr::new(at.plus(offset)))
}

/// Header of a record, or of one piece of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RecordHead {
    /// The tick of the transaction; never 0.
    pub tick: u64,
    /// Bytes of the entries in this piece.
    pub bytes: u32,
    /// Entries of the whole record.
    pub entries: u32,
    /// Number of this piece, from 0.
    pub piece: u16,
    /// Pieces of the record.
    pub pieces: u16,
    /// CRC-32C of the entries, then of the header before this field, with the seed of the place.
    pub crc: u32,
}

const _: () = assert!(size_of::<RecordHead>() == RECORD_HEAD_BYTES);

/// The place of a record, which its checksum includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed {
    pub salt: u64,
    pub generation: u64,
    pub position: u64,
    pub writer: u32,
}

impl Seed {
    /// The checksum of a piece's entries. It is known before the tick is.
    pub fn body(&self, entries: &[u8]) -> u32 {
        let generation = if planted::active("wal-generation-kept") { 0 } else { self.generation };
        let place = [self.salt, generation, self.position, u64::from(self.writer)];
        crc32c::crc32c_append(crc32c::crc32c(place.as_bytes()), entries)
    }
}

impl RecordHead {
    /// Completes the checksum `body` of the entries with this header.
    pub fn checksum(&self, body: u32) -> u32 {
        crc32c::crc32c_append(body, &self.as_bytes()[..RECORD_HEAD_BYTES - 4])
    }

    /// Reads the header at `at`.
    pub fn read(memory: &Memory, at: PmAddr) -> Self {
        memory.get(PmPtr::new(at))
    }
}
