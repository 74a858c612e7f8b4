//! The columns that a table had in the past.
//!
//! A change of the columns touches the catalog only. A row names the version of the schema that it was written by, and
//! the history tells which columns rows of that version have. So it keeps every column that the table ever had: its
//! *id* is its place among them. Columns that are there are in the order of their ids.
//!
//! ```text
//! in the definition of a table, after the columns of the key, unless its version is 1:
//! version 2, columns 2, columns { type 1, nullable 1, added 2, dropped 2 (0: it is there), default }
//! default: value as in a nullable key
//! ```
//!
//! A row of a version has the columns with `added <= version` that were not dropped by then. Of the columns that were
//! added later it has the default.

use std::sync::Arc;

use lodestone_width::exact_u16;

use crate::key;
use crate::schema::{Column, take_bool, take_u16};
use crate::value::{Type, Value};

/// The largest version: the bit above says that columns of a row are moved.
pub const VERSION_MAX: u16 = (1 << 15) - 1;

/// A column that the table has or had.
#[derive(Clone, Debug)]
pub struct Lifetime {
    pub kind: Type,
    pub nullable: bool,
    /// The first version of the schema that has it.
    pub added: u16,
    /// The first version that lacks it again. 0: none.
    pub dropped: u16,
    /// Its value in rows of earlier versions.
    pub default: Arc<Value>,
}

impl Lifetime {
    /// Whether rows of `version` have it.
    pub fn is_in(&self, version: u16) -> bool {
        self.added <= version && (self.dropped == 0 || version < self.dropped)
    }
}

/// The version of a schema, and the columns of all versions.
#[derive(Clone, Debug)]
pub struct History {
    pub version: u16,
    /// By id. Empty in version 1: these are the columns of the schema.
    columns: Vec<Lifetime>,
}

/// By their bytes: a default may be a number that is not equal to itself.
impl PartialEq for History {
    fn eq(&self, other: &Self) -> bool {
        let bytes = |history: &Self| {
            let mut bytes = Vec::new();
            history.encode(&mut bytes);
            bytes
        };
        self.version == other.version && bytes(self) == bytes(other)
    }
}

impl Default for History {
    fn default() -> Self {
        Self { version: 1, columns: Vec::new() }
    }
}

impl History {
    /// All columns by id, where those that are there are `columns`.
    pub fn all(&self, columns: &[Column]) -> Vec<Lifetime> {
        if self.version > 1 {
            return self.columns.clone();
        }
        let first = |column: &Column| Lifetime {
            kind: column.kind,
            nullable: column.nullable,
            added: 1,
            dropped: 0,
            default: Value::Null.into(),
        };
        columns.iter().map(first).collect()
    }

    /// The history after `columns` got another one.
    pub fn with_column(&self, columns: &[Column], added: &Column, default: Value) -> Self {
        let (version, mut all) = (self.version + 1, self.all(columns));
        let Column { kind, nullable, .. } = added;
        all.push(Lifetime { kind: *kind, nullable: *nullable, added: version, dropped: 0, default: default.into() });
        Self { version, columns: all }
    }

    /// The history after the column with this number among `columns` was dropped.
    pub fn without_column(&self, columns: &[Column], number: usize) -> Self {
        let (version, mut all) = (self.version + 1, self.all(columns));
        if let Some(column) = all.iter_mut().filter(|column| column.dropped == 0).nth(number) {
            column.dropped = version;
        }
        Self { version, columns: all }
    }

    /// The bytes for the catalog.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        if self.version == 1 {
            return;
        }
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(exact_u16(self.columns.len()).to_le_bytes());
        for column in &self.columns {
            bytes.extend([column.kind.code(), u8::from(column.nullable)]);
            bytes.extend(column.added.to_le_bytes());
            bytes.extend(column.dropped.to_le_bytes());
            key::encode(&column.default, true, bytes);
        }
    }

    /// The history from the bytes of the catalog, of a table that has `columns` now. `None` for bytes that
    /// [`encode`](Self::encode) does not write.
    pub fn decode(mut bytes: &[u8], columns: &[Column]) -> Option<Self> {
        if bytes.is_empty() {
            return Some(Self::default());
        }
        let (version, count) = (take_u16(&mut bytes)?, take_u16(&mut bytes)?);
        let mut found = Vec::new();
        for _ in 0..count {
            let kind = Type::from_code(*bytes.split_off_first()?)?;
            let nullable = take_bool(&mut bytes)?;
            let (added, dropped) = (take_u16(&mut bytes)?, take_u16(&mut bytes)?);
            let default = key::decode(&mut bytes, kind, true)?;
            let has_sense = (1..=version).contains(&added)
                && (dropped == 0 || (added + 1..=version).contains(&dropped))
                && (nullable || added == 1 || default != Value::Null);
            if !has_sense {
                return None;
            }
            found.push(Lifetime { kind, nullable, added, dropped, default: default.into() });
        }
        let there = found.iter().filter(|column| column.dropped == 0);
        let is_same = there
            .map(|column| (column.kind, column.nullable))
            .eq(columns.iter().map(|column| (column.kind, column.nullable)));
        let is_whole = bytes.is_empty() && (2..=VERSION_MAX).contains(&version) && is_same;
        is_whole.then_some(Self { version, columns: found })
    }
}
