//! Replay: brings the parts up to the last durable group before they are mapped.
//!
//! 1. The journal is scanned whole, and each line verified, before a byte changes. So an open that is refused changes
//!    nothing.
//! 2. The journal is made durable. The last record of a killed writer may be in the page cache only. A power cut while
//!    its lines are written would leave some of them without the record that completes the group.
//! 3. The lines of all records go to the parts in order; the parts are synced.
//! 4. The header says that nothing is after the tail any more.
//!
//! Replay may crash anywhere and is repeated whole. It reads the journal area at most three times, a record at a time,
//! and writes at most its bytes.

use std::fmt;
use std::sync::Arc;

use super::BlockFiles;
use super::journal::{End, JOURNAL_BYTES_MIN, JournalEnd, JournalFinding, JournalState, new_life};
use super::record::Record;
use crate::addr::{LINE_BYTES, LineAddr};
use crate::counters;
use crate::error::{Error, Result};
use crate::pool::layout::PAGE_BYTES;
use crate::storage::{Storage, write_all};

/// Findings of an open in the journal of the block domain.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
/// let recovery = Pool::create(&path, &options)?.info().recovery;
/// assert_eq!((recovery.groups, recovery.unfinished_group), (0, None), "a new pool has no groups");
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalRecovery {
    /// Commit groups that were acknowledged, or about to be, and not yet in the file. They are applied.
    pub groups: u64,
    /// Lines in them.
    pub lines: u64,
    /// A group that was being written when the last life ended. It was never acknowledged and is not applied.
    pub unfinished_group: Option<u64>,
}

impl fmt::Display for JournalRecovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} commit groups with {} lines found in the journal", self.groups, self.lines)?;
        match self.unfinished_group {
            Some(group) => write!(f, "; group {group} was being written, was not acknowledged, and is not applied"),
            None => Ok(()),
        }
    }
}

impl From<JournalEnd> for JournalRecovery {
    fn from(end: JournalEnd) -> Self {
        let unfinished_group = (end.end == End::Unfinished).then_some(end.group);
        Self { groups: end.records, lines: end.lines, unfinished_group }
    }
}

/// Brings the parts up to the last durable group: replays the journal into the files and empties it.
///
/// Done before the parts are mapped, in every domain. So a pool that was last open in the block domain can be opened in
/// any other. Nothing is written when the journal is refused.
pub(crate) fn replay(files: &BlockFiles) -> Result<JournalRecovery> {
    let found = read_journal(files, |_, _| {})?;
    apply_journal(files, found)?;
    Ok(found)
}

/// Second half of [`replay`]: applies what [`read_journal`] found.
pub(crate) fn apply_journal(files: &BlockFiles, found: JournalRecovery) -> Result<()> {
    if found.groups == 0 && found.unfinished_group.is_none() {
        return Ok(());
    }
    let area = files.area();
    let Some(header) = area.start()? else { return Ok(()) };
    let life = header.life();
    let end = area.walk(&header, |_| Ok(()))?;
    make_durable(files, &end, |end| area.rewrite_last(&life, end))?;
    let end = area.walk(&header, |record| {
        verify_lines(record, files)?;
        apply(record, files)
    })?;
    if (end.records, end.lines) != (found.groups, found.lines) {
        let source = std::io::Error::other(format!("{} groups at first, {} now", found.groups, end.records));
        let hint = "replace the device, or open again when nobody else writes to the file";
        return Err(Error::io(&files.path, "reading the journal a second time", hint, source));
    }
    // The tail may not pass the records before their lines are durable in the files.
    sync_parts(files)?;
    area.write_header(&JournalState { life, tail: end.position, group: end.group, closed: true })
}

/// Step 2: the last record is written again, because a write that failed may have left it where no sync writes it.
fn make_durable(
    files: &BlockFiles,
    end: &JournalEnd,
    rewrite_last: impl FnOnce(&JournalEnd) -> Result<()>,
) -> Result<()> {
    if end.records > 0 {
        rewrite_last(end)?;
    }
    sync_part(files, &files.journal)
}

/// Empties a damaged journal, which [`replay`] refuses. The records before the damage are applied first; the rest is
/// lost. No damaged sector stays.
pub(crate) fn drop_journal(files: &BlockFiles) -> Result<()> {
    let area = files.area();
    let state = match area.read_header() {
        Ok(Some(header)) => {
            let (life, closed) = (header.life(), header.is_closed());
            let mut end = JournalEnd { position: header.tail, group: header.group, ..JournalEnd::default() };
            if !closed {
                // All of it is verified before the first line is written.
                end = area.walk(&header, |record| verify_lines(record, files))?;
                make_durable(files, &end, |end| area.rewrite_last(&life, end))?;
                area.walk(&header, |record| apply(record, files))?;
                sync_parts(files)?;
            }
            JournalState { life, tail: end.position, group: end.group, closed: true }
        }
        // A life of its own: no record that is in the ring belongs to it.
        Ok(None) | Err(Error::Format { .. }) => {
            JournalState { life: new_life(&files.path)?, tail: 0, group: 1, closed: true }
        }
        Err(error) => return Err(error),
    };
    area.void_damaged(&state.life, state.tail)?;
    area.write_header(&state)
}

/// Writes the newest header into both pages again: one of them was damaged.
pub(crate) fn rewrite_header(files: &BlockFiles) -> Result<()> {
    let area = files.area();
    let Some(header) = area.read_header()? else { return Ok(()) };
    let (tail, group) = (header.tail, header.group);
    area.write_header(&JournalState { life: header.life(), tail, group, closed: header.is_closed() })
}

/// Passes every line that [`drop_journal`] would apply to `visit`; changes nothing.
pub(crate) fn read_salvage(files: &BlockFiles, mut visit: impl FnMut(LineAddr, &[u8])) -> Result<()> {
    let area = files.area();
    let Ok(Some(header)) = area.start() else { return Ok(()) };
    area.walk(&header, |record| verify_lines(record, files))?;
    area.walk(&header, |record| {
        record.entries().for_each(|(line, bytes)| visit(line, bytes));
        Ok(())
    })?;
    Ok(())
}

/// Findings of a check in the journal; changes nothing.
pub(crate) fn check_journal(files: &BlockFiles) -> Result<Vec<JournalFinding>> {
    if files.journal_bytes < JOURNAL_BYTES_MIN { Ok(Vec::new()) } else { files.area().check() }
}

/// Passes every line of the journal that is not yet in the file to `visit`, oldest group first. Refuses a damaged
/// journal. A read-only open updates its private memory so, and changes no byte of the file.
pub(crate) fn read_journal(files: &BlockFiles, mut visit: impl FnMut(LineAddr, &[u8])) -> Result<JournalRecovery> {
    if files.journal_bytes < JOURNAL_BYTES_MIN {
        return Ok(JournalRecovery::default());
    }
    let area = files.area();
    let Some(header) = area.start()? else { return Ok(JournalRecovery::default()) };
    let end = area.scan(&header, |record| {
        verify_lines(record, files)?;
        record.entries().for_each(|(line, bytes)| visit(line, bytes));
        Ok(())
    })?;
    Ok(end.into())
}

/// Makes durable what [`read_journal`] found, for a reader that changes no file. The last record of a killed writer may
/// be in the page cache only, and the reader would show what a power cut then takes.
///
/// # Errors
/// When the device fails.
pub(crate) fn sync_journal(files: &BlockFiles) -> Result<()> {
    sync_part(files, &files.journal)
}

pub(super) fn sync_parts(files: &BlockFiles) -> Result<()> {
    files.parts.iter().try_for_each(|part| sync_part(files, part))
}

fn sync_part(files: &BlockFiles, part: &Arc<dyn Storage>) -> Result<()> {
    counters::bump(&counters::local().syncs, 1);
    part.sync().map_err(|source| {
        Error::io(&files.path, "syncing", "check the device; open again to replay the journal", source)
    })
}

/// Refuses a record with lines outside the parts, or in the journal itself.
fn verify_lines(record: &Record, files: &BlockFiles) -> Result<()> {
    for (line, _) in record.entries() {
        let at = line.start();
        let refused = |finding, expected, hint: &str| {
            let (path, offset) = (files.path.clone(), files.journal_offset);
            Err(Error::Format { path, offset, finding, expected, hint: hint.into() })
        };
        let Some(len) = files.part_bytes.get(usize::from(at.part())) else {
            let finding = format!("a journal record names part {}", at.part());
            let expected = format!("{} parts", files.part_bytes.len());
            return refused(finding, expected, "open the pool with all its parts");
        };
        if at.offset().checked_add(LINE_BYTES).is_none_or(|end| end > *len) {
            let finding = format!("the journal holds {line:?}, and part {} has {len} bytes", at.part());
            return refused(finding, "lines inside the parts".into(), "the file was truncated: restore a backup");
        }
        if files.is_in_journal(line) {
            let finding = format!("the journal holds {line:?}, which is in the journal");
            return refused(finding, "lines outside it".into(), "restore a backup");
        }
        // Only creation and repair write a header, and neither by way of the journal.
        if at.offset() < PAGE_BYTES {
            let finding = format!("the journal holds {line:?}, which is in the header of a part");
            return refused(finding, "lines after it".into(), "restore a backup");
        }
    }
    Ok(())
}

/// Writes the lines of `record`, which must be verified, to the parts; not synced.
fn apply(record: &Record, files: &BlockFiles) -> Result<()> {
    for (line, bytes) in record.entries() {
        let at = line.start();
        write_all(files.parts[usize::from(at.part())].as_ref(), bytes, at.offset(), false).map_err(|source| {
            Error::io(&files.path, "replaying the journal", "free space on the device, then open again", source)
        })?;
    }
    Ok(())
}
