//! Groups: which columns they have, and the aggregates over them.
//!
//! The rows of an aggregate have the keys of the groups first, then the aggregates. An expression over them is bound in
//! two ways: a part that is a key, or an aggregate, is the column of that; any other column is an error.

use lodestone_sql_types::cast::Context;
use lodestone_sql_types::op::Arithmetic;
use lodestone_sql_types::{Datum, Error, Result, SqlState, Type};

use super::Binder;
use super::expr::{Typed, array_of};
use super::scope::{Scope, ScopeColumn};
use crate::parse::ast::{self, Call, Position};
use crate::plan::{Aggregate, AggregateCall, Expr, Figure, SortKey};

/// The groups of a query.
pub struct Grouping {
    /// The columns before they were grouped.
    pub columns: Vec<ScopeColumn>,
    /// The keys as they were written and bound.
    pub keys: Vec<(ast::Expr, Typed)>,
    pub calls: Vec<AggregateCall>,
    /// The last key says which keys a set of several leaves out.
    pub has_sets: bool,
    /// An aggregate's arguments are being bound.
    pub is_inside: bool,
}

impl Grouping {
    pub fn new(columns: Vec<ScopeColumn>, keys: Vec<(ast::Expr, Typed)>) -> Self {
        Self { columns, keys, calls: Vec::new(), has_sets: false, is_inside: false }
    }
}

/// Most keys of groups with several sets: each has a bit of a number.
pub const SET_KEYS_MAX: usize = 62;
/// Most arguments of GROUPING.
const GROUPING_MAX: usize = 31;

/// The error of GROUPING of something that is no key.
pub(super) fn no_grouping(at: Position) -> Error {
    let message = "arguments to GROUPING must be grouping expressions of the associated query level";
    Error::new(SqlState::GROUPING_ERROR, message).at(at)
}

/// Whether a function of this name is an aggregate.
pub fn is_aggregate(name: &str) -> bool {
    matches!(
        name,
        "count"
            | "sum"
            | "avg"
            | "min"
            | "max"
            | "bool_and"
            | "bool_or"
            | "every"
            | "string_agg"
            | "array_agg"
            | "bit_and"
            | "bit_or"
            | "bit_xor"
            | "json_agg"
            | "jsonb_agg"
            | "json_object_agg"
            | "jsonb_object_agg"
    ) || figure(name).is_some()
}

/// The figure of this name, and how many columns it is of.
fn figure(name: &str) -> Option<(Figure, usize)> {
    Some(match name {
        "variance" | "var_samp" => (Figure::VarianceSample, 1),
        "var_pop" => (Figure::VariancePopulation, 1),
        "stddev" | "stddev_samp" => (Figure::DeviationSample, 1),
        "stddev_pop" => (Figure::DeviationPopulation, 1),
        "corr" => (Figure::Correlation, 2),
        "covar_pop" => (Figure::CovariancePopulation, 2),
        "covar_samp" => (Figure::CovarianceSample, 2),
        "regr_avgx" => (Figure::AverageX, 2),
        "regr_avgy" => (Figure::AverageY, 2),
        "regr_count" => (Figure::Count, 2),
        "regr_intercept" => (Figure::Intercept, 2),
        "regr_r2" => (Figure::Determination, 2),
        "regr_slope" => (Figure::Slope, 2),
        "regr_sxx" => (Figure::SquaresX, 2),
        "regr_sxy" => (Figure::Products, 2),
        "regr_syy" => (Figure::SquaresY, 2),
        _ => return None,
    })
}

/// The least number of rows further out of the values that the call names.
fn least_depth(call: &AggregateCall) -> Option<usize> {
    let order_by = call.order_by.iter().map(|key| &key.expr);
    call.arguments.iter().chain(&call.filter).chain(order_by).filter_map(Expr::least_depth).min()
}

/// Whether the expression has an aggregate of its own query.
pub fn has_aggregate(expr: &ast::Expr) -> bool {
    use ast::Expr as E;
    match expr {
        E::Call(call, _) => match &call.over {
            None => is_aggregate(&call.name.name) || call.arguments.iter().any(has_aggregate),
            Some(over) => {
                let order = over.order_by.iter().map(|order| &order.expr);
                call.arguments.iter().chain(&over.partition_by).chain(order).any(has_aggregate)
            }
        },
        E::Literal(..) | E::Parameter(..) | E::Column(..) | E::Exists(_) | E::Scalar(..) | E::ArrayOf(_) => false,
        E::Negate(inner, _) | E::Not(inner) | E::Field(inner, _) => has_aggregate(inner),
        E::IsNull { expr, .. } | E::IsTruth { expr, .. } | E::Cast { expr, .. } | E::InQuery { expr, .. } => {
            has_aggregate(expr)
        }
        E::And(one, two)
        | E::Or(one, two)
        | E::Element(one, two, _)
        | E::Binary { left: one, right: two, .. }
        | E::IsDistinct { left: one, right: two, .. }
        | E::Like { expr: one, pattern: two, .. }
        | E::Quantified { left: one, right: two, .. } => has_aggregate(one) || has_aggregate(two),
        E::InList { expr, list, .. } => has_aggregate(expr) || list.iter().any(has_aggregate),
        E::Between { expr, low, high, .. } => has_aggregate(expr) || has_aggregate(low) || has_aggregate(high),
        E::Case { operand, branches, otherwise } => {
            operand.as_deref().is_some_and(has_aggregate)
                || branches.iter().any(|(condition, result)| has_aggregate(condition) || has_aggregate(result))
                || otherwise.as_deref().is_some_and(has_aggregate)
        }
        E::Array(list, _) | E::Row(list, _) => list.iter().any(has_aggregate),
        E::Part { base, list, .. } => {
            has_aggregate(base) || list.iter().flat_map(|one| one.low.iter().chain(&one.high)).any(has_aggregate)
        }
        E::Assigned { .. } => false,
    }
}

impl Binder<'_> {
    /// A part of an expression over groups, if it is a key or an aggregate.
    ///
    /// # Errors
    /// 42803 for a column that is neither.
    pub(super) fn grouped(&mut self, expr: &ast::Expr, scope: &Scope<'_>) -> Result<Option<Typed>> {
        let Some(grouping) = &self.grouping else { return Ok(None) };
        if grouping.is_inside {
            return match expr {
                ast::Expr::Call(call, at) if is_aggregate(&call.name.name) && call.over.is_none() => {
                    Err(Error::new(SqlState::GROUPING_ERROR, "aggregate function calls cannot be nested").at(*at))
                }
                _ => Ok(None),
            };
        }
        let of = |index: usize, typed: &Typed| Typed { expr: Expr::Column { depth: 0, index }, ..typed.clone() };
        if let Some(index) = grouping.keys.iter().position(|(key, _)| key == expr) {
            return Ok(Some(of(index, &grouping.keys[index].1)));
        }
        match expr {
            ast::Expr::Call(call, at) if is_aggregate(&call.name.name) && call.over.is_none() => {
                self.aggregate(call, *at, scope).map(Some)
            }
            ast::Expr::Call(call, at) if call.name.name == "grouping" && call.name.schema.is_none() => {
                self.grouping_bits(call, *at, scope.parent).map(Some)
            }
            ast::Expr::Column(names, at) => {
                let before = Scope { columns: grouping.columns.clone(), parent: scope.parent };
                let found = before.find(names, *at);
                if found.is_err() && names.last().is_some_and(|name| before.has_table((None, name))) {
                    // The row of a table: each of its columns is looked for.
                    return Ok(None);
                }
                let (depth, place, column) = found?;
                if depth > 0 {
                    return Ok(None);
                }
                let key = |key: &Typed| matches!(key.expr, Expr::Column { depth: 0, index } if index == place);
                if let Some(index) = grouping.keys.iter().position(|(_, typed)| key(typed)) {
                    return Ok(Some(of(index, &grouping.keys[index].1)));
                }
                if self.depends_on_keys(column) {
                    return Ok(Some(self.any_of_group(place, column)));
                }
                let table = column.table.as_ref().map_or(String::new(), |table| format!("{table}."));
                let message = format!(
                    "column \"{table}{}\" must appear in the GROUP BY clause or be used in an aggregate function",
                    column.name
                );
                Err(Error::new(SqlState::GROUPING_ERROR, message).at(*at))
            }
            _ => Ok(None),
        }
    }

    /// GROUPING: a number with a bit for each argument, which is 1 where the set of the group leaves it out.
    fn grouping_bits(&mut self, call: &Call, at: Position, parent: Option<&Scope<'_>>) -> Result<Typed> {
        if call.arguments.len() > GROUPING_MAX {
            let message = format!("GROUPING must have fewer than {} arguments", GROUPING_MAX + 1);
            return Err(Error::new(SqlState::TOO_MANY_ARGUMENTS, message).at(at));
        }
        let mut bits = Expr::Const(Datum::Int(0));
        let combine = |op, one, two| Expr::Arithmetic(op, Type::Int8, Box::new(one), Box::new(two));
        let number = |number: usize| Expr::Const(Datum::Int(i64::try_from(number).unwrap_or(0)));
        for argument in &call.arguments {
            let Some(key) = self.key_of(argument, parent)? else { return Err(no_grouping(argument.at())) };
            bits = combine(Arithmetic::ShiftLeft, bits, number(1));
            let Some(grouping) = self.grouping.as_ref().filter(|grouping| grouping.has_sets) else { continue };
            let all = Expr::Column { depth: 0, index: grouping.keys.len() - 1 };
            let own = combine(Arithmetic::ShiftRight, all, number(key));
            bits = combine(Arithmetic::BitOr, bits, combine(Arithmetic::BitAnd, own, number(1)));
        }
        let typed = Typed::new(bits, Type::Int8);
        self.coerce(typed, Type::Int4, Context::Explicit, at)
    }

    /// The key of the groups that an expression is.
    fn key_of(&mut self, expr: &ast::Expr, parent: Option<&Scope<'_>>) -> Result<Option<usize>> {
        let Some(grouping) = &self.grouping else { return Ok(None) };
        if let Some(index) = grouping.keys.iter().position(|(key, _)| key == expr) {
            return Ok(Some(index));
        }
        let ast::Expr::Column(names, at) = expr else { return Ok(None) };
        let before = Scope { columns: grouping.columns.clone(), parent };
        let (depth, place, _) = before.find(names, *at)?;
        let is_it = |key: &Typed| depth == 0 && matches!(key.expr, Expr::Column { depth: 0, index } if index == place);
        Ok(grouping.keys.iter().position(|(_, typed)| is_it(typed)))
    }

    /// Whether the primary key of the column's table is among the keys of the groups: then a group has one value of it.
    fn depends_on_keys(&self, column: &ScopeColumn) -> bool {
        let (Some(grouping), Some((oid, _))) = (&self.grouping, column.origin) else { return false };
        if grouping.has_sets {
            return false;
        }
        let Some(table) = self.catalog.tables.values().find(|table| table.oid == oid) else { return false };
        let grouped: Vec<i16> = grouping
            .keys
            .iter()
            .filter_map(|(_, typed)| match typed.expr {
                Expr::Column { depth: 0, index } => grouping.columns.get(index),
                _ => None,
            })
            .filter(|key| key.table == column.table)
            .filter_map(|key| key.origin.filter(|(other, _)| *other == oid).map(|(_, number)| number))
            .collect();
        let is_grouped = |number: &usize| i16::try_from(number + 1).is_ok_and(|number| grouped.contains(&number));
        !table.key.is_empty() && table.key.iter().all(is_grouped)
    }

    /// The value that a column has in all rows of a group: the least of them is as good as any.
    fn any_of_group(&mut self, place: usize, column: &ScopeColumn) -> Typed {
        let Some(grouping) = &mut self.grouping else {
            return Typed::new(Expr::Column { depth: 0, index: place }, column.ty);
        };
        grouping.calls.push(AggregateCall {
            aggregate: Aggregate::Min(column.ty),
            arguments: vec![Expr::Column { depth: 0, index: place }],
            is_distinct: false,
            filter: None,
            order_by: Vec::new(),
        });
        let index = grouping.keys.len() + grouping.calls.len() - 1;
        Typed { expr: Expr::Column { depth: 0, index }, ty: column.ty, modifier: column.modifier }
    }

    fn aggregate(&mut self, call: &Call, at: Position, scope: &Scope<'_>) -> Result<Typed> {
        let Some(grouping) = &mut self.grouping else {
            return Err(Error::new(SqlState::GROUPING_ERROR, "aggregate functions are not allowed here").at(at));
        };
        let before = Scope { columns: grouping.columns.clone(), parent: scope.parent };
        grouping.is_inside = true;
        self.aggregating.push(before.depth());
        let found = self.aggregate_call(call, at, &before);
        self.aggregating.pop();
        let Some(grouping) = &mut self.grouping else { return Err(Error::unsupported("an aggregate here").at(at)) };
        grouping.is_inside = false;
        let (call, ty) = found?;
        if let Some(depth @ 1..) = least_depth(&call) {
            // It belongs to the query whose columns it is over.
            let is_nested = self.aggregating.contains(&(before.depth().saturating_sub(depth)));
            return Err(match is_nested {
                true => Error::new(SqlState::GROUPING_ERROR, "aggregate function calls cannot be nested").at(at),
                false => Error::unsupported("an aggregate over columns of an outer query alone").at(at),
            });
        }
        grouping.calls.push(call);
        let index = grouping.keys.len() + grouping.calls.len() - 1;
        Ok(Typed::new(Expr::Column { depth: 0, index }, ty))
    }

    pub(super) fn aggregate_call(
        &mut self,
        call: &Call,
        at: Position,
        before: &Scope<'_>,
    ) -> Result<(AggregateCall, Type)> {
        let name = call.name.name.as_str();
        let filter = match &call.filter {
            Some(filter) => Some(self.condition(filter, before, "FILTER")?),
            None => None,
        };
        let mut list = call.arguments.iter().map(|expr| self.expr(expr, before)).collect::<Result<Vec<_>>>()?;
        let order_by = self.sort_keys(&call.order_by, before)?;
        if call.is_distinct {
            refuse_other_order(call, &list, &order_by)?;
        }
        let of = |aggregate, arguments: Vec<Typed>, ty| {
            let arguments = arguments.into_iter().map(|typed| typed.expr).collect();
            let is_distinct = call.is_distinct;
            Ok((
                AggregateCall { aggregate, arguments, is_distinct, filter: filter.clone(), order_by: order_by.clone() },
                ty,
            ))
        };
        if call.is_star {
            return if name == "count" {
                of(Aggregate::CountRows, Vec::new(), Type::Int8)
            } else {
                Err(undefined(call, &[], at))
            };
        }
        let types: Vec<Type> = list.iter().map(|typed| typed.ty).collect();
        let wrong = || undefined(call, &types, at);
        if let Some((aggregate, arguments, ty)) = self.special_aggregate(call, &list, at)? {
            return of(aggregate, arguments, ty);
        }
        match (name, list.pop(), list.pop()) {
            ("string_agg", Some(separator), Some(value)) => {
                let value = self.coerce(value, Type::Text, Context::Implicit, at).map_err(|_| wrong())?;
                let separator = self.coerce(separator, Type::Text, Context::Implicit, at).map_err(|_| wrong())?;
                of(Aggregate::StringAgg, vec![value, separator], Type::Text)
            }
            ("count", Some(value), None) => {
                let value = self.known(value);
                of(Aggregate::Count, vec![value], Type::Int8)
            }
            ("array_agg", Some(value), None) => {
                let value = self.known(value);
                match value.ty {
                    ty if ty.element().is_some() => of(Aggregate::ArrayStack, vec![value], ty),
                    ty => of(Aggregate::ArrayAgg, vec![value], array_of(ty)?),
                }
            }
            ("bool_and" | "every" | "bool_or", Some(value), None) => {
                let value = self.coerce(value, Type::Bool, Context::Implicit, at).map_err(|_| wrong())?;
                let aggregate = if name == "bool_or" { Aggregate::BoolOr } else { Aggregate::BoolAnd };
                of(aggregate, vec![value], Type::Bool)
            }
            ("min" | "max", Some(value), None) => {
                let value = self.known(value);
                let is_ordered = !matches!(value.ty, Type::Bool | Type::Bytea | Type::Uuid | Type::Json | Type::Jsonb);
                if !is_ordered || value.ty.is_row() {
                    return Err(wrong());
                }
                let ty = if value.ty == Type::Varchar { Type::Text } else { value.ty };
                let aggregate = if name == "min" { Aggregate::Min(ty) } else { Aggregate::Max(ty) };
                of(aggregate, vec![value], ty)
            }
            ("sum" | "avg", Some(value), None) if value.ty == Type::Unknown => {
                let message = format!("function {name}(unknown) is not unique");
                let hint = "Could not choose a best candidate function. You might need to add explicit type casts.";
                Err(Error::new(SqlState::AMBIGUOUS_FUNCTION, message).hint(hint).at(at))
            }
            ("sum" | "avg", Some(value), None) if value.ty == Type::Interval => {
                let ty = Type::Interval;
                of(if name == "sum" { Aggregate::Sum(ty) } else { Aggregate::Avg(ty) }, vec![value], ty)
            }
            ("sum" | "avg", Some(value), None) if value.ty.is_number() => {
                let is_sum = name == "sum";
                let ty = match value.ty {
                    Type::Int2 | Type::Int4 if is_sum => Type::Int8,
                    Type::Float4 if is_sum => Type::Float4,
                    Type::Float4 | Type::Float8 => Type::Float8,
                    _ => Type::Numeric,
                };
                let value = self.coerce(value, ty, Context::Assignment, at)?;
                of(if is_sum { Aggregate::Sum(ty) } else { Aggregate::Avg(ty) }, vec![value], ty)
            }
            _ => Err(wrong()),
        }
    }
}

/// An aggregate with its arguments and the type of its result.
type Special = Option<(Aggregate, Vec<Typed>, Type)>;

impl Binder<'_> {
    /// Aggregates of bits, to JSON, and figures. `None`: it is another one.
    fn special_aggregate(&mut self, call: &Call, list: &[Typed], at: Position) -> Result<Special> {
        let name = call.name.name.as_str();
        let types: Vec<Type> = list.iter().map(|typed| typed.ty).collect();
        let wrong = || undefined(call, &types, at);
        Ok(match (name, list) {
            ("bit_and" | "bit_or" | "bit_xor", [value]) if value.ty.is_integer() => {
                let aggregate = match name {
                    "bit_and" => Aggregate::BitAnd,
                    "bit_or" => Aggregate::BitOr,
                    _ => Aggregate::BitXor,
                };
                Some((aggregate, vec![value.clone()], value.ty))
            }
            ("json_agg" | "jsonb_agg", [value]) => {
                let ty = if name == "json_agg" { Type::Json } else { Type::Jsonb };
                Some((Aggregate::JsonAgg(ty), vec![self.as_json(value.clone())], ty))
            }
            ("json_object_agg" | "jsonb_object_agg", [key, value]) => {
                let ty = if name == "json_object_agg" { Type::Json } else { Type::Jsonb };
                let key = self.known(key.clone());
                let key = self.coerce(key, Type::Text, Context::Assignment, at).map_err(|_| wrong())?;
                Some((Aggregate::JsonObjectAgg(ty), vec![key, self.as_json(value.clone())], ty))
            }
            _ => match figure(name).filter(|(_, count)| *count == list.len()) {
                Some((found, count)) => {
                    let is_real = list.iter().any(|typed| matches!(typed.ty, Type::Float4 | Type::Float8));
                    let ty = if count == 1 && !is_real { Type::Numeric } else { Type::Float8 };
                    let mut arguments = Vec::new();
                    for value in list {
                        if !value.ty.is_number() && value.ty != Type::Unknown {
                            return Err(wrong());
                        }
                        arguments.push(self.coerce(value.clone(), ty, Context::Assignment, at)?);
                    }
                    let result = if found == Figure::Count { Type::Int8 } else { ty };
                    Some((Aggregate::Figure(found, ty), arguments, result))
                }
                None => None,
            },
        })
    }
}

/// Refuses an order of distinct values that is none of these values: several rows have one value.
fn refuse_other_order(call: &Call, list: &[Typed], keys: &[SortKey]) -> Result<()> {
    for (key, order) in keys.iter().zip(&call.order_by) {
        let is_it = |argument: &Typed| {
            let (Expr::Column { depth, index }, Expr::Column { depth: 0, index: other }) = (&argument.expr, &key.expr)
            else {
                return false;
            };
            *depth == 0 && index == other
        };
        if !call.arguments.contains(&order.expr) && !list.iter().any(is_it) {
            let message = "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list";
            return Err(Error::new(SqlState::INVALID_COLUMN_REFERENCE, message).at(order.expr.at()));
        }
    }
    Ok(())
}

fn undefined(call: &Call, types: &[Type], at: Position) -> Error {
    super::call::undefined(&call.name.name, types, at)
}
