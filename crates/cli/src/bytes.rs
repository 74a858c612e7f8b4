//! Keys and values on the command line and on the screen: text where it is text, hexadecimal where it is not.

use std::fs;
use std::io::{self, Read};

use anyhow::{Context, bail};

/// Digits of `bytes` in base 16.
pub fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// The bytes that [`to_hex`] wrote; blanks and colons between bytes are allowed.
pub fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<u32> = text
        .chars()
        .filter(|c| !c.is_ascii_whitespace() && *c != ':')
        .map(|c| c.to_digit(16).ok_or_else(|| format!("`{c}` is no hexadecimal digit")))
        .collect::<Result<_, _>>()?;
    if !digits.len().is_multiple_of(2) {
        return Err(format!("`{text}` has an odd number of hexadecimal digits; write two for each byte"));
    }
    Ok(digits.chunks_exact(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect())
}

/// A key as it was typed.
pub fn key(text: &str, hex: bool) -> anyhow::Result<Vec<u8>> {
    let key = if hex { from_hex(text).map_err(anyhow::Error::msg).context("reading the key")? } else { text.into() };
    if key.is_empty() {
        bail!("the key is empty; give at least one byte");
    }
    Ok(key)
}

/// A value as it was typed: text, `@FILE`, `-` for standard input; a leading `@@` stands for one `@`.
pub fn value(text: &str, hex: bool) -> anyhow::Result<Vec<u8>> {
    if text == "-" {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).context("reading the value from standard input failed")?;
        return Ok(bytes);
    }
    if let Some(rest) = text.strip_prefix('@')
        && !rest.starts_with('@')
    {
        return fs::read(rest).with_context(|| {
            format!("{rest}: reading the value from the file failed; write @@ for a value that starts with @")
        });
    }
    let text = text.strip_prefix('@').unwrap_or(text);
    if hex { from_hex(text).map_err(anyhow::Error::msg).context("reading the value") } else { Ok(text.into()) }
}

/// Bytes for a person: the text itself where it is printable, else `0x` and hexadecimal digits.
pub fn display(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|c| c.is_control() && c != '\t') => text.to_owned(),
        _ => format!("0x{}", to_hex(bytes)),
    }
}

/// The smallest key greater than every key that starts with `prefix`; `None` when there is none.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return Some(end);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_round_trips() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&all)), Ok(all));
        assert_eq!(from_hex("DE:ad be:EF"), Ok(vec![0xDE, 0xAD, 0xBE, 0xEF]));
        assert!(from_hex("abc").is_err());
        assert!(from_hex("xy").is_err());
    }

    #[test]
    fn values_come_from_text_files_and_escapes() {
        assert_eq!(value("plain", false).expect("text"), b"plain");
        assert_eq!(value("@@home", false).expect("escape"), b"@home");
        let file = tempfile::NamedTempFile::new().expect("file");
        fs::write(file.path(), b"\x00\xFF").expect("write");
        assert_eq!(value(&format!("@{}", file.path().display()), false).expect("file"), b"\x00\xFF");
        let message = format!("{:#}", value("@/no/such/file", false).expect_err("missing"));
        assert!(message.contains("/no/such/file"), "{message}");
    }

    #[test]
    fn the_end_of_a_prefix_is_the_next_key_outside_it() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(b"a\xFF\xFF"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"\xFF"), None);
        assert_eq!(prefix_end(b""), None);
    }

    #[test]
    fn only_printable_text_is_shown_as_text() {
        assert_eq!(display(b"caf\xC3\xA9\tbar"), "caf\u{e9}\tbar");
        assert_eq!(display(b"\x1b[31m"), "0x1b5b33316d");
        assert_eq!(display(b"\xFF"), "0xff");
    }
}
