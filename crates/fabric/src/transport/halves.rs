//! Paper 5, section 2.4, Fig. 5: the bytes of a packet as two halves, each with a checksum, and their parity. A half
//! that was damaged is made again without another send.
//!
//! ```text
//! packet   head 64, bytes of the payload 4, CRC-32C of each half 4 + 4, first half, second half, parity
//! ```
//!
//! The second half is filled up with a zero if the payload has an odd number of bytes. Paper 5 leaves two holes. Its
//! checksums do not cover the head, with addresses in it; here the head has its CRC-32C over all of the packet as well.
//! And it does not check a half that was made again: if the parity was damaged too, garbage counts. Here the half must
//! have its checksum.
//!
//! This is an option, not the default: the parity is half of all bytes, and helps against damage alone. Networks lose
//! packets, and those that damage them are rare.

use std::time::Duration;

use lodestone_pmem::planted;
use lodestone_width::{exact_u32, to_usize};

use super::{Transport, TransportCounts};
use crate::effect::Outgoing;
use crate::error::Result;
use crate::packet::{PACKET_HEAD_BYTES, reseal_checksum};

/// Bytes before the halves.
const HALVES_HEAD_BYTES: usize = 12;

/// Counts of packets that were received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HalvesCounts {
    /// Both halves were right.
    pub whole: u64,
    /// One half was made again.
    pub rebuilt: u64,
    /// Nothing could be done: the protocol asks for the packet again.
    pub refused: u64,
}

/// A transport whose packets are halves with parity.
#[derive(Debug)]
pub struct HalvesTransport<T> {
    inner: T,
    counts: HalvesCounts,
}

impl<T: Transport> HalvesTransport<T> {
    /// Halves around another transport.
    pub const fn new(inner: T) -> Self {
        Self { inner, counts: HalvesCounts { whole: 0, rebuilt: 0, refused: 0 } }
    }

    /// Counts of packets that were received.
    pub const fn halves(&self) -> HalvesCounts {
        self.counts
    }
}

/// The longest payload with which a packet of so many bytes is not longer as halves.
#[must_use]
pub const fn halves_payload_bytes(packet_bytes: usize) -> usize {
    packet_bytes.saturating_sub(PACKET_HEAD_BYTES + HALVES_HEAD_BYTES + 3) / 3 * 2
}

fn exclusive_or(one: &[u8], other: &[u8]) -> Vec<u8> {
    one.iter().zip(other).map(|(one, other)| one ^ other).collect()
}

/// The packet as two halves and their parity.
///
/// ```
/// use lodestone_fabric::{GroupId, Kind, NodeId, PacketHead, halves};
///
/// let packet = PacketHead::new(Kind::Beat, GroupId(1), NodeId(1)).packet([b"a payload", &[]]);
/// let mut sent = halves::seal(&packet);
/// sent[80] ^= 1;
/// assert_eq!(halves::open(&sent), Some((packet, true)), "one half was made again");
/// ```
#[must_use]
pub fn seal(bytes: &[u8]) -> Vec<u8> {
    let (head, payload) = bytes.split_at(bytes.len().min(PACKET_HEAD_BYTES));
    let mut padded = payload.to_vec();
    padded.resize(payload.len().next_multiple_of(2), 0);
    let (first, second) = padded.split_at(padded.len() / 2);
    let mut out = head.to_vec();
    out.extend(exact_u32(payload.len()).to_le_bytes());
    out.extend(crc32c::crc32c(first).to_le_bytes());
    out.extend(crc32c::crc32c(second).to_le_bytes());
    out.extend(first);
    out.extend(second);
    out.extend(exclusive_or(first, second));
    out
}

/// The packet of these halves, and whether one was made again. `None`: both are damaged, or the bytes are no halves.
#[must_use]
pub fn open(bytes: &[u8]) -> Option<(Vec<u8>, bool)> {
    let (head, rest) = bytes.split_at_checked(PACKET_HEAD_BYTES)?;
    let (numbers, rest) = rest.split_at_checked(HALVES_HEAD_BYTES)?;
    let number = |at: usize| numbers.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    let length = to_usize(number(0)?);
    let size = length.checked_add(1)? / 2;
    (rest.len() == size.checked_mul(3)?).then_some(())?;
    let (first, rest) = rest.split_at_checked(size)?;
    let (second, parity) = rest.split_at_checked(size)?;
    let is_right = [crc32c::crc32c(first) == number(4)?, crc32c::crc32c(second) == number(8)?];
    let is_checked = |half: Vec<u8>, crc: u32| {
        let counts = crc32c::crc32c(&half) == crc
            || planted::active("fabric-rebuilt-half-unchecked")
            || planted::active("fabric-halves-alone");
        counts.then_some(half)
    };
    let (first, second) = match is_right {
        [true, true] => (first.to_vec(), second.to_vec()),
        [true, false] => (first.to_vec(), is_checked(exclusive_or(first, parity), number(8)?)?),
        [false, true] => (is_checked(exclusive_or(second, parity), number(4)?)?, second.to_vec()),
        [false, false] => return None,
    };
    let mut out = head.to_vec();
    out.extend(first);
    out.extend(second);
    out.truncate(PACKET_HEAD_BYTES + length);
    if planted::active("fabric-halves-alone") {
        // The paper has no checksum besides those of the halves.
        reseal_checksum(&mut out);
    }
    Some((out, is_right != [true, true]))
}

impl<T: Transport> Transport for HalvesTransport<T> {
    fn send(&mut self, packets: &[Outgoing]) -> Result<()> {
        let halves: Vec<Outgoing> =
            packets.iter().map(|packet| Outgoing { target: packet.target, bytes: seal(&packet.bytes) }).collect();
        self.inner.send(&halves)
    }

    fn poll(&mut self, wait: Duration, most: usize, receive: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<usize> {
        let counts = &mut self.counts;
        self.inner.poll(wait, most, &mut |bytes| match open(bytes) {
            Some((packet, is_rebuilt)) => {
                if is_rebuilt {
                    counts.rebuilt += 1;
                } else {
                    counts.whole += 1;
                }
                receive(&packet)
            }
            None => {
                counts.refused += 1;
                Ok(())
            }
        })
    }

    fn counts(&self) -> TransportCounts {
        self.inner.counts()
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{GroupId, NodeId};
    use crate::packet::{Kind, PacketHead};

    fn packet(payload: &[u8]) -> Vec<u8> {
        PacketHead::new(Kind::Beat, GroupId(1), NodeId(1)).packet([payload, &[]])
    }

    #[test]
    fn a_damaged_half_is_made_again() {
        for payload in [&b"an odd number"[..], b"even", b"", b"x"] {
            let (whole, halves) = (packet(payload), seal(&packet(payload)));
            assert_eq!(open(&halves), Some((whole.clone(), false)));
            let size = payload.len().div_ceil(2);
            let begin = PACKET_HEAD_BYTES + HALVES_HEAD_BYTES;
            for at in begin..begin + 2 * size {
                let mut damaged = halves.clone();
                damaged[at] ^= 0x10;
                assert_eq!(open(&damaged), Some((whole.clone(), true)), "byte {at}");
            }
            assert!((1..halves.len()).all(|length| open(&halves[..length]).is_none()), "a torn packet");
        }
    }

    /// The hole of the paper: a half and the parity are damaged.
    #[test]
    fn a_half_that_is_made_again_is_checked() {
        let mut halves = seal(&packet(b"0123456789"));
        let begin = PACKET_HEAD_BYTES + HALVES_HEAD_BYTES;
        halves[begin] ^= 1;
        halves[begin + 10] ^= 2;
        assert_eq!(open(&halves), None);
        #[cfg(feature = "planted-bugs")]
        {
            planted::plant(Some("fabric-rebuilt-half-unchecked"));
            let taken = open(&halves);
            planted::plant(None);
            let (garbage, _) = taken.expect("without the check garbage counts");
            assert!(
                crate::packet::Packet::decode(&garbage).is_err(),
                "the checksum of head and payload still finds it"
            );
        }
    }

    #[test]
    fn halves_fit_where_packets_do() {
        for bytes in [200, 1472, 8972] {
            let payload = vec![7; halves_payload_bytes(bytes)];
            assert!(seal(&packet(&payload)).len() <= bytes);
        }
    }
}
