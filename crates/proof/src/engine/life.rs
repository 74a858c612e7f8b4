//! The ends of lives, in order and not.

use lodestone_crash::Outcome;
use lodestone_pmem::PmAddr;

use super::{Handle, Open, Step};

/// Bytes of a checkpoint block for three writers.
const BLOCK_BYTES: usize = 256;

/// The places beside that of a checkpoint block. One of them is the other block's.
fn blocks_beside(at: PmAddr) -> [PmAddr; 2] {
    [at.plus(BLOCK_BYTES as u64), PmAddr::new(at.part(), at.offset() - BLOCK_BYTES as u64)]
}

impl Handle {
    /// The life ends as `step` says, and another one begins.
    pub(super) fn begin_life(&self, step: &Step) -> Outcome {
        use Step::{CutCheckpoint, Kill};
        let mut guard = self.guard();
        let memory = self.store.memory();
        let mut cut_off = None;
        if let (CutCheckpoint, Some(open)) = (step, &*guard) {
            let blocks = blocks_beside(open.db.newest_checkpoint()).map(|at| {
                let mut bytes = [0; BLOCK_BYTES];
                memory.read(at, &mut bytes);
                (at, bytes)
            });
            open.apply(&Step::Checkpoint)?;
            cut_off = blocks.into_iter().find(|(at, _)| *at == open.db.newest_checkpoint());
        }
        if let Some(Open { db, tables, large, .. }) = guard.take() {
            drop((tables, large));
            let (copies, newest) = (db.copies(), db.newest_checkpoint());
            if matches!(step, Kill | CutCheckpoint) {
                db.abandon()
            } else {
                drop(db)
            }
            let spoilt = match *step {
                Step::Spoil(copy) => Some(copies[copy]),
                Step::SpoilCheckpoint => Some(newest),
                _ => None,
            };
            if let Some(at) = spoilt {
                memory.store(at, !memory.load(at));
                // Damage is on the medium.
                memory.persist(at, 8);
            }
            if let Some((at, bytes)) = cut_off {
                memory.write(at, &bytes);
                // As if the block had never been there.
                memory.persist(at, bytes.len() as u64);
            }
        }
        *guard = Some(Open::new(&self.store, self.kind)?);
        Ok(())
    }
}
