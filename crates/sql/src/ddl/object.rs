//! Sequences, views and schemas.

use lodestone_sql_types::{Error, Result, SqlState, Type};

use super::{Definition, exists, notice};
use crate::bind;
use crate::catalog::store::{self, ColumnNote};
use crate::catalog::{SequenceDef, TableDef, ViewDef, full_name};
use crate::locks::Mode;
use crate::parse::ast::{Name, ObjectName, Query, SequenceOptions, Statement};
use crate::run::Outcome;

fn invalid(message: String) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// The limits of a sequence's type.
fn limits(ty: Type) -> (i64, i64) {
    ty.limits()
}

impl Definition<'_> {
    pub(super) fn create_sequence(
        &mut self,
        name: &ObjectName,
        if_not_exists: bool,
        options: &SequenceOptions,
    ) -> Outcome<()> {
        let schema = self.schema_of_new(name)?;
        let full = full_name(&schema, &name.name);
        self.lock_name(&full)?;
        if self.catalog.oid_of(&full).is_some() || store::is_own(&full) {
            if if_not_exists {
                self.notices.push(notice(format!("relation \"{}\" already exists, skipping", name.name)));
                return Ok(());
            }
            return Err(exists(&name.name).into());
        }
        let oids = store::take_oids(self.engine(), 2)?;
        let mut sequence = SequenceDef {
            oid: oids[0],
            schema,
            name: name.name.clone(),
            full: full.clone(),
            state: oids[1].into(),
            ty: Type::Int8,
            start: 1,
            increment: 1,
            minimum: 1,
            maximum: i64::MAX,
            cache: 1,
            is_cycle: false,
            owner: None,
            is_identity: false,
        };
        self.apply(&mut sequence, options, true)?;
        self.writer()?.write_sequence(&sequence)?;
        self.refresh(&[&full])?;
        Ok(())
    }

    /// Changes a sequence as the options say. `is_new`: what they do not say has its usual value.
    fn apply(&self, sequence: &mut SequenceDef, options: &SequenceOptions, is_new: bool) -> Result<()> {
        if let Some(ty) = &options.ty {
            let found = bind::user_type(&self.catalog, ty)?.ty;
            if !matches!(found, Type::Int2 | Type::Int4 | Type::Int8) {
                return Err(invalid("sequence type must be smallint, integer, or bigint".into()));
            }
            // Limits that were those of the old type become those of the new one.
            let (least, most) = limits(sequence.ty);
            if sequence.maximum == most {
                sequence.maximum = limits(found).1;
            }
            if sequence.minimum == least {
                sequence.minimum = limits(found).0;
            }
            sequence.ty = found;
        }
        let (least, most) = limits(sequence.ty);
        if let Some(increment) = options.increment {
            if increment == 0 {
                return Err(invalid("INCREMENT must not be zero".into()));
            }
            sequence.increment = increment;
        }
        let is_up = sequence.increment > 0;
        let usual = if is_up { (1, most) } else { (least, -1) };
        match options.maximum {
            Some(Some(maximum)) => sequence.maximum = maximum,
            Some(None) => sequence.maximum = usual.1,
            None if is_new => sequence.maximum = usual.1,
            None => {}
        }
        match options.minimum {
            Some(Some(minimum)) => sequence.minimum = minimum,
            Some(None) => sequence.minimum = usual.0,
            None if is_new => sequence.minimum = usual.0,
            None => {}
        }
        let SequenceDef { minimum, maximum, ty, .. } = *sequence;
        if maximum > most || maximum < least {
            return Err(invalid(format!("MAXVALUE ({maximum}) is out of range for sequence data type {ty}")));
        }
        if minimum < least || minimum > most {
            return Err(invalid(format!("MINVALUE ({minimum}) is out of range for sequence data type {ty}")));
        }
        if minimum >= maximum {
            return Err(invalid(format!("MINVALUE ({minimum}) must be less than MAXVALUE ({maximum})")));
        }
        match options.start {
            Some(start) => sequence.start = start,
            None if is_new => sequence.start = if is_up { minimum } else { maximum },
            None => {}
        }
        if sequence.start < minimum {
            let start = sequence.start;
            return Err(invalid(format!("START value ({start}) cannot be less than MINVALUE ({minimum})")));
        }
        if sequence.start > maximum {
            let start = sequence.start;
            return Err(invalid(format!("START value ({start}) cannot be greater than MAXVALUE ({maximum})")));
        }
        if let Some(cache) = options.cache {
            if cache <= 0 {
                return Err(invalid(format!("CACHE ({cache}) must be greater than zero")));
            }
            sequence.cache = cache;
        }
        if let Some(is_cycle) = options.is_cycle {
            sequence.is_cycle = is_cycle;
        }
        match &options.owner {
            None => {}
            Some(None) => sequence.owner = None,
            Some(Some((table, column))) => {
                let found = self.catalog.table(table).ok_or_else(|| super::no_relation(table))?;
                if found.column(column).is_none() {
                    let message = format!("column \"{column}\" of relation \"{}\" does not exist", found.name);
                    return Err(Error::new(SqlState::UNDEFINED_COLUMN, message));
                }
                sequence.owner = Some((found.full.clone(), column.clone()));
            }
        }
        Ok(())
    }

    pub(super) fn alter_sequence(
        &mut self,
        name: &ObjectName,
        if_exists: bool,
        options: &SequenceOptions,
    ) -> Outcome<()> {
        let full = self.catalog.resolve(name.schema.as_deref(), &name.name).unwrap_or_default();
        if !full.is_empty() {
            self.lock_name(&full)?;
        }
        let Some(found) = self.catalog.sequences.get(&full).cloned() else {
            if if_exists {
                self.notices.push(notice(format!("relation \"{}\" does not exist, skipping", name.name)));
                return Ok(());
            }
            return Err(super::no_relation(name).into());
        };
        let mut sequence = (*found).clone();
        self.apply(&mut sequence, options, false)?;
        if let Some(restart) = options.restart {
            // Another state, which begins there.
            let start = restart.unwrap_or(sequence.start);
            if start < sequence.minimum || start > sequence.maximum {
                let (what, limit) = if start < sequence.minimum {
                    ("less than MINVALUE", sequence.minimum)
                } else {
                    ("greater than MAXVALUE", sequence.maximum)
                };
                return Err(invalid(format!("RESTART value ({start}) cannot be {what} ({limit})")).into());
            }
            sequence.state = store::take_oids(self.engine(), 1)?[0].into();
            crate::sequence::begin(self.engine(), sequence.state, start)?;
        }
        self.writer()?.write_sequence(&sequence)?;
        self.refresh(&[&full])?;
        Ok(())
    }

    /// A sequence for a column of a table, and the default that takes its numbers.
    pub(super) fn make_owned_sequence(
        &mut self,
        (schema, table): (&str, &str),
        column: &ColumnNote,
        options: &SequenceOptions,
    ) -> Outcome<String> {
        if !matches!(column.ty, Type::Int2 | Type::Int4 | Type::Int8) {
            let message = "identity column type must be smallint, integer, or bigint";
            return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message).into());
        }
        let name = match &options.name {
            Some(name) if name.schema.as_deref().is_some_and(|other| other != schema) => {
                let message = "sequence must be in same schema as table it is linked to";
                return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).at(name.at).into());
            }
            Some(name) => name.name.clone(),
            None => self.free_name(schema, format!("{table}_{}_seq", column.name)),
        };
        let oids = store::take_oids(self.engine(), 2)?;
        let full = full_name(schema, &name);
        self.lock_name(&full)?;
        if self.catalog.oid_of(&full).is_some() || store::is_own(&full) {
            return Err(exists(&name).into());
        }
        let mut sequence = SequenceDef {
            oid: oids[0],
            schema: schema.to_owned(),
            name: name.clone(),
            full: full.clone(),
            state: oids[1].into(),
            ty: column.ty,
            start: 1,
            increment: 1,
            minimum: 1,
            maximum: limits(column.ty).1,
            cache: 1,
            is_cycle: false,
            owner: Some((full_name(schema, table), column.name.clone())),
            is_identity: column.identity.is_some(),
        };
        self.apply(&mut sequence, &SequenceOptions { owner: None, ..options.clone() }, true)?;
        self.writer()?.write_sequence(&sequence)?;
        self.refresh(&[&full])?;
        let shown = crate::parse::names::written(Some(schema), &name);
        Ok(format!("nextval('{}'::regclass)", shown.replace('\'', "''")))
    }

    /// The sequences that a table, or one of its columns, owns.
    pub(super) fn owned_by(&self, table: &str, column: Option<&str>) -> Vec<SequenceDef> {
        let is_it = |sequence: &&std::sync::Arc<SequenceDef>| {
            sequence
                .owner
                .as_ref()
                .is_some_and(|(owner, other)| owner == table && column.is_none_or(|column| column == other))
        };
        self.catalog.sequences.values().filter(is_it).map(|sequence| (**sequence).clone()).collect()
    }

    /// Drops the sequences that a table, or one of its columns, owned.
    pub(super) fn drop_owned(&mut self, table: &str, column: Option<&str>) -> Outcome<()> {
        for sequence in self.owned_by(table, column) {
            self.writer()?.remove(&sequence.full)?;
            self.refresh(&[&sequence.full])?;
        }
        Ok(())
    }

    pub(super) fn create_schema(&mut self, name: &Name, if_not_exists: bool) -> Outcome<()> {
        self.lock_name(&super::schema_key(&name.value))?;
        let is_system = matches!(name.value.as_str(), "pg_catalog" | "information_schema");
        if if_not_exists && (self.catalog.has_schema(&name.value) || is_system) {
            self.notices.push(notice(format!("schema \"{}\" already exists, skipping", name.value)));
            return Ok(());
        }
        self.refuse_schema_name(name)?;
        let oid = store::take_oids(self.engine(), 1)?[0];
        self.writer()?.write_schema(&name.value, oid)?;
        self.refresh(&[])?;
        Ok(())
    }

    /// Refuses the name of a new schema that is taken, or that none can have.
    pub(super) fn refuse_schema_name(&self, name: &Name) -> Result<()> {
        let is_system = matches!(name.value.as_str(), "pg_catalog" | "information_schema");
        if self.catalog.has_schema(&name.value) || is_system {
            let message = format!("schema \"{}\" already exists", name.value);
            return Err(Error::new(SqlState::DUPLICATE_SCHEMA, message));
        }
        if name.value.starts_with("pg_") {
            let message = format!("unacceptable schema name \"{}\"", name.value);
            return Err(Error::new(SqlState::RESERVED_NAME, message)
                .detail("The prefix \"pg_\" is reserved for system schemas."));
        }
        if name.value.contains('.') {
            return Err(Error::unsupported("a point in the name of a schema").at(name.at));
        }
        Ok(())
    }

    /// The objects that are written in CREATE SCHEMA: names without a schema mean the new one.
    pub(super) fn create_elements(&mut self, schema: &str, elements: &[Statement]) -> Outcome<()> {
        if elements.is_empty() {
            return Ok(());
        }
        let path = self.catalog.path.clone();
        let inside = [schema.to_owned()].into_iter().chain(path.iter().cloned()).collect();
        self.catalog = std::sync::Arc::new(self.catalog.with_path(inside));
        self.session.catalog = self.catalog.clone();
        // They are parts of one statement.
        let is_alone = std::mem::take(&mut self.is_alone);
        let outcome = elements.iter().try_for_each(|element| {
            let own = match element {
                Statement::CreateTable { name, .. }
                | Statement::CreateView { name, .. }
                | Statement::CreateSequence { name, .. }
                | Statement::CreateIndex { table: name, .. } => name,
                _ => return Err(Error::unsupported("this statement in CREATE SCHEMA").into()),
            };
            if own.schema.as_deref().is_some_and(|other| other != schema) {
                let message = format!(
                    "CREATE specifies a schema ({}) different from the one being created ({schema})",
                    own.schema.as_deref().unwrap_or_default()
                );
                return Err(Error::new(SqlState::INVALID_SCHEMA_DEFINITION, message).into());
            }
            self.define(element)
        });
        self.is_alone = is_alone;
        self.catalog = std::sync::Arc::new(self.catalog.with_path(path));
        self.session.catalog = self.catalog.clone();
        outcome
    }

    pub(super) fn create_view(
        &mut self,
        name: &ObjectName,
        columns: &[Name],
        (or_replace, options): (bool, &[(String, String)]),
        (query, text): (&Query, &str),
    ) -> Outcome<()> {
        let schema = self.schema_of_new(name)?;
        let full = full_name(&schema, &name.name);
        self.lock_name(&full)?;
        self.lock_relations_of(query)?;
        let before = self.catalog.views.get(&full).cloned();
        if (before.is_none() || !or_replace) && (self.catalog.oid_of(&full).is_some() || store::is_own(&full)) {
            if before.is_none() && or_replace {
                let message = format!("\"{}\" is not a view", name.name);
                return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message).into());
            }
            return Err(exists(&name.name).into());
        }
        let plan = bind::bind(&self.catalog, Statement::Query(query.clone()), &[])?;
        if !plan.parameters.is_empty() {
            return Err(Error::new(SqlState::UNDEFINED_PARAMETER, "there is no parameter $1").into());
        }
        if columns.len() > plan.columns.len() {
            let message = "CREATE VIEW specifies more column names than columns";
            return Err(Error::new(SqlState::SYNTAX_ERROR, message).into());
        }
        let mut shown: Vec<(String, Type, i32)> =
            plan.columns.iter().map(|column| (column.name.clone(), column.ty, column.modifier)).collect();
        for (column, name) in shown.iter_mut().zip(columns) {
            column.0.clone_from(&name.value);
        }
        for (place, (column, ..)) in shown.iter().enumerate() {
            if shown[..place].iter().any(|(other, ..)| other == column) {
                let message = format!("column \"{column}\" specified more than once");
                return Err(Error::new(SqlState::DUPLICATE_COLUMN, message).into());
            }
        }
        for (column, ty, _) in &shown {
            let single = ty.element().unwrap_or(*ty);
            if single.is_row() && crate::catalog::value::kind_of(*ty, -1).is_none() {
                return Err(super::table::no_kind(column, *ty).into());
            }
        }
        if let Some(before) = &before {
            refuse_other_columns(before, &shown)?;
        }
        let oid = match &before {
            Some(before) => before.oid,
            None => store::take_oids(self.engine(), 1)?[0],
        };
        let view = ViewDef {
            oid,
            schema,
            name: name.name.clone(),
            full: full.clone(),
            columns: shown,
            text: bind::stars::written_out(&self.catalog, text).unwrap_or_else(|| text.to_owned()),
            query: query.clone(),
            path: self.catalog.path.clone(),
            options: options.to_vec(),
        };
        if view.check_option().is_some() {
            bind::view::refuse_check_option(&self.catalog, &view)?;
        }
        self.writer()?.write_view(&view)?;
        self.refresh(&[&full])?;
        Ok(())
    }

    /// Takes the locks of the relations that a view names: none of them goes, or changes, while it is made.
    fn lock_relations_of(&mut self, query: &Query) -> Outcome<()> {
        let mut names = Vec::new();
        crate::parse::walk::tables(query, &mut names);
        for name in names {
            if let Some(full) = self.catalog.resolve(name.schema.as_deref(), &name.name) {
                self.lock_name_in(&full, Mode::KeyShareRow)?;
            }
        }
        Ok(())
    }

    /// The views that name a relation.
    pub(super) fn views_of(&self, full: &str) -> Vec<std::sync::Arc<ViewDef>> {
        let names_it = |view: &&std::sync::Arc<ViewDef>| {
            let catalog = self.catalog.with_path(view.path.clone());
            let mut names = Vec::new();
            crate::parse::walk::tables(&view.query, &mut names);
            names
                .iter()
                .any(|name: &ObjectName| catalog.resolve(name.schema.as_deref(), &name.name).as_deref() == Some(full))
        };
        self.catalog.views.values().filter(names_it).cloned().collect()
    }

    /// Refuses a change of a table that views name: they are kept as texts.
    pub(super) fn refuse_views_of(&self, full: &str, what: &str) -> Result<()> {
        match self.views_of(full).first() {
            None => Ok(()),
            Some(view) => Err(Error::unsupported(format!("{what} of a table that a view names"))
                .detail(format!("The view is \"{}\".", view.name))
                .hint("Drop the view, and make it again afterwards.")),
        }
    }

    /// Drops the views that name a relation, or refuses that.
    pub(super) fn drop_views_of(&mut self, full: &str, what: &str, is_cascade: bool) -> Outcome<()> {
        let views = self.views_of(full);
        if let Some(view) = views.first().filter(|_| !is_cascade) {
            let message = format!("cannot drop {what} because other objects depend on it");
            return Err(Error::new(SqlState::DEPENDENT_OBJECTS, message)
                .detail(format!("view {} depends on {what}", view.name))
                .hint("Use DROP ... CASCADE to drop the dependent objects too.")
                .into());
        }
        for view in views {
            self.lock_name(&view.full)?;
            // Views can name each other in a circle.
            if !self.catalog.views.contains_key(&view.full) {
                continue;
            }
            self.notices.push(notice(format!("drop cascades to view {}", view.name)));
            self.drop_view(&view.full)?;
        }
        Ok(())
    }

    /// Drops a view, whose lock is held, and those that name it.
    pub(super) fn drop_view(&mut self, full: &str) -> Outcome<()> {
        // A name of a view that is gone means nothing, so they are found before. It goes before them, because views can
        // name each other in a circle.
        let above = self.views_of(full);
        self.writer()?.remove(full)?;
        self.refresh(&[full])?;
        for view in above {
            self.lock_name(&view.full)?;
            if self.catalog.views.contains_key(&view.full) {
                self.notices.push(notice(format!("drop cascades to view {}", view.name)));
                self.drop_view(&view.full)?;
            }
        }
        Ok(())
    }

    /// The tables of a schema, and its other relations.
    pub(super) fn tables_of(&self, schema: &str) -> Vec<std::sync::Arc<TableDef>> {
        self.catalog.tables.values().filter(|table| table.schema == schema).cloned().collect()
    }
}

/// A view that is replaced keeps its columns.
fn refuse_other_columns(before: &ViewDef, shown: &[(String, Type, i32)]) -> Result<()> {
    let wrong = |message: String| Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, message));
    if shown.len() < before.columns.len() {
        return wrong("cannot drop columns from view".into());
    }
    for ((old, old_ty, old_modifier), (new, ty, modifier)) in before.columns.iter().zip(shown) {
        if old != new {
            return wrong(format!("cannot change name of view column \"{old}\" to \"{new}\""));
        }
        if (old_ty, old_modifier) != (ty, modifier) {
            let (from, to) = (old_ty.with_modifier(*old_modifier), ty.with_modifier(*modifier));
            return wrong(format!("cannot change data type of view column \"{old}\" from {from} to {to}"));
        }
    }
    Ok(())
}
