//! The errors of a map, and the user's next step after each.

use std::path::{Path, PathBuf};

use lodestone_pmem::PmAddr;

/// Result of the operations of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation on a map failed. The map is unchanged, and usable, after each of them.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// use lodestone_index::{Error, OrderedMap};
///
/// let map = OrderedMap::open(&store, "map")?;
/// let refused = map.insert(&[7; 70_000], b"value");
/// assert!(refused.is_err(), "a key has a limit: {}", lodestone_index::KEY_BYTES_MAX);
/// let text = |error: Error| error.to_string();
/// assert!(!text(refused.unwrap_err()).is_empty());
/// # Ok::<(), lodestone_index::Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pool failed; its message says how.
    #[error(transparent)]
    Pool(#[from] lodestone_pmem::Error),
    /// The heap failed (most often: no space); its message says how.
    #[error(transparent)]
    Heap(#[from] lodestone_heap::Error),
    /// Bytes on the medium do not verify.
    #[error("{}: part {} at offset {:#x}: {what}: {finding}; other keys stay readable: run `lodestone pool check`, then restore from a backup", path.display(), at.part(), at.offset())]
    Damaged {
        /// First part of the pool.
        path: PathBuf,
        /// Where the damage was found.
        at: PmAddr,
        /// The structure at that place.
        what: &'static str,
        /// The fault found there.
        finding: String,
    },
    /// A key or value is longer than the map can hold.
    #[error("a {what} of {bytes} bytes is too long: at most {bytes_max} bytes fit; shorten it or store it in pieces")]
    TooLong {
        /// "key" or "value".
        what: &'static str,
        /// Its length.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// A bulk load was asked of an index that holds something.
    #[error("a bulk load fills an empty index, and this one holds keys; insert one by one, or load into a new index")]
    NotEmpty,
    /// The input of a bulk load does not ascend.
    #[error(
        "pair {position} of the sorted input (counted from 0) does not ascend; the pairs before it are in the index: sort the input and drop duplicates"
    )]
    NotSorted {
        /// Which pair.
        position: u64,
    },
    /// A value of a map of byte strings is not eight bytes, so it is no value of an index.
    #[error("{}: the value has {bytes} bytes, an index has values of 8; use the map's own operations for byte strings", path.display())]
    NotAWord {
        /// First part of the pool.
        path: PathBuf,
        /// Length of the value.
        bytes: u64,
    },
    /// Too many keys of a hash index have hashes that agree in all bits that choose a segment.
    #[error("{}: so many keys share a hash that no segment holds them; load the keys into a new index: it draws another hash", path.display())]
    Crowded {
        /// First part of the pool.
        path: PathBuf,
    },
    /// The object of that name is something else.
    #[error("{}: `{name}` is {found}, not {wanted}; open it with what made it, or choose another name", path.display())]
    WrongKind {
        /// First part of the pool.
        path: PathBuf,
        /// Name of the object.
        name: String,
        /// The kind that it has.
        found: String,
        /// The kind that it was opened as.
        wanted: String,
    },
    /// The pool is open read-only, and the call would change it.
    #[error("{}: the pool is open read-only, and {what} would change it; open it for writing", path.display())]
    ReadOnly {
        /// First part of the pool.
        path: PathBuf,
        /// The operation asked for.
        what: &'static str,
    },
    /// The map is open in this process: a second one would not see its changes.
    #[error("{}: the map `{name}` is open already; share that one by reference or Arc", path.display())]
    AlreadyOpen {
        /// First part of the pool.
        path: PathBuf,
        /// Name of the map.
        name: String,
    },
    /// The store refused; its message says why.
    #[error(transparent)]
    Store(lodestone_store::Error),
}

/// Whether an action of the heap took effect, and the error to report. An action that met damaged metadata of the heap
/// is persistent all the same, so the state in DRAM must follow it.
pub(crate) fn committed(outcome: lodestone_heap::Result<()>) -> (bool, Result<()>) {
    let took_effect = matches!(outcome, Ok(()) | Err(lodestone_heap::Error::Damaged { .. }));
    (took_effect, outcome.map_err(Error::from))
}

impl From<lodestone_store::Error> for Error {
    fn from(error: lodestone_store::Error) -> Self {
        use lodestone_store::Error as StoreError;
        match error {
            StoreError::Pool(error) => Self::Pool(error),
            StoreError::Heap(error) => Self::Heap(error),
            StoreError::Damaged { path, at, what, finding } => Self::Damaged { path, at, what, finding },
            StoreError::WrongKind { path, name, found, wanted } => Self::WrongKind { path, name, found, wanted },
            StoreError::AlreadyOpen { path, name } => Self::AlreadyOpen { path, name },
            StoreError::ReadOnly { path, what } => Self::ReadOnly { path, what },
            other => Self::Store(other),
        }
    }
}

impl Error {
    /// Whether the pool, or the file system under it, had no room. Nothing changed; the index stays readable, and
    /// removals make room again.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Heap(error) => error.is_full(),
            Self::Pool(error) => error.is_full(),
            Self::Store(error) => error.is_full(),
            _ => false,
        }
    }

    pub(crate) fn damaged(path: &Path, at: PmAddr, what: &'static str, finding: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), at, what, finding: finding.into() }
    }
}
