//! The loop of one thread: draw, prepare, time, note.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::engine::{self, Engine, Session};
use crate::keys::KeyCodec;
use crate::runner::gate::Presence;
use crate::runner::{RunError, engine_error};
use crate::value;
use crate::ycsb::{Generator, Operation, OperationKind, Spec, SpecError, share_of};

/// Operations between two checks of the time limit and the stop mark.
const CHECK_INTERVAL: u64 = 64;

/// Latencies above this are noted as this value: one hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// The plan that all threads of a phase share.
pub(super) struct Plan<'a> {
    spec: &'a Spec,
    codec: KeyCodec,
    source: Source<'a>,
    verify_reads: bool,
    time_limit: Option<Duration>,
}

#[derive(Clone, Copy)]
enum Source<'a> {
    Load,
    Run(&'a Generator),
}

impl<'a> Plan<'a> {
    pub(super) fn load(spec: &'a Spec) -> Result<Self, RunError> {
        Ok(Self {
            spec,
            codec: spec.codec().map_err(SpecError::from)?,
            source: Source::Load,
            verify_reads: false,
            time_limit: None,
        })
    }

    pub(super) fn run(
        spec: &'a Spec,
        generator: &'a Generator,
        verify_reads: bool,
        time_limit: Option<Duration>,
    ) -> Result<Self, RunError> {
        Ok(Self { source: Source::Run(generator), verify_reads, time_limit, ..Self::load(spec)? })
    }

    pub(super) fn operations(&self) -> u64 {
        match self.source {
            Source::Load => self.spec.records,
            Source::Run(_) => self.spec.operations,
        }
    }

    /// The whole life of one thread.
    pub(super) fn work<E: Engine>(&self, engine: &E, mut presence: Presence<'_>) -> Result<Report, RunError> {
        let opened = match self.source {
            Source::Load => engine.load_session(),
            Source::Run(_) => engine.session(),
        };
        let mut session = opened.map_err(|source| {
            presence.stop_all();
            engine_error(engine.name(), "opening a session", source)
        })?;
        let start = presence.arrive();
        let mut worker = Worker {
            plan: self,
            engine_name: engine.name(),
            deadline: self.time_limit.map(|limit| start + limit),
            key: Vec::with_capacity(self.spec.key_bytes),
            value: Vec::with_capacity(self.spec.value_bytes),
            report: Report::default(),
        };
        let worked = worker.drive(&mut session, &presence);
        if worked.is_err() {
            presence.stop_all();
        }
        worked?;
        worker.report.end = Some(Instant::now());
        Ok(worker.report)
    }
}

struct Worker<'a> {
    plan: &'a Plan<'a>,
    engine_name: &'a str,
    deadline: Option<Instant>,
    key: Vec<u8>,
    value: Vec<u8>,
    report: Report,
}

impl Worker<'_> {
    fn drive(&mut self, session: &mut impl Session, presence: &Presence<'_>) -> Result<(), RunError> {
        let spec = self.plan.spec;
        let thread = presence.thread();
        let share = share_of(self.plan.operations(), spec.threads, thread);
        let mut stream = match self.plan.source {
            Source::Load => None,
            Source::Run(generator) => Some(generator.stream(thread)),
        };
        let mut last = Instant::now();
        for number in 0..share {
            if number.is_multiple_of(CHECK_INTERVAL) {
                let late = self.deadline.is_some_and(|deadline| last >= deadline);
                if !presence.report(number) || late {
                    break;
                }
            }
            let place = number * spec.threads as u64 + thread as u64;
            let (operation, version) = match &mut stream {
                // Loaded records are version 0. The writes of a run count from 1 and differ between threads.
                None => (insert_of(place), 0),
                Some(stream) => (stream.next_operation(), place + 1),
            };
            last = self.operate(session, operation, version)?;
            if let (Some(stream), OperationKind::Insert) = (&mut stream, operation.kind) {
                stream.finish_insert();
            }
            self.report.operations += 1;
        }
        presence.report(self.report.operations);
        Ok(())
    }

    /// Does one operation, notes its latency and returns the time of its end.
    fn operate(&mut self, session: &mut impl Session, operation: Operation, version: u64) -> Result<Instant, RunError> {
        let length = self.plan.spec.value_bytes;
        self.plan.codec.encode_into(operation.record, &mut self.key);
        if matches!(operation.kind, OperationKind::Update | OperationKind::Insert) {
            value::make_into(&self.key, version, length, &mut self.value);
        }
        let start = Instant::now();
        let called = call(session, operation, &self.key, &mut self.value, version, length);
        let end = Instant::now();
        let found = called.map_err(|source| {
            let action = format!("{} of record {}", operation.kind.name(), operation.record);
            engine_error(self.engine_name, &action, source)
        })?;
        self.report.latencies.note(operation.kind, end.duration_since(start));
        self.report.missing += u64::from(!found);
        if self.plan.verify_reads && found && operation.kind == OperationKind::Read {
            let verified = value::verify(&self.key, &self.value);
            verified.map_err(|source| RunError::InvalidValue {
                engine: self.engine_name.into(),
                record: operation.record,
                source,
            })?;
        }
        Ok(end)
    }
}

fn insert_of(record: u64) -> Operation {
    Operation { kind: OperationKind::Insert, record, count: 1 }
}

#[inline]
fn call(
    session: &mut impl Session,
    operation: Operation,
    key: &[u8],
    value: &mut Vec<u8>,
    version: u64,
    length: usize,
) -> engine::Result<bool> {
    match operation.kind {
        OperationKind::Read => session.read(key, value),
        OperationKind::Update => session.update(key, value),
        OperationKind::Insert => session.insert(key, value).map(|()| true),
        OperationKind::Scan => session.scan(key, operation.count).map(|_| true),
        OperationKind::ReadModifyWrite => {
            let mut change = |value: &mut Vec<u8>| value::make_into(key, version, length, value);
            session.read_modify_write(key, value, &mut change)
        }
    }
}

/// The report of one thread, or of all of them.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) operations: u64,
    pub(super) missing: u64,
    pub(super) end: Option<Instant>,
    pub(super) latencies: Latencies,
}

impl Report {
    pub(super) fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.missing += other.missing;
        self.end = self.end.max(other.end);
        self.latencies.add(other.latencies);
    }
}

/// Latencies by kind; a kind that does not occur costs nothing.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    by_kind: [Option<Histogram<u64>>; OperationKind::ALL.len()],
}

impl Latencies {
    #[inline]
    fn note(&mut self, kind: OperationKind, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.by_kind[kind.index()].get_or_insert_with(empty_histogram).saturating_record(nanoseconds);
    }

    fn add(&mut self, other: Self) {
        for (mine, theirs) in self.by_kind.iter_mut().zip(other.by_kind) {
            match (mine.as_mut(), theirs) {
                (Some(mine), Some(theirs)) => add_histogram(mine, &theirs),
                (None, theirs) => *mine = theirs,
                (Some(_), None) => {}
            }
        }
    }

    /// All latencies together, and those of each kind that occurred.
    pub(super) fn merge(self) -> (Histogram<u64>, Vec<(OperationKind, Histogram<u64>)>) {
        let mut all = empty_histogram();
        let mut by_kind = Vec::new();
        for (kind, histogram) in OperationKind::ALL.into_iter().zip(self.by_kind) {
            if let Some(histogram) = histogram {
                add_histogram(&mut all, &histogram);
                by_kind.push((kind, histogram));
            }
        }
        (all, by_kind)
    }
}

fn empty_histogram() -> Histogram<u64> {
    let made = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3);
    made.unwrap_or_else(|error| unreachable!("constant bounds are valid: {error}"))
}

fn add_histogram(sum: &mut Histogram<u64>, part: &Histogram<u64>) {
    let added = sum.add(part);
    added.unwrap_or_else(|error| unreachable!("histograms have equal bounds: {error}"));
}
