//! Sending: each fragment once, within the credit of every member; gaps again; beats.

use std::collections::BTreeSet;

use lodestone_pmem::planted;

use super::{Phase, Sender, SenderEvent};
use crate::effect::{Outbound, Target};
use crate::error::Result;
use crate::ids::{Moment, NodeId, Sequence};
use crate::message::Missing;
use crate::outbox::Outbox;
use crate::packet::{self, Kind, PACKET_RESENT, PACKET_SYNC, Packet, PacketHead};
use crate::record::RecordHead;
use crate::view::Role;

/// A record is not sent again within this time: answers to one loss meet.
const RESEND_PAUSE_NS: u64 = 500_000;
/// Records that are sent again in one go.
const RESEND_AT_A_TIME: usize = 64;

/// Who lacks a record, and which fragments of it.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    fragments: u64,
    by: BTreeSet<NodeId>,
}

impl Sender {
    /// Sends queued records as long as every member has credit: one send for each fragment, however many members.
    pub fn pump(&mut self, now: Moment, out: &mut Outbound) {
        if !matches!(self.phase, Phase::Sending) {
            return;
        }
        while let Some((head, _)) = self.queue.front() {
            if !self.has_credit(now, head.sequence) {
                self.counts.held += 1;
                return;
            }
            let Some((head, body)) = self.queue.pop_front() else { return };
            self.counts.fragments += self.send_record(&head, &body, Target::Group, 0, u64::MAX, out);
            self.sent = head.sequence;
            self.beat_at = now.plus(self.options.beat_first_ns);
            if planted::active("fabric-acknowledged-at-send") {
                self.acked = self.acked.max(head.sequence);
                self.events.push(SenderEvent::Acknowledged(self.acked));
            }
            if planted::active("fabric-buffer-freed-at-send") {
                self.ring.release(head.sequence);
            }
        }
    }

    /// Whether the records up to `sequence` fit into the memory of every member that is not suspect.
    fn has_credit(&self, now: Moment, sequence: Sequence) -> bool {
        if planted::active("fabric-no-credit") || planted::active("fabric-memory-without-limit") {
            return true;
        }
        let view = self.view.members.iter();
        view.filter_map(|member| Some((member.role, self.peers.get(&member.node)?))).all(|(role, peer)| {
            // A member that has not entered the view says nothing of its records: what this term sends counts. One that
            // joins gets what it lacks when it has copied.
            let is_new = !peer.viewed && role == Role::Joining;
            // Nor does one count that hears records and cannot go on with them: it waits for pages of members that it
            // does not reach.
            let is_stuck = role == Role::Joining
                && now.since(peer.moved) >= self.options.suspect_ns
                && !planted::active("fabric-waits-for-a-stuck-joiner");
            if is_new || is_stuck || now.since(peer.heard) >= self.options.suspect_ns {
                return true;
            }
            let from = if peer.viewed { peer.tail } else { peer.tail.max(self.base) };
            // A record larger than the credit goes alone.
            let is_next = sequence == from.next();
            is_next
                || (self.ring.bytes_between(from, sequence) <= u64::from(peer.credit)
                    && sequence.0 - from.0.min(sequence.0) <= crate::receiver::WINDOW_RECORDS)
        })
    }

    /// Sends a record; returns the packets.
    fn send_record(
        &mut self,
        record: &RecordHead,
        body: &[u8],
        target: Target,
        flags: u16,
        only: u64,
        out: &mut Outbound,
    ) -> u64 {
        let sync = if Self::is_sync(record) { PACKET_SYNC } else { 0 };
        let head = PacketHead { flags: flags | sync, sequence: record.sequence, ..self.head(Kind::Data) };
        let limit = self.options.payload_bytes_max;
        let mut count = 0;
        packet::fragments(&head, &record.to_bytes(), body, limit, only, &mut |bytes| {
            count += 1;
            out.packets.push(crate::effect::Outgoing { target, bytes });
        });
        count
    }

    /// A member lacks records.
    pub(super) fn missing(&mut self, now: Moment, packet: &Packet<'_>, _out: &mut Outbound) {
        let Some(missing) = Missing::from_payload(packet.payload) else { return };
        let (first, node) = (packet.head.sequence, packet.head.source);
        let Some(peer) = self.peers.get_mut(&node) else { return };
        peer.heard = now;
        peer.credit = packet.head.credit;
        for distance in missing.distances().take(RESEND_AT_A_TIME) {
            let sequence = Sequence(first.0.saturating_add(distance));
            if sequence > self.sent {
                break;
            }
            let wanted = self.wanted.entry(sequence.0).or_default();
            wanted.fragments |= if distance == 0 { missing.fragments } else { u64::MAX };
            wanted.by.insert(node);
        }
    }

    /// Sends again what members lack: by unicast to one, by multicast to several.
    pub(super) fn resend(&mut self, now: Moment, out: &mut Outbound) -> Result<()> {
        for _ in 0..RESEND_AT_A_TIME {
            let Some((sequence, wanted)) = self.wanted.pop_first() else { break };
            if self.resent_at.get(&sequence).is_some_and(|at| now.since(*at) < RESEND_PAUSE_NS) {
                continue;
            }
            let Some((record, body)) = self.ring.record(Sequence(sequence))? else { continue };
            let target = match wanted.by.first() {
                Some(node) if wanted.by.len() == 1 => Target::Node(*node),
                _ => Target::Group,
            };
            self.resent_at.insert(sequence, now);
            self.counts.resent += self.send_record(&record, &body, target, PACKET_RESENT, wanted.fragments, out);
        }
        Ok(())
    }

    /// Tells the newest sequence: a millisecond after data, then every ten. It asks for reports until each member has
    /// reported everything: a last report may be lost, and without it a member that joins would join for ever.
    pub(super) fn beat(&mut self, now: Moment, out: &mut Outbound) {
        if now < self.beat_at {
            return;
        }
        let is_late = self.peers.values().any(|peer| peer.tail < self.sent)
            && !planted::active("fabric-last-report-not-asked-for");
        let flags = if self.is_awaited() || is_late { PACKET_SYNC } else { 0 };
        let head = PacketHead { sequence: self.sent, flags, ..self.head(Kind::Beat) };
        out.to_group(head.packet([&[], &[]]));
        self.beat_at = now.plus(self.options.beat_ns);
        self.counts.beats += 1;
    }

    /// Asks the members for a report, whatever they reported before: one that does not answer is silent.
    pub fn probe(&mut self, out: &mut Outbound) {
        if matches!(self.phase, Phase::Sending) {
            let head = PacketHead { sequence: self.sent, flags: PACKET_SYNC, ..self.head(Kind::Beat) };
            out.to_group(head.packet([&[], &[]]));
            self.counts.beats += 1;
        }
    }

    /// Asks the members at once how far they are: a caller waits for records that were not sent for one.
    pub fn ask(&mut self, now: Moment, out: &mut Outbound) {
        if self.is_awaited() && matches!(self.phase, Phase::Sending) {
            self.beat_at = now;
            self.beat(now, out);
        }
    }
}
