//! [`Hybrid`] passes the conformance suite with words and with strings as keys, with threads of its own and without.

mod conformance;

use conformance::{Place, concurrent, linear, trouble};
use lodestone_index::{Apply, Hybrid, HybridOptions, IndexKey, Result};
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
