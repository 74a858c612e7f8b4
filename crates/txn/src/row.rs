//! The version word of a row of a table. It has the fields of a [`VersionWord`], and these states:
//!
//! ```text
//! bits 0..2    state: 0 live, 1 locked, 2 absent (deleted), 3 pending
//! bit  2       the row is absent, whatever the state
//! bits 3..64   as in a version word: writer and tick
//! ```
//!
//! *Pending* is the parity of paper 3, section 3.1.2. The version is complete and visible, but its record is not known
//! to be persistent. A thread may read it, and build on it, and must not commit before it is live or absent. Pending
//! is not a lock: paper 3 uses one bit for both, and then two writers of one row can lose an update.
//!
//! Invariants:
//! - per row the tick strictly increases, so equal versions mean that nothing was committed in between;
//! - a version that is pending becomes live or absent with the same tick, or the process ends.

use crate::tick::{Tick, Writer};
use crate::word::{State, VersionWord, Which};

/// State of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowState {
    /// The newest version is a row, and persistent.
    Live,
    /// The newest version says "deleted", and is persistent.
    Absent,
    /// A transaction is past its last access and will write the row, or add it.
    Locked,
    /// The newest version is visible. Its record is not known to be persistent.
    Pending,
}

const STATE_MASK: u64 = 0b11;
const PENDING: u64 = 3;

/// The version word of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RowWord(VersionWord);

impl RowWord {
    /// The word of a persistent version that `writer` committed at `tick`.
    #[must_use]
    #[inline]
    pub const fn new(tick: Tick, writer: Writer, is_absent: bool) -> Self {
        let (slot, state) = if is_absent { (Which::Second, State::Free) } else { (Which::First, State::Live) };
        Self(VersionWord::new(tick, writer, slot, state))
    }

    /// The word with this representation in memory.
    #[must_use]
    #[inline]
    pub const fn from_raw(raw: u64) -> Self {
        Self(VersionWord::from_raw(raw))
    }

    /// The representation in memory.
    #[must_use]
    #[inline]
    pub const fn to_raw(self) -> u64 {
        self.0.to_raw()
    }

    /// Writer and tick, for the clocks.
    #[must_use]
    #[inline]
    pub const fn version(self) -> VersionWord {
        self.0
    }

    /// The state.
    #[must_use]
    #[inline]
    pub const fn state(self) -> RowState {
        match self.0.to_raw() & STATE_MASK {
            0 => RowState::Live,
            1 => RowState::Locked,
            2 => RowState::Absent,
            _ => RowState::Pending,
        }
    }

    /// Whether the version says "deleted", whatever the state.
    #[must_use]
    #[inline]
    pub const fn is_absent(self) -> bool {
        matches!(self.0.slot(), Which::Second)
    }

    /// The same version, locked.
    #[must_use]
    #[inline]
    pub const fn locked(self) -> Self {
        Self(self.0.locked())
    }

    /// The same version, pending.
    #[must_use]
    #[inline]
    pub const fn pending(self) -> Self {
        Self(VersionWord::from_raw(self.0.to_raw() | PENDING))
    }

    /// Whether both words are about the same version, whatever their states.
    #[must_use]
    #[inline]
    pub const fn same_version(self, other: Self) -> bool {
        self.0.same_version(other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_keep_the_version() {
        let writer = Writer::new(77).expect("small");
        for is_absent in [false, true] {
            let word = RowWord::new(Tick(1 << 40), writer, is_absent);
            let settled = if is_absent { RowState::Absent } else { RowState::Live };
            let states = [(word, settled), (word.locked(), RowState::Locked), (word.pending(), RowState::Pending)];
            for (word, state) in states {
                assert_eq!((word.state(), word.is_absent()), (state, is_absent));
                assert_eq!((word.version().writer(), word.version().tick_bits()), (writer, 1 << 40));
                assert_eq!(RowWord::from_raw(word.to_raw()), word);
                assert!(states.iter().all(|(other, _)| word.same_version(*other)));
            }
            assert!(!word.same_version(RowWord::new(Tick(1 << 40), writer, !is_absent)));
        }
    }
}
