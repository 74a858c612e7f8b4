//! Loads an index, runs a mix on it from many threads, and checks the result.
//!
//! 1. *Load*: the records, by number (their keys are scattered) or in order of their keys, from several threads.
//! 2. *Warm-up*: every thread runs its script for a while. Then all stop, and the counters are noted.
//! 3. *Measured phase*: until the time is over or each thread has done its share. At every interval the coordinator
//!    notes how many operations are done. Only one of every so many operations is timed.
//! 4. *Check*: every value read must belong to its key, every insert must be new, and every removal must find its key.
//!    If not, the run fails at once. At the end the index must have as many keys as these operations imply.
//!
//! Throughput is the sum of each thread's operations divided by its own time.

use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lodestone_workload::engine::{EngineCounters, EngineError};
use lodestone_workload::keys::Distribution;

use crate::key::{KeyMaker, value_of};
use crate::mix::{Kind, Mix};
use crate::target::{Result, Session, Target};
use crate::worker::{Latencies, Report, Shared, empty_histogram, life};

/// When a run ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Length {
    /// After this time.
    Time(Duration),
    /// After this many operations of all threads together. Counts are then the same in every run of one thread.
    Operations(u64),
}

/// The order in which the records are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadOrder {
    /// By number: the keys are scattered.
    Random,
    /// By key, each thread its own range.
    Sorted,
}

/// The specification of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Loaded records.
    pub records: u64,
    /// Number of the first record that was never inserted.
    pub first_new_record: u64,
    /// Shares of operations.
    pub mix: Mix,
    /// The distribution of the records that they touch.
    pub distribution: Distribution,
    /// Threads.
    pub threads: usize,
    /// Seed of all draws.
    pub seed: u64,
    /// Time before the measured phase.
    pub warm_up: Duration,
    /// When the run ends.
    pub length: Length,
    /// The number of keys that a scan reads.
    pub scan_keys: RangeInclusive<u64>,
    /// One of every this many operations is timed.
    pub time_one_of: u64,
    /// Time between two samples of the throughput.
    pub sample_interval: Duration,
}

impl Spec {
    /// Operations of one thread.
    #[must_use]
    pub fn operations_of(&self, thread: usize) -> u64 {
        let (threads, thread) = (self.threads as u64, thread as u64);
        match self.length {
            Length::Operations(all) => all / threads + u64::from(thread < all % threads),
            Length::Time(_) => u64::MAX,
        }
    }
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Measured operations.
    pub operations: u64,
    /// The sum of each thread's operations divided by its own time.
    pub ops_per_s: f64,
    /// Measured time of the slowest thread.
    pub seconds: f64,
    /// Processor time of all threads, if the system reports it.
    pub cpu_ns: Option<u64>,
    /// Reads and updates of removed records.
    pub missing: u64,
    /// Keys that scans read.
    pub scanned: u64,
    /// Inserts since the load, warm-up included.
    pub inserted: u64,
    /// Removals since the load.
    pub removed: u64,
    /// Keys at the end; `None` if the target does not know.
    pub keys: Option<u64>,
    /// Persistence events of the measured phase.
    pub counters: EngineCounters,
    /// The target's own counts in the measured phase.
    pub counts: Vec<(&'static str, u64)>,
    /// Operations done so far, at each sample: seconds and count.
    pub samples: Vec<(f64, u64)>,
    /// Latencies of the timed operations.
    pub latency: Option<Histogram<u64>>,
    /// The same by kind.
    pub latency_by_kind: Vec<(Kind, Histogram<u64>)>,
}

/// Inserts the records. Returns the time it took.
///
/// # Errors
/// Those of the target.
pub fn load<T: Target, M: KeyMaker<Key = T::Key>>(
    target: &T,
    keys: &M,
    records: u64,
    threads: usize,
    order: LoadOrder,
) -> Result<Duration> {
    let sorted = (order == LoadOrder::Sorted).then(|| sorted_records(keys, records));
    let start = Instant::now();
    let part = |thread: u64| -> Result<()> {
        let mut session = target.load_session()?;
        let mut keys = keys.clone();
        let mut insert = |record| -> Result<()> {
            let is_new = session.insert(keys.key(record), value_of(record, 0))?;
            let twice = || EngineError::new(format!("record {record} is loaded once, but its key is there already"));
            if is_new { Ok(()) } else { Err(twice()) }
        };
        let threads = threads as u64;
        match &sorted {
            None => (thread..records).step_by(threads as usize).try_for_each(insert),
            Some(sorted) => {
                let bound = |thread: u64| (u128::from(records) * u128::from(thread) / u128::from(threads)) as usize;
                sorted[bound(thread)..bound(thread + 1)].iter().try_for_each(|record| insert(*record))
            }
        }
    };
    thread::scope(|scope| {
        let part = &part;
        let parts: Vec<_> = (0..threads.max(1) as u64).map(|number| scope.spawn(move || part(number))).collect();
        parts.into_iter().try_for_each(|part| part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    target.finish_load()?;
    Ok(start.elapsed())
}

/// Record numbers in order of their keys.
fn sorted_records<M: KeyMaker>(keys: &M, records: u64) -> Vec<u64> {
    let mut keys = keys.clone();
    // The first eight bytes are a bijection of the record's number, so they order the keys.
    let mut all: Vec<(u64, u64)> =
        (0..records).map(|record| (lodestone_index::IndexKey::order_word(keys.key(record)), record)).collect();
    all.sort_unstable();
    all.into_iter().map(|(_, record)| record).collect()
}

/// Runs the mix on loaded records and checks the index. `noted` is called between warm-up and measured phase and once
/// more at the end, each time while no operation is under way.
///
/// # Errors
/// Those of the target, a wrong answer, or a number of keys at the end that the operations do not explain.
pub fn run<T: Target, M: KeyMaker<Key = T::Key>>(
    target: &T,
    keys: &M,
    spec: &Spec,
    noted: &mut dyn FnMut(),
) -> Result<Outcome> {
    if spec.threads == 0 || spec.records == 0 || spec.time_one_of == 0 {
        return Err(EngineError::new("threads, records and operations per timed one are at least 1"));
    }
    if *spec.scan_keys.start() == 0 || spec.scan_keys.is_empty() {
        return Err(EngineError::new(format!("a scan cannot read {:?} keys", spec.scan_keys)));
    }
    if spec.mix.share(Kind::Scan) > 0 && !target.is_ordered() {
        return Err(crate::target::unordered(&target.name()));
    }
    let before = target.keys_now()?;
    let shared = Shared::new(spec.threads);
    let mut outcome = Outcome::default();
    let report = thread::scope(|scope| {
        let (sender, finished) = channel();
        let threads: Vec<_> = (0..spec.threads)
            .map(|thread| {
                let (shared, keys, sender) = (&shared, keys.clone(), sender.clone());
                scope.spawn(move || {
                    let found = life(target, keys, spec, thread, shared);
                    // The coordinator has gone only if it panicked, and the scope passes that panic on.
                    sender.send(()).ok();
                    found
                })
            })
            .collect();
        // Without a warm-up no thread may begin with one, so that counts of operations are exact.
        shared.warm.store(spec.warm_up.is_zero(), Ordering::Relaxed);
        shared.phase.wait();
        thread::sleep(spec.warm_up);
        shared.warm.store(true, Ordering::Relaxed);
        shared.phase.wait();
        noted();
        let (counters, counts) = (target.counters(), target.counts());
        shared.phase.wait();
        coordinate(spec, &shared, &finished, &mut outcome.samples);
        let mut sum = Report { cpu_ns: Some(0), ..Report::default() };
        for thread in threads {
            let report = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            sum.seconds = sum.seconds.max(report.seconds);
            outcome.ops_per_s += report.operations as f64 / report.seconds.max(1e-9);
            sum.add(report);
        }
        noted();
        outcome.counters = target.counters().since(&counters);
        let since = |((name, now), (_, before)): ((_, u64), (_, u64))| (name, now.saturating_sub(before));
        outcome.counts = target.counts().into_iter().zip(counts).map(since).collect();
        Ok(sum)
    })?;
    outcome.take(report);
    outcome.keys = target.keys_now()?;
    judge(target, spec, before, &outcome)?;
    Ok(outcome)
}

/// Waits for the end of the measured phase and samples the throughput.
fn coordinate(spec: &Spec, shared: &Shared, finished: &std::sync::mpsc::Receiver<()>, samples: &mut Vec<(f64, u64)>) {
    let start = Instant::now();
    let mut left = spec.threads;
    while left > 0 {
        let mut patience = spec.sample_interval;
        if let Length::Time(time) = spec.length {
            let rest = time.saturating_sub(start.elapsed());
            if rest.is_zero() {
                shared.stop.store(true, Ordering::Relaxed);
            } else {
                patience = patience.min(rest);
            }
        }
        match finished.recv_timeout(patience) {
            Ok(()) => left -= 1,
            Err(RecvTimeoutError::Timeout) => samples.push((start.elapsed().as_secs_f64(), shared.operations())),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
    samples.push((start.elapsed().as_secs_f64(), shared.operations()));
}

fn judge<T: Target>(target: &T, spec: &Spec, before: Option<u64>, outcome: &Outcome) -> Result<()> {
    let Some((before, after)) = before.zip(outcome.keys) else { return Ok(()) };
    let expected = before + outcome.inserted - outcome.removed;
    if after == expected {
        return Ok(());
    }
    Err(EngineError::new(format!(
        "{}: {before} keys, {} inserted and {} removed should leave {expected}, but there are {after} (mix {})",
        target.name(),
        outcome.inserted,
        outcome.removed,
        spec.mix
    )))
}

impl Report {
    fn add(&mut self, other: Self) {
        self.inserted += other.inserted;
        self.removed += other.removed;
        self.operations += other.operations;
        self.missing += other.missing;
        self.scanned += other.scanned;
        self.cpu_ns = self.cpu_ns.zip(other.cpu_ns).map(|(sum, next)| sum + next);
        self.latencies.add(other.latencies);
    }
}

impl Outcome {
    fn take(&mut self, report: Report) {
        let Report { inserted, removed, operations, missing, scanned, seconds, cpu_ns, latencies } = report;
        (self.inserted, self.removed, self.operations, self.missing) = (inserted, removed, operations, missing);
        (self.scanned, self.seconds, self.cpu_ns) = (scanned, seconds, cpu_ns);
        self.latency_by_kind = latencies.by_kind().map(|(kind, histogram)| (kind, histogram.clone())).collect();
        self.latency = merged(&latencies);
    }
}

fn merged(latencies: &Latencies) -> Option<Histogram<u64>> {
    latencies.by_kind().map(|(_, histogram)| histogram).fold(None, |sum: Option<Histogram<u64>>, next| {
        let mut sum = sum.unwrap_or_else(empty_histogram);
        sum.add(next).unwrap_or_else(|error| unreachable!("histograms have equal bounds: {error}"));
        Some(sum)
    })
}
