//! Direct writes: bulk data that goes to the file at once, not through the journal.
//!
//! 1. [`clear`](BlockDomain::clear_for_direct_writes): no line of the range is in the journal, and none is on its way
//!    from there to the file. Otherwise an older copy of a line would be written over what is written directly, by a
//!    checkpoint or by the replay after a crash.
//! 2. *Write*: into the private memory, which readers see, and into the file.
//! 3. *Settle*: a sync. A line that refers to the bytes goes through the journal afterwards.
//!
//! Until they are settled, the bytes are in the file or not, in any order. So nothing that counts may be in the range.
//! The journal is spared: such bytes are written once, and no commit waits for them.
//!
//! The files are written and synced through open files of their own. The kernel tells an error of the device to each
//! open file once. The thread that is told it here poisons the domain before another one can sync. Writers go on during
//! a sync: a write after its begin is settled by the next one.

use std::sync::Arc;

use super::checkpoint::Upto;
use super::{BlockDomain, Engine};
use crate::addr::{LINE_BYTES, LineAddr, PmAddr};
use crate::counters;
use crate::error::{Error, Result};
use crate::planted;
use crate::storage::{Storage, read_all, read_all_around_cache, write_all};
use crate::sync::lock;

/// The open files, and which of them have bytes that are not settled.
#[derive(Debug)]
pub(super) struct DirectFiles {
    parts: Vec<(Arc<dyn Storage>, bool)>,
}

impl DirectFiles {
    pub(super) fn new(parts: &[Arc<dyn Storage>]) -> Self {
        Self { parts: parts.iter().map(|part| (Arc::clone(part), false)).collect() }
    }
}

impl BlockDomain {
    /// Sees to it that no line of the `len` bytes at `at` is in the journal any more. No thread flushes one meanwhile.
    ///
    /// # Errors
    /// A device that failed.
    pub(crate) fn clear_for_direct_writes(&self, at: PmAddr, len: u64) -> Result<()> {
        let (engine, lines) = (&self.engine, at.line()..at.plus(len + LINE_BYTES - 1).line());
        let is_such = |line| lines.contains(&line);
        loop {
            let open = engine.groups.open_group();
            // A group that is being committed is neither open nor in the list of those that are not applied.
            if !planted::active("block-clears-beside-commit") {
                engine.wait_for(open - 1)?;
            }
            let is_open = engine.groups.any(is_such);
            if engine.groups.open_group() == open {
                if is_open {
                    engine.wait_for(open)?;
                }
                break;
            }
        }
        if engine.has_unapplied(is_such)? { self.checkpointed(Upto::All) } else { Ok(()) }
    }

    /// Writes `bytes` at `at` into the file.
    ///
    /// # Errors
    /// A device that failed: nothing becomes durable any more.
    pub(crate) fn write_directly(&self, at: PmAddr, bytes: &[u8]) -> Result<()> {
        let mut files = lock(&self.engine.direct);
        self.engine.check_halt()?;
        let (part, is_unsettled) = &mut files.parts[usize::from(at.part())];
        *is_unsettled = true;
        let written = write_all(part.as_ref(), bytes, at.offset(), false).map_err(|source| {
            let next = "free space or replace the device, then reopen";
            self.engine.poison(&Error::io(&self.engine.files.path, "writing the pool file", next, source))
        });
        drop(files);
        self.woken(written)
    }

    /// Reads what was written directly at `at`.
    ///
    /// # Errors
    /// A device that failed to read.
    pub(crate) fn read_directly(&self, at: PmAddr, bytes: &mut [u8], is_around_cache: bool) -> Result<()> {
        let files = &self.engine.files;
        let read = if is_around_cache { read_all_around_cache } else { read_all };
        // Not under the lock of the writers: nothing that counts is being written.
        read(files.direct[usize::from(at.part())].as_ref(), bytes, at.offset())
            .map_err(|source| Error::io(&files.path, "reading the pool file", "look at the device", source))
    }

    /// All direct writes before the call are durable on return.
    ///
    /// # Errors
    /// As [`write_directly`](Self::write_directly).
    pub(crate) fn settle(&self) -> Result<()> {
        let settling = lock(&self.engine.settling);
        let unsettled: Vec<Arc<dyn Storage>> = {
            let mut files = lock(&self.engine.direct);
            self.engine.check_halt()?;
            let parts = files.parts.iter_mut();
            parts.filter_map(|(part, flag)| std::mem::take(flag).then(|| Arc::clone(part))).collect()
        };
        // Writers go on: what they write from now on is unsettled again.
        let settled = unsettled.iter().try_for_each(|part| {
            counters::bump(&counters::local().syncs, 1);
            part.sync().map_err(|source| {
                let next = "check the device; open again to replay the journal";
                // Under the lock: the next thread that settles would be told of no error.
                self.engine.poison(&Error::io(&self.engine.files.path, "syncing", next, source))
            })
        });
        drop(settling);
        self.woken(settled)
    }

    /// After a failure every thread that waits is told.
    fn woken(&self, outcome: Result<()>) -> Result<()> {
        if outcome.is_err() {
            self.engine.wake_all();
        }
        outcome
    }
}

impl Engine {
    /// Whether a committed group that is not in the files has such a line. Waits for a checkpoint that is under way.
    fn has_unapplied(&self, is_such: impl Fn(LineAddr) -> bool) -> Result<bool> {
        let _checkpoint = (!planted::active("block-clears-beside-checkpoint")).then(|| lock(&self.checkpoint));
        self.check_halt()?;
        let ring = lock(&self.ring);
        Ok(ring.unapplied.iter().any(|record| record.entries().any(|(line, _)| is_such(line))))
    }
}
