//! The errors of the objects of a pool, each with the user's next step.

use std::path::PathBuf;

use lodestone_pmem::PmAddr;

/// Result of the operations of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation on a store failed. After each of them nothing has changed, and the store is usable.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// use lodestone_store::{Error, Force};
///
/// let missing = store.drop_object("nothing", Force::No);
/// assert!(matches!(missing, Err(Error::NotFound { name, .. }) if name == "nothing"));
/// # Ok::<(), lodestone_store::Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pool failed. Its message says how.
    #[error(transparent)]
    Pool(#[from] lodestone_pmem::Error),
    /// The heap failed, most often because of no space. Its message says how.
    #[error(transparent)]
    Heap(#[from] lodestone_heap::Error),
    /// Bytes of the catalog do not verify.
    #[error("{}: part {} at offset {:#x}: {what}: {finding}; run `lodestone pool check` to see all damage", path.display(), at.part(), at.offset())]
    Damaged {
        /// First part of the pool.
        path: PathBuf,
        /// The place of the damage.
        at: PmAddr,
        /// The structure at that place.
        what: &'static str,
        /// The fault.
        finding: String,
    },
    /// A name that no object can have.
    #[error(
        "{name:?} is no name of an object: {finding}; use 1 to {} bytes without `/` and control characters",
        crate::NAME_BYTES_MAX
    )]
    InvalidName {
        /// The name.
        name: String,
        /// The fault.
        finding: &'static str,
    },
    /// No object has that name.
    #[error("{}: no object is called `{name}`; `lodestone pool info` lists the names", path.display())]
    NotFound {
        /// First part of the pool.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// An object has that name already.
    #[error("{}: an object is called `{name}` already; choose another name, or drop or rename that one", path.display())]
    Exists {
        /// First part of the pool.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// The object of that name is of another kind.
    #[error("{}: `{name}` is {found}, not {wanted}; open it with what made it, or choose another name", path.display())]
    WrongKind {
        /// First part of the pool.
        path: PathBuf,
        /// Name of the object.
        name: String,
        /// The kind that it is.
        found: String,
        /// The kind that it was opened as.
        wanted: String,
    },
    /// The program does not know the kind of the object.
    #[error("{}: `{name}` has a kind that this program does not know ({kind}); use the program that made it", path.display())]
    UnknownKind {
        /// First part of the pool.
        path: PathBuf,
        /// Name of the object.
        name: String,
        /// The kind's code as text.
        kind: String,
    },
    /// The object is open in this process.
    #[error("{}: `{name}` is open already in this process; share that one by reference or Arc", path.display())]
    AlreadyOpen {
        /// First part of the pool.
        path: PathBuf,
        /// Name of the object.
        name: String,
    },
    /// The object cannot be dropped: it is damaged, so not every block that it owns is known.
    #[error("{}: `{name}` is damaged, so a drop would leave blocks behind: {finding}; run `lodestone pool check`, then drop it with force", path.display())]
    NotWhole {
        /// First part of the pool.
        path: PathBuf,
        /// Name of the object.
        name: String,
        /// The first finding.
        finding: String,
    },
    /// The pool is open read-only, and the call would change it.
    #[error("{}: the pool is open read-only, and {what} would change it; open it for writing", path.display())]
    ReadOnly {
        /// First part of the pool.
        path: PathBuf,
        /// The refused operation.
        what: &'static str,
    },
}

impl Error {
    /// Whether the pool, or the file system under it, had no room. Nothing changed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Heap(error) => error.is_full(),
            Self::Pool(error) => error.is_full(),
            _ => false,
        }
    }
}

/// Whether an action of the heap took effect, and the error to report. An action that met damaged metadata of the heap
/// is persistent nevertheless, so the state in DRAM must follow it.
pub fn committed(outcome: lodestone_heap::Result<()>) -> (bool, Result<()>) {
    let took_effect = matches!(outcome, Ok(()) | Err(lodestone_heap::Error::Damaged { .. }));
    (took_effect, outcome.map_err(Error::from))
}
