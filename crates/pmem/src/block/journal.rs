//! The journal of the block domain on the device: format, scan and replay.
//!
//! Layout of the journal area: two header pages (4 KiB each, written in turn), then a ring of 4 KiB units. A commit
//! group is one record: a 64-byte header, the line addresses, the lines, zeroes up to a multiple of 4 KiB. Records start
//! on a 4 KiB boundary so that writing one never rewrites a sector of an acknowledged one.
//!
//! A record counts when its magic, generation, position, group number and CRC-32C fit. Positions grow for ever (the
//! place in the ring is the position modulo its length), and every open for writing starts a new generation, so bytes of
//! an earlier lap or life are never taken for a record.
//!
//! 1. *Scan* walks from the tail until a record does not fit.
//! 2. One record is in flight at a time, so behind the first misfit no intact record of this generation can exist unless
//!    the misfit was damaged after it was acknowledged: then the scan reports damage instead of an end.
//! 3. *Replay* scans first and writes nothing when that refuses: behind a damaged newest header page the older one leads to records
//!    of lines that may be newer in the parts. Then it syncs the journal, walks again, writes the lines of all records in
//!    order to the parts, syncs them, and only then moves the tail.
//!
//! Replay may crash anywhere and is repeated whole; it reads at most the journal area twice, a record at a time, and writes at most
//! its bytes.

use std::path::Path;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::addr::{LINE_BYTES, LineAddr, PmAddr};
use crate::counters;
use crate::error::{Error, Result};
use crate::storage::{Storage, read_all, write_all};

/// Unit of the ring: records start and end at multiples.
pub(crate) const UNIT_BYTES: u64 = 4096;
/// Two header pages precede the ring.
const HEADERS_BYTES: u64 = 2 * UNIT_BYTES;
/// Smallest useful journal: headers and a ring of 16 units.
pub(crate) const JOURNAL_BYTES_MIN: u64 = HEADERS_BYTES + 16 * UNIT_BYTES;
const HEADER_MAGIC: u64 = u64::from_le_bytes(*b"LODEJHDR");
const RECORD_MAGIC: u64 = u64::from_le_bytes(*b"LODEJREC");
const ENTRY_BYTES: u64 = 8 + LINE_BYTES;
/// Sequences, groups and positions behind it are damage: at a gigabyte a second, positions get there after a century.
const COUNT_MAX: u64 = 1 << 62;

/// A header page of the journal; the intact one with the larger sequence counts.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct JournalHeader {
    pub(crate) magic: u64,
    pub(crate) sequence: u64,
    /// Life of the pool that writes records now.
    pub(crate) generation: u64,
    /// Position of the first record that is not yet in the parts.
    pub(crate) tail: u64,
    /// Group number of that record.
    pub(crate) group: u64,
    reserved: [u64; 2],
    padding: u32,
    crc: u32,
}

impl JournalHeader {
    /// Whether a writer wrote it: the checksum fits, and no life reaches other values.
    fn is_intact(&self) -> bool {
        self.magic == HEADER_MAGIC
            && self.crc == header_crc(self)
            && self.sequence <= COUNT_MAX
            && (1..=COUNT_MAX).contains(&self.group)
            && self.tail <= COUNT_MAX
            && self.tail.is_multiple_of(UNIT_BYTES)
    }
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RecordHeader {
    magic: u64,
    generation: u64,
    position: u64,
    group: u64,
    lines: u64,
    reserved: [u64; 2],
    padding: u32,
    /// Of the header with this field 0, then everything up to the end of the last unit.
    crc: u32,
}

const RECORD_HEADER_BYTES: u64 = size_of::<RecordHeader>() as u64;
const _: () = assert!(RECORD_HEADER_BYTES == LINE_BYTES, "a record header fills one line");

/// Bytes of the record of a group of `lines` lines.
pub(crate) const fn record_bytes(lines: u64) -> u64 {
    (RECORD_HEADER_BYTES + lines * ENTRY_BYTES).next_multiple_of(UNIT_BYTES)
}

/// A group's record under construction: header, addresses, lines.
#[derive(Debug)]
pub(crate) struct Record {
    bytes: Vec<u8>,
    lines: usize,
}

impl Record {
    /// Lays out the record of `lines` at `position`. `lines` must be ascending in nothing; order does not matter, since
    /// each line occurs once.
    pub(crate) fn encode(generation: u64, position: u64, group: u64, addrs: &[u64], data: &[[u64; 8]]) -> Self {
        assert_eq!(addrs.len(), data.len(), "one address per line");
        let mut bytes = vec![0; record_bytes(addrs.len() as u64) as usize];
        let header_bytes = RECORD_HEADER_BYTES as usize;
        let data_start = header_bytes + addrs.len() * 8;
        bytes[header_bytes..data_start].copy_from_slice(addrs.as_bytes());
        bytes[data_start..data_start + data.len() * LINE_BYTES as usize].copy_from_slice(data.as_bytes());
        let mut header = RecordHeader {
            magic: RECORD_MAGIC,
            generation,
            position,
            group,
            lines: addrs.len() as u64,
            reserved: [0; 2],
            padding: 0,
            crc: 0,
        };
        header.crc = crc32c::crc32c_append(crc32c::crc32c(header.as_bytes()), &bytes[header_bytes..]);
        bytes[..header_bytes].copy_from_slice(header.as_bytes());
        Self { bytes, lines: addrs.len() }
    }

    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Addresses and contents of the lines, in the order of the record.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (LineAddr, &[u8])> {
        let addrs = &self.bytes[RECORD_HEADER_BYTES as usize..][..self.lines * 8];
        let data = &self.bytes[RECORD_HEADER_BYTES as usize + self.lines * 8..];
        addrs.chunks_exact(8).zip(data.chunks_exact(LINE_BYTES as usize)).map(|(addr, line)| {
            let mut word = [0; 8];
            word.copy_from_slice(addr);
            (PmAddr::from_raw(u64::from_le_bytes(word)).line(), line)
        })
    }
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

    fn io(&self, action: &'static str, source: std::io::Error) -> Error {
        Error::io(self.path, action, "check the device; what was acknowledged before is in the journal", source)
    }

    fn damaged(&self, offset: u64, finding: String) -> Error {
        Error::Format {
            path: self.path.to_owned(),
            offset,
            finding,
            expected: "an intact journal".into(),
            hint: "acknowledged data may be lost: restore a backup, or accept the loss with `lodestone pool repair`"
                .into(),
        }
    }

    /// The newest intact header page; `None` when the area was never used (all zeroes).
    pub(crate) fn read_header(&self) -> Result<Option<JournalHeader>> {
        let mut newest: Option<JournalHeader> = None;
        let mut blank = true;
        for slot in 0..2 {
            let mut header = JournalHeader::new_zeroed();
            read_all(self.storage, header.as_mut_bytes(), self.offset + slot * UNIT_BYTES)
                .map_err(|source| self.io("reading the journal header", source))?;
            blank &= header == JournalHeader::new_zeroed();
            if header.is_intact() && newest.is_none_or(|old| header.sequence > old.sequence) {
                newest = Some(header);
            }
        }
        if newest.is_none() && !blank {
            return Err(self.damaged(self.offset, "both journal headers are damaged".into()));
        }
        Ok(newest)
    }

    /// Makes (`generation`, `tail`, `group`) the state of the journal, durably.
    pub(crate) fn write_header(&self, generation: u64, tail: u64, group: u64) -> Result<()> {
        let sequence = self.read_header()?.map_or(0, |old| old.sequence) + 1;
        let mut header = JournalHeader {
            magic: HEADER_MAGIC,
            sequence,
            generation,
            tail,
            group,
            reserved: [0; 2],
            padding: 0,
            crc: 0,
        };
        header.crc = header_crc(&header);
        let mut page = vec![0; UNIT_BYTES as usize];
        page[..size_of::<JournalHeader>()].copy_from_slice(header.as_bytes());
        counters::bump(&counters::local().syncs, 1);
        // Alternating pages: a torn write leaves the other one, which is the state before.
        write_all(self.storage, &page, self.offset + sequence % 2 * UNIT_BYTES, true)
            .map_err(|source| self.io("writing the journal header", source))
    }

    /// Writes `record` at its position and makes it durable.
    pub(crate) fn append(&self, record: &Record, position: u64) -> std::io::Result<()> {
        let local = counters::local();
        counters::bump(&local.journal_bytes, record.len());
        counters::bump(&local.syncs, 1);
        let ring = self.ring_bytes();
        let start = position % ring;
        let first = usize::try_from((ring - start).min(record.len())).unwrap_or(usize::MAX);
        let base = self.offset + HEADERS_BYTES;
        if first < record.bytes.len() {
            // Around the end of the ring: two writes, one sync. The CRC covers both, so half a record never counts.
            write_all(self.storage, &record.bytes[first..], base, false)?;
            write_all(self.storage, &record.bytes[..first], base + start, false)?;
            return self.storage.sync();
        }
        write_all(self.storage, &record.bytes, base + start, true)
    }

    fn read_ring(&self, buffer: &mut [u8], position: u64) -> Result<()> {
        let ring = self.ring_bytes();
        let start = position % ring;
        let first = usize::try_from((ring - start).min(buffer.len() as u64)).unwrap_or(usize::MAX);
        let base = self.offset + HEADERS_BYTES;
        let (head, rest) = buffer.split_at_mut(first);
        read_all(self.storage, head, base + start).map_err(|source| self.io("reading the journal", source))?;
        read_all(self.storage, rest, base).map_err(|source| self.io("reading the journal", source))
    }

    /// The record at `position`, when one of `generation` and group `group` (any, when `None`) stands there intact.
    fn read_record(&self, generation: u64, position: u64, group: Option<u64>) -> Result<Option<(u64, Record)>> {
        let mut header = RecordHeader::new_zeroed();
        self.read_ring(header.as_mut_bytes(), position)?;
        let fits = header.magic == RECORD_MAGIC
            && header.generation == generation
            && header.position == position
            && group.is_none_or(|group| header.group == group)
            && header.lines <= self.ring_bytes() / ENTRY_BYTES
            && record_bytes(header.lines) <= self.ring_bytes();
        if !fits {
            return Ok(None);
        }
        let mut bytes = vec![0; record_bytes(header.lines) as usize];
        self.read_ring(&mut bytes, position)?;
        let crc = header.crc;
        header.crc = 0;
        let body = &bytes[RECORD_HEADER_BYTES as usize..];
        if crc32c::crc32c_append(crc32c::crc32c(header.as_bytes()), body) != crc {
            return Ok(None);
        }
        Ok(Some((header.group, Record { bytes, lines: header.lines as usize })))
    }

    /// The header to scan from; `None` when the area was never used.
    ///
    /// # Errors
    /// As [`read_header`](Self::read_header), and when both pages are blank before a ring that was used.
    pub(crate) fn start(&self) -> Result<Option<JournalHeader>> {
        let header = self.read_header()?;
        if header.is_none() {
            self.refuse_later_records(&JournalHeader::new_zeroed(), 0)?;
        }
        Ok(header)
    }

    /// Empties the journal, damaged or not, of what stands behind its intact records, which must be durable in the parts.
    ///
    /// A power cut in the middle leaves damage, or no record at all: the headers, without which nothing is scanned, go
    /// when the ring is gone.
    pub(crate) fn clear(&self) -> Result<()> {
        if let Ok(Some(header)) = self.read_header() {
            let end = self.walk(&header, |_| Ok(()))?;
            // What was applied, or is older than what stands in the parts, may not be applied by itself when only the records behind it are gone.
            self.write_header(header.generation, end.position, end.group)?;
        }
        let zeroes = vec![0; 1 << 20];
        let end = self.offset + self.bytes;
        let failed = |source| self.io("emptying the journal", source);
        for offset in (self.offset + HEADERS_BYTES..end).step_by(zeroes.len()) {
            let step = (end - offset).min(zeroes.len() as u64) as usize;
            write_all(self.storage, &zeroes[..step], offset, false).map_err(failed)?;
        }
        // No header page may go before the last record: blank pages tell of a journal that was never used.
        self.storage.sync().map_err(failed)?;
        write_all(self.storage, &zeroes[..HEADERS_BYTES as usize], self.offset, true).map_err(failed)
    }

    /// Walks the records from the tail; gives each to `visit` and returns the end.
    ///
    /// # Errors
    /// When a record was damaged after it was acknowledged, or the device fails.
    pub(crate) fn scan(&self, header: &JournalHeader, visit: impl FnMut(&Record) -> Result<()>) -> Result<JournalEnd> {
        let end = self.walk(header, visit)?;
        self.refuse_later_records(header, end.position)?;
        Ok(end)
    }

    /// [`scan`](Self::scan) without a look at what stands behind the end.
    pub(crate) fn walk(
        &self,
        header: &JournalHeader,
        mut visit: impl FnMut(&Record) -> Result<()>,
    ) -> Result<JournalEnd> {
        let (mut position, mut group, mut lines) = (header.tail, header.group, 0);
        while position - header.tail < self.ring_bytes() {
            let Some((_, record)) = self.read_record(header.generation, position, Some(group))? else { break };
            visit(&record)?;
            lines += record.lines as u64;
            position += record.len();
            group += 1;
        }
        Ok(JournalEnd { position, group, records: group - header.group, lines })
    }

    /// Whatever its generation, an intact record with a position behind the end means that something before it was
    /// damaged after it was acknowledged: the record at the end, or the newest header page. Records of earlier laps and
    /// lives lie before the tail.
    fn refuse_later_records(&self, header: &JournalHeader, end: u64) -> Result<()> {
        let Some(found) = self.find_later(header, end, |_| true)? else { return Ok(()) };
        let what = if header.magic == 0 {
            "both journal headers are blank".into()
        } else if self.is_behind(header, &found) {
            "the newest journal header is damaged".into()
        } else {
            format!("the record at position {end} is damaged")
        };
        let place = self.offset + HEADERS_BYTES + end % self.ring_bytes();
        Err(self.damaged(place, format!("{what}, but group {} behind it is intact", found.group)))
    }

    /// The header of an intact record with a position behind `end`, the first in the ring for which `counts`.
    fn find_later(
        &self,
        header: &JournalHeader,
        end: u64,
        counts: impl Fn(&RecordHeader) -> bool,
    ) -> Result<Option<RecordHeader>> {
        let ring = self.ring_bytes();
        for place in (0..ring).step_by(UNIT_BYTES as usize) {
            let mut found = RecordHeader::new_zeroed();
            self.read_ring(found.as_mut_bytes(), place)?;
            let foreign = found.generation != header.generation;
            let later = found.magic == RECORD_MAGIC
                && found.position % ring == place
                && (found.position > end || foreign && found.position == end);
            if later && counts(&found) && self.read_record(found.generation, found.position, None)?.is_some() {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Whether `later`, an intact record behind the end of what `header` leads to, shows that a newer header was written.
    fn is_behind(&self, header: &JournalHeader, later: &RecordHeader) -> bool {
        later.generation != header.generation || later.position - header.tail >= self.ring_bytes()
    }

    /// Gives the records before the damage to `visit`, when they are known to be newer than what stands in the parts: when the header
    /// that leads to them is the newest that was written. With any doubt about that it gives none.
    pub(crate) fn salvage(&self, visit: impl FnMut(&Record) -> Result<()>) -> Result<()> {
        let Ok(Some(header)) = self.read_header() else { return Ok(()) };
        let mut before = JournalHeader::new_zeroed();
        read_all(self.storage, before.as_mut_bytes(), self.offset + (header.sequence + 1) % 2 * UNIT_BYTES)
            .map_err(|source| self.io("reading the journal header", source))?;
        let is_first = header.sequence == 1 && before == JournalHeader::new_zeroed();
        let is_next = before.is_intact() && before.sequence + 1 == header.sequence;
        let end = self.walk(&header, |_| Ok(()))?;
        let newer = self.find_later(&header, end.position, |found| self.is_behind(&header, found))?;
        if (is_first || is_next) && newer.is_none() {
            self.walk(&header, visit)?;
        }
        Ok(())
    }

    /// Damage of the journal that can be seen without changing anything: offset and finding.
    pub(crate) fn check(&self) -> Result<Vec<(u64, String)>> {
        let mut findings = Vec::new();
        for slot in 0..2 {
            let mut page = vec![0; UNIT_BYTES as usize];
            let offset = self.offset + slot * UNIT_BYTES;
            read_all(self.storage, &mut page, offset)
                .map_err(|source| self.io("reading the journal header", source))?;
            let blank = page.iter().all(|byte| *byte == 0);
            let rest_blank = page[size_of::<JournalHeader>()..].iter().all(|byte| *byte == 0);
            let intact = JournalHeader::read_from_prefix(&page).is_ok_and(|(header, _)| header.is_intact());
            if !(blank || intact && rest_blank) {
                findings
                    .push((offset, format!("journal header page {slot} is damaged, or was being written at a crash")));
            }
        }
        let scanned = match self.start() {
            Ok(None) => Ok(()),
            Ok(Some(header)) => self.scan(&header, |_| Ok(())).map(drop),
            Err(error) => Err(error),
        };
        match scanned {
            Err(Error::Format { offset, finding, .. }) => findings.push((offset, finding)),
            other => other?,
        }
        Ok(findings)
    }
}

/// Where the records of a journal end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalEnd {
    /// Position behind the last record.
    pub(crate) position: u64,
    /// Number of the next group.
    pub(crate) group: u64,
    /// Records found.
    pub(crate) records: u64,
    /// Lines in them.
    pub(crate) lines: u64,
}

fn header_crc(header: &JournalHeader) -> u32 {
    let bytes = header.as_bytes();
    crc32c::crc32c(&bytes[..bytes.len() - 4])
}

/// Refuses a record with lines outside the parts, which have `part_bytes`.
pub(crate) fn verify_lines(record: &Record, part_bytes: &[u64], path: &Path) -> Result<()> {
    for (line, _) in record.entries() {
        let at = line.start();
        let refused = |finding, expected, hint: &str| {
            Err(Error::Format { path: path.to_owned(), offset: 0, finding, expected, hint: hint.into() })
        };
        let Some(len) = part_bytes.get(usize::from(at.part())) else {
            let finding = format!("a journal record names part {}", at.part());
            return refused(finding, format!("{} parts", part_bytes.len()), "open the pool with all its parts");
        };
        if at.offset().checked_add(LINE_BYTES).is_none_or(|end| end > *len) {
            let finding = format!("the journal holds {line:?}, and part {} has {len} bytes", at.part());
            return refused(finding, "lines inside the parts".into(), "the file was truncated: restore a backup");
        }
    }
    Ok(())
}

/// Writes the lines of `record`, which must be verified, to the parts; not synced.
pub(crate) fn apply(record: &Record, parts: &[std::sync::Arc<dyn Storage>], path: &Path) -> Result<()> {
    for (line, bytes) in record.entries() {
        let at = line.start();
        write_all(parts[usize::from(at.part())].as_ref(), bytes, at.offset(), false).map_err(|source| {
            Error::io(path, "replaying the journal", "free space on the device, then open again", source)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::SimulatedDisk;

    fn area(disk: &SimulatedDisk) -> JournalArea<'_> {
        JournalArea { path: Path::new("test.pool"), storage: disk, offset: 4096, bytes: JOURNAL_BYTES_MIN }
    }

    fn fill(area: &JournalArea<'_>, groups: u64) -> Result<Vec<u64>> {
        area.write_header(5, 60 * 4096, 11)?;
        let mut position = 60 * 4096;
        let mut starts = Vec::new();
        for group in 0..groups {
            let lines = 1 + group * 40 % 90;
            let addrs: Vec<u64> = (0..lines).map(|i| 0x10_0000 + i * 64).collect();
            let data = vec![[group; 8]; lines as usize];
            let record = Record::encode(5, position, 11 + group, &addrs, &data);
            area.append(&record, position).expect("the disk is large enough");
            starts.push(position);
            position += record.len();
        }
        Ok(starts)
    }

    #[test]
    fn records_come_back_in_order_and_around_the_end_of_the_ring() -> Result<()> {
        let disk = SimulatedDisk::new(vec![0; 1 << 20]);
        let area = area(&disk);
        assert_eq!(area.read_header()?, None);
        fill(&area, 8)?;
        let header = area.read_header()?.expect("written");
        let mut seen = Vec::new();
        let end = area.scan(&header, |record| {
            seen.push(record.entries().map(|(_, line)| line[0]).collect::<Vec<_>>());
            Ok(())
        })?;
        assert_eq!((end.records, end.group), (8, 19));
        assert_eq!(seen.len(), 8);
        assert!(seen.iter().enumerate().all(|(group, lines)| lines.iter().all(|byte| *byte == group as u8)));
        Ok(())
    }

    #[test]
    fn every_flipped_byte_ends_the_scan_or_is_reported_as_damage() -> Result<()> {
        let disk = SimulatedDisk::new(vec![0; 1 << 20]);
        let area = area(&disk);
        let starts = fill(&area, 5)?;
        let header = area.read_header()?.expect("written");
        for (index, start) in starts.iter().enumerate() {
            for byte in [0, 9, 17, 25, 33, 60, 64, 70, 140] {
                let place = area.offset + HEADERS_BYTES + (start + byte) % area.ring_bytes();
                let mut old = [0];
                read_all(&disk, &mut old, place).expect("inside");
                write_all(&disk, &[old[0] ^ 0x40], place, true).expect("inside");
                let result = area.scan(&header, |_| Ok(()));
                if index + 1 == starts.len() {
                    // Indistinguishable from a record that was being written when the power failed.
                    assert_eq!(result.expect("a torn end is an end").records, index as u64);
                } else {
                    let text = result.expect_err("damage in the middle").to_string();
                    assert!(text.contains("damaged") && text.contains("test.pool"), "{text}");
                }
                write_all(&disk, &old, place, true).expect("inside");
            }
        }
        assert_eq!(area.scan(&header, |_| Ok(()))?.records, 5);
        Ok(())
    }

    #[test]
    fn a_damaged_newest_header_is_noticed_instead_of_losing_what_it_covers() -> Result<()> {
        let disk = SimulatedDisk::new(vec![0; 1 << 20]);
        let area = area(&disk);
        fill(&area, 4)?;
        assert_eq!(area.check()?, []);
        // A new life: same tail, other generation, one acknowledged record.
        let header = area.read_header()?.expect("written");
        let end = area.scan(&header, |_| Ok(()))?;
        area.write_header(5, end.position, end.group)?;
        area.write_header(77, end.position, end.group)?;
        area.append(&Record::encode(77, end.position, end.group, &[0], &[[1; 8]]), end.position).expect("room");
        area.append(&Record::encode(77, end.position + 4096, end.group + 1, &[0], &[[2; 8]]), end.position + 4096)
            .expect("room");
        let newest = area.read_header()?.expect("written");
        let place = area.offset + newest.sequence % 2 * UNIT_BYTES + 20;
        write_all(&disk, &[0xFF], place, true).expect("inside");
        let older = area.read_header()?.expect("the other page");
        assert_eq!(older.generation, 5);
        let text = area.scan(&older, |_| Ok(())).expect_err("damage").to_string();
        assert!(text.contains("newest journal header"), "{text}");
        assert_eq!(area.check()?.len(), 2);
        Ok(())
    }

    #[test]
    fn a_header_with_values_that_no_life_reaches_is_damaged() -> Result<()> {
        let beyond = COUNT_MAX + UNIT_BYTES;
        for (tail, group) in [(0, 0), (0, beyond), (0, u64::MAX), (beyond, 5), (4095, 5), (u64::MAX, 5)] {
            let disk = SimulatedDisk::new(vec![0; 1 << 20]);
            let area = area(&disk);
            area.write_header(5, 4096, 2)?;
            area.write_header(5, tail, group)?;
            let older = area.read_header()?.expect("the page before");
            assert_eq!((older.sequence, older.tail, older.group), (1, 4096, 2), "tail {tail}, group {group}");
            assert_eq!(area.check()?.len(), 1);
            let mut page = vec![0; UNIT_BYTES as usize];
            read_all(&disk, &mut page, area.offset).expect("inside");
            write_all(&disk, &page, area.offset + UNIT_BYTES, true).expect("inside");
            let text = area.read_header().expect_err("no page is left").to_string();
            assert!(text.contains("both journal headers are damaged"), "{text}");
        }
        Ok(())
    }

    #[test]
    fn records_of_another_generation_do_not_count() -> Result<()> {
        let disk = SimulatedDisk::new(vec![0; 1 << 20]);
        let area = area(&disk);
        fill(&area, 3)?;
        let end = area.scan(&area.read_header()?.expect("written"), |_| Ok(()))?;
        area.write_header(6, end.position, end.group)?;
        let header = area.read_header()?.expect("written");
        assert_eq!(area.scan(&header, |_| Ok(()))?.records, 0);
        // With its header page damaged, a life's only record is noticed by its generation.
        area.append(&Record::encode(6, end.position, end.group, &[0], &[[1; 8]]), end.position).expect("room");
        assert_eq!(area.scan(&header, |_| Ok(()))?.records, 1);
        area.write_header(5, end.position, end.group)?;
        assert!(area.scan(&area.read_header()?.expect("written"), |_| Ok(())).is_err());
        Ok(())
    }
}
