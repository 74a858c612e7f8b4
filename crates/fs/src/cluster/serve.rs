//! A process with replicas of volumes: it waits to be told of a node, keeps its pool in a folder, and runs it.
//!
//! The metadata node connects and says which node of which volume this is, and where the others are. It says so again
//! after each start of its own, and asks every now and then whether the node runs.
//!
//! ```text
//! message   bytes 4, CRC-32C 4, then the body
//! request   version 4, 1 makes the pool or 0 runs the node 1, volume 8, salt 8, node 4, bytes of a page 4, pages 8,
//!           carrier 1, nodes 4, then for each: node 4, address 4, port 4
//! answer    1 runs, bytes copied 8, all bytes to copy 8 (0: it copies nothing), bytes in a second 8; or 0 and a text
//! ```

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use lodestone_fabric::{Clock, NodeId};
use lodestone_pmem::DomainChoice;
use lodestone_width::{exact_u32, to_usize};

use super::link::UNIT;
use super::net::{Carrier, Map};
use super::node::Node;
use super::pool::{NodeHead, NodePool, heads};
use super::status::CopyProgress;
use crate::bytes::{Reader, Writer};
use crate::error::{Error, Result};

const VERSION: u32 = 4;
/// Longest message.
const MESSAGE_BYTES_MAX: u32 = 64 << 10;
/// The longest silence of the other side.
const SILENCE: Duration = Duration::from_secs(10);
/// Connections at a time.
const CONNECTIONS_MAX: usize = 16;

/// A node that a process is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) head: NodeHead,
    pub(crate) map: Map,
    /// Only make its pool, unless it is there.
    pub(crate) makes: bool,
}

impl Order {
    fn to_bytes(&self) -> Vec<u8> {
        let (head, mut out) = (&self.head, Writer::default());
        out.u32(VERSION).u8(self.makes.into()).u64(head.volume_id).u64(head.salt).u32(head.node.0.into());
        out.u32(head.page_bytes).u64(head.pages).u8(self.map.carrier.code());
        out.u32(exact_u32(self.map.addresses.len()));
        for (node, address) in &self.map.addresses {
            out.u32(node.0.into()).u32(u32::from(*address.ip())).u32(address.port().into());
        }
        out.0
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        (from.u32()? == VERSION).then_some(())?;
        let makes = match from.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let (volume_id, salt) = (from.u64()?, from.u64()?);
        let node = NodeId(u16::try_from(from.u32()?).ok()?);
        let (page_bytes, pages) = (from.u32()?, from.u64()?);
        let carrier = Carrier::from_code(from.u8()?)?;
        let is_possible = page_bytes.is_power_of_two() && (64..=1 << 16).contains(&page_bytes);
        (is_possible && (2..=1 << 40).contains(&pages)).then_some(())?;
        let mut addresses = BTreeMap::new();
        for _ in 0..from.u32()?.min(1024) {
            let node = NodeId(u16::try_from(from.u32()?).ok()?);
            let (ip, port) = (Ipv4Addr::from(from.u32()?), u16::try_from(from.u32()?).ok()?);
            addresses.insert(node, SocketAddrV4::new(ip, port));
        }
        let head = heads(volume_id, salt, u64::from(page_bytes), pages, 1).data(node, UNIT);
        from.is_empty().then_some(Self { head, map: Map { carrier, addresses }, makes })
    }
}

fn send(stream: &mut TcpStream, body: &[u8]) -> std::io::Result<()> {
    let mut message = exact_u32(body.len()).to_le_bytes().to_vec();
    message.extend(crc32c::crc32c(body).to_le_bytes());
    message.extend(body);
    stream.write_all(&message)
}

fn receive(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut head = [0; 8];
    stream.read_exact(&mut head)?;
    let [b0, b1, b2, b3, crc @ ..] = head;
    let bytes = u32::from_le_bytes([b0, b1, b2, b3]);
    if bytes > MESSAGE_BYTES_MAX {
        return Err(std::io::Error::other("a message that is too long"));
    }
    let mut body = vec![0; to_usize(bytes)];
    stream.read_exact(&mut body)?;
    if crc32c::crc32c(&body) != u32::from_le_bytes(crc) {
        return Err(std::io::Error::other("a damaged message"));
    }
    Ok(body)
}

/// Tells the process at `address` to run a node, and waits until it says that it does. How far the node is, if it
/// copies what it lacks.
pub(crate) fn order(address: SocketAddrV4, order: &Order) -> Result<Option<CopyProgress>> {
    let failed = |error: std::io::Error| Error::Options(format!("{address}: the node does not answer: {error}"));
    let mut stream = TcpStream::connect_timeout(&address.into(), Duration::from_millis(500)).map_err(failed)?;
    stream.set_read_timeout(Some(SILENCE)).map_err(failed)?;
    send(&mut stream, &order.to_bytes()).map_err(failed)?;
    let answer = receive(&mut stream).map_err(failed)?;
    match answer.split_first() {
        Some((1, copied)) => copied_of_bytes(copied)
            .ok_or_else(|| Error::Options(format!("{address}: an answer that makes no sense; use the same program"))),
        Some((_, text)) => Err(Error::Options(format!("{address}: {}", String::from_utf8_lossy(text)))),
        None => Err(Error::Options(format!("{address}: an empty answer"))),
    }
}

fn copied_to_bytes(copied: Option<CopyProgress>) -> Vec<u8> {
    let (copied, mut out) = (copied.unwrap_or_default(), Writer::default());
    out.u64(copied.done_bytes).u64(copied.all_bytes).u64(copied.bytes_per_second);
    out.0
}

fn copied_of_bytes(bytes: &[u8]) -> Option<Option<CopyProgress>> {
    let mut from = Reader(bytes);
    let (done_bytes, all_bytes, rate) = (from.u64()?, from.u64()?, from.u64()?);
    (from.is_empty() && done_bytes <= all_bytes).then_some(())?;
    Some(CopyProgress::of(done_bytes, all_bytes, rate))
}

#[derive(Debug)]
struct Running {
    order: Order,
    node: Node,
}

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    domain: DomainChoice,
    clock: Clock,
    running: std::sync::Mutex<BTreeMap<(u64, NodeId), Running>>,
    stop: AtomicBool,
    connections: std::sync::atomic::AtomicUsize,
}

/// A process with replicas.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddrV4,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at `listen`, and keeps pools in `folder`. Packets are neither sealed nor is their sender known.
    ///
    /// # Errors
    /// An address that is in use; a folder that cannot be made.
    pub fn start(folder: &Path, listen: SocketAddrV4, domain: DomainChoice) -> Result<Self> {
        let failed = |doing: &str, error: std::io::Error| Error::Options(format!("{doing} failed: {error}"));
        std::fs::create_dir_all(folder).map_err(|e| failed(&format!("making {}", folder.display()), e))?;
        let listener = TcpListener::bind(listen).map_err(|e| failed(&format!("listening at {listen}"), e))?;
        let address = match listener.local_addr() {
            Ok(std::net::SocketAddr::V4(address)) => address,
            _ => listen,
        };
        let shared = Arc::new(Shared {
            folder: folder.to_owned(),
            domain,
            clock: Clock::default(),
            running: std::sync::Mutex::default(),
            stop: AtomicBool::new(false),
            connections: std::sync::atomic::AtomicUsize::new(0),
        });
        let serving = Arc::clone(&shared);
        let work = move || {
            for stream in listener.incoming() {
                if serving.stop.load(Ordering::Acquire) {
                    return;
                }
                if let Ok(stream) = stream {
                    Shared::accept(&serving, stream);
                }
            }
        };
        let thread = std::thread::Builder::new().name("fs-serve".into()).spawn(work);
        Ok(Self { shared, address, thread: Some(thread.map_err(|e| failed("starting a thread", e))?) })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// The nodes that it runs: volume, node, and why one has stopped by itself.
    #[must_use]
    pub fn nodes(&self) -> Vec<(u64, u16, Option<String>)> {
        let running = self.shared.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.iter().map(|((volume, node), found)| (*volume, node.0, found.node.seen.error())).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // The thread waits for a connection.
        _ = TcpStream::connect_timeout(&self.address.into(), Duration::from_millis(100));
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
        self.shared.running.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Shared {
    fn accept(shared: &Arc<Self>, mut stream: TcpStream) {
        if shared.connections.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
            shared.connections.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        let serving = Arc::clone(shared);
        let work = move || {
            if let Err(error) = serving.answer(&mut stream) {
                tracing::warn!("a message that makes no sense: {error}");
            }
            serving.connections.fetch_sub(1, Ordering::AcqRel);
        };
        if std::thread::Builder::new().name("fs-order".into()).spawn(work).is_err() {
            shared.connections.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn answer(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(SILENCE))?;
        let body = receive(stream)?;
        let outcome = match Order::from_bytes(&body) {
            Some(order) => self.run(order),
            None => Err(Error::Options("a message of another version, or of another program".into())),
        };
        let answer = match outcome {
            Ok(copied) => [vec![1], copied_to_bytes(copied)].concat(),
            Err(error) => [vec![0], error.to_string().into_bytes()].concat(),
        };
        send(stream, &answer)
    }

    /// Makes the pool of a node, or runs the node as ordered, unless that is done already. How far the node is, if it
    /// copies what it lacks.
    fn run(&self, order: Order) -> Result<Option<CopyProgress>> {
        let key = (order.head.volume_id, order.head.node);
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = running.get(&key).filter(|found| found.order == order && !found.node.seen.has_ended()) {
            return Ok(found.node.seen.copied());
        }
        let path = self.folder.join(format!("{:016x}-data-{}", key.0, key.1.0));
        let failed = |error| Error::Options(format!("{}: looking for it failed: {error}", path.display()));
        match (path.try_exists().map_err(failed)?, order.makes) {
            (true, true) => return Ok(None),
            (false, true) => return NodePool::create_whole(&path, self.domain, order.head).map(|()| None),
            (false, false) => return Err(lost(&path, key.1)),
            (true, false) => {}
        }
        running.remove(&key);
        let mut pool = NodePool::open(&path, self.domain)?;
        super::make::fits(&pool.head, &order.head)?;
        let (member, port) = (pool.member()?, order.map.port(key.1, false)?);
        let node = Node::start(&Arc::new(pool), member, port, None, self.clock)?;
        running.insert(key, Running { order, node });
        Ok(None)
    }
}

/// A replica that had its pool and has it no more. An empty one in its place would lack what it has acknowledged.
fn lost(path: &Path, node: NodeId) -> Error {
    Error::Options(format!(
        "{} is lost, the pool of {node}: start the process with its former folder, or `lodestone fs remove` the node and \
         `lodestone fs add` its address: it copies everything then",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_how_far_a_copy_is() {
        let copied = CopyProgress::of(3, 9, 2);
        for copied in [None, copied] {
            assert_eq!(copied_of_bytes(&copied_to_bytes(copied)), Some(copied));
        }
        assert_eq!(copied_of_bytes(&[]), None, "the answer of a former program");
        assert_eq!(copied_of_bytes(&[9; 16]), None, "the answer of a former program");
        assert_eq!(copied_of_bytes(&[9; 24]).flatten().map(|copied| copied.all_bytes), Some(0x0909_0909_0909_0909));
        assert_eq!(copied_of_bytes(&[[9; 8], [8; 8], [1; 8]].concat()), None, "more than all");
    }

    #[test]
    fn an_order_comes_back_and_other_bytes_are_refused() {
        let address = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let addresses = BTreeMap::from([(NodeId(1), address(7)), (NodeId(101), address(8))]);
        let head = heads(7, 9, 4096, 10_000, 1).data(NodeId(101), UNIT);
        let order = Order { head, map: Map { carrier: Carrier::Udp, addresses }, makes: true };
        let bytes = order.to_bytes();
        assert_eq!(Order::from_bytes(&bytes), Some(order));
        for cut in 0..bytes.len() {
            assert_eq!(Order::from_bytes(&bytes[..cut]), None);
        }
        for flip in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[flip / 8] ^= 1 << (flip % 8);
            // Any bytes are an order or none, and never panic.
            _ = Order::from_bytes(&other);
        }
    }
}
