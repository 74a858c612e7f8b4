//! Objects that get another name or another schema, and the texts that name them.
//!
//! A default, a condition and the query of a view are kept as texts, so what they name is written again. A text has
//! the names that there were when it was made: it is read with the catalog from before the change.

use super::names::Found;
use super::{Catalog, PUBLIC, TableDef, ViewDef};
use crate::catalog::store::{ConstraintBody, Note};
use crate::catalog::types::{TypeBody, TypeNote};
use crate::parse::names::{Kind, carried, of_table, replaced, written};
use crate::parse::walk;

/// The objects that get another name or another schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moved {
    /// Some objects: each with the schema and the name that it had, and those that it gets.
    Objects(Vec<(Kind, Found, Found)>),
    /// Everything in a schema, which gets another name.
    Schema(String, String),
}

impl Moved {
    /// The schema and the name that an object gets, if it is one of them.
    pub fn to(&self, kind: Kind, (schema, name): (&str, &str)) -> Option<Found> {
        match self {
            Self::Objects(objects) => {
                let is_it = |(own, from, _): &&(Kind, Found, Found)| *own == kind && from.0 == schema && from.1 == name;
                objects.iter().find(is_it).map(|(.., to)| to.clone())
            }
            Self::Schema(from, to) => (from == schema).then(|| (to.clone(), name.to_owned())),
        }
    }
}

impl Catalog {
    /// The text of an expression after the change.
    fn carried_text(&self, text: &str, moved: &Moved) -> String {
        // Texts of earlier versions have names without schemas, which are those of `public`.
        let path = [PUBLIC.to_owned()];
        replaced(text, &[], &|kind, schema, name| {
            let found = self.object(&path, kind, schema, name)?;
            moved.to(kind, (&found.0, &found.1)).map(|(schema, name)| written(Some(&schema), &name))
        })
    }

    /// Writes the texts of a table again. `false`: they stay as they are.
    pub fn carry_note(&self, note: &mut Note, table: &TableDef, moved: &Moved) -> bool {
        let before = note.clone();
        let own = moved.to(Kind::Relation, (&table.schema, &table.name)).filter(|(_, name)| *name != table.name);
        let is_column = table.column(&table.name).is_some();
        let carry = |text: &mut String, is_of_row: bool| {
            *text = self.carried_text(text, moved);
            if let (Some((_, name)), true) = (&own, is_of_row) {
                *text = of_table(text, (&table.name, name), is_column);
            }
        };
        for column in &mut note.columns {
            let is_of_row = column.is_generated;
            column.default.iter_mut().for_each(|text| carry(text, is_of_row));
        }
        for constraint in &mut note.constraints {
            if let ConstraintBody::Check { text, .. } = &mut constraint.body {
                carry(text, true);
            }
        }
        note.partition_by.iter_mut().flat_map(|key| &mut key.keys).for_each(|text| carry(text, true));
        let texts = |note: &Note| {
            let defaults = note.columns.iter().map(|column| column.default.clone());
            let checks = note.constraints.iter().map(|constraint| match &constraint.body {
                ConstraintBody::Check { text, .. } => Some(text.clone()),
                ConstraintBody::Foreign { .. } => None,
            });
            let keys = note.partition_by.iter().flat_map(|key| &key.keys).map(|text| Some(text.clone()));
            defaults.chain(checks).chain(keys).collect::<Vec<_>>()
        };
        texts(&before) != texts(&*note)
    }

    /// Writes the texts of a type again. `false`: they stay as they are.
    pub fn carry_type(&self, note: &mut TypeNote, moved: &Moved) -> bool {
        let TypeBody::Domain(domain) = &mut note.body else { return false };
        let mut is_changed = false;
        for text in domain.default.iter_mut().chain(domain.checks.iter_mut().map(|check| &mut check.text)) {
            let new = self.carried_text(text, moved);
            is_changed |= new != *text;
            *text = new;
        }
        is_changed
    }

    /// The view with its text after the change. `None`: it stays as it is.
    pub fn carried_view(&self, view: &ViewDef, moved: &Moved) -> Option<ViewDef> {
        // The places of names are those in the text, which the query may not be read from.
        let query = crate::parse::parse_query(&view.text).ok()?;
        let text = carried(&view.text, &walk::sources(&query), &|kind, schema, name| {
            let (old_schema, old_name) = self.object(&view.path, kind, schema, name)?;
            let (new_schema, new_name) = moved.to(kind, (&old_schema, &old_name))?;
            let is_plain = schema.is_none()
                && match moved {
                    Moved::Schema(..) => true,
                    // Another one of the new name may be found first, or a query of WITH.
                    Moved::Objects(_) => {
                        new_schema == old_schema
                            && !view.text.to_lowercase().contains(&new_name.to_lowercase())
                            && self.object(&view.path, kind, None, &new_name).is_none()
                    }
                };
            let new = written((!is_plain).then_some(new_schema.as_str()), &new_name);
            (new != written(schema, name)).then_some(new)
        });
        let path = match moved {
            Moved::Objects(_) => view.path.clone(),
            Moved::Schema(from, to) => {
                view.path.iter().map(|schema| if schema == from { to.clone() } else { schema.clone() }).collect()
            }
        };
        if text == view.text && path == view.path {
            return None;
        }
        let query = crate::parse::parse_query(&text).ok()?;
        Some(ViewDef { text, path, query, ..view.clone() })
    }
}
