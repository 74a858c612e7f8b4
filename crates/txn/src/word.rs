//! The version word. Each object has one: it tells a reader which slot is newest, which thread wrote it and when, and
//! it is the committer's lock.
//!
//! ```text
//! bits 0..2    state: 0 live, 1 committing, 2 free (never written, or deleted)
//! bit  2       slot that holds the newest version
//! bits 3..13   id of the thread that wrote it
//! bits 13..64  low 51 bits of its tick
//! ```
//!
//! 1. A *reader* loads the word, copies the slot, and loads the word again. Equal words mean a whole, current version.
//!    Both loads acquire, and a committer stores "committing" before it stores to the other slot. So a reader that
//!    copies a torn slot sees a different word afterwards. One comparison re-checks lock, slot and timestamp at once,
//!    so these checks cannot be made in a wrong order (the paper checks the lock, then the timestamp).
//! 2. A *committer* replaces the word it saw by the same word with the state "committing", with one
//!    compare-and-exchange. After the fence it stores the new tick, its id, the other slot and "live": publish and
//!    release are one store. Other objects of the same transaction may still be committing at that time. A thread that
//!    needs one of them waits, so no thread sees half a transaction.
//!
//! Invariants:
//! - a word counts only if its tick is in the range of this life ([`StartClocks::covers`](crate::StartClocks::covers)).
//!   Words of earlier lives, locks included, are stale and are rebuilt from the slots;
//! - per object the tick strictly increases, so equal words mean that nothing was committed in between.

use lodestone_width::u16_to_u64;

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
    /// The other slot, to which the next version goes.
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
        match self {
            Self::First => 0,
            Self::Second => 1,
        }
    }

    /// The slot that the lowest bit of `bits` names.
    #[must_use]
    #[inline]
    pub const fn from_bit(bits: u64) -> Self {
        if bits & 1 == 0 { Self::First } else { Self::Second }
    }
}

/// The state of an object according to its version word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is a newest version, and no thread is committing another.
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
/// The lowest bit of the tick in an [`age`](VersionWord::age).
pub(crate) const AGE_TICK_SHIFT: u32 = TICK_SHIFT - SLOT_SHIFT;

/// A version word: state, slot, thread id and tick of an object's newest version.
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
        let writer = u16_to_u64(writer.number());
        Self(state | (slot.index() << SLOT_SHIFT) | (writer << WRITER_SHIFT) | (tick.0 << TICK_SHIFT))
    }

    /// The word with this representation in memory.
    #[must_use]
    #[inline]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The representation in memory.
    #[must_use]
    #[inline]
    pub const fn to_raw(self) -> u64 {
        self.0
    }

    /// The state. Unknown bits count as committing, so that no thread reads the slots under them.
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

    /// The thread that wrote the newest version.
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

    /// Ticks from `base` to this version, modulo 2^51. Huge for words of earlier lives.
    #[must_use]
    #[inline]
    pub const fn ticks_since(self, base: Tick) -> u64 {
        self.0.wrapping_sub(base.0 << TICK_SHIFT) >> TICK_SHIFT
    }

    /// The word with its state in the bits above tick, writer and slot, counted from `origin` (see
    /// [`age_origin`](Self::age_origin)). Of two live words of the same writer and life, the later has the larger age.
    /// A word that is not live, or that is of an earlier life, has an age above all of these.
    #[must_use]
    #[inline(always)]
    pub const fn age(self, origin: u64) -> u64 {
        self.0.rotate_right(SLOT_SHIFT).wrapping_sub(origin)
    }

    /// The origin of ages in the life that began at `base`.
    #[must_use]
    #[inline]
    pub const fn age_origin(base: Tick) -> u64 {
        (base.0 << TICK_SHIFT) >> SLOT_SHIFT
    }

    /// The full tick of a word of the life that began at `base`.
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
