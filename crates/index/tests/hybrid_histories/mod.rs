//! Histories of the two hybrids under a deterministic scheduler: random programs of few threads on three keys, with
//! ranges among their operations, on an index that was just opened, so that the rebuild, the thread that applies and
//! the program interleave.
//!
//! A range counts as a read of every key, some time between its beginning and its end. Every key's history must be
//! linearizable; that says as well that points and ranges never contradict each other.

#![allow(dead_code, reason = "each test file uses its part")]

#[path = "../conformance/linear.rs"]
pub mod linear;

use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use linear::{Answer, Event, Op, find_violation};
use lodestone_heap::HeapOptions;
use lodestone_index::{
    Apply, Direction, Durability, HashIndex, HashOptions, Hybrid, HybridOptions, HybridPlus, HybridPlusOptions,
    OpenIndex, OrderedIndex, PointIndex, WarmUp,
};
use lodestone_pmem::{Pool, PoolOptions, SilentTracer};
use lodestone_store::{Store, StoreOptions};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// Keys of a program, unless it says otherwise.
const KEYS: u64 = 3;

/// The next step of a thread.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Point(u64, Op),
    Scan(Direction),
}

/// A program, and the pairs in the index before.
#[derive(Clone, Debug)]
pub struct Program {
    pub before: Vec<(u64, u64)>,
    pub threads: Vec<Vec<Step>>,
}

/// Program number `seed`: two or three threads.
pub fn program(seed: u64) -> Program {
    program_on(seed, KEYS)
}

/// As [`program`], on so many keys.
pub fn program_on(seed: u64, keys: u64) -> Program {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut draw = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let before = (0..keys).filter(|_| draw(4) > 0).map(|key| (key, 100 + key)).collect();
    let count = 2 + draw(2);
    let mut version = 0;
    let mut step = |draw: &mut dyn FnMut(u64) -> u64| {
        version += 1;
        let key = draw(keys);
        match draw(12) {
            0..=2 => Step::Point(key, Op::Get),
            3 => Step::Point(key, Op::Insert(version)),
            4 => Step::Point(key, Op::Update(version)),
            5..=6 => Step::Point(key, Op::Upsert(version)),
            7..=8 => Step::Point(key, Op::Remove),
            9 => Step::Point(key, Op::Swap(100 + key, version)),
            10 => Step::Scan(Direction::Ascending),
            _ => Step::Scan(Direction::Descending),
        }
    };
    let threads = (0..count).map(|_| (0..if count == 2 { 4 } else { 3 }).map(|_| step(&mut draw)).collect()).collect();
    Program { before, threads }
}

/// An index under test: how it is made and opened.
pub trait TestedIndex: OpenIndex + OrderedIndex + PointIndex<Key = u64> + 'static {
    /// Keys of its programs.
    const KEYS: u64 = KEYS;
    fn options() -> Self::Options;
    /// Waits for its threads to be done with what they began at open.
    fn settle(&self);
}

impl TestedIndex for HybridPlus<u64> {
    fn options() -> HybridPlusOptions {
        HybridPlusOptions::small().with_warm_up(WarmUp::Background { threads: 1 })
    }

    fn settle(&self) {
        self.wait_warm().expect("nothing is damaged");
    }
}

impl TestedIndex for Hybrid<u64> {
    fn options() -> HybridOptions {
        let mut options = HybridOptions::small();
        options.apply = Apply::Background { threads: 2 };
        options.rebuild_threads = 1;
        options
    }

    fn settle(&self) {
        self.wait_warm().expect("nothing is damaged");
    }
}

fn run_point<I: PointIndex<Key = u64>>(index: &I, key: u64, op: Op) -> Answer {
    let answer = match op {
        Op::Get => index.get(&key).map(Answer::Value),
        Op::Insert(value) => index.insert(&key, value).map(Answer::Inserted),
        Op::Update(value) => index.update(&key, value).map(Answer::Value),
        Op::Upsert(value) => index.upsert(&key, value).map(Answer::Value),
        Op::Remove => index.remove(&key).map(Answer::Value),
        Op::Swap(current, new) => index.compare_and_swap(&key, current, new).map(Answer::Swapped),
    };
    answer.expect("nothing is damaged")
}

/// Runs `step` and returns its answers, for every key that it was about.
fn run_step<I: TestedIndex>(index: &I, step: Step) -> Vec<(u64, Op, Answer)> {
    match step {
        Step::Point(key, op) => vec![(key, op, run_point(index, key, op))],
        Step::Scan(direction) => {
            let mut shown = vec![None; I::KEYS as usize];
            let all = index.scan(Bound::Unbounded, Bound::Unbounded, direction, |key, value| {
                shown[*key as usize] = Some(value);
                ControlFlow::Continue(())
            });
            all.expect("nothing is damaged");
            shown.into_iter().zip(0..).map(|(value, key)| (key, Op::Get, Answer::Value(value))).collect()
        }
    }
}

/// An empty heap in DRAM, and what `open` makes there.
pub fn place<I>(open: impl FnOnce(&Store) -> lodestone_index::Result<I>) -> (Store, I) {
    let options =
        PoolOptions { size_bytes: 64 << 10, journal_bytes: 0, reserve_bytes: 1 << 20, ..PoolOptions::default() };
    let pool = Pool::create_traced(&options, Arc::new(SilentTracer)).expect("a pool");
    let store = Store::over_with(&pool, &StoreOptions::with_heap(HeapOptions::small())).expect("a heap");
    let index = open(&store).expect("an index");
    (store, index)
}

/// Runs `program` once under the scheduler that drives this thread; a history that no order explains, or what the check
/// found.
fn run_once<I: TestedIndex>(program: &Program) -> Option<String> {
    let open = |store: &Store| I::open_index(store, "index", &I::options(), Durability::Sync);
    let (store, index) = place(open);
    program.before.iter().for_each(|(key, value)| assert!(index.insert(key, *value).expect("insert")));
    drop(index);
    let index = Arc::new(open(&store).expect("an index"));
    let (clock, events) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
    let run = |steps: Vec<Step>, thread: usize| {
        let (index, clock, events) = (Arc::clone(&index), Arc::clone(&clock), Arc::clone(&events));
        move || {
            for step in steps {
                let begun = clock.fetch_add(1, Ordering::SeqCst);
                let answers = run_step(&*index, step);
                let ended = clock.fetch_add(1, Ordering::SeqCst);
                let mut events = events.lock().expect("one thread runs at a time");
                events.extend(answers.into_iter().map(|(key, op, answer)| Event {
                    thread,
                    key,
                    op,
                    answer,
                    begun,
                    ended,
                }));
            }
        }
    };
    let threads: Vec<_> = program
        .threads
        .iter()
        .enumerate()
        .map(|(thread, steps)| shuttle::thread::spawn(run(steps.clone(), thread)))
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a thread panicked"));
    index.settle();
    // The final content of both structures counts as answers as well.
    let gets = (0..I::KEYS).map(|key| Step::Point(key, Op::Get));
    run(gets.chain([Step::Scan(Direction::Ascending)]).collect(), program.threads.len())();
    let before = |key| program.before.iter().find(|(found, _)| *found == key).map(|(_, value)| *value);
    let events = events.lock().expect("one thread runs at a time").clone();
    if let Some(violation) = find_violation(&events, before) {
        return Some(format!("no order explains {violation:#?} of {program:#?}"));
    }
    let findings = index.check().findings;
    (!findings.is_empty()).then(|| format!("{findings:?} after {program:#?}"))
}

/// Which schedules are tried.
#[derive(Clone, Copy, Debug)]
pub enum Schedules {
    Random,
    Pct,
}

/// Runs `schedules` schedules of `body`.
pub fn run_schedules(by: Schedules, seed: u64, schedules: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.max_steps = MaxSteps::FailAfter(2_000_000);
    config.failure_persistence = FailurePersistence::None;
    match by {
        Schedules::Random => Runner::new(RandomScheduler::new_from_seed(seed, schedules), config).run(body),
        Schedules::Pct => Runner::new(PctScheduler::new_from_seed(seed, 3, schedules), config).run(body),
    };
}

/// Runs `schedules` schedules of each of `programs`; the first violation.
pub fn explore<I: TestedIndex>(
    programs: impl Iterator<Item = Program>,
    by: Schedules,
    schedules: usize,
) -> Option<String> {
    for (seed, program) in (1..).zip(programs) {
        let found = Arc::new(Mutex::new(None));
        let note = Arc::clone(&found);
        let body = move || {
            if note.lock().expect("one thread runs at a time").is_none() {
                let violation = run_once::<I>(&program);
                *note.lock().expect("one thread runs at a time") = violation;
            }
        };
        run_schedules(by, seed, schedules, body);
        let violation = found.lock().expect("nobody runs").take();
        if let Some(violation) = violation {
            return Some(format!("{by:?}, seed {seed}: {violation}"));
        }
    }
    None
}

/// Walks through a hash index in one thread while another's inserts split its segments. Each key from before must come
/// exactly once.
pub fn walk_beside_splits(by: Schedules, schedules: usize) -> Option<String> {
    const BEFORE: u64 = 6;
    let found = Arc::new(Mutex::new(None));
    let note = Arc::clone(&found);
    run_schedules(by, 1, schedules, move || {
        if note.lock().expect("one thread runs at a time").is_some() {
            return;
        }
        let (_heap, index) = place(|store| HashIndex::<u64>::open_with(store, "index", &HashOptions::small()));
        (0..BEFORE).for_each(|key| assert!(index.insert(&key, key).expect("insert")));
        let index = Arc::new(index);
        let inserts = shuttle::thread::spawn({
            let index = Arc::clone(&index);
            move || (BEFORE..8 * BEFORE).for_each(|key| assert!(index.insert(&key, key).expect("insert")))
        });
        let mut seen = Vec::new();
        index.for_each(|key, _| seen.push(*key)).expect("nothing is damaged");
        inserts.join().expect("a thread panicked");
        seen.retain(|key| *key < BEFORE);
        seen.sort_unstable();
        if !seen.iter().copied().eq(0..BEFORE) {
            *note.lock().expect("one thread runs at a time") = Some(format!("a walk showed {seen:?} of 0 to {BEFORE}"));
        }
    });
    found.lock().expect("nobody runs").take()
}
