//! MERGE.
//!
//! The rows of the source and their rows of the table were read before the first change. For each, the first clause
//! whose condition is true is carried out. A row that is to be changed is locked first, and if another transaction has
//! changed it by then, the condition of the MERGE and those of the clauses are tested again.

use std::collections::HashSet;

use lodestone_engine::Value;
use lodestone_sql_types::{Datum, Error, SqlState};

use super::scan::{Key, lock_key, to_row};
use super::{Env, Outcome, Row, Run};
use crate::catalog::{TableDef, value};
use crate::errors::from_engine;
use crate::locks::{LockKey, Mode};
use crate::plan::{Expr, Merge, MergeClause, MergeWork};

/// A row of the table, in the one that has it.
struct Found<'m> {
    table: &'m TableDef,
    /// `None`: its columns are those of the table that was named.
    map: Option<&'m [usize]>,
    key: Key,
    row: Row,
}

impl Found<'_> {
    /// Where a column of the table that was named is.
    fn place(&self, column: usize) -> usize {
        self.map.map_or(column, |map| map[column])
    }
}

/// A change that was made and not carried out yet.
enum Made<'m> {
    Insert(Row),
    /// `None`: the row is deleted.
    Change(Found<'m>, Option<Row>),
}

impl Run<'_> {
    /// Carries out a MERGE. Returns how many rows it has changed.
    pub(super) fn merge(&self, merge: &Merge) -> Outcome<u64> {
        // A subquery sees the tables as they were before the statement.
        let is_early = merge.clauses.iter().any(|clause| clause.exprs().any(Expr::has_subquery));
        let (mut changed, mut waiting, mut count) = (HashSet::new(), Vec::new(), 0);
        for row in self.rows(&merge.input, None)? {
            self.step()?;
            let Some(made) = self.merge_row(merge, row, &mut changed)? else { continue };
            count += 1;
            match is_early {
                true => waiting.push(made),
                false => self.merge_made(merge, made)?,
            }
        }
        for made in waiting {
            self.step()?;
            self.merge_made(merge, made)?;
        }
        Ok(count)
    }

    /// The change for a row of the source and its row of the table. `changed`: the rows that have one.
    fn merge_row<'m>(
        &self,
        merge: &'m Merge,
        mut joined: Row,
        changed: &mut HashSet<LockKey>,
    ) -> Outcome<Option<Made<'m>>> {
        let mut found = merge_found(merge, &joined)?;
        let mut held: Option<Mode> = None;
        loop {
            let Some(clause) = self.merge_clause(merge, &joined, found.is_some())? else { return Ok(None) };
            let mode = match &clause.work {
                MergeWork::Nothing => return Ok(None),
                MergeWork::Insert(values) => {
                    let env = Env { row: &joined, outer: None };
                    let row = values.iter().map(|value| self.eval(value, &env)).collect::<Outcome<Row>>()?;
                    return Ok(Some(Made::Insert(row)));
                }
                MergeWork::Update(_) => Mode::NoKeyUpdateRow,
                MergeWork::Delete => Mode::UpdateRow,
            };
            let Some(old) = &found else { return Ok(None) };
            let name = lock_key(old.table.oid, &old.key);
            if changed.contains(&name) {
                let error =
                    Error::new(SqlState::CARDINALITY_VIOLATION, "MERGE command cannot affect row a second time");
                return Err(error.hint("Ensure that not more than one source row matches any one target row.").into());
            }
            if held != Some(mode) {
                self.lock(lock_key(old.table.oid, &old.key), mode)?;
                held = Some(mode);
                // Another transaction may have changed the row before the lock was taken.
                let now = self.engine(old.table).get(self.tx, &old.key).map_err(from_engine)?;
                let now = now.map(|now| to_row(old.table, now)).transpose()?;
                if now.is_some() {
                    self.refuse_newer(old.table, (mode, true), &old.key)?;
                }
                if now.as_ref() != Some(&old.row) {
                    found = self.merge_again(merge, &mut joined, found.take(), now)?;
                    continue;
                }
            }
            changed.insert(name);
            let Some(old) = found else { return Ok(None) };
            let new = match &clause.work {
                MergeWork::Update(set) => Some(self.merge_new(set, &joined, &old)?),
                _ => None,
            };
            return Ok(Some(Made::Change(old, new)));
        }
    }

    /// The row as it is now, if it still fits the row of the source. The row at hand is changed as well.
    fn merge_again<'m>(
        &self,
        merge: &'m Merge,
        joined: &mut Row,
        found: Option<Found<'m>>,
        now: Option<Row>,
    ) -> Outcome<Option<Found<'m>>> {
        if let (Some(found), Some(row)) = (found, now) {
            for column in 0..merge.table.columns.len() {
                joined[column] = row[found.place(column)].clone();
            }
            if self.passes(Some(&merge.on), joined, None)? {
                return Ok(Some(Found { row, ..found }));
            }
        }
        joined[..merge.width].fill(Datum::Null);
        Ok(None)
    }

    /// The first clause whose condition is true.
    fn merge_clause<'m>(&self, merge: &'m Merge, joined: &Row, is_matched: bool) -> Outcome<Option<&'m MergeClause>> {
        for clause in merge.clauses.iter().filter(|clause| clause.is_matched == is_matched) {
            if self.passes(clause.filter.as_ref(), joined, None)? {
                return Ok(Some(clause));
            }
        }
        Ok(None)
    }

    fn merge_new(&self, set: &[(usize, Expr)], joined: &Row, old: &Found<'_>) -> Outcome<Row> {
        let mut new = old.row.clone();
        for (column, expr) in set {
            new[old.place(*column)] = self.eval(expr, &Env { row: joined, outer: None })?;
        }
        self.with_generated(old.table, new)
    }

    fn merge_made(&self, merge: &Merge, made: Made<'_>) -> Outcome<()> {
        match made {
            Made::Insert(row) => {
                let table = &*merge.table;
                let row = self.with_generated(table, row)?;
                match table.partition_by {
                    Some(_) => self.insert_routed(table, row, None, &mut HashSet::new()).map(drop),
                    None => self.insert(table, &row, false).map(drop),
                }
            }
            Made::Change(old, None) => self.delete_row(old.table, &old.key, &old.row),
            Made::Change(old, Some(new)) if merge.table.partition_by.is_some() => {
                self.change_or_move(old.table, &old.key, &old.row, &new)
            }
            Made::Change(old, Some(new)) => self.update_row(old.table, &old.key, &old.row, &new),
        }
    }
}

/// The row of the table that is in the row at hand.
fn merge_found<'m>(merge: &'m Merge, joined: &Row) -> Outcome<Option<Found<'m>>> {
    let width = merge.table.columns.len();
    let (table, map, number, first) = match &merge.members[..] {
        [] => (&*merge.table, None, width, 0),
        members => {
            let place = joined[width].as_int().and_then(|place| usize::try_from(place).ok());
            let Some(member) = place.and_then(|place| members.get(place)) else { return Ok(None) };
            (&*member.table, Some(&member.map[..]), width + 1, width + 2)
        }
    };
    let row: Row = joined[first..first + table.columns.len()].to_vec();
    let key = match table.hidden {
        Some(_) => {
            let number = joined[number].as_int().and_then(|number| u64::try_from(number).ok());
            let Some(number) = number else { return Ok(None) };
            vec![Value::U64(number)]
        }
        None if table.key.iter().any(|column| row[*column].is_null()) => return Ok(None),
        None => {
            let stored = |column: &usize| value::to_stored(&table.columns[*column], row[*column].clone());
            table.key.iter().map(stored).collect::<lodestone_sql_types::Result<Key>>()?
        }
    };
    Ok(Some(Found { table, map, key, row }))
}
