//! Values of SQL: types, text and binary codecs, casts, operators, functions, and errors with their codes.
//!
//! Types, numbers of types, texts and binary formats are those of `PostgreSQL` 15. One table of functions and one of
//! types serve the binder, the executor and the catalog (`pg_type`, `pg_proc`).
//!
//! | file | idea |
//! | --- | --- |
//! | `types` | types by name and number |
//! | `enumeration` | types of the database with labels |
//! | `array` | arrays of several dimensions |
//! | `datum` | values, their order, and bytes that are equal when they are |
//! | `numeric` | exact decimal numbers |
//! | `time`, `datetime`, `interval` | the calendar; texts of days and moments; spans of time |
//! | `style`, `zone` | how a session reads and writes values; time zones and their short names (`abbreviation`) |
//! | `json` | trees of `json`, values of `jsonb` |
//! | `text`, `binary` | the two formats of the wire |
//! | `cast` | from one type to another |
//! | `op` | comparison and arithmetic |
//! | `pattern` | `LIKE`, and the regular expressions of `~` |
//! | `func` | functions by name and types |
//! | `error` | codes, messages, positions |

#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod abbreviation;
pub mod array;
pub mod binary;
pub mod cast;
pub mod composite;
pub mod datetime;
mod datum;
mod digest;
pub mod enumeration;
mod error;
pub mod func;
pub mod hash;
mod interval;
pub mod json;
pub mod numeric;
pub mod op;
pub mod pattern;
pub mod populate;
pub mod style;
pub mod text;
pub mod time;
mod types;
pub mod zone;
pub mod zoned_time;

pub use datum::Datum;
pub use error::{Error, Result, SqlState};
pub use interval::Interval;
pub use numeric::Numeric;
pub use types::{TYPES, Type, TypeInfo};
