//! The commit of a transaction with changes.
//!
//! 1. *Encode* the record and reserve room in the log of a writer. No lock is held, so a full log is an error like any
//!    other ([`lodestone_wal::LogWriter::reserve`]). A row may be a delta to its present version (`delta.rs`). If
//!    another commit replaces that before step 2, the record is encoded again, without deltas.
//! 2. *Claim and lock*, in the order of the keys: a key without a slot gets one, which is locked. Another slot is
//!    locked at the version that it has. A locked one is a conflict. A pending one is waited for: its transaction has
//!    only its fence before it. So no thread waits for one that waits.
//! 3. *Validate*: rows that were read still have the same version, and ranges have the same rows. Pending versions are
//!    waited for, so nothing is built on a change that a crash could take back.
//!
//!    With hardware transactions, one of them does steps 2 and 3 (`region.rs`).
//! 4. *Tick*: above everything that was read or overwritten, and above the floor of each leaf that was claimed in. The
//!    tick is reserved before it is used. While a snapshot is active, the versions that it sees are kept aside.
//! 5. *Record*: streamed to the log.
//! 6. *Install*: new payloads, and words that say "pending". From here others see the changes. Paper 3 (section 3.1.2)
//!    does the same by an odd version.
//! 7. **The fence.** After it the transaction survives.
//! 8. *Live*: the words lose "pending". Then the transaction is acknowledged: at once, or in the block domain when its
//!    commit group is durable.
//!
//! With [`LogPlacement::ByTable`](crate::LogPlacement) a transaction has a record in the log of each part of its tables
//! (`commit/by_table.rs`).
//!
//! Read-only transactions have no record and no fence. At their end they wait until nothing that they saw is pending.
//!
//! A failure before step 5 restores the words and takes the claimed slots out. A panic after it poisons the database:
//! after a crash the record may count, so no later commit may build on the versions before it.

mod by_table;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lodestone_pmem::sync::atomic::fence;
use lodestone_pmem::{count_shared_rmws, planted};
use lodestone_txn::{Lease, RowWord, Tick};
use lodestone_wal::Room;

use crate::core::{Committer, Core};
use crate::delta;
use crate::dual::{self, Base, Plan, is_dual};
use crate::durability::{Durability, Point};
use crate::error::{Error, Result};
use crate::events;
use crate::group;
use crate::region;
use crate::rounds;
use crate::side;
use crate::state::State;
use crate::tree::{Bytes, Slot, Taken, Tree};

/// A slot that the commit has locked.
#[derive(Debug)]
pub struct Held {
    pub slot: Arc<Slot>,
    /// The version before.
    pub seen: RowWord,
    /// Whether the commit added the slot.
    pub is_claimed: bool,
    /// Whether the commit has locked it. Else it was only found.
    pub is_locked: bool,
    /// The change. `None`: the row was read only.
    change: Option<Change>,
}

/// A change of a row.
#[derive(Debug)]
pub struct Change {
    /// Its number among the trees that change.
    tree: usize,
    /// The new row; `None` deletes.
    payload: Option<Bytes>,
}

/// The locks of a commit. They are released when it fails or panics.
#[derive(Debug)]
pub struct Locks<'c> {
    core: &'c Core,
    /// The trees that change.
    trees: Vec<Arc<Tree>>,
    pub held: Vec<Held>,
    /// Numbers of the held slots, by address.
    numbers: HashMap<*const Slot, usize>,
    /// The largest floor of the leaves with claims.
    floor: Tick,
    /// Whether the record is being written, and may count after a crash.
    pub is_recorded: bool,
    /// The epoch of snapshots, if it was read before [`decide`](Self::decide).
    snapshots: Option<u64>,
    /// Whether what was read was validated with all locks held.
    is_validated: bool,
}

impl<'c> Locks<'c> {
    fn new(core: &'c Core) -> Self {
        Self {
            core,
            trees: Vec::new(),
            held: Vec::new(),
            numbers: HashMap::new(),
            floor: Tick::NEVER,
            is_recorded: false,
            snapshots: None,
            is_validated: false,
        }
    }

    /// The entry of `slot`, if it is held.
    pub fn find(&self, slot: &Arc<Slot>) -> Option<&Held> {
        self.numbers.get(&Arc::as_ptr(slot)).map(|number| &self.held[*number])
    }

    /// The rows that change.
    pub fn changed(&self) -> impl Iterator<Item = (&Held, &Change)> {
        self.held.iter().filter_map(|held| Some((held, held.change.as_ref()?)))
    }

    /// The tree of a change.
    pub fn tree_of(&self, change: &Change) -> &Tree {
        &self.trees[change.tree]
    }

    fn push(&mut self, held: Held) {
        self.numbers.insert(Arc::as_ptr(&held.slot), self.held.len());
        self.held.push(held);
    }

    /// All locks for the changes of `state`.
    pub fn of(core: &'c Core, state: &mut State) -> Result<Self> {
        if let Some(htm) = &core.htm
            && let Some(locks) = region::lock(core, state, &**htm)?
        {
            return Ok(locks);
        }
        let mut locks = Self::new(core);
        // A bug on request: there is no lock yet.
        locks.snapshots = planted::active("engine-snapshot-epoch-early").then(|| core.timeline.epochs().present());
        locks.take_rows(state, Tree::take)?;
        if core.ways.locks_reads {
            locks.take_reads(state)?;
        }
        // Another commit locks, then looks at what this one locked. This one has locked and now looks. At least one of
        // them sees the other.
        fence(Ordering::SeqCst);
        Ok(locks)
    }

    /// The slots for the changes of `state`. Those that were added are locked, the others are not.
    pub fn found(core: &'c Core, state: &mut State) -> Result<Self> {
        let mut locks = Self::new(core);
        locks.take_rows(state, Tree::look_or_claim)?;
        Ok(locks)
    }

    fn take_rows(
        &mut self,
        state: &mut State,
        take: impl Fn(&Tree, &Core, &Bytes, usize) -> Result<Taken>,
    ) -> Result<()> {
        for (tree, changes) in state.changes.values().enumerate() {
            count_shared_rmws(2);
            self.trees.push(changes.tree.clone());
            for (key, payload) in &changes.rows {
                let bytes = payload.as_ref().map_or(0, Bytes::taken);
                let (slot, seen, is_claimed, is_locked) = loop {
                    match take(&changes.tree, self.core, key, bytes)? {
                        Taken::Locked(slot, seen) => break (slot, seen, false, true),
                        Taken::Found(slot, seen) => break (slot, seen, false, false),
                        Taken::Claimed(slot, floor) => {
                            self.floor = self.floor.max(floor);
                            let seen = slot.word();
                            break (slot, seen, true, true);
                        }
                        Taken::Pending(slot) => self.core.wait_settled(&slot, slot.word())?,
                        Taken::Busy => {
                            state.is_doomed = true;
                            return Err(Error::Conflict);
                        }
                    }
                };
                let change = Some(Change { tree, payload: payload.clone() });
                self.push(Held { slot, seen, is_claimed, is_locked, change });
            }
        }
        Ok(())
    }

    /// Locks the rows that were read, at the versions that were read.
    fn take_reads(&mut self, state: &mut State) -> Result<()> {
        for (slot, word) in state.read_rows() {
            if self.find(&slot).is_some() {
                continue;
            }
            if !slot.try_lock(word) {
                return Err(state.conflict());
            }
            self.push(Held { slot, seen: word, is_claimed: false, is_locked: true, change: None });
        }
        Ok(())
    }

    /// Whether the rows that change have the versions on which deltas build. They are the first ones that are held.
    pub fn have(&self, bases: &[Base]) -> bool {
        let has = |(held, base): (&Held, &Base)| dual::is_base(*base, held.seen, held.is_claimed);
        self.held.iter().zip(bases).all(has) || planted::active("engine-delta-base-unchecked")
    }

    /// Notes the rows that the record of `epoch` has all of: those without a base. The commit cannot fail any more.
    fn note_whole(&self, bases: &[Base], epoch: u64) {
        if self.core.ways.in_place {
            let whole = self.held.iter().zip(bases).filter(|(_, base)| **base == Base::Any);
            whole.for_each(|(held, _)| held.slot.note_whole(epoch));
        }
    }

    /// The rows that are in cells, with their addresses.
    fn address(&mut self, plan: &Plan<'_>) {
        for (number, row) in plan.rows() {
            if let Some(change) = &mut self.held[number].change {
                change.payload = Some(row);
            }
        }
    }

    /// Notes that the pages of rows that were found and then locked will change.
    pub fn soil(&self) {
        let found = self.changed().filter(|(held, _)| !held.is_claimed);
        found.for_each(|(held, change)| self.tree_of(change).soil_locked(held.slot.key()));
    }

    /// Reads the epoch of snapshots, and validates what was read. All locks are held.
    ///
    /// # Errors
    /// As [`State::validate`].
    pub fn validate(&mut self, state: &mut State) -> Result<()> {
        self.snapshots.get_or_insert_with(|| self.core.timeline.epochs().present());
        // A thread that overwrites a row validated here reads the epoch after it takes the lock. It may not find an
        // older epoch than this thread did. This rule is about two words that third threads write, and loads in order
        // are not enough for it on every processor.
        #[cfg(not(target_arch = "x86_64"))]
        fence(Ordering::SeqCst);
        state.validate(self.core, Some(self))?;
        self.is_validated = true;
        Ok(())
    }

    /// Validates what was read, unless that is done, and takes a tick for the changes.
    pub fn decide(&mut self, state: &mut State, lease: &Lease) -> Result<Tick> {
        let core = self.core;
        if !self.is_validated {
            self.validate(state)?;
        }
        state.end_reads();
        // Look again: a commit that failed set the flag before it could release its locks.
        core.refuse_if_poisoned()?;
        let clock = core.timeline.registry().clock(lease);
        let tick = core.timeline.clock().next(self.latest(state).max(clock));
        core.timeline.reserve(tick)?;
        let snapshots = self.snapshots.expect("it is read before anything is validated");
        core.timeline.epochs().note(lease.writer(), snapshots, tick);
        if !planted::active("engine-side-late") {
            // Before a payload is replaced: keep what a snapshot still sees.
            self.keep_versions(state, lease, tick);
        }
        Ok(tick)
    }

    /// Keeps the versions before for the snapshots that see them.
    fn keep_versions(&self, state: &State, lease: &Lease, tick: Tick) {
        if self.core.timeline.epochs().any_active() {
            state.count_kept(side::keep(self.core, self, (lease.writer(), tick)));
        }
    }

    /// A tick at least as late as everything that was read, overwritten or purged.
    fn latest(&self, state: &State) -> Tick {
        let base = self.core.timeline.base();
        let overwritten = self.held.iter().map(|held| held.seen.version().tick(base));
        overwritten.fold(state.latest.max(self.floor), Tick::max)
    }

    /// Makes the changes visible as new versions, pending.
    fn install(&self, version: impl Fn(bool) -> RowWord) {
        for (slot, payload) in self.changes() {
            slot.set_payload(payload.clone().unwrap_or_default());
            slot.set_word(version(payload.is_none()).pending());
        }
    }

    /// Makes the changes count, and visible if they are not installed. The record is persistent.
    pub fn settle(mut self, version: impl Fn(bool) -> RowWord, is_installed: bool) {
        for (slot, payload) in self.changes() {
            if !is_installed {
                slot.set_payload(payload.clone().unwrap_or_default());
            }
            slot.set_word(version(payload.is_none()));
        }
        self.held.iter().filter(|held| held.change.is_none()).for_each(|held| held.slot.set_word(held.seen));
        self.is_recorded = false;
        let held = std::mem::take(&mut self.held);
        let changes = held.iter().filter_map(|held| Some((held, held.change.as_ref()?)));
        let deleted = changes.filter(|(_, change)| change.payload.is_none());
        deleted.for_each(|(held, change)| self.tree_of(change).tidy(self.core, held.slot.key()));
    }

    /// The slots that change, with the new rows.
    fn changes(&self) -> impl Iterator<Item = (&Arc<Slot>, &Option<Bytes>)> {
        self.held.iter().filter_map(|held| Some((&held.slot, &held.change.as_ref()?.payload)))
    }
}

impl Drop for Locks<'_> {
    fn drop(&mut self) {
        if self.is_recorded {
            if !self.core.timeline.is_poisoned() {
                events::poisoned(self.core);
            }
            self.core.timeline.poison();
            return;
        }
        for held in self.held.iter().rev() {
            match &held.change {
                // It stays locked: a thread that holds it looks for the key again.
                Some(change) if held.is_claimed => self.tree_of(change).untake(&held.slot),
                _ if !held.is_locked => {}
                _ => held.slot.set_word(held.seen),
            }
        }
    }
}

/// Commits the changes in `state`. On return they are ordered. They are durable at the point that is returned, and so
/// is everything that was read.
///
/// # Errors
/// [`Error::Conflict`] and others. Nothing has changed then.
pub fn commit(core: &Core, state: &mut State) -> Result<Point> {
    core.refuse_if_poisoned()?;
    if state.changes.is_empty() {
        state.settle(core)?;
        return Ok(core.seen_point(state));
    }
    rounds::wait_for_cache(core)?;
    if core.ways.by_table && !state.changes.keys().any(|tree| is_dual(*tree)) {
        return by_table::commit(core, state).map(|()| Point::own(core.memory.flushed_here()));
    }
    let mut lent = core.lend_committer()?;
    let committer = lent.committer();
    match (&core.group, core.ways.durability) {
        (Some(group), _) => group::commit(core, group, state, committer).map(Point::of_epoch),
        (None, Durability::None) => commit_unlogged(core, state, &committer.lease).map(|()| Point::default()),
        // Everything it saw was flushed before its own record, by the thread that made it visible: in this commit group
        // of the block domain or in an earlier one.
        _ => commit_with(core, state, committer).map(|()| Point::own(core.memory.flushed_here())),
    }
}

fn commit_with(core: &Core, state: &mut State, committer: &mut Committer) -> Result<()> {
    let mut may_delta = core.ways.deltas && !core.holds.are_in_use();
    loop {
        let Committer { log, record, lease, traced, .. } = &mut *committer;
        // Records without rows are for databases whose feeds need not go on later, as deltas are.
        let has_rows = core.holds.are_in_use() || !core.ways.deltas;
        let mut plan = Plan::new(core, has_rows, *traced == Some(core.rounds.cuts.epoch()));
        let bases = match delta::encode(core, state, record, may_delta, &mut plan) {
            Err(Error::Conflict) => return Err(state.conflict()),
            bases => bases?,
        };
        let room = if plan.is_alone() { None } else { Some(rounds::reserve(core, log, record)?) };
        let locks = Locks::of(core, state)?;
        // With all locks held: a commit that builds on this one has the same epoch, or a later one.
        let epoch = core.rounds.cuts.epoch();
        // Before the look at feeds.
        let unrecorded = plan.is_alone().then(|| core.rounds.cuts.begins_unrecorded(lease.writer()));
        let is_told = unrecorded.is_none() || *traced == Some(epoch);
        let is_for_feeds = plan.has_all_rows() || !core.holds.are_in_use();
        if is_for_feeds && is_told && locks.have(&bases) {
            return append(core, state, committer, (room, epoch), locks, (&bases, plan));
        }
        // Another commit replaced a row in between. If this one has not read it, that is no conflict. Or a feed began.
        may_delta = false;
    }
}

/// Appends the record, with all locks held, and makes the changes count.
fn append(
    core: &Core,
    state: &mut State,
    committer: &mut Committer,
    (room, epoch): (Option<Room>, u64),
    mut locks: Locks<'_>,
    (bases, mut plan): (&[Base], Plan<'_>),
) -> Result<()> {
    let Committer { lease, log, record, traced, .. } = committer;
    locks.floor = locks.floor.max(plan.floor());
    let tick = locks.decide(state, lease)?;
    let version = |is_absent| RowWord::new(tick, lease.writer(), is_absent);
    locks.is_recorded = true;
    locks.note_whole(bases, epoch);
    if let Some(room) = room {
        core.rounds.cuts.begins(lease.writer(), epoch, log.position());
        core.rounds.cuts.ends(lease.writer(), log.append(room, record, tick)?);
        if plan.lacks_rows() {
            *traced = Some(epoch);
        }
    }
    plan.write(tick, lease.writer());
    locks.address(&plan);
    if core.ways.is_early {
        locks.install(version);
    }
    if planted::active("engine-side-late") {
        locks.keep_versions(state, lease, tick);
    }
    if !planted::active("engine-acknowledge-before-fence") {
        // The one fence. No version may be live, and no caller may be told, before the record is persistent. So no
        // store of a commit that builds on this one, and no answer, may overtake it.
        core.memory.fence();
    }
    if core.waits {
        core.note_point(lease.writer().index(), tick, core.memory.flushed_here());
    }
    core.rounds.cuts.settles(lease.writer(), log.position());
    core.timeline.registry().set_clock(lease, tick);
    state.know(version(false));
    locks.settle(version, core.ways.is_early);
    plan.settle(tick);
    Ok(())
}

/// Commits without a record: [`Durability::None`].
fn commit_unlogged(core: &Core, state: &mut State, lease: &Lease) -> Result<()> {
    let mut locks = Locks::of(core, state)?;
    let tick = locks.decide(state, lease)?;
    let version = |is_absent| RowWord::new(tick, lease.writer(), is_absent);
    // A panic leaves some of the changes installed.
    locks.is_recorded = true;
    core.timeline.registry().set_clock(lease, tick);
    state.know(version(false));
    locks.settle(version, false);
    Ok(())
}
