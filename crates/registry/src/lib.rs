//! Registries of several nodes: who sends in a volume, who is a member, and who holds the lease.
//!
//! The trait [`Registry`] and the registry of one process are in `lodestone-fabric`, which asks them. Data never passes
//! through a registry: a slow one delays takeovers and changes of members, never writes.
//!
//! | registry | for | state |
//! | --- | --- | --- |
//! | [`LocalRegistry`] | one process | in its pool |
//! | [`Keeper`]s | three or five processes, which need no data | in a small pool of each, agreed on by Raft |
//! | `EtcdRegistry` (feature `etcd`) | those who run an etcd | there |
//!
//! [`RegistryThread`] keeps a sender from ever waiting for one.
//!
//! One suite runs on all of them (`tests/keepers/suite.rs`). [`KeeperServer`] puts a keeper on a socket,
//! [`KeeperClient`] is a registry over such sockets. `control` (feature `tls`) secures them.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

#[cfg(feature = "tls")]
pub mod control;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
mod keepers;
mod net;
mod table;
mod thread;
mod wire;

pub use error::{Error, Result};
#[cfg(feature = "etcd")]
pub use etcd::EtcdRegistry;
pub use keepers::{
    KEEPERS_MAX, Keeper, KeeperCounts, KeeperId, KeeperOptions, KeeperOutbound, KeeperPool, TICK_NS, Token,
};
pub use lodestone_fabric::{LEASE_NS, Lease, LocalRegistry, Registry, Swap, VolumeState};
pub use net::{
    Channel, ChannelEnd, KeeperClient, KeeperClientOptions, KeeperClock, KeeperServer, KeeperServerOptions,
    KeeperStatus, Peer, Security, ServerCounts,
};
pub use table::{
    Answer, COMMAND_BYTES_MAX, MACHINES_MAX, REPLICA_OF_MACHINE, Request, SENDER_OF_MACHINE, TABLE_BYTES_MAX, Table,
    VolumeId, is_same_machine,
};
pub use thread::RegistryThread;
