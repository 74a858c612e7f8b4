//! Figures about a database: counts of its transactions since it was opened, and the sizes of its parts.
//!
//! The counts belong to the states of transactions, which one transaction at a time uses. So a transaction counts
//! without a read-modify-write, and the sums are made on demand.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use lodestone_pages::PageStats;
use lodestone_pmem::htm::Abort;
use lodestone_wal::LogStats;
use lodestone_width::to_u64;

use crate::core::Core;

/// Figures about a database. The counts begin at 0 with each open.
///
/// ```
/// use lodestone_engine::{Database, DatabaseOptions, Error, Schema, Type, row};
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("shop.pool");
/// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
/// let db = Database::open_with(&path, &options)?;
/// let table = db.create_table(&Schema::new("t").column("k", Type::U64).key(["k"]))?;
/// let before = db.stats();
/// db.update(|tx| table.put(tx, &row![1_u64]))?;
/// let _snapshot = db.snapshot()?;
/// db.update(|tx| table.delete(tx, &row![1_u64]))?;
/// let stats = db.stats();
/// assert_eq!(stats.commits - before.commits, 2);
/// assert_eq!((stats.snapshots_open, stats.side_versions), (1, 1));
/// // For machines: each figure with its name, or one object of JSON.
/// assert!(stats.figures().contains(&("snapshots_open", 1)));
/// assert!(stats.to_string().contains("\"snapshots_open\":1"));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatabaseStats {
    /// Transactions that committed changes.
    pub commits: u64,
    /// Transactions that ended well and changed nothing. Reads of a snapshot are none.
    pub read_only: u64,
    /// Transactions that ended with an error of their closure.
    pub cancelled: u64,
    /// Attempts that met a conflict.
    pub conflicts: u64,
    /// Attempts that ran again after that.
    pub retries: u64,
    /// Commits whose locks were taken in one hardware transaction, or in one that a model let pass.
    pub regions: u64,
    /// Such transactions that were aborted because of another thread.
    pub region_conflicts: u64,
    /// Aborted because their words do not fit into the processor's caches.
    pub region_overflows: u64,
    /// Aborted for another reason: an interrupt, for example.
    pub region_others: u64,
    /// Commits that took their locks one by one after that.
    pub region_fallbacks: u64,
    /// Snapshots that are open, with those of transactions.
    pub snapshots_open: u64,
    /// Versions that were kept for snapshots.
    pub side_copies: u64,
    /// Such versions that are kept at present.
    pub side_versions: u64,
    /// About their bytes.
    pub side_bytes: u64,
    /// Bytes of the rows in DRAM and of all leaves, where
    /// [`DatabaseOptions::cache_bytes`](crate::DatabaseOptions::cache_bytes) is set.
    pub cache_bytes: u64,
    /// Leaves that were read from their pages since.
    pub cache_loads: u64,
    /// Leaves that made room.
    pub cache_evictions: u64,
    /// Rows that were read from their pages without the others of their leaves.
    pub cache_row_reads: u64,
    /// Leaves that were read after the open because they were in the cache at the last close.
    pub cache_warm_loads: u64,
    /// Leaves that threads on other nodes have read ahead of [long scans](crate::DatabaseOptions::scan_readers).
    pub scan_leaves_ahead: u64,
    /// Checkpoints that failed. [`Database::checkpoint_trouble`](crate::Database::checkpoint_trouble) says why.
    pub checkpoints_failed: u64,
    /// Bytes of all records that were ever appended to the logs.
    pub log_appended_bytes: u64,
    /// The log.
    pub log: LogStats,
    /// The pages, as the last checkpoint left them.
    pub pages: PageStats,
}

impl DatabaseStats {
    pub(crate) fn of(core: &Core) -> Self {
        let mut stats = Self {
            snapshots_open: to_u64(core.timeline.epochs().active_count()),
            checkpoints_failed: core.rounds.trouble.count(),
            scan_leaves_ahead: core.leaves_ahead.load(Ordering::Relaxed),
            log_appended_bytes: core.rounds.cuts.bytes(),
            log: core.wal.stats(),
            pages: core.rounds.page_stats(),
            ..Self::default()
        };
        if let Some(cache) = &core.ground.cache {
            (stats.cache_bytes, stats.cache_loads) = (cache.bytes(), cache.loads());
            stats.cache_row_reads = cache.row_reads();
            stats.cache_warm_loads = cache.warm_loads();
            stats.cache_evictions = cache.evictions();
        }
        (stats.side_versions, stats.side_bytes) = core.side.size();
        core.counts().iter().for_each(|counts| counts.add_to(&mut stats));
        stats
    }

    /// The figures of which `find` knows the values by their names: the reverse of [`figures`](Self::figures).
    ///
    /// # Errors
    /// The name of the first one that `find` does not know.
    ///
    /// ```
    /// use lodestone_engine::DatabaseStats;
    ///
    /// let stats = DatabaseStats::from_figures(|name| Some(if name == "commits" { 7 } else { 0 }));
    /// assert_eq!(stats.map(|stats| stats.commits), Ok(7));
    /// assert_eq!(DatabaseStats::from_figures(|_| None), Err("commits"));
    /// ```
    pub fn from_figures(find: impl Fn(&str) -> Option<u64>) -> Result<Self, &'static str> {
        let mut stats = Self::default();
        for (name, value) in stats.named() {
            *value = find(name).ok_or(name)?;
        }
        Ok(stats)
    }

    /// Each figure with its name. The names stay the same, and later versions add some.
    #[must_use]
    pub fn figures(&self) -> Vec<(&'static str, u64)> {
        let mut copy = *self;
        copy.named().into_iter().map(|(name, value)| (name, *value)).collect()
    }

    /// The places of all figures, by name.
    fn named(&mut self) -> Vec<(&'static str, &mut u64)> {
        let Self { log, pages, .. } = self;
        vec![
            ("commits", &mut self.commits),
            ("read_only", &mut self.read_only),
            ("cancelled", &mut self.cancelled),
            ("conflicts", &mut self.conflicts),
            ("retries", &mut self.retries),
            ("regions", &mut self.regions),
            ("region_conflicts", &mut self.region_conflicts),
            ("region_overflows", &mut self.region_overflows),
            ("region_others", &mut self.region_others),
            ("region_fallbacks", &mut self.region_fallbacks),
            ("snapshots_open", &mut self.snapshots_open),
            ("side_copies", &mut self.side_copies),
            ("side_versions", &mut self.side_versions),
            ("side_bytes", &mut self.side_bytes),
            ("cache_bytes", &mut self.cache_bytes),
            ("cache_loads", &mut self.cache_loads),
            ("cache_evictions", &mut self.cache_evictions),
            ("cache_row_reads", &mut self.cache_row_reads),
            ("cache_warm_loads", &mut self.cache_warm_loads),
            ("scan_leaves_ahead", &mut self.scan_leaves_ahead),
            ("checkpoints_failed", &mut self.checkpoints_failed),
            ("log_segments", &mut log.segments),
            ("log_segments_free", &mut log.segments_free),
            ("log_segments_max", &mut log.segments_max),
            ("log_segment_bytes", &mut log.segment_bytes),
            ("pages", &mut pages.pages),
            ("pages_free", &mut pages.pages_free),
            ("page_bytes", &mut pages.page_bytes),
            ("page_batches", &mut pages.batches),
            ("page_written_bytes", &mut pages.written_bytes),
            ("log_appended_bytes", &mut self.log_appended_bytes),
        ]
    }
}

/// An object of JSON with all [figures](DatabaseStats::figures).
impl fmt::Display for DatabaseStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_figures(f, self.figures())
    }
}

/// Writes figures as an object of JSON.
pub fn write_figures(f: &mut fmt::Formatter<'_>, figures: Vec<(&'static str, u64)>) -> fmt::Result {
    f.write_str("{")?;
    for (number, (name, value)) in figures.into_iter().enumerate() {
        write!(f, "{}\"{name}\":{value}", if number == 0 { "" } else { "," })?;
    }
    f.write_str("}")
}

macro_rules! counts {
    ($($name:ident),+) => {
        /// Counts of the transactions that used one state. Only the transaction that uses it writes them.
        #[derive(Debug, Default)]
        pub struct Counts { $($name: AtomicU64),+ }

        impl Counts {
            $(pub fn $name(&self, more: u64) {
                self.$name.store(self.$name.load(Ordering::Relaxed) + more, Ordering::Relaxed);
            })+

            fn add_to(&self, stats: &mut DatabaseStats) {
                $(stats.$name += self.$name.load(Ordering::Relaxed);)+
            }
        }
    };
}
counts!(
    commits,
    read_only,
    cancelled,
    conflicts,
    retries,
    regions,
    region_conflicts,
    region_overflows,
    region_others,
    region_fallbacks,
    side_copies
);

impl Counts {
    /// Counts a hardware transaction that was aborted.
    pub fn region_aborted(&self, abort: Abort) {
        match abort {
            Abort::Conflict => self.region_conflicts(1),
            Abort::Capacity => self.region_overflows(1),
            _ => self.region_others(1),
        }
    }
}
