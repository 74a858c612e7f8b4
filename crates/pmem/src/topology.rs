//! NUMA: which nodes, processors and distances the machine has, and where a thread runs.
//!
//! Read once from sysfs (`/sys/devices/system/node`; another root in tests). A machine without that folder is one node
//! with all its processors. *Virtual nodes* split the processors of a small machine into several nodes of equal size.
//! With them placement by node can be exercised on a machine with one node and, with a media model, measured. They are
//! labelled.
//!
//! **Node of a thread.** A thread that was pinned by [`Topology::pin_thread`] keeps its node in a thread-local word:
//! two loads and a comparison. Any other thread asks `getcpu` through the vDSO, without a system call, and looks the
//! processor up in a table. The answer may be outdated at once. `lodestone topology` measures both on the machine at
//! hand.
//!
//! Invariants:
//! - there is at least one node, and nodes are numbered from 0 without gaps ([`Node::id`] keeps the kernel's number);
//! - a processor belongs to one node at most. With fewer processors than virtual nodes, nodes share processors;
//! - the processors that this process may use ([`Node::usable_cpus`]) are those that its affinity allowed when the
//!   topology was read.

mod sysfs;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use lodestone_width::{exact_u32, to_u64};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::error::{Error, Result};

/// Distance of a node to itself, as the firmware's table counts.
pub const DISTANCE_LOCAL: u32 = 10;
/// Distance between two virtual nodes: the number that two sockets report as a rule.
const DISTANCE_VIRTUAL_REMOTE: u32 = 20;
/// Most virtual nodes: the largest number of parts of a pool.
const VIRTUAL_NODES_MAX: usize = 16;
/// In the table of processors: belongs to no node.
const NO_NODE: u16 = u16::MAX;

/// One NUMA node.
///
/// ```
/// use lodestone_pmem::Topology;
///
/// let machine = Topology::of_machine();
/// for node in machine.nodes() {
///     println!("node {}: {} processors, {} bytes", node.id, node.cpus.len(), node.memory_bytes);
/// }
/// assert!(!machine.nodes().is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// The kernel's number; for virtual nodes their own.
    pub id: u32,
    /// Processors that are switched on, ascending; empty for a node of memory only.
    pub cpus: Vec<usize>,
    /// Those of them that this process may use (taskset, cgroup).
    pub usable_cpus: Vec<usize>,
    /// Memory in bytes, 0 when unknown.
    pub memory_bytes: u64,
    /// Distance to every node, by index.
    pub distances: Vec<u32>,
}

impl Node {
    /// Why no thread can be pinned to this node; `None` when one can.
    #[must_use]
    pub fn why_unusable(&self) -> Option<String> {
        if self.cpus.is_empty() {
            return Some(format!("node {} has no processors", self.id));
        }
        let cpus = list(&self.cpus);
        self.usable_cpus
            .is_empty()
            .then(|| format!("node {} has processors {cpus}, but this process may use none of them", self.id))
    }
}

/// The nodes of a machine. Cheap to clone.
///
/// ```
/// use lodestone_pmem::Topology;
/// let machine = Topology::of_machine();
/// assert!(!machine.nodes().is_empty());
/// let two = machine.with_virtual_nodes(2)?;
/// assert_eq!((two.nodes().len(), two.is_virtual()), (2, true));
/// two.pin_thread(1)?;
/// assert_eq!(two.node_of_thread(), 1);
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Clone)]
pub struct Topology {
    inner: Arc<Inner>,
}

struct Inner {
    /// Tells topologies apart in the word of a pinned thread; never 0.
    identity: u64,
    nodes: Vec<Node>,
    /// Node by processor.
    node_of_cpu: Box<[u16]>,
    is_virtual: bool,
}

thread_local! {
    /// Identity of the topology by which this thread was pinned, and its node there.
    static PINNED: Cell<(u64, usize)> = const { Cell::new((0, 0)) };
}

impl Topology {
    fn new(mut nodes: Vec<Node>, is_virtual: bool) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let count = nodes.len();
        for (index, node) in nodes.iter_mut().enumerate() {
            if node.distances.len() != count {
                // A table that does not fit the nodes is ignored: only "here" and "elsewhere" are known.
                node.distances = (0..count).map(|other| distance_by_place(index, other)).collect();
            }
        }
        let cpu_count = nodes.iter().filter_map(|node| node.cpus.last()).max().map_or(0, |last| last + 1);
        let mut node_of_cpu = vec![NO_NODE; cpu_count].into_boxed_slice();
        for (index, node) in nodes.iter().enumerate().rev() {
            for cpu in &node.cpus {
                node_of_cpu[*cpu] = u16::try_from(index).unwrap_or(NO_NODE);
            }
        }
        let identity = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { inner: Arc::new(Inner { identity, nodes, node_of_cpu, is_virtual }) }
    }

    /// The machine this program runs on, restricted to the processors that the calling thread may use.
    ///
    /// The machine is looked at once in a process: processors that come later belong to no node.
    #[must_use]
    pub fn of_machine() -> Self {
        static MACHINE: OnceLock<Topology> = OnceLock::new();
        MACHINE.get_or_init(|| Self::read(Path::new("/sys"))).restricted_to(&allowed_cpus())
    }

    /// The machine described under `sysfs` (normally `/sys`). Without readable node folders there is one node. All its
    /// processors count as usable.
    #[must_use]
    pub fn read(sysfs: &Path) -> Self {
        let mut nodes = sysfs::read_nodes(sysfs);
        if nodes.is_empty() {
            let online = sysfs::online_cpus(sysfs);
            let cpus = if online.is_empty() { allowed_cpus() } else { online };
            let usable_cpus = cpus.clone();
            nodes.push(Node { id: 0, cpus, usable_cpus, memory_bytes: 0, distances: vec![DISTANCE_LOCAL] });
        }
        Self::new(nodes, false)
    }

    /// The topology that a pool uses whose devices are described under `sysfs`: the machine's, or `virtual_nodes` of it
    /// when that is not 0.
    ///
    /// # Errors
    /// When there cannot be so many virtual nodes.
    pub fn for_pool(sysfs: &Path, virtual_nodes: usize) -> Result<Self> {
        let real = if sysfs == Path::new("/sys") { Self::of_machine() } else { Self::read(sysfs) };
        if virtual_nodes == 0 { Ok(real) } else { real.with_virtual_nodes(virtual_nodes) }
    }

    /// The same nodes, of which only the processors `cpus` may be used.
    #[must_use]
    pub fn restricted_to(&self, cpus: &[usize]) -> Self {
        let mut nodes = self.inner.nodes.clone();
        for node in &mut nodes {
            node.usable_cpus.retain(|cpu| cpus.contains(cpu));
        }
        Self::new(nodes, self.inner.is_virtual)
    }

    /// `count` virtual nodes over all usable processors of this machine, in runs of neighbours.
    ///
    /// # Errors
    /// When `count` is 0 or above 16, the largest number of parts of a pool.
    pub fn with_virtual_nodes(&self, count: usize) -> Result<Self> {
        if count == 0 || count > VIRTUAL_NODES_MAX {
            return Err(Error::Invalid {
                what: "virtual nodes",
                finding: format!("{count} nodes"),
                hint: "use 1 to 16 nodes",
            });
        }
        let mut cpus: Vec<usize> = self.nodes().iter().flat_map(|node| node.usable_cpus.iter().copied()).collect();
        cpus.sort_unstable();
        let memory_bytes = self.nodes().iter().map(|node| node.memory_bytes).sum::<u64>() / to_u64(count);
        let cpus_of = |index: usize| -> Vec<usize> {
            if cpus.len() >= count {
                cpus[index * cpus.len() / count..(index + 1) * cpus.len() / count].to_vec()
            } else {
                cpus.get(index % cpus.len().max(1)).copied().into_iter().collect()
            }
        };
        let nodes = (0..count)
            .map(|index| Node {
                id: exact_u32(index),
                cpus: cpus_of(index),
                usable_cpus: cpus_of(index),
                memory_bytes,
                distances: (0..count).map(|other| distance_by_place(index, other)).collect(),
            })
            .collect();
        Ok(Self::new(nodes, true))
    }

    /// The nodes, by index.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.inner.nodes
    }

    /// Whether the nodes are virtual: figures of such a machine say nothing about NUMA by themselves.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        self.inner.is_virtual
    }

    /// Processors that this process may use, over all nodes, each counted once.
    #[must_use]
    pub fn usable_cpu_count(&self) -> usize {
        let mut cpus: Vec<usize> = self.nodes().iter().flat_map(|node| node.usable_cpus.iter().copied()).collect();
        cpus.sort_unstable();
        cpus.dedup();
        cpus.len()
    }

    /// Index of the node with the kernel's number `id`.
    #[must_use]
    pub fn index_of(&self, id: u32) -> Option<usize> {
        self.nodes().iter().position(|node| node.id == id)
    }

    /// Index of the node that processor `cpu` belongs to (the first, where virtual nodes share it).
    #[must_use]
    #[inline]
    pub fn node_of_cpu(&self, cpu: usize) -> Option<usize> {
        self.inner.node_of_cpu.get(cpu).filter(|node| **node != NO_NODE).map(|node| usize::from(*node))
    }

    /// Index of the node of the calling thread: where it was pinned by this topology, else where it runs now (which may
    /// be another node at once). 0 when the processor belongs to no node.
    #[must_use]
    #[inline]
    pub fn node_of_thread(&self) -> usize {
        let (identity, node) = PINNED.get();
        if identity == self.inner.identity {
            return node;
        }
        self.node_of_cpu(sched_getcpu()).unwrap_or(0)
    }

    /// The nodes from the nearest to the farthest of node `index`, itself first; ties by number.
    ///
    /// # Panics
    /// When there is no such node.
    #[must_use]
    pub fn nearest_first(&self, index: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.nodes().len()).collect();
        order.sort_by_key(|other| (*other != index, self.nodes()[index].distances[*other], *other));
        order
    }

    /// Keeps the calling thread on the usable processors of node `index`, and remembers that it is there: from now on
    /// [`node_of_thread`](Self::node_of_thread) of this topology and its clones answers without asking the kernel.
    ///
    /// # Errors
    /// When there is no such node, it has no processors, or this process may use none of them. The thread stays where
    /// it was.
    pub fn pin_thread(&self, index: usize) -> Result<()> {
        let invalid = |finding: String, hint| Err(Error::Invalid { what: "node", finding, hint });
        let Some(node) = self.nodes().get(index) else {
            let finding = format!("node {index} of {}", self.nodes().len());
            return invalid(finding, "see `lodestone topology` for the nodes");
        };
        if let Some(finding) = node.why_unusable() {
            return invalid(finding, "pin to another node, or change the cpuset (taskset, cgroup) of this process");
        }
        set_affinity(&node.usable_cpus)?;
        PINNED.set((self.inner.identity, index));
        Ok(())
    }

    /// Runs `action` as if this thread were on node `index`: [`node_of_thread`](Self::node_of_thread) says so
    /// meanwhile, and the thread stays where it is. For simulations of many threads by one.
    ///
    /// ```
    /// use lodestone_pmem::Topology;
    ///
    /// let topology = Topology::of_machine().with_virtual_nodes(4)?;
    /// assert_eq!(topology.as_if_on(3, || topology.node_of_thread()), 3);
    /// # Ok::<(), lodestone_pmem::Error>(())
    /// ```
    pub fn as_if_on<R>(&self, index: usize, action: impl FnOnce() -> R) -> R {
        /// Sets what was there before, also after a panic.
        struct Before((u64, usize));
        impl Drop for Before {
            fn drop(&mut self) {
                PINNED.set(self.0);
            }
        }
        let _before = Before(PINNED.replace((self.inner.identity, index)));
        action()
    }

    /// Lets the calling thread run on all usable processors again, and forgets its node.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn unpin_thread(&self) -> Result<()> {
        PINNED.set((0, 0));
        let cpus: Vec<usize> = self.nodes().iter().flat_map(|node| node.usable_cpus.iter().copied()).collect();
        set_affinity(&cpus)
    }
}

fn set_affinity(cpus: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
        set.set(*cpu);
    }
    let hint = "this process may not use the node's processors: change its cpuset or taskset";
    sched_setaffinity(None, &set).map_err(|e| Error::io("(thread)", "pinning to a node", hint, e))
}

fn distance_by_place(here: usize, there: usize) -> u32 {
    if here == there { DISTANCE_LOCAL } else { DISTANCE_VIRTUAL_REMOTE }
}

fn list(cpus: &[usize]) -> String {
    let cpus: Vec<String> = cpus.iter().map(ToString::to_string).collect();
    if cpus.is_empty() { "none".into() } else { cpus.join(",") }
}

impl PartialEq for Topology {
    /// Same nodes; the identity that pinned threads remember does not count.
    fn eq(&self, other: &Self) -> bool {
        (self.nodes(), self.is_virtual()) == (other.nodes(), other.is_virtual())
    }
}

impl Eq for Topology {}

impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topology")
            .field("nodes", &self.inner.nodes)
            .field("is_virtual", &self.inner.is_virtual)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_virtual() { "virtual node" } else { "node" };
        for node in self.nodes() {
            let (id, cpus, distances) = (node.id, list(&node.cpus), &node.distances);
            write!(f, "{kind} {id}: processors {cpus}")?;
            if node.usable_cpus != node.cpus {
                write!(f, " (usable: {})", list(&node.usable_cpus))?;
            }
            writeln!(f, "; {} MiB; distances {distances:?}", node.memory_bytes >> 20)?;
        }
        Ok(())
    }
}

/// Processors that this thread may use.
fn allowed_cpus() -> Vec<usize> {
    sched_getaffinity(None).map(|set| (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()).unwrap_or_default()
}
