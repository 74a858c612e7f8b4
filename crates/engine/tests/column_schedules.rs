//! Reads by column under a deterministic scheduler, and the second look of the validation left out.
//!
//! Rows `a`, `b` and `d` are 0 at the beginning. The first change of a writer, which reads `d`, makes `a` 1. From then
//! on `a` and `b` are never 0 together. A reader that sees both as 0 writes `d`. It is before the writer, so the writer
//! sees its `d`. Without the second look the reader finds `a` equal at one moment and `b` at another, after a writer
//! that saw no `d`.

mod common;

use std::sync::Arc;

use common::{explore, hunt, traced};
use lodestone_engine::{Database, Result, Schema, Table, Tx, Type, row};
use lodestone_pmem::planted;
use lodestone_pmem::sync::thread;

const A: u64 = 0;
const B: u64 = 1;
const D: u64 = 2;

struct World {
    db: Database,
    table: Table,
}

impl World {
    fn new() -> Result<Self> {
        let (store, options) = traced();
        let db = Database::open_in(&store, &options)?;
        let schema = Schema::new("t").column("k", Type::U64).column("x", Type::I64).key(["k"]);
        let table = db.create_table(&schema)?;
        let world = Self { db, table };
        world.db.update(|tx| [A, B, D].into_iter().try_for_each(|key| world.put(tx, key, 0)))?;
        Ok(world)
    }

    fn put(&self, tx: &Tx, key: u64, x: i64) -> Result<()> {
        self.table.put(tx, &row![key, x])
    }

    fn get(&self, tx: &Tx, key: u64) -> Result<i64> {
        let found = self.table.get_columns(tx, &row![key], &["x"])?.expect("the row is there");
        Ok(found[0].as_i64().expect("a number"))
    }
}

fn execution() {
    let world = Arc::new(World::new().expect("a database"));
    let writer = {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            let first = world.db.update(|tx| {
                world.put(tx, A, 1)?;
                world.get(tx, D)
            });
            world.db.update(|tx| world.put(tx, A, 0).and_then(|()| world.put(tx, B, 1))).expect("a commit");
            world.db.update(|tx| world.put(tx, A, 1).and_then(|()| world.put(tx, B, 0))).expect("a commit");
            first.expect("a commit")
        })
    };
    let seen = world.db.update(|tx| {
        let seen = (world.get(tx, A)?, world.get(tx, B)?);
        world.put(tx, D, 1)?;
        Ok(seen)
    });
    let (seen, d) = (seen.expect("a commit"), writer.join().expect("no panic"));
    assert!(seen != (0, 0) || d == 1, "{seen:?} is of no moment after the writer began");
}

#[test]
fn columns_are_of_one_moment_and_a_validation_of_one_look_is_found() {
    explore(execution, 1_500).expect("no violation");
    planted::plant(Some("engine-columns-one-look"));
    let violation = hunt(execution, 20_000).expect_err("the bug is not found");
    planted::plant(None);
    assert!(violation.contains("is of no moment"), "{violation}");
}
