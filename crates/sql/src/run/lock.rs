//! Locks on rows that a query has found.

use lodestone_engine::Value;
use lodestone_sql_types::{Datum, Error, SqlState};

use super::scan::{Key, to_row};
use super::{Env, Flow, Outcome, Row, Run, give};
use crate::catalog::value;
use crate::errors::from_engine;
use crate::plan::{Expr, LockRows, LockTarget};

/// How often rows are looked for again because others have changed while they were locked. Each time some more of them
/// are locked, and those stay as they are.
const TRIES_MAX: usize = 100;

/// The outcome for a row whose parts are to be locked.
enum Taken {
    Locked,
    Skipped,
    /// Another transaction changed a part before it was locked.
    Stale,
}

impl Run<'_> {
    /// The rows of the input, locked.
    pub(super) fn lock_rows(
        &self,
        node: &LockRows,
        outer: Option<&Env<'_>>,
        sink: &mut dyn FnMut(Row) -> Outcome<Flow>,
    ) -> Outcome<Flow> {
        let wanted = self.wanted(node.limit.as_ref(), node.offset.as_ref(), outer)?;
        for _ in 0..TRIES_MAX {
            let (mut found, mut is_stale) = (Vec::new(), false);
            self.each(&node.input, outer, &mut |row| {
                if found.len() >= wanted {
                    return Ok(Flow::Enough);
                }
                match self.lock_parts(&node.targets, &row)? {
                    Taken::Locked => found.push(row),
                    Taken::Skipped => {}
                    Taken::Stale => is_stale = true,
                }
                Ok(Flow::More)
            })?;
            if !is_stale {
                return give(found, sink);
            }
        }
        let message = "could not serialize access due to concurrent update";
        Err(Error::new(SqlState::SERIALIZATION_FAILURE, message).into())
    }

    /// How many rows the LIMIT and the OFFSET above let through. Wrong ones are refused there.
    fn wanted(&self, limit: Option<&Expr>, offset: Option<&Expr>, outer: Option<&Env<'_>>) -> Outcome<usize> {
        let env = Env { row: &[], outer };
        let count = |expr: &Expr| -> Outcome<Option<usize>> {
            Ok(self.eval(expr, &env)?.as_int().map(|count| usize::try_from(count).unwrap_or(0)))
        };
        let limit = limit.map(count).transpose()?.flatten();
        let offset = offset.map(count).transpose()?.flatten();
        Ok(limit.map_or(usize::MAX, |limit| limit.saturating_add(offset.unwrap_or(0))))
    }

    fn lock_parts(&self, targets: &[LockTarget], row: &Row) -> Outcome<Taken> {
        for target in targets {
            let table = &*target.table;
            let values: Row = target.columns.iter().map(|column| row[*column].clone()).collect();
            let key = target_key(target, row, &values)?;
            if !self.lock_for(table, (target.mode, target.wait), &key)? {
                return Ok(Taken::Skipped);
            }
            let now = self.engine(table).get(self.tx, &key).map_err(from_engine)?;
            let is_same = match now {
                Some(now) => to_row(table, now)? == values,
                None => false,
            };
            if !is_same {
                return Ok(Taken::Stale);
            }
            self.refuse_newer(table, (target.mode, false), &key)?;
        }
        Ok(Taken::Locked)
    }
}

/// The key of the part of a row that belongs to a table.
fn target_key(target: &LockTarget, row: &Row, values: &Row) -> Outcome<Key> {
    let table = &target.table;
    if let Some(number) = target.number {
        let number = row.get(number).and_then(Datum::as_int).and_then(|number| u64::try_from(number).ok());
        return Ok(vec![Value::U64(number.unwrap_or(0))]);
    }
    let stored = |column: &usize| value::to_stored(&table.columns[*column], values[*column].clone());
    Ok(table.key.iter().map(stored).collect::<lodestone_sql_types::Result<Key>>()?)
}
