//! [`OrderedMap`] passes the suite of ordered maps, with leaves of several sizes; its costs, limits and damage reports.

use std::collections::HashSet;
use std::ops::Bound;
use std::path::PathBuf;

use crate::suite::{self, Fixture, assert_intact, contents};
use lodestone_index::{Durability, Error, FastFair, FastFairOptions, KEY_BYTES_MAX, MapOptions, OrderedMap, Result};
use lodestone_pmem::{CounterScope, DomainChoice, Pool, PoolOptions};
use lodestone_store::Store;
use proptest::prelude::*;

/// Maps in a pool file of the process domain, closed and opened again.
struct MapFixture {
    _folder: tempfile::TempDir,
    path: PathBuf,
    options: PoolOptions,
    slots_per_leaf: usize,
    store: Option<Store>,
}

impl MapFixture {
    fn new(slots_per_leaf: usize, size_bytes: u64) -> Self {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("map.pool");
        let options =
            PoolOptions { domain: DomainChoice::Process, size_bytes, journal_bytes: 1 << 20, ..PoolOptions::default() };
        Self { _folder: folder, path, options, slots_per_leaf, store: None }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("the map was opened")
    }
}

impl Fixture for MapFixture {
    type Index = OrderedMap;

    fn open(&mut self) -> OrderedMap {
        // The pool's lock goes with its last handle.
        self.store = None;
        let pool = Pool::open_or_create(&self.path, &self.options).expect("a pool");
        let store = Store::over(&pool).expect("a heap");
        let map = OrderedMap::open_with(&store, "map", &MapOptions { slots_per_leaf: self.slots_per_leaf });
        self.store = Some(store);
        map.expect("a map")
    }

    fn assert_no_leak(&self, map: &OrderedMap) {
        let owned: HashSet<_> = map.check().blocks.into_iter().chain(self.store().own_blocks()).collect();
        let mut held = HashSet::new();
        self.store().heap().for_each_block(|at, _| {
            held.insert(at);
        });
        assert_eq!(owned, held, "the heap's blocks and the map's");
    }
}

const POOL_BYTES: u64 = 16 << 20;

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_a_model_with_leaves_of_two(steps in suite::steps(300)) {
        suite::run_model(&mut MapFixture::new(2, POOL_BYTES), steps)?;
    }

    #[test]
    fn agrees_with_a_model_with_leaves_of_five(steps in suite::steps(400)) {
        suite::run_model(&mut MapFixture::new(5, POOL_BYTES), steps)?;
    }

    #[test]
    fn agrees_with_a_model_with_leaves_of_the_default_size(steps in suite::steps(600)) {
        suite::run_model(&mut MapFixture::new(MapOptions::default().slots_per_leaf, POOL_BYTES), steps)?;
    }
}

#[test]
fn keys_at_the_edges() -> Result<()> {
    suite::edge_keys(&mut MapFixture::new(3, POOL_BYTES), KEY_BYTES_MAX)?;
    suite::edge_keys(&mut MapFixture::new(60, POOL_BYTES), KEY_BYTES_MAX)
}

#[test]
fn values_up_to_megabytes() -> Result<()> {
    suite::big_values(&mut MapFixture::new(4, 64 << 20), 3 << 20)
}

#[test]
fn grows_and_shrinks_in_any_order() -> Result<()> {
    for slots in [2, 7, 60] {
        suite::grow_and_shrink(&mut MapFixture::new(slots, POOL_BYTES), 3000, |number| number)?;
        suite::grow_and_shrink(&mut MapFixture::new(slots, POOL_BYTES), 3000, |number| 3000 - number)?;
        suite::grow_and_shrink(&mut MapFixture::new(slots, POOL_BYTES), 3000, |number| number * 1789 % 3000)?;
    }
    Ok(())
}

#[test]
fn threads_never_see_a_version_go_back() -> Result<()> {
    suite::concurrent_versions(&mut MapFixture::new(4, 64 << 20), 3, 60, 150)?;
    suite::concurrent_versions(&mut MapFixture::new(60, 64 << 20), 3, 300, 60)
}

#[test]
fn scans_show_what_is_stable_while_neighbours_change() -> Result<()> {
    suite::scan_under_change(&mut MapFixture::new(4, POOL_BYTES), 150, 30)
}

#[test]
fn the_block_domain_keeps_batches_and_single_writes() -> Result<()> {
    let mut fixture = MapFixture::new(60, POOL_BYTES);
    fixture.options.domain = DomainChoice::Block;
    let map = fixture.open();
    for number in 0..500_u64 {
        map.insert_relaxed(&number.to_be_bytes(), b"in a batch")?;
    }
    for number in 0..50_u64 {
        assert!(map.remove_relaxed(&number.to_be_bytes())?);
    }
    map.sync()?;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4_u64)
            .map(|thread| {
                let map = &map;
                scope.spawn(move || -> Result<()> {
                    for number in 0..10 {
                        let key = (1000 + thread * 10 + number).to_be_bytes();
                        assert!(!map.insert(&key, b"waited for")?);
                        assert!(map.update(&key, b"replaced")?);
                    }
                    Ok(())
                })
            })
            .collect();
        writers.into_iter().try_for_each(|writer| writer.join().expect("a writer panicked"))
    })?;
    drop(map);
    let map = fixture.open();
    let all = contents(&map)?;
    assert_eq!(all.len(), 450 + 40);
    assert!(all.iter().all(|(key, value)| {
        let batch = u64::from_be_bytes(key[..8].try_into().expect("eight bytes")) < 1000;
        value == if batch { &b"in a batch"[..] } else { b"replaced" }
    }));
    assert_intact(&fixture, &map);
    Ok(())
}

#[test]
fn descending_ranges_mirror_ascending_ones() -> Result<()> {
    let mut fixture = MapFixture::new(4, POOL_BYTES);
    let map = fixture.open();
    for number in 0..200_u64 {
        map.insert(&(number * 2).to_be_bytes(), &number.to_le_bytes())?;
    }
    for (low, high) in [(0, 399), (10, 11), (11, 11), (17, 130), (130, 17), (500, 600)] {
        let (low, high) = (u64::to_be_bytes(low), u64::to_be_bytes(high));
        for start in [Bound::Included(&low[..]), Bound::Excluded(&low[..]), Bound::Unbounded] {
            for end in [Bound::Included(&high[..]), Bound::Excluded(&high[..]), Bound::Unbounded] {
                let mut up = map.range(start, end).collect::<Result<Vec<_>>>()?;
                let down = map.range_descending(start, end).collect::<Result<Vec<_>>>()?;
                up.reverse();
                assert_eq!(up, down, "{start:?} {end:?}");
            }
        }
    }
    assert_eq!(map.first()?.map(|(key, _)| key), Some(0_u64.to_be_bytes().to_vec()));
    assert_eq!(map.last()?.map(|(key, _)| key), Some(398_u64.to_be_bytes().to_vec()));
    Ok(())
}

#[test]
fn prefixes_end_where_the_next_one_begins() -> Result<()> {
    let mut fixture = MapFixture::new(3, POOL_BYTES);
    let map = fixture.open();
    let keys: [&[u8]; 8] = [b"", b"a", b"ab", b"abc", b"ac", b"b\xFF", b"b\xFF\xFF", b"c"];
    for key in keys {
        map.insert(key, b"")?;
    }
    let under = |prefix: &[u8]| map.prefix(prefix).map(|pair| pair.map(|(key, _)| key)).collect::<Result<Vec<_>>>();
    assert_eq!(under(b"ab")?, [&b"ab"[..], b"abc"]);
    assert_eq!(under(b"b\xFF")?, [&b"b\xFF"[..], b"b\xFF\xFF"]);
    assert_eq!(under(b"")?.len(), keys.len());
    assert_eq!(under(b"\xFF")?.len(), 0);
    Ok(())
}

/// Flushed lines and fences of one call, on this thread.
fn cost(change: impl FnOnce() -> Result<bool>) -> Result<(u64, u64)> {
    let scope = CounterScope::start();
    change()?;
    let delta = scope.delta();
    Ok((delta.flushes, delta.fences))
}

#[test]
fn costs_are_exact() -> Result<()> {
    let mut fixture = MapFixture::new(60, POOL_BYTES);
    let map = fixture.open();
    let key = |number: u64| number.to_be_bytes();
    for number in 0..40 {
        map.insert(&key(number), &[7; 100])?;
    }
    // A record of 8 + 100 bytes takes 128 bytes: two lines. Then the lane, the words in place (slot, bitmap; an update
    // may clear the old record's bit in the same bitmap line), the lane again.
    let insert = cost(|| map.insert(&key(41), &[1; 100]))?;
    let update = cost(|| map.insert(&key(20), &[2; 100]))?;
    let remove = cost(|| map.remove(&key(20)))?;
    let absent = cost(|| map.remove(&key(20)))?;
    let read = cost(|| map.get(&key(41)).map(|found| found.is_some()))?;
    println!("flushed lines and fences: insert {insert:?}, update {update:?}, remove {remove:?}");
    assert_eq!(insert, (6, 4), "insert: 2 of the record, 2 of the lane, slot, bitmap");
    assert_eq!(update, (6, 4), "update: as an insert, both bits in one line");
    assert_eq!(remove, (4, 3), "remove: 2 of the lane, slot, bitmap");
    assert_eq!((absent, read), ((0, 0), (0, 0)), "what changes nothing flushes nothing");
    Ok(())
}

#[test]
fn costs_of_structure_changes_are_exact() -> Result<()> {
    let mut fixture = MapFixture::new(60, POOL_BYTES);
    let map = fixture.open();
    let key = |number: u64| number.to_be_bytes();
    for number in (1..=60).rev() {
        map.insert(&key(number), &[7; 100])?;
    }
    // The split comes first, as an action of its own. Its new leaf of 512 bytes is streamed, which is no flush in this
    // domain. Its 32 words take 9 lines of the lane, and one again at the end; link and moved slots are in 5 lines of
    // the old leaf, the new leaf's bit in one.
    let split = cost(|| map.insert(&key(0), &[1; 100]))?;
    assert_eq!(map.stats().leaves, 2);
    for number in (40..=60).rev() {
        map.remove(&key(number))?;
    }
    assert_eq!(map.stats().leaves, 2);
    // The removal that leaves eight records in the right leaf moves them to the left one: 10 words in 3 lines of the
    // lane and one again, link and slots in 2 lines of the left leaf, the freed leaf's bit in one.
    let merge = cost(|| map.remove(&key(39)))?;
    assert_eq!(map.stats().leaves, 1);
    println!("flushed lines and fences: insert with a split {split:?}, removal with a merge {merge:?}");
    assert_eq!(split, (16 + 6, 4 + 4), "a split, then an insert: two actions that allocate");
    assert_eq!(merge, (4 + 7, 3 + 3), "a removal, then a merge: two actions that allocate nothing");
    Ok(())
}

#[test]
fn a_full_pool_leaves_the_map_readable_and_a_removal_makes_room() -> Result<()> {
    let mut fixture = MapFixture::new(8, 3 << 20);
    let map = fixture.open();
    let mut count = 0_u64;
    let error = loop {
        match map.insert(&count.to_be_bytes(), &[count as u8; 700]) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Heap(lodestone_heap::Error::NoSpace { .. })), "{error}");
    assert!(count > 500, "{count} records fit");
    assert_eq!(map.len()?, count);
    for number in 0..count {
        assert_eq!(map.get(&number.to_be_bytes())?, Some(vec![number as u8; 700]));
    }
    assert_intact(&fixture, &map);
    for number in 0..10_u64 {
        assert!(map.remove(&number.to_be_bytes())?);
    }
    assert!(!map.insert(b"there is room again", &[1; 700])?);
    assert_intact(&fixture, &map);
    drop(map);
    let map = fixture.open();
    assert_eq!(contents(&map)?.len() as u64, count - 9);
    Ok(())
}

#[test]
fn two_maps_share_a_heap_and_other_roots_are_refused() -> Result<()> {
    let mut fixture = MapFixture::new(4, POOL_BYTES);
    let first = fixture.open();
    let second = OrderedMap::open(fixture.store(), "second")?;
    first.insert(b"key", b"in the first")?;
    assert_eq!(second.get(b"key")?, None);
    drop(FastFair::<u64>::open(fixture.store(), "other", &FastFairOptions::default(), Durability::Sync)?);
    let error = OrderedMap::open(fixture.store(), "other").expect_err("not a map");
    assert!(matches!(error, Error::WrongKind { .. }), "{error}");
    Ok(())
}

#[test]
fn a_map_is_open_once_in_a_process() -> Result<()> {
    let mut fixture = MapFixture::new(4, POOL_BYTES);
    let map = fixture.open();
    let error = OrderedMap::open(fixture.store(), "map").expect_err("open already");
    assert!(matches!(error, Error::AlreadyOpen { .. }), "{error}");
    map.insert(b"key", b"value")?;
    drop(map);
    let map = OrderedMap::open(fixture.store(), "map")?;
    assert_eq!(map.get(b"key")?, Some(b"value".to_vec()));
    Ok(())
}

#[test]
fn a_read_only_pool_is_read_and_refuses_changes() -> Result<()> {
    let mut fixture = MapFixture::new(4, POOL_BYTES);
    let map = fixture.open();
    for number in 0..20_u8 {
        map.insert(&[number], &[number; 9])?;
    }
    drop(map);
    fixture.store = None;
    let before = std::fs::read(&fixture.path).expect("the pool file");
    let pool = Pool::open_read_only(&fixture.path, &fixture.options)?;
    let store = Store::over(&pool)?;
    let map = OrderedMap::open(&store, "map")?;
    assert_eq!(contents(&map)?.len(), 20);
    assert!(map.check().is_intact());
    for refused in [map.insert(b"key", b""), map.update(&[3], b""), map.remove(&[3])] {
        assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
    }
    let absent = OrderedMap::open(&store, "absent").expect_err("cannot be created");
    assert!(matches!(absent, Error::ReadOnly { .. }), "{absent}");
    drop((map, store, pool));
    assert_eq!(std::fs::read(&fixture.path).expect("the pool file"), before, "not a byte changed");
    Ok(())
}

#[test]
fn every_flipped_byte_is_found_and_never_returned() -> Result<()> {
    let mut fixture = MapFixture::new(4, POOL_BYTES);
    let map = fixture.open();
    let key = |number: u64| format!("key-{number:03}").into_bytes();
    for number in 0..11 {
        map.insert(&key(number), &[number as u8; 30])?;
    }
    map.remove(&key(4))?;
    let expected = contents(&map)?;
    let blocks = map.check().blocks;
    drop(map);
    let store = fixture.store.take().expect("the map was opened");
    let memory = store.memory();
    let options = MapOptions { slots_per_leaf: 4 };
    let mut found_by_operations = 0;
    for block in blocks {
        // Padding and the free end of a block carry nothing.
        for word in 0..store.heap().block_bytes(block).unwrap_or(0) / 8 {
            let at = block.plus(word * 8);
            let good = memory.load(at);
            for byte in 0..8 {
                memory.store(at, good ^ (0x41 << (8 * byte)));
                let Ok(map) = OrderedMap::open_with(&store, "map", &options) else {
                    memory.store(at, good);
                    found_by_operations += 1;
                    continue;
                };
                let report = map.check();
                let mut failed = false;
                for (key, value) in &expected {
                    match map.get(key) {
                        Ok(found) => assert_eq!(found.as_ref(), Some(value), "flipped byte {byte} at {at}"),
                        Err(Error::Damaged { .. }) => failed = true,
                        Err(error) => panic!("{error}"),
                    }
                }
                // A damaged free slot fails no point read of a key that is there, but a scan cannot know that it was
                // free.
                let scan_failed = match contents(&map) {
                    Ok(all) => {
                        assert_eq!(all, expected, "flipped byte {byte} at {at}");
                        false
                    }
                    Err(Error::Damaged { .. }) => true,
                    Err(error) => panic!("{error}"),
                };
                assert!(scan_failed || !failed, "a scan misses byte {byte} at {at}");
                assert!(!scan_failed || !report.is_intact(), "check misses byte {byte} at {at}");
                found_by_operations += u64::from(scan_failed);
                memory.store(at, good);
            }
        }
    }
    assert!(found_by_operations > 500, "{found_by_operations} flips mattered");
    Ok(())
}

/// Syncs that an answer of `ask` costs, right after another thread made a change and did not wait for it. The pool
/// commits by itself five times a second, so the largest of some rounds counts.
fn syncs_of_an_answer(map: &OrderedMap, change: impl Fn(u8) + Sync, ask: impl Fn()) -> u64 {
    let rounds = (0..10_u8).map(|round| {
        std::thread::scope(|scope| {
            scope.spawn(|| change(round));
        });
        let scope = CounterScope::start();
        ask();
        let syncs = scope.delta().syncs;
        map.sync().expect("the pool works");
        syncs
    });
    rounds.max().unwrap_or(0)
}

#[test]
fn nobody_is_told_what_could_still_be_lost() -> Result<()> {
    let mut fixture = MapFixture::new(60, 16 << 20);
    fixture.options.domain = DomainChoice::Block;
    let map = fixture.open();
    map.insert(b"key", b"old")?;
    let change = |round: u8| assert!(map.insert_relaxed(b"key", &[round]).expect("room"));
    let vanish = |round: u8| assert!(map.remove_relaxed(&[round]).expect("the pool works"));
    for key in 0..10_u8 {
        map.insert(&[key], b"here")?;
    }
    let get = || assert!(map.get(b"key").expect("whole").is_some());
    assert!(syncs_of_an_answer(&map, change, get) >= 1, "a value is told before it is durable");
    let absent = || assert!(map.contains_key(b"absent").is_ok_and(|found| !found));
    assert!(syncs_of_an_answer(&map, vanish, absent) >= 1, "an absence is told before it is durable");
    let mut out = Vec::new();
    let relaxed = std::cell::RefCell::new(&mut out);
    let get = || assert!(map.get_with(b"key", &mut relaxed.borrow_mut(), Durability::Relaxed).expect("whole"));
    assert_eq!(syncs_of_an_answer(&map, change, get), 0, "a relaxed read waits for nothing");
    Ok(())
}

#[test]
fn a_map_is_told_empty_when_the_removal_is_durable() {
    let mut fixture = MapFixture::new(60, 16 << 20);
    fixture.options.domain = DomainChoice::Block;
    let map = fixture.open();
    let change = |_| {
        assert!(!map.insert_relaxed(b"key", b"value").expect("room"));
        assert!(map.remove_relaxed(b"key").expect("the pool works"));
    };
    let ask = || assert!(map.is_empty().expect("whole"));
    assert!(syncs_of_an_answer(&map, change, ask) >= 1, "an emptiness is told before it is durable");
}
