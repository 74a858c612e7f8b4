//! One error for all floors, so that a function that uses several of them needs one `?` and one result type.
//!
//! Each floor has its own error type, and each converts into [`Error`]. A conversion unpacks: an index whose heap is
//! full fails with [`Error::Heap`], not with an index error that has a heap error inside. So the variant names the
//! floor that failed, and [`Error::category`] the case, whichever floor met it.

use std::fmt;
use std::io::ErrorKind;

use lodestone_txn::Error as ClockError;
use lodestone_wal::Error as LogError;

use crate::{engine, fs, heap, index, pmem, stm, store};

/// Result of functions that use Lodestone.
///
/// ```
/// use lodestone::{PoolOptions, Store};
///
/// fn main() -> lodestone::Result<()> {
///     # let folder = tempfile::tempdir().unwrap();
///     # let path = folder.path().join("shop.pool");
///     let store = Store::create(&path, &PoolOptions::default())?;
///     assert!(store.names().is_empty());
///     Ok(())
/// }
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of any floor. Its message says what failed, where, and what to do next.
///
/// `Display` and [`source`](std::error::Error::source) are those of the floor's error. `Debug` prints the message too,
/// because that is what `main` prints of an error that it returns. `{:#?}` prints the fields.
///
/// ```
/// use lodestone::collections::{Bytes, PmHashMap};
/// use lodestone::{ErrorCategory, OrderedMap, PoolOptions, Result, Stm, Store};
///
/// /// A pool, a map and a transaction: three floors, one result.
/// fn stock_up(path: &std::path::Path) -> Result<u64> {
///     let store = Store::open(path, &PoolOptions::default())?;
///     OrderedMap::open(&store, "orders")?.insert(b"4711", b"one lamp")?;
///     let stm = Stm::open(&store)?;
///     let stock = PmHashMap::<Bytes, u64>::open(&stm, "stock")?;
///     stm.update(|tx| stock.insert(tx, b"lamp", &3))?;
///     Ok(stm.read(|tx| stock.len(tx))?)
/// }
///
/// # let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("shop.pool");
/// let missing = stock_up(&path).unwrap_err();
/// assert_eq!(missing.category(), ErrorCategory::NotFound);
/// assert!(missing.to_string().contains("shop.pool"));
///
/// drop(Store::create(&path, &PoolOptions::default())?);
/// assert_eq!(stock_up(&path)?, 1);
/// # Ok::<(), lodestone::Error>(())
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// From the pool: its files, the device, the domain.
    #[error(transparent)]
    Pool(pmem::Error),
    /// From the heap, most often because it is full.
    #[error(transparent)]
    Heap(heap::Error),
    /// From the store: names and kinds of objects.
    #[error(transparent)]
    Store(store::Error),
    /// From a map or an index.
    #[error(transparent)]
    Index(index::Error),
    /// From the transactional memory or a collection in it.
    #[error(transparent)]
    Stm(stm::Error),
    /// From a database or a table in it.
    #[error(transparent)]
    Engine(engine::Error),
    /// From a volume of files.
    #[error(transparent)]
    Fs(Box<fs::Error>),
}

/// The case that an [`Error`] is, for programs that react to it.
///
/// ```
/// use lodestone::{ErrorCategory, OrderedMap, PoolOptions, Stm, Store};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("shop.pool");
/// let store = Store::create(&path, &PoolOptions::default())?;
/// let orders = OrderedMap::open(&store, "orders")?;
///
/// let twice = OrderedMap::open(&store, "orders").map_err(lodestone::Error::from);
/// assert_eq!(twice.unwrap_err().category(), ErrorCategory::Busy);
/// let overwritten = Store::create(&path, &PoolOptions::default()).map_err(lodestone::Error::from);
/// assert_eq!(overwritten.unwrap_err().category(), ErrorCategory::Exists);
/// # Ok::<(), lodestone::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorCategory {
    /// The pool, or the device under it, has no room. Nothing changed. Remove data, or let the pool grow.
    Full,
    /// Bytes do not verify, or the file is no pool. Check it, repair it, or restore a copy.
    Damaged,
    /// A format that this program does not read, and no damage. Use the program that the message names.
    OtherVersion,
    /// The pool or the object is open, here or in another process. Share that handle, wait, or close it.
    Busy,
    /// The object or the type in the pool is not the one that the program asked for.
    WrongType,
    /// The pool is open for reading, and the call would change it.
    ReadOnly,
    /// There is no such file, or no object of that name.
    NotFound,
    /// There is such a file, or an object of that name, already.
    Exists,
    /// An argument, an option or the state of its receiver does not fit the call. The program must change.
    Invalid,
    /// A limit other than space was reached, such as the number of threads.
    Limit,
    /// The domain that was asked for is not available here.
    Unavailable,
    /// The operating system or the device failed, now or earlier. Reopen the pool when the cause is gone.
    Io,
    /// The pool was closed while a part of the program still used it.
    Closed,
    /// The transaction cancelled itself.
    Cancelled,
    /// Another transaction was first. Run it again from its beginning.
    Conflict,
    /// None of these. The message says more.
    Other,
}

impl Error {
    /// The case that this error is.
    #[must_use]
    pub fn category(&self) -> ErrorCategory {
        match self {
            Self::Pool(error) => of_pool(error),
            Self::Heap(error) => of_heap(error),
            Self::Store(error) => of_store(error),
            Self::Index(error) => of_index(error),
            Self::Stm(error) => of_stm(error),
            Self::Engine(error) => of_engine(error),
            Self::Fs(error) => of_fs(error),
        }
    }
}

fn of_pool(error: &pmem::Error) -> ErrorCategory {
    use pmem::Error as E;
    match error {
        full if full.is_full() => ErrorCategory::Full,
        E::Io { source, .. } if source.kind() == ErrorKind::NotFound => ErrorCategory::NotFound,
        E::Io { .. } | E::Changed { .. } | E::Poisoned { .. } => ErrorCategory::Io,
        E::Format { .. } => ErrorCategory::Damaged,
        E::OtherVersion { .. } => ErrorCategory::OtherVersion,
        E::Exists { .. } => ErrorCategory::Exists,
        E::Unavailable { .. } => ErrorCategory::Unavailable,
        E::InUse { .. } | E::HeapInUse { .. } | E::StillOpen { .. } => ErrorCategory::Busy,
        E::Invalid { .. } => ErrorCategory::Invalid,
        E::Closed { .. } => ErrorCategory::Closed,
        _ => ErrorCategory::Other,
    }
}

fn of_heap(error: &heap::Error) -> ErrorCategory {
    use heap::Error as E;
    match error {
        E::Pmem(error) => of_pool(error),
        E::AlreadyOpen { .. } => ErrorCategory::Busy,
        E::NoSpace { .. } => ErrorCategory::Full,
        E::Damaged { .. } => ErrorCategory::Damaged,
        E::ReadOnly { .. } => ErrorCategory::ReadOnly,
        E::TooLarge { .. } | E::ActionTooLarge { .. } | E::NotAllocated { .. } | E::BadWord { .. } => {
            ErrorCategory::Invalid
        }
        E::Invalid { .. } => ErrorCategory::Invalid,
        _ => ErrorCategory::Other,
    }
}

fn of_store(error: &store::Error) -> ErrorCategory {
    use store::Error as E;
    match error {
        E::Pool(error) => of_pool(error),
        E::Heap(error) => of_heap(error),
        E::Damaged { .. } | E::NotWhole { .. } => ErrorCategory::Damaged,
        E::InvalidName { .. } => ErrorCategory::Invalid,
        E::NotFound { .. } => ErrorCategory::NotFound,
        E::Exists { .. } => ErrorCategory::Exists,
        E::WrongKind { .. } | E::UnknownKind { .. } => ErrorCategory::WrongType,
        E::AlreadyOpen { .. } => ErrorCategory::Busy,
        E::ReadOnly { .. } => ErrorCategory::ReadOnly,
        _ => ErrorCategory::Other,
    }
}

fn of_index(error: &index::Error) -> ErrorCategory {
    use index::Error as E;
    match error {
        E::Pool(error) => of_pool(error),
        E::Heap(error) => of_heap(error),
        E::Store(error) => of_store(error),
        E::Damaged { .. } => ErrorCategory::Damaged,
        E::TooLong { .. } | E::NotEmpty | E::NotSorted { .. } | E::NotAWord { .. } => ErrorCategory::Invalid,
        E::Crowded { .. } => ErrorCategory::Limit,
        E::WrongKind { .. } => ErrorCategory::WrongType,
        E::ReadOnly { .. } => ErrorCategory::ReadOnly,
        E::AlreadyOpen { .. } => ErrorCategory::Busy,
        _ => ErrorCategory::Other,
    }
}

fn of_stm(error: &stm::Error) -> ErrorCategory {
    use stm::Error as E;
    match error {
        E::Pool(error) => of_pool(error),
        E::Heap(error) => of_heap(error),
        E::Store(error) => of_store(error),
        E::Engine(error) => of_clock(error),
        E::Cancelled { .. } => ErrorCategory::Cancelled,
        E::AlreadyOpen { .. } => ErrorCategory::Busy,
        E::ReadOnly { .. } | E::NeverChanges => ErrorCategory::ReadOnly,
        E::BadPointer { .. } | E::Damaged { .. } => ErrorCategory::Damaged,
        E::LayoutChanged { .. } | E::RootType { .. } => ErrorCategory::WrongType,
        E::Nested | E::TooLarge { .. } | E::Invalid { .. } => ErrorCategory::Invalid,
        _ => ErrorCategory::Other,
    }
}

fn of_clock(error: &ClockError) -> ErrorCategory {
    match error {
        ClockError::Damaged { .. } => ErrorCategory::Damaged,
        _ => ErrorCategory::Limit,
    }
}

fn of_engine(error: &engine::Error) -> ErrorCategory {
    use engine::Error as E;
    match error {
        E::Pool(error) => of_pool(error),
        E::Heap(error) => of_heap(error),
        E::Store(error) => of_store(error),
        E::Clock(error) => of_clock(error),
        E::Log(LogError::WriterTaken { .. }) => ErrorCategory::Busy,
        E::Full { .. } => ErrorCategory::Full,
        E::Damaged { .. } => ErrorCategory::Damaged,
        E::Conflict | E::SnapshotTooOld => ErrorCategory::Conflict,
        E::Duplicate { .. } | E::TableExists { .. } | E::IndexExists { .. } => ErrorCategory::Exists,
        E::NotFound { .. } | E::NoTable { .. } | E::NoIndex { .. } => ErrorCategory::NotFound,
        E::SchemaDiffers { .. } | E::TableChanged { .. } => ErrorCategory::WrongType,
        E::IndexNotReady { .. } => ErrorCategory::Busy,
        E::ReadOnly { .. } => ErrorCategory::ReadOnly,
        E::Cancelled { .. } => ErrorCategory::Cancelled,
        E::Poisoned { .. } | E::Sink { .. } | E::Publish { .. } => ErrorCategory::Io,
        E::Archive { .. } => ErrorCategory::Invalid,
        E::TransactionTooLarge { .. } | E::TooLarge { .. } | E::BadOption { .. } | E::OtherDatabase { .. } => {
            ErrorCategory::Invalid
        }
        E::BadSchema { .. } | E::WrongType { .. } | E::WrongLength { .. } | E::Nested => ErrorCategory::Invalid,
        E::NoSavepoint => ErrorCategory::Invalid,
        E::NoColumn { .. } | E::Overflow { .. } => ErrorCategory::Invalid,
        E::DurabilityDiffers { .. } | E::WithoutDurability { .. } => ErrorCategory::Invalid,
        _ => ErrorCategory::Other,
    }
}

fn of_fs(error: &fs::Error) -> ErrorCategory {
    use fs::{Error as E, Refusal as R};
    match error {
        E::Pool(error) => of_pool(error),
        E::Heap(error) => of_heap(error),
        E::Store(error) => of_store(error),
        E::Image(error) => of_stm(error),
        E::Refused(R::NotFound | R::NoAttribute | R::Stale) => ErrorCategory::NotFound,
        E::Refused(R::Exists) => ErrorCategory::Exists,
        E::Refused(R::NoSpace) => ErrorCategory::Full,
        E::Refused(R::Busy) => ErrorCategory::Busy,
        E::Refused(R::ReadOnly) => ErrorCategory::ReadOnly,
        E::Refused(R::TooManyLinks | R::FileTooLarge | R::AttributeTooLarge) => ErrorCategory::Limit,
        E::Refused(_) | E::Options(_) => ErrorCategory::Invalid,
        E::DamagedPage { .. } | E::Damaged { .. } | E::Log(_) => ErrorCategory::Damaged,
        E::NotAVolume { .. } => ErrorCategory::WrongType,
        E::TooNew { .. } => ErrorCategory::OtherVersion,
        E::Poisoned(_) => ErrorCategory::Io,
        _ => ErrorCategory::Other,
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            _ if !f.alternate() => fmt::Display::fmt(self, f),
            Self::Pool(error) => fmt::Debug::fmt(error, f),
            Self::Heap(error) => fmt::Debug::fmt(error, f),
            Self::Store(error) => fmt::Debug::fmt(error, f),
            Self::Index(error) => fmt::Debug::fmt(error, f),
            Self::Stm(error) => fmt::Debug::fmt(error, f),
            Self::Engine(error) => fmt::Debug::fmt(error, f),
            Self::Fs(error) => fmt::Debug::fmt(error, f),
        }
    }
}

impl From<pmem::Error> for Error {
    fn from(error: pmem::Error) -> Self {
        Self::Pool(error)
    }
}

impl From<heap::Error> for Error {
    fn from(error: heap::Error) -> Self {
        match error {
            heap::Error::Pmem(error) => error.into(),
            other => Self::Heap(other),
        }
    }
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::Pool(error) => error.into(),
            store::Error::Heap(error) => error.into(),
            other => Self::Store(other),
        }
    }
}

impl From<index::Error> for Error {
    fn from(error: index::Error) -> Self {
        match error {
            index::Error::Pool(error) => error.into(),
            index::Error::Heap(error) => error.into(),
            index::Error::Store(error) => error.into(),
            other => Self::Index(other),
        }
    }
}

impl From<stm::Error> for Error {
    fn from(error: stm::Error) -> Self {
        match error {
            stm::Error::Pool(error) => error.into(),
            stm::Error::Heap(error) => error.into(),
            stm::Error::Store(error) => error.into(),
            other => Self::Stm(other),
        }
    }
}

impl From<engine::Error> for Error {
    fn from(error: engine::Error) -> Self {
        match error {
            engine::Error::Pool(error) => error.into(),
            engine::Error::Heap(error) => error.into(),
            engine::Error::Store(error) => error.into(),
            other => Self::Engine(other),
        }
    }
}

impl From<fs::Error> for Error {
    fn from(error: fs::Error) -> Self {
        match error {
            fs::Error::Pool(error) => error.into(),
            fs::Error::Heap(error) => error.into(),
            fs::Error::Store(error) => error.into(),
            fs::Error::Image(error) => error.into(),
            other => Self::Fs(Box::new(other)),
        }
    }
}

/// So that a closure of [`Stm::try_update`](crate::Stm::try_update) can return this crate's [`Result`].
impl From<stm::Abort> for Error {
    fn from(abort: stm::Abort) -> Self {
        abort.into_error().into()
    }
}
