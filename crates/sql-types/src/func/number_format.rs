//! `to_char` of numbers, and `to_number`: templates of `PostgreSQL`.
//!
//! 1. A template is read into parts: patterns, and texts that are copied ([`parse`]).
//! 2. The patterns together say how many digits there are before and after the point, and where the sign is
//!    ([`Shape`]).
//! 3. The digits of the number, rounded to that shape, are put into the parts ([`Writer`]). `to_number` takes them out
//!    of a text ([`Reader`]).

use super::{FLOAT, FLOAT4, Function, INT4, INT8, NUMERIC, TEXT, of, text};
use crate::datum::Datum;
use crate::error::{Error, Result, SqlState};
use crate::numeric::Numeric;
use crate::types::Type;

pub const FUNCTIONS: &[Function] = &[
    of("to_char", &[INT4, TEXT], Type::Text, |_, a| whole(a)),
    of("to_char", &[INT8, TEXT], Type::Text, |_, a| whole(a)),
    of("to_char", &[NUMERIC, TEXT], Type::Text, |_, a| match &a[0] {
        Datum::Numeric(value) => written(value, text(a, 1)),
        _ => Ok(Datum::Null),
    }),
    of("to_char", &[FLOAT4, TEXT], Type::Text, |_, a| real(a, 6)),
    of("to_char", &[FLOAT, TEXT], Type::Text, |_, a| real(a, 15)),
    of("to_number", &[TEXT, TEXT], Type::Numeric, |_, a| read(text(a, 0), text(a, 1))),
];

/// The patterns. Longer ones come before those that they begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    Exponent,
    Comma,
    Point,
    Zero,
    Nine,
    Blank,
    LocalPoint,
    Fill,
    Group,
    Currency,
    Minus,
    Plus,
    Brackets,
    Roman { is_lower: bool },
    AnySign,
    Spell,
    Sign,
    Ordinal { is_lower: bool },
    Shift,
}

const PATTERNS: &[(&str, Pattern)] = &[
    ("EEEE", Pattern::Exponent),
    (",", Pattern::Comma),
    (".", Pattern::Point),
    ("0", Pattern::Zero),
    ("9", Pattern::Nine),
    ("B", Pattern::Blank),
    ("D", Pattern::LocalPoint),
    ("FM", Pattern::Fill),
    ("G", Pattern::Group),
    ("L", Pattern::Currency),
    ("MI", Pattern::Minus),
    ("PL", Pattern::Plus),
    ("PR", Pattern::Brackets),
    ("RN", Pattern::Roman { is_lower: false }),
    ("SG", Pattern::AnySign),
    ("SP", Pattern::Spell),
    ("S", Pattern::Sign),
    ("TH", Pattern::Ordinal { is_lower: false }),
    ("V", Pattern::Shift),
];

/// A part of a template.
#[derive(Debug)]
enum Part {
    Pattern(Pattern),
    Letter(char),
}

fn parse(template: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some(letter) = rest.chars().next() {
        let found = PATTERNS.iter().find_map(|(name, pattern)| {
            let lower = name.to_ascii_lowercase();
            if rest.starts_with(name) {
                return Some((name.len(), *pattern));
            }
            let pattern = match pattern {
                Pattern::Roman { .. } => Pattern::Roman { is_lower: true },
                Pattern::Ordinal { .. } => Pattern::Ordinal { is_lower: true },
                other => *other,
            };
            rest.starts_with(&lower).then_some((name.len(), pattern))
        });
        if let Some((length, pattern)) = found {
            parts.push(Part::Pattern(pattern));
            rest = &rest[length..];
        } else if letter == '"' {
            rest = quoted(&rest[1..], &mut parts);
        } else {
            // A backslash counts only before a quote.
            rest = if rest.starts_with("\\\"") { &rest[1..] } else { rest };
            let letter = rest.chars().next().unwrap_or(letter);
            parts.push(Part::Letter(letter));
            rest = &rest[letter.len_utf8()..];
        }
    }
    parts
}

/// The letters up to the closing quote. Returns what comes after it.
fn quoted<'t>(text: &'t str, parts: &mut Vec<Part>) -> &'t str {
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return &text[at + 1..],
            '\\' => parts.extend(letters.next().map(|(_, letter)| Part::Letter(letter))),
            letter => parts.push(Part::Letter(letter)),
        }
    }
    ""
}

/// Where the sign of the locale is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Anchor {
    Before,
    After,
}

/// The patterns of a template together.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a pattern that is there or not")]
struct Shape {
    before: usize,
    after: usize,
    /// Digits that are multiplied away by `V`.
    shift: usize,
    /// The first digit that is shown as a zero.
    zeros: Option<usize>,
    /// The digits up to the last one that is shown as a zero.
    zeros_end: usize,
    sign: Option<Anchor>,
    digits_before_sign: usize,
    has_point: bool,
    fills: bool,
    has_minus: bool,
    has_plus: bool,
    has_brackets: bool,
    is_roman: bool,
    has_shift: bool,
    has_exponent: bool,
    is_blank: bool,
}

fn wrong(message: &'static str) -> Error {
    Error::new(SqlState::SYNTAX_ERROR, message)
}

impl Shape {
    fn of(parts: &[Part]) -> Result<Self> {
        let mut shape = Self::default();
        for part in parts {
            if let Part::Pattern(pattern) = part {
                shape.add(*pattern)?;
            }
        }
        Ok(shape)
    }

    fn add(&mut self, pattern: Pattern) -> Result<()> {
        if self.has_exponent && pattern != Pattern::Exponent {
            return Err(wrong("\"EEEE\" must be the last pattern used"));
        }
        match pattern {
            Pattern::Nine if self.has_brackets => return Err(wrong("\"9\" must be ahead of \"PR\"")),
            Pattern::Nine if self.has_shift => self.shift += 1,
            Pattern::Nine if self.has_point => self.after += 1,
            Pattern::Nine => self.before += 1,
            Pattern::Zero => self.add_zero()?,
            Pattern::Blank if self.before == 0 && self.after == 0 && self.zeros.is_none() => self.is_blank = true,
            Pattern::Point | Pattern::LocalPoint => {
                if self.has_point {
                    return Err(wrong("multiple decimal points"));
                }
                if self.has_shift {
                    return Err(wrong("cannot use \"V\" and decimal point together"));
                }
                self.has_point = true;
            }
            Pattern::Fill => self.fills = true,
            Pattern::Roman { .. } => self.is_roman = true,
            Pattern::Shift if self.has_point => return Err(wrong("cannot use \"V\" and decimal point together")),
            Pattern::Shift => self.has_shift = true,
            Pattern::Exponent => self.add_exponent()?,
            other => self.add_sign(other)?,
        }
        Ok(())
    }

    fn add_zero(&mut self) -> Result<()> {
        if self.has_brackets {
            return Err(wrong("\"0\" must be ahead of \"PR\""));
        }
        if self.zeros.is_none() && !self.has_point {
            self.zeros = Some(self.before);
        }
        if self.has_point {
            self.after += 1;
        } else {
            self.before += 1;
        }
        self.zeros_end = self.before + self.after;
        Ok(())
    }

    fn add_exponent(&mut self) -> Result<()> {
        if self.has_exponent {
            return Err(wrong("cannot use \"EEEE\" twice"));
        }
        let is_other = self.is_blank || self.fills || self.sign.is_some() || self.has_brackets || self.has_minus;
        if is_other || self.has_plus || self.is_roman || self.has_shift {
            return Err(wrong("\"EEEE\" is incompatible with other formats")
                .detail("\"EEEE\" may only be used together with digit and decimal point patterns."));
        }
        self.has_exponent = true;
        Ok(())
    }

    fn add_sign(&mut self, pattern: Pattern) -> Result<()> {
        let has_other = self.has_plus || self.has_minus;
        match pattern {
            Pattern::Sign => {
                if self.sign.is_some() {
                    return Err(wrong("cannot use \"S\" twice"));
                }
                if has_other || self.has_brackets {
                    return Err(wrong("cannot use \"S\" and \"PL\"/\"MI\"/\"SG\"/\"PR\" together"));
                }
                self.digits_before_sign = self.before;
                self.sign = Some(if self.has_point { Anchor::After } else { Anchor::Before });
            }
            Pattern::Minus | Pattern::Plus | Pattern::AnySign if self.sign.is_some() => {
                return Err(wrong(match pattern {
                    Pattern::Minus => "cannot use \"S\" and \"MI\" together",
                    Pattern::Plus => "cannot use \"S\" and \"PL\" together",
                    _ => "cannot use \"S\" and \"SG\" together",
                }));
            }
            Pattern::Brackets if self.sign.is_some() || has_other => {
                return Err(wrong("cannot use \"PR\" and \"S\"/\"PL\"/\"MI\"/\"SG\" together"));
            }
            Pattern::Brackets => self.has_brackets = true,
            Pattern::Minus => self.has_minus = true,
            Pattern::Plus => self.has_plus = true,
            Pattern::AnySign => (self.has_minus, self.has_plus) = (true, true),
            _ => {}
        }
        Ok(())
    }
}

fn whole(arguments: &[Datum]) -> Result<Datum> {
    match arguments[0].as_int() {
        Some(value) => written(&value.into(), text(arguments, 1)),
        None => Ok(Datum::Null),
    }
}

/// A floating-point number has no more digits than its type keeps.
fn real(arguments: &[Datum], digits: usize) -> Result<Datum> {
    let Datum::Float(value) = arguments[0] else { return Ok(Datum::Null) };
    let template = text(arguments, 1);
    let parts = parse(template);
    let mut shape = Shape::of(&parts)?;
    if !value.is_finite() || shape.has_exponent {
        return written_as(&Numeric::of_f64(value)?, &parts, shape);
    }
    let shifted = value * 10_f64.powi(i32::try_from(shape.shift).unwrap_or(0));
    let length = format!("{:.0}", shifted.abs()).len();
    let after = if length >= digits { 0 } else { shape.after.min(digits - length) };
    shape.before += shape.shift;
    (shape.shift, shape.after) = (0, after);
    let number: Numeric = format!("{shifted:.after$}").parse()?;
    written_as(&number, &parts, shape)
}

fn written(value: &Numeric, template: &str) -> Result<Datum> {
    let parts = parse(template);
    let shape = Shape::of(&parts)?;
    written_as(value, &parts, shape)
}

fn written_as(value: &Numeric, parts: &[Part], mut shape: Shape) -> Result<Datum> {
    if parts.is_empty() {
        return Ok(Datum::Text(String::new()));
    }
    if shape.is_roman {
        return Ok(Datum::Text(Writer::roman(value, parts, shape.fills)?));
    }
    if shape.has_exponent {
        return Ok(Datum::Text(scientific(value, &shape)?));
    }
    let mut value = value.clone();
    if shape.shift > 0 {
        let factor: Numeric = format!("1{}", "0".repeat(shape.shift)).parse()?;
        value = value.multiply(&factor)?;
        shape.before += shape.shift;
    }
    let rounded = value.round(u16::try_from(shape.after).unwrap_or(u16::MAX))?.to_string();
    let (is_negative, digits) = match rounded.strip_prefix('-') {
        Some(digits) => (true, digits.to_owned()),
        None => (false, rounded),
    };
    let length = digits.find('.').unwrap_or(digits.len());
    let (digits, spaces) = match shape.before.checked_sub(length) {
        Some(spaces) => (digits, spaces),
        // It does not fit.
        None => (format!("{}.{}", "#".repeat(shape.before), "#".repeat(shape.after)), 0),
    };
    Ok(Datum::Text(Writer::new(shape, is_negative, digits, spaces).run(parts)))
}

/// A number as `1.5e+03`.
fn scientific(value: &Numeric, shape: &Shape) -> Result<String> {
    if !value.is_finite() {
        let after = if shape.has_point { format!(".{}", "#".repeat(shape.after + 4)) } else { "#".repeat(4) };
        return Ok(format!(" {}{after}", "#".repeat(shape.before)));
    }
    let text = value.absolute().to_string();
    let (before, after) = text.split_once('.').unwrap_or((&text, ""));
    let digits = format!("{before}{after}");
    let zeros = digits.len() - digits.trim_start_matches('0').len();
    let exponent = |first: usize| i64::try_from(before.len()).unwrap_or(0) - i64::try_from(first).unwrap_or(0) - 1;
    let (power, mantissa) = match digits.trim_start_matches('0') {
        "" => (0, "0".to_owned()),
        digits => (exponent(zeros), digits.to_owned()),
    };
    // The digits as a number from 1 to 10, rounded: to 10 perhaps, as in PostgreSQL.
    let point = format!("{}.{}", &mantissa[..1], &mantissa[1..]);
    let number: Numeric = point.trim_end_matches('.').parse()?;
    let rounded = number.round(u16::try_from(shape.after).unwrap_or(u16::MAX))?.to_string();
    let sign = if value.signum() < 0 { '-' } else { ' ' };
    let (power_sign, power) = if power < 0 { ('-', -power) } else { ('+', power) };
    Ok(format!("{sign}{rounded}e{power_sign}{power:02}"))
}

/// Puts the digits of a number into a template.
struct Writer {
    shape: Shape,
    is_negative: bool,
    digits: Vec<char>,
    /// Digits of the template before the first one of the number.
    spaces: usize,
    /// The last digit that must be shown, where the others are left out.
    last_relevant: Option<usize>,
    sign_is_written: bool,
    count: usize,
    current: usize,
    next: usize,
    is_in: bool,
    out: String,
}

impl Writer {
    fn new(mut shape: Shape, is_negative: bool, digits: String, spaces: usize) -> Self {
        let mut sign_is_written = shape.has_minus || !shape.has_plus;
        if !shape.has_plus && !shape.has_minus {
            if !is_negative && shape.has_brackets && shape.fills {
                shape.has_brackets = false;
            }
            sign_is_written = !is_negative && shape.fills && shape.sign.is_none();
            if shape.sign == Some(Anchor::Before) && shape.before == shape.digits_before_sign {
                shape.sign = Some(Anchor::After);
            }
        }
        let digits: Vec<char> = digits.chars().collect();
        let mut last_relevant = None;
        if shape.fills && shape.has_point {
            last_relevant = last_relevant_of(&digits);
            if let Some(last) = &mut last_relevant
                && shape.zeros_end > spaces
            {
                *last = (*last).max((digits.len() - 1).min(shape.zeros_end - spaces));
            }
        }
        let count = (shape.after + shape.before).saturating_sub(1) + usize::from(!sign_is_written && spaces == 0);
        Self {
            shape,
            is_negative,
            digits,
            spaces,
            last_relevant,
            sign_is_written,
            count,
            current: 0,
            next: 0,
            is_in: false,
            out: String::new(),
        }
    }

    fn run(mut self, parts: &[Part]) -> String {
        for part in parts {
            match part {
                Part::Letter(letter) => self.out.push(*letter),
                Part::Pattern(pattern) => self.pattern(*pattern),
            }
        }
        self.out
    }

    fn pattern(&mut self, pattern: Pattern) {
        match pattern {
            Pattern::Nine | Pattern::Zero | Pattern::Point | Pattern::LocalPoint => self.digit(pattern),
            Pattern::Comma | Pattern::Group if self.is_in => self.out.push(','),
            Pattern::Comma | Pattern::Group => self.blank(),
            Pattern::Currency => self.out.push(' '),
            Pattern::Minus if self.is_negative => self.out.push('-'),
            Pattern::Plus if !self.is_negative => self.out.push('+'),
            Pattern::Minus | Pattern::Plus => self.blank(),
            Pattern::AnySign => self.out.push(self.sign()),
            Pattern::Ordinal { is_lower }
                if self.digits.first() != Some(&'#') && !self.is_negative && !self.shape.has_point =>
            {
                let ending = ordinal(&self.digits);
                self.out.push_str(&if is_lower { ending.to_owned() } else { ending.to_uppercase() });
            }
            _ => {}
        }
    }

    fn sign(&self) -> char {
        if self.is_negative { '-' } else { '+' }
    }

    fn blank(&mut self) {
        if !self.shape.fills {
            self.out.push(' ');
        }
    }

    /// Whether the digit is the zero before the point that no pattern asks for.
    fn is_idle_zero(&self) -> bool {
        self.shape.zeros.is_none() && self.next == 0 && self.digits.first() == Some(&'0') && self.shape.after != 0
    }

    fn ends_at_point(&self) -> bool {
        self.last_relevant.is_some_and(|last| self.digits.get(last) == Some(&'.'))
    }

    fn digit(&mut self, pattern: Pattern) {
        self.is_in = false;
        let is_zero_here = self.shape.zeros == Some(self.current);
        if !self.sign_is_written
            && (self.current >= self.spaces || is_zero_here)
            && (!self.is_idle_zero() || self.ends_at_point())
        {
            self.sign_before();
        }
        if self.current < self.spaces {
            if self.shape.zeros.is_some_and(|first| first <= self.current) {
                self.out.push('0');
                self.is_in = true;
            } else {
                self.blank();
            }
        } else {
            self.next_digit(pattern);
        }
        let mut end = self.count + usize::from(self.spaces > 0) + usize::from(self.shape.has_point);
        if self.last_relevant == Some(self.next) {
            end = self.current;
        }
        if self.current + 1 == end {
            self.sign_after();
        }
        self.current += 1;
    }

    fn sign_before(&mut self) {
        match self.shape.sign {
            Some(Anchor::Before) => self.out.push(self.sign()),
            Some(Anchor::After) => return,
            None if self.shape.has_brackets => self.out.push(if self.is_negative { '<' } else { ' ' }),
            None if self.is_negative => self.out.push('-'),
            None => self.blank(),
        }
        self.sign_is_written = true;
    }

    fn sign_after(&mut self) {
        if self.sign_is_written && self.shape.has_brackets {
            self.out.push(if self.is_negative { '>' } else { ' ' });
        } else if self.shape.sign == Some(Anchor::After) {
            self.out.push(self.sign());
        }
    }

    fn next_digit(&mut self, pattern: Pattern) {
        let Some(digit) = self.digits.get(self.next).copied() else { return };
        if digit == '.' {
            if !self.ends_at_point() || self.shape.fills {
                self.out.push('.');
            }
        } else if self.last_relevant.is_some_and(|last| self.next > last) && pattern != Pattern::Zero {
            // It says nothing.
        } else if self.is_idle_zero() {
            if !self.shape.fills {
                self.out.push(' ');
            } else if self.ends_at_point() {
                self.out.push('0');
            }
        } else {
            self.out.push(digit);
            self.is_in = true;
        }
        self.next += 1;
    }

    fn roman(value: &Numeric, parts: &[Part], fills: bool) -> Result<String> {
        let number = value.round(0).ok().and_then(|value| value.to_i64().ok()).filter(|n| (1..=3999).contains(n));
        let text = number.map_or_else(|| "#".repeat(15), roman_of);
        let mut out = String::new();
        for part in parts {
            match part {
                Part::Letter(letter) => out.push(*letter),
                Part::Pattern(Pattern::Roman { is_lower }) => {
                    let text = if *is_lower { text.to_lowercase() } else { text.clone() };
                    out.push_str(&if fills { text } else { format!("{text:>15}") });
                }
                Part::Pattern(_) => {}
            }
        }
        Ok(out)
    }
}

fn last_relevant_of(digits: &[char]) -> Option<usize> {
    let point = digits.iter().position(|digit| *digit == '.')?;
    let last = digits[point..].iter().rposition(|digit| *digit != '0').unwrap_or(0);
    Some(point + last)
}

fn ordinal(digits: &[char]) -> &'static str {
    let is_teen = digits.len() > 1 && digits[digits.len() - 2] == '1';
    match digits.last() {
        Some('1') if !is_teen => "st",
        Some('2') if !is_teen => "nd",
        Some('3') if !is_teen => "rd",
        _ => "th",
    }
}

fn roman_of(number: i64) -> String {
    const SIGNS: [(i64, &str); 13] = [
        (1000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ];
    let (mut out, mut rest) = (String::new(), number);
    for (value, sign) in SIGNS {
        while rest >= value {
            out.push_str(sign);
            rest -= value;
        }
    }
    out
}

/// Takes a number out of a text.
struct Reader<'t> {
    shape: Shape,
    text: &'t [u8],
    place: usize,
    sign: Option<u8>,
    digits: String,
    before: usize,
    after: usize,
    has_point: bool,
    is_in: bool,
}

fn read(source: &str, template: &str) -> Result<Datum> {
    let parts = parse(template);
    let shape = Shape::of(&parts)?;
    if parts.is_empty() {
        return Ok(Datum::Null);
    }
    if shape.has_exponent {
        return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, "\"EEEE\" not supported for input"));
    }
    if shape.is_roman {
        return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, "\"RN\" not supported for input"));
    }
    let mut reader = Reader {
        shape,
        text: source.as_bytes(),
        place: 0,
        sign: None,
        digits: String::new(),
        before: 0,
        after: 0,
        has_point: false,
        is_in: false,
    };
    for part in &parts {
        if reader.is_over() {
            break;
        }
        reader.part(part, source);
    }
    reader.number()
}

impl Reader<'_> {
    fn is_over(&self) -> bool {
        self.place >= self.text.len()
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.place).copied()
    }

    fn part(&mut self, part: &Part, source: &str) {
        match part {
            // A letter of the template stands for any letter.
            Part::Letter(_) => {
                let letter = source.get(self.place..).and_then(|rest| rest.chars().next());
                self.place += letter.map_or(1, char::len_utf8);
            }
            Part::Pattern(pattern) => match pattern {
                Pattern::Nine | Pattern::Zero | Pattern::Point | Pattern::LocalPoint => {
                    self.digit(matches!(pattern, Pattern::Nine | Pattern::Zero));
                    self.place += 1;
                }
                Pattern::Comma | Pattern::Group if (self.is_in || !self.shape.fills) && self.peek() == Some(b',') => {
                    self.place += 1;
                }
                Pattern::Currency | Pattern::Minus | Pattern::Plus | Pattern::AnySign => self.skip(1),
                Pattern::Ordinal { .. } => self.skip(2),
                _ => {}
            },
        }
    }

    /// Goes past letters that are no part of a number.
    fn skip(&mut self, count: usize) {
        for _ in 0..count {
            match self.peek() {
                Some(byte) if !b"0123456789.,+-".contains(&byte) => self.place += 1,
                _ => return,
            }
        }
    }

    fn digit(&mut self, is_digit: bool) {
        if self.peek() == Some(b' ') {
            self.place += 1;
        }
        if self.sign.is_none() && is_digit && self.before + self.after == 0 {
            self.sign_before();
        }
        let Some(byte) = self.peek() else { return };
        let mut is_read = false;
        if byte.is_ascii_digit() {
            if self.has_point && self.after == self.shape.after {
                return;
            }
            self.digits.push(char::from(byte));
            *(if self.has_point { &mut self.after } else { &mut self.before }) += 1;
            is_read = true;
        } else if self.shape.has_point && !self.has_point && byte == b'.' {
            self.digits.push('.');
            self.has_point = true;
            is_read = true;
        }
        if self.sign.is_none() && self.before + self.after > 0 {
            self.sign_after(is_read);
        }
    }

    fn sign_before(&mut self) {
        let byte = self.peek();
        let is_bracket = self.shape.has_brackets && byte == Some(b'<');
        let is_sign = match self.shape.sign {
            Some(Anchor::After) => false,
            _ => matches!(byte, Some(b'-' | b'+')) || is_bracket,
        };
        if is_sign {
            self.sign = Some(if byte == Some(b'+') { b'+' } else { b'-' });
            self.place += 1;
        }
    }

    fn sign_after(&mut self, is_read: bool) {
        let sign = |byte: Option<u8>| byte.filter(|byte| matches!(byte, b'-' | b'+'));
        if self.shape.sign.is_some() {
            if is_read && let Some(found) = sign(self.text.get(self.place + 1).copied()) {
                self.sign = Some(found);
                self.place += 1;
            }
        } else if !is_read && (self.shape.has_plus || self.shape.has_minus) {
            self.sign = sign(self.peek());
        }
    }

    fn number(self) -> Result<Datum> {
        let digits = self.digits.trim_end_matches('.');
        let sign = if self.sign == Some(b'-') { "-" } else { "" };
        let shown = self.sign.map_or(' ', char::from);
        let wrong = |_| {
            let message = format!("invalid input syntax for type numeric: \"{shown}{digits}\"");
            Error::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
        };
        let value: Numeric = format!("{sign}{digits}").parse().map_err(wrong)?;
        let scale = i32::try_from(self.after).unwrap_or(0);
        let precision = u32::try_from(self.shape.before + self.shape.shift + self.after).unwrap_or(u32::MAX);
        let value = if precision > 0 { value.fit(precision, scale)? } else { value };
        if self.shape.shift == 0 {
            return Ok(Datum::Numeric(value));
        }
        let factor: Numeric = format!("{:0<18}", format!("0.{}1", "0".repeat(self.shape.shift - 1))).parse()?;
        Ok(Datum::Numeric(value.multiply(&factor)?))
    }
}
