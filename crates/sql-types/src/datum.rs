//! Values of SQL. The plan knows their types.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::array::{self, Shaped};
use crate::interval::Interval;
use crate::json::Json;
use crate::numeric::Numeric;
use crate::zoned_time::ZonedTime;

/// A value. Its type is known where it is used: an integer of any width, and the number of an object, is an `Int`, a
/// text of any type a `Text`.
///
/// ```
/// use lodestone_sql_types::Datum;
///
/// assert!(Datum::Int(1).order(&Datum::Int(2)).is_lt());
/// assert!(Datum::Null.is_null());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Datum {
    /// No value.
    #[default]
    Null,
    /// False or true.
    Bool(bool),
    /// Of an integer type, or the number of an object.
    Int(i64),
    /// Of `real` and `double precision`.
    Float(f64),
    /// Of `numeric`.
    Numeric(Numeric),
    /// Of a text type.
    Text(String),
    /// Of `bytea`.
    Bytes(Vec<u8>),
    /// Days since 2000-01-01.
    Date(i32),
    /// Microseconds since 2000-01-01 00:00 UTC, of both `timestamp` types.
    Time(i64),
    /// Of `time with time zone`.
    ZonedTime(ZonedTime),
    /// Of `interval`.
    Interval(Interval),
    /// Of `jsonb`. A `json` is a text.
    Json(Arc<Json>),
    /// Of an array type, with one dimension from 1 on.
    Array(Vec<Datum>),
    /// Of an array type, with several dimensions or another first index than 1.
    Shaped(Box<Shaped>),
    /// Of `record`.
    Record(Vec<Datum>),
}

impl Datum {
    /// Whether it is no value.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The order of two values of one type. Null is after everything, and NaN after all numbers.
    #[must_use]
    pub fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Null, Self::Null) => Ordering::Equal,
            (Self::Null, _) => Ordering::Greater,
            (_, Self::Null) => Ordering::Less,
            (Self::Bool(one), Self::Bool(two)) => one.cmp(two),
            (Self::Int(one), Self::Int(two)) => one.cmp(two),
            (Self::Float(one), Self::Float(two)) => order_floats(*one, *two),
            (Self::Numeric(one), Self::Numeric(two)) => one.cmp(two),
            (Self::Text(one), Self::Text(two)) => one.as_bytes().cmp(two.as_bytes()),
            (Self::Bytes(one), Self::Bytes(two)) => one.cmp(two),
            (Self::Date(one), Self::Date(two)) => one.cmp(two),
            (Self::Time(one), Self::Time(two)) => one.cmp(two),
            (Self::ZonedTime(one), Self::ZonedTime(two)) => one.cmp(two),
            (Self::Interval(one), Self::Interval(two)) => one.cmp(two),
            (Self::Json(one), Self::Json(two)) => one.order(two),
            (Self::Array(one), Self::Array(two)) | (Self::Record(one), Self::Record(two)) => {
                let pairs = one.iter().zip(two).map(|(one, two)| one.order(two));
                pairs.fold(Ordering::Equal, Ordering::then).then(one.len().cmp(&two.len()))
            }
            (Self::Array(_) | Self::Shaped(_), Self::Array(_) | Self::Shaped(_)) => order_arrays(self, other),
            // The binder makes both sides of one type. Others have any order, but always the same one.
            _ => self.kind().cmp(&other.kind()),
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Bool(_) => 1,
            Self::Int(_) => 2,
            Self::Float(_) => 3,
            Self::Numeric(_) => 4,
            Self::Text(_) => 5,
            Self::Bytes(_) => 6,
            Self::Date(_) => 7,
            Self::Time(_) => 8,
            Self::Array(_) => 9,
            Self::Record(_) => 10,
            Self::Interval(_) => 11,
            Self::Json(_) => 12,
            Self::Shaped(_) => 13,
            Self::ZonedTime(_) => 14,
        }
    }

    /// Bytes that are equal exactly when values of one type are: for hash tables.
    pub fn key(&self, bytes: &mut Vec<u8>) {
        bytes.push(self.kind());
        match self {
            Self::Null => {}
            Self::Bool(value) => bytes.push(u8::from(*value)),
            Self::Int(value) | Self::Time(value) => bytes.extend(value.to_le_bytes()),
            Self::Float(value) => {
                let value = if *value == 0.0 {
                    0.0
                } else if value.is_nan() {
                    f64::NAN
                } else {
                    *value
                };
                bytes.extend(value.to_bits().to_le_bytes());
            }
            Self::Numeric(value) => {
                key_bytes(value.trimmed().to_string().as_bytes(), bytes);
            }
            Self::Text(value) => key_bytes(value.as_bytes(), bytes),
            Self::Bytes(value) => key_bytes(value, bytes),
            Self::Date(value) => bytes.extend(value.to_le_bytes()),
            Self::ZonedTime(value) => {
                bytes.extend(value.micros.to_le_bytes());
                bytes.extend(value.seconds.to_le_bytes());
            }
            Self::Interval(value) => bytes.extend(value.length().to_le_bytes()),
            Self::Json(value) => value.key(bytes),
            Self::Shaped(shaped) => {
                for dimension in &shaped.dimensions {
                    bytes.extend(dimension.low.to_le_bytes());
                    bytes.extend(lodestone_width::to_u64(dimension.length).to_le_bytes());
                }
                shaped.values.iter().for_each(|value| value.key(bytes));
                bytes.push(u8::MAX);
            }
            Self::Array(values) | Self::Record(values) => {
                values.iter().for_each(|value| value.key(bytes));
                bytes.push(u8::MAX);
            }
        }
    }

    /// The value of a condition: `None` for null.
    #[must_use]
    pub fn truth(&self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(*value) } else { None }
    }

    /// Its text, if it is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Text(value) = self { Some(value) } else { None }
    }

    /// Its number, if it is an integer.
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        if let Self::Int(value) = self { Some(*value) } else { None }
    }
}

/// NaN is equal to itself and above all numbers.
fn order_floats(one: f64, two: f64) -> Ordering {
    one.partial_cmp(&two).unwrap_or_else(|| one.is_nan().cmp(&two.is_nan()))
}

/// By their elements, then by their number, dimensions and bounds.
fn order_arrays(one: &Datum, two: &Datum) -> Ordering {
    let (first, second) = (array::values(one), array::values(two));
    let pairs = first.iter().zip(second).map(|(one, two)| one.order(two));
    let by_values = pairs.fold(Ordering::Equal, Ordering::then).then(first.len().cmp(&second.len()));
    by_values.then_with(|| {
        let (first, second) = (array::dimensions(one), array::dimensions(two));
        let lengths = |list: &[array::Dimension]| list.iter().map(|one| one.length).collect::<Vec<_>>();
        let lows = |list: &[array::Dimension]| list.iter().map(|one| one.low).collect::<Vec<_>>();
        let by_shape = first.len().cmp(&second.len()).then_with(|| lengths(&first).cmp(&lengths(&second)));
        by_shape.then_with(|| lows(&first).cmp(&lows(&second)))
    })
}

fn key_bytes(value: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend(lodestone_width::to_u64(value.len()).to_le_bytes());
    bytes.extend(value);
}

impl From<&str> for Datum {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}
