//! Sealed packets on a network that repeats, cuts, changes and forges: nothing comes out that was not sealed, and
//! nothing twice.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use lodestone_fabric::{
    GroupId, KeyRing, Kind, NodeId, Outgoing, PacketHead, Result as FabricResult, SealedTransport, Secret, Sequence,
    Target, Transport, TransportCounts, ViewNumber,
};

use super::generate::{self, GROUP};
use super::{decoders, demand};
use crate::input::{Features, Input};

/// Keeps what was sent, and receives what it is told.
#[derive(Debug, Default)]
struct Wire {
    sent: Vec<Vec<u8>>,
    arrives: VecDeque<Vec<u8>>,
}

impl Transport for Wire {
    fn send(&mut self, packets: &[Outgoing]) -> FabricResult<()> {
        self.sent.extend(packets.iter().map(|packet| packet.bytes.clone()));
        Ok(())
    }

    fn poll(
        &mut self,
        _: Duration,
        most: usize,
        receive: &mut dyn FnMut(&[u8]) -> FabricResult<()>,
    ) -> FabricResult<usize> {
        let count = self.arrives.len().min(most);
        for bytes in self.arrives.drain(..count) {
            receive(&bytes)?;
        }
        Ok(count)
    }

    fn counts(&self) -> TransportCounts {
        TransportCounts::default()
    }

    fn name(&self) -> &'static str {
        "wire"
    }
}

fn keys(secret: u8) -> KeyRing {
    let mut keys = KeyRing::default();
    keys.hand(GROUP, ViewNumber(0), Secret::of([secret; 32]));
    keys
}

pub fn sealed(input: &mut Input<'_>, features: &mut Features) -> Result<(), String> {
    let text = |error: lodestone_fabric::Error| error.to_string();
    let mut own = SealedTransport::new(Wire::default(), NodeId(1), 5, keys(7));
    let mut forger = SealedTransport::new(Wire::default(), NodeId(1), 6, keys(8));
    let mut other = SealedTransport::new(Wire::default(), NodeId(2), 5, keys(7));
    let (mut honest, mut opened) = (Vec::new(), BTreeSet::new());
    while !input.is_empty() && honest.len() < 64 {
        let number = u64::try_from(honest.len()).unwrap_or(0);
        let packet = PacketHead { sequence: Sequence(number), ..PacketHead::new(Kind::Beat, GROUP, NodeId(1)) };
        let packet = packet.packet([input.bytes(40), &[]]);
        let outgoing = [Outgoing { target: Target::Group, bytes: packet.clone() }];
        own.send(&outgoing).map_err(text)?;
        forger.send(&outgoing).map_err(text)?;
        honest.push(packet);
        for _ in 0..input.below(5) {
            let bytes = hostile(input, &own.inner().sent, &forger.inner().sent);
            other.inner_mut().arrives.push_back(bytes);
        }
        let mut wrong = None;
        let mut receive = |bytes: &[u8]| {
            // The counter is that of the seal.
            let found = honest.iter().position(|packet| packet[..48] == bytes[..48] && packet[64..] == bytes[64..]);
            match found {
                Some(index) if opened.insert(index) => {}
                Some(index) => wrong = Some(format!("packet {index} was opened twice")),
                None => wrong = Some("a packet was opened that nobody sealed".to_owned()),
            }
            Ok(())
        };
        other.poll(Duration::ZERO, 64, &mut receive).map_err(text)?;
        demand(wrong.is_none(), || wrong.clone().unwrap_or_default())?;
    }
    let counts = other.seal_counts();
    features.counted("opened", counts.opened);
    features.counted("plain", counts.plain);
    features.counted("without key", counts.without_key);
    features.counted("refused", counts.refused);
    features.counted("repeated", counts.repeated);
    Ok(())
}

/// A packet that was sealed, or something made of one.
fn hostile(input: &mut Input<'_>, sealed: &[Vec<u8>], forged: &[Vec<u8>]) -> Vec<u8> {
    let from = if input.once_in(4) { forged } else { sealed };
    let mut bytes = from.get(input.below(from.len())).cloned().unwrap_or_default();
    match input.below(8) {
        // As it is: the first time it counts.
        0..=2 => {}
        3 => bytes.truncate(input.below(bytes.len() + 1)),
        4 => bytes.extend(input.bytes(30)),
        5 => {
            let at = input.below(bytes.len().max(1));
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= input.byte();
            }
        }
        6 => {
            // The head of another packet.
            let other = from.get(input.below(from.len())).map_or(&[][..], Vec::as_slice);
            let head = bytes.len().min(other.len()).min(64);
            bytes[..head].copy_from_slice(&other[..head]);
        }
        _ => {
            let group = if input.flag() { GROUP } else { GroupId(2) };
            bytes = generate::packet(input, group);
            if input.flag() {
                // Says that it is sealed.
                bytes[19] |= 0x80;
                decoders::with_checksum(&mut bytes);
            }
        }
    }
    bytes
}
