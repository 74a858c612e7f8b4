//! Two transactions on one thread, step by step: which of them commits, and what each sees.

use crate::common::{Open, options};
use lodestone_engine::{Error, Result, Row, Schema, Tx, Type, row};
use lodestone_pmem::DomainChoice;

/// A database in a folder of its own.
struct Fixture {
    open: Open,
    folder: tempfile::TempDir,
}

impl std::ops::Deref for Fixture {
    type Target = Open;

    fn deref(&self) -> &Open {
        &self.open
    }
}

fn fixture() -> Result<Fixture> {
    let folder = tempfile::tempdir().expect("a folder");
    let open = Open::at(&folder.path().join("a.pool"), &options(DomainChoice::Process))?;
    Ok(Fixture { open, folder })
}

impl Fixture {
    fn with(rows: &[(u64, i64)]) -> Result<Self> {
        let fixture = fixture()?;
        fixture.set(rows)?;
        Ok(fixture)
    }
}

fn conflicts<R: std::fmt::Debug>(outcome: Result<R>) {
    assert!(matches!(outcome, Err(Error::Conflict)), "{outcome:?}");
}

#[test]
fn a_lost_update_is_a_conflict_and_blind_writes_are_none() -> Result<()> {
    let f = Fixture::with(&[(1, 10)])?;
    let (left, right) = (f.db.begin(), f.db.begin());
    f.put(&left, 1, f.get(&left, 1)?.unwrap_or(0) + 1)?;
    f.put(&right, 1, f.get(&right, 1)?.unwrap_or(0) + 1)?;
    left.commit()?;
    conflicts(right.commit());
    let (left, right) = (f.db.begin(), f.db.begin());
    f.put(&left, 1, 20)?;
    f.put(&right, 1, 30)?;
    right.commit()?;
    left.commit()?;
    assert_eq!(f.all()?, [(1, 20)]);
    Ok(())
}

#[test]
fn write_skew_is_a_conflict() -> Result<()> {
    let f = Fixture::with(&[(1, 1), (2, 1)])?;
    let (left, right) = (f.db.begin(), f.db.begin());
    for tx in [&left, &right] {
        assert_eq!((f.get(tx, 1)?, f.get(tx, 2)?), (Some(1), Some(1)));
    }
    f.put(&left, 1, 0)?;
    f.put(&right, 2, 0)?;
    left.commit()?;
    conflicts(right.commit());
    assert_eq!(f.all()?, [(1, 0), (2, 1)]);
    Ok(())
}

#[test]
fn rows_that_appear_in_a_range_are_a_conflict_in_it_and_none_beside_it() -> Result<()> {
    for is_reversed in [false, true] {
        for (new, is_inside) in [(5, false), (15, true), (40, false), (29, true), (31, false), (10, true)] {
            let f = Fixture::with(&[(10, 0), (20, 0), (30, 0)])?;
            let tx = f.db.begin();
            let rows = f.table.range(&tx, row![10_u64]..=row![30_u64])?;
            let count = if is_reversed { rows.rev().count() } else { rows.count() };
            f.set(&[(new, 1)])?;
            f.put(&tx, 1000, i64::try_from(count).expect("small"))?;
            let outcome = tx.commit();
            assert_eq!(matches!(outcome, Err(Error::Conflict)), is_inside, "{new}: {outcome:?}");
        }
    }
    Ok(())
}

#[test]
fn a_range_that_was_left_early_has_no_rows_after_that() -> Result<()> {
    let f = Fixture::with(&[(10, 0), (20, 0), (30, 0)])?;
    let tx = f.db.begin();
    let first: Vec<Row> = f.table.range(&tx, ..)?.take(1).collect::<Result<_>>()?;
    assert_eq!(first, [row![10_u64, 0_i64]]);
    f.set(&[(15, 0), (25, 0)])?;
    f.put(&tx, 1, 1)?;
    tx.commit()?;
    let tx = f.db.begin();
    assert_eq!(f.table.range(&tx, ..)?.take(2).count(), 2);
    f.set(&[(5, 0)])?;
    f.put(&tx, 1, 2)?;
    conflicts(tx.commit());
    Ok(())
}

#[test]
fn an_absence_that_ends_is_a_conflict() -> Result<()> {
    let f = fixture()?;
    for was_deleted in [false, true] {
        let key = 7 + u64::from(was_deleted);
        if was_deleted {
            f.set(&[(key, 1)])?;
            f.db.update(|tx| f.table.delete(tx, &row![key]))?;
        }
        let (left, right) = (f.db.begin(), f.db.begin());
        for tx in [&left, &right] {
            f.table.insert(tx, &row![key, 1_i64])?;
        }
        left.commit()?;
        conflicts(right.commit());
        let tx = f.db.begin();
        let outcome = f.table.insert(&tx, &row![key, 2_i64]);
        assert!(
            matches!(&outcome, Err(Error::Duplicate { table, key: text, .. }) if table == "t" && *text == format!("({key})"))
        );
    }
    Ok(())
}

#[test]
fn no_attempt_sees_a_state_that_never_was() -> Result<()> {
    let f = Fixture::with(&[(1, 0), (2, 0)])?;
    let tx = f.db.begin();
    assert_eq!(f.get(&tx, 1)?, Some(0));
    f.set(&[(1, 1), (2, 1)])?;
    conflicts(f.get(&tx, 2));
    conflicts(f.get(&tx, 1));
    conflicts(tx.commit());
    // The same with absence: of a row that comes, and of one that goes and is purged.
    let tx = f.db.begin();
    assert_eq!(f.get(&tx, 3)?, None);
    f.set(&[(1, 2), (3, 2)])?;
    conflicts(f.get(&tx, 1));
    let tx = f.db.begin();
    assert_eq!(f.get(&tx, 1)?, Some(2));
    f.db.update(|tx| {
        f.table.delete(tx, &row![3_u64])?;
        f.put(tx, 1, 3)
    })?;
    (100..120).try_for_each(|key| f.set(&[(key, 0)]))?;
    conflicts(f.get(&tx, 3));
    // In a range of which one row was read before.
    let tx = f.db.begin();
    let mut rows = f.table.range(&tx, ..)?;
    assert_eq!(rows.next().transpose()?, Some(row![1_u64, 3_i64]));
    f.set(&[(1, 4), (2, 4)])?;
    conflicts(rows.next().transpose());
    assert!(rows.next().is_none());
    Ok(())
}

#[test]
fn an_answer_that_is_an_error_is_true() -> Result<()> {
    let f = Fixture::with(&[(1, 1)])?;
    let mut attempts = 0;
    let outcome = f.db.update(|tx| {
        attempts += 1;
        let found = f.get(tx, 1)?;
        if attempts == 1 {
            let other = f.db.begin();
            f.put(&other, 1, 2)?;
            other.commit()?;
        }
        Err::<(), _>(Error::cancelled(format!("found {found:?}")))
    });
    assert!(matches!(&outcome, Err(Error::Cancelled { reason }) if reason == "found Some(2)"), "{outcome:?}");
    Ok(())
}

#[test]
fn a_row_that_is_inserted_again_survives_its_deletion() -> Result<()> {
    let f = fixture()?;
    // Makes the clock of the first writer large, then deletes.
    (0..50).try_for_each(|value| f.set(&[(1, value)]))?;
    f.db.update(|tx| f.table.delete(tx, &row![1_u64]))?;
    // The second writer's clock knows nothing of these commits. Its inserts purge the deleted row.
    let first = f.db.hold_writer()?;
    (2..12).try_for_each(|key| f.set(&[(key, 0)]))?;
    f.set(&[(1, 77)])?;
    drop(first);
    let Fixture { open, folder } = f;
    drop(open);
    let open = Open::at(&folder.path().join("a.pool"), &options(DomainChoice::Process))?;
    assert_eq!(open.db.update(|tx| open.get(tx, 1))?, Some(77));
    Ok(())
}

#[test]
fn closures_change_rows_of_the_range_that_they_read() -> Result<()> {
    let f = Fixture::with(&[(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6)])?;
    f.db.update(|tx| {
        for row in f.table.range(tx, ..)? {
            let row = row?;
            let (key, value) = (row[0].as_u64().unwrap_or(0), row[1].as_i64().unwrap_or(0));
            if key % 2 == 0 {
                f.table.delete(tx, &row![key])?;
            } else if key < 10 {
                f.put(tx, key, value * 10)?;
                f.put(tx, key + 10, value)?;
            }
        }
        Ok(())
    })?;
    assert_eq!(f.all()?, [(1, 10), (3, 30), (5, 50), (11, 1), (13, 3), (15, 5)]);
    let f = Fixture::with(&[(1, 1), (2, 2)])?;
    let tx = f.db.begin();
    f.put(&tx, 3, 3)?;
    f.table.delete(&tx, &row![1_u64])?;
    assert_eq!((f.count(&tx, 0, 10)?, f.get(&tx, 1)?, f.get(&tx, 3)?), (2, None, Some(3)));
    drop(tx);
    assert_eq!(f.all()?, [(1, 1), (2, 2)]);
    Ok(())
}

#[test]
fn errors_name_what_is_wrong() -> Result<()> {
    let f = Fixture::with(&[(1, 1)])?;
    let other = fixture()?;
    let tx = f.db.begin();
    let texts = [
        f.table.get(&tx, &row![1_i64]).expect_err("wrong type").to_string(),
        f.table.get(&tx, &row![]).expect_err("no key").to_string(),
        f.table.put(&tx, &row![1_u64]).expect_err("too short").to_string(),
        f.table.update(&tx, &row![9_u64, 1_i64]).expect_err("no such row").to_string(),
        other.table.get(&tx, &row![1_u64]).expect_err("another database").to_string(),
        f.db.table("u").expect_err("no table").to_string(),
        f.db.table("").expect_err("no table").to_string(),
        f.db.create_table(&Schema::new("t").column("k", Type::U64).key(["k"])).expect_err("differs").to_string(),
    ];
    let expected = [
        "table `t`: column `k u64` cannot hold a value of type i64; convert the value",
        "table `t`: a key of 0 values, it has 1 columns; pass a value for each column",
        "table `t`: a row of 1 values, it has 2 columns; pass a value for each column",
        "table `t` has no row with the key (9); use `put` to make it",
        "table `t` is of another database than the transaction; use the table of the same `Database`",
        "there is no table `u`; make it with `Database::create_table`",
        "there is no table ``; make it with `Database::create_table`",
        "table `t` differs from the schema: column 1 is `v i64`, not missing; use its columns, or another name",
    ];
    assert_eq!(texts, expected);
    assert_eq!(f.db.tables()?, ["t"]);
    Ok(())
}

/// A database with the table `w (k u64, tax i64, sum i64)`, and one row.
fn shops() -> Result<(Fixture, lodestone_engine::Table)> {
    let fixture = Fixture::with(&[(1, 1)])?;
    let schema = Schema::new("w").column("k", Type::U64).column("tax", Type::I64).column("sum", Type::I64).key(["k"]);
    let shops = fixture.db.create_table(&schema)?;
    fixture.db.update(|tx| shops.put(tx, &row![1_u64, 7_i64, 0_i64]))?;
    Ok((fixture, shops))
}

#[test]
fn a_read_of_a_column_conflicts_with_changes_of_that_column_only() -> Result<()> {
    let (f, shops) = shops()?;
    let change = |tax: i64, sum: i64| f.db.update(|tx| shops.put(tx, &row![1_u64, tax, sum]));
    let tax = |tx: &Tx| shops.get_columns(tx, &row![1_u64], &["tax"]);
    // Another column changes, once or more, and other rows are read after that.
    let tx = f.db.begin();
    assert_eq!(tax(&tx)?, Some(row![7_i64]));
    change(7, 1)?;
    f.set(&[(1, 2)])?;
    assert_eq!(f.get(&tx, 1)?, Some(2), "the reads before are of the same moment");
    change(7, 2)?;
    f.put(&tx, 2, 7)?;
    tx.commit()?;
    // There and back.
    let tx = f.db.begin();
    tax(&tx)?;
    change(8, 2)?;
    change(7, 2)?;
    f.put(&tx, 2, 8)?;
    tx.commit()?;
    // The column, at the commit and at a read before it.
    let tx = f.db.begin();
    tax(&tx)?;
    change(8, 2)?;
    f.put(&tx, 2, 9)?;
    conflicts(tx.commit());
    let tx = f.db.begin();
    tax(&tx)?;
    change(9, 2)?;
    f.set(&[(1, 3)])?;
    conflicts(f.get(&tx, 1));
    // The row goes, or is read whole.
    let tx = f.db.begin();
    tax(&tx)?;
    f.db.update(|tx| shops.delete(tx, &row![1_u64]).map(|_| ()))?;
    f.put(&tx, 2, 10)?;
    conflicts(tx.commit());
    change(7, 0)?;
    let tx = f.db.begin();
    tax(&tx)?;
    shops.get(&tx, &row![1_u64])?;
    change(7, 1)?;
    f.put(&tx, 2, 11)?;
    conflicts(tx.commit());
    let error = f.db.update(|tx| shops.get_columns(tx, &row![1_u64], &["tax", "rate"]).map(|_| ())).unwrap_err();
    assert!(matches!(&error, Error::NoColumn { table, column } if table == "w" && column == "rate"), "{error}");
    Ok(())
}

#[test]
fn a_row_of_which_a_column_was_read_may_be_replaced() -> Result<()> {
    let (f, shops) = shops()?;
    for (tax_now, commits) in [(7, true), (8, false)] {
        let tx = f.db.begin();
        assert_eq!(shops.get_columns(&tx, &row![1_u64], &["tax", "k"])?, Some(row![7_i64, 1_u64]));
        f.db.update(|tx| shops.put(tx, &row![1_u64, i64::from(tax_now), 5_i64]))?;
        shops.put(&tx, &row![1_u64, 7_i64, 9_i64])?;
        assert_eq!(shops.get_columns(&tx, &row![1_u64], &["sum"])?, Some(row![9_i64]), "the own change");
        assert_eq!(tx.commit().is_ok(), commits);
    }
    let snapshot = f.db.snapshot()?;
    assert_eq!(shops.get_columns(&snapshot, &row![1_u64], &["sum"])?, Some(row![5_i64]));
    assert_eq!(shops.get_columns(&snapshot, &row![2_u64], &["sum"])?, None);
    Ok(())
}

#[test]
fn a_column_whose_value_has_moved_to_pieces_counts_as_changed() -> Result<()> {
    let f = Fixture::with(&[(1, 1)])?;
    let schema = Schema::new("notes").column("k", Type::U64).column("note", Type::Text).key(["k"]);
    let notes = f.db.create_table(&schema)?;
    let set = |text: &str| f.db.update(|tx| notes.put(tx, &row![1_u64, text]));
    set("short")?;
    let tx = f.db.begin();
    assert_eq!(notes.get_columns(&tx, &row![1_u64], &["note"])?, Some(row!["short"]));
    let long = "x".repeat(5_000);
    set(&long)?;
    f.put(&tx, 2, 7)?;
    conflicts(tx.commit());
    assert_eq!(f.db.update(|tx| notes.get_columns(tx, &row![1_u64], &["note"]))?, Some(row![long.as_str()]));
    Ok(())
}
