//! Interleavings of the tree of leaves: point operations and ranges of few threads while leaves split, merge and hand
//! their descriptors on; every history is linearizable, key by key.
//!
//! Run with `cargo test -p lodestone-index --features shuttle --test fptree_schedules`.

mod fptree_histories;
mod hybrid_histories;

use hybrid_histories::{Schedules, explore, linear, program_on};
use lodestone_index::FpTree;

#[test]
fn histories_of_the_tree_are_linearizable_while_leaves_split_and_merge() {
    linear::self_test();
    for (by, first) in [(Schedules::Random, 0), (Schedules::Pct, 1000)] {
        let violation = explore::<FpTree<u64>>((first..first + 80).map(|seed| program_on(seed, 11)), by, 15);
        assert!(violation.is_none(), "{}", violation.unwrap_or_default());
    }
}

#[test]
fn histories_of_merges_and_splits_are_linearizable() {
    for by in [Schedules::Random, Schedules::Pct] {
        for program in fptree_histories::programs() {
            let violation = explore::<FpTree<u64>>((0..2).map(|_| program.clone()), by, 60);
            assert!(violation.is_none(), "{}", violation.unwrap_or_default());
        }
    }
}
