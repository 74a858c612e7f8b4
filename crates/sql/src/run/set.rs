//! Functions that return rows.

use std::sync::Arc;

use lodestone_sql_types::json::{Raw, RawKind};
use lodestone_sql_types::op::{Arithmetic, arithmetic};
use lodestone_sql_types::{Datum, Error, Interval, Numeric, SqlState, Type, array, func};

use super::{Env, Flow, Outcome, Row, Run};
use crate::plan::{Expr, Node, SetFunction};

impl Run<'_> {
    /// For each row as many as the longest of the calls returns.
    pub(super) fn project_set(
        &self,
        input: &Node,
        calls: &[(SetFunction, Vec<Expr>)],
        outer: Option<&Env<'_>>,
        sink: &mut dyn FnMut(Row) -> Outcome<Flow>,
    ) -> Outcome<Flow> {
        self.each(input, outer, &mut |row| {
            let env = Env { row: &row, outer };
            if let [(function, arguments)] = calls {
                // One function alone needs no list of its rows.
                let arguments = arguments.iter().map(|expr| self.eval(expr, &env)).collect::<Outcome<Vec<_>>>()?;
                let mut flow = Flow::More;
                self.set_values(*function, &arguments, false, &mut |values| {
                    let value = if values.len() > 1 { vec![Datum::Record(values)] } else { values };
                    flow = sink(row.iter().cloned().chain(value).collect())?;
                    Ok(flow)
                })?;
                return Ok(flow);
            }
            let mut lists: Vec<std::vec::IntoIter<Datum>> = Vec::new();
            for (function, arguments) in calls {
                let arguments = arguments.iter().map(|expr| self.eval(expr, &env)).collect::<Outcome<Vec<_>>>()?;
                let mut values = Vec::new();
                self.set_values(*function, &arguments, false, &mut |row| {
                    // A row of several columns is one value here.
                    if row.len() > 1 {
                        values.push(Datum::Record(row))
                    } else {
                        values.extend(row)
                    }
                    Ok(Flow::More)
                })?;
                lists.push(values.into_iter());
            }
            loop {
                let next: Vec<Option<Datum>> = lists.iter_mut().map(Iterator::next).collect();
                if next.iter().all(Option::is_none) {
                    return Ok(Flow::More);
                }
                let values = next.into_iter().map(Option::unwrap_or_default);
                if sink(row.iter().cloned().chain(values).collect())? == Flow::Enough {
                    return Ok(Flow::Enough);
                }
            }
        })
    }

    pub(super) fn set_function(
        &self,
        function: SetFunction,
        arguments: &[Expr],
        has_ordinality: bool,
        outer: Option<&Env<'_>>,
        sink: &mut dyn FnMut(Row) -> Outcome<Flow>,
    ) -> Outcome<Flow> {
        // The columns before the function are at depth 1 here.
        let env = Env { row: &[], outer };
        let arguments = arguments.iter().map(|expr| self.eval(expr, &env)).collect::<Outcome<Vec<_>>>()?;
        self.set_values(function, &arguments, has_ordinality, sink)
    }

    fn set_values(
        &self,
        function: SetFunction,
        arguments: &[Datum],
        has_ordinality: bool,
        sink: &mut dyn FnMut(Row) -> Outcome<Flow>,
    ) -> Outcome<Flow> {
        let mut number = 0;
        let mut give = |value: Datum| {
            self.step()?;
            number += 1;
            let is_pair = matches!(function, SetFunction::JsonEach { .. });
            let mut row = match value {
                Datum::Record(values) if is_pair => values,
                value => vec![value],
            };
            if has_ordinality {
                row.push(Datum::Int(number));
            }
            sink(row)
        };
        match (function, arguments) {
            (SetFunction::One, [value]) => give(value.clone()),
            (SetFunction::JsonRows(ty), [base, json]) => {
                for object in json_objects(json)? {
                    if give(super::eval::populated(ty, base.clone(), &object)?)? == Flow::Enough {
                        return Ok(Flow::Enough);
                    }
                }
                Ok(Flow::More)
            }
            (SetFunction::Unnest, [list @ (Datum::Array(_) | Datum::Shaped(_))]) => {
                for value in array::values(list) {
                    if give(value.clone())? == Flow::Enough {
                        return Ok(Flow::Enough);
                    }
                }
                Ok(Flow::More)
            }
            (SetFunction::GenerateSubscripts, [list, Datum::Int(number), rest @ ..]) => {
                let dimensions = array::dimensions(list);
                let place = usize::try_from(*number).ok().and_then(|number| number.checked_sub(1));
                let Some(found) = place.and_then(|place| dimensions.get(place)) else { return Ok(Flow::More) };
                let (first, last) = (found.low, found.high());
                let is_reverse = rest.first() == Some(&Datum::Bool(true));
                let (first, last, step) = if is_reverse { (last, first, -1) } else { (first, last, 1) };
                series(first.into(), last.into(), step.into(), |value| give(Datum::Int(value.to_i64()?)))
            }
            (SetFunction::GenerateMoments(ty), [Datum::Time(first), Datum::Time(last), Datum::Interval(step)]) => {
                moments(ty, (*first, *last), *step, give)
            }
            (SetFunction::RegexMatches | SetFunction::RegexSplit | SetFunction::StringToTable, list) => {
                for value in parts_of_text(function, list)? {
                    if give(value)? == Flow::Enough {
                        return Ok(Flow::Enough);
                    }
                }
                Ok(Flow::More)
            }
            (SetFunction::JsonEach { .. } | SetFunction::JsonElements { .. } | SetFunction::JsonKeys, [value]) => {
                for value in json_parts(function, value)? {
                    if give(value)? == Flow::Enough {
                        return Ok(Flow::Enough);
                    }
                }
                Ok(Flow::More)
            }
            (SetFunction::GenerateSeries, [first, last, rest @ ..]) => {
                let is_integer = first.as_int().is_some();
                let of = |datum: &Datum| match datum {
                    Datum::Int(value) => Some(Numeric::from(*value)),
                    Datum::Numeric(value) => Some(value.clone()),
                    _ => None,
                };
                let step = rest.first().map_or(Some(1.into()), of);
                let (Some(first), Some(last), Some(step)) = (of(first), of(last), step) else { return Ok(Flow::More) };
                for (what, number) in [("start value", &first), ("stop value", &last), ("step size", &step)] {
                    check_finite(what, number)?;
                }
                series(first, last, step, |value| {
                    give(if is_integer { Datum::Int(value.to_i64()?) } else { Datum::Numeric(value) })
                })
            }
            _ => Ok(Flow::More),
        }
    }
}

/// # Errors
/// 22023 for a number that a series never comes to, or never leaves.
fn check_finite(what: &str, number: &Numeric) -> lodestone_sql_types::Result<()> {
    let kind = match () {
        () if number.is_nan() => "NaN",
        () if !number.is_finite() => "infinity",
        () => return Ok(()),
    };
    Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, format!("{what} cannot be {kind}")))
}

/// Moments with a span between them.
fn moments(
    ty: Type,
    (first, last): (i64, i64),
    step: Interval,
    mut give: impl FnMut(Datum) -> Outcome<Flow>,
) -> Outcome<Flow> {
    let length = step.length();
    if length == 0 {
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, "step size cannot equal zero").into());
    }
    let mut moment = first;
    while if length > 0 { moment <= last } else { moment >= last } {
        if give(Datum::Time(moment))? == Flow::Enough {
            return Ok(Flow::Enough);
        }
        // In the zone of the session, if the type has one.
        match arithmetic(Arithmetic::Add, ty, &Datum::Time(moment), &Datum::Interval(step))? {
            Datum::Time(next) => moment = next,
            _ => break,
        }
    }
    Ok(Flow::More)
}

/// The parts of a text between or inside matches. A null argument has none.
fn parts_of_text(function: SetFunction, arguments: &[Datum]) -> lodestone_sql_types::Result<Vec<Datum>> {
    let text = |number: usize| arguments.get(number).and_then(Datum::as_text);
    let Some(whole) = text(0) else { return Ok(Vec::new()) };
    if function == SetFunction::StringToTable {
        let null = text(2);
        let datum = |part: String| if Some(part.as_str()) == null { Datum::Null } else { Datum::Text(part) };
        return Ok(match text(1) {
            _ if whole.is_empty() => Vec::new(),
            None => whole.chars().map(|letter| datum(letter.to_string())).collect(),
            Some("") => vec![datum(whole.to_owned())],
            Some(separator) => whole.split(separator).map(|part| datum(part.to_owned())).collect(),
        });
    }
    let (Some(pattern), false) = (text(1), arguments.get(2).is_some_and(Datum::is_null)) else { return Ok(Vec::new()) };
    let flags = text(2).unwrap_or_default();
    if function == SetFunction::RegexMatches {
        return func::regex_matches(whole, pattern, flags);
    }
    Ok(func::regex_split(whole, pattern, flags)?.into_iter().map(Datum::Text).collect())
}

/// The objects of a JSON array.
fn json_objects(json: &Datum) -> lodestone_sql_types::Result<Vec<Datum>> {
    let is_tree = matches!(json, Datum::Json(_));
    let name = if is_tree { "jsonb_populate_recordset" } else { "json_populate_recordset" };
    let wrong = |message: String| Error::new(SqlState::INVALID_PARAMETER_VALUE, message);
    let list = json_parts(SetFunction::JsonElements { is_text: false }, json).map_err(|error| {
        let what = match error.message().ends_with("an object") {
            _ if is_tree => "a non-array",
            true => "an object",
            false => "a scalar",
        };
        let is_kind = error.state() == SqlState::INVALID_PARAMETER_VALUE;
        if is_kind { wrong(format!("cannot call {name} on {what}")) } else { error }
    })?;
    let is_object = |value: &Datum| match value {
        Datum::Json(json) => json.type_name() == "object",
        Datum::Text(text) => text.trim_start().starts_with('{'),
        _ => false,
    };
    match list.iter().all(is_object) {
        true => Ok(list),
        false => Err(wrong(format!("argument of {name} must be an array of objects"))),
    }
}

/// The members, elements or keys of a JSON value.
fn json_parts(function: SetFunction, value: &Datum) -> lodestone_sql_types::Result<Vec<Datum>> {
    let wrong = |message: &'static str| Error::new(SqlState::INVALID_PARAMETER_VALUE, message);
    let is_scalar = |kind: &RawKind| !matches!(kind, RawKind::Array(_) | RawKind::Object(_));
    // A `jsonb` has the same parts as its text.
    let (text, is_tree) = match value {
        Datum::Text(text) => (text.clone(), false),
        Datum::Json(json) => (json.to_string(), true),
        _ => return Ok(Vec::new()),
    };
    let raw = Raw::parse(&text, "json")?;
    let shown = |part: &Raw, is_text: bool| -> lodestone_sql_types::Result<Datum> {
        Ok(match (is_text, is_tree) {
            (true, _) => part.as_text(&text).map_or(Datum::Null, Datum::Text),
            (false, true) => Datum::Json(Arc::new(part.value(&text)?)),
            (false, false) => Datum::from(&text[part.start..part.end]),
        })
    };
    match (function, &raw.kind) {
        (SetFunction::JsonEach { is_text }, RawKind::Object(members)) => {
            let pair =
                |(key, part): &(String, Raw)| Ok(Datum::Record(vec![Datum::from(key.as_str()), shown(part, is_text)?]));
            members.iter().map(pair).collect()
        }
        (SetFunction::JsonKeys, RawKind::Object(members)) => {
            Ok(members.iter().map(|(key, _)| Datum::from(key.as_str())).collect())
        }
        (SetFunction::JsonElements { is_text }, RawKind::Array(list)) => {
            list.iter().map(|part| shown(part, is_text)).collect()
        }
        (SetFunction::JsonEach { .. }, kind) if is_scalar(kind) => Err(wrong("cannot deconstruct a scalar")),
        (SetFunction::JsonEach { .. }, _) => Err(wrong("cannot deconstruct an array as an object")),
        (SetFunction::JsonKeys, kind) if is_scalar(kind) => Err(wrong("cannot call json_object_keys on a scalar")),
        (SetFunction::JsonKeys, _) => Err(wrong("cannot call json_object_keys on an array")),
        (_, kind) if is_scalar(kind) => Err(wrong("cannot extract elements from a scalar")),
        _ => Err(wrong("cannot extract elements from an object")),
    }
}

fn series(
    first: Numeric,
    last: Numeric,
    step: Numeric,
    mut give: impl FnMut(Numeric) -> Outcome<Flow>,
) -> Outcome<Flow> {
    if step.signum() == 0 {
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, "step size cannot equal zero").into());
    }
    let mut value = first;
    while if step.signum() > 0 { value <= last } else { value >= last } {
        if give(value.clone())? == Flow::Enough {
            return Ok(Flow::Enough);
        }
        value = match value.plus(&step) {
            Ok(next) => next,
            // No number is larger than this one would be, so the last one was given.
            Err(error) if last.is_finite() && error.state() == SqlState::NUMERIC_VALUE_OUT_OF_RANGE => break,
            Err(error) => return Err(error.into()),
        };
    }
    Ok(Flow::More)
}
