//! The costs of a machine, in nanoseconds. Every number is an assumption and is printed as one.

use serde::Serialize;

/// Costs and shape of a machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    /// Name for results.
    pub name: String,
    /// NUMA nodes.
    pub nodes: usize,
    /// Cores of a node.
    pub cores_per_node: usize,
    /// Hardware threads of a core. Cores are filled first, then their second threads, then the next node.
    pub threads_per_core: usize,
    /// The factor on software time while both threads of a core run.
    pub sibling_slowdown: f64,
    /// The factor on software time relative to the machine where the trace was taken.
    pub software_factor: f64,
    /// An atomic read-modify-write on a line that is already here.
    pub atomic_ns: f64,
    /// Fetching a line that another core of the node has changed.
    pub transfer_local_ns: f64,
    /// Fetching a line that a core of the other node has changed.
    pub transfer_remote_ns: f64,
    /// Starting the write-back of a line.
    pub flush_ns: f64,
    /// A fence after one line, while no other thread writes.
    pub fence_ns: f64,
    /// The extra cost of a fence if the medium is at the other node.
    pub fence_remote_ns: f64,
    /// The time for which the medium is busy for each line.
    pub line_write_ns: f64,
}

impl Machine {
    /// A machine as in paper 1, section 6.1 (two nodes of 36 hardware threads, Optane modules), with figures of papers
    /// 1 to 3.
    #[must_use]
    pub fn optane() -> Self {
        Self {
            name: "optane-like, 2 nodes x 18 cores x 2".into(),
            nodes: 2,
            cores_per_node: 18,
            threads_per_core: 2,
            sibling_slowdown: 1.6,
            software_factor: 1.0,
            atomic_ns: 8.0,
            transfer_local_ns: 70.0,
            transfer_remote_ns: 180.0,
            flush_ns: 10.0,
            fence_ns: 180.0,
            fence_remote_ns: 120.0,
            // 12.5 GB/s for six modules (paper 3, section 2.1), in media blocks of 256 bytes that hold one dirty line.
            line_write_ns: 20.0,
        }
    }

    /// The source of each cost, for the output and the documentation.
    pub const OPTANE_SOURCES: [(&'static str, &'static str); 8] = [
        ("shape", "paper 1, table 4: two nodes of 36 hardware threads; threads fill node 0 first, as its figures do"),
        ("data", "all objects and logs at node 0: threads of node 1 pay fence_remote"),
        ("sibling_slowdown", "assumed: two threads of a core reach 1.25 of one"),
        ("software_factor", "assumed: software costs the same as on the machine of the trace"),
        ("atomic, transfers", "assumed: 8 ns in the own cache, 70 ns between cores, 180 ns between nodes"),
        ("fence", "paper 2, table of random writes: a 64-byte write and its fence take about 190 ns"),
        ("fence_remote", "assumed: 120 ns more to the other node's memory"),
        (
            "line_write",
            "paper 3, section 2.1: 12.5 GB/s of writes for six modules, 256-byte blocks with one dirty line",
        ),
    ];

    /// Hardware threads.
    #[must_use]
    pub fn threads_max(&self) -> usize {
        self.nodes * self.cores_per_node * self.threads_per_core
    }

    /// Node of a simulated thread.
    #[must_use]
    pub fn node_of(&self, thread: usize) -> usize {
        (thread / (self.cores_per_node * self.threads_per_core)).min(self.nodes - 1)
    }

    /// The factor on software time for `thread` of `threads`.
    #[must_use]
    pub fn slowdown(&self, thread: usize, threads: usize) -> f64 {
        let on_node = self.cores_per_node * self.threads_per_core;
        let (node, place) = (self.node_of(thread), thread % on_node);
        let running = threads.saturating_sub(node * on_node).min(on_node);
        let core = place % self.cores_per_node;
        let siblings = (0..self.threads_per_core).filter(|sibling| sibling * self.cores_per_node + core < running);
        let shared = if siblings.count() > 1 { self.sibling_slowdown } else { 1.0 };
        shared * self.software_factor
    }

    /// Cost of fetching a line from `owner` to `thread`.
    #[must_use]
    pub fn transfer_ns(&self, owner: usize, thread: usize) -> f64 {
        if self.node_of(owner) == self.node_of(thread) { self.transfer_local_ns } else { self.transfer_remote_ns }
    }
}
