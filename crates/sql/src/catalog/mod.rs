//! The tables of a database as SQL sees them.
//!
//! A table of SQL is an ordinary table of the engine, and a table that the library made is one of SQL. Properties that
//! the engine does not know (`varchar(20)`, defaults, constraints, numbers of objects) and objects that it does not
//! have (views, sequences, schemas) are in rows of the table [`store::NAME`]. Those of a table count only while the
//! engine's table has the same columns, so a table that was changed by other means has the types that the engine knows.
//!
//! A table without a primary key has a hidden column with a number for each row, which is its key. A table of another
//! schema than `public` has the name of the schema and a point before its own name in the engine.
//!
//! A [`Catalog`] is immutable and shared. A change of a table makes another one, with a version that no other one has.
//! A transaction that has changed tables has a catalog of its own until it ends.

pub mod building;
pub mod comment;
mod constraint;
pub mod family;
pub mod moved;
mod names;
pub mod object;
pub mod place;
pub mod store;
pub mod types;
pub mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lodestone_engine::{Database, Table, TableIndex, Tx};
use lodestone_sql_types::composite::{self, Attribute, Composite};
use lodestone_sql_types::{Datum, Error, Result, SqlState, Type, style};

use crate::errors::from_engine;
use crate::parse::ast::{Expr, KeyAction, ObjectName};

pub use family::Heir;
use family::{Family, ParentNote, PartitionKey};
pub use object::{CheckOption, SequenceDef, ViewDef};
use store::Notes;
pub use types::Domain;
use types::{TypeDef, Types};

/// The hidden column of a table without a primary key.
pub const ROW_NUMBER: &str = "lodestone_row";
/// The bit that makes the number of a table that of the type of its rows. No object has a number that large.
pub const ROW_TYPES: u32 = 1 << 30;
/// The same for the arrays of its rows.
pub const ROW_ARRAYS: u32 = 1 << 31;
/// In place of a name among the changes of a transaction: its schemas and tablespaces.
const SCHEMAS: &str = "\u{6}";
/// The schema of names without one.
pub const PUBLIC: &str = "public";
/// Most attempts to read the catalog while others change it.
const ATTEMPTS_MAX: usize = 100;

/// A column.
#[derive(Clone, Debug)]
pub struct ColumnDef {
    pub name: String,
    pub ty: Type,
    pub modifier: i32,
    pub not_null: bool,
    /// The type that the engine keeps it in.
    pub kind: lodestone_engine::Type,
    pub default: Option<Default>,
    pub identity: Option<IdentityKind>,
    /// The domain that its values are of.
    pub domain: Option<Arc<Domain>>,
    /// Its value is computed from the other columns: the default is the expression.
    pub is_generated: bool,
    /// It was written for this table, not only for one above it.
    pub is_local: bool,
}

impl ColumnDef {
    /// A column of no table, for a value of a type.
    pub fn of_value(name: String, (ty, modifier): (Type, i32)) -> Self {
        Self {
            name,
            ty,
            modifier,
            not_null: false,
            kind: lodestone_engine::Type::Text,
            default: None,
            identity: None,
            domain: None,
            is_generated: false,
            is_local: true,
        }
    }

    /// The value that it has where none is given: its own default, or that of its domain.
    pub fn effective_default(&self) -> Option<&Default> {
        if self.is_generated {
            return None;
        }
        self.default.as_ref().or_else(|| self.domain.as_ref().and_then(|domain| domain.default.as_ref()))
    }

    /// The number of its type in the catalog.
    pub fn type_oid(&self) -> u32 {
        self.domain.as_ref().map_or_else(|| self.ty.oid(), |domain| domain.oid)
    }
}

/// When a column takes its values from its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityKind {
    Always,
    ByDefault,
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
    /// INCLUDE: columns that it shows, which are no part of its key.
    pub included: Vec<usize>,
    pub is_unique: bool,
    /// Whether it was made by a constraint.
    pub is_constraint: bool,
    /// It is the index of a key that may have duplicates for a while. The engine's index is not unique then.
    pub late: Option<LateKey>,
    /// The number of the index of the partitioned table that it is a part of.
    pub parent: Option<u32>,
    pub engine: TableIndex,
}

/// A key that is tested late (DEFERRABLE): at the end of the statement, or of the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateKey {
    /// At the end of the transaction, unless SET CONSTRAINTS says otherwise.
    pub is_deferred: bool,
    /// It is the primary key. The rows of its table have hidden numbers.
    pub is_primary: bool,
}

impl IndexDef {
    /// Whether it is that of a key, tested at once or late.
    pub fn is_key(&self) -> bool {
        self.is_unique || self.late.is_some()
    }

    /// Whether it is that of a primary key which is tested late.
    pub fn is_late_primary(&self) -> bool {
        self.late.is_some_and(|late| late.is_primary)
    }
}

/// The names that the columns of an index have in it: a number makes those different that come twice.
pub fn index_column_names<'n>(columns: impl Iterator<Item = &'n str>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for column in columns {
        let other = |number: u32| format!("{column}{number}");
        let mut tries = std::iter::once(column.to_owned()).chain((1..).map(other));
        names.extend(tries.find(|name| !names.contains(name)));
    }
    names
}

/// A condition that all rows fulfil.
#[derive(Clone, Debug)]
pub struct CheckDef {
    pub oid: u32,
    pub name: String,
    pub text: String,
    /// Over the columns of the table.
    pub expr: crate::plan::Expr,
    /// It was written for this table, not only for one above it.
    pub is_local: bool,
    /// Tables below this one do not have it.
    pub no_inherit: bool,
    /// All rows are known to fulfil it, not only those that came after it.
    pub is_valid: bool,
}

/// A foreign key.
#[derive(Clone, Debug)]
pub struct ForeignKey {
    pub oid: u32,
    pub name: String,
    /// Numbers of columns of the child.
    pub columns: Vec<usize>,
    /// The number of the parent, and names of its columns, in the order of `columns`.
    pub parent: u32,
    pub parent_columns: Vec<String>,
    pub on_delete: KeyAction,
    pub on_update: KeyAction,
    pub is_full: bool,
    pub is_deferrable: bool,
    pub is_deferred: bool,
    /// The rows that were there before it have been tested.
    pub is_valid: bool,
}

/// A table.
#[derive(Debug)]
pub struct TableDef {
    pub oid: u32,
    pub schema: String,
    pub name: String,
    /// Its name in the engine.
    pub full: String,
    /// Those that SQL sees.
    pub columns: Vec<ColumnDef>,
    /// Numbers of the columns of the primary key; none if it is hidden.
    pub key: Vec<usize>,
    pub key_oid: u32,
    pub key_name: String,
    /// INCLUDE of the key: columns that its index shows.
    pub key_included: Vec<usize>,
    pub indexes: Vec<IndexDef>,
    pub checks: Vec<CheckDef>,
    pub foreign_keys: Vec<ForeignKey>,
    /// Columns that are computed from others, and their values over these.
    pub generated: Vec<(usize, crate::plan::Expr)>,
    /// How it chooses the partition of a row, if it has partitions. It has no rows then.
    pub partition_by: Option<Arc<PartitionKey>>,
    /// The tables above it.
    pub parents: Vec<ParentNote>,
    pub place: place::TablePlace,
    pub engine: Table,
    /// The place of the hidden number among the engine's columns.
    pub hidden: Option<usize>,
    /// The next number of a row, if the key is hidden.
    pub row_numbers: Option<Arc<AtomicU64>>,
}

impl TableDef {
    /// The columns of INCLUDE of an index.
    pub fn included(&self, index: u32) -> &[usize] {
        if index == self.key_oid {
            return &self.key_included;
        }
        self.indexes.iter().find(|other| other.oid == index).map_or(&[], |index| &index.included)
    }

    /// The type of its rows.
    ///
    /// # Errors
    /// Those of [`Composite::of`].
    pub fn row_type(&self) -> Result<Type> {
        let attribute = |(column, number): (&ColumnDef, i16)| Attribute {
            name: column.name.clone(),
            ty: column.ty,
            modifier: column.modifier,
            number,
            domain: column.domain.as_ref().map_or(0, |domain| domain.oid),
        };
        let made = Composite::of(composite::Definition {
            oid: self.oid | ROW_TYPES,
            array_oid: self.oid | ROW_ARRAYS,
            relation_oid: self.oid,
            name: self.name.clone(),
            display: types::shown_name(&self.schema, &self.name),
            attributes: self.columns.iter().zip(1..).map(attribute).collect(),
        });
        made.map(Type::Composite)
    }

    /// The number of the column called `name`.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// Whether a column has values of a domain.
    pub fn has_domains(&self) -> bool {
        self.columns.iter().any(|column| column.domain.is_some())
    }

    /// How the key of an index is tested late, if it is.
    pub fn late(&self, index: u32) -> Option<LateKey> {
        self.indexes.iter().find(|other| other.oid == index)?.late
    }

    /// The index of the primary key, if that is tested late.
    pub fn late_primary(&self) -> Option<&IndexDef> {
        self.indexes.iter().find(|index| index.is_late_primary())
    }

    /// The columns of the primary key, whenever that is tested.
    pub fn primary_columns(&self) -> &[usize] {
        self.late_primary().map_or(&self.key, |index| &index.columns)
    }

    /// Whether it has a key that is tested late.
    pub fn has_late_keys(&self) -> bool {
        self.indexes.iter().any(|index| index.late.is_some())
    }

    /// The index of a key over exactly these columns that is tested late.
    pub fn late_over(&self, columns: &[usize]) -> Option<usize> {
        let is_same = |other: &[usize]| other.len() == columns.len() && columns.iter().all(|c| other.contains(c));
        self.indexes.iter().position(|index| index.late.is_some() && is_same(&index.columns))
    }

    /// A number for a new row.
    pub fn next_row(&self) -> u64 {
        self.row_numbers.as_ref().map_or(0, |next| next.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether two rows differ in a column of a unique key.
    pub fn changes_key(&self, one: &[Datum], two: &[Datum]) -> bool {
        let unique = self.indexes.iter().filter(|index| index.is_key()).flat_map(|index| &index.columns);
        self.key.iter().chain(unique).any(|column| one[*column] != two[*column])
    }

    /// The unique key over exactly these columns: the number of its index, or `None` for the primary key.
    pub fn unique_over(&self, columns: &[usize]) -> Option<Option<usize>> {
        let is_same = |other: &[usize]| other.len() == columns.len() && columns.iter().all(|c| other.contains(c));
        if !self.key.is_empty() && is_same(&self.key) {
            return Some(None);
        }
        let found = self.indexes.iter().position(|index| index.is_unique && is_same(&index.columns));
        found.map(Some)
    }
}

/// All tables at one moment.
#[derive(Clone, Debug)]
pub struct Catalog {
    pub version: u64,
    /// The version of the database's catalog that it was made of.
    pub base: u64,
    /// The relations and types that a transaction has changed since, by the names under which they are stored.
    pub changes: BTreeSet<String>,
    /// The schemas that names without one are looked up in.
    pub path: Vec<String>,
    /// Schemas of users by name, with their numbers. `public` is not among them.
    pub schemas: BTreeMap<String, u32>,
    pub tablespaces: BTreeMap<String, place::Tablespace>,
    /// By their names in the engine, as views and sequences.
    pub tables: BTreeMap<String, Arc<TableDef>>,
    pub views: BTreeMap<String, Arc<ViewDef>>,
    pub sequences: BTreeMap<String, Arc<SequenceDef>>,
    /// Types of the database, by their names with schemas.
    pub types: Types,
    pub comments: comment::Comments,
    /// The number of the type that went last, or takes fewer values, and how often that has happened.
    pub gone_type: (i64, i64),
    /// By the number of a parent: the tables with foreign keys to it, and the numbers of these.
    pub children: BTreeMap<u32, Vec<(Arc<TableDef>, usize)>>,
    /// By the number of a table: the tables below it.
    pub families: BTreeMap<u32, Arc<Family>>,
}

impl std::default::Default for Catalog {
    fn default() -> Self {
        Self {
            version: 0,
            base: 0,
            changes: BTreeSet::new(),
            path: vec![PUBLIC.into()],
            schemas: BTreeMap::new(),
            tablespaces: BTreeMap::new(),
            tables: BTreeMap::new(),
            views: BTreeMap::new(),
            sequences: BTreeMap::new(),
            types: Types::new(),
            comments: comment::Comments::default(),
            gone_type: (0, 0),
            children: BTreeMap::new(),
            families: BTreeMap::new(),
        }
    }
}

/// The name of a relation in the engine.
pub fn full_name(schema: &str, name: &str) -> String {
    if schema == PUBLIC { name.to_owned() } else { format!("{schema}.{name}") }
}

/// The error of a definition that may use a type that is gone.
pub fn other_types() -> Error {
    Error::new(SqlState::SERIALIZATION_FAILURE, "could not serialize access due to concurrent update")
}

/// A version that no other catalog of this process has.
fn next_version() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Catalog {
    /// The table or index with this number.
    pub fn relation(&self, oid: i64) -> Option<Relation<'_>> {
        let table = self.tables.values().find_map(|table| {
            if i64::from(table.oid) == oid {
                return Some(Relation::Table(table));
            }
            if i64::from(table.key_oid) == oid && !table.key.is_empty() {
                return Some(Relation::Key(table));
            }
            let index = table.indexes.iter().find(|index| i64::from(index.oid) == oid)?;
            Some(Relation::Index(table, index))
        });
        let view = || self.views.values().find(|view| i64::from(view.oid) == oid).map(Relation::View);
        let sequence = || {
            let found = self.sequences.values().find(|sequence| i64::from(sequence.oid) == oid);
            found.map(Relation::Sequence)
        };
        table.or_else(view).or_else(sequence)
    }

    /// The number of the relation that has this name in the engine, where indexes have the schema of their table.
    pub fn oid_of(&self, full: &str) -> Option<u32> {
        if let Some(table) = self.tables.get(full) {
            return Some(table.oid);
        }
        if let Some(view) = self.views.get(full) {
            return Some(view.oid);
        }
        if let Some(sequence) = self.sequences.get(full) {
            return Some(sequence.oid);
        }
        // A type of rows is a relation as well.
        if let Some(composite) = self.types.get(full).and_then(|found| found.note.composite()) {
            return Some(composite.relation_oid);
        }
        self.index_of(full).map(|(table, index)| index.map_or(table.key_oid, |index| index.oid))
    }

    /// The index with this name, and its table. `None` in its place is the primary key.
    pub fn index_of(&self, full: &str) -> Option<(&Arc<TableDef>, Option<&IndexDef>)> {
        self.tables.values().find_map(|table| {
            let is_it = |name: &str| match table.schema.as_str() {
                PUBLIC => name == full,
                schema => full.strip_prefix(schema).and_then(|rest| rest.strip_prefix('.')) == Some(name),
            };
            if !table.key.is_empty() && is_it(&table.key_name) {
                return Some((table, None));
            }
            table.indexes.iter().find(|index| is_it(&index.name)).map(|index| (table, Some(index)))
        })
    }

    /// The schema that is meant: `pg_temp` is that of the session.
    pub fn own_schema<'c>(&'c self, schema: &'c str) -> &'c str {
        let is_own = |other: &&String| other.starts_with(crate::connection::TEMPORARY_PREFIX);
        match schema {
            crate::parse::table::TEMPORARY => self.path.iter().find(is_own).map_or(schema, String::as_str),
            other => other,
        }
    }

    /// Whether there is a schema of this name.
    pub fn has_schema(&self, name: &str) -> bool {
        name == PUBLIC || self.schemas.contains_key(name)
    }

    /// The names in the engine that a name can have, the likeliest first.
    pub fn candidates<'c>(&'c self, schema: Option<&'c str>, name: &'c str) -> impl Iterator<Item = String> + 'c {
        let given = schema.map(|schema| self.own_schema(schema)).into_iter();
        let path = self.path.iter().filter(move |_| schema.is_none()).map(String::as_str);
        given.chain(path).filter(|schema| self.has_schema(schema)).map(move |schema| full_name(schema, name))
    }

    /// The name in the engine of the relation that is meant.
    pub fn resolve(&self, schema: Option<&str>, name: &str) -> Option<String> {
        self.candidates(schema, name).find(|full| self.oid_of(full).is_some())
    }

    /// The table that is meant.
    pub fn table(&self, name: &ObjectName) -> Option<&Arc<TableDef>> {
        self.candidates(name.schema.as_deref(), &name.name).find_map(|full| self.tables.get(&full))
    }

    /// The type of the database that is meant.
    pub fn type_def(&self, name: &ObjectName) -> Option<&Arc<TypeDef>> {
        self.candidates(name.schema.as_deref(), &name.name).find_map(|full| self.types.get(&full))
    }

    /// The type of the database with this number.
    pub fn type_of_oid(&self, oid: i64) -> Option<&Arc<TypeDef>> {
        self.types.values().find(|found| i64::from(found.note.oid) == oid)
    }

    /// The type of rows that has this number among the relations.
    pub fn type_of_relation(&self, oid: i64) -> Option<&Arc<TypeDef>> {
        let is_it = |note: &types::TypeNote| note.composite().is_some_and(|one| i64::from(one.relation_oid) == oid);
        self.types.values().find(|found| is_it(&found.note))
    }

    /// The schema that a new relation of this name belongs to.
    ///
    /// # Errors
    /// 3F000; 42501.
    pub fn schema_for(&self, name: &ObjectName) -> Result<String> {
        match name.schema.as_deref() {
            Some(schema @ ("pg_catalog" | "information_schema")) => {
                let message = format!("permission denied for schema {schema}");
                Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, message).at(name.at))
            }
            Some(schema) if self.has_schema(self.own_schema(schema)) => Ok(self.own_schema(schema).to_owned()),
            Some(schema) => {
                let message = format!("schema \"{schema}\" does not exist");
                Err(Error::new(SqlState::INVALID_SCHEMA_NAME, message).at(name.at))
            }
            None => {
                let message = "no schema has been selected to create in";
                let is_lasting = |schema: &&String| !schema.starts_with(crate::connection::TEMPORARY_PREFIX);
                let found = self.path.iter().filter(is_lasting).find(|schema| self.has_schema(schema)).cloned();
                found.ok_or_else(|| Error::new(SqlState::INVALID_SCHEMA_NAME, message).at(name.at))
            }
        }
    }

    /// Whether the relation is found by its name alone.
    pub fn is_visible(&self, schema: &str, name: &str) -> bool {
        self.resolve(None, name).is_some_and(|full| full == full_name(schema, name))
    }

    /// The same, where names without a schema are looked up in `path`.
    pub fn with_path(&self, path: Vec<String>) -> Self {
        Self { path, version: next_version(), ..self.clone() }
    }

    /// The same, with other comments.
    pub fn with_comments(&self, comments: comment::Comments) -> Self {
        let mut changes = self.changes.clone();
        changes.insert(comment::COMMENTS.into());
        Self { comments, changes, version: next_version(), ..self.clone() }
    }

    /// Reads it. `before` has the counters of rows that go on.
    pub fn read(database: &Database, before: &Self) -> Result<Self> {
        for _ in 0..ATTEMPTS_MAX {
            let tx = database.begin();
            let found = Self::read_once(database, &tx, before);
            match (found, tx.commit().map_err(from_engine)) {
                (_, Err(error)) | (Err(error), Ok(())) if error.state() != SqlState::SERIALIZATION_FAILURE => {
                    return Err(error);
                }
                (Ok(found), Ok(())) => return Ok(found),
                _ => {}
            }
        }
        Err(Error::new(SqlState::SERIALIZATION_FAILURE, "the tables change too often to be read"))
    }

    /// Reads every object again in a transaction, which conflicts with every other definition from then on.
    pub fn claimed(&self, database: &Database, tx: &Tx) -> Result<Self> {
        let notes = Notes::read(database, tx)?;
        let mut names: BTreeSet<String> = self.names_with_types().collect();
        names.extend(notes.relations().cloned());
        names.extend(notes.type_keys().cloned());
        self.changed(database, tx, &Vec::from_iter(names))
    }

    fn read_once(database: &Database, tx: &Tx, before: &Self) -> Result<Self> {
        // It is the same for all sessions, however they read literals.
        style::plain(|| Self::read_plain(database, tx, before))
    }

    fn read_plain(database: &Database, tx: &Tx, before: &Self) -> Result<Self> {
        let notes = Notes::read(database, tx)?;
        let version = next_version();
        let mut found = Self { version, base: version, path: before.path.clone(), ..Self::default() };
        found.schemas = notes.schemas();
        found.tablespaces = notes.tablespaces();
        found.gone_type = notes.gone_type();
        found.comments = notes.comments();
        found.types = types::read(notes.types(&found))?;
        for name in database.tables_in(tx).map_err(from_engine)? {
            if !store::is_own(&name) {
                found.take_table(database, tx, &notes, &name, before)?;
            }
        }
        for name in notes.relations() {
            found.take_others(&notes, name);
        }
        found.note_children();
        found.note_families()?;
        Ok(found)
    }

    /// The names under which all types are stored, and the relations that may be of one.
    pub fn names_with_types(&self) -> impl Iterator<Item = String> {
        let types = self.types.keys().map(|full| store::type_key(full));
        types.chain(self.tables.keys().chain(self.views.keys()).cloned())
    }

    /// This catalog, which is newer, with what a transaction has changed in `own`.
    pub fn with_changes_of(&self, own: &Self, database: &Database, tx: &Tx) -> Result<Self> {
        let mut found = self.with_path(own.path.clone());
        if own.changes.contains(comment::COMMENTS) {
            found = found.with_comments(own.comments.clone());
        }
        let is_relation = |name: &&String| *name != comment::COMMENTS && *name != SCHEMAS;
        let mut names: Vec<String> = own.changes.iter().filter(is_relation).cloned().collect();
        if names.is_empty() && !own.changes.contains(SCHEMAS) {
            return Ok(found);
        }
        if names.iter().any(|name| store::is_type_key(name)) {
            names.extend(self.names_with_types().filter(|name| !own.changes.contains(name)));
        }
        found.changed(database, tx, &names)
    }

    /// The catalog after the transaction has changed the relations of these names, in which it sees them.
    ///
    /// # Errors
    /// 40001 if another transaction has changed what they are made of; those of the engine.
    pub fn changed(&self, database: &Database, tx: &Tx, names: &[String]) -> Result<Self> {
        let found = style::plain(|| self.changed_plain(database, tx, names));
        found.map_err(|error| match error.state() {
            // One of the relations is of a type that another transaction has made since this catalog was read. Damage
            // is found when all objects are read.
            SqlState::DATA_CORRUPTED => other_types(),
            _ => error,
        })
    }

    fn changed_plain(&self, database: &Database, tx: &Tx, names: &[String]) -> Result<Self> {
        let notes = Notes::read_some(database, tx, names)?;
        let mut found = Self { version: next_version(), ..self.clone() };
        found.changes.extend(names.iter().cloned());
        if names.is_empty() {
            // Schemas or tablespaces have changed.
            found.changes.insert(SCHEMAS.into());
        }
        found.schemas = notes.schemas();
        found.tablespaces = notes.tablespaces();
        found.gone_type = notes.gone_type();
        if names.iter().any(|name| store::is_type_key(name)) {
            found.types = types::read(notes.types(&found))?;
        } else if found.gone_type != self.gone_type {
            // A type that the definition may have used is gone since the catalog was read.
            return Err(other_types());
        }
        for name in names.iter().filter(|name| !store::is_type_key(name)) {
            found.tables.remove(name);
            found.views.remove(name);
            found.sequences.remove(name);
            found.take_table(database, tx, &notes, name, self)?;
            found.take_others(&notes, name);
        }
        found.note_children();
        found.note_families()?;
        Ok(found)
    }

    fn take_table(&mut self, database: &Database, tx: &Tx, notes: &Notes, name: &str, before: &Self) -> Result<()> {
        let engine = match database.table_in(tx, name) {
            Ok(table) => table,
            Err(lodestone_engine::Error::NoTable { .. }) => return Ok(()),
            Err(error) => return Err(from_engine(error)),
        };
        let (schema, bare) = self.split(name);
        let table = notes.table(database, engine, (schema, bare), (before, &self.types))?;
        self.tables.insert(name.to_owned(), Arc::new(table));
        Ok(())
    }

    fn take_others(&mut self, notes: &Notes, name: &str) {
        let (schema, bare) = self.split(name);
        if let Some(view) = notes.view(name, (&schema, &bare), &self.types) {
            self.views.insert(name.to_owned(), Arc::new(view));
        }
        if let Some(sequence) = notes.sequence(name, (&schema, &bare)) {
            self.sequences.insert(name.to_owned(), Arc::new(sequence));
        }
    }

    /// Schema and own name of a relation.
    pub(crate) fn split(&self, full: &str) -> (String, String) {
        match full.split_once('.') {
            Some((schema, name)) if self.schemas.contains_key(schema) => (schema.to_owned(), name.to_owned()),
            _ => (PUBLIC.to_owned(), full.to_owned()),
        }
    }

    fn note_children(&mut self) {
        self.children.clear();
        for table in self.tables.values() {
            for (number, key) in table.foreign_keys.iter().enumerate() {
                self.children.entry(key.parent).or_default().push((table.clone(), number));
            }
        }
    }

    /// Reads again which tables are above and below each other.
    fn note_families(&mut self) -> Result<()> {
        let by_oid: BTreeMap<u32, &Arc<TableDef>> = self.tables.values().map(|table| (table.oid, table)).collect();
        let mut families: BTreeMap<u32, Family> = BTreeMap::new();
        for table in self.tables.values() {
            if let Some(key) = &table.partition_by {
                families.entry(table.oid).or_default().key = Some(key.clone());
            }
            for parent in &table.parents {
                let Some(above) = by_oid.get(&parent.oid) else { continue };
                let map = above.columns.iter().map(|column| table.column(&column.name)).collect::<Option<Vec<_>>>();
                let (Some(map), Some(bound)) = (map, family::bound_of(above, parent)?) else { continue };
                families.entry(parent.oid).or_default().heirs.push(Heir { table: table.clone(), bound, map });
            }
        }
        families.values_mut().for_each(Family::sort);
        self.families = families.into_iter().map(|(oid, family)| (oid, Arc::new(family))).collect();
        Ok(())
    }

    /// The tables below a table, those of all levels, each once, with the columns of the table in theirs. A table is
    /// before those below it.
    pub fn heirs_of(&self, table: &TableDef) -> Vec<(Arc<TableDef>, Vec<usize>)> {
        let mut found: Vec<(Arc<TableDef>, Vec<usize>)> = Vec::new();
        let own: Vec<usize> = (0..table.columns.len()).collect();
        self.add_heirs(table.oid, &own, &mut found);
        found
    }

    fn add_heirs(&self, oid: u32, columns: &[usize], found: &mut Vec<(Arc<TableDef>, Vec<usize>)>) {
        let Some(family) = self.families.get(&oid) else { return };
        for heir in &family.heirs {
            if found.iter().any(|(other, _)| other.oid == heir.table.oid) {
                continue;
            }
            let map: Vec<usize> = columns.iter().filter_map(|column| heir.map.get(*column).copied()).collect();
            found.push((heir.table.clone(), map.clone()));
            self.add_heirs(heir.table.oid, &map, found);
        }
    }

    /// The tables below a table, one level.
    pub fn heirs(&self, oid: u32) -> &[Heir] {
        self.families.get(&oid).map_or(&[], |family| &family.heirs)
    }

    /// The foreign keys to a table, and to those that it is a partition of: each as its table and its number there.
    pub fn children_of(&self, table: &TableDef) -> Vec<&(Arc<TableDef>, usize)> {
        let mut found: Vec<_> = self.children.get(&table.oid).into_iter().flatten().collect();
        let mut above = self.partitioned(table);
        while let Some(parent) = above {
            found.extend(self.children.get(&parent.oid).into_iter().flatten());
            above = self.partitioned(parent);
        }
        found
    }

    /// The table that a partition is one of.
    pub fn partitioned(&self, table: &TableDef) -> Option<&Arc<TableDef>> {
        let parent = table.parents.iter().find(|parent| parent.bound.is_some())?;
        self.table_of(parent.oid)
    }

    /// The table with this number.
    pub fn table_of(&self, oid: u32) -> Option<&Arc<TableDef>> {
        self.tables.values().find(|table| table.oid == oid)
    }
}

/// A table, or one of its indexes, or another relation.
pub enum Relation<'c> {
    Table(&'c Arc<TableDef>),
    Key(&'c Arc<TableDef>),
    Index(&'c Arc<TableDef>, &'c IndexDef),
    View(&'c Arc<ViewDef>),
    Sequence(&'c Arc<SequenceDef>),
}

impl Relation<'_> {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Table(table) => &table.name,
            Self::Key(table) => &table.key_name,
            Self::Index(_, index) => &index.name,
            Self::View(view) => &view.name,
            Self::Sequence(sequence) => &sequence.name,
        }
    }

    /// The schema that it belongs to.
    pub fn schema(&self) -> &str {
        match self {
            Self::Table(table) | Self::Key(table) | Self::Index(table, _) => &table.schema,
            Self::View(view) => &view.schema,
            Self::Sequence(sequence) => &sequence.schema,
        }
    }
}
