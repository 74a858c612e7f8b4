//! Conditions and foreign keys, and when these and keys are tested.
//!
//! A condition (CHECK) is tested before a row is written. A foreign key is tested when its statement has made all of
//! its changes, or at the end of the transaction if it is deferred:
//!
//! 1. A change of a row notes events: a child has new values, or a parent has lost its key.
//! 2. [`Run::settle`] takes the events in their order. A child looks for its parent, and *holds* it: the commit fails
//!    if the parent is gone by then, at every level of isolation. A parent looks for its children, in a transaction
//!    that is serializable from then on, and refuses, deletes or changes them. That notes further events.
//! 3. An event looks at its rows anew. So one whose row was changed since tells nothing.
//!
//! A child takes a shared lock on the key of its parent, and a parent that loses its key an exclusive one. So the
//! second of them waits for the first, and neither meets a conflict.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use lodestone_engine::{Row as EngineRow, Value};
use lodestone_sql_types::{Datum, Error, SqlState, cast, op, text};

use super::late::LateEvent;
use super::scan::{Key, lock_key, to_row};
use super::{Env, Outcome, Row, Run};
use crate::catalog::{Domain, ForeignKey, TableDef, value};
use crate::errors::from_engine;
use crate::locks::Mode;
use crate::parse::ast::KeyAction;

/// A foreign key that is to be tested.
#[derive(Clone, Debug)]
pub enum Event {
    /// The row of the child with this key has new values in the foreign key with this number.
    Child { table: Arc<TableDef>, number: usize, key: Key },
    /// A row has new values in a key that is tested late: the index with this number, of this table. See `late.rs`.
    Late(LateEvent),
    /// A row of the parent had `old`, and has `new` now. The foreign key is that of the child with this number.
    Parent { parent: Arc<TableDef>, child: Arc<TableDef>, number: usize, old: Row, new: Option<Row> },
}

/// The constraints of a transaction that are to be tested.
#[derive(Debug, Default)]
pub struct Events {
    /// At the end of the statement.
    pending: RefCell<VecDeque<Event>>,
    /// At the end of the transaction.
    deferred: RefCell<Vec<Event>>,
    /// The words of SET CONSTRAINTS: of all, then of some by their numbers.
    modes: RefCell<Vec<(Option<u32>, bool)>>,
    /// The deferred ones as they were before each recall, for savepoints from before it.
    recalled: RefCell<Vec<Vec<Event>>>,
}

/// The constraints that were to be tested at one moment, to go back to.
#[derive(Clone, Debug)]
pub struct EventsMark {
    deferred: usize,
    recalled: usize,
    modes: Vec<(Option<u32>, bool)>,
}

/// A constraint whose test may wait: its number, whether it may be deferred, and whether it is at first.
type Timing = (u32, bool, bool);

impl Events {
    /// How many are deferred.
    pub fn deferred_count(&self) -> usize {
        self.deferred.borrow().len()
    }

    /// Forgets those of a statement that is undone, and the deferred ones after the first `count`.
    pub fn forget_after(&self, count: usize) {
        self.pending.borrow_mut().clear();
        self.deferred.borrow_mut().truncate(count);
    }

    /// This moment, between two statements.
    pub fn mark(&self) -> EventsMark {
        EventsMark {
            deferred: self.deferred_count(),
            recalled: self.recalled.borrow().len(),
            modes: self.modes.borrow().clone(),
        }
    }

    /// All that was tested since the mark is to be tested again, and what came after it is forgotten.
    pub fn go_back(&self, mark: &EventsMark) {
        let mut recalled = self.recalled.borrow_mut();
        if let Some(before) = recalled.get_mut(mark.recalled) {
            *self.deferred.borrow_mut() = std::mem::take(before);
        }
        recalled.truncate(mark.recalled);
        self.modes.borrow_mut().clone_from(&mark.modes);
        self.forget_after(mark.deferred);
    }

    /// Notes SET CONSTRAINTS of the constraint with this number. `None`: of all.
    pub fn set_mode(&self, constraint: Option<u32>, is_deferred: bool) {
        let mut modes = self.modes.borrow_mut();
        match constraint {
            None => modes.clear(),
            Some(_) => modes.retain(|(other, _)| *other != constraint),
        }
        modes.push((constraint, is_deferred));
    }

    /// Tests the deferred ones that are immediate now with the next statement; `is_end`: all of them.
    pub fn recall(&self, is_end: bool) {
        let deferred = std::mem::take(&mut *self.deferred.borrow_mut());
        for event in &deferred {
            if !is_end && self.is_deferred(event.timing()) {
                self.deferred.borrow_mut().push(event.clone());
            } else {
                self.pending.borrow_mut().push_back(event.clone());
            }
        }
        self.recalled.borrow_mut().push(deferred);
    }

    fn is_deferred(&self, (oid, is_deferrable, is_deferred): Timing) -> bool {
        if !is_deferrable {
            return false;
        }
        let modes = self.modes.borrow();
        let own = modes.iter().rev().find(|(other, _)| other.is_none_or(|other| other == oid));
        own.map_or(is_deferred, |(_, is_deferred)| *is_deferred)
    }

    pub(super) fn push(&self, event: Event) {
        let waits = match &event {
            Event::Child { .. } | Event::Late(_) => true,
            Event::Parent { child, number, new, .. } => {
                let key = &child.foreign_keys[*number];
                let action = if new.is_some() { key.on_update } else { key.on_delete };
                action == KeyAction::NoAction
            }
        };
        if waits && self.is_deferred(event.timing()) {
            self.deferred.borrow_mut().push(event);
        } else {
            self.pending.borrow_mut().push_back(event);
        }
    }
}

impl Event {
    fn timing(&self) -> Timing {
        let key = match self {
            Self::Child { table, number, .. } => &table.foreign_keys[*number],
            Self::Parent { child, number, .. } => &child.foreign_keys[*number],
            Self::Late(late) => return late.timing(),
        };
        (key.oid, key.is_deferrable, key.is_deferred)
    }
}

fn names(table: &TableDef, columns: &[usize]) -> String {
    columns.iter().map(|column| table.columns[*column].name.as_str()).collect::<Vec<_>>().join(", ")
}

fn texts(table: &TableDef, columns: &[usize], row: &[Datum]) -> String {
    let texts = columns.iter().map(|column| text::encode(table.columns[*column].ty, &row[*column]));
    texts.collect::<Vec<_>>().join(", ")
}

/// The columns of the parent, in the order of those of the foreign key. `None`: one is gone.
pub fn parent_columns(parent: &TableDef, key: &ForeignKey) -> Option<Vec<usize>> {
    key.parent_columns.iter().map(|name| parent.column(name)).collect()
}

/// A table with rows of a parent, the columns of a key there, and the key.
type Held = (Arc<TableDef>, Vec<usize>, Row);

fn lost(key: &ForeignKey) -> Error {
    let message = format!("the parent of the foreign key \"{}\" is gone", key.name);
    Error::new(SqlState::INTERNAL_ERROR, message)
}

impl Run<'_> {
    /// Tests whether a value is one of a domain.
    pub(super) fn check_domain(&self, domain: &Domain, value: &Datum) -> Outcome<()> {
        if domain.not_null && value.is_null() {
            let message = format!("domain {} does not allow null values", domain.name);
            return Err(Error::new(SqlState::NOT_NULL_VIOLATION, message).into());
        }
        for check in domain.all_checks() {
            let env = Env { row: std::slice::from_ref(value), outer: None };
            if self.eval(&check.expr, &env)?.truth() == Some(false) {
                let (name, check) = (&domain.name, &check.name);
                let message = format!("value for domain {name} violates check constraint \"{check}\"");
                return Err(Error::new(SqlState::CHECK_VIOLATION, message).constraint(check).into());
            }
        }
        Ok(())
    }

    /// Tests the conditions of the table and of the domains of its columns.
    pub(super) fn check(&self, table: &TableDef, row: &[Datum]) -> Outcome<()> {
        for (column, value) in table.columns.iter().zip(row) {
            if let Some(domain) = &column.domain {
                self.check_domain(domain, value)?;
            }
        }
        for check in &table.checks {
            if self.eval(&check.expr, &Env { row, outer: None })?.truth() == Some(false) {
                let message =
                    format!("new row for relation \"{}\" violates check constraint \"{}\"", table.name, check.name);
                return Err(Error::new(SqlState::CHECK_VIOLATION, message)
                    .detail(format!("Failing row contains ({}).", super::change::texts(table, row)))
                    .table(&table.name)
                    .constraint(&check.name)
                    .into());
            }
        }
        if table.parents.is_empty() { Ok(()) } else { self.check_partition(table, row) }
    }

    /// Notes the foreign keys of a new or changed row.
    ///
    /// A row with another key than before is tested again: an event that waits would not find it.
    pub(super) fn note_child(&self, table: &TableDef, key: &Key, old: Option<(&Row, &Key)>, new: &[Datum]) {
        if table.foreign_keys.is_empty() {
            return;
        }
        let Some(table) = self.catalog.tables.get(&table.full) else { return };
        for (number, foreign) in table.foreign_keys.iter().enumerate() {
            let is_same = |(old, old_key): (&Row, &Key)| {
                old_key == key && foreign.columns.iter().all(|column| old[*column] == new[*column])
            };
            let is_null = foreign.columns.iter().all(|column| new[*column].is_null());
            if !old.is_some_and(is_same) && !is_null {
                self.events.push(Event::Child { table: table.clone(), number, key: key.clone() });
            }
        }
    }

    /// Notes the foreign keys to a row that has changed or is gone. Locks its key against new children.
    pub(super) fn note_parent(&self, table: &TableDef, key: &Key, old: &Row, new: Option<&Row>) -> Outcome<()> {
        let children = self.catalog.children_of(table);
        if children.is_empty() {
            return Ok(());
        }
        let Some(parent) = self.catalog.tables.get(&table.full) else { return Ok(()) };
        for (child, number) in children {
            let foreign = &child.foreign_keys[*number];
            let columns = parent_columns(parent, foreign).ok_or_else(|| lost(foreign))?;
            let is_same = |new: &Row| columns.iter().all(|column| old[*column] == new[*column]);
            let is_null = columns.iter().any(|column| old[*column].is_null());
            if is_null || new.is_some_and(is_same) {
                continue;
            }
            self.lock(lock_key(parent.oid, key), Mode::UpdateRow)?;
            let (child, old, new) = (child.clone(), old.clone(), new.cloned());
            self.events.push(Event::Parent { parent: parent.clone(), child, number: *number, old, new });
        }
        Ok(())
    }

    /// Tests all constraints, at the end of the transaction.
    pub fn settle_all(&self) -> Outcome<()> {
        if self.events.deferred_count() > 0 {
            self.events.recall(true);
            self.settle()?;
        }
        Ok(())
    }

    /// Tests all constraints that are due.
    pub fn settle(&self) -> Outcome<()> {
        loop {
            let Some(event) = self.events.pending.borrow_mut().pop_front() else { return Ok(()) };
            self.step()?;
            match event {
                Event::Child { table, number, key } => self.test_child(&table, &table.foreign_keys[number], &key)?,
                Event::Late(late) => self.test_late(&late)?,
                Event::Parent { parent, child, number, old, new } => {
                    self.test_parent(&parent, (&child, &child.foreign_keys[number]), &old, new.as_ref())?;
                }
            }
        }
    }

    fn test_child(&self, table: &TableDef, foreign: &ForeignKey, key: &Key) -> Outcome<()> {
        let Some(found) = self.engine(table).get(self.tx, key).map_err(from_engine)? else { return Ok(()) };
        let row = to_row(table, found)?;
        self.test_row(table, foreign, &row)
    }

    /// Whether a table still has a foreign key.
    fn is_there(&self, table: &TableDef, foreign: &ForeignKey) -> bool {
        let found = self.catalog.table_of(table.oid);
        found.is_some_and(|table| table.foreign_keys.iter().any(|key| key.oid == foreign.oid))
    }

    /// Tests the foreign key of a row of the child.
    pub fn test_row(&self, table: &TableDef, foreign: &ForeignKey, row: &Row) -> Outcome<()> {
        let violation = |detail: String| {
            let message = format!(
                "insert or update on table \"{}\" violates foreign key constraint \"{}\"",
                table.name, foreign.name
            );
            let error = Error::new(SqlState::FOREIGN_KEY_VIOLATION, message).detail(detail);
            error.table(&table.name).constraint(&foreign.name)
        };
        let nulls = foreign.columns.iter().filter(|column| row[**column].is_null()).count();
        if nulls > 0 {
            return match foreign.is_full && nulls < foreign.columns.len() {
                true => {
                    Err(violation("MATCH FULL does not allow mixing of null and nonnull key values.".into()).into())
                }
                false => Ok(()),
            };
        }
        let parent = self.catalog.table_of(foreign.parent);
        let Some((parent, columns)) = parent.and_then(|parent| Some((parent, parent_columns(parent, foreign)?))) else {
            // The transaction has dropped the parent since it changed the row, and the foreign key with it.
            return if self.is_there(table, foreign) { Err(lost(foreign).into()) } else { Ok(()) };
        };
        let mut wanted = vec![Datum::Null; parent.columns.len()];
        for (own, column) in foreign.columns.iter().zip(&columns) {
            let (from, to) = (table.columns[*own].ty, parent.columns[*column].ty);
            wanted[*column] = cast::convert(row[*own].clone(), from, to)?;
        }
        let is_there = match self.member(parent, &columns, &wanted)? {
            Some((member, columns, wanted)) => self.hold_parent(&member, &columns, &wanted)?,
            None => false,
        };
        if is_there {
            return Ok(());
        }
        let (keys, values) = (names(table, &foreign.columns), texts(table, &foreign.columns, row));
        Err(violation(format!("Key ({keys})=({values}) is not present in table \"{}\".", parent.name)).into())
    }

    /// The table with the rows of a parent that have a key: the parent itself, or one of its partitions. With the
    /// columns of the key there, and the key. `None`: there is no partition for it.
    fn member(&self, parent: &Arc<TableDef>, columns: &[usize], wanted: &Row) -> Outcome<Option<Held>> {
        if parent.partition_by.is_none() {
            return Ok(Some((parent.clone(), columns.to_vec(), wanted.clone())));
        }
        // A unique key has all columns of the partition key, so no other one is asked for.
        match self.route_down(parent, wanted.clone()) {
            Ok((leaf, row, map)) => Ok(Some((leaf, columns.iter().map(|column| map[*column]).collect(), row))),
            Err(super::Stop::Error(error)) if error.state() == SqlState::CHECK_VIOLATION => Ok(None),
            Err(stop) => Err(stop),
        }
    }

    /// Whether the parent has a row with these values in a unique key. It is held.
    fn hold_parent(&self, parent: &TableDef, columns: &[usize], wanted: &Row) -> Outcome<bool> {
        let Some(unique) = parent.unique_over(columns) else { return Ok(false) };
        let order = unique.map_or(&parent.key, |index| &parent.indexes[index].columns);
        let values = order.iter().map(|column| value::to_value(&parent.columns[*column], wanted[*column].clone()));
        // A value that the parent's column cannot have is in no row.
        let Some(values) = values.collect::<Option<Vec<Value>>>() else { return Ok(false) };
        let key = match unique {
            None => values,
            Some(index) => match self.index(parent, index).get(self.tx, &values).map_err(from_engine)? {
                Some(row) => super::scan::key_of(parent, &row),
                None => return Ok(false),
            },
        };
        self.lock(lock_key(parent.oid, &key), Mode::KeyShareRow)?;
        let names: Vec<&str> = match unique {
            None => Vec::new(),
            // Its row may have lost this key before the lock, or after the snapshot.
            Some(_) if !self.has_key(parent, columns, wanted)? => return Ok(false),
            Some(_) => columns.iter().map(|column| parent.columns[*column].name.as_str()).collect(),
        };
        Ok(self.engine(parent).hold_columns(self.tx, &key, &names).map_err(from_engine)?)
    }

    /// Whether a row of a child names this row.
    pub fn is_named(&self, parent: &TableDef, (child, foreign): (&TableDef, &ForeignKey), row: &Row) -> Outcome<bool> {
        let columns = parent_columns(parent, foreign).ok_or_else(|| lost(foreign))?;
        if columns.iter().any(|column| row[*column].is_null()) {
            return Ok(false);
        }
        Ok(!self.children(child, foreign, (parent, &columns), row)?.is_empty())
    }

    fn test_parent(
        &self,
        parent: &TableDef,
        (child, foreign): (&Arc<TableDef>, &ForeignKey),
        old: &Row,
        new: Option<&Row>,
    ) -> Outcome<()> {
        let action = if new.is_some() { foreign.on_update } else { foreign.on_delete };
        let columns = parent_columns(parent, foreign).ok_or_else(|| lost(foreign))?;
        // Its children are all that there are at the commit, not only those of this moment.
        self.tx.serialize().map_err(from_engine)?;
        // The row of a partition may have moved to another one.
        if action == KeyAction::NoAction
            && let Some(whole) = self.catalog.table_of(foreign.parent)
            && let Some(own) = parent_columns(whole, foreign)
        {
            let mut wanted = vec![Datum::Null; whole.columns.len()];
            own.iter().zip(&columns).for_each(|(place, column)| wanted[*place] = old[*column].clone());
            if let Some((member, columns, wanted)) = self.member(whole, &own, &wanted)?
                && self.has_key(&member, &columns, &wanted)?
            {
                return Ok(());
            }
        }
        let violation = || {
            let message = format!(
                "update or delete on table \"{}\" violates foreign key constraint \"{}\" on table \"{}\"",
                parent.name, foreign.name, child.name
            );
            let (keys, values) = (names(parent, &columns), texts(parent, &columns, old));
            let detail = format!("Key ({keys})=({values}) is still referenced from table \"{}\".", child.name);
            let error = Error::new(SqlState::FOREIGN_KEY_VIOLATION, message).detail(detail);
            error.table(&child.name).constraint(&foreign.name)
        };
        for (row, key) in self.children(child, foreign, (parent, &columns), old)? {
            match action {
                KeyAction::NoAction | KeyAction::Restrict => return Err(violation().into()),
                KeyAction::Cascade if new.is_none() => {
                    self.lock(lock_key(child.oid, &key), Mode::UpdateRow)?;
                    self.delete_row(child, &key, &row)?;
                }
                _ => {
                    self.lock(lock_key(child.oid, &key), Mode::NoKeyUpdateRow)?;
                    let mut changed = row.clone();
                    for (own, column) in foreign.columns.iter().zip(&columns) {
                        changed[*own] = match (action, new) {
                            (KeyAction::Cascade, Some(new)) => {
                                let (from, to) = (parent.columns[*column].ty, child.columns[*own].ty);
                                cast::convert(new[*column].clone(), from, to)?
                            }
                            (KeyAction::SetDefault, _) => self.default_value(child, *own)?,
                            _ => Datum::Null,
                        };
                    }
                    self.change_or_move(child, &key, &row, &changed)?;
                    if action == KeyAction::SetDefault && changed == row {
                        // The default is the key that went.
                        return Err(violation().into());
                    }
                }
            }
        }
        Ok(())
    }

    fn default_value(&self, table: &TableDef, column: usize) -> Outcome<Datum> {
        let named: Vec<usize> = (0..table.columns.len()).filter(|other| *other != column).collect();
        match crate::bind::defaults(self.catalog, table, &named)?.swap_remove(column) {
            Some(expr) => self.eval(&expr, &Env { row: &[], outer: None }),
            None => Ok(Datum::Null),
        }
    }

    /// Whether a row of the parent has the key that another one has lost.
    fn has_key(&self, parent: &TableDef, columns: &[usize], old: &Row) -> Outcome<bool> {
        let Some(unique) = parent.unique_over(columns) else { return Ok(false) };
        let order = unique.map_or(&parent.key, |index| &parent.indexes[index].columns);
        let values = order.iter().map(|column| value::to_value(&parent.columns[*column], old[*column].clone()));
        let Some(values) = values.collect::<Option<Vec<Value>>>() else { return Ok(false) };
        let found = match unique {
            None => self.engine(parent).get(self.tx, &values),
            Some(index) => self.index(parent, index).get(self.tx, &values),
        };
        Ok(found.map_err(from_engine)?.is_some())
    }

    /// The rows of the child that name `old`, with their keys.
    fn children(
        &self,
        child: &TableDef,
        foreign: &ForeignKey,
        (parent, columns): (&TableDef, &[usize]),
        old: &Row,
    ) -> Outcome<Vec<(Row, Key)>> {
        let mut wanted: Vec<(usize, Datum)> = Vec::new();
        for (own, column) in foreign.columns.iter().zip(columns) {
            let (from, to) = (parent.columns[*column].ty, child.columns[*own].ty);
            // A key that the child's column cannot have is named by no row.
            let Ok(datum) = cast::convert(old[*column].clone(), from, to) else { return Ok(Vec::new()) };
            wanted.push((*own, datum));
        }
        let prefix = |order: &[usize]| -> Option<Vec<Value>> {
            let values = order.iter().map_while(|column| wanted.iter().find(|(own, _)| own == column));
            values.map(|(own, datum)| value::to_value(&child.columns[*own], datum.clone())).collect()
        };
        let keys = (!child.key.is_empty()).then_some((None, &child.key));
        let indexes = child.indexes.iter().enumerate().map(|(number, index)| (Some(number), &index.columns));
        let mut best: (Option<usize>, Vec<Value>) = (None, Vec::new());
        for (index, order) in keys.into_iter().chain(indexes) {
            let Some(found) = prefix(order) else { return Ok(Vec::new()) };
            if found.len() > best.1.len() {
                best = (index, found);
            }
        }
        let (index, prefix) = best;
        let all = prefix.is_empty();
        let bound = || EngineRow(prefix.clone());
        let mut found = Vec::new();
        let mut take = |row: lodestone_engine::Result<EngineRow>| -> Outcome<()> {
            self.step()?;
            let row = row.map_err(from_engine)?;
            let key = super::scan::key_of(child, &row);
            let row = to_row(child, row)?;
            let is_it = |(own, datum): &(usize, Datum)| {
                !row[*own].is_null() && op::order(child.columns[*own].ty, &row[*own], datum).is_eq()
            };
            if wanted.iter().all(is_it) {
                found.push((row, key));
            }
            Ok(())
        };
        match index {
            Some(index) => {
                let rows = self.index(child, index).range(self.tx, bound()..=bound()).map_err(from_engine)?;
                rows.into_iter().try_for_each(&mut take)?;
            }
            None if all => {
                self.engine(child).range(self.tx, ..).map_err(from_engine)?.try_for_each(&mut take)?;
            }
            None => {
                self.engine(child).range(self.tx, bound()..=bound()).map_err(from_engine)?.try_for_each(&mut take)?;
            }
        }
        Ok(found)
    }
}
