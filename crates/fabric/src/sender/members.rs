//! Changes of members: one at a time, by the registry, and only when no acknowledged record can be lost by it.
//!
//! - *Remove*: a quorum of the others holds all that is acknowledged, and the first record of the term, below which is
//!   all that was adopted. Every takeover among them then finds all of it. So a removal need not wait until that record
//!   is acknowledged: of two members one may be gone for good. In a unit it waits, because the operations of former
//!   terms must be settled.
//! - *Add*: the member joins first. It counts for nothing but the release of records. From then on no page is used
//!   again before it has applied the record that freed it, so pages may be copied while others write. It applies
//!   records meanwhile, so that they are released.
//! - *Promote*: it has all pages, and holds what a removal would demand of it.
//!
//! From the proposal until the registry has decided, a record needs the quorum of both views.

use lodestone_pmem::planted;

use super::{Peer, Phase, Place, Sender};
use crate::error::{Error, Result};
use crate::ids::{Moment, NodeId, Sequence, Term};
use crate::view::{Role, View};

const fn refused<T>(reason: &'static str) -> Result<T> {
    Err(Error::ChangeRefused { reason })
}

impl Sender {
    /// Where a member that joins begins: the ring has everything after it. And no page that counts there was used
    /// again:
    /// this sender uses those that were freed up to `stable`, and former ones may have used any that was freed up to
    /// `base`.
    pub(super) fn join_point(&self) -> (Sequence, Term) {
        let floor = if planted::active("fabric-join-below-the-reuse-floor") { Sequence(0) } else { self.base };
        let from = self.stable.max(self.ring.first()).max(floor);
        (from, self.ring.terms().term_of(from).unwrap_or_default())
    }

    fn may_change(&self) -> Result<()> {
        if !matches!(self.phase, Phase::Sending) {
            return refused("this node is not sending");
        }
        if self.pending.is_some() {
            return refused("another change is undecided");
        }
        if !self.order.may_change {
            return refused("the first operation of this term is not acknowledged yet");
        }
        if self.acked <= self.base && !planted::active("fabric-adopted-log-forgotten") {
            return refused("the first record of this term is not acknowledged yet");
        }
        Ok(())
    }

    /// The record that a member of the next view must have.
    fn floor(&self) -> Sequence {
        if planted::active("fabric-adopted-log-forgotten") { self.acked } else { self.acked.max(self.base.next()) }
    }

    /// Proposes to remove a member. The caller asks the registry, and tells the [decision](Self::decided).
    ///
    /// # Errors
    /// [`Error::ChangeRefused`].
    pub fn propose_removal(&mut self, node: NodeId) -> Result<View> {
        let next = self.view.with(node, None);
        if !self.may_remove_at_once(&next) {
            self.may_change()?;
        }
        let Some(role) = self.view.role(node) else { return refused("it is not a member") };
        if role == Role::Active {
            if next.active().count() == 0 {
                return refused("it is the last member");
            }
            // Any takeover of the next view asks one of its quorum. All others together would be too much: two members
            // that are gone, or that lag, would each keep the other one in.
            let needs_all = planted::active("fabric-removal-needs-all-others");
            let has = if needs_all { self.tails(&next).first().copied() } else { Some(self.quorum_tail(&next)) };
            let others_have = has.is_some_and(|tail| tail >= self.floor());
            if !others_have && !planted::active("fabric-removed-before-the-rest-has-it") {
                return refused("a quorum of the other members does not have everything yet");
            }
        }
        self.pending = Some(next.clone());
        Ok(next)
    }

    /// Whether all members of `next` have the first record of this term, and the group is no unit.
    fn may_remove_at_once(&self, next: &View) -> bool {
        let is_free = matches!(self.phase, Phase::Sending) && self.pending.is_none() && self.order.place != Place::Unit;
        is_free && self.tails(next).first().is_some_and(|tail| *tail > self.base)
    }

    /// Proposes that a node joins.
    ///
    /// # Errors
    /// [`Error::ChangeRefused`].
    pub fn propose_join(&mut self, node: NodeId) -> Result<View> {
        self.may_change()?;
        if self.view.role(node).is_some() || self.joiner().is_some() {
            return refused("it is a member already, or another node joins");
        }
        let next = self.view.with(node, Some(Role::Joining));
        self.pending = Some(next.clone());
        Ok(next)
    }

    /// Proposes that the joining member counts from now on.
    ///
    /// # Errors
    /// [`Error::ChangeRefused`].
    pub fn propose_promotion(&mut self, node: NodeId) -> Result<View> {
        self.may_change()?;
        if self.view.role(node) != Some(Role::Joining) {
            return refused("it does not join");
        }
        let floor = self.floor().max(self.reuse_floor);
        let has_pages = |peer: &Peer| peer.has_pages || planted::active("fabric-joined-without-pages");
        let has = self.peers.get(&node).is_some_and(|peer| peer.viewed && peer.tail >= floor && has_pages(peer));
        if !has && !planted::active("fabric-joined-before-it-has-it") {
            return refused("it does not have everything yet");
        }
        let next = self.view.with(node, Some(Role::Active));
        self.pending = Some(next.clone());
        Ok(next)
    }

    /// The change that is undecided.
    #[must_use]
    pub const fn pending(&self) -> Option<&View> {
        self.pending.as_ref()
    }

    /// The registry has decided: `view` counts now. Either the proposed one, or the former if the proposal failed.
    pub fn decided(&mut self, now: Moment, view: &View, out: &mut crate::effect::Outbound) {
        let Some(pending) = self.pending.take() else { return };
        if *view != pending || !matches!(self.phase, Phase::Sending) {
            return;
        }
        let joins = |node: &NodeId| view.role(*node) == Some(Role::Joining);
        let is_new_joiner = view.members.iter().any(|m| joins(&m.node) && self.view.role(m.node).is_none());
        if is_new_joiner {
            self.joins_from = self.join_point();
        }
        self.view = pending;
        self.peers.retain(|node, _| view.role(*node).is_some());
        for member in &view.members {
            let fresh = Peer::new(self.joins_from.0, self.options.credit_bytes, now);
            self.peers.entry(member.node).or_insert(fresh).viewed = false;
        }
        self.advance();
        self.send_view(now, None, out);
    }
}
