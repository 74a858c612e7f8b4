//! The thread of a link: takes packets in, asks the registry, and keeps the members of the groups right.
//!
//! A member that does not answer for a second is removed if those that answer can go on without it: with it nothing is
//! stable, and the rings fill up. Of several, one that does not run goes first, then the one that was silent longest:
//! a member that was only slow has to copy when it is added again, and until then the dead one would be needed. A
//! second in which this thread itself had no processor says nothing of the members.
//!
//! A removal may have to wait, for the others to have everything. If the member answers meanwhile, it stays.
//!
//! A member that is known not to run cannot answer. If somebody waits for it, as syncs do for the one of two nodes with
//! metadata that led, it is removed after two looks. Knowledge of processes only shortens the wait: a member that runs
//! after all loses its place, and nothing else.
//!
//! A node that should be a member and runs is added again. It copies what it lacks, and takes and reports records
//! meanwhile, so a copy may take long. Before it knows from whom to copy it says nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use lodestone_fabric::{
    GroupId, Kind, Moment, NodeId, OPERATIONS, Packet, Role, Sender, SenderEvent, Sequence, Transport, Wish,
};

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
/// And did not answer so many looks. This thread may itself have had no processor for a second.
const UNANSWERED_MIN: u32 = 5;

/// The same of a member that is known not to run, and for which somebody waits.
const GONE_SILENT_NS: u64 = LOOK_NS;
const GONE_UNANSWERED_MIN: u32 = 2;

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

/// An active member, as the thread sees it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    node: NodeId,
    silent_ns: u64,
    /// So long that it may be removed.
    is_silent: bool,
    /// Its process says that it runs.
    runs: bool,
}

/// Whether somebody waits for the members that are known not to run: syncs, when the others are no quorum, and writers
/// until every replica has the record with which the term begins.
fn is_waited_for((others, quorum): (usize, usize), (stable, begins): (Sequence, Sequence)) -> bool {
    others < quorum || stable < begins
}

/// The silent one of the active members that is removed next. `least`: so many stay.
fn silent_to_remove(active: &[Seen], least: usize) -> Option<NodeId> {
    let is_silent = |member: &&Seen| member.is_silent;
    let heard = active.len() - active.iter().filter(is_silent).count();
    // When no other can be removed, a majority must answer. Else it is better to wait until one more answers: a
    // member that is removed in vain has to copy before it counts again.
    let left = heard.max(least);
    if active.len() <= least || heard < left / 2 + 1 {
        return None;
    }
    active.iter().filter(is_silent).max_by_key(|member| (!member.runs, member.silent_ns)).map(|member| member.node)
}

/// When the members are looked at, and which looks they did not answer.
#[derive(Debug)]
struct Looks {
    next_at: Moment,
    /// When a member was heard last, and looks since then.
    unanswered: BTreeMap<(GroupId, NodeId), (Moment, u32)>,
}

impl Looks {
    const fn new(now: Moment) -> Self {
        Self { next_at: now, unanswered: BTreeMap::new() }
    }

    /// Whether a look is due.
    fn is_due(&mut self, now: Moment) -> bool {
        let is_due = now >= self.next_at;
        if is_due {
            self.next_at = now.plus(LOOK_NS);
        }
        is_due
    }

    /// Begins a look at these members, which were last heard then.
    fn begin(&mut self, members: impl Iterator<Item = (GroupId, NodeId, Moment)>) {
        let former = std::mem::take(&mut self.unanswered);
        let count = |key, heard| match former.get(&key) {
            Some((before, looks)) if *before == heard => looks.saturating_add(1),
            _ => 0,
        };
        self.unanswered =
            members.map(|(group, node, heard)| ((group, node), (heard, count((group, node), heard)))).collect();
    }

    /// How long a member is silent; 0 if it was not asked often enough to say that.
    fn silent_ns(&self, group: GroupId, node: NodeId, now: Moment) -> u64 {
        self.silent_after(UNANSWERED_MIN, group, node, now)
    }

    /// The same, if so many looks are enough.
    fn silent_after(&self, least: u32, group: GroupId, node: NodeId, now: Moment) -> u64 {
        let silent = self.unanswered.get(&(group, node)).filter(|(_, looks)| *looks >= least);
        silent.map_or(0, |(heard, _)| now.since(*heard))
    }
}

/// Starts the thread, which claims a term first.
pub(crate) fn start(link: Arc<Link>, mut rx: Box<dyn Transport + Send>) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("fs-sender".into()).spawn(move || {
        let now = link.now();
        link.sending().leader.claim(now);
        let mut looks = Looks::new(now);
        loop {
            match step(&link, &mut *rx, &mut looks) {
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
fn step(link: &Link, rx: &mut dyn Transport, looks: &mut Looks) -> Result<bool> {
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
    if looks.is_due(now) {
        sending.look_at_members(link, looks, now);
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
    fn look_at_members(&mut self, link: &Link, looks: &mut Looks, now: Moment) {
        if !self.leader.volume().is_sending() {
            return;
        }
        let Self { leader, out, .. } = self;
        leader.volume_mut().probe(out);
        let heard = |sender: &lodestone_fabric::Sender| {
            let (group, members) = (sender.group(), sender.view().members.iter().map(|member| member.node));
            members.filter_map(|node| Some((group, node, sender.heard(node)?))).collect::<Vec<_>>()
        };
        looks.begin(self.leader.volume().groups().flat_map(heard));
        let groups: Vec<GroupId> = self.leader.volume().groups().map(lodestone_fabric::Sender::group).collect();
        let remove = |group: &GroupId| Some((*group, Wish::Remove(self.to_remove(link, *group, looks, now)?)));
        let removal = groups.iter().find_map(remove);
        if removal.is_none()
            && let Some(Wish::Remove(node)) = self.leader.wished()
        {
            tracing::info!("{}: {node} answers, and stays", link.node);
            self.leader.withdraw_removal();
        }
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

    fn to_remove(&self, link: &Link, group: GroupId, looks: &Looks, now: Moment) -> Option<NodeId> {
        let sender = self.leader.volume().group(group)?;
        let least = link.members_min.get(&group).copied().unwrap_or(1);
        let wanted = self.wanted.get(&group);
        let is_waited_for = self.waits_for_gone(group, sender);
        let see = |node: NodeId| {
            let silent_ns = looks.silent_ns(group, node, now);
            let is_gone = is_waited_for && self.gone.contains(&node);
            let gone_ns = if is_gone { looks.silent_after(GONE_UNANSWERED_MIN, group, node, now) } else { 0 };
            Seen {
                node,
                silent_ns: silent_ns.max(gone_ns),
                is_silent: silent_ns > SILENT_NS || gone_ns > GONE_SILENT_NS,
                runs: wanted.is_some_and(|wanted| wanted.contains(&node)),
            }
        };
        let active: Vec<Seen> = sender.view().active().map(see).collect();
        let leaving = self.leaving.get(&group);
        let is_leaving = |node: &NodeId| leaving.is_some_and(|leaving| leaving.contains(node));
        let ring = (sender.ring().used(), sender.ring().capacity());
        let stuck = sender.stuck(now, JOINER_STUCK_NS);
        let is_lost = |joiner: &Seen| is_joiner_lost(joiner.silent_ns, joiner.runs, stuck == Some(joiner.node), ring);
        let joining = || sender.view().members.iter().filter(|member| member.role == Role::Joining);
        silent_to_remove(&active, least)
            .or_else(|| active.iter().map(|member| member.node).find(|node| active.len() > least && is_leaving(node)))
            .or_else(|| joining().map(|member| member.node).find(|node| is_leaving(node) || is_lost(&see(*node))))
    }

    /// Whether somebody waits for members that are known not to run.
    fn waits_for_gone(&self, group: GroupId, sender: &Sender) -> bool {
        let others = sender.view().active().filter(|node| !self.gone.contains(node)).count();
        let begins = if group == OPERATIONS { Sequence(0) } else { self.leader.volume().pages_free_from(group) };
        is_waited_for((others, sender.view().quorum()), (sender.stable(), begins))
    }

    fn to_add(&self, group: GroupId) -> Option<NodeId> {
        let sender = self.leader.volume().group(group)?;
        self.wanted.get(&group)?.iter().find(|node| sender.view().role(**node).is_none()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn seen(node: u16, silent_ms: u64, runs: bool) -> Seen {
        let silent_ns = silent_ms * MS;
        Seen { node: NodeId(node), silent_ns, is_silent: silent_ns > SILENT_NS, runs }
    }

    #[test]
    fn a_removal_is_withdrawn_when_the_node_answers() {
        let (_folder, path, pool) = crate::cluster::volume_for_tests();
        let options =
            crate::cluster::ClusterOptions { replicas: 1, standbys: 0, ..crate::cluster::ClusterOptions::default() };
        let cluster = crate::cluster::Cluster::open(&path, &pool, &options).expect("a cluster");
        let link = Arc::clone(&cluster.shared.state().leading.as_ref().expect("it leads").link);
        // The last member cannot be removed. So the removal waits, as one does as long as the others lack records.
        link.sending().leader.wish_in(super::super::link::UNIT, Wish::Remove(NodeId(101)));
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while link.sending().leader.wished().is_some() {
            assert!(std::time::Instant::now() < until, "it answers, and would be removed when it can be");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn of_silent_members_the_one_that_is_silent_longest_goes_unless_another_does_not_run() {
        let four = |a: Seen, b: Seen| [a, b, seen(103, 5, true), seen(104, 5, true)];
        let longest = silent_to_remove(&four(seen(101, 1200, true), seen(102, 9000, true)), 2);
        assert_eq!(longest, Some(NodeId(102)), "not the one with the lower number");
        let longest = silent_to_remove(&four(seen(101, 9000, true), seen(102, 1200, true)), 2);
        assert_eq!(longest, Some(NodeId(101)));
        let stopped = silent_to_remove(&four(seen(101, 9000, true), seen(102, 1200, false)), 2);
        assert_eq!(stopped, Some(NodeId(102)), "it cannot answer");
        assert_eq!(silent_to_remove(&four(seen(101, 900, false), seen(102, 1000, false)), 2), None, "it may still");
    }

    /// Looks until the member is removed, on a clock of the test: milliseconds since it was heard.
    fn removed_after(cluster: &crate::cluster::Cluster, group: GroupId, node: u16) -> u64 {
        let link = Arc::clone(&cluster.shared.state().leading.as_ref().expect("it leads").link);
        let sending = link.sending();
        let members = || {
            let sender = sending.leader.volume().group(group).expect("a group");
            sender.view().members.iter().map(|member| (group, member.node, Moment(0))).collect::<Vec<_>>()
        };
        let mut looks = Looks::new(Moment(0));
        let answers = |(group, member, heard), now| (group, member, if member == NodeId(node) { heard } else { now });
        (0..)
            .step_by(100)
            .find(|ms| {
                let now = Moment(ms * MS);
                looks.begin(members().into_iter().map(|member| answers(member, now)));
                sending.to_remove(&link, group, &looks, now) == Some(NodeId(node))
            })
            .expect("it is removed")
    }

    #[test]
    fn a_member_that_is_gone_is_removed_early_if_somebody_waits_for_it() {
        use crate::cluster::link::UNIT;
        use crate::cluster::{Cluster, ClusterOptions, volume_for_tests};

        let (_folder, path, pool) = volume_for_tests();
        let cluster = Cluster::open(&path, &pool, &ClusterOptions::default()).expect("it opens");
        // Then every replica has what the term begins with.
        let file = cluster.volume().expect("it leads").create("/a").expect("a file");
        file.write_at(0, &[7; 5000]).expect("a write").sync().expect("a sync");
        let link = Arc::clone(&cluster.shared.state().leading.as_ref().expect("it leads").link);
        assert_eq!(removed_after(&cluster, OPERATIONS, 2), 1100, "it may only be slow");
        link.unwant(OPERATIONS, NodeId(2), false);
        assert_eq!(removed_after(&cluster, OPERATIONS, 2), 1100, "nobody knows");
        link.unwant(OPERATIONS, NodeId(2), true);
        assert_eq!(removed_after(&cluster, OPERATIONS, 2), 200, "syncs wait for it");
        link.want(OPERATIONS, NodeId(2), true);
        assert_eq!(removed_after(&cluster, OPERATIONS, 2), 1100, "it is back");
        link.unwant(UNIT, NodeId(102), true);
        assert_eq!(removed_after(&cluster, UNIT, 102), 1100, "two others are a quorum");
    }

    #[test]
    fn syncs_wait_for_a_quorum_and_writers_for_every_replica() {
        let at = |stable| (Sequence(stable), Sequence(7));
        assert!(is_waited_for((1, 2), at(7)), "of two nodes with metadata one is left");
        assert!(!is_waited_for((2, 2), at(7)), "of three replicas two are left");
        assert!(is_waited_for((2, 2), at(6)), "pages may not be used again yet");
    }

    #[test]
    fn no_member_is_removed_if_those_that_answer_could_not_go_on() {
        let three = |a, b, c| [seen(101, a, true), seen(102, b, true), seen(103, c, true)];
        assert_eq!(silent_to_remove(&three(5000, 1200, 5), 2), None, "two have to answer, whichever is removed");
        assert_eq!(silent_to_remove(&three(1200, 1200, 1200), 1), None, "none answers");
        assert_eq!(silent_to_remove(&three(1200, 5000, 5), 1), Some(NodeId(102)), "one goes on alone in the end");
        assert_eq!(silent_to_remove(&three(5, 5000, 5), 2), Some(NodeId(102)));
        assert_eq!(silent_to_remove(&three(5, 5000, 5), 3), None, "as many as are wanted");
    }

    #[test]
    fn a_member_is_silent_only_after_looks_that_it_did_not_answer() {
        let (group, node) = (GroupId(1), NodeId(101));
        let mut looks = Looks::new(Moment(0));
        let mut look = |ms: u64, heard_ms: u64| {
            let now = Moment(ms * MS);
            assert!(looks.is_due(now));
            assert!(!looks.is_due(now.plus(LOOK_NS - 1)));
            looks.begin(std::iter::once((group, node, Moment(heard_ms * MS))));
            looks.silent_ns(group, node, now) / MS
        };
        look(0, 0);
        // The thread had no processor for two seconds: none was asked.
        assert_eq!(look(2000, 0), 0);
        for ms in [2100, 2200, 2300] {
            assert_eq!(look(ms, 0), 0);
        }
        assert_eq!(look(2400, 0), 2400, "it was asked five times");
        assert_eq!(look(2500, 2450), 0, "it answers");
    }

    /// A replica dies, and the thread of the link has no processor for a while: all members are silent then.
    #[test]
    fn a_stall_of_the_sender_removes_no_member_that_runs() {
        use crate::cluster::link::UNIT;
        use crate::cluster::{Cluster, ClusterOptions, volume_for_tests};

        let (_folder, path, pool) = volume_for_tests();
        let cluster = Cluster::open(&path, &pool, &ClusterOptions::default()).expect("it opens");
        let link = Arc::clone(&cluster.shared.state().leading.as_ref().expect("it leads").link);
        let active = || {
            let sending = link.sending();
            let groups = [OPERATIONS, UNIT].map(|group| sending.leader.volume().group(group).expect("a group"));
            groups.iter().flat_map(|group| group.view().active()).map(|node| node.0).collect::<Vec<_>>()
        };
        assert_eq!(active(), [1, 2, 101, 102, 103]);
        cluster.stop_node(102).expect("it stops");
        let stalled = link.sending();
        std::thread::sleep(Duration::from_nanos(SILENT_NS + SILENT_NS / 10));
        drop(stalled);
        let until = std::time::Instant::now() + Duration::from_secs(60);
        loop {
            match *active() {
                [1, 2, 101, 102, 103] => {}
                [1, 2, 101, 103] => break,
                ref others => panic!("a member that runs was removed: {others:?} are left"),
            }
            assert!(std::time::Instant::now() < until, "the dead member stays");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

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
