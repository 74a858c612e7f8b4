//! Values of columns and rows of values.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use crate::calendar::{Date, Timestamp};
use crate::decimal::{self, Decimal, SCALE_MAX};
use crate::uuid::Uuid;

/// The type of a column.
///
/// ```
/// use lodestone_engine::{Type, Value};
///
/// assert_eq!(Value::from(7_i64).type_of(), Some(Type::I64));
/// assert_eq!(Type::I64.to_string(), "i64");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Type {
    /// False or true.
    Bool,
    /// A signed integer of 64 bits.
    I64,
    /// An unsigned integer of 64 bits.
    U64,
    /// A floating-point number of 64 bits.
    F64,
    /// UTF-8 text.
    Text,
    /// Any bytes.
    Bytes,
    /// A signed integer of 16 bits.
    I16,
    /// A signed integer of 32 bits.
    I32,
    /// A day: [`Date`].
    Date,
    /// A moment, to the microsecond: [`Timestamp`].
    Timestamp,
    /// A [`Uuid`].
    Uuid,
    /// A number with so many decimal digits after the point, at most 38: [`Decimal`].
    Decimal(u8),
}

/// The code of decimals of scale 0. Those of other scales follow.
const DECIMAL_CODE: u8 = 64;

impl Type {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Bool => 1,
            Self::I64 => 2,
            Self::U64 => 3,
            Self::F64 => 4,
            Self::Text => 5,
            Self::Bytes => 6,
            Self::I16 => 7,
            Self::I32 => 8,
            Self::Date => 9,
            Self::Timestamp => 10,
            Self::Uuid => 11,
            // The limit is checked with the rest of a schema.
            Self::Decimal(scale) => DECIMAL_CODE + scale,
        }
    }

    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Bool),
            2 => Some(Self::I64),
            3 => Some(Self::U64),
            4 => Some(Self::F64),
            5 => Some(Self::Text),
            6 => Some(Self::Bytes),
            7 => Some(Self::I16),
            8 => Some(Self::I32),
            9 => Some(Self::Date),
            10 => Some(Self::Timestamp),
            11 => Some(Self::Uuid),
            DECIMAL_CODE.. if code - DECIMAL_CODE <= SCALE_MAX => Some(Self::Decimal(code - DECIMAL_CODE)),
            _ => None,
        }
    }

    /// Bytes of a value whose length its type tells.
    pub(crate) const fn fixed_bytes(self) -> Option<usize> {
        match self {
            Self::Bool => Some(1),
            Self::I16 => Some(2),
            Self::I32 | Self::Date => Some(4),
            Self::I64 | Self::U64 | Self::F64 | Self::Timestamp => Some(8),
            Self::Uuid | Self::Decimal(_) => Some(16),
            Self::Text | Self::Bytes => None,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "bool",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U64 => "u64",
            Self::F64 => "f64",
            Self::Decimal(scale) => return write!(f, "decimal({scale})"),
            Self::Date => "date",
            Self::Timestamp => "timestamp",
            Self::Uuid => "uuid",
            Self::Text => "text",
            Self::Bytes => "bytes",
        })
    }
}

impl FromStr for Type {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let scale = text.strip_prefix("decimal(").and_then(|rest| rest.strip_suffix(')'));
        if let Some(scale) = scale {
            let found = scale.trim().parse().ok().filter(|scale| *scale <= SCALE_MAX).map(Self::Decimal);
            return found.ok_or_else(|| format!("`{text}` is no type; the scale of a decimal is 0 to {SCALE_MAX}"));
        }
        let all = [
            Self::Bool,
            Self::I16,
            Self::I32,
            Self::I64,
            Self::U64,
            Self::F64,
            Self::Date,
            Self::Timestamp,
            Self::Uuid,
            Self::Text,
            Self::Bytes,
        ];
        let found = all.into_iter().find(|kind| kind.to_string() == text);
        let names = "bool, i16, i32, i64, u64, f64, decimal(SCALE), date, timestamp, uuid, text or bytes";
        found.ok_or_else(|| format!("`{text}` is no type; use {names}"))
    }
}

/// A value of a column.
///
/// ```
/// use lodestone_engine::Value;
///
/// assert_eq!(Value::from("alice").as_text(), Some("alice"));
/// assert_eq!(Value::from(Some(7_u64)).as_u64(), Some(7));
/// assert_eq!(Value::from(None::<u64>), Value::Null);
/// assert_eq!(Value::from(7_u64).as_i64(), None);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// No value, in a nullable column.
    Null,
    /// Of [`Type::Bool`].
    Bool(bool),
    /// Of [`Type::I64`].
    I64(i64),
    /// Of [`Type::U64`].
    U64(u64),
    /// Of [`Type::F64`].
    F64(f64),
    /// Of [`Type::Text`].
    Text(String),
    /// Of [`Type::Bytes`].
    Bytes(Vec<u8>),
    /// Of [`Type::I16`].
    I16(i16),
    /// Of [`Type::I32`].
    I32(i32),
    /// Of [`Type::Date`].
    Date(Date),
    /// Of [`Type::Timestamp`].
    Timestamp(Timestamp),
    /// Of [`Type::Uuid`].
    Uuid(Uuid),
    /// Of [`Type::Decimal`].
    Decimal {
        /// The number, in units of its last digit.
        units: i128,
        /// Digits after the point.
        scale: u8,
    },
}

impl Value {
    /// Its type. `None` for [`Value::Null`], which is of every type.
    #[must_use]
    pub const fn type_of(&self) -> Option<Type> {
        match self {
            Self::Null => None,
            Self::Bool(_) => Some(Type::Bool),
            Self::I64(_) => Some(Type::I64),
            Self::U64(_) => Some(Type::U64),
            Self::F64(_) => Some(Type::F64),
            Self::Text(_) => Some(Type::Text),
            Self::Bytes(_) => Some(Type::Bytes),
            Self::I16(_) => Some(Type::I16),
            Self::I32(_) => Some(Type::I32),
            Self::Date(_) => Some(Type::Date),
            Self::Timestamp(_) => Some(Type::Timestamp),
            Self::Uuid(_) => Some(Type::Uuid),
            Self::Decimal { scale, .. } => Some(Type::Decimal(*scale)),
        }
    }

    /// The value of type `kind` that `text` says: the text that `Display` writes, but without quotes, and bytes as
    /// hexadecimal digits. `None`: it is no text of that type.
    ///
    /// ```
    /// use lodestone_engine::{Date, Type, Value};
    ///
    /// assert_eq!(Value::parse(Type::I16, "-7"), Some(Value::I16(-7)));
    /// assert_eq!(Value::parse(Type::Decimal(2), "7.5"), Some(Value::Decimal { units: 750, scale: 2 }));
    /// assert_eq!(Value::parse(Type::Date, "1970-01-02"), Some(Date::from_days(1).into()));
    /// assert_eq!(Value::parse(Type::Bytes, "00ff"), Some(Value::Bytes(vec![0, 255])));
    /// assert_eq!(Value::parse(Type::I16, "40000"), None);
    /// ```
    #[must_use]
    pub fn parse(kind: Type, text: &str) -> Option<Self> {
        match kind {
            Type::Bool => text.parse().ok().map(Self::Bool),
            Type::I16 => text.parse().ok().map(Self::I16),
            Type::I32 => text.parse().ok().map(Self::I32),
            Type::I64 => text.parse().ok().map(Self::I64),
            Type::U64 => text.parse().ok().map(Self::U64),
            Type::F64 => text.parse().ok().map(Self::F64),
            Type::Decimal(scale) => decimal::parse(text, scale).map(|units| Self::Decimal { units, scale }),
            Type::Date => text.parse().ok().map(Self::Date),
            Type::Timestamp => text.parse().ok().map(Self::Timestamp),
            Type::Uuid => text.parse().ok().map(Self::Uuid),
            Type::Text => Some(Self::Text(text.into())),
            Type::Bytes => from_hex(text).map(Self::Bytes),
        }
    }

    /// The value of a [`Value::Bool`].
    #[must_use]
    pub const fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(*value) } else { None }
    }

    /// The number of a [`Value::F64`].
    #[must_use]
    pub const fn as_f64(&self) -> Option<f64> {
        if let Self::F64(value) = self { Some(*value) } else { None }
    }

    /// The bytes of a [`Value::Bytes`].
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        if let Self::Bytes(value) = self { Some(value) } else { None }
    }

    /// The number of an [`Value::I64`].
    #[must_use]
    pub const fn as_i64(&self) -> Option<i64> {
        if let Self::I64(value) = self { Some(*value) } else { None }
    }

    /// The number of an [`Value::U64`].
    #[must_use]
    pub const fn as_u64(&self) -> Option<u64> {
        if let Self::U64(value) = self { Some(*value) } else { None }
    }

    /// The text of a [`Value::Text`].
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Text(value) = self { Some(value) } else { None }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => value.fmt(f),
            Self::I64(value) => value.fmt(f),
            Self::U64(value) => value.fmt(f),
            Self::F64(value) => value.fmt(f),
            Self::Text(value) => write!(f, "\"{}\"", value.escape_debug()),
            Self::Bytes(value) => write!(f, "\"{}\"", value.escape_ascii()),
            Self::I16(value) => value.fmt(f),
            Self::I32(value) => value.fmt(f),
            Self::Date(value) => value.fmt(f),
            Self::Timestamp(value) => value.fmt(f),
            Self::Uuid(value) => value.fmt(f),
            Self::Decimal { units, scale } => f.write_str(&decimal::text(*units, *scale)),
        }
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|digit| digit.to_digit(16)?.try_into().ok()).collect();
    let (pairs, rest) = digits.as_deref()?.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

macro_rules! from {
    ($($type:ty => $kind:ident),+) => {
        $(impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Self::$kind(value.into())
            }
        })+
    };
}

from!(bool => Bool, i16 => I16, i32 => I32, i64 => I64, u64 => U64, f64 => F64, Date => Date, Timestamp => Timestamp);
from!(Uuid => Uuid, String => Text, &str => Text, Vec<u8> => Bytes, &[u8] => Bytes);

impl<const SCALE: u8> From<Decimal<SCALE>> for Value {
    fn from(value: Decimal<SCALE>) -> Self {
        Self::Decimal { units: value.units(), scale: SCALE }
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A row, or the first columns of a key: values in the order of their columns. [`row!`](crate::row) makes one.
///
/// ```
/// use lodestone_engine::{Row, Value};
///
/// let row: Row = ["alice", "bob"].into_iter().map(Value::from).collect();
/// assert_eq!((row.len(), row[1].as_text()), (2, Some("bob")));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row(pub Vec<Value>);

impl Deref for Row {
    type Target = [Value];

    fn deref(&self) -> &[Value] {
        &self.0
    }
}

impl From<Vec<Value>> for Row {
    fn from(values: Vec<Value>) -> Self {
        Self(values)
    }
}

impl FromIterator<Value> for Row {
    fn from_iter<I: IntoIterator<Item = Value>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        for (number, value) in self.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{value}")?;
        }
        f.write_str(")")
    }
}

/// A [`Row`] of values of Rust's own types.
///
/// ```
/// use lodestone_engine::{Value, row};
///
/// let row = row![7_u64, "alice", None::<i64>];
/// assert_eq!(row[1], Value::from("alice"));
/// assert_eq!(row.to_string(), "(7, \"alice\", null)");
/// ```
#[macro_export]
macro_rules! row {
    ($($value:expr),* $(,)?) => { $crate::Row(vec![$($crate::Value::from($value)),*]) };
}
