//! The one runner: drives a load script from many threads, and times and counts it.
//!
//! A load is a [`Script`]. Its [`Session`] does one operation after the other on its own thread. The runner owns the
//! rest, in these steps:
//! 1. Each thread opens its session. Then all threads start together.
//! 2. *Warm-up*: every thread works for a while. Then all stop and [drain](Session::drain), and the counters are noted.
//! 3. *Measured phase*: until the time is over or each thread has done its share. One of every so many operations is
//!    timed. At every interval the calling thread notes how many operations are done. Each thread drains at its end.
//! 4. The script ends its work, for example by making a load durable. The counters are read again.
//!
//! Invariants:
//! - The runner is compiled for each script, so no call of an operation is virtual.
//! - No operation is under way when the counters are noted, nor when [`Moment::Start`] and [`Moment::End`] are told.
//! - The first error stops all threads and is the outcome. A panic of a session becomes an error, so that no other
//!   thread waits for ever.

mod latency;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;

use crate::engine::{EngineCounters, EngineError, Result};
pub(crate) use latency::Latencies;

/// A load: the work of a run, without threads and clocks.
pub trait Script: Sync {
    /// Names of the classes of operations, as results call them.
    const CLASSES: &'static [&'static str];

    /// The counts that a session returns at its end.
    type Tally: Send;

    /// The work of one thread.
    type Session<'s>: Session<Tally = Self::Tally>
    where
        Self: 's;

    /// Opens the session of thread `thread`, on that thread.
    ///
    /// # Errors
    /// If the thread cannot work. The run ends with this error.
    fn session(&self, thread: usize) -> Result<Self::Session<'_>>;

    /// Ends the work of all threads while the clock still runs.
    ///
    /// # Errors
    /// The run ends with this error.
    fn finish(&self) -> Result<()> {
        Ok(())
    }

    /// Counts of persistence events so far. The runner takes differences, so they must not decrease.
    fn counters(&self) -> EngineCounters {
        EngineCounters::default()
    }
}

/// The work of one thread. The runner calls [`draw`](Self::draw), [`step`](Self::step) and [`settle`](Self::settle) in
/// turn. Only the step is timed.
pub trait Session {
    /// See [`Script::Tally`].
    type Tally;

    /// Prepares the next operation.
    #[inline]
    fn draw(&mut self) {}

    /// Does the operation. Returns its class, an index into [`Script::CLASSES`].
    ///
    /// # Errors
    /// If the operation failed or its answer is wrong. The run ends with this error.
    fn step(&mut self) -> Result<usize>;

    /// Checks or reports the operation.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    #[inline]
    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    /// Ends the operations that are still under way after their step, if the session has such. Called at the end of the
    /// warm-up and of the measured phase. A thread that has done its share of a number of operations ends its time
    /// after it. One that the end of the time stops has ended its time before.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    #[inline]
    fn drain(&mut self) -> Result<()> {
        Ok(())
    }

    /// The measured phase begins: counts of the warm-up do not count.
    fn mark(&mut self) {}

    /// The counts of the measured phase. Nothing follows.
    fn tally(self) -> Self::Tally;
}

/// When a run ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Length {
    /// After this time.
    Time(Duration),
    /// After this many operations of all threads together. Counts are then the same in every run of one thread.
    Operations(u64),
    /// After this many operations, or earlier after this time.
    OperationsWithin(u64, Duration),
}

impl Length {
    /// The operations of all threads together, if they are limited.
    #[must_use]
    pub fn operations(self) -> Option<u64> {
        match self {
            Self::Time(_) => None,
            Self::Operations(count) | Self::OperationsWithin(count, _) => Some(count),
        }
    }

    /// The time, if it is limited.
    #[must_use]
    pub fn time(self) -> Option<Duration> {
        match self {
            Self::Time(time) | Self::OperationsWithin(_, time) => Some(time),
            Self::Operations(_) => None,
        }
    }
}

/// How a script is run. Make one with [`Plan::new`] and change fields.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Threads, at least 1.
    pub threads: usize,
    /// Time before the measured phase.
    pub warm_up: Duration,
    /// When the measured phase ends.
    pub length: Length,
    /// One of every this many operations is timed, the first one included. With 0, none is.
    pub time_one_of: u64,
    /// Time between two samples of the operations done.
    pub sample_interval: Duration,
}

impl Plan {
    /// No warm-up, no timed operations, a sample every tenth of a second.
    #[must_use]
    pub fn new(threads: usize, length: Length) -> Self {
        Self { threads, warm_up: Duration::ZERO, length, time_one_of: 0, sample_interval: Duration::from_millis(100) }
    }

    /// The operations of thread `thread`, if they are limited. The shares are even, and the first threads take the
    /// rest.
    #[must_use]
    pub fn operations_of(&self, thread: usize) -> Option<u64> {
        self.length.operations().map(|all| share_of(all, self.threads, thread))
    }
}

/// Part number `index` of `total`, split evenly over `parts`. The first parts take the rest.
#[must_use]
pub fn share_of(total: u64, parts: usize, index: usize) -> u64 {
    let (parts, index) = (parts as u64, index as u64);
    total / parts + u64::from(index < total % parts)
}

/// A moment of a run. The runner tells it on the calling thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The measured phase begins.
    Start,
    /// So many operations are done after so much time.
    Sample(Duration, u64),
    /// The measured phase is over, after so many operations.
    End(u64),
}

/// The measured phase of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Threads.
    pub threads: usize,
    /// Operations of all threads together.
    pub operations: u64,
    /// The sum of each thread's operations divided by its own time. A thread that ends early is not counted as idle.
    pub ops_per_s: f64,
    /// Time of the slowest thread, in seconds.
    pub seconds: f64,
    /// Wall time until the last thread ended, and of [`Script::finish`].
    pub elapsed: Duration,
    /// Processor time of all threads in nanoseconds, if the system reports it.
    pub cpu_ns: Option<u64>,
    /// Persistence events.
    pub counters: EngineCounters,
    /// Operations done so far, at each sample and at the end: seconds and count.
    pub samples: Vec<(f64, u64)>,
    /// Latencies of the timed operations, in nanoseconds.
    pub latency: Histogram<u64>,
    /// The same of each class that occurred.
    pub latency_by_class: Vec<(&'static str, Histogram<u64>)>,
}

impl Outcome {
    /// Operations per second if each thread always had its own processor. Computed from processor time, if the system
    /// reports it. On a busy machine this is the cost of the code, while wall time includes the cost of its neighbours.
    #[must_use]
    pub fn ops_per_cpu_s(&self) -> f64 {
        match self.cpu_ns {
            Some(cpu_ns) if cpu_ns > 0 => self.threads as f64 * self.operations as f64 * 1e9 / cpu_ns as f64,
            _ => self.ops_per_s,
        }
    }

    /// `count` for each operation, to four decimals. `None` without operations.
    #[must_use]
    pub fn per_op(&self, count: u64) -> Option<f64> {
        crate::result::ratio(count, self.operations)
    }
}

/// Runs `script` as `plan` says. Returns the measurement, and the tally of each thread.
///
/// `tell` is called at each [`Moment`].
///
/// # Errors
/// A plan without threads, and the first error of the script. A panic of a session is an error too.
pub fn run<S: Script>(script: &S, plan: &Plan, tell: &mut dyn FnMut(Moment)) -> Result<(Outcome, Vec<S::Tally>)> {
    if plan.threads == 0 {
        return Err(EngineError::new("a run needs at least one thread"));
    }
    let shared = Shared::new(plan.threads);
    thread::scope(|scope| {
        let (sender, finished) = channel();
        let threads: Vec<_> = (0..plan.threads)
            .map(|thread| {
                let (shared, sender) = (&shared, sender.clone());
                scope.spawn(move || {
                    let report = life(script, plan, thread, shared);
                    // The receiver has gone only if the calling thread panicked, and the scope passes that panic on.
                    sender.send(()).ok();
                    report
                })
            })
            .collect();
        // Without a warm-up no thread may begin with one, so that counts of operations are exact.
        shared.warm.store(plan.warm_up.is_zero(), Ordering::Relaxed);
        shared.phase.wait();
        thread::sleep(plan.warm_up);
        shared.warm.store(true, Ordering::Relaxed);
        shared.phase.wait();
        tell(Moment::Start);
        let before = script.counters();
        if plan.length.time().is_some_and(|time| time.is_zero()) {
            shared.stop.store(true, Ordering::Relaxed);
        }
        let start = Instant::now();
        shared.phase.wait();
        let samples = watch(plan, &shared, &finished, start, tell);
        let reports = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        let (mut outcome, tallies) = summed::<S>(plan, start, reports.collect::<Result<_>>()?);
        let finishing = Instant::now();
        script.finish()?;
        outcome.elapsed += finishing.elapsed();
        outcome.counters = script.counters().since(&before);
        outcome.samples = samples;
        tell(Moment::End(outcome.operations));
        Ok((outcome, tallies))
    })
}

/// Waits for the end of all threads, ends the measured phase in time, and samples the operations done.
fn watch(
    plan: &Plan,
    shared: &Shared,
    finished: &Receiver<()>,
    start: Instant,
    tell: &mut dyn FnMut(Moment),
) -> Vec<(f64, u64)> {
    let mut samples = Vec::new();
    let mut left = plan.threads;
    while left > 0 {
        let mut patience = plan.sample_interval;
        if let Some(time) = plan.length.time() {
            let rest = time.saturating_sub(start.elapsed());
            if rest.is_zero() {
                shared.stop.store(true, Ordering::Relaxed);
            } else {
                patience = patience.min(rest);
            }
        }
        match finished.recv_timeout(patience) {
            Ok(()) => left -= 1,
            Err(RecvTimeoutError::Timeout) => {
                let (elapsed, done) = (start.elapsed(), shared.operations());
                samples.push((elapsed.as_secs_f64(), done));
                tell(Moment::Sample(elapsed, done));
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    samples.push((start.elapsed().as_secs_f64(), shared.operations()));
    samples
}

/// Adds up the reports of all threads.
fn summed<S: Script>(plan: &Plan, start: Instant, reports: Vec<Report<S::Tally>>) -> (Outcome, Vec<S::Tally>) {
    let mut outcome = Outcome {
        threads: plan.threads,
        operations: 0,
        ops_per_s: 0.0,
        seconds: 0.0,
        elapsed: Duration::ZERO,
        cpu_ns: Some(0),
        counters: EngineCounters::default(),
        samples: Vec::new(),
        latency: latency::empty(),
        latency_by_class: Vec::new(),
    };
    let (mut latencies, mut tallies) = (Latencies::new(S::CLASSES.len()), Vec::new());
    for report in reports {
        let seconds = report.end.duration_since(report.start).as_secs_f64();
        outcome.operations += report.operations;
        outcome.ops_per_s += report.operations as f64 / seconds.max(1e-9);
        outcome.seconds = outcome.seconds.max(seconds);
        outcome.elapsed = outcome.elapsed.max(report.end.saturating_duration_since(start));
        outcome.cpu_ns = outcome.cpu_ns.zip(report.cpu_ns).map(|(sum, next)| sum + next);
        latencies.add(report.latencies);
        tallies.push(report.tally);
    }
    (outcome.latency, outcome.latency_by_class) = latencies.merge(S::CLASSES);
    (outcome, tallies)
}

/// The state that the threads of a run share with the calling thread.
#[derive(Debug)]
struct Shared {
    /// Passed three times: when sessions are open, when the warm-up is over, and when the counters are noted.
    phase: Barrier,
    warm: AtomicBool,
    stop: AtomicBool,
    /// Operations of each thread in the measured phase.
    done: Box<[CachePadded<AtomicU64>]>,
}

impl Shared {
    fn new(threads: usize) -> Self {
        Self {
            phase: Barrier::new(threads + 1),
            warm: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            done: (0..threads).map(|_| CachePadded::default()).collect(),
        }
    }

    fn operations(&self) -> u64 {
        self.done.iter().map(|done| done.load(Ordering::Relaxed)).sum()
    }

    /// Does `work`. An error or a panic stops all threads, in whichever phase they are.
    fn guard<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        let done = catch_unwind(AssertUnwindSafe(work));
        let done = done.unwrap_or_else(|_| Err(EngineError::new("a thread of the run panicked; its message is above")));
        if done.is_err() {
            self.warm.store(true, Ordering::Relaxed);
            self.stop.store(true, Ordering::Relaxed);
        }
        done
    }
}

/// One thread's share of the measured phase.
struct Report<T> {
    operations: u64,
    start: Instant,
    end: Instant,
    cpu_ns: Option<u64>,
    latencies: Latencies,
    tally: T,
}

/// The whole life of a thread. It always passes all three phases, or the others would wait for ever.
fn life<S: Script>(script: &S, plan: &Plan, thread: usize, shared: &Shared) -> Result<Report<S::Tally>> {
    let opened = shared.guard(|| script.session(thread));
    shared.phase.wait();
    let warmed = opened.and_then(|mut session| {
        shared.guard(|| {
            let (done, mut latencies) = (AtomicU64::new(0), Latencies::new(S::CLASSES.len()));
            drive(&mut session, u64::MAX, &shared.warm, 0, &done, &mut latencies)?;
            session.drain()?;
            Ok(session)
        })
    });
    shared.phase.wait();
    shared.phase.wait();
    warmed.and_then(|session| shared.guard(|| measure::<S>(session, plan, thread, shared)))
}

fn measure<'s, S: Script + 's>(
    mut session: S::Session<'s>,
    plan: &Plan,
    thread: usize,
    shared: &Shared,
) -> Result<Report<S::Tally>> {
    let limit = plan.operations_of(thread).unwrap_or(u64::MAX);
    let mut latencies = Latencies::new(S::CLASSES.len());
    session.mark();
    let (start, cpu) = (Instant::now(), thread_cpu_ns());
    let operations = drive(&mut session, limit, &shared.stop, plan.time_one_of, &shared.done[thread], &mut latencies)?;
    let stopped = Instant::now();
    session.drain()?;
    // A time limit ends the work, not the wait for it: else a slow end would count as idle time.
    let end = if operations == limit { Instant::now() } else { stopped };
    let cpu_ns = thread_cpu_ns().zip(cpu).map(|(end, start)| end.saturating_sub(start));
    Ok(Report { operations, start, end, cpu_ns, latencies, tally: session.tally() })
}

/// The loop of one thread: up to `limit` operations, until `ended`. Returns their number.
///
/// Each phase calls this one function, and it has one call of [`Session::step`], so that the step is compiled into the
/// loop.
#[inline(never)]
fn drive<S: Session>(
    session: &mut S,
    limit: u64,
    ended: &AtomicBool,
    time_one_of: u64,
    done: &AtomicU64,
    latencies: &mut Latencies,
) -> Result<u64> {
    // No run comes near the largest count.
    let mut until_timed = if time_one_of == 0 { u64::MAX } else { 1 };
    let mut operations = 0;
    while operations < limit && !ended.load(Ordering::Relaxed) {
        session.draw();
        until_timed -= 1;
        let begin = (until_timed == 0).then(Instant::now);
        let class = session.step()?;
        if let Some(begin) = begin {
            latencies.note(class, begin.elapsed());
            until_timed = time_one_of;
        }
        session.settle()?;
        operations += 1;
        done.store(operations, Ordering::Relaxed);
    }
    Ok(operations)
}

/// Processor time of the calling thread. It is steadier than wall time if other programs use the machine.
#[must_use]
pub fn thread_cpu_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests;
