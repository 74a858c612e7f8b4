//! Window functions, and functions that return rows in the list of a SELECT.
//!
//! Their results are columns after those of the row at hand. How many of those there are is known when all parts of the
//! query are bound: groups get their aggregates one by one. So the results have numbers from [`WINDOWS`] and [`SETS`]
//! on until the end, and [`Extras::put_into`] gives them their places.

use lodestone_sql_types::cast::Context;
use lodestone_sql_types::{Datum, Error, Result, SqlState, Type};

use super::Binder;
use super::aggregate::is_aggregate;
use super::expr::Typed;
use super::scope::Scope;
use crate::parse::ast::{self, Call, FrameUnit, Name, Over, Position};
use crate::plan::{Expr, Frame, FrameBound, Node, SetFunction, WindowCall, WindowFunction};

const WINDOWS: usize = 1 << 40;
const SETS: usize = 1 << 41;

/// The windows of a query, and its functions that return rows.
pub struct Extras {
    /// The windows that have a name.
    named: Vec<(Name, Over)>,
    windows: Vec<WindowCall>,
    sets: Vec<(SetFunction, Vec<Expr>)>,
    /// A window's arguments are being bound.
    is_inside: bool,
    /// Functions that return rows are allowed here.
    pub allows_sets: bool,
}

/// Whether a function of this name needs a window.
pub fn is_window(name: &str) -> bool {
    matches!(
        name,
        "row_number"
            | "rank"
            | "dense_rank"
            | "percent_rank"
            | "cume_dist"
            | "ntile"
            | "lag"
            | "lead"
            | "first_value"
            | "last_value"
            | "nth_value"
    )
}

impl Extras {
    pub fn new(named: Vec<(Name, Over)>) -> Self {
        Self { named, windows: Vec::new(), sets: Vec::new(), is_inside: false, allows_sets: true }
    }

    /// The part for which rows cannot be locked.
    pub fn lock_obstacle(&self) -> Option<&'static str> {
        match () {
            () if !self.windows.is_empty() => Some("window functions"),
            () if !self.sets.is_empty() => Some("set-returning functions in the target list"),
            () => None,
        }
    }

    /// Puts the nodes of windows and sets above `input`, whose rows have `width` columns, and below `finished`, the
    /// last projection of which uses them.
    pub fn put_into(self, finished: &mut Node, mut input: Node, width: usize) {
        let count = self.windows.len();
        let place = |expr: &mut Expr| {
            expr.walk_mut(&mut |part| {
                if let Expr::Column { depth: 0, index } = part {
                    if *index >= SETS {
                        *index = *index - SETS + width + count;
                    } else if *index >= WINDOWS {
                        *index = *index - WINDOWS + width;
                    }
                }
            });
        };
        if count > 0 {
            input = Node::Window { input: Box::new(input), calls: self.windows };
        }
        if !self.sets.is_empty() {
            let mut calls = self.sets;
            calls.iter_mut().flat_map(|(_, list)| list).for_each(place);
            input = Node::ProjectSet { input: Box::new(input), calls };
        }
        put(finished, input, &place);
    }
}

/// Puts `input` in the place of the empty rows at the bottom. The projection above it gets its final numbers.
fn put(node: &mut Node, input: Node, place: &dyn Fn(&mut Expr)) {
    match node {
        Node::Project { input: inner, columns } if matches!(**inner, Node::Values(_)) => {
            columns.iter_mut().for_each(place);
            **inner = input;
        }
        Node::Project { input: inner, .. }
        | Node::Sort { input: inner, .. }
        | Node::Distinct { input: inner, .. }
        | Node::Limit { input: inner, .. } => put(inner, input, place),
        other => *other = input,
    }
}

fn windowing(message: impl Into<std::borrow::Cow<'static, str>>, at: Position) -> Error {
    Error::new(SqlState::WINDOWING_ERROR, message).at(at)
}

impl Binder<'_> {
    /// A call of a function that returns rows, in the list of a SELECT.
    pub(super) fn set_in_list(&mut self, call: &Call, at: Position, scope: &Scope<'_>) -> Result<Option<Typed>> {
        if !super::from::is_set_function(&call.name.name) {
            return Ok(None);
        }
        let refuse = |message: String| Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message).at(at));
        if self.grouping.as_ref().is_some_and(|grouping| grouping.is_inside) {
            return refuse("aggregate function calls cannot contain set-returning function calls".into());
        }
        if self.extras.as_ref().is_none_or(|extras| !extras.allows_sets || extras.is_inside) {
            return refuse(format!("set-returning functions are not allowed {}", self.place));
        }
        // Its arguments have no function that returns rows of their own.
        if let Some(extras) = &mut self.extras {
            extras.allows_sets = false;
        }
        let found = self.set_call(call, at, scope);
        let Some(extras) = &mut self.extras else { return Ok(None) };
        extras.allows_sets = true;
        let Some((function, arguments, ty)) = found? else { return Ok(None) };
        extras.sets.push((function, arguments.clone()));
        let index = SETS + extras.sets.len() - 1;
        let value = Typed::new(Expr::Column { depth: 0, index }, ty);
        Ok(Some(self.checked_row(value, (function, &arguments))))
    }

    /// A call with OVER.
    pub(super) fn window_call(&mut self, call: &Call, over: &Over, at: Position, scope: &Scope<'_>) -> Result<Typed> {
        match &mut self.extras {
            None => {
                let message = format!("window functions are not allowed {}", self.place);
                return Err(windowing(message, at));
            }
            Some(extras) if extras.is_inside => {
                return Err(windowing("window function calls cannot be nested", at));
            }
            Some(extras) => extras.is_inside = true,
        }
        let found = self.window_parts(call, over, at, scope);
        let Some(extras) = &mut self.extras else { return Err(windowing("a window is lost", at)) };
        extras.is_inside = false;
        let (window, ty) = found?;
        extras.windows.push(window);
        let index = WINDOWS + extras.windows.len() - 1;
        Ok(Typed::new(Expr::Column { depth: 0, index }, ty))
    }

    fn window_parts(
        &mut self,
        call: &Call,
        over: &Over,
        at: Position,
        scope: &Scope<'_>,
    ) -> Result<(WindowCall, Type)> {
        let over = self.whole_window(over)?;
        let mut partition_by = Vec::new();
        for expr in &over.partition_by {
            let typed = self.expr(expr, scope)?;
            partition_by.push(self.known(typed).expr);
        }
        let order_by = self.sort_keys(&over.order_by, scope)?;
        let frame = self.frame(&over, scope)?;
        let (function, arguments, filter, ty) = self.window_function(call, at, scope)?;
        Ok((WindowCall { function, arguments, filter, partition_by, order_by, frame }, ty))
    }

    /// The window with the parts of the one that it names.
    fn whole_window(&self, over: &Over) -> Result<Over> {
        let Some(name) = &over.name else { return Ok(over.clone()) };
        let named = self.extras.iter().flat_map(|extras| &extras.named).find(|(other, _)| other.value == *name);
        let error = || Error::new(SqlState::UNDEFINED_OBJECT, format!("window \"{name}\" does not exist"));
        let base = &named.ok_or_else(|| error().at(over.at))?.1;
        if !over.partition_by.is_empty() {
            return Err(windowing(format!("cannot override PARTITION BY clause of window \"{name}\""), over.at));
        }
        if !over.order_by.is_empty() && !base.order_by.is_empty() {
            return Err(windowing(format!("cannot override ORDER BY clause of window \"{name}\""), over.at));
        }
        let order_by = if over.order_by.is_empty() { base.order_by.clone() } else { over.order_by.clone() };
        let frame = over.frame.clone().or_else(|| base.frame.clone());
        Ok(Over { name: None, order_by, frame, ..base.clone() })
    }

    fn frame(&mut self, over: &Over, scope: &Scope<'_>) -> Result<Frame> {
        let Some(frame) = &over.frame else {
            let to = if over.order_by.is_empty() { FrameBound::End } else { FrameBound::Current };
            let exclude = ast::Exclude::Nothing;
            return Ok(Frame { unit: FrameUnit::Range, from: FrameBound::Start, to, exclude, range: None });
        };
        let range = self.range_types(frame, over, scope)?;
        let mut bound = |bound: &ast::FrameBound, is_from: bool| -> Result<FrameBound> {
            let mut offset = |expr: &ast::Expr| -> Result<Box<Expr>> {
                let typed = self.expr(expr, scope)?;
                let (given, wanted) = (typed.ty, range.map_or(Type::Int8, |(_, offset)| offset));
                let found = self.coerce(typed, wanted, Context::Assignment, expr.at()).map_err(|error| match range {
                    Some((of, _)) if error.state() == SqlState::DATATYPE_MISMATCH => {
                        no_range(&format!("{of} and offset type {given}"), expr.at())
                    }
                    _ => error,
                });
                Ok(Box::new(found?.expr))
            };
            Ok(match bound {
                ast::FrameBound::Current => FrameBound::Current,
                ast::FrameBound::Preceding(None) if is_from => FrameBound::Start,
                ast::FrameBound::Following(None) if !is_from => FrameBound::End,
                ast::FrameBound::Preceding(None) => {
                    return Err(windowing("frame end cannot be UNBOUNDED PRECEDING", over.at));
                }
                ast::FrameBound::Following(None) => {
                    return Err(windowing("frame start cannot be UNBOUNDED FOLLOWING", over.at));
                }
                ast::FrameBound::Preceding(Some(expr)) => FrameBound::Before(offset(expr)?),
                ast::FrameBound::Following(Some(expr)) => FrameBound::After(offset(expr)?),
            })
        };
        let (from, to) = (bound(&frame.from, true)?, bound(&frame.to, false)?);
        match (&from, &to) {
            (FrameBound::Current, FrameBound::Before(_)) => {
                return Err(windowing("frame starting from current row cannot have preceding rows", over.at));
            }
            (FrameBound::After(_), FrameBound::Before(_) | FrameBound::Current) => {
                return Err(windowing("frame starting from following row cannot have preceding rows", over.at));
            }
            _ => {}
        }
        if frame.unit == FrameUnit::Groups && over.order_by.is_empty() {
            return Err(windowing("GROUPS mode requires an ORDER BY clause", over.at));
        }
        Ok(Frame { unit: frame.unit, from, to, exclude: frame.exclude, range })
    }

    /// The types of the order and the offsets of a RANGE frame. `None`: it has no offset.
    fn range_types(&mut self, frame: &ast::Frame, over: &Over, scope: &Scope<'_>) -> Result<Option<(Type, Type)>> {
        let is_counted = |bound: &ast::FrameBound| {
            matches!(bound, ast::FrameBound::Preceding(Some(_)) | ast::FrameBound::Following(Some(_)))
        };
        if frame.unit != FrameUnit::Range || !is_counted(&frame.from) && !is_counted(&frame.to) {
            return Ok(None);
        }
        let [order] = &over.order_by[..] else {
            let message = "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column";
            return Err(windowing(message, over.at));
        };
        let ty = self.expr(&order.expr, scope)?.ty;
        let offset = match ty {
            Type::Int2 | Type::Int4 | Type::Int8 => Type::Int8,
            Type::Float4 | Type::Float8 => Type::Float8,
            Type::Numeric => Type::Numeric,
            Type::Date | Type::Time | Type::Timetz | Type::Timestamp | Type::Timestamptz | Type::Interval => {
                Type::Interval
            }
            _ => {
                return Err(no_range(&ty.to_string(), over.at));
            }
        };
        Ok(Some((ty, offset)))
    }

    fn window_function(
        &mut self,
        call: &Call,
        at: Position,
        scope: &Scope<'_>,
    ) -> Result<(WindowFunction, Vec<Expr>, Option<Expr>, Type)> {
        let name = call.name.name.as_str();
        if is_aggregate(name) {
            if call.is_distinct {
                return Err(Error::unsupported("DISTINCT in a window function").at(at));
            }
            if !call.order_by.is_empty() {
                return Err(Error::unsupported("ORDER BY inside a window function").at(at));
            }
            let (found, ty) = self.aggregate_call(call, at, scope)?;
            return Ok((WindowFunction::Aggregate(found.aggregate), found.arguments, found.filter, ty));
        }
        if !is_window(name) {
            let message = format!("OVER specified, but {name} is not a window function nor an aggregate function");
            return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message).at(at));
        }
        if call.filter.is_some() {
            return Err(Error::unsupported("FILTER of a window function that is no aggregate").at(at));
        }
        let mut list = Vec::new();
        for expr in &call.arguments {
            list.push(self.expr(expr, scope)?);
        }
        let types: Vec<Type> = list.iter().map(|typed| typed.ty).collect();
        let undefined = || super::call::undefined(name, &types, at);
        let mut list = list.into_iter();
        let (one, two, three, rest) = (list.next(), list.next(), list.next(), list.next());
        use WindowFunction as W;
        let (function, arguments, ty) = match (name, one, two, three, rest) {
            ("row_number", None, None, None, None) => (W::RowNumber, vec![], Type::Int8),
            ("rank", None, None, None, None) => (W::Rank, vec![], Type::Int8),
            ("dense_rank", None, None, None, None) => (W::DenseRank, vec![], Type::Int8),
            ("percent_rank", None, None, None, None) => (W::PercentRank, vec![], Type::Float8),
            ("cume_dist", None, None, None, None) => (W::CumeDist, vec![], Type::Float8),
            ("ntile", Some(count), None, None, None) => {
                let count = self.coerce(count, Type::Int4, Context::Implicit, at).map_err(|_| undefined())?;
                (W::Ntile, vec![count.expr], Type::Int4)
            }
            ("lag" | "lead", Some(value), offset, default, None) => {
                let value = self.known(value);
                let ty = value.ty;
                let one = Typed::new(Expr::Const(Datum::Int(1)), Type::Int4);
                let offset = offset.unwrap_or(one);
                let offset = self.coerce(offset, Type::Int4, Context::Implicit, at).map_err(|_| undefined())?;
                let mut arguments = vec![value.expr, offset.expr];
                if let Some(default) = default {
                    let default = self.coerce(default, ty, Context::Implicit, at).map_err(|_| undefined())?;
                    arguments.push(default.expr);
                }
                (if name == "lag" { W::Lag } else { W::Lead }, arguments, ty)
            }
            ("first_value" | "last_value", Some(value), None, None, None) => {
                let value = self.known(value);
                (if name == "first_value" { W::FirstValue } else { W::LastValue }, vec![value.expr], value.ty)
            }
            ("nth_value", Some(value), Some(number), None, None) => {
                let value = self.known(value);
                let number = self.coerce(number, Type::Int4, Context::Implicit, at).map_err(|_| undefined())?;
                (W::NthValue, vec![value.expr, number.expr], value.ty)
            }
            _ => return Err(undefined()),
        };
        Ok((function, arguments, None, ty))
    }
}

/// The error of offsets that cannot be counted in a type.
fn no_range(types: &str, at: Position) -> Error {
    let message = format!("RANGE with offset PRECEDING/FOLLOWING is not supported for column type {types}");
    Error::new(SqlState::FEATURE_NOT_SUPPORTED, message).at(at)
}
