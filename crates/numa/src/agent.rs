//! The thread of one agent: it takes requests, carries them out on its node, and answers.
//!
//! A turn:
//!
//! 1. The agent looks at every client's ring in order. From each it carries out up to a batch of requests, in the order
//!    in which the client submitted them. Reads, and writes that need no fence, are answered at once.
//! 2. If some requests ask for more, one fence serves all of them: it covers everything that this thread flushed
//!    before. Requests that need only the fence are answered then. One wait for durability serves the rest.
//! 3. One full barrier follows. Then every client that received an answer and sleeps is woken.
//!
//! A turn without work is repeated a number of times (spinning). Then the thread sleeps until a client publishes a
//! request, a ring is added, or the agents are stopped.
//!
//! Invariants:
//! - the agent touches no ring after its life has ended (`Stopped`, `Dead`). A request that is then still unanswered
//!   was not carried out by a stopped agent;
//! - requests submitted before the stop are carried out before the life ends;
//! - however the thread ends, its life says so and every client is woken: no thread waits for ever.

use std::sync::{Arc, PoisonError};

use lodestone_pmem::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use lodestone_pmem::sync::{Mutex, lock};
use lodestone_pmem::{LINE_BYTES, Memory, PmAddr, planted};
use lodestone_width::to_u64;

use crate::agents::Observer;
use crate::counts::{AgentCounts, Published};
use crate::parker::Parker;
use crate::patience::Patience;
use crate::ring::{Answer, Header, MESSAGE_BYTES_MAX, Operation, Persist, Ring};

/// A request, as an observer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// Index of the agent's node.
    pub node: usize,
    /// The operation.
    pub operation: Operation,
    /// The address.
    pub at: PmAddr,
    /// Bytes.
    pub len: usize,
}

/// The state of an agent's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Running,
    /// It ended in order.
    Stopped,
    /// It panicked.
    Dead,
}

impl Life {
    const fn code(self) -> u64 {
        match self {
            Self::Running => 0,
            Self::Stopped => 1,
            Self::Dead => 2,
        }
    }
}

/// The state that an agent and its clients share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) node: usize,
    pub(crate) parker: Parker,
    life: AtomicU64,
    stop: AtomicBool,
    rings: Mutex<Vec<Arc<Ring>>>,
    /// Counts the rings that were added.
    rings_added: AtomicU64,
    pub(crate) counts: Published,
    /// Why the thread died.
    pub(crate) cause: Mutex<Option<String>>,
}

impl Shared {
    pub(crate) fn new(node: usize) -> Self {
        Self {
            node,
            parker: Parker::default(),
            life: AtomicU64::new(Life::Running.code()),
            stop: AtomicBool::new(false),
            rings: Mutex::new(Vec::new()),
            rings_added: AtomicU64::new(0),
            counts: Published::default(),
            cause: Mutex::new(None),
        }
    }

    pub(crate) fn life(&self) -> Life {
        match self.life.load(Ordering::SeqCst) {
            0 => Life::Running,
            1 => Life::Stopped,
            _ => Life::Dead,
        }
    }

    /// Passes a new ring to the agent. If the agent's life has ended, [`life`](Self::life) says so.
    pub(crate) fn add(&self, ring: Arc<Ring>) {
        lock(&self.rings).push(ring);
        self.rings_added.fetch_add(1, Ordering::Release);
        self.parker.wake();
    }

    /// Asks the agent to end after it has carried out everything submitted so far.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.parker.wake();
    }

    /// Ends the life and wakes every client.
    fn end(&self, life: Life) {
        self.life.store(life.code(), Ordering::SeqCst);
        fence(Ordering::SeqCst);
        for ring in self.rings.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            ring.client.wake_after_barrier();
        }
    }
}

/// Ends the life of the agent, however its thread ends.
struct LifeGuard<'a> {
    shared: &'a Shared,
    life: Life,
}

impl Drop for LifeGuard<'_> {
    fn drop(&mut self) {
        if self.life == Life::Dead {
            *lock(&self.shared.cause) = Some("its thread panicked; the message is on standard error".into());
        }
        self.shared.end(self.life);
    }
}

/// One client as the agent sees it.
struct Served {
    ring: Arc<Ring>,
    /// Number of the next request.
    next: u64,
}

/// The agent's thread.
pub(crate) struct Agent<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) memory: &'a Memory,
    pub(crate) batch_max: usize,
    pub(crate) patience: Patience,
    pub(crate) observer: Option<Arc<Observer>>,
}

/// The thread's private state.
struct State {
    served: Vec<Served>,
    rings_seen: u64,
    counts: AgentCounts,
    /// Requests that are carried out and wait for the fence: client, number, and the durability asked for.
    pending: Vec<(usize, u64, Persist)>,
    /// Clients that received an answer in this turn.
    answered: Vec<usize>,
    buffer: Box<[u8; MESSAGE_BYTES_MAX]>,
}

impl Agent<'_> {
    /// Serves until the agents are stopped.
    pub(crate) fn run(&self) {
        let mut guard = LifeGuard { shared: self.shared, life: Life::Dead };
        let mut state = State {
            served: Vec::new(),
            rings_seen: 0,
            counts: AgentCounts::default(),
            pending: Vec::new(),
            answered: Vec::new(),
            buffer: Box::new([0; MESSAGE_BYTES_MAX]),
        };
        let (mut idle, mut patience) = (0, self.patience.clone());
        loop {
            // Loaded before looking for work, so that the look sees every request submitted before the stop.
            let stop = self.shared.stop.load(Ordering::Acquire);
            if stop && planted::active("numa-stop-drops-requests") {
                break;
            }
            self.adopt(&mut state);
            let done = self.turn(&mut state);
            self.shared.counts.publish(&state.counts);
            if done > 0 {
                idle = 0;
            } else if stop {
                break;
            } else if patience.has_more(idle) {
                idle += 1;
                patience.spin(idle);
            } else {
                patience.sleeps();
                state.counts.parks += 1;
                self.shared.parker.park_until(|| self.has_work(&state));
                idle = 0;
            }
        }
        guard.life = Life::Stopped;
    }

    fn has_work(&self, state: &State) -> bool {
        self.shared.stop.load(Ordering::Acquire)
            || self.shared.rings_added.load(Ordering::Acquire) != state.rings_seen
            || state.served.iter().any(|served| served.ring.request(served.next).is_some() || served.ring.is_closed())
    }

    /// Adopts rings that were added. Drops those that are empty and whose client has gone.
    fn adopt(&self, state: &mut State) {
        let added = self.shared.rings_added.load(Ordering::Acquire);
        let gone = |served: &Served| served.ring.is_closed() && served.ring.request(served.next).is_none();
        if added == state.rings_seen && !state.served.iter().any(gone) {
            return;
        }
        let mut rings = lock(&self.shared.rings);
        let known = std::mem::take(&mut state.served);
        state.served = rings
            .iter()
            .map(|ring| {
                let next = known.iter().find(|served| Arc::ptr_eq(&served.ring, ring)).map_or(0, |served| served.next);
                Served { ring: ring.clone(), next }
            })
            .collect();
        state.served.retain(|served| !gone(served));
        rings.retain(|ring| state.served.iter().any(|served| Arc::ptr_eq(&served.ring, ring)));
        state.rings_seen = added;
    }

    /// One turn over all rings. Returns the number of requests carried out.
    fn turn(&self, state: &mut State) -> usize {
        let mut done = 0;
        for client in 0..state.served.len() {
            let mut taken = 0;
            while taken < self.batch_max {
                let Served { ring, next } = &state.served[client];
                let (ring, number) = (ring.clone(), *next);
                let Some(header) = ring.request(number) else { break };
                state.served[client].next = number + 1;
                taken += 1;
                self.serve(state, client, &ring, number, header);
            }
            done += taken;
        }
        if done == 0 {
            return 0;
        }
        state.counts.batches += 1;
        state.counts.messages += to_u64(done);
        self.settle(state);
        fence(Ordering::SeqCst);
        for client in state.answered.drain(..) {
            state.counts.wakes += u64::from(state.served[client].ring.client.wake_after_barrier());
        }
        done
    }

    /// Carries one request out, and answers it unless it waits for a fence.
    fn serve(&self, state: &mut State, client: usize, ring: &Ring, number: u64, header: Header) {
        if let Some(observer) = &self.observer {
            let Header { operation, at, len } = header;
            observer(&Request { node: self.shared.node, operation, at, len });
        }
        let answer = self.refuse(&header).unwrap_or(Answer::Done);
        let bytes = &mut state.buffer[..header.len];
        match header.operation {
            _ if answer != Answer::Done => state.counts.refused += 1,
            Operation::Read => {
                self.memory.read(header.at, bytes);
                ring.give(number, bytes);
                state.counts.reads += 1;
                state.counts.bytes_read += to_u64(bytes.len());
            }
            Operation::Write(persist) => {
                ring.payload(number, bytes);
                put(self.memory, header.at, bytes, persist);
                state.counts.writes += 1;
                state.counts.bytes_written += to_u64(bytes.len());
            }
            Operation::Fence(_) => {}
        }
        let persist = header.operation.wants();
        if answer == Answer::Done && persist >= Persist::Fenced {
            if planted::active("numa-answer-before-fence") {
                ring.complete(number, answer);
                ring.client.wake();
            }
            state.pending.push((client, number, persist));
            return;
        }
        ring.complete(number, answer);
        note(&mut state.answered, client);
    }

    /// The refusal of a request that would make the memory panic.
    fn refuse(&self, header: &Header) -> Option<Answer> {
        let writes = matches!(header.operation, Operation::Write(_));
        if matches!(header.operation, Operation::Fence(_)) {
            return None;
        }
        if writes && self.memory.is_read_only() {
            return Some(Answer::ReadOnly);
        }
        if !header.at.offset().is_multiple_of(lodestone_pmem::WORD_BYTES) {
            return Some(Answer::Unaligned);
        }
        let words = to_u64(header.len).next_multiple_of(lodestone_pmem::WORD_BYTES);
        (!self.memory.contains(header.at, words)).then_some(Answer::Outside)
    }

    /// Fences, and waits for durability, once for all requests that ask for it. Then answers them.
    fn settle(&self, state: &mut State) {
        if state.pending.is_empty() {
            return;
        }
        // An answer may not overtake the write that it acknowledges. This thread flushed or streamed all writes of this
        // turn.
        self.memory.fence();
        state.counts.fences += 1;
        let mut pending = std::mem::take(&mut state.pending);
        for &(client, number, _) in pending.iter().filter(|(_, _, persist)| *persist == Persist::Fenced) {
            state.served[client].ring.complete(number, Answer::Done);
            note(&mut state.answered, client);
        }
        pending.retain(|(_, _, persist)| *persist == Persist::Durable);
        if !pending.is_empty() {
            state.counts.durables += 1;
            let answer = if self.memory.durable().is_ok() { Answer::Done } else { Answer::Poisoned };
            for &(client, number, _) in &pending {
                state.served[client].ring.complete(number, answer);
                note(&mut state.answered, client);
            }
        }
        pending.clear();
        state.pending = pending;
    }
}

/// Writes `bytes` and, unless they are only to be stored, starts their write-back. Whole lines go around the cache,
/// because on persistent memory an ordinary store to a line that is not cached reads it first. On return the bytes are
/// visible before any answer, even before one that waits for no fence. The caller fences if they must be persistent.
pub(crate) fn put(memory: &Memory, at: PmAddr, bytes: &[u8], persist: Persist) {
    let whole_lines = at.offset().is_multiple_of(LINE_BYTES) && to_u64(bytes.len()) >= LINE_BYTES;
    match persist {
        Persist::Stored => memory.write(at, bytes),
        _ if whole_lines => memory.stream(at, bytes),
        _ => memory.write_back(at, bytes),
    }
}

fn note(answered: &mut Vec<usize>, client: usize) {
    if answered.last() != Some(&client) && !answered.contains(&client) {
        answered.push(client);
    }
}
