//! Repair of what a check found, as far as it can be known what is right.
//!
//! 1. A damaged header copy is written from the other one; table, zone and covered chunk words are written anew from what
//!    the structure around them says.
//! 2. A damaged or dead lane becomes idle. If it held the record of an action that a crash cut short, that action may be
//!    half done: the finding says so.
//! 3. A damaged bitmap word gets the bits of the blocks that the check was told are reachable.
//! 4. A damaged chunk word becomes free when nothing in the chunks that were set aside for it is reachable; one that was
//!    intact when the heap was opened is written anew from DRAM.
//! 5. Leaked blocks are freed, one action each.
//!
//! Each step is persistent by itself; a crash in between leaves the rest to the next repair. What cannot be repaired is
//! given back unchanged.

use std::sync::atomic::Ordering;

use lodestone_pmem::{PmPtr, checked};
use serde::Serialize;

use crate::check::{CheckReport, Finding, Fix};
use crate::core::lock;
use crate::error::Result;
use crate::heap::Heap;
use crate::layout::{ChunkWord, HeapHeader};
use crate::record;
use crate::table::State;

/// Result of [`Heap::repair`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RepairReport {
    /// What was repaired.
    pub repaired: Vec<Finding>,
    /// What was not: nothing says what would be right.
    pub left: Vec<Finding>,
}

impl Heap {
    /// Repairs what `report` names and can be repaired. The heap must be at rest since the check, and what was reachable
    /// then must still be.
    ///
    /// # Errors
    /// When the pool is open read-only, or a leaked block cannot be freed any more: the heap was not at rest.
    pub fn repair(&self, report: &CheckReport) -> Result<RepairReport> {
        self.core.writable()?;
        let mut done = RepairReport::default();
        for finding in &report.findings {
            let list = if self.repair_one(finding)? { &mut done.repaired } else { &mut done.left };
            list.push(finding.clone());
        }
        self.memory().durable()?;
        Ok(done)
    }

    fn repair_one(&self, finding: &Finding) -> Result<bool> {
        let core = &*self.core;
        let memory = &core.memory;
        let at = finding.at;
        match finding.fix {
            Fix::None => return Ok(false),
            Fix::Header => {
                let (start, _) = core.bases[at.part() as usize];
                let good =
                    HeapHeader::places(start).map(|place| memory.get(place)).into_iter().find(HeapHeader::is_intact);
                let Some(good) = good else { return Ok(false) };
                memory.put(PmPtr::new(at), &good);
                // One copy after the other: the second may not be touched before the first is whole.
                memory.persist(at, 64);
            }
            Fix::Lane(number) => {
                let mut lane = lock(&core.lanes[number as usize]);
                record::clear(memory, at);
                // The lane is used again: its next record may not meet a half-written commit word.
                memory.fence();
                lane.dead = false;
            }
            Fix::Word(word) => {
                memory.store(at, word);
                // Later changes of the word rely on it being whole.
                memory.persist(at, 8);
            }
            Fix::Chunks(id, chunks) => {
                memory.store(at, ChunkWord::Free.encode(at));
                // The chunks are given out again: what is stored there may not overtake the word that says they are free.
                memory.persist(at, 8);
                if let Some((_, chunk, _)) = core.locate(core.chunk_addr(id)) {
                    chunk.set_state(State::None);
                }
                lock(&core.chunks).give(core, id, chunks);
            }
            Fix::Bits(bits) => self.repair_bitmap(finding, bits),
            Fix::Free => {
                let mut action = self.action();
                action.free(at)?;
                action.commit()?;
            }
        }
        Ok(true)
    }

    fn repair_bitmap(&self, finding: &Finding, bits: u64) {
        let core = &*self.core;
        let at = finding.at;
        core.memory.store(at, checked::encode(at, bits));
        // Blocks are given out again below: their first use may not overtake the word that says which are free.
        core.memory.persist(at, 8);
        if let Some((id, chunk, offset)) = core.locate(at)
            && let State::Slab(class_index) = chunk.state()
        {
            let word = (offset / 8) as u32;
            let slab = core.slab(id, class_index);
            slab.bits[word as usize].live.store(bits, Ordering::Release);
            core.release_small(id, class_index, word, core.classes.get(class_index).mask(word) & !bits);
        }
    }
}
