//! Tables with rows in cells: the answers are those of a plain map, in every life; the cost is that of one row; damage
//! is named.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::{findings, options};
use lodestone_engine::{
    Database, DatabaseOptions, Durability, Error, FeedStart, Isolation, LogPlacement, Result, Row, Schema, Table, row,
};
use lodestone_pmem::{CopyOptions, CounterScope, DomainChoice, Pool};
use proptest::prelude::*;

const TEXT: &str = "d (k u64, v i64, text text null) key (k) index by_v (v)";

fn open(path: &Path, options: &DatabaseOptions) -> Result<(Database, Table)> {
    let db = Database::open_with(path, options)?;
    let table = db.create_table(&TEXT.parse::<Schema>()?.dual())?;
    Ok((db, table))
}

fn plain(db: &Database, name: &str) -> Result<Table> {
    db.create_table(&format!("{name} (k u64, v i64) key (k)").parse::<Schema>()?)
}

fn counters(db: &Database) -> Result<Table> {
    db.create_table(&"c (k u64, v i64) key (k)".parse::<Schema>()?.dual())
}

fn rows(db: &Database, table: &Table) -> Result<Vec<Row>> {
    db.update(|tx| table.range(tx, ..)?.collect::<Result<_>>())
}

#[test]
fn an_update_of_one_row_writes_that_row_and_nothing_else() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let db = Database::open_with(folder.path().join("a.pool"), &options(DomainChoice::DaxEmulated))?;
    let (table, other) = (counters(&db)?, plain(&db, "t")?);
    db.update(|tx| (0..4_u64).try_for_each(|key| table.insert(tx, &row![key, 0_i64])))?;
    db.update(|tx| other.put(tx, &row![0_u64, 0_i64]))?;
    // A version: 16 bytes of head, 16 about the row, 2 of schema version, 1 of bitmap, 8 of value: in a cell of two
    // lines. Records: 24 of head; for each row 12 of head, 8 of key, 9 about the cell, to a multiple of 8.
    for round in 0..3_i64 {
        for (keys, lines, record) in [(1_u64, 1_u64, 0_u64), (2, 2, 128), (4, 4, 192)] {
            let (scope, before) = (CounterScope::start(), db.log_bytes());
            db.update(|tx| (0..keys).try_for_each(|key| table.put(tx, &row![key, round])))?;
            let cost = scope.delta();
            assert_eq!((cost.fences, db.log_bytes() - before), (1, record), "{keys} rows, round {round}");
            assert_eq!(cost.flushes, lines + record / 64, "{keys} rows, round {round}");
        }
        let (scope, before) = (CounterScope::start(), db.log_bytes());
        db.update(|tx| table.put(tx, &row![0_u64, round]).and_then(|()| other.put(tx, &row![0_u64, round])))?;
        assert_eq!((scope.delta().fences, db.log_bytes() - before), (1, 128), "a row in a cell, and one in a page");
    }
    // The pages have addresses, and those are the same.
    db.checkpoint()?;
    db.update(|tx| table.put(tx, &row![3_u64, 7_i64]))?;
    let report = db.checkpoint()?;
    assert_eq!((report.images, report.lines), (0, 0), "{report:?}");
    Ok(())
}

/// Rows in cells, in pages with a bound for the cache, and in pages whose rows stay in DRAM: one transaction over all
/// of them has one fence, and all of it counts after a crash.
#[test]
fn a_transaction_over_all_placements_has_one_fence() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let options = DatabaseOptions { cache_bytes: Some(1 << 20), ..options(DomainChoice::DaxEmulated) };
    let value = |db: &Database, table: &Table, key: u64| -> Result<Option<i64>> {
        Ok(db.update(|tx| table.get(tx, &row![key]))?.and_then(|row| row[1].as_i64()))
    };
    let tables = |db: &Database| -> Result<[Table; 3]> {
        let kept: Schema = "m (k u64, v i64) key (k)".parse()?;
        Ok([counters(db)?, plain(db, "t")?, db.create_table(&kept.kept())?])
    };
    let db = Database::open_with(&path, &options)?;
    let all = tables(&db)?;
    assert!(all[0].schema().is_dual() && all[2].schema().is_kept() && !all[1].schema().is_kept());
    db.update(|tx| (0..50_u64).try_for_each(|key| all.iter().try_for_each(|table| table.put(tx, &row![key, 0_i64]))))?;
    db.checkpoint()?;
    for round in 1..4_i64 {
        let scope = CounterScope::start();
        db.update(|tx| {
            (0..3_u64).try_for_each(|key| all.iter().try_for_each(|table| table.put(tx, &row![key, round])))
        })?;
        assert_eq!(scope.delta().fences, 1, "round {round}");
    }
    drop(all);
    db.abandon();
    let db = Database::open_with(&path, &options)?;
    for table in &tables(&db)? {
        assert_eq!((value(&db, table, 2)?, value(&db, table, 3)?), (Some(3), Some(0)), "{}", table.schema());
    }
    Ok(())
}

#[test]
fn rows_come_back_from_their_cells_whatever_their_length() -> Result<()> {
    for domain in [DomainChoice::DaxEmulated, DomainChoice::Block] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pool");
        let options = options(domain);
        let (db, table) = open(&path, &options)?;
        for bytes in [0_usize, 7, 100, 1_000, 40, 5_000, 3, 900] {
            db.update(|tx| table.put(tx, &row![1_u64, 1_i64, "x".repeat(bytes)]))?;
            db.update(|tx| table.put(tx, &row![2_u64, 2_i64, "y".repeat(bytes / 3)]))?;
        }
        db.update(|tx| table.put(tx, &row![3_u64, 3_i64, "short"]))?;
        db.update(|tx| table.delete(tx, &row![2_u64]))?;
        drop((table, db));
        for _ in 0..2 {
            let (db, table) = open(&path, &options)?;
            assert!(table.schema().is_dual());
            assert_eq!(rows(&db, &table)?, [row![1_u64, 1_i64, "x".repeat(900)], row![3_u64, 3_i64, "short"]]);
            db.checkpoint()?;
        }
        assert_eq!(findings(&path, &options), Vec::<String>::new());
    }
    Ok(())
}

/// Changes of one transaction.
#[derive(Clone, Debug)]
enum Change {
    Put(u64, i64, usize),
    Delete(u64),
    /// Of the table beside it.
    Beside(u64, i64),
}

#[derive(Clone, Debug)]
enum Life {
    Update(Vec<Change>, bool),
    Checkpoint,
    Reopen,
    /// The database is abandoned, and a copy of its file goes on.
    Kill,
}

fn life() -> impl Strategy<Value = Life> {
    let change = prop_oneof![
        4 => (0..6_u64, any::<i8>(), prop_oneof![Just(0_usize), Just(30), Just(400)])
            .prop_map(|(key, value, bytes)| Change::Put(key, value.into(), bytes)),
        2 => (0..6_u64).prop_map(Change::Delete),
        1 => (0..3_u64, any::<i8>()).prop_map(|(key, value)| Change::Beside(key, value.into())),
    ];
    prop_oneof![
        8 => (prop::collection::vec(change, 1..4), prop::bool::weighted(0.1))
            .prop_map(|(changes, fails)| Life::Update(changes, fails)),
        1 => Just(Life::Checkpoint),
        1 => Just(Life::Reopen),
        1 => Just(Life::Kill),
    ]
}

type Model = (BTreeMap<u64, (i64, usize)>, BTreeMap<u64, i64>);

fn apply(db: &Database, tables: &[Table; 2], changes: &[Change], fails: bool) -> Result<()> {
    db.update(|tx| {
        for change in changes {
            match change {
                Change::Put(key, value, bytes) => tables[0].put(tx, &row![*key, *value, "z".repeat(*bytes)])?,
                Change::Delete(key) => drop(tables[0].delete(tx, &row![*key])?),
                Change::Beside(key, value) => tables[1].put(tx, &row![*key, *value])?,
            }
        }
        if fails { Err(Error::cancelled("on request")) } else { Ok(()) }
    })
}

fn model(model: &mut Model, changes: &[Change]) {
    for change in changes {
        match change {
            Change::Put(key, value, bytes) => drop(model.0.insert(*key, (*value, *bytes))),
            Change::Delete(key) => drop(model.0.remove(key)),
            Change::Beside(key, value) => drop(model.1.insert(*key, *value)),
        }
    }
}

fn is_like(db: &Database, tables: &[Table; 2], model: &Model) -> Result<()> {
    let expected: Vec<Row> =
        model.0.iter().map(|(key, (value, bytes))| row![*key, *value, "z".repeat(*bytes)]).collect();
    assert_eq!(rows(db, &tables[0])?, expected);
    let expected: Vec<Row> = model.1.iter().map(|(key, value)| row![*key, *value]).collect();
    assert_eq!(rows(db, &tables[1])?, expected);
    // The index is looked at by the check.
    let by_v = tables[0].index("by_v")?;
    assert_eq!(db.update(|tx| Ok(by_v.range(tx, ..)?.count()))?, model.0.len());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_rows_are_those_of_a_map_in_every_life(lives in prop::collection::vec(life(), 1..30)) {
        let folder = tempfile::tempdir().expect("a folder");
        let options = DatabaseOptions { warm_up: false, ..options(DomainChoice::DaxEmulated) };
        let (mut file, mut known) = (0, Model::default());
        let path = |file: i32| folder.path().join(format!("{file}.pool"));
        let open = |path: &Path| -> Result<(Database, [Table; 2])> {
            let (db, table) = open(path, &options)?;
            let beside = plain(&db, "beside")?;
            Ok((db, [table, beside]))
        };
        let (mut db, mut tables) = open(&path(file))?;
        for life in &lives {
            match life {
                Life::Update(changes, fails) => {
                    let done = apply(&db, &tables, changes, *fails);
                    prop_assert_eq!(done.is_err(), *fails);
                    if !fails {
                        model(&mut known, changes);
                    }
                }
                Life::Checkpoint => drop(db.checkpoint()?),
                Life::Reopen => {
                    drop((tables, db));
                    (db, tables) = open(&path(file))?;
                }
                Life::Kill => {
                    file += 1;
                    std::fs::copy(path(file - 1), path(file)).expect("a copy");
                    drop((tables, db));
                    (db, tables) = open(&path(file))?;
                }
            }
            is_like(&db, &tables, &known)?;
        }
        drop((tables, db));
        prop_assert_eq!(findings(&path(file), &options), Vec::<String>::new());
    }
}

#[test]
fn threads_move_money_between_cells_and_none_is_lost() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let options = options(DomainChoice::DaxEmulated);
    let db = Database::open_with(&path, &options)?;
    let table = counters(&db)?;
    db.update(|tx| (0..8_u64).try_for_each(|key| table.insert(tx, &row![key, 100_i64])))?;
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (db, table, is_done) = (&db, &table, &is_done);
        let movers: Vec<_> = (0..3_u64)
            .map(|mover| {
                scope.spawn(move || {
                    for turn in 0..300_u64 {
                        let (from, to) = ((mover + turn * 7) % 8, (mover * 3 + turn * 5 + 1) % 8);
                        let moved = db.update(|tx| {
                            let take = |key: u64, cents: i64| {
                                let now = table.get(tx, &row![key])?.map_or(0, |row| row[1].as_i64().unwrap_or(0));
                                table.update(tx, &row![key, now + cents])
                            };
                            take(from, -1)?;
                            take(to, 1)
                        });
                        moved.expect("a transfer");
                    }
                })
            })
            .collect();
        scope.spawn(move || {
            while !is_done.load(Ordering::Relaxed) {
                let seen = db.snapshot().expect("a snapshot");
                let sum = |rows: &mut dyn Iterator<Item = Result<Row>>| {
                    rows.map(|row| row.expect("a row")[1].as_i64().unwrap_or(0)).sum::<i64>()
                };
                assert_eq!(sum(&mut table.range(&seen, ..).expect("a range")), 800);
                db.checkpoint().expect("a checkpoint");
            }
        });
        movers.into_iter().for_each(|mover| mover.join().expect("a mover"));
        is_done.store(true, Ordering::Relaxed);
    });
    let copy = folder.path().join("b.pool");
    std::fs::copy(&path, &copy).expect("a copy");
    drop((table, db));
    for path in [path, copy] {
        let db = Database::open_with(&path, &options)?;
        let sum: i64 = rows(&db, &counters(&db)?)?.iter().map(|row| row[1].as_i64().unwrap_or(0)).sum();
        assert_eq!(sum, 800);
    }
    Ok(())
}

#[test]
fn cells_serve_again_after_deletions_and_dropped_tables() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let options = options(DomainChoice::Process);
    let db = Database::open_with(&path, &options)?;
    let table = counters(&db)?;
    let fill = |db: &Database, table: &Table| {
        db.update(|tx| (0..200_u64).try_for_each(|key| table.put(tx, &row![key, 1_i64])))
    };
    let bytes = |db: &Database| db.store().heap().usage().bytes_used;
    fill(&db, &table)?;
    // Rows come back to other cells, so the pages with their addresses are written anew: until there is room
    // for those of two checkpoints.
    let mut full = 0;
    for round in 0..12 {
        db.update(|tx| (0..200_u64).try_for_each(|key| table.delete(tx, &row![key]).map(drop)))?;
        fill(&db, &table)?;
        db.checkpoint()?;
        if round < 6 {
            full = bytes(&db);
        }
    }
    assert_eq!(bytes(&db), full);
    drop(table);
    db.drop_table("c")?;
    db.checkpoint()?;
    db.checkpoint()?;
    db.checkpoint()?;
    drop(db);
    let db = Database::open_with(&path, &options)?;
    let table = counters(&db)?;
    fill(&db, &table)?;
    db.checkpoint()?;
    db.checkpoint()?;
    assert!(bytes(&db) <= full, "{} and {full}", bytes(&db));
    Ok(())
}

/// All versions of a life have one tick in pages. So a page that this life has written must take the new address of a
/// row that went to another cell, while all else of it stays.
#[test]
fn a_row_that_went_to_another_cell_is_found_there_after_checkpoints() -> Result<()> {
    for domain in [DomainChoice::DaxEmulated, DomainChoice::Process, DomainChoice::Block] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pool");
        let open = || Database::open_with(&path, &options(domain)).and_then(|db| Ok((counters(&db)?, db)));
        let (table, db) = open()?;
        db.update(|tx| (0..200_u64).try_for_each(|key| table.put(tx, &row![key, 1_i64])))?;
        db.checkpoint()?;
        // The cells that became free last serve first, so each of these rows is in that of another one then. After two
        // more checkpoints nothing of it is left in the log.
        for keys in [10..20_u64, 110..120, 180..190] {
            db.update(|tx| keys.clone().try_for_each(|key| table.delete(tx, &row![key]).map(drop)))?;
            db.update(|tx| keys.clone().try_for_each(|key| table.put(tx, &row![key, 2_i64])))?;
            db.checkpoint()?;
        }
        let expected = rows(&db, &table)?;
        drop(table);
        db.abandon();
        let (table, db) = open()?;
        assert_eq!(rows(&db, &table)?, expected);
        drop((db, table));
        assert!(findings(&path, &options(domain)).is_empty());
    }
    Ok(())
}

#[test]
fn a_small_cache_and_a_killed_life_change_nothing() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |number: u64| folder.path().join(format!("{number}.pool"));
    let options = DatabaseOptions { cache_bytes: Some(64 << 10), ..options(DomainChoice::DaxEmulated) };
    let mut expected: BTreeMap<u64, i64> = BTreeMap::new();
    for life in 0..3_u64 {
        let db = Database::open_with(path(life), &options)?;
        let (table, beside) = (counters(&db)?, plain(&db, "t")?);
        let set = |key: u64, value: u64| db.update(|tx| table.put(tx, &row![key, value.cast_signed()]));
        for turn in 0..3 {
            for key in (0..400).filter(|key| (key + life) % 3 == turn) {
                set(key, life * 10 + turn)?;
                expected.insert(key, (life * 10 + turn).cast_signed());
            }
            db.checkpoint()?;
            // It drives out what may go.
            db.update(|tx| (0..1_000_u64).try_for_each(|key| beside.put(tx, &row![key, 1_i64])))?;
            db.checkpoint()?;
            assert_eq!(db.update(|tx| Ok(beside.range(tx, ..)?.count()))?, 1_000);
            let all: Vec<Row> = expected.iter().map(|(key, value)| row![*key, *value]).collect();
            assert_eq!(rows(&db, &table)?, all, "life {life}");
        }
        std::fs::copy(path(life), path(life + 1)).expect("a copy");
    }
    Ok(())
}

#[test]
fn a_damaged_cell_is_named_and_nothing_wrong_is_read() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let options = options(DomainChoice::Process);
    let db = Database::open_with(&path, &options)?;
    let table = counters(&db)?;
    db.update(|tx| table.insert(tx, &row![7_u64, 0x5157_u64.cast_signed()]))?;
    db.update(|tx| table.insert(tx, &row![8_u64, 1_i64]))?;
    db.checkpoint()?;
    db.checkpoint()?;
    drop((table, db));
    let mut bytes = std::fs::read(&path).expect("the pool");
    let (tree, value) = ((1_u32 << 30) | 16, 0x5157_u64.to_le_bytes());
    let place = bytes.windows(8).enumerate().find(|(at, window)| {
        // The value lies after two words about the row, the schema version and a bitmap.
        *window == value && at.checked_sub(7).is_some_and(|at| bytes[at..at + 4] == tree.to_le_bytes()) || {
            *window == value && bytes[at.saturating_sub(32)..*at].windows(4).any(|found| found == tree.to_le_bytes())
        }
    });
    let place = place.expect("the value is in a cell").0;
    bytes[place] ^= 1;
    std::fs::write(&path, &bytes).expect("written");
    let found = findings(&path, &options);
    assert!(found.iter().any(|text| text.contains("cell") && text.contains("fails its checksum")), "{found:?}");
    let db = Database::open_with(&path, &options)?;
    let table = counters(&db)?;
    let read = db.update(|tx| table.get(tx, &row![7_u64]));
    assert!(matches!(&read, Err(Error::Damaged { what: "cell", .. })), "{read:?}");
    Ok(())
}

#[test]
fn a_feed_and_a_backup_have_the_rows() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let options = DatabaseOptions { deltas: false, ..options(DomainChoice::Process) };
    let db = Database::open_with(folder.path().join("a.pool"), &options)?;
    let table = counters(&db)?;
    db.update(|tx| table.insert(tx, &row![1_u64, 1_i64]))?;
    let mut feed = db.feed(&FeedStart::Now)?;
    db.update(|tx| table.put(tx, &row![1_u64, 2_i64]))?;
    db.update(|tx| table.insert(tx, &row![2_u64, 3_i64]))?;
    db.update(|tx| table.delete(tx, &row![1_u64]))?;
    let changes: Vec<_> =
        feed.next_batch()?.transactions.into_iter().flat_map(|found| found.changes).map(|found| found.row).collect();
    assert_eq!(changes, [Some(row![1_u64, 2_i64]), Some(row![2_u64, 3_i64]), None]);
    let position = feed.position();
    drop(feed);
    // Where feeds are to go on, records have the rows also without one.
    db.update(|tx| table.put(tx, &row![2_u64, 30_i64]))?;
    let next = db.feed(&FeedStart::After(position))?.next_batch()?;
    assert_eq!(next.transactions[0].changes[0].row, Some(row![2_u64, 30_i64]));
    let target = folder.path().join("b.pool");
    db.update(|tx| table.put(tx, &row![2_u64, 4_i64]))?;
    db.backup(&target, &CopyOptions::default())?;
    db.update(|tx| table.put(tx, &row![2_u64, 5_i64]))?;
    let copy = Database::open_with(&target, &options)?;
    assert_eq!(rows(&copy, &counters(&copy)?)?, [row![2_u64, 4_i64]]);
    Ok(())
}

#[test]
fn a_feed_that_lacks_an_update_without_a_record_says_so() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let db = Database::open_with(folder.path().join("a.pool"), &options(DomainChoice::Process))?;
    let table = counters(&db)?;
    let put = |value: i64| db.update(|tx| table.put(tx, &row![1_u64, value]));
    put(1)?;
    put(2)?;
    for is_checkpoint_between in [false, true] {
        let mut feed = db.feed(&FeedStart::Now)?;
        put(3)?;
        assert_eq!(feed.next_batch()?.transactions.len(), 1);
        let position = feed.position();
        drop(feed);
        let before = db.log_bytes();
        put(4)?;
        let first = db.log_bytes() - before;
        put(5)?;
        assert_eq!((first, db.log_bytes() - before), (64, 64), "the first one after a cut has a record");
        if is_checkpoint_between {
            db.checkpoint()?;
        }
        let found = db.feed(&FeedStart::After(position)).and_then(|mut feed| feed.next_batch());
        assert!(matches!(found, Err(Error::FeedLagged { .. })), "{found:?}");
        let found = db.feed(&FeedStart::Oldest).and_then(|mut feed| feed.next_batch());
        assert!(matches!(found, Err(Error::FeedLagged { .. })), "{found:?}");
    }
    Ok(())
}

#[test]
fn all_levels_and_ways_of_commit_serve() -> Result<()> {
    for (log_placement, early_release) in [(LogPlacement::Home, false), (LogPlacement::ByTable, true)] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pool");
        let options =
            DatabaseOptions { log_placement, log_groups: 2, early_release, ..options(DomainChoice::DaxEmulated) };
        let db = Database::open_with(&path, &options)?;
        let (table, other) = (counters(&db)?, plain(&db, "t")?);
        for level in
            [Isolation::Serializable, Isolation::SerializableOnSnapshot, Isolation::Snapshot, Isolation::ReadCommitted]
        {
            let tx = db.begin_with(level);
            let before = table.get(&tx, &row![1_u64])?.map_or(0, |row| row[1].as_i64().unwrap_or(0));
            table.put(&tx, &row![1_u64, before + 1])?;
            other.put(&tx, &row![1_u64, before + 1])?;
            tx.commit()?;
        }
        drop((table, other, db));
        let db = Database::open_with(&path, &options)?;
        assert_eq!(rows(&db, &counters(&db)?)?, [row![1_u64, 4_i64]]);
        assert_eq!(rows(&db, &plain(&db, "t")?)?, [row![1_u64, 4_i64]]);
    }
    Ok(())
}

/// As a version before cells made it.
fn make_old(path: &Path) {
    let mut bytes = std::fs::read(path).expect("the pool");
    let places: Vec<usize> =
        bytes.windows(8).enumerate().filter(|(_, it)| *it == b"LDSTDB\0\0").map(|it| it.0).collect();
    assert_eq!(places.len(), 2, "two halves");
    for at in places {
        bytes[at + 8] = 3;
        bytes[at + 44..at + 60].fill(0);
        let crc = crc32c::crc32c(&bytes[at..at + 60]);
        bytes[at + 60..at + 64].copy_from_slice(&crc.to_le_bytes());
    }
    std::fs::write(path, bytes).expect("written");
}

#[test]
fn a_database_of_an_earlier_version_goes_on_without_cells() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let options = options(DomainChoice::Process);
    let db = Database::open_with(&path, &options)?;
    let table = plain(&db, "t")?;
    db.update(|tx| table.put(tx, &row![1_u64, 1_i64]))?;
    drop((table, db));
    make_old(&path);
    for turn in 1..3_i64 {
        let db = Database::open_with(&path, &options)?;
        let table = plain(&db, "t")?;
        assert_eq!(rows(&db, &table)?, [row![1_u64, turn]]);
        db.update(|tx| table.put(tx, &row![1_u64, turn + 1]))?;
        let error = counters(&db).map(drop).expect_err("it has no cells");
        assert!(matches!(error, Error::OlderDatabase), "{error}");
    }
    Ok(())
}

#[test]
fn what_cells_do_not_serve_is_refused_by_name() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let by_epochs = DatabaseOptions { durability: Durability::EPOCH, ..options(DomainChoice::Process) };
    let schema = || Ok::<_, Error>("c (k u64, v i64) key (k)".parse::<Schema>()?.dual());
    let db = Database::open_with(&path, &by_epochs)?;
    let error = db.create_table(&schema()?).expect_err("no cells with epochs").to_string();
    assert!(error.contains("group commit"), "{error}");
    drop(db);
    let db = Database::open_with(&path, &options(DomainChoice::Process))?;
    let error = db.load_table(&schema()?, [Ok(row![1_u64, 1_i64])]).expect_err("no load").to_string();
    assert!(error.contains("cells") && error.contains("transactions"), "{error}");
    let table = counters(&db)?;
    db.update(|tx| table.put(tx, &row![1_u64, 1_i64]))?;
    drop((table, db));
    let error = Database::open_with(&path, &by_epochs).map(drop).expect_err("it has cells").to_string();
    assert!(error.contains("durability"), "{error}");
    // Read-only after a kill: the same rows, and nothing is changed.
    let before = std::fs::read(&path).expect("the pool");
    let pool = Pool::open_read_only(&path, &options(DomainChoice::Process).pool)?;
    let store = lodestone_store::Store::over(&pool)?;
    let db = Database::open_in(&store, &options(DomainChoice::Process))?;
    let table = db.table("c")?;
    assert_eq!(rows(&db, &table)?, [row![1_u64, 1_i64]]);
    drop((table, db, store, pool));
    assert!(std::fs::read(&path).expect("the pool") == before);
    Ok(())
}
