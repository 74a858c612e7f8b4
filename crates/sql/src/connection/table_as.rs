//! CREATE TABLE AS and SELECT INTO; temporary tables, which end with their session.
//!
//! A temporary table is a table of a schema that belongs to the session, `pg_temp_` and its number. Names without a
//! schema are looked up there first. The schema and everything in it is dropped when the connection ends, and what a
//! crash has left is dropped when the database is opened.

use lodestone_sql_types::cast::{digits_of, second_digits};
use lodestone_sql_types::{Error, Result, SqlState, Type};

use super::statement::Place;
use super::transaction::State;
use super::{Answer, Completion, Connection, Failure, OutputColumn, Sink};
use crate::catalog::Catalog;
use crate::parse::ast::{ColumnDef, NOWHERE, Name, Query, Source, Statement, TableAs, TypeName};

/// The beginning of the names of schemas of temporary tables.
pub const PREFIX: &str = "pg_temp_";

/// The type of a column of an answer, as it would be written.
fn type_name(catalog: &Catalog, column: &OutputColumn) -> TypeName {
    if matches!(column.ty, Type::Enum(_) | Type::EnumArray(_) | Type::Composite(_) | Type::CompositeArray(_)) {
        return crate::bind::type_name(catalog, column.ty, None);
    }
    let (ty, is_array) = match column.ty.element() {
        Some(element) if !matches!(column.ty, Type::Int2Vector | Type::OidVector) => (element, true),
        _ => (column.ty, false),
    };
    let ty = if ty == Type::Unknown { Type::Text } else { ty };
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

impl Connection {
    /// Makes a table of the rows of a query, as part of the transaction.
    pub(super) fn create_table_as(
        &mut self,
        table: &TableAs,
        query: &Query,
        place: Place,
        sink: &mut dyn Sink,
    ) -> Result<Completion, Failure> {
        let catalog = self.catalog();
        let prepared = self.prepare_in(&catalog, None, Statement::Query(query.clone()), &[])?;
        let columns = prepared.plan(&catalog)?.columns.clone();
        if table.columns.len() > columns.len() {
            return Err(Error::new(SqlState::SYNTAX_ERROR, "too many column names were specified").into());
        }
        let column = |(number, column): (usize, &OutputColumn)| ColumnDef {
            name: table.columns.get(number).cloned().unwrap_or(Name { value: column.name.clone(), at: NOWHERE }),
            ty: type_name(&self.session.catalog, column),
            not_null: false,
            default: None,
            identity: None,
            generated: None,
        };
        let create = Statement::CreateTable {
            name: table.name.clone(),
            if_not_exists: false,
            columns: columns.iter().enumerate().map(column).collect(),
            constraints: Vec::new(),
            likes: Vec::new(),
            relatives: None,
            on_commit: table.on_commit,
            placing: table.placing.clone(),
        };
        if table.if_not_exists
            && catalog
                .schema_for(&table.name)
                .is_ok_and(|schema| catalog.oid_of(&crate::catalog::full_name(&schema, &table.name.name)).is_some())
        {
            let text = format!("relation \"{}\" already exists, skipping", table.name.name);
            self.notice(Error::new(SqlState::SUCCESS, text));
            return Ok(Completion::Tag("CREATE TABLE AS".into()));
        }
        let before = Place { is_single: false, is_last: false };
        let is_own = self.state == State::Idle;
        self.define(&create, before)?;
        if !table.with_data {
            if self.state == State::Implicit && place.is_last {
                self.commit()?;
            }
            return Ok(Completion::Tag("CREATE TABLE AS".into()));
        }
        let insert = Statement::Insert {
            table: table.name.clone(),
            columns: Vec::new(),
            alias: None,
            source: Source::Query(Box::new(query.clone())),
            overriding: None,
            conflict: None,
            returning: Vec::new(),
            with: Vec::new(),
        };
        let catalog = self.catalog();
        let prepared = self.prepare_in(&catalog, None, insert, &[])?;
        match self.run_plain(&prepared, place, sink) {
            Ok(Completion::Tag(tag)) => {
                let count = tag.rsplit(' ').next().unwrap_or("0");
                Ok(Completion::Tag(format!("SELECT {count}")))
            }
            Err(Failure::Blocked | Failure::Long) if is_own => {
                let message = "could not serialize access due to a row that another transaction is changing";
                Err(Error::new(SqlState::SERIALIZATION_FAILURE, message).into())
            }
            other => other,
        }
    }

    /// The name of the schema of the session's temporary tables.
    fn temporary_schema(&self) -> String {
        format!("{PREFIX}{}", self.session.number)
    }

    /// The schemas that names are looked up in, with that of temporary tables before them.
    pub(super) fn with_temporary(&self, catalog: &crate::catalog::Catalog, mut path: Vec<String>) -> Vec<String> {
        if !catalog.schemas.is_empty() {
            let own = self.temporary_schema();
            if catalog.schemas.contains_key(&own) {
                path.insert(0, own);
            }
        }
        path
    }

    /// Whether the session has temporary tables.
    #[must_use]
    pub fn has_temporary(&self) -> bool {
        self.database.catalog().schemas.contains_key(&self.temporary_schema())
    }

    /// Drops the temporary tables of the session.
    pub(super) fn drop_temporary(&mut self) {
        if self.has_temporary() {
            self.drop_schema(&self.temporary_schema());
        }
    }

    /// Drops a schema of temporary tables. An error leaves it for the next start.
    pub(crate) fn drop_schema(&mut self, schema: &str) {
        self.roll_back();
        self.state = State::Idle;
        let (tickets, notices) = (self.take_tickets(), self.take_notices());
        let steps_max = self.session.watch.steps_max.take();
        if let Ok(mut query) = self.simple(&format!("DROP SCHEMA {schema} CASCADE"))
            && self.next(&mut query, &mut Answer::default()).is_err()
        {
            // Also one that waits for a lock is over.
            self.roll_back();
            self.state = State::Idle;
        }
        self.session.watch.steps_max = steps_max;
        // The client learns nothing of it, so its answer does not wait for it.
        (self.tickets, self.notices) = (tickets, notices);
        drop(std::mem::take(&mut *self.session.waits.borrow_mut()));
    }
}
