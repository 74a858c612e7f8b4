//! Loads an index, runs a mix on it from many threads, and checks the result. Both are scripts of the
//! [runner](lodestone_workload::race).
//!
//! 1. *Load*: the records, by number (their keys are scattered) or in order of their keys, from several threads.
//! 2. *Run*: every thread executes its tape. Every value read must belong to its key, every insert must be new, and
//!    every removal must find its key. If not, the run fails at once.
//! 3. *Check*: at the end the index must have as many keys as these operations imply.

use std::ops::RangeInclusive;
use std::time::Duration;

use lodestone_workload::engine::{EngineCounters, EngineError};
use lodestone_workload::keys::Distribution;
use lodestone_workload::mix::{Mix, OperationKind};
use lodestone_workload::race::{self, Length, Moment, Plan, Script};
use lodestone_workload::ycsb::InsertLedger;

use crate::key::{KeyMaker, value_of};
use crate::session::{Tally, Work};
use crate::target::{Result, Session, Target};

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
    /// Seed of all draws.
    pub seed: u64,
    /// The number of keys that a scan reads.
    pub scan_keys: RangeInclusive<u64>,
    /// Threads, times, and which operations are timed.
    pub plan: Plan,
}

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The measurement.
    pub run: race::Outcome,
    /// Counts of all threads.
    pub tally: Tally,
    /// Keys at the end; `None` if the target does not know.
    pub keys: Option<u64>,
    /// The target's own counts in the measured phase.
    pub counts: Vec<(&'static str, u64)>,
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
    let plan = Plan::new(threads.max(1), Length::Operations(records));
    let sorted = (order == LoadOrder::Sorted).then(|| sorted_records(keys, records));
    let (outcome, _) = race::run(&Load { target, keys, plan: &plan, sorted }, &plan, &mut |_| {})?;
    Ok(outcome.elapsed)
}

/// The load of a target.
struct Load<'a, T, M> {
    target: &'a T,
    keys: &'a M,
    plan: &'a Plan,
    /// Record numbers in order of their keys, for a load in that order.
    sorted: Option<Vec<u64>>,
}

impl<T: Target, M: KeyMaker<Key = T::Key>> Script for Load<'_, T, M> {
    const CLASSES: &'static [&'static str] = &["insert"];
    type Tally = ();
    type Session<'s>
        = Loading<'s, T::Session<'s>, M>
    where
        Self: 's;

    fn session(&self, thread: usize) -> Result<Self::Session<'_>> {
        let share = |thread| self.plan.operations_of(thread).unwrap_or(0);
        // By number, threads take turns. In order, each has its own range.
        let (next, stride) = match self.sorted {
            None => (thread as u64, self.plan.threads as u64),
            Some(_) => ((0..thread).map(share).sum(), 1),
        };
        let sorted = self.sorted.as_deref();
        Ok(Loading { session: self.target.load_session()?, keys: self.keys.clone(), sorted, next, stride })
    }

    fn finish(&self) -> Result<()> {
        self.target.finish_load()
    }
}

/// One thread of a load.
struct Loading<'s, S, M> {
    session: S,
    keys: M,
    sorted: Option<&'s [u64]>,
    next: u64,
    stride: u64,
}

impl<S: Session, M: KeyMaker<Key = S::Key>> race::Session for Loading<'_, S, M> {
    type Tally = ();

    fn step(&mut self) -> Result<usize> {
        let record = self.sorted.map_or(self.next, |sorted| sorted[self.next as usize]);
        self.next += self.stride;
        if self.session.insert(self.keys.key(record), value_of(record, 0))? {
            return Ok(0);
        }
        Err(EngineError::new(format!("record {record} is loaded once, but its key is there already")))
    }

    fn tally(self) {}
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
    if spec.records == 0 {
        return Err(EngineError::new("a run needs at least one record"));
    }
    if *spec.scan_keys.start() == 0 || spec.scan_keys.is_empty() {
        return Err(EngineError::new(format!("a scan cannot read {:?} keys", spec.scan_keys)));
    }
    if spec.mix.share(OperationKind::Scan) > 0 && !target.is_ordered() {
        return Err(crate::target::unordered(&target.name()));
    }
    let before = target.keys_now()?;
    let ledger = InsertLedger::new(spec.first_new_record, spec.plan.threads);
    let mut counts = Vec::new();
    let (run, tallies) = race::run(&Mixed { target, keys, spec, ledger }, &spec.plan, &mut |moment| {
        if let Moment::Start | Moment::End(_) = moment {
            noted();
            counts.push(target.counts());
        }
    })?;
    let since = |((name, now), (_, before)): ((_, u64), (_, u64))| (name, now.saturating_sub(before));
    let (at_end, at_start) = (counts.pop().unwrap_or_default(), counts.pop().unwrap_or_default());
    let counts = at_end.into_iter().zip(at_start).map(since).collect();
    let outcome = Outcome { run, tally: tallies.into_iter().sum(), keys: target.keys_now()?, counts };
    judge(target, spec, before, &outcome)?;
    Ok(outcome)
}

/// A mix on a target.
struct Mixed<'a, T, M> {
    target: &'a T,
    keys: &'a M,
    spec: &'a Spec,
    ledger: InsertLedger,
}

impl<T: Target, M: KeyMaker<Key = T::Key>> Script for Mixed<'_, T, M> {
    const CLASSES: &'static [&'static str] = &["read", "insert", "update", "remove", "scan", "read_update"];
    type Tally = Tally;
    type Session<'s>
        = Work<'s, T::Session<'s>, M>
    where
        Self: 's;

    fn session(&self, thread: usize) -> Result<Self::Session<'_>> {
        Work::new(self.target.session()?, self.keys.clone(), self.spec, thread, &self.ledger)
    }

    fn counters(&self) -> EngineCounters {
        self.target.counters()
    }
}

fn judge<T: Target>(target: &T, spec: &Spec, before: Option<u64>, outcome: &Outcome) -> Result<()> {
    let Some((before, after)) = before.zip(outcome.keys) else { return Ok(()) };
    let Tally { inserted, removed, .. } = outcome.tally;
    let expected = before + inserted - removed;
    if after == expected {
        return Ok(());
    }
    Err(EngineError::new(format!(
        "{}: {before} keys, {inserted} inserted and {removed} removed should leave {expected}, but there are {after} (mix {})",
        target.name(),
        spec.mix
    )))
}
