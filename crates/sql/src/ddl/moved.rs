//! Objects that get another name or another schema: RENAME TO and SET SCHEMA.
//!
//! 1. The change is worked out: the objects, and the texts of tables, views and domains that name them.
//! 2. All of these are locked. Others may have changed some of them before, so step 1 is done again until it finds
//!    nothing that is not locked.
//! 3. Everything is written under the new names, and then read at once.
//! 4. A view must have the same columns, of the same relations. A text that cannot be written so is refused.

use std::collections::BTreeSet;
use std::sync::Arc;

use lodestone_sql_types::{Error, Result, SqlState, Type};

use super::{Definition, exists, note_of};
use crate::bind;
use crate::catalog::moved::Moved;
use crate::catalog::store::{self, Note};
use crate::catalog::types::TypeNote;
use crate::catalog::{Catalog, PUBLIC, Relation, SequenceDef, TableDef, ViewDef, full_name};
use crate::connection::TEMPORARY_PREFIX;
use crate::errors::from_engine;
use crate::locks::Mode;
use crate::parse::ast::{Name, ObjectName, Statement};
use crate::parse::names::Kind;
use crate::run::Outcome;

/// The entries that a change of names writes. Each with the name in the engine that it had.
#[derive(Default)]
struct Carried {
    /// With the new name in the engine.
    tables: Vec<(Arc<TableDef>, String, Note)>,
    views: Vec<(Arc<ViewDef>, ViewDef)>,
    sequences: Vec<(String, SequenceDef)>,
    types: Vec<(String, String, TypeNote)>,
}

impl Carried {
    /// The names of their locks, old and new ones.
    fn keys(&self) -> BTreeSet<String> {
        let tables = self.tables.iter().flat_map(|(table, new, _)| [table.full.clone(), new.clone()]);
        let views = self.views.iter().flat_map(|(old, new)| [old.full.clone(), new.full.clone()]);
        let sequences = self.sequences.iter().flat_map(|(old, new)| [old.clone(), new.full.clone()]);
        let types = self.types.iter().flat_map(|(old, new, _)| [store::type_key(old), store::type_key(new)]);
        tables.chain(views).chain(sequences).chain(types).collect()
    }
}

impl Definition<'_> {
    /// Gives a table, view or sequence another name, or puts it into another schema. The name in the engine that it
    /// has then.
    pub(super) fn move_relation(
        &mut self,
        full: &str,
        (schema, name): (Option<&Name>, Option<&Name>),
    ) -> Outcome<String> {
        let lost = || Error::new(SqlState::UNDEFINED_TABLE, format!("relation \"{full}\" does not exist"));
        let oid = self.catalog.oid_of(full).ok_or_else(lost)?;
        let relation = self.catalog.relation(oid.into()).ok_or_else(lost)?;
        let old = (relation.schema().to_owned(), relation.name().to_owned());
        let (table, owner) = match relation {
            Relation::Table(table) => (Some(table.clone()), None),
            Relation::Sequence(sequence) => (None, sequence.owner.clone()),
            _ => (None, None),
        };
        if let (Some(_), Some((owner, _))) = (schema, owner) {
            let owner = self.catalog.tables.get(&owner).map_or(owner, |table| table.name.clone());
            return Err(Error::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "cannot move an owned sequence into another schema",
            )
            .detail(format!("Sequence \"{}\" is linked to table \"{owner}\".", old.1))
            .into());
        }
        let new_schema = match schema {
            None => old.0.clone(),
            Some(Name { value, at }) => {
                let new = ObjectName { schema: Some(value.clone()), name: old.1.clone(), at: *at, is_only: false };
                self.schema_of_new(&new)?
            }
        };
        let new = (new_schema, name.map_or_else(|| old.1.clone(), |name| name.value.clone()));
        if name.is_none() && new.0 == old.0 {
            return Ok(full.to_owned());
        }
        if new.0 != old.0 && [&old.0, &new.0].iter().any(|schema| schema.starts_with(TEMPORARY_PREFIX)) {
            let message = "cannot move objects into or out of temporary schemas";
            return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message).into());
        }
        if new.0 == PUBLIC && new.1.contains('.') {
            return Err(Error::unsupported("a point in the name of a relation").into());
        }
        self.take_free(&new, name.is_some())?;
        let mut objects = vec![(Kind::Relation, old.clone(), new.clone())];
        if let Some(table) = table {
            let new_full = full_name(&new.0, &new.1);
            self.lock_name(&store::type_key(&new_full))?;
            let is_system = new.0 == PUBLIC && name.is_some() && Type::named(&new.1).is_some();
            if self.catalog.types.contains_key(&new_full) && !is_system {
                let place = if name.is_some() { String::new() } else { format!(" in schema \"{}\"", new.0) };
                let message = format!("type \"{}\" already exists{place}", new.1);
                return Err(Error::new(SqlState::DUPLICATE_OBJECT, message).into());
            }
            objects.push((Kind::Type, old, new.clone()));
            if schema.is_some() {
                let key = (!table.key.is_empty()).then_some(&table.key_name);
                for index in table.indexes.iter().map(|index| &index.name).chain(key) {
                    self.take_free(&(new.0.clone(), index.clone()), false)?;
                }
                for sequence in self.owned_by(&table.full, None) {
                    let place = (new.0.clone(), sequence.name.clone());
                    self.take_free(&place, false)?;
                    objects.push((Kind::Relation, (sequence.schema, sequence.name), place));
                }
            }
        }
        self.carry_out(&Moved::Objects(objects), if name.is_some() { "RENAME" } else { "SET SCHEMA" })?;
        Ok(full_name(&new.0, &new.1))
    }

    /// Takes a name that no relation has. `is_name`: it is the name that changes, not the schema.
    fn take_free(&mut self, (schema, name): &(String, String), is_name: bool) -> Outcome<()> {
        let full = full_name(schema, name);
        self.lock_name(&full)?;
        if self.catalog.oid_of(&full).is_none() && !store::is_own(&full) {
            return Ok(());
        }
        if is_name {
            return Err(exists(name).into());
        }
        let message = format!("relation \"{name}\" already exists in schema \"{schema}\"");
        Err(Error::new(SqlState::DUPLICATE_TABLE, message).into())
    }

    /// The entries that a change of names writes, as the catalog is now.
    fn carried(&self, moved: &Moved) -> Carried {
        let mut carried = Carried::default();
        let catalog = &self.catalog;
        for table in catalog.tables.values() {
            let to = moved.to(Kind::Relation, (&table.schema, &table.name));
            let mut note = note_of(table);
            if catalog.carry_note(&mut note, table, moved) || to.is_some() {
                let full = to.map_or_else(|| table.full.clone(), |(schema, name)| full_name(&schema, &name));
                carried.tables.push((table.clone(), full, note));
            }
        }
        for view in catalog.views.values() {
            let new = catalog.carried_view(view, moved);
            match (moved.to(Kind::Relation, (&view.schema, &view.name)), new) {
                (None, None) => {}
                (None, Some(new)) => carried.views.push((view.clone(), new)),
                (Some((schema, name)), new) => {
                    let new = new.unwrap_or_else(|| (**view).clone());
                    let full = full_name(&schema, &name);
                    carried.views.push((view.clone(), ViewDef { schema, name, full, ..new }));
                }
            }
        }
        for sequence in catalog.sequences.values() {
            let mut new = (**sequence).clone();
            if let Some((schema, name)) = moved.to(Kind::Relation, (&sequence.schema, &sequence.name)) {
                let full = full_name(&schema, &name);
                new = SequenceDef { schema, name, full, ..new };
            }
            if let Some((owner, _)) = &mut new.owner
                && let Some((_, full, _)) = carried.tables.iter().find(|(table, ..)| table.full == *owner)
            {
                owner.clone_from(full);
            }
            if new != **sequence {
                carried.sequences.push((sequence.full.clone(), new));
            }
        }
        for found in catalog.types.values() {
            let mut note = found.note.clone();
            let is_changed = catalog.carry_type(&mut note, moved);
            let to = moved.to(Kind::Type, (&note.schema, &note.name));
            if is_changed || to.is_some() {
                (note.schema, note.name) = to.unwrap_or((note.schema, note.name));
                carried.types.push((found.full.clone(), full_name(&note.schema, &note.name), note));
            }
        }
        carried
    }

    fn carry_out(&mut self, moved: &Moved, what: &str) -> Outcome<()> {
        let mut locked = BTreeSet::new();
        let carried = loop {
            let carried = self.carried(moved);
            let keys: Vec<String> = carried.keys().into_iter().filter(|key| !locked.contains(key)).collect();
            if keys.is_empty() {
                break carried;
            }
            for (table, full, _) in &carried.tables {
                let mode = if table.full == *full { Mode::ShareUpdateExclusive } else { Mode::AccessExclusive };
                self.lock_table(table.oid, mode)?;
            }
            for key in keys {
                self.lock_name(&key)?;
                locked.insert(key);
            }
        };
        let before = self.catalog.clone();
        let mut changed = BTreeSet::new();
        for (table, full, note) in &carried.tables {
            let engine = match table.full == *full {
                true => table.engine.clone(),
                false => self.engine().rename_table_in(self.tx, &table.full, full).map_err(from_engine)?,
            };
            self.writer()?.remove(&table.full)?;
            self.writer()?.write(full, engine.schema(), note)?;
            changed.extend([table.full.clone(), full.clone()]);
        }
        for (old, new) in &carried.views {
            self.writer()?.remove(&old.full)?;
            self.writer()?.write_view(new)?;
            changed.extend([old.full.clone(), new.full.clone()]);
        }
        for (old, new) in &carried.sequences {
            self.writer()?.remove(old)?;
            self.writer()?.write_sequence(new)?;
            changed.extend([old.clone(), new.full.clone()]);
        }
        for (old, new, note) in &carried.types {
            self.writer()?.remove(&store::type_key(old))?;
            self.writer()?.write_type(new, note)?;
            changed.extend([store::type_key(old), store::type_key(new)]);
        }
        if !carried.types.is_empty() {
            changed.extend(before.names_with_types());
        }
        if let Moved::Schema(from, to) = moved
            && let Some(oid) = before.schemas.get(from)
        {
            self.writer()?.write_schema(to, *oid)?;
        }
        if !changed.is_empty() {
            self.refresh(&changed.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        if matches!(moved, Moved::Schema(..)) {
            self.refresh(&[])?;
        }
        let other = carried.views.iter().find(|(old, new)| !is_same(&before, old, &self.catalog, new));
        match other {
            None => Ok(()),
            Some((view, _)) => Err(Error::unsupported(format!("{what} of what a view names in this form"))
                .detail(format!("The view is \"{}\".", view.name))
                .hint("Drop the view, and make it again afterwards.")
                .into()),
        }
    }

    /// Gives a schema another name.
    pub(super) fn rename_schema(&mut self, from: &str, to: &Name) -> Outcome<()> {
        self.lock_name(&super::schema_key(&to.value))?;
        self.refuse_schema_name(to)?;
        if from == PUBLIC {
            return Err(Error::unsupported("RENAME of the schema public").at(to.at).into());
        }
        self.carry_out(&Moved::Schema(from.to_owned(), to.value.clone()), "RENAME")
    }
}

/// Whether a view has the same columns, of the same relations, after a change of names. One that could not be read
/// before has no columns.
fn is_same(before: &Catalog, old: &ViewDef, after: &Catalog, new: &ViewDef) -> bool {
    let columns = |catalog: &Catalog, view: &ViewDef| -> Result<Vec<(Type, i32)>> {
        let within = catalog.with_path(view.path.clone());
        let plan = bind::bind(&within, Statement::Query(view.query.clone()), &[])?;
        Ok(plan.columns.iter().map(|column| (column.ty, column.modifier)).collect())
    };
    let Ok(own) = columns(before, old) else { return true };
    let is_there = columns(after, new).is_ok_and(|columns| columns == own);
    is_there && before.relations_of_view(old) == after.relations_of_view(new)
}
