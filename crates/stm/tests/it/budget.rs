//! The exact cost of a transaction: fences, flushed bytes, writes of shared lines.

use lodestone_pmem::{CounterScope, Counters, DomainChoice, PoolOptions};
use lodestone_stm::{
    ClockKind, FromBytes, Immutable, IntoBytes, KnownLayout, Mode, PmObject, PmPtr, Result, Stm, StmOptions,
};
use lodestone_store::Store;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Object {
    bytes: [u8; 100],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Small {
    first: u64,
    second: u64,
}

fn memory(folder: &tempfile::TempDir, options: &StmOptions) -> Result<Stm> {
    let pool = PoolOptions { domain: DomainChoice::Process, size_bytes: 32 << 20, ..PoolOptions::default() };
    Stm::open_with(&Store::create(folder.path().join("budget.pool"), &pool)?, options)
}

fn cost(work: impl FnOnce() -> Result<()>) -> Result<Counters> {
    let scope = CounterScope::start();
    work()?;
    Ok(scope.delta())
}

fn objects(stm: &Stm, count: usize) -> Result<Vec<PmPtr<Object>>> {
    (0..count).map(|_| stm.update(|tx| tx.alloc(Object { bytes: [0; 100] }))).collect()
}

#[test]
fn one_fence_whatever_a_transaction_changes() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let stm = memory(&folder, &StmOptions::default())?;
    let all = objects(&stm, 200)?;
    // Lines of 100-byte versions: two a slot. The record: one line for up to five members.
    for (count, lines) in [(1, 2), (2, 4 + 1), (5, 10 + 1), (8, 16 + 2), (200, 400 + 27)] {
        // The first two chained records of a thread take their blocks from the heap, once.
        for round in 0..5 {
            let cost = cost(|| {
                stm.update(|tx| {
                    all[..count].iter().try_for_each(|&ptr| tx.write(ptr).map(|object| object.bytes[0] = round))
                })
            })?;
            if round < 2 {
                continue;
            }
            assert_eq!((cost.fences, cost.shared_rmws), (1, 0), "{count} objects");
            assert_eq!(cost.flushes, lines, "{count} objects");
            if count == 2 {
                assert!(cost.pm_bytes() <= 320, "{} bytes for two objects of 100 bytes", cost.pm_bytes());
            }
        }
    }
    Ok(())
}

#[test]
fn allocations_and_frees_add_no_fence() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let stm = memory(&folder, &StmOptions::default())?;
    let head = stm.update(|tx| tx.alloc(Small { first: 0, second: 0 }))?;
    for _ in 0..20 {
        let mut made = PmPtr::NULL;
        let insert = cost(|| {
            made = stm.update(|tx| {
                let made = tx.alloc(Small { first: 1, second: 2 })?;
                tx.write(head)?.first = made.addr().to_raw();
                Ok(made)
            })?;
            Ok(())
        })?;
        let remove = cost(|| {
            stm.update(|tx| {
                tx.write(head)?.first = 0;
                tx.free(made)
            })
        })?;
        assert_eq!((insert.fences, insert.flushes), (1, 3), "an insertion: two slots and the record");
        assert_eq!((remove.fences, remove.flushes), (1, 3), "a removal");
    }
    Ok(())
}

#[test]
fn reading_costs_nothing_that_reaches_the_medium() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let stm = memory(&folder, &StmOptions::default())?;
    let all = objects(&stm, 10)?;
    let sum = |tx: &mut lodestone_stm::Tx<'_>| {
        all.iter().try_fold(0_u64, |sum, &ptr| Ok(sum + u64::from(tx.read(ptr)?.bytes[0])))
    };
    let read = cost(|| stm.read(sum).map(|_| ()))?;
    let unchanged = cost(|| stm.update(sum).map(|_| ()))?;
    let nothing = |cost: Counters| (cost.fences, cost.pm_bytes(), cost.shared_rmws);
    assert_eq!((nothing(read), nothing(unchanged)), ((0, 0, 0), (0, 0, 0)));
    Ok(())
}

#[test]
fn the_published_modes_and_clocks_cost_what_they_cost() -> Result<()> {
    for (mode, fences) in [(Mode::OneFence, 1), (Mode::AddressLog, 3), (Mode::Scan, 3)] {
        for (clock, rmws) in [(ClockKind::Thread, 0), (ClockKind::GlobalFetchAdd, 1), (ClockKind::GlobalMutex, 2)] {
            let folder = tempfile::tempdir().expect("a folder");
            let stm = memory(&folder, &StmOptions { mode, clock, ..StmOptions::default() })?;
            let all = objects(&stm, 2)?;
            let cost = cost(|| {
                stm.update(|tx| all.iter().try_for_each(|&ptr| tx.write(ptr).map(|object| object.bytes[0] = 1)))
            })?;
            assert_eq!((cost.fences, cost.shared_rmws), (fences, rmws), "{mode:?}, {clock:?}");
        }
    }
    Ok(())
}
