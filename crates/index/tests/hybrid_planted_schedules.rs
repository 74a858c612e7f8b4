//! Bugs of the two hybrids that only interleavings show: each planted, each found by the histories that are clean
//! without it.
//!
//! Run with `cargo test -p lodestone-index --features shuttle,planted-bugs --test hybrid_planted_schedules`.

mod hybrid_histories;

use std::sync::{Mutex, PoisonError};

use hybrid_histories::{Program, Schedules, Step, TestedIndex, explore, linear::Op, walk_beside_splits};
use lodestone_index::{Direction, Hybrid, HybridPlus};
use lodestone_pmem::planted::plant;

/// A planted bug is there for the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// `program` is clean, and with `bug` it is not.
#[track_caller]
fn must_be_found<I: TestedIndex>(bug: &str, program: Program) {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let both = || {
        let programs = || (0..20).map(|_| program.clone());
        explore::<I>(programs(), Schedules::Random, 40).or_else(|| explore::<I>(programs(), Schedules::Pct, 40))
    };
    let clean = both();
    assert!(clean.is_none(), "without the bug: {clean:?}");
    plant(Some(bug));
    let found = both();
    plant(None);
    println!("{bug}: {}", found.as_deref().unwrap_or("not found"));
    assert!(found.is_some(), "{bug} was not found");
}

fn scan() -> Step {
    Step::Scan(Direction::Ascending)
}

fn get() -> Step {
    Step::Point(0, Op::Get)
}

fn put(value: u64) -> Step {
    Step::Point(0, Op::Upsert(value))
}

fn program(before: &[(u64, u64)], threads: &[&[Step]]) -> Program {
    Program { before: before.to_vec(), threads: threads.iter().map(|steps| steps.to_vec()).collect() }
}

/// Tree 2, hash 1: a range shows 2, the later point read 1.
#[test]
fn a_point_read_that_ignores_the_stripes_parity_is_found() {
    must_be_found::<HybridPlus<u64>>(
        "hybrid-plus-no-parity",
        program(&[(0, 1)], &[&[put(2), put(3)], &[scan(), get(), scan(), get()]]),
    );
}

/// The rebuild reads 1, the key is removed (nothing to do in the cold hash), the fill brings 1 back for ever.
#[test]
fn a_late_fill_that_resurrects_a_value_is_found() {
    let remove = Step::Point(0, Op::Remove);
    must_be_found::<HybridPlus<u64>>(
        "hybrid-plus-late-fill",
        program(&[(0, 1), (1, 1)], &[&[remove, get()], &[get()]]),
    );
}

#[test]
fn a_miss_in_a_cold_hash_that_counts_is_found() {
    must_be_found::<HybridPlus<u64>>("hybrid-plus-miss-is-absent", program(&[(0, 1)], &[&[get()]]));
}

#[test]
fn a_range_that_does_not_wait_for_the_queue_is_found() {
    must_be_found::<Hybrid<u64>>("hybrid-no-drain", program(&[(0, 1)], &[&[put(2), scan()]]));
}

/// Two updates of one key in two queues: the older one is applied last, and ranges show it for ever.
#[test]
fn two_queues_for_one_key_are_found() {
    must_be_found::<Hybrid<u64>>("hybrid-two-queues", program(&[(0, 1)], &[&[put(2), put(3), put(4)], &[scan()]]));
}

/// The hash holds 2, the queue nothing yet: a point read shows 2, the later range 1.
#[test]
fn a_place_in_the_queue_that_is_taken_behind_the_hash_is_found() {
    must_be_found::<Hybrid<u64>>(
        "hybrid-queue-behind-hash",
        program(&[(0, 1)], &[&[put(2), put(3)], &[get(), scan(), get(), scan()]]),
    );
}

/// Changes that came while the tree was rebuilt never reach it.
#[test]
fn a_rebuild_that_forgets_what_came_meanwhile_is_found() {
    must_be_found::<Hybrid<u64>>("hybrid-rebuild-forgets", program(&[(0, 1), (1, 1)], &[&[put(2), put(3)], &[put(4)]]));
}

/// A split ends the segment that a walk has found, a second one assigns its descriptor to a segment of fewer hashes:
/// the others would be missed.
#[test]
fn a_walk_that_trusts_what_a_segment_once_covered_is_found() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let both = || walk_beside_splits(Schedules::Random, 300).or_else(|| walk_beside_splits(Schedules::Pct, 600));
    let clean = both();
    assert!(clean.is_none(), "without the bug: {clean:?}");
    plant(Some("hash-walk-old-cover"));
    let found = both();
    plant(None);
    println!("{found:?}");
    assert!(found.is_some(), "the bug was not found");
}
