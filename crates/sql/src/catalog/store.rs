//! The properties of tables that the engine does not know, as rows.
//!
//! ```text
//! lodestone_sql: key (relation text, item u64) relation "", item 0: `number` is the next number of an object item
//! 0: the table: `number` is its own, `other` that of its key, `name` of the key, `note` the engine's schema as
//! text item 1..: its columns: `number` is the type, `other` its modifier, `note` the default item 65,536..: its
//! indexes: `number` is its own, `other` 1 if it was made by a constraint
//! ```
//!
//! The rows of a table are written before the table is made, and are removed after it is dropped. So a crash between
//! both leaves rows without a table, which no statement sees and the next CREATE TABLE replaces.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use lodestone_engine::{Database, Row, Schema, Table, Type as Kind, Value};
use lodestone_sql_types::{Error, Result, SqlState, Type};

use super::value::type_of;
use super::{ColumnDef, Default, IndexDef, ROW_NUMBER, TableDef};
use crate::errors::from_engine;

/// The table that holds the rows.
pub const NAME: &str = "lodestone_sql";
/// The first number of an object of a user.
pub const FIRST_OID: i64 = 16_384;
/// The item of the first index.
const FIRST_INDEX: u64 = 65_536;

/// The properties of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    pub oid: u32,
    pub key_oid: u32,
    pub key_name: String,
    pub columns: Vec<ColumnNote>,
    pub indexes: Vec<IndexNote>,
}

/// The properties of a column.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnNote {
    pub name: String,
    pub ty: Type,
    pub modifier: i32,
    pub default: Option<String>,
}

/// The properties of an index.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexNote {
    pub oid: u32,
    pub name: String,
    pub is_constraint: bool,
}

/// The table with the rows.
///
/// # Errors
/// Those of the engine.
pub fn table(database: &Database) -> Result<Table> {
    let schema = Schema::new(NAME)
        .column("relation", Kind::Text)
        .column("item", Kind::U64)
        .column("name", Kind::Text)
        .column("number", Kind::I64)
        .column("other", Kind::I64)
        .nullable("note", Kind::Text)
        .key(["relation", "item"]);
    database.create_table(&schema).map_err(from_engine)
}

fn row(relation: &str, item: u64, name: &str, (number, other): (i64, i64), note: Option<&str>) -> Row {
    let note = note.map_or(Value::Null, Value::from);
    Row(vec![relation.into(), item.into(), name.into(), number.into(), other.into(), note])
}

/// Numbers for `count` new objects.
///
/// # Errors
/// Those of the engine; 54000 when all numbers are used.
pub fn take_oids(database: &Database, count: usize) -> Result<Vec<u32>> {
    let table = table(database)?;
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

/// Writes what SQL knows of the table `name`, whose engine has `schema`.
///
/// # Errors
/// Those of the engine.
pub fn write(database: &Database, name: &str, schema: &Schema, note: &Note) -> Result<()> {
    let table = table(database)?;
    let of = |oid: u32| i64::from(oid);
    let mut rows = vec![row(name, 0, &note.key_name, (of(note.oid), of(note.key_oid)), Some(&without_indexes(schema)))];
    for (item, column) in (1..).zip(&note.columns) {
        let numbers = (of(column.ty.oid()), i64::from(column.modifier));
        rows.push(row(name, item, &column.name, numbers, column.default.as_deref()));
    }
    for (item, index) in (FIRST_INDEX..).zip(&note.indexes) {
        rows.push(row(name, item, &index.name, (of(index.oid), i64::from(index.is_constraint)), None));
    }
    let replace = |tx: &lodestone_engine::Tx| {
        remove_rows(&table, tx, name)?;
        rows.iter().try_for_each(|row| table.put(tx, row))
    };
    database.update(replace).map_err(from_engine)
}

/// Removes what SQL knows of the table `name`.
///
/// # Errors
/// Those of the engine.
pub fn remove(database: &Database, name: &str) -> Result<()> {
    let table = table(database)?;
    database.update(|tx| remove_rows(&table, tx, name)).map_err(from_engine)
}

fn remove_rows(table: &Table, tx: &lodestone_engine::Tx, name: &str) -> lodestone_engine::Result<()> {
    let prefix = || Row(vec![name.into()]);
    for row in table.range(tx, prefix()..=prefix())? {
        table.delete(tx, &row?[..2])?;
    }
    Ok(())
}

/// The properties of all tables.
pub struct Notes(BTreeMap<String, Vec<Row>>);

impl Notes {
    /// Reads it. A database that SQL has never changed has none.
    pub fn read(database: &Database) -> Result<Self> {
        let mut found = BTreeMap::<_, Vec<_>>::new();
        let table = match database.table(NAME) {
            Ok(table) => table,
            Err(lodestone_engine::Error::NoTable { .. }) => return Ok(Self(found)),
            Err(error) => return Err(from_engine(error)),
        };
        let snapshot = database.snapshot().map_err(from_engine)?;
        for row in table.range(&snapshot, ..).map_err(from_engine)? {
            let row = row.map_err(from_engine)?;
            found.entry(row[0].as_text().unwrap_or_default().to_owned()).or_default().push(row);
        }
        Ok(Self(found))
    }

    /// The note of a table, if it fits the engine's schema.
    pub fn note(&self, schema: &Schema) -> Option<Note> {
        let rows = self.0.get(schema.name())?;
        let (head, rest) = rows.split_first()?;
        if head[1].as_u64() != Some(0) || head[5].as_text()? != without_indexes(schema) {
            return None;
        }
        let oid = |row: &Row, place: usize| row[place].as_i64().and_then(|oid| u32::try_from(oid).ok());
        let mut note = Note {
            oid: oid(head, 3)?,
            key_oid: oid(head, 4)?,
            key_name: head[2].as_text()?.to_owned(),
            columns: Vec::new(),
            indexes: Vec::new(),
        };
        for row in rest {
            let name = row[2].as_text()?.to_owned();
            if row[1].as_u64()? < FIRST_INDEX {
                let ty = Type::of_oid(oid(row, 3)?)?;
                let modifier = i32::try_from(row[4].as_i64()?).ok()?;
                note.columns.push(ColumnNote { name, ty, modifier, default: row[5].as_text().map(str::to_owned) });
            } else {
                note.indexes.push(IndexNote { oid: oid(row, 3)?, name, is_constraint: row[4].as_i64()? == 1 });
            }
        }
        (note.columns.len() <= schema.columns().len()).then_some(note)
    }

    /// The table as SQL sees it.
    pub fn table(&self, database: &Database, engine: Table, numbers: Option<Arc<AtomicU64>>) -> Result<TableDef> {
        let schema = engine.schema().clone();
        let note = self.note(&schema);
        let is_hidden = schema.columns().last().is_some_and(|column| column.name == ROW_NUMBER);
        let visible = schema.columns().len() - usize::from(is_hidden);
        let mut columns = Vec::new();
        for (number, column) in schema.columns()[..visible].iter().enumerate() {
            let own = note.as_ref().and_then(|note| note.columns.get(number));
            let (ty, modifier) = own.map_or_else(|| type_of(column.kind), |own| (own.ty, own.modifier));
            let default = own.and_then(|own| own.default.clone());
            let default = default.and_then(|text| {
                let expr = crate::parse::parse_expr(&text).ok()?;
                Some(Default { text, expr })
            });
            let (name, kind, not_null) = (column.name.clone(), column.kind, !column.nullable);
            columns.push(ColumnDef { name, ty, modifier, not_null, kind, default });
        }
        let number = |name: &String| columns.iter().position(|column| column.name == *name);
        let key = if is_hidden { Vec::new() } else { schema.key_columns().filter_map(|c| number(&c.name)).collect() };
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
                is_unique: index.is_unique,
                is_constraint: note.is_some_and(|note| note.is_constraint),
                engine: engine.index(&index.name).map_err(from_engine)?,
            });
        }
        let row_numbers = match numbers {
            _ if !is_hidden => None,
            Some(numbers) => Some(numbers),
            None => Some(Arc::new(AtomicU64::new(next_row(database, &engine)?))),
        };
        Ok(TableDef {
            oid: note.as_ref().map_or_else(|| derived_oid(schema.name(), 0), |note| note.oid),
            key_oid: note.as_ref().map_or_else(|| derived_oid(schema.name(), 1), |note| note.key_oid),
            key_name: note.map_or_else(|| format!("{}_pkey", schema.name()), |note| note.key_name),
            name: schema.name().to_owned(),
            columns,
            key,
            indexes,
            engine,
            row_numbers,
        })
    }
}

/// The number after that of the last row, whose hidden key is a number.
fn next_row(database: &Database, engine: &Table) -> Result<u64> {
    let snapshot = database.snapshot().map_err(from_engine)?;
    let last = engine.range(&snapshot, ..).map_err(from_engine)?.rev().next().transpose().map_err(from_engine)?;
    Ok(last.and_then(|row| row.last().and_then(Value::as_u64)).map_or(1, |last| last + 1))
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
