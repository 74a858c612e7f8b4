//! The version word: one word per object that a reader needs to know which slot is newest, who wrote it and when, and
//! that a committer locks.
//!
//! ```text
//! bits 0..2    state: 0 live, 1 committing, 2 free (never written, or deleted)
//! bit  2       slot that holds the newest version
//! bits 3..13   id of the thread that wrote it
//! bits 13..64  low 51 bits of its tick
//! ```
//!
//! 1. A *reader* loads the word, copies the slot, loads the word again: equal words mean a whole, current version. Both
//!    loads acquire, and a committer stores "committing" before it stores to the other slot, so whoever copies a torn
//!    slot sees another word afterwards. One comparison re-checks lock, slot and timestamp at once; the published order
//!    (lock before timestamp) cannot be got wrong.
//! 2. A *committer* replaces the word it saw by the same word with the state "committing" (one compare-and-exchange),
//!    and after the fence stores the new tick, its id, the other slot and "live": publish and release are one store.
//!    Other objects of the same transaction may still be committing then; whoever needs them waits, so nobody sees a
//!    half.
//!
//! Invariants:
//! - a word counts only if its tick lies in the range of this life
//!   ([`StartClocks::covers`](crate::StartClocks::covers)): words of earlier lives, a lock among them, are stale and
//!   are made anew from the slots;
//! - per object the tick strictly increases, so equal words mean that nothing was committed in between.

use crate::tick::{TICK_BITS, Tick, WRITER_BITS, Writer};

/// One of the two slots of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Which {
    /// Slot 0.
    First,
    /// Slot 1.
    Second,
}

impl Which {
    /// The other one: where the next version goes.
    #[must_use]
    #[inline]
    pub const fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }

    /// 0 or 1.
    #[must_use]
    #[inline]
    pub const fn index(self) -> u64 {
        self as u64
    }

    /// From the lowest bit of `bits`.
    #[must_use]
    #[inline]
    pub const fn from_bit(bits: u64) -> Self {
        if bits & 1 == 0 { Self::First } else { Self::Second }
    }
}

/// What a version word says about its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is a newest version, and nobody is committing another.
    Live,
    /// A transaction that will write the other slot is past its last access: readers wait.
    Committing,
    /// Never written, or the newest version says "deleted".
    Free,
}

const STATE_MASK: u64 = 0b11;
const COMMITTING: u64 = 1;
const FREE: u64 = 2;
const SLOT_SHIFT: u32 = 2;
const WRITER_SHIFT: u32 = 3;
const TICK_SHIFT: u32 = WRITER_SHIFT + WRITER_BITS;
const _: () = assert!(TICK_SHIFT + TICK_BITS == 64, "the four fields fill the word");
/// Where the tick begins in an [`age`](VersionWord::age).
pub(crate) const AGE_TICK_SHIFT: u32 = TICK_SHIFT - SLOT_SHIFT;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VersionWord(u64);

impl VersionWord {
    /// The word of a version that `writer` committed at `tick` to `slot`.
    #[must_use]
    #[inline]
    pub const fn new(tick: Tick, writer: Writer, slot: Which, state: State) -> Self {
        let state = match state {
            State::Live => 0,
            State::Committing => COMMITTING,
            State::Free => FREE,
        };
        Self(state | (slot.index() << SLOT_SHIFT) | ((writer.number() as u64) << WRITER_SHIFT) | (tick.0 << TICK_SHIFT))
    }

    /// The word as it stands in memory.
    #[must_use]
    #[inline]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// What stands in memory.
    #[must_use]
    #[inline]
    pub const fn to_raw(self) -> u64 {
        self.0
    }

    /// What it says; unknown bits count as committing, so that nobody reads under them.
    #[must_use]
    #[inline]
    pub const fn state(self) -> State {
        match self.0 & STATE_MASK {
            0 => State::Live,
            FREE => State::Free,
            _ => State::Committing,
        }
    }

    /// Whether the state is [`State::Live`].
    #[must_use]
    #[inline]
    pub const fn is_live(self) -> bool {
        self.0 & STATE_MASK == 0
    }

    /// The slot of the newest version.
    #[must_use]
    #[inline]
    pub const fn slot(self) -> Which {
        Which::from_bit(self.0 >> SLOT_SHIFT)
    }

    /// Who wrote the newest version.
    #[must_use]
    #[inline]
    pub const fn writer(self) -> Writer {
        Writer::from_bits(self.0 >> WRITER_SHIFT)
    }

    /// The low bits of the newest version's tick.
    #[must_use]
    #[inline]
    pub const fn tick_bits(self) -> u64 {
        self.0 >> TICK_SHIFT
    }

    /// Ticks from `base` to this version, modulo 2^51: huge for words of earlier lives.
    #[must_use]
    #[inline]
    pub const fn ticks_since(self, base: Tick) -> u64 {
        self.0.wrapping_sub(base.0 << TICK_SHIFT) >> TICK_SHIFT
    }

    /// The word with its state on top of tick, writer and slot, counted from `origin` (see
    /// [`age_origin`](Self::age_origin)): of two live words of a writer and a life the later has the larger age, and a
    /// word that is not live or of an earlier life has an age above all of these.
    #[must_use]
    #[inline(always)]
    pub const fn age(self, origin: u64) -> u64 {
        self.0.rotate_right(SLOT_SHIFT).wrapping_sub(origin)
    }

    /// What ages are counted from in the life that began at `base`.
    #[must_use]
    #[inline]
    pub const fn age_origin(base: Tick) -> u64 {
        (base.0 << TICK_SHIFT) >> SLOT_SHIFT
    }

    /// The whole tick of a word of the life that began at `base`.
    #[must_use]
    #[inline]
    pub const fn tick(self, base: Tick) -> Tick {
        Tick(base.0 + self.ticks_since(base))
    }

    /// The same version with the state "committing".
    #[must_use]
    #[inline]
    pub const fn locked(self) -> Self {
        Self(self.0 & !STATE_MASK | COMMITTING)
    }

    /// Whether both words are about the same version, whatever their states.
    #[must_use]
    #[inline]
    pub const fn same_version(self, other: Self) -> bool {
        (self.0 ^ other.0) & !STATE_MASK == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_apart() {
        for tick in [1, 77, (1 << 51) - 1] {
            for writer in [0, 5, 1023] {
                for slot in [Which::First, Which::Second] {
                    for state in [State::Live, State::Committing, State::Free] {
                        let writer = Writer::new(writer).expect("ten bits");
                        let word = VersionWord::new(Tick(tick), writer, slot, state);
                        assert_eq!(
                            (word.tick_bits(), word.writer(), word.slot(), word.state()),
                            (tick, writer, slot, state)
                        );
                        assert_eq!(word.locked().state(), State::Committing);
                        assert!(word.same_version(word.locked()));
                    }
                }
            }
        }
    }

    #[test]
    fn ticks_of_earlier_lives_are_far_away() {
        let base = Tick((1 << 51) - 3);
        let word = |tick| VersionWord::new(Tick(tick), Writer::default(), Which::First, State::Live);
        assert_eq!(word(base.0).ticks_since(base), 0);
        assert_eq!(word(base.0 + 9).ticks_since(base), 9, "the 51 bits wrapped");
        assert_eq!(word(base.0 + 9).tick(base), Tick(base.0 + 9));
        assert!(word(base.0 - 1).ticks_since(base) > crate::LIFE_TICKS_MAX);
    }
}
