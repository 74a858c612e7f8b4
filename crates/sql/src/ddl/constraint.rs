//! Constraints of a table that is there: they are tested for its rows first.

use std::sync::Arc;

use lodestone_engine::Index;
use lodestone_sql_types::{Datum, Error, Result, SqlState, cast};

use super::table::{IN_KEY, column_names, included_names, schema_of};
use super::{Definition, note_of};
use crate::catalog::store::{self, ConstraintBody, ConstraintNote, IndexNote};
use crate::catalog::value;
use crate::catalog::{LateKey, TableDef, full_name};
use crate::errors::from_engine;
use crate::locks::Mode;
use crate::parse::ast::{CheckDef, ConstraintDef, ForeignDef, KeyDef, Name};
use crate::run::constraint::parent_columns;
use crate::run::{Outcome, Row, Stop, to_row};

impl Definition<'_> {
    pub(super) fn add_constraint(&mut self, full: &str, constraint: &ConstraintDef) -> Outcome<()> {
        self.add_tested(full, constraint, true)
    }

    /// Adds a constraint. `is_valid`: the rows that are there must fulfil it.
    pub(super) fn add_tested(&mut self, full: &str, constraint: &ConstraintDef, is_valid: bool) -> Outcome<()> {
        let table = self.table_now(full)?;
        match constraint {
            ConstraintDef::Primary(key) => self.add_primary_key(&table, key),
            ConstraintDef::Unique(key) => self.add_unique(&table, key, false),
            ConstraintDef::Check(check) => self.add_check(&table, check, is_valid),
            ConstraintDef::Foreign(foreign) => self.add_foreign(full, foreign, is_valid),
        }
    }

    /// The table of this name as the transaction sees it now.
    pub(super) fn table_now(&self, full: &str) -> Result<Arc<TableDef>> {
        let lost = || Error::new(SqlState::UNDEFINED_TABLE, format!("relation \"{full}\" does not exist"));
        self.catalog.tables.get(full).cloned().ok_or_else(lost)
    }

    /// Calls `test` for all rows. The transaction is serializable from here on.
    pub(super) fn each_row(&self, table: &TableDef, mut test: impl FnMut(Row) -> Outcome<()>) -> Outcome<()> {
        self.tx.serialize().map_err(from_engine)?;
        for row in table.engine.range(self.tx, ..).map_err(from_engine)? {
            test(to_row(table, row.map_err(from_engine)?)?)?;
        }
        Ok(())
    }

    /// Calls `test` for the rows of a table that has a constraint which holds for all changes since it was made. Other
    /// transactions change rows meanwhile: so the rows are those of a snapshot, which the commit does not validate.
    /// Only one that the test refuses is looked at again, because the transaction itself may have changed it.
    fn each_earlier_row(&self, table: &TableDef, test: impl Fn(Row) -> Outcome<()>) -> Outcome<()> {
        let snapshot = self.engine().snapshot().map_err(from_engine)?;
        for row in table.engine.range(&snapshot, ..).map_err(from_engine)? {
            let row = row.map_err(from_engine)?;
            let key = crate::run::key_of(table, &row);
            match test(to_row(table, row)?) {
                Err(Stop::Error(_)) => match table.engine.get(self.tx, &key).map_err(from_engine)? {
                    Some(row) => test(to_row(table, row)?)?,
                    None => continue,
                },
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// Calls `test` for all rows of a table that were not tested for the constraint with this number.
    fn each_untested_row(&self, table: &TableDef, oid: u32, test: impl Fn(Row) -> Outcome<()>) -> Outcome<()> {
        let newest = self.database.catalog();
        let is_it = |table: &&Arc<TableDef>| {
            table.checks.iter().any(|check| check.oid == oid) || table.foreign_keys.iter().any(|key| key.oid == oid)
        };
        // One that this transaction has made does not bind the others yet.
        if newest.table_of(table.oid).filter(is_it).is_some() {
            self.each_earlier_row(table, test)
        } else {
            self.each_row(table, test)
        }
    }

    fn add_primary_key(&mut self, table: &TableDef, key: &KeyDef) -> Outcome<()> {
        self.refuse_second_key(table)?;
        if let Some(is_deferred) = key.deferrable {
            return self.add_late_primary(table, key, is_deferred);
        }
        let mut note = note_of(table);
        let names = column_names(&key.columns, &note.columns, IN_KEY)?;
        note.key_included = included_names(&key.included, &note.columns, IN_KEY)?;
        note.key_name = match &key.name {
            Some(name) => name.clone(),
            None => self.free_name(&table.schema, format!("{}_pkey", table.name)),
        };
        self.refuse_short_key(&table.name, (&note, &names), "PRIMARY KEY")?;
        note.columns.iter_mut().for_each(|column| column.not_null |= names.contains(&column.name));
        let not_null: Vec<bool> = note.columns.iter().map(|column| column.not_null).collect();
        let mut schema = schema_of(&table.full, &note.columns, &not_null, Some(&key.columns))?;
        for index in table.engine.schema().indexes() {
            schema = schema.with_index(index.clone());
        }
        self.rewrite(table, &schema, &note, |_, row| Ok(stored(table, row)?))
    }

    /// Refuses a second primary key.
    pub(super) fn refuse_second_key(&self, table: &TableDef) -> Result<()> {
        if table.hidden.is_some() && table.late_primary().is_none() {
            return Ok(());
        }
        let message = format!("multiple primary keys for table \"{}\" are not allowed", table.name);
        Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, message))
    }

    /// A primary key that may have duplicates for a while: the rows keep their hidden numbers, and an index has the
    /// key.
    fn add_late_primary(&mut self, table: &TableDef, key: &KeyDef, is_deferred: bool) -> Outcome<()> {
        let mut note = note_of(table);
        let names = column_names(&key.columns, &note.columns, IN_KEY)?;
        let included = included_names(&key.included, &note.columns, IN_KEY)?;
        let name = match &key.name {
            Some(name) if self.catalog.oid_of(&full_name(&table.schema, name)).is_some() => {
                return Err(super::exists(name).into());
            }
            Some(name) => name.clone(),
            None => self.free_name(&table.schema, format!("{}_pkey", table.name)),
        };
        self.refuse_short_key(&table.name, (&note, &names), "PRIMARY KEY")?;
        note.columns.iter_mut().for_each(|column| column.not_null |= names.contains(&column.name));
        let not_null: Vec<bool> = note.columns.iter().map(|column| column.not_null).collect();
        let mut schema = schema_of(&table.full, &note.columns, &not_null, None)?;
        for index in table.engine.schema().indexes() {
            schema = schema.with_index(index.clone());
        }
        schema = schema.with_index(Index::new(&name, names));
        let late = Some(LateKey { is_deferred, is_primary: true });
        let oid = store::take_oids(self.engine(), 1)?[0];
        note.indexes.push(IndexNote { oid, name, is_constraint: true, late, parent: None, included });
        self.rewrite(table, &schema, &note, |_, row| Ok(stored(table, row)?))?;
        self.index_below(&table.full, oid)
    }

    /// ALTER CONSTRAINT: when a foreign key is tested, and its parts in partitions.
    pub(super) fn set_timing(&mut self, full: &str, name: &Name, deferrable: Option<bool>) -> Outcome<()> {
        let table = self.table_now(full)?;
        let Some(key) = table.foreign_keys.iter().find(|key| key.name == name.value) else {
            let (name, table_name) = (&name.value, &table.name);
            if super::comment::constraint_of(&table, name).is_none() {
                let message = format!("constraint \"{name}\" of relation \"{table_name}\" does not exist");
                return Err(Error::new(SqlState::UNDEFINED_OBJECT, message).into());
            }
            let message = format!("constraint \"{name}\" of relation \"{table_name}\" is not a foreign key constraint");
            return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message).into());
        };
        if crate::pgcatalog::foreign_parent(&self.catalog, &table, key).is_some() {
            let message = format!("cannot alter constraint \"{}\" on relation \"{}\"", name.value, table.name);
            return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).into());
        }
        self.set_timing_of(&table, key.oid, deferrable)
    }

    fn set_timing_of(&mut self, table: &TableDef, key: u32, deferrable: Option<bool>) -> Outcome<()> {
        let mut note = note_of(table);
        for constraint in note.constraints.iter_mut().filter(|constraint| constraint.oid == key) {
            if let ConstraintBody::Foreign { is_deferrable, is_deferred, .. } = &mut constraint.body {
                (*is_deferrable, *is_deferred) = (deferrable.is_some(), deferrable == Some(true));
            }
        }
        self.write_note(table, &note)?;
        for heir in self.catalog.heirs(table.oid).to_vec() {
            let below = self.table_now(&heir.table.full)?;
            let part = below
                .foreign_keys
                .iter()
                .find(|part| crate::pgcatalog::foreign_parent(&self.catalog, &below, part) == Some(key));
            if let Some(part) = part {
                self.set_timing_of(&below, part.oid, deferrable)?;
            }
        }
        Ok(())
    }

    fn add_check(&mut self, table: &TableDef, check: &CheckDef, is_valid: bool) -> Outcome<()> {
        let mut note = note_of(table);
        self.check_note(&table.name, &mut note, check)?;
        let name = note.constraints.last().map(|check| check.name.clone()).unwrap_or_default();
        let expr = crate::bind::check_in(&self.catalog.types, &table.name, &table.columns, &check.check.expr)?;
        if is_valid {
            self.each_row(table, |row| self.test_check_of(table, (&name, &expr), &row))?;
        }
        if let Some(ConstraintBody::Check { is_valid: own, .. }) = note.constraints.last_mut().map(|own| &mut own.body)
        {
            *own = is_valid;
        }
        self.write_note(table, &note)
    }

    fn test_check_of(&self, table: &TableDef, (name, expr): (&str, &crate::plan::Expr), row: &[Datum]) -> Outcome<()> {
        let found = self.with_run(|run| run.eval(expr, &crate::run::Env { row, outer: None }))?;
        if found.truth() != Some(false) {
            return Ok(());
        }
        let message = format!("check constraint \"{name}\" of relation \"{}\" is violated by some row", table.name);
        let error = Error::new(SqlState::CHECK_VIOLATION, message);
        Err(error.table(&table.name).constraint(name.to_owned()).into())
    }

    /// VALIDATE CONSTRAINT: tests the rows that were there before it.
    pub(super) fn validate(&mut self, full: &str, name: &Name) -> Outcome<()> {
        let table = self.table_now(full)?;
        let check = table.checks.iter().find(|check| check.name == name.value);
        let key = table.foreign_keys.iter().find(|key| key.name == name.value);
        match (check, key) {
            (Some(check), _) if !check.is_valid => {
                let test = |row: Row| self.test_check_of(&table, (&check.name, &check.expr), &row);
                self.each_untested_row(&table, check.oid, test)?;
            }
            (_, Some(key)) if !key.is_valid => {
                let test = |row: Row| self.with_run(|run| run.test_row(&table, key, &row));
                self.each_untested_row(&table, key.oid, test)?;
            }
            (Some(_), _) | (_, Some(_)) => return Ok(()),
            (None, None) => {
                let is_key = table.indexes.iter().any(|index| index.name == name.value && index.is_constraint)
                    || !table.key.is_empty() && table.key_name == name.value;
                let (name, table) = (&name.value, &table.name);
                if is_key {
                    let message = format!(
                        "constraint \"{name}\" of relation \"{table}\" is not a foreign key or check constraint"
                    );
                    return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message).into());
                }
                let message = format!("constraint \"{name}\" of relation \"{table}\" does not exist");
                return Err(Error::new(SqlState::UNDEFINED_OBJECT, message).into());
            }
        }
        let mut note = note_of(&table);
        for constraint in note.constraints.iter_mut().filter(|constraint| constraint.name == name.value) {
            match &mut constraint.body {
                ConstraintBody::Check { is_valid, .. } | ConstraintBody::Foreign { is_valid, .. } => *is_valid = true,
            }
        }
        self.write_note(&table, &note)
    }

    /// Writes the properties of a table whose engine has not changed.
    pub(super) fn write_note(&mut self, table: &TableDef, note: &store::Note) -> Outcome<()> {
        self.writer()?.write(&table.full, table.engine.schema(), note)?;
        self.refresh(&[&table.full])?;
        Ok(())
    }

    pub(super) fn add_foreign(&mut self, full: &str, foreign: &ForeignDef, is_valid: bool) -> Outcome<()> {
        let table = self.table_now(full)?;
        let mut note = note_of(&table);
        let columns = column_names_of_key(&foreign.columns, &table)?;
        let parent = self.find(&foreign.parent, Mode::ShareRowExclusive)?;
        let names: Vec<String> = match foreign.parent_columns.is_empty() {
            true if parent.late_primary().is_some() => {
                let message = format!("cannot use a deferrable primary key for referenced table \"{}\"", parent.name);
                return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).into());
            }
            true if parent.key.is_empty() => {
                let message = format!("there is no primary key for referenced table \"{}\"", parent.name);
                return Err(Error::new(SqlState::UNDEFINED_OBJECT, message).into());
            }
            true => parent.key.iter().map(|column| parent.columns[*column].name.clone()).collect(),
            false => foreign.parent_columns.iter().map(|column| column.value.clone()).collect(),
        };
        if let Some(name) = foreign.parent_columns.iter().find(|column| parent.column(&column.value).is_none()) {
            let message = format!("column \"{}\" referenced in foreign key constraint does not exist", name.value);
            return Err(Error::new(SqlState::UNDEFINED_COLUMN, message).into());
        }
        let numbers: Vec<usize> = names.iter().filter_map(|name| parent.column(name)).collect();
        if parent.unique_over(&numbers).is_none() {
            if parent.late_over(&numbers).is_some() {
                let message =
                    format!("cannot use a deferrable unique constraint for referenced table \"{}\"", parent.name);
                return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).into());
            }
            let message =
                format!("there is no unique constraint matching given keys for referenced table \"{}\"", parent.name);
            return Err(Error::new(SqlState::INVALID_FOREIGN_KEY, message).into());
        }
        if names.len() != columns.len() {
            let message = "number of referencing and referenced columns for foreign key disagree";
            return Err(Error::new(SqlState::INVALID_FOREIGN_KEY, message).into());
        }
        let taken = |name: &str| note.constraints.iter().any(|other| other.name == name);
        let first = format!("{}_{}_fkey", table.name, columns.join("_"));
        let name = match &foreign.name {
            Some(name) if taken(name) => {
                let message = format!("constraint \"{name}\" for relation \"{}\" already exists", table.name);
                return Err(Error::new(SqlState::DUPLICATE_OBJECT, message).into());
            }
            Some(name) => name.clone(),
            None => super::table::unused(first, taken),
        };
        for (own, other) in columns.iter().zip(&numbers) {
            let own = &table.columns[table.column(own).unwrap_or(0)];
            let other = &parent.columns[*other];
            let fits = own.ty == other.ty
                || own.ty.is_text() && other.ty.is_text()
                || cast::context(own.ty, other.ty) == Some(cast::Context::Implicit)
                || own.ty.is_integer() && other.ty.is_integer();
            if !fits {
                let message = format!("foreign key constraint \"{name}\" cannot be implemented");
                return Err(Error::new(SqlState::DATATYPE_MISMATCH, message)
                    .detail(format!(
                        "Key columns \"{}\" and \"{}\" are of incompatible types: {} and {}.",
                        own.name, other.name, own.ty, other.ty
                    ))
                    .into());
            }
        }
        let oid = store::take_oids(self.engine(), 1)?[0];
        let body = ConstraintBody::Foreign {
            columns,
            parent: parent.oid,
            parent_columns: names,
            on_delete: foreign.on_delete,
            on_update: foreign.on_update,
            is_full: foreign.is_full,
            is_deferrable: foreign.is_deferrable,
            is_deferred: foreign.is_deferred,
            is_valid,
        };
        note.constraints.push(ConstraintNote { oid, name: name.clone(), body });
        self.write_note(&table, &note)?;
        if !is_valid {
            return Ok(());
        }
        // The rows that are there, with the key as the transaction sees it now.
        let table = self.table_now(full)?;
        let Some(key) = table.foreign_keys.iter().find(|key| key.oid == oid) else { return Ok(()) };
        self.each_row(&table, |row| self.with_run(|run| run.test_row(&table, key, &row)))
    }

    pub(super) fn drop_constraint(
        &mut self,
        full: &str,
        name: &Name,
        (if_exists, is_cascade): (bool, bool),
    ) -> Outcome<()> {
        let table = self.table_now(full)?;
        let (what, of) =
            (format!("constraint {} on table {}", name.value, table.name), format!("index {}", name.value));
        let mut note = note_of(&table);
        if note.constraints.iter().any(|constraint| constraint.name == name.value) {
            note.constraints.retain(|constraint| constraint.name != name.value);
            return self.write_note(&table, &note);
        }
        if let Some(index) = table.indexes.iter().find(|index| index.is_constraint && index.name == name.value) {
            self.drop_children(&table, Some(&index.columns), (&what, &of), is_cascade)?;
            let engine = self.engine().drop_index_in(self.tx, full, &name.value).map_err(from_engine)?;
            note.indexes.retain(|index| index.name != name.value);
            self.writer()?.write(full, engine.schema(), &note)?;
            self.refresh(&[full])?;
            return Ok(());
        }
        if table.hidden.is_none() && table.key_name == name.value {
            self.drop_children(&table, Some(&table.key), (&what, &of), is_cascade)?;
            return self.drop_primary_key(&table);
        }
        if if_exists {
            let text = format!("constraint \"{}\" of relation \"{}\" does not exist, skipping", name.value, table.name);
            self.notices.push(super::notice(text));
            return Ok(());
        }
        let message = format!("constraint \"{}\" of relation \"{}\" does not exist", name.value, table.name);
        Err(Error::new(SqlState::UNDEFINED_OBJECT, message).into())
    }

    /// The rows get hidden numbers.
    pub(super) fn drop_primary_key(&mut self, table: &TableDef) -> Outcome<()> {
        let mut note = note_of(table);
        note.key_included.clear();
        let not_null: Vec<bool> = note.columns.iter().map(|column| column.not_null).collect();
        let mut schema = schema_of(&table.full, &note.columns, &not_null, None)?;
        for index in table.engine.schema().indexes() {
            schema = schema.with_index(index.clone());
        }
        self.rewrite(table, &schema, &note, |_, row| Ok(stored(table, row)?))
    }

    /// Drops the foreign keys to these columns of the table, or refuses that. `None`: to any of its columns. `what` is
    /// dropped, and `of` is the part of it that the keys need.
    pub(super) fn drop_children(
        &mut self,
        table: &TableDef,
        columns: Option<&[usize]>,
        (what, of): (&str, &str),
        is_cascade: bool,
    ) -> Outcome<()> {
        let Some(children) = self.catalog.children.get(&table.oid).cloned() else { return Ok(()) };
        for (child, number) in children {
            let key = &child.foreign_keys[number];
            let own = parent_columns(table, key).unwrap_or_default();
            let is_it = columns
                .is_none_or(|columns| own.len() == columns.len() && own.iter().all(|column| columns.contains(column)));
            if !is_it || columns.is_none() && child.oid == table.oid {
                continue;
            }
            if !is_cascade {
                let message = format!("cannot drop {what} because other objects depend on it");
                return Err(Error::new(SqlState::DEPENDENT_OBJECTS, message)
                    .detail(format!("constraint {} on table {} depends on {of}", key.name, child.name))
                    .hint("Use DROP ... CASCADE to drop the dependent objects too.")
                    .into());
            }
            self.notices
                .push(super::notice(format!("drop cascades to constraint {} on table {}", key.name, child.name)));
            let mut note = note_of(&child);
            note.constraints.retain(|constraint| constraint.oid != key.oid);
            self.write_note(&child, &note)?;
        }
        Ok(())
    }
}

/// The row for the engine, where nulls are found later.
pub(super) fn stored(table: &TableDef, row: Row) -> Result<lodestone_engine::Row> {
    let values = table.columns.iter().zip(row).map(|(column, datum)| value::to_stored(column, datum));
    values.collect::<Result<_>>().map(lodestone_engine::Row)
}

fn column_names_of_key(columns: &[Name], table: &TableDef) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for column in columns {
        if table.column(&column.value).is_none() {
            let message = format!("column \"{}\" referenced in foreign key constraint does not exist", column.value);
            return Err(Error::new(SqlState::UNDEFINED_COLUMN, message));
        }
        names.push(column.value.clone());
    }
    Ok(names)
}
