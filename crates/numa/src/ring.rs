//! The message ring between one client and one agent: bounded, single producer, single consumer, request and answer in
//! one slot.
//!
//! A slot is four lines: a state word, three header words, and room for a small payload or the place of a large one.
//! Requests are numbered. Request `n` uses slot `n` modulo the capacity.
//!
//! 1. The client fills header and payload of slot `n` and stores the state `2n + 1` (release): requested.
//! 2. The agent knows which number comes next and looks only at that slot's state. It carries the request out, leaves
//!    the answer in the same slot and stores `2n + 2` (release): done.
//! 3. The client takes the answer when it sees that state (acquire). From then on the slot may carry request `n +
//!    capacity`.
//!
//! If the ring is full, the client waits for the answer in the slot that it needs: that is the back-pressure. A payload
//! of up to 192 bytes is in the slot itself. A larger one, up to 8 KiB, is in a buffer of the slot in the client's
//! DRAM, made on first use. Buffers belong to the ring and not to the caller. So a client that gives up or dies leaves
//! nothing dangling, and no unsafe code is needed. The price is one more copy in the client's own memory than passing
//! the caller's pointer would need.
//!
//! **Why one ring per client and agent**, instead of one for all clients of an agent? Sharing costs at least one
//! read-modify-write per message on a line that all nodes fight for. Here a message needs none. The price is one look
//! per client in each turn of the agent. The line stays in the agent's cache until the client writes to it.
//!
//! Invariants:
//! - the client writes header and payload of a slot only while the state is even, the agent only while it is odd;
//! - all words are atomics, so that nothing here can be undefined behaviour; only the state orders them.

use std::sync::{Arc, OnceLock};

use lodestone_pmem::PmAddr;
use lodestone_pmem::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use lodestone_width::{to_u64, to_usize};

use crate::parker::Parker;

/// Largest payload that is stored in the slot itself.
pub const INLINE_BYTES: usize = 192;
/// Largest payload of one message: a page. Longer accesses take several.
pub const MESSAGE_BYTES_MAX: usize = 8192;

const INLINE_WORDS: usize = INLINE_BYTES / 8;

/// The guarantee with which a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Persist {
    /// The write is visible to all threads. It may become persistent at any moment or never.
    Stored,
    /// Its write-back has started (flushed, or streamed around the cache if it is large). A later fence by the same
    /// agent makes it persistent: a later write with [`Fenced`](Self::Fenced), or
    /// [`Client::fence`](crate::Client::fence).
    Flushed,
    /// The write is persistent before any later store of the client. So is everything that the same agent wrote for
    /// this client before.
    Fenced,
    /// As `Fenced`, and the write would survive power loss, so it may be acknowledged to the outside.
    Durable,
}

impl Persist {
    const fn code(self) -> u64 {
        match self {
            Self::Stored => 0,
            Self::Flushed => 1,
            Self::Fenced => 2,
            Self::Durable => 3,
        }
    }
}

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Reads a range.
    Read,
    /// Writes a range.
    Write(Persist),
    /// Fences (and makes durable) everything that the agent wrote for this client.
    Fence(Persist),
}

impl Operation {
    fn encode(self) -> u64 {
        match self {
            Self::Read => 0,
            Self::Write(persist) => 1 | persist.code() << 8,
            Self::Fence(persist) => 2 | persist.code() << 8,
        }
    }

    fn decode(word: u64) -> Self {
        let persist = match word >> 8 & 0xFF {
            0 => Persist::Stored,
            1 => Persist::Flushed,
            2 => Persist::Fenced,
            _ => Persist::Durable,
        };
        match word & 0xFF {
            0 => Self::Read,
            1 => Self::Write(persist),
            _ => Self::Fence(persist),
        }
    }

    /// The guarantee that must hold before the request is answered.
    pub(crate) fn wants(self) -> Persist {
        match self {
            Self::Read => Persist::Stored,
            Self::Write(persist) | Self::Fence(persist) => persist,
        }
    }
}

/// How a request ended. The number travels in the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    Outside,
    Unaligned,
    ReadOnly,
    Poisoned,
}

impl Answer {
    const fn code(self) -> u64 {
        match self {
            Self::Done => 0,
            Self::Outside => 1,
            Self::Unaligned => 2,
            Self::ReadOnly => 3,
            Self::Poisoned => 4,
        }
    }

    fn decode(word: u64) -> Self {
        [Self::Done, Self::Outside, Self::Unaligned, Self::ReadOnly]
            .into_iter()
            .find(|answer| answer.code() == word)
            .unwrap_or(Self::Poisoned)
    }
}

/// The fixed part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) operation: Operation,
    pub(crate) at: PmAddr,
    pub(crate) len: usize,
}

#[repr(C, align(128))]
struct Slot {
    state: AtomicU64,
    at: AtomicU64,
    /// Length in the low half, operation above.
    what: AtomicU64,
    answer: AtomicU64,
    inline: [AtomicU64; INLINE_WORDS],
    bulk: OnceLock<Box<[AtomicU64]>>,
}

#[cfg(not(feature = "shuttle"))]
const _: () = assert!(size_of::<Slot>() == 256, "four lines, so that no two slots share one");

impl Slot {
    fn new() -> Self {
        Self {
            state: AtomicU64::new(0),
            at: AtomicU64::new(0),
            what: AtomicU64::new(0),
            answer: AtomicU64::new(0),
            inline: std::array::from_fn(|_| AtomicU64::new(0)),
            bulk: OnceLock::new(),
        }
    }

    /// The words of a payload of `len` bytes.
    fn payload(&self, len: usize) -> &[AtomicU64] {
        if len <= INLINE_BYTES {
            return &self.inline;
        }
        // The client allocates it, so its pages are on the client's node and the agent copies across.
        self.bulk.get_or_init(|| (0..MESSAGE_BYTES_MAX / 8).map(|_| AtomicU64::new(0)).collect())
    }

    fn put(&self, bytes: &[u8]) {
        let chunks = bytes.chunks(8);
        for (word, chunk) in self.payload(bytes.len()).iter().zip(chunks) {
            let mut value = [0; 8];
            value[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(value), Ordering::Relaxed);
        }
    }

    fn get(&self, out: &mut [u8]) {
        let words = self.payload(out.len()).iter();
        for (chunk, word) in out.chunks_mut(8).zip(words) {
            chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes()[..chunk.len()]);
        }
    }
}

/// One ring; client and agent each hold a reference.
pub(crate) struct Ring {
    slots: Box<[Slot]>,
    /// The client has gone. Its submitted requests are still carried out.
    closed: AtomicBool,
    /// The place where the client sleeps.
    pub(crate) client: Arc<Parker>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("slots", &self.slots.len()).finish_non_exhaustive()
    }
}

impl Ring {
    pub(crate) fn new(capacity: usize, client: Arc<Parker>) -> Self {
        Self { slots: (0..capacity).map(|_| Slot::new()).collect(), closed: AtomicBool::new(false), client }
    }

    pub(crate) fn capacity(&self) -> u64 {
        to_u64(self.slots.len())
    }

    fn slot(&self, number: u64) -> &Slot {
        &self.slots[to_usize(number % self.capacity())]
    }

    /// The client's side: makes request `number` visible to the agent. Its slot must be free.
    pub(crate) fn publish(&self, number: u64, header: Header, payload: &[u8]) {
        let slot = self.slot(number);
        slot.at.store(header.at.to_raw(), Ordering::Relaxed);
        slot.what.store(to_u64(header.len) | header.operation.encode() << 32, Ordering::Relaxed);
        if header.operation == Operation::Read {
            // Makes the buffer for the answer here, on the client's node.
            let _ = slot.payload(header.len);
        } else {
            slot.put(payload);
        }
        // Header and payload are stored before the state: the agent takes them once it sees the state.
        slot.state.store(2 * number + 1, Ordering::Release);
    }

    /// Whether request `number` is answered.
    pub(crate) fn is_done(&self, number: u64) -> bool {
        self.slot(number).state.load(Ordering::Acquire) == 2 * number + 2
    }

    /// The answer to request `number`, which must be done. The bytes of a read go to `out`.
    pub(crate) fn answer(&self, number: u64, out: &mut [u8]) -> Answer {
        let slot = self.slot(number);
        slot.get(out);
        Answer::decode(slot.answer.load(Ordering::Relaxed))
    }

    /// The agent's side: request `number`, if it was submitted.
    pub(crate) fn request(&self, number: u64) -> Option<Header> {
        let slot = self.slot(number);
        if slot.state.load(Ordering::Acquire) != 2 * number + 1 {
            return None;
        }
        let what = slot.what.load(Ordering::Relaxed);
        let len = to_usize(what & 0xFFFF_FFFF).min(MESSAGE_BYTES_MAX);
        let at = PmAddr::from_raw(slot.at.load(Ordering::Relaxed));
        Some(Header { operation: Operation::decode(what >> 32), at, len })
    }

    /// Copies the payload of request `number` out of the ring.
    pub(crate) fn payload(&self, number: u64, out: &mut [u8]) {
        self.slot(number).get(out);
    }

    /// Leaves the bytes of a read for the client to take with the answer.
    pub(crate) fn give(&self, number: u64, bytes: &[u8]) {
        self.slot(number).put(bytes);
    }

    /// Makes the answer to request `number` visible to the client.
    pub(crate) fn complete(&self, number: u64, answer: Answer) {
        let slot = self.slot(number);
        slot.answer.store(answer.code(), Ordering::Relaxed);
        // Answer and payload are stored before the state: the client takes them once it sees the state.
        slot.state.store(2 * number + 2, Ordering::Release);
    }

    /// The client will submit nothing more.
    pub(crate) fn close(&self) {
        // After the last request: an agent that sees this also sees that request.
        self.closed.store(true, Ordering::Release);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn payloads_of_every_length_travel_both_ways() {
        let ring = Ring::new(4, Arc::default());
        let pattern: Vec<u8> = (0..MESSAGE_BYTES_MAX).map(|i| (i * 7 + i / 256) as u8).collect();
        for (number, len) in (0..300).chain([4095, 4096, 8191, 8192]).enumerate() {
            let number = number as u64;
            let header = Header { operation: Operation::Write(Persist::Fenced), at: PmAddr::new(3, 64), len };
            assert_eq!(ring.request(number), None);
            ring.publish(number, header, &pattern[..len]);
            assert_eq!(ring.request(number), Some(header));
            let mut seen = vec![0; len];
            ring.payload(number, &mut seen);
            assert_eq!(seen, pattern[..len]);
            seen.reverse();
            ring.give(number, &seen);
            assert!(!ring.is_done(number));
            ring.complete(number, Answer::Outside);
            assert!(ring.is_done(number) && ring.request(number).is_none());
            let mut back = vec![0; len];
            assert_eq!(ring.answer(number, &mut back), Answer::Outside);
            assert_eq!(back, seen);
        }
    }

    #[test]
    fn operations_and_answers_survive_their_words() {
        let all = [Persist::Stored, Persist::Flushed, Persist::Fenced, Persist::Durable];
        let operations = all.iter().flat_map(|&persist| [Operation::Write(persist), Operation::Fence(persist)]);
        for operation in operations.chain([Operation::Read]) {
            assert_eq!(Operation::decode(operation.encode()), operation);
        }
        for answer in [Answer::Done, Answer::Outside, Answer::Unaligned, Answer::ReadOnly, Answer::Poisoned] {
            assert_eq!(Answer::decode(answer.code()), answer);
        }
    }
}
