//! The status of a volume with replicas, and of its nodes.

use std::time::{Duration, Instant};

use lodestone_fabric::{GroupId, NodeId, OPERATIONS, Role, Sender};
use serde::{Deserialize, Serialize};

use super::link::Link;
use super::plan::meta_of;
use crate::usage::MetadataUsage;

/// How far a copy is: of pages, or of an image of the metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyProgress {
    /// Bytes that are there.
    pub done_bytes: u64,
    /// All bytes.
    pub all_bytes: u64,
    /// Bytes that came each second, of the last five to ten seconds; 0: none, or it has just begun.
    #[serde(default)]
    pub bytes_per_second: u64,
    /// How long the rest takes at this rate, if there is one.
    #[serde(default)]
    pub left_seconds: Option<u64>,
}

impl CopyProgress {
    /// With the time left; `None` if nothing is copied.
    pub(crate) fn of(done_bytes: u64, all_bytes: u64, bytes_per_second: u64) -> Option<Self> {
        let done_bytes = done_bytes.min(all_bytes);
        let left_seconds = (bytes_per_second > 0).then(|| (all_bytes - done_bytes).div_ceil(bytes_per_second));
        (all_bytes > 0).then_some(Self { done_bytes, all_bytes, bytes_per_second, left_seconds })
    }
}

/// Measures a copy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CopyMeter {
    done: u64,
    all: u64,
    /// Two moments with what was done then. The first one is five to ten seconds ago, or the beginning.
    marks: Option<[(Instant, u64); 2]>,
}

impl CopyMeter {
    const MARK_EVERY: Duration = Duration::from_secs(5);
    /// A rate over less than this says little.
    const SHORTEST: Duration = Duration::from_millis(100);

    /// So much is done now. With 0 of 0 nothing is copied any more.
    pub(crate) fn note(&mut self, now: Instant, done: u64, all: u64) {
        let is_other = all != self.all || done < self.done;
        (self.done, self.all) = (done, all);
        self.marks = match self.marks.filter(|_| !is_other) {
            _ if all == 0 => None,
            None => Some([(now, done); 2]),
            Some([_, mark]) if now.saturating_duration_since(mark.0) >= Self::MARK_EVERY => Some([mark, (now, done)]),
            marks => marks,
        };
    }

    /// How far it is.
    pub(crate) fn progress(&self, now: Instant) -> Option<CopyProgress> {
        let [(since, before), _] = self.marks?;
        let time = now.saturating_duration_since(since);
        let bytes = self.done.saturating_sub(before);
        let rate = if time < Self::SHORTEST { 0 } else { u128::from(bytes) * 1_000_000 / time.as_micros() };
        CopyProgress::of(self.done, self.all, u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its number.
    pub node: u16,
    /// The kind of data that it keeps: `metadata` or `pages`.
    pub keeps: String,
    /// `leads`, `follows`, `lacks its image`, `member`, `joins`, `removed`, `stopped`, or why it failed.
    pub state: String,
    /// Records that it has not reported as durable.
    pub behind: Option<u64>,
    /// The last operation that it has executed, of a node that follows.
    #[serde(default)]
    pub executed: Option<u64>,
    /// Whether it keeps metadata and lacks operations that its log does not have: it needs a copy of the image, and
    /// cannot take over before.
    #[serde(default)]
    pub lacks_image: bool,
    /// How far it is, of a node that copies what it lacks.
    #[serde(default)]
    pub copied: Option<CopyProgress>,
    /// Milliseconds since it was heard.
    pub silent_ms: Option<u64>,
}

/// A machine of a volume on several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineStatus {
    /// Its number.
    pub machine: u16,
    /// Where it listens.
    pub address: String,
    /// `counts`; `joins`: it copies what it lacks; `away`: it does not answer and does not count; `leaves`: it is
    /// drained, and still counts; `drained`; or `unknown`, as long as no machine leads.
    pub state: String,
}

/// A group of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Its number; 0 is the metadata.
    pub group: u32,
    /// The number of changes of its members.
    pub view: u32,
    /// Members that count.
    pub copies: usize,
    /// Members that a record needs.
    pub quorum: usize,
    /// The last record.
    pub last: u64,
    /// Everything up to here survives the loss of a minority.
    pub acknowledged: u64,
    /// Everything up to here is durable at every member.
    pub stable: u64,
}

/// The state of a volume's nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClusterStatus {
    /// The node that leads; 0: none now.
    pub leader: u16,
    /// Its term.
    pub term: u32,
    /// How packets travel.
    pub transport: String,
    /// Mounts in other processes that the metadata node knows.
    #[serde(default)]
    pub mounts: usize,
    /// Takeovers since this process began.
    pub takeovers: u64,
    /// Use of the pool of the node that leads by metadata.
    #[serde(default)]
    pub metadata: Option<MetadataUsage>,
    /// The groups.
    pub groups: Vec<GroupStatus>,
    /// The nodes.
    pub nodes: Vec<NodeStatus>,
    /// The machines of a volume on several.
    #[serde(default)]
    pub machines: Vec<MachineStatus>,
    /// Changes of the machines since the format.
    #[serde(default)]
    pub revision: u64,
    /// Matters that a user should know.
    pub warnings: Vec<String>,
}

impl ClusterStatus {
    /// Fills in what the sender knows.
    pub(crate) fn of_link(&mut self, link: &Link) {
        let sending = link.sending();
        let volume = sending.leader.volume();
        (self.leader, self.term) = (meta_of(link.node).0, volume.operations().term().0);
        self.transport = link.transport().into();
        if volume.is_sending() && !sending.leader.may_read(link.now()) {
            self.warnings.push("no lease: the registry does not answer, so nothing is read or acknowledged".into());
        }
        for sender in volume.groups() {
            let view = sender.view();
            let copies = view.active().count();
            self.groups.push(GroupStatus {
                group: sender.group().0,
                view: view.number.0,
                copies,
                quorum: view.quorum(),
                last: sender.ring().last().0,
                acknowledged: sender.acknowledged().0,
                stable: sender.stable().0,
            });
            self.warn(sender.group(), copies);
            for node in &mut self.nodes {
                node.fill(sender, link);
            }
        }
    }

    fn warn(&mut self, group: GroupId, copies: usize) {
        let what = if group == OPERATIONS { "the metadata".to_owned() } else { format!("unit {}", group.0) };
        if copies < 2 {
            self.warnings.push(format!("{what} has one copy: its loss is the loss of the volume"));
        }
    }
}

impl NodeStatus {
    /// The machine of this node, in a volume on several.
    #[must_use]
    pub const fn machine(&self) -> u16 {
        super::machine::site::machine_of(NodeId(self.node))
    }

    fn fill(&mut self, sender: &Sender, link: &Link) {
        let node = NodeId(self.node);
        if super::plan::group_of(node) != sender.group() {
            return;
        }
        let Some(role) = sender.view().role(node) else {
            if self.state == "runs" {
                self.state = "removed".into();
            }
            return;
        };
        let (now, last) = (link.now(), sender.ring().last());
        self.behind = sender.tail(node).map(|tail| last.0.saturating_sub(tail.0));
        self.silent_ms = sender.heard(node).map(|heard| now.since(heard) / 1_000_000);
        if self.state == "runs" {
            let is_leader = meta_of(link.node) == node;
            self.state = match role {
                Role::Joining => "joins",
                Role::Active if is_leader => "leads",
                Role::Active if self.lacks_image => "lacks its image",
                Role::Active if sender.group() == OPERATIONS => "follows",
                Role::Active => "member",
            }
            .into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_that_could_not_take_over_does_not_look_like_one_that_could() {
        let (_folder, path, pool) = crate::cluster::volume_for_tests();
        let options = crate::cluster::ClusterOptions::default();
        let cluster = crate::cluster::Cluster::open(&path, &pool, &options).expect("a cluster");
        let find = |status: &ClusterStatus| status.nodes.iter().find(|node| node.node == 2).cloned();
        let follows = find(&cluster.status()).expect("a standby");
        assert_eq!((&*follows.state, follows.lacks_image), ("follows", false));
        let link = std::sync::Arc::clone(&cluster.shared.state().leading.as_ref().expect("it leads").link);
        let mut lacks = NodeStatus { state: "runs".into(), lacks_image: true, ..follows };
        lacks.fill(link.sending().leader.volume().operations(), &link);
        assert_eq!(lacks.state, "lacks its image");
    }

    #[test]
    fn a_copy_has_the_rate_of_its_last_seconds_and_the_time_that_is_left() {
        let (mut meter, begin) = (CopyMeter::default(), Instant::now());
        let at = |ms| begin + Duration::from_millis(ms);
        assert_eq!(meter.progress(begin), None);
        // It goes on with what is there already.
        meter.note(begin, 1_000_000, 100_000_000);
        let first = meter.progress(at(50)).expect("it copies");
        assert_eq!((first.bytes_per_second, first.left_seconds), (0, None), "too early");
        for step in 1..=40 {
            meter.note(at(step * 500), 1_000_000 + step * 500_000, 100_000_000);
        }
        let fast = meter.progress(at(20_000)).expect("it copies");
        assert_eq!((fast.done_bytes, fast.bytes_per_second, fast.left_seconds), (21_000_000, 1_000_000, Some(79)));
        // The network got slower: what was before does not count for long.
        for step in 1..=40 {
            meter.note(at(20_000 + step * 500), 21_000_000 + step * 50_000, 100_000_000);
        }
        let slow = meter.progress(at(40_000)).expect("it copies");
        assert_eq!((slow.bytes_per_second, slow.left_seconds), (100_000, Some(770)));
        // Nothing comes any more.
        let stopped = meter.progress(at(400_000)).expect("it copies");
        assert!(stopped.bytes_per_second < 3_000, "{stopped:?}");
        // Another copy, then none.
        meter.note(at(400_000), 10, 100_000_000);
        assert_eq!(meter.progress(at(400_000)).map(|copy| (copy.done_bytes, copy.bytes_per_second)), Some((10, 0)));
        meter.note(at(400_100), 0, 0);
        assert_eq!(meter.progress(at(400_100)), None);
    }
}
