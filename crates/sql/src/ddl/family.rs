//! Partitions and inheritance: what a new table takes from those above it, ATTACH and DETACH, INHERIT and NO INHERIT.

use std::sync::Arc;

use lodestone_sql_types::{Datum, Error, Result, SqlState, text};

use super::like::{name, type_name, written};
use super::table::{NewIndex, name_of_index};
use super::{Definition, note_of, notice};
use crate::bind;
use crate::catalog::family::{Bound, Limit, ParentNote, PartitionKey, Strategy};
use crate::catalog::store::{ConstraintBody, Note};
use crate::catalog::{ColumnDef as Column, Heir, TableDef};
use crate::locks::Mode;
use crate::parse::ast::{
    BoundDef, CheckDef, ColumnDef, ConstraintDef, Expr, ForeignDef, KeyDef, NOWHERE, Name, ObjectName, PartitionBy,
    Relatives,
};
use crate::parse::family::SAME;
use crate::run::{Env, Outcome, Row};

/// The parts that a new table has from those above it.
#[derive(Default)]
pub(super) struct Descent {
    pub parents: Vec<ParentNote>,
    /// Columns that were not written for it.
    pub inherited: Vec<String>,
    /// Conditions that were not written for it.
    pub checks: Vec<String>,
    pub partition_by: Option<PartitionBy>,
    /// The table that it is a partition of.
    pub partitioned: Option<Arc<TableDef>>,
}

fn wrong_type(message: String) -> Error {
    Error::new(SqlState::WRONG_OBJECT_TYPE, message)
}

fn mismatch(message: String) -> Error {
    Error::new(SqlState::DATATYPE_MISMATCH, message)
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(SqlState::INVALID_TABLE_DEFINITION, message.into())
}

fn overlap(message: String) -> Error {
    Error::new(SqlState::INVALID_OBJECT_DEFINITION, message)
}

fn is_partition(table: &TableDef) -> bool {
    table.parents.iter().any(|parent| parent.bound.is_some())
}

impl Definition<'_> {
    /// Adds what a table takes from those above it to what was written for it.
    pub(super) fn descend(
        &mut self,
        own: &str,
        relatives: &Relatives,
        (columns, constraints): (&mut Vec<ColumnDef>, &mut Vec<ConstraintDef>),
    ) -> Outcome<Descent> {
        let mut found = Descent { partition_by: relatives.partition_by.clone(), ..Descent::default() };
        let mut above: Vec<Arc<TableDef>> = Vec::new();
        if let Some((parent, bound)) = &relatives.partition_of {
            let table = self.find(parent, Mode::AccessExclusive)?;
            let Some(key) = table.partition_by.clone() else {
                return Err(overlap(format!("\"{}\" is not partitioned", table.name)).into());
            };
            let bound = self.new_bound(&table, &key, (own, bound))?;
            found.parents.push(ParentNote { oid: table.oid, bound: Some(bound) });
            found.partitioned = Some(table.clone());
            above.push(table);
        }
        if let (Some(by), false) = (&relatives.partition_by, relatives.inherits.is_empty()) {
            let message = "cannot create partitioned table as inheritance child";
            return Err(Error::new(SqlState::INVALID_OBJECT_DEFINITION, message).at(by.at).into());
        }
        for parent in &relatives.inherits {
            let table = self.find(parent, Mode::ShareUpdateExclusive)?;
            if table.partition_by.is_some() {
                return Err(wrong_type(format!("cannot inherit from partitioned table \"{}\"", table.name)).into());
            }
            if is_partition(&table) {
                return Err(wrong_type(format!("cannot inherit from partition \"{}\"", table.name)).into());
            }
            if above.iter().any(|other| other.oid == table.oid) {
                let message = format!("relation \"{}\" would be inherited from more than once", table.name);
                return Err(Error::new(SqlState::DUPLICATE_TABLE, message).into());
            }
            found.parents.push(ParentNote { oid: table.oid, bound: None });
            above.push(table);
        }
        let taken = self.columns_above(&above)?;
        self.merge_columns(columns, taken, &mut found)?;
        for table in &above {
            self.take_checks(table, constraints, &mut found)?;
        }
        if let Some(table) = found.partitioned.clone() {
            let names = |numbers: &[usize]| -> Vec<Name> {
                numbers.iter().map(|number| name(&table.columns[*number].name)).collect()
            };
            if !table.key.is_empty() {
                let (columns, included) = (names(&table.key), names(&table.key_included));
                constraints.push(ConstraintDef::Primary(KeyDef { name: None, columns, included, deferrable: None }));
            }
        }
        Ok(found)
    }

    /// The columns of all tables above, each once.
    fn columns_above(&mut self, above: &[Arc<TableDef>]) -> Outcome<Vec<ColumnDef>> {
        let mut found: Vec<ColumnDef> = Vec::new();
        for table in above {
            for column in &table.columns {
                let taken = self.column_below(table, column)?;
                let Some(other) = found.iter_mut().find(|other| other.name.value == column.name) else {
                    found.push(taken);
                    continue;
                };
                let text = format!("merging multiple inherited definitions of column \"{}\"", column.name);
                self.notices.push(notice(text));
                if other.ty != taken.ty {
                    let message = format!("inherited column \"{}\" has a type conflict", column.name);
                    return Err(mismatch(message).into());
                }
                other.not_null |= taken.not_null;
                let text = |column: &ColumnDef| column.default.as_ref().map(|default| default.text.clone());
                match (text(other), text(&taken)) {
                    (Some(one), Some(two)) if one != two => {
                        let message = format!("column \"{}\" inherits conflicting default values", column.name);
                        let hint = "To resolve the conflict, specify a default explicitly.";
                        return Err(Error::new(SqlState::INVALID_COLUMN_DEFINITION, message).hint(hint).into());
                    }
                    (None, Some(_)) => other.default = taken.default,
                    _ => {}
                }
            }
        }
        Ok(found)
    }

    /// A column as a table below has it.
    fn column_below(&self, table: &TableDef, column: &Column) -> Result<ColumnDef> {
        let _ = table;
        let default = column.default.as_ref().filter(|_| column.identity.is_none());
        let default = default.map(|default| written(&default.text)).transpose()?;
        let (default, generated) = if column.is_generated { (None, default) } else { (default, None) };
        Ok(ColumnDef {
            name: name(&column.name),
            ty: type_name(&self.catalog, column),
            not_null: column.not_null,
            default,
            identity: None,
            generated,
        })
    }

    /// Puts the written columns into those from above.
    fn merge_columns(
        &mut self,
        columns: &mut Vec<ColumnDef>,
        mut taken: Vec<ColumnDef>,
        found: &mut Descent,
    ) -> Outcome<()> {
        found.inherited = taken.iter().map(|column| column.name.value.clone()).collect();
        let mut seen: Vec<String> = Vec::new();
        for column in std::mem::take(columns) {
            let has_type = column.ty.name != SAME;
            let own = column.name.value.clone();
            if seen.contains(&own) {
                let message = format!("column \"{own}\" specified more than once");
                return Err(Error::new(SqlState::DUPLICATE_COLUMN, message).at(column.name.at).into());
            }
            seen.push(own.clone());
            let Some(other) = taken.iter_mut().find(|other| other.name.value == own) else {
                if !has_type {
                    let message = format!("column \"{own}\" does not exist");
                    return Err(Error::new(SqlState::UNDEFINED_COLUMN, message).into());
                }
                taken.push(column);
                continue;
            };
            if has_type {
                self.notices.push(notice(format!("merging column \"{own}\" with inherited definition")));
                let ty = |ty| bind::user_type(&self.catalog, ty).map(|found| (found.ty, found.modifier));
                if ty(&column.ty)? != ty(&other.ty)? {
                    return Err(mismatch(format!("column \"{own}\" has a type conflict")).into());
                }
            }
            if other.generated.is_some() && (column.default.is_some() || column.identity.is_some()) {
                let what = if column.default.is_some() { "default" } else { "identity" };
                let message = format!("column \"{own}\" inherits from generated column but specifies {what}");
                return Err(Error::new(SqlState::INVALID_COLUMN_DEFINITION, message).into());
            }
            if column.generated.is_some() {
                let message = format!("child column \"{own}\" specifies generation expression");
                let hint = "Omit the generation expression in the definition of the child table column to inherit the \
                            generation expression from the parent table.";
                return Err(Error::new(SqlState::INVALID_COLUMN_DEFINITION, message).hint(hint).into());
            }
            other.not_null |= column.not_null;
            if column.default.is_some() {
                other.default = column.default;
            }
            if column.identity.is_some() {
                (other.identity, other.default) = (column.identity, None);
            }
            found.inherited.retain(|name| *name != own);
        }
        *columns = taken;
        Ok(())
    }

    /// The conditions of a table above.
    fn take_checks(
        &mut self,
        table: &TableDef,
        constraints: &mut Vec<ConstraintDef>,
        found: &mut Descent,
    ) -> Outcome<()> {
        for check in table.checks.iter().filter(|check| !check.no_inherit) {
            let taken = written(&check.text)?;
            let own = constraints.iter().find_map(|constraint| match constraint {
                ConstraintDef::Check(own) if own.name.as_ref() == Some(&check.name) => Some(own),
                _ => None,
            });
            if let Some(own) = own {
                if own.no_inherit {
                    let message = format!("constraint \"{}\" conflicts with inherited constraint", check.name);
                    return Err(Error::new(SqlState::INVALID_OBJECT_DEFINITION, message).into());
                }
                if own.check.expr != taken.expr {
                    let message = format!(
                        "check constraint name \"{}\" appears multiple times but with different expressions",
                        check.name
                    );
                    return Err(Error::new(SqlState::DUPLICATE_OBJECT, message).into());
                }
                if !found.checks.contains(&check.name) {
                    let text = format!("merging constraint \"{}\" with inherited definition", check.name);
                    self.notices.push(notice(text));
                }
                continue;
            }
            found.checks.push(check.name.clone());
            constraints.push(ConstraintDef::Check(CheckDef {
                name: Some(check.name.clone()),
                check: taken,
                at: NOWHERE,
                no_inherit: false,
            }));
        }
        Ok(())
    }

    /// Marks in the properties of a new table what is from above, and makes its key.
    pub(super) fn note_descent(&self, table: &str, note: &mut Note, descent: &Descent) -> Result<()> {
        note.parents.clone_from(&descent.parents);
        for column in note.columns.iter_mut().filter(|column| descent.inherited.contains(&column.name)) {
            column.is_local = false;
        }
        for constraint in note.constraints.iter_mut().filter(|own| descent.checks.contains(&own.name)) {
            if let ConstraintBody::Check { is_local, .. } = &mut constraint.body {
                *is_local = false;
            }
        }
        if let Some(by) = &descent.partition_by {
            let columns: Vec<_> = note.columns.iter().map(super::table::column_of).collect();
            if by.strategy == Strategy::List && by.keys.len() > 1 {
                let message = "cannot use \"list\" partition strategy with more than one column";
                return Err(Error::new(SqlState::INVALID_OBJECT_DEFINITION, message));
            }
            let key = bind::partition_key_of(&self.catalog.types, table, &columns, (by.strategy, &by.keys))?;
            note.partition_by = Some(key.note(&columns));
        }
        Ok(())
    }

    /// The indexes and foreign keys of the partitioned table, for a new partition of it.
    pub(super) fn complete_partition(&mut self, full: &str, above: &TableDef) -> Outcome<()> {
        for index in &above.indexes {
            self.partition_index(full, above, index.oid)?;
        }
        for key in &above.foreign_keys {
            self.partition_foreign(full, above, key)?;
        }
        Ok(())
    }

    /// The part of an index that a partition has: one that is there already, or a new one.
    pub(super) fn partition_index(&mut self, full: &str, above: &TableDef, index: u32) -> Outcome<()> {
        let table = self.table_now(full)?;
        let Some(wanted) = above.indexes.iter().find(|other| other.oid == index) else { return Ok(()) };
        let names = |columns: &[usize]| -> Vec<String> {
            columns.iter().map(|column| above.columns[*column].name.clone()).collect()
        };
        let numbers = |names: &[String]| -> Vec<usize> { names.iter().filter_map(|name| table.column(name)).collect() };
        let (columns, included) = (names(&wanted.columns), names(&wanted.included));
        let own = table.indexes.iter().find(|own| {
            own.parent.is_none()
                && own.columns == numbers(&columns)
                && own.included == numbers(&included)
                && own.is_unique == wanted.is_unique
                && own.is_constraint == wanted.is_constraint
                && own.late.map(|late| late.is_primary) == wanted.late.map(|late| late.is_primary)
        });
        let oid = match own {
            Some(own) => own.oid,
            None => {
                if wanted.is_late_primary() {
                    self.refuse_second_key(&table)?;
                    for column in &columns {
                        self.set_not_null(full, &name(column), true)?;
                    }
                }
                let table = self.table_now(full)?;
                let suffix = if wanted.is_constraint { "key" } else { "idx" };
                let first = match wanted.is_late_primary() {
                    true => format!("{}_pkey", table.name),
                    false => name_of_index((&table.name, suffix), &columns, &included),
                };
                let name = self.free_name(&table.schema, first);
                let (is_unique, is_constraint, late) = (wanted.is_unique, wanted.is_constraint, wanted.late);
                let index = NewIndex { name: name.clone(), columns, included, is_unique, is_constraint, late };
                self.add_index(&table, index)?;
                let table = self.table_now(full)?;
                table.indexes.iter().find(|own| own.name == name).map(|own| own.oid).unwrap_or_default()
            }
        };
        let table = self.table_now(full)?;
        let mut note = note_of(&table);
        note.indexes.iter_mut().filter(|own| own.oid == oid).for_each(|own| own.parent = Some(index));
        self.write_note(&table, &note)?;
        self.index_below(full, oid)
    }

    /// The parts of an index in the partitions of a table.
    pub(super) fn index_below(&mut self, full: &str, index: u32) -> Outcome<()> {
        let table = self.table_now(full)?;
        if table.partition_by.is_none() {
            return Ok(());
        }
        for heir in self.catalog.heirs(table.oid).to_vec() {
            self.partition_index(&heir.table.full, &table, index)?;
        }
        Ok(())
    }

    pub(super) fn partition_foreign(
        &mut self,
        full: &str,
        above: &TableDef,
        key: &crate::catalog::ForeignKey,
    ) -> Outcome<()> {
        let table = self.table_now(full)?;
        let names: Vec<String> = key.columns.iter().map(|column| above.columns[*column].name.clone()).collect();
        let is_it = |own: &crate::catalog::ForeignKey| {
            let columns: Vec<&String> = own.columns.iter().map(|column| &table.columns[*column].name).collect();
            own.parent == key.parent
                && own.parent_columns == key.parent_columns
                && columns.iter().copied().eq(&names)
                && (own.on_delete, own.on_update) == (key.on_delete, key.on_update)
        };
        if table.foreign_keys.iter().any(is_it) {
            return Ok(());
        }
        let Some(parent) = self.catalog.table_of(key.parent) else { return Ok(()) };
        let parent =
            ObjectName { schema: Some(parent.schema.clone()), name: parent.name.clone(), at: NOWHERE, is_only: false };
        let is_taken = table.foreign_keys.iter().any(|own| own.name == key.name)
            || table.checks.iter().any(|own| own.name == key.name);
        let foreign = ForeignDef {
            name: (!is_taken).then(|| key.name.clone()),
            columns: names.iter().map(|column| name(column)).collect(),
            parent,
            parent_columns: key.parent_columns.iter().map(|column| name(column)).collect(),
            on_delete: key.on_delete,
            on_update: key.on_update,
            is_full: key.is_full,
            is_deferrable: key.is_deferrable,
            is_deferred: key.is_deferred,
        };
        self.add_foreign(full, &foreign, key.is_valid)?;
        let table = self.table_now(full)?;
        let Some(own) = table.foreign_keys.last().cloned().filter(|_| table.partition_by.is_some()) else {
            return Ok(());
        };
        for heir in self.catalog.heirs(table.oid).to_vec() {
            self.partition_foreign(&heir.table.full, &table, &own)?;
        }
        Ok(())
    }

    /// The bound of a new partition. Rows of the default one that it would have are an error.
    fn new_bound(
        &self,
        above: &Arc<TableDef>,
        key: &PartitionKey,
        (own, bound): (&str, &BoundDef),
    ) -> Outcome<Bound<String>> {
        let found = self.written_bound(above, key, bound)?;
        let read = found.read(key)?;
        let heirs = self.catalog.heirs(above.oid);
        refuse_overlap(key, heirs, (own, &read))?;
        let default = heirs.iter().find(|heir| heir.bound == Some(Bound::Default));
        if let (Some(default), true) = (default, read != Bound::Default) {
            self.each_row_of(&default.table, |row| {
                let row: Row = default.map.iter().map(|column| row[*column].clone()).collect();
                let values = self.key_values(key, &row)?;
                if !key.fits(&read, &values) {
                    return Ok(());
                }
                let message = format!(
                    "updated partition constraint for default partition \"{}\" would be violated by some row",
                    default.table.name
                );
                Err(Error::new(SqlState::CHECK_VIOLATION, message).table(&default.table.name).into())
            })?;
        }
        Ok(found)
    }

    fn key_values(&self, key: &PartitionKey, row: &[Datum]) -> Outcome<Row> {
        let one = |part: &crate::catalog::family::KeyPart| {
            self.with_run(|run| run.eval(&part.expr, &Env { row, outer: None }))
        };
        key.keys.iter().map(one).collect()
    }

    /// Calls `test` for the rows of a table and of those below it, with the columns of the table.
    fn each_row_of(&self, table: &Arc<TableDef>, mut test: impl FnMut(Row) -> Outcome<()>) -> Outcome<()> {
        self.each_row(table, &mut test)?;
        for (heir, map) in self.catalog.heirs_of(table) {
            self.each_row(&heir, |row| test(map.iter().map(|column| row[*column].clone()).collect()))?;
        }
        Ok(())
    }

    fn written_bound(&self, above: &TableDef, key: &PartitionKey, bound: &BoundDef) -> Outcome<Bound<String>> {
        let kind = match key.strategy {
            Strategy::List => "list",
            Strategy::Range => "range",
            Strategy::Hash => "hash",
        };
        let text = |place: usize, expr: &Expr| self.bound_value(above, key, (place, expr));
        Ok(match (key.strategy, bound) {
            (Strategy::Hash, BoundDef::Default) => {
                return Err(invalid("a hash-partitioned table may not have a default partition").into());
            }
            (_, BoundDef::Default) => Bound::Default,
            (Strategy::Hash, BoundDef::Hash { modulus, remainder, .. }) => {
                let modulus = u64::try_from(*modulus).ok().filter(|modulus| *modulus > 0);
                let wrong = "modulus for hash partition must be an integer value greater than zero";
                let modulus = modulus.ok_or_else(|| invalid(wrong))?;
                let wrong = "remainder for hash partition must be an integer value greater than or equal to zero";
                let remainder = u64::try_from(*remainder).map_err(|_| invalid(wrong))?;
                if remainder >= modulus {
                    return Err(invalid("remainder for hash partition must be less than modulus").into());
                }
                Bound::Hash { modulus, remainder }
            }
            (Strategy::List, BoundDef::List(list)) => {
                let mut found: Vec<Option<String>> = Vec::new();
                for expr in list {
                    let value = text(0, expr)?;
                    if !found.contains(&value) {
                        found.push(value);
                    }
                }
                Bound::List(found)
            }
            (Strategy::Range, BoundDef::Range(from, to)) => {
                let count = key.keys.len();
                for (list, word) in [(from, "FROM"), (to, "TO")] {
                    if list.len() != count {
                        let message = format!("{word} must specify exactly one value per partitioning column");
                        return Err(invalid(message).into());
                    }
                }
                let limits = |list: &[Expr]| self.limits(above, key, list);
                Bound::Range(limits(from)?, limits(to)?)
            }
            _ => return Err(invalid(format!("invalid bound specification for a {kind} partition")).into()),
        })
    }

    fn limits(&self, above: &TableDef, key: &PartitionKey, list: &[Expr]) -> Outcome<Vec<Limit<String>>> {
        let mut found: Vec<Limit<String>> = Vec::new();
        for (place, expr) in list.iter().enumerate() {
            let limit = match expr {
                Expr::Column(names, _) if names[..] == ["minvalue"] => Limit::Least,
                Expr::Column(names, _) if names[..] == ["maxvalue"] => Limit::Most,
                expr => match self.bound_value(above, key, (place, expr))? {
                    Some(text) => Limit::Value(text),
                    None => return Err(overlap("cannot specify NULL in range bound".into()).into()),
                },
            };
            let word = |limit: &Limit<String>| if *limit == Limit::Least { "MINVALUE" } else { "MAXVALUE" };
            if let Some(last) = found.last().filter(|last| !matches!(last, Limit::Value(_)) && **last != limit) {
                let word = word(last);
                let message = format!("every bound following {word} must also be {word}");
                return Err(mismatch(message).at(expr.at()).into());
            }
            found.push(limit);
        }
        Ok(found)
    }

    /// The text of a value of a bound. `None`: null.
    fn bound_value(
        &self,
        above: &TableDef,
        key: &PartitionKey,
        (place, expr): (usize, &Expr),
    ) -> Outcome<Option<String>> {
        let part = &key.keys[place];
        let shown = part.column.map_or_else(|| part.text.clone(), |column| above.columns[column].name.clone());
        let column = Column::of_value(shown.clone(), (part.ty, part.modifier));
        let value = bind::default_expr(&self.catalog, &column, expr).map_err(|error| match error.state() {
            SqlState::DATATYPE_MISMATCH => {
                let message = format!("specified value cannot be cast to type {} for column \"{shown}\"", part.ty);
                mismatch(message).at(expr.at())
            }
            SqlState::FEATURE_NOT_SUPPORTED if error.message().contains("column reference") => {
                let message = "cannot use column reference in partition bound expression";
                Error::new(SqlState::INVALID_COLUMN_REFERENCE, message).at(expr.at())
            }
            SqlState::FEATURE_NOT_SUPPORTED if error.message().contains("subquery") => {
                Error::new(SqlState::FEATURE_NOT_SUPPORTED, "cannot use subquery in partition bound").at(expr.at())
            }
            _ => error,
        })?;
        let datum = self.with_run(|run| run.eval(&value, &Env { row: &[], outer: None }))?;
        let plain = || lodestone_sql_types::style::plain(|| text::encode(part.ty, &datum));
        Ok((!datum.is_null()).then(plain))
    }

    /// ATTACH PARTITION.
    pub(super) fn attach(&mut self, full: &str, partition: &ObjectName, bound: &BoundDef) -> Outcome<()> {
        let above = self.table_now(full)?;
        let Some(key) = above.partition_by.clone() else {
            return Err(overlap(format!("table \"{}\" is not partitioned", above.name)).into());
        };
        let table = self.find(partition, Mode::AccessExclusive)?;
        if is_partition(&table) {
            return Err(wrong_type(format!("\"{}\" is already a partition", table.name)).into());
        }
        if !table.parents.is_empty() {
            return Err(wrong_type("cannot attach inheritance child as partition".into()).into());
        }
        if table.partition_by.is_none() && !self.catalog.heirs(table.oid).is_empty() {
            return Err(wrong_type("cannot attach inheritance parent as partition".into()).into());
        }
        self.refuse_circle(&above, &table)?;
        if let Some(other) = table.columns.iter().find(|column| above.column(&column.name).is_none()) {
            let message = format!(
                "table \"{}\" contains column \"{}\" not found in parent \"{}\"",
                table.name, other.name, above.name
            );
            let detail = "The new partition may contain only the columns present in parent.";
            return Err(mismatch(message).detail(detail).into());
        }
        let bound = self.new_bound(&above, &key, (&table.name, bound))?;
        let mut note = note_of(&table);
        self.adopt(&above, &table, &mut note)?;
        note.parents.push(ParentNote { oid: above.oid, bound: Some(bound) });
        self.write_note(&table, &note)?;
        let now = self.table_now(&table.full)?;
        let own = self.catalog.heirs(above.oid).iter().find(|heir| heir.table.oid == table.oid).cloned();
        if let Some(own) = own {
            self.each_row_of(&now, |row| {
                if self.with_run(|run| run.belongs(&own.table, &row))? {
                    return Ok(());
                }
                let message = format!("partition constraint of relation \"{}\" is violated by some row", now.name);
                Err(Error::new(SqlState::CHECK_VIOLATION, message).table(&now.name).into())
            })?;
        }
        if !above.key.is_empty() && now.key.is_empty() {
            let names =
                |columns: &[usize]| columns.iter().map(|column| name(&above.columns[*column].name)).collect::<Vec<_>>();
            let (columns, included) = (names(&above.key), names(&above.key_included));
            let key = ConstraintDef::Primary(KeyDef { name: None, columns, included, deferrable: None });
            self.add_constraint(&table.full, &key)?;
            // Its own partitions hold the rows.
            for (below, _) in self.catalog.heirs_of(&now) {
                if self.table_now(&below.full)?.key.is_empty() {
                    self.add_constraint(&below.full, &key)?;
                }
            }
        }
        self.complete_partition(&table.full, &above)
    }

    fn refuse_circle(&self, above: &TableDef, below: &Arc<TableDef>) -> Outcome<()> {
        let is_below = self.catalog.heirs_of(below).iter().any(|(heir, _)| heir.oid == above.oid);
        if above.oid != below.oid && !is_below {
            return Ok(());
        }
        let detail = format!("\"{}\" is already a child of \"{}\".", above.name, below.name);
        Err(Error::new(SqlState::DUPLICATE_TABLE, "circular inheritance not allowed").detail(detail).into())
    }

    /// Tests that a table has what those above it need, and marks it as theirs.
    fn adopt(&self, above: &TableDef, table: &TableDef, note: &mut Note) -> Outcome<()> {
        for column in &above.columns {
            let Some(own) = table.columns.iter().find(|own| own.name == column.name) else {
                return Err(mismatch(format!("child table is missing column \"{}\"", column.name)).into());
            };
            if (own.ty, own.modifier) != (column.ty, column.modifier) {
                let message =
                    format!("child table \"{}\" has different type for column \"{}\"", table.name, column.name);
                return Err(mismatch(message).into());
            }
            if column.not_null && !own.not_null {
                let message = format!("column \"{}\" in child table must be marked NOT NULL", column.name);
                return Err(mismatch(message).into());
            }
            if column.is_generated && !own.is_generated {
                let message = format!("column \"{}\" in child table must be a generated column", column.name);
                return Err(mismatch(message).into());
            }
            if above.partition_by.is_some() {
                note.columns.iter_mut().filter(|own| own.name == column.name).for_each(|own| own.is_local = false);
            }
        }
        for check in above.checks.iter().filter(|check| !check.no_inherit) {
            let Some(own) = table.checks.iter().find(|own| own.name == check.name) else {
                return Err(mismatch(format!("child table is missing constraint \"{}\"", check.name)).into());
            };
            if written(&own.text)?.expr != written(&check.text)?.expr {
                let message = format!(
                    "child table \"{}\" has different definition for check constraint \"{}\"",
                    table.name, check.name
                );
                return Err(mismatch(message).into());
            }
            if own.no_inherit {
                let message = format!(
                    "constraint \"{}\" conflicts with non-inherited constraint on child table \"{}\"",
                    check.name, table.name
                );
                return Err(Error::new(SqlState::INVALID_OBJECT_DEFINITION, message).into());
            }
        }
        Ok(())
    }

    /// DETACH PARTITION.
    pub(super) fn detach(&mut self, full: &str, partition: &ObjectName) -> Outcome<()> {
        let above = self.table_now(full)?;
        if above.partition_by.is_none() {
            return Err(overlap(format!("table \"{}\" is not partitioned", above.name)).into());
        }
        let table = self.find(partition, Mode::AccessExclusive)?;
        if !table.parents.iter().any(|parent| parent.oid == above.oid) {
            let message = format!("relation \"{}\" is not a partition of relation \"{}\"", table.name, above.name);
            return Err(Error::new(SqlState::UNDEFINED_TABLE, message).into());
        }
        self.refuse_named_rows(&table)?;
        self.leave(&above, &table)
    }

    /// Refuses to take away rows that foreign keys to the tables above name.
    fn refuse_named_rows(&self, table: &Arc<TableDef>) -> Outcome<()> {
        let keys: Vec<_> = self.catalog.children_of(table).into_iter().cloned().collect();
        for (child, number) in keys.iter().filter(|(child, number)| child.foreign_keys[*number].parent != table.oid) {
            let key = &child.foreign_keys[*number];
            self.each_row_of(table, |row| {
                if !self.with_run(|run| run.is_named(table, (child, key), &row))? {
                    return Ok(());
                }
                let message =
                    format!("removing partition \"{}\" violates foreign key constraint \"{}\"", table.name, key.name);
                let error = Error::new(SqlState::FOREIGN_KEY_VIOLATION, message);
                Err(error.table(&child.name).constraint(&key.name).into())
            })?;
        }
        Ok(())
    }

    /// A table is no longer below another one. Its columns and conditions are its own.
    fn leave(&mut self, above: &TableDef, table: &TableDef) -> Outcome<()> {
        let mut note = note_of(table);
        note.parents.retain(|parent| parent.oid != above.oid);
        let remaining: Vec<_> = note.parents.iter().filter_map(|parent| self.catalog.table_of(parent.oid)).collect();
        for column in &mut note.columns {
            column.is_local |= !remaining.iter().any(|other| other.column(&column.name).is_some());
        }
        for constraint in &mut note.constraints {
            if let ConstraintBody::Check { is_local, .. } = &mut constraint.body {
                let is_it = |other: &&Arc<TableDef>| other.checks.iter().any(|check| check.name == constraint.name);
                *is_local |= !remaining.iter().any(is_it);
            }
        }
        note.indexes.iter_mut().for_each(|index| index.parent = None);
        self.write_note(table, &note)
    }

    /// INHERIT.
    pub(super) fn inherit(&mut self, full: &str, parent: &ObjectName) -> Outcome<()> {
        let table = self.table_now(full)?;
        if table.partition_by.is_some() {
            return Err(wrong_type("cannot change inheritance of partitioned table".into()).into());
        }
        if is_partition(&table) {
            return Err(wrong_type("cannot change inheritance of a partition".into()).into());
        }
        let above = self.find(parent, Mode::ShareUpdateExclusive)?;
        if above.partition_by.is_some() {
            return Err(wrong_type(format!("cannot inherit from partitioned table \"{}\"", above.name)).into());
        }
        if is_partition(&above) {
            return Err(wrong_type("cannot inherit from a partition".into()).into());
        }
        if table.parents.iter().any(|other| other.oid == above.oid) {
            let message = format!("relation \"{}\" would be inherited from more than once", above.name);
            return Err(Error::new(SqlState::DUPLICATE_TABLE, message).into());
        }
        self.refuse_circle(&above, &table)?;
        let mut note = note_of(&table);
        self.adopt(&above, &table, &mut note)?;
        note.parents.push(ParentNote { oid: above.oid, bound: None });
        self.write_note(&table, &note)
    }

    /// NO INHERIT.
    pub(super) fn no_inherit(&mut self, full: &str, parent: &ObjectName) -> Outcome<()> {
        let table = self.table_now(full)?;
        if is_partition(&table) {
            return Err(wrong_type("cannot change inheritance of a partition".into()).into());
        }
        let above = self.find(parent, Mode::ShareUpdateExclusive)?;
        if !table.parents.iter().any(|other| other.oid == above.oid) {
            let message = format!("relation \"{}\" is not a parent of relation \"{}\"", above.name, table.name);
            return Err(Error::new(SqlState::UNDEFINED_TABLE, message).into());
        }
        self.leave(&above, &table)
    }

    /// A unique key of a partitioned table has all columns of its partition key.
    pub(super) fn refuse_short_key(&self, table: &str, (note, names): (&Note, &[String]), what: &str) -> Result<()> {
        let Some(key) = &note.partition_by else { return Ok(()) };
        let columns: Vec<_> = note.columns.iter().map(super::table::column_of).collect();
        let key = bind::partition_key(&self.catalog.types, table, &columns, key)?;
        for part in &key.keys {
            let Some(column) = part.column else {
                let message = format!("unsupported {what} constraint with partition key definition");
                let detail = format!("{what} constraints cannot be used when partition keys include expressions.");
                return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message).detail(detail));
            };
            let column = &columns[column].name;
            if !names.contains(column) {
                let message = "unique constraint on partitioned table must include all partitioning columns";
                let detail = format!(
                    "{what} constraint on table \"{table}\" lacks column \"{column}\" which is part of the partition key."
                );
                return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message).detail(detail));
            }
        }
        Ok(())
    }
}

/// Refuses a bound that has rows of another partition.
fn refuse_overlap(key: &PartitionKey, heirs: &[Heir], (own, bound): (&str, &Bound<Datum>)) -> Result<()> {
    if let Bound::Range(from, to) = bound
        && key.order_limits(from, to).is_ge()
    {
        let shown = |list: &[Limit<Datum>]| {
            let one = |(limit, part): (&Limit<Datum>, &crate::catalog::family::KeyPart)| match limit {
                Limit::Least => "MINVALUE".to_owned(),
                Limit::Most => "MAXVALUE".to_owned(),
                Limit::Value(value) => text::encode(part.ty, value),
            };
            list.iter().zip(&key.keys).map(one).collect::<Vec<_>>().join(", ")
        };
        let detail =
            format!("Specified lower bound ({}) is greater than or equal to upper bound ({}).", shown(from), shown(to));
        return Err(overlap(format!("empty range bound specified for partition \"{own}\"")).detail(detail));
    }
    if let Bound::Hash { modulus, .. } = bound {
        let others = heirs.iter().filter_map(|heir| match &heir.bound {
            Some(Bound::Hash { modulus, .. }) => Some(*modulus),
            _ => None,
        });
        for other in others {
            if modulus.max(&other) % modulus.min(&other) != 0 {
                let message = "every hash partition modulus must be a factor of the next larger modulus";
                return Err(overlap(message.into()));
            }
        }
    }
    for heir in heirs {
        let Some(other) = &heir.bound else { continue };
        let overlaps = match (bound, other) {
            (Bound::Default, Bound::Default) => {
                let message =
                    format!("partition \"{own}\" conflicts with existing default partition \"{}\"", heir.table.name);
                return Err(overlap(message));
            }
            (Bound::List(one), Bound::List(_)) => one.iter().any(|value| {
                let value = value.clone().unwrap_or(Datum::Null);
                key.fits(other, std::slice::from_ref(&value))
            }),
            (Bound::Range(from, to), Bound::Range(other_from, other_to)) => {
                key.order_limits(from, other_to).is_lt() && key.order_limits(other_from, to).is_lt()
            }
            (Bound::Hash { modulus, remainder }, Bound::Hash { modulus: other, remainder: other_remainder }) => {
                let least = modulus.min(other);
                remainder % least == other_remainder % least
            }
            _ => false,
        };
        if overlaps {
            let message = format!("partition \"{own}\" would overlap partition \"{}\"", heir.table.name);
            return Err(overlap(message));
        }
    }
    Ok(())
}
