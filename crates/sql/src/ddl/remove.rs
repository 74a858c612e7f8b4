//! DROP, and the objects that depend on others.

use lodestone_sql_types::{Error, SqlState};

use super::{Definition, notice};
use crate::catalog::{TableDef, full_name, store};
use crate::errors::from_engine;
use crate::locks::Mode;
use crate::parse::ast::{ObjectKind, ObjectName};
use crate::run::Outcome;

fn word(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Table => "table",
        ObjectKind::Index => "index",
        ObjectKind::View => "view",
        ObjectKind::Sequence => "sequence",
        ObjectKind::Schema => "schema",
        ObjectKind::Type | ObjectKind::Domain => "type",
    }
}

impl Definition<'_> {
    pub(super) fn drop_all(
        &mut self,
        kind: ObjectKind,
        names: &[ObjectName],
        if_exists: bool,
        is_cascade: bool,
    ) -> Outcome<()> {
        let count = self.notices.len();
        // All of them are there before one of them goes.
        let mut found = self.find_all(kind, names, if_exists)?;
        loop {
            found.iter().try_for_each(|full| self.lock_object(kind, full))?;
            // One may have gone before its lock was taken, and more may depend on it.
            self.follow()?;
            self.notices.truncate(count);
            let again = self.find_all(kind, names, if_exists)?;
            if again == found {
                break;
            }
            found = again;
        }
        match kind {
            ObjectKind::Table => self.drop_tables(&found, is_cascade),
            ObjectKind::Index => found.iter().try_for_each(|full| self.drop_index(full)),
            ObjectKind::View => {
                for full in &found {
                    let Some(view) = self.catalog.views.get(full).cloned() else { continue };
                    let others: Vec<_> =
                        self.views_of(full).into_iter().filter(|view| !found.contains(&view.full)).collect();
                    if !others.is_empty() {
                        self.drop_views_of(full, &format!("view {}", view.name), is_cascade)?;
                    }
                    self.writer()?.remove(full)?;
                    self.refresh(&[full])?;
                }
                Ok(())
            }
            ObjectKind::Sequence => found.iter().try_for_each(|full| self.drop_sequence(full, is_cascade)),
            ObjectKind::Schema => found.iter().try_for_each(|name| self.drop_schema(name, is_cascade)),
            ObjectKind::Type | ObjectKind::Domain => found.iter().try_for_each(|full| self.drop_type(full, is_cascade)),
        }
    }

    fn find_all(&mut self, kind: ObjectKind, names: &[ObjectName], if_exists: bool) -> Outcome<Vec<String>> {
        let mut found = Vec::new();
        for name in names {
            found.extend(self.find_of(kind, name, if_exists)?);
        }
        Ok(found)
    }

    pub(super) fn lock_object(&mut self, kind: ObjectKind, full: &str) -> Outcome<()> {
        match kind {
            ObjectKind::Schema => self.lock_name(&super::schema_key(full))?,
            ObjectKind::Type | ObjectKind::Domain => self.lock_name(&store::type_key(full))?,
            _ => self.lock_name(full)?,
        }
        match self.catalog.tables.get(full) {
            Some(table) if kind == ObjectKind::Table => self.lock_table(table.oid, Mode::AccessExclusive),
            _ => Ok(()),
        }
    }

    /// The name in the engine of an object that is to change or to go.
    pub(super) fn find_of(&mut self, kind: ObjectKind, name: &ObjectName, if_exists: bool) -> Outcome<Option<String>> {
        let schema = name.schema.as_deref();
        if matches!(schema, Some("pg_catalog" | "information_schema")) {
            let message = format!("permission denied for schema {}", schema.unwrap_or_default());
            return Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, message).at(name.at).into());
        }
        let full = match kind {
            ObjectKind::Schema => self.catalog.has_schema(&name.name).then(|| name.name.clone()),
            ObjectKind::Type | ObjectKind::Domain => self.catalog.type_def(name).map(|found| found.full.clone()),
            _ => self.catalog.resolve(schema, &name.name),
        };
        let is_kind = |full: &String| match kind {
            ObjectKind::Table => self.catalog.tables.contains_key(full),
            ObjectKind::View => self.catalog.views.contains_key(full),
            ObjectKind::Sequence => self.catalog.sequences.contains_key(full),
            ObjectKind::Index => self.catalog.index_of(full).is_some(),
            ObjectKind::Domain => self.catalog.types.get(full).is_some_and(|found| found.ty.domain.is_some()),
            ObjectKind::Schema | ObjectKind::Type => true,
        };
        if let Some(full) = &full
            && !is_kind(full)
        {
            let article = if kind == ObjectKind::Index { "an" } else { "a" };
            let kind = if kind == ObjectKind::Domain { "domain" } else { word(kind) };
            let message = format!("\"{}\" is not {article} {kind}", name.name);
            return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message).at(name.at).into());
        }
        if let Some(full) = full {
            return Ok(Some(full));
        }
        if let Some(schema) = schema.filter(|schema| !self.catalog.has_schema(schema)) {
            let message = format!("schema \"{schema}\" does not exist");
            if if_exists {
                self.notices.push(notice(format!("{message}, skipping")));
                return Ok(None);
            }
            return Err(Error::new(SqlState::INVALID_SCHEMA_NAME, message).at(name.at).into());
        }
        let message = format!("{} \"{}\" does not exist", word(kind), name.name);
        if if_exists {
            self.notices.push(notice(format!("{message}, skipping")));
            return Ok(None);
        }
        let state = match kind {
            ObjectKind::Table | ObjectKind::View | ObjectKind::Sequence => SqlState::UNDEFINED_TABLE,
            ObjectKind::Schema => SqlState::INVALID_SCHEMA_NAME,
            ObjectKind::Index | ObjectKind::Type | ObjectKind::Domain => SqlState::UNDEFINED_OBJECT,
        };
        Err(Error::new(state, message).at(name.at).into())
    }

    fn drop_tables(&mut self, names: &[String], is_cascade: bool) -> Outcome<()> {
        let mut tables: Vec<_> = names.iter().filter_map(|full| self.catalog.tables.get(full).cloned()).collect();
        // Partitions go with their table.
        for table in tables.clone() {
            if table.partition_by.is_some() {
                tables.extend(self.catalog.heirs_of(&table).into_iter().map(|(heir, _)| heir));
            }
        }
        for table in &tables {
            // It may have gone with one above it.
            if self.catalog.table_of(table.oid).is_none() {
                continue;
            }
            self.drop_table(table, &tables, is_cascade)?;
        }
        Ok(())
    }

    /// Drops a table. Foreign keys of `others` go with it.
    pub(super) fn drop_table(
        &mut self,
        table: &TableDef,
        others: &[std::sync::Arc<TableDef>],
        is_cascade: bool,
    ) -> Outcome<()> {
        self.drop_keys_above(table, others, is_cascade)?;
        self.drop_heirs(table, others, is_cascade)?;
        self.drop_views_of(&table.full, &format!("table {}", table.name), is_cascade)?;
        let children = self.catalog.children.get(&table.oid).cloned().unwrap_or_default();
        let is_foreign = |child: &TableDef| !others.iter().any(|other| other.oid == child.oid);
        if children.iter().any(|(child, _)| is_foreign(child)) {
            let what = format!("table {}", table.name);
            self.drop_children(table, None, (&what, &what), is_cascade)?;
        }
        // Those of the others that go later name a table that is gone: they go first.
        for (child, number) in children.iter().filter(|(child, _)| child.oid != table.oid && !is_foreign(child)) {
            let Some(now) = self.catalog.tables.get(&child.full).cloned() else { continue };
            let oid = child.foreign_keys[*number].oid;
            let mut note = super::note_of(&now);
            note.constraints.retain(|constraint| constraint.oid != oid);
            self.write_note(&now, &note)?;
        }
        self.engine().drop_table_in(self.tx, &table.full).map_err(from_engine)?;
        self.writer()?.remove(&table.full)?;
        self.refresh(&[&table.full])?;
        self.drop_owned(&table.full, None)
    }

    fn drop_index(&mut self, full: &str) -> Outcome<()> {
        let Some((table, index)) = self.catalog.index_of(full) else { return Ok(()) };
        let (table, name) = (table.clone(), index.map_or_else(|| table.key_name.clone(), |index| index.name.clone()));
        if index.is_none_or(|index| index.is_constraint) {
            let message =
                format!("cannot drop index {name} because constraint {name} on table {} requires it", table.name);
            return Err(Error::new(SqlState::DEPENDENT_OBJECTS, message)
                .hint(format!("You can drop constraint {name} on table {} instead.", table.name))
                .into());
        }
        let own = table.indexes.iter().find(|index| index.name == name);
        if let Some(parent) = own.and_then(|index| index.parent)
            && let Some(above) = self.catalog.relation(parent.into()).map(|above| above.name().to_owned())
        {
            let message = format!("cannot drop index {name} because index {above} requires it");
            return Err(Error::new(SqlState::DEPENDENT_OBJECTS, message)
                .hint(format!("You can drop index {above} instead."))
                .into());
        }
        if let Some(oid) = own.map(|index| index.oid) {
            self.drop_index_below(&table, oid)?;
        }
        let engine = self.engine().drop_index_in(self.tx, &table.full, &name).map_err(from_engine)?;
        let mut note = super::note_of(&table);
        note.indexes.retain(|index| index.name != name);
        self.writer()?.write(&table.full, engine.schema(), &note)?;
        self.refresh(&[&table.full])?;
        Ok(())
    }

    fn drop_sequence(&mut self, full: &str, is_cascade: bool) -> Outcome<()> {
        let Some(sequence) = self.catalog.sequences.get(full).cloned() else { return Ok(()) };
        if let Some((table, column)) = &sequence.owner
            && let Some(table) = self.catalog.tables.get(table).cloned()
            && let Some(place) = table.column(column)
        {
            if sequence.is_identity {
                let message = format!(
                    "cannot drop sequence {} because column {column} of table {} requires it",
                    sequence.name, table.name
                );
                return Err(Error::new(SqlState::DEPENDENT_OBJECTS, message)
                    .hint(format!("You can drop column {column} of table {} instead.", table.name))
                    .into());
            }
            let text = table.columns[place].default.as_ref().map(|default| default.text.clone()).unwrap_or_default();
            if text.starts_with("nextval(") {
                let what = format!("default value for column {column} of table {}", table.name);
                if !is_cascade {
                    let message = format!("cannot drop sequence {} because other objects depend on it", sequence.name);
                    return Err(Error::new(SqlState::DEPENDENT_OBJECTS, message)
                        .detail(format!("{what} depends on sequence {}", sequence.name))
                        .hint("Use DROP ... CASCADE to drop the dependent objects too.")
                        .into());
                }
                self.notices.push(notice(format!("drop cascades to {what}")));
                let mut note = super::note_of(&table);
                note.columns[place].default = None;
                self.write_note(&table, &note)?;
            }
        }
        self.writer()?.remove(full)?;
        self.refresh(&[full])?;
        Ok(())
    }

    fn drop_schema(&mut self, name: &str, is_cascade: bool) -> Outcome<()> {
        let Some(oid) = self.catalog.schemas.get(name).copied() else {
            return Err(Error::unsupported("DROP of the schema public").into());
        };
        let tables = self.tables_of(name);
        let views: Vec<_> = self.catalog.views.values().filter(|view| view.schema == name).cloned().collect();
        let sequences: Vec<_> = self.catalog.sequences.values().filter(|other| other.schema == name).cloned().collect();
        let mut inside: Vec<String> = tables.iter().map(|table| format!("table {}.{}", name, table.name)).collect();
        inside.extend(views.iter().map(|view| format!("view {}.{}", name, view.name)));
        inside.extend(
            sequences
                .iter()
                .filter(|sequence| sequence.owner.is_none())
                .map(|sequence| format!("sequence {}.{}", name, sequence.name)),
        );
        let types: Vec<_> = self.catalog.types.values().filter(|other| other.note.schema == name).cloned().collect();
        inside.extend(types.iter().map(|other| format!("type {}.{}", name, other.note.name)));
        if !inside.is_empty() {
            if !is_cascade {
                let message = format!("cannot drop schema {name} because other objects depend on it");
                let details: Vec<String> =
                    inside.iter().map(|what| format!("{what} depends on schema {name}")).collect();
                return Err(Error::new(SqlState::DEPENDENT_OBJECTS, message)
                    .detail(details.join("\n"))
                    .hint("Use DROP ... CASCADE to drop the dependent objects too.")
                    .into());
            }
            self.notices.extend(inside.iter().map(|what| notice(format!("drop cascades to {what}"))));
        }
        let count = self.notices.len();
        for view in &views {
            self.lock_object(ObjectKind::View, &view.full)?;
            if self.catalog.views.contains_key(&view.full) {
                self.drop_view(&view.full)?;
            }
        }
        for table in &tables {
            self.lock_object(ObjectKind::Table, &table.full)?;
            if let Some(now) = self.catalog.tables.get(&table.full).cloned() {
                self.drop_table(&now, &tables, true)?;
            }
        }
        for sequence in &sequences {
            if self.catalog.sequences.contains_key(&full_name(name, &sequence.name)) {
                self.writer()?.remove(&sequence.full)?;
                self.refresh(&[&sequence.full])?;
            }
        }
        types.iter().try_for_each(|found| self.drop_type(&found.full, true))?;
        self.notices.truncate(count);
        self.writer()?.remove_schema(oid)?;
        self.refresh(&[])?;
        Ok(())
    }
}
