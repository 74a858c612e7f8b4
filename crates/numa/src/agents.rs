//! The agents of a pool: started together, stopped together, and reported together.
//!
//! 1. Every node that holds a part, and whose processors this process may use, has one agent. Its thread is pinned
//!    there before [`Agents::start`] returns. A node without processors, or one that is closed to this process, has no
//!    agent, because a thread elsewhere would be as far away as the client. The report says so, and clients access such
//!    a node directly.
//! 2. [`Agents::shutdown`] (and drop) lets every agent carry out the submitted requests, then ends it. Clients may
//!    outlive the agents: their requests then end with an error.

use std::sync::Arc;
#[cfg(not(feature = "shuttle"))]
use std::thread;

use lodestone_pmem::sync::{lock, thread as threads};
use lodestone_pmem::{Memory, Pool, Topology};
use serde::Serialize;

use crate::agent::{Agent, Life, Request, Shared};
use crate::client::Client;
use crate::cost::Costs;
use crate::counts::AgentCounts;
use crate::error::{Error, Result};
use crate::patience::Patience;

/// Called on the agent's thread before each request, for traces and tests. If it panics, the agent dies.
pub type Observer = dyn Fn(&Request) + Send + Sync;

/// How agents work.
#[derive(Clone)]
#[non_exhaustive]
pub struct AgentOptions {
    /// Requests that one client can have in flight with one agent, 1 to 1024.
    pub ring_slots: usize,
    /// Requests of one client that an agent carries out before it turns to the next client.
    pub batch_max: usize,
    /// Fruitless turns before a thread, agent or client, goes to sleep. `None`: many if each agent can have its own
    /// processor, otherwise few; and few for a while after an offer of the processor took long.
    pub spins_max: Option<u32>,
    /// Pin each agent to its node.
    pub pin: bool,
    /// Costs of accesses, for clients that choose the way by themselves.
    pub costs: Costs,
    /// Called before each request.
    pub observer: Option<Arc<Observer>>,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self { ring_slots: 32, batch_max: 32, spins_max: None, pin: true, costs: Costs::default(), observer: None }
    }
}

impl std::fmt::Debug for AgentOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentOptions")
            .field("ring_slots", &self.ring_slots)
            .field("batch_max", &self.batch_max)
            .field("spins_max", &self.spins_max)
            .field("pin", &self.pin)
            .finish_non_exhaustive()
    }
}

/// Whether a node has an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AgentState {
    /// At work.
    Running,
    /// Ended in order.
    Stopped,
    /// Its thread panicked.
    Died {
        /// The message of the panic.
        cause: String,
    },
    /// Never started.
    None {
        /// The reason.
        reason: String,
    },
}

/// One node and its agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NodeReport {
    /// Index of the node in the topology.
    pub node: usize,
    /// The kernel's number of the node.
    pub id: u32,
    /// Parts on it.
    pub parts: Vec<u16>,
    /// Its agent.
    pub state: AgentState,
    /// The agent's counts so far.
    pub counts: AgentCounts,
}

/// The state that agents and clients share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) memory: Memory,
    pub(crate) topology: Topology,
    /// Node by part; `None`: unknown.
    pub(crate) part_nodes: Vec<Option<usize>>,
    /// By node: the agent, or the reason why there is none.
    pub(crate) agents: Vec<std::result::Result<Arc<Shared>, String>>,
    pub(crate) costs: Costs,
    pub(crate) ring_slots: usize,
    /// That of a thread which has not waited yet.
    pub(crate) patience: Patience,
}

/// The agents of one memory. Dropping them ends them in order.
///
/// ```
/// use lodestone_numa::{Agents, AgentOptions, Persist};
/// use lodestone_pmem::{Memory, PmAddr, Topology};
/// let memory = Memory::anonymous(1 << 16)?;
/// let topology = Topology::of_machine().with_virtual_nodes(2)?;
/// // The one part is on node 1; this client is on node 0.
/// let agents = Agents::start(&memory, &topology, &[Some(1)], AgentOptions::default())?;
/// let mut client = agents.client_on(0)?;
/// client.write(PmAddr::new(0, 256), b"by the agent", Persist::Durable)?;
/// let mut back = [0; 12];
/// client.read(PmAddr::new(0, 256), &mut back)?;
/// assert_eq!(&back, b"by the agent");
/// assert_eq!(agents.shutdown()?.messages, 2);
/// # Ok::<(), lodestone_numa::Error>(())
/// ```
#[derive(Debug)]
pub struct Agents {
    inner: Arc<Inner>,
    threads: Vec<threads::JoinHandle<()>>,
}

impl Agents {
    /// Starts the agents of `pool`, on the nodes of its parts.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn for_pool(pool: &Pool, options: AgentOptions) -> Result<Self> {
        let nodes: Vec<Option<usize>> = pool.part_nodes().iter().map(|node| node.index).collect();
        Self::start(pool.memory(), pool.topology(), &nodes, options)
    }

    /// Starts an agent on each node of `topology` that holds a part of `memory`. `part_nodes` has the node of each part
    /// by index, or `None` if it is unknown.
    ///
    /// # Errors
    /// If an option is out of range, a node is not in the topology, or a thread cannot be started or pinned.
    pub fn start(
        memory: &Memory,
        topology: &Topology,
        part_nodes: &[Option<usize>],
        options: AgentOptions,
    ) -> Result<Self> {
        verify(memory, topology, part_nodes, &options)?;
        let node_count = topology.nodes().len();
        let found: Vec<_> = (0..node_count).map(|node| agent_of(topology, part_nodes, node, options.pin)).collect();
        let agents = found.iter().filter(|agent| agent.is_ok()).count();
        let crowded = topology.usable_cpu_count() < agents.max(2);
        let patience = Patience::new(options.spins_max, crowded);
        let inner = Arc::new(Inner {
            memory: memory.clone(),
            topology: topology.clone(),
            part_nodes: part_nodes.to_vec(),
            agents: found,
            costs: options.costs.clone(),
            ring_slots: options.ring_slots,
            patience,
        });
        let mut all = Self { inner, threads: Vec::new() };
        for node in 0..node_count {
            if let Ok(shared) = &all.inner.agents[node] {
                let thread = spawn(shared.clone(), &all.inner, &options)?;
                all.threads.push(thread);
            }
        }
        Ok(all)
    }

    /// A client for the calling thread, on the node where it runs now: pin the thread first.
    ///
    /// # Errors
    /// None at present. It could fail only if the node of the thread were not in the topology.
    pub fn client(&self) -> Result<Client> {
        self.client_on(self.inner.topology.node_of_thread())
    }

    /// A client on the node with index `node`, wherever the thread runs.
    ///
    /// # Errors
    /// If there is no such node.
    pub fn client_on(&self, node: usize) -> Result<Client> {
        if node >= self.inner.topology.nodes().len() {
            return Err(Error::Invalid {
                what: "node of a client",
                finding: format!("node {node} of {}", self.inner.topology.nodes().len()),
                hint: "see `lodestone topology` for the nodes",
            });
        }
        Ok(Client::new(self.inner.clone(), node))
    }

    /// Every node with its agent.
    #[must_use]
    pub fn report(&self) -> Vec<NodeReport> {
        let nodes = self.inner.topology.nodes().iter().enumerate();
        nodes
            .map(|(node, found)| {
                let (state, counts) = match &self.inner.agents[node] {
                    Ok(shared) => (state_of(shared), shared.counts.get()),
                    Err(reason) => (AgentState::None { reason: reason.clone() }, AgentCounts::default()),
                };
                NodeReport { node, id: found.id, parts: parts_on(&self.inner.part_nodes, node), state, counts }
            })
            .collect()
    }

    /// The counts of all agents so far.
    #[must_use]
    pub fn counts(&self) -> AgentCounts {
        let mut sum = AgentCounts::default();
        self.inner.agents.iter().flatten().for_each(|shared| sum += shared.counts.get());
        sum
    }

    /// Ends the agents after everything submitted so far is carried out, and returns their counts.
    ///
    /// # Errors
    /// If an agent died.
    pub fn shutdown(mut self) -> Result<AgentCounts> {
        self.end();
        for shared in self.inner.agents.iter().flatten() {
            if shared.life() == Life::Dead {
                return Err(Error::AgentDied { node: shared.node, cause: cause_of(shared) });
            }
        }
        Ok(self.counts())
    }

    fn end(&mut self) {
        self.inner.agents.iter().flatten().for_each(|shared| shared.stop());
        for thread in self.threads.drain(..) {
            // A panic is recorded in the agent's life and cause, and its clients have been told.
            let _ = thread.join();
        }
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        self.end();
    }
}

/// The reason why `shared` died.
pub(crate) fn cause_of(shared: &Shared) -> String {
    lock(&shared.cause).clone().unwrap_or_else(|| "its thread ended".into())
}

fn state_of(shared: &Shared) -> AgentState {
    match shared.life() {
        Life::Running => AgentState::Running,
        Life::Stopped => AgentState::Stopped,
        Life::Dead => AgentState::Died { cause: cause_of(shared) },
    }
}

fn parts_on(part_nodes: &[Option<usize>], node: usize) -> Vec<u16> {
    let on = |part: &usize| part_nodes[*part] == Some(node);
    (0..part_nodes.len()).filter(on).filter_map(|part| u16::try_from(part).ok()).collect()
}

fn verify(memory: &Memory, topology: &Topology, part_nodes: &[Option<usize>], options: &AgentOptions) -> Result<()> {
    let invalid = |what, finding: String, hint| Err(Error::Invalid { what, finding, hint });
    if part_nodes.len() != usize::from(memory.part_count()) {
        let finding = format!("{} nodes for {} parts", part_nodes.len(), memory.part_count());
        return invalid("nodes of parts", finding, "give one for each part, None where it is unknown");
    }
    if let Some(node) = part_nodes.iter().flatten().find(|node| **node >= topology.nodes().len()) {
        let finding = format!("node {node} of {}", topology.nodes().len());
        return invalid("nodes of parts", finding, "see `lodestone topology` for the nodes");
    }
    if !(1..=1024).contains(&options.ring_slots) || options.batch_max == 0 {
        let finding = format!("{} slots, batches of {}", options.ring_slots, options.batch_max);
        return invalid("ring", finding, "use 1 to 1024 slots and batches of at least 1");
    }
    Ok(())
}

/// The agent of `node`, or the reason why it has none.
fn agent_of(
    topology: &Topology,
    part_nodes: &[Option<usize>],
    node: usize,
    pin: bool,
) -> std::result::Result<Arc<Shared>, String> {
    if !part_nodes.contains(&Some(node)) {
        return Err(format!("node {} holds no part", topology.nodes()[node].id));
    }
    match topology.nodes()[node].why_unusable() {
        Some(reason) if pin => Err(reason),
        _ => Ok(Arc::new(Shared::new(node))),
    }
}

/// Starts the thread of `shared` and waits until it is pinned.
fn spawn(shared: Arc<Shared>, inner: &Arc<Inner>, options: &AgentOptions) -> Result<threads::JoinHandle<()>> {
    let (memory, topology) = (inner.memory.clone(), inner.topology.clone());
    let AgentOptions { batch_max, pin, observer, .. } = options.clone();
    let patience = inner.patience.clone();
    let (pinned, outcome) = std::sync::mpsc::channel();
    let work = move || {
        let answer = if pin { topology.pin_thread(shared.node) } else { Ok(()) };
        let is_pinned = answer.is_ok();
        // No thread waits for this any more if starting was given up.
        let _ = pinned.send(answer);
        if is_pinned {
            Agent { shared: &shared, memory: &memory, batch_max, patience, observer }.run();
        }
    };
    #[cfg(not(feature = "shuttle"))]
    let thread = {
        let failed = |e| lodestone_pmem::Error::io("(thread)", "starting an agent", "check the limit of threads", e);
        thread::Builder::new().name("lodestone-agent".into()).spawn(work).map_err(failed)?
    };
    #[cfg(feature = "shuttle")]
    let thread = threads::spawn(work);
    if pin {
        let unheard = || Error::AgentDied { node: 0, cause: "it ended before it was pinned".into() };
        outcome.recv().map_err(|_| unheard())??;
    }
    Ok(thread)
}
