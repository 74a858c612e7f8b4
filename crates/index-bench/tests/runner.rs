//! The runner on every index: right answers are counted right, and wrong answers end the run.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lodestone_index::{CacheMode, Durability, IndexKey};
use lodestone_index_bench::dram::{CrossbeamList, LockedTree};
use lodestone_index_bench::engines::OnEngine;
use lodestone_index_bench::key::{KeyMaker, StringKeys, WordKeys};
use lodestone_index_bench::kinds::{BenchIndex, Competitor, Setup, Visitor, visit, visit_strings};
use lodestone_index_bench::lodestone::IndexTarget;
use lodestone_index_bench::runner::{self, LoadOrder, Outcome, Spec};
use lodestone_index_bench::target::{Result, Session, Target};
use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
use lodestone_store::Store;
use lodestone_workload::memory::MemoryEngine;
use lodestone_workload::mix::Mix;
use lodestone_workload::race::{Length, Plan};

const RECORDS: u64 = 1500;
const OPERATIONS: u64 = 4000;

fn spec(mix: &str, threads: usize) -> Spec {
    let mix: Mix = mix.parse().expect("mix");
    let distribution = mix.distribution();
    Spec {
        records: RECORDS,
        first_new_record: RECORDS,
        mix,
        distribution,
        seed: 5,
        scan_keys: 1..=20,
        plan: Plan {
            time_one_of: 4,
            sample_interval: Duration::from_millis(5),
            ..Plan::new(threads, Length::Operations(OPERATIONS))
        },
    }
}

fn exercise<T: Target, M: KeyMaker<Key = T::Key>>(target: &T, keys: &M, order: LoadOrder) {
    runner::load(target, keys, RECORDS, 2, order).expect("load");
    let all = if target.is_ordered() {
        "read=30,insert=20,update=20,remove=10,scan=10,read-update=10"
    } else {
        "read=40,insert=20,update=20,remove=10,read-update=10"
    };
    let mut noted = 0;
    let outcome = runner::run(target, keys, &spec(all, 2), &mut || noted += 1).expect("run");
    let tally = outcome.tally;
    assert_eq!((outcome.run.operations, noted), (OPERATIONS, 2), "{}", target.name());
    assert!(tally.inserted > 600 && tally.removed > 200 && tally.missing > 100, "{tally:?}");
    assert_eq!(tally.scanned > 1000, target.is_ordered());
    assert_eq!(outcome.run.latency.len(), 1000, "one of four is timed");
    assert!(outcome.keys.is_none_or(|keys| keys == RECORDS + tally.inserted - tally.removed));
}

struct Exercise<'a, M> {
    keys: M,
    store: &'a Store,
    kind: Competitor,
}

impl<K: IndexKey + ?Sized, M: KeyMaker<Key = K>> Visitor<K> for Exercise<'_, M> {
    type Out = ();

    fn visit<I: BenchIndex<Key = K>>(self, options: &I::Options) {
        let target = IndexTarget::<I>::open(self.store, self.kind.name(), options, Durability::Sync, "process");
        let target = target.expect("index");
        assert_eq!(target.is_ordered(), self.kind.is_ordered());
        exercise(&target, &self.keys, LoadOrder::Random);
        let report = target.index().check();
        assert!(report.findings.is_empty(), "{}: {:?}", self.kind, report.findings);
    }
}

const SETUP: Setup = Setup { cache_keys: 150, cache_mode: CacheMode::Adaptive };

fn with_heap(work: impl FnOnce(&Store)) {
    let folder = tempfile::tempdir().expect("folder");
    let options = PoolOptions { size_bytes: 32 << 20, domain: DomainChoice::Process, ..PoolOptions::default() };
    let pool = Pool::create(folder.path().join("a.pool"), &options).expect("pool");
    work(&Store::over(&pool).expect("heap"));
}

#[test]
fn every_index_runs_with_numbers_and_with_strings() {
    for kind in Competitor::ALL {
        if kind.takes_words() {
            with_heap(|store| {
                visit(kind, SETUP, Exercise { keys: WordKeys::default(), store, kind }).expect("takes words");
            });
        }
        with_heap(|store| visit_strings(kind, SETUP, Exercise { keys: StringKeys::new(20), store, kind }));
    }
}

#[test]
fn the_floor_in_dram_and_an_engine_run_as_well() {
    exercise(&LockedTree::<u64>::default(), &WordKeys::default(), LoadOrder::Sorted);
    exercise(&CrossbeamList::<[u8]>::default(), &StringKeys::new(8), LoadOrder::Sorted);
    let engine = MemoryEngine::new();
    exercise(&OnEngine::new(&engine), &StringKeys::new(16), LoadOrder::Random);
}

/// A map that does one thing wrong.
struct Wrong {
    map: Mutex<BTreeMap<u64, u64>>,
    /// Insertions that were asked for, those of the load too.
    insertions: AtomicU64,
    fault: &'static str,
}

impl Target for Wrong {
    type Key = u64;
    type Session<'t> = &'t Self;

    fn name(&self) -> String {
        "wrong".into()
    }
    fn session(&self) -> Result<&Self> {
        Ok(self)
    }
    fn is_ordered(&self) -> bool {
        false
    }
    fn keys_now(&self) -> Result<Option<u64>> {
        Ok(Some(self.map.lock().expect("lock").len() as u64))
    }
}

impl Session for &Wrong {
    type Key = u64;

    fn get(&mut self, key: &u64) -> Result<Option<u64>> {
        let map = self.map.lock().expect("lock");
        let key = if self.fault == "neighbour" { map.range(key..).nth(1).map_or(*key, |found| *found.0) } else { *key };
        assert!(self.fault != "panic", "as asked");
        Ok(map.get(&key).copied())
    }
    fn insert(&mut self, key: &u64, value: u64) -> Result<bool> {
        let mut map = self.map.lock().expect("lock");
        // Whatever the threads do first: removals may come before insertions.
        if self.insertions.fetch_add(1, Ordering::Relaxed) >= RECORDS && self.fault == "drops inserts" {
            return Ok(true);
        }
        Ok(map.insert(*key, value).is_none())
    }
    fn update(&mut self, key: &u64, value: u64) -> Result<bool> {
        Ok(self.map.lock().expect("lock").insert(*key, value).is_some())
    }
    fn remove(&mut self, key: &u64) -> Result<bool> {
        let removed = self.map.lock().expect("lock").remove(key).is_some();
        Ok(removed && self.fault != "denies removals")
    }
    fn scan(&mut self, _: &u64, _: u64) -> Result<u64> {
        Ok(0)
    }
}

fn run_wrong(fault: &'static str, threads: usize) -> Result<Outcome> {
    let wrong = Wrong { map: Mutex::default(), insertions: AtomicU64::new(0), fault };
    runner::load(&wrong, &WordKeys::default(), RECORDS, 1, LoadOrder::Random)?;
    runner::run(&wrong, &WordKeys::default(), &spec("mixed", threads), &mut || {})
}

#[test]
fn wrong_answers_end_the_run() {
    run_wrong("none", 2).expect("nothing is wrong");
    for (fault, message) in [
        ("neighbour", "never its value"),
        ("drops inserts", "should leave"),
        ("denies removals", "its key is not there"),
        ("panic", "panicked"),
    ] {
        let error = run_wrong(fault, 2).expect_err(fault).to_string();
        assert!(error.contains(message), "{fault}: {error}");
    }
    let unordered = Wrong { map: Mutex::default(), insertions: AtomicU64::new(0), fault: "none" };
    let error = runner::run(&unordered, &WordKeys::default(), &spec("e", 1), &mut || {}).expect_err("no order");
    assert!(error.to_string().contains("cannot scan"), "{error}");
}
