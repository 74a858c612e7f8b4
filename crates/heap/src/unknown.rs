//! Memory of which the heap cannot say what is allocated there: the word that says it is damaged.
//!
//! 1. A damaged bitmap word hides the 48 blocks that it counts. Their places and sizes are known.
//! 2. A damaged chunk word hides all blocks that begin in its chunk. Their sizes are not known, and an extent may go on
//!    in the chunks after it that were set aside with it.
//!
//! Nothing is allocated or freed there before a repair, so the content stays as the damage left it.

use std::sync::atomic::Ordering;

use lodestone_pmem::{PmAddr, WORD_BYTES, checked};
use lodestone_width::{to_u64, to_usize};

use crate::core::{Core, lock};
use crate::heap::{Heap, for_each_chunk};
use crate::layout::{BLOCKS_PER_WORD, ChunkId};
use crate::table::State;

/// Smallest step between two blocks of any size.
const STEP_MIN: u64 = 16;

/// Memory where blocks may be allocated, and the heap cannot say which ([`Heap::unknown_blocks`]).
///
/// ```
/// # use lodestone_heap::{Heap, HeapOptions};
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let pool = Pool::create(folder.path().join("a.pool"), &options)?;
/// # let heap = Heap::open(&pool, &HeapOptions::default())?;
/// // Without damage the heap knows every block.
/// assert!(heap.unknown_blocks().is_empty());
/// for unknown in heap.unknown_blocks() {
///     let (at, bytes) = unknown.range();
///     println!("{bytes} bytes at {at}, {} places where a block can begin", unknown.places().count());
/// }
/// # Ok::<(), lodestone_heap::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownBlocks {
    /// The first place where a block can begin.
    at: PmAddr,
    /// Bytes from there on in which blocks can begin.
    bytes: u64,
    /// Bytes from `at` on that these blocks can fill.
    room: u64,
    /// Bytes of each block, if they are known.
    block_bytes: Option<u64>,
}

impl UnknownBlocks {
    /// The first byte, and the number of bytes that these blocks can fill. Those of two damaged words can overlap.
    #[must_use]
    pub fn range(self) -> (PmAddr, u64) {
        (self.at, self.room)
    }

    /// Bytes of each of these blocks, if they are known.
    #[must_use]
    pub fn block_bytes(self) -> Option<u64> {
        self.block_bytes
    }

    /// Every place where a block can begin, ascending, with the bytes that it can have at most: not more than one place
    /// for every 16 bytes.
    pub fn places(self) -> impl Iterator<Item = (PmAddr, u64)> {
        let step = self.block_bytes.unwrap_or(STEP_MIN);
        (0..self.bytes / step).map(move |number| {
            let inside = number * step;
            (self.at.plus(inside), self.block_bytes.unwrap_or(self.room - inside))
        })
    }
}

impl Heap {
    /// The memory of which the heap cannot say what is allocated there, because the word that says it was damaged when
    /// the heap was opened. Empty in a sound heap.
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
    /// assert!(heap.unknown_blocks().is_empty());
    /// # Ok::<(), lodestone_heap::Error>(())
    /// ```
    #[must_use]
    pub fn unknown_blocks(&self) -> Vec<UnknownBlocks> {
        let core = &*self.core;
        let mut unknown = Vec::new();
        for_each_chunk(core, |id, state| match state {
            State::Slab(class_index) => add_of_slab(core, id, class_index, &mut unknown),
            State::Damaged => unknown.extend(of_chunk(core, id)),
            State::None | State::Extent(_) | State::Busy(_) | State::Doubtful => {}
        });
        unknown
    }
}

/// Adds the blocks of each bitmap word that was set aside at open.
fn add_of_slab(core: &Core, id: ChunkId, class_index: usize, unknown: &mut Vec<UnknownBlocks>) {
    let class = core.classes.get(class_index);
    for word in 0..class.words {
        let (at, mask) = (core.bitmap_word(id, word), class.mask(word));
        let bits = &core.slab(id, class_index).bits[to_usize(word)];
        let (live, taken) = (bits.live.load(Ordering::Acquire), bits.taken.load(Ordering::Acquire));
        // A word that was intact at open is known in DRAM, whatever is there now.
        let is_set_aside = live == 0 && taken & mask == mask;
        if is_set_aside && checked::decode(at, core.memory.load(at)).is_none_or(|found| found & !mask != 0) {
            let block_bytes = u64::from(class.block_bytes);
            let first = u64::from(class.blocks_offset) + u64::from(word) * BLOCKS_PER_WORD * block_bytes;
            let bytes = u64::from(mask.count_ones()) * block_bytes;
            let at = core.chunk_addr(id).plus(first);
            unknown.push(UnknownBlocks { at, bytes, room: bytes, block_bytes: Some(block_bytes) });
        }
    }
}

/// The blocks that begin in a chunk whose word is damaged. `None` when the chunk is after the end of the part.
fn of_chunk(core: &Core, id: ChunkId) -> Option<UnknownBlocks> {
    let slot = id.index & (core.geometry.zone_chunks() - 1);
    let usable = lock(&core.chunks).usable(id.part, id.index >> core.geometry.zone_shift);
    // An extent can go on in chunks whose words say nothing, or say "free", as those inside an extent do.
    let can_go_on = |index: &u32| {
        let at = core.chunk_addr(ChunkId { index: *index, ..id });
        core.locate(at).is_some_and(|(_, chunk, _)| matches!(chunk.state(), State::Damaged | State::Doubtful))
    };
    let behind = usable.checked_sub(slot + 1)?;
    let chunks = 1 + (id.index + 1..=id.index + behind).take_while(can_go_on).count();
    let bytes = core.geometry.chunk_bytes();
    Some(UnknownBlocks { at: core.chunk_addr(id), bytes, room: to_u64(chunks) * bytes, block_bytes: None })
}

const _: () = assert!(STEP_MIN.is_multiple_of(WORD_BYTES), "blocks begin at words");
