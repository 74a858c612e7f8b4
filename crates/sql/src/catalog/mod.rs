//! The tables of a database as SQL sees them.
//!
//! A table of SQL is an ordinary table of the engine, and a table that the library made is one of SQL. Properties that
//! the engine does not know (`varchar(20)`, defaults, numbers of objects) is in rows of the table
//! [`store::NAME`]. They count only while the engine's table has the same columns, so a table that was changed by other
//! means has the types that the engine knows.
//!
//! A table without a primary key has a hidden last column with a number for each row, which is its key.
//!
//! A [`Catalog`] is immutable and shared. A change of a table makes another one, with a higher version.

pub mod store;
pub mod value;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lodestone_engine::{Database, Table, TableIndex};
use lodestone_sql_types::Result;

use crate::errors::from_engine;
use crate::parse::ast::Expr;

/// The hidden column of a table without a primary key.
pub const ROW_NUMBER: &str = "lodestone_row";

/// A column.
#[derive(Clone, Debug)]
pub struct ColumnDef {
    pub name: String,
    pub ty: lodestone_sql_types::Type,
    pub modifier: i32,
    pub not_null: bool,
    /// The type that the engine keeps it in.
    pub kind: lodestone_engine::Type,
    pub default: Option<Default>,
}

/// The default of a column.
#[derive(Clone, Debug)]
pub struct Default {
    pub text: String,
    pub expr: Expr,
}

/// An index.
#[derive(Clone, Debug)]
pub struct IndexDef {
    pub oid: u32,
    pub name: String,
    pub columns: Vec<usize>,
    pub is_unique: bool,
    /// Whether it was made by a constraint.
    pub is_constraint: bool,
    pub engine: TableIndex,
}

/// A table.
#[derive(Debug)]
pub struct TableDef {
    pub oid: u32,
    pub name: String,
    /// Those that SQL sees.
    pub columns: Vec<ColumnDef>,
    /// Numbers of the columns of the primary key; none if it is hidden.
    pub key: Vec<usize>,
    pub key_oid: u32,
    pub key_name: String,
    pub indexes: Vec<IndexDef>,
    pub engine: Table,
    /// The next number of a row, if the key is hidden.
    pub row_numbers: Option<Arc<AtomicU64>>,
}

impl TableDef {
    /// The number of the column called `name`.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// A number for a new row.
    pub fn next_row(&self) -> u64 {
        self.row_numbers.as_ref().map_or(0, |next| next.fetch_add(1, Ordering::Relaxed))
    }
}

/// All tables at one moment.
#[derive(Debug, Default)]
pub struct Catalog {
    pub version: u64,
    pub tables: BTreeMap<String, Arc<TableDef>>,
}

impl Catalog {
    /// The table or index with this number.
    pub fn relation(&self, oid: i64) -> Option<Relation<'_>> {
        self.tables.values().find_map(|table| {
            if i64::from(table.oid) == oid {
                return Some(Relation::Table(table));
            }
            if i64::from(table.key_oid) == oid && !table.key.is_empty() {
                return Some(Relation::Key(table));
            }
            let index = table.indexes.iter().find(|index| i64::from(index.oid) == oid)?;
            Some(Relation::Index(table, index))
        })
    }

    /// The number of the table or index called `name`.
    pub fn oid_of(&self, name: &str) -> Option<u32> {
        if let Some(table) = self.tables.get(name) {
            return Some(table.oid);
        }
        self.tables.values().find_map(|table| {
            if table.key_name == name && !table.key.is_empty() {
                return Some(table.key_oid);
            }
            table.indexes.iter().find(|index| index.name == name).map(|index| index.oid)
        })
    }

    /// Reads it. `before` has the counters of rows that go on.
    pub fn read(database: &Database, before: &Self) -> Result<Self> {
        let notes = store::Notes::read(database)?;
        let mut tables = BTreeMap::new();
        for name in database.tables().map_err(from_engine)? {
            if name == store::NAME || name == crate::roles::NAME {
                continue;
            }
            let engine = match database.table(&name) {
                Ok(table) => table,
                // It was dropped meanwhile.
                Err(lodestone_engine::Error::NoTable { .. }) => continue,
                Err(error) => return Err(from_engine(error)),
            };
            let numbers = before.tables.get(&name).filter(|table| table.engine.schema() == engine.schema());
            let numbers = numbers.and_then(|table| table.row_numbers.clone());
            let table = notes.table(database, engine, numbers)?;
            tables.insert(name, Arc::new(table));
        }
        Ok(Self { version: before.version + 1, tables })
    }
}

/// A table, or one of its indexes.
pub enum Relation<'c> {
    Table(&'c Arc<TableDef>),
    Key(&'c Arc<TableDef>),
    Index(&'c Arc<TableDef>, &'c IndexDef),
}

impl Relation<'_> {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Table(table) => &table.name,
            Self::Key(table) => &table.key_name,
            Self::Index(_, index) => &index.name,
        }
    }
}
