//! Columns that a new table has from others, and the schema of temporary tables.

use std::sync::Arc;

use lodestone_sql_types::cast::{digits_of, second_digits};
use lodestone_sql_types::{Error, Result, SqlState, Type};

use super::Definition;
use crate::catalog::{Catalog, ColumnDef as Column, IdentityKind, LateKey, store};
use crate::connection::TEMPORARY_PREFIX;
use crate::parse::ast::{
    CheckDef, ColumnDef, ConstraintDef, Default, Identity, KeyDef, Like, NOWHERE, Name, SequenceOptions, Statement,
    TypeName,
};
use crate::parse::table::TEMPORARY;
use crate::run::Outcome;

pub(super) fn name(value: &str) -> Name {
    Name { value: value.to_owned(), at: NOWHERE }
}

/// An expression that was written before.
pub(super) fn written(text: &str) -> Result<Default> {
    Ok(Default { expr: crate::parse::parse_expr(text)?, text: text.to_owned() })
}

/// The type of a column, as it would be written.
pub(super) fn type_name(catalog: &Catalog, column: &Column) -> TypeName {
    let domain = column.domain.as_ref().map(|domain| domain.oid);
    if domain.is_some()
        || matches!(column.ty, Type::Enum(_) | Type::EnumArray(_) | Type::Composite(_) | Type::CompositeArray(_))
    {
        return crate::bind::type_name(catalog, column.ty, domain);
    }
    let (ty, is_array) = column.ty.element().map_or((column.ty, false), |element| (element, true));
    let modifiers = match ty {
        Type::Varchar | Type::Bpchar if column.modifier > 4 => vec![i64::from(column.modifier) - 4],
        Type::Numeric if column.modifier > 4 => {
            let (precision, scale) = digits_of(column.modifier);
            vec![precision.into(), scale.into()]
        }
        _ => second_digits(ty, column.modifier).map(i64::from).into_iter().collect(),
    };
    TypeName { modifiers, is_array, ..TypeName::plain(ty.info().name) }
}

impl Definition<'_> {
    /// Adds the columns of other tables, and the constraints that are asked for.
    pub(super) fn expand_likes(
        &self,
        likes: &[Like],
        (columns, constraints): (&mut Vec<ColumnDef>, &mut Vec<ConstraintDef>),
    ) -> Outcome<()> {
        let mut added = 0;
        for like in likes {
            let Some(table) = self.catalog.table(&like.table).cloned() else {
                let is_view = self.catalog.resolve(like.table.schema.as_deref(), &like.table.name).is_some();
                if is_view {
                    return Err(Error::unsupported("LIKE of anything but a table").at(like.table.at).into());
                }
                return Err(super::no_relation(&like.table).into());
            };
            let mut found = Vec::new();
            for column in &table.columns {
                let is_identity = like.identity && column.identity.is_some();
                let is_plain = column.identity.is_none() && !column.is_generated;
                let default = column.default.as_ref().filter(|_| like.defaults && is_plain);
                let generated = column.default.as_ref().filter(|_| like.generated && column.is_generated);
                let identity = column.identity.filter(|_| is_identity).map(|kind| Identity {
                    is_always: kind == IdentityKind::Always,
                    options: self.identity_options(&table.full, &column.name),
                });
                found.push(ColumnDef {
                    name: name(&column.name),
                    ty: type_name(&self.catalog, column),
                    not_null: column.not_null,
                    default: default.map(|default| written(&default.text)).transpose()?,
                    identity,
                    generated: generated.map(|default| written(&default.text)).transpose()?,
                });
            }
            let place = (like.before + added).min(columns.len());
            added += found.len();
            columns.splice(place..place, found);
            if like.constraints {
                for check in &table.checks {
                    constraints.push(ConstraintDef::Check(CheckDef {
                        name: Some(check.name.clone()),
                        check: written(&check.text)?,
                        at: NOWHERE,
                        no_inherit: check.no_inherit,
                    }));
                }
            }
            if like.indexes {
                let names = |numbers: &[usize]| -> Vec<Name> {
                    numbers.iter().map(|number| name(&table.columns[*number].name)).collect()
                };
                let key = |(columns, included): (&[usize], &[usize]), late: Option<LateKey>| KeyDef {
                    deferrable: late.map(|late| late.is_deferred),
                    name: None,
                    columns: names(columns),
                    included: names(included),
                };
                if !table.key.is_empty() {
                    constraints.push(ConstraintDef::Primary(key((&table.key, &table.key_included), None)));
                }
                for index in &table.indexes {
                    if !index.is_constraint {
                        let message = "LIKE .. INCLUDING INDEXES of a table with an index that is no constraint";
                        return Err(Error::unsupported(message).at(like.table.at).into());
                    }
                    let key = key((&index.columns, &index.included), index.late);
                    constraints.push(match index.is_late_primary() {
                        true => ConstraintDef::Primary(key),
                        false => ConstraintDef::Unique(key),
                    });
                }
            }
        }
        Ok(())
    }

    /// The options of the sequence of an identity column.
    fn identity_options(&self, table: &str, column: &str) -> SequenceOptions {
        let is_own = |owner: &(String, String)| owner.0 == table && owner.1 == column;
        let found = self.catalog.sequences.values().find(|other| other.owner.as_ref().is_some_and(is_own));
        found.map_or_else(SequenceOptions::default, |sequence| SequenceOptions {
            increment: Some(sequence.increment),
            minimum: Some(Some(sequence.minimum)),
            maximum: Some(Some(sequence.maximum)),
            start: Some(sequence.start),
            cache: Some(sequence.cache),
            is_cycle: Some(sequence.is_cycle),
            ..SequenceOptions::default()
        })
    }

    /// Makes the schema of the session's temporary tables if the statement makes an object in it.
    pub(super) fn make_temporary(&mut self, statement: &Statement) -> Outcome<()> {
        let name = match statement {
            Statement::CreateTable { name, .. }
            | Statement::CreateSequence { name, .. }
            | Statement::CreateView { name, .. } => name,
            _ => return Ok(()),
        };
        if name.schema.as_deref() != Some(TEMPORARY) {
            return Ok(());
        }
        if self.session.number <= 0 {
            let message = "there is no session that temporary tables could belong to";
            return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).into());
        }
        let schema = format!("{TEMPORARY_PREFIX}{}", self.session.number);
        if !self.catalog.schemas.contains_key(&schema) {
            self.lock_name(&super::schema_key(&schema))?;
            let oid = store::take_oids(self.engine(), 1)?[0];
            self.writer()?.write_schema(&schema, oid)?;
            self.refresh(&[])?;
        }
        if !self.catalog.path.contains(&schema) {
            let path = [schema].into_iter().chain(self.catalog.path.iter().cloned()).collect();
            self.catalog = Arc::new(self.catalog.with_path(path));
            self.session.catalog = self.catalog.clone();
        }
        Ok(())
    }
}
