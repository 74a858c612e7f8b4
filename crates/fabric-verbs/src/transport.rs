//! The transport: a packet is one SEND of an unreliable datagram, to a node's queue or to a group.
//!
//! 1. *Send*: the packet is copied into the next send buffer and posted. Sends are not signalled, but for one in a
//!    batch, whose completion frees the buffers of the batch (paper 5, section 2.2). If none is free, the packet is
//!    lost.
//! 2. *Receive*: completions name the buffer that a datagram came into. It is copied out, and the buffer posted again.
//! 3. *Wait*: the card's descriptor and the socket of [names](crate::names) at once.
//!
//! Buffers free at completion are those of the card. A record that is not stable stays in the sender's ring, from where
//! it is sent again: so it does no harm that a datagram may be lost after its buffer is free.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use lodestone_fabric::{Error, NodeId, Outgoing, Peers, Result, Target, Transport, TransportCounts};
use lodestone_width::{low_u32, to_u64, to_usize};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::abi::{Completion, Gid, RECEIVED, SUCCESS};
use crate::card::{Card, GLOBAL_HEADER_BYTES, GROUP_QUEUE, READING, RECEIVES, SENDS, SENT};
use crate::names::{NAME_BYTES, Name, NameKind};
use crate::reads::Reads;

/// Pause before another node is asked again for its queue.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// Completions that are taken at a time.
const COMPLETIONS_AT_A_TIME: usize = 64;
/// Datagrams of the socket for names that are taken in at a time: a node that sends more does not keep this one from
/// its card.
const NAMES_AT_A_TIME: usize = 64;

/// How a node uses its card.
#[derive(Clone, Debug)]
pub struct VerbsOptions {
    /// The card, as `rdma link` names it.
    pub device: String,
    /// The address of the node on the card's interface, and a port of UDP on which nodes tell their queues.
    pub listen: SocketAddrV4,
    /// The address of the group; `None`: a datagram to each member.
    pub group: Option<Ipv4Addr>,
    /// Whether this node receives what is sent to the group.
    pub is_member: bool,
    /// One send of so many is signalled.
    pub batch: u64,
}

/// A node that is known.
#[derive(Debug)]
struct Peer {
    address: SocketAddrV4,
    way: usize,
    queue: Option<u32>,
    asked: Option<Instant>,
}

/// Datagrams of one node over a card.
pub struct VerbsTransport {
    pub(crate) card: Card,
    pub(crate) names: UdpSocket,
    pub(crate) node: NodeId,
    pub(crate) source_index: u8,
    pub(crate) reads: Reads,
    listen: SocketAddrV4,
    group: Option<usize>,
    batch: u64,
    /// Keeps the interface in the group: the card's own membership does not tell switches.
    _membership: Option<UdpSocket>,
    peers: BTreeMap<NodeId, Peer>,
    members: Vec<NodeId>,
    posted: u64,
    freed: u64,
    /// Received: buffer and bytes.
    arrived: VecDeque<(u32, usize)>,
    buffer: Vec<u8>,
    counts: TransportCounts,
}

pub(crate) fn failed(doing: &str, source: io::Error) -> Error {
    Error::Network {
        doing: doing.to_owned(),
        hint: "check with `rdma link` that the card is there, and that the address is on its interface; `udp` needs none",
        source,
    }
}

/// The global address of an address of IPv4.
pub(crate) fn gid_of(address: Ipv4Addr) -> Gid {
    Gid(address.to_ipv6_mapped().octets())
}

/// The place of an address in the card's table, for RoCE v2.
fn source_index(device: &str, address: Ipv4Addr) -> io::Result<u8> {
    let port = Path::new("/sys/class/infiniband").join(device).join("ports/1");
    let wanted = address.to_ipv6_mapped();
    for index in 0..=u8::MAX {
        let Ok(found) = std::fs::read_to_string(port.join(format!("gids/{index}"))) else { break };
        let kind = std::fs::read_to_string(port.join(format!("gid_attrs/types/{index}"))).unwrap_or_default();
        let is_it = found.trim().parse::<std::net::Ipv6Addr>().is_ok_and(|found| found == wanted);
        if is_it && kind.contains("v2") {
            return Ok(index);
        }
    }
    Err(io::Error::new(ErrorKind::NotFound, format!("the card {device} has no address {address} for RoCE v2")))
}

impl VerbsTransport {
    /// Opens the card of `node`. [`connect`](Self::connect) tells it the others.
    ///
    /// # Errors
    /// [`Error::Network`]: no library, no card, no such address, or a card that refuses.
    pub fn bind(node: NodeId, options: &VerbsOptions) -> Result<Self> {
        let own = *options.listen.ip();
        let source_index = source_index(&options.device, own).map_err(|e| failed("finding the node's address", e))?;
        let mut card = Card::open(&options.device).map_err(|e| failed("opening the card", e))?;
        let names = UdpSocket::bind(options.listen).map_err(|e| failed("binding the port for names", e))?;
        names.set_nonblocking(true).map_err(|e| failed("setting up the port for names", e))?;
        let (mut group, mut membership) = (None, None);
        if let Some(address) = options.group {
            let way = card.way_to(gid_of(address), source_index);
            group = Some(way.map_err(|e| failed("finding the way to the group", e))?);
            if options.is_member {
                let join = || -> io::Result<UdpSocket> {
                    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
                    socket.join_multicast_v4(&address, &own)?;
                    Ok(socket)
                };
                membership = Some(join().map_err(|e| failed("joining the group on the interface", e))?);
                card.join(gid_of(address)).map_err(|e| failed("joining the group", e))?;
            }
        }
        let listen = match names.local_addr() {
            Ok(SocketAddr::V4(address)) => address,
            _ => options.listen,
        };
        Ok(Self {
            card,
            names,
            node,
            source_index,
            reads: Reads::new(),
            listen,
            group,
            batch: options.batch.clamp(1, u64::from(SENDS) / 2),
            _membership: membership,
            peers: BTreeMap::new(),
            members: Vec::new(),
            posted: 0,
            freed: 0,
            arrived: VecDeque::new(),
            buffer: vec![0; 4096],
            counts: TransportCounts::default(),
        })
    }

    /// The address of this node: where it tells its queue.
    #[must_use]
    pub const fn address(&self) -> SocketAddrV4 {
        self.listen
    }

    /// Longest packet.
    #[must_use]
    pub fn packet_bytes_max(&self) -> usize {
        self.card.datagram_bytes_max()
    }

    /// The addresses of all nodes, and which of them are members.
    ///
    /// # Errors
    /// [`Error::Network`].
    pub fn connect(&mut self, peers: &Peers, members: Vec<NodeId>) -> Result<()> {
        self.members = members;
        for (node, address) in peers.iter().filter(|(node, _)| **node != self.node) {
            let SocketAddr::V4(address) = *address else { continue };
            let way = self.card.way_to(gid_of(*address.ip()), self.source_index);
            let way = way.map_err(|e| failed("finding the way to a node", e))?;
            self.peers.insert(*node, Peer { address, way, queue: None, asked: None });
        }
        self.ask();
        Ok(())
    }

    /// Asks nodes for their queues.
    fn ask(&mut self) {
        let name = Name::of(NameKind::Ask, self.node, self.card.queue_number()).to_bytes();
        for peer in self.peers.values_mut().filter(|peer| peer.queue.is_none()) {
            if peer.asked.is_none_or(|asked| asked.elapsed() >= ASK_AGAIN) {
                peer.asked = Some(Instant::now());
                // Lost, or the node is not there: it is asked again.
                let _ = self.names.send_to(&name, peer.address);
            }
        }
    }

    pub(crate) fn address_of(&self, node: NodeId) -> Option<SocketAddrV4> {
        self.peers.get(&node).map(|peer| peer.address)
    }

    /// Takes some names in and answers questions. Others wait in the socket for the next call.
    pub(crate) fn hear_names(&mut self) -> Result<()> {
        let mut bytes = [0; NAME_BYTES + 1];
        for _ in 0..NAMES_AT_A_TIME {
            match self.names.recv_from(&mut bytes) {
                Ok((length, from)) => {
                    let name = bytes.get(..length).and_then(Name::from_bytes);
                    let (Some(name), SocketAddr::V4(from)) = (name, from) else { continue };
                    self.hear(&name, from);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if matches!(e.kind(), ErrorKind::ConnectionRefused | ErrorKind::Interrupted) => {}
                Err(e) => return Err(failed("receiving a name", e)),
            }
        }
        Ok(())
    }

    fn hear(&mut self, name: &Name, from: SocketAddrV4) {
        match name.kind {
            NameKind::Ask | NameKind::Answer => {
                if let Some(peer) = self.peers.get_mut(&name.node).filter(|peer| peer.address == from) {
                    peer.queue = Some(name.queue);
                    if name.kind == NameKind::Ask {
                        let answer = Name::of(NameKind::Answer, self.node, self.card.queue_number());
                        let _ = self.names.send_to(&answer.to_bytes(), from);
                    }
                }
            }
            NameKind::AskReads => self.offer_reads(name, from),
            NameKind::AnswerReads => {
                if self.address_of(name.node) == Some(from) {
                    self.reads.answered(name);
                }
            }
        }
    }

    /// Takes completions in: frees send buffers, remembers what arrived and what was read.
    pub(crate) fn take_completions(&mut self) -> Result<bool> {
        let mut found = [Completion::default(); COMPLETIONS_AT_A_TIME];
        let count = self.card.completed(&mut found).map_err(|e| failed("taking completions", e))?;
        for done in found.iter().take(count) {
            if done.id & READING != 0 {
                self.reads.completed(done.id & !READING, done.status);
            } else if done.id & SENT != 0 {
                // Also one with an error: its buffers are free, and the packets are lost.
                self.counts.lost += u64::from(done.status != SUCCESS);
                self.freed = self.freed.max(done.id & !SENT);
            } else {
                let buffer = low_u32(done.id);
                let bytes = to_usize(done.bytes).checked_sub(GLOBAL_HEADER_BYTES);
                match bytes.filter(|_| done.status == SUCCESS && done.opcode & RECEIVED != 0) {
                    Some(bytes) => self.arrived.push_back((buffer, bytes)),
                    None => self.card.receive_into(buffer).map_err(|e| failed("posting a buffer", e))?,
                }
            }
        }
        Ok(count == COMPLETIONS_AT_A_TIME)
    }

    fn send_one(&mut self, bytes: &[u8], way: usize, queue: u32) -> Result<()> {
        if self.posted - self.freed >= u64::from(SENDS) {
            self.take_completions()?;
        }
        if self.posted - self.freed >= u64::from(SENDS) || bytes.len() > self.card.datagram_bytes_max() {
            self.counts.lost += 1;
            return Ok(());
        }
        let slot = low_u32(self.posted % u64::from(SENDS));
        self.posted += 1;
        let is_signaled = self.posted.is_multiple_of(self.batch);
        self.counts.sends += 1;
        self.counts.bytes += to_u64(bytes.len());
        let sent = self.card.send(slot, bytes, (way, queue), self.posted, is_signaled);
        sent.map_err(|e| failed("sending a datagram", e))
    }

    /// The next packet that arrived.
    fn next_arrived(&mut self, receive: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<bool> {
        let Some((buffer, bytes)) = self.arrived.pop_front() else { return Ok(false) };
        let bytes = bytes.min(self.buffer.len());
        if let Some(packet) = self.buffer.get_mut(..bytes) {
            self.card.received(buffer, packet);
        }
        self.card.receive_into(buffer).map_err(|e| failed("posting a buffer", e))?;
        self.counts.received += 1;
        receive(self.buffer.get(..bytes).unwrap_or(&[]))?;
        Ok(true)
    }

    /// Waits for a completion or a name.
    pub(crate) fn wait(&mut self, wait: Duration) -> Result<()> {
        self.card.want_notification().map_err(|e| failed("waiting for the card", e))?;
        // One that came before the wish is not told.
        self.take_completions()?;
        if !self.arrived.is_empty() {
            return Ok(());
        }
        let is_readable = {
            let descriptor = self.card.descriptor();
            let mut waits = [PollFd::new(&descriptor, PollFlags::IN), PollFd::new(&self.names, PollFlags::IN)];
            match poll(&mut waits, Timespec::try_from(wait).ok().as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(failed("waiting for the card", e.into())),
            }
            waits[0].revents().contains(PollFlags::IN)
        };
        if is_readable {
            self.card.take_notification().map_err(|e| failed("waiting for the card", e))?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for VerbsTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerbsTransport").field("node", &self.node).field("peers", &self.peers).finish_non_exhaustive()
    }
}

impl Transport for VerbsTransport {
    fn send(&mut self, packets: &[Outgoing]) -> Result<()> {
        for outgoing in packets {
            self.counts.packets += 1;
            let nodes = match (outgoing.target, self.group) {
                (Target::Group, Some(way)) => {
                    self.send_one(&outgoing.bytes, way, GROUP_QUEUE)?;
                    continue;
                }
                (Target::Group, None) => self.members.iter().copied().filter(|node| *node != self.node).collect(),
                (Target::Node(node), _) => vec![node],
            };
            for node in nodes {
                match self.peers.get(&node).and_then(|peer| Some((peer.way, peer.queue?))) {
                    Some((way, queue)) => self.send_one(&outgoing.bytes, way, queue)?,
                    None => self.counts.lost += 1,
                }
            }
        }
        Ok(())
    }

    fn poll(&mut self, wait: Duration, most: usize, receive: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<usize> {
        self.hear_names()?;
        self.ask();
        while self.arrived.len() < to_usize(RECEIVES) / 2 && self.take_completions()? {}
        if self.arrived.is_empty() && !wait.is_zero() {
            self.wait(wait.min(ASK_AGAIN))?;
            self.hear_names()?;
            self.take_completions()?;
        }
        let mut count = 0;
        while count < most && self.next_arrived(receive)? {
            count += 1;
        }
        Ok(count)
    }

    fn counts(&self) -> TransportCounts {
        self.counts
    }

    fn name(&self) -> &'static str {
        "verbs"
    }
}
