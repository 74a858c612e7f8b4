//! Types of rows: CREATE, and the changes of their attributes.
//!
//! Rows of tables keep the fields by the numbers of the attributes, which never change. So an attribute is added and
//! dropped without a look at the rows. Another type of an attribute is refused while a column is of the type.

use std::collections::BTreeSet;

use lodestone_sql_types::composite::WIDTH_MAX;
use lodestone_sql_types::{Error, Result, SqlState, Type};

use super::{Definition, notice};
use crate::bind;
use crate::catalog::store;
use crate::catalog::types::{AttributeNote, CompositeNote, TypeBody, TypeDef, TypeNote};
use crate::parse::ast::{AttributeChange, AttributeDef, Name, ObjectName, Statement};
use crate::run::Outcome;

/// The attributes of a type that is changed.
fn composite_of(note: &mut TypeNote) -> Result<&mut CompositeNote> {
    let name = note.name.clone();
    match &mut note.body {
        TypeBody::Composite(composite) => Ok(composite),
        _ => Err(Error::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a composite type"))),
    }
}

fn no_attribute(name: &Name, of: &str) -> Error {
    let message = format!("column \"{}\" of relation \"{of}\" does not exist", name.value);
    Error::new(SqlState::UNDEFINED_COLUMN, message)
}

/// Whether values of a type have values of the type with this number in them.
fn uses(ty: Type, oid: u32) -> bool {
    is_inside(ty, oid, &mut BTreeSet::new())
}

/// `seen`: types that were met before. A type may be in another one many times.
fn is_inside(ty: Type, oid: u32, seen: &mut BTreeSet<u32>) -> bool {
    let single = ty.element().unwrap_or(ty);
    if ty.oid() == oid || single.oid() == oid {
        return true;
    }
    let fields = single.attributes().filter(|_| seen.insert(single.oid())).into_iter().flatten();
    fields.into_iter().any(|one| one.domain == oid || is_inside(one.ty, oid, seen))
}

impl Definition<'_> {
    pub(super) fn create_composite(&mut self, name: &ObjectName, attributes: &[AttributeDef]) -> Outcome<()> {
        let (schema, full) = self.new_type_name(name)?;
        if attributes.len() > WIDTH_MAX {
            let message = format!("tables can have at most {WIDTH_MAX} columns");
            return Err(Error::new(SqlState::TOO_MANY_COLUMNS, message).into());
        }
        let mut seen = BTreeSet::new();
        let mut made = Vec::new();
        for (attribute, number) in attributes.iter().zip(1..) {
            if !seen.insert(&attribute.name.value) {
                let message = format!("column \"{}\" specified more than once", attribute.name.value);
                return Err(Error::new(SqlState::DUPLICATE_COLUMN, message).into());
            }
            made.push(self.attribute(attribute, number, None)?);
        }
        let oids = store::take_oids(self.engine(), 3)?;
        let next = i16::try_from(made.len()).unwrap_or(i16::MAX).saturating_add(1);
        let body = TypeBody::Composite(CompositeNote { relation_oid: oids[2], next, attributes: made });
        self.write_type(&full, &TypeNote { oid: oids[0], array_oid: oids[1], schema, name: name.name.clone(), body })
    }

    /// The attribute that a definition says. `within`: the number and name of the type that gets it.
    fn attribute(&self, def: &AttributeDef, number: i16, within: Option<(u32, &str)>) -> Result<AttributeNote> {
        let found = bind::user_type(&self.catalog, &def.ty)?;
        let name = &def.name.value;
        if let Some((oid, own)) = within.filter(|(oid, _)| uses(found.ty, *oid)) {
            let _ = oid;
            let message = format!("composite type {own} cannot be made a member of itself");
            return Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, message));
        }
        if found.ty.is_record() || matches!(found.ty, Type::Void | Type::Unknown) {
            let message = format!("column \"{name}\" has pseudo-type {}", found.ty);
            return Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, message));
        }
        if crate::catalog::value::kind_of(found.ty, found.modifier).is_none() {
            return Err(Error::unsupported(format!("an attribute of type {}", found.ty)).at(def.ty.at));
        }
        let ty = found.domain.as_ref().map_or_else(|| found.ty.oid(), |domain| domain.oid);
        Ok(AttributeNote { name: name.clone(), number, ty, modifier: found.modifier })
    }

    pub(super) fn change_attributes(
        &mut self,
        found: &TypeDef,
        mut note: TypeNote,
        changes: &[AttributeChange],
    ) -> Outcome<()> {
        let own = note.name.clone();
        composite_of(&mut note)?;
        for change in changes {
            match change {
                AttributeChange::Add(def) => {
                    let number = composite_of(&mut note)?.next;
                    let made = self.attribute(def, number, Some((note.oid, &own)))?;
                    let composite = composite_of(&mut note)?;
                    if composite.attributes.iter().any(|one| one.name == made.name) {
                        let message = format!("column \"{}\" of relation \"{own}\" already exists", made.name);
                        return Err(Error::new(SqlState::DUPLICATE_COLUMN, message).into());
                    }
                    if usize::try_from(number).is_ok_and(|number| number > WIDTH_MAX) {
                        let message = format!("tables can have at most {WIDTH_MAX} columns");
                        return Err(Error::new(SqlState::TOO_MANY_COLUMNS, message).into());
                    }
                    composite.next += 1;
                    composite.attributes.push(made);
                }
                AttributeChange::Drop { name, if_exists } => {
                    let composite = composite_of(&mut note)?;
                    let count = composite.attributes.len();
                    composite.attributes.retain(|one| one.name != name.value);
                    if composite.attributes.len() == count {
                        if !if_exists {
                            return Err(no_attribute(name, &own).into());
                        }
                        let text = format!("column \"{}\" of relation \"{own}\" does not exist, skipping", name.value);
                        self.notices.push(notice(text));
                    }
                }
                AttributeChange::Type(def) => {
                    self.refuse_used(found)?;
                    let place = composite_of(&mut note)?.attributes.iter().position(|one| one.name == def.name.value);
                    let place = place.ok_or_else(|| no_attribute(&def.name, &own))?;
                    let number = composite_of(&mut note)?.attributes[place].number;
                    let made = self.attribute(def, number, Some((note.oid, &own)))?;
                    composite_of(&mut note)?.attributes[place] = made;
                }
            }
        }
        self.write_attributes(found, &note)
    }

    pub(super) fn rename_attribute(
        &mut self,
        found: &TypeDef,
        mut note: TypeNote,
        from: &Name,
        to: &Name,
    ) -> Outcome<()> {
        let own = note.name.clone();
        let composite = composite_of(&mut note)?;
        if composite.attributes.iter().any(|one| one.name == to.value) {
            let message = format!("column \"{}\" of relation \"{own}\" already exists", to.value);
            return Err(Error::new(SqlState::DUPLICATE_COLUMN, message).into());
        }
        let attribute = composite.attributes.iter_mut().find(|one| one.name == from.value);
        let missing = || {
            let message = format!("column \"{}\" does not exist", from.value);
            Error::new(SqlState::UNDEFINED_COLUMN, message)
        };
        attribute.ok_or_else(missing)?.name.clone_from(&to.value);
        self.write_attributes(found, &note)
    }

    /// Refuses another type of an attribute while a column of a table has values of the type.
    pub(super) fn refuse_used(&self, found: &TypeDef) -> Result<()> {
        for table in self.catalog.tables.values() {
            if let Some(column) = table.columns.iter().find(|column| uses(column.ty, found.note.oid)) {
                let (own, table) = (&found.note.name, &table.name);
                let message = format!("cannot alter type \"{own}\" because column \"{table}.{}\" uses it", column.name);
                return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
        }
        Ok(())
    }

    /// Writes a type with other attributes. Texts that could be read before, and cannot be read with them, need what
    /// was changed.
    fn write_attributes(&mut self, found: &TypeDef, note: &TypeNote) -> Outcome<()> {
        let before: Vec<String> = self.readable_views().collect();
        let needed = |what: &str| {
            let message = format!("cannot change the attributes of type {} because {what} depends on them", note.name);
            Error::new(SqlState::DEPENDENT_OBJECTS, message)
        };
        self.write_type(&found.full, note).map_err(|stop| match stop {
            crate::run::Stop::Error(error) if error.state() == SqlState::UNDEFINED_COLUMN => {
                needed("a condition or a column").detail(error.message().to_owned()).into()
            }
            other => other,
        })?;
        let after: BTreeSet<String> = self.readable_views().collect();
        match before.into_iter().find(|view| !after.contains(view)) {
            Some(view) => Err(needed(&format!("view {view}")).into()),
            None => Ok(()),
        }
    }

    /// The views whose queries fit the tables and types as they are.
    fn readable_views(&self) -> impl Iterator<Item = String> {
        let fits = |view: &&std::sync::Arc<crate::catalog::ViewDef>| {
            let within = self.catalog.with_path(view.path.clone());
            bind::bind(&within, Statement::Query(view.query.clone()), &[]).is_ok()
        };
        self.catalog.views.values().filter(fits).map(|view| view.full.clone())
    }
}
