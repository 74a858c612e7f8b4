//! [`Hybrid`] passes the conformance suite with words and with strings as keys, with threads of its own and without.

use std::ops::Bound;

use crate::conformance::{self, Place, concurrent, linear, trouble};
use lodestone_index::{Apply, Hybrid, HybridOptions, IndexKey, OrderedIndex, PointIndex, Result};
use proptest::prelude::*;

/// With threads that apply and that rebuild.
fn threads(queues: usize) -> HybridOptions {
    let mut options = HybridOptions::small();
    options.apply = Apply::Background { threads: queues };
    options.queue_updates_max = 16;
    options.rebuild_threads = 2;
    options
}

fn place<K: IndexKey + ?Sized>(options: HybridOptions) -> Place<Hybrid<K>> {
    Place::new(16 << 20, options)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn words_agree_with_a_model(steps in conformance::steps(80, 300)) {
        conformance::run_model(&mut place::<u64>(HybridOptions::small()), &steps)?;
        conformance::run_model(&mut place::<u64>(threads(2)), &steps)?;
    }

    #[test]
    fn strings_agree_with_a_model(steps in conformance::steps(80, 300)) {
        conformance::run_model(&mut place::<[u8]>(HybridOptions::small()), &steps)?;
        conformance::run_model(&mut place::<[u8]>(threads(1)), &steps)?;
    }
}

#[test]
fn agrees_with_a_model_for_long() -> Result<()> {
    conformance::long_run(&mut place::<u64>(HybridOptions::default()), 900, 8000, 1)?;
    conformance::long_run(&mut place::<u64>(threads(2)), 900, 8000, 2)?;
    conformance::long_run(&mut place::<[u8]>(threads(1)), 600, 5000, 3)
}

#[test]
fn grows_loads_and_takes_strings() -> Result<()> {
    conformance::bulk_load(&mut place::<u64>(HybridOptions::default()), 1000)?;
    conformance::bulk_load(&mut place::<[u8]>(HybridOptions::small()), 300)?;
    conformance::string_keys(&mut place(threads(2)))
}

#[test]
fn histories_are_linearizable() -> Result<()> {
    linear::self_test();
    for seed in 0..3 {
        concurrent::histories(&mut place::<u64>(threads(2)), 4, 16, 500, seed)?;
        concurrent::histories(&mut place::<u64>(HybridOptions::small()), 4, 16, 500, seed)?;
    }
    concurrent::histories(&mut place::<[u8]>(threads(1)), 3, 16, 300, 9)?;
    concurrent::scans_under_change(&mut place::<u64>(threads(2)), 100, 15)?;
    concurrent::scans_under_change(&mut place::<[u8]>(threads(1)), 60, 8)
}

#[test]
fn trouble_is_told() -> Result<()> {
    trouble::full_pool(&mut Place::<Hybrid<u64>>::new(2 << 20, threads(1)))?;
    trouble::full_pool(&mut Place::<Hybrid<[u8]>>::new(2 << 20, threads(2)))?;
    trouble::refusals(&mut place::<u64>(threads(1)))?;
    trouble::refusals(&mut place::<[u8]>(HybridOptions::small()))?;
    trouble::damage_is_never_an_answer(&mut place::<u64>(threads(1)), 60, 1)?;
    trouble::damage_is_never_an_answer(&mut place::<[u8]>(threads(1)), 40, 3)
}

/// With queues that threads cannot keep short, ranges still show what was acknowledged, and the end of the index is
/// orderly.
#[test]
fn a_full_queue_makes_changes_help_and_ranges_wait() -> Result<()> {
    let mut options = threads(2);
    options.queue_updates_max = 4;
    let mut place = place::<u64>(options);
    let index = place.open();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let index = &index;
            scope.spawn(move || {
                for number in 0..2000 {
                    let key = number * 3 + thread;
                    assert!(index.insert(&key, number).expect("insert"));
                    if number % 64 == 0 {
                        let mut range = index.range(Bound::Included(&key), Bound::Included(&key));
                        assert_eq!(range.next().transpose().expect("range"), Some((key, number)), "its own change");
                    }
                }
            });
        }
    });
    assert_eq!(conformance::contents(&index)?.len(), 6000);
    (0..6000).try_for_each(|key| index.remove(&key).map(drop))?;
    // Dropped with updates in the queues.
    drop(index);
    let index = place.open();
    assert!(conformance::contents(&index)?.is_empty());
    place.assert_intact(&index);
    Ok(())
}

#[test]
fn removals_give_leaves_and_segments_back() -> Result<()> {
    let mut place = place::<u64>(HybridOptions::default());
    let index = place.open();
    (0..30_000_u64).try_for_each(|number| index.insert(&number.reverse_bits(), number).map(drop))?;
    assert_eq!(conformance::contents(&index)?.len(), 30_000);
    let full = index.stats();
    assert_eq!((full.keys, full.keys_in_dram), (30_000, 30_000));
    let per_key = full.dram_bytes / full.keys;
    assert!((16..=48).contains(&per_key), "{per_key} bytes of DRAM per key");
    for number in 0..29_900_u64 {
        assert_eq!(index.remove(&number.reverse_bits())?, Some(number));
    }
    place.assert_intact(&index);
    let thin = index.stats();
    assert_eq!((thin.keys, thin.keys_in_dram), (100, 100));
    assert!(thin.pm_bytes * 4 < full.pm_bytes && thin.dram_bytes * 4 < full.dram_bytes, "{full:?} to {thin:?}");
    Ok(())
}

/// Points are answered at once, ranges when the tree is there, by the thread that rebuilds it.
#[test]
fn the_tree_is_rebuilt_by_threads_or_by_the_first_range() -> Result<()> {
    const KEYS: u64 = 20_000;
    for rebuild_threads in [0, 3] {
        let mut options = HybridOptions::default();
        options.rebuild_threads = rebuild_threads;
        let mut place = place::<u64>(options);
        let index = place.open();
        index.bulk_load((0..KEYS).map(|number| (number * 7, number)))?;
        place.assert_intact(&index);
        drop(index);
        for round in 0..6 {
            // Changes while the tree is rebuilt, then the end of the process or of the index.
            let index = place.open();
            assert_eq!(index.get(&(round * 7))?, Some(round));
            assert_eq!(index.remove(&(KEYS * 7 - 7 - round * 7))?, Some(KEYS - 1 - round));
            if round % 3 == 0 {
                assert_eq!(index.last()?, Some((KEYS * 7 - 14 - round * 7, KEYS - 2 - round)));
            } else if rebuild_threads == 0 {
                assert_eq!(index.recovery().time_to_ranges, None, "nobody asked for a range");
            }
            drop(if round % 2 == 0 { place.open_as_after_a_kill(index) } else { index });
        }
        let index = place.open();
        index.wait_warm()?;
        let recovery = index.recovery();
        assert_eq!((recovery.keys_total, recovery.share_done), (Some(KEYS - 6), 1.0));
        assert!(recovery.time_to_points <= recovery.time_to_ranges.expect("they are answered"));
        place.assert_intact(&index);
    }
    Ok(())
}

/// A change that fails half-way: ranges name the damage as long as it is there, and are right afterwards.
#[test]
fn a_change_that_meets_damage_is_not_left_out_of_ranges() -> Result<()> {
    let mut place = place::<u64>(threads(1));
    let index = place.open();
    (0..20).try_for_each(|number| index.insert(&number, number).map(drop))?;
    let memory = place.store().memory().clone();
    let all: Vec<_> = (0..20).map(|number| (number, number)).collect();
    let (mut failed, mut named) = (0, 0);
    for block in index.check().blocks {
        let bytes = place.store().heap().block_bytes(block).expect("an allocated block");
        for word in 0..bytes / 8 {
            let at = block.plus(word * 8);
            let good = memory.load(at);
            memory.store(at, good ^ 0x10);
            let errors = (0..20).filter(|number| index.compare_and_swap(number, *number, *number).is_err()).count();
            failed += errors;
            match conformance::contents(&index) {
                Ok(found) => assert_eq!(found, all, "word {word} of {block} is damaged"),
                Err(_) => named += 1,
            }
            memory.store(at, if memory.load(at) == good ^ 0x10 { good } else { memory.load(at) });
            assert_eq!(conformance::contents(&index)?, all);
        }
    }
    assert!(failed > 0 && named > 0, "{failed} changes failed, {named} ranges");
    place.assert_intact(&index);
    Ok(())
}

/// As long as a key's value is unknown, every range says so, also those that begin while another one asks for it.
#[test]
fn ranges_side_by_side_all_name_the_damage() -> Result<()> {
    let mut place = place::<u64>(threads(1));
    let index = place.open();
    (0..20).try_for_each(|number| index.insert(&number, number).map(drop))?;
    let memory = place.store().memory().clone();
    // A word whose damage makes a change fail, and what is there unreadable.
    let damage = index.check().blocks.into_iter().find_map(|block| {
        let words = place.store().heap().block_bytes(block).expect("an allocated block") / 8;
        (0..words).map(|word| block.plus(word * 8)).find(|&at| {
            let good = memory.load(at);
            memory.store(at, good ^ 0x10);
            let fails = index.upsert(&7, 70).is_err() && conformance::contents(&index).is_err();
            memory.store(at, good);
            let heals = conformance::contents(&index).is_ok();
            assert!(heals, "the damage is gone");
            fails
        })
    });
    let at = damage.expect("a word that the key's change reads");
    let good = memory.load(at);
    memory.store(at, good ^ 0x10);
    assert!(index.upsert(&7, 71).is_err());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..5000 {
                    assert!(conformance::contents(&index).is_err(), "a range that knows nothing of the damage");
                }
            });
        }
    });
    memory.store(at, good);
    assert_eq!(conformance::contents(&index)?.len(), 20);
    Ok(())
}

/// Removals let segments of the hash merge while it is gone through.
#[test]
fn a_rebuild_beside_removals_leaves_each_key_once() -> Result<()> {
    for round in 0..10 {
        let mut place = place::<u64>(threads(1));
        let keys = 0..6000_u64;
        {
            let index = place.open();
            keys.clone().try_for_each(|key| index.insert(&key, key).map(drop))?;
        }
        let index = place.open();
        keys.filter(|key| key % 16 != 0).try_for_each(|key| index.remove(&key).map(drop))?;
        index.wait_warm()?;
        let report = index.check();
        assert!(report.is_intact(), "round {round}: {:?}", report.findings);
    }
    Ok(())
}
