//! Statistics over several repetitions of one measurement: the middle, the ends, and how far they scatter.

use serde::{Deserialize, Serialize};

/// Statistics over the repetitions of one cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle repetition (of an even number: the mean of the two in the middle). Tables and figures show this
    /// value.
    pub median: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Coefficient of variation: standard deviation (of the sample) divided by the mean. 0 for a single repetition.
    pub variation: f64,
}

impl Spread {
    /// The statistics of the finite `samples`; `None` if there are none.
    ///
    /// ```
    /// use lodestone_media::probe::Spread;
    /// let spread = Spread::of([1.0, 2.0, 3.0, 100.0]).expect("samples");
    /// assert_eq!((spread.median, spread.min, spread.max), (2.5, 1.0, 100.0));
    /// ```
    #[must_use]
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut samples: Vec<f64> = samples.into_iter().filter(|sample| sample.is_finite()).collect();
        samples.sort_unstable_by(f64::total_cmp);
        let (min, max) = (*samples.first()?, *samples.last()?);
        let count = samples.len() as f64;
        let middle = samples.len() / 2;
        let median = if samples.len().is_multiple_of(2) {
            f64::midpoint(samples[middle - 1], samples[middle])
        } else {
            samples[middle]
        };
        let mean = samples.iter().sum::<f64>() / count;
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        let deviation = if samples.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
        let variation = if mean == 0.0 { 0.0 } else { deviation / mean.abs() };
        Some(Self { median, mean, min, max, variation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statistics_are_those_of_the_book() {
        let spread = Spread::of([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).expect("samples");
        assert_eq!((spread.median, spread.mean, spread.min, spread.max), (4.5, 5.0, 2.0, 9.0));
        // Sample standard deviation: sqrt(32 / 7).
        assert!((spread.variation - (32.0_f64 / 7.0).sqrt() / 5.0).abs() < 1e-12);
        let odd = Spread::of([3.0, 1.0, 2.0]).expect("samples");
        assert_eq!(odd.median, 2.0);
    }

    #[test]
    fn one_sample_scatters_not_and_none_is_none() {
        let one = Spread::of([7.0]).expect("a sample");
        assert_eq!((one.median, one.variation), (7.0, 0.0));
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([f64::NAN, f64::INFINITY]), None);
        assert_eq!(Spread::of([0.0, 0.0]).expect("zeroes").variation, 0.0);
    }
}
