//! Keys as bytes whose order is the order of their values.
//!
//! ```text
//! nullable column: 0 (null, the first) or 1, then the value
//! bool             one byte, 0 or 1
//! i16 to i64, u64  big-endian, the sign bit of signed ones flipped; so date, timestamp and decimal
//! uuid             16 bytes
//! f64              8 bytes, big-endian: all bits flipped if negative, else the sign bit; -0 is 0, NaN is the last
//! text, bytes      the bytes, each 00 as 00 FF, then 00 00
//! ```
//!
//! Invariant: no encoded value is the beginning of another one of its column. So the keys that begin with given values
//! are exactly the keys that begin with their bytes, from these bytes up to [`after`] them.

use crate::calendar::{Date, Timestamp};
use crate::uuid::Uuid;
use crate::value::{Type, Value};

/// Longest key in bytes.
pub const KEY_BYTES_MAX: usize = 1000;

const SIGN: u64 = 1 << 63;

/// Appends `value`, which is of type `kind`, or null if the column is `nullable`.
pub fn encode(value: &Value, nullable: bool, out: &mut Vec<u8>) {
    if nullable {
        out.push(u8::from(*value != Value::Null));
    }
    match value {
        Value::Null => {}
        Value::Bool(value) => out.push(u8::from(*value)),
        Value::I64(value) => out.extend((value ^ i64::MIN).to_be_bytes()),
        Value::U64(value) => out.extend(value.to_be_bytes()),
        Value::F64(value) => out.extend(ordered(*value).to_be_bytes()),
        Value::Text(value) => escape(value.as_bytes(), out),
        Value::Bytes(value) => escape(value, out),
        Value::I16(value) => out.extend((value ^ i16::MIN).to_be_bytes()),
        Value::I32(value) => out.extend((value ^ i32::MIN).to_be_bytes()),
        Value::Date(value) => out.extend((value.days() ^ i32::MIN).to_be_bytes()),
        Value::Timestamp(value) => out.extend((value.micros() ^ i64::MIN).to_be_bytes()),
        Value::Uuid(value) => out.extend(value.bytes()),
        Value::Decimal { units, .. } => out.extend((units ^ i128::MIN).to_be_bytes()),
    }
}

/// The value of type `kind` at the beginning of `bytes`, which begins after it then. `None` for bytes that [`encode`]
/// does not write.
pub fn decode(bytes: &mut &[u8], kind: Type, nullable: bool) -> Option<Value> {
    if nullable {
        match bytes.split_off_first()? {
            0 => return Some(Value::Null),
            1 => {}
            _ => return None,
        }
    }
    Some(match kind {
        Type::Bool => Value::Bool(match bytes.split_off_first()? {
            0 => false,
            1 => true,
            _ => return None,
        }),
        Type::I16 => Value::I16(i16::from_be_bytes(take(bytes)?) ^ i16::MIN),
        Type::I32 => Value::I32(i32::from_be_bytes(take(bytes)?) ^ i32::MIN),
        Type::I64 => Value::I64(i64::from_be_bytes(take(bytes)?) ^ i64::MIN),
        Type::U64 => Value::U64(u64::from_be_bytes(take(bytes)?)),
        Type::F64 => Value::F64(from_ordered(u64::from_be_bytes(take(bytes)?))),
        Type::Date => Value::Date(Date::from_days(i32::from_be_bytes(take(bytes)?) ^ i32::MIN)),
        Type::Timestamp => Value::Timestamp(Timestamp::from_micros(i64::from_be_bytes(take(bytes)?) ^ i64::MIN)),
        Type::Uuid => Value::Uuid(Uuid::from_bytes(take(bytes)?)),
        Type::Decimal(scale) => Value::Decimal { units: i128::from_be_bytes(take(bytes)?) ^ i128::MIN, scale },
        Type::Text => Value::Text(String::from_utf8(unescape(bytes)?).ok()?),
        Type::Bytes => Value::Bytes(unescape(bytes)?),
    })
}

/// The first bytes after all keys that begin with `prefix`. `None`: there are none.
pub fn after(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut after = prefix[..=last].to_vec();
    after[last] += 1;
    Some(after)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (word, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*word)
}

/// A number whose order is that of the floating-point values.
fn ordered(value: f64) -> u64 {
    let bits = if value.is_nan() {
        f64::NAN.to_bits() & !SIGN
    } else if value == 0.0 {
        0
    } else {
        value.to_bits()
    };
    if bits & SIGN != 0 { !bits } else { bits ^ SIGN }
}

fn from_ordered(bits: u64) -> f64 {
    f64::from_bits(if bits & SIGN != 0 { bits ^ SIGN } else { !bits })
}

fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        out.push(*byte);
        if *byte == 0 {
            out.push(u8::MAX);
        }
    }
    out.extend([0, 0]);
}

fn unescape(bytes: &mut &[u8]) -> Option<Vec<u8>> {
    let mut found = Vec::new();
    loop {
        match *bytes.split_off_first()? {
            0 => match bytes.split_off_first()? {
                0 => return Some(found),
                &u8::MAX => found.push(0),
                _ => return None,
            },
            byte => found.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::*;

    const TYPES: [Type; 12] = [
        Type::Bool,
        Type::I16,
        Type::I32,
        Type::I64,
        Type::U64,
        Type::F64,
        Type::Date,
        Type::Timestamp,
        Type::Uuid,
        Type::Decimal(2),
        Type::Text,
        Type::Bytes,
    ];

    /// The order that people expect, null first and NaN last.
    fn compare(left: &Value, right: &Value) -> Ordering {
        match (left, right) {
            (Value::Null, Value::Null) => Ordering::Equal,
            (Value::Null, _) => Ordering::Less,
            (_, Value::Null) => Ordering::Greater,
            (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
            (Value::I16(left), Value::I16(right)) => left.cmp(right),
            (Value::I32(left), Value::I32(right)) => left.cmp(right),
            (Value::I64(left), Value::I64(right)) => left.cmp(right),
            (Value::Date(left), Value::Date(right)) => left.cmp(right),
            (Value::Timestamp(left), Value::Timestamp(right)) => left.cmp(right),
            (Value::Uuid(left), Value::Uuid(right)) => left.cmp(right),
            (Value::Decimal { units: left, .. }, Value::Decimal { units: right, .. }) => left.cmp(right),
            (Value::U64(left), Value::U64(right)) => left.cmp(right),
            (Value::F64(left), Value::F64(right)) => match (left.is_nan(), right.is_nan()) {
                (false, false) => left.partial_cmp(right).expect("numbers"),
                (left, right) => left.cmp(&right),
            },
            (Value::Text(left), Value::Text(right)) => left.cmp(right),
            (Value::Bytes(left), Value::Bytes(right)) => left.cmp(right),
            _ => unreachable!("one type"),
        }
    }

    fn value(kind: Type) -> BoxedStrategy<Value> {
        // Few different bytes, and the borders of the escapes among them: long common beginnings.
        let bytes = || prop::collection::vec(prop::sample::select(vec![0_u8, 1, 254, 255]), 0..6);
        let edges =
            vec![0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -f64::NAN, f64::MIN_POSITIVE];
        match kind {
            Type::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
            Type::I16 => any::<i16>().prop_map(Value::I16).boxed(),
            Type::I32 => prop_oneof![any::<i32>(), -2..2_i32].prop_map(Value::I32).boxed(),
            Type::Date => prop_oneof![any::<i32>(), -2..2_i32].prop_map(|days| Date::from_days(days).into()).boxed(),
            Type::Timestamp => {
                prop_oneof![any::<i64>(), -2..2_i64].prop_map(|micros| Timestamp::from_micros(micros).into()).boxed()
            }
            Type::Uuid => {
                prop_oneof![any::<u128>(), 0..2_u128].prop_map(|number| Uuid::from_u128(number).into()).boxed()
            }
            Type::Decimal(scale) => {
                prop_oneof![any::<i128>(), -2..2_i128].prop_map(move |units| Value::Decimal { units, scale }).boxed()
            }
            Type::I64 => {
                prop_oneof![any::<i64>(), -2..2_i64, Just(i64::MIN), Just(i64::MAX)].prop_map(Value::I64).boxed()
            }
            Type::U64 => prop_oneof![any::<u64>(), 0..2_u64, Just(u64::MAX)].prop_map(Value::U64).boxed(),
            Type::F64 => prop_oneof![any::<f64>(), prop::sample::select(edges)].prop_map(Value::F64).boxed(),
            Type::Text => "[\0ab\u{7f}\u{10ffff}]{0,5}".prop_map(Value::Text).boxed(),
            Type::Bytes => bytes().prop_map(Value::Bytes).boxed(),
        }
    }

    /// Two keys of the same columns: type, whether it is nullable, and both values of each.
    fn keys() -> impl Strategy<Value = Vec<(Type, bool, Value, Value)>> {
        let column = (prop::sample::select(TYPES.to_vec()), any::<bool>()).prop_flat_map(|(kind, nullable)| {
            let one = move || {
                let some = value(kind);
                if nullable { prop_oneof![1 => Just(Value::Null), 4 => some].boxed() } else { some }
            };
            (Just(kind), Just(nullable), one(), one(), any::<bool>()).prop_map(
                |(kind, nullable, left, right, equal)| {
                    let right = if equal { left.clone() } else { right };
                    (kind, nullable, left, right)
                },
            )
        });
        prop::collection::vec(column, 1..4)
    }

    fn bytes_of<'v>(columns: impl Iterator<Item = (bool, &'v Value)>) -> Vec<u8> {
        let mut bytes = Vec::new();
        columns.for_each(|(nullable, value)| encode(value, nullable, &mut bytes));
        bytes
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn the_order_of_bytes_is_the_order_of_values(columns in keys()) {
            let left = bytes_of(columns.iter().map(|column| (column.1, &column.2)));
            let right = bytes_of(columns.iter().map(|column| (column.1, &column.3)));
            let expected = columns.iter().map(|column| compare(&column.2, &column.3)).find(|order| order.is_ne());
            prop_assert_eq!(left.cmp(&right), expected.unwrap_or(Ordering::Equal));
        }

        #[test]
        fn values_come_back(columns in keys()) {
            let bytes = bytes_of(columns.iter().map(|column| (column.1, &column.2)));
            let mut rest = &bytes[..];
            for (kind, nullable, value, _) in &columns {
                let found = decode(&mut rest, *kind, *nullable).expect("whole");
                prop_assert!(compare(&found, value).is_eq(), "{found:?} for {value:?}");
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn a_prefix_ends_before_the_bytes_after_it(columns in keys(), more in keys()) {
            let left = bytes_of(columns.iter().map(|column| (column.1, &column.2)));
            let mut longer = left.clone();
            longer.extend(bytes_of(more.iter().map(|column| (column.1, &column.2))));
            let right = bytes_of(columns.iter().map(|column| (column.1, &column.3)));
            if let Some(end) = after(&left) {
                prop_assert!(longer < end);
                prop_assert!(right <= left || right >= end);
            } else {
                prop_assert!(right <= left);
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..20),
            kind in prop::sample::select(TYPES.to_vec()),
            nullable in any::<bool>(),
        ) {
            let mut rest = &bytes[..];
            if let Some(value) = decode(&mut rest, kind, nullable) {
                let mut again = Vec::new();
                encode(&value, nullable, &mut again);
                // Not of numbers: -0 and the other NaN are never written.
                prop_assert!(kind == Type::F64 || again == bytes[..bytes.len() - rest.len()]);
            }
        }
    }
}
