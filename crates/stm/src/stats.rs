//! Counts of transactions and their attempts, per thread id and summed on demand.

use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Conflict;

/// The sums over the transactions of a memory.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// # use lodestone_stm::Stm;
/// # let stm = Stm::open(&store)?;
/// stm.update(|tx| tx.alloc_bytes(b"one"))?;
/// stm.read(|_| Ok(()))?;
/// let stats = stm.stats();
/// assert!(stats.commits >= 1 && stats.reads >= 1);
/// assert_eq!(stats.conflicts(), 0, "no other thread was there");
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StmStats {
    /// Transactions that committed changes.
    pub commits: u64,
    /// Transactions that changed nothing.
    pub reads: u64,
    /// Attempts that met an object that was being committed for too long.
    pub conflicts_committing: u64,
    /// Attempts whose reads were changed by other transactions.
    pub conflicts_read: u64,
    /// Attempts that lost a race for an object to be written.
    pub conflicts_write: u64,
    /// Attempts of snapshots that needed a version that is gone.
    pub conflicts_snapshot: u64,
    /// Read-only attempts that ran again with a list of their reads.
    pub unrecorded: u64,
    /// Times a start clock was extended.
    pub extensions: u64,
    /// Times a transaction waited for a change.
    pub waits: u64,
    /// Transactions that were cancelled or failed.
    pub cancelled: u64,
    /// Versions that were copied aside because a snapshot saw them when they were overwritten.
    pub side_copies: u64,
    /// Such versions that are kept at present.
    pub side_versions: u64,
    /// Their approximate size in bytes.
    pub side_bytes: u64,
}

impl StmStats {
    /// Attempts that did not commit because of other transactions.
    #[must_use]
    pub fn conflicts(&self) -> u64 {
        self.conflicts_committing + self.conflicts_read + self.conflicts_write + self.conflicts_snapshot
    }
}

macro_rules! stats {
    ($($name:ident),+) => {
        /// Counts of one thread id. Only the thread with that id writes them.
        #[derive(Debug, Default)]
        pub struct Block { $($name: AtomicU64),+ }

        impl Stats {
            /// The sum over all threads.
            pub fn sum(&self) -> StmStats {
                let mut sum = StmStats::default();
                for block in &self.blocks {
                    $(sum.$name += block.$name.load(Ordering::Relaxed);)+
                }
                sum
            }
        }

        impl Block {
            $(#[inline] pub fn $name(&self) {
                self.$name.store(self.$name.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            })+
        }
    };
}
stats!(
    commits,
    reads,
    conflicts_committing,
    conflicts_read,
    conflicts_write,
    conflicts_snapshot,
    unrecorded,
    extensions,
    waits,
    cancelled,
    side_copies
);

/// The counts of all thread ids.
#[derive(Debug)]
pub struct Stats {
    blocks: Box<[CachePadded<Block>]>,
}

impl Stats {
    pub fn new(threads: u16) -> Self {
        Self { blocks: (0..threads).map(|_| CachePadded::default()).collect() }
    }

    #[inline]
    pub fn of(&self, writer: usize) -> &Block {
        &self.blocks[writer]
    }
}

impl Block {
    pub fn conflict(&self, conflict: Conflict) {
        match conflict {
            Conflict::Committing => self.conflicts_committing(),
            Conflict::ReadChanged => self.conflicts_read(),
            Conflict::WriteChanged => self.conflicts_write(),
            Conflict::SnapshotTooOld => self.conflicts_snapshot(),
            Conflict::Unrecorded => self.unrecorded(),
        }
    }
}
