//! Joins: a hash table over the equal columns, or every pair of rows.

use std::collections::HashMap;
use std::rc::Rc;

use lodestone_sql_types::{Datum, Error};

use super::{Env, Flow, Outcome, Row, Run, Stop};
use crate::parse::ast::JoinKind;
use crate::plan::{Expr, Join, Node};

/// The right side of a join: its rows, and their numbers by the equal columns.
pub struct Side {
    rows: Vec<Row>,
    table: HashMap<Vec<u8>, Vec<usize>>,
}

/// The right side of a join that runs again and again.
#[derive(Clone)]
pub enum Kept {
    Side(Rc<Side>),
    /// It has run once, and would be the same again.
    Once,
    /// It depends on the rows around.
    Other,
}

/// Whether a query has the same rows the next time, whatever the rows around it are.
fn is_kept(node: &Node) -> bool {
    !node.is_correlated() && !node.is_volatile() && !node.takes_locks()
}

fn is_kept_key(key: &Expr) -> bool {
    !key.is_correlated() && !key.is_volatile_inside()
}

impl Run<'_> {
    pub(super) fn join(
        &self,
        join: &Join,
        outer: Option<&Env<'_>>,
        sink: &mut dyn FnMut(Row) -> Outcome<Flow>,
    ) -> Outcome<Flow> {
        if join.is_lateral {
            return self.lateral(join, outer, sink);
        }
        if join.kind == JoinKind::Right {
            return self.join_right(join, outer, sink);
        }
        let Some(side) = self.side(join, outer)? else { return Ok(Flow::More) };
        let Side { rows: right, table } = &*side;
        let all: Vec<usize> = (0..right.len()).collect();
        let mut is_matched = vec![false; right.len()];
        let flow = self.each(&join.left, outer, &mut |left| {
            let candidates: &[usize] = if join.hash.is_empty() {
                &all
            } else {
                let key = self.hash_key(join.hash.iter().map(|(key, _)| key), &left, outer)?;
                key.and_then(|key| table.get(&key)).map_or(&[], Vec::as_slice)
            };
            let mut has_match = false;
            for number in candidates {
                self.step()?;
                let row: Row = left.iter().chain(&right[*number]).cloned().collect();
                if !self.passes(join.on.as_ref(), &row, outer)? {
                    continue;
                }
                (has_match, is_matched[*number]) = (true, true);
                if sink(row)? == Flow::Enough {
                    return Ok(Flow::Enough);
                }
            }
            if !has_match && matches!(join.kind, JoinKind::Left | JoinKind::Full) {
                return sink(padded(left, join.right_width));
            }
            Ok(Flow::More)
        })?;
        if flow == Flow::Enough || join.kind != JoinKind::Full {
            return Ok(flow);
        }
        for (row, _) in right.iter().zip(is_matched).filter(|(_, is_matched)| !is_matched) {
            let row = vec![Datum::Null; join.left_width].into_iter().chain(row.iter().cloned()).collect();
            if sink(row)? == Flow::Enough {
                return Ok(Flow::Enough);
            }
        }
        Ok(Flow::More)
    }

    /// A right join: its right rows come one by one, so that a LIMIT ends it, and those of the left side are kept. They
    /// are not asked if there is no right row.
    fn join_right(
        &self,
        join: &Join,
        outer: Option<&Env<'_>>,
        sink: &mut dyn FnMut(Row) -> Outcome<Flow>,
    ) -> Outcome<Flow> {
        let mut kept: Option<(Rc<Side>, Vec<usize>)> = None;
        self.each(&join.right, outer, &mut |right| {
            let (side, all) = match &kept {
                Some(kept) => kept,
                None => {
                    let side = self.left_side(join, outer)?;
                    let all = (0..side.rows.len()).collect();
                    kept.insert((side, all))
                }
            };
            let candidates: &[usize] = if join.hash.is_empty() {
                all
            } else {
                let key = self.hash_key(join.hash.iter().map(|(_, key)| key), &right, outer)?;
                key.and_then(|key| side.table.get(&key)).map_or(&[], Vec::as_slice)
            };
            let mut has_match = false;
            for number in candidates {
                self.step()?;
                let row: Row = side.rows[*number].iter().chain(&right).cloned().collect();
                if !self.passes(join.on.as_ref(), &row, outer)? {
                    continue;
                }
                has_match = true;
                if sink(row)? == Flow::Enough {
                    return Ok(Flow::Enough);
                }
            }
            if has_match {
                return Ok(Flow::More);
            }
            sink(vec![Datum::Null; join.left_width].into_iter().chain(right).collect())
        })
    }

    /// The left side of a right join. Inside of a subquery it is kept for the next run, if it is the same then.
    fn left_side(&self, join: &Join, outer: Option<&Env<'_>>) -> Outcome<Rc<Side>> {
        let place = std::ptr::from_ref(join);
        let kept = self.sides.borrow().get(&place).cloned();
        if let Some(Kept::Side(side)) = kept {
            return Ok(side);
        }
        let rows = self.rows(&join.left, outer)?;
        let keys = || join.hash.iter().map(|(key, _)| key);
        let side = Rc::new(Side { table: self.by_key(&rows, &keys, outer)?, rows });
        self.keep(join, (kept.is_none(), &side), is_kept(&join.left) && keys().all(is_kept_key), outer);
        Ok(side)
    }

    /// Keeps a side inside of a subquery, if it is the same for the next run.
    fn keep(&self, join: &Join, (is_first, side): (bool, &Rc<Side>), is_same: bool, outer: Option<&Env<'_>>) {
        if is_first && outer.is_some() {
            let kept = if is_same { Kept::Side(side.clone()) } else { Kept::Other };
            self.sides.borrow_mut().insert(std::ptr::from_ref(join), kept);
        }
    }

    /// The numbers of rows by their keys. No row without a key is found.
    fn by_key<'k, I: Iterator<Item = &'k Expr>>(
        &self,
        rows: &[Row],
        keys: &dyn Fn() -> I,
        outer: Option<&Env<'_>>,
    ) -> Outcome<HashMap<Vec<u8>, Vec<usize>>> {
        let mut table: HashMap<Vec<u8>, Vec<usize>> = HashMap::new();
        if keys().next().is_some() {
            for (number, row) in rows.iter().enumerate() {
                self.step()?;
                if let Some(key) = self.hash_key(keys(), row, outer)? {
                    table.entry(key).or_default().push(number);
                }
            }
        }
        Ok(table)
    }

    /// The right side. Inside of a subquery it is kept for the next run, if it is the same then.
    fn side(&self, join: &Join, outer: Option<&Env<'_>>) -> Outcome<Option<Rc<Side>>> {
        let place = std::ptr::from_ref(join);
        let kept = self.sides.borrow().get(&place).cloned();
        // Then the left side is not asked.
        let is_over = |side: &Side| side.rows.is_empty() && is_by_key(join);
        if let Some(Kept::Side(side)) = kept {
            return Ok((!is_over(&side)).then_some(side));
        }
        let Some(rows) = self.right_rows(join, outer)? else { return Ok(None) };
        let keys = || join.hash.iter().map(|(_, key)| key);
        let side = Rc::new(Side { table: self.by_key(&rows, &keys, outer)?, rows });
        self.keep(join, (kept.is_none(), &side), is_kept(&join.right) && keys().all(is_kept_key), outer);
        Ok((!is_over(&side)).then_some(side))
    }

    /// The rows of the right side. `None`: the join has no rows because one side is empty, and then an error of the
    /// rows of the other side does not count. `PostgreSQL` finds an empty side first too, if it joins by equal columns
    /// or keeps the rows of that side; in other joins its plan decides, and such an error is told here.
    fn right_rows(&self, join: &Join, outer: Option<&Env<'_>>) -> Outcome<Option<Vec<Row>>> {
        let is_by_key = is_by_key(join);
        match self.rows(&join.right, outer) {
            Err(Stop::Error(error)) if is_of_rows(&error) && (is_by_key || join.kind == JoinKind::Left) => {
                let mut is_empty = true;
                let first = self.each(&join.left, outer, &mut |_| {
                    is_empty = false;
                    Ok(Flow::Enough)
                });
                match first {
                    Ok(_) if is_empty => Ok(None),
                    Err(stop @ (Stop::Blocked | Stop::Long)) => Err(stop),
                    _ => Err(error.into()),
                }
            }
            other => other.map(Some),
        }
    }

    /// The right side depends on the left row.
    fn lateral(
        &self,
        join: &Join,
        outer: Option<&Env<'_>>,
        sink: &mut dyn FnMut(Row) -> Outcome<Flow>,
    ) -> Outcome<Flow> {
        self.each(&join.left, outer, &mut |left| {
            let mut has_match = false;
            let env = Env { row: &left, outer };
            let flow = self.each_right(join, &env, &mut |right| {
                self.step()?;
                let row: Row = left.iter().cloned().chain(right).collect();
                if !self.passes(join.on.as_ref(), &row, outer)? {
                    return Ok(Flow::More);
                }
                has_match = true;
                sink(row)
            })?;
            if !has_match && join.kind == JoinKind::Left {
                return sink(padded(left, join.right_width));
            }
            Ok(flow)
        })
    }

    /// The rows of a lateral side. The second run keeps them, if they do not depend on the left row.
    fn each_right(&self, join: &Join, env: &Env<'_>, sink: &mut dyn FnMut(Row) -> Outcome<Flow>) -> Outcome<Flow> {
        let place = std::ptr::from_ref(join);
        let kept = self.sides.borrow().get(&place).cloned();
        let side = match kept {
            Some(Kept::Side(side)) => side,
            Some(Kept::Once) => {
                let side = Rc::new(Side { rows: self.rows(&join.right, Some(env))?, table: HashMap::new() });
                self.sides.borrow_mut().insert(place, Kept::Side(side.clone()));
                side
            }
            Some(Kept::Other) => return self.each(&join.right, Some(env), sink),
            None => {
                let kept = if is_kept(&join.right) { Kept::Once } else { Kept::Other };
                self.sides.borrow_mut().insert(place, kept);
                return self.each(&join.right, Some(env), sink);
            }
        };
        super::give(side.rows.iter().cloned(), sink)
    }

    /// Bytes of the equal columns. `None`: one of them is null, which is equal to nothing.
    pub(super) fn hash_key<'k>(
        &self,
        keys: impl Iterator<Item = &'k Expr>,
        row: &[Datum],
        outer: Option<&Env<'_>>,
    ) -> Outcome<Option<Vec<u8>>> {
        let env = Env { row, outer };
        let mut bytes = Vec::new();
        for key in keys {
            let value = self.eval(key, &env)?;
            if value.is_null() {
                return Ok(None);
            }
            value.key(&mut bytes);
        }
        Ok(Some(bytes))
    }
}

fn is_by_key(join: &Join) -> bool {
    join.kind == JoinKind::Inner && !join.hash.is_empty()
}

/// Whether it is an error of the values of a row.
fn is_of_rows(error: &Error) -> bool {
    error.state().code().starts_with("22")
}

fn padded(mut row: Row, width: usize) -> Row {
    row.resize(row.len() + width, Datum::Null);
    row
}
