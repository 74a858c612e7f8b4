//! The thread of a link: takes packets in, asks the registry, and keeps the members of the groups right.
//!
//! A member that does not answer for a second is removed, as long as enough others are left: without it nothing is
//! stable, and the rings fill up. A node that should be a member and runs is added again. It copies what it lacks, and
//! takes and reports records meanwhile, so a copy may take long. Before it knows from whom to copy it says nothing.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use lodestone_fabric::{GroupId, Kind, Moment, NodeId, Packet, Role, SenderEvent, Transport, Wish};

use super::link::{Asking, End, Link, Sending};
use crate::error::Result;

/// Longest wait for a packet.
const WAIT: Duration = Duration::from_millis(2);
/// Packets that are taken in at a time.
const PACKETS: usize = 256;
/// How often the members are looked at.
const LOOK_NS: u64 = 100_000_000;
/// A member that was silent for so long is removed.
const SILENT_NS: u64 = 1_000_000_000;

/// The same, of one that joins. With sealed packets it first needs the secrets of its view, and each view has others.
const JOINER_SILENT_NS: u64 = 10 * SILENT_NS;

/// The same, of one that joins and runs, as its process says: it may have to wait for a source of its copy.
const COPY_NS: u64 = 3600 * SILENT_NS;

/// A member that joins and reports, but does not go on for so long, is removed when the ring is half full of what it
/// lacks: it begins anew, perhaps with other members to copy from.
const JOINER_STUCK_NS: u64 = SILENT_NS;

/// Whether a member that joins, and was silent for so long, is lost. `runs`: its process says that it does. `is_stuck`:
/// it reports, and does not go on. `used`: of the ring, which keeps all records for it.
fn is_joiner_lost(silent_ns: u64, runs: bool, is_stuck: bool, (used, capacity): (u64, u64)) -> bool {
    // Others would wait for room soon, and begin the copy anew when it is there: that is better than to wait for it.
    let has_room = used < capacity / 2;
    is_stuck && !has_room || silent_ns > JOINER_SILENT_NS && !(runs && has_room && silent_ns <= COPY_NS)
}

/// Starts the thread, which claims a term first.
pub(crate) fn start(link: Arc<Link>, mut rx: Box<dyn Transport + Send>) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("fs-sender".into()).spawn(move || {
        let now = link.now();
        link.sending().leader.claim(now);
        let mut look_at = now;
        loop {
            match step(&link, &mut *rx, &mut look_at) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    tracing::error!("{}: the sender stops: {error}", link.node);
                    return link.end(End::Failed);
                }
            }
        }
    })
}

/// One batch of packets. `false` at the end of the link.
fn step(link: &Link, rx: &mut dyn Transport, look_at: &mut Moment) -> Result<bool> {
    let mut arrived: Vec<Vec<u8>> = Vec::new();
    rx.poll(WAIT, PACKETS, &mut |bytes| {
        arrived.push(bytes.to_vec());
        Ok(())
    })?;
    let mut sending = link.sending();
    if sending.end.is_some() {
        link.changed.notify_all();
        return Ok(false);
    }
    let before = (sending.leader.acknowledged(), sending.leader.volume().is_sending());
    let mut has_answers = false;
    for bytes in &arrived {
        let Ok(packet) = Packet::decode(bytes) else { continue };
        has_answers |= sending.take(link.now(), &packet)?;
    }
    let now = link.now();
    sending.tick(link, now)?;
    if now >= *look_at {
        *look_at = now.plus(LOOK_NS);
        sending.look_at_members(link, now);
    }
    sending.flush()?;
    sending.settle();
    let after = (sending.leader.acknowledged(), sending.leader.volume().is_sending());
    if has_answers || before != after || !arrived.is_empty() {
        link.changed.notify_all();
    }
    Ok(true)
}

impl Sending {
    /// Takes a packet in. Whether it answered a read.
    fn take(&mut self, now: Moment, packet: &Packet<'_>) -> Result<bool> {
        if packet.head.kind == Kind::Reply
            && let Some((number, bytes)) = self.reads.answered(packet)
        {
            self.answers.insert(number, (packet.head.source, bytes.to_vec()));
            return Ok(true);
        }
        let Self { leader, out, .. } = self;
        leader.volume_mut().packet(now, packet, out)?;
        Ok(false)
    }

    /// Passes calls to the registry, and its answers back.
    fn ask_registry(&mut self, link: &Link, now: Moment) {
        let Self { leader, out, registry, .. } = self;
        let mut answers = Vec::new();
        for call in leader.take_calls() {
            match registry {
                Asking::Here(registry) => {
                    let mut registry = lodestone_pmem::sync::lock(registry);
                    answers.push(call.make(&mut **registry, link.now(), now));
                }
                // Without room the leader asks again.
                Asking::Elsewhere(thread) => _ = thread.call(call, now),
            }
        }
        if let Asking::Elsewhere(thread) = registry {
            answers.extend(thread.answers());
        }
        for answer in answers {
            match answer {
                Ok(answer) => leader.answered(now, answer, out),
                Err(error) => tracing::warn!("{}: {error}", link.node),
            }
        }
    }

    /// Does what is due, also at the registry.
    fn tick(&mut self, link: &Link, now: Moment) -> Result<()> {
        let Self { leader, out, .. } = self;
        let mut events = leader.tick(now, out)?;
        events.extend(leader.take_unit_events().into_iter().map(|(_, event)| event));
        self.ask_registry(link, now);
        for event in events {
            match event {
                SenderEvent::Adopted { cut: Some((term, from, to)), .. } => {
                    tracing::warn!(
                        "{}: records {} to {} of {term} were never acknowledged and are given up",
                        link.node,
                        from.0,
                        to.0
                    );
                }
                SenderEvent::Deposed(term) => _ = self.end.get_or_insert(End::Deposed(term)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes members that are silent or are to leave, and adds those that should be there.
    fn look_at_members(&mut self, link: &Link, now: Moment) {
        if !self.leader.volume().is_sending() {
            return;
        }
        let Self { leader, out, .. } = self;
        leader.volume_mut().probe(out);
        let groups: Vec<GroupId> = self.leader.volume().groups().map(lodestone_fabric::Sender::group).collect();
        let removal = groups.iter().find_map(|group| Some((*group, Wish::Remove(self.to_remove(link, *group, now)?))));
        let wish = removal.or_else(|| {
            groups
                .iter()
                .find_map(|group| Some((*group, Wish::Join(self.to_add(*group)?))))
                .filter(|_| !self.is_joining())
        });
        if let Some((group, wish)) = wish
            && self.leader.wished() != Some(wish)
        {
            tracing::info!("{}: {group}: {wish:?}", link.node);
            self.leader.wish_in(group, wish);
        }
    }

    fn is_joining(&self) -> bool {
        let joins = |sender: &lodestone_fabric::Sender| sender.view().members.iter().any(|m| m.role == Role::Joining);
        self.leader.volume().groups().any(joins)
    }

    fn to_remove(&self, link: &Link, group: GroupId, now: Moment) -> Option<NodeId> {
        let sender = self.leader.volume().group(group)?;
        let least = link.members_min.get(&group).copied().unwrap_or(1);
        let active = sender.view().active().count();
        let runs = |node: &NodeId| self.wanted.get(&group).is_some_and(|wanted| wanted.contains(node));
        let ring = (sender.ring().used(), sender.ring().capacity());
        let stuck = sender.stuck(now, JOINER_STUCK_NS);
        let is_lost = |node: &NodeId| {
            let heard = sender.heard(*node);
            heard.is_some_and(|heard| is_joiner_lost(now.since(heard), runs(node), stuck == Some(*node), ring))
        };
        let is_leaving = |node: NodeId| self.leaving.get(&group).is_some_and(|leaving| leaving.contains(&node));
        let may_go = |node: &NodeId| match sender.view().role(*node) {
            Some(Role::Active) => active > least,
            Some(Role::Joining) => is_leaving(*node) || is_lost(node),
            None => false,
        };
        let leaving = self.leaving.get(&group).into_iter().flatten().copied();
        sender.silent(now, SILENT_NS).chain(leaving).chain(stuck).find(may_go)
    }

    fn to_add(&self, group: GroupId) -> Option<NodeId> {
        let sender = self.leader.volume().group(group)?;
        self.wanted.get(&group)?.iter().find(|node| sender.view().role(**node).is_none()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_copies_for_long_is_not_lost_as_long_as_it_runs_and_nobody_waits_for_it() {
        let lost = |seconds: u64, runs, used| is_joiner_lost(seconds * SILENT_NS, runs, false, (used, 100));
        assert!(!lost(10, false, 90), "it has ten seconds, whatever it does");
        assert!(lost(11, false, 0), "its process does not answer");
        assert!(!lost(600, true, 49), "it copies");
        assert!(lost(11, true, 50), "others will wait for room in the ring");
        assert!(lost(3601, true, 0), "nothing takes so long");
        assert!(is_joiner_lost(0, true, true, (50, 100)), "it waits for a page that no member gives it");
        assert!(!is_joiner_lost(0, true, true, (49, 100)), "and no writer waits for it");
    }
}
