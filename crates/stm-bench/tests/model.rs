//! Every structure on every engine: on one thread against a sorted map, on two threads against its own counts.

use std::collections::BTreeMap;
use std::path::Path;

use lodestone_baselines::tl2::{ClockKind, LogKind, Tl2, Tl2Options};
use lodestone_heap::HeapOptions;
use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
use lodestone_stm::Mode;
use lodestone_stm_bench::dram::{Dram, DramLock};
use lodestone_stm_bench::driver::MapOn;
use lodestone_stm_bench::lodestone::Lodestone;
use lodestone_stm_bench::mix::value_of;
use lodestone_stm_bench::runner::{Spec, load, run};
use lodestone_stm_bench::structures::{BTree, Get, HashTable, Insert, Map, ReadAll, Remove, SearchTree, SortedList};
use lodestone_stm_bench::tm::{TransactionalMemory, Worker};
use lodestone_workload::race::{Length, Plan};
use lodestone_workload::random::Random;

/// Random operations on a map. Each answer is compared with a sorted map's, and the whole map from time to time.
fn follows_the_model<M: TransactionalMemory, S: Map>(memory: &M, map: S, slot: usize) {
    let handle = map.create(memory, slot).expect("room for the map");
    let mut model = BTreeMap::new();
    let mut random = Random::new(17);
    let mut worker = memory.worker().expect("a worker");
    for step in 0..4_000_u64 {
        // The range shrinks and grows, so that maps fill, split, and empty.
        let range = if (step / 1_000).is_multiple_of(2) { 400 } else { 40 };
        let key = 1 + random.below(range);
        let name = format!("{} on {} at step {step}, key {key}", map.name(), memory.name());
        match random.below(3) {
            0 => {
                let value = value_of(key);
                let inserted = worker.update(&mut Insert::<S> { map: &handle, key, value }).expect("insert");
                assert_eq!(inserted, !model.contains_key(&key), "{name}");
                model.entry(key).or_insert(value);
            }
            1 => {
                let removed = worker.update(&mut Remove::<S> { map: &handle, key }).expect("remove");
                assert_eq!(removed, model.remove(&key).is_some(), "{name}");
            }
            _ => {
                let found = worker.read(&mut Get::<S> { map: &handle, key }).expect("get");
                assert_eq!(found, model.get(&key).copied(), "{name}");
            }
        }
        if step % 500 == 499 {
            let mut all = worker.read(&mut ReadAll::<S> { map: &handle }).expect("entries");
            all.pairs.sort_unstable();
            assert_eq!((all.fault, all.pairs), (None, model.clone().into_iter().collect()), "{name}");
        }
    }
}

fn every_structure_follows_the_model<M: TransactionalMemory>(memory: &M) {
    follows_the_model(memory, HashTable { buckets: 37 }, 0);
    follows_the_model(memory, SearchTree, 1);
    follows_the_model(memory, SortedList, 2);
    follows_the_model(memory, BTree, 3);
}

/// Two threads with many updates on few keys. The runner checks order, values and size afterwards.
fn threads_leave_a_sound_map<M: TransactionalMemory, S: Map>(memory: &M, map: S) {
    let plan = Plan::new(2, Length::Operations(8_000));
    let spec = Spec { keys: 32, updates_percent: 80, seed: 5, plan };
    let driver = MapOn::create(memory, map).expect("room for the map");
    load(&driver, &spec).expect("load");
    let outcome = run(&driver, &spec).expect("a sound map");
    assert_eq!(outcome.run.operations, 8_000);
    assert!(outcome.tally.statistics.commits >= 8_000 && outcome.tally.changes > 2_000, "{outcome:?}");
}

fn every_structure_stands_two_threads<M: TransactionalMemory>(make: impl Fn() -> M) {
    threads_leave_a_sound_map(&make(), HashTable { buckets: 8 });
    threads_leave_a_sound_map(&make(), SearchTree);
    threads_leave_a_sound_map(&make(), SortedList);
    threads_leave_a_sound_map(&make(), BTree);
}

fn tl2(folder: &Path, name: &str, log: LogKind, clock: ClockKind) -> Tl2 {
    let options = PoolOptions { size_bytes: 32 << 20, domain: DomainChoice::Process, ..PoolOptions::default() };
    let pool = Pool::create(folder.join(name), &options).expect("a pool");
    let small = Tl2Options { object_bytes: 4 << 20, page_bytes: 4 << 10, workers: 4, ..Tl2Options::new(log, clock) };
    Tl2::open(&pool, &HeapOptions::default(), &small).expect("a TL2")
}

#[test]
fn structures_follow_the_model_in_dram() {
    every_structure_follows_the_model(&Dram::new(4 << 20, DramLock::None));
    every_structure_follows_the_model(&Dram::new(4 << 20, DramLock::ReaderWriter));
}

#[test]
fn structures_follow_the_model_on_tl2() {
    let folder = tempfile::tempdir().expect("a folder");
    for log in [LogKind::Undo, LogKind::Redo] {
        every_structure_follows_the_model(&tl2(folder.path(), &format!("{log:?}"), log, ClockKind::Add));
    }
}

const MODES: [Mode; 3] = [Mode::OneFence, Mode::AddressLog, Mode::Scan];
const CLOCKS: [lodestone_stm::ClockKind; 4] = [
    lodestone_stm::ClockKind::Thread,
    lodestone_stm::ClockKind::GlobalMutex,
    lodestone_stm::ClockKind::GlobalFetchAdd,
    lodestone_stm::ClockKind::GlobalCompareExchange,
];

fn lodestone(folder: &Path, mode: Mode, clock: lodestone_stm::ClockKind) -> Lodestone {
    let options = PoolOptions { size_bytes: 32 << 20, domain: DomainChoice::Process, ..PoolOptions::default() };
    let pool = Pool::create(folder.join("pool"), &options).expect("a pool");
    Lodestone::open(&pool, mode, clock).expect("a memory")
}

#[test]
fn structures_follow_the_model_on_lodestone() {
    for mode in MODES {
        for clock in CLOCKS {
            let folder = tempfile::tempdir().expect("a folder");
            every_structure_follows_the_model(&lodestone(folder.path(), mode, clock));
        }
    }
}

#[test]
fn structures_stand_two_threads_on_lodestone() {
    for (mode, clock) in MODES.into_iter().flat_map(|mode| CLOCKS.map(|clock| (mode, clock))) {
        every_structure_stands_two_threads(|| {
            let folder = tempfile::tempdir().expect("a folder");
            lodestone(folder.path(), mode, clock)
        });
    }
}

#[test]
fn structures_stand_two_threads_in_dram() {
    every_structure_stands_two_threads(|| Dram::new(4 << 20, DramLock::ReaderWriter));
}

#[test]
fn structures_stand_two_threads_on_tl2() {
    for log in [LogKind::Undo, LogKind::Redo] {
        for clock in ClockKind::ALL {
            every_structure_stands_two_threads(|| {
                let folder = tempfile::tempdir().expect("a folder");
                tl2(folder.path(), "pool", log, clock)
            });
        }
    }
}

#[test]
fn a_memory_without_a_lock_refuses_a_second_thread() {
    let memory = Dram::new(1 << 20, DramLock::None);
    let first = memory.worker().expect("the first");
    assert!(memory.worker().is_err());
    drop(first);
    assert!(memory.worker().is_ok());
}

#[test]
fn a_transaction_that_outgrows_its_log_fails_and_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    for log in [LogKind::Undo, LogKind::Redo] {
        let options = PoolOptions { size_bytes: 16 << 20, domain: DomainChoice::Process, ..PoolOptions::default() };
        let pool = Pool::create(folder.path().join(format!("{log:?}")), &options).expect("a pool");
        let small = Tl2Options { log_bytes: 192, ..Tl2Options::new(log, ClockKind::Add) };
        let tm =
            Tl2::open(&pool, &HeapOptions::default(), &Tl2Options { object_bytes: 1 << 20, ..small }).expect("a TL2");
        let error = HashTable { buckets: 30 }.create(&tm, 0).expect_err("thirty heads do not fit 192 bytes");
        assert!(error.to_string().contains("does not fit its log"), "{error}");
        // The list's head fits, and nothing of the rest remains.
        let before = tm.blocks_taken();
        let list = SortedList.create(&tm, 1).expect("a list");
        assert_eq!(tm.blocks_taken(), before + 1);
        let mut worker = tm.worker().expect("a worker");
        assert!(worker.update(&mut Insert::<SortedList> { map: &list, key: 1, value: 2 }).expect("insert"));
    }
}

#[test]
fn a_body_that_panics_leaves_no_lock_behind() {
    use lodestone_stm_bench::tm::{Ref, Root, UpdateBody, Writing};

    struct Panicking(Ref<Root>);
    impl UpdateBody for Panicking {
        type Out = ();

        fn run<X: Writing>(&mut self, tx: &mut X) -> Result<(), X::Abort> {
            tx.write(self.0, |root| root.words[7] = 1)?;
            panic!("on purpose");
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    for log in [LogKind::Undo, LogKind::Redo] {
        let tm = tl2(folder.path(), &format!("panic {log:?}"), log, ClockKind::Add);
        let attempt = std::panic::AssertUnwindSafe(|| {
            let mut worker = tm.worker().expect("a worker");
            worker.update(&mut Panicking(tm.root()))
        });
        assert!(std::panic::catch_unwind(attempt).is_err());
        // The root is written again, by another worker.
        let list = SortedList.create(&tm, 0).expect("the root is not locked");
        let mut worker = tm.worker().expect("a worker");
        assert!(worker.update(&mut Insert::<SortedList> { map: &list, key: 1, value: 2 }).expect("insert"));
    }
}
