//! I/O agents: one thread per NUMA node that reads and writes that node's persistent memory on behalf of threads of
//! other nodes (paper 4, section 2.1.3).
//!
//! A remote access to persistent memory costs several times a local one. Paper 4 estimates ten times for reads and
//! twice for writes. An agent turns it into a message, which is a copy between nodes in DRAM, and a local access.
//!
//! - [`Agents`] starts the agents of a pool, stops them and sums up their counts.
//! - [`Client`] belongs to one thread. It has [`read`](Client::read), [`write`](Client::write), their vectored forms,
//!   and tickets for requests in flight. [`Access`] says whether it uses the agent, accesses the memory itself, or
//!   chooses by [`Costs`].
//! - [`Costs`] are plain figures by size. The default has the ratios that the paper estimates.
//!
//! **The meaning of an answer.** Requests of one client to one agent are carried out in the order of submission. A
//! write is acknowledged when the requested guarantee ([`Persist`]) holds. The agent's own fence covers the agent's own
//! flushes. The client's later stores come after the acknowledgement, and hence after that fence. So a write
//! acknowledged as [`Fenced`](Persist::Fenced) orders like flush and fence of the client's own thread. The reverse is
//! the client's duty: only its own fence covers its own flushes. So the client must fence before it asks an agent to
//! store data that depends on them.
//!
//! **Costs.** Each pair of client and agent has one ring, with a single producer and a single consumer. Its slots hold
//! request and answer. A message needs no read-modify-write on a shared line, and a submission needs one full barrier.
//! See the `ring` module.
//!
//! Files: `agents`, `agent` (the threads of the nodes), `client`, `cost` (agent or direct access), `ring` (messages),
//! `parker` (sleep), `patience` (how long to spin before), `counts`.

#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod agent;
mod agents;
mod client;
mod cost;
mod counts;
mod error;
mod parker;
mod patience;
mod ring;

pub use agent::Request;
pub use agents::{AgentOptions, AgentState, Agents, NodeReport, Observer};
pub use client::{Access, Client, Completion};
pub use cost::{Costs, Curve};
pub use counts::{AgentCounts, ClientCounts};
pub use error::{Error, Result};
pub use ring::{INLINE_BYTES, MESSAGE_BYTES_MAX, Operation, Persist};
