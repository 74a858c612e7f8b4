//! Errors of a heap, each with the next step for its user.
//!
//! An operation that returns an error has changed nothing, unless its text says so: an action that fails to commit is
//! rolled back like one that was dropped.

use std::path::PathBuf;

use lodestone_pmem::PmAddr;

/// Result of the operations of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a heap operation failed.
///
/// ```
/// # use lodestone_heap::{Heap, HeapOptions};
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let pool = Pool::create(folder.path().join("a.pool"), &options)?;
/// # let heap = Heap::open(&pool, &HeapOptions::default())?;
/// use lodestone_heap::Error;
///
/// let refused = heap.action().alloc(1 << 40);
/// assert!(matches!(refused, Err(Error::TooLarge { wanted_bytes, .. }) if wanted_bytes == 1 << 40));
/// # Ok::<(), lodestone_heap::Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pool refused.
    #[error(transparent)]
    Pmem(#[from] lodestone_pmem::Error),
    /// A heap of this open pool exists already: two would hand out the same memory.
    #[error("{}: the pool's heap is open already in this process; clone that heap, or drop it before this open", path.display())]
    AlreadyOpen {
        /// The pool.
        path: PathBuf,
    },
    /// No room for a block of this size.
    #[error("{}: the heap has no room for {wanted_bytes} bytes in part {part}; grow the pool with `lodestone pool grow`, let it grow by itself (`PoolOptions::grow_bytes_max`), or free blocks", path.display())]
    NoSpace {
        /// The pool.
        path: PathBuf,
        /// Part that was asked.
        part: u16,
        /// Bytes asked for.
        wanted_bytes: u64,
    },
    /// The block would be larger than the heap can ever allocate.
    #[error(
        "a block of {wanted_bytes} bytes is larger than the {limit_bytes} bytes that one block of this heap can have; split the data, or format the heap with larger zones"
    )]
    TooLarge {
        /// Bytes asked for.
        wanted_bytes: u64,
        /// Largest block of this heap.
        limit_bytes: u64,
    },
    /// The address is not the start of a block that can be freed.
    #[error("{at} is not the start of an allocated block: {finding}; free only what alloc gave, and once")]
    NotAllocated {
        /// The address.
        at: PmAddr,
        /// The state of that place.
        finding: &'static str,
    },
    /// The action changes more words than a lane records.
    #[error(
        "the action changes {entries} words, a lane of this heap records {limit}; split the action, or format the heap with larger lanes"
    )]
    ActionTooLarge {
        /// Words the action would change.
        entries: usize,
        /// Entries in a lane.
        limit: usize,
    },
    /// A word to set is outside the heap or not aligned.
    #[error(
        "the action sets a word at {at}, which is not an aligned word inside the pool; check where the address came from"
    )]
    BadWord {
        /// The address.
        at: PmAddr,
    },
    /// The pool is open read-only.
    #[error("{}: the pool is open read-only; open it for writing to change it", path.display())]
    ReadOnly {
        /// The pool.
        path: PathBuf,
    },
    /// An option makes no sense.
    #[error("{what}: {finding}; {hint}")]
    Invalid {
        /// The option.
        what: &'static str,
        /// The fault in it.
        finding: String,
        /// Next step for the user.
        hint: &'static str,
    },
    /// Metadata on the medium is damaged.
    #[error("{}: at {at}: {finding}; run `lodestone pool check`, and restore a backup if it cannot repair", path.display())]
    Damaged {
        /// The pool.
        path: PathBuf,
        /// Where.
        at: PmAddr,
        /// The finding.
        finding: String,
    },
}

impl Error {
    /// Whether the pool, or the file system under it, had no room. Nothing changed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::NoSpace { .. } => true,
            Self::Pmem(error) => error.is_full(),
            _ => false,
        }
    }
}
