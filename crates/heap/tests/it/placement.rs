//! In which part blocks are made: by node of the thread, in turn, where the program says; and elsewhere when that is
//! full.

use std::sync::Arc;
use std::thread;

use lodestone_heap::{Error, Heap, HeapOptions, Placement};
use lodestone_pmem::{DomainChoice, PmAddr, Pool, PoolOptions};

const NODES: usize = 3;

/// A pool with one part on each of `NODES` virtual nodes.
fn pool(folder: &std::path::Path) -> Pool {
    let options = PoolOptions {
        domain: DomainChoice::Process,
        size_bytes: 192 << 10,
        journal_bytes: 0,
        reserve_bytes: 1 << 30,
        parts: (1..NODES).map(|part| folder.join(format!("a.pool.{part}"))).collect(),
        virtual_nodes: NODES,
        ..PoolOptions::default()
    };
    Pool::create(folder.join("a.pool"), &options).expect("a fresh pool")
}

fn heap(pool: &Pool, placement: Placement) -> Heap {
    let mut options = HeapOptions::small();
    options.placement = placement;
    Heap::open(pool, &options).expect("a heap")
}

fn allocate(heap: &Heap, bytes: u64) -> lodestone_heap::Result<PmAddr> {
    let mut action = heap.action();
    let at = action.alloc(bytes)?;
    action.commit()?;
    Ok(at)
}

/// Runs `work` on a thread of node `node`.
fn on_node<T: Send>(pool: &Pool, node: usize, work: impl FnOnce() -> T + Send) -> T {
    let topology = pool.topology();
    thread::scope(|scope| {
        let thread = scope.spawn(move || {
            topology.pin_thread(node).expect("virtual nodes have processors");
            work()
        });
        thread.join().expect("no panic")
    })
}

#[test]
fn by_default_a_block_is_made_on_the_node_of_its_thread() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = pool(folder.path());
    let heap = heap(&pool, Placement::default());
    for node in 0..NODES {
        // A slab's block, an extent, zeroed memory, and what a block becomes when it grows.
        let parts = on_node(&pool, node, || {
            let small = allocate(&heap, 100).expect("room");
            let large = allocate(&heap, 3000).expect("room");
            let mut action = heap.action();
            let zeroed = action.alloc_zeroed(64).expect("room");
            let moved = action.realloc(small, 900).expect("room");
            action.commit().expect("commit");
            [small, large, zeroed, moved].map(PmAddr::part)
        });
        assert_eq!(parts, [node as u16; 4], "threads of node {node}");
    }
    let usage = heap.usage();
    assert_eq!((usage.fallbacks, usage.parts.len()), (0, NODES));
    assert!(usage.parts.iter().all(|part| part.bytes_used == usage.parts[0].bytes_used), "{:?}", usage.parts);
    assert_eq!(usage.parts.iter().map(|part| part.bytes_used).sum::<u64>(), usage.bytes_used);
    assert_eq!(usage.parts.iter().map(|part| part.chunks_free).sum::<u64>(), usage.chunks_free);
}

#[test]
fn a_full_part_falls_back_to_the_others_and_tells() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = pool(folder.path());
    let heap = heap(&pool, Placement::Local);
    let mut blocks = Vec::new();
    on_node(&pool, 1, || {
        while let Ok(at) = allocate(&heap, 2000) {
            blocks.push(at);
        }
    });
    let count = |part: u16| blocks.iter().filter(|at| at.part() == part).count() as u64;
    assert!((0..3).all(|part| count(part) > 0), "every part is filled");
    let first_elsewhere = blocks.iter().position(|at| at.part() != 1).expect("a fallback");
    assert!(blocks[first_elsewhere..].iter().all(|at| at.part() != 1), "the own part first, until it is full");
    let usage = heap.usage();
    assert_eq!((usage.fallbacks, usage.fallback_bytes), (count(0) + count(2), 2000 * (count(0) + count(2))));
    assert!(usage.to_string().contains("blocks made elsewhere"), "{usage}");
    let strict = heap.action().alloc_in(1, 2000).expect_err("the part is full");
    assert!(matches!(strict, Error::NoSpace { part: 1, .. }), "{strict}");
    let report = heap.check(Some(&mut blocks.iter().copied()));
    assert!(report.is_clean(), "{report}");
}

#[test]
fn other_policies_place_where_they_say() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = pool(folder.path());
    let turns = heap(&pool, Placement::Interleave);
    let parts: Vec<u16> = (0..9).map(|_| allocate(&turns, 100).expect("room").part()).collect();
    for part in 0..NODES as u16 {
        assert_eq!(parts.iter().filter(|found| **found == part).count(), 3, "{parts:?}");
    }
    drop(turns);
    let fixed = heap(&pool, Placement::Part(2));
    assert_eq!(on_node(&pool, 0, || allocate(&fixed, 100).expect("room").part()), 2);
    drop(fixed);
    // The program's own rule: large blocks in part 2, others on the node after the thread's; nonsense counts as part 0.
    let own = Placement::By(Arc::new(|request| match request.bytes {
        2000.. => 2,
        77 => 99,
        _ => (request.node as u16 + 1) % request.parts,
    }));
    let by = heap(&pool, own);
    assert_eq!(
        on_node(&pool, 1, || [100, 2000, 77].map(|bytes| allocate(&by, bytes).expect("room").part())),
        [2, 2, 0]
    );
    assert!(by.usage().placement.contains("function"));
    drop(by);
    let mut options = HeapOptions::small();
    options.placement = Placement::Part(3);
    let text = Heap::open(&pool, &options).expect_err("no such part").to_string();
    assert!(text.contains("no part 3"), "{text}");
}
