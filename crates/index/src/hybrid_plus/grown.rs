//! An array that grows to twice its length and never moves, so that readers need no lock and no reclamation.
//!
//! Segment 0 has `2^base_bits` elements and segment *n* as many as all before it. An element keeps its place for as long as the
//! array lives; segments are made when they are first needed and given back with the array.

use std::sync::OnceLock;

/// Segments; with the smallest base of one element 2^31 elements.
const SEGMENTS: usize = 32;

/// See the module text.
pub(super) struct Grown<T> {
    base_bits: u32,
    segments: [OnceLock<Box<[T]>>; SEGMENTS],
}

impl<T: Default> Grown<T> {
    /// An empty array whose first segment has `2^base_bits` elements.
    pub(super) fn new(base_bits: u32) -> Self {
        Self { base_bits, segments: [const { OnceLock::new() }; SEGMENTS] }
    }

    /// Number and first element of the segment of element `index`.
    #[inline]
    fn segment_of(&self, index: usize) -> (usize, usize) {
        let number = (usize::BITS - (index >> self.base_bits).leading_zeros()) as usize;
        (number, if number == 0 { 0 } else { 1 << (self.base_bits as usize + number - 1) })
    }

    /// Element `index`, or `None` when the array is shorter.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&T> {
        let (number, first) = self.segment_of(index);
        self.segments.get(number)?.get()?.get(index - first)
    }

    /// Elements after the next [`grow`](Self::grow) of an array of `len` elements.
    pub(super) fn len_after(&self, len: usize) -> usize {
        if len == 0 { 1 << self.base_bits } else { 2 * len }
    }

    /// Makes the segment behind the first `len` elements; the new length.
    pub(super) fn grow(&self, len: usize) -> usize {
        let (number, _) = self.segment_of(len);
        let longer = self.len_after(len);
        self.segments[number].get_or_init(|| (len..longer).map(|_| T::default()).collect());
        longer
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn elements_keep_their_places_while_the_array_grows() {
        let array = Grown::<Cell<usize>>::new(2);
        assert!(array.get(0).is_none());
        let mut len = 0;
        for expected in [4, 8, 16, 32, 64] {
            let longer = array.grow(len);
            assert_eq!(longer, expected);
            (len..longer).for_each(|index| array.get(index).expect("an element").set(index));
            assert!(array.get(longer).is_none());
            assert!((0..longer).all(|index| array.get(index).is_some_and(|element| element.get() == index)));
            len = longer;
        }
    }
}
