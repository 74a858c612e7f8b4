//! Functions that wait, and those about what other sessions do.

use super::{FLOAT, Function, INT4, INT8, INTERVAL, Session, TIMESTAMPTZ, int, of};
use crate::datum::Datum;
use crate::error::{Error, Result, SqlState};
use crate::time::now;
use crate::types::Type;

/// Longest sleep in microseconds: a thousand years.
const SLEEP_MAX: i64 = 1000 * 365 * 86_400_000_000;

pub const FUNCTIONS: &[Function] = &[
    of("pg_sleep", &[FLOAT], Type::Void, |s, a| {
        let Datum::Float(seconds) = a[0] else { return Ok(Datum::Null) };
        sleep(s, micros_of(seconds))
    })
    .volatile(),
    of("pg_sleep_for", &[INTERVAL], Type::Void, |s, a| {
        let Datum::Interval(span) = a[0] else { return Ok(Datum::Null) };
        sleep(s, i64::try_from(span.length()).unwrap_or(if span.length() < 0 { 0 } else { SLEEP_MAX }))
    })
    .volatile(),
    of("pg_sleep_until", &[TIMESTAMPTZ], Type::Void, |s, a| {
        let Datum::Time(moment) = a[0] else { return Ok(Datum::Null) };
        sleep(s, moment.saturating_sub(now()))
    })
    .volatile(),
    of("pg_cancel_backend", &[INT4], Type::Bool, |s, a| s.end_other(int(a, 0), false).map(Datum::Bool)).volatile(),
    of("pg_terminate_backend", &[INT4], Type::Bool, |s, a| s.end_other(int(a, 0), true).map(Datum::Bool)).volatile(),
    of("pg_terminate_backend", &[INT4, INT8], Type::Bool, |s, a| terminate(s, int(a, 0), int(a, 1))).volatile(),
];

/// Microseconds of seconds, within what a sleep takes.
fn micros_of(seconds: f64) -> i64 {
    let micros = std::time::Duration::try_from_secs_f64(seconds.max(0.0)).map(|span| span.as_micros());
    micros.map_or(SLEEP_MAX, |micros| i64::try_from(micros).unwrap_or(SLEEP_MAX))
}

fn sleep(session: &dyn Session, micros: i64) -> Result<Datum> {
    session.sleep(micros.clamp(0, SLEEP_MAX))?;
    Ok(Datum::Text(String::new()))
}

/// Ends a session, and waits until it is gone.
fn terminate(session: &dyn Session, backend: i64, millis: i64) -> Result<Datum> {
    const LOOK_MICROS: i64 = 1000;
    if millis < 0 {
        return Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "\"timeout\" must not be negative"));
    }
    // Before the other one ends: a statement that may not wait on this thread runs again on another one.
    session.sleep(0)?;
    if !session.end_other(backend, true)? || millis == 0 {
        return Ok(Datum::Bool(millis == 0 && session.is_there(backend)));
    }
    let end = now().saturating_add(millis.saturating_mul(1000));
    while session.is_there(backend) {
        if now() >= end {
            let message = format!("backend with PID {backend} did not terminate within {millis} milliseconds");
            session.warn(Error::new(SqlState::WARNING, message));
            return Ok(Datum::Bool(false));
        }
        session.sleep(LOOK_MICROS)?;
    }
    Ok(Datum::Bool(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_seconds_is_a_sleep() {
        assert_eq!([micros_of(0.5), micros_of(-1.0), micros_of(f64::NAN)], [500_000, 0, 0]);
        assert_eq!([micros_of(f64::INFINITY), micros_of(f64::MAX)], [SLEEP_MAX, SLEEP_MAX]);
    }
}
