//! Functions of texts and arrays. The locale is C: letters beyond ASCII have no case.

use super::{Argument, BOOL, BYTEA, Function, INT4, INT8, NAME, TEXT, count, int, of, text};
use crate::datum::Datum;
use crate::error::{Error, Result, SqlState};
use crate::types::Type;

pub const FUNCTIONS: &[Function] = &[
    of("lower", &[TEXT], Type::Text, |_, a| Ok(Datum::Text(text(a, 0).to_ascii_lowercase()))),
    of("upper", &[TEXT], Type::Text, |_, a| Ok(Datum::Text(text(a, 0).to_ascii_uppercase()))),
    of("length", &[TEXT], Type::Int4, |_, a| Ok(count(text(a, 0).chars().count()))),
    of("length", &[BYTEA], Type::Int4, |_, a| Ok(bytes_count(a))),
    of("char_length", &[TEXT], Type::Int4, |_, a| Ok(count(text(a, 0).chars().count()))),
    of("character_length", &[TEXT], Type::Int4, |_, a| Ok(count(text(a, 0).chars().count()))),
    of("octet_length", &[TEXT], Type::Int4, |_, a| Ok(count(text(a, 0).len()))),
    of("octet_length", &[BYTEA], Type::Int4, |_, a| Ok(bytes_count(a))),
    of("substring", &[TEXT, INT4], Type::Text, |_, a| substring(text(a, 0), int(a, 1), None)),
    of("substring", &[TEXT, INT4, INT4], Type::Text, |_, a| substring(text(a, 0), int(a, 1), Some(int(a, 2)))),
    of("substr", &[TEXT, INT4], Type::Text, |_, a| substring(text(a, 0), int(a, 1), None)),
    of("substr", &[TEXT, INT4, INT4], Type::Text, |_, a| substring(text(a, 0), int(a, 1), Some(int(a, 2)))),
    of("left", &[TEXT, INT4], Type::Text, |_, a| Ok(Datum::Text(left(text(a, 0), int(a, 1))))),
    of("right", &[TEXT, INT4], Type::Text, |_, a| Ok(Datum::Text(right(text(a, 0), int(a, 1))))),
    of("btrim", &[TEXT], Type::Text, |_, a| Ok(Datum::from(text(a, 0).trim_matches(' ')))),
    of("ltrim", &[TEXT], Type::Text, |_, a| Ok(Datum::from(text(a, 0).trim_start_matches(' ')))),
    of("rtrim", &[TEXT], Type::Text, |_, a| Ok(Datum::from(text(a, 0).trim_end_matches(' ')))),
    of("btrim", &[TEXT, TEXT], Type::Text, |_, a| Ok(Datum::from(text(a, 0).trim_matches(|l| text(a, 1).contains(l))))),
    of("ltrim", &[TEXT, TEXT], Type::Text, |_, a| {
        Ok(Datum::from(text(a, 0).trim_start_matches(|l| text(a, 1).contains(l))))
    }),
    of("rtrim", &[TEXT, TEXT], Type::Text, |_, a| {
        Ok(Datum::from(text(a, 0).trim_end_matches(|l| text(a, 1).contains(l))))
    }),
    of("replace", &[TEXT, TEXT, TEXT], Type::Text, |_, a| replace(text(a, 0), text(a, 1), text(a, 2))),
    of("strpos", &[TEXT, TEXT], Type::Int4, |_, a| Ok(position(text(a, 0), text(a, 1)))),
    of("position", &[TEXT, TEXT], Type::Int4, |_, a| Ok(position(text(a, 0), text(a, 1)))),
    of("starts_with", &[TEXT, TEXT], Type::Bool, |_, a| Ok(Datum::Bool(text(a, 0).starts_with(text(a, 1))))),
    of("repeat", &[TEXT, INT4], Type::Text, |_, a| repeat(text(a, 0), int(a, 1))),
    of("reverse", &[TEXT], Type::Text, |_, a| Ok(Datum::Text(text(a, 0).chars().rev().collect()))),
    of("lpad", &[TEXT, INT4], Type::Text, |_, a| pad(text(a, 0), int(a, 1), " ", true)),
    of("lpad", &[TEXT, INT4, TEXT], Type::Text, |_, a| pad(text(a, 0), int(a, 1), text(a, 2), true)),
    of("rpad", &[TEXT, INT4], Type::Text, |_, a| pad(text(a, 0), int(a, 1), " ", false)),
    of("rpad", &[TEXT, INT4, TEXT], Type::Text, |_, a| pad(text(a, 0), int(a, 1), text(a, 2), false)),
    of("split_part", &[TEXT, TEXT, INT4], Type::Text, |_, a| split_part(text(a, 0), text(a, 1), int(a, 2))),
    of("concat", &[], Type::Text, |_, a| joined(&a.iter().filter_map(Datum::as_text).collect::<Vec<_>>(), ""))
        .lax()
        .variadic(),
    of("quote_ident", &[TEXT], Type::Text, |_, a| Ok(Datum::Text(quote_ident(text(a, 0))))),
    of("parse_ident", &[TEXT], Type::TextArray, |_, a| identifiers(text(a, 0), true)),
    of("parse_ident", &[TEXT, BOOL], Type::TextArray, |_, a| identifiers(text(a, 0), a[1] == Datum::Bool(true))),
    of("quote_literal", &[TEXT], Type::Text, |_, a| Ok(Datum::Text(quote_literal(text(a, 0))))),
    of("ascii", &[TEXT], Type::Int4, |_, a| {
        Ok(Datum::Int(text(a, 0).chars().next().map_or(0, |letter| i64::from(u32::from(letter)))))
    }),
    of("to_hex", &[INT4], Type::Text, |_, a| Ok(Datum::Text(format!("{:x}", int(a, 0) & 0xffff_ffff)))),
    of("to_hex", &[INT8], Type::Text, |_, a| Ok(Datum::Text(format!("{:x}", int(a, 0))))),
    of("initcap", &[TEXT], Type::Text, |_, a| Ok(Datum::Text(initial_capitals(text(a, 0))))),
    of("bit_length", &[TEXT], Type::Int4, |_, a| Ok(count(text(a, 0).len() * 8))),
    of("bit_length", &[BYTEA], Type::Int4, |_, a| Ok(count(bytes(a, 0).len() * 8))),
    of("overlay", &[TEXT, TEXT, INT4], Type::Text, |_, a| {
        let length = i64::try_from(text(a, 1).chars().count()).unwrap_or(i64::MAX);
        overlay(text(a, 0), text(a, 1), int(a, 2), length)
    }),
    of("overlay", &[TEXT, TEXT, INT4, INT4], Type::Text, |_, a| overlay(text(a, 0), text(a, 1), int(a, 2), int(a, 3))),
    of("translate", &[TEXT, TEXT, TEXT], Type::Text, |_, a| Ok(Datum::Text(translate(a)))),
    of("chr", &[INT4], Type::Text, |_, a| chr(int(a, 0))),
    of("concat_ws", &[TEXT], Type::Text, |_, a| {
        let parts: Vec<&str> = a[1..].iter().filter_map(Datum::as_text).collect();
        if a[0].is_null() { Ok(Datum::Null) } else { joined(&parts, text(a, 0)) }
    })
    .lax()
    .variadic(),
    of(
        "format",
        &[TEXT],
        Type::Text,
        |_, a| {
            if a[0].is_null() { Ok(Datum::Null) } else { format_text(text(a, 0), &a[1..]) }
        },
    )
    .lax()
    .variadic(),
    of("quote_nullable", &[TEXT], Type::Text, |_, a| {
        Ok(Datum::Text(if a[0].is_null() { "NULL".into() } else { quote_literal(text(a, 0)) }))
    })
    .lax(),
    of("encode", &[BYTEA, TEXT], Type::Text, |_, a| encode(bytes(a, 0), text(a, 1))),
    of("decode", &[TEXT, TEXT], Type::Bytea, |_, a| decode(text(a, 0), text(a, 1))),
    of("md5", &[TEXT], Type::Text, |_, a| Ok(Datum::Text(crate::digest::md5(text(a, 0).as_bytes())))),
    of("md5", &[BYTEA], Type::Text, |_, a| Ok(Datum::Text(crate::digest::md5(bytes(a, 0))))),
    of("reverse", &[BYTEA], Type::Bytea, |_, a| Ok(Datum::Bytes(bytes(a, 0).iter().rev().copied().collect()))),
    of("substring", &[BYTEA, INT4], Type::Bytea, |_, a| part_of_bytes(bytes(a, 0), int(a, 1), None)),
    of("substring", &[BYTEA, INT4, INT4], Type::Bytea, |_, a| part_of_bytes(bytes(a, 0), int(a, 1), Some(int(a, 2)))),
    of("substr", &[BYTEA, INT4], Type::Bytea, |_, a| part_of_bytes(bytes(a, 0), int(a, 1), None)),
    of("substr", &[BYTEA, INT4, INT4], Type::Bytea, |_, a| part_of_bytes(bytes(a, 0), int(a, 1), Some(int(a, 2)))),
    of("position", &[BYTEA, BYTEA], Type::Int4, |_, a| Ok(place_of_bytes(bytes(a, 0), bytes(a, 1)))),
    of("get_byte", &[BYTEA, INT4], Type::Int4, |_, a| {
        let found = byte_place(bytes(a, 0), int(a, 1))?;
        Ok(Datum::Int(bytes(a, 0)[found].into()))
    }),
    of("set_byte", &[BYTEA, INT4, INT4], Type::Bytea, |_, a| {
        let mut found = bytes(a, 0).to_vec();
        let place = byte_place(&found, int(a, 1))?;
        found[place] = lodestone_width::low_u8(int(a, 2).cast_unsigned());
        Ok(Datum::Bytes(found))
    }),
    of("btrim", &[BYTEA, BYTEA], Type::Bytea, |_, a| Ok(trim_bytes(bytes(a, 0), bytes(a, 1), (true, true)))),
    of("ltrim", &[BYTEA, BYTEA], Type::Bytea, |_, a| Ok(trim_bytes(bytes(a, 0), bytes(a, 1), (true, false)))),
    of("rtrim", &[BYTEA, BYTEA], Type::Bytea, |_, a| Ok(trim_bytes(bytes(a, 0), bytes(a, 1), (false, true)))),
    of("length", &[Argument::Of(Type::Bpchar)], Type::Int4, |_, a| {
        Ok(count(text(a, 0).trim_end_matches(' ').chars().count()))
    }),
    of("text", &[TEXT], Type::Text, |_, a| Ok(a[0].clone())),
    of("upper", &[NAME], Type::Text, |_, a| Ok(Datum::Text(text(a, 0).to_ascii_uppercase()))),
    of("unistr", &[TEXT], Type::Text, |_, a| unistr(text(a, 0))),
];

/// The parts of a name. More text after them is an error only if it `is_strict`.
fn identifiers(whole: &str, is_strict: bool) -> Result<Datum> {
    let wrong = |detail: Option<&str>| {
        let message = format!("string is not a valid identifier: \"{whole}\"");
        let error = Error::new(SqlState::INVALID_PARAMETER_VALUE, message);
        Err(match detail {
            Some(detail) => error.detail(detail),
            None => error,
        })
    };
    let is_blank = crate::text::is_space;
    let is_first = |letter: char| letter.is_ascii_alphabetic() || letter == '_' || !letter.is_ascii();
    let is_next = |letter: char| is_first(letter) || letter.is_ascii_digit() || letter == '$';
    let (mut rest, mut found) = (whole.trim_start_matches(is_blank), Vec::new());
    loop {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (mut name, mut letters) = (String::new(), quoted.chars());
            loop {
                match letters.next() {
                    None => return wrong(Some("String has unclosed double quotes.")),
                    Some('"') if letters.as_str().starts_with('"') => {
                        letters.next();
                        name.push('"');
                    }
                    Some('"') => break,
                    Some(letter) => name.push(letter),
                }
            }
            if name.is_empty() {
                return wrong(Some("Quoted identifier must not be empty."));
            }
            rest = letters.as_str();
            found.push(Datum::Text(name));
        } else if rest.starts_with(is_first) {
            let end = rest.find(|letter| !is_next(letter)).unwrap_or(rest.len());
            found.push(Datum::Text(rest[..end].to_ascii_lowercase()));
            rest = &rest[end..];
        } else {
            return wrong(match rest.starts_with('.') {
                true => Some("No valid identifier before \".\"."),
                false if !found.is_empty() => Some("No valid identifier after \".\"."),
                false => None,
            });
        }
        rest = rest.trim_start_matches(is_blank);
        match rest.strip_prefix('.') {
            Some(more) => rest = more.trim_start_matches(is_blank),
            None if rest.is_empty() || !is_strict => return Ok(Datum::Array(found)),
            None => return wrong(None),
        }
    }
}

/// The bytes of the argument with this number; none if it has none.
pub(super) fn bytes(arguments: &[Datum], number: usize) -> &[u8] {
    if let Some(Datum::Bytes(bytes)) = arguments.get(number) { bytes } else { &[] }
}

fn quote_literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if text.contains('\\') {
        format!(" E'{}'", quoted.replace('\\', "\\\\")).trim_start().to_owned()
    } else {
        format!("'{quoted}'")
    }
}

fn initial_capitals(text: &str) -> String {
    let mut is_inside = false;
    let letter = |letter: char| {
        let found = if is_inside { letter.to_ascii_lowercase() } else { letter.to_ascii_uppercase() };
        is_inside = letter.is_ascii_alphanumeric();
        found
    };
    text.chars().map(letter).collect()
}

fn overlay(text: &str, with: &str, from: i64, length: i64) -> Result<Datum> {
    if from <= 0 {
        return Err(Error::new(SqlState::SUBSTRING_ERROR, "negative substring length not allowed"));
    }
    let letters: Vec<char> = text.chars().collect();
    let place = |number: i64| usize::try_from(number.max(0)).unwrap_or(usize::MAX).min(letters.len());
    let (start, end) = (place(from - 1), place(from.saturating_add(length) - 1));
    let parts = letters[..start].iter().copied().chain(with.chars()).chain(letters[end..].iter().copied());
    Ok(Datum::Text(parts.collect()))
}

fn translate(arguments: &[Datum]) -> String {
    let (from, to): (Vec<char>, Vec<char>) =
        (text(arguments, 1).chars().collect(), text(arguments, 2).chars().collect());
    let letter = |letter: char| match from.iter().position(|other| *other == letter) {
        None => Some(letter),
        Some(place) => to.get(place).copied(),
    };
    text(arguments, 0).chars().filter_map(letter).collect()
}

fn chr(code: i64) -> Result<Datum> {
    let limit = |message: String| Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message);
    match code {
        0 => Err(limit("null character not permitted".into())),
        code if code < 0 => Err(limit("character number must be positive".into())),
        code => match u32::try_from(code).ok().and_then(char::from_u32) {
            Some(letter) => Ok(Datum::Text(letter.to_string())),
            None => Err(limit(format!("requested character not valid for encoding: {code}"))),
        },
    }
}

fn byte_place(bytes: &[u8], number: i64) -> Result<usize> {
    let place = usize::try_from(number).ok().filter(|place| *place < bytes.len());
    place.ok_or_else(|| {
        let last = i64::try_from(bytes.len()).unwrap_or(i64::MAX) - 1;
        Error::new(SqlState::ARRAY_SUBSCRIPT_ERROR, format!("index {number} out of valid range, 0..{last}"))
    })
}

fn part_of_bytes(bytes: &[u8], from: i64, length: Option<i64>) -> Result<Datum> {
    if length.is_some_and(|length| length < 0) {
        return Err(Error::new(SqlState::SUBSTRING_ERROR, "negative substring length not allowed"));
    }
    let end = length.map_or(i64::MAX, |length| from.saturating_add(length));
    let place = |number: i64| usize::try_from(number.max(1) - 1).unwrap_or(usize::MAX).min(bytes.len());
    let (start, end) = (place(from), place(end));
    Ok(Datum::Bytes(bytes.get(start..end).unwrap_or_default().to_vec()))
}

fn place_of_bytes(bytes: &[u8], part: &[u8]) -> Datum {
    if part.is_empty() {
        return Datum::Int(1);
    }
    bytes.windows(part.len()).position(|found| found == part).map_or(Datum::Int(0), |place| count(place + 1))
}

fn trim_bytes(bytes: &[u8], set: &[u8], (left, right): (bool, bool)) -> Datum {
    let mut rest = bytes;
    while left && rest.first().is_some_and(|byte| set.contains(byte)) {
        rest = &rest[1..];
    }
    while right && rest.last().is_some_and(|byte| set.contains(byte)) {
        rest = &rest[..rest.len() - 1];
    }
    Datum::Bytes(rest.to_vec())
}

fn unknown_encoding(name: &str) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, format!("unrecognized encoding: \"{name}\""))
}

fn encode(bytes: &[u8], format: &str) -> Result<Datum> {
    let text = match format.to_ascii_lowercase().as_str() {
        "hex" => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        "base64" => crate::digest::base64(bytes),
        "escape" => bytes.iter().fold(String::new(), |mut text, byte| {
            match byte {
                b'\\' => text.push_str("\\\\"),
                0 | 128.. => text.push_str(&format!("\\{byte:03o}")),
                byte => text.push(char::from(*byte)),
            }
            text
        }),
        _ => return Err(unknown_encoding(format)),
    };
    Ok(Datum::Text(text))
}

fn decode(text: &str, format: &str) -> Result<Datum> {
    match format.to_ascii_lowercase().as_str() {
        "hex" => crate::text::decode(Type::Bytea, &format!("\\x{text}")),
        "base64" => crate::digest::of_base64(text).map(Datum::Bytes),
        "escape" => {
            crate::text::decode(Type::Bytea, &text.replacen("\\x", "\\170", usize::from(text.starts_with("\\x"))))
        }
        _ => Err(unknown_encoding(format)),
    }
}

fn unistr(text: &str) -> Result<Datum> {
    let bad = || Error::new(SqlState::SYNTAX_ERROR, "invalid Unicode escape");
    let (mut found, mut rest) = (String::new(), text);
    while let Some(place) = rest.find('\\') {
        found.push_str(&rest[..place]);
        rest = &rest[place + 1..];
        if let Some(after) = rest.strip_prefix('\\') {
            found.push('\\');
            rest = after;
            continue;
        }
        let (skip, count) = match rest.as_bytes().first() {
            Some(b'+') => (1, 6),
            Some(b'u') => (1, 4),
            Some(b'U') => (1, 8),
            _ => (0, 4),
        };
        let digits = rest.get(skip..skip + count).ok_or_else(bad)?;
        let code = u32::from_str_radix(digits, 16).map_err(|_| bad())?;
        found.push(
            char::from_u32(code).ok_or_else(|| Error::new(SqlState::SYNTAX_ERROR, "invalid Unicode surrogate pair"))?,
        );
        rest = &rest[skip + count..];
    }
    found.push_str(rest);
    Ok(Datum::Text(found))
}

/// `format`: `%s`, `%I`, `%L`, with `n$`, `-` and a width before the letter.
fn format_text(pattern: &str, arguments: &[Datum]) -> Result<Datum> {
    let bad = |message: &str| Error::new(SqlState::INVALID_PARAMETER_VALUE, message.to_owned());
    let (mut found, mut next) = (String::new(), 0_usize);
    let mut letters = pattern.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            found.push(letter);
            continue;
        }
        let mut is_left = false;
        let mut number = String::new();
        let mut width: Option<i64> = None;
        let mut place: Option<usize> = None;
        loop {
            let letter = *letters.peek().ok_or_else(|| bad("unterminated format() type specifier"))?;
            match letter {
                '0'..='9' => number.push(letter),
                '$' => place = Some(std::mem::take(&mut number).parse().map_err(|_| bad("number is out of range"))?),
                '-' if number.is_empty() => is_left = true,
                '*' => {
                    letters.next();
                    let mut index = String::new();
                    while let Some(digit) = letters.next_if(char::is_ascii_digit) {
                        index.push(digit);
                    }
                    let own = letters.next_if_eq(&'$').and_then(|_| index.parse::<usize>().ok()).unwrap_or(next + 1);
                    let datum =
                        arguments.get(own.wrapping_sub(1)).ok_or_else(|| bad("too few arguments for format()"))?;
                    next = own;
                    width = Some(datum.as_text().and_then(|text| text.trim().parse().ok()).unwrap_or(0));
                    continue;
                }
                _ => break,
            }
            letters.next();
        }
        if place == Some(0) {
            return Err(bad("format specifies argument 0, but arguments are numbered from 1"));
        }
        if !number.is_empty() {
            width = Some(number.parse().map_err(|_| bad("number is out of range"))?);
        }
        let kind = letters.next().ok_or_else(|| bad("unterminated format() type specifier"))?;
        if kind == '%' {
            found.push('%');
            continue;
        }
        if !matches!(kind, 's' | 'I' | 'L') {
            return Err(bad(&format!("unrecognized format() type specifier \"{kind}\"")));
        }
        let own = place.unwrap_or(next + 1);
        next = own;
        let datum = arguments.get(own - 1).ok_or_else(|| bad("too few arguments for format()"))?;
        let text = match (kind, datum.as_text()) {
            ('s', text) => text.unwrap_or_default().to_owned(),
            ('I', Some(text)) => quote_ident(text),
            ('I', None) => {
                let message = "null values cannot be formatted as an SQL identifier";
                return Err(Error::new(SqlState::NULL_VALUE_NOT_ALLOWED, message));
            }
            (_, Some(text)) => quote_literal(text),
            (_, None) => "NULL".into(),
        };
        let width = width.unwrap_or(0);
        let is_left = is_left || width < 0;
        let length = usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX);
        let missing = length.saturating_sub(text.chars().count());
        fits(found.len().saturating_add(text.len()).saturating_add(missing))?;
        let padding = " ".repeat(missing);
        found += &if is_left { text + &padding } else { padding + &text };
    }
    Ok(Datum::Text(found))
}

fn bytes_count(arguments: &[Datum]) -> Datum {
    if let Datum::Bytes(bytes) = &arguments[0] { count(bytes.len()) } else { Datum::Null }
}

/// From the character with number `from`, which may be before the first.
fn substring(text: &str, from: i64, length: Option<i64>) -> Result<Datum> {
    if length.is_some_and(|length| length < 0) {
        return Err(Error::new(SqlState::SUBSTRING_ERROR, "negative substring length not allowed"));
    }
    let end = length.map_or(i64::MAX, |length| from.saturating_add(length));
    let first = from.max(1);
    let skip = usize::try_from(first - 1).unwrap_or(usize::MAX);
    let take = usize::try_from(end.saturating_sub(first).max(0)).unwrap_or(usize::MAX);
    Ok(Datum::Text(text.chars().skip(skip).take(take).collect()))
}

fn left(text: &str, length: i64) -> String {
    let count = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    let take = if length < 0 { count.saturating_add(length).max(0) } else { length };
    text.chars().take(usize::try_from(take).unwrap_or(usize::MAX)).collect()
}

fn right(text: &str, length: i64) -> String {
    let count = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    let skip = if length < 0 { length.saturating_neg() } else { count.saturating_sub(length).max(0) };
    text.chars().skip(usize::try_from(skip).unwrap_or(usize::MAX)).collect()
}

fn position(text: &str, part: &str) -> Datum {
    text.find(part).map_or(Datum::Int(0), |place| count(text[..place].chars().count() + 1))
}

/// Longest text that a function makes.
const LENGTH_MAX: usize = 64 << 20;

/// Refuses a text of so many bytes.
///
/// # Errors
/// 54000.
pub(super) fn fits(bytes: usize) -> Result<()> {
    crate::text::check_length(bytes, LENGTH_MAX)
}

fn repeat(text: &str, times: i64) -> Result<Datum> {
    let times = usize::try_from(times).unwrap_or(0);
    fits(text.len().saturating_mul(times))?;
    Ok(Datum::Text(text.repeat(times)))
}

fn replace(text: &str, from: &str, to: &str) -> Result<Datum> {
    if from.is_empty() {
        return Ok(Datum::from(text));
    }
    if to.len() > from.len() {
        let more = text.matches(from).count().saturating_mul(to.len() - from.len());
        fits(text.len().saturating_add(more))?;
    }
    Ok(Datum::Text(text.replace(from, to)))
}

/// The parts with a separator between them.
///
/// # Errors
/// 54000.
pub(super) fn joined(parts: &[impl AsRef<str>], separator: &str) -> Result<Datum> {
    let length = |sum: usize, part: &str| sum.saturating_add(part.len());
    let separators = separator.len().saturating_mul(parts.len().saturating_sub(1));
    fits(parts.iter().fold(separators, |sum, part| length(sum, part.as_ref())))?;
    let mut found = String::new();
    for (number, part) in parts.iter().enumerate() {
        if number > 0 {
            found.push_str(separator);
        }
        found.push_str(part.as_ref());
    }
    Ok(Datum::Text(found))
}

fn pad(text: &str, length: i64, filler: &str, is_left: bool) -> Result<Datum> {
    let length = usize::try_from(length).unwrap_or(0);
    fits(length)?;
    let missing = length.saturating_sub(text.chars().count());
    let padding: String =
        if filler.is_empty() { String::new() } else { filler.chars().cycle().take(missing).collect() };
    let kept: String = text.chars().take(length).collect();
    Ok(Datum::Text(if is_left { padding + &kept } else { kept + &padding }))
}

fn split_part(text: &str, separator: &str, number: i64) -> Result<Datum> {
    if number == 0 {
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, "field position must not be zero"));
    }
    let parts: Vec<&str> = if separator.is_empty() { vec![text] } else { text.split(separator).collect() };
    let place = usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX);
    let found = if number > 0 {
        parts.get(place - 1)
    } else {
        parts.len().checked_sub(place).and_then(|place| parts.get(place))
    };
    Ok(Datum::from(found.copied().unwrap_or_default()))
}

/// The name as a statement needs it.
pub fn quote_ident(name: &str) -> String {
    let is_plain = name.starts_with(|letter: char| letter.is_ascii_lowercase() || letter == '_')
        && name
            .chars()
            .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || matches!(letter, '_' | '$'))
        && !RESERVED.contains(&name);
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// Words that are no names without quotes.
const RESERVED: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "both",
    "case",
    "cast",
    "check",
    "collate",
    "column",
    "constraint",
    "create",
    "current_catalog",
    "current_date",
    "current_role",
    "current_time",
    "current_timestamp",
    "current_user",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "false",
    "fetch",
    "for",
    "foreign",
    "from",
    "grant",
    "group",
    "having",
    "in",
    "initially",
    "intersect",
    "into",
    "lateral",
    "leading",
    "limit",
    "localtime",
    "localtimestamp",
    "not",
    "null",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "placing",
    "primary",
    "references",
    "returning",
    "select",
    "session_user",
    "some",
    "symmetric",
    "table",
    "then",
    "to",
    "trailing",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "variadic",
    "when",
    "where",
    "window",
    "with",
];
