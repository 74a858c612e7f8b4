//! Interleavings of the two hybrids: point operations, ranges, the rebuild and the threads that apply; every history is
//! linearizable, key by key, over both structures.
//!
//! Run with `cargo test -p lodestone-index --features shuttle --test hybrid_schedules`.

mod hybrid_histories;

use hybrid_histories::{Schedules, TestedIndex, explore, linear, program};
use lodestone_index::{Hybrid, HybridPlus};

fn histories<I: TestedIndex>() {
    linear::self_test();
    for (by, first) in [(Schedules::Random, 0), (Schedules::Pct, 1000)] {
        let violation = explore::<I>((first..first + 60).map(program), by, 12);
        assert!(violation.is_none(), "{}", violation.unwrap_or_default());
    }
}

#[test]
fn histories_of_hybrid_plus_are_linearizable_over_both_structures() {
    histories::<HybridPlus<u64>>();
}

#[test]
fn histories_of_hybrid_are_linearizable_over_both_structures() {
    histories::<Hybrid<u64>>();
}
