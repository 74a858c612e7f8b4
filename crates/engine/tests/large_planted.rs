//! Planted bugs of long values: pieces that no row names any more, and a piece that is missing. A check finds them, and
//! none in the clean tree.
//!
//! One test: a bug is planted for the whole process.

mod common;

use common::options;
use lodestone_engine::{Database, DatabaseOptions, Error, Result, Schema, Table, Type, row};
use lodestone_pmem::{DomainChoice, planted};
use lodestone_store::Store;

fn open(path: &std::path::Path) -> Result<(Database, Table)> {
    let options = DatabaseOptions { inline_bytes_max: 40, piece_bytes: 16, ..options(DomainChoice::Process) };
    let db = Database::open_with(path, &options)?;
    let table = db.create_table(&Schema::new("t").column("k", Type::U64).column("v", Type::Bytes).key(["k"]))?;
    Ok((db, table))
}

/// The findings of a check of the pool.
fn findings(path: &std::path::Path) -> Result<Vec<String>> {
    let report = Store::open(path, &options(DomainChoice::Process).pool)?.check(&mut |_| {});
    Ok(report.findings.iter().map(|found| format!("{found:?}")).collect())
}

/// Whether a reader and a check find that a value has not all of its pieces.
fn loses_a_piece() -> Result<bool> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let (db, table) = open(&path)?;
    db.update(|tx| table.insert(tx, &row![1_u64, vec![1_u8; 200]]))?;
    let read = db.update(|tx| table.get(tx, &row![1_u64]));
    drop((table, db));
    let is_named = findings(&path)?.iter().any(|found| found.contains("lacks the value of `v bytes`"));
    assert_eq!(matches!(read, Err(Error::Damaged { .. })), is_named, "{read:?}");
    Ok(is_named)
}

/// Whether a check finds pieces after a value became shorter, another one was deleted, and a third one was replaced by
/// a transaction that did not look at it.
fn leaves_pieces() -> Result<(bool, bool)> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let (db, table) = open(&path)?;
    db.update(|tx| (1..4_u64).try_for_each(|key| table.insert(tx, &row![key, vec![1_u8; 200]])))?;
    db.update(|tx| table.update(tx, &row![1_u64, vec![2_u8; 100]]))?;
    db.update(|tx| table.delete(tx, &row![2_u64]))?;
    let after_looks = !db.pieces_left_over()?.is_empty();
    db.update(|tx| table.put(tx, &row![3_u64, vec![2_u8; 10]]))?;
    let after_put = !db.pieces_left_over()?.is_empty();
    drop((table, db));
    let is_named = findings(&path)?.iter().any(|found| found.contains("belongs to no row"));
    assert_eq!(is_named, after_put, "{:?}", findings(&path));
    Ok((after_looks, after_put))
}

#[test]
fn every_planted_bug_is_found() -> Result<()> {
    assert_eq!((leaves_pieces()?, loses_a_piece()?), ((false, false), false));
    for (bug, expected) in [("engine-large-pieces-kept", (true, true)), ("engine-large-put-forgets", (false, true))] {
        planted::plant(Some(bug));
        let found = leaves_pieces();
        planted::plant(None);
        assert_eq!(found?, expected, "{bug}");
    }
    planted::plant(Some("engine-large-piece-lost"));
    let found = loses_a_piece();
    planted::plant(None);
    assert!(found?);
    Ok(())
}
