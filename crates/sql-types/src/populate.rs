//! Values of a type from JSON: the fields of a row from the members of an object.
//!
//! A member becomes a value as its text would, except that an object becomes a row and an array becomes an array. A
//! field that the object does not have keeps its value.

use crate::array::{self, Dimension};
use crate::cast::fit;
use crate::composite::{Attribute, Composite};
use crate::datum::Datum;
use crate::error::{Error, Result, SqlState};
use crate::json::{Raw, RawKind};
use crate::text;
use crate::types::Type;

/// The row that a JSON object says. Fields that it does not have are those of `base`.
///
/// ```
/// use lodestone_sql_types::composite::Composite;
/// use lodestone_sql_types::{Datum, Type, populate};
///
/// let pair = Composite::of_fields([(Type::Int4, -1), (Type::TextArray, -1)])?;
/// let found = populate::row(pair, &Datum::Null, "{\"f1\": \"7\", \"f2\": [\"a\", null]}")?;
/// let list = Datum::Array(vec![Datum::from("a"), Datum::Null]);
/// assert_eq!(found, Datum::Record(vec![Datum::Int(7), list]));
/// # Ok::<(), lodestone_sql_types::Error>(())
/// ```
///
/// # Errors
/// 22023 for a value that is no object; 22P02 for an array that has no shape; those of the input of the types.
pub fn row(of: Composite, base: &Datum, source: &str) -> Result<Datum> {
    fields(of, base, &Raw::parse(source, "json")?, source)
}

fn fields(of: Composite, base: &Datum, raw: &Raw, source: &str) -> Result<Datum> {
    let RawKind::Object(members) = &raw.kind else {
        let what = if matches!(raw.kind, RawKind::Array(_)) { "an array" } else { "a scalar" };
        let message = format!("cannot call populate_composite on {what}");
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
    };
    if members.is_empty() && !base.is_null() {
        return Ok(base.clone());
    }
    let before = if let Datum::Record(values) = base { &values[..] } else { &[] };
    let field = |(place, attribute): (usize, &Attribute)| {
        let before = before.get(place).cloned().unwrap_or_default();
        match raw.member(&attribute.name) {
            None => Ok(before),
            Some(member) => value((attribute.ty, attribute.modifier), &before, member, (source, &attribute.name)),
        }
    };
    Ok(Datum::Record(of.attributes().iter().enumerate().map(field).collect::<Result<_>>()?))
}

/// The value of a type that a part of a JSON text says. `key`: the member that it is in, for messages.
fn value((ty, modifier): (Type, i32), base: &Datum, raw: &Raw, (source, key): (&str, &str)) -> Result<Datum> {
    let own = &source[raw.start..raw.end];
    match (&raw.kind, ty) {
        (RawKind::Null, _) => Ok(Datum::Null),
        (_, Type::Json | Type::Jsonb) => text::decode(ty, own),
        (RawKind::Text(written), _) => fit(text::decode(ty, written)?, ty, modifier, false),
        (_, Type::Composite(of)) => fields(of, base, raw, source),
        (RawKind::Array(list), _) if ty.element().is_some() => {
            let mut found = Shape { depth: depth_of(list), dimensions: Vec::new(), values: Vec::new() };
            let element = (ty.element().unwrap_or(Type::Text), modifier);
            found.add(list, 0, element, (source, key))?;
            Ok(array::make(found.dimensions, found.values))
        }
        _ if ty.element().is_some() => Err(no_array(key)),
        _ => fit(text::decode(ty, own)?, ty, modifier, false),
    }
}

fn no_array(key: &str) -> Error {
    let error = Error::new(SqlState::INVALID_TEXT_REPRESENTATION, "expected JSON array");
    error.hint(format!("See the value of key \"{key}\"."))
}

/// How many arrays the first element is in.
fn depth_of(list: &[Raw]) -> usize {
    match list.first().map(|first| &first.kind) {
        Some(RawKind::Array(inner)) => 1 + depth_of(inner),
        _ => 1,
    }
}

/// An array that is put together.
struct Shape {
    depth: usize,
    dimensions: Vec<Dimension>,
    values: Vec<Datum>,
}

impl Shape {
    fn add(&mut self, list: &[Raw], level: usize, element: (Type, i32), at: (&str, &str)) -> Result<()> {
        match self.dimensions.get(level) {
            None => self.dimensions.push(Dimension { low: 1, length: list.len() }),
            Some(dimension) if dimension.length == list.len() => {}
            Some(_) => {
                let detail = "Multidimensional arrays must have sub-arrays with matching dimensions.";
                let error = Error::new(SqlState::INVALID_TEXT_REPRESENTATION, "malformed JSON array");
                return Err(error.detail(detail));
            }
        }
        for part in list {
            match &part.kind {
                _ if level + 1 == self.depth => self.values.push(value(element, &Datum::Null, part, at)?),
                RawKind::Array(inner) => self.add(inner, level + 1, element, at)?,
                _ => return Err(no_array(at.1)),
            }
        }
        Ok(())
    }
}
