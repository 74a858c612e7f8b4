//! Which queues other nodes have: a card gives them numbers at every start, so nodes tell each other.
//!
//! ```text
//! datagram of UDP, 40 bytes, little-endian
//!   0  magic `LFQ1` 4
//!   4  kind 2          1 ask, 2 answer: queue for datagrams; 3 ask, 4 answer: queue for reads
//!   6  node 2          its sender
//!   8  queue 4
//!  12  key 4           kind 4: the key of the pages
//!  16  address 8       kind 4: where the pages begin
//!  24  bytes 8         kind 4: their bytes
//!  32  token 8         kinds 3 and 4: of the request
//! ```
//!
//! A node asks every other one until it has answered. It also learns from questions: so a node that was started again
//! is known by its new queue as soon as it asks. A name that lies costs packets, which the protocol sends again.

use lodestone_fabric::NodeId;

const MAGIC: [u8; 4] = *b"LFQ1";
/// Bytes of a name.
pub const NAME_BYTES: usize = 40;

/// The kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// Asks for the queue for datagrams.
    Ask,
    /// Tells it.
    Answer,
    /// Asks for a queue for reads.
    AskReads,
    /// Tells it.
    AnswerReads,
}

/// A name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    pub kind: NameKind,
    pub node: NodeId,
    pub queue: u32,
    pub key: u32,
    pub address: u64,
    pub bytes: u64,
    pub token: u64,
}

impl Name {
    /// A name without a range.
    pub const fn of(kind: NameKind, node: NodeId, queue: u32) -> Self {
        Self { kind, node, queue, key: 0, address: 0, bytes: 0, token: 0 }
    }

    /// Its bytes.
    pub fn to_bytes(self) -> Vec<u8> {
        let kind: u16 = match self.kind {
            NameKind::Ask => 1,
            NameKind::Answer => 2,
            NameKind::AskReads => 3,
            NameKind::AnswerReads => 4,
        };
        let mut bytes = MAGIC.to_vec();
        bytes.extend(kind.to_le_bytes());
        bytes.extend(self.node.0.to_le_bytes());
        bytes.extend(self.queue.to_le_bytes());
        bytes.extend(self.key.to_le_bytes());
        bytes.extend(self.address.to_le_bytes());
        bytes.extend(self.bytes.to_le_bytes());
        bytes.extend(self.token.to_le_bytes());
        bytes
    }

    /// The name in these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != NAME_BYTES || bytes.get(..4)? != MAGIC {
            return None;
        }
        let word = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let half = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let kind = match u16::from_le_bytes(*bytes.get(4..)?.first_chunk()?) {
            1 => NameKind::Ask,
            2 => NameKind::Answer,
            3 => NameKind::AskReads,
            4 => NameKind::AnswerReads,
            _ => return None,
        };
        Some(Self {
            kind,
            node: NodeId(u16::from_le_bytes(*bytes.get(6..)?.first_chunk()?)),
            queue: half(8)?,
            key: half(12)?,
            address: word(16)?,
            bytes: word(24)?,
            token: word(32)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_were_written() {
        for kind in [NameKind::Ask, NameKind::Answer, NameKind::AskReads, NameKind::AnswerReads] {
            let name =
                Name { key: 7, address: u64::MAX - 1, bytes: 1 << 40, token: 9, ..Name::of(kind, NodeId(300), 17) };
            let bytes = name.to_bytes();
            assert_eq!(Name::from_bytes(&bytes), Some(name));
            assert!((0..bytes.len()).all(|length| Name::from_bytes(&bytes[..length]).is_none()), "cut short");
            assert_eq!(Name::from_bytes(&[bytes.as_slice(), &[0]].concat()), None, "too long");
        }
        assert_eq!(Name::from_bytes(&[0; NAME_BYTES]), None);
    }
}
