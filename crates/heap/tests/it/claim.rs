//! An open pool has one heap: a second one would hand out the same memory.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use lodestone_heap::{Error, Heap, HeapOptions};
use lodestone_pmem::{DomainChoice, Pool, PoolOptions};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn options() -> PoolOptions {
    PoolOptions { domain: DomainChoice::Process, size_bytes: 96 << 10, journal_bytes: 0, ..PoolOptions::default() }
}

fn pool(folder: &Path) -> lodestone_pmem::Result<Pool> {
    Pool::create(folder.join("heap.pool"), &options())
}

#[test]
fn a_second_heap_of_an_open_pool_is_refused_and_says_what_to_do() -> Outcome {
    let folder = tempfile::tempdir()?;
    let pool = pool(folder.path())?;
    let heap = Heap::open(&pool, &HeapOptions::small())?;
    for handle in [&pool, &pool.clone(), heap.pool()] {
        let error = Heap::open(handle, &HeapOptions::small()).expect_err("two heaps give out the same memory");
        assert!(matches!(error, Error::AlreadyOpen { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("heap.pool") && text.contains("clone that heap"), "{text}");
    }
    Ok(())
}

#[test]
fn the_claim_ends_with_the_last_clone() -> Outcome {
    let folder = tempfile::tempdir()?;
    let pool = pool(folder.path())?;
    let heap = Heap::open(&pool, &HeapOptions::small())?;
    let clone = heap.clone();
    drop(heap);
    assert!(matches!(Heap::open(&pool, &HeapOptions::small()), Err(Error::AlreadyOpen { .. })));
    drop(clone);
    let heap = Heap::open(&pool, &HeapOptions::small())?;
    assert!(heap.check(None).is_clean());
    Ok(())
}

#[test]
fn an_open_that_fails_claims_nothing() -> Outcome {
    let folder = tempfile::tempdir()?;
    let pool = pool(folder.path())?;
    let mut odd = HeapOptions::small();
    odd.chunk_bytes = 1000;
    assert!(matches!(Heap::open(&pool, &odd), Err(Error::Invalid { .. })));
    Heap::open(&pool, &HeapOptions::small())?;
    Ok(())
}

#[test]
fn heaps_of_a_pool_that_is_open_read_only_share_it() -> Outcome {
    let folder = tempfile::tempdir()?;
    drop(Heap::open(&pool(folder.path())?, &HeapOptions::small())?);
    let pool = Pool::open_read_only(folder.path().join("heap.pool"), &options())?;
    let first = Heap::open(&pool, &HeapOptions::small())?;
    let second = Heap::open(&pool, &HeapOptions::small())?;
    assert!(first.check(None).is_clean() && second.check(None).is_clean());
    Ok(())
}

#[test]
fn an_open_waits_for_a_heap_that_is_ending_on_another_thread() -> Outcome {
    let folder = tempfile::tempdir()?;
    let pool = pool(folder.path())?;
    for _ in 0..200 {
        let heap = Heap::open(&pool, &HeapOptions::small())?;
        let go = AtomicBool::new(false);
        std::thread::scope(|scope| -> Outcome {
            scope.spawn(|| {
                while !go.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                drop(heap);
            });
            go.store(true, Ordering::Release);
            Heap::open(&pool, &HeapOptions::small())?;
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn of_many_threads_that_open_one_has_the_heap() -> Outcome {
    let folder = tempfile::tempdir()?;
    let pool = pool(folder.path())?;
    let opened: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| Heap::open(&pool, &HeapOptions::small()).ok())).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
    });
    assert_eq!(opened.len(), 1);
    Ok(())
}
