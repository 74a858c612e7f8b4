//! A reader's view of the first part of a memory: it makes the bounds check of a hot read one comparison.
//!
//! 1. [`Memory::view`] looks once at the mapping, its length and whether the memory has hooks (a tracer, a medium, no
//!    permission to store). With hooks the view is empty, so that every access takes the way that reports it.
//! 2. [`View::block`] is one rotation and one comparison. It refuses an address that is in another part, does not start
//!    a line, or has less than [`VIEW_BLOCK_BYTES`] bytes after it. The caller then goes through [`Memory`].
//! 3. [`Block`] returns words by value. Places known at compile time cost no check.
//!
//! Invariants:
//! - a view is not longer than the part, which only grows, and lives no longer than the memory;
//! - nothing can be stored through it.
#![expect(unsafe_code, reason = "words of a mapping as atomics, at addresses that one comparison checks")]

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use lodestone_width::{const_usize, to_usize};
use zerocopy::{IntoBytes, TryFromBytes};

use crate::addr::{LINE_BYTES, PmAddr, WORD_BYTES};
use crate::memory::Memory;
use crate::words::Words;

/// Bytes that a [`Block`] shows.
pub const VIEW_BLOCK_BYTES: u64 = 4096;
const BLOCK_WORDS: usize = const_usize(VIEW_BLOCK_BYTES / WORD_BYTES);

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct View<'m> {
    base: *const u8,
    /// Number of lines, from the start of the part, at which a whole mapped block can begin.
    lines: u64,
    memory: PhantomData<&'m Memory>,
}

// SAFETY: a view allows shared access to word atomics only, which any thread may have, for as long as the borrow of the
// memory lasts.
unsafe impl Send for View<'_> {}
// SAFETY: as above.
unsafe impl Sync for View<'_> {}

impl<'m> View<'m> {
    /// A view that shows nothing.
    pub const EMPTY: Self = Self { base: std::ptr::null(), lines: 0, memory: PhantomData };

    /// The view of `memory`; `base` is where its first part is mapped.
    pub(crate) fn new(_memory: &'m Memory, base: *const u8, bytes: u64) -> Self {
        let lines = if bytes < VIEW_BLOCK_BYTES { 0 } else { (bytes - VIEW_BLOCK_BYTES) / LINE_BYTES + 1 };
        Self { base, lines, memory: PhantomData }
    }

    /// The bytes from `at` on; `None` where the view cannot tell at once that they are there.
    #[inline(always)]
    #[must_use]
    pub fn block(&self, at: PmAddr) -> Option<Block<'m>> {
        // The number of the line; huge when the address is inside of a line or in another part.
        let line = at.to_raw().rotate_right(LINE_BYTES.trailing_zeros());
        if line >= self.lines {
            return None;
        }
        // SAFETY: by the comparison, `at` is the start of a line with a whole block from there inside the mapping. The
        // mapping is aligned and stays while the memory is borrowed. All other access to it is by word atomics.
        let words = unsafe { &*self.base.add(to_usize(at.to_raw())).cast::<[AtomicU64; BLOCK_WORDS]>() };
        Some(Block { words })
    }
}

/// Words of a memory, from the start of a line on.
#[derive(Clone, Copy, Debug)]
pub struct Block<'m> {
    words: &'m [AtomicU64; BLOCK_WORDS],
}

impl<'m> Block<'m> {
    #[inline(always)]
    fn part(&self, first: usize, count: usize) -> Words<'m> {
        Words::of(self.words).part(first, count)
    }

    /// Loads word `index` (acquire).
    ///
    /// # Panics
    /// When the block is shorter.
    #[inline(always)]
    #[must_use]
    pub fn load(&self, index: usize) -> u64 {
        self.words[index].load(Ordering::Acquire)
    }

    /// Loads word `index` after everything that was read from the block before.
    ///
    /// # Panics
    /// When the block is shorter.
    #[inline(always)]
    #[must_use]
    pub fn load_behind(&self, index: usize) -> u64 {
        fence(Ordering::Acquire);
        self.words[index].load(Ordering::Relaxed)
    }

    /// Reads the bytes of a value from word `first` on. A concurrent writer may leave a mixture of words. The caller
    /// notices that by a look ([`load_behind`](Self::load_behind)) at a word that the writer changes first.
    ///
    /// # Panics
    /// When the block is shorter.
    #[inline(always)]
    #[must_use]
    pub fn get<T: IntoBytes>(&self, first: usize) -> Raw<T> {
        let mut value = Raw::zeroed();
        self.part(first, size_of::<T>().div_ceil(8)).read(value.as_mut_bytes(), Ordering::Relaxed);
        value
    }

    /// Reads the words from word `first` on into `out`, as [`get`](Self::get).
    ///
    /// # Panics
    /// When the block is shorter.
    #[inline(always)]
    pub fn copy(&self, first: usize, out: &mut [u64]) {
        let source = self.part(first, out.len());
        for (word, out) in source.loads(Ordering::Relaxed).zip(out) {
            *out = word;
        }
    }

    /// Reads bytes from word `first` on into `out`, as [`get`](Self::get).
    ///
    /// # Panics
    /// When the block is shorter.
    #[inline(always)]
    pub fn copy_bytes(&self, first: usize, out: &mut [u8]) {
        self.part(first, out.len().div_ceil(8)).read(out, Ordering::Relaxed);
    }

    /// As [`get`](Self::get), from `second` on when `is_second`, else from `first` on. Reads both, so that the
    /// processor need not wait for the decision; for small values.
    ///
    /// # Panics
    /// When the block is shorter.
    #[inline(always)]
    #[must_use]
    pub fn get_either<T: IntoBytes>(&self, first: usize, second: usize, is_second: bool) -> Raw<T> {
        let words = size_of::<T>().div_ceil(8);
        let mut value = Raw::zeroed();
        let (first, second) = (self.part(first, words), self.part(second, words));
        first.read_either(second, is_second, value.as_mut_bytes(), Ordering::Relaxed);
        value
    }
}

/// The bytes of a `T` as they were read: a value only if they are one.
#[derive(Debug)]
pub struct Raw<T> {
    /// Invariant: every byte is initialised. `T` has no padding, so none is lost when this moves.
    bytes: MaybeUninit<T>,
}

impl<T: IntoBytes> Raw<T> {
    /// All bytes zero.
    #[inline(always)]
    #[must_use]
    pub fn zeroed() -> Self {
        Self { bytes: MaybeUninit::zeroed() }
    }

    /// The bytes.
    #[inline(always)]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: that many bytes are there, all of them initialised (the invariant). The borrow keeps them.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast::<u8>(), size_of::<T>()) }
    }

    /// The bytes, to be changed.
    #[inline(always)]
    pub fn as_mut_bytes(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_bytes`. Any bytes may be stored there: only `value` makes a `T` of them.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.as_mut_ptr().cast::<u8>(), size_of::<T>()) }
    }

    /// The value, `None` when the bytes are none. Costs nothing for types of which any bytes are a value.
    #[inline(always)]
    #[must_use]
    pub fn value(&self) -> Option<T>
    where
        T: TryFromBytes,
    {
        T::try_read_from_bytes(self.as_bytes()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Result;

    #[test]
    fn it_shows_what_the_memory_holds_and_refuses_the_rest() -> Result<()> {
        let memory = Memory::anonymous(16384)?;
        for word in 0..16384 / 8 {
            memory.store(PmAddr::new(0, word * 8), word);
        }
        let view = memory.view();
        let block = view.block(PmAddr::new(0, 128)).expect("inside");
        assert_eq!((block.load(0), block.load_behind(511)), (16, 16 + 511));
        assert_eq!(block.get::<[u64; 3]>(1).value(), Some([17, 18, 19]));
        assert_eq!(block.get::<bool>(1).value(), None, "a byte of 17 is no bool");
        let mut copy = [0; 2];
        block.copy(3, &mut copy);
        assert_eq!(copy, [19, 20]);
        for len in 0..=17 {
            let mut bytes = [0xFF; 17];
            block.copy_bytes(3, &mut bytes[..len]);
            assert_eq!(bytes[..len], [19_u64, 20, 21].as_bytes()[..len]);
            assert!(bytes[len..].iter().all(|byte| *byte == 0xFF));
        }
        let expected = memory.get(crate::PmPtr::<[u8; 12]>::new(PmAddr::new(0, 136)));
        assert_eq!(block.get::<[u8; 12]>(1).value(), Some(expected));
        assert_eq!(block.get_either::<[u64; 2]>(1, 8, false).value(), Some([17, 18]));
        assert_eq!(block.get_either::<[u64; 2]>(1, 8, true).value(), Some([24, 25]));
        // The last word is not whole.
        let part = |words: [u64; 2]| <[u8; 12]>::try_from(&words.as_bytes()[..12]).ok();
        assert_eq!(block.get_either::<[u8; 12]>(1, 8, false).value(), part([17, 18]));
        assert_eq!(block.get_either::<[u8; 12]>(1, 8, true).value(), part([24, 25]));
        assert!(view.block(PmAddr::new(0, 16384 - 4096)).is_some(), "the last block");
        let refused = [
            PmAddr::new(0, 16384 - 4096 + 64),
            PmAddr::new(0, 136),
            PmAddr::new(0, 129),
            PmAddr::new(1, 128),
            PmAddr::from_raw(u64::MAX),
            PmAddr::from_raw(u64::MAX - 63),
        ];
        for at in refused {
            assert!(view.block(at).is_none(), "{at}");
        }
        assert!(View::EMPTY.block(PmAddr::new(0, 0)).is_none());
        assert!(Memory::anonymous(4096)?.view().block(PmAddr::NULL).is_some(), "one block is all there is");
        Ok(())
    }
}
