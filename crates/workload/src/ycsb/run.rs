//! The load and the run of a specification on an engine, as scripts of the [runner](crate::race).
//!
//! Each thread draws an operation, prepares key and value, and times only the engine's call. The two clock readings,
//! some 50 ns together, are part of the throughput but not of the latency. Every operation is timed.

use std::time::Duration;

use crate::engine::{Engine, EngineCounters, EngineError, Result, Session};
use crate::keys::KeyCodec;
use crate::mix::OperationKind;
use crate::race::{self, Length, Moment, Plan, Script};
use crate::result::{BenchResult, rounded};
use crate::value;
use crate::ycsb::{Generator, Operation, OperationStream, Spec, Workload};

/// The progress of a load or a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// `load` or `run`.
    pub phase: &'static str,
    /// Operations done, all threads together.
    pub done: u64,
    /// Operations to do.
    pub total: u64,
}

/// The result of a load or a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The record to print.
    pub result: BenchResult,
    /// The measurement, with all latencies.
    pub run: race::Outcome,
    /// Reads and updates that found no record; 0 unless records were removed or not loaded.
    pub missing: u64,
}

type ProgressHook<'a> = Box<dyn FnMut(Progress) + 'a>;

/// One load or run of a specification on an engine.
///
/// ```
/// use std::time::Duration;
/// use lodestone_workload::memory::MemoryEngine;
/// use lodestone_workload::ycsb::{Runner, Spec, Workload};
///
/// let engine = MemoryEngine::new();
/// let spec = Spec { records: 500, operations: 1_000, ..Spec::new(Workload::B) };
/// Runner::new(&engine, &spec).load()?;
/// let outcome = Runner::new(&engine, &spec)
///     .time_limit(Duration::from_secs(10))
///     .on_progress(|progress| println!("{} of {}", progress.done, progress.total))
///     .run()?;
/// assert_eq!(outcome.missing, 0);
/// # Ok::<(), lodestone_workload::engine::EngineError>(())
/// ```
pub struct Runner<'a, E: Engine> {
    engine: &'a E,
    spec: &'a Spec,
    time_limit: Option<Duration>,
    verify_reads: bool,
    progress: Option<ProgressHook<'a>>,
}

impl<'a, E: Engine> Runner<'a, E> {
    /// A runner without a time limit that does not verify the values it reads.
    #[must_use]
    pub fn new(engine: &'a E, spec: &'a Spec) -> Self {
        Self { engine, spec, time_limit: None, verify_reads: false, progress: None }
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
    /// A specification that cannot be run, and those of the engine.
    pub fn load(self) -> Result<Outcome> {
        self.spec.validate().map_err(EngineError::new)?;
        let length = Length::Operations(self.spec.records);
        self.measure(None, length)
    }

    /// Runs the operations on loaded records.
    ///
    /// # Errors
    /// As [`load`](Self::load). With [`Runner::verify_reads`], also a value that was never written under its key.
    pub fn run(self) -> Result<Outcome> {
        let generator = Generator::new(self.spec).map_err(EngineError::new)?;
        let operations = self.spec.operations;
        let limited = |limit| Length::OperationsWithin(operations, limit);
        let length = self.time_limit.map_or(Length::Operations(operations), limited);
        self.measure(Some(generator), length)
    }

    /// Runs the operations of `generator`, or the load without one.
    fn measure(self, generator: Option<Generator>, length: Length) -> Result<Outcome> {
        let Self { engine, spec, verify_reads, mut progress, .. } = self;
        let plan = Plan { time_one_of: 1, ..Plan::new(spec.threads, length) };
        let (phase, total) = (if generator.is_some() { "run" } else { "load" }, length.operations().unwrap_or(0));
        let load = Ycsb { engine, spec, codec: spec.codec().map_err(EngineError::new)?, generator, verify_reads };
        let (run, missing) = race::run(&load, &plan, &mut |moment| {
            let (Moment::Sample(_, done) | Moment::End(done)) = moment else { return };
            if let Some(hook) = &mut progress {
                hook(Progress { phase, done, total });
            }
        })?;
        let missing = missing.into_iter().sum();
        Ok(Outcome { result: load.result(&run, missing), run, missing })
    }
}

/// The load of an engine, or the run of its operations.
struct Ycsb<'a, E> {
    engine: &'a E,
    spec: &'a Spec,
    codec: KeyCodec,
    /// `None` while records are loaded.
    generator: Option<Generator>,
    verify_reads: bool,
}

impl<E: Engine> Ycsb<'_, E> {
    fn failed(&self, action: &str, source: &EngineError) -> EngineError {
        EngineError::new(format!("{}: {action} failed: {source}", self.engine.name()))
    }

    fn result(&self, run: &race::Outcome, missing: u64) -> BenchResult {
        let Self { engine, spec, generator, .. } = self;
        let records_now = generator.as_ref().map_or(spec.records, |generator| generator.ledger().population());
        let workload = if generator.is_some() { spec.workload } else { Workload::Load };
        // Of wall time, so that a thread that ends early counts as idle.
        let ops_per_s = (run.operations as f64 / run.elapsed.as_secs_f64().max(1e-9)).round();
        let mut result = BenchResult {
            bench: "ycsb".into(),
            engine: engine.name().into(),
            workload: workload.name().into(),
            records: spec.records,
            seed: spec.seed,
            ops_per_s: (run.operations > 0).then_some(ops_per_s),
            ..BenchResult::of(engine.environment(), run)
        };
        result.set_footprint(&engine.footprint(), records_now);
        result.set_extra("seconds", rounded(run.elapsed.as_secs_f64()));
        result.set_extra("key_bytes", spec.key_bytes);
        result.set_extra("value_bytes", spec.value_bytes);
        result.set_extra("distribution", spec.distribution.to_string());
        result.set_extra("missing", missing);
        result.set_quantiles(run, &[("p50", 0.5), ("p99", 0.99)]);
        result
    }
}

impl<E: Engine> Script for Ycsb<'_, E> {
    const CLASSES: &'static [&'static str] = &OperationKind::NAMES;
    type Tally = u64;
    type Session<'s>
        = Work<'s, E, E::Session<'s>>
    where
        Self: 's;

    fn session(&self, thread: usize) -> Result<Self::Session<'_>> {
        let opened = if self.generator.is_some() { self.engine.session() } else { self.engine.load_session() };
        Ok(Work {
            load: self,
            session: opened.map_err(|source| self.failed("opening a session", &source))?,
            stream: self.generator.as_ref().map(|generator| generator.stream(thread)),
            place: thread as u64,
            operation: Operation { kind: OperationKind::Insert, record: 0, count: 1 },
            version: 0,
            key: Vec::with_capacity(self.spec.key_bytes),
            value: Vec::with_capacity(self.spec.value_bytes),
            found: false,
            missing: 0,
        })
    }

    fn finish(&self) -> Result<()> {
        if self.generator.is_some() {
            return Ok(());
        }
        self.engine.finish_load().map_err(|source| self.failed("finishing the load", &source))
    }

    fn counters(&self) -> EngineCounters {
        self.engine.counters()
    }
}

/// One thread at work.
struct Work<'s, E, S> {
    load: &'s Ycsb<'s, E>,
    session: S,
    stream: Option<OperationStream>,
    /// Number of the next operation, in turn with the other threads.
    place: u64,
    operation: Operation,
    version: u64,
    key: Vec<u8>,
    value: Vec<u8>,
    found: bool,
    missing: u64,
}

impl<E: Engine, S: Session> race::Session for Work<'_, E, S> {
    type Tally = u64;

    #[inline]
    fn draw(&mut self) {
        let spec = self.load.spec;
        (self.operation, self.version) = match &mut self.stream {
            // Loaded records are version 0. The writes of a run count from 1 and differ between threads.
            None => (Operation { kind: OperationKind::Insert, record: self.place, count: 1 }, 0),
            Some(stream) => (stream.next_operation(), self.place + 1),
        };
        self.place += spec.threads as u64;
        self.load.codec.encode_into(self.operation.record, &mut self.key);
        if matches!(self.operation.kind, OperationKind::Update | OperationKind::Insert) {
            value::make_into(&self.key, self.version, spec.value_bytes, &mut self.value);
        }
    }

    #[inline]
    fn step(&mut self) -> Result<usize> {
        let Self { session, operation, key, value, version, .. } = self;
        let called = match operation.kind {
            OperationKind::Read => session.read(key, value),
            OperationKind::Update => session.update(key, value),
            OperationKind::Insert => session.insert(key, value).map(|()| true),
            OperationKind::Remove => session.remove(key),
            OperationKind::Scan => session.scan(key, operation.count).map(|_| true),
            OperationKind::ReadModifyWrite => {
                let length = self.load.spec.value_bytes;
                let mut change = |value: &mut Vec<u8>| value::make_into(key, *version, length, value);
                session.read_modify_write(key, value, &mut change)
            }
        };
        self.found = called.map_err(|source| {
            self.load.failed(&format!("{} of record {}", operation.kind.name(), operation.record), &source)
        })?;
        Ok(operation.kind.index())
    }

    #[inline]
    fn settle(&mut self) -> Result<()> {
        self.missing += u64::from(!self.found);
        match (self.operation.kind, &mut self.stream) {
            (OperationKind::Insert, Some(stream)) => stream.finish_insert(),
            (OperationKind::Read, _) if self.load.verify_reads && self.found => {
                value::verify(&self.key, &self.value).map_err(|source| {
                    let (name, record) = (self.load.engine.name(), self.operation.record);
                    EngineError::new(format!(
                        "{name}: record {record} holds a wrong value: {source}; run the engine's check"
                    ))
                })?;
            }
            _ => {}
        }
        Ok(())
    }

    fn tally(self) -> u64 {
        self.missing
    }
}

#[cfg(test)]
mod tests;
