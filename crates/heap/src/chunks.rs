//! Which chunks are free, and where new ones come from.
//!
//! 1. The zones are searched in order for a free chunk or run of chunks. Slabs come from the low end and extents from
//!    the high end, so that single chunks do not cut up the room for long runs.
//! 2. When there is none, the last zone is extended to the present end of the pool's heap area. Then the next zone is
//!    formatted: its table is persistent before the zones word that makes it count.
//!
//! Invariants:
//! - a run is inside one zone;
//! - a chunk is taken here before anything is stored in it. It comes back only when nothing on the medium refers to it;
//! - after a damaged chunk word, all chunks up to the next one with a known word stay taken: they may be inside an
//!   extent.

use lodestone_pmem::{PmAddr, checked};
use lodestone_width::{exact_u32, to_usize};

use crate::core::Core;
use crate::layout::{ChunkId, ChunkWord, TABLE_OFFSET, encode_zone};
use crate::table::State;

/// Free chunks of one zone.
#[derive(Debug, Default)]
struct ZoneFree {
    free: Box<[u64]>,
    free_count: u32,
    /// Chunks that lie inside the heap area.
    usable: u32,
}

impl ZoneFree {
    fn is_free(&self, slot: u32) -> bool {
        self.free[to_usize(slot / 64)] & (1 << (slot % 64)) != 0
    }

    fn set(&mut self, start: u32, chunks: u32, free: bool) {
        for slot in start..start + chunks {
            let bit = 1 << (slot % 64);
            let word = &mut self.free[to_usize(slot / 64)];
            assert_eq!(*word & bit == 0, free, "a chunk is taken and given back once");
            *word ^= bit;
        }
        if free { self.free_count += chunks } else { self.free_count -= chunks }
    }

    fn find_lowest(&self) -> Option<u32> {
        let word = self.free.iter().position(|&word| word != 0)?;
        Some(exact_u32(word) * 64 + self.free[word].trailing_zeros())
    }

    fn find_highest_run(&self, chunks: u32) -> Option<u32> {
        let mut run = 0;
        for slot in (0..self.usable).rev() {
            run = if self.is_free(slot) { run + 1 } else { 0 };
            if run == chunks {
                return Some(slot);
            }
        }
        None
    }

    fn longest_run(&self) -> u32 {
        let (mut longest, mut run) = (0, 0);
        for slot in 0..self.usable {
            run = if self.is_free(slot) { run + 1 } else { 0 };
            longest = longest.max(run);
        }
        longest
    }
}

/// Free chunks of all parts.
#[derive(Debug)]
pub struct Chunks {
    parts: Vec<Vec<ZoneFree>>,
}

impl Chunks {
    pub fn new(parts: u16) -> Self {
        Self { parts: (0..parts).map(|_| Vec::new()).collect() }
    }

    /// Takes one chunk for a slab.
    pub fn take_one(&mut self, core: &Core, part: u16) -> Option<ChunkId> {
        self.take(core, part, 1, ZoneFree::find_lowest)
    }

    /// Takes `chunks` neighbouring chunks for an extent.
    pub fn take_run(&mut self, core: &Core, part: u16, chunks: u32) -> Option<ChunkId> {
        self.take(core, part, chunks, |zone| zone.find_highest_run(chunks))
    }

    fn take(
        &mut self,
        core: &Core,
        part: u16,
        chunks: u32,
        find: impl Fn(&ZoneFree) -> Option<u32>,
    ) -> Option<ChunkId> {
        loop {
            let zones = &mut self.parts[to_usize(part)];
            for (number, zone) in zones.iter_mut().enumerate().filter(|(_, zone)| zone.free_count >= chunks) {
                if let Some(slot) = find(zone) {
                    zone.set(slot, chunks, false);
                    return Some(ChunkId { part, index: (exact_u32(number) << core.geometry.zone_shift) + slot });
                }
            }
            if !self.extend(core, part) {
                return None;
            }
        }
    }

    /// Returns chunks to the free lists.
    pub fn give(&mut self, core: &Core, id: ChunkId, chunks: u32) {
        let zone = &mut self.parts[to_usize(id.part)][to_usize(id.index >> core.geometry.zone_shift)];
        zone.set(id.index & (core.geometry.zone_chunks() - 1), chunks, true);
    }

    /// Adds a zone that exists on the medium, with the given free chunks.
    pub fn add_zone(&mut self, core: &Core, part: u16, free: impl Iterator<Item = u32>) {
        let number = exact_u32(self.parts[to_usize(part)].len());
        let mut zone = ZoneFree {
            free: vec![0; to_usize(core.geometry.zone_chunks().div_ceil(64))].into_boxed_slice(),
            free_count: 0,
            usable: usable_chunks(core, part, number),
        };
        for slot in free.filter(|&slot| slot < zone.usable).collect::<Vec<_>>() {
            zone.set(slot, 1, true);
        }
        self.parts[to_usize(part)].push(zone);
    }

    /// Makes room: more of the last zone, or a new zone. Returns whether there is more than before.
    fn extend(&mut self, core: &Core, part: u16) -> bool {
        let zones = &mut self.parts[to_usize(part)];
        let next = exact_u32(zones.len());
        if let Some(last) = zones.last_mut() {
            let usable = usable_chunks(core, part, next - 1);
            if usable > last.usable {
                let old = last.usable;
                last.usable = usable;
                last.set(old, usable - old, true);
                // After the end of the part there was nothing, even if the words say otherwise.
                let chunks = core.tables[to_usize(part)].zone(next - 1).unwrap_or_default();
                chunks[to_usize(old)..to_usize(usable)].iter().for_each(|chunk| chunk.set_state(State::None));
                return true;
            }
        }
        if usable_chunks(core, part, next) <= core.geometry.table_chunks() {
            return false;
        }
        format_zone(core, part, next);
        core.tables[to_usize(part)].add_zone(next, &core.geometry);
        self.add_zone(core, part, core.geometry.table_chunks()..core.geometry.zone_chunks());
        true
    }

    /// Free chunks and longest run of free chunks in `part`.
    pub fn free(&self, part: u16) -> (u64, u32) {
        let zones = &self.parts[to_usize(part)];
        let free = zones.iter().map(|zone| u64::from(zone.free_count)).sum();
        (free, zones.iter().map(ZoneFree::longest_run).max().unwrap_or(0))
    }

    /// Chunks of a formatted zone that are in use or may be.
    pub fn usable(&self, part: u16, zone: u32) -> u32 {
        self.parts[to_usize(part)].get(to_usize(zone)).map_or(0, |zone| zone.usable)
    }

    /// Zones in `part` that are formatted.
    pub fn zones(&self, part: u16) -> u32 {
        exact_u32(self.parts[to_usize(part)].len())
    }
}

/// Chunks of zone `zone` that the heap area of `part` holds now.
pub fn usable_chunks(core: &Core, part: u16, zone: u32) -> u32 {
    let (_, end) = core.pool.heap_area(part);
    let start = core.bases[to_usize(part)].1 + u64::from(zone) * core.geometry.zone_bytes();
    let chunks = end.offset().saturating_sub(start) >> core.geometry.chunk_shift;
    u32::try_from(chunks).unwrap_or(u32::MAX).min(core.geometry.zone_chunks())
}

/// Writes the table of zone `zone` and its zone word, then counts it.
fn format_zone(core: &Core, part: u16, zone: u32) {
    let memory = &core.memory;
    let start = core.zone_addr(part, zone);
    for slot in 0..core.geometry.zone_chunks() {
        let id = ChunkId { part, index: (zone << core.geometry.zone_shift) + slot };
        let at = core.chunk_word(id);
        let word = if slot < core.geometry.table_chunks() { ChunkWord::Table } else { ChunkWord::Free };
        memory.store(at, word.encode(at));
    }
    memory.store(start, encode_zone(start, zone));
    // The zones word says that the table is formatted: it may not overtake the table.
    memory.persist(start, TABLE_OFFSET + u64::from(core.geometry.zone_chunks()) * 8);
    let count = core.zones_word(part);
    memory.store(count, checked::encode(count, u64::from(zone) + 1));
    // No block that a thread publishes in the zone may overtake the word that counts the zone: recovery would not see
    // it.
    memory.persist(count, 8);
}

/// Makes `id` a slab of blocks of `block_bytes` with `words` empty bitmap words.
pub fn format_slab(core: &Core, id: ChunkId, block_bytes: u32, words: u32) {
    let memory = &core.memory;
    let word_at = core.chunk_word(id);
    let publish = |memory: &lodestone_pmem::Memory| {
        memory.store(word_at, ChunkWord::Slab(block_bytes).encode(word_at));
        // No block of the slab may be published before its chunk is one: recovery would not look at the bitmap.
        memory.persist(word_at, 8);
    };
    if lodestone_pmem::planted::active("heap-slab-before-bitmap") {
        publish(memory);
    }
    for word in 0..words {
        let at: PmAddr = core.bitmap_word(id, word);
        memory.store(at, checked::encode(at, 0));
    }
    // The chunk word makes the bitmap count: it may not overtake it.
    memory.persist(core.chunk_addr(id), u64::from(words) * 8);
    publish(memory);
}
