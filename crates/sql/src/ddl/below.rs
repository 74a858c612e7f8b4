//! ALTER TABLE and DROP TABLE of tables with others below them.
//!
//! A change of a column or a condition is one of all tables below as well. A part that a table has only because one
//! above has it cannot be changed in the table alone.

use std::sync::Arc;

use lodestone_sql_types::{Error, Result, SqlState};

use super::like::written;
use super::{Definition, note_of, notice};
use crate::catalog::store::ConstraintBody;
use crate::catalog::{Heir, TableDef};
use crate::locks::Mode;
use crate::parse::ast::{Alter, CheckDef, ColumnDef, ConstraintDef, KeyDef, NOWHERE};
use crate::run::Outcome;

fn invalid(message: String) -> Error {
    Error::new(SqlState::INVALID_TABLE_DEFINITION, message)
}

impl Definition<'_> {
    /// The tables directly above a table.
    fn above(&self, table: &TableDef) -> Vec<Arc<TableDef>> {
        table.parents.iter().filter_map(|parent| self.catalog.table_of(parent.oid).cloned()).collect()
    }

    /// Refuses a change of what a table has from above, and one of a table alone that tables below need as well.
    pub(super) fn refuse_alone(&self, table: &TableDef, action: &Alter, is_only: bool) -> Result<()> {
        let above = self.above(table);
        let has_column = |column: &str| above.iter().any(|above| above.column(column).is_some());
        let heirs = self.catalog.heirs(table.oid);
        let is_split = is_only && !heirs.is_empty();
        let is_primary = |column: &str| table.primary_columns().iter().any(|own| table.columns[*own].name == column);
        let is_partition = table.parents.iter().any(|parent| parent.bound.is_some());
        match action {
            Alter::AddColumn { .. } if is_partition => {
                Err(Error::new(SqlState::WRONG_OBJECT_TYPE, "cannot add column to a partition"))
            }
            Alter::AddColumn { .. } if is_split => Err(invalid("column must be added to child tables too".into())),
            Alter::DropColumn { name, .. } if has_column(&name.value) => {
                Err(invalid(format!("cannot drop inherited column \"{}\"", name.value)))
            }
            Alter::DropColumn { .. } if is_split && table.partition_by.is_some() => {
                Err(invalid("cannot drop column from only the partitioned table when partitions exist".into())
                    .hint("Do not specify the ONLY keyword."))
            }
            Alter::DropColumn { name, .. } | Alter::SetType { column: name, .. }
                if table.partition_by.is_some() && is_in_key(table, &name.value) =>
            {
                let verb = if matches!(action, Alter::DropColumn { .. }) { "drop" } else { "alter" };
                let message = format!(
                    "cannot {verb} column \"{}\" because it is part of the partition key of relation \"{}\"",
                    name.value, table.name
                );
                Err(invalid(message))
            }
            Alter::RenameColumn { from, .. } if has_column(&from.value) => {
                Err(invalid(format!("cannot rename inherited column \"{}\"", from.value)))
            }
            Alter::RenameColumn { from, .. } if is_split => {
                Err(invalid(format!("inherited column \"{}\" must be renamed in child tables too", from.value)))
            }
            Alter::SetType { column, .. } if has_column(&column.value) => {
                Err(invalid(format!("cannot alter inherited column \"{}\"", column.value)))
            }
            Alter::SetType { column, .. } if is_split => {
                let message =
                    format!("type of inherited column \"{}\" must be changed in child tables too", column.value);
                Err(invalid(message))
            }
            // One in a primary key is refused as that.
            Alter::SetNotNull { column, is_set: false } if is_partition && !is_primary(&column.value) => {
                let is_set =
                    |above: &Arc<TableDef>| above.columns.iter().any(|own| own.name == column.value && own.not_null);
                match above.iter().any(is_set) {
                    true => Err(invalid(format!("column \"{}\" is marked NOT NULL in parent table", column.value))),
                    false => Ok(()),
                }
            }
            Alter::SetNotNull { is_set: true, .. } if is_split && table.partition_by.is_some() => {
                Err(invalid("constraint must be added to child tables too".into())
                    .hint("Do not specify the ONLY keyword."))
            }
            Alter::AddConstraint { constraint: ConstraintDef::Check(check), .. } if is_split && !check.no_inherit => {
                Err(invalid("constraint must be added to child tables too".into()))
            }
            Alter::AddConstraint { constraint: ConstraintDef::Check(check), .. }
                if check.no_inherit && table.partition_by.is_some() =>
            {
                let message = format!("cannot add NO INHERIT constraint to partitioned table \"{}\"", table.name);
                Err(invalid(message))
            }
            Alter::DropConstraint { name, .. } if self.is_above(table, &name.value) => {
                let message =
                    format!("cannot drop inherited constraint \"{}\" of relation \"{}\"", name.value, table.name);
                Err(invalid(message))
            }
            // Parts of keys and foreign keys have names of their own.
            Alter::RenameConstraint { from, .. } if self.is_inherited_check(table, &from.value) => {
                Err(invalid(format!("cannot rename inherited constraint \"{}\"", from.value)))
            }
            Alter::RenameConstraint { from, .. }
                if is_split && table.checks.iter().any(|own| own.name == from.value) =>
            {
                Err(invalid(format!("inherited constraint \"{}\" must be renamed in child tables too", from.value)))
            }
            _ => Ok(()),
        }
    }

    /// Whether the table has a condition, or a part of a key, because a table above has it.
    fn is_above(&self, table: &TableDef, check: &str) -> bool {
        let is_part = table.indexes.iter().any(|index| index.name == check && index.parent.is_some());
        let is_key = !table.key.is_empty()
            && table.key_name == check
            && self.catalog.partitioned(table).is_some_and(|above| !above.key.is_empty());
        let is_foreign = table
            .foreign_keys
            .iter()
            .any(|key| key.name == check && crate::pgcatalog::foreign_parent(&self.catalog, table, key).is_some());
        is_part || is_key || is_foreign || self.is_inherited_check(table, check)
    }

    /// Whether the table has a condition because a table above has it.
    fn is_inherited_check(&self, table: &TableDef, check: &str) -> bool {
        let has = |above: &Arc<TableDef>| above.checks.iter().any(|own| own.name == check && !own.no_inherit);
        table.checks.iter().any(|own| own.name == check) && self.above(table).iter().any(has)
    }

    /// Makes a change of the tables below a table, which has it already. `before` is the table without it.
    pub(super) fn alter_below(
        &mut self,
        full: &str,
        (before, heirs): (&TableDef, &[Heir]),
        action: &Alter,
    ) -> Outcome<()> {
        let table = self.table_now(full)?;
        // A catalog whose tables have not all changed does not know the heirs: these are from before.
        for heir in heirs {
            self.lock_name(&heir.table.full)?;
            self.lock_table(heir.table.oid, super::alter::mode_of(action))?;
            self.alter_heir((before, &table), heir, action)?;
        }
        Ok(())
    }

    fn alter_heir(&mut self, (before, table): (&TableDef, &TableDef), heir: &Heir, action: &Alter) -> Outcome<()> {
        let full = heir.table.full.clone();
        let again = |this: &mut Self, action: &Alter| {
            let mut name = full.clone();
            this.alter_action(&mut name, action, (false, false))
        };
        match action {
            Alter::AddColumn { column, .. } => {
                let own = ColumnDef { identity: None, ..(**column).clone() };
                let action = Alter::AddColumn { column: Box::new(own), constraints: Vec::new(), if_not_exists: false };
                self.add_column_below(&full, column, &action)?;
            }
            Alter::DropColumn { name, is_cascade, .. } => {
                let now = self.table_now(&full)?;
                let others = self.above(&now).iter().any(|above| above.column(&name.value).is_some());
                let is_local = now.columns.iter().any(|column| column.name == name.value && column.is_local);
                if !others && !is_local {
                    let action = Alter::DropColumn { name: name.clone(), if_exists: true, is_cascade: *is_cascade };
                    again(self, &action)?;
                }
            }
            Alter::RenameColumn { .. } | Alter::SetType { .. } | Alter::SetNotNull { .. } => again(self, action)?,
            Alter::Validate(name) if before.checks.iter().any(|own| own.name == name.value && !own.no_inherit) => {
                again(self, action)?;
            }
            Alter::SetDefault { column, .. } if heir.table.column(&column.value).is_some() => again(self, action)?,
            Alter::RenameConstraint { from, .. } if before.checks.iter().any(|own| own.name == from.value) => {
                again(self, action)?;
            }
            Alter::DropConstraint { name: dropped, is_cascade, .. } => {
                self.drop_constraint_below((before, &full), &dropped.value, *is_cascade)?;
            }
            Alter::AddConstraint { constraint: ConstraintDef::Primary(key), .. }
                if table.partition_by.is_some() && heir.table.key.is_empty() && key.deferrable.is_none() =>
            {
                let key = KeyDef { name: None, ..key.clone() };
                let constraint = ConstraintDef::Primary(key);
                again(self, &Alter::AddConstraint { constraint, is_valid: true })?;
            }
            _ => {}
        }
        let is_new = |oid: u32| !before.checks.iter().any(|old| old.oid == oid);
        for check in table.checks.iter().filter(|check| is_new(check.oid) && !check.no_inherit) {
            if matches!(action, Alter::AddColumn { .. } | Alter::AddConstraint { .. }) {
                self.add_check_below(&full, check)?;
            }
        }
        if table.partition_by.is_some() {
            let is_new = |oid: u32| !before.foreign_keys.iter().any(|old| old.oid == oid);
            for key in table.foreign_keys.iter().filter(|key| is_new(key.oid)) {
                self.partition_foreign(&full, table, key)?;
            }
        }
        Ok(())
    }

    fn add_column_below(&mut self, full: &str, column: &ColumnDef, action: &Alter) -> Outcome<()> {
        let now = self.table_now(full)?;
        if let Some(own) = now.columns.iter().find(|own| own.name == column.name.value) {
            let wanted = crate::bind::user_type(&self.catalog, &column.ty)?;
            if (own.ty, own.modifier) != (wanted.ty, wanted.modifier) {
                let message = format!("child table \"{}\" has different type for column \"{}\"", now.name, own.name);
                return Err(Error::new(SqlState::DATATYPE_MISMATCH, message).into());
            }
            let text = format!("merging definition of column \"{}\" for child \"{}\"", own.name, now.name);
            self.notices.push(notice(text));
            return Ok(());
        }
        let mut name = full.to_owned();
        self.alter_action(&mut name, action, (false, false))?;
        let now = self.table_now(full)?;
        let mut note = note_of(&now);
        let own = note.columns.iter_mut().filter(|own| own.name == column.name.value);
        own.for_each(|own| own.is_local = false);
        self.write_note(&now, &note)
    }

    fn add_check_below(&mut self, full: &str, check: &crate::catalog::CheckDef) -> Outcome<()> {
        let now = self.table_now(full)?;
        if let Some(own) = now.checks.iter().find(|own| own.name == check.name) {
            if written(&own.text)?.expr != written(&check.text)?.expr {
                let message = format!("constraint \"{}\" for relation \"{}\" already exists", check.name, now.name);
                return Err(Error::new(SqlState::DUPLICATE_OBJECT, message).into());
            }
            if own.no_inherit {
                let message = format!(
                    "constraint \"{}\" conflicts with non-inherited constraint on relation \"{}\"",
                    check.name, now.name
                );
                return Err(Error::new(SqlState::INVALID_OBJECT_DEFINITION, message).into());
            }
            self.notices.push(notice(format!("merging constraint \"{}\" with inherited definition", check.name)));
            return Ok(());
        }
        let is_valid = check.is_valid;
        let (name, check) = (Some(check.name.clone()), written(&check.text)?);
        let own = CheckDef { name: name.clone(), check, at: NOWHERE, no_inherit: false };
        let mut to = full.to_owned();
        let action = Alter::AddConstraint { constraint: ConstraintDef::Check(own), is_valid };
        self.alter_action(&mut to, &action, (false, false))?;
        let now = self.table_now(full)?;
        let mut note = note_of(&now);
        for constraint in note.constraints.iter_mut().filter(|own| Some(&own.name) == name.as_ref()) {
            if let ConstraintBody::Check { is_local, .. } = &mut constraint.body {
                *is_local = false;
            }
        }
        self.write_note(&now, &note)
    }

    fn drop_constraint_below(
        &mut self,
        (before, full): (&TableDef, &str),
        dropped: &str,
        is_cascade: bool,
    ) -> Outcome<()> {
        let now = self.table_now(full)?;
        let gone = |name: &str| Alter::DropConstraint { name: super::like::name(name), if_exists: true, is_cascade };
        let mut to = full.to_owned();
        if before.checks.iter().any(|check| check.name == dropped) {
            let others = self.above(&now).iter().any(|above| above.checks.iter().any(|own| own.name == dropped));
            let is_own = now.checks.iter().any(|own| own.name == dropped && !own.is_local);
            return if is_own && !others { self.alter_action(&mut to, &gone(dropped), (false, false)) } else { Ok(()) };
        }
        if before.partition_by.is_none() {
            return Ok(());
        }
        if let Some(index) = before.indexes.iter().find(|index| index.name == dropped) {
            let own = now.indexes.iter().find(|own| own.parent == Some(index.oid)).map(|own| own.name.clone());
            return own.map_or(Ok(()), |own| self.alter_action(&mut to, &gone(&own), (false, false)));
        }
        if !before.key.is_empty() && before.key_name == dropped && !now.key.is_empty() {
            return self.alter_action(&mut to, &gone(&now.key_name), (false, false));
        }
        let Some(key) = before.foreign_keys.iter().find(|key| key.name == dropped) else { return Ok(()) };
        let own = now
            .foreign_keys
            .iter()
            .find(|own| own.parent == key.parent && own.parent_columns == key.parent_columns && own.name == key.name);
        match own.map(|own| own.name.clone()) {
            Some(own) => self.alter_action(&mut to, &gone(&own), (false, false)),
            None => Ok(()),
        }
    }

    /// Drops the tables below one that goes, or refuses that. Partitions go with their table.
    pub(super) fn drop_heirs(&mut self, table: &TableDef, others: &[Arc<TableDef>], is_cascade: bool) -> Outcome<()> {
        let heirs = self.catalog.heirs(table.oid).to_vec();
        let is_other = |heir: &Heir| others.iter().any(|other| other.oid == heir.table.oid);
        let users = heirs.iter().filter(|heir| heir.bound.is_none() && !is_other(heir));
        let users: Vec<String> =
            users.map(|heir| format!("table {} depends on table {}", heir.table.name, table.name)).collect();
        if !users.is_empty() && !is_cascade {
            let message = format!("cannot drop table {} because other objects depend on it", table.name);
            return Err(Error::new(SqlState::DEPENDENT_OBJECTS, message)
                .detail(users.join("\n"))
                .hint("Use DROP ... CASCADE to drop the dependent objects too.")
                .into());
        }
        for heir in heirs {
            let Some(now) = self.catalog.tables.get(&heir.table.full).cloned() else { continue };
            if heir.bound.is_none() && !is_other(&heir) {
                self.notices.push(notice(format!("drop cascades to table {}", now.name)));
            }
            self.lock_name(&now.full)?;
            self.lock_table(now.oid, Mode::AccessExclusive)?;
            self.drop_table(&now, others, is_cascade)?;
        }
        Ok(())
    }

    /// Foreign keys to the tables that a partition belongs to: they go with it, or it stays.
    pub(super) fn drop_keys_above(
        &mut self,
        table: &TableDef,
        others: &[Arc<TableDef>],
        is_cascade: bool,
    ) -> Outcome<()> {
        let mut above = self.catalog.partitioned(table).cloned();
        while let Some(parent) = above {
            if others.iter().any(|other| other.oid == parent.oid) {
                return Ok(());
            }
            let keys = self.catalog.children.get(&parent.oid).cloned().unwrap_or_default();
            let own = keys.iter().find(|(child, _)| !others.iter().any(|other| other.oid == child.oid));
            if let (Some((child, number)), false) = (own, is_cascade) {
                let message = format!("cannot drop table {} because other objects depend on it", table.name);
                let key = &child.foreign_keys[*number].name;
                return Err(Error::new(SqlState::DEPENDENT_OBJECTS, message)
                    .detail(format!("constraint {key} on table {} depends on table {}", child.name, table.name))
                    .hint("Use DROP ... CASCADE to drop the dependent objects too.")
                    .into());
            }
            if own.is_some() {
                let what = format!("table {}", parent.name);
                self.drop_children(&parent, None, (&what, &what), true)?;
            }
            above = self.catalog.partitioned(&parent).cloned();
        }
        Ok(())
    }

    /// Drops the parts of an index of a partitioned table.
    pub(super) fn drop_index_below(&mut self, table: &TableDef, index: u32) -> Outcome<()> {
        for heir in self.catalog.heirs(table.oid).to_vec() {
            let now = self.table_now(&heir.table.full)?;
            let Some(own) = now.indexes.iter().find(|own| own.parent == Some(index)) else { continue };
            let (oid, own) = (own.oid, own.name.clone());
            self.drop_index_below(&now, oid)?;
            let now = self.table_now(&heir.table.full)?;
            let engine = self.engine().drop_index_in(self.tx, &now.full, &own).map_err(crate::errors::from_engine)?;
            let mut note = note_of(&now);
            note.indexes.retain(|index| index.name != own);
            self.writer()?.write(&now.full, engine.schema(), &note)?;
            self.refresh(&[&now.full])?;
        }
        Ok(())
    }
}

/// Whether a column is in the partition key of its table.
fn is_in_key(table: &TableDef, column: &str) -> bool {
    let place = table.column(column);
    let uses = |expr: &crate::plan::Expr| {
        let mut found = false;
        expr.walk(&mut |part| {
            found |= matches!(part, crate::plan::Expr::Column { depth: 0, index } if Some(*index) == place);
        });
        found
    };
    table.partition_by.as_ref().is_some_and(|key| key.keys.iter().any(|part| uses(&part.expr)))
}
