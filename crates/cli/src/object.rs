//! JSON objects whose fields keep their order and their text: no number is parsed and printed again.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// An object, field by field.
pub struct Object(pub Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Object(fields))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

impl Object {
    /// The first field called `name`.
    pub fn field(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_ref())
    }
}

impl Object {
    /// The first name that two fields have. Reading by name would lose one of them.
    pub fn repeated(&self) -> Option<&str> {
        let mut seen = std::collections::HashSet::with_capacity(self.0.len());
        self.0.iter().map(|(name, _)| name.as_str()).find(|name| !seen.insert(*name))
    }
}

/// A string's text, or the source text of any other value.
pub fn plain_text(value: &RawValue) -> String {
    serde_json::from_str(value.get()).unwrap_or_else(|_| value.get().to_owned())
}

/// Writes objects piece by piece.
pub struct ObjectText(Vec<u8>);

impl Default for ObjectText {
    fn default() -> Self {
        Self::new()
    }
}

impl ObjectText {
    /// An object without fields.
    pub fn new() -> Self {
        Self(vec![b'{'])
    }

    /// Adds a field with the JSON text `value`, which stays on one line.
    pub fn push_raw(&mut self, name: &str, value: &str) {
        if self.0.len() > 1 {
            self.0.push(b',');
        }
        self.0.extend_from_slice(quoted(name).as_bytes());
        self.0.push(b':');
        // Line ends between the parts of a value are blanks in JSON, but end the row in JSON Lines.
        self.0.extend(value.bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
    }

    /// Adds a field with a string.
    pub fn push_text(&mut self, name: &str, value: &str) {
        self.push_raw(name, &quoted(value));
    }

    /// The whole object.
    pub fn finish(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_keep_order_and_text() {
        let text = r#"{"b":1.10,"a":"x\ny","b":null}"#;
        let object: Object = serde_json::from_str(text).expect("object");
        let mut copy = ObjectText::new();
        for (name, value) in &object.0 {
            copy.push_raw(name, value.get());
        }
        assert_eq!(copy.finish(), text.as_bytes());
        assert_eq!(object.field("b").map(RawValue::get), Some("1.10"));
        assert_eq!(object.field("a").map(plain_text).as_deref(), Some("x\ny"));
        assert_eq!(ObjectText::new().finish(), b"{}");
    }
}
