//! Effects: requests of a core to the world. Cores have no clock, socket or thread: one action goes in, effects come
//! out.

use crate::ids::NodeId;

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
