//! Steps 2 and 3 of a commit in one hardware transaction ([`Region::Rtm`], [`Region::Emulated`]).
//!
//! 1. Outside: a key without a slot gets one, as in `commit.rs`. Every other slot is found, and its version noted.
//!    Versions that were read and are pending are waited for.
//! 2. Inside: each of these slots is locked at its version, the epoch of snapshots is read, and what was read is
//!    validated. That writes one word for each row that changes and reads one for each row that was read. So the
//!    capacity of the hardware bounds the rows of a transaction, not their bytes.
//! 3. Outside: the pages of the rows are noted as dirty, the record is streamed, and the fence is waited for. A flush
//!    or a streaming store inside would abort the transaction.
//!
//! After an abort that may not come again the region is tried again, up to [`ATTEMPTS_MAX`] times in all. Then the
//! commit locks as every other one does ([`Region::Locks`]): the *fallback handler*. Both use the same words. A region
//! that meets the lock of a fallback finds another word than it noted, so it needs no lock of its own to look at.
//!
//! The whole transaction of paper 3 (section 3.1.3) reads in regions as well. Here a read compares a word before and
//! after it, and an operation writes nothing.
//!
//! Invariant: outside a processor's transaction the locks are real ones at every moment, so a region that a model runs
//! is the protocol of `commit.rs`, and correct for the same reasons.

use lodestone_pmem::htm::{Abort, HardwareTransactions, Rtm};
use lodestone_pmem::planted;
use lodestone_pmem::sync::atomic::{Ordering, fence};

use crate::commit::Locks;
use crate::core::Core;
use crate::durability::Region;
use crate::error::{Error, Result};
use crate::state::State;

/// How often a commit tries a region before it takes its locks one by one.
pub const ATTEMPTS_MAX: u32 = 8;

/// The hardware that commits use. `None`: none.
///
/// # Errors
/// The processor does not have what `region` asks for.
pub fn hardware(region: &Region) -> Result<Option<Box<dyn HardwareTransactions>>> {
    match region {
        Region::Locks | Region::Naive => Ok(None),
        Region::Rtm => match Rtm::detect() {
            Some(rtm) => Ok(Some(Box::new(rtm))),
            None => Err(Error::NoHardwareTransactions),
        },
        Region::Emulated(model) => Ok(Some(Box::new(model.clone()))),
    }
}

/// Why a region did not succeed.
enum Failure {
    /// The hardware aborted it.
    Aborted(Abort),
    /// Something that was read has changed.
    Invalid(Error),
}

/// All locks for the changes of `state`, which is validated. `None`: the hardware did not do it.
///
/// # Errors
/// As [`Locks::of`].
pub fn lock<'c>(core: &'c Core, state: &mut State, htm: &dyn HardwareTransactions) -> Result<Option<Locks<'c>>> {
    for _ in 0..ATTEMPTS_MAX {
        let mut locks = Locks::found(core, state)?;
        state.settle(core)?;
        match attempt(&mut locks, state, htm) {
            Ok(()) => {
                state.counts().regions(1);
                locks.soil();
                return Ok(Some(locks));
            }
            Err(Failure::Invalid(error)) => return Err(error),
            Err(Failure::Aborted(abort)) => {
                state.counts().region_aborted(abort);
                if !abort.may_succeed_again() {
                    break;
                }
            }
        }
    }
    state.counts().region_fallbacks(1);
    Ok(None)
}

fn attempt(
    locks: &mut Locks<'_>,
    state: &mut State,
    htm: &dyn HardwareTransactions,
) -> std::result::Result<(), Failure> {
    htm.begin().map_err(Failure::Aborted)?;
    if !lock_found(locks, htm) {
        htm.abort(Abort::Conflict);
        return Err(Failure::Aborted(Abort::Conflict));
    }
    // As in `Locks::of`: this one has locked and now looks.
    fence(Ordering::SeqCst);
    state.read_words().for_each(|address| htm.reads(address));
    if let Err(error) = locks.validate(state) {
        // A processor forgets the lines before, and the fallback finds the same.
        htm.abort(Abort::Explicit);
        return Err(Failure::Invalid(error));
    }
    htm.end().map_err(Failure::Aborted)
}

/// Locks the rows that were found. `false`: one of them has another version, or is locked.
fn lock_found(locks: &mut Locks<'_>, htm: &dyn HardwareTransactions) -> bool {
    locks.held.iter_mut().filter(|held| !held.is_locked).all(|held| {
        htm.writes(held.slot.address());
        if planted::active("engine-region-ignores-locks") {
            held.slot.set_word(held.seen.locked());
            held.is_locked = true;
        } else {
            held.is_locked = held.slot.try_lock(held.seen);
        }
        held.is_locked
    })
}
