//! Logs in a pool with a part for each node: near segments first, far ones before an error.

use std::thread;

use lodestone_heap::{Heap, HeapOptions};
use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
use lodestone_txn::{Tick, Writer};
use lodestone_wal::{Error, LogOptions, Record, Wal};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const SEGMENT_BYTES: u64 = 2048;
const SEGMENTS: u64 = 16;

/// A pool with a part on each of two virtual nodes, and logs in it.
fn make(folder: &std::path::Path) -> Outcome<(Heap, Wal)> {
    let options = PoolOptions {
        domain: DomainChoice::Process,
        size_bytes: 4 << 20,
        journal_bytes: 0,
        parts: vec![folder.join("a.pool.1")],
        virtual_nodes: 2,
        ..PoolOptions::default()
    };
    let pool = Pool::create(folder.join("a.pool"), &options)?;
    let heap = Heap::open(&pool, &HeapOptions::default())?;
    let log = LogOptions { log_bytes: SEGMENTS * SEGMENT_BYTES, segment_bytes: SEGMENT_BYTES, ..LogOptions::default() };
    let mut action = heap.action();
    let at = Wal::make(&heap, &mut action, &log)?;
    action.commit()?;
    let wal = Wal::open(&heap, at, &mut |_| 0, &mut |_| Ok(()))?;
    Ok((heap, wal))
}

/// Appends records with these ticks, which take more than half of a segment each, on a thread of `node`. Returns the
/// end of the log.
fn append(heap: &Heap, wal: &Wal, node: u16, ticks: std::ops::Range<u64>) -> Outcome<u64> {
    let work = || -> Outcome<u64> {
        heap.pool().topology().pin_thread(usize::from(node))?;
        let mut log = wal.writer(Writer::new(node).expect("a small number"))?;
        for tick in ticks {
            let mut record = Record::new();
            record.put(1, b"key", &[1; 900])?;
            let room = log.reserve(&mut record)?;
            log.append(room, &mut record, Tick(tick))?;
            heap.memory().fence();
        }
        Ok(log.position())
    };
    thread::scope(|scope| scope.spawn(work).join().expect("no panic"))
}

/// Segments that were made in each part.
fn made(wal: &Wal) -> [usize; 2] {
    let blocks = wal.blocks();
    // The first block is the directory.
    [0, 1].map(|part| blocks.iter().skip(1).filter(|(at, _)| at.part() == part).count())
}

#[test]
fn a_log_is_on_the_node_of_its_thread_while_the_share_of_the_node_lasts() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (heap, wal) = make(folder.path())?;
    let end = append(&heap, &wal, 1, 1..9)?;
    let [far, near] = made(&wal);
    assert!(far == 0 && near >= 4, "{far} far, {near} near");
    // Its segments are free again, and a thread of the other node does not take them.
    wal.truncate(Writer::new(1).expect("a small number"), end);
    append(&heap, &wal, 0, 1..9)?;
    let [first, second] = made(&wal);
    assert!(first >= 4 && second == near, "{first} and {second}");
    // Those of its own node serve again before new ones are made.
    append(&heap, &wal, 1, 9..13)?;
    assert_eq!(made(&wal), [first, second]);
    Ok(())
}

#[test]
fn far_segments_are_better_than_a_full_log() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (heap, wal) = make(folder.path())?;
    // Most of the log from one node: beyond its share.
    append(&heap, &wal, 1, 1..12)?;
    assert_eq!(wal.stats().segments, made(&wal).iter().sum::<usize>() as u64);
    assert!(made(&wal)[1] > 8, "{:?}", made(&wal));
    let full = append(&heap, &wal, 1, 12..60).expect_err("the log is full");
    let full = full.downcast_ref::<Error>().expect("an error of the log");
    assert!(matches!(full, Error::Full { free: 0 | 1, .. }), "{full}");
    assert_eq!(wal.stats().segments, SEGMENTS, "every segment was used");
    Ok(())
}

#[test]
fn a_full_part_leaves_segments_to_the_other_one() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (heap, wal) = make(folder.path())?;
    let mut blocks = heap.action();
    while blocks.alloc_in(1, 1024).is_ok() {}
    blocks.commit()?;
    append(&heap, &wal, 1, 1..9)?;
    assert_eq!(made(&wal)[1], 0);
    assert!(made(&wal)[0] >= 4);
    Ok(())
}
