//! A record of the journal: one commit group, in sectors that each tell whether they are whole.
//!
//! A record is a sequence of sectors of 512 bytes, filled up to units of 4096. Each sector ends with a *tag* and the
//! CRC-32C of everything before it. The tag says for which place of which life the sector was written. So a reader
//! tells three kinds of sector apart:
//!
//! - *new*: the checksum fits, and so does the tag;
//! - *old*: the checksum fits, the tag is another: an earlier lap of the ring, an earlier life, or never written
//!   (zeroes in the first lap);
//! - *damaged*: the checksum does not fit. A device writes sectors whole, so no crash leaves this.
//!
//! **Torn or damaged.** A record that was acknowledged has new sectors only. A record that a crash cut short is a
//! mixture of new and old ones. A record with a damaged sector is neither: the medium changed it, and it may have been
//! acknowledged. One flipped bit, or any other change that a CRC-32C notices, never passes for a torn record.
//!
//! **Stored values never forge a record.** Values fill the content of a sector. Tags and checksums are at its end,
//! where no value ever is. The tag of a first sector differs from the tags of the others. So no content, at any
//! boundary, is taken for the beginning of a record. The tags come from a salt of the life (16 random bytes). So
//! content that a device writes to the wrong place is not taken for a record either.

use lodestone_width::{const_usize, to_u64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::addr::{LINE_BYTES, LineAddr, PmAddr};
use crate::storage::SECTOR_BYTES;

/// Unit of the ring: records start and end at multiples.
pub(crate) const UNIT_BYTES: u64 = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"LODEJREC");
/// Bytes of a sector before its tag and its checksum.
const CONTENT_BYTES: usize = SECTOR_BYTES - 8;
/// An address and a line.
const ENTRY_BYTES: usize = 8 + const_usize(LINE_BYTES);
const HEADER_BYTES: usize = size_of::<RecordHeader>();
/// Lines in the first sector, after the header.
const FIRST_LINES: usize = (CONTENT_BYTES - HEADER_BYTES) / ENTRY_BYTES;
/// Lines in each further sector.
const MORE_LINES: usize = CONTENT_BYTES / ENTRY_BYTES;
const _: () = assert!(FIRST_LINES == 6 && MORE_LINES == 7, "as docs/format.md says");
const _: () = assert!(HEADER_BYTES == const_usize(LINE_BYTES), "a record header fills one line");

/// Random numbers that only the records of one life carry.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Salt {
    /// In the tags of first sectors.
    pub(crate) first: u32,
    /// In the tags of all other sectors.
    pub(crate) more: u32,
    /// Begins the checksum over the sectors of a record.
    pub(crate) whole: u64,
}

/// A life of the pool as its journal knows it: records of other lives are void.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) generation: u64,
    pub(crate) salt: Salt,
}

impl Life {
    /// The tag of the sector at `position`; `is_first` in its record.
    fn tag(&self, position: u64, is_first: bool) -> u32 {
        // Positions of one life do not come back within the ring, so neither do their lower 32 bits.
        let number = (position / to_u64(SECTOR_BYTES)) & u64::from(u32::MAX);
        let salt = if is_first { self.salt.first } else { self.salt.more };
        salt ^ u32::try_from(number).unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RecordHeader {
    magic: u64,
    generation: u64,
    pub(crate) position: u64,
    pub(crate) group: u64,
    lines: u64,
    reserved: [u64; 2],
    padding: u32,
    /// CRC-32C of the salt and of the checksums of all further sectors with lines.
    more_crc: u32,
}

/// Sectors with content in a record of `lines` lines.
const fn sectors(lines: usize) -> usize {
    1 + lines.saturating_sub(FIRST_LINES).div_ceil(MORE_LINES)
}

/// Bytes of the record of a group of `lines` lines.
const fn record_bytes(lines: usize) -> usize {
    (sectors(lines) * SECTOR_BYTES).next_multiple_of(const_usize(UNIT_BYTES))
}

/// Most lines in a record of at most `bytes`, which is at least a unit.
pub(crate) const fn lines_max(bytes: u64) -> u64 {
    (bytes / UNIT_BYTES * UNIT_BYTES / to_u64(SECTOR_BYTES) - 1) * to_u64(MORE_LINES) + to_u64(FIRST_LINES)
}

/// Where line number `index` of a record is: its address, then its content.
const fn entry_offset(index: usize) -> usize {
    if index < FIRST_LINES {
        return HEADER_BYTES + index * ENTRY_BYTES;
    }
    let rest = index - FIRST_LINES;
    (1 + rest / MORE_LINES) * SECTOR_BYTES + rest % MORE_LINES * ENTRY_BYTES
}

/// A reader's view of one sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sector {
    New,
    Old,
    Damaged,
}

/// The tag of `sector`, and whether its checksum fits.
fn seal_of(sector: &[u8]) -> (u32, bool) {
    let word = |at: usize| {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&sector[at..at + 4]);
        u32::from_le_bytes(bytes)
    };
    (word(CONTENT_BYTES), word(CONTENT_BYTES + 4) == crc32c::crc32c(&sector[..CONTENT_BYTES + 4]))
}

/// Which kind of sector this is at a place where `tag` is to be; `first_lap`: zeroes are a place never written.
fn judge(sector: &[u8], tag: u32, first_lap: bool) -> Sector {
    match seal_of(sector) {
        (found, true) if found == tag => Sector::New,
        (_, true) => Sector::Old,
        _ if first_lap && sector.iter().all(|byte| *byte == 0) => Sector::Old,
        _ => Sector::Damaged,
    }
}

/// Makes `sector` one of no life when a reader would call it damaged; `first_lap` as in [`judge`]. Returns whether it
/// was.
pub(crate) fn void_if_damaged(sector: &mut [u8], salt: &Salt, first_lap: bool) -> bool {
    let is_damaged = judge(sector, salt.first, first_lap) == Sector::Damaged;
    if is_damaged {
        sector.fill(0);
        seal(sector, !salt.first, crc32c::crc32c(&[0; CONTENT_BYTES]));
    }
    is_damaged
}

/// Puts tag and checksum at the end of `sector`; returns the checksum.
fn seal(sector: &mut [u8], tag: u32, content_crc: u32) -> u32 {
    let crc = crc32c::crc32c_append(content_crc, tag.as_bytes());
    sector[CONTENT_BYTES..CONTENT_BYTES + 4].copy_from_slice(tag.as_bytes());
    sector[CONTENT_BYTES + 4..].copy_from_slice(crc.as_bytes());
    crc
}

/// A group's record: gathered line by line, then sealed for its place.
#[derive(Debug, Default)]
pub(crate) struct Record {
    bytes: Vec<u8>,
    lines: usize,
}

impl Record {
    /// Adds a line. The order does not matter: each line occurs once in a group.
    #[inline]
    pub(crate) fn push(&mut self, addr: u64, line: &[u64; 8]) {
        self.push_entry(addr, line.as_bytes());
    }

    /// As [`push`](Self::push), with the bytes of the line.
    pub(crate) fn push_bytes(&mut self, line: LineAddr, bytes: &[u8]) {
        self.push_entry(line.start().to_raw(), bytes);
    }

    #[inline]
    fn push_entry(&mut self, addr: u64, bytes: &[u8]) {
        let at = entry_offset(self.lines);
        let end = (at / SECTOR_BYTES + 1) * SECTOR_BYTES;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..at + 8].copy_from_slice(addr.as_bytes());
        self.bytes[at + 8..at + ENTRY_BYTES].copy_from_slice(bytes);
        self.lines += 1;
    }

    /// Takes the lines out for which `is_such`.
    pub(crate) fn drop_lines(&mut self, is_such: impl Fn(LineAddr) -> bool) {
        if !self.entries().any(|(line, _)| is_such(line)) {
            return;
        }
        let mut kept = Self::default();
        self.entries().filter(|(line, _)| !is_such(*line)).for_each(|(line, bytes)| kept.push_bytes(line, bytes));
        *self = kept;
    }

    /// Bytes in the ring.
    pub(crate) fn len(&self) -> u64 {
        to_u64(record_bytes(self.lines))
    }

    /// Number of lines.
    pub(crate) fn lines(&self) -> u64 {
        to_u64(self.lines)
    }

    /// As it is in the ring, once sealed.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Makes it the record of `group` at `position` in the journal of `life`.
    pub(crate) fn seal(&mut self, life: &Life, position: u64, group: u64) {
        self.bytes.resize(record_bytes(self.lines), 0);
        let (used, zeroes) = (sectors(self.lines), crc32c::crc32c(&[0; CONTENT_BYTES]));
        let (first, more) = self.bytes.split_at_mut(SECTOR_BYTES);
        let mut more_crc = crc32c::crc32c(life.salt.as_bytes());
        for (index, sector) in (1..).zip(more.chunks_exact_mut(SECTOR_BYTES)) {
            let tag = life.tag(position + to_u64(index * SECTOR_BYTES), false);
            if index < used {
                let content_crc = crc32c::crc32c(&sector[..CONTENT_BYTES]);
                more_crc = crc32c::crc32c_append(more_crc, seal(sector, tag, content_crc).as_bytes());
            } else {
                // Sealed as well: from the second lap on no place of the ring holds plain zeroes.
                seal(sector, tag, zeroes);
            }
        }
        let header = RecordHeader {
            magic: MAGIC,
            generation: life.generation,
            position,
            group,
            lines: to_u64(self.lines),
            reserved: [0; 2],
            padding: 0,
            more_crc,
        };
        first[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        let content_crc = crc32c::crc32c(&first[..CONTENT_BYTES]);
        seal(first, life.tag(position, true), content_crc);
    }

    /// Addresses and contents of the lines, in the order of the record.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (LineAddr, &[u8])> {
        (0..self.lines).map(|index| {
            let entry = &self.bytes[entry_offset(index)..][..ENTRY_BYTES];
            let mut word = [0; 8];
            word.copy_from_slice(&entry[..8]);
            (PmAddr::from_raw(u64::from_le_bytes(word)).line(), &entry[8..])
        })
    }
}

/// The state of a first sector.
#[derive(Clone, Debug)]
pub(crate) enum First {
    /// A record begins here.
    Record(RecordHeader),
    /// No record of this life was begun here.
    Nothing,
    /// The medium changed it.
    Damaged,
}

/// Reads the first sector at `position` of a ring of `ring_bytes`, where group `group` of `life` is to be.
pub(crate) fn read_first(sector: &[u8], life: &Life, position: u64, group: u64, ring_bytes: u64) -> First {
    match judge(sector, life.tag(position, true), position < ring_bytes) {
        Sector::Old => First::Nothing,
        Sector::Damaged => First::Damaged,
        Sector::New => match header_in(sector) {
            Some(header) if header.fits(life, position, group, ring_bytes) => First::Record(header),
            _ => First::Damaged,
        },
    }
}

/// The header of an intact first sector of `life`, wherever in the ring it is; `None` for anything else.
pub(crate) fn read_any_first(sector: &[u8], life: &Life) -> Option<RecordHeader> {
    let header = header_in(sector)?;
    let fits = header.magic == MAGIC && header.generation == life.generation;
    (fits && judge(sector, life.tag(header.position, true), false) == Sector::New).then_some(header)
}

/// Whether a record of any life begins with this sector.
pub(crate) fn is_first_of_any_life(sector: &[u8]) -> bool {
    header_in(sector).is_some_and(|header| header.magic == MAGIC) && seal_of(sector).1
}

fn header_in(sector: &[u8]) -> Option<RecordHeader> {
    RecordHeader::read_from_prefix(sector).ok().map(|(header, _)| header)
}

impl RecordHeader {
    fn fits(&self, life: &Life, position: u64, group: u64, ring_bytes: u64) -> bool {
        self.magic == MAGIC
            && self.generation == life.generation
            && (self.position, self.group) == (position, group)
            && self.lines <= lines_max(ring_bytes)
            && self.len() <= ring_bytes
    }

    /// Bytes in the ring.
    pub(crate) fn len(&self) -> u64 {
        to_u64(record_bytes(usize::try_from(self.lines).unwrap_or_default()))
    }
}

/// The state of a whole record.
#[derive(Debug)]
pub(crate) enum Whole {
    /// All of it is there.
    Record(Record),
    /// It was being written when a crash came, and never acknowledged.
    Unfinished,
    /// The medium changed it.
    Damaged,
}

/// Judges the sectors of the record that begins with `header`, which fits its place; `bytes` is all of it.
pub(crate) fn read_whole(bytes: Vec<u8>, header: &RecordHeader, life: &Life, ring_bytes: u64) -> Whole {
    let lines = usize::try_from(header.lines).unwrap_or_default();
    let mut more_crc = crc32c::crc32c(life.salt.as_bytes());
    let mut unfinished = false;
    for (index, sector) in bytes.chunks_exact(SECTOR_BYTES).enumerate().take(sectors(lines)).skip(1) {
        let position = header.position + to_u64(index * SECTOR_BYTES);
        match judge(sector, life.tag(position, false), position < ring_bytes) {
            Sector::New => more_crc = crc32c::crc32c_append(more_crc, &sector[CONTENT_BYTES + 4..]),
            Sector::Old => unfinished = true,
            Sector::Damaged => return Whole::Damaged,
        }
    }
    if unfinished {
        return Whole::Unfinished;
    }
    if more_crc == header.more_crc { Whole::Record(Record { bytes, lines }) } else { Whole::Damaged }
}

/// An empty sector to read into.
pub(crate) const fn blank_sector() -> [u8; SECTOR_BYTES] {
    [0; SECTOR_BYTES]
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Life = Life { generation: 5, salt: Salt { first: 0x1234_5678, more: 0x9ABC_DEF0, whole: 7 } };
    const RING: u64 = 64 << 10;

    fn record(lines: u64) -> Record {
        let mut record = Record::default();
        (0..lines).for_each(|line| record.push(line * 64, &[line; 8]));
        record.seal(&LIFE, 3 * RING, 9);
        record
    }

    #[test]
    fn records_of_every_length_come_back() {
        for lines in 0..=lines_max(4 * UNIT_BYTES) {
            let sealed = record(lines);
            assert!(sealed.len().is_multiple_of(UNIT_BYTES) && sealed.len() <= 4 * UNIT_BYTES);
            let First::Record(header) = read_first(&sealed.bytes[..SECTOR_BYTES], &LIFE, 3 * RING, 9, RING) else {
                panic!("{lines} lines: no first sector");
            };
            assert_eq!(header.len(), sealed.len());
            let Whole::Record(back) = read_whole(sealed.bytes, &header, &LIFE, RING) else { panic!("{lines} lines") };
            let found: Vec<_> = back.entries().map(|(line, bytes)| (line.start().to_raw(), bytes[8])).collect();
            assert_eq!(found, (0..lines).map(|line| (line * 64, line as u8)).collect::<Vec<_>>());
        }
        assert_eq!(record(lines_max(4 * UNIT_BYTES) + 1).len(), 5 * UNIT_BYTES);
    }

    #[test]
    fn every_flipped_bit_of_a_sector_with_lines_is_damage() {
        let sealed = record(30);
        for bit in 0..sectors(30) * SECTOR_BYTES * 8 {
            let mut bytes = sealed.bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let First::Record(header) = read_first(&bytes[..SECTOR_BYTES], &LIFE, 3 * RING, 9, RING) else {
                assert!(bit < SECTOR_BYTES * 8);
                continue;
            };
            assert!(bit >= SECTOR_BYTES * 8, "bit {bit} of the first sector");
            assert!(matches!(read_whole(bytes, &header, &LIFE, RING), Whole::Damaged), "bit {bit}");
        }
    }

    #[test]
    fn sectors_of_another_lap_or_life_make_it_unfinished() {
        let sealed = record(30);
        let mut earlier = record(30);
        earlier.seal(&LIFE, 2 * RING, 8);
        let other = Life { generation: 6, salt: Salt { first: 1, more: 2, whole: 3 } };
        let mut foreign = record(30);
        foreign.seal(&other, 3 * RING, 9);
        for old in [&earlier, &foreign] {
            for sector in 1..sectors(30) {
                let mut bytes = sealed.bytes.clone();
                let place = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
                bytes[place.clone()].copy_from_slice(&old.bytes[place]);
                let First::Record(header) = read_first(&bytes[..SECTOR_BYTES], &LIFE, 3 * RING, 9, RING) else {
                    panic!("the first sector is new");
                };
                assert!(matches!(read_whole(bytes, &header, &LIFE, RING), Whole::Unfinished), "sector {sector}");
            }
            let first = &old.bytes[..SECTOR_BYTES];
            assert!(matches!(read_first(first, &LIFE, 3 * RING, 9, RING), First::Nothing));
        }
        let zeroes = blank_sector();
        assert!(matches!(read_first(&zeroes, &LIFE, 3 * RING, 9, RING), First::Damaged), "written in an earlier lap");
        assert!(matches!(read_first(&zeroes, &LIFE, RING - UNIT_BYTES, 9, RING), First::Nothing));
    }

    #[test]
    fn no_content_is_taken_for_the_beginning_of_a_record() {
        // Lines that are a copy of a record, at every distance to the beginning of a sector.
        let forged = record(3);
        let mut record = Record::default();
        for line in 0..200 {
            let mut words = [0; 8];
            for (index, word) in words.iter_mut().enumerate() {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&forged.bytes[(line * 64 + index * 8) % SECTOR_BYTES..][..8]);
                *word = u64::from_le_bytes(bytes);
            }
            record.push(line as u64 * 64, &words);
        }
        record.seal(&LIFE, RING, 4);
        for sector in record.bytes.chunks_exact(SECTOR_BYTES).skip(1) {
            assert!(read_any_first(sector, &LIFE).is_none() && !is_first_of_any_life(sector));
        }
    }
}
