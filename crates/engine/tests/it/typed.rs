//! Structs as rows: every type of field, keys of one and of several columns, ranges, and what a mismatch says.

use std::ops::Bound;

use crate::common::options;
use lodestone_engine::{
    Database, Date, Decimal, Error, Result, Row, Schema, TableOf, Timestamp, Type, TypedRow, Uuid, Value, row,
};
use lodestone_pmem::DomainChoice;
use proptest::prelude::*;

/// A field of each type, some nullable, and the key in the middle.
#[derive(Clone, Debug, PartialEq, Row)]
#[row(table = "all", key(day, name))]
struct All {
    flag: bool,
    short: i16,
    int: i32,
    long: i64,
    word: u64,
    float: f64,
    price: Decimal<2>,
    name: String,
    day: Date,
    moment: Timestamp,
    id: Uuid,
    data: Vec<u8>,
    maybe_flag: Option<bool>,
    maybe_price: Option<Decimal<0>>,
    maybe_text: Option<String>,
    #[row(name = "type")]
    kind: Option<i16>,
    #[row(skip)]
    is_seen: bool,
}

#[derive(Clone, Debug, PartialEq, Row)]
#[row(key(id))]
struct Account {
    id: u64,
    cents: i64,
}

fn open<R: TypedRow>() -> Result<(tempfile::TempDir, Database, TableOf<R>)> {
    let folder = tempfile::tempdir().expect("a folder");
    let db = Database::open_with(folder.path().join("a.pool"), &options(DomainChoice::Process))?;
    let table = db.table_of::<R>()?;
    Ok((folder, db, table))
}

fn rows() -> impl Strategy<Value = All> {
    let numbers = (any::<bool>(), any::<i16>(), any::<i32>(), any::<i64>(), any::<u64>(), -1e9..1e9_f64);
    let others =
        (any::<i128>(), "[ab]{0,2}", -2..2_i32, any::<i64>(), any::<u128>(), prop::collection::vec(0..4_u8, 0..5));
    let maybe = (any::<Option<bool>>(), any::<Option<i128>>(), prop::option::of("[ab]{0,3}"), any::<Option<i16>>());
    (numbers, others, maybe).prop_map(|(numbers, others, maybe)| {
        let (flag, short, int, long, word, float) = numbers;
        let (price, name, day, moment, id, data) = others;
        let (maybe_flag, maybe_price, maybe_text, kind) = maybe;
        All {
            flag,
            short,
            int,
            long,
            word,
            float,
            price: Decimal::from_units(price),
            name,
            day: Date::from_days(day),
            moment: Timestamp::from_micros(moment),
            id: Uuid::from_u128(id),
            data,
            maybe_flag,
            maybe_price: maybe_price.map(Decimal::from_units),
            maybe_text,
            kind,
            is_seen: false,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn rows_of_all_types_come_back(rows in prop::collection::vec(rows(), 1..20)) {
        let (folder, db, table) = open::<All>()?;
        db.update(|tx| rows.iter().try_for_each(|row| table.put(tx, row)))?;
        drop((table, db));
        let db = Database::open_with(folder.path().join("a.pool"), &options(DomainChoice::Process))?;
        let table = db.table_of::<All>()?;
        let model: std::collections::BTreeMap<(Date, String), All> =
            rows.iter().map(|row| ((row.day, row.name.clone()), row.clone())).collect();
        db.update(|tx| {
            let found = table.scan(tx)?.collect::<Result<Vec<_>>>()?;
            assert_eq!(found, model.values().cloned().collect::<Vec<_>>());
            for (key, row) in &model {
                assert_eq!(table.get(tx, key)?.as_ref(), Some(row));
                assert_eq!(table.get(tx, &(key.0, key.1.as_str()))?.as_ref(), Some(row));
                let same_day = model.keys().filter(|(day, _)| *day == key.0).count();
                assert_eq!(table.prefix(tx, &(key.0,))?.count(), same_day);
                assert_eq!(table.range(tx, (key.0,)..=(key.0,))?.count(), same_day);
            }
            Ok(())
        })?;
        for row in &rows {
            prop_assert_eq!(&All::from_row(row.to_row())?, row);
            prop_assert_eq!(All::PRICE.value(&row.to_row()), Some(row.price));
            prop_assert_eq!(All::KIND.value(&row.to_row()), Some(row.kind));
        }
    }
}

#[test]
fn keys_and_ranges_of_one_column() -> Result<()> {
    let (_folder, db, accounts) = open::<Account>()?;
    let account = |id| Account { id, cents: 0 };
    db.update(|tx| (0..10).try_for_each(|id| accounts.insert(tx, &account(id))))?;
    db.update(|tx| {
        let ids =
            |rows: lodestone_engine::RowsOf<'_, Account>| rows.map(|row| Ok(row?.id)).collect::<Result<Vec<u64>>>();
        assert_eq!(ids(accounts.range(tx, 3..5)?)?, [3, 4]);
        assert_eq!(ids(accounts.range(tx, 8..)?.rev())?, [9, 8]);
        assert_eq!(ids(accounts.range(tx, ..=&1)?)?, [0, 1]);
        assert_eq!(ids(accounts.range(tx, (Bound::Excluded(7), Bound::Unbounded))?)?, [8, 9]);
        assert_eq!(accounts.range(tx, ..)?.count(), 10);
        assert_eq!(accounts.get_many(tx, [11, 2].iter())?, [None, Some(account(2))]);
        Ok(())
    })?;
    let duplicate = db.update(|tx| accounts.insert(tx, &account(3)));
    assert!(matches!(duplicate, Err(Error::Duplicate { .. })), "{duplicate:?}");
    let missing = db.update(|tx| accounts.update(tx, &account(33)));
    assert!(matches!(missing, Err(Error::NotFound { .. })), "{missing:?}");
    assert!(db.update(|tx| accounts.delete(tx, &3))? && !db.update(|tx| accounts.delete(tx, &3))?);
    // The same rows by their columns.
    assert_eq!(db.update(|tx| accounts.table().get(tx, &row![4_u64]))?, Some(row![4_u64, 0_i64]));
    Ok(())
}

#[test]
fn a_mismatch_names_table_column_and_both_types() -> Result<()> {
    let (_folder, db, _accounts) = open::<Account>()?;
    let table = |schema: Schema| db.create_table(&schema).map(|_| ());
    table(Schema::new("all").column("flag", Type::Bool).column("short", Type::Text).key(["flag"]))?;
    let error = db.table_of::<All>().expect_err("other columns").to_string();
    assert!(error.contains("table `all` differs") && error.contains("`short text`, not `short i16`"), "{error}");
    for (row, part) in [
        (row![7_u64, "x"], "table `account`: column `cents i64` cannot hold a value of type text"),
        (row![7_u64, None::<i64>], "column `cents i64` cannot hold a value of type null"),
        (row![7_i64, 0_i64], "column `id u64` cannot hold a value of type i64"),
        (row![7_u64], "table `account`: a row of 1 values, it has 2 columns"),
    ] {
        let error = Account::from_row(row).expect_err(part).to_string();
        assert!(error.contains(part), "{error}");
    }
    let price = [Value::Decimal { units: 1, scale: 3 }];
    assert_eq!(lodestone_engine::ColumnOf::<All, Decimal<2>>::new("p", 0).value(&price), None, "another scale");
    Ok(())
}
