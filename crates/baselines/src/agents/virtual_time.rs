//! The experiment as a deterministic simulation: clients on node 0, one agent on each other node, each with its own
//! clock.
//!
//! A request by message:
//!
//! 1. The client publishes it at its time `t`. The stores to its own DRAM take no time here.
//! 2. The agent starts at `t`, or when it has finished its earlier work: requests queue. It fetches request and payload
//!    from the client's node, accesses its own memory, and fences if it wrote.
//! 3. The client continues when the agent has answered, and fetches the answer (with the bytes read) from the agent's
//!    line.
//!
//! Not simulated: sleeping and waking, batches of several clients under one fence, and a second agent on a node.

use std::sync::Arc;

use lodestone_media::{Model, SimulatedThread, TimeMode};
use lodestone_pmem::{Domain, LINE_BYTES, Memory, PmAddr, Result, Topology};
use serde::Serialize;

use super::profile::transfer_ns;
use super::{AccessKind, Places, Setup, TABLE_BYTES, Way, Workload, remote_part};

/// Bytes of a request or answer without payload.
const LINE: u64 = 64;
/// Simulated agents are numbered from here, by node.
const FIRST_AGENT: u32 = 1 << 16;

/// The simulated machine.
#[derive(Debug)]
struct Machine {
    setup: Setup,
    model: Arc<Model>,
    memory: Memory,
}

impl Machine {
    fn new(setup: &Setup) -> Result<Self> {
        let topology = Topology::of_machine().with_virtual_nodes(setup.nodes)?;
        let nodes: Vec<usize> = (0..setup.nodes).collect();
        let model = Model::new(setup.medium.clone(), TimeMode::Virtual, &topology, &nodes);
        let memory = Memory::anonymous_with(&vec![TABLE_BYTES; setup.nodes], Domain::DaxEmulated, Some(model.clone()))?;
        Ok(Self { setup: setup.clone(), model, memory })
    }

    fn transfer(&self, bytes: u64) {
        self.model.charge_ns(transfer_ns(&self.setup.dram, bytes) as u64);
    }

    /// The access itself, by the current thread.
    fn access(&self, kind: AccessKind, at: PmAddr, buffer: &mut [u8]) {
        match kind {
            AccessKind::Read => self.memory.read(at, buffer),
            AccessKind::Write => write(&self.memory, at, buffer),
        }
    }

    fn fence_if(&self, kind: AccessKind) {
        if kind == AccessKind::Write {
            // The experiment waits for every write, because that wait is measured.
            self.memory.fence();
        }
    }

    /// Sends accesses to the agent of their part, as one request with one fence at the end. Returns the time of the
    /// answer.
    fn send(&self, kind: AccessKind, places: &[PmAddr], buffer: &mut [u8]) -> u64 {
        let node = usize::from(places[0].part());
        let sent_ns = self.model.thread_ns();
        let payload = if kind == AccessKind::Write { (places.len() * buffer.len()) as u64 } else { 0 };
        self.model.as_thread(SimulatedThread(FIRST_AGENT + node as u32), node, || {
            self.model.wait_until_ns(sent_ns);
            self.transfer(LINE + payload);
            places.iter().for_each(|at| self.access(kind, *at, buffer));
            self.fence_if(kind);
            self.model.thread_ns()
        })
    }

    /// Waits for an answer that arrives at `done_ns`, and fetches it.
    fn receive(&self, kind: AccessKind, done_ns: u64, bytes: usize) {
        self.model.wait_until_ns(done_ns);
        self.transfer(LINE + if kind == AccessKind::Read { bytes as u64 } else { 0 });
    }

    /// One remote operation by the current simulated client.
    fn operation(&self, kind: AccessKind, way: Way, at: PmAddr, buffer: &mut [u8]) {
        if way == Way::Direct {
            self.access(kind, at, buffer);
            self.fence_if(kind);
        } else {
            let done_ns = self.send(kind, &[at], buffer);
            self.receive(kind, done_ns, buffer.len());
        }
    }

    /// One transaction: the share of its own node's table and that of the other's.
    fn transaction(&self, kind: AccessKind, way: Way, own: &[PmAddr], other: &[PmAddr], buffer: &mut [u8]) {
        if way != Way::Overlapped {
            own.iter().for_each(|at| self.operation(kind, Way::Direct, *at, buffer));
            other.iter().for_each(|at| self.operation(kind, way, *at, buffer));
            return;
        }
        let done_ns = self.send(kind, other, buffer);
        own.iter().for_each(|at| self.access(kind, *at, buffer));
        self.fence_if(kind);
        self.receive(kind, done_ns, other.len() * buffer.len());
    }
}

/// Writes as the agents of `lodestone-numa` do: whole lines go around the cache. The caller fences.
fn write(memory: &Memory, at: PmAddr, bytes: &[u8]) {
    if at.offset().is_multiple_of(LINE_BYTES) && bytes.len() as u64 >= LINE_BYTES {
        memory.stream(at, bytes);
    } else {
        memory.write_back(at, bytes);
    }
}

/// Mean nanoseconds of one remote operation by a lone client.
///
/// # Errors
/// If memory runs out, or there are not 2 to 16 nodes.
pub fn operation_ns(setup: &Setup, kind: AccessKind, way: Way, bytes: u64) -> Result<f64> {
    let machine = Machine::new(setup)?;
    let mut places = Places::new(setup.seed, bytes);
    let mut buffer = vec![0x5A; bytes as usize];
    let elapsed_ns = machine.model.as_thread(SimulatedThread(0), 0, || {
        for index in 0..setup.operations {
            let at = places.next(remote_part(index, setup.nodes));
            machine.operation(kind, way, at, &mut buffer);
        }
        machine.model.thread_ns()
    });
    Ok(elapsed_ns as f64 / setup.operations as f64)
}

/// Mean nanoseconds of one transaction by a lone client; `bytes` is the size of each access.
///
/// # Errors
/// As [`operation_ns`].
pub fn transaction_ns(setup: &Setup, workload: Workload, way: Way, bytes: u64) -> Result<f64> {
    let machine = Machine::new(setup)?;
    let mut places = Places::new(setup.seed, bytes);
    let mut buffer = vec![0x5A; bytes as usize];
    let elapsed_ns = machine.model.as_thread(SimulatedThread(0), 0, || {
        for index in 0..setup.operations {
            let kind = workload.kind(index);
            // A write goes to data and log, a read to data.
            let count = if kind == AccessKind::Write { 2 } else { 1 };
            let other = remote_part(index / 2, setup.nodes);
            let mut of = |part: u16| -> Vec<PmAddr> { (0..count).map(|_| places.next(part)).collect() };
            let (own, others) = (of(0), of(other));
            machine.transaction(kind, way, &own, &others, &mut buffer);
        }
        machine.model.thread_ns()
    });
    Ok(elapsed_ns as f64 / setup.operations as f64)
}

/// The joint throughput of several clients on the remote memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Load {
    /// Clients, all on node 0.
    pub clients: usize,
    /// Operations per second of all of them.
    pub operations_per_second: f64,
}

/// Throughput of `clients` clients on node 0 that keep the other nodes' memory busy.
///
/// # Errors
/// As [`operation_ns`].
pub fn load(setup: &Setup, kind: AccessKind, way: Way, bytes: u64, clients: usize) -> Result<Load> {
    let machine = Machine::new(setup)?;
    let mut places = Places::new(setup.seed, bytes);
    let mut buffer = vec![0x5A; bytes as usize];
    // Long enough for the slowest way to do the requested operations.
    let duration_ns = setup.operations * 1000;
    let mut index = 0;
    let runs = machine.model.simulate(&vec![0; clients], duration_ns, |_| {
        let at = places.next(remote_part(index, setup.nodes));
        index += 1;
        machine.operation(kind, way, at, &mut buffer);
    });
    let per_second = runs.iter().map(|run| run.steps as f64 / (run.elapsed_ns.max(1) as f64 / 1e9)).sum();
    Ok(Load { clients, operations_per_second: per_second })
}

#[cfg(test)]
mod tests {
    use super::super::profile::{Basis, costs};
    use super::*;
    use lodestone_media::MediaProfile;

    fn setup(nodes: usize) -> Setup {
        let [medium, dram] = ["optane", "dram"].map(|name| MediaProfile::builtin(name).expect("built in"));
        Setup { medium, dram, nodes, operations: 500, seed: 7 }
    }

    #[test]
    fn a_simulation_gives_the_same_in_every_run() -> Result<()> {
        let setup = setup(2);
        for way in [Way::Direct, Way::Agent, Way::Overlapped] {
            let run = || transaction_ns(&setup, Workload::Mixed, way, 256);
            assert_eq!(run()?, run()?, "{way:?}");
        }
        Ok(())
    }

    #[test]
    fn agents_save_most_of_a_remote_read_and_overlapping_saves_more() -> Result<()> {
        for nodes in [2, 4] {
            let setup = setup(nodes);
            let read = |way| transaction_ns(&setup, Workload::PureRead, way, 256);
            let (direct, agent, overlapped) = (read(Way::Direct)?, read(Way::Agent)?, read(Way::Overlapped)?);
            // 1 - (241 + 241 + message) / (241 + 2410): the paper's order of magnitude.
            assert!(agent < 0.45 * direct, "{nodes} nodes: {direct} ns direct, {agent} ns with agents");
            assert!(overlapped < agent, "{overlapped} ns overlapped, {agent} ns in turn");
        }
        Ok(())
    }

    /// `docs/DEVIATIONS.md`: the paper's agent is always idle.
    #[test]
    fn one_agent_is_the_bottleneck_of_many_clients() -> Result<()> {
        let setup = setup(2);
        let of = |kind, way, clients| load(&setup, kind, way, 256, clients).map(|load| load.operations_per_second);
        // Clients with direct access share the medium's bandwidth. An agent does one thing after the other.
        let gain = |kind, way| Ok::<_, lodestone_pmem::Error>(of(kind, way, 8)? / of(kind, way, 1)?);
        let (direct, agent) = (gain(AccessKind::Read, Way::Direct)?, gain(AccessKind::Read, Way::Agent)?);
        assert!(direct > 4.0 && agent < 2.0, "eight readers: {direct} times one of them, {agent} through the agent");
        let (direct, agent) = (of(AccessKind::Write, Way::Direct, 8)?, of(AccessKind::Write, Way::Agent, 8)?);
        assert!(agent < direct, "eight writers: {direct} per second themselves, {agent} through the agent");
        Ok(())
    }

    /// `docs/DEVIATIONS.md`: the paper's cost of a write is the medium's time, not the thread's.
    #[test]
    fn a_lone_writer_gains_only_by_overlapping() -> Result<()> {
        let setup = setup(2);
        let write = |way| transaction_ns(&setup, Workload::PureWrite, way, 256);
        let (direct, agent, overlapped) = (write(Way::Direct)?, write(Way::Agent)?, write(Way::Overlapped)?);
        assert!(agent > direct, "{direct} ns direct, {agent} ns by agents in turn: the paper expects 32 % less");
        assert!(overlapped < 0.68 * direct, "{overlapped} ns overlapped");
        // Clients that choose by the latency of the profile do not ask the agent.
        let alone = costs(&setup.medium, &setup.dram, Basis::Latency);
        assert!(!alone.write_by_agent(256) && alone.read_by_agent(256));
        Ok(())
    }
}
