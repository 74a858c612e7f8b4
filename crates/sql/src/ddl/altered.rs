//! ALTER of views, indexes, schemas and sequences: names, options, and indexes that become parts of others.

use std::sync::Arc;

use lodestone_sql_types::{Error, Result, SqlState};

use super::{Definition, exists, note_of};
use crate::catalog::{IndexDef, LateKey, Relation, TableDef, ViewDef, full_name};
use crate::errors::from_engine;
use crate::locks::Mode;
use crate::parse::ast::{AlterObject, Name, ObjectKind, ObjectName};
use crate::run::Outcome;

/// The columns of an index, and what it is.
#[derive(PartialEq)]
struct Shape {
    columns: Vec<String>,
    included: Vec<String>,
    is_unique: bool,
    is_key: bool,
    late: Option<LateKey>,
}

impl Shape {
    fn of(table: &TableDef, index: Option<&IndexDef>) -> Self {
        let names = |columns: &[usize]| columns.iter().map(|column| table.columns[*column].name.clone()).collect();
        match index {
            Some(index) => Self {
                columns: names(&index.columns),
                included: names(&index.included),
                is_unique: index.is_unique,
                is_key: false,
                late: index.late,
            },
            None => {
                let (columns, included) = (names(&table.key), names(&table.key_included));
                Self { columns, included, is_unique: true, is_key: true, late: None }
            }
        }
    }
}

impl Definition<'_> {
    pub(super) fn alter_object(
        &mut self,
        (kind, name): (ObjectKind, &ObjectName),
        if_exists: bool,
        action: &AlterObject,
    ) -> Outcome<()> {
        if let (ObjectKind::Schema, AlterObject::Owner(owner)) = (kind, action) {
            // As in PostgreSQL, the role is looked for first.
            self.check_owner(owner.as_ref())?;
        }
        let Some(full) = self.find_altered(kind, name, if_exists)? else { return Ok(()) };
        self.lock_object(kind, &full)?;
        // It may have gone before its lock was taken.
        let Some(full) = self.find_altered(kind, name, if_exists)? else { return Ok(()) };
        match (kind, action) {
            (_, AlterObject::Owner(owner)) => self.check_owner(owner.as_ref()),
            (ObjectKind::View | ObjectKind::Sequence, AlterObject::Rename(to)) => {
                self.move_relation(&full, (None, Some(to))).map(drop)
            }
            (ObjectKind::View | ObjectKind::Sequence, AlterObject::SetSchema(schema)) => {
                self.move_relation(&full, (Some(schema), None)).map(drop)
            }
            (ObjectKind::Schema, AlterObject::Rename(to)) => self.rename_schema(&full, to),
            (ObjectKind::View, AlterObject::SetOptions(options)) => {
                let view = self.view_now(&full)?;
                let mut all = view.options.clone();
                all.retain(|(name, _)| !options.iter().any(|(other, _)| other == name));
                all.extend(options.iter().cloned());
                self.set_options(&view, all)
            }
            (ObjectKind::View, AlterObject::ResetOptions(names)) => {
                let view = self.view_now(&full)?;
                let mut all = view.options.clone();
                all.retain(|(name, _)| !names.contains(name));
                self.set_options(&view, all)
            }
            (ObjectKind::Index, AlterObject::Rename(to)) => self.rename_index(&full, to),
            (ObjectKind::Index, AlterObject::AttachIndex(part)) => self.attach_index(&full, part),
            _ => Err(Error::unsupported(format!("this form of {}", super::altered_name(kind))).at(name.at).into()),
        }
    }

    /// Refuses an owner that does not exist. Which role it is makes no difference: every role may do everything.
    pub(super) fn check_owner(&self, owner: Option<&Name>) -> Outcome<()> {
        let Some(Name { value, .. }) = owner else { return Ok(()) };
        let is_there = *value == self.session.user
            || crate::pgcatalog::is_role_of_system(value)
            || crate::roles::is_there(self.engine(), value)?;
        if is_there {
            return Ok(());
        }
        Err(Error::new(SqlState::UNDEFINED_OBJECT, format!("role \"{value}\" does not exist")).into())
    }

    /// The name in the engine of an object that is to change. A relation that is not there has no kind.
    fn find_altered(&mut self, kind: ObjectKind, name: &ObjectName, if_exists: bool) -> Outcome<Option<String>> {
        let is_there = self.catalog.resolve(name.schema.as_deref(), &name.name).is_some();
        let is_relation = matches!(kind, ObjectKind::View | ObjectKind::Index | ObjectKind::Sequence);
        if is_there || !is_relation {
            return self.find_of(kind, name, if_exists);
        }
        if if_exists {
            self.notices.push(super::notice(format!("relation \"{}\" does not exist, skipping", name.name)));
            return Ok(None);
        }
        self.refuse_missing_schema(name)?;
        Err(super::no_relation(name).into())
    }

    /// Refuses the name of a relation whose schema is not there.
    pub(super) fn refuse_missing_schema(&self, name: &ObjectName) -> Result<()> {
        let Some(schema) = name.schema.as_deref() else { return Ok(()) };
        let is_system = ["pg_catalog", "information_schema", crate::parse::table::TEMPORARY].contains(&schema);
        if is_system || self.catalog.has_schema(schema) {
            return Ok(());
        }
        Err(Error::new(SqlState::INVALID_SCHEMA_NAME, format!("schema \"{schema}\" does not exist")).at(name.at))
    }

    fn view_now(&self, full: &str) -> Result<Arc<ViewDef>> {
        let lost = || Error::new(SqlState::UNDEFINED_TABLE, format!("view \"{full}\" does not exist"));
        self.catalog.views.get(full).cloned().ok_or_else(lost)
    }

    fn set_options(&mut self, view: &ViewDef, options: Vec<(String, String)>) -> Outcome<()> {
        let changed = ViewDef { options, ..view.clone() };
        if changed.check_option().is_some() {
            crate::bind::view::refuse_check_option(&self.catalog, &changed)?;
        }
        self.writer()?.write_view(&changed)?;
        self.refresh(&[&changed.full])?;
        Ok(())
    }

    /// The table of an index, and the index. `None`: that of the key.
    fn index_now(&self, full: &str) -> Result<(Arc<TableDef>, Option<IndexDef>)> {
        let lost = || Error::new(SqlState::UNDEFINED_OBJECT, format!("index \"{full}\" does not exist"));
        let oid = self.catalog.oid_of(full).ok_or_else(lost)?;
        match self.catalog.relation(oid.into()) {
            Some(Relation::Key(table)) => Ok((table.clone(), None)),
            Some(Relation::Index(table, index)) => Ok((table.clone(), Some(index.clone()))),
            _ => Err(lost()),
        }
    }

    fn rename_index(&mut self, full: &str, to: &Name) -> Outcome<()> {
        let (table, _) = self.index_now(full)?;
        self.lock_table(table.oid, Mode::AccessExclusive)?;
        // Others may have changed it before its lock was taken.
        self.follow()?;
        let (table, index) = self.index_now(full)?;
        if let Some(index) = index {
            return self.rename_index_of(&table, &index.name, &to.value);
        }
        self.take_name(&table, &to.value)?;
        let mut note = note_of(&table);
        note.key_name.clone_from(&to.value);
        self.write_note(&table, &note)
    }

    /// Renames an index that is not that of the key, with the constraint that it is for.
    pub(super) fn rename_index_of(&mut self, table: &TableDef, from: &str, to: &str) -> Outcome<()> {
        self.take_name(table, to)?;
        let mut note = note_of(table);
        let renamed = note.indexes.iter_mut().filter(|index| index.name == from);
        renamed.for_each(|index| to.clone_into(&mut index.name));
        let engine = self.engine().rename_index_in(self.tx, &table.full, from, to).map_err(from_engine)?;
        self.writer()?.write(&table.full, engine.schema(), &note)?;
        self.refresh(&[&table.full])?;
        Ok(())
    }

    /// The name of an index of the table, which no other relation has.
    pub(super) fn take_name(&mut self, table: &TableDef, name: &str) -> Outcome<()> {
        let full = full_name(&table.schema, name);
        self.lock_name(&full)?;
        if self.catalog.oid_of(&full).is_some() || crate::catalog::store::is_own(&full) {
            return Err(exists(name).into());
        }
        Ok(())
    }

    /// The index of a partition becomes the part of an index of its table that was made alone.
    fn attach_index(&mut self, full: &str, part: &ObjectName) -> Outcome<()> {
        let (above, whole) = self.index_now(full)?;
        if above.partition_by.is_none() {
            let name = whole.map_or_else(|| above.key_name.clone(), |index| index.name);
            let message = format!("ALTER action ATTACH PARTITION cannot be performed on relation \"{name}\"");
            let detail = "This operation is not supported for indexes.";
            return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message).detail(detail).into());
        }
        let Some(part_full) = self.find_altered(ObjectKind::Index, part, false)? else { return Ok(()) };
        self.lock_name(&part_full)?;
        let (table, own) = self.index_now(&part_full)?;
        self.lock_table(above.oid, Mode::ShareUpdateExclusive)?;
        self.lock_table(table.oid, Mode::ShareUpdateExclusive)?;
        let whole_name = whole.as_ref().map_or(&above.key_name, |index| &index.name);
        let own_name = own.as_ref().map_or(&table.key_name, |index| &index.name);
        let refuse = |state: SqlState, detail: String| {
            let message = format!("cannot attach index \"{own_name}\" as a partition of index \"{whole_name}\"");
            Err(Error::new(state, message).detail(detail).into())
        };
        let (early, wrong) = (SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, SqlState::INVALID_OBJECT_DEFINITION);
        let whole_oid = whole.as_ref().map_or(above.key_oid, |index| index.oid);
        match own.as_ref().and_then(|index| index.parent) {
            Some(parent) if parent == whole_oid => return Ok(()),
            Some(_) => return refuse(early, format!("Index \"{own_name}\" is already attached to another index.")),
            None => {}
        }
        if !self.catalog.heirs(above.oid).iter().any(|heir| heir.table.oid == table.oid) {
            let table = &above.name;
            return refuse(
                early,
                format!("Index \"{own_name}\" is not an index on any partition of table \"{table}\"."),
            );
        }
        if Shape::of(&above, whole.as_ref()) != Shape::of(&table, own.as_ref()) {
            return refuse(wrong, "The index definitions do not match.".into());
        }
        // The key of a partition is that of its table by itself.
        let (Some(whole), Some(own)) = (&whole, &own) else { return Ok(()) };
        if whole.is_constraint && !own.is_constraint {
            let (index, table) = (&whole.name, &above.name);
            return refuse(
                wrong,
                format!(
                    "The index \"{index}\" belongs to a constraint in table \"{table}\" but no constraint exists for \
                     index \"{own_name}\"."
                ),
            );
        }
        if table.indexes.iter().any(|index| index.parent == Some(whole.oid)) {
            return refuse(early, format!("Another index is already attached for partition \"{}\".", table.name));
        }
        let mut note = note_of(&table);
        note.indexes.iter_mut().filter(|index| index.oid == own.oid).for_each(|index| index.parent = Some(whole.oid));
        self.write_note(&table, &note)
    }
}
