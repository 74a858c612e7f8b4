//! The commit of a transaction with changes.
//!
//! 1. *Encode* the record and reserve room in the log of a writer. No lock is held, so a full log is an error like any
//!    other ([`lodestone_wal::LogWriter::reserve`]).
//! 2. *Claim and lock*, in the order of the keys: a key without a slot gets one, which is locked. Another slot is
//!    locked at the version that it has. A locked one is a conflict. A pending one is waited for: its transaction has
//!    only its fence before it. So no thread waits for one that waits.
//! 3. *Validate*: what was read has the same version still, and ranges have the same rows. Pending versions are waited
//!    for, so nothing is built on what a crash could take back.
//! 4. *Tick*: above everything that was read or overwritten, and above the floor of each leaf that was claimed in. The
//!    tick is reserved before it is used.
//! 5. *Record*: streamed to the log.
//! 6. *Install*: new payloads, and words that say "pending". From here others see the changes. Paper 3 (section 3.1.2)
//!    does the same by an odd version.
//! 7. **The fence.** After it the transaction survives.
//! 8. *Live*: the words lose "pending". Then the transaction is acknowledged: at once, or in the block domain when its
//!    commit group is durable.
//!
//! Read-only transactions have no record and no fence. At their end they wait until nothing that they saw is pending.
//!
//! A failure before step 5 restores the words and takes the claimed slots out. A panic after it poisons the database:
//! after a crash the record may count, so no later commit may build on the versions before it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lodestone_pmem::planted;
use lodestone_pmem::sync::atomic::fence;
use lodestone_txn::{RowWord, Tick};

use crate::core::{Committer, Core};
use crate::error::{Error, Result};
use crate::rounds;
use crate::state::State;
use crate::tree::{Bytes, Slot, Taken, Tree};

/// A slot that the commit has locked.
#[derive(Debug)]
pub struct Held {
    tree: Arc<Tree>,
    key: Bytes,
    slot: Arc<Slot>,
    /// The version before.
    seen: RowWord,
    /// Whether the commit added the slot.
    pub is_claimed: bool,
    /// The new row; `None` deletes.
    payload: Option<Bytes>,
}

/// The locks of a commit. They are released when it fails or panics.
#[derive(Debug)]
pub struct Locks<'c> {
    core: &'c Core,
    held: Vec<Held>,
    /// Numbers of the held slots, by address.
    numbers: HashMap<*const Slot, usize>,
    /// The largest floor of the leaves with claims.
    floor: Tick,
    /// Whether the record is being written, and may count after a crash.
    is_recorded: bool,
}

impl<'c> Locks<'c> {
    fn new(core: &'c Core) -> Self {
        Self { core, held: Vec::new(), numbers: HashMap::new(), floor: Tick::NEVER, is_recorded: false }
    }

    /// The entry of `slot`, if it is held.
    pub fn find(&self, slot: &Arc<Slot>) -> Option<&Held> {
        self.numbers.get(&Arc::as_ptr(slot)).map(|number| &self.held[*number])
    }

    fn take_all(&mut self, state: &mut State) -> Result<()> {
        for changes in state.changes.values() {
            for (key, payload) in &changes.rows {
                let (slot, seen, is_claimed) = loop {
                    match changes.tree.take(key) {
                        Taken::Locked(slot, seen) => break (slot, seen, false),
                        Taken::Claimed(slot, floor) => {
                            self.floor = self.floor.max(floor);
                            let seen = slot.word();
                            break (slot, seen, true);
                        }
                        Taken::Pending(slot) => self.core.wait_settled(&slot, slot.word())?,
                        Taken::Busy => {
                            state.is_doomed = true;
                            return Err(Error::Conflict);
                        }
                    }
                };
                self.numbers.insert(Arc::as_ptr(&slot), self.held.len());
                let (tree, key, payload) = (changes.tree.clone(), key.clone(), payload.clone());
                self.held.push(Held { tree, key, slot, seen, is_claimed, payload });
            }
        }
        // Another commit locks, then looks at what this one locked. This one has locked and now looks. At least one of
        // them sees the other.
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// A tick at least as late as everything that was read, overwritten or purged.
    fn latest(&self, state: &State) -> Tick {
        let base = self.core.timeline.base();
        let overwritten = self.held.iter().map(|held| held.seen.version().tick(base));
        overwritten.fold(state.latest.max(self.floor), Tick::max)
    }

    /// Makes the changes visible as the versions `tick`, pending.
    fn install(&self, version: impl Fn(bool) -> RowWord) {
        for held in &self.held {
            held.slot.set_payload(held.payload.clone().unwrap_or_default());
            held.slot.set_word(version(held.payload.is_none()).pending());
        }
    }

    /// Makes the changes count. The record is persistent.
    fn settle(mut self, version: impl Fn(bool) -> RowWord) {
        let held = std::mem::take(&mut self.held);
        for held in &held {
            held.slot.set_word(version(held.payload.is_none()));
        }
        self.is_recorded = false;
        for Held { tree, key, .. } in held.iter().filter(|held| held.payload.is_none()) {
            tree.tidy(key);
        }
    }
}

impl Drop for Locks<'_> {
    fn drop(&mut self) {
        if self.is_recorded {
            self.core.timeline.poison();
            return;
        }
        for held in self.held.iter().rev() {
            if held.is_claimed {
                // It stays locked: a thread that holds it looks for the key again.
                held.tree.untake(&held.key, &held.slot);
            } else {
                held.slot.set_word(held.seen);
            }
        }
    }
}

/// Commits the changes in `state`. On return they are ordered, and the caller waits until they are durable.
///
/// # Errors
/// [`Error::Conflict`] and others. Nothing has changed then.
pub fn commit(core: &Core, state: &mut State) -> Result<()> {
    core.refuse_if_poisoned()?;
    if state.changes.is_empty() {
        return state.settle(core);
    }
    let mut committer = core.take_committer()?;
    let outcome = commit_with(core, state, &mut committer);
    core.give_committer(committer);
    outcome
}

fn commit_with(core: &Core, state: &mut State, committer: &mut Committer) -> Result<()> {
    let Committer { lease, log, record } = committer;
    record.clear();
    for (number, changes) in &state.changes {
        for (key, payload) in &changes.rows {
            match payload {
                Some(payload) => record.put(*number, key, payload)?,
                None => record.delete(*number, key)?,
            }
        }
    }
    let room = rounds::reserve(core, log, record)?;
    let mut locks = Locks::new(core);
    locks.take_all(state)?;
    // With all locks held: a commit that builds on this one has the same epoch, or a later one.
    let epoch = core.rounds.cuts.epoch();
    state.validate(core, Some(&locks))?;
    // Look again: a commit that failed set the flag before it could release its locks.
    core.refuse_if_poisoned()?;
    let registry = core.timeline.registry();
    let tick = core.timeline.clock().next(locks.latest(state).max(registry.clock(lease)));
    core.timeline.reserve(tick)?;
    let version = |is_absent| RowWord::new(tick, lease.writer(), is_absent);
    locks.is_recorded = true;
    core.rounds.cuts.begins(lease.writer(), epoch, log.position());
    core.rounds.cuts.ends(lease.writer(), log.append(room, record, tick)?);
    locks.install(version);
    if !planted::active("engine-acknowledge-before-fence") {
        // The one fence. No version may be live, and no caller may be told, before the record is persistent. So no
        // store of a commit that builds on this one, and no answer, may overtake it.
        core.memory.fence();
    }
    if core.waits {
        core.note_point(lease.writer().index(), core.memory.flushed_here());
    }
    registry.set_clock(lease, tick);
    state.know(version(false));
    locks.settle(version);
    Ok(())
}
