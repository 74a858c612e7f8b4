//! The text format of values: what `psql` shows, and what a literal says.

use std::fmt::Write;

use crate::datum::Datum;
use crate::error::{Error, Result, SqlState};
use crate::numeric::Numeric;
use crate::time;
use crate::types::Type;

/// Most bytes of a value that is put together from others, as in `PostgreSQL`.
pub const BYTES_MAX: usize = (1 << 30) - 1;

/// Refuses a value of so many bytes.
///
/// # Errors
/// 54000 if there are more than `most`.
pub fn check_length(bytes: usize, most: usize) -> Result<()> {
    let error = || Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "requested length too large");
    if bytes <= most { Ok(()) } else { Err(error().detail(format!("The result has at most {most} bytes."))) }
}

/// The text of `datum`, which is of type `ty` and not null.
///
/// ```
/// use lodestone_sql_types::{Datum, Type, text};
///
/// assert_eq!(text::encode(Type::Bool, &Datum::Bool(true)), "t");
/// assert_eq!(text::decode(Type::Int4, "-7")?, Datum::Int(-7));
/// # Ok::<(), lodestone_sql_types::Error>(())
/// ```
#[must_use]
pub fn encode(ty: Type, datum: &Datum) -> String {
    let mut text = String::new();
    write_to(ty, datum, &mut text);
    text
}

/// Appends the text of `datum`, which is of type `ty`. Nothing for null.
pub fn write_to(ty: Type, datum: &Datum, text: &mut String) {
    match datum {
        Datum::Null => {}
        Datum::Bool(value) => text.push(if *value { 't' } else { 'f' }),
        // Writing to a string does not fail.
        Datum::Int(value) => _ = write!(text, "{value}"),
        Datum::Float(value) => text.push_str(&float_text(ty, *value)),
        Datum::Numeric(value) => _ = write!(text, "{value}"),
        Datum::Text(value) => text.push_str(value),
        Datum::Bytes(value) if ty == Type::Uuid => {
            for (place, byte) in value.iter().enumerate() {
                if matches!(place, 4 | 6 | 8 | 10) {
                    text.push('-');
                }
                _ = write!(text, "{byte:02x}");
            }
        }
        Datum::Bytes(value) => {
            text.push_str("\\x");
            value.iter().for_each(|byte| _ = write!(text, "{byte:02x}"));
        }
        Datum::Date(days) => text.push_str(&time::date_text(*days)),
        Datum::Time(micros) if ty == Type::Time => text.push_str(&time::clock_text(*micros)),
        Datum::Time(micros) => text.push_str(&time::time_text(*micros, ty == Type::Timestamptz)),
        Datum::Interval(value) => _ = write!(text, "{value}"),
        Datum::Json(value) => _ = write!(text, "{value}"),
        Datum::Array(values) => write_array(ty, values, text),
        Datum::Record(values) => {
            text.push('(');
            for (number, value) in values.iter().enumerate() {
                if number > 0 {
                    text.push(',');
                }
                write_field(value, text);
            }
            text.push(')');
        }
    }
}

/// A field of a record: quotes and backslashes in it are doubled.
fn write_field(value: &Datum, text: &mut String) {
    if value.is_null() {
        return;
    }
    let plain = encode(Type::Text, value);
    let is_quoted = plain.is_empty() || plain.contains(|letter: char| "(),\"\\".contains(letter) || is_space(letter));
    if !is_quoted {
        return text.push_str(&plain);
    }
    text.push('"');
    for letter in plain.chars() {
        if matches!(letter, '"' | '\\') {
            text.push(letter);
        }
        text.push(letter);
    }
    text.push('"');
}

/// Whether `PostgreSQL` takes a character as a space around a value: six of ASCII, none of the others of Unicode.
pub(crate) fn is_space(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r')
}

fn write_array(ty: Type, values: &[Datum], text: &mut String) {
    let element = ty.element().unwrap_or(Type::Text);
    let is_vector = matches!(ty, Type::Int2Vector | Type::OidVector);
    if !is_vector {
        text.push('{');
    }
    for (number, value) in values.iter().enumerate() {
        if number > 0 {
            text.push(if is_vector { ' ' } else { ',' });
        }
        if value.is_null() { text.push_str("NULL") } else { write_element(element, value, text) }
    }
    if !is_vector {
        text.push('}');
    }
}

fn write_element(element: Type, value: &Datum, text: &mut String) {
    let plain = encode(element, value);
    let is_word = value.as_text().is_some() && (plain.is_empty() || plain.eq_ignore_ascii_case("null"));
    let is_quoted = is_word || plain.contains(|letter: char| "{},\"\\".contains(letter) || is_space(letter));
    if !is_quoted {
        return text.push_str(&plain);
    }
    text.push('"');
    for letter in plain.chars() {
        if matches!(letter, '"' | '\\') {
            text.push('\\');
        }
        text.push(letter);
    }
    text.push('"');
}

/// The shortest text that reads back as the same number.
fn float_text(ty: Type, value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    let scientific = if ty == Type::Float4 { format!("{:e}", narrow(value)) } else { format!("{value:e}") };
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits_max = if ty == Type::Float4 { 6 } else { 15 };
    if exponent < -4 || exponent >= digits_max {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs());
    }
    if ty == Type::Float4 { format!("{}", narrow(value)) } else { format!("{value}") }
}

/// The nearest number of 32 bits.
#[must_use]
pub fn narrow(value: f64) -> f32 {
    // There is no conversion without `as`; its text is read back as the nearest number.
    format!("{value}").parse().unwrap_or(f32::NAN)
}

fn invalid(ty: Type, text: &str) -> Error {
    let message = format!("invalid input syntax for type {ty}: \"{text}\"");
    Error::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
}

/// The error of a number outside the limits of its type.
#[must_use]
pub fn out_of_range(ty: Type) -> Error {
    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("{ty} out of range"))
}

/// The value of type `ty` that `text` says.
///
/// # Errors
/// 22P02, 22003, 22007, 22008 as `PostgreSQL`.
pub fn decode(ty: Type, text: &str) -> Result<Datum> {
    if let Some(element) = ty.element() {
        return array(ty, element, text);
    }
    Ok(match ty {
        Type::Bool => Datum::Bool(boolean(text).ok_or_else(|| invalid(ty, text))?),
        Type::Int2 | Type::Int4 | Type::Int8 => integer(ty, text)?,
        _ if ty.is_oid() => integer(ty, text)?,
        Type::Float4 | Type::Float8 => Datum::Float(float(ty, text)?),
        Type::Numeric => Datum::Numeric(text.parse::<Numeric>()?),
        Type::Bytea => Datum::Bytes(bytes(text)?),
        Type::Uuid => Datum::Bytes(uuid(text).ok_or_else(|| invalid(ty, text))?),
        Type::Time => Datum::Time(time::parse_time_of_day(text)?),
        Type::Interval => Datum::Interval(text.parse()?),
        Type::Json => {
            crate::json::Raw::parse(text, "json")?;
            Datum::from(text)
        }
        Type::Jsonb => Datum::Json(std::sync::Arc::new(crate::json::Json::parse(text, "jsonb")?)),
        Type::Date => Datum::Date(time::parse_date(text)?),
        Type::Timestamp | Type::Timestamptz => Datum::Time(time::parse_time(text, ty == Type::Timestamptz)?),
        Type::Char => Datum::Text(text.chars().take(1).collect()),
        Type::Bpchar => Datum::Text(text.trim_end_matches(' ').to_owned()),
        Type::Name => Datum::Text(crate::cast::name_of(text)),
        Type::Void => Datum::Text(String::new()),
        Type::Record => return Err(Error::unsupported("input of a composite type")),
        _ => Datum::from(text),
    })
}

/// The bytes of an identifier: 32 digits to the base 16, with hyphens after groups of four, in braces perhaps.
fn uuid(text: &str) -> Option<Vec<u8>> {
    let inner = text.strip_prefix('{').map_or(Some(text), |rest| rest.strip_suffix('}'))?;
    let (mut digits, mut was_hyphen) = (Vec::new(), true);
    for letter in inner.chars() {
        if letter == '-' {
            if was_hyphen || digits.len() % 4 != 0 {
                return None;
            }
        } else {
            digits.push(u8::try_from(letter.to_digit(16)?).ok()?);
        }
        was_hyphen = letter == '-';
    }
    (digits.len() == 32 && !was_hyphen).then(|| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// The truth value that a text says.
fn boolean(text: &str) -> Option<bool> {
    let text = text.trim_matches(is_space).to_ascii_lowercase();
    let begins = |word: &str, least: usize| text.len() >= least && word.starts_with(&text);
    match () {
        () if begins("true", 1) || begins("yes", 1) || text == "on" || text == "1" => Some(true),
        () if begins("false", 1) || begins("no", 1) || begins("off", 2) || text == "0" => Some(false),
        () => None,
    }
}

fn integer(ty: Type, text: &str) -> Result<Datum> {
    let trimmed = text.trim_matches(is_space);
    let digits = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid(ty, text));
    }
    let (least, most) = ty.limits();
    let number = trimmed.parse::<i64>().ok().filter(|number| (least..=most).contains(number));
    number.map(Datum::Int).ok_or_else(|| {
        let message = format!("value \"{text}\" is out of range for type {ty}");
        Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message)
    })
}

fn float(ty: Type, text: &str) -> Result<f64> {
    let trimmed = text.trim_matches(is_space).to_ascii_lowercase();
    let is_word = matches!(trimmed.trim_start_matches(['-', '+']), "infinity" | "inf" | "nan");
    let value: f64 = trimmed.parse().map_err(|_| invalid(ty, text))?;
    let value = if ty == Type::Float4 { f64::from(narrow(value)) } else { value };
    let has_digits =
        trimmed.split('e').next().is_some_and(|mantissa| mantissa.contains(|l: char| ('1'..='9').contains(&l)));
    if value.is_infinite() && !is_word || value == 0.0 && has_digits {
        let message = format!("\"{text}\" is out of range for type {ty}");
        return Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message));
    }
    Ok(value)
}

fn bytes(text: &str) -> Result<Vec<u8>> {
    let bad = |message: &str| Error::new(SqlState::INVALID_PARAMETER_VALUE, message.to_owned());
    if let Some(digits) = text.strip_prefix("\\x") {
        let digits: Vec<char> = digits.chars().filter(|letter| !matches!(letter, ' ' | '\t' | '\n' | '\r')).collect();
        if !digits.len().is_multiple_of(2) {
            return Err(bad("invalid hexadecimal data: odd number of digits"));
        }
        let value = |letter: char| {
            let found = letter.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            found.ok_or_else(|| bad(&format!("invalid hexadecimal digit: \"{letter}\"")))
        };
        return digits.chunks(2).map(|pair| Ok(value(pair[0])? << 4 | value(pair[1])?)).collect();
    }
    let mut found = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match (first, rest) {
            (b'\\', [b'\\', after @ ..]) => (found.push(b'\\'), rest = after).0,
            (b'\\', [high @ b'0'..=b'3', middle @ b'0'..=b'7', low @ b'0'..=b'7', after @ ..]) => {
                found.push((high - b'0') << 6 | (middle - b'0') << 3 | (low - b'0'));
                rest = after;
            }
            (b'\\', _) => return Err(invalid(Type::Bytea, text)),
            (byte, _) => found.push(*byte),
        }
    }
    Ok(found)
}

/// An array of one dimension.
fn array(ty: Type, element: Type, text: &str) -> Result<Datum> {
    let malformed = || {
        let message = format!("malformed array literal: \"{text}\"");
        Error::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
    };
    if matches!(ty, Type::Int2Vector | Type::OidVector) {
        return text
            .split(is_space)
            .filter(|part| !part.is_empty())
            .map(|part| decode(element, part))
            .collect::<Result<_>>()
            .map(Datum::Array);
    }
    let inner =
        text.trim_matches(is_space).strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).ok_or_else(malformed)?;
    let mut values = Vec::new();
    let mut letters = inner.chars().peekable();
    if inner.trim_matches(is_space).is_empty() {
        return Ok(Datum::Array(values));
    }
    loop {
        let (mut part, mut is_quoted) = (String::new(), false);
        while letters.next_if(|letter| is_space(*letter)).is_some() {}
        if letters.next_if_eq(&'"').is_some() {
            is_quoted = true;
            loop {
                match letters.next().ok_or_else(malformed)? {
                    '"' => break,
                    '\\' => part.push(letters.next().ok_or_else(malformed)?),
                    letter => part.push(letter),
                }
            }
            while letters.next_if(|letter| is_space(*letter)).is_some() {}
        } else {
            // Spaces after the last letter do not belong to the value, unless a backslash keeps them.
            let mut len = 0;
            while let Some(letter) = letters.next_if(|letter| *letter != ',') {
                match letter {
                    '{' | '}' => return Err(Error::unsupported("an array of several dimensions")),
                    '"' => return Err(malformed()),
                    '\\' => {
                        part.push(letters.next().ok_or_else(malformed)?);
                        is_quoted = true;
                        len = part.len();
                    }
                    letter => {
                        part.push(letter);
                        len = if is_space(letter) { len } else { part.len() };
                    }
                }
            }
            part.truncate(len);
            if part.is_empty() {
                return Err(malformed());
            }
        }
        let is_null = !is_quoted && part.eq_ignore_ascii_case("null");
        values.push(if is_null { Datum::Null } else { decode(element, &part)? });
        match letters.next() {
            None => return Ok(Datum::Array(values)),
            Some(',') => {}
            Some(_) => return Err(malformed()),
        }
    }
}
