//! The client of one thread: requests to agents, their answers, and direct accesses.
//!
//! 1. The node of a part and the client's [`Access`] decide how an access goes. The client's own node and parts of
//!    unknown node are always accessed directly.
//! 2. A request goes into the next slot of the ring to that node's agent (made on first use). If the slot still holds
//!    an answer that was not taken, the answer is set aside. If it holds a request in flight, the client waits for it
//!    (back-pressure).
//! 3. A wait spins for a while, then sleeps. If the agent has stopped or died, the wait ends with an error.
//!
//! Invariants:
//! - requests to one agent are submitted, and hence carried out, in the order of the calls;
//! - a ticket's answer is kept until it is waited for, or the client is dropped.

use std::collections::HashMap;
use std::sync::Arc;

use lodestone_pmem::sync::atomic::{Ordering, fence};
use lodestone_pmem::{PmAddr, WORD_BYTES};
use lodestone_width::{to_u64, to_usize};

use crate::agent::{Life, Shared, put};
use crate::agents::{Inner, cause_of};
use crate::counts::ClientCounts;
use crate::error::{Error, Result};
use crate::parker::Parker;
use crate::patience::Patience;
use crate::ring::{Answer, Header, MESSAGE_BYTES_MAX, Operation, Persist, Ring};

const OUTSIDE: &str = "the range does not lie inside a part of the memory";
const UNALIGNED: &str = "the range does not start at a multiple of 8";

/// How an access reaches another node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// The client's thread accesses the memory itself.
    Direct,
    /// Through the node's agent; an error if there is none.
    Agent,
    /// The cheaper way by the agents' [`Costs`](crate::Costs); directly if there is no agent.
    #[default]
    Auto,
}

/// A request in flight.
#[derive(Debug)]
#[must_use = "only waiting for the ticket reports an error"]
pub struct Completion {
    /// Node and number of the request; `None` if it is done already.
    request: Option<(usize, u64)>,
    /// The bytes of a direct read.
    bytes: Vec<u8>,
    len: usize,
}

/// The connection to one agent.
#[derive(Debug)]
struct Link {
    agent: Arc<Shared>,
    ring: Arc<Ring>,
    /// Number of the next request.
    next: u64,
    /// By slot: the request whose answer was not taken yet.
    open: Vec<Option<(u64, Header)>>,
    /// Answers that had to leave their slot.
    aside: HashMap<u64, Result<Vec<u8>>>,
    /// The last write that may not be fenced yet, and the last that may not be durable yet.
    unfenced: Option<u64>,
    undurable: Option<u64>,
}

impl Link {
    /// Whether the agent has written something for which `persist` may not hold yet.
    fn owes(&self, persist: Persist) -> bool {
        match persist {
            Persist::Stored | Persist::Flushed => false,
            Persist::Fenced => self.unfenced.is_some(),
            Persist::Durable => self.undurable.is_some() || self.unfenced.is_some(),
        }
    }

    /// Request `number` is done: the same fence, and the same durability, cover the agent's earlier work.
    fn settle(&mut self, number: u64, persist: Persist) {
        let settled = |last: Option<u64>, level| last.filter(|last| persist < level || *last > number);
        self.unfenced = settled(self.unfenced, Persist::Fenced);
        self.undurable = settled(self.undurable, Persist::Durable);
    }
}

/// One thread's access to the memory through agents. Made by [`Agents::client`](crate::Agents::client).
#[derive(Debug)]
pub struct Client {
    inner: Arc<Inner>,
    node: usize,
    access: Access,
    links: Vec<Option<Link>>,
    parker: Arc<Parker>,
    patience: Patience,
    counts: ClientCounts,
}

impl Client {
    pub(crate) fn new(inner: Arc<Inner>, node: usize) -> Self {
        let links = inner.agents.iter().map(|_| None).collect();
        let (access, counts) = (Access::default(), ClientCounts::default());
        let patience = inner.patience.clone();
        Self { inner, node, access, links, parker: Arc::default(), patience, counts }
    }

    /// Index of the client's node.
    #[must_use]
    pub fn node(&self) -> usize {
        self.node
    }

    /// Sets the way of all further accesses.
    pub fn set_access(&mut self, access: Access) {
        self.access = access;
    }

    /// The counts of this client so far.
    #[must_use]
    pub fn counts(&self) -> ClientCounts {
        self.counts
    }

    /// Reads `out.len()` bytes from `at`, of any length. With a concurrent writer the result may be a mixture of words.
    ///
    /// # Errors
    /// If the range is outside the memory or does not start at a word, or if the agent is missing.
    pub fn read(&mut self, at: PmAddr, out: &mut [u8]) -> Result<()> {
        self.read_many(&mut [(at, out)])
    }

    /// Writes `bytes` at `at`, of any length. On return `persist` holds. The last word is padded with zeroes.
    ///
    /// # Errors
    /// As [`read`](Self::read), and if the memory is read-only or could not be made durable. A write that fails may
    /// have been carried out in part.
    pub fn write(&mut self, at: PmAddr, bytes: &[u8], persist: Persist) -> Result<()> {
        self.write_many(&[(at, bytes)], persist)
    }

    /// Reads several ranges; those of different nodes at the same time.
    ///
    /// # Errors
    /// As [`read`](Self::read): the first error, after every request has ended.
    pub fn read_many(&mut self, ranges: &mut [(PmAddr, &mut [u8])]) -> Result<()> {
        let mut first_error = None;
        let mut tickets = Vec::new();
        for (index, (at, out)) in ranges.iter().enumerate() {
            for start in (0..out.len()).step_by(MESSAGE_BYTES_MAX) {
                let len = (out.len() - start).min(MESSAGE_BYTES_MAX);
                match self.submit_read(at.plus(to_u64(start)), len) {
                    Ok(ticket) => tickets.push((index, start, ticket)),
                    Err(error) => first_error = first_error.or(Some(error)),
                }
            }
        }
        for (index, start, ticket) in tickets {
            let len = ticket.len;
            if let Err(error) = self.wait_read(ticket, &mut ranges[index].1[start..start + len]) {
                first_error = first_error.or(Some(error));
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Writes several ranges, to each node in the order given. On return `persist` holds for all of them. There is one
    /// fence per node, however many ranges.
    ///
    /// # Errors
    /// As [`write`](Self::write): the first error, after every request has ended.
    pub fn write_many(&mut self, ranges: &[(PmAddr, &[u8])], persist: Persist) -> Result<()> {
        let mut first_error = None;
        let mut pieces: Vec<(PmAddr, &[u8])> = Vec::new();
        for (at, bytes) in ranges {
            let pairs = bytes.chunks(MESSAGE_BYTES_MAX).enumerate();
            pieces.extend(pairs.map(|(piece, bytes)| (at.plus(to_u64(piece * MESSAGE_BYTES_MAX)), bytes)));
        }
        let targets: Vec<Option<usize>> = pieces
            .iter()
            .map(|(at, bytes)| self.agent_for(*at, bytes.len(), Operation::Write(persist)))
            .collect::<Result<_>>()?;
        let mut tickets = Vec::new();
        for (index, (at, bytes)) in pieces.iter().enumerate() {
            // For each node, the fence of its last write also covers the earlier ones.
            let is_last = !targets[index + 1..].contains(&targets[index]);
            let wanted = if is_last { persist } else { persist.min(Persist::Flushed) };
            match self.submit_to(targets[index], *at, bytes, bytes.len(), Operation::Write(wanted)) {
                Ok(ticket) => tickets.push(ticket),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        for ticket in tickets {
            if let Err(error) = self.wait(ticket) {
                first_error = first_error.or(Some(error));
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Fences (and makes durable, if asked) everything that agents and the client itself have flushed for this client.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn fence(&mut self, persist: Persist) -> Result<()> {
        let mut tickets = Vec::new();
        for node in 0..self.links.len() {
            if self.links[node].as_ref().is_some_and(|link| link.owes(persist)) {
                tickets.push(self.submit_to(Some(node), PmAddr::NULL, &[], 0, Operation::Fence(persist))?);
            }
        }
        if persist >= Persist::Fenced {
            // Flushes by this thread itself: no agent's fence covers them.
            self.inner.memory.fence();
        }
        if persist == Persist::Durable {
            self.inner.memory.durable()?;
        }
        tickets.into_iter().try_for_each(|ticket| self.wait(ticket))
    }

    /// Submits a read of up to [`MESSAGE_BYTES_MAX`] bytes. [`wait_read`](Self::wait_read) returns them.
    ///
    /// # Errors
    /// If it is too long, if there is no agent, or if the ring is full and its oldest request ends with a dead agent.
    pub fn submit_read(&mut self, at: PmAddr, len: usize) -> Result<Completion> {
        let target = self.agent_for(at, len, Operation::Read)?;
        self.submit_to(target, at, &[], len, Operation::Read)
    }

    /// Submits a write of up to [`MESSAGE_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// As [`submit_read`](Self::submit_read).
    pub fn submit_write(&mut self, at: PmAddr, bytes: &[u8], persist: Persist) -> Result<Completion> {
        let operation = Operation::Write(persist);
        let target = self.agent_for(at, bytes.len(), operation)?;
        self.submit_to(target, at, bytes, bytes.len(), operation)
    }

    /// Whether waiting for `ticket` would return at once.
    #[must_use]
    pub fn is_done(&self, ticket: &Completion) -> bool {
        let Some((node, number)) = ticket.request else { return true };
        let Some(link) = &self.links[node] else { return true };
        link.aside.contains_key(&number) || link.ring.is_done(number) || link.agent.life() != Life::Running
    }

    /// Waits until the request has ended.
    ///
    /// # Errors
    /// The error with which the request ended.
    pub fn wait(&mut self, ticket: Completion) -> Result<()> {
        self.finish(ticket).map(drop)
    }

    /// Waits for a read and copies its bytes to `out`, as far as they fit.
    ///
    /// # Errors
    /// The error with which the request ended.
    pub fn wait_read(&mut self, ticket: Completion, out: &mut [u8]) -> Result<()> {
        let bytes = self.finish(ticket)?;
        let len = bytes.len().min(out.len());
        out[..len].copy_from_slice(&bytes[..len]);
        Ok(())
    }

    /// The node whose agent takes this access; `None`: the client accesses the memory itself.
    fn agent_for(&self, at: PmAddr, len: usize, operation: Operation) -> Result<Option<usize>> {
        let node = self.inner.part_nodes.get(usize::from(at.part())).copied().flatten();
        let Some(node) = node.filter(|node| *node != self.node) else { return Ok(None) };
        let Err(reason) = &self.inner.agents[node] else {
            let costs = &self.inner.costs;
            let pays = match (self.access, operation) {
                (Access::Direct, _) => false,
                (Access::Agent, _) => true,
                (Access::Auto, Operation::Read) => costs.read_by_agent(to_u64(len)),
                (Access::Auto, _) => costs.write_by_agent(to_u64(len)),
            };
            return Ok(pays.then_some(node));
        };
        match self.access {
            Access::Agent => Err(Error::NoAgent { node, reason: reason.clone() }),
            Access::Direct | Access::Auto => Ok(None),
        }
    }

    fn submit_to(
        &mut self,
        target: Option<usize>,
        at: PmAddr,
        bytes: &[u8],
        len: usize,
        operation: Operation,
    ) -> Result<Completion> {
        if len > MESSAGE_BYTES_MAX {
            return Err(Error::Invalid {
                what: "request",
                finding: format!("{len} bytes"),
                hint: "submit at most 8192 bytes at once; read and write take any length",
            });
        }
        let Some(node) = target else { return self.go(at, bytes, len, operation) };
        self.make_link(node)?;
        self.make_room(node)?;
        let Some(link) = &mut self.links[node] else { return Err(Error::Stopped { node }) };
        let number = link.next;
        link.next += 1;
        let slot = to_usize(number % link.ring.capacity());
        let header = Header { operation, at, len };
        link.open[slot] = Some((number, header));
        if let Operation::Write(wanted) = operation {
            // Kept until the answer shows more: a write that asks for a fence may be refused.
            link.unfenced = Some(number).filter(|_| wanted < Persist::Fenced).or(link.unfenced);
            link.undurable = Some(number).filter(|_| wanted < Persist::Durable).or(link.undurable);
        }
        link.ring.publish(number, header, bytes);
        fence(Ordering::SeqCst);
        self.counts.wakes += u64::from(link.agent.parker.wake_after_barrier());
        self.counts.messages += 1;
        Ok(Completion { request: Some((node, number)), bytes: Vec::new(), len })
    }

    /// Connects to the agent of `node` on first use.
    fn make_link(&mut self, node: usize) -> Result<()> {
        if self.links[node].is_some() {
            return Ok(());
        }
        let agent = match &self.inner.agents[node] {
            Ok(agent) => agent.clone(),
            Err(reason) => return Err(Error::NoAgent { node, reason: reason.clone() }),
        };
        let ring = Arc::new(Ring::new(self.inner.ring_slots, self.parker.clone()));
        agent.add(ring.clone());
        let open = vec![None; self.inner.ring_slots];
        self.links[node] =
            Some(Link { agent, ring, next: 0, open, aside: HashMap::new(), unfenced: None, undurable: None });
        Ok(())
    }

    /// Frees the slot of the next request to `node`.
    fn make_room(&mut self, node: usize) -> Result<()> {
        let Some(link) = &self.links[node] else { return Ok(()) };
        let slot = to_usize(link.next % link.ring.capacity());
        let Some((number, _)) = link.open[slot] else { return Ok(()) };
        if !link.ring.is_done(number) {
            self.counts.full_waits += 1;
        }
        let ended = self.take(node, number);
        let lost = matches!(&ended, Err(Error::Stopped { .. } | Error::AgentDied { .. }));
        let Some(link) = &mut self.links[node] else { return Ok(()) };
        link.aside.insert(number, ended);
        if lost { Err(self.gone(node)) } else { Ok(()) }
    }

    /// The result of a ticket's request.
    fn finish(&mut self, ticket: Completion) -> Result<Vec<u8>> {
        let Some((node, number)) = ticket.request else { return Ok(ticket.bytes) };
        if let Some(link) = &mut self.links[node]
            && let Some(ended) = link.aside.remove(&number)
        {
            return ended;
        }
        self.take(node, number)
    }

    /// Waits for request `number` of the agent of `node` and takes its answer out of the slot.
    fn take(&mut self, node: usize, number: u64) -> Result<Vec<u8>> {
        let Some(link) = &mut self.links[node] else { return Err(Error::Stopped { node }) };
        let slot = to_usize(number % link.ring.capacity());
        let Header { operation, at, len } = match link.open[slot] {
            Some((open, header)) if open == number => header,
            _ => return Err(invalid_ticket()),
        };
        let mut spins = 0;
        let ended = |link: &Link| link.ring.is_done(number) || link.agent.life() != Life::Running;
        while !link.ring.is_done(number) {
            if self.patience.has_more(spins) {
                spins += 1;
                self.patience.spin(spins);
                if spins % 64 == 0 && ended(link) {
                    break;
                }
                continue;
            }
            self.patience.sleeps();
            self.counts.parks += 1;
            self.parker.park_until(|| ended(link));
            break;
        }
        // Checked after the agent's life: a stopped agent touches no ring, so the result is final.
        if !link.ring.is_done(number) {
            return Err(self.gone(node));
        }
        link.open[slot] = None;
        let mut bytes = vec![0; if operation == Operation::Read { len } else { 0 }];
        match link.ring.answer(number, &mut bytes) {
            Answer::Done => {
                link.settle(number, operation.wants());
                Ok(bytes)
            }
            Answer::Outside => Err(Error::BadRange { at, len: to_u64(len), finding: OUTSIDE }),
            Answer::Unaligned => Err(Error::BadRange { at, len: to_u64(len), finding: UNALIGNED }),
            Answer::ReadOnly => Err(Error::ReadOnly),
            Answer::Poisoned => Err(Error::Poisoned { node }),
        }
    }

    /// The error for an agent that has ended.
    fn gone(&self, node: usize) -> Error {
        match &self.inner.agents[node] {
            Ok(shared) if shared.life() == Life::Dead => Error::AgentDied { node, cause: cause_of(shared) },
            Ok(_) => Error::Stopped { node },
            Err(reason) => Error::NoAgent { node, reason: reason.clone() },
        }
    }

    /// An access by the client's own thread.
    fn go(&mut self, at: PmAddr, bytes: &[u8], len: usize, operation: Operation) -> Result<Completion> {
        let memory = &self.inner.memory;
        if matches!(operation, Operation::Write(_)) && memory.is_read_only() {
            return Err(Error::ReadOnly);
        }
        if !at.offset().is_multiple_of(WORD_BYTES) {
            return Err(Error::BadRange { at, len: to_u64(len), finding: UNALIGNED });
        }
        if !memory.contains(at, to_u64(len).next_multiple_of(WORD_BYTES)) {
            return Err(Error::BadRange { at, len: to_u64(len), finding: OUTSIDE });
        }
        self.counts.direct += 1;
        let part = usize::from(at.part());
        let is_remote = self.inner.part_nodes.get(part).copied().flatten().is_some_and(|node| node != self.node);
        self.counts.direct_remote += u64::from(is_remote);
        let mut found = Vec::new();
        match operation {
            Operation::Read => {
                found.resize(len, 0);
                memory.read(at, &mut found);
            }
            Operation::Write(persist) => put(memory, at, bytes, persist),
            Operation::Fence(_) => {}
        }
        if operation.wants() >= Persist::Fenced {
            // The acknowledgement may not overtake the write.
            memory.fence();
        }
        if operation.wants() == Persist::Durable {
            memory.durable()?;
        }
        Ok(Completion { request: None, bytes: found, len })
    }
}

fn invalid_ticket() -> Error {
    let finding = "it is not of this client, or was waited for".into();
    Error::Invalid { what: "ticket", finding, hint: "wait for a ticket once, at the client that returned it" }
}

impl Drop for Client {
    fn drop(&mut self) {
        for link in self.links.iter().flatten() {
            link.ring.close();
            link.agent.parker.wake();
        }
    }
}
