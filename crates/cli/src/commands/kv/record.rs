//! A record as a line of JSON: text as text, other bytes as hexadecimal digits.

use std::borrow::Cow;

use serde::Serialize;

use crate::bytes::to_hex;

/// One record. Exactly one field of each pair is present, so that reading it back returns the same bytes. A key
/// that has no record has no value.
#[derive(Serialize)]
pub struct Record<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_hex: Option<String>,
}

impl<'a> Record<'a> {
    /// The record of `key` and `value`.
    pub fn new(key: &'a [u8], value: &'a [u8]) -> Self {
        let text = |bytes: &'a [u8]| std::str::from_utf8(bytes).ok();
        let hex = |bytes: &[u8]| std::str::from_utf8(bytes).is_err().then(|| to_hex(bytes));
        Self { key: text(key), key_hex: hex(key), value: text(value), value_hex: hex(value) }
    }

    /// The answer for a key that has no record: no value.
    pub fn missing(key: &'a [u8]) -> Self {
        Self { value: None, ..Self::new(key, b"") }
    }
}

/// A key or value on a line for a person or a script, in hexadecimal digits if the user asked for them.
pub fn shown(bytes: &[u8], hex: bool) -> Cow<'_, str> {
    if hex { to_hex(bytes).into() } else { crate::bytes::display(bytes).into() }
}
