//! Recovery and rebuild at the open of a formatted heap.
//!
//! 1. *Recover*: every lane whose record counts is replayed. Fence. Then all those lanes become idle. Fence. Both may
//!    be cut short and repeated: records are idempotent, and no two records that count change the same word.
//! 2. *Rebuild*: the tables of all zones and the bitmaps of all slabs are read into DRAM.
//!
//! Bounds: lanes times entries for replay, 8 bytes per chunk and 8 bytes per 48 blocks for the rebuild.
//!
//! Invariants:
//! - no block is allocated where metadata is damaged. A damaged bitmap word takes its 48 blocks out of use. A damaged
//!   chunk word takes its chunk and the free chunks after it, which may be inside its extent;
//! - a checksum that fits is no proof. A record is replayed only when each of its words is one that an action changes.
//!   A chunk word that contradicts its neighbours or the end of the part is damage.

use std::sync::atomic::Ordering;

use lodestone_pmem::{PmAddr, WORD_BYTES, checked};
use lodestone_width::{exact_u16, exact_u32, to_usize};

use crate::chunks::usable_chunks;
use crate::commit::apply;
use crate::core::{Core, lock};
use crate::error::Result;
use crate::format::needs_writing;
use crate::layout::{ChunkId, ChunkWord, ROOT_WORDS, ROOT_WORDS_OFFSET, TABLE_OFFSET};
use crate::record::{self, Entry, EntryKind, Found};
use crate::recovery::{DamagedLane, RecoveryReport};
use crate::table::State;

/// Why a record is not replayed although its checksum fits.
const IMPOSSIBLE: &str = "a record that verifies names words that no action changes";

/// Finishes what a crash cut short.
pub fn recover(core: &Core) -> Result<RecoveryReport> {
    let memory = &core.memory;
    let mut report = RecoveryReport { lanes: core.geometry.lanes, ..RecoveryReport::default() };
    let mut stale = Vec::new();
    for number in 0..core.geometry.lanes {
        let at = core.geometry.lane(core.bases[0].0, number);
        let finding = match record::read(memory, at, core.geometry.lane_entries()) {
            Found::Idle => continue,
            Found::Torn => {
                report.actions_rolled_back += 1;
                stale.push(at);
                continue;
            }
            Found::Record(entries) if entries.iter().all(|entry| is_possible(core, entry)) => {
                if memory.is_read_only() {
                    return Err(needs_writing());
                }
                // A damaged word is found again by `check`, and its blocks are set aside by `rebuild`.
                let _ = apply(core, &entries);
                report.actions_finished += 1;
                stale.push(at);
                continue;
            }
            Found::Record(_) => IMPOSSIBLE,
            Found::Damaged(finding) => finding,
        };
        lock(&core.lanes[to_usize(number)]).dead = Some(finding);
        report.lanes_damaged.push(DamagedLane { number, at, finding });
    }
    if stale.is_empty() || memory.is_read_only() {
        return Ok(report);
    }
    // The end of a record may not overtake the words it repeats.
    memory.fence();
    for lane in stale {
        record::clear(memory, lane);
    }
    // Later changes of the same words may not overtake the end of the records, or a second recovery rolls them back.
    memory.fence();
    Ok(report)
}

/// The kind of word at an address of the heap area.
enum Stands {
    /// A root word, or the inside of a chunk that is no slab as far as is known.
    Word,
    /// A word of a chunk cut into blocks: its class, and its offset in the chunk.
    InSlab(usize, u64),
    /// The word of a chunk that may be given out, and how many chunks there are from it to the end of the zone.
    ChunkWord(u32),
    /// Metadata that no action changes.
    Fixed,
}

fn what_stands(core: &Core, at: PmAddr) -> Stands {
    let Some(&(start, zones)) = core.bases.get(usize::from(at.part())) else { return Stands::Fixed };
    let geometry = &core.geometry;
    let Some(offset) = at.offset().checked_sub(zones) else {
        let root = at.offset().checked_sub(start.plus(ROOT_WORDS_OFFSET).offset());
        return if root.is_some_and(|root| root < ROOT_WORDS * WORD_BYTES) { Stands::Word } else { Stands::Fixed };
    };
    let Ok(zone) = u32::try_from(offset / geometry.zone_bytes()) else { return Stands::Fixed };
    let usable = usable_chunks(core, at.part(), zone);
    let inside = offset % geometry.zone_bytes();
    if inside < u64::from(geometry.table_chunks()) * geometry.chunk_bytes() {
        let slot = inside.checked_sub(TABLE_OFFSET).map(|inside| inside / WORD_BYTES);
        let slot = slot
            .and_then(|slot| u32::try_from(slot).ok())
            .filter(|slot| (geometry.table_chunks()..usable).contains(slot));
        return slot.map_or(Stands::Fixed, |slot| Stands::ChunkWord(usable - slot));
    }
    let slot = exact_u32(inside >> geometry.chunk_shift);
    if slot >= usable {
        return Stands::Fixed;
    }
    let word = core.chunk_word(ChunkId { part: at.part(), index: (zone << geometry.zone_shift) + slot });
    match ChunkWord::decode(word, core.memory.load(word)) {
        Some(ChunkWord::Slab(bytes)) => match core.classes.index_of(bytes) {
            Some(class_index) => Stands::InSlab(class_index, inside & (geometry.chunk_bytes() - 1)),
            None => Stands::Word,
        },
        _ => Stands::Word,
    }
}

/// Whether an action can have written this entry. A fitting checksum is no proof. Replay of an entry that no action
/// wrote would overwrite metadata, or blocks of other owners.
fn is_possible(core: &Core, entry: &Entry) -> bool {
    let (at, value) = (entry.at(), entry.value);
    if !core.memory.contains(at, WORD_BYTES) {
        return false;
    }
    match (entry.kind(), what_stands(core, at)) {
        (Some(EntryKind::Set), Stands::Word) => true,
        (Some(EntryKind::Set), Stands::InSlab(class_index, inside)) => {
            inside >= u64::from(core.classes.get(class_index).blocks_offset)
        }
        (Some(EntryKind::BitsSet | EntryKind::BitsClear), Stands::InSlab(class_index, inside)) => {
            let class = core.classes.get(class_index);
            let word = u32::try_from(inside / WORD_BYTES).unwrap_or(u32::MAX);
            word < class.words && value & !class.mask(word) == 0
        }
        // The word of the chunk is damaged: a bitmap word that verifies is one.
        (Some(EntryKind::BitsSet | EntryKind::BitsClear), Stands::Word) => {
            value < checked::PAYLOAD_LIMIT && checked::decode(at, core.memory.load(at)).is_some()
        }
        (Some(EntryKind::Extent | EntryKind::Release), Stands::ChunkWord(room)) => {
            let is_value = |chunks: u32| u64::from(chunks) == value;
            let is_there = match ChunkWord::decode(at, core.memory.load(at)) {
                None | Some(ChunkWord::Free) => true,
                Some(ChunkWord::Extent(chunks)) => is_value(chunks),
                Some(ChunkWord::Table | ChunkWord::Slab(_)) => false,
            };
            is_there && (1..=u64::from(room)).contains(&value)
        }
        _ => false,
    }
}

/// Reads chunk words and bitmaps of all zones into DRAM.
pub fn rebuild(core: &Core) {
    for part in 0..exact_u16(core.bases.len()) {
        for zone in 0..zone_count(core, part) {
            rebuild_zone(core, part, zone, usable_chunks(core, part, zone));
        }
    }
}

/// Number of formatted zones of `part`: the number in the zones word, as far as there is room. Where the word is
/// damaged, every zone that may be formatted counts, up to the last whose zone word is not zero. Garbage there is
/// treated as damage and set aside.
fn zone_count(core: &Core, part: u16) -> u32 {
    let at = core.zones_word(part);
    let exists = |&zone: &u32| usable_chunks(core, part, zone) > core.geometry.table_chunks();
    let room = exact_u32((0..).take_while(exists).count());
    let counted = checked::decode(at, core.memory.load(at));
    let last_used = || (0..room).rev().find(|&zone| core.memory.load(core.zone_addr(part, zone)) != 0);
    let is_inside = |count: u64| u32::try_from(count).unwrap_or(u32::MAX).min(room);
    counted.map_or_else(|| last_used().map_or(0, |last| last + 1), is_inside)
}

fn rebuild_zone(core: &Core, part: u16, zone: u32, usable: u32) {
    let table = core.tables[to_usize(part)].add_zone(zone, &core.geometry);
    let first = zone << core.geometry.zone_shift;
    let words: Vec<Option<ChunkWord>> = (0..core.geometry.zone_chunks())
        .map(|slot| core.chunk_word(ChunkId { part, index: first + slot }))
        .map(|at| ChunkWord::decode(at, core.memory.load(at)))
        .collect();
    let mut free = Vec::new();
    // After a damaged chunk word there may be the rest of an extent.
    let mut doubtful = false;
    // Chunks up to here belong to the extent found last.
    let mut covered = 0;
    for slot in core.geometry.table_chunks()..core.geometry.zone_chunks() {
        let chunk = &table[to_usize(slot)];
        if slot < covered {
            continue;
        }
        match words[to_usize(slot)] {
            Some(ChunkWord::Free) if slot >= usable || !doubtful => free.push(slot),
            Some(ChunkWord::Free) => chunk.set_state(State::Doubtful),
            word => match sound_chunk(core, &words[..to_usize(usable)], slot, word) {
                Some(State::Slab(class_index)) => {
                    doubtful = false;
                    rebuild_slab(core, ChunkId { part, index: first + slot }, class_index);
                }
                Some(state) => {
                    doubtful = false;
                    if let State::Extent(chunks) = state {
                        covered = slot + chunks;
                    }
                    chunk.set_state(state);
                }
                None => {
                    doubtful = true;
                    chunk.set_state(State::Damaged);
                }
            },
        }
    }
    lock(&core.chunks).add_zone(core, part, free.into_iter());
}

/// The state of chunk `slot` by its `word`, or `None` when it cannot be right. `words` are those of the chunks inside
/// the part.
fn sound_chunk(core: &Core, words: &[Option<ChunkWord>], slot: u32, word: Option<ChunkWord>) -> Option<State> {
    let behind = words.get(to_usize(slot) + 1..)?;
    match word? {
        ChunkWord::Slab(block_bytes) => core.classes.index_of(block_bytes).map(State::Slab),
        ChunkWord::Extent(chunks) => {
            let inside = behind.get(..to_usize(chunks).checked_sub(1)?)?;
            // A word inside that fails its checksum is redundant; one that verifies and says something else contradicts
            // this one.
            inside.iter().all(|word| matches!(word, None | Some(ChunkWord::Free))).then_some(State::Extent(chunks))
        }
        ChunkWord::Free | ChunkWord::Table => None,
    }
}

/// Reads the bitmap of a slab into DRAM.
pub fn rebuild_slab(core: &Core, id: ChunkId, class_index: usize) {
    let class = core.classes.get(class_index);
    let slab = core.slab(id, class_index);
    let mut has_free = false;
    for word in 0..class.words {
        let at = core.bitmap_word(id, word);
        let mask = class.mask(word);
        let bits = &slab.bits[to_usize(word)];
        // No block is allocated or freed where the bitmap is damaged.
        let (taken, live) = match checked::decode(at, core.memory.load(at)) {
            Some(found) if found & !mask == 0 => (found, found),
            _ => (mask, 0),
        };
        bits.taken.store(taken, Ordering::Relaxed);
        bits.live.store(live, Ordering::Relaxed);
        has_free |= taken != mask;
    }
    let arena = to_usize(id.part) * core.arenas_per_part + to_usize(id.index) % core.arenas_per_part;
    slab.owner.store(exact_u32(arena), Ordering::Relaxed);
    slab.listed.store(false, Ordering::Relaxed);
    if has_free {
        core.list_slab(id, class_index, arena);
    } else if let Some((_, chunk, _)) = core.locate(core.chunk_addr(id)) {
        chunk.set_state(State::Slab(class_index));
    }
}
