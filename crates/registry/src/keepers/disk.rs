//! The durable part of a keeper: its vote, its log and the table, in a journal of a pool.
//!
//! ```text
//! journal   records, each at a multiple of 64 (`fabric`: `log.rs`), of which the last base and what follows counts
//! base      kind 1, index 8, term 8, keepers 4, {keeper 8}, table (bytes 4, then Table), then as a batch
//! batch     kind 2, flags 1 (1: with a hard state), [term 8, vote 8, commit 8], entries 4, {index 8, term 8, bytes 4,
//!           command}
//! ```
//!
//! 1. *Batch*: whatever Raft wants to keep before it tells anybody. One record, so that a crash keeps all of it or
//!    nothing. An entry makes those from its index on void.
//! 2. *Base*: the table after an index, with all entries beyond. One record as well. Everything before it is free then.
//! 3. *Settle* before a message leaves. The loss of a settled record is damage, and never the end of the journal: a
//!    keeper that forgot a vote could make two leaders.
//!
//! The number of committed entries alone is not worth a record: a keeper learns it again.

use lodestone_fabric::{Journal, JournalKind};
use lodestone_pmem::{Memory, PmAddr, planted};
use lodestone_width::{exact_u32, to_u64, to_usize};
use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};

use super::KeeperId;
use crate::error::{Error, Result};
use crate::table::{COMMAND_BYTES_MAX, TABLE_BYTES_MAX, Table};
use crate::wire::{Reader, Writer};

const KIND: JournalKind = JournalKind { magic: *b"LFK", name: "log of a keeper" };
/// Most keepers of a registry.
pub const KEEPERS_MAX: usize = 9;
/// The place of the first table: before it there is no entry, and its term is no leader's.
const FIRST: (u64, u64) = (1, 1);

/// The durable part of a keeper.
#[derive(Debug)]
pub(crate) struct Disk {
    journal: Journal,
    at: PmAddr,
    keepers: Vec<KeeperId>,
    hard: HardState,
    /// Index and term of the last entry that the table of the base has.
    base: (u64, u64),
    /// The entries after it.
    entries: Vec<Entry>,
    /// The table after `applied`.
    pub(crate) table: Table,
    pub(crate) applied: u64,
    /// Whether something was appended and not settled.
    is_open: bool,
}

impl Disk {
    /// A new keeper among `keepers`: durable on return.
    pub(crate) fn create(memory: &Memory, at: PmAddr, bytes: u64, salt: u64, keepers: &[KeeperId]) -> Result<Self> {
        let mut keepers = keepers.to_vec();
        keepers.sort_unstable();
        keepers.dedup();
        if !is_possible(&keepers) {
            return Err(Error::Keepers(format!(
                "{} keepers; a registry has 1 to {KEEPERS_MAX}, with numbers from 1 to {}, 3 or 5 of them to survive \
                 faults",
                keepers.len(),
                KeeperId::MAX
            )));
        }
        let journal = Journal::create(KIND, memory, at, bytes, salt)?;
        let mut disk = Self::empty(journal, at);
        // A term and a commit, as after a first snapshot: raft takes a log without either for one that is not set up.
        disk.hard.term = FIRST.1;
        disk.hard.commit = FIRST.0;
        (disk.keepers, disk.base, disk.applied) = (keepers, FIRST, FIRST.0);
        disk.write_base()?;
        disk.settle()?;
        Ok(disk)
    }

    fn empty(journal: Journal, at: PmAddr) -> Self {
        Self {
            journal,
            at,
            keepers: Vec::new(),
            hard: HardState::default(),
            base: (0, 0),
            entries: Vec::new(),
            table: Table::default(),
            applied: 0,
            is_open: false,
        }
    }

    /// Opens the keeper at `at`. Its table is that of the base: what was committed since is applied again.
    pub(crate) fn open(memory: &Memory, at: PmAddr, bytes: u64, salt: u64) -> Result<Self> {
        let mut records = Vec::new();
        let journal = Journal::open(KIND, memory, at, bytes, salt, &mut |_, payload| {
            records.push(payload.to_vec());
            true
        })?;
        let mut disk = Self::empty(journal, at);
        for record in &records {
            // Its checksum holds, so this is no torn end.
            disk.replay(record).ok_or(Error::Impossible { at })?;
        }
        if disk.keepers.is_empty() {
            return Err(Error::NoKeeper { at });
        }
        // A batch that settled its commit before its entries does not exist; the bound costs nothing.
        disk.hard.commit = disk.hard.commit.clamp(disk.base.0, disk.last());
        Ok(disk)
    }

    fn replay(&mut self, record: &[u8]) -> Option<()> {
        let mut from = Reader(record);
        match from.u8()? {
            1 => {
                let base = (from.u64()?, from.u64()?);
                let keepers = (0..from.count(8)?).map(|_| from.u64().map(KeeperId)).collect::<Option<Vec<_>>>()?;
                (is_possible(&keepers) && base.0 >= self.base.0).then_some(())?;
                self.table = Table::from_bytes(from.bytes(2 * TABLE_BYTES_MAX)?)?;
                (self.base, self.applied, self.keepers) = (base, base.0, keepers);
                self.entries.clear();
            }
            2 => {}
            _ => return None,
        }
        self.replay_batch(from)
    }

    fn replay_batch(&mut self, mut from: Reader<'_>) -> Option<()> {
        if from.u8()? == 1 {
            (self.hard.term, self.hard.vote, self.hard.commit) = (from.u64()?, from.u64()?, from.u64()?);
        }
        for _ in 0..from.count(20)? {
            let mut entry = Entry { index: from.u64()?, term: from.u64()?, ..Entry::default() };
            entry.data = from.bytes(COMMAND_BYTES_MAX)?.to_vec().into();
            self.place(entry)?;
        }
        from.end()
    }

    /// Puts an entry into its place; those from there on are void. `None` if it does not follow.
    fn place(&mut self, entry: Entry) -> Option<()> {
        let offset = to_usize(entry.index.checked_sub(self.base.0 + 1)?);
        (offset <= self.entries.len()).then_some(())?;
        self.entries.truncate(offset);
        self.entries.push(entry);
        Some(())
    }

    /// The last entry.
    pub(crate) fn last(&self) -> u64 {
        self.base.0 + to_u64(self.entries.len())
    }

    /// All keepers of the registry.
    pub(crate) fn keepers(&self) -> &[KeeperId] {
        &self.keepers
    }

    /// The index of the table that a restart begins with.
    pub(crate) const fn base(&self) -> u64 {
        self.base.0
    }

    /// Keeps a vote and entries. Nothing may be told before [`settle`](Self::settle).
    pub(crate) fn keep(&mut self, hard: Option<&HardState>, entries: Vec<Entry>) -> Result<()> {
        if let Some(hard) = hard {
            self.hard = hard.clone();
        }
        if entries.is_empty() && hard.is_none() {
            return Ok(());
        }
        let mut record = Writer::default();
        record.u8(2);
        write_batch(&mut record, hard, &entries);
        for entry in entries {
            self.place(entry).ok_or(Error::Impossible { at: self.at })?;
        }
        if self.journal.used() > self.journal.capacity() / 2 || !self.journal.has_room(record.0.len()) {
            // The base has the batch in it.
            return self.write_base();
        }
        self.append(&record.0).map(drop)
    }

    /// So many entries are committed. It need not survive.
    pub(crate) fn committed(&mut self, commit: u64) {
        self.hard.commit = self.hard.commit.max(commit);
    }

    /// Takes the table of a leader in place of everything.
    pub(crate) fn install(&mut self, snapshot: &Snapshot) -> Result<()> {
        let meta = snapshot.get_metadata();
        let table = Table::from_bytes(&snapshot.data).ok_or(Error::Impossible { at: self.at })?;
        (self.table, self.applied, self.base) = (table, meta.index, (meta.index, meta.term));
        self.hard.commit = self.hard.commit.max(meta.index);
        self.hard.term = self.hard.term.max(meta.term);
        self.entries.clear();
        self.write_base()
    }

    /// Writes the present table and the entries beyond it, and frees everything before.
    fn write_base(&mut self) -> Result<()> {
        let term = self.term_of(self.applied).ok_or(Error::Impossible { at: self.at })?;
        let beyond = to_usize(self.applied - self.base.0);
        self.entries.drain(..beyond.min(self.entries.len()));
        self.base = (self.applied, term);
        let mut record = Writer::default();
        record.u8(1).u64(self.base.0).u64(term).u32(exact_u32(self.keepers.len()));
        for keeper in &self.keepers {
            record.u64(keeper.0);
        }
        record.bytes(&self.table.to_bytes());
        write_batch(&mut record, Some(&self.hard), &self.entries);
        let position = self.append(&record.0)?;
        // Everything before the base goes only when the base is durable.
        self.settle()?;
        self.journal.trim(position);
        Ok(())
    }

    fn append(&mut self, record: &[u8]) -> Result<u64> {
        self.is_open = true;
        Ok(self.journal.append(record)?)
    }

    /// Makes everything durable that was kept: from now on it may be told.
    pub(crate) fn settle(&mut self) -> Result<()> {
        if !self.is_open || planted::active("registry-told-before-it-is-durable") {
            return Ok(());
        }
        self.is_open = false;
        Ok(self.journal.settle()?)
    }

    fn term_of(&self, index: u64) -> Option<u64> {
        if index == self.base.0 {
            return Some(self.base.1);
        }
        self.entries.get(to_usize(index.checked_sub(self.base.0 + 1)?)).map(|entry| entry.term)
    }
}

/// Whether a registry can have these keepers.
fn is_possible(keepers: &[KeeperId]) -> bool {
    let are_numbers = keepers.iter().all(|keeper| (1..=KeeperId::MAX).contains(&keeper.0));
    !keepers.is_empty() && keepers.len() <= KEEPERS_MAX && are_numbers
}

fn write_batch(out: &mut Writer, hard: Option<&HardState>, entries: &[Entry]) {
    out.u8(u8::from(hard.is_some()));
    if let Some(hard) = hard {
        out.u64(hard.term).u64(hard.vote).u64(hard.commit);
    }
    out.u32(exact_u32(entries.len()));
    for entry in entries {
        out.u64(entry.index).u64(entry.term).bytes(&entry.data);
    }
}

/// The state of raft about `keepers`, which never change.
pub(crate) fn membership(keepers: &[KeeperId]) -> ConfState {
    let mut state = ConfState::default();
    state.set_voters(keepers.iter().map(|keeper| keeper.0).collect());
    state
}

impl Storage for Disk {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard.clone(), membership(&self.keepers)))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        let Some(from) = low.checked_sub(self.base.0 + 1) else {
            return Err(raft::Error::Store(StorageError::Compacted));
        };
        let to = to_usize(high.saturating_sub(self.base.0 + 1));
        let Some(found) = self.entries.get(to_usize(from)..to) else {
            return Err(raft::Error::Store(StorageError::Unavailable));
        };
        let mut entries = found.to_vec();
        raft::util::limit_size(&mut entries, max_size.into());
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index < self.base.0 {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        self.term_of(index).ok_or(raft::Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.base.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, _: u64) -> raft::Result<Snapshot> {
        let Some(term) = self.term_of(self.applied).filter(|_| self.applied >= request_index) else {
            return Err(raft::Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        };
        let mut snapshot = Snapshot { data: self.table.to_bytes().into(), ..Snapshot::default() };
        let meta = snapshot.mut_metadata();
        (meta.index, meta.term) = (self.applied, term);
        meta.set_conf_state(membership(&self.keepers));
        Ok(snapshot)
    }
}
