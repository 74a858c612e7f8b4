//! Tables whose rows are inserted at one end and deleted at the other: leaves without rows go.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::{findings, options};
use lodestone_engine::{Database, Result, Row, Schema, Table, row};
use lodestone_pmem::DomainChoice;

fn fixture(domain: DomainChoice) -> Result<(tempfile::TempDir, Database, Table)> {
    let folder = tempfile::tempdir().expect("a folder");
    let db = Database::open_with(folder.path().join("a.pool"), &options(domain))?;
    let table = db.create_table(&"t (k u64, v i64) key (k)".parse::<Schema>()?)?;
    Ok((folder, db, table))
}

fn rows(db: &Database, table: &Table) -> Result<Vec<Row>> {
    db.update(|tx| table.range(tx, ..)?.collect())
}

#[test]
fn a_queue_keeps_as_many_leaves_as_its_rows_need() -> Result<()> {
    for domain in [DomainChoice::Process, DomainChoice::Block] {
        let (folder, db, table) = fixture(domain)?;
        let mut leaves_max = 0;
        for turn in 0..40_u64 {
            for key in turn * 50..(turn + 1) * 50 {
                db.update(|tx| {
                    table.insert(tx, &row![key + 100, 1_i64])?;
                    if key >= 50 { table.delete(tx, &row![key + 50]).map(|_| ()) } else { Ok(()) }
                })?;
            }
            // The first one ends the images, the second one the leaves.
            db.checkpoint()?;
            db.checkpoint()?;
            leaves_max = leaves_max.max(db.leaves());
        }
        // 50 rows in leaves of 2 to 4, a leaf before them, and the catalog.
        assert!(leaves_max < 40, "{leaves_max} leaves");
        let expected: Vec<Row> = (2050..2100_u64).map(|key| row![key, 1_i64]).collect();
        assert_eq!(rows(&db, &table)?, expected);
        // Rows come again where leaves were.
        db.update(|tx| (0..500_u64).try_for_each(|key| table.insert(tx, &row![key * 4, 2_i64])))?;
        drop((table, db));
        let options = options(domain);
        let path = folder.path().join("a.pool");
        assert_eq!(findings(&path, &options), Vec::<String>::new());
        let db = Database::open_with(&path, &options)?;
        assert_eq!(rows(&db, &db.table("t")?)?.len(), 550);
    }
    Ok(())
}

#[test]
fn a_snapshot_sees_rows_whose_leaves_would_go() -> Result<()> {
    let (_folder, db, table) = fixture(DomainChoice::Process)?;
    db.update(|tx| (0..60_u64).try_for_each(|key| table.put(tx, &row![key, 1_i64])))?;
    let before = db.snapshot()?;
    db.update(|tx| (0..60_u64).try_for_each(|key| table.delete(tx, &row![key]).map(|_| ())))?;
    (0..3).try_for_each(|_| db.checkpoint().map(|_| ()))?;
    assert_eq!(table.range(&before, ..)?.count(), 60);
    drop(before);
    db.checkpoint()?;
    assert!(db.leaves() < 6, "{} leaves", db.leaves());
    assert!(rows(&db, &table)?.is_empty());
    Ok(())
}

/// Threads insert, delete and read beside rounds; each has its own keys, so it knows what it must find.
#[test]
fn threads_find_their_rows_beside_leaves_that_go() -> Result<()> {
    let (folder, db, table) = fixture(DomainChoice::Process)?;
    let is_over = AtomicBool::new(false);
    let left: BTreeMap<u64, i64> = thread::scope(|scope| {
        let workers: Vec<_> = (0..3_u64)
            .map(|thread| {
                let (db, table, is_over) = (&db, &table, &is_over);
                scope.spawn(move || {
                    let mut model = BTreeMap::new();
                    for turn in 0_u64.. {
                        if turn > 4000 || is_over.load(Ordering::Relaxed) {
                            break;
                        }
                        // A window of 20 keys moves on, and comes back to the beginning.
                        let key = turn % 300 * 3 + thread;
                        let ended = (turn + 280) % 300 * 3 + thread;
                        let value = i64::try_from(turn).expect("small");
                        let found = db.update(|tx| {
                            table.put(tx, &row![key, value])?;
                            table.delete(tx, &row![ended])
                        });
                        model.insert(key, value);
                        assert_eq!(found.expect("a commit"), model.remove(&ended).is_some(), "{ended}");
                        if turn % 64 == 0 {
                            let found = db.update(|tx| table.range(tx, ..)?.collect::<Result<Vec<_>>>());
                            let own = |row: &Row| row[0].as_u64().is_some_and(|key| key % 3 == thread);
                            let found: Vec<Row> = found.expect("rows").into_iter().filter(own).collect();
                            let expected: Vec<Row> = model.iter().map(|(key, value)| row![*key, *value]).collect();
                            assert_eq!(found, expected);
                        }
                    }
                    model
                })
            })
            .collect();
        while !workers.iter().all(|worker| worker.is_finished()) {
            if db.checkpoint().is_err() {
                is_over.store(true, Ordering::Relaxed);
                break;
            }
        }
        workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
    });
    assert!(!is_over.load(Ordering::Relaxed), "a checkpoint failed");
    let expected: Vec<Row> = left.iter().map(|(key, value)| row![*key, *value]).collect();
    assert_eq!(rows(&db, &table)?, expected);
    db.clone().abandon();
    drop((table, db));
    let (path, options) = (folder.path().join("a.pool"), options(DomainChoice::Process));
    assert_eq!(findings(&path, &options), Vec::<String>::new());
    let db = Database::open_with(&path, &options)?;
    assert_eq!(rows(&db, &db.table("t")?)?, expected);
    Ok(())
}
