//! No schedule of readers and writers on cell lines breaks a promise: see `cells_histories`.
//!
//! Run with `cargo test -p lodestone-index --features shuttle --test cells_schedules`.

mod cells_histories;

#[test]
fn a_reader_of_the_stash_endures_writers_of_other_buckets() {
    cells_histories::a_reader_of_the_stash_endures_writers_of_other_buckets(400);
}

#[test]
fn segments_whose_descriptors_are_used_again_split_whole() {
    cells_histories::segments_whose_descriptors_are_used_again_split_whole(150);
}

#[test]
fn a_leaf_that_was_emptied_before_its_split_needs_none() {
    cells_histories::a_leaf_that_was_emptied_before_its_split_needs_none(400);
}
