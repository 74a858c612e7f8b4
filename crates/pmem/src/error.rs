//! Errors of a pool, each with the next step for its user.
//!
//! Each message names the file, the finding and the next step. An operation that returns an error has changed nothing
//! that a later open would see, unless the text of the error says so.

use std::io;
use std::path::PathBuf;

use crate::addr::PmAddr;

/// Result of the operations of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a pool operation failed.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
/// use lodestone_pmem::Error;
///
/// assert!(Pool::open(&path, &options).is_err(), "there is no such file");
/// drop(Pool::create(&path, &options)?);
/// let again: Error = Pool::create(&path, &options).unwrap_err();
/// assert!(again.to_string().contains("a.pool"), "the error names the file: {again}");
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a call.
    #[error("{}: {action} failed: {source}; {hint}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The attempted action, as a noun or gerund ("opening", "fdatasync").
        action: &'static str,
        /// The error of the operating system.
        source: io::Error,
        /// Next step for the user.
        hint: &'static str,
    },
    /// The file is not a usable pool, or not the one that was asked for.
    #[error("{}: at offset {offset:#x}: {finding}; expected {expected}; {hint}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Byte offset of the finding.
        offset: u64,
        /// The bytes found there.
        finding: String,
        /// The bytes expected there.
        expected: String,
        /// Next step for the user.
        hint: String,
    },
    /// There is something at the path already.
    #[error("{}: {finding} is there already and was not touched; choose another path, or ask for it to be overwritten (--overwrite)", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
        /// The existing file or pool ("a Lodestone pool of 4096 bytes").
        finding: String,
    },
    /// The persistence domain that was asked for is not available here.
    #[error("{}: the {domain} domain is not available: {finding}; {hint}", path.display())]
    Unavailable {
        /// The file.
        path: PathBuf,
        /// The domain.
        domain: crate::domain::Domain,
        /// Why not.
        finding: String,
        /// Next step for the user.
        hint: &'static str,
    },
    /// The file changed under an open pool.
    #[error("{}: the file changed underneath the open pool: {finding}; {hint}", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// The change.
        finding: String,
        /// Next step for the user.
        hint: &'static str,
    },
    /// Another process has the pool open.
    #[error("{}: the pool is open in {holder}; a pool has one writer, and readers come after it: close it there, or wait for it (--wait SECONDS)", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
        /// The holder, as far as it is known ("process 4711 (lodestone)").
        holder: String,
    },
    /// A heap of this open pool lives already.
    #[error("{}: a heap of this open pool is in use; clone that heap, or drop it before the next is opened", path.display())]
    HeapInUse {
        /// The pool.
        path: PathBuf,
    },
    /// A parameter makes no sense.
    #[error("{what}: {finding}; {hint}")]
    Invalid {
        /// The parameter.
        what: &'static str,
        /// The fault in it.
        finding: String,
        /// Next step for the user.
        hint: &'static str,
    },
    /// A part of the pool's content has a format that this program does not read. It is not damaged.
    #[error(
        "{}: {what} at {at} has format version {found}, and this lodestone reads version {known}; {}",
        path.display(),
        Self::about_version(*found, *known)
    )]
    OtherVersion {
        /// The file.
        path: PathBuf,
        /// The part of the content.
        what: &'static str,
        /// Its place.
        at: PmAddr,
        /// Its version.
        found: u32,
        /// The version that this program reads.
        known: u32,
    },
    /// The pool has no room for what was asked.
    #[error("{}: no space for {wanted_bytes} bytes ({what}); grow the pool with `lodestone pool grow`, or delete data", path.display())]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// The part of the pool that needed the room.
        what: &'static str,
        /// Bytes asked for.
        wanted_bytes: u64,
    },
    /// An earlier sync or journal write failed; nothing later can be promised.
    #[error("{}: the pool is poisoned: {cause}; what was acknowledged before is safe: fix the device, then close and reopen the pool", path.display())]
    Poisoned {
        /// The file.
        path: PathBuf,
        /// The first failure.
        cause: String,
    },
    /// The pool was closed; memory that outlives it makes nothing durable any more.
    #[error("{}: the pool was closed; what was not durable by then is not kept: open the pool again", path.display())]
    Closed {
        /// The file.
        path: PathBuf,
    },
    /// The pool was not closed, because other handles of it are in use.
    #[error("{}: not closed: {handles} other handles of the pool are in use (a heap, a map or a transactional memory has one); drop them, then close the last", path.display())]
    StillOpen {
        /// The file.
        path: PathBuf,
        /// Handles besides the one that was to be closed.
        handles: usize,
    },
}

impl Error {
    fn about_version(found: u32, known: u32) -> &'static str {
        if found > known {
            "use a newer lodestone"
        } else {
            "export its data with the program that wrote it, and import them into a new pool"
        }
    }

    /// An [`Error::Io`] with its context.
    pub fn io(
        path: impl Into<PathBuf>,
        action: &'static str,
        hint: &'static str,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::Io { path: path.into(), action, source: source.into(), hint }
    }

    /// Whether the pool, or the file system under it, had no room.
    #[must_use]
    pub fn is_full(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        match self {
            Self::NoSpace { .. } => true,
            Self::Io { source, .. } => matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge),
            _ => false,
        }
    }
}
