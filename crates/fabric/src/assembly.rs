//! Fragments of one record, put together in DRAM.
//!
//! Invariants: the buffer is as long as the fields of a packet say that was checked against the limit of records, and
//! the owner checks its own limit first. Bytes count when all fragments are there and the record's checksum holds.

use lodestone_pmem::planted;
use lodestone_width::{to_u64, to_usize};

use crate::packet::Packet;
use crate::record::{RECORD_HEAD_BYTES, RecordHead};

/// A record of which fragments are missing.
#[derive(Debug)]
pub(crate) struct Assembly {
    bytes: Vec<u8>,
    fragments: u16,
    there: u64,
}

impl Assembly {
    /// For the record that `packet` is a fragment of.
    pub(crate) fn new(packet: &Packet<'_>) -> Self {
        Self { bytes: vec![0; to_usize(packet.head.record_bytes)], fragments: packet.head.fragments, there: 0 }
    }

    /// Bytes of its buffer.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        to_u64(self.bytes.len())
    }

    /// A bit for each fragment that is missing.
    pub(crate) fn missing(&self) -> u64 {
        let all = if self.fragments >= 64 { u64::MAX } else { (1 << self.fragments) - 1 };
        all & !self.there
    }

    /// Takes a fragment in. Returns whether the record is whole now. A fragment of another cut starts it anew.
    pub(crate) fn add(&mut self, packet: &Packet<'_>) -> bool {
        let head = &packet.head;
        if to_u64(self.bytes.len()) != u64::from(head.record_bytes) || self.fragments != head.fragments {
            *self = Self::new(packet);
        }
        if let Some(at) = head.fragment_place(packet.payload.len())
            && let Some(target) = self.bytes.get_mut(at..at + packet.payload.len())
        {
            target.copy_from_slice(packet.payload);
            self.there |= 1 << (head.fragment % 64);
        }
        self.missing() == 0 || planted::active("fabric-first-fragment-counts")
    }

    /// Head and body, if the record's checksum holds.
    pub(crate) fn finish(&self, salt: u64) -> Option<(RecordHead, &[u8])> {
        verified(&self.bytes, salt)
    }
}

/// Head and body of a whole record, if its checksum holds.
pub(crate) fn verified(record: &[u8], salt: u64) -> Option<(RecordHead, &[u8])> {
    let head = RecordHead::from_bytes(record)?;
    let body = record.get(RECORD_HEAD_BYTES..)?;
    // The planted bug is that of a protocol without a checksum over the whole record.
    let counts = head.verifies(salt, body)
        || planted::active("fabric-first-fragment-counts")
        || planted::active("fabric-head-outside-checksum")
        || planted::active("fabric-halves-alone");
    counts.then_some((head, body))
}
