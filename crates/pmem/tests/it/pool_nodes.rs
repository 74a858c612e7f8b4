//! The NUMA nodes of a pool's parts: said, recorded, virtual, unknown; and what makes no sense is refused before
//! anything is created.

use std::fs;
use std::path::{Path, PathBuf};

use lodestone_pmem::{CopyOptions, DomainChoice, NodeOrigin, Pool, PoolOptions};

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// A sysfs with `count` nodes of two processors each, and nothing about devices.
fn machine(folder: &Path, count: u32) -> PathBuf {
    let root = folder.join(format!("sys{count}"));
    let nodes = root.join("devices/system/node");
    fs::create_dir_all(&nodes).expect("folder");
    fs::write(nodes.join("online"), format!("0-{}", count - 1)).expect("online");
    for id in 0..count {
        let node = nodes.join(format!("node{id}"));
        fs::create_dir(&node).expect("node");
        fs::write(node.join("cpulist"), format!("{}-{}", 2 * id, 2 * id + 1)).expect("cpulist");
        let distances: Vec<&str> = (0..count).map(|other| if other == id { "10" } else { "21" }).collect();
        fs::write(node.join("distance"), distances.join(" ")).expect("distance");
    }
    root
}

fn options(folder: &Path, nodes: u32) -> PoolOptions {
    PoolOptions {
        domain: DomainChoice::Process,
        size_bytes: 256 << 10,
        journal_bytes: 0,
        reserve_bytes: 1 << 30,
        sysfs_root: machine(folder, nodes),
        ..PoolOptions::default()
    }
}

fn nodes_of(pool: &Pool) -> Vec<(Option<u32>, NodeOrigin)> {
    pool.part_nodes().iter().map(|node| (node.id, node.origin)).collect()
}

#[test]
fn nodes_that_were_said_at_creation_are_known_in_every_later_life_and_in_copies() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (path, copy) = (folder.path().join("a.pool"), folder.path().join("copy.pool"));
    let two = options(folder.path(), 2);
    let parts = vec![folder.path().join("a.pool.1")];
    let pool = Pool::create(&path, &PoolOptions { parts, part_nodes: vec![1, 0], ..two.clone() })?;
    assert_eq!(nodes_of(&pool), [(Some(1), NodeOrigin::Given), (Some(0), NodeOrigin::Given)]);
    pool.copy(&copy, &CopyOptions::default())?;
    drop(pool);
    for path in [&path, &copy] {
        let pool = Pool::open(path, &two)?;
        assert_eq!(nodes_of(&pool), [(Some(1), NodeOrigin::Recorded), (Some(0), NodeOrigin::Recorded)]);
        let text = pool.info().to_string();
        assert!(text.contains("(node 1, recorded)") && !text.contains("warning        no part"), "{text}");
        drop(pool);
    }
    let pool = Pool::open(&path, &PoolOptions { part_nodes: vec![0, 1], ..two.clone() })?;
    assert_eq!(nodes_of(&pool), [(Some(0), NodeOrigin::Given), (Some(1), NodeOrigin::Given)]);
    drop(pool);
    // The same pool on a machine with one node: the parts are somewhere, but not on a node that is here.
    let one = PoolOptions { sysfs_root: machine(folder.path(), 1), ..two };
    let pool = Pool::open(&path, &one)?;
    assert_eq!(pool.part_nodes().iter().map(|node| node.index).collect::<Vec<_>>(), [None, Some(0)]);
    let text = pool.info().warnings.join("\n");
    assert!(text.contains("part 0 is on node 1, which this machine does not have"), "{text}");
    Ok(())
}

#[test]
fn virtual_nodes_take_the_parts_in_turn_and_leave_no_record() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a.pool");
    let one = options(folder.path(), 1);
    let parts = (1..3).map(|part| folder.path().join(format!("a.pool.{part}"))).collect();
    let pool = Pool::create(&path, &PoolOptions { parts, virtual_nodes: 2, ..one.clone() })?;
    let nodes: Vec<_> = pool.part_nodes().iter().map(|node| node.index).collect();
    assert_eq!(nodes, [Some(0), Some(1), Some(0)]);
    assert!(pool.topology().is_virtual() && pool.info().to_string().contains("(virtual node 1)"));
    drop(pool);
    let pool = Pool::open(&path, &one)?;
    assert!(nodes_of(&pool).iter().all(|(_, origin)| *origin != NodeOrigin::Recorded), "{:?}", nodes_of(&pool));
    drop(pool);
    let pool = Pool::open(&path, &PoolOptions { virtual_nodes: 4, ..one })?;
    let text = pool.info().warnings.join("\n");
    assert!(text.contains("no part on node 3: its threads use the parts of the nearest node"), "{text}");
    Ok(())
}

#[test]
fn nodes_that_are_not_there_or_do_not_fit_are_refused() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a.pool");
    let two = options(folder.path(), 2);
    let parts = vec![folder.path().join("a.pool.1")];
    let refused = |part_nodes: Vec<u32>| {
        let options = PoolOptions { parts: parts.clone(), part_nodes, ..two.clone() };
        Pool::create(&path, &options).expect_err("must be refused").to_string()
    };
    let text = refused(vec![0, 7]);
    assert!(text.contains("no node 7; this machine has 0, 1") && text.contains("lodestone topology"), "{text}");
    let text = refused(vec![0]);
    assert!(text.contains("1 nodes for 2 parts"), "{text}");
    assert!(!path.exists() && !parts[0].exists(), "a refusal creates nothing");
    let text =
        Pool::create(&path, &PoolOptions { virtual_nodes: 17, ..two.clone() }).expect_err("too many").to_string();
    assert!(text.contains("17 nodes"), "{text}");
    drop(Pool::create(&path, &PoolOptions { parts: parts.clone(), ..two.clone() })?);
    fs::remove_file(&parts[0])?;
    let text = Pool::open(&path, &two).expect_err("a part is gone").to_string();
    assert!(text.contains("part 1 of the pool") && text.contains("is missing"), "{text}");
    Ok(())
}
