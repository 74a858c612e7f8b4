//! Bugs of the tree of leaves that only interleavings show: each planted, each found by the histories that are clean
//! without it.
//!
//! Run with `cargo test -p lodestone-index --features shuttle,planted-bugs --test fptree_planted_schedules`.

mod fptree_histories;
mod hybrid_histories;

use std::panic::{AssertUnwindSafe, catch_unwind};

use hybrid_histories::{Program, Schedules, explore};
use lodestone_index::FpTree;
use lodestone_pmem::planted::plant;

/// `programs` are clean, and with `bug` they are not.
#[track_caller]
fn must_be_found(bug: &str, of: &[Program], schedules: usize) {
    let both = || {
        let programs = || of.iter().cycle().take(24).cloned();
        let random = || explore::<FpTree<u64>>(programs(), Schedules::Random, schedules);
        random().or_else(|| explore::<FpTree<u64>>(programs(), Schedules::Pct, schedules))
    };
    let clean = both();
    assert!(clean.is_none(), "without the bug: {clean:?}");
    plant(Some(bug));
    // A reader may take what it read too early or too late for damage.
    let found = catch_unwind(AssertUnwindSafe(both)).unwrap_or_else(|_| Some("an operation failed".into()));
    plant(None);
    println!("{bug}: {}", found.as_deref().unwrap_or("not found"));
    assert!(found.is_some(), "{bug} was not found");
}

/// One test: a planted bug is there for the whole process.
#[test]
fn what_the_order_of_stamp_and_bounds_forbids_is_found() {
    // The leaf covers 3, splits, is stamped, and does not hold 3 any more.
    must_be_found("fptree-bounds-before-stamp", &[fptree_histories::split()], 40);
    // The same of a writer: 3 is there twice.
    must_be_found("fptree-bounds-before-lock", &[fptree_histories::split()], 40);
    // A stamp of a descriptor's former life is true in its next one.
    must_be_found("cells-lock-revived-young", &fptree_histories::reuses(), 150);
    // A descriptor lives again before it says where its leaf ends.
    let clean = fptree_histories::other_lives(400);
    assert!(clean.is_none(), "without the bug: {clean:?}");
    plant(Some("fptree-revived-endless"));
    let found = fptree_histories::other_lives(400);
    plant(None);
    assert!(found.is_some(), "fptree-revived-endless was not found");
    // A reader believes what it read of a leaf while that split.
    must_be_found("fptree-stale-leaf", &[fptree_histories::split()], 40);
}
