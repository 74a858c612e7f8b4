//! A commit beside a split of its leaf and a checkpoint, under a deterministic scheduler; then a crash.
//!
//! The commit has found its row, and not locked it yet, when the leaf is split. A checkpoint writes the new leaf. If
//! the commit makes only the page of the old leaf dirty, later checkpoints keep the old row and truncate the record.
//!
//! A split beside a checkpoint must leave no image with rows of another one: an open names that as damage.

mod common;

use std::sync::Arc;

use common::{Open, explore, hunt, traced};
use lodestone_engine::{Database, DatabaseOptions, Result, Schema, Type};
use lodestone_pmem::planted;
use lodestone_pmem::sync::thread;
use lodestone_store::Store;

fn open(store: &Store, options: &DatabaseOptions) -> Result<Open> {
    let db = Database::open_in(store, options)?;
    let table = db.create_table(&Schema::new("t").column("k", Type::U64).column("v", Type::I64).key(["k"]))?;
    Ok(Open { db, table })
}

/// A row with the key `added` splits the leaf. There are so many checkpoints after the threads have ended.
fn execution((added, checkpoints): (u64, usize)) {
    let (store, options) = traced();
    check(&store, &DatabaseOptions { leaf_rows_max: 3, ..options }, &[0, 10, 20], added, checkpoints);
}

/// As [`execution`], but a page has room for four rows, so a checkpoint splits the leaf.
fn wide_execution((added, checkpoints): (u64, usize)) {
    let (store, options) = traced();
    let options = DatabaseOptions { leaf_rows_max: 8, page_bytes: 256, ..options };
    check(&store, &options, &[0, 10, 15, 20], added, checkpoints);
}

fn check(store: &Store, options: &DatabaseOptions, keys: &[u64], added: u64, checkpoints: usize) {
    let world = Arc::new(open(store, options).expect("a database"));
    let mut expected: Vec<_> = keys.iter().map(|key| (*key, 0)).collect();
    world.set(&expected).expect("a commit");
    world.db.checkpoint().expect("a checkpoint");
    let works: [fn(&Open, u64) -> Result<()>; 3] =
        [|open, _| open.set(&[(20, 7)]), |open, key| open.set(&[(key, 1)]), |open, _| open.db.checkpoint().map(|_| ())];
    let threads = works.map(|work| {
        let world = Arc::clone(&world);
        thread::spawn(move || work(&world, added).expect("nothing fails"))
    });
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    (0..checkpoints).for_each(|_| {
        world.db.checkpoint().expect("a checkpoint");
    });
    let Open { db, table } = Arc::into_inner(world).expect("the threads have ended");
    drop(table);
    db.abandon();
    let rows = open(store, options).and_then(|open| open.all()).expect("an open");
    let last = expected.iter_mut().find(|(key, _)| *key == 20).expect("it is there");
    last.1 = 7;
    expected.push((added, 1));
    expected.sort_unstable();
    assert_eq!(rows, expected, "a commit is lost");
}

#[test]
fn a_commit_survives_a_split_and_checkpoints_and_each_broken_rule_is_found() {
    // The first record that a checkpoint has no need of goes with the next one.
    for case in [(5, 0), (5, 2), (25, 0), (25, 1)] {
        explore(move || execution(case), 200).expect("no violation");
    }
    for case in [(5, 2), (25, 1)] {
        explore(move || wide_execution(case), 150).expect("no violation");
    }
    planted::plant(Some("engine-soils-ended-leaf"));
    let violation = hunt(|| wide_execution((5, 3)), 10_000).expect_err("a commit is lost");
    planted::plant(None);
    assert!(violation.contains("a commit is lost"), "{violation}");
    let broken = [
        ("engine-soils-ended-leaf", (5, 2), "a commit is lost"),
        ("pages-clear-after-copy", (5, 2), "a commit is lost"),
        // A row in the lower half would make that dirty.
        ("engine-split-soils-nothing", (25, 1), "is not between the keys of its leaf"),
        ("engine-image-too-wide", (5, 0), "is not between the keys of its leaf"),
    ];
    for (bug, case, finding) in broken {
        planted::plant(Some(bug));
        let violation = hunt(move || execution(case), 10_000).expect_err(bug);
        planted::plant(None);
        assert!(violation.contains(finding), "{bug}: {violation}");
    }
}
