//! The change feed: committed transactions in an order of their effects, read from the logs.
//!
//! 1. *Cut*: [`Cuts`](crate::cuts::Cuts) returns a position in each log. The records before them are closed under
//!    dependency: no transaction among them was built on one that is not.
//! 2. *Settle*: a record below the cut may still wait for its fence. It is waited for, and in the block domain for the
//!    commit group. So a batch holds durable transactions only.
//! 3. *Order*: the transactions between the last cut and this one, by tick, then by writer. A transaction has a larger
//!    tick than those that it was built on, and a cut divides none from an earlier one. So all batches in a row are one
//!    serial order.
//!
//! A feed *holds* the logs from its last cut on: rounds do not truncate them further, up to
//! [`feed_bytes`](crate::DatabaseOptions::feed_bytes) for all feeds together. Beyond that the slowest feed loses its
//! hold, and then the transactions: it returns [`Error::FeedLagged`]. Without a feed the logs keep what the last two
//! checkpoints need. So a position outlives the process, but not many checkpoints.
//!
//! While there is a feed, records have whole rows. Without one they may have the bytes that changed, which no reader of
//! the log can complete. So a database whose feed goes on in a later life is opened without
//! [`deltas`](crate::DatabaseOptions::deltas).
//!
//! The same goes for rows in cells: without a feed their records lack the rows, and a commit that updates one row has
//! no record (`dual.rs`). So that a feed which goes on later notices that, the first such commit of a writer after each
//! cut has a record all the same. And a feed that begins waits for those under way, which have not seen it.
//!
//! A table that is loaded with its rows (`load.rs`) has no records of them. A feed that meets it returns
//! [`Error::FeedLagged`], and none is loaded while there is a feed.
//!
//! The changes of indexes are left out, and those of tables that have been dropped since.

use std::collections::BTreeMap;
use std::time::SystemTime;

use lodestone_pmem::planted;
use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_pmem::sync::{Mutex, lock, spin};
use lodestone_txn::Writer;
use lodestone_wal::EntryKind;
use lodestone_width::to_usize;

use crate::archive::{LogBatch, LogSink};
use crate::catalog;
use crate::core::{Core, Handle};
use crate::database::Database;
use crate::dual::MemberEntry;
use crate::error::{Error, Result};
use crate::large::{PIECES, piece_key};
use crate::payload::Moved;
use crate::table::Table;
use crate::tree::Bytes;
use crate::value::Row;

/// First byte of the text of a position, for later forms.
const POSITION_VERSION: u8 = 1;

/// Where a feed begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FeedStart {
    /// After all transactions that have been committed.
    #[default]
    Now,
    /// After the last checkpoint but one: the oldest transactions that the logs are sure to have. It waits while a
    /// checkpoint is being made.
    Oldest,
    /// After a batch.
    After(FeedPosition),
}

/// The place between two batches of a feed, also of another process later.
///
/// ```
/// use lodestone_engine::FeedPosition;
///
/// assert!("no position".parse::<FeedPosition>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedPosition {
    /// Of the database.
    identity: u32,
    /// By writer. Writers that never wrote may be left out at the end.
    logs: Vec<u64>,
}

impl FeedPosition {
    pub(crate) fn new(identity: u32, logs: &[u64]) -> Self {
        let used = logs.iter().rposition(|position| *position > 0).map_or(0, |last| last + 1);
        Self { identity, logs: logs[..used].to_vec() }
    }

    /// Of the database.
    pub(crate) fn identity(&self) -> u32 {
        self.identity
    }

    /// By writer. Others are 0.
    pub(crate) fn logs(&self) -> &[u64] {
        &self.logs
    }

    /// That of the log of a writer.
    pub(crate) fn of(&self, writer: usize) -> u64 {
        self.logs.get(writer).copied().unwrap_or(0)
    }
}

impl std::fmt::Display for FeedPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let logs = self.logs.iter().flat_map(|position| position.to_le_bytes());
        let mut bytes = vec![POSITION_VERSION];
        bytes.extend(self.identity.to_le_bytes().into_iter().chain(logs));
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::str::FromStr for FeedPosition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is no position of a feed; use one that a feed has returned, whole");
        let digits = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let bytes: Option<Vec<u8>> = pairs.iter().map(|pair| digits(pair)).collect();
        let bytes = bytes.filter(|_| rest.is_empty()).ok_or_else(bad)?;
        let (body, crc) = bytes.split_last_chunk().ok_or_else(bad)?;
        let (head, logs) = body.split_first_chunk::<5>().ok_or_else(bad)?;
        let (logs, rest) = logs.as_chunks::<8>();
        let [version, identity @ ..] = *head;
        if crc32c::crc32c(body) != u32::from_le_bytes(*crc) || version != POSITION_VERSION || !rest.is_empty() {
            return Err(bad());
        }
        let logs = logs.iter().map(|position| u64::from_le_bytes(*position)).collect();
        Ok(Self { identity: u32::from_le_bytes(identity), logs })
    }
}

/// A change of a row.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FeedChange {
    /// The table, as it is called now.
    pub table: String,
    /// The key of the row.
    pub key: Row,
    /// The row after the transaction. `None`: it was deleted.
    pub row: Option<Row>,
}

/// A committed transaction.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FeedTransaction {
    /// Its time. Those of the transactions that it was built on are smaller.
    pub tick: u64,
    /// The log that it is in.
    pub writer: u16,
    /// By table and key.
    pub changes: Vec<FeedChange>,
}

/// The transactions between two cuts.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FeedBatch {
    /// In an order of their effects.
    pub transactions: Vec<FeedTransaction>,
    /// The place after them.
    pub position: FeedPosition,
}

/// The holds of all feeds.
#[derive(Debug, Default)]
pub struct Holds {
    /// By number: from where the feed needs each log. `None`: it has lost its hold.
    feeds: Mutex<BTreeMap<u64, Option<Vec<u64>>>>,
    /// Feeds that there are, or that begin.
    count: AtomicU64,
}

/// A feed that begins.
struct Entered<'h>(&'h Holds);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Holds {
    /// For each log the position from which it is kept, at most those in `from`. Feeds that would keep more than
    /// `bytes_max` lose their hold.
    pub fn floors(&self, from: &[u64], bytes_max: u64) -> Vec<u64> {
        let mut feeds = lock(&self.feeds);
        loop {
            let mut floors = from.to_vec();
            for held in feeds.values().flatten() {
                floors.iter_mut().zip(held).for_each(|(floor, held)| *floor = (*floor).min(*held));
            }
            let behind =
                |held: &[u64]| from.iter().zip(held).map(|(from, held)| from.saturating_sub(*held)).sum::<u64>();
            if behind(&floors) <= bytes_max {
                return floors;
            }
            let last =
                feeds.iter_mut().filter_map(|(_, held)| held.as_ref().map(|found| behind(found)).zip(Some(held)));
            match last.max_by_key(|(bytes, _)| *bytes) {
                Some((_, held)) => *held = None,
                None => return floors,
            }
        }
    }

    /// Whether there is a feed, or one begins.
    ///
    /// A commit asks after it has read the epoch. A feed counts before its first cut. So a record after that cut is of
    /// a commit that found the feed here.
    pub fn are_in_use(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    fn enter(&self) -> Entered<'_> {
        self.count.fetch_add(1, Ordering::SeqCst);
        Entered(self)
    }

    fn set(&self, number: u64, logs: Vec<u64>) -> bool {
        let mut feeds = lock(&self.feeds);
        let is_held = feeds.get(&number).is_none_or(Option::is_some);
        if is_held {
            feeds.insert(number, Some(logs));
        }
        is_held
    }

    fn begin(&self, logs: Vec<u64>) -> u64 {
        let mut feeds = lock(&self.feeds);
        let number = feeds.keys().last().map_or(0, |last| last + 1);
        feeds.insert(number, Some(logs));
        number
    }

    fn end(&self, number: u64) {
        lock(&self.feeds).remove(&number);
        self.count.fetch_sub(1, Ordering::SeqCst);
    }

    fn is_held(&self, number: u64) -> bool {
        lock(&self.feeds).get(&number).is_some_and(Option::is_some)
    }
}

/// Committed transactions, batch after batch: see [`Database::feed`].
///
/// Thread safety: it may move to another thread, and one thread uses it at a time.
///
/// ```
/// use lodestone_engine::{Database, DatabaseOptions, Error, FeedStart, Schema, Type, row};
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("shop.pool");
/// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
/// let db = Database::open_with(&path, &options)?;
/// let table = db.create_table(&Schema::new("t").column("k", Type::U64).column("v", Type::I64).key(["k"]))?;
/// let mut feed = db.feed(&FeedStart::Now)?;
/// db.update(|tx| table.put(tx, &row![1_u64, 10_i64]))?;
/// db.update(|tx| table.delete(tx, &row![1_u64]).map(|_| ()))?;
/// let batch = feed.next_batch()?;
/// let [put, deleted] = &batch.transactions[..] else { panic!("two transactions") };
/// assert_eq!((put.changes[0].table.as_str(), &put.changes[0].row), ("t", &Some(row![1_u64, 10_i64])));
/// assert_eq!((&deleted.changes[0].key, &deleted.changes[0].row), (&row![1_u64], &None));
/// // Later, in another process: go on from here.
/// let position = batch.position.to_string().parse().expect("its own text");
/// assert!(db.feed(&FeedStart::After(position))?.next_batch()?.transactions.is_empty());
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Feed {
    database: Database,
    number: u64,
    /// By writer: the end of the last batch.
    logs: Vec<u64>,
    /// Tables by the number of their tree, as far as they were met. `None`: an index, or dropped.
    tables: BTreeMap<u32, Option<Table>>,
    /// Whether it follows no earlier feed, and has shipped nothing.
    is_first: bool,
}

impl Feed {
    pub(crate) fn begin(database: &Database, start: &FeedStart) -> Result<Self> {
        let core = database.core();
        core.refuse_if_poisoned()?;
        if core.group.is_some() || core.ways.durability.is_none() {
            let rule = "a feed needs `Durability::Sync` or `Durability::Ordered`: a record for each transaction";
            return Err(Error::BadOption { option: "durability of a database with feeds", value: 0, rule });
        }
        if core.ways.by_table {
            let rule = "a feed needs `LogPlacement::Home`: all of a transaction in one record";
            return Err(Error::BadOption { option: "log_placement of a database with feeds", value: 1, rule });
        }
        let entered = core.holds.enter();
        for writer in core.rounds.cuts.writers() {
            // A commit that has not seen this feed, and that no record will tell of.
            for turn in 0.. {
                if !core.rounds.cuts.is_unrecorded(writer) {
                    break;
                }
                core.refuse_if_poisoned()?;
                spin(turn);
            }
        }
        let oldest = || {
            let pages = core.rounds.pages();
            core.rounds.cuts.writers().map(|writer| pages.from(writer)).collect()
        };
        let logs = match start {
            FeedStart::Now => cut(core)?,
            FeedStart::Oldest => oldest(),
            FeedStart::After(position) if position.identity != identity(core) => {
                return Err(Error::OtherFeed { path: core.heap.pool().path().to_owned() });
            }
            FeedStart::After(position) => {
                let mut logs = position.logs.clone();
                logs.resize(usize::from(core.places.threads_max()), 0);
                logs
            }
        };
        let number = core.holds.begin(logs.clone());
        std::mem::forget(entered);
        let is_first = !matches!(start, FeedStart::After(_));
        Ok(Self { database: database.clone(), number, logs, tables: BTreeMap::new(), is_first })
    }

    /// The transactions that were committed since the last batch, up to now. There may be none: it does not wait for
    /// one. All of them are durable.
    ///
    /// # Errors
    /// [`Error::FeedLagged`] when the logs have lost some of them, or have parts of rows that changed while there was
    /// no feed, or a table was loaded; begin another feed then, and copy the tables.
    /// [`Error::Damaged`]; [`Error::Poisoned`]. The feed is where it was.
    pub fn next_batch(&mut self) -> Result<FeedBatch> {
        let (records, to) = self.read_records()?;
        let changes = records.into_iter().filter(|record| !record.entries.is_empty());
        let transactions = changes.map(|record| self.transaction(record)).collect::<Result<_>>()?;
        self.advance(to)?;
        Ok(FeedBatch { transactions, position: self.position() })
    }

    /// Gives the records that were appended since the last batch, up to now, to `sink`: as
    /// [`next_batch`](Self::next_batch), but as they are, for an [archive](crate::LogArchive) or another machine.
    /// Returns the batch when the sink has it.
    ///
    /// # Errors
    /// As [`next_batch`](Self::next_batch); [`Error::Sink`]. The feed is where it was, so the next call gives the sink
    /// these records again, and more.
    ///
    /// ```
    /// use lodestone_engine::{Database, DatabaseOptions, Error, FeedStart, LogBatch, LogSink, Schema, Type, row};
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let options =
    /// #     DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// /// Keeps batches in memory.
    /// #[derive(Default)]
    /// struct Kept(Vec<LogBatch>);
    ///
    /// impl LogSink for Kept {
    ///     fn append(&mut self, batch: &LogBatch) -> std::io::Result<()> {
    ///         self.0.push(batch.clone());
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let db = Database::open_with(&path, &options)?;
    /// let table = db.create_table(&Schema::new("t").column("k", Type::U64).key(["k"]))?;
    /// let (mut feed, mut sink) = (db.feed(&FeedStart::Now)?, Kept::default());
    /// db.update(|tx| table.put(tx, &row![1_u64]))?;
    /// let batch = feed.ship(&mut sink)?;
    /// // The first one has a record of its own, by which a backup is known to meet an archive.
    /// assert_eq!((batch.records(), sink.0.len()), (2, 1));
    /// assert_eq!(*batch.position(), feed.position());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn ship(&mut self, sink: &mut dyn LogSink) -> Result<LogBatch> {
        let core = self.database.core();
        if self.is_first && !core.memory.is_read_only() {
            // A backup that is made from now on has a record that is in the archive: by that they are known to meet.
            let catalog = catalog::table(self.database.core())?;
            self.database.update(|tx| catalog::note_moment(&catalog, tx))?;
        }
        let (time, boot) = (SystemTime::now(), core.heap.pool().boot());
        let (records, to) = self.read_records()?;
        let from = self.position();
        let batch = LogBatch::new(&from, &FeedPosition::new(from.identity, &to), (time, boot), &records);
        sink.append(&batch).map_err(|source| Error::Sink { source })?;
        self.is_first = false;
        self.advance(to)?;
        Ok(batch)
    }

    /// The records since the last batch, up to a new cut, in an order of their effects, and the cut.
    fn read_records(&self) -> Result<(Vec<LogRecord>, Vec<u64>)> {
        let core = self.database.core().clone();
        let to = cut(&core)?;
        let mut found = Vec::new();
        for writer in core.rounds.cuts.writers() {
            let (from, to) = (self.logs[writer.index()], to[writer.index()]);
            let outcome = read(&core, writer, from, to, &mut found);
            // Without its hold the feed may have read segments that were used again meanwhile.
            if !core.holds.is_held(self.number) || matches!(outcome, Ok(false)) {
                return Err(self.lagged());
            }
            outcome?;
        }
        if self.has_load(&found)? {
            return Err(self.lagged());
        }
        found.sort_by_key(|record| (record.tick, record.writer));
        let to = self.logs.iter().zip(&to).map(|(last, to)| *last.max(to)).collect();
        Ok((found, to))
    }

    /// The next batch begins at `to`.
    fn advance(&mut self, to: Vec<u64>) -> Result<()> {
        if !self.database.core().holds.set(self.number, to.clone()) {
            return Err(self.lagged());
        }
        self.logs = to;
        Ok(())
    }

    fn lagged(&self) -> Error {
        Error::FeedLagged { path: self.database.core().heap.pool().path().to_owned() }
    }

    /// Whether a table was loaded, with rows that no record has.
    fn has_load(&self, records: &[LogRecord]) -> Result<bool> {
        let catalog = catalog::table(self.database.core())?;
        for LogRecord { entries, .. } in records {
            let changes = entries.iter().filter(|entry| entry.tree == catalog::CATALOG);
            if catalog::is_load(&catalog, changes.map(|entry| (&entry.key[..], entry.payload.is_some())))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The place after the last batch.
    #[must_use]
    pub fn position(&self) -> FeedPosition {
        FeedPosition::new(identity(self.database.core()), &self.logs)
    }

    fn transaction(&mut self, record: LogRecord) -> Result<FeedTransaction> {
        if record.entries.iter().any(|entry| entry.tree == catalog::CATALOG) {
            // Tables came, went or changed their names.
            self.tables.clear();
        }
        let is_piece = |entry: &Entry| entry.tree & PIECES != 0;
        let (pieces, rows): (Vec<_>, Vec<_>) = record.entries.into_iter().partition(is_piece);
        // A transaction that sets a row sets all its pieces.
        let pieces: BTreeMap<_, _> = pieces.into_iter().map(|entry| ((entry.tree, entry.key), entry.payload)).collect();
        let mut changes = Vec::new();
        for Entry { tree, key, payload } in rows {
            if tree == catalog::CATALOG {
                continue;
            }
            let Some(table) = self.table(tree)? else { continue };
            let piece = |moved: &Moved, number| {
                let key = piece_key(&key, moved.id, number);
                pieces.get(&(tree | PIECES, key.into())).and_then(Option::as_deref)
            };
            let value = |moved: &Moved| -> Option<Vec<u8>> {
                let pieces = (0..to_usize(moved.pieces)).map(|number| piece(moved, number));
                pieces.collect::<Option<Vec<_>>>().map(|pieces| pieces.concat())
            };
            let row = payload.map(|payload| {
                let read = |moved: &Moved| value(moved).ok_or_else(|| "its record lacks a piece".to_owned());
                table.decode_with(&key, &payload, |_, moved| Ok(read(moved)))
            });
            let row = row.transpose()?;
            let key = table.decode_key(&key)?;
            changes.push(FeedChange { table: table.schema().name().to_owned(), key, row });
        }
        Ok(FeedTransaction { tick: record.tick, writer: record.writer, changes })
    }

    fn table(&mut self, tree: u32) -> Result<Option<&Table>> {
        if !self.tables.contains_key(&tree) {
            for name in self.database.tables()? {
                match self.database.table(&name) {
                    Ok(table) => drop(self.tables.insert(table.tree.number, Some(table))),
                    // Dropped since the names were read.
                    Err(Error::NoTable { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(self.tables.entry(tree).or_insert(None).as_ref())
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.database.core().holds.end(self.number);
    }
}

/// A record of a log.
#[derive(Debug)]
pub(crate) struct LogRecord {
    pub tick: u64,
    pub writer: u16,
    pub position: u64,
    /// None: a mark.
    pub entries: Vec<Entry>,
}

/// A row of a tree after a transaction. `None`: it was deleted.
#[derive(Debug)]
pub(crate) struct Entry {
    pub tree: u32,
    pub key: Bytes,
    pub payload: Option<Bytes>,
}

/// Positions of a cut. The records before them are durable on return.
fn cut(core: &Handle) -> Result<Vec<u64>> {
    let (_, positions) = core.rounds.cuts.cut();
    if planted::active("engine-feed-unsettled") {
        return Ok(positions);
    }
    for writer in core.rounds.cuts.writers() {
        for turn in 0.. {
            if core.rounds.cuts.settled(writer) >= positions[writer.index()] {
                break;
            }
            core.refuse_if_poisoned()?;
            spin(turn);
        }
    }
    core.wait_for(core.present_point())?;
    Ok(positions)
}

/// Adds the records of a log to `found`. Returns whether all of them are there, with whole rows.
fn read(core: &Core, writer: Writer, from: u64, to: u64, found: &mut Vec<LogRecord>) -> Result<bool> {
    let mut are_whole = true;
    let are_there = core.wal.read(writer, from, to, &mut |record| {
        let mut entries = Vec::new();
        for entry in record.entries() {
            let payload = match entry.kind {
                EntryKind::Put => Some(entry.value.into()),
                EntryKind::Delete => None,
                EntryKind::Member => match MemberEntry::read(entry.value) {
                    Some(member) if !member.is_change() => continue,
                    Some(member) => match member.row() {
                        Some(row) => row.map(Bytes::from),
                        // From before the feed.
                        None => {
                            are_whole = false;
                            continue;
                        }
                    },
                    None => return Err(core.damaged_log(record, "an entry about a cell makes no sense")),
                },
                // Of a part of a transaction a feed knows nothing of the others.
                EntryKind::Delta | EntryKind::Together => {
                    are_whole = false;
                    continue;
                }
                _ => {
                    let finding = "an entry of a kind that a feed cannot read";
                    return Err(core.damaged_log(record, finding));
                }
            };
            entries.push(Entry { tree: entry.tree, key: entry.key.into(), payload });
        }
        found.push(LogRecord { tick: record.tick.0, writer: writer.number(), position: record.position, entries });
        Ok(())
    })?;
    Ok(are_there && are_whole)
}

/// Tells databases apart.
pub(crate) fn identity(core: &Handle) -> u32 {
    let set = core.heap.pool().info().set_uuid;
    crc32c::crc32c_append(crc32c::crc32c(&set.to_bytes()), &core.places.anchor.to_raw().to_le_bytes())
}
