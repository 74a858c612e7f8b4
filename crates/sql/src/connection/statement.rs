//! Running a statement.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use lodestone_engine::Savepoint;
use lodestone_sql_types::{Datum, Error, Result, SqlState, Type, time};

use super::transaction::State;
use super::{Completion, Connection, Failure, OutputColumn, SessionState, SimpleQuery, Sink, Waiting};
use crate::catalog::Catalog;
use crate::database::Prepared;
use crate::errors::from_engine;
use crate::parse::ast::{Modes, Statement};
use crate::parse::parse;
use crate::plan::{Action, Change, Plan};
use crate::run::{Flow, Outcome, Run, Stop};

/// Most attempts of a statement that meets conflicts.
pub const ATTEMPTS_MAX: u32 = 100;

/// Whether a statement is the only one of its message, and the last one.
#[derive(Clone, Copy)]
pub struct Place {
    pub is_single: bool,
    pub is_last: bool,
}

impl Connection {
    /// Reads the statements of a simple query.
    ///
    /// # Errors
    /// As the parser. A transaction fails by it.
    pub fn simple(&mut self, text: &str) -> Result<SimpleQuery> {
        let catalog = self.catalog();
        if let Some(prepared) = self.database.find(text, &[], &catalog) {
            return Ok(SimpleQuery { rest: vec![Waiting::Prepared(prepared)], is_single: true });
        }
        let statements = parse(text).inspect_err(|_| self.fail())?;
        let is_single = statements.len() == 1;
        let mut rest: Vec<Waiting> = Vec::new();
        for statement in statements {
            // A plan with values in its text is used once, as a rule; one for the statements of transactions often.
            rest.push(Waiting::Statement(Box::new(statement)));
        }
        if let (true, Some(Waiting::Statement(statement))) = (is_single, rest.last())
            && is_worth_keeping(statement)
            && !matches!(self.state, State::Failed)
        {
            let prepared = self.prepare_in(&catalog, Some(text), (**statement).clone(), &[]);
            rest = vec![Waiting::Prepared(prepared.inspect_err(|_| self.fail())?)];
        }
        rest.reverse();
        Ok(SimpleQuery { rest, is_single })
    }

    /// Runs the next statement of a simple query.
    ///
    /// # Errors
    /// The statement's. The rest of the query does not run then. [`Failure::Blocked`]: call it again later.
    pub fn next(&mut self, query: &mut SimpleQuery, sink: &mut dyn Sink) -> Result<Completion, Failure> {
        let Some(waiting) = query.rest.last() else { return Ok(Completion::Empty) };
        let place = Place { is_single: query.is_single, is_last: query.rest.len() == 1 };
        let prepared = match waiting {
            Waiting::Prepared(prepared) => prepared.clone(),
            Waiting::Statement(statement) => {
                self.refuse_if_failed(statement)?;
                let statement = (**statement).clone();
                let catalog = self.catalog();
                let prepared = self.prepare_in(&catalog, None, statement, &[]).inspect_err(|_| self.fail())?;
                // A blocked statement comes back.
                if let Some(place) = query.rest.last_mut() {
                    *place = Waiting::Prepared(prepared.clone());
                }
                prepared
            }
        };
        let outcome = self.run_statement(&prepared, &[], place, true, sink);
        if !matches!(outcome, Err(Failure::Blocked)) {
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
        let ends = matches!(statement, Statement::Commit | Statement::Rollback | Statement::RollbackTo(_));
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
        let outcome = self.run_inside(prepared, parameters, place, shows_columns, sink);
        if let Err(Failure::Error(_)) = outcome {
            self.fail();
        }
        outcome
    }

    fn run_inside(
        &mut self,
        prepared: &Arc<Prepared>,
        parameters: &[Datum],
        place: Place,
        shows_columns: bool,
        sink: &mut dyn Sink,
    ) -> Result<Completion, Failure> {
        self.session.statement_time = time::now();
        self.session.catalog = self.catalog();
        let mut plan = prepared.plan(&self.session.catalog)?;
        if shows_columns && plan.returns_rows() {
            sink.columns(&plan.columns);
        }
        self.shows_columns = shows_columns;
        match &plan.action {
            Action::Empty => return Ok(Completion::Empty),
            Action::Utility(statement) => return self.utility(statement, &plan.columns, place, sink),
            Action::Copy(copy, table, columns) => return self.begin_copy(copy, table, columns),
            Action::Select(_) | Action::Change(..) => {}
        }
        for attempt in 1.. {
            self.open(Modes::default())?;
            if self.state == State::Idle {
                self.state = State::Implicit;
            }
            let is_alone = self.state == State::Implicit && self.open.as_ref().is_some_and(|open| open.statements == 0);
            let outcome = match self.run_once(&plan, parameters, sink) {
                Ok(tag) if self.state == State::Implicit && place.is_last => {
                    self.commit().map(|()| tag).map_err(Failure::Error)
                }
                Ok(tag) => {
                    if let Some(open) = &mut self.open {
                        open.statements += 1;
                    }
                    return Ok(self.wait_for_reads().map(|()| Completion::Tag(tag))?);
                }
                Err(Stop::Blocked) if is_alone => {
                    // A fresh start sees what the other transaction did. The locks stay.
                    self.open = None;
                    self.state = State::Idle;
                    sink.restart();
                    return Err(Failure::Blocked);
                }
                Err(stop) => Err(stop.into()),
            };
            match outcome {
                Ok(tag) => return Ok(Completion::Tag(tag)),
                Err(Failure::Error(error)) if is_alone && place.is_last && is_retried(&error, attempt) => {
                    self.open = None;
                    self.held.release();
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

    /// Runs a plan once, and returns its tag. A statement that is blocked leaves no changes.
    pub(super) fn run_once(&mut self, plan: &Plan, parameters: &[Datum], sink: &mut dyn Sink) -> Outcome<String> {
        let Some(open) = &self.open else {
            return Err(Error::new(SqlState::INTERNAL_ERROR, "a statement runs without a transaction").into());
        };
        let is_change = matches!(plan.action, Action::Change(..));
        if is_change && open.is_read_only {
            let message = format!("cannot execute {} in a read-only transaction", verb(plan));
            return Err(Error::new(SqlState::READ_ONLY_SQL_TRANSACTION, message).into());
        }
        let deferred = open.events.deferred_count();
        let savepoint: Option<Savepoint> = match is_change && open.statements > 0 {
            true => Some(open.tx.savepoint().map_err(from_engine)?),
            false => None,
        };
        let run = Run {
            tx: &open.tx,
            parameters,
            session: &self.session,
            catalog: &self.session.catalog,
            locker: &self.held,
            events: &open.events,
            cancel: &self.cancel,
            steps: Cell::new(0),
            work: RefCell::default(),
            stats: self.stats.clone(),
        };
        let is_name = |column: &OutputColumn| column.ty == Type::Regclass;
        // In texts a number of a relation is shown as its name. Binary answers come from the extended protocol only.
        let has_names = self.shows_columns && plan.columns.iter().any(is_name);
        let mut give = |mut row: Vec<Datum>| {
            if has_names {
                row = named_relations(&self.session, &plan.columns, row);
            }
            sink.row(&row, &plan.columns)?;
            Ok(Flow::More)
        };
        let outcome = match &plan.action {
            Action::Select(node) => {
                let mut count = 0_u64;
                run.each(node, None, &mut |row| {
                    count += 1;
                    give(row)
                })
                .map(|_| format!("SELECT {count}"))
            }
            Action::Change(change, returned) => {
                let count = run.change(change, returned.as_deref(), &mut give);
                count.map(|count| match change {
                    Change::Insert { .. } => format!("INSERT 0 {count}"),
                    Change::Update { .. } => format!("UPDATE {count}"),
                    Change::Delete { .. } | Change::Joined { set: None, .. } => format!("DELETE {count}"),
                    Change::Joined { .. } => format!("UPDATE {count}"),
                })
            }
            Action::Copy(..) | Action::Utility(_) | Action::Empty => Ok(String::new()),
        };
        if outcome.is_err() {
            open.events.forget_after(deferred);
        }
        if let Some(savepoint) = savepoint {
            match &outcome {
                Ok(_) => open.tx.release(savepoint).map_err(from_engine)?,
                // After a conflict the transaction is lost anyway.
                Err(Stop::Blocked) => open.tx.rollback_to(savepoint).map_err(from_engine)?,
                Err(Stop::Error(_)) => drop(open.tx.rollback_to(savepoint)),
            }
        } else if matches!(outcome, Err(Stop::Blocked)) && self.state == State::Explicit && is_change {
            // The first statement of a transaction: nothing is lost by a fresh start, which keeps the level.
            self.restart_transaction();
        }
        outcome
    }

    /// Begins the transaction of an explicit block again, before its first statement.
    fn restart_transaction(&mut self) {
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
        self.portals.retain(|name, _| !name.is_empty());
        if self.state != State::Implicit {
            return Ok(());
        }
        self.portals.clear();
        self.commit().inspect_err(|_| self.fail())
    }
}

/// The row with names in place of the numbers of relations.
fn named_relations(session: &SessionState, columns: &[OutputColumn], row: Vec<Datum>) -> Vec<Datum> {
    let cell = |(datum, column): (Datum, &OutputColumn)| match (datum, column.ty) {
        (Datum::Int(oid), Type::Regclass) => {
            session.shown_relation(oid).map_or_else(|| Datum::Text(oid.to_string()), Datum::Text)
        }
        (datum, _) => datum,
    };
    row.into_iter().zip(columns).map(cell).collect()
}

/// Whether a plan is likely to be used again with the same text.
fn is_worth_keeping(statement: &Statement) -> bool {
    // Statements about transactions and settings have no values as a rule.
    matches!(statement, Statement::Begin { .. } | Statement::Commit | Statement::Rollback)
}

fn is_retried(error: &Error, attempt: u32) -> bool {
    error.state() == SqlState::SERIALIZATION_FAILURE && attempt < ATTEMPTS_MAX
}

fn verb(plan: &Plan) -> &'static str {
    match &plan.action {
        Action::Change(Change::Insert { .. }, _) => "INSERT",
        Action::Change(Change::Update { .. }, _) => "UPDATE",
        Action::Change(Change::Delete { .. } | Change::Joined { set: None, .. }, _) => "DELETE",
        Action::Change(Change::Joined { .. }, _) => "UPDATE",
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
