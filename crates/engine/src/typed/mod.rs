//! Rows as structs of the program, checked when it is compiled.
//!
//! `#[derive(Row)]` describes a struct as a row: [`TypedRow`]. A [`TableOf`] has the operations of a
//! [`Table`](crate::Table) with structs in place of rows, and with keys of the right types.
//!
//! | file | idea |
//! | --- | --- |
//! | `column` | the types of fields, and columns by name |
//! | `key` | keys, first columns of keys, and ranges of them |
//! | `table` | the operations |

mod column;
mod key;
mod table;

pub use column::{ColumnOf, ColumnType, RowValues};
pub use key::{KeyFor, KeyPart, KeyRange};
pub use table::{RowsOf, TableOf};

use crate::error::Result;
use crate::schema::Schema;
use crate::value::Row;

/// A struct that is a row of a table. Write `#[derive(Row)]` above it.
///
/// The fields have the types of [`ColumnType`]: `bool`, `i16`, `i32`, `i64`, `u64`, `f64`, [`Decimal`](crate::Decimal),
/// [`Date`](crate::Date), [`Timestamp`](crate::Timestamp), [`Uuid`](crate::Uuid), `String`, `Vec<u8>`, and `Option` of
/// each, for a column that may hold null.
///
/// | attribute | meaning |
/// | --- | --- |
/// | `#[row(key(a, b))]` | the fields of the key, in its order |
/// | `#[row(table = "..")]` | the name of the table, the struct's own as `order_line` otherwise |
/// | `#[row(name = "..")]` on a field | the name of the column, the field's own otherwise |
/// | `#[row(skip)]` on a field | no column; a row that is read has the default value there |
///
/// ```
/// use lodestone_engine::{Date, Row, TypedRow, row};
///
/// #[derive(Debug, PartialEq, Row)]
/// #[row(table = "orders", key(customer, number))]
/// struct Order {
///     number: u64,
///     customer: String,
///     #[row(name = "ordered_on")]
///     day: Date,
///     note: Option<String>,
///     #[row(skip)]
///     is_selected: bool,
/// }
///
/// let text = "orders (number u64, customer text, ordered_on date, note text null) key (customer, number)";
/// assert_eq!(Order::schema().to_string(), text);
///
/// // The conversions work without a table.
/// let row = row![7_u64, "alice", Date::from_days(0), None::<String>];
/// let order = Order::from_row(row.clone())?;
/// assert_eq!((order.number, order.is_selected), (7, false));
/// assert_eq!(order.to_row(), row);
///
/// // A value of another type is named, with its column.
/// let error = Order::from_row(row![7_u64, "alice", 0_i64, None::<String>]).unwrap_err();
/// assert!(error.to_string().contains("column `ordered_on date` cannot hold a value of type i64"));
/// # Ok::<(), lodestone_engine::Error>(())
/// ```
///
/// A type that no column can have does not compile. The message names the cure, here `u64`:
///
/// ```compile_fail
/// #[derive(lodestone_engine::Row)]
/// #[row(key(id))]
/// struct Account {
///     id: u32,
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a row of a table",
    note = "write `#[derive(Row)]` and `#[row(key(..))]` above the struct"
)]
pub trait TypedRow: Sized {
    /// The key: the type of its field, or a tuple of several.
    type Key;
    /// The name of the table.
    const TABLE: &'static str;

    /// The table: its name, its columns, its key.
    fn schema() -> Schema;

    /// The row with the values of the fields.
    fn to_row(&self) -> Row;

    /// The struct with the values of a row.
    ///
    /// # Errors
    /// [`Error::WrongLength`](crate::Error::WrongLength) and [`Error::WrongType`](crate::Error::WrongType), which
    /// names the table, the column, and both types.
    fn from_row(row: Row) -> Result<Self>;
}
