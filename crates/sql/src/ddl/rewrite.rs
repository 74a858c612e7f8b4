//! A table that is written again in another form: with another key, or other types of columns.
//!
//! The transaction reads all rows, and is serializable, so its commit fails if a row changes meanwhile. Few rows become
//! changes of the transaction. Many are loaded into a table of another name, in pages and not in the log, and the
//! transaction puts that in the place of the old one. If it is given up, or the process dies, the loaded table is left
//! over, which no statement sees: it is dropped when the transaction ends, or when the database is opened. Rows in
//! cells are added to that table by transactions, a batch each.

use lodestone_engine::{Database, Error as EngineError, Row as EngineRow, Schema, Table, Value};
use lodestone_sql_types::{Error, Result, SqlState};

use super::table::refuse_duplicates_in;
use super::{Definition, definition_error};
use crate::catalog::TableDef;
use crate::catalog::store::{self, Note};
use crate::errors::from_engine;
use crate::run::{Outcome, Row, to_row};

/// The beginning of the names under which tables are loaded.
pub const REWRITTEN: &str = "lodestone_rewritten_";
/// Most rows that become changes of the transaction, or of one of those that make a table with rows in cells.
const ROWS_MAX: usize = 1_000;
/// Bytes of rows after which such a transaction ends: a log has room for many of them.
const BATCH_BYTES: usize = 1 << 16;

/// Drops tables that a transaction left which was given up. `is_used`: those of transactions that go on.
///
/// # Errors
/// Those of the engine.
pub fn sweep(database: &Database, is_used: impl Fn(&str) -> bool) -> Result<()> {
    for name in database.tables().map_err(from_engine)? {
        if name.starts_with(REWRITTEN) && !is_used(&name) {
            match database.drop_table(&name) {
                Ok(()) | Err(EngineError::NoTable { .. } | EngineError::ReadOnly { .. }) => {}
                Err(error) => return Err(from_engine(error)),
            }
        }
    }
    Ok(())
}

impl Definition<'_> {
    /// Writes the rows of `table` into a table of `schema`, which takes its place, also its place in the pool. `change`
    /// makes a new row, without a hidden number, of an old one.
    pub(super) fn rewrite(
        &mut self,
        table: &TableDef,
        schema: &Schema,
        note: &Note,
        change: impl FnMut(&Self, Row) -> Outcome<EngineRow>,
    ) -> Outcome<()> {
        self.rewrite_into(table, &schema.clone().placed_as(table.engine.schema()), note, change)
    }

    /// As [`rewrite`](Self::rewrite), into the place of `schema`.
    pub(super) fn rewrite_into(
        &mut self,
        table: &TableDef,
        schema: &Schema,
        note: &Note,
        change: impl FnMut(&Self, Row) -> Outcome<EngineRow>,
    ) -> Outcome<()> {
        self.tx.serialize().map_err(from_engine)?;
        let made = match self.write_again(table, schema, change)? {
            Ok(made) => made,
            Err(EngineError::Duplicate { index, key, .. }) => {
                let names: Vec<String> =
                    match index.as_ref().and_then(|name| schema.indexes().iter().find(|index| index.name == *name)) {
                        Some(index) => index.columns.clone(),
                        None => schema.key_columns().map(|column| column.name.clone()).collect(),
                    };
                let index = index.unwrap_or_else(|| note.key_name.clone());
                let key = key.trim_start_matches('(').trim_end_matches(')');
                let message = format!("could not create unique index \"{index}\"");
                return Err(Error::new(SqlState::UNIQUE_VIOLATION, message)
                    .detail(format!("Key ({})=({key}) is duplicated.", names.join(", ")))
                    .table(&table.name)
                    .constraint(index)
                    .into());
            }
            Err(error) => return Err(from_engine(error).into()),
        };
        self.writer()?.write(&table.full, made.schema(), note)?;
        self.refresh(&[&table.full])?;
        let now = self.table_now(&table.full)?;
        for index in now.indexes.iter().filter(|index| index.late.is_some()) {
            // Other values may be equal. This transaction has the rows, so nothing was built beside it.
            refuse_duplicates_in(&now, &index.engine, self.tx)?;
        }
        Ok(())
    }

    /// Writes the rows as [`rewrite`](Self::rewrite) says. Of many rows none stays in memory. The inner error is one of
    /// the new table.
    fn write_again(
        &self,
        table: &TableDef,
        schema: &Schema,
        mut change: impl FnMut(&Self, Row) -> Outcome<EngineRow>,
    ) -> Outcome<Result<Table, EngineError>> {
        let hidden = schema.columns().iter().position(|column| column.name == crate::catalog::ROW_NUMBER);
        let mut count = 0_u64;
        let mut next = |row: Result<EngineRow, EngineError>| -> Outcome<EngineRow> {
            let row = row.map_err(from_engine)?;
            let number = table.hidden.and_then(|place| row.get(place).cloned());
            let mut row = change(self, to_row(table, row)?)?;
            count += 1;
            if let Some(place) = hidden {
                row.0.insert(place, number.unwrap_or_else(|| count.into()));
            }
            if let Some(column) = null_in(schema, &row) {
                let message = format!("column \"{column}\" of relation \"{}\" contains null values", table.name);
                let error = Error::new(SqlState::NOT_NULL_VIOLATION, message).table(&table.name).column(column);
                return Err(error.into());
            }
            Ok(row)
        };
        let engine = self.engine();
        let temporary = format!("{REWRITTEN}{}", store::take_oids(engine, 1)?[0]);
        let mut rows = table.engine.range(self.tx, ..).map_err(from_engine)?;
        let first = rows.by_ref().take(ROWS_MAX + 1).map(&mut next).collect::<Outcome<Vec<_>>>()?;
        if first.len() <= ROWS_MAX {
            engine.drop_table_in(self.tx, &table.full).map_err(from_engine)?;
            let made = engine.create_table_in(self.tx, &renamed(schema, &table.full));
            let made = made.map_err(definition_error)?;
            return Ok(first.iter().try_for_each(|row| made.insert(self.tx, row)).map(|()| made));
        }
        self.database.begin_rewriting(&temporary);
        self.session.rewriting.borrow_mut().push(temporary.clone());
        let mut stopped = None;
        let rest = rows.map(|row| {
            next(row).map_err(|stop| {
                stopped = Some(stop);
                EngineError::cancelled("a row cannot be written again")
            })
        });
        let (temporary_schema, rows) = (renamed(schema, &temporary), first.into_iter().map(Ok).chain(rest));
        let loaded = if schema.is_dual() {
            add_rows(engine, &temporary_schema, rows)
        } else {
            engine.load_table(&temporary_schema, rows).map(drop)
        };
        if let Some(stop) = stopped {
            return Err(stop);
        }
        Ok(loaded.and_then(|()| {
            engine.drop_table_in(self.tx, &table.full)?;
            engine.rename_table_in(self.tx, &temporary, &table.full)
        }))
    }
}

/// Makes a table of these rows by transactions, as no load can make one with rows in cells.
fn add_rows(
    engine: &Database,
    schema: &Schema,
    mut rows: impl Iterator<Item = Result<EngineRow, EngineError>>,
) -> Result<(), EngineError> {
    let table = engine.create_table(schema)?;
    loop {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < ROWS_MAX
            && bytes < BATCH_BYTES
            && let Some(row) = rows.next().transpose()?
        {
            bytes += row.0.iter().map(bytes_of).sum::<usize>();
            batch.push(row);
        }
        if batch.is_empty() {
            return Ok(());
        }
        engine.update(|tx| batch.iter().try_for_each(|row| table.insert(tx, row)))?;
    }
}

/// The bytes of a value, about.
fn bytes_of(value: &Value) -> usize {
    let long = value.as_text().map(str::len).or_else(|| value.as_bytes().map(<[u8]>::len));
    long.unwrap_or(size_of::<u64>())
}

/// A column that is null in `row` and may not be.
fn null_in<'s>(schema: &'s Schema, row: &EngineRow) -> Option<&'s str> {
    let columns = schema.columns().iter().zip(&row.0);
    columns.filter(|(column, value)| !column.nullable && **value == Value::Null).map(|(column, _)| &*column.name).next()
}

/// The same table under another name.
fn renamed(schema: &Schema, name: &str) -> Schema {
    let mut found = Schema::new(name);
    for column in schema.columns() {
        found = match column.nullable {
            true => found.nullable(&column.name, column.kind),
            false => found.column(&column.name, column.kind),
        };
    }
    found = found.key(schema.key_columns().map(|column| column.name.clone()).collect::<Vec<_>>());
    found = schema.indexes().iter().fold(found, |found, index| found.with_index(index.clone()));
    found.placed_as(schema)
}
