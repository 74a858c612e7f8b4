//! The metadata node's way to its replicas and standbys: one sender of all groups, its transport, and who waits for it.
//!
//! 1. *Submit*, under the lock of the volume: the operation and its pages get their places in the rings, are sent, and
//!    are fenced here (not in the `block` domain, where nothing counts before a sync).
//! 2. A thread takes reports and answers in, and does what is due ([`pump`](super::pump)). It wakes those who wait.
//! 3. *Wait*: for the quorums of an operation, for the replicas that must have a record before its pages are used
//!    again, for pages of a read ([`read`](super::read)).
//!
//! Invariants:
//! - the lock of the volume comes before the lock here. Nothing that holds this one takes that one;
//! - after the end of the link, which is for good, nothing is submitted or acknowledged.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use lodestone_fabric::{
    BODY_BYTES_MAX, Clock, FLAG_SYNC, GroupId, Leader, Moment, NodeId, OPERATIONS, Outbound, Outbox, PAIR_BYTES,
    PagePair, Payload, Payloads, Reads, RecordHead, Registry, Ring, Sender, SenderOptions, Sequence, Submission, Term,
    Transport, VolumeSender, pages_body,
};
use lodestone_pmem::sync::{Condvar, Mutex, MutexGuard, lock};
use lodestone_pmem::{Memory, PmAddr, planted};
use lodestone_registry::RegistryThread;
use lodestone_width::{to_u64, to_usize};

use crate::error::{Error, Result};
use crate::extents::Run;
use crate::patience::Wait;

/// The unit of all pages.
pub(crate) const UNIT: GroupId = GroupId(1);
/// How long a caller without a [`Patience`](crate::Patience) waits for a quorum.
pub(crate) const QUORUM_WAIT: Duration = Duration::from_secs(30);
/// Bytes of a ring that is never used.
const NO_RING_BYTES: u64 = 64 << 10;
/// A wait looks again after so long, and asks once more.
const LOOK: Duration = Duration::from_millis(10);

/// The registry of a volume, which the nodes of a process share.
pub(crate) type SharedRegistry = Arc<Mutex<Box<dyn Registry + Send>>>;

/// How a sender asks the registry.
pub(crate) enum Asking {
    /// In its own thread: the registry is in this process.
    Here(SharedRegistry),
    /// In another one: the registry is elsewhere, and nothing waits for it.
    Elsewhere(RegistryThread),
}

/// Why a link has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The node was stopped.
    Stopped,
    /// Another node has a newer term.
    Deposed(Term),
    /// A device or a socket of this node failed.
    Failed,
}

/// An operation to submit.
pub(crate) struct Submitted<'o> {
    pub(crate) code: u16,
    pub(crate) ino: u64,
    pub(crate) at: i64,
    pub(crate) body: &'o [u8],
    /// Runs of pages, and their content.
    pub(crate) pages: &'o [(Run, &'o [u8])],
    /// Whether a caller will wait for it soon.
    pub(crate) is_sync: bool,
    /// Whether the pages are in use: they are written again with the content that they have.
    pub(crate) mends: bool,
}

/// The state that the lock guards.
pub(crate) struct Sending {
    pub(super) leader: Leader,
    pub(super) tx: Box<dyn Transport + Send>,
    pub(super) registry: Asking,
    pub(super) out: Outbound,
    pub(super) reads: Reads,
    /// Answers to reads, by their numbers: from whom, and the page.
    pub(super) answers: HashMap<u32, (NodeId, Vec<u8>)>,
    /// The record that wrote a page, until every member has it.
    unsettled: HashMap<u64, Sequence>,
    /// The newest record that freed a page which may be used again.
    reuse: Sequence,
    pub(super) end: Option<End>,
    /// Nodes that run and should be members.
    pub(super) wanted: BTreeMap<GroupId, BTreeSet<NodeId>>,
    /// Nodes that are to leave.
    pub(super) leaving: BTreeMap<GroupId, BTreeSet<NodeId>>,
    /// Nodes that are known not to run: they cannot answer.
    pub(super) gone: BTreeSet<NodeId>,
}

/// The link.
pub(crate) struct Link {
    pub(super) node: NodeId,
    state: Mutex<Sending>,
    pub(super) changed: Condvar,
    pub(super) clock: Clock,
    /// The last operation that the image of this node has durably.
    pub(crate) applied: Arc<AtomicU64>,
    page_bytes: u64,
    /// Whether operations are fenced here before they are answered.
    fences: bool,
    /// Active members below which none is removed, by group.
    pub(super) members_min: BTreeMap<GroupId, usize>,
    transport: &'static str,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("node", &self.node).field("transport", &self.transport).finish_non_exhaustive()
    }
}

/// How to make a link.
pub(crate) struct LinkParts {
    pub(crate) node: NodeId,
    pub(crate) sender: VolumeSender,
    pub(crate) tx: Box<dyn Transport + Send>,
    pub(crate) registry: Asking,
    pub(crate) clock: Clock,
    pub(crate) applied: Arc<AtomicU64>,
    pub(crate) page_bytes: u64,
    pub(crate) fences: bool,
    pub(crate) members_min: BTreeMap<GroupId, usize>,
    pub(crate) wanted: BTreeMap<GroupId, BTreeSet<NodeId>>,
}

impl Link {
    pub(crate) fn new(parts: LinkParts) -> Self {
        let transport = parts.tx.name();
        let mut leader = Leader::of_volume(parts.node, parts.sender);
        // Until it is known whether the one that joins has an image: without one it could not take over.
        leader.hold_promotion(Some(OPERATIONS));
        let state = Sending {
            leader,
            tx: parts.tx,
            registry: parts.registry,
            out: Outbound::default(),
            reads: Reads::default(),
            answers: HashMap::new(),
            unsettled: HashMap::new(),
            reuse: Sequence(0),
            end: None,
            wanted: parts.wanted,
            leaving: BTreeMap::new(),
            gone: BTreeSet::new(),
        };
        Self {
            node: parts.node,
            state: Mutex::new(state),
            changed: Condvar::new(),
            clock: parts.clock,
            applied: parts.applied,
            page_bytes: parts.page_bytes,
            fences: parts.fences,
            members_min: parts.members_min,
            transport,
        }
    }

    pub(crate) fn sending(&self) -> MutexGuard<'_, Sending> {
        lock(&self.state)
    }

    pub(crate) const fn transport(&self) -> &'static str {
        self.transport
    }

    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Ends the link for good, unless it has ended.
    pub(crate) fn end(&self, end: End) {
        self.sending().end.get_or_insert(end);
        self.changed.notify_all();
    }

    /// Gives the rings back after the end. Users of the volume have this link for a while still, and the pool of the
    /// rings must open again meanwhile.
    pub(super) fn close(&self) {
        match no_sender(self.node) {
            Ok(sender) => self.sending().leader = Leader::of_volume(self.node, sender),
            Err(error) => tracing::warn!("{}: its pool stays open: {error}", self.node),
        }
    }

    /// Why it has ended.
    pub(crate) fn ended(&self) -> Option<End> {
        self.sending().end
    }

    /// The term in which this node sends.
    pub(crate) fn term(&self) -> u32 {
        self.sending().leader.volume().operations().term().0
    }

    /// Whether this node holds the lease: no other node answers meanwhile.
    pub(crate) fn may_read(&self) -> bool {
        let now = self.now();
        self.sending().leader.may_read(now)
    }

    /// How long this node holds the lease still, at least.
    pub(crate) fn lease_left(&self) -> Option<Duration> {
        let now = self.now();
        self.sending().leader.lease_left(now).map(Duration::from_nanos)
    }

    /// Waits for the lease.
    pub(crate) fn wait_lease(&self, most: Duration) -> Result<()> {
        self.wait(most, false, |sending| sending.leader.may_read(self.now()))
    }

    /// Most pages of one operation: a quarter of the ring of a unit.
    pub(crate) fn op_pages_max(&self) -> u64 {
        let sending = self.sending();
        let capacity = sending.leader.volume().group(UNIT).map_or(0, |unit| unit.ring().capacity());
        (capacity / 4 / (self.page_bytes + 64)).max(1)
    }

    /// Gives an operation its place, sends it, and fences it. `None`: there is no room yet, and nothing happened.
    pub(crate) fn submit(&self, op: &Submitted<'_>) -> Result<Option<Sequence>> {
        let mut sending = self.sending();
        sending.check()?;
        let Some(unit) = sending.leader.volume().group(UNIT) else { return Err(Error::Gone) };
        if !op.pages.is_empty() && unit.stable() < sending.leader.volume().pages_free_from(UNIT) {
            // A page that is free here may be one of an operation that a takeover has cut.
            return Ok(None);
        }
        let first = unit.ring().last().next();
        let reuse = if op.mends { first.before() } else { sending.reuse.max(unit.base()) };
        let flags = if op.is_sync { FLAG_SYNC } else { 0 };
        let payloads = self.payloads(op, flags, reuse);
        let operation = Submission {
            flags,
            opcode: op.code,
            inode: op.ino,
            offset: op.at.cast_unsigned(),
            ..Submission::default()
        };
        let places: Vec<(u64, u64)> = payloads.iter().map(|(pages, _)| *pages).collect();
        let payloads = payloads.into_iter().map(|(_, payload)| payload).collect();
        let number = match sending.leader.volume_mut().submit(&operation, op.body, payloads) {
            Ok(number) => number,
            Err(lodestone_fabric::Error::Full { .. } | lodestone_fabric::Error::Busy { .. }) => return Ok(None),
            Err(lodestone_fabric::Error::NotSender { .. }) => return Err(Error::Gone),
            Err(error) => return Err(error.into()),
        };
        for ((page, count), sequence) in places.into_iter().zip(first.0..) {
            (page..page + count).for_each(|page| _ = sending.unsettled.insert(page, Sequence(sequence)));
        }
        let now = self.now();
        let Sending { leader, out, .. } = &mut *sending;
        leader.volume_mut().pump(now, out);
        if let Err(error) = sending.flush() {
            // The operation has its place: it counts, and is sent again. A failed transport ends the link soon.
            tracing::warn!("{}: sending operation {}: {error}", self.node, number.0);
            sending.out.packets.clear();
        }
        if self.fences {
            // The answer to the caller, and every store after it, may not overtake the records of this operation in the
            // rings here: they survive a crash of this node once the operation is answered.
            sending.leader.volume_mut().fence()?;
        }
        Ok(Some(number))
    }

    /// Records for the pages of an operation: first page and count of each.
    fn payloads(&self, op: &Submitted<'_>, flags: u16, reuse: Sequence) -> Vec<((u64, u64), Payload)> {
        let size = to_usize(self.page_bytes);
        let most = to_u64((BODY_BYTES_MAX / (size + PAIR_BYTES)).max(1));
        let mut payloads = Vec::new();
        for (run, bytes) in op.pages {
            for (index, piece) in (0..).zip(bytes.chunks(to_usize(most) * size)) {
                let first = run.page + index * most;
                let pages: Vec<(PagePair, &[u8])> =
                    (first..).zip(piece.chunks(size)).map(|(new, bytes)| (PagePair { new, old: 0 }, bytes)).collect();
                let count = to_u64(pages.len());
                let submission = Submission {
                    flags,
                    inode: op.ino,
                    count: lodestone_width::exact_u32(pages.len()),
                    reuse,
                    ..Submission::default()
                };
                let payload = Payload { unit: UNIT, submission, body: pages_body(&pages) };
                payloads.push(((first, count), payload));
            }
        }
        payloads
    }

    /// Waits until `is_done`, which is asked under the lock. `ask`: the members are asked how far they are.
    ///
    /// # Errors
    /// [`Error::Gone`]; [`Error::NoQuorum`] after `most`, or when the patience of the thread is over.
    fn wait(&self, most: Duration, ask: bool, is_done: impl Fn(&Sending) -> bool) -> Result<()> {
        let mut wait = Wait::begin(most);
        let mut sending = self.sending();
        loop {
            sending.check()?;
            if is_done(&sending) {
                return Ok(());
            }
            if !wait.goes_on(&|| sending.missing())? {
                return Err(sending.no_quorum());
            }
            if ask {
                let (now, Sending { leader, out, .. }) = (self.now(), &mut *sending);
                leader.volume_mut().ask(now, out);
                sending.flush()?;
            }
            sending = self.changed.wait_timeout(sending, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until quorums of all groups have everything up to the operation `number` durably.
    pub(crate) fn wait_acknowledged(&self, number: Sequence) -> Result<()> {
        if planted::active("fs-sync-waits-for-nobody") {
            return Ok(());
        }
        self.wait(QUORUM_WAIT, true, |sending| sending.leader.acknowledged() >= number)
    }

    /// Whether quorums of all groups have everything up to the operation `number` durably.
    pub(crate) fn has_acknowledged(&self, number: Sequence) -> bool {
        let sending = self.sending();
        sending.leader.volume().is_sending() && sending.leader.acknowledged() >= number
    }

    /// The last operation up to which quorums of all groups have everything durably.
    pub(crate) fn acknowledged(&self) -> Sequence {
        let sending = self.sending();
        if sending.leader.volume().is_sending() { sending.leader.acknowledged() } else { Sequence(0) }
    }

    /// Waits until every member of the unit has its record `sequence`, and it is acknowledged.
    pub(crate) fn wait_stable(&self, sequence: Sequence, most: Duration) -> Result<()> {
        self.wait(most, true, |sending| sending.stable() >= sequence)
    }

    /// Waits for some change, at most so long.
    pub(crate) fn wait_change(&self, most: Duration) -> Result<()> {
        let sending = self.sending();
        sending.check()?;
        _ = self.changed.wait_timeout(sending, most).unwrap_or_else(PoisonError::into_inner);
        Ok(())
    }

    /// Waits for some change, as long as a wait for room goes on.
    pub(crate) fn wait_room(&self, wait: &mut Wait, most: Duration) -> Result<()> {
        {
            let sending = self.sending();
            if !wait.goes_on(&|| sending.missing())? {
                return Err(sending.no_quorum());
            }
        }
        self.wait_change(most)
    }

    /// Waits until this node sends: its term has begun.
    pub(crate) fn wait_sending(&self, most: Duration) -> Result<()> {
        self.wait(most, false, |sending| sending.leader.is_leading() && sending.leader.volume().is_sending())
    }

    /// Every member of the unit has its records up to here.
    pub(crate) fn stable(&self) -> Sequence {
        self.sending().stable()
    }

    /// The last record of the unit.
    pub(crate) fn unit_last(&self) -> Sequence {
        self.sending().leader.volume().group(UNIT).map_or(Sequence(0), |unit| unit.ring().last())
    }

    /// Pages that the record `sequence` freed, or one before it, are used again from now on.
    pub(crate) fn may_reuse(&self, sequence: Sequence) {
        let mut sending = self.sending();
        sending.reuse = sending.reuse.max(sequence);
    }

    /// First and last adopted operation of the ring of operations, and bytes that it can hold.
    pub(crate) fn adopted(&self) -> (Sequence, Sequence, u64) {
        let sending = self.sending();
        let operations = sending.leader.volume().operations();
        (operations.ring().first(), operations.base(), operations.ring().capacity())
    }

    /// The record of an operation in the ring, without the list of its payloads.
    pub(crate) fn operation(&self, number: Sequence) -> Result<Option<(RecordHead, Vec<u8>)>> {
        let sending = self.sending();
        let found = sending.leader.volume().operations().ring().record(number)?;
        Ok(found.map(|(head, body)| {
            let body = operation_body(&head, body);
            (head, body)
        }))
    }

    /// Waits until a node is no member of a group any more.
    pub(crate) fn wait_removed(&self, group: GroupId, node: NodeId) -> Result<()> {
        let is_gone = |sending: &Sending| {
            let sender = sending.leader.volume().group(group);
            sender.is_none_or(|sender| sender.pending().is_none() && sender.view().role(node).is_none())
        };
        self.wait(QUORUM_WAIT, true, is_gone)
    }

    /// The node may not run: it is not added before it is wanted again. `is_gone`: it is known not to run. That only
    /// makes it leave earlier; that the others have everything is seen to as ever.
    pub(crate) fn unwant(&self, group: GroupId, node: NodeId, is_gone: bool) {
        let mut sending = self.sending();
        sending.wanted.entry(group).or_default().remove(&node);
        if is_gone {
            sending.gone.insert(node);
        } else {
            sending.gone.remove(&node);
        }
    }

    /// Changes what the link wants of members.
    pub(crate) fn want(&self, group: GroupId, node: NodeId, is_wanted: bool) {
        let mut sending = self.sending();
        let wanted = sending.wanted.entry(group).or_default();
        if is_wanted {
            wanted.insert(node)
        } else {
            wanted.remove(&node)
        };
        sending.gone.remove(&node);
        let leaving = sending.leaving.entry(group).or_default();
        if is_wanted {
            leaving.remove(&node)
        } else {
            leaving.insert(node)
        };
    }
}

/// A sender that never sends, with empty rings.
fn no_sender(node: NodeId) -> Result<VolumeSender> {
    let memory = Memory::anonymous(2 * NO_RING_BYTES)?;
    let sender = |group, at: u64| -> Result<Sender> {
        let ring = Ring::create(&memory, PmAddr::new(0, at), NO_RING_BYTES, 0)?;
        Ok(Sender::new(SenderOptions { node, group, ..SenderOptions::default() }, ring))
    };
    Ok(VolumeSender::new(sender(OPERATIONS, 0)?, vec![sender(UNIT, NO_RING_BYTES)?])?)
}

/// The body of an operation without the list of its payloads.
pub(crate) fn operation_body(head: &RecordHead, body: Vec<u8>) -> Vec<u8> {
    if head.has(lodestone_fabric::FLAG_PAYLOADS) {
        Payloads::of(&body).map(|payloads| payloads.rest().to_vec()).unwrap_or_default()
    } else {
        body
    }
}

impl Sending {
    /// Refuses after the end.
    pub(super) fn check(&self) -> Result<()> {
        match self.end {
            None => Ok(()),
            Some(_) => Err(Error::Gone),
        }
    }

    /// Sends what the cores want to have sent.
    pub(super) fn flush(&mut self) -> Result<()> {
        self.tx.send(&self.out.packets)?;
        self.out.packets.clear();
        Ok(())
    }

    fn stable(&self) -> Sequence {
        self.leader.volume().group(UNIT).map_or(Sequence(0), lodestone_fabric::Sender::stable)
    }

    /// Forgets the records that every member has.
    pub(super) fn settle(&mut self) {
        let stable = self.stable();
        if self.unsettled.len() > 1024 {
            self.unsettled.retain(|_, sequence| *sequence > stable);
        }
    }

    /// The record that a replica must have to answer for `page`.
    pub(super) fn needed_for(&self, page: u64) -> Sequence {
        let base = self.leader.volume().group(UNIT).map_or(Sequence(0), lodestone_fabric::Sender::base);
        self.unsettled.get(&page).copied().unwrap_or_default().max(base)
    }

    fn no_quorum(&self) -> Error {
        Error::NoQuorum { missing: self.missing() }
    }

    /// The members that lack records, by group.
    pub(super) fn missing(&self) -> String {
        let volume = self.leader.volume();
        let late = |group: GroupId| {
            let Some(sender) = volume.group(group) else { return Vec::new() };
            let last = sender.ring().last();
            sender.view().active().filter(|node| sender.tail(*node) < Some(last)).collect::<Vec<_>>()
        };
        let name = |group: GroupId| if group == OPERATIONS { "metadata".to_owned() } else { format!("unit {group}") };
        let missing: Vec<String> = volume
            .groups()
            .map(|sender| (sender.group(), late(sender.group())))
            .filter(|(_, nodes)| !nodes.is_empty())
            .map(|(group, nodes)| {
                let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
                format!("{}: {}", name(group), nodes.join(", "))
            })
            .collect();
        if missing.is_empty() { "no lease yet".into() } else { missing.join("; ") }
    }
}
