//! The thread of a node: its member of a group, and for metadata the state that follows.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use lodestone_fabric::{
    Clock, GroupId, Moment, NodeDriver, NodeId, OPERATIONS, Receiver, Sequence, Standing, Term, Transport,
};
use lodestone_pmem::sync::{Mutex, lock};

use super::follow::{Follower, STEP};
use super::link::operation_body;
use super::pool::NodePool;
use super::status::{CopyMeter, CopyProgress};
use crate::error::{Error, Result};

/// The transport of a node.
pub(crate) type Port = Box<dyn Transport + Send>;

/// A node looks for packets so often before its sender counts as silent. A look takes up to [`STEP`], so these are a
/// fifth of a second, twice as long as a sender is ever silent.
const QUIET_LOOKS_MIN: u32 = 100;

/// The part of a node that others see.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// When the sender of its group was last heard, on the clock of the process; 0: never.
    heard_ns: AtomicU64,
    /// Looks for packets since then.
    quiet_looks: AtomicU32,
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
    copied: Mutex<CopyMeter>,
    has_ended: AtomicBool,
    error: Mutex<Option<String>>,
}

impl Seen {
    /// How long ago its sender was heard, or the node began.
    pub(crate) fn silent_ns(&self, clock: Clock) -> u64 {
        clock.now().0.saturating_sub(self.heard_ns.load(Ordering::Acquire))
    }

    /// Whether its sender was silent for so long that the node may take over, and not only because this process had no
    /// processor for a while.
    pub(crate) fn misses_sender(&self, clock: Clock, patience_ns: u64) -> bool {
        let has_looked = patience_ns == 0 || self.quiet_looks.load(Ordering::Acquire) >= QUIET_LOOKS_MIN;
        has_looked && self.silent_ns(clock) >= patience_ns
    }

    /// The sender was last heard at this moment. `is_new`: since the last look for packets.
    fn note_heard(&self, heard_ns: u64, is_new: bool) {
        self.heard_ns.fetch_max(heard_ns, Ordering::AcqRel);
        let looks = if is_new { 0 } else { self.quiet_looks.load(Ordering::Acquire).saturating_add(1) };
        self.quiet_looks.store(looks, Ordering::Release);
    }

    pub(crate) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// It has copied so many bytes of so many. With 0 of 0 it copies nothing any more.
    pub(crate) fn note_copied(&self, done: u64, all: u64) {
        lock(&self.copied).note(Instant::now(), done.min(all), all);
    }

    /// How far it is, if it copies something.
    pub(crate) fn copied(&self) -> Option<CopyProgress> {
        lock(&self.copied).progress(Instant::now()).filter(|_| !self.has_ended())
    }

    /// Why it has stopped by itself.
    pub(crate) fn error(&self) -> Option<String> {
        lock(&self.error).clone()
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
    /// The newest term that its member has promised.
    promised: Term,
    /// When its member heard the sender last.
    heard: Moment,
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
            promised,
            heard: Moment(0),
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

    /// Has the node follow from a state of its image. It lacks none from now on: until its thread has taken the state,
    /// another copy would be made over the image of this one.
    pub(crate) fn follow(&self, follower: Follower) -> Result<()> {
        self.seen.lacks_image.store(false, Ordering::Release);
        self.request(Request::Follow(Box::new(follower)))
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
                Request::Follow(follower) => self.follower = Some(follower),
            }
        }
        self.hand_over();
        Ok(())
    }

    /// Tells others how far a copy of pages is.
    fn look_at_copy(&self) {
        let (group, page_bytes, pages) = self.copies;
        let member = self.driver.receiver(group).filter(|member| member.log().standing() == Standing::Copying);
        match member.map(|member| member.copy_progress().unwrap_or((0, pages.saturating_sub(1)))) {
            Some((done, all)) => self.seen.note_copied(done * page_bytes, all * page_bytes),
            None => self.seen.note_copied(0, 0),
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
        let is_new = std::mem::replace(&mut self.heard, member.heard()) != member.heard();
        self.seen.note_heard(heard, is_new || takes_over);
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
    use super::*;

    #[test]
    fn a_node_that_was_given_an_image_lacks_none_before_its_thread_has_seen_it() {
        let (_folder, path, pool) = crate::cluster::volume_for_tests();
        drop(
            crate::cluster::Cluster::open(&path, &pool, &crate::cluster::ClusterOptions::default()).expect("replicas"),
        );
        let (options, pool) = (crate::VolumeOptions::default(), lodestone_pmem::Pool::open(&path, &pool));
        let store = lodestone_store::Store::over(&pool.expect("a pool")).expect("a store");
        let parts = crate::cluster::follow::Parts::open(&store, &options).expect("a volume");
        let (requests, arrived) = mpsc::channel();
        let node = Node { seen: Arc::default(), stop: Arc::default(), requests, thread: None };
        node.seen.lacks_image.store(true, Ordering::Release);
        node.follow(Follower::open(&parts, &options).expect("a state")).expect("it is sent");
        assert!(!node.seen.lacks_image.load(Ordering::Acquire), "another copy would be made");
        assert!(matches!(arrived.try_recv(), Ok(Request::Follow(_))));
    }

    #[test]
    fn a_sender_is_missed_only_after_looks_for_its_packets() {
        let (seen, clock) = (Seen::default(), Clock::default());
        std::thread::sleep(std::time::Duration::from_millis(2));
        // The process had no processor for all the patience: its node has not looked for packets.
        assert!(seen.misses_sender(clock, 0) && !seen.misses_sender(clock, 1_000_000));
        (0..QUIET_LOOKS_MIN).for_each(|_| seen.note_heard(0, false));
        assert!(seen.misses_sender(clock, 1_000_000), "it looked often enough");
        assert!(!seen.misses_sender(clock, u64::MAX), "and for too short a time");
        seen.note_heard(0, true);
        assert!(!seen.misses_sender(clock, 1_000_000), "something arrived");
    }

    #[test]
    fn a_copy_that_is_done_is_none() {
        let seen = Seen::default();
        assert_eq!(seen.copied(), None);
        seen.note_copied(9, 8);
        assert_eq!(seen.copied().map(|copied| (copied.done_bytes, copied.all_bytes)), Some((8, 8)));
        seen.note_copied(0, 0);
        assert_eq!(seen.copied(), None, "it is done");
    }
}
