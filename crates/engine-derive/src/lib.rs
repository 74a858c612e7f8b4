//! `#[derive(Row)]`: a struct as a row of a table.
//!
//! The macro implements `lodestone_engine::TypedRow` for a struct with named fields: the schema, the type of the key,
//! and the conversions from and to a dynamic row. Beside that the struct gets a constant for each column.
//!
//! | attribute | meaning |
//! | --- | --- |
//! | `#[row(key(a, b))]` | the fields of the key, in its order |
//! | `#[row(table = "..")]` | the name of the table, the struct's own as `order_line` otherwise |
//! | `#[row(crate = "path")]` | the path of the library, found in the manifest otherwise |
//! | `#[row(name = "..")]` on a field | the name of the column, the field's own otherwise |
//! | `#[row(skip)]` on a field | no column; a row that is read has the default value there |
//!
//! 1. `attributes` reads the struct into `Described` and refuses what makes no sense, with the cure.
//! 2. `generate` writes the code. It names the library by the path under which the user's crate reaches it.

mod attributes;
mod generate;

use attributes::Described;
use syn::{DeriveInput, Error, parse_macro_input};

/// Derives `TypedRow`: see the crate.
#[proc_macro_derive(Row, attributes(row))]
pub fn derive_row(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    Described::read(&input).map(|described| generate::code(&described)).unwrap_or_else(Error::into_compile_error).into()
}
