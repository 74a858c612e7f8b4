//! Runs a map from many threads and checks the result, as a script of the [runner](lodestone_workload::race).
//!
//! 1. The load inserts its keys from one thread, in the order of the seed.
//! 2. Each thread makes its worker and runs its mix. Nothing is timed but the whole.
//! 3. Afterwards one transaction reads the whole structure. It checks the order, the values, and the size against the
//!    inserts and removes that reported success. A run whose check fails has no figures.

use std::iter::Sum;

use lodestone_pmem::{Counters, thread_counters};
use lodestone_workload::engine::EngineError;
use lodestone_workload::mix::OperationKind;
use lodestone_workload::race::{self, Plan, Script};
use lodestone_workload::result::{BenchResult, rounded};

use crate::driver::{Driver, Session};
use crate::mix::{Stream, load_keys, value_of};
use crate::records::engine_counters;
use crate::tm::Statistics;

/// The specification of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Keys of the loaded map. They are drawn from twice as many.
    pub keys: u64,
    /// Updates in a hundred operations.
    pub updates_percent: u64,
    /// Seed of all draws.
    pub seed: u64,
    /// Threads and times.
    pub plan: Plan,
}

/// The result of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The measurement.
    pub run: race::Outcome,
    /// Counts of all threads.
    pub tally: Tally,
}

/// A thread's counts in the measured phase, or those of all threads.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    /// Inserts less removes since the load, warm-up included.
    pub growth: i64,
    /// Updates that changed something.
    pub changes: u64,
    /// Commits and aborts.
    pub statistics: Statistics,
    /// Persistence events.
    pub counters: Counters,
}

impl Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), |mut sum, next| {
            sum.growth += next.growth;
            sum.changes += next.changes;
            sum.statistics.add(&next.statistics);
            sum.counters = add_counters(&sum.counters, &next.counters);
            sum
        })
    }
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
    let (threads, most) = (spec.plan.threads, driver.threads_max());
    if threads == 0 || threads > most {
        let name = driver.engine();
        return Err(EngineError::new(format!("{name} runs on 1 to {most} threads, not on {threads}")));
    }
    let before = driver.entries()?.pairs.len() as u64;
    let (run, tallies) = race::run(&Mixed { driver, spec }, &spec.plan, &mut |_| {})?;
    let tally: Tally = tallies.into_iter().sum();
    check(driver, before, tally.growth)?;
    Ok(Outcome { run, tally })
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

/// A mix on a map.
struct Mixed<'a, D> {
    driver: &'a D,
    spec: &'a Spec,
}

impl<D: Driver> Script for Mixed<'_, D> {
    const CLASSES: &'static [&'static str] = &OperationKind::NAMES;
    type Tally = Tally;
    type Session<'s>
        = Work<D::Session<'s>>
    where
        Self: 's;

    fn session(&self, thread: usize) -> Result<Self::Session<'_>, EngineError> {
        let Spec { keys, updates_percent, seed, .. } = *self.spec;
        Ok(Work {
            session: self.driver.session()?,
            stream: Stream::new(seed, thread as u64, updates_percent, keys),
            changes: 0,
            growth: 0,
            start: Tally::default(),
        })
    }
}

/// One thread at work.
struct Work<S> {
    session: S,
    stream: Stream,
    changes: u64,
    growth: i64,
    /// Counts at the start of the measured phase.
    start: Tally,
}

impl<S: Session> race::Session for Work<S> {
    type Tally = Tally;

    #[inline]
    fn step(&mut self) -> Result<usize, EngineError> {
        let (kind, key) = self.stream.next_operation();
        if self.session.apply(kind, key)? {
            self.changes += 1;
            self.growth += if kind == OperationKind::Insert { 1 } else { -1 };
        }
        Ok(kind.index())
    }

    fn mark(&mut self) {
        let Self { changes, growth, .. } = *self;
        self.start = Tally { growth, changes, statistics: self.session.statistics(), counters: thread_counters() };
    }

    fn tally(self) -> Tally {
        let Self { session, changes, growth, start, .. } = self;
        Tally {
            growth,
            changes: changes - start.changes,
            statistics: session.statistics().since(&start.statistics),
            counters: thread_counters() - start.counters,
        }
    }
}

impl Outcome {
    /// The record to print.
    #[must_use]
    pub fn result<D: Driver>(&self, driver: &D, spec: &Spec) -> BenchResult {
        let Tally { changes, statistics, counters, .. } = &self.tally;
        let durable = driver.is_counted();
        let per_op = |count| self.run.per_op(count);
        let mut result = BenchResult {
            bench: "stm".into(),
            engine: driver.engine(),
            workload: driver.structure().into(),
            records: spec.keys,
            seed: spec.seed,
            ..BenchResult::of(driver.environment(), &self.run)
        };
        if durable {
            result.set_counters(&engine_counters(counters, false));
        }
        let commits = statistics.commits.max(1);
        result.aborts_per_commit = Some(rounded(statistics.aborts() as f64 / commits as f64));
        result.set_extra("updates_percent", spec.updates_percent);
        result.set_extra("changes_per_op", per_op(*changes));
        result.set_extra("shared_rmws_per_op", per_op(counters.shared_rmws));
        let per_change = |count: u64| (durable && *changes > 0).then(|| rounded(count as f64 / *changes as f64));
        result.set_extra("fences_per_change", per_change(counters.fences));
        result.set_extra("flushes_per_change", per_change(counters.flushes));
        result.set_extra("pm_bytes_per_change", per_change(counters.pm_bytes()));
        result.set_extra("shared_rmws_per_change", per_change(counters.shared_rmws));
        result.set_extra("aborts_locked", statistics.aborts_locked);
        result.set_extra("aborts_newer", statistics.aborts_newer);
        result.set_extra("aborts_validation", statistics.aborts_validation);
        result.set_extra("aborts_other", statistics.aborts_other);
        result.set_extra("seconds", rounded(self.run.seconds));
        result.set_extra("cpu_ns_per_op", self.run.cpu_ns.and_then(per_op));
        result
    }
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
