//! Interleavings: threads insert, update, remove and read few keys under a deterministic scheduler, with leaves of two
//! slots so that splits and merges are among them; every history of answers is linearizable.
//!
//! Checker: a history is right when the operations have an order that respects real time (what ended before another
//! began comes before it) and leads to every answer that was given. All orders are searched.
//!
//! Run with `cargo test -p lodestone-index --features shuttle --test schedules`; a failure prints the schedule, which
//! `shuttle::replay` runs again.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use lodestone_heap::HeapOptions;
use lodestone_index::{Durability, MapOptions, OrderedMap};
use lodestone_pmem::{Pool, PoolOptions, SilentTracer};
use lodestone_store::{Store, StoreOptions};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, MaxSteps, Runner};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Insert(u8, u8),
    Update(u8, u8),
    Remove(u8),
    Get(u8),
}

/// The answer of an operation: whether the key was there, and for a read its value.
type Answer = Option<u8>;

#[derive(Clone, Copy, Debug)]
struct Event {
    op: Op,
    answer: Answer,
    begun: u64,
    ended: u64,
}

fn apply(model: &mut BTreeMap<u8, u8>, op: Op) -> Answer {
    match op {
        Op::Insert(key, value) => model.insert(key, value).map(|_| 0),
        Op::Update(key, value) => model.get_mut(&key).map(|found| {
            *found = value;
            0
        }),
        Op::Remove(key) => model.remove(&key).map(|_| 0),
        Op::Get(key) => model.get(&key).copied(),
    }
}

fn run(map: &OrderedMap, op: Op) -> Answer {
    let there = |found: bool| found.then_some(0);
    match op {
        Op::Insert(key, value) => there(map.insert(&[key], &[value; 20]).expect("insert")),
        Op::Update(key, value) => there(map.update(&[key], &[value; 20]).expect("update")),
        Op::Remove(key) => there(map.remove(&[key]).expect("remove")),
        Op::Get(key) => {
            let mut value = Vec::new();
            let found = map.get_with(&[key], &mut value, Durability::Sync).expect("get");
            assert!(!found || value == [value[0]; 20], "a torn value");
            found.then(|| value[0])
        }
    }
}

/// Whether `events` have an order that explains every answer, from `model` on.
fn is_linearizable(events: &[Event], model: &BTreeMap<u8, u8>) -> bool {
    fn search(
        events: &[Event],
        placed: u64,
        model: &BTreeMap<u8, u8>,
        seen: &mut HashSet<(u64, Vec<(u8, u8)>)>,
    ) -> bool {
        if placed.count_ones() as usize == events.len() {
            return true;
        }
        if !seen.insert((placed, model.iter().map(|(key, value)| (*key, *value)).collect())) {
            return false;
        }
        let is_open = |at: usize| placed & (1 << at) == 0;
        (0..events.len()).filter(|&at| is_open(at)).any(|at| {
            let overtakes = (0..events.len()).any(|other| is_open(other) && events[other].ended < events[at].begun);
            let mut next = model.clone();
            !overtakes
                && apply(&mut next, events[at].op) == events[at].answer
                && search(events, placed | 1 << at, &next, seen)
        })
    }
    search(events, 0, model, &mut HashSet::new())
}

/// One scenario: the content of the map, and the steps of each thread.
#[derive(Clone, Debug)]
struct Scenario {
    before: Vec<(u8, u8)>,
    threads: Vec<Vec<Op>>,
}

/// Scenario number `seed`: two or three threads, three or four operations each, on four or five keys.
fn scenario(seed: u64) -> Scenario {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut draw = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % limit) as u8
    };
    let keys = 4 + u64::from(draw(2));
    let before = (0..draw(5)).map(|key| (key % keys as u8, 100 + key)).collect();
    let count = 2 + draw(2);
    let mut version = 0;
    let mut op = |draw: &mut dyn FnMut(u64) -> u8| {
        version += 1;
        let key = draw(keys);
        match draw(10) {
            0..=3 => Op::Insert(key, version),
            4 => Op::Update(key, version),
            5..=7 => Op::Remove(key),
            _ => Op::Get(key),
        }
    };
    let threads = (0..count).map(|_| (0..if count == 2 { 4 } else { 3 }).map(|_| op(&mut draw)).collect()).collect();
    Scenario { before, threads }
}

/// Runs `scenario` once under the scheduler that is driving this thread.
fn run_scenario(scenario: &Scenario) {
    let options =
        PoolOptions { size_bytes: 64 << 10, journal_bytes: 0, reserve_bytes: 1 << 20, ..PoolOptions::default() };
    let pool = Pool::create_traced(&options, Arc::new(SilentTracer)).expect("a pool");
    let store = Store::over_with(&pool, &StoreOptions::with_heap(HeapOptions::small())).expect("a heap");
    let map = OrderedMap::open_with(&store, "map", &MapOptions { slots_per_leaf: 2 }).expect("a map");
    let mut model = BTreeMap::new();
    for &(key, value) in &scenario.before {
        run(&map, Op::Insert(key, value));
        model.insert(key, value);
    }
    let map = Arc::new(map);
    let clock = Arc::new(AtomicU64::new(0));
    let events = Arc::new(Mutex::new(Vec::new()));
    let threads: Vec<_> = scenario
        .threads
        .iter()
        .map(|ops| {
            let (map, clock, events, ops) = (Arc::clone(&map), Arc::clone(&clock), Arc::clone(&events), ops.clone());
            shuttle::thread::spawn(move || {
                for op in ops {
                    let begun = clock.fetch_add(1, Ordering::SeqCst);
                    let answer = run(&map, op);
                    let ended = clock.fetch_add(1, Ordering::SeqCst);
                    events.lock().expect("one thread runs at a time").push(Event { op, answer, begun, ended });
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("a thread panicked");
    }
    let mut events = events.lock().expect("one thread runs at a time").clone();
    // The final content of the map counts as answers as well.
    for key in 0..6 {
        let at = clock.fetch_add(1, Ordering::SeqCst);
        events.push(Event { op: Op::Get(key), answer: run(&map, Op::Get(key)), begun: at, ended: at });
    }
    assert!(is_linearizable(&events, &model), "no order explains {events:#?} from {model:?}");
    let report = map.check();
    assert!(report.is_intact(), "{:?}", report.findings);
    let mut held = 0;
    store.heap().for_each_block(|_, _| held += 1);
    assert_eq!(report.blocks.len() + store.own_blocks().len(), held, "blocks of the map and of the heap");
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.max_steps = MaxSteps::FailAfter(2_000_000);
    config
}

#[test]
fn random_schedules_are_linearizable() {
    let runs = Arc::new(AtomicUsize::new(0));
    for seed in 0..60 {
        let (scenario, counted) = (scenario(seed), Arc::clone(&runs));
        Runner::new(RandomScheduler::new_from_seed(seed, 25), config()).run(move || {
            counted.fetch_add(1, Ordering::SeqCst);
            run_scenario(&scenario);
        });
    }
    println!("{} random schedules of 60 scenarios", runs.load(Ordering::SeqCst));
}

#[test]
fn schedules_with_few_changes_of_priority_are_linearizable() {
    for seed in 0..60 {
        let scenario = scenario(1000 + seed);
        Runner::new(PctScheduler::new_from_seed(seed, 3, 25), config()).run(move || run_scenario(&scenario));
    }
}

#[test]
fn the_checker_can_fail() {
    let event = |op, answer, begun, ended| Event { op, answer, begun, ended };
    let stale = [event(Op::Insert(1, 7), None, 0, 1), event(Op::Get(1), None, 2, 3)];
    assert!(!is_linearizable(&stale, &BTreeMap::new()), "a read after an insert misses it");
    let overlapping = [event(Op::Insert(1, 7), None, 0, 3), event(Op::Get(1), None, 1, 2)];
    assert!(is_linearizable(&overlapping, &BTreeMap::new()));
    let twice = [event(Op::Remove(1), Some(0), 0, 3), event(Op::Remove(1), Some(0), 1, 2)];
    assert!(!is_linearizable(&twice, &BTreeMap::from([(1, 5)])), "two threads remove one record");
}
