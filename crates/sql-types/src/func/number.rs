//! Functions of numbers.

use super::{FLOAT, Function, INT2, INT4, INT8, NUMERIC, int, of};
use crate::datum::Datum;
use crate::error::{Error, Result, SqlState};
use crate::numeric::Numeric;
use crate::op::{Arithmetic, arithmetic};
use crate::text::out_of_range;
use crate::types::Type;

pub const FUNCTIONS: &[Function] = &[
    of("abs", &[INT2], Type::Int2, |_, a| absolute(Type::Int2, a)),
    of("abs", &[INT4], Type::Int4, |_, a| absolute(Type::Int4, a)),
    of("abs", &[INT8], Type::Int8, |_, a| absolute(Type::Int8, a)),
    of("abs", &[NUMERIC], Type::Numeric, |_, a| absolute(Type::Numeric, a)),
    of("abs", &[FLOAT], Type::Float8, |_, a| absolute(Type::Float8, a)),
    of("mod", &[INT2, INT2], Type::Int2, |_, a| arithmetic(Arithmetic::Remainder, Type::Int2, &a[0], &a[1])),
    of("mod", &[INT4, INT4], Type::Int4, |_, a| arithmetic(Arithmetic::Remainder, Type::Int4, &a[0], &a[1])),
    of("mod", &[INT8, INT8], Type::Int8, |_, a| arithmetic(Arithmetic::Remainder, Type::Int8, &a[0], &a[1])),
    of("mod", &[NUMERIC, NUMERIC], Type::Numeric, |_, a| {
        arithmetic(Arithmetic::Remainder, Type::Numeric, &a[0], &a[1])
    }),
    of("round", &[FLOAT], Type::Float8, |_, a| float(a, f64::round_ties_even)),
    of("round", &[NUMERIC], Type::Numeric, |_, a| round(a, 0)),
    of("round", &[NUMERIC, INT4], Type::Numeric, |_, a| round(a, int(a, 1))),
    of("trunc", &[FLOAT], Type::Float8, |_, a| float(a, f64::trunc)),
    of("trunc", &[NUMERIC], Type::Numeric, |_, a| numeric(a, |n| n.minus(fraction(n)?)?.round(0))),
    of("ceil", &[FLOAT], Type::Float8, |_, a| float(a, f64::ceil)),
    of("ceiling", &[FLOAT], Type::Float8, |_, a| float(a, f64::ceil)),
    of("ceil", &[NUMERIC], Type::Numeric, |_, a| numeric(a, |n| floor(n.negate()).map(Numeric::negate))),
    of("ceiling", &[NUMERIC], Type::Numeric, |_, a| numeric(a, |n| floor(n.negate()).map(Numeric::negate))),
    of("floor", &[FLOAT], Type::Float8, |_, a| float(a, f64::floor)),
    of("floor", &[NUMERIC], Type::Numeric, |_, a| numeric(a, floor)),
    of("sign", &[FLOAT], Type::Float8, |_, a| float(a, |n| if n == 0.0 || n.is_nan() { n } else { n.signum() })),
    of("sign", &[NUMERIC], Type::Numeric, |_, a| numeric(a, |n| Numeric::new(n.units().signum(), 0))),
    of("sqrt", &[FLOAT], Type::Float8, |_, a| match a[0] {
        Datum::Float(value) if value < 0.0 => {
            Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, "cannot take square root of a negative number"))
        }
        _ => float(a, f64::sqrt),
    }),
    of("exp", &[FLOAT], Type::Float8, |_, a| float(a, f64::exp)),
    of("power", &[FLOAT, FLOAT], Type::Float8, |_, a| match (&a[0], &a[1]) {
        (Datum::Float(base), Datum::Float(exponent)) => finite(base.powf(*exponent)),
        _ => Ok(Datum::Null),
    }),
    of("random", &[], Type::Float8, |_, _| Ok(Datum::Float(random()))).volatile(),
];

fn absolute(ty: Type, arguments: &[Datum]) -> Result<Datum> {
    Ok(match &arguments[0] {
        Datum::Int(value) => {
            let found = value.checked_abs().filter(|found| *found <= ty.limits().1);
            Datum::Int(found.ok_or_else(|| out_of_range(ty))?)
        }
        Datum::Numeric(value) if value.units() < 0 => Datum::Numeric(value.negate()),
        Datum::Float(value) => Datum::Float(value.abs()),
        other => other.clone(),
    })
}

fn finite(value: f64) -> Result<Datum> {
    if value.is_infinite() {
        return Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow"));
    }
    Ok(Datum::Float(value))
}

fn float(arguments: &[Datum], eval: fn(f64) -> f64) -> Result<Datum> {
    Ok(if let Datum::Float(value) = arguments[0] { Datum::Float(eval(value)) } else { Datum::Null })
}

fn numeric(arguments: &[Datum], eval: fn(Numeric) -> Result<Numeric>) -> Result<Datum> {
    if let Datum::Numeric(value) = arguments[0] { eval(value).map(Datum::Numeric) } else { Ok(Datum::Null) }
}

fn fraction(value: Numeric) -> Result<Numeric> {
    value.remainder(1.into())
}

fn floor(value: Numeric) -> Result<Numeric> {
    let rest = fraction(value)?;
    let whole = value.minus(rest)?.round(0)?;
    if rest.units() < 0 { whole.minus(1.into()) } else { Ok(whole) }
}

fn round(arguments: &[Datum], scale: i64) -> Result<Datum> {
    let Datum::Numeric(value) = arguments[0] else { return Ok(Datum::Null) };
    if scale >= 0 {
        let scale = u8::try_from(scale).unwrap_or(u8::MAX);
        return value.round(scale).map(Datum::Numeric);
    }
    let exponent = u32::try_from(-scale).unwrap_or(u32::MAX);
    let unit = 10_i128.checked_pow(exponent).ok_or_else(|| out_of_range(Type::Numeric))?;
    let unit = Numeric::new(unit, 0)?;
    let count = value.divide(unit)?.round(0)?;
    count.multiply(unit).map(Datum::Numeric)
}

/// A number from 0 to 1: the bits of the hasher that the standard library seeds at random.
fn random() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    let bits = RandomState::new().hash_one(0_u8);
    // 53 bits are exact.
    lodestone_width::nearest_f64(bits >> 11) / lodestone_width::nearest_f64(1 << 53)
}
