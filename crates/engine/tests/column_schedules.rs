//! Reads by column under a deterministic scheduler, and the second look of the validation left out.
//!
//! Rows `a`, `b` and `d` are 0 at the beginning. The first change of a writer, which reads `d`, makes `a` 1. From then
//! on `a` and `b` are never 0 together. A reader that sees both as 0 writes `d`. It is before the writer, so the writer
//! sees its `d`. Without the second look the reader finds `a` equal at one moment and `b` at another, after a writer
//! that saw no `d`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use lodestone_engine::{Database, DatabaseOptions, Result, Schema, Table, Tx, Type, row};
use lodestone_heap::HeapOptions;
use lodestone_pmem::sync::thread;
use lodestone_pmem::{Pool, PoolOptions, SilentTracer, planted};
use lodestone_store::{Store, StoreOptions};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{FailurePersistence, MaxSteps, Runner};

const A: u64 = 0;
const B: u64 = 1;
const D: u64 = 2;

struct World {
    db: Database,
    table: Table,
}

impl World {
    fn new() -> Result<Self> {
        let options =
            PoolOptions { size_bytes: 96 << 10, journal_bytes: 0, reserve_bytes: 1 << 20, ..PoolOptions::default() };
        let pool = Pool::create_traced(&options, Arc::new(SilentTracer))?;
        let store = Store::over_with(&pool, &StoreOptions::with_heap(HeapOptions::small()))?;
        let options = DatabaseOptions {
            threads_max: 3,
            log_bytes: 32 << 10,
            segment_bytes: 2 << 10,
            page_bytes: 256,
            extent_pages: 8,
            ..DatabaseOptions::default()
        };
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
fn columns_are_of_one_moment_and_a_validation_of_one_look_is_found() {
    explore(1_500).expect("no violation");
    planted::plant(Some("engine-columns-one-look"));
    let violation = explore(20_000).expect_err("the bug is not found");
    planted::plant(None);
    assert!(violation.contains("is of no moment"), "{violation}");
}
