//! A database whose rows do not fit into its cache.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::{Open, options};
use lodestone_engine::{
    Database, DatabaseOptions, Error, FlushUnit, Isolation, Reader, Result, Row, Schema, Table, Type, row,
};
use lodestone_pmem::DomainChoice;
use lodestone_workload::random::Random;

const DOMAINS: [DomainChoice; 3] = [DomainChoice::Process, DomainChoice::DaxEmulated, DomainChoice::Block];
const CACHE: u64 = 128 << 10;

fn small(domain: DomainChoice) -> DatabaseOptions {
    let mut options = DatabaseOptions { cache_bytes: Some(CACHE), ..options(domain) };
    options.pool.size_bytes = 32 << 20;
    (options.leaf_rows_max, options.page_bytes) = (64, 8192);
    options
}

/// About ten times the cache: 200 bytes each, of which the first 8 are the number of the version.
fn rows(db: &Database) -> Result<Table> {
    let schema = Schema::new("rows").column("k", Type::U64).column("v", Type::Bytes).key(["k"]);
    db.create_table(&schema)
}

fn version(number: u64) -> Vec<u8> {
    [number; 25].iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn number(row: &Row) -> u64 {
    let bytes = row[1].as_bytes().expect("bytes");
    let number = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
    assert_eq!(bytes, version(number), "a torn row");
    number
}

fn read(table: &Table, reader: &impl Reader, key: u64) -> Result<Option<u64>> {
    Ok(table.get(reader, &row![key])?.as_ref().map(number))
}

const KEYS: u64 = 6_000;

fn fill(db: &Database) -> Result<Table> {
    let table = rows(db)?;
    for first in (0..KEYS).step_by(100) {
        db.update(|tx| (first..first + 100).try_for_each(|key| table.put(tx, &row![key, version(key)])))?;
    }
    db.checkpoint()?;
    Ok(table)
}

#[test]
fn a_load_in_random_order_stays_near_the_cache() -> Result<()> {
    const BOUND: u64 = 2 << 20;
    const ROWS: u64 = 4_000;
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = DatabaseOptions { cache_bytes: Some(BOUND), ..small(DomainChoice::Process) };
    (options.pool.size_bytes, options.log_bytes) = (64 << 20, 16 << 20);
    let db = Database::open_with(folder.path().join("a.pool"), &options)?;
    let table = rows(&db)?;
    let mut most = 0;
    for turn in 0..ROWS {
        // All keys, in an order that jumps.
        let key = turn * 3_571 % ROWS;
        db.update(|tx| table.put(tx, &row![key, vec![0_u8; 2_000]]))?;
        most = most.max(db.stats().cache_bytes);
    }
    // Commits wait for a round when the rows are an eighth more than the bound.
    assert!(most <= BOUND + BOUND / 4, "{most} bytes, and {}", db.stats());
    assert!(db.stats().cache_evictions > 100, "{}", db.stats());
    Ok(())
}

#[test]
fn rows_in_dram_stay_within_the_cache() -> Result<()> {
    for domain in DOMAINS {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pool");
        let db = Database::open_with(&path, &small(domain))?;
        let table = fill(&db)?;
        let mut random = Random::new(7);
        for _ in 0..20_000 {
            let key = random.below(KEYS);
            assert_eq!(db.update(|tx| read(&table, tx, key))?, Some(key));
            assert!(db.stats().cache_bytes <= CACHE + CACHE / 10, "{}", db.stats());
        }
        let stats = db.stats();
        assert!(stats.cache_loads > 20 && stats.cache_evictions > 100, "{stats}");
        // Most leaves are not looked at again before they would be gone.
        assert!(stats.cache_row_reads > 10_000, "{stats}");
        assert_eq!((stats.conflicts, stats.pages.pages_free > 0), (0, true), "{stats}");
        // A snapshot reads everything, a leaf at a time.
        let snapshot = db.snapshot()?;
        let found: Vec<_> =
            table.range(&snapshot, ..)?.map(|row| row.map(|row| number(&row))).collect::<Result<_>>()?;
        assert!(found.iter().copied().eq(0..KEYS));
        assert!(db.stats().cache_bytes <= CACHE + CACHE / 10, "{}", db.stats());
        drop(snapshot);
        // Those that are used all the time stay.
        let hot = || db.update(|tx| (0..20).try_for_each(|key| read(&table, tx, key).map(|_| ())));
        (0..4).try_for_each(|_| hot())?;
        let before = db.stats().cache_loads;
        for _ in 0..200 {
            hot()?;
            let key = random.below(KEYS);
            db.update(|tx| read(&table, tx, key))?;
        }
        let loads = db.stats().cache_loads - before;
        assert!(loads < 230, "{loads} loads for 200 rows that were not used before");
        drop((table, db));
        let db = Database::open_with(&path, &small(domain))?;
        assert!(db.store().check(&mut |_| {}).is_clean());
    }
    Ok(())
}

/// A key of a cold leaf, whose row was just read alone by `reader`.
fn read_early(db: &Database, table: &Table, reader: &impl Reader, keys: &mut Random) -> Result<u64> {
    // Other leaves come and go, so that a look of long ago does not count.
    for _ in 0..200 {
        let key = keys.below(KEYS);
        (0..3).try_for_each(|_| db.update(|tx| read(table, tx, key)).map(|_| ()))?;
    }
    for _ in 0..100 {
        let (key, before) = (keys.below(KEYS), db.stats());
        assert_eq!(read(table, reader, key)?, Some(key));
        let now = db.stats();
        if now.cache_row_reads > before.cache_row_reads {
            assert_eq!(now.cache_loads, before.cache_loads);
            return Ok(key);
        }
    }
    panic!("no row was read alone: {}", db.stats());
}

#[test]
fn the_first_looks_at_a_row_do_not_load_its_leaf() -> Result<()> {
    for domain in DOMAINS {
        let folder = tempfile::tempdir().expect("a folder");
        let db = Database::open_with(folder.path().join("a.pool"), &small(domain))?;
        let (table, mut random) = (fill(&db)?, Random::new(3));
        let mut loaded = 0;
        for _ in 0..50 {
            let key = read_early(&db, &table, &db.snapshot()?, &mut random)?;
            let reads_of = |key| {
                let before = db.stats();
                let found = db.update(|tx| read(&table, tx, key))?;
                let now = db.stats();
                let counts = (now.cache_loads - before.cache_loads, now.cache_row_reads - before.cache_row_reads);
                Ok::<_, Error>((found, counts))
            };
            let (found, (loads, reads)) = reads_of(key)?;
            assert_eq!((found, loads), (Some(key), 0));
            assert!(reads < 2, "it may have stayed");
            for _ in 0..3 {
                assert_eq!(reads_of(key)?, (Some(key), (0, 0)), "it stays, and its leaf is not loaded");
            }
            // Where the rows after it are in the same leaf, and were not read before.
            let (second, third) = (reads_of(key + 1)?.1, reads_of(key + 2)?.1);
            assert!(second.0 + second.1 < 2 && third.0 + third.1 < 2, "{second:?}, {third:?}");
            loaded += u32::from((second, third) == ((0, 1), (1, 0)));
            // A key that is not there.
            assert_eq!(reads_of(KEYS + key)?.0, None);
        }
        assert!(loaded > 35, "a third row loads the leaf: {loaded} of 50");
    }
    Ok(())
}

#[test]
fn rows_that_are_used_stay_without_the_others_of_their_pages() -> Result<()> {
    // Their pages do not fit: they are nearly twice the cache.
    let hot = || (0..KEYS).step_by(240);
    for (domain, are_written) in DOMAINS.into_iter().flat_map(|domain| [(domain, false), (domain, true)]) {
        let folder = tempfile::tempdir().expect("a folder");
        let db = Database::open_with(folder.path().join("a.pool"), &small(domain))?;
        let table = fill(&db)?;
        if are_written {
            // Their leaves are loaded for that.
            hot().try_for_each(|key| db.update(|tx| table.put(tx, &row![key, version(key)])))?;
            db.checkpoint()?;
        }
        let mut reads = Vec::new();
        let mut random = Random::new(8);
        for _ in 0..10 {
            let before = db.stats();
            for key in hot() {
                assert_eq!(db.update(|tx| read(&table, tx, key))?, Some(key));
            }
            let now = db.stats();
            reads.push(now.cache_loads + now.cache_row_reads - before.cache_loads - before.cache_row_reads);
            // Others come and go.
            (0..10).try_for_each(|_| db.update(|tx| read(&table, tx, random.below(KEYS)).map(|_| ())))?;
        }
        // The second read of a row that goes at once keeps it, though more are read meanwhile than leaves are here.
        // In one of some thirty runs the hand takes a few of them in a later turn, and they are read once more.
        let late: u64 = reads[3..].iter().sum();
        assert!(reads[0] > 12 && reads[3] < 9 && late < 20, "{domain:?}: {reads:?}, {}", db.stats());
        assert!(db.stats().cache_bytes <= CACHE + CACHE / 10, "{}", db.stats());
    }
    Ok(())
}

#[test]
fn a_row_that_was_read_alone_meets_the_changes_of_others() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let db = Database::open_with(folder.path().join("a.pool"), &small(DomainChoice::Process))?;
    let (table, mut random) = (fill(&db)?, Random::new(4));
    for _ in 0..50 {
        let tx = db.begin();
        let key = read_early(&db, &table, &tx, &mut random)?;
        // Two transactions may share the row.
        let other = db.begin();
        read(&table, &other, key)?;
        other.commit()?;
        db.update(|tx| table.put(tx, &row![key, version(key)]))?;
        table.put(&tx, &row![KEYS, version(KEYS)])?;
        assert!(matches!(tx.commit(), Err(Error::Conflict)), "row {key}");
        // It stays as it is: no conflict, whether the leaf is loaded meanwhile or not.
        for is_loaded in [false, true] {
            let tx = db.begin();
            let key = read_early(&db, &table, &tx, &mut random)?;
            if is_loaded {
                let beside = if key > 0 { key - 1 } else { 1 };
                (0..3).try_for_each(|_| db.update(|tx| read(&table, tx, beside)).map(|_| ()))?;
            }
            table.put(&tx, &row![KEYS, version(KEYS)])?;
            tx.commit()?;
        }
    }
    Ok(())
}

#[test]
fn a_transaction_may_read_more_than_fits() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let db = Database::open_with(folder.path().join("a.pool"), &small(DomainChoice::Process))?;
    let table = fill(&db)?;
    let isolations =
        [Isolation::Serializable, Isolation::SerializableOnSnapshot, Isolation::Snapshot, Isolation::ReadCommitted];
    for isolation in isolations {
        let count = db.update_with(isolation, |tx| {
            let count = table.range(tx, ..)?.try_fold(0, |count, row| row.map(|_| count + 1))?;
            table.put(tx, &row![KEYS, version(KEYS)])?;
            Ok(count)
        })?;
        assert!(count >= KEYS, "{isolation:?}");
    }
    assert_eq!(db.stats().conflicts, 0, "{}", db.stats());
    db.checkpoint()?;
    db.update(|tx| read(&table, tx, 5).map(|_| ()))?;
    Ok(())
}

/// Random changes beside a model, with snapshots that are kept for a while and crashes. Returns whether all agreed.
fn agrees_with_a_model(seed: u64, domain: DomainChoice) -> Result<bool> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let options = DatabaseOptions { checkpoint_thread: false, direct_reads: seed.is_multiple_of(2), ..small(domain) };
    let mut db = Database::open_with(&path, &options)?;
    let mut table = rows(&db)?;
    let mut random = Random::new(seed);
    let mut model = BTreeMap::new();
    let mut kept: Vec<(_, BTreeMap<u64, u64>)> = Vec::new();
    for step in 1..4_000 {
        let key = random.below(1_000);
        match random.below(100) {
            0 => drop(db.checkpoint()?),
            1 => kept.push((db.snapshot()?, model.clone())),
            2 => {
                if !kept.is_empty() {
                    let (snapshot, then) = kept.swap_remove(random.below(kept.len() as u64) as usize);
                    let found = table.range(&snapshot, ..)?.map(|row| row.map(|row| (row[0].as_u64(), number(&row))));
                    let found = found.collect::<Result<Vec<_>>>()?;
                    if !found.into_iter().eq(then.into_iter().map(|(key, number)| (Some(key), number))) {
                        return Ok(false);
                    }
                }
            }
            3 if step % 5 == 0 => {
                kept.clear();
                drop(table);
                db.abandon();
                db = Database::open_with(&path, &options)?;
                table = db.table("rows")?;
            }
            4..30 => {
                db.update(|tx| table.delete(tx, &row![key]))?;
                model.remove(&key);
            }
            30..60 => {
                db.update(|tx| table.put(tx, &row![key, version(step)]))?;
                model.insert(key, step);
            }
            _ => {
                if db.update(|tx| read(&table, tx, key))? != model.get(&key).copied() {
                    return Ok(false);
                }
                if let Some((snapshot, then)) = kept.last()
                    && read(&table, snapshot, key)? != then.get(&key).copied()
                {
                    return Ok(false);
                }
            }
        }
    }
    let found =
        db.update(|tx| table.range(tx, ..)?.map(|row| row.map(|row| number(&row))).collect::<Result<Vec<_>>>())?;
    Ok(found.into_iter().eq(model.into_values()) && db.store().check(&mut |_| {}).is_clean())
}

#[test]
fn changes_and_snapshots_agree_with_a_model() -> Result<()> {
    for (seed, domain) in (1..).zip(DOMAINS.into_iter().cycle()).take(6) {
        assert!(agrees_with_a_model(seed, domain)?, "seed {seed}");
    }
    Ok(())
}

#[test]
fn threads_keep_their_sum_while_leaves_come_and_go() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = DatabaseOptions { log_bytes: 1 << 20, segment_bytes: 1 << 14, ..small(DomainChoice::Process) };
    options.pool.size_bytes = 96 << 20;
    let Open { db, table } = Open::at(&folder.path().join("a.pool"), &options)?;
    let keys = 8_000;
    for first in (0..keys).step_by(500) {
        db.update(|tx| (first..first + 500).try_for_each(|key| table.put(tx, &row![key, 100_i64])))?;
    }
    let is_over = AtomicBool::new(false);
    let sum = |reader: &Vec<Row>| reader.iter().filter_map(|row| row[1].as_i64()).sum::<i64>();
    let value =
        |tx: &_, key: u64| Ok::<_, Error>(table.get(tx, &row![key])?.and_then(|row| row[1].as_i64()).expect("a row"));
    thread::scope(|scope| {
        let (db, table, value, is_over) = (&db, &table, &value, &is_over);
        let movers: Vec<_> = (0..3)
            .map(|thread| {
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    (0..6_000).try_for_each(|_| {
                        let (from, to) = (random.below(keys), random.below(keys));
                        db.update(|tx| {
                            let amount = value(tx, from)?;
                            table.put(tx, &row![from, amount - 7])?;
                            let there = value(tx, to)?;
                            table.put(tx, &row![to, there + 7])
                        })
                    })
                })
            })
            .collect();
        let reader = scope.spawn(move || -> Result<u64> {
            let mut looks = 0;
            while !is_over.load(Ordering::Relaxed) || looks == 0 {
                let snapshot = db.snapshot()?;
                let found = table.range(&snapshot, ..)?.collect::<Result<Vec<_>>>()?;
                assert_eq!(sum(&found), 100 * keys as i64);
                looks += 1;
            }
            Ok(looks)
        });
        let moved: Vec<_> = movers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        // Also after a panic: the reader waits for it.
        is_over.store(true, Ordering::Relaxed);
        moved.into_iter().try_for_each(|outcome| outcome.expect("no panic"))?;
        assert!(reader.join().expect("no panic")? > 0);
        Ok::<_, Error>(())
    })?;
    let stats = db.stats();
    assert!(stats.cache_evictions > 1_000, "{stats}");
    assert_eq!(db.update(|tx| Ok(sum(&table.range(tx, ..)?.collect::<Result<Vec<_>>>()?)))?, 100 * keys as i64);
    assert!(db.store().check(&mut |_| {}).is_clean());
    Ok(())
}

#[test]
fn a_cache_without_room_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = DatabaseOptions { cache_bytes: Some(0), ..small(DomainChoice::Process) };
    let error = Database::open_with(folder.path().join("a.pool"), &options).expect_err("too small");
    assert!(error.to_string().contains("cache_bytes"), "{error}");
    assert!(!folder.path().join("a.pool").exists(), "nothing is made");
}

#[test]
fn commits_wait_while_the_cache_is_full_of_changes() -> Result<()> {
    for checkpoint_thread in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let options = DatabaseOptions { checkpoint_thread, ..small(DomainChoice::Process) };
        let db = Database::open_with(folder.path().join("a.pool"), &options)?;
        let table = rows(&db)?;
        for key in 0..KEYS {
            db.update(|tx| table.put(tx, &row![key, version(key)]))?;
            assert!(db.stats().cache_bytes <= CACHE * 2, "{}", db.stats());
        }
    }
    Ok(())
}

#[test]
fn a_leaf_that_is_written_fits_a_page() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let mut options = options(DomainChoice::Process);
    options.pool.size_bytes = 64 << 20;
    (options.log_bytes, options.segment_bytes) = (16 << 20, 1 << 20);
    (options.leaf_rows_max, options.page_bytes, options.flush_unit) = (64, 8192, FlushUnit::Page);
    // Three fit a page, of the 64 that a leaf may have.
    let value = |key: u64| vec![key.to_le_bytes()[0]; 1_900];
    let count = 300_u64;
    {
        let db = Database::open_with(&path, &options)?;
        let table = rows(&db)?;
        for first in (0..count).step_by(50) {
            db.update(|tx| (first..first + 50).try_for_each(|key| table.put(tx, &row![key, value(key)])))?;
        }
        let report = db.checkpoint()?;
        // A few more of the catalog.
        assert!(report.images >= count / 4 && report.images == report.pages, "{report:?}");
        // One row changes: one page is written.
        db.update(|tx| table.put(tx, &row![7_u64, value(8)]))?;
        let report = db.checkpoint()?;
        assert_eq!((report.images, report.pages), (1, 1));
        // A table that is loaded, and rows that became longer.
        let schema = Schema::new("loaded").column("k", Type::U64).column("v", Type::Bytes).key(["k"]);
        let loaded = db.load_table(&schema, (0..count).map(|key| Ok(row![key, vec![1_u8; 100]])))?;
        for key in 0..count {
            db.update(|tx| loaded.put(tx, &row![key, value(key)]))?;
        }
        let report = db.checkpoint()?;
        assert!(report.images >= count / 4 && report.images == report.pages, "{report:?}");
    }
    let db = Database::open_with(&path, &options)?;
    for name in ["rows", "loaded"] {
        let table = db.table(name)?;
        let found: Vec<_> = table.range(&db.snapshot()?, ..)?.collect::<Result<_>>()?;
        assert_eq!(found.len(), 300, "{name}");
        for (key, row) in (0_u64..).zip(&found) {
            let expected = if (name, key) == ("rows", 7) { value(8) } else { value(key) };
            assert!(row[0] == key.into() && row[1].as_bytes() == Some(&expected[..]), "{name} {key}");
        }
    }
    Ok(())
}

#[test]
fn leaves_that_are_not_in_dram_count() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let options = small(DomainChoice::Process);
    let pages = {
        let db = Database::open_with(&path, &options)?;
        fill(&db)?;
        db.checkpoint()?;
        let stats = db.stats().pages;
        stats.pages - stats.pages_free
    };
    let db = Database::open_with(&path, &options)?;
    let stats = db.stats();
    assert!(stats.cache_loads < 10 && stats.cache_bytes > pages * 150, "{pages} pages: {stats}");
    Ok(())
}

/// Three rows of 2,000 bytes fit a page. Keys in any order leave pages with more than two, keys that follow each other
/// leave full ones.
#[test]
fn pages_are_well_filled_in_whatever_order_rows_come() -> Result<()> {
    const ROWS: u64 = 600;
    let mut shuffled: Vec<u64> = (0..ROWS).collect();
    let mut random = Random::new(3);
    (1..ROWS).rev().for_each(|last| shuffled.swap(last as usize, random.below(last + 1) as usize));
    let two_runs = (0..ROWS / 2).flat_map(|key| [key, ROWS + key]).collect();
    let up = (0..ROWS).collect();
    for (order, keys, of_round, rows_least) in
        [("any", shuffled, 20, 2.1), ("up", up, 1, 2.8), ("two", two_runs, 2, 2.8)]
    {
        let folder = tempfile::tempdir().expect("a folder");
        let mut options = small(DomainChoice::Process);
        options.cache_bytes = Some(1 << 20);
        let db = Database::open_with(folder.path().join("a.pool"), &options)?;
        let (table, value) = (rows(&db)?, vec![7_u8; 2_000]);
        let before = db.page_stats();
        for keys in keys.chunks(of_round) {
            db.update(|tx| keys.iter().try_for_each(|key| table.put(tx, &row![*key, value.clone()])))?;
            db.checkpoint()?;
        }
        let used = |stats: lodestone_engine::PageStats| stats.pages - stats.pages_free;
        // The pages of ended images are free after one more.
        db.update(|tx| table.put(tx, &row![keys[0], value.clone()]))?;
        db.checkpoint()?;
        let pages = used(db.page_stats()) - used(before);
        let filled = ROWS as f64 / pages as f64;
        println!("{order}: {filled:.2} rows a page");
        assert!(filled > rows_least, "{order}: {filled} rows a page");
    }
    Ok(())
}
