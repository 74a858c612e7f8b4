//! Interleavings on cell lines with more than one bucket: readers beside writers of other buckets, segments and leaves
//! that change or die between an attempt and the structure change that it asks for. Each scenario panics when a
//! schedule breaks a promise.

use std::ops::Range;
use std::sync::Arc;

use lodestone_heap::HeapOptions;
use lodestone_index::{FpTree, HashIndex, HashOptions, PointIndex, TreeOptions};
use lodestone_pmem::{Pool, PoolOptions, SilentTracer};
use lodestone_store::{Store, StoreOptions};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, MaxSteps, Runner};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// An empty heap in DRAM.
fn store() -> Store {
    let options =
        PoolOptions { size_bytes: 64 << 10, journal_bytes: 0, reserve_bytes: 4 << 20, ..PoolOptions::default() };
    let pool = Pool::create_traced(&options, Arc::new(SilentTracer)).expect("a pool");
    Store::over_with(&pool, &StoreOptions::with_heap(HeapOptions::small())).expect("a heap")
}

/// Runs `body` under both schedulers.
fn every_schedule(schedules: usize, body: impl Fn() + Send + Sync + Clone + 'static) {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.max_steps = MaxSteps::FailAfter(2_000_000);
    Runner::new(RandomScheduler::new_from_seed(1, schedules), config.clone()).run(body.clone());
    Runner::new(PctScheduler::new_from_seed(1, 3, schedules), config).run(body);
}

/// Runs `threads` beside each other on `index`; what they say is whether nothing failed.
fn beside<I: PointIndex<Key = u64> + 'static>(index: &Arc<I>, threads: Vec<fn(&I)>) {
    let threads = threads.into_iter().map(|run| {
        let index = Arc::clone(index);
        shuttle::thread::spawn(move || run(&index))
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().expect("a thread panicked"));
}

const SEED: u64 = 1;

/// Two buckets of one line, and a line of stash.
fn two_buckets() -> HashOptions {
    HashOptions { buckets: 2, lines_per_bucket: 1, stash_lines: 1, initial_depth: 0, seed: Some(SEED) }
}

/// The first `count` keys at home in `bucket`.
fn keys_of(bucket: u64, count: usize) -> Vec<u64> {
    let home = |key: &u64| (xxh3_64_with_seed(&key.to_le_bytes(), SEED) & 0xFFFF_FFFF) >> 31;
    (0_u64..).filter(|key| home(key) == bucket).take(count).collect()
}

/// A reader whose key is in the stash passes pairs of the other bucket there, which change under it without its
/// stamp telling.
pub fn a_reader_of_the_stash_endures_writers_of_other_buckets(schedules: usize) {
    every_schedule(schedules, || {
        let store = store();
        let index = Arc::new(HashIndex::<u64>::open_with(&store, "index", &two_buckets()).expect("an index"));
        for key in [keys_of(0, 4), keys_of(1, 4)].concat() {
            assert!(index.insert(&key, key).expect("insert"));
        }
        let write = |index: &HashIndex<u64>| {
            let key = keys_of(0, 4)[3];
            (1..=3).for_each(|version| assert!(index.update(&key, version).expect("update").is_some()));
        };
        let read = |index: &HashIndex<u64>| {
            let key = keys_of(1, 4)[3];
            (0..3).for_each(|_| assert_eq!(index.get(&key).expect("nothing is damaged"), Some(key)));
        };
        beside(&index, vec![write, read]);
    });
}

fn insert_all(index: &HashIndex<u64>, keys: Range<u64>) {
    keys.for_each(|key| assert!(index.insert(&key, key).expect("insert")));
}

/// A writer finds its segment full, and by the time it asks for a split the segment's descriptor is being given to
/// another one.
pub fn segments_whose_descriptors_are_used_again_split_whole(schedules: usize) {
    every_schedule(schedules, || {
        let store = store();
        let index = Arc::new(HashIndex::<u64>::open_with(&store, "index", &two_buckets()).expect("an index"));
        (0..8).for_each(|key| assert!(index.insert(&key, key).expect("insert")));
        let first = |index: &HashIndex<u64>| insert_all(index, 100..112);
        let second = |index: &HashIndex<u64>| insert_all(index, 200..212);
        let third = |index: &HashIndex<u64>| insert_all(index, 300..312);
        beside(&index, vec![first, second, third]);
        let report = index.check();
        assert!(report.is_intact() && report.records == 44, "{report:?}");
    });
}

/// A writer finds its leaf full, and by the time it asks for a split the leaf holds nothing.
pub fn a_leaf_that_was_emptied_before_its_split_needs_none(schedules: usize) {
    every_schedule(schedules, || {
        let store = store();
        let options = TreeOptions { lines_per_leaf: 1, ..TreeOptions::default() };
        let tree = Arc::new(FpTree::<u64>::open_with(&store, "tree", &options).expect("a tree"));
        (1..=3).for_each(|key| assert!(tree.insert(&key, key).expect("insert")));
        let insert = |tree: &FpTree<u64>| assert!(tree.insert(&4, 4).expect("insert"));
        let remove = |tree: &FpTree<u64>| {
            (1..=3).for_each(|key| assert_eq!(tree.remove(&key).expect("remove"), Some(key)));
        };
        beside(&tree, vec![insert, remove]);
        let report = tree.check();
        assert!(report.is_intact() && report.records == 1, "{report:?}");
    });
}
