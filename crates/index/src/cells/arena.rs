//! Objects in DRAM that keep their place for as long as the arena lives, found by number. So a thread that has a number
//! may look, however late, and asks the object what it is now.

use std::sync::OnceLock;

use lodestone_width::to_usize;

/// Things in the first chunk of an arena; each further chunk has twice as many.
const CHUNK_FIRST: usize = 64;

/// Things, made by default when their chunk is first needed.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    chunks: Box<[OnceLock<Box<[T]>>]>,
}

impl<T: Default> Arena<T> {
    pub(crate) fn new() -> Self {
        Self { chunks: (0..32).map(|_| OnceLock::new()).collect() }
    }

    #[inline]
    fn place(index: usize) -> (usize, usize) {
        let shifted = index + CHUNK_FIRST;
        let chunk = to_usize((shifted / CHUNK_FIRST).ilog2());
        (chunk, shifted - (CHUNK_FIRST << chunk))
    }

    /// The thing with this number, which [`make`](Self::make) gave before.
    #[inline]
    pub(crate) fn at(&self, index: usize) -> &T {
        let (chunk, offset) = Self::place(index);
        let chunk = self.chunks[chunk].get();
        &chunk.expect("a number is known to others only after its thing stands in the arena")[offset]
    }

    /// The thing with this number; if need be it is made.
    pub(crate) fn make(&self, index: usize) -> &T {
        let (chunk, offset) = Self::place(index);
        &self.chunks[chunk].get_or_init(|| (0..CHUNK_FIRST << chunk).map(|_| T::default()).collect())[offset]
    }
}

/// Places for things, each filled once.
impl<T> Arena<OnceLock<T>> {
    /// The object at that number.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> &T {
        self.at(index).get().expect("an index is known to others only after its thing stands in the arena")
    }

    /// Fills a place.
    pub(crate) fn put(&self, index: usize, thing: T) {
        assert!(self.make(index).set(thing).is_ok(), "an arena gives each index once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_gives_back_what_was_put_at_each_index() {
        let arena = Arena::new();
        (0..2000_usize).for_each(|index| arena.put(index, index));
        assert!((0..2000).all(|index| *arena.get(index) == index));
    }
}
