//! What a transaction knows: the versions it read, the ranges it read, and the changes it will make.
//!
//! Invariants:
//! - everything that was read was current at one moment ([`State::validate`] at each extension, and at the commit);
//! - a row, or a key without a row, that was read is in `reads` or in a range, so the commit notices its change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lodestone_pmem::planted;
use lodestone_pmem::sync::spin;
use lodestone_txn::{ClockKind, RowState, RowWord, StartClocks, Tick};

use crate::commit::Locks;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::tree::{Bytes, Look, Lookup, Slot, Tree};

/// A row that was read.
#[derive(Debug)]
pub struct Read {
    pub slot: Arc<Slot>,
    pub word: RowWord,
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
    /// The floor of purged rows up to which the reads were validated.
    floor: Tick,
    base: Tick,
    /// The latest version that was read.
    pub latest: Tick,
    reads: Vec<Read>,
    pub ranges: Vec<Range>,
    pub changes: BTreeMap<u32, Changes>,
    /// Met a conflict. Until the next attempt every operation meets it again.
    pub is_doomed: bool,
    /// Saw an absence that no word is left of.
    saw_purge: bool,
}

impl State {
    /// Knows the commits before the life that began at `base`.
    pub fn new(base: Tick) -> Self {
        Self {
            known: StartClocks::new(ClockKind::Thread, base),
            floor: base,
            base,
            latest: base,
            reads: Vec::new(),
            ranges: Vec::new(),
            changes: BTreeMap::new(),
            is_doomed: false,
            saw_purge: false,
        }
    }

    /// Forgets the transaction.
    pub fn reset(&mut self) {
        self.reads.clear();
        self.ranges.clear();
        self.changes.clear();
        (self.is_doomed, self.saw_purge) = (false, false);
        self.latest = self.base;
    }

    /// Ends this attempt.
    pub fn conflict(&mut self) -> Error {
        self.is_doomed = true;
        Error::Conflict
    }

    /// The row with `key` in the tree, without the own changes.
    pub fn read_key(&mut self, core: &Core, tree: &Arc<Tree>, key: &[u8]) -> Result<Option<Bytes>> {
        match tree.find(key) {
            Lookup::Slot(slot) => self.read_slot(core, &slot),
            Lookup::Nothing(look) => {
                let mut after = key.to_vec();
                after.push(0);
                let floor = look.floor;
                self.ranges.push(Range {
                    tree: tree.clone(),
                    look,
                    from: key.to_vec(),
                    to: Some(after),
                    slots: Vec::new(),
                    is_reversed: false,
                });
                self.learn_floor(core, floor)?;
                Ok(None)
            }
        }
    }

    /// The row in `slot`.
    pub fn read_slot(&mut self, core: &Core, slot: &Arc<Slot>) -> Result<Option<Bytes>> {
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
        self.reads.push(Read { slot: slot.clone(), word });
        Ok((!word.is_absent()).then_some(payload))
    }

    /// Makes sure that the reads before agree with the absence of rows that were purged up to `floor`.
    pub fn learn_floor(&mut self, core: &Core, floor: Tick) -> Result<()> {
        if floor > self.floor {
            self.validate(core, None)?;
            self.floor = floor;
        }
        self.saw_purge |= floor > Tick::NEVER;
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
        for number in 0..self.reads.len() {
            let Read { slot, word } = &self.reads[number];
            if !is_current(core, slot, *word, locks)? {
                return Err(self.conflict());
            }
        }
        let own = |slot: &Arc<Slot>| locks.is_some_and(|locks| locks.find(slot).is_some_and(|held| held.is_claimed));
        let is_current = |range: &Range| range.look.leaf.changes() == range.look.changes || is_same(range, &own);
        if !self.ranges.iter().all(is_current) {
            return Err(self.conflict());
        }
        Ok(())
    }

    /// Waits until no version that was read is pending. The transaction changes nothing.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub fn settle(&self, core: &Core) -> Result<()> {
        if planted::active("engine-answers-pending") {
            return Ok(());
        }
        let is_pending = |read: &&Read| read.word.state() == RowState::Pending;
        self.reads.iter().filter(is_pending).try_for_each(|read| core.wait_settled(&read.slot, read.word))
    }

    /// The writers of this life whose versions were read. `None`: unknown.
    pub fn writers(&self) -> Option<BTreeSet<usize>> {
        let words = self.reads.iter().map(|read| read.word.version());
        let writers = words.filter(|word| word.tick(self.base) > self.base).map(|word| word.writer().index());
        (!self.saw_purge).then(|| writers.collect())
    }
}

/// Whether the version `word` of `slot` is the newest one.
fn is_current(core: &Core, slot: &Arc<Slot>, word: RowWord, locks: Option<&Locks<'_>>) -> Result<bool> {
    for turn in 0.. {
        let now = slot.word();
        if !now.same_version(word) {
            return Ok(false);
        }
        match (now.state(), locks) {
            (RowState::Live | RowState::Absent, _) | (RowState::Pending, None) => return Ok(true),
            (RowState::Pending, Some(_)) if planted::active("engine-reader-forgets-pending") => return Ok(true),
            (RowState::Pending, Some(_)) => {
                core.refuse_if_poisoned()?;
                spin(turn);
            }
            (RowState::Locked, locks) => return Ok(locks.is_some_and(|locks| locks.find(slot).is_some())),
        }
    }
    Ok(false)
}

/// Whether the keys of the range still have these slots, and no others but those that the transaction added itself.
fn is_same(range: &Range, own: &impl Fn(&Arc<Slot>) -> bool) -> bool {
    let now = range.tree.slots_between(&range.from, range.to.as_deref());
    let now = now.iter().filter(|slot| !own(slot)).map(Arc::as_ptr);
    let then = range.slots.iter().map(Arc::as_ptr);
    if range.is_reversed { now.eq(then.rev()) } else { now.eq(then) }
}
