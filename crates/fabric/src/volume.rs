//! Several groups under one order of operations: the sender of a volume.
//!
//! Group 0 is the log of operations, and an operation's number is its sequence there. The bytes that it writes go to
//! other groups, the *units*: a payload. The operation names them ([`Payloads`]), by unit and sequence.
//!
//! 1. *Submit*: payloads and operation get their places, and go to the rings. One fence is for all of them.
//! 2. *Acknowledged*: a quorum of group 0 has the operation, and quorums of the units have all payloads up to it. So
//!    after any crash the volume is the state after a prefix of operations that has every acknowledged one.
//! 3. *Stable*, in any group: the operation is acknowledged, and every member has the record.
//! 4. *Takeover*: each unit adopts its best log. Then group 0 adopts its own, and cuts it at the first operation
//!    whose payload is in no adopted log. Such an operation was never acknowledged. A ring without room gives up
//!    operations that all members have, when each unit has acknowledged the first record of the term.
//!
//! Records of a unit whose operation was cut stay in its log: *orphans*. No state refers to them, but they have
//! written pages. So after a takeover every free page counts as used by the last adopted record
//! ([`VolumeSender::pages_free_from`]).
//!
//! Invariants, judged by a model (`fabric-sim` `tests/several_groups`), and each planted as a bug:
//! - a unit has nothing stable beyond the last payload of an acknowledged operation, unless no operation waits;
//! - in a new term nothing more becomes stable, and no member changes, before the first record of the term in group 0
//!   is acknowledged. From then on the operations of former terms are settled.
//!
//! A volume of one group has neither units nor these rules: that group alone decides.

use std::collections::{BTreeMap, VecDeque};

use lodestone_pmem::planted;
use lodestone_width::to_u64;

use crate::effect::Outbound;
use crate::error::{Error, Result};
use crate::ids::{GroupId, Moment, Sequence, Term};
use crate::outbox::Outbox;
use crate::packet::Packet;
use crate::record::{FLAG_INLINE, FLAG_PAYLOADS, PAYLOADS_MAX, Payloads};
use crate::registry::VolumeState;
use crate::sender::{Place, Sender, SenderEvent, Submission};

/// The group of the operations of a volume.
pub const OPERATIONS: GroupId = GroupId(0);

/// A payload to submit.
#[derive(Clone, Debug)]
pub struct Payload {
    /// Where it goes.
    pub unit: GroupId,
    /// The record's fields. The volume sets the number of the operation.
    pub submission: Submission,
    /// The record's body.
    pub body: Vec<u8>,
}

/// An operation that is not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Waiting {
    operation: Sequence,
    places: Vec<(GroupId, Sequence)>,
}

/// How far a unit's payloads are.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// The last payload of an acknowledged operation.
    acknowledged: Sequence,
    /// Operations that wait and have a payload there.
    waiting: u64,
}

/// The sender of all groups of a volume. A synchronous state machine, as [`Sender`].
#[derive(Debug)]
pub struct VolumeSender {
    operations: Sender,
    units: BTreeMap<GroupId, Sender>,
    waiting: VecDeque<Waiting>,
    /// Operations at the front of `waiting` whose payloads are acknowledged.
    complete: usize,
    progress: BTreeMap<GroupId, Progress>,
    /// Whether the waiting operations of this term are known.
    is_ready: bool,
}

impl VolumeSender {
    /// A volume of operations and units.
    ///
    /// # Errors
    /// [`Error::Malformed`] if a group is there twice, or the operations are not group 0.
    pub fn new(mut operations: Sender, units: Vec<Sender>) -> Result<Self> {
        if operations.group() != OPERATIONS {
            return Err(Error::Malformed { what: "the operations of a volume are group 0" });
        }
        let count = units.len();
        let mut units: BTreeMap<GroupId, Sender> = units.into_iter().map(|unit| (unit.group(), unit)).collect();
        if units.len() != count || units.contains_key(&OPERATIONS) {
            return Err(Error::Malformed { what: "a group is in the volume twice" });
        }
        operations.set_place(Place::Operations);
        units.values_mut().for_each(|unit| unit.set_place(Place::Unit));
        Ok(Self::of(operations, units))
    }

    /// A volume of one group, which decides alone.
    #[must_use]
    pub fn alone(sender: Sender) -> Self {
        Self::of(sender, BTreeMap::new())
    }

    fn of(operations: Sender, units: BTreeMap<GroupId, Sender>) -> Self {
        let (waiting, progress) = (VecDeque::new(), BTreeMap::new());
        Self { operations, units, waiting, complete: 0, progress, is_ready: false }
    }

    /// The sender of the operations, or of the only group.
    #[must_use]
    pub const fn operations(&self) -> &Sender {
        &self.operations
    }

    /// The same, to submit to.
    pub const fn operations_mut(&mut self) -> &mut Sender {
        &mut self.operations
    }

    /// The sender of a group.
    #[must_use]
    pub fn group(&self, group: GroupId) -> Option<&Sender> {
        if group == self.operations.group() { Some(&self.operations) } else { self.units.get(&group) }
    }

    pub(crate) fn group_mut(&mut self, group: GroupId) -> Option<&mut Sender> {
        if group == self.operations.group() { Some(&mut self.operations) } else { self.units.get_mut(&group) }
    }

    /// All groups, the operations first.
    pub fn groups(&self) -> impl Iterator<Item = &Sender> + '_ {
        std::iter::once(&self.operations).chain(self.units.values())
    }

    fn groups_mut(&mut self) -> impl Iterator<Item = &mut Sender> + '_ {
        std::iter::once(&mut self.operations).chain(self.units.values_mut())
    }

    /// Whether operations can be submitted.
    #[must_use]
    pub fn is_sending(&self) -> bool {
        self.groups().all(Sender::is_sending)
    }

    /// Every operation up to here survives the loss of any minority of each group.
    #[must_use]
    pub const fn acknowledged(&self) -> Sequence {
        self.operations.acknowledged()
    }

    /// The newest operation.
    #[must_use]
    pub fn last(&self) -> Sequence {
        self.operations.ring().last()
    }

    /// The record of `unit` from which a page is free that neither the state nor a record of this term has: it may be
    /// written when this record is stable.
    #[must_use]
    pub fn pages_free_from(&self, unit: GroupId) -> Sequence {
        if planted::active("fabric-orphan-pages-free") {
            return Sequence(0);
        }
        self.group(unit).map_or(Sequence(0), Sender::base)
    }

    /// Becomes the sender of the term of `state`, with the members of that moment.
    ///
    /// # Errors
    /// [`Error::Registry`] if a group has no view there.
    pub fn take_over(&mut self, now: Moment, state: &VolumeState, out: &mut Outbound) -> Result<()> {
        let missing = |group: GroupId| Error::Registry(format!("{group} has no members; add it to the volume first"));
        let has_view = |sender: &Sender| state.view(sender.group()).is_some();
        if let Some(sender) = self.groups().find(|sender| !has_view(sender)) {
            return Err(missing(sender.group()));
        }
        self.waiting.clear();
        (self.complete, self.is_ready) = (0, false);
        for sender in self.groups_mut() {
            if let Some(view) = state.view(sender.group()) {
                sender.take_over(now, state.term, view.clone(), out);
            }
        }
        Ok(())
    }

    /// Another node has a newer term.
    pub fn depose(&mut self, term: Term) {
        self.groups_mut().for_each(|sender| sender.depose(term));
    }

    /// Gives an operation and its payloads their places: in the rings, not fenced, and queued. Returns its number.
    /// `body` is the caller's part of the operation. [`pump`](Self::pump) sends them.
    ///
    /// # Errors
    /// [`Error::NotSender`]; [`Error::Busy`]; [`Error::Full`]; [`Error::RecordTooLarge`]; [`Error::Malformed`]. Nothing
    /// happened then.
    pub fn submit(&mut self, operation: &Submission, body: &[u8], payloads: Vec<Payload>) -> Result<Sequence> {
        self.may_submit(body, &payloads)?;
        let number = self.last().next();
        let mut places: Vec<(GroupId, Sequence)> = Vec::new();
        for payload in payloads {
            let submission = Submission { operation: number.0, ..payload.submission };
            let Some(unit) = self.units.get_mut(&payload.unit) else { continue };
            let sequence = unit.submit(&submission, payload.body)?;
            match places.iter_mut().find(|place| place.0 == payload.unit) {
                Some(place) => place.1 = sequence,
                None => places.push((payload.unit, sequence)),
            }
        }
        let mut operation = Submission { operation: number.0, ..*operation };
        operation.flags |= FLAG_INLINE;
        let body = if places.is_empty() {
            body.to_vec()
        } else {
            operation.flags |= FLAG_PAYLOADS;
            Payloads::body(&places, body)
        };
        let number = self.operations.submit(&operation, body)?;
        self.wait_for(Waiting { operation: number, places });
        Ok(number)
    }

    /// Whether an operation fits as a whole: afterwards no part of it can be refused.
    fn may_submit(&self, body: &[u8], payloads: &[Payload]) -> Result<()> {
        if !self.is_sending() || !self.is_ready && !self.units.is_empty() {
            return Err(Error::NotSender { state: "taking over" });
        }
        let list = 8 + 16 * payloads.len();
        let longest = payloads.iter().map(|payload| payload.body.len()).chain([body.len() + list]).max();
        let limit = self.groups().map(Sender::body_bytes_max).min().unwrap_or(0);
        if let Some(bytes) = longest.filter(|bytes| *bytes > limit) {
            return Err(Error::RecordTooLarge { bytes, limit });
        }
        if payloads.len() > PAYLOADS_MAX || payloads.iter().any(|payload| !self.units.contains_key(&payload.unit)) {
            return Err(Error::Malformed { what: "a payload for a unit that does not exist, or too many of them" });
        }
        for (group, unit) in &self.units {
            let mine = || payloads.iter().filter(|payload| payload.unit == *group);
            let bytes: u64 = mine().map(|payload| to_u64(payload.body.len())).sum();
            unit.may_submit(mine().count(), bytes)?;
        }
        self.operations.may_submit(1, to_u64(body.len() + list))
    }

    fn wait_for(&mut self, waiting: Waiting) {
        for (unit, _) in &waiting.places {
            self.progress.entry(*unit).or_default().waiting += 1;
        }
        self.waiting.push_back(waiting);
    }

    /// Sends queued records of all groups.
    pub fn pump(&mut self, now: Moment, out: &mut Outbound) {
        self.groups_mut().for_each(|sender| sender.pump(now, out));
    }

    /// Everything that was submitted survives a crash of this node after this call: one fence, if all rings are in one
    /// pool.
    ///
    /// # Errors
    /// A device that failed.
    pub fn fence(&mut self) -> Result<()> {
        if self.groups().all(|sender| sender.ring().fenced() >= sender.ring().last()) {
            return Ok(());
        }
        let mut fenced = None;
        for sender in self.groups_mut() {
            match &fenced {
                Some(memory) if sender.ring().memory().is_same(memory) => sender.was_fenced(),
                _ => {
                    sender.fence_anyway()?;
                    fenced = Some(sender.ring().memory().clone());
                }
            }
        }
        Ok(())
    }

    /// Takes a packet in.
    ///
    /// # Errors
    /// A device that failed.
    pub fn packet(&mut self, now: Moment, packet: &Packet<'_>, out: &mut Outbound) -> Result<()> {
        let term = self.operations.term();
        let Some(sender) = self.group_mut(packet.head.group) else { return Ok(()) };
        sender.packet(now, packet, out)?;
        if packet.head.term > term {
            // One group has a newer sender, so this node sends in none.
            self.depose(packet.head.term);
        }
        self.advance(now, out)
    }

    /// Sends what is due.
    ///
    /// # Errors
    /// A damaged ring.
    pub fn tick(&mut self, now: Moment, out: &mut Outbound) -> Result<()> {
        for sender in self.groups_mut() {
            sender.tick(now, out)?;
        }
        self.advance(now, out)
    }

    /// When [`tick`](Self::tick) has something to do at the latest.
    #[must_use]
    pub fn wake_at(&self) -> Option<Moment> {
        self.groups().filter_map(Sender::wake_at).min()
    }

    /// Asks the members of all groups at once how far they are.
    pub fn ask(&mut self, now: Moment, out: &mut Outbound) {
        self.groups_mut().for_each(|sender| sender.ask(now, out));
    }

    /// Asks the members of all groups for a report, whatever they reported before.
    pub fn probe(&mut self, out: &mut Outbound) {
        self.groups_mut().for_each(|sender| sender.probe(out));
    }

    /// Events since the last call, each with its group.
    pub fn take_events(&mut self) -> Vec<(GroupId, SenderEvent)> {
        let of = |sender: &mut Sender| {
            let group = sender.group();
            sender.take_events().into_iter().map(move |event| (group, event))
        };
        self.groups_mut().flat_map(of).collect()
    }

    /// Takes the operations over when the units are, and says how far each group may go.
    fn advance(&mut self, now: Moment, out: &mut Outbound) -> Result<()> {
        if self.units.is_empty() {
            return Ok(());
        }
        if self.operations.waits_for_units() {
            let log = |unit: &Sender| Some((unit.group(), unit.payload_log()?.clone()));
            let logs: Option<BTreeMap<_, _>> = self.units.values().map(log).collect();
            if let Some(logs) = logs {
                self.operations.units_adopted(now, logs, out)?;
            }
        }
        if self.units.values().all(Sender::has_begun) {
            self.operations.units_settled(now, out)?;
        }
        if !self.is_sending() {
            return Ok(());
        }
        if !self.is_ready {
            self.find_waiting()?;
        }
        self.complete();
        self.settle();
        Ok(())
    }

    /// The operations of the adopted log that are not stable.
    fn find_waiting(&mut self) -> Result<()> {
        self.waiting.clear();
        self.complete = 0;
        let acknowledged = |unit: &Sender| Progress { acknowledged: unit.stable(), waiting: 0 };
        self.progress = self.units.values().map(|unit| (unit.group(), acknowledged(unit))).collect();
        let (first, last) = (self.operations.ring().first(), self.operations.ring().last());
        for operation in (first.0 + 1..=last.0).map(Sequence) {
            let Some((head, body)) = self.operations.ring().record(operation)? else { continue };
            let payloads = Payloads::of(&body).filter(|_| head.has(FLAG_PAYLOADS));
            let places = payloads.map_or_else(Vec::new, |payloads| payloads.places().collect());
            self.wait_for(Waiting { operation, places });
        }
        self.is_ready = true;
        Ok(())
    }

    /// Lets the operations be acknowledged up to the first whose payload is not.
    fn complete(&mut self) {
        let units = &self.units;
        let has = |place: &(GroupId, Sequence)| units.get(&place.0).is_some_and(|unit| unit.acknowledged() >= place.1);
        while self.waiting.get(self.complete).is_some_and(|waiting| waiting.places.iter().all(has)) {
            self.complete += 1;
        }
        let first = self.waiting.get(self.complete).map(|waiting| waiting.operation.before());
        let first = first.filter(|_| !planted::active("fabric-operation-without-its-payload"));
        self.operations.limit(first.unwrap_or(Sequence(u64::MAX)), Sequence(u64::MAX), self.is_begun());
    }

    /// Whether the first record of the term is acknowledged, in group 0.
    fn is_begun(&self) -> bool {
        self.operations.acknowledged() > self.operations.base()
    }

    /// Lets the units be stable up to the payloads of acknowledged operations.
    fn settle(&mut self) {
        let acknowledged = self.operations.acknowledged();
        while let Some(waiting) = self.waiting.front().filter(|waiting| waiting.operation <= acknowledged) {
            for (unit, sequence) in &waiting.places {
                let progress = self.progress.entry(*unit).or_default();
                progress.waiting -= 1;
                progress.acknowledged = progress.acknowledged.max(*sequence);
            }
            self.waiting.pop_front();
            self.complete = self.complete.saturating_sub(1);
        }
        let is_begun = self.is_begun();
        let none = Sequence(u64::MAX);
        for (group, unit) in &mut self.units {
            let progress = self.progress.get(group).copied().unwrap_or_default();
            let stable_max = match progress {
                _ if planted::active("fabric-payload-stable-alone") => none,
                _ if !is_begun && !planted::active("fabric-payload-stable-before-the-term") => Sequence(0),
                Progress { waiting: 0, .. } => none,
                Progress { acknowledged, .. } => acknowledged,
            };
            unit.limit(none, stable_max, is_begun);
        }
    }
}
