//! Values of columns and rows of values.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

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
}

impl Type {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Bool => 1,
            Self::I64 => 2,
            Self::U64 => 3,
            Self::F64 => 4,
            Self::Text => 5,
            Self::Bytes => 6,
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
            _ => None,
        }
    }

    /// Bytes of a value whose length its type tells.
    pub(crate) const fn fixed_bytes(self) -> Option<usize> {
        match self {
            Self::Bool => Some(1),
            Self::I64 | Self::U64 | Self::F64 => Some(8),
            Self::Text | Self::Bytes => None,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "bool",
            Self::I64 => "i64",
            Self::U64 => "u64",
            Self::F64 => "f64",
            Self::Text => "text",
            Self::Bytes => "bytes",
        })
    }
}

impl FromStr for Type {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Bool, Self::I64, Self::U64, Self::F64, Self::Text, Self::Bytes];
        let found = all.into_iter().find(|kind| kind.to_string() == text);
        found.ok_or_else(|| format!("`{text}` is no type; use bool, i64, u64, f64, text or bytes"))
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
        }
    }
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

from!(bool => Bool, i64 => I64, u64 => U64, f64 => F64, String => Text, &str => Text, Vec<u8> => Bytes, &[u8] => Bytes);

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
