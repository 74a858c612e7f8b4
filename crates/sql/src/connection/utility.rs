//! Statements about transactions, settings, tables and upkeep.

use std::sync::Arc;

use lodestone_sql_types::{Datum, Error, Result, SqlState};

use super::statement::Place;
use super::transaction::{State, level_name};
use super::{Completion, Connection, Failure, OutputColumn, Sink};
use crate::catalog::{Catalog, TableDef};
use crate::ddl;
use crate::errors::from_engine;
use crate::locks::Mode;
use crate::parse::ast::{Discard, Modes, ObjectName, RoleChange, RoleVerb, Statement};

fn tag(text: &str) -> Result<Completion, Failure> {
    Ok(Completion::Tag(text.to_owned()))
}

impl Connection {
    pub(super) fn utility(
        &mut self,
        (statement, parameters): (&Statement, &[Datum]),
        columns: &[OutputColumn],
        place: Place,
        sink: &mut dyn Sink,
    ) -> Result<Completion, Failure> {
        match statement {
            Statement::Begin { modes, is_start } => {
                self.begin(*modes)?;
                tag(if *is_start { "START TRANSACTION" } else { "BEGIN" })
            }
            Statement::Commit => Ok(Completion::Tag(self.end()?.to_owned())),
            Statement::Rollback => {
                self.abort();
                tag("ROLLBACK")
            }
            Statement::Chain { is_rollback } => Ok(Completion::Tag(self.chain(*is_rollback)?.to_owned())),
            Statement::Savepoint(name) => {
                self.savepoint(name)?;
                tag("SAVEPOINT")
            }
            Statement::RollbackTo(name) => {
                self.go_to_savepoint(name, false)?;
                tag("ROLLBACK")
            }
            Statement::Release(name) => {
                self.go_to_savepoint(name, true)?;
                tag("RELEASE")
            }
            Statement::Set { name, value, is_local, is_reset } => {
                self.change_setting(name, value.as_deref(), *is_local)?;
                tag(if *is_reset { "RESET" } else { "SET" })
            }
            Statement::SetTransaction { modes, is_session } => {
                self.set_transaction(*modes, *is_session)?;
                tag("SET")
            }
            Statement::Show(name) => self.show_setting(name, columns, sink),
            Statement::Vacuum(tables) => {
                self.refuse_inside("VACUUM", place)?;
                self.find_all(tables)?;
                tag("VACUUM")
            }
            Statement::Analyze(tables) => {
                self.find_all(tables)?;
                tag("ANALYZE")
            }
            Statement::Checkpoint => {
                self.database.0.engine.checkpoint().map_err(from_engine)?;
                tag("CHECKPOINT")
            }
            Statement::Discard(what) => self.discard(*what, place),
            Statement::CreateTableAs { table, query } => self.create_table_as(table, query, place, sink),
            Statement::Lock { tables, mode, is_nowait } => self.lock_tables_by_name(tables, (*mode, *is_nowait), place),
            Statement::Unlisten => tag("UNLISTEN"),
            Statement::Deallocate(None) => {
                self.statements.clear();
                tag("DEALLOCATE ALL")
            }
            Statement::Deallocate(Some(name)) => {
                if self.statements.remove(name).is_none() {
                    let message = format!("prepared statement \"{name}\" does not exist");
                    return Err(Error::new(SqlState::INVALID_SQL_STATEMENT_NAME, message).into());
                }
                tag("DEALLOCATE")
            }
            Statement::Prepare { name, types, statement } => {
                self.prepare_named(name, types, statement)?;
                tag("PREPARE")
            }
            Statement::Execute { name, arguments } => {
                self.execute_named(name, arguments, place, self.shows_columns, sink)
            }
            Statement::Explain { options, statement } => self.explain(*options, statement, (columns, place), sink),
            Statement::Declare { name, is_scroll, is_hold, query } => {
                self.declare(name, (*is_scroll, *is_hold), (query, parameters))?;
                tag("DECLARE CURSOR")
            }
            Statement::Fetch { name, direction, is_move } => {
                self.fetch(name, *direction, *is_move, self.shows_columns, sink)
            }
            Statement::Close(name) => tag(self.close_cursor(name.as_deref())?),
            Statement::Truncate { tables, is_cascade } => self.truncate(tables, *is_cascade, place),
            Statement::SetConstraints { names, is_deferred } => {
                self.set_constraints(names.as_deref(), *is_deferred)?;
                tag("SET CONSTRAINTS")
            }
            Statement::Role(change) => self.change_role(change, place),
            definition => self.define(definition, place),
        }
    }

    /// Forgets a part of the session's state.
    fn discard(&mut self, what: Discard, place: Place) -> Result<Completion, Failure> {
        match what {
            Discard::Plans => tag("DISCARD PLANS"),
            Discard::Sequences => {
                self.session.sequences = Default::default();
                tag("DISCARD SEQUENCES")
            }
            Discard::Temporary => {
                self.refuse_inside("DISCARD TEMP", place)?;
                self.drop_temporary();
                tag("DISCARD TEMP")
            }
            Discard::All => {
                self.refuse_inside("DISCARD ALL", place)?;
                self.drop_temporary();
                self.statements.clear();
                self.portals.clear();
                self.close_cursor(None)?;
                self.session.sequences = Default::default();
                self.change_setting("all", None, false)?;
                tag("DISCARD ALL")
            }
        }
    }

    /// Refuses a statement that cannot be part of a transaction.
    fn refuse_inside(&self, what: &str, place: Place) -> Result<()> {
        if matches!(self.state, State::Explicit | State::Failed) || self.open.is_some() || !place.is_single {
            let message = format!("{what} cannot run inside a transaction block");
            return Err(Error::new(SqlState::ACTIVE_SQL_TRANSACTION, message));
        }
        Ok(())
    }

    fn find_all(&self, tables: &[ObjectName]) -> Result<()> {
        let missing = |name: &&ObjectName| {
            self.session.catalog.table(name).is_none()
                && crate::pgcatalog::find(name.schema.as_deref(), &name.name).is_none()
        };
        match tables.iter().find(missing) {
            Some(name) => Err(ddl::no_relation(name)),
            None => Ok(()),
        }
    }

    fn change_setting(&mut self, name: &str, value: Option<&str>, is_local: bool) -> Result<()> {
        if is_local && self.state != State::Explicit {
            self.notice(Error::new(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                "SET LOCAL can only be used in transaction blocks",
            ));
        }
        let is_all = name == "all" && value.is_none();
        let reports = if is_all {
            self.session.settings.borrow_mut().reset_all()?
        } else {
            self.session.settings.borrow_mut().set(name, value, is_local)?.into_iter().collect()
        };
        self.session.reports.borrow_mut().extend(reports);
        if self.state == State::Idle {
            let reports = self.session.settings.borrow_mut().end(true);
            self.session.reports.borrow_mut().extend(reports);
            if is_all || name == "default_transaction_isolation" {
                self.session.level = self.session.settings.borrow().get("default_transaction_isolation")?;
            }
        }
        Ok(())
    }

    fn set_transaction(&mut self, modes: Modes, is_session: bool) -> Result<()> {
        if is_session {
            if let Some(level) = modes.isolation {
                self.change_setting("default_transaction_isolation", Some(level_name(level)), false)?;
            }
            if let Some(is_read_only) = modes.is_read_only {
                let value = if is_read_only { "on" } else { "off" };
                self.change_setting("default_transaction_read_only", Some(value), false)?;
            }
            return Ok(());
        }
        if self.state != State::Explicit {
            self.notice(Error::new(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                "SET TRANSACTION can only be used in transaction blocks",
            ));
            return Ok(());
        }
        self.set_modes(modes)
    }

    fn show_setting(
        &mut self,
        name: &str,
        columns: &[OutputColumn],
        sink: &mut dyn Sink,
    ) -> Result<Completion, Failure> {
        if name == "all" {
            let all: Vec<_> = self.session.settings.borrow().all().collect();
            for (name, value) in all {
                sink.row(&[Datum::Text(name), Datum::Text(value)], columns)?;
            }
        } else {
            let value = self.show(name)?;
            sink.row(&[Datum::Text(value)], columns)?;
        }
        tag("SHOW")
    }

    /// Deletes all rows, as part of the transaction.
    fn truncate(&mut self, tables: &[ObjectName], is_cascade: bool, place: Place) -> Result<Completion, Failure> {
        let is_other = |name: &&ObjectName| {
            let full = self.session.catalog.resolve(name.schema.as_deref(), &name.name).unwrap_or_default();
            self.session.catalog.views.contains_key(&full) || self.session.catalog.sequences.contains_key(&full)
        };
        if let Some(name) = tables.iter().find(is_other) {
            return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{}\" is not a table", name.name)).into());
        }
        self.find_all(tables)?;
        self.open(Modes::default())?;
        if self.state == State::Idle {
            self.state = State::Implicit;
        }
        if let Some(open) = &self.open
            && open.is_read_only
        {
            let message = "cannot execute TRUNCATE TABLE in a read-only transaction";
            return Err(Error::new(SqlState::READ_ONLY_SQL_TRANSACTION, message).into());
        }
        let catalog = self.session.catalog.clone();
        let mut found: Vec<Arc<TableDef>> = Vec::new();
        for name in tables {
            let Some(table) = catalog.table(name) else { continue };
            if name.is_only && table.partition_by.is_some() {
                let message = "cannot truncate only a partitioned table";
                let hint = "Do not specify the ONLY keyword, or use TRUNCATE ONLY on the partitions directly.";
                return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message).hint(hint).into());
            }
            let heirs = if name.is_only { Vec::new() } else { catalog.heirs_of(table) };
            let all = [table.clone()].into_iter().chain(heirs.into_iter().map(|(heir, _)| heir));
            for table in all {
                if !found.iter().any(|other| other.oid == table.oid) {
                    found.push(table);
                }
            }
        }
        if is_cascade {
            self.with_children(&catalog, &mut found);
        }
        for table in &found {
            self.lock_whole(table.oid, Mode::AccessExclusive)?;
        }
        self.renew();
        if let Some(open) = &mut self.open {
            open.statements += 1;
        }
        for table in &found {
            let children = catalog.children_of(table).into_iter();
            let mut others = children.filter(|(child, _)| found.iter().all(|other| other.oid != child.oid));
            if let Some((child, number)) = others.next() {
                let message = "cannot truncate a table referenced in a foreign key constraint";
                let (child, key) = (&child.name, &child.foreign_keys[*number].name);
                return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                    .detail(format!("Table \"{child}\" references \"{}\" by the constraint \"{key}\".", table.name))
                    .into());
            }
        }
        for table in &found {
            self.remove_all(table)?;
        }
        if self.state == State::Implicit && place.is_last {
            self.commit()?;
        } else {
            self.wait_for_reads()?;
        }
        tag("TRUNCATE TABLE")
    }

    /// Adds the tables whose foreign keys lead to those that were found, and so on.
    fn with_children(&mut self, catalog: &Catalog, found: &mut Vec<Arc<TableDef>>) {
        let mut first = 0;
        while first < found.len() {
            let last = found.len();
            let mut children: Vec<_> = found[first..].iter().flat_map(|table| catalog.children_of(table)).collect();
            children.sort_by_key(|(child, _)| child.oid);
            for (child, _) in children {
                let heirs = catalog.heirs_of(child).into_iter().map(|(heir, _)| heir);
                for table in [child.clone()].into_iter().chain(heirs) {
                    if found.iter().all(|other| other.oid != table.oid) {
                        let message = format!("truncate cascades to table \"{}\"", table.name);
                        self.notice(Error::new(SqlState::SUCCESS, message));
                        found.push(table);
                    }
                }
            }
            first = last;
        }
    }

    /// A change of a role: a transaction of its own.
    fn change_role(&mut self, change: &RoleChange, place: Place) -> Result<Completion, Failure> {
        let what = match change.verb {
            RoleVerb::Create => "CREATE ROLE",
            RoleVerb::Alter => "ALTER ROLE",
            RoleVerb::Drop => "DROP ROLE",
        };
        self.refuse_inside(what, place)?;
        let mut change = change.clone();
        if change.is_own {
            change.name.clone_from(&self.session.user);
        }
        change.is_own = change.name == self.session.user;
        let notice = crate::roles::change(&self.database.0.engine, &change)?;
        self.tell(notice);
        tag(what)
    }
}
