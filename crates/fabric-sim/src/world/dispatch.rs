//! One action of one node: its effects become events, and the judges look at it.

use std::borrow::Cow;
use std::rc::Rc;

use lodestone_fabric::{
    Kind, Lease, Moment, NodeId, Outbound, Outgoing, PACKET_ANSWER, PACKET_GONE, PACKET_RESENT, Packet, RegistryAnswer,
    RegistryCall, Result, Role, Standing, Target, Term, halves,
};
use rand::Rng;

use super::registry::WorldRegistry;
use super::{Event, World};
use crate::node::{Core, FIRST_SENDER, group_of};
use crate::oracle::Seen;

impl World {
    /// Runs `action` on the core of a node that is up, and takes its effects.
    pub(super) fn act(
        &mut self,
        id: NodeId,
        action: impl FnOnce(&mut Core, Moment, &mut Outbound) -> Result<()>,
    ) -> Result<()> {
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.is_up()) else { return Ok(()) };
        let now = Moment(node.local(self.now));
        let mut out = Outbound::default();
        action(&mut node.core, now, &mut out)?;
        let events = match &mut node.core {
            Core::Sender(leader) => {
                let own = leader.sender().group();
                let events = leader.tick(now, &mut out)?;
                let mut all = leader.take_unit_events();
                all.extend(events.into_iter().map(|event| (own, event)));
                all
            }
            _ => Vec::new(),
        };
        if node.medium.has_blown() {
            // It stopped in the middle: nothing of this left the node.
            return self.crash(id);
        }
        if let Core::Sender(leader) = &node.core {
            for sender in leader.volume().groups() {
                let (group, term, view) = (sender.group(), sender.term(), sender.view());
                if self.views.get(&(group, term)) != Some(view) {
                    self.views.insert((group, term), view.clone());
                    for member in &view.members {
                        if member.role == Role::Joining {
                            self.joining_since.entry(member.node).or_insert(self.now);
                        } else if let Some(since) = self.joining_since.remove(&member.node)
                            && self.healed.is_none()
                        {
                            self.outcome.joins += 1;
                            self.outcome.join_ns_max = self.outcome.join_ns_max.max(self.now - since);
                        }
                    }
                    // One that was removed begins anew: the time goes on.
                    if let Some(trace) = &mut self.trace {
                        trace.push_back(format!("{:>12} {id} {group} {term} has {view:?}", self.now));
                    }
                }
            }
            self.clients.fenced(id, leader);
        }
        self.happened(id, events);
        self.note_told(id, &out);
        for outgoing in out.packets {
            self.send(id, outgoing);
        }
        self.take_calls(id);
        self.judge(id, false);
        self.schedule_wake(id);
        Ok(())
    }

    fn send(&mut self, from: NodeId, outgoing: Outgoing) {
        let group = outgoing.group();
        self.count_sent(&outgoing.bytes);
        let bytes = if self.plan.halves { halves::seal(&outgoing.bytes) } else { outgoing.bytes };
        self.outcome.sent_bytes += bytes.len() as u64;
        let bytes = Rc::new(bytes);
        match outgoing.target {
            Target::Node(node) => self.send_to(from, node, &bytes),
            // The group of a multicast has every node of that group with data, members or not.
            Target::Group => {
                let nodes = group.and_then(|group| self.of_group.get(&group)).cloned().unwrap_or_default();
                nodes.iter().for_each(|node| self.send_to(from, *node, &bytes));
            }
        }
    }

    fn count_sent(&mut self, bytes: &[u8]) {
        self.outcome.sent += 1;
        let Ok(packet) = Packet::decode(bytes) else { return };
        self.outcome.resent += u64::from(packet.head.has(PACKET_RESENT) && packet.head.kind == Kind::Data);
        self.outcome.nacks += u64::from(packet.head.kind == Kind::Nack);
    }

    fn send_to(&mut self, from: NodeId, to: NodeId, bytes: &Rc<Vec<u8>>) {
        for arrival in self.network.arrivals(&mut self.random, from, to, bytes.len()) {
            let mut bytes = Rc::clone(bytes);
            for bit in arrival.flipped {
                Rc::make_mut(&mut bytes)[bit / 8] ^= 1 << (bit % 8);
            }
            self.after(arrival.after_ns, Event::Deliver(to, bytes));
        }
    }

    pub(super) fn deliver(&mut self, id: NodeId, bytes: &[u8]) -> Result<()> {
        if self.nodes.get(&id).is_none_or(|node| !node.is_up()) {
            return Ok(());
        }
        self.outcome.packets += 1;
        self.digest(self.now, id, bytes);
        let Some(whole) = self.opened(bytes) else {
            self.outcome.refused += 1;
            return Ok(());
        };
        let Ok(packet) = Packet::decode(&whole) else {
            self.outcome.refused += 1;
            return Ok(());
        };
        self.say(|| {
            let h = packet.head;
            format!(
                "{id} gets {:?} of {} {} {} {} stable {} flags {}",
                h.kind, h.source, h.term, h.view, h.sequence, h.stable, h.flags
            )
        });
        let mut is_batch = false;
        self.act(id, |core, now, out| match core {
            Core::Member(member) => {
                is_batch = true;
                member.packet(now, &packet, out)
            }
            Core::Sender(leader) => leader.volume_mut().packet(now, &packet, out),
            Core::Down => Ok(()),
        })?;
        if id.0 >= FIRST_SENDER && packet.head.kind == Kind::Reply {
            self.read_answered(id, &packet);
        }
        let delay = self.random.random_range(1_000..15_000);
        if let Some(node) = self.nodes.get_mut(&id).filter(|node| is_batch && !node.in_batch && node.is_up()) {
            node.in_batch = true;
            self.after(delay, Event::BatchEnd(id));
        }
        Ok(())
    }

    /// The packet as it was before it was cut into halves.
    fn opened<'b>(&mut self, bytes: &'b [u8]) -> Option<Cow<'b, [u8]>> {
        if !self.plan.halves {
            return Some(Cow::Borrowed(bytes));
        }
        let (packet, is_rebuilt) = halves::open(bytes)?;
        self.outcome.rebuilt += u64::from(is_rebuilt);
        Some(Cow::Owned(packet))
    }

    /// Adds a packet to the digest of the run.
    fn digest(&mut self, now: u64, id: NodeId, bytes: &[u8]) {
        let mut digest = self.outcome.digest;
        let mut mix = |value: u64| digest = (digest ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
        mix(now);
        mix(u64::from(id.0));
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            mix(u64::from_le_bytes(word));
        }
        self.outcome.digest = digest;
    }

    pub(super) fn wake(&mut self, id: NodeId, at: u64) -> Result<()> {
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.wake_at == at) else { return Ok(()) };
        node.wake_at = u64::MAX;
        self.act(id, |core, now, out| match core {
            Core::Member(member) => member.tick(now, out),
            _ => Ok(()),
        })
    }

    fn schedule_wake(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let wanted = match &node.core {
            Core::Member(member) => member.wake_at(),
            Core::Sender(leader) => leader.wake_at(),
            Core::Down => None,
        };
        let Some(wanted) = wanted else { return };
        let at = node.global(wanted.0).max(self.now + 1_000);
        if at < node.wake_at {
            node.wake_at = at;
            let ns = at - self.now;
            self.after(ns, Event::Wake(id, at));
        }
    }

    fn take_calls(&mut self, id: NodeId) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let (life, asked) = (node.life, node.local(now));
        let Core::Sender(leader) = &mut node.core else { return };
        let calls = leader.take_calls();
        if calls.is_empty() {
            return;
        }
        let newest = self.registry.state().term;
        let is_deaf = self.plan.replaced_is_deaf && leader.volume().is_sending() && leader.sender().term() < newest;
        for call in calls {
            let is_lost = self.random.random_range(0..1_000_000) < self.lose_answers;
            let delay = self.random.random_range(10_000..3_000_000);
            if !is_lost
                && (!is_deaf || self.healed.is_some())
                && !self.network.cut.contains(&id)
                && !self.call_keepers(id, life, &call, asked)
            {
                self.after(delay, Event::Call(id, life, Box::new(call), asked));
            }
        }
    }

    pub(super) fn call(&mut self, id: NodeId, life: u32, call: &RegistryCall, asked: u64) -> Result<()> {
        let now = Moment(self.now);
        let WorldRegistry::Local(registry) = &mut self.registry else { return Ok(()) };
        // A lease that is shorter by a factor is one on a clock that is faster by it.
        let faster = self.plan.lease_divisor;
        let answer = match call.make(registry, Moment(now.0 * faster), Moment(asked))? {
            RegistryAnswer::Lease(Lease::Held(ns), asked) => RegistryAnswer::Lease(Lease::Held(ns / faster), asked),
            RegistryAnswer::Lease(Lease::Wait(ns), asked) => RegistryAnswer::Lease(Lease::Wait(ns / faster + 1), asked),
            other => other,
        };
        if self.random.random_range(0..1_000_000) >= self.lose_answers {
            let delay = self.random.random_range(10_000..3_000_000);
            self.after(delay, Event::Answer(id, life, Box::new(answer)));
        }
        Ok(())
    }

    pub(super) fn answer(&mut self, id: NodeId, life: u32, answer: RegistryAnswer) -> Result<()> {
        if self.nodes.get(&id).is_none_or(|node| node.life != life) {
            return Ok(());
        }
        self.before_takeover(id);
        self.act(id, |core, now, out| {
            if let Core::Sender(leader) = core {
                leader.answered(now, answer, out);
            }
            Ok(())
        })
    }

    /// Remembers what a member told others: it must be true after any crash.
    fn note_told(&mut self, id: NodeId, out: &Outbound) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        // It began anew, as one that joins. A crash is judged before this.
        if node.member().is_some_and(|m| m.log().standing() == Standing::Copying && m.exposed().0 < node.told_tail.1) {
            node.told_tail = (Term(0), 0);
        }
        if node.member().is_none() {
            return;
        }
        for outgoing in &out.packets {
            let Ok(packet) = Packet::decode(&outgoing.bytes) else { continue };
            let head = packet.head;
            match head.kind {
                Kind::Report | Kind::Copying => node.told_tail = node.told_tail.max((head.term, head.sequence.0)),
                Kind::Promise if head.has(PACKET_ANSWER) && !head.has(PACKET_GONE) => {
                    node.told_promise = node.told_promise.max(head.term);
                }
                _ => {}
            }
        }
    }

    /// The judges look at a member.
    pub(super) fn judge(&mut self, id: NodeId, whole: bool) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let judged = node.judged;
        let Some(member) = node.member() else { return };
        let (_, term) = member.log().promised();
        // Pages are kept for members alone. One that was removed is not judged, nor one that joins again and does not
        // know it yet.
        let group = group_of(&self.plan, id);
        let found =
            self.views.get(&(group, term)).and_then(|view| view.members.iter().find(|member| member.node == id));
        let is_member = found.is_some_and(|found| member.log().view() >= found.since);
        if !is_member || !member.follows() || member.log().standing() == Standing::Copying {
            return;
        }
        let from = if judged.0 == term && !whole { judged.1.min(member.exposed().0) } else { 0 };
        let mut sees_all = whole || judged.0 != term;
        if from == member.exposed().0 && !sees_all {
            return;
        }
        sees_all |= self.random.random_range(0..8) == 0;
        let now_at = (term, member.exposed().0);
        let oracle = self.orders.units.get_mut(&group).unwrap_or(&mut self.oracle);
        let mut known = std::mem::take(&mut node.known);
        let Some(member) = node.member() else { return };
        oracle.judge_member(
            id,
            term,
            member,
            Seen { from, whole: sees_all, known: &mut known, flipped: &node.flipped },
        );
        let dropped = member.counts().without_room;
        if self.plan.is_calm() && dropped > 0 {
            self.oracle.fail(|| format!("P7: {id} had no memory for {dropped} packets, although it never lost one"));
        }
        let limit = u64::from(self.plan.credit_bytes) + 2_048;
        let loose = member.counts().loose_bytes_max;
        if loose > limit {
            self.oracle.fail(|| format!("P7: {id} holds {loose} bytes of loose records, its credit is {limit}"));
        }
        (node.judged, node.known) = (now_at, known);
    }
}
