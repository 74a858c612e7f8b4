//! Paper 4's estimate of I/O agents (section 2.1.3), and an experiment that tests it. The experiment covers remote
//! reads and writes with and without agents, and the paper's transactions over two tables on two nodes.
//!
//! - [`paper`]: the cost model as the paper has it.
//! - [`profile`]: the same costs, and the agents' [`Costs`](lodestone_numa::Costs), from the profile of a medium.
//! - [`virtual_time`]: a deterministic simulation. Accesses go through the model of the medium, clock by clock.
//!   Messages are charged as transfers between nodes. The agent has its own clock, so that requests queue when it is
//!   late.
//! - [`real_time`]: real agents, rings and threads on this machine, over memory whose model spins. Messages have their
//!   real cost on this machine. Two virtual nodes share one cache, so a message is cheaper than between sockets.
//!
//! Both write whole lines around the cache, fence every write, and touch random places of a table larger than the
//! cache.

pub mod paper;
pub mod profile;
pub mod real_time;
pub mod virtual_time;

use lodestone_media::MediaProfile;
use lodestone_pmem::PmAddr;
use serde::Serialize;

/// The setting of a measurement.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The persistent memory.
    pub medium: MediaProfile,
    /// The DRAM in which messages travel.
    pub dram: MediaProfile,
    /// Nodes, at least 2, each with its own table.
    pub nodes: usize,
    /// Operations per figure.
    pub operations: u64,
    /// Seed of the random places.
    pub seed: u64,
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessKind {
    /// Reads.
    Read,
    /// Writes and fences.
    Write,
}

/// How an operation reaches another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// The thread accesses the memory itself.
    Direct,
    /// Through the agent, and the thread waits for each answer: the paper's way.
    Agent,
    /// Through the agent, while the thread does its own node's share; one fence per node.
    Overlapped,
}

/// The paper's transactions: the same share for table 1 (own node) and table 2 (another node).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// Writes data and log of both tables.
    PureWrite,
    /// Reads both tables.
    PureRead,
    /// Every second transaction reads, every other writes.
    Mixed,
}

impl Workload {
    /// The kind of transaction number `index`.
    #[must_use]
    pub fn kind(self, index: u64) -> AccessKind {
        match self {
            Self::PureRead => AccessKind::Read,
            Self::PureWrite => AccessKind::Write,
            Self::Mixed if index.is_multiple_of(2) => AccessKind::Read,
            Self::Mixed => AccessKind::Write,
        }
    }

    /// The transaction in the units of the cost model: a write counts one unit each of data and log.
    #[must_use]
    pub fn transaction(self) -> paper::Transaction {
        let (reads, writes) = match self {
            Self::PureRead => (1.0, 0.0),
            Self::PureWrite => (0.0, 1.0),
            Self::Mixed => (0.5, 0.5),
        };
        paper::Transaction { reads: [reads; 2], data: [writes; 2], log: [writes; 2] }
    }
}

/// Bytes of each node's table: many times the size of a processor's cache.
const TABLE_BYTES: u64 = 64 << 20;

/// Random places for accesses of one size, the same for the same seed.
#[derive(Clone, Debug)]
struct Places {
    state: u64,
    slots: u64,
    stride: u64,
}

impl Places {
    fn new(seed: u64, bytes: u64) -> Self {
        let stride = bytes.next_multiple_of(256).max(256);
        Self { state: seed, slots: TABLE_BYTES / stride, stride }
    }

    /// The next place in `part` (SplitMix64).
    fn next(&mut self, part: u16) -> PmAddr {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        PmAddr::new(part, (mixed ^ (mixed >> 31)) % self.slots * self.stride)
    }
}

/// The other nodes in turn, as seen from node 0.
fn remote_part(index: u64, nodes: usize) -> u16 {
    (1 + index % (nodes as u64 - 1)) as u16
}
