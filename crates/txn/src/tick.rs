//! Timestamps and writers as distinct types.

use std::fmt;

use lodestone_width::{const_usize, low_u16, u16_to_u64};

/// Bits of a tick that a version word holds.
pub const TICK_BITS: u32 = 51;
/// Bits of a thread id.
pub const WRITER_BITS: u32 = 10;
/// Thread ids that can be in use at a time.
pub const WRITERS_MAX: u16 = 1 << WRITER_BITS;
/// Ticks that one life may use: half of the range that a version word can tell apart.
pub const LIFE_TICKS_MAX: u64 = 1 << (TICK_BITS - 1);

/// A timestamp: larger than those of all versions that its transaction read or overwrote. Zero means "never".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(pub u64);

impl Tick {
    /// No transaction has this timestamp. Empty slots and records hold it.
    pub const NEVER: Self = Self(0);

    /// The next timestamp.
    #[must_use]
    #[inline]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tick {}", self.0)
    }
}

/// The id of a thread (paper 1: `tid`), below [`WRITERS_MAX`]. Ids are reused: see [`Registry`](crate::Registry).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Writer(u16);

impl Writer {
    /// The id `number`; `None` if it has more than [`WRITER_BITS`] bits.
    #[must_use]
    #[inline]
    pub const fn new(number: u16) -> Option<Self> {
        if number < WRITERS_MAX { Some(Self(number)) } else { None }
    }

    /// The low [`WRITER_BITS`] bits of `bits` as an id.
    #[must_use]
    #[inline]
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(low_u16(bits & (u16_to_u64(WRITERS_MAX) - 1)))
    }

    /// The number.
    #[must_use]
    #[inline]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The number as an index.
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        const_usize(u16_to_u64(self.0))
    }
}
