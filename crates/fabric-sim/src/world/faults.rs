//! Faults, their end, and the supervisor that an operator or a keeper would be.

use lodestone_fabric::{Leader, Member, NodeId, Result, Role, Standing, Wish};
use rand::Rng;
use rand::seq::IndexedRandom;

use super::{Event, SUPERVISE_NS, World};
use crate::network::Network;
use crate::node::{Core, FIRST_SENDER, Node, group_of};
use crate::plan::NetworkFaults;

/// Crashes of a run at most, besides one for every 50 operations.
const CRASHES_MAX: u64 = 60;
/// A member that was silent for so long is removed.
const SILENT_NS: u64 = 1_000_000_000;

impl World {
    pub(super) fn next_fault(&mut self, mean_ns: u64, event: Event) {
        // A run that waits for long would be little else than crashes.
        let is_crash = matches!(event, Event::CrashMember | Event::CrashSender);
        if is_crash && self.outcome.crashes > CRASHES_MAX + self.plan.operations / 50 {
            return;
        }
        if mean_ns > 0 && self.healed.is_none() {
            let ns = self.around(mean_ns);
            self.after(ns, event);
        }
    }

    pub(super) fn fault(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Crash(node, life)
                if self.nodes.get(&node).is_some_and(|found| found.life == life && found.is_up()) =>
            {
                self.crash(node)?;
            }
            // It crashed earlier.
            Event::Crash(..) => {}
            Event::Restart(node) => self.restart(node)?,
            // Its outage has its end in the queue already.
            Event::Join => self.network.cut.clear(),
            _ if self.healed.is_some() => {}
            Event::CrashMember => {
                self.crash_some(|id| id.0 < FIRST_SENDER)?;
                self.next_fault(self.plan.crash_member_ns, Event::CrashMember);
            }
            Event::CrashSender => {
                self.crash_some(|id| id.0 >= FIRST_SENDER)?;
                self.next_fault(self.plan.crash_sender_ns, Event::CrashSender);
            }
            Event::TakeOver => {
                self.claim(true)?;
                self.next_fault(self.plan.takeover_ns, Event::TakeOver);
            }
            Event::Change => {
                self.wish();
                self.next_fault(self.plan.change_ns, Event::Change);
            }
            Event::KeepersStop => self.stop_keepers(),
            Event::KeeperFault => {
                self.keeper_fault();
                self.next_fault(self.plan.keeper_fault_ns, Event::KeeperFault);
            }
            Event::Cut => {
                let all: Vec<NodeId> = self.nodes.keys().copied().collect();
                self.network.cut = all.into_iter().filter(|_| self.random.random_range(0..3) == 0).collect();
                let ns = self.around(self.plan.outage_ns);
                self.after(ns, Event::Join);
                self.next_fault(self.plan.cut_ns, Event::Cut);
            }
            Event::LoseMember => {
                self.lose_member()?;
                self.next_fault(self.plan.lose_member_ns, Event::LoseMember);
            }
            Event::Flip => {
                self.flip();
                self.next_fault(self.plan.flip_ns, Event::Flip);
            }
            Event::LoseSender => {
                self.lose_sender()?;
                self.next_fault(self.plan.lose_sender_ns, Event::LoseSender);
            }
            _ => {}
        }
        Ok(())
    }

    /// Loses a member for good, if fewer than a quorum of its group are lost then.
    fn lose_member(&mut self) -> Result<()> {
        let is_undecided = |node: &Node| {
            node.leader().is_some_and(|leader| leader.volume().groups().any(|sender| sender.pending().is_some()))
        };
        if self.nodes.values().any(is_undecided) {
            return Ok(());
        }
        let mut may_go = Vec::new();
        for (_, view) in self.registry.state().groups.clone() {
            let is_lost = |node: &NodeId| self.nodes.get(node).is_some_and(|node| node.is_lost);
            let lost = view.active().filter(is_lost).count();
            let is_spared = view.active().count() < 3 || lost + 1 > view.quorum() - 1;
            let may = |member: &&Member| !is_lost(&member.node) && (member.role == Role::Joining || !is_spared);
            may_go.extend(view.members.iter().filter(may).map(|member| member.node));
        }
        self.lose_one_of(&may_go)
    }

    /// Loses a sender for good, if another one is left.
    fn lose_sender(&mut self) -> Result<()> {
        let is_left = |node: &&Node| node.id.0 >= FIRST_SENDER && !node.is_lost;
        let left: Vec<NodeId> = self.nodes.values().filter(is_left).map(|node| node.id).collect();
        if left.len() < 2 { Ok(()) } else { self.lose_one_of(&left) }
    }

    /// Flips a bit in the page of a file, always at the first member.
    fn flip(&mut self) {
        let bit = self.random.random_range(0..u64::from(self.plan.page_bytes) * 8);
        let pick = self.random.random_range(0..self.plan.files);
        let member = |node: &&mut Node| node.member().is_some();
        let Some(node) = self.nodes.values_mut().find(member) else { return };
        let pages: Vec<u64> = node.known.files().map(|(_, page)| page).collect();
        let Some(page) = pages.get(usize::try_from(pick).unwrap_or(0)) else { return };
        node.flip(*page, bit);
        self.outcome.flips += 1;
    }

    fn lose_one_of(&mut self, nodes: &[NodeId]) -> Result<()> {
        let Some(id) = nodes.choose(&mut self.random).copied() else { return Ok(()) };
        let Some(node) = self.nodes.get_mut(&id) else { return Ok(()) };
        node.is_lost = true;
        let is_up = node.is_up();
        self.outcome.losses += 1;
        self.say(|| format!("{id} is lost for good"));
        if is_up { self.crash(id) } else { Ok(()) }
    }

    /// Crashes a node at once, or at one of its next stores.
    fn crash_some(&mut self, which: impl Fn(NodeId) -> bool) -> Result<()> {
        let up: Vec<NodeId> = self.nodes.values().filter(|n| n.is_up() && which(n.id)).map(|n| n.id).collect();
        let Some(id) = up.choose(&mut self.random).copied() else { return Ok(()) };
        if self.random.random::<bool>() {
            return self.crash(id);
        }
        let (events, seed) = (self.random.random_range(0..400), self.random.random());
        if let Some(node) = self.nodes.get_mut(&id) {
            node.medium.arm(events, seed);
            let life = node.life;
            self.after(2_000_000, Event::Crash(id, life));
        }
        Ok(())
    }

    pub(super) fn crash(&mut self, id: NodeId) -> Result<()> {
        let (seed, ns) = (self.random.random(), self.around(self.plan.outage_ns));
        self.say(|| format!("{id} crashes"));
        self.clients.deposed(id);
        if let Some(node) = self.nodes.get_mut(&id) {
            self.clients.stopped(id);
            node.crash(seed);
        }
        self.outcome.crashes += 1;
        self.after(ns, Event::Restart(id));
        Ok(())
    }

    /// Starts a node again, and judges its recovery.
    fn restart(&mut self, id: NodeId) -> Result<()> {
        let Some(node) = self.nodes.get_mut(&id).filter(|node| !node.is_up() && !node.is_lost) else {
            return Ok(());
        };
        node.restart(&self.plan)?;
        let (told_promise, told_tail) = (node.told_promise, node.told_tail);
        let line = match &node.core {
            Core::Member(m) => {
                format!("{id} restarts: {:?} {:?} {:?}", m.log().promised(), m.log().standing(), m.log().terms())
            }
            Core::Sender(l) => {
                let rings: Vec<_> = l.volume().groups().map(|sender| sender.ring().terms()).collect();
                format!("{id} restarts: rings {rings:?}")
            }
            Core::Down => String::new(),
        };
        self.say(|| line);
        let Some(node) = self.nodes.get(&id) else { return Ok(()) };
        if let Some(member) = node.member() {
            let ((promised, viewed), last) = (member.log().promised(), member.exposed());
            if promised < told_promise {
                self.oracle
                    .fail(|| format!("P1: {id} told that it follows {told_promise}, and has {promised} after a crash"));
            }
            // It crashed when it had just begun anew.
            let is_empty = member.log().terms().base().0 == last;
            let is_anew = member.log().standing() == Standing::Copying && is_empty;
            if viewed == told_tail.0 && !is_anew && last.0 < told_tail.1 {
                self.oracle
                    .fail(|| format!("P1: {id} reported {} in {viewed}, and has {last} after a crash", told_tail.1));
            }
        }
        self.judge(id, true);
        self.act(id, |core, now, out| match core {
            Core::Member(member) => member.tick(now, out),
            _ => Ok(()),
        })
    }

    /// A node that does not lead wants to. `lives`: also while another one leads.
    pub(super) fn claim(&mut self, lives: bool) -> Result<()> {
        let leads = |node: &Node| node.leader().is_some_and(Leader::is_leading);
        if !lives && self.nodes.values().any(leads) {
            return Ok(());
        }
        let idle: Vec<NodeId> =
            self.nodes.values().filter(|node| node.leader().is_some() && !leads(node)).map(|node| node.id).collect();
        let Some(id) = idle.choose(&mut self.random).copied() else { return Ok(()) };
        self.act(id, |core, now, _| {
            if let Core::Sender(leader) = core {
                leader.claim(now);
            }
            Ok(())
        })
    }

    fn wish(&mut self) {
        let Some(id) = self.sender() else { return };
        let data: Vec<NodeId> = self.nodes.keys().copied().filter(|node| node.0 < FIRST_SENDER).collect();
        let Some(node) = data.choose(&mut self.random).copied() else { return };
        let group = group_of(&self.plan, node);
        let is_lost = |node: &NodeId| self.nodes.get(node).is_some_and(|node| node.is_lost);
        // No operator takes a member away while another one is gone.
        let members = || self.views.get(&(group, self.term_of(id))).into_iter().flat_map(|view| &view.members);
        if is_lost(&node) || members().any(|member| is_lost(&member.node)) {
            return;
        }
        let Some(Core::Sender(leader)) = self.nodes.get_mut(&id).map(|node| &mut node.core) else { return };
        let Some(sender) = leader.volume().group(group) else { return };
        let view = sender.view();
        let wish = match view.role(node) {
            Some(_) if view.active().count() > 2 => Wish::Remove(node),
            Some(_) => return,
            None => Wish::Join(node),
        };
        leader.wish_in(group, wish);
    }

    /// Sees to it that some node leads, and that members that are gone are removed.
    pub(super) fn supervise(&mut self) -> Result<()> {
        self.after(SUPERVISE_NS, Event::Supervise);
        self.claim(false)?;
        let Some(id) = self.sender() else { return Ok(()) };
        let lost: Vec<NodeId> = self.nodes.values().filter(|node| node.is_lost).map(|node| node.id).collect();
        let Some(node) = self.nodes.get_mut(&id) else { return Ok(()) };
        let now = lodestone_fabric::Moment(node.local(self.now));
        let Core::Sender(leader) = &mut node.core else { return Ok(()) };
        let mut wish = None;
        for sender in leader.volume().groups() {
            let view = sender.view();
            let gone = view.members.iter().map(|member| member.node).find(|node| lost.contains(node));
            let patience = self.plan.joiner_patience_ns;
            let is_full = sender.ring().used() > sender.ring().capacity() / 2;
            let impatient = || {
                let joins = |node: &NodeId| view.role(*node) == Some(Role::Joining);
                sender.silent(now, patience).find(joins).filter(|_| patience > 0 && is_full)
            };
            if let Some(silent) = gone.or_else(|| sender.silent(now, SILENT_NS).next()).or_else(impatient) {
                let is_spared = view.role(silent) == Some(Role::Active) && view.active().count() <= 2;
                wish = wish.or((!is_spared).then_some((sender.group(), Wish::Remove(silent))));
            } else if leader.wished().is_none()
                && let Some(joiner) = view.members.iter().find(|member| member.role == Role::Joining)
            {
                // A sender before this one began it.
                wish = wish.or(Some((sender.group(), Wish::Join(joiner.node))));
            }
        }
        if let Some((group, wish)) = wish {
            leader.wish_in(group, wish);
        }
        Ok(())
    }

    /// The faults end.
    pub(super) fn heal(&mut self) -> Result<()> {
        self.healed = Some(self.now);
        self.network = Network {
            faults: NetworkFaults { delay_ns: 10_000, ..NetworkFaults::default() },
            cut: Default::default(),
            slow: None,
        };
        self.lose_answers = 0;
        let is_down = |node: &&Node| !node.is_up() && !node.is_lost;
        let down: Vec<NodeId> = self.nodes.values().filter(is_down).map(|node| node.id).collect();
        for node in down {
            self.after(1_000, Event::Restart(node));
        }
        for node in self.nodes.values() {
            node.medium.disarm();
        }
        self.heal_keepers()
    }
}
