//! Functions that return rows.

use lodestone_sql_types::{Datum, Error, Numeric, SqlState};

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
            let mut lists: Vec<std::vec::IntoIter<Datum>> = Vec::new();
            for (function, arguments) in calls {
                let arguments = arguments.iter().map(|expr| self.eval(expr, &env)).collect::<Outcome<Vec<_>>>()?;
                let mut values = Vec::new();
                self.set_values(*function, &arguments, false, &mut |row| {
                    values.extend(row.into_iter().next());
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
            let mut row = vec![value];
            if has_ordinality {
                row.push(Datum::Int(number));
            }
            sink(row)
        };
        match (function, arguments) {
            (SetFunction::One, [value]) => give(value.clone()),
            (SetFunction::Unnest, [Datum::Array(values)]) => {
                for value in values {
                    if give(value.clone())? == Flow::Enough {
                        return Ok(Flow::Enough);
                    }
                }
                Ok(Flow::More)
            }
            (SetFunction::GenerateSubscripts, [Datum::Array(values), Datum::Int(1)]) => {
                series(1.into(), i64::try_from(values.len()).unwrap_or(i64::MAX).into(), 1.into(), |value| {
                    give(Datum::Int(value.to_i64()?))
                })
            }
            (SetFunction::GenerateSeries, [first, last, rest @ ..]) => {
                let is_integer = first.as_int().is_some();
                let of = |datum: &Datum| match datum {
                    Datum::Int(value) => Some(Numeric::from(*value)),
                    Datum::Numeric(value) => Some(*value),
                    _ => None,
                };
                let step = rest.first().map_or(Some(1.into()), of);
                let (Some(first), Some(last), Some(step)) = (of(first), of(last), step) else { return Ok(Flow::More) };
                series(first, last, step, |value| {
                    give(if is_integer { Datum::Int(value.to_i64()?) } else { Datum::Numeric(value) })
                })
            }
            _ => Ok(Flow::More),
        }
    }
}

fn series(
    first: Numeric,
    last: Numeric,
    step: Numeric,
    mut give: impl FnMut(Numeric) -> Outcome<Flow>,
) -> Outcome<Flow> {
    if step.units() == 0 {
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, "step size cannot equal zero").into());
    }
    let mut value = first;
    while if step.units() > 0 { value <= last } else { value >= last } {
        if give(value)? == Flow::Enough {
            return Ok(Flow::Enough);
        }
        value = value.plus(step)?;
    }
    Ok(Flow::More)
}
