//! Functions of texts and arrays. The locale is C: letters beyond ASCII have no case.

use super::{Argument, Function, INT4, NUMERIC, TEXT, int, of, text};
use crate::datum::Datum;
use crate::error::{Error, Result, SqlState};
use crate::types::Type;

const BYTEA: Argument = Argument::Of(Type::Bytea);

pub const FUNCTIONS: &[Function] = &[
    of("lower", &[TEXT], Type::Text, |_, a| Ok(Datum::Text(text(a, 0).to_ascii_lowercase()))),
    of("upper", &[TEXT], Type::Text, |_, a| Ok(Datum::Text(text(a, 0).to_ascii_uppercase()))),
    of("length", &[TEXT], Type::Int4, |_, a| Ok(count(text(a, 0).chars().count()))),
    of("length", &[BYTEA], Type::Int4, |_, a| Ok(bytes_count(a))),
    of("char_length", &[TEXT], Type::Int4, |_, a| Ok(count(text(a, 0).chars().count()))),
    of("character_length", &[TEXT], Type::Int4, |_, a| Ok(count(text(a, 0).chars().count()))),
    of("octet_length", &[TEXT], Type::Int4, |_, a| Ok(count(text(a, 0).len()))),
    of("octet_length", &[BYTEA], Type::Int4, |_, a| Ok(bytes_count(a))),
    of("substring", &[TEXT, INT4], Type::Text, |_, a| substring(text(a, 0), int(a, 1), None)),
    of("substring", &[TEXT, INT4, INT4], Type::Text, |_, a| substring(text(a, 0), int(a, 1), Some(int(a, 2)))),
    of("substr", &[TEXT, INT4], Type::Text, |_, a| substring(text(a, 0), int(a, 1), None)),
    of("substr", &[TEXT, INT4, INT4], Type::Text, |_, a| substring(text(a, 0), int(a, 1), Some(int(a, 2)))),
    of("left", &[TEXT, INT4], Type::Text, |_, a| Ok(Datum::Text(left(text(a, 0), int(a, 1))))),
    of("right", &[TEXT, INT4], Type::Text, |_, a| Ok(Datum::Text(right(text(a, 0), int(a, 1))))),
    of("btrim", &[TEXT], Type::Text, |_, a| Ok(Datum::from(text(a, 0).trim_matches(' ')))),
    of("ltrim", &[TEXT], Type::Text, |_, a| Ok(Datum::from(text(a, 0).trim_start_matches(' ')))),
    of("rtrim", &[TEXT], Type::Text, |_, a| Ok(Datum::from(text(a, 0).trim_end_matches(' ')))),
    of("btrim", &[TEXT, TEXT], Type::Text, |_, a| Ok(Datum::from(text(a, 0).trim_matches(|l| text(a, 1).contains(l))))),
    of("ltrim", &[TEXT, TEXT], Type::Text, |_, a| {
        Ok(Datum::from(text(a, 0).trim_start_matches(|l| text(a, 1).contains(l))))
    }),
    of("rtrim", &[TEXT, TEXT], Type::Text, |_, a| {
        Ok(Datum::from(text(a, 0).trim_end_matches(|l| text(a, 1).contains(l))))
    }),
    of("replace", &[TEXT, TEXT, TEXT], Type::Text, |_, a| {
        let found =
            if text(a, 1).is_empty() { text(a, 0).to_owned() } else { text(a, 0).replace(text(a, 1), text(a, 2)) };
        Ok(Datum::Text(found))
    }),
    of("strpos", &[TEXT, TEXT], Type::Int4, |_, a| Ok(position(text(a, 0), text(a, 1)))),
    of("position", &[TEXT, TEXT], Type::Int4, |_, a| Ok(position(text(a, 0), text(a, 1)))),
    of("starts_with", &[TEXT, TEXT], Type::Bool, |_, a| Ok(Datum::Bool(text(a, 0).starts_with(text(a, 1))))),
    of("repeat", &[TEXT, INT4], Type::Text, |_, a| repeat(text(a, 0), int(a, 1))),
    of("reverse", &[TEXT], Type::Text, |_, a| Ok(Datum::Text(text(a, 0).chars().rev().collect()))),
    of("lpad", &[TEXT, INT4], Type::Text, |_, a| pad(text(a, 0), int(a, 1), " ", true)),
    of("lpad", &[TEXT, INT4, TEXT], Type::Text, |_, a| pad(text(a, 0), int(a, 1), text(a, 2), true)),
    of("rpad", &[TEXT, INT4], Type::Text, |_, a| pad(text(a, 0), int(a, 1), " ", false)),
    of("rpad", &[TEXT, INT4, TEXT], Type::Text, |_, a| pad(text(a, 0), int(a, 1), text(a, 2), false)),
    of("split_part", &[TEXT, TEXT, INT4], Type::Text, |_, a| split_part(text(a, 0), text(a, 1), int(a, 2))),
    of("concat", &[], Type::Text, |_, a| Ok(Datum::Text(a.iter().filter_map(Datum::as_text).collect())))
        .lax()
        .variadic(),
    of("quote_ident", &[TEXT], Type::Text, |_, a| Ok(Datum::Text(quote_ident(text(a, 0))))),
    of("quote_literal", &[TEXT], Type::Text, |_, a| Ok(Datum::Text(format!("'{}'", text(a, 0).replace('\'', "''"))))),
    of("ascii", &[TEXT], Type::Int4, |_, a| {
        Ok(Datum::Int(text(a, 0).chars().next().map_or(0, |letter| i64::from(u32::from(letter)))))
    }),
    of("array_length", &[Argument::AnyArray, INT4], Type::Int4, |_, a| match (&a[0], int(a, 1)) {
        (Datum::Array(values), 1) if !values.is_empty() => Ok(count(values.len())),
        _ => Ok(Datum::Null),
    }),
    of("array_upper", &[Argument::AnyArray, INT4], Type::Int4, |_, a| match (&a[0], int(a, 1)) {
        (Datum::Array(values), 1) if !values.is_empty() => Ok(count(values.len())),
        _ => Ok(Datum::Null),
    }),
    of("cardinality", &[Argument::AnyArray], Type::Int4, |_, a| match &a[0] {
        Datum::Array(values) => Ok(count(values.len())),
        _ => Ok(Datum::Null),
    }),
    of("array_position", &[Argument::AnyArray, Argument::Any], Type::Int4, |_, a| match &a[0] {
        Datum::Array(values) => {
            let found = values.iter().position(|value| value.order(&a[1]).is_eq());
            Ok(found.map_or(Datum::Null, |place| count(place + 1)))
        }
        _ => Ok(Datum::Null),
    })
    .lax(),
    of("array_to_string", &[Argument::AnyArray, TEXT], Type::Text, |_, a| match &a[0] {
        Datum::Array(values) => {
            let texts = values.iter().filter(|value| !value.is_null());
            let texts: Vec<_> = texts.map(|value| crate::text::encode(Type::Text, value)).collect();
            Ok(Datum::Text(texts.join(text(a, 1))))
        }
        _ => Ok(Datum::Null),
    }),
    of("to_hex", &[NUMERIC], Type::Text, |_, a| match &a[0] {
        Datum::Numeric(value) => Ok(Datum::Text(format!("{:x}", value.to_i64()?))),
        _ => Ok(Datum::Null),
    }),
];

fn count(count: usize) -> Datum {
    Datum::Int(i64::try_from(count).unwrap_or(i64::MAX))
}

fn bytes_count(arguments: &[Datum]) -> Datum {
    if let Datum::Bytes(bytes) = &arguments[0] { count(bytes.len()) } else { Datum::Null }
}

/// From the character with number `from`, which may be before the first.
fn substring(text: &str, from: i64, length: Option<i64>) -> Result<Datum> {
    if length.is_some_and(|length| length < 0) {
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, "negative substring length not allowed"));
    }
    let end = length.map_or(i64::MAX, |length| from.saturating_add(length));
    let first = from.max(1);
    let skip = usize::try_from(first - 1).unwrap_or(usize::MAX);
    let take = usize::try_from(end.saturating_sub(first).max(0)).unwrap_or(usize::MAX);
    Ok(Datum::Text(text.chars().skip(skip).take(take).collect()))
}

fn left(text: &str, length: i64) -> String {
    let count = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    let take = if length < 0 { count.saturating_add(length).max(0) } else { length };
    text.chars().take(usize::try_from(take).unwrap_or(usize::MAX)).collect()
}

fn right(text: &str, length: i64) -> String {
    let count = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    let skip = if length < 0 { length.saturating_neg() } else { count.saturating_sub(length).max(0) };
    text.chars().skip(usize::try_from(skip).unwrap_or(usize::MAX)).collect()
}

fn position(text: &str, part: &str) -> Datum {
    text.find(part).map_or(Datum::Int(0), |place| count(text[..place].chars().count() + 1))
}

/// Longest text that a function makes.
const LENGTH_MAX: usize = 64 << 20;

fn too_long() -> Error {
    Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "requested length too large")
}

fn repeat(text: &str, times: i64) -> Result<Datum> {
    let times = usize::try_from(times).unwrap_or(0);
    let fits = text.len().checked_mul(times).is_some_and(|length| length <= LENGTH_MAX);
    if fits { Ok(Datum::Text(text.repeat(times))) } else { Err(too_long()) }
}

fn pad(text: &str, length: i64, filler: &str, is_left: bool) -> Result<Datum> {
    let length = usize::try_from(length).unwrap_or(0);
    if length > LENGTH_MAX {
        return Err(too_long());
    }
    let missing = length.saturating_sub(text.chars().count());
    let padding: String =
        if filler.is_empty() { String::new() } else { filler.chars().cycle().take(missing).collect() };
    let kept: String = text.chars().take(length).collect();
    Ok(Datum::Text(if is_left { padding + &kept } else { kept + &padding }))
}

fn split_part(text: &str, separator: &str, number: i64) -> Result<Datum> {
    if number == 0 {
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, "field position must not be zero"));
    }
    let parts: Vec<&str> = if separator.is_empty() { vec![text] } else { text.split(separator).collect() };
    let place = usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX);
    let found = if number > 0 {
        parts.get(place - 1)
    } else {
        parts.len().checked_sub(place).and_then(|place| parts.get(place))
    };
    Ok(Datum::from(found.copied().unwrap_or_default()))
}

/// The name as a statement needs it.
pub fn quote_ident(name: &str) -> String {
    let is_plain = name.starts_with(|letter: char| letter.is_ascii_lowercase() || letter == '_')
        && name
            .chars()
            .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || matches!(letter, '_' | '$'))
        && !RESERVED.contains(&name);
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// Words that are no names without quotes.
const RESERVED: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "both",
    "case",
    "cast",
    "check",
    "collate",
    "column",
    "constraint",
    "create",
    "current_catalog",
    "current_date",
    "current_role",
    "current_time",
    "current_timestamp",
    "current_user",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "false",
    "fetch",
    "for",
    "foreign",
    "from",
    "grant",
    "group",
    "having",
    "in",
    "initially",
    "intersect",
    "into",
    "lateral",
    "leading",
    "limit",
    "localtime",
    "localtimestamp",
    "not",
    "null",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "placing",
    "primary",
    "references",
    "returning",
    "select",
    "session_user",
    "some",
    "symmetric",
    "table",
    "then",
    "to",
    "trailing",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "variadic",
    "when",
    "where",
    "window",
    "with",
];
