//! Intent records: which slots a transaction of several objects writes.
//!
//! ```text
//! word 0: tick of the transaction, 0 = no record
//! word 1: bits 0..4 kind, 4 chained, 5..32 members, 32..64 CRC-32C
//! word 2: tick of the thread's transaction before this one
//! word 3..: members, or (chained) the address of the first spill block
//! member: address of the object (a multiple of 64) | slot (bit 0)
//! spill block: word 0 address of the next block or 0, words 1..: members
//! ```
//!
//! 1. A thread has two buffers and writes them in turn. The previous record is therefore whole while the newest is
//!    being written. A torn newest record fails its checksum, and the previous one tells how far the thread had come.
//! 2. Up to five members share one line with the header. Members that do not fit the buffer go into a chain of spill
//!    blocks.
//! 3. *One fence*: record and slots are flushed without an order between them, then one fence follows. After a crash
//!    [`decide`] says whether the transaction counts. Each member must hold: its slot is intact with the transaction's
//!    tick and writer, or its object has an intact version with a larger tick. Such a later version was begun only
//!    after this transaction had released the object, and so after its fence.
//! 4. *Address log* and *scan* (paper 1, section 4.3): the record is fenced before the slots are written, and ended
//!    ([`clear`]) after they are. A record that is found after a crash belongs to a loser.

use lodestone_pmem::{LINE_BYTES, Memory, PmAddr, WORD_BYTES};
use lodestone_width::{const_usize, exact_u32, low_u32, to_u64, to_usize};

use crate::crc;
use crate::tick::{Tick, Writer};
use crate::word::Which;

const HEADER_WORDS: usize = 3;
const CHAINED_BIT: u64 = 1 << 4;
const MEMBERS_SHIFT: u32 = 5;
const MEMBERS_MAX: u64 = (1 << 27) - 1;
const CRC_SHIFT: u32 = 32;

/// How a transaction is decided after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// By the contents of the member slots.
    OneFence,
    /// It lost; the members tell which slots to make invalid.
    AddressLog,
    /// It lost; its tick and writer tell which slots to make invalid.
    Scan,
}

impl RecordKind {
    const fn code(self) -> u64 {
        match self {
            Self::OneFence => 1,
            Self::AddressLog => 2,
            Self::Scan => 3,
        }
    }

    const fn from_code(code: u64) -> Option<Self> {
        match code {
            1 => Some(Self::OneFence),
            2 => Some(Self::AddressLog),
            3 => Some(Self::Scan),
            _ => None,
        }
    }
}

/// A slot that a transaction writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    raw: u64,
}

impl Member {
    /// Slot `slot` of the object at `object`, whose address is a multiple of 64.
    #[must_use]
    #[inline]
    pub const fn new(object: PmAddr, slot: Which) -> Self {
        Self { raw: object.to_raw() | slot.index() }
    }

    /// A member as a record stores it.
    #[must_use]
    #[inline]
    pub const fn from_raw(raw: u64) -> Self {
        Self { raw }
    }

    /// The object.
    #[must_use]
    #[inline]
    pub const fn object(self) -> PmAddr {
        PmAddr::from_raw(self.raw & !(LINE_BYTES - 1))
    }

    /// The slot.
    #[must_use]
    #[inline]
    pub const fn slot(self) -> Which {
        Which::from_bit(self.raw)
    }

    /// The member as a record stores it.
    #[must_use]
    #[inline]
    pub const fn to_raw(self) -> u64 {
        self.raw
    }
}

/// The two buffers of a thread id.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Address of the first buffer, at the start of a line; the second follows.
    pub at: PmAddr,
    /// Bytes of one buffer, a multiple of 64.
    pub bytes: u64,
}

impl Buffers {
    /// Address of buffer 0 or 1.
    #[must_use]
    #[inline]
    pub fn buffer(&self, index: u64) -> PmAddr {
        self.at.plus((index & 1) * self.bytes)
    }

    /// Members that a buffer holds without a chain.
    #[must_use]
    #[inline]
    pub const fn members_inline(&self) -> usize {
        const_usize(self.bytes / WORD_BYTES) - HEADER_WORDS
    }
}

/// Members that a spill block of `bytes` bytes holds.
#[must_use]
pub const fn members_in_spill(bytes: u64) -> usize {
    const_usize(bytes / WORD_BYTES) - 1
}

/// The fields of a record besides its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// How the transaction is decided.
    pub kind: RecordKind,
    /// The tick of the transaction.
    pub tick: Tick,
    /// The tick of the thread's previous transaction.
    pub previous: Tick,
}

#[inline(always)]
fn checksum(at: PmAddr, header: &[u64; HEADER_WORDS], rest: &[u64]) -> u32 {
    let place = at.to_raw();
    let header = [header[0], header[1] & !(u64::MAX << CRC_SHIFT), header[2]];
    crc::append(low_u32(place ^ (place >> 32)), header, rest)
}

/// Writes a record into the buffer at `at` and flushes it; the caller fences. `words` consists of `HEADER_WORDS` words,
/// which are overwritten, and the members. If they do not fit the buffer, `spill` must name enough blocks of
/// `spill_bytes`.
///
/// # Panics
/// If there are more members than the format can count (2^27), or too few spill blocks.
#[inline]
pub fn write(memory: &Memory, buffers: &Buffers, index: u64, head: &Head, words: &mut [u64], spill: Spill<'_>) {
    let at = buffers.buffer(index);
    let members = words.len() - HEADER_WORDS;
    assert!(to_u64(members) <= MEMBERS_MAX, "the format counts 2^27 members");
    let chained = members > buffers.members_inline();
    let mut header = [head.tick.0, head.kind.code() | (to_u64(members) << MEMBERS_SHIFT), head.previous.0];
    if chained {
        header[1] |= CHAINED_BIT;
    }
    header[1] |= u64::from(checksum(at, &header, &words[HEADER_WORDS..])) << CRC_SHIFT;
    words[..HEADER_WORDS].copy_from_slice(&header);
    // Flushed before the fence of the commit: together with the slots in the one-fence protocol, otherwise alone.
    if chained {
        let first = write_spill(memory, &words[HEADER_WORDS..], spill);
        memory.write_and_flush(at, &[header[0], header[1], header[2], first.to_raw()]);
    } else {
        memory.write_and_flush(at, words);
    }
}

/// Blocks for the members that do not fit a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Spill<'a> {
    /// Addresses of the blocks.
    pub blocks: &'a [PmAddr],
    /// Bytes of each.
    pub bytes: u64,
}

impl Spill<'_> {
    /// No blocks.
    pub const NONE: Self = Spill { blocks: &[], bytes: 64 };
}

#[cold]
fn write_spill(memory: &Memory, members: &[u64], spill: Spill<'_>) -> PmAddr {
    use zerocopy::IntoBytes;
    let per_block = members_in_spill(spill.bytes);
    assert!(spill.blocks.len() * per_block >= members.len(), "enough spill blocks");
    for (index, chunk) in members.chunks(per_block).enumerate() {
        let at = spill.blocks[index];
        let more = (index + 1) * per_block < members.len();
        memory.store(at, if more { spill.blocks[index + 1].to_raw() } else { 0 });
        memory.write(at.plus(WORD_BYTES), chunk.as_bytes());
        // Flushed before the fence of the commit, like the record.
        memory.flush(at, WORD_BYTES + to_u64(chunk.len()) * WORD_BYTES);
    }
    spill.blocks[0]
}

/// Ends the record in the buffer: one atomic store, flushed; the caller fences.
pub fn clear(memory: &Memory, buffers: &Buffers, index: u64) {
    let at = buffers.buffer(index);
    memory.store(at, 0);
    // Flushed before the fence after which the transaction counts.
    memory.flush(at, WORD_BYTES);
}

/// The contents of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// No record.
    Empty,
    /// A record that was not written whole, or is damaged.
    Torn,
    /// A record.
    Record(Head, Vec<Member>),
}

/// Reads the buffer. `spill_bytes` is the size of a spill block.
#[must_use]
pub fn read(memory: &Memory, buffers: &Buffers, index: u64, spill_bytes: u64) -> Found {
    let at = buffers.buffer(index);
    let header = [memory.load(at), memory.load(at.plus(8)), memory.load(at.plus(16))];
    if header[0] == 0 {
        return Found::Empty;
    }
    let members = to_usize((header[1] >> MEMBERS_SHIFT) & MEMBERS_MAX);
    let chained = header[1] & CHAINED_BIT != 0;
    let (Some(kind), true) = (RecordKind::from_code(header[1] & 0xF), chained == (members > buffers.members_inline()))
    else {
        return Found::Torn;
    };
    let list = if chained {
        read_spill(memory, PmAddr::from_raw(memory.load(at.plus(24))), members, spill_bytes)
    } else {
        Some((0..to_u64(members)).map(|member| memory.load(at.plus((to_u64(HEADER_WORDS) + member) * 8))).collect())
    };
    match list {
        Some(list) if exact_u32(header[1] >> CRC_SHIFT) == checksum(at, &header, &list) => {
            let head = Head { kind, tick: Tick(header[0]), previous: Tick(header[2]) };
            Found::Record(head, list.into_iter().map(|raw| Member { raw }).collect())
        }
        _ => Found::Torn,
    }
}

/// The members in the chain from `at` on; `None` if the chain is broken. Reads no more blocks than `members` fill, and
/// none if the pool has no room for so many. Otherwise a circular chain would fill the memory of this machine.
fn read_spill(memory: &Memory, mut at: PmAddr, members: usize, spill_bytes: u64) -> Option<Vec<u64>> {
    let pool_bytes: u64 = (0..memory.part_count()).map(|part| memory.part_len(part)).sum();
    if to_u64(members) > pool_bytes / LINE_BYTES {
        return None;
    }
    let mut list = Vec::new();
    while list.len() < members {
        if at.is_null() || !at.offset().is_multiple_of(LINE_BYTES) || !memory.contains(at, spill_bytes) {
            return None;
        }
        let count = to_u64((members - list.len()).min(members_in_spill(spill_bytes)));
        list.extend((1..=count).map(|word| memory.load(at.plus(word * 8))));
        at = PmAddr::from_raw(memory.load(at));
    }
    Some(list)
}

/// The decision from a thread's records after a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The tick up to which this thread's versions count if they do not certify themselves.
    pub last: Tick,
    /// The newest transaction with a record, and whether it counts.
    pub newest: Option<(Head, Vec<Member>, bool)>,
    /// Records that were not whole.
    pub torn: u32,
}

/// Decides about the newest transaction of `writer` in the life that began at `base` and reserved ticks up to `limit`.
/// `holds(member, tick, writer)` says whether the member's slot is intact and of that transaction, or its object has an
/// intact version with a larger tick.
///
/// A record is treated as torn if its tick cannot be of this life, or if it does not follow its own previous
/// transaction.
pub fn decide(
    found: [Found; 2],
    (base, limit): (Tick, Tick),
    writer: Writer,
    mut holds: impl FnMut(Member, Tick, Writer) -> bool,
) -> Verdict {
    let found = found.map(|found| match found {
        Found::Record(head, _) if head.tick > limit || head.previous >= head.tick => Found::Torn,
        other => other,
    });
    let torn = exact_u32(found.iter().filter(|found| **found == Found::Torn).count());
    let of_this_life = found.into_iter().filter_map(|found| match found {
        Found::Record(head, members) if head.tick > base => Some((head, members)),
        _ => None,
    });
    let Some((head, members)) = of_this_life.max_by_key(|(head, _)| head.tick) else {
        return Verdict { last: base, newest: None, torn };
    };
    let committed = head.kind == RecordKind::OneFence && members.iter().all(|&member| holds(member, head.tick, writer));
    let last = if committed { head.tick } else { head.previous.max(base) };
    Verdict { last, newest: Some((head, members, committed)), torn }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUFFERS: Buffers = Buffers { at: PmAddr::new(0, 4096), bytes: 128 };

    fn record(memory: &Memory, index: u64, tick: u64, count: u64) -> Vec<Member> {
        let members: Vec<_> =
            (0..count).map(|n| Member::new(PmAddr::new(0, (n + 1) * 64), Which::from_bit(n))).collect();
        let mut words = vec![0; HEADER_WORDS];
        words.extend(members.iter().map(|member| member.to_raw()));
        let head = Head { kind: RecordKind::OneFence, tick: Tick(tick), previous: Tick(tick - 1) };
        let blocks = [PmAddr::new(0, 8192), PmAddr::new(0, 8192 + 64), PmAddr::new(0, 8192 + 128)];
        write(memory, &BUFFERS, index, &head, &mut words, Spill { blocks: &blocks, bytes: 64 });
        members
    }

    #[test]
    fn records_of_every_length_come_back_and_any_broken_word_is_found() -> lodestone_pmem::Result<()> {
        let memory = Memory::anonymous(16384)?;
        for count in 0..=20 {
            let members = record(&memory, count, 70 + count, count);
            let Found::Record(head, found) = read(&memory, &BUFFERS, count, 64) else { panic!("{count} members") };
            assert_eq!((head.tick, head.previous, found), (Tick(70 + count), Tick(69 + count), members));
            let at = BUFFERS.buffer(count);
            for word in 1..3 {
                let old = memory.load(at.plus(word * 8));
                memory.store(at.plus(word * 8), old ^ (1 << 40));
                assert_eq!(read(&memory, &BUFFERS, count, 64), Found::Torn, "{count} members, word {word}");
                memory.store(at.plus(word * 8), old);
            }
            if count > 13 {
                memory.store(PmAddr::new(0, 8192 + 16), 0);
                assert_eq!(read(&memory, &BUFFERS, count, 64), Found::Torn, "a broken spill block");
            }
        }
        clear(&memory, &BUFFERS, 0);
        assert_eq!(read(&memory, &BUFFERS, 0, 64), Found::Empty);
        Ok(())
    }

    #[test]
    fn the_newest_record_decides_and_the_one_before_it_when_it_is_torn() -> lodestone_pmem::Result<()> {
        let memory = Memory::anonymous(16384)?;
        record(&memory, 0, 70, 2);
        record(&memory, 1, 80, 2);
        let both = || [read(&memory, &BUFFERS, 0, 64), read(&memory, &BUFFERS, 1, 64)];
        let writer = Writer::default();
        assert_eq!(decide(both(), (Tick(5), Tick(99)), writer, |_, _, _| true).last, Tick(80));
        assert_eq!(decide(both(), (Tick(5), Tick(99)), writer, |_, _, _| false).last, Tick(79), "the tick before");
        assert_eq!(decide(both(), (Tick(75), Tick(99)), writer, |_, tick, _| tick == Tick(80)).last, Tick(80));
        assert_eq!(
            decide(both(), (Tick(90), Tick(99)), writer, |_, _, _| true).last,
            Tick(90),
            "records of an earlier life"
        );
        let verdict = decide(both(), (Tick(5), Tick(79)), writer, |_, _, _| true);
        assert_eq!((verdict.last, verdict.torn), (Tick(70), 1), "a tick that was not reserved");
        memory.store(BUFFERS.buffer(1).plus(16), 1);
        let verdict = decide(both(), (Tick(5), Tick(99)), writer, |_, _, _| true);
        assert_eq!((verdict.last, verdict.torn), (Tick(70), 1));
        Ok(())
    }
}
