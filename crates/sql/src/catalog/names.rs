//! Names in texts that are kept. A default or a condition is kept with the schemas of its names, so it means the same
//! whatever the search path is. It is shown without those that the search path of the session finds.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use lodestone_sql_types::Type;
use lodestone_sql_types::func::quote_ident;

use super::types::Types;
use super::{Catalog, ViewDef};
use crate::parse::ast::{Body, Expr, Item, NOWHERE, ObjectName, Position};
use crate::parse::names::{Kind, Label, labelled, replaced, unwrapped, written};
use crate::parse::walk;

/// The schema and the name of an object that was found.
pub type Found = (String, String);

impl Catalog {
    /// A catalog with nothing but types.
    pub fn of_types(types: &Types) -> Self {
        let schemas: BTreeMap<String, u32> = types.values().map(|found| (found.note.schema.clone(), 0)).collect();
        Self { types: types.clone(), schemas, ..Self::default() }
    }

    /// The schema and the name of an object, where a name without a schema is looked up in `path`.
    pub(super) fn object(&self, path: &[String], kind: Kind, schema: Option<&str>, name: &str) -> Option<Found> {
        let is_system = schema.is_none_or(|schema| schema == "pg_catalog");
        if kind == Kind::Type && is_system && Type::named(name).is_some() {
            return None;
        }
        let Some(schema) = schema else {
            return path.iter().find_map(|schema| self.object(path, kind, Some(schema), name));
        };
        let object = ObjectName { schema: Some(schema.to_owned()), name: name.to_owned(), at: NOWHERE, is_only: false };
        if kind == Kind::Type {
            let found = self.type_def(&object).map(|found| (found.note.schema.clone(), found.note.name.clone()));
            // The type of the rows of a table.
            return found.or_else(|| self.table(&object).map(|table| (table.schema.clone(), table.name.clone())));
        }
        self.resolve(Some(schema), name)?;
        Some((self.own_schema(schema).to_owned(), name.to_owned()))
    }

    /// The text of an expression with the schema of each name.
    pub fn qualified(&self, text: &str) -> String {
        replaced(text, &[], &|kind, schema, name| match schema {
            Some(_) => None,
            None => self.object(&self.path, kind, None, name).map(|(schema, name)| written(Some(&schema), &name)),
        })
    }

    /// The text of an expression as a session with this catalog has it: with the schemas that it needs.
    pub fn shown_text(&self, text: &str) -> String {
        // Texts of earlier versions have names without schemas, which are those of `public`.
        let path = [super::PUBLIC.to_owned()];
        replaced(text, &[], &|kind, schema, name| {
            let (schema, name) = self.object(&path, kind, schema, name)?;
            Some(self.shown_name(kind, &schema, &name))
        })
    }

    /// The text of a default, in parentheses if DEFAULT needs them.
    pub fn shown_default(&self, default: &super::Default) -> String {
        let text = self.shown_text(&default.text);
        match default.expr {
            Expr::And(..)
            | Expr::Or(..)
            | Expr::Not(_)
            | Expr::IsNull { .. }
            | Expr::IsTruth { .. }
            | Expr::IsDistinct { .. }
            | Expr::InList { .. }
            | Expr::Between { .. }
            | Expr::Like { .. }
            | Expr::Quantified { .. } => format!("({})", unwrapped(&text)),
            _ => text,
        }
    }

    /// The numbers of the relations that an expression names in quotes: the sequences of a default.
    pub fn relations_of_text(&self, text: &str) -> Vec<u32> {
        self.relations_in_quotes(text, &[super::PUBLIC.to_owned()])
    }

    /// The numbers of the relations that a text names in quotes, where names without a schema are looked up in `path`.
    pub fn relations_in_quotes(&self, text: &str, path: &[String]) -> Vec<u32> {
        let found = RefCell::new(Vec::new());
        replaced(text, &[], &|kind, schema, name| {
            let (schema, name) = self.object(path, kind, schema, name).filter(|_| kind == Kind::Relation)?;
            found.borrow_mut().extend(self.oid_of(&super::full_name(&schema, &name)));
            None
        });
        found.into_inner()
    }

    /// The numbers of the relations that a view names.
    pub fn relations_of_view(&self, view: &ViewDef) -> Vec<u32> {
        let mut names = Vec::new();
        walk::tables(&view.query, &mut names);
        let oid = |name: &ObjectName| {
            let (schema, name) = self.object(&view.path, Kind::Relation, name.schema.as_deref(), &name.name)?;
            self.oid_of(&super::full_name(&schema, &name))
        };
        let found: BTreeSet<u32> = names.iter().filter_map(oid).collect();
        found.into_iter().collect()
    }

    /// The text of a view as a session with this catalog has it, with the names of its columns.
    pub fn shown_view(&self, view: &ViewDef) -> String {
        let text = self.names_of_view(view);
        let Ok(query) = crate::parse::parse_query(&text) else { return text };
        let mut numbers = 1..;
        let is_numbered = |(name, ..): &(String, Type, i32)| {
            numbers.next().is_some_and(|number: u32| *name == format!("column{number}"))
        };
        if matches!(query.body, Body::Values(_)) && view.columns.iter().all(is_numbered) {
            return text;
        }
        match labels(&query.body, &view.columns) {
            Some(labels) if labels.iter().all(|label| *label == Label::Same) => text,
            Some(labels) => labelled(&text, &labels).unwrap_or_else(|| beside(&text, view)),
            None => beside(&text, view),
        }
    }

    fn names_of_view(&self, view: &ViewDef) -> String {
        // The places of names are those in the text, which the query may not be read from.
        let Ok(query) = crate::parse::parse_query(&view.text) else { return view.text.clone() };
        let mut names = Vec::new();
        walk::tables(&query, &mut names);
        let relations: Vec<Position> = names.iter().map(|name| name.at).collect();
        replaced(&view.text, &relations, &|kind, schema, name| {
            let (schema, name) = self.object(&view.path, kind, schema, name)?;
            Some(self.shown_name(kind, &schema, &name))
        })
    }

    /// The name of an object: with its schema if it is not found without.
    fn shown_name(&self, kind: Kind, schema: &str, name: &str) -> String {
        let found = self.object(&self.path, kind, None, name);
        let is_visible = found.is_some_and(|(other, plain)| other == schema && plain == name);
        written((!is_visible).then_some(schema), name)
    }
}

/// The labels that the columns of a query need. `None`: its first part is no SELECT.
fn labels(body: &Body, columns: &[(String, Type, i32)]) -> Option<Vec<Label>> {
    let select = match body {
        Body::Select(select) => select,
        Body::Set { left, .. } => return labels(left, columns),
        Body::Values(_) | Body::Query(_) => return None,
    };
    if select.items.len() != columns.len() {
        return None;
    }
    let label = |(item, (name, ..)): (&Item, &(String, Type, i32))| match item {
        Item::Expr(_, Some(alias)) if alias == name => Some(Label::Same),
        Item::Expr(_, Some(_)) => Some(Label::Other(name.clone())),
        Item::Expr(Expr::Column(names, _), None) if names.last() == Some(name) => Some(Label::Same),
        Item::Expr(..) => Some(Label::Added(name.clone())),
        _ => None,
    };
    select.items.iter().zip(columns).map(label).collect()
}

/// A query whose columns are those of another one, with the names that the view has for them.
fn beside(text: &str, view: &ViewDef) -> String {
    let columns: Vec<String> = view.columns.iter().map(|(name, ..)| quote_ident(name)).collect();
    format!("SELECT * FROM ({text}) AS {}({})", quote_ident(&view.name), columns.join(", "))
}
