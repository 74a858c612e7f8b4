//! Times of day in a zone: `time with time zone`.
//!
//! A value keeps the time that clocks show and the distance of its zone from UTC. Values are in the order of their
//! moments. Those of one moment are equal only in one zone; the eastern one is less.

use std::cmp::Ordering;

use crate::datetime::{self, Special};
use crate::error::{Error, Result, SqlState};
use crate::interval::Interval;
use crate::style;
use crate::time::{DAY_MICROS, clock_text};
use crate::zone::{Zone, offset_text};

/// The name of the type in messages.
const NAME: &str = "time with time zone";
/// Seconds of the largest distance from UTC.
const SECONDS_MAX: i32 = 16 * 3600;

/// A time of day in a zone.
///
/// ```
/// use lodestone_sql_types::zoned_time::ZonedTime;
///
/// let noon = ZonedTime { micros: 12 * 3_600_000_000, seconds: 7200 };
/// assert_eq!(noon.to_string(), "12:00:00+02");
/// assert!(noon < ZonedTime { seconds: 3600, ..noon });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZonedTime {
    /// Microseconds of the day, as clocks of the zone show it.
    pub micros: i64,
    /// Seconds of the zone east of UTC.
    pub seconds: i32,
}

impl ZonedTime {
    /// The time of a day at a distance from UTC.
    fn of(micros: i64, seconds: i64) -> Self {
        Self { micros, seconds: i32::try_from(seconds).unwrap_or(0) }
    }

    /// The time of day in the zone of the session, at the distance that it has today.
    #[must_use]
    pub fn of_local(micros: i64) -> Self {
        let today = style::to_local(style::now()).div_euclid(DAY_MICROS) * DAY_MICROS;
        Self::of(micros, style::with(|style| style.zone.of_local(today.saturating_add(micros))))
    }

    /// The time of day that clocks of a zone show at a moment.
    #[must_use]
    pub fn at(moment: i64, zone: &Zone) -> Self {
        Self::of(zone.to_local(moment).rem_euclid(DAY_MICROS), zone.at(moment).seconds)
    }

    /// Reads a time of day. A zone with a history counts at a day that the text must say.
    ///
    /// # Errors
    /// 22007; 22008; 22009; 22023.
    pub fn parse(text: &str) -> Result<Self> {
        let found = datetime::read(text, NAME)?;
        match (found.micros, found.special) {
            (Some(micros), None) => Ok(match (found.zone, &found.named, found.days) {
                (Some(seconds), ..) => Self::of(micros, seconds),
                (None, Some(zone), days) => {
                    let today = || style::to_local(style::now()).div_euclid(DAY_MICROS);
                    let day = days.unwrap_or_else(today).saturating_mul(DAY_MICROS);
                    Self::of(micros, zone.of_local(day.saturating_add(micros)))
                }
                (None, None, Some(days)) => {
                    let local = days.saturating_mul(DAY_MICROS).saturating_add(micros);
                    Self::of(micros, style::with(|style| style.zone.of_local(local)))
                }
                (None, None, None) => Self::of_local(micros),
            }),
            (None, Some(Special::Now)) => Ok(Self::at(style::now(), &style::zone())),
            _ => {
                let message = format!("invalid input syntax for type {NAME}: \"{text}\"");
                Err(Error::new(SqlState::INVALID_DATETIME_FORMAT, message))
            }
        }
    }

    /// The value of the bytes of a client.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (micros, west) = bytes.split_first_chunk::<8>()?;
        let west = i32::from_be_bytes(west.try_into().ok()?);
        let micros = i64::from_be_bytes(*micros);
        let is_fine = (0..=DAY_MICROS).contains(&micros) && (-SECONDS_MAX..=SECONDS_MAX).contains(&west);
        is_fine.then_some(Self { micros, seconds: -west })
    }

    /// Its bytes for a client, where the distance counts to the west.
    pub fn write_bytes(self, bytes: &mut Vec<u8>) {
        bytes.extend(self.micros.to_be_bytes());
        bytes.extend((-self.seconds).to_be_bytes());
    }

    /// Microseconds of the day in UTC; a day of UTC may have begun before, or be over.
    #[must_use]
    pub fn utc(self) -> i64 {
        self.micros - i64::from(self.seconds) * 1_000_000
    }

    /// The same moment in another zone.
    #[must_use]
    pub fn moved(self, seconds: i64) -> Self {
        Self::of((self.utc() + seconds * 1_000_000).rem_euclid(DAY_MICROS), seconds)
    }

    /// So much later. Only the time of the span counts, and the day comes round.
    #[must_use]
    pub fn later(self, span: Interval) -> Self {
        let micros = (i128::from(self.micros) + i128::from(span.micros)).rem_euclid(DAY_MICROS.into());
        Self { micros: i64::try_from(micros).unwrap_or(0), ..self }
    }
}

impl Ord for ZonedTime {
    fn cmp(&self, other: &Self) -> Ordering {
        self.utc().cmp(&other.utc()).then(other.seconds.cmp(&self.seconds))
    }
}

impl PartialOrd for ZonedTime {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl std::fmt::Display for ZonedTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&clock_text(self.micros))?;
        f.write_str(&offset_text(self.seconds.into(), false))
    }
}
