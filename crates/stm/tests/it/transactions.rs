//! Transactions as users see them: atomic, isolated, durable across opens, with every outcome other than a commit.

use std::path::PathBuf;

use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
use lodestone_stm::{
    Error, FromBytes, Immutable, IntoBytes, KnownLayout, PmBytes, PmObject, PmPtr, Result, Stm, StmOptions, Tx,
    TxResult,
};
use lodestone_store::Store;
use tempfile::TempDir;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Pair {
    left: u64,
    right: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct List {
    first: PmPtr<Node>,
    len: u64,
    name: PmBytes,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Node {
    value: u64,
    next: PmPtr<Node>,
}

struct Place {
    _folder: TempDir,
    path: PathBuf,
    options: PoolOptions,
}

impl Place {
    fn new(size_bytes: u64) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("test.pool");
        let options = PoolOptions { domain: DomainChoice::Process, size_bytes, ..PoolOptions::default() };
        Self { _folder: folder, path, options }
    }

    fn open(&self) -> Stm {
        let pool = Pool::open_or_create(&self.path, &self.options).expect("a pool");
        Stm::open(&Store::over(&pool).expect("a store")).expect("a memory")
    }
}

fn push(tx: &mut Tx<'_>, list: PmPtr<List>, value: u64) -> TxResult<PmPtr<Node>> {
    let next = tx.read(list)?.first;
    let node = tx.alloc(Node { value, next })?;
    let list = tx.write(list)?;
    list.first = node;
    list.len += 1;
    Ok(node)
}

fn values(tx: &mut Tx<'_>, list: PmPtr<List>) -> TxResult<Vec<u64>> {
    let mut found = Vec::new();
    let mut next = tx.read(list)?.first;
    while !next.is_null() {
        let node = tx.read(next)?;
        found.push(node.value);
        next = node.next;
    }
    Ok(found)
}

fn increment(stm: &Stm, pair: PmPtr<Pair>) -> Result<()> {
    stm.update(|tx| {
        tx.write(pair)?.left += 1;
        Ok(())
    })
}

#[test]
fn what_committed_is_there_after_every_open() -> Result<()> {
    let place = Place::new(16 << 20);
    for round in 0..5 {
        let stm = place.open();
        let list = stm.root::<List>()?;
        assert_eq!(stm.read(|tx| values(tx, list))?, (0..round).rev().collect::<Vec<_>>());
        stm.update(|tx| push(tx, list, round))?;
        stm.update(|tx| {
            let old = tx.read(list)?.name;
            assert_eq!(tx.read_bytes(old)?, vec![7; round as usize * 50]);
            tx.free_bytes(old)?;
            let name = tx.alloc_bytes(&vec![7; (round as usize + 1) * 50])?;
            tx.write(list)?.name = name;
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn a_transaction_reads_its_own_changes_and_others_do_not_before_it_commits() -> Result<()> {
    let place = Place::new(16 << 20);
    let stm = place.open();
    let pair = stm.root::<Pair>()?;
    stm.update(|tx| {
        tx.write(pair)?.left = 5;
        assert_eq!(tx.read(pair)?.left, 5);
        let seen = std::thread::scope(|scope| scope.spawn(|| stm.read(|tx| Ok(tx.read(pair)?.left))).join());
        assert_eq!(seen.expect("no panic")?, 0);
        tx.nested(|tx| {
            tx.write(pair)?.right = 6;
            Ok(())
        })
    })?;
    assert_eq!(stm.read(|tx| Ok((tx.read(pair)?.left, tx.read(pair)?.right)))?, (5, 6));
    Ok(())
}

#[test]
fn cancelled_failed_and_panicked_transactions_leave_nothing() -> Result<()> {
    let place = Place::new(16 << 20);
    let stm = place.open();
    let list = stm.root::<List>()?;
    stm.update(|tx| push(tx, list, 1))?;
    let before = stm.objects();
    let cancelled = stm.update(|tx| {
        push(tx, list, 2)?;
        tx.cancel::<()>("changed my mind")
    });
    assert!(matches!(cancelled, Err(Error::Cancelled { reason }) if reason == "changed my mind"));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        stm.update(|tx| {
            push(tx, list, 3)?;
            let done = true;
            assert!(!done, "in the middle of a transaction");
            Ok(())
        })
    }));
    assert!(panicked.is_err());
    assert!(matches!(stm.update(|_| stm.update(|_| Ok(())).map_err(Into::into)), Err(Error::Nested)));
    assert!(matches!(stm.read(|tx| tx.write(list).map(|_| ())), Err(Error::ReadOnly { .. })));
    assert_eq!(stm.read(|tx| values(tx, list))?, [1]);
    assert_eq!(stm.objects(), before, "nothing is left behind");
    stm.update(|tx| push(tx, list, 4))?;
    assert_eq!(stm.read(|tx| values(tx, list))?, [4, 1]);
    Ok(())
}

#[test]
fn freed_objects_are_gone_and_their_places_are_used_again() -> Result<()> {
    let place = Place::new(16 << 20);
    let stm = place.open();
    let list = stm.root::<List>()?;
    let mut places = std::collections::BTreeSet::new();
    for round in 0..1000 {
        let node = stm.update(|tx| push(tx, list, round))?;
        places.insert(node.addr());
        stm.update(|tx| {
            let node = tx.read(list)?.first;
            tx.write(list)?.first = PmPtr::NULL;
            tx.free(node)
        })?;
        assert!(matches!(stm.read(|tx| tx.read(node)), Err(Error::BadPointer { .. })));
        assert!(matches!(stm.update(|tx| tx.free(node)), Err(Error::BadPointer { .. })), "a second free");
    }
    assert!(places.len() < 100, "{} places for one node", places.len());
    stm.update(|tx| {
        let node = tx.alloc(Node { value: 1, next: PmPtr::NULL })?;
        tx.free(node)
    })?;
    assert_eq!(stm.read(|tx| values(tx, list))?, Vec::<u64>::new());
    Ok(())
}

#[test]
fn a_hundred_thousand_objects_change_in_one_transaction() -> Result<()> {
    let place = Place::new(64 << 20);
    let stm = place.open();
    let list = stm.root::<List>()?;
    stm.update(|tx| (0..100_000).try_for_each(|value| push(tx, list, value).map(|_| ())))?;
    stm.update(|tx| {
        let mut next = tx.read(list)?.first;
        while !next.is_null() {
            let node = tx.write(next)?;
            node.value += 1;
            next = node.next;
        }
        Ok(())
    })?;
    drop(stm);
    let stm = place.open();
    let list = stm.root::<List>()?;
    let sum: u64 = stm.read(|tx| values(tx, list))?.iter().sum();
    assert_eq!(sum, (1..=100_000_u64).sum::<u64>());
    Ok(())
}

#[test]
fn a_full_pool_refuses_cleanly_and_gives_everything_back() -> Result<()> {
    let place = Place::new(10 << 20);
    let stm = place.open();
    let list = stm.root::<List>()?;
    let mut kept = 0;
    let full = loop {
        match stm.update(|tx| (0..1000).try_for_each(|value| push(tx, list, value).map(|_| ()))) {
            Ok(()) => kept += 1000,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::Heap(lodestone_heap::Error::NoSpace { .. })), "{full}");
    assert_eq!(stm.read(|tx| Ok(values(tx, list)?.len()))?, kept);
    let objects = stm.objects();
    stm.update(|tx| {
        for _ in 0..kept {
            let node = tx.read(list)?.first;
            let next = tx.read(node)?.next;
            tx.free(node)?;
            tx.write(list)?.first = next;
        }
        Ok(())
    })?;
    assert_eq!(stm.objects(), objects - kept as u64);
    stm.update(|tx| (0..1000).try_for_each(|value| push(tx, list, value).map(|_| ())))?;
    Ok(())
}

#[test]
fn bad_pointers_are_errors() -> Result<()> {
    let place = Place::new(16 << 20);
    let stm = place.open();
    let pair = stm.root::<Pair>()?;
    let list = stm.root_named::<List>("list")?;
    let at = pair.addr();
    let bad = |ptr: PmPtr<Pair>| {
        let read = stm.read(|tx| tx.read(ptr).map(|_| ()));
        let write = stm.update(|tx| tx.write(ptr).map(|_| ()));
        let free = stm.update(|tx| tx.free(ptr));
        for outcome in [read, write, free] {
            assert!(matches!(outcome, Err(Error::BadPointer { .. })), "{ptr:?}: {outcome:?}");
        }
    };
    bad(PmPtr::NULL);
    bad(PmPtr::new(at.plus(8)));
    bad(PmPtr::new(at.plus(64)));
    bad(PmPtr::new(lodestone_stm::PmAddr::new(0, 1 << 40)));
    bad(PmPtr::new(lodestone_stm::PmAddr::new(7, 4096)));
    bad(PmPtr::new(lodestone_stm::PmAddr::new(0, 4096)));
    let _ = list;
    Ok(())
}

/// A pointer names a place, not a pool. An error where the other pool is shorter, or has no object there.
#[test]
fn a_pointer_of_another_pool_is_an_error_where_that_pool_has_no_object() -> Result<()> {
    let (large, small) = (Place::new(64 << 20), Place::new(16 << 20));
    let (large, small) = (large.open(), small.open());
    for (owner, other) in [(&large, &small), (&small, &large)] {
        let list = owner.root::<List>()?;
        let node = owner.update(|tx| push(tx, list, 7))?;
        let read = other.read(|tx| tx.read(node).map(|_| ()));
        let write = other.update(|tx| tx.write(node).map(|_| ()));
        let free = other.update(|tx| tx.free(node));
        for outcome in [read, write, free] {
            let Err(error @ Error::BadPointer { .. }) = outcome else { panic!("{node:?}: {outcome:?}") };
            assert!(error.to_string().contains(&node.addr().to_string()), "says where: {error}");
        }
        assert_eq!(owner.read(|tx| Ok(tx.read(node)?.value))?, 7);
    }
    Ok(())
}

#[test]
fn more_threads_than_ids_is_an_error_until_one_ends() -> Result<()> {
    let place = Place::new(16 << 20);
    let pool = Pool::create(&place.path, &place.options)?;
    let stm = Stm::open_with(&Store::over(&pool)?, &StmOptions { threads_max: 2, ..StmOptions::default() })?;
    let pair = stm.root::<Pair>()?;
    let (started, end) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        let (stm, started, end) = (&stm, &started, &end);
        let second = scope.spawn(move || {
            increment(stm, pair).expect("the second id");
            started.wait();
            end.wait();
        });
        started.wait();
        let third = scope.spawn(move || increment(stm, pair));
        let third = third.join().expect("no panic");
        assert!(matches!(third, Err(Error::Engine(lodestone_txn::Error::TooManyThreads { threads_max: 2 }))));
        end.wait();
        // The join waits for the end of the thread, which returns its id.
        second.join().expect("no panic");
    });
    let fourth = std::thread::scope(|scope| scope.spawn(|| increment(&stm, pair)).join());
    fourth.expect("no panic")?;
    assert_eq!(stm.read(|tx| Ok(tx.read(pair)?.left))?, 2);
    Ok(())
}

#[test]
fn a_waiting_transaction_goes_on_when_what_it_read_changes() -> Result<()> {
    let place = Place::new(16 << 20);
    let stm = place.open();
    let pair = stm.root::<Pair>()?;
    std::thread::scope(|scope| {
        let taker = scope.spawn(|| {
            stm.update(|tx| {
                let found = tx.read(pair)?.left;
                tx.retry_when(found == 0)?;
                tx.write(pair)?.left = 0;
                Ok(found)
            })
        });
        stm.update(|tx| {
            tx.write(pair)?.left = 42;
            Ok(())
        })?;
        assert_eq!(taker.join().expect("no panic")?, 42);
        Ok(())
    })
}

#[test]
fn an_object_that_begins_and_ends_in_one_transaction_takes_no_place() -> Result<()> {
    let place = Place::new(16 << 20);
    let stm = place.open();
    let pair = stm.root::<Pair>()?;
    let slabs = stm.check_all().slabs;
    for round in 0..5_000 {
        stm.update(|tx| {
            let node = tx.alloc(Node { value: round, next: PmPtr::NULL })?;
            let bytes = tx.alloc_bytes(&[1; 300])?;
            tx.free(node)?;
            tx.free_bytes(bytes)?;
            // With and without something else to commit.
            if round % 2 == 0 { Ok(()) } else { tx.write(pair).map(|pair| pair.left = round) }
        })?;
    }
    assert!(stm.check_all().slabs <= slabs + 2, "{} slabs for nothing", stm.check_all().slabs - slabs);
    Ok(())
}

#[test]
fn one_thread_id_is_enough_for_one_thread() -> Result<()> {
    let place = Place::new(16 << 20);
    let pool = Pool::create(&place.path, &place.options)?;
    let stm = Stm::open_with(&Store::over(&pool)?, &StmOptions { threads_max: 1, ..StmOptions::default() })?;
    // The pool does not know the type yet, and learns it in a separate transaction.
    let node = stm.update(|tx| tx.alloc(Node { value: 3, next: PmPtr::NULL }))?;
    let pair = stm.root::<Pair>()?;
    increment(&stm, pair)?;
    stm.check::<List>()?;
    assert_eq!(stm.read(|tx| Ok((tx.read(node)?.value, tx.read(pair)?.left)))?, (3, 1));
    Ok(())
}
