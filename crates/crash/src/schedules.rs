//! Interleavings and crashes together. Threads run under a deterministic scheduler while the trace records. The crash
//! states of each schedule are judged by durable linearizability.
//!
//! 1. A schedule comes from one seed: the scheduler's choices, and hence the trace, are a function of it.
//! 2. Within one execution of the scheduler: prepare, open, run [`Structure::threads`] to their ends. Then explore the
//!    crash states of the trace (representative mode by default) as the engine always does.
//! 3. A recovered view must fit some order of the begun operations that contains every acknowledged one and respects
//!    real time: see [`History`](crate::History).
//! 4. A violation names its seed. `LODESTONE_SCHEDULE_SEED=<seed>` makes [`explore_schedules`] run only that schedule,
//!    and the same crash state is found again.
//!
//! Every lock of the structure must come from [`lodestone_pmem::sync`]. Weak memory order is not modelled (the
//! scheduler is sequentially consistent).

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use lodestone_pmem::sync::thread;
use lodestone_pmem::{Pool, PoolOptions};
use serde::Serialize;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config as ShuttleConfig, MaxSteps, Runner};

use crate::config::{Config, Mode};
use crate::engine::Engine;
use crate::event::SiteKey;
use crate::follow::follow_trace;
use crate::history::History;
use crate::medium::CrashMedium;
use crate::planted;
use crate::quiet::catch;
use crate::report::{Violation, json_line};
use crate::reproduce;
use crate::run::fewer_lost;
use crate::structure::Structure;
use crate::target::{Failure, Outcome, Target};
use crate::token::{Crash, Token};

/// The scheduler's strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheduler {
    /// A random thread at each access.
    Random,
    /// Priorities with few changes (probabilistic concurrency testing): finds bugs that need long undisturbed
    /// stretches.
    Pct,
}

/// The extent of the exploration.
#[derive(Clone, Debug)]
pub struct ScheduleConfig {
    /// Strategy.
    pub scheduler: Scheduler,
    /// Number of schedules.
    pub schedules: u64,
    /// Seed of the first schedule. The following ones count up.
    pub seed: u64,
    /// How the crash states of each schedule are explored; `states_max` is per schedule.
    pub crash: Config,
}

impl Default for ScheduleConfig {
    fn default() -> Self {
        let crash = Config { mode: Mode::Representative, nested_depth: 0, states_max: 20_000, ..Config::default() };
        Self { scheduler: Scheduler::Random, schedules: 100, seed: 1, crash }
    }
}

/// Result of exploring schedules.
#[derive(Clone, Debug, Serialize)]
pub struct ScheduleReport {
    /// Name of the structure.
    pub target: String,
    /// Strategy.
    pub scheduler: Scheduler,
    /// Schedules run.
    pub schedules: u64,
    /// Traces among them that differ from each other.
    pub schedules_distinct: u64,
    /// Profile of the platform.
    pub profile: crate::Profile,
    /// How crash states were chosen.
    pub mode: Mode,
    /// Crash states judged, over all schedules.
    pub states: u64,
    /// Depth of crashes in recovery.
    pub nested_depth: u32,
    /// Number of violations. Exploration stops at the first.
    pub violations: usize,
    /// Seed of the first schedule.
    pub seed: u64,
    /// Wall-clock time.
    pub seconds: f64,
    /// The seed that shows the violation, and the violation.
    pub found: Option<(u64, Violation)>,
}

impl ScheduleReport {
    /// Whether nothing was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.found.is_none()
    }

    /// One JSON object without line breaks.
    #[must_use]
    pub fn to_json_line(&self) -> String {
        json_line(self)
    }

    /// Panics with the report unless nothing was found.
    ///
    /// # Panics
    /// If there is a violation.
    #[track_caller]
    pub fn expect_clean(self) -> Self {
        assert!(self.is_clean(), "{self}");
        self
    }
}

impl fmt::Display for ScheduleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.is_clean() { "clean, a sample" } else { "VIOLATION" };
        write!(
            f,
            "{}: {verdict}; {} schedules ({} distinct, {:?}, seeds from {}), profile {}, mode {}, {} states, {:.2} s",
            self.target,
            self.schedules,
            self.schedules_distinct,
            self.scheduler,
            self.seed,
            self.profile,
            self.mode,
            self.states,
            self.seconds
        )?;
        if let Some((_, violation)) = &self.found {
            writeln!(f, "\nviolation: {}", violation.message)?;
            violation.account.lines().try_for_each(|line| writeln!(f, "  {line}"))?;
            write!(f, "  see it again: {}", violation.command)?;
        }
        Ok(())
    }
}

/// The result of one schedule.
#[derive(Default)]
struct Ran {
    states: u64,
    trace_hash: u64,
    found: Option<Violation>,
}

/// Explores schedules of `structure`'s threads, each with its crash states, until a violation or the end.
///
/// # Panics
/// If the structure has no threads, or the environment's `LODESTONE_SCHEDULE_SEED` is not a number.
pub fn explore_schedules<S: Structure + 'static>(structure: S, config: &ScheduleConfig) -> ScheduleReport {
    let _planted = planted::scope(config.crash.planted.as_deref());
    let started = Instant::now();
    let structure = Arc::new(Threads { inner: structure });
    assert!(!structure.inner.threads().is_empty(), "the structure says nothing about its threads");
    let only = std::env::var("LODESTONE_SCHEDULE_SEED").ok().map(|seed| seed.parse().expect("a number as seed"));
    let seeds = only.map_or(config.seed..config.seed + config.schedules, |seed: u64| seed..seed + 1);
    let mut report = ScheduleReport {
        target: structure.inner.name(),
        scheduler: config.scheduler,
        schedules: 0,
        schedules_distinct: 0,
        profile: config.crash.profile,
        mode: config.crash.mode,
        states: 0,
        nested_depth: config.crash.nested_depth,
        violations: 0,
        seed: seeds.start,
        seconds: 0.0,
        found: None,
    };
    let mut traces = std::collections::HashSet::new();
    for seed in seeds {
        let result = run_schedule(&structure, config, seed);
        report.schedules += 1;
        report.states += result.states;
        traces.insert(result.trace_hash);
        if let Some(mut violation) = result.found {
            violation.command = format!("LODESTONE_SCHEDULE_SEED={seed} {}", reproduce::this_program());
            report.violations = 1;
            report.found = Some((seed, violation));
            break;
        }
    }
    report.schedules_distinct = traces.len() as u64;
    report.seconds = started.elapsed().as_secs_f64();
    report
}

/// Runs and explores the one schedule of `seed`.
fn run_schedule<S: Structure + 'static>(structure: &Arc<Threads<S>>, config: &ScheduleConfig, seed: u64) -> Ran {
    let mut shuttle = ShuttleConfig::new();
    // Recoveries run inside the execution, so stacks are deep, and there are more steps than in any test.
    shuttle.stack_size = 4 << 20;
    shuttle.max_steps = MaxSteps::None;
    shuttle.failure_persistence = shuttle::FailurePersistence::None;
    let results = Arc::new(Mutex::new(Vec::new()));
    let execution = {
        let (structure, config, results) = (structure.clone(), config.clone(), results.clone());
        // The first execution of the priority scheduler only measures the length of the run.
        let skip = usize::from(config.scheduler == Scheduler::Pct);
        move || {
            // Not locked while the threads run.
            let explores = results.lock().unwrap_or_else(PoisonError::into_inner).len() == skip;
            let ran = explore_execution(&structure, &config, explores);
            results.lock().unwrap_or_else(PoisonError::into_inner).push(ran);
        }
    };
    let outcome = catch(|| {
        match config.scheduler {
            Scheduler::Random => Runner::new(RandomScheduler::new_from_seed(seed, 1), shuttle).run(execution),
            Scheduler::Pct => Runner::new(PctScheduler::new_from_seed(seed, 3, 2), shuttle).run(execution),
        };
        Ok(())
    });
    let last = results.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
    match outcome {
        Ok(()) => last,
        // A deadlock, or a panic outside of any operation.
        Err(why) => Ran { found: Some(violation(structure.as_ref(), config, why.to_string(), &[], "")), ..last },
    }
}

/// Inside the scheduler: prepare, run the threads, explore the crash states of their trace.
fn explore_execution<S: Structure + 'static>(
    structure: &Arc<Threads<S>>,
    config: &ScheduleConfig,
    explores: bool,
) -> Ran {
    let target: &dyn Target = structure.as_ref();
    let failed = |why: String| violation(target, config, why, &[], "");
    let mut ignore = |_| {};
    let mut engine = match Engine::new(target, &config.crash, None, &mut ignore) {
        Ok(engine) => engine,
        Err(why) => return Ran { found: Some(failed(why.to_string())), ..Ran::default() },
    };
    let (trace, outcome) = engine.record_run(|medium| run_threads(structure, medium));
    let mut result = Ran { trace_hash: hash_of(&trace), ..Ran::default() };
    if !explores {
        return result;
    }
    engine.explore_run(&trace, outcome.clone());
    result.states = engine.covered().states;
    if let Some(found) = engine.covered().found.first().cloned() {
        let mut follow = |crashes: &[Crash]| follow_trace(&mut engine, target, trace.clone(), outcome.clone(), crashes);
        let fails = |crashes: &[Crash]| follow(crashes).is_ok_and(|followed| followed.verdict.is_err());
        let crashes = fewer_lost(found.crashes, fails);
        let followed = follow(&crashes);
        let account = followed.map_or_else(|why| format!("(no account: {why})"), |followed| followed.account);
        let account = format!("{}{account}", history_of(target, &trace));
        result.found = Some(violation(target, config, found.message, &crashes, &account));
    }
    result
}

fn violation(
    target: &dyn Target,
    config: &ScheduleConfig,
    message: String,
    crashes: &[Crash],
    account: &str,
) -> Violation {
    let ops = (0..target.script_len()).map(|op| target.op_text(op)).collect();
    let token = Token {
        target: target.name(),
        profile: config.crash.profile,
        ops: (0..target.script_len()).collect(),
        mutation: None,
        planted: config.crash.planted.clone(),
        crashes: crashes.to_vec(),
    };
    // The seed shows it again, and the caller knows the seed.
    let command = String::new();
    Violation { message, ops, token: token.to_string(), account: account.to_owned(), command }
}

fn hash_of(trace: &[crate::Event]) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    for event in trace {
        (event.thread, format!("{:?}", event.kind)).hash(&mut hasher);
    }
    hasher.finish()
}

/// The marks of a trace in order, for the account.
fn history_of(target: &dyn Target, trace: &[crate::Event]) -> String {
    use crate::event::EventKind;
    let text = |event: &crate::Event| match event.kind {
        EventKind::Begin { op } => Some(format!("thread {}: {} begins\n", event.thread, target.op_text(op))),
        EventKind::Ack { op } => Some(format!("thread {}: {} is acknowledged\n", event.thread, target.op_text(op))),
        _ => None,
    };
    trace.iter().filter_map(text).collect()
}

fn run_threads<S: Structure + 'static>(structure: &Arc<Threads<S>>, medium: &Arc<CrashMedium>) -> Outcome {
    let pool = medium.open_pool()?;
    let handle = Arc::new(structure.inner.open(&pool)?);
    let mut first = 0;
    let mut running = Vec::new();
    for ops in structure.inner.threads() {
        let (structure, medium, handle) = (structure.clone(), medium.clone(), handle.clone());
        let numbers = first..first + ops.len();
        first = numbers.end;
        running.push(thread::spawn(move || {
            catch(|| {
                for (number, op) in numbers.zip(&ops) {
                    medium.begin(number);
                    structure.inner.apply(&handle, op)?;
                    medium.ack(number)?;
                }
                Ok(())
            })
        }));
    }
    let mut outcome = Ok(());
    for running in running {
        outcome = outcome.and(running.join().unwrap_or_else(|_| Err(Failure::new("a thread died"))));
    }
    outcome
}

/// The structure with the operations of its threads as its script.
struct Threads<S> {
    inner: S,
}

impl<S: Structure> Structure for Threads<S> {
    type Op = S::Op;
    type Handle = S::Handle;
    type View = S::View;

    fn name(&self) -> String {
        self.inner.name()
    }
    fn options(&self) -> PoolOptions {
        self.inner.options()
    }
    fn script(&self) -> Vec<S::Op> {
        self.inner.threads().concat()
    }
    fn setup(&self, pool: &Pool) -> Outcome {
        self.inner.setup(pool)
    }
    fn open(&self, pool: &Pool) -> Outcome<S::Handle> {
        self.inner.open(pool)
    }
    fn apply(&self, handle: &S::Handle, op: &S::Op) -> Outcome {
        self.inner.apply(handle, op)
    }
    fn view(&self, handle: &S::Handle) -> Outcome<S::View> {
        self.inner.view(handle)
    }
    fn model(&self, ops: &[S::Op]) -> S::View {
        self.inner.model(ops)
    }
    fn audit(&self, handle: &S::Handle) -> Outcome {
        self.inner.audit(handle)
    }
    fn more(&self) -> Vec<S::Op> {
        self.inner.more()
    }
    fn judge(&self, view: &S::View, history: &History, ops: &[S::Op]) -> Outcome {
        self.inner.judge(view, history, ops)
    }
    fn audits(&self, site: &SiteKey) -> bool {
        self.inner.audits(site)
    }
    fn recovery_accesses_max(&self) -> u64 {
        self.inner.recovery_accesses_max()
    }

    fn nested_depth_max(&self) -> u32 {
        self.inner.nested_depth_max()
    }

    fn states_max(&self) -> u64 {
        self.inner.states_max()
    }
}
