//! [`FpTree`] passes the conformance suite of indexes; its costs, its rebuild, ranges back and forth.

use std::ops::Bound;

use crate::conformance::{self, Place, concurrent, linear, points, trouble};
use lodestone_index::{Error, FpTree, OrderedIndex, PointIndex, Result, TreeOptions};
use lodestone_pmem::{CounterScope, checked};
use lodestone_store::Store;
use proptest::prelude::*;

const POOL_BYTES: u64 = 16 << 20;

fn options(lines_per_leaf: u32) -> TreeOptions {
    TreeOptions { lines_per_leaf, ..TreeOptions::default() }
}

fn numbers(lines_per_leaf: u32) -> Place<FpTree<u64>> {
    Place::new(POOL_BYTES, options(lines_per_leaf))
}

fn strings(lines_per_leaf: u32) -> Place<FpTree<[u8]>> {
    Place::new(POOL_BYTES, options(lines_per_leaf))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_a_model(steps in conformance::steps(80, 300)) {
        conformance::run_model(&mut numbers(2), &steps)?;
        conformance::run_model(&mut strings(1), &steps)?;
    }
}

#[test]
fn agrees_with_a_model_for_long() -> Result<()> {
    conformance::long_run(&mut numbers(3), 600, 6000, 1)?;
    conformance::long_run(&mut numbers(20), 1000, 6000, 2)?;
    conformance::long_run(&mut strings(4), 300, 3000, 3)
}

#[test]
fn loads_sorted_input_and_strings() -> Result<()> {
    conformance::bulk_load(&mut numbers(20), 1000)?;
    conformance::bulk_load(&mut strings(2), 300)?;
    conformance::string_keys(&mut strings(3))
}

#[test]
fn histories_are_linearizable() -> Result<()> {
    linear::self_test();
    concurrent::histories(&mut numbers(1), 3, 12, 300, 1)?;
    concurrent::scans_under_change(&mut numbers(2), 60, 12)
}

#[test]
fn trouble_is_told() -> Result<()> {
    trouble::full_pool(&mut Place::<FpTree<u64>>::new(3 << 20, options(4)))?;
    trouble::refusals(&mut strings(2))?;
    trouble::damage_is_never_an_answer(&mut numbers(2), 40, 7)?;
    trouble::damage_is_never_an_answer(&mut strings(2), 40, 7)
}

#[test]
fn takes_every_string_and_says_what_it_cannot_take() -> Result<()> {
    points::many_strings(&mut strings(20))?;
    points::damaged_heap(&mut numbers(2), 200)?;
    points::damaged_heap(&mut strings(2), 200)
}

#[test]
fn lives_in_the_block_domain() -> Result<()> {
    points::block_domain(&mut numbers(2))?;
    points::block_domain(&mut strings(2))
}

/// Lines flushed and fences of `work`.
fn cost<T>(work: impl FnOnce() -> Result<T>) -> Result<(u64, u64)> {
    let scope = CounterScope::start();
    work()?;
    Ok((scope.delta().flushes, scope.delta().fences))
}

#[test]
fn every_change_of_a_number_is_one_line_and_one_fence() -> Result<()> {
    let mut place = numbers(20);
    let tree = place.open();
    let (mut raised, mut split) = (0, 0);
    let key = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for number in 0..20_000 {
        match cost(|| tree.insert(&key(number), number))? {
            (1, 1) => {}
            (2, 2) => raised += 1,
            (lines, fences) => {
                assert!(lines < 70 && fences <= 9, "a split: {lines} lines, {fences} fences");
                split += 1;
            }
        }
    }
    assert!(raised < 20_000 / 2 && split < 900, "{raised} raised, {split} split");
    for number in 0..20_000 {
        assert_eq!(cost(|| tree.update(&key(number), 1))?, (1, 1));
        assert_eq!(cost(|| tree.get(&key(number)))?, (0, 0));
    }
    assert_eq!(cost(|| tree.remove(&key(9)))?, (1, 1));
    assert_eq!(cost(|| tree.remove(&key(9)))?, (0, 0));
    println!("{raised} of 20000 inserts raised a level, {split} split a leaf");
    Ok(())
}

#[test]
fn leaves_merge_and_the_heap_gets_them_back() -> Result<()> {
    let mut place = numbers(20);
    let tree = place.open();
    for number in 0..30_000_u64 {
        tree.insert(&number.reverse_bits(), number)?;
    }
    let full = tree.stats();
    for number in 0..29_900_u64 {
        assert_eq!(tree.remove(&number.reverse_bits())?, Some(number));
    }
    let thin = tree.stats();
    assert!(thin.leaves * 10 < full.leaves, "{} of {} leaves are left", thin.leaves, full.leaves);
    assert!(thin.pm_bytes * 10 < full.pm_bytes);
    place.assert_intact(&tree);
    Ok(())
}

/// The pairs of a tree of the same place that `threads` threads rebuild, or the text of the error.
fn reopened(store: &Store, threads: usize) -> std::result::Result<Vec<(u64, u64)>, String> {
    let options = TreeOptions { rebuild_threads: threads, ..TreeOptions::default() };
    let tree = FpTree::<u64>::open_with(store, "index", &options).map_err(|error| error.to_string())?;
    tree.range(Bound::Unbounded, Bound::Unbounded).collect::<Result<_>>().map_err(|error| error.to_string())
}

#[test]
fn a_rebuild_visits_every_leaf_once_and_tells_how_far_it_is() -> Result<()> {
    let mut place = numbers(1);
    let tree = place.open();
    for number in 0..9000_u64 {
        tree.insert(&number, number)?;
    }
    let leaves = tree.stats().leaves;
    assert!(leaves > 2500, "{leaves} leaves: several threads are asked beyond 1024");
    drop(tree);
    for rebuild_threads in [1, 2, 4] {
        let mut told = Vec::new();
        let options = TreeOptions { rebuild_threads, ..TreeOptions::default() };
        let tree = FpTree::<u64>::open_reporting(place.store(), "index", &options, &mut |recovery| {
            told.push((recovery.keys_done, recovery.share_done));
        })?;
        assert!(told.is_sorted() && (rebuild_threads == 1 || told.len() > 4), "{told:?}");
        // Helpers may have walked leaves that the chain does not lead to.
        assert!(told.last().is_some_and(|&(done, share)| done >= leaves && share == 1.0));
        assert!(tree.recovery().time_to_warm >= Some(tree.recovery().time_to_points));
        assert_eq!(tree.stats().leaves, leaves);
        let back: Result<Vec<_>> = tree.range(Bound::Unbounded, Bound::Excluded(&5)).rev().collect();
        assert_eq!(back?, [(4, 4), (3, 3), (2, 2), (1, 1), (0, 0)]);
    }
    Ok(())
}

/// Leaves of another tree and freed ones are among the guesses; they do not show.
#[test]
fn threads_rebuild_what_one_does() -> Result<()> {
    let mut place = numbers(1);
    let tree = place.open();
    let other: FpTree<u64> = FpTree::open_with(place.store(), "other", &options(1))?;
    let key = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for number in 0..12_000 {
        tree.insert(&key(number), number)?;
        other.insert(&key(number), !number)?;
    }
    for number in (0..12_000).filter(|number| number % 5 < 2) {
        tree.remove(&key(number))?;
    }
    drop((tree, other));
    let serial = reopened(place.store(), 1).expect("intact");
    assert_eq!(serial.len(), 7200);
    for threads in [2, 3, 8] {
        assert_eq!(reopened(place.store(), threads).as_ref(), Ok(&serial));
    }
    Ok(())
}

/// A link that leads back, and one that does not verify, far beyond the part that one thread walks alone.
#[test]
fn damage_ends_a_rebuild_by_threads_too() -> Result<()> {
    for leads_back in [true, false] {
        let mut place = numbers(1);
        let tree = place.open();
        for number in 0..9000_u64 {
            tree.insert(&number, number)?;
        }
        drop(tree);
        let mut leaves = Vec::new();
        place.store().heap().for_each_block(|at, bytes| leaves.extend((bytes > 256).then_some(at)));
        let memory = place.store().memory();
        let (link, second) = (leaves[2000], leaves[1]);
        let word = if leads_back { checked::encode_addr(link, second) } else { !memory.load(link) };
        memory.store(link, word);
        let told = [1, 2, 4].map(|threads| reopened(place.store(), threads).expect_err("damaged"));
        println!("{}", told[0]);
        let wanted = if leads_back { "does not ascend" } else { "checksum mismatch" };
        assert!(told.iter().all(|text| text.contains(wanted)), "{told:?}");
    }
    Ok(())
}

#[test]
fn a_tree_with_other_keys_is_of_another_kind_not_damaged() {
    let mut place = numbers(2);
    drop(place.open());
    let other = FpTree::<[u8]>::open(place.store(), "index").expect_err("other keys");
    assert!(matches!(other, Error::WrongKind { .. }), "{other}");
    assert!(
        other.to_string().contains("is an FPTree with words as keys, not an FPTree with strings as keys"),
        "{other}"
    );
}

/// Lanes of 256 bytes: an action changes 15 words.
#[test]
fn leaves_are_no_larger_than_an_action_can_split() -> Result<()> {
    for lane_bytes in [128, 256] {
        let mut place = numbers(20);
        place.heap_options.lane_bytes = lane_bytes;
        let tree = place.open();
        (0..2000_u64).try_for_each(|key| tree.insert(&key.wrapping_mul(0x9E37_79B9_7F4A_7C15), key).map(drop))?;
        assert!(tree.check().leaves > 2000 / 60, "lanes of {lane_bytes}");
        (0..2000_u64).try_for_each(|key| tree.remove(&key.wrapping_mul(0x9E37_79B9_7F4A_7C15)).map(drop))?;
        place.assert_intact(&tree);
        assert!(tree.check().leaves < 10, "lanes of {lane_bytes}: they merge as well");
    }
    Ok(())
}
