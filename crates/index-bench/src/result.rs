//! The record of a run: the keys of [`BenchResult`], and the further figures of PIBench.

use lodestone_workload::race::{self, Length};
use lodestone_workload::result::{BenchResult, rounded};

use crate::key::KeyShape;
use crate::runner::{Outcome, Spec};
use crate::target::Target;

/// Blocks of the medium that were read and written in the measured phase, if a model counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MediaBlocks {
    /// Blocks that the medium read.
    pub read: u64,
    /// Blocks that the medium wrote.
    pub written: u64,
}

/// Facts about a loaded index, besides the run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Loaded {
    /// Keys.
    pub keys: u64,
    /// Persistent memory of the index.
    pub pm_bytes: Option<u64>,
    /// DRAM of the index.
    pub dram_bytes: Option<u64>,
    /// How long the load took, in seconds.
    pub seconds: f64,
}

/// The record to print.
#[must_use]
pub fn result<T: Target>(
    target: &T,
    spec: &Spec,
    key: KeyShape,
    loaded: &Loaded,
    outcome: &Outcome,
    media: Option<MediaBlocks>,
) -> BenchResult {
    let Outcome { run, tally, .. } = outcome;
    let mut result = BenchResult {
        bench: "index".into(),
        engine: target.name(),
        workload: spec.mix.to_string(),
        records: spec.records,
        seed: spec.seed,
        ..BenchResult::of(target.environment(), run)
    };
    let per_key = |bytes: Option<u64>| bytes.map(|bytes| rounded(bytes as f64 / loaded.keys.max(1) as f64));
    result.pm_bytes_per_record = per_key(loaded.pm_bytes);
    result.dram_bytes_per_record = per_key(loaded.dram_bytes);
    set_latency(&mut result, run);
    let per_op = |count| run.per_op(count);
    result.set_extra("media_blocks_read_per_op", media.and_then(|media| per_op(media.read)));
    result.set_extra("media_blocks_written_per_op", media.and_then(|media| per_op(media.written)));
    result.set_extra("missing_per_op", per_op(tally.missing));
    result.set_extra("scanned_per_op", per_op(tally.scanned));
    result.set_extra("cpu_ns_per_op", run.cpu_ns.and_then(per_op));
    result.set_extra("load_seconds", rounded(loaded.seconds));
    result.set_extra("load_ops_per_s", (spec.records as f64 / loaded.seconds.max(1e-9)).round());
    result.set_extra("keys_at_end", outcome.keys);
    result.set_extra("key", key.to_string());
    result.set_extra("distribution", spec.distribution.to_string());
    result.set_extra("timed_one_of", spec.plan.time_one_of);
    result.set_extra("seconds", rounded(run.seconds));
    result.set_extra("warm_up_seconds", rounded(spec.plan.warm_up.as_secs_f64()));
    result.set_extra("length", length(spec.plan.length));
    result.set_extra("samples_ops_per_s", samples(run));
    for &(key, count) in &outcome.counts {
        result.set_extra(&format!("{key}_per_op"), per_op(count));
    }
    result.set_extra("cache_hit_rate", hit_rate(outcome));
    result
}

/// The share of reads that a cache answered, among those that asked it; `None` without a cache.
fn hit_rate(outcome: &Outcome) -> Option<f64> {
    let count = |wanted| outcome.counts.iter().find(|(name, _)| *name == wanted).map(|(_, count)| *count);
    let (hits, misses) = (count("cache_hits")?, count("cache_misses")?);
    (hits + misses > 0).then(|| rounded(hits as f64 / (hits + misses) as f64))
}

fn length(length: Length) -> String {
    match length {
        Length::Time(time) => format!("{} s", time.as_secs_f64()),
        Length::Operations(count) | Length::OperationsWithin(count, _) => format!("{count} operations"),
    }
}

fn set_latency(result: &mut BenchResult, run: &race::Outcome) {
    let latency = &run.latency;
    if latency.is_empty() {
        return;
    }
    result.set_extra("latency_ns_mean", rounded(latency.mean()));
    for (name, quantile) in [("p90", 0.9), ("p95", 0.95), ("p99_99", 0.9999)] {
        result.set_extra(&format!("latency_ns_{name}"), latency.value_at_quantile(quantile));
    }
    result.set_extra("timed_operations", latency.len());
    result.set_quantiles(run, &[("p50", 0.5), ("p99", 0.99), ("p99_9", 0.999)]);
    for (class, histogram) in &run.latency_by_class {
        result.set_extra(&format!("{class}_latency_ns_mean"), rounded(histogram.mean()));
    }
}

/// Throughput between each two samples.
fn samples(run: &race::Outcome) -> Vec<f64> {
    let mut last = (0.0, 0);
    let rate = |&(at, done): &(f64, u64)| {
        let rate = (done - last.1) as f64 / f64::max(at - last.0, 1e-9);
        last = (at, done);
        rate.round()
    };
    run.samples.iter().map(rate).collect()
}
