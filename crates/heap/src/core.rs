//! The heap's shared state and the arithmetic between addresses, chunks and words.
//!
//! Locks, in the order in which they may be held together (never two of one kind):
//! a lane, an arena, the chunk lists.

#[cfg(not(feature = "shuttle"))]
use std::cell::Cell;
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::AtomicUsize;
#[cfg(not(feature = "shuttle"))]
use std::sync::atomic::Ordering;

use crossbeam_utils::CachePadded;
use lodestone_pmem::sync::{Mutex, MutexGuard};
use lodestone_pmem::{HeapClaim, Memory, PmAddr, Pool, WORD_BYTES};
use lodestone_width::{exact_u32, to_usize};

use crate::arena::Arena;
use crate::chunks::Chunks;
use crate::class::Classes;
use crate::error::Error;
use crate::layout::{ChunkId, Geometry, HeapHeader, TABLE_OFFSET, ZONES_WORD_OFFSET};
use crate::placement::Placer;
use crate::recovery::RecoveryReport;
use crate::table::{Chunk, PartTable, State};

/// A lane in DRAM: its lock is held while its record may count.
#[derive(Debug, Default)]
pub struct Lane {
    /// The finding at open that forbids its use.
    pub dead: Option<&'static str>,
}

/// Everything that the clones of a heap share.
#[derive(Debug)]
pub struct Core {
    pub pool: Pool,
    pub memory: Memory,
    pub geometry: Geometry,
    /// The header that the geometry comes from, that of part 0.
    pub header: HeapHeader,
    /// The report of the recovery at open.
    pub recovery: RecoveryReport,
    pub classes: Classes,
    /// Bitmap words of the class with the most blocks.
    pub words_max: u32,
    /// Start of the heap area and offset of zone 0, by part.
    pub bases: Box<[(PmAddr, u64)]>,
    pub tables: Box<[PartTable]>,
    pub lanes: Box<[CachePadded<Mutex<Lane>>]>,
    pub lane_rotation: bool,
    pub lane_next: AtomicUsize,
    /// Arenas of part 0, then of part 1, ...
    pub arenas: Box<[CachePadded<Mutex<Arena>>]>,
    pub arenas_per_part: usize,
    pub chunks: Mutex<Chunks>,
    pub placer: Placer,
    /// Last, so that it ends when nothing else of this heap is left.
    pub _claim: HeapClaim,
}

/// A small number of the calling thread: picks its arena and its lane.
#[cfg(not(feature = "shuttle"))]
#[inline]
pub fn thread_index() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! { static INDEX: Cell<usize> = const { Cell::new(usize::MAX) }; }
    match INDEX.get() {
        usize::MAX => {
            let index = NEXT.fetch_add(1, Ordering::Relaxed);
            INDEX.set(index);
            index
        }
        index => index,
    }
}

/// A small number of the calling thread of the deterministic scheduler, whose threads share one thread of the system.
#[cfg(feature = "shuttle")]
pub fn thread_index() -> usize {
    lodestone_pmem::sync::thread::current().id().into()
}

/// Locks, whether or not another thread panicked while it held the lock: every state in between is consistent.
#[inline]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    pub fn path(&self) -> &Path {
        self.pool.path()
    }

    pub fn damaged(&self, at: PmAddr, finding: impl Into<String>) -> Error {
        Error::Damaged { path: self.path().to_owned(), at, finding: finding.into() }
    }

    /// Address of the first byte of a chunk.
    #[inline]
    pub fn chunk_addr(&self, id: ChunkId) -> PmAddr {
        let (_, zones) = self.bases[to_usize(id.part)];
        PmAddr::new(id.part, zones + (u64::from(id.index) << self.geometry.chunk_shift))
    }

    /// Address of zone `zone`, which is that of its zone word.
    pub fn zone_addr(&self, part: u16, zone: u32) -> PmAddr {
        self.chunk_addr(ChunkId { part, index: zone << self.geometry.zone_shift })
    }

    /// Address of the word that counts the formatted zones of `part`.
    pub fn zones_word(&self, part: u16) -> PmAddr {
        self.bases[to_usize(part)].0.plus(ZONES_WORD_OFFSET)
    }

    /// Address of the word that describes a chunk.
    #[inline]
    pub fn chunk_word(&self, id: ChunkId) -> PmAddr {
        let zone = self.zone_addr(id.part, id.index >> self.geometry.zone_shift);
        let slot = id.index & (self.geometry.zone_chunks() - 1);
        zone.plus(TABLE_OFFSET + u64::from(slot) * WORD_BYTES)
    }

    /// The chunk that contains `at`, its DRAM state and the offset of `at` in it.
    #[inline]
    pub fn locate(&self, at: PmAddr) -> Option<(ChunkId, &Chunk, u64)> {
        let (_, zones) = *self.bases.get(to_usize(at.part()))?;
        let offset = at.offset().checked_sub(zones)?;
        let index = u32::try_from(offset >> self.geometry.chunk_shift).ok()?;
        let id = ChunkId { part: at.part(), index };
        let chunk = self.tables[to_usize(at.part())].chunk(id, &self.geometry)?;
        Some((id, chunk, offset & (self.geometry.chunk_bytes() - 1)))
    }

    /// The chunk whose chunk word is at `at`.
    pub fn chunk_of_word(&self, at: PmAddr) -> Option<(ChunkId, &Chunk)> {
        let (_, zones) = *self.bases.get(to_usize(at.part()))?;
        let offset = at.offset().checked_sub(zones)?;
        let zone = offset >> (self.geometry.chunk_shift + self.geometry.zone_shift);
        let slot = (offset & (self.geometry.zone_bytes() - 1)).checked_sub(TABLE_OFFSET)? / WORD_BYTES;
        let index = u32::try_from((zone << self.geometry.zone_shift) + slot).ok()?;
        let id = ChunkId { part: at.part(), index };
        Some((id, self.tables[to_usize(at.part())].chunk(id, &self.geometry)?))
    }

    /// Whether `at` starts a block of a slab or an extent, and which.
    #[inline]
    pub fn block(&self, at: PmAddr) -> Block<'_> {
        let Some((id, chunk, offset)) = self.locate(at) else { return Block::None("it lies outside all zones") };
        match chunk.state() {
            State::Slab(class_index) => {
                let class = self.classes.get(class_index);
                let Some(inside) = exact_u32(offset).checked_sub(class.blocks_offset) else {
                    return Block::None("it lies in the bitmap of a slab");
                };
                let block = inside / class.block_bytes;
                if block * class.block_bytes != inside || block >= class.blocks {
                    return Block::None("it lies inside a block");
                }
                let word = block / exact_u32(crate::layout::BLOCKS_PER_WORD);
                let mask = 1 << (block % exact_u32(crate::layout::BLOCKS_PER_WORD));
                Block::Small { id, class_index, word, mask }
            }
            State::Extent(chunks) if offset == 0 => Block::Large { id, chunk, chunks },
            State::Busy(_) if offset == 0 => Block::None("an open action allocates or frees it"),
            State::Damaged | State::Doubtful => Block::None("the word that describes its chunk is damaged"),
            _ => Block::None("no block starts there"),
        }
    }

    /// Address of bitmap word `word` of a slab.
    #[inline]
    pub fn bitmap_word(&self, id: ChunkId, word: u32) -> PmAddr {
        self.chunk_addr(id).plus(u64::from(word) * WORD_BYTES)
    }
}

/// The block that starts at an address.
pub enum Block<'c> {
    /// Not the start of a block, and why.
    None(&'static str),
    /// A block of a slab, allocated or not.
    Small { id: ChunkId, class_index: usize, word: u32, mask: u64 },
    /// An allocated extent.
    Large { id: ChunkId, chunk: &'c Chunk, chunks: u32 },
}
