//! The exact cost of a transaction: fences and bytes.

use std::path::Path;

use crate::common::{Open, options};
use lodestone_engine::{Database, DatabaseOptions, Error, FlushUnit, Result, Row, Table, Tx, Value, row};
use lodestone_pmem::{CounterScope, Counters, DomainChoice};

fn cost(work: impl FnOnce() -> Result<()>) -> Result<Counters> {
    let scope = CounterScope::start();
    work()?;
    Ok(scope.delta())
}

#[test]
fn one_fence_and_one_record_whatever_a_transaction_changes() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let open = Open::at(&folder.path().join("a.pool"), &options(DomainChoice::DaxEmulated))?;
    open.set(&[(1, 1)])?;
    // A row: 12 bytes of head, 8 of key, 2 of schema version, 1 of bitmap, 8 of value, to a multiple of 8: 32. A
    // record: 24 more, to a multiple of 64.
    for (rows, bytes) in [(1, 64), (2, 128), (10, 384), (100, 3264)] {
        let rows: Vec<(u64, i64)> = (0..rows).map(|key| (key, 7)).collect();
        for round in 0..3 {
            let cost = cost(|| open.set(&rows))?;
            assert_eq!((cost.fences, cost.pm_bytes()), (1, bytes), "{} rows, round {round}", rows.len());
        }
    }
    let cost = cost(|| open.db.update(|tx| open.table.delete(tx, &row![1_u64]).map(|_| ())))?;
    assert_eq!((cost.fences, cost.pm_bytes()), (1, 64), "a deletion");
    Ok(())
}

/// A database with the tables of `schemas`, with or without deltas.
fn database(schemas: &[&str], deltas: bool) -> Result<(tempfile::TempDir, Database, Vec<Table>)> {
    let folder = tempfile::tempdir().expect("a folder");
    let options = DatabaseOptions { deltas, ..options(DomainChoice::DaxEmulated) };
    let db = Database::open_with(folder.path().join("a.pool"), &options)?;
    let tables = schemas.iter().map(|schema| db.create_table(&schema.parse()?)).collect::<Result<_>>()?;
    Ok((folder, db, tables))
}

/// Bytes of the record of `change`, with whole rows and with deltas. The rows are of this life.
fn record_bytes(
    schemas: &[&str],
    rows: &[(usize, Row)],
    change: impl Fn(&Tx, &[Table]) -> Result<()>,
) -> Result<[u64; 2]> {
    let mut bytes = [0; 2];
    for (deltas, bytes) in [false, true].into_iter().zip(&mut bytes) {
        let (_folder, db, tables) = database(schemas, deltas)?;
        db.update(|tx| rows.iter().try_for_each(|(table, row)| tables[*table].put(tx, row)))?;
        let cost = cost(|| db.update(|tx| change(tx, &tables)))?;
        assert_eq!(cost.fences, 1);
        *bytes = cost.pm_bytes();
    }
    Ok(bytes)
}

fn text(bytes: usize) -> String {
    "x".repeat(bytes)
}

#[test]
fn a_delta_has_the_bytes_that_changed() -> Result<()> {
    // A row of 650 bytes, of which 18 change. Whole: 12 of head, 8 of key, 650, to a multiple of 8: 672. As a delta:
    // 12, 8, 8 of base, 4 of range, 18: 56. A record: 24 more, to a multiple of 64.
    let row = |id: i64, change: &str| row![id, [&text(300)[..], change, &text(327)].concat()];
    let bytes = record_bytes(&["r (k i64, v text) key (k)"], &[(0, row(1, &text(18)))], |tx, tables| {
        tables[0].update(tx, &row(1, &"y".repeat(18)))
    })?;
    assert_eq!(bytes, [704, 128]);
    // Two places further apart than a range is long: 12, 8, 8, and 5 for each.
    let two = |byte: &str| row![1_i64, [byte, &text(300), byte, &text(344)].concat()];
    let bytes =
        record_bytes(&["r (k i64, v text) key (k)"], &[(0, two("x"))], |tx, tables| tables[0].update(tx, &two("y")))?;
    assert_eq!(bytes, [704, 64]);
    // A row all of which changes has no delta, and neither has one that is short.
    let bytes = record_bytes(&["r (k i64, v text) key (k)"], &[(0, row![1_i64, text(100)])], |tx, tables| {
        tables[0].update(tx, &row![1_i64, "y".repeat(100)])
    })?;
    assert_eq!(bytes, [192, 192]);
    Ok(())
}

/// The transactions of section 14 of the design, with the columns that the types of this crate have.
#[test]
fn records_of_known_transactions() -> Result<()> {
    // SmallBank, SendPayment: two rows of a number.
    let bytes =
        record_bytes(&["c (k u64, cents i64) key (k)"], &[(0, row![1_u64, 5_i64]), (0, row![2_u64, 5_i64])], {
            |tx, tables| {
                tables[0].add(tx, &row![1_u64], "cents", -5)?;
                tables[0].add(tx, &row![2_u64], "cents", 5)
            }
        })?;
    assert_eq!(bytes, [128, 128], "SendPayment");
    // TPC-B: three rows of 100 bytes with a sum, and a line of 50 bytes that is new.
    let of_100 = "(k u64, sum i64, filler text) key (k)";
    let schemas =
        [&format!("a {of_100}")[..], &format!("t {of_100}"), &format!("b {of_100}"), "h (k u64, line text) key (k)"];
    let rows: Vec<(usize, Row)> = (0..3).map(|table| (table, row![1_u64, 1_000_i64, text(79)])).collect();
    let bytes = record_bytes(&schemas, &rows, |tx, tables| {
        (0..3).try_for_each(|table| tables[table].add(tx, &row![1_u64], "sum", 77_777))?;
        tables[3].insert(tx, &row![1_u64, text(37)])
    })?;
    assert_eq!(bytes, [448, 256], "TPC-B");
    // YCSB: one of ten fields of 100 bytes.
    let fields: Vec<String> = (0..10).map(|field| format!("f{field} text")).collect();
    let schema = format!("y (k text, {}) key (k)", fields.join(", "));
    let key = "user6284781860667377211";
    let ycsb = |fourth: String| {
        let fields = (0..10).map(|field| if field == 4 { fourth.clone() } else { text(100) });
        Row([key.to_owned()].into_iter().chain(fields).map(Value::from).collect())
    };
    let bytes =
        record_bytes(&[&schema], &[(0, ycsb(text(100)))], |tx, tables| tables[0].update(tx, &ycsb("y".repeat(100))))?;
    assert_eq!(bytes, [1088, 192], "YCSB update");
    Ok(())
}

/// TPC-C, Payment: sums of a warehouse, a district and a customer, and a line of history.
#[test]
fn the_record_of_a_payment() -> Result<()> {
    let place = "street_1 text, street_2 text, city text, state text, zip text";
    let schemas = [
        &format!("warehouse (w u64, ytd i64, tax i64, name text, {place}) key (w)")[..],
        &format!("district (w u64, d u64, ytd i64, tax i64, next i64, name text, {place}) key (w, d)"),
        &format!(
            "customer (w u64, d u64, c u64, since i64, lim i64, discount i64, balance i64, ytd i64, payments i64,
             deliveries i64, first text, middle text, last text, {place}, phone text, credit text, data text)
             key (w, d, c)"
        ),
        "history (n u64, customer u64, date i64, amount i64, data text) key (n)",
    ];
    let texts = |bytes: &[usize]| bytes.iter().map(|bytes| Value::from(text(*bytes))).collect::<Vec<_>>();
    let row = |numbers: Row, bytes: &[usize]| Row([numbers.0, texts(bytes)].concat());
    let customer = row![1_u64, 1_u64, 7_u64, 9_i64, 50_000_i64, 12_i64, -1_000_i64, 1_000_i64, 1_i64, 0_i64];
    let rows = [
        (0, row(row![1_u64, 30_000_000_i64, 10_i64], &[10, 20, 20, 20, 2, 9])),
        (1, row(row![1_u64, 1_u64, 3_000_000_i64, 10_i64, 3001_i64], &[10, 20, 20, 20, 2, 9])),
        (2, row(customer, &[16, 2, 16, 20, 20, 20, 2, 9, 16, 2, 400])),
    ];
    let bytes = record_bytes(&schemas, &rows, |tx, tables| {
        let amount = 432_109;
        tables[0].add(tx, &row![1_u64], "ytd", amount)?;
        tables[1].add(tx, &row![1_u64, 1_u64], "ytd", amount)?;
        let key = row![1_u64, 1_u64, 7_u64];
        for (column, change) in [("balance", -amount), ("ytd", amount), ("payments", 1)] {
            tables[2].add(tx, &key, column, change)?;
        }
        tables[3].insert(tx, &row![1_u64, 7_u64, 99_i64, amount, text(24)])
    })?;
    assert_eq!(bytes, [1088, 256]);
    Ok(())
}

/// A database with 20 long rows in one page.
fn long_rows(path: &Path, flush_unit: FlushUnit) -> Result<(Database, Table)> {
    let options = options(DomainChoice::DaxEmulated);
    let db =
        Database::open_with(path, &DatabaseOptions { flush_unit, page_bytes: 8192, leaf_rows_max: 64, ..options })?;
    let table = db.create_table(&"r (k u64, n i64, v text) key (k)".parse()?)?;
    // The first commit of a life persists a range of ticks.
    db.update(|tx| (2..22_u64).try_for_each(|k| table.put(tx, &row![k, 0_i64, text(300)])))?;
    Ok((db, table))
}

/// Bytes of the record of a change of eight bytes.
fn add_bytes(db: &Database, table: &Table, k: u64) -> Result<u64> {
    Ok(cost(|| db.update(|tx| table.add(tx, &row![k], "n", 1)))?.pm_bytes())
}

#[test]
fn the_first_change_of_a_row_in_a_life_is_whole() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    for (life, unit) in (0..4_i64).zip([FlushUnit::Line, FlushUnit::Page].repeat(2)) {
        let (db, table) = long_rows(&path, unit)?;
        if life == 0 {
            db.update(|tx| table.put(tx, &row![1_u64, 0_i64, text(300)]))?;
        }
        let add = || add_bytes(&db, &table, 1);
        assert_eq!([add()?, add()?, add()?], if life == 0 { [64, 64, 64] } else { [384, 64, 64] }, "life {life}");
        // This page changes much. After the next one only this row has changed.
        (0..2).try_for_each(|_| db.checkpoint().and_then(|_| add().map(|_| ())))?;
        db.checkpoint()?;
        assert_eq!([add()?, add()?], if unit == FlushUnit::Line { [384, 64] } else { [64, 64] }, "after checkpoints");
    }
    Ok(())
}

/// Else a round would write the row in place, and no record has all of it.
#[test]
fn a_commit_that_fails_has_no_whole_record() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let (db, table) = long_rows(&folder.path().join("a.pool"), FlushUnit::Line)?;
    for _ in 0..3 {
        db.checkpoint()?;
        add_bytes(&db, &table, 5)?;
    }
    let tx = db.begin();
    table.get(&tx, &row![5_u64])?;
    table.put(&tx, &row![7_u64, 1_i64, text(300)])?;
    add_bytes(&db, &table, 5)?;
    assert!(matches!(tx.commit(), Err(Error::Conflict)));
    assert_eq!([add_bytes(&db, &table, 7)?, add_bytes(&db, &table, 7)?], [384, 64]);
    Ok(())
}

#[test]
fn reads_and_transactions_that_change_nothing_cost_nothing() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let open = Open::at(&folder.path().join("a.pool"), &options(DomainChoice::DaxEmulated))?;
    open.set(&[(1, 1), (2, 2)])?;
    let cost = cost(|| {
        open.all()?;
        open.db.update(|tx| open.get(tx, 1).map(|_| ()))?;
        open.db.update(|tx| open.table.delete(tx, &row![9_u64]).map(|_| ()))?;
        assert!(open.db.update(|tx| open.table.insert(tx, &row![1_u64, 1_i64])).is_err());
        open.put(&open.db.begin(), 5, 5)
    })?;
    assert_eq!((cost.fences, cost.pm_bytes()), (0, 0));
    Ok(())
}

/// Operations that read and write a line of memory which all threads share: two for the handle of each transaction, two
/// for each tree that it changes and for the commit of that, four for each leaf of which it read a range or the absence
/// of a key, two for each row that is added, and the lock of each row that it changes. The code says where it counts
/// (`count_shared_rmws`). References to rows, and the locks of spare buffers and writers, are not counted.
#[test]
fn a_row_that_is_read_or_replaced_costs_no_shared_line_but_its_own() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let open = Open::at(&folder.path().join("a.pool"), &options(DomainChoice::DaxEmulated))?;
    let rows: Vec<(u64, i64)> = (0..500).map(|key| (key, 1)).collect();
    open.set(&rows)?;
    for count in [1, 10, 500] {
        let get = |tx: &Tx, key| open.table.get(tx, &row![key]).map(|_| ());
        let reads = cost(|| open.db.update(|tx| (0..count).try_for_each(|key| get(tx, key))))?;
        assert_eq!((reads.shared_rmws, reads.fences, reads.pm_bytes()), (2, 0, 0), "{count} reads");
        let writes = cost(|| open.set(&rows[..count as usize]))?;
        assert_eq!((writes.shared_rmws, writes.fences), (2 + 2 + 2 + count, 1), "{count} rows are replaced");
    }
    let absent = cost(|| open.db.update(|tx| open.table.get(tx, &row![1_000_u64]).map(|_| ())))?;
    assert_eq!((absent.shared_rmws, absent.fences), (2 + 4, 0), "an absent row");
    Ok(())
}
