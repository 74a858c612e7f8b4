//! A switch inside one process: a port for each node, with a bounded queue.
//!
//! A send puts the packet into the queues of its receivers, in the caller's thread. The group is all ports of its
//! members but the sender's own. A queue that is full loses the packet, as a card without receive buffers does.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use lodestone_pmem::sync::{Condvar, Mutex, lock};
use lodestone_width::to_u64;

use super::{Transport, TransportCounts};
use crate::effect::{Outgoing, Target};
use crate::error::Result;
use crate::ids::{GroupId, NodeId};

/// Packets that wait at a port.
const QUEUE_MAX: usize = 4096;

#[derive(Debug, Default)]
struct Port {
    queue: Mutex<VecDeque<Arc<[u8]>>>,
    arrived: Condvar,
    is_member: bool,
    /// The groups that it is a member of; empty: of whatever group is sent to.
    groups: Vec<GroupId>,
}

impl Port {
    /// Whether it gets what is sent to `group`.
    fn hears(&self, group: Option<GroupId>) -> bool {
        self.is_member && (self.groups.is_empty() || group.is_some_and(|group| self.groups.contains(&group)))
    }
}

/// The switch.
///
/// ```
/// use lodestone_fabric::{NodeId, Outgoing, SwitchNetwork, Target, Transport};
///
/// let [mut sender, mut one, mut other] =
///     SwitchNetwork::ports([(NodeId(9), false), (NodeId(1), true), (NodeId(2), true)]);
/// sender.send(&[Outgoing { target: Target::Group, bytes: vec![7; 100] }])?;
/// for port in [&mut one, &mut other] {
///     assert_eq!(port.poll(std::time::Duration::ZERO, 8, &mut |packet| {
///         assert_eq!(packet, [7; 100]);
///         Ok(())
///     })?, 1);
/// }
/// assert_eq!(sender.counts().sends, 1, "one send, however many members");
/// # Ok::<(), lodestone_fabric::Error>(())
/// ```
#[derive(Debug)]
pub struct SwitchNetwork {
    ports: BTreeMap<NodeId, Port>,
}

impl SwitchNetwork {
    /// The ports of nodes; those with `true` are members of the group.
    #[must_use]
    pub fn ports<const N: usize>(nodes: [(NodeId, bool); N]) -> [SwitchPort; N] {
        let network = Arc::new(Self::of(&nodes));
        nodes.map(|(node, _)| SwitchPort::new(&network, node))
    }

    /// The same for a list.
    #[must_use]
    pub fn list(nodes: &[(NodeId, bool)]) -> Vec<SwitchPort> {
        let network = Arc::new(Self::of(nodes));
        nodes.iter().map(|(node, _)| SwitchPort::new(&network, *node)).collect()
    }

    /// Ports of nodes that are members of some of several groups.
    #[must_use]
    pub fn of_groups(nodes: &[(NodeId, Vec<GroupId>)]) -> Vec<SwitchPort> {
        let port =
            |groups: &[GroupId]| Port { is_member: !groups.is_empty(), groups: groups.to_vec(), ..Port::default() };
        let ports = nodes.iter().map(|(node, groups)| (*node, port(groups))).collect();
        let network = Arc::new(Self { ports });
        nodes.iter().map(|(node, _)| SwitchPort::new(&network, *node)).collect()
    }

    fn of(nodes: &[(NodeId, bool)]) -> Self {
        Self {
            ports: nodes
                .iter()
                .map(|(node, is_member)| (*node, Port { is_member: *is_member, ..Port::default() }))
                .collect(),
        }
    }
}

/// One port of a switch.
#[derive(Debug)]
pub struct SwitchPort {
    network: Arc<SwitchNetwork>,
    node: NodeId,
    counts: TransportCounts,
}

impl SwitchPort {
    fn new(network: &Arc<SwitchNetwork>, node: NodeId) -> Self {
        Self { network: Arc::clone(network), node, counts: TransportCounts::default() }
    }

    /// Another handle of the same port: one may send while the other waits for packets. A node that starts again takes
    /// one too.
    #[must_use]
    pub fn another(&self) -> Self {
        Self::new(&self.network, self.node)
    }

    /// Loses the packets that wait: those of a former life of the node.
    pub fn clear(&self) {
        if let Some(port) = self.network.ports.get(&self.node) {
            lock(&port.queue).clear();
        }
    }

    fn put(&mut self, node: NodeId, bytes: &Arc<[u8]>) {
        let Some(port) = self.network.ports.get(&node) else {
            self.counts.lost += 1;
            return;
        };
        let mut queue = lock(&port.queue);
        if queue.len() < QUEUE_MAX {
            queue.push_back(Arc::clone(bytes));
            port.arrived.notify_one();
        } else {
            self.counts.lost += 1;
        }
    }
}

impl Transport for SwitchPort {
    fn send(&mut self, packets: &[Outgoing]) -> Result<()> {
        for outgoing in packets {
            let bytes: Arc<[u8]> = outgoing.bytes.as_slice().into();
            self.counts.packets += 1;
            self.counts.sends += 1;
            self.counts.bytes += to_u64(bytes.len());
            match outgoing.target {
                Target::Node(node) => self.put(node, &bytes),
                Target::Group => {
                    let (network, own, group) = (Arc::clone(&self.network), self.node, outgoing.group());
                    let members = network.ports.iter().filter(|(node, port)| port.hears(group) && **node != own);
                    members.for_each(|(node, _)| self.put(*node, &bytes));
                }
            }
        }
        Ok(())
    }

    fn poll(&mut self, wait: Duration, most: usize, receive: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<usize> {
        let Some(port) = self.network.ports.get(&self.node) else { return Ok(0) };
        let mut queue = lock(&port.queue);
        if queue.is_empty() && !wait.is_zero() {
            queue = port.arrived.wait_timeout(queue, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
        let count = queue.len().min(most);
        let found: Vec<Arc<[u8]>> = queue.drain(..count).collect();
        drop(queue);
        for packet in &found {
            self.counts.received += 1;
            receive(packet)?;
        }
        Ok(count)
    }

    fn counts(&self) -> TransportCounts {
        self.counts
    }

    fn name(&self) -> &'static str {
        "switch"
    }
}
