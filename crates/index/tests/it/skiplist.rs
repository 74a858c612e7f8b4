//! [`SkipList`] passes the conformance suite with words and with strings as keys. The costs of an operation.

use crate::conformance::{self, Place, TestKey, concurrent, points, trouble};
use lodestone_index::{IndexKey, PointIndex, Result, SkipList, SkipListOptions};
use lodestone_pmem::CounterScope;
use proptest::prelude::*;

fn place<K: IndexKey + ?Sized>() -> Place<SkipList<K>> {
    Place::new(16 << 20, SkipListOptions::default())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn words_agree_with_a_model(steps in conformance::steps(80, 300)) {
        conformance::run_model(&mut place::<u64>(), &steps)?;
    }

    #[test]
    fn strings_agree_with_a_model(steps in conformance::steps(80, 300)) {
        conformance::run_model(&mut place::<[u8]>(), &steps)?;
    }
}

#[test]
fn agrees_with_a_model_for_long() -> Result<()> {
    conformance::long_run(&mut place::<u64>(), 900, 8000, 1)?;
    conformance::long_run(&mut place::<[u8]>(), 900, 8000, 2)
}

#[test]
fn grows_loads_and_takes_strings() -> Result<()> {
    conformance::grow_and_shrink(&mut place::<u64>(), 2000, |number| number * 1789 % 2000)?;
    conformance::grow_and_shrink(&mut place::<[u8]>(), 800, |number| number)?;
    conformance::bulk_load(&mut place::<u64>(), 1000)?;
    conformance::bulk_load(&mut place::<[u8]>(), 700)?;
    conformance::string_keys(&mut place())
}

#[test]
fn histories_are_linearizable() -> Result<()> {
    for seed in 0..3 {
        concurrent::histories(&mut place::<u64>(), 4, 16, 500, seed)?;
    }
    concurrent::histories(&mut place::<[u8]>(), 3, 16, 300, 9)?;
    concurrent::scans_under_change(&mut place::<u64>(), 100, 15)
}

#[test]
fn trouble_is_told() -> Result<()> {
    trouble::full_pool(&mut Place::<SkipList<u64>>::new(2 << 20, SkipListOptions::default()))?;
    trouble::full_pool(&mut Place::<SkipList<[u8]>>::new(2 << 20, SkipListOptions::default()))?;
    trouble::refusals(&mut place::<u64>())?;
    trouble::damage_is_never_an_answer(&mut place::<u64>(), 40, 1)?;
    trouble::damage_is_never_an_answer(&mut place::<[u8]>(), 40, 3)
}

#[test]
fn takes_every_string_and_says_what_it_cannot_take() -> Result<()> {
    points::many_strings(&mut place())?;
    points::damaged_heap(&mut place::<u64>(), 200)?;
    points::damaged_heap(&mut place::<[u8]>(), 200)
}

#[test]
fn lives_in_the_block_domain() -> Result<()> {
    points::block_domain(&mut place::<u64>())?;
    points::block_domain(&mut place::<[u8]>())
}

#[test]
fn costs_are_those_argued_in_the_module() -> Result<()> {
    const COUNT: u64 = 2000;
    let index = place::<u64>().open();
    let cost = |operation: &dyn Fn(&u64)| {
        let scope = CounterScope::start();
        (100..100 + COUNT).for_each(|number| operation(&u64::numbered(number)));
        (scope.delta().flushes * 100 / COUNT, scope.delta().fences * 100 / COUNT)
    };
    let insert = cost(&|key| assert!(index.insert(key, 1).expect("insert")));
    assert!(insert.0 <= 620 && insert.1 <= 410, "{insert:?} hundredths of lines and fences per insert");
    assert_eq!(cost(&|key| assert_eq!(index.update(key, 2).expect("update"), Some(1))), (100, 100));
    assert_eq!(cost(&|key| assert_eq!(index.get(key).expect("get"), Some(2))), (0, 0));
    let remove = cost(&|key| assert_eq!(index.remove(key).expect("remove"), Some(2)));
    assert!(remove.0 <= 520 && remove.1 <= 310, "{remove:?} hundredths of lines and fences per removal");
    Ok(())
}
