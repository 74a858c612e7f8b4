//! Typed handles on persistent memory: a word, a value, a range.
//!
//! A handle is a memory and an address, not a reference to the bytes: safe code cannot form one (see
//! [`crate::Memory`]).

use std::marker::PhantomData;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::addr::{PmAddr, PmPtr};
use crate::memory::Memory;

/// A 64-bit word that is loaded and stored whole.
///
/// ```
/// use lodestone_pmem::{Memory, PmAddr, PmU64};
/// let memory = Memory::anonymous(4096)?;
/// let counter = PmU64::new(&memory, PmAddr::new(0, 64));
/// counter.store(41);
/// assert_eq!(counter.compare_exchange(41, 42), Ok(41));
/// counter.persist();
/// assert_eq!(counter.load(), 42);
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PmU64<'m> {
    memory: &'m Memory,
    at: PmAddr,
}

impl<'m> PmU64<'m> {
    /// The word at `at`, which must be a multiple of 8.
    #[must_use]
    pub fn new(memory: &'m Memory, at: PmAddr) -> Self {
        Self { memory, at }
    }

    /// Address of the word.
    #[must_use]
    pub fn addr(&self) -> PmAddr {
        self.at
    }

    /// Loads (acquire).
    #[must_use]
    #[track_caller]
    pub fn load(&self) -> u64 {
        self.memory.load(self.at)
    }

    /// Stores (release).
    #[track_caller]
    pub fn store(&self, value: u64) {
        self.memory.store(self.at, value);
    }

    /// Replaces `current` by `new`.
    ///
    /// # Errors
    /// The value found, when it was not `current`.
    #[track_caller]
    pub fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.memory.compare_exchange(self.at, current, new)
    }

    /// Flushes the word's line.
    #[track_caller]
    pub fn flush(&self) {
        self.memory.flush(self.at, 8);
    }

    /// Flushes the word's line and fences.
    #[track_caller]
    pub fn persist(&self) {
        self.memory.persist(self.at, 8);
    }
}

/// A value of a plain type. Written word by word: readers that race with a writer must verify what they got.
#[derive(Debug)]
pub struct PmCell<'m, T> {
    memory: &'m Memory,
    at: PmPtr<T>,
    kind: PhantomData<T>,
}

impl<'m, T: FromBytes + IntoBytes + Immutable> PmCell<'m, T> {
    /// The value at `at`, which must be a multiple of 8.
    #[must_use]
    pub fn new(memory: &'m Memory, at: PmPtr<T>) -> Self {
        Self { memory, at, kind: PhantomData }
    }

    /// Copies the value out.
    #[must_use]
    #[track_caller]
    pub fn get(&self) -> T {
        self.memory.get(self.at)
    }

    /// Copies `value` in, in ascending order of words.
    #[track_caller]
    pub fn set(&self, value: &T) {
        self.memory.put(self.at, value);
    }

    /// Flushes the value's lines.
    #[track_caller]
    pub fn flush(&self) {
        self.memory.flush(self.at.addr(), size_of::<T>() as u64);
    }

    /// Flushes the value's lines and fences.
    #[track_caller]
    pub fn persist(&self) {
        self.memory.persist(self.at.addr(), size_of::<T>() as u64);
    }
}

/// A range of bytes for bulk work; starts at a multiple of 8.
#[derive(Clone, Copy, Debug)]
pub struct PmRange<'m> {
    memory: &'m Memory,
    at: PmAddr,
    len: u64,
}

impl<'m> PmRange<'m> {
    /// The `len` bytes at `at`; `None` when they are not inside one part or `at` is no multiple of 8.
    #[must_use]
    pub fn new(memory: &'m Memory, at: PmAddr, len: u64) -> Option<Self> {
        (at.offset().is_multiple_of(8) && memory.contains(at, len)).then_some(Self { memory, at, len })
    }

    /// Address of the first byte.
    #[must_use]
    pub fn addr(&self) -> PmAddr {
        self.at
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the range is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies the bytes out.
    #[must_use]
    #[track_caller]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = vec![0; self.len as usize];
        self.memory.read(self.at, &mut out);
        out
    }

    /// Writes `bytes` at the start and starts their write-back; persistent after the next fence.
    ///
    /// # Panics
    /// When `bytes` is longer than the range.
    #[track_caller]
    pub fn write_back(&self, bytes: &[u8]) {
        assert!(bytes.len() as u64 <= self.len, "{} bytes into a range of {}", bytes.len(), self.len);
        self.memory.write_back(self.at, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Result;

    #[test]
    fn ranges_refuse_what_is_outside() -> Result<()> {
        let memory = Memory::anonymous(4096)?;
        assert!(PmRange::new(&memory, PmAddr::new(0, 4096 - 8), 16).is_none());
        assert!(PmRange::new(&memory, PmAddr::new(0, 4), 8).is_none());
        assert!(PmRange::new(&memory, PmAddr::new(1, 0), 8).is_none());
        let range = PmRange::new(&memory, PmAddr::new(0, 8), 24).expect("inside");
        range.write_back(b"twenty-four bytes, sure!");
        assert_eq!(range.to_vec(), b"twenty-four bytes, sure!");
        Ok(())
    }
}
