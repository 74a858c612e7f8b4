//! The heap follows the pool when it grows, and serves the parts of a pool of several.

use lodestone_heap::{Error, Heap, HeapOptions};
use lodestone_pmem::{DomainChoice, PmAddr, Pool, PoolOptions};

fn options(domain: DomainChoice) -> PoolOptions {
    let journal_bytes = if domain == DomainChoice::Block { 1 << 20 } else { 0 };
    PoolOptions {
        domain,
        size_bytes: journal_bytes + (96 << 10),
        journal_bytes,
        reserve_bytes: 1 << 30,
        ..PoolOptions::default()
    }
}

/// Allocates blocks until there is no room and returns their addresses.
fn fill(heap: &Heap, part: u16, bytes: u64) -> Vec<PmAddr> {
    let mut blocks = Vec::new();
    loop {
        let mut action = heap.action();
        match action.alloc_in(part, bytes) {
            Ok(at) => blocks.push(at),
            Err(Error::NoSpace { .. }) => return blocks,
            Err(error) => panic!("{error}"),
        }
        action.commit().expect("commit");
    }
}

#[test]
fn a_full_heap_goes_on_when_the_pool_grows() {
    for domain in [DomainChoice::Process, DomainChoice::Block] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("heap.pool");
        let pool = Pool::create(&path, &options(domain)).expect("a fresh pool");
        let heap = Heap::open(&pool, &HeapOptions::small()).expect("a fresh heap");
        let mut blocks = fill(&heap, 0, 2000);
        let before = blocks.len();
        for step in 1..=3_u64 {
            pool.grow(0, options(domain).size_bytes + step * (36 << 10)).expect("room on the disk");
            let fresh = fill(&heap, 0, 2000);
            assert!(fresh.len() >= 12, "{} blocks of 2 KiB in 36 KiB more", fresh.len());
            blocks.extend(fresh);
        }
        assert!(blocks.len() > before + 36);
        drop(heap);
        drop(pool);
        let pool = Pool::open(&path, &options(domain)).expect("reopen");
        let heap = Heap::open(&pool, &HeapOptions::small()).expect("reopen");
        let report = heap.check(Some(&mut blocks.iter().copied()));
        assert!(report.is_clean(), "{report}");
        assert!(fill(&heap, 0, 2000).is_empty(), "it is still full");
    }
}

#[test]
fn blocks_lie_in_the_part_that_was_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let (first, second) = (folder.path().join("heap.pool"), folder.path().join("heap.part1"));
    let options = PoolOptions { parts: vec![second], ..options(DomainChoice::Process) };
    let pool = Pool::create(&first, &options).expect("a fresh pool");
    let heap = Heap::open(&pool, &HeapOptions::small()).expect("a fresh heap");
    let mut blocks = Vec::new();
    for part in [1, 0] {
        for bytes in [64, 300, 3000] {
            let mut action = heap.action();
            let at = action.alloc_in(part, bytes).expect("room");
            assert_eq!(at.part(), part);
            action.commit().expect("commit");
            blocks.push(at);
        }
    }
    let more = fill(&heap, 1, 500);
    assert!(!more.is_empty() && more.iter().all(|at| at.part() == 1));
    blocks.extend(more);
    let mut action = heap.action();
    assert!(action.alloc_in(0, 500).is_ok(), "a full part leaves the others alone");
    drop(action);
    drop(heap);
    drop(pool);
    let pool = Pool::open(&first, &PoolOptions { parts: Vec::new(), ..options }).expect("reopen");
    let heap = Heap::open(&pool, &HeapOptions::small()).expect("reopen");
    let report = heap.check(Some(&mut blocks.iter().copied()));
    assert!(report.is_clean(), "{report}");
    let usage = heap.usage();
    assert!(usage.fragmentation >= 0.0 && usage.to_string().contains("bytes in allocated blocks"), "{usage}");
    assert_eq!(usage.classes.iter().map(|class| class.blocks_used).sum::<u64>() + usage.extents, blocks.len() as u64);
}

#[test]
fn a_full_pool_grows_by_itself_up_to_its_limit() {
    for domain in [DomainChoice::Process, DomainChoice::Block] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("heap.pool");
        let limit = options(domain).size_bytes + (1 << 20);
        let grows = PoolOptions { grow_bytes_max: limit + 17, ..options(domain) };
        let pool = Pool::create(&path, &grows).expect("a fresh pool");
        let heap = Heap::open(&pool, &HeapOptions::small()).expect("a fresh heap");
        // Blocks of slabs, and blocks of several chunks, until neither has room.
        let mut blocks = fill(&heap, 0, 200);
        blocks.extend(fill(&heap, 0, 2000));
        assert!(blocks.len() as u64 * 200 > 1 << 19, "only {} blocks", blocks.len());
        let length = std::fs::metadata(&path).expect("the file").len();
        assert_eq!(length, limit, "it stops at the limit, in whole pages");
        drop(heap);
        drop(pool);
        // Without the option the pool keeps its length.
        let pool = Pool::open(&path, &options(domain)).expect("reopen");
        let heap = Heap::open(&pool, &HeapOptions::small()).expect("reopen");
        let report = heap.check(Some(&mut blocks.iter().copied()));
        assert!(report.is_clean(), "{report}");
        assert!(fill(&heap, 0, 2000).is_empty(), "it is still full");
        assert_eq!(std::fs::metadata(&path).expect("the file").len(), limit);
    }
}

#[test]
fn threads_fill_a_pool_that_grows_by_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("heap.pool");
    let grows = PoolOptions { grow_bytes_max: 4 << 20, ..options(DomainChoice::Process) };
    let pool = Pool::create(&path, &grows).expect("a fresh pool");
    let mut heap_options = HeapOptions::small();
    heap_options.arenas = 2;
    let heap = Heap::open(&pool, &heap_options).expect("a fresh heap");
    let counts: Vec<usize> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| fill(&heap, 0, 500).len())).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let all: usize = counts.iter().sum();
    // A chunk of a kilobyte has room for one such block.
    assert!(all as u64 > (4 << 20) / 1024 * 4 / 5, "the pool is used up: {counts:?}");
}
