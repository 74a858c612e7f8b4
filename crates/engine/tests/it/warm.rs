//! Warm-up: leaves that were in the cache at a close are read again after the next open.

use std::path::Path;

use crate::common::{self, Open, options};
use lodestone_engine::{Database, DatabaseOptions, Result, Schema, Table, Type, row};
use lodestone_pmem::DomainChoice;

const CACHE: u64 = 512 << 10;
const KEYS: u64 = 12_000;
/// The keys that are in use: about a third of the cache.
const HOT: std::ops::Range<u64> = 3_000..3_600;
const DOMAINS: [DomainChoice; 3] = [DomainChoice::Process, DomainChoice::DaxEmulated, DomainChoice::Block];

fn cached(domain: DomainChoice) -> DatabaseOptions {
    let mut options = DatabaseOptions { cache_bytes: Some(CACHE), ..options(domain) };
    options.pool.size_bytes = 32 << 20;
    (options.leaf_rows_max, options.page_bytes) = (64, 8192);
    options
}

/// A database of about five times the cache, closed.
fn filled(path: &Path, options: &DatabaseOptions) -> Result<()> {
    let db = Database::open_with(path, options)?;
    let schema = Schema::new("rows").column("k", Type::U64).column("v", Type::Bytes).key(["k"]);
    db.load_table(&schema, (0..KEYS).map(|key| Ok(row![key, vec![1_u8; 200]])))?;
    Ok(())
}

/// Reads the rows in use, twice.
fn use_rows(table: &Table, db: &Database) -> Result<()> {
    for key in HOT.chain(HOT) {
        assert!(db.update(|tx| table.get(tx, &row![key]))?.is_some());
    }
    Ok(())
}

/// Opens, waits for the warm-up, and reads the rows in use. Returns how many leaves the warm-up has read, and how many
/// reads of pages the transactions have made.
fn reopened(path: &Path, options: &DatabaseOptions) -> Result<(u64, u64)> {
    let db = Database::open_with(path, options)?;
    let table = db.table("rows")?;
    db.wait_for_warm_up();
    let before = db.stats();
    assert!(before.cache_bytes <= CACHE, "{before}");
    assert_eq!(before.cache_evictions, 0, "nothing makes room for a warm-up");
    use_rows(&table, &db)?;
    let after = db.stats();
    let reads = |stats: &lodestone_engine::DatabaseStats| stats.cache_loads + stats.cache_row_reads;
    Ok((before.cache_warm_loads, reads(&after) - reads(&before)))
}

#[test]
fn rows_in_use_are_hits_after_an_open() -> Result<()> {
    for domain in DOMAINS {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, options) = (folder.path().join("a.pool"), cached(domain));
        filled(&path, &options)?;
        let without = DatabaseOptions { warm_up: false, ..options.clone() };
        assert!(reopened(&path, &without)?.1 > 5, "the rows in use are in many leaves");
        // An open that keeps no list leaves the former one alone: here that of the load.
        let db = Database::open_with(&path, &options)?;
        use_rows(&db.table("rows")?, &db)?;
        drop(db);
        let (warmed, reads) = reopened(&path, &options)?;
        assert!(warmed > 5 && reads == 0, "{domain:?}: {warmed} leaves, {reads} reads");
        // A crash leaves the list of the last close.
        Database::open_with(&path, &options)?.abandon();
        let (warmed, reads) = reopened(&path, &options)?;
        assert!(warmed > 5 && reads == 0, "{domain:?} after a crash: {warmed} leaves, {reads} reads");
    }
    Ok(())
}

#[test]
fn a_close_at_once_loses_no_entry() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, options) = (folder.path().join("a.pool"), cached(DomainChoice::Process));
    filled(&path, &options)?;
    let db = Database::open_with(&path, &options)?;
    use_rows(&db.table("rows")?, &db)?;
    drop(db);
    for _ in 0..3 {
        drop(Database::open_with(&path, &options)?);
    }
    assert_eq!(reopened(&path, &options)?.1, 0);
    Ok(())
}

#[test]
fn a_smaller_cache_and_a_table_that_is_gone() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, options) = (folder.path().join("a.pool"), cached(DomainChoice::Process));
    filled(&path, &options)?;
    let db = Database::open_with(&path, &options)?;
    use_rows(&db.table("rows")?, &db)?;
    drop(db);
    let small = DatabaseOptions { cache_bytes: Some(CACHE / 2), ..options.clone() };
    let db = Database::open_with(&path, &small)?;
    db.wait_for_warm_up();
    let stats = db.stats();
    assert!(stats.cache_bytes <= CACHE / 2 && stats.cache_evictions == 0, "{stats}");
    db.drop_table("rows")?;
    (0..3).try_for_each(|_| db.checkpoint().map(|_| ()))?;
    drop(db);
    let db = Database::open_with(&path, &options)?;
    db.wait_for_warm_up();
    assert!(db.stats().cache_warm_loads <= 1, "the catalog alone: {}", db.stats());
    // Lists replace each other: they do not fill the pool.
    let pages = |db: &Database| db.page_stats().pages - db.page_stats().pages_free;
    let before = pages(&db);
    drop(db);
    for _ in 0..20 {
        let open = Open::at(&path, &options)?;
        open.set(&[(1, 1)])?;
        open.db.checkpoint()?;
        (0..2).try_for_each(|_| open.db.checkpoint().map(|_| ()))?;
    }
    let after = pages(&Database::open_with(&path, &options)?);
    assert!(after <= before + 4, "{before} pages, then {after}");
    Ok(())
}

#[test]
fn a_damaged_list_is_not_used_and_named_by_a_check() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, options) = (folder.path().join("a.pool"), cached(DomainChoice::Process));
    filled(&path, &options)?;
    let db = Database::open_with(&path, &options)?;
    use_rows(&db.table("rows")?, &db)?;
    drop(db);
    assert_eq!(reopened(&path, &options)?.1, 0);
    // The pages of tree 1: magic at 0, the tree at 20, the image after 64 bytes.
    let mut bytes = std::fs::read(&path).expect("the pool");
    let mut hits = 0;
    for page in (0..bytes.len()).step_by(4096) {
        if bytes[page..page + 4] == *b"LDPG" && bytes[page + 20..page + 24] == 1_u32.to_le_bytes() {
            bytes[page + 80..page + 300].fill(0xA5);
            hits += 1;
        }
    }
    assert!(hits > 0, "no page of a list");
    std::fs::write(&path, bytes).expect("written");
    let (warmed, reads) = reopened(&path, &options)?;
    assert!(warmed == 0 && reads > 5, "{warmed} leaves, {reads} reads");
    // The close wrote a new list.
    assert_eq!(reopened(&path, &options)?.1, 0);
    assert_eq!(common::findings(&path, &options), Vec::<String>::new());
    Ok(())
}
