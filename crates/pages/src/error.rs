//! Errors of the pages, each with the next step for its user.

use std::path::PathBuf;

use lodestone_pmem::PmAddr;

/// Result of the operations of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation on pages failed. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pool refused.
    #[error(transparent)]
    Pmem(#[from] lodestone_pmem::Error),
    /// The heap refused; a full pool among that.
    #[error(transparent)]
    Heap(#[from] lodestone_heap::Error),
    /// An option is outside its limits.
    #[error("{option} is {value}; {rule}")]
    BadOption {
        /// The option.
        option: &'static str,
        /// Its value.
        value: u64,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// Bytes on the medium are not what this crate writes.
    #[error("{}: damaged {what} at {at}: {finding}; restore a backup", path.display())]
    Damaged {
        /// The pool.
        path: PathBuf,
        /// The structure.
        what: &'static str,
        /// Its place.
        at: PmAddr,
        /// The finding.
        finding: String,
    },
}

impl Error {
    /// Whether the pool has no room.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Heap(error) => error.is_full(),
            Self::Pmem(error) => error.is_full(),
            Self::BadOption { .. } | Self::Damaged { .. } => false,
        }
    }
}
