//! Long values in pieces: random sizes beside a map, over lives and checkpoints; conflicts; limits; findings.

use std::collections::BTreeMap;

use crate::common::options;
use lodestone_engine::{Database, DatabaseOptions, Error, Result, Row, Schema, Table, Type, row};
use lodestone_pmem::DomainChoice;
use lodestone_store::Store;
use proptest::prelude::*;

fn small() -> DatabaseOptions {
    DatabaseOptions { inline_bytes_max: 40, piece_bytes: 16, ..options(DomainChoice::Process) }
}

fn open(path: &std::path::Path, options: &DatabaseOptions) -> Result<(Database, Table)> {
    let db = Database::open_with(path, options)?;
    let schema = Schema::new("t").column("k", Type::Text).column("a", Type::Bytes).column("n", Type::I64);
    let table = db.create_table(&schema.nullable("b", Type::Text).key(["k"]))?;
    Ok((db, table))
}

/// Bytes that are others at each place and for each seed.
fn bytes(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|place| seed.wrapping_mul(31).wrapping_add(place.to_le_bytes()[0])).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Put(String, u8, usize, Option<usize>),
    Insert(String, u8, usize, Option<usize>),
    Update(String, u8, usize, Option<usize>),
    Delete(String),
    /// The transaction fails at its end.
    Fail,
    Checkpoint,
    /// The life ends, in order or not, and the next one has pieces of this size.
    Reopen(bool, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let key = || "[a\0]{1,2}";
    // Below, around and far above the limits of a row and of a piece.
    let length = || prop_oneof![3 => 0..20_usize, 3 => 30..60_usize, 2 => 60..400_usize];
    let row = || (key(), any::<u8>(), length(), prop::option::of(length()));
    prop_oneof![
        4 => row().prop_map(|(k, seed, a, b)| Step::Put(k, seed, a, b)),
        2 => row().prop_map(|(k, seed, a, b)| Step::Insert(k, seed, a, b)),
        3 => row().prop_map(|(k, seed, a, b)| Step::Update(k, seed, a, b)),
        3 => key().prop_map(Step::Delete),
        1 => Just(Step::Fail),
        1 => Just(Step::Checkpoint),
        1 => (any::<bool>(), 16..50_usize).prop_map(|(is_closed, piece)| Step::Reopen(is_closed, piece)),
    ]
}

type Model = BTreeMap<String, Row>;

fn row_of(key: &str, seed: u8, a: usize, b: Option<usize>) -> Row {
    row![key, bytes(seed, a), i64::from(seed), b.map(|length| "xyz".repeat(length).split_off(length * 2))]
}

/// Runs the steps of one transaction on the table and on the model.
fn run(steps: &[Step], tx: &lodestone_engine::Tx, table: &Table, model: &mut Model) -> Result<()> {
    for step in steps {
        match step {
            Step::Put(key, seed, a, b) => {
                let row = row_of(key, *seed, *a, *b);
                table.put(tx, &row)?;
                model.insert(key.clone(), row);
            }
            Step::Insert(key, seed, a, b) => match table.insert(tx, &row_of(key, *seed, *a, *b)) {
                Err(Error::Duplicate { .. }) => assert!(model.contains_key(key)),
                outcome => {
                    outcome?;
                    assert!(model.insert(key.clone(), row_of(key, *seed, *a, *b)).is_none());
                }
            },
            Step::Update(key, seed, a, b) => match table.update(tx, &row_of(key, *seed, *a, *b)) {
                Err(Error::NotFound { .. }) => assert!(!model.contains_key(key)),
                outcome => {
                    outcome?;
                    assert!(model.insert(key.clone(), row_of(key, *seed, *a, *b)).is_some());
                }
            },
            Step::Delete(key) => {
                assert_eq!(table.delete(tx, &row![key.as_str()])?, model.remove(key).is_some());
            }
            Step::Fail => return Err(Error::cancelled("on purpose")),
            Step::Checkpoint | Step::Reopen(..) => {}
        }
        // Own changes are read before the commit.
        for (key, row) in &*model {
            assert_eq!(table.get(tx, &row![key.as_str()])?.as_ref(), Some(row), "{step:?}");
        }
    }
    Ok(())
}

fn compare(db: &Database, table: &Table, model: &Model) -> Result<()> {
    let rows = db.update(|tx| table.range(tx, ..)?.collect::<Result<Vec<_>>>())?;
    assert_eq!(rows, model.values().cloned().collect::<Vec<_>>());
    let reversed = db.update(|tx| table.range(tx, ..)?.rev().collect::<Result<Vec<_>>>())?;
    assert!(reversed.iter().eq(rows.iter().rev()));
    assert_eq!(db.pieces_left_over()?, Vec::<String>::new());
    Ok(())
}

fn check(transactions: &[Vec<Step>]) -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let mut options = small();
    let mut current = Some(open(&path, &options)?);
    let mut model = Model::default();
    for steps in transactions {
        let (db, table) = current.as_ref().expect("open");
        let mut after = model.clone();
        let outcome = db.update(|tx| {
            after.clone_from(&model);
            run(steps, tx, table, &mut after)
        });
        match outcome {
            Ok(()) => model = after,
            Err(Error::Cancelled { .. }) => {}
            Err(error) => return Err(error),
        }
        match steps.last() {
            Some(Step::Checkpoint) => drop(db.checkpoint()?),
            Some(Step::Reopen(is_closed, piece_bytes)) => {
                options.piece_bytes = *piece_bytes;
                let (db, table) = current.take().expect("open");
                drop(table);
                if *is_closed {
                    drop(db)
                } else {
                    db.abandon()
                }
                current = Some(open(&path, &options)?);
            }
            _ => {}
        }
        let (db, table) = current.as_ref().expect("open");
        compare(db, table, &model)?;
    }
    drop(current);
    let report = Store::open(&path, &options.pool)?.check(&mut |_| {});
    assert!(report.is_clean(), "{:?}", report.findings);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn long_values_are_like_short_ones(
        transactions in prop::collection::vec(prop::collection::vec(step(), 1..5), 1..12)
    ) {
        check(&transactions).expect("no error");
    }
}

fn fixture() -> Result<(tempfile::TempDir, std::path::PathBuf, Database, Table)> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let (db, table) = open(&path, &small())?;
    Ok((folder, path, db, table))
}

#[test]
fn puts_of_a_row_conflict_only_over_its_pieces() -> Result<()> {
    let (_folder, _path, db, table) = fixture()?;
    let short = |seed| row_of("k", seed, 3, None);
    // Neither looks at the row.
    let tx = db.begin();
    table.put(&tx, &short(1))?;
    db.update(|tx| table.put(tx, &short(2)))?;
    tx.commit()?;
    // The first one has seen that there are no pieces.
    let tx = db.begin();
    table.put(&tx, &short(3))?;
    db.update(|tx| table.put(tx, &row_of("k", 4, 100, None)))?;
    assert!(matches!(tx.commit(), Err(Error::Conflict)));
    assert_eq!(db.pieces_left_over()?, Vec::<String>::new());
    assert_eq!(db.update(|tx| table.get(tx, &row!["k"]))?, Some(row_of("k", 4, 100, None)));
    Ok(())
}

#[test]
fn a_transaction_reads_the_pieces_of_one_version() -> Result<()> {
    let (_folder, _path, db, table) = fixture()?;
    db.update(|tx| table.put(tx, &row_of("k", 1, 100, None)))?;
    let tx = db.begin();
    let mut rows = table.range(&tx, ..)?;
    assert_eq!(rows.next().transpose()?, Some(row_of("k", 1, 100, None)));
    for length in [10, 500, 90] {
        db.update(|tx| table.put(tx, &row_of("k", 2, length, Some(length))))?;
        assert!(matches!(table.get(&tx, &row!["k"]), Err(Error::Conflict)));
    }
    Ok(())
}

#[test]
fn a_value_of_megabytes_comes_back_and_one_above_the_log_is_refused() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let mut options = DatabaseOptions { log_bytes: 16 << 20, segment_bytes: 1 << 20, ..DatabaseOptions::default() };
    options.pool = lodestone_pmem::PoolOptions { size_bytes: 64 << 20, ..small().pool };
    let (db, table) = open(&path, &options)?;
    let row = |seed, length| row_of("k", seed, length, None);
    let put = |seed, length| db.update(|tx| table.put(tx, &row(seed, length)));
    put(1, 3 << 20)?;
    let error = put(2, 5 << 20).expect_err("a quarter of the log is less");
    let is_named = matches!(error, Error::TransactionTooLarge { bytes, limit } if bytes > 5 << 20 && limit < 4 << 20);
    assert!(is_named, "{error:?}");
    assert!(error.to_string().contains("larger `log_bytes`"), "{error}");
    put(3, 2 << 20)?;
    db.checkpoint()?;
    put(4, 3_000_001)?;
    drop((table, db));
    let (db, table) = open(&path, &options)?;
    assert!(db.update(|tx| table.get(tx, &row!["k"]))? == Some(row(4, 3_000_001)));
    assert_eq!(db.pieces_left_over()?, Vec::<String>::new());
    Ok(())
}
