//! PREPARE and EXECUTE, and cursors.
//!
//! A cursor has all rows of its query from the beginning: they are read when it is declared.

use lodestone_sql_types::{Datum, Error, Result, SqlState, Type};

use super::statement::Place;
use super::transaction::State;
use super::{Completion, Connection, Failure, OutputColumn, Sink};
use crate::bind;
use crate::parse::ast::{self, Fetch, Query, Statement, TypeName};
use crate::run::Row;

/// A cursor.
#[derive(Debug)]
pub struct Cursor {
    columns: Vec<OutputColumn>,
    rows: Vec<Row>,
    /// The row at hand, from 1. 0: before the first one.
    place: usize,
    may_go_back: bool,
    is_hold: bool,
}

/// Keeps the rows of a query.
#[derive(Default)]
struct Kept {
    columns: Vec<OutputColumn>,
    rows: Vec<Row>,
}

impl Sink for Kept {
    fn columns(&mut self, columns: &[OutputColumn]) {
        self.columns = columns.to_vec();
    }

    fn row(&mut self, row: &[Datum], _: &[OutputColumn]) -> Result<()> {
        self.rows.push(row.to_vec());
        Ok(())
    }

    fn restart(&mut self) {
        self.rows.clear();
    }
}

fn no_cursor(name: &str) -> Error {
    Error::new(SqlState::INVALID_CURSOR_NAME, format!("cursor \"{name}\" does not exist"))
}

impl Connection {
    pub(super) fn prepare_named(&mut self, name: &str, types: &[TypeName], statement: &Statement) -> Result<()> {
        if self.statements.contains_key(name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(Error::new(SqlState::DUPLICATE_PREPARED_STATEMENT, message));
        }
        let catalog = self.catalog();
        let types = types.iter().map(|ty| Ok(bind::user_type(&catalog, ty)?.ty)).collect::<Result<Vec<_>>>()?;
        let prepared = self.prepare_in(&catalog, None, statement.clone(), &types)?;
        self.statements.insert(name.to_owned(), prepared);
        Ok(())
    }

    /// EXECUTE. The arguments have the types of the parameters.
    pub(super) fn execute_named(
        &mut self,
        name: &str,
        arguments: &[ast::Expr],
        place: Place,
        shows_columns: bool,
        sink: &mut dyn Sink,
    ) -> Result<Completion, Failure> {
        let prepared = self.prepared(name)?;
        let catalog = self.catalog();
        let types = prepared.plan(&catalog)?.parameters.clone();
        if types.len() != arguments.len() {
            let message = format!("wrong number of parameters for prepared statement \"{name}\"");
            let detail = format!("Expected {} parameters but got {}.", types.len(), arguments.len());
            return Err(Error::new(SqlState::SYNTAX_ERROR, message).detail(detail).into());
        }
        let values = self.argument_values(arguments, &types)?;
        self.run_statement(&prepared, &values, place, shows_columns, sink)
    }

    /// The values of expressions without columns.
    fn argument_values(&mut self, arguments: &[ast::Expr], types: &[Type]) -> Result<Vec<Datum>> {
        if arguments.is_empty() {
            return Ok(Vec::new());
        }
        let catalog = self.catalog();
        let exprs = bind::arguments(&catalog, arguments, types)?;
        let query = Kept::default();
        let row = crate::plan::Node::Values(vec![exprs]);
        let plan = crate::plan::Plan {
            first: Vec::new(),
            action: crate::plan::Action::Select(row),
            columns: Vec::new(),
            parameters: Vec::new(),
            tables: Vec::new(),
            takes_numbers: false,
            catalog: catalog.version,
            point: None,
            has_constants: false,
        };
        let mut kept = query;
        self.open(ast::Modes::default())?;
        if self.state == State::Idle {
            self.state = State::Implicit;
        }
        self.session.catalog = catalog;
        match self.run_once(&plan, &[], false, &mut kept) {
            Ok(_) => Ok(kept.rows.pop().unwrap_or_default()),
            Err(crate::run::Stop::Error(error)) => Err(error),
            Err(_) => Err(Error::new(SqlState::INTERNAL_ERROR, "the value of an argument waits")),
        }
    }

    pub(super) fn declare(
        &mut self,
        name: &str,
        (is_scroll, is_hold): (Option<bool>, bool),
        (query, parameters): (&Query, &[Datum]),
    ) -> Result<(), Failure> {
        if query.with.iter().any(|with| with.change.is_some()) {
            let message = "DECLARE CURSOR must not contain data-modifying statements in WITH";
            return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message).into());
        }
        if !matches!(self.state, State::Explicit) && !is_hold {
            let message = "DECLARE CURSOR can only be used in transaction blocks";
            return Err(Error::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, message).into());
        }
        if self.cursors.contains_key(name) {
            let message = format!("cursor \"{name}\" already exists");
            return Err(Error::new(SqlState::DUPLICATE_CURSOR, message).into());
        }
        let catalog = self.catalog();
        let statement = Statement::Query(query.clone());
        // The same types as in the plan of the statement itself.
        let types = bind::bind(&catalog, statement.clone(), &[])?.parameters;
        let prepared = self.prepare_in(&catalog, None, statement, &types)?;
        let mut kept = Kept::default();
        let place = Place { is_single: false, is_last: false };
        self.run_statement(&prepared, parameters, place, true, &mut kept)?;
        // All rows are there, so that a cursor can go back unless that was excluded.
        let may_go_back = is_scroll.unwrap_or(true);
        let Kept { columns, rows } = kept;
        self.cursors.insert(name.to_owned(), Cursor { columns, rows, place: 0, may_go_back, is_hold });
        Ok(())
    }

    pub(super) fn fetch(
        &mut self,
        name: &str,
        direction: Fetch,
        is_move: bool,
        shows_columns: bool,
        sink: &mut dyn Sink,
    ) -> Result<Completion, Failure> {
        let cursor = self.cursors.get_mut(name).ok_or_else(|| no_cursor(name))?;
        if shows_columns && !is_move {
            sink.columns(&cursor.columns);
        }
        let numbers = cursor.step(direction)?;
        let mut count = 0;
        for number in numbers {
            count += 1;
            if !is_move {
                sink.row(&cursor.rows[number - 1], &cursor.columns)?;
            }
        }
        Ok(Completion::Tag(format!("{} {count}", if is_move { "MOVE" } else { "FETCH" })))
    }

    /// CLOSE. `None`: all of them.
    pub(super) fn close_cursor(&mut self, name: Option<&str>) -> Result<&'static str> {
        match name {
            None => {
                self.cursors.clear();
                Ok("CLOSE CURSOR ALL")
            }
            Some(name) => {
                self.cursors.remove(name).ok_or_else(|| no_cursor(name))?;
                Ok("CLOSE CURSOR")
            }
        }
    }

    /// The cursors of a transaction that ends.
    pub(super) fn end_cursors(&mut self, is_committed: bool) {
        self.cursors.retain(|_, cursor| cursor.is_hold && (is_committed || cursor.place > 0));
    }

    /// The columns of a statement whose answer is that of another one.
    pub(super) fn columns_of(&mut self, statement: &Statement) -> Option<Vec<OutputColumn>> {
        match statement {
            Statement::Execute { name, .. } => {
                let catalog = self.catalog();
                let plan = self.prepared(name).ok()?.plan(&catalog).ok()?;
                plan.returns_rows().then(|| plan.columns.clone())
            }
            Statement::Fetch { name, is_move: false, .. } => {
                self.cursors.get(name).map(|cursor| cursor.columns.clone())
            }
            _ => None,
        }
    }
}

impl Cursor {
    /// The columns of its rows.
    pub(super) fn columns(&self) -> &[OutputColumn] {
        &self.columns
    }

    /// The numbers of the rows that come next, from 1. Moves to the last of them.
    fn step(&mut self, direction: Fetch) -> Result<Vec<usize>> {
        let count = self.rows.len();
        let end = count + 1;
        let limit = |wanted: Option<i64>, all: usize| match wanted {
            None => all,
            Some(wanted) => usize::try_from(wanted).unwrap_or(0).min(all),
        };
        let target = match direction {
            Fetch::Forward(Some(wanted)) if wanted < 0 => return self.step(Fetch::Backward(Some(-wanted))),
            Fetch::Backward(Some(wanted)) if wanted < 0 => return self.step(Fetch::Forward(Some(-wanted))),
            // None of them: the row at hand again.
            Fetch::Forward(Some(0)) | Fetch::Backward(Some(0)) | Fetch::Relative(0) => {
                return Ok((1..=count).contains(&self.place).then_some(self.place).into_iter().collect());
            }
            Fetch::Forward(wanted) => {
                let first = self.place + 1;
                let left = count.saturating_sub(self.place);
                let taken = limit(wanted, left);
                let is_short = wanted.is_none_or(|wanted| usize::try_from(wanted).is_ok_and(|wanted| wanted > left));
                self.place = if is_short { end } else { self.place + taken };
                return Ok((first..first + taken).collect());
            }
            Fetch::Backward(wanted) => {
                self.refuse_back()?;
                let left = self.place.saturating_sub(1);
                let taken = limit(wanted, left);
                let is_short = wanted.is_none_or(|wanted| usize::try_from(wanted).is_ok_and(|wanted| wanted > left));
                let last = self.place;
                self.place = if is_short { 0 } else { self.place - taken };
                return Ok((last - taken..last).rev().collect());
            }
            Fetch::Absolute(number) if number >= 0 => usize::try_from(number).unwrap_or(end).min(end),
            Fetch::Absolute(number) => {
                let back = usize::try_from(number.unsigned_abs()).unwrap_or(end);
                end.saturating_sub(back)
            }
            Fetch::Relative(number) if number > 0 => {
                self.place.saturating_add(usize::try_from(number).unwrap_or(end)).min(end)
            }
            Fetch::Relative(number) => self.place.saturating_sub(usize::try_from(number.unsigned_abs()).unwrap_or(end)),
        };
        if target < self.place {
            self.refuse_back()?;
        }
        self.place = target;
        Ok((1..=count).contains(&target).then_some(target).into_iter().collect())
    }

    fn refuse_back(&self) -> Result<()> {
        if self.may_go_back {
            return Ok(());
        }
        Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "cursor can only scan forward")
            .hint("Declare it with SCROLL option to enable backward scan."))
    }
}
