//! The binary format of values, as `PostgreSQL` sends and receives it.

use crate::array::Dimension;
use crate::composite::Attribute;
use crate::datum::Datum;
use crate::error::{Error, Result, SqlState};
use crate::numeric::Numeric;
use crate::text::{narrow, out_of_range};
use crate::time::{DAY_MICROS, is_date, is_moment};
use crate::types::Type;

/// The words of a sign in the binary form of numeric.
const NEGATIVE: u16 = 0x4000;
const POSITIVE: u16 = 0;
const NOT_A_NUMBER: u16 = 0xc000;
const INFINITE: u16 = 0xd000;
const NEGATIVE_INFINITE: u16 = 0xf000;
/// The first byte of a `jsonb`.
const JSONB_VERSION: u8 = 1;

/// Appends the bytes of `datum`, which is of type `ty` and not null.
///
/// # Errors
/// 22003 for an integer outside the limits of its type; 0A000 for a type without a binary format here.
///
/// ```
/// use lodestone_sql_types::{Datum, Type, binary};
///
/// let mut bytes = Vec::new();
/// binary::encode(Type::Int4, &Datum::Int(7), &mut bytes)?;
/// assert_eq!(bytes, [0, 0, 0, 7]);
/// assert_eq!(binary::decode(Type::Int4, &bytes)?, Datum::Int(7));
/// # Ok::<(), lodestone_sql_types::Error>(())
/// ```
pub fn encode(ty: Type, datum: &Datum, bytes: &mut Vec<u8>) -> Result<()> {
    match datum {
        Datum::Null => {}
        Datum::Bool(value) => bytes.push(u8::from(*value)),
        Datum::Int(_) if matches!(ty, Type::Enum(_)) => bytes.extend(crate::text::encode(ty, datum).as_bytes()),
        Datum::Int(value) => {
            let out = |_| out_of_range(ty);
            match ty {
                Type::Int2 => bytes.extend(i16::try_from(*value).map_err(out)?.to_be_bytes()),
                Type::Int4 => bytes.extend(i32::try_from(*value).map_err(out)?.to_be_bytes()),
                Type::Int8 => bytes.extend(value.to_be_bytes()),
                _ => bytes.extend(u32::try_from(*value).map_err(out)?.to_be_bytes()),
            }
        }
        Datum::Float(value) if ty == Type::Float4 => bytes.extend(narrow(*value).to_be_bytes()),
        Datum::Float(value) => bytes.extend(value.to_be_bytes()),
        Datum::Numeric(value) => numeric(value, bytes)?,
        // One byte, also for none.
        Datum::Text(value) if ty == Type::Char => {
            let number = value.chars().next().map_or(0, u32::from);
            bytes.push(u8::try_from(number).unwrap_or(b'?'));
        }
        Datum::Text(value) => bytes.extend(value.as_bytes()),
        Datum::Bytes(value) => bytes.extend(value),
        Datum::Date(days) => bytes.extend(days.to_be_bytes()),
        Datum::Time(micros) => bytes.extend(micros.to_be_bytes()),
        Datum::ZonedTime(value) => value.write_bytes(bytes),
        Datum::Interval(value) => {
            bytes.extend(value.micros.to_be_bytes());
            bytes.extend(value.days.to_be_bytes());
            bytes.extend(value.months.to_be_bytes());
        }
        Datum::Json(value) => {
            bytes.push(JSONB_VERSION);
            bytes.extend(value.to_string().as_bytes());
        }
        Datum::Array(_) | Datum::Shaped(_) => array(ty, datum, bytes)?,
        Datum::Record(values) => record(ty, values, bytes)?,
    }
    Ok(())
}

/// The number of the fields; of each its type, its length and its bytes.
fn record(ty: Type, values: &[Datum], bytes: &mut Vec<u8>) -> Result<()> {
    let Some(attributes) = ty.attributes() else {
        return Err(Error::unsupported("the binary format of a record without known fields"));
    };
    bytes.extend(length(values.len())?);
    for (value, attribute) in values.iter().zip(attributes) {
        bytes.extend(attribute.ty.oid().to_be_bytes());
        if value.is_null() {
            bytes.extend((-1_i32).to_be_bytes());
            continue;
        }
        let mut inner = Vec::new();
        encode(attribute.ty, value, &mut inner)?;
        bytes.extend(length(inner.len())?);
        bytes.extend(inner);
    }
    Ok(())
}

fn length(bytes: usize) -> Result<[u8; 4]> {
    let error = || Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "a value is longer than 2 GiB");
    i32::try_from(bytes).map(i32::to_be_bytes).map_err(|_| error())
}

fn array(ty: Type, datum: &Datum, bytes: &mut Vec<u8>) -> Result<()> {
    let (values, dimensions) = (crate::array::values(datum), crate::array::dimensions(datum));
    let element = ty.element().unwrap_or(Type::Text);
    let has_null = values.iter().any(Datum::is_null);
    bytes.extend(length(dimensions.len())?);
    bytes.extend(i32::from(has_null).to_be_bytes());
    bytes.extend(element.oid().to_be_bytes());
    for dimension in &dimensions {
        bytes.extend(length(dimension.length)?);
        let low = i32::try_from(dimension.low).map_err(|_| out_of_range(Type::Int4))?;
        bytes.extend(low.to_be_bytes());
    }
    for value in values {
        if value.is_null() {
            bytes.extend((-1_i32).to_be_bytes());
            continue;
        }
        let mut inner = Vec::new();
        encode(element, value, &mut inner)?;
        bytes.extend(length(inner.len())?);
        bytes.extend(inner);
    }
    Ok(())
}

/// Digits to the base 10,000, aligned at the point.
fn numeric(value: &Numeric, bytes: &mut Vec<u8>) -> Result<()> {
    if !value.is_finite() {
        let sign = match value.signum() {
            _ if value.is_nan() => NOT_A_NUMBER,
            -1 => NEGATIVE_INFINITE,
            _ => INFINITE,
        };
        // No digits, no weight, and no digits after the point.
        bytes.extend([0; 4]);
        bytes.extend(sign.to_be_bytes());
        bytes.extend([0; 2]);
        return Ok(());
    }
    let scale = usize::from(value.scale());
    let text: String = value.absolute().to_string().chars().filter(char::is_ascii_digit).collect();
    let text = format!("{text:0>width$}", width = scale + 1);
    let (whole, fraction) = text.split_at(text.len() - scale);
    let whole = format!("{whole:0>width$}", width = whole.len().next_multiple_of(4));
    let fraction = format!("{fraction:0<width$}", width = scale.next_multiple_of(4));
    let all = format!("{whole}{fraction}");
    let groups =
        all.as_bytes().chunks(4).map(|group| group.iter().fold(0_i16, |sum, digit| sum * 10 + i16::from(digit - b'0')));
    let mut digits: Vec<i16> = groups.collect();
    let mut weight = i16::try_from(whole.len() / 4).unwrap_or(i16::MAX) - 1;
    while digits.first() == Some(&0) {
        digits.remove(0);
        weight -= 1;
    }
    while digits.last() == Some(&0) {
        digits.pop();
    }
    let sign = if value.signum() < 0 { NEGATIVE } else { POSITIVE };
    bytes.extend(u16::try_from(digits.len()).map_err(|_| out_of_range(Type::Numeric))?.to_be_bytes());
    bytes.extend((if digits.is_empty() { 0 } else { weight }).to_be_bytes());
    bytes.extend(sign.to_be_bytes());
    bytes.extend(value.scale().to_be_bytes());
    digits.iter().for_each(|digit| bytes.extend(digit.to_be_bytes()));
    Ok(())
}

/// The value of type `ty` that `bytes` are.
///
/// # Errors
/// 22P03 for bytes that no value has; 22021 for texts that are no UTF-8; 0A000.
pub fn decode(ty: Type, bytes: &[u8]) -> Result<Datum> {
    let bad =
        || Error::new(SqlState::INVALID_BINARY_REPRESENTATION, format!("incorrect binary data format for type {ty}"));
    if let Some(element) = ty.element() {
        return decode_array(element, bytes).ok_or_else(bad)?;
    }
    let fixed4 = || <[u8; 4]>::try_from(bytes).map_err(|_| bad());
    let fixed8 = || <[u8; 8]>::try_from(bytes).map_err(|_| bad());
    Ok(match ty {
        Type::Bool => match bytes {
            [value] => Datum::Bool(*value != 0),
            _ => return Err(bad()),
        },
        Type::Char => match bytes {
            [0] => Datum::Text(String::new()),
            [value] => Datum::Text(char::from(*value).into()),
            _ => return Err(bad()),
        },
        Type::Int2 => Datum::Int(i16::from_be_bytes(bytes.try_into().map_err(|_| bad())?).into()),
        Type::Int4 => Datum::Int(i32::from_be_bytes(fixed4()?).into()),
        Type::Int8 => Datum::Int(i64::from_be_bytes(fixed8()?)),
        _ if ty.is_oid() => Datum::Int(u32::from_be_bytes(fixed4()?).into()),
        Type::Float4 => Datum::Float(f32::from_be_bytes(fixed4()?).into()),
        Type::Float8 => Datum::Float(f64::from_be_bytes(fixed8()?)),
        Type::Numeric => Datum::Numeric(decode_numeric(bytes).ok_or_else(bad)??),
        Type::Bytea => Datum::Bytes(bytes.to_vec()),
        Type::Uuid => Datum::Bytes(<[u8; 16]>::try_from(bytes).map_err(|_| bad())?.to_vec()),
        Type::Time => {
            let micros = i64::from_be_bytes(fixed8()?);
            Datum::Time(within((0..=DAY_MICROS).contains(&micros), "time", micros)?)
        }
        Type::Timetz => Datum::ZonedTime(crate::zoned_time::ZonedTime::of_bytes(bytes).ok_or_else(bad)?),
        Type::Interval => interval(bytes).ok_or_else(bad)?,
        Type::Jsonb => match bytes.split_first() {
            Some((&JSONB_VERSION, rest)) => crate::text::decode(ty, utf8(rest)?)?,
            _ => return Err(bad()),
        },
        Type::Date => {
            let days = i32::from_be_bytes(fixed4()?);
            Datum::Date(within(matches!(days, i32::MAX | i32::MIN) || is_date(days.into()), "date", days)?)
        }
        Type::Timestamp | Type::Timestamptz => {
            let micros = i64::from_be_bytes(fixed8()?);
            Datum::Time(within(matches!(micros, i64::MAX | i64::MIN) || is_moment(micros), "timestamp", micros)?)
        }
        Type::Composite(of) if !of.is_anonymous() => {
            return decode_record(of.attributes(), bytes).ok_or_else(bad)?;
        }
        Type::Record | Type::Composite(_) => {
            let message = "input of anonymous composite types is not implemented";
            return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        _ => {
            let text = utf8(bytes)?;
            crate::text::decode(ty, text)?
        }
    })
}

/// A part of the calendar, if it is inside the limits.
fn within<T>(is_inside: bool, what: &str, value: T) -> Result<T> {
    let error = || Error::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("{what} out of range"));
    is_inside.then_some(value).ok_or_else(error)
}

/// `None` for bytes that are no span.
fn interval(bytes: &[u8]) -> Option<Datum> {
    let (micros, rest) = bytes.split_first_chunk()?;
    let (days, rest) = rest.split_first_chunk()?;
    let months = i32::from_be_bytes(rest.try_into().ok()?);
    let (micros, days) = (i64::from_be_bytes(*micros), i32::from_be_bytes(*days));
    Some(Datum::Interval(crate::interval::Interval { months, days, micros }))
}

/// The text that `bytes` are.
///
/// # Errors
/// 22021 if they are no UTF-8, or have a zero.
pub fn utf8(bytes: &[u8]) -> Result<&str> {
    let not = |byte: u8| {
        let message = format!("invalid byte sequence for encoding \"UTF8\": 0x{byte:02x}");
        Error::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message)
    };
    let text =
        std::str::from_utf8(bytes).map_err(|error| not(bytes.get(error.valid_up_to()).copied().unwrap_or_default()))?;
    if text.contains('\0') { Err(not(0)) } else { Ok(text) }
}

fn word(bytes: &mut &[u8]) -> Option<i32> {
    let (word, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(i32::from_be_bytes(*word))
}

/// `None` for bytes that are no array.
fn decode_array(element: Type, mut bytes: &[u8]) -> Option<Result<Datum>> {
    let (dimensions, _nulls, oid) = (word(&mut bytes)?, word(&mut bytes)?, word(&mut bytes)?);
    if u32::from_be_bytes(oid.to_be_bytes()) != element.oid() {
        let message = "wrong element type";
        return Some(Err(Error::new(SqlState::DATATYPE_MISMATCH, message)));
    }
    if dimensions == 0 {
        return bytes.is_empty().then_some(Ok(Datum::Array(Vec::new())));
    }
    let mut shape = Vec::new();
    for _ in 0..usize::try_from(dimensions).ok().filter(|count| *count <= crate::array::DIMENSIONS_MAX)? {
        let (length, low) = (usize::try_from(word(&mut bytes)?).ok()?, word(&mut bytes)?);
        shape.push(Dimension { low: low.into(), length });
    }
    if let Err(error) = crate::array::check_bounds(&shape) {
        return Some(Err(error));
    }
    let count = shape.iter().try_fold(1_usize, |count, dimension| count.checked_mul(dimension.length))?;
    let mut values = Vec::new();
    for _ in 0..count {
        let length = word(&mut bytes)?;
        if length == -1 {
            values.push(Datum::Null);
            continue;
        }
        let inner = bytes.split_off(..usize::try_from(length).ok()?)?;
        match decode(element, inner) {
            Ok(value) => values.push(value),
            Err(error) => return Some(Err(error)),
        }
    }
    bytes.is_empty().then(|| Ok(crate::array::make(shape, values)))
}

/// `None` for bytes that are no row.
fn decode_record(attributes: &[Attribute], mut bytes: &[u8]) -> Option<Result<Datum>> {
    let wrong = |message: String| Some(Err(Error::new(SqlState::DATATYPE_MISMATCH, message)));
    let count = word(&mut bytes)?;
    if usize::try_from(count).ok() != Some(attributes.len()) {
        return wrong(format!("wrong number of columns: {count}, expected {}", attributes.len()));
    }
    let mut values = Vec::new();
    for (attribute, number) in attributes.iter().zip(1..) {
        let (oid, length) = (word(&mut bytes)?, word(&mut bytes)?);
        let (found, expected) = (u32::from_be_bytes(oid.to_be_bytes()), attribute.ty.oid());
        if found != expected {
            let (found_name, ty) = (Type::of_oid(found).map_or("unknown".into(), |ty| ty.to_string()), attribute.ty);
            return wrong(format!(
                "binary data has type {found} ({found_name}) instead of expected {expected} ({ty}) in record column \
                 {number}"
            ));
        }
        if length == -1 {
            values.push(Datum::Null);
            continue;
        }
        let inner = bytes.split_off(..usize::try_from(length).ok()?)?;
        let value = decode(attribute.ty, inner);
        match value.and_then(|value| crate::cast::fit(value, attribute.ty, attribute.modifier, false)) {
            Ok(value) => values.push(value),
            Err(error) => return Some(Err(error)),
        }
    }
    bytes.is_empty().then_some(Ok(Datum::Record(values)))
}

/// `None` for bytes that are no number.
fn decode_numeric(bytes: &[u8]) -> Option<Result<Numeric>> {
    let half = |number: usize| Some(u16::from_be_bytes(bytes.get(number * 2..number * 2 + 2)?.try_into().ok()?));
    let (count, weight, sign, scale) = (half(0)?, half(1)?, half(2)?, half(3)?);
    let weight = i32::from(i16::from_be_bytes(weight.to_be_bytes()));
    if bytes.len() != 8 + usize::from(count) * 2 || scale > 16_383 {
        return None;
    }
    match sign {
        NEGATIVE | POSITIVE => {}
        NOT_A_NUMBER => return Some(Ok(Numeric::NAN)),
        INFINITE => return Some(Ok(Numeric::INFINITY)),
        NEGATIVE_INFINITE => return Some(Ok(Numeric::NEG_INFINITY)),
        _ => return None,
    }
    let mut text = String::from(if sign == NEGATIVE { "-0" } else { "0" });
    let mut place = weight.max(-1);
    for number in 0..count {
        let digit = half(4 + usize::from(number))?;
        if digit > 9_999 {
            return None;
        }
        if number == 0 {
            (weight + 1..0).for_each(|_| text.push_str(if text.contains('.') { "0000" } else { ".0000" }));
            place = weight;
        }
        if place == -1 && !text.contains('.') {
            text.push('.');
        }
        text.push_str(&format!("{digit:04}"));
        place -= 1;
    }
    if count > 0 {
        (0..=place).for_each(|_| text.push_str("0000"));
    }
    // Digits beyond the scale do not count.
    if let Some(point) = text.find('.') {
        text.truncate(text.len().min(point + 1 + usize::from(scale)));
    }
    Some(text.parse::<Numeric>().and_then(|number| number.round(scale)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::composite::{Composite, Definition};

    /// A type of an `integer` and a `varchar(3)`.
    fn pair() -> Result<Type> {
        let attribute =
            |name: &str, ty, modifier, number| Attribute { name: name.into(), ty, modifier, number, domain: 0 };
        let attributes = vec![attribute("a", Type::Int4, -1, 1), attribute("b", Type::Varchar, 7, 3)];
        let (name, display) = ("pair".to_owned(), "pair".to_owned());
        let definition = Definition { oid: 30_000, array_oid: 30_001, relation_oid: 30_002, name, display, attributes };
        Composite::of(definition).map(Type::Composite)
    }

    #[test]
    fn rows_have_the_bytes_of_record_send() -> Result<()> {
        let (ty, row) = (pair()?, Datum::Record(vec![Datum::Int(7), Datum::from("xy")]));
        let mut bytes = Vec::new();
        encode(ty, &row, &mut bytes)?;
        // As PostgreSQL's `record_send(row(7, 'xy')::pair)`.
        let expected = b"\0\0\0\x02\0\0\0\x17\0\0\0\x04\0\0\0\x07\0\0\x04\x13\0\0\0\x02xy";
        assert_eq!(bytes, expected);
        assert_eq!(decode(ty, &bytes)?, row);
        let empty = Datum::Record(vec![Datum::Null, Datum::Null]);
        let mut bytes = Vec::new();
        encode(ty, &empty, &mut bytes)?;
        assert_eq!(decode(ty, &bytes)?, empty);
        let Some(array) = ty.array() else { return Err(out_of_range(ty)) };
        let list = Datum::Array(vec![row, Datum::Null, empty]);
        let mut bytes = Vec::new();
        encode(array, &list, &mut bytes)?;
        assert_eq!(decode(array, &bytes)?, list);
        Ok(())
    }

    #[test]
    fn a_letter_is_one_byte() -> Result<()> {
        for (text, byte) in [("A", b'A'), ("\\344", 0o344), ("", 0)] {
            let value = crate::text::decode(Type::Char, text)?;
            let mut bytes = Vec::new();
            encode(Type::Char, &value, &mut bytes)?;
            assert_eq!(bytes, [byte]);
            assert_eq!(decode(Type::Char, &bytes)?, value);
            assert_eq!(crate::text::encode(Type::Char, &value), text);
        }
        assert!(decode(Type::Char, b"").is_err());
        assert!(decode(Type::Char, b"ab").is_err());
        Ok(())
    }

    #[test]
    fn other_bytes_are_no_row() -> Result<()> {
        let ty = pair()?;
        let mut bytes = Vec::new();
        encode(ty, &Datum::Record(vec![Datum::Int(7), Datum::from("xy")]), &mut bytes)?;
        for end in 0..bytes.len() {
            assert!(decode(ty, &bytes[..end]).is_err(), "the first {end} bytes");
        }
        for place in 0..bytes.len() {
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[place] ^= 1 << bit;
                // Refused, or another row: never a panic.
                drop(decode(ty, &other));
            }
        }
        let state = |bytes: &[u8]| decode(ty, bytes).map_err(|error| error.state());
        assert_eq!(state(b"\0\0\0\x01\0\0\0\x17\xff\xff\xff\xff"), Err(SqlState::DATATYPE_MISMATCH));
        let long = b"\0\0\0\x02\0\0\0\x17\xff\xff\xff\xff\0\0\x04\x13\0\0\0\x04long";
        assert_eq!(state(long), Err(SqlState::STRING_DATA_RIGHT_TRUNCATION));
        assert!(decode(Type::Composite(Composite::of_fields([(Type::Int4, -1)])?), &bytes).is_err());
        Ok(())
    }
}
