//! Bugs planted in the pool layer: each is found, with a shrunk reproducer that replays. The clean tree passes.

use lodestone_crash::planted::Bug;
use lodestone_crash::{Explore, Failure, PoolBoot, PoolCreate, PoolGrow, PoolRoots, Target};

fn found(bug: Bug) {
    let violation = bug.must_be_found();
    println!("{} ({}):\n{violation}\n", bug.name, bug.harm);
    assert!(violation.ops.len() <= 2, "not shrunk: {violation}");
    assert!(violation.token.contains(bug.name), "the reproducer must plant the bug again: {}", violation.token);
}

/// Bug: the magic is stored together with the rest of the header. Harm: a creation that crashed leaves a part that
/// looks like a damaged pool. Fix: the magic last, after a fence.
#[test]
fn magic_with_the_header() {
    let bug = Bug::new("pool-magic-with-header", "half-made pools look damaged", || Box::new(PoolCreate::default()));
    found(bug);
}

/// Bug: both lines of a record are overwritten without a fence between. Harm: a crash tears both, the record is lost.
/// Fix: persist the first before touching the second.
#[test]
fn both_mirrored_lines_at_once() {
    let harm = "both copies of the state are torn, the pool cannot be opened";
    found(Bug::new("pool-mirror-both-at-once", harm, || Box::new(PoolBoot)));
}

/// Bug: the second copy's flush names the first copy's line. Harm: the next write starts with the line that is the only
/// persistent one. Fix: flush the line that was stored.
#[test]
fn wrong_line_flushed() {
    let harm = "an acknowledged root is lost by the next crash";
    found(Bug::new("pool-mirror-wrong-line-flushed", harm, || Box::new(PoolRoots)));
}

/// Bug: a root is overwritten in both places at once. Harm: a crash loses old and new. Fix: one place after the other.
#[test]
fn root_replaced_in_place() {
    let harm = "replacing a root loses both the old and the new one";
    found(Bug::new("pool-root-in-place", harm, || Box::new(PoolRoots)));
}

/// Bug: the boot number counts up in memory only. Harm: two lives use the same number, and numbers that must be unique
/// repeat. Fix: persist it before the caller receives the pool.
#[test]
fn boot_number_not_persisted() {
    let harm = "timestamps of two lives collide";
    found(Bug::new("pool-boot-in-memory-only", harm, || Box::new(PoolBoot)));
}

/// Bug: opening keeps the clean mark. Harm: a crash is taken for an orderly close and recovery is skipped. Fix: the
/// state of a new life has no clean mark.
#[test]
fn clean_mark_kept() {
    found(Bug::new("pool-clean-mark-kept", "recovery is skipped after a crash", || Box::new(PoolBoot)));
}

/// Bug: the header copy at the new end is stored but not flushed. Harm: a grown pool has no second copy to repair from.
/// Fix: persist it before the state tells the new length.
#[test]
fn copy_at_the_new_end_not_flushed() {
    let harm = "a grown pool cannot be repaired";
    found(Bug::new("pool-grow-copy-not-flushed", harm, || Box::new(PoolGrow)));
}

/// Bug: opening after a crash in growth does not clear the former header copy. Harm: it stays in the heap area as
/// garbage. Fix: opening finishes the growth that the state records as under way.
#[test]
fn growth_not_finished_by_recovery() {
    let harm = "old metadata shows up in the heap area";
    found(Bug::new("pool-growth-not-finished", harm, || Box::new(PoolGrow)));
}

/// A target that loses an acknowledged write, whatever bug is planted.
fn always_wrong() -> Box<dyn Target> {
    let store = |pool: &lodestone_pmem::Pool| {
        pool.memory().store(pool.heap_area(0).0, 1);
        Ok(())
    };
    let check = |pool: &lodestone_pmem::Pool, history: &lodestone_crash::History| {
        let is_there = pool.memory().load(pool.heap_area(0).0) == 1;
        Failure::unless(is_there || history.acked().is_empty(), || "an acknowledged write is lost".into())
    };
    Box::new(Explore::new("always-wrong").op("store", store).check(check))
}

/// A target that finds something without the bug shows nothing about it.
#[test]
#[should_panic(expected = "found in the clean tree")]
fn a_target_that_is_always_wrong_finds_no_bug() {
    Bug::new("pool-root-in-place", "none", always_wrong).must_be_found();
}
