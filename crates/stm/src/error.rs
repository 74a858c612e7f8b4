//! The errors of transactions, and the reasons why a transaction is not committed.

use std::borrow::Cow;
use std::path::PathBuf;

use lodestone_pmem::PmAddr;

/// An error of the transactional memory.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// # use lodestone_stm::Stm;
/// # let stm = Stm::open(&store)?;
/// use lodestone_stm::Error;
///
/// let outcome = stm.update(|tx| tx.cancel::<()>("sold out"));
/// assert!(matches!(outcome, Err(Error::Cancelled { reason }) if reason == "sold out"));
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The transaction called [`Tx::cancel`](crate::Tx::cancel). Nothing was changed.
    #[error("transaction cancelled: {reason}")]
    Cancelled {
        /// The reason that it named.
        reason: Cow<'static, str>,
    },
    /// A transaction of the same memory is running on this thread.
    #[error("a transaction of this memory is running on this thread; hand its `Tx` on, or use `Tx::nested`")]
    Nested,
    /// This process has the memory open.
    #[error("{}: its transactional memory is open in this process already; use that `Stm`, a clone of it costs nothing", path.display())]
    AlreadyOpen {
        /// The pool.
        path: PathBuf,
    },
    /// A change inside a read-only transaction or on a read-only pool.
    #[error("{what} in a read-only transaction or pool; use `Stm::update` on a pool that is open for writing")]
    ReadOnly {
        /// The operation.
        what: &'static str,
    },
    /// A transaction waits for a change of a pool that is open read-only.
    #[error(
        "the transaction waits for a change, and nothing changes while the pool is open read-only; return what was found there, \
         or open the pool for writing"
    )]
    NeverChanges,
    /// A pointer that does not point to an object.
    #[error("no object at {at}: {finding}; check where the pointer comes from")]
    BadPointer {
        /// The address.
        at: PmAddr,
        /// The finding at that address.
        finding: &'static str,
    },
    /// The newest version of an object, or metadata, is damaged.
    #[error("{}: {what} at {at}: {finding}; run `lodestone pool check`, restore the object from a copy", path.display())]
    Damaged {
        /// The pool.
        path: PathBuf,
        /// The damaged thing.
        what: &'static str,
        /// The place.
        at: PmAddr,
        /// The finding.
        finding: String,
    },
    /// The type in the program is not the type in the pool.
    #[error(
        "type `{name}`: the pool holds version {found_version} with layout [{found}], the program has version \
         {expected_version} with layout [{expected}]; give the new layout a new type name and move the objects over \
         in a transaction, or run the program that wrote the pool"
    )]
    LayoutChanged {
        /// Name of the type.
        name: String,
        /// Version in the pool.
        found_version: u32,
        /// Layout in the pool.
        found: String,
        /// Version in the program.
        expected_version: u32,
        /// Layout in the program.
        expected: String,
    },
    /// A root holds another type.
    #[error("root `{root}` is a `{found}`, not a `{expected}`; open it with its own type or choose another name")]
    RootType {
        /// Name of the root.
        root: String,
        /// Type of the object.
        found: String,
        /// Type that was asked for.
        expected: String,
    },
    /// The object is larger than any that can be stored.
    #[error("an object of {bytes} bytes; the limit is {limit_bytes} bytes, use several objects")]
    TooLarge {
        /// The size that was requested.
        bytes: u64,
        /// The largest size.
        limit_bytes: u64,
    },
    /// Options that make no sense, or not for this pool.
    #[error("invalid {what}: {finding}; {hint}")]
    Invalid {
        /// The option.
        what: &'static str,
        /// The fault.
        finding: String,
        /// The remedy.
        hint: &'static str,
    },
    /// From the commit engine's parts.
    #[error(transparent)]
    Engine(#[from] lodestone_txn::Error),
    /// From the heap; a full pool among them.
    #[error(transparent)]
    Heap(#[from] lodestone_heap::Error),
    /// From the pool.
    #[error(transparent)]
    Pool(#[from] lodestone_pmem::Error),
    /// From the store.
    #[error(transparent)]
    Store(lodestone_store::Error),
}

impl From<lodestone_cells::Error> for Error {
    fn from(error: lodestone_cells::Error) -> Self {
        use lodestone_cells::Error as CellError;
        match error {
            CellError::Heap(error) => Self::Heap(error),
            CellError::TooLarge { bytes, limit_bytes } => Self::TooLarge { bytes, limit_bytes },
            CellError::Damaged { path, what, at, finding } => Self::Damaged { path, what, at, finding },
        }
    }
}

impl From<lodestone_store::Error> for Error {
    fn from(error: lodestone_store::Error) -> Self {
        use lodestone_store::Error as StoreError;
        match error {
            StoreError::Pool(error) => Self::Pool(error),
            StoreError::Heap(error) => Self::Heap(error),
            StoreError::AlreadyOpen { path, .. } => Self::AlreadyOpen { path },
            StoreError::ReadOnly { what, .. } => Self::ReadOnly { what },
            other => Self::Store(other),
        }
    }
}

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an attempt of a transaction ended without a commit. Return it with `?`: the transaction restarts by itself where
/// that helps.
///
/// It implements `Error`, so closures of [`Stm::try_update`](crate::Stm::try_update) can return it in their own error
/// type: by `#[from] Abort` in an enum, or unchanged in `Box<dyn Error>` and similar types.
#[derive(Debug)]
#[must_use]
pub struct Abort(pub(crate) Why);

impl Abort {
    /// The error that ended the transaction. An abort that another transaction caused never leaves
    /// [`Stm::try_update`](crate::Stm::try_update) and its siblings: those restart.
    #[must_use]
    pub fn into_error(self) -> Error {
        match self.0 {
            Why::Failed(error) => *error,
            Why::Conflict(_) | Why::Retry => Error::Cancelled { reason: self.to_string().into() },
        }
    }
}

impl std::fmt::Display for Abort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Why::Failed(error) => error.fmt(f),
            Why::Conflict(_) => f.write_str("another transaction was in the way; hand this error on with `?`"),
            Why::Retry => f.write_str("the transaction waits for a change; hand this error on with `?`"),
        }
    }
}

impl std::error::Error for Abort {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0 {
            Why::Failed(error) => error.source(),
            Why::Conflict(_) | Why::Retry => None,
        }
    }
}

impl From<Abort> for Error {
    fn from(abort: Abort) -> Self {
        abort.into_error()
    }
}

/// Inside an [`Abort`].
#[derive(Debug)]
pub(crate) enum Why {
    /// Another transaction was in the way.
    Conflict(Conflict),
    /// The transaction waits for a change of what it read.
    Retry,
    /// It cannot be done.
    Failed(Box<Error>),
}

/// The cause of a conflict. The counts are in [`StmStats`](crate::StmStats).
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// # use lodestone_stm::Stm;
/// # let stm = Stm::open(&store)?;
/// use lodestone_stm::Conflict;
///
/// // Transactions run again after a conflict, so programs meet only the counts.
/// assert_eq!(stm.stats().conflicts(), 0);
/// assert_ne!(Conflict::ReadChanged, Conflict::WriteChanged);
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Conflict {
    /// An object was being committed by another transaction for too long.
    Committing,
    /// An object that was read has changed.
    ReadChanged,
    /// An object that was to be written has changed or is being committed.
    WriteChanged,
    /// An object's two versions are both newer than the snapshot.
    SnapshotTooOld,
    /// The attempt kept no list of what it read and needed one.
    Unrecorded,
}

/// The result of a transaction's closure.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// # use lodestone_stm::Stm;
/// # let stm = Stm::open(&store)?;
/// use lodestone_stm::{Tx, TxResult};
///
/// /// Part of a transaction: `?` hands the end of the attempt on.
/// fn take(tx: &mut Tx<'_>, left: u64) -> TxResult<u64> {
///     if left == 0 { tx.cancel("nothing is left") } else { Ok(left - 1) }
/// }
///
/// assert_eq!(stm.update(|tx| take(tx, 3))?, 2);
/// assert!(stm.update(|tx| take(tx, 0)).is_err());
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
pub type TxResult<T> = std::result::Result<T, Abort>;

impl From<Error> for Abort {
    #[cold]
    fn from(error: Error) -> Self {
        Self(Why::Failed(Box::new(error)))
    }
}

impl From<Conflict> for Abort {
    #[inline]
    fn from(conflict: Conflict) -> Self {
        Self(Why::Conflict(conflict))
    }
}

macro_rules! abort_from {
    ($($kind:ty),+) => {
        $(impl From<$kind> for Abort {
            #[cold]
            fn from(error: $kind) -> Self {
                Error::from(error).into()
            }
        })+
    };
}
abort_from!(lodestone_txn::Error, lodestone_heap::Error, lodestone_pmem::Error);
