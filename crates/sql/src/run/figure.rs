//! Variances, correlations and lines through points.
//!
//! Of decimal numbers the sums of the values and of their squares are kept, exactly. Of floating-point numbers the sums
//! of the values and of the squared distances from the mean are, as `PostgreSQL` keeps them (Youngs and Cramer): a sum
//! of squares would lose the small distances of large numbers.

use lodestone_sql_types::{Datum, Numeric, Result, Type, numeric};

use super::aggregate::State;
use crate::plan::Figure;

fn real(datum: Option<&Datum>) -> f64 {
    if let Some(Datum::Float(value)) = datum { *value } else { 0.0 }
}

fn sums(value: &Datum) -> &[Datum] {
    if let Datum::Array(sums) = value { sums } else { &[] }
}

impl State {
    /// Adds a value, or a pair of them. A pair with a null does not count.
    pub(super) fn add_figure(&mut self, ty: Type, arguments: &[Datum]) -> Result<()> {
        if arguments.iter().any(Datum::is_null) {
            return Ok(());
        }
        self.value = Datum::Array(match (ty, arguments) {
            (Type::Numeric, [Datum::Numeric(value)]) => exact(sums(&self.value), value)?,
            (_, [Datum::Float(value)]) => single(sums(&self.value), *value),
            // The first argument is y, the second x.
            (_, [Datum::Float(y), Datum::Float(x)]) => pair(sums(&self.value), *x, *y),
            _ => return Ok(()),
        });
        Ok(())
    }
}

/// Count, sum, sum of squares.
fn exact(sums: &[Datum], value: &Numeric) -> Result<Vec<Datum>> {
    let part = |place: usize| match sums.get(place) {
        Some(Datum::Numeric(sum)) => sum.clone(),
        _ => Numeric::from(0),
    };
    let square = value.multiply(value)?;
    let found = [part(0).plus(&1.into())?, part(1).plus(value)?, part(2).plus(&square)?];
    Ok(found.map(Datum::Numeric).to_vec())
}

/// Count, sum, squared distances.
fn single(sums: &[Datum], value: f64) -> Vec<Datum> {
    let (before, sum, mut distances) = (real(sums.first()), real(sums.get(1)), real(sums.get(2)));
    let (count, sum) = (before + 1.0, sum + value);
    if before > 0.0 {
        let distance = value * count - sum;
        distances += distance * distance / (count * before);
        if !(value.is_finite() && sum.is_finite()) {
            distances = f64::NAN;
        }
    } else if !value.is_finite() {
        distances = f64::NAN;
    }
    [count, sum, distances].map(Datum::Float).to_vec()
}

/// Count; sum and squared distances of x and of y; products of the distances.
fn pair(sums: &[Datum], x: f64, y: f64) -> Vec<Datum> {
    let part = |place: usize| real(sums.get(place));
    let before = part(0);
    let (count, sum_x, sum_y) = (before + 1.0, part(1) + x, part(3) + y);
    let (mut xx, mut yy, mut xy) = (part(2), part(4), part(5));
    if before > 0.0 {
        let (distance_x, distance_y) = (x * count - sum_x, y * count - sum_y);
        let scale = 1.0 / (count * before);
        xx += distance_x * distance_x * scale;
        yy += distance_y * distance_y * scale;
        xy += distance_x * distance_y * scale;
    }
    if !x.is_finite() {
        (xx, xy) = (f64::NAN, f64::NAN);
    }
    if !y.is_finite() {
        (yy, xy) = (f64::NAN, f64::NAN);
    }
    [count, sum_x, xx, sum_y, yy, xy].map(Datum::Float).to_vec()
}

/// The figure of the sums; null if there are too few values.
pub(super) fn result(figure: Figure, ty: Type, value: &Datum) -> Result<Datum> {
    let sums = sums(value);
    if ty == Type::Numeric {
        return exact_result(figure, sums);
    }
    let part = |place: usize| real(sums.get(place));
    let count = part(0);
    if figure == Figure::Count {
        return Ok(Datum::Int(format!("{count:.0}").parse().unwrap_or(0)));
    }
    let found = if sums.len() == 3 {
        variance(figure, count, part(2))
    } else {
        of_pairs(figure, count, (part(1), part(2)), (part(3), part(4)), part(5))
    };
    Ok(found.map_or(Datum::Null, Datum::Float))
}

fn variance(figure: Figure, count: f64, distances: f64) -> Option<f64> {
    let is_sample = matches!(figure, Figure::VarianceSample | Figure::DeviationSample);
    let divisor = if is_sample { count - 1.0 } else { count };
    let is_root = matches!(figure, Figure::DeviationPopulation | Figure::DeviationSample);
    let found = (divisor > 0.0).then(|| distances / divisor)?;
    Some(if is_root { found.sqrt() } else { found })
}

fn of_pairs(figure: Figure, count: f64, (x, xx): (f64, f64), (y, yy): (f64, f64), xy: f64) -> Option<f64> {
    if count < 1.0 {
        return None;
    }
    match figure {
        Figure::SquaresX => Some(xx),
        Figure::SquaresY => Some(yy),
        Figure::Products => Some(xy),
        Figure::AverageX => Some(x / count),
        Figure::AverageY => Some(y / count),
        Figure::CovariancePopulation => Some(xy / count),
        Figure::CovarianceSample => (count > 1.0).then(|| xy / (count - 1.0)),
        Figure::Correlation => (xx != 0.0 && yy != 0.0).then(|| xy / (xx * yy).sqrt()),
        Figure::Determination if xx == 0.0 => None,
        Figure::Determination if yy == 0.0 => Some(1.0),
        Figure::Determination => Some(xy * xy / (xx * yy)),
        Figure::Slope => (xx != 0.0).then(|| xy / xx),
        Figure::Intercept => (xx != 0.0).then(|| (y - x * xy / xx) / count),
        _ => None,
    }
}

fn exact_result(figure: Figure, sums: &[Datum]) -> Result<Datum> {
    let [Datum::Numeric(count), Datum::Numeric(sum), Datum::Numeric(squares)] = sums else { return Ok(Datum::Null) };
    let is_sample = matches!(figure, Figure::VarianceSample | Figure::DeviationSample);
    let less = if is_sample { count.minus(&1.into())? } else { count.clone() };
    if less.signum() <= 0 {
        return Ok(Datum::Null);
    }
    if !sum.is_finite() {
        return Ok(Datum::Numeric(Numeric::NAN));
    }
    let distances = count.multiply(squares)?.minus(&sum.multiply(sum)?)?;
    if distances.signum() <= 0 {
        return Ok(Datum::Numeric(0.into()));
    }
    let found = distances.divide(&count.multiply(&less)?)?;
    let is_root = matches!(figure, Figure::DeviationPopulation | Figure::DeviationSample);
    Ok(Datum::Numeric(if is_root { numeric::deviation(&found)? } else { found }))
}
