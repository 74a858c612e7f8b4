//! Definitions of tables and indexes. Each is a transaction of its own, and durable when it returns.
//!
//! A table whose key changes (ALTER TABLE .. ADD PRIMARY KEY) is written again: its rows are loaded into a table of
//! another name, in pages and not in the log. One transaction then puts it in the place of the old one, and has
//! read all of the old rows. So it conflicts with any change of them meanwhile, and is run again.

use std::sync::PoisonError;

use lodestone_engine::{Error as EngineError, Index, Row, Schema, Type as Kind, Value};
use lodestone_sql_types::{Error, Result, SqlState, Type};

use crate::bind::type_of;
use crate::catalog::store::{self, ColumnNote, IndexNote, Note};
use crate::catalog::value::kind_of;
use crate::catalog::{Catalog, ROW_NUMBER, TableDef};
use crate::database::Database;
use crate::errors::from_engine;
use crate::parse::ast::{ColumnDef, Expr, KeyDef, Literal, Name, ObjectName, Statement};

/// The name under which a table is written again.
const REWRITTEN: &str = "lodestone_rewritten";
/// The place of a column, for messages.
const IN_KEY: &str = " named in key";
/// Most attempts to write a table again while others change it.
const ATTEMPTS_MAX: usize = 10;

/// The tag of a definition.
pub fn name_of(statement: &Statement) -> &'static str {
    match statement {
        Statement::CreateTable { .. } => "CREATE TABLE",
        Statement::CreateIndex { .. } => "CREATE INDEX",
        Statement::AddKey { .. } => "ALTER TABLE",
        Statement::Drop { is_index: true, .. } => "DROP INDEX",
        Statement::Drop { .. } => "DROP TABLE",
        _ => "the statement",
    }
}

/// Whether a statement may take long however small its text is: definitions, and upkeep.
pub fn is_long(statement: &Statement) -> bool {
    let is_definition = name_of(statement) != "the statement";
    is_definition || matches!(statement, Statement::Truncate(_) | Statement::Checkpoint | Statement::Role(_))
}

/// The error of a table that is not there.
pub fn no_relation(name: &str) -> Error {
    Error::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))
}

fn exists(name: &str) -> Error {
    Error::new(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists"))
}

/// Carries out a definition. Returns notices.
///
/// # Errors
/// As `PostgreSQL`; those of the engine.
pub fn define(database: &Database, statement: &Statement) -> Result<Vec<Error>> {
    let one_at_a_time = database.0.definitions.lock().unwrap_or_else(PoisonError::into_inner);
    let catalog = database.refresh()?;
    let outcome = match statement {
        Statement::CreateTable { name, if_not_exists, columns, key, unique } => {
            create_table(database, &catalog, name, *if_not_exists, (columns, key.as_ref(), unique))
        }
        Statement::CreateIndex { name, table, columns, is_unique, if_not_exists } => {
            create_index(database, &catalog, name.as_ref(), table, (columns, *is_unique, *if_not_exists))
        }
        Statement::AddKey { table, key, is_primary: true } => add_primary_key(database, &catalog, table, key),
        Statement::AddKey { table, key, is_primary: false } => add_unique(database, &catalog, table, key),
        Statement::Drop { is_index, names, if_exists } => drop_all(database, &catalog, *is_index, names, *if_exists),
        other => Err(Error::unsupported(format!("the statement {other:?}").chars().take(60).collect::<String>())),
    };
    // Also after an error: a part of it may have happened.
    database.refresh()?;
    drop(one_at_a_time);
    outcome
}

fn note(text: String) -> Error {
    Error::new(SqlState::SUCCESS, text)
}

/// The name of a table in `public`.
fn public(name: &ObjectName) -> Result<&str> {
    match name.schema.as_deref() {
        None | Some("public") => Ok(&name.name),
        Some(schema @ ("pg_catalog" | "information_schema")) => {
            let message = format!("permission denied for schema {schema}");
            Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, message).at(name.at))
        }
        Some(schema) => {
            Err(Error::new(SqlState::INVALID_SCHEMA_NAME, format!("schema \"{schema}\" does not exist")).at(name.at))
        }
    }
}

type Parts<'d> = (&'d [ColumnDef], Option<&'d KeyDef>, &'d [KeyDef]);

fn create_table(
    database: &Database,
    catalog: &Catalog,
    name: &ObjectName,
    if_not_exists: bool,
    (columns, key, unique): Parts<'_>,
) -> Result<Vec<Error>> {
    let table = public(name)?;
    if catalog.oid_of(table).is_some() || table == store::NAME || table == crate::roles::NAME {
        if if_not_exists {
            return Ok(vec![note(format!("relation \"{table}\" already exists, skipping"))]);
        }
        return Err(exists(table));
    }
    if columns.is_empty() {
        return Err(Error::unsupported("a table without columns"));
    }
    let mut notes: Vec<ColumnNote> = Vec::new();
    let mut not_null = Vec::new();
    for column in columns {
        let (ty, modifier) = type_of(&column.ty)?;
        if notes.iter().any(|other| other.name == column.name.value) {
            let message = format!("column \"{}\" specified more than once", column.name.value);
            return Err(Error::new(SqlState::DUPLICATE_COLUMN, message).at(column.name.at));
        }
        if kind_of(ty, modifier).is_none() {
            return Err(Error::unsupported(format!("a column of type {ty}")).at(column.name.at));
        }
        if let Some(default) = &column.default {
            check_default(default, column)?;
        }
        let is_key = key.is_some_and(|key| key.columns.iter().any(|other| other.value == column.name.value));
        not_null.push(column.not_null || is_key);
        notes.push(ColumnNote { name: column.name.value.clone(), ty, modifier, default: column.default_text.clone() });
    }
    let oids = store::take_oids(&database.0.engine, 2 + unique.len())?;
    let mut schema = schema_of(table, &notes, &not_null, key.map(|key| &key.columns[..]))?;
    let mut indexes = Vec::new();
    for (key, oid) in unique.iter().zip(&oids[2..]) {
        let names = column_names(&key.columns, &notes, IN_KEY)?;
        let name = key.name.clone().unwrap_or_else(|| format!("{table}_{}_key", names.join("_")));
        schema = schema.with_index(Index::unique(&name, names));
        indexes.push(IndexNote { oid: *oid, name, is_constraint: true });
    }
    let key_name = key.and_then(|key| key.name.clone()).unwrap_or_else(|| format!("{table}_pkey"));
    let note = Note { oid: oids[0], key_oid: oids[1], key_name, columns: notes, indexes };
    store::write(&database.0.engine, table, &schema, &note)?;
    database.0.engine.create_table(&schema).map_err(from_engine)?;
    Ok(Vec::new())
}

/// A default is an expression without columns and parameters.
fn check_default(default: &Expr, column: &ColumnDef) -> Result<()> {
    let empty = Catalog::default();
    let cast = Expr::Cast { expr: Box::new(default.clone()), to: column.ty.clone() };
    let item = crate::parse::ast::Item::Expr(cast, None);
    let select = crate::parse::ast::Select {
        distinct: crate::parse::ast::Distinct::All,
        items: vec![item],
        from: Vec::new(),
        filter: None,
        group_by: Vec::new(),
        having: None,
    };
    let query = crate::parse::ast::Query {
        with: Vec::new(),
        body: crate::parse::ast::Body::Select(Box::new(select)),
        order_by: Vec::new(),
        limit: None,
        offset: None,
        locks_rows: false,
    };
    let plan = crate::bind::bind(&empty, Statement::Query(query), &[])?;
    if plan.parameters.is_empty() || matches!(default, Expr::Literal(Literal::Null, _)) {
        return Ok(());
    }
    Err(Error::new(SqlState::UNDEFINED_PARAMETER, "there is no parameter $1"))
}

/// The names of columns that are there.
fn column_names(columns: &[Name], notes: &[ColumnNote], place: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for column in columns {
        let Some(found) = notes.iter().find(|note| note.name == column.value) else {
            let message = format!("column \"{}\"{place} does not exist", column.value);
            return Err(Error::new(SqlState::UNDEFINED_COLUMN, message).at(column.at));
        };
        if found.ty == Type::Numeric && found.modifier < 4 {
            return Err(Error::unsupported("a key or index on a numeric without precision")
                .at(column.at)
                .hint("Use numeric(p, s)."));
        }
        if names.contains(&column.value) {
            let message = format!("column \"{}\" appears twice in a key", column.value);
            return Err(Error::new(SqlState::DUPLICATE_COLUMN, message).at(column.at));
        }
        names.push(column.value.clone());
    }
    Ok(names)
}

/// The engine's table: with a hidden number of each row if there is no key.
fn schema_of(table: &str, notes: &[ColumnNote], not_null: &[bool], key: Option<&[Name]>) -> Result<Schema> {
    let mut schema = Schema::new(table);
    for (note, not_null) in notes.iter().zip(not_null) {
        let Some(kind) = kind_of(note.ty, note.modifier) else {
            return Err(Error::unsupported(format!("a column of type {}", note.ty)));
        };
        schema = if *not_null { schema.column(&note.name, kind) } else { schema.nullable(&note.name, kind) };
    }
    match key {
        Some(key) => Ok(schema.key(column_names(key, notes, IN_KEY)?)),
        None => Ok(schema.column(ROW_NUMBER, Kind::U64).key([ROW_NUMBER])),
    }
}

/// The properties of a table, to be written again.
fn note_of(table: &TableDef) -> Note {
    let column = |column: &crate::catalog::ColumnDef| ColumnNote {
        name: column.name.clone(),
        ty: column.ty,
        modifier: column.modifier,
        default: column.default.as_ref().map(|default| default.text.clone()),
    };
    let index = |index: &crate::catalog::IndexDef| IndexNote {
        oid: index.oid,
        name: index.name.clone(),
        is_constraint: index.is_constraint,
    };
    Note {
        oid: table.oid,
        key_oid: table.key_oid,
        key_name: table.key_name.clone(),
        columns: table.columns.iter().map(column).collect(),
        indexes: table.indexes.iter().map(index).collect(),
    }
}

fn find<'c>(catalog: &'c Catalog, name: &ObjectName) -> Result<&'c TableDef> {
    let table = public(name)?;
    catalog.tables.get(table).map(|table| &**table).ok_or_else(|| no_relation(table).at(name.at))
}

fn create_index(
    database: &Database,
    catalog: &Catalog,
    name: Option<&Name>,
    table: &ObjectName,
    (columns, is_unique, if_not_exists): (&[Name], bool, bool),
) -> Result<Vec<Error>> {
    let found = find(catalog, table)?;
    let mut note = note_of(found);
    let names = column_names(columns, &note.columns, "")?;
    let name = name.map_or_else(|| format!("{}_{}_idx", found.name, names.join("_")), |name| name.value.clone());
    if catalog.oid_of(&name).is_some() {
        if if_not_exists {
            return Ok(vec![self::note(format!("relation \"{name}\" already exists, skipping"))]);
        }
        return Err(exists(&name));
    }
    add_index(database, found, &mut note, (name, names, is_unique), false)
}

fn add_index(
    database: &Database,
    table: &TableDef,
    note: &mut Note,
    (name, columns, is_unique): (String, Vec<String>, bool),
    is_constraint: bool,
) -> Result<Vec<Error>> {
    let oid = store::take_oids(&database.0.engine, 1)?.first().copied().unwrap_or_default();
    note.indexes.push(IndexNote { oid, name: name.clone(), is_constraint });
    store::write(&database.0.engine, &table.name, table.engine.schema(), note)?;
    let index = if is_unique { Index::unique(&name, columns) } else { Index::new(&name, columns) };
    match database.0.engine.create_index(&table.name, &index) {
        Ok(_) => Ok(Vec::new()),
        Err(EngineError::Duplicate { key, .. }) => {
            let message = format!("could not create unique index \"{name}\"");
            Err(Error::new(SqlState::UNIQUE_VIOLATION, message).detail(format!("Key {key} is duplicated.")))
        }
        Err(error) => Err(from_engine(error)),
    }
}

fn add_unique(database: &Database, catalog: &Catalog, table: &ObjectName, key: &KeyDef) -> Result<Vec<Error>> {
    let found = find(catalog, table)?;
    let mut note = note_of(found);
    let names = column_names(&key.columns, &note.columns, IN_KEY)?;
    let name = key.name.clone().unwrap_or_else(|| format!("{}_{}_key", found.name, names.join("_")));
    if catalog.oid_of(&name).is_some() {
        return Err(exists(&name));
    }
    add_index(database, found, &mut note, (name, names, true), true)
}

fn add_primary_key(database: &Database, catalog: &Catalog, table: &ObjectName, key: &KeyDef) -> Result<Vec<Error>> {
    let found = find(catalog, table)?;
    if found.row_numbers.is_none() {
        let message = format!("multiple primary keys for table \"{}\" are not allowed", found.name);
        return Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, message).at(table.at));
    }
    let mut note = note_of(found);
    let names = column_names(&key.columns, &note.columns, IN_KEY)?;
    if let Some(name) = &key.name {
        note.key_name.clone_from(name);
    }
    let is_key = |column: &crate::catalog::ColumnDef| column.not_null || names.contains(&column.name);
    let not_null: Vec<bool> = found.columns.iter().map(is_key).collect();
    let mut schema = schema_of(REWRITTEN, &note.columns, &not_null, Some(&key.columns))?;
    for index in found.engine.schema().indexes() {
        schema = schema.with_index(index.clone());
    }
    let mut attempt = 1;
    loop {
        match rewrite(database, found, &schema, &note) {
            Err(error) if error.state() == SqlState::SERIALIZATION_FAILURE && attempt < ATTEMPTS_MAX => attempt += 1,
            outcome => return outcome.map(|()| Vec::new()),
        }
    }
}

/// Writes the rows of `table` into the table of `schema`, which takes its place.
fn rewrite(database: &Database, table: &TableDef, schema: &Schema, note: &Note) -> Result<()> {
    let engine = &database.0.engine;
    // A crash or an error may have left one.
    match engine.drop_table(REWRITTEN) {
        Ok(()) | Err(EngineError::NoTable { .. }) => {}
        Err(error) => return Err(from_engine(error)),
    }
    let tx = engine.begin();
    let mut rows = Vec::new();
    for row in table.engine.range(&tx, ..).map_err(from_engine)? {
        let mut row = row.map_err(from_engine)?;
        row.0.pop();
        if let Some(column) = null_in_key(schema, &row) {
            let message = format!("column \"{column}\" of relation \"{}\" contains null values", table.name);
            return Err(Error::new(SqlState::NOT_NULL_VIOLATION, message).table(&table.name).column(column));
        }
        rows.push(Ok(row));
    }
    match engine.load_table(schema, rows) {
        Ok(_) => {}
        Err(EngineError::Duplicate { index: None, key, .. }) => {
            let message = format!("could not create unique index \"{}\"", note.key_name);
            let names: Vec<&str> = schema.key_columns().map(|column| column.name.as_str()).collect();
            return Err(Error::new(SqlState::UNIQUE_VIOLATION, message)
                .detail(format!("Key ({})={key} is duplicated.", names.join(", ")))
                .table(&table.name)
                .constraint(&note.key_name));
        }
        Err(error) => return Err(from_engine(error)),
    }
    let named: Schema = schema.to_string().replacen(REWRITTEN, &table.name, 1).parse().map_err(from_engine)?;
    store::write(engine, &table.name, &named, note)?;
    engine.replace_table(tx, REWRITTEN, &table.name).map_err(from_engine).map(drop)
}

/// A column of the key that is null in `row`.
fn null_in_key<'s>(schema: &'s Schema, row: &Row) -> Option<&'s str> {
    let columns = schema.columns().iter().zip(&row.0);
    columns.filter(|(column, value)| !column.nullable && **value == Value::Null).map(|(column, _)| &*column.name).next()
}

fn drop_all(
    database: &Database,
    catalog: &Catalog,
    is_index: bool,
    names: &[ObjectName],
    if_exists: bool,
) -> Result<Vec<Error>> {
    let mut notices = Vec::new();
    // All of them are there before one of them goes.
    for name in names {
        let found = public(name)?;
        let is_there = if is_index {
            catalog.tables.values().any(|table| table.indexes.iter().any(|index| index.name == found))
        } else {
            catalog.tables.contains_key(found)
        };
        let kind = if is_index { "index" } else { "table" };
        match is_there {
            true => {}
            false if if_exists => notices.push(note(format!("{kind} \"{found}\" does not exist, skipping"))),
            false => {
                let state = if is_index { SqlState::UNDEFINED_OBJECT } else { SqlState::UNDEFINED_TABLE };
                return Err(Error::new(state, format!("{kind} \"{found}\" does not exist")).at(name.at));
            }
        }
    }
    for name in names {
        if is_index {
            drop_index(database, catalog, &name.name)?;
        } else if catalog.tables.contains_key(&name.name) {
            database.0.engine.drop_table(&name.name).map_err(from_engine)?;
            store::remove(&database.0.engine, &name.name)?;
        }
    }
    Ok(notices)
}

fn drop_index(database: &Database, catalog: &Catalog, name: &str) -> Result<()> {
    let found = catalog.tables.values().find_map(|table| {
        let index = table.indexes.iter().find(|index| index.name == name)?;
        Some((table, index))
    });
    let Some((table, index)) = found else { return Ok(()) };
    if index.is_constraint {
        let message = format!("cannot drop index {name} because constraint {name} on table {} requires it", table.name);
        return Err(Error::new(SqlState::DEPENDENT_OBJECTS, message));
    }
    database.0.engine.drop_index(&table.name, name).map_err(from_engine)?;
    let mut note = note_of(table);
    note.indexes.retain(|index| index.name != name);
    store::write(&database.0.engine, &table.name, table.engine.schema(), &note)
}
