//! Expressions to values: three-valued, as SQL is.

use lodestone_sql_types::json::Json;
use lodestone_sql_types::op::{Comparison, arithmetic, compare, negate, order};
use lodestone_sql_types::text::{BYTES_MAX, check_length};
use lodestone_sql_types::{Datum, Error, Result, SqlState, Type, array, cast, pattern, populate};

use super::{Env, Outcome, Run, Stop};
use crate::plan::{Expr, Part};

pub(super) fn bool_or_null(value: Option<bool>) -> Datum {
    value.map_or(Datum::Null, Datum::Bool)
}

/// Most rows inside each other: a recursive query could make them without end.
const RECORDS_MAX: u32 = 500;

/// Whether at most so many rows are inside each other.
fn is_flat(values: &[Datum], most: u32) -> bool {
    values.iter().all(|value| match value {
        Datum::Record(inner) | Datum::Array(inner) => most > 0 && is_flat(inner, most - 1),
        Datum::Shaped(shaped) => most > 0 && is_flat(&shaped.values, most - 1),
        _ => true,
    })
}

/// Texts, bytes or arrays after each other.
fn concat(one: Datum, two: Datum) -> Result<Datum> {
    let fits = |one: usize, two: usize| check_length(one.saturating_add(two), BYTES_MAX);
    Ok(match (one, two) {
        (Datum::Text(one), Datum::Text(two)) => {
            fits(one.len(), two.len())?;
            Datum::Text(one + &two)
        }
        (Datum::Bytes(mut one), Datum::Bytes(two)) => {
            fits(one.len(), two.len())?;
            one.extend(two);
            Datum::Bytes(one)
        }
        (one @ (Datum::Array(_) | Datum::Shaped(_)), two @ (Datum::Array(_) | Datum::Shaped(_))) => {
            let bytes = |list: &Datum| array::values(list).len().saturating_mul(size_of::<Datum>());
            fits(bytes(&one), bytes(&two))?;
            array::concat(one, two)?
        }
        (one @ (Datum::Array(_) | Datum::Shaped(_)), Datum::Null)
        | (Datum::Null, one @ (Datum::Array(_) | Datum::Shaped(_))) => one,
        _ => Datum::Null,
    })
}

impl Run<'_> {
    /// The value of `expr` for the row at hand.
    pub fn eval(&self, expr: &Expr, env: &Env<'_>) -> Outcome<Datum> {
        Ok(match expr {
            Expr::Const(datum) => datum.clone(),
            Expr::Column { depth, index } => {
                let mut at = env;
                for _ in 0..*depth {
                    at = at.outer.ok_or_else(lost)?;
                }
                at.row.get(*index).cloned().ok_or_else(lost)?
            }
            Expr::Param(number) => self.parameters.get(*number).cloned().ok_or_else(|| {
                // A statement that comes without values for its parameters.
                let message = format!("there is no parameter ${}", number + 1);
                Error::new(SqlState::UNDEFINED_PARAMETER, message)
            })?,
            Expr::Compare(op, ty, one, two) => compare(*op, *ty, &self.eval(one, env)?, &self.eval(two, env)?),
            Expr::Arithmetic(op, ty, one, two) => arithmetic(*op, *ty, &self.eval(one, env)?, &self.eval(two, env)?)?,
            Expr::Negate(ty, inner) => negate(*ty, self.eval(inner, env)?)?,
            Expr::Concat(one, two) => concat(self.eval(one, env)?, self.eval(two, env)?)?,
            Expr::And(one, two) => match self.eval(one, env)?.truth() {
                Some(false) => Datum::Bool(false),
                one => match (one, self.eval(two, env)?.truth()) {
                    (_, Some(false)) => Datum::Bool(false),
                    (Some(true), Some(true)) => Datum::Bool(true),
                    _ => Datum::Null,
                },
            },
            Expr::Or(one, two) => match self.eval(one, env)?.truth() {
                Some(true) => Datum::Bool(true),
                one => match (one, self.eval(two, env)?.truth()) {
                    (_, Some(true)) => Datum::Bool(true),
                    (Some(false), Some(false)) => Datum::Bool(false),
                    _ => Datum::Null,
                },
            },
            Expr::Not(inner) => bool_or_null(self.eval(inner, env)?.truth().map(|value| !value)),
            Expr::IsNull(inner) => Datum::Bool(match self.eval(inner, env)? {
                Datum::Record(values) => values.iter().all(Datum::is_null),
                value => value.is_null(),
            }),
            Expr::IsTruth(inner, truth) => Datum::Bool(self.eval(inner, env)?.truth() == *truth),
            Expr::IsDistinct(ty, one, two) => {
                let (one, two) = (self.eval(one, env)?, self.eval(two, env)?);
                Datum::Bool(match (one.is_null(), two.is_null()) {
                    (false, false) => order(*ty, &one, &two).is_ne(),
                    (one, two) => one != two,
                })
            }
            Expr::Cast { expr, from, to } => cast::convert(self.eval(expr, env)?, *from, *to)?,
            Expr::Fit { expr, ty, modifier, is_explicit } => {
                cast::fit(self.eval(expr, env)?, *ty, *modifier, *is_explicit)?
            }
            Expr::Domain { expr, domain } => {
                let value = self.eval(expr, env)?;
                self.check_domain(domain, &value)?;
                value
            }
            Expr::ToJson(ty, inner) => Datum::Text(lodestone_sql_types::json::of_datum(*ty, &self.eval(inner, env)?)?),
            Expr::RelationOid(inner) => match self.eval(inner, env)? {
                Datum::Text(name) => self.relation_oid(&name)?,
                other => other,
            },
            Expr::Call(function, arguments) => {
                let Some(arguments) = self.arguments(arguments, function.name == "format", env)? else {
                    return Ok(Datum::Null);
                };
                if function.is_strict && arguments.iter().any(Datum::is_null) {
                    return Ok(Datum::Null);
                }
                match (function.eval)(self.session, &arguments) {
                    Ok(found) => found,
                    Err(_) if self.session.takes_wait() => return Err(Stop::Blocked),
                    Err(_) if self.session.takes_long() => return Err(Stop::Long),
                    Err(error) => return Err(error.into()),
                }
            }
            other => return self.eval_search(other, env),
        })
    }

    /// The arguments of a call. `None`: the array whose elements are the last ones is null, which is no argument at all
    /// if `is_none`.
    fn arguments(&self, list: &[Expr], is_none: bool, env: &Env<'_>) -> Outcome<Option<Vec<Datum>>> {
        let Some((Expr::Spread(array, element), first)) = list.split_last() else {
            return list.iter().map(|expr| self.eval(expr, env)).collect::<Outcome<Vec<_>>>().map(Some);
        };
        let mut found = first.iter().map(|expr| self.eval(expr, env)).collect::<Outcome<Vec<_>>>()?;
        let array = self.eval(array, env)?;
        if array.is_null() {
            return Ok(is_none.then_some(found));
        }
        for value in array::values(&array) {
            found.push(self.eval(element, &Env { row: std::slice::from_ref(value), outer: Some(env) })?);
        }
        Ok(Some(found))
    }

    /// Expressions that look for a value among others.
    fn eval_search(&self, expr: &Expr, env: &Env<'_>) -> Outcome<Datum> {
        Ok(match expr {
            // As PostgreSQL, which sees this before it runs: no element is computed.
            Expr::In(_, left, _) if matches!(**left, Expr::Const(Datum::Null)) => Datum::Null,
            Expr::In(ty, left, list) => {
                let left = self.eval(left, env)?;
                self.any(*ty, Comparison::Equal, &left, list.iter().map(|expr| self.eval(expr, env)))?
            }
            Expr::Like { expr, pattern, escape, ignores_case } => {
                match (self.eval(expr, env)?, self.eval(pattern, env)?) {
                    (Datum::Text(text), Datum::Text(found)) => {
                        Datum::Bool(pattern::like(&text, &found, *escape, *ignores_case)?)
                    }
                    _ => Datum::Null,
                }
            }
            Expr::Regex { expr, pattern, ignores_case } => match (self.eval(expr, env)?, self.eval(pattern, env)?) {
                (Datum::Text(text), Datum::Text(found)) => {
                    Datum::Bool(pattern::regex(&found, *ignores_case)?.is_match(&text))
                }
                _ => Datum::Null,
            },
            Expr::Quantified { op, ty, left, right, is_all } => {
                let (left, right) = (self.eval(left, env)?, self.eval(right, env)?);
                if right.is_null() {
                    return Ok(Datum::Null);
                }
                let values = array::values(&right).iter().cloned().map(Ok);
                if *is_all { self.every(*ty, *op, &left, values)? } else { self.any(*ty, *op, &left, values)? }
            }
            Expr::LikeEach { left, right, ignores_case, negated, is_all } => {
                let (left, right) = (self.eval(left, env)?, self.eval(right, env)?);
                if right.is_null() {
                    return Ok(Datum::Null);
                }
                let like = |pattern: &Datum| match (&left, pattern) {
                    (Datum::Text(text), Datum::Text(found)) => {
                        pattern::like(text, found, Some('\\'), *ignores_case).map(|is_like| Some(is_like != *negated))
                    }
                    _ => Ok(None),
                };
                each(array::values(&right).iter().map(like), *is_all)?
            }
            other => return self.eval_nested(other, env),
        })
    }

    /// Expressions of lists and of subqueries.
    fn eval_nested(&self, expr: &Expr, env: &Env<'_>) -> Outcome<Datum> {
        Ok(match expr {
            Expr::Case { branches, otherwise } => {
                for (condition, result) in branches {
                    if self.eval(condition, env)?.truth() == Some(true) {
                        return self.eval(result, env);
                    }
                }
                self.eval(otherwise, env)?
            }
            Expr::Coalesce(list) => {
                for expr in list {
                    let value = self.eval(expr, env)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                Datum::Null
            }
            Expr::Extreme { ty, list, is_greatest } => {
                let mut best = Datum::Null;
                for expr in list {
                    let value = self.eval(expr, env)?;
                    let is_better = best.is_null() || order(*ty, &value, &best).is_gt() == *is_greatest;
                    if !value.is_null() && is_better {
                        best = value;
                    }
                }
                best
            }
            Expr::Array(list) => {
                let values = list.iter().map(|expr| self.eval(expr, env)).collect::<Outcome<Vec<_>>>()?;
                match values.iter().any(|value| matches!(value, Datum::Array(_) | Datum::Shaped(_))) {
                    true => array::stack(&values)?,
                    false => Datum::Array(values),
                }
            }
            Expr::Part(part) => self.part(part, env)?,
            Expr::Record(list) => {
                let values = list.iter().map(|expr| self.eval(expr, env)).collect::<Outcome<Vec<_>>>()?;
                if !is_flat(&values, RECORDS_MAX) {
                    return Err(Error::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded").into());
                }
                Datum::Record(values)
            }
            Expr::Checked(expr, checks) => {
                let value = self.eval(expr, env)?;
                checks.each(&value, &mut |domain, value| self.check_domain(domain, value))?;
                value
            }
            Expr::Populate(ty, base, json) => {
                let (base, json) = (self.eval(base, env)?, self.eval(json, env)?);
                populated(*ty, base, &json)?
            }
            Expr::Field(base, number) => match self.eval(base, env)? {
                Datum::Record(mut values) if *number < values.len() => values.swap_remove(*number),
                _ => Datum::Null,
            },
            Expr::Element(base, index) => match (self.eval(base, env)?, self.eval(index, env)?) {
                (Datum::Json(json), Datum::Text(key)) => {
                    let found = match &*json {
                        lodestone_sql_types::json::Json::Array(_) => key.parse().ok().and_then(|at| json.element(at)),
                        _ => json.member(&key),
                    };
                    found.map_or(Datum::Null, |found| Datum::Json(std::sync::Arc::new(found.clone())))
                }
                (Datum::Array(values), Datum::Int(index)) => {
                    // Vectors of the catalog begin at 0, arrays at 1; which one it is, the binder knows.
                    let place = usize::try_from(index).ok().and_then(|index| index.checked_sub(1));
                    place.and_then(|place| values.get(place).cloned()).unwrap_or(Datum::Null)
                }
                (base @ Datum::Shaped(_), Datum::Int(index)) => array::element(&base, &[index]),
                _ => Datum::Null,
            },
            Expr::Scalar(node) => self.scalar(node, env)?,
            Expr::Exists(node) => self.exists(node, env)?,
            Expr::ArrayOf(node) => self.array_of(node, env)?,
            Expr::InQuery(ty, left, node) => {
                let left = self.eval(left, env)?;
                self.in_query(*ty, &left, node, env)?
            }
            _ => return Err(lost().into()),
        })
    }

    /// A `jsonb` with another part.
    fn json_part(&self, part: &Part, (is_array, value): (bool, &Expr), env: &Env<'_>) -> Outcome<Datum> {
        let base = match self.eval(&part.base, env)? {
            Datum::Json(base) => (*base).clone(),
            _ if is_array => Json::Array(Vec::new()),
            _ => Json::Object(Vec::new()),
        };
        let mut path = Vec::new();
        for index in part.list.iter().filter_map(|(_, index)| index.as_ref()) {
            match self.eval(index, env)? {
                Datum::Text(step) => path.push(step),
                _ => {
                    let message = "jsonb subscript in assignment must not be null";
                    return Err(Error::new(SqlState::NULL_VALUE_NOT_ALLOWED, message).into());
                }
            }
        }
        let value = match self.eval(value, env)? {
            Datum::Json(value) => (*value).clone(),
            _ => Json::Null,
        };
        Ok(Datum::Json(std::sync::Arc::new(base.assigned(&path, value)?.checked()?)))
    }

    /// A part of an array, or the array with another one.
    fn part(&self, part: &Part, env: &Env<'_>) -> Outcome<Datum> {
        if let (Some(is_array), Some(value)) = (part.json, &part.value) {
            return self.json_part(part, (is_array, value), env);
        }
        array::check_dimensions(part.list.len())?;
        let base = self.eval(&part.base, env)?;
        let mut has_null = false;
        let mut bounds: Vec<array::Bounds> = Vec::new();
        for (low, high) in &part.list {
            let mut bound = |expr: &Option<Expr>| -> Outcome<Option<i64>> {
                let Some(expr) = expr else { return Ok(None) };
                let found = self.eval(expr, env)?.as_int();
                has_null |= found.is_none();
                Ok(found)
            };
            bounds.push((bound(low)?, bound(high)?));
        }
        let indexes = || bounds.iter().map(|(_, index)| index.unwrap_or(0)).collect::<Vec<_>>();
        match &part.value {
            Some(_) if has_null => {
                let message = "array subscript in assignment must not be null";
                Err(Error::new(SqlState::NULL_VALUE_NOT_ALLOWED, message).into())
            }
            Some(value) => {
                let value = self.eval(value, env)?;
                let found = match part.is_slice {
                    true => array::set_slice(&base, &bounds, &value),
                    false => array::set_element(&base, &indexes(), value),
                };
                Ok(found?)
            }
            None if has_null || base.is_null() => Ok(Datum::Null),
            None if part.is_slice => Ok(array::slice(&base, &bounds)),
            None => Ok(array::element(&base, &indexes())),
        }
    }

    /// Whether the comparison holds for one of the values: null if that depends on a null.
    fn any(
        &self,
        ty: Type,
        op: Comparison,
        left: &Datum,
        values: impl Iterator<Item = Outcome<Datum>>,
    ) -> Outcome<Datum> {
        let mut found = Datum::Bool(false);
        for value in values {
            match compare(op, ty, left, &value?) {
                Datum::Bool(true) => return Ok(Datum::Bool(true)),
                Datum::Null => found = Datum::Null,
                _ => {}
            }
        }
        Ok(found)
    }

    fn every(
        &self,
        ty: Type,
        op: Comparison,
        left: &Datum,
        values: impl Iterator<Item = Outcome<Datum>>,
    ) -> Outcome<Datum> {
        let mut found = Datum::Bool(true);
        for value in values {
            match compare(op, ty, left, &value?) {
                Datum::Bool(false) => return Ok(Datum::Bool(false)),
                Datum::Null => found = Datum::Null,
                _ => {}
            }
        }
        Ok(found)
    }

    /// The number of the table that a text names, or of that number.
    fn relation_oid(&self, name: &str) -> Result<Datum> {
        if let Ok(oid) = name.trim().parse::<u32>() {
            return Ok(Datum::Int(oid.into()));
        }
        let (schema, plain) = crate::pgcatalog::names_of(name);
        let full = self.catalog.resolve(schema.as_deref(), &plain);
        let user = full.and_then(|full| self.catalog.oid_of(&full));
        let found = user.or_else(|| crate::pgcatalog::find(schema.as_deref(), &plain).map(|table| table.oid));
        let error = || Error::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"));
        found.map(|oid| Datum::Int(oid.into())).ok_or_else(error)
    }
}

/// The row of a type that a JSON object says. A null one says nothing.
pub(super) fn populated(ty: Type, base: Datum, json: &Datum) -> Result<Datum> {
    let Type::Composite(of) = ty else { return Err(lost()) };
    match json {
        Datum::Text(text) => populate::row(of, &base, text),
        Datum::Json(json) => populate::row(of, &base, &json.to_string()),
        _ => Ok(base),
    }
}

/// A plan names a value that is not there: a fault of the binder.
fn lost() -> Error {
    Error::new(SqlState::INTERNAL_ERROR, "a plan names a value that is not there")
}

/// Whether all conditions hold, or any of them. Null if those that are null decide it.
fn each<E>(conditions: impl Iterator<Item = Result<Option<bool>, E>>, is_all: bool) -> Result<Datum, E> {
    let mut has_null = false;
    for condition in conditions {
        match condition? {
            Some(holds) if holds != is_all => return Ok(Datum::Bool(holds)),
            Some(_) => {}
            None => has_null = true,
        }
    }
    Ok(if has_null { Datum::Null } else { Datum::Bool(is_all) })
}
