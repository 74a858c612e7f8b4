//! Rows in cells: the placement `dual`.
//!
//! The row of such a table is in a cell of two slots (`lodestone-cells`), as an object of the transactional memory is.
//! The tree of the table has keys and addresses: its pages and its records name the cell, and the cell has the row.
//!
//! 1. *Update in place*: the slot with the older version is written and flushed before the fence of the commit. So a
//!    row is written once, where a row of another table is written to a log and later to a page.
//! 2. *A transaction of several rows* has a record in the log, with the cell and the slot of each row
//!    ([`EntryKind::Member`]). Record and slots become persistent by one fence, in any order. After a crash a record
//!    counts if it is whole and each of its slots holds its version, or a later one is in the same cell.
//! 3. *A transaction that updates one row* has no record: its version certifies itself, by a flag in the slot. Where a
//!    feed reads the logs it has a record all the same, with the row in it, as every transaction then has. So has the
//!    first one of each writer after a cut through the logs, without the row: a feed that goes on later must notice
//!    (`feed.rs`).
//! 4. *An insert* takes a free cell. *A deletion*, or a row that needs a larger cell, ends the cell by a version
//!    without a row. So the slots say which cells are free, and a crash leaks none. Cells of dropped tables are free
//!    after an open that finds neither pages nor records of their tree.
//!
//! **After a crash.** One transaction of each writer can be under way. If its record is torn, or lacks a slot, then a
//! slot that it has written is a *loser*: whole, and of no transaction. A version of the crashed life counts if it
//! certifies itself, or if its writer has a record of its tick or a later one ([`Verdict`]). The log says which was the
//! last one, also when a checkpoint has cut it off (`lodestone_wal::Opening::tick_before`). An open for writing looks
//! at every cell: it makes losers and torn slots invalid before its life begins. So nothing has to be remembered about
//! them, a version of an earlier life always counts, and a slot that fails its checksum later is damage.
//!
//! Such a record is also taken off the end of its log. It must not be found again when other records follow: what it
//! says about cells is true for this moment only.
//!
//! Rows stay in DRAM as those of other tables do, with the address before the payload. Nothing else of a transaction
//! knows about cells: locks, validation, snapshots and indexes are the same.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{OnceLock, PoisonError};

use lodestone_cells::{CellKind, Directory, Shape, Slab, Version, read_slot};
use lodestone_heap::Heap;
use lodestone_pmem::sync::{Mutex, RwLock, lock};
use lodestone_pmem::{Memory, PmAddr, planted};
use lodestone_txn::record::Member;
use lodestone_txn::{
    RowState, RowWord, SLOT_HEADER_WORDS, SlotFlags, SlotHeader, Tick, Which, Writer, is_erased, seal,
};
use lodestone_wal::{ENTRY_HEAD_BYTES, Entry, EntryKind, Kept, Record};
use lodestone_width::{exact_u32, low_u32, to_u64, to_usize};

use crate::core::Core;
use crate::error::{Error, Result};
use crate::large::PIECES;
use crate::state::State;
use crate::tree::{Bytes, Lookup, Tree};

/// Set in the number of a tree whose rows are in cells.
pub const DUAL: u32 = 1 << 30;
/// Bytes of a directory block.
const DIRECTORY_BYTES: u64 = 256;
/// Bytes of the first slab of a shape.
const SLAB_BYTES: u64 = 4096;
/// Largest slab, in first slabs.
const GROWTH_MAX: u64 = 64;
const WORD_BYTES: usize = 8;
/// Segments of the log that a slab leaves room for at least.
const SPARE_SEGMENTS: u64 = 2;
/// Rows in cells of a transaction whose record is not measured before: it is small.
const UNCOUNTED_ROWS: usize = 64;
/// The row is in this cell from now on.
const HOLDS: u8 = 0;
/// The row is gone, and this cell is free.
const GONE: u8 = 1;
/// The row is in another cell now, and this one is free.
const MOVED: u8 = 2;
/// Bytes of a member entry's value before the row, if it has one: the member, and what becomes of the cell.
const MEMBER_BYTES: usize = 9;

/// Whether the rows of the tree are in cells.
pub const fn is_dual(tree: u32) -> bool {
    tree & (DUAL | PIECES) == DUAL
}

/// Makes an empty directory of cells as part of `action`. Returns the first block of each chain.
///
/// # Errors
/// Those of the heap.
pub fn make(heap: &Heap, action: &mut lodestone_heap::Action<'_>) -> Result<[PmAddr; 2]> {
    Ok(Directory::make(heap, action, DIRECTORY_BYTES)?)
}

/// Which versions in cells count, as the records of a crashed life say.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// The first tick of that life. Versions from before count.
    pub base: Tick,
    /// The last tick that it can have used. Versions after that are of the life that asks, and count.
    pub limit: Tick,
    /// By writer: the tick of the last record that counts. Others had none under way.
    pub last: BTreeMap<u16, Tick>,
    /// Whether the life was cut off.
    pub is_crashed: bool,
}

impl Verdict {
    fn counts(&self, header: &SlotHeader) -> bool {
        let last = || self.last.get(&header.writer.number());
        !self.is_crashed
            || header.flags.certifies_itself
            || header.tick <= self.base
            || header.tick > self.limit
            || last().is_none_or(|last| header.tick <= *last)
            || planted::active("engine-dual-losers-count")
    }

    /// Whether a crash explains a slot with the header `broken` beside a version of tick `other`.
    fn is_torn(&self, broken: &SlotHeader, other: Tick) -> bool {
        let is_known = !broken.flags.certifies_itself && self.counts(broken);
        self.is_crashed && broken.tick != Tick::NEVER && (broken.tick <= other || broken.tick > self.base && !is_known)
    }
}

/// The newest version of a cell.
struct Newest {
    which: Which,
    header: SlotHeader,
    /// Header and payload.
    words: Vec<u64>,
}

/// A cell without a row.
#[derive(Clone, Copy, Debug)]
struct Free {
    cell: PmAddr,
    /// The slot whose version is the newest one, and the tick of that. `None`: no version counts.
    newest: Option<(Which, Tick)>,
}

#[derive(Debug, Default)]
struct Pool {
    free: Vec<Free>,
    slabs: u64,
}

/// All cells of a database.
#[derive(Debug)]
pub struct Cells {
    heap: Heap,
    directory: Mutex<Directory>,
    slabs: RwLock<BTreeMap<PmAddr, Slab>>,
    pools: Mutex<HashMap<Shape, Pool>>,
    verdict: OnceLock<Verdict>,
    /// Cells with a version that the open found to be of no life, and its tick. Updates of such a row, and later rows
    /// in such a cell, would be older than that version.
    lifeless: OnceLock<BTreeMap<PmAddr, Tick>>,
}

impl Cells {
    /// Reads the directory that begins with these blocks.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn open(heap: &Heap, first: [PmAddr; 2]) -> Result<Self> {
        let is_block = |at: &PmAddr| at.offset().is_multiple_of(64) && heap.memory().contains(*at, DIRECTORY_BYTES);
        if !first.iter().all(is_block) || first[0] == first[1] {
            let (path, what) = (heap.pool().path().to_owned(), "directory of cells");
            return Err(Error::Damaged { path, what, at: first[0], finding: "its address leads nowhere".into() });
        }
        let (directory, slabs) =
            Directory::read(heap, first, DIRECTORY_BYTES, first.map(|block| (block, DIRECTORY_BYTES)))?;
        let mut pools: HashMap<Shape, Pool> = HashMap::new();
        slabs.iter().for_each(|slab| pools.entry(slab.shape).or_default().slabs += 1);
        let slabs = slabs.into_iter().map(|slab| (slab.at, slab)).collect();
        let (directory, slabs, pools) = (Mutex::new(directory), RwLock::new(slabs), Mutex::new(pools));
        let (verdict, lifeless) = (OnceLock::new(), OnceLock::new());
        Ok(Self { heap: heap.clone(), directory, slabs, pools, verdict, lifeless })
    }

    /// Lines of one copy of the directory that the open found damaged. The other copy was used.
    pub fn damaged_lines(&self) -> Vec<PmAddr> {
        lock(&self.directory).damaged_lines()
    }

    /// Makes both copies of the directory equal again, and flushes what it writes.
    pub fn heal(&self) -> u32 {
        lock(&self.directory).heal(self.memory())
    }

    /// Whether there is no cell.
    pub fn is_empty(&self) -> bool {
        self.slabs().is_empty()
    }

    /// Blocks of the heap that the cells take, with their bytes.
    pub fn blocks(&self) -> Vec<(PmAddr, u64)> {
        let directory = lock(&self.directory);
        let blocks = directory.blocks().map(|block| (block, DIRECTORY_BYTES));
        self.slabs().values().map(|slab| (slab.at, slab.bytes)).chain(blocks).collect()
    }

    fn memory(&self) -> &Memory {
        self.heap.memory()
    }

    fn slabs(&self) -> lodestone_pmem::sync::RwLockReadGuard<'_, BTreeMap<PmAddr, Slab>> {
        self.slabs.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shape of the cell that begins at `at`.
    fn shape_at(&self, at: PmAddr) -> Option<Shape> {
        let slabs = self.slabs();
        let (_, slab) = slabs.range(..=at).next_back()?;
        let offset = at.offset().checked_sub(slab.at.offset()).filter(|_| at.part() == slab.at.part())?;
        let cell_bytes = u64::from(slab.shape.cell_bytes);
        let is_cell = offset + cell_bytes <= slab.bytes && offset.is_multiple_of(cell_bytes);
        (is_cell && slab.shape.kind == CellKind::Pair).then_some(slab.shape)
    }

    fn damaged(&self, at: PmAddr, finding: String) -> Error {
        Error::Damaged { path: self.heap.pool().path().to_owned(), what: "cell", at, finding }
    }

    /// Says which versions count. Before the first cell is read.
    pub fn judge(&self, verdict: Verdict) {
        self.verdict.get_or_init(|| verdict);
    }

    fn verdict(&self) -> &Verdict {
        self.verdict.get_or_init(Verdict::default)
    }

    /// Whether the slot of a member holds the version of `tick`, or its cell a later one.
    pub fn holds(&self, member: Member, tick: Tick, writer: Writer) -> bool {
        let Some(shape) = self.shape_at(member.object()) else { return false };
        let mut scratch = Vec::new();
        let mut version =
            |which| match read_slot(self.memory(), |_| true, (shape, member.object(), which), &mut scratch) {
                Version::Counts(header) => Some(header),
                _ => None,
            };
        let (own, other) = (version(member.slot()), version(member.slot().other()));
        let is_own = own.is_some_and(|header| header.tick == tick && header.writer == writer);
        is_own
            || own.into_iter().chain(other).any(|header| header.tick > tick)
            || planted::active("engine-dual-members-unchecked")
    }

    /// The newest version of a cell that counts.
    ///
    /// # Errors
    /// A slot that fails its checksum, and no crash explains that; a version of no life.
    fn newest(&self, shape: Shape, cell: PmAddr) -> Result<Option<Newest>> {
        if let Some(tick) = self.lifeless.get().and_then(|lifeless| lifeless.get(&cell)) {
            return Err(self.damaged(cell, format!("it has a version of {tick}, and no life has reached that")));
        }
        let (mut newest, mut broken): (Option<Newest>, _) = (None, Vec::new());
        for which in [Which::First, Which::Second] {
            let mut words = Vec::new();
            let counts = |header: &SlotHeader| self.verdict().counts(header);
            match read_slot(self.memory(), counts, (shape, cell, which), &mut words) {
                Version::Counts(header) if newest.as_ref().is_none_or(|newest| header.tick > newest.header.tick) => {
                    newest = Some(Newest { which, header, words });
                }
                Version::Broken(header) => broken.push((which, header)),
                Version::Counts(_) | Version::Absent | Version::Lost(_) => {}
            }
        }
        let other = newest.as_ref().map_or(Tick::NEVER, |newest| newest.header.tick);
        match broken.into_iter().find(|(_, header)| !self.verdict().is_torn(header, other)) {
            Some((which, _)) => Err(self.damaged(shape.slot_at(cell, which), "a slot fails its checksum".into())),
            None => Ok(newest),
        }
    }

    /// The row of `tree` with `key`, in the cell that its page or its record names. Returns its version, and the
    /// payload with the address.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn load(&self, tree: u32, key: &[u8], reference: &[u8]) -> Result<(SlotHeader, Bytes)> {
        let cell = address(reference).unwrap_or(PmAddr::NULL);
        let named = || format!("of the row `{}` of tree {tree}", key.escape_ascii());
        let Some(shape) = self.shape_at(cell) else {
            return Err(self.damaged(cell, format!("the address {} leads to no cell", named())));
        };
        let found = self.newest(shape, cell).map_err(|error| match error {
            Error::Damaged { path, what, at, finding } => {
                Error::Damaged { path, what, at, finding: format!("{finding}: it is {}", named()) }
            }
            other => other,
        })?;
        let row = found.as_ref().filter(|found| !found.header.flags.deleted);
        let Some((found, payload)) = row.and_then(|found| Some((found, decode(tree, key, &found.words)?))) else {
            return Err(self.damaged(cell, format!("it has no row, and is that {}", named())));
        };
        Ok((found.header, Bytes::tagged(Member::new(cell, found.which).to_raw(), &payload)))
    }

    /// Looks at every cell: finds those with a version of no life and, for a life that writes, makes the slots invalid
    /// that count for nothing, and finds the free cells. `trees`: those with pages or records. Nothing else writes
    /// cells meanwhile. The slots are flushed, not fenced: this thread fences before the next life begins, in which
    /// they would count.
    ///
    /// A cell that is damaged is left as it is: the first use of its row names it.
    pub fn sweep(&self, trees: &BTreeSet<u32>) {
        let slabs = self.slabs().values().copied().collect::<Vec<_>>();
        let mut lifeless = BTreeMap::new();
        for slab in slabs.iter().filter(|slab| slab.shape.kind == CellKind::Pair) {
            let mut free = Vec::new();
            for cell in slab.cells() {
                if let Some(tick) = self.latest(slab.shape, cell).filter(|tick| *tick > self.verdict().limit) {
                    lifeless.insert(cell, tick);
                    continue;
                }
                let Ok(newest) = self.newest(slab.shape, cell) else { continue };
                if self.memory().is_read_only() {
                    continue;
                }
                if self.verdict().is_crashed {
                    self.clear_losers(slab.shape, cell);
                }
                let is_used = newest.as_ref().is_some_and(|newest| {
                    !newest.header.flags.deleted && owner(&newest.words).is_none_or(|tree| trees.contains(&tree))
                });
                let newest = newest.map(|newest| (newest.which, newest.header.tick));
                free.extend((!is_used).then_some(Free { cell, newest }));
            }
            // The last is taken first: ascending addresses.
            free.reverse();
            lock(&self.pools).entry(slab.shape).or_default().free.append(&mut free);
        }
        let _ = self.lifeless.set(lifeless);
    }

    /// The largest tick of a cell's versions, whether they count or not.
    fn latest(&self, shape: Shape, cell: PmAddr) -> Option<Tick> {
        let mut scratch = Vec::new();
        let version = |which| match read_slot(self.memory(), |_| true, (shape, cell, which), &mut scratch) {
            Version::Counts(header) => Some(header.tick),
            _ => None,
        };
        [Which::First, Which::Second].into_iter().filter_map(version).max()
    }

    /// Words about cells with versions of no life, for a check.
    fn lifeless(&self) -> impl Iterator<Item = String> {
        let found = self.lifeless.get().into_iter().flatten();
        found.map(|(cell, tick)| format!("the cell at {cell} has a version of {tick}, and no life has reached that"))
    }

    fn clear_losers(&self, shape: Shape, cell: PmAddr) {
        let mut scratch = Vec::new();
        for which in [Which::First, Which::Second] {
            let counts = |header: &SlotHeader| self.verdict().counts(header);
            let version = read_slot(self.memory(), counts, (shape, cell, which), &mut scratch);
            let at = shape.slot_at(cell, which);
            let is_loser = matches!(version, Version::Lost(_) | Version::Broken(_))
                && !is_erased(self.memory().load(at), self.memory().load(at.plus(8)))
                && !planted::active("engine-dual-losers-kept");
            if is_loser {
                self.memory().store(at, 0);
                // Before the fences that the end of the logs and the next life have.
                self.memory().flush(at, 8);
            }
        }
    }

    /// A cell without a row.
    ///
    /// # Errors
    /// A full pool.
    fn take(&self, core: &Core, shape: Shape) -> Result<Free> {
        if let Some(free) = lock(&self.pools).entry(shape).or_default().free.pop() {
            return Ok(free);
        }
        let mut directory = lock(&self.directory);
        // Another thread may have made some meanwhile.
        let slabs = {
            let mut pools = lock(&self.pools);
            let pool = pools.entry(shape).or_default();
            if let Some(free) = pool.free.pop() {
                return Ok(free);
            }
            pool.slabs
        };
        let growth = (slabs / 4).next_power_of_two().clamp(1, GROWTH_MAX);
        self.find_room(core, SLAB_BYTES * growth)?;
        let slab = directory.add(&self.heap, shape, SLAB_BYTES * growth)?;
        self.slabs.write().unwrap_or_else(PoisonError::into_inner).insert(slab.at, slab);
        let mut pools = lock(&self.pools);
        let pool = pools.entry(shape).or_default();
        pool.slabs += 1;
        let mut cells = slab.cells().map(|cell| Free { cell, newest: None });
        let first = cells.next();
        pool.free.extend(cells.rev());
        first.ok_or_else(|| self.damaged(slab.at, "a slab has no cell".into()))
    }

    /// Looks for room for a slab, and leaves some for the logs, as loads do: a slab stays, so without that commits
    /// would end in error for good.
    fn find_room(&self, core: &Core, bytes: u64) -> Result<()> {
        let log = core.wal.stats();
        let spare = (log.segments - log.segments_free).max(SPARE_SEGMENTS).saturating_sub(log.segments_free);
        // An action reserves blocks, and is dropped.
        let mut trial = self.heap.action();
        trial.alloc(bytes)?;
        (0..spare).try_for_each(|_| Ok(trial.alloc(log.segment_bytes).map(drop)?))
    }

    fn give(&self, shape: Shape, free: Free) {
        lock(&self.pools).entry(shape).or_default().free.push(free);
    }
}

/// The address in a page or a record.
fn address(reference: &[u8]) -> Option<PmAddr> {
    let (raw, _) = reference.split_first_chunk()?;
    Some(Member::from_raw(u64::from_le_bytes(*raw)).object())
}

/// The bytes that a page has of a row: the address of its cell.
pub fn reference(payload: &Bytes) -> Bytes {
    Member::from_raw(payload.tag()).object().to_raw().to_le_bytes().into()
}

/// The payload of a version: two words about the row, and the row.
fn encode(tree: u32, key: &[u8], payload: &[u8]) -> Vec<u64> {
    let about = u64::from(exact_u32(payload.len())) | u64::from(tree) << 32;
    let mut words = vec![0; SLOT_HEADER_WORDS];
    words.extend([about, u64::from(crc32c::crc32c(key))]);
    words.extend(payload.chunks(WORD_BYTES).map(|chunk| {
        let mut word = [0; WORD_BYTES];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    }));
    words
}

/// The tree whose row the version is.
fn owner(words: &[u64]) -> Option<u32> {
    words.get(SLOT_HEADER_WORDS).map(|about| low_u32(*about >> 32))
}

/// The row in a version, if it is that of this key.
fn decode(tree: u32, key: &[u8], words: &[u64]) -> Option<Vec<u8>> {
    let [about, crc, row @ ..] = words.get(SLOT_HEADER_WORDS..)? else { return None };
    let bytes = to_usize(u64::from(low_u32(*about)));
    let is_of_row = low_u32(*about >> 32) == tree && *crc == u64::from(crc32c::crc32c(key));
    if !is_of_row || bytes.div_ceil(WORD_BYTES) != row.len() {
        return None;
    }
    let mut payload: Vec<u8> = row.iter().flat_map(|word| word.to_le_bytes()).collect();
    payload.truncate(bytes);
    Some(payload)
}

/// A member entry of a record.
#[derive(Clone, Copy, Debug)]
pub struct MemberEntry<'e> {
    /// The slot that was written.
    pub member: Member,
    /// The fate of the cell.
    state: u8,
    /// The row, where a feed was reading.
    row: Option<&'e [u8]>,
    value: &'e [u8],
}

impl<'e> MemberEntry<'e> {
    /// Reads the value of an entry. `None` for bytes that no commit writes.
    pub fn read(value: &'e [u8]) -> Option<Self> {
        let (raw, rest) = value.split_first_chunk()?;
        let (state, rest) = rest.split_first()?;
        let member = Member::from_raw(u64::from_le_bytes(*raw));
        // A row is told apart from none by the highest bit.
        let row = (state & HAS_ROW != 0).then_some(rest);
        let state = state & !HAS_ROW;
        let is_right = state <= MOVED && (rest.is_empty() || row.is_some() && state == HOLDS);
        is_right.then_some(Self { member, state, row, value })
    }

    /// The change of the tree, as an entry of a tree of addresses. `None`: there is none.
    pub fn change(&self, entry: Entry<'e>) -> Option<Entry<'e>> {
        match self.state {
            HOLDS => Some(Entry { kind: EntryKind::Put, value: &self.value[..WORD_BYTES], ..entry }),
            GONE => Some(Entry { kind: EntryKind::Delete, value: &[], ..entry }),
            _ => None,
        }
    }

    /// The row after the transaction, for a feed; `None`: the record does not have it.
    pub fn row(&self) -> Option<Option<&'e [u8]>> {
        match self.state {
            HOLDS => self.row.map(Some),
            _ => Some(None),
        }
    }

    /// Whether the entry says something about its row.
    pub fn is_change(&self) -> bool {
        self.state != MOVED
    }
}

/// In the state of a member entry: the row follows.
const HAS_ROW: u8 = 1 << 7;

/// Whether each slot that the last record of a log names holds the version of `tick`, or its cell a later one.
pub fn is_whole(cells: &Cells, kept: &Kept, tick: Tick, writer: Writer) -> bool {
    let last = kept.len().checked_sub(1).and_then(|last| kept.records(last..last + 1).next());
    let entries = last.filter(|(of, _)| *of == tick).map(|(_, entries)| entries).into_iter().flatten();
    let mut members =
        entries.filter(|entry| entry.kind == EntryKind::Member).filter_map(|entry| MemberEntry::read(entry.value));
    members.all(|member| cells.holds(member.member, tick, writer))
}

/// The version on which an entry of a record relies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// None: it has all of the row.
    Any,
    /// This one.
    Version(RowWord),
    /// There is no row.
    Nothing,
}

/// A slot that a commit writes.
#[derive(Debug)]
struct Write {
    shape: Shape,
    at: Member,
    /// The number of the change, and the row. `None`: the cell ends.
    row: Option<(usize, Bytes)>,
    /// Header and payload; the header is not filled in.
    words: Vec<u64>,
    /// A cell that the commit has taken.
    taken: Option<Free>,
}

/// The slots that a commit writes. Cells that it has taken go back when it is dropped before [`Plan::settle`].
#[derive(Debug)]
pub struct Plan<'c> {
    core: &'c Core,
    cells: Option<&'c Cells>,
    writes: Vec<Write>,
    /// Whether the rows are in the record as well.
    has_rows: bool,
    /// Whether rows of other tables are in the record by what has changed alone.
    pub has_deltas: bool,
    /// Whether a transaction that updates one row may have no record.
    may_be_alone: bool,
    is_alone: bool,
}

impl<'c> Plan<'c> {
    /// No slots. `has_rows`: a feed needs the rows in the record. `is_traced`: the log says already that rows have
    /// changed since the last cut, and not how.
    pub fn new(core: &'c Core, has_rows: bool, is_traced: bool) -> Self {
        let may_be_alone = is_traced && !has_rows;
        let (cells, writes) = (core.cells.as_deref(), Vec::new());
        Self { core, cells, writes, has_rows, has_deltas: false, may_be_alone, is_alone: false }
    }

    /// Refuses a transaction whose record cannot fit, before it takes a cell: the slabs that it would make stay.
    ///
    /// # Errors
    /// [`Error::TransactionTooLarge`], with as many bytes as its rows in cells have at least.
    pub fn refuse_too_large(&self, state: &State) -> Result<()> {
        let in_cells = || state.changes.iter().filter(|(tree, _)| is_dual(**tree)).map(|(_, changes)| changes);
        if in_cells().map(|changes| changes.rows.len()).sum::<usize>() <= UNCOUNTED_ROWS {
            return Ok(());
        }
        let bytes = |(key, payload): (&Bytes, &Option<Bytes>)| {
            let row = payload.as_ref().map(|row| MEMBER_BYTES + if self.has_rows { row.len() } else { 0 });
            ENTRY_HEAD_BYTES + key.len() + row.unwrap_or(0)
        };
        let bytes = to_u64(in_cells().flat_map(|changes| &changes.rows).map(bytes).sum::<usize>());
        let limit = self.core.wal.record_bytes_max();
        if bytes > limit { Err(Error::TransactionTooLarge { bytes, limit }) } else { Ok(()) }
    }

    /// Whether the record says that rows have changed, and not how.
    pub fn lacks_rows(&self) -> bool {
        !self.writes.is_empty() && !self.has_rows
    }

    /// Whether the record has all rows of the transaction, as a feed needs them.
    pub fn has_all_rows(&self) -> bool {
        !self.has_deltas && !self.lacks_rows()
    }

    /// Whether the transaction updates one row in its cell, and so needs no record.
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Notes that the transaction changes so many rows in all.
    pub fn note_changes(&mut self, changes: usize) {
        let is_update = |write: &Write| write.row.is_some() && write.taken.is_none();
        let is_one = changes == 1 && self.writes.len() == 1 && self.writes.iter().all(is_update);
        self.is_alone = is_one && self.may_be_alone;
    }

    /// Adds the change number `number` of a transaction, of the row with `key`, to the plan and to the record. Returns
    /// the version on which both rely.
    ///
    /// # Errors
    /// [`Error::Conflict`]: the row is under commit. A full pool.
    pub fn add(
        &mut self,
        tree: &Tree,
        (number, key): (usize, &Bytes),
        payload: Option<&Bytes>,
        record: &mut Record,
    ) -> Result<Base> {
        let Some(cells) = self.cells else { return Err(Error::Conflict) };
        let now = match tree.find(key)? {
            Lookup::Slot(slot) => Some(slot.read().ok_or(Error::Conflict)?).filter(|(word, _)| !word.is_absent()),
            Lookup::Nothing(_) => None,
        };
        let base = now.as_ref().map_or(Base::Nothing, |(word, _)| Base::Version(*word));
        let old = now.map(|(_, payload)| Member::from_raw(payload.tag()));
        let old = old.and_then(|old| Some((old, cells.shape_at(old.object())?)));
        let mut push = |member: Member, state: u8, row: &[u8]| {
            let value = [&member.to_raw().to_le_bytes()[..], &[state], row].concat();
            debug_assert!(value.len() >= MEMBER_BYTES);
            record.push(&Entry { tree: tree.number, kind: EntryKind::Member, key, value: &value })
        };
        let Some(payload) = payload else {
            match old {
                Some((old, shape)) => {
                    let at = self.end(shape, old);
                    push(at, GONE, &[])?;
                }
                None => record.delete(tree.number, key)?,
            }
            return Ok(base);
        };
        let words = encode(tree.number, key, payload);
        let needed = exact_u32(words.len() - SLOT_HEADER_WORDS);
        let row = Some((number, payload.clone()));
        let at = match old {
            Some((old, shape))
                if needed <= shape.slot_words(old.slot().other()) && needed <= shape.slot_words(old.slot()) =>
            {
                let at = Member::new(old.object(), next_slot(Some(old.slot())));
                self.writes.push(Write { shape, at, row, words, taken: None });
                at
            }
            _ => {
                let shape = Shape::pair(needed * 8);
                let free = cells.take(self.core, shape)?;
                let at = Member::new(free.cell, next_slot(free.newest.map(|(which, _)| which)));
                self.writes.push(Write { shape, at, row, words, taken: Some(free) });
                if let Some((old, shape)) = old {
                    let ended = self.end(shape, old);
                    push(ended, MOVED, &[])?;
                }
                at
            }
        };
        if self.has_rows {
            push(at, HOLDS | HAS_ROW, payload)?
        } else {
            push(at, HOLDS, &[])?
        }
        Ok(base)
    }

    /// Ends the cell whose newest version is in the slot `old`.
    fn end(&mut self, shape: Shape, old: Member) -> Member {
        let at = Member::new(old.object(), next_slot(Some(old.slot())));
        self.writes.push(Write { shape, at, row: None, words: vec![0; SLOT_HEADER_WORDS], taken: None });
        at
    }

    /// Writes and flushes all slots. The caller fences.
    pub fn write(&mut self, tick: Tick, writer: Writer) {
        let (Some(cells), is_alone) = (self.cells, self.is_alone) else { return };
        let certifies_itself = is_alone || planted::active("engine-dual-all-certify-themselves");
        for Write { shape, at, row, words, .. } in &mut self.writes {
            let slot = shape.slot_at(at.object(), at.slot());
            let flags = SlotFlags { certifies_itself, deleted: row.is_none() };
            let header = SlotHeader { tick, writer, flags, words: exact_u32(words.len() - SLOT_HEADER_WORDS) };
            seal(slot, &header, words);
            // Before the one fence of the commit, after which the transaction counts. The tick last: with the writer of
            // the version before it would look like a version that counts and is damaged.
            cells.memory().write_first_last_and_flush(slot, words);
        }
    }

    /// The rows with their addresses, by the number of the change.
    pub fn rows(&self) -> impl Iterator<Item = (usize, Bytes)> {
        self.writes.iter().filter_map(|write| {
            let (number, payload) = write.row.as_ref()?;
            Some((*number, Bytes::tagged(write.at.to_raw(), payload)))
        })
    }

    /// The latest version in the cells that the commit has taken. Its own must be later, also where nothing else of it
    /// depends on the row that was there: the newest version of a cell is that with the largest tick.
    pub fn floor(&self) -> Tick {
        let taken = self.writes.iter().filter_map(|write| write.taken?.newest);
        let floor = taken.map(|(_, tick)| tick).max().unwrap_or(Tick::NEVER);
        if planted::active("engine-dual-no-floor") { Tick::NEVER } else { floor }
    }

    /// The transaction of `tick` counts: the cells that ended are free.
    pub fn settle(mut self, tick: Tick) {
        let Some(cells) = self.cells else { return };
        for Write { shape, at, row, .. } in std::mem::take(&mut self.writes) {
            if row.is_none() {
                cells.give(shape, Free { cell: at.object(), newest: Some((at.slot(), tick)) });
            }
        }
    }
}

impl Drop for Plan<'_> {
    fn drop(&mut self) {
        let Some(cells) = self.cells else { return };
        for Write { shape, taken, .. } in self.writes.drain(..) {
            taken.into_iter().for_each(|free| cells.give(shape, free));
        }
    }
}

/// Words about cells that two rows have, and about versions of no life, for a check. All rows are in DRAM, and nothing
/// changes.
pub fn findings(core: &Core) -> Vec<String> {
    let mut findings: Vec<_> = core.cells.iter().flat_map(|cells| cells.lifeless()).collect();
    let mut owners = BTreeMap::new();
    for tree in core.trees().into_iter().filter(|tree| is_dual(tree.number)) {
        // A damaged leaf was named when it was loaded.
        let slots = tree.slots_between(&[], None).unwrap_or_default();
        for (word, payload) in slots.iter().filter_map(|slot| slot.read()).filter(|(word, _)| !word.is_absent()) {
            debug_assert!(word.state() != RowState::Locked);
            let cell = Member::from_raw(payload.tag()).object();
            if let Some(other) = owners.insert(cell, tree.number) {
                findings.push(format!("the cell at {cell} has two rows, of trees {other} and {}", tree.number));
            }
        }
    }
    findings
}

/// The slot for the next version.
fn next_slot(newest: Option<Which>) -> Which {
    match newest {
        None => Which::First,
        Some(which) if planted::active("engine-dual-overwrites-newest") => which,
        Some(which) => which.other(),
    }
}

/// Whether a row under commit is what an entry relies on.
pub fn is_base(base: Base, seen: RowWord, is_claimed: bool) -> bool {
    match base {
        Base::Any => true,
        Base::Version(word) => !is_claimed && seen.same_version(word),
        Base::Nothing => is_claimed || seen.is_absent() || seen.state() == RowState::Absent,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_row_comes_back_for_its_key_and_its_tree_alone(
            tree in 0..u32::MAX,
            key in prop::collection::vec(any::<u8>(), 0..20),
            row in prop::collection::vec(any::<u8>(), 0..70),
        ) {
            let words = encode(tree, &key, &row);
            prop_assert_eq!(decode(tree, &key, &words), Some(row));
            prop_assert_eq!(owner(&words), Some(tree));
            prop_assert_eq!(decode(tree + 1, &key, &words), None);
            prop_assert_eq!(decode(tree, &[&key[..], &[7]].concat(), &words), None);
        }

        #[test]
        fn any_words_and_any_bytes_are_read_without_a_panic(
            words in prop::collection::vec(0..20_u64, 0..9),
            bytes in prop::collection::vec(0..9_u8, 0..30),
        ) {
            let _ = (decode(0, &[], &words), owner(&words), address(&bytes));
            if let Some(member) = MemberEntry::read(&bytes) {
                let entry = Entry { tree: DUAL, kind: EntryKind::Member, key: &[], value: &bytes };
                prop_assert_eq!(member.change(entry).is_some(), member.is_change());
            }
        }
    }

    #[test]
    fn a_member_says_what_becomes_of_its_cell() {
        let value = |state: u8, row: &[u8]| [&7_u64.to_le_bytes()[..], &[state], row].concat();
        let holds = value(HOLDS, &[]);
        let holds = MemberEntry::read(&holds).expect("right");
        assert_eq!((holds.member.slot(), holds.row()), (Which::Second, None));
        let with_row = value(HOLDS | HAS_ROW, b"row");
        assert_eq!(MemberEntry::read(&with_row).expect("right").row(), Some(Some(&b"row"[..])));
        let empty_row = value(HOLDS | HAS_ROW, b"");
        assert_eq!(MemberEntry::read(&empty_row).expect("right").row(), Some(Some(&b""[..])));
        let gone = value(GONE, &[]);
        assert_eq!(MemberEntry::read(&gone).expect("right").row(), Some(None));
        assert!(!MemberEntry::read(&value(MOVED, &[])).expect("right").is_change());
        for wrong in [value(3, &[]), value(HOLDS, b"row"), value(GONE | HAS_ROW, b"row"), vec![0; 8], Vec::new()] {
            assert!(MemberEntry::read(&wrong).is_none(), "{wrong:?}");
        }
    }
}
