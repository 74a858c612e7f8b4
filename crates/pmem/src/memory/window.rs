//! Words of a memory whose bounds and alignment were checked once, for readers that look at several words of one place.

use std::sync::atomic::{AtomicU64, Ordering};

use zerocopy::{FromBytes, IntoBytes};

use super::{HOOKS, Memory};
use crate::addr::{PmAddr, WORD_BYTES, bytes_of_words};

/// Words of a [`Memory`] whose bounds were checked when the window was made; see [`Memory::window`].
#[derive(Clone, Copy, Debug)]
pub struct Window<'m> {
    memory: &'m Memory,
    at: PmAddr,
    words: &'m [AtomicU64],
}

impl<'m> Window<'m> {
    /// The words `words`, which are at `at`.
    #[inline(always)]
    pub(super) fn new(memory: &'m Memory, at: PmAddr, words: &'m [AtomicU64]) -> Self {
        Self { memory, at, words }
    }

    /// Reports that `words` words from word `first` on are about to be loaded. They are inside the window. Hooks see
    /// the same words that are loaded. A place outside is refused with hooks as without.
    #[cold]
    fn before_load(&self, first: usize, words: &[AtomicU64]) {
        let offset = u64::try_from(first).ok().and_then(bytes_of_words);
        let at = self.at.plus(offset.unwrap_or(u64::MAX));
        self.memory.before_load(at, words.len() as u64 * WORD_BYTES);
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
        let word = &self.words[index];
        if HOOKS && self.memory.inner.hooked {
            self.before_load(index, std::slice::from_ref(word));
        }
        word.load(Ordering::Acquire)
    }

    /// Loads the `WORDS` words from word `first` on in ascending order (acquire). A concurrent writer may leave a
    /// mixture of words, which the caller must notice.
    ///
    /// # Panics
    /// When the window is shorter.
    #[inline(always)]
    #[must_use]
    pub fn load_words<const WORDS: usize>(&self, first: usize) -> [u64; WORDS] {
        let words = &self.words[first..][..WORDS];
        if HOOKS && self.memory.inner.hooked {
            self.before_load(first, words);
        }
        load_each(words)
    }

    /// Reads a value from word `first` on, word by word in ascending order (acquire). A concurrent writer may leave a
    /// mixture of words, which the caller must notice.
    ///
    /// # Panics
    /// When the window is shorter.
    #[inline(always)]
    #[must_use]
    pub fn get<T: FromBytes + IntoBytes>(&self, first: usize) -> T {
        let mut value = T::new_zeroed();
        let source = &self.words[first..][..size_of::<T>().div_ceil(8)];
        if HOOKS && self.memory.inner.hooked {
            self.before_load(first, source);
        }
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

/// The first words, of which there are enough. A plain loop: it is inlined in every build.
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
