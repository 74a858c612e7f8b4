//! The map of the pool without slabs: header, clock, records, directory. `docs/format.md` draws the same map.
//!
//! ```text
//! place of the object -> header block, two halves:
//!   0     header line (in both halves)
//!   256   a state line of the clock (lodestone-txn)
//!   512   cell of the system object (first type, first root), in the first half only
//!   1024  table of lives (in both halves)
//! records: two buffers for each thread id
//! directory: two chains of blocks { next of this chain, next of the other one, entries { address, kind and sizes } },
//! checked words
//! ```
//!
//! Header line, clock, table of lives and directory lead to the objects. They are there twice, with the default sizes
//! in different pages, so one damaged line or page of them hides no object. An open for writing makes a damaged copy
//! whole again. The system object is there once. Damage to it loses the list of roots, and a
//! [`survey`](crate::survey) finds the roots without it.
//!
//! One heap action makes all of it, so all of it exists or none.

use lodestone_heap::{Action, Heap};
use lodestone_pmem::{LINE_BYTES, Memory, PmAddr, PmPtr};
use lodestone_txn::record::Buffers;
use lodestone_txn::{
    Lives, LivesLayout, NEVER_WRITTEN, SLOT_HEADER_WORDS, SlotFlags, SlotHeader, Tick, Which, Writer, copies, seal,
};
use lodestone_width::{exact_u16, exact_u32, to_u64, to_usize, u32_to_u64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::error::{Error, Result};
use crate::options::StmOptions;
use lodestone_cells::{Directory, Shape, overlap};

/// First eight bytes of the header line.
pub const MAGIC: [u8; 8] = *b"LDSTSTM\0";
/// Version of the format that this code writes, and the newest it reads.
pub const VERSION: u32 = 3;

const CLOCK_OFFSET: u64 = 256;
const SYSTEM_OFFSET: u64 = 512;
const TABLE_OFFSET: u64 = 1024;
/// Shape of the system object: two pointers.
pub const SYSTEM_SHAPE: Shape = Shape::pair(16);
const _: () =
    assert!(SYSTEM_OFFSET + u32_to_u64(SYSTEM_SHAPE.cell_bytes) <= TABLE_OFFSET, "the system cell has its own lines");

/// The header line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HeaderLine {
    magic: [u8; 8],
    version: u32,
    threads_max: u32,
    record_bytes: u32,
    table_bytes: u32,
    slab_bytes: u32,
    directory_bytes: u32,
    records: u64,
    /// The first block of each chain of the directory.
    directory: [u64; 2],
    zero: [u8; 4],
    crc: u32,
}

const _: () = assert!(to_u64(size_of::<HeaderLine>()) == LINE_BYTES, "the header fills one line");

impl HeaderLine {
    fn checksum(&self) -> u32 {
        let bytes = self.as_bytes();
        crc32c::crc32c(&bytes[..bytes.len() - 4])
    }

    /// Whether the sizes are such as options allow.
    fn is_sane(&self) -> bool {
        self.options().check().is_ok() && self.zero == [0; 4]
    }

    /// Bytes of a half of the header block.
    fn half_bytes(&self) -> u64 {
        TABLE_OFFSET + u64::from(self.table_bytes)
    }

    fn options(&self) -> StmOptions {
        StmOptions {
            threads_max: u16::try_from(self.threads_max).unwrap_or(0),
            record_bytes: self.record_bytes,
            table_bytes: self.table_bytes,
            slab_bytes: self.slab_bytes,
            directory_bytes: self.directory_bytes,
            ..StmOptions::default()
        }
    }
}

/// All places, from an intact header.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    pub header: PmAddr,
    line: HeaderLine,
}

impl Places {
    /// The options that the memory was made with.
    pub fn options(&self) -> StmOptions {
        self.line.options()
    }

    pub fn threads_max(&self) -> u16 {
        exact_u16(self.line.threads_max)
    }

    pub fn slab_bytes(&self) -> u64 {
        u64::from(self.line.slab_bytes)
    }

    /// The halves of the header block.
    pub fn halves(&self) -> [PmAddr; 2] {
        [self.header, self.header.plus(self.line.half_bytes())]
    }

    pub fn lives(&self) -> LivesLayout {
        LivesLayout {
            state: self.halves().map(|half| half.plus(CLOCK_OFFSET)),
            table: self.halves().map(|half| half.plus(TABLE_OFFSET)),
            table_bytes: u64::from(self.line.table_bytes),
        }
    }

    /// Header lines that are not what they should be. The other one is.
    pub fn damaged_lines(&self, memory: &Memory) -> Vec<PmAddr> {
        copies::damaged(memory, self.halves(), &self.line)
    }

    /// Makes a damaged header line whole again, and flushes it. Returns how many were.
    pub fn heal(&self, memory: &Memory) -> u32 {
        exact_u32(copies::heal(memory, self.halves(), &self.line))
    }

    pub fn system(&self) -> PmAddr {
        self.header.plus(SYSTEM_OFFSET)
    }

    pub fn buffers(&self, writer: Writer) -> Buffers {
        let bytes = u64::from(self.line.record_bytes);
        Buffers { at: PmAddr::from_raw(self.line.records).plus(u64::from(writer.number()) * 2 * bytes), bytes }
    }

    /// Blocks of the heap outside the slabs, with their bytes. Directory blocks after the first of each chain are not
    /// included.
    pub fn areas(&self) -> [(PmAddr, u64); 4] {
        let records_bytes = u64::from(self.line.threads_max) * 2 * u64::from(self.line.record_bytes);
        let [first, second] = self.directory();
        [
            (self.header, 2 * self.line.half_bytes()),
            (PmAddr::from_raw(self.line.records), records_bytes),
            (first, self.directory_bytes()),
            (second, self.directory_bytes()),
        ]
    }

    /// The fault in the places, whose sizes are sane.
    fn nonsense(&self, memory: &Memory) -> Option<&'static str> {
        let areas = self.areas();
        let outside =
            |&(at, bytes): &(PmAddr, u64)| !at.offset().is_multiple_of(LINE_BYTES) || !memory.contains(at, bytes);
        if areas.iter().any(outside) {
            return Some("it names places outside the pool");
        }
        let overlaps = |number: usize| areas[..number].iter().any(|&other| overlap(other, areas[number]));
        (1..areas.len()).any(overlaps).then_some("it names places that overlap")
    }

    /// The first block of each chain of the directory.
    pub fn directory(&self) -> [PmAddr; 2] {
        self.line.directory.map(PmAddr::from_raw)
    }

    pub fn directory_bytes(&self) -> u64 {
        u64::from(self.line.directory_bytes)
    }
}

/// Reads the header at `header`, the place of the object. The first line counts, or the second where that is damaged.
pub fn read(heap: &Heap, header: PmAddr) -> Result<Places> {
    let memory = heap.memory();
    let damaged = |finding: String| Error::Damaged {
        path: heap.pool().path().to_owned(),
        what: "header of the transactional memory",
        at: header,
        finding,
    };
    if !header.offset().is_multiple_of(LINE_BYTES) || !memory.contains(header, TABLE_OFFSET) {
        return Err(damaged("its name leads nowhere".into()));
    }
    let intact = |at: PmAddr| {
        let line: HeaderLine = memory.get(PmPtr::new(at));
        (line.magic == MAGIC && line.crc == line.checksum()).then_some(line)
    };
    let Some(line) = intact(header).or_else(|| second_line(heap, header, intact)) else {
        return Err(damaged("wrong magic or checksum".into()));
    };
    if line.version != VERSION {
        let (path, what) = (heap.pool().path().to_owned(), "header of the transactional memory");
        let (at, found, known) = (header, line.version, VERSION);
        return Err(lodestone_pmem::Error::OtherVersion { path, what, at, found, known }.into());
    }
    if !line.is_sane() {
        return Err(damaged("its sizes are outside the limits of the options".into()));
    }
    let places = Places { header, line };
    if let Some(finding) = places.nonsense(memory) {
        return Err(damaged(finding.into()));
    }
    // Now that the line says where the second one is.
    let verifies = |line: &HeaderLine| line.magic == MAGIC && line.crc == line.checksum();
    copies::read(memory, places.halves(), verifies).map_err(|finding| damaged(finding.into()))?;
    Ok(places)
}

/// Looks for the header line of the second half, whose place depends on the sizes in the line itself.
fn second_line(heap: &Heap, header: PmAddr, intact: impl Fn(PmAddr) -> Option<HeaderLine>) -> Option<HeaderLine> {
    let block_bytes = heap.block_bytes(header)?;
    let at_its_place = |offset: u64| intact(header.plus(offset)).filter(|line| line.half_bytes() == offset);
    (TABLE_OFFSET..block_bytes).step_by(to_usize(LINE_BYTES)).find_map(at_its_place)
}

/// Makes header, clock, records and directory as part of `action`, which also makes the memory's name. Returns the
/// place of the header.
pub fn make(heap: &Heap, action: &mut Action<'_>, options: &StmOptions) -> Result<PmAddr> {
    let memory = heap.memory();
    options.check()?;
    let header = action.alloc_zeroed(2 * (TABLE_OFFSET + u64::from(options.table_bytes)))?;
    let records = action.alloc_zeroed(u64::from(options.threads_max) * 2 * u64::from(options.record_bytes))?;
    let directory_bytes = u64::from(options.directory_bytes);
    let directory = Directory::make(heap, action, directory_bytes)?;
    let mut line = HeaderLine::new_zeroed();
    (line.magic, line.version) = (MAGIC, VERSION);
    (line.threads_max, line.record_bytes) = (u32::from(options.threads_max), options.record_bytes);
    (line.table_bytes, line.slab_bytes) = (options.table_bytes, options.slab_bytes);
    line.directory_bytes = options.directory_bytes;
    (line.records, line.directory) = (records.to_raw(), directory.map(PmAddr::to_raw));
    line.crc = line.checksum();
    let places = Places { header, line };
    for half in places.halves() {
        memory.put(PmPtr::new(half), &line);
        // Before the fence of the action that makes the header reachable.
        memory.flush(half, LINE_BYTES);
    }
    Lives::format(memory, &places.lives());
    write_system(memory, places.system());
    Ok(header)
}

/// Writes the first version of the system object, two null pointers, and flushes it. The code that makes it reachable
/// fences.
fn write_system(memory: &Memory, cell: PmAddr) {
    let at = SYSTEM_SHAPE.slot_at(cell, Which::First);
    let flags = SlotFlags { certifies_itself: true, deleted: false };
    let mut slot = [0; SLOT_HEADER_WORDS + 2];
    seal(at, &SlotHeader { tick: Tick(1), writer: Writer::default(), flags, words: 2 }, &mut slot);
    let other = SYSTEM_SHAPE.slot_at(cell, Which::Second);
    for (at, words) in [(at, &slot[..]), (other, &NEVER_WRITTEN[..])] {
        memory.write(at, words.as_bytes());
        // Before the fence of the action that makes the header reachable.
        memory.flush(at, to_u64(words.len()) * 8);
    }
}
