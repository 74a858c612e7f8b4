//! The position of a value on an axis, the ticks of the axis, and the text of a number.
//!
//! 1. The range of the data is widened to ticks: multiples of 1, 2 or 5 times a power of ten. On a logarithmic axis the
//!    ticks are powers of ten (powers of two for bytes). If fewer than three powers are in sight, their double and
//!    fivefold are ticks too.
//! 2. A value maps to `[0, 1]` along the axis, linearly or by its logarithm.
//!
//! Invariants: `low < high`, both finite; ticks rise and are in the range.

use crate::figure::Unit;

/// Ticks that an axis aims at.
const TICKS_WANTED: f64 = 6.0;
/// More powers of ten than this are thinned out.
const DECADES_MAX: i32 = 9;

/// An axis with its range and ticks.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
    unit: Unit,
    pub(super) ticks: Vec<f64>,
}

impl Scale {
    /// A scale over all of `values` that can be drawn; `None` if there is none.
    pub(super) fn over(
        values: impl Iterator<Item = f64>,
        logarithmic: bool,
        from_zero: bool,
        unit: Unit,
    ) -> Option<Self> {
        let drawable = values.filter(|value| can_draw(*value, logarithmic));
        let range = drawable.fold(None, |range: Option<(f64, f64)>, value| {
            Some(range.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
        });
        let (low, high) = range?;
        Some(if logarithmic { Self::logarithmic(low, high, unit) } else { Self::linear(low, high, from_zero, unit) })
    }

    /// A scale from 0 to 1.
    pub(super) fn fraction() -> Self {
        Self::linear(0.0, 1.0, true, Unit::Fraction)
    }

    fn linear(low: f64, high: f64, from_zero: bool, unit: Unit) -> Self {
        let (mut low, mut high) = if from_zero { (low.min(0.0), high.max(0.0)) } else { (low, high) };
        if high - low <= low.abs().max(high.abs()) * 1e-9 {
            let margin = if high == 0.0 { 1.0 } else { high.abs() * 0.5 };
            (low, high) =
                if from_zero { (low.min(0.0), high.max(0.0) + margin) } else { (low - margin, high + margin) };
        }
        let step = nice_step((high - low) / TICKS_WANTED);
        let (first, last) = ((low / step).floor(), (high / step - 1e-9).ceil());
        let count = (last - first).clamp(1.0, 100.0) as u32;
        let ticks: Vec<f64> = (0..=count).map(|index| (first + f64::from(index)) * step).collect();
        Self { low: first * step, high: (first + f64::from(count)) * step, logarithmic: false, unit, ticks }
    }

    fn logarithmic(low: f64, high: f64, unit: Unit) -> Self {
        let base: f64 = if unit == Unit::Bytes { 2.0 } else { 10.0 };
        let power = |value: f64| value.log10() / base.log10();
        let first = (power(low) + 1e-9).floor();
        let last = (power(high) - 1e-9).ceil().max(first + 1.0);
        let (first, last) = (first as i32, last as i32);
        let powers = last - first;
        let stride = usize::try_from((powers / DECADES_MAX).max(0) + 1).unwrap_or(1);
        let mut ticks: Vec<f64> = (first..=last).step_by(stride).map(|exponent| base.powi(exponent)).collect();
        if powers < 3 && unit != Unit::Bytes {
            let between = (first..last).flat_map(|exponent| [2.0, 5.0].map(|factor| factor * base.powi(exponent)));
            ticks.extend(between);
            ticks.sort_by(f64::total_cmp);
        }
        Self { low: base.powi(first), high: base.powi(last), logarithmic: true, unit, ticks }
    }

    /// The position of `value`: 0 at the low and 1 at the high end; `None` if it cannot be drawn.
    pub(super) fn position(&self, value: f64) -> Option<f64> {
        if !can_draw(value, self.logarithmic) {
            return None;
        }
        let along = if self.logarithmic {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        Some(along.clamp(0.0, 1.0))
    }

    /// The base of bars: zero, or the low end of a logarithmic axis.
    pub(super) fn base(&self) -> f64 {
        self.position(0.0).unwrap_or(0.0)
    }

    pub(super) fn text(&self, value: f64) -> String {
        text(value, self.unit)
    }
}

fn can_draw(value: f64, logarithmic: bool) -> bool {
    // Beyond these ends, sums and products of ticks would overflow.
    let bounded = value.is_finite() && value.abs() < 1e100;
    bounded && (!logarithmic || value > 1e-100)
}

fn nice_step(rough: f64) -> f64 {
    let power = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= rough * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * power
}

/// A number with its unit, short.
pub(super) fn text(value: f64, unit: Unit) -> String {
    match unit {
        // Near 100 % the decimals matter.
        Unit::Fraction => format!("{} %", trimmed(&format!("{:.2}", value * 100.0))),
        Unit::Nanoseconds => stepped(value, &[(1e9, " s"), (1e6, " ms"), (1e3, " us"), (1.0, " ns")]),
        Unit::Bytes => {
            stepped(value, &[(1_073_741_824.0, " GiB"), (1_048_576.0, " MiB"), (1_024.0, " KiB"), (1.0, " B")])
        }
        Unit::BytesPerSecond => stepped(value, &[(1e9, " GB/s"), (1e6, " MB/s"), (1e3, " kB/s"), (1.0, " B/s")]),
        Unit::Count => stepped(value, &[(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")]),
    }
}

fn stepped(value: f64, steps: &[(f64, &str)]) -> String {
    let reached = steps.iter().find(|(size, _)| value.abs() >= *size * (1.0 - 1e-9));
    let (size, name) = reached.or(steps.last()).copied().unwrap_or((1.0, ""));
    if value == 0.0 {
        return "0".into();
    }
    format!("{}{name}", short(value / size))
}

/// Three significant digits without trailing zeroes.
fn short(value: f64) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    let magnitude = value.abs();
    let decimals = match magnitude {
        0.0 => 0,
        _ if magnitude >= 99.5 => 0,
        _ if magnitude >= 9.95 => 1,
        _ if magnitude >= 0.0995 => 2,
        _ if magnitude >= 1e-6 => 6,
        _ => return format!("{value:.0e}"),
    };
    trimmed(&format!("{value:.decimals$}")).into()
}

fn trimmed(written: &str) -> &str {
    if written.contains('.') { written.trim_end_matches('0').trim_end_matches('.') } else { written }
}

/// A number with all its digits, for tables of data.
pub(super) fn exact_text(value: f64) -> String {
    if value.is_finite() { format!("{value}") } else { "-".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(values: &[f64], logarithmic: bool) -> Option<Scale> {
        Scale::over(values.iter().copied(), logarithmic, false, Unit::Count)
    }

    #[test]
    fn linear_ticks_are_round_and_cover_the_data() {
        for (low, high) in [(0.0, 1.0), (3.0, 97.0), (-5.0, 5.0), (1e-6, 3e-6), (1e9, 1.1e9), (7.0, 7.0), (0.0, 0.0)] {
            let scale = over(&[low, high], false).unwrap();
            assert!(scale.low <= low && scale.high >= high, "{scale:?}");
            assert!((2..=12).contains(&scale.ticks.len()), "{scale:?}");
            assert!(scale.ticks.is_sorted());
            let (bottom, top) = (scale.position(low).unwrap(), scale.position(high).unwrap());
            assert!((0.0..=1.0).contains(&bottom) && bottom <= top && top <= 1.0);
        }
    }

    #[test]
    fn logarithmic_ticks_are_powers() {
        let scale = over(&[150.0, 2e6], true).unwrap();
        assert_eq!(scale.ticks, [1e2, 1e3, 1e4, 1e5, 1e6, 1e7]);
        assert!((scale.position(31_622.776_6).unwrap() - 0.5).abs() < 1e-6);
        let narrow = over(&[12.0, 80.0], true).unwrap();
        assert_eq!(narrow.ticks, [10.0, 20.0, 50.0, 100.0]);
        let bytes = Scale::over([64.0, 4096.0].into_iter(), true, false, Unit::Bytes).unwrap();
        assert_eq!(bytes.ticks.len(), 7);
        let wide = over(&[1e-30, 1e30], true).unwrap();
        assert!(wide.ticks.len() <= 11);
    }

    #[test]
    fn what_cannot_be_drawn_is_left_out() {
        assert_eq!(over(&[], false), None);
        assert_eq!(over(&[f64::NAN, f64::INFINITY, f64::MAX], false), None);
        assert_eq!(over(&[0.0, -1.0], true), None);
        let scale = over(&[f64::NAN, 1.0, 2.0], false).unwrap();
        assert_eq!(scale.position(f64::NAN), None);
        assert_eq!(over(&[1.0], true).unwrap().position(0.0), None);
    }

    #[test]
    fn numbers_read_well() {
        let counts = [0.0, 0.05, 0.5, 12.0, 5_000.0, 1_234_567.0, -3_000.0].map(|value| text(value, Unit::Count));
        assert_eq!(counts, ["0", "0.05", "0.5", "12", "5k", "1.23M", "-3k"]);
        assert_eq!(text(1_500.0, Unit::Nanoseconds), "1.5 us");
        assert_eq!(text(4_096.0, Unit::Bytes), "4 KiB");
        assert_eq!([2e9, 870e6].map(|value| text(value, Unit::BytesPerSecond)), ["2 GB/s", "870 MB/s"]);
        assert_eq!(text(0.999, Unit::Fraction), "99.9 %");
    }
}
