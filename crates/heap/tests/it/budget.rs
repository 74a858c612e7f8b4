//! Exact budgets: flushed lines and fences per action.

use lodestone_heap::{Heap, HeapOptions};
use lodestone_pmem::{CounterScope, DomainChoice, PmAddr, Pool, PoolOptions};

struct Fixture {
    heap: Heap,
    root: PmAddr,
    _folder: tempfile::TempDir,
}

/// A heap whose slab for small blocks exists and where a root block is allocated.
fn fixture() -> Fixture {
    let folder = tempfile::tempdir().expect("a folder");
    let options = PoolOptions {
        domain: DomainChoice::DaxEmulated,
        size_bytes: 8 << 20,
        journal_bytes: 0,
        reserve_bytes: 1 << 30,
        ..PoolOptions::default()
    };
    let pool = Pool::create(folder.path().join("heap.pool"), &options).expect("a fresh pool");
    let heap = Heap::open(&pool, &HeapOptions::default()).expect("a fresh heap");
    let mut action = heap.action();
    let root = action.alloc_zeroed(4096).expect("room");
    action.alloc(108).expect("room");
    action.commit().expect("commit");
    Fixture { heap, root, _folder: folder }
}

/// Lines flushed and fences of one piece of work.
fn cost(work: impl FnOnce()) -> (u64, u64) {
    let scope = CounterScope::start();
    work();
    let delta = scope.delta();
    (delta.flushes, delta.fences)
}

#[test]
fn an_action_costs_exactly_its_record_its_words_and_three_fences_or_four() {
    let Fixture { heap, root, _folder } = fixture();
    let mut first = PmAddr::NULL;
    let publish = cost(|| {
        let mut action = heap.action();
        first = action.alloc(108).expect("room");
        action.set(root, first.to_raw());
        action.commit().expect("commit");
    });
    assert_eq!(
        publish,
        (4, 4),
        "record, bitmap, root, end of record; contents before record before words before its end"
    );
    let replace = cost(|| {
        let mut action = heap.action();
        let second = action.alloc(108).expect("room");
        action.set(root, second.to_raw());
        action.free(first).expect("free");
        action.commit().expect("commit");
    });
    assert_eq!(replace, (4, 4), "the freed block's bit lies in the same bitmap line");
    let two_pointers = cost(|| {
        let mut action = heap.action();
        action.set(root.plus(64), 1);
        action.set(root.plus(72), 2);
        action.commit().expect("commit");
    });
    assert_eq!(two_pointers, (3, 3), "record, one line, end of record");
}

#[test]
fn one_word_needs_no_record_and_nothing_costs_nothing() {
    let Fixture { heap, root, _folder } = fixture();
    let set = cost(|| {
        let mut action = heap.action();
        action.set(root, 5);
        action.commit().expect("commit");
    });
    assert_eq!(set, (1, 2));
    let mut at = PmAddr::NULL;
    let alloc = cost(|| {
        let mut action = heap.action();
        at = action.alloc(108).expect("room");
        action.commit().expect("commit");
    });
    assert_eq!(alloc, (1, 2), "one bitmap line");
    let free = cost(|| {
        let mut action = heap.action();
        action.free(at).expect("free");
        action.commit().expect("commit");
    });
    assert_eq!(free, (1, 2), "one bitmap line");
    let reserve = cost(|| {
        let mut action = heap.action();
        let at = action.alloc(108).expect("room");
        action.free(at).expect("free");
        action.commit().expect("commit");
        let mut action = heap.action();
        action.alloc(108).expect("room");
    });
    assert_eq!(reserve, (0, 0), "reservations are in DRAM");
}

#[test]
fn each_allocation_adds_at_most_one_line_and_no_fence() {
    let Fixture { heap, root, _folder } = fixture();
    for count in 1..=40 {
        let all = cost(|| {
            let mut action = heap.action();
            for index in 0..count {
                let at = action.alloc(108).expect("room");
                action.set(root.plus(8 * index), at.to_raw());
            }
            action.commit().expect("commit");
        });
        // 48 blocks share a bitmap word and a line holds 8 such words, so these touch one or two lines.
        let entries = count + 2;
        let record_max = (16 + 16 * entries).div_ceil(64);
        // A new slab costs two fences and three lines, once per 511 blocks.
        let new_slab = all.1 == 6 && count > 1;
        let lines_max = record_max + 2 + (8 * count).div_ceil(64) + 1 + if new_slab { 3 } else { 0 };
        assert!(all.0 <= lines_max, "{count} allocations flushed {} lines, at most {lines_max}", all.0);
        assert!(all.1 == 4 || new_slab, "{count} allocations took {} fences", all.1);
    }
}

#[test]
fn a_new_slab_costs_two_fences_once() {
    let Fixture { heap, .. } = fixture();
    let mut fences = 0;
    for _ in 0..1100 {
        let (_, took) = cost(|| {
            let mut action = heap.action();
            action.alloc(108).expect("room");
            action.commit().expect("commit");
        });
        fences += took;
    }
    assert_eq!(fences, 2 * 1100 + 2 * 2, "1100 allocations; a chunk holds 511 blocks, the first is in use");
}
