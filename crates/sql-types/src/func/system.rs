//! Functions about the session and this moment.

use super::{Argument, BOOL, Function, INT4, OID, TEXT, int, of, text};
use crate::datum::Datum;
use crate::style::to_local;
use crate::time::{DAY_MICROS, now};
use crate::types::Type;

pub const FUNCTIONS: &[Function] = &[
    of("now", &[], Type::Timestamptz, |s, _| Ok(Datum::Time(s.transaction_time()))).volatile(),
    of("transaction_timestamp", &[], Type::Timestamptz, |s, _| Ok(Datum::Time(s.transaction_time()))).volatile(),
    of("current_timestamp", &[], Type::Timestamptz, |s, _| Ok(Datum::Time(s.transaction_time()))).volatile(),
    of("localtimestamp", &[], Type::Timestamp, |s, _| Ok(Datum::Time(to_local(s.transaction_time())))).volatile(),
    of("statement_timestamp", &[], Type::Timestamptz, |s, _| Ok(Datum::Time(s.statement_time()))).volatile(),
    of("clock_timestamp", &[], Type::Timestamptz, |_, _| Ok(Datum::Time(now()))).volatile(),
    of("current_date", &[], Type::Date, |s, _| {
        let days = to_local(s.transaction_time()).div_euclid(DAY_MICROS);
        Ok(Datum::Date(i32::try_from(days).unwrap_or(i32::MAX)))
    })
    .volatile(),
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
    of("pg_isolation_test_session_is_blocked", &[INT4, Argument::Of(Type::Int4Array)], Type::Bool, |s, a| {
        Ok(Datum::Bool(s.is_blocked(int(a, 0))))
    })
    .volatile(),
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

/// Bytes as a person reads them.
fn size_text(bytes: i64) -> String {
    if bytes.unsigned_abs() < 10 * 1024 {
        return format!("{bytes} bytes");
    }
    // One bit more than the unit has, so that halves are rounded away from zero at the end.
    let mut doubled = bytes / 512;
    let units = ["kB", "MB", "GB", "TB", "PB"];
    let mut unit = 0;
    while unit + 1 < units.len() && doubled.unsigned_abs() >= 20 * 1024 - 1 {
        doubled /= 1024;
        unit += 1;
    }
    format!("{} {}", (doubled + doubled.signum()) / 2, units[unit])
}
