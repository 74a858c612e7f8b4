//! Taking over: promises, the best log, what this node's ring lacks of it, and the new view.
//!
//! 1. Ask the active members to promise the term. They make that durable and answer with the terms of their log.
//! 2. From `k - q + 1` of them, and from this node's own ring: adopt the best by (term of the last record, length). The
//!    own ring counts only if all of these logs have the record at which it begins.
//! 3. Cut the ring where it differs, and pull from the best member what it lacks. So the ring is a whole log.
//! 4. Append the first record of the term. Send the view with the adopted log; members cut what differs.
//!
//! A step that gets no answer is repeated. A source that is silent, or that lost what it said it has, is given up: the
//! promises are asked for again, and members that made them answer again.

use std::collections::BTreeMap;

use lodestone_pmem::planted;
use lodestone_width::to_u64;

use super::{PayloadLog, Peer, Phase, Place, Sender, SenderEvent, Submission};
use crate::assembly::Assembly;
use crate::effect::Outbound;
use crate::error::{Error, Result};
use crate::ids::{Moment, NodeId, Sequence, Term};
use crate::message::{Call, ViewMessage};
use crate::outbox::Outbox;
use crate::packet::{Kind, PACKET_ANSWER, PACKET_GONE, Packet};
use crate::record::{FLAG_BEGIN, FLAG_INLINE, FLAG_SYNC, RecordHead};
use crate::terms::Terms;
use crate::view::View;

const ASK_AGAIN_NS: u64 = 2_000_000;
const GIVE_UP_NS: u64 = 30_000_000;
const VIEW_AGAIN_NS: u64 = 5_000_000;
/// Body of the first record of a term.
const BEGIN_BYTES: usize = 20;
/// Records that are pulled at a time.
const PULLS_AT_A_TIME: u64 = 8;

/// Promises, then what is pulled.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    logs: BTreeMap<NodeId, Terms>,
    /// Every active member has everything up to here, as some of them know.
    stable: Sequence,
    /// Whether all members must answer: the ring cannot hold what some of them may lack.
    needs_all: bool,
    again: Moment,
    pull: Option<Pull>,
}

impl Gathering {
    pub(super) const fn wake_at(&self) -> Moment {
        self.again
    }
}

/// Records on their way from the best member.
#[derive(Debug)]
struct Pull {
    source: NodeId,
    adopted: Terms,
    give_up: Moment,
    parts: BTreeMap<u64, Part>,
}

#[derive(Debug)]
enum Part {
    Partial(Assembly),
    Whole(RecordHead, Vec<u8>),
    Gone,
}

impl Sender {
    /// Becomes the sender of `term`, which the registry gave to this node, with the members of that moment.
    pub fn take_over(&mut self, now: Moment, term: Term, view: View, out: &mut Outbound) {
        (self.term, self.view, self.pending) = (term, view, None);
        self.queue.clear();
        self.wanted.clear();
        self.resent_at.clear();
        self.peers.clear();
        (self.acked, self.payload_log) = (Sequence(0), None);
        self.order.begin();
        self.phase = Phase::Gathering(Gathering::default());
        self.ask_for_promises(now, out);
    }

    fn ask_for_promises(&mut self, now: Moment, out: &mut Outbound) {
        let head = self.head(Kind::Promise);
        let Phase::Gathering(gathering) = &mut self.phase else { return };
        gathering.again = now.plus(ASK_AGAIN_NS);
        for node in self.view.active().filter(|node| !gathering.logs.contains_key(node)) {
            out.to_node(node, head.packet([&[], &[]]));
        }
    }

    pub(super) fn gather_more(&mut self, now: Moment, out: &mut Outbound) -> Result<()> {
        let Phase::Gathering(gathering) = &mut self.phase else { return Ok(()) };
        if now < gathering.again {
            return Ok(());
        }
        gathering.again = now.plus(ASK_AGAIN_NS);
        match &gathering.pull {
            Some(pull) if now >= pull.give_up => {
                *gathering = Gathering::default();
                self.ask_for_promises(now, out);
            }
            Some(_) => self.ask_for_records(out),
            None => self.ask_for_promises(now, out),
        }
        Ok(())
    }

    /// A member promised.
    pub(super) fn promised(&mut self, now: Moment, packet: &Packet<'_>, out: &mut Outbound) -> Result<()> {
        let node = packet.head.source;
        let is_asked = packet.head.has(PACKET_ANSWER)
            && packet.head.term == self.term
            && self.view.active().any(|member| member == node);
        let Phase::Gathering(gathering) = &mut self.phase else { return Ok(()) };
        let Some(terms) = Terms::from_payload(packet.payload).filter(|_| is_asked && gathering.pull.is_none()) else {
            return Ok(());
        };
        gathering.logs.insert(node, terms);
        gathering.stable = gathering.stable.max(packet.head.stable);
        self.adopt_if_enough(now, out)
    }

    /// Chooses a log when enough members have promised, and the units of the operations have theirs.
    pub(super) fn adopt_if_enough(&mut self, now: Moment, out: &mut Outbound) -> Result<()> {
        let Phase::Gathering(gathering) = &self.phase else { return Ok(()) };
        let needed = if gathering.needs_all { self.view.active().count() } else { self.view.promises() };
        let is_enough = gathering.pull.is_none() && gathering.logs.len() >= needed;
        let is_operations = self.order.place == Place::Operations;
        let waits_for_room = gathering.needs_all && is_operations && !self.order.may_give_up();
        if is_enough && !self.order.is_waiting() && !waits_for_room { self.adopt(now, out) } else { Ok(()) }
    }

    /// The last record that all active members have, if all have answered. A quorum is not enough: a record that is
    /// given up must be at every member whose log a later takeover may choose.
    fn common_of_all(&self, adopted: &Terms) -> Option<Sequence> {
        let Phase::Gathering(gathering) = &self.phase else { return None };
        let all = gathering.logs.len() >= self.view.active().count();
        gathering.logs.values().map(|terms| terms.common(adopted).unwrap_or_default()).min().filter(|_| all)
    }

    /// The ring has no room. Gives up complete operations that all members have; whether there were any.
    fn release_operations(&mut self, adopted: &Terms) -> bool {
        let common = self.common_of_all(adopted).filter(|_| self.order.may_give_up());
        let common = common.map(|common| common.min(self.ring.last())).filter(|common| *common > self.ring.first());
        common.iter().for_each(|common| self.ring.release(*common));
        common.is_some()
    }

    /// Whether all gathered logs have the record at which the ring begins. If it gave up records before they were
    /// acknowledged, a later sender may have cut those at members. They could follow no log that begins beyond.
    fn is_begin_covered(&self, known: Sequence) -> bool {
        let Phase::Gathering(gathering) = &self.phase else { return false };
        let (first, (begin, term)) = (self.ring.first(), self.ring.terms().base());
        let has_begin = |log: &Terms| log.base().0 >= first || log.term_of(begin) == Some(term);
        first <= known || gathering.logs.values().all(has_begin) || planted::active("fabric-ring-without-its-begin")
    }

    /// Empties the ring if it does not count. Returns what is cut by that: records that are in `adopted` come again.
    fn drop_uncovered(&mut self, known: Sequence, adopted: &Terms) -> Result<Option<(Term, Sequence, Sequence)>> {
        if self.is_begin_covered(known) {
            return Ok(None);
        }
        let (term, last) = self.ring.terms().last();
        let common = self.ring.terms().common(adopted).unwrap_or(self.ring.first());
        let keep = self.first_incomplete(known, common)?.map_or(common, Sequence::before);
        self.ring.restart(adopted.base().0, adopted.base().1);
        Ok((keep < last).then_some((term, keep.next(), last)))
    }

    /// Chooses the best log and cuts the ring to it.
    fn adopt(&mut self, now: Moment, out: &mut Outbound) -> Result<()> {
        let Phase::Gathering(gathering) = &mut self.phase else { return Ok(()) };
        let best = gathering.logs.iter().max_by_key(|(_, terms)| terms.rank());
        let Some((source, mut adopted)) = best.map(|(node, terms)| (*node, terms.clone())) else { return Ok(()) };
        let known = gathering.stable.min(adopted.last().1);
        // An operation that all members have may still be cut, so it must be looked at first.
        let common = self.common_of_all(&adopted).filter(|_| self.order.place != Place::Operations);
        let stable = known.max(common.unwrap_or_default());
        let dropped = self.drop_uncovered(known, &adopted)?;
        if self.ring.terms().rank() >= adopted.rank() {
            // The ring is the best log: nothing is lacking.
            self.ring.release(stable);
            let keep = self.first_incomplete(known, self.ring.last())?.map_or(self.ring.last(), Sequence::before);
            let cut = self.cut_ring(keep)?;
            return self.begin(now, dropped.or(cut), out);
        }
        let cut;
        match self.ring.terms().common(&adopted) {
            Some(common) => {
                let incomplete = self.first_incomplete(known, common)?;
                let keep = incomplete.map_or(common, Sequence::before);
                cut = self.cut_ring(keep)?;
                if incomplete.is_some() {
                    adopted.cut(keep);
                }
            }
            // Too old, or of other records: every member has those up to where the adopted log begins.
            None => {
                let (term, last) = self.ring.terms().last();
                cut = Some((term, self.ring.first().next(), last));
                self.ring.restart(adopted.base().0, adopted.base().1);
            }
        }
        let cut = dropped.or(cut);
        if stable > self.ring.last() {
            self.ring.restart(stable, adopted.term_of(stable).unwrap_or_default());
        }
        self.ring.release(stable);
        if self.ring.last() >= adopted.last().1 {
            return self.begin(now, cut, out);
        }
        self.tell_cut(&adopted, cut);
        let Phase::Gathering(gathering) = &mut self.phase else { return Ok(()) };
        gathering.pull = Some(Pull { source, adopted, give_up: now.plus(GIVE_UP_NS), parts: BTreeMap::new() });
        self.ask_for_records(out);
        Ok(())
    }

    /// Cuts the ring after `keep`, and says what that was.
    fn cut_ring(&mut self, keep: Sequence) -> Result<Option<(Term, Sequence, Sequence)>> {
        let (term, last) = self.ring.terms().last();
        if keep >= last {
            return Ok(None);
        }
        self.ring.cut(keep)?;
        let is_told = !planted::active("fabric-cut-not-told");
        Ok(is_told.then_some((term, keep.next(), last)))
    }

    /// Says what was cut before the term begins: the takeover may begin anew.
    fn tell_cut(&mut self, adopted: &Terms, cut: Option<(Term, Sequence, Sequence)>) {
        let base = adopted.last().1;
        self.events.extend(cut.map(|cut| SenderEvent::Adopted { base, cut: Some(cut) }));
    }

    fn ask_for_records(&mut self, out: &mut Outbound) {
        let (next, head) = (self.ring.last().next(), self.head(Kind::Request));
        let Phase::Gathering(Gathering { pull: Some(pull), .. }) = &self.phase else { return };
        let last = pull.adopted.last().1.0.min(next.0 + PULLS_AT_A_TIME - 1);
        for sequence in next.0..=last {
            if !matches!(pull.parts.get(&sequence), Some(Part::Whole(..) | Part::Gone)) {
                out.to_node(pull.source, head.packet([&Call::Record(Sequence(sequence)).to_payload(0), &[]]));
            }
        }
    }

    /// A record, or a part of one, from the best member.
    pub(super) fn pulled(&mut self, now: Moment, packet: &Packet<'_>, out: &mut Outbound) -> Result<()> {
        let (sequence, salt, next) = (packet.head.sequence, self.options.salt, self.ring.last().next());
        let Phase::Gathering(Gathering { pull: Some(pull), .. }) = &mut self.phase else { return Ok(()) };
        let in_reach = sequence >= next && sequence.0 < next.0 + PULLS_AT_A_TIME;
        if packet.head.source != pull.source || packet.head.term != self.term || !in_reach {
            return Ok(());
        }
        if packet.head.has(PACKET_GONE) {
            pull.parts.insert(sequence.0, Part::Gone);
        } else if packet.head.record_bytes > 0 {
            let part = pull.parts.entry(sequence.0).or_insert_with(|| Part::Partial(Assembly::new(packet)));
            if let Part::Partial(assembly) = part
                && assembly.add(packet)
            {
                let found = assembly.finish(salt).map(|(head, body)| (head, body.to_vec()));
                let fits = found
                    .filter(|(head, _)| head.sequence == sequence && pull.adopted.term_of(sequence) == Some(head.term));
                match fits {
                    Some((head, body)) => *part = Part::Whole(head, body),
                    None => {
                        pull.parts.remove(&sequence.0);
                    }
                }
            }
        }
        self.take_pulled(now, out)
    }

    /// Appends what was pulled, in order.
    fn take_pulled(&mut self, now: Moment, out: &mut Outbound) -> Result<()> {
        loop {
            let next = self.ring.last().next();
            let Phase::Gathering(gathering) = &mut self.phase else { return Ok(()) };
            let Some(pull) = &mut gathering.pull else { return Ok(()) };
            if next > pull.adopted.last().1 {
                return self.begin(now, None, out);
            }
            if !matches!(pull.parts.get(&next.0), Some(Part::Whole(..) | Part::Gone)) {
                break;
            }
            pull.give_up = now.plus(GIVE_UP_NS);
            let is_taken = match pull.parts.remove(&next.0) {
                Some(Part::Whole(head, body)) => self.take_whole(now, &head, &body, out)?,
                _ => self.take_gone(now, next, out),
            };
            if !is_taken {
                return Ok(());
            }
        }
        // The next ones, when the last requests were answered.
        if let Phase::Gathering(Gathering { pull: Some(pull), .. }) = &self.phase
            && pull.parts.is_empty()
        {
            self.ask_for_records(out);
        }
        Ok(())
    }

    /// Appends a record that was pulled. `false`: the pull has ended.
    fn take_whole(&mut self, now: Moment, head: &RecordHead, body: &[u8], out: &mut Outbound) -> Result<bool> {
        if self.is_incomplete(head, body) {
            // It was never acknowledged, and neither was what comes after it.
            self.begin(now, None, out)?;
            return Ok(false);
        }
        let adopted = match &self.phase {
            Phase::Gathering(Gathering { pull: Some(pull), .. }) => pull.adopted.clone(),
            _ => return Ok(false),
        };
        loop {
            match self.ring.append(head, body) {
                Ok(()) => return Ok(true),
                Err(Error::Full { .. }) if self.release_operations(&adopted) => {}
                Err(Error::Full { .. }) => {
                    self.gather_all(now, out)?;
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A page of a record was used again, so every member has it. Unless one said that it has not.
    fn take_gone(&mut self, now: Moment, next: Sequence, out: &mut Outbound) -> bool {
        let Phase::Gathering(gathering) = &mut self.phase else { return false };
        let Some(pull) = &gathering.pull else { return false };
        let term = pull.adopted.term_of(next).unwrap_or_default();
        if gathering.logs.values().any(|terms| terms.last().1 < next) {
            *gathering = Gathering::default();
            self.ask_for_promises(now, out);
            return false;
        }
        self.ring.restart(next, term);
        true
    }

    /// The ring is too small for everything that a member might lack. When all members have answered, it is known what
    /// they do lack.
    fn gather_all(&mut self, now: Moment, out: &mut Outbound) -> Result<()> {
        self.phase = Phase::Gathering(Gathering { needs_all: true, ..Gathering::default() });
        self.ask_for_promises(now, out);
        Ok(())
    }

    /// The ring is the adopted log: the term begins.
    fn begin(&mut self, now: Moment, cut: Option<(Term, Sequence, Sequence)>, out: &mut Outbound) -> Result<()> {
        let adopted = self.ring.terms().clone();
        if !self.ring.has_room(BEGIN_BYTES) && !self.release_operations(&adopted) {
            self.tell_cut(&adopted, cut);
            return self.gather_all(now, out);
        }
        let Phase::Gathering(gathering) = &self.phase else { return Ok(()) };
        let known = gathering.stable.min(adopted.last().1);
        if self.order.place == Place::Unit {
            self.payload_log = Some(PayloadLog::new(known, &adopted, gathering.logs.values()));
        }
        self.base = self.ring.last();
        // The adopted records are durable here before a member learns that they are the log.
        self.ring.fence()?;
        self.events.push(SenderEvent::Adopted { base: self.base, cut });
        self.phase = Phase::Sending;
        self.stable = known;
        self.joins_from = self.join_point();
        self.sent = self.base;
        self.reuse_floor = self.base;
        let peer = Peer::new(Sequence(0), self.options.credit_bytes, now);
        self.peers = self.view.members.iter().map(|member| (member.node, peer)).collect();
        // The cut of this node is said in the log: nothing is dropped without a line.
        let body = cut.map_or_else(Vec::new, |(term, from, to)| {
            let mut body = term.0.to_le_bytes().to_vec();
            body.extend(from.0.to_le_bytes());
            body.extend(to.0.to_le_bytes());
            body
        });
        let flags = FLAG_INLINE | FLAG_BEGIN | FLAG_SYNC;
        self.append(&Submission { flags, ..Submission::default() }, body)?;
        self.fence()?;
        self.send_view(now, None, out);
        self.events.push(SenderEvent::Ready);
        self.pump(now, out);
        Ok(())
    }

    /// Sends the view to one member, or to all.
    pub(super) fn send_view(&mut self, now: Moment, node: Option<NodeId>, out: &mut Outbound) {
        let copy_from = self.copy_source();
        let message = ViewMessage {
            members: self.view.members.clone(),
            copy_from: copy_from.unwrap_or(self.options.node),
            joins_from: self.joins_from,
            adopted: self.ring.terms().clone(),
        };
        let head = self.head(Kind::View);
        let packet = head.packet([&message.to_payload(), &[]]);
        match node {
            Some(node) => out.to_node(node, packet),
            None => out.to_group(packet),
        }
        for (_, peer) in self.peers.iter_mut().filter(|(other, _)| node.is_none_or(|node| node == **other)) {
            peer.view_sent = now;
        }
    }

    /// The member from which one that joins copies: the one that has most, and at least where it begins.
    fn copy_source(&self) -> Option<NodeId> {
        let from = self.joins_from.0;
        self.view.active().filter(|node| self.tail(*node) >= Some(from)).max_by_key(|node| self.tail(*node))
    }

    /// Sends the view again to members that have not entered it.
    pub(super) fn send_views(&mut self, now: Moment, out: &mut Outbound) {
        let late: Vec<NodeId> = self
            .peers
            .iter()
            .filter(|(_, peer)| !peer.viewed && now.since(peer.view_sent) >= VIEW_AGAIN_NS)
            .map(|(node, _)| *node)
            .collect();
        for node in late {
            self.send_view(now, Some(node), out);
        }
    }

    /// Logs that the takeover has, of how many it needs. For status.
    #[must_use]
    pub fn promises(&self) -> Option<(u64, u64)> {
        match &self.phase {
            Phase::Gathering(gathering) => Some((to_u64(gathering.logs.len()), to_u64(self.view.promises()))),
            _ => None,
        }
    }
}
