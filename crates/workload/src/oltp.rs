//! Transactions over tables, written once for every engine: TPC-C, TPC-B and SmallBank.
//!
//! An engine implements [`OltpEngine`], [`Worker`] and [`Access`]. A workload implements [`Workload`] and [`Terminal`].
//! Transactions are types ([`Transaction`]), generic over the access, so they are compiled for each engine and no call
//! in them is virtual.
//!
//! **Rows are packed bytes under a number.** A table has a key of one number, or of a number and a text, and rows of
//! bytes. Workloads pack several columns into the number, so that the order of numbers is the order of the columns,
//! and change fields of a row in place ([`fields`]). Every engine then does the same: it finds a key and moves bytes.
//! No engine pays for the conversion of columns that the workload does not look at, or for a form of the columns that
//! suits another engine. An adaptor stays small: SQL has `(k integer, t text, v blob)`, a store of byte strings has
//! the number in big-endian before the text.
//!
//! 1. [`load`] fills the tables from several threads.
//! 2. [`run`] drives a terminal on each thread through the one [runner](crate::race).
//! 3. [`verify`] checks the rules that hold after any run and any crash. It names each rule that rows break.
//!
//! | module | what it owns |
//! | --- | --- |
//! | [`fields`] | fields of packed rows |
//! | [`tpcc`] | TPC-C: nine tables, five transactions, twelve consistency conditions |
//! | [`tpcb`] | TPC-B and its sums |
//! | [`smallbank`] | SmallBank and its sum |
//! | [`memory`] | tables in DRAM as the simplest engine |
//!
//! ```
//! use lodestone_workload::oltp::memory::MemoryTables;
//! use lodestone_workload::oltp::tpcb::TpcB;
//! use lodestone_workload::oltp::{Workload, load, run, verify};
//! use lodestone_workload::race::{Length, Plan};
//!
//! let (engine, bank) = (MemoryTables::new(TpcB::TABLES), TpcB { branches: 2, accounts_per_branch: 100 });
//! load(&engine, &bank, 2, 1)?;
//! let outcome = run(&engine, &bank, &Plan::new(2, Length::Operations(500)), 1)?;
//! assert_eq!(outcome.tally.committed(), 500);
//! assert!(verify(&engine, &bank, outcome.tally.effect)?.is_empty());
//! # Ok::<(), lodestone_workload::engine::EngineError>(())
//! ```

pub mod fields;
pub mod memory;
mod scan;
mod session;
pub mod smallbank;
pub mod tpcb;
pub mod tpcc;

use std::collections::VecDeque;
use std::fmt;
use std::ops::{ControlFlow, Range};
use std::time::Instant;

use crate::engine::{EngineCounters, EngineError, Environment, Result};
use crate::race::{self, Latencies, Length, Moment, Plan, Script};
use crate::result::{BenchResult, rounded};

pub use scan::{count_rows, for_each_row};

/// The shape of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableSpec {
    /// Its name.
    pub name: &'static str,
    /// Whether keys have a text after the number.
    pub has_text: bool,
}

impl TableSpec {
    /// A table whose keys are numbers.
    #[must_use]
    pub const fn numbers(name: &'static str) -> Self {
        Self { name, has_text: false }
    }

    /// A table whose keys are a number and a text.
    #[must_use]
    pub const fn texts(name: &'static str) -> Self {
        Self { name, has_text: true }
    }
}

/// A table: its place in [`Workload::TABLES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Table(pub usize);

/// A key. Keys are in the order of their numbers, then of the bytes of their texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key<'k> {
    /// The number. It is below 2^63, so that signed columns keep the order.
    pub number: u64,
    /// The text; empty in tables without texts, and only there.
    pub text: &'k str,
}

impl From<u64> for Key<'static> {
    fn from(number: u64) -> Self {
        Self { number, text: "" }
    }
}

/// The direction of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// From the first key.
    Ascending,
    /// From the last key.
    Descending,
}

/// The function that a scan calls with each row. It ends the scan by [`ControlFlow::Break`].
pub type Visit<'v> = dyn FnMut(Key<'_>, &[u8]) -> ControlFlow<()> + 'v;

/// The operations inside a transaction.
///
/// A transaction passes an `Abort` on at once. Only the engine interprets it.
pub trait Access {
    /// Why the engine wants the transaction to stop.
    type Abort;

    /// Reads the row of `key` into `row`, cleared first. Returns whether there is one.
    ///
    /// # Errors
    /// The engine's abort.
    fn get(&mut self, table: Table, key: Key<'_>, row: &mut Vec<u8>) -> Result<bool, Self::Abort>;

    /// As [`get`](Self::get), of a row that the transaction will change. An engine with locks takes one.
    ///
    /// # Errors
    /// The engine's abort.
    fn get_to_change(&mut self, table: Table, key: Key<'_>, row: &mut Vec<u8>) -> Result<bool, Self::Abort> {
        self.get(table, key, row)
    }

    /// Replaces the row of `key`, which the transaction has read, or adds one.
    ///
    /// # Errors
    /// The engine's abort.
    fn put(&mut self, table: Table, key: Key<'_>, row: &[u8]) -> Result<(), Self::Abort>;

    /// Adds a row. The engine refuses it if there is one with this key.
    ///
    /// # Errors
    /// The engine's abort, for a second row with this key too.
    fn insert(&mut self, table: Table, key: Key<'_>, row: &[u8]) -> Result<(), Self::Abort>;

    /// Removes the row of `key`. Returns whether there was one.
    ///
    /// # Errors
    /// The engine's abort.
    fn delete(&mut self, table: Table, key: Key<'_>) -> Result<bool, Self::Abort>;

    /// Visits the rows from `range.start` to before `range.end`, own changes included.
    ///
    /// # Errors
    /// The engine's abort.
    fn scan(
        &mut self,
        table: Table,
        range: Range<Key<'_>>,
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), Self::Abort>;

    /// The abort of a transaction that decided to change nothing.
    fn cancel(&mut self) -> Self::Abort;

    /// The abort of a transaction that found rows which cannot be. The run ends with an error of this text.
    fn fault(&mut self, finding: String) -> Self::Abort;
}

/// A transaction.
pub trait Transaction {
    /// Its answer.
    type Out;

    /// Whether it never changes a row.
    const IS_READ_ONLY: bool = false;

    /// Whether it may be cancelled after it has changed rows.
    const CANCELS_LATE: bool = false;

    /// One attempt. It may be called many times and must not keep results of earlier calls.
    ///
    /// # Errors
    /// The abort of `access`.
    fn run<X: Access>(&mut self, access: &mut X) -> Result<Self::Out, X::Abort>;
}

/// One thread's access to an engine.
pub trait Worker {
    /// Runs `transaction` until it commits. `None`: it was cancelled. On return it is acknowledged, unless the engine
    /// has an [`OltpEngine::unacknowledged_max`].
    ///
    /// # Errors
    /// A failure that another attempt would not cure.
    fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<Option<T::Out>>;

    /// Waits until at most `count_max` of the transactions that [`run`](Self::run) has returned are not acknowledged,
    /// and returns their number. They are acknowledged in the order in which they were run.
    ///
    /// # Errors
    /// If a transaction may be lost.
    fn acknowledge(&mut self, _count_max: usize) -> Result<usize> {
        Ok(0)
    }

    /// Attempts since the worker was made. Those that neither committed nor were cancelled lost to others.
    fn attempts(&self) -> u64;

    /// The persistence events of this thread so far, if the engine knows them.
    fn counters(&self) -> EngineCounters {
        EngineCounters::default()
    }
}

/// An engine under test, with the tables of a workload.
pub trait OltpEngine: Sync {
    /// One thread's access.
    type Worker<'e>: Worker
    where
        Self: 'e;

    /// Name for results.
    fn name(&self) -> String;

    /// A worker for the calling thread.
    ///
    /// # Errors
    /// If there are no more.
    fn worker(&self) -> Result<Self::Worker<'_>>;

    /// A worker for the load. It may acknowledge early, because [`finish_load`](Self::finish_load) follows.
    ///
    /// # Errors
    /// As [`worker`](Self::worker).
    fn load_worker(&self) -> Result<Self::Worker<'_>> {
        self.worker()
    }

    /// The number of transactions that a worker runs before the first of them is acknowledged. With 0 a transaction is
    /// acknowledged when [`Worker::run`] returns. Otherwise the worker goes on meanwhile, and [`run`] notes latencies
    /// from the begin of a transaction until [`Worker::acknowledge`] reports it. That is after each transaction.
    fn unacknowledged_max(&self) -> usize {
        0
    }

    /// Makes all loaded rows durable and lets background work settle.
    ///
    /// # Errors
    /// If the rows could not be made durable.
    fn finish_load(&self) -> Result<()> {
        Ok(())
    }

    /// Where it runs, and the meaning of a commit.
    fn environment(&self) -> Environment;

    /// Persistence events of all threads so far.
    fn counters(&self) -> EngineCounters {
        EngineCounters::default()
    }
}

/// The outcome of a transaction of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// Its class, an index into [`Workload::CLASSES`].
    pub class: usize,
    /// Whether it ended by its own decision, without changes.
    pub is_cancelled: bool,
    /// Its effect on the sum that [`Workload::verify`] expects.
    pub effect: i64,
    /// A row that exists for ever since it committed.
    pub receipt: Option<(Table, u64)>,
}

/// Rows that break a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Number of the rule, as the workload counts them.
    pub rule: u32,
    /// The rule and the rows, in words.
    pub finding: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "condition {}: {}", self.rule, self.finding)
    }
}

/// Tables, their load, transactions, and rules.
pub trait Workload: Sync {
    /// Name in results.
    const NAME: &'static str;
    /// Names of the classes of transactions.
    const CLASSES: &'static [&'static str];
    /// The tables.
    const TABLES: &'static [TableSpec];

    /// The source of one thread's transactions.
    type Terminal<'w>: Terminal
    where
        Self: 'w;

    /// The number of parts that the load consists of. Threads load parts independently.
    fn parts(&self) -> u64;

    /// Loads a part.
    ///
    /// # Errors
    /// Those of the engine.
    fn load_part<W: Worker>(&self, worker: &mut W, part: u64, seed: u64) -> Result<()>;

    /// Rows after the load.
    fn rows(&self) -> u64;

    /// The terminal of thread `thread` of `threads`.
    ///
    /// # Errors
    /// Those of the engine; a number of threads that the workload cannot use.
    fn terminal<W: Worker>(
        &self,
        worker: &mut W,
        thread: usize,
        threads: usize,
        seed: u64,
    ) -> Result<Self::Terminal<'_>>;

    /// Checks the rules that hold between transactions. `effect` is the sum of the effects of all transactions since
    /// the load; `None` if it is unknown.
    ///
    /// # Errors
    /// Those of the engine.
    fn verify<W: Worker>(&self, worker: &mut W, effect: Option<i64>) -> Result<Vec<Violation>>;
}

/// The source of one thread's transactions.
pub trait Terminal {
    /// Draws the next transaction.
    fn draw(&mut self);

    /// Runs it: one transaction of the worker.
    ///
    /// # Errors
    /// Those of the engine.
    fn step<W: Worker>(&mut self, worker: &mut W) -> Result<Done>;
}

/// Counts of one class of transactions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassTally {
    /// Those that committed.
    pub committed: u64,
    /// Those that ended by their own decision.
    pub cancelled: u64,
    /// Persistence events of the threads that ran them.
    pub counters: EngineCounters,
}

/// The counts of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// By class, in the measured phase.
    pub classes: Vec<ClassTally>,
    /// Attempts in the measured phase.
    pub attempts: u64,
    /// The sum of the effects of all transactions, those of the warm-up among them.
    pub effect: i64,
}

impl Tally {
    /// Transactions that committed.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.classes.iter().map(|class| class.committed).sum()
    }

    /// Transactions that ended by their own decision.
    #[must_use]
    pub fn cancelled(&self) -> u64 {
        self.classes.iter().map(|class| class.cancelled).sum()
    }

    /// Attempts that lost to other transactions.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.attempts.saturating_sub(self.committed() + self.cancelled())
    }

    fn add(&mut self, other: &Self) {
        self.classes.resize_with(other.classes.len(), ClassTally::default);
        for (sum, next) in self.classes.iter_mut().zip(&other.classes) {
            sum.committed += next.committed;
            sum.cancelled += next.cancelled;
            sum.counters = sum.counters.plus(&next.counters);
        }
        self.attempts += other.attempts;
        self.effect += other.effect;
    }
}

/// The measured phase of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The measurement.
    pub run: race::Outcome,
    /// The counts.
    pub tally: Tally,
}

/// Fills the tables from `threads` threads.
///
/// # Errors
/// Those of the engine.
pub fn load<E: OltpEngine, L: Workload>(engine: &E, workload: &L, threads: usize, seed: u64) -> Result<race::Outcome> {
    let plan = Plan::new(threads, Length::Operations(workload.parts()));
    Ok(race::run(&Load { engine, workload, threads, seed }, &plan, &mut |_| {})?.0)
}

/// Runs the terminals of `plan.threads` threads on loaded tables.
///
/// # Errors
/// Those of the engine.
pub fn run<E: OltpEngine, L: Workload>(engine: &E, workload: &L, plan: &Plan, seed: u64) -> Result<Outcome> {
    run_and_tell(engine, workload, plan, seed, &mut |_| {})
}

/// As [`run`]. `tell` is called at each [`Moment`].
///
/// # Errors
/// As [`run`].
pub fn run_and_tell<E: OltpEngine, L: Workload>(
    engine: &E,
    workload: &L,
    plan: &Plan,
    seed: u64,
    tell: &mut dyn FnMut(Moment),
) -> Result<Outcome> {
    let is_later = engine.unacknowledged_max() > 0;
    // Then the sessions take the time, and no other one.
    let time_one_of = if is_later { 0 } else { plan.time_one_of };
    let plan = Plan { time_one_of, ..plan.clone() };
    let (mut run, tallies) = race::run(&Mix { engine, workload, threads: plan.threads, seed }, &plan, tell)?;
    let (mut tally, mut latencies) = (Tally::default(), Latencies::new(L::CLASSES.len()));
    for (part, noted) in tallies {
        tally.add(&part);
        latencies.add(noted);
    }
    if is_later {
        (run.latency, run.latency_by_class) = latencies.merge(L::CLASSES);
    }
    Ok(Outcome { run, tally })
}

/// Checks the rules of the workload. `effect` is the sum of the [effects](Tally::effect) of all runs since the load.
///
/// # Errors
/// Those of the engine.
pub fn verify<E: OltpEngine, L: Workload>(
    engine: &E,
    workload: &L,
    effect: impl Into<Option<i64>>,
) -> Result<Vec<Violation>> {
    workload.verify(&mut engine.worker()?, effect.into())
}

/// The load as a script of the runner.
struct Load<'a, E, L> {
    engine: &'a E,
    workload: &'a L,
    threads: usize,
    seed: u64,
}

/// One thread of the load.
struct Loading<'a, L, W> {
    workload: &'a L,
    worker: W,
    part: u64,
    step: u64,
    seed: u64,
}

impl<E: OltpEngine, L: Workload> Script for Load<'_, E, L> {
    const CLASSES: &'static [&'static str] = &["part"];
    type Tally = ();
    type Session<'s>
        = Loading<'s, L, E::Worker<'s>>
    where
        Self: 's;

    fn session(&self, thread: usize) -> Result<Self::Session<'_>> {
        let (worker, step) = (self.engine.load_worker()?, self.threads as u64);
        Ok(Loading { workload: self.workload, worker, part: thread as u64, step, seed: self.seed })
    }

    fn finish(&self) -> Result<()> {
        self.engine.finish_load()
    }
}

impl<L: Workload, W: Worker> race::Session for Loading<'_, L, W> {
    type Tally = ();

    fn step(&mut self) -> Result<usize> {
        self.workload.load_part(&mut self.worker, self.part, self.seed)?;
        self.part += self.step;
        Ok(0)
    }

    fn tally(self) {}
}

/// The mix as a script of the runner.
struct Mix<'a, E, L> {
    engine: &'a E,
    workload: &'a L,
    threads: usize,
    seed: u64,
}

/// One thread of the mix.
struct Mixing<T, W> {
    worker: W,
    terminal: T,
    tally: Tally,
    attempts_before: u64,
    later: Later,
}

/// Transactions that are acknowledged after their step.
struct Later {
    /// 0: there are none.
    unacknowledged_max: usize,
    /// The class and the begin of each, in their order.
    begun: VecDeque<(usize, Instant)>,
    latencies: Latencies,
}

impl<E: OltpEngine, L: Workload> Script for Mix<'_, E, L> {
    const CLASSES: &'static [&'static str] = L::CLASSES;
    type Tally = (Tally, Latencies);
    type Session<'s>
        = Mixing<L::Terminal<'s>, E::Worker<'s>>
    where
        Self: 's;

    fn session(&self, thread: usize) -> Result<Self::Session<'_>> {
        let mut worker = self.engine.worker()?;
        let terminal = self.workload.terminal(&mut worker, thread, self.threads, self.seed)?;
        // Only steps are to be in the queue.
        worker.acknowledge(0)?;
        let classes = vec![ClassTally::default(); L::CLASSES.len()];
        let later = Later {
            unacknowledged_max: self.engine.unacknowledged_max(),
            begun: VecDeque::new(),
            latencies: Latencies::new(L::CLASSES.len()),
        };
        Ok(Mixing { worker, terminal, tally: Tally { classes, ..Tally::default() }, attempts_before: 0, later })
    }

    fn counters(&self) -> EngineCounters {
        self.engine.counters()
    }
}

impl<T, W: Worker> Mixing<T, W> {
    /// Notes the latencies of all transactions but the last `count_max` ones, and of those that are acknowledged.
    fn acknowledge(&mut self, count_max: usize) -> Result<()> {
        let left = self.worker.acknowledge(count_max)?;
        let Later { begun, latencies, .. } = &mut self.later;
        let ended = begun.len().saturating_sub(left);
        if ended > 0 {
            let now = Instant::now();
            begun.drain(..ended).for_each(|(class, begin)| latencies.note(class, now.duration_since(begin)));
        }
        Ok(())
    }
}

impl<T: Terminal, W: Worker> race::Session for Mixing<T, W> {
    type Tally = (Tally, Latencies);

    fn draw(&mut self) {
        self.terminal.draw();
    }

    fn step(&mut self) -> Result<usize> {
        let before = self.worker.counters();
        let begin = (self.later.unacknowledged_max > 0).then(Instant::now);
        let done = self.terminal.step(&mut self.worker)?;
        if let Some(begin) = begin {
            self.later.begun.push_back((done.class, begin));
            self.acknowledge(self.later.unacknowledged_max)?;
        }
        let class = &mut self.tally.classes[done.class];
        class.counters = class.counters.plus(&self.worker.counters().since(&before));
        class.committed += u64::from(!done.is_cancelled);
        class.cancelled += u64::from(done.is_cancelled);
        self.tally.effect += done.effect;
        Ok(done.class)
    }

    fn drain(&mut self) -> Result<()> {
        self.acknowledge(0)
    }

    fn mark(&mut self) {
        self.later.latencies.clear();
        self.tally.classes.fill(ClassTally::default());
        self.attempts_before = self.worker.attempts();
    }

    fn tally(mut self) -> (Tally, Latencies) {
        self.tally.attempts = self.worker.attempts() - self.attempts_before;
        (self.tally, self.later.latencies)
    }
}

impl Outcome {
    /// The record to print. Per-operation figures count every transaction, those that decided to change nothing too.
    #[must_use]
    pub fn result<E: OltpEngine, L: Workload>(&self, engine: &E, workload: &L, seed: u64) -> BenchResult {
        let Self { run, tally } = self;
        let mut result = BenchResult {
            bench: L::NAME.into(),
            engine: engine.name(),
            workload: "mix".into(),
            records: workload.rows(),
            seed,
            ..BenchResult::of(engine.environment(), run)
        };
        result.aborts_per_commit = crate::result::ratio(tally.lost(), tally.committed());
        result.set_extra("committed", tally.committed());
        result.set_extra("cancelled", tally.cancelled());
        result.set_extra("retries", tally.lost());
        result.set_extra("seconds", rounded(run.seconds));
        let mean = (!run.latency.is_empty()).then(|| run.latency.mean().round() as u64);
        result.set_extra("latency_ns_mean", mean);
        result.set_extra("unacknowledged_max", engine.unacknowledged_max());
        result.set_extra("cpu_ns_per_op", run.cpu_ns.and_then(|time| run.per_op(time)));
        for (name, class) in L::CLASSES.iter().zip(&tally.classes) {
            let ClassTally { committed, cancelled, counters } = class;
            let per_op = |count: Option<u64>| crate::result::ratio(count?, committed + cancelled);
            result.set_extra(&format!("{name}_per_s"), rounded(*committed as f64 / run.seconds.max(1e-9)));
            result.set_extra(&format!("{name}_cancelled"), *cancelled);
            result.set_extra(&format!("{name}_fences_per_op"), per_op(counters.fences));
            result.set_extra(&format!("{name}_pm_bytes_per_op"), per_op(counters.pm_bytes));
        }
        result.set_quantiles(run, &[("p50", 0.5), ("p99", 0.99)]);
        result
    }
}

/// The error of an engine that lost a row which the workload never removes.
pub(crate) fn missing<X: Access>(access: &mut X, table: TableSpec, key: impl Into<Key<'static>>) -> X::Abort {
    let key = key.into();
    access.fault(format!("table {}: there is no row {:#x}, which no transaction removes", table.name, key.number))
}

/// The error of a violated rule, for callers that end with it.
///
/// ```
/// use lodestone_workload::oltp::{Violation, refuse};
///
/// assert!(refuse(&[]).is_ok());
/// let violation = Violation { rule: 1, finding: "warehouse 2: ...".into() };
/// assert!(refuse(&[violation]).unwrap_err().to_string().contains("condition 1: warehouse 2"));
/// ```
///
/// # Errors
/// If there is a violation.
pub fn refuse(violations: &[Violation]) -> Result<()> {
    let Some(first) = violations.first() else { return Ok(()) };
    let others = match violations.len() {
        1 => String::new(),
        count => format!("; and {} more", count - 1),
    };
    Err(EngineError::new(format!("the rows are inconsistent: {first}{others}")))
}

#[cfg(test)]
mod tests;
