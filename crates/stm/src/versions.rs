//! The versions of an object in its slots, and the rule which one counts.
//!
//! 1. *First touch* in a life: the version word is of an earlier life and means nothing, even as a lock of a crashed
//!    process. Both slots are read and verified. The intact one with the largest tick that is no loser of a crash is
//!    the newest. One compare-and-exchange replaces the word by "newest as of the beginning of this life". Losers are
//!    never undone: the next write takes their place. So an open takes no time per object.
//! 2. A slot whose checksum fails is *torn* when a crash explains it: a life crashed after the other version was
//!    written, and the slot's header is an older one, or of that life and of no transaction that is known to count.
//!    Otherwise it is *damage*, and the object is an error. A header of zeros is always damage: no store of ours makes
//!    one. One case stays open: a transaction of one object has no record. When it is the last one of its object in a
//!    life that crashed, later damage to its payload looks as if the crash had torn it.
//!
//! Invariant: the newest version is never overwritten, so a cell that holds an object always has one intact version
//! that counts.

use lodestone_cells::{Shape, Version};
use lodestone_pmem::{Memory, PmAddr};
use lodestone_txn::{Lives, SlotHeader, State, Tick, VersionWord, Which, Writer};

/// Reads and judges a slot. `scratch` is overwritten.
pub fn read_slot(
    memory: &Memory,
    lives: &Lives,
    shape: Shape,
    cell: PmAddr,
    which: Which,
    scratch: &mut Vec<u64>,
) -> Version {
    lodestone_cells::read_slot(memory, |header| lives.counts_version(header), (shape, cell, which), scratch)
}

/// The newest version that counts, and damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Slot and header of the newest version that counts.
    pub newest: Option<(Which, SlotHeader)>,
    /// A slot whose checksum fails and that no crash explains.
    pub damaged: Option<Which>,
}

/// Judges both slots of a cell.
pub fn judge(memory: &Memory, lives: &Lives, shape: Shape, cell: PmAddr, scratch: &mut Vec<u64>) -> Judged {
    let versions =
        [Which::First, Which::Second].map(|which| (which, read_slot(memory, lives, shape, cell, which, scratch)));
    let counting = versions.iter().filter_map(|(which, version)| match version {
        Version::Counts(header) => Some((*which, *header)),
        _ => None,
    });
    let newest = counting.max_by_key(|(_, header)| header.tick);
    let other = newest.map_or(Tick::NEVER, |(_, header)| header.tick);
    let damaged = versions.iter().find_map(|(which, version)| match version {
        Version::Broken(header) if !is_torn(lives, header, other) => Some(*which),
        _ => None,
    });
    Judged { newest, damaged }
}

/// Whether a crash explains a slot with the header `broken` beside a version of tick `other`.
///
/// A crash tears a slot into bytes of its old and of its new version. So the header is an old one, with a tick below
/// `other`, or that of a transaction in the crashed life. That transaction is not known to count.
fn is_torn(lives: &Lives, broken: &SlotHeader, other: Tick) -> bool {
    let crashed_since = lives.crashed().last().is_some_and(|life| life.limit > other);
    if broken.tick == Tick::NEVER || !crashed_since {
        return false;
    }
    let in_crashed_life = lives.crashed_life_of(broken.tick).is_some();
    let counted = !broken.flags.certifies_itself && lives.counts(broken.writer, broken.tick);
    broken.tick <= other || in_crashed_life && !counted
}

impl Judged {
    /// The word of the object at the beginning of the life that starts at `base`.
    pub fn word(&self, base: Tick) -> VersionWord {
        match self.newest {
            // The first version goes to slot 0.
            None => VersionWord::new(base, Writer::default(), Which::Second, State::Free),
            Some((which, header)) => {
                let state = if header.flags.deleted { State::Free } else { State::Live };
                VersionWord::new(base, Writer::default(), which, state)
            }
        }
    }
}
