//! [`HybridPlus`] passes the conformance suite with words and with strings as keys, with a hash that is warm, one that
//! is filled in the background and one that is filled along with the operations.

use crate::conformance::{self, Place, TestKey, concurrent, linear, trouble};
use lodestone_index::{
    Error, FastFairOptions, HybridPlus, HybridPlusOptions, IndexKey, OrderedIndex, PointIndex, Result, Swap, WarmUp,
};
use lodestone_media::{MediaProfile, Model, TimeMode};
use lodestone_pmem::{CounterScope, Topology};
use proptest::prelude::*;

fn options(lines: usize, stripes: usize, warm_up: WarmUp) -> HybridPlusOptions {
    let mut options = HybridPlusOptions::default().with_warm_up(warm_up);
    options.tree = FastFairOptions::with_lines(lines);
    options.stripes = stripes;
    options
}

fn place<K: IndexKey + ?Sized>(lines: usize, stripes: usize, warm_up: WarmUp) -> Place<HybridPlus<K>> {
    Place::new(16 << 20, options(lines, stripes, warm_up))
}

const BACKGROUND: WarmUp = WarmUp::Background { threads: 2 };
const ALONG: WarmUp = WarmUp::WithOperations { keys: 3 };
const COLD: WarmUp = WarmUp::WithOperations { keys: 0 };

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn words_agree_with_a_model(steps in conformance::steps(80, 300)) {
        conformance::run_model(&mut place::<u64>(3, 4, ALONG), &steps)?;
        conformance::run_model(&mut place::<u64>(2, 1, BACKGROUND), &steps)?;
    }

    #[test]
    fn strings_agree_with_a_model(steps in conformance::steps(80, 300)) {
        conformance::run_model(&mut place::<[u8]>(3, 4, ALONG), &steps)?;
        conformance::run_model(&mut place::<[u8]>(11, 1, COLD), &steps)?;
    }
}

#[test]
fn agrees_with_a_model_for_long() -> Result<()> {
    conformance::long_run(&mut place::<u64>(3, 8, ALONG), 900, 8000, 1)?;
    conformance::long_run(&mut place::<u64>(11, 1, BACKGROUND), 900, 8000, 2)?;
    conformance::long_run(&mut place::<[u8]>(3, 2, BACKGROUND), 600, 5000, 3)
}

#[test]
fn grows_loads_and_takes_strings() -> Result<()> {
    conformance::grow_and_shrink(&mut place::<u64>(11, 4, BACKGROUND), 2000, |number| number * 1789 % 2000)?;
    conformance::grow_and_shrink(&mut place::<[u8]>(3, 4, BACKGROUND), 800, |number| number)?;
    conformance::bulk_load(&mut place::<u64>(11, 4, BACKGROUND), 1000)?;
    conformance::bulk_load(&mut place::<[u8]>(11, 4, ALONG), 300)?;
    conformance::string_keys(&mut place(4, 2, ALONG))
}

#[test]
fn histories_are_linearizable() -> Result<()> {
    linear::self_test();
    for seed in 0..3 {
        concurrent::histories(&mut place::<u64>(3, 1, BACKGROUND), 4, 16, 500, seed)?;
        concurrent::histories(&mut place::<u64>(3, 16, BACKGROUND), 4, 16, 500, seed)?;
    }
    concurrent::histories(&mut place::<[u8]>(3, 2, BACKGROUND), 3, 16, 300, 9)?;
    concurrent::scans_under_change(&mut place::<u64>(3, 4, BACKGROUND), 100, 15)?;
    concurrent::scans_under_change(&mut place::<[u8]>(3, 4, BACKGROUND), 60, 8)
}

#[test]
fn trouble_is_told() -> Result<()> {
    let with = || options(3, 4, BACKGROUND);
    trouble::full_pool(&mut Place::<HybridPlus<u64>>::new(2 << 20, with()))?;
    trouble::full_pool(&mut Place::<HybridPlus<[u8]>>::new(2 << 20, with()))?;
    trouble::refusals(&mut place::<u64>(4, 4, BACKGROUND))?;
    trouble::refusals(&mut place::<[u8]>(4, 4, COLD))?;
    trouble::damage_is_never_an_answer(&mut place::<u64>(3, 4, BACKGROUND), 60, 1)?;
    trouble::damage_is_never_an_answer(&mut place::<[u8]>(3, 4, BACKGROUND), 40, 3)
}

/// Opens, so that the rebuild is under way, and goes away: as often as `times` says.
#[test]
fn a_rebuild_can_be_cut_short_at_any_moment_and_begins_again() -> Result<()> {
    const KEYS: u64 = 20_000;
    let mut place = place::<u64>(11, 64, BACKGROUND);
    let index = place.open();
    assert_eq!(index.recovery().share_done, 1.0, "an empty tree needs no rebuild");
    let sorted = (0..KEYS).map(|number| (number * 7, number));
    index.bulk_load(sorted.clone())?;
    drop(index);
    for round in 0..6 {
        // Changes while the hash is filled, then the end of the process or of the index.
        let index = place.open();
        assert_eq!(index.get(&(round * 7))?, if round == 0 { Some(0) } else { Some(round) });
        assert_eq!(index.remove(&(KEYS * 7 - 7 - round * 7))?, Some(KEYS - 1 - round));
        assert_eq!(index.get(&(KEYS * 7 - 7 - round * 7))?, None);
        let recovery = index.recovery();
        assert!((0.0..=1.0).contains(&recovery.share_done) && !recovery.has_failed);
        drop(if round % 2 == 0 { place.open_as_after_a_kill(index) } else { index });
    }
    let index = place.open();
    index.wait_warm()?;
    let recovery = index.recovery();
    assert_eq!((recovery.keys_total, recovery.share_done), (Some(KEYS - 6), 1.0));
    assert!(recovery.time_to_points <= recovery.time_to_warm.expect("it is warm"));
    assert!(recovery.time_to_ranges.is_some());
    assert_eq!(index.len()?, KEYS - 6);
    place.assert_intact(&index);
    let stats = index.stats();
    assert_eq!((stats.keys, stats.keys_in_dram), (KEYS - 6, KEYS - 6));
    let per_key = stats.dram_bytes / KEYS;
    assert!((18..=48).contains(&per_key), "{per_key} bytes of DRAM per key");
    Ok(())
}

#[test]
fn nobody_but_the_caller_fills_when_asked_so() -> Result<()> {
    let mut place = place::<[u8]>(4, 4, COLD);
    let index = place.open();
    (0..200).try_for_each(|number| index.insert(<[u8]>::numbered(number).as_slice(), number).map(drop))?;
    drop(index);
    let index = place.open();
    assert_eq!(index.stats().keys_in_dram, 0);
    assert_eq!(index.get(&<[u8]>::numbered(5))?, Some(5));
    index.update(&<[u8]>::numbered(5), 6)?;
    assert_eq!(index.stats().keys_in_dram, 1, "a change puts its key there");
    place.assert_intact(&index);
    index.wait_warm()?;
    assert_eq!((index.stats().keys_in_dram, index.recovery().share_done), (200, 1.0));
    place.assert_intact(&index);
    Ok(())
}

/// An index on a medium of the profile `optane`, whose model charges this thread on a clock of its own.
fn on_optane() -> (std::sync::Arc<Model>, Place<HybridPlus<u64>>) {
    let profile = MediaProfile::builtin("optane").expect("it is built in");
    let model = Model::new(profile, TimeMode::Virtual, &Topology::of_machine(), &[0]);
    let mut place = place::<u64>(11, 64, COLD);
    place.pool.medium = Some(model.clone());
    (model, place)
}

/// The purpose of the hash, exactly: a warm point read costs the medium nothing, of an absent key neither.
#[test]
fn a_warm_point_read_does_not_touch_the_medium() -> Result<()> {
    let (model, mut place) = on_optane();
    let index = place.open();
    for number in 0..5000 {
        index.insert(&u64::numbered(number), number)?;
    }
    drop(index);
    let index = place.open();
    let charged = |from: u64| -> Result<u64> {
        let before = model.thread_ns();
        for number in 0..1000 {
            assert_eq!(index.get(&u64::numbered(number + from))?, (number + from < 5000).then_some(number + from));
        }
        Ok(model.thread_ns() - before)
    };
    model.cool();
    assert!(charged(0)? > 1000 * 200, "cold reads go to the tree");
    index.wait_warm()?;
    model.cool();
    assert_eq!((charged(0)?, charged(10_000)?), (0, 0), "nanoseconds of the medium");
    // Changes that change nothing do not, either, where the last one had nothing to do.
    let nothing_to_do = || -> Result<u64> {
        let before = model.thread_ns();
        for number in 0..1000 {
            let (present, absent) = (u64::numbered(number), u64::numbered(number + 9_000));
            assert!(!index.insert(&present, 1)?);
            assert_eq!(index.compare_and_swap(&present, number + 1, 1)?, Swap::Differs(number));
            assert_eq!((index.update(&absent, 1)?, index.remove(&absent)?), (None, None));
        }
        Ok(model.thread_ns() - before)
    };
    assert!(nothing_to_do()? > 0, "the first one of each stripe asks the tree");
    assert_eq!(nothing_to_do()?, 0, "nanoseconds of the medium");
    Ok(())
}

/// A change that fails between the two structures: the hash forgets, the tree names the damage, and nothing is wrong
/// afterwards.
#[test]
fn a_change_that_meets_damage_leaves_no_stale_answer() -> Result<()> {
    let mut place = place::<u64>(3, 1, BACKGROUND);
    let index = place.open();
    (0..40).try_for_each(|number| index.insert(&u64::numbered(number), number).map(drop))?;
    let memory = place.store().memory().clone();
    let mut failed = 0;
    for block in index.check().blocks {
        let bytes = place.store().heap().block_bytes(block).expect("an allocated block");
        for word in 0..bytes / 8 {
            let at = block.plus(word * 8);
            let good = memory.load(at);
            memory.store(at, good ^ 0x10);
            // The value that is there: the test can go on with the word put back.
            let errors: Vec<u64> = (0..40)
                .filter(|number| index.compare_and_swap(&u64::numbered(*number), *number, *number).is_err())
                .collect();
            failed += errors.len();
            for number in 0..40 {
                if let Ok(found) = index.get(&u64::numbered(number)) {
                    assert_eq!(found, Some(number), "word {word} of {block} is damaged");
                }
            }
            memory.store(at, if memory.load(at) == good ^ 0x10 { good } else { memory.load(at) });
            for number in errors {
                assert_eq!(index.get(&u64::numbered(number))?, Some(number));
            }
        }
    }
    assert!(failed > 0, "some of that must be in use");
    assert_eq!(index.len()?, 40);
    place.assert_intact(&index);
    Ok(())
}

/// A bulk load writes leaves, not keys, and leaves a hash that answers everything; one that fails half-way leaves both
/// alike.
#[test]
fn a_bulk_load_fills_both() -> Result<()> {
    for warm_up in [COLD, ALONG, BACKGROUND] {
        let mut place = place::<u64>(11, 16, warm_up);
        // Emptied before its hash is warm.
        let index = place.open();
        index.insert(&1, 1)?;
        drop(index);
        let index = place.open();
        index.remove(&1)?;
        let scope = CounterScope::start();
        index.bulk_load((0..10_000).map(|number| (number * 3, number)))?;
        let fences = scope.delta().fences;
        assert!(fences < 5_000, "{fences} fences for 10,000 keys");
        assert_eq!(index.stats().keys_in_dram, 10_000);
        for number in 0..10_000 {
            assert_eq!((index.get(&(number * 3))?, index.get(&(number * 3 + 1))?), (Some(number), None));
        }
        place.assert_intact(&index);
    }
    let mut place = place::<[u8]>(11, 4, BACKGROUND);
    let index = place.open();
    let mut keys: Vec<Vec<u8>> = (0..700).map(<[u8]>::numbered).collect();
    keys.sort();
    let places = (0..500).chain([3]).chain(600..700);
    let sorted = places.map(|place| (keys[place].clone(), place as u64));
    assert!(matches!(index.bulk_load(sorted), Err(Error::NotSorted { position: 500 })));
    assert_eq!((index.len()?, index.stats().keys_in_dram), (500, 500));
    assert_eq!((index.get(&keys[3])?, index.get(&keys[650])?), (Some(3), None));
    place.assert_intact(&index);
    Ok(())
}

/// Several threads wait, and none of them is told too early.
#[test]
fn whoever_waits_for_the_hash_waits_until_it_is_full() -> Result<()> {
    for warm_up in [COLD, ALONG, BACKGROUND] {
        let mut place = place::<u64>(11, 16, warm_up);
        let index = place.open();
        index.bulk_load((0..10_000).map(|number| (number, number)))?;
        drop(index);
        let index = place.open();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let index = &index;
                scope.spawn(move || {
                    (0..50).for_each(|key| {
                        assert_eq!(index.get(&(key * 4 + thread)).expect("get"), Some(key * 4 + thread))
                    });
                    index.wait_warm().expect("nothing is damaged");
                    assert_eq!(index.recovery().keys_total, Some(10_000));
                });
            }
        });
        place.assert_intact(&index);
    }
    Ok(())
}

/// The second load may begin as long as nothing is loaded; the keys of the first one come after its end.
#[test]
fn a_bulk_load_beside_another_one_does_not_end_what_that_one_began() -> Result<()> {
    let index = place::<u64>(3, 2, BACKGROUND).open();
    let (mut missed, mut second) = (Vec::new(), None);
    let pairs = (0..1000_u64).map(|key| {
        if key == 0 {
            second = Some(index.bulk_load(std::iter::empty()));
        }
        if key == 900 {
            missed.extend((0..100).filter(|key| index.get(key).ok().flatten().is_none()));
        }
        (key, key)
    });
    assert_eq!(index.bulk_load(pairs)?, 1000);
    assert!(missed.is_empty(), "loaded, and told absent: {missed:?}");
    assert!(matches!(second, Some(Err(Error::NotEmpty))), "{second:?}");
    assert_eq!(index.get(&999)?, Some(999));
    Ok(())
}
