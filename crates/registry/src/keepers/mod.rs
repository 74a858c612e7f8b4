//! Keepers: a registry on three or five nodes, which agree by Raft (the crate `raft`, inside our own loop).
//!
//! 1. A [`Keeper`] is a synchronous core: messages, requests and time go in, messages and answers come out. It has no
//!    clock, socket or thread, so it runs on sockets and in the simulated cluster.
//! 2. Each request that is not refused at once becomes an entry of the log, reads too. The answer is that of the state
//!    machine ([`Table`](crate::Table)) when the entry is committed. So answers are linearizable, and a keeper without
//!    a majority answers nothing.
//! 3. A vote, an entry and a table are durable before a message leaves that tells of them (`disk.rs`).
//! 4. *Leases*: a keeper counts from when it applied a grant, which is later than when its holder asked. A keeper that
//!    starts again, or takes a table from another one, counts from then. So each keeper ends a lease too late, never
//!    too early, and a change of the leader needs no rule of its own.
//!
//! A request that was proposed by a keeper that then lost its part is answered by [`Answer::Unknown`](crate::Answer):
//! it may have happened.

mod core;
mod disk;
mod frame;
mod place;
mod rules;

pub use self::core::{Keeper, KeeperCounts, KeeperOptions, KeeperOutbound, TICK_NS, Token};
pub use disk::KEEPERS_MAX;
pub(crate) use frame::sender_of;
pub use place::KeeperPool;

/// The number of a keeper: from 1 to [`KeeperId::MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeeperId(pub u64);

impl KeeperId {
    /// The largest number: answers tell the keeper that leads in two bytes.
    pub const MAX: u64 = 0xFFFF;
}

impl std::fmt::Display for KeeperId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "keeper {}", self.0)
    }
}
