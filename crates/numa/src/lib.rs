//! I/O agents: one thread per NUMA node that reads and writes that node's persistent memory on behalf of threads of
//! other nodes (paper 4, section 2.1.3).
//!
//! A remote access to persistent memory costs several times a local one (paper 4 estimates ten times for reads, twice
//! for writes). An agent turns it into a message, which is a copy between nodes in DRAM, and a local access.
//!
//! - [`Agents`] starts the agents of a pool, stops them and sums up what they did.
//! - [`Client`] belongs to one thread: [`read`](Client::read), [`write`](Client::write), their vectored forms, and
//!   tickets for requests in flight. [`Access`] says whether it goes to the agent, goes itself, or chooses by
//!   [`Costs`].
//! - [`paper`] is the cost model of the paper, [`Costs`] the same questions answered by size.
//!
//! **What an answer means.** Requests of one client to one agent are carried out in the order in which they were
//! submitted. A write is acknowledged when what was asked ([`Persist`]) holds: the agent's own fence covers the agent's
//! own flushes, and the client's later stores come after the acknowledgement, hence after that fence. So a write
//! acknowledged as
//! [`Fenced`](Persist::Fenced) orders like flush and fence of the client's own thread. The reverse is the client's
//! duty: its own flushes are covered by its own fence alone, so it fences before it asks an agent to store something
//! that depends on them.
//!
//! **What it costs.** One ring per client and agent, single producer and single consumer, whose slots carry request and
//! answer: no read-modify-write on a shared line per message, one full barrier per submission. See the `ring` module.

mod agent;
mod agents;
mod client;
mod cost;
mod counts;
mod error;
pub mod experiment;
pub mod paper;
mod parker;
pub mod profile;
mod ring;

pub use agent::Request;
pub use agents::{AgentOptions, AgentState, Agents, NodeReport, Observer};
pub use client::{Access, Client, Ticket};
pub use cost::{Costs, Curve};
pub use counts::{AgentCounts, ClientCounts};
pub use error::{Error, Result};
pub use ring::{INLINE_BYTES, MESSAGE_BYTES_MAX, Operation, Persist};
