//! `to_char` of moments and spans: templates of `PostgreSQL`.

use super::{Function, INTERVAL, TEXT, TIMESTAMP, TIMESTAMPTZ, of, text};
use crate::datum::Datum;
use crate::func::moment::iso_week;
use crate::interval::Interval;
use crate::style;
use crate::time::{DAY_MICROS, civil_of, days_of};
use crate::types::Type;
use crate::zone::At;

pub const FUNCTIONS: &[Function] = &[
    of("to_char", &[TIMESTAMP, TEXT], Type::Text, |_, a| Ok(moment(&a[0], text(a, 1), false))),
    of("to_char", &[TIMESTAMPTZ, TEXT], Type::Text, |_, a| Ok(moment(&a[0], text(a, 1), true))),
    of("to_char", &[INTERVAL, TEXT], Type::Text, |_, a| Ok(span(&a[0], text(a, 1)))),
];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const ROMAN: [&str; 12] = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

/// Everything that a template can show.
struct Parts {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
    /// Days from 2000-01-01; `None` for a span.
    days: Option<i64>,
    /// Offset and name of the zone, if it has one.
    zone: Option<At>,
}

fn moment(datum: &Datum, template: &str, has_zone: bool) -> Datum {
    let Datum::Time(micros) = datum else { return Datum::Null };
    if template.is_empty() || matches!(*micros, i64::MAX | i64::MIN) {
        return Datum::Null;
    }
    Datum::Text(fill(template, &parts_of(*micros, has_zone)))
}

fn parts_of(micros: i64, has_zone: bool) -> Parts {
    let zone = has_zone.then(|| style::with(|style| style.zone.at(micros)));
    let micros = micros.saturating_add(zone.as_ref().map_or(0, |zone| zone.seconds * 1_000_000));
    let (days, rest) = (micros.div_euclid(DAY_MICROS), micros.rem_euclid(DAY_MICROS));
    Parts { days: Some(days), zone, ..clock(rest, civil_of(days)) }
}

/// This moment in the form of `timeofday`.
pub fn time_of_day() -> Datum {
    Datum::Text(fill("Dy Mon DD HH24:MI:SS.US YYYY TZ", &parts_of(crate::time::now(), true)))
}

fn clock(rest: i64, (year, month, day): (i64, i64, i64)) -> Parts {
    Parts {
        year,
        month,
        day,
        hour: rest / 3_600_000_000,
        minute: rest / 60_000_000 % 60,
        second: rest / 1_000_000 % 60,
        micros: rest % 1_000_000,
        days: None,
        zone: None,
    }
}

fn span(datum: &Datum, template: &str) -> Datum {
    let Datum::Interval(Interval { months, days, micros }) = datum else { return Datum::Null };
    if template.is_empty() {
        return Datum::Null;
    }
    let date = (i64::from(months / 12), i64::from(months % 12), i64::from(*days));
    Datum::Text(fill(template, &clock(*micros, date)))
}

/// The templates, longer ones before those that they begin with.
const KEYS: &[&str] = &[
    "Y,YYY", "YYYY", "IYYY", "YYY", "IYY", "YY", "IY", "Y", "I", "SSSSS", "SSSS", "SS", "HH24", "HH12", "HH", "MONTH",
    "Month", "month", "MON", "Mon", "mon", "MM", "MI", "MS", "US", "FF1", "FF2", "FF3", "FF4", "FF5", "FF6", "DAY",
    "Day", "day", "DDD", "IDDD", "DD", "DY", "Dy", "dy", "D", "ID", "WW", "IW", "W", "CC", "J", "Q", "RM", "rm",
    "A.M.", "a.m.", "P.M.", "p.m.", "AM", "am", "PM", "pm", "A.D.", "a.d.", "B.C.", "b.c.", "AD", "ad", "BC", "bc",
    "TZH", "TZM", "TZ", "tz", "OF",
];

fn key_of(rest: &str) -> Option<&'static str> {
    let mut best: Option<&'static str> = None;
    for key in KEYS {
        // Keys of numbers may be written in either case.
        let head = rest.get(..key.len());
        let has_cases = key.bytes().any(|byte| byte.is_ascii_lowercase()) || CASED.contains(key);
        let fits = head.is_some_and(|head| head == *key || !has_cases && head.eq_ignore_ascii_case(key));
        if fits && best.is_none_or(|found| key.len() > found.len()) {
            best = Some(key);
        }
    }
    best
}

/// Keys whose case is that of the result.
const CASED: &[&str] =
    &["MONTH", "MON", "DAY", "DY", "RM", "A.M.", "P.M.", "AM", "PM", "A.D.", "B.C.", "AD", "BC", "TZ"];

/// Appends the letters up to the next quotation mark, where `\` takes the next one as it is. Returns the rest.
fn quoted<'t>(rest: &'t str, found: &mut String) -> &'t str {
    let mut letters = rest.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => break,
            '\\' => found.push(letters.next().unwrap_or(letter)),
            letter => found.push(letter),
        }
    }
    letters.as_str()
}

fn fill(template: &str, parts: &Parts) -> String {
    let (mut found, mut rest) = (String::new(), template);
    while let Some(letter) = rest.chars().next() {
        if letter == '"' {
            rest = quoted(&rest[1..], &mut found);
            continue;
        }
        if let Some(quoted) = rest.strip_prefix("\\\"") {
            found.push('"');
            rest = quoted;
            continue;
        }
        let is_filled = !(rest.starts_with("FM") || rest.starts_with("fm"));
        let after = if is_filled { rest } else { &rest[2..] };
        let after = after.strip_prefix("TM").unwrap_or(after);
        match key_of(after) {
            Some(key) => {
                let shown = value(key, parts, is_filled);
                let tail = &after[key.len()..];
                let ordinal = tail.get(..2).filter(|tail| tail.eq_ignore_ascii_case("th"));
                found.push_str(&shown);
                if let Some(letters) = ordinal.filter(|_| shown.bytes().all(|byte| byte.is_ascii_digit())) {
                    let suffix = ordinal_of(&shown);
                    found += &if letters == "TH" { suffix.to_uppercase() } else { suffix.to_owned() };
                    rest = &tail[2..];
                } else {
                    rest = tail;
                }
            }
            None => {
                found.push(letter);
                rest = &rest[letter.len_utf8()..];
            }
        }
    }
    found
}

fn ordinal_of(digits: &str) -> &'static str {
    let is_teen = digits.len() > 1 && digits.as_bytes()[digits.len() - 2] == b'1';
    match digits.as_bytes().last() {
        Some(b'1') if !is_teen => "st",
        Some(b'2') if !is_teen => "nd",
        Some(b'3') if !is_teen => "rd",
        _ => "th",
    }
}

fn number(value: i64, width: usize, is_filled: bool) -> String {
    let sign = if value < 0 { "-" } else { "" };
    let digits = value.unsigned_abs();
    if is_filled { format!("{sign}{digits:0width$}") } else { format!("{sign}{digits}") }
}

fn word(text: &str, key: &str, width: usize, is_filled: bool) -> String {
    let cased = match key {
        key if key.bytes().all(|byte| byte.is_ascii_uppercase()) => text.to_uppercase(),
        key if key.bytes().all(|byte| byte.is_ascii_lowercase()) => text.to_lowercase(),
        _ => text.to_owned(),
    };
    if is_filled { format!("{cased:<width$}") } else { cased }
}

fn value(key: &str, parts: &Parts, is_filled: bool) -> String {
    let days = parts.days.unwrap_or(0);
    // There is no year 0.
    let year = if parts.days.is_some() && parts.year <= 0 { 1 - parts.year } else { parts.year };
    let iso_year = iso_week(days).0;
    let iso_year = if iso_year <= 0 { 1 - iso_year } else { iso_year };
    let month = usize::try_from(parts.month - 1).unwrap_or(0).min(11);
    let weekday = (days + 6).rem_euclid(7);
    let weekday_name = DAYS[usize::try_from(weekday).unwrap_or(0)];
    let day_of_year = days - days_of(parts.year, 1, 1) + 1;
    let is_afternoon = parts.hour % 24 >= 12;
    let half = |one: &str, two: &str| if is_afternoon { two.to_owned() } else { one.to_owned() };
    let era = |one: &str, two: &str| if parts.year <= 0 { two.to_owned() } else { one.to_owned() };
    let fraction = |digits: u32| number(parts.micros / 10_i64.pow(6 - digits), lodestone_width::to_usize(digits), true);
    match key {
        "Y,YYY" => format!("{},{:03}", year / 1000, year % 1000),
        "YYYY" => number(year, 4, is_filled),
        "YYY" => number(year % 1000, 3, is_filled),
        "YY" => number(year % 100, 2, is_filled),
        "Y" => number(year % 10, 1, is_filled),
        "IYYY" => number(iso_year, 4, is_filled),
        "IYY" => number(iso_year % 1000, 3, is_filled),
        "IY" => number(iso_year % 100, 2, is_filled),
        "I" => number(iso_year % 10, 1, is_filled),
        "SSSS" | "SSSSS" => ((parts.hour * 60 + parts.minute) * 60 + parts.second).to_string(),
        "SS" => number(parts.second, 2, is_filled),
        "MI" => number(parts.minute, 2, is_filled),
        "HH24" => number(parts.hour, 2, is_filled),
        "HH12" | "HH" => number(if parts.hour % 12 == 0 { 12 } else { parts.hour % 12 }, 2, is_filled),
        "MS" => fraction(3),
        "US" => fraction(6),
        "FF1" | "FF2" | "FF3" | "FF4" | "FF5" | "FF6" => fraction(key[2..].parse().unwrap_or(6)),
        "MONTH" | "Month" | "month" => word(MONTHS[month], key, 9, is_filled),
        "MON" | "Mon" | "mon" => word(&MONTHS[month][..3], key, 3, is_filled),
        "MM" => number(parts.month, 2, is_filled),
        "DAY" | "Day" | "day" => word(weekday_name, key, 9, is_filled),
        "DY" | "Dy" | "dy" => word(&weekday_name[..3], key, 3, is_filled),
        "DDD" => number(day_of_year, 3, is_filled),
        "IDDD" => {
            let (own, _) = iso_week(days);
            let first = days_of(own, 1, 4);
            number(days - (first - (first + 5).rem_euclid(7)) + 1, 3, is_filled)
        }
        "DD" => number(parts.day, 2, is_filled),
        "D" => (weekday + 1).to_string(),
        "ID" => (if weekday == 0 { 7 } else { weekday }).to_string(),
        "WW" => number((day_of_year - 1) / 7 + 1, 2, is_filled),
        "W" => ((parts.day - 1) / 7 + 1).to_string(),
        "IW" => number(iso_week(days).1, 2, is_filled),
        "CC" => number(if parts.year > 0 { (year + 99) / 100 } else { -((year + 99) / 100) }, 2, is_filled),
        "J" => (days + 2_451_545).to_string(),
        "Q" => ((parts.month - 1) / 3 + 1).to_string(),
        "RM" | "rm" => roman(parts).map_or_else(String::new, |month| word(month, key, 4, is_filled)),
        "AM" | "PM" => half("AM", "PM"),
        "am" | "pm" => half("am", "pm"),
        "A.M." | "P.M." => half("A.M.", "P.M."),
        "a.m." | "p.m." => half("a.m.", "p.m."),
        "AD" | "BC" => era("AD", "BC"),
        "ad" | "bc" => era("ad", "bc"),
        "A.D." | "B.C." => era("A.D.", "B.C."),
        "a.d." | "b.c." => era("a.d.", "b.c."),
        _ => zone_value(key, parts),
    }
}

/// The month in Roman numbers. A span may have none, or less than none: those count back from the end of a year.
fn roman(parts: &Parts) -> Option<&'static str> {
    let place = match parts.month {
        0 if parts.year == 0 => return None,
        0 if parts.year < 0 => 0,
        0 => 11,
        month if month < 0 => month + 12,
        month => month - 1,
    };
    ROMAN.get(usize::try_from(place).ok()?).copied()
}

fn zone_value(key: &str, parts: &Parts) -> String {
    let Some(At { seconds, abbreviation, .. }) = &parts.zone else {
        return match key {
            "OF" | "TZH" => "+00".into(),
            "TZM" => "00".into(),
            _ => String::new(),
        };
    };
    let sign = if *seconds < 0 { '-' } else { '+' };
    match key {
        "TZ" => abbreviation.clone(),
        "tz" => abbreviation.to_lowercase(),
        "OF" => crate::zone::offset_text(*seconds / 60 * 60, false),
        "TZH" => format!("{sign}{:02}", seconds.abs() / 3600),
        "TZM" => format!("{:02}", seconds.abs() / 60 % 60),
        _ => String::new(),
    }
}
