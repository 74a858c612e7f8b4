//! Datagrams: one to a multicast address for a whole group, or one to each member.
//!
//! A node has a socket of its own for packets to it alone, and one that is bound to the group's address. Both are read
//! without waiting until they are empty; the wait is for the two at once. Buffers of the kernel are asked to have 8
//! MiB; a packet that finds them full is lost, and credits keep that rare.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use lodestone_width::to_u64;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};

use super::routes::{Peers, Routes};
use super::{Transport, TransportCounts};
use crate::effect::{Outgoing, Target};
use crate::error::{Error, Result};
use crate::ids::{GroupId, NodeId};
use crate::packet::PACKET_BYTES_MAX;

const BUFFER_BYTES: usize = 8 << 20;

/// How a node sends datagrams.
#[derive(Clone, Debug)]
pub struct UdpOptions {
    /// The address to bind, and the interface for multicast.
    pub listen: SocketAddrV4,
    /// The address of the group; `None`: a datagram to each member (`unicast`).
    pub group: Option<SocketAddrV4>,
    /// Whether this node receives what is sent to the group.
    pub is_member: bool,
}

/// Datagrams of one node.
#[derive(Debug)]
pub struct UdpTransport {
    own: UdpSocket,
    /// Sockets of the groups that it is a member of.
    shared: Vec<UdpSocket>,
    group: Option<SocketAddrV4>,
    /// Addresses of groups that have one of their own.
    groups: BTreeMap<GroupId, SocketAddrV4>,
    interface: Ipv4Addr,
    routes: Routes,
    node: NodeId,
    buffer: Vec<u8>,
    counts: TransportCounts,
}

fn failed(doing: &str, source: std::io::Error) -> Error {
    Error::Network {
        doing: doing.to_owned(),
        hint: "check address and port, and that the interface allows multicast; `unicast` needs none",
        source,
    }
}

impl UdpTransport {
    /// Binds the sockets of `node`. [`connect`](Self::connect) tells it the others.
    ///
    /// # Errors
    /// [`Error::Network`].
    pub fn bind(node: NodeId, options: &UdpOptions) -> Result<Self> {
        let own = UdpSocket::bind(options.listen).map_err(|e| failed("binding the node's address", e))?;
        own.set_nonblocking(true).map_err(|e| failed("setting up the socket", e))?;
        let interface = *options.listen.ip();
        let setup = |e: rustix::io::Errno| failed("setting up multicast", e.into());
        enlarge_buffer(&own).map_err(setup)?;
        if options.group.is_some() {
            sockopt::set_ip_multicast_if(&own, &interface).map_err(setup)?;
            own.set_multicast_loop_v4(true).map_err(|e| failed("setting up multicast", e))?;
        }
        let shared = match options.group.filter(|_| options.is_member) {
            Some(group) => vec![shared_socket(group, interface)?],
            None => Vec::new(),
        };
        Ok(Self {
            own,
            shared,
            group: options.group,
            groups: BTreeMap::new(),
            interface,
            routes: Routes::default(),
            node,
            buffer: vec![0; PACKET_BYTES_MAX],
            counts: TransportCounts::default(),
        })
    }

    /// The address of this node.
    ///
    /// # Errors
    /// [`Error::Network`].
    pub fn address(&self) -> Result<SocketAddr> {
        self.own.local_addr().map_err(|e| failed("reading the node's address", e))
    }

    /// The addresses of all nodes, and which of them are members.
    pub fn connect(&mut self, peers: Peers, members: Vec<NodeId>) {
        (self.routes.peers, self.routes.members) = (peers, members);
    }

    /// One of several groups: its own address for multicast, if it has one, and its members. A member hears it then.
    ///
    /// # Errors
    /// [`Error::Network`].
    pub fn connect_group(&mut self, group: GroupId, address: Option<SocketAddrV4>, members: Vec<NodeId>) -> Result<()> {
        if let Some(address) = address {
            if members.contains(&self.node) && self.groups.get(&group) != Some(&address) {
                self.shared.push(shared_socket(address, self.interface)?);
            }
            self.groups.insert(group, address);
        }
        self.routes.groups.insert(group, members);
        Ok(())
    }

    /// The address for multicast that a packet goes to.
    fn multicast(&self, outgoing: &Outgoing) -> Option<SocketAddrV4> {
        outgoing.group().and_then(|group| self.groups.get(&group).copied()).or(self.group)
    }

    fn send_one(&mut self, bytes: &[u8], address: SocketAddr) -> Result<()> {
        self.counts.sends += 1;
        self.counts.bytes += to_u64(bytes.len());
        match self.own.send_to(bytes, address) {
            Ok(_) => Ok(()),
            // A full buffer, or a node that is not there: the packet is lost.
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) => {
                self.counts.lost += 1;
                Ok(())
            }
            Err(e) => Err(failed("sending a datagram", e)),
        }
    }
}

/// 8 MiB with the right to that, otherwise what the machine allows (`net.core.rmem_max`).
fn enlarge_buffer(socket: impl AsFd) -> rustix::io::Result<()> {
    match sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES) {
        Ok(()) => Ok(()),
        Err(_) => sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES),
    }
}

/// A socket that several nodes of a machine bind to the group's address.
fn shared_socket(group: SocketAddrV4, interface: Ipv4Addr) -> Result<UdpSocket> {
    let setup = |e: rustix::io::Errno| failed("binding the group's address", e.into());
    let shared = socket(AddressFamily::INET, SocketType::DGRAM, None).map_err(setup)?;
    sockopt::set_socket_reuseaddr(&shared, true).map_err(setup)?;
    enlarge_buffer(&shared).map_err(setup)?;
    bind(&shared, &SocketAddr::V4(group)).map_err(setup)?;
    let shared = UdpSocket::from(shared);
    shared.join_multicast_v4(group.ip(), &interface).map_err(|e| failed("joining the group", e))?;
    shared.set_nonblocking(true).map_err(|e| failed("setting up the socket", e))?;
    Ok(shared)
}

impl Transport for UdpTransport {
    fn send(&mut self, packets: &[Outgoing]) -> Result<()> {
        for outgoing in packets {
            self.counts.packets += 1;
            let multicast = self.multicast(outgoing).filter(|_| outgoing.target == Target::Group);
            if let Some(address) = multicast {
                self.send_one(&outgoing.bytes, SocketAddr::V4(address))?;
                continue;
            }
            for node in self.routes.of(outgoing, self.node) {
                match self.routes.peers.get(&node).copied() {
                    Some(address) => self.send_one(&outgoing.bytes, address)?,
                    None => self.counts.lost += 1,
                }
            }
        }
        Ok(())
    }

    fn poll(&mut self, wait: Duration, most: usize, receive: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<usize> {
        if !wait.is_zero() {
            let mut waits = vec![PollFd::new(&self.own, PollFlags::IN)];
            waits.extend(self.shared.iter().map(|shared| PollFd::new(shared, PollFlags::IN)));
            let timeout = Timespec::try_from(wait).ok();
            match poll(&mut waits, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(failed("waiting for a datagram", e.into())),
            }
        }
        let mut count = 0;
        for source in self.shared.iter().chain([&self.own]) {
            while count < most {
                match source.recv_from(&mut self.buffer) {
                    Ok((bytes, _)) => {
                        count += 1;
                        self.counts.received += 1;
                        receive(self.buffer.get(..bytes).unwrap_or(&[]))?;
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    // The answer of a node that is not there to an earlier datagram.
                    Err(e) if matches!(e.kind(), ErrorKind::ConnectionRefused | ErrorKind::Interrupted) => {}
                    Err(e) => return Err(failed("receiving a datagram", e)),
                }
            }
        }
        Ok(count)
    }

    fn counts(&self) -> TransportCounts {
        self.counts
    }

    fn name(&self) -> &'static str {
        if self.group.is_some() { "udp" } else { "unicast" }
    }
}

impl UdpOptions {
    /// On the loopback interface, with a group of its own port, for tests and measurements on one machine.
    #[must_use]
    pub fn loopback(group: Option<u16>, is_member: bool) -> Self {
        Self {
            listen: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0),
            group: group.map(|port| SocketAddrV4::new(Ipv4Addr::new(239, 77, 70, 1), port)),
            is_member,
        }
    }

    /// Whether the group's address is one for multicast.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.group.is_none_or(|group| IpAddr::V4(*group.ip()).is_multicast())
    }
}
