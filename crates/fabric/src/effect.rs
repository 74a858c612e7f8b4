//! Effects: requests of a core to the world. Cores have no clock, socket or thread: one action goes in, effects come
//! out.

use crate::ids::{GroupId, NodeId};

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To every member of the group by one send.
    Group,
    /// To one node.
    Node(NodeId),
}

/// A packet to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Where it goes.
    pub target: Target,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Outgoing {
    /// The group that the packet is of, as its head says.
    #[must_use]
    pub fn group(&self) -> Option<GroupId> {
        let bytes = self.bytes.get(4..8)?.try_into().ok()?;
        Some(GroupId(u32::from_le_bytes(bytes)))
    }
}

/// Packets that a core wants to have sent, in order.
#[derive(Debug, Default)]
pub struct Outbound {
    /// The packets.
    pub packets: Vec<Outgoing>,
}

impl Outbound {
    /// To every member.
    pub fn to_group(&mut self, bytes: Vec<u8>) {
        self.packets.push(Outgoing { target: Target::Group, bytes });
    }

    /// To one node.
    pub fn to_node(&mut self, node: NodeId, bytes: Vec<u8>) {
        self.packets.push(Outgoing { target: Target::Node(node), bytes });
    }
}
