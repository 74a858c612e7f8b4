//! Functions about time and the session.

use super::{Argument, BOOL, Function, INT4, OID, TEXT, int, of, text};
use crate::datum::Datum;
use crate::error::{Error, Result, SqlState};
use crate::numeric::Numeric;
use crate::time::{DAY_MICROS, EPOCH_DAYS, civil_of, days_of, now};
use crate::types::Type;

const TIMESTAMP: Argument = Argument::Of(Type::Timestamp);
const TIMESTAMPTZ: Argument = Argument::Of(Type::Timestamptz);
const DATE: Argument = Argument::Of(Type::Date);

pub const FUNCTIONS: &[Function] = &[
    of("now", &[], Type::Timestamptz, |s, _| Ok(Datum::Time(s.transaction_time()))).volatile(),
    of("transaction_timestamp", &[], Type::Timestamptz, |s, _| Ok(Datum::Time(s.transaction_time()))).volatile(),
    of("current_timestamp", &[], Type::Timestamptz, |s, _| Ok(Datum::Time(s.transaction_time()))).volatile(),
    of("localtimestamp", &[], Type::Timestamp, |s, _| Ok(Datum::Time(s.transaction_time()))).volatile(),
    of("statement_timestamp", &[], Type::Timestamptz, |s, _| Ok(Datum::Time(s.statement_time()))).volatile(),
    of("clock_timestamp", &[], Type::Timestamptz, |_, _| Ok(Datum::Time(now()))).volatile(),
    of("current_date", &[], Type::Date, |s, _| {
        let days = s.transaction_time().div_euclid(DAY_MICROS);
        Ok(Datum::Date(i32::try_from(days).unwrap_or(i32::MAX)))
    })
    .volatile(),
    of("date_part", &[TEXT, TIMESTAMP], Type::Float8, |_, a| part(a).map(float)),
    of("date_part", &[TEXT, TIMESTAMPTZ], Type::Float8, |_, a| part(a).map(float)),
    of("extract", &[TEXT, DATE], Type::Numeric, |_, a| part(a).map(numeric)),
    of("extract", &[TEXT, TIMESTAMP], Type::Numeric, |_, a| part(a).map(numeric)),
    of("extract", &[TEXT, TIMESTAMPTZ], Type::Numeric, |_, a| part(a).map(numeric)),
    of("date_trunc", &[TEXT, TIMESTAMP], Type::Timestamp, |_, a| truncate(a)),
    of("date_trunc", &[TEXT, TIMESTAMPTZ], Type::Timestamptz, |_, a| truncate(a)),
    of("gen_random_uuid", &[], Type::Uuid, |_, _| Ok(Datum::Bytes(random_uuid().to_vec()))).volatile(),
    of("version", &[], Type::Text, |s, _| {
        let version = s.setting("server_version")?;
        Ok(Datum::Text(format!("PostgreSQL {version}, the SQL floor of Lodestone")))
    }),
    of("current_database", &[], Type::Name, |s, _| Ok(Datum::from(s.database()))),
    of("current_catalog", &[], Type::Name, |s, _| Ok(Datum::from(s.database()))),
    of("current_schema", &[], Type::Name, |s, _| Ok(s.schemas().into_iter().next().map_or(Datum::Null, Datum::Text)))
        .volatile(),
    of("current_schemas", &[BOOL], Type::NameArray, |s, a| {
        let system = (a[0] == Datum::Bool(true)).then(|| Datum::from("pg_catalog"));
        Ok(Datum::Array(system.into_iter().chain(s.schemas().into_iter().map(Datum::Text)).collect()))
    })
    .volatile(),
    of("current_user", &[], Type::Name, |s, _| Ok(Datum::from(s.user()))),
    of("session_user", &[], Type::Name, |s, _| Ok(Datum::from(s.user()))),
    of("current_role", &[], Type::Name, |s, _| Ok(Datum::from(s.user()))),
    of("user", &[], Type::Name, |s, _| Ok(Datum::from(s.user()))),
    of("pg_backend_pid", &[], Type::Int4, |s, _| Ok(Datum::Int(s.backend()))),
    of("pg_is_in_recovery", &[], Type::Bool, |_, _| Ok(Datum::Bool(false))),
    of("current_setting", &[TEXT], Type::Text, |s, a| s.setting(text(a, 0)).map(Datum::Text)).volatile(),
    of("current_setting", &[TEXT, BOOL], Type::Text, |s, a| match s.setting(text(a, 0)) {
        Ok(value) => Ok(Datum::Text(value)),
        Err(_) if a[1] == Datum::Bool(true) => Ok(Datum::Null),
        Err(error) => Err(error),
    })
    .volatile(),
    of("set_config", &[TEXT, TEXT, BOOL], Type::Text, |s, a| {
        s.set(text(a, 0), text(a, 1), a[2] == Datum::Bool(true)).map(Datum::Text)
    })
    .volatile(),
    of("pg_encoding_to_char", &[INT4], Type::Name, |_, a| Ok(Datum::from(if int(a, 0) == 6 { "UTF8" } else { "" }))),
    of("pg_size_pretty", &[Argument::Of(Type::Int8)], Type::Text, |_, a| Ok(Datum::Text(size_text(int(a, 0))))),
    of("has_table_privilege", &[OID, TEXT], Type::Bool, |_, _| Ok(Datum::Bool(true))),
    of("has_schema_privilege", &[OID, TEXT], Type::Bool, |_, _| Ok(Datum::Bool(true))),
    of("has_database_privilege", &[TEXT, TEXT], Type::Bool, |_, _| Ok(Datum::Bool(true))),
];

/// An identifier of version 4: the bits of hashers that the standard library seeds at random.
fn random_uuid() -> [u8; 16] {
    use std::hash::{BuildHasher, RandomState};
    let (one, two) = (RandomState::new().hash_one(0_u8), RandomState::new().hash_one(1_u8));
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&one.to_be_bytes());
    bytes[8..].copy_from_slice(&two.to_be_bytes());
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}

fn float(value: Numeric) -> Datum {
    Datum::Float(value.to_f64())
}

fn numeric(value: Numeric) -> Datum {
    Datum::Numeric(value)
}

fn moment(datum: &Datum) -> i64 {
    match datum {
        Datum::Time(micros) => *micros,
        Datum::Date(days) => i64::from(*days).saturating_mul(DAY_MICROS),
        _ => 0,
    }
}

/// A part of a moment.
fn part(arguments: &[Datum]) -> Result<Numeric> {
    let (name, micros) = (text(arguments, 0).to_ascii_lowercase(), moment(&arguments[1]));
    let is_date = matches!(arguments[1], Datum::Date(_));
    let (days, rest) = (micros.div_euclid(DAY_MICROS), micros.rem_euclid(DAY_MICROS));
    let (year, month, day) = civil_of(days);
    let whole = |value: i64| Ok(Numeric::from(value));
    match name.as_str() {
        "year" => whole(if year <= 0 { year - 1 } else { year }),
        "month" => whole(month),
        "day" => whole(day),
        "quarter" => whole((month + 2) / 3),
        "hour" if !is_date => whole(rest / 3_600_000_000),
        "minute" if !is_date => whole(rest / 60_000_000 % 60),
        "second" if !is_date => Numeric::new((rest % 60_000_000).into(), 6),
        "dow" => whole((days + 6).rem_euclid(7)),
        "isodow" => whole((days + 5).rem_euclid(7) + 1),
        "doy" => whole(days - days_of(year, 1, 1) + 1),
        "epoch" if is_date => whole((days + EPOCH_DAYS) * 86_400),
        "epoch" => Numeric::new(i128::from(micros) + i128::from(EPOCH_DAYS * DAY_MICROS), 6),
        _ => Err(Error::unsupported(format!("the unit \"{name}\" of this type"))),
    }
}

fn truncate(arguments: &[Datum]) -> Result<Datum> {
    let (name, micros) = (text(arguments, 0).to_ascii_lowercase(), moment(&arguments[1]));
    let days = micros.div_euclid(DAY_MICROS);
    let (year, month, _) = civil_of(days);
    let unit = |unit: i64| Ok(Datum::Time(micros.div_euclid(unit) * unit));
    let first = |days: i64| Ok(Datum::Time(days * DAY_MICROS));
    match name.as_str() {
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
        _ => Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("unit \"{name}\" not recognized for type timestamp without time zone"),
        )),
    }
}

/// Bytes as a person reads them.
fn size_text(bytes: i64) -> String {
    let mut size = bytes;
    for unit in ["bytes", "kB", "MB", "GB"] {
        if size.abs() < 10 * 1024 {
            return format!("{size} {unit}");
        }
        size = (size + 512) / 1024;
    }
    format!("{size} TB")
}
