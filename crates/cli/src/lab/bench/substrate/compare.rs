//! Two sides that take turns: the median of each, and the median of the ratios of neighbouring rounds.

use std::time::Instant;

use serde::Serialize;

/// The result of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The operation.
    pub operation: &'static str,
    /// The place: `hot` or `random` lines, or `file`.
    pub pattern: &'static str,
    /// The other side.
    pub bare: &'static str,
    /// Time of one operation through Lodestone, median of the rounds, in nanoseconds.
    pub latency_ns: f64,
    /// Time of one bare operation, median of the rounds, in nanoseconds.
    pub bare_latency_ns: f64,
    /// Median over the rounds of the first time divided by the second.
    pub ratio: f64,
    /// Rounds.
    pub rounds: usize,
    /// Operations of each side in a round.
    pub operations_per_round: usize,
}

/// Runs `ours` and `bare` for `operations` operations in each of `rounds` rounds, with a changed order from round to
/// round. Each is called with the number of the round. One round before the first is not counted.
///
/// # Errors
/// The first error of either side.
pub fn compare(
    names: (&'static str, &'static str, &'static str),
    rounds: usize,
    operations: usize,
    mut ours: impl FnMut(usize) -> anyhow::Result<()>,
    mut bare: impl FnMut(usize) -> anyhow::Result<()>,
) -> anyhow::Result<Comparison> {
    let timed = |side: &mut dyn FnMut(usize) -> anyhow::Result<()>, round| {
        let start = Instant::now();
        side(round)?;
        anyhow::Ok(start.elapsed().as_nanos() as f64 / operations as f64)
    };
    let (mut times, mut bare_times, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds {
        let (time, bare_time) = if round.is_multiple_of(2) {
            let time = timed(&mut ours, round)?;
            (time, timed(&mut bare, round)?)
        } else {
            let bare_time = timed(&mut bare, round)?;
            (timed(&mut ours, round)?, bare_time)
        };
        if round > 0 {
            times.push(time);
            bare_times.push(bare_time);
            ratios.push(time / bare_time.max(f64::MIN_POSITIVE));
        }
    }
    let (operation, pattern, bare) = names;
    Ok(Comparison {
        operation,
        pattern,
        bare,
        latency_ns: rounded(median(&mut times)),
        bare_latency_ns: rounded(median(&mut bare_times)),
        ratio: rounded(median(&mut ratios)),
        rounds,
        operations_per_round: operations,
    })
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_run_every_round_and_the_first_is_not_counted() -> anyhow::Result<()> {
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        let found = compare(
            ("a", "b", "c"),
            4,
            10,
            |round| {
                ours.push(round);
                Ok(())
            },
            |round| {
                bare.push(round);
                Ok(())
            },
        )?;
        assert_eq!((ours, bare), ((0..=4).collect(), (0..=4).collect()));
        assert_eq!((found.rounds, found.operations_per_round), (4, 10));
        Ok(())
    }

    #[test]
    fn the_median_ignores_outliers() {
        assert_eq!(median(&mut [1.0, 1000.0, 2.0]), 2.0);
        assert!(median(&mut []).is_nan());
    }
}
