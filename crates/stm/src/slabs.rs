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
//! Invariants:
//! - a cell is in at most one list, and only while no object is in it;
//! - a thread that reuses a cell takes a tick above its last version's, so a record that names the cell's former object
//!   still finds its evidence.

use std::collections::{BTreeMap, HashMap};

use lodestone_heap::Heap;
use lodestone_pmem::sync::atomic::{AtomicUsize, Ordering};
use lodestone_pmem::sync::{Mutex, RwLock, lock};
use lodestone_pmem::{LINE_BYTES, Memory, PmAddr, WORD_BYTES, checked};
use lodestone_txn::{NEVER_WRITTEN, SLOT_HEADER_WORDS, Which};
use zerocopy::IntoBytes;

use crate::error::{Error, Result};
use crate::format::{Places, overlap, write_block_head};
use crate::shape::{CellKind, Shape};

/// Slabs that one allocation scans before it asks the heap for a new one.
const SCANS: usize = 4;
/// Largest slab, in first slabs.
const GROWTH_MAX: u64 = 16;
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
    let mut image = vec![0_u64; (image_bytes / WORD_BYTES) as usize];
    if shape.kind != CellKind::Spill {
        for cell in image.chunks_exact_mut((cell_bytes / WORD_BYTES) as usize) {
            for which in [Which::First, Which::Second] {
                let header = (shape.slot_offset(which) / WORD_BYTES as u32) as usize;
                cell[header..header + SLOT_HEADER_WORDS].copy_from_slice(&NEVER_WRITTEN);
            }
        }
    }
    let mut done = 0;
    while done < bytes {
        let step = (bytes - done).min(image_bytes);
        // Before the fence of the action: a cell that can be reached says what its slots are, whatever was there.
        memory.write_back(at.plus(done), &image.as_bytes()[..step as usize]);
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
    /// The place of the next directory entry: block and entry.
    tail: (PmAddr, u64),
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
}

impl Slabs {
    /// Reads the directory.
    pub fn open(heap: &Heap, places: &Places) -> Result<Self> {
        let memory = heap.memory();
        let mut pools = Pools { by_shape: HashMap::new(), tail: (places.directory(), 0) };
        let mut by_start = BTreeMap::new();
        let entries_per_block = (places.directory_bytes() - ENTRIES_OFFSET) / ENTRY_BYTES;
        let damaged = |at, finding: &str| Error::Damaged {
            path: heap.pool().path().to_owned(),
            what: "directory of slabs",
            at,
            finding: finding.into(),
        };
        // A directory without damage names its blocks once, and areas without a common byte.
        let mut taken: BTreeMap<PmAddr, u64> = places.areas().into_iter().collect();
        let mut block = places.directory();
        loop {
            let mut used = 0;
            while used < entries_per_block {
                let at = block.plus(ENTRIES_OFFSET + used * ENTRY_BYTES);
                let (start, sizes) = (memory.load(at), memory.load(at.plus(8)));
                if start == 0 && sizes == 0 {
                    break;
                }
                let slab = checked::decode_addr(at, start)
                    .zip(checked::decode(at.plus(8), sizes))
                    .and_then(|(start, payload)| Slab::decode(start, payload))
                    .filter(|slab| memory.contains(slab.at, slab.bytes) && slab.at.offset().is_multiple_of(LINE_BYTES));
                let Some(slab) = slab else { return Err(damaged(at, "an entry fails its checksum or leads outside")) };
                if !claim(&mut taken, slab.at, slab.bytes) {
                    return Err(damaged(at, "a slab overlaps another one, or the memory's own blocks"));
                }
                by_start.insert(slab.at, slab);
                let pool = pools.by_shape.entry(slab.shape).or_default();
                pool.slabs += 1;
                pool.unscanned.insert(slab.at, slab);
                used += 1;
            }
            pools.tail = (block, used);
            match checked::decode_addr(block, memory.load(block)) {
                Some(next) if next.is_null() => break,
                Some(next) if memory.contains(next, places.directory_bytes()) => {
                    if !next.offset().is_multiple_of(LINE_BYTES) || !claim(&mut taken, next, places.directory_bytes()) {
                        return Err(damaged(block, "the link leads in a circle, or into something else"));
                    }
                    block = next;
                }
                _ => return Err(damaged(block, "the link to the next block fails its checksum or leads outside")),
            }
        }
        Ok(Self {
            pools: Mutex::new(pools),
            unscanned: AtomicUsize::new(by_start.len()),
            by_start: RwLock::new(by_start),
            entries_per_block,
            slab_bytes: places.slab_bytes(),
            directory_bytes: places.directory_bytes(),
        })
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
        let mut action = heap.action();
        let at = action.alloc(bytes)?;
        write_cells(memory, at, bytes, shape);
        let (mut block, mut entry) = pools.tail;
        if entry == self.entries_per_block {
            let next = action.alloc_zeroed(self.directory_bytes)?;
            write_block_head(memory, next);
            action.set(block, checked::encode_addr(block, next));
            (block, entry) = (next, 0);
        }
        let slab = Slab { at, bytes, shape };
        let place = block.plus(ENTRIES_OFFSET + entry * ENTRY_BYTES);
        action.set(place, checked::encode_addr(place, at));
        action.set(place.plus(WORD_BYTES), slab.encode(place.plus(WORD_BYTES)));
        action.commit()?;
        pools.tail = (block, entry + 1);
        self.by_start.write().unwrap_or_else(std::sync::PoisonError::into_inner).insert(at, slab);
        let pool = pools.by_shape.entry(shape).or_default();
        pool.slabs += 1;
        // The last is taken first: ascending addresses.
        pool.free.extend(slab.cells().rev());
        Ok(())
    }

    /// Blocks of the heap that the directory takes after its first. The chain was compared with the rules at open. It
    /// is checked again here: it may not be longer than the slabs need, whatever happened to it since.
    pub fn directory_blocks(&self, heap: &Heap, places: &Places) -> Vec<PmAddr> {
        let memory = heap.memory();
        let blocks_max = self.by_start().len() as u64 / self.entries_per_block + 1;
        let mut blocks = Vec::new();
        let mut block = places.directory();
        for _ in 0..blocks_max {
            let next = checked::decode_addr(block, memory.load(block)).filter(|next| !next.is_null());
            let Some(next) = next.filter(|next| memory.contains(*next, places.directory_bytes())) else { break };
            blocks.push(next);
            block = next;
        }
        blocks
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
