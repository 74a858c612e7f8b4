//! [`FastFair`] passes the conformance suite with words and with strings as keys, in nodes of several sizes. The
//! costs of an operation.

use crate::conformance::{self, Place, TestKey, concurrent, points, trouble};
use lodestone_index::{FastFair, FastFairOptions, IndexKey, PointIndex, Result};
use lodestone_pmem::CounterScope;
use proptest::prelude::*;

const POOL_BYTES: u64 = 16 << 20;

fn place<K: IndexKey + ?Sized>(lines: usize) -> Place<FastFair<K>> {
    Place::new(POOL_BYTES, FastFairOptions::with_lines(lines))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn words_agree_with_a_model(lines in 2..5_usize, steps in conformance::steps(80, 400)) {
        conformance::run_model(&mut place::<u64>(lines), &steps)?;
    }

    #[test]
    fn strings_agree_with_a_model(lines in 2..5_usize, steps in conformance::steps(80, 400)) {
        conformance::run_model(&mut place::<[u8]>(lines), &steps)?;
    }
}

#[test]
fn agrees_with_a_model_for_long() -> Result<()> {
    conformance::long_run(&mut place::<u64>(3), 900, 12_000, 1)?;
    conformance::long_run(&mut place::<u64>(11), 6000, 30_000, 2)?;
    conformance::long_run(&mut place::<[u8]>(3), 900, 12_000, 3)
}

#[test]
fn grows_and_shrinks_in_any_order() -> Result<()> {
    for lines in [2, 5, 11] {
        conformance::grow_and_shrink(&mut place::<u64>(lines), 3000, |number| number)?;
        conformance::grow_and_shrink(&mut place::<u64>(lines), 3000, |number| 2999 - number)?;
        conformance::grow_and_shrink(&mut place::<u64>(lines), 3000, |number| number * 1789 % 3000)?;
        conformance::grow_and_shrink(&mut place::<[u8]>(lines), 1000, |number| number)?;
    }
    Ok(())
}

#[test]
fn loads_sorted_input_and_strings() -> Result<()> {
    conformance::bulk_load(&mut place::<u64>(4), 2000)?;
    conformance::bulk_load(&mut place::<[u8]>(4), 500)?;
    conformance::string_keys(&mut place(3))?;
    conformance::string_keys(&mut place(11))
}

#[test]
fn histories_are_linearizable() -> Result<()> {
    for seed in 0..3 {
        concurrent::histories(&mut place::<u64>(2), 4, 24, 600, seed)?;
        concurrent::histories(&mut place::<[u8]>(2), 3, 16, 300, seed)?;
    }
    concurrent::histories(&mut place::<u64>(11), 4, 200, 3000, 7)
}

#[test]
fn scans_show_what_is_stable_while_neighbours_change() -> Result<()> {
    concurrent::scans_under_change(&mut place::<u64>(3), 150, 30)?;
    concurrent::scans_under_change(&mut place::<[u8]>(3), 80, 12)
}

#[test]
fn trouble_is_told() -> Result<()> {
    for lines in [3, 11] {
        let options = FastFairOptions::with_lines(lines);
        trouble::full_pool(&mut Place::<FastFair<u64>>::new(2 << 20, options.clone()))?;
        trouble::full_pool(&mut Place::<FastFair<[u8]>>::new(2 << 20, options))?;
    }
    trouble::refusals(&mut place::<u64>(4))?;
    trouble::refusals(&mut place::<[u8]>(4))
}

#[test]
fn takes_every_string_and_says_what_it_cannot_take() -> Result<()> {
    points::many_strings(&mut place(11))?;
    points::damaged_heap(&mut place::<u64>(2), 200)?;
    points::damaged_heap(&mut place::<[u8]>(2), 200)
}

#[test]
fn lives_in_the_block_domain() -> Result<()> {
    points::block_domain(&mut place::<u64>(2))?;
    points::block_domain(&mut place::<[u8]>(2))
}

#[test]
fn damage_is_never_an_answer() -> Result<()> {
    trouble::damage_is_never_an_answer(&mut place::<u64>(3), 60, 1)?;
    trouble::damage_is_never_an_answer(&mut place::<[u8]>(3), 40, 3)
}

/// Lines flushed and fences per operation on a tree of `count` keys, times 1000.
fn cost(count: u64, mut operation: impl FnMut(u64)) -> (u64, u64) {
    let scope = CounterScope::start();
    (0..count).for_each(&mut operation);
    let delta = scope.delta();
    (delta.flushes * 1000 / count, delta.fences * 1000 / count)
}

#[test]
fn costs_are_those_argued_in_the_module() -> Result<()> {
    const COUNT: u64 = 60_000;
    let mut place = place::<u64>(11);
    let index = place.open();
    let key = |number: u64| u64::numbered(number + 100);
    let insert = cost(COUNT, |number| assert!(index.insert(&key(number), number).expect("insert")));
    println!("insert: {insert:?} thousandths of lines and fences");
    assert!((1000..=3000).contains(&insert.0), "{} thousandths of a line per insert", insert.0);
    assert!((1000..=2000).contains(&insert.1), "{} thousandths of a fence per insert", insert.1);
    let update = cost(COUNT, |number| assert!(index.update(&key(number), number).expect("update").is_some()));
    assert_eq!(update, (1000, 1000), "an update is one line and one fence");
    let read = cost(COUNT, |number| assert!(index.get(&key(number)).expect("get").is_some()));
    assert_eq!(read, (0, 0), "a read flushes nothing");
    let remove = cost(2000, |number| assert!(index.remove(&key(number)).expect("remove").is_some()));
    assert_eq!(remove, (1000, 1000), "a removal that merges nothing is one line and one fence");
    drop(index);
    let index = place.open();
    let ascending = cost(2000, |number| assert!(index.insert(&(u64::MAX - 10_000 + number), 1).expect("insert")));
    println!("ascending insert: {ascending:?}");
    assert!(ascending.1 <= 2000, "{} thousandths of a fence per ascending insert", ascending.1);
    Ok(())
}
