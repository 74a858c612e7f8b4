//! Commits with a record in the log of each of their tables: one fence, and all of them count or none.

use std::path::Path;

use lodestone_engine::{Database, DatabaseOptions, Error, FeedStart, LogPlacement, Result, Schema, Table, row};
use lodestone_pmem::{DomainChoice, PoolOptions, thread_counters};

fn options(folder: &Path) -> DatabaseOptions {
    let pool = PoolOptions {
        domain: DomainChoice::Process,
        size_bytes: 8 << 20,
        journal_bytes: 0,
        parts: vec![folder.join("a.pool.1")],
        virtual_nodes: 2,
        ..PoolOptions::default()
    };
    DatabaseOptions {
        pool,
        threads_max: 8,
        log_bytes: 1 << 20,
        segment_bytes: 32 << 10,
        log_placement: LogPlacement::ByTable,
        ..DatabaseOptions::default()
    }
}

fn open(folder: &Path, options: &DatabaseOptions) -> Result<(Database, [Table; 2])> {
    let db = Database::open_with(folder.join("a.pool"), options)?;
    let table = |part: u16| {
        let schema: Schema = format!("t{part} (k u64, v i64) key (k)").parse()?;
        db.create_table(&schema.in_part(part))
    };
    let tables = [table(0)?, table(1)?];
    Ok((db, tables))
}

fn both(db: &Database, tables: &[Table; 2], key: u64, value: i64) -> Result<()> {
    db.update(|tx| tables.iter().try_for_each(|table| table.put(tx, &row![key, value])))
}

fn values(db: &Database, tables: &[Table; 2], key: u64) -> Result<[Option<i64>; 2]> {
    db.update(|tx| {
        let value = |table: &Table| Ok::<_, Error>(table.get(tx, &row![key])?.and_then(|row| row[1].as_i64()));
        Ok([value(&tables[0])?, value(&tables[1])?])
    })
}

#[test]
fn a_commit_over_two_parts_has_one_fence_and_survives() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let options = options(folder.path());
    let (db, tables) = open(folder.path(), &options)?;
    // Segments are taken, and ticks reserved.
    (0..50).try_for_each(|key| both(&db, &tables, key, 1))?;
    let before = (thread_counters().fences, db.log_bytes());
    both(&db, &tables, 7, 2)?;
    assert_eq!(thread_counters().fences - before.0, 1);
    assert_eq!(db.log_bytes() - before.1, 2 * 128, "a record in each log");
    db.update(|tx| tables[1].put(tx, &row![8_u64, 3_i64]))?;
    drop(tables);
    db.abandon();
    let (db, tables) = open(folder.path(), &options)?;
    assert_eq!(values(&db, &tables, 7)?, [Some(2), Some(2)]);
    assert_eq!(values(&db, &tables, 8)?, [Some(1), Some(3)]);
    // Rounds truncate both logs, and a life with one log goes on.
    (0..3).try_for_each(|_| db.checkpoint().map(drop))?;
    both(&db, &tables, 7, 4)?;
    drop((tables, db));
    let (db, tables) = open(folder.path(), &DatabaseOptions { log_placement: LogPlacement::Home, ..options.clone() })?;
    assert_eq!(values(&db, &tables, 7)?, [Some(4), Some(4)]);
    both(&db, &tables, 9, 5)?;
    // The records of the life before are parts, of which a feed knows nothing.
    let mut feed = db.feed(&FeedStart::Oldest)?;
    assert!(matches!(feed.next_batch(), Err(Error::FeedLagged { .. })));
    Ok(())
}

#[test]
fn a_feed_is_refused() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let (db, _) = open(folder.path(), &options(folder.path()))?;
    let refused = db.feed(&FeedStart::Now).expect_err("records are parts");
    assert!(refused.to_string().contains("LogPlacement::Home"), "{refused}");
    Ok(())
}

#[test]
fn threads_over_few_writers_make_progress() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let options = DatabaseOptions { threads_max: 3, ..options(folder.path()) };
    let (db, tables) = open(folder.path(), &options)?;
    std::thread::scope(|scope| {
        let work = |thread: u64| {
            let (db, tables) = (&db, &tables);
            move || (0..200_u64).try_for_each(|turn| both(db, tables, (turn + thread) % 10, 1))
        };
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(work(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    assert_eq!(values(&db, &tables, 3)?, [Some(1), Some(1)]);
    drop(tables);
    db.abandon();
    let (db, tables) = open(folder.path(), &options)?;
    assert_eq!(values(&db, &tables, 3)?, [Some(1), Some(1)]);
    Ok(())
}

/// Rows of two ranges of one table are in two logs, with one fence, and survive together.
#[test]
fn rows_of_two_ranges_are_in_two_logs() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let options = options(folder.path());
    let (db, [table, _]) = open(folder.path(), &options)?;
    db.move_range("t0", row![1000_u64].., Some(1))?;
    let put = |key: u64, value: i64| {
        db.update(|tx| [key, key + 1000].into_iter().try_for_each(|key| table.put(tx, &row![key, value])))
    };
    (0..50).try_for_each(|key| put(key, 1))?;
    let before = (thread_counters().fences, db.log_bytes());
    put(7, 2)?;
    assert_eq!((thread_counters().fences - before.0, db.log_bytes() - before.1), (1, 2 * 128), "a record in each log");
    let before = db.log_bytes();
    db.update(|tx| [8_u64, 9].into_iter().try_for_each(|key| table.put(tx, &row![key, 3_i64])))?;
    assert_eq!(db.log_bytes() - before, 128, "both rows are in one range");
    drop(table);
    db.abandon();
    let (db, [table, _]) = open(folder.path(), &options)?;
    let value = |key: u64| db.update(|tx| Ok(table.get(tx, &row![key])?.and_then(|row| row[1].as_i64())));
    assert_eq!([value(7)?, value(1007)?, value(8)?], [Some(2), Some(2), Some(3)]);
    Ok(())
}
