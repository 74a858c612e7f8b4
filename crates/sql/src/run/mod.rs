//! The executor: plans to rows.
//!
//! Rows are pushed: each node calls its sink for a row, and the sink says whether it wants more. So a LIMIT ends a
//! scan. Sorts, groups and the right side of a join keep rows in memory.
//!
//! A statement that needs a lock of another transaction stops with [`Stop::Blocked`], and is run again from its start.

mod aggregate;
mod change;
pub mod constant;
pub mod constraint;
mod eval;
mod family;
mod figure;
mod join;
mod late;
mod lock;
mod memo;
mod merge;
pub mod point;
mod sample;
mod scan;
mod set;
mod subquery;
mod window;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use lodestone_engine::{Snapshot, Table, TableIndex, Tx, Value};
use lodestone_sql_types::func::Session;
use lodestone_sql_types::{Datum, Error, SqlState, op};

use crate::catalog::{Catalog, TableDef};
use crate::connection::{Replaced, find_replaced as find};
use crate::explain::Stats;
use crate::interrupt::Interrupt;
use crate::locks::{LockKey, Mode};
use crate::parse::ast::SetOperation;
use crate::plan::{Expr, Join, Node, SortKey};

pub use change::{stored_at, to_stored, with_names};
pub use scan::{key_of, to_row};
pub use subquery::Kept;

/// The values of a row.
pub type Row = Vec<Datum>;

/// Why a statement ended early.
#[derive(Debug)]
pub enum Stop {
    Error(Error),
    /// It waits for a lock. Its transaction goes on when the lock is its own.
    Blocked,
    /// It takes too long for a thread that serves others as well.
    Long,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// Result of a step of a statement.
pub type Outcome<T> = Result<T, Stop>;

/// Whether a sink wants more rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    More,
    Enough,
}

/// The row at hand, and those around it.
#[derive(Clone, Copy)]
pub struct Env<'e> {
    pub row: &'e [Datum],
    pub outer: Option<&'e Env<'e>>,
}

/// Takes locks for a transaction.
pub trait Locker {
    /// Takes the lock. `false`: the transaction waits for it now.
    ///
    /// # Errors
    /// 40P01.
    fn lock(&self, key: LockKey, mode: Mode) -> lodestone_sql_types::Result<bool>;

    /// Takes the lock if it need not be waited for.
    fn lock_now(&self, key: LockKey, mode: Mode) -> bool;

    /// Whether no row has the key by now, whatever the transaction sees.
    ///
    /// # Errors
    /// Those of the engine.
    fn is_gone(&self, table: &Table, key: &[Value]) -> lodestone_sql_types::Result<bool>;

    /// The rows of now, whatever the transaction sees. `None`: they are not asked for.
    ///
    /// # Errors
    /// Those of the engine.
    fn newest(&self) -> lodestone_sql_types::Result<Option<Snapshot>>;

    /// Whether it takes any.
    fn locks(&self) -> bool {
        true
    }
}

/// The reasons to end a statement early.
#[derive(Debug)]
pub struct Watch {
    /// Its client, or somebody else, wants that.
    pub interrupt: Arc<Interrupt>,
    /// From then on it has taken too long for its client.
    pub deadline: Option<Instant>,
    /// Steps that it may take on a thread that serves others as well.
    pub steps_max: Option<u32>,
}

/// Steps between two looks at the watch.
const STEPS_PER_LOOK: u32 = 64;

/// A statement that runs.
pub struct Run<'r> {
    pub tx: &'r Tx,
    /// Read in place of the transaction, by a query that is one of its own.
    pub snapshot: Option<&'r Snapshot>,
    /// Tables to which the transaction gave other rows.
    pub replaced: &'r [Replaced],
    pub parameters: &'r [Datum],
    pub session: &'r dyn Session,
    pub catalog: &'r Catalog,
    pub locker: &'r dyn Locker,
    pub events: &'r constraint::Events,
    /// The rows that came last in recursive queries, by their numbers.
    pub work: RefCell<HashMap<usize, Rc<Vec<Row>>>>,
    /// The answers of subqueries that do not depend on the row at hand, and which do.
    pub subqueries: RefCell<HashMap<*const Node, Kept>>,
    /// The right sides of joins inside of subqueries, which do not depend on the row at hand.
    pub sides: RefCell<HashMap<*const Join, join::Kept>>,
    /// The rows of tables that are computed.
    pub virtuals: RefCell<HashMap<u32, Rc<Vec<Row>>>>,
    /// Takes the figures of each node.
    pub stats: Option<Stats>,
    pub watch: &'r Watch,
    pub steps: Cell<u32>,
}

impl Watch {
    /// # Errors
    /// 57014 if the client wants the statement to end, or its time is over; 57P01 and 08006 if the session is to end.
    pub fn check(&self) -> lodestone_sql_types::Result<()> {
        let message = match () {
            () if self.interrupt.take_statement() => "canceling statement due to user request",
            () if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) => {
                "canceling statement due to statement timeout"
            }
            () => return self.interrupt.end().map_or(Ok(()), Err),
        };
        Err(Error::new(SqlState::QUERY_CANCELED, message))
    }
}

impl Run<'_> {
    /// Ends the statement if its client asks for that, or it takes too long.
    #[inline]
    fn step(&self) -> Outcome<()> {
        let steps = self.steps.get().wrapping_add(1);
        self.steps.set(steps);
        if steps.is_multiple_of(STEPS_PER_LOOK) { self.look(steps) } else { Ok(()) }
    }

    #[cold]
    fn look(&self, steps: u32) -> Outcome<()> {
        if self.watch.steps_max.is_some_and(|max| steps >= max) {
            return Err(Stop::Long);
        }
        self.watch.check()?;
        Ok(())
    }

    /// Takes the lock of a row, whose key is made if the locker needs it.
    fn lock_row(&self, table: u32, mode: Mode, key: impl FnOnce() -> Vec<Value>) -> Outcome<()> {
        if !self.locker.locks() {
            return Ok(());
        }
        self.lock(scan::lock_key(table, &key()), mode)
    }

    /// The table as the transaction sees it.
    pub fn engine<'t>(&'t self, table: &'t TableDef) -> &'t Table {
        find(self.replaced, table.oid).map_or(&table.engine, |found| &found.engine)
    }

    /// An index of the table as the transaction sees it.
    fn index<'t>(&'t self, table: &'t TableDef, number: usize) -> &'t TableIndex {
        let found = find(self.replaced, table.oid).and_then(|found| found.indexes.get(number));
        found.unwrap_or(&table.indexes[number].engine)
    }

    fn lock(&self, key: LockKey, mode: Mode) -> Outcome<()> {
        if self.locker.lock(key, mode)? { Ok(()) } else { Err(Stop::Blocked) }
    }

    /// Calls `sink` for each row of `node`.
    pub fn each(
        &self,
        node: &Node,
        outer: Option<&Env<'_>>,
        sink: &mut dyn FnMut(Row) -> Outcome<Flow>,
    ) -> Outcome<Flow> {
        let Some(stats) = &self.stats else { return self.each_row(node, outer, sink) };
        let (began, mut rows) = (std::time::Instant::now(), 0);
        let outcome = self.each_row(node, outer, &mut |row| {
            rows += 1;
            sink(row)
        });
        stats.note(node, rows, began.elapsed());
        outcome
    }

    fn each_row(
        &self,
        node: &Node,
        outer: Option<&Env<'_>>,
        sink: &mut dyn FnMut(Row) -> Outcome<Flow>,
    ) -> Outcome<Flow> {
        match node {
            Node::Values(rows) => {
                let env = Env { row: &[], outer };
                for row in rows {
                    let row = row.iter().map(|expr| self.eval(expr, &env)).collect::<Outcome<Row>>()?;
                    if sink(row)? == Flow::Enough {
                        return Ok(Flow::Enough);
                    }
                }
                Ok(Flow::More)
            }
            Node::Scan(scan) => self.scan(scan, outer, &mut |row, _| sink(row)),
            Node::Virtual { table, filter } => {
                // A subquery of each row may read it again and again.
                let found = self.virtuals.borrow().get(&table.oid).cloned();
                let rows = found.unwrap_or_else(|| {
                    let rows = Rc::new(table.rows(self.catalog, self.session));
                    self.virtuals.borrow_mut().insert(table.oid, rows.clone());
                    rows
                });
                for row in rows.iter() {
                    self.step()?;
                    if self.passes(filter.as_ref(), row, outer)? && sink(row.clone())? == Flow::Enough {
                        return Ok(Flow::Enough);
                    }
                }
                Ok(Flow::More)
            }
            Node::Function { function, arguments, has_ordinality } => {
                self.set_function(*function, arguments, *has_ordinality, outer, sink)
            }
            Node::Join(join) => self.join(join, outer, sink),
            Node::Filter { input, filter } => self.each(input, outer, &mut |row| {
                if self.passes(Some(filter), &row, outer)? { sink(row) } else { Ok(Flow::More) }
            }),
            Node::Gate { input, filter } => match self.passes(Some(filter), &[], outer)? {
                true => self.each(input, outer, sink),
                false => Ok(Flow::More),
            },
            Node::Sample { input, percent, repeat } => self.sample(input, (percent, repeat.as_ref()), outer, sink),
            Node::Hashed(hashed) => self.hashed(node, hashed, outer, sink),
            Node::Project { input, columns } => {
                self.each(input, outer, &mut |row| sink(self.project(columns, &row, outer)?))
            }
            Node::Aggregate { input, keys, calls, sets } => self.aggregate(input, (keys, sets), calls, outer, sink),
            Node::Sort { input, keys } => {
                let mut rows = Vec::new();
                self.each(input, outer, &mut |row| {
                    let env = Env { row: &row, outer };
                    let key = keys.iter().map(|key| self.eval(&key.expr, &env)).collect::<Outcome<Row>>()?;
                    rows.push((key, row));
                    Ok(Flow::More)
                })?;
                rows.sort_by(|(one, _), (two, _)| order(keys, one, two));
                give(rows.into_iter().map(|(_, row)| row), sink)
            }
            Node::Limit { input, limit, offset, ties } => {
                self.limit(input, (limit.as_ref(), offset.as_ref()), ties, outer, sink)
            }
            Node::Distinct { input, on } => {
                let mut seen = HashSet::new();
                self.each(input, outer, &mut |row| {
                    let mut key = Vec::new();
                    if on.is_empty() {
                        row.iter().for_each(|datum| datum.key(&mut key));
                    } else {
                        let env = Env { row: &row, outer };
                        for expr in on {
                            self.eval(expr, &env)?.key(&mut key);
                        }
                    }
                    if seen.insert(key) { sink(row) } else { Ok(Flow::More) }
                })
            }
            Node::Set { op, is_all, left, right } => self.combine(*op, *is_all, (left, right), outer, sink),
            Node::Window { input, calls } => self.windows(input, calls, outer, sink),
            Node::ProjectSet { input, calls } => self.project_set(input, calls, outer, sink),
            Node::Recursive { number, first, step, is_all } => {
                self.recursive(*number, (first, step), *is_all, outer, sink)
            }
            Node::LockRows(node) => self.lock_rows(node, outer, sink),
            Node::Append(members) => {
                for member in members {
                    if self.each(&member.node, outer, sink)? == Flow::Enough {
                        return Ok(Flow::Enough);
                    }
                }
                Ok(Flow::More)
            }
            Node::Shared { number, input } => give(self.shared(*number, input)?.iter().cloned(), sink),
            Node::Work { number } => give(self.work_rows(*number).iter().cloned(), sink),
        }
    }

    /// The rows that a recursive query or a change in WITH has returned.
    fn work_rows(&self, number: usize) -> Rc<Vec<Row>> {
        self.work.borrow().get(&number).cloned().unwrap_or_default()
    }

    /// The rows of a query that are read once for all that name it.
    fn shared(&self, number: usize, input: &Node) -> Outcome<Rc<Vec<Row>>> {
        if let Some(rows) = self.work.borrow().get(&number) {
            return Ok(rows.clone());
        }
        let rows = Rc::new(self.rows(input, None)?);
        self.work.borrow_mut().insert(number, rows.clone());
        Ok(rows)
    }

    /// All rows of `node`.
    pub fn rows(&self, node: &Node, outer: Option<&Env<'_>>) -> Outcome<Vec<Row>> {
        let mut rows = Vec::new();
        self.each(node, outer, &mut |row| {
            rows.push(row);
            Ok(Flow::More)
        })?;
        Ok(rows)
    }

    pub fn project(&self, columns: &[Expr], row: &[Datum], outer: Option<&Env<'_>>) -> Outcome<Row> {
        let env = Env { row, outer };
        columns.iter().map(|expr| self.eval(expr, &env)).collect()
    }

    /// Whether the condition is true for the row.
    fn passes(&self, filter: Option<&Expr>, row: &[Datum], outer: Option<&Env<'_>>) -> Outcome<bool> {
        let Some(filter) = filter else { return Ok(true) };
        Ok(self.eval(filter, &Env { row, outer })?.truth() == Some(true))
    }

    fn limit(
        &self,
        input: &Node,
        (limit, offset): (Option<&Expr>, Option<&Expr>),
        ties: &[SortKey],
        outer: Option<&Env<'_>>,
        sink: &mut dyn FnMut(Row) -> Outcome<Flow>,
    ) -> Outcome<Flow> {
        let env = Env { row: &[], outer };
        let count = |expr: Option<&Expr>, state: SqlState, name: &str| -> Outcome<Option<i64>> {
            let Some(expr) = expr else { return Ok(None) };
            match self.eval(expr, &env)?.as_int() {
                Some(count) if count < 0 => Err(Error::new(state, format!("{name} must not be negative")).into()),
                count => Ok(count),
            }
        };
        let limit = count(limit, SqlState::INVALID_ROW_COUNT_IN_LIMIT, "LIMIT")?;
        let mut skip = count(offset, SqlState::INVALID_ROW_COUNT_IN_OFFSET, "OFFSET")?.unwrap_or(0);
        let mut left = limit.unwrap_or(i64::MAX);
        if left == 0 {
            return Ok(Flow::More);
        }
        let (mut is_enough, mut last): (Flow, Option<Row>) = (Flow::More, None);
        self.each(input, outer, &mut |row| {
            if skip > 0 {
                skip -= 1;
                return Ok(Flow::More);
            }
            if left == 0 || left == 1 && !ties.is_empty() {
                let env = Env { row: &row, outer };
                let key = ties.iter().map(|key| self.eval(&key.expr, &env)).collect::<Outcome<Row>>()?;
                if last.as_ref().is_some_and(|last| order(ties, last, &key).is_ne()) {
                    return Ok(Flow::Enough);
                }
                last.get_or_insert(key);
            }
            left = i64::max(left - 1, 0);
            is_enough = sink(row)?;
            Ok(if left == 0 && ties.is_empty() { Flow::Enough } else { is_enough })
        })?;
        // This query ends here, not the one around it.
        Ok(is_enough)
    }

    /// Rows until there are no new ones.
    fn recursive(
        &self,
        number: usize,
        (first, step): (&Node, &Node),
        is_all: bool,
        outer: Option<&Env<'_>>,
        sink: &mut dyn FnMut(Row) -> Outcome<Flow>,
    ) -> Outcome<Flow> {
        let mut seen = HashSet::new();
        let mut is_new = |row: &Row| {
            let mut key = Vec::new();
            row.iter().for_each(|datum| datum.key(&mut key));
            is_all || seen.insert(key)
        };
        let before = self.work.borrow_mut().remove(&number);
        let mut part = first;
        let flow = loop {
            let mut rows = Vec::new();
            // A row leaves before the next one is made: a LIMIT ends a query that would not, also inside another one.
            let flow = self.each(part, outer, &mut |row| {
                self.step()?;
                if !is_new(&row) {
                    return Ok(Flow::More);
                }
                rows.push(row.clone());
                sink(row)
            })?;
            if flow == Flow::Enough || rows.is_empty() {
                break flow;
            }
            self.work.borrow_mut().insert(number, Rc::new(rows));
            part = step;
        };
        match before {
            Some(before) => drop(self.work.borrow_mut().insert(number, before)),
            None => drop(self.work.borrow_mut().remove(&number)),
        }
        Ok(flow)
    }

    fn combine(
        &self,
        op: SetOperation,
        is_all: bool,
        (left, right): (&Node, &Node),
        outer: Option<&Env<'_>>,
        sink: &mut dyn FnMut(Row) -> Outcome<Flow>,
    ) -> Outcome<Flow> {
        if op == SetOperation::Union && is_all {
            return match self.each(left, outer, sink)? {
                Flow::More => self.each(right, outer, sink),
                Flow::Enough => Ok(Flow::Enough),
            };
        }
        let key = |row: &Row| {
            let mut key = Vec::new();
            row.iter().for_each(|datum| datum.key(&mut key));
            key
        };
        let mut left = self.rows(left, outer)?;
        let right = self.rows(right, outer)?;
        let mut counts = std::collections::HashMap::<Vec<u8>, usize>::new();
        right.iter().for_each(|row| *counts.entry(key(row)).or_default() += 1);
        let mut seen = HashSet::new();
        let mut is_new = |row: &Row| is_all || seen.insert(key(row));
        match op {
            SetOperation::Union => {
                left.extend(right);
                left.retain(|row| is_new(row));
            }
            SetOperation::Intersect => left.retain(|row| {
                let found = counts.get_mut(&key(row)).filter(|count| **count > 0);
                found.is_some_and(|count| {
                    *count -= usize::from(is_all);
                    is_new(row)
                })
            }),
            SetOperation::Except => left.retain(|row| match counts.get_mut(&key(row)).filter(|count| **count > 0) {
                Some(count) => {
                    *count -= usize::from(is_all);
                    false
                }
                None => is_new(row),
            }),
        }
        give(left, sink)
    }
}

/// Calls `sink` for each row.
fn give(rows: impl IntoIterator<Item = Row>, sink: &mut dyn FnMut(Row) -> Outcome<Flow>) -> Outcome<Flow> {
    for row in rows {
        if sink(row)? == Flow::Enough {
            return Ok(Flow::Enough);
        }
    }
    Ok(Flow::More)
}

/// The order of two rows by their keys.
fn order(keys: &[SortKey], one: &[Datum], two: &[Datum]) -> std::cmp::Ordering {
    for ((key, one), two) in keys.iter().zip(one).zip(two) {
        let found = match (one.is_null(), two.is_null()) {
            (true, true) => std::cmp::Ordering::Equal,
            (true, false) if key.nulls_first => std::cmp::Ordering::Less,
            (true, false) => std::cmp::Ordering::Greater,
            (false, true) if key.nulls_first => std::cmp::Ordering::Greater,
            (false, true) => std::cmp::Ordering::Less,
            _ if key.is_descending => op::order(key.ty, two, one),
            _ => op::order(key.ty, one, two),
        };
        if found.is_ne() {
            return found;
        }
    }
    std::cmp::Ordering::Equal
}
