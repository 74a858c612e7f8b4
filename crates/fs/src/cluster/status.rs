//! The status of a volume with replicas, and of its nodes.

use lodestone_fabric::{GroupId, NodeId, OPERATIONS, Role, Sender};
use serde::{Deserialize, Serialize};

use super::link::Link;
use super::plan::meta_of;

/// How far a copy is: of pages, or of an image of the metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyProgress {
    /// Bytes that are there.
    pub done_bytes: u64,
    /// All bytes.
    pub all_bytes: u64,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its number.
    pub node: u16,
    /// The kind of data that it keeps: `metadata` or `pages`.
    pub keeps: String,
    /// `leads`, `follows`, `member`, `joins`, `removed`, `stopped`, or why it failed.
    pub state: String,
    /// Records that it has not reported as durable.
    pub behind: Option<u64>,
    /// The last operation that it has executed, of a node that follows.
    #[serde(default)]
    pub executed: Option<u64>,
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
                Role::Active if sender.group() == OPERATIONS => "follows",
                Role::Active => "member",
            }
            .into();
        }
    }
}
