//! The source of cells: slabs of cells of one shape, made by the heap once and kept.
//!
//! There is no bitmap. A cell is free when its newest version that counts says "deleted", or when it has none. So the
//! same slot, hence the same fence, decides about the object and about its cell. An allocation that does not commit
//! needs no undo, and a crash leaks nothing.
//!
//! 1. *Take*: a thread takes free cells in batches from the shape's pool. When the pool is empty, a few slabs that this
//!    life has not looked at are scanned. When those have nothing free, the heap allocates a new slab, whose slots say
//!    that they were never written, with an entry in the directory (one heap action). When the heap is full, all
//!    remaining slabs are scanned.
//! 2. *Give*: a cell is returned when the transaction that freed it is durable. No grace period is needed, because a
//!    cell never changes its shape. A reader that still follows an old pointer finds a version word that its validation
//!    refuses. A snapshot finds that the versions are too new.
//! 3. *Open* reads the directory, 16 bytes per slab. Slabs grow with the number of their kind, so that is little.
//!
//! The directory is there twice: two chains of blocks with the same entries. Each action that changes it changes both,
//! so no crash leaves them different. An entry or a link that fails its checksum is read in the other chain, and
//! written again by an open for writing. Unused entries have a checksum too: a lost line is not taken for the end.
//!
//! Invariants:
//! - both chains have as many blocks, and equal entries at equal places;
//! - a cell is in at most one list, and only while no object is in it;
//! - a thread that reuses a cell takes a tick above its last version's, so a record that names the cell's former object
//!   still finds its evidence.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use lodestone_heap::Heap;
use lodestone_pmem::sync::atomic::{AtomicUsize, Ordering};
use lodestone_pmem::sync::{Mutex, RwLock, lock};
use lodestone_pmem::{LINE_BYTES, Memory, PmAddr, WORD_BYTES, checked};
use lodestone_txn::{NEVER_WRITTEN, SLOT_HEADER_WORDS, Which};
use lodestone_width::{exact_u32, to_usize};
use zerocopy::IntoBytes;

use crate::error::{Error, Result};
use crate::format::{Places, overlap};
use crate::shape::{CellKind, Shape};

/// Slabs that one allocation scans before it asks the heap for a new one.
const SCANS: usize = 4;
/// Largest slab, in first slabs.
const GROWTH_MAX: u64 = 16;
const CHAINS: usize = 2;
const ENTRIES_OFFSET: u64 = 16;
const ENTRY_BYTES: u64 = 16;
const KIND_BITS: u32 = 2;
const LINES_BITS: u32 = 23;

/// A slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slab {
    pub at: PmAddr,
    pub bytes: u64,
    pub shape: Shape,
}

impl Slab {
    pub fn cells(&self) -> impl DoubleEndedIterator<Item = PmAddr> + use<> {
        let (at, bytes) = (self.at, u64::from(self.shape.cell_bytes));
        (0..self.bytes / bytes).map(move |index| at.plus(index * bytes))
    }

    /// The two words of its entry at `at`.
    fn entry(&self, at: PmAddr) -> [u64; 2] {
        [checked::encode_addr(at, self.at), self.encode(at.plus(WORD_BYTES))]
    }

    fn encode(&self, at: PmAddr) -> u64 {
        let kind = match self.shape.kind {
            CellKind::Pair => 1,
            CellKind::Single => 2,
            CellKind::Spill => 3,
        };
        let lines = u64::from(self.shape.cell_bytes) / LINE_BYTES;
        checked::encode(at, kind | (lines << KIND_BITS) | ((self.bytes / LINE_BYTES) << (KIND_BITS + LINES_BITS)))
    }

    fn decode(at: PmAddr, payload: u64) -> Option<Self> {
        let kind = match payload & 3 {
            1 => CellKind::Pair,
            2 => CellKind::Single,
            3 => CellKind::Spill,
            _ => return None,
        };
        let lines = (payload >> KIND_BITS) & ((1 << LINES_BITS) - 1);
        let bytes = (payload >> (KIND_BITS + LINES_BITS)) * LINE_BYTES;
        let cell_bytes = u32::try_from(lines * LINE_BYTES).ok()?;
        let slab = Self { at, bytes, shape: Shape { kind, cell_bytes } };
        (cell_bytes > 0 && bytes >= u64::from(cell_bytes)).then_some(slab)
    }
}

/// Adds an area to those that are taken, unless the two have a byte in common.
fn claim(taken: &mut BTreeMap<PmAddr, u64>, at: PmAddr, bytes: u64) -> bool {
    let before = taken.range(..=at).next_back();
    let behind = taken.range(at..).next();
    if before.into_iter().chain(behind).any(|(&other, &other_bytes)| overlap((at, bytes), (other, other_bytes))) {
        return false;
    }
    taken.insert(at, bytes);
    true
}

/// Fills a new slab with cells that were never used and flushes it. The action that makes the slab reachable fences.
/// A slab of spill blocks becomes zero.
fn write_cells(memory: &Memory, at: PmAddr, bytes: u64, shape: Shape) {
    const STEP_BYTES: u64 = 4096;
    let cell_bytes = u64::from(shape.cell_bytes);
    // Whole cells, or pieces of one.
    let image_bytes = cell_bytes.max(STEP_BYTES / cell_bytes * cell_bytes);
    let mut image = vec![0_u64; to_usize(image_bytes / WORD_BYTES)];
    if shape.kind != CellKind::Spill {
        for cell in image.chunks_exact_mut(to_usize(cell_bytes / WORD_BYTES)) {
            for which in [Which::First, Which::Second] {
                let header = to_usize(u64::from(shape.slot_offset(which)) / WORD_BYTES);
                cell[header..header + SLOT_HEADER_WORDS].copy_from_slice(&NEVER_WRITTEN);
            }
        }
    }
    let mut done = 0;
    while done < bytes {
        let step = (bytes - done).min(image_bytes);
        // Before the fence of the action: a cell that can be reached says what its slots are, whatever was there.
        memory.write_back(at.plus(done), &image.as_bytes()[..to_usize(step)]);
        done += step;
    }
}

#[derive(Debug, Default)]
struct Pool {
    free: Vec<PmAddr>,
    /// Slabs that this life has not looked at.
    unscanned: BTreeMap<PmAddr, Slab>,
    slabs: u64,
}

#[derive(Debug)]
struct Pools {
    by_shape: HashMap<Shape, Pool>,
    directory: Directory,
}

/// The two chains of blocks.
#[derive(Debug)]
struct Directory {
    /// A block of each chain, for each place in the chains.
    blocks: Vec<[PmAddr; CHAINS]>,
    /// Entries that the last blocks have in use.
    used: u64,
}

impl Directory {
    fn last(&self) -> [PmAddr; CHAINS] {
        self.blocks[self.blocks.len() - 1]
    }
}

/// The content of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Unused,
    Used(Slab),
}

fn unused_entry(at: PmAddr) -> [u64; 2] {
    [checked::encode_addr(at, PmAddr::NULL), checked::encode(at.plus(WORD_BYTES), 0)]
}

/// Fills a new directory block of `bytes` bytes with links to nothing and unused entries, and flushes it. The action
/// that makes the block reachable fences.
pub fn write_block(memory: &Memory, block: PmAddr, bytes: u64) {
    let mut words = vec![0; to_usize(bytes / WORD_BYTES)];
    for (number, pair) in (0..).zip(words.chunks_exact_mut(2)) {
        let at = block.plus(number * ENTRY_BYTES);
        let [first, second] = [at, at.plus(WORD_BYTES)].map(|link| checked::encode_addr(link, PmAddr::NULL));
        pair.copy_from_slice(&if number == 0 { [first, second] } else { unused_entry(at) });
    }
    // Before the fence of the action: a link never leads to a block with other content.
    memory.write_back(block, words.as_bytes());
}

/// Reads the directory, and notes what must be written to make both chains equal.
struct Reader<'r> {
    heap: &'r Heap,
    memory: &'r Memory,
    bytes: u64,
    damaged: Vec<(PmAddr, u64)>,
}

impl Reader<'_> {
    fn error(&self, at: PmAddr, finding: &str) -> Error {
        let path = self.heap.pool().path().to_owned();
        Error::Damaged { path, what: "directory of slabs", at, finding: finding.into() }
    }

    /// Notes the words of `right` that are not at `at`.
    fn expect(&mut self, at: PmAddr, right: &[u64]) {
        for (number, &word) in (0..).zip(right) {
            let at = at.plus(number * WORD_BYTES);
            if self.memory.load(at) != word {
                self.damaged.push((at, word));
            }
        }
    }

    fn entry_at(&self, at: PmAddr) -> Option<Entry> {
        let (start, sizes) = (self.memory.load(at), self.memory.load(at.plus(WORD_BYTES)));
        let (start, sizes) = checked::decode_addr(at, start).zip(checked::decode(at.plus(WORD_BYTES), sizes))?;
        if start.is_null() {
            return (sizes == 0).then_some(Entry::Unused);
        }
        let slab = Slab::decode(start, sizes)?;
        let is_inside = self.memory.contains(slab.at, slab.bytes) && slab.at.offset().is_multiple_of(LINE_BYTES);
        is_inside.then_some(Entry::Used(slab))
    }

    /// The entry number `index` of a block of each chain.
    fn entry(&mut self, blocks: [PmAddr; CHAINS], index: u64) -> Result<Entry> {
        let places = blocks.map(|block| block.plus(ENTRIES_OFFSET + index * ENTRY_BYTES));
        let entry = match places.map(|at| self.entry_at(at)) {
            [Some(first), Some(second)] if first != second => {
                return Err(self.error(places[0], "the two copies of an entry differ, and both have a right checksum"));
            }
            [Some(entry), _] | [None, Some(entry)] => entry,
            [None, None] => {
                let finding = "both copies of an entry fail their checksums or lead outside";
                return Err(self.error(places[0], finding));
            }
        };
        for at in places {
            self.expect(at, &if let Entry::Used(slab) = entry { slab.entry(at) } else { unused_entry(at) });
        }
        Ok(entry)
    }

    /// The next block of each chain. Each block has a link for each chain: first that for its own.
    fn next(&mut self, blocks: [PmAddr; CHAINS]) -> Result<Option<[PmAddr; CHAINS]>> {
        let mut next = [PmAddr::NULL; CHAINS];
        for chain in 0..CHAINS {
            let links = [blocks[chain], blocks[1 - chain].plus(WORD_BYTES)];
            let found = links.map(|at| checked::decode_addr(at, self.memory.load(at)));
            let mut known = found.into_iter().flatten();
            next[chain] = match (known.next(), known.next()) {
                (Some(first), Some(second)) if first != second => {
                    return Err(self.error(links[0], "the two copies of a link differ, and both have a right checksum"));
                }
                (Some(link), _) => link,
                (None, _) => return Err(self.error(links[0], "both copies of a link fail their checksums")),
            };
            for at in links {
                self.expect(at, &[checked::encode_addr(at, next[chain])]);
            }
        }
        let is_block = |at: PmAddr| self.memory.contains(at, self.bytes) && at.offset().is_multiple_of(LINE_BYTES);
        match next.map(PmAddr::is_null) {
            [true, true] => Ok(None),
            [false, false] if next.into_iter().all(is_block) => Ok(Some(next)),
            _ => Err(self.error(blocks[0], "a link leads outside, or one chain is longer than the other")),
        }
    }
}

/// All slabs of a memory.
#[derive(Debug)]
pub struct Slabs {
    pools: Mutex<Pools>,
    by_start: RwLock<BTreeMap<PmAddr, Slab>>,
    unscanned: AtomicUsize,
    entries_per_block: u64,
    slab_bytes: u64,
    directory_bytes: u64,
    /// Words of the directory that the open found damaged, and the right ones.
    damaged: Vec<(PmAddr, u64)>,
}

impl Slabs {
    /// Reads the directory.
    pub fn open(heap: &Heap, places: &Places) -> Result<Self> {
        let directory_bytes = places.directory_bytes();
        let entries_per_block = (directory_bytes - ENTRIES_OFFSET) / ENTRY_BYTES;
        let mut reader = Reader { heap, memory: heap.memory(), bytes: directory_bytes, damaged: Vec::new() };
        let mut by_shape: HashMap<Shape, Pool> = HashMap::new();
        let mut by_start = BTreeMap::new();
        // A directory without damage names its blocks once, and areas without a common byte.
        let mut taken: BTreeMap<PmAddr, u64> = places.areas().into_iter().collect();
        let mut directory = Directory { blocks: vec![places.directory()], used: 0 };
        loop {
            let blocks = directory.last();
            directory.used = 0;
            for index in 0..entries_per_block {
                let Entry::Used(slab) = reader.entry(blocks, index)? else { continue };
                let at = blocks[0].plus(ENTRIES_OFFSET + index * ENTRY_BYTES);
                if index != directory.used {
                    return Err(reader.error(at, "an entry after an unused one"));
                }
                if !claim(&mut taken, slab.at, slab.bytes) {
                    return Err(reader.error(at, "a slab overlaps another one, or the memory's own blocks"));
                }
                by_start.insert(slab.at, slab);
                let pool = by_shape.entry(slab.shape).or_default();
                pool.slabs += 1;
                pool.unscanned.insert(slab.at, slab);
                directory.used += 1;
            }
            let Some(next) = reader.next(blocks)? else { break };
            if !next.into_iter().all(|block| claim(&mut taken, block, directory_bytes)) {
                return Err(reader.error(blocks[0], "a link leads in a circle, or into something else"));
            }
            directory.blocks.push(next);
        }
        Ok(Self {
            damaged: reader.damaged,
            pools: Mutex::new(Pools { by_shape, directory }),
            unscanned: AtomicUsize::new(by_start.len()),
            by_start: RwLock::new(by_start),
            entries_per_block,
            slab_bytes: places.slab_bytes(),
            directory_bytes,
        })
    }

    /// Lines of one chain of the directory that the open found damaged. The other chain was used.
    pub fn damaged_lines(&self) -> Vec<PmAddr> {
        let line = |at: &PmAddr| PmAddr::new(at.part(), at.offset() / LINE_BYTES * LINE_BYTES);
        let lines: BTreeSet<PmAddr> = self.damaged.iter().map(|(at, _)| line(at)).collect();
        lines.into_iter().collect()
    }

    /// Makes both chains equal again, and flushes what it writes. Returns how many lines were damaged.
    pub fn heal(&mut self, memory: &Memory) -> u32 {
        let lines = self.damaged_lines();
        for (at, word) in std::mem::take(&mut self.damaged) {
            memory.store(at, word);
            // Each word is whole in one place, and that place may be damaged next.
            memory.flush(at, WORD_BYTES);
        }
        exact_u32(lines.len())
    }

    fn by_start(&self) -> lodestone_pmem::sync::RwLockReadGuard<'_, BTreeMap<PmAddr, Slab>> {
        self.by_start.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The shape of the cell that starts at `at`.
    pub fn shape_at(&self, at: PmAddr) -> Option<Shape> {
        let by_start = self.by_start();
        let (_, slab) = by_start.range(..=at).next_back()?;
        let offset = at.offset().checked_sub(slab.at.offset()).filter(|_| at.part() == slab.at.part())?;
        let cell_bytes = u64::from(slab.shape.cell_bytes);
        (offset + cell_bytes <= slab.bytes && offset.is_multiple_of(cell_bytes)).then_some(slab.shape)
    }

    /// All slabs, by address.
    pub fn all(&self) -> Vec<Slab> {
        self.by_start().values().copied().collect()
    }

    /// Takes up to `count` free cells of `shape`, at least one. `is_free` tells whether a cell of an old slab is free.
    pub fn take(
        &self,
        heap: &Heap,
        shape: Shape,
        count: usize,
        mut is_free: impl FnMut(PmAddr) -> bool,
    ) -> Result<Vec<PmAddr>> {
        let mut pools = lock(&self.pools);
        self.scan(pools.by_shape.entry(shape).or_default(), SCANS, &mut is_free);
        let pool = &pools.by_shape[&shape];
        if pool.free.is_empty() {
            match self.add_slab(heap, &mut pools, shape) {
                Ok(()) => {}
                Err(full) => {
                    let pool = pools.by_shape.entry(shape).or_default();
                    self.scan(pool, usize::MAX, &mut is_free);
                    if pool.free.is_empty() {
                        return Err(full);
                    }
                }
            }
        }
        let free = &mut pools.by_shape.entry(shape).or_default().free;
        let kept = free.len().saturating_sub(count);
        Ok(free.split_off(kept))
    }

    /// Returns free cells of `shape`.
    pub fn give(&self, shape: Shape, cells: impl IntoIterator<Item = PmAddr>) {
        lock(&self.pools).by_shape.entry(shape).or_default().free.extend(cells);
    }

    /// Makes a slab and its directory entry, together or not at all.
    fn add_slab(&self, heap: &Heap, pools: &mut Pools, shape: Shape) -> Result<()> {
        let memory = heap.memory();
        let made = pools.by_shape.entry(shape).or_default().slabs;
        let cell_bytes = u64::from(shape.cell_bytes);
        let growth =
            if shape.kind == CellKind::Spill { 1 } else { (made / 4).next_power_of_two().clamp(1, GROWTH_MAX) };
        let wanted = (self.slab_bytes * growth).min(heap.block_bytes_max()).max(cell_bytes);
        let bytes = wanted / cell_bytes * cell_bytes;
        if cell_bytes > heap.block_bytes_max() {
            return Err(Error::TooLarge { bytes: cell_bytes, limit_bytes: heap.block_bytes_max() });
        }
        if pools.directory.used == self.entries_per_block {
            self.add_directory_blocks(heap, &mut pools.directory)?;
        }
        let slab = {
            let mut action = heap.action();
            let slab = Slab { at: action.alloc(bytes)?, bytes, shape };
            write_cells(memory, slab.at, bytes, shape);
            for block in pools.directory.last() {
                let place = block.plus(ENTRIES_OFFSET + pools.directory.used * ENTRY_BYTES);
                for (word_at, word) in [place, place.plus(WORD_BYTES)].into_iter().zip(slab.entry(place)) {
                    action.set(word_at, word);
                }
            }
            action.commit()?;
            slab
        };
        pools.directory.used += 1;
        self.by_start.write().unwrap_or_else(std::sync::PoisonError::into_inner).insert(slab.at, slab);
        let pool = pools.by_shape.entry(shape).or_default();
        pool.slabs += 1;
        // The last is taken first: ascending addresses.
        pool.free.extend(slab.cells().rev());
        Ok(())
    }

    /// Adds an empty block to each chain. It is an action of its own: the record of one that also adds the slab would
    /// be longer than the smallest lane of a heap.
    fn add_directory_blocks(&self, heap: &Heap, directory: &mut Directory) -> Result<()> {
        let last = directory.last();
        let mut action = heap.action();
        let next = [action.alloc(self.directory_bytes)?, action.alloc(self.directory_bytes)?];
        for chain in 0..CHAINS {
            write_block(heap.memory(), next[chain], self.directory_bytes);
            let other = last[1 - chain].plus(WORD_BYTES);
            for link in [last[chain], other] {
                action.set(link, checked::encode_addr(link, next[chain]));
            }
        }
        action.commit()?;
        directory.blocks.push(next);
        directory.used = 0;
        Ok(())
    }

    /// Blocks of the heap that the directory takes after the first of each chain.
    pub fn directory_blocks(&self) -> Vec<PmAddr> {
        lock(&self.pools).directory.blocks.iter().skip(1).flatten().copied().collect()
    }

    /// Looks at the slab of the cell at `at`, unless that was done. Then a cell that is freed from now on is in no list
    /// but that of the thread that frees it. Call it before the transaction that frees the cell commits.
    pub fn ensure_scanned(&self, at: PmAddr, mut is_free: impl FnMut(PmAddr) -> bool) {
        if self.unscanned.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut pools = lock(&self.pools);
        let found = self.by_start().range(..=at).next_back().map(|(_, slab)| *slab);
        let Some(slab) = found else { return };
        let pool = pools.by_shape.entry(slab.shape).or_default();
        if pool.unscanned.remove(&slab.at).is_some() {
            self.scan_slab(pool, &slab, &mut is_free);
        }
    }

    /// Looks for free cells in up to `slabs` slabs that were not looked at.
    fn scan(&self, pool: &mut Pool, slabs: usize, is_free: &mut impl FnMut(PmAddr) -> bool) {
        for _ in 0..slabs {
            if !pool.free.is_empty() {
                return;
            }
            let Some((_, slab)) = pool.unscanned.pop_first() else { return };
            self.scan_slab(pool, &slab, is_free);
        }
    }

    fn scan_slab(&self, pool: &mut Pool, slab: &Slab, is_free: &mut impl FnMut(PmAddr) -> bool) {
        if slab.shape.kind == CellKind::Spill {
            pool.free.push(slab.at);
        } else {
            pool.free.extend(slab.cells().rev().filter(|&cell| is_free(cell)));
        }
        self.unscanned.fetch_sub(1, Ordering::Release);
    }
}
