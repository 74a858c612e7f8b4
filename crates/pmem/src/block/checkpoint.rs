//! Checkpoints: committed lines move to the files, and the background thread that sees to it.
//!
//! **A failed checkpoint is the last one.** It has taken its records from the list. A later checkpoint would know only
//! newer ones, and move the tail past lines that are in no file. So the failure is noted under the lock that admits one
//! checkpoint at a time. The note is there beside the halt: a close may have halted the pool before the checkpoint
//! failed, and the first reason of a halt is kept.
//!
//! **A silent pool confirms its last group.** The last record of a journal is the only one without a later record that
//! proves its acknowledgement (see [`journal`](super::journal)). When nothing was committed between two looks, the
//! thread commits an empty group after it: at most two intervals after the last group, and only once.

use lodestone_width::to_u64;

use super::record::Record;
use super::replay::sync_parts;
use super::{Engine, Halt};
use crate::addr::LineAddr;
use crate::block::journal::JournalState;
use crate::error::{Error, Result};
use crate::sync::lock;

impl Engine {
    /// The background thread: checkpoints whenever half of the ring is used, and commits flushed lines that no thread
    /// waits for.
    pub(super) fn run_checkpoints(&self) {
        let half = self.files.area().ring_bytes() / 2;
        let mut seen = 0;
        loop {
            let mut ring = lock(&self.ring);
            if !ring.closing && !ring.wanted && ring.head - ring.tail <= half {
                let woken = self.ring_moved.wait_timeout(ring, self.options.commit_interval);
                ring = woken.unwrap_or_else(std::sync::PoisonError::into_inner).0;
            }
            if ring.closing || self.check_halt().is_err() {
                return;
            }
            let crowded = ring.head - ring.tail > half;
            let wanted = std::mem::take(&mut ring.wanted);
            let is_confirmed = ring.unapplied.last().is_none_or(|record| record.lines() == 0);
            drop(ring);
            let is_silent = seen == self.groups.open_group();
            let mut worked = if crowded { self.checkpoint() } else { Ok(()) };
            if wanted || !crowded {
                worked = worked.and_then(|()| self.commit_idle_group(is_silent && !is_confirmed));
            }
            if worked.is_err() {
                self.wake_all();
                return;
            }
            seen = self.groups.open_group();
        }
    }

    /// Commits lines that were flushed but never asked to be durable: a crash loses them for a bounded time only.
    /// With `confirm` an empty group as well.
    fn commit_idle_group(&self, confirm: bool) -> Result<()> {
        if confirm || self.groups.is_dirty() { self.wait_for(self.groups.open_group()) } else { Ok(()) }
    }

    /// Writes the lines of all committed groups to the files, syncs them and frees their part of the ring.
    ///
    /// After an error the caller wakes all waiters, once it holds no lock.
    pub(super) fn checkpoint(&self) -> Result<()> {
        let mut failed = lock(&self.checkpoint);
        self.check_halt()?;
        self.apply_unapplied(false).map_err(|failure| {
            *failed = Some(failure.to_string());
            self.poison(&failure)
        })
    }

    /// The last checkpoint, after the last commit: the header says that nothing follows.
    pub(super) fn checkpoint_and_close(&self) -> Result<()> {
        let failed = lock(&self.checkpoint);
        if let Some(cause) = &*failed {
            return Err(Error::Poisoned { path: self.files.path.clone(), cause: cause.clone() });
        }
        match self.halt.get() {
            Some(Halt::Closed) => self.apply_unapplied(true),
            _ => self.check_halt(),
        }
    }

    fn apply_unapplied(&self, closing: bool) -> Result<()> {
        let (records, end, end_group) = {
            let mut ring = lock(&self.ring);
            let records = std::mem::take(&mut ring.unapplied);
            ring.first_group += to_u64(records.len());
            (records, ring.head, ring.first_group)
        };
        if records.is_empty() && !closing {
            return Ok(());
        }
        self.apply_newest(&records)?;
        sync_parts(&self.files)?;
        // The lines are durable in the files; only now may their records be overwritten.
        let state = JournalState { life: self.life, tail: end, group: end_group, closed: closing };
        self.files.area().write_header(&state)?;
        lock(&self.ring).tail = end;
        Ok(())
    }

    /// Writes the newest copy of each line, neighbours in one write.
    fn apply_newest(&self, records: &[Record]) -> Result<()> {
        let mut lines: Vec<(LineAddr, usize, &[u8])> = Vec::new();
        for (age, record) in records.iter().enumerate() {
            lines.extend(record.entries().map(|(line, bytes)| (line, age, bytes)));
        }
        // Newest copy first within a line; the rest is dropped.
        lines.sort_unstable_by_key(|(line, age, _)| (*line, std::cmp::Reverse(*age)));
        lines.dedup_by_key(|(line, _, _)| *line);
        let mut run = Vec::new();
        let mut start: Option<LineAddr> = None;
        let mut next: Option<LineAddr> = None;
        for (line, _, bytes) in lines {
            if next != Some(line) || run.len() >= 1 << 20 {
                self.write_run(start, &run)?;
                run.clear();
                start = Some(line);
            }
            run.extend_from_slice(bytes);
            next = Some(line.next());
        }
        self.write_run(start, &run)
    }

    fn write_run(&self, start: Option<LineAddr>, bytes: &[u8]) -> Result<()> {
        let Some(start) = start.map(LineAddr::start) else { return Ok(()) };
        let part = &self.files.parts[usize::from(start.part())];
        crate::storage::write_all(part.as_ref(), bytes, start.offset(), false).map_err(|source| {
            Error::io(
                &self.files.path,
                "writing the pool file",
                "free space or replace the device, then reopen",
                source,
            )
        })
    }
}
