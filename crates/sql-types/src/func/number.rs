//! Functions of numbers.

use super::{FLOAT, Function, INT2, INT4, INT8, NUMERIC, int, of};
use crate::datum::Datum;
use crate::error::{Error, Result, SqlState};
use crate::numeric::{self, Numeric};
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
    of("div", &[NUMERIC, NUMERIC], Type::Numeric, |_, a| two(a, Numeric::divide_whole)),
    of("gcd", &[INT4, INT4], Type::Int4, |_, a| divisor(Type::Int4, a)),
    of("gcd", &[INT8, INT8], Type::Int8, |_, a| divisor(Type::Int8, a)),
    of("gcd", &[NUMERIC, NUMERIC], Type::Numeric, |_, a| two(a, common_divisor)),
    of("lcm", &[INT4, INT4], Type::Int4, |_, a| multiple(Type::Int4, a)),
    of("lcm", &[INT8, INT8], Type::Int8, |_, a| multiple(Type::Int8, a)),
    of("lcm", &[NUMERIC, NUMERIC], Type::Numeric, |_, a| two(a, common_multiple)),
    of("factorial", &[INT8], Type::Numeric, |_, a| numeric::factorial(int(a, 0)).map(Datum::Numeric)),
    of("round", &[FLOAT], Type::Float8, |_, a| float(a, f64::round_ties_even)),
    of("round", &[NUMERIC], Type::Numeric, |_, a| one(a, |n| n.round(0))),
    of("round", &[NUMERIC, INT4], Type::Numeric, |_, a| places(a, Numeric::round_to)),
    of("trunc", &[FLOAT], Type::Float8, |_, a| float(a, f64::trunc)),
    of("trunc", &[NUMERIC], Type::Numeric, |_, a| one(a, |n| n.truncate_to(0))),
    of("trunc", &[NUMERIC, INT4], Type::Numeric, |_, a| places(a, Numeric::truncate_to)),
    of("ceil", &[FLOAT], Type::Float8, |_, a| float(a, f64::ceil)),
    of("ceiling", &[FLOAT], Type::Float8, |_, a| float(a, f64::ceil)),
    of("ceil", &[NUMERIC], Type::Numeric, |_, a| one(a, |n| Ok(n.negate().floor()?.negate()))),
    of("ceiling", &[NUMERIC], Type::Numeric, |_, a| one(a, |n| Ok(n.negate().floor()?.negate()))),
    of("floor", &[FLOAT], Type::Float8, |_, a| float(a, f64::floor)),
    of("floor", &[NUMERIC], Type::Numeric, |_, a| one(a, Numeric::floor)),
    of("sign", &[FLOAT], Type::Float8, |_, a| float(a, |n| if n == 0.0 || n.is_nan() { n } else { n.signum() })),
    of("sign", &[NUMERIC], Type::Numeric, |_, a| {
        one(a, |n| Ok(if n.is_nan() { n.clone() } else { Numeric::from(i64::from(n.signum())) }))
    }),
    of("scale", &[NUMERIC], Type::Int4, |_, a| scale(a, Numeric::scale)),
    of("min_scale", &[NUMERIC], Type::Int4, |_, a| scale(a, |n| n.trimmed().scale())),
    of("trim_scale", &[NUMERIC], Type::Numeric, |_, a| one(a, |n| Ok(n.trimmed()))),
    of("sqrt", &[FLOAT], Type::Float8, |_, a| match a[0] {
        Datum::Float(value) if value < 0.0 => Err(power_error("cannot take square root of a negative number")),
        _ => float(a, f64::sqrt),
    }),
    of("sqrt", &[NUMERIC], Type::Numeric, |_, a| one(a, numeric::square_root)),
    of("cbrt", &[FLOAT], Type::Float8, |_, a| float(a, f64::cbrt)),
    of("exp", &[FLOAT], Type::Float8, |_, a| bounded(a, f64::exp)),
    of("exp", &[NUMERIC], Type::Numeric, |_, a| one(a, numeric::exp)),
    of("ln", &[FLOAT], Type::Float8, |_, a| logarithm(a, f64::ln)),
    of("ln", &[NUMERIC], Type::Numeric, |_, a| one(a, numeric::ln)),
    of("log", &[FLOAT], Type::Float8, |_, a| logarithm(a, f64::log10)),
    of("log10", &[FLOAT], Type::Float8, |_, a| logarithm(a, f64::log10)),
    of("log", &[NUMERIC], Type::Numeric, |_, a| one(a, |n| numeric::log(&10.into(), n))),
    of("log10", &[NUMERIC], Type::Numeric, |_, a| one(a, |n| numeric::log(&10.into(), n))),
    of("log", &[NUMERIC, NUMERIC], Type::Numeric, |_, a| two(a, numeric::log)),
    of("power", &[FLOAT, FLOAT], Type::Float8, |_, a| reals(a).map_or(Ok(Datum::Null), |(b, e)| power(b, e))),
    of("pow", &[FLOAT, FLOAT], Type::Float8, |_, a| reals(a).map_or(Ok(Datum::Null), |(b, e)| power(b, e))),
    of("power", &[NUMERIC, NUMERIC], Type::Numeric, |_, a| two(a, numeric::power)),
    of("pow", &[NUMERIC, NUMERIC], Type::Numeric, |_, a| two(a, numeric::power)),
    of("pi", &[], Type::Float8, |_, _| Ok(Datum::Float(std::f64::consts::PI))),
    of("degrees", &[FLOAT], Type::Float8, |_, a| bounded(a, |n| n / (std::f64::consts::PI / 180.0))),
    of("radians", &[FLOAT], Type::Float8, |_, a| float(a, |n| n * (std::f64::consts::PI / 180.0))),
    of("sin", &[FLOAT], Type::Float8, |_, a| angle(a, f64::sin)),
    of("cos", &[FLOAT], Type::Float8, |_, a| angle(a, f64::cos)),
    of("tan", &[FLOAT], Type::Float8, |_, a| angle(a, f64::tan)),
    of("cot", &[FLOAT], Type::Float8, |_, a| angle(a, |n| 1.0 / n.tan())),
    of("asin", &[FLOAT], Type::Float8, |_, a| unit(a, f64::asin)),
    of("acos", &[FLOAT], Type::Float8, |_, a| unit(a, f64::acos)),
    of("atan", &[FLOAT], Type::Float8, |_, a| float(a, f64::atan)),
    of("atan2", &[FLOAT, FLOAT], Type::Float8, |_, a| {
        Ok(reals(a).map_or(Datum::Null, |(one, two)| Datum::Float(one.atan2(two))))
    }),
    of("sinh", &[FLOAT], Type::Float8, |_, a| float(a, f64::sinh)),
    of("cosh", &[FLOAT], Type::Float8, |_, a| float(a, f64::cosh)),
    of("tanh", &[FLOAT], Type::Float8, |_, a| float(a, f64::tanh)),
    of("asinh", &[FLOAT], Type::Float8, |_, a| float(a, f64::asinh)),
    of("acosh", &[FLOAT], Type::Float8, |_, a| in_domain(a, |n| n.is_nan() || n >= 1.0, f64::acosh)),
    of("atanh", &[FLOAT], Type::Float8, |_, a| unit(a, f64::atanh)),
    of("width_bucket", &[FLOAT, FLOAT, FLOAT, INT4], Type::Int4, |_, a| bucket_of_reals(a)),
    of("width_bucket", &[NUMERIC, NUMERIC, NUMERIC, INT4], Type::Int4, |_, a| bucket_of_numbers(a)),
    of("bit_not", &[INT2], Type::Int2, |_, a| Ok(Datum::Int(!int(a, 0)))),
    of("bit_not", &[INT4], Type::Int4, |_, a| Ok(Datum::Int(!int(a, 0)))),
    of("bit_not", &[INT8], Type::Int8, |_, a| Ok(Datum::Int(!int(a, 0)))),
    of("random", &[], Type::Float8, |_, _| Ok(Datum::Float(random()))).volatile(),
];

fn absolute(ty: Type, arguments: &[Datum]) -> Result<Datum> {
    Ok(match &arguments[0] {
        Datum::Int(value) => {
            let found = value.checked_abs().filter(|found| *found <= ty.limits().1);
            Datum::Int(found.ok_or_else(|| out_of_range(ty))?)
        }
        Datum::Numeric(value) => Datum::Numeric(value.absolute()),
        Datum::Float(value) => Datum::Float(value.abs()),
        other => other.clone(),
    })
}

fn overflow(what: &str) -> Error {
    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("value out of range: {what}"))
}

fn power_error(message: &'static str) -> Error {
    Error::new(SqlState::INVALID_ARGUMENT_FOR_POWER_FUNCTION, message)
}

fn real(arguments: &[Datum]) -> Option<f64> {
    if let Some(Datum::Float(value)) = arguments.first() { Some(*value) } else { None }
}

pub(super) fn reals(arguments: &[Datum]) -> Option<(f64, f64)> {
    if let [Datum::Float(one), Datum::Float(two)] = arguments { Some((*one, *two)) } else { None }
}

pub(super) fn float(arguments: &[Datum], eval: fn(f64) -> f64) -> Result<Datum> {
    Ok(real(arguments).map_or(Datum::Null, |value| Datum::Float(eval(value))))
}

/// The result must be a number where the argument is.
fn bounded(arguments: &[Datum], eval: fn(f64) -> f64) -> Result<Datum> {
    let Some(value) = real(arguments) else { return Ok(Datum::Null) };
    match eval(value) {
        found if found.is_infinite() && value.is_finite() => Err(overflow("overflow")),
        found if found == 0.0 && value.is_finite() && value != 0.0 => Err(overflow("underflow")),
        found => Ok(Datum::Float(found)),
    }
}

fn in_domain(arguments: &[Datum], fits: fn(f64) -> bool, eval: fn(f64) -> f64) -> Result<Datum> {
    match real(arguments) {
        Some(value) if !fits(value) => Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "input is out of range")),
        _ => float(arguments, eval),
    }
}

pub(super) fn angle(arguments: &[Datum], eval: fn(f64) -> f64) -> Result<Datum> {
    in_domain(arguments, |value| !value.is_infinite(), eval)
}

pub(super) fn unit(arguments: &[Datum], eval: fn(f64) -> f64) -> Result<Datum> {
    in_domain(arguments, |value| value.is_nan() || value.abs() <= 1.0, eval)
}

fn logarithm(arguments: &[Datum], eval: fn(f64) -> f64) -> Result<Datum> {
    let error = |message| Err(Error::new(SqlState::INVALID_ARGUMENT_FOR_LOG, message));
    match real(arguments) {
        Some(0.0) => error("cannot take logarithm of zero"),
        Some(value) if value < 0.0 => error("cannot take logarithm of a negative number"),
        _ => float(arguments, eval),
    }
}

fn power(base: f64, exponent: f64) -> Result<Datum> {
    if base == 0.0 && exponent < 0.0 {
        return Err(power_error("zero raised to a negative power is undefined"));
    }
    if base < 0.0 && exponent.is_finite() && exponent.fract() != 0.0 {
        return Err(power_error("a negative number raised to a non-integer power yields a complex result"));
    }
    match base.powf(exponent) {
        found if found.is_infinite() && base.is_finite() && exponent.is_finite() => Err(overflow("overflow")),
        found if found == 0.0 && base != 0.0 && base.is_finite() && exponent.is_finite() => Err(overflow("underflow")),
        found => Ok(Datum::Float(found)),
    }
}

fn one(arguments: &[Datum], eval: fn(&Numeric) -> Result<Numeric>) -> Result<Datum> {
    if let Datum::Numeric(value) = &arguments[0] { eval(value).map(Datum::Numeric) } else { Ok(Datum::Null) }
}

fn two(arguments: &[Datum], eval: fn(&Numeric, &Numeric) -> Result<Numeric>) -> Result<Datum> {
    match arguments {
        [Datum::Numeric(one), Datum::Numeric(two)] => eval(one, two).map(Datum::Numeric),
        _ => Ok(Datum::Null),
    }
}

fn places(arguments: &[Datum], eval: fn(&Numeric, i32) -> Result<Numeric>) -> Result<Datum> {
    let Datum::Numeric(value) = &arguments[0] else { return Ok(Datum::Null) };
    let scale = i32::try_from(int(arguments, 1)).unwrap_or(0);
    eval(value, scale).map(Datum::Numeric)
}

fn scale(arguments: &[Datum], eval: fn(&Numeric) -> u16) -> Result<Datum> {
    Ok(match &arguments[0] {
        Datum::Numeric(value) if value.is_finite() => Datum::Int(eval(value).into()),
        _ => Datum::Null,
    })
}

fn divisor(ty: Type, arguments: &[Datum]) -> Result<Datum> {
    let (mut one, mut two) = (i128::from(int(arguments, 0)), i128::from(int(arguments, 1)));
    while two != 0 {
        (one, two) = (two, one % two);
    }
    let found = i64::try_from(one.abs()).ok().filter(|found| *found <= ty.limits().1);
    found.map(Datum::Int).ok_or_else(|| out_of_range(ty))
}

fn multiple(ty: Type, arguments: &[Datum]) -> Result<Datum> {
    let (one, two) = (int(arguments, 0), int(arguments, 1));
    if one == 0 || two == 0 {
        return Ok(Datum::Int(0));
    }
    let Datum::Int(divisor) = divisor(ty, arguments)? else { return Ok(Datum::Null) };
    let found = (one / divisor).checked_mul(two).and_then(i64::checked_abs);
    found.filter(|found| *found <= ty.limits().1).map(Datum::Int).ok_or_else(|| out_of_range(ty))
}

fn common_divisor(one: &Numeric, two: &Numeric) -> Result<Numeric> {
    let (mut first, mut second) = (one.absolute(), two.absolute());
    if !first.is_finite() || !second.is_finite() {
        return Ok(Numeric::NAN);
    }
    let scale = first.scale().max(second.scale());
    while second.signum() != 0 {
        (first, second) = (second.clone(), first.remainder(&second)?);
    }
    first.round(scale)
}

fn common_multiple(one: &Numeric, two: &Numeric) -> Result<Numeric> {
    if !one.is_finite() || !two.is_finite() {
        return Ok(Numeric::NAN);
    }
    let scale = one.scale().max(two.scale());
    if one.signum() == 0 || two.signum() == 0 {
        return Numeric::from(0).round(scale);
    }
    let divisor = common_divisor(one, two)?;
    one.divide_whole(&divisor)?.multiply(two)?.absolute().round(scale)
}

fn bucket_error(message: &'static str) -> Error {
    Error::new(SqlState::INVALID_ARGUMENT_FOR_WIDTH_BUCKET, message)
}

fn bucket_of_reals(arguments: &[Datum]) -> Result<Datum> {
    let (Datum::Float(value), Datum::Float(low), Datum::Float(high), count) =
        (&arguments[0], &arguments[1], &arguments[2], int(arguments, 3))
    else {
        return Ok(Datum::Null);
    };
    if count <= 0 {
        return Err(bucket_error("count must be greater than zero"));
    }
    if value.is_nan() || low.is_nan() || high.is_nan() {
        return Err(bucket_error("operand, lower bound, and upper bound cannot be NaN"));
    }
    if low.is_infinite() || high.is_infinite() {
        return Err(bucket_error("lower and upper bounds must be finite"));
    }
    let (value, low, high) = if low < high { (*value, *low, *high) } else { (-value, -low, -high) };
    if low == high {
        return Err(bucket_error("lower bound cannot equal upper bound"));
    }
    let above = || count.checked_add(1).filter(|found| *found <= Type::Int4.limits().1);
    let found = match () {
        () if value < low => Some(0),
        () if value >= high => above(),
        () => {
            let share = (value / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0);
            let place = share * lodestone_width::nearest_f64(count.unsigned_abs());
            format!("{:.0}", place.floor()).parse::<i64>().ok().map(|place| place.min(count - 1) + 1)
        }
    };
    found.map(Datum::Int).ok_or_else(|| out_of_range(Type::Int4))
}

fn bucket_of_numbers(arguments: &[Datum]) -> Result<Datum> {
    let (Datum::Numeric(value), Datum::Numeric(low), Datum::Numeric(high), count) =
        (&arguments[0], &arguments[1], &arguments[2], int(arguments, 3))
    else {
        return Ok(Datum::Null);
    };
    if count <= 0 {
        return Err(bucket_error("count must be greater than zero"));
    }
    if value.is_nan() || low.is_nan() || high.is_nan() {
        return Err(bucket_error("operand, lower bound, and upper bound cannot be NaN"));
    }
    if !low.is_finite() || !high.is_finite() {
        return Err(bucket_error("lower and upper bounds must be finite"));
    }
    if low == high {
        return Err(bucket_error("lower bound cannot equal upper bound"));
    }
    let is_up = low < high;
    let (is_below, is_above) = if is_up { (value < low, value >= high) } else { (value > low, value <= high) };
    if is_below {
        return Ok(Datum::Int(0));
    }
    if is_above {
        let found = count.checked_add(1).filter(|found| *found <= Type::Int4.limits().1);
        return found.map(Datum::Int).ok_or_else(|| out_of_range(Type::Int4));
    }
    let share = value.minus(low)?.multiply(&count.into())?.divide_whole(&high.minus(low)?)?;
    Ok(Datum::Int(share.to_i64()? + 1))
}

/// A number from 0 to 1: the bits of the hasher that the standard library seeds at random.
fn random() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    let bits = RandomState::new().hash_one(0_u8);
    // 53 bits are exact.
    lodestone_width::nearest_f64(bits >> 11) / lodestone_width::nearest_f64(1 << 53)
}
