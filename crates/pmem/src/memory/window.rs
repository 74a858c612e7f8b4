//! Words of a memory whose bounds and alignment were checked once, for readers that look at several words of one place.

use std::sync::atomic::Ordering;

use zerocopy::{FromBytes, IntoBytes};

use super::Memory;
use crate::addr::{PmAddr, bytes_of_words};
use crate::words::Words;

/// Words of a [`Memory`] whose bounds were checked when the window was made; see [`Memory::window`].
///
/// ```
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
/// let pool = Pool::create(&path, &options)?;
/// let (start, _end) = pool.heap_area(0);
/// // One check of the bounds, then words by number.
/// let window = pool.memory().window(start, 64).expect("the heap area has 64 words");
/// pool.memory().store(start.plus(8), 7);
/// assert_eq!(window.load(1), 7);
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Window<'m> {
    memory: &'m Memory,
    at: PmAddr,
    words: Words<'m>,
}

impl<'m> Window<'m> {
    /// The words `words`, which are at `at`.
    #[inline(always)]
    pub(super) fn new(memory: &'m Memory, at: PmAddr, words: Words<'m>) -> Self {
        Self { memory, at, words }
    }

    /// Reports that `words` words from word `first` on are about to be loaded. They are inside the window. Hooks see
    /// the same words that are loaded. A place outside is refused with hooks as without.
    #[cold]
    fn before_load(&self, first: usize, words: Words<'_>) {
        let offset = u64::try_from(first).ok().and_then(bytes_of_words);
        let at = self.at.plus(offset.unwrap_or(u64::MAX));
        self.memory.hook_load(at, words.bytes());
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
        let word = self.words.word(index);
        if self.memory.is_hooked() {
            self.before_load(index, self.words.part(index, 1));
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
        let words = self.words.part(first, WORDS);
        if self.memory.is_hooked() {
            self.before_load(first, words);
        }
        words.load_each()
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
        let source = self.words.part(first, size_of::<T>().div_ceil(8));
        if self.memory.is_hooked() {
            self.before_load(first, source);
        }
        source.read(value.as_mut_bytes(), Ordering::Acquire);
        value
    }
}
