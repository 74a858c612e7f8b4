//! Errors of the cells, each with the next step for its user.

use std::path::PathBuf;

use lodestone_pmem::PmAddr;

/// Result of the operations of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation on cells failed. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The heap refused; a full pool among the reasons.
    #[error(transparent)]
    Heap(#[from] lodestone_heap::Error),
    /// The cell is larger than any block of the heap.
    #[error("a cell of {bytes} bytes; the limit is {limit_bytes} bytes")]
    TooLarge {
        /// Bytes of the cell.
        bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// Bytes on the medium are not what this module writes.
    #[error("{}: damaged {what} at {at}: {finding}; restore a backup, or export what is readable", path.display())]
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
