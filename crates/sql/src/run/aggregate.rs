//! Groups and aggregates.

use std::collections::{HashMap, HashSet};

use lodestone_sql_types::op::{Arithmetic, arithmetic, order};
use lodestone_sql_types::{Datum, Error, Numeric, Result, SqlState, Type, array, json, text};

use super::{Env, Flow, Outcome, Row, Run};
use crate::plan::{Aggregate, AggregateCall, Expr, Node};

/// The state of an aggregate after the rows so far.
#[derive(Clone)]
pub(super) struct State {
    /// Values that are not null.
    count: i64,
    pub(super) value: Datum,
    seen: HashSet<Vec<u8>>,
    /// Arguments with the keys of their order, for aggregates that depend on it.
    rows: Vec<(Row, Row)>,
}

/// The text before, if there is one, with another one after it. It grows in its place: a list of many parts is not
/// copied for each.
fn longer(before: Datum, separator: &str, part: &str) -> Result<String> {
    let Datum::Text(mut text) = before else { return Ok(part.to_owned()) };
    let length = text.len().saturating_add(separator.len()).saturating_add(part.len());
    text::check_length(length, text::BYTES_MAX)?;
    text.push_str(separator);
    text.push_str(part);
    Ok(text)
}

impl State {
    pub(super) fn new() -> Self {
        Self { count: 0, value: Datum::Null, seen: HashSet::new(), rows: Vec::new() }
    }

    /// Adds a value.
    pub(super) fn add(&mut self, aggregate: Aggregate, arguments: &[Datum]) -> Result<()> {
        let argument = arguments.first().cloned().unwrap_or(Datum::Null);
        let takes_nulls = matches!(
            aggregate,
            Aggregate::CountRows
                | Aggregate::ArrayAgg
                | Aggregate::ArrayStack
                | Aggregate::JsonAgg(_)
                | Aggregate::JsonObjectAgg(_)
        );
        if argument.is_null() && !takes_nulls {
            return Ok(());
        }
        if let Aggregate::Figure(_, ty) = aggregate {
            return self.add_figure(ty, arguments);
        }
        self.count += 1;
        let before = std::mem::replace(&mut self.value, Datum::Null);
        let is_first = before.is_null();
        self.value = match aggregate {
            Aggregate::CountRows | Aggregate::Count => Datum::Null,
            _ if is_first && !takes_nulls => argument,
            Aggregate::Sum(ty) | Aggregate::Avg(ty) => arithmetic(Arithmetic::Add, ty, &before, &argument)?,
            Aggregate::Min(ty) if order(ty, &argument, &before).is_lt() => argument,
            Aggregate::Max(ty) if order(ty, &argument, &before).is_gt() => argument,
            Aggregate::Min(_) | Aggregate::Max(_) => before,
            Aggregate::BoolAnd => Datum::Bool(before.truth() == Some(true) && argument.truth() == Some(true)),
            Aggregate::BoolOr => Datum::Bool(before.truth() == Some(true) || argument.truth() == Some(true)),
            Aggregate::BitAnd => arithmetic(Arithmetic::BitAnd, Type::Int8, &before, &argument)?,
            Aggregate::BitOr => arithmetic(Arithmetic::BitOr, Type::Int8, &before, &argument)?,
            Aggregate::BitXor => arithmetic(Arithmetic::BitXor, Type::Int8, &before, &argument)?,
            Aggregate::JsonAgg(_) => Datum::Text(longer(before, ", ", argument.as_text().unwrap_or("null"))?),
            Aggregate::JsonObjectAgg(_) => {
                let Some(key) = argument.as_text() else {
                    let (state, message) = (SqlState::INVALID_PARAMETER_VALUE, "field name must not be null");
                    return Err(Error::new(state, message));
                };
                let mut member = String::new();
                json::quote(key, &mut member);
                member.push_str(" : ");
                member.push_str(arguments.get(1).and_then(Datum::as_text).unwrap_or("null"));
                Datum::Text(longer(before, ", ", &member)?)
            }
            // Handled before.
            Aggregate::Figure(..) => before,
            Aggregate::StringAgg => match (before, argument) {
                (before @ Datum::Text(_), Datum::Text(value)) => {
                    let separator = arguments.get(1).and_then(Datum::as_text).unwrap_or_default();
                    Datum::Text(longer(before, separator, &value)?)
                }
                (before, _) => before,
            },
            Aggregate::ArrayStack if argument.is_null() => {
                return Err(Error::new(SqlState::NULL_VALUE_NOT_ALLOWED, "cannot accumulate null arrays"));
            }
            Aggregate::ArrayStack if array::values(&argument).is_empty() => {
                return Err(Error::new(SqlState::ARRAY_SUBSCRIPT_ERROR, "cannot accumulate empty arrays"));
            }
            Aggregate::ArrayAgg | Aggregate::ArrayStack => match before {
                Datum::Array(mut values) => {
                    values.push(argument);
                    Datum::Array(values)
                }
                _ => Datum::Array(vec![argument]),
            },
        };
        Ok(())
    }

    pub(super) fn result(self, aggregate: Aggregate) -> Result<Datum> {
        Ok(match (aggregate, self.value) {
            (Aggregate::CountRows | Aggregate::Count, _) => Datum::Int(self.count),
            (Aggregate::Avg(Type::Numeric), Datum::Numeric(sum)) => {
                Datum::Numeric(sum.divide(&Numeric::from(self.count))?)
            }
            (Aggregate::Avg(Type::Interval), Datum::Interval(sum)) => {
                Datum::Interval(sum.divide(Numeric::from(self.count).to_f64())?)
            }
            (Aggregate::Avg(ty), sum @ Datum::Float(_)) => {
                let count = Datum::Float(Numeric::from(self.count).to_f64());
                arithmetic(Arithmetic::Divide, ty, &sum, &count)?
            }
            (Aggregate::JsonAgg(ty), Datum::Text(list)) => text::decode(ty, &format!("[{list}]"))?,
            (Aggregate::JsonObjectAgg(ty), Datum::Text(list)) => text::decode(ty, &format!("{{ {list} }}"))?,
            (Aggregate::Figure(figure, ty), value) => super::figure::result(figure, ty, &value)?,
            (Aggregate::ArrayStack, Datum::Array(values)) => {
                array::stack(&values).map_err(|error| match error.state() {
                    SqlState::ARRAY_SUBSCRIPT_ERROR => {
                        let message = "cannot accumulate arrays of different dimensionality";
                        Error::new(SqlState::ARRAY_SUBSCRIPT_ERROR, message)
                    }
                    _ => error,
                })?
            }
            (_, value) => value,
        })
    }
}

/// The groups so far.
struct Groups<'c> {
    calls: &'c [AggregateCall],
    places: HashMap<Vec<u8>, usize>,
    list: Vec<(Row, Vec<State>)>,
}

impl Groups<'_> {
    /// The place of the group of a set with this key. Sets that are the same have groups of their own.
    fn place(&mut self, set: usize, key: Row) -> usize {
        let mut bytes = set.to_le_bytes().to_vec();
        key.iter().for_each(|datum| datum.key(&mut bytes));
        *self.places.entry(bytes).or_insert_with(|| {
            self.list.push((key, self.calls.iter().map(|_| State::new()).collect()));
            self.list.len() - 1
        })
    }
}

/// The keys of a set, with nulls for the others and the number that says which those are.
fn of_set(key: &Row, set: &[usize]) -> Row {
    let left_out = |number: &usize| !set.contains(number);
    let count = key.len().saturating_sub(1);
    let bits =
        (0..count).filter(left_out).fold(0_i64, |bits, number| bits | 1_i64.checked_shl(shift(number)).unwrap_or(0));
    let of = |number: usize| if set.contains(&number) { key[number].clone() } else { Datum::Null };
    (0..count).map(of).chain([Datum::Int(bits)]).collect()
}

fn shift(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Run<'_> {
    pub(super) fn aggregate(
        &self,
        input: &Node,
        (keys, sets): (&[Expr], &[Vec<usize>]),
        calls: &[AggregateCall],
        outer: Option<&Env<'_>>,
        sink: &mut dyn FnMut(Row) -> Outcome<Flow>,
    ) -> Outcome<Flow> {
        let mut groups = Groups { calls, places: HashMap::new(), list: Vec::new() };
        // Without keys there is one group, also of no rows.
        if keys.is_empty() {
            groups.place(0, Vec::new());
        }
        for (number, set) in sets.iter().enumerate().filter(|(_, set)| set.is_empty()) {
            groups.place(number, of_set(&vec![Datum::Null; keys.len()], set));
        }
        self.each(input, outer, &mut |row| {
            let env = Env { row: &row, outer };
            let key = keys.iter().map(|expr| self.eval(expr, &env)).collect::<Outcome<Row>>()?;
            if sets.is_empty() {
                let place = groups.place(0, key);
                self.add_all(&mut groups, place, &env)?;
                return Ok(Flow::More);
            }
            for (number, set) in sets.iter().enumerate() {
                let place = groups.place(number, of_set(&key, set));
                self.add_all(&mut groups, place, &env)?;
            }
            Ok(Flow::More)
        })?;
        for (key, states) in groups.list {
            let mut row = key;
            for (call, mut state) in calls.iter().zip(states) {
                let mut rows = std::mem::take(&mut state.rows);
                rows.sort_by(|(one, _), (two, _)| super::order(&call.order_by, one, two));
                for (_, arguments) in rows {
                    state.add(call.aggregate, &arguments)?;
                }
                row.push(state.result(call.aggregate)?);
            }
            if sink(row)? == Flow::Enough {
                return Ok(Flow::Enough);
            }
        }
        Ok(Flow::More)
    }

    /// Adds a row to the group at this place.
    fn add_all(&self, groups: &mut Groups<'_>, place: usize, env: &Env<'_>) -> Outcome<()> {
        for (call, state) in groups.calls.iter().zip(&mut groups.list[place].1) {
            self.add(call, state, env)?;
        }
        Ok(())
    }

    fn add(&self, call: &AggregateCall, state: &mut State, env: &Env<'_>) -> Outcome<()> {
        if let Some(filter) = &call.filter
            && self.eval(filter, env)?.truth() != Some(true)
        {
            return Ok(());
        }
        let arguments = call.arguments.iter().map(|expr| self.eval(expr, env)).collect::<Outcome<Row>>()?;
        if call.is_distinct {
            let mut bytes = Vec::new();
            arguments.iter().for_each(|datum| datum.key(&mut bytes));
            if !state.seen.insert(bytes) {
                return Ok(());
            }
        }
        if call.order_by.is_empty() {
            return Ok(state.add(call.aggregate, &arguments)?);
        }
        let keys = call.order_by.iter().map(|key| self.eval(&key.expr, env)).collect::<Outcome<Row>>()?;
        state.rows.push((keys, arguments));
        Ok(())
    }
}
