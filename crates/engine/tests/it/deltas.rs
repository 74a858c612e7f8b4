//! Deltas: rows come back from them, through lives, checkpoints and damage, by any writer.

use std::path::Path;

use crate::common::options;
use lodestone_engine::{Database, DatabaseOptions, Durability, Error, Result, Row, Schema, Table, Tx, row};
use lodestone_pmem::DomainChoice;
use proptest::prelude::*;

/// A database with a table of wide rows.
struct Wide {
    db: Database,
    table: Table,
}

impl Wide {
    fn at(path: &Path, options: &DatabaseOptions) -> Result<Self> {
        let db = Database::open_with(path, options)?;
        let schema: Schema = "wide (k u64, a i64, b i64, c u64, note text null, pad text) key (k)".parse()?;
        Ok(Self { table: db.create_table(&schema)?, db })
    }

    fn update(&self, body: impl Fn(&Tx, &Table) -> Result<()>) -> Result<()> {
        self.db.update(|tx| body(tx, &self.table))
    }

    fn all(&self) -> Result<Vec<Row>> {
        self.db.update(|tx| self.table.range(tx, ..)?.collect())
    }
}

fn wide(k: u64, a: i64, pad: &str) -> Row {
    row![k, a, 0_i64, 0_u64, None::<String>, pad]
}

#[derive(Clone, Debug)]
enum Step {
    Put(u64, i64, String),
    Add(u64, &'static str, i64),
    /// Two changes of one row by one transaction.
    AddTwice(u64, i64),
    Note(u64, Option<String>),
    Delete(u64),
    /// By another writer.
    Elsewhere(u64, i64),
    Checkpoint,
    Reopen,
    Kill,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0..4_u64;
    let pad = "[ab]{0,90}";
    let step = prop_oneof![
        2 => (key(), any::<i64>(), pad).prop_map(|(k, a, pad)| Step::Put(k, a, pad)),
        4 => (key(), prop::sample::select(vec!["a", "b", "c"]), 0..300_i64).prop_map(|(k, column, n)| Step::Add(k, column, n)),
        1 => (key(), 0..300_i64).prop_map(|(k, n)| Step::AddTwice(k, n)),
        1 => (key(), prop::option::of("[xy]{0,9}")).prop_map(|(k, note)| Step::Note(k, note)),
        1 => key().prop_map(Step::Delete),
        3 => (key(), 0..300_i64).prop_map(|(k, n)| Step::Elsewhere(k, n)),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Reopen),
        2 => Just(Step::Kill),
    ];
    prop::collection::vec(step, 1..40)
}

/// Adds to a row, unless there is none.
fn add(tx: &Tx, table: &Table, k: u64, column: &str, amount: i64) -> Result<()> {
    match table.add(tx, &row![k], column, amount) {
        Err(Error::NotFound { .. } | Error::Overflow { .. }) => Ok(()),
        outcome => outcome,
    }
}

fn apply(wide_table: &Wide, step: &Step) -> Result<()> {
    let Wide { db, .. } = wide_table;
    match step {
        Step::Put(k, a, pad) => wide_table.update(|tx, table| table.put(tx, &wide(*k, *a, pad))),
        Step::Add(k, column, n) => wide_table.update(|tx, table| add(tx, table, *k, column, *n)),
        Step::AddTwice(k, n) => wide_table.update(|tx, table| {
            add(tx, table, *k, "a", *n)?;
            add(tx, table, *k, "c", 1)
        }),
        Step::Note(k, note) => wide_table.update(|tx, table| {
            let Some(mut row) = table.get(tx, &row![*k])? else { return Ok(()) };
            row.0[4] = note.clone().into();
            table.update(tx, &row)
        }),
        Step::Delete(k) => wide_table.update(|tx, table| table.delete(tx, &row![*k]).map(|_| ())),
        Step::Elsewhere(k, n) => {
            let _first = db.hold_writer()?;
            wide_table.update(|tx, table| add(tx, table, *k, "b", *n))
        }
        Step::Checkpoint => db.checkpoint().map(|_| ()),
        Step::Reopen | Step::Kill => Ok(()),
    }
}

fn run(script: &[Step], options: &DatabaseOptions) -> Result<Vec<Row>> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let mut open = Wide::at(&path, options)?;
    for step in script.iter().chain([&Step::Kill]) {
        apply(&open, step)?;
        if matches!(step, Step::Reopen | Step::Kill) {
            let before = open.all()?;
            let Wide { db, table } = open;
            drop(table);
            if matches!(step, Step::Kill) {
                db.abandon()
            } else {
                drop(db)
            }
            open = Wide::at(&path, options)?;
            assert_eq!(open.all()?, before, "after {step:?}");
        }
    }
    open.all()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn rows_come_back_with_and_without_deltas(script in steps()) {
        let with = options(DomainChoice::Process);
        let without = DatabaseOptions { deltas: false, ..with.clone() };
        prop_assert_eq!(run(&script, &with)?, run(&script, &without)?);
    }

    #[test]
    fn rows_of_groups_come_back(script in steps()) {
        let durability = Durability::Epoch(std::time::Duration::from_micros(10));
        let options = DatabaseOptions { durability, ..options(DomainChoice::Process) };
        run(&script, &options)?;
    }
}

/// The newer checkpoint is damaged. The images of the older one are the bases, and the log goes on from its cut.
#[test]
fn the_older_checkpoint_is_a_base_as_well() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let with = options(DomainChoice::DaxEmulated);
    let open = Wide::at(&path, &with)?;
    let pad = "x".repeat(100);
    open.update(|tx, table| (0..8).try_for_each(|k| table.put(tx, &wide(k, 1, &pad))))?;
    for round in 0..6 {
        open.db.checkpoint()?;
        open.update(|tx, table| (0..8).try_for_each(|k| add(tx, table, k, "a", 10 + k as i64)))?;
        let _held = open.db.hold_writer()?;
        open.update(|tx, table| add(tx, table, round, "b", 1))?;
    }
    let expected = open.all()?;
    let (newest, memory) = (open.db.newest_checkpoint(), open.db.store().memory().clone());
    memory.store(newest, !memory.load(newest));
    memory.persist(newest, 8);
    let Wide { db, table } = open;
    drop((table, memory));
    db.abandon();
    let open = Wide::at(&path, &with)?;
    assert_eq!(open.all()?, expected);
    assert!(open.db.recovery().records >= 4, "{:?}", open.db.recovery());
    Ok(())
}

/// Two blind changes of one row do not conflict, with deltas neither: the second one is encoded anew.
#[test]
fn rows_that_are_put_by_many_threads_come_back() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let with = options(DomainChoice::Process);
    let open = Wide::at(&path, &with)?;
    let pad = "x".repeat(100);
    open.update(|tx, table| (0..4).try_for_each(|k| table.put(tx, &wide(k, 0, &pad))))?;
    std::thread::scope(|scope| {
        for thread in 0..4_i64 {
            let (open, pad) = (&open, &pad);
            scope.spawn(move || {
                for turn in 0..300 {
                    let key = (turn % 4) as u64;
                    if turn % 3 == 0 {
                        open.update(|tx, table| table.add(tx, &row![key], "b", thread)).expect("no fault");
                    } else {
                        open.update(|tx, table| table.put(tx, &wide(key, thread * 1000 + turn, pad)))
                            .expect("no fault");
                    }
                }
            });
        }
    });
    let expected = open.all()?;
    let Wide { db, table } = open;
    drop(table);
    db.abandon();
    assert_eq!(Wide::at(&path, &with)?.all()?, expected);
    Ok(())
}

#[test]
fn sums_that_do_not_fit_and_columns_that_are_none_are_named() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let open = Wide::at(&folder.path().join("a.pool"), &options(DomainChoice::Process))?;
    open.update(|tx, table| table.put(tx, &wide(1, i64::MAX, "pad")))?;
    let add = |k: u64, column: &str, n: i64| open.update(|tx, table| table.add(tx, &row![k], column, n));
    assert!(matches!(add(1, "a", 1), Err(Error::Overflow { .. })));
    assert!(matches!(add(1, "c", -1), Err(Error::Overflow { .. })));
    assert!(matches!(add(1, "pad", 1), Err(Error::WrongType { .. })));
    assert!(matches!(add(1, "k", 1), Err(Error::NoColumn { .. })));
    assert!(matches!(add(1, "z", 1), Err(Error::NoColumn { .. })));
    assert!(matches!(add(2, "a", 1), Err(Error::NotFound { .. })));
    add(1, "c", 3)?;
    assert_eq!(open.all()?, [row![1_u64, i64::MAX, 0_i64, 3_u64, None::<String>, "pad"]]);
    Ok(())
}
