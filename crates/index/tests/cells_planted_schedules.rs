//! Bugs in what writers and readers of cell lines ask again, planted one after the other: schedules must show each.

mod cells_histories;

use std::panic::{AssertUnwindSafe, catch_unwind};

use cells_histories as scenarios;
use lodestone_pmem::planted::plant;

fn must_be_found(bug: &str, scenario: fn(usize), schedules: usize) {
    plant(Some(bug));
    let found = catch_unwind(AssertUnwindSafe(|| scenario(schedules)));
    plant(None);
    assert!(found.is_err(), "no schedule shows {bug}");
}

#[test]
fn what_changed_between_two_looks_is_found() {
    // Nothing is found where nothing is planted.
    scenarios::segments_whose_descriptors_are_used_again_split_whole(50);
    // A lookup takes what another bucket's writer left half-read in the stash for damage.
    must_be_found("hash-stash-unlocked", scenarios::a_reader_of_the_stash_endures_writers_of_other_buckets, 400);
    // A split cuts a leaf that holds nothing.
    must_be_found("fptree-split-unasked", scenarios::a_leaf_that_was_emptied_before_its_split_needs_none, 400);
}
