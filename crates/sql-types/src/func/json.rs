//! Functions and operators of `json`, which is a text, and `jsonb`, which is a tree.
//!
//! Operators have the names of functions: `->` is `json_object_field` and so on, as in `PostgreSQL`.

use std::sync::Arc;

use super::{BOOL, Function, INT4, JSON, JSONB, TEXT, TEXTS, count, elements, int, of, text};
use crate::array;
use crate::datum::Datum;
use crate::error::{Error, Result, SqlState};
use crate::json::{Json, Raw, RawKind, quote};
use crate::types::Type;

pub const FUNCTIONS: &[Function] = &[
    of("json_object_field", &[JSON, TEXT], Type::Json, |_, a| raw(a, |raw| raw.member(text(a, 1)))),
    of("json_object_field", &[JSONB, TEXT], Type::Jsonb, |_, a| tree(a, |json| json.member(text(a, 1)))),
    of("json_array_element", &[JSON, INT4], Type::Json, |_, a| raw(a, |raw| raw.element(int(a, 1)))),
    of("json_array_element", &[JSONB, INT4], Type::Jsonb, |_, a| tree(a, |json| json.element(int(a, 1)))),
    of("json_object_field_text", &[JSON, TEXT], Type::Text, |_, a| raw_text(a, |raw| raw.member(text(a, 1)))),
    of("json_object_field_text", &[JSONB, TEXT], Type::Text, |_, a| tree_text(a, |json| json.member(text(a, 1)))),
    of("json_array_element_text", &[JSON, INT4], Type::Text, |_, a| raw_text(a, |raw| raw.element(int(a, 1)))),
    of("json_array_element_text", &[JSONB, INT4], Type::Text, |_, a| tree_text(a, |json| json.element(int(a, 1)))),
    of("json_path", &[JSON, TEXTS], Type::Json, |_, a| with_path(a, |path| raw(a, |raw| raw.path(path)))),
    of("json_path", &[JSONB, TEXTS], Type::Jsonb, |_, a| with_path(a, |path| tree(a, |json| json.path(path)))),
    of("json_path_text", &[JSON, TEXTS], Type::Text, |_, a| with_path(a, |path| raw_text(a, |raw| raw.path(path)))),
    of("json_path_text", &[JSONB, TEXTS], Type::Text, |_, a| with_path(a, |path| tree_text(a, |json| json.path(path)))),
    of("json_extract_path", &[JSON], Type::Json, |_, a| raw(a, |raw| raw.path(&rest(a)))).variadic(),
    of("jsonb_extract_path", &[JSONB], Type::Jsonb, |_, a| tree(a, |json| json.path(&rest(a)))).variadic(),
    of("json_extract_path_text", &[JSON], Type::Text, |_, a| raw_text(a, |raw| raw.path(&rest(a)))).variadic(),
    of("jsonb_extract_path_text", &[JSONB], Type::Text, |_, a| tree_text(a, |json| json.path(&rest(a)))).variadic(),
    of("jsonb_contains", &[JSONB, JSONB], Type::Bool, |_, a| {
        Ok(both(a).map_or(Datum::Null, |(one, two)| Datum::Bool(one.contains(two))))
    }),
    of("jsonb_contained", &[JSONB, JSONB], Type::Bool, |_, a| {
        Ok(both(a).map_or(Datum::Null, |(one, two)| Datum::Bool(two.contains(one))))
    }),
    of("jsonb_exists", &[JSONB, TEXT], Type::Bool, |_, a| Ok(Datum::Bool(json(a, 0).has(text(a, 1))))),
    of("jsonb_exists_any", &[JSONB, TEXTS], Type::Bool, |_, a| {
        Ok(Datum::Bool(elements(a, 1).iter().filter_map(Datum::as_text).any(|key| json(a, 0).has(key))))
    }),
    of("jsonb_exists_all", &[JSONB, TEXTS], Type::Bool, |_, a| {
        Ok(Datum::Bool(elements(a, 1).iter().filter_map(Datum::as_text).all(|key| json(a, 0).has(key))))
    }),
    of("jsonb_concat", &[JSONB, JSONB], Type::Jsonb, |_, a| grown(concat(json(a, 0), json(a, 1)))),
    of("jsonb_delete", &[JSONB, TEXT], Type::Jsonb, |_, a| delete(json(a, 0), &[text(a, 1)]).map(value)),
    of("jsonb_delete", &[JSONB, INT4], Type::Jsonb, |_, a| delete_element(json(a, 0), int(a, 1)).map(value)),
    of("jsonb_delete", &[JSONB, TEXTS], Type::Jsonb, |_, a| {
        let keys: Vec<&str> = elements(a, 1).iter().filter_map(Datum::as_text).collect();
        delete(json(a, 0), &keys).map(value)
    }),
    of("jsonb_delete_path", &[JSONB, TEXTS], Type::Jsonb, |_, a| {
        let path = path_of(elements(a, 1))?;
        change(json(a, 0), &path, 1, &Change::Delete).map(value)
    }),
    of("jsonb_set", &[JSONB, TEXTS, JSONB], Type::Jsonb, |_, a| set(a, true)),
    of("jsonb_set", &[JSONB, TEXTS, JSONB, BOOL], Type::Jsonb, |_, a| set(a, a[3].truth() == Some(true))),
    of("jsonb_insert", &[JSONB, TEXTS, JSONB], Type::Jsonb, |_, a| insert(a, false)),
    of("jsonb_insert", &[JSONB, TEXTS, JSONB, BOOL], Type::Jsonb, |_, a| insert(a, a[3].truth() == Some(true))),
    of("json_typeof", &[JSON], Type::Text, |_, a| {
        let source = text(a, 0);
        Ok(Datum::from(match Raw::parse(source, "json")?.kind {
            RawKind::Null => "null",
            RawKind::Bool(_) => "boolean",
            RawKind::Number => "number",
            RawKind::Text(_) => "string",
            RawKind::Array(_) => "array",
            RawKind::Object(_) => "object",
        }))
    }),
    of("jsonb_typeof", &[JSONB], Type::Text, |_, a| Ok(Datum::from(json(a, 0).type_name()))),
    of("json_array_length", &[JSON], Type::Int4, |_, a| match Raw::parse(text(a, 0), "json")?.kind {
        RawKind::Array(list) => Ok(count(list.len())),
        RawKind::Object(_) => Err(wrong("cannot get array length of a non-array")),
        _ => Err(wrong("cannot get array length of a scalar")),
    }),
    of("jsonb_array_length", &[JSONB], Type::Int4, |_, a| match json(a, 0) {
        Json::Array(list) => Ok(count(list.len())),
        Json::Object(_) => Err(wrong("cannot get array length of a non-array")),
        _ => Err(wrong("cannot get array length of a scalar")),
    }),
    of("jsonb_pretty", &[JSONB], Type::Text, |_, a| json(a, 0).pretty().map(Datum::Text)),
    of("jsonb_strip_nulls", &[JSONB], Type::Jsonb, |_, a| Ok(value(stripped(json(a, 0))))),
    of("json_strip_nulls", &[JSON], Type::Json, |_, a| {
        let source = text(a, 0);
        let mut found = String::new();
        strip_raw(&Raw::parse(source, "json")?, source, &mut found);
        Ok(Datum::Text(found))
    }),
    of("json_object", &[TEXTS], Type::Json, |_, a| pairs(&a[0]).map(|list| Datum::Text(object_text(&list)))),
    of("json_object", &[TEXTS, TEXTS], Type::Json, |_, a| {
        zipped(&a[0], &a[1]).map(|list| Datum::Text(object_text(&list)))
    }),
    of("jsonb_object", &[TEXTS], Type::Jsonb, |_, a| pairs(&a[0]).map(|list| value(object_tree(list)))),
    of("jsonb_object", &[TEXTS, TEXTS], Type::Jsonb, |_, a| zipped(&a[0], &a[1]).map(|list| value(object_tree(list)))),
    // The binder gives their arguments as JSON already.
    of("json_build_array", &[], Type::Json, |_, a| grown_text(format!("[{}]", texts(a).join(", ")))).lax().variadic(),
    of("jsonb_build_array", &[], Type::Jsonb, |_, a| built(&format!("[{}]", texts(a).join(", ")))).lax().variadic(),
    of("json_build_object", &[], Type::Json, |_, a| object_of(a, " : ").and_then(grown_text)).lax().variadic(),
    of("jsonb_build_object", &[], Type::Jsonb, |_, a| built(&object_of(a, ": ")?)).lax().variadic(),
];

/// Functions that a table of the members of objects is made with. They are of this database alone.
pub const OF_RECORDS: &[Function] = &[
    of("lodestone_json_checked", &[JSON, TEXT, INT4], Type::Json, |_, a| {
        checked(&Raw::parse(text(a, 0), "json")?.kind, text(a, 1), int(a, 2)).map(|()| a[0].clone())
    }),
    of("lodestone_json_checked", &[JSONB, TEXT, INT4], Type::Jsonb, |_, a| {
        let source = json(a, 0).to_string();
        checked(&Raw::parse(&source, "json")?.kind, text(a, 1), int(a, 2)).map(|()| a[0].clone())
    }),
    of("lodestone_json_list", &[JSON, TEXT], Type::Text, |_, a| list(text(a, 0), text(a, 1))),
    of("lodestone_json_list", &[JSONB, TEXT], Type::Text, |_, a| list(&json(a, 0).to_string(), text(a, 1))),
];

/// Refuses a value of another kind than the function `name` reads: an object (0), a list (1), an object in a list (2).
fn checked(kind: &RawKind, name: &str, wanted: i64) -> Result<()> {
    let is_tree = name.starts_with("jsonb");
    let name = if wanted == 0 { "populate_composite" } else { name };
    let message = match (wanted, kind) {
        (0 | 2, RawKind::Object(_)) | (1, RawKind::Array(_)) => return Ok(()),
        (2, _) => format!("argument of {name} must be an array of objects"),
        (1, _) if is_tree => format!("cannot call {name} on a non-array"),
        (_, RawKind::Object(_)) => format!("cannot call {name} on an object"),
        (_, RawKind::Array(_)) => format!("cannot call {name} on an array"),
        _ => format!("cannot call {name} on a scalar"),
    };
    Err(wrong(message))
}

/// A list that is a member, as an array is written. A text stays as it is.
fn list(source: &str, key: &str) -> Result<Datum> {
    let parsed = Raw::parse(source, "json")?;
    let Some(member) = parsed.member(key) else { return Ok(Datum::Null) };
    match &member.kind {
        RawKind::Null => Ok(Datum::Null),
        RawKind::Text(text) => Ok(Datum::from(text.as_str())),
        RawKind::Array(_) => {
            let mut found = String::new();
            put_element(member, source, &mut found);
            Ok(Datum::Text(found))
        }
        _ => Err(Error::new(SqlState::INVALID_TEXT_REPRESENTATION, "expected JSON array")
            .hint(format!("See the value of key \"{key}\"."))),
    }
}

fn put_element(part: &Raw, source: &str, found: &mut String) {
    match (&part.kind, part.as_text(source)) {
        (RawKind::Array(list), _) => {
            found.push('{');
            for (number, element) in list.iter().enumerate() {
                found.push_str(if number > 0 { "," } else { "" });
                put_element(element, source, found);
            }
            found.push('}');
        }
        (RawKind::Null, _) | (_, None) => found.push_str("NULL"),
        (_, Some(text)) => {
            found.push('"');
            for letter in text.chars() {
                if matches!(letter, '"' | '\\') {
                    found.push('\\');
                }
                found.push(letter);
            }
            found.push('"');
        }
    }
}

fn wrong(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

fn value(json: Json) -> Datum {
    Datum::Json(Arc::new(json))
}

/// A value that may be deeper than those that it was made of.
fn grown(json: Json) -> Result<Datum> {
    json.checked().map(value)
}

/// A text of JSON that may be deeper than those that it was made of.
fn grown_text(text: String) -> Result<Datum> {
    Raw::parse(&text, "json")?;
    Ok(Datum::Text(text))
}

/// The argument with this number; `null` if it is none.
fn json(arguments: &[Datum], number: usize) -> &Json {
    if let Some(Datum::Json(json)) = arguments.get(number) { json } else { &Json::Null }
}

fn both(arguments: &[Datum]) -> Option<(&Json, &Json)> {
    if let [Datum::Json(one), Datum::Json(two), ..] = arguments { Some((one, two)) } else { None }
}

/// A part of a `json`, as it is written.
fn raw(arguments: &[Datum], find: impl for<'r> FnOnce(&'r Raw) -> Option<&'r Raw>) -> Result<Datum> {
    let source = text(arguments, 0);
    let parsed = Raw::parse(source, "json")?;
    Ok(find(&parsed).map_or(Datum::Null, |part| Datum::from(&source[part.start..part.end])))
}

fn raw_text(arguments: &[Datum], find: impl for<'r> FnOnce(&'r Raw) -> Option<&'r Raw>) -> Result<Datum> {
    let source = text(arguments, 0);
    let parsed = Raw::parse(source, "json")?;
    let found = find(&parsed).and_then(|part| part.as_text(source));
    Ok(found.map_or(Datum::Null, Datum::Text))
}

fn tree(arguments: &[Datum], find: impl for<'j> FnOnce(&'j Json) -> Option<&'j Json>) -> Result<Datum> {
    Ok(find(json(arguments, 0)).map_or(Datum::Null, |part| value(part.clone())))
}

fn tree_text(arguments: &[Datum], find: impl for<'j> FnOnce(&'j Json) -> Option<&'j Json>) -> Result<Datum> {
    Ok(find(json(arguments, 0)).and_then(Json::as_text).map_or(Datum::Null, Datum::Text))
}

/// The steps of a path; a null in it leads nowhere.
fn with_path(arguments: &[Datum], find: impl FnOnce(&[&str]) -> Result<Datum>) -> Result<Datum> {
    let steps = elements(arguments, 1);
    if steps.iter().any(Datum::is_null) {
        return Ok(Datum::Null);
    }
    find(&steps.iter().filter_map(Datum::as_text).collect::<Vec<_>>())
}

fn rest(arguments: &[Datum]) -> Vec<&str> {
    arguments[1..].iter().filter_map(Datum::as_text).collect()
}

fn texts(arguments: &[Datum]) -> Vec<&str> {
    arguments.iter().map(|datum| datum.as_text().unwrap_or("null")).collect()
}

fn built(text: &str) -> Result<Datum> {
    Json::parse(text, "jsonb").map(value)
}

fn object_of(arguments: &[Datum], colon: &str) -> Result<String> {
    if !arguments.len().is_multiple_of(2) {
        let message = "argument list must have even number of elements";
        return Err(
            wrong(message).hint("The arguments of json_build_object() must consist of alternating keys and values.")
        );
    }
    let mut members = Vec::new();
    for (number, pair) in arguments.chunks(2).enumerate() {
        let key = pair[0].as_text().filter(|key| *key != "null").ok_or_else(|| {
            wrong(format!("argument {} cannot be null", number * 2 + 1)).hint("Object keys should be text.")
        })?;
        if key.starts_with(['{', '[']) {
            return Err(wrong("key value must be scalar, not array, composite, or json"));
        }
        let mut name = String::new();
        if key.starts_with('"') {
            name.push_str(key)
        } else {
            quote(key, &mut name)
        }
        members.push(format!("{name}{colon}{}", pair[1].as_text().unwrap_or("null")));
    }
    Ok(format!("{{{}}}", members.join(", ")))
}

fn concat(one: &Json, two: &Json) -> Json {
    match (one, two) {
        (Json::Object(one), Json::Object(two)) => Json::object(one.iter().chain(two).cloned().collect()),
        (Json::Array(one), Json::Array(two)) => Json::Array(one.iter().chain(two).cloned().collect()),
        (Json::Array(list), other) => Json::Array(list.iter().chain([other]).cloned().collect()),
        (other, Json::Array(list)) => Json::Array([other].into_iter().chain(list).cloned().collect()),
        (Json::Object(_), _) | (_, Json::Object(_)) => Json::Array(vec![one.clone(), two.clone()]),
        _ => Json::Array(vec![one.clone(), two.clone()]),
    }
}

fn delete(json: &Json, keys: &[&str]) -> Result<Json> {
    Ok(match json {
        Json::Object(members) => {
            Json::Object(members.iter().filter(|(key, _)| !keys.contains(&key.as_str())).cloned().collect())
        }
        Json::Array(list) => {
            let is_kept = |element: &&Json| !matches!(element, Json::Text(text) if keys.contains(&text.as_str()));
            Json::Array(list.iter().filter(is_kept).cloned().collect())
        }
        _ => return Err(wrong("cannot delete from scalar")),
    })
}

fn delete_element(json: &Json, number: i64) -> Result<Json> {
    match json {
        Json::Array(list) => {
            let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
            let place = if number < 0 { number + length } else { number };
            let is_kept = |(at, _): &(usize, &Json)| i64::try_from(*at) != Ok(place);
            Ok(Json::Array(list.iter().enumerate().filter(is_kept).map(|(_, element)| element.clone()).collect()))
        }
        Json::Object(_) => Err(wrong("cannot delete from object using integer index")),
        _ => Err(wrong("cannot delete from scalar")),
    }
}

fn path_of(steps: &[Datum]) -> Result<Vec<&str>> {
    let step = |(number, step): (usize, &'_ Datum)| match step {
        Datum::Text(_) => Ok(number),
        _ => Err(Error::new(
            SqlState::NULL_VALUE_NOT_ALLOWED,
            format!("path element at position {} is null", number + 1),
        )),
    };
    steps.iter().enumerate().try_for_each(|found| step(found).map(drop))?;
    Ok(steps.iter().filter_map(Datum::as_text).collect())
}

/// A change at the end of a path.
enum Change<'j> {
    Delete,
    /// With a new member or element if there is none yet.
    Set {
        new: &'j Json,
        creates: bool,
    },
    /// Before or after the element.
    Insert {
        new: &'j Json,
        is_after: bool,
    },
}

fn set(arguments: &[Datum], creates: bool) -> Result<Datum> {
    let path = path_of(elements(arguments, 1))?;
    grown(change(json(arguments, 0), &path, 1, &Change::Set { new: json(arguments, 2), creates })?)
}

fn insert(arguments: &[Datum], is_after: bool) -> Result<Datum> {
    let path = path_of(elements(arguments, 1))?;
    grown(change(json(arguments, 0), &path, 1, &Change::Insert { new: json(arguments, 2), is_after })?)
}

fn change(json: &Json, path: &[&str], level: usize, how: &Change<'_>) -> Result<Json> {
    if level == 1 && !matches!(json, Json::Object(_) | Json::Array(_)) {
        return Err(wrong(if matches!(how, Change::Delete) {
            "cannot delete path in scalar"
        } else {
            "cannot set path in scalar"
        }));
    }
    let Some((step, rest)) = path.split_first() else { return Ok(json.clone()) };
    match json {
        Json::Object(members) => change_member(members, step, rest, level, how),
        Json::Array(list) => change_element(list, step, rest, level, how),
        other => Ok(other.clone()),
    }
}

fn change_member(
    members: &[(String, Json)],
    step: &str,
    rest: &[&str],
    level: usize,
    how: &Change<'_>,
) -> Result<Json> {
    let mut members = members.to_vec();
    match (members.iter().position(|(key, _)| key == step), rest.is_empty(), how) {
        (Some(place), false, _) => members[place].1 = change(&members[place].1, rest, level + 1, how)?,
        (Some(place), true, Change::Delete) => drop(members.remove(place)),
        (Some(place), true, Change::Set { new, .. }) => members[place].1 = (*new).clone(),
        (Some(_), true, Change::Insert { .. }) => {
            return Err(
                wrong("cannot replace existing key").hint("Try using the function jsonb_set to replace key value.")
            );
        }
        (None, true, Change::Set { new, creates: true } | Change::Insert { new, .. }) => {
            members.push((step.to_owned(), (*new).clone()));
        }
        (None, _, _) => {}
    }
    Ok(Json::object(members))
}

fn change_element(list: &[Json], step: &str, rest: &[&str], level: usize, how: &Change<'_>) -> Result<Json> {
    let error = || {
        let message = format!("path element at position {level} is not an integer: \"{step}\"");
        Error::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
    };
    let number: i64 = step.trim().parse().map_err(|_| error())?;
    let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
    let place = if number < 0 { number + length } else { number };
    let mut list = list.to_vec();
    let at = usize::try_from(place).ok().filter(|at| *at < list.len());
    match (at, rest.is_empty(), how) {
        (Some(at), false, _) => list[at] = change(&list[at], rest, level + 1, how)?,
        (Some(at), true, Change::Delete) => drop(list.remove(at)),
        (Some(at), true, Change::Set { new, .. }) => list[at] = (*new).clone(),
        (Some(at), true, Change::Insert { new, is_after }) => list.insert(at + usize::from(*is_after), (*new).clone()),
        (None, true, Change::Set { new, creates: true } | Change::Insert { new, .. }) => {
            if place < 0 {
                list.insert(0, (*new).clone())
            } else {
                list.push((*new).clone())
            }
        }
        (None, _, _) => {}
    }
    Ok(Json::Array(list))
}

fn stripped(json: &Json) -> Json {
    match json {
        Json::Object(members) => {
            let kept = members.iter().filter(|(_, value)| *value != Json::Null);
            Json::Object(kept.map(|(key, value)| (key.clone(), stripped(value))).collect())
        }
        Json::Array(list) => Json::Array(list.iter().map(stripped).collect()),
        other => other.clone(),
    }
}

fn strip_raw(raw: &Raw, source: &str, found: &mut String) {
    match &raw.kind {
        RawKind::Object(members) => {
            found.push('{');
            let kept = members.iter().filter(|(_, value)| !matches!(value.kind, RawKind::Null));
            for (number, (key, value)) in kept.enumerate() {
                if number > 0 {
                    found.push(',');
                }
                quote(key, found);
                found.push(':');
                strip_raw(value, source, found);
            }
            found.push('}');
        }
        RawKind::Array(list) => {
            found.push('[');
            for (number, value) in list.iter().enumerate() {
                if number > 0 {
                    found.push(',');
                }
                strip_raw(value, source, found);
            }
            found.push(']');
        }
        _ => found.push_str(&source[raw.start..raw.end]),
    }
}

type Pairs = Vec<(String, Option<String>)>;

fn pair(key: &Datum, value: &Datum) -> Result<(String, Option<String>)> {
    let error = || Error::new(SqlState::NULL_VALUE_NOT_ALLOWED, "null value not allowed for object key");
    Ok((key.as_text().ok_or_else(error)?.to_owned(), value.as_text().map(str::to_owned)))
}

fn wrong_subscripts(message: &'static str) -> Error {
    Error::new(SqlState::ARRAY_SUBSCRIPT_ERROR, message)
}

/// The members of an object in one array: names and values by turns, or in two columns.
fn pairs(array: &Datum) -> Result<Pairs> {
    match array::dimensions(array)[..] {
        [] | [_] => {}
        [_, columns] if columns.length == 2 => {}
        [_, _] => return Err(wrong_subscripts("array must have two columns")),
        _ => return Err(wrong_subscripts("wrong number of array subscripts")),
    }
    let list = array::values(array);
    if !list.len().is_multiple_of(2) {
        return Err(wrong_subscripts("array must have even number of elements"));
    }
    list.chunks(2).map(|both| pair(&both[0], &both[1])).collect()
}

fn zipped(keys: &Datum, values: &Datum) -> Result<Pairs> {
    let (names, others) = (array::dimensions(keys).len(), array::dimensions(values).len());
    if names > 1 || names != others {
        return Err(wrong_subscripts("wrong number of array subscripts"));
    }
    let (keys, values) = (array::values(keys), array::values(values));
    if keys.len() != values.len() {
        return Err(wrong_subscripts("mismatched array dimensions"));
    }
    keys.iter().zip(values).map(|(key, value)| pair(key, value)).collect()
}

fn object_text(pairs: &Pairs) -> String {
    let member = |(key, value): &(String, Option<String>)| {
        let mut text = String::new();
        quote(key, &mut text);
        text.push_str(" : ");
        match value {
            Some(value) => quote(value, &mut text),
            None => text.push_str("null"),
        }
        text
    };
    format!("{{{}}}", pairs.iter().map(member).collect::<Vec<_>>().join(", "))
}

fn object_tree(pairs: Pairs) -> Json {
    Json::object(pairs.into_iter().map(|(key, value)| (key, value.map_or(Json::Null, Json::Text))).collect())
}
