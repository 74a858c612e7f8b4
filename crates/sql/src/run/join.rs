//! Joins: a hash table over the equal columns, or every pair of rows.

use std::collections::HashMap;

use lodestone_sql_types::{Datum, Error};

use super::{Env, Flow, Outcome, Row, Run, Stop};
use crate::parse::ast::JoinKind;
use crate::plan::{Expr, Join};

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
        let Some(right) = self.right_rows(join, outer)? else { return Ok(Flow::More) };
        let mut table: HashMap<Vec<u8>, Vec<usize>> = HashMap::new();
        if !join.hash.is_empty() {
            for (number, row) in right.iter().enumerate() {
                let keys = join.hash.iter().map(|(_, key)| key);
                if let Some(key) = self.hash_key(keys, row, outer)? {
                    table.entry(key).or_default().push(number);
                }
            }
        }
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
        if flow == Flow::Enough || !matches!(join.kind, JoinKind::Right | JoinKind::Full) {
            return Ok(flow);
        }
        for (row, _) in right.into_iter().zip(is_matched).filter(|(_, is_matched)| !is_matched) {
            let row = vec![Datum::Null; join.left_width].into_iter().chain(row).collect();
            if sink(row)? == Flow::Enough {
                return Ok(Flow::Enough);
            }
        }
        Ok(Flow::More)
    }

    /// The rows of the right side. `None`: the join has no rows because one side is empty, and then an error of the
    /// rows of the other side does not count. `PostgreSQL` finds an empty side first too, if it joins by equal columns
    /// or keeps the rows of that side; in other joins its plan decides, and such an error is told here.
    fn right_rows(&self, join: &Join, outer: Option<&Env<'_>>) -> Outcome<Option<Vec<Row>>> {
        let is_by_key = join.kind == JoinKind::Inner && !join.hash.is_empty();
        match self.rows(&join.right, outer) {
            Ok(rows) if rows.is_empty() && (is_by_key || join.kind == JoinKind::Right) => Ok(None),
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
            let flow = self.each(&join.right, Some(&env), &mut |right| {
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

/// Whether it is an error of the values of a row.
fn is_of_rows(error: &Error) -> bool {
    error.state().code().starts_with("22")
}

fn padded(mut row: Row, width: usize) -> Row {
    row.resize(row.len() + width, Datum::Null);
    row
}
