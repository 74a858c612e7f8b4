//! Functions of arrays.

use super::{ANY, ARRAY, Argument, Function, INT4, TEXT, count, elements, int, of, text};
use crate::array::{
    Dimension, check_bounds, check_dimensions, concat, dimensions, dimensions_text, fits, make, map, slice,
};
use crate::datum::Datum;
use crate::error::{Error, Result, SqlState};
use crate::types::Type;

pub const FUNCTIONS: &[Function] = &[
    of("array_length", &[ARRAY, INT4], Type::Int4, |_, a| {
        Ok(dimension(a).map_or(Datum::Null, |dimension| count(dimension.length)))
    }),
    of("array_upper", &[ARRAY, INT4], Type::Int4, |_, a| {
        Ok(dimension(a).map_or(Datum::Null, |dimension| Datum::Int(dimension.high())))
    }),
    of("array_lower", &[ARRAY, INT4], Type::Int4, |_, a| {
        Ok(dimension(a).map_or(Datum::Null, |dimension| Datum::Int(dimension.low)))
    }),
    of("array_ndims", &[ARRAY], Type::Int4, |_, a| match dimensions(&a[0]).len() {
        0 => Ok(Datum::Null),
        found => Ok(count(found)),
    }),
    of("array_dims", &[ARRAY], Type::Text, |_, a| match &dimensions(&a[0])[..] {
        [] => Ok(Datum::Null),
        found => Ok(Datum::Text(dimensions_text(found))),
    }),
    of("cardinality", &[ARRAY], Type::Int4, |_, a| Ok(count(elements(a, 0).len()))),
    of("array_position", &[ARRAY, ANY], Type::Int4, |_, a| position(a, None)).lax(),
    of("array_position", &[ARRAY, ANY, INT4], Type::Int4, |_, a| match a[2].as_int() {
        Some(from) => position(a, Some(from)),
        None => Err(Error::new(SqlState::NULL_VALUE_NOT_ALLOWED, "initial position must not be null")),
    })
    .lax(),
    of("array_positions", &[ARRAY, ANY], Type::Int4Array, |_, a| {
        if a[0].is_null() {
            return Ok(Datum::Null);
        }
        let low = searched(a)?;
        let places = (low..).zip(elements(a, 0)).filter(|(_, value)| value.order(&a[1]).is_eq());
        Ok(Datum::Array(places.map(|(place, _)| Datum::Int(place)).collect()))
    })
    .lax(),
    of("array_append", &[ARRAY, ANY], Type::TextArray, |_, a| {
        let own = one_dimension(&a[0])?;
        let all = elements(a, 0).iter().chain(&a[1..]).cloned().collect();
        longer(own, all)
    })
    .lax()
    .like(0),
    of("array_prepend", &[ANY, ARRAY], Type::TextArray, |_, a| {
        let own = one_dimension(&a[1])?;
        // The new element has the index before the first, before the indexes are those of the array again.
        if own.low == i64::from(i32::MIN) {
            return Err(crate::text::out_of_range(Type::Int4));
        }
        let all = a[..1].iter().chain(elements(a, 1)).cloned().collect();
        longer(own, all)
    })
    .lax()
    .like(1),
    of("array_cat", &[ARRAY, ARRAY], Type::TextArray, |_, a| match (&a[0], &a[1]) {
        (Datum::Null, other) | (other, Datum::Null) => Ok(other.clone()),
        (one, two) => concat(one.clone(), two.clone()),
    })
    .lax()
    .like(0),
    of("array_remove", &[ARRAY, ANY], Type::TextArray, |_, a| {
        if a[0].is_null() {
            return Ok(Datum::Null);
        }
        if dimensions(&a[0]).len() > 1 {
            let message = "removing elements from multidimensional arrays is not supported";
            return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        let low = dimensions(&a[0]).first().map_or(1, |dimension| dimension.low);
        let kept: Vec<Datum> = elements(a, 0).iter().filter(|value| value.order(&a[1]).is_ne()).cloned().collect();
        Ok(make(vec![Dimension { low, length: kept.len() }], kept))
    })
    .lax()
    .like(0),
    of("array_replace", &[ARRAY, ANY, ANY], Type::TextArray, |_, a| {
        if a[0].is_null() {
            return Ok(Datum::Null);
        }
        map(a[0].clone(), |value| Ok(if value.order(&a[1]).is_eq() { a[2].clone() } else { value }))
    })
    .lax()
    .like(0),
    of("trim_array", &[ARRAY, INT4], Type::TextArray, |_, a| {
        let values = (0..dimensions(&a[0]).first().map_or(0, |dimension| dimension.length)).collect::<Vec<_>>();
        let kept = usize::try_from(int(a, 1)).ok().and_then(|count| values.len().checked_sub(count));
        let error = || {
            let message = format!("number of elements to trim must be between 0 and {}", values.len());
            Error::new(SqlState::ARRAY_ELEMENT_ERROR, message)
        };
        let kept = kept.ok_or_else(error)?;
        let high =
            dimensions(&a[0]).first().map_or(0, |dimension| dimension.low - 1) + i64::try_from(kept).unwrap_or(0);
        Ok(slice(&a[0], &[(None, Some(high))]))
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
    of("array_fill", &[ANY, Argument::Of(Type::Int4Array), Argument::Of(Type::Int4Array)], Type::TextArray, |_, a| {
        fill(a)
    })
    .lax(),
    of("array_contains", &[ARRAY, ARRAY], Type::Bool, |_, a| Ok(Datum::Bool(contains(elements(a, 0), elements(a, 1))))),
    of("array_contained", &[ARRAY, ARRAY], Type::Bool, |_, a| {
        Ok(Datum::Bool(contains(elements(a, 1), elements(a, 0))))
    }),
    // The labels between two, of all of an enumeration.
    of("lodestone_enum_range", &[ARRAY, ANY, ANY], Type::TextArray, |_, a| {
        let is_inside = |value: &&Datum| {
            let is_above = a[1].is_null() || value.order(&a[1]).is_ge();
            is_above && (a[2].is_null() || value.order(&a[2]).is_le())
        };
        Ok(Datum::Array(elements(a, 0).iter().filter(is_inside).cloned().collect()))
    })
    .lax()
    .like(0),
    of("array_overlap", &[ARRAY, ARRAY], Type::Bool, |_, a| {
        let is_shared =
            |value: &Datum| !value.is_null() && elements(a, 1).iter().any(|other| value.order(other).is_eq());
        Ok(Datum::Bool(elements(a, 0).iter().any(is_shared)))
    }),
];

/// The dimension that the second argument names.
fn dimension(arguments: &[Datum]) -> Option<Dimension> {
    let number = usize::try_from(int(arguments, 1)).ok()?.checked_sub(1)?;
    dimensions(&arguments[0]).get(number).copied()
}

/// The first index of an array that is searched.
fn searched(arguments: &[Datum]) -> Result<i64> {
    match dimensions(&arguments[0])[..] {
        [] => Ok(1),
        [dimension] => Ok(dimension.low),
        _ => {
            let message = "searching for elements in multidimensional arrays is not supported";
            Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message))
        }
    }
}

/// The dimension of an array that takes another element at an end.
fn one_dimension(array: &Datum) -> Result<Dimension> {
    match dimensions(array)[..] {
        [] => Ok(Dimension { low: 1, length: 0 }),
        [dimension] => Ok(dimension),
        _ => Err(Error::new(SqlState::DATA_EXCEPTION, "argument must be empty or one-dimensional array")),
    }
}

/// The array of these elements, of which there is one more than before.
fn longer(own: Dimension, all: Vec<Datum>) -> Result<Datum> {
    let found = vec![Dimension { length: own.length + 1, ..own }];
    check_bounds(&found)?;
    Ok(make(found, all))
}

fn position(arguments: &[Datum], from: Option<i64>) -> Result<Datum> {
    let low = searched(arguments)?;
    let mut found = (low..).zip(elements(arguments, 0)).filter(|(place, _)| from.is_none_or(|from| *place >= from));
    let fitting = found.find(|(_, value)| value.order(&arguments[1]).is_eq());
    Ok(fitting.map_or(Datum::Null, |(place, _)| Datum::Int(place)))
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
    let null = |what: &'static str| Error::new(SqlState::NULL_VALUE_NOT_ALLOWED, what);
    if arguments[1..].iter().any(Datum::is_null) {
        return Err(null("dimension array or low bound array cannot be null"));
    }
    let wrong = |detail: &'static str| {
        Error::new(SqlState::ARRAY_SUBSCRIPT_ERROR, "wrong number of array subscripts").detail(detail)
    };
    if arguments[1..].iter().any(|list| dimensions(list).len() > 1) {
        return Err(wrong("Dimension array must be one dimensional."));
    }
    let (lengths, lows) = (elements(arguments, 1), elements(arguments, 2));
    if lengths.iter().chain(lows).any(Datum::is_null) {
        return Err(null("dimension values cannot be null"));
    }
    if arguments.len() > 2 && lengths.len() != lows.len() {
        return Err(wrong("Low bound array has different size than dimensions array."));
    }
    check_dimensions(lengths.len())?;
    let (mut found, mut total) = (Vec::new(), 1_usize);
    for (number, length) in lengths.iter().enumerate() {
        // A negative length is too large, as in PostgreSQL.
        let length = usize::try_from(length.as_int().unwrap_or(0)).unwrap_or(usize::MAX);
        let low = lows.get(number).and_then(Datum::as_int).unwrap_or(1);
        total = total.saturating_mul(length);
        found.push(Dimension { low, length });
    }
    if lengths.is_empty() || total == 0 {
        return Ok(Datum::Array(Vec::new()));
    }
    fits(total, bytes_of(&arguments[0]))?;
    check_bounds(&found)?;
    Ok(make(found, vec![arguments[0].clone(); total]))
}
