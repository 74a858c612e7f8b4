//! Snapshots: reads of the state at one moment, however long they take and whatever others commit meanwhile.
//!
//! A snapshot sees the versions up to its epoch: see [`lodestone_txn::Epochs`]. They are closed under dependency, so it
//! is a serializable transaction that only reads, at the moment of its begin. It notes nothing and validates nothing.
//!
//! 1. *A version in place that it sees* is the answer. A locked row is waited for: the version under way may be of this
//!    epoch. So is the fence of a pending one.
//! 2. *A version in place that is later*: the one before it was kept ([`crate::side`]), or there was no row.
//! 3. *No slot*: there is no row. A deleted row keeps its slot as long as an active snapshot does not see its deletion
//!    ([`Core::may_purge`](crate::core::Core::may_purge)), and an older version of it is found as in step 2. A row that
//!    the snapshot sees was claimed before the epoch rose, so every search finds it.
//!
//! A slot that stays locked was purged, or its claim was given up. Then the key is looked up again.
//!
//! **Durable answers.** An answer goes out with each operation, so each waits until what it saw is durable. The last
//! commits of a writer are one point. Once a writer has noted a later epoch, its point covers all of its versions that
//! the snapshot sees, so each writer is waited for a few times at most.
//!
//! **Cost.** Without an active snapshot a commit pays three loads: of the epoch, of the last one that its writer
//! noted, and whether a snapshot is active.

use std::fmt;
use std::sync::Arc;

use lodestone_pmem::sync::atomic::{AtomicBool, Ordering};
use lodestone_pmem::sync::spin;
use lodestone_pmem::{DurablePoint, planted};
use lodestone_txn::{RowState, RowWord, SharedHorizon, Tick};

use crate::catalog::Origin;
use crate::core::{Core, Handle};
use crate::durability::Point;
use crate::error::{Error, Result};
use crate::side::RowKey;
use crate::tree::{Bytes, Look, Lookup, Slot, Tree};

/// An epoch that is kept readable: the versions that it sees stay until this is dropped.
pub struct Cut {
    core: Handle,
    horizon: SharedHorizon,
}

impl fmt::Debug for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cut").field("epoch", &self.epoch()).finish_non_exhaustive()
    }
}

/// Where the version that a cut sees was found.
#[derive(Debug)]
pub enum Source {
    /// It is the newest one of its slot.
    Newest(Arc<Slot>, RowWord),
    /// It was overwritten.
    Kept(RowWord),
    /// The key has no slot in this leaf.
    Nothing(Look),
    /// All versions of the key are later. Rows of its leaf that were purged are durable at the point.
    Later(DurablePoint),
}

/// The version of a row that a cut sees. It is not pending.
#[derive(Debug)]
pub struct Version {
    /// `None`: there is no row.
    pub payload: Option<Bytes>,
    pub source: Source,
}

impl Version {
    fn of(word: RowWord, payload: Bytes, source: Source) -> Self {
        Self { payload: (!word.is_absent()).then_some(payload), source }
    }
}

impl Cut {
    /// Everything that was committed up to now.
    pub fn new(core: Handle) -> Self {
        let horizon = SharedHorizon::new(core.timeline.epochs().open());
        Self { core, horizon }
    }

    pub fn core(&self) -> &Handle {
        &self.core
    }

    pub fn epoch(&self) -> u64 {
        self.horizon.epoch()
    }

    /// Whether it sees the version `word`.
    pub fn sees(&self, word: RowWord) -> bool {
        let (version, timeline) = (word.version(), &self.core.timeline);
        self.horizon.sees(timeline.epochs(), version.writer(), version.tick(timeline.base()))
    }

    /// The row with `key`.
    ///
    /// # Errors
    /// [`Error::SnapshotTooOld`]; [`Error::Poisoned`].
    pub fn read(&self, tree: &Arc<Tree>, key: &[u8]) -> Result<Version> {
        for turn in 0.. {
            match tree.find(key)? {
                Lookup::Nothing(look) => return Ok(Version { payload: None, source: Source::Nothing(look) }),
                Lookup::Slot(slot) => {
                    if let Some(found) = self.read_if_settled(tree, key, &slot)? {
                        return Ok(found);
                    }
                }
            }
            spin(turn);
        }
        Err(Error::SnapshotTooOld)
    }

    /// Whether it sees the table as it was when a handle on it was made.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn sees_table(&self, origin: &Origin) -> Result<bool> {
        if !self.sees(origin.word) || origin.slot.word().same_version(origin.word) {
            return Ok(self.sees(origin.word));
        }
        // It has changed since, perhaps after the cut.
        Ok(match self.read(&origin.catalog, &origin.key)?.source {
            Source::Newest(_, word) | Source::Kept(word) => word.same_version(origin.word),
            Source::Nothing(_) | Source::Later(_) => false,
        })
    }

    /// The row with `key`, whose slot was `slot`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_slot(&self, tree: &Arc<Tree>, key: &[u8], slot: &Arc<Slot>) -> Result<Version> {
        match self.read_if_settled(tree, key, slot)? {
            Some(found) => Ok(found),
            None => self.read(tree, key),
        }
    }

    /// The version in or before `slot`; `None` while it stays locked.
    fn read_if_settled(&self, tree: &Tree, key: &[u8], slot: &Arc<Slot>) -> Result<Option<Version>> {
        self.core.refuse_if_poisoned()?;
        let Some((word, payload)) = slot.read() else { return Ok(None) };
        if self.sees(word) {
            if word.state() == RowState::Pending && !planted::active("engine-snapshot-answers-pending") {
                self.core.wait_settled(slot, word)?;
            }
            return Ok(Some(Version::of(word, payload, Source::Newest(slot.clone(), word))));
        }
        let row = RowKey(tree.number, key.into());
        if let Some(kept) = self.core.side.find(&row, self.epoch(), Clone::clone) {
            return Ok(Some(Version::of(kept.word, kept.payload, Source::Kept(kept.word))));
        }
        if self.core.side.has_lost(self.epoch()) {
            return Err(Error::SnapshotTooOld);
        }
        Ok(Some(Version { payload: None, source: Source::Later(tree.purged(key)?) }))
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        let epochs = self.core.timeline.epochs();
        // First it leaves the active snapshots, so that nothing more is kept for it.
        epochs.close(self.epoch());
        self.core.side.release(epochs, self.epoch());
    }
}

/// The state of a database at one moment. See [`Database::snapshot`](crate::Database::snapshot).
///
/// It never meets a conflict, and no transaction waits for it. Rows that are changed or deleted while it exists are
/// kept for it in memory: at most one version for each row and snapshot, and not more bytes than
/// [`DatabaseOptions::side_bytes_max`](crate::DatabaseOptions::side_bytes_max). They are dropped with it.
///
/// Thread safety: any number of threads may read it at the same time.
///
/// ```
/// use lodestone_engine::{Database, DatabaseOptions, Error, Schema, Type, row};
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("shop.pool");
/// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
/// let db = Database::open_with(&path, &options)?;
/// let table = db.create_table(&Schema::new("t").column("k", Type::U64).column("v", Type::I64).key(["k"]))?;
/// db.update(|tx| table.put(tx, &row![1_u64, 10_i64]))?;
/// let before = db.snapshot()?;
/// db.update(|tx| {
///     table.delete(tx, &row![1_u64])?;
///     table.put(tx, &row![2_u64, 20_i64])
/// })?;
/// assert_eq!(table.get(&before, &row![1_u64])?, Some(row![1_u64, 10_i64]));
/// assert_eq!(table.range(&before, ..)?.collect::<Result<Vec<_>, _>>()?, [row![1_u64, 10_i64]]);
/// assert_eq!(table.range(&db.snapshot()?, ..)?.collect::<Result<Vec<_>, _>>()?, [row![2_u64, 20_i64]]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Snapshot {
    cut: Cut,
    /// By writer, where answers wait: whether all of its versions that the snapshot sees are known to be durable.
    durable: Box<[AtomicBool]>,
}

impl Snapshot {
    pub(crate) fn new(core: &Handle) -> Result<Self> {
        core.refuse_if_poisoned()?;
        let writers = if core.answers_wait() { core.timeline.registry().threads_max() } else { 0 };
        Ok(Self { cut: Cut::new(core.clone()), durable: (0..writers).map(|_| AtomicBool::new(false)).collect() })
    }

    pub(crate) fn core(&self) -> &Handle {
        self.cut.core()
    }

    /// Whether the snapshot sees the table as it was when a handle on it was made.
    pub(crate) fn sees_table(&self, origin: &Origin) -> Result<bool> {
        self.cut.sees_table(origin)
    }

    /// The row with `key`, durable.
    pub(crate) fn get(&self, tree: &Arc<Tree>, key: &[u8]) -> Result<Option<Bytes>> {
        self.acknowledge(self.cut.read(tree, key)?)
    }

    /// The row with `key`, whose slot was `slot`, durable.
    pub(crate) fn get_slot(&self, tree: &Arc<Tree>, key: &[u8], slot: &Arc<Slot>) -> Result<Option<Bytes>> {
        self.acknowledge(self.cut.read_slot(tree, key, slot)?)
    }

    /// Waits until rows that were purged are so durably.
    pub(crate) fn wait_purged(&self, point: DurablePoint) -> Result<()> {
        let core = self.core();
        match (core.waits, core.group.is_some()) {
            (_, true) => core.acknowledge(core.present_point()),
            (true, false) => core.acknowledge(Point { flushed: point, ..Point::default() }),
            (false, false) => Ok(()),
        }
    }

    fn acknowledge(&self, found: Version) -> Result<Option<Bytes>> {
        match found.source {
            Source::Newest(_, word) | Source::Kept(word) => self.wait_writer(self.core(), word)?,
            Source::Nothing(look) => self.wait_purged(look.purged())?,
            Source::Later(point) => self.wait_purged(point)?,
        }
        Ok(found.payload)
    }

    fn wait_writer(&self, core: &Core, word: RowWord) -> Result<()> {
        let (version, base) = (word.version(), core.timeline.base());
        let writer = version.writer();
        if !core.answers_wait() || version.tick(base) <= base || self.durable[writer.index()].load(Ordering::Relaxed) {
            return Ok(());
        }
        // Before the point: a writer that has noted a later epoch has ended all its commits before.
        let is_over = core.timeline.epochs().first_after(writer, self.cut.epoch()).is_some();
        // For all versions of the writer that the snapshot sees.
        core.acknowledge(core.point_of(writer.index(), Tick(u64::MAX)))?;
        self.durable[writer.index()].store(is_over, Ordering::Relaxed);
        Ok(())
    }
}
