//! The ways between nodes: a switch inside one process, or sockets.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lodestone_fabric::{
    GroupId, NodeId, OPERATIONS, Outgoing, Peers, SwitchNetwork, SwitchPort, Transport, TransportCounts, UdpOptions,
    UdpTransport,
};
use lodestone_pmem::sync::{Mutex, lock};

use super::link::UNIT;
use super::machine::seals::Seals;
use super::node::Port;
use super::plan::{Plan, group_of, sender_of};
use crate::error::{Error, Result};

/// How packets travel between processes. None of them is sealed: `--plain-network` says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// One datagram to a multicast address for all replicas.
    Udp,
    /// A datagram to each replica.
    #[default]
    Unicast,
}

impl Carrier {
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Udp => 1,
            Self::Unicast => 2,
        }
    }

    pub(super) const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Udp),
            2 => Some(Self::Unicast),
            _ => None,
        }
    }
}

/// The addresses of all nodes, and the way between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Map {
    pub(crate) carrier: Carrier,
    pub(crate) addresses: BTreeMap<NodeId, SocketAddrV4>,
}

impl Map {
    fn members(&self, group: GroupId) -> Vec<NodeId> {
        let is_member = |node: &NodeId| node.0 < sender_of(NodeId(0)).0 && group_of(*node) == group;
        self.addresses.keys().copied().filter(is_member).collect()
    }

    fn peers(&self) -> Peers {
        self.addresses.iter().map(|(node, address)| (*node, SocketAddr::V4(*address))).collect()
    }

    fn address(&self, node: NodeId) -> Result<SocketAddrV4> {
        let missing = || Error::Options(format!("no address of {node} is known"));
        self.addresses.get(&node).copied().ok_or_else(missing)
    }

    /// The multicast address of a group: by the port of a member, so that volumes on one network differ.
    fn multicast(&self, group: GroupId) -> Option<SocketAddrV4> {
        let port = self.addresses.get(self.members(group).first()?)?.port();
        let [high, low] = port.to_be_bytes();
        let last = if group == OPERATIONS { 1 } else { 2 };
        (self.carrier == Carrier::Udp).then(|| SocketAddrV4::new(Ipv4Addr::new(239, high, low, last), port | 1))
    }

    /// The transport of `node`, at its address or, to send only, at any.
    pub(crate) fn port(&self, node: NodeId, sends_only: bool) -> Result<Port> {
        Ok(Box::new(self.transport(node, sends_only)?))
    }

    fn transport(&self, node: NodeId, sends_only: bool) -> Result<UdpTransport> {
        let own = self.address(node)?;
        let listen = if sends_only { SocketAddrV4::new(*own.ip(), 0) } else { own };
        let options = UdpOptions { listen, group: None, is_member: false };
        let mut transport = UdpTransport::bind(node, &options)?;
        self.connect(&mut transport)?;
        Ok(transport)
    }

    /// Tells a transport where all nodes are.
    fn connect(&self, transport: &mut UdpTransport) -> lodestone_fabric::Result<()> {
        transport.connect(self.peers(), Vec::new());
        [OPERATIONS, UNIT]
            .into_iter()
            .try_for_each(|group| transport.connect_group(group, self.multicast(group), self.members(group)))
    }
}

/// The addresses of all nodes on machines, which may change while nodes run.
#[derive(Debug)]
pub(crate) struct Directory {
    map: Mutex<Map>,
    /// Rises with each change.
    version: AtomicU64,
}

impl Directory {
    pub(crate) fn new(map: Map) -> Arc<Self> {
        Arc::new(Self { map: Mutex::new(map), version: AtomicU64::new(0) })
    }

    /// Other addresses from now on. Transports take them at their next step.
    pub(crate) fn replace(&self, map: Map) {
        *lock(&self.map) = map;
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    fn port(self: &Arc<Self>, node: NodeId, sends_only: bool) -> Result<Port> {
        let version = self.version.load(Ordering::Acquire);
        let inner = lock(&self.map).transport(node, sends_only)?;
        Ok(Box::new(Following { inner, directory: Arc::clone(self), version }))
    }
}

/// A transport that follows a directory.
struct Following {
    inner: UdpTransport,
    directory: Arc<Directory>,
    version: u64,
}

impl Following {
    fn take(&mut self) -> lodestone_fabric::Result<()> {
        let version = self.directory.version.load(Ordering::Acquire);
        if version == self.version {
            return Ok(());
        }
        self.version = version;
        lock(&self.directory.map).connect(&mut self.inner)
    }
}

impl Transport for Following {
    fn send(&mut self, packets: &[Outgoing]) -> lodestone_fabric::Result<()> {
        self.take()?;
        self.inner.send(packets)
    }

    fn poll(
        &mut self,
        wait: Duration,
        most: usize,
        receive: &mut dyn FnMut(&[u8]) -> lodestone_fabric::Result<()>,
    ) -> lodestone_fabric::Result<usize> {
        self.take()?;
        self.inner.poll(wait, most, receive)
    }

    fn counts(&self) -> TransportCounts {
        self.inner.counts()
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }
}

fn sealed(seals: Option<&Arc<Seals>>, port: Port, node: NodeId) -> Result<Port> {
    match seals {
        Some(seals) => seals.seal(port, node),
        None => Ok(port),
    }
}

/// The ways of a process.
pub(crate) enum Network {
    /// All nodes are in this process.
    Switch(BTreeMap<NodeId, SwitchPort>),
    /// Some are in others.
    Sockets(Mutex<Map>),
    /// Each machine has a process; packets are sealed, unless the network is plain.
    Machines(Arc<Directory>, Option<Arc<Seals>>),
}

impl Network {
    /// A switch with a port for each node, and for each that may send.
    pub(crate) fn switch(plan: Plan) -> Self {
        let metas = plan.metas();
        let mut nodes: Vec<(NodeId, Vec<GroupId>)> = metas.iter().map(|node| (*node, vec![OPERATIONS])).collect();
        nodes.extend(plan.datas().into_iter().map(|node| (node, vec![UNIT])));
        nodes.extend(metas.iter().map(|node| (sender_of(*node), Vec::new())));
        Self::Switch(nodes.iter().map(|(node, _)| *node).zip(SwitchNetwork::of_groups(&nodes)).collect())
    }

    fn on_switch(ports: &BTreeMap<NodeId, SwitchPort>, node: NodeId) -> Result<&SwitchPort> {
        let missing = || Error::Options(format!("the volume has no {node}; `lodestone fs status` lists its nodes"));
        ports.get(&node).ok_or_else(missing)
    }

    /// The transport of a node that starts.
    pub(crate) fn port(&self, node: NodeId) -> Result<Port> {
        match self {
            Self::Switch(ports) => {
                let port = Self::on_switch(ports, node)?;
                port.clear();
                Ok(Box::new(port.another()))
            }
            Self::Sockets(map) => lock(map).port(node, false),
            Self::Machines(directory, seals) => sealed(seals.as_ref(), directory.port(node, false)?, node),
        }
    }

    /// The transports of a node that sends: to receive, and to send.
    pub(crate) fn sender(&self, meta: NodeId) -> Result<(Port, Port)> {
        let node = sender_of(meta);
        match self {
            Self::Switch(ports) => {
                let port = Self::on_switch(ports, node)?;
                port.clear();
                Ok((Box::new(port.another()), Box::new(port.another())))
            }
            Self::Sockets(map) => {
                let map = lock(map);
                Ok((map.port(node, false)?, map.port(node, true)?))
            }
            Self::Machines(directory, seals) => {
                let seal = |port| sealed(seals.as_ref(), port, node);
                Ok((seal(directory.port(node, false)?)?, seal(directory.port(node, true)?)?))
            }
        }
    }
}
