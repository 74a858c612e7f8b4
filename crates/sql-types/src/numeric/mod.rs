//! Exact decimal numbers, as long as `PostgreSQL`'s: up to 131,072 digits before the point and 16,383 after it, and NaN
//! and the infinities around them.
//!
//! A number of up to 38 digits is an integer of 128 bits and the place of its point. Longer ones are integers of any
//! length. The number of digits after the point follows `PostgreSQL`'s rules: the larger one for a sum, both together
//! for a product, at least 16 significant digits for a quotient.

mod math;

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use num_bigint::{BigInt, Sign};

use crate::error::{Error, Result, SqlState};

pub use math::{deviation, exp, factorial, ln, log, power, square_root};

/// Most digits of a number that is kept as an integer of 128 bits.
pub const DIGITS_MAX: u32 = 38;
/// Most digits after the point, and before it.
pub(crate) const SCALE_MAX: u16 = 16_383;
pub(crate) const WHOLE_MAX: usize = 131_072;
/// Most digits that a computation adds after the point.
const RESULT_SCALE_MAX: i64 = 1_000;

/// A decimal number.
///
/// ```
/// use lodestone_sql_types::Numeric;
///
/// let (one, three): (Numeric, Numeric) = ("1".parse()?, "3".parse()?);
/// assert_eq!(one.divide(&three)?.to_string(), "0.33333333333333333333");
/// assert_eq!("1.50".parse::<Numeric>()?.plus(&one)?.to_string(), "2.50");
/// # Ok::<(), lodestone_sql_types::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Numeric(Repr);

#[derive(Clone, Debug)]
enum Repr {
    /// Units of the last of `scale` digits after the point: fewer than 39 digits.
    Small {
        units: i128,
        scale: u16,
    },
    Big(Arc<(BigInt, u16)>),
    Infinite {
        is_negative: bool,
    },
    NotANumber,
}

pub(crate) fn overflow() -> Error {
    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format")
}

fn by_zero() -> Error {
    Error::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}

fn ten(exponent: u32) -> BigInt {
    BigInt::from(10).pow(exponent)
}

fn is_small(units: i128) -> bool {
    units.unsigned_abs() < 10_u128.pow(DIGITS_MAX)
}

/// Whether the number has at most so many digits. Only a number near the limit is compared with it.
fn has_digits_at_most(units: &BigInt, most: usize) -> bool {
    let most = u64::try_from(most).unwrap_or(u64::MAX);
    // The logarithm of 2 is between 0.30102 and 0.30103.
    let bits = units.bits();
    if bits.saturating_mul(30_103) / 100_000 < most {
        return true;
    }
    if bits.saturating_sub(1).saturating_mul(30_102) / 100_000 >= most {
        return false;
    }
    u32::try_from(most).is_ok_and(|most| units.magnitude() < ten(most).magnitude())
}

/// Rounds the quotient away from zero at the half.
fn divide_rounded(units: &BigInt, divisor: &BigInt) -> BigInt {
    let (quotient, rest) = (units / divisor, units % divisor);
    let twice: BigInt = &rest * 2;
    if twice.magnitude() < divisor.magnitude() {
        return quotient;
    }
    let is_negative = (units.sign() == Sign::Minus) != (divisor.sign() == Sign::Minus);
    quotient + if is_negative { -1 } else { 1 }
}

impl Numeric {
    /// Not a number: equal to itself, and above all others.
    pub const NAN: Self = Self(Repr::NotANumber);
    /// Above all numbers.
    pub const INFINITY: Self = Self(Repr::Infinite { is_negative: false });
    /// Below all numbers.
    pub const NEG_INFINITY: Self = Self(Repr::Infinite { is_negative: true });

    /// So many units of the last of `scale` digits after the point.
    ///
    /// # Errors
    /// 22003.
    pub fn new(units: i128, scale: u8) -> Result<Self> {
        Ok(if is_small(units) {
            Self(Repr::Small { units, scale: scale.into() })
        } else {
            Self::of_units(units.into(), scale.into())?
        })
    }

    /// The same of any length.
    fn of_units(units: BigInt, scale: u16) -> Result<Self> {
        if scale > SCALE_MAX {
            return Err(overflow());
        }
        if let Ok(small) = i128::try_from(&units)
            && is_small(small)
        {
            return Ok(Self(Repr::Small { units: small, scale }));
        }
        if !has_digits_at_most(&units, WHOLE_MAX + usize::from(scale)) {
            return Err(overflow());
        }
        Ok(Self(Repr::Big(Arc::new((units, scale)))))
    }

    /// Units and scale as integers of any length; `None` for NaN and the infinities.
    fn parts(&self) -> Option<(BigInt, u16)> {
        match &self.0 {
            Repr::Small { units, scale } => Some(((*units).into(), *scale)),
            Repr::Big(big) => Some((big.0.clone(), big.1)),
            _ => None,
        }
    }

    /// Units of the last digit and the digits after the point, if it has at most 38 digits.
    #[must_use]
    pub fn small(&self) -> Option<(i128, u16)> {
        if let Repr::Small { units, scale } = &self.0 { Some((*units, *scale)) } else { None }
    }

    /// Digits after the point.
    #[must_use]
    pub fn scale(&self) -> u16 {
        match &self.0 {
            Repr::Small { scale, .. } => *scale,
            Repr::Big(big) => big.1,
            _ => 0,
        }
    }

    /// Whether it is a number.
    #[must_use]
    pub fn is_finite(&self) -> bool {
        matches!(self.0, Repr::Small { .. } | Repr::Big(_))
    }

    /// Whether it is not a number.
    #[must_use]
    pub fn is_nan(&self) -> bool {
        matches!(self.0, Repr::NotANumber)
    }

    /// -1, 0 or 1; 1 for NaN.
    #[must_use]
    pub fn signum(&self) -> i32 {
        match &self.0 {
            Repr::Small { units, .. } => match units.cmp(&0) {
                Ordering::Less => -1,
                Ordering::Equal => 0,
                Ordering::Greater => 1,
            },
            Repr::Big(big) if big.0.sign() == Sign::Minus => -1,
            Repr::Infinite { is_negative: true } => -1,
            _ => 1,
        }
    }

    /// The number with `scale` digits after the point, rounded away from zero at the half.
    ///
    /// # Errors
    /// 22003.
    pub fn round(&self, scale: u16) -> Result<Self> {
        self.round_to(scale.into())
    }

    /// As [`round`](Self::round); a negative scale rounds digits before the point.
    ///
    /// # Errors
    /// 22003.
    pub fn round_to(&self, scale: i32) -> Result<Self> {
        if let Repr::Small { units, scale: own } = self.0
            && scale == i32::from(own)
        {
            return Ok(Self(Repr::Small { units, scale: own }));
        }
        self.rescale(scale, divide_rounded)
    }

    /// The number without the digits after those.
    ///
    /// # Errors
    /// 22003.
    pub fn truncate_to(&self, scale: i32) -> Result<Self> {
        self.rescale(scale, |units, divisor| units / divisor)
    }

    fn rescale(&self, scale: i32, divide: fn(&BigInt, &BigInt) -> BigInt) -> Result<Self> {
        let Some((units, own)) = self.parts() else { return Ok(self.clone()) };
        let shown = u16::try_from(scale.clamp(0, i32::from(SCALE_MAX))).unwrap_or(0);
        // One digit more than a number has: all of it is below the half.
        let scale = scale.clamp(-i32::try_from(WHOLE_MAX).unwrap_or(0) - 1, SCALE_MAX.into());
        let distance = scale - i32::from(own);
        if distance >= 0 {
            return Self::of_units(units * ten(distance.unsigned_abs()), shown);
        }
        let found = divide(&units, &ten(distance.unsigned_abs()));
        // Digits before the point were rounded: they are zeros now.
        let found = if scale < 0 { found * ten(scale.unsigned_abs()) } else { found };
        Self::of_units(found, shown)
    }

    /// The largest whole number that is not above it.
    ///
    /// # Errors
    /// 22003.
    pub fn floor(&self) -> Result<Self> {
        let whole = self.truncate_to(0)?;
        if self.signum() < 0 && whole != *self { whole.minus(&1.into()) } else { Ok(whole) }
    }

    /// The sum or product with NaN or an infinity; `None` for numbers.
    fn special(one: &Self, two: &Self, infinite: impl Fn(i32, i32) -> Option<i32>) -> Option<Self> {
        if one.is_finite() && two.is_finite() {
            return None;
        }
        if one.is_nan() || two.is_nan() {
            return Some(Self::NAN);
        }
        let sign = |number: &Self| if number.is_finite() { 0 } else { number.signum() };
        Some(match infinite(sign(one), sign(two)) {
            None => Self::NAN,
            Some(sign) => Self(Repr::Infinite { is_negative: sign < 0 }),
        })
    }

    /// The sum.
    ///
    /// # Errors
    /// 22003.
    pub fn plus(&self, other: &Self) -> Result<Self> {
        if let (Repr::Small { units: one, scale }, Repr::Small { units: two, scale: second }) = (&self.0, &other.0)
            && scale == second
        {
            return Self::of_sum(one + two, *scale);
        }
        let infinite = |one: i32, two: i32| if one * two < 0 { None } else { Some(one + two) };
        if let Some(found) = Self::special(self, other, infinite) {
            return Ok(found);
        }
        let (one, two, scale) = self.aligned(other).ok_or_else(overflow)?;
        Self::of_units(one + two, scale)
    }

    fn of_sum(units: i128, scale: u16) -> Result<Self> {
        if is_small(units) { Ok(Self(Repr::Small { units, scale })) } else { Self::of_units(units.into(), scale) }
    }

    fn aligned(&self, other: &Self) -> Option<(BigInt, BigInt, u16)> {
        let ((one, first), (two, second)) = (self.parts()?, other.parts()?);
        let scale = first.max(second);
        Some((one * ten((scale - first).into()), two * ten((scale - second).into()), scale))
    }

    /// The difference.
    ///
    /// # Errors
    /// 22003.
    pub fn minus(&self, other: &Self) -> Result<Self> {
        self.plus(&other.negate())
    }

    /// With the other sign.
    #[must_use]
    pub fn negate(&self) -> Self {
        Self(match &self.0 {
            Repr::Small { units, scale } => Repr::Small { units: -units, scale: *scale },
            Repr::Big(big) => Repr::Big(Arc::new((-&big.0, big.1))),
            Repr::Infinite { is_negative } => Repr::Infinite { is_negative: !is_negative },
            Repr::NotANumber => Repr::NotANumber,
        })
    }

    /// Without its sign.
    #[must_use]
    pub fn absolute(&self) -> Self {
        if self.signum() < 0 { self.negate() } else { self.clone() }
    }

    /// The product.
    ///
    /// # Errors
    /// 22003.
    pub fn multiply(&self, other: &Self) -> Result<Self> {
        if let (Repr::Small { units: one, scale: first }, Repr::Small { units: two, scale: second }) =
            (&self.0, &other.0)
            && first + second <= SCALE_MAX
            && let Some(found) = one.checked_mul(*two).filter(|found| is_small(*found))
        {
            return Ok(Self(Repr::Small { units: found, scale: first + second }));
        }
        let signs = (self.signum(), other.signum());
        let infinite = |_, _| if signs.0 * signs.1 == 0 { None } else { Some(signs.0 * signs.1) };
        if let Some(found) = Self::special(self, other, infinite) {
            return Ok(found);
        }
        let (Some((one, first)), Some((two, second))) = (self.parts(), other.parts()) else { return Err(overflow()) };
        let scale = first.saturating_add(second);
        let found = Self(Repr::Big(Arc::new((one * two, scale))));
        if scale > SCALE_MAX { found.round(SCALE_MAX) } else { found.round_to(scale.into()) }
    }

    /// Weight and value of the first digit to the base 10,000.
    fn head(&self) -> (i64, i64) {
        let Some((units, scale)) = self.parts() else { return (0, 0) };
        if units.sign() == Sign::NoSign {
            return (0, 0);
        }
        let digits = units.magnitude().to_string();
        let exponent = i64::try_from(digits.len()).unwrap_or(0) - i64::from(scale) - 1;
        let count = usize::try_from(exponent.rem_euclid(4) + 1).unwrap_or(1);
        let first = format!("{digits:0<count$}")[..count].parse().unwrap_or(0);
        (exponent.div_euclid(4), first)
    }

    /// The quotient, with the number of digits that `PostgreSQL` chooses.
    ///
    /// # Errors
    /// 22012; 22003.
    pub fn divide(&self, other: &Self) -> Result<Self> {
        if let Some(found) = self.divide_special(other) {
            return found;
        }
        let ((weight, first), (weight_other, first_other)) = (self.head(), other.head());
        let weight = weight - weight_other - i64::from(first <= first_other);
        let scale = (16 - weight * 4).max(self.scale().into()).max(other.scale().into()).clamp(0, RESULT_SCALE_MAX);
        self.divide_to(other, scale, divide_rounded)
    }

    /// The whole part of the quotient.
    ///
    /// # Errors
    /// 22012; 22003.
    pub fn divide_whole(&self, other: &Self) -> Result<Self> {
        if let Some(found) = self.divide_special(other) {
            return found;
        }
        self.divide_to(other, 0, |units, divisor| units / divisor)
    }

    fn divide_special(&self, other: &Self) -> Option<Result<Self>> {
        if self.is_nan() || other.is_nan() {
            return Some(Ok(Self::NAN));
        }
        match (self.is_finite(), other.is_finite()) {
            (true, true) => (other.signum() == 0).then(|| Err(by_zero())),
            (false, false) => Some(Ok(Self::NAN)),
            (false, true) if other.signum() == 0 => Some(Err(by_zero())),
            (false, true) => Some(Ok(if other.signum() < 0 { self.negate() } else { self.clone() })),
            (true, false) => Some(Ok(Self::from(0))),
        }
    }

    fn divide_to(&self, other: &Self, scale: i64, divide: fn(&BigInt, &BigInt) -> BigInt) -> Result<Self> {
        let (Some((one, first)), Some((two, second))) = (self.parts(), other.parts()) else { return Err(overflow()) };
        let distance = scale + i64::from(second) - i64::from(first);
        let power = ten(u32::try_from(distance.unsigned_abs()).map_err(|_| overflow())?);
        let (one, two) = if distance >= 0 { (one * power, two) } else { (one, two * power) };
        Self::of_units(divide(&one, &two), u16::try_from(scale).map_err(|_| overflow())?)
    }

    /// The rest of the division, with the sign of the first.
    ///
    /// # Errors
    /// 22012; 22003.
    pub fn remainder(&self, other: &Self) -> Result<Self> {
        if self.is_nan() || other.is_nan() {
            return Ok(Self::NAN);
        }
        if other.signum() == 0 {
            return Err(by_zero());
        }
        match (self.is_finite(), other.is_finite()) {
            (false, _) => return Ok(Self::NAN),
            (true, false) => return Ok(self.clone()),
            (true, true) => {}
        }
        let (one, two, scale) = self.aligned(other).ok_or_else(overflow)?;
        Self::of_units(one % two, scale)
    }

    /// The nearest integer.
    ///
    /// # Errors
    /// 22003 beyond 64 bits; 0A000 for NaN and the infinities.
    pub fn to_i64(&self) -> Result<i64> {
        let out = || Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "bigint out of range");
        match self.round(0)?.parts() {
            Some((units, _)) => i64::try_from(units).map_err(|_| out()),
            None => {
                let what = if self.is_nan() { "NaN" } else { "infinity" };
                Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, format!("cannot convert {what} to bigint")))
            }
        }
    }

    /// The nearest floating-point number.
    #[must_use]
    pub fn to_f64(&self) -> f64 {
        // The text of a decimal number is always that of a floating-point number.
        self.to_string().parse().unwrap_or(f64::NAN)
    }

    /// The number that `value` prints as.
    ///
    /// # Errors
    /// 22003.
    pub fn of_f64(value: f64) -> Result<Self> {
        // 15 significant digits, as PostgreSQL.
        Self::of_real(value, 15)
    }

    /// As [`of_f64`](Self::of_f64), for a number that was one of 32 bits: 6 significant digits.
    ///
    /// # Errors
    /// 22003.
    pub fn of_f32(value: f64) -> Result<Self> {
        Self::of_real(value, 6)
    }

    fn of_real(value: f64, digits: usize) -> Result<Self> {
        if value.is_nan() {
            return Ok(Self::NAN);
        }
        if value.is_infinite() {
            return Ok(if value > 0.0 { Self::INFINITY } else { Self::NEG_INFINITY });
        }
        let text = format!("{value:.*e}", digits - 1);
        text.parse::<Self>().map(|found| found.trimmed())
    }

    /// Without zeros at the end of the digits after the point.
    #[must_use]
    pub fn trimmed(&self) -> Self {
        match &self.0 {
            Repr::Small { units, scale } => {
                let (mut units, mut scale) = (*units, *scale);
                while scale > 0 && units % 10 == 0 {
                    (units, scale) = (units / 10, scale - 1);
                }
                Self(Repr::Small { units, scale })
            }
            Repr::Big(big) => {
                let digits = big.0.magnitude().to_string();
                let zeros = digits.len() - digits.trim_end_matches('0').len();
                let scale = usize::from(big.1).saturating_sub(zeros);
                self.round(u16::try_from(scale).unwrap_or(0)).unwrap_or_else(|_| self.clone())
            }
            _ => self.clone(),
        }
    }

    /// Verifies that it has at most `precision` digits, after rounding to `scale` of them after the point.
    ///
    /// # Errors
    /// 22003.
    pub fn fit(&self, precision: u32, scale: i32) -> Result<Self> {
        let field = |detail| Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow").detail(detail);
        let shape = format!("A field with precision {precision}, scale {scale}");
        if self.is_nan() {
            return Ok(self.clone());
        }
        let Some((units, own)) = self.round_to(scale)?.parts() else {
            return Err(field(format!("{shape} cannot hold an infinite value.")));
        };
        let whole = i64::from(precision) - i64::from(scale);
        let limit = ten(u32::try_from((whole + i64::from(own)).max(0)).unwrap_or(0));
        if units.magnitude() < limit.magnitude() {
            return Self::of_units(units, own);
        }
        let most = if whole == 0 { "1".into() } else { format!("10^{whole}") };
        Err(field(format!("{shape} must round to an absolute value less than {most}.")))
    }
}

impl From<i64> for Numeric {
    fn from(value: i64) -> Self {
        Self(Repr::Small { units: value.into(), scale: 0 })
    }
}

impl PartialEq for Numeric {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Numeric {}

impl PartialOrd for Numeric {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Numeric {
    fn cmp(&self, other: &Self) -> Ordering {
        if let (Repr::Small { units: one, scale }, Repr::Small { units: two, scale: second }) = (&self.0, &other.0)
            && scale == second
        {
            return one.cmp(two);
        }
        match self.aligned(other) {
            Some((one, two, _)) => one.cmp(&two),
            None => {
                let rank = |number: &Self| match number.0 {
                    Repr::Infinite { is_negative: true } => 0,
                    Repr::Small { .. } | Repr::Big(_) => 1,
                    Repr::Infinite { is_negative: false } => 2,
                    Repr::NotANumber => 3,
                };
                rank(self).cmp(&rank(other))
            }
        }
    }
}

impl fmt::Display for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (is_negative, digits, scale) = match &self.0 {
            Repr::Small { units, scale } => (*units < 0, units.unsigned_abs().to_string(), usize::from(*scale)),
            Repr::Big(big) => (big.0.sign() == Sign::Minus, big.0.magnitude().to_string(), usize::from(big.1)),
            Repr::Infinite { is_negative } => return f.write_str(if *is_negative { "-Infinity" } else { "Infinity" }),
            Repr::NotANumber => return f.write_str("NaN"),
        };
        let sign = if is_negative { "-" } else { "" };
        if scale == 0 {
            return write!(f, "{sign}{digits}");
        }
        let digits = format!("{digits:0>width$}", width = scale + 1);
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        write!(f, "{sign}{whole}.{fraction}")
    }
}

impl std::str::FromStr for Numeric {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            let message = format!("invalid input syntax for type numeric: \"{text}\"");
            Error::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
        };
        let trimmed = text.trim_matches(crate::text::is_space);
        match trimmed.to_ascii_lowercase().as_str() {
            "nan" => return Ok(Self::NAN),
            "infinity" | "+infinity" | "inf" | "+inf" => return Ok(Self::INFINITY),
            "-infinity" | "-inf" => return Ok(Self::NEG_INFINITY),
            _ => {}
        }
        let (mantissa, exponent) = match trimmed.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent_of(exponent).ok_or_else(bad)?),
            None => (trimmed, 0),
        };
        let (is_negative, digits) = match mantissa.as_bytes().first() {
            Some(b'-') => (true, &mantissa[1..]),
            Some(b'+') => (false, &mantissa[1..]),
            _ => (false, mantissa),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.len() + fraction.len() == 0 || !are_digits(whole) || !are_digits(fraction) {
            return Err(bad());
        }
        let limit = WHOLE_MAX + usize::from(SCALE_MAX);
        if whole.len() + fraction.len() > limit || exponent.unsigned_abs() > lodestone_width::to_u64(limit) {
            return Err(overflow());
        }
        let units = format!("{whole}{fraction}").parse::<BigInt>().map_err(|_| bad())?;
        let units = if is_negative { -units } else { units };
        let scale = i64::try_from(fraction.len()).map_err(|_| overflow())? - exponent;
        let distance = u32::try_from(scale.unsigned_abs()).map_err(|_| overflow())?;
        if scale < 0 {
            return Self::of_units(units * ten(distance), 0);
        }
        match u16::try_from(scale) {
            Ok(scale) => Self::of_units(units, scale),
            Err(_) => Err(overflow()),
        }
    }
}

fn exponent_of(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    // One that is too long is beyond every limit.
    is_number.then(|| text.parse().unwrap_or(if text.starts_with('-') { i64::from(i32::MIN) } else { i32::MAX.into() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Numeric {
        text.parse().expect(text)
    }

    #[test]
    fn a_product_has_no_more_digits_after_the_point_than_a_number_may() {
        let small = number(&format!("0.{}1", "0".repeat(usize::from(SCALE_MAX) - 1)));
        let mut product = small.clone();
        for _ in 0..6 {
            product = product.multiply(&small).expect("it is rounded");
            assert_eq!((product.scale(), product.signum()), (SCALE_MAX, 0));
        }
        let large = number("1e-9000").multiply(&number("3e-7383")).expect("as long as it may be");
        assert_eq!((large.scale(), large.signum()), (SCALE_MAX, 1));
    }

    #[test]
    fn every_number_that_is_made_can_be_read() {
        let nines = |count: usize| "9".repeat(count);
        let most = number(&format!("{}.{}", nines(WHOLE_MAX), nines(usize::from(SCALE_MAX))));
        let read = number(&most.to_string());
        assert!(most == read && most.scale() == read.scale());
        let whole = number(&nines(WHOLE_MAX));
        assert!(whole.plus(&1.into()).is_err());
        assert!(whole.negate().minus(&1.into()).is_err());
        assert!(whole.plus(&whole).is_err());
        assert!(number("1e131071").multiply(&10.into()).is_err());
        assert!(number("1e131070").multiply(&10.into()).is_ok());
    }
}
