//! Comparison and arithmetic. The binder has made both sides of one type.

use std::cmp::Ordering;

use crate::datum::Datum;
use crate::error::{Error, Result, SqlState};
use crate::interval::Interval;
use crate::style;
use crate::text::{narrow, out_of_range};
use crate::time::DAY_MICROS;
use crate::types::Type;

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    /// Whether it holds for sides in this order.
    #[must_use]
    pub fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }

    /// The operator that is written for it.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "<>",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }

    /// The comparison with its sides exchanged.
    #[must_use]
    pub fn flipped(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            other => other,
        }
    }
}

/// An operation on numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
}

/// The order of two values of type `ty`, neither of them null.
#[must_use]
pub fn order(ty: Type, one: &Datum, two: &Datum) -> Ordering {
    match (ty, one, two) {
        (Type::Bpchar, Datum::Text(one), Datum::Text(two)) => {
            one.trim_end_matches(' ').as_bytes().cmp(two.trim_end_matches(' ').as_bytes())
        }
        _ => one.order(two),
    }
}

/// The result of a comparison of values of type `ty`: null if one of them is.
///
/// ```
/// use lodestone_sql_types::op::{Comparison, compare};
/// use lodestone_sql_types::{Datum, Type};
///
/// let found = compare(Comparison::Less, Type::Int4, &Datum::Int(1), &Datum::Int(2));
/// assert_eq!(found, Datum::Bool(true));
/// assert_eq!(compare(Comparison::Equal, Type::Int4, &Datum::Null, &Datum::Null), Datum::Null);
/// ```
#[must_use]
pub fn compare(comparison: Comparison, ty: Type, one: &Datum, two: &Datum) -> Datum {
    if one.is_null() || two.is_null() {
        return Datum::Null;
    }
    Datum::Bool(comparison.holds(order(ty, one, two)))
}

fn by_zero() -> Error {
    Error::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}

/// The result of an operation on values of type `ty`: null if one of them is.
///
/// # Errors
/// 22003; 22012.
pub fn arithmetic(operation: Arithmetic, ty: Type, one: &Datum, two: &Datum) -> Result<Datum> {
    match (one, two) {
        (Datum::Null, _) | (_, Datum::Null) => Ok(Datum::Null),
        (Datum::Int(one), Datum::Int(two)) => integer(operation, ty, *one, *two).map(Datum::Int),
        (Datum::Float(one), Datum::Float(two)) => float(operation, ty, *one, *two).map(Datum::Float),
        (Datum::Numeric(one), Datum::Numeric(two)) => Ok(Datum::Numeric(match operation {
            Arithmetic::Add => one.plus(two)?,
            Arithmetic::Subtract => one.minus(two)?,
            Arithmetic::Multiply => one.multiply(two)?,
            Arithmetic::Divide => one.divide(two)?,
            Arithmetic::Remainder => one.remainder(two)?,
            _ => return Err(undefined(ty)),
        })),
        (Datum::Date(i32::MAX | i32::MIN), Datum::Int(_))
            if matches!(operation, Arithmetic::Add | Arithmetic::Subtract) =>
        {
            Ok(one.clone())
        }
        (Datum::Date(one), Datum::Int(two)) => {
            let days = match operation {
                Arithmetic::Add => i64::from(*one).checked_add(*two),
                Arithmetic::Subtract => i64::from(*one).checked_sub(*two),
                _ => return Err(undefined(ty)),
            };
            let error = || Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "date out of range");
            let days = days.filter(|days| crate::time::is_date(*days)).and_then(|days| i32::try_from(days).ok());
            days.map(Datum::Date).ok_or_else(error)
        }
        (Datum::Date(one), Datum::Date(two)) if operation == Arithmetic::Subtract => {
            if matches!(*one, i32::MAX | i32::MIN) || matches!(*two, i32::MAX | i32::MIN) {
                return Err(Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "cannot subtract infinite dates"));
            }
            Ok(Datum::Int(i64::from(*one) - i64::from(*two)))
        }
        (one, two) => temporal(operation, ty, one, two),
    }
}

/// Sums of moments and spans. `ty` is the type of the result.
fn temporal(operation: Arithmetic, ty: Type, one: &Datum, two: &Datum) -> Result<Datum> {
    use Arithmetic::{Add, Divide, Multiply, Subtract};
    let out = || Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range");
    Ok(match (one, operation, two) {
        (Datum::Interval(one), Add, Datum::Interval(two)) => Datum::Interval(one.plus(*two)?),
        (Datum::Interval(one), Subtract, Datum::Interval(two)) => Datum::Interval(one.plus(two.negate()?)?),
        (Datum::Interval(span), Multiply, Datum::Float(factor))
        | (Datum::Float(factor), Multiply, Datum::Interval(span)) => Datum::Interval(span.times(*factor)?),
        (Datum::Interval(span), Divide, Datum::Float(divisor)) => Datum::Interval(span.divide(*divisor)?),
        (Datum::Interval(span), Add, Datum::Time(moment)) | (Datum::Time(moment), Add, Datum::Interval(span)) => {
            later(*moment, *span, ty)?
        }
        (Datum::Time(moment), Subtract, Datum::Interval(span)) => later(*moment, span.negate()?, ty)?,
        (Datum::Interval(span), Add, Datum::ZonedTime(time)) | (Datum::ZonedTime(time), Add, Datum::Interval(span)) => {
            Datum::ZonedTime(time.later(*span))
        }
        (Datum::ZonedTime(time), Subtract, Datum::Interval(span)) => Datum::ZonedTime(time.later(span.negate()?)),
        (Datum::ZonedTime(time), Add, Datum::Date(day)) | (Datum::Date(day), Add, Datum::ZonedTime(time)) => {
            Datum::Time(match *day {
                i32::MAX => i64::MAX,
                i32::MIN => i64::MIN,
                day => {
                    let found = i64::from(day).checked_mul(DAY_MICROS).and_then(|day| day.checked_add(time.utc()));
                    found.filter(|found| crate::time::is_moment(*found)).ok_or_else(out)?
                }
            })
        }
        // A day and a time of it.
        (Datum::Time(i64::MAX | i64::MIN), Add, Datum::Time(_)) => one.clone(),
        (Datum::Time(_), Add, Datum::Time(i64::MAX | i64::MIN)) => two.clone(),
        (Datum::Time(one), Add, Datum::Time(two)) => {
            let found = one.checked_add(*two).filter(|found| crate::time::is_moment(*found));
            Datum::Time(found.ok_or_else(out)?)
        }
        (Datum::Time(one), Subtract, Datum::Time(two)) => {
            if [one, two].iter().any(|moment| matches!(**moment, i64::MAX | i64::MIN)) {
                return Err(Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "cannot subtract infinite timestamps"));
            }
            let micros = one.checked_sub(*two).ok_or_else(crate::interval::out_of_range)?;
            Datum::Interval(Interval { micros, ..Interval::default() }.justify_hours()?)
        }
        _ => return Err(undefined(ty)),
    })
}

fn later(moment: i64, span: Interval, ty: Type) -> Result<Datum> {
    if ty == Type::Time {
        // Only the time of the span counts, and the day comes round.
        let rest = i128::from(moment) + i128::from(span.micros);
        let rest = rest.rem_euclid(DAY_MICROS.into());
        return Ok(Datum::Time(i64::try_from(rest).unwrap_or(0)));
    }
    if ty != Type::Timestamptz || span.months == 0 && span.days == 0 {
        return span.after(moment).map(Datum::Time);
    }
    // Months and days are those of the calendar in the zone of the session.
    let out = || Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range");
    let local = Interval { micros: 0, ..span }.after(style::to_local(moment))?;
    let day = style::to_utc(local).ok_or_else(out)?;
    Interval { months: 0, days: 0, ..span }.after(day).map(Datum::Time)
}

fn undefined(ty: Type) -> Error {
    Error::new(SqlState::UNDEFINED_FUNCTION, format!("operator does not exist for type {ty}"))
}

fn integer(operation: Arithmetic, ty: Type, one: i64, two: i64) -> Result<i64> {
    let bits = match ty {
        Type::Int2 => 16,
        Type::Int4 => 32,
        _ => 64,
    };
    let found = match operation {
        Arithmetic::Add => one.checked_add(two),
        Arithmetic::Subtract => one.checked_sub(two),
        Arithmetic::Multiply => one.checked_mul(two),
        Arithmetic::Divide if two == 0 => return Err(by_zero()),
        Arithmetic::Divide => one.checked_div(two),
        Arithmetic::Remainder if two == 0 => return Err(by_zero()),
        Arithmetic::Remainder => Some(one.checked_rem(two).unwrap_or(0)),
        Arithmetic::BitAnd => Some(one & two),
        Arithmetic::BitOr => Some(one | two),
        Arithmetic::BitXor => Some(one ^ two),
        // The processor takes the distance modulo the width.
        Arithmetic::ShiftLeft => {
            let shifted = one.wrapping_shl(u32::try_from(two.rem_euclid(bits.max(32))).unwrap_or(0));
            Some(shifted << (64 - bits) >> (64 - bits))
        }
        Arithmetic::ShiftRight => Some(one.wrapping_shr(u32::try_from(two.rem_euclid(bits.max(32))).unwrap_or(0))),
    };
    let (least, most) = if ty.is_integer() { ty.limits() } else { Type::Int8.limits() };
    found.filter(|found| (least..=most).contains(found)).ok_or_else(|| out_of_range(ty))
}

fn float(operation: Arithmetic, ty: Type, one: f64, two: f64) -> Result<f64> {
    let found = match operation {
        Arithmetic::Add => one + two,
        Arithmetic::Subtract => one - two,
        Arithmetic::Multiply => one * two,
        Arithmetic::Divide if two == 0.0 && !one.is_nan() => return Err(by_zero()),
        Arithmetic::Divide => one / two,
        _ => return Err(undefined(ty)),
    };
    let found = if ty == Type::Float4 { f64::from(narrow(found)) } else { found };
    let overflow = |what: &str| Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("value out of range: {what}"));
    if found.is_infinite() && one.is_finite() && two.is_finite() {
        return Err(overflow("overflow"));
    }
    let is_lost = match operation {
        Arithmetic::Multiply => one != 0.0 && two != 0.0,
        Arithmetic::Divide => one != 0.0 && two.is_finite(),
        _ => false,
    };
    if found == 0.0 && is_lost { Err(overflow("underflow")) } else { Ok(found) }
}

/// The number with the other sign.
///
/// # Errors
/// 22003.
pub fn negate(ty: Type, value: Datum) -> Result<Datum> {
    Ok(match value {
        Datum::Int(value) => Datum::Int(integer(Arithmetic::Subtract, ty, 0, value)?),
        Datum::Float(value) => Datum::Float(-value),
        Datum::Numeric(value) => Datum::Numeric(value.negate()),
        Datum::Interval(span) => Datum::Interval(span.negate()?),
        Datum::Null => Datum::Null,
        _ => return Err(undefined(ty)),
    })
}
