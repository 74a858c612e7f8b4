//! Repair of a check's findings, as far as the right value can be known.
//!
//! 1. A header copy that is damaged, or contradicts the one in use, is written anew. Table, zone and covered chunk
//!    words are written anew from the structure around them.
//! 2. A damaged or dead lane becomes idle. If it held the record of an action that a crash cut short, that action may
//!    be half done: the finding says so.
//! 3. A damaged bitmap word gets the bits of the blocks that the check was told are reachable.
//! 4. A damaged chunk word, and the chunks that were set aside for it, get the state that their owners prove
//!    (`owners`). They become free when nothing there is reachable. A word that was intact when the heap was opened is
//!    written anew from DRAM.
//! 5. Leaked blocks are freed, one action each.
//!
//! Each step is persistent by itself. A crash in between leaves the rest to the next repair. Findings that cannot be
//! repaired are returned unchanged.

use std::sync::atomic::Ordering;

use lodestone_pmem::{PmPtr, WORD_BYTES, checked};
use lodestone_width::{exact_u32, to_u64, to_usize};
use serde::Serialize;

use crate::check::{Fix, HeapFinding, HeapReport, Made};
use crate::core::lock;
use crate::error::Result;
use crate::heap::Heap;
use crate::layout::{ChunkId, ChunkWord};
use crate::record;
use crate::recover::rebuild_slab;
use crate::table::State;

/// Result of [`Heap::repair`].
///
/// ```
/// # use lodestone_heap::{Heap, HeapOptions};
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let pool = Pool::create(folder.path().join("a.pool"), &options)?;
/// # let heap = Heap::open(&pool, &HeapOptions::default())?;
/// let mut action = heap.action();
/// action.alloc(64)?;
/// action.commit()?;
/// let report = heap.check(Some(&mut std::iter::empty()));
/// let repair = heap.repair(&report)?;
/// assert_eq!((repair.repaired.len(), repair.left.len()), (1, 0), "the leaked block is free again");
/// # Ok::<(), lodestone_heap::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RepairReport {
    /// Repaired findings.
    pub repaired: Vec<HeapFinding>,
    /// Findings left as they are, because nothing tells the right value.
    pub left: Vec<HeapFinding>,
}

impl Heap {
    /// Repairs what `report` names and can be repaired. The heap must be at rest since the check, and what was
    /// reachable then must still be.
    ///
    /// # Errors
    /// When the pool is open read-only, or a leaked block cannot be freed any more: the heap was not at rest.
    pub fn repair(&self, report: &HeapReport) -> Result<RepairReport> {
        self.core.writable()?;
        let mut done = RepairReport::default();
        for finding in &report.findings {
            let list = if self.repair_one(finding)? { &mut done.repaired } else { &mut done.left };
            list.push(finding.clone());
        }
        self.memory().durable()?;
        Ok(done)
    }

    fn repair_one(&self, finding: &HeapFinding) -> Result<bool> {
        let core = &*self.core;
        let memory = &core.memory;
        let at = finding.at;
        match &finding.fix {
            Fix::None => return Ok(false),
            Fix::Header => {
                let (_, zones_offset) = core.bases[to_usize(at.part())];
                memory.put(PmPtr::new(at), &core.header.for_part(at.part(), zones_offset));
                // One copy after the other: the second may not be touched before the first is whole.
                memory.persist(at, 64);
            }
            Fix::Lane(number) => {
                let mut lane = lock(&core.lanes[to_usize(*number)]);
                record::clear(memory, at);
                // The lane is used again: its next record may not meet a half-written commit word.
                memory.fence();
                lane.dead = None;
            }
            Fix::Word(word) => {
                memory.store(at, *word);
                // Later changes of the word rely on it being whole.
                memory.persist(at, 8);
            }
            Fix::Chunks(first, made) => self.repair_chunks(*first, made),
            Fix::Bits(bits) => self.repair_bitmap(finding, *bits),
            Fix::Free => {
                let mut action = self.action();
                action.free(at)?;
                action.commit()?;
            }
        }
        Ok(true)
    }

    /// Puts chunks that were set aside into the state that their owners prove.
    fn repair_chunks(&self, first: ChunkId, made: &[Made]) {
        let core = &*self.core;
        let memory = &core.memory;
        let mut id = first;
        for made in made {
            let at = core.chunk_word(id);
            let (word, chunks) = match made {
                Made::Free => (ChunkWord::Free, 1),
                Made::Extent(chunks) => (ChunkWord::Extent(*chunks), *chunks),
                Made::Slab(class_index, bitmap) => {
                    for (word, bits) in (0..).zip(bitmap) {
                        let at = core.bitmap_word(id, word);
                        memory.store(at, checked::encode(at, *bits));
                    }
                    // The chunk word makes the bitmap count: it may not overtake it.
                    memory.persist(core.chunk_addr(id), to_u64(bitmap.len()) * WORD_BYTES);
                    (ChunkWord::Slab(core.classes.get(*class_index).block_bytes), 1)
                }
            };
            for inside in 1..chunks {
                let at = core.chunk_word(ChunkId { index: id.index + inside, ..id });
                memory.store(at, ChunkWord::Free.encode(at));
                // One after the other: an extent may not be persistent before the words that it covers are free.
                memory.persist(at, WORD_BYTES);
            }
            memory.store(at, word.encode(at));
            // Allocations and frees there may not overtake the word that states the use of the chunk.
            memory.persist(at, WORD_BYTES);
            self.enter_chunks(id, made, chunks);
            id.index += chunks;
        }
    }

    /// The state in DRAM of chunks that were repaired.
    fn enter_chunks(&self, id: ChunkId, made: &Made, chunks: u32) {
        let core = &*self.core;
        let set = |id: ChunkId, state| {
            if let Some((_, chunk, _)) = core.locate(core.chunk_addr(id)) {
                chunk.set_state(state);
            }
        };
        match made {
            Made::Free => {
                set(id, State::None);
                lock(&core.chunks).give(core, id, 1);
            }
            Made::Extent(_) => {
                (1..chunks).for_each(|inside| set(ChunkId { index: id.index + inside, ..id }, State::None));
                set(id, State::Extent(chunks));
            }
            Made::Slab(class_index, _) => rebuild_slab(core, id, *class_index),
        }
    }

    fn repair_bitmap(&self, finding: &HeapFinding, bits: u64) {
        let core = &*self.core;
        let at = finding.at;
        core.memory.store(at, checked::encode(at, bits));
        // Blocks become available below: their first use may not overtake the word that says which are free.
        core.memory.persist(at, 8);
        if let Some((id, chunk, offset)) = core.locate(at)
            && let State::Slab(class_index) = chunk.state()
        {
            let word = exact_u32(offset / 8);
            let slab = core.slab(id, class_index);
            slab.bits[to_usize(word)].live.store(bits, Ordering::Release);
            core.release_small(id, class_index, word, core.classes.get(class_index).mask(word) & !bits);
        }
    }
}
