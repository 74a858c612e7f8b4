//! Recovery and rebuild: what `open` does with a formatted heap.
//!
//! 1. *Recover*: every lane whose record counts is replayed, fence, then all those lanes are made idle, fence. Both may be
//!    cut short and repeated: records are idempotent, and no two records that count change the same word.
//! 2. *Rebuild*: the tables of all zones and the bitmaps of all slabs are read into DRAM.
//!
//! Bounds: lanes times entries for replay, 8 bytes per chunk and 8 bytes per 48 blocks for the rebuild.
//!
//! Invariant: nothing is given out where metadata is damaged: a damaged bitmap word takes its 48 blocks out of use, a
//! damaged chunk word its chunk and the free chunks behind it, which may be inside its extent.

use std::sync::atomic::Ordering;

use lodestone_pmem::{PmAddr, checked, planted};

use crate::chunks::usable_chunks;
use crate::commit::apply;
use crate::core::{Core, lock};
use crate::error::Result;
use crate::format::needs_writing;
use crate::layout::{ChunkId, ChunkWord};
use crate::record::{self, Found};
use crate::table::State;

/// Finishes what a crash cut short.
pub fn recover(core: &Core) -> Result<()> {
    let memory = &core.memory;
    let mut stale = Vec::new();
    for number in 0..core.geometry.lanes {
        let lane = core.geometry.lane(core.bases[0].0, number);
        let found = record::read(memory, lane, core.geometry.lane_entries());
        if memory.is_read_only() && matches!(found, Found::Record(_)) {
            return Err(needs_writing());
        }
        match found {
            Found::Idle => {}
            Found::Torn => stale.push(lane),
            Found::Damaged(_) => lock(&core.lanes[number as usize]).dead = true,
            Found::Record(entries) => {
                let inside = |at: PmAddr| memory.contains(at, 8);
                if entries.iter().all(|entry| inside(entry.at()) && entry.kind().is_some()) {
                    // A damaged word is found again by `check`, and its blocks are set aside by `rebuild`.
                    let _ = apply(core, &entries);
                    stale.push(lane);
                } else {
                    lock(&core.lanes[number as usize]).dead = true;
                }
            }
        }
    }
    if stale.is_empty() || memory.is_read_only() {
        return Ok(());
    }
    if !planted::active("heap-recovery-ends-early") {
        // The end of a record may not overtake the words it repeats.
        memory.fence();
    }
    for lane in stale {
        record::clear(memory, lane);
    }
    // Later changes of the same words may not overtake the end of the records, or a second recovery rolls them back.
    memory.fence();
    Ok(())
}

/// Reads chunk words and bitmaps of all zones into DRAM.
pub fn rebuild(core: &Core) {
    for part in 0..core.bases.len() as u16 {
        for zone in 0..zone_count(core, part) {
            rebuild_zone(core, part, zone, usable_chunks(core, part, zone));
        }
    }
}

/// Number of formatted zones of `part`: what the zones word says. Where that is damaged, every zone that may be formatted
/// counts: up to the last whose zone word is not zero. What is garbage there is damaged and set aside.
fn zone_count(core: &Core, part: u16) -> u32 {
    let at = core.zones_word(part);
    let exists = |&zone: &u32| usable_chunks(core, part, zone) > core.geometry.table_chunks();
    let room = (0..).take_while(exists).count() as u32;
    let counted = checked::decode(at, core.memory.load(at)).and_then(|count| u32::try_from(count).ok());
    let last_used = || (0..room).rev().find(|&zone| core.memory.load(core.zone_addr(part, zone)) != 0);
    counted.map_or_else(|| last_used().map_or(0, |last| last + 1), |count| count.min(room))
}

fn rebuild_zone(core: &Core, part: u16, zone: u32, usable: u32) {
    let table = core.tables[part as usize].add_zone(zone, &core.geometry);
    let first = zone << core.geometry.zone_shift;
    let mut free = Vec::new();
    // Behind a damaged chunk word there may be the rest of an extent.
    let mut doubtful = false;
    // Chunks up to here belong to the extent found last.
    let mut covered = 0;
    for slot in 0..core.geometry.zone_chunks() {
        let id = ChunkId { part, index: first + slot };
        let at = core.chunk_word(id);
        let chunk = &table[slot as usize];
        let word = ChunkWord::decode(at, core.memory.load(at));
        match word {
            _ if slot < covered => {}
            Some(ChunkWord::Free) if slot >= usable || !doubtful => free.push(slot),
            Some(ChunkWord::Free) => {}
            Some(ChunkWord::Table) => doubtful = false,
            Some(ChunkWord::Slab(block_bytes)) => {
                doubtful = false;
                match core.classes.index_of(block_bytes) {
                    Some(class_index) => rebuild_slab(core, id, class_index),
                    None => chunk.set_state(State::Damaged),
                }
            }
            Some(ChunkWord::Extent(chunks)) => {
                doubtful = false;
                covered = slot.saturating_add(chunks);
                chunk.set_state(if covered <= usable { State::Extent(chunks) } else { State::Damaged });
            }
            None => {
                doubtful = true;
                chunk.set_state(State::Damaged);
            }
        }
    }
    lock(&core.chunks).add_zone(core, part, free.into_iter());
}

fn rebuild_slab(core: &Core, id: ChunkId, class_index: usize) {
    let class = core.classes.get(class_index);
    let slab = core.slab(id, class_index);
    let mut has_free = false;
    for word in 0..class.words {
        let at = core.bitmap_word(id, word);
        let mask = class.mask(word);
        let bits = &slab.bits[word as usize];
        // Nothing is given out or taken back where the bitmap is damaged.
        let (taken, live) = match checked::decode(at, core.memory.load(at)) {
            Some(found) if found & !mask == 0 => (found, found),
            _ => (mask, 0),
        };
        bits.taken.store(taken, Ordering::Relaxed);
        bits.live.store(live, Ordering::Relaxed);
        has_free |= taken != mask;
    }
    let arena = id.part as usize * core.arenas_per_part + id.index as usize % core.arenas_per_part;
    slab.owner.store(arena as u32, Ordering::Relaxed);
    slab.listed.store(false, Ordering::Relaxed);
    if has_free {
        core.list_slab(id, class_index, arena);
    } else if let Some((_, chunk, _)) = core.locate(core.chunk_addr(id)) {
        chunk.set_state(State::Slab(class_index));
    }
}
