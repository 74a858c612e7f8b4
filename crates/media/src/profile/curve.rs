//! A curve over sizes: points, and the values between them.
//!
//! Between two points the value follows a straight line in the logarithms of size and value. So both a flat piece and a
//! piece proportional to the size are exact. Below the first point the first value holds. Above the last point the
//! value grows with the size (`Above::Proportional`) or stays (`Above::Flat`).
//!
//! Invariants: at least one point, sizes ascending, values positive and finite.

/// How a curve continues after its last point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Above {
    /// In proportion to the size: a latency that consists of transfer only.
    Proportional,
    /// At the last value: a fraction.
    Flat,
}

/// Values by size in bytes.
///
/// ```
/// use lodestone_media::profile::{Above, Curve};
/// let curve = Curve::new(vec![(64, 100.0), (256, 400.0)], Above::Proportional).expect("ascending");
/// assert_eq!(curve.at(8), 100.0);
/// assert!((curve.at(128) - 200.0).abs() < 1e-9);
/// assert!((curve.at(512) - 800.0).abs() < 1e-9);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    points: Vec<(u64, f64)>,
    above: Above,
}

impl Curve {
    /// A curve through `points` (size in bytes, value). `None` if there are none, if sizes do not ascend, or if a value
    /// is not positive and finite.
    #[must_use]
    pub fn new(points: Vec<(u64, f64)>, above: Above) -> Option<Self> {
        let sizes_ascend = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let values_fit = points.iter().all(|(size, value)| *size > 0 && value.is_finite() && *value > 0.0);
        (!points.is_empty() && sizes_ascend && values_fit).then_some(Self { points, above })
    }

    /// The points.
    #[must_use]
    pub fn points(&self) -> &[(u64, f64)] {
        &self.points
    }

    /// The value at `size_bytes`.
    #[must_use]
    pub fn at(&self, size_bytes: u64) -> f64 {
        let next = self.points.partition_point(|(size, _)| *size < size_bytes);
        match (self.points.get(next.wrapping_sub(1)), self.points.get(next)) {
            (_, Some((size, value))) if *size == size_bytes => *value,
            (Some(lower), Some(upper)) => between(*lower, *upper, size_bytes),
            (None, Some((_, first))) => *first,
            (Some((size, last)), None) => match self.above {
                Above::Proportional => last * size_bytes as f64 / *size as f64,
                Above::Flat => *last,
            },
            (None, None) => unreachable!("a curve has points"),
        }
    }
}

fn between(lower: (u64, f64), upper: (u64, f64), size_bytes: u64) -> f64 {
    let ln = |size: u64| (size as f64).ln();
    let share = (ln(size_bytes) - ln(lower.0)) / (ln(upper.0) - ln(lower.0));
    (lower.1.ln() + share * (upper.1.ln() - lower.1.ln())).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_curve_is_refused() {
        let curve = |points: &[(u64, f64)]| Curve::new(points.to_vec(), Above::Flat);
        assert!(curve(&[]).is_none());
        assert!(curve(&[(64, 1.0), (64, 2.0)]).is_none());
        assert!(curve(&[(64, 1.0), (8, 2.0)]).is_none());
        assert!(curve(&[(0, 1.0)]).is_none());
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(curve(&[(64, value)]).is_none(), "{value}");
        }
    }

    #[test]
    fn points_are_met_exactly_and_the_ends_go_on() {
        let curve = Curve::new(vec![(8, 46.0), (16, 33.0), (64, 40.0)], Above::Flat).expect("a curve");
        assert_eq!([8, 16, 64].map(|size| curve.at(size)), [46.0, 33.0, 40.0]);
        assert_eq!((curve.at(1), curve.at(4096)), (46.0, 40.0));
        assert!((33.0..40.0).contains(&curve.at(32)));
    }
}
