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
//! The directory is [`lodestone_cells::Directory`].
//!
//! Invariants:
//! - a cell is in at most one list, and only while no object is in it;
//! - a thread that reuses a cell takes a tick above its last version's, so a record that names the cell's former object
//!   still finds its evidence.

use std::collections::{BTreeMap, HashMap};

use lodestone_cells::{CellKind, Directory, Shape, Slab};
use lodestone_heap::Heap;
use lodestone_pmem::sync::atomic::{AtomicUsize, Ordering};
use lodestone_pmem::sync::{Mutex, RwLock, lock};
use lodestone_pmem::{Memory, PmAddr};

use crate::error::Result;
use crate::format::Places;

/// Slabs that one allocation scans before it asks the heap for a new one.
const SCANS: usize = 4;
/// Largest slab, in first slabs.
const GROWTH_MAX: u64 = 16;
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

/// All slabs of a memory.
#[derive(Debug)]
pub struct Slabs {
    pools: Mutex<Pools>,
    by_start: RwLock<BTreeMap<PmAddr, Slab>>,
    unscanned: AtomicUsize,
    slab_bytes: u64,
}

impl Slabs {
    /// Reads the directory.
    pub fn open(heap: &Heap, places: &Places) -> Result<Self> {
        let (directory, slabs) = Directory::read(heap, places.directory(), places.directory_bytes(), places.areas())?;
        let mut by_shape: HashMap<Shape, Pool> = HashMap::new();
        for slab in &slabs {
            let pool = by_shape.entry(slab.shape).or_default();
            pool.slabs += 1;
            pool.unscanned.insert(slab.at, *slab);
        }
        Ok(Self {
            pools: Mutex::new(Pools { by_shape, directory }),
            unscanned: AtomicUsize::new(slabs.len()),
            by_start: RwLock::new(slabs.into_iter().map(|slab| (slab.at, slab)).collect()),
            slab_bytes: places.slab_bytes(),
        })
    }

    /// Lines of one chain of the directory that the open found damaged. The other chain was used.
    pub fn damaged_lines(&self) -> Vec<PmAddr> {
        lock(&self.pools).directory.damaged_lines()
    }

    /// Makes both chains equal again, and flushes what it writes. Returns how many lines were damaged.
    pub fn heal(&self, memory: &Memory) -> u32 {
        lock(&self.pools).directory.heal(memory)
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
        let made = pools.by_shape.entry(shape).or_default().slabs;
        let growth =
            if shape.kind == CellKind::Spill { 1 } else { (made / 4).next_power_of_two().clamp(1, GROWTH_MAX) };
        let slab = pools.directory.add(heap, shape, self.slab_bytes * growth)?;
        self.by_start.write().unwrap_or_else(std::sync::PoisonError::into_inner).insert(slab.at, slab);
        let pool = pools.by_shape.entry(shape).or_default();
        pool.slabs += 1;
        // The last is taken first: ascending addresses.
        pool.free.extend(slab.cells().rev());
        Ok(())
    }

    /// Blocks of the heap that the directory takes after the first of each chain.
    pub fn directory_blocks(&self) -> Vec<PmAddr> {
        lock(&self.pools).directory.blocks().skip(2).collect()
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
