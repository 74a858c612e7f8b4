//! Rows as JSON objects, and keys as words of the command line.

use anyhow::{Context, Result, bail};
use lodestone_engine::{Column, Row, Schema, Type, Value};
use serde_json::value::RawValue;

use crate::bytes::{from_hex, to_hex};
use crate::object::{Object, ObjectText};

/// The row as a JSON object on one line.
pub fn to_json(schema: &Schema, row: &Row) -> String {
    object(schema.columns().iter(), row)
}

/// The key as a JSON object on one line.
pub fn key_to_json(schema: &Schema, key: &Row) -> String {
    object(schema.key_columns(), key)
}

fn object<'c>(columns: impl Iterator<Item = &'c Column>, values: &Row) -> String {
    let mut object = ObjectText::new();
    for (column, value) in columns.zip(values.iter()) {
        match value {
            Value::Bool(_) | Value::I16(_) | Value::I32(_) | Value::I64(_) | Value::U64(_) => {
                object.push_raw(&column.name, &value.to_string());
            }
            // As text: a reader of JSON may round a number.
            Value::Decimal { .. } | Value::Date(_) | Value::Timestamp(_) | Value::Uuid(_) => {
                object.push_text(&column.name, &value.to_string());
            }
            Value::F64(value) => match serde_json::Number::from_f64(*value) {
                Some(number) => object.push_raw(&column.name, &number.to_string()),
                None => object.push_text(&column.name, &value.to_string()),
            },
            Value::Text(value) => object.push_text(&column.name, value),
            Value::Bytes(value) => object.push_text(&column.name, &to_hex(value)),
            _ => object.push_raw(&column.name, "null"),
        }
    }
    String::from_utf8_lossy(&object.finish()).into_owned()
}

/// The row in the JSON object `text`.
///
/// # Errors
/// When a field is no column, a column is missing, or a value is of another type. The message names it.
pub fn from_json(schema: &Schema, text: &str) -> Result<Row> {
    let object: Object = serde_json::from_str(text).context("a row is a JSON object, such as {\"id\":7}")?;
    if let Some(name) = object.repeated() {
        bail!("the field `{name}` is there twice; leave one out");
    }
    if let Some((name, _)) = object.0.iter().find(|(name, _)| schema.number_of(name).is_none()) {
        bail!("the table has no column `{name}`; its columns are those of {schema}");
    }
    let value = |column: &Column| match object.field(&column.name) {
        Some(field) => value_from_json(column, field),
        None if column.nullable => Ok(Value::Null),
        None => bail!("the column `{column}` is missing; only a column with `null` may be left out"),
    };
    schema.columns().iter().map(value).collect()
}

fn value_from_json(column: &Column, field: &RawValue) -> Result<Value> {
    let text = field.get();
    let found = match column.kind {
        _ if text == "null" => column.nullable.then_some(Value::Null),
        Type::Bool => serde_json::from_str(text).ok().map(Value::Bool),
        Type::I16 => serde_json::from_str(text).ok().map(Value::I16),
        Type::I32 => serde_json::from_str(text).ok().map(Value::I32),
        Type::I64 => serde_json::from_str(text).ok().map(Value::I64),
        Type::U64 => serde_json::from_str(text).ok().map(Value::U64),
        Type::F64 => serde_json::from_str(text).ok().or_else(|| special(&string(text)?)).map(Value::F64),
        // A decimal may be a number as well: its digits are read as they are.
        Type::Decimal(_) => Value::parse(column.kind, &string(text).unwrap_or_else(|| text.to_owned())),
        Type::Bytes => string(text).and_then(|text| from_hex(&text).ok()).map(Value::Bytes),
        kind => string(text).and_then(|text| Value::parse(kind, &text)),
    };
    found.with_context(|| format!("the column `{column}` cannot hold {text}; {}", rule(column)))
}

fn string(text: &str) -> Option<String> {
    serde_json::from_str(text).ok()
}

/// A number that JSON cannot write.
fn special(text: &str) -> Option<f64> {
    matches!(text, "NaN" | "inf" | "-inf").then(|| text.parse().ok()).flatten()
}

fn rule(column: &Column) -> &'static str {
    match column.kind {
        Type::Bool => "write true or false",
        Type::I16 => "write a whole number of 16 bits",
        Type::I32 => "write a whole number of 32 bits",
        Type::I64 => "write a whole number of 64 bits",
        Type::U64 => "write a whole number from 0 to 2^64 - 1",
        Type::F64 => "write a number",
        Type::Decimal(_) => "write a number with at most as many digits after the point as its type says",
        Type::Date => "write a day such as \"2024-02-29\"",
        Type::Timestamp => "write a moment such as \"2024-02-29T12:30:00Z\"",
        Type::Uuid => "write 32 hexadecimal digits, with the hyphens of a UUID or without",
        Type::Text => "write text",
        _ => "write hexadecimal digits, two for each byte",
    }
}

/// The key, or its first columns, from words of the command line: one for each column. The word `null` is null where a
/// column may be that.
///
/// # Errors
/// When a word is no value of its column, or there are too many or too few of them.
pub fn key_from_words(schema: &Schema, words: &[String], is_prefix: bool) -> Result<Row> {
    let columns: Vec<&Column> = schema.key_columns().collect();
    if words.len() > columns.len() || words.len() < columns.len() && !is_prefix {
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        let (found, names) = (words.len(), names.join(", "));
        bail!("the key of `{}` is ({names}), and there are {found} values; give one for each", schema.name());
    }
    columns.into_iter().zip(words).map(|(column, word)| value_from_word(column, word)).collect()
}

/// Values of the first of these columns.
///
/// # Errors
/// When a word is no value of its column, or there are too many of them.
pub fn columns_from_words(schema: &Schema, columns: &[&str], words: &[String]) -> Result<Row> {
    if words.len() > columns.len() {
        let (found, names) = (words.len(), columns.join(", "));
        bail!("the index has the columns ({names}), and there are {found} values; give at most one for each");
    }
    let column = |name: &&str| schema.number_of(name).map(|number| &schema.columns()[number]);
    let columns = columns.iter().filter_map(column);
    columns.zip(words).map(|(column, word)| value_from_word(column, word)).collect()
}

/// The value that `word` means in `column`.
///
/// # Errors
/// When it is of another type. The message says how values of this one are written.
pub fn value_from_word(column: &Column, word: &str) -> Result<Value> {
    let found = match column.kind {
        _ if word == "null" && column.nullable => Some(Value::Null),
        kind => Value::parse(kind, word),
    };
    found.with_context(|| format!("the column `{column}` cannot hold `{word}`; {}", rule(column)))
}

#[cfg(test)]
mod tests {
    use lodestone_engine::row;

    use super::*;

    fn schema() -> Schema {
        let text = "t (u u64, i i64, f f64 null, b bool, s text, x bytes null) key (s, u)";
        text.parse().expect("a schema")
    }

    #[test]
    fn rows_come_back_from_their_json() {
        let rows = [
            row![u64::MAX, i64::MIN, 0.1, true, "a\n\"b\"", vec![0, 255]],
            row![0_u64, -1_i64, None::<f64>, false, "", None::<Vec<u8>>],
            row![1_u64, 1_i64, f64::INFINITY, false, "NaN", Vec::new()],
            row![1_u64, 1_i64, 1e300, false, "null", vec![1]],
        ];
        for row in rows {
            let text = to_json(&schema(), &row);
            assert_eq!(from_json(&schema(), &text).expect(&text), row, "{text}");
        }
        let others: Schema =
            "t (s i16, i i32, d date, m timestamp null, u uuid, p decimal(2)) key (s)".parse().expect("a schema");
        let row: Row = [Value::I16(-7), Value::I32(8)]
            .into_iter()
            .chain(
                others.columns()[2..]
                    .iter()
                    .zip(["2024-02-29", "2024-02-29T12:30:00.5Z", "67e55044-10b1-426f-9247-bb680e5fe0c8", "-0.05"])
                    .map(|(column, text)| Value::parse(column.kind, text).expect(text)),
            )
            .collect();
        let text = to_json(&others, &row);
        assert!(text.contains(r#""s":-7,"i":8,"d":"2024-02-29""#) && text.contains(r#""p":"-0.05""#), "{text}");
        assert_eq!(from_json(&others, &text).expect(&text), row, "{text}");
        let number = text.replace("\"-0.05\"", "-0.050");
        assert_eq!(from_json(&others, &number).expect(&number), row, "a decimal as a number");
        let nan = to_json(&schema(), &row![1_u64, 1_i64, f64::NAN, false, "", None::<Vec<u8>>]);
        assert!(nan.contains("\"f\":\"NaN\"") && from_json(&schema(), &nan).is_ok(), "{nan}");
        let short = from_json(&schema(), r#"{"s":"a","b":true,"i":-5,"u":7}"#).expect("columns in any order");
        assert_eq!(short, row![7_u64, -5_i64, None::<f64>, true, "a", None::<Vec<u8>>]);
    }

    #[test]
    fn bad_rows_are_refused_by_name() {
        for (text, part) in [
            ("[]", "JSON object"),
            ("{", "JSON object"),
            (r#"{"s":"a","b":true,"i":-5}"#, "`u u64` is missing"),
            (r#"{"s":"a","b":true,"i":-5,"u":-7}"#, "`u u64` cannot hold -7"),
            (r#"{"s":"a","b":true,"i":-5,"u":1.5}"#, "`u u64` cannot hold 1.5"),
            (r#"{"s":"a","b":true,"i":null,"u":1}"#, "`i i64` cannot hold null"),
            (r#"{"s":"a","b":1,"i":1,"u":1}"#, "`b bool` cannot hold 1"),
            (r#"{"s":1,"b":true,"i":1,"u":1}"#, "`s text` cannot hold 1"),
            (r#"{"s":"a","b":true,"i":1,"u":1,"x":"0"}"#, "cannot hold \"0\""),
            (r#"{"s":"a","b":true,"i":1,"u":1,"f":"many"}"#, "cannot hold \"many\""),
            (r#"{"s":"a","b":true,"i":1,"u":1,"z":0}"#, "no column `z`"),
            (r#"{"s":"a","s":"b","b":true,"i":1,"u":1}"#, "`s` is there twice"),
        ] {
            let error = format!("{:#}", from_json(&schema(), text).expect_err(text));
            assert!(error.contains(part), "{text}: {error}");
        }
        let decimals: Schema = "t (d date, p decimal(2)) key (d)".parse().expect("a schema");
        for (text, part) in [
            (r#"{"d":"2023-02-29","p":1}"#, "a day such as"),
            (r#"{"d":20230228,"p":1}"#, "a day such as"),
            (r#"{"d":"2023-02-28","p":1.125}"#, "`p decimal(2)` cannot hold 1.125"),
            (r#"{"d":"2023-02-28","p":1e3}"#, "`p decimal(2)` cannot hold 1e3"),
        ] {
            let error = format!("{:#}", from_json(&decimals, text).expect_err(text));
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn words_are_keys_or_prefixes_of_keys() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let key = |found: &[&str], is_prefix| key_from_words(&schema(), &words(found), is_prefix);
        assert_eq!(key(&["a", "7"], false).expect("a key"), row!["a", 7_u64]);
        assert_eq!(key(&["a"], true).expect("a prefix"), row!["a"]);
        assert!(key(&["a"], false).is_err() && key(&["a", "7", "8"], true).is_err());
        let error = key(&["a", "b"], false).expect_err("no number").to_string();
        assert!(error.contains("`u u64` cannot hold `b`"), "{error}");
    }
}
