//! One thread of a run: it executes its script, operation by operation. Some operations are timed, all are checked.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;
use lodestone_workload::engine::EngineError;
use lodestone_workload::random::Random;

use crate::key::{KeyMaker, belongs, value_of};
use crate::mix::{Kind, Script};
use crate::runner::{Length, Spec};
use crate::target::{Result, Session, Target};

/// Latencies above this are noted as this value: one hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
/// Operations between two checks of the other threads' inserts.
const LOOK_INTERVAL: u64 = 64;

/// The state that the threads of a run and its coordinator share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Passed three times: when sessions are open, when the warm-up is over, and when the counters are noted.
    pub(crate) phase: Barrier,
    pub(crate) warm: AtomicBool,
    pub(crate) stop: AtomicBool,
    /// Operations of each thread in the measured phase.
    pub(crate) done: Box<[CachePadded<AtomicU64>]>,
    /// Inserts of each thread since the load.
    pub(crate) inserted: Box<[CachePadded<AtomicU64>]>,
}

impl Shared {
    pub(crate) fn new(threads: usize) -> Self {
        let zeroes = || (0..threads).map(|_| CachePadded::default()).collect();
        Self {
            phase: Barrier::new(threads + 1),
            warm: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            done: zeroes(),
            inserted: zeroes(),
        }
    }

    /// Measured operations so far.
    pub(crate) fn operations(&self) -> u64 {
        self.done.iter().map(|done| done.load(Ordering::Relaxed)).sum()
    }
}

/// A thread's counts in the measured phase; the first two since the load.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) inserted: u64,
    pub(crate) removed: u64,
    pub(crate) operations: u64,
    pub(crate) missing: u64,
    pub(crate) scanned: u64,
    pub(crate) seconds: f64,
    pub(crate) cpu_ns: Option<u64>,
    pub(crate) latencies: Latencies,
}

/// Latencies by kind.
#[derive(Debug, Default)]
pub(crate) struct Latencies([Option<Histogram<u64>>; Kind::ALL.len()]);

pub(crate) fn empty_histogram() -> Histogram<u64> {
    let made = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3);
    made.unwrap_or_else(|error| unreachable!("constant bounds are valid: {error}"))
}

impl Latencies {
    #[inline]
    fn note(&mut self, kind: Kind, nanoseconds: u64) {
        self.0[kind.index()].get_or_insert_with(empty_histogram).saturating_record(nanoseconds);
    }

    pub(crate) fn add(&mut self, other: Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            let Some(theirs) = theirs else { continue };
            let sum = mine.get_or_insert_with(empty_histogram).add(theirs);
            sum.unwrap_or_else(|error| unreachable!("histograms have equal bounds: {error}"));
        }
    }

    /// Of each kind that occurred.
    pub(crate) fn by_kind(&self) -> impl Iterator<Item = (Kind, &Histogram<u64>)> {
        Kind::ALL.into_iter().zip(&self.0).filter_map(|(kind, histogram)| Some((kind, histogram.as_ref()?)))
    }
}

/// One thread at work.
pub(crate) struct Worker<'a, S, M> {
    spec: &'a Spec,
    shared: &'a Shared,
    thread: usize,
    session: S,
    keys: M,
    script: Script,
    random: Random,
    population: u64,
    version: u32,
    removals: u64,
    report: Report,
}

/// The whole life of a thread. It always passes all three phases, or the others would wait for ever.
pub(crate) fn life<T: Target, M: KeyMaker<Key = T::Key>>(
    target: &T,
    keys: M,
    spec: &Spec,
    thread: usize,
    shared: &Shared,
) -> Result<Report> {
    let opened = guarded(|| {
        let share = match spec.length {
            Length::Operations(_) => spec.operations_of(thread).max(1),
            Length::Time(_) => u64::MAX,
        };
        let script = Script::draw(&spec.mix, spec.distribution, spec.records, spec.seed, thread as u64, share);
        Ok((target.session()?, script.map_err(EngineError::new)?))
    });
    shared.phase.wait();
    let started = opened.and_then(|(session, script)| {
        let mut worker = Worker {
            spec,
            shared,
            thread,
            session,
            keys,
            script,
            random: Random::for_stream(spec.seed ^ 0x5CA9, thread as u64),
            population: spec.records,
            version: 1 + thread as u32,
            removals: 0,
            report: Report::default(),
        };
        guarded(|| worker.warm_up()).map(|()| worker)
    });
    if started.is_err() {
        shared.stop.store(true, Ordering::Relaxed);
    }
    shared.phase.wait();
    shared.phase.wait();
    let finished = started.and_then(|mut worker| guarded(|| worker.measure()).map(|()| worker.report));
    if finished.is_err() {
        shared.stop.store(true, Ordering::Relaxed);
    }
    finished
}

/// Turns a panic into an error, because the threads that wait for this one must hear of it.
fn guarded<R>(work: impl FnOnce() -> Result<R>) -> Result<R> {
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    done.unwrap_or_else(|_| Err(EngineError::new("the index panicked; the message is above")))
}

impl<S: Session, M: KeyMaker<Key = S::Key>> Worker<'_, S, M> {
    fn warm_up(&mut self) -> Result<()> {
        while !self.shared.warm.load(Ordering::Relaxed) && !self.shared.stop.load(Ordering::Relaxed) {
            self.operation()?;
        }
        Ok(())
    }

    fn measure(&mut self) -> Result<()> {
        let (inserted, removed) = (self.report.inserted, self.report.removed);
        self.report = Report { inserted, removed, ..Report::default() };
        let limit = match self.spec.length {
            Length::Operations(_) => self.spec.operations_of(self.thread),
            Length::Time(_) => u64::MAX,
        };
        let (start, cpu) = (Instant::now(), thread_cpu_ns());
        let mut until_timed = 1;
        let mut done = 0;
        while done < limit && !self.shared.stop.load(Ordering::Relaxed) {
            until_timed -= 1;
            if until_timed == 0 {
                until_timed = self.spec.time_one_of;
                let begin = Instant::now();
                let kind = self.operation()?;
                let nanoseconds = begin.elapsed().as_nanos();
                self.report.latencies.note(kind, u64::try_from(nanoseconds).unwrap_or(u64::MAX));
            } else {
                self.operation()?;
            }
            done += 1;
            self.shared.done[self.thread].store(done, Ordering::Relaxed);
        }
        self.report.operations = done;
        self.report.seconds = start.elapsed().as_secs_f64();
        self.report.cpu_ns = thread_cpu_ns().zip(cpu).map(|(end, start)| end.saturating_sub(start));
        Ok(())
    }

    #[inline]
    fn operation(&mut self) -> Result<Kind> {
        let (kind, record) = self.script.next_operation(self.population);
        let found = match kind {
            Kind::Read => self.read(record)?,
            Kind::Update => self.update(record)?,
            Kind::ReadUpdate => self.read(record)? && self.update(record)?,
            Kind::Insert => self.insert()?,
            Kind::Remove => self.remove()?,
            Kind::Scan => {
                let (least, most) = (*self.spec.scan_keys.start(), *self.spec.scan_keys.end());
                let count = least + self.random.below(most - least + 1);
                self.report.scanned += self.session.scan(self.keys.key(record), count)?;
                true
            }
        };
        self.report.missing += u64::from(!found);
        Ok(kind)
    }

    #[inline]
    fn read(&mut self, record: u64) -> Result<bool> {
        match self.session.get(self.keys.key(record))? {
            Some(value) if belongs(record, value) => Ok(true),
            Some(value) => Err(wrong_value(record, value)),
            None => Ok(false),
        }
    }

    #[inline]
    fn update(&mut self, record: u64) -> Result<bool> {
        self.version = self.version.wrapping_add(1);
        self.session.update(self.keys.key(record), value_of(record, self.version))
    }

    fn insert(&mut self) -> Result<bool> {
        let threads = self.spec.threads as u64;
        let record = self.spec.first_new_record + self.thread as u64 + self.report.inserted * threads;
        let is_new = self.session.insert(self.keys.key(record), value_of(record, 0))?;
        if !is_new {
            return Err(EngineError::new(format!("record {record} is new, but the index says that its key is there")));
        }
        self.report.inserted += 1;
        // Release: a thread that sees the count may read the record.
        self.shared.inserted[self.thread].store(self.report.inserted, Ordering::Release);
        if self.report.inserted.is_multiple_of(LOOK_INTERVAL) {
            let slowest = self.shared.inserted.iter().map(|count| count.load(Ordering::Acquire)).min();
            self.population = self.spec.first_new_record + slowest.unwrap_or(0) * threads;
        }
        Ok(true)
    }

    fn remove(&mut self) -> Result<bool> {
        let record = self.thread as u64 + self.removals * self.spec.threads as u64;
        if record >= self.spec.records {
            return Ok(false);
        }
        self.removals += 1;
        let was_there = self.session.remove(self.keys.key(record))?;
        if !was_there {
            return Err(EngineError::new(format!(
                "record {record} was loaded and not removed, but its key is not there"
            )));
        }
        self.report.removed += 1;
        Ok(true)
    }
}

/// The error of a value that was never written under its key.
pub(crate) fn wrong_value(record: u64, value: u64) -> EngineError {
    EngineError::new(format!("record {record} holds {value:#x}, which was never its value; run the index's check"))
}

/// Processor time of the calling thread. It is steadier than wall time if other programs use the machine.
fn thread_cpu_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok()
}
