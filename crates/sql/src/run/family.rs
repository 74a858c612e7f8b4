//! Rows of partitioned tables and of tables that others inherit from.
//!
//! A row for a partitioned table goes down from one table to the next until it is in one that has rows. A change of
//! such a table is made of all rows first and carried out then, so a row that moves to another partition is not found
//! there again.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use lodestone_sql_types::{Datum, Error, SqlState, text};

use super::change::{Done, Inserted};
use super::scan::Key;
use super::{Env, Outcome, Row, Run};
use crate::catalog::family::PartitionKey;
use crate::catalog::{Heir, TableDef};
use crate::errors::from_engine;
use crate::locks::LockKey;
use crate::plan::{Change, Conflict, ConflictUpdate, Expr, FamilyPart};

/// A change of a row that was made and not carried out yet.
struct Waiting<'c> {
    table: &'c TableDef,
    map: &'c [usize],
    key: Key,
    old: Row,
    new: Option<Row>,
    /// With the columns of the root, then those of the others in FROM.
    shown: Row,
    /// The columns that are returned, if they had to be computed before.
    returned: Option<Row>,
}

/// Whether both tables have their columns in the same places.
fn is_same(map: &[usize], width: usize) -> bool {
    map.len() == width && map.iter().enumerate().all(|(place, own)| place == *own)
}

/// The row of the table above, of a row of the one below.
fn above(row: &[Datum], map: &[usize]) -> Row {
    map.iter().map(|column| row[*column].clone()).collect()
}

/// The row of the table below, of a row of the one above. Columns that the one above does not have are null.
fn below(row: Row, heir: &Heir) -> Row {
    if is_same(&heir.map, heir.table.columns.len()) {
        return row;
    }
    let mut found = vec![Datum::Null; heir.table.columns.len()];
    for (value, column) in row.into_iter().zip(&heir.map) {
        found[*column] = value;
    }
    found
}

impl Run<'_> {
    fn key_of_partition(&self, key: &PartitionKey, row: &[Datum]) -> Outcome<Row> {
        key.keys.iter().map(|part| self.eval(&part.expr, &Env { row, outer: None })).collect()
    }

    /// The table that has the rows to which this row belongs, the row with its columns, and where those of the first
    /// table are.
    ///
    /// # Errors
    /// 23514 if there is no partition for it.
    pub(super) fn route(&self, root: &TableDef, row: Row) -> Outcome<(Arc<TableDef>, Row, Vec<usize>)> {
        self.check_partition(root, &row)?;
        self.route_down(root, row)
    }

    /// As [`route`](Self::route), for a row of which only the key may be known.
    pub(super) fn route_down(&self, root: &TableDef, row: Row) -> Outcome<(Arc<TableDef>, Row, Vec<usize>)> {
        let mut map: Vec<usize> = (0..root.columns.len()).collect();
        let (mut at, mut row) = (root, row);
        loop {
            let heir = self.partition_of(at, &row)?;
            row = below(row, heir);
            map.iter_mut().for_each(|column| *column = heir.map[*column]);
            if heir.table.partition_by.is_none() {
                return Ok((heir.table.clone(), row, map));
            }
            at = &heir.table;
        }
    }

    fn partition_of(&self, table: &TableDef, row: &[Datum]) -> Outcome<&Heir> {
        let family = self.catalog.families.get(&table.oid);
        let key = family.and_then(|family| family.key.as_ref());
        let (Some(family), Some(key)) = (family, key) else {
            let message = format!("the partitions of \"{}\" are lost", table.name);
            return Err(Error::new(SqlState::INTERNAL_ERROR, message).into());
        };
        let values = self.key_of_partition(key, row)?;
        family.partition(&values).ok_or_else(|| no_partition(table, key, &values).into())
    }

    /// Tests whether a row belongs to a partition.
    ///
    /// # Errors
    /// 23514.
    pub(super) fn check_partition(&self, table: &TableDef, row: &[Datum]) -> Outcome<()> {
        if self.fits_partition(table, row)? {
            return Ok(());
        }
        let message = format!("new row for relation \"{}\" violates partition constraint", table.name);
        Err(Error::new(SqlState::CHECK_VIOLATION, message)
            .detail(format!("Failing row contains ({}).", super::change::texts(table, row)))
            .table(&table.name)
            .into())
    }

    /// Whether a row belongs to a table, as far as it and those above it are partitions.
    pub(super) fn fits_partition(&self, table: &TableDef, row: &[Datum]) -> Outcome<bool> {
        let (mut table, mut row) = (table, Cow::Borrowed(row));
        while table.parents.iter().any(|parent| parent.bound.is_some()) {
            let Some(parent) = self.catalog.partitioned(table) else { return Ok(true) };
            let Some(family) = self.catalog.families.get(&parent.oid) else { return Ok(true) };
            let Some(heir) = family.heirs.iter().find(|heir| heir.table.oid == table.oid) else { return Ok(true) };
            if !is_same(&heir.map, row.len()) {
                row = Cow::Owned(above(&row, &heir.map));
            }
            if let Some(key) = &family.key {
                let values = self.key_of_partition(key, &row)?;
                if family.partition(&values).is_none_or(|own| own.table.oid != table.oid) {
                    return Ok(false);
                }
            }
            table = parent;
        }
        Ok(true)
    }

    /// As [`fits_partition`](Self::fits_partition).
    pub fn belongs(&self, table: &TableDef, row: &[Datum]) -> Outcome<bool> {
        self.fits_partition(table, row)
    }

    /// Adds a row to the partition that it belongs to. The row that comes back has the columns of the root.
    pub(super) fn insert_routed(
        &self,
        root: &TableDef,
        row: Row,
        conflict: Option<&Conflict>,
        seen: &mut HashSet<LockKey>,
    ) -> Outcome<(Inserted, u32)> {
        let (leaf, row, map) = self.route(root, row)?;
        let conflict = conflict.map(|conflict| moved(conflict, root, (&leaf, &map))).transpose()?;
        let row = self.with_generated(&leaf, row)?;
        let inserted = match self.insert_or(&leaf, row, conflict.as_ref(), seen)? {
            Inserted::New(row) => Inserted::New(above(&row, &map)),
            Inserted::Changed(row) => Inserted::Changed(above(&row, &map)),
            Inserted::Skipped => Inserted::Skipped,
        };
        Ok((inserted, leaf.oid))
    }

    /// Changes the rows of a table and of those below it.
    pub(super) fn change_family(
        &self,
        root: &TableDef,
        parts: &[FamilyPart],
        early: &dyn Fn(&Row, u32) -> Outcome<Option<Row>>,
        done: Done<'_>,
    ) -> Outcome<()> {
        let mut waiting = Vec::new();
        for part in parts {
            self.gather(part, early, &mut waiting)?;
        }
        for Waiting { table, map, key, old, new, shown, returned } in waiting {
            self.step()?;
            match new {
                Some(new) if !self.fits_partition(table, &new)? => {
                    if root.partition_by.is_none() {
                        self.check_partition(table, &new)?;
                    }
                    self.take_away(table, &key, &old, &new)?;
                    let (_, oid) = self.insert_routed(root, above(&new, map), None, &mut HashSet::new())?;
                    done(&shown, oid, returned)?;
                }
                new => {
                    self.change_row(table, &key, &old, new.as_ref())?;
                    done(&shown, table.oid, returned)?;
                }
            }
        }
        Ok(())
    }

    /// Removes a row from its partition that becomes `new` in another one: for foreign keys it has changed.
    fn take_away(&self, table: &TableDef, key: &Key, old: &Row, new: &Row) -> Outcome<()> {
        self.note_parent(table, key, old, Some(new))?;
        self.engine(table).delete(self.tx, key).map_err(from_engine)?;
        Ok(())
    }

    /// Changes a row. One that no longer belongs to its partition moves to another one.
    pub(super) fn change_or_move(&self, table: &TableDef, key: &Key, old: &Row, new: &Row) -> Outcome<()> {
        if table.parents.is_empty() || self.fits_partition(table, new)? {
            return self.update_row(table, key, old, new);
        }
        let (mut root, mut row) = (table, new.clone());
        while let Some(parent) = self.catalog.partitioned(root) {
            let heir = self.catalog.heirs(parent.oid).iter().find(|heir| heir.table.oid == root.oid);
            row = heir.map_or(row.clone(), |heir| above(&row, &heir.map));
            root = parent;
        }
        self.take_away(table, key, old, new)?;
        self.insert_routed(root, row, None, &mut HashSet::new()).map(drop)
    }

    fn gather<'c>(
        &self,
        part: &'c FamilyPart,
        early: &dyn Fn(&Row, u32) -> Outcome<Option<Row>>,
        waiting: &mut Vec<Waiting<'c>>,
    ) -> Outcome<()> {
        let map = &part.map[..];
        match &part.change {
            Change::Update { scan, set } => {
                for (old, key) in self.locked_rows(scan)? {
                    self.step()?;
                    let new = self.with_generated(&scan.table, self.assigned(set, &old, &old)?)?;
                    let shown = above(&new, map);
                    let returned = early(&shown, scan.table.oid)?;
                    waiting.push(Waiting { table: &scan.table, map, key, old, new: Some(new), shown, returned });
                }
            }
            Change::Delete { scan } => {
                for (old, key) in self.locked_rows(scan)? {
                    self.step()?;
                    let shown = above(&old, map);
                    let returned = early(&shown, scan.table.oid)?;
                    waiting.push(Waiting { table: &scan.table, map, key, old, new: None, shown, returned });
                }
            }
            Change::Joined { table, input, filter, set, .. } => {
                let width = table.columns.len();
                let changes = (filter.as_ref(), set.as_deref(), None);
                self.each_joined(table, input, changes, &mut |old, key, joined| {
                    let new = set.is_some().then(|| joined[..width].to_vec());
                    let others = joined[width + usize::from(table.hidden.is_some())..].iter().cloned();
                    let shown: Row = above(&joined, map).into_iter().chain(others).collect();
                    let returned = early(&shown, table.oid)?;
                    waiting.push(Waiting { table, map, key, old, new, shown, returned });
                    Ok(())
                })?;
            }
            Change::Insert { .. } | Change::Family { .. } | Change::Merge(_) => {
                return Err(Error::new(SqlState::INTERNAL_ERROR, "a part of a change is no change of rows").into());
            }
        }
        Ok(())
    }
}

/// ON CONFLICT of a partitioned table, for one of its partitions.
fn moved(conflict: &Conflict, root: &TableDef, (leaf, map): (&TableDef, &[usize])) -> Outcome<Conflict> {
    let columns = |key: Option<usize>| key.map_or(&root.key, |index| &root.indexes[index].columns);
    let key = match conflict.key {
        None => None,
        Some(key) => {
            let own: Vec<usize> = columns(key).iter().map(|column| map[*column]).collect();
            let message = "there is no unique or exclusion constraint matching the ON CONFLICT specification";
            let missing = || Error::new(SqlState::INVALID_COLUMN_REFERENCE, message);
            Some(leaf.late_over(&own).map(Some).or_else(|| leaf.unique_over(&own)).ok_or_else(missing)?)
        }
    };
    let Some(update) = &conflict.update else { return Ok(Conflict { key, update: None }) };
    if update.view.is_some() {
        let message = "ON CONFLICT DO UPDATE of a view of a partitioned table";
        return Err(Error::unsupported(message).into());
    }
    if is_same(map, leaf.columns.len()) {
        return Ok(Conflict { key, update: Some(update.clone()) });
    }
    let (width, own_width) = (root.columns.len(), leaf.columns.len());
    let over = |expr: &Expr| -> Outcome<Expr> {
        if expr.has_subquery() {
            let message = "a subquery in DO UPDATE of a partition whose columns have other places";
            return Err(Error::unsupported(message).into());
        }
        let mut found = expr.clone();
        found.walk_mut(&mut |part| {
            if let Expr::Column { depth: 0, index } = part {
                *index = if *index < width { map[*index] } else { own_width + map[*index - width] };
            }
        });
        Ok(found)
    };
    let set = update.set.iter().map(|(column, expr)| Ok((map[*column], over(expr)?))).collect::<Outcome<_>>()?;
    let filter = update.filter.as_ref().map(over).transpose()?;
    Ok(Conflict { key, update: Some(ConflictUpdate { set, filter, view: None }) })
}

fn no_partition(table: &TableDef, key: &PartitionKey, values: &[Datum]) -> Error {
    let name = |part: &crate::catalog::family::KeyPart| match part.column {
        Some(column) => table.columns[column].name.clone(),
        None => part.text.clone(),
    };
    let names: Vec<String> = key.keys.iter().map(name).collect();
    let shown = key.keys.iter().zip(values).map(|(part, value)| {
        if value.is_null() { "null".to_owned() } else { text::encode(part.ty, value).chars().take(64).collect() }
    });
    let message = format!("no partition of relation \"{}\" found for row", table.name);
    let shown = shown.collect::<Vec<_>>().join(", ");
    Error::new(SqlState::CHECK_VIOLATION, message)
        .detail(format!("Partition key of the failing row contains ({}) = ({shown}).", names.join(", ")))
        .table(&table.name)
}
