//! A leaf without rows goes beside commits that use its keys, under a deterministic scheduler; then a crash.
//!
//! The leaf has a deleted row. One thread inserts it again, another one inserts a row beside it, and the main thread
//! makes a checkpoint, which takes the leaf out first.

mod common;

use std::sync::Arc;

use common::{Open, explore, hunt, traced};
use lodestone_engine::{Database, DatabaseOptions, Result, Schema, Type, row};
use lodestone_pmem::planted;
use lodestone_pmem::sync::thread;
use lodestone_store::Store;

fn open(store: &Store, options: &DatabaseOptions) -> Result<Open> {
    let db = Database::open_in(store, options)?;
    let table = db.create_table(&Schema::new("t").column("k", Type::U64).column("v", Type::I64).key(["k"]))?;
    Ok(Open { db, table })
}

/// `is_alone`: only the deleted row is inserted.
fn execution(is_alone: bool) {
    let (store, options) = traced();
    let world = Arc::new(open(&store, &options).expect("a database"));
    world.set(&[(0, 0), (10, 0), (20, 0), (30, 0)]).expect("a commit");
    // It is alone in its leaf. Two would be purged at once.
    world.db.update(|tx| world.table.delete(tx, &row![10_u64])).expect("a commit");
    world.db.checkpoint().expect("a checkpoint");
    let leaves = world.db.leaves();
    let changes = if is_alone { &[(10, 7)][..] } else { &[(10, 7), (15, 1)] };
    let change = |change: &(u64, i64)| {
        let (world, change) = (Arc::clone(&world), *change);
        thread::spawn(move || world.set(&[change]).expect("nothing fails"))
    };
    let threads: Vec<_> = changes.iter().map(change).collect();
    world.db.checkpoint().expect("a checkpoint");
    let has_merged = world.db.leaves() < leaves;
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    // The records of before the first one go with the second one.
    (0..2).for_each(|_| {
        world.db.checkpoint().expect("a checkpoint");
    });
    let expected = [&[(0, 0)], changes, &[(20, 0), (30, 0)]].concat();
    assert_eq!(world.all().expect("rows"), expected, "a commit is lost");
    let Open { db, table } = Arc::into_inner(world).expect("the threads have ended");
    drop(table);
    db.abandon();
    let rows = open(&store, &options).and_then(|open| open.all()).expect("an open");
    assert_eq!(rows, expected, "a commit is lost");
    MERGED.fetch_add(usize::from(has_merged), std::sync::atomic::Ordering::Relaxed);
}

/// Schedules in which the leaf went.
static MERGED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

#[test]
fn commits_survive_beside_a_leaf_that_goes() {
    [true, false].iter().for_each(|is_alone| explore(move || execution(*is_alone), 150).expect("no violation"));
    let merged = MERGED.load(std::sync::atomic::Ordering::Relaxed);
    assert!(merged > 100, "the leaf went in {merged} schedules");
    let bug = "engine-merge-forgets-dirt";
    planted::plant(Some(bug));
    let violation = hunt(|| execution(true), 10_000).expect_err(bug);
    planted::plant(None);
    assert!(violation.contains("a commit is lost"), "{bug}: {violation}");
}
