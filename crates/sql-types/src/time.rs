//! Days and moments: text in ISO style, and the calendar. The time zone is UTC.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result, SqlState};

/// Microseconds of a day.
pub const DAY_MICROS: i64 = 86_400_000_000;
/// Days from 1970-01-01 to 2000-01-01.
pub const EPOCH_DAYS: i64 = 10_957;
/// The value of `infinity` of moments; `-infinity` is its smallest one.
pub const INFINITY: i64 = i64::MAX;
/// The first and the last day of `PostgreSQL`'s moments: 4714-11-24 BC and 294276-12-31.
const DAYS_MIN: i64 = -2_451_545;
const DAYS_MAX: i64 = 106_751_990;
/// The last day of `PostgreSQL`'s dates: 5874897-12-31.
const DATE_MAX: i64 = 2_145_031_948;

/// The day of a year, month and day, counted from 2000-01-01. The year 0 is 1 BC.
#[must_use]
pub fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468 - EPOCH_DAYS
}

/// Year, month and day of a day that is counted from 2000-01-01.
#[must_use]
pub fn civil_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468 + EPOCH_DAYS;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// This moment, in microseconds since 2000-01-01 UTC.
#[must_use]
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX) - EPOCH_DAYS * DAY_MICROS
}

fn day_text(days: i64) -> (String, &'static str) {
    let (year, month, day) = civil_of(days);
    let (year, era) = if year <= 0 { (1 - year, " BC") } else { (year, "") };
    (format!("{year:04}-{month:02}-{day:02}"), era)
}

/// The text of a date.
#[must_use]
pub fn date_text(days: i32) -> String {
    match days {
        i32::MAX => "infinity".into(),
        i32::MIN => "-infinity".into(),
        days => {
            let (day, era) = day_text(days.into());
            day + era
        }
    }
}

/// The text of a moment, with the zone if it has one.
#[must_use]
pub fn time_text(micros: i64, has_zone: bool) -> String {
    match micros {
        i64::MAX => return "infinity".into(),
        i64::MIN => return "-infinity".into(),
        _ => {}
    }
    let (day, era) = day_text(micros.div_euclid(DAY_MICROS));
    let rest = micros.rem_euclid(DAY_MICROS);
    let (seconds, fraction) = (rest / 1_000_000, rest % 1_000_000);
    let mut text = format!("{day} {:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if fraction > 0 {
        text += format!(".{fraction:06}").trim_end_matches('0');
    }
    if has_zone {
        text += "+00";
    }
    text + era
}

/// The text of a time of day.
#[must_use]
pub fn clock_text(micros: i64) -> String {
    let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
    let mut text = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if fraction > 0 {
        text += format!(".{fraction:06}").trim_end_matches('0');
    }
    text
}

/// Reads a time of day. A zone is ignored, as the standard says.
///
/// # Errors
/// 22007; 22008.
pub fn parse_time_of_day(text: &str) -> Result<i64> {
    let mut parts = Parts::default();
    let rest = text.trim();
    // A day before it is allowed.
    let clock = rest.split_once([' ', 'T']).filter(|(day, _)| day.contains('-')).map_or(rest, |(_, clock)| clock);
    parse_clock(clock, &mut parts).ok_or_else(|| bad("time", text))?;
    if parts.is_out || parts.micros > DAY_MICROS { Err(out_of_range(text)) } else { Ok(parts.micros) }
}

fn bad(type_name: &str, text: &str) -> Error {
    let message = format!("invalid input syntax for type {type_name}: \"{text}\"");
    Error::new(SqlState::INVALID_DATETIME_FORMAT, message)
}

fn out_of_range(text: &str) -> Error {
    let message = format!("date/time field value out of range: \"{text}\"");
    Error::new(SqlState::DATETIME_FIELD_OVERFLOW, message)
}

/// Parts of a text.
#[derive(Debug, Default)]
struct Parts {
    days: i64,
    micros: i64,
    zone_seconds: Option<i64>,
    /// A part of the time is too large.
    is_out: bool,
}

/// Reads a date.
///
/// # Errors
/// 22007; 22008.
pub fn parse_date(text: &str) -> Result<i32> {
    match text.trim().to_ascii_lowercase().as_str() {
        "infinity" => return Ok(i32::MAX),
        "-infinity" => return Ok(i32::MIN),
        "epoch" => return Ok(i32::try_from(-EPOCH_DAYS).unwrap_or(0)),
        _ => {}
    }
    let days = parse(text, "date")?.days;
    i32::try_from(days)
        .ok()
        .filter(|_| (DAYS_MIN..=DATE_MAX).contains(&days))
        .ok_or_else(|| Error::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("date out of range: \"{text}\"")))
}

/// Reads a moment. Without a zone it is UTC; a zone is ignored in a `timestamp`, as the standard says.
///
/// # Errors
/// 22007; 22008.
pub fn parse_time(text: &str, has_zone: bool) -> Result<i64> {
    let name = if has_zone { "timestamp with time zone" } else { "timestamp" };
    match text.trim().to_ascii_lowercase().as_str() {
        "infinity" => return Ok(INFINITY),
        "-infinity" => return Ok(i64::MIN),
        "epoch" => return Ok(-EPOCH_DAYS * DAY_MICROS),
        "now" => return Ok(now()),
        _ => {}
    }
    let parts = parse(text, name)?;
    let out = || Error::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("timestamp out of range: \"{text}\""));
    if !(DAYS_MIN..=DAYS_MAX).contains(&parts.days) {
        return Err(out());
    }
    let zone = if has_zone { parts.zone_seconds.unwrap_or(0) } else { 0 };
    let micros = parts.days.checked_mul(DAY_MICROS).and_then(|day| day.checked_add(parts.micros - zone * 1_000_000));
    micros.ok_or_else(out)
}

fn parse(text: &str, name: &str) -> Result<Parts> {
    let fail = || bad(name, text);
    let mut rest = text.trim();
    let is_before = rest.to_ascii_lowercase().ends_with(" bc");
    if is_before {
        rest = rest[..rest.len() - 3].trim_end();
    }
    let end = rest.find([' ', 'T', 't']).unwrap_or(rest.len());
    let (day, time) = rest.split_at(end);
    let numbers = day.split('-').map(digits).collect::<Option<Vec<_>>>().ok_or_else(fail)?;
    let (year, month, number) = match numbers[..] {
        [year, month, number] if day.find('-').is_some_and(|end| end >= 3) => (year, month, number),
        [all] if day.len() == 8 => (all / 10_000, all / 100 % 100, all % 100),
        _ => return Err(fail()),
    };
    let year = if is_before { 1 - year } else { year };
    if !(1..=12).contains(&month) || !(1..=31).contains(&number) || year > 6_000_000 {
        return Err(out_of_range(text));
    }
    let days = days_of(year, month, number);
    if civil_of(days) != (year, month, number) {
        return Err(out_of_range(text));
    }
    let mut parts = Parts { days, ..Parts::default() };
    let time = time.trim_start_matches([' ', 'T', 't']).trim();
    if !time.is_empty() {
        parse_clock(time, &mut parts).ok_or_else(fail)?;
        if parts.is_out || parts.micros > DAY_MICROS {
            return Err(out_of_range(text));
        }
    }
    Ok(parts)
}

/// Reads a time of day with an optional zone.
fn parse_clock(text: &str, parts: &mut Parts) -> Option<()> {
    let end =
        text.find(|letter: char| !letter.is_ascii_digit() && letter != ':' && letter != '.').unwrap_or(text.len());
    let (clock, zone) = text.split_at(end);
    let mut fields = clock.split(':');
    let (hour, minute) = (digits(fields.next()?)?, digits(fields.next()?)?);
    let (second, micros) = match fields.next() {
        None => (0, 0),
        Some(second) => {
            let (whole, fraction) = second.split_once('.').unwrap_or((second, ""));
            let fraction = format!("{fraction:0<6}");
            (digits(whole)?, digits(fraction.get(..6)?)?)
        }
    };
    if fields.next().is_some() {
        return None;
    }
    parts.is_out = hour > 24 || minute > 59 || second > 60;
    parts.micros = ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros;
    let zone = zone.trim();
    parts.zone_seconds = match zone {
        "" => None,
        "Z" | "z" | "UTC" | "utc" | "GMT" => Some(0),
        _ => {
            let sign = if zone.starts_with('-') { -1 } else { 1 };
            let (hours, minutes) = match zone.strip_prefix(['+', '-'])?.split_once(':') {
                Some((hours, minutes)) => (digits(hours)?, digits(minutes)?),
                None if zone.len() == 5 => (digits(&zone[1..3])?, digits(&zone[3..])?),
                None => (digits(&zone[1..])?, 0),
            };
            (hours <= 15 && minutes < 60).then_some(Some(sign * (hours * 3600 + minutes * 60)))?
        }
    };
    Some(())
}

fn digits(text: &str) -> Option<i64> {
    let is_number = !text.is_empty() && text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}
