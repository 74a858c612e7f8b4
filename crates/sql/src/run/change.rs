//! Changes of rows.

use lodestone_engine::{Error as EngineError, Row as EngineRow, Value};
use lodestone_sql_types::{Datum, Error, SqlState, text};

use super::scan::{Key, key_of};
use super::{Flow, Outcome, Row, Run};
use crate::catalog::{TableDef, value};
use crate::errors::from_engine;
use crate::plan::{Change, Expr};

impl Run<'_> {
    /// Carries out a change. Calls `sink` with the columns that are returned of each row. Returns how many rows there
    /// were.
    pub fn change(
        &self,
        change: &Change,
        returned: Option<&[Expr]>,
        sink: &mut dyn FnMut(Row) -> Outcome<Flow>,
    ) -> Outcome<u64> {
        let mut count = 0;
        let mut done = |row: &Row| -> Outcome<()> {
            count += 1;
            if let Some(columns) = returned {
                sink(self.project(columns, row, None)?)?;
            }
            Ok(())
        };
        match change {
            Change::Insert { table, input, skips_duplicates } => {
                // A query may read the table that it changes: all of its rows come first.
                for row in self.rows(input, None)? {
                    self.step()?;
                    if self.insert(table, &row, *skips_duplicates)? {
                        done(&row)?;
                    }
                }
            }
            Change::Update { scan, set } => {
                for (row, key) in self.locked_rows(scan)? {
                    let mut new = row.clone();
                    for (column, expr) in set {
                        new[*column] = self.eval(expr, &super::Env { row: &row, outer: None })?;
                    }
                    self.update(&scan.table, &key, &new)?;
                    done(&new)?;
                }
            }
            Change::Delete { scan } => {
                for (row, key) in self.locked_rows(scan)? {
                    self.engine(&scan.table).delete(self.tx, &key).map_err(from_engine)?;
                    done(&row)?;
                }
            }
        }
        Ok(count)
    }

    fn locked_rows(&self, scan: &crate::plan::Scan) -> Outcome<Vec<(Row, Key)>> {
        let mut rows = Vec::new();
        self.scan(scan, None, &mut |row, key| {
            rows.push((row, key));
            Ok(Flow::More)
        })?;
        Ok(rows)
    }

    /// Adds a row. `false`: another one has its key, and that is to be skipped.
    pub fn insert(&self, table: &TableDef, row: &[Datum], skips_duplicates: bool) -> Outcome<bool> {
        self.insert_stored(table, to_stored(table, row)?, skips_duplicates)
    }

    /// As [`insert`](Self::insert), of a row as the engine has it, without a hidden number.
    pub fn insert_stored(&self, table: &TableDef, mut stored: EngineRow, skips_duplicates: bool) -> Outcome<bool> {
        if table.row_numbers.is_some() {
            stored.0.push(table.next_row().into());
        } else {
            self.lock_row(table.oid, || key_of(table, &stored))?;
        }
        self.lock_entries(table, &stored)?;
        let engine = self.engine(table);
        let outcome = match table.row_numbers {
            // No other row has the number, so nothing needs to be read.
            Some(_) => engine.put(self.tx, &stored),
            None => engine.insert(self.tx, &stored),
        };
        match outcome {
            Ok(()) => Ok(true),
            Err(EngineError::Duplicate { .. }) if skips_duplicates => Ok(false),
            Err(error) => Err(with_values(error, table, &stored).into()),
        }
    }

    /// Locks the entries of unique indexes, so that a rival is waited for.
    fn lock_entries(&self, table: &TableDef, stored: &EngineRow) -> Outcome<()> {
        for index in table.indexes.iter().filter(|index| index.is_unique) {
            let values: Vec<Value> = index.columns.iter().map(|column| stored[*column].clone()).collect();
            if !values.contains(&Value::Null) {
                self.lock_row(index.oid, || values)?;
            }
        }
        Ok(())
    }

    fn update(&self, table: &TableDef, key: &[Value], row: &Row) -> Outcome<()> {
        let mut stored = to_stored(table, row)?;
        if table.row_numbers.is_some() {
            stored.0.extend(key.last().cloned());
        }
        self.lock_entries(table, &stored)?;
        let new = key_of(table, &stored);
        let engine = self.engine(table);
        let outcome = if new[..] == *key {
            engine.put(self.tx, &stored)
        } else {
            self.lock_row(table.oid, || new)?;
            let removed = engine.delete(self.tx, key).map(drop);
            removed.and_then(|()| engine.insert(self.tx, &stored))
        };
        outcome.map_err(|error| with_values(error, table, &stored).into())
    }
}

/// The row for the engine, without a hidden number.
///
/// # Errors
/// 23502; 22003.
pub fn to_stored(table: &TableDef, row: &[Datum]) -> lodestone_sql_types::Result<EngineRow> {
    let mut stored = Vec::with_capacity(table.columns.len() + 1);
    for (column, datum) in table.columns.iter().zip(row) {
        if datum.is_null() && column.not_null {
            let message = format!(
                "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
                column.name, table.name
            );
            return Err(Error::new(SqlState::NOT_NULL_VIOLATION, message)
                .detail(format!("Failing row contains ({}).", texts(table, row)))
                .table(&table.name)
                .column(&column.name));
        }
        stored.push(value::to_stored(column, datum.clone())?);
    }
    Ok(EngineRow(stored))
}

/// The values of a row, for messages.
fn texts(table: &TableDef, row: &[Datum]) -> String {
    let texts = table.columns.iter().zip(row).map(|(column, datum)| {
        if datum.is_null() { "null".to_owned() } else { text::encode(column.ty, datum).chars().take(64).collect() }
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// The error of the engine, with the columns and values of the row.
fn with_values(error: EngineError, table: &TableDef, row: &EngineRow) -> Error {
    let EngineError::Duplicate { index, .. } = &error else { return from_engine(error) };
    let (name, columns) = constraint_of(table, index.as_deref());
    let shown = |number: &usize| {
        let column = &table.columns[*number];
        value::to_datum(column, row[*number].clone())
            .map_or_else(|_| "?".to_owned(), |datum| text::encode(column.ty, &datum))
    };
    let values: Vec<String> = columns.iter().map(shown).collect();
    duplicate(table, name, columns, &values.join(", "))
}

/// The error of the engine about a row that is not at hand, with the names that SQL has.
pub fn with_names(error: EngineError, table: &TableDef) -> Error {
    let EngineError::Duplicate { index, key, .. } = &error else { return from_engine(error) };
    let (name, columns) = constraint_of(table, index.as_deref());
    duplicate(table, name, columns, key.trim_start_matches('(').trim_end_matches(')'))
}

/// The name and the columns of a unique index; `None`: of the key.
fn constraint_of<'t>(table: &'t TableDef, index: Option<&str>) -> (&'t str, &'t [usize]) {
    let found = index.and_then(|name| table.indexes.iter().find(|other| other.name == name));
    found.map_or((&table.key_name, &table.key), |index| (&index.name, &index.columns))
}

fn duplicate(table: &TableDef, name: &str, columns: &[usize], values: &str) -> Error {
    let names: Vec<&str> = columns.iter().map(|column| table.columns[*column].name.as_str()).collect();
    Error::new(SqlState::UNIQUE_VIOLATION, format!("duplicate key value violates unique constraint \"{name}\""))
        .detail(format!("Key ({})=({values}) already exists.", names.join(", ")))
        .table(&table.name)
        .constraint(name)
}
