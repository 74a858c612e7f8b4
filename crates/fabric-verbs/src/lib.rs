//! The fabric over RDMA verbs (paper 5, sections 2.1 and 2.2): a packet is one SEND of an unreliable datagram. To a
//! group it is one SEND to a multicast address, however many members there are. Pages of a member can be read by
//! one-sided READs over a reliable connection.
//!
//! - [`library`]: `libibverbs.so.1`, opened when it is needed. Nothing is linked and no header is read: a machine
//!   without cards builds and runs the same program.
//! - [`abi`]: the few structs and functions of it that are used, by hand. That ABI has been stable since version 1.1.
//! - [`card`]: one card with its queues, as a safe type.
//! - [`transport`]: the [`Transport`](lodestone_fabric::Transport).
//! - [`names`]: which queue another node has, by datagrams of UDP.
//! - [`reads`]: one-sided reads.
//!
//! *Unsafe code* is in `library`, and in `card`, which owns every pointer of the library from its making to its end.
//!
//! Works with cards of InfiniBand's RoCE v2, and with the kernel's `rdma_rxe` on any network interface.

#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod abi;
mod card;
mod library;
mod names;
mod reads;
mod transport;

pub use reads::{ReadRegion, RemoteReader};
pub use transport::{VerbsOptions, VerbsTransport};
