//! Functions of the bits of bytes, digests, and the bytes that values have on the wire.

use sha2::Digest;

use super::string::bytes;
use super::{BOOL, BYTEA, FLOAT, FLOAT4, Function, INT4, INT8, int, of};
use crate::binary;
use crate::datum::Datum;
use crate::error::{Error, Result, SqlState};
use crate::types::Type;

pub const FUNCTIONS: &[Function] = &[
    of("sha224", &[BYTEA], Type::Bytea, |_, a| Ok(Datum::Bytes(sha2::Sha224::digest(bytes(a, 0)).to_vec()))),
    of("sha256", &[BYTEA], Type::Bytea, |_, a| Ok(Datum::Bytes(sha2::Sha256::digest(bytes(a, 0)).to_vec()))),
    of("sha384", &[BYTEA], Type::Bytea, |_, a| Ok(Datum::Bytes(sha2::Sha384::digest(bytes(a, 0)).to_vec()))),
    of("sha512", &[BYTEA], Type::Bytea, |_, a| Ok(Datum::Bytes(sha2::Sha512::digest(bytes(a, 0)).to_vec()))),
    of("get_bit", &[BYTEA, INT8], Type::Int4, |_, a| {
        let (byte, bit) = bit_place(bytes(a, 0), int(a, 1))?;
        Ok(Datum::Int((bytes(a, 0)[byte] >> bit & 1).into()))
    }),
    of("set_bit", &[BYTEA, INT8, INT4], Type::Bytea, |_, a| set_bit(bytes(a, 0), int(a, 1), int(a, 2))),
    of("bit_count", &[BYTEA], Type::Int8, |_, a| {
        Ok(Datum::Int(bytes(a, 0).iter().map(|byte| i64::from(byte.count_ones())).sum()))
    }),
    of("float4send", &[FLOAT4], Type::Bytea, |_, a| sent(Type::Float4, &a[0])),
    of("float8send", &[FLOAT], Type::Bytea, |_, a| sent(Type::Float8, &a[0])),
    of("int4send", &[INT4], Type::Bytea, |_, a| sent(Type::Int4, &a[0])),
    of("int8send", &[INT8], Type::Bytea, |_, a| sent(Type::Int8, &a[0])),
    of("booleq", &[BOOL, BOOL], Type::Bool, |_, a| Ok(Datum::Bool(a[0] == a[1]))),
    of("boolne", &[BOOL, BOOL], Type::Bool, |_, a| Ok(Datum::Bool(a[0] != a[1]))),
];

fn sent(ty: Type, value: &Datum) -> Result<Datum> {
    let mut found = Vec::new();
    binary::encode(ty, value, &mut found)?;
    Ok(Datum::Bytes(found))
}

/// The byte with this bit, and its place in the byte. The first bit of a byte is its lowest one.
fn bit_place(bytes: &[u8], number: i64) -> Result<(usize, usize)> {
    let place = usize::try_from(number).ok().filter(|place| place / 8 < bytes.len());
    place.map(|place| (place / 8, place % 8)).ok_or_else(|| {
        let last = i64::try_from(bytes.len()).unwrap_or(i64::MAX).saturating_mul(8) - 1;
        let message = format!("index {number} out of valid range, 0..{last}");
        Error::new(SqlState::ARRAY_SUBSCRIPT_ERROR, message)
    })
}

fn set_bit(bytes: &[u8], number: i64, value: i64) -> Result<Datum> {
    let (byte, bit) = bit_place(bytes, number)?;
    let mut found = bytes.to_vec();
    match value {
        0 => found[byte] &= !(1 << bit),
        1 => found[byte] |= 1 << bit,
        _ => return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, "new bit must be 0 or 1")),
    }
    Ok(Datum::Bytes(found))
}
