//! Reads of a snapshot: the newest version, or the one before it, whichever belongs to the snapshot's epoch.
//!
//! A snapshot needs no validation: what it sees is the cut that its epoch makes (see [`lodestone_txn::Epochs`]). When both
//! versions of an object are too new, it begins again with a new epoch.

use lodestone_pmem::PmAddr;
use lodestone_txn::{SLOT_HEADER_WORDS, SlotHeader, State, Tick, VersionWord, Writer};

use crate::commit::not_allocated;
use crate::error::{Conflict, TxResult};
use crate::shape::Shape;
use crate::tx::{Tx, give_way};

/// Reads the version of the object at `at` that the snapshot of `epoch` sees into `out`; gives the object's word.
pub(crate) fn read(tx: &Tx<'_>, epoch: u64, at: PmAddr, shape: Shape, out: &mut [u8]) -> TxResult<VersionWord> {
    let core = tx.core;
    let visible = |writer: Writer, tick: Tick| {
        if tick <= core.base { Some(true) } else { core.epochs.is_visible(writer, tick, epoch) }
    };
    let mut looks = 0;
    loop {
        let word = core.word(at, shape)?;
        if word.state() == State::Committing {
            looks += 1;
            give_way(looks);
            continue;
        }
        let mut which = word.slot();
        let mut deleted = word.state() == State::Free;
        match visible(word.writer(), word.tick(core.base)) {
            Some(true) => {}
            _ => {
                which = which.other();
                let slot = shape.slot_at(at, which);
                let header = SlotHeader::decode(core.memory.load(slot), core.memory.load(slot.plus(8)));
                let seen = header.tick != Tick::NEVER
                    && core.lives_count(&header)
                    && visible(header.writer, header.tick) == Some(true);
                if core.memory.load(at) != word.to_raw() {
                    continue;
                }
                if !seen {
                    return Err(Conflict::SnapshotTooOld.into());
                }
                deleted = header.flags.deleted;
            }
        }
        if deleted {
            return Err(not_allocated(at).into());
        }
        let source = shape.slot_at(at, which).plus(SLOT_HEADER_WORDS as u64 * 8);
        core.memory.read(source, out);
        // The older slot changes only under a word that says "committing", and the word changes with every commit.
        if core.memory.load(at) == word.to_raw() {
            return Ok(word);
        }
    }
}
