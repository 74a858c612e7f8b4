//! Days and moments: their texts in the style of the session, and the calendar.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::datetime::{self, Special};
use crate::error::{Error, Result, SqlState};
use crate::style::{self, DateForm, DateOrder, Style};
use crate::zone::offset_text;

/// Microseconds of a day.
pub const DAY_MICROS: i64 = 86_400_000_000;
/// Days from 1970-01-01 to 2000-01-01.
pub const EPOCH_DAYS: i64 = 10_957;
/// The value of `infinity` of moments; `-infinity` is its smallest one.
pub const INFINITY: i64 = i64::MAX;
/// The first and the last day of `PostgreSQL`'s moments: 4714-11-24 BC and 294276-12-31.
const DAYS_MIN: i64 = -2_451_545;
const DAYS_MAX: i64 = 106_751_982;
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

/// The text of a day, and the era after it.
fn day_text(days: i64, style: &Style) -> (String, &'static str) {
    let (year, month, day) = civil_of(days);
    let (year, era) = if year <= 0 { (1 - year, " BC") } else { (year, "") };
    let text = match (style.date, style.order) {
        (DateForm::Iso, _) => format!("{year:04}-{month:02}-{day:02}"),
        (DateForm::Sql, DateOrder::Dmy) => format!("{day:02}/{month:02}/{year:04}"),
        (DateForm::Sql, _) => format!("{month:02}/{day:02}/{year:04}"),
        (DateForm::German, _) => format!("{day:02}.{month:02}.{year:04}"),
        (DateForm::Postgres, DateOrder::Dmy) => format!("{day:02}-{month:02}-{year:04}"),
        (DateForm::Postgres, _) => format!("{month:02}-{day:02}-{year:04}"),
    };
    (text, era)
}

/// The text of a date.
#[must_use]
pub fn date_text(days: i32) -> String {
    match days {
        i32::MAX => "infinity".into(),
        i32::MIN => "-infinity".into(),
        days => {
            let (day, era) = style::with(|style| day_text(days.into(), style));
            day + era
        }
    }
}

/// The text of a moment, with the zone if it has one.
#[must_use]
pub fn time_text(micros: i64, has_zone: bool) -> String {
    match micros {
        i64::MAX => "infinity".into(),
        i64::MIN => "-infinity".into(),
        _ => style::with(|style| moment_text(micros, has_zone, style)),
    }
}

fn moment_text(micros: i64, has_zone: bool, style: &Style) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    let at = has_zone.then(|| style.zone.at(micros));
    let local = at.as_ref().map_or(micros, |at| micros.saturating_add(at.seconds * 1_000_000));
    let days = local.div_euclid(DAY_MICROS);
    let clock = clock_text(local.rem_euclid(DAY_MICROS));
    let (day, era) = day_text(days, style);
    let mut text = match style.date {
        DateForm::Postgres => {
            let (year, month, day) = civil_of(days);
            let year = if year <= 0 { 1 - year } else { year };
            let name =
                |names: &[&'static str], place: i64| usize::try_from(place).ok().and_then(|at| names.get(at).copied());
            let weekday = name(&DAYS, (days + 6).rem_euclid(7)).unwrap_or_default();
            let month = name(&MONTHS, month - 1).unwrap_or_default();
            let date = match style.order {
                DateOrder::Dmy => format!("{day:02} {month}"),
                _ => format!("{month} {day:02}"),
            };
            format!("{weekday} {date} {clock} {year:04}")
        }
        _ => format!("{day} {clock}"),
    };
    if let Some(at) = at {
        if style.date == DateForm::Iso {
            text += &offset_text(at.seconds, false);
        } else {
            text = text + " " + &at.abbreviation;
        }
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
    let found = datetime::read(text, "time")?;
    match (found.micros, found.special) {
        (Some(micros), None) => Ok(micros),
        (None, Some(Special::Now)) => Ok(style::to_local(style::now()).rem_euclid(DAY_MICROS)),
        _ => Err(bad("time", text)),
    }
}

fn bad(type_name: &str, text: &str) -> Error {
    let message = format!("invalid input syntax for type {type_name}: \"{text}\"");
    Error::new(SqlState::INVALID_DATETIME_FORMAT, message)
}

/// Whether a moment is inside the limits of the calendar.
#[must_use]
pub fn is_moment(micros: i64) -> bool {
    (DAYS_MIN..=DAYS_MAX).contains(&micros.div_euclid(DAY_MICROS))
}

/// Whether a day is inside the limits of dates.
#[must_use]
pub fn is_date(days: i64) -> bool {
    (DAYS_MIN..=DATE_MAX).contains(&days)
}

/// Reads a date.
///
/// # Errors
/// 22007; 22008.
pub fn parse_date(text: &str) -> Result<i32> {
    let found = datetime::read(text, "date")?;
    let days = match (found.special, found.days) {
        (Some(Special::Infinity), _) => return Ok(i32::MAX),
        (Some(Special::NegInfinity), _) => return Ok(i32::MIN),
        (Some(Special::Epoch), _) => -EPOCH_DAYS,
        (Some(Special::Now), _) => style::to_local(style::now()).div_euclid(DAY_MICROS),
        (None, Some(days)) => days,
        (None, None) => return Err(bad("date", text)),
    };
    i32::try_from(days)
        .ok()
        .filter(|_| is_date(days))
        .ok_or_else(|| Error::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("date out of range: \"{text}\"")))
}

/// Reads a moment. Without a zone it is in that of the session; a zone is ignored in a `timestamp`, as the standard
/// says.
///
/// # Errors
/// 22007; 22008; 22009; 22023.
pub fn parse_time(text: &str, has_zone: bool) -> Result<i64> {
    let name = if has_zone { "timestamp with time zone" } else { "timestamp" };
    let found = datetime::read(text, name)?;
    let days = match (found.special, found.days) {
        (Some(Special::Infinity), _) => return Ok(INFINITY),
        (Some(Special::NegInfinity), _) => return Ok(i64::MIN),
        (Some(Special::Epoch), _) => return Ok(datetime::EPOCH),
        (Some(Special::Now), _) if has_zone => return Ok(style::now()),
        (Some(Special::Now), _) => return Ok(style::to_local(style::now())),
        (None, Some(days)) => days,
        (None, None) => return Err(bad(name, text)),
    };
    let out = || Error::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("timestamp out of range: \"{text}\""));
    // A zone may bring the moment inside.
    if !(DAYS_MIN - 1..=DAYS_MAX + 1).contains(&days) {
        return Err(out());
    }
    let local = days.checked_mul(DAY_MICROS).and_then(|day| day.checked_add(found.micros.unwrap_or(0)));
    let local = local.ok_or_else(out)?;
    let offset = match (has_zone, found.zone, &found.named) {
        (false, ..) => 0,
        (true, Some(seconds), _) => seconds,
        (true, None, Some(zone)) => zone.of_local(local),
        (true, None, None) => style::with(|style| style.zone.of_local(local)),
    };
    let micros = local.checked_sub(offset * 1_000_000);
    micros.filter(|micros| is_moment(*micros)).ok_or_else(out)
}
