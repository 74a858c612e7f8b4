//! Few threads on few keys of one bucket, under a deterministic scheduler, and a history that must be linearizable.
//!
//! The index below is a map in DRAM whose every operation is one step between two points where the scheduler may
//! switch, so that each schedule decides what the cache does around it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lodestone_index::{Acs, CacheCapacity, CacheMode, CacheOptions, IndexReport, PointIndex, Result, Swap};
use lodestone_pmem::sync::{Mutex, interleave, lock, thread};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, MaxSteps, Runner};

use crate::conformance::concurrent::run;
use crate::conformance::linear::{Event, Op, find_violation};

/// A map whose operations take effect between two switches.
struct Stepped(Mutex<BTreeMap<u64, u64>>);

impl Stepped {
    fn step<T>(&self, step: impl FnOnce(&mut BTreeMap<u64, u64>) -> T) -> Result<T> {
        interleave();
        let found = step(&mut lock(&self.0));
        interleave();
        Ok(found)
    }
}

impl PointIndex for Stepped {
    type Key = u64;

    fn get(&self, key: &u64) -> Result<Option<u64>> {
        self.step(|map| map.get(key).copied())
    }

    fn insert(&self, key: &u64, value: u64) -> Result<bool> {
        self.step(|map| {
            let fresh = !map.contains_key(key);
            map.entry(*key).or_insert(value);
            fresh
        })
    }

    fn update(&self, key: &u64, value: u64) -> Result<Option<u64>> {
        self.step(|map| map.get_mut(key).map(|found| std::mem::replace(found, value)))
    }

    fn upsert(&self, key: &u64, value: u64) -> Result<Option<u64>> {
        self.step(|map| map.insert(*key, value))
    }

    fn remove(&self, key: &u64) -> Result<Option<u64>> {
        self.step(|map| map.remove(key))
    }

    fn compare_and_swap(&self, key: &u64, current: u64, new: u64) -> Result<Swap> {
        self.step(|map| match map.get_mut(key) {
            None => Swap::Absent,
            Some(found) if *found == current => {
                *found = new;
                Swap::Done
            }
            Some(found) => Swap::Differs(*found),
        })
    }

    fn len(&self) -> Result<u64> {
        Ok(lock(&self.0).len() as u64)
    }

    fn key_bytes_max(&self) -> usize {
        8
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn check(&self) -> IndexReport {
        IndexReport::default()
    }
}

/// The content of the index, and the steps of each thread.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub before: Vec<(u64, u64)>,
    /// Keys that are cached when the threads begin.
    pub cached: Vec<u64>,
    pub threads: Vec<Vec<(u64, Op)>>,
    pub options: CacheOptions,
}

fn options() -> CacheOptions {
    CacheOptions { seed: Some(5), ..CacheOptions::default().with_mode(CacheMode::Serial).with_entries(6) }
}

impl Scenario {
    fn on_one_key(name: &'static str, is_cached: bool, threads: &[&[Op]]) -> Self {
        let threads = threads.iter().map(|ops| ops.iter().map(|op| (1, *op)).collect()).collect();
        let cached = if is_cached { vec![1] } else { Vec::new() };
        Self { name, before: vec![(1, 100)], cached, threads, options: options() }
    }

    fn beside_a_helper(mut self) -> Self {
        self.options.mode = CacheMode::Parallel;
        self
    }

    /// A reader with a helper and a writer that go through the same keys.
    fn side_by_side(name: &'static str) -> Self {
        let mut scenario = Self::on_one_key(name, false, &[]).beside_a_helper();
        scenario.before = (1..=5).map(|key| (key, 100 + key)).collect();
        scenario.threads =
            vec![(1..=5).map(|key| (key, Op::Get)).collect(), (1..=5).map(|key| (key, Op::Update(key))).collect()];
        scenario
    }

    /// A reader whose cached key makes room for others between its look at the key and at the value.
    fn evicting(name: &'static str) -> Self {
        let mut scenario = Self::on_one_key(name, true, &[&[Op::Get, Op::Get, Op::Get]]);
        scenario.before = (1..=5).map(|key| (key, 100 + key)).collect();
        scenario.threads.push((2..=5).map(|key| (key, Op::Get)).collect());
        scenario.options = scenario.options.with_entries(1);
        scenario
    }

    /// Readers of a key whose first bucket gets full between the two, so that they choose different ones.
    fn choosing(name: &'static str, ops: &[&[Op]]) -> Self {
        let mut scenario = Self::on_one_key(name, false, ops);
        let key_of_all = 2;
        scenario.threads.iter_mut().flatten().for_each(|(key, _)| *key = key_of_all);
        scenario.before = (1..=7).map(|key| (key, 100 + key)).collect();
        scenario.cached = (1..=7).filter(|key| *key != key_of_all).collect();
        scenario
    }

    /// Inserts that make the cache grow beside changes of a cached key.
    fn growing(name: &'static str, ops: &[&[Op]]) -> Self {
        let mut scenario = Self::on_one_key(name, true, ops);
        scenario.before.extend((10..15).map(|key| (key, key)));
        scenario.threads.push((20..26).map(|key| (key, Op::Insert(key))).collect());
        scenario.options.capacity = CacheCapacity::Share(1.0);
        scenario
    }
}

/// The races that are known, each by name.
pub fn known() -> Vec<Scenario> {
    use Op::{Get, Insert, Remove, Swap, Update, Upsert};
    let on_one_key = Scenario::on_one_key;
    vec![
        on_one_key("fill and update", false, &[&[Get, Get], &[Update(1), Get]]),
        on_one_key("fill and removal", false, &[&[Get, Get], &[Remove, Get, Insert(2)]]),
        on_one_key("hit and update", true, &[&[Get, Get], &[Get, Get], &[Update(1)]]),
        // The swap that cannot succeed asks the index past the cache, as a scan does.
        on_one_key("told by the index, then by the cache", true, &[&[Update(1)], &[Swap(999, 0), Get], &[Get, Get]]),
        on_one_key("hit and removal", true, &[&[Get, Get], &[Remove, Insert(3), Get]]),
        on_one_key("two updates", true, &[&[Update(1), Get], &[Update(2), Get]]),
        on_one_key("two fills and updates", false, &[&[Get, Get], &[Get, Get], &[Update(1), Update(2), Get]]),
        Scenario::evicting("hit and eviction"),
        Scenario::choosing("fills of two buckets and update", &[&[Get, Get], &[Get, Get], &[Update(1), Get]]),
        Scenario::choosing("fills of two buckets and removal", &[&[Get, Get], &[Get, Get], &[Remove, Get]]),
        on_one_key("two updates and a fill", false, &[&[Get, Get], &[Update(1)], &[Upsert(2), Get]]),
        on_one_key("swap and update", true, &[&[Swap(100, 1), Get], &[Update(2), Get], &[Get, Get]]),
        on_one_key("parallel search and update", false, &[&[Get, Get], &[Update(1), Get]]).beside_a_helper(),
        on_one_key("parallel search and removal", false, &[&[Get, Get], &[Remove, Insert(3), Get]]).beside_a_helper(),
        on_one_key("parallel search and hit", true, &[&[Get, Get], &[Update(1)], &[Get]]).beside_a_helper(),
        on_one_key("parallel search and swap", true, &[&[Get, Get], &[Swap(999, 0), Swap(999, 0), Remove, Get]])
            .beside_a_helper(),
        Scenario::side_by_side("parallel searches and updates"),
        Scenario::growing("growth and updates", &[&[Update(1), Get, Update(2)], &[Get, Get, Get]]),
        Scenario::growing("growth and removal", &[&[Remove, Get, Insert(4)], &[Get, Get, Update(5)]]),
    ]
}

/// Scenario number `seed`: two or three threads on four keys.
pub fn drawn(seed: u64) -> Scenario {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut draw = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let mut version = 0;
    let mut op = || {
        version += 1;
        let key = draw(4);
        let op = match draw(12) {
            0..5 => Op::Get,
            5..8 => Op::Update(version),
            8 => Op::Insert(version),
            9 => Op::Upsert(version),
            10 => Op::Swap(100 + key, version),
            _ => Op::Remove,
        };
        (key, op)
    };
    let count = 2 + seed % 2;
    let threads = (0..count).map(|_| (0..10 / count).map(|_| op()).collect()).collect();
    let before = (0..3).map(|key| (key, 100 + key)).collect();
    let scenario = Scenario { name: "drawn", before, cached: vec![0, 1], threads, options: options() };
    if seed.is_multiple_of(3) { scenario.beside_a_helper() } else { scenario }
}

/// Runs `scenario` once under the scheduler that is driving this thread.
fn run_once(scenario: &Scenario) {
    let map = Mutex::new(scenario.before.iter().copied().collect());
    let index = Arc::new(Acs::new(Stepped(map), &scenario.options).expect("a cache"));
    index.warm(&scenario.cached).expect("reads");
    let clock = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = scenario
        .threads
        .iter()
        .cloned()
        .enumerate()
        .map(|(thread, ops)| {
            let (index, clock) = (Arc::clone(&index), Arc::clone(&clock));
            thread::spawn(move || {
                let event = |(key, op): (u64, Op)| {
                    let begun = clock.fetch_add(1, Ordering::SeqCst);
                    let answer = run(&*index, &key, op).expect("an answer");
                    Event { thread, key, op, answer, begun, ended: clock.fetch_add(1, Ordering::SeqCst) }
                };
                ops.into_iter().map(event).collect::<Vec<_>>()
            })
        })
        .collect();
    let mut events: Vec<Event> = Vec::new();
    for handle in threads {
        events.extend(handle.join().expect("a thread panicked"));
    }
    // The final content of cache and index counts as answers as well.
    let keys: std::collections::BTreeSet<u64> = events.iter().map(|event| event.key).collect();
    for key in keys {
        for answer in [run(&*index, &key, Op::Get), run(index.index(), &key, Op::Get)] {
            let at = clock.fetch_add(1, Ordering::SeqCst);
            let answer = answer.expect("an answer");
            events.push(Event { thread: usize::MAX, key, op: Op::Get, answer, begun: at, ended: at });
        }
    }
    let before = |key| scenario.before.iter().find(|(other, _)| *other == key).map(|(_, value)| *value);
    if let Some(violation) = find_violation(&events, before) {
        panic!("{}: no order explains {violation:#?}", scenario.name);
    }
    let report = index.check();
    assert!(report.is_intact(), "{}: {:?}", scenario.name, report.findings);
}

/// Runs `scenario` under `schedules` random schedules and as many with few changes of priority.
pub fn explore(scenario: &Scenario, seed: u64, schedules: usize) {
    let config = || {
        let mut config = Config::new();
        config.stack_size = 1 << 18;
        config.max_steps = MaxSteps::FailAfter(200_000);
        config
    };
    let random = scenario.clone();
    Runner::new(RandomScheduler::new_from_seed(seed, schedules), config()).run(move || run_once(&random));
    let few = scenario.clone();
    Runner::new(PctScheduler::new_from_seed(seed, 3, schedules), config()).run(move || run_once(&few));
}
