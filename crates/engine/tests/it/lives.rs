//! Lives: every domain, read-only opens, logs that are full, transactions that are too large, damage.

use std::time::{Duration, Instant};

use crate::common::{Open, options};
use lodestone_engine::{Database, DatabaseOptions, Error, Result, Schema, Type, row};
use lodestone_pmem::{CounterScope, DomainChoice};
use lodestone_store::{Force, Store};

const DOMAINS: [DomainChoice; 3] = [DomainChoice::DaxEmulated, DomainChoice::Process, DomainChoice::Block];

#[test]
fn rows_survive_lives_that_end_and_lives_that_are_cut_off() -> Result<()> {
    for domain in DOMAINS {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pool");
        let mut expected = Vec::new();
        for life in 0..70 {
            let open = Open::at(&path, &options(domain))?;
            assert_eq!(open.all()?, expected, "{domain:?}, life {life}");
            assert_eq!(open.db.recovery().was_clean, life % 3 != 1 || life == 0, "{domain:?}, life {life}");
            open.set(&[(life, 1), (100, i64::try_from(life).expect("small"))])?;
            if life % 2 == 1 {
                open.db.update(|tx| open.table.delete(tx, &row![life - 1]).map(|_| ()))?;
            }
            expected = open.all()?;
            let Open { db, table } = open;
            drop(table);
            // Two of three are cut off, so that the table of lives is full in between.
            if life % 3 == 0 { db.abandon() } else { drop(db) }
        }
        assert!(expected.contains(&(100, 69)) && !expected.contains(&(68, 1)) && expected.contains(&(67, 1)));
    }
    Ok(())
}

#[test]
fn a_database_that_is_open_read_only_answers_and_changes_no_byte() -> Result<()> {
    for is_closed in [true, false] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pool");
        let open = Open::at(&path, &options(DomainChoice::Process))?;
        open.set(&[(1, 1), (2, 2)])?;
        let Open { db, table } = open;
        drop(table);
        if is_closed {
            drop(db)
        } else {
            db.abandon()
        }
        let before = std::fs::read(&path).expect("the pool");
        let read_only = options(DomainChoice::Process);
        let db = Database::open_in(&Store::open_read_only(&path, &read_only.pool)?, &read_only)?;
        let open = Open { table: db.table("t")?, db };
        assert_eq!(open.all()?, [(1, 1), (2, 2)]);
        assert!(matches!(open.set(&[(3, 3)]), Err(Error::ReadOnly { .. })));
        let schema = Schema::new("u").column("k", Type::U64).key(["k"]);
        assert!(matches!(open.db.create_table(&schema), Err(Error::ReadOnly { .. })));
        drop(open);
        assert!(std::fs::read(&path).expect("the pool") == before, "closed: {is_closed}");
    }
    Ok(())
}

/// Rounds write the rows to pages, and free the log. They free the pages of the images before as well.
#[test]
fn a_small_log_takes_any_number_of_commits() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let small = DatabaseOptions { log_bytes: 64 << 10, segment_bytes: 8 << 10, ..options(DomainChoice::Process) };
    let open = Open::at(&path, &small)?;
    for number in 0..20_000_u64 {
        open.set(&[(number * 7 % 500, i64::try_from(number).expect("small"))])?;
    }
    let (log, pages) = (open.db.log_stats(), open.db.page_stats());
    assert!(log.segments <= 8, "{log:?}");
    assert!(pages.batches >= 20 && pages.pages < 2000, "{pages:?}");
    let many: Vec<(u64, i64)> = (0..2000).map(|key| (key, 1)).collect();
    assert!(matches!(open.set(&many), Err(Error::TransactionTooLarge { limit: 15_000..16_384, .. })));
    let expected = open.all()?;
    assert_eq!(expected.len(), 500);
    abandon(open);
    let open = Open::at(&path, &small)?;
    assert_eq!(open.all()?, expected);
    assert!(open.db.recovery().records < 2000, "{:?}", open.db.recovery());
    Ok(())
}

/// A log that could be larger than its pool makes rounds when the pool has no room for a segment.
#[test]
fn a_log_that_fills_the_pool_takes_any_number_of_commits() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut small = options(DomainChoice::Process);
    (small.pool.size_bytes, small.pool.journal_bytes) = (4 << 20, 128 << 10);
    let open = Open::at(&folder.path().join("a.pool"), &small)?;
    (0..100_000_u64).try_for_each(|number| open.set(&[(number % 100, 1)]))
}

/// The pool has no room for another segment: no mark, and no error for that.
#[test]
fn a_full_pool_opens_again_after_a_kill() -> Result<()> {
    for is_killed in [true, false] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pool");
        let mut small = options(DomainChoice::Process);
        (small.pool.size_bytes, small.pool.journal_bytes) = (1 << 20, 128 << 10);
        let open = Open::at(&path, &small)?;
        let mut rows = 0;
        let error = loop {
            match open.set(&[(rows, 1)]) {
                Ok(()) => rows += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::Heap(_)), "the pool is full before the log is: {error}");
        let expected = open.all()?;
        if is_killed {
            abandon(open)
        } else {
            drop(open)
        }
        assert_eq!(Open::at(&path, &small)?.all()?, expected, "killed: {is_killed}");
    }
    Ok(())
}

/// A thread makes the checkpoints, so no caller gets their errors.
#[test]
fn a_checkpoint_that_fails_is_told_until_one_succeeds() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut small = options(DomainChoice::Process);
    (small.pool.size_bytes, small.pool.journal_bytes) = (1 << 20, 128 << 10);
    let open = Open::at(&folder.path().join("a.pool"), &small)?;
    assert_eq!((open.db.checkpoint_trouble(), open.db.stats().checkpoints_failed), (None, 0));
    let mut rows = (0..).map(|row| open.set(&[(row, 1)]));
    let error = rows.find_map(Result::err).expect("the pool is full");
    assert!(error.is_full(), "{error}");
    let error = open.db.checkpoint().expect_err("there is no room for pages");
    assert_eq!(open.db.checkpoint_trouble(), Some(error.to_string()));
    let failed = open.db.stats().checkpoints_failed;
    assert!(failed > 0, "those of the thread count as well");
    open.db.pool().grow(0, 4 << 20).map_err(lodestone_store::Error::from)?;
    open.db.checkpoint()?;
    assert_eq!((open.db.checkpoint_trouble(), open.db.stats().checkpoints_failed), (None, failed));
    open.set(&[(1, 2)])
}

#[test]
fn a_second_opening_is_refused_while_a_handle_lives() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::create(folder.path().join("a.pool"), &options(DomainChoice::Process).pool)?;
    let small = options(DomainChoice::Process);
    let db = Database::open_in(&store, &small)?;
    let table = db.create_table(&Schema::new("t").column("k", Type::U64).key(["k"]))?;
    drop(db);
    assert!(matches!(Database::open_in(&store, &small), Err(Error::Store(_))), "a table is left");
    drop(table);
    let db = Database::open_in(&store, &small)?;
    let tx = db.begin();
    drop(db);
    assert!(Database::open_in(&store, &small).is_err(), "a transaction is left");
    drop(tx);
    assert_eq!(Database::open_in(&store, &small)?.tables()?, ["t"]);
    let other = DatabaseOptions { name: "other".into(), ..small.clone() };
    assert!(Database::open_in(&store, &other)?.tables()?.is_empty(), "it has tables of its own");
    let bad = DatabaseOptions { threads_max: 0, ..small };
    assert!(matches!(Database::open_in(&store, &bad), Err(Error::BadOption { option: "threads_max", .. })));
    Ok(())
}

#[test]
fn a_check_of_the_store_knows_every_block_and_counts_the_rows() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let open = Open::at(&path, &options(DomainChoice::Process))?;
    open.set(&[(1, 1), (2, 2)])?;
    drop(open);
    let store = Store::open(&path, &options(DomainChoice::Process).pool)?;
    let report = store.check(&mut |_| {});
    assert!(report.is_clean() && report.ownership_checked, "{report:?}");
    assert_eq!(report.objects.iter().map(|found| found.records).collect::<Vec<_>>(), [2]);
    store.drop_object("tables", Force::No)?;
    assert!(store.check(&mut |_| {}).is_clean() && store.names().is_empty());
    Ok(())
}

#[test]
fn each_damaged_byte_is_an_error_or_changes_nothing() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, copy) = (folder.path().join("a.pool"), folder.path().join("b.pool"));
    let mut small = DatabaseOptions { log_bytes: 16 << 10, segment_bytes: 4 << 10, ..options(DomainChoice::Process) };
    (small.pool.size_bytes, small.pool.journal_bytes) = (1 << 20, 128 << 10);
    for is_killed in [false, true] {
        let _ = std::fs::remove_file(&path);
        let open = Open::at(&path, &small)?;
        open.set(&[(1, 1), (2, 2)])?;
        open.set(&[(3, 3)])?;
        open.set(&[(1, 9)])?;
        let expected = open.all()?;
        let places: Vec<u64> = open.db.blocks().into_iter().map(|(at, _)| at.offset()).collect();
        if is_killed {
            // The open after the kill protects the last record, whatever becomes of its life.
            abandon(open);
            abandon(Open::at(&path, &small)?);
        } else {
            drop(open);
        }
        let bytes = std::fs::read(&path).expect("the pool");
        let (mut named, mut unchanged) = (0, 0);
        for (number, at) in places.into_iter().enumerate() {
            // The anchor, the directory of the log, and the beginning of the only segment that was used.
            let end = if number < 2 { 1024 } else { 512 + 6 * 64 };
            for offset in (at..at + end).step_by(if number < 2 { 29 } else { 5 }) {
                let mut damaged = bytes.clone();
                damaged[usize::try_from(offset).expect("small")] ^= 1 << (offset % 8);
                std::fs::write(&copy, &damaged).expect("a copy");
                match Open::at(&copy, &small).and_then(|open| open.all()) {
                    Ok(rows) => {
                        assert_eq!(rows, expected, "killed: {is_killed}, offset {offset:#x}");
                        unchanged += 1;
                    }
                    Err(error) => {
                        let text = error.to_string();
                        assert!(text.contains("b.pool") && text.contains(';'), "offset {offset:#x}: {text}");
                        let is_record = number >= 2 && offset >= at + 512;
                        assert!(is_record, "all else is there twice: offset {offset:#x}: {text}");
                        named += 1;
                    }
                }
            }
        }
        assert!(named > 30 && unchanged > 100, "killed: {is_killed}, {named} named, {unchanged} harmless");
    }
    Ok(())
}

fn abandon(open: Open) {
    let Open { db, table } = open;
    drop(table);
    db.abandon();
}

#[test]
fn a_check_names_a_damaged_copy_and_an_open_for_writing_mends_it() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let small = options(DomainChoice::Process);
    let open = Open::at(&path, &small)?;
    open.set(&[(1, 1)])?;
    let copies = open.db.copies();
    drop(open);
    for copy in copies {
        // The header line, the state line of the clock.
        for offset in [0, 256] {
            let mut bytes = std::fs::read(&path).expect("the pool");
            bytes[usize::try_from(copy.offset() + offset).expect("small") + 20] ^= 1;
            std::fs::write(&path, &bytes).expect("the pool");
            let report = Store::open_read_only(&path, &small.pool)?.check(&mut |_| {});
            assert!(report.is_clean() && format!("{report:?}").contains("the other copy is used"), "{report:?}");
            let store = Store::open_read_only(&path, &small.pool)?;
            assert_eq!(Database::open_in(&store, &small)?.recovery().copies_damaged, 1);
            drop(store);
            assert_eq!(Open::at(&path, &small)?.db.recovery().copies_damaged, 1);
            let report = Store::open_read_only(&path, &small.pool)?.check(&mut |_| {});
            assert!(!format!("{report:?}").contains("the other copy is used"), "{report:?}");
        }
    }
    Ok(())
}

#[test]
fn a_commit_leaves_checkpoints_to_the_thread_while_its_log_has_room() -> Result<()> {
    let fences = |checkpoint_thread| -> Result<u64> {
        let folder = tempfile::tempdir().expect("a folder");
        let mut small = DatabaseOptions { log_bytes: 1 << 20, checkpoint_thread, ..options(DomainChoice::DaxEmulated) };
        // In a pool that is nearly full, commits make them earlier.
        small.pool.size_bytes = 64 << 20;
        let open = Open::at(&folder.path().join("a.pool"), &small)?;
        let log = || open.db.stats().log;
        let mut fences = 0;
        for round in 0..20 {
            let scope = CounterScope::start();
            // A record has 64 bytes: an eighth of the logs.
            (0..2_000).try_for_each(|key| open.set(&[(key, round)]))?;
            fences += scope.delta().fences;
            let begun = Instant::now();
            while checkpoint_thread && (log().segments - log().segments_free) * 2 >= log().segments_max {
                assert!(begun.elapsed() < Duration::from_secs(60), "nobody makes a checkpoint: {:?}", log());
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(fences)
    };
    // One for each commit, and some for each of the 40 segments.
    let (with, without) = (fences(true)?, fences(false)?);
    assert!(with < 40_000 + 4 * 40, "{with}");
    assert!(without > with, "{without}: a commit makes checkpoints");
    Ok(())
}
