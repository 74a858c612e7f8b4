//! Progress of an open, for those who wait for it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The part of an open that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenStep {
    /// Images of leaves are read from pages.
    Images,
    /// Records are read from the logs. Their number is not known before.
    Records,
    /// Leaves are made of images and records.
    Leaves,
}

/// How far an open is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenProgress {
    /// The step.
    pub step: OpenStep,
    /// Pieces of it that are done, about.
    pub done: usize,
    /// All of its pieces, if that is known.
    pub total: Option<usize>,
}

/// Is told how far an open is: see [`DatabaseOptions::on_open`](crate::DatabaseOptions::on_open).
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use lodestone_engine::{Database, DatabaseOptions, Error, OnOpen, OpenStep, Schema, Type, row};
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("shop.pool");
/// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
/// let db = Database::open_with(&path, &options)?;
/// let table = db.create_table(&Schema::new("t").column("k", Type::U64).key(["k"]))?;
/// db.update(|tx| table.put(tx, &row![1_u64]))?;
/// drop((table, db));
///
/// let leaves = Arc::new(Mutex::new(0));
/// let seen = leaves.clone();
/// let on_open = OnOpen::new(move |progress| {
///     if progress.step == OpenStep::Leaves {
///         *seen.lock().unwrap() = progress.done;
///     }
/// });
/// Database::open_with(&path, &DatabaseOptions { on_open: Some(on_open), ..options })?;
/// // The catalog has one, and the table.
/// assert_eq!(*leaves.lock().unwrap(), 2);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone)]
pub struct OnOpen(Arc<dyn Fn(OpenProgress) + Send + Sync>);

impl OnOpen {
    /// `tell` is called by several threads, now and then and when a step is complete. It should be quick.
    pub fn new(tell: impl Fn(OpenProgress) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }
}

impl fmt::Debug for OnOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnOpen").finish_non_exhaustive()
    }
}

/// Pieces between two reports.
const PIECES_PER_REPORT: usize = 1_024;

/// Counts the pieces of a step.
pub struct Meter<'o> {
    on_open: Option<&'o OnOpen>,
    step: OpenStep,
    total: Option<usize>,
    done: AtomicUsize,
}

impl<'o> Meter<'o> {
    pub fn new(on_open: Option<&'o OnOpen>, step: OpenStep, total: Option<usize>) -> Self {
        Self { on_open, step, total, done: AtomicUsize::new(0) }
    }

    /// So many more are done.
    pub fn add(&self, pieces: usize) {
        let Some(OnOpen(tell)) = self.on_open else { return };
        let before = self.done.fetch_add(pieces, Ordering::Relaxed);
        let done = before + pieces;
        if done / PIECES_PER_REPORT > before / PIECES_PER_REPORT || Some(done) == self.total {
            tell(OpenProgress { step: self.step, done, total: self.total });
        }
    }

    /// Another one is done. `count`: those of this thread.
    pub fn add_one_of_many(&self, count: usize) {
        if count.is_multiple_of(PIECES_PER_REPORT) {
            self.add(PIECES_PER_REPORT);
        }
    }
}
