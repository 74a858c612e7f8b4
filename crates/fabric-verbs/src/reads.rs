//! One-sided reads: a card reads pages of another node, whose processor takes no part (paper 5, section 2.3).
//!
//! 1. A node [offers](VerbsTransport::offer) a range of its memory.
//! 2. A [reader](RemoteReader) asks it for a queue. The node makes one for it, connects it, and tells the range and
//!    its key.
//! 3. A read is one READ over that connection, and its completion.
//!
//! A page that is written meanwhile may come half old, half new. The reader compares it with the checksum that it has
//! of the page, as with every other read.

use std::net::SocketAddrV4;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lodestone_fabric::{NodeId, Result};
use lodestone_pmem::{Memory, PmAddr};
use lodestone_width::to_u64;

use crate::abi::SUCCESS;
use crate::card::{BUFFER_BYTES, Offer};
use crate::names::{Name, NameKind};
use crate::transport::{VerbsTransport, failed, gid_of};

/// Reliable connections of a node, with its own ones, from which on it makes none for a further reader.
const READERS_MAX: usize = 64;
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// A range of memory that others read.
pub type ReadRegion = Offer;

/// A queue pair that was made for a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Made {
    node: NodeId,
    token: u64,
    /// The reader's own queue: a reader that was started again has another one.
    reader_queue: u32,
    pair: usize,
    queue: u32,
}

/// The state of a transport's reads.
#[derive(Debug)]
pub struct Reads {
    offer: Option<Offer>,
    /// Made for readers, the oldest first: a question that is repeated gets the same answer.
    made: Vec<Made>,
    /// The node that was asked for a queue, and the token.
    awaited: Option<(NodeId, u64)>,
    answer: Option<Name>,
    /// The read that is under way, also one that was given up: its bytes may still come into the buffer of all reads.
    busy: Option<u64>,
    /// The status of the last read, when it has completed.
    status: Option<i32>,
    /// The last token, or read.
    last: u64,
}

impl Reads {
    /// No reads yet. Numbers begin at the time, so that a node that was started again does not repeat its tokens: 24
    /// bits below the seconds stay far from the bits of the ids of completions.
    pub(crate) fn new() -> Self {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let last = (seconds & 0xFFFF_FFFF) << 24;
        Self { offer: None, made: Vec::new(), awaited: None, answer: None, busy: None, status: None, last }
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// An answer came from the address of its node. One that nothing waits for is dropped.
    pub(crate) fn answered(&mut self, name: &Name) {
        if self.awaited == Some((name.node, name.token)) {
            self.answer = Some(*name);
        }
    }

    pub(crate) fn completed(&mut self, id: u64, status: i32) {
        if self.busy == Some(id) {
            (self.busy, self.status) = (None, Some(status));
        }
    }

    /// The queue that was made for this question.
    fn made_for(&self, ask: &Name) -> Option<u32> {
        let is_it = |made: &&Made| (made.node, made.token, made.reader_queue) == (ask.node, ask.token, ask.queue);
        self.made.iter().find(is_it).map(|made| made.queue)
    }

    /// Takes the oldest pair that was made for a node.
    fn take_oldest(&mut self, node: NodeId) -> Option<usize> {
        let oldest = self.made.iter().position(|made| made.node == node)?;
        Some(self.made.remove(oldest).pair)
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

    /// A node asks for a queue to read by. A question that this node has no connection for is ignored: the reader
    /// tells that there is no answer, and this node goes on.
    pub(crate) fn offer_reads(&mut self, name: &Name, from: SocketAddrV4) {
        let Some(offer) = self.reads.offer.filter(|_| self.address_of(name.node) == Some(from)) else { return };
        let made = self.reads.made_for(name).or_else(|| self.make_for_reader(name, from));
        let Some(queue) = made else { return };
        let answer = Name {
            key: offer.key,
            address: offer.address,
            bytes: offer.bytes,
            token: name.token,
            ..Name::of(NameKind::AnswerReads, self.node, queue)
        };
        let _ = self.names.send_to(&answer.to_bytes(), from);
    }

    /// Makes a connection for a reader, in place of the oldest one of its node if there are too many.
    fn make_for_reader(&mut self, ask: &Name, from: SocketAddrV4) -> Option<u32> {
        if self.card.reliable_count() >= READERS_MAX {
            let oldest = self.reads.take_oldest(ask.node)?;
            self.card.destroy_reliable(oldest);
        }
        if self.card.reliable_count() >= READERS_MAX {
            return None;
        }
        let (pair, queue) = self.card.make_reliable().ok()?;
        if self.card.connect_reliable(pair, ask.queue, gid_of(*from.ip()), self.source_index).is_err() {
            self.card.destroy_reliable(pair);
            return None;
        }
        self.reads.made.push(Made { node: ask.node, token: ask.token, reader_queue: ask.queue, pair, queue });
        Some(queue)
    }

    /// Connects to the range that `node` offers. Waits for it, at most `most`.
    ///
    /// # Errors
    /// [`Error::Network`](lodestone_fabric::Error::Network): no answer, or a card that refuses.
    pub fn reader(&mut self, node: NodeId, most: Duration) -> Result<RemoteReader> {
        let Some(address) = self.address_of(node) else { return Err(refused("that node has no address here")) };
        let (pair, queue) = self.card.make_reliable().map_err(|e| failed("making a connection", e))?;
        let ask = Name { token: self.reads.next(), ..Name::of(NameKind::AskReads, self.node, queue) };
        (self.reads.awaited, self.reads.answer) = (Some((node, ask.token)), None);
        let region = self.connect_reader(pair, &ask, address, most);
        self.reads.awaited = None;
        match region {
            Ok(region) => Ok(RemoteReader { pair, region }),
            Err(error) => {
                self.card.destroy_reliable(pair);
                Err(error)
            }
        }
    }

    /// Asks until the node answers, and connects.
    fn connect_reader(&mut self, pair: usize, ask: &Name, address: SocketAddrV4, most: Duration) -> Result<Offer> {
        let started = Instant::now();
        loop {
            let _ = self.names.send_to(&ask.to_bytes(), address);
            let asked = Instant::now();
            while asked.elapsed() < ASK_AGAIN {
                self.wait(Duration::from_millis(1))?;
                self.hear_names()?;
                if let Some(answer) = self.reads.answer.take() {
                    let target = gid_of(*address.ip());
                    let done = self.card.connect_reliable(pair, answer.queue, target, self.source_index);
                    done.map_err(|e| failed("connecting to a node", e))?;
                    return Ok(Offer { address: answer.address, bytes: answer.bytes, key: answer.key });
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
    /// broke. After a read without an answer all further ones fail until it has completed: its bytes come into the
    /// buffer that all reads share.
    pub fn read(&mut self, reader: &RemoteReader, offset: u64, bytes: &mut [u8], most: Duration) -> Result<()> {
        let end = offset.checked_add(to_u64(bytes.len()));
        if end.is_none_or(|end| end > reader.region.bytes) || bytes.len() > BUFFER_BYTES {
            return Err(refused("the bytes are outside the range, or too many"));
        }
        self.take_completions()?;
        if self.reads.busy.is_some() {
            return Err(refused("an earlier read without an answer is still under way"));
        }
        let id = self.reads.next();
        // The other node told the address: a wrong one is refused by its card.
        let remote = (reader.region.address.wrapping_add(offset), reader.region.key);
        self.card.read(reader.pair, remote, bytes.len(), id).map_err(|e| failed("reading", e))?;
        (self.reads.busy, self.reads.status) = (Some(id), None);
        let started = Instant::now();
        loop {
            self.take_completions()?;
            match self.reads.status.take() {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(node: u16, token: u64, queue: u32) -> Name {
        Name { token, ..Name::of(NameKind::AskReads, NodeId(node), queue) }
    }

    #[test]
    fn a_reader_that_starts_again_gets_no_old_queue() {
        let mut reads = Reads::new();
        let made = |node, pair| Made { node: NodeId(node), token: 1, reader_queue: 17, pair, queue: 40 };
        reads.made.extend([made(1, 0), made(2, 1), made(2, 2)]);
        assert_eq!(reads.made_for(&ask(1, 1, 17)), Some(40), "a question that is repeated");
        assert_eq!(reads.made_for(&ask(1, 1, 18)), None, "the same token, another queue");
        assert_eq!(reads.made_for(&ask(1, 2, 17)), None);
        assert_eq!(reads.take_oldest(NodeId(2)), Some(1), "the oldest one of the node");
        assert_eq!(reads.take_oldest(NodeId(3)), None, "never one of another node");
        assert_eq!(reads.made, [made(1, 0), made(2, 2)]);
    }

    #[test]
    fn only_the_awaited_answer_is_kept() {
        let mut reads = Reads::new();
        reads.answered(&ask(1, 5, 17));
        assert_eq!(reads.answer, None, "nothing waits");
        reads.awaited = Some((NodeId(1), 6));
        reads.answered(&ask(1, 5, 17));
        reads.answered(&ask(2, 6, 17));
        assert_eq!(reads.answer, None, "late, or of another node");
        reads.answered(&ask(1, 6, 18));
        assert_eq!(reads.answer, Some(ask(1, 6, 18)));
    }

    #[test]
    fn a_read_is_busy_until_its_own_completion() {
        let mut reads = Reads::new();
        let id = reads.next();
        reads.busy = Some(id);
        reads.completed(id + 1, SUCCESS);
        assert_eq!((reads.busy, reads.status), (Some(id), None), "another one");
        reads.completed(id, SUCCESS);
        assert_eq!((reads.busy, reads.status), (None, Some(SUCCESS)));
        assert!(reads.next() > id && id < crate::card::READING, "numbers stay below the bits of kinds");
    }
}
