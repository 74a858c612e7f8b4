//! Topologies of machines that we do not have, as trees of files; pinning on the machine that we have.

use std::fs;
use std::path::Path;
use std::thread;

use super::*;

/// A sysfs with the given nodes: number, `cpulist`, `distance`.
fn machine(nodes: &[(u32, &str, &str)], online: &str) -> (tempfile::TempDir, Topology) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let root = folder.path().join("devices/system/node");
    fs::create_dir_all(&root).expect("folder");
    fs::write(root.join("online"), online).expect("online");
    for (id, cpus, distances) in nodes {
        let node = root.join(format!("node{id}"));
        fs::create_dir(&node).expect("node");
        fs::write(node.join("cpulist"), cpus).expect("cpulist");
        fs::write(node.join("distance"), distances).expect("distance");
        let meminfo = format!("Node {id} MemTotal:       1048576 kB\nNode {id} MemFree: 1 kB\n");
        fs::write(node.join("meminfo"), meminfo).expect("meminfo");
    }
    let topology = Topology::read(folder.path());
    (folder, topology)
}

#[test]
fn four_nodes_with_gaps_and_memory_only_nodes_are_read() {
    let nodes = [
        (0, "0-3,8-11\n", "10 21 31 17\n"),
        (1, "4-7,12\n", "21 10 17 31\n"),
        (4, "\n", "31 17 10 40\n"),
        (5, "13\n", "17 31 40 10\n"),
    ];
    let (_folder, topology) = machine(&nodes, "0-1,4-5\n");
    assert_eq!(topology.nodes().len(), 4);
    assert_eq!(topology.nodes()[0].cpus, [0, 1, 2, 3, 8, 9, 10, 11]);
    assert_eq!(topology.nodes()[1].memory_bytes, 1 << 30);
    assert_eq!((topology.index_of(4), topology.index_of(2)), (Some(2), None));
    assert_eq!((topology.node_of_cpu(12), topology.node_of_cpu(99)), (Some(1), None));
    assert_eq!(topology.nearest_first(0), [0, 3, 1, 2]);
    assert_eq!(topology.nearest_first(2), [2, 1, 0, 3]);
    let text = topology.pin_thread(2).expect_err("memory only").to_string();
    assert!(text.contains("node 4 has no processors"), "{text}");
    let text = topology.pin_thread(9).expect_err("no such node").to_string();
    assert!(text.contains("node 9 of 4") && text.contains("lodestone topology"), "{text}");
    assert!(topology.to_string().contains("node 5: processors 13; 1024 MiB"), "{topology}");
}

#[test]
fn one_two_and_eight_nodes_are_read() {
    for count in [1_usize, 2, 8] {
        let cpus: Vec<String> = (0..count).map(|node| format!("{}-{}\n", 4 * node, 4 * node + 3)).collect();
        let rows: Vec<String> = (0..count)
            .map(|here| (0..count).map(|there| if here == there { "10 " } else { "21 " }).collect())
            .collect();
        let nodes: Vec<(u32, &str, &str)> =
            (0..count).map(|index| (index as u32, cpus[index].as_str(), rows[index].as_str())).collect();
        let (_folder, topology) = machine(&nodes, &format!("0-{}", count - 1));
        assert_eq!((topology.nodes().len(), topology.usable_cpu_count()), (count, 4 * count));
        for cpu in 0..4 * count {
            assert_eq!(topology.node_of_cpu(cpu), Some(cpu / 4));
        }
        assert_eq!(topology.nodes()[count - 1].distances[count - 1], DISTANCE_LOCAL);
    }
}

#[test]
fn processors_that_are_switched_off_belong_to_no_node() {
    let (folder, _) = machine(&[(0, "0-3", "10 20"), (1, "4-7", "20 10")], "0-1");
    fs::create_dir_all(folder.path().join("devices/system/cpu")).expect("folder");
    fs::write(folder.path().join("devices/system/cpu/online"), "0-2,5\n").expect("online");
    let topology = Topology::read(folder.path());
    assert_eq!((&topology.nodes()[0].cpus[..], &topology.nodes()[1].cpus[..]), (&[0, 1, 2][..], &[5][..]));
    assert_eq!((topology.node_of_cpu(3), topology.node_of_cpu(5)), (None, Some(1)));
}

#[test]
fn a_restricted_process_is_told_which_nodes_it_cannot_use() {
    let (_folder, machine) = machine(&[(0, "0-1", "10 20"), (1, "2-3", "20 10")], "0-1");
    let mine = machine.restricted_to(&[1]);
    assert_eq!((mine.nodes()[0].usable_cpus.as_slice(), mine.usable_cpu_count()), (&[1][..], 1));
    let text = mine.pin_thread(1).expect_err("no usable processor").to_string();
    assert!(text.contains("processors 2,3, but this process may use none") && text.contains("taskset"), "{text}");
    assert!(mine.to_string().contains("processors 0,1 (usable: 1)"), "{mine}");
    let four = mine.with_virtual_nodes(4).expect("four nodes");
    assert!(four.nodes().iter().all(|node| node.usable_cpus == [1]), "virtual nodes use what the process may use");
}

#[test]
fn a_machine_that_tells_nothing_is_one_node() {
    let topology = Topology::read(Path::new("/nonexistent"));
    assert_eq!((topology.nodes().len(), topology.is_virtual()), (1, false));
    assert!(!topology.nodes()[0].cpus.is_empty());
    let (_folder, odd) = machine(&[(0, "0", "10"), (1, "x-y,,3-", "10 20 30")], "0,1");
    assert_eq!(odd.nodes()[1].cpus, Vec::<usize>::new());
    assert_eq!(odd.nodes()[0].distances, [DISTANCE_LOCAL, DISTANCE_VIRTUAL_REMOTE]);
}

#[test]
fn virtual_nodes_share_out_all_processors() -> Result<()> {
    let (_folder, topology) = machine(&[(0, "0-6", "10")], "0");
    let three = topology.with_virtual_nodes(3)?;
    let cpus: Vec<_> = three.nodes().iter().map(|node| node.cpus.clone()).collect();
    assert_eq!(cpus, [vec![0, 1], vec![2, 3], vec![4, 5, 6]]);
    assert_eq!(three.nodes()[1].distances, [20, 10, 20]);
    let (_folder, small) = machine(&[(0, "0-1", "10")], "0");
    let four = small.with_virtual_nodes(4)?;
    let cpus: Vec<_> = four.nodes().iter().map(|node| node.cpus.clone()).collect();
    assert_eq!(cpus, [[0], [1], [0], [1]]);
    assert!(small.with_virtual_nodes(0).is_err() && small.with_virtual_nodes(17).is_err());
    Ok(())
}

#[test]
fn a_pinned_thread_stays_on_its_node_and_knows_it() -> Result<()> {
    let machine = Topology::of_machine();
    let count = machine.usable_cpu_count();
    // More nodes than processors: threads that share a processor still know which node is theirs.
    for nodes in [count.min(2), 4] {
        let machine = machine.with_virtual_nodes(nodes)?;
        thread::scope(|scope| {
            for index in 0..nodes {
                let machine = &machine;
                scope.spawn(move || {
                    machine.pin_thread(index).expect("pinning to allowed processors");
                    for _ in 0..50 {
                        assert_eq!(machine.node_of_thread(), index);
                        assert!(machine.nodes()[index].cpus.contains(&sched_getcpu()));
                        thread::yield_now();
                    }
                    assert_eq!(machine.clone().node_of_thread(), index, "a clone is the same topology");
                    machine.unpin_thread().expect("all processors again");
                    assert_eq!(machine.node_of_cpu(sched_getcpu()).is_some(), count > 0);
                });
            }
        });
    }
    Ok(())
}

#[test]
fn another_topology_does_not_believe_where_a_thread_was_pinned() -> Result<()> {
    let machine = Topology::of_machine();
    let four = machine.with_virtual_nodes(4)?;
    thread::scope(|scope| {
        scope.spawn(|| {
            four.pin_thread(3).expect("pinned");
            assert_eq!(machine.node_of_thread(), machine.node_of_cpu(sched_getcpu()).unwrap_or(0));
        });
    });
    Ok(())
}
