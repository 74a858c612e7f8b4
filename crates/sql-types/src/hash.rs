//! The hashes of values that choose a partition: those of `PostgreSQL`, so a row is in the partition of the same
//! number.
//!
//! It is Bob Jenkins' hash of 2006 with a seed. A row is kept where its hash says, so the function is a part of the
//! format on media.

use crate::{Datum, Type};

/// The seed of partitions.
const SEED: u64 = 0x7a5b_2236_7996_dcfd;

fn mix([mut a, mut b, mut c]: [u32; 3]) -> [u32; 3] {
    a = a.wrapping_sub(c) ^ c.rotate_left(4);
    c = c.wrapping_add(b);
    b = b.wrapping_sub(a) ^ a.rotate_left(6);
    a = a.wrapping_add(c);
    c = c.wrapping_sub(b) ^ b.rotate_left(8);
    b = b.wrapping_add(a);
    a = a.wrapping_sub(c) ^ c.rotate_left(16);
    c = c.wrapping_add(b);
    b = b.wrapping_sub(a) ^ a.rotate_left(19);
    a = a.wrapping_add(c);
    c = c.wrapping_sub(b) ^ b.rotate_left(4);
    b = b.wrapping_add(a);
    [a, b, c]
}

fn finish([mut a, mut b, mut c]: [u32; 3]) -> u64 {
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    c = (c ^ b).wrapping_sub(b.rotate_left(24));
    u64::from(b) << 32 | u64::from(c)
}

fn begin(length: usize) -> [u32; 3] {
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    let first = 0x9e37_79b9_u32.wrapping_add(length).wrapping_add(3_923_095);
    let [high, low] = [SEED >> 32, SEED & u64::from(u32::MAX)].map(|part| u32::try_from(part).unwrap_or(0));
    mix([first.wrapping_add(high), first.wrapping_add(low), first])
}

fn of_u32(value: u32) -> u64 {
    let [a, b, c] = begin(4);
    finish([a.wrapping_add(value), b, c])
}

fn of_i64(value: i64) -> u64 {
    let [low, high] = [value, value >> 32].map(|part| u32::try_from(part & i64::from(u32::MAX)).unwrap_or(0));
    of_u32(low ^ if value >= 0 { high } else { !high })
}

fn of_bytes(bytes: &[u8]) -> u64 {
    let word = |part: &[u8]| part.iter().rev().fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
    let add = |[a, b, c]: [u32; 3], [x, y, z]: [u32; 3]| [a.wrapping_add(x), b.wrapping_add(y), c.wrapping_add(z)];
    let mut state = begin(bytes.len());
    let mut parts = bytes.chunks_exact(12);
    for part in &mut parts {
        state = mix(add(state, [word(&part[..4]), word(&part[4..8]), word(&part[8..])]));
    }
    let rest = parts.remainder();
    let (one, two) = (rest.len().min(4), rest.len().min(8));
    // The lowest byte of the last word is not used.
    finish(add(state, [word(&rest[..one]), word(&rest[one..two]), word(&rest[two..]) << 8]))
}

/// Whether values of this type have a hash.
#[must_use]
pub fn has_hash(ty: Type) -> bool {
    use Type::{Bool, Bytea, Date, Int2, Int4, Int8, Name, Oid, Text, Time, Timestamp, Timestamptz, Uuid, Varchar};
    matches!(ty, Bool | Int2 | Int4 | Int8 | Oid | Date | Time | Timestamp | Timestamptz | Uuid | Bytea)
        || matches!(ty, Text | Varchar | Name | Type::Bpchar)
}

fn of_datum(ty: Type, datum: &Datum) -> Option<u64> {
    let small = |value: i64| of_u32(u32::try_from(value & i64::from(u32::MAX)).unwrap_or(0));
    Some(match datum {
        Datum::Null => return None,
        Datum::Bool(value) => of_u32(u32::from(*value)),
        Datum::Int(value) if ty == Type::Int8 => of_i64(*value),
        Datum::Int(value) => small(*value),
        Datum::Date(days) => small(i64::from(*days)),
        Datum::Time(moment) => of_i64(*moment),
        Datum::Text(text) if ty == Type::Bpchar => of_bytes(text.trim_end_matches(' ').as_bytes()),
        Datum::Text(text) => of_bytes(text.as_bytes()),
        Datum::Bytes(bytes) => of_bytes(bytes),
        _ => return None,
    })
}

/// The hash of the values of a partition key, each with its type.
///
/// ```
/// use lodestone_sql_types::hash::of_row;
/// use lodestone_sql_types::{Datum, Type};
///
/// assert_eq!(of_row([(Type::Int4, &Datum::Null)]), 0);
/// ```
pub fn of_row<'d>(values: impl IntoIterator<Item = (Type, &'d Datum)>) -> u64 {
    let mut found = 0_u64;
    for (ty, datum) in values {
        if let Some(hash) = of_datum(ty, datum) {
            let more = hash.wrapping_add(0x49a0_f4dd_15e5_a8e3).wrapping_add(found << 54).wrapping_add(found >> 7);
            found ^= more;
        }
    }
    found
}
