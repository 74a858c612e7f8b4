//! Random transactions beside ordered maps: operations in every order, aborts, lives that end and lives that are cut
//! off.

use std::collections::BTreeMap;
use std::ops::Bound;

use lodestone_engine::{Database, DatabaseOptions, Error, Result, Row, Schema, Table, Type, row};
use lodestone_pmem::{DomainChoice, PoolOptions};
use proptest::prelude::*;

/// Two tables: key columns, then a value.
type Model = [BTreeMap<(u64, String), i64>; 2];

#[derive(Clone, Debug)]
enum Step {
    Get(Key),
    Insert(Key, i64),
    Update(Key, i64),
    Put(Key, i64),
    Delete(Key),
    /// Both bounds, whether each is included, and whether it goes from the last row to the first.
    Range(Key, bool, Key, bool, bool),
    /// All rows with this first column.
    Prefix(u64, bool),
}

type Key = (u64, String);

#[derive(Clone, Debug)]
enum Life {
    /// Changes of one transaction by table, and whether its closure fails at the end.
    Update(Vec<(usize, Step)>, bool),
    /// The database is closed, or abandoned, and opened again.
    Reopen(bool),
}

fn schema(name: &str) -> Schema {
    Schema::new(name)
        .column("part", Type::U64)
        .column("name", Type::Text)
        .column("value", Type::I64)
        .key(["part", "name"])
}

fn options() -> DatabaseOptions {
    let pool = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
    DatabaseOptions {
        pool,
        log_bytes: 4 << 20,
        segment_bytes: 16 << 10,
        leaf_rows_max: 4,
        ..DatabaseOptions::default()
    }
}

fn key() -> impl Strategy<Value = Key> {
    (0..4_u64, "[ab]{0,2}")
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        key().prop_map(Step::Get),
        (key(), any::<i64>()).prop_map(|(key, value)| Step::Insert(key, value)),
        (key(), any::<i64>()).prop_map(|(key, value)| Step::Update(key, value)),
        (key(), any::<i64>()).prop_map(|(key, value)| Step::Put(key, value)),
        key().prop_map(Step::Delete),
        (key(), any::<bool>(), key(), any::<bool>(), any::<bool>())
            .prop_map(|(from, first, to, last, reversed)| Step::Range(from, first, to, last, reversed)),
        (0..5_u64, any::<bool>()).prop_map(|(part, reversed)| Step::Prefix(part, reversed)),
    ]
}

fn life() -> impl Strategy<Value = Life> {
    prop_oneof![
        8 => (prop::collection::vec((0..2_usize, step()), 1..12), prop::bool::weighted(0.2))
            .prop_map(|(steps, fails)| Life::Update(steps, fails)),
        1 => any::<bool>().prop_map(Life::Reopen),
    ]
}

fn bound<T>(value: T, is_included: bool) -> Bound<T> {
    if is_included { Bound::Included(value) } else { Bound::Excluded(value) }
}

fn full((part, name): &Key, value: i64) -> Row {
    row![*part, name.as_str(), value]
}

fn rows_of(rows: impl Iterator<Item = Result<Row>>) -> Result<Vec<Row>> {
    rows.collect()
}

fn run(step: &Step, tx: &lodestone_engine::Tx, table: &Table, model: &mut BTreeMap<Key, i64>) -> Result<()> {
    let key_row = |key: &Key| row![key.0, key.1.as_str()];
    match step {
        Step::Get(key) => {
            let expected = model.get(key).map(|value| full(key, *value));
            assert_eq!(table.get(tx, &key_row(key))?, expected, "{step:?}");
        }
        Step::Insert(key, value) => match table.insert(tx, &full(key, *value)) {
            Err(Error::Duplicate { table, .. }) => {
                assert!(table.starts_with('t') && model.contains_key(key), "{step:?}")
            }
            outcome => assert!(model.insert(key.clone(), *value).is_none() && outcome.is_ok(), "{step:?}: {outcome:?}"),
        },
        Step::Update(key, value) => match table.update(tx, &full(key, *value)) {
            Err(Error::NotFound { .. }) => assert!(!model.contains_key(key), "{step:?}"),
            outcome => assert!(model.insert(key.clone(), *value).is_some() && outcome.is_ok(), "{step:?}: {outcome:?}"),
        },
        Step::Put(key, value) => {
            table.put(tx, &full(key, *value))?;
            model.insert(key.clone(), *value);
        }
        Step::Delete(key) => assert_eq!(table.delete(tx, &key_row(key))?, model.remove(key).is_some(), "{step:?}"),
        Step::Range(from, first, to, last, is_reversed) => {
            let range = (bound(key_row(from), *first), bound(key_row(to), *last));
            let rows = table.range(tx, range)?;
            let found = rows_of(if *is_reversed { rows.rev() } else { rows })?;
            let fits = |key: &Key| {
                (if *first { key >= from } else { key > from }) && (if *last { key <= to } else { key < to })
            };
            let mut expected: Vec<Row> =
                model.iter().filter(|(key, _)| fits(key)).map(|(key, value)| full(key, *value)).collect();
            if *is_reversed {
                expected.reverse();
            }
            assert_eq!(found, expected, "{step:?}");
        }
        Step::Prefix(part, is_reversed) => {
            let rows = table.range(tx, row![*part]..=row![*part])?;
            let found = rows_of(if *is_reversed { rows.rev() } else { rows })?;
            let mut expected: Vec<Row> =
                model.iter().filter(|(key, _)| key.0 == *part).map(|(key, value)| full(key, *value)).collect();
            if *is_reversed {
                expected.reverse();
            }
            assert_eq!(found, expected, "{step:?}");
        }
    }
    Ok(())
}

fn open(path: &std::path::Path) -> Result<(Database, [Table; 2])> {
    let db = Database::open_with(path, &options())?;
    let tables = [db.create_table(&schema("t0"))?, db.create_table(&schema("t1"))?];
    Ok((db, tables))
}

fn check(lives: &[Life]) -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let mut current = Some(open(&path)?);
    let mut model = Model::default();
    for life in lives {
        if let Life::Reopen(is_closed) = life {
            if let Some((db, tables)) = current.take() {
                drop(tables);
                if *is_closed { drop(db) } else { db.abandon() }
            }
            current = Some(open(&path)?);
        }
        let (db, open) = current.as_ref().expect("open");
        match life {
            Life::Update(steps, fails) => {
                let mut after = model.clone();
                let outcome = db.update(|tx| {
                    after.clone_from(&model);
                    steps
                        .iter()
                        .try_for_each(|(number, step)| run(step, tx, &open[*number], &mut after[*number % 2]))?;
                    if *fails { Err(Error::cancelled("on purpose")) } else { Ok(()) }
                });
                match outcome {
                    Ok(()) => model = after,
                    Err(Error::Cancelled { .. }) if *fails => {}
                    Err(error) => return Err(error),
                }
            }
            Life::Reopen(_) => {}
        }
        db.update(|tx| {
            for (table, model) in open.iter().zip(&model) {
                let expected: Vec<Row> = model.iter().map(|(key, value)| full(key, *value)).collect();
                assert_eq!(rows_of(table.range(tx, ..)?)?, expected);
            }
            Ok(())
        })?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn tables_are_ordered_maps(lives in prop::collection::vec(life(), 1..25)) {
        check(&lives).expect("no error");
    }
}
