//! Addresses inside a pool: a part and an offset, never a machine pointer.
//!
//! A pool maps at a different place in every life, so what is stored on the medium is an offset. [`PmAddr`] packs the
//! number of the part (one part per NUMA node) and the byte offset inside it into eight bytes; [`PmPtr`] adds a type.
//!
//! Invariants:
//! - the all-zero address is null: offset 0 of part 0 is the pool header, which nothing points to;
//! - an address says nothing about validity: code that reads one from the medium checks it with
//!   [`Memory::contains`](crate::Memory::contains) before following it.

use std::fmt;
use std::marker::PhantomData;

use lodestone_width::{low_u16, u16_to_u64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes in a cache line: the unit of flushing and of persist ordering.
pub const LINE_BYTES: u64 = 64;
/// Bytes in a word: the unit that never tears.
pub const WORD_BYTES: u64 = 8;
/// Bytes in an internal block of the medium (Optane's XPLine): the unit of write amplification.
pub const MEDIA_BLOCK_BYTES: u64 = 256;
/// Largest offset, exclusive: 48 bits.
pub const OFFSET_LIMIT: u64 = 1 << 48;

/// An address inside a pool: part number (16 bits) and byte offset (48 bits).
///
/// ```
/// use lodestone_pmem::PmAddr;
/// let at = PmAddr::new(1, 4096);
/// assert_eq!((at.part(), at.offset()), (1, 4096));
/// assert_eq!(PmAddr::from_raw(at.to_raw()), at);
/// assert!(PmAddr::NULL.is_null());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct PmAddr(u64);

impl PmAddr {
    /// The address that points nowhere.
    pub const NULL: Self = Self(0);

    /// The address `offset` bytes into part `part`.
    ///
    /// # Panics
    /// When `offset` needs more than 48 bits.
    #[must_use]
    #[inline]
    pub const fn new(part: u16, offset: u64) -> Self {
        assert!(offset < OFFSET_LIMIT, "an offset has 48 bits");
        Self((u16_to_u64(part) << 48) | offset)
    }

    /// Decodes what [`to_raw`](Self::to_raw) gave.
    #[must_use]
    #[inline]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The eight bytes as they are on the medium.
    #[must_use]
    #[inline]
    pub const fn to_raw(self) -> u64 {
        self.0
    }

    /// Number of the part.
    #[must_use]
    #[inline]
    pub const fn part(self) -> u16 {
        low_u16(self.0 >> 48)
    }

    /// Byte offset inside the part.
    #[must_use]
    #[inline]
    pub const fn offset(self) -> u64 {
        self.0 & (OFFSET_LIMIT - 1)
    }

    /// Whether this is [`PmAddr::NULL`].
    #[must_use]
    #[inline]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The address `bytes` further on in the same part.
    ///
    /// # Panics
    /// When the offset would pass 48 bits.
    #[must_use]
    #[inline]
    pub const fn plus(self, bytes: u64) -> Self {
        match self.offset().checked_add(bytes) {
            Some(offset) => Self::new(self.part(), offset),
            None => panic!("an offset has 48 bits"),
        }
    }

    /// The line that contains this address.
    #[must_use]
    #[inline]
    pub const fn line(self) -> LineAddr {
        LineAddr(self.0 & !(LINE_BYTES - 1))
    }
}

impl fmt::Debug for PmAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for PmAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_null() { f.write_str("null") } else { write!(f, "{}:{:#x}", self.part(), self.offset()) }
    }
}

/// The address of a whole cache line: a [`PmAddr`] whose low six bits are zero.
///
/// ```
/// use lodestone_pmem::PmAddr;
///
/// let line = PmAddr::new(0, 100).line();
/// assert_eq!(line.start(), PmAddr::new(0, 64));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineAddr(u64);

impl LineAddr {
    /// The address of the line's first byte.
    #[must_use]
    #[inline]
    pub const fn start(self) -> PmAddr {
        PmAddr(self.0)
    }

    /// The line after this one, in the same part.
    ///
    /// # Panics
    /// When the offset would pass 48 bits.
    #[must_use]
    #[inline]
    pub const fn next(self) -> Self {
        Self(self.start().plus(LINE_BYTES).0)
    }
}

impl fmt::Debug for LineAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}:{:#x}", self.start().part(), self.start().offset())
    }
}

/// The lines that `len` bytes from `at` touch, in order; none when `len` is 0.
///
/// # Panics
/// When the range would pass 48 bits of offset: it is in no part.
#[inline]
pub fn lines_of(at: PmAddr, len: u64) -> impl Iterator<Item = LineAddr> {
    assert!(len <= OFFSET_LIMIT - at.offset(), "a range ends inside its part");
    let first = at.line().0;
    let count = if len == 0 { 0 } else { (at.0 - first + len - 1) / LINE_BYTES + 1 };
    (0..count).map(move |index| LineAddr(first + index * LINE_BYTES))
}

/// Bytes of `words` words; `None` where that does not fit 64 bits, so that no such range passes for a short one.
#[must_use]
#[inline(always)]
pub(crate) const fn bytes_of_words(words: u64) -> Option<u64> {
    words.checked_mul(WORD_BYTES)
}

/// A typed address: the place of a `T` in a pool. It is a plain eight-byte value that may itself be on the medium.
///
/// The program alone knows the type and the pool: the place itself does not say. Through a wrong pointer a program
/// reads some other value of its type or gets an error, but it never leaves the pool. `lodestone_stm::Tx::read` says
/// which of the two.
///
/// ```
/// use lodestone_pmem::{PmAddr, PmPtr};
///
/// let pointer = PmPtr::<u64>::new(PmAddr::new(0, 4096));
/// assert_eq!(pointer.addr().offset(), 4096);
/// assert!(PmPtr::<u64>::NULL.is_null());
/// ```
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct PmPtr<T> {
    addr: PmAddr,
    kind: PhantomData<fn() -> T>,
}

impl<T> PmPtr<T> {
    /// The pointer that points nowhere.
    pub const NULL: Self = Self::new(PmAddr::NULL);

    /// A typed pointer to `addr`.
    #[must_use]
    #[inline]
    pub const fn new(addr: PmAddr) -> Self {
        Self { addr, kind: PhantomData }
    }

    /// The address without the type.
    #[must_use]
    #[inline]
    pub const fn addr(self) -> PmAddr {
        self.addr
    }

    /// Whether this is [`PmPtr::NULL`].
    #[must_use]
    #[inline]
    pub const fn is_null(self) -> bool {
        self.addr.is_null()
    }
}

impl<T> Clone for PmPtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for PmPtr<T> {}
impl<T> PartialEq for PmPtr<T> {
    fn eq(&self, other: &Self) -> bool {
        self.addr == other.addr
    }
}
impl<T> Eq for PmPtr<T> {}
impl<T> fmt::Debug for PmPtr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PmPtr({})", self.addr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_cover_exactly_the_touched_range() {
        let offsets =
            |at: u64, len: u64| lines_of(PmAddr::new(2, at), len).map(|l| l.start().offset()).collect::<Vec<_>>();
        assert_eq!(offsets(64, 0), Vec::<u64>::new());
        assert_eq!(offsets(64, 64), [64]);
        assert_eq!(offsets(60, 8), [0, 64]);
        assert_eq!(offsets(127, 2), [64, 128]);
        assert_eq!(lines_of(PmAddr::new(2, 60), 8).next().map(|l| l.start().part()), Some(2));
    }

    /// Whether `work` panics with a message of ours. An overflow that the build happens to check does not count: a
    /// release build does not check it.
    fn is_refused<T>(work: impl FnOnce() -> T + std::panic::UnwindSafe) -> bool {
        let Err(panic) = std::panic::catch_unwind(work) else { return false };
        let text = panic.downcast_ref::<&str>().copied().unwrap_or_default();
        text == "an offset has 48 bits" || text == "a range ends inside its part"
    }

    #[test]
    fn lengths_that_no_part_has_are_refused_and_never_wrap() {
        let at = PmAddr::new(2, 4096);
        for bytes in [u64::MAX, u64::MAX - 4095, u64::MAX - 4096 + 64, OFFSET_LIMIT, OFFSET_LIMIT - 4096] {
            assert!(is_refused(|| at.plus(bytes)), "{bytes:#x} further on");
        }
        assert_eq!(at.plus(OFFSET_LIMIT - 4097).offset(), OFFSET_LIMIT - 1);
        for len in [u64::MAX, u64::MAX - 4095, OFFSET_LIMIT, OFFSET_LIMIT - 4095] {
            assert!(is_refused(|| lines_of(at, len).count()), "{len:#x} bytes");
        }
        let last = PmAddr::from_raw(u64::MAX - 63).line();
        assert!(is_refused(|| last.next()), "the line after the last one");
        assert_eq!(lines_of(last.start(), 64).collect::<Vec<_>>(), [last]);
        assert_eq!((bytes_of_words(1 << 61), bytes_of_words((1 << 61) - 1)), (None, Some(u64::MAX - 7)));
    }
}
