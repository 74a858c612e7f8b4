//! The network of a node, as its command line names it.

use std::net::{SocketAddr, SocketAddrV4};

use anyhow::{Context, Result, bail};
use lodestone_fabric::{GroupId, NodeId, PACKET_HEAD_BYTES, Peers, TcpTransport, Transport, UdpOptions, UdpTransport};
use lodestone_fabric_verbs::{VerbsOptions, VerbsTransport};

/// The group.
pub const GROUP: GroupId = GroupId(1);
/// The salt of its records.
pub const SALT: u64 = 0xFAB_0DE;

/// The transports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Multicast.
    Udp,
    /// A datagram to each member.
    Unicast,
    /// A stream to each node.
    Tcp,
    /// RDMA cards: multicast of unreliable datagrams.
    Verbs,
}

impl Kind {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Unicast => "unicast",
            Self::Tcp => "tcp",
            Self::Verbs => "verbs",
        }
    }
}

/// A node and its address.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub NodeId, pub SocketAddrV4);

fn parse_peer(text: &str) -> Result<Peer> {
    let (node, address) = text.split_once('=').context("a peer is NODE=ADDRESS:PORT")?;
    Ok(Peer(NodeId(node.parse()?), address.parse()?))
}

/// The network of a node.
#[derive(Clone, Debug, clap::Args)]
pub struct Network {
    /// This node
    #[arg(long)]
    pub node: u16,

    /// How packets travel
    #[arg(long, value_enum, default_value = "udp")]
    pub transport: Kind,

    /// All nodes, as NODE=ADDRESS:PORT
    #[arg(long, value_delimiter = ',', value_parser = parse_peer, required = true)]
    pub peers: Vec<Peer>,

    /// The members
    #[arg(long, value_delimiter = ',', required = true)]
    pub members: Vec<u16>,

    /// Address of the group, for multicast
    #[arg(long)]
    pub group: Option<SocketAddrV4>,

    /// The RDMA card, for `--transport verbs`
    #[arg(long, default_value = "rxe0")]
    pub device: String,

    /// Longest datagram
    #[arg(long, default_value_t = 1472)]
    pub datagram: u16,
}

impl Network {
    /// The members.
    pub fn members(&self) -> Vec<NodeId> {
        self.members.iter().copied().map(NodeId).collect()
    }

    /// Longest payload of a packet.
    pub fn payload_bytes_max(&self) -> usize {
        usize::from(self.datagram).saturating_sub(PACKET_HEAD_BYTES).max(64)
    }

    /// Opens the transport.
    pub fn open(&self) -> Result<Box<dyn Transport>> {
        let node = NodeId(self.node);
        let Some(Peer(_, own)) = self.peers.iter().find(|peer| peer.0 == node).copied() else {
            bail!("--peers has no address for node {}", self.node);
        };
        let peers: Peers = self.peers.iter().map(|peer| (peer.0, SocketAddr::V4(peer.1))).collect();
        let members = self.members();
        let group = match self.transport {
            Kind::Tcp => {
                let mut transport = TcpTransport::bind(node, SocketAddr::V4(own))?;
                transport.connect(peers, members);
                return Ok(Box::new(transport));
            }
            Kind::Verbs => return self.open_card(node, own, &peers),
            Kind::Udp => Some(self.group.context("--transport udp needs --group ADDRESS:PORT")?),
            Kind::Unicast => None,
        };
        let is_member = members.contains(&node);
        let mut transport = UdpTransport::bind(node, &UdpOptions { listen: own, group, is_member })?;
        transport.connect(peers, members);
        Ok(Box::new(transport))
    }

    fn open_card(&self, node: NodeId, listen: SocketAddrV4, peers: &Peers) -> Result<Box<dyn Transport>> {
        let members = self.members();
        let group = self.group.map(|group| *group.ip());
        let is_member = members.contains(&node);
        let options = VerbsOptions { device: self.device.clone(), listen, group, is_member, batch: 32 };
        let mut transport = VerbsTransport::bind(node, &options)?;
        transport.connect(peers, members)?;
        if usize::from(self.datagram) > transport.packet_bytes_max() {
            bail!(
                "--datagram {} is more than the card's {}; use that, or a larger MTU of its interface",
                self.datagram,
                transport.packet_bytes_max()
            );
        }
        Ok(Box::new(transport))
    }
}
