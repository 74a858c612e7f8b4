//! Placement on a machine that has nodes: LODESTONE_PM_NODES names a folder on persistent memory of each node, node 0
//! first. Without it these tests have nothing to show, and say so.

use std::path::PathBuf;
use std::thread;

use lodestone_heap::{Heap, HeapOptions};
use lodestone_pmem::{NodeOrigin, PmAddr, Pool, PoolOptions};

/// The folders, by node.
fn folders() -> Option<Vec<PathBuf>> {
    let names = std::env::var("LODESTONE_PM_NODES").ok()?;
    Some(names.split_whitespace().map(PathBuf::from).collect())
}

#[test]
fn blocks_are_made_on_the_node_of_their_thread() -> Result<(), Box<dyn std::error::Error>> {
    let Some(folders) = folders() else {
        println!("skipped: LODESTONE_PM_NODES is not set");
        return Ok(());
    };
    // Part 0 on the last node: a part's number says nothing about its node.
    let mut paths: Vec<PathBuf> = folders.iter().map(|folder| folder.join("heap-test.pool")).rev().collect();
    let main = paths.remove(0);
    let options = PoolOptions { size_bytes: 16 << 20, parts: paths, overwrite: true, ..PoolOptions::default() };
    let pool = Pool::create(&main, &options)?;
    let count = folders.len();
    for (part, node) in pool.part_nodes().iter().enumerate() {
        assert_eq!((node.origin, node.index), (NodeOrigin::Detected, Some(count - 1 - part)));
    }
    assert_eq!(pool.topology().nodes().len(), count);
    let heap = Heap::open(&pool, &HeapOptions::default())?;
    for node in 0..count {
        let parts = thread::scope(|scope| {
            let work = || {
                pool.topology().pin_thread(node).expect("every node has a processor");
                let mut action = heap.action();
                let blocks = [100, 5000, 300_000].map(|bytes| action.alloc(bytes).expect("room"));
                action.commit().expect("commit");
                blocks.map(PmAddr::part)
            };
            scope.spawn(work).join().expect("no panic")
        });
        assert_eq!(parts, [(count - 1 - node) as u16; 3], "a thread of node {node}");
    }
    assert_eq!(heap.usage().fallbacks, 0);
    println!("{}", pool.info());
    Ok(())
}
