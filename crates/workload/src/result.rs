//! The record that a benchmark prints: one JSON object for each line, keys in snake case with the unit in the name.
//!
//! Invariants:
//! - All keys of [`BenchResult`] are always present, in the same order. An unknown figure is `null`, never 0.
//! - Extra figures follow them and never take one of their names.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::engine::{EngineCounters, Environment, Footprint};
use crate::race::Outcome;

/// The result of one benchmark run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BenchResult {
    /// Name of the benchmark, for example `ycsb`.
    pub bench: String,
    /// Name of the engine.
    pub engine: String,
    /// Name of the workload, for example `a` or `load`.
    pub workload: String,
    /// Records before the run.
    pub records: u64,
    /// Operations done.
    pub operations: u64,
    /// Threads.
    pub threads: u64,
    /// Seed of the random draws.
    pub seed: u64,
    /// Persistence domain.
    pub domain: Option<String>,
    /// Medium; emulated ones say so.
    pub media: Option<String>,
    /// The failure that an acknowledged write survives.
    pub durability: Option<String>,
    /// Operations per second of wall time, all threads together.
    pub ops_per_s: Option<f64>,
    /// Median latency of an operation, in nanoseconds.
    pub latency_ns_p50: Option<u64>,
    /// 99th percentile.
    pub latency_ns_p99: Option<u64>,
    /// 99.9th percentile.
    pub latency_ns_p99_9: Option<u64>,
    /// Longest.
    pub latency_ns_max: Option<u64>,
    /// Ordering fences for each operation.
    pub fences_per_op: Option<f64>,
    /// Flushed cache lines for each operation.
    pub flushes_per_op: Option<f64>,
    /// Bytes written to persistent memory or its journal for each operation.
    pub pm_bytes_per_op: Option<f64>,
    /// 256-byte media blocks for each operation.
    pub media_blocks_per_op: Option<f64>,
    /// Device syncs for each operation.
    pub syncs_per_op: Option<f64>,
    /// Rolled-back attempts for each commit.
    pub aborts_per_commit: Option<f64>,
    /// Persistent space for each record at the end.
    pub pm_bytes_per_record: Option<f64>,
    /// DRAM for each record at the end.
    pub dram_bytes_per_record: Option<f64>,
    /// Further figures, in the order of their names.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl BenchResult {
    /// The keys that every line has, in order.
    pub const KEYS: [&str; 23] = [
        "bench",
        "engine",
        "workload",
        "records",
        "operations",
        "threads",
        "seed",
        "domain",
        "media",
        "durability",
        "ops_per_s",
        "latency_ns_p50",
        "latency_ns_p99",
        "latency_ns_p99_9",
        "latency_ns_max",
        "fences_per_op",
        "flushes_per_op",
        "pm_bytes_per_op",
        "media_blocks_per_op",
        "syncs_per_op",
        "aborts_per_commit",
        "pm_bytes_per_record",
        "dram_bytes_per_record",
    ];

    /// Columns of a table of the main figures: title and key.
    pub const MAIN: [(&str, &str); 15] = [
        ("engine", "engine"),
        ("workload", "workload"),
        ("threads", "threads"),
        ("domain", "domain"),
        ("durability", "durability"),
        ("ops/s", "ops_per_s"),
        ("p50", "latency_ns_p50"),
        ("p99", "latency_ns_p99"),
        ("p99.9", "latency_ns_p99_9"),
        ("max", "latency_ns_max"),
        ("fences/op", "fences_per_op"),
        ("flushes/op", "flushes_per_op"),
        ("PM bytes/op", "pm_bytes_per_op"),
        ("syncs/op", "syncs_per_op"),
        ("PM bytes/record", "pm_bytes_per_record"),
    ];

    /// The figures of `outcome`, which was measured in `environment`. The other fields are empty.
    #[must_use]
    pub fn of(environment: Environment, outcome: &Outcome) -> Self {
        let mut result = Self {
            operations: outcome.operations,
            threads: outcome.threads as u64,
            domain: environment.domain,
            media: environment.media,
            durability: environment.durability,
            ops_per_s: Some(outcome.ops_per_s.round()),
            ..Self::default()
        };
        let latency = &outcome.latency;
        if !latency.is_empty() {
            result.latency_ns_p50 = Some(latency.value_at_quantile(0.5));
            result.latency_ns_p99 = Some(latency.value_at_quantile(0.99));
            result.latency_ns_p99_9 = Some(latency.value_at_quantile(0.999));
            result.latency_ns_max = Some(latency.max());
        }
        result.set_counters(&outcome.counters);
        result
    }

    /// Adds the named quantiles of the latency of each class, such as `read_latency_ns_p50`.
    pub fn set_quantiles(&mut self, outcome: &Outcome, quantiles: &[(&str, f64)]) {
        for (class, histogram) in &outcome.latency_by_class {
            for &(name, quantile) in quantiles {
                self.set_extra(&format!("{class}_latency_ns_{name}"), histogram.value_at_quantile(quantile));
            }
        }
    }

    /// Fills the figures that come from counter differences.
    pub fn set_counters(&mut self, counters: &EngineCounters) {
        let operations = self.operations;
        let per_op = |count: Option<u64>| ratio(count?, operations);
        self.fences_per_op = per_op(counters.fences);
        self.flushes_per_op = per_op(counters.flushes);
        self.pm_bytes_per_op = per_op(counters.pm_bytes);
        self.media_blocks_per_op = per_op(counters.media_blocks);
        self.syncs_per_op = per_op(counters.syncs);
        self.aborts_per_commit = match (counters.aborts, counters.commits) {
            (Some(aborts), Some(commits)) => ratio(aborts, commits),
            _ => None,
        };
    }

    /// Fills the space figures; `records` is the number of records now.
    pub fn set_footprint(&mut self, footprint: &Footprint, records: u64) {
        self.pm_bytes_per_record = footprint.pm_bytes.and_then(|bytes| ratio(bytes, records));
        self.dram_bytes_per_record = footprint.dram_bytes.and_then(|bytes| ratio(bytes, records));
    }

    /// Adds a figure that is not among [`BenchResult::KEYS`].
    ///
    /// # Panics
    /// If `key` is one of them.
    pub fn set_extra(&mut self, key: &str, value: impl Into<Value>) {
        assert!(!Self::KEYS.contains(&key), "'{key}' is one of the fixed fields");
        self.extra.insert(key.into(), value.into());
    }

    /// The record as one line of JSON, without the line end. Figures that are not finite become `null`.
    #[must_use]
    pub fn to_json_line(&self) -> String {
        // A struct of numbers, strings and a map with string keys always has a JSON form.
        serde_json::to_string(self).unwrap_or_else(|error| unreachable!("a result is plain data: {error}"))
    }

    /// One row of a table with these columns, for people. The second word of a column is a key of the record. Unknown
    /// figures are `-`.
    #[must_use]
    pub fn row(&self, columns: &[(&str, &str)]) -> Vec<String> {
        let fields = serde_json::to_value(self).unwrap_or_default();
        columns.iter().map(|(_, key)| cell(key, &fields[*key])).collect()
    }
}

/// The value under `key`, for people: a latency as a time, another fraction with three digits.
fn cell(key: &str, value: &Value) -> String {
    let is_time = key.contains("latency_ns") || key.starts_with("fdatasync_ns");
    match (value, value.as_u64()) {
        (Value::String(text), _) => text.clone(),
        (_, Some(nanoseconds)) if is_time => human_ns(nanoseconds),
        (_, Some(count)) => count.to_string(),
        _ => value.as_f64().map_or_else(|| UNKNOWN.into(), human_figure),
    }
}

const UNKNOWN: &str = "-";

/// `numerator / denominator`, to four decimals; `None` if the denominator is 0.
pub(crate) fn ratio(numerator: u64, denominator: u64) -> Option<f64> {
    (denominator != 0).then(|| rounded(numerator as f64 / denominator as f64))
}

/// `figure` to four decimals.
#[must_use]
pub fn rounded(figure: f64) -> f64 {
    (figure * 1e4).round() / 1e4
}

/// Nanoseconds for people: `830 ns`, `4.21 us`, `12.5 ms`, `3.00 s`.
#[must_use]
pub fn human_ns(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    let (scaled, unit) = match nanoseconds {
        0..1_000 => return format!("{nanoseconds} ns"),
        1_000..1_000_000 => (value / 1e3, "us"),
        1_000_000..1_000_000_000 => (value / 1e6, "ms"),
        _ => (value / 1e9, "s"),
    };
    format!("{} {unit}", three_digits(scaled))
}

/// A figure for people: thousands are grouped, small figures keep three digits.
#[must_use]
pub fn human_figure(figure: f64) -> String {
    if !figure.is_finite() {
        return UNKNOWN.into();
    }
    if figure.abs() < 1_000.0 {
        return three_digits(figure);
    }
    let digits = format!("{:.0}", figure.abs());
    let mut grouped = String::from(if figure < 0.0 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn three_digits(value: f64) -> String {
    let magnitude = value.abs();
    if value == 0.0 || magnitude >= 99.95 {
        format!("{value:.0}")
    } else if magnitude >= 9.995 {
        format!("{value:.1}")
    } else if magnitude >= 0.1 {
        format!("{value:.2}")
    } else {
        format!("{value:.4}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_exactly_the_keys_in_order() {
        let mut result = BenchResult::default();
        let line = result.to_json_line();
        assert!(!line.contains('\n'));
        let position = |key: &str| line.find(&format!("\"{key}\":")).unwrap_or_else(|| panic!("{key} in {line}"));
        assert!(BenchResult::KEYS.map(position).is_sorted());
        let parsed: Map<String, Value> = serde_json::from_str(&line).unwrap();
        assert_eq!(parsed.len(), BenchResult::KEYS.len());
        assert_eq!(parsed["fences_per_op"], Value::Null);

        result.set_extra("fdatasync_ns_p50", 24_000);
        let parsed: Map<String, Value> = serde_json::from_str(&result.to_json_line()).unwrap();
        assert_eq!(parsed.len(), BenchResult::KEYS.len() + 1);
        assert_eq!(serde_json::from_str::<BenchResult>(&result.to_json_line()).unwrap(), result);
    }

    #[test]
    fn unknown_is_null_and_not_zero() {
        let mut result = BenchResult { operations: 8, ..BenchResult::default() };
        result.set_counters(&EngineCounters {
            fences: Some(12),
            aborts: Some(1),
            commits: Some(4),
            ..EngineCounters::default()
        });
        result.set_footprint(&Footprint { pm_bytes: Some(300), dram_bytes: None }, 2);
        assert_eq!(result.fences_per_op, Some(1.5));
        assert_eq!(result.syncs_per_op, None);
        assert_eq!(result.aborts_per_commit, Some(0.25));
        assert_eq!(result.pm_bytes_per_record, Some(150.0));
        assert_eq!(result.dram_bytes_per_record, None);
        result.operations = 0;
        result.set_counters(&EngineCounters { fences: Some(1), ..EngineCounters::default() });
        assert_eq!(result.fences_per_op, None);
        result.ops_per_s = Some(f64::NAN);
        assert!(result.to_json_line().contains("\"ops_per_s\":null"));
    }

    #[test]
    #[should_panic(expected = "one of the fixed fields")]
    fn extras_cannot_shadow_a_key() {
        BenchResult::default().set_extra("threads", 4);
    }

    #[test]
    fn figures_read_well() {
        assert_eq!(
            [0, 830, 4_210, 12_500_000, 3_000_000_000].map(human_ns),
            ["0 ns", "830 ns", "4.21 us", "12.5 ms", "3.00 s"]
        );
        assert_eq!(
            [0.0, 0.0123, 1.5, 99.96, 1_234_567.4, -2_000.0].map(human_figure),
            ["0", "0.0123", "1.50", "100", "1,234,567", "-2,000"]
        );
        assert_eq!(human_figure(f64::NAN), "-");
        let mut result = BenchResult { threads: 16, latency_ns_p50: Some(4_210), ..BenchResult::default() };
        result.set_extra("cpu_ns_per_op", 12.5);
        let row =
            result.row(&["threads", "latency_ns_p50", "latency_ns_p99", "cpu_ns_per_op"].map(|key| ("title", key)));
        assert_eq!(row, ["16", "4.21 us", "-", "12.5"]);
    }
}
