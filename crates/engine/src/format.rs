//! The anchor of a database. `docs/format.md` draws the same map.
//!
//! ```text
//! place of the object -> two halves of 1024 bytes:
//!   0     header line (in both halves)
//!   256   a state line of the clock (lodestone-txn)
//!   512   table of lives (in both halves)
//! directory of the log (lodestone-wal)
//! directory of the pages (lodestone-pages)
//! directory of the cells (lodestone-cells), there twice
//! ```
//!
//! One heap action makes all of it, so all of it exists or none. The header never changes. An open for writing makes a
//! damaged copy whole again.

use lodestone_heap::{Action, Heap};
use lodestone_pages::Pages;
use lodestone_pmem::{LINE_BYTES, Memory, PmAddr, PmPtr};
use lodestone_txn::{Lives, LivesLayout, copies};
use lodestone_wal::Wal;
use lodestone_width::to_u64;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::dual;
use crate::durability::Durability;
use crate::error::{Error, Result};
use crate::options::DatabaseOptions;

const MAGIC: [u8; 8] = *b"LDSTDB\0\0";
const VERSION: u32 = 4;
/// A version without cells, which is read all the same.
const VERSION_WITHOUT_CELLS: u32 = 3;
/// The only flag: the database was made with `Durability::None`.
const WITHOUT_DURABILITY: u32 = 1;
const NO_CELLS: [[u8; 8]; 2] = [[0; 8]; 2];
const HALF_BYTES: u64 = 1024;
const CLOCK_OFFSET: u64 = 256;
const TABLE_OFFSET: u64 = 512;
/// Bytes of the anchor.
pub const ANCHOR_BYTES: u64 = 2 * HALF_BYTES;

/// The header line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct HeaderLine {
    magic: [u8; 8],
    version: u32,
    threads_max: u32,
    log: u64,
    log_bytes: u64,
    pages: u64,
    flags: u32,
    /// The first block of each copy of the directory of cells. Zeros in a database without cells.
    cells: [[u8; 8]; 2],
    crc: u32,
}

const _: () = assert!(to_u64(size_of::<HeaderLine>()) == LINE_BYTES, "the header fills one line");

impl HeaderLine {
    fn checksum(&self) -> u32 {
        let bytes = self.as_bytes();
        crc32c::crc32c(&bytes[..bytes.len() - 4])
    }
}

/// All places, from an intact header.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    pub anchor: PmAddr,
    line: HeaderLine,
    threads_max: u16,
}

impl Places {
    pub fn threads_max(&self) -> u16 {
        self.threads_max
    }

    /// Whether the database was made with `Durability::None`.
    pub fn is_without_durability(&self) -> bool {
        self.line.flags & WITHOUT_DURABILITY != 0
    }

    /// Options with which this database can be opened.
    pub fn options(&self) -> DatabaseOptions {
        let durability = if self.is_without_durability() { Durability::None } else { Durability::Sync };
        DatabaseOptions { durability, ..DatabaseOptions::default() }
    }

    /// The directory of the log.
    pub fn log(&self) -> PmAddr {
        PmAddr::from_raw(self.line.log)
    }

    /// The directory of the pages.
    pub fn pages(&self) -> PmAddr {
        PmAddr::from_raw(self.line.pages)
    }

    /// The first block of each copy of the directory of cells. `None`: there are no cells.
    pub fn cells(&self) -> Option<[PmAddr; 2]> {
        (self.line.cells != NO_CELLS).then(|| self.line.cells.map(|raw| PmAddr::from_raw(u64::from_le_bytes(raw))))
    }

    /// Bytes of all logs, as the options set them.
    pub fn log_bytes(&self) -> u64 {
        self.line.log_bytes
    }

    /// The halves of the anchor, which begin with the copies of the header.
    pub fn halves(&self) -> [PmAddr; 2] {
        halves(self.anchor)
    }

    pub fn lives(&self) -> LivesLayout {
        lives(self.anchor)
    }

    /// Header lines that are not what they should be. The other one is.
    pub fn damaged_lines(&self, memory: &Memory) -> Vec<PmAddr> {
        copies::damaged(memory, self.halves(), &self.line)
    }

    /// Makes a damaged header line whole again, and flushes it. Returns how many were.
    pub fn heal(&self, memory: &Memory) -> usize {
        copies::heal(memory, self.halves(), &self.line)
    }
}

fn halves(anchor: PmAddr) -> [PmAddr; 2] {
    [anchor, anchor.plus(HALF_BYTES)]
}

fn lives(anchor: PmAddr) -> LivesLayout {
    LivesLayout {
        state: halves(anchor).map(|half| half.plus(CLOCK_OFFSET)),
        table: halves(anchor).map(|half| half.plus(TABLE_OFFSET)),
        table_bytes: HALF_BYTES - TABLE_OFFSET,
    }
}

/// Reads the anchor at `anchor`, the place of the object.
///
/// # Errors
/// [`Error::Damaged`].
pub fn read(heap: &Heap, anchor: PmAddr) -> Result<Places> {
    let memory = heap.memory();
    let damaged = |finding: String| Error::Damaged {
        path: heap.pool().path().to_owned(),
        what: "header of the database",
        at: anchor,
        finding,
    };
    if !anchor.offset().is_multiple_of(LINE_BYTES) || !memory.contains(anchor, ANCHOR_BYTES) {
        return Err(damaged("its name leads nowhere".into()));
    }
    let verifies = |line: &HeaderLine| line.magic == MAGIC && line.crc == line.checksum();
    let line = copies::read(memory, halves(anchor), verifies).map_err(|finding| damaged(finding.into()))?;
    if line.version != VERSION && line.version != VERSION_WITHOUT_CELLS {
        let (path, what) = (heap.pool().path().to_owned(), "header of the database");
        let (at, found, known) = (anchor, line.version, VERSION);
        return Err(lodestone_pmem::Error::OtherVersion { path, what, at, found, known }.into());
    }
    let threads_max = u16::try_from(line.threads_max).unwrap_or(0);
    let options = DatabaseOptions { threads_max, ..DatabaseOptions::default() };
    if options.check().is_err()
        || (line.cells == NO_CELLS) != (line.version == VERSION_WITHOUT_CELLS)
        || line.flags & !WITHOUT_DURABILITY != 0
    {
        return Err(damaged("its numbers are outside the limits of the options".into()));
    }
    Ok(Places { anchor, line, threads_max })
}

/// Makes anchor and log as part of `action`, which also makes the name of the database. Returns the place of the
/// anchor.
///
/// # Errors
/// [`Error::BadOption`]; those of the heap.
pub fn make(heap: &Heap, action: &mut Action<'_>, options: &DatabaseOptions) -> Result<PmAddr> {
    options.check()?;
    let memory = heap.memory();
    let anchor = action.alloc_zeroed(ANCHOR_BYTES)?;
    let mut line = HeaderLine::new_zeroed();
    (line.magic, line.version) = (MAGIC, VERSION);
    line.threads_max = options.threads_max.into();
    line.flags = if options.durability.is_none() { WITHOUT_DURABILITY } else { 0 };
    line.log = Wal::make(heap, action, &options.log())?.to_raw();
    line.log_bytes = options.log_bytes;
    line.pages = Pages::make(heap, action, &options.pages())?.to_raw();
    line.cells = dual::make(heap, action)?.map(|block| block.to_raw().to_le_bytes());
    line.crc = line.checksum();
    for half in halves(anchor) {
        memory.put(PmPtr::new(half), &line);
        // Before the fence of the action that makes the anchor reachable.
        memory.flush(half, LINE_BYTES);
    }
    Lives::format(memory, &lives(anchor));
    Ok(anchor)
}
