//! The heap: options, opening, and questions about blocks.
//!
//! Opening reads the header or formats (see `format`), finishes what a crash cut short and reads the metadata into DRAM
//! (see `recover`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use lodestone_pmem::sync::Mutex;
use lodestone_pmem::{HeapClaim, Memory, PmAddr, Pool, work};
use lodestone_width::{exact_u16, exact_u32, to_usize};

use crate::action::{Action, FreedBlocks};
use crate::arena::Arena;
use crate::chunks::Chunks;
use crate::class::{Class, Classes};
use crate::commit::make_freed_available;
use crate::core::{Block, Core, Lane};
use crate::error::{Error, Result};
use crate::format::{format, read_header};
use crate::layout::{ChunkId, Geometry, HeapHeader, ROOT_WORDS, ROOT_WORDS_OFFSET};
use crate::placement::{Placement, Placer};
use crate::recover::{rebuild, recover};
use crate::recovery::RecoveryReport;
use crate::table::{PartTable, State};

/// How to format and use a heap. The persistent options count only when the heap is formatted.
///
/// ```
/// use lodestone_heap::{Heap, HeapOptions};
/// use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let pool = Pool::create(&path, &options)?;
/// let mut large = HeapOptions::default();
/// large.zone_chunks = 64; // chunks of 64 KiB: a block has at most 4 MiB less a table
/// let heap = Heap::open(&pool, &large)?;
/// assert!(heap.action().alloc(3 << 20).is_ok());
/// assert!(heap.action().alloc(4 << 20).is_err());
/// # Ok::<(), lodestone_heap::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HeapOptions {
    /// Bytes of a chunk, a power of two from 512. Persistent.
    pub chunk_bytes: u32,
    /// Chunks in a zone, a power of two from 4. A block is at most a zone without its table. Persistent.
    pub zone_chunks: u32,
    /// Lanes: actions that can commit at the same time. Persistent.
    pub lanes: u32,
    /// Bytes of a lane, a multiple of 64: an action changes at most a sixteenth of that many words, less one.
    /// Persistent.
    pub lane_bytes: u32,
    /// Arenas per part; 0: twice the processors, at least 4.
    pub arenas: usize,
    /// Take the lanes in turn instead of by thread. One thread then leaves records in many lanes, as many threads
    /// would. For tests.
    pub lane_rotation: bool,
    /// In which part blocks are made.
    pub placement: Placement,
}

impl Default for HeapOptions {
    fn default() -> Self {
        Self {
            chunk_bytes: 64 << 10,
            zone_chunks: 4096,
            lanes: 64,
            lane_bytes: 4096,
            arenas: 0,
            lane_rotation: false,
            placement: Placement::Local,
        }
    }
}

impl HeapOptions {
    /// Chunks, zones, lanes and arenas so small that tests reach every limit.
    #[must_use]
    pub fn small() -> Self {
        Self { chunk_bytes: 1024, zone_chunks: 8, lanes: 2, lane_bytes: 256, arenas: 1, ..Self::default() }
    }
}

/// A persistent heap over a pool. Cheap to clone; used from any number of threads.
///
/// An open pool has one heap at a time, which its clones share: another open is an error until the last clone is gone.
/// Heaps of a pool that is open read-only are not limited.
///
/// See [`Action`] for an example.
///
/// ```
/// use lodestone_heap::{Heap, HeapOptions};
/// use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let pool = Pool::create(&path, &options)?;
/// let heap = Heap::open(&pool, &HeapOptions::default())?;
/// let mut action = heap.action();
/// let at = action.alloc(1000)?;
/// action.set(heap.root_word(0), at.to_raw());
/// action.commit()?;
/// drop(heap);
///
/// // The block is there after the next open, and its owner finds it.
/// let heap = Heap::open(&pool, &HeapOptions::default())?;
/// assert_eq!(heap.memory().load(heap.root_word(0)), at.to_raw());
/// assert_eq!(heap.check(None).blocks, 1);
/// assert!(heap.check(None).is_clean());
/// # Ok::<(), lodestone_heap::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Heap {
    pub(crate) core: Arc<Core>,
}

impl Heap {
    /// Opens the heap of `pool`: formats it on first use, else verifies it and finishes the actions that a crash cut
    /// short. Damaged metadata is set aside (nothing is allocated there) and named by [`check`](Self::check).
    ///
    /// # Errors
    /// [`Error::AlreadyOpen`] while a heap of this open pool exists: clone that one. An open waits a tenth of a second
    /// for a heap that is ending on another thread. Other errors: both copies of the header are damaged, the format is
    /// newer, the options make no sense, or the heap area is too small. A read-only pool is refused when its heap needs
    /// recovery or formatting.
    pub fn open(pool: &Pool, options: &HeapOptions) -> Result<Self> {
        if let Placement::Part(part) = options.placement
            && part >= pool.memory().part_count()
        {
            return Err(no_such_part(part));
        }
        // Before the first byte is read: a heap that is ending still stores.
        let claim = pool.claim_heap().map_err(|error| match error {
            lodestone_pmem::Error::HeapInUse { path } => Error::AlreadyOpen { path },
            other => Error::Pmem(other),
        })?;
        let (header, geometry) = match read_header(pool)? {
            Some(found) => found,
            None => format(pool, options)?,
        };
        let mut core = build_core(pool, options, (header, geometry), claim);
        core.recovery = recover(&core)?;
        rebuild(&core);
        Ok(Self { core: Arc::new(core) })
    }

    /// The parts of the pool in the order in which the calling thread would try them for a block of `bytes`: by the
    /// [placement](crate::Placement) of this heap, nearest first.
    #[must_use]
    pub fn parts_for(&self, bytes: u64) -> &[u16] {
        self.core.placer.order(bytes)
    }

    /// The pool below.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.core.pool
    }

    /// The pool's memory.
    #[must_use]
    #[inline]
    pub fn memory(&self) -> &Memory {
        &self.core.memory
    }

    /// Report of this open: finished actions, actions taken back, and places set aside.
    ///
    /// ```
    /// use lodestone_heap::{Heap, HeapOptions};
    /// use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("a.pool");
    /// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # drop(Heap::open(&Pool::create(&path, &options)?, &HeapOptions::default())?);
    /// let heap = Heap::open(&Pool::open(&path, &options)?, &HeapOptions::default())?;
    /// for lane in &heap.recovery().lanes_damaged {
    ///     println!("{lane}");
    /// }
    /// assert_eq!(heap.recovery().actions_finished, 0, "the life before ended in order");
    /// # Ok::<(), lodestone_heap::Error>(())
    /// ```
    #[must_use]
    pub fn recovery(&self) -> &RecoveryReport {
        &self.core.recovery
    }

    /// Begins an action.
    #[must_use]
    #[inline]
    pub fn action(&self) -> Action<'_> {
        Action::new(&self.core)
    }

    /// Makes blocks available that an action of this heap freed and kept. No thread may be reading them any more.
    pub fn give_out_again(&self, blocks: FreedBlocks) {
        make_freed_available(&self.core, blocks.entries.as_slice());
    }

    /// Usable bytes of the block at `at`, or `None` when no allocated block starts there. A block counts from the
    /// commit that allocates it to the call of `free`.
    #[must_use]
    pub fn block_bytes(&self, at: PmAddr) -> Option<u64> {
        match self.core.block(at) {
            Block::Small { id, class_index, word, mask } => {
                let live = self.core.slab(id, class_index).bits[to_usize(word)].live.load(Ordering::Acquire);
                (live & mask != 0).then(|| u64::from(self.core.classes.get(class_index).block_bytes))
            }
            Block::Large { chunks, .. } => Some(u64::from(chunks) << self.core.geometry.chunk_shift),
            Block::None(_) => None,
        }
    }

    /// Address of root word `index` of [`ROOT_WORDS`]: a word of the heap's user, zero in a fresh heap, from which
    /// every allocated block can be reached. Set it in the action that allocates, or a crash leaks the first block.
    ///
    /// # Panics
    /// When `index` is [`ROOT_WORDS`] or more.
    #[must_use]
    pub fn root_word(&self, index: u64) -> PmAddr {
        assert!(index < ROOT_WORDS, "a heap has {ROOT_WORDS} root words");
        self.core.bases[0].0.plus(ROOT_WORDS_OFFSET + index * 8)
    }

    /// Largest block that this heap can allocate, in bytes, however much is free.
    #[must_use]
    pub fn block_bytes_max(&self) -> u64 {
        self.core.geometry.extent_bytes_max()
    }

    /// Words that one action can change.
    #[must_use]
    pub fn action_words_max(&self) -> usize {
        self.core.geometry.lane_entries()
    }

    /// Calls `visit` with address and usable bytes of every allocated block, by ascending address. Blocks that other
    /// threads allocate or free meanwhile may or may not be visited.
    pub fn for_each_block(&self, mut visit: impl FnMut(PmAddr, u64)) {
        let core = &*self.core;
        for_each_chunk(core, |id, state| match state {
            State::Slab(class_index) => {
                let class = core.classes.get(class_index);
                let slab = core.slab(id, class_index);
                for block in 0..class.blocks {
                    let live = slab.bits[to_usize(block / 48)].live.load(Ordering::Acquire);
                    if live & (1 << (block % 48)) != 0 {
                        let inside = class.blocks_offset + block * class.block_bytes;
                        visit(core.chunk_addr(id).plus(u64::from(inside)), u64::from(class.block_bytes));
                    }
                }
            }
            State::Extent(chunks) => visit(core.chunk_addr(id), u64::from(chunks) << core.geometry.chunk_shift),
            State::None | State::Busy(_) | State::Damaged | State::Doubtful => {}
        });
    }
}

/// The error for a part that the pool does not have.
pub(crate) fn no_such_part(part: u16) -> Error {
    Error::Invalid {
        what: "part",
        finding: format!("the pool has no part {part}"),
        hint: "use a part below Memory::part_count",
    }
}

/// Calls `visit` for every chunk of every formatted zone with its state in DRAM.
pub(crate) fn for_each_chunk(core: &Core, mut visit: impl FnMut(ChunkId, State)) {
    for part in 0..exact_u16(core.bases.len()) {
        for zone in 0.. {
            let Some(chunks) = core.tables[to_usize(part)].zone(zone) else { break };
            for (slot, chunk) in chunks.iter().enumerate() {
                visit(ChunkId { part, index: (zone << core.geometry.zone_shift) + exact_u32(slot) }, chunk.state());
            }
        }
    }
}

fn build_core(
    pool: &Pool,
    options: &HeapOptions,
    (header, geometry): (HeapHeader, Geometry),
    claim: HeapClaim,
) -> Core {
    let parts = pool.memory().part_count();
    let classes = Classes::new(&geometry);
    let processors = || (2 * work::processors()).max(4);
    let arenas_per_part = if options.arenas == 0 { processors() } else { options.arenas };
    let bases = (0..parts).map(|part| pool.heap_area(part).0).map(|start| (start, geometry.zones_offset(start)));
    Core {
        memory: pool.memory().clone(),
        pool: pool.clone(),
        bases: bases.collect(),
        tables: (0..parts).map(|_| PartTable::new()).collect(),
        lanes: (0..geometry.lanes).map(|_| CachePadded::new(Mutex::new(Lane::default()))).collect(),
        lane_rotation: options.lane_rotation,
        lane_next: AtomicUsize::new(0),
        arenas: (0..arenas_per_part * usize::from(parts))
            .map(|_| CachePadded::new(Mutex::new(Arena::new(classes.len()))))
            .collect(),
        arenas_per_part,
        chunks: Mutex::new(Chunks::new(parts)),
        placer: Placer::new(pool, options.placement.clone()),
        words_max: Class::cut(geometry.chunk_bytes(), 16).map_or(1, |class| class.words),
        classes,
        geometry,
        header,
        recovery: RecoveryReport::default(),
        _claim: claim,
    }
}
