//! A member of a group: takes records in, applies them in order, makes them durable and says so.
//!
//! 1. *Data*: a packet of another term than the promised one is dropped. A whole record whose checksum holds is placed
//!    at once, although records before it are missing: nothing refers to its pages yet ([MC]: sound because a page is
//!    used again only when every active member has applied the record that freed it).
//! 2. *Expose*: the next record in order goes to the log of applied records.
//! 3. *End of a batch*: one fence for everything that the batch exposed. Then the tail rises, and is reported: at once
//!    if a caller waits, else after 32 records or a millisecond.
//! 4. *Gaps*: a map of missing records after 50 us, again after 1, 2, 4, 8 ms until nothing is missing.
//! 5. *Terms*: a promise is durable before it is told. A new view cuts what differs from the adopted log.
//! 6. *Joining*: pages and records at the same time, the records in order and none early: the copied pages are of
//!    different moments. Its applied records are reported as those of a member that lacks pages, so the sender keeps no
//!    more records for it than for others, and a copy ends however much is written meanwhile.
//!
//! Invariants:
//! - the reported tail never goes back within a term: it is fenced, not merely received;
//! - the log holds everything that is not stable, if it has twice the bytes of the sender's ring: what a record takes
//!   here, with a mark before it, is at most twice what it takes there;
//! - records of which something is missing take at most `credit_bytes` of memory;
//! - the log equals that of the sender of the entered view, up to the last exposed record.
//!
//! [MC]: exhausted by a model checker for one group of three; `docs/fabric.md` has the bounds.

mod copying;
mod gap;
mod place;
mod serve;
mod terms;

use std::collections::{BTreeMap, VecDeque};

use lodestone_pmem::planted;
use lodestone_width::exact_u32;

use crate::applylog::{ApplyLog, Standing};
use crate::assembly::Assembly;
use crate::effect::Outbound;
use crate::error::Result;
use crate::ids::{GroupId, Moment, NodeId, Sequence, Term};
use crate::message::Call;
use crate::packet::{Kind, PACKET_HEAD_BYTES, PACKET_SYNC, Packet, PacketHead};
use crate::pages::PageArea;
use crate::record::RecordHead;
use copying::Copying;
use gap::Gap;

/// Records beyond the exposed one that a member takes.
pub const WINDOW_RECORDS: u64 = 256;

/// How a member works.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverOptions {
    /// This node.
    pub node: NodeId,
    /// The group.
    pub group: GroupId,
    /// The salt of the group's records.
    pub salt: u64,
    /// Bytes of memory for records that wait for others.
    pub credit_bytes: u32,
    /// A report after so many records for which no caller waits.
    pub report_records: u64,
    /// Or after so long.
    pub report_ns: u64,
    /// Longest payload of a packet.
    pub payload_bytes_max: usize,
}

impl Default for ReceiverOptions {
    fn default() -> Self {
        Self {
            node: NodeId(0),
            group: GroupId(1),
            salt: 0,
            credit_bytes: 1 << 20,
            report_records: 32,
            report_ns: 1_000_000,
            payload_bytes_max: 1472 - PACKET_HEAD_BYTES,
        }
    }
}

/// A record that is not exposed yet.
#[derive(Debug)]
enum Loose {
    /// Some fragments are missing.
    Partial(Assembly),
    /// It is whole, and waits in memory: it may not be placed yet.
    Held(RecordHead, Vec<u8>),
    /// Its pages are written.
    Placed { head: RecordHead, kept: Vec<u8>, checksums: Vec<u32> },
}

/// Counts of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverCounts {
    /// Packets of another term, or of a record that it has or cannot take.
    pub dropped: u64,
    /// Fragments dropped for lack of memory: the sender ignored the credit.
    pub without_room: u64,
    /// Records whose checksum or form was wrong.
    pub refused: u64,
    /// Records exposed.
    pub exposed: u64,
    /// Fences for batches of records.
    pub batch_fences: u64,
    /// Further fences, before a page is used again.
    pub mark_fences: u64,
    /// Requests for missing records.
    pub nacks: u64,
    /// Reports.
    pub reports: u64,
    /// Most bytes of memory for loose records.
    pub loose_bytes_max: u64,
}

/// The member.
#[derive(Debug)]
pub struct Receiver {
    options: ReceiverOptions,
    log: ApplyLog,
    pages: PageArea,
    sender: NodeId,
    exposed: Sequence,
    tail: Sequence,
    stable: Sequence,
    /// The newest sequence that the sender is known to have sent.
    newest: Sequence,
    loose: BTreeMap<u64, Loose>,
    loose_bytes: u64,
    gap: Gap,
    report: Reporting,
    joining: Option<Copying>,
    later: VecDeque<(NodeId, Call, u32)>,
    view_asked: Option<Moment>,
    /// Records after it stay in the log although every member has them: their owner has not taken them yet.
    keep_after: Sequence,
    /// When its sender was last heard.
    heard: Moment,
    counter: u64,
    counts: ReceiverCounts,
}

/// When the next report is due.
#[derive(Debug, Default)]
struct Reporting {
    /// A caller waits.
    now: bool,
    /// Records since the last one.
    records: u64,
    /// When the first of them was exposed.
    since: Option<Moment>,
    /// The last reported tail and term.
    last: (Term, Sequence),
}

impl Receiver {
    /// A member with an empty log and area, or one that opens what it had: everything in the log is durable.
    #[must_use]
    pub fn new(options: ReceiverOptions, log: ApplyLog, pages: PageArea) -> Self {
        let (exposed, stable) = (log.last(), log.stable());
        let joining = (log.standing() == Standing::Copying).then(Copying::waiting);
        Self {
            options,
            log,
            pages,
            sender: options.node,
            exposed,
            tail: exposed,
            stable,
            newest: exposed,
            loose: BTreeMap::new(),
            loose_bytes: 0,
            gap: Gap::default(),
            report: Reporting::default(),
            joining,
            later: VecDeque::new(),
            view_asked: None,
            keep_after: Sequence(u64::MAX),
            heard: Moment(0),
            counter: 0,
            counts: ReceiverCounts::default(),
        }
    }

    /// Its group.
    #[must_use]
    pub const fn group(&self) -> GroupId {
        self.options.group
    }

    /// The last record that was applied, perhaps not durably.
    #[must_use]
    pub const fn exposed(&self) -> Sequence {
        self.exposed
    }

    /// The last record that is applied and durable.
    #[must_use]
    pub const fn tail(&self) -> Sequence {
        self.tail
    }

    /// Every member has everything up to here durably, and it is acknowledged, as far as this member was told.
    #[must_use]
    pub fn stable(&self) -> Sequence {
        self.stable.min(self.tail)
    }

    /// Records after `sequence` stay in the log, also if all nodes have them: this node has not taken them elsewhere.
    /// A log that is full of them takes no more, so the owner has to move on.
    pub const fn keep_after(&mut self, sequence: Sequence) {
        self.keep_after = sequence;
    }

    /// When its sender was last heard, by this node's clock.
    #[must_use]
    pub const fn heard(&self) -> Moment {
        self.heard
    }

    /// Gives up what every member has, and what the owner has taken.
    fn trim_log(&mut self) -> Result<()> {
        let up_to = self.stable.min(self.tail).min(self.keep_after);
        self.log.trim(up_to, &mut self.pages)
    }

    /// Its log.
    #[must_use]
    pub const fn log(&self) -> &ApplyLog {
        &self.log
    }

    /// Its pages.
    #[must_use]
    pub const fn pages(&self) -> &PageArea {
        &self.pages
    }

    /// Its counts.
    #[must_use]
    pub const fn counts(&self) -> ReceiverCounts {
        self.counts
    }

    /// Whether it follows the promised term, and applies records.
    #[must_use]
    pub fn follows(&self) -> bool {
        let (promised, viewed) = self.log.promised();
        promised == viewed && promised > Term(0)
    }

    /// Whether it joins, and not all pages are there.
    fn lacks_pages(&self) -> bool {
        self.log.standing() == Standing::Copying
    }

    /// Pages that are there, of how many, of a member that copies them; `None` when it has all, or does not know yet
    /// from whom to copy.
    #[must_use]
    pub fn copy_progress(&self) -> Option<(u64, u64)> {
        self.joining.as_ref().filter(|copying| !copying.is_waiting()).map(Copying::progress)
    }

    /// Whether it lacks pages, and no view has said yet from whom to copy.
    fn is_waiting(&self) -> bool {
        self.joining.as_ref().is_some_and(Copying::is_waiting)
    }

    /// The same. Asks for a view then: the sender has heard of this member's former life, and sends none by itself.
    fn lacks_source(&mut self, now: Moment, out: &mut Outbound) -> bool {
        if self.is_waiting() && self.view_asked.is_none_or(|asked| now.since(asked) > 1_000_000) {
            self.view_asked = Some(now);
            let packet = self.head(Kind::Request).packet([&Call::View.to_payload(0), &[]]);
            out.to_node(self.sender, packet);
        }
        self.is_waiting()
    }

    /// Takes a packet in.
    ///
    /// # Errors
    /// A device that failed: the member stops.
    pub fn packet(&mut self, now: Moment, packet: &Packet<'_>, out: &mut Outbound) -> Result<()> {
        let head = &packet.head;
        if head.group != self.options.group {
            self.counts.dropped += 1;
            return Ok(());
        }
        match head.kind {
            Kind::Data => self.data(now, packet, out)?,
            Kind::Beat => self.beat(now, head, out),
            Kind::Promise => self.promise(packet, out)?,
            Kind::View => self.view(packet, out)?,
            Kind::Request => self.request(packet, out)?,
            Kind::Reply => self.copied(now, packet)?,
            Kind::Nack | Kind::Report | Kind::Copying | Kind::Credit => self.counts.dropped += 1,
        }
        Ok(())
    }

    /// Whether packets of this head's term are for this member now; asks for the view of a newer term.
    fn is_mine(&mut self, now: Moment, head: &PacketHead, out: &mut Outbound) -> bool {
        let (promised, viewed) = self.log.promised();
        let takes_old = planted::active("fabric-old-terms-taken") && viewed > Term(0);
        if head.term == promised && viewed == promised || takes_old {
            (self.sender, self.heard) = (head.source, now);
            return true;
        }
        self.counts.dropped += 1;
        let is_newer = head.term > promised || (head.term == promised && viewed < promised);
        if is_newer && self.view_asked.is_none_or(|asked| now.since(asked) > 1_000_000) {
            self.view_asked = Some(now);
            let request = PacketHead { term: head.term, ..self.head(Kind::Request) };
            let packet = request.packet([&Call::View.to_payload(0), &[]]);
            out.to_node(head.source, packet);
        }
        false
    }

    fn beat(&mut self, now: Moment, head: &PacketHead, out: &mut Outbound) {
        if !self.is_mine(now, head, out) {
            return;
        }
        if self.lacks_source(now, out) {
            return;
        }
        self.stable = self.stable.max(head.stable);
        if head.sequence > self.newest && !planted::active("fabric-no-beat") {
            self.newest = head.sequence;
            self.gap.look(now);
        }
        // A beat that asks, and one after a report that was lost.
        self.report.now |= head.has(PACKET_SYNC) || self.report.last != (head.term, self.tail);
    }

    /// The end of a batch of packets: what it exposed becomes durable by one fence, and is reported if that is due.
    ///
    /// # Errors
    /// A device that failed.
    pub fn batch_end(&mut self, now: Moment, out: &mut Outbound) -> Result<()> {
        self.fence_exposed()?;
        let due = self.report.since.is_some_and(|since| now.since(since) >= self.options.report_ns);
        if self.report.now || due || self.report.records >= self.options.report_records {
            self.send_report(out);
        }
        Ok(())
    }

    /// Makes everything durable that was exposed.
    fn fence_exposed(&mut self) -> Result<()> {
        if self.exposed == self.tail {
            return Ok(());
        }
        if planted::active("fabric-tail-is-received") {
            self.tail = self.exposed;
            return Ok(());
        }
        self.pages.settle()?;
        // Pages and entries of the batch, before the tail that speaks for them is told.
        self.log.memory().fence();
        self.log.memory().durable()?;
        self.log.fenced();
        self.tail = self.exposed;
        self.counts.batch_fences += 1;
        Ok(())
    }

    fn send_report(&mut self, out: &mut Outbound) {
        if !self.follows() || self.is_waiting() {
            self.report = Reporting { last: self.report.last, ..Reporting::default() };
            return;
        }
        let kind = if self.joining.is_some() { Kind::Copying } else { Kind::Report };
        let head = PacketHead { sequence: self.tail, credit: self.credit(), ..self.head(kind) };
        out.to_node(self.sender, head.packet([&[], &[]]));
        self.report = Reporting { last: (head.term, self.tail), ..Reporting::default() };
        self.counts.reports += 1;
    }

    fn credit(&self) -> u32 {
        exact_u32(u64::from(self.options.credit_bytes))
    }

    /// A head for a packet to the sender.
    fn head(&mut self, kind: Kind) -> PacketHead {
        self.counter += 1;
        PacketHead {
            term: self.log.promised().0,
            view: self.log.view(),
            counter: self.counter,
            ..PacketHead::new(kind, self.options.group, self.options.node)
        }
    }

    /// Does what is due: reports, requests for missing records, answers that could wait.
    ///
    /// # Errors
    /// A device that failed.
    pub fn tick(&mut self, now: Moment, out: &mut Outbound) -> Result<()> {
        self.batch_end(now, out)?;
        self.ask_for_missing(now, out);
        self.copy_more(now, out)?;
        self.answer_later(out)
    }

    /// When [`tick`](Self::tick) has something to do at the latest; `None`: not before the next packet.
    #[must_use]
    pub fn wake_at(&self) -> Option<Moment> {
        let report = self.report.since.map(|since| since.plus(self.options.report_ns));
        let later = (!self.later.is_empty()).then_some(Moment(0));
        let copying = self.joining.as_ref().and_then(Copying::wake_at);
        [report, self.gap.wake_at(), later, copying].into_iter().flatten().min()
    }

    fn note_exposed(&mut self, now: Moment, is_sync: bool) {
        self.counts.exposed += 1;
        self.report.records += 1;
        self.report.since.get_or_insert(now);
        self.report.now |= is_sync;
        self.gap.progress(now);
    }
}
