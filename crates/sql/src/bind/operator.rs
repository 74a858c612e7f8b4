//! Operators beyond comparison and the arithmetic of numbers: moments and spans, JSON, arrays, rows.
//!
//! An operator is a function under another name. Which one is meant, the types of its sides say.

use lodestone_sql_types::cast::Context;
use lodestone_sql_types::op::Arithmetic;
use lodestone_sql_types::{Datum, Error, Result, SqlState, Type};

use super::Binder;
use super::expr::{Typed, no_operator};
use super::scope::Scope;
use crate::catalog::TableDef;
use crate::parse::ast::{self, Position};
use crate::plan::{Expr, Part};

/// The types in which two values are added or multiplied, and that of the result.
fn temporal(operation: Arithmetic, one: Type, two: Type) -> Option<(Type, Type, Type)> {
    use Arithmetic::{Add, Divide, Multiply, Subtract};
    use Type::{Date, Float8, Interval, Time, Timestamp, Timestamptz, Timetz, Unknown};
    Some(match (one, operation, two) {
        (Date, Add | Subtract, Interval) => (Timestamp, Interval, Timestamp),
        (Interval, Add, Date) => (Interval, Timestamp, Timestamp),
        (Date, Add, Time) | (Time, Add, Date) => (Timestamp, Timestamp, Timestamp),
        (Date, Add, Timetz) | (Timetz, Add, Date) => (one, two, Timestamptz),
        (Timestamp | Timestamptz | Time | Timetz, Add | Subtract, Interval) => (one, Interval, one),
        (Timestamp | Timestamptz, Add, Unknown) => (one, Interval, one),
        (Interval, Add, Timestamp | Timestamptz | Time | Timetz) => (Interval, two, two),
        (Interval, Add | Subtract, Interval | Unknown) | (Unknown, Add | Subtract, Interval) => {
            (Interval, Interval, Interval)
        }
        (Timestamptz, Subtract, Timestamp | Timestamptz | Date | Unknown)
        | (Timestamp | Date | Unknown, Subtract, Timestamptz) => (Timestamptz, Timestamptz, Interval),
        (Timestamp, Subtract, Timestamp | Date | Unknown) | (Date | Unknown, Subtract, Timestamp) => {
            (Timestamp, Timestamp, Interval)
        }
        (Time, Subtract, Time | Unknown) => (Interval, Interval, Interval),
        (Interval, Multiply | Divide, _) if two.is_number() || two == Unknown => (Interval, Float8, Interval),
        (_, Multiply, Interval) if one.is_number() || one == Unknown => (Float8, Interval, Interval),
        _ => return None,
    })
}

/// The function that an operator is for these types.
fn function_of(op: &str, one: Type, two: Type) -> Option<&'static str> {
    let is_number = matches!(two, Type::Int2 | Type::Int4 | Type::Int8);
    let is_array = one.element().is_some() || two.element().is_some();
    let is_json = one == Type::Jsonb || two == Type::Jsonb;
    Some(match op {
        "->" if is_number => "json_array_element",
        "->" => "json_object_field",
        "->>" if is_number => "json_array_element_text",
        "->>" => "json_object_field_text",
        "#>" => "json_path",
        "#>>" => "json_path_text",
        "#-" => "jsonb_delete_path",
        "?" => "jsonb_exists",
        "?|" => "jsonb_exists_any",
        "?&" => "jsonb_exists_all",
        "@>" if is_json => "jsonb_contains",
        "<@" if is_json => "jsonb_contained",
        "@>" if is_array => "array_contains",
        "<@" if is_array => "array_contained",
        "&&" if is_array => "array_overlap",
        "^@" => "starts_with",
        "^" => "power",
        "-" if one == Type::Jsonb => "jsonb_delete",
        "||" if is_json && !is_array => "jsonb_concat",
        _ => return None,
    })
}

impl Binder<'_> {
    /// A sum of moments and spans. `None`: it is one of something else.
    pub(super) fn temporal(
        &mut self,
        operation: Arithmetic,
        (one, two): (Typed, Typed),
        at: Position,
    ) -> Result<Result<Typed, (Typed, Typed)>> {
        let Some((left, right, ty)) = temporal(operation, one.ty, two.ty) else { return Ok(Err((one, two))) };
        // A time of day becomes a span from midnight when it is added to a day.
        let mut side = |typed: Typed, to: Type| -> Result<Typed> {
            if typed.ty == Type::Time && to == Type::Timestamp {
                return Ok(Typed::new(typed.expr, to));
            }
            self.coerce(typed, to, Context::Assignment, at)
        };
        let (one, two) = (side(one, left)?, side(two, right)?);
        let expr = Expr::Arithmetic(operation, ty, Box::new(one.expr), Box::new(two.expr));
        Ok(Ok(Typed::new(expr, ty)))
    }

    /// An operator that is a function.
    pub(super) fn operator(&mut self, op: &str, one: Typed, two: Typed, at: Position) -> Result<Typed> {
        let types = (one.ty, two.ty);
        let wrong = || no_operator(&format!("{} {op} {}", types.0, types.1), at);
        let name = function_of(op, types.0, types.1).ok_or_else(wrong)?;
        let arrays = name.starts_with("array_");
        let (one, two) = if arrays { self.same_arrays(one, two, at).map_err(|_| wrong())? } else { (one, two) };
        self.named(name, vec![one, two], at).map_err(|error| match error.state() {
            SqlState::UNDEFINED_FUNCTION => wrong(),
            _ => error,
        })
    }

    /// Both sides as arrays of one type.
    fn same_arrays(&mut self, one: Typed, two: Typed, at: Position) -> Result<(Typed, Typed)> {
        let ty = if one.ty.element().is_some() { one.ty } else { two.ty };
        let other = if one.ty.element().is_some() { two.ty } else { one.ty };
        if other != Type::Unknown && other != ty {
            return Err(no_operator("arrays of two types", at));
        }
        Ok((self.coerce(one, ty, Context::Implicit, at)?, self.coerce(two, ty, Context::Implicit, at)?))
    }

    /// The name or number of a part of a `jsonb`, as a text.
    pub(super) fn json_subscript(&mut self, index: &ast::Expr, at: Position, scope: &Scope<'_>) -> Result<Typed> {
        let index_at = index.at();
        let index = self.expr(index, scope)?;
        if !index.ty.is_text() && !matches!(index.ty, Type::Int2 | Type::Int4) {
            let message = format!("subscript type {} is not supported", index.ty);
            let hint = "jsonb subscript must be coercible to either integer or text.";
            return Err(super::mismatch(message, index_at).hint(hint));
        }
        self.coerce(index, Type::Text, Context::Assignment, at)
    }

    /// `a[1][2]`, `a[1:2]`.
    pub(super) fn part(
        &mut self,
        base: &ast::Expr,
        list: &[ast::Subscript],
        at: Position,
        scope: &Scope<'_>,
    ) -> Result<Typed> {
        let base = self.expr(base, scope)?;
        let is_slice = list.iter().any(|one| one.is_slice);
        if base.ty == Type::Jsonb {
            if is_slice {
                return Err(super::mismatch("jsonb subscript does not support slices".into(), at));
            }
            let mut found = base;
            for index in list.iter().filter_map(|one| one.high.as_ref()) {
                let index = self.json_subscript(index, at, scope)?;
                found = Typed::new(Expr::Element(Box::new(found.expr), Box::new(index.expr)), Type::Jsonb);
            }
            return Ok(found);
        }
        let Some(element) = base.ty.element() else {
            let message = format!("cannot subscript type {} because it does not support subscripting", base.ty);
            return Err(super::mismatch(message, at));
        };
        lodestone_sql_types::array::check_dimensions(list.len()).map_err(|error| error.at(at))?;
        let (ty, modifier) = (if is_slice { base.ty } else { element }, base.modifier);
        let list = self.bounds(list, is_slice, at, scope)?;
        let part = Part { base: base.expr, list, is_slice, value: None, json: None };
        Ok(Typed { expr: Expr::Part(Box::new(part)), ty, modifier })
    }

    /// The bounds of subscripts. An index among slices reaches from 1 to itself.
    fn bounds(
        &mut self,
        list: &[ast::Subscript],
        is_slice: bool,
        at: Position,
        scope: &Scope<'_>,
    ) -> Result<Vec<(Option<Expr>, Option<Expr>)>> {
        let mut found = Vec::new();
        for one in list {
            let mut bound = |expr: &Option<ast::Expr>| -> Result<Option<Expr>> {
                let Some(expr) = expr else { return Ok(None) };
                let typed = self.expr(expr, scope)?;
                let wrong = |error: Error| match error.state() {
                    SqlState::DATATYPE_MISMATCH => super::mismatch("array subscript must have type integer".into(), at),
                    _ => error,
                };
                self.coerce(typed, Type::Int4, Context::Assignment, at).map(|typed| Some(typed.expr)).map_err(wrong)
            };
            let (low, high) = (bound(&one.low)?, bound(&one.high)?);
            let first = || Some(Expr::Const(Datum::Int(1)));
            found.push((if is_slice && !one.is_slice { first() } else { low }, high));
        }
        Ok(found)
    }

    /// The value of a column with another part.
    pub(super) fn assigned_part(
        &mut self,
        table: &TableDef,
        column: usize,
        expr: &ast::Expr,
        scope: &Scope<'_>,
    ) -> Result<Expr> {
        let ast::Expr::Assigned { base, list, value, at } = expr else {
            return Ok(Expr::Const(Datum::Null));
        };
        let base = match base {
            None => Expr::Column { depth: 0, index: column },
            Some(before) => self.assigned_part(table, column, before, scope)?,
        };
        let own = &table.columns[column];
        let base = Typed { expr: base, ty: own.ty, modifier: own.modifier };
        self.with_part(base, list, value, (&own.name, *at), scope)
    }

    /// An array or `jsonb` with another value at subscripts, or at the `rest` of the steps from there.
    pub(super) fn with_subscripts(
        &mut self,
        base: Typed,
        (list, rest): (&[ast::Subscript], &[ast::Subscript]),
        value: &ast::Expr,
        (name, at): (&str, Position),
        scope: &Scope<'_>,
    ) -> Result<Expr> {
        let Some(element) = base.ty.element() else {
            if base.ty == Type::Jsonb && rest.is_empty() {
                return self.assigned_json(base.expr, (list, value), at, scope);
            }
            let message = format!("cannot subscript type {} because it does not support subscripting", base.ty);
            return Err(super::mismatch(message, at));
        };
        let is_slice = list.iter().any(|one| one.is_slice);
        let wanted = if is_slice { base.ty } else { element };
        let bounds = self.bounds(list, is_slice, at, scope)?;
        let of = |value| Part { base: base.expr.clone(), list: bounds.clone(), is_slice, value, json: None };
        let value = match rest {
            [] => {
                let typed = self.expr(value, scope)?;
                self.part_value(typed, (wanted, base.modifier), (name, "subscripted"), at)?
            }
            rest => {
                let element = Typed { expr: Expr::Part(Box::new(of(None))), ty: wanted, modifier: base.modifier };
                self.with_part(element, rest, value, (name, at), scope)?
            }
        };
        Ok(Expr::Part(Box::new(of(Some(value)))))
    }

    /// A `jsonb` with another part.
    fn assigned_json(
        &mut self,
        base: Expr,
        (list, value): (&[ast::Subscript], &ast::Expr),
        at: Position,
        scope: &Scope<'_>,
    ) -> Result<Expr> {
        if list.iter().any(|one| one.is_slice) {
            return Err(super::mismatch("jsonb subscript does not support slices".into(), at));
        }
        let typed = self.expr(value, scope)?;
        let value = self.coerce(typed, Type::Jsonb, Context::Assignment, at)?.expr;
        let (mut path, mut is_array) = (Vec::new(), None);
        for index in list.iter().filter_map(|one| one.high.as_ref()) {
            let typed = self.expr(index, scope)?;
            is_array = is_array.or(Some(matches!(typed.ty, Type::Int2 | Type::Int4 | Type::Int8)));
            path.push((None, Some(self.coerce(typed, Type::Text, Context::Assignment, at)?.expr)));
        }
        Ok(Expr::Part(Box::new(Part { base, list: path, is_slice: false, value: Some(value), json: is_array })))
    }

    /// A value as JSON.
    pub(super) fn as_json(&mut self, typed: Typed) -> Typed {
        let typed = self.known(typed);
        match typed.ty {
            Type::Json => typed,
            ty => Typed::new(Expr::ToJson(ty, Box::new(typed.expr)), Type::Json),
        }
    }

    /// Functions whose arguments are values of any type that become JSON. `None`: it is another function.
    pub(super) fn json_call(&mut self, name: &str, arguments: &[Typed], at: Position) -> Result<Option<Typed>> {
        let is_tree = name.contains("jsonb");
        let to_tree = |typed: Typed| {
            let expr = Expr::Cast { expr: Box::new(typed.expr), from: Type::Json, to: Type::Jsonb };
            Typed::new(expr, Type::Jsonb)
        };
        match (name, arguments) {
            ("to_json" | "to_jsonb" | "array_to_json" | "row_to_json", [value, ..]) => {
                if name == "array_to_json" && value.ty.element().is_none()
                    || name == "row_to_json" && !value.ty.is_row()
                {
                    return Ok(None);
                }
                if value.ty == Type::Unknown && matches!(value.expr, Expr::Const(_)) {
                    let message = "could not determine polymorphic type because input has type unknown";
                    return Err(Error::new(SqlState::DATATYPE_MISMATCH, message).at(at));
                }
                // A null value stays null, and is no JSON `null`.
                let inner = self.as_json(value.clone());
                let typed = if is_tree { to_tree(inner) } else { inner };
                let is_null = Expr::IsNull(Box::new(value.expr.clone()));
                let branches = vec![(is_null, Expr::Const(Datum::Null))];
                Ok(Some(Typed { expr: Expr::Case { branches, otherwise: Box::new(typed.expr) }, ..typed }))
            }
            ("json_build_array" | "jsonb_build_array" | "json_build_object" | "jsonb_build_object", list) => {
                let list = list.iter().map(|typed| self.as_json(typed.clone())).collect();
                self.named(name, list, at).map(Some)
            }
            _ => Ok(None),
        }
    }
}
