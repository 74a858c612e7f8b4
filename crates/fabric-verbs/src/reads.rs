//! One-sided reads: a card reads pages of another node, whose processor takes no part (paper 5, section 2.3).
//!
//! 1. A node [offers](VerbsTransport::offer) a range of its memory.
//! 2. A [reader](RemoteReader) asks it for a queue. The node makes one for it, connects it, and tells the range and
//!    its key.
//! 3. A read is one READ over that connection, and its completion.
//!
//! A page that is written meanwhile may come half old, half new. The reader compares it with the checksum that it has
//! of the page, as with every other read.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

use lodestone_fabric::{NodeId, Result};
use lodestone_pmem::{Memory, PmAddr};
use lodestone_width::to_u64;

use crate::abi::SUCCESS;
use crate::card::{BUFFER_BYTES, Offer};
use crate::names::{Name, NameKind};
use crate::transport::{VerbsTransport, failed, gid_of};

/// Connections that a node makes for readers, at most.
const READERS_MAX: usize = 64;
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// A range of memory that others read.
pub type ReadRegion = Offer;

/// The state of a transport's reads.
#[derive(Debug, Default)]
pub struct Reads {
    offer: Option<Offer>,
    /// Queues that were made for readers, by node and token: a question that is repeated gets the same answer.
    made: BTreeMap<(NodeId, u64), u32>,
    answers: BTreeMap<u64, Name>,
    done: BTreeMap<u64, i32>,
    next: u64,
}

impl Reads {
    pub(crate) fn answered(&mut self, name: &Name) {
        if self.answers.len() < READERS_MAX {
            self.answers.insert(name.token, *name);
        }
    }

    pub(crate) fn completed(&mut self, id: u64, status: i32) {
        self.done.insert(id, status);
    }
}

/// A connection to the offered range of a node.
#[derive(Debug)]
pub struct RemoteReader {
    pair: usize,
    region: Offer,
}

impl RemoteReader {
    /// Bytes of the range.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.region.bytes
    }
}

fn refused(why: &str) -> lodestone_fabric::Error {
    failed("reading from another node", std::io::Error::other(why.to_owned()))
}

impl VerbsTransport {
    /// Lets other nodes read a range of `memory`. Returns what they are told.
    ///
    /// # Errors
    /// [`Error::Network`](lodestone_fabric::Error::Network): memory of a domain whose mapping is not the medium
    /// (`block`, `traced`), or a card that cannot register it (files of fsdax).
    pub fn offer(&mut self, memory: &Memory, at: PmAddr, bytes: u64) -> Result<ReadRegion> {
        let offer = self.card.offer(memory, at, bytes).map_err(|e| failed("offering pages", e))?;
        let offer = offer.ok_or_else(|| refused("pages of this domain are not what the memory has; read by calls"))?;
        self.reads.offer = Some(offer);
        Ok(offer)
    }

    /// A node asks for a queue to read by.
    pub(crate) fn offer_reads(&mut self, name: &Name, from: SocketAddrV4) -> Result<()> {
        let Some(offer) = self.reads.offer.filter(|_| self.address_of(name.node) == Some(from)) else { return Ok(()) };
        let queue = match self.reads.made.get(&(name.node, name.token)) {
            Some(queue) => *queue,
            None if self.reads.made.len() >= READERS_MAX => return Ok(()),
            None => {
                let failed = |e| failed("making a connection for a reader", e);
                let (pair, queue) = self.card.make_reliable().map_err(failed)?;
                let target = gid_of(*from.ip());
                self.card.connect_reliable(pair, name.queue, target, self.source_index).map_err(failed)?;
                self.reads.made.insert((name.node, name.token), queue);
                queue
            }
        };
        let answer = Name {
            key: offer.key,
            address: offer.address,
            bytes: offer.bytes,
            token: name.token,
            ..Name::of(NameKind::AnswerReads, self.node, queue)
        };
        let _ = self.names.send_to(&answer.to_bytes(), from);
        Ok(())
    }

    /// Connects to the range that `node` offers. Waits for it, at most `most`.
    ///
    /// # Errors
    /// [`Error::Network`](lodestone_fabric::Error::Network): no answer, or a card that refuses.
    pub fn reader(&mut self, node: NodeId, most: Duration) -> Result<RemoteReader> {
        let Some(address) = self.address_of(node) else { return Err(refused("that node has no address here")) };
        let (pair, queue) = self.card.make_reliable().map_err(|e| failed("making a connection", e))?;
        self.reads.next += 1;
        let token = self.reads.next;
        let ask = Name { token, ..Name::of(NameKind::AskReads, self.node, queue) };
        let started = Instant::now();
        loop {
            let _ = self.names.send_to(&ask.to_bytes(), address);
            let asked = Instant::now();
            while asked.elapsed() < ASK_AGAIN {
                self.wait(Duration::from_millis(1))?;
                self.hear_names()?;
                if let Some(answer) = self.reads.answers.remove(&token).filter(|answer| answer.node == node) {
                    let target = gid_of(*address.ip());
                    let done = self.card.connect_reliable(pair, answer.queue, target, self.source_index);
                    done.map_err(|e| failed("connecting to a node", e))?;
                    let region = Offer { address: answer.address, bytes: answer.bytes, key: answer.key };
                    return Ok(RemoteReader { pair, region });
                }
            }
            if started.elapsed() >= most {
                return Err(refused("it does not answer, or offers nothing"));
            }
        }
    }

    /// Reads bytes of the range. Waits for them, at most `most`. At most 4,096 at a time.
    ///
    /// # Errors
    /// [`Error::Network`](lodestone_fabric::Error::Network): bytes outside the range, no answer, or a connection that
    /// broke.
    pub fn read(&mut self, reader: &RemoteReader, offset: u64, bytes: &mut [u8], most: Duration) -> Result<()> {
        let end = offset.checked_add(to_u64(bytes.len()));
        if end.is_none_or(|end| end > reader.region.bytes) || bytes.len() > BUFFER_BYTES {
            return Err(refused("the bytes are outside the range, or too many"));
        }
        self.reads.next += 1;
        let id = self.reads.next;
        let remote = (reader.region.address + offset, reader.region.key);
        self.card.read(reader.pair, remote, bytes.len(), id).map_err(|e| failed("reading", e))?;
        let started = Instant::now();
        loop {
            self.take_completions()?;
            match self.reads.done.remove(&id) {
                Some(SUCCESS) => {
                    self.card.was_read(bytes);
                    return Ok(());
                }
                Some(status) => return Err(refused(&format!("the connection broke, status {status}"))),
                None if started.elapsed() >= most => return Err(refused("no answer")),
                None => self.wait(Duration::from_millis(1))?,
            }
        }
    }
}
