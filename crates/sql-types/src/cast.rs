//! Casts: which ones are there and how implicit they are, and the conversion itself.

use crate::composite::{Attribute, Composite};
use crate::datum::Datum;
use crate::error::{Error, Result, SqlState};
use crate::interval::Interval;
use crate::json::Json;
use crate::numeric::Numeric;
use crate::style;
use crate::text;
use crate::time::DAY_MICROS;
use crate::types::Type;
use crate::zoned_time::ZonedTime;

/// How implicit a cast may be. The order is that of strength.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Context {
    /// Anywhere.
    Implicit,
    /// Where a value is assigned to a column.
    Assignment,
    /// Where it is written.
    Explicit,
}

/// The weakest context in which values of type `from` become values of type `to`. `None`: in none.
///
/// ```
/// use lodestone_sql_types::Type;
/// use lodestone_sql_types::cast::{Context, context};
///
/// assert_eq!(context(Type::Int4, Type::Int8), Some(Context::Implicit));
/// assert_eq!(context(Type::Int8, Type::Int4), Some(Context::Assignment));
/// assert_eq!(context(Type::Bool, Type::Date), None);
/// ```
#[must_use]
pub fn context(from: Type, to: Type) -> Option<Context> {
    use Context::{Assignment, Explicit, Implicit};
    if from == to || from == Type::Unknown {
        return Some(Implicit);
    }
    if let (Some(one), Some(two)) = (from.element(), to.element()) {
        return context(one, two);
    }
    if let (Some(one), Some(two)) = (from.rank(), to.rank()) {
        return Some(if one < two { Implicit } else { Assignment });
    }
    match (from, to) {
        (Type::Int2 | Type::Int4 | Type::Int8, _) if to.is_oid() => Some(Implicit),
        (_, Type::Int4 | Type::Int8) if from.is_oid() => Some(Assignment),
        _ if from.is_oid() && to.is_oid() => Some(Implicit),
        (Type::Int4, Type::Bool) | (Type::Bool, Type::Int4) => Some(Explicit),
        (Type::Text | Type::Varchar, Type::Text | Type::Varchar | Type::Bpchar | Type::Name | Type::Regclass) => {
            Some(Implicit)
        }
        (Type::Bpchar, Type::Text | Type::Varchar) | (Type::Name | Type::Char, Type::Text) => Some(Implicit),
        (Type::Date, Type::Timestamp | Type::Timestamptz) | (Type::Timestamp, Type::Timestamptz) => Some(Implicit),
        (Type::Timestamp | Type::Timestamptz, Type::Time) | (Type::Interval, Type::Time) => Some(Assignment),
        (Type::Time, Type::Interval | Type::Timetz) => Some(Implicit),
        (Type::Timetz, Type::Time) | (Type::Timestamptz, Type::Timetz) => Some(Assignment),
        (Type::Json, Type::Jsonb) | (Type::Jsonb, Type::Json) => Some(Assignment),
        (Type::Jsonb, Type::Bool) => Some(Explicit),
        (Type::Jsonb, _) if to.is_number() => Some(Explicit),
        (Type::Timestamp | Type::Timestamptz, Type::Date) | (Type::Timestamptz, Type::Timestamp) => Some(Assignment),
        (Type::Void, _) | (_, Type::Void) => None,
        // Any row is a record, and a record becomes a row of a type if its fields fit.
        (_, Type::Record) if from.is_row() => Some(Implicit),
        (Type::Composite(one), Type::Composite(two)) if one.is_anonymous() || two.is_anonymous() => {
            row_context(one, two)
        }
        _ if to.is_row() => from.is_text().then_some(Explicit),
        _ if to.is_text() => Some(Assignment),
        _ if from.is_text() => Some(Explicit),
        _ => None,
    }
}

/// The weakest context in which all fields of one row become those of the other.
fn row_context(from: Composite, to: Composite) -> Option<Context> {
    let (one, two) = (from.attributes(), to.attributes());
    if one.len() != two.len() {
        return None;
    }
    one.iter().zip(two).try_fold(Context::Implicit, |most, (one, two)| Some(most.max(context(one.ty, two.ty)?)))
}

/// Converts `datum` of type `from` to type `to`.
///
/// # Errors
/// As the input of the type, and 22003.
pub fn convert(datum: Datum, from: Type, to: Type) -> Result<Datum> {
    if from == to || datum.is_null() {
        return Ok(datum);
    }
    Ok(match (datum, to) {
        (Datum::Text(value), _) if to.is_text() => match (from, to) {
            (Type::Bpchar, _) if to != Type::Bpchar => Datum::Text(value.trim_end_matches(' ').to_owned()),
            (_, Type::Name) => Datum::Text(name_of(&value)),
            (_, Type::Char) => Datum::Text(text::byte_of(&value)),
            (Type::Char, _) => Datum::Text(text::encode(from, &Datum::Text(value))),
            _ => Datum::Text(value),
        },
        (Datum::Text(value), _) => text::decode(to, &value)?,
        (Datum::Int(value), Type::Int2 | Type::Int4 | Type::Int8) => Datum::Int(within(value, to)?),
        (Datum::Int(value), _) if to.is_oid() => Datum::Int(within(value, Type::Oid)?),
        (Datum::Int(value), Type::Numeric) => Datum::Numeric(value.into()),
        (Datum::Int(value), Type::Float4 | Type::Float8) => Datum::Float(Numeric::from(value).to_f64()),
        (Datum::Int(value), Type::Bool) => Datum::Bool(value != 0),
        (Datum::Bool(value), Type::Int4) => Datum::Int(value.into()),
        // The text that the type writes. Texts have a cast of their own.
        (Datum::Bool(value), Type::Name) => Datum::from(if value { "t" } else { "f" }),
        (Datum::Bool(value), _) if to.is_text() => Datum::from(if value { "true" } else { "false" }),
        (Datum::Numeric(value), Type::Float4 | Type::Float8) => real(&value, to)?,
        (Datum::Numeric(value), Type::Int2 | Type::Int4 | Type::Int8) => {
            let whole = value.to_i64().and_then(|value| within(value, to));
            let is_special = !value.is_finite();
            Datum::Int(whole.map_err(|_| if is_special { no_integer(&value, to) } else { text::out_of_range(to) })?)
        }
        (Datum::Float(value), Type::Float8) => Datum::Float(value),
        (Datum::Float(value), Type::Float4) => {
            let narrow = f64::from(text::narrow(value));
            let lost = match narrow {
                _ if narrow.is_infinite() && value.is_finite() => Some("overflow"),
                _ if narrow == 0.0 && value != 0.0 => Some("underflow"),
                _ => None,
            };
            if let Some(lost) = lost {
                let message = format!("value out of range: {lost}");
                return Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message));
            }
            Datum::Float(narrow)
        }
        (Datum::Float(value), Type::Numeric) if from == Type::Float4 => Datum::Numeric(Numeric::of_f32(value)?),
        (Datum::Float(value), Type::Numeric) => Datum::Numeric(Numeric::of_f64(value)?),
        (Datum::Float(value), Type::Int2 | Type::Int4 | Type::Int8) => Datum::Int(integer_of(value, to)?),
        (Datum::Date(days), Type::Timestamp | Type::Timestamptz) => Datum::Time(match days {
            i32::MAX => i64::MAX,
            i32::MIN => i64::MIN,
            days => {
                let found = i64::from(days).checked_mul(DAY_MICROS).filter(|found| crate::time::is_moment(*found));
                let error = || Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "date out of range for timestamp");
                let found = found.ok_or_else(error)?;
                if to == Type::Timestamptz { style::to_utc(found).ok_or_else(error)? } else { found }
            }
        }),
        (Datum::Time(micros), Type::Timetz) => zoned(micros, from),
        (Datum::ZonedTime(time), Type::Time) => Datum::Time(time.micros),
        (Datum::Time(micros), Type::Interval) => Datum::Interval(Interval { micros, ..Interval::default() }),
        (Datum::Interval(span), Type::Time) => Datum::Time(span.micros.rem_euclid(DAY_MICROS)),
        (Datum::Json(value), _) if !to.is_text() && to != Type::Json => of_json(&value, to)?,
        (Datum::Json(value), Type::Json) => Datum::Text(value.to_string()),
        (Datum::Time(micros), Type::Time) if from != Type::Time => {
            Datum::Time(shown(micros, from).rem_euclid(DAY_MICROS))
        }
        (Datum::Time(micros), Type::Date) => Datum::Date(match shown(micros, from) {
            i64::MAX => i32::MAX,
            i64::MIN => i32::MIN,
            micros => i32::try_from(micros.div_euclid(DAY_MICROS)).map_err(|_| text::out_of_range(to))?,
        }),
        (Datum::Time(micros), Type::Timestamp | Type::Timestamptz) => {
            let found = match (from, to) {
                (Type::Timestamptz, Type::Timestamp) => style::with(|style| style.zone.shown(micros)),
                (_, Type::Timestamp) => Some(micros),
                _ => style::to_utc(micros),
            };
            let error = || Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range");
            Datum::Time(found.ok_or_else(error)?)
        }
        (array @ (Datum::Array(_) | Datum::Shaped(_)), _) if to.element().is_some() => {
            let (one, two) = (from.element().unwrap_or(Type::Text), to.element().unwrap_or(Type::Text));
            crate::array::map(array, |value| convert(value, one, two))?
        }
        (Datum::Record(values), Type::Composite(two)) => {
            let (one, two) = (from.attributes().unwrap_or_default(), two.attributes());
            // The fields of a record without known ones are already as they should be.
            let field = |((number, value), to): ((usize, Datum), &Attribute)| {
                let from = one.get(number).map_or(to.ty, |field| field.ty);
                fit(convert(value, from, to.ty)?, to.ty, to.modifier, true)
            };
            Datum::Record(values.into_iter().enumerate().zip(two).map(field).collect::<Result<_>>()?)
        }
        (datum @ Datum::Record(_), Type::Record) => datum,
        (datum, _) if to.is_text() => Datum::Text(text::encode(from, &datum)),
        (_, _) => {
            return Err(Error::new(SqlState::CANNOT_COERCE, format!("cannot cast type {from} to {to}")));
        }
    })
}

/// The time of day in the zone of the session: of a time without one, or of a moment. `infinity` has none.
fn zoned(micros: i64, from: Type) -> Datum {
    match (from, micros) {
        (Type::Time, _) => Datum::ZonedTime(ZonedTime::of_local(micros)),
        (_, i64::MAX | i64::MIN) => Datum::Null,
        _ => Datum::ZonedTime(ZonedTime::at(micros, &style::zone())),
    }
}

/// The date and time that clocks show at a moment of the type.
fn shown(micros: i64, from: Type) -> i64 {
    if from == Type::Timestamptz { style::to_local(micros) } else { micros }
}

/// A number or truth value of a `jsonb`.
fn of_json(value: &Json, to: Type) -> Result<Datum> {
    match (value, to) {
        (Json::Bool(value), Type::Bool) => Ok(Datum::Bool(*value)),
        (Json::Number(number), _) if to.is_number() => convert(Datum::Numeric(number.parse()?), Type::Numeric, to),
        _ => {
            let kind = match value {
                Json::Null | Json::Bool(_) | Json::Array(_) | Json::Object(_) => value.type_name(),
                Json::Number(_) => "numeric",
                Json::Text(_) => "string",
            };
            let message = format!("cannot cast jsonb {kind} to type {to}");
            Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message))
        }
    }
}

/// The first 63 bytes of a name, at the border of a character.
pub(crate) fn name_of(text: &str) -> String {
    let mut end = text.len().min(63);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

fn no_integer(value: &Numeric, ty: Type) -> Error {
    let what = if value.is_nan() { "NaN" } else { "infinity" };
    Error::new(SqlState::FEATURE_NOT_SUPPORTED, format!("cannot convert {what} to {ty}"))
}

fn within(value: i64, ty: Type) -> Result<i64> {
    let (least, most) = ty.limits();
    if (least..=most).contains(&value) { Ok(value) } else { Err(text::out_of_range(ty)) }
}

/// The floating-point number that a decimal one is.
fn real(value: &Numeric, ty: Type) -> Result<Datum> {
    let found = value.to_f64();
    let found = if ty == Type::Float4 { f64::from(text::narrow(found)) } else { found };
    let is_lost = value.is_finite() && (found.is_infinite() || found == 0.0 && value.signum() != 0);
    if is_lost {
        let message = format!("\"{value}\" is out of range for type {ty}");
        return Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message));
    }
    Ok(Datum::Float(found))
}

/// The nearest integer, the even one at the half.
fn integer_of(value: f64, ty: Type) -> Result<i64> {
    let whole = value.round_ties_even();
    // The text of a whole number in the limits is exact.
    let found = if whole.is_finite() { format!("{whole:.0}").parse::<i64>().ok() } else { None };
    found.ok_or_else(|| text::out_of_range(ty)).and_then(|value| within(value, ty))
}

/// Applies the modifier of a column's type: lengths of texts, digits of numbers. A text is cut when the cast is
/// `is_explicit`; otherwise only blanks may be cut.
///
/// # Errors
/// 22001; 22003.
pub fn fit(datum: Datum, ty: Type, modifier: i32, is_explicit: bool) -> Result<Datum> {
    if let (Some(element), Datum::Array(_) | Datum::Shaped(_)) = (ty.element(), &datum) {
        return crate::array::map(datum, |value| fit(value, element, modifier, is_explicit));
    }
    if let Some(digits) = second_digits(ty, modifier) {
        return Ok(with_digits(datum, digits));
    }
    if modifier < 4 {
        return Ok(datum);
    }
    let limit = usize::try_from(modifier - 4).unwrap_or(usize::MAX);
    Ok(match (datum, ty) {
        (Datum::Text(value), Type::Varchar | Type::Bpchar) => {
            let count = value.chars().count();
            let padding = if ty == Type::Bpchar { limit.saturating_sub(count) } else { 0 };
            if count <= limit {
                return Ok(Datum::Text(if padding > 0 { value + &" ".repeat(padding) } else { value }));
            }
            let end = value.char_indices().nth(limit).map_or(value.len(), |(place, _)| place);
            if !is_explicit && value[end..].chars().any(|letter| letter != ' ') {
                let message = format!("value too long for type {}", ty.with_modifier(modifier));
                return Err(Error::new(SqlState::STRING_DATA_RIGHT_TRUNCATION, message));
            }
            Datum::Text(value[..end].to_owned())
        }
        (Datum::Numeric(value), Type::Numeric) => {
            let (precision, scale) = digits_of(modifier);
            Datum::Numeric(value.fit(precision, scale)?)
        }
        (datum, _) => datum,
    })
}

/// The digits of seconds that a modifier of a type of time leaves, if it is one of those and has one.
#[must_use]
pub fn second_digits(ty: Type, modifier: i32) -> Option<u32> {
    let has_digits = matches!(ty, Type::Time | Type::Timetz | Type::Timestamp | Type::Timestamptz | Type::Interval);
    if has_digits && modifier >= 0 { u32::try_from(modifier & 0xffff).ok().filter(|digits| *digits <= 6) } else { None }
}

/// The modifier of a type of time with so many digits of seconds.
#[must_use]
pub fn second_modifier(ty: Type, digits: i32) -> i32 {
    // A span's modifier has the fields in its upper half: all of them.
    if ty == Type::Interval { 0x7fff << 16 | digits } else { digits }
}

/// The value with so many digits of seconds, rounded away from zero at the half.
fn with_digits(datum: Datum, digits: u32) -> Datum {
    let unit = 10_i64.pow(6 - digits);
    let rounded = |micros: i64| match micros {
        i64::MAX | i64::MIN => micros,
        micros => micros.saturating_add(unit / 2 * micros.signum()) / unit * unit,
    };
    match datum {
        Datum::Time(micros) => Datum::Time(rounded(micros)),
        Datum::ZonedTime(time) => Datum::ZonedTime(ZonedTime { micros: rounded(time.micros), ..time }),
        Datum::Interval(span) => Datum::Interval(Interval { micros: rounded(span.micros), ..span }),
        other => other,
    }
}

/// Precision and scale of a modifier of numeric.
#[must_use]
pub fn digits_of(modifier: i32) -> (u32, i32) {
    let bits = modifier.saturating_sub(4);
    // The scale is a number of 11 bits with a sign.
    (u32::try_from(bits >> 16).unwrap_or(0), ((bits & 0x7ff) ^ 1024) - 1024)
}
