//! Streams: one connection to each node that is sent to, for networks that block datagrams.
//!
//! ```text
//! stream   `LFT1`, then packets: bytes of the packet 4, little-endian, then the packet
//! ```
//!
//! A node connects when it first sends to another, and receives on the connections that others made. No call waits: a
//! packet goes into the buffer of its connection, and is lost if that is full. A connection that breaks loses what is
//! in the buffer, and is made again after a pause. Bytes that are no packets close the connection that they came on.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use lodestone_width::{exact_u32, to_u64, to_usize};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

use super::routes::{Peers, Routes};
use super::{Transport, TransportCounts};
use crate::effect::Outgoing;
use crate::error::{Error, Result};
use crate::ids::{GroupId, NodeId};
use crate::packet::PACKET_BYTES_MAX;

const PREFACE: [u8; 4] = *b"LFT1";
/// Bytes that wait for a node.
const QUEUE_BYTES_MAX: usize = 8 << 20;
/// Pause before a connection is made again.
const AGAIN: Duration = Duration::from_millis(50);
/// Connections that others may have to this node.
const INCOMING_MAX: usize = 256;
/// Bytes of one read.
const READ_BYTES: usize = 256 << 10;

fn failed(doing: &str, source: std::io::Error) -> Error {
    Error::Network {
        doing: doing.to_owned(),
        hint: "check the address, and that no other program has the port",
        source,
    }
}

/// A connection to a node.
#[derive(Debug)]
struct Link {
    stream: Option<TcpStream>,
    again: Instant,
    queue: Vec<u8>,
    /// Bytes of the queue that were sent.
    sent: usize,
    /// Packets that the queue has, at most.
    packets: u64,
}

/// A connection of another node.
#[derive(Debug)]
struct Incoming {
    stream: TcpStream,
    bytes: Vec<u8>,
    /// Bytes that were taken.
    taken: usize,
    is_greeted: bool,
}

/// Streams of one node.
#[derive(Debug)]
pub struct TcpTransport {
    node: NodeId,
    listener: TcpListener,
    routes: Routes,
    links: BTreeMap<NodeId, Link>,
    incoming: Vec<Incoming>,
    buffer: Vec<u8>,
    counts: TransportCounts,
}

impl TcpTransport {
    /// Listens at `listen` for `node`. [`connect`](Self::connect) tells it the others.
    ///
    /// # Errors
    /// [`Error::Network`].
    pub fn bind(node: NodeId, listen: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(listen).map_err(|e| failed("listening for connections", e))?;
        listener.set_nonblocking(true).map_err(|e| failed("setting up the socket", e))?;
        Ok(Self {
            node,
            listener,
            routes: Routes::default(),
            links: BTreeMap::new(),
            incoming: Vec::new(),
            buffer: vec![0; READ_BYTES],
            counts: TransportCounts::default(),
        })
    }

    /// The address of this node.
    ///
    /// # Errors
    /// [`Error::Network`].
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(|e| failed("reading the node's address", e))
    }

    /// The addresses of all nodes, and which of them are members.
    pub fn connect(&mut self, peers: Peers, members: Vec<NodeId>) {
        (self.routes.peers, self.routes.members) = (peers, members);
    }

    /// The members of one of several groups.
    pub fn connect_group(&mut self, group: GroupId, members: Vec<NodeId>) {
        self.routes.groups.insert(group, members);
    }

    fn enqueue(&mut self, node: NodeId, bytes: &[u8]) {
        let Some(address) = self.routes.peers.get(&node).copied() else {
            self.counts.lost += 1;
            return;
        };
        let link = self.links.entry(node).or_insert_with(Link::new);
        link.connect(address, &mut self.counts);
        if link.stream.is_none() || link.queue.len() - link.sent + bytes.len() > QUEUE_BYTES_MAX {
            self.counts.lost += 1;
            return;
        }
        self.counts.sends += 1;
        self.counts.bytes += to_u64(bytes.len());
        link.packets += 1;
        link.queue.extend(exact_u32(bytes.len()).to_le_bytes());
        link.queue.extend(bytes);
    }

    fn flush(&mut self) {
        for link in self.links.values_mut() {
            link.flush(&mut self.counts);
        }
    }

    /// Waits until a packet may be there, or a buffer has room.
    fn wait(&self, wait: Duration) -> Result<()> {
        let mut waits = vec![PollFd::new(&self.listener, PollFlags::IN)];
        waits.extend(self.incoming.iter().map(|incoming| PollFd::new(&incoming.stream, PollFlags::IN)));
        let full = self.links.values().filter(|link| link.sent < link.queue.len());
        waits.extend(full.filter_map(|link| Some(PollFd::new(link.stream.as_ref()?, PollFlags::OUT))));
        let timeout = Timespec::try_from(wait).ok();
        match poll(&mut waits, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(failed("waiting for a packet", e.into())),
        }
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.incoming.len() < INCOMING_MAX && stream.set_nonblocking(true).is_ok() {
                self.incoming.push(Incoming { stream, bytes: Vec::new(), taken: 0, is_greeted: false });
            }
        }
    }
}

impl Link {
    fn new() -> Self {
        Self { stream: None, again: Instant::now(), queue: Vec::new(), sent: 0, packets: 0 }
    }

    /// Begins a connection, if there is none and the pause is over.
    fn connect(&mut self, address: SocketAddr, counts: &mut TransportCounts) {
        if self.stream.is_some() || Instant::now() < self.again {
            return;
        }
        self.again = Instant::now() + AGAIN;
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let Ok(socket) = socket_with(family, SocketType::STREAM, flags, None) else { return };
        match connect(&socket, &address) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {
                let stream = TcpStream::from(socket);
                // A packet that waits for others costs more than a small segment.
                let _ = stream.set_nodelay(true);
                self.drop_queue(counts);
                self.queue.extend(PREFACE);
                self.stream = Some(stream);
            }
            Err(_) => {}
        }
    }

    fn drop_queue(&mut self, counts: &mut TransportCounts) {
        counts.lost += std::mem::take(&mut self.packets);
        self.queue.clear();
        self.sent = 0;
    }

    /// Sends as much as the kernel takes.
    fn flush(&mut self, counts: &mut TransportCounts) {
        let Some(stream) = &mut self.stream else { return };
        while self.sent < self.queue.len() {
            match stream.write(self.queue.get(self.sent..).unwrap_or(&[])) {
                Ok(0) => break,
                Ok(bytes) => self.sent += bytes,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => break,
                Err(_) => {
                    self.stream = None;
                    self.drop_queue(counts);
                    return;
                }
            }
        }
        if self.sent == self.queue.len() {
            self.queue.clear();
            (self.sent, self.packets) = (0, 0);
        }
    }
}

impl Incoming {
    /// Reads what is there. `false`: the connection has ended.
    fn read(&mut self, buffer: &mut [u8]) -> bool {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        if self.bytes.len() >= READ_BYTES {
            // The rest waits in the kernel, and its sender then waits too.
            return true;
        }
        match self.stream.read(buffer) {
            Ok(0) => false,
            Ok(bytes) => {
                self.bytes.extend(buffer.get(..bytes).unwrap_or(&[]));
                true
            }
            Err(e) => matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    /// Whether a whole packet is there.
    fn has_packet(&self) -> bool {
        let rest = self.bytes.get(self.taken..).unwrap_or(&[]);
        let after = rest.split_first_chunk::<4>().filter(|_| self.is_greeted);
        after.is_some_and(|(word, after)| after.len() >= to_usize(u32::from_le_bytes(*word)))
    }

    /// The next whole packet; an error if the bytes are none.
    fn next(&mut self) -> std::result::Result<Option<(usize, usize)>, ()> {
        let rest = self.bytes.get(self.taken..).unwrap_or(&[]);
        let Some((word, after)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        if !self.is_greeted {
            self.is_greeted = *word == PREFACE;
            self.taken += 4;
            return if self.is_greeted { self.next() } else { Err(()) };
        }
        let bytes = to_usize(u32::from_le_bytes(*word));
        if bytes > PACKET_BYTES_MAX {
            return Err(());
        }
        if after.len() < bytes {
            return Ok(None);
        }
        let begin = self.taken + 4;
        self.taken = begin + bytes;
        Ok(Some((begin, begin + bytes)))
    }
}

impl Transport for TcpTransport {
    fn send(&mut self, packets: &[Outgoing]) -> Result<()> {
        for outgoing in packets {
            self.counts.packets += 1;
            for node in self.routes.of(outgoing, self.node) {
                self.enqueue(node, &outgoing.bytes);
            }
        }
        self.flush();
        Ok(())
    }

    fn poll(&mut self, wait: Duration, most: usize, receive: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<usize> {
        if !wait.is_zero() && !self.incoming.iter().any(Incoming::has_packet) {
            self.wait(wait)?;
        }
        self.accept();
        self.flush();
        let mut count = 0;
        let mut incoming = std::mem::take(&mut self.incoming);
        let mut outcome = Ok(());
        incoming.retain_mut(|connection| {
            let is_open = connection.read(&mut self.buffer);
            while count < most && outcome.is_ok() {
                match connection.next() {
                    Ok(Some((begin, end))) => {
                        count += 1;
                        self.counts.received += 1;
                        outcome = receive(connection.bytes.get(begin..end).unwrap_or(&[]));
                    }
                    Ok(None) => break,
                    Err(()) => return false,
                }
            }
            is_open
        });
        self.incoming = incoming;
        outcome.map(|()| count)
    }

    fn counts(&self) -> TransportCounts {
        self.counts
    }

    fn name(&self) -> &'static str {
        "tcp"
    }
}
