//! A commit beside a split of its leaf and a checkpoint, under a deterministic scheduler; then a crash.
//!
//! The commit has found its row, and not locked it yet, when the leaf is split. A checkpoint writes the new leaf. If
//! the commit makes only the page of the old leaf dirty, later checkpoints keep the old row and truncate the record.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use common::{Open, traced};
use lodestone_engine::{Database, DatabaseOptions, Result, Schema, Type};
use lodestone_pmem::planted;
use lodestone_pmem::sync::thread;
use lodestone_store::Store;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{FailurePersistence, MaxSteps, Runner};

fn open(store: &Store, options: &DatabaseOptions) -> Result<Open> {
    let db = Database::open_in(store, options)?;
    let table = db.create_table(&Schema::new("t").column("k", Type::U64).column("v", Type::I64).key(["k"]))?;
    Ok(Open { db, table })
}

fn execution() {
    let (store, options) = traced();
    let options = DatabaseOptions { leaf_rows_max: 3, ..options };
    let world = Arc::new(open(&store, &options).expect("a database"));
    world.set(&[(0, 0), (10, 0), (20, 0)]).expect("a commit");
    world.db.checkpoint().expect("a checkpoint");
    let works: [fn(&Open) -> Result<()>; 3] =
        [|open| open.set(&[(20, 7)]), |open| open.set(&[(5, 1)]), |open| open.db.checkpoint().map(drop)];
    let threads = works.map(|work| {
        let world = Arc::clone(&world);
        thread::spawn(move || work(&world).expect("nothing fails"))
    });
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    // The first record that a checkpoint has no need of goes with the next one.
    (0..2).for_each(|_| drop(world.db.checkpoint().expect("a checkpoint")));
    let Open { db, table } = Arc::into_inner(world).expect("the threads have ended");
    drop(table);
    db.abandon();
    let rows = open(&store, &options).and_then(|open| open.all()).expect("an open");
    assert_eq!(rows, [(0, 0), (5, 1), (10, 0), (20, 7)], "a commit is lost");
}

fn explore(schedules: usize) -> Result<(), String> {
    let mut config = shuttle::Config::new();
    (config.stack_size, config.max_steps) = (1 << 20, MaxSteps::FailAfter(2_000_000));
    config.failure_persistence = FailurePersistence::None;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        Runner::new(RandomScheduler::new_from_seed(1, schedules), config.clone()).run(execution);
        for depth in [2, 3, 4] {
            Runner::new(PctScheduler::new_from_seed(1, depth, schedules), config.clone()).run(execution);
        }
    }));
    outcome.map_err(|payload| payload.downcast_ref::<String>().cloned().unwrap_or_default())
}

#[test]
fn a_commit_survives_a_split_and_checkpoints_and_a_page_that_is_not_soiled_is_found() {
    explore(1_000).expect("no violation");
    planted::plant(Some("engine-soils-ended-leaf"));
    let violation = explore(10_000).expect_err("the bug is not found");
    planted::plant(None);
    assert!(violation.contains("a commit is lost"), "{violation}");
}
