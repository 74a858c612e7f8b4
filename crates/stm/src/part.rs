//! A part of an object: a field, or adjacent fields, read without the rest of the object.

use std::marker::PhantomData;

use zerocopy::{FromBytes, IntoBytes};

use crate::object::PmObject;

/// The place of an `F` in a `T`. See [`Tx::read_part`](crate::Tx::read_part).
///
/// ```
/// use lodestone_stm::{FromBytes, Immutable, IntoBytes, KnownLayout, Part, PmObject, PmPtr};
///
/// #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
/// #[repr(C)]
/// struct Node {
///     key: u64,
///     next: PmPtr<Node>,
///     text: [u64; 30],
/// }
/// const NEXT: Part<Node, PmPtr<Node>> = Part::at(std::mem::offset_of!(Node, next));
/// const KEY_AND_NEXT: Part<Node, [u64; 2]> = Part::at(std::mem::offset_of!(Node, key));
/// # let _ = (NEXT, KEY_AND_NEXT);
/// ```
#[derive(Debug)]
pub struct Part<T, F> {
    word: usize,
    kind: PhantomData<fn(T) -> F>,
}

impl<T, F> Clone for Part<T, F> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, F> Copy for Part<T, F> {}

impl<T: PmObject> Part<T, T> {
    /// The whole object.
    pub(crate) const WHOLE: Self = Self { word: 0, kind: PhantomData };
}

impl<T, F> Part<T, F> {
    /// Number of the object's word at which it begins.
    #[inline(always)]
    #[must_use]
    pub const fn word(self) -> usize {
        self.word
    }
}

impl<T: PmObject, F: FromBytes + IntoBytes> Part<T, F> {
    /// The `F` at byte `offset` of a `T`. Any bytes are an `F`, so the worst effect of a wrong offset is a wrong value.
    ///
    /// # Panics
    /// When it is not inside a `T`, or does not begin at a multiple of 8. In a constant that is a compile error.
    #[must_use]
    pub const fn at(offset: usize) -> Self {
        assert!(offset.is_multiple_of(8), "a part begins at a multiple of 8 bytes");
        assert!(offset <= size_of::<T>() && size_of::<F>() <= size_of::<T>() - offset, "a part lies inside the object");
        Self { word: offset / 8, kind: PhantomData }
    }

    /// The part of `value`.
    #[inline]
    #[must_use]
    pub fn of(self, value: &T) -> F {
        let mut part = F::new_zeroed();
        let bytes = part.as_mut_bytes();
        let end = self.word * 8 + bytes.len();
        bytes.copy_from_slice(&value.as_bytes()[self.word * 8..end]);
        part
    }
}
