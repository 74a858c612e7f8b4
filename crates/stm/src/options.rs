//! Options of a transactional memory.

use lodestone_txn::{ClockKind, Lives, WRITERS_MAX};

use crate::error::{Error, Result};

/// How transactions are made durable.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// use lodestone_stm::{Mode, Stm, StmOptions};
///
/// // Three fences for each transaction, as in paper 1. For comparisons.
/// let options = StmOptions { mode: Mode::AddressLog, ..StmOptions::default() };
/// let stm = Stm::open_named(&store, "logged", &options)?;
/// stm.update(|tx| tx.alloc_bytes(b"one"))?;
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Intent record and slots unordered, then one fence. Recovery decides by the content of the slots.
    #[default]
    OneFence,
    /// The addresses first, then the slots, then the end of the log: three fences (paper 1, section 4.3, its default).
    AddressLog,
    /// The timestamp first, then the slots, then the end of the log: three fences, and recovery looks at every object
    /// (paper 1, section 4.3).
    Scan,
}

/// How to format and use a transactional memory. The persistent options apply only when it is formatted.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// use lodestone_stm::{Stm, StmOptions};
///
/// // Long snapshots beside writers may keep a mebibyte of old versions.
/// let options = StmOptions { side_bytes_max: 1 << 20, ..StmOptions::default() };
/// let stm = Stm::open_with(&store, &options)?;
/// assert_eq!(stm.snapshot(|_| Ok(1 + 1))?, 2);
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct StmOptions {
    /// How transactions are made durable. May change from open to open.
    pub mode: Mode,
    /// Source of the timestamps. May change from open to open.
    pub clock: ClockKind,
    /// Threads that may have run a transaction and still live, 1 to 1024. Persistent.
    pub threads_max: u16,
    /// Bytes of an intent record's buffer, a multiple of 64; longer records are chained. Persistent.
    pub record_bytes: u32,
    /// Bytes of the table of crashed lives, at least 24 and 8 for each thread. Persistent.
    pub table_bytes: u32,
    /// Bytes of the first slab of each size, a power of two; later ones are larger. Persistent.
    pub slab_bytes: u32,
    /// Bytes of a block of the slab directory. Persistent.
    pub directory_bytes: u32,
    /// Makes version words persistent when a life first touches their objects. Nothing needs it. It reduces the number
    /// of crash states, because otherwise each word may or may not have reached the medium. For tests.
    pub persistent_words: bool,
    /// Timestamps that are reserved at a time. 0 means so many that it happens once in minutes of full load. For tests.
    pub reservation_ticks: u64,
    /// Bytes of memory for versions that are overwritten while active snapshots still see them: at most one version for
    /// each snapshot and object. A snapshot beyond the limit restarts
    /// ([`StmStats::conflicts_snapshot`](crate::StmStats)). No limit by default.
    pub side_bytes_max: u64,
}

impl Default for StmOptions {
    fn default() -> Self {
        Self {
            mode: Mode::OneFence,
            clock: ClockKind::Thread,
            threads_max: 256,
            record_bytes: 512,
            table_bytes: 64 << 10,
            slab_bytes: 64 << 10,
            directory_bytes: 4096,
            persistent_words: false,
            reservation_ticks: 0,
            side_bytes_max: u64::MAX,
        }
    }
}

impl StmOptions {
    /// Buffers, slabs and tables so small that tests reach every limit.
    #[must_use]
    pub fn small() -> Self {
        Self {
            threads_max: 4,
            record_bytes: 64,
            table_bytes: 512,
            slab_bytes: 512,
            directory_bytes: 128,
            ..Self::default()
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let lines = |bytes: u32| bytes >= 64 && bytes.is_multiple_of(64) && bytes <= 1 << 20;
        let sane = (1..=WRITERS_MAX).contains(&self.threads_max)
            && lines(self.record_bytes)
            && lines(self.table_bytes)
            && lines(self.directory_bytes)
            && lines(self.slab_bytes)
            && self.slab_bytes.is_power_of_two()
            // Room for the entry of one crashed life, whatever its threads did. Recovery needs it.
            && u64::from(self.table_bytes) >= Lives::entry_bytes(usize::from(self.threads_max));
        if sane {
            return Ok(());
        }
        Err(Error::Invalid {
            what: "options of the transactional memory",
            finding: format!("{self:?}"),
            hint: "use 1 to 1024 threads, and multiples of 64 up to 1 MiB for all sizes, a power of two for slab_bytes, for \
                   table_bytes at least 24 and 8 for each thread",
        })
    }
}
