//! Exact decimal numbers: 38 digits, and how many of them are after the point.
//!
//! `PostgreSQL` has up to 131,072 digits. A result beyond 38 digits is an error (22003), never a rounded number. The
//! number of digits after the point follows `PostgreSQL`'s rules: the larger one for a sum, both together for a
//! product, at least 16 significant digits for a quotient.

use std::cmp::Ordering;
use std::fmt;

use crate::error::{Error, Result, SqlState};

/// Most digits of a number.
pub const DIGITS_MAX: u32 = 38;

/// A decimal number: `units` of the last digit.
///
/// ```
/// use lodestone_sql_types::Numeric;
///
/// let (one, three): (Numeric, Numeric) = ("1".parse()?, "3".parse()?);
/// assert_eq!(one.divide(three)?.to_string(), "0.33333333333333333333");
/// assert_eq!("1.50".parse::<Numeric>()?.plus(one)?.to_string(), "2.50");
/// # Ok::<(), lodestone_sql_types::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Numeric {
    units: i128,
    scale: u8,
}

fn overflow() -> Error {
    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format")
        .detail(format!("Lodestone keeps at most {DIGITS_MAX} digits."))
}

fn power(exponent: u32) -> Result<i128> {
    10_i128.checked_pow(exponent).ok_or_else(overflow)
}

impl Numeric {
    /// So many units of the last of `scale` digits after the point.
    ///
    /// # Errors
    /// 22003 beyond 38 digits.
    pub fn new(units: i128, scale: u8) -> Result<Self> {
        let fits = u32::from(scale) <= DIGITS_MAX && units.unsigned_abs() < 10_u128.pow(DIGITS_MAX);
        if fits { Ok(Self { units, scale }) } else { Err(overflow()) }
    }

    /// Units of the last digit.
    #[must_use]
    pub fn units(self) -> i128 {
        self.units
    }

    /// Digits after the point.
    #[must_use]
    pub fn scale(self) -> u8 {
        self.scale
    }

    /// The number with `scale` digits after the point, rounded away from zero at the half.
    ///
    /// # Errors
    /// 22003.
    pub fn round(self, scale: u8) -> Result<Self> {
        if scale >= self.scale {
            let units = self.units.checked_mul(power(u32::from(scale - self.scale))?).ok_or_else(overflow)?;
            return Self::new(units, scale);
        }
        let unit = power(u32::from(self.scale - scale))?;
        let (quotient, rest) = (self.units / unit, self.units % unit);
        let up = i128::from(rest.abs() * 2 >= unit) * self.units.signum();
        Self::new(quotient + up, scale)
    }

    fn aligned(self, other: Self) -> Result<(i128, i128, u8)> {
        let scale = self.scale.max(other.scale);
        Ok((self.round(scale)?.units, other.round(scale)?.units, scale))
    }

    /// The sum.
    ///
    /// # Errors
    /// 22003.
    pub fn plus(self, other: Self) -> Result<Self> {
        let (one, two, scale) = self.aligned(other)?;
        Self::new(one + two, scale)
    }

    /// The difference.
    ///
    /// # Errors
    /// 22003.
    pub fn minus(self, other: Self) -> Result<Self> {
        self.plus(other.negate())
    }

    /// With the other sign.
    #[must_use]
    pub fn negate(self) -> Self {
        Self { units: -self.units, ..self }
    }

    /// The product.
    ///
    /// # Errors
    /// 22003.
    pub fn multiply(self, other: Self) -> Result<Self> {
        let scale = self.scale.checked_add(other.scale).ok_or_else(overflow)?;
        Self::new(self.units.checked_mul(other.units).ok_or_else(overflow)?, scale)
    }

    /// Weight and value of the first digit to the base 10,000.
    fn head(self) -> (i32, i128) {
        let mut units = self.units.abs();
        let padding = (4 - u32::from(self.scale) % 4) % 4;
        let mut weight = -i32::from(self.scale.div_ceil(4));
        let first = i128::from(10_u32.pow(4 - padding));
        if padding > 0 && units >= first {
            units /= first;
            weight += 1;
        } else if padding > 0 {
            return (weight, units * i128::from(10_u32.pow(padding)));
        }
        while units >= 10_000 {
            units /= 10_000;
            weight += 1;
        }
        (if units == 0 { 0 } else { weight }, units)
    }

    /// The quotient, with the number of digits that `PostgreSQL` chooses.
    ///
    /// # Errors
    /// 22012; 22003.
    pub fn divide(self, other: Self) -> Result<Self> {
        if other.units == 0 {
            return Err(Error::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
        }
        let ((weight, first), (weight_other, first_other)) = (self.head(), other.head());
        let weight = weight - weight_other - i32::from(first <= first_other);
        let scale = (16 - weight * 4).max(self.scale.into()).max(other.scale.into()).max(0);
        let scale = u8::try_from(scale).ok().filter(|scale| u32::from(*scale) <= DIGITS_MAX).ok_or_else(overflow)?;
        self.divide_to(other, scale)
    }

    fn divide_to(self, other: Self, scale: u8) -> Result<Self> {
        let (mut rest, divisor) = (self.units.unsigned_abs(), other.units.unsigned_abs());
        let mut quotient = rest / divisor;
        rest %= divisor;
        // The quotient of the units has as many digits after the point as the scales differ.
        let digits = i32::from(scale) + i32::from(other.scale) - i32::from(self.scale);
        for _ in 0..digits {
            rest = rest.checked_mul(10).ok_or_else(overflow)?;
            quotient =
                quotient.checked_mul(10).and_then(|found| found.checked_add(rest / divisor)).ok_or_else(overflow)?;
            rest %= divisor;
        }
        if digits < 0 {
            let unit = 10_u128.checked_pow(digits.unsigned_abs()).ok_or_else(overflow)?;
            let up = quotient % unit * 2 >= unit;
            quotient = quotient / unit + u128::from(up);
        } else if rest >= divisor - rest {
            quotient += 1;
        }
        let units = i128::try_from(quotient).map_err(|_| overflow())?;
        Self::new(units * self.units.signum() * other.units.signum(), scale)
    }

    /// The rest of the division, with the sign of the first.
    ///
    /// # Errors
    /// 22012; 22003.
    pub fn remainder(self, other: Self) -> Result<Self> {
        let (one, two, scale) = self.aligned(other)?;
        if two == 0 {
            return Err(Error::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
        }
        Self::new(one % two, scale)
    }

    /// The nearest integer.
    ///
    /// # Errors
    /// 22003 beyond 64 bits.
    pub fn to_i64(self) -> Result<i64> {
        let out = |_| Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "bigint out of range");
        i64::try_from(self.round(0)?.units).map_err(out)
    }

    /// The nearest floating-point number.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        // The text of a decimal number is always that of a floating-point number.
        self.to_string().parse().unwrap_or(f64::NAN)
    }

    /// The number that `value` prints as.
    ///
    /// # Errors
    /// 22003; 0A000 for NaN and infinities.
    pub fn of_f64(value: f64) -> Result<Self> {
        if !value.is_finite() {
            return Err(Error::unsupported("a numeric NaN or infinity"));
        }
        // 15 significant digits, as PostgreSQL.
        let text = format!("{value:.14e}");
        text.parse::<Self>().map(Self::trimmed)
    }

    /// Without zeros at the end of the digits after the point.
    #[must_use]
    pub fn trimmed(mut self) -> Self {
        while self.scale > 0 && self.units % 10 == 0 {
            self.units /= 10;
            self.scale -= 1;
        }
        self
    }

    /// Verifies that it has at most `precision` digits, after rounding to `scale` of them after the point.
    ///
    /// # Errors
    /// 22003.
    pub fn fit(self, precision: u32, scale: u8) -> Result<Self> {
        let rounded = self.round(scale)?;
        let limit = power(precision)?;
        if rounded.units.abs() < limit {
            return Ok(rounded);
        }
        let whole = precision - u32::from(scale);
        let detail = format!(
            "A field with precision {precision}, scale {scale} must round to an absolute value less than {}.",
            if whole == 0 { "1".into() } else { format!("10^{whole}") }
        );
        Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow").detail(detail))
    }
}

impl From<i64> for Numeric {
    fn from(value: i64) -> Self {
        Self { units: value.into(), scale: 0 }
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
        let (one, two) = (self.trimmed(), other.trimmed());
        let whole = |number: Self| number.units / 10_i128.pow(number.scale.into());
        let fraction = |number: Self| {
            let unit = 10_i128.pow(number.scale.into());
            // Both have fewer than 39 digits after the point, so neither product exceeds 10^38.
            (number.units % unit) * 10_i128.pow(DIGITS_MAX - u32::from(number.scale))
        };
        whole(one).cmp(&whole(two)).then_with(|| fraction(one).cmp(&fraction(two)))
    }
}

impl fmt::Display for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, digits) = (if self.units < 0 { "-" } else { "" }, self.units.unsigned_abs());
        if self.scale == 0 {
            return write!(f, "{sign}{digits}");
        }
        let scale = usize::from(self.scale);
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
        let trimmed = text.trim();
        if matches!(trimmed.to_ascii_lowercase().as_str(), "nan" | "infinity" | "-infinity" | "inf" | "-inf") {
            return Err(Error::unsupported("a numeric NaN or infinity"));
        }
        let (mantissa, exponent) = match trimmed.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().map_err(|_| bad())?),
            None => (trimmed, 0),
        };
        let (sign, digits) = match mantissa.as_bytes().first() {
            Some(b'-') => (-1, &mantissa[1..]),
            Some(b'+') => (1, &mantissa[1..]),
            _ => (1, mantissa),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.len() + fraction.len() == 0 || !are_digits(whole) || !are_digits(fraction) {
            return Err(bad());
        }
        let all = format!("{whole}{fraction}");
        let all = all.trim_start_matches('0');
        if all.len() > usize::try_from(DIGITS_MAX).unwrap_or(0) {
            return Err(overflow());
        }
        let units: i128 = if all.is_empty() { 0 } else { all.parse().map_err(|_| bad())? };
        let scale =
            i32::try_from(fraction.len()).map_err(|_| overflow())?.checked_sub(exponent).ok_or_else(overflow)?;
        if scale < 0 {
            let units = units.checked_mul(power(scale.unsigned_abs())?).ok_or_else(overflow)?;
            return Self::new(units * sign, 0);
        }
        Self::new(units * sign, u8::try_from(scale).map_err(|_| overflow())?)
    }
}
