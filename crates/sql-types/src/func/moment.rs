//! Functions of days, moments and spans of time.

use super::{Argument, DATE, FLOAT, Function, INT4, INTERVAL, TEXT, TIME, TIMESTAMP, TIMESTAMPTZ, int, of, text};
use crate::datetime;
use crate::datum::Datum;
use crate::error::{Error, Result, SqlState};
use crate::interval::Interval;
use crate::numeric::Numeric;
use crate::style;
use crate::time::{DAY_MICROS, EPOCH_DAYS, civil_of, days_of};
use crate::types::Type;
use crate::zone::{Short, Zone, short};
use crate::zoned_time::ZonedTime;

const MONTH_SECONDS: i64 = 30 * 86_400;
/// A year of 365.25 days.
const YEAR_SECONDS: i64 = 31_557_600;

pub const FUNCTIONS: &[Function] = &[
    of("date_part", &[TEXT, TIMESTAMP], Type::Float8, |_, a| part(a, Type::Timestamp).map(float)),
    of("date_part", &[TEXT, TIMESTAMPTZ], Type::Float8, |_, a| part(a, Type::Timestamptz).map(float)),
    of("date_part", &[TEXT, DATE], Type::Float8, |_, a| part(a, Type::Date).map(float)),
    of("date_part", &[TEXT, TIME], Type::Float8, |_, a| part(a, Type::Time).map(float)),
    of("date_part", &[TEXT, INTERVAL], Type::Float8, |_, a| part(a, Type::Interval).map(float)),
    of("extract", &[TEXT, DATE], Type::Numeric, |_, a| part(a, Type::Date).map(numeric)),
    of("extract", &[TEXT, TIMESTAMP], Type::Numeric, |_, a| part(a, Type::Timestamp).map(numeric)),
    of("extract", &[TEXT, TIMESTAMPTZ], Type::Numeric, |_, a| part(a, Type::Timestamptz).map(numeric)),
    of("extract", &[TEXT, TIME], Type::Numeric, |_, a| part(a, Type::Time).map(numeric)),
    of("extract", &[TEXT, INTERVAL], Type::Numeric, |_, a| part(a, Type::Interval).map(numeric)),
    of("date_trunc", &[TEXT, TIMESTAMP], Type::Timestamp, |_, a| truncate(a, Type::Timestamp)),
    of("date_trunc", &[TEXT, TIMESTAMPTZ], Type::Timestamptz, |_, a| truncate_in(&style::zone(), a)),
    of("date_trunc", &[TEXT, TIMESTAMPTZ, TEXT], Type::Timestamptz, |_, a| truncate_in(&zone(text(a, 2))?, a)),
    of("date_trunc", &[TEXT, INTERVAL], Type::Interval, |_, a| truncate_span(a)),
    of("date_bin", &[INTERVAL, TIMESTAMP, TIMESTAMP], Type::Timestamp, |_, a| bin(a)),
    of("date_bin", &[INTERVAL, TIMESTAMPTZ, TIMESTAMPTZ], Type::Timestamptz, |_, a| bin(a)),
    of("age", &[TIMESTAMP, TIMESTAMP], Type::Interval, |_, a| age(micros(&a[0]), micros(&a[1]))),
    of("age", &[TIMESTAMPTZ, TIMESTAMPTZ], Type::Interval, |_, a| age(local(&a[0]), local(&a[1]))),
    of("age", &[TIMESTAMP], Type::Interval, |s, a| age(today(s.transaction_time()), micros(&a[0]))).volatile(),
    of("age", &[TIMESTAMPTZ], Type::Interval, |s, a| age(today(s.transaction_time()), local(&a[0]))).volatile(),
    of("justify_hours", &[INTERVAL], Type::Interval, |_, a| span(&a[0]).justify_hours().map(Datum::Interval)),
    of("justify_days", &[INTERVAL], Type::Interval, |_, a| span(&a[0]).justify_days().map(Datum::Interval)),
    of("justify_interval", &[INTERVAL], Type::Interval, |_, a| span(&a[0]).justify().map(Datum::Interval)),
    of("isfinite", &[DATE], Type::Bool, |_, a| Ok(Datum::Bool(!matches!(a[0], Datum::Date(i32::MAX | i32::MIN))))),
    of("isfinite", &[TIMESTAMP], Type::Bool, |_, a| Ok(Datum::Bool(!is_infinite(micros(&a[0]))))),
    of("isfinite", &[TIMESTAMPTZ], Type::Bool, |_, a| Ok(Datum::Bool(!is_infinite(micros(&a[0]))))),
    of("isfinite", &[INTERVAL], Type::Bool, |_, _| Ok(Datum::Bool(true))),
    of("make_date", &[INT4, INT4, INT4], Type::Date, |_, a| make_date(int(a, 0), int(a, 1), int(a, 2))),
    of("make_time", &[INT4, INT4, FLOAT], Type::Time, |_, a| {
        make_time(int(a, 0), int(a, 1), real(&a[2])).map(Datum::Time)
    }),
    of("make_timestamp", &[INT4, INT4, INT4, INT4, INT4, FLOAT], Type::Timestamp, |_, a| make_timestamp(a)),
    of("make_timestamptz", &[INT4, INT4, INT4, INT4, INT4, FLOAT], Type::Timestamptz, |_, a| {
        to_utc(&style::zone(), micros(&make_timestamp(a)?))
    }),
    of("make_timestamptz", &[INT4, INT4, INT4, INT4, INT4, FLOAT, TEXT], Type::Timestamptz, |_, a| {
        to_utc(&sane_zone(text(a, 6))?, micros(&make_timestamp(a)?))
    }),
    of("make_interval", &[INT4], Type::Interval, |_, a| make_interval(a)),
    of("make_interval", &[INT4, INT4], Type::Interval, |_, a| make_interval(a)),
    of("make_interval", &[INT4, INT4, INT4], Type::Interval, |_, a| make_interval(a)),
    of("make_interval", &[INT4, INT4, INT4, INT4], Type::Interval, |_, a| make_interval(a)),
    of("make_interval", &[INT4, INT4, INT4, INT4, INT4], Type::Interval, |_, a| make_interval(a)),
    of("make_interval", &[INT4, INT4, INT4, INT4, INT4, INT4], Type::Interval, |_, a| make_interval(a)),
    of("make_interval", &[INT4, INT4, INT4, INT4, INT4, INT4, FLOAT], Type::Interval, |_, a| make_interval(a)),
    of("interval_of_fields", &[TEXT, TEXT], Type::Interval, |_, a| of_fields(text(a, 0), text(a, 1))),
    of("to_timestamp", &[FLOAT], Type::Timestamptz, |_, a| of_seconds(real(&a[0]))),
    of("timezone", &[TEXT, TIMESTAMP], Type::Timestamptz, |_, a| to_utc(&zone(text(a, 0))?, micros(&a[1]))),
    of("timezone", &[TEXT, TIMESTAMPTZ], Type::Timestamp, |_, a| {
        zone(text(a, 0))?.shown(micros(&a[1])).map(Datum::Time).ok_or_else(out_of_range)
    }),
    of("timezone", &[INTERVAL, TIMESTAMP], Type::Timestamptz, |_, a| {
        shifted(micros(&a[1]), -zone_of_span(span(&a[0]))?)
    }),
    of("timezone", &[INTERVAL, TIMESTAMPTZ], Type::Timestamp, |_, a| {
        shifted(micros(&a[1]), zone_of_span(span(&a[0]))?)
    }),
    of("overlaps", &[TIMESTAMP, TIMESTAMP, TIMESTAMP, TIMESTAMP], Type::Bool, |_, a| Ok(overlaps(a))).lax(),
    of("overlaps", &[TIMESTAMPTZ, TIMESTAMPTZ, TIMESTAMPTZ, TIMESTAMPTZ], Type::Bool, |_, a| Ok(overlaps(a))).lax(),
    of("overlaps", &[TIME, TIME, TIME, TIME], Type::Bool, |_, a| Ok(overlaps(a))).lax(),
    of("localtime", &[], Type::Time, |s, _| {
        Ok(Datum::Time(style::to_local(s.transaction_time()).rem_euclid(DAY_MICROS)))
    })
    .volatile(),
    of("timeofday", &[], Type::Text, |_, _| Ok(super::format::time_of_day())).volatile(),
];

const TIMETZ: Argument = Argument::Of(Type::Timetz);

/// Of times of day in a zone. The place of a function is its number: these came later.
pub const OF_ZONED_TIMES: &[Function] = &[
    of("date_part", &[TEXT, TIMETZ], Type::Float8, |_, a| part_of_zoned(a).map(float)),
    of("extract", &[TEXT, TIMETZ], Type::Numeric, |_, a| part_of_zoned(a).map(numeric)),
    of("timezone", &[TEXT, TIMETZ], Type::Timetz, |s, a| {
        let zone = zone(text(a, 0))?;
        Ok(Datum::ZonedTime(zoned(&a[1]).moved(zone.at(s.transaction_time()).seconds)))
    }),
    of("timezone", &[INTERVAL, TIMETZ], Type::Timetz, |_, a| {
        Ok(Datum::ZonedTime(zoned(&a[1]).moved(zone_of_span(span(&a[0]))?)))
    }),
    of("overlaps", &[TIMETZ, TIMETZ, TIMETZ, TIMETZ], Type::Bool, |_, a| Ok(overlaps(a))).lax(),
    of("current_time", &[], Type::Timetz, |s, _| {
        Ok(Datum::ZonedTime(ZonedTime::at(s.transaction_time(), &style::zone())))
    })
    .volatile(),
];

fn zoned(datum: &Datum) -> ZonedTime {
    if let Datum::ZonedTime(time) = datum { *time } else { ZonedTime { micros: 0, seconds: 0 } }
}

/// A part of a time of day in a zone.
fn part_of_zoned(arguments: &[Datum]) -> Result<Option<Numeric>> {
    let lower = text(arguments, 0).to_ascii_lowercase();
    let time = zoned(&arguments[1]);
    let (rest, seconds) = (time.micros, i64::from(time.seconds));
    match unit_name(&lower) {
        "hour" => whole(rest / 3_600_000_000),
        "minute" => whole(rest / 60_000_000 % 60),
        "second" => scaled(rest % 60_000_000, 6),
        "milliseconds" => scaled(rest % 60_000_000, 3),
        "microseconds" => whole(rest % 60_000_000),
        "epoch" => scaled(time.utc(), 6),
        "timezone" => whole(seconds),
        "timezone_hour" => whole(seconds / 3600),
        "timezone_minute" => whole(seconds / 60 % 60),
        _ => Err(no_unit(&lower, Type::Timetz)),
    }
}

fn float(value: Option<Numeric>) -> Datum {
    value.map_or(Datum::Null, |value| Datum::Float(value.to_f64()))
}

fn numeric(value: Option<Numeric>) -> Datum {
    value.map_or(Datum::Null, Datum::Numeric)
}

fn real(datum: &Datum) -> f64 {
    if let Datum::Float(value) = datum { *value } else { 0.0 }
}

fn micros(datum: &Datum) -> i64 {
    match datum {
        Datum::Time(micros) => *micros,
        Datum::Date(i32::MAX) => i64::MAX,
        Datum::Date(i32::MIN) => i64::MIN,
        Datum::Date(days) => i64::from(*days).saturating_mul(DAY_MICROS),
        _ => 0,
    }
}

fn span(datum: &Datum) -> Interval {
    if let Datum::Interval(span) = datum { *span } else { Interval::default() }
}

fn is_infinite(micros: i64) -> bool {
    matches!(micros, i64::MAX | i64::MIN)
}

/// The begin of the day, as clocks show it.
fn today(now: i64) -> i64 {
    style::to_local(now).div_euclid(DAY_MICROS) * DAY_MICROS
}

/// The date and time that clocks show at a moment.
fn local(datum: &Datum) -> i64 {
    style::to_local(micros(datum))
}

fn to_utc(zone: &Zone, local: i64) -> Result<Datum> {
    zone.to_utc(local).map(Datum::Time).ok_or_else(out_of_range)
}

fn out_of_range() -> Error {
    Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range")
}

fn age(later: i64, earlier: i64) -> Result<Datum> {
    if is_infinite(later) || is_infinite(earlier) {
        return Err(crate::interval::out_of_range());
    }
    Interval::age(later, earlier).map(Datum::Interval)
}

/// A zone by its short or long name.
fn zone(name: &str) -> Result<Zone> {
    let lower = name.trim().to_lowercase();
    let found = match short(&lower) {
        Some(Short::Offset(seconds)) => Some(Zone::fixed(seconds, &lower.to_uppercase())),
        Some(Short::Of(zone)) => Some(zone),
        None => Zone::named(name),
    };
    found.ok_or_else(|| datetime::no_zone(name))
}

/// A zone by its name, or by an offset whose sign is that of ISO 8601: east is positive.
fn sane_zone(name: &str) -> Result<Zone> {
    if name.starts_with(|letter: char| letter.is_ascii_digit()) {
        let message = format!("invalid input syntax for type numeric time zone: \"{name}\"");
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
            .hint("Numeric time zones must have \"-\" or \"+\" as first character."));
    }
    if !name.starts_with(['+', '-']) {
        return zone(name);
    }
    let error = || {
        let message = format!("numeric time zone \"{name}\" out of range");
        Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
    };
    datetime::offset_of(name).map(|seconds| Zone::fixed(seconds, name)).ok_or_else(error)
}

/// Seconds east of UTC that a span says.
fn zone_of_span(span: Interval) -> Result<i64> {
    if span.months != 0 || span.days != 0 {
        let message = format!("interval time zone \"{span}\" must not include months or days");
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    Ok(span.micros / 1_000_000)
}

fn shifted(micros: i64, seconds: i64) -> Result<Datum> {
    if is_infinite(micros) {
        return Ok(Datum::Time(micros));
    }
    let shift = seconds.checked_mul(1_000_000);
    let found = shift.and_then(|shift| micros.checked_add(shift)).filter(|found| crate::time::is_moment(*found));
    found.map(Datum::Time).ok_or_else(out_of_range)
}

/// The week of ISO 8601, and its year. The year 0 is 1 BC.
pub fn iso_week(days: i64) -> (i64, i64) {
    // The Thursday of the week says its year.
    let thursday = days - (days + 5).rem_euclid(7) + 3;
    let year = civil_of(thursday).0;
    (year, (thursday - days_of(year, 1, 1)) / 7 + 1)
}

fn whole(value: i64) -> Result<Option<Numeric>> {
    Ok(Some(value.into()))
}

fn scaled(units: i64, scale: u8) -> Result<Option<Numeric>> {
    Numeric::new(units.into(), scale).map(Some)
}

/// The name of a unit without its plural and short forms.
fn unit_name(name: &str) -> &str {
    match name {
        "microseconds" | "us" | "usec" | "microsecond" | "usecs" => "microseconds",
        "milliseconds" | "ms" | "msec" | "millisecond" | "msecs" => "milliseconds",
        "second" | "seconds" | "sec" | "secs" | "s" => "second",
        "minute" | "minutes" | "min" | "mins" | "m" => "minute",
        "hour" | "hours" | "hr" | "hrs" | "h" => "hour",
        "day" | "days" | "d" => "day",
        "week" | "weeks" | "w" => "week",
        "month" | "months" | "mon" | "mons" => "month",
        "quarter" | "qtr" => "quarter",
        "year" | "years" | "yr" | "yrs" | "y" => "year",
        "decade" | "decades" | "dec" | "decs" => "decade",
        "century" | "centuries" | "cent" | "c" => "century",
        "millennium" | "millennia" | "mil" | "mils" => "millennium",
        "timezone_hour" | "timezone_h" => "timezone_hour",
        "timezone_minute" | "timezone_m" => "timezone_minute",
        other => other,
    }
}

const KNOWN: &[&str] = &[
    "microseconds",
    "milliseconds",
    "second",
    "minute",
    "hour",
    "day",
    "week",
    "month",
    "quarter",
    "year",
    "decade",
    "century",
    "millennium",
    "isoyear",
    "julian",
    "dow",
    "isodow",
    "doy",
    "epoch",
    "timezone",
    "timezone_hour",
    "timezone_minute",
];

fn no_unit(name: &str, ty: Type) -> Error {
    if KNOWN.contains(&unit_name(name)) {
        let message = format!("unit \"{name}\" not supported for type {ty}");
        return Error::new(SqlState::FEATURE_NOT_SUPPORTED, message);
    }
    Error::new(SqlState::INVALID_PARAMETER_VALUE, format!("unit \"{name}\" not recognized for type {ty}"))
}

/// A part of a moment or span.
fn part(arguments: &[Datum], ty: Type) -> Result<Option<Numeric>> {
    let lower = text(arguments, 0).to_ascii_lowercase();
    let name = unit_name(&lower);
    if let Datum::Interval(span) = arguments[1] {
        return part_of_span(&lower, name, span);
    }
    // A date may be beyond the limits of moments.
    if let Datum::Date(days) = arguments[1]
        && !matches!(days, i32::MAX | i32::MIN)
    {
        return part_of_day(name, days.into())?.map_or_else(|| Err(no_unit(&lower, ty)), Ok);
    }
    let moment = micros(&arguments[1]);
    if is_infinite(moment) && ty != Type::Time {
        return part_of_infinity(&lower, name, moment > 0, ty);
    }
    let micros = if ty == Type::Timestamptz { style::to_local(moment) } else { moment };
    let (days, rest) = (micros.div_euclid(DAY_MICROS), micros.rem_euclid(DAY_MICROS));
    let has_time = ty != Type::Date;
    if has_time {
        match name {
            "hour" => return whole(rest / 3_600_000_000),
            "minute" => return whole(rest / 60_000_000 % 60),
            "second" => return scaled(rest % 60_000_000, 6),
            "milliseconds" => return scaled(rest % 60_000_000, 3),
            "microseconds" => return whole(rest % 60_000_000),
            "epoch" if ty == Type::Time => return scaled(rest, 6),
            "epoch" => {
                let all = i128::from(moment) + i128::from(EPOCH_DAYS * DAY_MICROS);
                return Numeric::new(all, 6).map(Some);
            }
            "timezone" if ty == Type::Timestamptz => return whole((micros - moment) / 1_000_000),
            "timezone_hour" if ty == Type::Timestamptz => return whole((micros - moment) / 3_600_000_000),
            "timezone_minute" if ty == Type::Timestamptz => return whole((micros - moment) / 60_000_000 % 60),
            "julian" if ty != Type::Time => {
                let part = Numeric::from(rest).divide(&DAY_MICROS.into())?;
                return Numeric::from(days + 2_451_545).plus(&part).map(Some);
            }
            _ => {}
        }
    }
    if ty == Type::Time {
        return Err(no_unit(&lower, ty));
    }
    part_of_day(name, days).transpose().unwrap_or_else(|| Err(no_unit(&lower, ty)))
}

/// A part of a day; `None` for a unit that a day has not.
fn part_of_day(name: &str, days: i64) -> Result<Option<Option<Numeric>>> {
    let (year, month, day) = civil_of(days);
    // There is no year 0.
    let shown = |year: i64| if year <= 0 { year - 1 } else { year };
    let group = |size: i64| if year > 0 { (year + size - 1) / size } else { -((size - 1 - (year - 1)) / size) };
    let found = match name {
        "year" => shown(year),
        "month" => month,
        "day" => day,
        "quarter" => (month + 2) / 3,
        "week" => iso_week(days).1,
        "isoyear" => shown(iso_week(days).0),
        "decade" => year.div_euclid(10),
        "century" => group(100),
        "millennium" => group(1000),
        "dow" => (days + 6).rem_euclid(7),
        "isodow" => (days + 5).rem_euclid(7) + 1,
        "doy" => days - days_of(year, 1, 1) + 1,
        "julian" => days + 2_451_545,
        "epoch" => (days + EPOCH_DAYS) * 86_400,
        _ => return Ok(None),
    };
    whole(found).map(Some)
}

fn part_of_infinity(lower: &str, name: &str, is_positive: bool, ty: Type) -> Result<Option<Numeric>> {
    match name {
        "year" | "decade" | "century" | "millennium" | "julian" | "isoyear" | "epoch" => {
            Ok(Some(if is_positive { Numeric::INFINITY } else { Numeric::NEG_INFINITY }))
        }
        "hour" | "minute" | "second" | "milliseconds" | "microseconds" | "timezone" | "timezone_hour"
        | "timezone_minute"
            if ty == Type::Date =>
        {
            Err(no_unit(lower, ty))
        }
        _ if KNOWN.contains(&name) => Ok(None),
        _ => Err(no_unit(lower, ty)),
    }
}

fn part_of_span(lower: &str, name: &str, span: Interval) -> Result<Option<Numeric>> {
    let (years, months, rest) = (i64::from(span.months / 12), i64::from(span.months % 12), span.micros);
    match name {
        "microseconds" => whole(rest % 60_000_000),
        "milliseconds" => scaled(rest % 60_000_000, 3),
        "second" => scaled(rest % 60_000_000, 6),
        "minute" => whole(rest / 60_000_000 % 60),
        "hour" => whole(rest / 3_600_000_000),
        "day" => whole(span.days.into()),
        "month" => whole(months),
        "quarter" => whole(months / 3 + 1),
        "year" => whole(years),
        "decade" => whole(years / 10),
        "century" => whole(years / 100),
        "millennium" => whole(years / 1000),
        "epoch" => {
            let seconds = years * YEAR_SECONDS + months * MONTH_SECONDS + i64::from(span.days) * 86_400;
            Numeric::new(i128::from(seconds) * 1_000_000 + i128::from(rest), 6).map(Some)
        }
        _ => Err(no_unit(lower, Type::Interval)),
    }
}

/// A moment cut to a unit of the calendar in a zone.
fn truncate_in(zone: &Zone, arguments: &[Datum]) -> Result<Datum> {
    let moment = micros(&arguments[1]);
    let Datum::Time(found) = truncate_local(arguments, zone.to_local(moment), Type::Timestamptz)? else {
        return Ok(Datum::Null);
    };
    let lower = text(arguments, 0).to_ascii_lowercase();
    let is_short = matches!(unit_name(&lower), "hour" | "minute" | "second" | "milliseconds" | "microseconds");
    if is_short && !is_infinite(moment) {
        // The offset stays, also where clocks change.
        return shifted(found, -zone.at(moment).seconds);
    }
    to_utc(zone, found)
}

fn truncate(arguments: &[Datum], ty: Type) -> Result<Datum> {
    truncate_local(arguments, micros(&arguments[1]), ty)
}

fn truncate_local(arguments: &[Datum], micros: i64, ty: Type) -> Result<Datum> {
    let lower = text(arguments, 0).to_ascii_lowercase();
    let days = micros.div_euclid(DAY_MICROS);
    let name = unit_name(&lower);
    if is_infinite(micros) {
        let is_known = KNOWN.contains(&name) && !matches!(name, "dow" | "doy" | "isodow" | "epoch" | "julian");
        return if is_known { Ok(Datum::Time(micros)) } else { Err(no_unit(&lower, ty)) };
    }
    let (year, month, _) = civil_of(days);
    let unit = |unit: i64| Ok(Datum::Time(micros.div_euclid(unit) * unit));
    let first = |days: i64| {
        let found = days.checked_mul(DAY_MICROS).filter(|found| crate::time::is_moment(*found));
        found.map(Datum::Time).ok_or_else(out_of_range)
    };
    // Centuries begin with the year 1, decades with the year 0.
    let group = |size: i64| (year - 1).div_euclid(size) * size + 1;
    match name {
        "microseconds" => unit(1),
        "milliseconds" => unit(1_000),
        "second" => unit(1_000_000),
        "minute" => unit(60_000_000),
        "hour" => unit(3_600_000_000),
        "day" => unit(DAY_MICROS),
        "week" => first(days - (days + 5).rem_euclid(7)),
        "month" => first(days_of(year, month, 1)),
        "quarter" => first(days_of(year, (month - 1) / 3 * 3 + 1, 1)),
        "year" => first(days_of(year, 1, 1)),
        "decade" => first(days_of(year.div_euclid(10) * 10, 1, 1)),
        "century" => first(days_of(group(100), 1, 1)),
        "millennium" => first(days_of(group(1000), 1, 1)),
        _ => Err(no_unit(&lower, ty)),
    }
}

fn truncate_span(arguments: &[Datum]) -> Result<Datum> {
    let lower = text(arguments, 0).to_ascii_lowercase();
    let found = span(&arguments[1]);
    let unit = |unit: i64| Interval { micros: found.micros / unit * unit, ..found };
    let months = |count: i32| Interval { months: found.months / count * count, days: 0, micros: 0 };
    Ok(Datum::Interval(match unit_name(&lower) {
        "microseconds" => found,
        "milliseconds" => unit(1_000),
        "second" => unit(1_000_000),
        "minute" => unit(60_000_000),
        "hour" => unit(3_600_000_000),
        "day" => Interval { micros: 0, ..found },
        "month" => months(1),
        "quarter" => months(3),
        "year" => months(12),
        "decade" => months(120),
        "century" => months(1_200),
        "millennium" => months(12_000),
        "week" => {
            return Err(no_unit(&lower, Type::Interval).detail("Months usually have fractional weeks."));
        }
        _ => return Err(no_unit(&lower, Type::Interval)),
    }))
}

fn bin(arguments: &[Datum]) -> Result<Datum> {
    let (stride, moment, origin) = (span(&arguments[0]), micros(&arguments[1]), micros(&arguments[2]));
    if stride.months != 0 {
        let message = "timestamps cannot be binned into intervals containing months or years";
        return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    if is_infinite(moment) {
        return Ok(Datum::Time(moment));
    }
    if is_infinite(origin) {
        return Err(Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "origin out of range"));
    }
    let too_long = || Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "interval out of range");
    let length = stride.length();
    if i64::try_from(length).is_err() {
        return Err(too_long());
    }
    if length <= 0 {
        return Err(Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "stride must be greater than zero"));
    }
    let distance = i128::from(moment) - i128::from(origin);
    if i64::try_from(distance).is_err() {
        return Err(too_long());
    }
    let found = i128::from(origin) + distance.div_euclid(length) * length;
    let found = i64::try_from(found).ok().filter(|found| crate::time::is_moment(*found));
    found.map(Datum::Time).ok_or_else(out_of_range)
}

/// A span with the units that `interval '1' day to hour` names: smaller ones are cut off.
fn of_fields(value: &str, fields: &str) -> Result<Datum> {
    let (first, last) = fields.split_once(" to ").unwrap_or((fields, fields));
    let span = Interval::parse_fields(value, Some(last), matches!(first, "minute" | "second"))?;
    let unit = |unit: i64| Interval { micros: span.micros / unit * unit, ..span };
    Ok(Datum::Interval(match last {
        "year" => Interval { months: span.months / 12 * 12, days: 0, micros: 0 },
        "month" => Interval { days: 0, micros: 0, ..span },
        "day" => Interval { micros: 0, ..span },
        "hour" => unit(3_600_000_000),
        "minute" => unit(60_000_000),
        _ => span,
    }))
}

fn make_date(year: i64, month: i64, day: i64) -> Result<Datum> {
    let error = || {
        let message = format!("date field value out of range: {year}-{month:02}-{day:02}");
        Error::new(SqlState::DATETIME_FIELD_OVERFLOW, message)
    };
    // Years before Christ are negative.
    let own = if year < 0 { year + 1 } else { year };
    let is_date = year != 0 && (1..=12).contains(&month) && (1..=31).contains(&day) && own.abs() < 6_000_000;
    let days = if is_date { days_of(own, month, day) } else { return Err(error()) };
    if civil_of(days) != (own, month, day) || days < -2_451_545 {
        return Err(error());
    }
    i32::try_from(days).map(Datum::Date).map_err(|_| error())
}

fn make_time(hour: i64, minute: i64, second: f64) -> Result<i64> {
    let error = || {
        let message = format!("time field value out of range: {hour}:{minute:02}:{second:02}");
        Error::new(SqlState::DATETIME_FIELD_OVERFLOW, message)
    };
    let is_time = (0..=24).contains(&hour) && (0..60).contains(&minute) && (0.0..=60.0).contains(&second);
    if !is_time || hour == 24 && (minute > 0 || second > 0.0) {
        return Err(error());
    }
    let fraction: i64 = format!("{:.0}", (second * 1e6).round_ties_even()).parse().map_err(|_| error())?;
    Ok((hour * 60 + minute) * 60_000_000 + fraction)
}

fn make_timestamp(arguments: &[Datum]) -> Result<Datum> {
    let number = |place| int(arguments, place);
    let day = make_date(number(0), number(1), number(2))?;
    let time = make_time(number(3), number(4), real(&arguments[5]))?;
    let found = micros(&day).checked_add(time).filter(|found| crate::time::is_moment(*found));
    found.map(Datum::Time).ok_or_else(out_of_range)
}

fn make_interval(arguments: &[Datum]) -> Result<Datum> {
    let number = |place| int(arguments, place);
    let seconds = arguments.get(6).map_or(0.0, real);
    if !seconds.is_finite() {
        return Err(crate::interval::out_of_range());
    }
    let fraction: i64 =
        format!("{:.0}", (seconds * 1e6).round_ties_even()).parse().map_err(|_| crate::interval::out_of_range())?;
    let micros = (number(4) * 60 + number(5)).checked_mul(60_000_000).and_then(|found| found.checked_add(fraction));
    let micros = micros.ok_or_else(crate::interval::out_of_range)?;
    Interval::of(number(0) * 12 + number(1), number(2) * 7 + number(3), micros).map(Datum::Interval)
}

fn of_seconds(seconds: f64) -> Result<Datum> {
    if seconds.is_nan() {
        return Err(Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp cannot be NaN"));
    }
    if seconds.is_infinite() {
        return Ok(Datum::Time(if seconds > 0.0 { i64::MAX } else { i64::MIN }));
    }
    let error = || Error::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("timestamp out of range: \"{seconds}\""));
    let since = (seconds * 1e6).round_ties_even();
    let found = format!("{since:.0}").parse::<i64>().ok().and_then(|found| found.checked_add(datetime::EPOCH));
    found.filter(|found| crate::time::is_moment(*found)).map(Datum::Time).ok_or_else(error)
}

/// Whether two pairs of moments have a moment in common. A null at one end is compared as the standard says.
fn overlaps(arguments: &[Datum]) -> Datum {
    let [one_start, one_end, two_start, two_end] = arguments else { return Datum::Null };
    let pair = |start: &Datum, end: &Datum| -> Option<(Datum, Datum)> {
        match (start.is_null(), end.is_null()) {
            (true, true) => None,
            (true, false) => Some((end.clone(), Datum::Null)),
            (false, false) if start.order(end).is_gt() => Some((end.clone(), start.clone())),
            _ => Some((start.clone(), end.clone())),
        }
    };
    let (Some(one), Some(two)) = (pair(one_start, one_end), pair(two_start, two_end)) else { return Datum::Null };
    let (first, second) = if one.0.order(&two.0).is_gt() { (two, one) } else { (one, two) };
    if first.0.order(&second.0).is_eq() {
        return if first.1.is_null() || second.1.is_null() { Datum::Null } else { Datum::Bool(true) };
    }
    match () {
        () if first.1.is_null() => Datum::Null,
        () if second.0.order(&first.1).is_lt() => Datum::Bool(true),
        () if second.1.is_null() => Datum::Null,
        () => Datum::Bool(false),
    }
}
