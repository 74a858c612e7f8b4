//! Copies of a database that is being changed: each opens, and holds all of every transaction or nothing.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::common::options;
use lodestone_engine::{DATABASE_NAME, Database, DatabaseOptions, Result, Table, Tx, Value, row};
use lodestone_pmem::{CopyOptions, DomainChoice};
use lodestone_store::Store;

const ACCOUNTS: u64 = 40;
const CENTS: i64 = 1000;
const WRITERS: u64 = 3;
const TEXT: &str =
    "accounts (id u64, owner text, cents i64) key (id) index by_owner (owner) unique by_both (owner, id)";

fn cents(row: &[Value]) -> i64 {
    row[2].as_i64().expect("cents")
}

/// Moves cents between two accounts, which change their owners, and counts in the row of the thread.
fn transfer(tx: &Tx, table: &Table, thread: u64, number: u64) -> Result<()> {
    let (from, to) = ((number * 7 + thread) % ACCOUNTS, (number * 11 + 3 * thread + 1) % ACCOUNTS);
    let counter = ACCOUNTS + thread;
    table.put(tx, &row![counter, "counter", i64::try_from(number).expect("small")])?;
    if from == to {
        return Ok(());
    }
    for (id, change) in [(from, -5), (to, 5)] {
        let row = table.get(tx, &row![id])?.expect("an account");
        table.put(tx, &row![id, format!("owner{}", number % 5), cents(&row) + change])?;
    }
    Ok(())
}

/// The counters of the threads in the copy, all of whose sums and indexes are right.
fn judge(path: &Path, options: &DatabaseOptions) -> Result<Vec<u64>> {
    let db = Database::open_with(path, options)?;
    let table = db.table("accounts")?;
    let rows = db.update(|tx| table.range(tx, ..)?.collect::<Result<Vec<_>>>())?;
    let sum: i64 = rows.iter().filter(|row| row[0].as_u64() < Some(ACCOUNTS)).map(|row| cents(row)).sum();
    assert_eq!(sum, CENTS * i64::try_from(ACCOUNTS).expect("small"), "cents came or went");
    let counter = |row: &[Value]| u64::try_from(cents(row)).expect("positive");
    let counters = rows.iter().filter(|row| row[0].as_u64() >= Some(ACCOUNTS)).map(|row| counter(row)).collect();
    drop((table, db));
    let store = Store::open_or_create(path, &options.pool)?;
    let object = store.open_object(DATABASE_NAME)?;
    let contents = store.kind_of(&object)?.examine(object).expect("the database opens");
    assert!(contents.flaws.is_empty(), "{:?}", contents.flaws);
    Ok(counters)
}

fn backups_beside_writers(domain: DomainChoice) -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    // A log that is small enough for checkpoints meanwhile.
    let options = DatabaseOptions { log_bytes: 1 << 20, segment_bytes: 32 << 10, ..options(domain) };
    let db = Database::open_with(&path, &options)?;
    let table = db.create_table(&TEXT.parse()?)?;
    db.update(|tx| {
        (0..ACCOUNTS).try_for_each(|id| table.put(tx, &row![id, "nobody", CENTS]))?;
        (0..WRITERS).try_for_each(|thread| table.put(tx, &row![ACCOUNTS + thread, "counter", 0_i64]))
    })?;
    let is_over = AtomicBool::new(false);
    let acknowledged: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    let copies = thread::scope(|scope| {
        for thread in 0..WRITERS {
            let (db, table, is_over, acknowledged) = (&db, &table, &is_over, &acknowledged);
            scope.spawn(move || {
                for number in 1.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    db.update(|tx| transfer(tx, table, thread, number)).expect("no error");
                    acknowledged[usize::try_from(thread).expect("small")].store(number, Ordering::SeqCst);
                }
            });
        }
        let mut copies = Vec::new();
        for number in 0..8 {
            let before: Vec<u64> = acknowledged.iter().map(|count| count.load(Ordering::SeqCst)).collect();
            let target = folder.path().join(format!("copy{number}.pool"));
            let outcome = db.backup(&target, &CopyOptions::default());
            copies.push((target, before, outcome));
        }
        is_over.store(true, Ordering::Relaxed);
        copies
    });
    for (target, before, outcome) in copies {
        outcome?;
        let after = judge(&target, &options)?;
        assert!(
            after.iter().zip(&before).all(|(after, before)| after >= before),
            "{before:?} were there, {after:?} are"
        );
    }
    Ok(())
}

#[test]
fn a_copy_has_what_was_acknowledged_before_it() -> Result<()> {
    backups_beside_writers(DomainChoice::Process)?;
    backups_beside_writers(DomainChoice::DaxEmulated)?;
    backups_beside_writers(DomainChoice::Block)
}
