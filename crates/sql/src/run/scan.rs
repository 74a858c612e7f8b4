//! Rows of tables, and their locks.

use std::ops::{Bound, RangeBounds};

use lodestone_engine::{Error as EngineError, Isolation, Row as EngineRow, Rows, Value};
use lodestone_sql_types::{Datum, Error, SqlState, Type, cast};

use super::{Env, Flow, Outcome, Row, Run};
use crate::catalog::{TableDef, value};
use crate::errors::from_engine;
use crate::locks::{LockKey, Mode};
use crate::parse::ast::LockWait;
use crate::plan::{Access, KeyPart, Scan};

/// The key of a row for the engine.
pub type Key = Vec<Value>;

/// A limit, and whether it is part of the range.
type Limit = (KeyPart, bool);

/// The limits of a range.
type Bounds = (Bound<EngineRow>, Bound<EngineRow>);

/// The lock of a row.
pub fn lock_key(table: u32, key: &[Value]) -> LockKey {
    let mut bytes = Vec::new();
    for value in key {
        match value {
            Value::I32(number) => bytes.extend(number.to_le_bytes()),
            Value::I64(number) => bytes.extend(number.to_le_bytes()),
            Value::U64(number) => bytes.extend(number.to_le_bytes()),
            Value::I16(number) => bytes.extend(number.to_le_bytes()),
            Value::Text(text) => bytes.extend(text.bytes().chain([0])),
            other => bytes.extend(format!("{other}").bytes().chain([0])),
        }
    }
    LockKey { table, key: bytes }
}

/// The key of `row`.
pub fn key_of(table: &TableDef, row: &[Value]) -> Key {
    match table.hidden {
        Some(place) => row.get(place).cloned().into_iter().collect(),
        None => table.key.iter().map(|column| row[*column].clone()).collect(),
    }
}

/// The row as SQL sees it.
pub fn to_row(table: &TableDef, mut row: EngineRow) -> lodestone_sql_types::Result<Row> {
    if let Some(place) = table.hidden.filter(|place| *place < row.0.len()) {
        row.0.remove(place);
    }
    table.columns.iter().zip(row.0).map(|(column, found)| value::to_datum(column, found)).collect()
}

impl Run<'_> {
    /// Calls `sink` for each row of `scan`, with its key if rows are locked.
    pub fn scan(
        &self,
        scan: &Scan,
        outer: Option<&Env<'_>>,
        sink: &mut dyn FnMut(Row, Key) -> Outcome<Flow>,
    ) -> Outcome<Flow> {
        let table = &*scan.table;
        match &scan.access {
            Access::Key(parts) => {
                let Some(key) = self.key_values(table, &table.key, parts, outer)? else { return Ok(Flow::More) };
                self.step()?;
                if let Some(mode) = scan.locks {
                    // A row that is not there, or is not meant, is not locked. Where reads are validated they come
                    // after the lock: a row that has changed meanwhile would be a conflict.
                    let is_validated = self.tx.isolation() != Isolation::ReadCommitted;
                    if !is_validated && self.row_at(scan, &key, outer)?.is_none()
                        || !self.lock_for(table, (mode, scan.wait), &key)?
                    {
                        return Ok(Flow::More);
                    }
                }
                match self.row_at(scan, &key, outer)? {
                    Some(row) => {
                        if let Some(mode) = scan.locks {
                            self.refuse_newer(table, (mode, !scan.is_read), &key)?;
                        }
                        sink(row, key)
                    }
                    None => Ok(Flow::More),
                }
            }
            Access::All => {
                let rows = self.range(table, ..)?;
                self.scan_rows(scan, rows, outer, sink)
            }
            Access::Range { index, equal, low, high } => {
                let columns = index.map_or(&table.key, |index| &table.indexes[index].columns);
                let Some(bounds) = self.bounds(table, columns, equal, (low.as_ref(), high.as_ref()), outer)? else {
                    return Ok(Flow::More);
                };
                match index {
                    None => {
                        let rows = self.range(table, bounds)?;
                        self.scan_rows(scan, rows, outer, sink)
                    }
                    Some(index) => {
                        let index = self.index(table, *index);
                        let rows = match self.snapshot {
                            Some(snapshot) => index.range(snapshot, bounds),
                            None => index.range(self.tx, bounds),
                        };
                        let rows = rows.map_err(from_engine)?;
                        self.scan_rows(scan, rows, outer, sink)
                    }
                }
            }
        }
    }

    /// The row with this key, if there is one that passes the filter.
    fn row_at(&self, scan: &Scan, key: &Key, outer: Option<&Env<'_>>) -> Outcome<Option<Row>> {
        let engine = self.engine(&scan.table);
        let found = match self.snapshot {
            Some(snapshot) => engine.get(snapshot, key),
            None => engine.get(self.tx, key),
        };
        let Some(found) = found.map_err(from_engine)? else { return Ok(None) };
        let row = to_row(&scan.table, found)?;
        Ok(self.passes(scan.filter.as_ref(), &row, outer)?.then_some(row))
    }

    /// Locks a row that was asked for. `false`: it is skipped, because another transaction has it.
    pub(super) fn lock_for(&self, table: &TableDef, (mode, wait): (Mode, LockWait), key: &Key) -> Outcome<bool> {
        if wait == LockWait::Wait || !self.locker.locks() {
            self.lock_row(table.oid, mode, || key.clone())?;
            return Ok(true);
        }
        if self.locker.lock_now(lock_key(table.oid, key), mode) {
            return Ok(true);
        }
        if wait == LockWait::Skip {
            return Ok(false);
        }
        let message = format!("could not obtain lock on row in relation \"{}\"", table.name);
        Err(Error::new(SqlState::LOCK_NOT_AVAILABLE, message).table(&table.name).into())
    }

    /// Refuses to go on with a row that was locked, if another transaction has changed it after the snapshot of this
    /// one: what the client decides by the old row would be as if there were no lock. A key that is shared protects
    /// only against the loss of the row, which the commit looks for.
    pub(super) fn refuse_newer(&self, table: &TableDef, (mode, is_change): (Mode, bool), key: &Key) -> Outcome<()> {
        if !matches!(self.tx.isolation(), Isolation::Snapshot | Isolation::SerializableOnSnapshot) {
            return Ok(());
        }
        let engine = self.engine(table);
        let is_right = match mode {
            // A row that has lost its key since the snapshot is a conflict at once.
            Mode::KeyShareRow => match engine.hold(self.tx, key) {
                Err(EngineError::Conflict) => Ok(false),
                outcome => outcome,
            },
            _ => engine.is_newest(self.tx, key),
        };
        if is_right.map_err(from_engine)? {
            return Ok(());
        }
        // As PostgreSQL: a row that is only locked was updated, also if it is gone.
        let what = if is_change && self.locker.is_gone(engine, key)? { "delete" } else { "update" };
        let message = format!("could not serialize access due to concurrent {what}");
        Err(Error::new(SqlState::SERIALIZATION_FAILURE, message).into())
    }

    /// The rows of a table in a range of its key.
    fn range<'t>(&'t self, table: &'t TableDef, bounds: impl RangeBounds<EngineRow>) -> Outcome<Rows<'t>> {
        let engine = self.engine(table);
        let rows = match self.snapshot {
            Some(snapshot) => engine.range(snapshot, bounds),
            None => engine.range(self.tx, bounds),
        };
        Ok(rows.map_err(from_engine)?)
    }

    fn scan_rows(
        &self,
        scan: &Scan,
        rows: impl Iterator<Item = lodestone_engine::Result<EngineRow>>,
        outer: Option<&Env<'_>>,
        sink: &mut dyn FnMut(Row, Key) -> Outcome<Flow>,
    ) -> Outcome<Flow> {
        let table = &*scan.table;
        for found in rows {
            self.step()?;
            let found = found.map_err(from_engine)?;
            let key = if scan.locks.is_some() || scan.shows_number { key_of(table, &found) } else { Vec::new() };
            let mut row = to_row(table, found)?;
            if !self.passes(scan.filter.as_ref(), &row, outer)? {
                continue;
            }
            if let Some(mode) = scan.locks {
                if !self.lock_for(table, (mode, scan.wait), &key)? {
                    continue;
                }
                // Another transaction may have changed the row before the lock was taken.
                let Some(found) = self.engine(table).get(self.tx, &key).map_err(from_engine)? else { continue };
                row = to_row(table, found)?;
                if !self.passes(scan.filter.as_ref(), &row, outer)? {
                    continue;
                }
                self.refuse_newer(table, (mode, !scan.is_read), &key)?;
            }
            if scan.shows_number {
                row.extend(key.last().and_then(Value::as_u64).and_then(|n| i64::try_from(n).ok()).map(Datum::Int));
            }
            if sink(row, key)? == Flow::Enough {
                return Ok(Flow::Enough);
            }
        }
        Ok(Flow::More)
    }

    /// The value of a part of a key, in the type of its column. `None`: no row has it.
    fn key_value(
        &self,
        table: &TableDef,
        column: usize,
        part: &KeyPart,
        outer: Option<&Env<'_>>,
    ) -> Outcome<Option<Value>> {
        let found = self.eval(&part.expr, &Env { row: &[], outer })?;
        if found.is_null() {
            return Ok(None);
        }
        let column = &table.columns[column];
        let found = match (part.ty, found) {
            (ty, found) if ty == column.ty || ty.is_integer() && column.ty.is_integer() => found,
            (Type::Text, Datum::Text(text)) if column.ty.is_text() => Datum::Text(text),
            (ty, found) => cast::convert(found, ty, column.ty)?,
        };
        Ok(value::to_value(column, found))
    }

    fn key_values(
        &self,
        table: &TableDef,
        columns: &[usize],
        parts: &[KeyPart],
        outer: Option<&Env<'_>>,
    ) -> Outcome<Option<Key>> {
        let mut key = Vec::with_capacity(parts.len());
        for (column, part) in columns.iter().zip(parts) {
            let Some(found) = self.key_value(table, *column, part, outer)? else { return Ok(None) };
            key.push(found);
        }
        Ok(Some(key))
    }

    /// The limits of a range. `None`: it is empty.
    fn bounds(
        &self,
        table: &TableDef,
        columns: &[usize],
        equal: &[KeyPart],
        (low, high): (Option<&Limit>, Option<&Limit>),
        outer: Option<&Env<'_>>,
    ) -> Outcome<Option<Bounds>> {
        let Some(prefix) = self.key_values(table, columns, equal, outer)? else { return Ok(None) };
        let whole = || if prefix.is_empty() { Bound::Unbounded } else { Bound::Included(EngineRow(prefix.clone())) };
        let bound = |limit: Option<&Limit>, is_low: bool| -> Outcome<Option<Bound<EngineRow>>> {
            let Some((part, is_inclusive)) = limit else {
                return Ok(Some(whole()));
            };
            let column = columns[equal.len()];
            match self.key_value(table, column, part, outer)? {
                Some(found) => {
                    let row = EngineRow(prefix.iter().cloned().chain([found]).collect());
                    Ok(Some(if *is_inclusive { Bound::Included(row) } else { Bound::Excluded(row) }))
                }
                None => {
                    let near = self.near(&table.columns[column], part, is_low, outer)?;
                    Ok(near.map(|found| match found {
                        Some(found) => Bound::Included(EngineRow(prefix.iter().cloned().chain([found]).collect())),
                        None => whole(),
                    }))
                }
            }
        };
        let (Some(low), Some(high)) = (bound(low, true)?, bound(high, false)?) else { return Ok(None) };
        Ok(Some((low, high)))
    }

    /// For a limit that no value of the column has: a value that no row on its right side is beyond, or `Some(None)`:
    /// all rows may be on that side. `None`: no row is. Limits are tested as well, so more rows than those are no
    /// mistake.
    fn near(
        &self,
        column: &crate::catalog::ColumnDef,
        part: &KeyPart,
        is_low: bool,
        outer: Option<&Env<'_>>,
    ) -> Outcome<Option<Option<Value>>> {
        let found = self.eval(&part.expr, &Env { row: &[], outer })?;
        Ok(match (found, column.kind) {
            (Datum::Null, _) => None,
            // An integer of a wider type is beyond all values, on one side or the other.
            (Datum::Int(found), _) => ((found < 0) == is_low).then_some(None),
            // No value of the column is between the limit and the nearest one.
            (Datum::Numeric(found), lodestone_engine::Type::Decimal(scale)) => {
                let nearest = found.round(scale.into()).ok();
                Some(nearest.and_then(|nearest| value::to_value(column, Datum::Numeric(nearest))))
            }
            _ => Some(None),
        })
    }
}
