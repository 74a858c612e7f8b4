//! The journal of the block domain on the device: header pages, ring, scan.
//!
//! The area is two header pages of 4 KiB and a ring of 4 KiB units. A commit group is one [`record`]. Records start at
//! a unit, so that writing one never rewrites a sector of an acknowledged one. Positions grow for ever (the place in
//! the ring is the position modulo its length).
//!
//! 1. The *header* is in both pages, by the rules of a [`Mirror`]. A change writes one page durably and then the other,
//!    before a byte that the old header leads to may be overwritten. So the newer intact page leads to all records that
//!    are not in the parts, and one damaged page loses nothing.
//! 2. Every open for writing makes a new *life*: a random generation and a random salt, both in the header. Records of
//!    any other life are void, so only records that a header names count.
//! 3. *Scan* walks from the tail until there is no further record.
//! 4. The header of a pool that was closed, or replayed and not written since, says so: then nothing is after the tail.
//!
//! **Where the records end.** One record is in flight at a time. So:
//!
//! - a record whose successor was begun was acknowledged. If it is not intact, and the beginning of a later record of
//!   this life is anywhere in the ring, acknowledged data is damaged: the scan refuses;
//! - a last record that is a mixture of new and old sectors was cut short by a crash. It was never acknowledged,
//!   because an acknowledgement comes after all of its sectors are durable. The scan ends before it and says so
//!   (`unfinished`);
//! - a last record with a damaged sector may have been acknowledged. The scan refuses.
//!
//! **The one case that is left.** The medium may take back the *first sector* of the last record as a whole, to its
//! content before. Then the record looks as if it was never begun. If it takes back another sector instead, the record
//! looks unfinished, and the report of the open says so. No content of that record can prove more. Only bytes written
//! after its sync can, which are the next record. For a pool that falls silent the background thread writes an empty
//! record (see `checkpoint`). So the case needs a medium that loses whole sectors of a synced write within half a
//! second before a crash.
//!
//! Scanning is linear: each record once, and the first sector of each unit once.

use std::path::Path;

use lodestone_width::{to_u64, to_usize};
use rustix::rand::{GetRandomFlags, getrandom};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::record::{self, First, Life, Record, RecordHeader, Salt, UNIT_BYTES, Whole};
use crate::counters;
use crate::error::{Error, Result};
use crate::pool::layout::crc_of;
use crate::pool::mirror::{Line, Mirror, Slot};
use crate::storage::{SECTOR_BYTES, Storage, read_all, write_all};

/// Two header pages precede the ring.
pub(crate) const HEADERS_BYTES: u64 = 2 * UNIT_BYTES;
/// Smallest useful journal: headers and a ring of 16 units.
pub(crate) const JOURNAL_BYTES_MIN: u64 = HEADERS_BYTES + 16 * UNIT_BYTES;
const HEADER_MAGIC: u64 = u64::from_le_bytes(*b"LODEJHDR");
/// Sequences, groups and positions above it are damage: at a gigabyte a second, positions get there after a century.
const COUNT_MAX: u64 = 1 << 62;
/// Bytes of the ring that are read at a time in the search for later records.
const SEARCH_BYTES: u64 = 64 * UNIT_BYTES;

/// A header page of the journal: a line of a [`Mirror`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct JournalHeader {
    magic: u64,
    sequence: u64,
    generation: u64,
    /// Position of the first record that is not yet in the parts.
    pub(crate) tail: u64,
    /// Group number of that record.
    pub(crate) group: u64,
    salt: Salt,
    /// 1: no record is after the tail, and none will be before the next life writes a header.
    closed: u32,
    crc: u32,
}

impl JournalHeader {
    /// The header that says `state`; not sealed yet.
    fn new(state: &JournalState) -> Self {
        Self {
            magic: HEADER_MAGIC,
            sequence: 0,
            generation: state.life.generation,
            tail: state.tail,
            group: state.group,
            salt: state.life.salt,
            closed: u32::from(state.closed),
            crc: 0,
        }
    }

    /// Whether no record is after the tail.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed != 0
    }

    /// The life whose records count.
    pub(crate) fn life(&self) -> Life {
        Life { generation: self.generation, salt: self.salt }
    }
}

impl Line for JournalHeader {
    const SEQUENCE_MAX: u64 = COUNT_MAX;
    fn sequence(&self) -> u64 {
        self.sequence
    }
    fn crc(&self) -> u32 {
        self.crc
    }
    fn seal(&mut self, sequence: u64) {
        self.sequence = sequence;
        self.crc = crc_of(self);
    }
    fn is_plausible(&self) -> bool {
        self.magic == HEADER_MAGIC
            && self.sequence <= COUNT_MAX
            && (1..=COUNT_MAX).contains(&self.group)
            && self.tail <= COUNT_MAX
            && self.tail.is_multiple_of(UNIT_BYTES)
            && self.closed <= 1
    }
}

/// The content of a header page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JournalState {
    pub(crate) life: Life,
    pub(crate) tail: u64,
    pub(crate) group: u64,
    pub(crate) closed: bool,
}

/// A life that no header has named before.
pub(crate) fn new_life(path: &Path) -> Result<Life> {
    loop {
        let mut bytes = [0_u8; 24];
        let mut filled = 0;
        while filled < bytes.len() {
            filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())
                .map_err(|e| Error::io(path, "asking the kernel for random bytes", "try again", e))?;
        }
        let (generation, rest) = bytes.split_at(8);
        let mut word = [0; 8];
        word.copy_from_slice(generation);
        let salt = Salt::read_from_bytes(rest).unwrap_or_default();
        // A first sector must never pass for another one.
        if salt.first != salt.more {
            return Ok(Life { generation: u64::from_le_bytes(word), salt });
        }
    }
}

/// One thing wrong with a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JournalFinding {
    /// In part 0.
    pub(crate) offset: u64,
    pub(crate) finding: String,
    /// Nothing is wrong: a crash left it, and the next open for writing puts it in order.
    pub(crate) is_note: bool,
}

/// Why a walk came to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum End {
    /// No further record was begun, as far as its place tells.
    #[default]
    Nothing,
    /// A crash cut the next record short.
    Unfinished,
    /// The medium changed the next record.
    Damaged,
}

/// Where the records of a journal end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalEnd {
    /// Position after the last record.
    pub(crate) position: u64,
    /// Number of the next group.
    pub(crate) group: u64,
    /// Records found.
    pub(crate) records: u64,
    /// Lines in them.
    pub(crate) lines: u64,
    /// Position of the last record; of no meaning without records.
    pub(crate) last: u64,
    /// The finding at `position`.
    pub(crate) end: End,
}

enum Found {
    Record(Record),
    End(End),
}

/// The journal area of a pool.
#[derive(Debug)]
pub(crate) struct JournalArea<'s> {
    pub(crate) path: &'s Path,
    pub(crate) storage: &'s dyn Storage,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl JournalArea<'_> {
    pub(crate) fn ring_bytes(&self) -> u64 {
        self.bytes / UNIT_BYTES * UNIT_BYTES - HEADERS_BYTES
    }

    /// Offset in part 0 of what is at `position`.
    pub(crate) fn place(&self, position: u64) -> u64 {
        self.offset + HEADERS_BYTES + position % self.ring_bytes()
    }

    fn io(&self, action: &'static str, source: std::io::Error) -> Error {
        Error::io(self.path, action, "check the device; what was acknowledged before is in the journal", source)
    }

    fn damaged(&self, offset: u64, finding: String) -> Error {
        Error::Format {
            path: self.path.to_owned(),
            offset,
            finding,
            expected: "an intact journal".into(),
            hint: "acknowledged data may be lost: restore a backup, or accept the loss with `lodestone pool repair \
                   --accept-journal-loss`"
                .into(),
        }
    }

    /// Both header pages, damaged or not.
    fn headers(&self) -> Result<Mirror<JournalHeader>> {
        let mut found = [JournalHeader::default(); 2];
        for (page, header) in (0..).zip(&mut found) {
            read_all(self.storage, header.as_mut_bytes(), self.offset + page * UNIT_BYTES)
                .map_err(|source| self.io("reading the journal header", source))?;
        }
        Ok(Mirror::of(found))
    }

    /// The newest intact header page; `None` when the area was never used (all zeroes).
    ///
    /// # Errors
    /// When both pages are damaged, or blank before a ring that was used.
    pub(crate) fn read_header(&self) -> Result<Option<JournalHeader>> {
        let headers = self.headers()?;
        if let Some((newest, _)) = headers.newest() {
            return Ok(Some(newest));
        }
        if headers.slots != [Slot::Empty; 2] {
            return Err(self.damaged(self.offset, "both journal headers are damaged".into()));
        }
        match self.search(|_, sector| record::is_first_of_any_life(sector).then_some(()))? {
            None => Ok(None),
            Some(()) => {
                Err(self.damaged(self.offset, "both journal headers are blank, and the ring holds records".into()))
            }
        }
    }

    /// The header to scan from; `None` when no record is after its tail, or the area was never used.
    ///
    /// # Errors
    /// As [`read_header`](Self::read_header).
    pub(crate) fn start(&self) -> Result<Option<JournalHeader>> {
        Ok(self.read_header()?.filter(|header| !header.is_closed()))
    }

    /// Makes `state` the state of the journal, durably, in both pages.
    ///
    /// # Errors
    /// When the device fails, or the numbers are at their end: no reader would believe such a header. Both pages
    /// stay as they are.
    pub(crate) fn write_header(&self, state: &JournalState) -> Result<()> {
        let (header, pages) = self.headers()?.next(JournalHeader::new(state));
        if !header.is_plausible() {
            let JournalHeader { tail, group, .. } = header;
            let finding = format!("tail {tail} or group {group} is more than any pool lives");
            return Err(self.damaged(self.offset, finding));
        }
        self.write_pages(&header, pages)
    }

    /// Writes `header` into both pages in this order.
    fn write_pages(&self, header: &JournalHeader, pages: [usize; 2]) -> Result<()> {
        let mut bytes = vec![0; to_usize(UNIT_BYTES)];
        bytes[..size_of::<JournalHeader>()].copy_from_slice(header.as_bytes());
        // The older page is first: a torn write leaves the newest one, and records it leads to are not overwritten
        // before the second page is durable as well.
        for page in pages {
            counters::bump(&counters::local().syncs, 1);
            write_all(self.storage, &bytes, self.offset + to_u64(page) * UNIT_BYTES, true)
                .map_err(|source| self.io("writing the journal header", source))?;
        }
        Ok(())
    }

    /// Writes `record` at its position and makes it durable.
    pub(crate) fn append(&self, record: &Record, position: u64) -> std::io::Result<()> {
        let local = counters::local();
        counters::bump(&local.journal_bytes, record.len());
        counters::bump(&local.syncs, 1);
        let (ring, bytes) = (self.ring_bytes(), record.bytes());
        let start = position % ring;
        let first = usize::try_from((ring - start).min(record.len())).unwrap_or(usize::MAX);
        let base = self.offset + HEADERS_BYTES;
        if first < bytes.len() {
            // Around the end of the ring: two writes, one sync. Each sector is checked, so half a record never counts.
            write_all(self.storage, &bytes[first..], base, false)?;
            write_all(self.storage, &bytes[..first], base + start, false)?;
            return self.storage.sync();
        }
        write_all(self.storage, bytes, base + start, true)
    }

    fn read_ring(&self, buffer: &mut [u8], position: u64) -> Result<()> {
        let ring = self.ring_bytes();
        let start = position % ring;
        let first = usize::try_from((ring - start).min(to_u64(buffer.len()))).unwrap_or(usize::MAX);
        let base = self.offset + HEADERS_BYTES;
        let (head, rest) = buffer.split_at_mut(first);
        read_all(self.storage, head, base + start).map_err(|source| self.io("reading the journal", source))?;
        read_all(self.storage, rest, base).map_err(|source| self.io("reading the journal", source))
    }

    /// Reads the record at `position`, which should be group `group` of `life`.
    fn read_record(&self, life: &Life, position: u64, group: u64) -> Result<Found> {
        let mut sector = record::blank_sector();
        self.read_ring(&mut sector, position)?;
        let ring = self.ring_bytes();
        let header = match record::read_first(&sector, life, position, group, ring) {
            First::Nothing => return Ok(Found::End(End::Nothing)),
            First::Damaged => return Ok(Found::End(End::Damaged)),
            First::Record(header) => header,
        };
        let mut bytes = vec![0; usize::try_from(header.len()).unwrap_or_default()];
        self.read_ring(&mut bytes, position)?;
        Ok(match record::read_whole(bytes, &header, life, ring) {
            Whole::Record(record) => Found::Record(record),
            Whole::Unfinished => Found::End(End::Unfinished),
            Whole::Damaged => Found::End(End::Damaged),
        })
    }

    /// Walks the records from the tail; passes each to `visit` and returns the end.
    ///
    /// # Errors
    /// When a record that was or may have been acknowledged is damaged, or the device fails.
    pub(crate) fn scan(&self, header: &JournalHeader, visit: impl FnMut(&Record) -> Result<()>) -> Result<JournalEnd> {
        let end = self.walk(header, visit)?;
        let (life, ring, group) = (header.life(), self.ring_bytes(), end.group);
        let later = self.search(|place, sector| {
            record::read_any_first(sector, &life)
                .filter(|found| found.position % ring == place && found.position > end.position)
        })?;
        match (later, end.end) {
            (Some(RecordHeader { group: later, .. }), _) => {
                let what = format!(
                    "the record of group {group} is damaged, and was acknowledged: group {later} was begun after it"
                );
                Err(self.damaged(self.place(end.position), what))
            }
            (None, End::Damaged) => {
                let what = format!(
                    "the record of group {group}, the last one, is damaged: no crash leaves it so, and it may have been acknowledged"
                );
                Err(self.damaged(self.place(end.position), what))
            }
            (None, End::Nothing | End::Unfinished) => Ok(end),
        }
    }

    /// [`scan`](Self::scan) without a verdict on the end.
    pub(crate) fn walk(
        &self,
        header: &JournalHeader,
        mut visit: impl FnMut(&Record) -> Result<()>,
    ) -> Result<JournalEnd> {
        let (life, tail) = (header.life(), header.tail);
        let mut end = JournalEnd { position: tail, group: header.group, ..JournalEnd::default() };
        while end.position - tail < self.ring_bytes() {
            match self.read_record(&life, end.position, end.group)? {
                Found::Record(record) => {
                    visit(&record)?;
                    end.lines += record.lines();
                    end.last = end.position;
                    end.position += record.len();
                    end.group += 1;
                    end.records += 1;
                }
                Found::End(found) => return Ok(JournalEnd { end: found, ..end }),
            }
        }
        Ok(end)
    }

    /// Passes the first sector of each unit, with the unit's place in the ring, to `look` until that finds something.
    fn search<T>(&self, mut look: impl FnMut(u64, &[u8]) -> Option<T>) -> Result<Option<T>> {
        let ring = self.ring_bytes();
        let mut bytes = vec![0; to_usize(SEARCH_BYTES)];
        for start in (0..ring).step_by(to_usize(SEARCH_BYTES)) {
            let step = usize::try_from((ring - start).min(SEARCH_BYTES)).unwrap_or_default();
            self.read_ring(&mut bytes[..step], start)?;
            let units = bytes[..step].chunks_exact(to_usize(UNIT_BYTES));
            let mut places = (start..).step_by(to_usize(UNIT_BYTES));
            if let Some(found) = units.zip(&mut places).find_map(|(unit, place)| look(place, &unit[..SECTOR_BYTES])) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Writes the record at the end of `end` again, durably.
    ///
    /// After a write that failed the page cache may show a record that the device does not have and that no sync
    /// writes.
    pub(crate) fn rewrite_last(&self, life: &Life, end: &JournalEnd) -> Result<()> {
        if let Found::Record(record) = self.read_record(life, end.last, end.group - 1)? {
            self.append(&record, end.last).map_err(|source| self.io("syncing the journal", source))?;
        }
        Ok(())
    }

    /// Makes each damaged sector of the ring one that no life wrote, durably. The next record is to be at `next`.
    ///
    /// A record that a crash cuts short leaves some sectors as they were, and the scan refuses one that was damaged
    /// before as if the medium had changed it since.
    pub(crate) fn void_damaged(&self, life: &Life, next: u64) -> Result<()> {
        let ring = self.ring_bytes();
        let mut bytes = vec![0; to_usize(SEARCH_BYTES)];
        for start in (0..ring).step_by(to_usize(SEARCH_BYTES)) {
            let step = usize::try_from((ring - start).min(SEARCH_BYTES)).unwrap_or_default();
            self.read_ring(&mut bytes[..step], start)?;
            for (place, sector) in (start..).step_by(SECTOR_BYTES).zip(bytes[..step].chunks_exact_mut(SECTOR_BYTES)) {
                // Zeroes are in order where the next record to be written is the first one there.
                if record::void_if_damaged(sector, &life.salt, next <= place) {
                    write_all(self.storage, sector, self.place(place), false)
                        .map_err(|source| self.io("writing the journal", source))?;
                }
            }
        }
        counters::bump(&counters::local().syncs, 1);
        self.storage.sync().map_err(|source| self.io("syncing the journal", source))
    }

    /// Findings in the journal. Changes nothing.
    pub(crate) fn check(&self) -> Result<Vec<JournalFinding>> {
        let mut findings = Vec::new();
        let mut add = |offset, finding, is_note| findings.push(JournalFinding { offset, finding, is_note });
        let headers = self.headers()?;
        for (page, header) in (0..).zip(&headers.slots) {
            if !self.is_page_in_order(page, header, &headers)? {
                let finding = format!("journal header page {page} is damaged; the other page says the same");
                add(self.offset + page * UNIT_BYTES, finding, false);
            }
        }
        if headers.slots.iter().all(|slot| matches!(slot, Slot::Intact(_))) && !headers.is_at_rest() {
            let finding = "the journal header pages differ: a crash came between their writes".into();
            add(self.offset, finding, true);
        }
        let scanned = match self.start() {
            Ok(None) => Ok(JournalEnd::default()),
            Ok(Some(header)) => self.scan(&header, |_| Ok(())),
            Err(error) => Err(error),
        };
        match scanned {
            Ok(JournalEnd { end: End::Unfinished, position, group, .. }) => {
                let finding =
                    format!("group {group} was being written at the crash and was not acknowledged; it is not applied");
                add(self.place(position), finding, true);
            }
            Err(Error::Format { offset, finding, .. }) => add(offset, finding, false),
            other => drop(other?),
        }
        Ok(findings)
    }

    /// Whether header page number `page` is intact with zeroes after it, or was never written.
    fn is_page_in_order(
        &self,
        page: u64,
        header: &Slot<JournalHeader>,
        headers: &Mirror<JournalHeader>,
    ) -> Result<bool> {
        let mut bytes = vec![0; to_usize(UNIT_BYTES)];
        read_all(self.storage, &mut bytes, self.offset + page * UNIT_BYTES)
            .map_err(|source| self.io("reading the journal header", source))?;
        let is_blank = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        // Before the first header is whole, the other page is blank.
        let is_fresh = headers.newest().is_none_or(|(newest, _)| newest.sequence <= 1) && is_blank(&bytes);
        Ok(is_fresh || matches!(header, Slot::Intact(_)) && is_blank(&bytes[size_of::<JournalHeader>()..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::SimulatedDisk;

    const LIFE: Life = Life { generation: 5, salt: Salt { first: 11, more: 22, whole: 33 } };

    /// A disk with a ring that an earlier life filled.
    fn used_disk() -> Result<SimulatedDisk> {
        let disk = SimulatedDisk::new(vec![0; 1 << 20]);
        let life = Life { generation: 4, salt: Salt { first: 9, more: 8, whole: 7 } };
        for position in (0..area(&disk).ring_bytes()).step_by(UNIT_BYTES as usize) {
            area(&disk).append(&record(&life, position, 1, 50), position).expect("room");
        }
        Ok(disk)
    }

    fn area(disk: &SimulatedDisk) -> JournalArea<'_> {
        JournalArea { path: Path::new("test.pool"), storage: disk, offset: 4096, bytes: JOURNAL_BYTES_MIN }
    }

    fn state(life: Life, tail: u64, group: u64) -> JournalState {
        JournalState { life, tail, group, closed: false }
    }

    fn record(life: &Life, position: u64, group: u64, lines: u64) -> Record {
        let mut record = Record::default();
        (0..lines).for_each(|line| record.push(0x10_0000 + line * 64, &[group; 8]));
        record.seal(life, position, group);
        record
    }

    /// Records of groups 11 to 10 + `groups`, around the end of the ring; their positions.
    fn fill(area: &JournalArea<'_>, groups: u64) -> Result<Vec<u64>> {
        let mut position = 60 * 4096;
        area.write_header(&state(LIFE, position, 11))?;
        let mut starts = Vec::new();
        for group in 11..11 + groups {
            let record = record(&LIFE, position, group, 1 + (group - 11) * 40 % 90);
            area.append(&record, position).expect("the disk is large enough");
            starts.push(position);
            position += record.len();
        }
        Ok(starts)
    }

    #[test]
    fn records_come_back_in_order_and_around_the_end_of_the_ring() -> Result<()> {
        let disk = used_disk()?;
        let area = area(&disk);
        fill(&area, 8)?;
        let header = area.read_header()?.expect("written");
        let mut seen = Vec::new();
        let end = area.scan(&header, |record| {
            seen.push(record.entries().map(|(_, line)| line[0]).collect::<Vec<_>>());
            Ok(())
        })?;
        assert_eq!((end.records, end.group, seen.len()), (8, 19, 8));
        assert!(seen.iter().zip(11..).all(|(lines, group)| lines.iter().all(|byte| *byte == group)));
        Ok(())
    }

    #[test]
    fn every_damaged_record_is_told_the_last_one_too() -> Result<()> {
        let disk = used_disk()?;
        let area = area(&disk);
        let starts = fill(&area, 5)?;
        let header = area.read_header()?.expect("written");
        for (index, start) in starts.iter().enumerate() {
            for byte in [0, 9, 17, 25, 33, 60, 64, 70, 140, 505, 510] {
                let place = area.place(start + byte);
                let mut old = [0];
                read_all(&disk, &mut old, place).expect("inside");
                write_all(&disk, &[old[0] ^ 0x40], place, true).expect("inside");
                let text = area.scan(&header, |_| Ok(())).expect_err("damage").to_string();
                let verdict = if index == 4 { "may have been acknowledged" } else { "was acknowledged" };
                assert!(text.contains(verdict) && text.contains(&format!("group {}", 11 + index)), "{text}");
                assert_eq!(area.check()?.len(), 1);
                write_all(&disk, &old, place, true).expect("inside");
            }
        }
        assert_eq!(area.scan(&header, |_| Ok(()))?.records, 5);
        Ok(())
    }

    #[test]
    fn a_record_that_a_crash_cut_short_is_an_end_and_is_told() -> Result<()> {
        for kept in 0..8 {
            let disk = used_disk()?;
            let area = area(&disk);
            let starts = fill(&area, 2)?;
            // 46 lines fill seven sectors.
            let torn = record(&LIFE, starts[1] + 4096, 13, 46);
            let survivors: Vec<u8> = torn.bytes()[..SECTOR_BYTES * kept].to_vec();
            write_all(&disk, &survivors, area.place(starts[1] + 4096), true).expect("inside");
            let end = area.scan(&area.read_header()?.expect("written"), |_| Ok(()))?;
            let (records, found) = match kept {
                0 => (2, End::Nothing),
                7 => (3, End::Nothing),
                _ => (2, End::Unfinished),
            };
            assert_eq!((end.records, end.end), (records, found), "{kept} sectors");
            assert!(area.check()?.iter().all(|found| found.is_note && found.finding.contains("group 13")));
        }
        Ok(())
    }

    #[test]
    fn one_damaged_header_page_loses_nothing() -> Result<()> {
        for page in 0..2 {
            let disk = used_disk()?;
            let area = area(&disk);
            fill(&area, 4)?;
            assert_eq!(area.check()?, []);
            // A new life with a record of its own.
            let end = area.scan(&area.read_header()?.expect("written"), |_| Ok(()))?;
            let life = new_life(Path::new("test.pool"))?;
            area.write_header(&state(life, end.position, end.group))?;
            area.append(&record(&life, end.position, end.group, 1), end.position).expect("room");
            write_all(&disk, &[0xFF; 8], area.offset + page * UNIT_BYTES + 20, true).expect("inside");
            let header = area.read_header()?.expect("the other page");
            assert_eq!((header.life(), header.tail), (life, end.position));
            assert_eq!(area.scan(&header, |_| Ok(()))?.records, 1);
            let found = area.check()?;
            assert!(found.len() == 1 && !found[0].is_note, "{found:?}");
            write_all(&disk, &[0xFF; 8], area.offset + (1 - page) * UNIT_BYTES + 20, true).expect("inside");
            let text = area.read_header().expect_err("no page is left").to_string();
            assert!(text.contains("both journal headers are damaged"), "{text}");
        }
        Ok(())
    }

    #[test]
    fn a_header_with_values_that_no_life_reaches_is_damaged() -> Result<()> {
        let beyond = COUNT_MAX + UNIT_BYTES;
        for (tail, group) in [(0, 0), (0, beyond), (0, u64::MAX), (beyond, 5), (4095, 5), (u64::MAX, 5)] {
            let disk = SimulatedDisk::new(vec![0; 1 << 20]);
            let area = area(&disk);
            assert!(area.write_header(&state(LIFE, tail, group)).is_err(), "tail {tail}, group {group}");
            let mut header = JournalHeader::new(&state(LIFE, tail, group));
            header.seal(1);
            area.write_pages(&header, [0, 1])?;
            let text = area.read_header().expect_err("damage").to_string();
            assert!(text.contains("both journal headers are damaged"), "tail {tail}, group {group}: {text}");
        }
        Ok(())
    }

    #[test]
    fn the_numbers_of_headers_begin_again_and_the_newer_page_counts() -> Result<()> {
        let disk = SimulatedDisk::new(vec![0; 1 << 20]);
        let area = area(&disk);
        let mut old = JournalHeader::new(&state(LIFE, 0, 5));
        old.seal(COUNT_MAX);
        area.write_pages(&old, [0, 1])?;
        area.write_header(&state(LIFE, 4096, 6))?;
        let new = area.read_header()?.expect("written");
        assert_eq!((new.sequence, new.tail), (1, 4096));
        for page in 0..2 {
            // A crash came between the two writes.
            area.write_pages(&new, [0, 1])?;
            write_all(&disk, old.as_bytes(), area.offset + page * UNIT_BYTES, true).expect("inside");
            assert_eq!(area.read_header()?, Some(new), "the old header is in page {page}");
            assert!(area.check()?.iter().all(|found| found.is_note), "page {page}");
        }
        Ok(())
    }

    #[test]
    fn records_of_another_life_and_of_a_closed_journal_do_not_count() -> Result<()> {
        let disk = used_disk()?;
        let area = area(&disk);
        let starts = fill(&area, 3)?;
        let salted = Life { salt: Salt { first: 12, ..LIFE.salt }, ..LIFE };
        for life in [Life { generation: 6, ..LIFE }, salted] {
            area.write_header(&state(life, starts[0], 11))?;
            let scanned = area.scan(&area.read_header()?.expect("written"), |_| Ok(()));
            // Of the same place and salt, and another generation: no writer does that.
            assert!(scanned.map_or(life.salt == LIFE.salt, |end| end.records == 0));
        }
        area.write_header(&JournalState { closed: true, ..state(LIFE, starts[0], 11) })?;
        assert_eq!((area.start()?, area.check()?), (None, vec![]));
        Ok(())
    }
}
