//! Comments on objects.
//!
//! An object is named by its class and its number, which no other one ever has; a column by the number of its table and
//! its own name, because columns are numbered anew when one of them goes. So a comment lives through every change of
//! its object but the end of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use lodestone_engine::Row;
use lodestone_sql_types::Result;

use super::Catalog;
use super::store::{Notes, Writer, row};

/// The numbers of the tables of `pg_catalog` that have the objects.
pub const RELATION: u32 = 1259;
pub const TYPE: u32 = 1247;
pub const CONSTRAINT: u32 = 2606;
pub const SCHEMA: u32 = 2615;
/// The number of the schema `public`.
pub const PUBLIC_OID: u32 = 2200;
/// The comment on it that a database begins with.
const STANDARD: &str = "standard public schema";

/// Among the names of what a transaction has changed: comments.
pub const COMMENTS: &str = "\u{3}";
/// The letter that the name of an object with comments begins with.
const COMMENT_PREFIX: char = '\u{3}';

/// Whether comments are stored under this name.
pub(super) fn is_comment_key(name: &str) -> bool {
    name.starts_with(COMMENT_PREFIX)
}

/// An object: its class, and its number.
pub type Object = (u32, u32);

/// The comments on an object and its columns: names of columns, where the object itself has none, and texts.
pub type Texts = Vec<(String, String)>;

/// All comments of a database.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comments(Arc<BTreeMap<Object, Texts>>);

impl Comments {
    /// Those of these objects.
    pub fn new(texts: BTreeMap<Object, Texts>) -> Self {
        Self(Arc::new(texts))
    }

    /// The comment on an object, or on a column of it.
    pub fn get(&self, object: Object, column: &str) -> Option<&str> {
        let found = self.0.get(&object).and_then(|texts| texts.iter().find(|(name, _)| name == column));
        match found {
            Some((_, text)) => Some(text.as_str()).filter(|text| !text.is_empty()),
            None => (object == (SCHEMA, PUBLIC_OID)).then_some(STANDARD),
        }
    }

    /// All comments on an object and its columns.
    pub fn of(&self, object: Object) -> Texts {
        self.0.get(&object).cloned().unwrap_or_default()
    }

    /// The objects with comments.
    pub fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        self.0.keys().copied()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same, with other comments on one object.
    #[must_use]
    pub fn with(&self, object: Object, texts: Texts) -> Self {
        let mut found = (*self.0).clone();
        if texts.is_empty() {
            found.remove(&object);
        } else {
            found.insert(object, texts);
        }
        Self(Arc::new(found))
    }
}

impl Catalog {
    /// Every comment: its object, the number of the column or 0, and the text.
    pub fn described(&self) -> Vec<(Object, usize, String)> {
        let mut found = Vec::new();
        for object in self.comments.objects() {
            for (column, text) in self.comments.of(object) {
                if let (Some(number), false) = (self.column_number(object, &column), text.is_empty()) {
                    found.push((object, number, text));
                }
            }
        }
        let public = (SCHEMA, PUBLIC_OID);
        if self.comments.of(public).is_empty() {
            found.push((public, 0, STANDARD.to_owned()));
        }
        found
    }

    fn column_number(&self, (class, oid): Object, column: &str) -> Option<usize> {
        if column.is_empty() {
            return Some(0);
        }
        let columns = self.column_names(oid).filter(|_| class == RELATION)?;
        columns.iter().position(|name| *name == column).map(|place| place + 1)
    }

    /// The columns of a table or view.
    pub fn column_names(&self, oid: u32) -> Option<Vec<&str>> {
        if let Some(table) = self.table_of(oid) {
            return Some(table.columns.iter().map(|column| column.name.as_str()).collect());
        }
        let view = self.views.values().find(|view| view.oid == oid)?;
        Some(view.columns.iter().map(|(name, ..)| name.as_str()).collect())
    }

    /// The objects that can have comments and are there.
    pub fn objects(&self) -> std::collections::BTreeSet<Object> {
        let mut found = std::collections::BTreeSet::from([(SCHEMA, PUBLIC_OID)]);
        for table in self.tables.values() {
            found.extend([(RELATION, table.oid), (RELATION, table.key_oid), (CONSTRAINT, table.key_oid)]);
            found.extend(table.indexes.iter().flat_map(|index| [(RELATION, index.oid), (CONSTRAINT, index.oid)]));
            found.extend(table.checks.iter().map(|check| (CONSTRAINT, check.oid)));
            found.extend(table.foreign_keys.iter().map(|key| (CONSTRAINT, key.oid)));
        }
        found.extend(self.views.values().map(|view| (RELATION, view.oid)));
        found.extend(self.sequences.values().map(|sequence| (RELATION, sequence.oid)));
        found.extend(self.schemas.values().map(|oid| (SCHEMA, *oid)));
        for ty in self.types.values() {
            found.insert((TYPE, ty.note.oid));
            if let super::types::TypeBody::Domain(domain) = &ty.note.body {
                found.extend(domain.checks.iter().map(|check| (CONSTRAINT, check.oid)));
            }
        }
        found
    }
}

impl Writer<'_> {
    /// Writes all comments on an object and its columns.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn write_comments(&self, (class, oid): Object, texts: &Texts) -> Result<()> {
        let key = format!("{COMMENT_PREFIX}{class}.{oid}");
        self.remove(&key)?;
        for (item, (column, text)) in (0..).zip(texts) {
            self.put(&row(&key, item, column, (0, 0), Some(text)))?;
        }
        Ok(())
    }
}

impl Notes {
    /// The comments on all objects.
    pub fn comments(&self) -> Comments {
        let of = |(key, rows): (&String, &Vec<Row>)| {
            let (class, oid) = key.strip_prefix(COMMENT_PREFIX)?.split_once('.')?;
            let text = |row: &Row| Some((row[2].as_text()?.to_owned(), row[5].as_text()?.to_owned()));
            Some(((class.parse().ok()?, oid.parse().ok()?), rows.iter().filter_map(text).collect()))
        };
        Comments::new(self.0.iter().filter_map(of).collect())
    }
}
