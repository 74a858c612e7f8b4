//! Lines of COPY, in the formats text and csv.
//!
//! A field is text, or null. In text `\` takes the special meaning of the next letter away, and `\N` is null. In csv a
//! field with special letters is in quotes, and a field that is empty without quotes is null.

use std::borrow::Cow;

use lodestone_sql_types::{Error, Result, SqlState};

use crate::parse::ast::CopyFormat;

/// A field; `None`: null.
pub type Field<'l> = Option<Cow<'l, str>>;

fn bad(message: impl Into<String>) -> Error {
    Error::new(SqlState::BAD_COPY_FILE_FORMAT, message.into())
}

/// Finds the end of a line, whose first bytes may come before the others.
#[derive(Debug, Default)]
pub struct Lines {
    /// Bytes that were looked at.
    seen: usize,
    is_quoted: bool,
}

impl Lines {
    /// The place of the line's end in `bytes`, which begin with the line. `None`: more bytes are needed.
    pub fn end(&mut self, bytes: &[u8], format: &CopyFormat) -> Option<usize> {
        let found = if format.is_csv { self.end_of_csv(bytes, format) } else { self.end_of_text(bytes) };
        if found.is_some() {
            *self = Self::default();
        }
        found
    }

    fn end_of_text(&mut self, bytes: &[u8]) -> Option<usize> {
        let found = bytes[self.seen..].iter().position(|found| *found == b'\n');
        let found = found.map(|place| place + self.seen);
        self.seen = bytes.len();
        found
    }

    fn end_of_csv(&mut self, bytes: &[u8], format: &CopyFormat) -> Option<usize> {
        // An escape before a quote that is the quote itself changes nothing: the state turns twice.
        let (quote, escape) = (ascii(format.quote), ascii(format.escape));
        let mut place = self.seen;
        while let Some(byte) = bytes.get(place) {
            match *byte {
                b'\n' if !self.is_quoted => return Some(place),
                found if self.is_quoted && found == escape && escape != quote => {
                    if place + 1 >= bytes.len() {
                        // The letter after it decides, and is not here yet.
                        self.seen = place;
                        return None;
                    }
                    place += usize::from(matches!(bytes[place + 1], next if next == quote || next == escape));
                }
                found if found == quote => self.is_quoted = !self.is_quoted,
                _ => {}
            }
            place += 1;
        }
        self.seen = place;
        None
    }
}

fn ascii(letter: char) -> u8 {
    u8::try_from(letter).unwrap_or(0)
}

/// Calls `take` with each field of a line.
///
/// # Errors
/// 22P04; those of `take`.
pub fn each_field<'l>(line: &'l str, format: &CopyFormat, mut take: impl FnMut(Field<'l>) -> Result<()>) -> Result<()> {
    if format.is_csv { each_csv(line, format, take) } else { each_text(line, format, &mut take) }
}

fn each_text<'l>(line: &'l str, format: &CopyFormat, take: &mut impl FnMut(Field<'l>) -> Result<()>) -> Result<()> {
    let delimiter = ascii(format.delimiter);
    let bytes = line.as_bytes();
    let (mut start, mut place, mut is_plain) = (0, 0, true);
    while let Some(byte) = bytes.get(place) {
        if *byte == b'\\' {
            is_plain = false;
            place += 1;
        } else if *byte == delimiter {
            take(text_field(&line[start..place], is_plain, format))?;
            (start, is_plain) = (place + 1, true);
        }
        place += 1;
    }
    take(text_field(&line[start..], is_plain, format))
}

fn text_field<'l>(raw: &'l str, is_plain: bool, format: &CopyFormat) -> Field<'l> {
    match () {
        () if raw == format.null => None,
        () if is_plain => Some(Cow::Borrowed(raw)),
        () => Some(Cow::Owned(unescape(raw))),
    }
}

fn unescape(raw: &str) -> String {
    let mut found = String::new();
    let mut letters = raw.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            found.push(letter);
            continue;
        }
        match letters.next() {
            Some('b') => found.push('\u{8}'),
            Some('f') => found.push('\u{c}'),
            Some('n') => found.push('\n'),
            Some('r') => found.push('\r'),
            Some('t') => found.push('\t'),
            Some('v') => found.push('\u{b}'),
            Some('x') => match code(&mut letters, 16, 2, None) {
                Some(letter) => found.push(letter),
                None => found.push('x'),
            },
            Some(first @ '0'..='7') => found.extend(code(&mut letters, 8, 3, first.to_digit(8))),
            Some(other) => found.push(other),
            None => found.push('\\'),
        }
    }
    found
}

/// A letter by its number, of at most so many digits, of which the first one may be known.
fn code(
    letters: &mut std::iter::Peekable<std::str::Chars<'_>>,
    radix: u32,
    digits: u32,
    first: Option<u32>,
) -> Option<char> {
    let (mut code, mut count) = (first.unwrap_or(0), u32::from(first.is_some()));
    while count < digits
        && let Some(digit) = letters.peek().and_then(|letter| letter.to_digit(radix))
    {
        letters.next();
        (code, count) = (code * radix + digit, count + 1);
    }
    (count > 0).then(|| char::from_u32(code & 0xff).unwrap_or('\u{fffd}'))
}

fn each_csv<'l>(line: &'l str, format: &CopyFormat, mut take: impl FnMut(Field<'l>) -> Result<()>) -> Result<()> {
    let mut rest = line;
    loop {
        let is_quoted = rest.starts_with(format.quote);
        let plain_end = rest.find(format.delimiter).unwrap_or(rest.len());
        let has_quote = is_quoted || rest[..plain_end].contains(format.quote);
        let (field, used) =
            if has_quote { quoted_field(rest, format)? } else { (Cow::from(&rest[..plain_end]), plain_end) };
        let is_null = !has_quote && field == format.null.as_str();
        take((!is_null).then_some(field))?;
        match rest[used..].strip_prefix(format.delimiter) {
            Some(after) => rest = after,
            None => return Ok(()),
        }
    }
}

/// A field with quotes at the beginning of `rest`, and its length there.
fn quoted_field<'l>(rest: &'l str, format: &CopyFormat) -> Result<(Cow<'l, str>, usize)> {
    let (mut found, mut is_inside) = (String::new(), false);
    let mut letters = rest.char_indices().peekable();
    while let Some((place, letter)) = letters.next() {
        let next = letters.peek().map(|(_, letter)| *letter);
        let is_escape = is_inside && letter == format.escape;
        match () {
            () if is_escape && next.is_some_and(|next| next == format.quote || next == format.escape) => {
                found.extend(next);
                letters.next();
            }
            () if letter == format.quote => is_inside = !is_inside,
            () if letter == format.delimiter && !is_inside => return Ok((Cow::Owned(found), place)),
            () => found.push(letter),
        }
    }
    if is_inside { Err(bad("unterminated CSV quoted field")) } else { Ok((Cow::Owned(found), rest.len())) }
}

/// Adds a field to a line. `is_first`: none is before it.
pub fn write_field(line: &mut String, field: Option<&str>, is_first: bool, is_only: bool, format: &CopyFormat) {
    if !is_first {
        line.push(format.delimiter);
    }
    let Some(field) = field else {
        line.push_str(&format.null);
        return;
    };
    if !format.is_csv {
        return write_text(line, field, format.delimiter);
    }
    let special =
        |letter: char| letter == format.delimiter || letter == format.quote || letter == '\n' || letter == '\r';
    // Else a text would be read as null, or as the end of the data.
    let needs_quotes = field == format.null || field.contains(special) || is_only && field == "\\.";
    if !needs_quotes {
        return line.push_str(field);
    }
    line.push(format.quote);
    for letter in field.chars() {
        if letter == format.quote || letter == format.escape {
            line.push(format.escape);
        }
        line.push(letter);
    }
    line.push(format.quote);
}

fn write_text(line: &mut String, field: &str, delimiter: char) {
    for letter in field.chars() {
        match letter {
            '\u{8}' => line.push_str("\\b"),
            '\u{c}' => line.push_str("\\f"),
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            '\u{b}' => line.push_str("\\v"),
            '\\' => line.push_str("\\\\"),
            letter if letter == delimiter => {
                line.push('\\');
                line.push(letter);
            }
            letter => line.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(line: &str, format: &CopyFormat) -> Result<Vec<Option<String>>> {
        let mut found = Vec::new();
        each_field(line, format, |field| {
            found.push(field.map(Cow::into_owned));
            Ok(())
        })?;
        Ok(found)
    }

    fn some(texts: &[&str]) -> Vec<Option<String>> {
        texts.iter().map(|text| Some((*text).to_owned())).collect()
    }

    #[test]
    fn fields_of_text_have_escapes() -> Result<()> {
        let text = CopyFormat::default();
        assert_eq!(fields("1\ta b\t", &text)?, some(&["1", "a b", ""]));
        assert_eq!(fields("\\N\t\\\\N", &text)?, [None, Some("\\N".into())]);
        assert_eq!(fields("a\\tb\\\tc\\x41\\101\\q", &text)?, some(&["a\tb\tcAAq"]));
        Ok(())
    }

    #[test]
    fn fields_of_csv_have_quotes() -> Result<()> {
        let csv = CopyFormat::csv();
        assert_eq!(
            fields("1,,\"\",\"a,\"\"b\"\"\"", &csv)?,
            [Some("1".into()), None, Some(String::new()), Some("a,\"b\"".into())]
        );
        assert_eq!(fields("a\"b,c\"d", &csv)?, some(&["ab,cd"]));
        assert!(fields("\"a", &csv).is_err());
        let other = CopyFormat { quote: '\'', escape: '\\', delimiter: ';', ..CopyFormat::csv() };
        assert_eq!(fields("'a\\'b\\\\';c", &other)?, some(&["a'b\\", "c"]));
        Ok(())
    }

    #[test]
    fn lines_of_csv_end_outside_of_quotes() {
        let csv = CopyFormat::csv();
        let bytes = b"1,\"a\nb\"\n2";
        for split in 0..8 {
            let mut lines = Lines::default();
            assert_eq!(lines.end(&bytes[..split.min(7)], &csv), None);
            assert_eq!(lines.end(bytes, &csv), Some(7));
        }
        assert_eq!(Lines::default().end(b"a\nb", &CopyFormat::default()), Some(1));
    }

    #[test]
    fn fields_that_are_written_come_back() -> Result<()> {
        let rows = [vec![None, Some("a,b\"c\\\n\t"), Some("")], vec![Some("\\."), Some("\\N"), Some("x")]];
        let other = CopyFormat { quote: '\'', escape: '\\', null: "nil".into(), ..CopyFormat::csv() };
        for format in [CopyFormat::default(), CopyFormat::csv(), other] {
            for row in &rows {
                let mut line = String::new();
                for (number, field) in row.iter().enumerate() {
                    write_field(&mut line, *field, number == 0, false, &format);
                }
                let expected: Vec<_> = row.iter().map(|field| field.map(str::to_owned)).collect();
                assert_eq!(fields(&line, &format)?, expected, "{line:?}");
            }
        }
        Ok(())
    }
}
