//! Bytes for a client, which leave when what they tell is durable.

use std::collections::VecDeque;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use bytes::{Buf, BytesMut};
use lodestone_engine::Ticket;

type Acknowledgement = <Ticket<()> as IntoFuture>::IntoFuture;

/// Bytes, and the places that wait for something to be durable.
#[derive(Default)]
pub struct Out {
    pub bytes: BytesMut,
    /// Bytes that left before.
    left: u64,
    /// From which byte on what must be durable.
    gates: VecDeque<(u64, Acknowledgement)>,
    /// Bytes before this number are whole messages, and those that wait for something know it.
    whole: u64,
    /// The buffer has been longer than an idle client needs.
    is_long: bool,
}

/// Bytes of the buffer that an idle client keeps.
const IDLE_BYTES_MAX: usize = 4 << 10;

impl Out {
    /// The number of the next byte.
    pub fn end(&self) -> u64 {
        self.left + lodestone_width::to_u64(self.bytes.len())
    }

    /// Forgets the bytes from number `from` on, none of which has left: their statement runs again.
    pub fn take_back(&mut self, from: u64) {
        self.bytes.truncate(usize::try_from(from.saturating_sub(self.left)).unwrap_or(usize::MAX));
    }

    /// All bytes are whole messages now.
    pub fn note_whole(&mut self) {
        self.whole = self.end();
    }

    /// Forgets the bytes of an answer that a panic has cut. None of them has left: they leave when they are whole.
    pub fn take_back_broken(&mut self) {
        self.take_back(self.whole);
    }

    /// Bytes from number `from` on wait for `tickets`.
    pub fn gate(&mut self, from: u64, tickets: Vec<Ticket<()>>) {
        // A byte that left already cannot wait: the machine gates an answer before anybody sends it.
        self.gates.extend(tickets.into_iter().map(|ticket| (from.max(self.left), ticket.into_future())));
    }

    /// The bytes that may leave. The waker of `task` is called when there may be more.
    ///
    /// # Errors
    /// When the medium failed: nothing after this place is true.
    pub fn ready(&mut self, task: &mut Context<'_>) -> Result<&[u8], lodestone_engine::Error> {
        while let Some((from, gate)) = self.gates.front_mut() {
            match Pin::new(gate).poll(task) {
                Poll::Ready(Ok(())) => drop(self.gates.pop_front()),
                Poll::Ready(Err(error)) => {
                    let keep = usize::try_from(*from - self.left).unwrap_or(0);
                    self.bytes.truncate(keep);
                    self.gates.clear();
                    return Err(error);
                }
                Poll::Pending => break,
            }
        }
        let end = self.gates.front().map_or(self.bytes.len(), |(from, _)| {
            usize::try_from(*from - self.left).unwrap_or(usize::MAX).min(self.bytes.len())
        });
        Ok(&self.bytes[..end])
    }

    /// Waits until all bytes may leave.
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    pub fn wait(&mut self) -> Result<(), lodestone_engine::Error> {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut task = Context::from_waker(&waker);
        loop {
            self.ready(&mut task)?;
            if self.gates.is_empty() {
                return Ok(());
            }
            std::thread::park();
        }
    }

    /// `count` bytes left.
    pub fn leave(&mut self, count: usize) {
        self.is_long |= self.bytes.len() > IDLE_BYTES_MAX;
        self.bytes.advance(count);
        self.left += lodestone_width::to_u64(count);
        if self.is_long && self.bytes.is_empty() {
            (self.bytes, self.is_long) = (BytesMut::new(), false);
        }
    }

    /// Whether something still waits to become durable.
    pub fn is_waiting(&self) -> bool {
        !self.gates.is_empty()
    }
}

/// Wakes a thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
