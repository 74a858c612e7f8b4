//! `pg_catalog` and `information_schema`: tables that are computed from the catalog when they are read.
//!
//! They come from the same descriptors that resolve names, so they cannot disagree with them. Tables of features that
//! are not built are there and empty: clients join them. A column that has no meaning here has its usual empty value.

mod information;
mod objects;
mod tables;

use lodestone_sql_types::func::Session;
use lodestone_sql_types::{Datum, Type};

use crate::catalog::Catalog;
use crate::run::Row;

/// The number of the schema of users' tables.
pub const PUBLIC: i64 = 2200;
/// The number of the schema of the system.
pub const PG_CATALOG: i64 = 11;
/// The number of `information_schema`.
pub const INFORMATION_SCHEMA: i64 = 13_000;
/// The number of the one role.
pub const OWNER: i64 = 10;

/// Computes the rows of a table.
pub type Rows = fn(&Catalog, &dyn Session) -> Vec<Row>;

/// A table that is computed.
#[derive(Debug)]
pub struct VirtualTable {
    pub schema: &'static str,
    pub name: &'static str,
    pub oid: u32,
    pub columns: &'static [(&'static str, Type)],
    pub rows: Rows,
}

impl VirtualTable {
    const fn of(name: &'static str, oid: u32, columns: &'static [(&'static str, Type)], rows: Rows) -> Self {
        Self { schema: "pg_catalog", name, oid, columns, rows }
    }

    const fn empty(name: &'static str, oid: u32, columns: &'static [(&'static str, Type)]) -> Self {
        Self::of(name, oid, columns, |_, _| Vec::new())
    }

    const fn information(name: &'static str, oid: u32, columns: &'static [(&'static str, Type)], rows: Rows) -> Self {
        Self { schema: "information_schema", name, oid, columns, rows }
    }
}

/// All of them.
pub fn all() -> impl Iterator<Item = &'static VirtualTable> {
    [tables::TABLES, objects::TABLES, information::TABLES].into_iter().flatten()
}

/// The table with this name, where no schema means `pg_catalog`.
pub fn find(schema: Option<&str>, name: &str) -> Option<&'static VirtualTable> {
    let schema = schema.unwrap_or("pg_catalog");
    all().find(|table| table.schema == schema && table.name == name)
}

/// A row of `columns` with these values. The others have the empty value of their type.
fn row(columns: &[(&str, Type)], values: &[(&str, Datum)]) -> Row {
    let value = |(name, ty): &(&str, Type)| {
        let given = values.iter().find(|(other, _)| other == name);
        given.map_or_else(|| empty(*ty), |(_, datum)| datum.clone())
    };
    columns.iter().map(value).collect()
}

fn empty(ty: Type) -> Datum {
    match ty {
        Type::Bool => Datum::Bool(false),
        Type::Float4 | Type::Float8 => Datum::Float(0.0),
        _ if ty.is_integer() => Datum::Int(0),
        Type::Char | Type::Name => Datum::from(""),
        _ => Datum::Null,
    }
}

fn int(value: impl Into<i64>) -> Datum {
    Datum::Int(value.into())
}

fn count(value: usize) -> Datum {
    Datum::Int(i64::try_from(value).unwrap_or(i64::MAX))
}

fn text(value: &str) -> Datum {
    Datum::from(value)
}

/// The statement that makes an index, or the name of one of its columns.
pub fn index_definition(catalog: &Catalog, oid: i64, column: i64) -> Option<String> {
    use crate::catalog::Relation;
    let (table, name, columns, is_unique) = match catalog.relation(oid)? {
        Relation::Table(_) => return None,
        Relation::Key(table) => (table, &table.key_name, &table.key, true),
        Relation::Index(table, index) => (table, &index.name, &index.columns, index.is_unique),
    };
    let names: Vec<&str> = columns.iter().map(|column| table.columns[*column].name.as_str()).collect();
    if column > 0 {
        let place = usize::try_from(column - 1).ok()?;
        return names.get(place).map(|name| (*name).to_owned());
    }
    let unique = if is_unique { "UNIQUE " } else { "" };
    Some(format!("CREATE {unique}INDEX {name} ON public.{} USING btree ({})", table.name, names.join(", ")))
}

/// The clause that makes a constraint. Constraints have the numbers of their indexes.
pub fn constraint_definition(catalog: &Catalog, oid: i64) -> Option<String> {
    use crate::catalog::Relation;
    let (table, kind, columns) = match catalog.relation(oid)? {
        Relation::Table(_) => return None,
        Relation::Key(table) => (table, "PRIMARY KEY", &table.key),
        Relation::Index(table, index) => (table, "UNIQUE", &index.columns),
    };
    let names: Vec<&str> = columns.iter().map(|column| table.columns[*column].name.as_str()).collect();
    Some(format!("{kind} ({})", names.join(", ")))
}
