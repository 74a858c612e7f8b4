//! The start of a metadata node: it takes the groups over, and makes a volume of its state.
//!
//! 1. Claim a term, and adopt the logs of all groups.
//! 2. Wait until the node's own state has everything that the adopted log of operations begins after: every member has
//!    that, so it comes by the node's own log.
//! 3. Execute the rest of the adopted log.
//!
//! From then on operations are executed as they are submitted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lodestone_fabric::{Clock, FLAG_BEGIN, GroupId, NodeId, OPERATIONS, Sequence};
use lodestone_pmem::Domain;
use lodestone_pmem::sync::lock;

use super::follow::{Follower, Parts};
use super::link::{Asking, End, Link, LinkParts, UNIT};
use super::machine::ORPHANS_WAIT;
use super::node::{Node, Port, Request};
use super::plan::sender_of;
use super::pool::NodePool;
use super::pump;
use crate::core::{Core, Log};
use crate::error::{Error, Result, damaged};
use crate::volume::{Volume, VolumeOptions, VolumeRecovery};

/// How long a takeover may take before it is given up.
const TAKEOVER: Duration = Duration::from_secs(20);

/// A metadata node that leads.
#[derive(Debug)]
pub(crate) struct Leading {
    pub(crate) volume: Volume,
    pub(crate) link: Arc<Link>,
    pump: Option<JoinHandle<()>>,
    /// When files without a name are freed that no mount has open: mounts elsewhere attach before.
    orphans_at: Option<Instant>,
}

/// Everything that a takeover needs.
pub(crate) struct TakeOver<'t> {
    pub(crate) meta: NodeId,
    pub(crate) parts: &'t Parts,
    pub(crate) pool: &'t NodePool,
    pub(crate) node: &'t Node,
    /// Two handles of the sender's address.
    pub(crate) ports: (Port, Port),
    pub(crate) registry: Asking,
    pub(crate) clock: Clock,
    pub(crate) options: &'t VolumeOptions,
    /// Files that users of this process have open.
    pub(crate) pins: HashMap<u64, u64>,
    /// Nodes that run.
    pub(crate) wanted: BTreeMap<GroupId, BTreeSet<NodeId>>,
    /// Replicas below which none is removed.
    pub(crate) replicas_min: usize,
    /// Becomes the last adopted operation, if that is less. Also when the takeover fails afterwards: the others are cut
    /// then, and records of this term take their numbers.
    pub(crate) kept: &'t AtomicU64,
    /// Whether files without a name stay for a while: mounts elsewhere may have them open.
    pub(crate) keeps_orphans: bool,
}

impl Leading {
    /// Takes over.
    pub(crate) fn begin(from: TakeOver<'_>) -> Result<Self> {
        let node = sender_of(from.meta);
        let (rx, tx) = from.ports;
        let link = Arc::new(Link::new(LinkParts {
            node,
            sender: from.pool.sender(node)?,
            tx,
            registry: from.registry,
            clock: from.clock,
            applied: Arc::clone(&from.node.seen.applied),
            page_bytes: from.parts.layout.page_bytes,
            // In the block domain nothing counts before a sync, and then the members' reports do.
            fences: from.pool.memory().domain() != Domain::Block,
            members_min: BTreeMap::from([(OPERATIONS, 1), (UNIT, from.replicas_min)]),
            wanted: from.wanted,
        }));
        let failed = |error| Error::Options(format!("no thread for the sender could be started: {error}"));
        let pump = pump::start(Arc::clone(&link), rx).map_err(failed)?;
        let mut leading = Unready { link: Arc::clone(&link), pump: Some(pump) };
        let (core, recovery) = adopt(&link, from.node, from.pins, from.kept)?;
        let keeps = from.keeps_orphans;
        let volume = Volume::leading(from.parts, core, Arc::clone(&link), (from.options, keeps), recovery)?;
        let orphans_at = keeps.then(|| Instant::now() + ORPHANS_WAIT);
        Ok(Self { volume, link, pump: leading.pump.take(), orphans_at })
    }

    /// Whether files without a name are to be freed now: once.
    pub(crate) fn orphans_are_due(&mut self) -> bool {
        self.orphans_at.take_if(|at| Instant::now() >= *at).is_some()
    }

    /// Stops to lead. Each thread that waits is told; nothing is written.
    pub(crate) fn end(&mut self, end: End) {
        self.link.end(end);
        if let Some(pump) = self.pump.take() {
            _ = pump.join();
        }
        // A batch that is under way ends; no other begins. Then the image may be read by the next state.
        drop(lock(&self.volume.inner.imaging));
        self.link.close();
    }
}

/// A takeover that may fail: then its thread ends.
struct Unready {
    link: Arc<Link>,
    pump: Option<JoinHandle<()>>,
}

impl Drop for Unready {
    fn drop(&mut self) {
        if let Some(pump) = self.pump.take() {
            self.link.end(End::Stopped);
            _ = pump.join();
            self.link.close();
        }
    }
}

/// Takes the state of the node, and executes what the adopted log has beyond it.
fn adopt(link: &Arc<Link>, node: &Node, pins: HashMap<u64, u64>, kept: &AtomicU64) -> Result<(Core, VolumeRecovery)> {
    link.wait_sending(TAKEOVER)?;
    let (first, base, capacity) = link.adopted();
    kept.fetch_min(base.0, Ordering::AcqRel);
    let (answer, taken) = mpsc::channel();
    node.request(Request::Take(first, answer))?;
    let follower: Box<Follower> = taken.recv_timeout(TAKEOVER).map_err(|_| {
        let finding = format!("this node's state has not come to operation {}; it needs a copy of the image", first.0);
        damaged("log of operations", finding)
    })?;
    let from = follower.taken();
    let mut recovery = VolumeRecovery::default();
    let mut state = follower.into_state();
    for number in (from.0 + 1..=base.0).map(Sequence) {
        let missing = || damaged("log of operations", format!("operation {} cannot be read", number.0));
        let (head, body) = link.operation(number)?.ok_or_else(missing)?;
        if !head.has(FLAG_BEGIN) {
            state.execute(&crate::volume::tagged_operation(&head, &body)?, number)?;
            recovery.replayed += 1;
        }
    }
    // The first record of the term comes after the adopted ones.
    let log = Log::Shared { link: Arc::clone(link), last: base.next(), capacity };
    let mut core = Core::new(state, log);
    core.pins = pins;
    core.adopted_ino = core.state.head.next_ino;
    Ok((core, recovery))
}
