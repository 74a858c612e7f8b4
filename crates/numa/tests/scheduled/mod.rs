//! The scenarios of the schedules: clients and an agent over rings of two slots. They do not spin, so that every
//! message may find the other side asleep.

use std::sync::Arc;

use lodestone_crash::{Failure, Outcome, Structure};
use lodestone_numa::{Access, AgentOptions, Agents, Client, Error, Persist};
use lodestone_pmem::sync::{Mutex, lock, thread};
use lodestone_pmem::{Memory, PmAddr, Pool, Topology};

fn options() -> AgentOptions {
    let mut options = AgentOptions::default();
    (options.ring_slots, options.batch_max) = (2, 2);
    (options.spins_max, options.pin) = (Some(1), false);
    options
}

fn two_nodes() -> Topology {
    Topology::of_machine().with_virtual_nodes(2).expect("two nodes")
}

fn by_agent(agents: &Agents) -> Client {
    let mut client = agents.client_on(0).expect("a node");
    client.set_access(Access::Agent);
    client
}

/// Two clients write through a full ring and read back; then the agent is stopped.
#[allow(dead_code, reason = "each test program uses its own part of this module")]
pub fn clients_and_an_agent() {
    let memory = Memory::anonymous(1 << 16).expect("memory");
    let agents = Arc::new(Agents::start(&memory, &two_nodes(), &[Some(1)], options()).expect("agents"));
    let clients: Vec<_> = (0..2_u64)
        .map(|number| {
            let agents = agents.clone();
            thread::spawn(move || {
                let mut client = by_agent(&agents);
                let at = |index: u64| PmAddr::new(0, 4096 + 8 * (number * 4 + index));
                let tickets: Vec<_> = (0..3)
                    .map(|index| {
                        client.submit_write(at(index), &(10 * number + index + 1).to_le_bytes(), Persist::Fenced)
                    })
                    .collect::<Result<_, _>>()
                    .expect("the agent lives");
                for index in 0..3 {
                    let mut word = [0; 8];
                    client.read(at(index), &mut word).expect("the agent lives");
                    assert_eq!(u64::from_le_bytes(word), 10 * number + index + 1, "a read after a write sees it");
                }
                tickets.into_iter().for_each(|ticket| client.wait(ticket).expect("the agent lives"));
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().expect("no panic"));
    let agents = Arc::into_inner(agents).expect("the clients are gone");
    assert_eq!(agents.shutdown().expect("no agent died").messages, 12);
}

/// A client submits while the agent is stopped. Acknowledged requests took effect, refused ones did not, requests
/// submitted before the stop are acknowledged, and no thread waits for ever.
#[allow(dead_code, reason = "each test program uses its own part of this module")]
pub fn a_stop_in_the_middle() {
    let memory = Memory::anonymous(1 << 16).expect("memory");
    let agents = Agents::start(&memory, &two_nodes(), &[Some(1)], options()).expect("agents");
    let mut client = by_agent(&agents);
    let mut early = by_agent(&agents);
    let ticket = early.submit_write(PmAddr::new(0, 8192), &[9; 8], Persist::Durable).expect("room");
    let seen = memory.clone();
    let thread = thread::spawn(move || {
        for index in 0..4 {
            let at = PmAddr::new(0, 4096 + 8 * index);
            match client.write(at, &(index + 1).to_le_bytes(), Persist::Fenced) {
                Ok(()) => assert_eq!(seen.load(at), index + 1, "acknowledged, and not there"),
                Err(Error::Stopped { node: 1 }) => assert_eq!(seen.load(at), 0, "refused, and there"),
                Err(other) => panic!("{other}"),
            }
        }
    });
    agents.shutdown().expect("no agent died");
    early.wait(ticket).expect("submitted before the stop");
    thread.join().expect("no panic");
}

/// A record written by the client itself and a mark by the agent: the mark says that the record counts.
pub struct Marked {
    /// Whether the client fences its record before it asks for the mark, as it must.
    pub fences: bool,
}

/// The pool, and the agents once an operation needs them: recovery reads without agents.
pub struct Handle {
    pool: Pool,
    agents: Mutex<Option<Arc<Agents>>>,
}

impl Handle {
    fn record(&self, value: u64) -> PmAddr {
        self.pool.heap_area(0).0.plus(128 * value)
    }

    fn mark(&self, value: u64) -> PmAddr {
        self.record(value).plus(64)
    }

    fn client(&self) -> Client {
        let mut agents = lock(&self.agents);
        let agents = agents.get_or_insert_with(|| {
            let started = Agents::start(self.pool.memory(), &two_nodes(), &[Some(1)], options());
            Arc::new(started.expect("agents"))
        });
        by_agent(agents)
    }
}

const VALUES_MAX: u64 = 4;

impl Structure for Marked {
    /// Writes this value's record, then its mark.
    type Op = u64;
    type Handle = Handle;
    /// The values that are marked.
    type View = Vec<u64>;

    fn name(&self) -> String {
        if self.fences { "agent-mark".into() } else { "agent-mark-unfenced".into() }
    }

    fn script(&self) -> Vec<u64> {
        vec![1, 2, 3]
    }

    fn threads(&self) -> Vec<Vec<u64>> {
        vec![vec![1, 2], vec![3]]
    }

    fn open(&self, pool: &Pool) -> Outcome<Handle> {
        Ok(Handle { pool: pool.clone(), agents: Mutex::new(None) })
    }

    fn apply(&self, handle: &Handle, value: &u64) -> Outcome {
        let memory = handle.pool.memory();
        memory.store(handle.record(*value), *value);
        memory.flush(handle.record(*value), 8);
        if self.fences {
            // The agent's fence covers only the agent's flushes, and the mark may not overtake this record.
            memory.fence();
        }
        let written = handle.client().write(handle.mark(*value), &value.to_le_bytes(), Persist::Fenced);
        written.map_err(|error| Failure::new(error.to_string()))
    }

    fn view(&self, handle: &Handle) -> Outcome<Vec<u64>> {
        let memory = handle.pool.memory();
        let marked: Vec<u64> = (1..VALUES_MAX).filter(|value| memory.load(handle.mark(*value)) == *value).collect();
        for value in &marked {
            let found = memory.load(handle.record(*value));
            Failure::unless(found == *value, || format!("value {value} is marked, and its record holds {found}"))?;
        }
        Ok(marked)
    }

    fn model(&self, written: &[u64]) -> Vec<u64> {
        let mut sorted = written.to_vec();
        sorted.sort_unstable();
        sorted
    }

    fn more(&self) -> Vec<u64> {
        Vec::new()
    }
}
