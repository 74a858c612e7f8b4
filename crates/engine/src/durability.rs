//! How commits become durable, and which parts of the protocol they use. The default of each option is the protocol of
//! this crate; the others are what it is compared with (paper 3, figures 3 and 9 to 12).
//!
//! | option | value | the commit |
//! | --- | --- | --- |
//! | [`Durability`] | `Sync` | one record and one fence, then it is acknowledged |
//! | | `Ordered` | the same, and it returns before its commit group is durable (block domain) |
//! | | `Epoch` | no record and no fence of its own: see `group.rs` |
//! | | `None` | nothing is logged, nothing survives |
//! | [`Region`] | `Locks` | writes are locked, reads are validated |
//! | | `Rtm` | the same in a transaction of the processor |
//! | | `Emulated` | the same, and a model tells when a processor would have aborted |
//! | | `Naive` | reads and writes are locked until the record is persistent |
//! | `early_release` | `false` | others see the changes when the record is persistent, never before |

use std::time::Duration;

use lodestone_pmem::DurablePoint;
use lodestone_pmem::htm::HtmModel;

use crate::database::Database;
use crate::error::{Error, Result};
use crate::options::DatabaseOptions;

/// When a transaction is acknowledged, and what is done for that.
///
/// ```
/// use std::time::Duration;
///
/// use lodestone_engine::{DatabaseOptions, Durability};
///
/// let grouped = DatabaseOptions { durability: Durability::EPOCH, ..DatabaseOptions::default() };
/// assert_eq!(grouped.durability, Durability::Epoch(Duration::from_millis(40)));
/// assert_eq!(DatabaseOptions::default().durability, Durability::Sync);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// On return a transaction survives power loss.
    #[default]
    Sync,
    /// On return a transaction is ordered: it survives if a later one does. In the block domain it is durable with its
    /// commit group, at the latest when [`Database::sync`] returns. In the other domains this is `Sync`.
    Ordered,
    /// Group commit, as in Silo and DBX: transactions are collected for so long, 0.01 to 80 ms, and become durable
    /// together. On return a transaction is durable, so it takes about as long. [`Database::update_async`] returns at
    /// once. The logger has one of the `threads_max` logs, so there are at least two. An interval is late by as much as
    /// the system's timers are, about 0.05 ms; below 0.2 ms the logger does not sleep.
    Epoch(Duration),
    /// No log and no fence: rows are lost at the end of the process or of the last handle. Only for a database that was
    /// made so. It is empty at each open.
    None,
}

impl Durability {
    /// Group commit at the interval of Silo and DBX: 40 ms.
    pub const EPOCH: Self = Self::Epoch(Duration::from_millis(40));

    pub(crate) const fn is_none(self) -> bool {
        matches!(self, Self::None)
    }

    pub(crate) fn check(self) -> Result<()> {
        match self {
            Self::Epoch(interval) if !(Duration::from_micros(10)..=Duration::from_millis(80)).contains(&interval) => {
                Err(Error::BadOption {
                    option: "durability: microseconds of an epoch",
                    value: u64::try_from(interval.as_micros()).unwrap_or(u64::MAX),
                    rule: "it is 10 to 80000",
                })
            }
            _ => Ok(()),
        }
    }
}

/// The rows that a commit locks, and how.
///
/// ```
/// use lodestone_engine::{Database, DatabaseOptions, Error, Region};
/// use lodestone_pmem::htm::Rtm;
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("shop.pool");
/// let opened = Database::open_with(&path, &DatabaseOptions { region: Region::Rtm, ..DatabaseOptions::default() });
/// // Refused where the processor has no transactions: nothing is made then.
/// assert_eq!(opened.is_ok(), Rtm::detect().is_some());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Region {
    /// Those that it changes. Those that it read are compared with their versions.
    #[default]
    Locks,
    /// As `Locks`, in one transaction of the processor, where it has Intel's RTM; otherwise the database does not open.
    /// A transaction that is aborted too often locks one row after the other. Not measured: the processors at hand
    /// have none.
    Rtm,
    /// As `Locks`, and a model is told each word that such a transaction would read or write. Where a processor would
    /// have aborted, so does the commit, and it tries again or falls back as with `Rtm`.
    Emulated(HtmModel),
    /// Also those that it read, and all of them until its record is persistent: the baseline "naive" of paper 3. Others
    /// never see a change before. So `early_release` has no effect.
    Naive,
}

/// How much of a page a checkpoint writes.
///
/// ```
/// use lodestone_engine::{DatabaseOptions, FlushUnit};
/// assert_eq!(DatabaseOptions::default().flush_unit, FlushUnit::Line);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlushUnit {
    /// The lines of 64 bytes with rows that changed, where the medium has lines and a leaf has the keys that it had
    /// (paper 4, section 2.1.4). Where few lines of a page change between two checkpoints, the first record of a row
    /// after each one has all of it. The `block` domain and group commit write whole pages.
    #[default]
    Line,
    /// All rows of a leaf, into other pages: the baseline.
    Page,
}

/// The ways of a commit, from the options.
#[derive(Clone, Copy, Debug)]
pub struct Ways {
    pub durability: Durability,
    /// Whether rows that were read are locked.
    pub locks_reads: bool,
    /// Whether changes are visible before their record is persistent.
    pub is_early: bool,
    /// Whether records may have deltas.
    pub deltas: bool,
    /// Whether a round changes rows of pages in place.
    pub in_place: bool,
    /// Whether a thread makes rounds.
    pub checkpoint_thread: bool,
    /// Whether a commit has a record in the log of each part of its tables.
    pub by_table: bool,
}

impl Ways {
    /// `has_lines`: bytes may be written directly in lines.
    pub fn new(options: &DatabaseOptions, has_lines: bool) -> Self {
        let locks_reads = options.region == Region::Naive;
        let is_early = options.early_release && !locks_reads;
        let DatabaseOptions { durability, deltas, checkpoint_thread, .. } = *options;
        // In a group a version is installed before its record is persistent. So it must not be in a page that counts.
        let is_at_once = matches!(durability, Durability::Sync | Durability::Ordered);
        let in_place = options.flush_unit == FlushUnit::Line && has_lines && is_at_once;
        // The logs of other ways have one owner, or none.
        let by_table = options.log_placement == LogPlacement::ByTable && is_at_once;
        Self { durability, locks_reads, is_early, deltas, in_place, checkpoint_thread, by_table }
    }
}

/// In which logs the record of a transaction is.
///
/// ```
/// use lodestone_engine::{DatabaseOptions, LogPlacement};
///
/// assert_eq!(DatabaseOptions::default().log_placement, LogPlacement::Home);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogPlacement {
    /// In one: that of the thread, on its node. One record and one fence, however many tables change.
    #[default]
    Home,
    /// In a log on the part of each table that it changes, as in paper 4: a record in each, and it survives with all of
    /// them or not at all. For tables [in parts](crate::Schema::in_part) of the pool; the rows of others are in the log
    /// of the thread. No [feed](Database::feed) can be open. Other ways than [`Durability::Sync`] and
    /// [`Durability::Ordered`] have one log all the same.
    ByTable,
}

/// The moment from which on a transaction is durable, and everything that it saw.
#[derive(Clone, Copy, Debug, Default)]
pub struct Point {
    pub flushed: DurablePoint,
    /// Whether this thread flushed it.
    pub is_own: bool,
    /// The epoch of group commit; 0: none.
    pub epoch: u64,
}

impl Point {
    /// Of a commit by this thread.
    pub fn own(flushed: DurablePoint) -> Self {
        Self { flushed, is_own: true, epoch: 0 }
    }

    /// Of an epoch of group commit.
    pub fn of_epoch(epoch: u64) -> Self {
        Self { epoch, ..Self::default() }
    }

    /// The later of two points, neither of which is of a commit by this thread alone.
    pub fn max(self, other: Self) -> Self {
        let (flushed, epoch) = (self.flushed.max(other.flushed), self.epoch.max(other.epoch));
        Self { flushed, is_own: false, epoch }
    }
}

impl Database {
    /// Waits until every transaction that has returned is durable, whatever the option `durability` says. A database
    /// without durability has nothing to wait for.
    ///
    /// # Errors
    /// [`Error::Pool`] when the medium failed; [`Error::Poisoned`].
    ///
    /// ```
    /// use lodestone_engine::{Database, DatabaseOptions, Durability, Error, Schema, Type, row};
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let options =
    /// #     DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// let db = Database::open_with(&path, &DatabaseOptions { durability: Durability::Ordered, ..options })?;
    /// let table = db.create_table(&Schema::new("t").column("k", Type::U64).key(["k"]))?;
    /// (0..100_u64).try_for_each(|k| db.update(|tx| table.put(tx, &row![k])))?;
    /// db.sync()?; // one commit group, at most a few
    /// # Ok::<(), Error>(())
    /// ```
    pub fn sync(&self) -> Result<()> {
        let core = self.core();
        core.refuse_if_poisoned()?;
        match &core.group {
            Some(group) => group.flush(core),
            None => Ok(core.memory.wait_durable(core.memory.flushed_anywhere())?),
        }
    }
}
