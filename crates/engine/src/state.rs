//! The memory of a transaction: the versions it read, the ranges it read, and the changes it will make.
//!
//! A transaction that reads a snapshot has a [`Cut`], and needs no extension. At its commit a serializable one
//! validates
//! its reads as any other, and has met a conflict when it read a version that is not the newest. The other levels
//! validate the rows that are changed ([`State::validate_changes`]).
//!
//! Invariants:
//! - everything that was read was current at one moment ([`State::validate`] at each extension, and at the commit);
//! - a row, or a key without a row, that was read is in `reads` or in a range, so the commit notices its change.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use lodestone_pmem::sync::spin;
use lodestone_pmem::{DurablePoint, count_shared_rmws, planted};
use lodestone_txn::{ClockKind, RowState, RowWord, StartClocks, Tick};

use crate::catalog::{Definition, Origin};
use crate::columns::{Columns, LOOKS_MAX};
use crate::commit::{Change, Held, Locks};
use crate::core::{Core, Handle};
use crate::error::{Error, Result};
use crate::isolation::Isolation;
use crate::savepoint::Savepoints;
use crate::side::RowKey;
use crate::snapshot::{Cut, Source, Version};
use crate::stats::Counts;
use crate::tree::{Bytes, Look, Lookup, Slot, Tree};

/// A row that was read.
#[derive(Debug)]
pub struct Read {
    pub slot: Arc<Slot>,
    pub word: RowWord,
    /// If it is noted by column.
    columns: Option<Box<Columns>>,
}

impl Read {
    fn new(slot: Arc<Slot>, word: RowWord) -> Self {
        Self { slot, word, columns: None }
    }

    /// The present version, if the columns that were read have the same values there.
    fn moved(&self, locks: Option<&Locks<'_>>) -> Option<RowWord> {
        let columns = self.columns.as_ref()?;
        let (word, payload) = match locks.and_then(|locks| locks.find(&self.slot)) {
            Some(held) => (held.seen, self.slot.payload()),
            None => self.slot.read()?,
        };
        (!word.is_absent() && columns.are_in(self.slot.key(), &payload)).then_some(word)
    }
}

/// A table that was used: its row in the catalog. Kept for later transactions, so that its slot is shared once.
#[derive(Debug)]
struct TableUse {
    tree: u32,
    read: Read,
    is_in_use: bool,
}

/// Keys of one leaf that were read: these slots and no others.
#[derive(Debug)]
pub struct Range {
    pub tree: Arc<Tree>,
    pub look: Look,
    /// The first key.
    pub from: Vec<u8>,
    /// The end of the keys, exclusive. `None`: no end.
    pub to: Option<Vec<u8>>,
    /// The slots in the order in which they were read.
    pub slots: Vec<Arc<Slot>>,
    /// Whether that was from the last key to the first.
    pub is_reversed: bool,
}

/// New rows of a tree; `None` deletes.
#[derive(Debug)]
pub struct Changes {
    pub tree: Arc<Tree>,
    pub rows: BTreeMap<Bytes, Option<Bytes>>,
}

/// See the module. It is used again by later transactions: its buffers and clocks stay.
#[derive(Debug)]
pub struct State {
    /// Up to which tick the commits of each writer are known.
    known: StartClocks,
    /// The purges before the last validation for one.
    purges_known: u64,
    base: Tick,
    /// The latest version that was read.
    pub latest: Tick,
    reads: Vec<Read>,
    /// By the number of the table's tree.
    tables: Vec<TableUse>,
    pub ranges: Vec<Range>,
    pub changes: BTreeMap<u32, Changes>,
    /// Met a conflict. Until the next attempt every operation meets it again.
    pub is_doomed: bool,
    /// Saw an absence that no word is left of.
    saw_purge: bool,
    isolation: Isolation,
    /// The snapshot that is read.
    cut: Option<Cut>,
    /// The snapshot had a version that was not the newest one, or none beside a row that is there.
    is_stale: bool,
    /// Writers of versions that were read and that are not in `reads`, with the latest of each.
    read_from: BTreeMap<usize, Tick>,
    /// Where purged rows are durable whose absence was read.
    purged: DurablePoint,
    /// Read committed: each row as it was read last; `None` without a slot.
    bases: HashMap<RowKey, Option<RowWord>>,
    /// Rows that must be there at the commit, at every level.
    held: Vec<Read>,
    pub savepoints: Savepoints,
    /// Trees of tables and indexes that the transaction has made.
    pub made: Vec<u32>,
    /// Trees of tables and indexes that it has dropped, unless that was rolled back.
    pub dropped: Vec<u32>,
    /// It defines tables.
    pub defines: bool,
    /// Gives a table the rows of a load. So it takes no numbers of trees: see `catalog::is_load`.
    pub has_load: bool,
    counts: Arc<Counts>,
}

impl State {
    /// Knows the commits before the life that began at `base`.
    pub fn new(base: Tick, counts: Arc<Counts>) -> Self {
        Self {
            known: StartClocks::new(ClockKind::Thread, base),
            purges_known: 0,
            base,
            latest: base,
            reads: Vec::new(),
            tables: Vec::new(),
            ranges: Vec::new(),
            changes: BTreeMap::new(),
            is_doomed: false,
            saw_purge: false,
            isolation: Isolation::default(),
            cut: None,
            is_stale: false,
            read_from: BTreeMap::new(),
            purged: DurablePoint::default(),
            bases: HashMap::new(),
            held: Vec::new(),
            savepoints: Savepoints::default(),
            made: Vec::new(),
            dropped: Vec::new(),
            defines: false,
            has_load: false,
            counts,
        }
    }

    /// Begins an attempt.
    pub fn begin(&mut self, core: &Handle, isolation: Isolation) {
        self.isolation = isolation;
        self.cut = isolation.has_snapshot().then(|| Cut::new(core.clone()));
    }

    /// Its level.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// The counts to which it adds.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Counts versions that were kept aside.
    pub fn count_kept(&self, versions: u64) {
        self.counts.side_copies(versions);
    }

    /// Forgets the transaction.
    pub fn reset(&mut self) {
        if self.is_doomed {
            self.counts.conflicts(1);
        }
        self.reads.clear();
        self.tables.iter_mut().for_each(|table| table.is_in_use = false);
        self.ranges.clear();
        self.changes.clear();
        (self.is_doomed, self.saw_purge) = (false, false);
        self.latest = self.base;
        (self.isolation, self.cut, self.is_stale) = (Isolation::default(), None, false);
        self.read_from.clear();
        self.purged = DurablePoint::default();
        self.bases.clear();
        self.held.clear();
        self.savepoints.clear();
        self.made.clear();
        self.dropped.clear();
        self.defines = false;
        self.has_load = false;
    }

    /// Makes the rest of the transaction serializable: from here on everything that it reads is validated. Reads of
    /// [`Isolation::ReadCommitted`] before stay what they were, and are forgotten but for the answers that wait for
    /// them; the rows that it has changed are still compared with what it saw last. One that reads a snapshot has noted
    /// everything.
    ///
    /// Why the forgotten reads do no harm: the clocks that are known cover commits of before this moment. A version
    /// that they cover and that is read later was current already at the first read that is validated.
    pub fn serialize(&mut self, core: &Core) -> Result<()> {
        match self.isolation {
            Isolation::Serializable | Isolation::SerializableOnSnapshot => {}
            Isolation::Snapshot => self.isolation = Isolation::SerializableOnSnapshot,
            Isolation::ReadCommitted => {
                self.settle(core)?;
                for read in std::mem::take(&mut self.reads) {
                    self.note_writer(read.word);
                }
                self.ranges.clear();
                self.isolation = Isolation::Serializable;
            }
        }
        Ok(())
    }

    /// Changes the row with `key`; `None` deletes.
    pub fn set(&mut self, tree: &Arc<Tree>, key: Bytes, payload: Option<Bytes>) {
        let make = || {
            count_shared_rmws(2);
            Changes { tree: tree.clone(), rows: BTreeMap::new() }
        };
        let changes = self.changes.entry(tree.number).or_insert_with(make);
        let before = changes.rows.insert(key.clone(), payload);
        self.savepoints.note(tree.number, &key, before);
    }

    /// Ends this attempt.
    pub fn conflict(&mut self) -> Error {
        self.is_doomed = true;
        Error::Conflict
    }

    /// The row with `key` in the tree, without the own changes.
    pub fn read_key(&mut self, core: &Core, tree: &Arc<Tree>, key: &[u8]) -> Result<Option<Bytes>> {
        if self.isolation == Isolation::ReadCommitted {
            return self.read_newest(core, tree, key);
        }
        if let Some(cut) = &self.cut {
            let found = cut.read(tree, key)?;
            if let Source::Nothing(look) = &found.source {
                self.note_nothing(tree, key, look.clone());
            }
            return Ok(self.accept(found));
        }
        match tree.find(key)? {
            Lookup::Slot(slot) => self.read_slot(core, tree, key, &slot),
            Lookup::Nothing(look) => {
                self.note_nothing(tree, key, look.clone());
                self.learn_floor(core, &look)?;
                Ok(None)
            }
        }
    }

    /// Notes that `key` has no slot.
    fn note_nothing(&mut self, tree: &Arc<Tree>, key: &[u8], look: Look) {
        let (tree, slots, to) = (tree.clone(), Vec::new(), Some([key, &[0]].concat()));
        self.push_range(Range { tree, look, from: key.to_vec(), to, slots, is_reversed: false });
    }

    /// The row with `key`, of which the transaction uses `numbers` only. Without own changes.
    pub(crate) fn read_columns(
        &mut self,
        core: &Core,
        tree: &Arc<Tree>,
        key: &[u8],
        (definition, numbers): (&Arc<Definition>, &[usize]),
    ) -> Result<Option<Bytes>> {
        let before = self.reads.len();
        let found = self.read_key(core, tree, key)?;
        // The other levels validate no reads, or know that a snapshot had the newest version.
        let is_noted = self.isolation == Isolation::Serializable && self.reads.len() > before;
        if let (Some(payload), true, Some(read)) = (&found, is_noted, self.reads.last_mut()) {
            let (definition, numbers, payload) = (definition.clone(), numbers.to_vec(), payload.clone());
            read.columns = Some(Box::new(Columns { definition, numbers, payload }));
        }
        Ok(found)
    }

    /// Whether there is a row with `key`, which is validated at the commit at every level, with the columns that have
    /// these numbers. Without own changes.
    pub(crate) fn hold(
        &mut self,
        core: &Core,
        tree: &Arc<Tree>,
        key: &[u8],
        (definition, numbers): (&Arc<Definition>, Vec<usize>),
    ) -> Result<bool> {
        let Some(payload) = self.read_columns(core, tree, key, (definition, &numbers))? else { return Ok(false) };
        if self.isolation == Isolation::Serializable {
            return Ok(true);
        }
        let Lookup::Slot(slot) = tree.find(key)? else { return Err(self.conflict()) };
        if slot.word().is_absent() {
            return Err(self.conflict());
        }
        // The version that was read, and not that of now: what came in between is to be seen at the commit too.
        let word = match &self.cut {
            Some(cut) => match cut.read(tree, key)?.source {
                Source::Newest(_, word) | Source::Kept(word) => Some(word),
                Source::Nothing(_) | Source::Later(_) => None,
            },
            None => self.bases.get(&RowKey(tree.number, key.into())).copied().flatten(),
        };
        let Some(word) = word else { return Err(self.conflict()) };
        let columns = Columns { definition: definition.clone(), numbers, payload };
        self.held.push(Read { slot, word, columns: Some(Box::new(columns)) });
        Ok(true)
    }

    /// Whether all rows that are held are there.
    fn are_held(&self, core: &Core, locks: &Locks<'_>) -> Result<bool> {
        self.held.iter().try_fold(true, |all, read| {
            Ok(all && (is_current(core, &read.slot, read.word, Some(locks))? || read.moved(Some(locks)).is_some()))
        })
    }

    /// Notes a range that was read.
    pub fn push_range(&mut self, range: Range) {
        // The references to its tree and to its leaf.
        count_shared_rmws(4);
        self.ranges.push(range);
    }

    /// The newest row that is committed. It notes what it saw, in case that the row is changed.
    fn read_newest(&mut self, core: &Core, tree: &Arc<Tree>, key: &[u8]) -> Result<Option<Bytes>> {
        let row = RowKey(tree.number, key.into());
        for turn in 0.. {
            match tree.find(key)? {
                Lookup::Nothing(look) => {
                    self.purged = self.purged.max(look.purged());
                    self.bases.insert(row, None);
                    return Ok(None);
                }
                Lookup::Slot(slot) => {
                    if let Some((word, payload)) = slot.read() {
                        self.latest = self.latest.max(word.version().tick(self.base));
                        self.bases.insert(row, Some(word));
                        self.reads.push(Read::new(slot, word));
                        return Ok((!word.is_absent()).then_some(payload));
                    }
                }
            }
            // A commit is under way, or the slot was purged.
            core.refuse_if_poisoned()?;
            spin(turn);
        }
        Ok(None)
    }

    /// Notes a version that the cut of the transaction sees.
    fn accept(&mut self, found: Version) -> Option<Bytes> {
        match found.source {
            Source::Newest(slot, word) => {
                self.latest = self.latest.max(word.version().tick(self.base));
                self.reads.push(Read::new(slot, word));
            }
            Source::Kept(word) => {
                self.note_writer(word);
                self.is_stale = true;
            }
            Source::Nothing(look) => self.purged = self.purged.max(look.purged()),
            Source::Later(purged) => {
                self.purged = self.purged.max(purged);
                self.is_stale = true;
            }
        }
        found.payload
    }

    /// Notes the version of a row that a statement has read from a cut of its own.
    pub fn accept_for_statement(&mut self, tree: &Tree, key: &Bytes, found: Version) -> Option<Bytes> {
        let base = match &found.source {
            Source::Newest(_, word) | Source::Kept(word) => {
                self.note_writer(*word);
                Some(*word)
            }
            Source::Nothing(look) => {
                self.purged = self.purged.max(look.purged());
                None
            }
            Source::Later(purged) => {
                self.purged = self.purged.max(*purged);
                None
            }
        };
        self.bases.insert(RowKey(tree.number, key.clone()), base);
        found.payload
    }

    fn note_writer(&mut self, word: RowWord) {
        let version = word.version();
        self.latest = self.latest.max(version.tick(self.base));
        if version.tick(self.base) > self.base {
            note_latest(&mut self.read_from, version.writer().index(), version.tick(self.base));
        }
    }

    /// The row with `key`, in `slot`.
    pub fn read_slot(&mut self, core: &Core, tree: &Arc<Tree>, key: &[u8], slot: &Arc<Slot>) -> Result<Option<Bytes>> {
        if let Some(cut) = &self.cut {
            let found = cut.read_slot(tree, key, slot)?;
            // The slot went away between two looks, which the range notes at the commit.
            self.is_stale |= matches!(found.source, Source::Nothing(_));
            return Ok(self.accept(found));
        }
        let Some((word, payload)) = slot.read() else { return Err(self.conflict()) };
        if !self.known.covers(word.version()) {
            // The version may be later than what was read before. If all of that is unchanged, it is current with this
            // version, and so with all that its writer committed up to here.
            if !planted::active("engine-no-extension") {
                self.validate(core, None)?;
            }
            self.known.raise(word.version());
        }
        self.latest = self.latest.max(word.version().tick(self.base));
        self.reads.push(Read::new(slot.clone(), word));
        Ok((!word.is_absent()).then_some(payload))
    }

    /// Notes that the transaction uses the table whose tree is `tree`, by a handle that was made from `origin`. Returns
    /// whether the table is as it was then.
    pub fn use_table(&mut self, core: &Core, tree: u32, origin: &Origin) -> Result<bool> {
        let place = self.tables.binary_search_by_key(&tree, |table| table.tree);
        if let Ok(number) = place
            && self.tables[number].is_in_use
        {
            return Ok(self.tables[number].read.word.same_version(origin.word));
        }
        let Origin { slot, word, catalog, key } = origin;
        if let Some(cut) = &self.cut
            && !cut.sees_table(origin)?
        {
            return Ok(false);
        }
        let now = slot.word();
        if self.cut.is_none() && !now.same_version(*word) {
            // An answer, so it must be true and durable. A slot that stays locked belongs to no row any more.
            return if slot.read().is_some() {
                self.read_slot(core, catalog, key, slot).map(|_| false)
            } else {
                Ok(false)
            };
        }
        if self.cut.is_none() && now.state() == RowState::Locked {
            return Err(self.conflict());
        }
        if self.isolation == Isolation::Serializable && !self.known.covers(now.version()) {
            self.validate(core, None)?;
            self.known.raise(now.version());
        }
        self.latest = self.latest.max(word.version().tick(self.base));
        // The state tells whether the version may be pending.
        let word = if now.same_version(*word) { now } else { *word };
        match place {
            Ok(number) => {
                let table = &mut self.tables[number];
                if !Arc::ptr_eq(&table.read.slot, slot) {
                    table.read.slot = slot.clone();
                }
                (table.read.word, table.is_in_use) = (word, true);
            }
            Err(number) => {
                let read = Read::new(slot.clone(), word);
                self.tables.insert(number, TableUse { tree, read, is_in_use: true });
            }
        }
        Ok(true)
    }

    /// The slot of the row with `key`, and the version that was read. `None`: there is no such row.
    pub fn version_of(&mut self, core: &Core, tree: &Arc<Tree>, key: &[u8]) -> Result<Option<(Arc<Slot>, RowWord)>> {
        let Lookup::Slot(slot) = tree.find(key)? else { return Ok(None) };
        let Some(cut) = &self.cut else {
            let found = self.read_slot(core, tree, key, &slot)?;
            return Ok(found.and_then(|_| self.reads.last().map(|read| (read.slot.clone(), read.word))));
        };
        // It may be an older version, which is not among the reads. Then the transaction cannot change the table.
        let found = cut.read_slot(tree, key, &slot)?;
        let seen = match &found.source {
            Source::Newest(slot, word) => Some((slot.clone(), *word)),
            Source::Kept(word) => Some((slot, *word)),
            Source::Nothing(_) | Source::Later(_) => None,
        };
        Ok(self.accept(found).and(seen))
    }

    /// Whether no commit has changed the row with `key` since the snapshot of the transaction, if it has one.
    pub fn is_newest(&self, tree: &Arc<Tree>, key: &[u8]) -> Result<bool> {
        let Some(cut) = &self.cut else { return Ok(true) };
        Ok(matches!(cut.read(tree, key)?.source, Source::Newest(..) | Source::Nothing(_)))
    }

    /// Whether the table's row is the one that [`version_of`](Self::version_of) found before, and no commit is about to
    /// replace it. The rows of its indexes that were read in between belong to it then: a commit that changes them
    /// locks the table's row before, and sets it with them.
    pub fn still_sees(&self, origin: &Origin) -> bool {
        let now = origin.slot.word();
        self.cut.is_some() || now.same_version(origin.word) && now.state() != RowState::Locked
    }

    /// The rows of the tables that were used.
    fn table_reads(&self) -> impl Iterator<Item = &Read> {
        let is_noted = |table: &&TableUse| table.is_in_use && !planted::active("engine-table-unnoted");
        self.tables.iter().filter(is_noted).map(|table| &table.read)
    }

    /// The addresses of the words that a validation looks at.
    pub fn read_words(&self) -> impl Iterator<Item = usize> {
        let ranges = self.ranges.iter().map(|range| range.look.address());
        self.all_reads().map(|read| read.slot.address()).chain(ranges)
    }

    /// Everything that was read but ranges.
    fn all_reads(&self) -> impl Iterator<Item = &Read> {
        self.reads.iter().chain(self.table_reads())
    }

    /// Makes sure that the reads before agree with the absence of rows that were purged from the leaf of `look`.
    ///
    /// The tick of a deletion does not say when it was committed: clocks of threads differ, and a later deletion may
    /// have a smaller tick. The numbers of purges rise in time.
    pub fn learn_floor(&mut self, core: &Core, look: &Look) -> Result<()> {
        if self.isolation != Isolation::Serializable {
            self.purged = self.purged.max(look.purged());
            return Ok(());
        }
        let by_tick = planted::active("engine-purges-by-tick");
        let (purge, last) = if by_tick { (look.floor().0, look.floor().0) } else { (look.purge(), core.last_purge()) };
        if purge > self.purges_known {
            self.validate(core, None)?;
            // Looked at before: what was purged by then was deleted before this validation.
            self.purges_known = last;
        }
        self.saw_purge |= look.floor() > Tick::NEVER;
        Ok(())
    }

    /// The rows that were read, and their versions.
    pub fn read_rows(&self) -> Vec<(Arc<Slot>, RowWord)> {
        self.reads.iter().map(|read| (read.slot.clone(), read.word)).collect()
    }

    /// Knows the own commit of `version`.
    pub fn know(&mut self, version: RowWord) {
        self.known.raise(version.version());
    }

    /// Whether everything that was read is current. A commit passes its locks, and then no version that was read is
    /// pending on return.
    ///
    /// # Errors
    /// [`Error::Conflict`]; [`Error::Poisoned`].
    pub fn validate(&mut self, core: &Core, locks: Option<&Locks<'_>>) -> Result<()> {
        // At every level: a handle that does not know all indexes of its table must not change rows.
        let tables_count = self.isolation == Isolation::Serializable || locks.is_some();
        if tables_count && !are_current(core, self.table_reads(), locks)? {
            return Err(self.conflict());
        }
        if let Some(locks) = locks
            && !self.are_held(core, locks)?
        {
            return Err(self.conflict());
        }
        match (self.isolation, locks) {
            (Isolation::Serializable, _) => {}
            // All that it read was committed, and it changes nothing.
            (_, None) => return Ok(()),
            (Isolation::SerializableOnSnapshot, Some(_)) => {
                if self.is_stale && !planted::active("engine-stale-reads-count") {
                    return Err(self.conflict());
                }
            }
            (Isolation::Snapshot | Isolation::ReadCommitted, Some(locks)) => {
                return self.validate_changes(core, locks);
            }
        }
        if locks.is_some() && planted::active("engine-reads-unvalidated") {
            return Ok(());
        }
        if !self.are_reads_current(core, locks)? {
            return Err(self.conflict());
        }
        let own = |slot: &Arc<Slot>| locks.is_some_and(|locks| locks.find(slot).is_some_and(|held| held.is_claimed));
        for range in &self.ranges {
            if !range.look.is_current() && !is_same(range, &own)? {
                return Err(self.conflict());
            }
        }
        match locks {
            // It began at a level that validates the rows that are changed.
            Some(locks) if !self.bases.is_empty() => self.validate_changes(core, locks),
            _ => Ok(()),
        }
    }

    /// Whether all rows that were read are as they were read, by version or by column, at one moment.
    fn are_reads_current(&mut self, core: &Core, locks: Option<&Locks<'_>>) -> Result<bool> {
        for _ in 0..LOOKS_MAX {
            let mut has_moved = false;
            for read in &mut self.reads {
                if is_current(core, &read.slot, read.word, locks)? {
                    continue;
                }
                let Some(word) = read.moved(locks) else { return Ok(false) };
                read.word = word;
                self.latest = self.latest.max(word.version().tick(self.base));
                has_moved = true;
            }
            if !has_moved || planted::active("engine-columns-one-look") {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the rows that are changed are as the transaction saw them: no newer than its snapshot, or as they were
    /// read last. No version that was read is pending on return.
    ///
    /// # Errors
    /// As [`validate`](Self::validate).
    fn validate_changes(&mut self, core: &Core, locks: &Locks<'_>) -> Result<()> {
        let bug = if self.cut.is_some() { "engine-snapshot-writes-unvalidated" } else { "engine-bases-unvalidated" };
        let is_as_seen = |(held, change): (&Held, &Change)| match &self.cut {
            Some(cut) => cut.sees(held.seen),
            None => match self.bases.get(&RowKey(locks.tree_of(change).number, held.slot.key().clone())) {
                // It was not read, or read as absent and is so still.
                None => true,
                Some(base) if held.is_claimed => base.is_none_or(RowWord::is_absent),
                Some(base) => base.is_some_and(|base| base.same_version(held.seen)),
            },
        };
        if !locks.changed().all(is_as_seen) && !planted::active(bug) {
            return Err(self.conflict());
        }
        self.settle(core)
    }

    /// Ends the snapshot of a transaction that was validated, so that the versions it replaces are not kept for itself.
    pub fn end_reads(&mut self) {
        self.cut = None;
    }

    /// Waits until no version that was read is pending. The transaction changes nothing, or holds its locks: the
    /// pending ones have only their fence before them.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn settle(&self, core: &Core) -> Result<()> {
        if planted::active("engine-answers-pending") {
            return Ok(());
        }
        let is_pending = |read: &&Read| read.word.state() == RowState::Pending;
        self.all_reads().filter(is_pending).try_for_each(|read| core.wait_settled(&read.slot, read.word))
    }

    /// The writers of this life whose versions were read, and the latest version of each. `None`: unknown.
    pub fn writers(&self) -> Option<BTreeMap<usize, Tick>> {
        if self.saw_purge {
            return None;
        }
        let mut writers = self.read_from.clone();
        let words = self.all_reads().map(|read| read.word.version());
        for word in words.filter(|word| word.tick(self.base) > self.base) {
            note_latest(&mut writers, word.writer().index(), word.tick(self.base));
        }
        Some(writers)
    }

    /// Where purged rows are durable whose absence was read, as far as [`writers`](Self::writers) does not say.
    pub fn purged(&self) -> DurablePoint {
        self.purged
    }
}

fn note_latest(writers: &mut BTreeMap<usize, Tick>, writer: usize, tick: Tick) {
    let latest = writers.entry(writer).or_insert(tick);
    *latest = tick.max(*latest);
}

/// Whether all these versions are the newest ones of their slots.
fn are_current<'r>(core: &Core, mut reads: impl Iterator<Item = &'r Read>, locks: Option<&Locks<'_>>) -> Result<bool> {
    reads.try_fold(true, |all, read| Ok(all && is_current(core, &read.slot, read.word, locks)?))
}

/// Whether the version `word` of `slot` is the newest one.
fn is_current(core: &Core, slot: &Arc<Slot>, word: RowWord, locks: Option<&Locks<'_>>) -> Result<bool> {
    for turn in 0.. {
        let now = slot.word();
        let is_own = || locks.is_some_and(|locks| locks.find(slot).is_some());
        if !now.same_version(word) {
            return Ok(planted::active("engine-dup-unvalidated") && is_own());
        }
        match (now.state(), locks) {
            (RowState::Live | RowState::Absent, _) | (RowState::Pending, None) => return Ok(true),
            (RowState::Pending, Some(_)) if planted::active("engine-reader-forgets-pending") => return Ok(true),
            (RowState::Pending, Some(_)) => {
                core.refuse_if_poisoned()?;
                spin(turn);
            }
            (RowState::Locked, _) => return Ok(is_own() || planted::active("engine-pending-is-lock")),
        }
    }
    Ok(false)
}

/// Whether the keys of the range still have these slots, and no others but those that the transaction added itself.
///
/// # Errors
/// An image that cannot be read.
fn is_same(range: &Range, own: &impl Fn(&Arc<Slot>) -> bool) -> Result<bool> {
    let now = range.tree.slots_between(&range.from, range.to.as_deref())?;
    let now = now.iter().filter(|slot| !own(slot)).map(Arc::as_ptr);
    let then = range.slots.iter().map(Arc::as_ptr);
    Ok(if range.is_reversed { now.eq(then.rev()) } else { now.eq(then) })
}
