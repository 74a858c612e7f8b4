//! Options of a database.

use std::path::Path;

use lodestone_pages::PageOptions;
use lodestone_pmem::PoolOptions;
use lodestone_wal::{LogAlign, LogOptions, LogStore};
use lodestone_width::to_u64;

use crate::durability::{Durability, FlushUnit, LogPlacement, Region};
use crate::error::{Error, Result};
use crate::far::FarPages;
use crate::format::Places;
use crate::leaf;
use crate::on_open::OnOpen;
use crate::payload::{INLINE_BYTES_LIMIT, Limits};
use crate::region;

/// How to open a database. The most threads, the sizes of log, segments and pages, and the alignment count when it is
/// made.
///
/// ```
/// use lodestone_engine::DatabaseOptions;
/// use lodestone_pmem::PoolOptions;
///
/// let large = DatabaseOptions {
///     pool: PoolOptions { size_bytes: 8 << 30, ..PoolOptions::default() },
///     log_bytes: 4 << 30,
///     segment_bytes: 64 << 20,
///     ..DatabaseOptions::default()
/// };
/// assert_eq!((large.name.as_str(), large.threads_max), ("tables", 128));
/// ```
#[derive(Clone, Debug)]
pub struct DatabaseOptions {
    /// The pool, for [`Database::open_with`](crate::Database::open_with).
    pub pool: PoolOptions,
    /// Name of the database in its store.
    pub name: String,
    /// Most commits at a time: each has a log of its own meanwhile. Others wait.
    pub threads_max: u16,
    /// Bytes of all logs together. At half of that a checkpoint is made. A log holds at most the changes since the last
    /// but one.
    ///
    /// In the `block` domain log bytes pass through the journal of the pool. Where that has four times these bytes
    /// ([`PoolOptions::journal_bytes`]), most records are truncated before they leave it, and are written once. In a
    /// smaller journal they are written twice.
    pub log_bytes: u64,
    /// Bytes of a segment of a log, at most half of `log_bytes`.
    pub segment_bytes: u64,
    /// Most bytes of the logs that [feeds](crate::Database::feed) hold back. `None`: a quarter of `log_bytes`.
    pub feed_bytes: Option<u64>,
    /// Where records begin.
    pub log_align: LogAlign,
    /// How records are stored.
    pub log_store: LogStore,
    /// In which logs the record of a transaction is.
    pub log_placement: LogPlacement,
    /// In a pool of one part tables are told apart by their numbers, as if they were in so many parts. For proofs.
    #[doc(hidden)]
    pub log_groups: u16,
    /// How pages on other nodes are read. It counts in a pool with parts on several nodes.
    pub far_pages: FarPages,
    /// Whether a long scan of rows on other nodes has a thread on each of these nodes, which reads ahead for it. It
    /// counts in a pool with parts on several nodes, from the sixteenth leaf on that is not in DRAM.
    pub scan_readers: bool,
    /// The part of the pool in which all logs are, as long as it has room. `None`: each log is near the thread that
    /// writes it. For comparison: paper 4 measures one log for all nodes.
    pub log_part: Option<u16>,
    /// Seed of the log's checksums: see [`LogOptions::salt`].
    pub log_salt: Option<u64>,
    /// When a transaction is acknowledged. `Durability::None` counts when the database is made.
    pub durability: Durability,
    /// The rows that a commit locks, and how.
    pub region: Region,
    /// Whether others may read a change before its record is persistent. They wait before they rely on it.
    pub early_release: bool,
    /// Whether a record has the bytes of a row that changed, where they are fewer than those of the row.
    pub deltas: bool,
    /// How much of a page a checkpoint writes.
    pub flush_unit: FlushUnit,
    /// Whether a thread of the database makes these checkpoints. Without it a commit does, and takes as long. A commit
    /// without room in its log makes or awaits one in any case.
    pub checkpoint_thread: bool,
    /// Most rows of a leaf in DRAM: 2 to 65,536. A leaf with more rows than fit a page is split when it is written.
    pub leaf_rows_max: usize,
    /// Bytes of DRAM for rows. The others are read from their pages when they are used. Rows that were not used for a
    /// while make room, once a checkpoint has their changes. In a full cache most rows that are
    /// read alone stay only if they are read again soon. `None`: all rows that were used stay.
    ///
    /// Each leaf takes about 280 of these bytes also while its rows are not in DRAM: 3.5 % of its page, where pages
    /// have 8 KiB. A sixteenth is for what the allocator takes beside. The rows have the rest, and an eighth at least.
    /// A transaction keeps all rows that it has read until it ends. Read more than fits in a
    /// [snapshot](crate::Database::snapshot).
    pub cache_bytes: Option<u64>,
    /// Whether the first looks at rows of a leaf that is not in DRAM read these rows alone, and not the whole leaf. It
    /// counts where `cache_bytes` is set. For comparison: a database of whole pages reads one for each row.
    pub row_reads: bool,
    /// Whether pages are read from the device around the page cache of the system (`O_DIRECT`). It counts in the block
    /// domain where `cache_bytes` is set, and fits a process that may have hardly more memory than these: the page
    /// cache would only have copies of rows that the cache has. With more free memory it is a second cache.
    pub direct_reads: bool,
    /// Whether the rows that were in the cache at the last close are read again after an open, until the cache is full.
    /// A thread does that beside transactions, for a fifth of the time. It counts where `cache_bytes` is set.
    pub warm_up: bool,
    /// Bytes of a page, a power of two.
    pub page_bytes: u32,
    /// Pages that are taken from the pool at a time.
    pub extent_pages: u32,
    /// Bytes of memory for versions that are overwritten or deleted while snapshots still see them: at most one version
    /// for each snapshot and row. A snapshot beyond the limit fails
    /// ([`Error::SnapshotTooOld`](crate::Error::SnapshotTooOld)). One gibibyte by default.
    pub side_bytes_max: u64,
    /// Most bytes of texts and bytes outside the key that a row holds itself, up to 32 KiB. Of longer rows the longest
    /// values are kept in pieces, each a row of its own.
    pub inline_bytes_max: usize,
    /// Bytes of such a piece.
    pub piece_bytes: usize,
    /// Bytes of memory for the rows of a load ([`Database::begin_load`](crate::Database::begin_load)). It writes them
    /// to pages when there are more.
    pub load_buffer_bytes: usize,
    /// Is told how far an open is.
    pub on_open: Option<OnOpen>,
}

impl Default for DatabaseOptions {
    fn default() -> Self {
        let (log, pages) = (LogOptions::default(), PageOptions::default());
        Self {
            pool: PoolOptions::default(),
            name: DATABASE_NAME.into(),
            threads_max: 128,
            log_bytes: log.log_bytes,
            segment_bytes: log.segment_bytes,
            feed_bytes: None,
            log_align: log.align,
            log_store: LogStore::default(),
            log_placement: LogPlacement::default(),
            log_groups: 0,
            far_pages: FarPages::default(),
            scan_readers: true,
            log_part: None,
            log_salt: log.salt,
            durability: Durability::default(),
            region: Region::default(),
            early_release: true,
            deltas: true,
            flush_unit: FlushUnit::default(),
            checkpoint_thread: true,
            leaf_rows_max: 64,
            cache_bytes: None,
            row_reads: true,
            direct_reads: false,
            warm_up: true,
            page_bytes: pages.page_bytes,
            extent_pages: pages.extent_pages,
            side_bytes_max: 1 << 30,
            inline_bytes_max: 2000,
            // Two to a page of 8 KiB.
            piece_bytes: 3900,
            load_buffer_bytes: 16 << 20,
            on_open: None,
        }
    }
}

/// Name of the database that [`Database::open`](crate::Database::open) opens.
pub const DATABASE_NAME: &str = "tables";

impl DatabaseOptions {
    pub(crate) fn check(&self) -> Result<()> {
        let bad = |option, value, rule| Err(Error::BadOption { option, value, rule });
        if self.threads_max == 0 || self.threads_max > lodestone_txn::WRITERS_MAX {
            return bad("threads_max", self.threads_max.into(), "it is 1 to 1024");
        }
        if !(2..=leaf::ROWS_MAX).contains(&self.leaf_rows_max) {
            return bad("leaf_rows_max", to_u64(self.leaf_rows_max), "it is 2 to 65536");
        }
        if self.cache_bytes == Some(0) {
            return bad("cache_bytes", 0, "it is at least 1, and none for all rows");
        }
        if self.inline_bytes_max > INLINE_BYTES_LIMIT {
            return bad("inline_bytes_max", to_u64(self.inline_bytes_max), "it is at most 32 KiB");
        }
        if !(16..=64 << 10).contains(&self.piece_bytes) {
            return bad("piece_bytes", to_u64(self.piece_bytes), "it is 16 bytes to 64 KiB");
        }
        region::hardware(&self.region)?;
        self.durability.check()
    }

    /// Whether the database at `places`, in a pool of so many parts, can be opened with these options.
    pub(crate) fn check_with(&self, places: &Places, parts: u16, path: &Path) -> Result<()> {
        if places.is_without_durability() != self.durability.is_none() {
            let (without, with) = ("with `Durability::None`", "with durability");
            let [made, open] = if places.is_without_durability() { [without, without] } else { [with, with] };
            return Err(Error::DurabilityDiffers { path: path.to_owned(), made, open });
        }
        if let Some(part) = self.log_part.filter(|part| *part >= parts) {
            let rule = "it is a part of the pool, counted from 0";
            return Err(Error::BadOption { option: "log_part", value: part.into(), rule });
        }
        if matches!(self.durability, Durability::Epoch(_)) && places.threads_max() < 2 {
            let (option, rule) = ("threads_max", "group commit by epochs needs a database made with at least 2");
            return Err(Error::BadOption { option, value: places.threads_max().into(), rule });
        }
        Ok(())
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits { inline_bytes_max: self.inline_bytes_max, piece_bytes: self.piece_bytes }
    }

    pub(crate) fn pages(&self) -> PageOptions {
        PageOptions { page_bytes: self.page_bytes, extent_pages: self.extent_pages, writers: self.threads_max }
    }

    pub(crate) fn log(&self) -> LogOptions {
        LogOptions {
            log_bytes: self.log_bytes,
            segment_bytes: self.segment_bytes,
            align: self.log_align,
            salt: self.log_salt,
        }
    }
}
