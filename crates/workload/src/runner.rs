//! Drives an engine with the operations of a specification from many threads, and times each operation.
//!
//! 1. Each thread opens its session and waits at the [gate](gate). The coordinator notes the counters and opens the
//!    gate.
//! 2. Each thread draws an operation, prepares key and value, and times only the engine's call. The two clock readings,
//!    some 50 ns together, are part of the throughput but not of the latency.
//! 3. Latencies go into one histogram for each thread and kind (three significant digits), and are added up at the end.
//! 4. The coordinator reports progress ten times a second while it waits.
//!
//! Invariants:
//! - Wall time runs from the opening of the gate to the end of the last thread.
//! - The first error stops all threads and is the outcome. A panic in a session is passed on and never causes a
//!   deadlock.

mod gate;
mod worker;

use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::engine::{Engine, EngineError};
use crate::result::{BenchResult, rounded};
use crate::runner::gate::{Gate, Presence};
use crate::runner::worker::{Plan, Report};
use crate::value::ValueError;
use crate::ycsb::{Generator, OperationKind, Spec, SpecError, Workload};

/// Time between two progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Why a run stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The specification cannot be run.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The engine failed.
    #[error("{engine}: {action} failed: {source}")]
    Engine {
        /// Name of the engine.
        engine: String,
        /// The failed action, for example `update of record 17`.
        action: String,
        /// Its error.
        source: EngineError,
    },
    /// A read returned bytes that were never written under that key.
    #[error("{engine}: record {record} holds a wrong value: {source}; run the engine's check")]
    InvalidValue {
        /// Name of the engine.
        engine: String,
        /// The record.
        record: u64,
        /// The fault of the value.
        source: ValueError,
    },
}

/// The progress of a load or a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// `load` or `run`.
    pub phase: &'static str,
    /// Operations done, all threads together.
    pub done: u64,
    /// Operations to do.
    pub total: u64,
    /// Since the gate opened.
    pub elapsed: Duration,
}

/// The result of a load or a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The record to print.
    pub result: BenchResult,
    /// Wall time.
    pub elapsed: Duration,
    /// Latencies of all operations, in nanoseconds.
    pub latency: Histogram<u64>,
    /// Latencies of each kind that occurred.
    pub latency_by_kind: Vec<(OperationKind, Histogram<u64>)>,
    /// Reads and updates that found no record; 0 unless records were removed or not loaded.
    pub missing: u64,
}

impl Outcome {
    /// The distribution function of latency for plots, as `(nanoseconds, fraction of operations at or below)`. It is
    /// fine towards the tail.
    #[must_use]
    pub fn latency_cdf(&self) -> Vec<(f64, f64)> {
        let steps = self.latency.iter_quantiles(8);
        steps.map(|step| (step.value_iterated_to() as f64, step.quantile_iterated_to())).collect()
    }
}

type ProgressHook<'a> = Box<dyn FnMut(Progress) + 'a>;

/// One load or run of a specification on an engine.
///
/// ```
/// use std::time::Duration;
/// use lodestone_workload::memory::MemoryEngine;
/// use lodestone_workload::runner::Runner;
/// use lodestone_workload::ycsb::{Spec, Workload};
///
/// let engine = MemoryEngine::new();
/// let spec = Spec { records: 500, operations: 1_000, ..Spec::new(Workload::B) };
/// Runner::new(&engine, &spec).load()?;
/// let outcome = Runner::new(&engine, &spec)
///     .time_limit(Duration::from_secs(10))
///     .on_progress(|progress| println!("{} of {}", progress.done, progress.total))
///     .run()?;
/// assert_eq!(outcome.missing, 0);
/// # Ok::<(), lodestone_workload::runner::RunError>(())
/// ```
pub struct Runner<'a, E: Engine> {
    engine: &'a E,
    spec: &'a Spec,
    bench: String,
    time_limit: Option<Duration>,
    verify_reads: bool,
    progress: Option<ProgressHook<'a>>,
}

impl<'a, E: Engine> Runner<'a, E> {
    /// A runner without a time limit that does not verify the values it reads.
    #[must_use]
    pub fn new(engine: &'a E, spec: &'a Spec) -> Self {
        Self { engine, spec, bench: "ycsb".into(), time_limit: None, verify_reads: false, progress: None }
    }

    /// Name of the benchmark in the result; `ycsb` unless set.
    #[must_use]
    pub fn bench(mut self, name: impl Into<String>) -> Self {
        self.bench = name.into();
        self
    }

    /// Ends the run after this time even if operations are left. A load is never cut.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// Checks that each value read is whole and belongs to its key. This takes some 20 ns for each read of 100 bytes,
    /// outside the latency.
    #[must_use]
    pub fn verify_reads(mut self, verify: bool) -> Self {
        self.verify_reads = verify;
        self
    }

    /// Calls `hook` about ten times a second and at the end, on the calling thread.
    #[must_use]
    pub fn on_progress(mut self, hook: impl FnMut(Progress) + 'a) -> Self {
        self.progress = Some(Box::new(hook));
        self
    }

    /// Inserts records 0 to `records`, each as version 0, from all threads, and finishes the load.
    ///
    /// # Errors
    /// [`RunError::Spec`] and [`RunError::Engine`].
    pub fn load(mut self) -> Result<Outcome, RunError> {
        self.spec.validate()?;
        let plan = Plan::load(self.spec)?;
        let name = self.engine.name();
        let engine = self.engine;
        let mut finish = || {
            let finished = engine.finish_load();
            finished.map_err(|source| engine_error(name, "finishing the load", source))
        };
        let measured = self.measure("load", &plan, &mut finish)?;
        Ok(self.outcome(Workload::Load, measured, self.spec.records))
    }

    /// Runs the operations on loaded records.
    ///
    /// # Errors
    /// [`RunError`]; with [`Runner::verify_reads`], also [`RunError::InvalidValue`].
    pub fn run(mut self) -> Result<Outcome, RunError> {
        let generator = Generator::new(self.spec)?;
        let plan = Plan::run(self.spec, &generator, self.verify_reads, self.time_limit)?;
        let measured = self.measure("run", &plan, &mut || Ok(()))?;
        Ok(self.outcome(self.spec.workload, measured, generator.ledger().population()))
    }

    fn measure(
        &mut self,
        phase: &'static str,
        plan: &Plan<'_>,
        finish: &mut dyn FnMut() -> Result<(), RunError>,
    ) -> Result<Measured, RunError> {
        let gate = Gate::new(self.spec.threads);
        let total = plan.operations();
        let engine = self.engine;
        let progress = &mut self.progress;
        thread::scope(|scope| {
            let workers: Vec<_> = (0..self.spec.threads)
                .map(|thread| {
                    let presence = Presence::new(&gate, thread);
                    scope.spawn(move || plan.work(engine, presence))
                })
                .collect();
            gate.wait_until_all_arrived();
            let before = engine.counters();
            let start = Instant::now();
            gate.open(start);
            let mut report = |done| {
                if let Some(hook) = progress {
                    hook(Progress { phase, done, total, elapsed: start.elapsed() });
                }
            };
            while !gate.wait_until_all_finished(PROGRESS_INTERVAL) {
                report(gate.done());
            }
            let mut merged = Report::default();
            let mut first_error = None;
            for worker in workers {
                match worker.join() {
                    Ok(Ok(worker_report)) => merged.add(worker_report),
                    Ok(Err(error)) => first_error = first_error.or(Some(error)),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            if let Some(error) = first_error {
                return Err(error);
            }
            finish()?;
            let finished_load = (phase == "load").then(Instant::now);
            let end = finished_load.or(merged.end).unwrap_or(start);
            report(merged.operations);
            Ok(Measured {
                elapsed: end.saturating_duration_since(start),
                counters: engine.counters().since(&before),
                report: merged,
            })
        })
    }

    fn outcome(&self, workload: Workload, measured: Measured, records_now: u64) -> Outcome {
        let Measured { elapsed, counters, report } = measured;
        let environment = self.engine.environment();
        let (latency, latency_by_kind) = report.latencies.merge();
        let mut result = BenchResult {
            bench: self.bench.clone(),
            engine: self.engine.name().into(),
            workload: workload.name().into(),
            records: self.spec.records,
            operations: report.operations,
            threads: self.spec.threads as u64,
            seed: self.spec.seed,
            domain: environment.domain,
            media: environment.media,
            durability: environment.durability,
            ..BenchResult::default()
        };
        if report.operations > 0 {
            let seconds = elapsed.as_secs_f64().max(1e-9);
            result.ops_per_s = Some((report.operations as f64 / seconds).round());
            result.latency_ns_p50 = Some(latency.value_at_quantile(0.5));
            result.latency_ns_p99 = Some(latency.value_at_quantile(0.99));
            result.latency_ns_p99_9 = Some(latency.value_at_quantile(0.999));
            result.latency_ns_max = Some(latency.max());
        }
        result.set_counters(&counters);
        result.set_footprint(&self.engine.footprint(), records_now);
        result.set_extra("seconds", rounded(elapsed.as_secs_f64()));
        result.set_extra("key_bytes", self.spec.key_bytes);
        result.set_extra("value_bytes", self.spec.value_bytes);
        result.set_extra("distribution", self.spec.distribution.to_string());
        result.set_extra("missing", report.missing);
        for (kind, histogram) in &latency_by_kind {
            result.set_extra(&format!("{}_latency_ns_p50", kind.name()), histogram.value_at_quantile(0.5));
            result.set_extra(&format!("{}_latency_ns_p99", kind.name()), histogram.value_at_quantile(0.99));
        }
        Outcome { result, elapsed, latency, latency_by_kind, missing: report.missing }
    }
}

struct Measured {
    elapsed: Duration,
    counters: crate::engine::EngineCounters,
    report: Report,
}

fn engine_error(engine: &str, action: &str, source: EngineError) -> RunError {
    RunError::Engine { engine: engine.into(), action: action.into(), source }
}

#[cfg(test)]
mod tests;
