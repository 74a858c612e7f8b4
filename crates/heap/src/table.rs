//! The state of every chunk in DRAM and, for slabs, which blocks are taken and which are live.
//!
//! - *taken*: the block is reserved, allocated or being freed, so it is not available;
//! - *live*: the block is allocated by a completed action and not being freed: it may be freed.
//!
//! A block goes free -> taken (reserved) -> taken and live (committed) -> taken (being freed) -> free. Taken bits
//! change under the lock of the slab's arena. Live bits are claimed by atomic read-modify-write. So of two threads that
//! free the same block one gets an error.
//!
//! Invariants:
//! - tables of zones are made once and never move or go away before the heap: access takes no lock;
//! - everything here is rebuilt from chunk words and bitmaps at open; nothing here is ever persistent.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use lodestone_width::{exact_u32, to_u64, to_usize};

use crate::class::Class;
use crate::layout::{ChunkId, Geometry};

/// State of a chunk in DRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Free, reserved, inside an extent, or part of a table: no block starts here.
    None,
    /// A slab of the class with this number.
    Slab(usize),
    /// An allocated extent of this many chunks.
    Extent(u32),
    /// An extent of this many chunks that an open action allocates or frees.
    Busy(u32),
    /// The chunk word is damaged: nothing in it is allocated.
    Damaged,
    /// The chunk word says free, but comes after a damaged one, whose extent the chunk may be in. Nothing in it is
    /// allocated.
    Doubtful,
}

impl State {
    fn pack(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Slab(class) => 1 | (to_u64(class) << 8),
            Self::Extent(chunks) => 2 | (u64::from(chunks) << 8),
            Self::Busy(chunks) => 3 | (u64::from(chunks) << 8),
            Self::Damaged => 4,
            Self::Doubtful => 5,
        }
    }

    fn unpack(raw: u64) -> Self {
        match raw & 0xFF {
            1 => Self::Slab(to_usize(raw >> 8)),
            2 => Self::Extent(exact_u32(raw >> 8)),
            3 => Self::Busy(exact_u32(raw >> 8)),
            4 => Self::Damaged,
            5 => Self::Doubtful,
            _ => Self::None,
        }
    }
}

/// Bits of one bitmap word.
#[derive(Debug, Default)]
pub struct Bits {
    pub taken: AtomicU64,
    pub live: AtomicU64,
}

/// The part of a slab that lives in DRAM.
#[derive(Debug)]
pub struct Slab {
    /// One entry per bitmap word (at least; a smaller class may have used it before).
    pub bits: Box<[Bits]>,
    /// Whether the slab is in a list of its arena, so that a freed block need not put it there.
    pub listed: AtomicBool,
    /// Arena whose lock guards reservation. Changes only under the lock of the old owner.
    pub owner: AtomicU32,
    /// Word to look at first. Guarded by the owner's lock.
    pub hint: AtomicU32,
}

/// A chunk. The slab tables are made on first use, by number of bitmap words: few, some, all.
#[derive(Debug, Default)]
pub struct Chunk {
    state: AtomicU64,
    slabs: [OnceLock<Box<Slab>>; 3],
}

const SLAB_WORDS: [u32; 2] = [12, 24];

impl Chunk {
    /// Present state.
    #[inline]
    pub fn state(&self) -> State {
        State::unpack(self.state.load(Ordering::Acquire))
    }

    /// Sets the state.
    pub fn set_state(&self, state: State) {
        self.state.store(state.pack(), Ordering::Release);
    }

    /// Changes the state if it is `old`.
    pub fn claim(&self, old: State, new: State) -> bool {
        self.state.compare_exchange(old.pack(), new.pack(), Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The slab table for a class of `class.words` bitmap words; made on first use, `words_max` words at most.
    #[inline]
    pub fn slab(&self, class: &Class, words_max: u32) -> &Slab {
        let level = SLAB_WORDS.iter().position(|&words| class.words <= words).unwrap_or(SLAB_WORDS.len());
        self.slabs[level].get_or_init(|| {
            let words = SLAB_WORDS.get(level).copied().unwrap_or(words_max).min(words_max);
            Box::new(Slab {
                bits: (0..words).map(|_| Bits::default()).collect(),
                listed: AtomicBool::new(false),
                owner: AtomicU32::new(0),
                hint: AtomicU32::new(0),
            })
        })
    }
}

type Zone = OnceLock<Box<[Chunk]>>;

/// The chunks of one part, in segments of doubling length so that growing moves nothing.
#[derive(Debug)]
pub struct PartTable {
    segments: [OnceLock<Box<[Zone]>>; 26],
}

impl PartTable {
    pub fn new() -> Self {
        Self { segments: std::array::from_fn(|_| OnceLock::new()) }
    }

    fn place(zone: u32) -> (usize, usize) {
        let segment = (zone + 1).ilog2();
        (to_usize(segment), to_usize(zone + 1 - (1 << segment)))
    }

    /// The chunks of zone `zone`, if it is formatted.
    #[inline]
    pub fn zone(&self, zone: u32) -> Option<&[Chunk]> {
        let (segment, index) = Self::place(zone);
        Some(self.segments.get(segment)?.get()?[index].get()?)
    }

    /// Makes the table of zone `zone`.
    pub fn add_zone(&self, zone: u32, geometry: &Geometry) -> &[Chunk] {
        let (segment, index) = Self::place(zone);
        let zones = self.segments[segment].get_or_init(|| (0..1_u64 << segment).map(|_| Zone::new()).collect());
        zones[index].get_or_init(|| (0..geometry.zone_chunks()).map(|_| Chunk::default()).collect())
    }

    /// Chunk `id.index`, if its zone is formatted.
    #[inline]
    pub fn chunk(&self, id: ChunkId, geometry: &Geometry) -> Option<&Chunk> {
        let zone = self.zone(id.index >> geometry.zone_shift)?;
        zone.get(to_usize(id.index & (geometry.zone_chunks() - 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_found_where_they_were_put() {
        let geometry = Geometry { chunk_shift: 9, zone_shift: 2, lanes: 1, lane_bytes: 64 };
        let table = PartTable::new();
        for zone in 0..40 {
            assert!(table.zone(zone).is_none());
            table.add_zone(zone, &geometry)[1].set_state(State::Extent(zone + 1));
        }
        for zone in 0..40 {
            let chunk = table.chunk(ChunkId { part: 0, index: zone * 4 + 1 }, &geometry).expect("a chunk");
            assert_eq!(chunk.state(), State::Extent(zone + 1));
        }
    }
}
