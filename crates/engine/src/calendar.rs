//! Days and moments, as numbers whose order is that of time, and their text.
//!
//! The calendar is the Gregorian one, also before its introduction, with a year 0. Days are counted from 1970-01-01.
//! The count begins the year in March, so that the day of a leap year is its last one.

use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

const DAYS_PER_ERA: i64 = 146_097;
const YEARS_PER_ERA: i64 = 400;
/// From 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;
const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

/// The number of a day. Month and day are in their limits, or the result is another day.
const fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let (era, year_of_era) = (year.div_euclid(YEARS_PER_ERA), year.rem_euclid(YEARS_PER_ERA));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * DAYS_PER_ERA + day_of_era - EPOCH_DAYS
}

/// Year, month and day of a number.
const fn civil_of(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH_DAYS;
    let (era, day_of_era) = (days.div_euclid(DAYS_PER_ERA), days.rem_euclid(DAYS_PER_ERA));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * YEARS_PER_ERA + year_of_era;
    (if month > 2 { year } else { year + 1 }, month, day)
}

/// The number of `year-month-day`, if there is such a day.
fn parse_day(text: &str) -> Option<i64> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let mut parts = digits.split('-');
    let year = sign * number(parts.next()?, 4..=7)?;
    let (month, day) = (number(parts.next()?, 2..=2)?, number(parts.next()?, 2..=2)?);
    let days = days_of(year, month, day);
    (parts.next().is_none() && civil_of(days) == (year, month, day)).then_some(days)
}

/// The number that these digits are.
fn number(digits: &str, lengths: std::ops::RangeInclusive<usize>) -> Option<i64> {
    let is_number = lengths.contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

fn write_day(days: i64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (year, month, day) = civil_of(days);
    write!(f, "{}{:04}-{month:02}-{day:02}", if year < 0 { "-" } else { "" }, year.abs())
}

/// A day, as the days since 1970-01-01.
///
/// ```
/// use lodestone_engine::Date;
///
/// let day: Date = "2024-02-29".parse()?;
/// assert_eq!(Date::new(2024, 2, 29), Some(day));
/// assert_eq!((day.days(), day.parts()), (19_782, (2024, 2, 29)));
/// assert_eq!(Date::from_days(19_783).to_string(), "2024-03-01");
/// assert_eq!(Date::new(2023, 2, 29), None);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date {
    days: i32,
}

impl Date {
    /// The day with this number.
    #[must_use]
    pub const fn from_days(days: i32) -> Self {
        Self { days }
    }

    /// A day of the calendar. `None`: there is no such day.
    #[must_use]
    pub fn new(year: i32, month: u8, day: u8) -> Option<Self> {
        let parts = (year.into(), month.into(), day.into());
        let days = days_of(parts.0, parts.1, parts.2);
        let is_day = (1..=12).contains(&month) && civil_of(days) == parts;
        is_day.then(|| i32::try_from(days).ok().map(Self::from_days)).flatten()
    }

    /// Days since 1970-01-01.
    #[must_use]
    pub const fn days(self) -> i32 {
        self.days
    }

    /// Year, month and day.
    #[must_use]
    pub fn parts(self) -> (i32, u8, u8) {
        let (year, month, day) = civil_of(self.days.into());
        let small = |number: i64| u8::try_from(number).unwrap_or(u8::MAX);
        (i32::try_from(year).unwrap_or(i32::MAX), small(month), small(day))
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_day(self.days.into(), f)
    }
}

/// Reads the text that `Display` writes.
impl FromStr for Date {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let days = parse_day(text).and_then(|days| i32::try_from(days).ok());
        days.map(Self::from_days).ok_or_else(|| format!("`{text}` is no day; write one like 2024-02-29"))
    }
}

/// A moment, as the microseconds since 1970-01-01T00:00:00Z, without leap seconds.
///
/// ```
/// use lodestone_engine::Timestamp;
///
/// let moment: Timestamp = "2024-02-29T12:30:00.5Z".parse()?;
/// assert_eq!(moment.micros(), 1_709_209_800_500_000);
/// assert_eq!(moment.to_string(), "2024-02-29T12:30:00.500000Z");
/// assert!(Timestamp::try_from(std::time::SystemTime::now())? > moment);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    micros: i64,
}

impl Timestamp {
    /// The moment with this number.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self { micros }
    }

    /// Microseconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn micros(self) -> i64 {
        self.micros
    }
}

impl TryFrom<SystemTime> for Timestamp {
    type Error = String;

    fn try_from(time: SystemTime) -> Result<Self, String> {
        let micros = match time.duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_micros()).ok(),
            Err(error) => i64::try_from(error.duration().as_micros()).ok().map(|before| -before),
        };
        micros.map(Self::from_micros).ok_or_else(|| "the time is more than 292,000 years from 1970".into())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_day(self.micros.div_euclid(MICROS_PER_DAY), f)?;
        let micros = self.micros.rem_euclid(MICROS_PER_DAY);
        let (seconds, micros) = (micros / MICROS_PER_SECOND, micros % MICROS_PER_SECOND);
        write!(f, "T{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)?;
        if micros != 0 {
            write!(f, ".{micros:06}")?;
        }
        f.write_str("Z")
    }
}

/// Reads the text that `Display` writes, with one to six digits after the point.
impl FromStr for Timestamp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let micros = parse_moment(text);
        micros
            .map(Self::from_micros)
            .ok_or_else(|| format!("`{text}` is no moment; write one like 2024-02-29T12:30:00Z"))
    }
}

fn parse_moment(text: &str) -> Option<i64> {
    let (day, time) = text.strip_suffix('Z')?.split_once('T')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut parts = time.split(':');
    let mut part = |limit: i64| number(parts.next()?, 2..=2).filter(|part| *part < limit);
    let seconds = (part(24)? * 60 + part(60)?) * 60 + part(60)?;
    let micros = number(&format!("{fraction:0<6}"), 6..=6).filter(|_| !fraction.is_empty())?;
    let of_day = seconds * MICROS_PER_SECOND + micros;
    let total = i128::from(parse_day(day)?) * i128::from(MICROS_PER_DAY) + i128::from(of_day);
    parts.next().is_none().then(|| i64::try_from(total).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn days_follow_each_other() {
        // Two eras and their borders.
        let (mut year, mut month, mut day) = (1599, 12, 31);
        for days in days_of(1600, 1, 1)..days_of(2401, 1, 1) {
            let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = match month {
                2 => 28 + i64::from(is_leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            (year, month, day) = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                (_, last) if last == length => (year, month + 1, 1),
                _ => (year, month, day + 1),
            };
            assert_eq!(civil_of(days), (year, month, day));
            assert_eq!(days_of(year, month, day), days);
        }
    }

    #[test]
    fn texts_are_days_and_moments_or_errors() {
        assert_eq!("1970-01-01".parse(), Ok(Date::default()));
        assert_eq!("-0001-12-31".parse::<Date>().map(|day| day.to_string()).as_deref(), Ok("-0001-12-31"));
        assert_eq!("1969-12-31T23:59:59.999999Z".parse(), Ok(Timestamp::from_micros(-1)));
        for text in ["", "1970", "1970-1-1", "1970-01-32", "2023-02-29", "1970-00-01", "1970-01-01-", "+970-01-01"] {
            assert!(text.parse::<Date>().is_err(), "{text}");
            assert!(format!("{text}T00:00:00Z").parse::<Timestamp>().is_err(), "{text}");
        }
        for text in
            ["00:00:00", "24:00:00Z", "00:60:00Z", "00:00:60Z", "00:00Z", "0:0:0Z", "00:00:00.Z", "00:00:00.1234567Z"]
        {
            let found = format!("1970-01-01T{text}").parse::<Timestamp>();
            assert!(found.is_err(), "{text}: {found:?}");
        }
    }

    proptest! {
        #[test]
        fn texts_come_back(days in any::<i32>(), micros in any::<i64>()) {
            let (day, moment) = (Date::from_days(days), Timestamp::from_micros(micros));
            prop_assert_eq!(day.to_string().parse(), Ok(day));
            prop_assert_eq!(moment.to_string().parse(), Ok(moment));
            let (year, month, of_month) = day.parts();
            prop_assert_eq!(Date::new(year, month, of_month), Some(day));
        }
    }
}
