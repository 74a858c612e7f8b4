//! Roots, logarithms and powers of decimal numbers, with as many digits as `PostgreSQL` gives.
//!
//! They are computed with integers of any length: units of 10^-w, where w is the number of digits that the result has,
//! and some more. The last digit is rounded.

use std::f64::consts::LOG10_E;

use num_bigint::{BigInt, Sign};

use super::{Numeric, RESULT_SCALE_MAX, divide_rounded, overflow, ten};
use crate::error::{Error, Result, SqlState};

/// Digits that are computed beyond those of the result.
const GUARD: u32 = 24;

/// Most digits before the point of a power that is not a whole one: its series takes time with their square.
const POWER_DIGITS_MAX: f64 = 6_000.0;

fn too_long() -> Error {
    overflow().detail("Powers and exponentials of a fraction have at most 6,000 digits before the point here.")
}

fn whole(value: f64) -> i64 {
    format!("{:.0}", value.trunc()).parse().unwrap_or(if value < 0.0 { i64::MIN } else { i64::MAX })
}

/// Digits after the point of a result whose logarithm is `value`.
fn result_scale(value: f64, scales: &[u16]) -> i64 {
    let most = scales.iter().copied().map(i64::from).max().unwrap_or(0);
    (16 - whole(value.clamp(-2_000.0, 2_000_000.0))).max(most).clamp(0, RESULT_SCALE_MAX)
}

fn digits_of(scale: i64) -> u32 {
    u32::try_from(scale.max(0)).unwrap_or(0)
}

/// The number in units of 10^-digits, without what is below.
fn units_of(value: &Numeric, digits: u32) -> Result<BigInt> {
    let (units, scale) = value.parts().ok_or_else(overflow)?;
    let scale = u32::from(scale);
    Ok(if digits >= scale { units * ten(digits - scale) } else { units / ten(scale - digits) })
}

/// Units of 10^-digits as a number with `scale` digits after the point.
fn number_of(units: &BigInt, digits: u32, scale: i64) -> Result<Numeric> {
    let scale = u16::try_from(scale).map_err(|_| overflow())?;
    let distance = i64::from(digits) - i64::from(scale);
    let power = ten(digits_of(distance.abs()));
    let found = if distance >= 0 { divide_rounded(units, &power) } else { units * power };
    Numeric::of_units(found, scale)
}

/// The square root.
///
/// # Errors
/// 2201F for a negative number.
pub fn square_root(value: &Numeric) -> Result<Numeric> {
    if value.is_nan() || !value.is_finite() && value.signum() > 0 {
        return Ok(value.clone());
    }
    if value.signum() < 0 {
        let message = "cannot take square root of a negative number";
        return Err(Error::new(SqlState::INVALID_ARGUMENT_FOR_POWER_FUNCTION, message));
    }
    let weight = value.head().0;
    let sweight = if weight >= 0 { weight * 4 / 2 + 1 } else { 1 - (1 - weight * 4) / 2 };
    let scale = (16 - sweight).max(value.scale().into()).clamp(0, RESULT_SCALE_MAX);
    root_to(value, scale)
}

/// The square root of a variance: with as many digits after the point as that has.
///
/// # Errors
/// 22003.
pub fn deviation(variance: &Numeric) -> Result<Numeric> {
    root_to(variance, variance.scale().into())
}

fn root_to(value: &Numeric, scale: i64) -> Result<Numeric> {
    let digits = digits_of(scale) + 4;
    let root = units_of(value, digits * 2)?.sqrt();
    number_of(&root, digits, scale)
}

/// e to the power of units of 10^-digits.
fn exp_units(units: &BigInt, digits: u32) -> BigInt {
    // A small argument makes the series short: it is halved, and the result squared as often.
    let unit = ten(digits);
    let mut halvings = 0_u32;
    let mut small = units.clone();
    while small.magnitude() * 64_u32 > *unit.magnitude() {
        small /= 2;
        halvings += 1;
    }
    let (mut sum, mut term, mut number) = (&unit + &small, small.clone(), 2_u32);
    while term.sign() != Sign::NoSign {
        term = term * &small / &unit / number;
        sum += &term;
        number += 1;
    }
    for _ in 0..halvings {
        sum = &sum * &sum / &unit;
    }
    sum
}

/// The exponential function.
///
/// # Errors
/// 22003.
pub fn exp(value: &Numeric) -> Result<Numeric> {
    if !value.is_finite() {
        let is_low = !value.is_nan() && value.signum() < 0;
        return Ok(if is_low { Numeric::from(0) } else { value.clone() });
    }
    let size = value.to_f64() * LOG10_E;
    exp_to(value, result_scale(size, &[value.scale()]), size)
}

fn exp_to(value: &Numeric, scale: i64, size: f64) -> Result<Numeric> {
    if size > POWER_DIGITS_MAX {
        return Err(too_long());
    }
    if size < -(nearest(scale) + 2.0) {
        return number_of(&BigInt::from(0), 0, scale);
    }
    // Each squaring doubles the error.
    let digits = digits_of(scale) + digits_of(whole(size.abs())) + GUARD;
    if size < 0.0 {
        let found = exp_units(&-units_of(value, digits)?, digits);
        return number_of(&(ten(digits * 2) / found), digits, scale);
    }
    number_of(&exp_units(&units_of(value, digits)?, digits), digits, scale)
}

/// The natural logarithm of a positive number, in units of 10^-digits.
fn ln_units(value: &Numeric, digits: u32) -> Result<BigInt> {
    let digits = digits + GUARD;
    let near = units_of(value, digits)?;
    if near > ten(digits) * 9 / 10 && near < ten(digits) * 17 / 16 {
        // Its series is short, and as exact as the distance from 1.
        return Ok(ln_mantissa(near, digits) / ten(GUARD));
    }
    let (units, scale) = value.parts().ok_or_else(overflow)?;
    let text = units.magnitude().to_string();
    let exponent = i64::try_from(text.len()).unwrap_or(0) - i64::from(scale) - 1;
    // The mantissa is between 1 and 10.
    let length = u32::try_from(text.len()).map_err(|_| overflow())? - 1;
    let mantissa = if digits >= length { units * ten(digits - length) } else { units / ten(length - digits) };
    let mut found = ln_mantissa(mantissa, digits);
    if exponent != 0 {
        found += ln_mantissa(ten(digits + 1), digits) * exponent;
    }
    Ok(found / ten(GUARD))
}

/// ln of a number from 1 to 10 in units of 10^-digits: roots bring it near 1.
fn ln_mantissa(mut value: BigInt, digits: u32) -> BigInt {
    let unit = ten(digits);
    let mut doublings = 0_u32;
    let limit = &unit + &unit / 16;
    while value > limit {
        value = (value * &unit).sqrt();
        doublings += 1;
    }
    // ln v = 2 (z + z^3 / 3 + z^5 / 5 ..) with z = (v - 1) / (v + 1).
    let ratio = (&value - &unit) * &unit / (&value + &unit);
    let square = &ratio * &ratio / &unit;
    let (mut sum, mut power, mut number) = (ratio.clone(), ratio, 3_u32);
    while power.sign() != Sign::NoSign {
        power = power * &square / &unit;
        sum += &power / number;
        number += 2;
    }
    sum * 2 * (BigInt::from(1) << doublings)
}

/// The place of the first digit of the logarithm.
fn ln_weight(value: &Numeric) -> Result<i64> {
    if value.signum() <= 0 {
        return Ok(0);
    }
    let (low, high): (Numeric, Numeric) = ("0.9".parse()?, "1.1".parse()?);
    if *value >= low && *value <= high {
        let rest = value.minus(&1.into())?;
        if rest.signum() == 0 {
            return Ok(0);
        }
        let (weight, first) = rest.head();
        return Ok(weight * 4 + whole(nearest(first).log10()));
    }
    Ok(whole(ln_f64(value).abs().log10()))
}

fn nearest(value: i64) -> f64 {
    lodestone_width::nearest_f64(value.unsigned_abs())
}

/// A good estimate of the logarithm, also of numbers that no floating-point number is near to.
fn ln_f64(value: &Numeric) -> f64 {
    let Some((units, scale)) = value.parts() else { return 0.0 };
    let text = units.magnitude().to_string();
    let mantissa: f64 = format!("0.{}", &text[..text.len().min(17)]).parse().unwrap_or(0.5);
    let exponent = i64::try_from(text.len()).unwrap_or(0) - i64::from(scale);
    let sign = if exponent < 0 { -1.0 } else { 1.0 };
    mantissa.ln() + sign * nearest(exponent) * std::f64::consts::LN_10
}

fn check_logarithm(value: &Numeric) -> Result<()> {
    let error = |message| Err(Error::new(SqlState::INVALID_ARGUMENT_FOR_LOG, message));
    match value.signum() {
        0 => error("cannot take logarithm of zero"),
        -1 => error("cannot take logarithm of a negative number"),
        _ => Ok(()),
    }
}

/// The natural logarithm.
///
/// # Errors
/// 2201E for a number that is not positive.
pub fn ln(value: &Numeric) -> Result<Numeric> {
    if value.is_nan() {
        return Ok(Numeric::NAN);
    }
    check_logarithm(value)?;
    if !value.is_finite() {
        return Ok(value.clone());
    }
    let scale = (16 - ln_weight(value)?).max(value.scale().into()).clamp(0, RESULT_SCALE_MAX);
    let digits = digits_of(scale) + 8;
    number_of(&ln_units(value, digits)?, digits, scale)
}

/// The logarithm to a base.
///
/// # Errors
/// 2201E; 22012 for the base 1.
pub fn log(base: &Numeric, value: &Numeric) -> Result<Numeric> {
    if base.is_nan() || value.is_nan() {
        return Ok(Numeric::NAN);
    }
    check_logarithm(base)?;
    check_logarithm(value)?;
    match (base.is_finite(), value.is_finite()) {
        (false, false) => return Ok(Numeric::NAN),
        (false, true) => return Ok(Numeric::from(0)),
        (true, false) => return Ok(value.clone()),
        (true, true) => {}
    }
    if *base == Numeric::from(1) {
        return Err(super::by_zero());
    }
    let (base_weight, value_weight) = (ln_weight(base)?, ln_weight(value)?);
    let most = i64::from(base.scale().max(value.scale()));
    let scale = (16 - (value_weight - base_weight)).max(most).clamp(0, RESULT_SCALE_MAX);
    let digits = digits_of(scale + base_weight.abs() + value_weight.abs()) + 8;
    let (one, two) = (ln_units(value, digits)?, ln_units(base, digits)?);
    number_of(&(one * ten(digits) / two), digits, scale)
}

/// The power.
///
/// # Errors
/// 2201F for zero to a negative power, and a negative number to a fraction; 22003.
pub fn power(base: &Numeric, exponent: &Numeric) -> Result<Numeric> {
    let wrong = |message| Err(Error::new(SqlState::INVALID_ARGUMENT_FOR_POWER_FUNCTION, message));
    if let Some(found) = power_special(base, exponent) {
        return found;
    }
    let is_whole = exponent.truncate_to(0)? == *exponent;
    if base.signum() == 0 && exponent.signum() < 0 {
        return wrong("zero raised to a negative power is undefined");
    }
    if base.signum() < 0 && !is_whole {
        return wrong("a negative number raised to a non-integer power yields a complex result");
    }
    if let (true, Ok(count)) = (is_whole, exponent.to_i64())
        && let Ok(count) = i32::try_from(count)
    {
        return power_whole(base, count);
    }
    if base.signum() == 0 {
        return number_of(&BigInt::from(0), 0, 16);
    }
    let positive = base.absolute();
    let weight = ln_weight(&positive)?;
    let size = power_size(&positive, exponent, weight)?;
    if size.is_nan() || size > POWER_DIGITS_MAX {
        return Err(too_long());
    }
    let scale = result_scale(size, &[base.scale(), exponent.scale()]);
    if size < -(nearest(scale) + 2.0) {
        return number_of(&BigInt::from(0), 0, scale);
    }
    let exponent_weight = digits_before_point(exponent);
    let digits = digits_of(scale.saturating_add(whole(size.abs())).saturating_add(weight.abs().max(exponent_weight)));
    let digits = digits.saturating_add(GUARD);
    let product = ln_units(&positive, digits)? * units_of(exponent, digits)? / ten(digits);
    let product = number_of(&product, digits, i64::from(digits))?;
    let found = exp_to(&product, scale, size)?;
    let is_odd = is_whole && exponent.remainder(&2.into())?.signum() != 0;
    Ok(if base.signum() < 0 && is_odd { found.negate() } else { found })
}

/// The logarithm of the power to the base 10, about.
fn power_size(positive: &Numeric, exponent: &Numeric, weight: i64) -> Result<f64> {
    // No floating-point number is near to the logarithm of a base that is nearly 1, or to a long exponent.
    if exponent.to_f64().is_finite() && weight > -10 {
        return Ok(ln_f64(positive) * exponent.to_f64() * LOG10_E);
    }
    let digits = digits_of(weight.abs() + 20);
    let logarithm = number_of(&ln_units(positive, digits)?, digits, i64::from(digits))?;
    Ok(logarithm.multiply(exponent)?.to_f64() * LOG10_E)
}

fn digits_before_point(value: &Numeric) -> i64 {
    let Some((units, scale)) = value.parts() else { return 0 };
    let digits = i64::try_from(units.magnitude().to_string().len()).unwrap_or(i64::MAX);
    (digits - i64::from(scale)).max(0)
}

fn power_special(base: &Numeric, exponent: &Numeric) -> Option<Result<Numeric>> {
    let one = Numeric::from(1);
    if base.is_finite() && exponent.is_finite() {
        return None;
    }
    if *base == one || exponent.is_finite() && exponent.signum() == 0 {
        return Some(Ok(one));
    }
    if base.is_nan() || exponent.is_nan() {
        return Some(Ok(Numeric::NAN));
    }
    let wrong = |message| Err(Error::new(SqlState::INVALID_ARGUMENT_FOR_POWER_FUNCTION, message));
    if exponent.is_finite() {
        let is_whole = exponent.truncate_to(0).ok()? == *exponent;
        let is_odd = is_whole && exponent.remainder(&2.into()).ok()?.signum() != 0;
        if base.signum() < 0 && !is_whole {
            return Some(wrong("a negative number raised to a non-integer power yields a complex result"));
        }
        return Some(Ok(match (exponent.signum() < 0, base.signum() < 0 && is_odd) {
            (true, _) => Numeric::from(0),
            (false, true) => Numeric::NEG_INFINITY,
            (false, false) => Numeric::INFINITY,
        }));
    }
    if base.signum() == 0 && exponent.signum() < 0 {
        return Some(wrong("zero raised to a negative power is undefined"));
    }
    if base.is_finite() && base.absolute() == one {
        return Some(Ok(one));
    }
    let is_small = base.absolute() < one;
    Some(Ok(if is_small == (exponent.signum() < 0) { Numeric::INFINITY } else { Numeric::from(0) }))
}

/// A whole power, with 16 digits after the point, or as many as the base has.
fn power_whole(base: &Numeric, exponent: i32) -> Result<Numeric> {
    let size = if base.signum() == 0 { 0.0 } else { f64::from(exponent) * ln_f64(&base.absolute()) * LOG10_E };
    if size > 131_072.0 {
        return Err(overflow());
    }
    let scale = i64::from(base.scale()).clamp(16, RESULT_SCALE_MAX);
    if size + 1.0 < -16_383.0 {
        return number_of(&BigInt::from(0), 0, RESULT_SCALE_MAX);
    }
    match exponent {
        0 => return number_of(&BigInt::from(1), 0, scale),
        1 => return base.round(u16::try_from(scale).unwrap_or(0)),
        2 => return base.multiply(base)?.round(u16::try_from(scale).unwrap_or(0)),
        _ => {}
    }
    if base.signum() == 0 {
        return number_of(&BigInt::from(0), 0, scale);
    }
    // Digits before the point, and those that the multiplications lose.
    let digits = digits_of(scale + whole(size.abs())) + GUARD;
    if let Some((power, own)) = exact_power(base, exponent.unsigned_abs(), digits) {
        return match exponent < 0 {
            true => number_of(&(ten(digits.saturating_add(own)) / power), digits, scale),
            false => number_of(&power, own, scale),
        };
    }
    let (mut found, mut square, mut rest) = (ten(digits), units_of(base, digits)?, exponent.unsigned_abs());
    if exponent < 0 {
        square = divide_power(base, digits)?;
    }
    while rest > 0 {
        if rest & 1 == 1 {
            found = found * &square / ten(digits);
        }
        rest >>= 1;
        if rest > 0 {
            square = &square * &square / ten(digits);
        }
    }
    number_of(&found, digits, scale)
}

/// The power with all its digits: units, and how many of the digits are after the point. `None`: it has many more than
/// the result, and to round at each step takes less time. Without rounding there is no division, which is what long
/// numbers spend their time in.
fn exact_power(base: &Numeric, exponent: u32, digits: u32) -> Option<(BigInt, u32)> {
    let (units, scale) = base.parts()?;
    let most = u64::from(digits) * 2;
    // A digit is about ten thirds of a bit.
    let length = units.bits().checked_mul(exponent.into())? / 10 * 3;
    let scale = u32::from(scale).checked_mul(exponent)?;
    (length <= most && u64::from(scale) <= most).then(|| (units.pow(exponent), scale))
}

/// 1 / base in units of 10^-digits.
fn divide_power(base: &Numeric, digits: u32) -> Result<BigInt> {
    let (units, scale) = base.parts().ok_or_else(overflow)?;
    Ok(ten(digits + u32::from(scale)) / units)
}

/// The product of the whole numbers up to it.
///
/// # Errors
/// 22003.
pub fn factorial(number: i64) -> Result<Numeric> {
    let out = |message| Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message);
    if number < 0 {
        return Err(out("factorial of a negative number is undefined"));
    }
    // Beyond that it has too many digits.
    if number > 32_177 {
        return Err(out("value overflows numeric format"));
    }
    let product = (2..=number).fold(BigInt::from(1), |product, factor| product * factor);
    Numeric::of_units(product, 0)
}

#[cfg(test)]
mod tests {
    use num_bigint::BigInt;

    use super::{GUARD, exact_power, power};
    use crate::numeric::Numeric;

    #[test]
    fn a_power_is_exact_where_it_has_no_more_digits_than_the_result() {
        let number = |text: &str| text.parse::<Numeric>().expect("a number");
        let (units, scale) = exact_power(&number("10"), 131_071, 131_071 + 16 + GUARD).expect("few digits");
        assert_eq!((units, scale), (BigInt::from(10).pow(131_071), 0));
        assert_eq!(exact_power(&number("1.5"), 20, 60), Some((BigInt::from(15).pow(20), 20)));
        assert_eq!(exact_power(&number("1.000000000123"), 2_147_483, 60), None);
        assert_eq!(exact_power(&number("0.00001"), u32::MAX, 16_400), None);
        for (base, exponent, expected) in [
            ("1.5", "-20", "0.0003007286598217"),
            ("-3", "-3", "-0.0370370370370370"),
            ("-0.5", "5", "-0.0312500000000000"),
            ("2", "100", "1267650600228229401496703205376.0000000000000000"),
        ] {
            let found = power(&number(base), &number(exponent)).expect("a power");
            assert_eq!(found.to_string(), expected, "{base} ^ {exponent}");
        }
    }
}
