//! The tables of a query.
//!
//! They become a tree of joins that is deep on the left side. A table that may name columns of those before it
//! (LATERAL, a function) is bound inside a scope of theirs.

use std::sync::Arc;

use lodestone_sql_types::cast::Context;
use lodestone_sql_types::composite::Attribute;
use lodestone_sql_types::{Error, Result, SqlState, Type};

use super::expr::Typed;
use super::scope::{self, Relation, Scope, ScopeColumn};
use super::{Binder, no_table};
use crate::catalog::TableDef;
use crate::parse::ast::{self, Alias, JoinKind, JoinOn, NOWHERE, Name, ObjectName, TableRef};
use crate::pgcatalog;
use crate::plan::{Expr, Join, Node, Scan, SetFunction};

/// Most tables between the commas of one FROM: each is one join deeper.
const TABLES_MAX: usize = 256;

/// A table of a query with its columns. `is_lateral`: it was bound inside the columns before it.
struct Bound {
    node: Node,
    columns: Vec<ScopeColumn>,
    is_lateral: bool,
}

/// The columns of a table under its name in a query.
pub fn columns_of(table: &TableDef, alias: &str) -> Vec<ScopeColumn> {
    scope_columns(table.oid, &table.columns, alias)
}

/// Columns with the table that they are from.
fn related(mut columns: Vec<ScopeColumn>, relation: Relation) -> Vec<ScopeColumn> {
    let relation = Arc::new(relation);
    columns.iter_mut().for_each(|column| column.relation = Some(relation.clone()));
    columns
}

/// Columns of the table with the number `oid`, under its name in a query.
pub fn scope_columns(oid: u32, columns: &[crate::catalog::ColumnDef], alias: &str) -> Vec<ScopeColumn> {
    let column = |(number, column): (usize, &crate::catalog::ColumnDef)| ScopeColumn {
        table: Some(alias.to_owned()),
        name: column.name.clone(),
        ty: column.ty,
        modifier: column.modifier,
        origin: i16::try_from(number + 1).ok().map(|number| (oid, number)),
        is_hidden: false,
        is_outer: false,
        relation: None,
    };
    columns.iter().enumerate().map(column).collect()
}

/// Columns of a query under a name.
pub fn output_columns(columns: Vec<crate::plan::OutputColumn>, alias: Option<&String>) -> Vec<ScopeColumn> {
    let column = |column: crate::plan::OutputColumn| ScopeColumn {
        table: alias.cloned(),
        name: column.name,
        ty: column.ty,
        modifier: column.modifier,
        origin: None,
        is_hidden: false,
        is_outer: false,
        relation: None,
    };
    columns.into_iter().map(column).collect()
}

impl Binder<'_> {
    /// The columns of a table that is changed, under its name in the statement. `root`: the table that is named, if it
    /// is one above.
    pub(super) fn changed_columns(&self, root: &TableDef, table: &TableDef, alias: &str) -> Vec<ScopeColumn> {
        let plain = ObjectName { schema: None, name: root.name.clone(), at: NOWHERE, is_only: false };
        let relation = Relation {
            schema: Some(root.schema.clone()),
            name: root.name.clone(),
            is_aliased: self.has_alias || alias != root.name,
            is_visible: self.catalog.table(&plain).is_some_and(|found| found.oid == root.oid),
        };
        related(columns_of(table, alias), relation)
    }

    /// A table of the user.
    pub fn table(&self, name: &ObjectName) -> Result<Arc<TableDef>> {
        if let Some(found) = self.catalog.table(name) {
            return Ok(found.clone());
        }
        let mut others = self.catalog.candidates(name.schema.as_deref(), &name.name);
        if others.any(|full| self.catalog.sequences.contains_key(&full)) {
            let message = format!("cannot change sequence \"{}\"", name.name);
            return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message).at(name.at));
        }
        if pgcatalog::find(name.schema.as_deref(), &name.name).is_some() {
            let message = format!("permission denied: \"{}\" is a system catalog", name.name);
            return Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, message).at(name.at));
        }
        Err(no_table(name))
    }

    /// The number of a column.
    pub fn column_of(&self, table: &TableDef, name: &Name) -> Result<usize> {
        table.column(&name.value).ok_or_else(|| {
            let message = format!("column \"{}\" of relation \"{}\" does not exist", name.value, table.name);
            Error::new(SqlState::UNDEFINED_COLUMN, message).at(name.at)
        })
    }

    pub(super) fn from(&mut self, from: &[TableRef], parent: Option<&Scope<'_>>) -> Result<(Node, Vec<ScopeColumn>)> {
        self.tables_after(None, from, parent)
    }

    /// The tables of a query after one that is there already.
    pub(super) fn tables_after(
        &mut self,
        first: Option<(Node, Vec<ScopeColumn>)>,
        from: &[TableRef],
        parent: Option<&Scope<'_>>,
    ) -> Result<(Node, Vec<ScopeColumn>)> {
        if from.len() > TABLES_MAX {
            return Err(Error::new(SqlState::STATEMENT_TOO_COMPLEX, "too many tables in one query"));
        }
        let mut found = first;
        for table in from {
            let Some((left, before)) = found.take() else {
                let Bound { node, columns, .. } = self.table_ref(table, &[], parent)?;
                found = Some((node, columns));
                continue;
            };
            let right = self.table_ref(table, &before, parent).map_err(|error| hidden_table(error, &before))?;
            refuse_twice(&before, &right.columns)?;
            let (left_width, right_width) = (before.len(), right.columns.len());
            let join = Join {
                kind: JoinKind::Inner,
                left,
                right: if right.is_lateral { super::memo::kept(right.node) } else { right.node },
                left_width,
                right_width,
                is_lateral: right.is_lateral,
                on: None,
                hash: Vec::new(),
            };
            found = Some((Node::Join(Box::new(join)), before.into_iter().chain(right.columns).collect()));
        }
        Ok(found.unwrap_or_else(|| (Node::Values(vec![Vec::new()]), Vec::new())))
    }

    /// `before`: the columns that a lateral table may name.
    fn table_ref(&mut self, table: &TableRef, before: &[ScopeColumn], parent: Option<&Scope<'_>>) -> Result<Bound> {
        match table {
            TableRef::Table { name, alias } => self.named_table(name, alias, parent),
            TableRef::Query { query, is_lateral, alias } => {
                let lateral = Scope { columns: before.to_vec(), parent };
                let is_lateral = *is_lateral && !before.is_empty();
                let (node, columns) = self.query(query, if is_lateral { Some(&lateral) } else { parent })?;
                let columns = output_columns(columns, alias.name.as_ref());
                Ok(Bound { node, columns: renamed(columns, alias)?, is_lateral })
            }
            TableRef::Function { call, has_ordinality, alias } => {
                self.table_function(call, *has_ordinality, alias, before, parent)
            }
            TableRef::Sample(sampled) => self.sample(sampled, parent),
            TableRef::Join { kind, left, right, on } => self.join(*kind, left, right, on, before, parent),
        }
    }

    /// TABLESAMPLE. The condition of a query is tested of the rows that it chooses.
    fn sample(&mut self, sampled: &ast::Sampled, parent: Option<&Scope<'_>>) -> Result<Bound> {
        let TableRef::Table { name, .. } = &sampled.table else {
            return Err(Error::unsupported("TABLESAMPLE of something that is no table"));
        };
        let full = self.catalog.resolve(name.schema.as_deref(), &name.name).unwrap_or_default();
        let is_with = name.schema.is_none() && self.is_with_query(&name.name);
        if is_with || self.catalog.views.contains_key(&full) || self.catalog.sequences.contains_key(&full) {
            let message = "TABLESAMPLE clause can only be applied to tables and materialized views";
            return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message).at(name.at));
        }
        let bound = self.table_ref(&sampled.table, &[], parent)?;
        let scope = Scope::inside(parent);
        let mut number = |expr: &ast::Expr, ty: Type| {
            let typed = self.expr(expr, &scope)?;
            self.coerce(typed, ty, Context::Assignment, expr.at()).map(|typed| typed.expr)
        };
        let percent = number(&sampled.percent, Type::Float4)?;
        let repeat = sampled.repeat.as_ref().map(|repeat| number(repeat, Type::Float8)).transpose()?;
        let node = Node::Sample { input: Box::new(bound.node), percent, repeat };
        Ok(Bound { node, ..bound })
    }

    fn named_table(&mut self, name: &ObjectName, alias: &Alias, parent: Option<&Scope<'_>>) -> Result<Bound> {
        let shown = alias.name.as_ref().unwrap_or(&name.name).clone();
        let is_aliased = alias.name.is_some();
        if name.schema.is_none()
            && let Some((node, columns)) = self.with_query(&name.name, &shown, alias, parent)?
        {
            let relation = Relation { schema: None, name: name.name.clone(), is_aliased, is_visible: true };
            return Ok(Bound { node, columns: related(renamed(columns, alias)?, relation), is_lateral: false });
        }
        let full = self.catalog.resolve(name.schema.as_deref(), &name.name).unwrap_or_default();
        let bound = self.stored_table(&full, name, &shown, alias)?;
        let schema = match (full.as_str(), &name.schema) {
            ("", schema) => schema.clone().unwrap_or_else(|| "pg_catalog".to_owned()),
            (full, _) => match full.strip_suffix(&name.name).and_then(|rest| rest.strip_suffix('.')) {
                Some(schema) => schema.to_owned(),
                None => crate::catalog::PUBLIC.to_owned(),
            },
        };
        let is_visible = name.schema.is_none() || self.catalog.resolve(None, &name.name).as_deref() == Some(&*full);
        let relation = Relation { schema: Some(schema), name: name.name.clone(), is_aliased, is_visible };
        Ok(Bound { columns: related(bound.columns, relation), ..bound })
    }

    /// A table, view or sequence of the user or of the system, under the name that it has in the query.
    fn stored_table(&mut self, full: &str, name: &ObjectName, shown: &str, alias: &Alias) -> Result<Bound> {
        if let Some(table) = self.catalog.tables.get(full) {
            let mut columns = renamed(columns_of(table, shown), alias)?;
            let shows_number =
                table.hidden.is_some() && self.numbered.contains(&super::locking::number_column(shown, table.oid));
            if shows_number {
                columns.push(ScopeColumn {
                    table: None,
                    name: super::locking::number_column(shown, table.oid),
                    ty: Type::Int8,
                    modifier: -1,
                    origin: None,
                    is_hidden: true,
                    is_outer: false,
                    relation: None,
                });
            }
            columns.extend(self.oid_column(shown));
            let node = match self.has_heirs(name, table) {
                true => self.family_rows(table),
                false => self.own_rows(Scan { shows_number, ..super::family::all_rows(table.clone()) }),
            };
            return Ok(Bound { node, columns, is_lateral: false });
        }
        if let Some(view) = self.catalog.views.get(full).cloned() {
            let (node, columns) = self.view(&view, shown)?;
            return Ok(Bound { node, columns: renamed(columns, alias)?, is_lateral: false });
        }
        if let Some(sequence) = self.catalog.sequences.get(full) {
            let (node, columns) = super::recursive::sequence_row(sequence, shown)?;
            return Ok(Bound { node, columns: renamed(columns, alias)?, is_lateral: false });
        }
        let Some(table) = pgcatalog::find(name.schema.as_deref(), &name.name) else {
            if self.catalog.type_def(name).is_some_and(|found| found.note.composite().is_some()) {
                let message = format!("\"{}\" is a composite type", name.name);
                return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message).at(name.at));
            }
            return Err(no_table(name));
        };
        let column = |(number, (column, ty)): (usize, &(&str, Type))| ScopeColumn {
            table: Some(shown.to_owned()),
            name: (*column).to_owned(),
            ty: *ty,
            modifier: -1,
            origin: i16::try_from(number + 1).ok().map(|number| (table.oid, number)),
            is_hidden: false,
            is_outer: false,
            relation: None,
        };
        let mut columns = renamed(table.columns.iter().enumerate().map(column).collect(), alias)?;
        let node = Node::Virtual { table, filter: None };
        if columns.iter().any(|column| column.name == "tableoid") {
            return Ok(Bound { node, columns, is_lateral: false });
        }
        // The number of the table itself, which is shown to those who ask for it.
        let width = columns.len();
        columns.push(ScopeColumn {
            table: Some(shown.to_owned()),
            name: "tableoid".into(),
            ty: Type::Oid,
            modifier: -1,
            origin: None,
            is_hidden: true,
            is_outer: false,
            relation: None,
        });
        let own = (0..width).map(|index| Expr::Column { depth: 0, index });
        let oid = Expr::Const(lodestone_sql_types::Datum::Int(table.oid.into()));
        let node = Node::Project { input: Box::new(node), columns: own.chain([oid]).collect() };
        Ok(Bound { node, columns, is_lateral: false })
    }

    fn table_function(
        &mut self,
        call: &ast::Call,
        has_ordinality: bool,
        alias: &Alias,
        before: &[ScopeColumn],
        parent: Option<&Scope<'_>>,
    ) -> Result<Bound> {
        if call.name.name == "pg_get_keywords" && call.arguments.is_empty() {
            return keywords(alias.name.as_deref().unwrap_or("pg_get_keywords"), alias);
        }
        let lateral = Scope { columns: before.to_vec(), parent };
        let scope = if before.is_empty() { Scope::inside(parent) } else { Scope::inside(Some(&lateral)) };
        let at = call.name.at;
        if call.name.name == "pg_options_to_table" && call.arguments.len() == 1 {
            let found = self.options(&call.arguments[0], alias.name.as_deref(), at, &scope)?;
            return Ok(Bound { columns: renamed(found.columns, alias)?, is_lateral: !before.is_empty(), ..found });
        }
        if call.name.name == "unnest" && call.arguments.len() > 1 {
            let shown = alias.name.as_deref().unwrap_or("unnest");
            let found = self.unnest_beside(call, has_ordinality, shown, &scope)?;
            return Ok(Bound { columns: renamed(found.columns, alias)?, is_lateral: !before.is_empty(), ..found });
        }
        let extras = self.extras.take();
        let found = match self.set_call(call, at, &scope) {
            Ok(Some(found)) => Ok(found),
            Ok(None) => self.call(call, at, &scope).map(|typed| (SetFunction::One, vec![typed.expr], typed.ty)),
            Err(error) => Err(error),
        };
        self.extras = extras;
        let (function, arguments, ty) = found?;
        let shown = alias.name.clone().unwrap_or_else(|| call.name.name.clone());
        let column = |name: String, ty| ScopeColumn {
            table: Some(shown.clone()),
            name,
            ty,
            modifier: -1,
            origin: None,
            is_hidden: false,
            is_outer: false,
            relation: None,
        };
        let mut columns = match function {
            SetFunction::JsonEach { .. } => vec![column("key".into(), Type::Text), column("value".into(), ty)],
            _ if call.name.name == "pg_partition_ancestors" => vec![column("relid".into(), ty)],
            _ if ty.is_record() && ty.attributes().is_some() => {
                let message = "a column definition list is required for functions returning \"record\"";
                return Err(Error::new(SqlState::SYNTAX_ERROR, message).at(at));
            }
            _ if ty.is_row() && ty.attributes().is_some() => {
                let fields = ty.attributes().unwrap_or_default();
                let column = |field: &Attribute| ScopeColumn {
                    modifier: field.modifier,
                    ..column(field.name.clone(), field.ty)
                };
                fields.iter().map(column).collect()
            }
            SetFunction::JsonElements { .. } if alias.name.is_none() => vec![column("value".into(), ty)],
            _ => vec![column(shown.clone(), ty)],
        };
        if has_ordinality {
            columns.push(column("ordinality".into(), Type::Int8));
        }
        let node = self.spread((function, arguments), ty, has_ordinality);
        Ok(Bound { node, columns: renamed(columns, alias)?, is_lateral: !before.is_empty() })
    }

    /// The names and values of options such as `{a=1}`.
    fn options(
        &mut self,
        list: &ast::Expr,
        shown: Option<&str>,
        at: ast::Position,
        scope: &Scope<'_>,
    ) -> Result<Bound> {
        let list = self.expr(list, scope)?;
        let list = self.coerce(list, Type::TextArray, Context::Assignment, at)?.expr;
        let input = Node::ProjectSet {
            input: Box::new(Node::Values(vec![Vec::new()])),
            calls: vec![(SetFunction::Unnest, vec![list])],
        };
        let (mut columns, mut exprs) = (Vec::new(), Vec::new());
        for (name, number) in [("option_name", 0), ("option_value", 1)] {
            let option = Typed::new(Expr::Column { depth: 0, index: 0 }, Type::Text);
            let number = Typed::new(Expr::Const(lodestone_sql_types::Datum::Int(number)), Type::Int4);
            exprs.push(self.named("lodestone_option_part", vec![option, number], at)?.expr);
            columns.push(ScopeColumn {
                table: Some(shown.unwrap_or("pg_options_to_table").to_owned()),
                name: name.to_owned(),
                ty: Type::Text,
                modifier: -1,
                origin: None,
                is_hidden: false,
                is_outer: false,
                relation: None,
            });
        }
        Ok(Bound { node: Node::Project { input: Box::new(input), columns: exprs }, columns, is_lateral: false })
    }

    /// Arrays beside each other: a row for each place of the longest one.
    fn unnest_beside(
        &mut self,
        call: &ast::Call,
        has_ordinality: bool,
        shown: &str,
        scope: &Scope<'_>,
    ) -> Result<Bound> {
        let at = call.name.at;
        let column = |name: &str, ty| ScopeColumn {
            table: Some(shown.to_owned()),
            name: name.to_owned(),
            ty,
            modifier: -1,
            origin: None,
            is_hidden: false,
            is_outer: false,
            relation: None,
        };
        let (mut columns, mut calls, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        for expr in &call.arguments {
            let array = self.expr(expr, scope)?;
            let element = array.ty.element().ok_or_else(|| super::call::undefined("unnest", &[array.ty], at))?;
            columns.push(column("unnest", element));
            calls.push((SetFunction::Unnest, vec![array.expr.clone()]));
            counts.push(self.named("cardinality", vec![array], at)?.expr);
        }
        if has_ordinality {
            let first = Expr::Const(lodestone_sql_types::Datum::Int(1));
            let last = Expr::Extreme { ty: Type::Int4, list: counts, is_greatest: true };
            columns.push(column("ordinality", Type::Int8));
            calls.push((SetFunction::GenerateSeries, vec![first, last]));
        }
        let node = Node::ProjectSet { input: Box::new(Node::Values(vec![Vec::new()])), calls };
        Ok(Bound { node, columns, is_lateral: false })
    }

    /// A call of a function that returns rows, with the type of its values. `None`: it is none.
    pub(super) fn set_call(
        &mut self,
        call: &ast::Call,
        at: ast::Position,
        scope: &Scope<'_>,
    ) -> Result<Option<(SetFunction, Vec<Expr>, Type)>> {
        let name = call.name.name.as_str();
        if !is_set_function(name) || call.over.is_some() {
            return Ok(None);
        }
        let mut arguments = Vec::new();
        for expr in &call.arguments {
            arguments.push(self.expr(expr, scope)?);
        }
        let exprs = |list: Vec<Typed>| list.into_iter().map(|typed| typed.expr).collect();
        Ok(match (name, arguments.len()) {
            ("generate_series", 3) if arguments[2].ty == Type::Interval || is_moment(arguments[0].ty) => {
                let is_local = arguments[..2].iter().all(|typed| matches!(typed.ty, Type::Timestamp | Type::Unknown))
                    && arguments[..2].iter().any(|typed| typed.ty == Type::Timestamp);
                let ty = if is_local { Type::Timestamp } else { Type::Timestamptz };
                let mut list = Vec::new();
                for (typed, to) in arguments.into_iter().zip([ty, ty, Type::Interval]) {
                    list.push(self.coerce(typed, to, Context::Assignment, at)?.expr);
                }
                Some((SetFunction::GenerateMoments(ty), list, ty))
            }
            ("regexp_matches", 2 | 3) => Some((SetFunction::RegexMatches, self.texts(arguments, at)?, Type::TextArray)),
            ("regexp_split_to_table", 2 | 3) => Some((SetFunction::RegexSplit, self.texts(arguments, at)?, Type::Text)),
            ("string_to_table", 2 | 3) => Some((SetFunction::StringToTable, self.texts(arguments, at)?, Type::Text)),
            ("json_populate_recordset" | "jsonb_populate_recordset", 2) => {
                let (base, json, ty) = self.populated(name, arguments, at)?;
                Some((SetFunction::JsonRows(ty), vec![base.expr, json.expr], ty))
            }
            (_, 1) if name.starts_with("json") => self.json_set(name, arguments, at)?,
            ("generate_series", 2 | 3) => {
                let (list, ty) = self.unify(arguments, "generate_series", at)?;
                if !matches!(ty, Type::Int4 | Type::Int8 | Type::Numeric) {
                    return Err(super::call::undefined("generate_series", &[ty, ty], at));
                }
                Some((SetFunction::GenerateSeries, list, ty))
            }
            ("unnest", 1) => {
                let ty = arguments[0].ty.element();
                let ty = ty.ok_or_else(|| super::call::undefined("unnest", &[arguments[0].ty], at))?;
                Some((SetFunction::Unnest, exprs(arguments), ty))
            }
            ("generate_subscripts", 2 | 3) => Some((SetFunction::GenerateSubscripts, exprs(arguments), Type::Int4)),
            // Each element with its number, from 1.
            ("_pg_expandarray", 1) => {
                let records = self.named("lodestone_expand_array", arguments, at)?;
                Some((SetFunction::Unnest, vec![records.expr], Type::Record))
            }
            ("pg_partition_ancestors", 1) => {
                let list = self.named("lodestone_partition_ancestors", arguments, at)?;
                Some((SetFunction::Unnest, vec![list.expr], Type::Regclass))
            }
            _ => None,
        })
    }

    fn texts(&mut self, list: Vec<Typed>, at: ast::Position) -> Result<Vec<Expr>> {
        let list = list.into_iter().map(|typed| Ok(self.coerce(typed, Type::Text, Context::Implicit, at)?.expr));
        list.collect()
    }

    /// Functions that return the parts of a JSON value.
    fn json_set(
        &mut self,
        name: &str,
        arguments: Vec<Typed>,
        at: ast::Position,
    ) -> Result<Option<(SetFunction, Vec<Expr>, Type)>> {
        let ty = if name.starts_with("jsonb") { Type::Jsonb } else { Type::Json };
        let is_text = name.ends_with("_text");
        let plain = name.trim_start_matches("jsonb_").trim_start_matches("json_").trim_end_matches("_text");
        let function = match plain {
            "each" => SetFunction::JsonEach { is_text },
            "array_elements" => SetFunction::JsonElements { is_text },
            "object_keys" => SetFunction::JsonKeys,
            _ => return Ok(None),
        };
        let mut list = Vec::new();
        for typed in arguments {
            let from = typed.ty;
            let undefined = |_| super::call::undefined(name, &[from], at);
            list.push(self.coerce(typed, ty, Context::Implicit, at).map_err(undefined)?.expr);
        }
        let result = if is_text || function == SetFunction::JsonKeys { Type::Text } else { ty };
        Ok(Some((function, list, result)))
    }

    fn join(
        &mut self,
        kind: JoinKind,
        left: &TableRef,
        right: &TableRef,
        on: &JoinOn,
        before: &[ScopeColumn],
        parent: Option<&Scope<'_>>,
    ) -> Result<Bound> {
        let left = self.table_ref(left, before, parent)?;
        let hidden = |error| hidden_table(error, &left.columns);
        if left.is_lateral {
            return Err(Error::unsupported("a LATERAL table on the left side of a join"));
        }
        let right = match kind {
            // Rows without a partner must be those of a table of its own, so it may name nothing of the other side.
            JoinKind::Right | JoinKind::Full => self.table_ref(right, &[], parent).map_err(|error| {
                let is_there = self.table_ref(right, &left.columns, parent).is_ok();
                let detail = "The combining JOIN type must be INNER or LEFT for a LATERAL reference.";
                if is_there { invalid_reference(&error, &left.columns).detail(detail) } else { error }
            })?,
            _ => self.table_ref(right, &left.columns, parent).map_err(hidden)?,
        };
        let (left_width, right_width) = (left.columns.len(), right.columns.len());
        refuse_twice(&left.columns, &right.columns)?;
        let shared: Vec<Name> = match on {
            JoinOn::Using(names) => names.clone(),
            JoinOn::Natural => {
                // A column that another join has merged is shown once, and hidden as that of its own table.
                let is_shared = |column: &&ScopeColumn| {
                    let same = |other: &ScopeColumn| !other.is_hidden && other.name == column.name;
                    !column.is_hidden && right.columns.iter().any(same)
                };
                let names = left.columns.iter().filter(is_shared);
                names.map(|column| Name { value: column.name.clone(), at: NOWHERE }).collect()
            }
            _ => Vec::new(),
        };
        let mut columns: Vec<ScopeColumn> = left.columns.into_iter().chain(right.columns).collect();
        let mut conditions = Vec::new();
        let (is_left_outer, is_right_outer) =
            (matches!(kind, JoinKind::Right | JoinKind::Full), matches!(kind, JoinKind::Left | JoinKind::Full));
        for (index, column) in columns.iter_mut().enumerate() {
            column.is_outer |= if index < left_width { is_left_outer } else { is_right_outer };
        }
        let (mut first, mut merged) = (Vec::new(), Vec::new());
        for name in &shared {
            let (one, two) = self.shared_column(name, &columns, left_width)?;
            let of = |index: usize| Typed::new(Expr::Column { depth: 0, index }, columns[index].ty);
            let (left, right, ty) = self.meet(of(one), of(two), "=", name.at)?;
            let equal = lodestone_sql_types::op::Comparison::Equal;
            conditions.push(Expr::Compare(equal, ty, Box::new(left.expr), Box::new(right.expr)));
            let (shown, hidden) = if kind == JoinKind::Right { (two, one) } else { (one, two) };
            columns[hidden].is_hidden = true;
            first.push(shown);
            if kind == JoinKind::Full {
                // Either side may have no row: the value is that of the other one, and of no table.
                columns[shown].is_hidden = true;
                merged.push((columns[shown].name.clone(), self.merged(&columns, (one, two), name)?));
            }
        }
        if let JoinOn::Expr(expr) = on {
            let scope = Scope { columns: columns.clone(), parent };
            let condition = self.condition(expr, &scope, "JOIN/ON")?;
            conditions.push(condition);
        }
        let join = Join {
            kind,
            left: left.node,
            right: if right.is_lateral { super::memo::kept(right.node) } else { right.node },
            left_width,
            right_width,
            is_lateral: right.is_lateral,
            on: None,
            hash: Vec::new(),
        };
        let mut node = super::access::with_conditions(join, conditions);
        if !first.is_empty() {
            // The shared columns are shown before the others.
            let rest = (0..columns.len()).filter(|index| !first.contains(index));
            let order: Vec<usize> = first.iter().copied().chain(rest).collect();
            let own = order.iter().map(|index| Expr::Column { depth: 0, index: *index });
            let exprs = merged.iter().map(|(_, typed)| typed.expr.clone()).chain(own).collect();
            node = Node::Project { input: Box::new(node), columns: exprs };
            let own = order.iter().map(|index| columns[*index].clone());
            columns = merged.into_iter().map(merged_column).chain(own).collect();
        }
        Ok(Bound { node, columns, is_lateral: false })
    }

    /// The value of a shared column of a full join: that of the side that has a row.
    fn merged(&mut self, columns: &[ScopeColumn], (one, two): (usize, usize), name: &Name) -> Result<Typed> {
        let of = |index: usize| Typed {
            expr: Expr::Column { depth: 0, index },
            ty: columns[index].ty,
            modifier: columns[index].modifier,
        };
        let (list, ty) = self.unify(vec![of(one), of(two)], "JOIN/USING", name.at)?;
        let is_same = columns[one].modifier == columns[two].modifier;
        let modifier = if is_same { columns[one].modifier } else { -1 };
        Ok(Typed { expr: Expr::Coalesce(list), ty, modifier })
    }

    /// The numbers of a column that both sides of a join have.
    fn shared_column(&self, name: &Name, columns: &[ScopeColumn], left_width: usize) -> Result<(usize, usize)> {
        let find = |range: std::ops::Range<usize>, side: &str| {
            let mut found = range.filter(|index| columns[*index].name == name.value && !columns[*index].is_hidden);
            let index = found.next().ok_or_else(|| {
                let message =
                    format!("column \"{}\" specified in USING clause does not exist in {side} table", name.value);
                Error::new(SqlState::UNDEFINED_COLUMN, message).at(name.at)
            })?;
            match found.next() {
                None => Ok(index),
                Some(_) => {
                    let message =
                        format!("common column name \"{}\" appears more than once in {side} table", name.value);
                    Err(Error::new(SqlState::AMBIGUOUS_COLUMN, message).at(name.at))
                }
            }
        };
        Ok((find(0..left_width, "left")?, find(left_width..columns.len(), "right")?))
    }

    /// A value for a column.
    pub fn assign(&mut self, typed: Typed, table: &TableDef, column: usize, at: ast::Position) -> Result<Expr> {
        let target = &table.columns[column];
        let ty = typed.ty;
        let wrong = |error: Error| match error.state() {
            SqlState::DATATYPE_MISMATCH => {
                let message =
                    format!("column \"{}\" is of type {} but expression is of type {ty}", target.name, target.ty);
                Error::new(SqlState::DATATYPE_MISMATCH, message)
                    .hint("You will need to rewrite or cast the expression.")
                    .at(at)
            }
            _ => error,
        };
        let typed = self.coerce(typed, target.ty, Context::Assignment, at).map_err(wrong)?;
        Ok(self.fitted(typed, target.ty, target.modifier, false).expr)
    }
}

/// The column of a full join that both sides have. It is of no table.
fn merged_column((name, typed): (String, Typed)) -> ScopeColumn {
    let Typed { ty, modifier, .. } = typed;
    ScopeColumn { table: None, name, ty, modifier, origin: None, is_hidden: false, is_outer: false, relation: None }
}

/// Whether a function of this name returns rows.
pub fn is_set_function(name: &str) -> bool {
    matches!(
        name,
        "generate_series"
            | "unnest"
            | "generate_subscripts"
            | "pg_partition_ancestors"
            | "_pg_expandarray"
            | "regexp_matches"
            | "regexp_split_to_table"
            | "string_to_table"
            | "json_each"
            | "jsonb_each"
            | "json_each_text"
            | "jsonb_each_text"
            | "json_array_elements"
            | "jsonb_array_elements"
            | "json_array_elements_text"
            | "jsonb_array_elements_text"
            | "json_populate_recordset"
            | "jsonb_populate_recordset"
            | "json_object_keys"
            | "jsonb_object_keys"
    )
}

fn is_moment(ty: Type) -> bool {
    matches!(ty, Type::Timestamp | Type::Timestamptz | Type::Date)
}

/// The words that are reserved in statements, as a table.
fn keywords(shown: &str, alias: &Alias) -> Result<Bound> {
    let column = |name: &str, ty| ScopeColumn {
        table: Some(shown.to_owned()),
        name: name.to_owned(),
        ty,
        modifier: -1,
        origin: None,
        is_hidden: false,
        is_outer: false,
        relation: None,
    };
    let columns = vec![
        column("word", Type::Text),
        column("catcode", Type::Char),
        column("barelabel", Type::Bool),
        column("catdesc", Type::Text),
        column("baredesc", Type::Text),
    ];
    let constant = |text: &str| Expr::Const(lodestone_sql_types::Datum::from(text));
    let row = |word: &str| {
        let yes = Expr::Const(lodestone_sql_types::Datum::Bool(true));
        vec![constant(word), constant("R"), yes, constant("reserved"), constant("can be bare label")]
    };
    let node = Node::Values(pgcatalog::RESERVED.iter().map(|word| row(word)).collect());
    Ok(Bound { node, columns: renamed(columns, alias)?, is_lateral: false })
}

/// The error of a name that is there, and cannot be used at its place.
fn invalid_reference(error: &Error, columns: &[ScopeColumn]) -> Error {
    // That of the table, or of a column without one.
    let name = error.message().split('"').nth(1).unwrap_or_default();
    let column = columns.iter().find(|column| error.state() == SqlState::UNDEFINED_COLUMN && column.name == name);
    let table = column.and_then(|column| column.table.as_deref()).unwrap_or(name);
    let message = format!("invalid reference to FROM-clause entry for table \"{table}\"");
    let found = Error::new(SqlState::INVALID_COLUMN_REFERENCE, message);
    match error.position() {
        Some(at) => found.at(at),
        None => found,
    }
}

/// The error of a table that cannot be named at its place: it is among those before it.
pub(super) fn hidden_table(error: Error, before: &[ScopeColumn]) -> Error {
    let Some(name) = error.message().strip_prefix("missing FROM-clause entry for table \"") else { return error };
    let table = name.trim_end_matches('"').to_owned();
    if !before.iter().any(|column| column.table.as_ref() == Some(&table)) {
        return error;
    }
    let at = error.position().map_or(NOWHERE, ast::Position);
    scope::invalid_reference(&table, at).hint(scope::not_from_here(&table))
}

/// Refuses tables of one name on both sides.
fn refuse_twice(left: &[ScopeColumn], right: &[ScopeColumn]) -> Result<()> {
    let is_twice = |column: &&ScopeColumn| left.iter().any(|other| other.collides(column));
    let Some(column) = right.iter().find(is_twice) else { return Ok(()) };
    let name = column.table.clone().unwrap_or_default();
    Err(Error::new(SqlState::DUPLICATE_ALIAS, format!("table name \"{name}\" specified more than once")))
}

pub fn renamed(mut columns: Vec<ScopeColumn>, alias: &Alias) -> Result<Vec<ScopeColumn>> {
    if alias.columns.len() > columns.len() {
        let name = alias.name.clone().unwrap_or_default();
        let message = format!(
            "table \"{name}\" has {} columns available but {} columns specified",
            columns.len(),
            alias.columns.len()
        );
        return Err(Error::new(SqlState::INVALID_COLUMN_REFERENCE, message));
    }
    for (column, name) in columns.iter_mut().zip(&alias.columns) {
        column.name.clone_from(name);
    }
    Ok(columns)
}
