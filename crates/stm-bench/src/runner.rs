//! Runs a map from many threads and checks the result.
//!
//! 1. The load inserts its keys from one thread, in the order of the seed.
//! 2. Each thread makes its worker, runs its mix until the warm-up ends, and notes its counters at the first operation
//!    after it. Then it continues until the time or its share of the operations is used up.
//! 3. Threads time themselves. The throughput is the sum of each thread's operations divided by its own time. So a
//!    thread that starts late is not counted as idle.
//! 4. Afterwards one transaction reads the whole structure. It checks the order, the values, and the size against the
//!    inserts and removes that reported success. A run whose check fails has no figures.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lodestone_pmem::{Counters, thread_counters};
use lodestone_workload::engine::EngineError;
use lodestone_workload::result::BenchResult;

use crate::driver::{Driver, Session};
use crate::mix::{Mix, Operation, load_keys, value_of};
use crate::tm::Statistics;

/// The specification of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Keys of the loaded map. They are drawn from twice as many.
    pub keys: u64,
    /// Updates in a hundred operations.
    pub updates_percent: u64,
    /// Threads.
    pub threads: usize,
    /// Seed of all draws.
    pub seed: u64,
    /// When the run ends.
    pub length: Length,
}

/// When a run ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Length {
    /// After this time, following a warm-up.
    Time {
        /// Measured time.
        run: Duration,
        /// Time before it that is not measured.
        warm_up: Duration,
    },
    /// After this many operations of each thread.
    Operations(u64),
}

/// The result of a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Measured operations of all threads.
    pub operations: u64,
    /// Operations per second, all threads together.
    pub ops_per_s: f64,
    /// Measured time of the slowest thread, in seconds.
    pub seconds: f64,
    /// Updates that changed something.
    pub changes: u64,
    /// Commits and aborts.
    pub statistics: Statistics,
    /// Persistence events.
    pub counters: Counters,
    /// Processor time of all threads in the measured phase, in nanoseconds, if the system reports it.
    pub cpu_ns: Option<u64>,
}

/// Inserts the keys that `spec` defines.
///
/// # Errors
/// Those of the engine.
pub fn load<D: Driver>(driver: &D, spec: &Spec) -> Result<(), EngineError> {
    let mut session = driver.session()?;
    for key in load_keys(spec.seed, spec.keys) {
        session.insert(key, value_of(key))?;
    }
    Ok(())
}

/// Runs the mix on a loaded map and checks the map.
///
/// # Errors
/// Those of the engine, or a structure at the end that differs from the result of the operations.
pub fn run<D: Driver>(driver: &D, spec: &Spec) -> Result<Outcome, EngineError> {
    let most = driver.threads_max();
    if spec.threads == 0 || spec.threads > most {
        let name = driver.engine();
        return Err(EngineError::new(format!("{name} runs on 1 to {most} threads, not on {}", spec.threads)));
    }
    let before = driver.entries()?.pairs.len() as u64;
    let (ready, measuring, stop) = (Barrier::new(spec.threads + 1), AtomicBool::new(false), AtomicBool::new(false));
    let phases = Phases { ready: &ready, measuring: &measuring, stop: &stop };
    let reports = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..spec.threads as u64).map(|thread| scope.spawn(move || work(driver, spec, thread, &phases))).collect();
        ready.wait();
        if let Length::Time { run, warm_up } = spec.length {
            thread::sleep(warm_up);
            measuring.store(true, Ordering::Relaxed);
            thread::sleep(run);
            stop.store(true, Ordering::Relaxed);
        }
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<Vec<_>>()
    });
    let mut outcome = Outcome { cpu_ns: Some(0), ..Outcome::default() };
    let mut growth = 0_i64;
    for report in reports {
        let report = report?;
        growth += report.growth;
        outcome.add(&report.measured);
    }
    check(driver, before, growth)?;
    Ok(outcome)
}

/// Checks that the map is sound and has grown by `growth` entries.
fn check<D: Driver>(driver: &D, before: u64, growth: i64) -> Result<(), EngineError> {
    let all = driver.entries()?;
    let found = all.pairs.len() as u64;
    let finding = if let Some(fault) = all.fault {
        fault
    } else if let Some((key, value)) = all.pairs.iter().find(|(key, value)| *value != value_of(*key)) {
        format!("key {key} holds {value:#x}, which was never its value")
    } else if before.checked_add_signed(growth) != Some(found) {
        format!("{before} entries and a growth of {growth} should give another number than {found}")
    } else {
        return Ok(());
    };
    Err(EngineError::new(format!("{}: the structure is wrong after the run: {finding}", driver.engine())))
}

#[derive(Clone, Copy)]
struct Phases<'a> {
    ready: &'a Barrier,
    measuring: &'a AtomicBool,
    stop: &'a AtomicBool,
}

struct Report {
    growth: i64,
    measured: Outcome,
}

/// The counts of a thread at work.
#[derive(Clone, Copy)]
struct Mark {
    at: Instant,
    operations: u64,
    changes: u64,
    statistics: Statistics,
    counters: Counters,
    cpu_ns: Option<u64>,
}

fn work<D: Driver>(driver: &D, spec: &Spec, thread: u64, phases: &Phases<'_>) -> Result<Report, EngineError> {
    let session = driver.session();
    // Every thread passes the barrier, even one without a session, or the others would wait for ever.
    phases.ready.wait();
    let mut session = session?;
    let mut mix = Mix::new(spec.seed, thread, spec.updates_percent, spec.keys);
    let (mut operations, mut inserted, mut removed) = (0_u64, 0_u64, 0_u64);
    let limit = match spec.length {
        Length::Operations(count) => count,
        Length::Time { .. } => u64::MAX,
    };
    let mark = |session: &D::Session<'_>, operations, changes| Mark {
        at: Instant::now(),
        operations,
        changes,
        statistics: session.statistics(),
        counters: thread_counters(),
        cpu_ns: thread_cpu_ns(),
    };
    let mut start = mark(&session, 0, 0);
    let mut measuring = limit != u64::MAX;
    while operations < limit && !phases.stop.load(Ordering::Relaxed) {
        if !measuring && phases.measuring.load(Ordering::Relaxed) {
            measuring = true;
            start = mark(&session, operations, inserted + removed);
        }
        match mix.next_operation() {
            Operation::Get(key) => {
                std::hint::black_box(session.get(key)?);
            }
            Operation::Insert(key) => inserted += u64::from(session.insert(key, value_of(key))?),
            Operation::Remove(key) => removed += u64::from(session.remove(key)?),
        }
        operations += 1;
    }
    let end = mark(&session, operations, inserted + removed);
    let seconds = (end.at - start.at).as_secs_f64();
    let done = end.operations - start.operations;
    let measured = Outcome {
        operations: done,
        ops_per_s: if seconds > 0.0 { done as f64 / seconds } else { 0.0 },
        seconds,
        changes: end.changes - start.changes,
        statistics: end.statistics.since(&start.statistics),
        counters: end.counters - start.counters,
        cpu_ns: end.cpu_ns.zip(start.cpu_ns).map(|(end, start)| end.saturating_sub(start)),
    };
    let growth = i64::try_from(inserted).unwrap_or(i64::MAX) - i64::try_from(removed).unwrap_or(i64::MAX);
    Ok(Report { growth, measured })
}

/// Processor time of the calling thread. It is steadier than wall time if other programs use the machine.
fn thread_cpu_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok()
}

impl Outcome {
    fn add(&mut self, thread: &Self) {
        self.operations += thread.operations;
        self.ops_per_s += thread.ops_per_s;
        self.seconds = self.seconds.max(thread.seconds);
        self.changes += thread.changes;
        self.statistics.add(&thread.statistics);
        self.counters = add_counters(&self.counters, &thread.counters);
        self.cpu_ns = self.cpu_ns.zip(thread.cpu_ns).map(|(sum, next)| sum + next);
    }

    /// Operations per second if each thread always had its own processor. Computed from processor time, if the system
    /// reports it. On a busy machine this is the cost of the code, while wall time includes the cost of its neighbours.
    #[must_use]
    pub fn ops_per_cpu_s(&self, threads: usize) -> f64 {
        match self.cpu_ns {
            Some(cpu_ns) if cpu_ns > 0 => threads as f64 * self.operations as f64 * 1e9 / cpu_ns as f64,
            _ => self.ops_per_s,
        }
    }

    /// The record to print.
    #[must_use]
    pub fn result<D: Driver>(&self, driver: &D, spec: &Spec) -> BenchResult {
        let environment = driver.environment();
        let per_op = |count: u64| (self.operations > 0).then(|| round(count as f64 / self.operations as f64));
        let durable = driver.is_counted();
        let counted = |count: u64| if durable { per_op(count) } else { None };
        let mut result = BenchResult {
            bench: "stm".into(),
            engine: driver.engine(),
            workload: driver.structure().into(),
            records: spec.keys,
            operations: self.operations,
            threads: spec.threads as u64,
            seed: spec.seed,
            domain: environment.domain,
            media: environment.media,
            durability: environment.durability,
            ops_per_s: Some(self.ops_per_s.round()),
            fences_per_op: counted(self.counters.fences),
            flushes_per_op: counted(self.counters.flushes),
            pm_bytes_per_op: counted(self.counters.pm_bytes()),
            media_blocks_per_op: counted(self.counters.media_blocks),
            syncs_per_op: counted(self.counters.syncs),
            ..BenchResult::default()
        };
        let commits = self.statistics.commits.max(1);
        result.aborts_per_commit = Some(round(self.statistics.aborts() as f64 / commits as f64));
        result.set_extra("updates_percent", spec.updates_percent);
        result.set_extra("changes_per_op", per_op(self.changes));
        result.set_extra("shared_rmws_per_op", per_op(self.counters.shared_rmws));
        let per_change = |count: u64| (durable && self.changes > 0).then(|| round(count as f64 / self.changes as f64));
        result.set_extra("fences_per_change", per_change(self.counters.fences));
        result.set_extra("flushes_per_change", per_change(self.counters.flushes));
        result.set_extra("pm_bytes_per_change", per_change(self.counters.pm_bytes()));
        result.set_extra("shared_rmws_per_change", per_change(self.counters.shared_rmws));
        result.set_extra("aborts_locked", self.statistics.aborts_locked);
        result.set_extra("aborts_newer", self.statistics.aborts_newer);
        result.set_extra("aborts_validation", self.statistics.aborts_validation);
        result.set_extra("aborts_other", self.statistics.aborts_other);
        result.set_extra("seconds", round(self.seconds));
        result.set_extra("cpu_ns_per_op", self.cpu_ns.and_then(per_op));
        result
    }
}

fn round(figure: f64) -> f64 {
    (figure * 1e4).round() / 1e4
}

/// The sum. [`Counters`] has only differences, so that nothing else can be mistaken for a snapshot.
fn add_counters(sum: &Counters, next: &Counters) -> Counters {
    let mut added = *sum;
    added.flushes += next.flushes;
    added.fences += next.fences;
    added.streamed_bytes += next.streamed_bytes;
    added.media_blocks += next.media_blocks;
    added.journal_bytes += next.journal_bytes;
    added.syncs += next.syncs;
    added.durables += next.durables;
    added.shared_rmws += next.shared_rmws;
    added
}
