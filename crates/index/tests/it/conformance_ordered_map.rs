//! [`OrderedMap`] passes the conformance suite of indexes.

use crate::conformance::{self, Place, concurrent, linear, points, trouble};
use lodestone_index::{MapOptions, OrderedMap, Result};
use proptest::prelude::*;

const POOL_BYTES: u64 = 16 << 20;

fn place(slots_per_leaf: usize) -> Place<OrderedMap> {
    Place::new(POOL_BYTES, MapOptions { slots_per_leaf })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_a_model(steps in conformance::steps(60, 300)) {
        conformance::run_model(&mut place(3), &steps)?;
    }
}

#[test]
fn agrees_with_a_model_for_long() -> Result<()> {
    conformance::long_run(&mut place(8), 600, 6000, 1)
}

#[test]
fn loads_sorted_input_and_strings() -> Result<()> {
    conformance::bulk_load(&mut place(5), 300)?;
    conformance::string_keys(&mut place(5))
}

#[test]
fn histories_are_linearizable() -> Result<()> {
    linear::self_test();
    concurrent::histories(&mut place(2), 3, 12, 300, 1)?;
    concurrent::scans_under_change(&mut place(4), 60, 12)
}

#[test]
fn trouble_is_told() -> Result<()> {
    trouble::full_pool(&mut Place::<OrderedMap>::new(2 << 20, MapOptions { slots_per_leaf: 8 }))?;
    trouble::refusals(&mut place(4))?;
    trouble::damage_is_never_an_answer(&mut place(4), 40, 7)
}

#[test]
fn takes_every_string_and_says_what_it_cannot_take() -> Result<()> {
    points::many_strings(&mut place(40))?;
    points::damaged_heap(&mut place(4), 200)
}

#[test]
fn lives_in_the_block_domain() -> Result<()> {
    points::block_domain(&mut place(4))
}
