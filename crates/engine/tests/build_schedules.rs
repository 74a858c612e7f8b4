//! The build of an index beside a transaction that changes rows, under a deterministic scheduler.
//!
//! The rows 0 and 1 have the values 0 and 1. One thread builds an index over the values. Another one changes row 0, by
//! a handle from before, at a level whose statements read at moments of their own. At the end the index has the entries
//! of the rows, and no others.

mod common;

use std::sync::Arc;

use common::{explore, hunt, traced};
use lodestone_engine::{Database, Index, Isolation, Schema, Table, Type, row};
use lodestone_pmem::planted;
use lodestone_pmem::sync::thread;

struct World {
    db: Database,
    table: Table,
}

fn execution() {
    let (store, options) = traced();
    let db = Database::open_in(&store, &options).expect("a database");
    let schema = Schema::new("t").column("k", Type::U64).column("v", Type::I64).key(["k"]);
    let table = db.create_table(&schema).expect("a table");
    let put = |key: u64, value: i64| db.update(|tx| table.put(tx, &row![key, value])).expect("a commit");
    (0..2).for_each(|key| put(key, i64::try_from(key).expect("small")));
    // The handle must look up the indexes.
    db.create_index("t", &Index::new("by_k", ["k"])).expect("an index");
    let world = Arc::new(World { db, table });
    let changer = {
        let world = Arc::clone(&world);
        thread::spawn(move || {
            let change = |value: i64| {
                let World { db, table } = &*world;
                db.update_with(Isolation::ReadCommitted, |tx| table.put(tx, &row![0_u64, value])).expect("a commit");
            };
            (7..9).for_each(change);
        })
    };
    let World { db, table } = &*world;
    let by_v = db.create_index("t", &Index::new("by_v", ["v"])).expect("an index").index("by_v").expect("an index");
    changer.join().expect("no panic");
    let (mut rows, mut entries) = db
        .update(|tx| {
            let rows = table.range(tx, ..)?.collect::<Result<Vec<_>, _>>()?;
            // An entry of another value leads to the row as well.
            Ok((rows, by_v.range(tx, ..)?.collect::<Result<Vec<_>, _>>()?))
        })
        .expect("a commit");
    rows.sort_by_key(|row| row[0].as_u64());
    entries.sort_by_key(|row| row[0].as_u64());
    assert!(rows == entries, "the index has other entries than those of the rows: {entries:?}");
}

#[test]
fn an_index_has_the_entries_of_its_rows() {
    explore(execution, 100).expect("no violation");
    let bug = "engine-build-unvalidated";
    planted::plant(Some(bug));
    let violation = hunt(execution, 10_000).expect_err(bug);
    planted::plant(None);
    assert!(violation.contains("the index has other entries"), "{bug}: {violation}");
}
