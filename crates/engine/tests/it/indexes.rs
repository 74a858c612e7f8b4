//! Secondary and unique indexes beside a model, in lives that end and lives that are cut off; changes of tables beside
//! transactions that use them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::common::{findings, options};
use lodestone_engine::{Database, Error, Index, Result, Row, Schema, Table, Tx, Value};
use lodestone_engine::{Type, row};
use lodestone_pmem::DomainChoice;
use proptest::prelude::*;

/// Key, town (not unique), mail (unique, may be null).
type People = BTreeMap<u64, (String, Option<String>)>;

#[derive(Clone, Debug)]
enum Step {
    Insert(u64, String, Option<String>),
    Update(u64, String, Option<String>),
    Put(u64, String, Option<String>),
    Delete(u64),
    /// All rows of these towns, and whether from the last.
    Towns(String, String, bool),
    Mail(String),
    /// All rows without a mail.
    NoMail,
}

#[derive(Clone, Debug)]
enum Life {
    /// One transaction, and whether its closure fails at the end.
    Update(Vec<Step>, bool),
    /// Closed, or abandoned, and opened again.
    Reopen(bool),
    Checkpoint,
    /// The index is dropped and made again.
    Rebuild(bool),
}

const TEXT: &str = "people (id u64, town text, mail text null) key (id) index by_town (town) unique by_mail (mail)";

fn life() -> impl Strategy<Value = Life> {
    let key = || 0..8_u64;
    let town = || "[ab]{0,2}";
    let mail = || prop::option::weighted(0.7, "[xy]{1,2}");
    let step = prop_oneof![
        1 => (key(), town(), mail()).prop_map(|(key, town, mail)| Step::Insert(key, town, mail)),
        1 => (key(), town(), mail()).prop_map(|(key, town, mail)| Step::Update(key, town, mail)),
        2 => (key(), town(), mail()).prop_map(|(key, town, mail)| Step::Put(key, town, mail)),
        1 => key().prop_map(Step::Delete),
        1 => (town(), town(), any::<bool>()).prop_map(|(from, to, is_reversed)| Step::Towns(from, to, is_reversed)),
        1 => "[xy]{1,2}".prop_map(Step::Mail),
        1 => Just(Step::NoMail),
    ];
    prop_oneof![
        8 => (prop::collection::vec(step, 1..10), prop::bool::weighted(0.2))
            .prop_map(|(steps, fails)| Life::Update(steps, fails)),
        1 => any::<bool>().prop_map(Life::Reopen),
        1 => Just(Life::Checkpoint),
        1 => any::<bool>().prop_map(Life::Rebuild),
    ]
}

fn full(key: u64, (town, mail): &(String, Option<String>)) -> Row {
    row![key, town.as_str(), mail.as_deref()]
}

/// The table as it is, whatever its indexes were.
fn people(db: &Database) -> Result<Table> {
    match db.table("people") {
        Err(Error::NoTable { .. }) => db.create_table(&TEXT.parse()?),
        found => found,
    }
}

/// Adds a row to the model, unless another one has its mail.
fn set(model: &mut People, key: u64, town: &str, mail: Option<&str>) -> bool {
    let is_taken = mail.is_some() && model.iter().any(|(other, row)| *other != key && row.1.as_deref() == mail);
    if !is_taken {
        model.insert(key, (town.into(), mail.map(Into::into)));
    }
    !is_taken
}

/// Compares an outcome with what the model says. A refused change changes nothing.
fn agrees(outcome: Result<()>, is_due: bool) {
    match outcome {
        Ok(()) => assert!(is_due),
        Err(Error::Duplicate { index: Some(index), .. }) => assert!(!is_due && index == "by_mail"),
        Err(error) => panic!("{error}"),
    }
}

fn run(step: &Step, tx: &Tx, table: &Table, model: &mut People) -> Result<()> {
    let by_town = |row: &(u64, (String, Option<String>))| (row.1.0.clone(), row.0);
    match step {
        Step::Insert(key, town, mail) => {
            let outcome = table.insert(tx, &row![*key, town.as_str(), mail.as_deref()]);
            if model.contains_key(key) {
                assert!(matches!(outcome, Err(Error::Duplicate { index: None, .. })), "{outcome:?}");
            } else {
                agrees(outcome, set(model, *key, town, mail.as_deref()));
            }
        }
        Step::Update(key, town, mail) => {
            let outcome = table.update(tx, &row![*key, town.as_str(), mail.as_deref()]);
            if model.contains_key(key) {
                agrees(outcome, set(model, *key, town, mail.as_deref()));
            } else {
                assert!(matches!(outcome, Err(Error::NotFound { .. })), "{outcome:?}");
            }
        }
        Step::Put(key, town, mail) => {
            let outcome = table.put(tx, &row![*key, town.as_str(), mail.as_deref()]);
            agrees(outcome, set(model, *key, town, mail.as_deref()));
        }
        Step::Delete(key) => assert_eq!(table.delete(tx, &row![*key])?, model.remove(key).is_some()),
        Step::Towns(from, to, is_reversed) => {
            let index = table.index("by_town")?;
            let rows = index.range(tx, row![from.as_str()]..=row![to.as_str()])?;
            let rows: Result<Vec<Row>> = if *is_reversed { rows.rev().collect() } else { rows.collect() };
            let fits = |row: &(&u64, &(String, _))| (from..=to).contains(&&row.1.0);
            let mut expected: Vec<_> = model.iter().filter(fits).map(|(key, row)| (*key, row.clone())).collect();
            expected.sort_by_key(by_town);
            if *is_reversed {
                expected.reverse();
            }
            assert_eq!(rows?, expected.iter().map(|(key, row)| full(*key, row)).collect::<Vec<_>>(), "{step:?}");
        }
        Step::Mail(mail) => {
            let found = table.index("by_mail")?.get(tx, &row![mail.as_str()])?;
            let expected = model.iter().find(|(_, row)| row.1.as_ref() == Some(mail));
            assert_eq!(found, expected.map(|(key, row)| full(*key, row)), "{step:?}");
        }
        Step::NoMail => {
            let null = || Row(vec![Value::Null]);
            let count = table.index("by_mail")?.range(tx, null()..=null())?.try_fold(0, |n, row| row.map(|_| n + 1))?;
            assert_eq!(count, model.values().filter(|row| row.1.is_none()).count());
        }
    }
    Ok(())
}

fn check(lives: &[Life]) -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, options) = (folder.path().join("a.pool"), options(DomainChoice::Process));
    let mut current = Some(Database::open_with(&path, &options)?);
    let mut model = People::new();
    for life in lives {
        let db = current.take().expect("open");
        let mut table = people(&db)?;
        match life {
            Life::Update(steps, fails) => {
                let mut after = model.clone();
                let outcome = db.update(|tx| {
                    after.clone_from(&model);
                    steps.iter().try_for_each(|step| run(step, tx, &table, &mut after))?;
                    if *fails { Err(Error::cancelled("on purpose")) } else { Ok(()) }
                });
                match outcome {
                    Ok(()) => model = after,
                    Err(Error::Cancelled { .. }) if *fails => {}
                    Err(error) => return Err(error),
                }
            }
            Life::Reopen(_) => {}
            Life::Checkpoint => drop(db.checkpoint()?),
            Life::Rebuild(is_unique) => {
                let index =
                    if *is_unique { Index::unique("by_mail", ["mail"]) } else { Index::new("by_town", ["town"]) };
                db.drop_index("people", &index.name)?;
                table = db.create_index("people", &index)?;
            }
        }
        let rows = db.update(|tx| table.range(tx, ..)?.collect::<Result<Vec<_>>>())?;
        assert_eq!(rows, model.iter().map(|(key, row)| full(*key, row)).collect::<Vec<_>>());
        drop(table);
        current = match life {
            Life::Reopen(is_closed) => {
                if *is_closed {
                    drop(db)
                } else {
                    db.abandon()
                }
                Some(Database::open_with(&path, &options)?)
            }
            _ => Some(db),
        };
    }
    drop(current);
    assert_eq!(findings(&path, &options), Vec::<String>::new());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn indexes_agree_with_their_tables(lives in prop::collection::vec(life(), 1..16)) {
        check(&lives).expect("no error");
    }
}

fn fixture(name: &str) -> Result<(tempfile::TempDir, Database, Table)> {
    let folder = tempfile::tempdir().expect("a folder");
    let db = Database::open_with(folder.path().join(name), &options(DomainChoice::Process))?;
    let table = people(&db)?;
    Ok((folder, db, table))
}

type Change = fn(&Database) -> Result<()>;

#[test]
fn a_handle_follows_its_table_as_long_as_that_has_its_name_and_columns() -> Result<()> {
    let (_folder, db, table) = fixture("a.pool")?;
    db.update(|tx| table.put(tx, &row![1_u64, "a", "x"]))?;
    let by_town = table.index("by_town")?;
    let changes: [(&str, bool, Change); 4] = [
        ("an index is dropped", true, |db| db.drop_index("people", "by_town").map(|_| ())),
        ("an index is added", true, |db| db.create_index("people", &Index::new("by_town", ["town"])).map(|_| ())),
        ("it is renamed", false, |db| db.rename_table("people", "others").map(|_| ())),
        ("it is dropped", false, |db| db.drop_table("others")),
    ];
    let mut table = table;
    for (what, is_followed, change) in changes {
        change(&db)?;
        let fits = |outcome: Result<()>| match outcome {
            Ok(()) => assert!(is_followed, "{what}"),
            Err(Error::TableChanged { .. }) => assert!(!is_followed, "{what}"),
            Err(error) => panic!("{what}: {error}"),
        };
        fits(db.update(|tx| table.get(tx, &row![1_u64]).map(|_| ())));
        fits(db.update(|tx| table.put(tx, &row![1_u64, "b", "y"])));
        fits(db.update(|tx| table.put(tx, &row![1_u64, "a", "x"])));
        fits(db.update(|tx| table.range(tx, ..).map(|_| ())));
        // Another index has its name since.
        let by_index = db.update(|tx| by_town.range(tx, ..).map(|_| ()));
        assert!(matches!(by_index, Err(Error::NoIndex { .. } | Error::TableChanged { .. })), "{what}: {by_index:?}");
        let names = db.tables()?;
        table = match names.first() {
            Some(name) if is_followed => {
                assert_eq!(*name, "people");
                table
            }
            Some(name) => db.table(name)?,
            None => break,
        };
        assert_eq!(db.update(|tx| table.get(tx, &row![1_u64]))?, Some(row![1_u64, "a", "x"]), "{what}");
    }
    assert!(matches!(db.table("others"), Err(Error::NoTable { .. })));
    Ok(())
}

#[test]
fn a_transaction_conflicts_with_a_change_of_its_table() -> Result<()> {
    let (_folder, db, table) = fixture("a.pool")?;
    let tx = db.begin();
    table.put(&tx, &row![1_u64, "a", "x"])?;
    db.drop_index("people", "by_mail")?;
    let outcome = tx.commit();
    assert!(matches!(outcome, Err(Error::Conflict)), "{outcome:?}");
    Ok(())
}

#[test]
fn errors_name_table_index_and_key() -> Result<()> {
    let (_folder, db, table) = fixture("a.pool")?;
    db.update(|tx| table.put(tx, &row![1_u64, "a", "x"]))?;
    let text = |error: Error| error.to_string();
    let error = db.update(|tx| table.insert(tx, &row![2_u64, "a", "x"])).map_err(text).expect_err("taken");
    assert!(error.contains("`people`") && error.contains("`by_mail` (\"x\")"), "{error}");
    let error = db.create_index("people", &Index::new("by_town", ["town"])).map(|_| ()).map_err(text);
    assert!(error.expect_err("exists").contains("has an index `by_town` already"));
    let error = db.create_index("people", &Index::new("by_x", ["x"])).map(|_| ()).map_err(text);
    assert!(error.expect_err("no column").contains("`by_x` names `x`, which is no column"));
    db.update(|tx| table.put(tx, &row![2_u64, "a", "y"]))?;
    let error = db.create_index("people", &Index::unique("one", ["town"])).map(|_| ()).map_err(text);
    assert!(error.expect_err("two rows").contains("`one` (\"a\")"));
    assert_eq!(people(&db)?.schema().indexes().len(), 2, "a failed index leaves nothing");
    let error = table.index("by_x").map(|_| ()).map_err(text).expect_err("no index");
    assert!(error.contains("has no index `by_x`"), "{error}");
    let other: Schema = "people (id u64, town text, mail text null) key (id) index by_town (town)".parse()?;
    let error = db.create_table(&other).map(|_| ()).map_err(text).expect_err("differs");
    assert!(error.contains("it has `unique by_mail (mail)`"), "{error}");
    Ok(())
}

#[test]
fn a_dropped_table_gives_its_pages_back() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, options) = (folder.path().join("a.pool"), options(DomainChoice::Process));
    let mut used = Vec::new();
    for turn in 0..6 {
        let db = Database::open_with(&path, &options)?;
        let table = people(&db)?;
        for key in 0..200_u64 {
            db.update(|tx| table.put(tx, &row![key, "town".repeat(10), format!("{key}@example.org")]))?;
        }
        db.checkpoint()?;
        db.drop_table("people")?;
        if turn % 2 == 0 {
            db.checkpoint()?;
        }
        // A life that finds the rows of the dropped table in pages or log forgets them, and ends their images.
        drop(table);
        if turn % 3 == 0 {
            db.abandon()
        } else {
            drop(db)
        }
        let db = Database::open_with(&path, &options)?;
        (0..3).try_for_each(|_| db.checkpoint().map(|_| ()))?;
        let stats = db.page_stats();
        used.push(stats.pages - stats.pages_free);
        drop(db);
        assert_eq!(findings(&path, &options), Vec::<String>::new());
    }
    assert!(used.iter().all(|pages| *pages <= used[0]), "pages in use: {used:?}");
    Ok(())
}

#[test]
fn two_threads_never_have_the_same_entry_of_a_unique_index() -> Result<()> {
    let (folder, db, table) = fixture("a.pool")?;
    let inserted = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (db, table, inserted) = (&db, &table, &inserted);
            scope.spawn(move || {
                for number in 0..150_u64 {
                    let person = row![number * 4 + thread, "a", format!("{}", number / 2)];
                    match db.update(|tx| table.insert(tx, &person)) {
                        Ok(()) => drop(inserted.fetch_add(1, Ordering::Relaxed)),
                        Err(Error::Duplicate { index: Some(_), .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    assert_eq!(inserted.into_inner(), 75, "one row for each mail");
    let by_mail = table.index("by_mail")?;
    assert_eq!(db.update(|tx| Ok(by_mail.range(tx, ..)?.count()))?, 75);
    drop((by_mail, table, db));
    assert_eq!(findings(&folder.path().join("a.pool"), &options(DomainChoice::Process)), Vec::<String>::new());
    Ok(())
}

#[test]
fn an_index_that_is_made_beside_writers_misses_nothing() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, options) = (folder.path().join("a.pool"), options(DomainChoice::Process));
    let db = Database::open_with(&path, &options)?;
    db.create_table(&Schema::new("t").column("k", Type::U64).column("v", Type::U64).key(["k"]))?;
    thread::scope(|scope| {
        for thread in 0..3_u64 {
            let db = &db;
            scope.spawn(move || {
                let table = db.table("t").expect("the table");
                for number in 0..200_u64 {
                    let changed = row![number % 50 * 3 + thread, number];
                    db.update(|tx| table.put(tx, &changed)).expect("the handle follows its table");
                }
            });
        }
        for _ in 0..10 {
            db.create_index("t", &Index::new("by_v", ["v"])).expect("no error");
            thread::yield_now();
            db.drop_index("t", "by_v").expect("no error");
        }
        db.create_index("t", &Index::new("by_v", ["v"])).expect("no error");
    });
    drop(db);
    assert_eq!(findings(&path, &options), Vec::<String>::new());
    Ok(())
}

#[test]
fn a_snapshot_reads_an_index_of_its_moment() -> Result<()> {
    let (_folder, db, table) = fixture("a.pool")?;
    db.update(|tx| (0..40_u64).try_for_each(|key| table.put(tx, &row![key, "old", format!("{key}")])))?;
    let snapshot = db.snapshot()?;
    db.update(|tx| (0..40_u64).step_by(2).try_for_each(|key| table.put(tx, &row![key, "new", None::<&str>])))?;
    db.update(|tx| (0..10_u64).try_for_each(|key| table.delete(tx, &row![key]).map(|_| ())))?;
    let by_town = table.index("by_town")?;
    let count = |town: &str| by_town.range(&snapshot, row![town]..=row![town]).map(Iterator::count);
    assert_eq!((count("old")?, count("new")?), (40, 0));
    let mail = |mail: &str| table.index("by_mail")?.get(&snapshot, &row![mail]);
    assert_eq!(mail("4")?, Some(row![4_u64, "old", "4"]));
    // A handle that knows other indexes than the snapshot's moment had.
    let changed = db.create_index("people", &Index::new("both", ["town", "id"]))?;
    assert_eq!(changed.get(&snapshot, &row![4_u64])?, Some(row![4_u64, "old", "4"]));
    assert_eq!(changed.index("by_town")?.range(&snapshot, row!["old"]..=row!["old"])?.count(), 40);
    assert!(matches!(changed.index("both")?.range(&snapshot, ..), Err(Error::NoIndex { .. })));
    // The handle of that moment still reads it, also when the table is gone.
    assert_eq!(table.get(&snapshot, &row![4_u64])?, Some(row![4_u64, "old", "4"]));
    db.drop_table("people")?;
    db.checkpoint()?;
    assert_eq!((count("old")?, count("new")?), (40, 0));
    let later = db.snapshot()?;
    assert!(matches!(table.get(&later, &row![4_u64]), Err(Error::TableChanged { .. })));
    Ok(())
}

#[test]
fn no_level_changes_a_table_by_a_handle_that_is_too_old() -> Result<()> {
    use lodestone_engine::Isolation::{ReadCommitted, Serializable, SerializableOnSnapshot, Snapshot};
    for level in [Serializable, SerializableOnSnapshot, Snapshot, ReadCommitted] {
        let (folder, db, mut table) = fixture("a.pool")?;
        let tx = db.begin_with(level);
        table.put(&tx, &row![1_u64, "a", "x"])?;
        db.drop_index("people", "by_mail")?;
        let outcome = tx.commit();
        assert!(matches!(outcome, Err(Error::Conflict)), "{level:?}: {outcome:?}");
        // Two that add the same entry of a unique index.
        table = db.create_index("people", &Index::unique("by_mail", ["mail"]))?;
        let (first, second) = (db.begin_with(level), db.begin_with(level));
        table.put(&first, &row![1_u64, "a", "x"])?;
        table.put(&second, &row![2_u64, "a", "x"])?;
        first.commit()?;
        let outcome = second.commit();
        assert!(matches!(outcome, Err(Error::Conflict)), "{level:?}: {outcome:?}");
        // A row moves while a statement reads the index.
        let tx = db.begin_with(level);
        let by_town = table.index("by_town")?;
        let mut rows = by_town.range(&tx, ..)?;
        db.update(|tx| table.delete(tx, &row![1_u64]).map(|_| ()))?;
        match rows.next() {
            None | Some(Ok(_) | Err(Error::Conflict)) => {}
            Some(Err(error)) => panic!("{level:?}: {error}"),
        }
        drop(rows);
        drop((by_town, tx, table, db));
        assert_eq!(findings(&folder.path().join("a.pool"), &options(DomainChoice::Process)), Vec::<String>::new());
    }
    Ok(())
}

#[test]
fn an_index_gets_another_name_with_its_transaction() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, options) = (folder.path().join("a.pool"), options(DomainChoice::Process));
    let db = Database::open_with(&path, &options)?;
    let table = people(&db)?;
    let add = |table: &Table, key: u64| db.update(|tx| table.insert(tx, &full(key, &("a".into(), Some("x".into())))));
    add(&table, 1)?;
    let rename = |from: &str, to: &str| db.update(|tx| db.rename_index_in(tx, "people", from, to));
    let key_by = |table: &Table, index: &str| {
        db.update(|tx| Ok(table.index(index)?.get(tx, &row!["x"])?.map(|row| row[0].clone())))
    };
    let given_up = db.update(|tx| {
        db.rename_index_in(tx, "people", "by_mail", "gone")?;
        Err::<(), _>(Error::cancelled("no"))
    });
    assert!(given_up.is_err());
    assert_eq!(key_by(&table, "by_mail")?, Some(Value::from(1_u64)));
    let renamed = rename("by_mail", "a_mail")?;
    assert_eq!(key_by(&renamed, "a_mail")?, Some(Value::from(1_u64)));
    for handle in [&table, &renamed] {
        let error = add(handle, 2).expect_err("the mail is taken");
        assert!(matches!(&error, Error::Duplicate { index: Some(index), .. } if index == "a_mail"), "{error}");
    }
    // A handle knows the name that there was.
    assert_eq!(key_by(&table, "by_mail")?, Some(Value::from(1_u64)));
    assert!(matches!(key_by(&renamed, "by_mail"), Err(Error::NoIndex { .. })));
    let text = |outcome: Result<Table>| outcome.map(|_| ()).expect_err("refused").to_string();
    assert!(text(rename("by_mail", "b")).contains("by_mail"));
    assert!(text(rename("a_mail", "by_town")).contains("has an index `by_town` already"));
    assert!(matches!(rename("a_mail", ""), Err(Error::BadSchema { .. })));
    drop((table, renamed));
    db.abandon();
    let db = Database::open_with(&path, &options)?;
    let table = db.table("people")?;
    let found = db.update(|tx| table.index("a_mail")?.get(tx, &row!["x"]))?;
    assert_eq!(found.map(|row| row[0].clone()), Some(Value::from(1_u64)));
    assert!(table.index("by_mail").is_err());
    // The name is free.
    db.create_index("people", &Index::new("by_mail", ["mail"]))?;
    drop((table, db));
    assert_eq!(findings(&path, &options), [""; 0]);
    Ok(())
}
