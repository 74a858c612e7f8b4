//! NUMA: which nodes, processors and distances the machine has, and where a thread runs.
//!
//! Read once from sysfs (`/sys/devices/system/node`; another root in tests). A machine without that folder is one node with
//! all its processors. *Virtual nodes* split the processors of a small machine into several nodes of equal size, so that
//! placement by node can be exercised and, with a media model, measured where there is only one; they are labelled.
//!
//! Invariants:
//! - there is at least one node, and nodes are numbered from 0 without gaps ([`Node::id`] keeps the kernel's number);
//! - a processor belongs to one node at most; with fewer processors than virtual nodes, nodes share processors.

use std::fmt;
use std::fs;
use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::error::{Error, Result};

/// Distance of a node to itself, as the firmware's table counts.
pub const DISTANCE_LOCAL: u32 = 10;
/// Distance between two virtual nodes: what two sockets report as a rule.
const DISTANCE_VIRTUAL_REMOTE: u32 = 20;

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// The kernel's number; for virtual nodes their own.
    pub id: u32,
    /// Processors, ascending; empty for a node of memory only.
    pub cpus: Vec<usize>,
    /// Memory in bytes, 0 when unknown.
    pub memory_bytes: u64,
    /// Distance to every node, by index.
    pub distances: Vec<u32>,
}

/// The nodes of a machine.
///
/// ```
/// use lodestone_pmem::Topology;
/// let machine = Topology::of_machine();
/// assert!(!machine.nodes().is_empty());
/// let two = machine.with_virtual_nodes(2)?;
/// assert_eq!((two.nodes().len(), two.is_virtual()), (2, true));
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    nodes: Vec<Node>,
    is_virtual: bool,
}

impl Topology {
    /// The machine this program runs on.
    #[must_use]
    pub fn of_machine() -> Self {
        Self::read(Path::new("/sys"))
    }

    /// The machine described under `sysfs` (normally `/sys`). What is missing or unreadable there leaves one node.
    #[must_use]
    pub fn read(sysfs: &Path) -> Self {
        let folder = sysfs.join("devices/system/node");
        let ids = read_list(&folder.join("online"));
        let mut nodes: Vec<Node> = ids.iter().filter_map(|id| read_node(&folder, *id as u32)).collect();
        if nodes.is_empty() {
            let online = read_list(&sysfs.join("devices/system/cpu/online"));
            let cpus = if online.is_empty() { allowed_cpus() } else { online };
            nodes.push(Node { id: 0, cpus, memory_bytes: 0, distances: vec![DISTANCE_LOCAL] });
        }
        let count = nodes.len();
        for (index, node) in nodes.iter_mut().enumerate() {
            if node.distances.len() != count {
                // A table that does not fit the nodes says nothing: only "here" and "elsewhere" are known.
                let distance = |other| if other == index { DISTANCE_LOCAL } else { DISTANCE_VIRTUAL_REMOTE };
                node.distances = (0..count).map(distance).collect();
            }
        }
        Self { nodes, is_virtual: false }
    }

    /// `count` virtual nodes over all processors of this machine, in runs of neighbours.
    ///
    /// # Errors
    /// When `count` is 0 or above 16, the largest number of parts of a pool.
    pub fn with_virtual_nodes(&self, count: usize) -> Result<Self> {
        if count == 0 || count > 16 {
            return Err(Error::Invalid {
                what: "virtual nodes",
                finding: format!("{count} nodes"),
                hint: "use 1 to 16 nodes",
            });
        }
        let mut cpus: Vec<usize> = self.nodes.iter().flat_map(|node| node.cpus.iter().copied()).collect();
        cpus.sort_unstable();
        let memory_bytes = self.nodes.iter().map(|node| node.memory_bytes).sum::<u64>() / count as u64;
        let cpus_of = |index: usize| -> Vec<usize> {
            if cpus.len() >= count {
                cpus[index * cpus.len() / count..(index + 1) * cpus.len() / count].to_vec()
            } else {
                cpus.get(index % cpus.len().max(1)).copied().into_iter().collect()
            }
        };
        let distance = |here, there| if here == there { DISTANCE_LOCAL } else { DISTANCE_VIRTUAL_REMOTE };
        let nodes = (0..count)
            .map(|index| Node {
                id: index as u32,
                cpus: cpus_of(index),
                memory_bytes,
                distances: (0..count).map(|other| distance(index, other)).collect(),
            })
            .collect();
        Ok(Self { nodes, is_virtual: true })
    }

    /// The nodes, by index.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Whether the nodes are virtual: figures of such a machine say nothing about NUMA by themselves.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        self.is_virtual
    }

    /// Index of the node with the kernel's number `id`.
    #[must_use]
    pub fn index_of(&self, id: u32) -> Option<usize> {
        self.nodes.iter().position(|node| node.id == id)
    }

    /// Index of the node that processor `cpu` belongs to (the first, where virtual nodes share it).
    #[must_use]
    pub fn node_of_cpu(&self, cpu: usize) -> Option<usize> {
        self.nodes.iter().position(|node| node.cpus.contains(&cpu))
    }

    /// Index of the node that the calling thread runs on now; without pinning it may be another one at once. 0 when the
    /// processor belongs to no node.
    #[must_use]
    pub fn node_of_thread(&self) -> usize {
        self.node_of_cpu(sched_getcpu()).unwrap_or(0)
    }

    /// The nodes from the nearest to the farthest of node `index`, itself first; ties by number.
    ///
    /// # Panics
    /// When there is no such node.
    #[must_use]
    pub fn nearest_first(&self, index: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by_key(|other| (*other != index, self.nodes[index].distances[*other], *other));
        order
    }

    /// Keeps the calling thread on the processors of node `index`.
    ///
    /// # Errors
    /// When there is no such node, it has no processors, or this process may use none of them.
    pub fn pin_thread(&self, index: usize) -> Result<()> {
        let invalid = |finding: String, hint| Err(Error::Invalid { what: "node", finding, hint });
        let Some(node) = self.nodes.get(index) else {
            return invalid(format!("node {index} of {}", self.nodes.len()), "see `lodestone pool info` for the nodes");
        };
        if node.cpus.is_empty() {
            return invalid(format!("node {} has no processors", node.id), "pin to a node that has some");
        }
        let mut set = CpuSet::new();
        for cpu in node.cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
            set.set(*cpu);
        }
        let hint = "this process may not use the node's processors: change its cpuset or taskset";
        sched_setaffinity(None, &set).map_err(|e| Error::io("(thread)", "pinning to a node", hint, e))
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_virtual { "virtual node" } else { "node" };
        for node in &self.nodes {
            let cpus: Vec<String> = node.cpus.iter().map(ToString::to_string).collect();
            let cpus = if cpus.is_empty() { "none".into() } else { cpus.join(",") };
            let (id, distances) = (node.id, &node.distances);
            writeln!(f, "{kind} {id}: processors {cpus}; {} MiB; distances {distances:?}", node.memory_bytes >> 20)?;
        }
        Ok(())
    }
}

fn read_node(folder: &Path, id: u32) -> Option<Node> {
    let folder = folder.join(format!("node{id}"));
    let cpus = fs::read_to_string(folder.join("cpulist")).ok()?;
    let distances = fs::read_to_string(folder.join("distance")).unwrap_or_default();
    let memory = fs::read_to_string(folder.join("meminfo")).unwrap_or_default();
    Some(Node {
        id,
        cpus: parse_list(&cpus),
        memory_bytes: parse_meminfo(&memory),
        distances: distances.split_whitespace().filter_map(|distance| distance.parse().ok()).collect(),
    })
}

fn read_list(path: &Path) -> Vec<usize> {
    fs::read_to_string(path).map(|text| parse_list(&text)).unwrap_or_default()
}

/// Parses the kernel's list format: "0-3,8,10-11". What does not parse is left out.
fn parse_list(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<usize>(), last.trim().parse::<usize>()) {
            found.extend(first..=last.min(first + CpuSet::MAX_CPU));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Bytes of the line "Node 0 MemTotal: 12345 kB".
fn parse_meminfo(text: &str) -> u64 {
    let line = text.lines().find(|line| line.contains("MemTotal:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().rev().nth(1)?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) << 10
}

/// Processors that this thread may use.
fn allowed_cpus() -> Vec<usize> {
    sched_getaffinity(None).map(|set| (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

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
        assert!(topology.pin_thread(9).is_err());
        assert!(topology.to_string().contains("node 5: processors 13; 1024 MiB"), "{topology}");
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
    fn a_pinned_thread_stays_on_its_node() -> Result<()> {
        let machine = Topology { nodes: vec![], is_virtual: false };
        assert_eq!(machine.node_of_thread(), 0);
        let cpus = allowed_cpus();
        let node = Node { id: 0, cpus: cpus.clone(), memory_bytes: 0, distances: vec![DISTANCE_LOCAL] };
        let machine = Topology { nodes: vec![node], is_virtual: false }.with_virtual_nodes(cpus.len().min(2))?;
        thread::scope(|scope| {
            for index in 0..machine.nodes().len() {
                let machine = &machine;
                scope.spawn(move || {
                    machine.pin_thread(index).expect("pinning to allowed processors");
                    for _ in 0..50 {
                        assert_eq!(machine.node_of_thread(), index);
                        thread::yield_now();
                    }
                });
            }
        });
        Ok(())
    }
}
