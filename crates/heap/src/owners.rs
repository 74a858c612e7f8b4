//! Rebuilds damaged chunk words from the blocks that owners have in those chunks.
//!
//! A chunk word is redundant when every owner is known:
//! - a block at the very start of a chunk is an extent, because a slab's blocks begin after its bitmap. It takes the
//!   chunks that its owner's bytes need. Where these bytes are not known, it takes all chunks that were set aside;
//! - other blocks are a slab's. Its class must have a block at each of their places. A class counts whose bitmap on the
//!   medium names the same blocks. If several do, or none, the smallest counts that holds the owners' bytes, or the
//!   largest where these are not known;
//! - a chunk without an owner is free.

use lodestone_pmem::{PmAddr, checked};
use lodestone_width::to_usize;

use crate::check::Made;
use crate::class::Class;
use crate::core::Core;
use crate::layout::{BLOCKS_PER_WORD, ChunkId};

/// The states of `chunks` chunks from `first` on. `owned` lists the owners' blocks in order of addresses, each with the
/// bytes that its owner keeps there (0: unknown). `None` when the owners contradict each other.
pub fn plan(core: &Core, first: ChunkId, chunks: u32, owned: &[(PmAddr, u64)]) -> Option<Vec<Made>> {
    let chunk_bytes = core.geometry.chunk_bytes();
    let start = core.chunk_addr(first).offset();
    let mut made = Vec::new();
    let (mut chunk, mut rest) = (0, owned);
    while chunk < chunks {
        let begin = start + u64::from(chunk) * chunk_bytes;
        let count = rest.iter().take_while(|(at, _)| at.offset() < begin + chunk_bytes).count();
        let (here, behind) = rest.split_at(count);
        rest = behind;
        let next = match here {
            [] => Made::Free,
            [(at, bytes)] if at.offset() == begin => {
                let room = u64::from(chunks - chunk);
                let until = behind.first().map_or(room, |(at, _)| (at.offset() - begin) / chunk_bytes);
                let wanted = if *bytes == 0 { until } else { bytes.div_ceil(chunk_bytes) };
                if wanted > until {
                    return None;
                }
                Made::Extent(u32::try_from(wanted).ok()?)
            }
            blocks => slab(core, ChunkId { index: first.index + chunk, ..first }, blocks)?,
        };
        chunk += if let Made::Extent(chunks) = next { chunks } else { 1 };
        made.push(next);
    }
    Some(made)
}

/// The slab that has all of `blocks`.
fn slab(core: &Core, id: ChunkId, blocks: &[(PmAddr, u64)]) -> Option<Made> {
    let start = core.chunk_addr(id).offset();
    let bytes_max = blocks.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
    let is_known = blocks.iter().all(|(_, bytes)| *bytes > 0);
    let mut best: Option<((bool, i64), usize, Vec<u64>)> = None;
    for (class_index, class) in core.classes.iter().enumerate() {
        if u64::from(class.block_bytes) < bytes_max {
            continue;
        }
        let places = blocks.iter().map(|(at, _)| at.offset() - start);
        let Some(bitmap) = bitmap_of(class, places) else { continue };
        let stands = (0..class.words).zip(&bitmap).all(|(word, bits)| {
            let at = core.bitmap_word(id, word);
            checked::decode(at, core.memory.load(at)) == Some(*bits)
        });
        // A class that is too small would hand out bytes that an owner keeps after its block's end. So without sizes
        // the largest counts.
        let bytes = i64::from(class.block_bytes);
        let rank = (stands, if is_known { -bytes } else { bytes });
        if best.as_ref().is_none_or(|(found, ..)| rank > *found) {
            best = Some((rank, class_index, bitmap));
        }
    }
    best.map(|(_, class_index, bitmap)| Made::Slab(class_index, bitmap))
}

/// The bitmap of a slab of `class` with blocks at these offsets; `None` when the class has none there, or two are one.
fn bitmap_of(class: &Class, places: impl Iterator<Item = u64>) -> Option<Vec<u64>> {
    let mut bitmap = vec![0; to_usize(class.words)];
    for place in places {
        let inside = place.checked_sub(u64::from(class.blocks_offset))?;
        let block = inside / u64::from(class.block_bytes);
        if block * u64::from(class.block_bytes) != inside || block >= u64::from(class.blocks) {
            return None;
        }
        let word: &mut u64 = bitmap.get_mut(usize::try_from(block / BLOCKS_PER_WORD).ok()?)?;
        let bit = 1 << (block % BLOCKS_PER_WORD);
        if *word & bit != 0 {
            return None;
        }
        *word |= bit;
    }
    Some(bitmap)
}
