//! The redo record of an action: which words change to what.
//!
//! A lane is a buffer on the medium for one record at a time:
//!
//! ```text
//! word 0: commit word, a checked word: 0 = idle, else number of entries (16 bits) and CRC-32C (32 bits)
//! word 1: boot number of the writer
//! word 2..: entries of two words: address with the kind in its low three bits, value
//! ```
//!
//! 1. *Write*: word 1 and the entries, then the commit word, then flush all. Up to three entries share the commit
//!    word's line, so the usual action flushes one line for its record.
//! 2. The record counts when the commit word names entries whose CRC-32C (over word 1 and entries) matches. Lines
//!    persist in any order, so after a crash entries of a longer record may be missing. The CRC finds that.
//! 3. *Clear*: the commit word goes back to idle: one atomic store.
//!
//! Invariants:
//! - the commit word is atomic and checked, so in every crash state it is intact: a damaged one is media damage;
//! - a commit word is persistent together with everything before it in its own line. So a mismatch in a record of one
//!   line is media damage as well;
//! - entries are idempotent, so a record may be applied any number of times.

use lodestone_pmem::{Memory, PmAddr, checked};
use lodestone_width::{exact_u32, to_u64, to_usize};

/// The change that an entry makes. The number is on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// Stores the value.
    Set = 0,
    /// Sets the value's bits in a checked word: blocks of a slab become allocated.
    BitsSet = 1,
    /// Clears the value's bits in a checked word: blocks of a slab become free.
    BitsClear = 2,
    /// Makes the chunk word an extent of `value` chunks.
    Extent = 3,
    /// Makes the chunk word, an extent of `value` chunks, free.
    Release = 4,
}

/// One word to change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    tagged: u64,
    pub value: u64,
}

impl Entry {
    #[inline]
    #[expect(clippy::as_conversions, reason = "the discriminant of a kind is its number on the medium")]
    pub fn new(kind: EntryKind, at: PmAddr, value: u64) -> Self {
        Self { tagged: at.to_raw() | kind as u64, value }
    }

    #[inline]
    pub fn at(&self) -> PmAddr {
        PmAddr::from_raw(self.tagged & !7)
    }

    /// The kind, or `None` when the number is none that this version knows.
    #[inline]
    pub fn kind(&self) -> Option<EntryKind> {
        Some(match self.tagged & 7 {
            0 => EntryKind::Set,
            1 => EntryKind::BitsSet,
            2 => EntryKind::BitsClear,
            3 => EntryKind::Extent,
            4 => EntryKind::Release,
            _ => return None,
        })
    }
}

const INLINE: usize = 6;

/// The entries of an action: the first few without an allocation.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    inline: [Entry; INLINE],
    len: usize,
    /// All entries once there are more than fit inline.
    spill: Vec<Entry>,
    /// Where the newest entries that set and that clear bits are, if still there.
    bits_newest: [usize; 2],
}

impl Entries {
    #[inline]
    pub fn as_slice(&self) -> &[Entry] {
        if self.spill.is_empty() { &self.inline[..self.len] } else { &self.spill }
    }

    /// Forgets all entries.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
        self.spill.clear();
    }

    #[inline]
    fn as_mut_slice(&mut self) -> &mut [Entry] {
        if self.spill.is_empty() { &mut self.inline[..self.len] } else { &mut self.spill }
    }

    #[inline]
    pub fn push(&mut self, entry: Entry) {
        if self.spill.is_empty() && self.len < INLINE {
            self.inline[self.len] = entry;
            self.len += 1;
            return;
        }
        if self.spill.is_empty() {
            self.spill.extend_from_slice(&self.inline);
        }
        self.spill.push(entry);
    }

    /// Adds bits to the newest entry of the kind if it is for the same word, else appends an entry.
    #[inline]
    pub fn push_bits(&mut self, kind: EntryKind, at: PmAddr, bits: u64) {
        let entry = Entry::new(kind, at, bits);
        let newest = self.bits_newest[usize::from(kind == EntryKind::BitsClear)];
        // An index that a removal made stale is found out by the comparison.
        match self.as_mut_slice().get_mut(newest).filter(|last| last.tagged == entry.tagged) {
            Some(last) => last.value |= bits,
            None => {
                self.bits_newest[usize::from(kind == EntryKind::BitsClear)] = self.as_slice().len();
                self.push(entry);
            }
        }
    }

    /// Whether an entry of the kind for the word at `at` has all of `bits`.
    pub fn contains(&self, kind: EntryKind, at: PmAddr, bits: u64) -> bool {
        self.position(kind, at, bits).is_some()
    }

    fn position(&self, kind: EntryKind, at: PmAddr, bits: u64) -> Option<usize> {
        let tagged = Entry::new(kind, at, 0).tagged;
        self.as_slice().iter().position(|e| e.tagged == tagged && e.value & bits == bits)
    }

    /// Takes `bits` of a word out again, or a whole entry when `bits` is its value. Returns whether it was there.
    pub fn remove(&mut self, kind: EntryKind, at: PmAddr, bits: u64) -> bool {
        let Some(index) = self.position(kind, at, bits) else { return false };
        let entry = &mut self.as_mut_slice()[index];
        entry.value &= !bits;
        if entry.value == 0 || kind == EntryKind::Extent {
            if self.spill.is_empty() {
                self.inline.copy_within(index + 1..self.len, index);
                self.len -= 1;
            } else if self.spill.len() > 1 {
                self.spill.remove(index);
            } else {
                *self = Self::default();
            }
        }
        true
    }
}

/// CRC-32C over the boot number and the entries, in ascending order of addresses on the medium.
fn checksum(boot: u64, entries: &[Entry]) -> u32 {
    const BATCH: usize = 4;
    let mut buffer = [0_u8; 8 + 16 * BATCH];
    buffer[..8].copy_from_slice(&boot.to_le_bytes());
    let mut filled = 8;
    let mut crc = 0;
    for batch in entries.chunks(BATCH) {
        for entry in batch {
            buffer[filled..filled + 8].copy_from_slice(&entry.tagged.to_le_bytes());
            buffer[filled + 8..filled + 16].copy_from_slice(&entry.value.to_le_bytes());
            filled += 16;
        }
        crc = crc32c::crc32c_append(crc, &buffer[..filled]);
        filled = 0;
    }
    crc
}

/// Writes the record of `entries` into the idle lane at `lane` and flushes it; the caller fences. With `contents`, the
/// record publishes blocks whose contents this thread has flushed.
pub fn write(memory: &Memory, lane: PmAddr, boot: u64, entries: &[Entry], contents: bool) {
    if contents && !lodestone_pmem::planted::active("heap-record-before-contents") {
        // Fence 1: the record counts once its lines are persistent, at any moment from here on: it may not overtake the
        // contents of the blocks that it will publish.
        memory.fence();
    }
    let crc = if lodestone_pmem::planted::active("heap-record-without-checksum") { 0 } else { checksum(boot, entries) };
    memory.store(lane.plus(8), boot);
    let mut at = lane.plus(16);
    for entry in entries {
        memory.store(at, entry.tagged);
        memory.store(at.plus(8), entry.value);
        at = at.plus(16);
    }
    // Stored last in its line, so that a crash never keeps it without the entries in the same line.
    memory.store(lane, checked::encode(lane, to_u64(entries.len()) | (u64::from(crc) << 16)));
    // All lines of the record, before the fence that the first store in place may not overtake.
    memory.flush(lane, 16 + 16 * to_u64(entries.len()));
}

/// Makes the lane idle and flushes it; the caller fences before another action may change the record's words.
pub fn clear(memory: &Memory, lane: PmAddr) {
    memory.store(lane, checked::encode(lane, 0));
    // One line; the fence that follows keeps replay from rolling later changes of the same words back.
    memory.flush(lane, 8);
}

/// The content of a lane.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Idle,
    /// A record that counts.
    Record(Vec<Entry>),
    /// A record whose writing was cut short: no word of it was changed in place.
    Torn,
    /// Damage, in words.
    Damaged(&'static str),
}

/// Reads the lane at `lane`, which records up to `limit` entries.
pub fn read(memory: &Memory, lane: PmAddr, limit: usize) -> Found {
    let Some(payload) = checked::decode(lane, memory.load(lane)) else {
        return Found::Damaged("the commit word of a lane fails its checksum");
    };
    if payload == 0 {
        return Found::Idle;
    }
    let (count, crc) = (to_usize(payload & 0xFFFF), exact_u32(payload >> 16));
    if count == 0 || count > limit {
        return Found::Damaged("the commit word of a lane names more entries than the lane holds");
    }
    let boot = memory.load(lane.plus(8));
    let entries: Vec<Entry> = (0..to_u64(count))
        .map(|index| lane.plus(16 + 16 * index))
        .map(|at| Entry { tagged: memory.load(at), value: memory.load(at.plus(8)) })
        .collect();
    if checksum(boot, &entries) == crc || lodestone_pmem::planted::active("heap-record-without-checksum") {
        Found::Record(entries)
    } else if count <= 3 {
        Found::Damaged("a record within one line fails its checksum")
    } else {
        Found::Torn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(count: u64) -> Vec<Entry> {
        (0..count).map(|index| Entry::new(EntryKind::Set, PmAddr::new(0, 2048 + 8 * index), index * 3)).collect()
    }

    #[test]
    fn records_of_every_length_read_back() -> lodestone_pmem::Result<()> {
        let memory = Memory::anonymous(8192)?;
        let lane = PmAddr::new(0, 1024);
        assert!(matches!(read(&memory, lane, 60), Found::Damaged(_)), "zeroes are no lane");
        for count in 1..=60 {
            write(&memory, lane, 5, &entries(count), true);
            assert_eq!(read(&memory, lane, 60), Found::Record(entries(count)));
            clear(&memory, lane);
            assert_eq!(read(&memory, lane, 60), Found::Idle);
        }
        Ok(())
    }

    #[test]
    fn every_flipped_byte_of_a_record_is_found() -> lodestone_pmem::Result<()> {
        let memory = Memory::anonymous(8192)?;
        let lane = PmAddr::new(0, 1024);
        for count in [1, 3, 4, 9] {
            write(&memory, lane, 5, &entries(count), true);
            for byte in 0..16 + 16 * count {
                let at = PmAddr::new(0, 1024 + byte / 8 * 8);
                let good = memory.load(at);
                memory.store(at, good ^ (0xFF << (byte % 8 * 8)));
                let found = read(&memory, lane, 60);
                let told =
                    if count <= 3 || byte < 8 { matches!(found, Found::Damaged(_)) } else { found == Found::Torn };
                assert!(told, "byte {byte} of {count} entries: {found:?}");
                memory.store(at, good);
            }
        }
        Ok(())
    }

    #[test]
    fn bits_of_one_word_share_an_entry_and_leave_one_by_one() {
        let at = PmAddr::new(0, 512);
        let mut all = Entries::default();
        for bit in 0..3 {
            all.push_bits(EntryKind::BitsSet, at, 1 << bit);
        }
        all.push_bits(EntryKind::BitsClear, at, 8);
        assert_eq!(all.as_slice().len(), 2);
        assert!(all.remove(EntryKind::BitsSet, at, 2));
        assert!(!all.remove(EntryKind::BitsSet, at, 2));
        assert!(all.remove(EntryKind::BitsSet, at, 5));
        assert_eq!(all.as_slice(), [Entry::new(EntryKind::BitsClear, at, 8)]);
    }
}
