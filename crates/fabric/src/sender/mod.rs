//! The sender of a group: gives records their places, sends each once, and knows who has it durably.
//!
//! 1. *Submit*: the record gets the next sequence and goes to the ring. A plain write is answered after the ring's
//!    fence.
//! 2. *Send*: one packet for each fragment, to all members. It may overtake the fence, because a new life of a sender
//!    is a new term. It waits while a member has no credit, or while too many records wait.
//! 3. *Reports* raise the tails of members. A record is acknowledged when a quorum has it durably, and stable when
//!    every member has. The ring keeps what is not stable.
//! 4. *Gaps*: what a member lacks is sent again, to it alone, or to all if several asked.
//! 5. *Beats* tell the newest sequence, so that the loss of the last record shows.
//!
//! A takeover (`takeover`) comes first: also the first start is one. Members change one at a time (`members`).
//!
//! Invariants:
//! - nothing is acknowledged in a term before its own first record is: records of earlier terms count only below one
//!   of this term. Otherwise a quorum could hold a record of an old term that a log of a term in between outranks;
//! - while a change of members is undecided, a record needs the quorum of both views.

mod flow;
mod members;
mod order;
mod takeover;

use std::collections::{BTreeMap, VecDeque};

use lodestone_pmem::planted;
use lodestone_width::to_u64;

use crate::effect::Outbound;
use crate::error::{Error, Result};
use crate::ids::{GroupId, Moment, NodeId, Sequence, Term};
use crate::outbox::Outbox;
use crate::packet::{FRAGMENTS_MAX, Kind, PACKET_GONE, PACKET_HEAD_BYTES, Packet, PacketHead};
use crate::record::{BODY_BYTES_MAX, FLAG_SYNC, RECORD_HEAD_BYTES, RecordHead};
use crate::ring::Ring;
use crate::view::{Role, View};
use flow::Wanted;
use order::Order;
pub(crate) use order::{PayloadLog, Place};
use takeover::Gathering;

/// How a sender works.
#[derive(Clone, Copy, Debug)]
pub struct SenderOptions {
    /// This node.
    pub node: NodeId,
    /// The group.
    pub group: GroupId,
    /// The salt of the group's records.
    pub salt: u64,
    /// Most records that wait to be sent (paper 5, section 2.2: the queue of the card).
    pub queued_max: usize,
    /// Longest payload of a packet.
    pub payload_bytes_max: usize,
    /// Bytes that a member takes before its first report.
    pub credit_bytes: u32,
    /// First beat after data, in nanoseconds.
    pub beat_first_ns: u64,
    /// Beats after that.
    pub beat_ns: u64,
    /// A member that was silent for so long is suspect: the others do not wait for its credit.
    pub suspect_ns: u64,
}

impl Default for SenderOptions {
    fn default() -> Self {
        Self {
            node: NodeId(0),
            group: GroupId(1),
            salt: 0,
            queued_max: 1024,
            payload_bytes_max: 1472 - PACKET_HEAD_BYTES,
            credit_bytes: 1 << 20,
            beat_first_ns: 1_000_000,
            beat_ns: 10_000_000,
            suspect_ns: 250_000_000,
        }
    }
}

/// Bytes of a ring of `capacity` that only first records of terms may use: a takeover must not need what it is to
/// release. Each takeover that ends before a record of it is acknowledged takes 128 bytes of them. When none is left, a
/// takeover waits for all members. An eighth is room for a thousand in a MiB, and a small ring has room for 64, if that
/// is not more than half.
fn kept_for_terms(capacity: u64) -> u64 {
    const FEW_TERMS_BYTES: u64 = 64 * 128;
    (capacity / 8).max(FEW_TERMS_BYTES.min(capacity / 2))
}

/// A record to submit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Submission {
    /// Flags of the record: sync, merge, inline.
    pub flags: u16,
    /// The caller's code.
    pub opcode: u16,
    /// The caller's inode.
    pub inode: u64,
    /// The caller's offset.
    pub offset: u64,
    /// Number of the operation.
    pub operation: u64,
    /// Pages that it writes.
    pub count: u32,
    /// The newest record that freed a page which this one uses again.
    pub reuse: Sequence,
}

/// Something that the owner of a sender must know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SenderEvent {
    /// The log of the term begins with the adopted one, up to `base`.
    Adopted {
        /// The last adopted record.
        base: Sequence,
        /// Records of this node's own ring that are not in it: they were never acknowledged.
        cut: Option<(Term, Sequence, Sequence)>,
    },
    /// Records can be submitted.
    Ready,
    /// Everything up to here survives the loss of any minority.
    Acknowledged(Sequence),
    /// A newer term exists: this node is not the sender any more.
    Deposed(Term),
}

/// The state of a sender.
#[derive(Debug)]
enum Phase {
    /// Another node sends.
    Idle,
    /// It asks members for promises, then pulls what its ring lacks.
    Gathering(Gathering),
    /// It sends.
    Sending,
}

/// A member, as its sender sees it.
#[derive(Clone, Copy, Debug)]
struct Peer {
    tail: Sequence,
    credit: u32,
    heard: Moment,
    /// When its tail rose last, or was that of everything sent.
    moved: Moment,
    /// Whether it entered the newest view.
    viewed: bool,
    /// Whether it has all pages, as it said itself. One that copies them may have all records without that.
    has_pages: bool,
    view_sent: Moment,
}

impl Peer {
    /// One that has not said anything, with what it has at least.
    const fn new(tail: Sequence, credit: u32, now: Moment) -> Self {
        Self { tail, credit, heard: now, moved: now, viewed: false, has_pages: false, view_sent: now }
    }
}

/// Counts of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderCounts {
    /// Records submitted.
    pub submitted: u64,
    /// Packets of records sent to the group, each for all members.
    pub fragments: u64,
    /// Packets of records sent again.
    pub resent: u64,
    /// Beats.
    pub beats: u64,
    /// Times that a record waited for credit.
    pub held: u64,
}

/// The sender of one group.
#[derive(Debug)]
pub struct Sender {
    options: SenderOptions,
    ring: Ring,
    phase: Phase,
    term: Term,
    view: View,
    pending: Option<View>,
    peers: BTreeMap<NodeId, Peer>,
    /// The last adopted record.
    base: Sequence,
    queue: VecDeque<(RecordHead, Vec<u8>)>,
    sent: Sequence,
    acked: Sequence,
    stable: Sequence,
    /// The newest record that freed a page which was used again.
    reuse_floor: Sequence,
    joins_from: (Sequence, Term),
    wanted: BTreeMap<u64, Wanted>,
    resent_at: BTreeMap<u64, Moment>,
    beat_at: Moment,
    counter: u64,
    events: Vec<SenderEvent>,
    counts: SenderCounts,
    order: Order,
    payload_log: Option<PayloadLog>,
}

impl Sender {
    /// A sender that is idle.
    #[must_use]
    pub fn new(options: SenderOptions, ring: Ring) -> Self {
        let stable = ring.first();
        Self {
            options,
            ring,
            phase: Phase::Idle,
            term: Term(0),
            view: View::default(),
            pending: None,
            peers: BTreeMap::new(),
            base: Sequence(0),
            queue: VecDeque::new(),
            sent: Sequence(0),
            acked: Sequence(0),
            stable,
            reuse_floor: Sequence(0),
            joins_from: (Sequence(0), Term(0)),
            wanted: BTreeMap::new(),
            resent_at: BTreeMap::new(),
            beat_at: Moment(0),
            counter: 0,
            events: Vec::new(),
            counts: SenderCounts::default(),
            order: Order::default(),
            payload_log: None,
        }
    }

    /// Its group.
    #[must_use]
    pub const fn group(&self) -> GroupId {
        self.options.group
    }

    /// Whether records can be submitted.
    #[must_use]
    pub const fn is_sending(&self) -> bool {
        matches!(self.phase, Phase::Sending)
    }

    /// The term.
    #[must_use]
    pub const fn term(&self) -> Term {
        self.term
    }

    /// The members.
    #[must_use]
    pub const fn view(&self) -> &View {
        &self.view
    }

    /// Everything up to here survives the loss of any minority.
    #[must_use]
    pub const fn acknowledged(&self) -> Sequence {
        self.acked
    }

    /// Every member has everything up to here durably, and it is acknowledged. A page that a record up to here freed
    /// may be used again.
    #[must_use]
    pub const fn stable(&self) -> Sequence {
        self.stable
    }

    /// The last adopted record of this term. A page that no record of the state has may hold bytes of an adopted record
    /// whose operation was cut: it may be used again when this one is stable.
    #[must_use]
    pub const fn base(&self) -> Sequence {
        self.base
    }

    /// The ring.
    #[must_use]
    pub const fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Its counts.
    #[must_use]
    pub const fn counts(&self) -> SenderCounts {
        self.counts
    }

    /// Records that wait to be sent.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Events since the last call.
    pub fn take_events(&mut self) -> Vec<SenderEvent> {
        std::mem::take(&mut self.events)
    }

    /// Gives a record its place: in the ring, not fenced, and queued. [`pump`](Self::pump) sends it.
    ///
    /// # Errors
    /// [`Error::NotSender`]; [`Error::Busy`]; [`Error::Full`]; [`Error::RecordTooLarge`]. Nothing happened then.
    pub fn submit(&mut self, submission: &Submission, body: Vec<u8>) -> Result<Sequence> {
        let (bytes, limit) = (body.len(), self.body_bytes_max());
        if bytes > limit {
            return Err(Error::RecordTooLarge { bytes, limit });
        }
        self.may_submit(1, to_u64(body.len()))?;
        self.append(submission, body)
    }

    /// Longest body: that of a record, and no more than the packets of one can carry.
    #[must_use]
    pub fn body_bytes_max(&self) -> usize {
        let packets = self.options.payload_bytes_max.saturating_mul(usize::from(FRAGMENTS_MAX));
        BODY_BYTES_MAX.min(packets.saturating_sub(RECORD_HEAD_BYTES))
    }

    /// Whether so many records, with so many bytes of bodies together, can be submitted now.
    ///
    /// # Errors
    /// [`Error::NotSender`]; [`Error::Busy`]; [`Error::Full`].
    pub fn may_submit(&self, records: usize, body_bytes: u64) -> Result<()> {
        match &self.phase {
            Phase::Sending => {}
            Phase::Idle => return Err(Error::NotSender { state: "idle" }),
            Phase::Gathering(_) => return Err(Error::NotSender { state: "taking over" }),
        }
        if self.queue.len() + records > self.options.queued_max {
            return Err(Error::Busy { queued: to_u64(self.queue.len()) });
        }
        let (needed, capacity) = (body_bytes + 160 * to_u64(records), self.ring.capacity());
        let free = (capacity - kept_for_terms(capacity)).saturating_sub(self.ring.used());
        if needed > free {
            return Err(Error::Full { what: "ring of records", needed, free, capacity });
        }
        Ok(())
    }

    fn append(&mut self, submission: &Submission, body: Vec<u8>) -> Result<Sequence> {
        let sequence = self.ring.last().next();
        let mut head = RecordHead {
            reuse: submission.reuse,
            sequence,
            operation: submission.operation,
            term: self.term,
            opcode: submission.opcode,
            flags: submission.flags,
            inode: submission.inode,
            offset: submission.offset,
            count: submission.count,
            group: self.options.group,
            ..RecordHead::default()
        };
        head.seal(self.options.salt, &body)?;
        self.ring.append(&head, &body)?;
        self.reuse_floor = self.reuse_floor.max(submission.reuse);
        self.queue.push_back((head, body));
        self.counts.submitted += 1;
        Ok(sequence)
    }

    /// Everything that was submitted survives a crash of this node after this call. Plain writes are answered then.
    ///
    /// # Errors
    /// A device that failed.
    pub fn fence(&mut self) -> Result<Sequence> {
        if self.ring.fenced() < self.ring.last() {
            self.ring.fence()?;
        }
        Ok(self.ring.fenced())
    }

    /// Fences the ring, also if nothing in it needs that: another ring of the same memory may.
    pub(crate) fn fence_anyway(&mut self) -> Result<()> {
        self.ring.fence()
    }

    /// A fence of the same memory has happened.
    pub(crate) fn was_fenced(&mut self) {
        self.ring.was_fenced();
    }

    /// Takes a packet in.
    ///
    /// # Errors
    /// A device that failed.
    pub fn packet(&mut self, now: Moment, packet: &Packet<'_>, out: &mut Outbound) -> Result<()> {
        let head = packet.head;
        if head.group != self.options.group || matches!(self.phase, Phase::Idle) {
            return Ok(());
        }
        if head.term > self.term {
            self.depose(head.term);
            return Ok(());
        }
        match head.kind {
            Kind::Promise if head.has(PACKET_GONE) => {}
            Kind::Promise => self.promised(now, packet, out)?,
            Kind::Reply => self.pulled(now, packet, out)?,
            Kind::Report | Kind::Copying if head.term == self.term => self.reported(now, &head),
            Kind::Nack if head.term == self.term => self.missing(now, packet, out),
            Kind::Request if head.term == self.term && self.is_sending() => self.send_view(now, Some(head.source), out),
            _ => {}
        }
        Ok(())
    }

    /// Another node has a newer term.
    pub fn depose(&mut self, term: Term) {
        if !matches!(self.phase, Phase::Idle) && term > self.term {
            self.phase = Phase::Idle;
            self.pending = None;
            self.queue.clear();
            self.events.push(SenderEvent::Deposed(term));
        }
    }

    fn reported(&mut self, now: Moment, head: &PacketHead) {
        let is_newest = head.view >= self.view.number;
        // A member that was removed and joins again speaks of records and pages that it is about to give up.
        let since = self.view.members.iter().find(|member| member.node == head.source).map(|member| member.since);
        let is_member = since.is_some_and(|since| head.view >= since);
        if !is_member && !planted::active("fabric-report-of-an-older-view") {
            return;
        }
        let Some(peer) = self.peers.get_mut(&head.source).filter(|_| matches!(self.phase, Phase::Sending)) else {
            return;
        };
        peer.heard = now;
        peer.viewed |= is_newest;
        peer.has_pages |= head.kind == Kind::Report;
        peer.credit = head.credit;
        // A record that was never sent cannot be there.
        let tail = peer.tail.max(head.sequence.min(self.ring.last()));
        if tail > peer.tail || tail >= self.sent {
            peer.moved = now;
        }
        peer.tail = tail;
        self.advance();
    }

    fn tails(&self, view: &View) -> Vec<Sequence> {
        let mut tails: Vec<Sequence> =
            view.active().map(|node| self.peers.get(&node).map_or(Sequence(0), |peer| peer.tail)).collect();
        tails.sort_unstable();
        tails
    }

    /// The last record that a quorum of `view` has durably.
    fn quorum_tail(&self, view: &View) -> Sequence {
        let tails = self.tails(view);
        let index = tails.len().checked_sub(view.quorum());
        index.and_then(|index| tails.get(index)).copied().unwrap_or_default()
    }

    /// Computes anew what is acknowledged and what is stable.
    fn advance(&mut self) {
        let mut acked = self.quorum_tail(&self.view);
        if let Some(pending) = self.pending.as_ref().filter(|_| !planted::active("fabric-change-with-one-quorum")) {
            acked = acked.min(self.quorum_tail(pending));
        }
        if self.order.place == Place::Operations && planted::active("fabric-operations-at-one-node") {
            acked = self.ring.last();
        }
        acked = acked.min(self.order.acknowledged_max);
        let floor = if planted::active("fabric-old-terms-acknowledged") { Sequence(0) } else { self.base };
        if acked > floor && acked > self.acked {
            self.acked = acked;
            self.events.push(SenderEvent::Acknowledged(acked));
        }
        let all = self.peers.values().map(|peer| peer.tail).min();
        let stable = if planted::active("fabric-gate-by-quorum") { Some(self.quorum_tail(&self.view)) } else { all };
        // A record that is not acknowledged may still be replaced by a later term, although every member has it.
        let is_kept = !planted::active("fabric-stable-without-acknowledgement");
        let stable = stable.map(|stable| if is_kept { stable.min(self.acked) } else { stable });
        let stable = stable.map(|stable| stable.min(self.order.stable_max));
        if let Some(stable) = stable.filter(|stable| *stable > self.stable) {
            self.stable = stable;
            if !planted::active("fabric-gate-by-quorum") {
                self.ring.release(stable);
            }
            self.wanted = self.wanted.split_off(&(stable.0 + 1));
            self.resent_at = self.resent_at.split_off(&(stable.0 + 1));
        }
    }

    /// Sends what is due: queued records, requests, beats.
    ///
    /// # Errors
    /// A damaged ring.
    pub fn tick(&mut self, now: Moment, out: &mut Outbound) -> Result<()> {
        match self.phase {
            Phase::Idle => return Ok(()),
            Phase::Gathering(_) => self.gather_more(now, out)?,
            Phase::Sending => {
                self.pump(now, out);
                self.resend(now, out)?;
                self.beat(now, out);
                self.send_views(now, out);
            }
        }
        Ok(())
    }

    /// When [`tick`](Self::tick) has something to do at the latest.
    #[must_use]
    pub fn wake_at(&self) -> Option<Moment> {
        match &self.phase {
            Phase::Idle => None,
            Phase::Gathering(gathering) => Some(gathering.wake_at()),
            Phase::Sending => {
                let resend = self.wanted.keys().next().map(|_| Moment(0));
                Some(resend.unwrap_or(self.beat_at).min(self.beat_at))
            }
        }
    }

    /// Members that were silent for so long.
    pub fn silent(&self, now: Moment, ns: u64) -> impl Iterator<Item = NodeId> + '_ {
        self.peers.iter().filter(move |(_, peer)| now.since(peer.heard) > ns).map(|(node, _)| *node)
    }

    /// The member that joins, if it reports, but has applied no more for so long although there is more.
    #[must_use]
    pub fn stuck(&self, now: Moment, ns: u64) -> Option<NodeId> {
        let is_stuck = |peer: &Peer| peer.viewed && peer.tail < self.sent && now.since(peer.moved) > ns;
        self.joiner().filter(|node| self.peers.get(node).is_some_and(is_stuck))
    }

    /// When a member was last heard.
    #[must_use]
    pub fn heard(&self, node: NodeId) -> Option<Moment> {
        self.peers.get(&node).map(|peer| peer.heard)
    }

    /// The durable tail of a member.
    #[must_use]
    pub fn tail(&self, node: NodeId) -> Option<Sequence> {
        self.peers.get(&node).map(|peer| peer.tail)
    }

    /// The active members that have everything up to `sequence` durably: they can be read from.
    pub fn readable(&self, sequence: Sequence) -> impl Iterator<Item = NodeId> + '_ {
        let has = move |node: &NodeId| self.peers.get(node).is_some_and(|peer| peer.viewed && peer.tail >= sequence);
        self.view.active().filter(has)
    }

    /// A head for a packet to members.
    fn head(&mut self, kind: Kind) -> PacketHead {
        self.counter += 1;
        PacketHead {
            term: self.term,
            view: self.view.number,
            stable: self.stable,
            counter: self.counter,
            ..PacketHead::new(kind, self.options.group, self.options.node)
        }
    }

    /// Whether a caller waits for a record that is not acknowledged.
    fn is_awaited(&self) -> bool {
        self.acked < self.ring.last()
    }

    /// The joining member, if there is one.
    fn joiner(&self) -> Option<NodeId> {
        self.view.members.iter().find(|member| member.role == Role::Joining).map(|member| member.node)
    }

    /// Whether the record asks for reports at once.
    fn is_sync(head: &RecordHead) -> bool {
        head.has(FLAG_SYNC)
    }
}
