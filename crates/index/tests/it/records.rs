//! [`IndexedRecords`] over every index pass the suite of ordered maps; full pools, reopening, refusals, damage, costs.

use std::collections::HashSet;
use std::marker::PhantomData;
use std::ops::{Bound, ControlFlow};
use std::path::PathBuf;

use crate::suite::{self, Fixture, assert_intact, contents};
use lodestone_index::{
    Durability, Error, FastFair, FastFairOptions, FpTree, Hybrid, HybridPlus, IndexKind, IndexedRecords, KEY_BYTES_MAX,
    OrderedMap, RecordIndex, RecordMap, RecordsOptions, Result, SkipList, open_records,
};
use lodestone_pmem::{CounterScope, DomainChoice, Pool, PoolOptions};
use lodestone_store::Store;
use proptest::prelude::*;

const POOL_BYTES: u64 = 16 << 20;

/// Maps in a pool file of the process domain, closed and opened again.
struct Place<I: RecordIndex> {
    _folder: tempfile::TempDir,
    path: PathBuf,
    pool: PoolOptions,
    options: RecordsOptions<I::Options>,
    store: Option<Store>,
    index: PhantomData<fn() -> I>,
}

impl<I: RecordIndex> Place<I> {
    fn with(stripes: usize, index: I::Options, size_bytes: u64) -> Self {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("records.pool");
        let pool =
            PoolOptions { domain: DomainChoice::Process, size_bytes, journal_bytes: 1 << 20, ..PoolOptions::default() };
        let mut options = RecordsOptions::new(index);
        options.stripes = stripes;
        Self { _folder: folder, path, pool, options, store: None, index: PhantomData }
    }

    fn new(stripes: usize) -> Self {
        Self::with(stripes, I::Options::default(), POOL_BYTES)
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("the map was opened")
    }
}

impl<I: RecordIndex> Fixture for Place<I> {
    type Index = IndexedRecords<I>;

    fn open(&mut self) -> IndexedRecords<I> {
        // The pool's lock goes with its last handle.
        self.store = None;
        let pool = Pool::open_or_create(&self.path, &self.pool).expect("a pool");
        let store = Store::over(&pool).expect("a heap");
        let map = IndexedRecords::open(&store, "map", &self.options, Durability::Sync);
        self.store = Some(store);
        map.expect("a map")
    }

    fn assert_no_leak(&self, map: &IndexedRecords<I>) {
        let owned: HashSet<_> = map.check().blocks.into_iter().chain(self.store().own_blocks()).collect();
        let mut held = HashSet::new();
        self.store().heap().for_each_block(|at, _| {
            held.insert(at);
        });
        assert_eq!(owned, held, "the heap's blocks and the map's");
    }
}

fn small_tree(stripes: usize) -> Place<FastFair<[u8]>> {
    Place::with(stripes, FastFairOptions::with_lines(2), POOL_BYTES)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_a_model_over_fastfair(steps in suite::steps(300)) {
        suite::run_model(&mut small_tree(1), steps.clone())?;
        suite::run_model(&mut Place::<FastFair<[u8]>>::new(64), steps)?;
    }

    #[test]
    fn agrees_with_a_model_over_fptree(steps in suite::steps(300)) {
        suite::run_model(&mut Place::<FpTree<[u8]>>::new(8), steps)?;
    }

    #[test]
    fn agrees_with_a_model_over_the_skip_list(steps in suite::steps(300)) {
        suite::run_model(&mut Place::<SkipList<[u8]>>::new(8), steps)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_a_model_over_the_hybrids(steps in suite::steps(200)) {
        suite::run_model(&mut Place::<Hybrid<[u8]>>::new(8), steps.clone())?;
        suite::run_model(&mut Place::<HybridPlus<[u8]>>::new(8), steps)?;
    }
}

#[test]
fn keys_at_the_edges() -> Result<()> {
    suite::edge_keys(&mut small_tree(4), KEY_BYTES_MAX)
}

/// Records of which each says in every byte what its first says.
fn value_of(version: u8, bytes: usize) -> Vec<u8> {
    vec![version; bytes]
}

#[test]
fn threads_change_and_read_the_same_keys() -> Result<()> {
    let mut place = small_tree(4);
    let map = place.open();
    std::thread::scope(|scope| {
        for thread in 0..3_u8 {
            let map = &map;
            scope.spawn(move || {
                for round in 0..400_usize {
                    let key = [(round * 7 + usize::from(thread)) as u8 % 16];
                    if round % 5 == 4 {
                        map.remove(&key).expect("remove");
                    } else {
                        let version = thread * 80 + (round % 80) as u8;
                        map.insert(&key, &value_of(version, 8 + round % 90)).expect("insert");
                    }
                }
            });
        }
        scope.spawn(|| {
            for round in 0..1500_usize {
                if let Some(value) = map.get(&[round as u8 % 16]).expect("get") {
                    assert!(value.iter().all(|byte| *byte == value[0]), "torn: {value:?}");
                }
                if round % 50 == 0 {
                    let all = contents(&map).expect("scan");
                    assert!(all.is_sorted_by(|left, right| left.0 < right.0));
                    assert!(all.iter().all(|(_, value)| value.iter().all(|byte| *byte == value[0])));
                }
            }
        });
    });
    assert_intact(&place, &map);
    let before = contents(&map)?;
    drop(map);
    let map = place.open();
    assert_eq!(contents(&map)?, before);
    assert_intact(&place, &map);
    Ok(())
}

#[test]
fn what_a_scan_shows_records_to_may_change_the_map() -> Result<()> {
    let mut place = small_tree(4);
    let map = place.open();
    for number in 0..100_u8 {
        map.insert(&[number], &[number; 50])?;
    }
    let mut removed = 0_u64;
    let seen = map.scan(Bound::Unbounded, Bound::Unbounded, &mut |key, value| {
        assert_eq!(value, [key[0]; 50]);
        removed += u64::from(map.remove(key).expect("remove"));
        ControlFlow::Continue(())
    })?;
    assert_eq!((seen, removed, map.len()?), (100, 100, 0));
    assert_intact(&place, &map);
    Ok(())
}

fn full_pool<I: RecordIndex>(index: I::Options) -> Result<()> {
    let mut place = Place::<I>::with(8, index, 3 << 20);
    let map = place.open();
    let mut count = 0_u64;
    let error = loop {
        match map.insert(&count.to_be_bytes(), &[count as u8; 300]) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(error.is_full(), "{error}");
    assert!(count > 500, "{count} records fit");
    assert_intact(&place, &map);
    // A replacement needs room for both records.
    let replaced = map.insert(&0_u64.to_be_bytes(), &[9; 100_000]);
    assert!(replaced.is_err_and(|error| error.is_full()));
    for number in 0..count {
        assert_eq!(map.get(&number.to_be_bytes())?, Some(vec![number as u8; 300]));
    }
    for number in 0..count / 2 {
        assert!(map.remove(&number.to_be_bytes())?);
    }
    assert!(!map.insert(b"there is room again", &[1; 300])?);
    assert_intact(&place, &map);
    drop(map);
    let map = place.open();
    assert_eq!(contents(&map)?.len() as u64, count - count / 2 + 1);
    assert_intact(&place, &map);
    Ok(())
}

#[test]
fn a_full_pool_leaves_the_map_readable_and_a_removal_makes_room() -> Result<()> {
    full_pool::<FastFair<[u8]>>(FastFairOptions::with_lines(2))?;
    full_pool::<SkipList<[u8]>>(Default::default())
}

#[test]
fn names_and_kinds_that_do_not_fit_are_refused() -> Result<()> {
    let mut place = small_tree(4);
    let map = place.open();
    map.insert(b"key", b"value")?;
    let store = place.store();
    let open = |name: &str, kind| open_records(store, name, kind, Durability::Sync).map(|_| ());
    assert!(matches!(open("map", IndexKind::FastFair), Err(Error::AlreadyOpen { .. })));
    drop(map);
    let other = open("map", IndexKind::FpTree).expect_err("another kind");
    assert!(matches!(other, Error::WrongKind { .. }) && other.to_string().contains("fastfair"), "{other}");
    open(&"n".repeat(255), IndexKind::FpTree)?;
    assert!(matches!(open(&"n".repeat(256), IndexKind::FpTree), Err(Error::Store(_))));
    drop(OrderedMap::open(store, "plain")?);
    let told =
        [open("plain", IndexKind::FpTree), OrderedMap::open(store, "map").map(drop)].map(|outcome| match outcome {
            Err(Error::WrongKind { found, wanted, .. }) => (found, wanted),
            other => panic!("{other:?}"),
        });
    let (map, records) = ("an ordered map".to_owned(), "a map over an index".to_owned());
    assert_eq!(told, [(map.clone(), records.clone()), (records, map)]);
    Ok(())
}

#[test]
fn a_read_only_pool_is_read_and_refuses_changes() -> Result<()> {
    let mut place = small_tree(4);
    let map = place.open();
    for number in 0..40_u8 {
        map.insert(&[number], &[number; 9])?;
    }
    drop(map);
    place.store = None;
    let before = std::fs::read(&place.path).expect("the pool file");
    let pool = Pool::open_read_only(&place.path, &place.pool)?;
    let store = Store::over(&pool)?;
    let map = open_records(&store, "map", IndexKind::FastFair, Durability::Sync)?;
    assert_eq!(map.len()?, 40);
    assert!(map.check().is_intact());
    for refused in [map.insert(b"key", b""), map.remove(&[3])] {
        assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
    }
    drop((map, store, pool));
    assert_eq!(std::fs::read(&place.path).expect("the pool file"), before, "not a byte changed");
    Ok(())
}

#[test]
fn every_flipped_byte_is_found_and_never_returned() -> Result<()> {
    let mut place = small_tree(2);
    let map = place.open();
    let key = |number: u64| format!("key-{number:03}").into_bytes();
    for number in 0..5 {
        map.insert(&key(number), &[number as u8; 30])?;
    }
    map.remove(&key(4))?;
    let expected = contents(&map)?;
    let blocks = map.check().blocks;
    drop(map);
    let store = place.store.take().expect("the map was opened");
    let memory = store.memory();
    let mut found = 0;
    for block in blocks {
        for word in 0..store.heap().block_bytes(block).unwrap_or(0) / 8 {
            let at = block.plus(word * 8);
            let good = memory.load(at);
            for byte in 0..8 {
                memory.store(at, good ^ (0x41 << (8 * byte)));
                match IndexedRecords::<FastFair<[u8]>>::open(&store, "map", &place.options, Durability::Sync) {
                    Ok(map) => {
                        let mut failed = false;
                        for (key, value) in &expected {
                            match map.get(key) {
                                Ok(got) => assert_eq!(got.as_ref(), Some(value), "flipped byte {byte} at {at}"),
                                Err(Error::Damaged { .. }) => failed = true,
                                Err(error) => panic!("{error}"),
                            }
                        }
                        match contents(&map) {
                            Ok(all) => assert_eq!(all, expected, "flipped byte {byte} at {at}"),
                            Err(Error::Damaged { .. }) => failed = true,
                            Err(error) => panic!("{error}"),
                        }
                        assert!(!failed || !map.check().is_intact(), "check misses byte {byte} at {at}");
                        found += u64::from(failed);
                    }
                    Err(Error::Damaged { .. }) => found += 1,
                    Err(error) => panic!("{error}"),
                }
                memory.store(at, good);
            }
        }
    }
    assert!(found > 300, "{found} flips mattered");
    Ok(())
}

#[test]
fn a_damaged_intent_closes_its_stripe_and_no_other() -> Result<()> {
    let mut place = small_tree(2);
    let map = place.open();
    for number in 0..10_u8 {
        map.insert(&[number], b"value")?;
    }
    // The table of intents is the one block that differs by stripes alone: two lines.
    let report = map.check();
    let table = report.blocks.iter().copied().find(|at| {
        let memory = place.store().memory();
        place.store().heap().block_bytes(*at) == Some(128)
            && (24..64).step_by(8).all(|word| memory.load(at.plus(word)) == 0)
    });
    let table = table.expect("a table of two lines");
    drop(map);
    let memory = place.store().memory();
    memory.store(table, memory.load(table) ^ 0x100);
    let map = IndexedRecords::<FastFair<[u8]>>::open(place.store(), "map", &place.options, Durability::Sync)?;
    assert_eq!(contents(&map)?.len(), 10);
    let outcomes: Vec<bool> = (0..10_u8).map(|number| map.insert(&[number], b"new").is_ok()).collect();
    assert!(outcomes.contains(&true) && outcomes.contains(&false), "{outcomes:?}");
    for (number, changed) in outcomes.iter().enumerate() {
        let wanted: &[u8] = if *changed { b"new" } else { b"value" };
        assert_eq!(map.get(&[number as u8])?.as_deref(), Some(wanted));
    }
    assert!(!map.check().is_intact());
    Ok(())
}

/// Flushed lines and fences of one call, on this thread.
fn cost(change: impl FnOnce() -> Result<bool>) -> Result<(u64, u64)> {
    let scope = CounterScope::start();
    change()?;
    let delta = scope.delta();
    Ok((delta.flushes, delta.fences))
}

/// Insert, update and removal in a map of 40 records, each of which takes two lines.
fn costs(map: &impl RecordMap) -> Result<[(u64, u64); 3]> {
    let key = |number: u64| number.to_be_bytes();
    for number in 0..40 {
        map.insert(&key(number), &[7; 100])?;
    }
    let insert = cost(|| map.insert(&key(41), &[1; 100]))?;
    let update = cost(|| map.insert(&key(20), &[2; 100]))?;
    let remove = cost(|| map.remove(&key(20)))?;
    assert_eq!((cost(|| map.remove(&key(20)))?, cost(|| map.get(&key(41)).map(|_| true))?), ((0, 0), (0, 0)));
    Ok([insert, update, remove])
}

#[test]
fn what_two_steps_cost_beside_one() -> Result<()> {
    let mut place = Place::<FastFair<[u8]>>::new(64);
    let over_tree = costs(&place.open())?;
    let ordered = costs(&OrderedMap::open(place.store(), "plain")?)?;
    println!(
        "flushed lines and fences of insert, update, remove: over fastfair {over_tree:?}, ordered map {ordered:?}"
    );
    assert!(over_tree.iter().zip(ordered).all(|(over, plain)| over.1 > plain.1), "more fences: {over_tree:?}");
    Ok(())
}
