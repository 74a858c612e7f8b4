//! ALTER TABLE: columns and names.

use lodestone_engine::Column;
use lodestone_sql_types::{Datum, Error, Result, SqlState};

use super::constraint::stored;
use super::table::{column_of, default_text, schema_of};
use super::{Definition, note_of, notice};
use crate::bind;
use crate::catalog::store::{ColumnNote, ConstraintBody};
use crate::catalog::value::{self, kind_of};
use crate::catalog::{IdentityKind, SequenceDef, TableDef};
use crate::errors::from_engine;
use crate::locks::Mode;
use crate::parse::ast::{
    Alter, AlterObject, ColumnDef, ConstraintDef, Default, Expr, Identity, Name, ObjectKind, ObjectName, TypeName,
};
use crate::run::{Env, Outcome};

/// Longest default that rows take without being written.
const DEFAULT_BYTES_MAX: usize = 1_000;

/// The lock that a change takes on its table. Others read a table that gets a foreign key, and change one whose rows
/// are tested for a constraint that holds for new ones already.
pub(super) fn mode_of(action: &Alter) -> Mode {
    match action {
        Alter::Validate(_) => Mode::ShareUpdateExclusive,
        Alter::AddConstraint { constraint: ConstraintDef::Foreign(_), .. } => Mode::ShareRowExclusive,
        _ => Mode::AccessExclusive,
    }
}

impl Definition<'_> {
    pub(super) fn alter_table(&mut self, name: &ObjectName, if_exists: bool, actions: &[Alter]) -> Outcome<()> {
        if self.catalog.table(name).is_none() {
            let full = self.catalog.resolve(name.schema.as_deref(), &name.name);
            let is_other = full
                .as_ref()
                .is_some_and(|full| self.catalog.views.contains_key(full) || self.catalog.sequences.contains_key(full));
            if let (Some(full), [action]) = (&full, actions)
                && let Some(outcome) = self.alter_other((full, name), action)
            {
                return outcome;
            }
            if !is_other && if_exists {
                self.notices.push(notice(format!("relation \"{}\" does not exist, skipping", name.name)));
                return Ok(());
            }
            self.refuse_missing_schema(name)?;
        }
        let mode = actions.iter().map(mode_of).max().unwrap_or(Mode::AccessExclusive);
        let mut full = self.find(name, mode)?.full.clone();
        // An index beside this transaction would not see what other changes did to the table, and would remain if one
        // of them fails.
        self.is_alone &= matches!(actions, [Alter::AddConstraint { .. } | Alter::Detach { .. } | Alter::Place(_)]);
        if let [Alter::Place(placing)] = actions {
            self.lock_tablespace(placing)?;
            return self.set_place(&full, placing, true);
        }
        for action in actions {
            self.alter_action(&mut full, action, (name.is_only, true))?;
        }
        Ok(())
    }

    /// A change of a view, sequence or index by ALTER TABLE. `None`: it is another object, or another change.
    fn alter_other(&mut self, (full, name): (&str, &ObjectName), action: &Alter) -> Option<Outcome<()>> {
        let kind = match () {
            () if self.catalog.views.contains_key(full) => ObjectKind::View,
            () if self.catalog.sequences.contains_key(full) => ObjectKind::Sequence,
            () if self.catalog.index_of(full).is_some() => ObjectKind::Index,
            () => return None,
        };
        let action = match action {
            Alter::Owner(owner) => AlterObject::Owner(owner.clone()),
            Alter::RenameTable(to) => AlterObject::Rename(to.clone()),
            Alter::SetSchema(_) if kind == ObjectKind::Index => {
                let message = format!("cannot change schema of index \"{}\"", name.name);
                let error = Error::new(SqlState::WRONG_OBJECT_TYPE, message);
                return Some(Err(error.hint("Change the schema of the table instead.").into()));
            }
            Alter::SetSchema(to) => AlterObject::SetSchema(to.clone()),
            _ => return None,
        };
        Some(self.alter_object((kind, name), false, &action))
    }

    /// One change. `is_only`: tables below do not take part. `is_first`: it is no part of a change of a table above.
    pub(super) fn alter_action(
        &mut self,
        full: &mut String,
        action: &Alter,
        (is_only, is_first): (bool, bool),
    ) -> Outcome<()> {
        let before = self.table_now(full)?;
        let heirs = self.catalog.heirs(before.oid).to_vec();
        if is_first {
            self.refuse_alone(&before, action, is_only)?;
        }
        match action {
            Alter::Nothing => {}
            Alter::Owner(owner) => self.check_owner(owner.as_ref())?,
            Alter::Place(placing) => {
                self.lock_tablespace(placing)?;
                self.set_place(full, placing, false)?;
            }
            Alter::Attach { partition, bound } => self.attach(full, partition, bound)?,
            Alter::Detach { partition, is_concurrent } => {
                if *is_concurrent && !self.is_alone {
                    let message = "ALTER TABLE ... DETACH CONCURRENTLY cannot run inside a transaction block";
                    return Err(Error::new(SqlState::ACTIVE_SQL_TRANSACTION, message).into());
                }
                self.detach(full, partition)?;
            }
            Alter::Inherit(parent) => self.inherit(full, parent)?,
            Alter::NoInherit(parent) => self.no_inherit(full, parent)?,
            Alter::AddColumn { column, constraints, if_not_exists } => {
                self.add_column(full, (column, constraints), *if_not_exists)?;
            }
            Alter::DropColumn { name, if_exists, is_cascade } => {
                self.drop_column(full, name, (*if_exists, *is_cascade))?;
            }
            Alter::RenameColumn { from, to } => self.rename_column(full, from, to)?,
            Alter::RenameTable(to) => *full = self.move_relation(full, (None, Some(to)))?,
            Alter::SetSchema(to) => *full = self.move_relation(full, (Some(to), None))?,
            Alter::RenameConstraint { from, to } => self.rename_constraint(full, from, to)?,
            Alter::SetDefault { column, default } => self.set_default(full, column, default.as_ref())?,
            Alter::SetNotNull { column, is_set } => self.set_not_null(full, column, *is_set)?,
            Alter::SetType { column, ty, using } => self.set_type(full, column, (ty, using.as_ref()))?,
            Alter::AddIdentity { column, identity } => self.add_identity(full, column, identity)?,
            Alter::AddConstraint { constraint: ConstraintDef::Unique(key), .. } => {
                self.add_unique(&before, key, is_only)?;
            }
            Alter::AddConstraint { constraint, is_valid } => self.add_tested(full, constraint, *is_valid)?,
            Alter::Validate(name) => self.validate(full, name)?,
            Alter::Timing { constraint, deferrable } => self.set_timing(full, constraint, *deferrable)?,
            Alter::DropConstraint { name, if_exists, is_cascade } => {
                self.drop_constraint(full, name, (*if_exists, *is_cascade))?;
            }
        }
        if heirs.is_empty() || is_only {
            return Ok(());
        }
        self.alter_below(full, (&before, &heirs), action)
    }

    fn place_of(&self, table: &TableDef, column: &Name) -> Result<usize> {
        table.column(&column.value).ok_or_else(|| {
            let message = format!("column \"{}\" of relation \"{}\" does not exist", column.value, table.name);
            Error::new(SqlState::UNDEFINED_COLUMN, message).at(column.at)
        })
    }

    fn add_column(
        &mut self,
        full: &str,
        (column, constraints): (&ColumnDef, &[ConstraintDef]),
        if_not_exists: bool,
    ) -> Outcome<()> {
        let table = self.table_now(full)?;
        if table.column(&column.name.value).is_some() {
            let text = format!("column \"{}\" of relation \"{}\" already exists", column.name.value, table.name);
            if if_not_exists {
                self.notices.push(notice(format!("{text}, skipping")));
                return Ok(());
            }
            return Err(Error::new(SqlState::DUPLICATE_COLUMN, text).at(column.name.at).into());
        }
        let own = self.column_note((&table.schema, &table.name), column)?;
        let Some(kind) = kind_of(own.ty, own.modifier) else {
            return Err(Error::unsupported(format!("a column of type {}", own.ty)).into());
        };
        if let Some(generated) = &column.generated {
            return self.add_generated(&table, (own, kind), &generated.expr, constraints);
        }
        let default = own.default.as_deref().map(crate::parse::parse_expr).transpose()?;
        let default = default.map(|expr| crate::bind::default_expr(&self.catalog, &column_of(&own), &expr));
        let default = default.transpose()?;
        // A default that is another one for each row is written into each of them.
        let is_each = default.as_ref().is_some_and(crate::plan::Expr::is_volatile);
        let first = match &default {
            Some(expr) if !is_each => self.with_run(|run| run.eval(expr, &Env { row: &[], outer: None }))?,
            _ => Datum::Null,
        };
        let is_long = match &first {
            Datum::Text(text) => text.len() > DEFAULT_BYTES_MAX,
            Datum::Bytes(bytes) => bytes.len() > DEFAULT_BYTES_MAX,
            _ => false,
        };
        let value = value::to_stored(&column_of(&own), if is_long { Datum::Null } else { first.clone() })?;
        // The engine's column may be null: the rows that are there have no value before they get one.
        let engine_column = Column { name: own.name.clone(), kind, nullable: true };
        let engine = self.engine().add_column_in(self.tx, full, &engine_column, value).map_err(from_engine)?;
        let mut note = note_of(&table);
        note.columns.push(ColumnNote { not_null: false, ..own.clone() });
        self.writer()?.write(full, engine.schema(), &note)?;
        self.refresh(&[full])?;
        if let Some(expr) = default.filter(|_| is_each || is_long) {
            self.fill_column(full, &expr)?;
        }
        if own.not_null {
            self.set_not_null(full, &column.name, true)?;
        }
        constraints.iter().try_for_each(|constraint| self.add_constraint(full, constraint))
    }

    /// Adds a column that is computed from the others, in all rows.
    fn add_generated(
        &mut self,
        table: &TableDef,
        (own, kind): (ColumnNote, lodestone_engine::Type),
        expr: &Expr,
        constraints: &[ConstraintDef],
    ) -> Outcome<()> {
        let full = &table.full;
        let mut note = note_of(table);
        let not_null = own.not_null;
        let name = Name { value: own.name.clone(), at: crate::parse::ast::NOWHERE };
        let engine_column = Column { name: own.name.clone(), kind, nullable: true };
        note.columns.push(ColumnNote { not_null: false, ..own });
        let expr = self.check_generated(&table.name, &note.columns, note.columns.len() - 1, expr)?;
        let null = lodestone_engine::Value::Null;
        let engine = self.engine().add_column_in(self.tx, full, &engine_column, null).map_err(from_engine)?;
        self.writer()?.write(full, engine.schema(), &note)?;
        self.refresh(&[full])?;
        self.fill_column(full, &expr)?;
        if not_null {
            self.set_not_null(full, &name, true)?;
        }
        constraints.iter().try_for_each(|constraint| self.add_constraint(full, constraint))
    }

    /// Writes a value, which may depend on the other columns, into the last column of all rows.
    fn fill_column(&mut self, full: &str, expr: &crate::plan::Expr) -> Outcome<()> {
        let table = self.table_now(full)?;
        self.tx.serialize().map_err(from_engine)?;
        let rows = table.engine.range(self.tx, ..).map_err(from_engine)?;
        let rows = rows.collect::<lodestone_engine::Result<Vec<_>>>().map_err(from_engine)?;
        let place = table.engine.schema().columns().len() - 1;
        let Some(column) = table.columns.last() else { return Ok(()) };
        for mut row in rows {
            let data = crate::run::to_row(&table, row.clone())?;
            let found = self.with_run(|run| run.eval(expr, &Env { row: &data, outer: None }))?;
            row.0[place] = value::to_stored(column, found)?;
            table.engine.put(self.tx, &row).map_err(from_engine)?;
        }
        Ok(())
    }

    pub(super) fn drop_column(
        &mut self,
        full: &str,
        name: &Name,
        (if_exists, is_cascade): (bool, bool),
    ) -> Outcome<()> {
        let table = self.table_now(full)?;
        let Some(place) = table.column(&name.value) else {
            if if_exists {
                let text = format!("column \"{}\" of relation \"{}\" does not exist, skipping", name.value, table.name);
                self.notices.push(notice(text));
                return Ok(());
            }
            return Err(self.place_of(&table, name).map(drop).unwrap_err().into());
        };
        self.drop_views_of(full, &format!("column {} of table {}", name.value, table.name), is_cascade)?;
        // Foreign keys of other tables to a key that has the column.
        let is_in_key = table.key.contains(&place) || table.key_included.contains(&place);
        let key = is_in_key.then_some((&table.key_name, &table.key)).into_iter();
        let indexes = table.indexes.iter().filter(|index| has_column(index, place));
        let what = format!("column {} of table {}", name.value, table.name);
        for (index, key) in key.chain(indexes.map(|index| (&index.name, &index.columns))) {
            let of = if key.contains(&place) { what.clone() } else { format!("index {index}") };
            self.drop_children(&table, Some(key), (&what, &of), is_cascade)?;
        }
        self.drop_generated_of(full, place, is_cascade)?;
        let mut table = self.table_now(full)?;
        // Columns before it may have gone.
        let place = self.place_of(&table, name)?;
        if table.key.contains(&place) || table.key_included.contains(&place) {
            self.drop_primary_key(&table)?;
            table = self.table_now(full)?;
        }
        let mut note = note_of(&table);
        for index in table.indexes.iter().filter(|index| has_column(index, place)) {
            self.engine().drop_index_in(self.tx, full, &index.name).map_err(from_engine)?;
            note.indexes.retain(|other| other.name != index.name);
        }
        let checks = table.checks.iter().filter(|check| names_column(&check.expr, place));
        let checks: Vec<u32> = checks.map(|check| check.oid).collect();
        let foreign = table.foreign_keys.iter().filter(|key| key.columns.contains(&place)).map(|key| key.oid);
        let gone: Vec<u32> = foreign.chain(checks).collect();
        note.constraints.retain(|constraint| !gone.contains(&constraint.oid));
        note.columns.remove(place);
        let engine = self.engine().drop_column_in(self.tx, full, &name.value).map_err(from_engine)?;
        self.writer()?.write(full, engine.schema(), &note)?;
        self.refresh(&[full])?;
        self.drop_owned(full, Some(&name.value))
    }

    /// Drops the columns that are computed from one that goes.
    fn drop_generated_of(&mut self, full: &str, place: usize, is_cascade: bool) -> Outcome<()> {
        let table = self.table_now(full)?;
        let name = |column: usize| table.columns[column].name.clone();
        let users =
            table.generated.iter().filter(|(_, expr)| names_column(expr, place)).map(|(column, _)| name(*column));
        let users: Vec<String> = users.collect();
        if !users.is_empty() && !is_cascade {
            let what = format!("column {} of table {}", name(place), table.name);
            let details: Vec<String> =
                users.iter().map(|user| format!("column {user} of table {} depends on {what}", table.name)).collect();
            let message = format!("cannot drop {what} because other objects depend on it");
            return Err(Error::new(SqlState::DEPENDENT_OBJECTS, message)
                .detail(details.join("\n"))
                .hint("Use DROP ... CASCADE to drop the dependent objects too.")
                .into());
        }
        for user in users {
            self.notices.push(notice(format!("drop cascades to column {user} of table {}", table.name)));
            self.drop_column(full, &Name { value: user, at: crate::parse::ast::NOWHERE }, (true, true))?;
        }
        Ok(())
    }

    fn rename_column(&mut self, full: &str, from: &Name, to: &str) -> Outcome<()> {
        let table = self.table_now(full)?;
        let message = format!("column \"{}\" does not exist", from.value);
        let error = || Error::new(SqlState::UNDEFINED_COLUMN, message).at(from.at);
        let place = table.column(&from.value).ok_or_else(error)?;
        if table.column(to).is_some() {
            let message = format!("column \"{to}\" of relation \"{}\" already exists", table.name);
            return Err(Error::new(SqlState::DUPLICATE_COLUMN, message).into());
        }
        self.refuse_views_of(full, "RENAME COLUMN")?;
        let mut note = note_of(&table);
        note.columns[place].name = to.to_owned();
        let included = note.indexes.iter_mut().flat_map(|index| &mut index.included).chain(&mut note.key_included);
        included.filter(|name| **name == from.value).for_each(|name| *name = to.to_owned());
        for text in note.partition_by.iter_mut().flat_map(|key| &mut key.keys) {
            *text = crate::parse::renamed(text, &from.value, to)?;
        }
        for column in note.columns.iter_mut().filter(|column| column.is_generated) {
            let text = column.default.as_deref().map(|text| crate::parse::renamed(text, &from.value, to));
            column.default = text.transpose()?;
        }
        for constraint in &mut note.constraints {
            match &mut constraint.body {
                ConstraintBody::Check { text, .. } => *text = crate::parse::renamed(text, &from.value, to)?,
                ConstraintBody::Foreign { columns, parent, parent_columns, .. } => {
                    columns.iter_mut().filter(|name| **name == from.value).for_each(|name| *name = to.to_owned());
                    if *parent == table.oid {
                        let names = parent_columns.iter_mut().filter(|name| **name == from.value);
                        names.for_each(|name| *name = to.to_owned());
                    }
                }
            }
        }
        let engine = self.engine().rename_column_in(self.tx, full, &from.value, to).map_err(from_engine)?;
        self.writer()?.write(full, engine.schema(), &note)?;
        let children = self.catalog.children.get(&table.oid).cloned().unwrap_or_default();
        let mut changed = vec![full.to_owned()];
        for (child, _) in children.iter().filter(|(child, _)| child.oid != table.oid) {
            let mut note = note_of(child);
            for constraint in &mut note.constraints {
                if let ConstraintBody::Foreign { parent, parent_columns, .. } = &mut constraint.body
                    && *parent == table.oid
                {
                    let names = parent_columns.iter_mut().filter(|name| **name == from.value);
                    names.for_each(|name| *name = to.to_owned());
                }
            }
            self.writer()?.write(&child.full, child.engine.schema(), &note)?;
            changed.push(child.full.clone());
        }
        for sequence in self.owned_by(full, Some(&from.value)) {
            let renamed = SequenceDef { owner: Some((full.to_owned(), to.to_owned())), ..sequence };
            self.writer()?.write_sequence(&renamed)?;
            changed.push(renamed.full);
        }
        self.refresh(&changed.iter().map(String::as_str).collect::<Vec<_>>())?;
        Ok(self.rename_comment(table.oid, &from.value, to)?)
    }

    fn rename_constraint(&mut self, full: &str, from: &Name, to: &str) -> Outcome<()> {
        let table = self.table_now(full)?;
        let mut note = note_of(&table);
        if note.constraints.iter().any(|constraint| constraint.name == to) {
            let message = format!("constraint \"{to}\" for relation \"{}\" already exists", table.name);
            return Err(Error::new(SqlState::DUPLICATE_OBJECT, message).into());
        }
        if let Some(found) = note.constraints.iter_mut().find(|constraint| constraint.name == from.value) {
            found.name = to.to_owned();
        } else if table.hidden.is_none() && table.key_name == from.value {
            self.take_name(&table, to)?;
            note.key_name = to.to_owned();
        } else if table.indexes.iter().any(|index| index.is_constraint && index.name == from.value) {
            return self.rename_index_of(&table, &from.value, to);
        } else {
            let message = format!("constraint \"{}\" for table \"{}\" does not exist", from.value, table.name);
            return Err(Error::new(SqlState::UNDEFINED_OBJECT, message).into());
        }
        self.write_note(&table, &note)
    }

    pub(super) fn set_default(&mut self, full: &str, column: &Name, default: Option<&Default>) -> Outcome<()> {
        let table = self.table_now(full)?;
        let place = self.place_of(&table, column)?;
        let mut note = note_of(&table);
        if note.columns[place].identity.is_some() {
            let message = format!("column \"{}\" of relation \"{}\" is an identity column", column.value, table.name);
            let hint = "Use ALTER TABLE ... ALTER COLUMN ... DROP IDENTITY instead.";
            return Err(Error::new(SqlState::SYNTAX_ERROR, message).hint(hint).into());
        }
        if note.columns[place].is_generated {
            let message = format!("column \"{}\" of relation \"{}\" is a generated column", column.value, table.name);
            return Err(Error::new(SqlState::SYNTAX_ERROR, message).into());
        }
        if let Some(default) = default {
            self.check_default(default, &note.columns[place])?;
        }
        let text = |default: &Default| self.catalog.qualified(&default_text(default, note.columns[place].ty));
        note.columns[place].default = default.map(text);
        self.write_note(&table, &note)
    }

    pub(super) fn set_not_null(&mut self, full: &str, column: &Name, is_set: bool) -> Outcome<()> {
        let table = self.table_now(full)?;
        let place = self.place_of(&table, column)?;
        let mut note = note_of(&table);
        if note.columns[place].not_null == is_set {
            return Ok(());
        }
        if !is_set && table.primary_columns().contains(&place) {
            let message = format!("column \"{}\" is in a primary key", column.value);
            return Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, message).into());
        }
        if !is_set && note.columns[place].identity.is_some() {
            let message = format!("column \"{}\" of relation \"{}\" is an identity column", column.value, table.name);
            return Err(Error::new(SqlState::SYNTAX_ERROR, message).into());
        }
        note.columns[place].not_null = is_set;
        if is_set {
            self.each_row(&table, |row| {
                if !row[place].is_null() {
                    return Ok(());
                }
                let message =
                    format!("column \"{}\" of relation \"{}\" contains null values", column.value, table.name);
                let error = Error::new(SqlState::NOT_NULL_VIOLATION, message);
                Err(error.table(&table.name).column(&column.value).into())
            })?;
            return self.write_note(&table, &note);
        }
        let engine = table.engine.schema();
        let is_engine_not_null = engine.number_of(&column.value).is_some_and(|n| !engine.columns()[n].nullable);
        if !is_engine_not_null {
            return self.write_note(&table, &note);
        }
        // The engine's rows have no place for a null in the column.
        let schema = self.schema_like(&table, &note.columns)?;
        self.rewrite(&table, &schema, &note, |_, row| Ok(stored(&table, row)?))
    }

    /// The engine's table with these columns, and the key and the indexes of `table`.
    pub(super) fn schema_like(&self, table: &TableDef, columns: &[ColumnNote]) -> Result<lodestone_engine::Schema> {
        let not_null: Vec<bool> = columns.iter().map(|column| column.not_null).collect();
        let name = |column: &usize| Name { value: table.columns[*column].name.clone(), at: crate::parse::ast::NOWHERE };
        let key: Vec<Name> = table.key.iter().map(name).collect();
        let key = table.hidden.is_none().then_some(&key[..]);
        let mut schema = schema_of(&table.full, columns, &not_null, key)?;
        for index in table.engine.schema().indexes() {
            schema = schema.with_index(index.clone());
        }
        Ok(schema)
    }

    fn set_type(&mut self, full: &str, column: &Name, (ty, using): (&TypeName, Option<&Expr>)) -> Outcome<()> {
        let table = self.table_now(full)?;
        let place = self.place_of(&table, column)?;
        self.refuse_views_of(full, "ALTER COLUMN .. TYPE")?;
        if let Some((user, _)) = table.generated.iter().find(|(_, expr)| names_column(expr, place)) {
            let message = "cannot alter type of a column used by a generated column";
            let (name, user) = (&column.value, &table.columns[*user].name);
            return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .detail(format!("Column \"{name}\" is used by generated column \"{user}\"."))
                .into());
        }
        let mut note = note_of(&table);
        let bind::UserType { ty, modifier, domain } = bind::user_type(&self.catalog, ty)?;
        if kind_of(ty, modifier).is_none() {
            return Err(super::table::no_kind(&column.value, ty).at(column.at).into());
        }
        let own = &mut note.columns[place];
        (own.ty, own.modifier, own.domain) = (ty, modifier, domain);
        let own = column_of(own);
        if let Some(default) = table.columns[place].effective_default() {
            let converted = crate::bind::default_expr(&self.catalog, &own, &default.expr);
            if converted.is_err() {
                let message =
                    format!("default for column \"{}\" cannot be cast automatically to type {ty}", column.value);
                return Err(Error::new(SqlState::DATATYPE_MISMATCH, message).into());
            }
        }
        let convert = crate::bind::conversion(&self.catalog, &table, place, &own, using)?;
        let columns: Vec<_> = note.columns.iter().map(column_of).collect();
        for check in &table.checks {
            let expr = crate::parse::parse_expr(&check.text)?;
            bind::check_in(&self.catalog.types, &table.name, &columns, &expr)?;
        }
        let schema = self.schema_like(&table, &note.columns)?;
        self.rewrite(&table, &schema, &note, |this, mut row| {
            row[place] = this.with_run(|run| run.eval(&convert, &Env { row: &row, outer: None }))?;
            let values = columns.iter().zip(row).map(|(column, datum)| value::to_stored(column, datum));
            Ok(lodestone_engine::Row(values.collect::<Result<_>>()?))
        })
    }

    fn add_identity(&mut self, full: &str, column: &Name, identity: &Identity) -> Outcome<()> {
        let table = self.table_now(full)?;
        let place = self.place_of(&table, column)?;
        let mut note = note_of(&table);
        let wrong = |what: &str| {
            let message = format!("column \"{}\" of relation \"{}\" {what}", column.value, table.name);
            Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        };
        if !note.columns[place].not_null {
            return Err(wrong("must be declared NOT NULL before identity can be added").into());
        }
        if note.columns[place].identity.is_some() {
            return Err(wrong("is already an identity column").into());
        }
        if note.columns[place].default.is_some() {
            return Err(wrong("already has a default value").into());
        }
        note.columns[place].identity =
            Some(if identity.is_always { IdentityKind::Always } else { IdentityKind::ByDefault });
        let default =
            self.make_owned_sequence((&table.schema, &table.name), &note.columns[place], &identity.options)?;
        note.columns[place].default = Some(default);
        self.write_note(&table, &note)
    }
}

/// Whether an expression names a column of its row.
fn names_column(expr: &crate::plan::Expr, place: usize) -> bool {
    let mut found = false;
    expr.walk(&mut |part| {
        found |= matches!(part, crate::plan::Expr::Column { depth: 0, index } if *index == place);
    });
    found
}

/// Whether a column is a part of an index, in its key or with INCLUDE.
fn has_column(index: &crate::catalog::IndexDef, place: usize) -> bool {
    index.columns.contains(&place) || index.included.contains(&place)
}
