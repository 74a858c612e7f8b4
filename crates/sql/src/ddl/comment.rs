//! COMMENT ON, and the comments of objects that are renamed or go.

use std::sync::Arc;

use lodestone_sql_types::{Error, Result, SqlState};

use super::{Definition, no_relation};
use crate::catalog::comment::{CONSTRAINT, Object, PUBLIC_OID, RELATION, SCHEMA, TYPE, Texts};
use crate::catalog::{PUBLIC, TableDef, store};
use crate::parse::ast::{Comment, CommentTarget, Like, Name, ObjectKind, ObjectName};
use crate::run::Outcome;

impl Definition<'_> {
    /// Sets, changes or removes a comment.
    ///
    /// # Errors
    /// 42P01, 42703, 42704, 42809, 3F000: there is no such object.
    pub(super) fn comment(&mut self, comment: &Comment) -> Outcome<()> {
        let (lock, _) = self.target(&comment.target)?;
        self.lock_name(&lock)?;
        // Before the lock it may have been another one.
        let (_, object) = self.target(&comment.target)?;
        let column = match &comment.target {
            CommentTarget::Column { name, .. } => name.value.clone(),
            _ => String::new(),
        };
        let text = comment.text.clone().unwrap_or_default();
        Ok(self.set_comment(object, &column, text)?)
    }

    /// The name whose lock the object has, and the object.
    fn target(&self, target: &CommentTarget) -> Result<(String, Object)> {
        match target {
            CommentTarget::Object(kind, name) => self.commented(*kind, name),
            CommentTarget::Column { table, name } => self.commented_column(table, name),
            CommentTarget::Constraint { name, of, is_domain: false } => self.commented_key(name, of),
            CommentTarget::Constraint { name, of, .. } => self.commented_check(name, of),
        }
    }

    fn set_comment(&mut self, object: Object, column: &str, text: String) -> Result<()> {
        let mut texts = self.catalog.comments.of(object);
        texts.retain(|(name, _)| name != column);
        // That the schema `public` has no comment is a change.
        if !text.is_empty() || object == (SCHEMA, PUBLIC_OID) {
            texts.push((column.to_owned(), text));
        }
        self.write_comments(object, texts)
    }

    fn write_comments(&mut self, object: Object, texts: Texts) -> Result<()> {
        self.writer()?.write_comments(object, &texts)?;
        self.catalog = Arc::new(self.catalog.with_comments(self.catalog.comments.with(object, texts)));
        self.session.catalog = self.catalog.clone();
        Ok(())
    }

    fn commented(&self, kind: ObjectKind, name: &ObjectName) -> Result<(String, Object)> {
        match kind {
            ObjectKind::Schema => {
                let is_public = name.name == PUBLIC;
                let found = self.catalog.schemas.get(&name.name).copied().or(is_public.then_some(PUBLIC_OID));
                let message = || format!("schema \"{}\" does not exist", name.name);
                let oid = found.ok_or_else(|| Error::new(SqlState::INVALID_SCHEMA_NAME, message()).at(name.at))?;
                Ok((super::schema_key(&name.name), (SCHEMA, oid)))
            }
            ObjectKind::Type | ObjectKind::Domain => {
                let message = || format!("type \"{}\" does not exist", name.name);
                let found = self.catalog.type_def(name);
                let found = found.ok_or_else(|| Error::new(SqlState::UNDEFINED_OBJECT, message()).at(name.at))?;
                if kind == ObjectKind::Domain && found.ty.domain.is_none() {
                    return Err(wrong_kind(name, "a domain"));
                }
                Ok((store::type_key(&found.full), (TYPE, found.note.oid)))
            }
            _ => self.commented_relation(kind, name),
        }
    }

    fn commented_relation(&self, kind: ObjectKind, name: &ObjectName) -> Result<(String, Object)> {
        let full = self.catalog.resolve(name.schema.as_deref(), &name.name).ok_or_else(|| no_relation(name))?;
        let (is_kind, what) = match kind {
            ObjectKind::Index => (self.catalog.index_of(&full).is_some(), "an index"),
            ObjectKind::View => (self.catalog.views.contains_key(&full), "a view"),
            ObjectKind::Sequence => (self.catalog.sequences.contains_key(&full), "a sequence"),
            _ => (self.catalog.tables.contains_key(&full), "a table"),
        };
        let oid = self.catalog.oid_of(&full).filter(|_| is_kind).ok_or_else(|| wrong_kind(name, what))?;
        Ok((full, (RELATION, oid)))
    }

    fn commented_column(&self, table: &ObjectName, name: &Name) -> Result<(String, Object)> {
        let full = self.catalog.resolve(table.schema.as_deref(), &table.name).ok_or_else(|| no_relation(table))?;
        let oid = self.catalog.oid_of(&full).ok_or_else(|| no_relation(table))?;
        let Some(columns) = self.catalog.column_names(oid) else {
            if self.catalog.type_def(table).is_some() {
                return Err(Error::unsupported("COMMENT ON COLUMN of a type").at(table.at));
            }
            let message = format!("cannot set comment on relation \"{}\"", table.name);
            return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message));
        };
        if !columns.contains(&name.value.as_str()) {
            let message = format!("column \"{}\" of relation \"{}\" does not exist", name.value, table.name);
            return Err(Error::new(SqlState::UNDEFINED_COLUMN, message));
        }
        Ok((full, (RELATION, oid)))
    }

    /// A constraint of a table.
    fn commented_key(&self, name: &Name, of: &ObjectName) -> Result<(String, Object)> {
        let table = self.catalog.table(of).ok_or_else(|| no_relation(of))?;
        let found = constraint_of(table, &name.value).ok_or_else(|| {
            let message = format!("constraint \"{}\" for table \"{}\" does not exist", name.value, table.name);
            Error::new(SqlState::UNDEFINED_OBJECT, message)
        })?;
        Ok((table.full.clone(), (CONSTRAINT, found)))
    }

    /// A condition of a domain.
    fn commented_check(&self, name: &Name, of: &ObjectName) -> Result<(String, Object)> {
        let missing = |message: String| Error::new(SqlState::UNDEFINED_OBJECT, message);
        let found = self.catalog.type_def(of);
        let found = found.ok_or_else(|| missing(format!("type \"{}\" does not exist", of.name)))?;
        let crate::catalog::types::TypeBody::Domain(domain) = &found.note.body else {
            return Err(wrong_kind(of, "a domain"));
        };
        let check =
            domain.checks.iter().find(|check| check.name == name.value).ok_or_else(|| {
                missing(format!("constraint \"{}\" for domain {} does not exist", name.value, of.name))
            })?;
        Ok((store::type_key(&found.full), (CONSTRAINT, check.oid)))
    }

    /// A column has another name.
    pub(super) fn rename_comment(&mut self, table: u32, from: &str, to: &str) -> Result<()> {
        let mut texts = self.catalog.comments.of((RELATION, table));
        let Some((name, _)) = texts.iter_mut().find(|(name, _)| name == from) else { return Ok(()) };
        to.clone_into(name);
        self.write_comments((RELATION, table), texts)
    }

    /// A table that is made like others gets the comments on their columns and conditions.
    pub(super) fn copy_comments(&mut self, name: &ObjectName, likes: &[Like]) -> Result<()> {
        for like in likes.iter().filter(|like| like.comments) {
            let (Some(table), Some(from)) =
                (self.catalog.table(name).cloned(), self.catalog.table(&like.table).cloned())
            else {
                continue;
            };
            for (column, text) in self.catalog.comments.of((RELATION, from.oid)) {
                if !column.is_empty() {
                    self.set_comment((RELATION, table.oid), &column, text)?;
                }
            }
            for check in from.checks.iter().filter(|_| like.constraints) {
                let text = self.catalog.comments.get((CONSTRAINT, check.oid), "").map(str::to_owned);
                if let (Some(text), Some(oid)) = (text, constraint_of(&table, &check.name)) {
                    self.set_comment((CONSTRAINT, oid), "", text)?;
                }
            }
        }
        Ok(())
    }

    /// Comments on what is no longer there go.
    pub(super) fn prune_comments(&mut self) -> Result<()> {
        if self.catalog.comments.is_empty() {
            return Ok(());
        }
        let objects = self.catalog.objects();
        let all: Vec<Object> = self.catalog.comments.objects().collect();
        for object in all {
            let before = self.catalog.comments.of(object);
            let mut texts = before.clone();
            if !objects.contains(&object) {
                texts.clear();
            }
            let columns = self.catalog.column_names(object.1).unwrap_or_default();
            texts.retain(|(name, _)| name.is_empty() || columns.contains(&name.as_str()));
            if texts != before {
                self.write_comments(object, texts)?;
            }
        }
        Ok(())
    }
}

fn wrong_kind(name: &ObjectName, kind: &str) -> Error {
    Error::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{}\" is not {kind}", name.name))
}

/// The number of a constraint of a table.
pub(super) fn constraint_of(table: &TableDef, name: &str) -> Option<u32> {
    if !table.key.is_empty() && table.key_name == name {
        return Some(table.key_oid);
    }
    let index = table.indexes.iter().find(|index| index.is_constraint && index.name == name).map(|index| index.oid);
    let check = || table.checks.iter().find(|check| check.name == name).map(|check| check.oid);
    let key = || table.foreign_keys.iter().find(|key| key.name == name).map(|key| key.oid);
    index.or_else(check).or_else(key)
}
