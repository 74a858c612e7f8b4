//! Regions under a deterministic scheduler: two transactions that read each other's row, and one that takes its locks
//! one by one. And a region that does not look at locks. The same without regions, and with locks that are taken for
//! pending versions.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::hardware::Hardware;
use common::{Open, explore, hunt, traced};
use lodestone_engine::{Database, DatabaseOptions, Region, Result, Schema, Type};
use lodestone_pmem::planted;
use lodestone_pmem::sync::thread;

fn world(region: Region) -> Result<Open> {
    let (store, options) = traced();
    let db = Database::open_in(&store, &DatabaseOptions { region, ..options })?;
    let table = db.create_table(&Schema::new("t").column("k", Type::U64).column("v", Type::I64).key(["k"]))?;
    let open = Open { db, table };
    open.set(&[(1, 0), (2, 0)])?;
    Ok(open)
}

/// Each transaction adds the two rows and 1, and stores that in the first.
fn add(open: &Open, keys: [u64; 2]) -> i64 {
    let sum = open.db.update(|tx| {
        let sum = open.get(tx, keys[0])?.unwrap_or(0) + open.get(tx, keys[1])?.unwrap_or(0) + 1;
        open.put(tx, keys[0], sum)?;
        Ok(sum)
    });
    sum.expect("a commit")
}

fn with_regions() {
    let hardware = Hardware::new();
    let open = world(hardware.region()).expect("a database");
    // The first commit of the threads falls back, and meets the regions of the others.
    hardware.conflicts.store(8, Ordering::SeqCst);
    execution(open);
}

fn with_locks() {
    execution(world(Region::Locks).expect("a database"));
}

fn execution(open: Open) {
    let open = Arc::new(open);
    let threads = [[1, 2], [2, 1], [1, 2]].map(|keys| {
        let open = Arc::clone(&open);
        thread::spawn(move || add(&open, keys))
    });
    let mut sums = threads.map(|thread| thread.join().expect("no panic"));
    sums.sort_unstable();
    // In any serial order each sum is larger than the ones before: rows only rise, and the second row is 0 or has the
    // sum of the other. So no two of them are equal.
    assert!(sums[0] < sums[1] && sums[1] < sums[2], "{sums:?} are of no serial order");
}

#[test]
fn commits_have_a_serial_order_and_bugs_of_locks_are_found() {
    for (execution, bug) in
        [(with_regions as fn(), "engine-region-ignores-locks"), (with_locks, "engine-pending-is-lock")]
    {
        explore(execution, 300).expect("no violation");
        planted::plant(Some(bug));
        let violation = hunt(execution, 10_000);
        planted::plant(None);
        let violation = violation.expect_err(bug);
        assert!(violation.contains("are of no serial order"), "{violation}");
    }
}
