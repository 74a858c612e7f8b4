//! Batches of log records outside of the database: for an archive in a file, from which a backup is brought to a later
//! moment (`restore.rs`), and for machines that follow this one.
//!
//! A batch has all records between two cuts (`feed.rs`), so batches in a row are all records in an order of their
//! effects. `docs/format.md` has the bytes of a batch and of an archive.
//!
//! **An archive** is a file of two header lines and batches. A batch is appended and synced. Then one of the header
//! lines, in turns, gets the new end. It is not synced: the next batch does that. So batches before the end in the
//! header were durable, and must verify. After it there may be one that is whole, which counts, and the remains of one
//! that a crash cut off, which do not.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lodestone_pmem::sync_folder_of;
use lodestone_width::{exact_u32, to_u64, to_usize};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::error::{Error, Result};
use crate::feed::{Entry, FeedPosition, FeedStart, LogRecord};

const ARCHIVE_MAGIC: u64 = u64::from_le_bytes(*b"LDSTARC\0");
const BATCH_MAGIC: u64 = u64::from_le_bytes(*b"LDSTBAT\0");
const VERSION: u32 = 1;
/// Places of the header lines: of two sectors of any device.
const HEADERS: [u64; 2] = [0, 4096];
/// Where the first batch is.
const FIRST: u64 = 8192;
const HEAD_BYTES: usize = 64;
/// In place of the length of a value: the row was deleted.
const DELETED: u32 = u32::MAX;

/// Takes the batches of a [feed](crate::Feed::ship).
pub trait LogSink {
    /// Takes a batch. It begins where the one before ended. After `Ok` the sink has it for good: the logs may be
    /// truncated.
    ///
    /// # Errors
    /// The sink does not have the batch. The feed gives its records again.
    fn append(&mut self, batch: &LogBatch) -> io::Result<()>;
}

/// Head of a batch.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct BatchHead {
    magic: U64,
    /// Bytes after the head.
    bytes: U64,
    /// Of the database.
    identity: U32,
    records: U32,
    /// Milliseconds since 1970.
    time: U64,
    writers: U32,
    /// The life of the pool in which it was made.
    boot: U64,
    zero: [u8; 12],
    /// CRC-32C of the bytes after the head.
    body_crc: U32,
    /// CRC-32C of the head before this field.
    crc: U32,
}

const _: () = assert!(size_of::<BatchHead>() == HEAD_BYTES);

impl BatchHead {
    fn checksum(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..HEAD_BYTES - 4])
    }

    fn is_whole(&self) -> bool {
        self.magic == BATCH_MAGIC && self.crc == self.checksum()
    }
}

/// The records between two positions of a feed.
#[derive(Clone, Debug)]
pub struct LogBatch {
    bytes: Vec<u8>,
    records: usize,
    from: FeedPosition,
    position: FeedPosition,
    time: SystemTime,
}

impl LogBatch {
    pub(crate) fn new(
        from: &FeedPosition,
        to: &FeedPosition,
        (time, boot): (SystemTime, u64),
        records: &[LogRecord],
    ) -> Self {
        let writers = from.logs().len().max(to.logs().len());
        let mut bytes = vec![0; HEAD_BYTES];
        for position in [from, to] {
            (0..writers).for_each(|writer| bytes.extend(position.of(writer).to_le_bytes()));
        }
        for LogRecord { tick, writer, position, entries } in records {
            bytes.extend(position.to_le_bytes());
            bytes.extend(tick.to_le_bytes());
            bytes.extend(u32::from(*writer).to_le_bytes());
            bytes.extend(exact_u32(entries.len()).to_le_bytes());
            for Entry { tree, key, payload } in entries {
                let value = payload.as_ref().map_or(DELETED, |payload| exact_u32(payload.len()));
                [*tree, exact_u32(key.len()), value].iter().for_each(|number| bytes.extend(number.to_le_bytes()));
                bytes.extend_from_slice(key);
                bytes.extend_from_slice(payload.as_deref().unwrap_or_default());
            }
        }
        let mut head = BatchHead::new_zeroed();
        head.magic = BATCH_MAGIC.into();
        head.bytes = to_u64(bytes.len() - HEAD_BYTES).into();
        (head.identity, head.records) = (to.identity().into(), exact_u32(records.len()).into());
        head.boot = boot.into();
        (head.time, head.writers) = (milliseconds(time).into(), exact_u32(writers).into());
        head.body_crc = crc32c::crc32c(&bytes[HEAD_BYTES..]).into();
        head.crc = head.checksum().into();
        bytes[..HEAD_BYTES].copy_from_slice(head.as_bytes());
        Self { bytes, records: records.len(), from: from.clone(), position: to.clone(), time: time_of(head) }
    }

    /// The bytes to keep or to send. [`from_bytes`](Self::from_bytes) makes a batch of them.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The batch with these bytes. `None`: they are not those of a batch, or damaged.
    ///
    /// ```
    /// use lodestone_engine::LogBatch;
    ///
    /// assert!(LogBatch::from_bytes(b"no batch".to_vec()).is_none());
    /// ```
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        let (head, body) = BatchHead::read_from_prefix(&bytes).ok()?;
        let is_whole = head.is_whole() && head.bytes == to_u64(body.len()) && head.body_crc == crc32c::crc32c(body);
        let (mut rest, writers) = (body, usize::try_from(head.writers.get()).ok()?);
        let mut position = || {
            let logs = rest.split_off(..writers.checked_mul(8)?)?;
            let (logs, _) = logs.as_chunks();
            let logs: Vec<u64> = logs.iter().map(|log| u64::from_le_bytes(*log)).collect();
            Some(FeedPosition::new(head.identity.get(), &logs))
        };
        let (from, to) = (is_whole.then(&mut position)??, position()?);
        let (records, time) = (to_usize(head.records.get()), time_of(head));
        let batch = Self { records, from, position: to, time, bytes };
        batch.decode().is_some().then_some(batch)
    }

    /// How many records it has. One transaction has one record.
    #[must_use]
    pub fn records(&self) -> usize {
        self.records
    }

    /// Where it begins.
    #[must_use]
    pub fn from(&self) -> &FeedPosition {
        &self.from
    }

    /// Where it ends, and the next one begins.
    #[must_use]
    pub fn position(&self) -> &FeedPosition {
        &self.position
    }

    /// All transactions that were acknowledged before this time are in it, or in those before it.
    #[must_use]
    pub fn time(&self) -> SystemTime {
        self.time
    }

    /// The life of the pool in which it was made.
    pub(crate) fn boot(&self) -> u64 {
        BatchHead::read_from_prefix(&self.bytes).map_or(0, |(head, _)| head.boot.get())
    }

    /// The records, in an order of their effects. `None`: the bytes make no sense.
    pub(crate) fn decode(&self) -> Option<Vec<LogRecord>> {
        let head = BatchHead::read_from_prefix(&self.bytes).ok()?.0;
        let mut rest = self.bytes.get(HEAD_BYTES + to_usize(head.writers.get()).checked_mul(16)?..)?;
        let mut records = Vec::new();
        for _ in 0..self.records {
            let (position, tick) = (take_u64(&mut rest)?, take_u64(&mut rest)?);
            let (writer, count) = (u16::try_from(take_u32(&mut rest)?).ok()?, take_u32(&mut rest)?);
            let mut entries = Vec::new();
            for _ in 0..count {
                let (tree, key, value) = (take_u32(&mut rest)?, take_u32(&mut rest)?, take_u32(&mut rest)?);
                let key = rest.split_off(..to_usize(key))?.into();
                let payload = match value {
                    DELETED => None,
                    bytes => Some(rest.split_off(..to_usize(bytes))?.into()),
                };
                entries.push(Entry { tree, key, payload });
            }
            records.push(LogRecord { tick, writer, position, entries });
        }
        rest.is_empty().then_some(records)
    }
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    rest.split_off(..4)?.try_into().ok().map(u32::from_le_bytes)
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    rest.split_off(..8)?.try_into().ok().map(u64::from_le_bytes)
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn time_of(head: BatchHead) -> SystemTime {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(head.time.get())).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// A header line of an archive.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    magic: U64,
    version: U32,
    identity: U32,
    /// Where the batches end that are durable.
    end: U64,
    zero: [u8; 36],
    /// CRC-32C of the line before this field.
    crc: U32,
}

const _: () = assert!(size_of::<Header>() == 64);

impl Header {
    fn new(identity: u32, end: u64) -> Self {
        let mut header = Self::new_zeroed();
        (header.magic, header.version) = (ARCHIVE_MAGIC.into(), VERSION.into());
        (header.identity, header.end) = (identity.into(), end.into());
        header.crc = header.checksum().into();
        header
    }

    fn checksum(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..60])
    }
}

/// A file of batches, which one process appends to at a time.
///
/// ```
/// use lodestone_engine::{Database, DatabaseOptions, Error, LogArchive, RestorePoint, Schema, Type, row};
/// use lodestone_pmem::CopyOptions;
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let [path, copy] = ["shop.pool", "copy.pool"].map(|name| folder.path().join(name));
/// # let archived = folder.path().join("shop.archive");
/// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let options =
/// #     DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
/// let db = Database::open_with(&path, &options)?;
/// let table = db.create_table(&Schema::new("t").column("k", Type::U64).key(["k"]))?;
/// let mut archive = LogArchive::open(&archived)?;
/// let mut feed = db.feed(&archive.start())?;
/// feed.ship(&mut archive)?; // before the first backup
/// db.backup(&copy, &CopyOptions::default())?;
/// db.update(|tx| table.put(tx, &row![1_u64]))?;
/// let good = feed.ship(&mut archive)?; // a thread does so now and then
/// db.update(|tx| table.delete(tx, &row![1_u64]).map(|_| ()))?;
/// feed.ship(&mut archive)?;
///
/// // As the backup would be, had it been made later.
/// let point = RestorePoint::Position(good.position().clone());
/// let (restored, report) = Database::restore(&copy, &options, &archived, &point)?;
/// assert_eq!(report.transactions, 1);
/// let table = restored.table("t")?;
/// assert_eq!(restored.update(|tx| table.get(tx, &row![1_u64]))?, Some(row![1_u64]));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct LogArchive {
    path: PathBuf,
    file: File,
    /// `None`: there is no batch yet.
    last: Option<FeedPosition>,
    /// The end of the last batch that is whole.
    end: u64,
    /// Which header line is written next.
    next_header: usize,
    /// Whether a sync has failed: then it is not known what the file has.
    has_failed: bool,
}

impl LogArchive {
    /// Opens the archive at `path` to append to it, or makes one. The remains of a batch that was cut off are
    /// overwritten.
    ///
    /// # Errors
    /// [`Error::Archive`] when the file is no archive, is damaged, or another process appends to it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let failed = |action, source: io::Error| archive_error(path, format!("{action} failed: {source}"), CHECK_PATH);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| failed("opening", error))?;
        if let Err(error) = file.try_lock() {
            return Err(archive_error(path, format!("locking failed: {error}"), "end the other process first"));
        }
        if file.metadata().map_err(|error| failed("reading", error))?.len() == 0 {
            // The name has to be there as soon as a batch is.
            sync_folder_of(path).map_err(|error| failed("syncing the folder", error))?;
            return Ok(Self { path: path.into(), file, last: None, end: FIRST, next_header: 0, has_failed: false });
        }
        let reader = ArchiveReader::over(path, file)?;
        let (mut last, mut at) = (None, FIRST);
        while let Some(batch) = reader.batch(at)? {
            at += to_u64(batch.bytes().len());
            last = Some(batch.position().clone());
        }
        reader.file.sync_all().map_err(|error| failed("syncing", error))?;
        let next_header = 1 - reader.newest_header;
        Ok(Self { path: path.into(), file: reader.file, last, end: at, next_header, has_failed: false })
    }

    /// Where a feed begins that is to go on with this archive: after the last batch, or now.
    #[must_use]
    pub fn start(&self) -> FeedStart {
        self.last.clone().map_or(FeedStart::Now, FeedStart::After)
    }

    /// The place after the last batch.
    #[must_use]
    pub fn position(&self) -> Option<&FeedPosition> {
        self.last.as_ref()
    }

    fn write_header(&mut self, identity: u32) -> io::Result<()> {
        let header = Header::new(identity, self.end);
        self.file.write_all_at(header.as_bytes(), HEADERS[self.next_header])?;
        self.next_header = 1 - self.next_header;
        Ok(())
    }
}

impl LogSink for LogArchive {
    fn append(&mut self, batch: &LogBatch) -> io::Result<()> {
        let refused = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if self.has_failed {
            return refused(format!("{}: a sync has failed; open the archive again", self.path.display()));
        }
        if self.last.as_ref().is_some_and(|last| last != batch.from()) {
            let hint = "begin the feed with `LogArchive::start`";
            return refused(format!(
                "{}: the batch does not begin where the archive ends; {hint}",
                self.path.display()
            ));
        }
        let identity = batch.position().identity();
        if self.last.is_none() {
            // Both, so that the file is an archive whatever becomes of one.
            (0..HEADERS.len()).try_for_each(|_| self.write_header(identity))?;
        }
        self.file.write_all_at(batch.bytes(), self.end)?;
        self.file.sync_data().inspect_err(|_| self.has_failed = true)?;
        self.end += to_u64(batch.bytes().len());
        self.last = Some(batch.position().clone());
        self.write_header(identity)
    }
}

const CHECK_PATH: &str = "check the path, and the rights of this user";
const OTHER_ARCHIVE: &str = "use another copy of the archive, or restore to an earlier point";

/// An error about an archive.
pub(crate) fn archive_error(path: &Path, finding: String, hint: &'static str) -> Error {
    Error::Archive { path: path.to_owned(), finding, hint }
}

/// Reads an archive, which another process may append to meanwhile.
#[derive(Debug)]
pub(crate) struct ArchiveReader {
    pub path: PathBuf,
    file: File,
    /// Where the batches end that must verify.
    end: u64,
    newest_header: usize,
    pub identity: u32,
}

impl ArchiveReader {
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path);
        Self::over(path, file.map_err(|error| archive_error(path, format!("opening failed: {error}"), CHECK_PATH))?)
    }

    fn over(path: &Path, file: File) -> Result<Self> {
        let read = |place| {
            let mut bytes = [0; 64];
            file.read_exact_at(&mut bytes, place).ok()?;
            let header = Header::read_from_bytes(&bytes).ok()?;
            (header.magic == ARCHIVE_MAGIC && header.crc == header.checksum()).then_some(header)
        };
        let headers = HEADERS.map(read);
        let newest = (0..2).max_by_key(|number| headers[*number].map(|header| header.end.get())).unwrap_or(0);
        let Some(header) = headers[newest] else {
            let hint = "name an archive that `LogArchive` has written, or an empty or new file to begin one";
            return Err(archive_error(path, "neither of its two header lines is one".into(), hint));
        };
        if header.version != VERSION {
            let finding = format!("it has version {}, and this program reads {VERSION}", header.version);
            return Err(archive_error(path, finding, "use the program that has written it"));
        }
        let (end, identity) = (header.end.get(), header.identity.get());
        Ok(Self { path: path.to_owned(), file, end, newest_header: newest, identity })
    }

    /// The batches, in order.
    pub fn batches(&self) -> impl Iterator<Item = Result<LogBatch>> {
        let mut at = Some(FIRST);
        std::iter::from_fn(move || {
            let batch = self.batch(at?).transpose()?;
            at = batch.as_ref().ok().map(|batch| at.unwrap_or(FIRST) + to_u64(batch.bytes().len()));
            Some(batch)
        })
    }

    /// The batch at this place. `None`: there is none, or one that was cut off.
    fn batch(&self, at: u64) -> Result<Option<LogBatch>> {
        let found = self.read(at);
        match found {
            Ok(Some(batch)) => Ok(Some(batch)),
            Ok(None) if at >= self.end => Ok(None),
            Ok(None) => {
                let finding = format!("the batch at byte {at} is damaged, and was whole before");
                Err(archive_error(&self.path, finding, OTHER_ARCHIVE))
            }
            Err(error) => Err(archive_error(&self.path, format!("reading at byte {at} failed: {error}"), CHECK_PATH)),
        }
    }

    fn read(&self, at: u64) -> io::Result<Option<LogBatch>> {
        let mut bytes = vec![0; HEAD_BYTES];
        let left = self.file.metadata()?.len().saturating_sub(at);
        if left < to_u64(HEAD_BYTES) {
            return Ok(None);
        }
        self.file.read_exact_at(&mut bytes, at)?;
        let Ok(head) = BatchHead::read_from_bytes(&bytes) else { return Ok(None) };
        if !head.is_whole() || head.bytes.get() > left - to_u64(HEAD_BYTES) {
            return Ok(None);
        }
        bytes.resize(HEAD_BYTES + to_usize(head.bytes.get()), 0);
        self.file.read_exact_at(&mut bytes[HEAD_BYTES..], at + to_u64(HEAD_BYTES))?;
        Ok(LogBatch::from_bytes(bytes).filter(|batch| batch.position().identity() == self.identity))
    }
}
