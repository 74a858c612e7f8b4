//! Running a statement.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use lodestone_engine::{Isolation, Savepoint};
use lodestone_sql_types::func::Session as _;
use lodestone_sql_types::{Datum, Error, Result, SqlState, Type, text, time};
use smallvec::SmallVec;

use super::copy::CopyOut;
use super::transaction::State;
use super::{Completion, Connection, Failure, OutputColumn, Pressure, SessionState, SimpleQuery, Sink, Waiting};
use crate::catalog::Catalog;
use crate::database::Prepared;
use crate::errors::from_engine;
use crate::literals::Pattern;
use crate::parse::ast::{Discard, Modes, Statement};
use crate::parse::parse;
use crate::plan::{Action, Change, Plan};
use crate::run::point::{PointAnswer, PointQuery};
use crate::run::{Flow, Outcome, Run, Stop};

/// Most attempts of a statement that meets conflicts.
pub const ATTEMPTS_MAX: u32 = 100;

/// Most statements of simple queries that a connection keeps, and the longest text of them.
const FREQUENT_MAX: usize = 16;
const FREQUENT_BYTES_MAX: usize = 256;

/// Whether a statement is the only one of its message, and the last one.
#[derive(Clone, Copy)]
pub struct Place {
    pub is_single: bool,
    pub is_last: bool,
}

/// Does the work that comes before the first row of a plan.
fn begin(run: &Run<'_>, plan: &Plan) -> Outcome<()> {
    run.compute_constants(plan)?;
    run_first(run, plan)
}

/// Runs the changes in WITH, and keeps the rows that they return.
fn run_first(run: &Run<'_>, plan: &Plan) -> Outcome<()> {
    for first in &plan.first {
        let mut rows = Vec::new();
        run.change(&first.change, first.returned.as_deref(), &mut |row| {
            rows.push(row);
            Ok(Flow::More)
        })?;
        run.work.borrow_mut().insert(first.number, Rc::new(rows));
    }
    Ok(())
}

impl Connection {
    /// Reads the statements of a simple query.
    ///
    /// # Errors
    /// As the parser. A transaction fails by it.
    pub fn simple(&mut self, text: &str) -> Result<SimpleQuery> {
        let _style = self.enter_style();
        self.show_begin(Some(text));
        self.follow_catalog();
        if let Some(query) = self.frequent_query(text) {
            return Ok(query);
        }
        let catalog = self.session.catalog.clone();
        if let Some(prepared) = self.database.find(text, &[], &catalog) {
            return Ok(SimpleQuery::one(self.own(text, &prepared), SmallVec::new()));
        }
        let pattern = Pattern::of(text);
        if let Some(pattern) = &pattern
            && let Some(Some(prepared)) = self.database.find_pattern(pattern, &catalog)
        {
            return Ok(SimpleQuery::one(self.own(&pattern.key, &prepared), pattern.values.clone()));
        }
        let statements = parse(text).inspect_err(|_| self.fail())?;
        let is_single = statements.len() == 1;
        let mut rest: SmallVec<[Waiting; 1]> = SmallVec::new();
        for statement in statements {
            // A plan with values in its text is used once, as a rule; one for the statements of transactions often.
            rest.push(Waiting::Statement(Box::new(statement)));
        }
        if let (Some(pattern), true, [Waiting::Statement(statement)]) = (&pattern, is_single, &rest[..])
            && self.database.find_pattern(pattern, &catalog).is_none()
        {
            self.database.prepare_pattern(pattern, statement, &catalog);
        }
        if let (true, Some(Waiting::Statement(statement))) = (is_single, rest.last())
            && is_worth_keeping(statement)
            && !matches!(self.state, State::Failed)
        {
            let prepared = self.prepare_in(&catalog, Some(text), (**statement).clone(), &[]);
            rest = SmallVec::from_buf([Waiting::Prepared(prepared.inspect_err(|_| self.fail())?, SmallVec::new())]);
        }
        rest.reverse();
        Ok(SimpleQuery { rest, is_single })
    }

    /// The query of a text that this connection has used lately. It shares nothing with others.
    fn frequent_query(&self, text: &str) -> Option<SimpleQuery> {
        let is_of = |prepared: &&Arc<Prepared>| prepared.is_of(&self.session.catalog);
        if self.frequent.is_empty() {
            return None;
        }
        // A text that a client made to look like a pattern has no values.
        if let Some(prepared) = self.frequent.get(text).filter(is_of).filter(|prepared| prepared.types.is_empty()) {
            return Some(SimpleQuery::one(prepared.clone(), SmallVec::new()));
        }
        let pattern = Pattern::of(text)?;
        let prepared = self.frequent.get(&pattern.key).filter(is_of)?;
        Some(SimpleQuery::one(prepared.clone(), pattern.values))
    }

    /// The statement for this connection alone, which is kept under `key`.
    fn own(&mut self, key: &str, prepared: &Prepared) -> Arc<Prepared> {
        let own = Arc::new(prepared.own());
        if key.len() <= FREQUENT_BYTES_MAX {
            if self.frequent.len() >= FREQUENT_MAX {
                self.frequent.clear();
            }
            self.frequent.insert(key.to_owned(), own.clone());
        }
        own
    }

    /// Runs the next statement of a simple query.
    ///
    /// # Errors
    /// The statement's. The rest of the query does not run then. [`Failure::Blocked`]: call it again later.
    pub fn next(&mut self, query: &mut SimpleQuery, sink: &mut dyn Sink) -> Result<Completion, Failure> {
        let _style = self.enter_style();
        let Some(waiting) = query.rest.last() else { return Ok(Completion::Empty) };
        let place = Place { is_single: query.is_single, is_last: query.rest.len() == 1 };
        let (prepared, values) = match waiting {
            Waiting::Prepared(prepared, values) => {
                let (mut prepared, values) = (prepared.clone(), values.clone());
                self.follow_catalog();
                if !prepared.is_of(&self.session.catalog) {
                    // The tables have changed while it waited for a lock of them. Its columns were told to no client.
                    let (catalog, statement) = (self.session.catalog.clone(), (*prepared.statement).clone());
                    let again = self.prepare_in(&catalog, None, statement, &prepared.types);
                    prepared = again.inspect_err(|_| self.fail())?;
                }
                (prepared, values)
            }
            Waiting::Statement(statement) => {
                self.refuse_if_failed(statement)?;
                let statement = (**statement).clone();
                let catalog = self.catalog();
                let prepared = self.prepare_in(&catalog, None, statement, &[]).inspect_err(|_| self.fail())?;
                // A blocked statement comes back.
                if let Some(place) = query.rest.last_mut() {
                    *place = Waiting::Prepared(prepared.clone(), SmallVec::new());
                }
                (prepared, SmallVec::new())
            }
        };
        let outcome = self.run_statement(&prepared, &values, place, true, sink);
        if !matches!(outcome, Err(Failure::Blocked | Failure::Long)) {
            query.rest.pop();
        }
        outcome
    }

    /// Prepares a statement for the catalog of this connection.
    pub(super) fn prepare_in(
        &mut self,
        catalog: &Arc<Catalog>,
        text: Option<&str>,
        statement: Statement,
        types: &[Type],
    ) -> Result<Arc<Prepared>> {
        match self.database.prepare(text, statement.clone(), types, catalog) {
            // The library may have made a table since the catalog was read.
            Err(error)
                if error.state() == SqlState::UNDEFINED_TABLE
                    && self.open.as_ref().is_none_or(|open| open.catalog.is_none()) =>
            {
                self.database.refresh()?;
                let catalog = self.catalog();
                self.database.prepare(text, statement, types, &catalog)
            }
            other => other,
        }
    }

    pub(super) fn refuse_if_failed(&self, statement: &Statement) -> Result<()> {
        let ends = matches!(
            statement,
            Statement::Commit | Statement::Rollback | Statement::Chain { .. } | Statement::RollbackTo(_)
        );
        if self.state == State::Failed && !ends {
            let message = "current transaction is aborted, commands ignored until end of transaction block";
            return Err(Error::new(SqlState::IN_FAILED_SQL_TRANSACTION, message));
        }
        Ok(())
    }

    /// Runs a statement. `shows_columns`: the sink is told of them.
    pub(super) fn run_statement(
        &mut self,
        prepared: &Arc<Prepared>,
        parameters: &[Datum],
        place: Place,
        shows_columns: bool,
        sink: &mut dyn Sink,
    ) -> Result<Completion, Failure> {
        self.refuse_if_failed(&prepared.statement)?;
        self.begin_clock();
        let outcome = self.run_inside(prepared, parameters, place, shows_columns, sink);
        self.session.advisory.end_statement(matches!(outcome, Err(Failure::Blocked | Failure::Long)));
        self.end_clock(&outcome);
        if let Err(Failure::Error(_)) = outcome {
            self.fail();
        }
        outcome
    }

    /// Runs a change of rows that is a part of another statement.
    pub(super) fn run_plain(
        &mut self,
        prepared: &Arc<Prepared>,
        place: Place,
        sink: &mut dyn Sink,
    ) -> Result<Completion, Failure> {
        self.run_inside(prepared, &[], place, false, sink)
    }

    fn run_inside(
        &mut self,
        prepared: &Arc<Prepared>,
        parameters: &[Datum],
        place: Place,
        shows_columns: bool,
        sink: &mut dyn Sink,
    ) -> Result<Completion, Failure> {
        self.follow_catalog();
        let mut plan = prepared.plan(&self.session.catalog)?;
        if shows_columns && plan.returns_rows() {
            sink.columns(&plan.columns);
        }
        self.shows_columns = shows_columns;
        if let Some(point) = &plan.point
            && self.state == State::Idle
            && place.is_last
            && !self.database.0.locks.has_strong()
            && !self.held.has_waited()
            && let Some(completion) = self.run_point(point, &plan, parameters, sink)?
        {
            return Ok(completion);
        }
        self.session.statement_time = time::now();
        self.refuse_if_short(&plan)?;
        match &plan.action {
            Action::Empty => return Ok(Completion::Empty),
            Action::Utility(statement) => return self.utility((statement, parameters), &plan.columns, place, sink),
            Action::CopyIn(format, table, columns) => {
                plan.tables.iter().try_for_each(|(table, mode)| self.lock_whole(*table, *mode))?;
                return self.begin_copy(format, table, columns);
            }
            Action::Select(_) | Action::CopyOut(..) | Action::Change(..) => {}
        }
        for attempt in 1.. {
            self.open(Modes::default())?;
            if self.state == State::Idle {
                self.state = State::Implicit;
            }
            let is_alone = self.state == State::Implicit && self.open.as_ref().is_some_and(|open| open.statements == 0);
            let is_own = is_alone && place.is_last;
            let outcome = match self.run_once(&plan, parameters, is_own, sink) {
                Ok(tag) if self.state == State::Implicit && place.is_last => {
                    self.commit().map(|()| tag).map_err(Failure::Error)
                }
                Ok(tag) => {
                    if let Some(open) = &mut self.open {
                        open.statements += 1;
                    }
                    return Ok(self.wait_for_reads().map(|()| Completion::Tag(tag))?);
                }
                Err(stop @ (Stop::Blocked | Stop::Long)) if is_alone => {
                    // A fresh start sees what the other transaction did. The locks stay.
                    self.open = None;
                    self.state = State::Idle;
                    sink.restart();
                    return Err(stop.into());
                }
                Err(stop) => Err(stop.into()),
            };
            match outcome {
                Ok(tag) => return Ok(Completion::Tag(tag)),
                Err(Failure::Error(error)) if is_own && !sink.has_left() && is_retried(&error, attempt) => {
                    self.open = None;
                    self.session.advisory.end_statement(true);
                    self.release_locks();
                    self.state = State::Idle;
                    sink.restart();
                    if attempt > 1 {
                        // The library may have changed a table.
                        self.database.refresh()?;
                        self.session.catalog = self.catalog();
                        plan = prepared.plan(&self.session.catalog)?;
                    }
                }
                Err(failure) => {
                    sink.restart();
                    return Err(failure);
                }
            }
        }
        Ok(Completion::Empty)
    }

    /// Runs a query of one row, which is a transaction of its own. `None`: the plan must be used.
    fn run_point(
        &mut self,
        point: &PointQuery,
        plan: &Plan,
        parameters: &[Datum],
        sink: &mut dyn Sink,
    ) -> Result<Option<Completion>> {
        let (ticket, tag) = match point.run(parameters, &mut self.buffers)? {
            PointAnswer::Elsewhere => return Ok(None),
            PointAnswer::NoRow(ticket) => (ticket, "SELECT 0"),
            PointAnswer::Row(ticket) => {
                sink.row(&self.buffers.row, &plan.columns)?;
                (ticket, "SELECT 1")
            }
        };
        self.tickets.extend(ticket);
        Ok(Some(Completion::Short(tag)))
    }

    /// Runs a plan once, and returns its tag. A statement that is blocked leaves no changes.
    /// `is_own`: it is a transaction of its own.
    pub(super) fn run_once(
        &mut self,
        plan: &Plan,
        parameters: &[Datum],
        is_own: bool,
        sink: &mut dyn Sink,
    ) -> Outcome<String> {
        self.take_moment(plan, is_own)?;
        let Some(open) = &self.open else {
            return Err(Error::new(SqlState::INTERNAL_ERROR, "a statement runs without a transaction").into());
        };
        let is_change = matches!(plan.action, Action::Change(..)) || !plan.first.is_empty();
        let only_reads = plan.only_reads();
        self.session.is_read_only = open.is_read_only;
        if open.is_read_only {
            refuse_changes(plan, is_change)?;
        }
        let deferred = open.events.deferred_count();
        // The first statement begins the transaction again, unless there is a savepoint before it.
        let has_before = open.statements > 0 || !open.savepoints.is_empty();
        let savepoint: Option<Savepoint> = match is_change && has_before {
            true => Some(open.tx.savepoint().map_err(from_engine)?),
            false => None,
        };
        // A long query notes nothing and meets no conflict: it is a transaction at the moment of its begin.
        let is_long_query = is_own && self.session.watch.steps_max.is_none() && only_reads;
        let snapshot = is_long_query.then(|| self.database.0.engine.snapshot()).transpose().map_err(from_engine)?;
        let run = Run {
            tx: &open.tx,
            snapshot: snapshot.as_ref(),
            replaced: &open.replaced,
            parameters,
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
            stats: self.stats.clone(),
        };
        // A statement that takes locks may have to run again: none of its rows leave before its end.
        let may_flush = only_reads && !plan.takes_numbers;
        let relieve = |sink: &mut dyn Sink| loop {
            match sink.pressure() {
                Pressure::Flush if may_flush => {
                    self.session.watch.check()?;
                    sink.flush(open.tx.seen().map_err(from_engine)?)?;
                }
                Pressure::Long => return Err(Stop::Long),
                Pressure::Flush | Pressure::None => return Ok(Flow::More),
            }
        };
        let names = names_in(&plan.columns, sink);
        let is_patient = self.session.watch.steps_max.is_none();
        let mut give = |mut row: Vec<Datum>| {
            name_relations(&self.session, &names, &mut row);
            sink.row(&row, &plan.columns)?;
            self.planted_panic(if is_patient { "panics in a row of a worker" } else { "panics in a row" });
            relieve(sink)
        };
        let mut count = 0_u64;
        let outcome = match self.lock_tables(plan, is_own).and_then(|()| begin(&run, plan)) {
            Err(stop) => Err(stop),
            Ok(()) => match &plan.action {
                Action::Select(node) => run
                    .each(node, None, &mut |row| {
                        count += 1;
                        give(row)
                    })
                    .map(|_| format!("SELECT {count}")),
                Action::CopyOut(format, node) => {
                    let mut out = CopyOut::begin(sink, format, &plan.columns)?;
                    let outcome = run.each(node, None, &mut |row| {
                        count += 1;
                        relieve(out.row(&row, &plan.columns)?)
                    });
                    outcome.and_then(|_| Ok(out.end().map(|()| format!("COPY {count}"))?))
                }
                Action::Change(change, returned) => {
                    run.change(change, returned.as_deref(), &mut give).map(|count| tag_of(change, count))
                }
                Action::CopyIn(..) | Action::Utility(_) | Action::Empty => Ok(String::new()),
            },
        };
        // The end of the transaction, where the statement can still wait for another one.
        let ends = is_own && is_change;
        let outcome = outcome.and_then(|tag| if ends { run.settle_all().map(|()| tag) } else { Ok(tag) });
        if outcome.is_err() {
            open.events.forget_after(deferred);
        }
        self.planted_panic("panics after a statement");
        let is_noted = open.tx.isolation() == Isolation::Serializable && !only_reads;
        self.keep_or_undo(savepoint, (is_change || is_noted) && !has_before, &outcome)?;
        outcome
    }

    /// A snapshot is of the first statement, and not of BEGIN, as in `PostgreSQL`. When the statement runs again after
    /// a wait for a row, it reads the same one.
    fn take_moment(&mut self, plan: &Plan, is_own: bool) -> Outcome<()> {
        if self.open.as_ref().is_none_or(|open| open.has_moment || open.tx.isolation() != Isolation::Snapshot) {
            return Ok(());
        }
        // A definition that is waited for comes before it.
        self.lock_tables(plan, is_own)?;
        let Some(open) = &mut self.open else { return Ok(()) };
        open.has_moment = true;
        if open.statements == 0 && self.state == State::Explicit {
            open.tx = self.database.0.engine.begin_with(open.tx.isolation());
            for (_, savepoint, _) in &mut open.savepoints {
                *savepoint = open.tx.savepoint().map_err(from_engine)?;
            }
        }
        Ok(())
    }

    /// Locks the tables of a plan, in modes that conflict with LOCK TABLE and definitions alone.
    fn lock_tables(&self, plan: &Plan, is_own: bool) -> Outcome<()> {
        // A query of its own that finds no strong lock runs before the next one.
        if is_own && plan.only_reads() && !self.database.0.locks.has_strong() {
            return Ok(());
        }
        for (table, mode) in &plan.tables {
            if !self.held.lock_table(*table, *mode)? {
                return Err(Stop::Blocked);
            }
        }
        Ok(())
    }

    /// Ends a statement: its changes stay, or what it has done is taken back. `begins_again`: with its transaction, as
    /// the rows that it has noted may be others after a wait.
    fn keep_or_undo(
        &mut self,
        savepoint: Option<Savepoint>,
        begins_again: bool,
        outcome: &Outcome<String>,
    ) -> Result<(), Error> {
        if let (Some(savepoint), Some(open)) = (savepoint, &self.open) {
            match outcome {
                Ok(_) => open.tx.release(savepoint).map_err(from_engine)?,
                // After a conflict the transaction is lost anyway.
                Err(Stop::Blocked | Stop::Long) => open.tx.rollback_to(savepoint).map_err(from_engine)?,
                Err(Stop::Error(_)) => drop(open.tx.rollback_to(savepoint)),
            }
        } else if matches!(outcome, Err(Stop::Blocked | Stop::Long)) && self.state == State::Explicit && begins_again {
            // The first statement of a transaction: nothing is lost by a fresh start, which keeps the level.
            self.restart_transaction();
        }
        Ok(())
    }

    /// Ends a statement that takes long in any case, where that must not be.
    fn refuse_if_short(&self, plan: &Plan) -> Result<(), Failure> {
        let is_long = match &plan.action {
            Action::CopyIn(..) | Action::CopyOut(..) => true,
            Action::Utility(Statement::Discard(Discard::All | Discard::Temporary)) => self.has_temporary(),
            Action::Utility(statement) => crate::ddl::is_long(statement),
            _ => false,
        };
        if is_long && self.session.watch.steps_max.is_some() { Err(Failure::Long) } else { Ok(()) }
    }

    /// Begins the transaction of an explicit block again, before its first statement.
    pub(super) fn restart_transaction(&mut self) {
        if let Some(open) = &mut self.open {
            open.tx = self.database.0.engine.begin_with(open.tx.isolation());
            open.savepoints.clear();
        }
    }

    /// Ends the implicit transaction, at a Sync.
    ///
    /// # Errors
    /// Those of the commit.
    pub fn sync(&mut self) -> Result<()> {
        let _style = self.enter_style();
        self.portals.remove("");
        if self.state != State::Implicit {
            return Ok(());
        }
        self.portals.clear();
        self.commit().inspect_err(|_| self.fail())
    }
}

/// Columns whose numbers of relations and types a text shows as names, and whether they are of types.
pub(super) fn names_in(columns: &[OutputColumn], sink: &dyn Sink) -> SmallVec<[(usize, bool); 2]> {
    let is_name =
        |number: &usize| matches!(columns[*number].ty, Type::Regclass | Type::Regtype) && sink.is_text(*number);
    let found = (0..columns.len()).filter(is_name);
    found.map(|number| (number, columns[number].ty == Type::Regtype)).collect()
}

/// Puts names in place of the numbers of relations and types in these columns.
pub(super) fn name_relations(session: &SessionState, columns: &[(usize, bool)], row: &mut [Datum]) {
    for (number, is_type) in columns {
        let Datum::Int(oid) = row[*number] else { continue };
        if *is_type {
            if let Some(name) = session.type_text(oid) {
                row[*number] = Datum::Text(name);
            }
        } else {
            let other = || text::encode(Type::Regclass, &Datum::Int(oid));
            row[*number] = Datum::Text(session.shown_relation(oid).unwrap_or_else(other));
        }
    }
}

/// Whether a plan is likely to be used again with the same text.
fn is_worth_keeping(statement: &Statement) -> bool {
    // Statements about transactions and settings have no values as a rule.
    matches!(statement, Statement::Begin { .. } | Statement::Commit | Statement::Rollback)
}

fn is_retried(error: &Error, attempt: u32) -> bool {
    error.state() == SqlState::SERIALIZATION_FAILURE && attempt < ATTEMPTS_MAX
}

/// Refuses a statement of a read-only transaction that is no mere query.
fn refuse_changes(plan: &Plan, is_change: bool) -> Result<()> {
    if let Action::Change(change, _) = &plan.action
        && plan.first.is_empty()
        && crate::bind::changed(change).schema.starts_with("pg_temp")
    {
        return Ok(());
    }
    let what = match plan.action {
        _ if is_change => verb(plan),
        Action::Select(_) if !plan.only_reads() => "SELECT FOR UPDATE",
        _ => return Ok(()),
    };
    let message = format!("cannot execute {what} in a read-only transaction");
    Err(Error::new(SqlState::READ_ONLY_SQL_TRANSACTION, message))
}

fn verb(plan: &Plan) -> &'static str {
    match &plan.action {
        Action::Change(Change::Insert { .. }, _) => "INSERT",
        Action::Change(Change::Update { .. }, _) => "UPDATE",
        Action::Change(Change::Delete { .. } | Change::Joined { set: None, .. }, _) => "DELETE",
        Action::Change(Change::Family { is_update: false, .. }, _) => "DELETE",
        Action::Change(Change::Joined { .. } | Change::Family { .. }, _) => "UPDATE",
        Action::Change(Change::Merge(_), _) => "MERGE",
        _ => "this statement",
    }
}

/// The types that a client names, where 0 is none.
///
/// # Errors
/// 0A000 for a type that is not built.
pub fn named_types(oids: &[u32]) -> Result<Vec<Type>> {
    let of = |oid: &u32| match oid {
        0 => Ok(Type::Unknown),
        oid => Type::of_oid(*oid).ok_or_else(|| Error::unsupported(format!("a parameter of the type with OID {oid}"))),
    };
    oids.iter().map(of).collect()
}

/// The tag of a change of so many rows.
fn tag_of(change: &Change, count: u64) -> String {
    match change {
        Change::Insert { .. } => format!("INSERT 0 {count}"),
        Change::Update { .. } | Change::Joined { set: Some(_), .. } | Change::Family { is_update: true, .. } => {
            format!("UPDATE {count}")
        }
        Change::Delete { .. } | Change::Joined { .. } | Change::Family { .. } => format!("DELETE {count}"),
        Change::Merge(_) => format!("MERGE {count}"),
    }
}
