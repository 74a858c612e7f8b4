//! Decimal numbers: 128 bits of units, and how many digits of them are after the point.

use std::fmt;
use std::str::FromStr;

/// Most digits after the point: as many as 128 bits have for sure.
pub const SCALE_MAX: u8 = 38;

/// A decimal number with `SCALE` digits after the point, at most 38. Two of the same scale have the order of numbers.
///
/// ```
/// use lodestone_engine::Decimal;
///
/// let price: Decimal<2> = "12.5".parse()?;
/// assert_eq!((price.units(), price.to_string().as_str()), (1250, "12.50"));
/// assert!(price > Decimal::from_units(-1));
/// assert!("0.125".parse::<Decimal<2>>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Decimal<const SCALE: u8> {
    units: i128,
}

impl<const SCALE: u8> Decimal<SCALE> {
    /// So many units of the last digit: 1250 of scale 2 are 12.50.
    #[must_use]
    pub const fn from_units(units: i128) -> Self {
        const { assert!(SCALE <= SCALE_MAX, "a decimal has at most 38 digits after the point") };
        Self { units }
    }

    /// How many units of the last digit it is.
    #[must_use]
    pub const fn units(self) -> i128 {
        self.units
    }
}

impl<const SCALE: u8> fmt::Display for Decimal<SCALE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text(self.units, SCALE))
    }
}

/// Reads a sign, digits, and at most as many digits after a point as the scale says.
impl<const SCALE: u8> FromStr for Decimal<SCALE> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!("`{text}` is no decimal number of scale {SCALE}; write digits, and at most {SCALE} after a point")
        };
        parse(text, SCALE).map(Self::from_units).ok_or_else(bad)
    }
}

/// The text of `units` of `scale`.
pub fn text(units: i128, scale: u8) -> String {
    let (sign, digits) = (if units < 0 { "-" } else { "" }, units.unsigned_abs());
    if scale == 0 {
        return format!("{sign}{digits}");
    }
    let scale = usize::from(scale);
    let digits = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    format!("{sign}{whole}.{fraction}")
}

/// The units of `scale` that `text` says.
pub fn parse(text: &str, scale: u8) -> Option<i128> {
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |digits| ("-", digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !are_digits(whole) || !are_digits(fraction) {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let scale = usize::from(scale);
    (fraction.len() <= scale).then(|| format!("{sign}{whole}{fraction:0<scale$}").parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_are_numbers_or_errors() {
        for (text, scale, units) in [
            ("0", 0, Some(0)),
            ("-0.05", 2, Some(-5)),
            ("1.50", 1, Some(15)),
            ("007", 1, Some(70)),
            ("1.25", 1, None),
            ("1.", 1, None),
            (".5", 1, None),
            ("+1", 0, None),
            ("--1", 0, None),
            ("1e3", 0, None),
            ("170141183460469231731687303715884105727", 0, Some(i128::MAX)),
            ("170141183460469231731687303715884105728", 0, None),
            ("1", 38, Some(10_i128.pow(38))),
            ("10", 38, None),
        ] {
            assert_eq!(parse(text, scale), units, "{text} of scale {scale}");
        }
    }

    proptest! {
        #[test]
        fn texts_come_back(units in any::<i128>(), scale in 0..=SCALE_MAX) {
            prop_assert_eq!(parse(&text(units, scale), scale), Some(units));
        }
    }
}
