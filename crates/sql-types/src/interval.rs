//! Spans of time: months, days and microseconds, which are kept apart because neither a month nor a day has a fixed
//! length.

use std::cmp::Ordering;
use std::fmt;

use crate::error::{Error, Result, SqlState};
use crate::style::{self, SpanForm};
use crate::time::{DAY_MICROS, civil_of, days_of};

const MONTH_DAYS: i64 = 30;
const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// A span of time.
///
/// ```
/// use lodestone_sql_types::Interval;
///
/// let span: Interval = "1 year 2 mons 3 days 04:05:06.5".parse()?;
/// assert_eq!((span.months, span.days), (14, 3));
/// assert_eq!(span.to_string(), "1 year 2 mons 3 days 04:05:06.5");
/// # Ok::<(), lodestone_sql_types::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Interval {
    /// Months; twelve are a year.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Microseconds.
    pub micros: i64,
}

/// The error of a span outside its limits.
pub(crate) fn out_of_range() -> Error {
    Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "interval out of range")
}

fn small(value: i64) -> Result<i32> {
    i32::try_from(value).map_err(|_| out_of_range())
}

/// The whole part of a number that fits, and its fraction.
fn split(value: f64) -> Result<(i64, f64)> {
    let whole = value.trunc();
    let found = if whole.is_finite() { format!("{whole:.0}").parse::<i64>().ok() } else { None };
    Ok((found.ok_or_else(out_of_range)?, value - whole))
}

fn rounded(value: f64) -> Result<i64> {
    split(value.round_ties_even()).map(|(whole, _)| whole)
}

fn real(value: i64) -> f64 {
    lodestone_width::nearest_f64(value.unsigned_abs()) * if value < 0 { -1.0 } else { 1.0 }
}

impl Interval {
    /// Of these parts.
    ///
    /// # Errors
    /// 22008.
    pub fn of(months: i64, days: i64, micros: i64) -> Result<Self> {
        Ok(Self { months: small(months)?, days: small(days)?, micros })
    }

    /// Its length with months of 30 days, by which spans are ordered.
    #[must_use]
    pub fn length(self) -> i128 {
        let days = i128::from(self.months) * i128::from(MONTH_DAYS) + i128::from(self.days);
        days * i128::from(DAY_MICROS) + i128::from(self.micros)
    }

    /// The sum.
    ///
    /// # Errors
    /// 22008.
    pub fn plus(self, other: Self) -> Result<Self> {
        Ok(Self {
            months: self.months.checked_add(other.months).ok_or_else(out_of_range)?,
            days: self.days.checked_add(other.days).ok_or_else(out_of_range)?,
            micros: self.micros.checked_add(other.micros).ok_or_else(out_of_range)?,
        })
    }

    /// With the other sign.
    ///
    /// # Errors
    /// 22008.
    pub fn negate(self) -> Result<Self> {
        Ok(Self {
            months: self.months.checked_neg().ok_or_else(out_of_range)?,
            days: self.days.checked_neg().ok_or_else(out_of_range)?,
            micros: self.micros.checked_neg().ok_or_else(out_of_range)?,
        })
    }

    /// So many times as long: fractions of months become days, those of days microseconds.
    ///
    /// # Errors
    /// 22008.
    pub fn times(self, factor: f64) -> Result<Self> {
        self.scaled(|value| value * factor)
    }

    /// The part of it.
    ///
    /// # Errors
    /// 22008; 22012.
    pub fn divide(self, divisor: f64) -> Result<Self> {
        if divisor == 0.0 {
            return Err(Error::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
        }
        self.scaled(|value| value / divisor)
    }

    fn scaled(self, scale: impl Fn(f64) -> f64) -> Result<Self> {
        let (months, month_rest) = split(scale(f64::from(self.months)))?;
        let (days, day_rest) = split(scale(f64::from(self.days)))?;
        let days = i64::from(small(days)?);
        let month_days = ((month_rest * real(MONTH_DAYS)) * 1e6).round_ties_even() / 1e6;
        let mut seconds = (day_rest + month_days - month_days.trunc()) * 86_400.0;
        seconds = (seconds * 1e6).round_ties_even() / 1e6;
        let mut more_days = 0;
        if seconds.abs() >= 86_400.0 {
            more_days = split(seconds / 86_400.0)?.0;
            seconds -= real(more_days) * 86_400.0;
        }
        let days = days + split(month_days)?.0 + more_days;
        Self::of(months, days, rounded(scale(real(self.micros)) + seconds * 1e6)?)
    }

    /// Days of 24 hours go from the microseconds to the days.
    ///
    /// # Errors
    /// 22008.
    pub fn justify_hours(self) -> Result<Self> {
        let whole = self.micros / DAY_MICROS;
        let mut found = Self::of(self.months.into(), i64::from(self.days) + whole, self.micros % DAY_MICROS)?;
        if found.days > 0 && found.micros < 0 {
            (found.days, found.micros) = (found.days - 1, found.micros + DAY_MICROS);
        } else if found.days < 0 && found.micros > 0 {
            (found.days, found.micros) = (found.days + 1, found.micros - DAY_MICROS);
        }
        Ok(found)
    }

    /// Months of 30 days go from the days to the months.
    ///
    /// # Errors
    /// 22008.
    pub fn justify_days(self) -> Result<Self> {
        let days = i64::from(self.days);
        let mut found = Self::of(i64::from(self.months) + days / MONTH_DAYS, days % MONTH_DAYS, self.micros)?;
        if found.months > 0 && found.days < 0 {
            (found.months, found.days) = (found.months - 1, found.days + 30);
        } else if found.months < 0 && found.days > 0 {
            (found.months, found.days) = (found.months + 1, found.days - 30);
        }
        Ok(found)
    }

    /// Both of them, with one sign for all parts.
    ///
    /// # Errors
    /// 22008.
    pub fn justify(self) -> Result<Self> {
        let mut found = self.justify_hours()?.justify_days()?;
        if found.months > 0 && (found.days < 0 || found.days == 0 && found.micros < 0) {
            (found.months, found.days) = (found.months - 1, found.days + 30);
        } else if found.months < 0 && (found.days > 0 || found.days == 0 && found.micros > 0) {
            (found.months, found.days) = (found.months + 1, found.days - 30);
        }
        if found.days > 0 && found.micros < 0 {
            (found.days, found.micros) = (found.days - 1, found.micros + DAY_MICROS);
        } else if found.days < 0 && found.micros > 0 {
            (found.days, found.micros) = (found.days + 1, found.micros - DAY_MICROS);
        }
        Ok(found)
    }

    /// The moment that is so much later. A day that the month does not have becomes its last one.
    ///
    /// # Errors
    /// 22008.
    pub fn after(self, moment: i64) -> Result<i64> {
        let out = || Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range");
        if matches!(moment, i64::MAX | i64::MIN) {
            return Ok(moment);
        }
        let (mut days, rest) = (moment.div_euclid(DAY_MICROS), moment.rem_euclid(DAY_MICROS));
        if self.months != 0 {
            let (year, month, day) = civil_of(days);
            let number = year * 12 + month - 1 + i64::from(self.months);
            let (year, month) = (number.div_euclid(12), number.rem_euclid(12) + 1);
            days = days_of(year, month, day.min(month_length(year, month)));
        }
        days += i64::from(self.days);
        let found = days.checked_mul(DAY_MICROS).and_then(|found| found.checked_add(rest));
        let found = found.and_then(|found| found.checked_add(self.micros)).ok_or_else(out)?;
        if crate::time::is_moment(found) { Ok(found) } else { Err(out()) }
    }

    /// The span between two moments in years, months, days and time, as the calendar counts them.
    ///
    /// # Errors
    /// 22008.
    pub fn age(later: i64, earlier: i64) -> Result<Self> {
        if later < earlier {
            return Self::age(earlier, later)?.negate();
        }
        let parts = |moment: i64| (civil_of(moment.div_euclid(DAY_MICROS)), moment.rem_euclid(DAY_MICROS));
        let ((one_year, one_month, one_day), one_time) = parts(later);
        let ((two_year, two_month, two_day), two_time) = parts(earlier);
        let mut months = (one_year - two_year) * 12 + one_month - two_month;
        let (mut days, mut micros) = (one_day - two_day, one_time - two_time);
        if micros < 0 {
            (micros, days) = (micros + DAY_MICROS, days - 1);
        }
        while days < 0 {
            // The days of the month in which the span begins.
            days += month_length(two_year, two_month);
            months -= 1;
        }
        Self::of(months, days, micros)
    }
}

impl Interval {
    /// Its text in a form of the setting `IntervalStyle`.
    #[must_use]
    pub fn text(self, form: SpanForm) -> String {
        match form {
            SpanForm::Postgres => self.to_string(),
            SpanForm::PostgresVerbose => self.verbose(),
            SpanForm::SqlStandard => self.of_standard(),
            SpanForm::Iso8601 => self.iso_text(),
        }
    }

    /// Years, months, days, hours, minutes; then seconds and their fraction.
    fn parts(self) -> ([i64; 5], i64, i64) {
        let (months, micros) = (i64::from(self.months), self.micros);
        let parts = [months / 12, months % 12, self.days.into(), micros / HOUR, micros / MINUTE % 60];
        (parts, micros / SECOND % 60, micros % SECOND)
    }

    fn verbose(self) -> String {
        let (parts, seconds, fraction) = self.parts();
        let (mut text, mut is_zero, mut is_before) = ("@".to_owned(), true, false);
        for (value, unit) in
            parts.into_iter().zip(["year", "mon", "day", "hour", "min"]).filter(|(value, _)| *value != 0)
        {
            // The first part decides about `ago`.
            is_before = if is_zero { value < 0 } else { is_before };
            let value = if is_before { -value } else { value };
            text += &format!(" {value} {unit}{}", if value == 1 { "" } else { "s" });
            is_zero = false;
        }
        if seconds != 0 || fraction != 0 {
            let is_negative = seconds < 0 || fraction < 0;
            let sign = if !is_zero && is_negative != is_before { "-" } else { "" };
            is_before = if is_zero { is_negative } else { is_before };
            let plural = if seconds.abs() != 1 || fraction != 0 { "s" } else { "" };
            text += &format!(" {sign}{} sec{plural}", seconds_text(seconds, fraction, 1));
            is_zero = false;
        }
        text + if is_zero { " 0" } else { "" } + if is_before { " ago" } else { "" }
    }

    fn of_standard(self) -> String {
        let ([years, months, days, hours, minutes], seconds, fraction) = self.parts();
        let all = [years, months, days, hours, minutes, seconds, fraction];
        let (has_negative, has_positive) = (all.iter().any(|part| *part < 0), all.iter().any(|part| *part > 0));
        let (has_months, has_days) = (self.months != 0, self.days != 0);
        let clock = format!("{}:{:02}:{}", hours.abs(), minutes.abs(), seconds_text(seconds, fraction, 2));
        if has_negative && has_positive || has_months && (has_days || self.micros != 0) {
            let sign = |is_negative: bool| if is_negative { '-' } else { '+' };
            let (month_sign, day_sign, sign) = (sign(self.months < 0), sign(days < 0), sign(self.micros < 0));
            return format!("{month_sign}{}-{} {day_sign}{} {sign}{clock}", years.abs(), months.abs(), days.abs());
        }
        let sign = if has_negative { "-" } else { "" };
        match () {
            () if !has_negative && !has_positive => "0".into(),
            () if has_months => format!("{sign}{}-{}", years.abs(), months.abs()),
            () if has_days => format!("{sign}{} {clock}", days.abs()),
            () => format!("{sign}{clock}"),
        }
    }

    fn iso_text(self) -> String {
        let ([years, months, days, hours, minutes], seconds, fraction) = self.parts();
        let part = |value: i64, unit: char| if value == 0 { String::new() } else { format!("{value}{unit}") };
        if self.months == 0 && self.days == 0 && self.micros == 0 {
            return "PT0S".into();
        }
        let mut text = format!("P{}{}{}", part(years, 'Y'), part(months, 'M'), part(days, 'D'));
        if self.micros != 0 {
            text = text + "T" + &part(hours, 'H') + &part(minutes, 'M');
        }
        if seconds != 0 || fraction != 0 {
            let sign = if seconds < 0 || fraction < 0 { "-" } else { "" };
            text += &format!("{sign}{}S", seconds_text(seconds, fraction, 1));
        }
        text
    }
}

/// Seconds with their fraction, without a sign.
fn seconds_text(seconds: i64, fraction: i64, width: usize) -> String {
    let whole = format!("{:0width$}", seconds.abs());
    if fraction == 0 {
        return whole;
    }
    whole + format!(".{:06}", fraction.abs()).trim_end_matches('0')
}

/// Days of a month.
#[must_use]
pub fn month_length(year: i64, month: i64) -> i64 {
    let (next_year, next_month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    days_of(next_year, next_month, 1) - days_of(year, month, 1)
}

impl PartialEq for Interval {
    fn eq(&self, other: &Self) -> bool {
        self.length() == other.length()
    }
}

impl Eq for Interval {}

impl PartialOrd for Interval {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Interval {
    fn cmp(&self, other: &Self) -> Ordering {
        self.length().cmp(&other.length())
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut is_first, mut was_negative) = (true, false);
        let parts = [(self.months / 12, "year"), (self.months % 12, "mon"), (self.days, "day")];
        for (value, unit) in parts.into_iter().filter(|(value, _)| *value != 0) {
            let sign = if was_negative && value > 0 { "+" } else { "" };
            let plural = if value == 1 { "" } else { "s" };
            write!(f, "{}{sign}{value} {unit}{plural}", if is_first { "" } else { " " })?;
            (is_first, was_negative) = (false, value < 0);
        }
        if is_first || self.micros != 0 {
            let sign = match () {
                () if self.micros < 0 => "-",
                () if was_negative => "+",
                () => "",
            };
            let micros = self.micros.unsigned_abs();
            let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
            write!(f, "{}{sign}", if is_first { "" } else { " " })?;
            write!(f, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)?;
            if fraction > 0 {
                f.write_str(format!(".{fraction:06}").trim_end_matches('0'))?;
            }
        }
        Ok(())
    }
}

/// A unit of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Months(i64),
    Days(i64),
    Micros(i64),
}

fn unit(word: &str) -> Option<Unit> {
    // As PostgreSQL: only the first ten letters count.
    Some(match word.get(..10).unwrap_or(word) {
        "microsecon" | "us" | "usec" | "usecs" | "usecond" | "useconds" => Unit::Micros(1),
        "millisecon" | "ms" | "msec" | "msecs" | "msecond" | "mseconds" => Unit::Micros(1_000),
        "second" | "seconds" | "sec" | "secs" | "s" => Unit::Micros(SECOND),
        "minute" | "minutes" | "min" | "mins" | "m" => Unit::Micros(MINUTE),
        "hour" | "hours" | "hr" | "hrs" | "h" => Unit::Micros(HOUR),
        "day" | "days" | "d" => Unit::Days(1),
        "week" | "weeks" | "w" => Unit::Days(7),
        "month" | "months" | "mon" | "mons" => Unit::Months(1),
        "year" | "years" | "yr" | "yrs" | "y" => Unit::Months(12),
        "decade" | "decades" | "dec" | "decs" => Unit::Months(120),
        "century" | "centuries" | "cent" | "c" => Unit::Months(1_200),
        "millennium" | "millennia" | "mil" | "mils" => Unit::Months(12_000),
        _ => return None,
    })
}

/// A number of a text: its sign, whole part and fraction.
#[derive(Clone, Copy, Debug)]
struct Number {
    is_negative: bool,
    whole: i64,
    fraction: f64,
}

/// The parts of a span that is being read.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    months: i64,
    days: i64,
    micros: i64,
}

fn overflow(text: &str) -> Error {
    let message = format!("interval field value out of range: \"{text}\"");
    Error::new(SqlState::INTERVAL_FIELD_OVERFLOW, message)
}

impl Sum {
    fn add(&mut self, number: Number, unit: Unit) -> Option<()> {
        let sign = if number.is_negative { -1 } else { 1 };
        let (whole, fraction) = (number.whole.checked_mul(sign)?, number.fraction * real(sign));
        match unit {
            Unit::Months(count) => {
                self.months = self.months.checked_add(whole.checked_mul(count)?)?;
                if count == 1 {
                    self.add_days(fraction * real(MONTH_DAYS))?;
                } else {
                    // Parts of a year are whole months.
                    self.months = self.months.checked_add(rounded(fraction * real(count)).ok()?)?;
                }
            }
            Unit::Days(count) => {
                self.days = self.days.checked_add(whole.checked_mul(count)?)?;
                self.add_days(fraction * real(count))?;
            }
            Unit::Micros(count) => {
                let part = rounded(fraction * real(count)).ok()?;
                self.micros = self.micros.checked_add(whole.checked_mul(count)?)?.checked_add(part)?;
            }
        }
        Some(())
    }

    fn add_time(&mut self, micros: i64, is_negative: bool) -> Option<()> {
        let micros = if is_negative { micros.checked_neg()? } else { micros };
        self.micros = self.micros.checked_add(micros)?;
        Some(())
    }

    fn add_years(&mut self, years: i64, months: i64, is_negative: bool) -> Option<()> {
        let months = years.checked_mul(12)?.checked_add(months)?;
        self.months = self.months.checked_add(if is_negative { months.checked_neg()? } else { months })?;
        Some(())
    }

    fn negated(self) -> Option<Self> {
        let Self { months, days, micros } = self;
        Some(Self { months: months.checked_neg()?, days: days.checked_neg()?, micros: micros.checked_neg()? })
    }

    fn add_days(&mut self, days: f64) -> Option<()> {
        let (whole, rest) = split(days).ok()?;
        self.days = self.days.checked_add(whole)?;
        self.micros = self.micros.checked_add(rounded(rest * real(DAY_MICROS)).ok()?)?;
        Some(())
    }
}

impl std::str::FromStr for Interval {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text, None)
    }
}

impl Interval {
    /// Reads a span. `last`: the unit of a number that has none, as `interval '1' hour` says.
    ///
    /// # Errors
    /// 22007; 22015.
    pub fn parse(text: &str, last: Option<&str>) -> Result<Self> {
        Self::parse_fields(text, last, true)
    }

    /// As [`parse`](Self::parse). `is_short`: two numbers with a colon between them are minutes and seconds, if the
    /// unit is the second.
    ///
    /// # Errors
    /// 22007; 22015.
    pub(crate) fn parse_fields(text: &str, last: Option<&str>, is_short: bool) -> Result<Self> {
        let bad = || {
            let message = format!("invalid input syntax for type interval: \"{text}\"");
            Error::new(SqlState::INVALID_DATETIME_FORMAT, message)
        };
        let lower = text.trim_matches(crate::text::is_space).to_lowercase();
        let all_negative = lower.strip_prefix('-').filter(|rest| has_one_sign(rest));
        let sum = match (lower.strip_prefix('p'), all_negative) {
            (Some(rest), _) => iso(rest),
            (None, Some(rest)) => words(rest, last.and_then(unit), is_short).map(|sum| sum?.negated().ok_or(())),
            (None, None) => words(&lower, last.and_then(unit), is_short),
        };
        let sum = sum.ok_or_else(bad)?.map_err(|()| overflow(text))?;
        Self::of(sum.months, sum.days, sum.micros).map_err(|_| overflow(text))
    }
}

/// Whether the sign before `rest` is that of all parts: in the form of the standard, where no other part has one.
fn has_one_sign(rest: &str) -> bool {
    let is_standard = style::with(|style| style.span == SpanForm::SqlStandard);
    is_standard && rest.split_whitespace().all(|part| !part.starts_with(['-', '+']))
}

/// `None`: the text makes no sense. An inner error: a number is too large.
type Read = Option<Result<Sum, ()>>;

/// Words and numbers: `1 year 2 months`, `1-2`, `3 04:05:06`, `@ 1 day ago`.
fn words(text: &str, last: Option<Unit>, is_short: bool) -> Read {
    let (mut sum, mut waiting, mut is_ago, mut count) = (Sum::default(), None::<Number>, false, 0);
    let mut seen = 0_u32;
    let mut rest = text.trim_start_matches('@').trim();
    while !rest.is_empty() {
        if is_ago {
            return None;
        }
        let first = rest.chars().next()?;
        count += 1;
        if first.is_ascii_alphabetic() {
            let end = rest.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            rest = after.trim_start();
            if word == "ago" && waiting.is_none() {
                is_ago = true;
            } else {
                let unit = unit(word)?;
                let number = waiting.take()?;
                let bits = unit_bits(unit, number.fraction > 0.0);
                // Each part comes once.
                if seen & bits != 0 {
                    return None;
                }
                seen |= bits;
                if sum.add(number, unit).is_none() {
                    return Some(Err(()));
                }
            }
            continue;
        }
        let sign_end = usize::from(matches!(first, '+' | '-'));
        let is_negative = first == '-';
        let body = rest[sign_end..].trim_start();
        let end = body.find(|letter: char| !letter.is_ascii_digit() && !matches!(letter, '.' | ':' | '-'));
        let (token, after) = body.split_at(end.unwrap_or(body.len()));
        rest = after.trim_start();
        if token.is_empty() {
            return None;
        }
        if token.contains(':') {
            let days = waiting.take().map_or(Some(()), |days| sum.add(days, Unit::Days(1)));
            if seen & CLOCK_BITS != 0 {
                return None;
            }
            seen |= CLOCK_BITS;
            let Ok(micros) = clock(token, last, is_short)? else { return Some(Err(())) };
            if days.and_then(|()| sum.add_time(micros, is_negative)).is_none() {
                return Some(Err(()));
            }
        } else if let Some((years, months)) = token.split_once('-') {
            let months: i64 = months.parse().ok().filter(|months| *months < 12)?;
            let Ok(years) = digits(years)? else { return Some(Err(())) };
            if sum.add_years(years, months, is_negative).is_none() {
                return Some(Err(()));
            }
        } else {
            if let Some(days) = waiting.take() {
                // Before hours without a unit there are days.
                if last != Some(Unit::Micros(HOUR)) || sum.add(days, Unit::Days(1)).is_none() {
                    return None;
                }
            }
            match number(token, is_negative)? {
                Ok(number) => waiting = Some(number),
                Err(()) => return Some(Err(())),
            }
        }
    }
    if let Some(number) = waiting
        && sum.add(number, last.unwrap_or(Unit::Micros(SECOND))).is_none()
    {
        return Some(Err(()));
    }
    if is_ago {
        return Some(sum.negated().ok_or(()));
    }
    (count > 0).then_some(Ok(sum))
}

fn number(token: &str, is_negative: bool) -> Option<Result<Number, ()>> {
    let (whole, fraction) = token.split_once('.').unwrap_or((token, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !are_digits(whole) || !are_digits(fraction) {
        return None;
    }
    let fraction = if fraction.is_empty() { 0.0 } else { format!("0.{fraction}").parse().ok()? };
    let whole = if whole.is_empty() { Ok(0) } else { whole.parse::<i64>() };
    Some(whole.map(|whole| Number { is_negative, whole, fraction }).map_err(drop))
}

/// A number without sign and fraction. An inner error: it is too large.
fn digits(text: &str) -> Option<Result<i64, ()>> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().map_err(drop))
}

/// The bits of hours, minutes, and everything below.
const CLOCK_BITS: u32 = 0b1_1111;

/// A bit for each unit; a fraction of a second is one of all units below it, too.
fn unit_bits(unit: Unit, has_fraction: bool) -> u32 {
    match unit {
        Unit::Micros(1) => 1,
        Unit::Micros(1_000) => 2,
        Unit::Micros(SECOND) if has_fraction => 0b111,
        Unit::Micros(SECOND) => 4,
        Unit::Micros(MINUTE) => 8,
        Unit::Micros(_) => 16,
        Unit::Days(1) => 32,
        Unit::Days(_) => 64,
        Unit::Months(1) => 128,
        Unit::Months(12) => 256,
        Unit::Months(120) => 512,
        Unit::Months(1_200) => 1024,
        Unit::Months(_) => 2048,
    }
}

/// `04:05:06.7`; two parts are hours and minutes, or minutes and seconds if the span `is_short`: minute to second.
fn clock(token: &str, last: Option<Unit>, is_short: bool) -> Option<Result<i64, ()>> {
    let parts: Vec<&str> = token.split(':').collect();
    let is_seconds = is_short && last == Some(Unit::Micros(SECOND));
    let is_minutes = parts.len() == 2 && (is_seconds || parts[1].contains('.'));
    let (hour, minute, second) = match parts[..] {
        [minute, second] if is_minutes => ("0", minute, second),
        [hour, minute] => (hour, minute, "0"),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    let second = if second.starts_with('.') { format!("0{second}") } else { second.to_owned() };
    let (hour, minute, second) = (digits(hour)?, digits(minute)?, number(&second, false)?);
    let (Ok(hour), Ok(minute), Ok(second)) = (hour, minute, second) else { return Some(Err(())) };
    if minute > 59 || second.whole > 60 {
        return Some(Err(()));
    }
    let micros = rounded(second.fraction * 1e6).ok()? + second.whole * SECOND + minute * MINUTE;
    Some(hour.checked_mul(HOUR).and_then(|hours| hours.checked_add(micros)).ok_or(()))
}

/// `P1Y2M3DT4H5M6S`, and `P0001-02-03T04:05:06`.
fn iso(text: &str) -> Read {
    let (day, time) = match text.split_once('t') {
        Some((day, time)) => (day, Some(time)),
        None => (text, None),
    };
    let mut sum = Sum::default();
    if day.is_empty() && time.is_none_or(str::is_empty) {
        return None;
    }
    let has_unit = day.contains(|letter: char| letter.is_ascii_alphabetic());
    if !has_unit && !day.is_empty() {
        let parts: Vec<&str> = day.trim_start_matches('-').split('-').collect();
        let mut values = parts.iter().map(|part| part.parse::<i64>());
        let mut value = || values.next().unwrap_or(Ok(0)).ok();
        let (years, months, days) = (value()?, value()?, value()?);
        sum.days = days;
        if sum.add_years(years, months, false).is_none() {
            return Some(Err(()));
        }
    } else if iso_part(day, &mut sum, false)?.is_err() {
        return Some(Err(()));
    }
    match time {
        None => {}
        Some(time) if time.contains(':') => match clock(time, None, false)? {
            Ok(micros) => sum.micros = micros,
            Err(()) => return Some(Err(())),
        },
        Some(time) if iso_part(time, &mut sum, true)?.is_err() => return Some(Err(())),
        Some(_) => {}
    }
    Some(Ok(sum))
}

fn iso_part(text: &str, sum: &mut Sum, is_time: bool) -> Option<Result<(), ()>> {
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|letter: char| letter.is_ascii_alphabetic())?;
        let (token, after) = rest.split_at(end);
        let unit = match (after.chars().next()?, is_time) {
            ('y', false) => Unit::Months(12),
            ('m', false) => Unit::Months(1),
            ('w', false) => Unit::Days(7),
            ('d', false) => Unit::Days(1),
            ('h', true) => Unit::Micros(HOUR),
            ('m', true) => Unit::Micros(MINUTE),
            ('s', true) => Unit::Micros(SECOND),
            _ => return None,
        };
        let is_negative = token.starts_with('-');
        let number = number(token.trim_start_matches(['-', '+']), is_negative)?;
        if number.is_ok_and(|number| sum.add(number, unit).is_some()) {
            rest = &after[1..];
        } else {
            return Some(Err(()));
        }
    }
    Some(Ok(()))
}
