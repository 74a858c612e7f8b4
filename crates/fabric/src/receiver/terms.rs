//! Promises and views: what a member does when the sender changes.

use lodestone_pmem::planted;

use super::{Copying, Receiver};
use crate::applylog::Standing;
use crate::effect::Outbound;
use crate::error::Result;
use crate::ids::{NodeId, Sequence, Term};
use crate::message::ViewMessage;
use crate::packet::{Kind, PACKET_ANSWER, PACKET_GONE, Packet, PacketHead};
use crate::view::{Member, Role};

impl Receiver {
    /// A sender of a new term asks: from the durable promise on no packet of an older term counts.
    pub(super) fn promise(&mut self, packet: &Packet<'_>, out: &mut Outbound) -> Result<()> {
        let (asked, (promised, viewed)) = (packet.head.term, self.log.promised());
        if packet.head.has(PACKET_ANSWER) {
            return Ok(());
        }
        if asked < promised {
            // So that a sender that was replaced learns of it.
            let head = PacketHead { flags: PACKET_ANSWER | PACKET_GONE, ..self.head(Kind::Promise) };
            out.to_node(packet.head.source, head.packet([&[], &[]]));
            return Ok(());
        }
        if asked == promised && viewed == promised {
            return Ok(());
        }
        if asked > promised {
            // The answer speaks of what is durable.
            self.fence_exposed()?;
            self.forget_loose();
            if !planted::active("fabric-promise-not-kept") {
                self.log.promise(asked);
            }
        }
        self.sender = packet.head.source;
        // A member that lacks pages is no log to adopt.
        if self.lacks_pages() {
            return Ok(());
        }
        let head =
            PacketHead { flags: PACKET_ANSWER, sequence: self.tail, stable: self.stable, ..self.head(Kind::Promise) };
        let head = PacketHead { term: asked, ..head };
        out.to_node(packet.head.source, head.packet([&self.log.terms().to_payload(), &[]]));
        Ok(())
    }

    pub(super) fn forget_loose(&mut self) {
        self.loose.clear();
        self.loose_bytes = 0;
        self.gap.rest();
    }

    /// Members and log of a term.
    pub(super) fn view(&mut self, packet: &Packet<'_>, out: &mut Outbound) -> Result<()> {
        let (head, (promised, viewed)) = (packet.head, self.log.promised());
        let Some(message) = ViewMessage::from_payload(packet.payload) else {
            self.counts.refused += 1;
            return Ok(());
        };
        let member = message.members.iter().find(|member| member.node == self.options.node).copied();
        let Some(member) = member.filter(|_| head.term >= promised) else {
            self.counts.dropped += 1;
            return Ok(());
        };
        let is_entered = viewed == head.term;
        if is_entered && head.view < self.log.view() && !planted::active("fabric-late-view-entered") {
            // It was late. A member that counts by now would join once more, and forget what it has reported.
            self.counts.dropped += 1;
            return Ok(());
        }
        // No member has said yet what it has, so there is nothing to copy. With its log of before, this one would
        // report records that it is about to give up.
        let is_other_log = self.log.view() < member.since || (self.lacks_pages() && !is_entered);
        let waits = member.role == Role::Joining && message.copy_from == head.source && is_other_log;
        if waits && !planted::active("fabric-joiner-reports-its-old-log") {
            self.counts.dropped += 1;
            return Ok(());
        }
        self.sender = head.source;
        let is_other =
            head.view > self.log.view() || (head.view < self.log.view() && planted::active("fabric-late-view-entered"));
        if !is_entered || is_other || self.must_restart(&head, member, &message) {
            self.enter(head, member, &message)?;
        }
        if member.role == Role::Joining && message.copy_from != head.source {
            let sources = sources_of(&message);
            match &mut self.joining {
                Some(copying) if copying.is_waiting() => self.copy_again(sources),
                Some(copying) => copying.change_sources(sources),
                None => {}
            }
        }
        self.stable = self.stable.max(head.stable);
        self.report.now = true;
        self.send_report(out);
        Ok(())
    }

    /// Whether this member joins with pages that it does not have.
    fn must_restart(&self, head: &PacketHead, member: Member, message: &ViewMessage) -> bool {
        let has_source = message.copy_from != head.source;
        // It was no member for a while, and pages were used again without it.
        let was_away = self.log.view() < member.since;
        member.role == Role::Joining
            && has_source
            && match self.log.standing() {
                Standing::Active => true,
                // Records after its own are kept for it as long as it is there, but not beyond that.
                Standing::Replaying => was_away || self.log.terms().common(&message.adopted).is_none(),
                // A sender of another term keeps other records.
                Standing::Copying => was_away || self.log.promised().1 != head.term,
            }
    }

    fn enter(&mut self, head: PacketHead, member: Member, message: &ViewMessage) -> Result<()> {
        self.fence_exposed()?;
        let (_, viewed) = self.log.promised();
        if self.must_restart(&head, member, message) {
            self.forget_loose();
            self.log.restart(head.term, head.view, message.joins_from);
            let (base, _) = message.joins_from;
            (self.exposed, self.tail, self.newest) = (base, base, base);
            self.joining = Some(Copying::from(sources_of(message), base, self.pages.pages()));
            return Ok(());
        }
        let standing = match (member.role, self.log.standing()) {
            (Role::Active, Standing::Replaying | Standing::Active) => Standing::Active,
            (_, standing) => standing,
        };
        let mut last = self.exposed;
        if viewed != head.term {
            self.forget_loose();
            // Records that differ from the adopted log were never acknowledged: they go.
            let Some(common) = self.log.terms().common(&message.adopted) else {
                // It lacks records that all others gave up: it must be added anew.
                self.counts.refused += 1;
                return Ok(());
            };
            if !planted::active("fabric-view-cuts-nothing") {
                last = common.min(self.exposed);
            }
            self.newest = last;
        }
        self.log.enter(head.term, head.view, last, standing);
        (self.exposed, self.tail) = (last, last);
        Ok(())
    }

    /// Whether the record at `sequence` was made in `term`, as far as the log knows. For judges.
    #[must_use]
    pub fn has(&self, sequence: Sequence, term: Term) -> bool {
        sequence <= self.exposed && self.log.terms().term_of(sequence).is_none_or(|found| found == term)
    }
}

/// The members from which one that joins may copy, the one first that the sender chose.
fn sources_of(message: &ViewMessage) -> Vec<NodeId> {
    let active = message.members.iter().filter(|member| member.role == Role::Active).map(|member| member.node);
    std::iter::once(message.copy_from).chain(active.filter(|node| *node != message.copy_from)).collect()
}
