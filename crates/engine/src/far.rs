//! Reads of pages that are on other nodes (paper 4, section 2.1.3: I/O agents).
//!
//! A cold row or leaf on another node is read by the thread itself, or by the agent of that node: a message and a local
//! read instead of a remote one. [`lodestone_numa::Costs`] decide for each read. Rows in DRAM, logs and rounds have no
//! need of agents: they are local.
//!
//! A client of the agents belongs to one thread at a time. There is a stock of them for each node, and a read borrows
//! one. A read that an agent cannot do, as after its end, is done by the thread itself.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lodestone_numa::{AgentOptions, Agents, Client};
use lodestone_pages::FarReads;
use lodestone_pmem::{PmAddr, Pool, Topology};

use crate::error::Result;
use crate::spares::Spares;

/// How pages of other nodes are read.
///
/// ```
/// use lodestone_engine::{Database, DatabaseOptions, FarPages, row};
/// use lodestone_numa::AgentOptions;
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// # let folder = tempfile::tempdir()?;
/// let pool = PoolOptions {
///     domain: DomainChoice::Process,
///     size_bytes: 64 << 20,
///     parts: vec![folder.path().join("b.pool")],
///     virtual_nodes: 2,
///     ..PoolOptions::default()
/// };
/// let far_pages = FarPages::Agents { options: AgentOptions::default(), per_node: 2 };
/// let options = DatabaseOptions { pool, far_pages, log_bytes: 1 << 20, segment_bytes: 32 << 10, ..Default::default() };
/// let db = Database::open_with(folder.path().join("a.pool"), &options)?;
/// let table = db.create_table(&"t (k u64, v i64) key (k)".parse()?)?;
/// db.update(|tx| table.put(tx, &row![1_u64, 2_i64]))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum FarPages {
    /// By the thread that needs them.
    #[default]
    Direct,
    /// By I/O agents, where they cost less.
    Agents {
        /// How each of them works.
        options: AgentOptions,
        /// Agents on each node with a part, one at least. One serves one client at a time: `docs/numa.md` says how
        /// many a module needs.
        per_node: usize,
    },
    /// By something else, as a simulation.
    By(Arc<dyn FarReads>),
}

impl fmt::Debug for FarPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Agents { .. } => "agents",
            Self::By(_) => "by the program",
        })
    }
}

impl FarPages {
    /// The reads for the pages of `pool`.
    ///
    /// # Errors
    /// When the agents cannot be started.
    pub fn begin(&self, pool: &Pool) -> Result<Option<Arc<dyn FarReads>>> {
        Ok(match self {
            // With one part nothing is far.
            Self::Agents { options, per_node } if pool.part_nodes().len() > 1 => {
                let teams = (0..(*per_node).max(1)).map(|_| Agents::for_pool(pool, options.clone()));
                let (teams, topology) = (teams.collect::<std::result::Result<_, _>>()?, pool.topology().clone());
                let clients = topology.nodes().iter().map(|_| Spares::default()).collect();
                let nodes = pool.part_nodes().iter().map(|node| node.index).collect();
                Some(Arc::new(ByAgents { clients, teams, next: AtomicUsize::new(0), topology, nodes }))
            }
            Self::Direct | Self::Agents { .. } => None,
            Self::By(reads) => Some(reads.clone()),
        })
    }
}

/// Reads by agents. They end with it.
#[derive(Debug)]
struct ByAgents {
    /// By node.
    clients: Box<[Spares<Client>]>,
    /// Each has an agent on each node.
    teams: Box<[Agents]>,
    /// The team of the next client. There are as many clients as threads read at once, so each team has its share.
    next: AtomicUsize,
    topology: Topology,
    /// The node of each part.
    nodes: Box<[Option<usize>]>,
}

impl FarReads for ByAgents {
    fn read(&self, at: PmAddr, bytes: &mut [u8]) -> bool {
        let here = self.topology.node_of_thread();
        if self.nodes.get(usize::from(at.part())).copied().flatten().is_none_or(|node| node == here) {
            return false;
        }
        let team = || &self.teams[self.next.fetch_add(1, Ordering::Relaxed) % self.teams.len()];
        let Some(mut client) = self.clients[here].take().or_else(|| team().client_on(here).ok()) else {
            return false;
        };
        let is_read = client.read(at, bytes).is_ok();
        if is_read {
            self.clients[here].give(client);
        }
        is_read
    }
}
