//! One set of tests for all transports: records arrive, in order, at every member, also when packets are lost on the
//! way; and the sends are counted exactly.

mod budgets;
mod verbs;
mod volumes;

use std::time::Duration;

use lodestone_fabric::{
    ApplyLog, Error, FLAG_SYNC, GroupId, HalvesTransport, KeyRing, Kind, MemberDriver, NodeId, Outgoing,
    PACKET_HEAD_BYTES, PacketHead, PageArea, PagePair, Peers, Receiver, ReceiverOptions, Result, Ring, SealedTransport,
    Secret, Sender, SenderDriver, SenderOptions, Sequence, Submission, SwitchNetwork, Target, TcpTransport, Term,
    Transport, TransportCounts, UdpOptions, UdpTransport, View, ViewNumber, pages_body,
};
use lodestone_pmem::{Memory, PmAddr};

const GROUP: GroupId = GroupId(1);
const SALT: u64 = 7;
const PAGE: u32 = 4096;
const PAYLOAD: usize = 1472 - PACKET_HEAD_BYTES;
const SENDER: NodeId = NodeId(100);

type Transports = (Box<dyn Transport>, Vec<Box<dyn Transport>>);

/// Loses every so many packets of another transport.
struct Losing(Box<dyn Transport>, u64, u64);

impl Transport for Losing {
    fn send(&mut self, packets: &[Outgoing]) -> Result<()> {
        let mut kept = Vec::new();
        for packet in packets {
            self.2 += 1;
            if self.1 == 0 || !self.2.is_multiple_of(self.1) {
                kept.push(packet.clone());
            }
        }
        self.0.send(&kept)
    }

    fn poll(&mut self, wait: Duration, most: usize, receive: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<usize> {
        self.0.poll(wait, most, receive)
    }

    fn counts(&self) -> TransportCounts {
        self.0.counts()
    }

    fn name(&self) -> &'static str {
        self.0.name()
    }
}

fn member(node: NodeId) -> Result<Receiver> {
    member_of(node, GROUP)
}

fn member_of(node: NodeId, group: GroupId) -> Result<Receiver> {
    let (log_bytes, pages) = (1 << 20, 256);
    let bytes = log_bytes + PageArea::bytes_for(PAGE, pages);
    let memory = Memory::anonymous(4096 + bytes)?;
    let at = PmAddr::new(0, 4096);
    let log = ApplyLog::create(&memory, at, log_bytes, SALT)?;
    let area = PageArea::open(&memory, at.plus(log_bytes), bytes - log_bytes, PAGE, pages)?;
    let options = ReceiverOptions { node, group, salt: SALT, payload_bytes_max: PAYLOAD, ..Default::default() };
    Ok(Receiver::new(options, log, area))
}

fn sender() -> Result<Sender> {
    let memory = Memory::anonymous(1 << 20)?;
    let ring = Ring::create(&memory, PmAddr::new(0, 4096), (1 << 20) - 4096, SALT)?;
    let options =
        SenderOptions { node: SENDER, group: GROUP, salt: SALT, payload_bytes_max: PAYLOAD, ..Default::default() };
    Ok(Sender::new(options, ring))
}

/// A sender and members, driven in turn by one thread.
struct Cluster {
    sender: SenderDriver<Losing>,
    members: Vec<MemberDriver<Losing>>,
}

impl Cluster {
    /// `lose`: each transport loses one packet of so many; 0: none.
    fn new(transports: Transports, lose: u64) -> Result<Self> {
        let nodes: Vec<NodeId> = (1..).map(NodeId).take(transports.1.len()).collect();
        let members = nodes
            .iter()
            .zip(transports.1)
            .map(|(node, transport)| Ok(MemberDriver::new(member(*node)?, Losing(transport, lose, u64::from(node.0)))));
        let members = members.collect::<Result<_>>()?;
        let mut cluster = Self { sender: SenderDriver::new(sender()?, Losing(transports.0, lose, 0)), members };
        cluster.sender.with(|sender, now, out| {
            sender.take_over(now, Term(1), View::of(&nodes), out);
            Ok(())
        })?;
        cluster.until(Sequence(1))?;
        Ok(cluster)
    }

    /// Drives all until everything up to `sequence` is acknowledged, and at all members.
    fn until(&mut self, sequence: Sequence) -> Result<()> {
        for _ in 0..200_000 {
            for member in &mut self.members {
                member.step(Duration::ZERO)?;
            }
            self.sender.step(Duration::from_micros(20))?;
            let all = self.members.iter().all(|member| member.receiver().tail() >= sequence);
            if all && self.sender.acknowledged() >= sequence {
                return Ok(());
            }
        }
        let tails: Vec<Sequence> = self.members.iter().map(|member| member.receiver().tail()).collect();
        panic!("{sequence} did not reach all members: {tails:?}");
    }

    fn write(&mut self, number: u64) -> Result<Sequence> {
        let page = vec![u8::try_from(number % 251).unwrap_or(0); usize::try_from(PAGE).unwrap_or(0)];
        let pair = PagePair { new: 1 + number % 200, old: 0 };
        let submission = Submission { flags: FLAG_SYNC, count: 1, ..Submission::default() };
        self.sender.submit(&submission, pages_body(&[(pair, &page)]))
    }

    fn judge(&self, number: u64) -> Result<()> {
        for member in &self.members {
            let page = member.receiver().pages().read(1 + number % 200)?;
            assert!(page.iter().all(|byte| u64::from(*byte) == number % 251), "page of write {number}");
        }
        Ok(())
    }
}

fn switch(members: u16) -> Transports {
    let nodes: Vec<(NodeId, bool)> = (1..=members).map(|node| (NodeId(node), true)).chain([(SENDER, false)]).collect();
    let mut ports = SwitchNetwork::list(&nodes);
    let sender = ports.pop().expect("a port for each node");
    (Box::new(sender), ports.into_iter().map(|port| -> Box<dyn Transport> { Box::new(port) }).collect())
}

fn udp(members: u16, port: Option<u16>) -> Result<Transports> {
    let nodes: Vec<NodeId> = (1..=members).map(NodeId).collect();
    let mut own = UdpTransport::bind(SENDER, &UdpOptions::loopback(port, false))?;
    let bind = |node: &NodeId| UdpTransport::bind(*node, &UdpOptions::loopback(port, true));
    let mut others = nodes.iter().map(bind).collect::<Result<Vec<_>>>()?;
    let mut peers = Peers::from([(SENDER, own.address()?)]);
    for (node, transport) in nodes.iter().zip(&others) {
        peers.insert(*node, transport.address()?);
    }
    own.connect(peers.clone(), nodes.clone());
    others.iter_mut().for_each(|other| other.connect(peers.clone(), nodes.clone()));
    Ok((Box::new(own), others.into_iter().map(|other| -> Box<dyn Transport> { Box::new(other) }).collect()))
}

fn tcp(members: u16) -> Result<Transports> {
    let nodes: Vec<NodeId> = (1..=members).map(NodeId).collect();
    let bind = |node: NodeId| TcpTransport::bind(node, ([127, 0, 0, 1], 0).into());
    let mut own = bind(SENDER)?;
    let mut others = nodes.iter().map(|node| bind(*node)).collect::<Result<Vec<_>>>()?;
    let mut peers = Peers::from([(SENDER, own.address()?)]);
    for (node, transport) in nodes.iter().zip(&others) {
        peers.insert(*node, transport.address()?);
    }
    own.connect(peers.clone(), nodes.clone());
    others.iter_mut().for_each(|other| other.connect(peers.clone(), nodes.clone()));
    Ok((Box::new(own), others.into_iter().map(|other| -> Box<dyn Transport> { Box::new(other) }).collect()))
}

/// Writes arrive, with and without loss.
fn conforms(make: impl Fn() -> Result<Transports>) -> Result<()> {
    for lose in [0, 7] {
        let mut cluster = Cluster::new(make()?, lose)?;
        for number in 0..100 {
            let sequence = cluster.write(number)?;
            if number % 10 == 9 {
                cluster.until(sequence)?;
            }
        }
        for number in 0..100 {
            cluster.judge(number)?;
        }
        assert_eq!(lose > 0, cluster.sender.sender().counts().resent > 0, "what was lost is sent again");
    }
    Ok(())
}

/// Packets, sends and fences of single writes. `group`: sends of one packet to the group.
fn counts(make: impl Fn() -> Result<Transports>, group: u64) -> Result<()> {
    let mut cluster = Cluster::new(make()?, 0)?;
    let fragments = u64::from(PAGE + 64 + 16).div_ceil(u64::try_from(PAYLOAD).unwrap_or(1));
    for number in 0..20 {
        let before = (cluster.sender.transport().counts(), cluster.sender.sender().counts());
        let of_members = |cluster: &Cluster| cluster.members.iter().map(|m| m.receiver().counts()).collect::<Vec<_>>();
        let members = of_members(&cluster);
        let sequence = cluster.write(number)?;
        let after = cluster.sender.sender().counts();
        assert_eq!(after.fragments - before.1.fragments, fragments, "one packet for each fragment");
        assert_eq!(cluster.sender.transport().counts().sends - before.0.sends, fragments * group);
        cluster.until(sequence)?;
        for (before, after) in members.iter().zip(of_members(&cluster)) {
            assert_eq!(after.exposed - before.exposed, 1);
            assert_eq!(after.batch_fences - before.batch_fences, 1, "one fence for the batch");
            // A beat may ask for a further report where the machine is slow.
            assert!(after.reports > before.reports, "a report at once");
            assert_eq!(after.mark_fences, 0, "no page was used again");
        }
    }
    Ok(())
}

#[test]
fn switch_conforms() -> Result<()> {
    conforms(|| Ok(switch(3)))?;
    counts(|| Ok(switch(3)), 1)
}

#[test]
fn unicast_conforms() -> Result<()> {
    conforms(|| udp(3, None))?;
    counts(|| udp(3, None), 3)
}

#[test]
fn tcp_conforms() -> Result<()> {
    conforms(|| tcp(3))?;
    counts(|| tcp(3), 3)
}

/// A connection that brings no packets is closed, and others go on.
#[test]
fn a_stream_of_another_protocol_is_closed() -> Result<()> {
    use std::io::{Read, Write};
    let mut own = TcpTransport::bind(SENDER, ([127, 0, 0, 1], 0).into())?;
    let length = u32::MAX.to_le_bytes();
    for hello in [b"GET / HTTP/1.1\r\n\r\n".as_slice(), &[b"LFT1".as_slice(), &length].concat()] {
        let mut stream = std::net::TcpStream::connect(own.address()?).expect("a connection");
        stream.write_all(hello).expect("bytes are sent");
        stream.set_nonblocking(true).expect("a socket");
        // Until the end of the stream, or the error that tells of unread bytes.
        loop {
            assert_eq!(own.poll(Duration::from_millis(10), 8, &mut |_| Ok(()))?, 0);
            match stream.read(&mut [0; 8]) {
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                ended => break assert!(!matches!(ended, Ok(1..)), "{ended:?}"),
            }
        }
    }
    Ok(())
}

#[test]
fn multicast_conforms() -> Result<()> {
    // Not every machine lets a process join a group on its loopback interface.
    if let Err(Error::Network { doing, source, .. }) = udp(2, Some(47_101)) {
        println!("no multicast here: {doing}: {source}");
        return Ok(());
    }
    conforms(|| udp(3, Some(47_102)))?;
    counts(|| udp(3, Some(47_103)), 1)
}

#[test]
fn a_packet_to_a_node_that_is_not_there_is_lost() -> Result<()> {
    let (mut own, _) = udp(1, None)?;
    own.send(&[Outgoing { target: Target::Node(NodeId(77)), bytes: vec![0; 64] }])?;
    assert_eq!(own.counts().lost, 1);
    Ok(())
}

fn sealed(transports: Transports, secret: [u8; 32]) -> Transports {
    let seal = |transport, node| -> Box<dyn Transport> {
        let mut keys = KeyRing::default();
        keys.hand(GROUP, ViewNumber(0), Secret::of(secret));
        Box::new(SealedTransport::new(transport, node, 1, keys))
    };
    let others = (1..).map(NodeId).zip(transports.1).map(|(node, transport)| seal(transport, node)).collect();
    (seal(transports.0, SENDER), others)
}

#[test]
fn sealed_transports_conform() -> Result<()> {
    conforms(|| Ok(sealed(switch(3), [5; 32])))?;
    counts(|| Ok(sealed(switch(3), [5; 32])), 1)
}

/// Flips a bit of every so many packets that another transport brings.
struct Damaging(Box<dyn Transport>, u64);

impl Transport for Damaging {
    fn send(&mut self, packets: &[Outgoing]) -> Result<()> {
        self.0.send(packets)
    }

    fn poll(&mut self, wait: Duration, most: usize, receive: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<usize> {
        let count = &mut self.1;
        self.0.poll(wait, most, &mut |bytes| {
            *count += 1;
            let mut bytes = bytes.to_vec();
            if count.is_multiple_of(5) {
                let at = 100 + usize::try_from(*count * 7919).unwrap_or(0) % bytes.len().max(101);
                bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 4);
            }
            receive(&bytes)
        })
    }

    fn counts(&self) -> TransportCounts {
        self.0.counts()
    }

    fn name(&self) -> &'static str {
        self.0.name()
    }
}

/// Damage in one half is repaired where it arrives: nothing is sent again because of it.
#[test]
fn halves_conform_and_repair() -> Result<()> {
    let halves = |transports: Transports| -> Transports {
        let dress = |transport: Box<dyn Transport>| -> Box<dyn Transport> { Box::new(HalvesTransport::new(transport)) };
        (dress(transports.0), transports.1.into_iter().map(dress).collect())
    };
    conforms(|| Ok(halves(switch(3))))?;
    let (own, others) = switch(1);
    let others = others.into_iter().map(|other| -> Box<dyn Transport> { Box::new(Damaging(other, 0)) }).collect();
    let mut cluster = Cluster::new(halves((own, others)), 0)?;
    for number in 0..100 {
        let sequence = cluster.write(number)?;
        cluster.until(sequence)?;
    }
    for number in 0..100 {
        cluster.judge(number)?;
    }
    Ok(())
}

/// Packets that are plain, of another secret, changed in any byte, repeated, or of a view whose secret the node does
/// not have: none is handed on, and each is counted.
#[test]
fn packets_from_outside_are_dropped_and_counted() -> Result<()> {
    let [mut wire, port] = SwitchNetwork::ports([(SENDER, true), (NodeId(1), true)]);
    let [mut inside, tap] = SwitchNetwork::ports([(SENDER, true), (NodeId(1), true)]);
    let keys = |secret: [u8; 32]| {
        let mut keys = KeyRing::default();
        keys.hand(GROUP, ViewNumber(1), Secret::of(secret));
        keys
    };
    let mut member = SealedTransport::new(port, NodeId(1), 1, keys([5; 32]));
    // Sealed packets as they are on the wire.
    let mut tap = tap;
    let mut capture = |transport: &mut dyn Transport, view: u32| -> Result<Vec<u8>> {
        let head = PacketHead { view: ViewNumber(view), ..PacketHead::new(Kind::Beat, GROUP, SENDER) };
        transport.send(&[Outgoing { target: Target::Node(NodeId(1)), bytes: head.packet([b"payload", &[]]) }])?;
        let mut found = Vec::new();
        tap.poll(Duration::ZERO, 8, &mut |bytes| {
            found = bytes.to_vec();
            Ok(())
        })?;
        Ok(found)
    };
    let plain = capture(&mut inside, 1)?;
    let mut of_others = SealedTransport::new(inside, SENDER, 1, keys([6; 32]));
    let forged = capture(&mut of_others, 1)?;
    let mut honest = SealedTransport::new(of_others.into_inner(), SENDER, 2, keys([5; 32]));
    let right = capture(&mut honest, 1)?;
    assert!(!right.windows(7).any(|bytes| bytes == b"payload"), "it is encrypted");
    honest.keys().hand(GROUP, ViewNumber(2), Secret::of([9; 32]));
    let later = capture(&mut honest, 2)?;
    let mut bring = |bytes: &[u8]| -> Result<usize> {
        wire.send(&[Outgoing { target: Target::Node(NodeId(1)), bytes: bytes.to_vec() }])?;
        let mut handed = 0;
        member.poll(Duration::ZERO, 8, &mut |_| {
            handed += 1;
            Ok(())
        })?;
        Ok(handed)
    };
    assert_eq!(bring(&plain)? + bring(&forged)? + bring(&later)?, 0);
    for at in 0..right.len() {
        let mut changed = right.clone();
        changed[at] ^= 1;
        assert_eq!(bring(&changed)?, 0, "byte {at} was changed");
    }
    assert_eq!((bring(&right)?, bring(&right)?), (1, 0), "it counts once");
    let counts = member.seal_counts();
    assert_eq!((counts.opened, counts.repeated), (1, 1), "{counts:?}");
    assert!(counts.plain >= 1 && counts.refused >= 70 && counts.without_key >= 1, "{counts:?}");
    Ok(())
}
