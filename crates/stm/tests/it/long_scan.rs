//! Long snapshots beside writers: they never restart, see one state, and versions kept for them are dropped.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_stm::{
    Error, FromBytes, Immutable, IntoBytes, KnownLayout, Mode, PmBytes, PmObject, PmPtr, Result, Stm, StmOptions, Tx,
    TxResult,
};
use lodestone_store::Store;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Account {
    cents: u64,
}

/// Another type in cells of the same shape.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Mark {
    all_ones: u32,
    half: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Holder {
    account: PmPtr<Account>,
    text: PmBytes,
}

const START_CENTS: u64 = 1000;

fn memory(folder: &tempfile::TempDir, options: &StmOptions) -> Result<Stm> {
    let pool = PoolOptions { domain: DomainChoice::Process, size_bytes: 64 << 20, ..PoolOptions::default() };
    Stm::open_with(&Store::create(folder.path().join("scan.pool"), &pool)?, options)
}

fn accounts(stm: &Stm, count: usize) -> Result<Vec<PmPtr<Account>>> {
    let mut all = Vec::with_capacity(count);
    while all.len() < count {
        let batch = (count - all.len()).min(1000);
        let make = |tx: &mut Tx<'_>| (0..batch).map(|_| tx.alloc(Account { cents: START_CENTS })).collect();
        all.extend(stm.update::<Vec<_>>(make)?);
    }
    Ok(all)
}

fn random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state as usize
}

fn transfer(stm: &Stm, all: &[PmPtr<Account>], state: &mut u64) -> Result<()> {
    let (from, to) = (random(state) % all.len(), random(state) % all.len());
    stm.update(|tx| {
        let source = tx.write(all[from])?;
        let moved = source.cents.min(7);
        source.cents -= moved;
        tx.write(all[to])?.cents += moved;
        Ok(())
    })
}

fn sum(tx: &mut Tx<'_>, all: &[PmPtr<Account>]) -> TxResult<u64> {
    all.iter().try_fold(0, |sum, &account| Ok(sum + tx.read(account)?.cents))
}

#[test]
fn a_scan_of_many_objects_beside_writers_never_begins_again() -> Result<()> {
    const OBJECTS: usize = 30_000;
    let folder = tempfile::tempdir().expect("a folder");
    let stm = memory(&folder, &StmOptions::default())?;
    let all = accounts(&stm, OBJECTS)?;
    let (stop, transfers) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for writer in 1..=2 {
            let (stm, all, stop, transfers) = (&stm, &all, &stop, &transfers);
            scope.spawn(move || {
                let mut state = 0x9E37_79B9_7F4A_7C15 ^ writer;
                while !stop.load(Ordering::Relaxed) {
                    transfer(stm, all, &mut state).expect("a transfer");
                    transfers.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Halfway through the scan it waits until every object was overwritten many times.
        let scan = || {
            let begun = transfers.load(Ordering::Relaxed);
            stm.snapshot(|tx| {
                let first = sum(tx, &all[..OBJECTS / 2])?;
                while transfers.load(Ordering::Relaxed) < begun + 4 * OBJECTS as u64 {
                    std::thread::yield_now();
                }
                Ok(first + sum(tx, &all[OBJECTS / 2..])?)
            })
        };
        let other = scope.spawn(scan);
        let sums = [scan(), other.join().expect("no panic"), scan()];
        stop.store(true, Ordering::Relaxed);
        for found in sums {
            assert_eq!(found.expect("a scan"), OBJECTS as u64 * START_CENTS);
        }
    });
    let stats = stm.stats();
    assert_eq!(stats.conflicts_snapshot, 0, "no scan began again");
    assert!(stats.side_copies > OBJECTS as u64 / 2, "most objects were overwritten twice: {stats:?}");
    assert_eq!((stats.side_versions, stats.side_bytes), (0, 0), "what was kept is dropped");
    Ok(())
}

#[test]
fn a_freed_object_whose_cell_is_used_again_stays_readable() -> Result<()> {
    for mode in [Mode::OneFence, Mode::AddressLog, Mode::Scan] {
        let folder = tempfile::tempdir().expect("a folder");
        let stm = memory(&folder, &StmOptions { mode, ..StmOptions::default() })?;
        let holder = stm.root::<Holder>()?;
        stm.update(|tx| {
            let account = tx.alloc(Account { cents: 77 })?;
            let text = tx.alloc_bytes(b"seventy-seven cents and what they were for")?;
            *tx.write(holder)? = Holder { account, text };
            Ok(())
        })?;
        stm.snapshot(|tx| {
            let before = tx.read(holder)?;
            std::thread::scope(|scope| scope.spawn(|| free_and_use_again(&stm, holder)).join().expect("no panic"))?;
            let held = tx.read(holder)?;
            assert_eq!((held.account, held.text), (before.account, before.text));
            assert_eq!(tx.read(held.account)?.cents, 77);
            assert_eq!(tx.read_bytes(held.text)?, b"seventy-seven cents and what they were for");
            Ok(())
        })?;
        let stats = stm.stats();
        assert_eq!((stats.conflicts_snapshot, stats.side_versions), (0, 0), "{mode:?}");
        assert!(stats.side_copies >= 3, "{mode:?}: holder, account and text were overwritten: {stats:?}");
    }
    Ok(())
}

/// Frees the object that `holder` points to, and allocates until its cells hold others.
fn free_and_use_again(stm: &Stm, holder: PmPtr<Holder>) -> Result<()> {
    let Holder { account, text } = stm.update(|tx| {
        let old = tx.read(holder)?;
        tx.free(old.account)?;
        tx.free_bytes(old.text)?;
        *tx.write(holder)? = Holder { account: PmPtr::NULL, text: PmBytes::default() };
        Ok(old)
    })?;
    let (mut account_again, mut text_again) = (false, false);
    for _ in 0..1000 {
        let (mark, bytes) = stm.update(|tx| {
            let mark = tx.alloc(Mark { all_ones: u32::MAX, half: 7 })?;
            let bytes = tx.alloc_bytes(&[0xFF; 42])?;
            tx.write(holder)?.text = bytes;
            Ok((mark, bytes))
        })?;
        account_again |= mark.addr() == account.addr();
        text_again |= bytes.addr() == text.addr();
        if account_again && text_again {
            return Ok(());
        }
    }
    Err(Error::Cancelled { reason: "the cells were not used again".into() })
}

#[test]
fn overlapping_snapshots_keep_their_own_versions() -> Result<()> {
    const LEVELS: usize = 100;
    let folder = tempfile::tempdir().expect("a folder");
    let stm = memory(&folder, &StmOptions { threads_max: 1024, ..StmOptions::default() })?;
    let objects = accounts(&stm, 3)?;
    let set = |value: u64| {
        stm.update(|tx| objects.iter().try_for_each(|&object| tx.write(object).map(|object| object.cents = value)))
    };
    // Each level is a snapshot on its own thread. It begins between two versions and ends when told.
    std::thread::scope(|scope| -> Result<()> {
        let mut levels = Vec::new();
        for level in 0..LEVELS as u64 {
            set(3 * level)?;
            let (begun_end, begun) = std::sync::mpsc::channel();
            let (end, ended) = std::sync::mpsc::channel::<()>();
            let (stm, objects) = (&stm, &objects);
            let thread = scope.spawn(move || {
                stm.snapshot(|tx| {
                    begun_end.send(()).expect("somebody waits");
                    let _ = ended.recv();
                    objects.iter().map(|&object| Ok(tx.read(object)?.cents)).collect::<TxResult<Vec<_>>>()
                })
            });
            begun.recv().expect("the snapshot begins");
            set(3 * level + 1)?;
            set(3 * level + 2)?;
            levels.push((3 * level, end, thread));
        }
        assert_eq!(stm.stats().side_versions, 3 * LEVELS as u64, "one version for each snapshot and object");
        // The middle first, then from the outside in.
        let mut turn = 0;
        while !levels.is_empty() {
            let number = [levels.len() / 2, 0, levels.len() - 1][turn % 3];
            turn += 1;
            let (value, end, thread) = levels.remove(number);
            drop(end);
            assert_eq!(thread.join().expect("no panic")?, vec![value; 3]);
            assert_eq!(stm.stats().side_versions, 3 * levels.len() as u64);
        }
        Ok(())
    })?;
    assert_eq!((stm.stats().conflicts_snapshot, stm.stats().side_bytes), (0, 0));
    Ok(())
}

#[test]
fn a_limit_is_kept_at_the_price_of_another_attempt() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let stm = memory(&folder, &StmOptions { side_bytes_max: 1000, ..StmOptions::default() })?;
    let all = accounts(&stm, 100)?;
    let mut attempts = 0;
    let found = stm.snapshot(|tx| {
        attempts += 1;
        if attempts == 1 {
            let write = || {
                (0..3).try_for_each(|_| {
                    stm.update(|tx| all.iter().try_for_each(|&account| tx.write(account).map(|_| ())))
                })
            };
            std::thread::scope(|scope| scope.spawn(write).join().expect("no panic"))?;
            assert!(stm.stats().side_bytes <= 1000);
        }
        sum(tx, &all)
    })?;
    assert_eq!((found, attempts, stm.stats().side_bytes), (100 * START_CENTS, 2, 0));
    Ok(())
}

#[test]
fn a_snapshot_of_a_read_only_pool_reads() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("read-only.pool");
    let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    let stm = Stm::open(&Store::create(&path, &options)?)?;
    let all = accounts(&stm, 10)?;
    drop(stm);
    let stm = Stm::open(&Store::open_read_only(&path, &options)?)?;
    assert_eq!(stm.snapshot(|tx| sum(tx, &all))?, 10 * START_CENTS);
    Ok(())
}
