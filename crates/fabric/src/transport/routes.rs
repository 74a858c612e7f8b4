//! Addresses of nodes and members of groups, for transports that send a packet to each member.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::effect::{Outgoing, Target};
use crate::ids::{GroupId, NodeId};

/// Addresses of the nodes.
pub type Peers = BTreeMap<NodeId, SocketAddr>;

/// To whom a packet goes.
#[derive(Clone, Debug, Default)]
pub(super) struct Routes {
    pub(super) peers: Peers,
    /// The members of groups that have no list of their own.
    pub(super) members: Vec<NodeId>,
    pub(super) groups: BTreeMap<GroupId, Vec<NodeId>>,
}

impl Routes {
    /// The nodes other than `own` that a packet is for.
    pub(super) fn of(&self, outgoing: &Outgoing, own: NodeId) -> Vec<NodeId> {
        match outgoing.target {
            Target::Node(node) => vec![node],
            Target::Group => {
                let listed = outgoing.group().and_then(|group| self.groups.get(&group));
                listed.unwrap_or(&self.members).iter().copied().filter(|node| *node != own).collect()
            }
        }
    }
}
