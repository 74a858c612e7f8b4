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
//!
//! **Discarded lines are left out.** The owner of a log says which of its lines no thread will read again
//! ([`Memory::discard`](crate::Memory::discard)). They leave the journal without a way through the file, which keeps
//! something older there. Only content of groups before the call is left out: the range may be in use again. And only
//! by a checkpoint that moves the line which says that it is not needed: a repair may give up the rest of the journal.

use std::collections::BTreeMap;
use std::time::Instant;

use lodestone_width::{to_u64, to_usize};

use super::record::Record;
use super::replay::sync_parts;
use super::{BlockDomain, Engine, Halt, Ring};
use crate::addr::{LineAddr, PmAddr};
use crate::block::journal::JournalState;
use crate::counters;
use crate::error::{Error, Result};
use crate::events;
use crate::planted;
use crate::sync::lock;

/// How many of the committed groups a checkpoint moves, from the oldest one on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Upto {
    /// All of them, and the header says that nothing follows.
    Close,
    All,
    /// Those up to the group with this number.
    Group(u64),
    /// So many that a quarter of the ring is in use afterwards. The newest ones are left, because most bytes of logs
    /// are discarded before they are old.
    Oldest,
}

/// Groups that a checkpoint has moved.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    groups: u64,
    /// In the journal.
    bytes: u64,
}

/// Ranges whose older content is no longer needed, by their first address.
#[derive(Clone, Debug, Default)]
pub(super) struct Discarded(BTreeMap<u64, Discard>);

#[derive(Clone, Copy, Debug)]
struct Discard {
    /// The address after the range.
    end: u64,
    /// The last group of that content.
    last: u64,
    /// The group whose lines say that it is not needed.
    reason: u64,
}

impl Discarded {
    /// Whether no thread needs the content that `line` has in `group`.
    fn has(&self, line: LineAddr, group: u64) -> bool {
        let start = line.start().to_raw();
        let before = self.0.range(..=start).next_back();
        before.is_some_and(|(_, discard)| start < discard.end && group <= discard.last)
    }

    /// Those that count once the groups before `end_group` are in the files. The others are kept for later.
    fn of_groups_before(&mut self, end_group: u64) -> Self {
        let counts = |discard: &Discard| discard.reason < end_group || planted::active("block-discards-early");
        let counting = self.0.iter().filter(|(_, discard)| counts(discard));
        let counting = Self(counting.map(|(start, discard)| (*start, *discard)).collect());
        self.0.retain(|_, discard| discard.last >= end_group);
        counting
    }
}

impl BlockDomain {
    /// Everything up to `group`, which is on disk, is in the files on return.
    pub(crate) fn checkpoint_upto(&self, group: u64) -> Result<()> {
        self.checkpointed(Upto::Group(group))
    }

    /// A checkpoint on a thread that holds no lock.
    pub(super) fn checkpointed(&self, upto: Upto) -> Result<()> {
        let checkpoint = self.engine.checkpoint(upto);
        if checkpoint.is_err() {
            self.engine.wake_all();
        }
        checkpoint
    }

    /// Whether everything up to `group` is in the files.
    pub(crate) fn has_left(&self, group: u64) -> bool {
        group < lock(&self.engine.ring).left_before
    }

    /// The content of `len` bytes at `at`, whole lines, in committed groups need not reach the file with what this
    /// thread flushed last. That of later groups does. A checkpoint that is under way may still write the older one.
    pub(crate) fn discard(&self, at: PmAddr, len: u64) {
        let reason = self.flushed_here();
        let mut ring = lock(&self.engine.ring);
        if !ring.unapplied.is_empty() {
            let last = ring.first_group + to_u64(ring.unapplied.len()) - 1;
            ring.discarded.0.insert(at.to_raw(), Discard { end: at.to_raw() + len, last, reason });
        }
    }
}

impl Engine {
    /// The background thread: checkpoints whenever half of the ring is used, and commits flushed lines that no thread
    /// waits for.
    pub(super) fn run_checkpoints(&self) {
        let half = self.files.area().ring_bytes() / 2;
        let mut seen = 0;
        loop {
            let mut ring = lock(&self.ring);
            if !ring.closing && ring.wanted == 0 && ring.head - ring.tail <= half {
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
            let mut worked = if crowded { self.checkpoint(Upto::Oldest) } else { Ok(()) };
            if wanted > 0 || !crowded {
                worked = worked.and_then(|()| self.commit_idle_group(wanted, is_silent && !is_confirmed));
            }
            if worked.is_err() {
                self.wake_all();
                return;
            }
            seen = self.groups.open_group();
        }
    }

    /// Commits lines that were flushed but never asked to be durable: a crash loses them for a bounded time only.
    /// An empty group as well when a task waits for it (`wanted`), and with `confirm`.
    fn commit_idle_group(&self, wanted: u64, confirm: bool) -> Result<()> {
        let open = self.groups.open_group();
        if confirm || wanted >= open || self.groups.is_dirty() { self.wait_for(open) } else { Ok(()) }
    }

    /// Writes the lines of committed groups to the files, syncs them and frees their part of the ring.
    ///
    /// After an error the caller wakes all waiters, once it holds no lock.
    pub(super) fn checkpoint(&self, upto: Upto) -> Result<()> {
        let start = Instant::now();
        let mut failed = lock(&self.checkpoint);
        self.check_halt()?;
        let moved = self.apply_unapplied(upto).map_err(|failure| {
            *failed = Some(failure.to_string());
            self.poison(&failure)
        });
        drop(failed);
        let Moved { groups, bytes } = moved?;
        if groups > 0 {
            events::checkpointed(&self.files.path, groups, bytes, start.elapsed());
        }
        Ok(())
    }

    /// The last checkpoint, after the last commit: the header says that nothing follows.
    pub(super) fn checkpoint_and_close(&self) -> Result<()> {
        let failed = lock(&self.checkpoint);
        if let Some(cause) = &*failed {
            return Err(Error::Poisoned { path: self.files.path.clone(), cause: cause.clone() });
        }
        match self.halt.get() {
            Some(Halt::Closed) => self.apply_unapplied(Upto::Close).map(|_| ()),
            _ => self.check_halt(),
        }
    }

    fn apply_unapplied(&self, upto: Upto) -> Result<Moved> {
        let closing = matches!(upto, Upto::Close);
        let (records, discarded, first, bytes, end, end_group) = {
            let mut ring = lock(&self.ring);
            let count = self.records_upto(&ring, upto);
            let records: Vec<Record> = ring.unapplied.drain(..count).collect();
            let first = ring.first_group;
            ring.first_group += to_u64(count);
            let next = ring.first_group;
            let discarded = ring.discarded.of_groups_before(next);
            let bytes = records.iter().map(Record::len).sum::<u64>();
            (records, discarded, first, bytes, ring.tail + bytes, next)
        };
        if records.is_empty() && !closing {
            return Ok(Moved::default());
        }
        self.apply_newest(&records, first, &discarded)?;
        sync_parts(&self.files)?;
        // The lines are durable in the files; only now may their records be overwritten.
        let state = JournalState { life: self.life, tail: end, group: end_group, closed: closing };
        self.files.area().write_header(&state)?;
        let mut ring = lock(&self.ring);
        (ring.tail, ring.left_before) = (end, end_group);
        Ok(Moved { groups: to_u64(records.len()), bytes })
    }

    /// How many records a checkpoint takes.
    fn records_upto(&self, ring: &Ring, upto: Upto) -> usize {
        match upto {
            Upto::Close | Upto::All => ring.unapplied.len(),
            Upto::Group(group) => to_usize((group + 1).saturating_sub(ring.first_group)).min(ring.unapplied.len()),
            Upto::Oldest => {
                let mut left = (ring.head - ring.tail).saturating_sub(self.files.area().ring_bytes() / 4);
                let is_taken = |record: &&Record| {
                    let is_taken = left > 0;
                    left = left.saturating_sub(record.len());
                    is_taken
                };
                ring.unapplied.iter().take_while(is_taken).count()
            }
        }
    }

    /// Writes the newest copy of each line, neighbours in one write. `first` is the group of the first record.
    fn apply_newest(&self, records: &[Record], first: u64, discarded: &Discarded) -> Result<()> {
        let mut lines: Vec<(LineAddr, u64, &[u8])> = Vec::new();
        for (group, record) in (first..).zip(records) {
            lines.extend(record.entries().map(|(line, bytes)| (line, group, bytes)));
        }
        // Newest copy first within a line; the rest is dropped.
        lines.sort_unstable_by_key(|(line, group, _)| (*line, std::cmp::Reverse(*group)));
        lines.dedup_by_key(|(line, _, _)| *line);
        // After that: where the newest copy is no longer needed, no older one is.
        lines.retain(|(line, group, _)| !discarded.has(*line, *group));
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
        counters::bump(&counters::local().checkpoint_bytes, to_u64(bytes.len()));
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
