//! The properties of tables that the engine does not know, and objects that it does not have, as rows.
//!
//! ```text
//! lodestone_sql: key (relation text, item u64), name text, number i64, other i64, note text null
//! relation "": item 0: `number` is the next number of an object
//!              item 1: `number` is that of the type that went last, or takes fewer values, `other` how often that has
//!              happened, as a negative number. Every definition reads it, so one that uses a type and one that drops
//!              it cannot both be carried out
//!              other items are numbers of schemas: `name`, `other` 1; and of tablespaces: `name`, `other` 2, `note` the
//!              location
//! relation:    the name in the engine
//! item 0:      a table: `number` is its own, `other` that of its key, `name` of the key, `note` the engine's schema
//! 1..:         its columns, or those of a view: `number` is the type in 32 bits, then bits: 1 not null (the engine's
//!              column may be null), 2 identity always, 4 identity by default, 8 computed from the others, 16 it was
//!              not written for this table, only for one above; `other` its modifier, `note` the default
//! 65,536..:    its indexes: `number` is its own, `other` 1 if it was made by a constraint, `note` the number
//!              of the index of the partitioned table that it is a part of
//! 131,072..:   its constraints: `number` is its own, `other` 1: CHECK, `note` the condition; 2: a foreign key, `note`
//!              the parts below. 1 has bits: 16 it was not written for this table, 32 tables below do not have
//!              it, 64 rows from before it were not tested
//! 196,608:     how a table is parted: `note` has the parts of its key: l r h, and the expressions
//! 196,609..:   the tables above it: `number` is that of the table, `other` 1 if it is a partition of that table, whose
//!              bound is `note`: d; h, modulus, remainder; l, values (n, or v and its text); r, limits (-, +, or v and
//!              the text of a value), first those where it begins
//! 2^32 - 3:    its keys that are tested late (DEFERRABLE), whose indexes are not unique for the engine: `note` has
//!              parts, for each the number of its index, and letters: d it is INITIALLY DEFERRED, p the primary key
//! 2^32 - 2:    the columns of INCLUDE of its key: `note` has them as parts
//! 2^32 - 1:    its tablespace: `number` is that of it. It counts while the table is on the node of the tablespace
//! 2^32:        a sequence: `number` is its own, `other` that of its state, `note` the parts of `object.rs`
//! 2^33:        a view: `number` is its own, `note` text and path
//! 2^34:        a type: `number` is its own, `other` that of its arrays, `note` its kind. `relation` is the character
//!              U+0002 and the name with the schema. Items from 1 on are labels: `number` is the one that values have,
//!              `other` its own. Of a domain those from 131,072 on are conditions: `other` 1 if all values are known to
//!              fulfil it, `note` the condition
//!              Of a type of rows they are its attributes, at their numbers: `number` is the type, `other` its modifier
//! comments:    `relation` is the character U+0003, the number of the class of an object (1259 relations, 1247 types,
//!              2606 constraints, 2615 schemas), a point, and the number of the object; `name` is the column, or empty
//!              for the object itself, `note` the text. Items are places in the order in which they were written
//! building:    `relation` is the character U+0004 and the name of a table; each item is an index that is built beside
//!              the transaction of its definition: `number` is its own, `name` its name. That transaction removes the row
//! kind:        "enum"; or "composite", its number among the relations, the number of the next attribute; or "domain",
//!              the number of the type that it is of, the modifier, "n" if it takes no nulls, and the default if there
//!              is one
//! parts:       texts, each as its length in bytes, a colon, and itself
//! foreign key: number of the parent, actions on delete and update (n r c s d), flags (f full, e deferrable, d deferred,
//!              v rows from before it were not tested), number of columns, columns, columns of the parent
//! ```
//!
//! The rows of a table change in the transaction that changes the table. Two objects never have the same number: the
//! next one is taken by a transaction of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use lodestone_engine::{Database, Row, Schema, Table, Tx, Type as Kind, Value};
use lodestone_sql_types::{Error, Result, SqlState, Type};

use super::building::is_building_key;
use super::comment::is_comment_key;
use super::family::{Bound, ParentNote, PartitionNote};
use super::object::{self, SequenceDef, ViewDef};
use super::place::{self, TablePlace, Tablespace};
use super::types::{self, TypeBody, TypeNote, Types, UserType};
use super::value::type_of;
use super::{
    Catalog, CheckDef, ColumnDef, Default, Domain, ForeignKey, IdentityKind, IndexDef, LateKey, ROW_NUMBER, TableDef,
};
use crate::errors::from_engine;
use crate::parse::ast::KeyAction;

/// The table that holds the rows.
pub const NAME: &str = "lodestone_sql";
/// The table with the values of sequences.
pub const SEQUENCES: &str = "lodestone_sequences";
/// The first number of an object of a user.
pub const FIRST_OID: i64 = 16_384;
/// The item of the first index.
const FIRST_INDEX: u64 = 65_536;
/// The item of the first constraint.
const FIRST_CONSTRAINT: u64 = 131_072;
/// The item of the partition key; those of the tables above follow.
const PARTITION_KEY: u64 = 196_608;
const SEQUENCE: u64 = 1 << 32;
const IN_TABLESPACE: u64 = SEQUENCE - 1;
const KEY_INCLUDED: u64 = SEQUENCE - 2;
const LATE_KEYS: u64 = SEQUENCE - 3;
const VIEW: u64 = 1 << 33;
pub(super) const TYPE: u64 = 1 << 34;
const GONE_TYPE: u64 = 1;
/// The letter that the name of a type begins with.
const TYPE_PREFIX: char = '\u{2}';
const SCHEMA: i64 = 1;
const TABLESPACE: i64 = 2;
const NOT_NULL: i64 = 1 << 32;
const ALWAYS: i64 = 2 << 32;
const BY_DEFAULT: i64 = 4 << 32;
const GENERATED: i64 = 8 << 32;
const NOT_LOCAL: i64 = 16 << 32;

/// Whether the table belongs to SQL itself.
pub fn is_own(name: &str) -> bool {
    name == NAME || name == SEQUENCES || name == crate::roles::NAME || name.starts_with(crate::ddl::REWRITTEN)
}

/// The name under which a type is stored.
pub fn type_key(full: &str) -> String {
    format!("{TYPE_PREFIX}{full}")
}

/// Whether a type is stored under this name.
pub fn is_type_key(name: &str) -> bool {
    name.starts_with(TYPE_PREFIX)
}

/// The properties of a table.
#[derive(Clone, Debug)]
pub struct Note {
    pub oid: u32,
    pub key_oid: u32,
    pub key_name: String,
    /// Names of the columns of INCLUDE of its key.
    pub key_included: Vec<String>,
    pub columns: Vec<ColumnNote>,
    pub indexes: Vec<IndexNote>,
    pub constraints: Vec<ConstraintNote>,
    pub partition_by: Option<PartitionNote>,
    pub parents: Vec<ParentNote>,
    /// The number of the tablespace that it was put into.
    pub tablespace: Option<u32>,
}

/// The properties of a column.
#[derive(Clone, Debug)]
pub struct ColumnNote {
    pub name: String,
    pub ty: Type,
    pub modifier: i32,
    pub default: Option<String>,
    pub not_null: bool,
    pub identity: Option<IdentityKind>,
    pub domain: Option<Arc<Domain>>,
    /// The default is the expression of the other columns that it always has.
    pub is_generated: bool,
    pub is_local: bool,
}

/// The properties of an index.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexNote {
    pub oid: u32,
    pub name: String,
    pub is_constraint: bool,
    pub late: Option<LateKey>,
    /// The number of the index of the partitioned table that it is a part of.
    pub parent: Option<u32>,
    /// Names of the columns of INCLUDE.
    pub included: Vec<String>,
}

impl IndexNote {
    /// Its number and letters among the keys that are tested late.
    fn late_parts(&self) -> Option<[String; 2]> {
        let late = self.late?;
        let letters = [(late.is_deferred, "d"), (late.is_primary, "p")];
        let letters = letters.iter().filter(|(is_set, _)| *is_set).map(|(_, letter)| *letter);
        Some([self.oid.to_string(), letters.collect()])
    }

    /// Its row has this besides numbers: the number above it alone, or joined with the names.
    fn text(&self) -> Option<String> {
        let parent = self.parent.map(|parent| parent.to_string());
        if self.included.is_empty() {
            return parent;
        }
        let names = self.included.iter().map(String::as_str);
        Some(object::join(&[parent.as_deref().unwrap_or_default()].into_iter().chain(names).collect::<Vec<_>>()))
    }

    /// The number and the names of [`text`](Self::text).
    fn of_text(text: &str) -> Option<(Option<u32>, Vec<String>)> {
        if !text.contains(':') {
            return Some((text.parse().ok(), Vec::new()));
        }
        let mut parts = object::split(text)?.into_iter();
        Some((parts.next()?.parse().ok(), parts.collect()))
    }
}

/// A CHECK or a foreign key.
#[derive(Clone, Debug, PartialEq)]
pub struct ConstraintNote {
    pub oid: u32,
    pub name: String,
    pub body: ConstraintBody,
}

/// The content of a constraint.
#[derive(Clone, Debug, PartialEq)]
pub enum ConstraintBody {
    Check {
        text: String,
        is_local: bool,
        no_inherit: bool,
        is_valid: bool,
    },
    Foreign {
        columns: Vec<String>,
        parent: u32,
        parent_columns: Vec<String>,
        on_delete: KeyAction,
        on_update: KeyAction,
        is_full: bool,
        is_deferrable: bool,
        is_deferred: bool,
        is_valid: bool,
    },
}

/// Makes the tables of SQL itself, if they are not there.
///
/// # Errors
/// Those of the engine.
pub fn make(database: &Database) -> Result<()> {
    let schema = Schema::new(NAME)
        .column("relation", Kind::Text)
        .column("item", Kind::U64)
        .column("name", Kind::Text)
        .column("number", Kind::I64)
        .column("other", Kind::I64)
        .nullable("note", Kind::Text)
        .key(["relation", "item"]);
    database.create_table(&schema).map_err(from_engine)?;
    let schema = Schema::new(SEQUENCES)
        .column("state", Kind::I64)
        .column("value", Kind::I64)
        .column("is_called", Kind::Bool)
        .key(["state"]);
    database.create_table(&schema).map(drop).map_err(from_engine)
}

pub(super) fn row(relation: &str, item: u64, name: &str, (number, other): (i64, i64), note: Option<&str>) -> Row {
    let note = note.map_or(Value::Null, Value::from);
    Row(vec![relation.into(), item.into(), name.into(), number.into(), other.into(), note])
}

/// Numbers for `count` new objects. No object gets them again, also if this transaction of its own is all that remains.
///
/// # Errors
/// Those of the engine; 54000 when all numbers are used.
pub fn take_oids(database: &Database, count: usize) -> Result<Vec<u32>> {
    make(database)?;
    let table = database.table(NAME).map_err(from_engine)?;
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let first = database
        .update(|tx| {
            let found = table.get(tx, &["".into(), 0_u64.into()])?;
            let next = found.and_then(|row| row[3].as_i64()).unwrap_or(FIRST_OID);
            table.put(tx, &row("", 0, "", (next + count, 0), None))?;
            Ok(next)
        })
        .map_err(from_engine)?;
    let error = |_| Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "all numbers of objects are used");
    (first..first + count).map(|oid| u32::try_from(oid).map_err(error)).collect()
}

/// A writer of the rows of one transaction.
pub struct Writer<'w> {
    pub tx: &'w Tx,
    pub(super) table: Table,
}

impl<'w> Writer<'w> {
    /// The rows as the transaction sees them.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn new(database: &Database, tx: &'w Tx) -> Result<Self> {
        Ok(Self { tx, table: database.table_in(tx, NAME).map_err(from_engine)? })
    }

    /// Writes what SQL knows of the table `name`, whose engine has `schema`.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn write(&self, name: &str, schema: &Schema, note: &Note) -> Result<()> {
        self.remove(name)?;
        let of = |oid: u32| i64::from(oid);
        self.put(&row(name, 0, &note.key_name, (of(note.oid), of(note.key_oid)), Some(&without_indexes(schema))))?;
        for (item, column) in (1..).zip(&note.columns) {
            let identity = match column.identity {
                None => 0,
                Some(IdentityKind::Always) => ALWAYS,
                Some(IdentityKind::ByDefault) => BY_DEFAULT,
            };
            let bits = identity | if column.not_null { NOT_NULL } else { 0 };
            let bits = bits | if column.is_generated { GENERATED } else { 0 };
            let bits = bits | if column.is_local { 0 } else { NOT_LOCAL };
            let oid = column.domain.as_ref().map_or_else(|| column.ty.oid(), |domain| domain.oid);
            let numbers = (of(oid) | bits, i64::from(column.modifier));
            self.put(&row(name, item, &column.name, numbers, column.default.as_deref()))?;
        }
        for (item, index) in (FIRST_INDEX..).zip(&note.indexes) {
            let numbers = (of(index.oid), i64::from(index.is_constraint));
            self.put(&row(name, item, &index.name, numbers, index.text().as_deref()))?;
        }
        for (item, constraint) in (FIRST_CONSTRAINT..).zip(&note.constraints) {
            let (kind, text) = constraint.body.note();
            self.put(&row(name, item, &constraint.name, (of(constraint.oid), kind), Some(&text)))?;
        }
        if let Some(key) = &note.partition_by {
            self.put(&row(name, PARTITION_KEY, "", (0, 0), Some(&key.text())))?;
        }
        for (item, parent) in (PARTITION_KEY + 1..).zip(&note.parents) {
            let bound = parent.bound.as_ref().map(Bound::text);
            let numbers = (of(parent.oid), i64::from(bound.is_some()));
            self.put(&row(name, item, "", numbers, bound.as_deref()))?;
        }
        let late: Vec<String> = note.indexes.iter().filter_map(IndexNote::late_parts).flatten().collect();
        if !late.is_empty() {
            let parts: Vec<&str> = late.iter().map(String::as_str).collect();
            self.put(&row(name, LATE_KEYS, "", (0, 0), Some(&object::join(&parts))))?;
        }
        if !note.key_included.is_empty() {
            let names: Vec<&str> = note.key_included.iter().map(String::as_str).collect();
            self.put(&row(name, KEY_INCLUDED, "", (0, 0), Some(&object::join(&names))))?;
        }
        match note.tablespace {
            Some(oid) => self.put(&row(name, IN_TABLESPACE, "", (of(oid), 0), None)),
            None => Ok(()),
        }
    }

    pub(super) fn put(&self, row: &Row) -> Result<()> {
        self.table.put(self.tx, row).map_err(from_engine)
    }

    /// Removes what SQL knows of the relation `name`.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn remove(&self, name: &str) -> Result<()> {
        let prefix = || Row(vec![name.into()]);
        let rows = self.table.range(self.tx, prefix()..=prefix()).map_err(from_engine)?;
        for row in rows.collect::<lodestone_engine::Result<Vec<_>>>().map_err(from_engine)? {
            self.table.delete(self.tx, &row[..2]).map_err(from_engine)?;
        }
        Ok(())
    }

    /// Notes that a type goes, or takes fewer values: every other definition at the same time reads this row. The one
    /// that notes it reads those of all objects ([`Catalog::claimed`]). So only one of both commits.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn note_gone_type(&self, oid: u32) -> Result<()> {
        let before = self.table.get(self.tx, &["".into(), GONE_TYPE.into()]).map_err(from_engine)?;
        let (_, count) = before.as_ref().and_then(gone_type_of).unwrap_or_default();
        self.put(&row("", GONE_TYPE, "", (oid.into(), count.wrapping_sub(1)), None))
    }

    /// Writes a sequence.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn write_sequence(&self, sequence: &SequenceDef) -> Result<()> {
        let numbers = (sequence.oid.into(), sequence.state);
        self.put(&row(&sequence.full, SEQUENCE, &sequence.name, numbers, Some(&sequence.note())))
    }

    /// Writes a view.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn write_view(&self, view: &ViewDef) -> Result<()> {
        self.remove(&view.full)?;
        let options: Vec<String> = view.options.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let parts = std::iter::once(&view.text).chain(&options).chain(&view.path).map(String::as_str);
        let numbers = (view.oid.into(), options.len().try_into().unwrap_or_default());
        self.put(&row(&view.full, VIEW, &view.name, numbers, Some(&object::join(&parts.collect::<Vec<_>>()))))?;
        for (item, (name, ty, modifier)) in (1..).zip(&view.columns) {
            self.put(&row(&view.full, item, name, (ty.oid().into(), i64::from(*modifier)), None))?;
        }
        Ok(())
    }

    /// Writes a type.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn write_type(&self, full: &str, note: &TypeNote) -> Result<()> {
        let key = type_key(full);
        self.remove(&key)?;
        let text = match &note.body {
            TypeBody::Enum(labels) => {
                for (item, label) in (1..).zip(labels) {
                    self.put(&row(&key, item, &label.name, (label.number, label.oid.into()), None))?;
                }
                object::join(&["enum"])
            }
            TypeBody::Composite(composite) => {
                for one in &composite.attributes {
                    let item = u64::try_from(one.number).unwrap_or_default();
                    self.put(&row(&key, item, &one.name, (one.ty.into(), one.modifier.into()), None))?;
                }
                object::join(&["composite", &composite.relation_oid.to_string(), &composite.next.to_string()])
            }
            TypeBody::Domain(domain) => {
                for (item, check) in (FIRST_CONSTRAINT..).zip(&domain.checks) {
                    let numbers = (check.oid.into(), i64::from(check.is_valid));
                    self.put(&row(&key, item, &check.name, numbers, Some(&check.text)))?;
                }
                let (base, modifier) = (domain.base.to_string(), domain.modifier.to_string());
                let parts = ["domain", &base, &modifier, if domain.not_null { "n" } else { "" }];
                object::join(&parts.into_iter().chain(domain.default.as_deref()).collect::<Vec<_>>())
            }
        };
        self.put(&row(&key, TYPE, &note.name, (note.oid.into(), note.array_oid.into()), Some(&text)))
    }

    /// Writes a schema.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn write_schema(&self, name: &str, oid: u32) -> Result<()> {
        self.put(&row("", oid.into(), name, (oid.into(), SCHEMA), None))
    }

    /// Writes a tablespace.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn write_tablespace(&self, name: &str, tablespace: &Tablespace) -> Result<()> {
        let oid = tablespace.oid;
        self.put(&row("", oid.into(), name, (oid.into(), TABLESPACE), Some(&tablespace.location())))
    }

    /// Removes a schema or a tablespace.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn remove_schema(&self, oid: u32) -> Result<()> {
        self.table.delete(self.tx, &["".into(), u64::from(oid).into()]).map(drop).map_err(from_engine)
    }
}

/// The two numbers of the row of the type that went last.
fn gone_type_of(row: &Row) -> Option<(i64, i64)> {
    Some((row[3].as_i64()?, row[4].as_i64()?))
}

/// The properties of relations, by name.
pub struct Notes(pub(super) BTreeMap<String, Vec<Row>>);

impl Notes {
    /// Reads all of them. A database that SQL has never changed has none.
    pub fn read(database: &Database, tx: &Tx) -> Result<Self> {
        let mut found = BTreeMap::<_, Vec<_>>::new();
        let table = match database.table_in(tx, NAME) {
            Ok(table) => table,
            Err(lodestone_engine::Error::NoTable { .. }) => return Ok(Self(found)),
            Err(error) => return Err(from_engine(error)),
        };
        // Other transactions take numbers of objects meanwhile, this one too.
        for row in table.range(tx, Row(vec!["".into(), GONE_TYPE.into()])..).map_err(from_engine)? {
            let row = row.map_err(from_engine)?;
            found.entry(row[0].as_text().unwrap_or_default().to_owned()).or_default().push(row);
        }
        Ok(Self(found))
    }

    /// Reads those of some relations, and of the schemas.
    pub fn read_some(database: &Database, tx: &Tx, names: &[String]) -> Result<Self> {
        let table = database.table_in(tx, NAME).map_err(from_engine)?;
        let mut found = BTreeMap::<_, Vec<_>>::new();
        for name in names.iter().map(String::as_str).chain([""]) {
            let prefix = || Row(vec![name.into()]);
            // Other transactions take numbers of objects meanwhile, this one too.
            let first = if name.is_empty() { Row(vec![name.into(), GONE_TYPE.into()]) } else { prefix() };
            let rows = table.range(tx, first..=prefix()).map_err(from_engine)?;
            let rows = rows.collect::<lodestone_engine::Result<Vec<_>>>().map_err(from_engine)?;
            if !rows.is_empty() {
                found.insert(name.to_owned(), rows);
            }
        }
        Ok(Self(found))
    }

    /// The schemas of users.
    pub fn schemas(&self) -> BTreeMap<String, u32> {
        let rows = self.0.get("").into_iter().flatten().filter(|row| row[4].as_i64() == Some(SCHEMA));
        rows.filter_map(|row| Some((row[2].as_text()?.to_owned(), oid_at(row, 3)?))).collect()
    }

    /// The tablespaces, by name.
    pub fn tablespaces(&self) -> BTreeMap<String, Tablespace> {
        let rows = self.0.get("").into_iter().flatten().filter(|row| row[4].as_i64() == Some(TABLESPACE));
        let of = |row: &Row| {
            let (oid, node) = (oid_at(row, 3)?, Tablespace::node_of(row[5].as_text()?)?);
            Some((row[2].as_text()?.to_owned(), Tablespace { oid, node }))
        };
        rows.filter_map(of).collect()
    }

    /// The number of the type that went last, or takes fewer values, and how often that has happened.
    pub fn gone_type(&self) -> (i64, i64) {
        self.item("", GONE_TYPE).and_then(gone_type_of).unwrap_or_default()
    }

    /// The names under which types are stored.
    pub fn type_keys(&self) -> impl Iterator<Item = &String> {
        self.0.keys().filter(|name| is_type_key(name))
    }

    /// The names of all relations.
    pub fn relations(&self) -> impl Iterator<Item = &String> {
        let is_other = |name: &str| is_type_key(name) || is_comment_key(name) || is_building_key(name);
        self.0.keys().filter(move |name| !name.is_empty() && !is_other(name))
    }

    /// The types, by their names with schemas.
    pub fn types(&self, catalog: &Catalog) -> BTreeMap<String, TypeNote> {
        let keys = self.0.iter().filter_map(|(key, rows)| Some((key.strip_prefix(TYPE_PREFIX)?, rows)));
        let of = |(full, rows): (&str, &Vec<Row>)| {
            let (schema, name) = catalog.split(full);
            Some((full.to_owned(), types::note_of(rows, (schema, name))?))
        };
        keys.filter_map(of).collect()
    }

    fn item(&self, relation: &str, item: u64) -> Option<&Row> {
        self.0.get(relation)?.iter().find(|row| row[1].as_u64() == Some(item))
    }

    /// The sequence of this name.
    pub fn sequence(&self, full: &str, names: (&str, &str)) -> Option<SequenceDef> {
        let row = self.item(full, SEQUENCE)?;
        SequenceDef::of_note(full, names, (oid_at(row, 3)?, row[4].as_i64()?), row[5].as_text()?)
    }

    /// The view of this name, if its text can still be read.
    pub fn view(&self, full: &str, (schema, name): (&str, &str), types: &Types) -> Option<ViewDef> {
        let row = self.item(full, VIEW)?;
        let mut parts = object::split(row[5].as_text()?)?.into_iter();
        let text = parts.next()?;
        let query = crate::parse::parse_query(&text).ok()?;
        let option = |text: String| text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        let options = parts.by_ref().take(usize::try_from(row[4].as_i64()?).ok()?).map(option);
        let options = options.collect::<Option<_>>()?;
        let columns = self.0.get(full)?.iter().filter(|row| row[1].as_u64().is_some_and(|item| item < FIRST_INDEX));
        let column = |row: &Row| {
            let ty = types::of_oid(types, oid_at(row, 3)?)?.ty;
            Some((row[2].as_text()?.to_owned(), ty, i32::try_from(row[4].as_i64()?).ok()?))
        };
        Some(ViewDef {
            oid: oid_at(row, 3)?,
            schema: schema.to_owned(),
            name: name.to_owned(),
            full: full.to_owned(),
            columns: columns.map(column).collect::<Option<_>>()?,
            text,
            query,
            path: parts.collect(),
            options,
        })
    }

    /// The note of a table, if it fits the engine's schema. `Some(Err)`: it cannot be read, or a column is of a type
    /// that is not there.
    pub fn note(&self, schema: &Schema, types: &Types) -> Option<Result<Note>> {
        let rows = self.0.get(schema.name())?;
        let (head, rest) = rows.split_first()?;
        if head[1].as_u64() != Some(0) || head[5].as_text()? != without_indexes(schema) {
            return None;
        }
        Some(note_of(schema, (head, rest), types))
    }

    /// The table as SQL sees it. `before` has the counter of its rows.
    pub fn table(
        &self,
        database: &Database,
        engine: Table,
        (schema_name, name): (String, String),
        (before, types): (&Catalog, &Types),
    ) -> Result<TableDef> {
        let schema = engine.schema().clone();
        let note = self.note(&schema, types).transpose()?;
        let hidden = schema.columns().iter().position(|column| column.name == ROW_NUMBER);
        let columns = columns_of(&schema, note.as_ref(), hidden);
        let number = |name: &String| columns.iter().position(|column| column.name == *name);
        let key = match hidden {
            Some(_) => Vec::new(),
            None => schema.key_columns().filter_map(|column| number(&column.name)).collect(),
        };
        let own = |name: &str| note.as_ref().and_then(|note| note.indexes.iter().find(|index| index.name == name));
        let mut indexes = Vec::new();
        for (place, index) in schema.indexes().iter().enumerate() {
            if engine.indexes_being_built().any(|other| other == index) {
                continue;
            }
            let note = own(&index.name);
            indexes.push(IndexDef {
                oid: note.map_or_else(|| derived_oid(schema.name(), place + 2), |note| note.oid),
                name: index.name.clone(),
                columns: index.columns.iter().filter_map(number).collect(),
                included: note.iter().flat_map(|note| &note.included).filter_map(number).collect(),
                is_unique: index.is_unique,
                is_constraint: note.is_some_and(|note| note.is_constraint),
                // One that the engine keeps unique was made by other means since.
                late: note.and_then(|note| note.late).filter(|_| !index.is_unique),
                parent: note.and_then(|note| note.parent),
                engine: engine.index(&index.name).map_err(from_engine)?,
            });
        }
        let oid = note.as_ref().map_or_else(|| derived_oid(schema.name(), 0), |note| note.oid);
        let row_numbers = match hidden {
            None => None,
            Some(_) => Some(match before.table_of(oid).and_then(|table| table.row_numbers.clone()) {
                Some(numbers) => numbers,
                None => Arc::new(AtomicU64::new(next_row(database, &engine)?)),
            }),
        };
        let constraints = note.as_ref().map_or(&[][..], |note| &note.constraints);
        let (checks, foreign_keys) = constraints_of(&name, constraints, &columns, types)?;
        let generated = (0..columns.len()).filter(|column| columns[*column].is_generated).map(|column| {
            let Some(default) = &columns[column].default else {
                let message = format!("the expression of the column \"{}\" cannot be read", columns[column].name);
                return Err(Error::new(SqlState::DATA_CORRUPTED, message));
            };
            Ok((column, crate::bind::generation(types, &name, (&columns, column), &default.expr)?))
        });
        let generated = generated.collect::<Result<_>>()?;
        let partition_by = note.as_ref().and_then(|note| note.partition_by.as_ref());
        let partition_by =
            partition_by.map(|key| crate::bind::partition_key(types, &name, &columns, key)).transpose()?;
        let parents = note.as_ref().map(|note| note.parents.clone()).unwrap_or_default();
        let node = place::node_of(database, &schema);
        let tablespaces = self.tablespaces();
        let is_its_node = |oid: &u32| tablespaces.values().any(|found| found.oid == *oid && Some(found.node) == node);
        let tablespace = note.as_ref().and_then(|note| note.tablespace).filter(is_its_node);
        Ok(TableDef {
            oid,
            generated,
            key_oid: note.as_ref().map_or_else(|| derived_oid(schema.name(), 1), |note| note.key_oid),
            key_included: note.iter().flat_map(|note| &note.key_included).filter_map(number).collect(),
            key_name: note.map_or_else(|| format!("{name}_pkey"), |note| note.key_name),
            full: schema.name().to_owned(),
            schema: schema_name,
            name,
            columns,
            key,
            indexes,
            checks,
            foreign_keys,
            partition_by: partition_by.map(Arc::new),
            parents,
            place: TablePlace { node, tablespace },
            engine,
            hidden,
            row_numbers,
        })
    }
}

/// The error of an object of a type that is not there.
pub fn no_type(what: &str, oid: u32) -> Error {
    let message = format!("{what} is of the type with the number {oid}, which is not there");
    Error::new(SqlState::DATA_CORRUPTED, message).hint("Run `lodestone db check` on the pool.")
}

/// Whether the catalog has an index of this name on the table.
///
/// # Errors
/// Those of the engine.
pub(super) fn has_index(notes: &Table, tx: &Tx, (table, index): (&str, &str)) -> lodestone_engine::Result<bool> {
    let at = |item: u64| Row(vec![table.into(), item.into()]);
    for row in notes.range(tx, at(FIRST_INDEX)..at(FIRST_CONSTRAINT))? {
        if row?[2].as_text() == Some(index) {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn oid_at(row: &Row, place: usize) -> Option<u32> {
    row[place].as_i64().and_then(|oid| u32::try_from(oid).ok())
}

fn columns_of(schema: &Schema, note: Option<&Note>, hidden: Option<usize>) -> Vec<ColumnDef> {
    let visible = schema.columns().iter().enumerate().filter(|(place, _)| Some(*place) != hidden);
    let mut columns = Vec::new();
    for (number, (_, column)) in visible.enumerate() {
        let own = note.and_then(|note| note.columns.get(number));
        let (ty, modifier) = own.map_or_else(|| type_of(column.kind), |own| (own.ty, own.modifier));
        let default = own.and_then(|own| own.default.clone()).and_then(|text| {
            let expr = crate::parse::parse_expr(&text).ok()?;
            Some(Default { text, expr })
        });
        columns.push(ColumnDef {
            name: column.name.clone(),
            ty,
            modifier,
            not_null: !column.nullable || own.is_some_and(|own| own.not_null),
            kind: column.kind,
            default,
            identity: own.and_then(|own| own.identity),
            domain: own.and_then(|own| own.domain.clone()),
            is_generated: own.is_some_and(|own| own.is_generated),
            is_local: own.is_none_or(|own| own.is_local),
        });
    }
    columns
}

/// The constraints of a table.
fn constraints_of(
    table: &str,
    notes: &[ConstraintNote],
    columns: &[ColumnDef],
    types: &Types,
) -> Result<(Vec<CheckDef>, Vec<ForeignKey>)> {
    let (mut checks, mut keys) = (Vec::new(), Vec::new());
    for ConstraintNote { oid, name, body } in notes {
        match body {
            ConstraintBody::Check { text, is_local, no_inherit, is_valid } => {
                // One that cannot be read is no reason to go on without it.
                let expr = crate::bind::check_in(types, table, columns, &crate::parse::parse_expr(text)?)?;
                let (is_local, no_inherit, is_valid) = (*is_local, *no_inherit, *is_valid);
                checks.push(CheckDef {
                    oid: *oid,
                    name: name.clone(),
                    text: text.clone(),
                    expr,
                    is_local,
                    no_inherit,
                    is_valid,
                });
            }
            ConstraintBody::Foreign {
                columns: names,
                parent,
                parent_columns,
                on_delete,
                on_update,
                is_full,
                is_deferrable,
                is_deferred,
                is_valid,
            } => {
                let number = |name: &String| columns.iter().position(|column| column.name == *name);
                let Some(numbers) = names.iter().map(number).collect::<Option<Vec<_>>>() else { continue };
                keys.push(ForeignKey {
                    oid: *oid,
                    name: name.clone(),
                    columns: numbers,
                    parent: *parent,
                    parent_columns: parent_columns.clone(),
                    on_delete: *on_delete,
                    on_update: *on_update,
                    is_full: *is_full,
                    is_deferrable: *is_deferrable,
                    is_deferred: *is_deferred,
                    is_valid: *is_valid,
                });
            }
        }
    }
    // PostgreSQL tests them in the order of their names.
    checks.sort_by(|one, two| one.name.cmp(&two.name));
    Ok((checks, keys))
}

/// The number for the next row of a table with a hidden key.
fn next_row(database: &Database, engine: &Table) -> Result<u64> {
    let snapshot = database.snapshot().map_err(from_engine)?;
    let place = engine.schema().columns().iter().position(|column| column.name == ROW_NUMBER).unwrap_or(0);
    let last = engine.range(&snapshot, ..).map_err(from_engine)?.rev().next().transpose().map_err(from_engine)?;
    Ok(last.and_then(|row| row.get(place).and_then(Value::as_u64)).map_or(1, |last| last + 1))
}

/// The text of a schema without its indexes, which come and go.
pub fn without_indexes(schema: &Schema) -> String {
    let text = schema.to_string();
    let end = text.find(") key (").and_then(|start| Some(start + 7 + text[start + 7..].find(')')? + 1));
    text[..end.unwrap_or(text.len())].to_owned()
}

/// The number of an object that the library made: from its name, above all numbers that SQL takes in practice.
fn derived_oid(name: &str, part: usize) -> u32 {
    let hash = name
        .bytes()
        .chain(part.to_string().bytes())
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    0x8000_0000 | (hash >> 1)
}

/// The note in the rows of a table. Rows that cannot be read are an error: without its conditions and keys a table
/// would take rows that it must not have.
fn note_of(schema: &Schema, (head, rest): (&Row, &[Row]), types: &Types) -> Result<Note> {
    let damaged = || {
        let message = format!("the properties of the table \"{}\" cannot be read", schema.name());
        let hint = "They are damaged, or a later version of Lodestone made them. `lodestone db export` reads the rows.";
        Error::new(SqlState::DATA_CORRUPTED, message).hint(hint)
    };
    let mut note = head_of(head).ok_or_else(damaged)?;
    for row in rest {
        add_item(&mut note, row, schema, types).ok_or_else(damaged)??;
    }
    if note.columns.len() > schema.columns().len() { Err(damaged()) } else { Ok(note) }
}

fn head_of(head: &Row) -> Option<Note> {
    Some(Note {
        oid: oid_at(head, 3)?,
        key_oid: oid_at(head, 4)?,
        key_name: head[2].as_text()?.to_owned(),
        key_included: Vec::new(),
        columns: Vec::new(),
        indexes: Vec::new(),
        constraints: Vec::new(),
        partition_by: None,
        parents: Vec::new(),
        tablespace: None,
    })
}

/// Adds an item of a table to its note. `None`: it cannot be read.
fn add_item(note: &mut Note, row: &Row, schema: &Schema, types: &Types) -> Option<Result<()>> {
    let name = row[2].as_text()?.to_owned();
    match row[1].as_u64()? {
        item if item < FIRST_INDEX => {
            let bits = row[3].as_i64()?;
            let oid = u32::try_from(bits & i64::from(u32::MAX)).ok()?;
            let Some(UserType { ty, domain, .. }) = types::of_oid(types, oid) else {
                return Some(Err(no_type(&format!("column \"{name}\" of table \"{}\"", schema.name()), oid)));
            };
            note.columns.push(ColumnNote {
                name,
                ty,
                modifier: i32::try_from(row[4].as_i64()?).ok()?,
                default: row[5].as_text().map(str::to_owned),
                not_null: bits & NOT_NULL != 0,
                identity: match (bits & ALWAYS != 0, bits & BY_DEFAULT != 0) {
                    (true, _) => Some(IdentityKind::Always),
                    (false, true) => Some(IdentityKind::ByDefault),
                    (false, false) => None,
                },
                domain,
                is_generated: bits & GENERATED != 0,
                is_local: bits & NOT_LOCAL == 0,
            });
        }
        item if item < FIRST_CONSTRAINT => {
            let (parent, included) = row[5].as_text().map_or(Some((None, Vec::new())), IndexNote::of_text)?;
            let is_constraint = row[4].as_i64()? == 1;
            note.indexes.push(IndexNote { oid: oid_at(row, 3)?, name, is_constraint, late: None, parent, included });
        }
        item if item < PARTITION_KEY => {
            let body = ConstraintBody::of_note(row[4].as_i64()?, row[5].as_text()?)?;
            note.constraints.push(ConstraintNote { oid: oid_at(row, 3)?, name, body });
        }
        PARTITION_KEY => note.partition_by = Some(PartitionNote::of_text(row[5].as_text()?)?),
        IN_TABLESPACE => note.tablespace = oid_at(row, 3),
        LATE_KEYS => {
            for parts in object::split(row[5].as_text()?)?.chunks_exact(2) {
                let oid: u32 = parts[0].parse().ok()?;
                let late = LateKey { is_deferred: parts[1].contains('d'), is_primary: parts[1].contains('p') };
                note.indexes.iter_mut().filter(|index| index.oid == oid).for_each(|index| index.late = Some(late));
            }
        }
        KEY_INCLUDED => note.key_included = object::split(row[5].as_text()?)?,
        item if item < SEQUENCE => {
            let bound = match row[5].as_text() {
                Some(text) => Some(Bound::of_text(text)?),
                None => None,
            };
            note.parents.push(ParentNote { oid: oid_at(row, 3)?, bound });
        }
        _ => return None,
    }
    Some(Ok(()))
}
