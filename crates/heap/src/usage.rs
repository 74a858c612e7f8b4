//! How full the heap is: by size class, by kind of chunk, and how fragmented.
//!
//! 1. Every formatted zone is walked in DRAM; nothing on the medium is read.
//! 2. *Inner* waste is the memory of empty blocks inside slabs. *Outer* fragmentation is the share of the free chunks
//!    outside the longest free run.
//!
//! The figures are a snapshot: other threads go on meanwhile.

use std::fmt;
use std::sync::atomic::Ordering;

use serde::Serialize;

use lodestone_width::{exact_u16, nearest_f64, to_usize};

use crate::chunks::usable_chunks;
use crate::core::{Core, lock};
use crate::heap::{Heap, for_each_chunk};
use crate::table::{Bits, State};

/// Use of one size class.
///
/// ```
/// # use lodestone_heap::{Heap, HeapOptions};
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let pool = Pool::create(folder.path().join("a.pool"), &options)?;
/// # let heap = Heap::open(&pool, &HeapOptions::default())?;
/// let mut action = heap.action();
/// action.alloc(60)?;
/// action.commit()?;
/// let class = heap.usage().classes[0];
/// assert_eq!((class.block_bytes, class.blocks_used), (64, 1));
/// assert!(class.blocks > 1, "a chunk has more such blocks");
/// # Ok::<(), lodestone_heap::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClassUsage {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Chunks cut into such blocks.
    pub chunks: u64,
    /// Blocks in those chunks.
    pub blocks: u64,
    /// Blocks that are allocated.
    pub blocks_used: u64,
}

/// Use of one part of the pool.
///
/// ```
/// # use lodestone_heap::{Heap, HeapOptions};
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let pool = Pool::create(folder.path().join("a.pool"), &options)?;
/// # let heap = Heap::open(&pool, &HeapOptions::default())?;
/// let mut action = heap.action();
/// action.alloc(60)?;
/// action.commit()?;
/// let parts = heap.usage().parts;
/// assert_eq!((parts.len(), parts[0].part, parts[0].bytes_used), (1, 0, 64));
/// # Ok::<(), lodestone_heap::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PartUsage {
    /// Number of the part.
    pub part: u16,
    /// NUMA node of the part by the kernel's number, where it is known.
    pub node: Option<u32>,
    /// Chunks that nothing uses.
    pub chunks_free: u64,
    /// Usable bytes of allocated blocks.
    pub bytes_used: u64,
}

/// Use of the whole heap.
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
/// action.alloc(1000)?;
/// action.commit()?;
/// let usage = heap.usage();
/// assert_eq!((usage.bytes_used, usage.classes[0].blocks_used), (1024, 1));
/// # Ok::<(), lodestone_heap::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Usage {
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Chunks that the pool has room for, tables included.
    pub chunks: u64,
    /// Chunks in formatted zones, or room for more zones, that nothing uses.
    pub chunks_free: u64,
    /// Longest run of free chunks in formatted zones.
    pub chunks_free_run_max: u64,
    /// Chunks that hold zone tables.
    pub chunks_table: u64,
    /// Chunks without allocations because their metadata is damaged.
    pub chunks_damaged: u64,
    /// Allocated extents.
    pub extents: u64,
    /// Chunks in allocated extents.
    pub extent_chunks: u64,
    /// Size classes in use, by ascending size.
    pub classes: Vec<ClassUsage>,
    /// Usable bytes of all allocated blocks.
    pub bytes_used: u64,
    /// The parts, by number.
    pub parts: Vec<PartUsage>,
    /// In which part blocks are made.
    pub placement: String,
    /// Blocks made since the heap was opened in another part than the placement names, because that was full.
    pub fallbacks: u64,
    /// Bytes asked for in those blocks.
    pub fallback_bytes: u64,
    /// Share of the slabs' room that is in free blocks: 0 to 1.
    pub slab_free_share: f64,
    /// Share of the free chunks in formatted zones outside the longest free run: 0 to 1.
    pub fragmentation: f64,
}

impl Heap {
    /// How full and how fragmented the heap is.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let core = &*self.core;
        let (fallbacks, fallback_bytes) = core.placer.fallbacks();
        let mut usage = Usage {
            chunk_bytes: core.geometry.chunk_bytes(),
            parts: parts_of(core),
            placement: core.placer.placement.to_string(),
            fallbacks,
            fallback_bytes,
            ..Usage::default()
        };
        let mut classes: Vec<ClassUsage> = core
            .classes
            .iter()
            .map(|class| ClassUsage { block_bytes: u64::from(class.block_bytes), ..ClassUsage::default() })
            .collect();
        for_each_chunk(core, |id, state| match state {
            State::Slab(class_index) => {
                let class = core.classes.get(class_index);
                let bits = &core.slab(id, class_index).bits[..to_usize(class.words)];
                let line = &mut classes[class_index];
                line.chunks += 1;
                line.blocks += u64::from(class.blocks);
                let live = |bits: &Bits| u64::from(bits.live.load(Ordering::Relaxed).count_ones());
                let used = bits.iter().map(live).sum::<u64>();
                line.blocks_used += used;
                usage.parts[usize::from(id.part)].bytes_used += used * line.block_bytes;
            }
            State::Extent(chunks) => {
                usage.parts[usize::from(id.part)].bytes_used += u64::from(chunks) * usage.chunk_bytes;
                usage.extents += 1;
                usage.extent_chunks += u64::from(chunks);
            }
            State::Damaged | State::Doubtful => usage.chunks_damaged += 1,
            State::None | State::Busy(_) => {}
        });
        let mut formatted_free = 0;
        for part in 0..exact_u16(core.bases.len()) {
            let lists = lock(&core.chunks);
            let (free, run) = lists.free(part);
            let zones = lists.zones(part);
            drop(lists);
            formatted_free += free;
            usage.chunks_free_run_max = usage.chunks_free_run_max.max(u64::from(run));
            for zone in 0.. {
                let chunks = usable_chunks(core, part, zone);
                if chunks <= core.geometry.table_chunks() {
                    break;
                }
                usage.chunks += u64::from(chunks);
                usage.chunks_table += u64::from(core.geometry.table_chunks());
                let unformatted = if zone < zones { 0 } else { u64::from(chunks - core.geometry.table_chunks()) };
                usage.chunks_free += unformatted;
                usage.parts[usize::from(part)].chunks_free += unformatted;
            }
            usage.parts[usize::from(part)].chunks_free += free;
        }
        usage.chunks_free += formatted_free;
        let used = |line: &ClassUsage| line.blocks_used * line.block_bytes;
        usage.bytes_used = classes.iter().map(used).sum::<u64>() + usage.extent_chunks * usage.chunk_bytes;
        let slab_room: u64 = classes.iter().map(|line| line.blocks * line.block_bytes).sum();
        usage.slab_free_share = share(slab_room - classes.iter().map(used).sum::<u64>(), slab_room);
        usage.fragmentation = share(formatted_free.saturating_sub(usage.chunks_free_run_max), formatted_free);
        usage.classes = classes.into_iter().filter(|line| line.chunks > 0).collect();
        usage
    }
}

fn parts_of(core: &Core) -> Vec<PartUsage> {
    let nodes = core.pool.part_nodes().iter().enumerate();
    nodes.map(|(part, node)| PartUsage { part: exact_u16(part), node: node.id, ..PartUsage::default() }).collect()
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { nearest_f64(part) / nearest_f64(whole) }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "chunks of {} bytes: {} in all, {} free", self.chunk_bytes, self.chunks, self.chunks_free)?;
        writeln!(
            f,
            "  longest free run {} chunks, {:.1} % of free chunks outside it",
            self.chunks_free_run_max,
            100.0 * self.fragmentation
        )?;
        writeln!(f, "  {} in tables, {} damaged", self.chunks_table, self.chunks_damaged)?;
        writeln!(f, "extents: {} in {} chunks", self.extents, self.extent_chunks)?;
        writeln!(f, "slabs: {:.1} % of their room is in free blocks", 100.0 * self.slab_free_share)?;
        writeln!(f, "{:>12} {:>10} {:>12} {:>12}", "block bytes", "chunks", "blocks", "used")?;
        for line in &self.classes {
            writeln!(f, "{:>12} {:>10} {:>12} {:>12}", line.block_bytes, line.chunks, line.blocks, line.blocks_used)?;
        }
        if self.parts.len() > 1 {
            for part in &self.parts {
                let node = part.node.map_or_else(|| "unknown".into(), |node| node.to_string());
                let (number, used, free) = (part.part, part.bytes_used, part.chunks_free);
                writeln!(f, "part {number} (node {node}): {used} bytes in blocks, {free} chunks free")?;
            }
            writeln!(f, "placement {}: {} blocks made elsewhere, their part was full", self.placement, self.fallbacks)?;
        }
        write!(f, "{} bytes in allocated blocks", self.bytes_used)
    }
}
