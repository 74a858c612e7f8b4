//! Words of a memory whose bounds and alignment were checked once, for readers that look at several words of one place.

use std::sync::atomic::{AtomicU64, Ordering};

use zerocopy::{FromBytes, IntoBytes};

use super::{HOOKS, Memory};
use crate::addr::{PmAddr, WORD_BYTES};

/// Words of a [`Memory`] whose bounds were checked when the window was made; see [`Memory::window`].
#[derive(Clone, Copy, Debug)]
pub struct Window<'m> {
    memory: &'m Memory,
    at: PmAddr,
    words: &'m [AtomicU64],
}

impl<'m> Window<'m> {
    /// The words `words`, which stand at `at`.
    #[inline(always)]
    pub(super) fn new(memory: &'m Memory, at: PmAddr, words: &'m [AtomicU64]) -> Self {
        Self { memory, at, words }
    }

    /// Address of the first word.
    #[inline]
    #[must_use]
    pub fn addr(&self) -> PmAddr {
        self.at
    }

    /// Loads word `index` of the window (acquire).
    ///
    /// # Panics
    /// When the window is shorter.
    #[inline(always)]
    #[must_use]
    pub fn load(&self, index: usize) -> u64 {
        if HOOKS && self.memory.inner.hooked {
            self.memory.before_load(self.at.plus(index as u64 * WORD_BYTES), WORD_BYTES);
        }
        self.words[index].load(Ordering::Acquire)
    }

    /// Loads the `WORDS` words from word `first` on in ascending order (acquire). A concurrent writer may leave a mixture of
    /// words, which the caller must notice.
    ///
    /// # Panics
    /// When the window is shorter.
    #[inline(always)]
    #[must_use]
    pub fn load_words<const WORDS: usize>(&self, first: usize) -> [u64; WORDS] {
        if HOOKS && self.memory.inner.hooked {
            self.memory.before_load(self.at.plus(first as u64 * WORD_BYTES), WORDS as u64 * WORD_BYTES);
        }
        load_each(&self.words[first..first + WORDS])
    }

    /// Reads a value from word `first` on, word by word in ascending order (acquire). A concurrent writer may leave a mixture
    /// of words, which the caller must notice.
    ///
    /// # Panics
    /// When the window is shorter.
    #[inline(always)]
    #[must_use]
    pub fn get<T: FromBytes + IntoBytes>(&self, first: usize) -> T {
        let mut value = T::new_zeroed();
        if HOOKS && self.memory.inner.hooked {
            self.memory.read(self.at.plus(first as u64 * WORD_BYTES), value.as_mut_bytes());
            return value;
        }
        let source = &self.words[first..first + size_of::<T>().div_ceil(8)];
        let (chunks, rest) = value.as_mut_bytes().as_chunks_mut::<8>();
        for (chunk, word) in chunks.iter_mut().zip(source) {
            *chunk = word.load(Ordering::Acquire).to_le_bytes();
        }
        if !rest.is_empty()
            && let Some(word) = source.last()
        {
            let bytes = word.load(Ordering::Acquire).to_le_bytes();
            rest.copy_from_slice(&bytes[..rest.len()]);
        }
        value
    }
}

/// The first words, of which there are enough. A plain loop: it is inlined whatever the build.
#[inline(always)]
pub(super) fn load_each<const WORDS: usize>(words: &[AtomicU64]) -> [u64; WORDS] {
    let words = &words[..WORDS];
    let mut loaded = [0; WORDS];
    let mut index = 0;
    while index < WORDS {
        loaded[index] = words[index].load(Ordering::Acquire);
        index += 1;
    }
    loaded
}
