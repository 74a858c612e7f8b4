//! JSON: a tree with the places of its parts in the text (`json` keeps its text), and the values of `jsonb`.

use std::cmp::Ordering;
use std::fmt::Write;

use crate::datum::Datum;
use crate::error::{Error, Result, SqlState};
use crate::numeric::{Numeric, SCALE_MAX, WHOLE_MAX, overflow};
use crate::types::Type;

/// Most arrays and objects inside each other.
const DEPTH_MAX: usize = 500;

/// The largest exponent of a number that is written out as numeric shows it. It covers floating-point numbers.
/// One with a larger exponent keeps its text, or a short document would need much memory.
const EXPONENT_MAX: u64 = 400;

fn too_deep() -> Error {
    Error::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
        .hint("Use JSON with fewer arrays and objects inside each other.")
}

/// A value of `jsonb`: keys of objects are in order, each once.
///
/// ```
/// use lodestone_sql_types::json::Json;
///
/// let value = Json::parse(r#"{"b": [1, 2.50], "a": null, "b": "x"}"#, "jsonb")?;
/// assert_eq!(value.to_string(), r#"{"a": null, "b": "x"}"#);
/// # Ok::<(), lodestone_sql_types::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// The text of a number.
    Number(String),
    /// A text.
    Text(String),
    /// An array.
    Array(Vec<Json>),
    /// An object.
    Object(Vec<(String, Json)>),
}

/// A part of a text, with its place.
#[derive(Clone, Debug)]
pub struct Raw {
    /// Where it begins and ends.
    pub start: usize,
    /// See `start`.
    pub end: usize,
    /// Its parts.
    pub kind: RawKind,
}

/// The parts of a part.
#[derive(Clone, Debug)]
pub enum RawKind {
    /// `null`.
    Null,
    /// A truth value.
    Bool(bool),
    /// A number, as it is written.
    Number,
    /// A text without its escapes.
    Text(String),
    /// The elements.
    Array(Vec<Raw>),
    /// The members, in the order of the text.
    Object(Vec<(String, Raw)>),
}

struct Parser<'t> {
    text: &'t str,
    place: usize,
    ty: &'static str,
    /// Escapes become letters: those that no text has are refused.
    is_strict: bool,
}

impl Raw {
    /// Reads `text`. `ty`: the type, for messages.
    ///
    /// # Errors
    /// 22P02; 54001.
    pub fn parse(text: &str, ty: &'static str) -> Result<Self> {
        Parser { text, place: 0, ty, is_strict: ty == "jsonb" }.whole()
    }

    /// The member of an object with this key, the last one of several.
    #[must_use]
    pub fn member(&self, key: &str) -> Option<&Self> {
        match &self.kind {
            RawKind::Object(members) => members.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// The element of an array with this number, from the end if it is negative.
    #[must_use]
    pub fn element(&self, number: i64) -> Option<&Self> {
        match &self.kind {
            RawKind::Array(elements) => place_of(number, elements.len()).and_then(|place| elements.get(place)),
            _ => None,
        }
    }

    /// The part that a path of keys and numbers leads to.
    #[must_use]
    pub fn path(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |at, step| match at.kind {
            RawKind::Object(_) => at.member(step),
            RawKind::Array(_) => at.element(step.trim().parse().ok()?),
            _ => None,
        })
    }

    /// The text of the part; `None` for `null`.
    #[must_use]
    pub fn as_text(&self, whole: &str) -> Option<String> {
        match &self.kind {
            RawKind::Null => None,
            RawKind::Text(text) => Some(text.clone()),
            _ => Some(whole[self.start..self.end].to_owned()),
        }
    }

    /// The value for `jsonb`.
    ///
    /// # Errors
    /// 22003 for a number that is too large.
    pub fn value(&self, whole: &str) -> Result<Json> {
        Ok(match &self.kind {
            RawKind::Null => Json::Null,
            RawKind::Bool(value) => Json::Bool(*value),
            RawKind::Number => Json::Number(number_text(&whole[self.start..self.end])?),
            RawKind::Text(text) => Json::Text(text.clone()),
            RawKind::Array(list) => Json::Array(list.iter().map(|part| part.value(whole)).collect::<Result<_>>()?),
            RawKind::Object(members) => {
                let pairs = members.iter().map(|(key, part)| Ok((key.clone(), part.value(whole)?)));
                Json::object(pairs.collect::<Result<_>>()?)
            }
        })
    }
}

/// The place of an element that is counted from either end.
fn place_of(number: i64, length: usize) -> Option<usize> {
    match usize::try_from(number) {
        Ok(place) => (place < length).then_some(place),
        Err(_) => length.checked_sub(usize::try_from(number.unsigned_abs()).ok()?),
    }
}

/// A number as numeric shows it.
///
/// # Errors
/// 22003 for one that numeric does not hold.
fn number_text(text: &str) -> Result<String> {
    let Some((mantissa, exponent)) = text.split_once(['e', 'E']) else {
        return Ok(text.parse::<Numeric>()?.to_string());
    };
    let exponent = exponent.parse::<i64>().map_err(|_| overflow())?;
    if exponent.unsigned_abs() <= EXPONENT_MAX {
        return Ok(text.parse::<Numeric>()?.to_string());
    }
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let length = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX);
    let scale = length(fraction).saturating_sub(exponent);
    // The digits before the point, if the number were written out.
    let whole = whole.trim_start_matches(['-', '0']);
    let zeros = length(fraction) - length(fraction.trim_start_matches('0'));
    let digits = if whole.is_empty() { exponent.saturating_sub(zeros) } else { length(whole).saturating_add(exponent) };
    let is_zero = whole.is_empty() && zeros == length(fraction);
    let limit = |limit: usize| i64::try_from(limit).unwrap_or(i64::MAX);
    match is_zero {
        true if scale <= 0 => Ok("0".into()),
        _ if scale > limit(SCALE_MAX.into()) || !is_zero && digits > limit(WHOLE_MAX) => Err(overflow()),
        _ => Ok(text.to_owned()),
    }
}

/// A text that equal numbers have in common: digits without zeros at their ends, and the exponent of the last one.
fn number_key(text: &str) -> String {
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |digits| ("-", digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{fraction}");
    let kept = all.trim_end_matches('0');
    let zeros = all.len() - kept.len();
    let kept = kept.trim_start_matches('0');
    if kept.is_empty() { "0".into() } else { format!("{sign}{kept}.{zeros}.{}", fraction.len()) }
}

impl Parser<'_> {
    fn error(&self, detail: impl Into<String>) -> Error {
        let message = format!("invalid input syntax for type {}", if self.ty == "jsonb" { "json" } else { self.ty });
        Error::new(SqlState::INVALID_TEXT_REPRESENTATION, message).detail(detail.into())
    }

    fn unexpected(&self) -> Error {
        let rest = &self.text[self.place..];
        if rest.is_empty() {
            return self.error("The input string ended unexpectedly.");
        }
        let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
        let token: String = if end == 0 { rest.chars().take(1).collect() } else { rest[..end].to_owned() };
        self.error(format!("Token \"{token}\" is invalid."))
    }

    fn blanks(&mut self) {
        let rest = &self.text[self.place..];
        self.place += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.place).copied()
    }

    fn accept(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.place += usize::from(found);
        found
    }

    fn whole(&mut self) -> Result<Raw> {
        let found = self.value(0)?;
        self.blanks();
        if self.place == self.text.len() { Ok(found) } else { Err(self.unexpected()) }
    }

    fn value(&mut self, depth: usize) -> Result<Raw> {
        if depth > DEPTH_MAX {
            return Err(too_deep());
        }
        self.blanks();
        let start = self.place;
        let kind = match self.peek() {
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.array(depth)?,
            Some(b'"') => RawKind::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => self.word()?,
        };
        Ok(Raw { start, end: self.place, kind })
    }

    fn object(&mut self, depth: usize) -> Result<RawKind> {
        self.place += 1;
        let mut members = Vec::new();
        self.blanks();
        if self.accept(b'}') {
            return Ok(RawKind::Object(members));
        }
        loop {
            self.blanks();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected());
            }
            let key = self.string()?;
            self.blanks();
            if !self.accept(b':') {
                return Err(self.unexpected());
            }
            members.push((key, self.value(depth + 1)?));
            self.blanks();
            if self.accept(b'}') {
                return Ok(RawKind::Object(members));
            }
            if !self.accept(b',') {
                return Err(self.unexpected());
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<RawKind> {
        self.place += 1;
        let mut elements = Vec::new();
        self.blanks();
        if self.accept(b']') {
            return Ok(RawKind::Array(elements));
        }
        loop {
            elements.push(self.value(depth + 1)?);
            self.blanks();
            if self.accept(b']') {
                return Ok(RawKind::Array(elements));
            }
            if !self.accept(b',') {
                return Err(self.unexpected());
            }
        }
    }

    fn word(&mut self) -> Result<RawKind> {
        let words = [("true", RawKind::Bool(true)), ("false", RawKind::Bool(false)), ("null", RawKind::Null)];
        let rest = &self.text[self.place..];
        let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
        for (word, kind) in words {
            if rest[..end] == *word {
                self.place += end;
                return Ok(kind);
            }
        }
        Err(self.unexpected())
    }

    fn number(&mut self) -> Result<RawKind> {
        let bytes = self.text.as_bytes();
        let digits = |mut place: usize| {
            while bytes.get(place).is_some_and(u8::is_ascii_digit) {
                place += 1;
            }
            place
        };
        let start = self.place + usize::from(bytes[self.place] == b'-');
        let mut end = digits(start);
        let mut is_right = end > start && (bytes[start] != b'0' || end == start + 1);
        if bytes.get(end) == Some(&b'.') {
            let after = digits(end + 1);
            is_right &= after > end + 1;
            end = after;
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let from = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let after = digits(from);
            is_right &= after > from;
            end = after;
        }
        let follows = self.text[end..].chars().next().is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
        if !is_right || follows {
            return Err(self.unexpected());
        }
        self.place = end;
        Ok(RawKind::Number)
    }

    fn string(&mut self) -> Result<String> {
        self.place += 1;
        let mut found = String::new();
        loop {
            let rest = &self.text[self.place..];
            let Some(letter) = rest.chars().next() else {
                return Err(self.error("The input string ended unexpectedly."));
            };
            self.place += letter.len_utf8();
            match letter {
                '"' => return Ok(found),
                '\\' => self.escape(&mut found)?,
                letter if u32::from(letter) < 32 => {
                    return Err(
                        self.error(format!("Character with value 0x{:02x} must be escaped.", u32::from(letter)))
                    );
                }
                letter => found.push(letter),
            }
        }
    }

    fn escape(&mut self, found: &mut String) -> Result<()> {
        let Some(letter) = self.text[self.place..].chars().next() else {
            return Err(self.error("The input string ended unexpectedly."));
        };
        self.place += letter.len_utf8();
        found.push(match letter {
            '"' | '\\' | '/' => letter,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => return self.unicode(found),
            other => return Err(self.error(format!("Escape sequence \"\\{other}\" is invalid."))),
        });
        Ok(())
    }

    fn unicode(&mut self, found: &mut String) -> Result<()> {
        let first = self.four()?;
        let code = if (0xd800..0xdc00).contains(&first) {
            if !self.text[self.place..].starts_with("\\u") {
                return Err(self.error("Unicode low surrogate must follow a high surrogate."));
            }
            self.place += 2;
            let second = self.four()?;
            if !(0xdc00..0xe000).contains(&second) {
                return Err(self.error("Unicode low surrogate must follow a high surrogate."));
            }
            0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00)
        } else {
            first
        };
        match char::from_u32(code) {
            Some('\0') if self.is_strict => {
                Err(Error::new(SqlState::UNTRANSLATABLE_CHARACTER, "unsupported Unicode escape sequence")
                    .detail("\\u0000 cannot be converted to text."))
            }
            // The text of a `json` keeps it; only its value cannot be had.
            Some('\0') => {
                found.push_str("\\u0000");
                Ok(())
            }
            Some(letter) => {
                found.push(letter);
                Ok(())
            }
            None => Err(self.error("Unicode low surrogate must follow a high surrogate.")),
        }
    }

    fn four(&mut self) -> Result<u32> {
        let error = "\"\\u\" must be followed by four hexadecimal digits.";
        let digits = self.text.get(self.place..self.place + 4).ok_or_else(|| self.error(error))?;
        let code = digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok());
        self.place += 4;
        code.flatten().ok_or_else(|| self.error(error))
    }
}

/// Keys are in the order of their lengths, then of their bytes.
fn key_order(one: &str, two: &str) -> Ordering {
    one.len().cmp(&two.len()).then_with(|| one.cmp(two))
}

/// Most bytes of the elements of an array that an assignment fills.
const ASSIGNED_BYTES_MAX: usize = 256 << 20;

/// The number of an element in a path.
fn path_index(step: &str, at: usize) -> Result<i64> {
    step.trim().parse().map_err(|_| {
        let message = format!("path element at position {at} is not an integer: \"{step}\"");
        Error::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
    })
}

impl Json {
    /// Reads `text`.
    ///
    /// # Errors
    /// As [`Raw::parse`].
    pub fn parse(text: &str, ty: &'static str) -> Result<Self> {
        Raw::parse(text, ty)?.value(text)
    }

    /// An object of these members; of several with one key the last one stays.
    #[must_use]
    pub fn object(mut members: Vec<(String, Json)>) -> Self {
        members.sort_by(|one, two| key_order(&one.0, &two.0));
        let mut kept: Vec<(String, Json)> = Vec::with_capacity(members.len());
        for member in members {
            match kept.last_mut() {
                Some(last) if last.0 == member.0 => *last = member,
                _ => kept.push(member),
            }
        }
        Self::Object(kept)
    }

    /// The value, if it is not too deep to be read again from its text.
    ///
    /// # Errors
    /// 54001.
    pub fn checked(self) -> Result<Self> {
        if self.fits(0) { Ok(self) } else { Err(too_deep()) }
    }

    fn fits(&self, depth: usize) -> bool {
        depth <= DEPTH_MAX
            && match self {
                Self::Array(elements) => elements.iter().all(|element| element.fits(depth + 1)),
                Self::Object(members) => members.iter().all(|(_, value)| value.fits(depth + 1)),
                _ => true,
            }
    }

    /// The member with this key.
    #[must_use]
    pub fn member(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => {
                let found = members.binary_search_by(|(name, _)| key_order(name, key)).ok()?;
                Some(&members[found].1)
            }
            _ => None,
        }
    }

    /// The element with this number, from the end if it is negative.
    #[must_use]
    pub fn element(&self, number: i64) -> Option<&Self> {
        match self {
            Self::Array(elements) => place_of(number, elements.len()).and_then(|place| elements.get(place)),
            _ => None,
        }
    }

    /// The part that a path leads to.
    #[must_use]
    pub fn path(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |at, step| match at {
            Self::Object(_) => at.member(step),
            Self::Array(_) => at.element(step.trim().parse().ok()?),
            _ => None,
        })
    }

    /// The value with another part, as an assignment to subscripts makes it. Containers that are missing are made, and
    /// gaps of arrays are filled with nulls.
    ///
    /// # Errors
    /// 22023; 22P02.
    pub fn assigned(self, path: &[String], value: Self) -> Result<Self> {
        self.assigned_at(path, value, 1)
    }

    fn assigned_at(self, path: &[String], value: Self, at: usize) -> Result<Self> {
        let Some((step, rest)) = path.split_first() else { return Ok(value) };
        match self {
            Self::Object(mut members) => {
                match members.binary_search_by(|(name, _)| key_order(name, step)) {
                    Ok(found) => {
                        let before = std::mem::replace(&mut members[found].1, Self::Null);
                        members[found].1 = before.assigned_at(rest, value, at + 1)?;
                    }
                    Err(place) => members.insert(place, (step.clone(), Self::made(rest, value, at + 1)?)),
                }
                Ok(Self::Object(members))
            }
            Self::Array(mut elements) => {
                let number = path_index(step, at)?;
                let place =
                    if number < 0 { i64::try_from(elements.len()).unwrap_or(i64::MAX) + number } else { number };
                let place = usize::try_from(place).map_err(|_| {
                    let message = format!("path element at position {at} is out of range: {number}");
                    Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
                })?;
                crate::text::check_length(place.saturating_mul(size_of::<Self>()), ASSIGNED_BYTES_MAX)?;
                let is_new = place >= elements.len();
                if is_new {
                    elements.resize(place, Self::Null);
                    elements.push(Self::made(rest, value, at + 1)?);
                } else {
                    let before = std::mem::replace(&mut elements[place], Self::Null);
                    elements[place] = before.assigned_at(rest, value, at + 1)?;
                }
                Ok(Self::Array(elements))
            }
            _ => {
                let message = "cannot replace existing key";
                Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
                    .detail("The path assumes key is a composite object, but it is a scalar value."))
            }
        }
    }

    /// A new part: arrays for numbers, objects for other keys.
    fn made(path: &[String], value: Self, at: usize) -> Result<Self> {
        let Some(step) = path.first() else { return Ok(value) };
        let empty = if step.trim().parse::<i64>().is_ok() { Self::Array(Vec::new()) } else { Self::Object(Vec::new()) };
        empty.assigned_at(path, value, at)
    }

    /// The text of the value; `None` for `null`.
    #[must_use]
    pub fn as_text(&self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Text(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }

    /// The word of `jsonb_typeof`.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "boolean",
            Self::Number(_) => "number",
            Self::Text(_) => "string",
            Self::Array(_) => "array",
            Self::Object(_) => "object",
        }
    }

    /// Whether it has a key, or an element that is this text.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        match self {
            Self::Object(_) => self.member(key).is_some(),
            Self::Array(elements) => elements.iter().any(|element| matches!(element, Self::Text(text) if text == key)),
            Self::Text(text) => text == key,
            _ => false,
        }
    }

    /// Whether `part` is in it: members and elements of it are, at any place of an array.
    #[must_use]
    pub fn contains(&self, part: &Self) -> bool {
        match (self, part) {
            (Self::Object(_), Self::Object(members)) => {
                members.iter().all(|(key, value)| self.member(key).is_some_and(|own| own.is_like(value)))
            }
            (Self::Array(own), Self::Array(elements)) => {
                elements.iter().all(|element| own.iter().any(|own| own.is_like(element)))
            }
            // An array contains a single value, at the top only.
            (Self::Array(own), single) if !matches!(single, Self::Object(_)) => {
                own.iter().any(|own| own.order(single).is_eq())
            }
            (one, two) => !matches!(one, Self::Object(_) | Self::Array(_)) && one.order(two).is_eq(),
        }
    }

    fn is_like(&self, part: &Self) -> bool {
        match (self, part) {
            (Self::Object(_), Self::Object(_)) | (Self::Array(_), Self::Array(_)) => self.contains(part),
            (Self::Object(_) | Self::Array(_), _) | (_, Self::Object(_) | Self::Array(_)) => false,
            (one, two) => one.order(two).is_eq(),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Null => 1,
            Self::Text(_) => 2,
            Self::Number(_) => 3,
            Self::Bool(_) => 4,
            Self::Array(_) => 5,
            Self::Object(_) => 6,
        }
    }

    /// The order of two values.
    #[must_use]
    pub fn order(&self, other: &Self) -> Ordering {
        // An array without elements is below everything, but only as a whole value.
        let is_lowest = |value: &Self| matches!(value, Self::Array(elements) if elements.is_empty());
        is_lowest(other).cmp(&is_lowest(self)).then_with(|| self.order_inside(other))
    }

    /// The order of two values that are parts of others.
    fn order_inside(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(one), Self::Bool(two)) => one.cmp(two),
            (Self::Number(one), Self::Number(two)) => order_numbers(one, two),
            (Self::Text(one), Self::Text(two)) => one.as_bytes().cmp(two.as_bytes()),
            (Self::Array(one), Self::Array(two)) => {
                let pairs = || one.iter().zip(two).map(|(one, two)| one.order_inside(two)).find(|order| order.is_ne());
                one.len().cmp(&two.len()).then_with(|| pairs().unwrap_or(Ordering::Equal))
            }
            (Self::Object(one), Self::Object(two)) => {
                let pair = |((one_key, one), (two_key, two)): (&(String, Self), &(String, Self))| {
                    key_order(one_key, two_key).then_with(|| one.order_inside(two))
                };
                let pairs = || one.iter().zip(two).map(pair).find(|order| order.is_ne());
                one.len().cmp(&two.len()).then_with(|| pairs().unwrap_or(Ordering::Equal))
            }
            (one, two) => one.rank().cmp(&two.rank()),
        }
    }

    /// Bytes that are equal when values are.
    pub fn key(&self, bytes: &mut Vec<u8>) {
        let text = |text: &str, bytes: &mut Vec<u8>| {
            bytes.extend(lodestone_width::to_u64(text.len()).to_le_bytes());
            bytes.extend(text.as_bytes());
        };
        bytes.push(self.rank());
        match self {
            Self::Null => {}
            Self::Bool(value) => bytes.push(u8::from(*value)),
            Self::Number(number) => match number.parse::<Numeric>() {
                Ok(number) => text(&number_key(&number.trimmed().to_string()), bytes),
                Err(_) => text(number, bytes),
            },
            Self::Text(value) => text(value, bytes),
            Self::Array(elements) => {
                elements.iter().for_each(|element| element.key(bytes));
                bytes.push(u8::MAX);
            }
            Self::Object(members) => {
                for (key, value) in members {
                    text(key, bytes);
                    value.key(bytes);
                }
                bytes.push(u8::MAX);
            }
        }
    }

    /// The text with a line for each member and element.
    ///
    /// # Errors
    /// 54000 for a text that is too long: each line begins with four blanks for each object around it.
    pub fn pretty(&self) -> Result<String> {
        let blanks = self.blanks(0);
        crate::text::check_length(blanks, crate::text::BYTES_MAX)?;
        let mut text = String::new();
        self.write(&mut text, Some(0));
        Ok(text)
    }

    /// Blanks at the beginning of the lines of [`pretty`](Self::pretty).
    fn blanks(&self, indent: usize) -> usize {
        let of = |sum: usize, inner: &Self| sum.saturating_add(indent + 4).saturating_add(inner.blanks(indent + 4));
        match self {
            Self::Array(elements) => elements.iter().fold(indent, of),
            Self::Object(members) => members.iter().map(|(_, value)| value).fold(indent, of),
            _ => 0,
        }
    }

    fn write(&self, text: &mut String, indent: Option<usize>) {
        let line = |text: &mut String, indent: Option<usize>| {
            if let Some(indent) = indent {
                text.push('\n');
                text.push_str(&" ".repeat(indent));
            }
        };
        let inner = indent.map(|indent| indent + 4);
        let comma = if indent.is_some() { "," } else { ", " };
        match self {
            Self::Null => text.push_str("null"),
            Self::Bool(value) => _ = write!(text, "{value}"),
            Self::Number(number) => text.push_str(number),
            Self::Text(value) => quote(value, text),
            Self::Array(elements) => {
                text.push('[');
                for (number, element) in elements.iter().enumerate() {
                    if number > 0 {
                        text.push_str(comma);
                    }
                    line(text, inner);
                    element.write(text, inner);
                }
                line(text, indent);
                text.push(']');
            }
            Self::Object(members) => {
                text.push('{');
                for (number, (key, value)) in members.iter().enumerate() {
                    if number > 0 {
                        text.push_str(comma);
                    }
                    line(text, inner);
                    quote(key, text);
                    text.push_str(": ");
                    value.write(text, inner);
                }
                line(text, indent);
                text.push('}');
            }
        }
    }
}

/// Numbers beyond numeric are compared as floating-point numbers.
fn order_numbers(one: &str, two: &str) -> Ordering {
    match (one.parse::<Numeric>(), two.parse::<Numeric>()) {
        (Ok(one), Ok(two)) => one.cmp(&two),
        _ => {
            let real = |text: &str| text.parse::<f64>().unwrap_or(0.0);
            real(one).total_cmp(&real(two))
        }
    }
}

impl std::fmt::Display for Json {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::new();
        self.write(&mut text, None);
        f.write_str(&text)
    }
}

/// Appends a text in quotes.
pub fn quote(value: &str, text: &mut String) {
    text.push('"');
    for letter in value.chars() {
        match letter {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            letter if u32::from(letter) < 32 => _ = write!(text, "\\u{:04x}", u32::from(letter)),
            letter => text.push(letter),
        }
    }
    text.push('"');
}

/// The JSON text of a value of type `ty`, as `to_json` gives it.
///
/// # Errors
/// 54001 for an array or row of JSON that is too deep.
pub fn of_datum(ty: Type, datum: &Datum) -> Result<String> {
    let text = text_of(ty, datum);
    // A value that has others in it may be deeper than those.
    if matches!(datum, Datum::Array(_) | Datum::Shaped(_) | Datum::Record(_)) {
        Raw::parse(&text, "json")?;
    }
    Ok(text)
}

fn text_of(ty: Type, datum: &Datum) -> String {
    let mut text = String::new();
    match datum {
        Datum::Null => text.push_str("null"),
        Datum::Bool(value) => _ = write!(text, "{value}"),
        Datum::Text(value) if ty == Type::Json => text.push_str(value),
        Datum::Json(value) => value.write(&mut text, None),
        Datum::Int(value) if ty.is_number() => _ = write!(text, "{value}"),
        Datum::Float(value) if value.is_finite() => text.push_str(&crate::text::encode(ty, datum)),
        Datum::Numeric(value) if value.is_finite() => _ = write!(text, "{value}"),
        Datum::Array(values) => {
            let element = ty.element().unwrap_or(Type::Text);
            let parts: Vec<String> = values.iter().map(|value| text_of(element, value)).collect();
            _ = write!(text, "[{}]", parts.join(","));
        }
        Datum::Shaped(shaped) => {
            let element = ty.element().unwrap_or(Type::Text);
            let mut parts: Vec<String> = shaped.values.iter().map(|value| text_of(element, value)).collect();
            for dimension in shaped.dimensions.iter().rev() {
                parts = parts.chunks(dimension.length.max(1)).map(|part| format!("[{}]", part.join(","))).collect();
            }
            text.push_str(&parts.join(","));
        }
        Datum::Record(values) => {
            let member = |(number, value): (usize, &Datum)| {
                if let Some(field) = ty.attributes().and_then(|list| list.get(number)) {
                    let mut member = String::new();
                    quote(&field.name, &mut member);
                    return format!("{member}:{}", text_of(field.ty, value));
                }
                // The fields of a row that was written have no types of their own.
                let ty = match value {
                    Datum::Int(_) => Type::Int8,
                    Datum::Float(_) => Type::Float8,
                    Datum::Numeric(_) => Type::Numeric,
                    Datum::Date(_) => Type::Date,
                    Datum::Time(_) => Type::Timestamp,
                    _ => Type::Text,
                };
                format!("\"f{}\":{}", number + 1, text_of(ty, value))
            };
            let members: Vec<String> = values.iter().enumerate().map(member).collect();
            _ = write!(text, "{{{}}}", members.join(","));
        }
        // Days and moments are always those of ISO 8601, in the zone of the session.
        Datum::Date(_) => quote(&crate::style::plain(|| crate::text::encode(ty, datum)), &mut text),
        Datum::Time(micros) if matches!(ty, Type::Timestamp | Type::Timestamptz) => {
            let at = crate::style::with(|style| style.zone.at(*micros));
            let is_finite = !matches!(*micros, i64::MAX | i64::MIN);
            let has_zone = ty == Type::Timestamptz && is_finite;
            let local = if has_zone { micros.saturating_add(at.seconds * 1_000_000) } else { *micros };
            let plain = crate::style::plain(|| crate::time::time_text(local, false)).replacen(' ', "T", 1);
            let (plain, era) = plain.split_once(" BC").map_or((plain.as_str(), ""), |(plain, _)| (plain, " BC"));
            let offset = if has_zone { crate::zone::offset_text(at.seconds, true) } else { String::new() };
            quote(&format!("{plain}{offset}{era}"), &mut text);
        }
        other => quote(&crate::text::encode(ty, other), &mut text),
    }
    text
}
