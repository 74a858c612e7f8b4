//! Rows as values: `ROW(..)`, the row of a table by its name, fields, and comparisons of rows.
//!
//! A row that was written has the type of its fields, without a name. That of a table has the type of the table if its
//! columns have the names and types of the table's.

use std::collections::BTreeSet;

use lodestone_sql_types::cast::Context;
use lodestone_sql_types::composite::{self, Attribute, Composite};
use lodestone_sql_types::op::Comparison;
use lodestone_sql_types::{Datum, Error, Result, SqlState, Type};

use super::Binder;
use super::expr::{Typed, negate_if};
use super::scope::{Scope, ScopeColumn};
use crate::catalog::types::{self, RowChecks};
use crate::parse::ast::{self, EVERY_FIELD, Name, Position};
use crate::plan::{Expr, Node, SetFunction};

/// A field with its name.
type Named = (String, Typed);

/// The columns of a table, and whether it may have no row.
type TableFields = (Vec<(ScopeColumn, Typed)>, bool);

/// The type of rows with these fields.
fn type_of(fields: &[Named]) -> Result<Type> {
    let attribute = |((name, typed), number): (&Named, i16)| Attribute {
        name: name.clone(),
        ty: typed.ty,
        modifier: typed.modifier,
        number,
        domain: 0,
    };
    let attributes = fields.iter().zip(1..).map(attribute).collect();
    Composite::of(composite::Definition::anonymous(attributes)).map(Type::Composite)
}

/// Refuses to compare rows whose fields have other types.
///
/// # Errors
/// 42804; 42883 for a field that has no order.
pub(super) fn check_same_fields(one: Type, two: Type) -> Result<()> {
    if one == two {
        return check_ordered(one, &mut BTreeSet::new());
    }
    let (Some(one), Some(two)) = (one.attributes(), two.attributes()) else { return Ok(()) };
    if one.len() != two.len() {
        let message = "cannot compare record types with different numbers of columns";
        return Err(Error::new(SqlState::DATATYPE_MISMATCH, message));
    }
    for ((one, two), number) in one.iter().zip(two).zip(1..) {
        if one.ty != two.ty && !(one.ty.is_row() && two.ty.is_row()) {
            let message =
                format!("cannot compare dissimilar column types {} and {} at record column {number}", one.ty, two.ty);
            return Err(Error::new(SqlState::DATATYPE_MISMATCH, message));
        }
        check_same_fields(one.ty, two.ty)?;
    }
    Ok(())
}

/// Refuses to compare values that have no order, or have those in them. `seen`: types that were met before.
fn check_ordered(ty: Type, seen: &mut BTreeSet<u32>) -> Result<()> {
    let ty = ty.element().unwrap_or(ty);
    if ty == Type::Json {
        let message = "could not identify an equality operator for type json";
        return Err(Error::new(SqlState::UNDEFINED_FUNCTION, message));
    }
    let is_new = ty.is_record() || seen.insert(ty.oid());
    let fields = ty.attributes().filter(|_| is_new).into_iter().flatten();
    fields.map(|field| field.ty).try_for_each(|ty| check_ordered(ty, seen))
}

impl Binder<'_> {
    /// `ROW(a, b)`.
    pub(super) fn row(&mut self, list: &[ast::Expr], scope: &Scope<'_>) -> Result<Typed> {
        let fields = self.row_fields(list, scope)?;
        let ty = type_of(&fields)?;
        Ok(Typed::new(Expr::Record(fields.into_iter().map(|(_, typed)| typed.expr).collect()), ty))
    }

    /// The fields of a row that was written, where `t.*` stands for all fields of another one.
    fn row_fields(&mut self, list: &[ast::Expr], scope: &Scope<'_>) -> Result<Vec<Named>> {
        let mut found: Vec<Named> = Vec::new();
        for expr in list {
            match expr {
                ast::Expr::Field(base, name) if name.value == EVERY_FIELD => {
                    found.extend(self.every_field(base, name.at, scope)?);
                }
                expr => {
                    let typed = self.expr(expr, scope)?;
                    // A literal stays input: the row may become one of a type.
                    let typed = if matches!(typed.expr, Expr::Const(_)) { typed } else { self.known(typed) };
                    found.push((String::new(), typed));
                }
            }
        }
        for ((name, _), number) in found.iter_mut().zip(1..) {
            *name = format!("f{number}");
        }
        Ok(found)
    }

    /// The row of the table of this name. `None`: there is no such table in the query.
    pub(super) fn whole_row(&mut self, names: &[String], scope: &Scope<'_>) -> Result<Option<Typed>> {
        let Some((fields, is_outer)) = self.table_fields(names, scope)? else { return Ok(None) };
        let number = if is_outer { self.table_number(names, &fields, scope)? } else { None };
        let ty = match self.table_type(&fields) {
            Some(ty) => ty?,
            None => {
                let named: Vec<Named> =
                    fields.iter().map(|(column, typed)| (column.name.clone(), typed.clone())).collect();
                type_of(&named)?
            }
        };
        let row = Expr::Record(fields.into_iter().map(|(_, typed)| typed.expr).collect());
        // An outer join without a row on this side has no row at all, and not one of nulls.
        let expr = match is_outer {
            true => {
                let tested = number.unwrap_or_else(|| row.clone());
                let branches = vec![(Expr::IsNull(Box::new(tested)), Expr::Const(Datum::Null))];
                Expr::Case { branches, otherwise: Box::new(row) }
            }
            false => row,
        };
        Ok(Some(Typed::new(expr, ty)))
    }

    /// The number of the table of a row, which is null if an outer join has found no row. `None`: the columns tell it.
    ///
    /// # Errors
    /// That of a column which is not there: the statement is bound again with it.
    fn table_number(
        &mut self,
        names: &[String],
        fields: &[(ScopeColumn, Typed)],
        scope: &Scope<'_>,
    ) -> Result<Option<Expr>> {
        let Some((oid, _)) = fields.first().and_then(|(column, _)| column.origin) else { return Ok(None) };
        let Some(table) = self.catalog.table_of(oid) else { return Ok(None) };
        let is_grouped = self.grouping.as_ref().is_some_and(|grouping| !grouping.is_inside);
        if is_grouped || table.columns.iter().any(|column| column.not_null) {
            return Ok(None);
        }
        let name = names.iter().cloned().chain(["tableoid".to_owned()]).collect();
        self.expr(&ast::Expr::Column(name, ast::NOWHERE), scope).map(|typed| Some(typed.expr))
    }

    /// The columns of the table of this name, in the order of its definition, and whether it may have no row.
    fn table_fields(&mut self, names: &[String], scope: &Scope<'_>) -> Result<Option<TableFields>> {
        let (schema, table) = match names {
            [table] => (None, table.as_str()),
            [schema, table] => (Some(self.catalog.own_schema(schema)), table.as_str()),
            _ => return Ok(None),
        };
        // Over groups the scope has the keys, not the columns.
        let groups = self.grouping.as_ref().filter(|grouping| !grouping.is_inside).map(|grouping| &grouping.columns);
        let is_grouped = groups.is_some();
        let first = groups.cloned();
        let (mut depth, mut next) = (0, Some(scope));
        while let Some(this) = next {
            let columns = first.as_ref().filter(|_| depth == 0).unwrap_or(&this.columns);
            let own = |column: &&ScopeColumn| column.is_of(schema, table) && column.name != "tableoid";
            let found: Vec<(usize, ScopeColumn)> = columns
                .iter()
                .enumerate()
                .filter(|(_, column)| own(column))
                .map(|(at, one)| (at, one.clone()))
                .collect();
            if let [(_, first), ..] = &found[..] {
                if found.iter().any(|(_, column)| column.relation != first.relation) {
                    let message = format!("table reference \"{table}\" is ambiguous");
                    return Err(Error::new(SqlState::AMBIGUOUS_ALIAS, message));
                }
                let is_outer = found.iter().any(|(_, column)| column.is_outer);
                let mut fields = Vec::new();
                for (index, column) in found {
                    let typed = match depth == 0 && is_grouped {
                        true => {
                            let name = names.iter().cloned().chain([column.name.clone()]).collect();
                            self.expr(&ast::Expr::Column(name, ast::NOWHERE), scope)?
                        }
                        false => {
                            Typed { expr: Expr::Column { depth, index }, ty: column.ty, modifier: column.modifier }
                        }
                    };
                    fields.push((column, typed));
                }
                // Columns that a join shares come first in its rows.
                let table = |(column, _): &(ScopeColumn, Typed)| column.origin.map(|(table, _)| table);
                if fields.windows(2).all(|pair| table(&pair[0]).is_some() && table(&pair[0]) == table(&pair[1])) {
                    fields.sort_by_key(|(column, _)| column.origin.map(|(_, number)| number));
                }
                return Ok(Some((fields, is_outer)));
            }
            next = this.parent;
            depth += 1;
        }
        Ok(None)
    }

    /// The type of a table whose columns these are.
    fn table_type(&self, fields: &[(ScopeColumn, Typed)]) -> Option<Result<Type>> {
        let (oid, _) = fields.first()?.0.origin?;
        let table = self.catalog.tables.values().find(|table| table.oid == oid)?;
        let is_same = |((column, _), (own, number)): (&(ScopeColumn, Typed), (&crate::catalog::ColumnDef, i16))| {
            column.origin == Some((oid, number)) && column.name == own.name && column.ty == own.ty
        };
        let is_all = table.columns.len() == fields.len();
        (is_all && fields.iter().zip(table.columns.iter().zip(1..)).all(is_same)).then(|| table.row_type())
    }

    /// `(row).field`.
    pub(super) fn field(&mut self, base: &ast::Expr, name: &Name, scope: &Scope<'_>) -> Result<Typed> {
        if name.value == EVERY_FIELD {
            return self.expr(base, scope);
        }
        // A column of a table, where an index may be of use.
        if let ast::Expr::Column(names, _) = base
            && self.expr(base, scope).is_ok_and(|typed| typed.ty.is_row())
            && scope.find(names, name.at).is_err()
            && let Some((fields, _)) = self.table_fields(names, scope)?
        {
            let found = fields.into_iter().find(|(column, _)| column.name == name.value);
            return found.map(|(_, typed)| typed).ok_or_else(|| {
                let table = names.last().cloned().unwrap_or_default();
                let message = format!("column {table}.{} does not exist", name.value);
                Error::new(SqlState::UNDEFINED_COLUMN, message).at(name.at)
            });
        }
        let base = self.expr(base, scope)?;
        self.field_of(base, name)
    }

    pub(super) fn field_of(&mut self, base: Typed, name: &Name) -> Result<Typed> {
        let Some(attributes) = base.ty.attributes() else {
            // The fields of the one function of the system that returns records with names.
            if base.ty == Type::Record && matches!(&*name.value, "x" | "n") {
                return self.named(&format!("lodestone_record_{}", name.value), vec![base], name.at);
            }
            let (state, message) = match base.ty {
                Type::Record => (
                    SqlState::UNDEFINED_COLUMN,
                    format!("could not identify column \"{}\" in record data type", name.value),
                ),
                ty => {
                    let what =
                        format!("column notation .{} applied to type {ty}, which is not a composite type", name.value);
                    (SqlState::WRONG_OBJECT_TYPE, what)
                }
            };
            return Err(Error::new(state, message).at(name.at));
        };
        let Some(place) = attributes.iter().position(|field| field.name == name.value) else {
            let message = match base.ty.is_record() {
                true => format!("could not identify column \"{}\" in record data type", name.value),
                false => format!("column \"{}\" not found in data type {}", name.value, base.ty),
            };
            return Err(Error::new(SqlState::UNDEFINED_COLUMN, message).at(name.at));
        };
        Ok(field_at(base, place, &attributes[place]))
    }

    /// `(row).*`.
    pub(super) fn every_field(&mut self, base: &ast::Expr, at: Position, scope: &Scope<'_>) -> Result<Vec<Named>> {
        if let ast::Expr::Column(names, _) = base
            && scope.find(names, at).is_err()
            && let Some((fields, _)) = self.table_fields(names, scope)?
        {
            return Ok(fields.into_iter().map(|(column, typed)| (column.name, typed)).collect());
        }
        let base = self.expr(base, scope)?;
        let Some(attributes) = base.ty.attributes() else {
            let message = match base.ty {
                Type::Record => "record type has not been registered".to_owned(),
                ty => format!("type {ty} is not composite"),
            };
            return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message).at(at));
        };
        let field = |(place, attribute): (usize, &Attribute)| {
            (attribute.name.clone(), field_at(base.clone(), place, attribute))
        };
        Ok(attributes.iter().enumerate().map(field).collect())
    }

    /// Compares pairs of values: the first pair that differs says which row is the less one.
    pub(super) fn compare_pairs(&mut self, op: Comparison, pairs: Vec<(Typed, Typed)>, at: Position) -> Result<Typed> {
        let empty = || Error::new(SqlState::FEATURE_NOT_SUPPORTED, "cannot compare rows of zero length").at(at);
        let compare =
            |one: &Expr, two: &Expr, op, ty| Expr::Compare(op, ty, Box::new(one.clone()), Box::new(two.clone()));
        let mut met = Vec::new();
        for (one, two) in pairs {
            let (one, two, ty) = self.meet(one, two, op.symbol(), at)?;
            met.push((one.expr, two.expr, ty));
        }
        if matches!(op, Comparison::Equal | Comparison::NotEqual) {
            let all = Expr::all(met.iter().map(|(one, two, ty)| compare(one, two, Comparison::Equal, *ty)));
            return Ok(negate_if(op == Comparison::NotEqual, all.ok_or_else(empty)?));
        }
        let strict = match op {
            Comparison::LessOrEqual => Comparison::Less,
            Comparison::GreaterOrEqual => Comparison::Greater,
            other => other,
        };
        let mut found: Option<Expr> = None;
        for (one, two, ty) in met.iter().rev() {
            found = Some(match found {
                None => compare(one, two, op, *ty),
                Some(rest) => {
                    let equal = compare(one, two, Comparison::Equal, *ty);
                    let both = Expr::And(Box::new(equal), Box::new(rest));
                    Expr::Or(Box::new(compare(one, two, strict, *ty)), Box::new(both))
                }
            });
        }
        found.map(|found| Typed::new(found, Type::Bool)).ok_or_else(empty)
    }

    /// `(a, b) = (SELECT c, d ..)`.
    pub(super) fn compare_with_query(
        &mut self,
        op: Comparison,
        (list, query): (&[ast::Expr], &ast::Query),
        at: Position,
        scope: &Scope<'_>,
    ) -> Result<Typed> {
        let (node, columns) = self.nested_query(query, scope)?;
        check_count(list.len(), columns.len(), at)?;
        let row = (0..columns.len()).map(|index| Expr::Column { depth: 0, index }).collect();
        let node = Node::Project { input: Box::new(super::memo::kept(node)), columns: vec![Expr::Record(row)] };
        let row = Expr::Scalar(Box::new(node));
        let mut pairs = Vec::new();
        for (number, (expr, column)) in list.iter().zip(&columns).enumerate() {
            let right = Expr::Field(Box::new(row.clone()), number);
            pairs.push((self.expr(expr, scope)?, Typed { expr: right, ty: column.ty, modifier: column.modifier }));
        }
        self.compare_pairs(op, pairs, at)
    }

    /// `(a, b) IN (SELECT c, d ..)`.
    pub(super) fn row_in_query(
        &mut self,
        (list, query): (&[ast::Expr], &ast::Query),
        negated: bool,
        at: Position,
        scope: &Scope<'_>,
    ) -> Result<Typed> {
        let (node, columns) = self.nested_query(query, scope)?;
        check_count(list.len(), columns.len(), at)?;
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for (index, (expr, column)) in list.iter().zip(&columns).enumerate() {
            let own = self.expr(expr, scope)?;
            let other = Typed { expr: Expr::Column { depth: 0, index }, ty: column.ty, modifier: column.modifier };
            let (own, other, _) = self.meet(own, other, "=", at)?;
            left.push(own.expr);
            right.push(other.expr);
        }
        let node = super::memo::kept(node);
        let node = Node::Project { input: Box::new(node), columns: vec![Expr::Record(right)] };
        let found = Expr::InQuery(Type::Record, Box::new(Expr::Record(left)), Box::new(node));
        Ok(negate_if(negated, found))
    }

    /// The row as one of a named type, if its fields are written.
    pub(super) fn row_as(
        &mut self,
        (list, from): (Vec<Expr>, Composite),
        to: Type,
        within: Context,
        at: Position,
    ) -> Result<Typed> {
        let attributes = to.attributes().unwrap_or_default();
        let wrong = |detail: String| {
            let error = Error::new(SqlState::CANNOT_COERCE, format!("cannot cast type record to {to}"));
            error.detail(detail).at(at)
        };
        if list.len() != attributes.len() {
            let what = if list.len() < attributes.len() { "few" } else { "many" };
            return Err(wrong(format!("Input has too {what} columns.")));
        }
        let mut fields = Vec::new();
        for (((expr, own), attribute), number) in list.into_iter().zip(from.attributes()).zip(attributes).zip(1..) {
            let ty = own.ty;
            let typed = Typed { expr, ty, modifier: own.modifier };
            let typed = self.coerce(typed, attribute.ty, within, at).map_err(|error| match error.state() {
                SqlState::DATATYPE_MISMATCH => {
                    wrong(format!("Cannot cast type {ty} to {} in column {number}.", attribute.ty))
                }
                _ => error,
            })?;
            let is_explicit = within == Context::Explicit;
            fields.push(self.fitted(typed, attribute.ty, attribute.modifier, is_explicit).expr);
        }
        Ok(Typed::new(Expr::Record(fields), to))
    }

    /// A value that has become one of a type, with the tests of the domains in it.
    pub(super) fn with_checks(&self, typed: Typed) -> Typed {
        match RowChecks::of(&self.catalog.types, typed.ty) {
            Some(checks) => Typed { expr: Expr::Checked(Box::new(typed.expr), checks), ..typed },
            None => typed,
        }
    }

    /// `json_populate_record(base, json)`, or of a set of rows. Returns base, JSON, and the type of the rows.
    pub(super) fn populated(
        &mut self,
        name: &str,
        arguments: Vec<Typed>,
        at: Position,
    ) -> Result<(Typed, Typed, Type)> {
        let types: Vec<Type> = arguments.iter().map(|typed| typed.ty).collect();
        let wrong = || super::call::undefined(name, &types, at);
        let mut arguments = arguments.into_iter();
        let (Some(base), Some(json)) = (arguments.next(), arguments.next()) else { return Err(wrong()) };
        let wanted = if name.starts_with("jsonb") { Type::Jsonb } else { Type::Json };
        let json = self.coerce(json, wanted, Context::Implicit, at).map_err(|error| match error.state() {
            SqlState::DATATYPE_MISMATCH => wrong(),
            _ => error,
        })?;
        match base.ty {
            Type::Composite(_) => {}
            Type::Unknown => {
                let message = "could not determine polymorphic type because input has type unknown";
                return Err(super::mismatch(message.into(), at));
            }
            Type::Record => {
                let message = format!("could not determine row type for result of {name}");
                let hint = "Provide a non-null record argument, or call the function in the FROM clause using a column \
                            definition list.";
                return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message).hint(hint).at(at));
            }
            _ => {
                let message = format!("first argument of {name} must be a row type");
                return Err(super::mismatch(message, at));
            }
        }
        let ty = base.ty;
        Ok((base, json, ty))
    }

    /// A row that a function makes of JSON, with the tests of the domains in it, and of that of the row it is over.
    pub(super) fn checked_row(&self, value: Typed, (function, arguments): (SetFunction, &[Expr])) -> Typed {
        if !matches!(function, SetFunction::JsonRows(_)) {
            return value;
        }
        let made = self.with_checks(value);
        match arguments.first() {
            Some(Expr::Domain { domain, .. }) => {
                Typed { expr: Expr::Domain { expr: Box::new(made.expr), domain: domain.clone() }, ..made }
            }
            _ => made,
        }
    }

    /// The fields of the rows that a function returns, as columns.
    pub(super) fn spread(
        &self,
        (function, arguments): (SetFunction, Vec<Expr>),
        ty: Type,
        has_ordinality: bool,
    ) -> Node {
        let column = |index| Expr::Column { depth: 0, index };
        let value = self.checked_row(Typed::new(column(0), ty), (function, &arguments)).expr;
        let is_plain = matches!(value, Expr::Column { .. });
        let rest = 1..1 + usize::from(has_ordinality);
        let node = Node::Function { function, arguments, has_ordinality };
        let Some(attributes) = ty.attributes().filter(|_| !ty.is_record()) else { return node };
        let node = match is_plain {
            true => node,
            false => {
                let columns = [value].into_iter().chain(rest.clone().map(column)).collect();
                Node::Project { input: Box::new(node), columns }
            }
        };
        let fields = (0..attributes.len()).map(|place| Expr::Field(Box::new(column(0)), place));
        Node::Project { input: Box::new(node), columns: fields.chain(rest.map(column)).collect() }
    }

    /// `value` with another value of the part that the steps lead to.
    pub(super) fn with_part(
        &mut self,
        base: Typed,
        steps: &[ast::Subscript],
        value: &ast::Expr,
        (column, at): (&str, Position),
        scope: &Scope<'_>,
    ) -> Result<Expr> {
        let Some(Name { value: name, at: place }) = steps.first().and_then(|step| step.field.as_ref()) else {
            let count = steps.iter().position(|step| step.field.is_some()).unwrap_or(steps.len());
            let (own, rest) = steps.split_at(count);
            return self.with_subscripts(base, (own, rest), value, (column, at), scope);
        };
        let Some(attributes) = base.ty.attributes() else {
            let message = format!(
                "cannot assign to field \"{name}\" of column \"{column}\" because its type {} is not a composite type",
                base.ty
            );
            return Err(Error::new(SqlState::DATATYPE_MISMATCH, message).at(*place));
        };
        let Some(found) = attributes.iter().position(|attribute| attribute.name == *name) else {
            let message = format!(
                "cannot assign to field \"{name}\" of column \"{column}\" because there is no such column in data type {}",
                base.ty
            );
            return Err(Error::new(SqlState::UNDEFINED_COLUMN, message).at(*place));
        };
        let mut fields: Vec<Expr> = Vec::new();
        for (number, attribute) in attributes.iter().enumerate() {
            let own = field_at(base.clone(), number, attribute);
            if number != found {
                fields.push(own.expr);
                continue;
            }
            fields.push(match &steps[1..] {
                [] => {
                    let typed = self.expr(value, scope)?;
                    let value = self.part_value(typed, (attribute.ty, attribute.modifier), (name, "subfield"), at)?;
                    match types::of_oid(&self.catalog.types, attribute.domain).and_then(|found| found.domain) {
                        Some(domain) => Expr::Domain { expr: Box::new(value), domain },
                        None => value,
                    }
                }
                rest => self.with_part(own, rest, value, (name, at), scope)?,
            });
        }
        Ok(Expr::Record(fields))
    }

    /// A value for a part of a column.
    pub(super) fn part_value(
        &mut self,
        typed: Typed,
        (ty, modifier): (Type, i32),
        (name, what): (&str, &str),
        at: Position,
    ) -> Result<Expr> {
        let own = typed.ty;
        let wrong = |error: Error| match error.state() {
            SqlState::DATATYPE_MISMATCH => {
                let message = match what {
                    "subfield" => format!("subfield \"{name}\" is of type {ty} but expression is of type {own}"),
                    _ => format!(
                        "subscripted assignment to \"{name}\" requires type {ty} but expression is of type {own}"
                    ),
                };
                super::mismatch(message, at).hint("You will need to rewrite or cast the expression.")
            }
            _ => error,
        };
        let typed = self.coerce(typed, ty, Context::Assignment, at).map_err(wrong)?;
        Ok(self.fitted(typed, ty, modifier, false).expr)
    }
}

/// Refuses a subquery with another number of columns than the row that it is compared with.
fn check_count(row: usize, query: usize, at: Position) -> Result<()> {
    if row == query {
        return Ok(());
    }
    let what = if query < row { "few" } else { "many" };
    Err(Error::new(SqlState::SYNTAX_ERROR, format!("subquery has too {what} columns")).at(at))
}

/// A field of a row by its place.
fn field_at(base: Typed, place: usize, attribute: &Attribute) -> Typed {
    let expr = match base.expr {
        Expr::Record(mut list) if place < list.len() && !list.iter().any(Expr::is_volatile) => list.swap_remove(place),
        other => Expr::Field(Box::new(other), place),
    };
    Typed { expr, ty: attribute.ty, modifier: attribute.modifier }
}
