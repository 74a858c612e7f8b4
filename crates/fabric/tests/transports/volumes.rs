//! Volumes of several groups over each transport: operations that write to one unit, to the other and to both.

use std::time::Duration;

use lodestone_fabric::{
    FLAG_SYNC, GroupId, MemberDriver, NodeDriver, NodeId, OPERATIONS, PagePair, Payload, Peers, Result, Ring, Sender,
    SenderOptions, Sequence, Submission, SwitchNetwork, TcpTransport, Term, Transport, UdpOptions, UdpTransport, View,
    VolumeDriver, VolumeSender, VolumeState, pages_body,
};
use lodestone_pmem::{Memory, PmAddr};

use super::{PAGE, PAYLOAD, SALT, SENDER, member_of};

/// A volume of two units: its sender, and members of all groups.
struct Volume {
    sender: VolumeDriver<Box<dyn Transport>>,
    members: Vec<(GroupId, MemberDriver<Box<dyn Transport>>)>,
}

const STANDBYS: [NodeId; 2] = [NodeId(21), NodeId(22)];
const UNITS: [(GroupId, [NodeId; 2]); 2] = [(GroupId(1), [NodeId(1), NodeId(2)]), (GroupId(2), [NodeId(3), NodeId(4)])];

fn groups() -> Vec<(GroupId, Vec<NodeId>)> {
    let units = UNITS.iter().map(|(group, nodes)| (*group, nodes.to_vec()));
    std::iter::once((OPERATIONS, STANDBYS.to_vec())).chain(units).collect()
}

/// Idle senders of all groups.
fn volume_sender() -> Result<VolumeSender> {
    let mut senders = Vec::new();
    for (group, _) in groups() {
        let memory = Memory::anonymous(1 << 20)?;
        let ring = Ring::create(&memory, PmAddr::new(0, 4096), (1 << 20) - 4096, SALT)?;
        let options =
            SenderOptions { node: SENDER, group, salt: SALT, payload_bytes_max: PAYLOAD, ..Default::default() };
        senders.push(Sender::new(options, ring));
    }
    let first = senders.remove(0);
    VolumeSender::new(first, senders)
}

impl Volume {
    fn new(own: Box<dyn Transport>, others: Vec<(NodeId, Box<dyn Transport>)>) -> Result<Self> {
        let of = |node: NodeId| groups().into_iter().find(|group| group.1.contains(&node)).map(|group| group.0);
        let mut members = Vec::new();
        for (node, transport) in others {
            let group = of(node).expect("a node of a group");
            members.push((group, MemberDriver::new(member_of(node, group)?, transport)));
        }
        let mut volume = Self { sender: VolumeDriver::new(volume_sender()?, own), members };
        let views = groups().into_iter().map(|(group, nodes)| (group, View::of(&nodes))).collect();
        let state = VolumeState { term: Term(1), sender: SENDER, change: 0, groups: views };
        volume.sender.with(|sender, now, out| sender.take_over(now, &state, out))?;
        volume.until(Sequence(1))?;
        Ok(volume)
    }

    fn until(&mut self, operation: Sequence) -> Result<()> {
        for _ in 0..200_000 {
            for (_, member) in &mut self.members {
                member.step(Duration::ZERO)?;
            }
            self.sender.step(Duration::from_micros(20))?;
            if self.sender.acknowledged() >= operation {
                return Ok(());
            }
        }
        panic!("{operation} is not acknowledged");
    }
}

/// Operations that write to one unit, to the other and to both: acknowledged when the bytes are there. Members get the
/// packets of their own group alone.
fn carries_volumes(make: impl Fn() -> Result<(Box<dyn Transport>, Vec<(NodeId, Box<dyn Transport>)>)>) -> Result<()> {
    let (own, others) = make()?;
    let mut volume = Volume::new(own, others)?;
    for number in 0..60_u64 {
        let page = vec![u8::try_from(number).unwrap_or(0); usize::try_from(PAGE).unwrap_or(0)];
        let pair = PagePair { new: 1 + number, old: 0 };
        let submission = Submission { count: 1, ..Submission::default() };
        let units = UNITS.iter().filter(|(unit, _)| number % 3 == 2 || number % 3 + 1 == u64::from(unit.0));
        let payloads: Vec<Payload> =
            units.map(|(unit, _)| Payload { unit: *unit, submission, body: pages_body(&[(pair, &page)]) }).collect();
        let sync = Submission { flags: FLAG_SYNC, ..Submission::default() };
        let written: Vec<GroupId> = payloads.iter().map(|payload| payload.unit).collect();
        let operation = volume.sender.submit(&sync, &number.to_le_bytes(), payloads)?;
        if number % 5 == 4 {
            volume.until(operation)?;
        }
        for (unit, _) in UNITS.iter().filter(|_| number % 5 == 4) {
            let has = |group: &GroupId, member: &MemberDriver<_>| {
                group == unit && member.receiver().pages().read(1 + number).is_ok_and(|found| found == page)
            };
            let copies = volume.members.iter().filter(|(group, member)| has(group, member)).count();
            assert_eq!(copies, if written.contains(unit) { 2 } else { 0 }, "copies of {number} in {unit}");
        }
    }
    Ok(())
}

fn all_nodes() -> Vec<NodeId> {
    groups().into_iter().flat_map(|group| group.1).collect()
}

#[test]
fn a_switch_carries_volumes() -> Result<()> {
    carries_volumes(|| {
        let mut nodes: Vec<(NodeId, Vec<GroupId>)> = Vec::new();
        for (group, members) in groups() {
            nodes.extend(members.into_iter().map(|node| (node, vec![group])));
        }
        nodes.push((SENDER, Vec::new()));
        let mut ports = SwitchNetwork::of_groups(&nodes);
        let own = ports.pop().expect("a port for each node");
        let others = all_nodes().into_iter().zip(ports);
        Ok((Box::new(own), others.map(|(node, port)| -> (_, Box<dyn Transport>) { (node, Box::new(port)) }).collect()))
    })
}

#[test]
fn streams_carry_volumes() -> Result<()> {
    carries_volumes(|| {
        let bind = |node: NodeId| TcpTransport::bind(node, ([127, 0, 0, 1], 0).into());
        let mut own = bind(SENDER)?;
        let mut others = all_nodes().into_iter().map(|node| Ok((node, bind(node)?))).collect::<Result<Vec<_>>>()?;
        let mut peers = Peers::from([(SENDER, own.address()?)]);
        for (node, transport) in &others {
            peers.insert(*node, transport.address()?);
        }
        others.iter_mut().for_each(|(_, other)| other.connect(peers.clone(), Vec::new()));
        own.connect(peers, Vec::new());
        groups().into_iter().for_each(|(group, members)| own.connect_group(group, members));
        let others = others.into_iter().map(|(node, other)| -> (_, Box<dyn Transport>) { (node, Box::new(other)) });
        Ok((Box::new(own), others.collect()))
    })
}

/// By datagrams: a group of its own for unit 1, a datagram to each member for the others.
#[test]
fn datagrams_carry_volumes() -> Result<()> {
    let address = std::net::SocketAddrV4::new(std::net::Ipv4Addr::new(239, 77, 70, 9), 47_109);
    carries_volumes(|| {
        let bind = |node: NodeId| UdpTransport::bind(node, &UdpOptions::loopback(None, false));
        let mut own = bind(SENDER)?;
        let mut others = all_nodes().into_iter().map(|node| Ok((node, bind(node)?))).collect::<Result<Vec<_>>>()?;
        let mut peers = Peers::from([(SENDER, own.address()?)]);
        for (node, transport) in &others {
            peers.insert(*node, transport.address()?);
        }
        let mut has_multicast = true;
        for (node, other) in &mut others {
            other.connect(peers.clone(), Vec::new());
            if UNITS[0].1.contains(node) {
                // Not every machine lets a process join a group on its loopback interface.
                has_multicast &= other.connect_group(UNITS[0].0, Some(address), UNITS[0].1.to_vec()).is_ok();
            }
        }
        own.connect(peers, Vec::new());
        for (group, members) in groups() {
            own.connect_group(group, (has_multicast && group == UNITS[0].0).then_some(address), members)?;
        }
        let others = others.into_iter().map(|(node, other)| -> (_, Box<dyn Transport>) { (node, Box::new(other)) });
        Ok((Box::new(own), others.collect()))
    })
}

/// Two nodes, each with a member of every group.
#[test]
fn a_node_has_members_of_several_groups() -> Result<()> {
    let nodes = [NodeId(1), NodeId(2)];
    let all = vec![OPERATIONS, GroupId(1), GroupId(2)];
    let mut ports = SwitchNetwork::of_groups(&[(nodes[0], all.clone()), (nodes[1], all.clone()), (SENDER, vec![])]);
    let own: Box<dyn Transport> = Box::new(ports.pop().expect("a port for each node"));
    let mut hosts = Vec::new();
    for (node, port) in nodes.into_iter().zip(ports) {
        let receivers = all.iter().map(|group| member_of(node, *group)).collect::<Result<Vec<_>>>()?;
        hosts.push(NodeDriver::new(receivers, port));
    }
    let mut volume = Volume { sender: VolumeDriver::new(volume_sender()?, own), members: Vec::new() };
    let views = all.iter().map(|group| (*group, View::of(&nodes))).collect();
    let state = VolumeState { term: Term(1), sender: SENDER, change: 0, groups: views };
    volume.sender.with(|sender, now, out| sender.take_over(now, &state, out))?;
    let mut until = |volume: &mut Volume, operation| -> Result<()> {
        for _ in 0..200_000 {
            hosts.iter_mut().try_for_each(|host| host.step(Duration::ZERO).map(drop))?;
            volume.sender.step(Duration::from_micros(20))?;
            let has_all = |host: &NodeDriver<_>| host.receiver(OPERATIONS).is_some_and(|all| all.tail() >= operation);
            if volume.sender.acknowledged() >= operation && hosts.iter().all(has_all) {
                return Ok(());
            }
        }
        panic!("{operation} is not acknowledged");
    };
    until(&mut volume, Sequence(1))?;
    let submission = Submission { count: 1, ..Submission::default() };
    let page = vec![7; usize::try_from(PAGE).unwrap_or(0)];
    let body = pages_body(&[(PagePair { new: 3, old: 0 }, &page)]);
    let payloads = [GroupId(1), GroupId(2)].map(|unit| Payload { unit, submission, body: body.clone() });
    let operation = volume.sender.submit(&Submission::default(), b"both", payloads.to_vec())?;
    until(&mut volume, operation)?;
    for host in &hosts {
        for unit in [GroupId(1), GroupId(2)] {
            let found = host.receiver(unit).map(|receiver| receiver.pages().read(3)).transpose()?;
            assert_eq!(found.as_deref(), Some(page.as_slice()));
        }
    }
    Ok(())
}
