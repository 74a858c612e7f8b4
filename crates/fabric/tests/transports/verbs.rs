//! The same tests over a card: one queue for each node, on one device.
//!
//! They need one: `LODESTONE_RDMA_DEVICE` names it, and `LODESTONE_RDMA_ADDRESS` an address of its interface. Without
//! them they say that they skip. `cargo xtask vm rdma` runs them in a guest, where the kernel makes a card of any
//! network interface (`rdma_rxe`).

use std::env;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use lodestone_fabric::{NodeId, PageArea, Peers, Result, Target, Transport};
use lodestone_fabric_verbs::{VerbsOptions, VerbsTransport};
use lodestone_pmem::{Memory, PmAddr};

use super::{Outgoing, PAGE, SENDER, Transports, conforms, counts};

fn is_skipped(test: &str) -> bool {
    let device = env::var_os("LODESTONE_RDMA_DEVICE");
    if device.is_none() {
        println!("{test} skips: LODESTONE_RDMA_DEVICE names no card");
    }
    device.is_none()
}

fn options(group: Option<u8>, is_member: bool) -> VerbsOptions {
    let address = env::var("LODESTONE_RDMA_ADDRESS").expect("LODESTONE_RDMA_ADDRESS is an address of the card");
    VerbsOptions {
        device: env::var("LODESTONE_RDMA_DEVICE").expect("a card"),
        listen: SocketAddrV4::new(address.parse().expect("an address of IPv4"), 0),
        group: group.map(|last| Ipv4Addr::new(239, 77, 70, last)),
        is_member,
        batch: 8,
    }
}

/// Nodes on one card; `group`: the last byte of the group's address.
fn nodes(members: u16, group: Option<u8>) -> Result<(VerbsTransport, Vec<VerbsTransport>)> {
    let ids: Vec<NodeId> = (1..=members).map(NodeId).collect();
    let mut own = VerbsTransport::bind(SENDER, &options(group, false))?;
    let bind = |node: &NodeId| VerbsTransport::bind(*node, &options(group, true));
    let mut others = ids.iter().map(bind).collect::<Result<Vec<_>>>()?;
    let mut peers = Peers::from([(SENDER, SocketAddr::V4(own.address()))]);
    peers.extend(ids.iter().zip(&others).map(|(node, other)| (*node, SocketAddr::V4(other.address()))));
    own.connect(&peers, ids.clone())?;
    others.iter_mut().try_for_each(|other| other.connect(&peers, ids.clone()))?;
    Ok((own, others))
}

fn verbs(members: u16, group: Option<u8>) -> Result<Transports> {
    let (own, others) = nodes(members, group)?;
    println!("the transport is {}, {} bytes a packet", own.name(), own.packet_bytes_max());
    Ok((Box::new(own), others.into_iter().map(|other| -> Box<dyn Transport> { Box::new(other) }).collect()))
}

#[test]
fn cards_conform_by_multicast() -> Result<()> {
    if is_skipped("cards_conform_by_multicast") {
        return Ok(());
    }
    conforms(|| verbs(3, Some(11)))?;
    counts(|| verbs(3, Some(12)), 1)
}

#[test]
fn cards_conform_by_unicast() -> Result<()> {
    if is_skipped("cards_conform_by_unicast") {
        return Ok(());
    }
    conforms(|| verbs(2, None))?;
    counts(|| verbs(2, None), 2)
}

/// Far more packets than there are buffers: one completion in a batch frees them, and the rest is lost and counted.
#[test]
fn buffers_are_freed_in_batches() -> Result<()> {
    if is_skipped("buffers_are_freed_in_batches") {
        return Ok(());
    }
    let (mut own, mut others) = nodes(1, Some(13))?;
    let packet = Outgoing { target: Target::Group, bytes: vec![7; 1000] };
    let (mut received, mut sent) = (0, 0);
    for _ in 0..2000 {
        own.send(std::slice::from_ref(&packet))?;
        sent += 1;
        received += others[0].poll(Duration::ZERO, 64, &mut |bytes| {
            assert_eq!(bytes, packet.bytes);
            Ok(())
        })?;
    }
    for _ in 0..200 {
        received += others[0].poll(Duration::from_millis(1), 64, &mut |_| Ok(()))?;
    }
    let lost = usize::try_from(own.counts().lost).unwrap_or(0);
    println!("{sent} sent, {received} received, {lost} lost for lack of a buffer");
    assert!(received > 1000 && received + lost <= sent, "{received} of {sent}, {lost} lost here");
    Ok(())
}

/// A page is read from a member's memory by the card alone.
#[test]
fn pages_are_read_by_one_side() -> Result<()> {
    if is_skipped("pages_are_read_by_one_side") {
        return Ok(());
    }
    let (mut own, mut others) = nodes(1, None)?;
    let pages = 16;
    let bytes = PageArea::bytes_for(PAGE, pages);
    let memory = Memory::anonymous(4096 + bytes)?;
    let at = PmAddr::new(0, 4096);
    let mut area = PageArea::open(&memory, at, bytes, PAGE, pages)?;
    for page in 1..pages {
        area.write(page, &vec![u8::try_from(page).unwrap_or(0); usize::try_from(PAGE).unwrap_or(0)])?;
    }
    let region = others[0].offer(&memory, at, bytes)?;
    assert_eq!(region.bytes, bytes);
    // The other side takes part in the connection, and in no read.
    let (ask, stop) = std::sync::mpsc::channel::<()>();
    let mut member = others.remove(0);
    let reader = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| own.reader(NodeId(1), Duration::from_secs(20)));
        while !connecting.is_finished() {
            member.poll(Duration::from_millis(1), 8, &mut |_| Ok(()))?;
        }
        drop(ask);
        connecting.join().expect("the reader's thread")
    })?;
    assert!(stop.try_recv().is_err());
    let first = bytes - u64::from(PAGE) * pages;
    for page in 1..pages {
        let mut found = vec![0; usize::try_from(PAGE).unwrap_or(0)];
        own.read(&reader, first + page * u64::from(PAGE), &mut found, Duration::from_secs(20))?;
        assert!(found.iter().all(|byte| u64::from(*byte) == page), "page {page}");
    }
    assert!(own.read(&reader, bytes - 1, &mut [0; 8], Duration::from_secs(1)).is_err(), "outside the range");
    Ok(())
}
