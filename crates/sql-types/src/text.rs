//! The text format of values: what `psql` shows, and what a literal says.

use std::fmt::Write;

use crate::array::{self, Dimension};
use crate::datum::Datum;
use crate::error::{Error, Result, SqlState};
use crate::numeric::Numeric;
use crate::style;
use crate::time;
use crate::types::Type;

/// Most bytes of a value that is put together from others, as in `PostgreSQL`.
pub const BYTES_MAX: usize = (1 << 30) - 1;

/// Refuses a value of so many bytes.
///
/// # Errors
/// 54000 if there are more than `most`.
pub fn check_length(bytes: usize, most: usize) -> Result<()> {
    let error = || Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "requested length too large");
    if bytes <= most { Ok(()) } else { Err(error().detail(format!("The result has at most {most} bytes."))) }
}

/// The text of `datum`, which is of type `ty` and not null, in the [`style`] of the session.
///
/// ```
/// use lodestone_sql_types::{Datum, Type, text};
///
/// assert_eq!(text::encode(Type::Bool, &Datum::Bool(true)), "t");
/// assert_eq!(text::decode(Type::Int4, "-7")?, Datum::Int(-7));
/// # Ok::<(), lodestone_sql_types::Error>(())
/// ```
#[must_use]
pub fn encode(ty: Type, datum: &Datum) -> String {
    let mut text = String::new();
    write_to(ty, datum, &mut text);
    text
}

/// The value of the type `"char"`, which is one byte: the first one, or that whose number is written as `\ooo`. It is
/// kept as the letter with that number, and zero as no letter.
pub(crate) fn byte_of(text: &str) -> String {
    let digit = |byte: &u8| matches!(byte, b'0'..=b'7').then(|| u32::from(byte - b'0'));
    let number = match text.as_bytes() {
        [b'\\', high, middle, low] => {
            let digits = digit(high).zip(digit(middle)).zip(digit(low));
            // The number is cut to a byte.
            digits.map_or(u32::from(b'\\'), |((high, middle), low)| (high << 6 | middle << 3 | low) & 0xff)
        }
        [first, ..] => u32::from(*first),
        [] => 0,
    };
    char::from_u32(number).filter(|_| number > 0).map_or_else(String::new, String::from)
}

/// Appends the letter of a byte, or the number of one that is no letter alone.
fn push_byte(letter: char, text: &mut String) {
    match u32::from(letter) {
        number @ 0x80..=0xff => _ = write!(text, "\\{number:03o}"),
        _ => text.push(letter),
    }
}

/// Appends the text of `datum`, which is of type `ty`. Nothing for null.
pub fn write_to(ty: Type, datum: &Datum, text: &mut String) {
    match datum {
        Datum::Null => {}
        Datum::Bool(value) => text.push(if *value { 't' } else { 'f' }),
        // Writing to a string does not fail.
        Datum::Int(value) => match ty {
            Type::Enum(of) => text.push_str(of.label(*value)),
            // The number of no object.
            Type::Regclass | Type::Regproc | Type::Regnamespace if *value == 0 => text.push('-'),
            Type::Regtype => match u32::try_from(*value).ok().and_then(Type::of_oid) {
                Some(named) => _ = write!(text, "{named}"),
                None if *value == 0 => text.push('-'),
                None => _ = write!(text, "{value}"),
            },
            _ => _ = write!(text, "{value}"),
        },
        Datum::Float(value) => text.push_str(&float_text(ty, *value)),
        Datum::Numeric(value) => _ = write!(text, "{value}"),
        Datum::Text(value) if ty == Type::Char => value.chars().for_each(|letter| push_byte(letter, text)),
        Datum::Text(value) => text.push_str(value),
        Datum::Bytes(value) if ty == Type::Uuid => {
            for (place, byte) in value.iter().enumerate() {
                if matches!(place, 4 | 6 | 8 | 10) {
                    text.push('-');
                }
                _ = write!(text, "{byte:02x}");
            }
        }
        Datum::Bytes(value) if style::with(|style| style.escapes_bytes) => {
            for byte in value {
                match byte {
                    b'\\' => text.push_str("\\\\"),
                    b' '..=b'~' => text.push(char::from(*byte)),
                    _ => _ = write!(text, "\\{byte:03o}"),
                }
            }
        }
        Datum::Bytes(value) => {
            text.push_str("\\x");
            value.iter().for_each(|byte| _ = write!(text, "{byte:02x}"));
        }
        Datum::Date(days) => text.push_str(&time::date_text(*days)),
        Datum::Time(micros) if ty == Type::Time => text.push_str(&time::clock_text(*micros)),
        Datum::Time(micros) => text.push_str(&time::time_text(*micros, ty == Type::Timestamptz)),
        Datum::ZonedTime(value) => _ = write!(text, "{value}"),
        Datum::Interval(value) => text.push_str(&value.text(style::with(|style| style.span))),
        Datum::Json(value) => _ = write!(text, "{value}"),
        Datum::Array(values) => write_array(ty, values, text),
        Datum::Shaped(shaped) => {
            if shaped.dimensions.iter().any(|dimension| dimension.low != 1) {
                text.push_str(&array::dimensions_text(&shaped.dimensions));
                text.push('=');
            }
            write_nested(ty, &shaped.dimensions, &shaped.values, text);
        }
        Datum::Record(values) => {
            text.push('(');
            for (number, value) in values.iter().enumerate() {
                if number > 0 {
                    text.push(',');
                }
                let field = ty.attributes().and_then(|list| list.get(number)).map_or(Type::Text, |field| field.ty);
                write_field(field, value, text);
            }
            text.push(')');
        }
    }
}

/// A field of a record: quotes and backslashes in it are doubled.
fn write_field(ty: Type, value: &Datum, text: &mut String) {
    if value.is_null() {
        return;
    }
    let plain = encode(ty, value);
    let is_quoted = plain.is_empty() || plain.contains(|letter: char| "(),\"\\".contains(letter) || is_space(letter));
    if !is_quoted {
        return text.push_str(&plain);
    }
    text.push('"');
    for letter in plain.chars() {
        if matches!(letter, '"' | '\\') {
            text.push(letter);
        }
        text.push(letter);
    }
    text.push('"');
}

/// The texts of the fields of a record. `None`: a field is null.
///
/// ```
/// use lodestone_sql_types::text;
///
/// assert_eq!(text::fields(" (a,,\"b \"\"c\"\"\") ")?, [Some("a".into()), None, Some("b \"c\"".into())]);
/// # Ok::<(), lodestone_sql_types::Error>(())
/// ```
///
/// # Errors
/// 22P02 for a text that is no record.
pub fn fields(text: &str) -> Result<Vec<Option<String>>> {
    let bad = |detail: &str| malformed(text, detail);
    let Some(inner) = text.trim_start_matches(is_space).strip_prefix('(') else {
        return Err(bad("Missing left parenthesis."));
    };
    let mut letters = inner.chars();
    let mut found = Vec::new();
    loop {
        let (mut value, mut is_quoted, mut has_text) = (String::new(), false, false);
        let end = loop {
            let letter = letters.next().ok_or_else(|| bad("Unexpected end of input."))?;
            match letter {
                ',' | ')' if !is_quoted => break letter,
                '\\' => value.push(letters.next().ok_or_else(|| bad("Unexpected end of input."))?),
                '"' if !is_quoted => is_quoted = true,
                '"' if letters.as_str().starts_with('"') => {
                    letters.next();
                    value.push('"');
                }
                '"' => is_quoted = false,
                letter => value.push(letter),
            }
            has_text = true;
        };
        found.push(has_text.then_some(value));
        if end == ')' {
            break;
        }
    }
    if letters.as_str().trim_start_matches(is_space).is_empty() {
        return Ok(found);
    }
    Err(bad("Junk after right parenthesis."))
}

fn malformed(text: &str, detail: &str) -> Error {
    Error::new(SqlState::INVALID_TEXT_REPRESENTATION, format!("malformed record literal: \"{text}\"")).detail(detail)
}

/// The row of a type that a text says.
fn read_record(attributes: &[crate::composite::Attribute], text: &str) -> Result<Datum> {
    let mut texts = fields(text)?;
    // A type without attributes has a text with nothing between the parentheses.
    if attributes.is_empty() && texts == [None] {
        texts.clear();
    }
    if texts.len() != attributes.len() {
        return Err(malformed(
            text,
            if texts.len() < attributes.len() { "Too few columns." } else { "Too many columns." },
        ));
    }
    let values = texts.iter().zip(attributes).map(|(text, attribute)| match text {
        None => Ok(Datum::Null),
        Some(text) => crate::cast::fit(decode(attribute.ty, text)?, attribute.ty, attribute.modifier, false),
    });
    Ok(Datum::Record(values.collect::<Result<_>>()?))
}

/// Whether `PostgreSQL` takes a character as a space around a value: six of ASCII, none of the others of Unicode.
pub(crate) fn is_space(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r')
}

fn write_array(ty: Type, values: &[Datum], text: &mut String) {
    let element = ty.element().unwrap_or(Type::Text);
    let is_vector = matches!(ty, Type::Int2Vector | Type::OidVector);
    if !is_vector {
        text.push('{');
    }
    for (number, value) in values.iter().enumerate() {
        if number > 0 {
            text.push(if is_vector { ' ' } else { ',' });
        }
        if value.is_null() { text.push_str("NULL") } else { write_element(element, value, text) }
    }
    if !is_vector {
        text.push('}');
    }
}

/// An array in braces, with those that it consists of.
fn write_nested(ty: Type, dimensions: &[Dimension], values: &[Datum], text: &mut String) {
    let [outer, inner @ ..] = dimensions else { return };
    if inner.is_empty() {
        return write_array(ty, values, text);
    }
    text.push('{');
    for (number, part) in values.chunks((values.len() / outer.length.max(1)).max(1)).enumerate() {
        if number > 0 {
            text.push(',');
        }
        write_nested(ty, inner, part, text);
    }
    text.push('}');
}

fn write_element(element: Type, value: &Datum, text: &mut String) {
    let plain = encode(element, value);
    let is_word = plain.is_empty() || plain.eq_ignore_ascii_case("null");
    let is_quoted = is_word || plain.contains(|letter: char| "{},\"\\".contains(letter) || is_space(letter));
    if !is_quoted {
        return text.push_str(&plain);
    }
    text.push('"');
    for letter in plain.chars() {
        if matches!(letter, '"' | '\\') {
            text.push('\\');
        }
        text.push(letter);
    }
    text.push('"');
}

/// The shortest text that reads back as the same number.
fn float_text(ty: Type, value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    let more = style::with(|style| style.float_digits);
    if more <= 0 {
        let digits = if ty == Type::Float4 { 6 + more } else { 15 + more };
        return rounded_text(value, usize::try_from(digits.max(1)).unwrap_or(1));
    }
    let scientific = if ty == Type::Float4 { format!("{:e}", narrow(value)) } else { format!("{value:e}") };
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits_max = if ty == Type::Float4 { 6 } else { 15 };
    if exponent < -4 || exponent >= digits_max {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs());
    }
    if ty == Type::Float4 { format!("{}", narrow(value)) } else { format!("{value}") }
}

/// The text of a number with so many digits, without zeros at its end.
fn rounded_text(value: f64, digits: usize) -> String {
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    let is_long = exponent < -4 || usize::try_from(exponent).is_ok_and(|exponent| exponent >= digits);
    if is_long {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.unsigned_abs());
    }
    let digits = i32::try_from(digits).unwrap_or(17) - 1 - exponent;
    trimmed(&format!("{value:.*}", usize::try_from(digits).unwrap_or(0)))
}

/// The nearest number of 32 bits.
#[must_use]
pub fn narrow(value: f64) -> f32 {
    // There is no conversion without `as`; its text is read back as the nearest number.
    format!("{value}").parse().unwrap_or(f32::NAN)
}

fn invalid(ty: Type, text: &str) -> Error {
    let message = format!("invalid input syntax for type {ty}: \"{text}\"");
    Error::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
}

/// The error of a number outside the limits of its type.
#[must_use]
pub fn out_of_range(ty: Type) -> Error {
    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("{ty} out of range"))
}

/// The value of type `ty` that `text` says.
///
/// # Errors
/// 22P02, 22003, 22007, 22008 as `PostgreSQL`.
pub fn decode(ty: Type, text: &str) -> Result<Datum> {
    if let Some(element) = ty.element() {
        return read_array(ty, element, text);
    }
    Ok(match ty {
        Type::Bool => Datum::Bool(boolean(text).ok_or_else(|| invalid(ty, text))?),
        Type::Int2 | Type::Int4 | Type::Int8 => integer(ty, text)?,
        _ if ty.is_oid() => integer(ty, text)?,
        Type::Float4 | Type::Float8 => Datum::Float(float(ty, text)?),
        Type::Numeric => Datum::Numeric(text.parse::<Numeric>()?),
        Type::Bytea => Datum::Bytes(bytes(text)?),
        Type::Uuid => Datum::Bytes(uuid(text).ok_or_else(|| invalid(ty, text))?),
        Type::Time => Datum::Time(time::parse_time_of_day(text)?),
        Type::Timetz => Datum::ZonedTime(crate::zoned_time::ZonedTime::parse(text)?),
        Type::Interval => Datum::Interval(text.parse()?),
        Type::Json => {
            crate::json::Raw::parse(text, "json")?;
            Datum::from(text)
        }
        Type::Jsonb => Datum::Json(std::sync::Arc::new(crate::json::Json::parse(text, "jsonb")?)),
        Type::Date => Datum::Date(time::parse_date(text)?),
        Type::Timestamp | Type::Timestamptz => Datum::Time(time::parse_time(text, ty == Type::Timestamptz)?),
        Type::Enum(of) => Datum::Int(of.number(text)?),
        Type::Char => Datum::Text(byte_of(text)),
        Type::Bpchar => Datum::Text(text.trim_end_matches(' ').to_owned()),
        Type::Name => Datum::Text(crate::cast::name_of(text)),
        Type::Void => Datum::Text(String::new()),
        Type::Composite(of) if !of.is_anonymous() => read_record(of.attributes(), text)?,
        Type::Record | Type::Composite(_) => {
            let message = "input of anonymous composite types is not implemented";
            return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        _ => Datum::from(text),
    })
}

/// The bytes of an identifier: 32 digits to the base 16, with hyphens after groups of four, in braces perhaps.
fn uuid(text: &str) -> Option<Vec<u8>> {
    let inner = text.strip_prefix('{').map_or(Some(text), |rest| rest.strip_suffix('}'))?;
    let (mut digits, mut was_hyphen) = (Vec::new(), true);
    for letter in inner.chars() {
        if letter == '-' {
            if was_hyphen || digits.len() % 4 != 0 {
                return None;
            }
        } else {
            digits.push(u8::try_from(letter.to_digit(16)?).ok()?);
        }
        was_hyphen = letter == '-';
    }
    (digits.len() == 32 && !was_hyphen).then(|| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// The truth value that a text says.
fn boolean(text: &str) -> Option<bool> {
    let text = text.trim_matches(is_space).to_ascii_lowercase();
    let begins = |word: &str, least: usize| text.len() >= least && word.starts_with(&text);
    match () {
        () if begins("true", 1) || begins("yes", 1) || text == "on" || text == "1" => Some(true),
        () if begins("false", 1) || begins("no", 1) || begins("off", 2) || text == "0" => Some(false),
        () => None,
    }
}

fn integer(ty: Type, text: &str) -> Result<Datum> {
    let trimmed = text.trim_matches(is_space);
    let digits = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid(ty, text));
    }
    let (least, most) = ty.limits();
    let number = trimmed.parse::<i64>().ok().filter(|number| (least..=most).contains(number));
    number.map(Datum::Int).ok_or_else(|| {
        let message = format!("value \"{text}\" is out of range for type {ty}");
        Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message)
    })
}

fn float(ty: Type, text: &str) -> Result<f64> {
    let trimmed = text.trim_matches(is_space).to_ascii_lowercase();
    let is_word = matches!(trimmed.trim_start_matches(['-', '+']), "infinity" | "inf" | "nan");
    let value: f64 = trimmed.parse().map_err(|_| invalid(ty, text))?;
    let value = if ty == Type::Float4 { f64::from(narrow(value)) } else { value };
    let has_digits =
        trimmed.split('e').next().is_some_and(|mantissa| mantissa.contains(|l: char| ('1'..='9').contains(&l)));
    if value.is_infinite() && !is_word || value == 0.0 && has_digits {
        let message = format!("\"{text}\" is out of range for type {ty}");
        return Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message));
    }
    Ok(value)
}

fn bytes(text: &str) -> Result<Vec<u8>> {
    let bad = |message: &str| Error::new(SqlState::INVALID_PARAMETER_VALUE, message.to_owned());
    if let Some(digits) = text.strip_prefix("\\x") {
        let digits: Vec<char> = digits.chars().filter(|letter| !matches!(letter, ' ' | '\t' | '\n' | '\r')).collect();
        if !digits.len().is_multiple_of(2) {
            return Err(bad("invalid hexadecimal data: odd number of digits"));
        }
        let value = |letter: char| {
            let found = letter.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            found.ok_or_else(|| bad(&format!("invalid hexadecimal digit: \"{letter}\"")))
        };
        return digits.chunks(2).map(|pair| Ok(value(pair[0])? << 4 | value(pair[1])?)).collect();
    }
    let mut found = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match (first, rest) {
            (b'\\', [b'\\', after @ ..]) => (found.push(b'\\'), rest = after).0,
            (b'\\', [high @ b'0'..=b'3', middle @ b'0'..=b'7', low @ b'0'..=b'7', after @ ..]) => {
                found.push((high - b'0') << 6 | (middle - b'0') << 3 | (low - b'0'));
                rest = after;
            }
            (b'\\', _) => return Err(invalid(Type::Bytea, text)),
            (byte, _) => found.push(*byte),
        }
    }
    Ok(found)
}

/// An array.
fn read_array(ty: Type, element: Type, text: &str) -> Result<Datum> {
    if matches!(ty, Type::Int2Vector | Type::OidVector) {
        return text
            .split(is_space)
            .filter(|part| !part.is_empty())
            .map(|part| decode(element, part))
            .collect::<Result<_>>()
            .map(Datum::Array);
    }
    let (bounds, rest) = array_bounds(text)?;
    let mut reader =
        ArrayReader { text, element, letters: rest.chars().peekable(), lengths: Vec::new(), values: Vec::new() };
    reader.skip_spaces();
    reader.braces(0)?;
    reader.skip_spaces();
    if reader.letters.next().is_some() {
        return Err(reader.malformed("Junk after closing right brace."));
    }
    let lengths: Vec<usize> = reader.lengths.iter().map(|length| length.unwrap_or(0)).collect();
    let Some(bounds) = bounds else {
        let dimensions = lengths.iter().map(|length| Dimension { low: 1, length: *length }).collect();
        return Ok(array::make(dimensions, reader.values));
    };
    let fits = bounds.len() == lengths.len() && bounds.iter().zip(&lengths).all(|(own, length)| own.length == *length);
    if !fits {
        return Err(reader.malformed("Specified array dimensions do not match array contents."));
    }
    Ok(array::make(bounds, reader.values))
}

fn malformed_array(text: &str, detail: &str) -> Error {
    let message = format!("malformed array literal: \"{text}\"");
    Error::new(SqlState::INVALID_TEXT_REPRESENTATION, message).detail(detail)
}

/// The bounds before the braces, `[0:2][1:3]=`, and the rest.
fn array_bounds(text: &str) -> Result<(Option<Vec<Dimension>>, &str)> {
    let bad = || malformed_array(text, "Array value must start with \"{\" or dimension information.");
    let mut rest = text.trim_matches(is_space);
    let mut found = Vec::new();
    while let Some(inner) = rest.strip_prefix('[') {
        let (bounds, after) = inner.split_once(']').ok_or_else(bad)?;
        let (low, high) = bounds.split_once(':').unwrap_or(("1", bounds));
        let number = |text: &str| text.trim().parse::<i32>().map(i64::from).map_err(|_| bad());
        let (low, high) = (number(low)?, number(high)?);
        let length = usize::try_from(high - low + 1).unwrap_or(0);
        if length == 0 {
            let message = "upper bound cannot be less than lower bound";
            return Err(Error::new(SqlState::ARRAY_SUBSCRIPT_ERROR, message));
        }
        found.push(Dimension { low, length });
        rest = after.trim_start_matches(is_space);
    }
    array::check_dimensions(found.len())?;
    array::check_bounds(&found)?;
    if found.is_empty() {
        return Ok((None, rest));
    }
    let rest = rest.strip_prefix('=').ok_or_else(|| malformed_array(text, "Missing \"=\" after array dimensions."))?;
    Ok((Some(found), rest))
}

/// An array that is being read.
struct ArrayReader<'t> {
    text: &'t str,
    element: Type,
    letters: std::iter::Peekable<std::str::Chars<'t>>,
    /// By depth: how many parts the braces have, once the first of them are read.
    lengths: Vec<Option<usize>>,
    values: Vec<Datum>,
}

impl ArrayReader<'_> {
    fn malformed(&self, detail: &str) -> Error {
        malformed_array(self.text, detail)
    }

    fn skip_spaces(&mut self) {
        while self.letters.next_if(|letter| is_space(*letter)).is_some() {}
    }

    /// Braces and what is in them.
    fn braces(&mut self, depth: usize) -> Result<()> {
        const UNEVEN: &str = "Multidimensional arrays must have sub-arrays with matching dimensions.";
        if self.letters.next_if_eq(&'{').is_none() {
            return Err(self.malformed("Array value must start with \"{\" or dimension information."));
        }
        array::check_dimensions(depth + 1)?;
        if self.lengths.len() == depth {
            if !self.values.is_empty() {
                return Err(self.malformed(UNEVEN));
            }
            self.lengths.push(None);
        }
        let mut count = 0;
        self.skip_spaces();
        while self.letters.peek() != Some(&'}') || count > 0 {
            self.skip_spaces();
            if self.letters.peek() == Some(&'{') {
                self.braces(depth + 1)?;
            } else {
                if self.lengths.len() > depth + 1 {
                    return Err(self.malformed(UNEVEN));
                }
                let value = self.value()?;
                self.values.push(value);
            }
            count += 1;
            self.skip_spaces();
            if self.letters.next_if_eq(&',').is_none() {
                break;
            }
        }
        if self.letters.next_if_eq(&'}').is_none() {
            return Err(self.malformed("Unexpected end of input."));
        }
        // Empty braces inside others are no array.
        if count == 0 && depth > 0 {
            return Err(self.malformed("Unexpected \"}\" character."));
        }
        if self.lengths[depth].replace(count).is_some_and(|before| before != count) {
            return Err(self.malformed(UNEVEN));
        }
        Ok(())
    }

    /// A value: in quotation marks, or up to the next comma or brace.
    fn value(&mut self) -> Result<Datum> {
        let (mut part, mut is_quoted) = (String::new(), false);
        if self.letters.next_if_eq(&'"').is_some() {
            is_quoted = true;
            loop {
                match self.letters.next().ok_or_else(|| self.malformed("Unexpected end of input."))? {
                    '"' => break,
                    '\\' => part.push(self.letters.next().ok_or_else(|| self.malformed("Unexpected end of input."))?),
                    letter => part.push(letter),
                }
            }
        } else {
            // Spaces after the last letter do not belong to the value, unless a backslash keeps them.
            let mut len = 0;
            while let Some(letter) = self.letters.next_if(|letter| !matches!(letter, ',' | '}')) {
                match letter {
                    '{' => return Err(self.malformed("Unexpected \"{\" character.")),
                    '"' => return Err(self.malformed("Unexpected array element.")),
                    '\\' => {
                        part.push(self.letters.next().ok_or_else(|| self.malformed("Unexpected end of input."))?);
                        is_quoted = true;
                        len = part.len();
                    }
                    letter => {
                        part.push(letter);
                        len = if is_space(letter) { len } else { part.len() };
                    }
                }
            }
            part.truncate(len);
            if part.is_empty() {
                return Err(self.malformed("Unexpected array element."));
            }
        }
        let is_null = !is_quoted && part.eq_ignore_ascii_case("null");
        if is_null { Ok(Datum::Null) } else { decode(self.element, &part) }
    }
}
