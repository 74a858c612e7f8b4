//! Rows that checkpoints write in place: which ones, how many lines, and rows that a crash tears.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::options;
use lodestone_engine::{CheckpointReport, Database, DatabaseOptions, Error, FlushUnit, Result, Table, row};
use lodestone_pmem::{DomainChoice, thread_counters};

const PAGE_BYTES: usize = 8192;

fn wide(flush_unit: FlushUnit) -> DatabaseOptions {
    let options = options(DomainChoice::Process);
    DatabaseOptions {
        flush_unit,
        page_bytes: PAGE_BYTES as u32,
        leaf_rows_max: 64,
        checkpoint_thread: false,
        ..options
    }
}

/// A database with `rows` rows, all in images.
fn filled(path: &Path, flush_unit: FlushUnit, rows: u64) -> Result<(Database, Table)> {
    let db = Database::open_with(path, &wide(flush_unit))?;
    let table = db.create_table(&"notes (k u64, n i64, text text) key (k)".parse()?)?;
    (0..rows).try_for_each(|k| put(&db, &table, k, 1, &text(k)))?;
    db.checkpoint()?;
    // From the next checkpoint on it is known that few lines change.
    put(&db, &table, 0, 0, &text(0))?;
    db.checkpoint()?;
    Ok((db, table))
}

fn text(k: u64) -> String {
    format!("{k:-<90}")
}

fn put(db: &Database, table: &Table, k: u64, n: i64, text: &str) -> Result<()> {
    db.update(|tx| table.put(tx, &row![k, n, text]))
}

fn get(db: &Database, table: &Table, k: u64) -> Result<Option<(i64, String)>> {
    let row = db.update(|tx| table.get(tx, &row![k]))?;
    Ok(row.map(|row| (row[1].as_i64().expect("a number"), row[2].as_text().expect("a text").to_owned())))
}

fn in_place(report: CheckpointReport) -> (u64, u64) {
    (report.images, report.rows_in_place)
}

/// Changes a byte of `text` in the page that has it.
fn damage_in_page(path: &Path, text: &str) {
    let mut file = std::fs::read(path).expect("the pool");
    let is_page = |at: &usize| file[*at..].starts_with(b"LDPG");
    let pages: Vec<_> = (0..file.len() - PAGE_BYTES).step_by(4096).filter(is_page).collect();
    // In each image of it: an older one may have a place before the newest.
    let found: Vec<_> = pages
        .into_iter()
        .filter_map(|at| {
            let place = file[at..at + PAGE_BYTES].windows(text.len()).position(|bytes| bytes == text.as_bytes())?;
            Some(at + place)
        })
        .collect();
    assert!(!found.is_empty(), "a page has the text");
    found.into_iter().for_each(|at| file[at] ^= 1);
    std::fs::write(path, file).expect("the pool is written");
}

/// An open finds that a row of a page is damaged.
#[track_caller]
fn expect_damaged_row(path: &Path) {
    let error = Database::open_with(path, &wide(FlushUnit::Line)).map(|_| ()).expect_err("a damaged row");
    assert!(error.to_string().contains("the checksum of the row"), "{error}");
}

#[test]
fn a_row_that_changes_is_written_in_place() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let (db, table) = filled(&path, FlushUnit::Line, 40)?;
    put(&db, &table, 7, 3, &text(7))?;
    db.update(|tx| table.add(tx, &row![9_u64], "n", 5))?;
    let report = db.checkpoint()?;
    assert_eq!(in_place(report), (0, 2), "{report:?}");
    assert!((2..=8).contains(&report.lines), "{report:?}");
    // Nothing has changed.
    assert_eq!(in_place(db.checkpoint()?), (0, 0));
    // The logs have none of it any more.
    db.checkpoint()?;
    drop((table, db));
    let db = Database::open_with(&path, &wide(FlushUnit::Line))?;
    let table = db.table("notes")?;
    assert_eq!(db.recovery().records, 0);
    assert_eq!(get(&db, &table, 7)?, Some((3, text(7))));
    assert_eq!(get(&db, &table, 9)?, Some((6, text(9))));
    assert_eq!(get(&db, &table, 8)?, Some((1, text(8))));
    Ok(())
}

#[test]
fn other_keys_and_longer_rows_take_a_new_image() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let (db, table) = filled(&folder.path().join("a.pool"), FlushUnit::Line, 40)?;
    put(&db, &table, 7, 1, "shorter")?;
    assert_eq!(in_place(db.checkpoint()?), (0, 1));
    put(&db, &table, 7, 2, &text(7))?;
    assert_eq!(in_place(db.checkpoint()?), (0, 1), "there is still room for a row as long as before");
    put(&db, &table, 7, 3, &text(7).repeat(2))?;
    assert_eq!(in_place(db.checkpoint()?), (1, 0));
    db.update(|tx| table.delete(tx, &row![30_u64]))?;
    assert_eq!(in_place(db.checkpoint()?), (1, 0));
    Ok(())
}

#[test]
fn a_row_that_is_added_is_written_in_place() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let (db, table) = filled(&path, FlushUnit::Line, 40)?;
    // After the others, and between them.
    put(&db, &table, 1 << 40, 1, &text(50))?;
    let report = db.checkpoint()?;
    assert_eq!(in_place(report), (0, 1), "{report:?}");
    assert!((2..=4).contains(&report.lines), "{report:?}");
    db.update(|tx| table.delete(tx, &row![3_u64]))?;
    assert_eq!(in_place(db.checkpoint()?), (1, 0), "a row that goes");
    put(&db, &table, 3, 2, &text(51))?;
    db.update(|tx| table.add(tx, &row![7_u64], "n", 5))?;
    assert_eq!(in_place(db.checkpoint()?), (0, 2));
    put(&db, &table, 3, 3, &text(52))?;
    assert_eq!(in_place(db.checkpoint()?), (0, 1), "a row that was added");
    db.checkpoint()?;
    drop((table, db));
    let db = Database::open_with(&path, &wide(FlushUnit::Line))?;
    let table = db.table("notes")?;
    assert_eq!(db.recovery().records, 0);
    assert_eq!(get(&db, &table, 1 << 40)?, Some((1, text(50))));
    assert_eq!(get(&db, &table, 3)?, Some((3, text(52))));
    assert_eq!(get(&db, &table, 7)?, Some((6, text(7))));
    assert_eq!(db.update(|tx| Ok(table.range(tx, ..)?.count()))?, 41);
    drop((table, db));
    damage_in_page(&path, &text(52));
    let db = Database::open_with(&path, &wide(FlushUnit::Line))?;
    let error = get(&db, &db.table("notes")?, 3).expect_err("a damaged row");
    assert!(error.to_string().contains("the checksum of the row"), "{error}");
    Ok(())
}

/// Rows that many rounds add, each few at a time, beside a model: with leaves that are split, pages that are full, and
/// processes that are killed.
#[test]
fn rounds_add_rows_as_in_a_model() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let cached = DatabaseOptions { cache_bytes: Some(64 << 10), page_bytes: 2048, ..wide(FlushUnit::Line) };
    let (mut model, mut random, mut rows_in_place, mut images) = (BTreeMap::new(), 7_u64, 0, 0);
    for life in 0..6 {
        let db = Database::open_with(&path, &cached)?;
        let schema = "notes (k u64, n i64, text text) key (k)".parse()?;
        let table = db.table("notes").or_else(|_| db.create_table(&schema))?;
        for round in 0..40 {
            for _ in 0..4 {
                random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(life + 1);
                let (k, n) = (random >> 54, i64::from(round));
                if random >> 52 & 3 == 0 && model.contains_key(&k) {
                    db.update(|tx| table.delete(tx, &row![k]))?;
                    model.remove(&k);
                } else {
                    put(&db, &table, k, n, &text(k))?;
                    model.insert(k, n);
                }
            }
            let report = db.checkpoint()?;
            rows_in_place += report.rows_in_place;
            images += report.images;
            let k = random >> 54;
            assert_eq!(get(&db, &table, k)?.map(|(n, _)| n), model.get(&k).copied(), "life {life}, round {round}");
        }
        let found = db.update(|tx| {
            let rows = table.range(tx, ..)?;
            rows.map(|row| row.map(|row| (row[0].as_u64().expect("a key"), row[1].as_i64().expect("a number"))))
                .collect()
        })?;
        assert_eq!(model, found, "life {life}");
        drop(table);
        if life % 2 == 0 { db.abandon() } else { drop(db) }
    }
    assert!(rows_in_place > 200 && images > 100, "{rows_in_place} rows in place, {images} images");
    Ok(())
}

/// Records have all of a row only where that makes a new image unnecessary.
#[test]
fn a_page_that_changes_much_takes_new_images() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let (db, table) = filled(&folder.path().join("a.pool"), FlushUnit::Line, 40)?;
    let add = |k: u64| db.update(|tx| table.add(tx, &row![k], "n", 1));
    for _ in 0..2 {
        (0..40).try_for_each(add)?;
        assert_eq!(in_place(db.checkpoint()?), (1, 0), "most of the lines are dirty");
    }
    add(7)?;
    assert_eq!(in_place(db.checkpoint()?), (1, 0), "the record of the row is a delta");
    add(7)?;
    assert_eq!(in_place(db.checkpoint()?), (0, 1));
    Ok(())
}

/// Of a page that no round has looked at: where the table is large beside the log, few of its lines will have changed.
#[test]
fn a_large_table_has_whole_records_at_once() -> Result<()> {
    let log = DatabaseOptions { log_bytes: 128 << 10, segment_bytes: 8 << 10, ..wide(FlushUnit::Line) };
    for (rows, expected) in [(500, (1, 0)), (6_000, (0, 1))] {
        let folder = tempfile::tempdir().expect("a folder");
        let db = Database::open_with(folder.path().join("a.pool"), &log)?;
        let table = db.create_table(&"notes (k u64, n i64, text text) key (k)".parse()?)?;
        for first in (0..rows).step_by(50) {
            db.update(|tx| (first..first + 50).try_for_each(|k| table.put(tx, &row![k, 1_i64, text(k)])))?;
        }
        db.checkpoint()?;
        db.update(|tx| table.add(tx, &row![7_u64], "n", 5))?;
        assert_eq!(in_place(db.checkpoint()?), expected, "{rows} rows");
    }
    Ok(())
}

/// The records of a life that writes whole pages may lack what a torn row would need.
#[test]
fn a_row_of_an_earlier_life_takes_a_new_image() -> Result<()> {
    for is_killed in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pool");
        let (db, table) = filled(&path, FlushUnit::Page, 40)?;
        db.update(|tx| table.add(tx, &row![9_u64], "n", 5))?;
        drop(table);
        if is_killed {
            db.abandon();
        } else {
            drop(db);
        }
        let db = Database::open_with(&path, &wide(FlushUnit::Line))?;
        let table = db.table("notes")?;
        // A row of this life beside it changes nothing about that.
        put(&db, &table, 7, 1, &text(7))?;
        assert_eq!(in_place(db.checkpoint()?), (1, 0));
        // From the next checkpoint but one on it is known that few lines change.
        put(&db, &table, 7, 2, &text(7))?;
        db.checkpoint()?;
        put(&db, &table, 7, 3, &text(7))?;
        assert_eq!(in_place(db.checkpoint()?), (0, 1));
        assert_eq!(get(&db, &table, 9)?, Some((6, text(9))));
    }
    Ok(())
}

/// A process that is killed may have stored a row in place and not flushed it. The next life reads it as it is to be.
#[test]
fn a_leaf_with_records_takes_a_new_image_after_a_kill() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    for is_killed in [false, true] {
        let _ = std::fs::remove_file(&path);
        let (db, table) = filled(&path, FlushUnit::Line, 40)?;
        put(&db, &table, 7, 2, &text(7))?;
        assert_eq!(in_place(db.checkpoint()?), (0, 1));
        drop(table);
        if is_killed {
            db.abandon();
        } else {
            drop(db);
        }
        let db = Database::open_with(&path, &wide(FlushUnit::Line))?;
        assert_eq!(in_place(db.checkpoint()?).0 > 0, is_killed);
    }
    Ok(())
}

#[test]
fn a_torn_row_is_mended_by_its_record_or_named() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let (db, table) = filled(&path, FlushUnit::Line, 40)?;
    let new = "x".repeat(90);
    put(&db, &table, 7, 1, &new)?;
    db.update(|tx| table.add(tx, &row![7_u64], "n", 1))?;
    assert_eq!(in_place(db.checkpoint()?), (0, 1));
    drop(table);
    db.abandon();
    damage_in_page(&path, &new);
    let db = Database::open_with(&path, &wide(FlushUnit::Line))?;
    let table = db.table("notes")?;
    assert_eq!(get(&db, &table, 7)?, Some((2, new.clone())));
    // The torn row is in no image after that.
    assert_eq!(in_place(db.checkpoint()?), (1, 0));
    db.checkpoint()?;
    db.checkpoint()?;
    drop((table, db));
    // Now no record has it.
    damage_in_page(&path, &new);
    let db = Database::open_with(&path, &wide(FlushUnit::Line))?;
    let table = db.table("notes")?;
    match get(&db, &table, 8) {
        Err(error @ Error::Damaged { .. }) => assert!(error.to_string().contains("the checksum of the row"), "{error}"),
        other => panic!("{other:?}"),
    }
    Ok(())
}

/// A record changes another row of the page, so an open reads it, and finds the damaged row without a record.
#[test]
fn a_damaged_row_beside_one_with_a_record_is_named() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    for beside in [6, 8] {
        let (db, table) = filled(&path, FlushUnit::Line, 40)?;
        db.checkpoint()?;
        put(&db, &table, beside, 1, "another")?;
        drop((table, db));
        damage_in_page(&path, &text(7));
        expect_damaged_row(&path);
        std::fs::remove_file(&path).expect("the pool is removed");
    }
    Ok(())
}

/// Page bytes of an update of a random row: whole pages against lines.
#[test]
fn lines_are_a_twentieth_of_whole_pages() -> Result<()> {
    let written = |flush_unit| {
        let folder = tempfile::tempdir().expect("a folder");
        let (db, table) = filled(&folder.path().join("a.pool"), flush_unit, 4000)?;
        let before = db.stats().pages.written_bytes;
        for round in 0..20_u64 {
            // One row of each fourth or so of the leaves.
            for number in 0..20 {
                let k = (round * 7919 + number * 203) % 4000;
                put(&db, &table, k, 1, &text(k))?;
            }
            db.checkpoint()?;
        }
        Ok::<_, Error>((db.stats().pages.written_bytes - before) / 400)
    };
    let (pages, lines) = (written(FlushUnit::Page)?, written(FlushUnit::Line)?);
    assert!(pages >= 20 * lines, "{pages} and {lines} bytes for each update");
    Ok(())
}

/// The budget of a checkpoint: two fences, after the pages and after the block that makes them count, whatever the
/// number of the pages, and whether rows change in them or they are new.
#[test]
fn a_checkpoint_has_two_fences_whatever_the_number_of_pages() -> Result<()> {
    const ROWS: u64 = 4000;
    let folder = tempfile::tempdir().expect("a folder");
    let (db, table) = filled(&folder.path().join("a.pool"), FlushUnit::Line, ROWS)?;
    let checkpoint = |rows: u64, text: &dyn Fn(u64) -> String| -> Result<(u64, CheckpointReport)> {
        (0..rows).try_for_each(|row| {
            let k = row * (ROWS / rows);
            put(&db, &table, k, 7, &text(k))
        })?;
        let before = thread_counters().fences;
        let report = db.checkpoint()?;
        Ok((thread_counters().fences - before, report))
    };
    // A longer text does not fit the cell that the row has.
    let longer = |k: u64| format!("{k:-<120}");
    // The extents that new pages need are taken.
    (0..3).try_for_each(|_| checkpoint(ROWS, &longer).and_then(|_| checkpoint(ROWS, &text)).map(drop))?;
    for leaves in [1, 5, 50] {
        // From the next checkpoint on it is known that few lines change.
        checkpoint(leaves, &text)?;
        let (fences, report) = checkpoint(leaves, &text)?;
        assert_eq!((fences, in_place(report)), (2, (0, leaves)), "rows in place: {report:?}");
    }
    for leaves in [1, 5, 50] {
        let (fences, report) = checkpoint(leaves, &longer)?;
        assert_eq!(fences, 2, "new pages: {report:?}");
        assert!(report.images > leaves / 2, "{report:?}");
    }
    Ok(())
}

/// The logs have deltas of the damaged row, and nothing to build them on.
#[test]
fn a_damaged_row_with_deltas_alone_is_named() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let (db, table) = filled(&path, FlushUnit::Page, 40)?;
    db.checkpoint()?;
    db.update(|tx| table.add(tx, &row![7_u64], "n", 5))?;
    drop((table, db));
    damage_in_page(&path, &text(7));
    expect_damaged_row(&path);
    Ok(())
}
