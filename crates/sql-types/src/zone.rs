//! Time zones: by name with their whole history, by offset, and by the rules of POSIX.
//!
//! The data of the names are built into the program (crate `jiff`), so an answer does not depend on the machine. The
//! calendar of that crate ends with the year 9999. The rules come round every 400 years, so a later moment is looked up
//! at the same place of an earlier cycle.

use jiff::Timestamp;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

use crate::abbreviation;
use crate::time::{DAY_MICROS, EPOCH_DAYS, civil_of};

/// Microseconds of 400 years.
const CYCLE_MICROS: i64 = 146_097 * DAY_MICROS;
/// 2400-01-01, from 2000-01-01.
const CYCLE_START: i64 = CYCLE_MICROS;
/// Most seconds of an offset, as in `PostgreSQL`.
const OFFSET_SECONDS_MAX: i64 = 16 * 3600;

/// A time zone.
///
/// ```
/// use lodestone_sql_types::zone::Zone;
///
/// let zone = Zone::named("america/new_york").expect("a zone");
/// assert_eq!(zone.name(), "America/New_York");
/// // Noon UTC on 2000-01-01 and on 2000-07-01.
/// assert_eq!((zone.at(43_200_000_000).seconds, zone.at(15_768_000_000_000).seconds), (-18_000, -14_400));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Zone {
    name: String,
    rule: Rule,
}

#[derive(Clone, Debug, PartialEq)]
enum Rule {
    /// Seconds east of UTC, and the name of the offset.
    Fixed(i64, String),
    Changing(TimeZone),
    /// The offset that has this name, at the moment in question or near it.
    Named(TimeZone, String),
}

/// The offset of a zone at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    /// Seconds east of UTC.
    pub seconds: i64,
    /// Its name: `EST`, `EDT`.
    pub abbreviation: String,
    /// Whether it is a summer time.
    pub is_summer: bool,
}

impl Default for Zone {
    fn default() -> Self {
        Self { name: "UTC".into(), rule: Rule::Fixed(0, "UTC".into()) }
    }
}

/// The same place of the calendar in a year that the data know.
fn early(micros: i64) -> i64 {
    if micros < CYCLE_START { micros } else { CYCLE_START + (micros - CYCLE_START) % CYCLE_MICROS }
}

impl Zone {
    /// The zone with a name of the database of zones, or by the rules of POSIX: `EST5EDT`, `<-03>3`, `+02:00`, where
    /// the sign is that of the standard: west is positive.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let name = name.trim_matches(crate::text::is_space);
        if name.eq_ignore_ascii_case("utc") || name.eq_ignore_ascii_case("default") {
            return Some(Self::default());
        }
        if let Ok(zone) = TimeZone::get(name) {
            let own = zone.iana_name().unwrap_or(name).to_owned();
            return Some(Self { name: own, rule: Rule::Changing(zone) });
        }
        posix(name)
    }

    /// The zone that is so many seconds east of UTC, as `SET TIME ZONE 5` makes it.
    #[must_use]
    pub fn of_seconds(seconds: i64) -> Option<Self> {
        if !(-OFFSET_SECONDS_MAX..=OFFSET_SECONDS_MAX).contains(&seconds) {
            return None;
        }
        let (east, west) = (offset_text(seconds, false), offset_text(-seconds, false));
        Some(Self { name: format!("<{east}>{west}"), rule: Rule::Fixed(seconds, east) })
    }

    /// The zone that is so many seconds east of UTC all the time, and has this name.
    #[must_use]
    pub fn fixed(seconds: i64, name: &str) -> Self {
        Self { name: name.to_owned(), rule: Rule::Fixed(seconds, name.to_owned()) }
    }

    /// The zone of the setting: a name, or hours east of UTC.
    #[must_use]
    pub fn of_setting(value: &str) -> Option<Self> {
        if let Ok(hours) = value.trim().parse::<f64>() {
            let seconds: i64 = format!("{:.0}", hours * 3600.0).parse().ok()?;
            return Self::of_seconds(seconds);
        }
        Self::named(value)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is UTC.
    #[must_use]
    pub fn is_utc(&self) -> bool {
        matches!(self.rule, Rule::Fixed(0, _))
    }

    /// Its offset at a moment, in microseconds since 2000-01-01 UTC.
    #[must_use]
    pub fn at(&self, micros: i64) -> At {
        let zone = match &self.rule {
            Rule::Fixed(seconds, name) => {
                return At { seconds: *seconds, abbreviation: name.clone(), is_summer: false };
            }
            Rule::Changing(zone) => zone,
            Rule::Named(zone, name) => return named_at(zone, name, micros),
        };
        zone_at(zone, micros)
    }

    /// Seconds east of UTC where clocks show `local`, in microseconds since 2000-01-01. A time that clocks skip is that
    /// before the change, one that they show twice the second of both.
    #[must_use]
    pub fn of_local(&self, local: i64) -> i64 {
        let zone = match &self.rule {
            Rule::Fixed(seconds, _) => return *seconds,
            Rule::Changing(zone) => zone,
            Rule::Named(zone, name) => {
                let plain = Self { name: self.name.clone(), rule: Rule::Changing(zone.clone()) };
                let moment = local.saturating_sub(plain.of_local(local) * 1_000_000);
                return named_at(zone, name, moment).seconds;
            }
        };
        let local = early(local);
        let (year, month, day) = civil_of(local.div_euclid(DAY_MICROS));
        let seconds = local.rem_euclid(DAY_MICROS) / 1_000_000;
        let small = |value: i64| i8::try_from(value).unwrap_or(0);
        let civil = jiff::civil::DateTime::new(
            i16::try_from(year).unwrap_or(1),
            small(month),
            small(day),
            small(seconds / 3600),
            small(seconds / 60 % 60),
            small(seconds % 60),
            0,
        );
        let Ok(civil) = civil else { return 0 };
        let offset: Offset = match zone.to_ambiguous_timestamp(civil).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset,
            AmbiguousOffset::Gap { before, .. } => before,
            AmbiguousOffset::Fold { after, .. } => after,
        };
        offset.seconds().into()
    }

    /// The date and time that clocks show at a moment, in microseconds since 2000-01-01. Moments without a calendar
    /// stay.
    #[must_use]
    pub fn to_local(&self, micros: i64) -> i64 {
        match micros {
            i64::MAX | i64::MIN => micros,
            _ if self.is_utc() => micros,
            _ => micros.saturating_add(self.at(micros).seconds * 1_000_000),
        }
    }

    /// As [`to_local`](Self::to_local). `None`: clocks show a time outside of the calendar.
    #[must_use]
    pub fn shown(&self, micros: i64) -> Option<i64> {
        let found = self.to_local(micros);
        (matches!(micros, i64::MAX | i64::MIN) || crate::time::is_moment(found)).then_some(found)
    }

    /// The moment at which clocks show `local`. `None`: it is outside of the calendar.
    #[must_use]
    pub fn to_utc(&self, local: i64) -> Option<i64> {
        if matches!(local, i64::MAX | i64::MIN) {
            return Some(local);
        }
        let found = local.checked_sub(self.of_local(local) * 1_000_000)?;
        crate::time::is_moment(found).then_some(found)
    }
}

fn zone_at(zone: &TimeZone, micros: i64) -> At {
    let seconds = early(micros).div_euclid(1_000_000) + EPOCH_DAYS * 86_400;
    let Ok(moment) = Timestamp::from_second(seconds) else {
        return At { seconds: 0, abbreviation: "UTC".into(), is_summer: false };
    };
    let info = zone.to_offset_info(moment);
    At {
        seconds: info.offset().seconds().into(),
        abbreviation: info.abbreviation().to_owned(),
        is_summer: info.dst().is_dst(),
    }
}

/// The offset that has this name at the moment, or half a year before or after it.
fn named_at(zone: &TimeZone, name: &str, micros: i64) -> At {
    const HALF_YEAR: i64 = 182 * DAY_MICROS;
    let near = [0, -HALF_YEAR, HALF_YEAR].map(|distance| zone_at(zone, micros.saturating_add(distance)));
    let [own, before, after] = near;
    let found = [&own, &before, &after].into_iter().find(|at| at.abbreviation.eq_ignore_ascii_case(name));
    found.unwrap_or(&own).clone()
}

/// An offset as `PostgreSQL` writes it: `+02`, `-03:30`, `+00:19:32`. `has_minutes`: always with minutes.
#[must_use]
pub fn offset_text(seconds: i64, has_minutes: bool) -> String {
    let sign = if seconds < 0 { '-' } else { '+' };
    let seconds = seconds.abs();
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (minutes, rest) {
        (0, 0) if !has_minutes => format!("{sign}{hours:02}"),
        (_, 0) => format!("{sign}{hours:02}:{minutes:02}"),
        _ => format!("{sign}{hours:02}:{minutes:02}:{rest:02}"),
    }
}

/// The meaning of a short name: an offset, or the zone whose offset counts.
#[derive(Clone, Debug, PartialEq)]
pub enum Short {
    /// Seconds east of UTC.
    Offset(i64),
    /// That of a zone.
    Of(Zone),
}

/// The meaning of a short name in lower case.
#[must_use]
pub fn short(name: &str) -> Option<Short> {
    if let Some((seconds, _)) = abbreviation::fixed(name) {
        return Some(Short::Offset(seconds));
    }
    let zone = abbreviation::changing(name).and_then(Zone::named)?;
    let rule = match zone.rule {
        Rule::Changing(inner) => Rule::Named(inner, name.to_uppercase()),
        other => other,
    };
    Some(Short::Of(Zone { name: zone.name, rule }))
}

/// A zone by the rules of POSIX. Without a rule for the summer it has those of the United States, as in `PostgreSQL`.
fn posix(name: &str) -> Option<Zone> {
    let (standard, rest) = word(name)?;
    let (west, rest) = posix_offset(rest)?;
    if rest.is_empty() {
        let rule = Rule::Fixed(-west, standard.to_owned());
        return Some(Zone { name: name.to_owned(), rule });
    }
    let full = if rest.contains(',') { name.to_owned() } else { format!("{name},M3.2.0,M11.1.0") };
    let zone = TimeZone::posix(&full).ok()?;
    Some(Zone { name: name.to_owned(), rule: Rule::Changing(zone) })
}

/// The name at the beginning, which may be empty, and the rest.
fn word(text: &str) -> Option<(&str, &str)> {
    if let Some(rest) = text.strip_prefix('<') {
        return rest.split_once('>');
    }
    let end = text.find(|letter: char| letter.is_ascii_digit() || matches!(letter, ',' | '+' | '-'))?;
    text[..end].bytes().all(|byte| byte.is_ascii_alphabetic()).then(|| text.split_at(end))
}

/// Seconds west of UTC at the beginning, and the rest.
fn posix_offset(text: &str) -> Option<(i64, &str)> {
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = digits.find(|letter: char| !letter.is_ascii_digit() && letter != ':').unwrap_or(digits.len());
    let mut parts = digits[..end].split(':').map(|part| part.parse::<i64>().ok());
    let hours = parts.next()??;
    let minutes = parts.next().map_or(Some(0), |part| part)?;
    let seconds = parts.next().map_or(Some(0), |part| part)?;
    let is_right = parts.next().is_none() && hours <= 167 && minutes < 60 && seconds < 60;
    is_right.then(|| (sign * (hours * 3600 + minutes * 60 + seconds), &digits[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::days_of;

    fn moment(year: i64, month: i64, day: i64, hour: i64) -> i64 {
        days_of(year, month, day) * DAY_MICROS + hour * 3_600_000_000
    }

    #[test]
    fn zones_have_their_history() {
        let zone = Zone::named("Europe/Moscow").expect("a zone");
        assert_eq!(
            zone.at(moment(2011, 3, 1, 0)),
            At { seconds: 10_800, abbreviation: "MSK".into(), is_summer: false }
        );
        assert_eq!(zone.at(moment(2012, 3, 1, 0)).seconds, 14_400);
        let zone = Zone::named("america/los_angeles").expect("a zone");
        assert_eq!(
            (zone.at(moment(294_276, 7, 1, 0)).seconds, zone.at(moment(1800, 1, 1, 0)).seconds),
            (-25_200, -28_378)
        );
        assert_eq!(Zone::named("Nowhere/There"), None);
    }

    #[test]
    fn clocks_that_change() {
        let zone = Zone::named("America/New_York").expect("a zone");
        // 2:30 is skipped on 2005-04-03, and 1:30 comes twice on 2005-10-30.
        assert_eq!(zone.of_local(moment(2005, 4, 3, 2)), -18_000);
        assert_eq!(zone.of_local(moment(2005, 10, 30, 1)), -18_000);
        let noon = moment(2005, 7, 1, 12);
        assert_eq!(zone.to_utc(noon).map(|moment| zone.to_local(moment)), Some(noon));
    }

    #[test]
    fn offsets_and_rules_of_posix() {
        let offset =
            |name: &str| Zone::named(name).map(|zone| (zone.at(0).seconds, zone.at(moment(2000, 7, 1, 0)).seconds));
        assert_eq!(offset("+02:00"), Some((-7_200, -7_200)));
        assert_eq!(offset("00:30"), Some((-1_800, -1_800)));
        assert_eq!(offset("CST7CDT,M4.1.0,M10.5.0"), Some((-25_200, -21_600)));
        assert_eq!(offset("FOO8BAR"), Some((-28_800, -25_200)));
        assert_eq!(Zone::of_setting("-1.5").map(|zone| zone.name().to_owned()), Some("<-01:30>+01:30".into()));
        assert_eq!((Zone::of_setting("17"), Zone::named("99:99")), (None, None));
        // The least number of seconds has no opposite.
        assert_eq!((Zone::of_setting("-2562047788015215.5"), Zone::of_seconds(i64::MIN)), (None, None));
    }
}
