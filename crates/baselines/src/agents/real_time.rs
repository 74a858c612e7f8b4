//! The experiment with real threads: a client pinned to node 0, real agents on the other nodes, memory whose model
//! spins.
//!
//! The figures hold for this machine. The model charges the medium's time, and the ring has its real cost between two
//! processors here. With fewer processors than nodes, agents and client share processors. The figures then mean little,
//! and come with a [`Machine::warning`].

use std::sync::Arc;
use std::time::Instant;

use lodestone_media::{Model, TimeMode};
use lodestone_numa::{Access, AgentCounts, AgentOptions, Agents, Client, Completion, Persist, Result};
use lodestone_pmem::{Domain, Memory, PmAddr, Topology};

use super::{AccessKind, Places, Setup, TABLE_BYTES, Way, Workload, remote_part};

/// Real agents over memory with a spinning model, or without a model.
#[derive(Debug)]
pub struct Machine {
    setup: Setup,
    topology: Topology,
    agents: Agents,
    client: Client,
}

impl Machine {
    /// Starts the agents and pins the calling thread to node 0.
    ///
    /// # Errors
    /// If memory runs out, or threads cannot be started or pinned.
    pub fn start(setup: &Setup, emulate: bool) -> Result<Self> {
        let topology = Topology::of_machine().with_virtual_nodes(setup.nodes)?;
        let nodes: Vec<usize> = (0..setup.nodes).collect();
        topology.pin_thread(0)?;
        let medium = emulate.then(|| Model::new(setup.medium.clone(), TimeMode::Spinning, &topology, &nodes) as Arc<_>);
        let memory = Memory::anonymous_with(&vec![TABLE_BYTES; setup.nodes], Domain::DaxEmulated, medium)?;
        touch(&memory);
        let on: Vec<Option<usize>> = nodes.iter().copied().map(Some).collect();
        let agents = Agents::start(&memory, &topology, &on, AgentOptions::default())?;
        let client = agents.client_on(0)?;
        Ok(Self { setup: setup.clone(), topology, agents, client })
    }

    /// The reason why the figures mean little, if there is one.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let (cpus, wanted) = (self.topology.usable_cpu_count(), self.setup.nodes);
        (cpus < wanted).then(|| {
            format!("{wanted} busy threads share {cpus} processors: times of agents are mostly times of the scheduler")
        })
    }

    /// Median nanoseconds of one remote operation.
    ///
    /// # Errors
    /// If an agent dies.
    pub fn operation_ns(&mut self, kind: AccessKind, way: Way, bytes: u64) -> Result<f64> {
        let mut places = Places::new(self.setup.seed, bytes);
        let mut buffer = vec![0x5A; bytes as usize];
        self.client.set_access(if way == Way::Direct { Access::Direct } else { Access::Agent });
        let nodes = self.setup.nodes;
        let client = &mut self.client;
        median_ns(self.setup.operations, |index| {
            let at = places.next(remote_part(index, nodes));
            match kind {
                AccessKind::Read => client.read(at, &mut buffer),
                AccessKind::Write => client.write(at, &buffer, Persist::Fenced),
            }
        })
    }

    /// Median nanoseconds of one transaction. For the mixed workload: of one that reads and one that writes, halved.
    ///
    /// # Errors
    /// If an agent dies.
    pub fn transaction_ns(&mut self, workload: Workload, way: Way, bytes: u64) -> Result<f64> {
        let mut places = Places::new(self.setup.seed, bytes);
        let mut buffer = vec![0x5A; bytes as usize];
        self.client.set_access(if way == Way::Direct { Access::Direct } else { Access::Agent });
        let nodes = self.setup.nodes;
        let client = &mut self.client;
        let pair = median_ns(self.setup.operations.div_ceil(2), |index| {
            (2 * index..2 * index + 2).try_for_each(|number| {
                let kind = workload.kind(number);
                let other = remote_part(index, nodes);
                transaction(client, kind, way, other, &mut places, &mut buffer)
            })
        })?;
        Ok(pair / 2.0)
    }

    /// Ends the agents and returns their counts.
    ///
    /// # Errors
    /// If an agent died.
    pub fn stop(self) -> Result<AgentCounts> {
        drop(self.client);
        let counts = self.agents.shutdown();
        self.topology.unpin_thread()?;
        counts
    }
}

/// First use of every page, so that no figure contains page faults.
fn touch(memory: &Memory) {
    for part in 0..memory.part_count() {
        (0..TABLE_BYTES).step_by(4096).for_each(|offset| memory.store(PmAddr::new(part, offset), 0));
    }
}

fn transaction(
    client: &mut Client,
    kind: AccessKind,
    way: Way,
    other: u16,
    places: &mut Places,
    buffer: &mut [u8],
) -> Result<()> {
    let (own, others) = ([places.next(0), places.next(0)], [places.next(other), places.next(other)]);
    match (kind, way) {
        (AccessKind::Read, Way::Overlapped) => {
            let ticket = client.submit_read(others[0], buffer.len())?;
            client.read(own[0], buffer)?;
            client.wait_read(ticket, buffer)
        }
        (AccessKind::Read, _) => client.read(own[0], buffer).and_then(|()| client.read(others[0], buffer)),
        (AccessKind::Write, Way::Overlapped) => {
            let first = client.submit_write(others[0], buffer, Persist::Flushed)?;
            let second: Completion = client.submit_write(others[1], buffer, Persist::Fenced)?;
            client.write_many(&[(own[0], &*buffer), (own[1], &*buffer)], Persist::Fenced)?;
            client.wait(first).and_then(|()| client.wait(second))
        }
        (AccessKind::Write, _) => {
            own.iter().chain(&others).try_for_each(|at| client.write(*at, buffer, Persist::Fenced))
        }
    }
}

/// Median of the times of single calls, because other work on the machine would spoil the mean.
fn median_ns(count: u64, mut call: impl FnMut(u64) -> Result<()>) -> Result<f64> {
    let mut times = Vec::with_capacity(count as usize);
    for index in 0..count {
        let started = Instant::now();
        call(index)?;
        times.push(started.elapsed().as_nanos() as u64);
    }
    times.sort_unstable();
    Ok(times.get(times.len() / 2).copied().unwrap_or(0) as f64)
}
