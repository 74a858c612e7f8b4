//! Fields of packed rows: numbers in little-endian and texts padded with spaces, at fixed places, then a text of any
//! length.
//!
//! A layout is a chain of constants: each field begins where the one before it ends.
//!
//! ```
//! use lodestone_workload::oltp::fields::{Field, Tail};
//!
//! const CENTS: Field<i64> = Field::first();
//! const OWNER: Field<[u8; 8]> = CENTS.then();
//! const NOTE: Tail = OWNER.tail();
//!
//! let mut row = NOTE.row();
//! CENTS.set(&mut row, -5);
//! OWNER.set(&mut row, *b"alice   ");
//! NOTE.set(&mut row, b"a note");
//! assert_eq!((CENTS.get(&row), OWNER.get(&row), NOTE.get(&row)), (-5, *b"alice   ", &b"a note"[..]));
//! assert_eq!(row.len(), 22);
//! ```

use std::marker::PhantomData;

/// A value of a fixed length.
pub trait Fixed: Copy {
    /// The value in `bytes`, which have its length.
    fn load(bytes: &[u8]) -> Self;
    /// Stores it.
    fn store(self, bytes: &mut [u8]);
}

macro_rules! numbers {
    ($($kind:ty),+) => {$(
        impl Fixed for $kind {
            #[inline]
            fn load(bytes: &[u8]) -> Self {
                let mut word = [0; size_of::<Self>()];
                word.copy_from_slice(bytes);
                Self::from_le_bytes(word)
            }

            #[inline]
            fn store(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
        }
    )+};
}

numbers!(u8, u16, u32, u64, i32, i64);

impl<const N: usize> Fixed for [u8; N] {
    #[inline]
    fn load(bytes: &[u8]) -> Self {
        let mut text = [0; N];
        text.copy_from_slice(bytes);
        text
    }

    #[inline]
    fn store(self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self);
    }
}

/// A field of type `T`.
///
/// Its methods panic on a row that is too short: an engine that returns such a row is broken, and the runner turns the
/// panic into the error of the run.
#[derive(Debug)]
pub struct Field<T> {
    at: usize,
    kind: PhantomData<fn() -> T>,
}

impl<T> Clone for Field<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Field<T> {}

impl<T: Fixed> Field<T> {
    const fn at(at: usize) -> Self {
        Self { at, kind: PhantomData }
    }

    /// The field at the beginning of the row.
    #[must_use]
    pub const fn first() -> Self {
        Self::at(0)
    }

    /// The field after this one.
    #[must_use]
    pub const fn then<U: Fixed>(self) -> Field<U> {
        Field::at(self.end())
    }

    /// The text after this field, up to the end of the row.
    #[must_use]
    pub const fn tail(self) -> Tail {
        Tail { at: self.end() }
    }

    /// Bytes of a row that ends with this field.
    #[must_use]
    pub const fn end(self) -> usize {
        self.at + size_of::<T>()
    }

    /// The value.
    ///
    /// # Panics
    /// If the row is too short.
    #[inline]
    #[must_use]
    pub fn get(self, row: &[u8]) -> T {
        T::load(&row[self.at..self.at + size_of::<T>()])
    }

    /// Sets the value.
    ///
    /// # Panics
    /// If the row is too short.
    #[inline]
    pub fn set(self, row: &mut [u8], value: T) {
        value.store(&mut row[self.at..self.at + size_of::<T>()]);
    }
}

/// The text at the end of a row.
#[derive(Debug, Clone, Copy)]
pub struct Tail {
    at: usize,
}

impl Tail {
    /// A row of zeroes up to the text, which is empty.
    #[must_use]
    pub fn row(self) -> Vec<u8> {
        vec![0; self.at]
    }

    /// The text.
    ///
    /// # Panics
    /// If the row is too short.
    #[must_use]
    pub fn get(self, row: &[u8]) -> &[u8] {
        &row[self.at..]
    }

    /// Replaces the text.
    ///
    /// # Panics
    /// If the row is too short.
    pub fn set(self, row: &mut Vec<u8>, text: &[u8]) {
        assert!(row.len() >= self.at, "a row of {} bytes has no text at {}", row.len(), self.at);
        row.truncate(self.at);
        row.extend_from_slice(text);
    }
}
