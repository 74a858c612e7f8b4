//! LOCK TABLE, and the locks of statements that take the table as a whole.

use lodestone_sql_types::{Error, Result, SqlState};

use super::statement::Place;
use super::transaction::State;
use super::{Completion, Connection, Failure};
use crate::catalog::Catalog;
use crate::locks::{LockKey, Mode};
use crate::parse::ast::{Modes, ObjectName};
use crate::parse::walk;
use crate::run::Locker;

impl Connection {
    /// Locks tables until the end of the transaction.
    ///
    /// # Errors
    /// 25P01 outside of a block; 42P01; 42809; 55P03 with NOWAIT; 40P01. [`Failure::Blocked`]: call it again later.
    pub(super) fn lock_tables_by_name(
        &mut self,
        tables: &[ObjectName],
        (mode, is_nowait): (Mode, bool),
        place: Place,
    ) -> Result<Completion, Failure> {
        if self.state == State::Idle && place.is_single {
            let message = "LOCK TABLE can only be used in transaction blocks";
            return Err(Error::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, message).into());
        }
        let catalog = self.catalog();
        self.open(Modes::default())?;
        if self.state == State::Idle {
            self.state = State::Implicit;
        }
        let mut found = Vec::new();
        for name in tables {
            meant(&catalog, name, &mut found)?;
        }
        for (table, name) in found {
            if is_nowait {
                self.lock_now(table, &name, mode)?;
            } else {
                self.lock_whole(table, mode)?;
            }
        }
        self.renew();
        Ok(Completion::Tag("LOCK TABLE".into()))
    }

    fn lock_now(&self, table: u32, name: &str, mode: Mode) -> Result<()> {
        if self.held.lock_table_now(table, mode) {
            return Ok(());
        }
        Err(Error::new(SqlState::LOCK_NOT_AVAILABLE, format!("could not obtain lock on relation \"{name}\"")))
    }

    /// Locks a table. A transaction that has done nothing yet begins again when it has waited.
    pub(super) fn lock_whole(&mut self, table: u32, mode: Mode) -> Result<(), Failure> {
        let is_held = match mode {
            Mode::AccessShare | Mode::RowShare | Mode::RowExclusive => self.held.lock_table(table, mode)?,
            _ => self.held.lock(LockKey::table(table), mode)?,
        };
        if is_held {
            return Ok(());
        }
        if self.state == State::Implicit && self.open.as_ref().is_some_and(|open| open.statements == 0) {
            self.open = None;
            self.state = State::Idle;
        }
        Err(Failure::Blocked)
    }

    /// As `PostgreSQL`, whose first snapshot is that of the first query: it comes after the locks before it.
    pub(super) fn renew(&mut self) {
        if self.open.as_ref().is_some_and(|open| open.statements == 0 && open.savepoints.is_empty()) {
            self.restart_transaction();
        }
    }
}

/// The tables that a name means: those of a view as well.
fn meant(catalog: &Catalog, name: &ObjectName, found: &mut Vec<(u32, String)>) -> Result<()> {
    if let Some(table) = catalog.table(name) {
        found.push((table.oid, table.name.clone()));
        return Ok(());
    }
    let full = catalog.resolve(name.schema.as_deref(), &name.name).unwrap_or_default();
    if let Some(view) = catalog.views.get(&full) {
        // Views can name each other in a circle.
        if found.iter().any(|(oid, _)| *oid == view.oid) {
            return Ok(());
        }
        found.push((view.oid, view.name.clone()));
        let inside = catalog.with_path(view.path.clone());
        let mut names = Vec::new();
        walk::tables(&view.query, &mut names);
        // Names of its own WITH are among them.
        let is_there = |name: &&ObjectName| inside.resolve(name.schema.as_deref(), &name.name).is_some();
        return names.iter().filter(is_there).try_for_each(|name| meant(&inside, name, found));
    }
    if catalog.resolve(name.schema.as_deref(), &name.name).is_some() {
        let message = format!("cannot lock relation \"{}\"", name.name);
        return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message)
            .detail("This operation is not supported for sequences.")
            .at(name.at));
    }
    if crate::pgcatalog::find(name.schema.as_deref(), &name.name).is_some() {
        return Err(Error::unsupported("LOCK TABLE of a table of the catalog").at(name.at));
    }
    let shown = name.schema.as_ref().map_or(name.name.clone(), |schema| format!("{schema}.{}", name.name));
    Err(Error::new(SqlState::UNDEFINED_TABLE, format!("relation \"{shown}\" does not exist")).at(name.at))
}
