//! The life of a sender in a volume: claims a term, takes over, holds the lease, steps down.
//!
//! 1. *Claim*: the next term by compare-and-swap. The registry names the members of that moment.
//! 2. *Take over* (`sender/takeover.rs`).
//! 3. *Confirm*: the registry says that the term is still the newest, and grants the lease when that of the former
//!    sender is over. From then on reads are served and writes are acknowledged. A write that was acknowledged before
//!    would be missing in reads that the former sender may still serve.
//! 4. *Renew* at a third of the lease. A sender whose lease has ended serves no reads, and one whose term is not the
//!    newest is idle.
//!
//! Like the other cores it has no clock and asks for calls of the registry as values. A call whose answer is lost is
//! made again: each of them says by its condition whether it has happened.

use lodestone_pmem::planted;

use crate::effect::Outbound;
use crate::error::Result;
use crate::ids::{GroupId, Moment, NodeId, Sequence, Term};
use crate::registry::{Lease, Registry, Swap, VolumeState};
use crate::sender::{Sender, SenderEvent};
use crate::view::{Role, View};
use crate::volume::VolumeSender;

const AGAIN_NS: u64 = 50_000_000;

/// A call to the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryCall {
    /// [`Registry::state`].
    State,
    /// [`Registry::claim`].
    Claim(NodeId, Term),
    /// [`Registry::change`].
    Change(Term, u64, GroupId, View),
    /// [`Registry::renew`].
    Renew(Term),
}

/// Its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryAnswer {
    /// The present state.
    State(VolumeState),
    /// Of a compare-and-swap.
    Swap(Swap),
    /// Of a renewal, which was asked for at a moment of the caller's clock.
    Lease(Lease, Moment),
}

impl RegistryCall {
    /// Makes the call. `now` is a moment of the registry, `asked` one of the caller.
    ///
    /// # Errors
    /// A registry that cannot be reached.
    pub fn make(&self, registry: &mut dyn Registry, now: Moment, asked: Moment) -> Result<RegistryAnswer> {
        Ok(match self {
            Self::State => RegistryAnswer::State(registry.state()?),
            Self::Claim(node, seen) => RegistryAnswer::Swap(registry.claim(*node, *seen)?),
            Self::Change(term, change, group, view) => {
                RegistryAnswer::Swap(registry.change(*term, *change, *group, view)?)
            }
            Self::Renew(term) => RegistryAnswer::Lease(registry.renew(now, *term)?, asked),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Following,
    Claiming,
    Leading,
}

/// A wish of a node for its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The node is removed.
    Remove(NodeId),
    /// The node joins, and counts when it has everything.
    Join(NodeId),
}

/// A node that may send in a volume.
#[derive(Debug)]
pub struct Leader {
    node: NodeId,
    volume: VolumeSender,
    phase: Phase,
    /// The term that was the newest when this life claimed the next one.
    claimed: Option<Term>,
    change: u64,
    call_due: Option<Moment>,
    calls: Vec<RegistryCall>,
    lease_until: Option<Moment>,
    /// Whether this term ever had the lease.
    is_confirmed: bool,
    /// The newest record that a quorum had before that.
    unconfirmed: Option<Sequence>,
    renew_at: Moment,
    wish: Option<(GroupId, Wish)>,
    /// A group whose joining member does not count before its owner has said so.
    held: Option<GroupId>,
    /// Events of units since the last call.
    unit_events: Vec<(GroupId, SenderEvent)>,
}

impl Leader {
    /// A node that follows, in a volume of one group. The group is the sender's.
    #[must_use]
    pub fn new(node: NodeId, group: GroupId, sender: Sender) -> Self {
        debug_assert!(group == sender.group(), "the sender is of the group");
        Self::of_volume(node, VolumeSender::alone(sender))
    }

    /// A node that follows, in a volume of several groups.
    #[must_use]
    pub const fn of_volume(node: NodeId, volume: VolumeSender) -> Self {
        Self {
            node,
            volume,
            phase: Phase::Following,
            claimed: None,
            change: 0,
            call_due: None,
            calls: Vec::new(),
            lease_until: None,
            is_confirmed: false,
            unconfirmed: None,
            renew_at: Moment(0),
            wish: None,
            held: None,
            unit_events: Vec::new(),
        }
    }

    /// The sender of the only group, or of the operations.
    #[must_use]
    pub const fn sender(&self) -> &Sender {
        self.volume.operations()
    }

    /// The sender of the only group, to submit to.
    pub const fn sender_mut(&mut self) -> &mut Sender {
        self.volume.operations_mut()
    }

    /// The sender of all groups.
    #[must_use]
    pub const fn volume(&self) -> &VolumeSender {
        &self.volume
    }

    /// The sender of all groups, to submit to.
    pub const fn volume_mut(&mut self) -> &mut VolumeSender {
        &mut self.volume
    }

    /// Events of units since the last call: those of the operations are returned by [`tick`](Self::tick).
    pub fn take_unit_events(&mut self) -> Vec<(GroupId, SenderEvent)> {
        std::mem::take(&mut self.unit_events)
    }

    /// Whether this node claims or holds the newest term that it knows.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.phase != Phase::Following
    }

    /// Whether reads may be answered at `now`.
    #[must_use]
    pub fn may_read(&self, now: Moment) -> bool {
        let holds = self.lease_until.is_some_and(|until| now < until) || planted::active("fabric-no-lease");
        self.volume.is_sending() && holds
    }

    /// How long reads may still be answered at `now`, if it does not get the lease again; `None`: they may not be.
    #[must_use]
    pub fn lease_left(&self, now: Moment) -> Option<u64> {
        let left = self.lease_until.and_then(|until| until.0.checked_sub(now.0)).filter(|left| *left > 0);
        left.filter(|_| self.volume.is_sending())
    }

    /// Wants to be the sender from now on.
    pub fn claim(&mut self, now: Moment) {
        self.phase = Phase::Claiming;
        self.call(now, RegistryCall::State);
    }

    /// Wants a change of members of the only group, or of the operations. One at a time: the former wish is forgotten.
    pub fn wish(&mut self, wish: Wish) {
        self.wish_in(self.volume.operations().group(), wish);
    }

    /// Wants a change of members of a group. One at a time in the volume: the former wish is forgotten.
    pub const fn wish_in(&mut self, group: GroupId, wish: Wish) {
        self.wish = Some((group, wish));
    }

    /// Does not want a node removed any more that was to be. A change that was proposed already is decided as before.
    pub fn withdraw_removal(&mut self) {
        if matches!(self.wish, Some((_, Wish::Remove(_)))) {
            self.wish = None;
        }
    }

    /// The wish that is not fulfilled yet.
    #[must_use]
    pub fn wished(&self) -> Option<Wish> {
        self.wish.map(|wish| wish.1)
    }

    /// A member that joins `group` does not count until this is taken back: it needs something that records do not
    /// carry.
    pub const fn hold_promotion(&mut self, group: Option<GroupId>) {
        self.held = group;
    }

    fn call(&mut self, now: Moment, call: RegistryCall) {
        self.calls.push(call);
        self.call_due = Some(now.plus(AGAIN_NS));
    }

    /// Calls to make.
    pub fn take_calls(&mut self) -> Vec<RegistryCall> {
        std::mem::take(&mut self.calls)
    }

    /// The registry answered.
    pub fn answered(&mut self, now: Moment, answer: RegistryAnswer, out: &mut Outbound) {
        match answer {
            RegistryAnswer::State(state) | RegistryAnswer::Swap(Swap::Done(state) | Swap::Differs(state)) => {
                self.learned(now, &state, out);
            }
            RegistryAnswer::Lease(Lease::Held(ns), asked) => {
                // From before it asked, and a tenth less: the clocks differ.
                self.lease_until = Some(asked.plus(ns - ns / 10));
                self.is_confirmed = true;
                self.renew_at = now.plus(ns / 3);
            }
            RegistryAnswer::Lease(Lease::Wait(ns), _) => self.renew_at = now.plus(ns + ns / 10),
            RegistryAnswer::Lease(Lease::Lost(term), _) => self.step_down(term),
        }
    }

    fn learned(&mut self, now: Moment, state: &VolumeState, out: &mut Outbound) {
        match self.phase {
            Phase::Following => {}
            Phase::Claiming if state.sender == self.node && self.is_mine(state.term) => {
                // A group without members: an operator has to add them first.
                if self.volume.take_over(now, state, out).is_err() {
                    return;
                }
                self.phase = Phase::Leading;
                (self.change, self.call_due, self.lease_until) = (state.change, None, None);
                (self.is_confirmed, self.unconfirmed) = (false, None);
                self.renew_at = now;
            }
            Phase::Claiming => {
                self.claimed = Some(state.term);
                self.call(now, RegistryCall::Claim(self.node, state.term));
            }
            Phase::Leading if state.term > self.term() => self.step_down(state.term),
            Phase::Leading => {
                if state.change > self.change {
                    self.change = state.change;
                    self.call_due = None;
                    self.decided(now, state, out);
                }
            }
        }
    }

    fn term(&self) -> Term {
        self.sender().term()
    }

    /// The registry has other members. A group without a proposal takes no notice.
    fn decided(&mut self, now: Moment, state: &VolumeState, out: &mut Outbound) {
        for (group, view) in &state.groups {
            if let Some(sender) = self.volume.group_mut(*group) {
                sender.decided(now, view, out);
            }
        }
    }

    /// Whether this life of the node claimed `term`; also when the answer to the claim was lost. A term of a former
    /// life
    /// is not used again: members may hold records of it that this life does not know.
    fn is_mine(&self, term: Term) -> bool {
        let is_claimed = self.claimed.is_some_and(|seen| term.0 == seen.0 + 1);
        is_claimed || (planted::active("fabric-term-of-a-former-life") && term > self.term())
    }

    fn step_down(&mut self, term: Term) {
        self.volume.depose(term);
        (self.phase, self.lease_until, self.call_due, self.wish) = (Phase::Following, None, None, None);
    }

    /// Does what is due.
    ///
    /// # Errors
    /// A damaged ring.
    pub fn tick(&mut self, now: Moment, out: &mut Outbound) -> Result<Vec<SenderEvent>> {
        self.volume.tick(now, out)?;
        let events = self.volume.take_events();
        if let Some(term) = events.iter().find_map(|(_, event)| match event {
            SenderEvent::Deposed(term) => Some(*term),
            _ => None,
        }) {
            self.step_down(term);
        }
        let own = self.sender().group();
        let (events, of_units): (Vec<_>, Vec<_>) = events.into_iter().partition(|(group, _)| *group == own);
        self.unit_events.extend(of_units);
        let mut events: Vec<SenderEvent> = events.into_iter().map(|(_, event)| event).collect();
        if self.call_due.is_some_and(|due| now >= due) {
            // The answer was lost, or the registry is slow.
            self.call(now, RegistryCall::State);
            if let Some((group, pending)) = self.pending() {
                self.call(now, RegistryCall::Change(self.term(), self.change, group, pending));
            }
        }
        if self.phase == Phase::Leading && self.volume.is_sending() {
            if now >= self.renew_at {
                self.renew_at = now.plus(AGAIN_NS);
                self.calls.push(RegistryCall::Renew(self.term()));
            }
            self.pursue(now);
        }
        self.withhold(&mut events);
        Ok(events)
    }

    /// Keeps acknowledgements back until the former sender's lease is over.
    fn withhold(&mut self, events: &mut Vec<SenderEvent>) {
        if self.is_confirmed || planted::active("fabric-acknowledged-before-the-lease") {
            let before = self.unconfirmed.take().filter(|_| self.phase == Phase::Leading);
            events.extend(before.map(SenderEvent::Acknowledged));
            return;
        }
        events.retain(|event| match event {
            SenderEvent::Acknowledged(sequence) => {
                self.unconfirmed = self.unconfirmed.max(Some(*sequence));
                false
            }
            _ => true,
        });
    }

    /// The change that the registry has not decided.
    fn pending(&self) -> Option<(GroupId, View)> {
        self.volume.groups().find_map(|sender| Some((sender.group(), sender.pending()?.clone())))
    }

    /// Proposes the next step of the wish, when that is allowed. One change at a time in the volume.
    fn pursue(&mut self, now: Moment) {
        if self.pending().is_some() || self.promote(now) {
            return;
        }
        let Some((group, wish)) = self.wish else { return };
        let Some(sender) = self.volume.group_mut(group) else { return self.wish = None };
        let proposed = match wish {
            Wish::Remove(node) => match sender.view().role(node) {
                None => return self.wish = None,
                Some(_) => sender.propose_removal(node),
            },
            Wish::Join(node) => match sender.view().role(node) {
                Some(Role::Active) => return self.wish = None,
                // It is promoted above.
                Some(Role::Joining) => return,
                None => sender.propose_join(node),
            },
        };
        if let Ok(view) = proposed {
            self.call(now, RegistryCall::Change(self.term(), self.change, group, view));
        }
    }

    /// A member that joins counts as soon as it may, whatever else is wished. Whether that was proposed.
    fn promote(&mut self, now: Moment) -> bool {
        let groups: Vec<GroupId> = self.volume.groups().map(Sender::group).collect();
        for group in groups.into_iter().filter(|group| self.held != Some(*group)) {
            let wish = self.wish;
            let Some(sender) = self.volume.group_mut(group) else { continue };
            let joiner = sender.view().members.iter().find(|member| member.role == Role::Joining);
            let joiner = joiner.map(|member| member.node).filter(|node| wish != Some((group, Wish::Remove(*node))));
            if let Some(Ok(view)) = joiner.map(|node| sender.propose_promotion(node)) {
                self.call(now, RegistryCall::Change(self.term(), self.change, group, view));
                return true;
            }
        }
        false
    }

    /// When [`tick`](Self::tick) has something to do at the latest.
    #[must_use]
    pub fn wake_at(&self) -> Option<Moment> {
        // The lease is asked for when this node sends: until then its members wake it.
        let renew = (self.phase == Phase::Leading && self.volume.is_sending()).then_some(self.renew_at);
        [self.volume.wake_at(), self.call_due, renew].into_iter().flatten().min()
    }

    /// Everything up to here survives the loss of any minority, and may be told.
    #[must_use]
    pub const fn acknowledged(&self) -> Sequence {
        if self.is_confirmed { self.volume.acknowledged() } else { Sequence(0) }
    }
}
