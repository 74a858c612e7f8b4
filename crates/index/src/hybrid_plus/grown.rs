//! Arrays that grow to twice their length and never move, so that readers need no lock and no reclamation.
//!
//! Segment 0 has `2^base_bits` elements and segment *n* as many as all before it. An element keeps its place for as
//! long as the array lives; segments are made when they are first needed and given back with the array.
//!
//! Several arrays, *shares*, may share their segments: the first one to grow makes the segment for all. So the segment
//! addresses, which every access reads, are few enough to stay in the processor's first cache, and allocations are few
//! and large.

use std::sync::OnceLock;

use lodestone_width::{to_u64, to_usize};

/// Segments; with the smallest base of one element 2^31 elements.
const SEGMENTS: usize = 32;

/// See the module text.
pub(super) struct Grown<T> {
    base_bits: u32,
    /// How many arrays there are, as a power of two.
    share_bits: u32,
    segments: [OnceLock<Box<[T]>>; SEGMENTS],
}

impl<T: Default> Grown<T> {
    /// `2^share_bits` empty arrays whose first segments have `2^base_bits` elements each.
    pub(super) fn new(base_bits: u32, share_bits: u32) -> Self {
        Self { base_bits, share_bits, segments: [const { OnceLock::new() }; SEGMENTS] }
    }

    /// Number and first element of the segment of element `index`.
    #[inline]
    fn segment_of(&self, index: usize) -> (usize, usize) {
        let number = to_usize(usize::BITS - (index >> self.base_bits).leading_zeros());
        (number, if number == 0 { 0 } else { 1 << (to_usize(self.base_bits) + number - 1) })
    }

    /// Element `index` of an array, or `None` when no array is as long.
    #[inline]
    pub(super) fn get(&self, share: usize, index: usize) -> Option<&T> {
        let (number, first) = self.segment_of(index);
        let segment = self.segments.get(number)?.get()?;
        segment.get(share * (segment.len() >> self.share_bits) + index - first)
    }

    /// Elements after the next [`grow`](Self::grow) of an array of `len` elements.
    pub(super) fn len_after(&self, len: usize) -> usize {
        if len == 0 { 1 << self.base_bits } else { 2 * len }
    }

    /// Makes the segment after the first `len` elements of an array, unless another array has. Returns the new length.
    pub(super) fn grow(&self, len: usize) -> usize {
        let (number, _) = self.segment_of(len);
        let longer = self.len_after(len);
        self.segments[number].get_or_init(|| (0..(longer - len) << self.share_bits).map(|_| T::default()).collect());
        longer
    }

    /// Bytes of DRAM of all segments.
    pub(super) fn dram_bytes(&self) -> u64 {
        let segments = self.segments.iter().filter_map(OnceLock::get);
        segments.map(|segment| to_u64(size_of_val(&**segment))).sum::<u64>() + to_u64(size_of::<Self>())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn elements_keep_their_places_while_the_arrays_grow() {
        for share_bits in [0, 1, 3] {
            let arrays = Grown::<Cell<usize>>::new(2, share_bits);
            let shares = 1 << share_bits;
            assert!(arrays.get(0, 0).is_none());
            let mut len = 0;
            for expected in [4, 8, 16, 32, 64] {
                let longer = (0..shares).map(|_| arrays.grow(len)).max();
                assert_eq!(longer, Some(expected));
                let everywhere = || (0..shares).flat_map(|share| (0..expected).map(move |index| (share, index)));
                let element = |share, index| arrays.get(share, index).expect("an element");
                everywhere()
                    .filter(|(_, index)| *index >= len)
                    .for_each(|(share, index)| element(share, index).set(share * 1000 + index));
                assert!(everywhere().all(|(share, index)| element(share, index).get() == share * 1000 + index));
                assert!((0..shares).all(|share| arrays.get(share, expected).is_none()));
                len = expected;
            }
            assert!(arrays.dram_bytes() >= (shares * 64 * size_of::<usize>()) as u64);
        }
    }
}
