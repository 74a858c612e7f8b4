//! Bulk load: random rows beside a map, in this life and the next ones; each way in which it can fail; ends of the
//! process before and after its pages count; and other work beside it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Open, options};
use lodestone_engine::{
    Database, DatabaseOptions, Durability, Error, FeedStart, Index, Result, Row, Schema, Table, Type, row,
};
use lodestone_pmem::storage::{Failing, FaultPlan};
use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_store::Store;
use proptest::prelude::*;

/// Long values have pieces.
fn small() -> DatabaseOptions {
    DatabaseOptions { inline_bytes_max: 40, piece_bytes: 16, ..options(DomainChoice::Process) }
}

fn schema() -> Schema {
    schema_of("users")
}

fn schema_of(table: &str) -> Schema {
    let columns = "(name text, town text, mail text null, note bytes)";
    let text = format!("{table} {columns} key (name) index by_town (town) unique by_mail (mail)");
    text.parse().expect("a schema")
}

type Model = BTreeMap<String, Row>;

fn rows() -> impl Strategy<Value = Model> {
    let row = (prop::option::of(0..60_u8), 0..4_u8, prop_oneof![3 => 0..20_usize, 1 => 40..200_usize]);
    prop::collection::btree_map("[a-d\0]{1,6}", row, 0..80).prop_map(|rows| {
        let mut mails = std::collections::BTreeSet::new();
        let row = |(name, (mail, town, note)): (String, (Option<u8>, u8, usize))| {
            let mail = mail.filter(|mail| mails.insert(*mail)).map(|mail| format!("{mail}@example.org"));
            let row = row![name.as_str(), format!("town {town}"), mail, vec![town; note]];
            (name, row)
        };
        rows.into_iter().map(row).collect()
    })
}

/// Compares the table and its indexes with the model.
fn compare(db: &Database, model: &Model) -> Result<()> {
    let table = db.table("users")?;
    let of_town = |town: &str| model.values().filter(|row| row[1].as_text() == Some(town)).cloned().collect::<Vec<_>>();
    let (by_town, by_mail) = (table.index("by_town")?, table.index("by_mail")?);
    db.update(|tx| {
        assert_eq!(table.range(tx, ..)?.collect::<Result<Vec<_>>>()?, model.values().cloned().collect::<Vec<_>>());
        for (name, row) in model {
            assert_eq!(table.get(tx, &row![name.as_str()])?.as_ref(), Some(row));
            if let Some(mail) = row[2].as_text() {
                assert_eq!(by_mail.get(tx, &row![mail])?.as_ref(), Some(row));
            }
        }
        assert_eq!(table.get(tx, &row!["x"])?, None);
        for town in 0..4 {
            let town = format!("town {town}");
            let found = by_town.range(tx, row![town.as_str()]..=row![town.as_str()])?.collect::<Result<Vec<_>>>()?;
            assert_eq!(found, of_town(&town));
        }
        assert_eq!(by_mail.range(tx, ..)?.count(), model.len());
        Ok(())
    })
}

/// After three checkpoints only the images of tables have pages: those of a dropped tree end with the second one.
fn no_page_is_lost(db: &Database) -> Result<()> {
    (0..3).try_for_each(|_| db.checkpoint().map(drop))?;
    let stats = db.page_stats();
    assert_eq!(stats.pages - stats.pages_free, db.pages_in_use()?);
    Ok(())
}

fn findings(path: &Path) -> Result<Vec<String>> {
    let report = Store::open_read_only(path, &small().pool)?.check(&mut |_| {});
    Ok(report.findings.iter().map(|found| format!("{found:?}")).collect())
}

/// Changes of rows that were loaded, as transactions make them.
fn change(db: &Database, model: &mut Model) -> Result<()> {
    let table = db.table("users")?;
    let names: Vec<_> = model.keys().cloned().collect();
    for (number, name) in names.iter().enumerate() {
        let changed = row![name.as_str(), "town 1", None::<&str>, vec![9_u8; number * 10]];
        match number % 4 {
            0 => db.update(|tx| table.delete(tx, &row![name.as_str()]).map(|_| ()))?,
            1 => db.update(|tx| table.put(tx, &changed))?,
            2 => {
                let added = row![format!("{name}z"), "town 2", None::<&str>, vec![7_u8; 3]];
                if model.contains_key(&format!("{name}z")) {
                    continue;
                }
                db.update(|tx| table.insert(tx, &added))?;
                model.insert(format!("{name}z"), added);
                continue;
            }
            _ => continue,
        }
        model.remove(name);
        if number % 4 == 1 {
            model.insert(name.clone(), changed);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_loaded_table_has_its_rows_in_all_lives(
        model in rows(),
        order in any::<u64>(),
        is_block in any::<bool>(),
        is_closed in any::<bool>(),
        is_checkpointed in any::<bool>(),
        buffer in prop::sample::select(vec![64 << 20, 1, 300, 4000_usize]),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pool");
        let mut options = small();
        if is_block {
            options.pool.domain = DomainChoice::Block;
        }
        options.load_buffer_bytes = buffer;
        let mut model = model;
        let db = Database::open_with(&path, &options)?;
        let mut rows: Vec<_> = model.values().cloned().collect();
        // 0: in the order of the keys.
        let count = rows.len().max(1);
        rows.rotate_left(usize::try_from(order % 7).unwrap_or(0) % count);
        db.load_table(&schema(), rows.into_iter().map(Ok))?;
        compare(&db, &model)?;
        if is_checkpointed {
            no_page_is_lost(&db)?;
        }
        if is_closed { drop(db) } else { db.abandon() }
        let db = Database::open_with(&path, &options)?;
        compare(&db, &model)?;
        change(&db, &mut model)?;
        compare(&db, &model)?;
        if !is_checkpointed {
            no_page_is_lost(&db)?;
        }
        if is_closed { drop(db) } else { db.abandon() }
        prop_assert_eq!(findings(&path)?, Vec::<String>::new());
        let db = Database::open_with(&path, &options)?;
        compare(&db, &model)?;
        db.drop_table("users")?;
        no_page_is_lost(&db)?;
    }
}

fn user(number: u64) -> Row {
    let number = number * 7919 % 1000;
    row![format!("user {number}"), format!("town {}", number % 4), format!("{number}@example.org"), vec![3_u8; 50]]
}

fn users(count: u64) -> impl Iterator<Item = Result<Row>> {
    (0..count).map(|number| Ok(user(number)))
}

#[test]
fn after_an_error_nothing_is_there() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let db = Database::open_with(&path, &small())?;
    let other = db.create_table(&"other (k u64) key (k)".parse()?)?;
    let error = db.load_table(&schema(), users(100).chain([Ok(user(50))])).expect_err("a key that is there twice");
    let text = "table `users` has a row with the key (\"user 950\") already";
    assert!(error.to_string().starts_with(text), "{error}");
    let same_mail = row!["a", "b", "0@example.org", vec![0_u8]];
    match db.load_table(&schema(), users(100).chain([Ok(same_mail)])) {
        Err(Error::Duplicate { table, index: Some(index), key }) => {
            assert_eq!((&*table, &*index, &*key), ("users", "by_mail", "(\"0@example.org\")"));
        }
        outcome => panic!("{outcome:?}"),
    }
    let wrong = |row: Row| db.load_table(&schema(), users(100).chain([Ok(row)])).expect_err("a wrong row");
    assert!(matches!(wrong(row!["a", "b", "c", 7_u64]), Error::WrongType { .. }));
    assert!(matches!(wrong(row!["a", "b"]), Error::WrongLength { .. }));
    assert!(matches!(wrong(row!["a".repeat(1000), "b", "c", vec![0_u8]]), Error::TooLarge { .. }));
    let cancelled = users(100).chain([Err(Error::cancelled("line 101"))]);
    assert!(matches!(db.load_table(&schema(), cancelled), Err(Error::Cancelled { .. })));
    let nested = db.update(|tx| {
        other.get(tx, &row![1_u64])?;
        db.load_table(&schema(), users(1)).map(|_| ())
    });
    assert!(matches!(nested, Err(Error::Nested)), "{nested:?}");
    assert!(matches!(db.load_table(&"other (k u64) key (k)".parse()?, []), Err(Error::TableExists { .. })));
    let no_key = Schema::new("t").column("k", Type::U64).key(["j"]);
    assert!(matches!(db.load_table(&no_key, []), Err(Error::BadSchema { .. })));
    assert_eq!(db.tables()?, ["other"]);
    no_page_is_lost(&db)?;
    db.load_table(&schema(), users(100))?;
    assert!(matches!(db.load_table(&schema(), users(1)), Err(Error::TableExists { .. })));
    drop((other, db));
    assert_eq!(findings(&path)?, Vec::<String>::new());
    let db = Database::open_in(&Store::open_read_only(&path, &small().pool)?, &small())?;
    assert!(matches!(db.load_table(&"t (k u64) key (k)".parse()?, []), Err(Error::ReadOnly { .. })));
    Ok(())
}

/// The rows of a load that is too large leave the pool as it was.
#[test]
fn a_full_pool_stays_usable() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let pool = PoolOptions { size_bytes: 4 << 20, journal_bytes: 256 << 10, ..small().pool };
    let options = DatabaseOptions { pool, ..small() };
    let open = Open::at(&path, &options)?;
    open.set(&[(1, 1)])?;
    let (before, free) = (open.db.page_stats(), open.db.store().heap().usage().chunks_free);
    let large = (0..100_000_u64).map(|number| Ok(row![format!("{number:06}"), "a", None::<&str>, vec![1_u8; 30]]));
    let error = open.db.load_table(&schema(), large).expect_err("it does not fit");
    assert!(error.is_full(), "{error}");
    let after = (open.db.page_stats(), open.db.store().heap().usage().chunks_free);
    assert_eq!((before, free), after, "nothing was taken");
    assert_eq!(open.db.tables()?, ["t"]);
    // Loads until the pool is full leave room for the logs.
    let mut loaded = 0;
    let error = loop {
        match open.db.load_table(&schema_of(&format!("users_{loaded}")), users(500)) {
            Ok(_) => loaded += 1,
            Err(error) => break error,
        }
    };
    assert!(error.is_full() && loaded > 1, "{loaded} tables, {error}");
    // More than all segments of the log that a pool without room could have.
    (0..2_000).try_for_each(|value| open.set(&(0..50).map(|key| (key, value)).collect::<Vec<_>>()))?;
    open.db.drop_table("users_0")?;
    no_page_is_lost(&open.db)?;
    open.db.load_table(&schema(), users(300))?;
    drop(open);
    let open = Open::at(&path, &options)?;
    assert_eq!((open.db.tables()?.len(), open.all()?.len()), (loaded + 1, 50));
    Ok(())
}

/// The process ends while the rows are read: no page of them counts.
#[test]
fn an_end_before_the_pages_count_leaves_nothing() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let db = Database::open_with(&path, &small())?;
    let killed = db.clone();
    let mut killed = Some(killed);
    let rows = users(200).inspect(|row| {
        if row.as_ref().is_ok_and(|row| *row == user(150)) {
            killed.take().into_iter().for_each(Database::abandon);
        }
    });
    assert!(matches!(db.load_table(&schema(), rows), Err(Error::Poisoned { .. })));
    drop(db);
    assert_eq!(findings(&path)?, Vec::<String>::new());
    let db = Database::open_with(&path, &small())?;
    assert!(db.tables()?.is_empty());
    no_page_is_lost(&db)?;
    db.load_table(&schema(), users(200))?;
    no_page_is_lost(&db)
}

/// The pages count, and the catalog does not have the table: another thread has made one of its name. Goes on, or ends.
fn loses_the_race_for_the_name(ends: bool) -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let mut db = Database::open_with(&path, &small())?;
    let batches = db.page_stats().batches;
    let rows = users(200).map(|row| db.create_table(&schema()).and(row));
    assert!(matches!(db.load_table(&schema(), rows), Err(Error::TableExists { .. })));
    assert_eq!(db.page_stats().batches, batches + 2, "the pages were published");
    let stats = db.page_stats();
    assert!(stats.pages - stats.pages_free > 20, "{stats:?}");
    if ends {
        db.abandon();
        assert_eq!(findings(&path)?, Vec::<String>::new());
        db = Database::open_with(&path, &small())?;
    }
    let table = db.table("users")?;
    assert_eq!(db.update(|tx| Ok(table.range(tx, ..)?.count()))?, 0);
    no_page_is_lost(&db)?;
    assert!(db.pages_in_use()? <= 3, "the catalog has pages");
    db.drop_table("users")?;
    db.load_table(&schema(), users(200))?;
    no_page_is_lost(&db)?;
    drop((table, db));
    let db = Database::open_with(&path, &small())?;
    let named = |number| (format!("user {}", number * 7919 % 1000), user(number));
    compare(&db, &(0..200).map(named).collect())
}

#[test]
fn an_end_after_the_pages_count_frees_them() -> Result<()> {
    loses_the_race_for_the_name(true)
}

#[test]
fn pages_of_a_load_that_fails_at_last_are_freed() -> Result<()> {
    loses_the_race_for_the_name(false)
}

#[test]
fn a_feed_is_told_that_it_lacks_the_rows() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let db = Database::open_with(folder.path().join("a.pool"), &DatabaseOptions { deltas: false, ..small() })?;
    let mut feed = db.feed(&FeedStart::Now)?;
    let refused = db.load_table(&schema(), users(10));
    assert!(matches!(&refused, Err(Error::FeedOpen { table }) if table == "users"), "{refused:?}");
    // Other changes of tables are no loads.
    db.create_table(&"t (k u64, v u64) key (k) index by_v (v)".parse()?)?;
    db.create_index("t", &Index::new("by_both", ["v", "k"]))?;
    db.drop_index("t", "by_v")?;
    let table = db.rename_table("t", "s")?;
    db.update(|tx| table.put(tx, &row![1_u64, 2_u64]))?;
    feed.next_batch()?;
    db.drop_table("s")?;
    let position = feed.next_batch()?.position;
    drop(feed);
    let users = db.load_table(&schema(), users(10))?;
    for start in [FeedStart::After(position), FeedStart::Oldest] {
        let outcome = db.feed(&start)?.next_batch();
        assert!(matches!(outcome, Err(Error::FeedLagged { .. })), "{outcome:?}");
    }
    let mut feed = db.feed(&FeedStart::Now)?;
    db.update(|tx| users.put(tx, &row!["a", "b", None::<&str>, vec![0_u8]]))?;
    assert_eq!(feed.next_batch()?.transactions.len(), 1);
    Ok(())
}

#[test]
fn a_snapshot_before_the_load_does_not_see_the_table() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let db = Database::open_with(folder.path().join("a.pool"), &small())?;
    let (before, tx) = (db.snapshot()?, db.begin());
    let table = db.load_table(&schema(), users(10))?;
    assert!(matches!(table.get(&before, &row!["user 0"]), Err(Error::TableChanged { .. })));
    assert!(table.get(&db.snapshot()?, &row!["user 0"])?.is_some());
    assert!(table.get(&tx, &row!["user 0"])?.is_some(), "it read nothing before the load");
    tx.commit()
}

/// Rows that come in no order, and many more than fit in memory.
#[test]
fn a_load_needs_little_memory() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let options = DatabaseOptions { load_buffer_bytes: 20_000, cache_bytes: Some(100_000), ..small() };
    let db = Database::open_with(&path, &options)?;
    let shuffled = |number: u64| number * 7919 % 20_011;
    let rows = (0..20_000).map(|number| Ok(row![shuffled(number), number % 7, "a text of some length"]));
    let schema: Schema = "t (k u64, v u64, w text) key (k) index by_v (v)".parse()?;
    let table = db.load_table(&schema, rows)?;
    let by_v = table.index("by_v")?;
    let check = |db: &Database, table: &Table| {
        let snapshot = db.snapshot()?;
        let mut expected: Vec<_> = (0..20_000).map(|number| (shuffled(number), number % 7)).collect();
        expected.sort_unstable();
        let found = table.range(&snapshot, ..)?.map(|row| row.map(|row| (row[0].as_u64(), row[1].as_u64())));
        assert!(found.collect::<Result<Vec<_>>>()?.into_iter().eq(expected.iter().map(|(k, v)| (Some(*k), Some(*v)))));
        let sevens = expected.iter().filter(|(_, value)| *value == 3).count();
        let by_v = table.index("by_v")?;
        assert_eq!(by_v.range(&snapshot, row![3_u64]..=row![3_u64])?.count(), sevens);
        Ok::<_, Error>(())
    };
    check(&db, &table)?;
    let twice = (0..20_000_u64).map(|number| Ok(row![number * 7919 % 19_997, 0_u64, "a text of some length"]));
    let other: Schema = "u (k u64, v u64, w text) key (k)".parse()?;
    let error = db.load_table(&other, twice).expect_err("a key that is there twice, far apart");
    assert!(matches!(error, Error::Duplicate { index: None, .. }), "{error}");
    no_page_is_lost(&db)?;
    drop((table, by_v, db));
    assert_eq!(findings(&path)?, Vec::<String>::new());
    let db = Database::open_with(&path, &options)?;
    check(&db, &db.table("t")?)?;
    let files = std::fs::read_dir(folder.path()).expect("the folder").count();
    assert_eq!(files, 1, "nothing is beside the pool");
    Ok(())
}

fn replacement(db: &Database, count: u64) -> Result<lodestone_engine::LoadedTable> {
    let mut load = db.begin_load(&schema())?;
    users(count).try_for_each(|row| load.push(&row?))?;
    load.finish()
}

fn count(db: &Database) -> Result<(usize, usize)> {
    let table = db.table("users")?;
    let by_town = table.index("by_town")?;
    db.update(|tx| Ok((table.range(tx, ..)?.count(), by_town.range(tx, ..)?.count())))
}

#[test]
fn a_table_gets_the_rows_of_a_load_with_its_transaction() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let db = Database::open_with(&path, &small())?;
    let table = db.load_table(&schema(), users(30))?;
    // Given up: by itself, with the transaction, and by a conflict.
    drop(replacement(&db, 100)?);
    let tx = db.begin();
    let inside = db.put_loaded(&tx, replacement(&db, 100)?)?;
    assert_eq!(inside.range(&tx, ..)?.count(), 100);
    assert_eq!(count(&db)?, (30, 30), "others do not see it");
    drop(tx);
    let tx = db.begin();
    assert!(table.get(&tx, &row!["user 0"])?.is_some());
    db.put_loaded(&tx, replacement(&db, 100)?)?;
    db.update(|tx| table.delete(tx, &row!["user 0"]).map(drop))?;
    assert!(matches!(tx.commit(), Err(Error::Conflict)));
    assert_eq!(count(&db)?, (29, 29));
    drop(inside);
    no_page_is_lost(&db)?;
    // A transaction that used the table before, and one with changes of the new rows.
    let (before, snapshot) = (db.begin(), db.snapshot()?);
    table.put(&before, &row!["a", "b", None::<&str>, vec![0_u8]])?;
    let tx = db.begin();
    let inside = db.put_loaded(&tx, replacement(&db, 200)?)?;
    assert!(inside.delete(&tx, &row!["user 0"])?);
    inside.put(&tx, &row!["zed", "town 1", None::<&str>, vec![1_u8; 90]])?;
    tx.commit()?;
    assert!(matches!(before.commit(), Err(Error::Conflict)), "its row would be lost");
    assert_eq!(count(&db)?, (200, 200));
    assert_eq!(table.range(&snapshot, ..)?.count(), 29);
    drop(snapshot);
    assert!(matches!(db.update(|tx| table.get(tx, &row!["zed"])), Err(Error::TableChanged { .. })));
    no_page_is_lost(&db)?;
    Ok(())
}

/// Loads that a savepoint takes back, and loads that take the place of others.
#[test]
fn the_last_load_of_a_transaction_counts() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let db = Database::open_with(&path, &small())?;
    db.load_table(&schema(), users(30))?;
    let tx = db.begin();
    db.put_loaded(&tx, replacement(&db, 0)?)?;
    let first = db.put_loaded(&tx, replacement(&db, 7)?)?;
    let savepoint = tx.savepoint()?;
    let second = db.put_loaded(&tx, replacement(&db, 9)?)?;
    assert_eq!((first.range(&tx, ..)?.count(), second.range(&tx, ..)?.count()), (7, 9));
    tx.rollback_to(savepoint)?;
    tx.commit()?;
    drop((first, second));
    assert_eq!(count(&db)?, (7, 7));
    no_page_is_lost(&db)?;
    let tx = db.begin();
    let savepoint = tx.savepoint()?;
    db.put_loaded(&tx, replacement(&db, 9)?)?;
    tx.rollback_to(savepoint)?;
    tx.commit()?;
    assert_eq!(count(&db)?, (7, 7));
    no_page_is_lost(&db)?;
    db.abandon();
    assert_eq!(findings(&path)?, Vec::<String>::new());
    let db = Database::open_with(&path, &small())?;
    assert_eq!(count(&db)?, (7, 7));
    no_page_is_lost(&db)
}

#[test]
fn tables_and_loads_are_of_different_transactions() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let db = Database::open_with(folder.path().join("a.pool"), &small())?;
    db.load_table(&schema(), users(3))?;
    let mut load = db.begin_load(&schema())?;
    assert!(matches!(load.push(&row!["a"]), Err(Error::WrongLength { .. })));
    let loaded = replacement(&db, 5)?;
    let feed = db.feed(&FeedStart::Now)?;
    assert!(matches!(db.begin_load(&schema()), Err(Error::FeedOpen { .. })));
    drop(feed);
    let other: Schema = "users (name text) key (name)".parse()?;
    let tx = db.begin();
    let outcome = db.put_loaded(&tx, db.begin_load(&other)?.finish()?);
    assert!(matches!(outcome, Err(Error::SchemaDiffers { .. })), "{outcome:?}");
    drop(tx);
    let tx = db.begin();
    assert!(!tx.makes_trees()?);
    db.put_loaded(&tx, loaded)?;
    tx.commit()?;
    assert_eq!(count(&db)?, (5, 5));
    Ok(())
}

#[test]
fn every_durability_can_load() -> Result<()> {
    for durability in [Durability::Ordered, Durability::EPOCH, Durability::None] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pool");
        let options = DatabaseOptions { durability, ..small() };
        let db = Database::open_with(&path, &options)?;
        let table = db.load_table(&schema(), users(200))?;
        let count = |db: &Database, table: &Table| db.update(|tx| Ok(table.range(tx, ..)?.count()));
        db.update(|tx| table.put(tx, &row!["a", "b", None::<&str>, vec![0_u8]]))?;
        assert_eq!(count(&db, &table)?, 201, "{durability:?}");
        drop((table, db));
        let db = Database::open_with(&path, &options)?;
        if durability == Durability::None {
            assert!(db.tables()?.is_empty());
        } else {
            assert_eq!(count(&db, &db.table("users")?)?, 201, "{durability:?}");
        }
    }
    Ok(())
}

/// Loads beside commits, checkpoints and tables that come and go.
#[test]
fn others_go_on_beside_loads() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let open = Open::at(&path, &small())?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let checkpoints = scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                open.db.checkpoint()?;
            }
            Ok::<_, Error>(())
        });
        let tables = scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                let table = open.db.create_table(&"other (k u64) key (k)".parse()?)?;
                open.db.update(|tx| (0..20_u64).try_for_each(|key| table.put(tx, &row![key])))?;
                assert_eq!(open.db.update(|tx| Ok(table.range(tx, ..)?.count()))?, 20);
                open.db.drop_table("other")?;
            }
            Ok::<_, Error>(())
        });
        let commits = scope.spawn(|| {
            let mut value = 0;
            while !is_over.load(Ordering::SeqCst) {
                value += 1;
                open.set(&[(1, value), (2, value)])?;
            }
            Ok::<_, Error>(value)
        });
        for number in 0..10 {
            let loaded = open.db.load_table(&schema_of(&format!("users_{number}")), users(300))?;
            open.db.update(|tx| loaded.delete(tx, &row!["user 0"]))?;
        }
        is_over.store(true, Ordering::SeqCst);
        checkpoints.join().expect("no panic")?;
        tables.join().expect("no panic")?;
        let last = commits.join().expect("no panic")?;
        assert_eq!(open.all()?, [(1, last), (2, last)]);
        Ok::<_, Error>(())
    })?;
    let check = |db: &Database| {
        for number in 0..10 {
            let table = db.table(&format!("users_{number}"))?;
            let by_town = table.index("by_town")?;
            db.update(|tx| {
                assert_eq!((table.range(tx, ..)?.count(), by_town.range(tx, ..)?.count()), (299, 299));
                Ok(())
            })?;
        }
        no_page_is_lost(db)
    };
    let Open { db, table } = open;
    drop(table);
    check(&db)?;
    db.abandon();
    check(&Database::open_with(&path, &small())?)?;
    assert_eq!(findings(&path)?, Vec::<String>::new());
    Ok(())
}

/// A device that fails once or for ever at any call of a load: after a power cut the table is whole or not there, and
/// it is there if the load said so.
#[test]
fn a_load_on_a_device_that_fails_is_whole_or_not_there() -> Result<()> {
    let pool = PoolOptions {
        domain: DomainChoice::Block,
        size_bytes: 2 << 20,
        journal_bytes: 128 << 10,
        ..PoolOptions::default()
    };
    let sizes = DatabaseOptions { pool, log_bytes: 128 << 10, segment_bytes: 8 << 10, ..small() };
    // It would make calls of its own.
    let sizes = DatabaseOptions { extent_pages: 8, checkpoint_thread: false, ..sizes };
    let row = |number: u64| row![format!("{number:05}"), "town 1", None::<String>, vec![7_u8; 30]];
    let (mut failed, mut whole) = (0, 0);
    for number in (1..=60).step_by(13).chain((70..=600).step_by(97)) {
        let once = Some(Failing::once(number));
        let plans = [
            FaultPlan { fail_sync: once, ..FaultPlan::default() },
            FaultPlan { fail_write: once, ..FaultPlan::default() },
            FaultPlan { fail_sync: Some(Failing::for_ever(number)), ..FaultPlan::default() },
        ];
        for plan in plans {
            let (device, open) = Open::on_device(&sizes)?;
            device.faulty.arm(plan);
            let loaded = open.db.load_table(&schema(), (0..600).map(|number| Ok(row(number))));
            let is_told = loaded.is_ok();
            failed += u32::from(!is_told);
            drop((loaded, open));
            for survivors in [0, u64::MAX, 0x5555_3333_0F0F_1234] {
                let mut choice: u64 = survivors;
                let content = device.disk.power_cut(|_| {
                    choice = choice.rotate_left(1);
                    choice & 1 == 1
                });
                let (_, open) = Open::on_disk(content, &sizes)?;
                match open.db.table("users") {
                    Ok(table) => {
                        let found = open.db.update(|tx| table.range(tx, ..)?.collect::<Result<Vec<_>>>())?;
                        assert_eq!(found, (0..600).map(row).collect::<Vec<_>>(), "{plan:?}, {survivors:#x}");
                        whole += 1;
                    }
                    Err(Error::NoTable { .. }) => assert!(!is_told, "{plan:?}, {survivors:#x}: it was there"),
                    Err(error) => return Err(error),
                }
                no_page_is_lost(&open.db)?;
            }
        }
    }
    assert!(failed > 10 && whole > 10, "{failed} loads failed, {whole} tables survived");
    Ok(())
}

/// The extents of a load are taken together, so the journal is left once for all of them.
#[test]
fn a_load_of_many_extents_has_few_syncs() -> Result<()> {
    let options = options(DomainChoice::Block);
    let (device, open) = Open::on_device(&options)?;
    let (pages, syncs) = (open.db.page_stats().pages, device.faulty.syncs());
    let rows = (0..8_000_u64).map(|k| Ok(row![k, "some text of a row"]));
    open.db.load_table(&"many (k u64, v text) key (k)".parse()?, rows)?;
    let extents = (open.db.page_stats().pages - pages) / u64::from(options.extent_pages);
    assert!(extents >= 8, "{extents} extents are too few for a test");
    let syncs = device.faulty.syncs() - syncs;
    assert!(syncs <= 30, "{syncs} syncs for {extents} extents");
    Ok(())
}
