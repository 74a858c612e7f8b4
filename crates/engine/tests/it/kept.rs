//! Tables that stay in DRAM beside a cache which has no room for them.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::options;
use lodestone_engine::{Database, DatabaseOptions, DatabaseStats, Error, Result, Schema, row};
use lodestone_pmem::DomainChoice;

const CACHE: u64 = 256 << 10;
const KEYS: u64 = 4_000;
/// Loads beside a reader.
const ROUNDS: u64 = 12;

fn cached() -> DatabaseOptions {
    let mut options = DatabaseOptions { cache_bytes: Some(CACHE), ..options(DomainChoice::Process) };
    options.pool.size_bytes = 32 << 20;
    (options.leaf_rows_max, options.page_bytes) = (64, 8192);
    options
}

/// A table of about four times the cache, with an index.
fn filled(path: &Path, name: &str, is_kept: bool) -> Result<Database> {
    let db = Database::open_with(path, &cached())?;
    let schema: Schema = format!("{name} (k u64, v bytes) key (k) index by_both (v, k)").parse()?;
    let schema = if is_kept { schema.kept() } else { schema };
    db.load_table(&schema, (0..KEYS).map(|key| Ok(row![key, key.to_be_bytes().repeat(25)])))?;
    // A load leaves no more in memory than the cache may hold, when no other thread reads.
    db.wait_for_warm_up();
    assert!(db.stats().cache_bytes <= CACHE + CACHE / 8, "{}", db.stats());
    Ok(db)
}

/// Reads all rows by both orders. Returns the reads of pages for that.
fn reads(db: &Database, name: &str) -> Result<u64> {
    let count = |stats: &DatabaseStats| stats.cache_loads + stats.cache_row_reads;
    let (table, before) = (db.table(name)?, count(&db.stats()));
    for key in 0..KEYS {
        assert!(db.update(|tx| table.get(tx, &row![key]))?.is_some());
    }
    let snapshot = db.snapshot()?;
    assert_eq!(to_u64(table.index("by_both")?.range(&snapshot, ..)?.count()), KEYS);
    Ok(count(&db.stats()) - before)
}

fn to_u64(count: usize) -> u64 {
    u64::try_from(count).expect("few")
}

#[test]
fn a_kept_table_is_read_without_its_pages() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let db = filled(&path, "t", false)?;
    assert!(reads(&db, "t")? > 50, "it does not fit");
    db.keep_table("t", true)?;
    assert!(db.placement("t")?.is_kept && db.table("t")?.schema().is_kept());
    assert_eq!(reads(&db, "t")?, 0);
    // Another table has the cache for itself, and its reads do not drive out this one.
    drop(db);
    let db = filled(&path, "other", false)?;
    db.wait_for_warm_up();
    assert!(reads(&db, "other")? > 50);
    assert_eq!(reads(&db, "t")?, 0, "the next life has read it");
    assert!(db.stats().cache_bytes <= CACHE + CACHE / 8, "{}", db.stats());
    // Rows that are added stay as well, also when they were written to pages.
    let table = db.table("t")?;
    for keys in [KEYS..KEYS + 500, KEYS + 500..KEYS + 1000] {
        db.update(|tx| keys.clone().try_for_each(|key| table.put(tx, &row![key, vec![1_u8; 200]])))?;
        db.checkpoint()?;
    }
    assert!(reads(&db, "other")? > 50);
    db.update(|tx| (KEYS..KEYS + 1000).try_for_each(|key| table.delete(tx, &row![key]).map(drop)))?;
    assert_eq!(reads(&db, "t")?, 0);
    // Back in the cache.
    db.keep_table("t", false)?;
    assert!(reads(&db, "other")? > 50 && reads(&db, "t")? > 50);
    // Leaves that changed stay until their images are written, and those that lost rows once more.
    db.checkpoint()?;
    db.checkpoint()?;
    assert!(reads(&db, "t")? > 50);
    assert!(db.stats().cache_bytes <= CACHE + CACHE / 8, "{}", db.stats());
    assert!(matches!(db.keep_table("none", true), Err(Error::NoTable { .. })));
    Ok(())
}

/// A reader's hand that moves while only some leaves of a load are on the clock does not make the others stay.
#[test]
fn a_load_beside_a_reader_leaves_no_more_than_fits() -> Result<()> {
    for _ in 0..ROUNDS {
        let folder = tempfile::tempdir().expect("a folder");
        let db = filled(&folder.path().join("a.pool"), "t", false)?;
        let (table, is_over) = (db.table("t")?, AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let snapshot = db.snapshot()?;
                    table.range(&snapshot, ..)?.take_while(|_| !is_over.load(Ordering::Relaxed)).for_each(drop);
                }
                Ok::<_, Error>(())
            });
            let schema: Schema = "other (k u64, v bytes) key (k) index by_both (v, k)".parse()?;
            let loaded = db.load_table(&schema, (0..KEYS).map(|key| Ok(row![key, key.to_be_bytes().repeat(25)])));
            let bytes = db.stats().cache_bytes;
            is_over.store(true, Ordering::Relaxed);
            loaded?;
            assert!(bytes <= 2 * CACHE, "{bytes}");
            Ok::<_, Error>(())
        })?;
    }
    Ok(())
}

/// Rows of kept tables do not count, whether they were there, were loaded, or are new; and the others count at once.
#[test]
fn rows_that_stay_do_not_count() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let rows = |db: &Database| db.stats().cache_bytes;
    let db = filled(&path, "t", false)?;
    // The clock is full of leaves of the table.
    reads(&db, "t")?;
    let before = rows(&db);
    assert!(before > CACHE / 2, "{before}");
    db.keep_table("t", true)?;
    let cold = rows(&db);
    assert!(
        cold < before - CACHE / 4,
        "{cold} of {before}: they are off the clock, and those that were loaded stay off"
    );
    // New leaves, by splits and by merges. A leaf takes some hundred bytes wherever its rows are.
    let table = db.table("t")?;
    db.update(|tx| (KEYS..KEYS + 2000).try_for_each(|key| table.put(tx, &row![key, vec![1_u8; 200]])))?;
    assert!(rows(&db) < cold + CACHE / 4, "{} after {cold}: splits", rows(&db));
    db.update(|tx| (KEYS..KEYS + 2000).try_for_each(|key| table.delete(tx, &row![key]).map(drop)))?;
    (0..4).try_for_each(|_| db.checkpoint().map(drop))?;
    assert!(rows(&db) < cold + CACHE / 4, "{} after {cold}: merges", rows(&db));
    // All leaves are clean: those that are too many go at once.
    db.keep_table("t", false)?;
    assert!(rows(&db) <= CACHE + CACHE / 8, "{}", rows(&db));
    Ok(())
}

/// A transaction that holds more than fits does not let the cache grow after it.
#[test]
fn a_turn_in_vain_is_no_rest() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    drop(filled(&path, "other", false)?);
    let db = filled(&path, "t", false)?;
    let table = db.table("t")?;
    let hold_all = || -> Result<()> {
        db.update(|tx| (0..KEYS).try_for_each(|key| table.get(tx, &row![key]).map(drop)))?;
        let after = db.stats().cache_bytes;
        assert!(after > CACHE * 2, "{after}: the transaction holds all rows");
        Ok(())
    };
    let is_small = |name: &str| -> Result<()> {
        let (reads, bytes) = (reads(&db, name)?, db.stats().cache_bytes);
        assert!(bytes <= CACHE + CACHE / 8, "{bytes} after {reads} reads of {name}");
        Ok(())
    };
    hold_all()?;
    is_small("t")?;
    hold_all()?;
    db.keep_table("t", true)?;
    is_small("other")
}

#[test]
fn a_table_is_made_as_a_kept_one() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let db = filled(&path, "t", true)?;
    assert_eq!(reads(&db, "t")?, 0);
    db.abandon();
    let db = Database::open_with(&path, &cached())?;
    db.wait_for_warm_up();
    assert_eq!(reads(&db, "t")?, 0);
    Ok(())
}

/// A table is kept and given back again and again, while a thread changes it and another one reads another table.
#[test]
fn a_table_is_kept_and_given_back_while_others_use_it() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    drop(filled(&path, "t", false)?);
    let db = filled(&path, "other", false)?;
    let ends = AtomicBool::new(false);
    let added = thread::scope(|scope| -> Result<i64> {
        let reads_others = scope.spawn(|| -> Result<()> {
            while !ends.load(Ordering::Relaxed) {
                reads(&db, "other")?;
            }
            Ok(())
        });
        let changes = scope.spawn(|| -> Result<i64> {
            let (table, mut changes) = (db.table("t")?, 0);
            while !ends.load(Ordering::Relaxed) {
                let key = u64::try_from(changes).unwrap_or(0) * 37 % KEYS;
                db.update(|tx| table.put(tx, &row![KEYS + key, vec![2_u8; 200]]))?;
                changes += 1;
            }
            Ok(changes.min(i64::try_from(KEYS).unwrap_or(0)))
        });
        let kept =
            (0..10).try_for_each(|number| db.keep_table("t", number % 2 == 0).and_then(|()| db.checkpoint().map(drop)));
        ends.store(true, Ordering::Relaxed);
        reads_others.join().expect("no panic")?;
        let added = changes.join().expect("no panic")?;
        kept.map(|()| added)
    })?;
    db.abandon();
    let db = Database::open_with(&path, &cached())?;
    let rows = db.table("t")?.range(&db.snapshot()?, ..)?.count();
    assert_eq!(to_u64(rows), KEYS + u64::try_from(added).expect("few"));
    Ok(())
}
