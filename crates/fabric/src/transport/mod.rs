//! Transports: how packets travel. The protocol does not know which one it is.
//!
//! | transport | a send to the group | for |
//! | --- | --- | --- |
//! | `switch` | into the queue of each port, in the caller's thread | one process |
//! | `udp` | one datagram to a multicast address | networks with multicast |
//! | `unicast` | a datagram to each member | clouds, which have no multicast |
//! | `tcp` | a piece of a stream to each member | networks that block datagrams |
//! | `verbs` (crate `fabric-verbs`) | one SEND to a multicast address | RDMA cards |
//!
//! A transport may lose, repeat, reorder and delay packets. It never waits for a receiver: a full queue or buffer loses
//! the packet, and the protocol asks for it again. All pass one set of tests (`tests/transports`).

pub mod halves;
mod routes;
mod switch;
mod tcp;
mod udp;

pub use halves::{HalvesCounts, HalvesTransport, halves_payload_bytes};
pub use routes::Peers;
pub use switch::{SwitchNetwork, SwitchPort};
pub use tcp::TcpTransport;
pub use udp::{UdpOptions, UdpTransport};

use std::time::Duration;

use crate::effect::Outgoing;
use crate::error::Result;

/// Counts of a transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransportCounts {
    /// Packets that were handed over by [`send`](Transport::send).
    pub packets: u64,
    /// Sends that they took: one for each packet to one node, and for one to the group as many as the table says.
    pub sends: u64,
    /// Bytes of these sends.
    pub bytes: u64,
    /// Packets received.
    pub received: u64,
    /// Packets that could not be sent or queued, and are lost.
    pub lost: u64,
}

/// Carries packets for one node. For one thread.
pub trait Transport {
    /// Sends packets. Those that cannot be sent at once are lost.
    ///
    /// # Errors
    /// A socket that is broken.
    fn send(&mut self, packets: &[Outgoing]) -> Result<()>;

    /// Waits up to `wait` for a packet, and passes all that are there, up to `most`, to `receive`. Returns how many.
    ///
    /// # Errors
    /// A socket that is broken; an error of `receive`.
    fn poll(&mut self, wait: Duration, most: usize, receive: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<usize>;

    /// Its counts.
    fn counts(&self) -> TransportCounts;

    /// Its name, which is told at the start.
    fn name(&self) -> &'static str;
}

impl<T: Transport + ?Sized> Transport for Box<T> {
    fn send(&mut self, packets: &[Outgoing]) -> Result<()> {
        (**self).send(packets)
    }

    fn poll(&mut self, wait: Duration, most: usize, receive: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<usize> {
        (**self).poll(wait, most, receive)
    }

    fn counts(&self) -> TransportCounts {
        (**self).counts()
    }

    fn name(&self) -> &'static str {
        (**self).name()
    }
}
