//! The types of fields, and columns by name.

use std::fmt;
use std::marker::PhantomData;
use std::vec::IntoIter;

use crate::calendar::{Date, Timestamp};
use crate::decimal::Decimal;
use crate::error::{Error, Result};
use crate::schema::{Column, Schema};
use crate::typed::TypedRow;
use crate::uuid::Uuid;
use crate::value::{Row, Type, Value};

/// A type of fields: a column holds its values.
///
/// A type of your own may be one, in terms of another:
///
/// ```
/// use lodestone_engine::{ColumnType, Row, Type, TypedRow, Value};
///
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// enum Status {
///     Open,
///     Closed,
/// }
///
/// impl ColumnType for Status {
///     const KIND: Type = Type::I16;
///
///     fn to_value(&self) -> Value {
///         Value::I16(if *self == Self::Open { 0 } else { 1 })
///     }
///
///     fn from_value(value: Value) -> Option<Self> {
///         match value {
///             Value::I16(0) => Some(Self::Open),
///             Value::I16(1) => Some(Self::Closed),
///             _ => None,
///         }
///     }
/// }
///
/// #[derive(Row)]
/// #[row(key(id))]
/// struct Ticket {
///     id: u64,
///     status: Status,
/// }
/// assert_eq!(Ticket::schema().to_string(), "ticket (id u64, status i16) key (id)");
/// assert_eq!(Ticket { id: 1, status: Status::Closed }.to_row()[1], Value::I16(1));
/// ```
#[diagnostic::on_unimplemented(
    message = "a column cannot be a `{Self}`",
    note = "columns are bool, i16, i32, i64, u64, f64, Decimal<SCALE>, Date, Timestamp, Uuid, String, Vec<u8>, Option of \
            these, and types that implement `ColumnType`"
)]
pub trait ColumnType: Sized {
    /// The type of the column.
    const KIND: Type;
    /// Whether the column may hold null.
    const NULLABLE: bool = false;

    /// The value for the column, of the type [`KIND`](Self::KIND).
    fn to_value(&self) -> Value;

    /// The value of the column. `None` if no value of this type is stored as that.
    fn from_value(value: Value) -> Option<Self>;
}

macro_rules! column_types {
    ($($type:ty => $kind:ident),+) => {
        $(impl ColumnType for $type {
            const KIND: Type = Type::$kind;

            fn to_value(&self) -> Value {
                Value::$kind(self.clone())
            }

            fn from_value(value: Value) -> Option<Self> {
                if let Value::$kind(value) = value { Some(value) } else { None }
            }
        })+
    };
}

column_types!(bool => Bool, i16 => I16, i32 => I32, i64 => I64, u64 => U64, f64 => F64, Date => Date);
column_types!(Timestamp => Timestamp, Uuid => Uuid, String => Text, Vec<u8> => Bytes);

impl<const SCALE: u8> ColumnType for Decimal<SCALE> {
    const KIND: Type = Type::Decimal(SCALE);

    fn to_value(&self) -> Value {
        (*self).into()
    }

    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Decimal { units, scale } if scale == SCALE => Some(Self::from_units(units)),
            _ => None,
        }
    }
}

impl<T: ColumnType> ColumnType for Option<T> {
    const KIND: Type = T::KIND;
    const NULLABLE: bool = {
        assert!(!T::NULLABLE, "a column holds null or a value: an `Option` has no other `Option` inside");
        true
    };

    fn to_value(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::to_value)
    }

    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            value => T::from_value(value).map(Some),
        }
    }
}

impl Schema {
    /// With a column for fields of type `T`.
    ///
    /// ```
    /// use lodestone_engine::Schema;
    ///
    /// let schema = Schema::new("t").column_of::<u64>("k").column_of::<Option<String>>("v").key(["k"]);
    /// assert_eq!(schema.to_string(), "t (k u64, v text null) key (k)");
    /// ```
    #[must_use]
    pub fn column_of<T: ColumnType>(self, name: impl Into<String>) -> Self {
        if T::NULLABLE { self.nullable(name, T::KIND) } else { self.column(name, T::KIND) }
    }
}

/// The values of a row, one field at a time. For the code of `#[derive(Row)]`.
#[doc(hidden)]
#[derive(Debug)]
pub struct RowValues {
    table: &'static str,
    values: IntoIter<Value>,
}

impl RowValues {
    /// Of a row of the table of `R`, which has so many columns.
    ///
    /// # Errors
    /// [`Error::WrongLength`].
    pub fn of<R: TypedRow>(row: Row, columns: usize) -> Result<Self> {
        if row.len() != columns {
            let (found, expected) = (row.len(), columns);
            return Err(Error::WrongLength { table: R::TABLE.into(), what: "row", found, expected });
        }
        Ok(Self { table: R::TABLE, values: row.0.into_iter() })
    }

    /// The next one, for the column `name`.
    ///
    /// # Errors
    /// [`Error::WrongType`].
    pub fn next<T: ColumnType>(&mut self, name: &str) -> Result<T> {
        let value = self.values.next().unwrap_or(Value::Null);
        let kind = value.type_of();
        T::from_value(value).ok_or_else(|| Error::WrongType {
            table: self.table.into(),
            column: Column { name: name.into(), kind: T::KIND, nullable: T::NULLABLE }.to_string(),
            found: kind.map_or("null".into(), |kind| kind.to_string()),
        })
    }
}

/// A column of `R` whose values are of type `T`. `#[derive(Row)]` makes a constant of each: `Account::CENTS`.
///
/// ```
/// use lodestone_engine::{Row, TypedRow};
///
/// #[derive(Row)]
/// #[row(key(id))]
/// struct Account {
///     id: u64,
///     cents: i64,
/// }
///
/// let row = Account { id: 7, cents: 500 }.to_row();
/// assert_eq!((Account::CENTS.name(), Account::CENTS.number()), ("cents", 1));
/// assert_eq!(Account::CENTS.value(&row), Some(500_i64));
/// ```
pub struct ColumnOf<R, T> {
    name: &'static str,
    number: usize,
    types: PhantomData<fn(R) -> T>,
}

impl<R, T> Clone for ColumnOf<R, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R, T> Copy for ColumnOf<R, T> {}

impl<R, T> fmt::Debug for ColumnOf<R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ColumnOf").field("name", &self.name).field("number", &self.number).finish_non_exhaustive()
    }
}

impl<R, T> ColumnOf<R, T> {
    /// For the code of `#[derive(Row)]`.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(name: &'static str, number: usize) -> Self {
        Self { name, number, types: PhantomData }
    }

    /// Its name in the table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Its place in a row.
    #[must_use]
    pub const fn number(self) -> usize {
        self.number
    }
}

impl<R: TypedRow, T: ColumnType> ColumnOf<R, T> {
    /// Its value in a row of the table. `None` if the row has none of this type there.
    #[must_use]
    pub fn value(self, row: &[Value]) -> Option<T> {
        row.get(self.number).cloned().and_then(T::from_value)
    }
}
