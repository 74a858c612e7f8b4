//! A database in persistent memory: tables of typed rows, serializable transactions, one fence for each.

#![expect(dead_code, reason = "the transactions, which use the codecs, come next")]

mod error;
mod key;
mod payload;
mod schema;
mod value;

pub use error::{Error, Result};
pub use key::KEY_BYTES_MAX;
pub use payload::VARIABLE_BYTES_MAX;
pub use schema::{COLUMNS_MAX, Column, NAME_BYTES_MAX, Schema};
pub use value::{Row, Type, Value};
