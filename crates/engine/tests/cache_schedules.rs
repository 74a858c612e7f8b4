//! Leaves that become cold and come back beside commits, reads and a checkpoint, under a deterministic scheduler; then
//! a crash.
//!
//! The cache has room for nothing, so each leaf that is loaded sends the others away. Two threads move an amount
//! between rows of several leaves. A third one adds all rows up, by a snapshot and by a transaction. A fourth one makes
//! a checkpoint, so that leaves become clean in between.

mod common;

use std::sync::Arc;

use common::{Open, explore, hunt, traced};
use lodestone_engine::{Database, DatabaseOptions, Result, Schema, Type};
use lodestone_pmem::planted;
use lodestone_pmem::sync::thread;
use lodestone_store::Store;

const ROWS: [(u64, i64); 4] = [(0, 100), (10, 100), (20, 100), (30, 100)];

fn open(store: &Store, options: &DatabaseOptions) -> Result<Open> {
    let db = Database::open_in(store, options)?;
    let table = db.create_table(&Schema::new("t").column("k", Type::U64).column("v", Type::I64).key(["k"]))?;
    Ok(Open { db, table })
}

fn carry(open: &Open, (from, to): (u64, u64)) -> Result<()> {
    open.db.update(|tx| {
        let (there, here) = (open.get(tx, to)?.expect("a row"), open.get(tx, from)?.expect("a row"));
        open.put(tx, from, here - 1)?;
        open.put(tx, to, there + 1)
    })
}

fn sum(rows: &[(u64, i64)]) -> i64 {
    rows.iter().map(|(_, value)| value).sum()
}

fn execution() {
    let (store, options) = traced();
    let options = DatabaseOptions { cache_bytes: Some(1), ..options };
    let world = Arc::new(open(&store, &options).expect("a database"));
    world.set(&ROWS).expect("a commit");
    world.db.checkpoint().expect("a checkpoint");
    let works: [fn(&Open) -> Result<()>; 4] = [
        |open| carry(open, (0, 30)),
        |open| carry(open, (30, 20)),
        |open| {
            let snapshot = open.db.snapshot()?;
            assert_eq!(sum(&open.rows(&snapshot)?), 400, "a snapshot is torn");
            assert_eq!(sum(&open.all()?), 400, "a transaction is torn");
            Ok(())
        },
        |open| open.db.checkpoint().map(|_| ()),
    ];
    let threads = works.map(|work| {
        let world = Arc::clone(&world);
        thread::spawn(move || work(&world).expect("nothing fails"))
    });
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    let expected = [(0, 99), (10, 100), (20, 101), (30, 100)];
    assert_eq!(world.all().expect("rows"), expected, "a commit is lost");
    let Open { db, table } = Arc::into_inner(world).expect("the threads have ended");
    drop(table);
    db.abandon();
    let rows = open(&store, &options).and_then(|open| open.all()).expect("an open");
    assert_eq!(rows, expected, "a commit is lost after a crash");
}

#[test]
fn leaves_come_and_go_beside_commits_and_each_broken_rule_is_found() {
    explore(execution, 100).expect("no violation");
    for bug in ["engine-evicts-dirty", "engine-evicts-in-round", "engine-evicts-unlocked", "engine-early-row-forgotten"]
    {
        planted::plant(Some(bug));
        let outcome = hunt(execution, 10_000);
        planted::plant(None);
        outcome.expect_err(bug);
    }
}
