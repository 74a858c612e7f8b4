//! The model: simulated threads, each with its own virtual time. The thread with the smallest time always takes the
//! next step.
//!
//! Steps of a transaction:
//! 1. *Begin*: with a global clock, its line is read (fetched, if it changed). The versions of the objects to be read
//!    are noted. Lines that another thread has changed since this thread last saw them are fetched. Then the software
//!    runs.
//! 2. *Commit*: objects that it changes are locked, and a locked one aborts. A global clock ticks: its line has one
//!    owner at a time, so ticks queue. A changed read aborts. The locked time begins.
//! 3. *Persist*: lines are flushed. The medium takes them one after the other, and each fence waits for the lines
//!    before it.
//! 4. *Release*: versions go up, locks are free.
//!
//! Invariants:
//! - an object has at most one holder;
//! - a step never happens before the time of an earlier one;
//! - nothing is drawn at random: each thread plays the trace from its own starting place.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::Serialize;

use super::machine::Machine;
use super::trace::Trace;

/// Where timestamps come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SimulatedClock {
    /// A clock for each thread: no clock is shared.
    Thread,
    /// One counter under a mutex.
    GlobalMutex,
    /// One counter, fetch-and-add.
    GlobalAdd,
    /// One counter, compare-and-swap.
    GlobalCas,
}

impl SimulatedClock {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Thread, Self::GlobalMutex, Self::GlobalAdd, Self::GlobalCas];

    /// Name for results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::GlobalMutex => "global-mutex",
            Self::GlobalAdd => "global-add",
            Self::GlobalCas => "global-cas",
        }
    }
}

/// The software costs of a transaction, as measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SoftwareCosts {
    /// An operation that changes nothing and reads as many objects as the mean.
    pub operation_ns: f64,
    /// The extra cost of a change, without flushes, fences and clock.
    pub change_ns: f64,
}

/// The result of a simulated run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Simulated {
    /// Threads.
    pub threads: usize,
    /// Operations per second, all threads together.
    pub ops_per_s: f64,
    /// Aborts for each commit.
    pub aborts_per_commit: f64,
    /// Share of the threads' time that the clock took, waiting included.
    pub clock_share: f64,
    /// Share of the time spent on flushes and fences.
    pub persist_share: f64,
}

/// A line that one thread owns at a time.
#[derive(Debug, Clone, Copy)]
struct SharedLine {
    owner: Option<usize>,
    free_at: f64,
    version: u64,
}

impl SharedLine {
    const FRESH: Self = Self { owner: None, free_at: 0.0, version: 0 };

    /// Takes the line for `held_ns`. Returns the time at which that ends.
    fn take(&mut self, machine: &Machine, thread: usize, at: f64, held_ns: f64) -> f64 {
        let fetch = match self.owner {
            Some(owner) if owner != thread => machine.transfer_ns(owner, thread),
            _ => 0.0,
        };
        let done = at.max(self.free_at) + fetch + held_ns;
        self.owner = Some(thread);
        self.free_at = done;
        self.version += 1;
        done
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Begin,
    Commit,
    Release,
}

struct Thread {
    now: f64,
    step: Step,
    next: usize,
    attempts: u32,
    /// Versions of the objects read, at begin.
    seen_at_begin: Vec<u32>,
    /// Version of each object that this thread's cache holds.
    cached: Vec<u32>,
    clock_seen: u64,
    clock_ns: f64,
    persist_ns: f64,
    done: u64,
    aborts: u64,
}

struct World<'a> {
    trace: &'a Trace,
    machine: &'a Machine,
    clock: SimulatedClock,
    software: SoftwareCosts,
    reads_mean: f64,
    threads: usize,
    versions: Vec<u32>,
    last_writer: Vec<u32>,
    holder: Vec<u32>,
    counter: SharedLine,
    mutex: SharedLine,
    medium_free_at: f64,
}

const NOBODY: u32 = u32::MAX;

/// Least virtual time of a run, in nanoseconds.
const RUN_NS: f64 = 4_000_000.0;

/// Order of the threads' steps: by time, then by number.
#[derive(PartialEq)]
struct Turn(f64, usize);

impl Eq for Turn {}
impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Turn {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

/// Plays `trace` on `threads` threads.
#[must_use]
pub fn simulate(
    trace: &Trace,
    machine: &Machine,
    clock: SimulatedClock,
    software: SoftwareCosts,
    threads: usize,
) -> Simulated {
    let objects = trace.objects as usize;
    let mut world = World {
        trace,
        machine,
        clock,
        software,
        reads_mean: trace.mean(|transaction| transaction.reads.len()).max(1.0),
        threads,
        versions: vec![0; objects],
        last_writer: vec![NOBODY; objects],
        holder: vec![NOBODY; objects],
        counter: SharedLine::FRESH,
        mutex: SharedLine::FRESH,
        medium_free_at: 0.0,
    };
    let length = trace.transactions.len().max(1);
    let mut all: Vec<Thread> = (0..threads)
        .map(|number| Thread {
            // A small offset for each thread, so that they do not march in step.
            now: number as f64,
            step: Step::Begin,
            next: number * length / threads,
            attempts: 0,
            seen_at_begin: Vec::new(),
            cached: vec![0; objects],
            clock_seen: 0,
            clock_ns: 0.0,
            persist_ns: 0.0,
            done: 0,
            aborts: 0,
        })
        .collect();
    let mut turns: BinaryHeap<Reverse<Turn>> =
        (0..threads).map(|number| Reverse(Turn(number as f64, number))).collect();
    while let Some(Reverse(Turn(now, number))) = turns.pop() {
        if now > RUN_NS || trace.transactions.is_empty() {
            continue;
        }
        world.take_step(&mut all[number], number);
        turns.push(Reverse(Turn(all[number].now, number)));
    }
    summary(&all)
}

fn summary(all: &[Thread]) -> Simulated {
    let time: f64 = all.iter().map(|thread| thread.now).sum();
    let done: u64 = all.iter().map(|thread| thread.done).sum();
    let aborts: u64 = all.iter().map(|thread| thread.aborts).sum();
    let rate = |thread: &Thread| if thread.now > 0.0 { thread.done as f64 / thread.now * 1e9 } else { 0.0 };
    let share = |part: f64| if time > 0.0 { (part / time * 1e4).round() / 1e4 } else { 0.0 };
    Simulated {
        threads: all.len(),
        ops_per_s: all.iter().map(rate).sum::<f64>().round(),
        aborts_per_commit: (aborts as f64 / done.max(1) as f64 * 1e4).round() / 1e4,
        clock_share: share(all.iter().map(|thread| thread.clock_ns).sum()),
        persist_share: share(all.iter().map(|thread| thread.persist_ns).sum()),
    }
}

impl World<'_> {
    fn take_step(&mut self, thread: &mut Thread, number: usize) {
        match thread.step {
            Step::Begin => self.begin(thread, number),
            Step::Commit => self.commit(thread, number),
            Step::Release => self.release(thread, number),
        }
    }

    fn begin(&mut self, thread: &mut Thread, number: usize) {
        let transaction = &self.trace.transactions[thread.next];
        if self.clock != SimulatedClock::Thread && thread.clock_seen != self.counter.version {
            let from = thread.now;
            // A reader copies the line. It waits for the owner's change, and the owner must fetch the line back.
            if let Some(owner) = self.counter.owner.filter(|&owner| owner != number) {
                thread.now = thread.now.max(self.counter.free_at) + self.machine.transfer_ns(owner, number);
            }
            thread.clock_seen = self.counter.version;
            thread.clock_ns += thread.now - from;
        }
        thread.seen_at_begin.clear();
        let mut fetched = 0.0;
        for &object in &transaction.reads {
            let object = object as usize;
            thread.seen_at_begin.push(self.versions[object]);
            if thread.cached[object] != self.versions[object] {
                thread.cached[object] = self.versions[object];
                if self.last_writer[object] != number as u32 && self.last_writer[object] != NOBODY {
                    fetched += self.machine.transfer_ns(self.last_writer[object] as usize, number);
                }
            }
        }
        let share = transaction.reads.len() as f64 / self.reads_mean;
        let change = if transaction.writes.is_empty() { 0.0 } else { self.software.change_ns };
        let software = (self.software.operation_ns * share + change) * self.machine.slowdown(number, self.threads);
        thread.now += software + fetched;
        thread.step = Step::Commit;
    }

    fn commit(&mut self, thread: &mut Thread, number: usize) {
        let transaction = &self.trace.transactions[thread.next];
        let held = |world: &Self, object: u32| {
            world.holder[object as usize] != NOBODY && world.holder[object as usize] != number as u32
        };
        let changed = |world: &Self, thread: &Thread| {
            let mut pairs = transaction.reads.iter().zip(&thread.seen_at_begin);
            pairs.any(|(&object, &seen)| world.versions[object as usize] != seen || held(world, object))
        };
        if transaction.writes.is_empty() {
            // A reader notices each change when it happens. If its reads changed meanwhile, it begins again.
            if changed(self, thread) {
                self.abort(thread)
            } else {
                Self::finish(thread, self.trace)
            }
            return;
        }
        if transaction.writes.iter().any(|&object| held(self, object)) {
            self.abort(thread);
            return;
        }
        self.tick(thread, number);
        if changed(self, thread) {
            self.abort(thread);
            return;
        }
        for &object in &transaction.writes {
            self.holder[object as usize] = number as u32;
        }
        let from = thread.now;
        let fences = f64::from(transaction.fences.max(1));
        let lines = f64::from(transaction.flushes);
        let remote = if self.machine.node_of(number) == 0 { 0.0 } else { self.machine.fence_remote_ns };
        let queued = (self.medium_free_at.max(from) + lines * self.machine.line_write_ns).max(from);
        if transaction.flushes > 0 {
            self.medium_free_at = queued;
        }
        let fenced = from + lines * self.machine.flush_ns + fences * (self.machine.fence_ns + remote);
        thread.now = if transaction.fences == 0 { from } else { fenced.max(queued) };
        thread.persist_ns += thread.now - from;
        thread.step = Step::Release;
    }

    /// Advances a global clock.
    fn tick(&mut self, thread: &mut Thread, number: usize) {
        let (machine, from) = (self.machine, thread.now);
        let atomic = machine.atomic_ns;
        match self.clock {
            SimulatedClock::Thread => return,
            SimulatedClock::GlobalAdd => thread.now = self.counter.take(machine, number, from, atomic),
            SimulatedClock::GlobalCas => {
                // A thread that finds the line in use has read an old value. Its first exchange fails and it fetches
                // the line again.
                let contended = self.counter.free_at > from;
                thread.now = self.counter.take(machine, number, from, atomic);
                if contended {
                    let again = self.counter.take(machine, number, thread.now, atomic);
                    self.counter.free_at = again + machine.transfer_local_ns;
                    thread.now = self.counter.free_at;
                }
            }
            SimulatedClock::GlobalMutex => {
                let locked = self.mutex.take(machine, number, from, atomic);
                let counted = self.counter.take(machine, number, locked, atomic);
                // The mutex is held until the counter has gone up. Releasing it is one more atomic operation.
                self.mutex.free_at = counted + atomic;
                thread.now = self.mutex.free_at;
            }
        }
        thread.clock_seen = self.counter.version;
        thread.clock_ns += thread.now - from;
    }

    fn release(&mut self, thread: &mut Thread, number: usize) {
        for &object in &self.trace.transactions[thread.next].writes {
            let object = object as usize;
            self.versions[object] += 1;
            thread.cached[object] = self.versions[object];
            self.last_writer[object] = number as u32;
            self.holder[object] = NOBODY;
        }
        Self::finish(thread, self.trace);
    }

    fn finish(thread: &mut Thread, trace: &Trace) {
        thread.done += 1;
        thread.attempts = 0;
        thread.next = (thread.next + 1) % trace.transactions.len();
        thread.step = Step::Begin;
    }

    fn abort(&self, thread: &mut Thread) {
        thread.aborts += 1;
        thread.attempts += 1;
        // Waits a little longer each time, as the engines do.
        thread.now += 20.0 * f64::from(1_u32 << thread.attempts.min(6));
        thread.step = Step::Begin;
    }
}
