//! Expressions.

use lodestone_sql_types::cast::{Context, context, convert, second_digits};
use lodestone_sql_types::op::{Arithmetic, Comparison};
use lodestone_sql_types::{Datum, Error, Numeric, Result, SqlState, Type, text};

use super::scope::Scope;
use super::{Binder, UserType, mismatch, user_type};
use crate::parse::ast::{self, Literal, NOWHERE, Position};
use crate::plan::{Expr, Node, OutputColumn};

/// An expression with its type.
#[derive(Clone, Debug)]
pub struct Typed {
    pub expr: Expr,
    pub ty: Type,
    pub modifier: i32,
}

impl Typed {
    pub fn new(expr: Expr, ty: Type) -> Self {
        Self { expr, ty, modifier: -1 }
    }
}

fn sum(operation: Arithmetic, ty: Type, one: Typed, two: Typed) -> Typed {
    Typed::new(super::fold::strict(Expr::Arithmetic(operation, ty, boxed(one), boxed(two))), ty)
}

fn boxed(typed: Typed) -> Box<Expr> {
    Box::new(typed.expr)
}

/// The comparison that an operator is.
pub fn comparison(op: &str) -> Option<Comparison> {
    Some(match op {
        "=" => Comparison::Equal,
        "<>" | "!=" => Comparison::NotEqual,
        "<" => Comparison::Less,
        "<=" => Comparison::LessOrEqual,
        ">" => Comparison::Greater,
        ">=" => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

fn arithmetic(op: &str) -> Option<Arithmetic> {
    Some(match op {
        "+" => Arithmetic::Add,
        "-" => Arithmetic::Subtract,
        "*" => Arithmetic::Multiply,
        "/" => Arithmetic::Divide,
        "%" => Arithmetic::Remainder,
        "&" => Arithmetic::BitAnd,
        "|" => Arithmetic::BitOr,
        "#" => Arithmetic::BitXor,
        "<<" => Arithmetic::ShiftLeft,
        ">>" => Arithmetic::ShiftRight,
        _ => return None,
    })
}

/// The type in which values of two types are compared or counted with.
fn meeting(one: Type, two: Type) -> Option<Type> {
    match (one, two) {
        (Type::Unknown, Type::Unknown) => Some(Type::Text),
        (Type::Unknown, other) | (other, Type::Unknown) => Some(other),
        _ if one == two => Some(one),
        _ if one.is_row() && two.is_row() && super::row::check_same_fields(one, two).is_ok() => Some(one),
        _ if one.is_oid() && two.is_integer() || two.is_oid() && one.is_integer() => Some(Type::Int8),
        _ if one.is_text() && two.is_text() => Some(Type::Text),
        _ => match (one.rank(), two.rank()) {
            (Some(_), Some(_)) if one == Type::Float4 || two == Type::Float4 => Some(Type::Float8),
            (Some(first), Some(second)) => Some(if first >= second { one } else { two }),
            _ if context(one, two) == Some(Context::Implicit) => Some(two),
            _ if context(two, one) == Some(Context::Implicit) => Some(one),
            _ => None,
        },
    }
}

impl Binder<'_> {
    /// Binds an expression.
    pub fn expr(&mut self, expr: &ast::Expr, scope: &Scope<'_>) -> Result<Typed> {
        if let Some(found) = self.grouped(expr, scope)? {
            return Ok(found);
        }
        match expr {
            ast::Expr::Literal(literal, at) => literal_of(literal).map_err(|error| error.at(*at)),
            ast::Expr::Parameter(number, _) => Ok(self.parameter(*number)),
            ast::Expr::Column(names, at) => self.column(names, *at, scope),
            ast::Expr::Negate(inner, at) => {
                let inner = self.expr(inner, scope)?;
                let ty = if inner.ty == Type::Unknown { Type::Float8 } else { inner.ty };
                if !ty.is_number() && ty != Type::Interval {
                    return Err(no_operator(&format!("- {ty}"), *at));
                }
                let inner = self.coerce(inner, ty, Context::Implicit, *at)?;
                Ok(Typed::new(Expr::Negate(ty, boxed(inner)), ty))
            }
            ast::Expr::Binary { op, left, right, at } => self.binary(op, (left, right), *at, scope),
            ast::Expr::And(one, two) => {
                let (one, two) = (self.condition(one, scope, "AND")?, self.condition(two, scope, "AND")?);
                Ok(Typed::new(Expr::And(Box::new(one), Box::new(two)), Type::Bool))
            }
            ast::Expr::Or(one, two) => {
                let (one, two) = (self.condition(one, scope, "OR")?, self.condition(two, scope, "OR")?);
                Ok(Typed::new(Expr::Or(Box::new(one), Box::new(two)), Type::Bool))
            }
            ast::Expr::Not(inner) => {
                let inner = self.condition(inner, scope, "NOT")?;
                Ok(Typed::new(Expr::Not(Box::new(inner)), Type::Bool))
            }
            ast::Expr::Cast { expr, to, is_input } => self.cast(expr, (to, !is_input), scope),
            ast::Expr::Call(call, at) => self.call(call, *at, scope),
            ast::Expr::Case { operand, branches, otherwise } => {
                self.case(operand.as_deref(), branches, otherwise.as_deref(), scope)
            }
            other => self.predicate(other, scope),
        }
    }

    /// Tests, and expressions with subqueries.
    fn predicate(&mut self, expr: &ast::Expr, scope: &Scope<'_>) -> Result<Typed> {
        match expr {
            ast::Expr::IsNull { expr, negated } => {
                let inner = self.expr(expr, scope)?;
                let inner = self.known(inner);
                // A row with nulls and others is neither null nor not null.
                if *negated && inner.ty.is_row() {
                    return self.named("lodestone_row_is_full", vec![inner], expr.at());
                }
                Ok(negate_if(*negated, Expr::IsNull(boxed(inner))))
            }
            ast::Expr::IsTruth { expr, truth, negated } => {
                let inner = self.condition(expr, scope, "IS")?;
                Ok(negate_if(*negated, Expr::IsTruth(Box::new(inner), *truth)))
            }
            ast::Expr::IsDistinct { left, right, negated, at } => {
                if let (ast::Expr::Row(one, _), ast::Expr::Row(two, _)) = (&**left, &**right)
                    && one.len() == two.len()
                    && !one.is_empty()
                {
                    let mut any = Vec::new();
                    for (one, two) in one.iter().zip(two) {
                        let (one, two) = (self.expr(one, scope)?, self.expr(two, scope)?);
                        let (one, two, ty) = self.meet(one, two, "=", *at)?;
                        any.push(Expr::IsDistinct(ty, boxed(one), boxed(two)));
                    }
                    let any = any.into_iter().reduce(|one, two| Expr::Or(Box::new(one), Box::new(two)));
                    return Ok(negate_if(*negated, any.unwrap_or(Expr::Const(Datum::Bool(false)))));
                }
                let (one, two) = (self.expr(left, scope)?, self.expr(right, scope)?);
                let (one, two, ty) = self.meet(one, two, "=", *at)?;
                Ok(negate_if(*negated, Expr::IsDistinct(ty, boxed(one), boxed(two))))
            }
            ast::Expr::InList { expr, list, negated, at } => self.in_list(expr, list, *negated, *at, scope),
            ast::Expr::InQuery { expr, query, negated, at } => {
                if let ast::Expr::Row(list, _) = &**expr {
                    return self.row_in_query((list, query), *negated, *at, scope);
                }
                let left = self.expr(expr, scope)?;
                let (node, columns) = self.nested_query(query, scope)?;
                let [column] = &columns[..] else {
                    return Err(Error::new(SqlState::SYNTAX_ERROR, "subquery has too many columns").at(*at));
                };
                let right = Typed::new(Expr::Column { depth: 0, index: 0 }, column.ty);
                let (left, right, ty) = self.meet(left, right, "=", *at)?;
                let node = super::memo::kept(node);
                let node = crate::plan::Node::Project { input: Box::new(node), columns: vec![right.expr] };
                Ok(negate_if(*negated, Expr::InQuery(ty, boxed(left), Box::new(node))))
            }
            ast::Expr::Between { expr, low, high, negated, at } => {
                let compare = |op: &str, bound: &ast::Expr| ast::Expr::Binary {
                    op: op.into(),
                    left: expr.clone(),
                    right: Box::new(bound.clone()),
                    at: *at,
                };
                let (low, high) = (compare(">=", low), compare("<=", high));
                let both = self.expr(&ast::Expr::And(Box::new(low), Box::new(high)), scope)?;
                Ok(negate_if(*negated, both.expr))
            }
            ast::Expr::Like { expr, pattern, escape, ignores_case, negated } => {
                let (expr, pattern) = (self.text(expr, scope)?, self.text(pattern, scope)?);
                let escape = escape.unwrap_or(Some('\\'));
                let like = Expr::Like {
                    expr: Box::new(expr),
                    pattern: Box::new(pattern),
                    escape,
                    ignores_case: *ignores_case,
                };
                Ok(negate_if(*negated, like))
            }
            ast::Expr::Quantified { left, op, right, is_all, at } => {
                self.quantified(op, (left, right), *is_all, *at, scope)
            }
            other => self.subquery(other, scope),
        }
    }

    /// A query inside an expression.
    pub(super) fn nested_query(&mut self, query: &ast::Query, scope: &Scope<'_>) -> Result<(Node, Vec<OutputColumn>)> {
        self.nested += 1;
        let found = self.query(query, Some(scope));
        self.nested -= 1;
        found
    }

    /// Subqueries, arrays and rows.
    fn subquery(&mut self, expr: &ast::Expr, scope: &Scope<'_>) -> Result<Typed> {
        match expr {
            ast::Expr::Exists(query) => {
                let (node, _) = self.nested_query(query, scope)?;
                Ok(Typed::new(super::semi::exists(node), Type::Bool))
            }
            ast::Expr::Scalar(query, at) => {
                let (node, columns) = self.nested_query(query, scope)?;
                let [column] = &columns[..] else {
                    return Err(Error::new(SqlState::SYNTAX_ERROR, "subquery must return only one column").at(*at));
                };
                let node = super::memo::kept(node);
                Ok(Typed { expr: Expr::Scalar(Box::new(node)), ty: column.ty, modifier: column.modifier })
            }
            ast::Expr::ArrayOf(query) => {
                let (node, columns) = self.nested_query(query, scope)?;
                let [column] = &columns[..] else {
                    return Err(Error::new(SqlState::SYNTAX_ERROR, "subquery must return only one column"));
                };
                let ty = array_of(column.ty)?;
                Ok(Typed::new(Expr::ArrayOf(Box::new(super::memo::kept(node))), ty))
            }
            ast::Expr::Array(list, at) if list.is_empty() => {
                Err(Error::new(SqlState::INDETERMINATE_DATATYPE, "cannot determine type of empty array")
                    .hint("Explicitly cast to the desired type, for example ARRAY[]::integer[].")
                    .at(*at))
            }
            ast::Expr::Array(list, at) => {
                let list = list.iter().map(|expr| self.expr(expr, scope)).collect::<Result<Vec<_>>>()?;
                let (list, element) = self.unify(list, "ARRAY", *at)?;
                // Arrays of one type are the rows of a larger one of that type.
                let ty = if element.element().is_some() { element } else { array_of(element)? };
                Ok(Typed::new(Expr::Array(list), ty))
            }
            ast::Expr::Element(base, index, at) => {
                let base = self.expr(base, scope)?;
                if base.ty == Type::Jsonb {
                    let index = self.json_subscript(index, *at, scope)?;
                    return Ok(Typed::new(Expr::Element(boxed(base), boxed(index)), Type::Jsonb));
                }
                if base.ty == Type::Name {
                    // A name is an array of letters, the first of which has the number 0.
                    let index = self.expr(index, scope)?;
                    let index = self.coerce(index, Type::Int4, Context::Assignment, *at)?;
                    return self.named("lodestone_name_letter", vec![base, index], *at);
                }
                let Some(element) = base.ty.element() else {
                    return Err(mismatch(
                        format!("cannot subscript type {} because it does not support subscripting", base.ty),
                        *at,
                    ));
                };
                let index = self.expr(index, scope)?;
                let index = self.coerce(index, Type::Int4, Context::Assignment, *at)?;
                Ok(Typed::new(Expr::Element(boxed(base), boxed(index)), element))
            }
            ast::Expr::Part { base, list, at } => self.part(base, list, *at, scope),
            ast::Expr::Row(list, _) => self.row(list, scope),
            ast::Expr::Field(base, name) => self.field(base, name, scope),
            other => Err(Error::unsupported("this expression").at(other.at())),
        }
    }

    fn column(&mut self, names: &[String], at: Position, scope: &Scope<'_>) -> Result<Typed> {
        let own;
        let names = match names {
            [schema, rest @ ..] if rest.len() == 2 && self.catalog.own_schema(schema) != schema => {
                let schema = self.catalog.own_schema(schema).to_owned();
                own = std::iter::once(schema).chain(rest.iter().cloned()).collect::<Vec<_>>();
                &own[..]
            }
            names => names,
        };
        let found = scope.find(names, at);
        if let Err(error) = &found
            && matches!(error.state(), SqlState::UNDEFINED_COLUMN | SqlState::UNDEFINED_TABLE)
            && let Some(row) = self.whole_row(names, scope)?
        {
            return Ok(row);
        }
        let (depth, index, column) = found?;
        Ok(Typed { expr: Expr::Column { depth, index }, ty: column.ty, modifier: column.modifier })
    }

    /// An expression without a type becomes a text.
    pub fn known(&mut self, typed: Typed) -> Typed {
        if typed.ty != Type::Unknown {
            return typed;
        }
        if let Expr::Param(number) = typed.expr {
            let ty = self.learn(number + 1, Type::Text);
            return Typed { ty, ..typed };
        }
        Typed { ty: Type::Text, ..typed }
    }

    /// A condition.
    pub fn condition(&mut self, expr: &ast::Expr, scope: &Scope<'_>, place: &str) -> Result<Expr> {
        let before = self.place;
        self.place = match place {
            "WHERE" => "in WHERE",
            "HAVING" => "in HAVING",
            "JOIN/ON" => "in JOIN conditions",
            "CHECK" => "in check constraints",
            "FILTER" => "in FILTER",
            "WHEN" => "in MERGE WHEN conditions",
            _ => before,
        };
        let typed = self.expr(expr, scope);
        self.place = before;
        let typed = typed?;
        let (ty, at) = (typed.ty, expr.at());
        let wrong = |error: Error| match error.state() {
            SqlState::DATATYPE_MISMATCH => {
                mismatch(format!("argument of {place} must be type boolean, not type {ty}"), at)
            }
            _ => error,
        };
        let found = self.coerce(typed, Type::Bool, Context::Implicit, at).map_err(wrong)?.expr;
        let is_filter = matches!(place, "WHERE" | "HAVING" | "JOIN/ON");
        Ok(if is_filter { super::fold::condition(found) } else { found })
    }

    fn text(&mut self, expr: &ast::Expr, scope: &Scope<'_>) -> Result<Expr> {
        let typed = self.expr(expr, scope)?;
        if !typed.ty.is_text() {
            return Err(no_operator(&format!("{} ~~ text", typed.ty), expr.at()));
        }
        self.coerce(typed, Type::Text, Context::Implicit, expr.at()).map(|typed| typed.expr)
    }

    /// The expression as one of type `to`.
    pub fn coerce(&mut self, typed: Typed, to: Type, within: Context, at: Position) -> Result<Typed> {
        if typed.ty == to {
            return Ok(typed);
        }
        let found = self.converted(typed, to, within, at)?;
        let has_rows = matches!(to, Type::Composite(_) | Type::CompositeArray(_));
        Ok(if has_rows { self.with_checks(found) } else { found })
    }

    fn converted(&mut self, typed: Typed, to: Type, within: Context, at: Position) -> Result<Typed> {
        let typed = match typed {
            Typed { expr: Expr::Param(number), ty: Type::Unknown, modifier } => {
                Typed { ty: self.learn(number + 1, to), expr: Expr::Param(number), modifier }
            }
            Typed { expr: Expr::Const(Datum::Text(value)), ty: Type::Unknown, .. } => {
                if to.is_oid() && to != Type::Oid && value == "-" {
                    return Ok(Typed::new(Expr::Const(Datum::Int(0)), to));
                }
                if to == Type::Regclass && !value.trim().bytes().all(|byte| byte.is_ascii_digit()) {
                    return Ok(Typed::new(Expr::RelationOid(Box::new(Expr::Const(Datum::Text(value)))), to));
                }
                if to.is_oid() && to != Type::Oid && text::decode(Type::Oid, &value).is_err() {
                    let number = crate::pgcatalog::number_of(self.catalog, to, &value).map_err(|error| error.at(at))?;
                    return Ok(Typed::new(Expr::Const(Datum::Int(number)), to));
                }
                let datum = text::decode(to, &value).map_err(|error| error.at(at))?;
                return Ok(Typed::new(Expr::Const(datum), to));
            }
            other => other,
        };
        if typed.ty == to {
            return Ok(typed);
        }
        let typed = match (typed, to) {
            (Typed { expr: Expr::Record(list), ty: Type::Composite(from), .. }, Type::Composite(of))
                if from.is_anonymous() && !of.is_anonymous() =>
            {
                return self.row_as((list, from), to, within, at);
            }
            (typed, _) => typed,
        };
        if context(typed.ty, to).is_none_or(|needed| needed > within) {
            return Err(mismatch(format!("expression is of type {} but {to} is needed", typed.ty), at));
        }
        if to == Type::Regclass && typed.ty.is_text() {
            return Ok(Typed::new(Expr::RelationOid(boxed(typed)), to));
        }
        if typed.ty == Type::Regclass && to.is_text() {
            // The name, not the number.
            let name = self.named("lodestone_relation_name", vec![typed], at)?;
            return Ok(Typed::new(name.expr, to));
        }
        if let Expr::Const(datum) = typed.expr {
            let datum = convert(datum, typed.ty, to).map_err(|error| error.at(at))?;
            return Ok(Typed::new(Expr::Const(datum), to));
        }
        Ok(Typed::new(Expr::Cast { expr: Box::new(typed.expr), from: typed.ty, to }, to))
    }

    /// Both sides in one type.
    pub fn meet(&mut self, one: Typed, two: Typed, op: &str, at: Position) -> Result<(Typed, Typed, Type)> {
        let (first, second) = (one.ty, two.ty);
        if first.is_row() && second.is_row() {
            super::row::check_same_fields(first, second).map_err(|error| error.at(at))?;
            return Ok((one, two, first));
        }
        let ty = meeting(first, second).ok_or_else(|| no_operator(&format!("{first} {op} {second}"), at))?;
        // A text of varying length is compared as a text.
        let ty = if ty == Type::Varchar { Type::Text } else { ty };
        let place = |typed: &Typed| typed.ty.is_oid() && ty == Type::Int8 || typed.ty == ty;
        let within = Context::Assignment;
        let one = if place(&one) { one } else { self.coerce(one, ty, within, at)? };
        let two = if place(&two) { two } else { self.coerce(two, ty, within, at)? };
        Ok((one, two, ty))
    }

    /// All of them in one type.
    pub fn unify(&mut self, list: Vec<Typed>, place: &str, at: Position) -> Result<(Vec<Expr>, Type)> {
        let mut found = Type::Unknown;
        for typed in &list {
            let message = || format!("{place} types {found} and {} cannot be matched", typed.ty);
            found = match (found, typed.ty) {
                (Type::Unknown, other) | (other, Type::Unknown) => other,
                // Nothing is computed here, so a number of 32 bits stays one.
                (one, two) if one.rank().is_some() && two.rank().is_some() => {
                    if one.rank() >= two.rank() {
                        one
                    } else {
                        two
                    }
                }
                (one, two) => meeting(one, two)
                    .filter(|ty| *ty != Type::Text || one.is_text())
                    .filter(|_| !one.is_row() || one.is_record() == two.is_record())
                    .ok_or_else(|| mismatch(message(), at))?,
            };
        }
        let ty = if found == Type::Unknown { Type::Text } else { found };
        let list = list.into_iter().map(|typed| Ok(self.coerce(typed, ty, Context::Assignment, at)?.expr));
        Ok((list.collect::<Result<_>>()?, ty))
    }

    pub(super) fn binary(
        &mut self,
        op: &str,
        sides: (&ast::Expr, &ast::Expr),
        at: Position,
        scope: &Scope<'_>,
    ) -> Result<Typed> {
        if let (Some(op), ast::Expr::Row(one, _), ast::Expr::Row(two, _)) = (comparison(op), sides.0, sides.1) {
            return self.compare_rows(op, (one, two), at, scope);
        }
        if let (Some(op), ast::Expr::Row(one, _), ast::Expr::Scalar(query, _)) = (comparison(op), sides.0, sides.1) {
            return self.compare_with_query(op, (one, query), at, scope);
        }
        let (one, two) = (self.expr(sides.0, scope)?, self.expr(sides.1, scope)?);
        if let Some(comparison) = comparison(op) {
            let (one, two, ty) = self.meet(one, two, op, at)?;
            return Ok(Typed::new(Expr::Compare(comparison, ty, boxed(one), boxed(two)), Type::Bool));
        }
        match op {
            "||" if one.ty == Type::Jsonb || two.ty == Type::Jsonb => self.operator(op, one, two, at),
            "||" => self.concat(one, two, at),
            "~" | "~*" | "!~" | "!~*" => {
                if !one.ty.is_text() {
                    return Err(no_operator(&format!("{} {op} {}", one.ty, two.ty), at));
                }
                let one = self.coerce(one, Type::Text, Context::Implicit, at)?;
                let two = self.coerce(two, Type::Text, Context::Implicit, at)?;
                let regex = Expr::Regex { expr: boxed(one), pattern: boxed(two), ignores_case: op.ends_with('*') };
                Ok(negate_if(op.starts_with('!'), regex))
            }
            "-" if one.ty == Type::Jsonb => self.operator(op, one, two, at),
            _ => match arithmetic(op) {
                Some(operation) => match self.temporal(operation, (one, two), at)? {
                    Ok(found) => Ok(found),
                    Err(sides) => self.arithmetic(operation, op, sides, at),
                },
                None => self.operator(op, one, two, at),
            },
        }
    }

    /// `(a, b) = (c, d)`.
    fn compare_rows(
        &mut self,
        op: Comparison,
        (one, two): (&[ast::Expr], &[ast::Expr]),
        at: Position,
        scope: &Scope<'_>,
    ) -> Result<Typed> {
        if one.len() != two.len() {
            return Err(Error::new(SqlState::SYNTAX_ERROR, "unequal number of entries in row expressions").at(at));
        }
        let mut pairs = Vec::new();
        for (one, two) in one.iter().zip(two) {
            pairs.push((self.expr(one, scope)?, self.expr(two, scope)?));
        }
        self.compare_pairs(op, pairs, at)
    }

    fn concat(&mut self, one: Typed, two: Typed, at: Position) -> Result<Typed> {
        let is_array = |typed: &Typed| typed.ty.element().is_some();
        if is_array(&one) || is_array(&two) {
            return self.concat_arrays(one, two, at);
        }
        if one.ty == Type::Bytea && matches!(two.ty, Type::Bytea | Type::Unknown)
            || two.ty == Type::Bytea && one.ty == Type::Unknown
        {
            let one = self.coerce(one, Type::Bytea, Context::Implicit, at)?;
            let two = self.coerce(two, Type::Bytea, Context::Implicit, at)?;
            return Ok(Typed::new(Expr::Concat(boxed(one), boxed(two)), Type::Bytea));
        }
        if !one.ty.is_text() && !two.ty.is_text() {
            return Err(no_operator(&format!("{} || {}", one.ty, two.ty), at));
        }
        let one = self.coerce(one, Type::Text, Context::Assignment, at)?;
        let two = self.coerce(two, Type::Text, Context::Assignment, at)?;
        Ok(Typed::new(Expr::Concat(boxed(one), boxed(two)), Type::Text))
    }

    /// Two arrays, or an array and an element.
    fn concat_arrays(&mut self, one: Typed, two: Typed, at: Position) -> Result<Typed> {
        let ty = if one.ty.element().is_some() { one.ty } else { two.ty };
        let element = ty.element().unwrap_or(Type::Text);
        let mut as_array = |typed: Typed| -> Result<Typed> {
            if typed.ty.element().is_some() || typed.ty == Type::Unknown {
                return self.coerce(typed, ty, Context::Implicit, at);
            }
            let typed = self.coerce(typed, element, Context::Implicit, at)?;
            Ok(Typed::new(Expr::Array(vec![typed.expr]), ty))
        };
        let (one, two) = (as_array(one)?, as_array(two)?);
        Ok(Typed::new(Expr::Concat(boxed(one), boxed(two)), ty))
    }

    fn arithmetic(
        &mut self,
        operation: Arithmetic,
        op: &str,
        (one, two): (Typed, Typed),
        at: Position,
    ) -> Result<Typed> {
        let wrong = match (one.ty, two.ty) {
            (Type::Unknown, Type::Unknown) => {
                let message = format!("operator is not unique: unknown {op} unknown");
                Error::new(SqlState::AMBIGUOUS_FUNCTION, message).at(at)
            }
            _ => no_operator(&format!("{} {op} {}", one.ty, two.ty), at),
        };
        let is_sum = matches!(operation, Arithmetic::Add | Arithmetic::Subtract);
        match (one.ty, two.ty) {
            (Type::Date, Type::Date) if operation == Arithmetic::Subtract => {
                return Ok(sum(operation, Type::Int4, one, two));
            }
            (Type::Date, Type::Int2 | Type::Int4 | Type::Unknown) if is_sum => {
                let two = self.coerce(two, Type::Int4, Context::Implicit, at)?;
                return Ok(sum(operation, Type::Date, one, two));
            }
            (Type::Int2 | Type::Int4, Type::Date) if operation == Arithmetic::Add => {
                return self.arithmetic(operation, op, (two, one), at);
            }
            _ => {}
        }
        let Some(ty) = meeting(one.ty, two.ty).filter(|ty| ty.is_number()) else { return Err(wrong) };
        let is_bits = matches!(
            operation,
            Arithmetic::BitAnd
                | Arithmetic::BitOr
                | Arithmetic::BitXor
                | Arithmetic::ShiftLeft
                | Arithmetic::ShiftRight
        );
        let is_real = matches!(ty, Type::Float4 | Type::Float8);
        if is_bits && !ty.is_integer() || is_real && operation == Arithmetic::Remainder {
            return Err(wrong);
        }
        let one = self.coerce(one, ty, Context::Assignment, at)?;
        let two = self.coerce(two, ty, Context::Assignment, at)?;
        Ok(sum(operation, ty, one, two))
    }

    /// A row among others.
    fn in_rows(
        &mut self,
        expr: &ast::Expr,
        list: &[ast::Expr],
        negated: bool,
        at: Position,
        scope: &Scope<'_>,
    ) -> Result<Typed> {
        let equal = list.iter().map(|item| self.binary("=", (expr, item), at, scope).map(|typed| typed.expr));
        let equal = equal.collect::<Result<Vec<_>>>()?;
        let any = equal.into_iter().reduce(|one, two| Expr::Or(Box::new(one), Box::new(two)));
        Ok(negate_if(negated, any.unwrap_or(Expr::Const(Datum::Bool(false)))))
    }

    fn in_list(
        &mut self,
        expr: &ast::Expr,
        list: &[ast::Expr],
        negated: bool,
        at: Position,
        scope: &Scope<'_>,
    ) -> Result<Typed> {
        if matches!(expr, ast::Expr::Row(..)) {
            return self.in_rows(expr, list, negated, at, scope);
        }
        let left = self.expr(expr, scope)?;
        if left.ty.is_row() {
            return self.in_rows(expr, list, negated, at, scope);
        }
        let items = list.iter().map(|expr| self.expr(expr, scope)).collect::<Result<Vec<_>>>()?;
        let mut ty = left.ty;
        for item in &items {
            let met = if ty == Type::Unknown { Some(item.ty) } else { meeting(ty, item.ty) };
            // Without a type of all of them, each is compared by itself.
            let Some(met) = met else { return self.in_rows(expr, list, negated, at, scope) };
            ty = met;
        }
        let list = items;
        let ty = if matches!(ty, Type::Unknown | Type::Varchar) { Type::Text } else { ty };
        let mut items = Vec::new();
        for item in list {
            items.push(self.coerce(item, ty, Context::Assignment, at)?.expr);
        }
        let left = self.coerce(left, ty, Context::Assignment, at)?;
        Ok(negate_if(negated, Expr::In(ty, boxed(left), items)))
    }

    fn quantified(
        &mut self,
        op: &str,
        (left, right): (&ast::Expr, &ast::Expr),
        is_all: bool,
        at: Position,
        scope: &Scope<'_>,
    ) -> Result<Typed> {
        if let Some(like) = like_of(op) {
            return self.like_each(like, (left, right), is_all, at, scope);
        }
        let (left, right) = (self.expr(left, scope)?, self.expr(right, scope)?);
        let Some(comparison) = comparison(op) else {
            return Err(Error::unsupported(format!("the operator {op} with ANY or ALL")).at(at));
        };
        let right = if right.ty == Type::Unknown {
            let element = if left.ty == Type::Unknown { Type::Text } else { left.ty };
            self.coerce(right, array_of(element)?, Context::Implicit, at)?
        } else {
            right
        };
        let Some(element) = right.ty.element() else {
            return Err(
                Error::new(SqlState::WRONG_OBJECT_TYPE, "op ANY/ALL (array) requires array on right side").at(at)
            );
        };
        let Some(ty) = meeting(left.ty, element) else {
            return Err(no_operator(&format!("{} {op} {element}", left.ty), at));
        };
        let left = self.coerce(left, ty, Context::Assignment, at)?;
        let right = if element == ty { right } else { self.coerce(right, array_of(ty)?, Context::Assignment, at)? };
        let expr = Expr::Quantified { op: comparison, ty, left: boxed(left), right: boxed(right), is_all };
        Ok(Typed::new(expr, Type::Bool))
    }

    /// LIKE with each pattern of an array.
    fn like_each(
        &mut self,
        (ignores_case, negated): (bool, bool),
        (left, right): (&ast::Expr, &ast::Expr),
        is_all: bool,
        at: Position,
        scope: &Scope<'_>,
    ) -> Result<Typed> {
        let left = Box::new(self.text(left, scope)?);
        let right = self.expr(right, scope)?;
        if right.ty != Type::Unknown && !right.ty.element().is_some_and(Type::is_text) {
            let message = "op ANY/ALL (array) requires array on right side";
            return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message).at(at));
        }
        let right = boxed(self.coerce(right, Type::TextArray, Context::Assignment, at)?);
        Ok(Typed::new(Expr::LikeEach { left, right, ignores_case, negated, is_all }, Type::Bool))
    }

    fn cast(
        &mut self,
        expr: &ast::Expr,
        (to, is_explicit): (&ast::TypeName, bool),
        scope: &Scope<'_>,
    ) -> Result<Typed> {
        let UserType { ty, modifier, domain } = user_type(self.catalog, to)?;
        let at = expr.at();
        // A literal is input of the type, not a value that is converted.
        let inner = match expr {
            ast::Expr::Literal(Literal::Number(number), _) if matches!(ty, Type::Float4 | Type::Float8) => {
                Typed::new(Expr::Const(Datum::Text(number.clone())), Type::Unknown)
            }
            // Its elements have the type that is said here.
            ast::Expr::Array(list, _) if is_empty_array(list) && ty.element().is_some() => {
                Typed::new(Expr::Array(Vec::new()), ty)
            }
            _ => self.expr(expr, scope)?,
        };
        let from = inner.ty;
        let wrong = |error: Error| match error.state() {
            SqlState::DATATYPE_MISMATCH => {
                Error::new(SqlState::CANNOT_COERCE, format!("cannot cast type {from} to {ty}")).at(at)
            }
            _ => error,
        };
        let found = self.coerce(inner, ty, Context::Explicit, at).map_err(wrong)?;
        let found = Typed { modifier, ..self.fitted(found, ty, modifier, is_explicit) };
        Ok(match domain {
            Some(domain) => Typed { expr: Expr::Domain { expr: Box::new(found.expr), domain }, ..found },
            None => found,
        })
    }

    /// With the modifier of a type applied.
    pub fn fitted(&mut self, typed: Typed, ty: Type, modifier: i32, is_explicit: bool) -> Typed {
        let single = ty.element().unwrap_or(ty);
        let has_length = modifier >= 4 && matches!(single, Type::Varchar | Type::Bpchar | Type::Numeric);
        let has_modifier = has_length || second_digits(single, modifier).is_some();
        if !has_modifier || typed.modifier == modifier {
            return typed;
        }
        Typed { expr: Expr::Fit { expr: boxed(typed), ty, modifier, is_explicit }, ty, modifier }
    }

    fn case(
        &mut self,
        operand: Option<&ast::Expr>,
        branches: &[(ast::Expr, ast::Expr)],
        otherwise: Option<&ast::Expr>,
        scope: &Scope<'_>,
    ) -> Result<Typed> {
        let (mut conditions, mut results) = (Vec::new(), Vec::new());
        for (condition, result) in branches {
            conditions.push(match operand {
                Some(operand) if matches!(operand, ast::Expr::Row(..)) => {
                    self.binary("=", (operand, condition), condition.at(), scope)?.expr
                }
                Some(operand) => {
                    let one = self.expr(operand, scope)?;
                    // A literal without a type is a text before it meets another type.
                    let one = if matches!(one.expr, Expr::Const(_)) { self.known(one) } else { one };
                    let two = self.expr(condition, scope)?;
                    let (one, two, ty) = self.meet(one, two, "=", condition.at())?;
                    Expr::Compare(Comparison::Equal, ty, boxed(one), boxed(two))
                }
                None => self.condition(condition, scope, "CASE/WHEN")?,
            });
            results.push(self.expr(result, scope)?);
        }
        results.push(match otherwise {
            Some(expr) => self.expr(expr, scope)?,
            None => Typed::new(Expr::Const(Datum::Null), Type::Unknown),
        });
        let (mut results, ty) =
            self.unify(results, "CASE", branches.first().map_or(NOWHERE, |(_, result)| result.at()))?;
        let otherwise = Box::new(results.pop().unwrap_or(Expr::Const(Datum::Null)));
        let branches = conditions.into_iter().zip(results).collect();
        Ok(Typed::new(Expr::Case { branches, otherwise }, ty))
    }
}

pub fn negate_if(negated: bool, expr: Expr) -> Typed {
    Typed::new(if negated { Expr::Not(Box::new(expr)) } else { expr }, Type::Bool)
}

/// The array type of an element type.
pub fn array_of(element: Type) -> Result<Type> {
    let ty = match element {
        Type::Unknown | Type::Bpchar => Some(Type::TextArray),
        other => other.array(),
    };
    ty.ok_or_else(|| Error::unsupported(format!("an array of {element}")))
}

/// Whether an array has no elements but arrays without elements.
fn is_empty_array(list: &[ast::Expr]) -> bool {
    list.iter().all(|expr| matches!(expr, ast::Expr::Array(inner, _) if is_empty_array(inner)))
}

/// The error of an operator that is not there.
pub fn no_operator(text: &str, at: Position) -> Error {
    Error::new(SqlState::UNDEFINED_FUNCTION, format!("operator does not exist: {text}"))
        .hint("No operator matches the given name and argument types. You might need to add explicit type casts.")
        .at(at)
}

fn literal_of(literal: &Literal) -> Result<Typed> {
    Ok(match literal {
        Literal::Null => Typed::new(Expr::Const(Datum::Null), Type::Unknown),
        Literal::Bool(value) => Typed::new(Expr::Const(Datum::Bool(*value)), Type::Bool),
        Literal::Text(text) => Typed::new(Expr::Const(Datum::Text(text.clone())), Type::Unknown),
        Literal::Number(text) => match text.parse::<i64>() {
            Ok(value) if i32::try_from(value).is_ok() => Typed::new(Expr::Const(Datum::Int(value)), Type::Int4),
            Ok(value) => Typed::new(Expr::Const(Datum::Int(value)), Type::Int8),
            Err(_) => Typed::new(Expr::Const(Datum::Numeric(text.parse::<Numeric>()?)), Type::Numeric),
        },
    })
}

/// Whether an operator of LIKE ignores the case, and whether it is negated. `None`: it is another one.
fn like_of(op: &str) -> Option<(bool, bool)> {
    match op {
        "~~" => Some((false, false)),
        "!~~" => Some((false, true)),
        "~~*" => Some((true, false)),
        "!~~*" => Some((true, true)),
        _ => None,
    }
}
