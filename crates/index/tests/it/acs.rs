//! [`Acs`] over each index passes the conformance suite of that index, with caches so small that most keys have to go;
//! the suite's check also compares everything that is cached with the index.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::cached::Plain;
use crate::conformance::{self, Place, TestKey, concurrent, trouble};
use lodestone_index::{
    Acs, AcsOptions, CacheCapacity, CacheMode, CacheOptions, Durability, FastFair, FastFairOptions, FpTree, HashIndex,
    HashOptions, OpenIndex, OrderedIndex, PointIndex, Result, SkipList, SkipListOptions, Swap, TreeOptions,
};
use lodestone_pmem::{CounterScope, DomainChoice, Pool, PoolOptions};
use lodestone_store::Store;
use proptest::prelude::*;

const MODES: [CacheMode; 3] = CacheMode::ALL;

fn cache(mode: CacheMode, entries: usize) -> CacheOptions {
    // Never bypassed for long: small windows of few keys would say so otherwise.
    CacheOptions { seed: Some(7), key_bytes: 20, ..CacheOptions::default().with_mode(mode).with_entries(entries) }
}

fn place<I: OpenIndex + 'static>(options: I::Options, mode: CacheMode, entries: usize) -> Place<Acs<I>> {
    Place::new(16 << 20, AcsOptions::new(options, cache(mode, entries)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_a_model(mode in 0..MODES.len(), entries in 1..40_usize, steps in conformance::steps(80, 300)) {
        let mode = MODES[mode];
        let lines = FastFairOptions::with_lines(3);
        conformance::run_model(&mut place::<FastFair<u64>>(lines.clone(), mode, entries), &steps)?;
        conformance::run_model(&mut place::<FastFair<[u8]>>(lines, mode, entries), &steps)?;
        conformance::run_model(&mut place::<FpTree<u64>>(TreeOptions::default(), mode, entries), &steps)?;
        conformance::run_model(&mut place::<SkipList<[u8]>>(SkipListOptions::default(), mode, entries), &steps)?;
    }
}

#[test]
fn agrees_with_a_model_for_long() -> Result<()> {
    for (number, mode) in (1..).zip(MODES) {
        let tree = FastFairOptions::with_lines(4);
        conformance::long_run(&mut place::<FastFair<u64>>(tree, mode, 60), 300, 5000, number)?;
        conformance::long_run(&mut place::<FpTree<[u8]>>(TreeOptions::default(), mode, 60), 300, 3000, number)?;
        conformance::long_run(&mut place::<SkipList<u64>>(SkipListOptions::default(), mode, 12), 200, 3000, number)?;
    }
    Ok(())
}

#[test]
fn does_what_the_index_does() -> Result<()> {
    let tree = FastFairOptions::with_lines(4);
    conformance::bulk_load(&mut place::<FastFair<u64>>(tree.clone(), CacheMode::Serial, 30), 800)?;
    conformance::string_keys(&mut place::<FastFair<[u8]>>(tree.clone(), CacheMode::Serial, 30))?;
    conformance::grow_and_shrink(&mut place::<FastFair<u64>>(tree.clone(), CacheMode::Adaptive, 30), 800, |n| n)?;
    trouble::refusals(&mut place::<FastFair<u64>>(tree.clone(), CacheMode::Serial, 30))?;
    let full = AcsOptions::new(tree, cache(CacheMode::Serial, 30));
    trouble::full_pool(&mut Place::<Acs<FastFair<u64>>>::new(2 << 20, full))
}

#[test]
fn histories_are_linearizable() -> Result<()> {
    for (seed, mode) in (0..).zip(MODES) {
        let tree = FastFairOptions::with_lines(2);
        concurrent::histories(&mut place::<FastFair<u64>>(tree.clone(), mode, 6), 4, 8, 1500, seed)?;
        concurrent::histories(&mut place::<FastFair<[u8]>>(tree.clone(), mode, 12), 3, 16, 400, seed)?;
        concurrent::histories(&mut place::<FpTree<u64>>(TreeOptions::default(), mode, 12), 4, 16, 800, seed)?;
        concurrent::histories(&mut place::<SkipList<u64>>(SkipListOptions::default(), mode, 12), 4, 16, 800, seed)?;
    }
    let tree = FastFairOptions::with_lines(3);
    concurrent::scans_under_change(&mut place::<FastFair<u64>>(tree, CacheMode::Serial, 30), 60, 10)
}

/// Single operations beside a map, over an index without order.
fn run_points<I: OpenIndex + 'static>(options: &AcsOptions<I::Options>, keys: u64, count: u64) -> Result<()>
where
    I::Key: TestKey,
{
    let folder = tempfile::tempdir().expect("temporary folder");
    let pool = PoolOptions {
        domain: DomainChoice::Process,
        size_bytes: 16 << 20,
        journal_bytes: 1 << 20,
        ..PoolOptions::default()
    };
    let pool = Pool::create(folder.path().join("points.pool"), &pool)?;
    let store = Store::over(&pool)?;
    let mut index = Acs::<I>::open_index(&store, "index", options, Durability::Sync)?;
    let mut model = BTreeMap::new();
    let mut state = 5_u64;
    let mut draw = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    for number in 0..count {
        let name = I::Key::numbered(draw(keys));
        let (key, found) = (name.borrow(), model.get::<conformance::KeyOf<I>>(&name).copied());
        match draw(10) {
            0..5 => assert_eq!(index.get(key)?, found),
            5 => assert_eq!(index.insert(key, number)?, found.is_none()),
            6 => assert_eq!(index.update(key, number)?, found),
            7 => assert_eq!(index.upsert(key, number)?, found),
            8 => assert_eq!(index.remove(key)?, found),
            _ => {
                let expected = if found.is_some() { Swap::Done } else { Swap::Absent };
                assert_eq!(index.compare_and_swap(key, found.unwrap_or(0), number)?, expected);
                model.entry(name.clone()).and_modify(|value| *value = number);
            }
        }
        match (index.index().get(key)?, &mut model) {
            (Some(value), model) => model.insert(name, value),
            (None, model) => model.remove::<conformance::KeyOf<I>>(&name),
        };
        if number % 2000 == 1999 {
            let report = index.check();
            assert!(report.is_intact(), "{:?}", report.findings);
            drop(index);
            index = Acs::open_index(&store, "index", options, Durability::Sync)?;
        }
    }
    assert!(index.stats().hits > 0 && index.stats().evictions > 0, "{:?}", index.stats());
    Ok(())
}

#[test]
fn points_agree_with_a_model_over_a_hash_index() -> Result<()> {
    for mode in MODES {
        for entries in [6, 60] {
            let options = AcsOptions::new(HashOptions::small(), cache(mode, entries));
            run_points::<HashIndex<u64>>(&options, 200, 7000)?;
            run_points::<HashIndex<[u8]>>(&options, 200, 7000)?;
        }
    }
    Ok(())
}

fn plain(keys: u64) -> Plain<u64> {
    Plain::new((0..keys).map(|key| (key, key + 1000)))
}

#[test]
fn a_hit_asks_nobody_and_a_change_keeps_the_entry() -> Result<()> {
    let index = Acs::new(plain(100), &cache(CacheMode::Serial, 600))?;
    assert_eq!(index.warm(&(0..100).collect::<Vec<_>>())?, 100);
    let searches = || index.index().searches.load(Ordering::Relaxed);
    let before = searches();
    for key in 0..100 {
        assert_eq!(index.get(&key)?, Some(key + 1000));
        assert_eq!(index.update(&key, key)?, Some(key + 1000));
        assert_eq!(index.compare_and_swap(&key, key, key + 1)?, Swap::Done);
        assert_eq!(index.compare_and_swap(&key, key, 0)?, Swap::Differs(key + 1));
        assert_eq!(index.get(&key)?, Some(key + 1));
        assert_eq!(index.upsert(&key, key + 2)?, Some(key + 1));
        assert_eq!(index.get(&key)?, Some(key + 2));
    }
    let cached = index.stats().fills;
    assert!(cached >= 95, "{cached} of 100 keys in 600 entries");
    assert!(searches() - before <= 3 * (100 - index.stats().evictions.min(100)), "reads went to the index");
    assert_eq!(searches() - before, index.stats().misses - 100);
    for key in 0..100 {
        assert_eq!(index.remove(&key)?, Some(key + 2));
        assert_eq!(index.get(&key)?, None);
        assert!(index.insert(&key, 5)?);
        assert_eq!(index.get(&key)?, Some(5));
    }
    let stats = index.stats();
    assert_eq!((stats.contended, stats.dropped_fills, stats.bypasses), (0, 0, 0));
    assert!(index.check().is_intact());
    Ok(())
}

#[test]
fn long_strings_pass_by() -> Result<()> {
    let index = Acs::new(Plain::<[u8]>::new([(vec![1; 23], 1), (vec![1; 24], 2)]), &cache(CacheMode::Serial, 6))?;
    for _ in 0..3 {
        assert_eq!((index.get(&[1; 23])?, index.get(&[1; 24])?), (Some(1), Some(2)));
    }
    let stats = index.stats();
    assert_eq!((stats.hits, stats.misses, stats.bypasses), (2, 1, 3));
    assert_eq!(index.update(&[1; 24], 3)?, Some(2));
    assert_eq!(index.get(&[1; 24])?, Some(3));
    Ok(())
}

#[test]
fn capacities_are_kept_to() -> Result<()> {
    let with = |capacity| Acs::new(plain(50_000), &CacheOptions { capacity, ..CacheOptions::default() });
    let stats = with(CacheCapacity::Entries(6000))?.stats();
    // Buckets come in eights.
    assert!((6000..6000 + 8 * 24).contains(&stats.capacity), "{stats:?}");
    let stats = with(CacheCapacity::Bytes(1 << 20))?.stats();
    assert!((1 << 20) * 99 / 100 < stats.dram_bytes && stats.dram_bytes < (1 << 20) + (64 << 10), "{stats:?}");
    let mut index = with(CacheCapacity::default())?;
    assert_eq!(index.get(&7)?, Some(1007), "it serves at once");
    index.wait_until_sized();
    assert!((5000..5000 + 8 * 24).contains(&index.stats().capacity), "{:?}", index.stats());
    assert_eq!(index.get(&7)?, Some(1007));
    assert_eq!(index.update(&7, 8)?, Some(1007));
    assert_eq!((index.get(&7)?, index.into_index().get(&7)?), (Some(8), Some(8)));
    Ok(())
}

/// A share of the index is followed while others read and write: the cache doubles, and nothing stale comes back.
#[test]
fn the_cache_grows_with_the_index() -> Result<()> {
    let options = CacheOptions::default().with_mode(CacheMode::Serial);
    let index = Acs::new(plain(64), &CacheOptions { capacity: CacheCapacity::Share(0.5), ..options })?;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2_u64)
            .map(|thread| {
                let index = &index;
                scope.spawn(move || -> Result<()> {
                    for round in 0..12_000_u64 {
                        let (mine, hot) = (100 + 2 * round + thread, thread * 32 + round % 32);
                        assert!(index.insert(&mine, 2)?);
                        assert_eq!(index.get(&mine)?, Some(2));
                        let version = index.get(&hot)?.expect("never removed");
                        assert_eq!(index.update(&hot, version + 1)?, Some(version));
                        assert_eq!(index.get(&hot)?, Some(version + 1));
                    }
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
    })?;
    let stats = index.stats();
    // Each thread asks after every 1,024 inserts, and the cache doubles when the index asks for twice its size. The
    // keys may be counted at any moment meanwhile, so the size that it doubles from is not known.
    let (least, most) = ((64 + 2 * (12_000 - 1024)) / 4, (64 + 2 * 12_000) / 2 + 8 * 24);
    assert!((least..=most).contains(&stats.capacity), "{stats:?}");
    assert!(index.check().is_intact());
    Ok(())
}

/// Keys that come while the keys are counted are in the count already.
#[test]
fn a_late_count_makes_no_cache_too_large() -> Result<()> {
    let options = CacheOptions { capacity: CacheCapacity::Share(1.0), ..CacheOptions::default() };
    let mut index = Acs::new(Plain { counted_from: 6_000, ..plain(1_000) }, &options)?;
    (1_000..6_000_u64).try_for_each(|key| index.insert(&key, key).map(|_| ()))?;
    index.wait_until_sized();
    let sized = index.stats().capacity;
    assert!((6_000..6_000 + 8 * 24).contains(&sized), "{sized}");
    // Counted twice, the first 5,000 would ask for 13,000 entries and more.
    (6_000..9_000_u64).try_for_each(|key| index.insert(&key, key).map(|_| ()))?;
    assert_eq!(index.stats().capacity, sized);
    (9_000..14_000_u64).try_for_each(|key| index.insert(&key, key).map(|_| ()))?;
    assert_eq!(index.stats().capacity, 2 * sized);
    Ok(())
}

#[test]
fn nothing_is_flushed_or_fenced_by_the_cache() -> Result<()> {
    let index = place::<FastFair<u64>>(FastFairOptions::default(), CacheMode::Serial, 9000).open();
    let keys = 0..500_u64;
    let cost = |operation: &dyn Fn(&u64)| {
        let scope = CounterScope::start();
        keys.clone().for_each(|key| operation(&key));
        let delta = scope.delta();
        (delta.flushes, delta.fences, delta.shared_rmws)
    };
    keys.clone().try_for_each(|key| index.insert(&key, key).map(|_| ()))?;
    let bare = cost(&|key| assert!(index.index().update(key, 1).expect("update").is_some()));
    let uncached = cost(&|key| assert!(index.update(key, 1).expect("update").is_some()));
    assert_eq!((bare.0, bare.1), (uncached.0, uncached.1));
    assert_eq!(uncached.2 - bare.2, 2 * 500, "two exchanges for a key that is not cached");
    let fills = cost(&|key| assert!(index.get(key).expect("get").is_some()));
    assert_eq!(fills, (0, 0, 500), "one exchange for a fill");
    let hits = cost(&|key| assert!(index.get(key).expect("get").is_some()));
    assert_eq!(hits, (0, 0, 0), "nothing for a hit");
    Ok(())
}

/// The helper answers, and is not missed when it does not.
#[test]
fn parallel_reads_say_what_serial_ones_say() -> Result<()> {
    let index = Acs::new(plain(2000), &cache(CacheMode::Parallel, 600))?;
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3_u64)
            .map(|thread| {
                let index = &index;
                scope.spawn(move || -> Result<()> {
                    for number in 0..20_000_u64 {
                        let key = number * (thread + 7) % 2100;
                        assert_eq!(index.get(&key)?, (key < 2000).then_some(key + 1000));
                    }
                    Ok(())
                })
            })
            .collect();
        readers.into_iter().try_for_each(|reader| reader.join().expect("no panic"))
    })?;
    let stats = index.stats();
    assert!(stats.hits > 0 && stats.fills > 0, "{stats:?}");
    assert!(index.check().is_intact());
    Ok(())
}

#[test]
fn scans_leave_the_cache_alone() -> Result<()> {
    let index = place::<FastFair<u64>>(FastFairOptions::default(), CacheMode::Serial, 60).open();
    (0..500_u64).try_for_each(|key| index.insert(&key, key).map(|_| ()))?;
    let before = index.stats();
    assert_eq!(conformance::contents(&index)?.len(), 500);
    assert_eq!(index.last()?, Some((499, 499)));
    assert_eq!(index.stats(), before);
    Ok(())
}

/// A cache that does not pay is bypassed; when the load changes, it comes back.
#[test]
fn adapts_to_the_load() -> Result<()> {
    const KEYS: u64 = 60_000;
    let index = Acs::new(plain(KEYS), &cache(CacheMode::Adaptive, 6000))?;
    let mut state = 9_u64;
    let mut draw = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let reads = |count: u64, keys: u64, draw: &mut dyn FnMut(u64) -> u64| -> Result<_> {
        let before = index.stats();
        (0..count).try_for_each(|_| index.get(&draw(keys)).map(|_| ()))?;
        let after = index.stats();
        Ok((after.bypasses - before.bypasses, after.hits - before.hits))
    };
    reads(100_000, KEYS, &mut draw)?;
    let (bypasses, _) = reads(200_000, KEYS, &mut draw)?;
    assert!(bypasses > 190_000, "{bypasses} of 200,000 uniform reads bypass the cache");
    reads(400_000, 4000, &mut draw)?;
    let (bypasses, hits) = reads(100_000, 4000, &mut draw)?;
    assert!(bypasses == 0 && hits > 90_000, "{bypasses} bypasses and {hits} hits with a small hot set");
    let report = index.check();
    assert!(report.is_intact(), "{:?}", report.findings);
    Ok(())
}
