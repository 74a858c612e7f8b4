//! Snapshots beside changes on one thread: rows that are changed, deleted, purged, added and split away while snapshots
//! are read, in both directions, and the memory for their versions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Open, options};
use lodestone_engine::{DatabaseOptions, Error, Result, Snapshot, row};
use lodestone_pmem::{CounterScope, DomainChoice};

fn with(rows: &[(u64, i64)]) -> Result<(tempfile::TempDir, Open)> {
    with_options(rows, &options(DomainChoice::Process))
}

fn with_options(rows: &[(u64, i64)], options: &DatabaseOptions) -> Result<(tempfile::TempDir, Open)> {
    let folder = tempfile::tempdir().expect("a folder");
    let open = Open::at(&folder.path().join("a.pool"), options)?;
    open.set(rows)?;
    Ok((folder, open))
}

fn delete(open: &Open, key: u64) -> Result<bool> {
    open.db.update(|tx| open.table.delete(tx, &row![key]))
}

fn reversed(open: &Open, snapshot: &Snapshot) -> Result<Vec<(u64, i64)>> {
    let rows = open.table.range(snapshot, ..)?.rev();
    let pair = |row: lodestone_engine::Row| (row[0].as_u64().unwrap_or(0), row[1].as_i64().unwrap_or(0));
    rows.map(|row| row.map(pair)).collect()
}

/// Compares everything that a snapshot answers.
fn check(open: &Open, snapshot: &Snapshot, expected: &[(u64, i64)]) -> Result<()> {
    assert_eq!(open.rows(snapshot)?, expected);
    assert_eq!(reversed(open, snapshot)?, expected.iter().rev().copied().collect::<Vec<_>>());
    for key in 0..60 {
        let found = expected.iter().find(|row| row.0 == key).map(|row| row.1);
        assert_eq!(open.get(snapshot, key)?, found, "key {key}");
    }
    Ok(())
}

#[test]
fn each_snapshot_sees_its_moment_whatever_happens_to_the_rows() -> Result<()> {
    let (_folder, open) = with(&[(10, 0), (20, 0), (30, 0), (40, 0)])?;
    let mut snapshots: Vec<(Snapshot, Vec<(u64, i64)>)> = Vec::new();
    let changes: [&dyn Fn() -> Result<()>; 9] = [
        &|| open.set(&[(10, 1)]),
        &|| delete(&open, 20).map(|_| ()),
        // The leaf is full: it is purged, or split where a snapshot needs the deleted row.
        &|| (11..18).try_for_each(|key| open.set(&[(key, 2)])),
        &|| open.set(&[(20, 3), (10, 3)]),
        &|| delete(&open, 20).and_then(|_| delete(&open, 30)).map(|_| ()),
        &|| (31..39).try_for_each(|key| open.set(&[(key, 4)])),
        &|| (11..18).try_for_each(|key| delete(&open, key).map(|_| ())),
        &|| (0..9).try_for_each(|key| open.set(&[(key, 5)])),
        &|| open.db.checkpoint().map(|_| ()),
    ];
    for change in changes {
        snapshots.push((open.db.snapshot()?, open.all()?));
        change()?;
        for (snapshot, expected) in &snapshots {
            check(&open, snapshot, expected)?;
        }
    }
    assert_eq!(open.db.stats().snapshots_open, 9);
    // Every second one ends, then the others.
    let mut number = 0;
    snapshots.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    for (snapshot, expected) in &snapshots {
        check(&open, snapshot, expected)?;
    }
    drop(snapshots);
    let stats = open.db.stats();
    assert_eq!((stats.snapshots_open, stats.side_versions, stats.side_bytes), (0, 0, 0));
    Ok(())
}

#[test]
fn a_leaf_is_split_or_purged_while_a_snapshot_is_in_it() -> Result<()> {
    for is_reversed in [false, true] {
        for passed in 0..8 {
            let expected: Vec<(u64, i64)> = (1..9).map(|key| (key * 100, 0)).collect();
            let (_folder, open) = with(&expected)?;
            let snapshot = open.db.snapshot()?;
            let rows = open.table.range(&snapshot, ..)?;
            let mut rows = if is_reversed { rows.rev() } else { rows };
            let mut found = Vec::new();
            for number in 0..8 {
                if number == passed {
                    for key in (1..9).map(|key| key * 100) {
                        delete(&open, key)?;
                        (1..6).try_for_each(|more| open.set(&[(key + more, 1), (key - more, 1)]))?;
                    }
                }
                let row = rows.next().expect("a row")?;
                found.push((row[0].as_u64().unwrap_or(0), row[1].as_i64().unwrap_or(1)));
            }
            assert!(rows.next().is_none());
            if is_reversed {
                found.reverse();
            }
            assert_eq!(found, expected, "reversed: {is_reversed}, passed: {passed}");
        }
    }
    Ok(())
}

#[test]
fn deleted_rows_are_purged_when_no_snapshot_needs_them() -> Result<()> {
    let (_folder, open) = with(&[(1, 1)])?;
    let churn = |open: &Open| -> Result<()> {
        for key in 100..400 {
            open.set(&[(key, 0)])?;
            delete(open, key)?;
        }
        Ok(())
    };
    let snapshot = open.db.snapshot()?;
    churn(&open)?;
    // No version of these rows is kept: the snapshot sees none.
    assert_eq!(open.db.stats().side_versions, 0);
    assert_eq!(open.rows(&snapshot)?, [(1, 1)]);
    drop(snapshot);
    churn(&open)?;
    assert_eq!(open.all()?, [(1, 1)]);
    Ok(())
}

#[test]
fn a_snapshot_costs_nothing_and_a_commit_beside_it_one_fence() -> Result<()> {
    let (_folder, open) = with_options(&[(1, 1), (2, 2)], &options(DomainChoice::DaxEmulated))?;
    let scope = CounterScope::start();
    let snapshot = open.db.snapshot()?;
    assert_eq!(open.rows(&snapshot)?, [(1, 1), (2, 2)]);
    let cost = scope.delta();
    assert_eq!((cost.fences, cost.pm_bytes()), (0, 0));
    let scope = CounterScope::start();
    open.set(&[(1, 5), (2, 5)])?;
    let cost = scope.delta();
    assert_eq!((cost.fences, cost.pm_bytes()), (1, 128));
    assert_eq!(open.rows(&snapshot)?, [(1, 1), (2, 2)]);
    Ok(())
}

#[test]
fn a_snapshot_that_is_too_old_says_so_and_a_new_one_answers() -> Result<()> {
    for side_bytes_max in [0, 1000] {
        let sizes = DatabaseOptions { side_bytes_max, ..options(DomainChoice::Process) };
        let (_folder, open) = with_options(&(0..50).map(|key| (key, 1)).collect::<Vec<_>>(), &sizes)?;
        let old = open.db.snapshot()?;
        open.set(&(0..50).map(|key| (key, 2)).collect::<Vec<_>>())?;
        assert!(open.db.stats().side_bytes <= side_bytes_max);
        assert!(matches!(open.rows(&old), Err(Error::SnapshotTooOld)));
        let kept = (0..50).filter(|key| open.get(&old, *key).is_ok_and(|found| found == Some(1))).count();
        assert_eq!(kept > 0, side_bytes_max > 0, "{kept} are kept");
        let lost = (0..50).filter(|key| matches!(open.get(&old, *key), Err(Error::SnapshotTooOld))).count();
        assert_eq!(kept + lost, 50, "no answer is wrong");
        let new = open.db.snapshot()?;
        assert_eq!(open.rows(&new)?.len(), 50);
        assert_eq!(open.get(&new, 77)?, None);
        drop(old);
        assert_eq!(open.db.stats().side_bytes, 0);
    }
    Ok(())
}

/// A closure on a snapshot that is too old runs again on a new one.
#[test]
fn a_transaction_whose_snapshot_is_too_old_runs_again() -> Result<()> {
    use lodestone_engine::Isolation::{SerializableOnSnapshot, Snapshot};
    for isolation in [Snapshot, SerializableOnSnapshot] {
        let sizes = DatabaseOptions { side_bytes_max: 0, ..options(DomainChoice::Process) };
        let (_folder, open) = with_options(&[(1, 1), (2, 1)], &sizes)?;
        let mut attempts = 0;
        let found = open.db.update_with(isolation, |tx| {
            attempts += 1;
            let first = open.get(tx, 1)?;
            if attempts == 1 {
                let other = open.db.begin();
                open.put(&other, 1, 2)?;
                open.put(&other, 2, 2)?;
                other.commit()?;
            }
            Ok((first, open.get(tx, 2)?))
        })?;
        assert_eq!((attempts, found), (2, (Some(2), Some(2))));
    }
    Ok(())
}

/// Threads share a snapshot, and it may be sent to another one. Sums of it never change.
#[test]
fn threads_read_one_snapshot_beside_transfers() -> Result<()> {
    const ACCOUNTS: u64 = 200;
    let (_folder, open) = with(&(0..ACCOUNTS).map(|key| (key, 10)).collect::<Vec<_>>())?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|number: u64| {
                let (open, is_over) = (&open, &is_over);
                scope.spawn(move || -> Result<u64> {
                    let mut turn = number;
                    while !is_over.load(Ordering::Relaxed) {
                        turn += 2;
                        let (from, to) = (turn * 7 % ACCOUNTS, turn * 13 % ACCOUNTS);
                        open.db.update(|tx| {
                            let (rich, poor) = (open.get(tx, from)?.unwrap_or(0), open.get(tx, to)?.unwrap_or(0));
                            if from == to {
                                return Ok(());
                            }
                            // Sometimes the row ends, and begins again later.
                            if rich == 1 {
                                open.table.delete(tx, &row![from])?;
                            } else {
                                open.put(tx, from, rich - 1)?;
                            }
                            open.put(tx, to, poor + 1)
                        })?;
                    }
                    Ok(turn)
                })
            })
            .collect();
        let mut outcome = Ok(());
        for _ in 0..60 {
            let snapshot = Arc::new(open.db.snapshot().expect("a snapshot"));
            let before = open.rows(&*snapshot).expect("rows");
            let read = |snapshot: Arc<Snapshot>| {
                let open = &open;
                scope.spawn(move || reversed(open, &snapshot))
            };
            let readers: Vec<_> = (0..2).map(|_| read(Arc::clone(&snapshot))).collect();
            for reader in readers {
                let mut rows = reader.join().expect("no panic").expect("rows");
                rows.reverse();
                if rows != before || rows.iter().map(|row| row.1).sum::<i64>() != 2000 {
                    outcome = Err(format!("{before:?}, then {rows:?}"));
                }
            }
        }
        is_over.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| assert!(writer.join().expect("no panic").expect("commits") > 10));
        outcome.expect("one state");
    });
    let stats = open.db.stats();
    assert!(stats.side_copies > 0 && stats.side_versions == 0, "{stats}");
    Ok(())
}
