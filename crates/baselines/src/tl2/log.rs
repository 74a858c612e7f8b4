//! The two logs, byte for byte.
//!
//! Both consist of entries: `address`, `words | checksum << 32`, `sequence`, then the words of the content. The
//! checksum (CRC-32C) covers address, length, sequence and content. So an entry of an earlier transaction is never
//! mistaken for one of this.
//!
//! - **Redo**: the log's first line holds `count | checksum << 32` and `sequence`. The checksum covers the checksums of
//!   all `count` entries. A first word of 0 means: no record. One fence decides over the whole record.
//! - **Undo**: the first word is the running sequence number. Entries of that sequence count, up to the first invalid
//!   one. Raising the number ends them all.

use lodestone_pmem::{LINE_BYTES, Memory, PmAddr};

/// Bytes of an entry before its content.
pub(super) const ENTRY_HEAD_BYTES: u64 = 24;

/// A log's place.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogArea {
    pub(super) at: PmAddr,
    pub(super) bytes: u64,
}

impl LogArea {
    /// Where entries start.
    pub(super) fn entries(&self) -> PmAddr {
        self.at.plus(LINE_BYTES)
    }

    /// Bytes for entries.
    pub(super) fn capacity(&self) -> u64 {
        self.bytes - LINE_BYTES
    }
}

/// Bytes of an entry with `words` words of content.
#[inline]
pub(super) fn entry_bytes(words: usize) -> u64 {
    ENTRY_HEAD_BYTES + words as u64 * 8
}

fn checksum(address: u64, sequence: u64, content: &[u64]) -> u32 {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&address.to_le_bytes());
    bytes[8..16].copy_from_slice(&(content.len() as u64).to_le_bytes());
    bytes[16..].copy_from_slice(&sequence.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&bytes), zerocopy::IntoBytes::as_bytes(content))
}

/// Writes an entry and returns its checksum; the caller flushes.
pub(super) fn write_entry(memory: &Memory, at: PmAddr, address: u64, sequence: u64, content: &[u64]) -> u32 {
    let checksum = checksum(address, sequence, content);
    memory.store(at, address);
    memory.store(at.plus(8), content.len() as u64 | u64::from(checksum) << 32);
    memory.store(at.plus(16), sequence);
    memory.write(at.plus(ENTRY_HEAD_BYTES), zerocopy::IntoBytes::as_bytes(content));
    checksum
}

/// A valid entry.
#[derive(Debug)]
pub(super) struct ReadEntry {
    pub(super) address: PmAddr,
    pub(super) sequence: u64,
    pub(super) checksum: u32,
    pub(super) content: Vec<u64>,
}

/// The entry at `offset` of the log's entries, if there is one.
pub(super) fn read_entry(memory: &Memory, log: LogArea, offset: u64) -> Option<ReadEntry> {
    if offset + ENTRY_HEAD_BYTES > log.capacity() {
        return None;
    }
    let at = log.entries().plus(offset);
    let (address, length, sequence) = (memory.load(at), memory.load(at.plus(8)), memory.load(at.plus(16)));
    let (words, found) = (length & 0xFFFF_FFFF, (length >> 32) as u32);
    if words == 0 || offset + ENTRY_HEAD_BYTES + words.checked_mul(8)? > log.capacity() {
        return None;
    }
    let content: Vec<u64> = (0..words).map(|word| memory.load(at.plus(ENTRY_HEAD_BYTES + word * 8))).collect();
    let address_checked = PmAddr::from_raw(address);
    let sound = found == checksum(address, sequence, &content) && memory.contains(address_checked, words * 8);
    sound.then_some(ReadEntry { address: address_checked, sequence, checksum: found, content })
}

/// The first word of a redo record.
pub(super) fn redo_head(count: u64, sequence: u64, sum: u32) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&count.to_le_bytes());
    bytes[8..].copy_from_slice(&sequence.to_le_bytes());
    count | u64::from(crc32c::crc32c_append(sum, &bytes)) << 32
}

/// The entries of an intact redo record; `None` if there is none.
pub(super) fn read_redo(memory: &Memory, log: LogArea) -> Option<Vec<ReadEntry>> {
    let (head, sequence) = (memory.load(log.at), memory.load(log.at.plus(8)));
    let count = head & 0xFFFF_FFFF;
    if count == 0 {
        return None;
    }
    let (mut entries, mut offset, mut sum) = (Vec::new(), 0, 0);
    for _ in 0..count {
        let entry = read_entry(memory, log, offset).filter(|entry| entry.sequence == sequence)?;
        sum = crc32c::crc32c_append(sum, &entry.checksum.to_le_bytes());
        offset += entry_bytes(entry.content.len());
        entries.push(entry);
    }
    (head == redo_head(count, sequence, sum)).then_some(entries)
}

/// The entries of a running undo log, oldest first.
pub(super) fn read_undo(memory: &Memory, log: LogArea) -> Vec<ReadEntry> {
    let sequence = memory.load(log.at);
    let (mut entries, mut offset) = (Vec::new(), 0);
    while let Some(entry) = read_entry(memory, log, offset).filter(|entry| entry.sequence == sequence) {
        offset += entry_bytes(entry.content.len());
        entries.push(entry);
    }
    entries
}
