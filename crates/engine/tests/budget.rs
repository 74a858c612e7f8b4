//! The exact cost of a transaction: fences and bytes.

mod common;

use common::{Open, options};
use lodestone_engine::{Result, row};
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
