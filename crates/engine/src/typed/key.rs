//! Keys of typed tables: values, tuples, borrowed texts, and ranges of them.
//!
//! A key of one column is its value, one of several a tuple. The first columns of a key are a tuple of fewer. So a
//! key of the wrong type, and one of too many columns, do not compile.

use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use crate::typed::column::ColumnType;
use crate::value::{Row, Value};

/// A key of type `K`, or its first columns: a tuple of at most as many values.
///
/// Texts and bytes may be borrowed: a `&str` is part of a key with a `String`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a key of type `{K}`, nor its first columns",
    note = "pass the value of a key of one column, and a tuple of values for several: `(\"alice\",)` is the first of two"
)]
pub trait KeyPart<K> {
    /// Appends the values of its columns.
    fn push_values(&self, values: &mut Vec<Value>);
}

/// A whole key of type `K`.
///
/// ```
/// use lodestone_engine::KeyFor;
///
/// fn is_key<K>(_: &(impl KeyFor<K> + ?Sized)) {}
/// is_key::<u64>(&7);
/// is_key::<String>("alice");
/// is_key::<(String, u64)>(&("alice", 7));
/// ```
///
/// ```compile_fail
/// # use lodestone_engine::KeyFor;
/// # fn is_key<K>(_: &(impl KeyFor<K> + ?Sized)) {}
/// is_key::<(String, u64)>(&("alice",)); // the second column is missing
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a whole key of type `{K}`",
    note = "pass the value of a key of one column, and a tuple of values for several"
)]
pub trait KeyFor<K>: KeyPart<K> {}

/// The values of a key.
pub(super) fn row_of<K>(key: &(impl KeyPart<K> + ?Sized)) -> Row {
    let mut values = Vec::new();
    key.push_values(&mut values);
    Row(values)
}

impl<T: ColumnType> KeyPart<T> for T {
    fn push_values(&self, values: &mut Vec<Value>) {
        values.push(self.to_value());
    }
}

impl<T: ColumnType> KeyPart<T> for &T {
    fn push_values(&self, values: &mut Vec<Value>) {
        values.push(self.to_value());
    }
}

impl<T: ColumnType> KeyFor<T> for T {}
impl<T: ColumnType> KeyFor<T> for &T {}

macro_rules! borrowed {
    ($($type:ty => $owned:ty),+) => {
        $(impl KeyPart<$owned> for $type {
            fn push_values(&self, values: &mut Vec<Value>) {
                values.push(Value::from(&self[..]));
            }
        }

        impl KeyFor<$owned> for $type {})+
    };
}

borrowed!(str => String, &str => String, [u8] => Vec<u8>, &[u8] => Vec<u8>);

impl<const N: usize> KeyPart<Vec<u8>> for [u8; N] {
    fn push_values(&self, values: &mut Vec<Value>) {
        values.push(Value::from(&self[..]));
    }
}

impl<const N: usize> KeyFor<Vec<u8>> for [u8; N] {}

/// A tuple of the first columns of a key.
macro_rules! part {
    (($($all:ident)+) ($($part:ident $value:ident $number:tt)+)) => {
        impl<$($all,)+ $($value: KeyPart<$part>),+> KeyPart<($($all,)+)> for ($($value,)+) {
            fn push_values(&self, values: &mut Vec<Value>) {
                $(self.$number.push_values(values);)+
            }
        }
    };
}

macro_rules! tuples {
    ($($all:tt: [$($part:tt)+];)+) => { $($(part! { $all $part })+)+ };
}

tuples! {
    (A B): [(A P 0) (A P 0 B Q 1)];
    (A B C): [(A P 0) (A P 0 B Q 1) (A P 0 B Q 1 C R 2)];
    (A B C D): [(A P 0) (A P 0 B Q 1) (A P 0 B Q 1 C R 2) (A P 0 B Q 1 C R 2 D S 3)];
    (A B C D E): [(A P 0) (A P 0 B Q 1) (A P 0 B Q 1 C R 2) (A P 0 B Q 1 C R 2 D S 3) (A P 0 B Q 1 C R 2 D S 3 E T 4)];
    (A B C D E F): [(A P 0) (A P 0 B Q 1) (A P 0 B Q 1 C R 2) (A P 0 B Q 1 C R 2 D S 3)
        (A P 0 B Q 1 C R 2 D S 3 E T 4) (A P 0 B Q 1 C R 2 D S 3 E T 4 F U 5)];
    (A B C D E F G): [(A P 0) (A P 0 B Q 1) (A P 0 B Q 1 C R 2) (A P 0 B Q 1 C R 2 D S 3)
        (A P 0 B Q 1 C R 2 D S 3 E T 4) (A P 0 B Q 1 C R 2 D S 3 E T 4 F U 5)
        (A P 0 B Q 1 C R 2 D S 3 E T 4 F U 5 G V 6)];
    (A B C D E F G H): [(A P 0) (A P 0 B Q 1) (A P 0 B Q 1 C R 2) (A P 0 B Q 1 C R 2 D S 3)
        (A P 0 B Q 1 C R 2 D S 3 E T 4) (A P 0 B Q 1 C R 2 D S 3 E T 4 F U 5)
        (A P 0 B Q 1 C R 2 D S 3 E T 4 F U 5 G V 6) (A P 0 B Q 1 C R 2 D S 3 E T 4 F U 5 G V 6 H W 7)];
}

macro_rules! whole {
    ($(($($all:ident $value:ident)+))+) => {
        $(impl<$($all, $value: KeyFor<$all>),+> KeyFor<($($all,)+)> for ($($value,)+) {})+
    };
}

whole! {
    (A P B Q)
    (A P B Q C R)
    (A P B Q C R D S)
    (A P B Q C R D S E T)
    (A P B Q C R D S E T F U)
    (A P B Q C R D S E T F U G V)
    (A P B Q C R D S E T F U G V H W)
}

/// A range of keys of type `K`: `..`, or a range whose bounds are keys, or the first columns of keys.
///
/// A bound with the first columns means all keys that begin with them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a range of keys of type `{K}`",
    note = "write `..`, `a..b`, `a..=b`, `a..` or `..b` with keys, or with tuples of their first columns"
)]
pub trait KeyRange<K> {
    /// Both bounds as values.
    fn bounds(&self) -> (Bound<Row>, Bound<Row>);
}

impl<K> KeyRange<K> for RangeFull {
    fn bounds(&self) -> (Bound<Row>, Bound<Row>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

macro_rules! ranges {
    ($($range:ty),+) => {
        $(impl<K, Q: KeyPart<K>> KeyRange<K> for $range {
            fn bounds(&self) -> (Bound<Row>, Bound<Row>) {
                (self.start_bound().map(row_of::<K>), self.end_bound().map(row_of::<K>))
            }
        })+
    };
}

ranges!(Range<Q>, RangeInclusive<Q>, RangeFrom<Q>, RangeTo<Q>, RangeToInclusive<Q>, (Bound<Q>, Bound<Q>));
