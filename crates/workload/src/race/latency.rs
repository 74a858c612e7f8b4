//! Histograms of latencies by class, with three significant digits. A class that does not occur costs nothing.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Latencies above this are noted as this value: one hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// Latencies by class.
#[derive(Debug)]
pub(crate) struct Latencies(Vec<Option<Histogram<u64>>>);

impl Latencies {
    pub(crate) fn new(classes: usize) -> Self {
        Self(vec![None; classes])
    }

    #[inline]
    pub(crate) fn note(&mut self, class: usize, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.0[class].get_or_insert_with(empty).saturating_record(nanoseconds);
    }

    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        self.0.fill(None);
    }

    pub(crate) fn add(&mut self, other: Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            match (mine.as_mut(), theirs) {
                (Some(mine), Some(theirs)) => add(mine, &theirs),
                (None, theirs) => *mine = theirs,
                (Some(_), None) => {}
            }
        }
    }

    /// All latencies together, and those of each class that occurred.
    pub(crate) fn merge(self, names: &[&'static str]) -> (Histogram<u64>, Vec<(&'static str, Histogram<u64>)>) {
        let named = names.iter().zip(self.0);
        let by_class: Vec<_> = named.filter_map(|(name, histogram)| Some((*name, histogram?))).collect();
        let mut all = empty();
        by_class.iter().for_each(|(_, histogram)| add(&mut all, histogram));
        (all, by_class)
    }
}

pub(super) fn empty() -> Histogram<u64> {
    let made = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3);
    made.unwrap_or_else(|error| unreachable!("constant bounds are valid: {error}"))
}

fn add(sum: &mut Histogram<u64>, part: &Histogram<u64>) {
    let added = sum.add(part);
    added.unwrap_or_else(|error| unreachable!("histograms have equal bounds: {error}"));
}
