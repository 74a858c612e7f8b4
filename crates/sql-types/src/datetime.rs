//! Texts of days and moments in the many forms that `PostgreSQL` reads: `1997-02-10 17:32:01-08`, `Feb 10 5:32 PM
//! 1997`, `10-Feb-97`, `19970210T173201`, `J2451187`, `2/10/1997`, `allballs`.
//!
//! 1. The text becomes fields: numbers, dates with their separators, times of day, words, offsets.
//! 2. Each field says a part of the moment. A number alone is the part that is still missing.
//! 3. Numbers are day, month and year in the order of the session's `DateStyle`; one of three digits or more is a year.
//! 4. A zone is an offset, a short name, or a name with its history.

use crate::error::{Error, Result, SqlState};
use crate::style::{self, DateOrder};
use crate::time::{DAY_MICROS, EPOCH_DAYS, civil_of, days_of};
use crate::zone::{Short, Zone, short};

/// The parts that a text says.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The day, from 2000-01-01.
    pub days: Option<i64>,
    /// The time of day.
    pub micros: Option<i64>,
    /// Seconds east of UTC.
    pub zone: Option<i64>,
    /// The zone by its name.
    pub named: Option<Zone>,
    /// It is a moment without a calendar.
    pub special: Option<Special>,
}

/// A moment with a name of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Special {
    Infinity,
    NegInfinity,
    Epoch,
    Now,
}

/// Why a text is refused.
enum Wrong {
    Format,
    Range,
    Zone(String),
    Displacement,
}

type Read<T> = std::result::Result<T, Wrong>;

#[derive(Debug)]
enum Field {
    /// Digits, perhaps with a fraction.
    Number(String),
    /// Parts with the separator between them.
    Date(Vec<String>, char),
    Time(String),
    Word(String),
    /// The name of a zone with more than letters.
    Zone(String),
    /// With its sign.
    Offset(String),
}

/// Reads `text`. `name`: the type, for messages.
///
/// # Errors
/// 22007; 22008; 22009 for an offset that is too large; 22023 for the name of a time zone that is not known.
pub fn read(text: &str, name: &str) -> Result<Found> {
    let outcome = fields(text)
        .and_then(|fields| Moment::default().read(&fields, name.starts_with("time") && !name.starts_with("timestamp")));
    outcome.map_err(|wrong| match wrong {
        Wrong::Format => {
            let message = format!("invalid input syntax for type {name}: \"{text}\"");
            Error::new(SqlState::INVALID_DATETIME_FORMAT, message)
        }
        Wrong::Range => {
            let message = format!("date/time field value out of range: \"{text}\"");
            Error::new(SqlState::DATETIME_FIELD_OVERFLOW, message)
        }
        Wrong::Zone(zone) => no_zone(&zone),
        Wrong::Displacement => {
            let message = format!("time zone displacement out of range: \"{text}\"");
            Error::new(SqlState::INVALID_TIME_ZONE_DISPLACEMENT, message)
        }
    })
}

/// The error of a time zone that is not there.
#[must_use]
pub fn no_zone(name: &str) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, format!("time zone \"{name}\" not recognized"))
}

fn fields(text: &str) -> Read<Vec<Field>> {
    let letters: Vec<char> = text.trim_matches(crate::text::is_space).chars().collect();
    let (mut found, mut place) = (Vec::new(), 0);
    let take = |from: usize, fits: &dyn Fn(char) -> bool| {
        let rest = letters[from..].iter().take_while(|letter| fits(**letter));
        rest.collect::<String>()
    };
    while let Some(letter) = letters.get(place).copied() {
        if crate::text::is_space(letter) {
            place += 1;
            continue;
        }
        let next = |count: usize| letters.get(count).copied().unwrap_or(' ');
        let (field, length) = if letter.is_ascii_digit() {
            let digits = take(place, &|letter| letter.is_ascii_digit());
            let (after, second) = (next(place + digits.len()), next(place + digits.len() + 1));
            if after == ':' {
                let time = take(place, &|letter| letter.is_ascii_digit() || matches!(letter, ':' | '.'));
                (Field::Time(time.clone()), time.len())
            } else if matches!(after, '-' | '/' | '.') && (second.is_ascii_alphanumeric()) {
                let whole = take(place, &|letter| letter.is_ascii_alphanumeric() || letter == after);
                let count = whole.matches(after).count();
                let is_fraction = after == '.' && count == 1;
                if is_fraction || after == '-' && count == 1 && !whole.contains(|l: char| l.is_ascii_alphabetic()) {
                    let length = whole.len();
                    let plain = take(place, &|letter| letter.is_ascii_digit() || letter == '.');
                    if is_fraction {
                        (Field::Number(plain.clone()), plain.len())
                    } else {
                        (split(&whole, after), length)
                    }
                } else {
                    // The letter between day and time is no part of the day.
                    let end = day_end(&whole, after);
                    (split(&whole[..end], after), end)
                }
            } else {
                (Field::Number(digits.clone()), digits.len())
            }
        } else if letter.is_alphabetic() {
            let word = take(place, &char::is_alphabetic);
            let after = next(place + word.chars().count());
            let is_month = month_of(&word.to_lowercase()).is_some();
            let is_long = matches!(after, '-' | '/' | '+') || after.is_ascii_digit();
            if is_month && matches!(after, '-' | '.') {
                let whole = take(place, &|letter| letter.is_ascii_alphanumeric() || letter == after);
                (split(&whole, after), whole.len())
            } else if is_long && !is_key(&word.to_lowercase()) {
                let is_part = |letter: char| {
                    letter.is_ascii_alphanumeric() || matches!(letter, '-' | '/' | '_' | '+' | '.' | ':')
                };
                let whole = take(place, &is_part);
                let length = whole.chars().count();
                (Field::Zone(whole), length)
            } else {
                (Field::Word(word.to_lowercase()), word.chars().count())
            }
        } else if matches!(letter, '+' | '-') && (next(place + 1).is_ascii_digit()) {
            let offset = take(place + 1, &|letter| letter.is_ascii_digit() || letter == ':');
            (Field::Offset(format!("{letter}{offset}")), offset.len() + 1)
        } else if matches!(letter, '+' | '-') && next(place + 1).is_alphabetic() {
            let word = take(place + 1, &|letter| letter.is_alphabetic());
            (Field::Word(format!("{letter}{}", word.to_lowercase())), word.chars().count() + 1)
        } else if letter.is_ascii_punctuation() && !matches!(letter, '+' | '-') {
            place += 1;
            continue;
        } else {
            return Err(Wrong::Format);
        };
        place += length;
        found.push(field);
    }
    if found.is_empty() { Err(Wrong::Format) } else { Ok(found) }
}

fn split(whole: &str, separator: char) -> Field {
    Field::Date(whole.split(separator).map(str::to_lowercase).collect(), separator)
}

/// The end of a day in `2001-02-03T04`: its last part is a number or a month.
fn day_end(whole: &str, separator: char) -> usize {
    let start = whole.rfind(separator).map_or(0, |place| place + 1);
    let last = &whole[start..];
    match last.find(|letter: char| letter.is_ascii_alphabetic()) {
        Some(letters) if letters > 0 => start + letters,
        _ => whole.len(),
    }
}

/// The names of the months.
pub(crate) const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
/// The names of the days of the week.
pub(crate) const WEEKDAYS: [&str; 7] = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];

fn month_of(word: &str) -> Option<i64> {
    let fits = |month: &&str| *month == word || word == &month[..3] || word == "sept" && *month == "september";
    let place = MONTHS.iter().position(fits)?;
    i64::try_from(place + 1).ok()
}

/// Whether a word has a meaning of its own before digits, and is no zone.
fn is_key(word: &str) -> bool {
    matches!(word, "t" | "j" | "jd" | "y" | "h" | "m" | "s" | "d" | "at" | "on" | "ad" | "bc" | "am" | "pm" | "dst")
        || month_of(word).is_some()
        || is_weekday(word)
}

fn is_weekday(word: &str) -> bool {
    WEEKDAYS.iter().any(|day| *day == word || word.len() >= 3 && day.starts_with(word))
        || matches!(word, "tues" | "wednes" | "thurs" | "thur")
}

/// The offset that a text such as `+05:30` says, in seconds.
#[must_use]
pub fn offset_of(text: &str) -> Option<i64> {
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let digits = text.strip_prefix(['+', '-'])?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b':') {
        return None;
    }
    let number = |text: &str| text.parse::<i64>().ok();
    let parts: Vec<&str> = digits.split(':').collect();
    let (hours, minutes, seconds) = match parts[..] {
        [all] if all.len() > 2 => {
            let (hours, minutes) = all.split_at(all.len() - 2);
            (number(hours)?, number(minutes)?, 0)
        }
        [hours] => (number(hours)?, 0, 0),
        [hours, minutes] => (number(hours)?, number(minutes)?, 0),
        [hours, minutes, seconds] => (number(hours)?, number(minutes)?, number(seconds)?),
        _ => return None,
    };
    (hours <= 15 && minutes < 60 && seconds < 60).then(|| sign * (hours * 3600 + minutes * 60 + seconds))
}

/// The parts that were read so far.
#[derive(Default)]
struct Moment {
    year: Option<i64>,
    /// The year had two digits or fewer.
    is_short_year: bool,
    month: Option<i64>,
    has_month_word: bool,
    day: Option<i64>,
    day_of_year: Option<i64>,
    /// A day that is known as a whole.
    days: Option<i64>,
    micros: Option<i64>,
    zone: Option<i64>,
    named: Option<Zone>,
    is_before: bool,
    is_afternoon: Option<bool>,
    special: Option<Special>,
}

fn digits(text: &str) -> Read<i64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        return Err(Wrong::Format);
    }
    text.parse().map_err(|_| Wrong::Range)
}

/// Sets a part that no field has said before.
fn put(part: &mut Option<i64>, value: i64) -> Read<()> {
    if part.replace(value).is_some() { Err(Wrong::Format) } else { Ok(()) }
}

impl Moment {
    fn read(mut self, fields: &[Field], is_time: bool) -> Read<Found> {
        let (mut before, mut has_history): (Option<&Field>, bool) = (None, false);
        let count = fields.len();
        for (number, field) in fields.iter().enumerate() {
            match field {
                Field::Time(text) => put(&mut self.micros, clock(text)?)?,
                Field::Date(parts, '-') if parts.len() == 2 && self.is_run_together(before) => {
                    // A number and an offset after it.
                    let is_julian = matches!(before, Some(Field::Word(word)) if word == "j" || word == "jd");
                    self.number(&parts[0], is_julian, is_time && count <= 2)?;
                    self.offset(&format!("-{}", parts[1]))?;
                }
                Field::Date(parts, separator) => self.date(parts, *separator)?,
                Field::Number(text) => {
                    let is_julian = matches!(before, Some(Field::Word(word)) if word == "j" || word == "jd");
                    let is_first = number == 0 || matches!(before, Some(Field::Word(word)) if word == "t");
                    self.number(text, is_julian, is_time && count <= 3 && is_first)?;
                }
                Field::Word(word) => self.word(word)?,
                // Before the day it is a day that cannot be read.
                Field::Zone(_) if !is_time && !self.has_whole_day() => return Err(Wrong::Format),
                Field::Zone(name) => {
                    self.name(name)?;
                    has_history = true;
                }
                Field::Offset(text) => self.offset(text)?,
            }
            before = Some(field);
        }
        // Its distance from UTC is that of a day.
        if is_time && has_history && !self.has_whole_day() {
            return Err(Wrong::Format);
        }
        self.found()
    }

    fn has_whole_day(&self) -> bool {
        self.days.is_some() || self.day_of_year.is_some() || self.day.is_some() && self.month.is_some()
    }

    /// Whether `040506-08` is a time and an offset, and not a part of a day.
    fn is_run_together(&self, before: Option<&Field>) -> bool {
        let is_marked = matches!(before, Some(Field::Word(word)) if matches!(word.as_str(), "t" | "j" | "jd"));
        is_marked || self.day.is_some() && self.month.is_some() && self.micros.is_none()
    }

    fn offset(&mut self, text: &str) -> Read<()> {
        // After a day without a time it is a year or day: `Feb-10`; those are dates already.
        let offset = offset_of(text).ok_or(Wrong::Displacement)?;
        put(&mut self.zone, offset)
    }

    fn name(&mut self, name: &str) -> Read<()> {
        let zone = Zone::named(name).ok_or_else(|| Wrong::Zone(name.to_lowercase()))?;
        if self.zone.is_some() || self.named.replace(zone).is_some() {
            return Err(Wrong::Format);
        }
        Ok(())
    }

    fn word(&mut self, word: &str) -> Read<()> {
        let today = || style::to_local(style::now()).div_euclid(DAY_MICROS);
        match word {
            "ad" | "ce" => {}
            "bc" | "bce" => self.is_before = true,
            "am" => self.is_afternoon = Some(false),
            "pm" => self.is_afternoon = Some(true),
            "t" | "at" | "on" | "j" | "jd" | "y" | "h" | "m" | "s" | "d" => {}
            "allballs" => {
                put(&mut self.micros, 0)?;
                self.zone = Some(0);
            }
            "today" => put(&mut self.days, today())?,
            "tomorrow" => put(&mut self.days, today() + 1)?,
            "yesterday" => put(&mut self.days, today() - 1)?,
            "epoch" => self.special = Some(Special::Epoch),
            "now" => self.special = Some(Special::Now),
            "infinity" | "+infinity" | "inf" => self.special = Some(Special::Infinity),
            "-infinity" | "-inf" => self.special = Some(Special::NegInfinity),
            "dst" => self.zone = self.zone.map(|zone| zone + 3600),
            _ => {
                if let Some(month) = month_of(word) {
                    if let (Some(number), false, None) = (self.month, self.has_month_word, self.day) {
                        // The number before the month was the day.
                        (self.month, self.day) = (None, Some(number));
                    }
                    put(&mut self.month, month)?;
                    self.has_month_word = true;
                } else if let Some(zone) = short(word) {
                    match zone {
                        Short::Offset(seconds) => put(&mut self.zone, seconds)?,
                        Short::Of(zone) => self.named = Some(zone),
                    }
                } else if !is_weekday(word) {
                    self.name(word).map_err(|_| Wrong::Format)?;
                }
            }
        }
        Ok(())
    }

    fn set_year(&mut self, text: &str) -> Read<()> {
        self.is_short_year = text.len() <= 2;
        put(&mut self.year, digits(text)?)
    }

    /// The part that a number is, by the parts that are known.
    fn next_part(&mut self, text: &str) -> Read<()> {
        let order = style::with(|style| style.order);
        let is_year = text.len() >= 3 || order == DateOrder::Ymd;
        match (self.year.is_some(), self.month.is_some(), self.day.is_some()) {
            (false, false, false) if is_year => self.set_year(text),
            (false, false, false) if order == DateOrder::Dmy => put(&mut self.day, digits(text)?),
            (_, false, false) | (false, false, true) => put(&mut self.month, digits(text)?),
            (false, true, false) if self.has_month_word && is_year => self.set_year(text),
            (false, true, false) => put(&mut self.day, digits(text)?),
            (true, true, false) if self.has_month_word && text.len() >= 3 && self.is_short_year => {
                // The number before was the day.
                self.day = self.year.take();
                self.set_year(text)
            }
            (true, true, false) => put(&mut self.day, digits(text)?),
            (false, true, true) => self.set_year(text),
            _ => Err(Wrong::Format),
        }
    }

    fn date(&mut self, parts: &[String], separator: char) -> Read<()> {
        if let [year, day] = parts
            && year.len() >= 4
            && day.len() == 3
            && separator != '/'
            && month_of(day).is_none()
        {
            self.set_year(year)?;
            return put(&mut self.day_of_year, digits(day)?);
        }
        let months: Vec<usize> = (0..parts.len()).filter(|place| month_of(&parts[*place]).is_some()).collect();
        if parts.len() > 3 || months.len() > 1 || parts.len() < 3 && months.is_empty() {
            return Err(Wrong::Format);
        }
        if let [place] = months[..] {
            put(&mut self.month, month_of(&parts[place]).unwrap_or(1))?;
            self.has_month_word = true;
        }
        for (_, part) in parts.iter().enumerate().filter(|(place, _)| !months.contains(place)) {
            self.next_part(part)?;
        }
        Ok(())
    }

    fn number(&mut self, text: &str, is_julian: bool, is_clock: bool) -> Read<()> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        if is_julian {
            let day = digits(whole)?;
            let part: f64 = format!("0.{fraction}0").parse().map_err(|_| Wrong::Format)?;
            if !fraction.is_empty() {
                let micros = format!("{:.0}", part * 86_400_000_000.0).parse().map_err(|_| Wrong::Range)?;
                put(&mut self.micros, micros)?;
            }
            return put(&mut self.days, day - 2_451_545);
        }
        let has_day = self.day.is_some() || self.days.is_some() || self.day_of_year.is_some();
        match (whole.len(), fraction.len()) {
            (4, 3) if !has_day && !is_clock => {
                self.set_year(whole)?;
                put(&mut self.day_of_year, digits(fraction)?)
            }
            (6, _) if has_day && self.micros.is_none() || is_clock => {
                put(&mut self.micros, packed_clock(whole, fraction)?)
            }
            (4, 0) if is_clock || has_day && self.year.is_some() && self.micros.is_none() => {
                put(&mut self.micros, packed_clock(&format!("{whole}00"), "")?)
            }
            (14, 0) => {
                self.packed_day(&whole[..8])?;
                put(&mut self.micros, packed_clock(&whole[8..], "")?)
            }
            (8.., 0) if !self.has_month_word && !has_day => self.packed_day(whole),
            (6, 0) if !self.has_month_word && !has_day => {
                self.set_year(&whole[..2])?;
                put(&mut self.month, digits(&whole[2..4])?)?;
                put(&mut self.day, digits(&whole[4..])?)
            }
            (_, 0) => self.next_part(whole),
            _ => Err(Wrong::Format),
        }
    }

    fn packed_day(&mut self, text: &str) -> Read<()> {
        let (year, day) = text.split_at(text.len() - 4);
        self.set_year(year)?;
        put(&mut self.month, digits(&day[..2])?)?;
        put(&mut self.day, digits(&day[2..])?)
    }

    fn found(mut self) -> Read<Found> {
        if let Some(is_afternoon) = self.is_afternoon {
            let micros = self.micros.ok_or(Wrong::Format)?;
            let hour = micros / 3_600_000_000;
            if !((1..=12).contains(&hour) || hour == 0 && !is_afternoon) {
                return Err(Wrong::Range);
            }
            let hours = i64::from(is_afternoon) * 12 - if hour == 12 { 12 } else { 0 };
            self.micros = Some(micros + hours * 3_600_000_000);
        }
        if self.micros.is_some_and(|micros| micros > DAY_MICROS) {
            return Err(Wrong::Range);
        }
        let days = match (self.days, self.year, self.special) {
            (Some(days), None, None) => Some(days),
            (None, None, _) if self.month.is_none() && self.day.is_none() => None,
            (None, Some(year), None) => Some(self.calendar_day(year)?),
            _ => return Err(Wrong::Format),
        };
        if days.is_none() && self.micros.is_none() && self.special.is_none() {
            return Err(Wrong::Format);
        }
        Ok(Found { days, micros: self.micros, zone: self.zone, named: self.named, special: self.special })
    }

    fn calendar_day(&self, year: i64) -> Read<i64> {
        let year = match () {
            () if year == 0 && (self.is_before || !self.is_short_year) => {
                return Err(Wrong::Range);
            }
            () if self.is_before => 1 - year,
            () if self.is_short_year && year < 70 => year + 2000,
            () if self.is_short_year => year + 1900,
            () => year,
        };
        if !(-6_000_000..=6_000_000).contains(&year) {
            return Err(Wrong::Range);
        }
        if let Some(day) = self.day_of_year {
            return if (1..=366).contains(&day) { Ok(days_of(year, 1, 1) + day - 1) } else { Err(Wrong::Range) };
        }
        let (month, day) = (self.month.ok_or(Wrong::Format)?, self.day.ok_or(Wrong::Format)?);
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return Err(Wrong::Range);
        }
        let days = days_of(year, month, day);
        if civil_of(days) == (year, month, day) { Ok(days) } else { Err(Wrong::Range) }
    }
}

/// `17:32:01.5`; a second of 60 is the next minute.
fn clock(text: &str) -> Read<i64> {
    let parts: Vec<&str> = text.split(':').collect();
    let (hour, minute, second) = match parts[..] {
        [hour, minute] => (hour, minute, "0"),
        [hour, minute, second] => (hour, minute, second),
        _ => return Err(Wrong::Format),
    };
    let (second, fraction) = second.split_once('.').unwrap_or((second, ""));
    clock_of(digits(hour)?, digits(minute)?, digits(second)?, fraction)
}

fn packed_clock(whole: &str, fraction: &str) -> Read<i64> {
    clock_of(digits(&whole[..2])?, digits(&whole[2..4])?, digits(&whole[4..])?, fraction)
}

fn clock_of(hour: i64, minute: i64, second: i64, fraction: &str) -> Read<i64> {
    let part: f64 = format!("0.{fraction}0").parse().map_err(|_| Wrong::Format)?;
    let micros: i64 = format!("{:.0}", part * 1e6).parse().map_err(|_| Wrong::Format)?;
    if hour > 24 || minute > 59 || second > 60 {
        return Err(Wrong::Range);
    }
    Ok(((hour * 60 + minute) * 60 + second) * 1_000_000 + micros)
}

/// The moment of `epoch`, from 2000-01-01.
pub const EPOCH: i64 = -EPOCH_DAYS * DAY_MICROS;
