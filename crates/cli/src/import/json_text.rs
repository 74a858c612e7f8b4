//! JSON Lines as rows: one object per line.
//!
//! Fields keep the order and the exact text of the source: no number is parsed and printed again. A field `NAME_hex`
//! replaces `NAME` where the key or the single value is picked. `export` writes bytes that are no text in this way.

use std::io;

use crate::bytes::from_hex;
use crate::object::{Object, ObjectText, plain_text};

use super::lines::{Ahead, Lines, Position, too_long, without_end};
use super::rows::{Row, Rows, Selection};

/// JSON Lines as rows.
pub struct JsonRows {
    lines: Lines,
    key: String,
    values: Vec<String>,
}

impl JsonRows {
    /// Rows of `lines`. The key field is `key` unless the selection names one.
    pub fn new(lines: Lines, selection: Selection) -> Self {
        Self { lines, key: selection.key.unwrap_or_else(|| "key".to_owned()), values: selection.values }
    }

    fn pick(&self, line: &[u8]) -> Result<(Vec<u8>, Vec<u8>), String> {
        let object: Object = serde_json::from_slice(line).map_err(|error| explain(&error))?;
        if let Some(name) = object.repeated() {
            return Err(format!("the field `{name}` is there twice"));
        }
        let key = scalar(&object, &self.key)?;
        if key.is_empty() {
            return Err(format!("the key field `{}` is empty", self.key));
        }
        if let [only] = self.values.as_slice() {
            return Ok((key, scalar(&object, only)?));
        }
        let mut text = ObjectText::new();
        if self.values.is_empty() {
            let key_hex = hex_name(&self.key);
            for (name, value) in object.0.iter().filter(|(name, _)| *name != self.key && *name != key_hex) {
                text.push_raw(name, value.get());
            }
        }
        for name in &self.values {
            let value = object.field(name).ok_or_else(|| format!("there is no field `{name}`"))?;
            text.push_raw(name, value.get());
        }
        Ok((key, text.finish()))
    }
}

impl Rows for JsonRows {
    fn next_row(&mut self) -> io::Result<Option<Row>> {
        while let Some(ahead) = self.lines.peek(0)? {
            let content = match ahead {
                Ahead::Line(line) if line.trim_ascii().is_empty() => {
                    self.lines.consume(1);
                    continue;
                }
                Ahead::Line(line) => {
                    let line = without_end(line).to_vec();
                    self.pick(&line)
                }
                Ahead::TooLong(bytes) => Err(too_long(bytes)),
            };
            let line = self.lines.position().line;
            return Ok(Some(Row { line, raw: self.lines.consume(1), content }));
        }
        Ok(None)
    }

    fn position(&self) -> Position {
        self.lines.position()
    }
}

/// The fault of a line, without the line number that serde_json adds.
fn explain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or_default();
    format!("column {}: {text}", error.column())
}

fn hex_name(name: &str) -> String {
    format!("{name}_hex")
}

/// The bytes of a field: a string's text, the source text of anything else, or the bytes of its `_hex` twin.
fn scalar(object: &Object, name: &str) -> Result<Vec<u8>, String> {
    if let Some(value) = object.field(name) {
        return Ok(plain_text(value).into_bytes());
    }
    let Some(value) = object.field(&hex_name(name)) else { return Err(format!("there is no field `{name}`")) };
    let digits: String = serde_json::from_str(value.get()).map_err(|_| format!("`{name}_hex` is no string"))?;
    from_hex(&digits).map_err(|reason| format!("`{name}_hex`: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(line: &str, key: &str, values: &[&str]) -> Result<(String, String), String> {
        let lines = Lines::new(Box::new(io::Cursor::new(line.as_bytes().to_vec())), Position::START);
        let values = values.iter().map(|name| (*name).to_owned()).collect();
        let mut rows = JsonRows::new(lines, Selection { key: Some(key.into()), values });
        let row = rows.next_row().expect("read").expect("one row");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        row.content.map(|(key, value)| (text(key), text(value)))
    }

    #[test]
    fn values_keep_their_order_and_text() {
        let line = r#"{"z": 1.10, "id": 17, "big": 123456789012345678901234567890, "a": {"n": null}}"#;
        let (key, value) = pick(line, "id", &[]).expect("row");
        assert_eq!(key, "17");
        assert_eq!(value, r#"{"z":1.10,"big":123456789012345678901234567890,"a":{"n": null}}"#);
        assert_eq!(pick(line, "id", &["a"]).expect("row").1, r#"{"n": null}"#);
        assert_eq!(pick(line, "id", &["a", "z"]).expect("row").1, r#"{"a":{"n": null},"z":1.10}"#);
    }

    #[test]
    fn bytes_that_are_no_text_come_as_hexadecimal() {
        let row = pick(r#"{"key_hex":"6b31","value_hex":"7631"}"#, "key", &["value"]);
        assert_eq!(row, Ok(("k1".into(), "v1".into())));
    }

    #[test]
    fn a_bad_line_says_what_is_wrong() {
        assert!(pick("{\"id\": }", "id", &[]).expect_err("syntax").contains("column 8"));
        assert!(pick("[1,2]", "id", &[]).expect_err("array").contains("a JSON object"));
        assert!(pick("{\"ID\":1}", "id", &[]).expect_err("missing").contains("no field `id`"));
        assert!(pick("{\"id\":\"\"}", "id", &[]).expect_err("empty").contains("empty"));
        assert!(pick("{\"id\":1} x", "id", &[]).is_err());
        for line in [r#"{"id":1,"id":2}"#, r#"{"id":1,"a":2,"a":3}"#] {
            assert!(pick(line, "id", &[]).expect_err("twice").contains("twice"));
        }
    }
}
