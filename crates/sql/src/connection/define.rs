//! Definitions, the catalog of a transaction, and constraints that wait for its end.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use lodestone_engine::{Isolation, Savepoint};
use lodestone_sql_types::style::Style;
use lodestone_sql_types::{Error, Result, SqlState};

use super::statement::{ATTEMPTS_MAX, Place};
use super::transaction::State;
use super::{Completion, Connection, Failure};
use crate::catalog::{Catalog, TableDef, building};
use crate::ddl::{self, Built, Definition};
use crate::errors::from_engine;
use crate::parse::ast::{Modes, NOWHERE, ObjectKind, ObjectName, OnCommit, Statement};
use crate::run::constraint::EventsMark;
use crate::run::{Outcome, Run, Stop};

/// A catalog for the schemas that a session names.
#[derive(Debug)]
pub struct PathCatalog {
    of: u64,
    path: Vec<String>,
    /// How the session reads values: a plan has those of its literals.
    style: Arc<Style>,
    catalog: Arc<Catalog>,
}

impl Connection {
    /// The catalog that statements see: that of the transaction if it has changed tables, and the schemas of the
    /// session.
    pub(super) fn catalog(&mut self) -> Arc<Catalog> {
        let own = self.open.as_ref().and_then(|open| open.catalog.clone());
        let base = own.unwrap_or_else(|| self.database.catalog());
        let path = self.session.settings.borrow().path(&base, &self.session.user);
        let path = self.with_temporary(&base, path);
        let style = self.session.settings.borrow().style().clone();
        if base.path == path && *style == Style::default() {
            return base;
        }
        let is_it = |found: &&PathCatalog| found.of == base.version && found.path == path && found.style == style;
        if let Some(found) = self.path_catalog.as_ref().filter(is_it) {
            return found.catalog.clone();
        }
        let catalog = Arc::new(base.with_path(path.clone()));
        self.path_catalog = Some(PathCatalog { of: base.version, path, style, catalog: catalog.clone() });
        catalog
    }

    /// Takes the newest catalog.
    pub(super) fn follow_catalog(&mut self) {
        let generation = self.session.settings.borrow().generation();
        let has_own = self.open.as_ref().is_some_and(|open| open.catalog.is_some());
        // Of a catalog for the schemas of the session the one that it was made of counts.
        let of = match &self.path_catalog {
            Some(found) if Arc::ptr_eq(&found.catalog, &self.session.catalog) => found.of,
            _ => self.session.catalog.version,
        };
        if has_own || generation != self.path_generation || !self.database.is_newest(of) {
            self.path_generation = generation;
            self.session.catalog = self.catalog();
        }
    }

    /// A definition, as a part of the transaction at hand.
    pub(super) fn define(&mut self, statement: &Statement, place: Place) -> Result<Completion, Failure> {
        let what = ddl::name_of(statement);
        let is_alone = matches!(self.state, State::Idle) && self.open.is_none() && place.is_single && place.is_last;
        for attempt in 1.. {
            self.open(Modes::default())?;
            if self.state == State::Idle {
                self.state = State::Implicit;
            }
            if is_alone && let Some(open) = &mut self.open {
                // It has no other statement whose level it could change.
                open.tx = self.database.0.engine.begin_with(Isolation::Serializable);
            }
            let mut built = Vec::new();
            let defined = self.define_once(statement, is_alone, &mut built);
            if defined.is_ok() {
                self.note_on_commit(statement);
            }
            let outcome = match defined {
                Ok(notices) if self.state == State::Implicit && place.is_last => {
                    self.commit().map(|()| notices).map_err(Failure::Error)
                }
                Ok(notices) => self.wait_for_reads().map(|()| notices).map_err(Failure::Error),
                Err(Stop::Blocked) if self.state == State::Implicit => {
                    self.drop_built(built);
                    self.open = None;
                    self.state = State::Idle;
                    return Err(Failure::Blocked);
                }
                Err(stop) => Err(stop.into()),
            };
            if outcome.is_err() {
                self.drop_built(built);
            }
            match outcome {
                Ok(notices) => {
                    self.tell(notices);
                    return Ok(Completion::Tag(what.to_owned()));
                }
                Err(Failure::Error(error))
                    if is_alone && error.state() == SqlState::SERIALIZATION_FAILURE && attempt < ATTEMPTS_MAX =>
                {
                    self.open = None;
                    self.release_locks();
                    self.state = State::Idle;
                    // The library may have changed a table.
                    self.database.refresh()?;
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(Completion::Empty)
    }

    /// Drops indexes that were built beside a definition which failed: a unique one would go on to refuse rows.
    fn drop_built(&self, built: Vec<Built>) {
        for Built { table, index, oid } in built.into_iter().rev() {
            if let Err(error) = building::drop_index(&self.database.0.engine, (&table, &index), oid) {
                let error = error.message();
                tracing::error!("index {index} of {table} remains, although its definition failed: {error}");
            }
        }
    }

    /// Notes what happens to a new temporary table at the end of transactions.
    fn note_on_commit(&mut self, statement: &Statement) {
        let Statement::CreateTable { name, on_commit: Some(action), .. } = statement else { return };
        if let Some(table) = self.catalog().table(name) {
            self.on_commit.push((table.oid, *action));
        }
    }

    /// Deletes the rows of temporary tables, and drops those that end with the transaction.
    ///
    /// # Errors
    /// 0A000 for rows that foreign keys of other tables name.
    pub(super) fn end_temporary(&mut self) -> Result<()> {
        if self.on_commit.is_empty() || self.open.is_none() {
            return Ok(());
        }
        let catalog = self.catalog();
        let table_of = |(oid, action): &(u32, OnCommit)| Some((catalog.table_of(*oid)?.clone(), *action));
        let tables: Vec<_> = self.on_commit.iter().filter_map(table_of).collect();
        let is_other = |child: &TableDef| !tables.iter().any(|(other, _)| other.oid == child.oid);
        for (table, _) in tables.iter().filter(|(_, action)| *action == OnCommit::DeleteRows) {
            if let Some((child, _)) = catalog.children_of(table).into_iter().find(|(child, _)| is_other(child)) {
                let message = "unsupported ON COMMIT and foreign key combination";
                let (child, table) = (&child.name, &table.name);
                return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message).detail(format!(
                    "Table \"{child}\" references \"{table}\", but they do not have the same ON COMMIT setting."
                )));
            }
            self.remove_all(table)?;
            for (heir, _) in catalog.heirs_of(table) {
                if is_other(&heir) {
                    self.remove_all(&heir)?;
                }
            }
        }
        let name = |table: &TableDef| ObjectName {
            schema: Some(table.schema.clone()),
            name: table.name.clone(),
            at: NOWHERE,
            is_only: false,
        };
        let gone = tables.iter().filter(|(_, action)| *action == OnCommit::Drop);
        let names: Vec<ObjectName> = gone.map(|(table, _)| name(table)).collect();
        if names.is_empty() {
            return Ok(());
        }
        let drop = Statement::Drop { kind: ObjectKind::Table, names, if_exists: true, is_cascade: true };
        match self.define_once(&drop, false, &mut Vec::new()) {
            Ok(_) => Ok(()),
            Err(Stop::Error(error)) => Err(error),
            Err(Stop::Blocked | Stop::Long) => {
                let message = "a temporary table is used by another transaction";
                Err(Error::new(SqlState::LOCK_NOT_AVAILABLE, message))
            }
        }
    }

    /// Carries out a definition once. One that fails leaves nothing but the indexes in `built`.
    fn define_once(&mut self, statement: &Statement, is_alone: bool, built: &mut Vec<Built>) -> Outcome<Vec<Error>> {
        // Tables of SQL itself are there before a snapshot is taken.
        let catalog = self.catalog();
        self.session.catalog = catalog.clone();
        let Some(open) = &mut self.open else { return Ok(Vec::new()) };
        if open.is_read_only {
            let message = format!("cannot execute {} in a read-only transaction", ddl::name_of(statement));
            return Err(Error::new(SqlState::READ_ONLY_SQL_TRANSACTION, message).into());
        }
        let savepoint: Savepoint = open.tx.savepoint().map_err(from_engine)?;
        open.statements += 1;
        let mut definition = Definition {
            database: &self.database,
            tx: &open.tx,
            catalog,
            locker: &self.held,
            session: &mut self.session,
            is_alone,
            built,
            notices: Vec::new(),
        };
        match definition.define(statement) {
            Ok(()) => {
                let (catalog, notices) = (definition.catalog, crate::ddl::gathered(definition.notices));
                open.tx.release(savepoint).map_err(from_engine)?;
                open.catalog = Some(catalog.clone());
                self.session.catalog = catalog;
                Ok(notices)
            }
            Err(stop) => {
                // After a conflict the transaction is lost anyway.
                drop(open.tx.rollback_to(savepoint));
                Err(stop)
            }
        }
    }

    /// SET CONSTRAINTS.
    pub(super) fn set_constraints(&mut self, names: Option<&[ObjectName]>, is_deferred: bool) -> Result<(), Failure> {
        if self.state != State::Explicit {
            self.notice(Error::new(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                "SET CONSTRAINTS can only be used in transaction blocks",
            ));
            return Ok(());
        }
        self.session.catalog = self.catalog();
        let mut numbers = Vec::new();
        for name in names.into_iter().flatten() {
            numbers.extend(self.session.catalog.deferrable_named(name, is_deferred)?);
        }
        let Some(open) = &self.open else { return Ok(()) };
        let mark = open.events.mark();
        match names {
            None => open.events.set_mode(None, is_deferred),
            Some(_) => numbers.into_iter().for_each(|number| open.events.set_mode(Some(number), is_deferred)),
        }
        self.settle_or_undo(&mark, false)
    }

    /// Tests the constraints that are due now; `is_end`: all. Nothing has changed if it has to wait.
    fn settle_or_undo(&self, mark: &EventsMark, is_end: bool) -> Result<(), Failure> {
        let Some(open) = &self.open else { return Ok(()) };
        let savepoint = open.tx.savepoint().map_err(from_engine)?;
        open.events.recall(is_end);
        let outcome = self.settle();
        match &outcome {
            Ok(()) => open.tx.release(savepoint).map_err(from_engine)?,
            Err(Stop::Blocked | Stop::Long) => {
                open.events.go_back(mark);
                open.tx.rollback_to(savepoint).map_err(from_engine)?;
            }
            Err(Stop::Error(_)) => {}
        }
        outcome.map_err(Failure::from)
    }

    /// Tests all constraints before the end of an explicit transaction, which may have to wait for another one. One
    /// that fails ends the transaction.
    pub(super) fn settle_before_end(&mut self) -> Result<(), Failure> {
        let Some(open) = self.open.as_mut().filter(|open| open.events.deferred_count() > 0) else { return Ok(()) };
        open.ends = true;
        let mark = open.events.mark();
        self.session.catalog = self.catalog();
        let outcome = self.settle_or_undo(&mark, true);
        if let Err(Failure::Error(_)) = &outcome {
            self.roll_back();
            self.state = State::Idle;
        }
        outcome
    }

    /// Tests all constraints that wait for the end of the transaction.
    pub(super) fn settle_all(&mut self) -> Result<()> {
        let Some(open) = self.open.as_ref().filter(|open| open.events.deferred_count() > 0) else { return Ok(()) };
        open.events.recall(true);
        self.session.catalog = self.catalog();
        match self.settle() {
            Ok(()) => Ok(()),
            Err(Stop::Error(error)) => Err(error),
            Err(Stop::Blocked | Stop::Long) => {
                let message = "could not serialize access due to a row that another transaction is changing";
                Err(Error::new(SqlState::SERIALIZATION_FAILURE, message)
                    .hint("The transaction might succeed if retried."))
            }
        }
    }

    /// Tests the foreign keys of the rows of a COPY.
    pub(super) fn settle_copy(&self) -> Result<()> {
        match self.settle() {
            Ok(()) => Ok(()),
            Err(Stop::Error(error)) => Err(error),
            Err(Stop::Blocked | Stop::Long) => {
                let message = "could not serialize access due to a row that another transaction is changing";
                Err(Error::new(SqlState::SERIALIZATION_FAILURE, message))
            }
        }
    }

    fn settle(&self) -> Outcome<()> {
        let Some(open) = &self.open else { return Ok(()) };
        let run = Run {
            tx: &open.tx,
            snapshot: None,
            replaced: &open.replaced,
            parameters: &[],
            session: &self.session,
            catalog: &self.session.catalog,
            locker: &self.held,
            events: &open.events,
            watch: &self.session.watch,
            steps: Cell::new(0),
            work: RefCell::default(),
            virtuals: RefCell::default(),
            subqueries: RefCell::default(),
            sides: RefCell::default(),
            stats: None,
        };
        run.settle()
    }
}
