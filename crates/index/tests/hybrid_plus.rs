//! [`HybridPlus`] passes the conformance suite with words and with strings as keys, with a hash that is warm, one that is filled in the
//! background and one that is filled along with the operations.

mod conformance;

use conformance::{Place, concurrent, linear, trouble};
use lodestone_index::{FastFairOptions, HybridPlus, HybridPlusOptions, IndexKey, Result, WarmUp};
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
