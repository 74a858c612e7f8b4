//! The thread of a node: its member of a group, and for metadata the state that follows.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use lodestone_fabric::{
    Call, Clock, GroupId, Kind, NodeDriver, NodeId, OPERATIONS, Outgoing, Packet, Receiver, Sequence, Standing, Term,
    Transport, TransportCounts,
};
use lodestone_pmem::sync::{Mutex, lock};

use super::follow::{Follower, STEP};
use super::link::operation_body;
use super::pool::NodePool;
use super::status::CopyProgress;
use crate::error::{Error, Result};

/// A packet with a request for a page is shorter, also when it is sealed.
const REQUEST_BYTES_MAX: usize = 256;

/// The transport of a node.
pub(crate) type Port = Box<dyn Transport + Send>;

/// The part of a node that others see.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// When the sender of its group was last heard, on the clock of the process; 0: never.
    heard_ns: AtomicU64,
    /// Whether it counts in its group, as far as it knows.
    is_active: AtomicBool,
    /// The last operation that it has executed, while it follows.
    pub(crate) taken: AtomicU64,
    /// The last operation that its image has durably, while it leads.
    pub(crate) applied: Arc<AtomicU64>,
    /// Whether its state lacks operations that its log does not have.
    pub(crate) lacks_image: AtomicBool,
    /// Whether it joins, and its state is as far as its log.
    pub(crate) is_ready: AtomicBool,
    /// Bytes that it has copied, and all that it copies; 0: it copies nothing.
    copied: (AtomicU64, AtomicU64),
    has_ended: AtomicBool,
    error: Mutex<Option<String>>,
}

impl Seen {
    /// How long ago its sender was heard, or the node began.
    pub(crate) fn silent_ns(&self, clock: Clock) -> u64 {
        clock.now().0.saturating_sub(self.heard_ns.load(Ordering::Acquire))
    }

    pub(crate) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// It has copied so many bytes of so many. With 0 of 0 it copies nothing any more.
    pub(crate) fn note_copied(&self, done: u64, all: u64) {
        self.copied.0.store(done.min(all), Ordering::Release);
        self.copied.1.store(all, Ordering::Release);
    }

    /// How far it is, if it copies something.
    pub(crate) fn copied(&self) -> Option<CopyProgress> {
        let (done_bytes, all_bytes) = (self.copied.0.load(Ordering::Acquire), self.copied.1.load(Ordering::Acquire));
        (all_bytes > 0 && !self.has_ended())
            .then_some(CopyProgress { done_bytes: done_bytes.min(all_bytes), all_bytes })
    }

    /// Why it has stopped by itself.
    pub(crate) fn error(&self) -> Option<String> {
        lock(&self.error).clone()
    }
}

/// The transport of a node with pages, which sees how far a copy is: a member that joins asks for the first pages that
/// it lacks, in order. So it has those before the first one that it asked for last.
struct CountingPort {
    port: Port,
    /// The first page that was asked for last.
    asked: Arc<AtomicU64>,
}

impl Transport for CountingPort {
    fn send(&mut self, packets: &[Outgoing]) -> lodestone_fabric::Result<()> {
        let page = |packet: &Outgoing| {
            // Not the bytes of records: only heads are looked at of packets that are no requests.
            let packet = Some(&packet.bytes).filter(|bytes| bytes.len() < REQUEST_BYTES_MAX)?;
            let packet = Packet::decode(packet).ok().filter(|packet| packet.head.kind == Kind::Request)?;
            match Call::from_payload(packet.payload)? {
                (Call::Copy(page), ..) => Some(page),
                _ => None,
            }
        };
        if let Some(first) = packets.iter().filter_map(page).min() {
            self.asked.store(first, Ordering::Relaxed);
        }
        self.port.send(packets)
    }

    fn poll(
        &mut self,
        wait: Duration,
        most: usize,
        receive: &mut dyn FnMut(&[u8]) -> lodestone_fabric::Result<()>,
    ) -> lodestone_fabric::Result<usize> {
        self.port.poll(wait, most, receive)
    }

    fn counts(&self) -> TransportCounts {
        self.port.counts()
    }

    fn name(&self) -> &'static str {
        self.port.name()
    }
}

/// A request to the thread of a node with metadata.
pub(crate) enum Request {
    /// Hand the state over, when it has executed the operation.
    Take(Sequence, mpsc::Sender<Box<Follower>>),
    /// Follow from here on.
    Follow(Box<Follower>),
}

/// A running node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) seen: Arc<Seen>,
    stop: Arc<AtomicBool>,
    requests: mpsc::Sender<Request>,
    thread: Option<JoinHandle<()>>,
}

/// The state of the thread.
struct Running {
    driver: NodeDriver<Port>,
    is_meta: bool,
    follower: Option<Box<Follower>>,
    taking: Option<(Sequence, mpsc::Sender<Box<Follower>>)>,
    requests: mpsc::Receiver<Request>,
    seen: Arc<Seen>,
    log_bytes: u64,
    /// The group, bytes of a page, and pages.
    copies: (GroupId, u64, u64),
    /// The first page that a copy asked for last.
    asked: Arc<AtomicU64>,
    /// The newest term that its member has promised.
    promised: Term,
}

impl Node {
    /// Starts the node of `pool` on `port`.
    pub(crate) fn start(
        pool: &Arc<NodePool>,
        member: Receiver,
        port: Port,
        follower: Option<Follower>,
        clock: Clock,
    ) -> Result<Self> {
        let (node, is_meta) = (pool.head.node, pool.head.group == OPERATIONS);
        let asked = Arc::new(AtomicU64::new(0));
        let port: Port = if is_meta { port } else { Box::new(CountingPort { port, asked: Arc::clone(&asked) }) };
        let mut driver = NodeDriver::new(vec![member], port);
        if let Some(member) = driver.receiver_mut(pool.head.group).filter(|_| is_meta) {
            member.keep_after(follower.as_ref().map_or(Sequence(0), Follower::applied));
        }
        let promised = driver.receiver(pool.head.group).map_or(Term(0), |member| member.log().promised().0);
        let seen = Arc::new(Seen::default());
        seen.heard_ns.store(clock.now().0, Ordering::Release);
        let stop = Arc::new(AtomicBool::new(false));
        let (requests, receiver) = mpsc::channel();
        let mut running = Running {
            driver,
            is_meta,
            follower: follower.map(Box::new),
            taking: None,
            requests: receiver,
            seen: Arc::clone(&seen),
            log_bytes: pool.head.log_bytes,
            copies: (pool.head.group, pool.head.page_bytes.into(), pool.head.pages),
            asked,
            promised,
        };
        let (stopped, pool) = (Arc::clone(&stop), Arc::clone(pool));
        let work = move || {
            // The pool stays open as long as the thread runs.
            let _pool = pool;
            while !stopped.load(Ordering::Acquire) {
                if let Err(error) = running.step(clock) {
                    tracing::error!("{node} stops: {error}");
                    *lock(&running.seen.error) = Some(error.to_string());
                    break;
                }
            }
            running.seen.has_ended.store(true, Ordering::Release);
        };
        let failed = |error| Error::Options(format!("no thread for {node} could be started: {error}"));
        let thread = std::thread::Builder::new().name(format!("fs-node-{}", node.0)).spawn(work).map_err(failed)?;
        Ok(Self { seen, stop, requests, thread: Some(thread) })
    }

    /// Sends a request to the thread.
    pub(crate) fn request(&self, request: Request) -> Result<()> {
        self.requests.send(request).map_err(|_| Error::Gone)
    }

    /// Stops the thread at its next step. Nothing is written or closed in order.
    pub(crate) fn stop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Running {
    fn step(&mut self, clock: Clock) -> Result<()> {
        self.driver.step(STEP)?;
        if !self.is_meta {
            self.look_at_copy();
            return Ok(());
        }
        self.look(clock);
        self.follow()?;
        while let Ok(request) = self.requests.try_recv() {
            match request {
                Request::Take(sequence, answer) => self.taking = Some((sequence, answer)),
                Request::Follow(follower) => {
                    self.seen.lacks_image.store(false, Ordering::Release);
                    self.follower = Some(follower);
                }
            }
        }
        self.hand_over();
        Ok(())
    }

    /// Tells others how far a copy of pages is.
    fn look_at_copy(&self) {
        let (group, page_bytes, pages) = self.copies;
        let standing = self.driver.receiver(group).map(|member| member.log().standing());
        if standing == Some(Standing::Copying) {
            self.seen.note_copied(self.asked.load(Ordering::Relaxed) * page_bytes, pages * page_bytes);
        } else {
            self.seen.note_copied(0, 0);
        }
    }

    /// Tells others when the sender was heard.
    fn look(&mut self, clock: Clock) {
        let Some(member) = self.driver.receiver(OPERATIONS) else { return };
        let silent = self.driver.now().since(member.heard());
        let promised = member.log().promised().0;
        // A node that takes over is one that is heard: others wait for it.
        let takes_over = std::mem::replace(&mut self.promised, promised) != promised;
        let heard = clock.now().0.saturating_sub(if takes_over { 0 } else { silent });
        self.seen.heard_ns.fetch_max(heard, Ordering::AcqRel);
        self.seen.is_active.store(member.log().standing() == Standing::Active, Ordering::Release);
    }

    /// Executes what every member has.
    fn follow(&mut self) -> Result<()> {
        let Some(member) = self.driver.receiver_mut(OPERATIONS) else { return Ok(()) };
        let Some(follower) = &mut self.follower else {
            let applied = self.seen.applied.load(Ordering::Acquire);
            member.keep_after(Sequence(applied));
            return Ok(());
        };
        let is_whole = member.log().standing() != Standing::Copying;
        while is_whole && follower.taken() < member.stable() {
            let next = follower.taken().next();
            let Some(entry) = member.log().entry(next) else {
                // It was away, and all others gave up records that it lacks.
                tracing::warn!("the log lacks operation {}: the node needs a copy of the image", next.0);
                member.keep_after(Sequence(0));
                self.seen.applied.store(0, Ordering::Release);
                self.seen.is_ready.store(false, Ordering::Release);
                self.seen.lacks_image.store(true, Ordering::Release);
                self.follower = None;
                return Ok(());
            };
            follower.take(&entry.head, &operation_body(&entry.head, entry.kept))?;
        }
        self.seen.taken.store(follower.taken().0, Ordering::Release);
        self.seen.is_ready.store(member.log().standing() == Standing::Replaying, Ordering::Release);
        let lacks = member.log().bytes_after(follower.applied());
        follower.write_if_due(lacks > self.log_bytes / 2)?;
        member.keep_after(follower.applied());
        Ok(())
    }

    /// Hands the state over, if that is wanted and it is far enough.
    fn hand_over(&mut self) {
        let Some((sequence, answer)) = self.taking.take() else { return };
        match self.follower.take() {
            Some(follower) if follower.taken() >= sequence => {
                self.seen.applied.store(follower.applied().0, Ordering::Release);
                if let Err(mpsc::SendError(follower)) = answer.send(follower) {
                    // No thread waits any more.
                    self.follower = Some(follower);
                }
            }
            other => (self.follower, self.taking) = (other, Some((sequence, answer))),
        }
    }
}

/// The name of a node's part.
pub(crate) fn part_of(node: NodeId) -> &'static str {
    if super::plan::group_of(node) == OPERATIONS { "metadata" } else { "pages" }
}

#[cfg(test)]
mod tests {
    use lodestone_fabric::{PacketHead, Target};

    use super::*;

    struct Nowhere;

    impl Transport for Nowhere {
        fn send(&mut self, _: &[Outgoing]) -> lodestone_fabric::Result<()> {
            Ok(())
        }

        fn poll(
            &mut self,
            _: Duration,
            _: usize,
            _: &mut dyn FnMut(&[u8]) -> lodestone_fabric::Result<()>,
        ) -> lodestone_fabric::Result<usize> {
            Ok(0)
        }

        fn counts(&self) -> TransportCounts {
            TransportCounts::default()
        }

        fn name(&self) -> &'static str {
            "nowhere"
        }
    }

    #[test]
    fn a_copy_has_the_pages_before_the_first_one_that_it_asks_for() {
        let asked = Arc::new(AtomicU64::new(0));
        let mut port = CountingPort { port: Box::new(Nowhere), asked: Arc::clone(&asked) };
        let packet = |kind, call: Call| {
            let head = PacketHead::new(kind, GroupId(1), NodeId(101));
            Outgoing { target: Target::Node(NodeId(102)), bytes: head.packet([&call.to_payload(0), &[]]) }
        };
        let mut send = |packets: &[Outgoing]| {
            port.send(packets).expect("it is sent");
            asked.load(Ordering::Relaxed)
        };
        assert_eq!(send(&[packet(Kind::Request, Call::Copy(33)), packet(Kind::Request, Call::Copy(17))]), 17);
        assert_eq!(send(&[packet(Kind::Request, Call::Page(5)), packet(Kind::Reply, Call::Copy(6))]), 17);
        assert_eq!(send(&[packet(Kind::Request, Call::Copy(40))]), 40);
        let seen = Seen::default();
        assert_eq!(seen.copied(), None);
        seen.note_copied(9, 8);
        assert_eq!(seen.copied(), Some(CopyProgress { done_bytes: 8, all_bytes: 8 }));
        seen.note_copied(0, 0);
        assert_eq!(seen.copied(), None, "it is done");
    }
}
