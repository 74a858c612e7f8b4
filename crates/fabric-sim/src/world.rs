//! The world: nodes, network, registry and clients under one virtual clock. One seed draws everything.
//!
//! 1. Events are in a queue by time; those of one time in the order in which they were made.
//! 2. An event is one action of one node. Its effects become events: packets arrive, calls of the registry are
//!    answered.
//! 3. After each action the judges look at the node.
//! 4. When the clients have written enough, the faults end and every node restarts. Then all must converge.

mod clients;
mod dispatch;
mod faults;
mod registry;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::rc::Rc;

use lodestone_fabric::{
    GroupId, LEASE_NS, LocalRegistry, NodeId, RegistryAnswer, RegistryCall, Result, Role, Sender, SenderEvent,
    Sequence, Term, View,
};
use lodestone_pmem::{Memory, PmAddr};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::network::Network;
use crate::node::{Core, FIRST_SENDER, Node, groups_of};
use crate::oracle::{Judged, Oracle};
use crate::orders::Orders;
use crate::plan::Plan;
use clients::Clients;
use registry::WorldRegistry;

/// Virtual time within which everything converges after the end of faults.
const CONVERGE_NS: u64 = 8_000_000_000;
/// And within which members that were lost are removed, where a quorum is left.
const QUORUM_NS: u64 = 2_000_000_000;
const SUPERVISE_NS: u64 = 20_000_000;
/// Steps of a search for the order of a file's reads and writes.
const SEARCH_STEPS: u64 = 60_000;

/// An action of some node, or a fault.
enum Event {
    Deliver(NodeId, Rc<Vec<u8>>),
    BatchEnd(NodeId),
    Wake(NodeId, u64),
    Call(NodeId, u32, Box<RegistryCall>, u64),
    Answer(NodeId, u32, Box<RegistryAnswer>),
    Write,
    Read,
    CrashMember,
    CrashSender,
    Crash(NodeId, u32),
    Restart(NodeId),
    TakeOver,
    Change,
    Cut,
    LoseMember,
    LoseSender,
    Flip,
    Join,
    Supervise,
    Keepers,
    KeeperFault,
    KeepersStop,
}

struct Scheduled(u64, u64, Event);

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// Counts of a run, and the first violation.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Records submitted by clients.
    pub writes: u64,
    /// Records acknowledged: of clients, and first ones of terms.
    pub acknowledged: u64,
    /// Reads answered.
    pub reads: u64,
    /// Files whose reads and writes have an order, by a search.
    pub searched: u64,
    /// Files whose search took too many steps.
    pub unsearched: u64,
    /// Packets that were sent, each once however many nodes it was for.
    pub sent: u64,
    /// Bytes of these.
    pub sent_bytes: u64,
    /// Of these packets records that were sent again.
    pub resent: u64,
    /// Of these packets requests for missing records.
    pub nacks: u64,
    /// Packets that arrived.
    pub packets: u64,
    /// Packets that arrived and were refused as damaged.
    pub refused: u64,
    /// Packets of two halves of which one was made again.
    pub rebuilt: u64,
    /// Virtual time from submission to acknowledgement, of half of the records.
    pub told_ns_p50: u64,
    /// Of 99 of a hundred.
    pub told_ns_p99: u64,
    /// Crashes of nodes.
    pub crashes: u64,
    /// Nodes that were lost for good.
    pub losses: u64,
    /// Bits that flipped in pages at rest.
    pub flips: u64,
    /// Whether a group was left without a quorum in the end, by losses and changes that met: nothing is promised then.
    pub without_quorum: bool,
    /// Crashes of keepers of the registry.
    pub keeper_crashes: u64,
    /// Records acknowledged while no keeper of the registry ran.
    pub acknowledged_without_keepers: u64,
    /// Terms whose sender was ready.
    pub takeovers: u64,
    /// Changes of members that the registry has.
    pub changes: u64,
    /// Members that joined and came to count, before the end of faults.
    pub joins: u64,
    /// The longest of these joins, in nanoseconds of virtual time.
    pub join_ns_max: u64,
    /// Fences before a page was used again.
    pub mark_fences: u64,
    /// Events.
    pub events: u64,
    /// Virtual time, in nanoseconds.
    pub time_ns: u64,
    /// A digest of every packet that arrived, at its time: equal runs have equal digests.
    pub digest: u64,
    /// The first violation.
    pub violation: Option<String>,
}

/// The world.
pub struct World {
    plan: Plan,
    random: ChaCha8Rng,
    now: u64,
    made: u64,
    queue: BinaryHeap<Reverse<Scheduled>>,
    nodes: BTreeMap<NodeId, Node>,
    /// The nodes with data of each group.
    of_group: BTreeMap<GroupId, Rc<Vec<NodeId>>>,
    network: Network,
    registry: WorldRegistry,
    clients: Clients,
    /// The judge of the only group, or of the operations.
    oracle: Oracle,
    /// Those of the units.
    orders: Orders,
    outcome: Outcome,
    /// When the faults ended.
    healed: Option<u64>,
    lose_answers: u32,
    /// The members of each term, as its sender has them.
    views: BTreeMap<(GroupId, Term), View>,
    /// When members began to join.
    joining_since: BTreeMap<NodeId, u64>,
    /// The last lines of what happened, if they are wanted.
    trace: Option<VecDeque<String>>,
}

/// Lines of a trace that are kept.
const TRACE_LINES: usize = 100_000;

impl World {
    /// Keeps the last lines of what happens, for [`run_traced`](Self::run_traced).
    #[must_use]
    pub fn traced(mut self) -> Self {
        self.trace = Some(VecDeque::new());
        self
    }

    /// Adds a line to the trace.
    fn say(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            if trace.len() == TRACE_LINES {
                trace.pop_front();
            }
            trace.push_back(format!("{:>12} {}", self.now, line()));
        }
    }

    /// Runs as [`run`](Self::run), and returns the last lines of what happened too.
    #[must_use]
    pub fn run_traced(mut self) -> (Outcome, Vec<String>) {
        self.go();
        let trace = self.trace.take().unwrap_or_default().into();
        (self.finish(), trace)
    }

    /// A world of `plan`, of which everything else is drawn from `seed`.
    ///
    /// # Errors
    /// If the plan's sizes are too small.
    pub fn new(plan: Plan, seed: u64) -> Result<Self> {
        let mut random = ChaCha8Rng::seed_from_u64(seed ^ 0xFAB_51C);
        let groups = groups_of(&plan);
        let mut data: Vec<NodeId> =
            groups.iter().flat_map(|(_, members, spares)| members.iter().chain(spares)).copied().collect();
        data.sort_unstable();
        let senders = (FIRST_SENDER..FIRST_SENDER + plan.senders).map(NodeId);
        let of_group = groups.iter().map(|(group, members, spares)| {
            (*group, Rc::new(members.iter().chain(spares).copied().collect::<Vec<_>>()))
        });
        let of_group = of_group.collect();
        let mut nodes = BTreeMap::new();
        for id in data.into_iter().chain(senders) {
            nodes.insert(id, Node::new(id, &plan, random.random_range(952_000..=1_048_000))?);
        }
        let memory = Memory::anonymous(64 << 10)?;
        let views: Vec<_> = groups.iter().map(|(group, members, _)| (*group, View::of(members))).collect();
        let local = LocalRegistry::create(&memory, PmAddr::new(0, 4096), views.clone())?;
        let registry = WorldRegistry::new(&plan, views, local, seed)?;
        let slow = (plan.slow_factor > 1).then(|| (NodeId(random.random_range(1..=plan.members)), plan.slow_factor));
        let network = Network { faults: plan.network, cut: Default::default(), slow };
        let lose_answers = plan.registry_lose;
        let mut world = Self {
            clients: Clients::default(),
            plan,
            random,
            now: 0,
            made: 0,
            queue: BinaryHeap::new(),
            nodes,
            of_group,
            network,
            registry,
            oracle: Oracle::new(if groups.len() > 1 { Judged::Nothing } else { Judged::All }),
            orders: Orders::default(),
            outcome: Outcome { seed, ..Outcome::default() },
            healed: None,
            lose_answers,
            views: BTreeMap::new(),
            joining_since: BTreeMap::new(),
            trace: None,
        };
        for (unit, _, _) in groups.iter().skip(1) {
            world.orders.units.insert(*unit, Oracle::new(Judged::Known));
        }
        world.begin();
        Ok(world)
    }

    /// The judge of a group.
    fn judge_of(&self, group: GroupId) -> &Oracle {
        self.orders.units.get(&group).unwrap_or(&self.oracle)
    }

    fn oracle_of(&mut self, group: GroupId) -> &mut Oracle {
        self.orders.units.get_mut(&group).unwrap_or(&mut self.oracle)
    }

    fn begin(&mut self) {
        let plan = self.plan.clone();
        self.after(0, Event::Supervise);
        self.after(1_000_000, Event::Write);
        self.after(1_000_000, Event::Read);
        self.next_fault(plan.crash_member_ns, Event::CrashMember);
        self.next_fault(plan.crash_sender_ns, Event::CrashSender);
        self.next_fault(plan.takeover_ns, Event::TakeOver);
        self.next_fault(plan.change_ns, Event::Change);
        self.next_fault(plan.cut_ns, Event::Cut);
        self.next_fault(plan.lose_member_ns, Event::LoseMember);
        self.next_fault(plan.lose_sender_ns, Event::LoseSender);
        self.next_fault(plan.flip_ns, Event::Flip);
        self.next_fault(plan.keeper_fault_ns, Event::KeeperFault);
        if plan.keepers_stop_ns > 0 {
            self.after(plan.keepers_stop_ns, Event::KeepersStop);
        }
        self.schedule_keepers();
    }

    fn after(&mut self, ns: u64, event: Event) {
        self.made += 1;
        self.queue.push(Reverse(Scheduled(self.now + ns, self.made, event)));
    }

    /// A time whose mean is `mean_ns`.
    fn around(&mut self, mean_ns: u64) -> u64 {
        self.random.random_range(0..=2 * mean_ns)
    }

    /// Runs to the end, or to the first violation.
    #[must_use]
    pub fn run(mut self) -> Outcome {
        self.go();
        self.finish()
    }

    fn go(&mut self) {
        while let Some(Reverse(Scheduled(time, _, event))) = self.queue.pop() {
            self.now = time;
            self.outcome.events += 1;
            if let Err(error) = self.handle(event) {
                self.oracle.fail(|| format!("a core failed: {error}"));
            }
            if let Some(violation) = self.orders.violation() {
                self.oracle.fail(|| violation);
            }
            if self.oracle.violation.is_some() || self.is_done() {
                break;
            }
        }
    }

    fn is_done(&mut self) -> bool {
        match self.healed {
            None => {
                let is_over =
                    self.outcome.writes >= self.plan.operations || self.now > self.plan.operations * 20_000_000;
                if is_over && let Err(error) = self.heal() {
                    self.oracle.fail(|| format!("a keeper does not open: {error}"));
                }
                false
            }
            Some(at) => {
                let is_late = self.now > at + CONVERGE_NS;
                if self.now > at + QUORUM_NS && self.lacks_quorum() {
                    self.outcome.without_quorum = true;
                    return true;
                }
                let missing = if self.outcome.events.is_multiple_of(64) || is_late {
                    self.missing()
                } else {
                    Some(String::new())
                };
                if is_late && let Some(missing) = &missing {
                    self.oracle.fail(|| format!("P6: after the end of faults {missing}"));
                }
                missing.is_none() || is_late
            }
        }
    }

    fn finish(mut self) -> Outcome {
        if self.oracle.violation.is_none() {
            for id in self.nodes.keys().copied().collect::<Vec<_>>() {
                self.judge(id, true);
            }
            (self.outcome.searched, self.outcome.unsearched) = self.oracle.judge_reads(SEARCH_STEPS);
        }
        if let Some(violation) = self.orders.violation() {
            self.oracle.fail(|| violation);
        }
        (self.outcome.told_ns_p50, self.outcome.told_ns_p99) = self.oracle.told_ns();
        let marks = self.nodes.values().filter_map(Node::member).map(|member| member.counts().mark_fences);
        Outcome {
            acknowledged: self.oracle.acknowledged_count() as u64,
            reads: self.oracle.read_count() as u64,
            changes: self.registry.state().change,
            keeper_crashes: self.keeper_crashes(),
            mark_fences: marks.sum(),
            time_ns: self.now,
            violation: self.oracle.violation,
            ..self.outcome
        }
    }

    fn handle(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Deliver(node, bytes) => self.deliver(node, &bytes),
            Event::BatchEnd(node) => {
                if let Some(found) = self.nodes.get_mut(&node) {
                    found.in_batch = false;
                }
                self.act(node, |core, now, out| match core {
                    Core::Member(member) => member.batch_end(now, out),
                    _ => Ok(()),
                })
            }
            Event::Wake(node, at) => self.wake(node, at),
            Event::Call(node, life, call, asked) => self.call(node, life, &call, asked),
            Event::Answer(node, life, answer) => self.answer(node, life, *answer),
            Event::Write => self.write(),
            Event::Read => self.read(),
            Event::Supervise => self.supervise(),
            Event::Keepers => self.run_keepers(),
            fault => self.fault(fault),
        }
    }

    /// Whether some group has too few members that are not lost: the registry's view counts.
    fn lacks_quorum(&self) -> bool {
        let state = self.registry.state();
        state.groups.iter().any(|(_, view)| {
            let is_there = |node: &NodeId| self.nodes.get(node).is_some_and(|node| !node.is_lost);
            view.active().filter(is_there).count() < view.quorum()
        })
    }

    /// The node whose term is the newest, if it is sending.
    fn sender(&self) -> Option<NodeId> {
        let newest = self.nodes.values().filter(|node| node.leader().is_some_and(|l| l.volume().is_sending()));
        newest.max_by_key(|node| node.leader().map(|leader| leader.sender().term())).map(|node| node.id)
    }

    /// The first thing that is not as it must be in the end.
    fn missing(&self) -> Option<String> {
        let state = self.registry.state();
        let Some(leader) = self.sender().and_then(|id| self.nodes.get(&id)).and_then(Node::leader) else {
            return Some("no node sends".to_owned());
        };
        if leader.sender().term() != state.term {
            return Some(format!("the sender has {}, the registry {}", leader.sender().term(), state.term));
        }
        let last = leader.volume().last();
        if leader.acknowledged() != last {
            return Some(format!("{last} is not acknowledged, only {}", leader.acknowledged()));
        }
        if let Some(missing) = leader.volume().groups().find_map(|sender| self.missing_in(sender)) {
            return Some(missing);
        }
        if self.clients.has_reads() {
            return Some("reads wait".to_owned());
        }
        None
    }

    /// The first thing that a group lacks in the end.
    fn missing_in(&self, sender: &Sender) -> Option<String> {
        let (group, last) = (sender.group(), sender.ring().last());
        if sender.acknowledged() != last {
            return Some(format!("{last} of {group} is not acknowledged, only {}", sender.acknowledged()));
        }
        for member in &sender.view().members {
            let found = self.nodes.get(&member.node).and_then(Node::member);
            if member.role == Role::Joining || found.is_none_or(|found| found.tail() != last) {
                let tail = found.map(|found| (found.exposed(), found.tail(), found.log().standing()));
                return Some(format!("{} ({:?}) has {tail:?}, the last is {last}", member.node, member.role));
            }
        }
        None
    }

    /// The senders of a node found that something happened: units first, because operations rest on them.
    fn happened(&mut self, node: NodeId, events: Vec<(GroupId, SenderEvent)>) {
        for (group, event) in events {
            let Some(leader) = self.nodes.get(&node).and_then(Node::leader) else { return };
            let Some(sender) = leader.volume().group(group) else { continue };
            let is_first = group == leader.sender().group();
            let (term, ring, is_sending) = (sender.term(), sender.ring().terms().clone(), sender.is_sending());
            self.say(|| format!("{node} {group} {term}: {event:?}; ring {ring:?}"));
            match event {
                SenderEvent::Adopted { base, cut } => {
                    if is_sending {
                        let oracle = self.orders.units.get_mut(&group).unwrap_or(&mut self.oracle);
                        oracle.adopted(term, &ring, base);
                        self.clients.adopted(oracle, (node, group), &ring, cut);
                        if is_first {
                            self.clients.began(&mut self.oracle, node, term, &ring);
                        }
                    } else if let Some(cut) = cut {
                        self.clients.cut(node, group, cut);
                    }
                }
                SenderEvent::Ready => {
                    self.outcome.takeovers += u64::from(is_first);
                    self.first_record(node, group);
                }
                SenderEvent::Acknowledged(last) => self.acknowledged(group, term, last),
                SenderEvent::Deposed(_) => self.clients.deposed(node),
            }
        }
    }

    fn acknowledged(&mut self, group: GroupId, term: Term, last: Sequence) {
        let now = self.now;
        let is_order = self.plan.units > 0 && !self.orders.units.contains_key(&group);
        let from = self.judge_of(group).acknowledged_in(term);
        if self.registry.is_stopped() {
            self.outcome.acknowledged_without_keepers += last.0.saturating_sub(from.0);
        }
        self.oracle_of(group).acknowledge(now, term, last);
        if is_order {
            self.orders.acknowledged(&mut self.oracle, term, from, last);
        }
    }

    /// How long after a takeover reads may wait at most: for tests.
    #[must_use]
    pub const fn lease_ns() -> u64 {
        LEASE_NS
    }

    fn term_of(&self, node: NodeId) -> Term {
        self.nodes.get(&node).and_then(Node::leader).map_or(Term(0), |leader| leader.sender().term())
    }
}
