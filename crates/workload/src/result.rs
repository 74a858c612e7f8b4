//! The record that a benchmark prints: one JSON object for each line, keys in snake case with the unit in the name.
//!
//! Invariants:
//! - All keys of [`BenchResult`] are always present, in the same order. An unknown figure is `null`, never 0.
//! - Extra figures follow them and never take one of their names.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::engine::{EngineCounters, Footprint};

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

    /// Titles of [`BenchResult::table_row`].
    pub const TABLE_HEADERS: [&str; 15] = [
        "engine",
        "workload",
        "threads",
        "domain",
        "durability",
        "ops/s",
        "p50",
        "p99",
        "p99.9",
        "max",
        "fences/op",
        "flushes/op",
        "PM bytes/op",
        "syncs/op",
        "PM bytes/record",
    ];

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

    /// The main figures as table cells for people; unknown ones are `-`.
    #[must_use]
    pub fn table_row(&self) -> [String; 15] {
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| UNKNOWN.into());
        let time = |value: Option<u64>| value.map_or_else(|| UNKNOWN.into(), human_ns);
        let figure = |value: Option<f64>| value.map_or_else(|| UNKNOWN.into(), human_figure);
        [
            self.engine.clone(),
            self.workload.clone(),
            self.threads.to_string(),
            text(&self.domain),
            text(&self.durability),
            figure(self.ops_per_s),
            time(self.latency_ns_p50),
            time(self.latency_ns_p99),
            time(self.latency_ns_p99_9),
            time(self.latency_ns_max),
            figure(self.fences_per_op),
            figure(self.flushes_per_op),
            figure(self.pm_bytes_per_op),
            figure(self.syncs_per_op),
            figure(self.pm_bytes_per_record),
        ]
    }
}

const UNKNOWN: &str = "-";

/// `numerator / denominator`, to four decimals; `None` if the denominator is 0.
fn ratio(numerator: u64, denominator: u64) -> Option<f64> {
    (denominator != 0).then(|| rounded(numerator as f64 / denominator as f64))
}

pub(crate) fn rounded(figure: f64) -> f64 {
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
        assert_eq!(BenchResult::default().table_row()[6], "-");
    }
}
