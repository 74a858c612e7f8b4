//! A backup, brought to a later moment by an archive of the logs.
//!
//! A backup opens as after a crash of the moment when it was made. It has all records of each log up to some position,
//! and these are closed under dependency. The archive has the records after that. They are put into the trees as they
//! are, batch by batch, by ordinary transactions: rows, entries of indexes, pieces of long values and the catalog
//! alike. So the database is opened again at the end, with the catalog that it has then.
//!
//! **The backup and the archive must meet.** The archive must begin before the end of each log of the backup. And the
//! last record that the backup has of a log must be in the archive, at the same position, with the same tick and
//! entries. A backup that was opened for writing has other records from there on, or marks: then it is refused.
//!
//! Of a log without records since the archive begins, or since the last checkpoint, only the end can be compared, and
//! another record may end there as well. So at least one log must meet by its last record: the first batch of an
//! archive has one for that. And the batch by which a log meets is of the life of the backup or a later one. A backup
//! that was opened since is of a later life than most.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use lodestone_wal::EntryKind;
use lodestone_width::to_u64;

use crate::archive::{ArchiveReader, LogBatch, archive_error};
use crate::database::Database;
use crate::dual::MemberEntry;
use crate::error::Result;
use crate::feed::{self, FeedPosition, LogRecord};
use crate::options::DatabaseOptions;
use crate::tree::Bytes;

/// Rows of a transaction, at most.
const ROWS_MAX: usize = 1_000;
/// Bytes of its rows, about.
const BYTES_MAX: usize = 256 << 10;
const OTHER_BACKUP: &str = "use another backup, as it was made: one that was not opened since, or a copy of it";

/// The moment that a backup is brought to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestorePoint {
    /// The end of the archive.
    #[default]
    End,
    /// Exactly the transactions before a position of a feed.
    Position(FeedPosition),
    /// The last batch that was begun at this time or before: it has all transactions that were acknowledged before
    /// [its time](crate::LogBatch::time).
    Time(SystemTime),
}

/// The work of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestoreReport {
    /// Batches of the archive that were read.
    pub batches: u64,
    /// Transactions that the backup had not.
    pub transactions: u64,
    /// Where the last batch that was used ends, or the position that was asked for.
    pub position: FeedPosition,
    /// The time of that batch.
    pub time: Option<SystemTime>,
}

/// The end of a log, as an open has found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The number of the writer.
    pub writer: usize,
    pub position: u64,
    /// `None`: the open has read no record.
    pub last: Option<LastRecord>,
}

/// The last record of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastRecord {
    pub position: u64,
    pub tick: u64,
    /// Of its entries: see [`contents_of`].
    pub contents: u32,
}

/// A checksum of the entries of a record. A mark has none: it may have the position and the tick that a record of the
/// database got later.
pub fn contents_of<'e>(entries: impl Iterator<Item = lodestone_wal::Entry<'e>>) -> u32 {
    entries.fold(0, |crc, entry| {
        if entry.kind == EntryKind::Member {
            // As a feed reads it.
            let member = MemberEntry::read(entry.value).filter(MemberEntry::is_change);
            return member.map_or(crc, |member| of_entry(crc, entry.tree, entry.key, member.row().flatten()));
        }
        let value = (entry.kind != EntryKind::Delete).then_some(entry.value);
        of_entry(crc, entry.tree, entry.key, value)
    })
}

fn of_entry(crc: u32, tree: u32, key: &[u8], value: Option<&[u8]>) -> u32 {
    let lengths = [key.len(), value.map_or(usize::MAX, <[u8]>::len)].map(|length| to_u64(length).to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c_append(crc, &tree.to_le_bytes()), lengths.as_flattened());
    crc32c::crc32c_append(crc32c::crc32c_append(crc, key), value.unwrap_or_default())
}

impl Database {
    /// Opens the backup at `path` and brings it to a later moment, by the records of `archive`. The backup is changed:
    /// make a copy before. If that is cut off, begin again with another copy.
    ///
    /// # Errors
    /// [`Error::Archive`](crate::Error::Archive): the archive is damaged, or of another database, or it does not meet
    /// the backup, or does not reach the point, or the point is before the backup. All of that is found before a row
    /// changes, unless the archive can be read once only. As [`open_with`](Self::open_with) and
    /// [`update`](Self::update).
    ///
    /// See [`LogArchive`](crate::LogArchive) for an example.
    pub fn restore(
        path: impl AsRef<Path>,
        options: &DatabaseOptions,
        archive: impl AsRef<Path>,
        point: &RestorePoint,
    ) -> Result<(Self, RestoreReport)> {
        let (path, archive) = (path.as_ref(), ArchiveReader::open(archive.as_ref())?);
        let database = Self::open_with(path, options)?;
        let replay = Replay { database: &database, archive: &archive, ends: &database.core().ends };
        let plan = replay.plan(point)?;
        let report = replay.run(plan)?;
        database.checkpoint()?;
        drop(database);
        Ok((Self::open_with(path, options)?, report))
    }
}

/// The part of an archive that a backup lacks.
struct Plan {
    batches: u64,
    /// The end, by writer.
    to: FeedPosition,
    time: Option<SystemTime>,
}

struct Replay<'r> {
    database: &'r Database,
    archive: &'r ArchiveReader,
    /// Of the backup.
    ends: &'r [LogEnd],
}

impl Replay<'_> {
    /// The end of the log of a writer in the backup.
    fn end_of(&self, writer: usize) -> u64 {
        self.ends.iter().find(|end| end.writer == writer).map_or(0, |end| end.position)
    }

    fn refuse<T>(&self, finding: impl Into<String>, hint: &'static str) -> Result<T> {
        Err(archive_error(&self.archive.path, finding.into(), hint))
    }

    /// Looks at all batches that are needed, before anything is changed.
    fn plan(&self, point: &RestorePoint) -> Result<Plan> {
        if self.archive.identity != feed::identity(self.database.core()) {
            return self.refuse("it is of another database than the backup", OTHER_BACKUP);
        }
        let (mut plan, mut first) = (None::<Plan>, None);
        let mut meets: Vec<bool> = self.ends.iter().map(|_| false).collect();
        // That of the backup: this open has begun another one.
        let (life, mut has_met) = (self.database.pool().boot().saturating_sub(1), false);
        for batch in self.archive.batches() {
            let batch = batch?;
            let before = plan.as_ref().map(|plan| &plan.to);
            if before.is_some_and(|before| before != batch.from()) {
                return self.refuse("a batch is missing in the middle", OTHER_BACKUP);
            }
            let is_after = match point {
                RestorePoint::Time(time) => batch.time() > *time,
                // It reaches the position before this batch.
                RestorePoint::Position(position) => before.is_some_and(|before| is_reached(position, before)),
                RestorePoint::End => false,
            };
            if is_after {
                break;
            }
            let from = first.get_or_insert_with(|| batch.from().clone());
            let records = batch.decode().unwrap_or_default();
            for (end, meets) in self.ends.iter().zip(&mut meets) {
                let found = meets_at(end, from, &batch, &records);
                let is_of_life = end.position <= from.of(end.writer) || batch.boot() >= life;
                *meets |= found && is_of_life;
                has_met |= found && is_of_life && end.position > from.of(end.writer) && end.last.is_some();
            }
            let batches = plan.map_or(0, |plan| plan.batches) + 1;
            plan = Some(Plan { batches, to: batch.position().clone(), time: Some(batch.time()) });
        }
        let Some(mut plan) = plan else {
            return self.refuse("it has no batch up to this point", "ask for a later point");
        };
        if let Some(end) = self.ends.iter().find(|end| end.position > plan.to.of(end.writer)) {
            let finding = format!("it ends before the backup does, in the log of writer {}", end.writer);
            return self.refuse(finding, "ask for a later point, or use an earlier backup");
        }
        if let Some((end, _)) = self.ends.iter().zip(&meets).find(|(_, meets)| !**meets) {
            let finding = format!(
                "it does not go on where the log of writer {} of the backup ends ({})",
                end.writer, end.position
            );
            return self.refuse(finding, OTHER_BACKUP);
        }
        if !has_met {
            let finding = "no log of the backup has a record that is in it";
            return self.refuse(finding, "use a backup that was made after the first batch was shipped");
        }
        if let RestorePoint::Position(position) = point {
            if !is_reached(position, &plan.to) {
                return self.refuse("it ends before this position", "use the archive that goes on from here");
            }
            if let Some(end) = self.ends.iter().find(|end| end.position > position.of(end.writer)) {
                let finding = format!("the backup has later transactions of writer {} than this position", end.writer);
                return self.refuse(finding, "use an earlier backup");
            }
            plan.to = position.clone();
        }
        Ok(plan)
    }

    /// Puts the records into the trees.
    fn run(&self, plan: Plan) -> Result<RestoreReport> {
        let mut transactions = 0;
        for batch in self.archive.batches().take(usize::try_from(plan.batches).unwrap_or(usize::MAX)) {
            let mut rows = BTreeMap::new();
            for LogRecord { writer, position, entries, .. } in batch?.decode().unwrap_or_default() {
                let writer = usize::from(writer);
                if position < self.end_of(writer) || position >= plan.to.of(writer) || entries.is_empty() {
                    continue;
                }
                transactions += 1;
                // In an order of their effects: the last one counts.
                rows.extend(entries.into_iter().map(|entry| ((entry.tree, entry.key), entry.payload)));
            }
            self.put(rows)?;
        }
        Ok(RestoreReport { batches: plan.batches, transactions, position: plan.to, time: plan.time })
    }

    fn put(&self, rows: BTreeMap<(u32, Bytes), Option<Bytes>>) -> Result<()> {
        let (mut part, mut bytes) = (Vec::new(), 0);
        let mut rows = rows.into_iter().peekable();
        while let Some(((tree, key), payload)) = rows.next() {
            bytes += key.len() + payload.as_deref().map_or(0, <[u8]>::len);
            part.push((tree, key, payload));
            if part.len() == ROWS_MAX || bytes >= BYTES_MAX || rows.peek().is_none() {
                self.database.update(|tx| {
                    part.iter().try_for_each(|(tree, key, payload)| {
                        tx.set(&self.database.core().tree(*tree), key.to_vec(), payload.as_deref().map(<[u8]>::to_vec))
                    })
                })?;
                (part, bytes) = (Vec::new(), 0);
            }
        }
        Ok(())
    }
}

/// Whether all records before `position` are before `end` as well.
fn is_reached(position: &FeedPosition, end: &FeedPosition) -> bool {
    (0..position.logs().len()).all(|writer| position.of(writer) <= end.of(writer))
}

/// Whether the archive goes on where a log of the backup ends, by the records of this batch. `from`: where the archive
/// begins.
fn meets_at(end: &LogEnd, from: &FeedPosition, batch: &LogBatch, records: &[LogRecord]) -> bool {
    let begin = from.of(end.writer);
    let mut of_log = records.iter().filter(|record| usize::from(record.writer) == end.writer);
    match end.last {
        // The archive has no record of the backup.
        _ if end.position <= begin => end.position == begin,
        Some(last) => of_log.any(|record| {
            let contents = record.entries.iter();
            let contents =
                contents.fold(0, |crc, entry| of_entry(crc, entry.tree, &entry.key, entry.payload.as_deref()));
            LastRecord { position: record.position, tick: record.tick, contents } == last
        }),
        // The open has read no record of this log: pages have all of them.
        None => batch.position().of(end.writer) == end.position || of_log.any(|record| record.position == end.position),
    }
}

impl RestoreReport {
    /// The time of the last batch that was used, in milliseconds since 1970.
    #[must_use]
    pub fn time_ms(&self) -> Option<u64> {
        let since = self.time?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        u64::try_from(since.as_millis()).ok()
    }
}
