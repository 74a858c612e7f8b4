//! Tables that get other rows as a whole: COPY into one without rows, and TRUNCATE.
//!
//! The engine loads the rows into pages, and the transaction gives the table these in place of its own
//! ([`put_loaded`](lodestone_engine::Database::put_loaded)). Until it commits only its own statements see them: by the
//! handles in [`Replaced`]. Savepoints take them back.
//!
//! No row of another transaction may be lost:
//! - TRUNCATE removes all rows that were committed before it. A transaction that used the table and has not committed
//!   meets a conflict.
//! - COPY looks whether the table has rows. At the level SERIALIZABLE the commit validates that. At the other levels a
//!   table is loaded only after a TRUNCATE of the same transaction.

use lodestone_engine::{Error as EngineError, Table, TableIndex, TableLoad};
use lodestone_sql_types::Result;

use super::Connection;
use super::transaction::Open;
use crate::catalog::TableDef;
use crate::errors::from_engine;

/// Rows that TRUNCATE deletes one by one.
const DELETED_ROWS_MAX: usize = 100;

/// A table with other rows, for the transaction that gave it these.
#[derive(Debug)]
pub struct Replaced {
    pub oid: u32,
    pub engine: Table,
    pub indexes: Vec<TableIndex>,
    /// Savepoints that the transaction had then.
    pub savepoints: usize,
}

impl Open {
    /// The table as the transaction sees it.
    pub fn engine<'o>(&'o self, table: &'o TableDef) -> &'o Table {
        find(&self.replaced, table.oid).map_or(&table.engine, |found| &found.engine)
    }

    /// The transaction goes back to its savepoint with this number.
    pub fn undo_to(&mut self, number: usize) {
        self.replaced.retain(|found| found.savepoints <= number);
    }

    /// The savepoint with this number ends, and so do the later ones.
    pub fn release_from(&mut self, number: usize) {
        self.replaced.iter_mut().for_each(|found| found.savepoints = found.savepoints.min(number));
    }
}

/// The table with this number, if it has other rows. The last ones count.
pub fn find(replaced: &[Replaced], oid: u32) -> Option<&Replaced> {
    replaced.iter().rev().find(|found| found.oid == oid)
}

impl Connection {
    /// Whether rows for the table may be loaded. Rows with conditions go into the transaction, which tests them.
    pub(super) fn may_load(&self, table: &TableDef) -> Result<bool> {
        let Some(open) = &self.open else { return Ok(false) };
        if table.engine.schema().is_dual()
            || !table.checks.is_empty()
            || table.partition_by.is_some()
            || !table.parents.is_empty()
            || !table.foreign_keys.is_empty()
            || table.has_domains()
            || table.has_late_keys()
            || !table.generated.is_empty()
        {
            return Ok(false);
        }
        let engine = open.engine(table);
        let is_own = find(&open.replaced, table.oid).is_some();
        let is_quiet = !open.tx.makes_trees().map_err(from_engine)?
            && !engine.is_changed_in(&open.tx)
            && engine.indexes_being_built().next().is_none();
        if !is_quiet || !is_own && self.session.level != "serializable" {
            return Ok(false);
        }
        Ok(engine.range(&open.tx, ..).map_err(from_engine)?.next().transpose().map_err(from_engine)?.is_none())
    }

    /// Begins to load rows for a table. `None`: they must go into the transaction.
    pub(super) fn begin_load(&self, table: &TableDef) -> Result<Option<TableLoad>> {
        if table.engine.schema().is_dual() {
            // A load writes pages, and these rows are in cells.
            return Ok(None);
        }
        match self.database.0.engine.begin_load(table.engine.schema()) {
            Ok(load) => Ok(Some(load)),
            // Those who follow the log must see the rows.
            Err(EngineError::FeedOpen { .. }) => Ok(None),
            Err(error) => Err(from_engine(error)),
        }
    }

    /// Gives the table the rows of a load.
    pub(super) fn end_load(&mut self, table: &TableDef, load: TableLoad) -> Result<()> {
        let with_names = |error| crate::run::with_names(error, table);
        let loaded = load.finish().map_err(with_names)?;
        let Some(open) = &mut self.open else { return Ok(()) };
        let engine = self.database.0.engine.put_loaded(&open.tx, loaded).map_err(with_names)?;
        let index = |index: &crate::catalog::IndexDef| engine.index(&index.name).map_err(from_engine);
        let indexes = table.indexes.iter().map(index).collect::<Result<_>>()?;
        open.replaced.push(Replaced { oid: table.oid, engine, indexes, savepoints: open.savepoints.len() });
        Ok(())
    }

    /// Removes all rows of a table, as part of the transaction.
    pub(super) fn remove_all(&mut self, table: &TableDef) -> Result<()> {
        let Some(open) = &self.open else { return Ok(()) };
        let engine = open.engine(table).clone();
        let savepoint = open.tx.savepoint().map_err(from_engine)?;
        let mut count = 0;
        let mut are_many = false;
        for row in engine.range(&open.tx, ..).map_err(from_engine)? {
            let row = row.map_err(from_engine)?;
            count += 1;
            are_many = count > DELETED_ROWS_MAX && !open.tx.makes_trees().map_err(from_engine)?;
            if are_many {
                break;
            }
            engine.delete(&open.tx, &crate::run::key_of(table, &row)).map_err(from_engine)?;
        }
        if are_many {
            open.tx.rollback_to(savepoint).map_err(from_engine)?;
        }
        open.tx.release(savepoint).map_err(from_engine)?;
        if are_many
            && engine.indexes_being_built().next().is_none()
            && let Some(load) = self.begin_load(table)?
        {
            return self.end_load(table, load);
        }
        if are_many { self.delete_all(table, &engine) } else { Ok(()) }
    }

    /// Deletes the rows of a table one by one.
    fn delete_all(&self, table: &TableDef, engine: &Table) -> Result<()> {
        let Some(open) = &self.open else { return Ok(()) };
        for row in engine.range(&open.tx, ..).map_err(from_engine)? {
            let key = crate::run::key_of(table, &row.map_err(from_engine)?);
            engine.delete(&open.tx, &key).map_err(from_engine)?;
        }
        Ok(())
    }
}
