//! Threads that allocate, free their own and each other's blocks, and read what they wrote: no block has two owners,
//! and the heap is sound afterwards and after a reopen.

use std::collections::HashSet;
use std::sync::Mutex;

use lodestone_heap::{Error, Heap, HeapOptions};
use lodestone_pmem::{DomainChoice, PmAddr, Pool, PoolOptions};

fn options() -> PoolOptions {
    let domain = DomainChoice::Process;
    PoolOptions { domain, size_bytes: 4 << 20, journal_bytes: 0, reserve_bytes: 1 << 30, ..PoolOptions::default() }
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// One thread's work: blocks go to and come from a shared pot, so that most are freed by another thread.
fn hammer(heap: &Heap, pot: &Mutex<Vec<PmAddr>>, seed: u64, steps: u64) {
    let mut state = seed;
    for _ in 0..steps {
        let bytes = [16, 40, 64, 108, 200, 900, 5000, 40_000][(random(&mut state) % 8) as usize];
        let victim = if random(&mut state).is_multiple_of(2) { pot.lock().expect("pot").pop() } else { None };
        let mut action = heap.action();
        let fresh = match action.alloc(bytes) {
            Ok(at) => {
                // The block belongs to this thread alone: stamp both ends.
                heap.memory().store(at, at.to_raw());
                heap.memory().store(at.plus((bytes - 8) / 8 * 8), at.to_raw());
                heap.memory().flush(at, bytes);
                Some((at, bytes))
            }
            Err(Error::NoSpace { .. }) => None,
            Err(error) => panic!("{error}"),
        };
        if let Some(at) = victim {
            assert_eq!(heap.memory().load(at), at.to_raw(), "the stamp of {at}");
            action.free(at).expect("it came from the pot, so it is ours");
        }
        if random(&mut state).is_multiple_of(8) {
            drop(action);
            pot.lock().expect("pot").extend(victim);
            continue;
        }
        action.commit().expect("commit");
        if let Some((at, bytes)) = fresh {
            assert_eq!(heap.memory().load(at), at.to_raw());
            assert_eq!(heap.memory().load(at.plus((bytes - 8) / 8 * 8)), at.to_raw(), "someone else wrote into {at}");
            pot.lock().expect("pot").push(at);
        }
    }
}

#[test]
fn no_block_has_two_owners() {
    for arenas in [1, 2, 8] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("heap.pool");
        let pool = Pool::create(&path, &options()).expect("a fresh pool");
        let mut heap_options = HeapOptions::default();
        (heap_options.chunk_bytes, heap_options.zone_chunks, heap_options.lanes) = (16 << 10, 64, 3);
        heap_options.arenas = arenas;
        let heap = Heap::open(&pool, &heap_options).expect("a fresh heap");
        let pot = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..6_u64 {
                let (heap, pot) = (&heap, &pot);
                scope.spawn(move || hammer(heap, pot, thread + 1, 4000));
            }
        });
        let blocks = pot.into_inner().expect("pot");
        assert_eq!(blocks.iter().collect::<HashSet<_>>().len(), blocks.len(), "a block is in the pot twice");
        let report = heap.check(Some(&mut blocks.iter().copied()));
        assert!(report.is_clean(), "{report}");
        drop(heap);
        drop(pool);
        let pool = Pool::open(&path, &options()).expect("reopen");
        let heap = Heap::open(&pool, &heap_options).expect("reopen");
        let report = heap.check(Some(&mut blocks.iter().copied()));
        assert!(report.is_clean(), "after the reopen: {report}");
    }
}

#[test]
fn of_threads_that_free_one_block_exactly_one_succeeds() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = Pool::create(folder.path().join("heap.pool"), &options()).expect("a fresh pool");
    let heap = Heap::open(&pool, &HeapOptions::default()).expect("a fresh heap");
    for round in 0..200 {
        let mut action = heap.action();
        let at = action.alloc(if round % 2 == 0 { 64 } else { 100_000 }).expect("room");
        action.commit().expect("commit");
        let freed = Mutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut action = heap.action();
                    if action.free(at).is_ok() {
                        action.commit().expect("commit");
                        *freed.lock().expect("count") += 1;
                    }
                });
            }
        });
        assert_eq!(*freed.lock().expect("count"), 1, "round {round}");
        assert_eq!(heap.block_bytes(at), None);
    }
}
