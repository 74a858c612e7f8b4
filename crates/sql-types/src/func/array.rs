//! Functions of arrays, which have one dimension.

use super::{ANY, ARRAY, Argument, Function, INT4, TEXT, count, elements, int, of, text};
use crate::datum::Datum;
use crate::error::{Error, Result, SqlState};
use crate::types::Type;

pub const FUNCTIONS: &[Function] = &[
    of("array_length", &[ARRAY, INT4], Type::Int4, |_, a| Ok(bound(a))),
    of("array_upper", &[ARRAY, INT4], Type::Int4, |_, a| Ok(bound(a))),
    of("array_lower", &[ARRAY, INT4], Type::Int4, |_, a| {
        Ok(if bound(a).is_null() { Datum::Null } else { Datum::Int(1) })
    }),
    of("array_ndims", &[ARRAY], Type::Int4, |_, a| {
        Ok(if elements(a, 0).is_empty() { Datum::Null } else { Datum::Int(1) })
    }),
    of("array_dims", &[ARRAY], Type::Text, |_, a| {
        let length = elements(a, 0).len();
        Ok(if length == 0 { Datum::Null } else { Datum::Text(format!("[1:{length}]")) })
    }),
    of("cardinality", &[ARRAY], Type::Int4, |_, a| Ok(count(elements(a, 0).len()))),
    of("array_position", &[ARRAY, ANY], Type::Int4, |_, a| Ok(position(a, 1))).lax(),
    of("array_position", &[ARRAY, ANY, INT4], Type::Int4, |_, a| match a[2].as_int() {
        Some(from) => Ok(position(a, from)),
        None => Err(Error::new(SqlState::NULL_VALUE_NOT_ALLOWED, "initial position must not be null")),
    })
    .lax(),
    of("array_positions", &[ARRAY, ANY], Type::Int4Array, |_, a| {
        if a[0].is_null() {
            return Ok(Datum::Null);
        }
        let places = elements(a, 0).iter().enumerate().filter(|(_, value)| value.order(&a[1]).is_eq());
        Ok(Datum::Array(places.map(|(place, _)| count(place + 1)).collect()))
    })
    .lax(),
    of("array_append", &[ARRAY, ANY], Type::TextArray, |_, a| {
        Ok(Datum::Array(elements(a, 0).iter().chain(&a[1..]).cloned().collect()))
    })
    .lax()
    .like(0),
    of("array_prepend", &[ANY, ARRAY], Type::TextArray, |_, a| {
        Ok(Datum::Array(a[..1].iter().chain(elements(a, 1)).cloned().collect()))
    })
    .lax()
    .like(1),
    of("array_cat", &[ARRAY, ARRAY], Type::TextArray, |_, a| {
        let is_null = a[0].is_null() && a[1].is_null();
        let all = elements(a, 0).iter().chain(elements(a, 1)).cloned().collect();
        Ok(if is_null { Datum::Null } else { Datum::Array(all) })
    })
    .lax()
    .like(0),
    of("array_remove", &[ARRAY, ANY], Type::TextArray, |_, a| {
        if a[0].is_null() {
            return Ok(Datum::Null);
        }
        Ok(Datum::Array(elements(a, 0).iter().filter(|value| value.order(&a[1]).is_ne()).cloned().collect()))
    })
    .lax()
    .like(0),
    of("array_replace", &[ARRAY, ANY, ANY], Type::TextArray, |_, a| {
        if a[0].is_null() {
            return Ok(Datum::Null);
        }
        let other = |value: &Datum| if value.order(&a[1]).is_eq() { a[2].clone() } else { value.clone() };
        Ok(Datum::Array(elements(a, 0).iter().map(other).collect()))
    })
    .lax()
    .like(0),
    of("trim_array", &[ARRAY, INT4], Type::TextArray, |_, a| {
        let values = elements(a, 0);
        let kept = usize::try_from(int(a, 1)).ok().and_then(|count| values.len().checked_sub(count));
        let error = || {
            let message = format!("number of elements to trim must be between 0 and {}", values.len());
            Error::new(SqlState::ARRAY_ELEMENT_ERROR, message)
        };
        Ok(Datum::Array(values[..kept.ok_or_else(error)?].to_vec()))
    })
    .like(0),
    of("array_part", &[ARRAY, INT4, INT4], Type::TextArray, |_, a| {
        let place = |number: i64| usize::try_from(number.max(0)).unwrap_or(usize::MAX).min(elements(a, 0).len());
        let (start, end) = (place(int(a, 1).saturating_sub(1)), place(int(a, 2)));
        Ok(Datum::Array(elements(a, 0).get(start..end).unwrap_or_default().to_vec()))
    })
    .like(0),
    of("array_to_string", &[ARRAY, TEXT], Type::Text, |_, a| joined(elements(a, 0), text(a, 1), None)),
    of("array_to_string", &[ARRAY, TEXT, TEXT], Type::Text, |_, a| {
        if a[0].is_null() || a[1].is_null() {
            return Ok(Datum::Null);
        }
        joined(elements(a, 0), text(a, 1), a[2].as_text())
    })
    .lax(),
    of("string_to_array", &[TEXT, TEXT], Type::TextArray, |_, a| split(a)).lax(),
    of("string_to_array", &[TEXT, TEXT, TEXT], Type::TextArray, |_, a| split(a)).lax(),
    of("array_fill", &[ANY, Argument::Of(Type::Int4Array)], Type::TextArray, |_, a| fill(a)).lax(),
    of("array_contains", &[ARRAY, ARRAY], Type::Bool, |_, a| Ok(Datum::Bool(contains(elements(a, 0), elements(a, 1))))),
    of("array_contained", &[ARRAY, ARRAY], Type::Bool, |_, a| {
        Ok(Datum::Bool(contains(elements(a, 1), elements(a, 0))))
    }),
    of("array_overlap", &[ARRAY, ARRAY], Type::Bool, |_, a| {
        let is_shared =
            |value: &Datum| !value.is_null() && elements(a, 1).iter().any(|other| value.order(other).is_eq());
        Ok(Datum::Bool(elements(a, 0).iter().any(is_shared)))
    }),
];

fn bound(arguments: &[Datum]) -> Datum {
    match (elements(arguments, 0).len(), int(arguments, 1)) {
        (length @ 1.., 1) => count(length),
        _ => Datum::Null,
    }
}

fn position(arguments: &[Datum], from: i64) -> Datum {
    let skip = usize::try_from(from.max(1) - 1).unwrap_or(usize::MAX);
    let found = elements(arguments, 0).iter().enumerate().skip(skip);
    let mut fitting = found.filter(|(_, value)| value.order(&arguments[1]).is_eq());
    fitting.next().map_or(Datum::Null, |(place, _)| count(place + 1))
}

/// Whether every element of the second is one of the first. A null is none of anything.
fn contains(values: &[Datum], parts: &[Datum]) -> bool {
    parts.iter().all(|part| !part.is_null() && values.iter().any(|value| value.order(part).is_eq()))
}

fn joined(values: &[Datum], separator: &str, null: Option<&str>) -> Result<Datum> {
    let part = |value: &Datum| match value {
        Datum::Null => null.map(str::to_owned),
        value => Some(crate::text::encode(Type::Text, value)),
    };
    super::string::joined(&values.iter().filter_map(part).collect::<Vec<_>>(), separator)
}

fn split(arguments: &[Datum]) -> Result<Datum> {
    let Some(whole) = arguments[0].as_text() else { return Ok(Datum::Null) };
    let null = arguments.get(2).and_then(Datum::as_text);
    let datum = |part: String| if Some(part.as_str()) == null { Datum::Null } else { Datum::Text(part) };
    if whole.is_empty() {
        return Ok(Datum::Array(Vec::new()));
    }
    fits(
        match arguments[1].as_text() {
            None => whole.chars().count(),
            Some("") => 1,
            Some(separator) => whole.matches(separator).count() + 1,
        },
        0,
    )?;
    Ok(Datum::Array(match arguments[1].as_text() {
        None => whole.chars().map(|letter| datum(letter.to_string())).collect(),
        Some("") => vec![datum(whole.to_owned())],
        Some(separator) => whole.split(separator).map(|part| datum(part.to_owned())).collect(),
    }))
}

/// Most bytes of memory that the elements of an array may take which a function makes of a short text or of one value.
const BYTES_MAX: usize = 256 << 20;

/// Refuses an array of so many elements, each with so many bytes beside its own.
///
/// # Errors
/// 54000.
pub(super) fn fits(count: usize, bytes: usize) -> Result<()> {
    let most = BYTES_MAX / size_of::<Datum>().saturating_add(bytes).max(1);
    let message = || format!("array size exceeds the maximum allowed ({most})");
    if count <= most { Ok(()) } else { Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message())) }
}

/// The memory of a value outside of itself, about.
fn bytes_of(value: &Datum) -> usize {
    match value {
        Datum::Text(text) => text.len(),
        Datum::Bytes(bytes) => bytes.len(),
        Datum::Array(values) | Datum::Record(values) => {
            values.iter().fold(0, |sum, value| sum + size_of::<Datum>() + bytes_of(value))
        }
        // The copies of others share their parts.
        _ => 0,
    }
}

fn fill(arguments: &[Datum]) -> Result<Datum> {
    match elements(arguments, 1) {
        [Datum::Int(length)] => {
            let length = usize::try_from(*length).unwrap_or(usize::MAX);
            fits(length, bytes_of(&arguments[0]))?;
            Ok(Datum::Array(vec![arguments[0].clone(); length]))
        }
        [] => Ok(Datum::Array(Vec::new())),
        _ => Err(Error::unsupported("an array of several dimensions")),
    }
}
