//! Changes of rows.

use std::borrow::Cow;
use std::collections::HashSet;

use lodestone_engine::{Error as EngineError, Row as EngineRow, Value};
use lodestone_sql_types::{Datum, Error, SqlState, text};

use super::scan::{Key, key_of, lock_key, to_row};
use super::{Env, Flow, Outcome, Row, Run};
use crate::catalog::{TableDef, value};
use crate::errors::from_engine;
use crate::locks::{LockKey, Mode};
use crate::plan::{Change, Conflict, ConflictUpdate, Expr, Node, ViewRows};

/// The lock of a new row and of its entries in unique indexes. A rival waits for it. A child that names a row of the
/// same key does not.
pub(super) const NEW: Mode = Mode::NoKeyUpdateRow;

/// The columns that an UPDATE sets, by place, and their values.
type Assignments = [(usize, Expr)];

/// Computes what is returned of a row before it is changed, if that has a subquery.
type Early<'e> = &'e dyn Fn(&Row, u32) -> Outcome<Option<Row>>;

/// Takes a row that was changed, the number of its table, and what is returned if that is known.
pub(super) type Done<'d> = &'d mut dyn FnMut(&Row, u32, Option<Row>) -> Outcome<()>;

/// The outcome for a row that was to be added.
pub(super) enum Inserted {
    New(Row),
    Changed(Row),
    Skipped,
}

impl Run<'_> {
    /// Carries out a change, and tests the foreign keys that are due. Calls `sink` with the columns that are returned
    /// of each row. Returns how many rows there were.
    pub fn change(
        &self,
        change: &Change,
        returned: Option<&[Expr]>,
        sink: &mut dyn FnMut(Row) -> Outcome<Flow>,
    ) -> Outcome<u64> {
        let mut count = 0;
        // A subquery sees the tables as they were before the statement, so what it is in comes before the first change.
        let early = returned.filter(|columns| columns.iter().any(Expr::has_subquery));
        let early =
            |row: &Row, oid: u32| early.map(|columns| self.project(columns, &with_oid(row, oid), None)).transpose();
        let mut done = |row: &Row, oid: u32, shown: Option<Row>| -> Outcome<()> {
            count += 1;
            match (shown, returned) {
                (Some(shown), _) => drop(sink(shown)?),
                (None, Some(columns)) => drop(sink(self.project(columns, &with_oid(row, oid), None)?)?),
                (None, None) => {}
            }
            Ok(())
        };
        let has_subquery = |set: &Assignments| {
            set.iter().map(|(_, value)| value).chain(returned.into_iter().flatten()).any(Expr::has_subquery)
        };
        match change {
            Change::Insert { table, input, conflict, view } => {
                let target = (&**table, conflict.as_ref(), view.as_deref());
                self.insert_rows(target, self.rows(input, None)?, has_subquery(&[]), (&early, &mut done))?;
            }
            Change::Update { scan, set } => {
                let (is_early, mut waiting) = (has_subquery(set), Vec::new());
                for (row, key) in self.locked_rows(scan)? {
                    let new = self.with_generated(&scan.table, self.assigned(set, &row, &row)?)?;
                    if is_early {
                        self.step()?;
                        let shown = early(&new, scan.table.oid)?;
                        waiting.push((row, key, new, shown));
                        continue;
                    }
                    self.update_row(&scan.table, &key, &row, &new)?;
                    done(&new, scan.table.oid, None)?;
                }
                for (row, key, new, shown) in waiting {
                    self.update_row(&scan.table, &key, &row, &new)?;
                    done(&new, scan.table.oid, shown)?;
                }
            }
            Change::Delete { scan } => {
                let rows = self.locked_rows(scan)?;
                let shown = rows.iter().map(|(row, _)| early(row, scan.table.oid)).collect::<Outcome<Vec<_>>>()?;
                for ((row, key), shown) in rows.into_iter().zip(shown) {
                    self.delete_row(&scan.table, &key, &row)?;
                    done(&row, scan.table.oid, shown)?;
                }
            }
            Change::Merge(merge) => {
                let count = self.merge(merge)?;
                self.settle()?;
                return Ok(count);
            }
            Change::Family { root, parts, .. } => self.change_family(root, parts, &early, &mut done)?,
            Change::Joined { table, input, filter, set, view } => {
                let view = view.as_deref();
                let is_early = has_subquery(set.as_deref().unwrap_or_default())
                    || view.is_some_and(|view| view.exprs().any(Expr::has_subquery));
                let mut waiting = Vec::new();
                let changes = (filter.as_ref(), set.as_deref(), view);
                self.each_joined(table, input, changes, &mut |row, key, shown| {
                    let new = set.is_some().then(|| shown[..table.columns.len()].to_vec());
                    let unseen = if set.is_some() { self.unseen(view, table, &shown)? } else { None };
                    if is_early {
                        let returned = early(&shown, table.oid)?;
                        waiting.push((row, key, new, shown, (returned, unseen)));
                        return Ok(());
                    }
                    self.change_row(table, &key, &row, new.as_ref())?;
                    refuse_unseen(unseen)?;
                    done(&shown, table.oid, None)
                })?;
                for (row, key, new, shown, (returned, unseen)) in waiting {
                    self.change_row(table, &key, &row, new.as_ref())?;
                    refuse_unseen(unseen)?;
                    done(&shown, table.oid, returned)?;
                }
            }
        }
        self.settle()?;
        Ok(count)
    }

    /// Adds rows. A query may read the table that it changes, so all of its rows came before the first is added.
    /// `is_early`: what is returned has a subquery.
    fn insert_rows(
        &self,
        (table, conflict, view): (&TableDef, Option<&Conflict>, Option<&ViewRows>),
        mut rows: Vec<Row>,
        is_early: bool,
        (early, done): (Early<'_>, Done<'_>),
    ) -> Outcome<()> {
        let mut seen = HashSet::new();
        let mut shown = Vec::new();
        let is_early = is_early || view.is_some_and(|view| view.exprs().any(Expr::has_subquery));
        let is_early = is_early && conflict.is_none();
        if is_early {
            for row in &mut rows {
                self.step()?;
                *row = self.with_generated(table, std::mem::take(row))?;
                let row = self.through(view, table, row)?;
                shown.push((early(&row, table.oid)?, self.unseen(view, table, &row)?));
            }
        }
        let mut shown = shown.into_iter();
        for row in rows {
            self.step()?;
            let row = self.with_generated(table, row)?;
            let (shown, unseen) = shown.next().unwrap_or_default();
            let (inserted, oid) = match table.partition_by {
                Some(_) => self.insert_routed(table, row, conflict, &mut seen)?,
                None => (self.insert_or(table, row, conflict, &mut seen)?, table.oid),
            };
            let (Inserted::New(row) | Inserted::Changed(row)) = inserted else { continue };
            let row = self.through(view, table, &row)?;
            refuse_unseen(if is_early { unseen } else { self.unseen(view, table, &row)? })?;
            done(&row, oid, shown)?;
        }
        Ok(())
    }

    /// `row` with the columns that are set, whose values are over `over`.
    pub(super) fn assigned(&self, set: &Assignments, row: &Row, over: &Row) -> Outcome<Row> {
        let mut new = row.clone();
        for (column, expr) in set {
            new[*column] = self.eval(expr, &Env { row: over, outer: None })?;
        }
        Ok(new)
    }

    /// The row with the values that are computed from the others.
    pub(super) fn with_generated(&self, table: &TableDef, mut row: Row) -> Outcome<Row> {
        for (column, expr) in &table.generated {
            row[*column] = self.eval(expr, &Env { row: &row, outer: None })?;
        }
        Ok(row)
    }

    pub(super) fn locked_rows(&self, scan: &crate::plan::Scan) -> Outcome<Vec<(Row, Key)>> {
        let mut rows = Vec::new();
        self.scan(scan, None, &mut |row, key| {
            rows.push((row, key));
            Ok(Flow::More)
        })?;
        Ok(rows)
    }

    /// Changes a row, or deletes it.
    pub(super) fn change_row(&self, table: &TableDef, key: &Key, row: &Row, new: Option<&Row>) -> Outcome<()> {
        match new {
            Some(new) => self.update_row(table, key, row, new),
            None => self.delete_row(table, key, row),
        }
    }

    /// UPDATE .. FROM and DELETE .. USING: each row of the table once, with its key, and with the first of its partners
    /// as it is after the change.
    pub(super) fn each_joined(
        &self,
        table: &TableDef,
        input: &Node,
        (filter, set, view): (Option<&Expr>, Option<&Assignments>, Option<&ViewRows>),
        change: &mut dyn FnMut(Row, Key, Row) -> Outcome<()>,
    ) -> Outcome<()> {
        let width = table.columns.len();
        let mut seen: HashSet<Vec<u8>> = HashSet::new();
        for mut joined in self.rows(input, None)? {
            self.step()?;
            let key = match table.hidden {
                Some(_) => {
                    let number = joined.get(width).and_then(Datum::as_int).and_then(|n| u64::try_from(n).ok());
                    vec![Value::U64(number.unwrap_or(0))]
                }
                None => {
                    let value = |column: &usize| value::to_stored(&table.columns[*column], joined[*column].clone());
                    table.key.iter().map(value).collect::<lodestone_sql_types::Result<Key>>()?
                }
            };
            if !seen.insert(lock_key(table.oid, &key).key) {
                continue;
            }
            let mode = if set.is_some() { Mode::NoKeyUpdateRow } else { Mode::UpdateRow };
            self.lock(lock_key(table.oid, &key), mode)?;
            // Another transaction may have changed the row before the lock was taken.
            let Some(found) = self.engine(table).get(self.tx, &key).map_err(from_engine)? else { continue };
            let row = to_row(table, found)?;
            self.refuse_newer(table, (mode, true), &key)?;
            if row[..] != joined[..width] {
                joined.splice(..width, row.iter().cloned());
                self.show_again(view, table, &mut joined)?;
                if !self.passes(filter, &joined, None)? {
                    continue;
                }
            }
            if let Some(set) = set {
                let new = self.with_generated(table, self.assigned(set, &row, &joined)?)?;
                joined.splice(..width, new);
                self.show_again(view, table, &mut joined)?;
            }
            change(row, key, joined)?;
        }
        Ok(())
    }

    /// The row as the views show it through which its table is changed.
    fn through<'r>(&self, view: Option<&ViewRows>, table: &TableDef, row: &'r Row) -> Outcome<Cow<'r, Row>> {
        let Some(view) = view else { return Ok(Cow::Borrowed(row)) };
        let rest = usize::from(table.hidden.is_some()) + view.columns.len();
        let mut row: Row = row.iter().cloned().chain(std::iter::repeat_n(Datum::Null, rest)).collect();
        self.show_again(Some(view), table, &mut row)?;
        Ok(Cow::Owned(row))
    }

    /// Computes the columns of views again, after a change of those of the table.
    fn show_again(&self, view: Option<&ViewRows>, table: &TableDef, row: &mut Row) -> Outcome<()> {
        let first = table.columns.len() + usize::from(table.hidden.is_some());
        for (place, column) in view.iter().flat_map(|view| &view.columns).enumerate() {
            row[first + place] = self.eval(column, &Env { row, outer: None })?;
        }
        Ok(())
    }

    /// The error of a new row that a view with WITH CHECK OPTION would not show.
    fn unseen(&self, view: Option<&ViewRows>, table: &TableDef, row: &Row) -> Outcome<Option<Error>> {
        for (name, check) in view.iter().flat_map(|view| &view.checks) {
            if !self.passes(Some(check), row, None)? {
                let message = format!("new row violates check option for view \"{name}\"");
                let detail = format!("Failing row contains ({}).", texts(table, row));
                return Ok(Some(Error::new(SqlState::WITH_CHECK_OPTION_VIOLATION, message).detail(detail)));
            }
        }
        Ok(None)
    }

    /// Adds a row. `false`: another one has its key, and that is to be skipped.
    pub fn insert(&self, table: &TableDef, row: &[Datum], skips_duplicates: bool) -> Outcome<bool> {
        Ok(self.add_row(table, row, skips_duplicates)?.is_some())
    }

    /// Adds a row, and returns it as it is stored.
    fn add_row(&self, table: &TableDef, row: &[Datum], skips_duplicates: bool) -> Outcome<Option<EngineRow>> {
        let stored = to_stored(table, row)?;
        self.check(table, row)?;
        self.add_stored(table, (stored, Some(row)), skips_duplicates)
    }

    /// As [`insert`](Self::insert), of a row as the engine has it, without a hidden number.
    pub fn insert_stored(&self, table: &TableDef, stored: EngineRow, skips_duplicates: bool) -> Outcome<bool> {
        let is_plain = table.checks.is_empty() && table.foreign_keys.is_empty() && table.generated.is_empty();
        let is_plain = is_plain && table.partition_by.is_none() && table.parents.is_empty();
        if is_plain && !table.has_domains() {
            return Ok(self.add_stored(table, (stored, None), skips_duplicates)?.is_some());
        }
        let data = table.columns.iter().zip(stored.0.iter().cloned());
        let row: Row =
            data.map(|(column, found)| value::to_datum(column, found)).collect::<lodestone_sql_types::Result<_>>()?;
        if table.partition_by.is_some() {
            let row = self.with_generated(table, row)?;
            self.insert_routed(table, row, None, &mut HashSet::new())?;
            return Ok(true);
        }
        if !table.generated.is_empty() {
            return self.insert(table, &self.with_generated(table, row)?, skips_duplicates);
        }
        self.check(table, &row)?;
        Ok(self.add_stored(table, (stored, Some(&row)), skips_duplicates)?.is_some())
    }

    /// Adds a row whose conditions are true. The values for SQL are needed if the table has foreign keys.
    fn add_stored(
        &self,
        table: &TableDef,
        (mut stored, row): (EngineRow, Option<&[Datum]>),
        skips_duplicates: bool,
    ) -> Outcome<Option<EngineRow>> {
        match table.hidden {
            Some(place) => stored.0.insert(place, table.next_row().into()),
            None => self.lock_row(table.oid, NEW, || key_of(table, &stored))?,
        }
        self.lock_entries(table, &stored)?;
        let engine = self.engine(table);
        let outcome = match table.row_numbers {
            // No other row has the number, so nothing needs to be read.
            Some(_) => engine.put(self.tx, &stored),
            None => engine.insert(self.tx, &stored),
        };
        match outcome {
            Ok(()) => {
                self.note_late(table, &stored, None)?;
                if let Some(row) = row.filter(|_| !table.foreign_keys.is_empty()) {
                    self.note_child(table, &key_of(table, &stored), None, row);
                }
                Ok(Some(stored))
            }
            Err(EngineError::Duplicate { .. }) if skips_duplicates => Ok(None),
            Err(error) => Err(with_values(error, table, &stored).into()),
        }
    }

    /// Adds a row, or does with it what ON CONFLICT says. `seen`: keys of the rows that this statement has written.
    pub(super) fn insert_or(
        &self,
        table: &TableDef,
        row: Row,
        conflict: Option<&Conflict>,
        seen: &mut HashSet<LockKey>,
    ) -> Outcome<Inserted> {
        let Some(Conflict { key, update }) = conflict else {
            self.insert(table, &row, false)?;
            return Ok(Inserted::New(row));
        };
        // Before it collides, as PostgreSQL does.
        let stored = to_stored(table, &row)?;
        self.check(table, &row)?;
        let others: Vec<Option<usize>> = match key {
            Some(key) => vec![*key],
            None => {
                let unique = (0..table.indexes.len()).filter(|index| table.indexes[*index].is_unique).map(Some);
                (!table.key.is_empty()).then_some(None).into_iter().chain(unique).collect()
            }
        };
        let arbiters: &[Option<usize>] = if key.is_some() { &others } else { &[] };
        let is_arbiter = |index: usize| key.is_none() || arbiters.contains(&Some(index));
        if (0..table.indexes.len()).any(|index| table.indexes[index].late.is_some() && is_arbiter(index)) {
            let message =
                "ON CONFLICT does not support deferrable unique constraints/exclusion constraints as arbiters";
            let error = Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message);
            return Err(error.table(&table.name).into());
        }
        let columns = |other: Option<usize>| other.map_or(&table.key, |index| &table.indexes[index].columns);
        for other in others {
            let values: Vec<Value> = columns(other).iter().map(|column| stored_at(table, &stored, *column)).collect();
            if values.contains(&Value::Null) {
                continue;
            }
            let oid = other.map_or(table.oid, |index| table.indexes[index].oid);
            self.lock(lock_key(oid, &values), NEW)?;
            let found = match other {
                None => self.engine(table).get(self.tx, &values),
                Some(index) => self.index(table, index).get(self.tx, &values),
            };
            let Some(found) = found.map_err(from_engine)? else {
                // A row that came after the snapshot has the key.
                if other.is_none() {
                    self.refuse_newer(table, (NEW, false), &values)?;
                }
                continue;
            };
            let Some(update) = update else { return Ok(Inserted::Skipped) };
            return self.update_instead(table, (found, &row), update, seen);
        }
        if let Some(stored) = self.add_row(table, &row, false)? {
            seen.insert(lock_key(table.oid, &key_of(table, &stored)));
        }
        Ok(Inserted::New(row))
    }

    fn update_instead(
        &self,
        table: &TableDef,
        (found, row): (EngineRow, &Row),
        update: &ConflictUpdate,
        seen: &mut HashSet<LockKey>,
    ) -> Outcome<Inserted> {
        let key = key_of(table, &found);
        self.lock(lock_key(table.oid, &key), Mode::NoKeyUpdateRow)?;
        // Another transaction may have changed it before the lock was taken.
        let Some(found) = self.engine(table).get(self.tx, &key).map_err(from_engine)? else {
            return Ok(Inserted::Skipped);
        };
        if seen.contains(&lock_key(table.oid, &key)) {
            let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
            return Err(Error::new(SqlState::CARDINALITY_VIOLATION, message)
                .hint(
                    "Ensure that no rows proposed for insertion within the same command have duplicate constrained \
                     values.",
                )
                .into());
        }
        let old = to_row(table, found)?;
        self.refuse_newer(table, (Mode::NoKeyUpdateRow, false), &key)?;
        let view = update.view.as_deref();
        let both: Row =
            self.through(view, table, &old)?.iter().chain(&*self.through(view, table, row)?).cloned().collect();
        if !self.passes(update.filter.as_ref(), &both, None)? {
            return Ok(Inserted::Skipped);
        }
        let new = self.with_generated(table, self.assigned(&update.set, &old, &both)?)?;
        if !self.fits_partition(table, &new)? {
            let detail = "The result tuple would appear in a different partition than the original tuple.";
            let error = Error::new(SqlState::FEATURE_NOT_SUPPORTED, "invalid ON UPDATE specification");
            return Err(error.detail(detail).into());
        }
        self.update_row(table, &key, &old, &new)?;
        let key = if table.hidden.is_some() { key } else { key_of(table, &to_stored(table, &new)?) };
        seen.insert(lock_key(table.oid, &key));
        Ok(Inserted::Changed(new))
    }

    /// Locks the entries of unique indexes, so that a rival is waited for.
    fn lock_entries(&self, table: &TableDef, stored: &EngineRow) -> Outcome<()> {
        for index in table.indexes.iter().filter(|index| index.is_unique) {
            let values: Vec<Value> = index.columns.iter().map(|column| stored_at(table, stored, *column)).collect();
            if !values.contains(&Value::Null) {
                self.lock_row(index.oid, NEW, || values)?;
            }
        }
        Ok(())
    }

    /// Replaces the row with this key.
    pub(super) fn update_row(&self, table: &TableDef, key: &Key, old: &Row, row: &Row) -> Outcome<()> {
        let computed;
        let row = if table.generated.is_empty() {
            row
        } else {
            // The changes of a foreign key come here, too.
            computed = self.with_generated(table, row.clone())?;
            &computed
        };
        let mut stored = to_stored(table, row)?;
        self.check(table, row)?;
        if let Some(place) = table.hidden {
            stored.0.insert(place, key.last().cloned().unwrap_or(Value::U64(0)));
        }
        if table.changes_key(old, row) {
            // The rows of children that name its key are not to come or go meanwhile.
            self.lock_row(table.oid, Mode::UpdateRow, || key.clone())?;
        }
        self.lock_entries(table, &stored)?;
        self.note_parent(table, key, old, Some(row))?;
        let new = key_of(table, &stored);
        let engine = self.engine(table);
        let outcome = if new[..] == **key {
            engine.put(self.tx, &stored)
        } else {
            self.lock_row(table.oid, NEW, || new.clone())?;
            let removed = engine.delete(self.tx, key).map(drop);
            removed.and_then(|()| engine.insert(self.tx, &stored))
        };
        outcome.map_err(|error| with_values(error, table, &stored))?;
        self.note_late(table, &stored, Some((old, row)))?;
        self.note_child(table, &new, Some((old, key)), row);
        Ok(())
    }

    /// Removes the row with this key.
    pub(super) fn delete_row(&self, table: &TableDef, key: &Key, row: &Row) -> Outcome<()> {
        self.note_parent(table, key, row, None)?;
        self.engine(table).delete(self.tx, key).map_err(from_engine)?;
        Ok(())
    }
}

/// A row, and the number of its table after its columns, for those that name it.
fn with_oid(row: &Row, oid: u32) -> Row {
    row.iter().cloned().chain([Datum::Int(oid.into())]).collect()
}

/// Refuses a row that a view would not show. It is changed first: errors of its constraints are told before.
fn refuse_unseen(error: Option<Error>) -> Outcome<()> {
    error.map_or(Ok(()), |error| Err(error.into()))
}

/// The value of a column in a row that may have the hidden number.
pub fn stored_at(table: &TableDef, stored: &EngineRow, column: usize) -> Value {
    let is_after = stored.len() > table.columns.len() && table.hidden.is_some_and(|place| column >= place);
    stored[column + usize::from(is_after)].clone()
}

/// The row for the engine, without a hidden number.
///
/// # Errors
/// 23502; 22003.
pub fn to_stored(table: &TableDef, row: &[Datum]) -> lodestone_sql_types::Result<EngineRow> {
    let mut stored = Vec::with_capacity(table.columns.len() + 1);
    for (column, datum) in table.columns.iter().zip(row) {
        if datum.is_null() && column.not_null {
            let message = format!(
                "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
                column.name, table.name
            );
            return Err(Error::new(SqlState::NOT_NULL_VIOLATION, message)
                .detail(format!("Failing row contains ({}).", texts(table, row)))
                .table(&table.name)
                .column(&column.name));
        }
        stored.push(value::to_stored(column, datum.clone())?);
    }
    Ok(EngineRow(stored))
}

/// The values of a row, for messages.
pub(super) fn texts(table: &TableDef, row: &[Datum]) -> String {
    let texts = table.columns.iter().zip(row).map(|(column, datum)| {
        if datum.is_null() { "null".to_owned() } else { text::encode(column.ty, datum).chars().take(64).collect() }
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// The error of the engine, with the columns and values of the row.
fn with_values(error: EngineError, table: &TableDef, row: &EngineRow) -> Error {
    let EngineError::Duplicate { index, .. } = &error else { return from_engine(error) };
    let (name, columns) = constraint_of(table, index.as_deref());
    let shown = |number: &usize| {
        let column = &table.columns[*number];
        value::to_datum(column, stored_at(table, row, *number))
            .map_or_else(|_| "?".to_owned(), |datum| text::encode(column.ty, &datum))
    };
    let values: Vec<String> = columns.iter().map(shown).collect();
    duplicate(table, name, columns, &values.join(", "))
}

/// The error of the engine about a row that is not at hand, with the names that SQL has.
pub fn with_names(error: EngineError, table: &TableDef) -> Error {
    let EngineError::Duplicate { index, key, .. } = &error else { return from_engine(error) };
    let (name, columns) = constraint_of(table, index.as_deref());
    duplicate(table, name, columns, key.trim_start_matches('(').trim_end_matches(')'))
}

/// The name and the columns of a unique index; `None`: of the key.
fn constraint_of<'t>(table: &'t TableDef, index: Option<&str>) -> (&'t str, &'t [usize]) {
    let found = index.and_then(|name| table.indexes.iter().find(|other| other.name == name));
    found.map_or((&table.key_name, &table.key), |index| (&index.name, &index.columns))
}

pub(super) fn duplicate(table: &TableDef, name: &str, columns: &[usize], values: &str) -> Error {
    let names: Vec<&str> = columns.iter().map(|column| table.columns[*column].name.as_str()).collect();
    Error::new(SqlState::UNIQUE_VIOLATION, format!("duplicate key value violates unique constraint \"{name}\""))
        .detail(format!("Key ({})=({values}) already exists.", names.join(", ")))
        .table(&table.name)
        .constraint(name)
}
