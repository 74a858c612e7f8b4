//! `to_timestamp` and `to_date` by template, after the rules of `PostgreSQL`.
//!
//! 1. The template becomes nodes: fields, separators, spaces, and other letters.
//! 2. Each node takes its part of the text. A number takes as many digits as there are if no digit can follow, and
//!    otherwise as many as its field has.
//! 3. The parts become a day and a time. A part that was not named is that of `0001-01-01 BC 00:00`.

use super::{Function, TEXT, of, text};
use crate::datetime::{MONTHS, WEEKDAYS};
use crate::datum::Datum;
use crate::error::{Error, Result, SqlState};
use crate::style;
use crate::time::{DAY_MICROS, civil_of, days_of, is_date, is_moment};
use crate::types::Type;

pub const FUNCTIONS: &[Function] = &[
    of("to_timestamp", &[TEXT, TEXT], Type::Timestamptz, |_, a| to_timestamp(text(a, 0), text(a, 1))),
    of("to_date", &[TEXT, TEXT], Type::Date, |_, a| to_date(text(a, 0), text(a, 1))),
];

/// The convention of a field: fields of both must not come together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Any,
    Gregorian,
    IsoWeek,
}

/// A field: its name, the digits of its number, whether it is a number, and its convention.
#[derive(Debug)]
struct Key(&'static str, usize, bool, Mode);

/// Longer names before those that they begin with.
const KEYS: &[Key] = &[
    Key("A.D.", 4, false, Mode::Any),
    Key("A.M.", 4, false, Mode::Any),
    Key("AD", 2, false, Mode::Any),
    Key("AM", 2, false, Mode::Any),
    Key("B.C.", 4, false, Mode::Any),
    Key("BC", 2, false, Mode::Any),
    Key("CC", 2, true, Mode::Any),
    Key("DAY", 3, false, Mode::Any),
    Key("DDD", 3, true, Mode::Gregorian),
    Key("DD", 2, true, Mode::Gregorian),
    Key("DY", 2, false, Mode::Any),
    Key("D", 1, true, Mode::Gregorian),
    Key("FF1", 1, true, Mode::Any),
    Key("FF2", 2, true, Mode::Any),
    Key("FF3", 3, true, Mode::Any),
    Key("FF4", 4, true, Mode::Any),
    Key("FF5", 5, true, Mode::Any),
    Key("FF6", 6, true, Mode::Any),
    Key("FX", 2, false, Mode::Any),
    Key("HH24", 2, true, Mode::Any),
    Key("HH12", 2, true, Mode::Any),
    Key("HH", 2, true, Mode::Any),
    Key("IDDD", 3, true, Mode::IsoWeek),
    Key("ID", 1, true, Mode::IsoWeek),
    Key("IW", 2, true, Mode::IsoWeek),
    Key("IYYY", 4, true, Mode::IsoWeek),
    Key("IYY", 3, true, Mode::IsoWeek),
    Key("IY", 2, true, Mode::IsoWeek),
    Key("I", 1, true, Mode::IsoWeek),
    Key("J", 1, true, Mode::Any),
    Key("MI", 2, true, Mode::Any),
    Key("MM", 2, true, Mode::Gregorian),
    Key("MONTH", 5, false, Mode::Gregorian),
    Key("MON", 3, false, Mode::Gregorian),
    Key("MS", 3, true, Mode::Any),
    Key("OF", 2, false, Mode::Any),
    Key("P.M.", 4, false, Mode::Any),
    Key("PM", 2, false, Mode::Any),
    Key("Q", 1, true, Mode::Any),
    Key("RM", 2, false, Mode::Gregorian),
    Key("SSSSS", 5, true, Mode::Any),
    Key("SSSS", 4, true, Mode::Any),
    Key("SS", 2, true, Mode::Any),
    Key("TZH", 2, false, Mode::Any),
    Key("TZM", 2, true, Mode::Any),
    Key("TZ", 2, false, Mode::Any),
    Key("US", 6, true, Mode::Any),
    Key("WW", 2, true, Mode::Gregorian),
    Key("W", 1, true, Mode::Gregorian),
    Key("Y,YYY", 5, true, Mode::Gregorian),
    Key("YYYY", 4, true, Mode::Gregorian),
    Key("YYY", 3, true, Mode::Gregorian),
    Key("YY", 2, true, Mode::Gregorian),
    Key("Y", 1, true, Mode::Gregorian),
];

/// A part of a template.
#[derive(Debug)]
enum Node {
    Field {
        key: &'static Key,
        /// As it was written, for messages.
        name: String,
        /// `FM`: without filling.
        is_free: bool,
        /// `TH` after it: two letters of the text do not count.
        has_ordinal: bool,
    },
    /// A space or separator.
    Separator,
    Letter(char),
}

fn is_separator(letter: char) -> bool {
    letter.is_ascii_graphic() && !letter.is_ascii_alphanumeric()
}

fn key_of(rest: &str) -> Option<&'static Key> {
    let fits = |name: &str| {
        rest.get(..name.len()).is_some_and(|head| {
            let is_title = matches!(head, "Month" | "Mon" | "Day" | "Dy");
            head == name || head == name.to_lowercase() || is_title && head.eq_ignore_ascii_case(name)
        })
    };
    KEYS.iter().find(|key| fits(key.0))
}

fn nodes_of(template: &str) -> Vec<Node> {
    let (mut nodes, mut rest) = (Vec::new(), template);
    while let Some(letter) = rest.chars().next() {
        let is_free = rest.starts_with("FM") || rest.starts_with("fm");
        let after = if is_free { &rest[2..] } else { rest };
        let after = after.strip_prefix("TM").or_else(|| after.strip_prefix("tm")).unwrap_or(after);
        if let Some(key) = key_of(after) {
            let (name, tail) = after.split_at(key.0.len());
            let has_ordinal = tail.starts_with("TH") || tail.starts_with("th");
            nodes.push(Node::Field { key, name: name.to_owned(), is_free, has_ordinal });
            rest = if has_ordinal { &tail[2..] } else { tail };
            continue;
        }
        if after.len() < rest.len() {
            rest = after;
            continue;
        }
        if letter == '"' {
            let mut letters = rest[1..].chars();
            while let Some(letter) = letters.next() {
                match letter {
                    '"' => break,
                    '\\' => nodes.extend(letters.next().map(Node::Letter)),
                    letter => nodes.push(Node::Letter(letter)),
                }
            }
            rest = letters.as_str();
            continue;
        }
        // A backslash counts before a quotation mark only.
        rest = if rest.starts_with("\\\"") { &rest[1..] } else { rest };
        let letter = rest.chars().next().unwrap_or(letter);
        let is_between = is_separator(letter) || crate::text::is_space(letter);
        nodes.push(if is_between { Node::Separator } else { Node::Letter(letter) });
        rest = &rest[letter.len_utf8()..];
    }
    nodes
}

fn bad(message: String) -> Error {
    Error::new(SqlState::INVALID_DATETIME_FORMAT, message)
}

/// The parts that the text says; 0: it does not.
#[derive(Default)]
struct Parts {
    mode: Option<Mode>,
    hour: i64,
    is_afternoon: i64,
    has_twelve: bool,
    minute: i64,
    second: i64,
    day_seconds: i64,
    weekday: i64,
    day: i64,
    day_of_year: i64,
    month: i64,
    millis: i64,
    micros: i64,
    year: i64,
    year_digits: usize,
    is_before: i64,
    week: i64,
    week_of_month: i64,
    century: i64,
    julian: i64,
    zone_sign: i64,
    zone_hours: i64,
    zone_minutes: i64,
    /// The digits of the seconds that a field names.
    fraction_digits: Option<u32>,
}

/// Sets a part. The same part may come twice, with the same value.
fn put(part: &mut i64, value: i64, name: &str) -> Result<()> {
    if *part != 0 && *part != value {
        let message = format!("conflicting values for \"{name}\" field in formatting string");
        return Err(bad(message).detail("This value contradicts a previous setting for the same field type."));
    }
    *part = value;
    Ok(())
}

/// The error of a number that its field cannot have.
fn too_large(name: &str) -> Error {
    let message = format!("value for \"{name}\" in source string is out of range");
    let detail = format!("Value must be in the range {} to {}.", i32::MIN, i32::MAX);
    Error::new(SqlState::DATETIME_FIELD_OVERFLOW, message).detail(detail)
}

/// The text that is being read.
struct Reader<'t> {
    text: &'t str,
    /// The place of the next letter.
    place: usize,
    /// Spaces that were skipped beyond those of the template.
    skipped: i64,
}

const ROMAN: [&str; 12] = ["xii", "xi", "x", "ix", "viii", "vii", "vi", "v", "iv", "iii", "ii", "i"];

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.place..]
    }

    fn next(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn step(&mut self) {
        self.place += self.next().map_or(0, char::len_utf8);
    }

    fn skip_spaces(&mut self) {
        while self.next().is_some_and(crate::text::is_space) {
            self.step();
            self.skipped += 1;
        }
    }

    /// A number of `width` digits. `is_free`: of as many as there are. Returns it with the letters that it took.
    fn number(&mut self, width: usize, is_free: bool, name: &str) -> Result<(i64, usize)> {
        const FREE: &str = "If your source string is not fixed-width, try using the \"FM\" modifier.";
        let start = self.place;
        let rest = self.rest().trim_start_matches(crate::text::is_space);
        self.place = self.text.len() - rest.len();
        let all = rest.chars().take(width).collect::<String>();
        let source = if is_free { rest } else { &all };
        let (value, used) = integer(source);
        if !is_free {
            // Of a long text, no more than the field needs: a template may have a field for each letter.
            let count = all.chars().count();
            if count < width {
                let message = format!("source string too short for \"{name}\" formatting field");
                let detail = format!("Field requires {width} characters, but only {count} remain.");
                return Err(bad(message).detail(detail).hint(FREE));
            }
            if used > 0 && used < all.len() {
                let detail = format!("Field requires {width} characters, but only {used} could be parsed.");
                return Err(bad(format!("invalid value \"{all}\" for \"{name}\"")).detail(detail).hint(FREE));
            }
        }
        if used == 0 {
            return Err(bad(format!("invalid value \"{all}\" for \"{name}\"")).detail("Value must be an integer."));
        }
        self.place += used;
        let value = value.filter(|value| i32::try_from(*value).is_ok());
        Ok((value.ok_or_else(|| too_large(name))?, self.place - start))
    }

    /// The number of the word among `words` that the text goes on with.
    fn word(&mut self, words: &[&str], name: &str) -> Result<i64> {
        let rest = self.rest();
        let fits = |word: &&str| rest.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word));
        let Some(place) = words.iter().position(fits) else {
            let word = rest.split(crate::text::is_space).next().unwrap_or_default();
            return Err(bad(format!("invalid value \"{word}\" for \"{name}\""))
                .detail("The given value did not match any of the allowed values for this field."));
        };
        self.place += words[place].len();
        Ok(i64::try_from(place).unwrap_or(0))
    }
}

/// The number at the beginning, with its sign, and its length. An inner `None`: it is too large.
fn integer(text: &str) -> (Option<i64>, usize) {
    let spaces = text.len() - text.trim_start_matches(crate::text::is_space).len();
    let rest = &text[spaces..];
    let sign = usize::from(rest.starts_with(['+', '-']));
    let digits = rest[sign..].bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return (None, 0);
    }
    (rest[..sign + digits].parse().ok(), spaces + sign + digits)
}

/// Whether no digit can follow the field with this number.
fn is_free_at(nodes: &[Node], number: usize) -> bool {
    if let Node::Field { is_free: true, .. } | Node::Field { has_ordinal: true, .. } = nodes[number] {
        return true;
    }
    match nodes.get(number + 1) {
        None | Some(Node::Separator) => true,
        Some(Node::Field { key, .. }) => !key.2,
        Some(Node::Letter(letter)) => !letter.is_ascii_digit(),
    }
}

fn read(value: &str, template: &str) -> Result<Parts> {
    let nodes = nodes_of(template);
    let mut parts = Parts::default();
    let mut reader = Reader { text: value, place: 0, skipped: 0 };
    let mut is_fixed = false;
    for (number, node) in nodes.iter().enumerate() {
        if reader.rest().is_empty() {
            break;
        }
        let is_field = matches!(node, Node::Field { key, .. } if key.0 != "FX");
        let is_other_first = number == 0 && !matches!(node, Node::Field { .. });
        if !is_fixed && (is_field || is_other_first) {
            reader.skip_spaces();
        }
        match node {
            Node::Separator if is_fixed => reader.step(),
            Node::Separator => {
                reader.skipped -= 1;
                if reader.next().is_some_and(|letter| crate::text::is_space(letter) || is_separator(letter)) {
                    reader.step();
                    reader.skipped += 1;
                }
            }
            Node::Letter(_) if !is_fixed && reader.skipped > 0 => reader.skipped -= 1,
            Node::Letter(_) => reader.step(),
            Node::Field { key: Key("FX", ..), .. } => is_fixed = true,
            Node::Field { key, name, has_ordinal, .. } => {
                parts.set_mode(key.3)?;
                let is_free = is_free_at(&nodes, number);
                parts.field(key, name, is_free, &mut reader)?;
                if *has_ordinal && key.2 {
                    reader.step();
                    reader.step();
                }
                if !is_fixed {
                    reader.skipped = 0;
                    reader.skip_spaces();
                }
            }
        }
    }
    Ok(parts)
}

/// A year of fewer than four digits is the nearest one to 2020.
fn whole_year(year: i64) -> i64 {
    match year {
        ..70 => year + 2000,
        70..100 => year + 1900,
        100..520 => year + 2000,
        520..1000 => year + 1000,
        _ => year,
    }
}

impl Parts {
    fn set_mode(&mut self, mode: Mode) -> Result<()> {
        if mode == Mode::Any {
            return Ok(());
        }
        if self.mode.replace(mode).is_some_and(|before| before != mode) {
            return Err(bad("invalid combination of date conventions".into())
                .hint("Do not mix Gregorian and ISO week date conventions in a formatting template."));
        }
        Ok(())
    }

    fn field(&mut self, key: &Key, name: &str, is_free: bool, reader: &mut Reader<'_>) -> Result<()> {
        let Key(kind, width, is_number, _) = key;
        if !is_number {
            return self.word(kind, name, is_free, reader);
        }
        match *kind {
            "Y,YYY" => return self.long_year(name, reader),
            "TZM" => self.zone_sign = if self.zone_sign == 0 { 1 } else { self.zone_sign },
            _ => {}
        }
        let (value, used) = reader.number(*width, is_free, name)?;
        // 25 is a quarter of a second as 250 is.
        let scaled = |digits: usize| value * 10_i64.pow(u32::try_from(digits.saturating_sub(used)).unwrap_or(0));
        match *kind {
            "HH" | "HH12" => {
                self.has_twelve = true;
                put(&mut self.hour, value, name)
            }
            "HH24" => put(&mut self.hour, value, name),
            "MI" => put(&mut self.minute, value, name),
            "SS" => put(&mut self.second, value, name),
            "SSSS" | "SSSSS" => put(&mut self.day_seconds, value, name),
            "MS" => put(&mut self.millis, scaled(3), name),
            "FF1" | "FF2" | "FF3" | "FF4" | "FF5" | "FF6" => {
                self.fraction_digits = u32::try_from(*width).ok();
                put(&mut self.micros, scaled(6), name)
            }
            "US" => put(&mut self.micros, scaled(6), name),
            "MM" => put(&mut self.month, value, name),
            "DDD" | "IDDD" => put(&mut self.day_of_year, value, name),
            "DD" => put(&mut self.day, value, name),
            "D" => put(&mut self.weekday, value, name),
            "ID" => put(&mut self.weekday, if value + 1 > 7 { 1 } else { value + 1 }, name),
            "WW" | "IW" => put(&mut self.week, value, name),
            "W" => put(&mut self.week_of_month, value, name),
            "CC" => put(&mut self.century, value, name),
            "J" => put(&mut self.julian, value, name),
            "TZM" => put(&mut self.zone_minutes, value, name),
            "YYYY" | "IYYY" => self.set_year(value, 4, name),
            "YYY" | "IYY" | "YY" | "IY" | "Y" | "I" => {
                let year = if used < 4 { whole_year(value) } else { value };
                self.set_year(year, kind.trim_start_matches('I').len().max(1), name)
            }
            // A quarter says no day.
            _ => Ok(()),
        }
    }

    fn set_year(&mut self, year: i64, digits: usize, name: &str) -> Result<()> {
        put(&mut self.year, year, name)?;
        self.year_digits = digits;
        Ok(())
    }

    /// `2,024`.
    fn long_year(&mut self, name: &str, reader: &mut Reader<'_>) -> Result<()> {
        let (thousands, first) = integer(reader.rest());
        let rest = &reader.rest()[first..];
        let tail: String =
            rest.strip_prefix(',').unwrap_or_default().chars().take(3).take_while(char::is_ascii_digit).collect();
        if first == 0 || tail.is_empty() {
            return Err(bad("invalid input string for \"Y,YYY\"".into()));
        }
        let whole = thousands.and_then(|number| number.checked_mul(1000)?.checked_add(tail.parse().ok()?));
        let year = whole.filter(|year| i32::try_from(*year).is_ok()).ok_or_else(|| too_large(name))?;
        reader.place += first + 1 + tail.len();
        self.set_year(year, 4, name)
    }

    fn word(&mut self, kind: &str, name: &str, is_free: bool, reader: &mut Reader<'_>) -> Result<()> {
        match kind {
            "A.M." | "P.M." | "AM" | "PM" => {
                let words = if kind.len() > 2 { ["a.m.", "p.m."] } else { ["am", "pm"] };
                self.has_twelve = true;
                let value = reader.word(&words, name)?;
                put(&mut self.is_afternoon, value, name)
            }
            "A.D." | "B.C." | "AD" | "BC" => {
                let words = if kind.len() > 2 { ["a.d.", "b.c."] } else { ["ad", "bc"] };
                let value = reader.word(&words, name)?;
                put(&mut self.is_before, value, name)
            }
            "MONTH" => {
                let value = reader.word(&MONTHS, name)?;
                put(&mut self.month, value + 1, name)
            }
            "MON" => {
                let value = reader.word(&MONTHS.map(|month| &month[..3]), name)?;
                put(&mut self.month, value + 1, name)
            }
            "DAY" => {
                let value = reader.word(&WEEKDAYS, name)?;
                put(&mut self.weekday, value + 1, name)
            }
            "DY" => {
                let value = reader.word(&WEEKDAYS.map(|day| &day[..3]), name)?;
                put(&mut self.weekday, value + 1, name)
            }
            "RM" => {
                // Longer numerals are not before all that they begin with: the longest one that fits counts.
                let mut words: Vec<&str> = ROMAN.to_vec();
                words.sort_by_key(|word| std::cmp::Reverse(word.len()));
                let start = reader.place;
                reader.word(&words, name)?;
                let found = reader.text[start..reader.place].to_ascii_lowercase();
                let place = ROMAN.iter().position(|word| *word == found).unwrap_or(0);
                put(&mut self.month, 12 - i64::try_from(place).unwrap_or(0), name)
            }
            "TZH" => {
                let before = reader.text[..reader.place].chars().next_back();
                self.zone_sign = match reader.next() {
                    Some('-') => -1,
                    Some('+' | ' ') => 1,
                    _ if reader.skipped > 0 && before == Some('-') => -1,
                    _ => 1,
                };
                if matches!(reader.next(), Some('+' | '-' | ' ')) {
                    reader.step();
                }
                let (value, _) = reader.number(2, is_free, name)?;
                put(&mut self.zone_hours, value, name)
            }
            _ => {
                let message = format!("formatting field \"{name}\" is only supported in to_char");
                Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message))
            }
        }
    }

    /// Microseconds of the day.
    fn clock(&self) -> Result<Option<i64>> {
        let pick = |own: i64, other: i64| if own == 0 { other } else { own };
        let second = pick(self.second, self.day_seconds % 60);
        let minute = pick(self.minute, self.day_seconds / 60 % 60);
        let mut hour = pick(self.hour, self.day_seconds / 3600);
        if self.has_twelve {
            if !(1..=12).contains(&hour) {
                return Err(bad(format!("hour \"{hour}\" is invalid for the 12-hour clock"))
                    .hint("Use the 24-hour clock, or give an hour between 1 and 12."));
            }
            hour = hour % 12 + 12 * self.is_afternoon;
        }
        let fraction = self.millis * 1000 + self.micros;
        let is_right = (0..24).contains(&hour)
            && (0..60).contains(&minute)
            && (0..60).contains(&second)
            && (0..1_000_000).contains(&fraction);
        Ok(is_right.then(|| ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction))
    }

    /// The year, if one was said. The year 0 is 1 BC.
    fn year(&self) -> Option<i64> {
        let century = if self.is_before == 1 { -self.century } else { self.century };
        if self.year != 0 && self.century != 0 && self.year_digits <= 2 {
            let year = self.year % 100;
            return Some(match (year, century >= 0) {
                (0, true) => century * 100,
                (0, false) => century * 100 + 1,
                (_, true) => year + (century - 1) * 100,
                (_, false) => (century + 1) * 100 - year + 1,
            });
        }
        if self.year != 0 {
            let year = if self.is_before == 1 { -self.year } else { self.year };
            return Some(if year < 0 { year + 1 } else { year });
        }
        (self.century != 0).then_some(if century >= 0 { (century - 1) * 100 + 1 } else { century * 100 + 1 })
    }

    /// The day; `None`: there is no such day.
    fn day(&self) -> Result<Option<i64>> {
        let year_part = self.year();
        let (mut year, mut month, mut day) = (year_part.unwrap_or(0), 1, 1);
        let mut day_of_year = self.day_of_year;
        let monday = |year: i64| {
            let fourth = days_of(year, 1, 4);
            fourth - (fourth + 5).rem_euclid(7)
        };
        if self.julian != 0 {
            (year, month, day) = civil_of(self.julian - 2_451_545);
        }
        let is_iso = self.mode == Some(Mode::IsoWeek);
        if self.week != 0 && is_iso {
            let first = monday(year) + (self.week - 1) * 7;
            let weekday = match self.weekday {
                0 => 0,
                1 => 6,
                weekday => weekday - 2,
            };
            (year, month, day) = civil_of(first + weekday);
        } else if self.week != 0 {
            day_of_year = (self.week - 1) * 7 + 1;
        }
        day = match (self.week_of_month, self.day) {
            (0, 0) => day,
            (0, day) => day,
            (week, _) => (week - 1) * 7 + 1,
        };
        month = if self.month == 0 { month } else { self.month };
        if day_of_year != 0 && (month <= 1 || day <= 1) {
            if year == 0 && self.is_before == 0 {
                return Err(bad("cannot calculate day of year without year information".into()));
            }
            if is_iso {
                (year, month, day) = civil_of(monday(year) + day_of_year - 1);
            } else {
                let length = days_of(year + 1, 1, 1) - days_of(year, 1, 1);
                if !(1..=length).contains(&day_of_year) {
                    return Ok(None);
                }
                let (_, own_month, own_day) = civil_of(days_of(year, 1, 1) + day_of_year - 1);
                month = if month <= 1 { own_month } else { month };
                day = if day <= 1 { own_day } else { day };
            }
        }
        let is_right = (1..=12).contains(&month) && (1..=31).contains(&day) && year.abs() < 10_000_000;
        if !is_right {
            return Ok(None);
        }
        let found = days_of(year, month, day);
        Ok((civil_of(found) == (year, month, day)).then_some(found))
    }
}

/// The day, the time of the day in microseconds, and the parts.
fn moment(value: &str, template: &str) -> Result<(i64, i64, Parts)> {
    let parts = read(value, template)?;
    let wrong = || {
        let message = format!("date/time field value out of range: \"{value}\"");
        Error::new(SqlState::DATETIME_FIELD_OVERFLOW, message)
    };
    let clock = parts.clock()?;
    let day = parts.day()?.ok_or_else(wrong)?;
    Ok((day, clock.ok_or_else(wrong)?, parts))
}

fn to_timestamp(value: &str, template: &str) -> Result<Datum> {
    let (day, clock, parts) = moment(value, template)?;
    let out = || Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range");
    let unit = 10_i64.pow(6 - parts.fraction_digits.unwrap_or(6).min(6));
    let clock = (clock + unit / 2) / unit * unit;
    let local = day.checked_mul(DAY_MICROS).and_then(|day| day.checked_add(clock)).ok_or_else(out)?;
    if parts.zone_sign == 0 {
        return style::to_utc(local).filter(|found| is_moment(*found)).map(Datum::Time).ok_or_else(out);
    }
    if !(0..=15).contains(&parts.zone_hours) || !(0..60).contains(&parts.zone_minutes) {
        let message = format!("time zone displacement out of range: \"{value}\"");
        return Err(Error::new(SqlState::INVALID_TIME_ZONE_DISPLACEMENT, message));
    }
    let seconds = parts.zone_sign * (parts.zone_hours * 3600 + parts.zone_minutes * 60);
    local.checked_sub(seconds * 1_000_000).filter(|found| is_moment(*found)).map(Datum::Time).ok_or_else(out)
}

fn to_date(value: &str, template: &str) -> Result<Datum> {
    let (day, ..) = moment(value, template)?;
    let error = || Error::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("date out of range: \"{value}\""));
    i32::try_from(day).ok().filter(|_| is_date(day)).map(Datum::Date).ok_or_else(error)
}
