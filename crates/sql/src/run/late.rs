//! Keys that are tested late: DEFERRABLE ones.
//!
//! Their index is not unique for the engine, so rows with the same key can stand beside each other for a while. A row
//! that gets a key notes an event, and [`Run::test_late`] looks whether the key has one row, at the end of the
//! statement or of the transaction (`constraint.rs`).
//!
//! Two transactions never commit two rows with one key:
//!
//! 1. The test holds a lock of the key, until its transaction has committed. So of two transactions that add the key,
//!    the second one tests after the first one has ended, and sees its row.
//! 2. The lock is tried for when the row gets the key, without waiting, as a transaction that was first should win. If
//!    there is no other row then, nothing needs to be tested.
//! 3. The test counts the newest committed rows, and the own changes. A transaction that reads a snapshot therefore
//!    looks at the rows of now as well ([`Run::rows_with`]). A serializable one has the range among what its commit
//!    validates.
//! 4. A row in the way may be one that another transaction changes or removes, and so may not be there any more when
//!    that one ends. So the rows are locked, which waits for it, and counted again.

use std::sync::Arc;

use lodestone_engine::{Error as EngineError, Isolation, Row as EngineRow, Value};
use lodestone_sql_types::{Error, SqlState, text};

use super::change::{NEW, duplicate};
use super::scan::{Key, key_of, lock_key};
use super::{Outcome, Row, Run, stored_at};
use crate::catalog::{IndexDef, TableDef, value};
use crate::connection::find_replaced;
use crate::errors::from_engine;
use crate::locks::Mode;

/// A key that a row has got.
#[derive(Clone, Debug)]
pub struct LateEvent {
    table: Arc<TableDef>,
    /// The place of the index in the table, and the values of its columns.
    index: usize,
    values: Vec<Value>,
}

impl LateEvent {
    /// The number of the constraint, whether its test may wait, and whether it does at first.
    pub(super) fn timing(&self) -> (u32, bool, bool) {
        let index = &self.table.indexes[self.index];
        (index.oid, index.late.is_some(), index.late.is_some_and(|late| late.is_deferred))
    }
}

impl Run<'_> {
    /// Notes the late keys of a row that was written. `changed`: it was another one before.
    pub(super) fn note_late(&self, table: &TableDef, stored: &EngineRow, changed: Option<(&Row, &Row)>) -> Outcome<()> {
        if !table.has_late_keys() {
            return Ok(());
        }
        let Some(known) = self.catalog.tables.get(&table.full) else { return Ok(()) };
        for (number, index) in table.indexes.iter().enumerate().filter(|(_, index)| index.late.is_some()) {
            if changed.is_some_and(|(old, new)| index.columns.iter().all(|column| old[*column] == new[*column])) {
                continue;
            }
            let values: Vec<Value> = index.columns.iter().map(|column| stored_at(table, stored, *column)).collect();
            if values.contains(&Value::Null) {
                continue;
            }
            let has_lock = self.locker.lock_now(lock_key(index.oid, &values), NEW);
            // As in PostgreSQL, only a key that may be a duplicate is tested later: no other transaction adds it
            // meanwhile. A serializable transaction does not look now, as the row in the way may be about to go, which
            // would be a conflict then.
            let looks = has_lock && self.locker.locks() && self.tx.isolation() != Isolation::Serializable;
            if looks && self.rows_with(table, number, &values)?.len() < 2 {
                continue;
            }
            self.events.push(super::constraint::Event::Late(LateEvent { table: known.clone(), index: number, values }));
        }
        Ok(())
    }

    /// Tests whether a key has one row at most.
    pub(super) fn test_late(&self, event: &LateEvent) -> Outcome<()> {
        let noted = &event.table.indexes[event.index];
        // The transaction may have changed or dropped the table since.
        let Some(table) = self.catalog.table_of(event.table.oid) else { return Ok(()) };
        let Some(number) = table.indexes.iter().position(|index| index.oid == noted.oid) else { return Ok(()) };
        let index = &table.indexes[number];
        let kinds = |table: &TableDef, index: &IndexDef| -> Vec<_> {
            index.columns.iter().map(|column| table.columns[*column].kind).collect()
        };
        // With other types of its columns all rows of the table were written, and tested.
        if kinds(table, index) != kinds(&event.table, noted) {
            return Ok(());
        }
        let lock = lock_key(index.oid, &event.values);
        if !self.locker.lock_now(lock.clone(), NEW) {
            // Its row may have gone again: then there is nothing to wait for. A serializable transaction reads nothing
            // before the lock, as that would be a conflict when the other one commits.
            let is_read = self.tx.isolation() != Isolation::Serializable;
            if is_read && self.rows_with(table, number, &event.values)?.is_empty() {
                return Ok(());
            }
            self.lock(lock, NEW)?;
        }
        let rows = self.rows_with(table, number, &event.values)?;
        if rows.len() < 2 {
            return Ok(());
        }
        for key in &rows {
            self.lock(lock_key(table.oid, key), Mode::ShareRow)?;
        }
        if self.rows_with(table, number, &event.values)?.len() < 2 {
            return Ok(());
        }
        let shown = index.columns.iter().zip(&event.values).map(|(column, found)| {
            let column = &table.columns[*column];
            value::to_datum(column, found.clone())
                .map_or_else(|_| "?".to_owned(), |datum| text::encode(column.ty, &datum))
        });
        let shown = shown.collect::<Vec<_>>().join(", ");
        Err(duplicate(table, &index.name, &index.columns, &shown).into())
    }

    /// The keys of the newest rows with these values in an index: those that are committed by now, with the own changes
    /// laid over them.
    fn rows_with(&self, table: &TableDef, number: usize, values: &[Value]) -> Outcome<Vec<Key>> {
        let index = self.index(table, number);
        let bound = || EngineRow(values.to_vec());
        let keys = |rows: lodestone_engine::IndexRows<'_>| -> Outcome<Vec<Key>> {
            rows.map(|row| Ok(key_of(table, &row.map_err(from_engine)?))).collect()
        };
        let own = match index.range(self.tx, bound()..=bound()) {
            Ok(rows) => keys(rows)?,
            // The index is newer than the snapshot: the commit would fail as well.
            Err(EngineError::NoIndex { .. }) => {
                let message = "could not serialize access due to concurrent update";
                return Err(Error::new(SqlState::SERIALIZATION_FAILURE, message).into());
            }
            Err(error) => return Err(from_engine(error).into()),
        };
        let has_snapshot = matches!(self.tx.isolation(), Isolation::Snapshot | Isolation::SerializableOnSnapshot);
        // Rows of the transaction alone: no other one sees the table.
        if !has_snapshot || find_replaced(self.replaced, table.oid).is_some() {
            return Ok(own);
        }
        let Some(now) = self.locker.newest()? else { return Ok(own) };
        let newest = match index.range(&now, bound()..=bound()) {
            Ok(rows) => keys(rows)?,
            // The transaction has made the table, or the index.
            Err(
                EngineError::NoIndex { .. }
                | EngineError::NoTable { .. }
                | EngineError::IndexNotReady { .. }
                | EngineError::TableChanged { .. },
            ) => return Ok(own),
            Err(error) => return Err(from_engine(error).into()),
        };
        // A row that is unchanged since the snapshot is as the transaction sees it. Of one that another transaction has
        // changed the newest version counts: if the transaction has changed it too, its commit fails.
        let engine = self.engine(table);
        let mut found = Vec::new();
        for key in &own {
            if newest.contains(key) || engine.is_newest(self.tx, key).map_err(from_engine)? {
                found.push(key.clone());
            }
        }
        for key in newest {
            if !own.contains(&key) && !engine.is_newest(self.tx, &key).map_err(from_engine)? {
                found.push(key);
            }
        }
        Ok(found)
    }
}
