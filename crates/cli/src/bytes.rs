//! Keys and values on the command line and on the screen: text as text, other bytes escaped.

use std::fs;
use std::io::{self, Read};

use anyhow::{Context, bail};
use lodestone_width::exact_u8;

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
    Ok(digits.chunks_exact(2).map(|pair| exact_u8(pair[0] * 16 + pair[1])).collect())
}

/// A key as the user typed it.
pub fn key(text: &str, hex: bool) -> anyhow::Result<Vec<u8>> {
    let key = if hex { from_hex(text).map_err(anyhow::Error::msg).context("reading the key")? } else { text.into() };
    if key.is_empty() {
        bail!("the key is empty; give at least one byte");
    }
    Ok(key)
}

/// A value as the user typed it: text, `@FILE`, `-` for standard input. A leading `@@` means one `@`.
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

/// Bytes for a person, on one line. No two different byte strings look alike.
///
/// Printable text is shown unchanged. A backslash begins every other form: `\\`, `\n`, `\t`, `\r` and `\0`. `\u{7f}` is
/// a character that does not show or that joins the one before it. `\xff` is a byte that is no text, and `\x20` a blank
/// at an end. `undisplay` reads it back.
pub fn display(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for found in chunk.valid().chars() {
            match found {
                '"' | '\'' => text.push(found),
                _ => text.extend(found.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    if text.starts_with(' ') {
        text.replace_range(..1, "\\x20");
    }
    if text.ends_with(' ') {
        text.replace_range(text.len() - 1.., "\\x20");
    }
    text
}

/// The bytes that [`display`] showed as `text`. `None` when it never produces that text.
#[cfg(test)]
fn undisplay(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(found) = rest.chars().next() {
        rest = &rest[found.len_utf8()..];
        if found != '\\' {
            bytes.extend_from_slice(found.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        let kind = rest.chars().next()?;
        rest = &rest[kind.len_utf8()..];
        match kind {
            'n' => bytes.push(b'\n'),
            't' => bytes.push(b'\t'),
            'r' => bytes.push(b'\r'),
            '0' => bytes.push(0),
            '\\' => bytes.push(b'\\'),
            'x' => {
                bytes.push(u8::from_str_radix(rest.get(..2)?, 16).ok()?);
                rest = &rest[2..];
            }
            'u' => {
                let (digits, after) = rest.strip_prefix('{')?.split_once('}')?;
                let character = char::from_u32(u32::from_str_radix(digits, 16).ok()?)?;
                bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                rest = after;
            }
            _ => return None,
        }
    }
    Some(bytes)
}

/// The smallest key greater than every key that starts with `prefix`. `None` when there is none.
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
    use proptest::prelude::*;

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
    fn printable_text_is_shown_as_it_is_and_the_rest_is_escaped() {
        for (bytes, shown) in [
            (&b"caf\xC3\xA9 \"no. 1\""[..], "caf\u{e9} \"no. 1\""),
            (b"a\tb\n", r"a\tb\n"),
            (b"\x1b[31m", r"\u{1b}[31m"),
            (b"\xFF", r"\xff"),
            (b"0xff", "0xff"),
            (br"\xff", r"\\xff"),
            (b" a ", r"\x20a\x20"),
            (b" ", r"\x20"),
            // An e with a separate accent, a mark that reverses the direction, a blank without width.
            ("e\u{301}".as_bytes(), r"e\u{301}"),
            ("\u{202e}abc".as_bytes(), r"\u{202e}abc"),
            ("a\u{200b}b".as_bytes(), r"a\u{200b}b"),
        ] {
            assert_eq!(display(bytes), shown);
            assert_eq!(undisplay(shown).as_deref(), Some(bytes));
        }
    }

    proptest! {
        /// No two keys are shown alike, and none breaks the line that it is shown on.
        #[test]
        fn what_is_shown_is_read_back(
            pieces in prop::collection::vec(
                prop_oneof![
                    prop::sample::select(vec!["\\", "x", "u{", "}", "ff", "0", "n", " ", "\t", "\n", "\u{301}", "\u{e9}", "0x"])
                        .prop_map(|text| text.as_bytes().to_vec()),
                    prop::collection::vec(any::<u8>(), 0..4),
                    any::<char>().prop_map(|c| c.to_string().into_bytes()),
                ],
                0..12,
            )
        ) {
            let bytes = pieces.concat();
            let shown = display(&bytes);
            prop_assert_eq!(undisplay(&shown), Some(bytes));
            prop_assert!(!shown.chars().any(char::is_control), "{}", shown);
            prop_assert!(shown.trim() == shown, "{}", shown);
        }
    }
}
