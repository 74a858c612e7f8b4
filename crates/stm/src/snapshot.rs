//! Reads of a snapshot. It reads the newest version, the one before it, or one that was kept aside: the version that
//! belongs to the snapshot's epoch.
//!
//! A snapshot needs no validation: its epoch fixes the versions that it sees (see [`lodestone_txn::Epochs`]). It never
//! restarts either, however long it takes: a version that it still sees is copied aside before it is overwritten (see
//! the module `side`).

use lodestone_pmem::PmAddr;
use lodestone_txn::{SlotHeader, SnapshotGuard, State, Tick, VersionWord, Writer};

use crate::commit::{another_size, not_allocated};
use crate::core::Core;
use crate::error::{Conflict, TxResult};
use crate::side::{self, Found};
use crate::tx::{PATIENCE, Tx, give_way};
use lodestone_cells::Shape;

/// A snapshot while it is active. Versions kept for it alone are dropped with it.
#[derive(Debug)]
pub struct Active<'c> {
    core: &'c Core,
    guard: Option<SnapshotGuard<'c>>,
}

impl<'c> Active<'c> {
    /// Begins a snapshot of everything committed up to now.
    pub fn begin(core: &'c Core) -> Self {
        Self { core, guard: Some(core.timeline.epochs().begin()) }
    }

    /// Its epoch.
    pub fn epoch(&self) -> u64 {
        self.guard.as_ref().map_or(0, SnapshotGuard::epoch)
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        let epoch = self.epoch();
        // First it leaves the active snapshots, so that nothing more is kept for it.
        self.guard = None;
        self.core.side.release(self.core.timeline.epochs(), epoch);
    }
}

/// Reads the version of the object of `words` words at `at` that the snapshot of `epoch` sees into `out`. Returns the
/// object's word.
pub(crate) fn read(
    tx: &mut Tx<'_>,
    epoch: u64,
    at: PmAddr,
    shape: Shape,
    words: u32,
    out: &mut [u8],
) -> TxResult<VersionWord> {
    let core = tx.core;
    let horizon = &mut tx.context.horizon;
    horizon.turn_to(epoch);
    let mut sees =
        |writer: Writer, tick: Tick| tick <= core.timeline.base() || horizon.sees(core.timeline.epochs(), writer, tick);
    // On a read-only pool nothing changes, and words of earlier lives stay as they are.
    let unchanged = |word: VersionWord| core.memory.load(at) == word.to_raw() || core.memory.is_read_only();
    let mut looks = 0_u32;
    loop {
        let word = core.word(at, shape)?;
        if word.state() == State::Committing {
            // The version under way may belong to this epoch.
            looks += 1;
            if looks.is_multiple_of(PATIENCE) {
                let _ = core.heal_lock(at, word);
            }
            give_way(looks);
            continue;
        }
        let mut which = word.slot();
        let mut deleted = word.state() == State::Free;
        if !sees(word.writer(), word.tick(core.timeline.base())) {
            match side::find(&core.side, at, epoch, words, out) {
                Some(Found::Payload) => return Ok(word),
                Some(Found::OtherSize) => return Err(another_size(at).into()),
                Some(Found::Deleted) => return Err(not_allocated(at).into()),
                None => {}
            }
            which = which.other();
            let slot = shape.slot_at(at, which);
            let header = SlotHeader::decode(core.memory.load(slot), core.memory.load(slot.plus(8)));
            let seen = header.tick != Tick::NEVER && core.lives_count(&header) && sees(header.writer, header.tick);
            if !unchanged(word) {
                continue;
            }
            if !seen {
                // There was no object, or the limit of versions kept aside was reached.
                return Err(tx.conflict(Conflict::SnapshotTooOld));
            }
            deleted = header.flags.deleted;
        }
        if deleted {
            return Err(not_allocated(at).into());
        }
        let fits = core.read_version(shape.slot_at(at, which), words, out);
        // The older slot changes only under a word that says "committing", and the word changes with every commit.
        if unchanged(word) {
            return if fits { Ok(word) } else { Err(another_size(at).into()) };
        }
    }
}
