//! Errors of registries, each with the next step for its user.

use lodestone_pmem::PmAddr;

/// Result of the operations of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pool or the journal refused: after a failed device nothing more is told.
    #[error(transparent)]
    Fabric(#[from] lodestone_fabric::Error),
    /// The pool refused.
    #[error(transparent)]
    Pmem(#[from] lodestone_pmem::Error),
    /// The store of a keeper refused.
    #[error(transparent)]
    Store(#[from] lodestone_store::Error),
    /// The heap of a keeper refused.
    #[error(transparent)]
    Heap(#[from] lodestone_heap::Error),
    /// The file of a keeper.
    #[error("{path}: {doing} failed: {source}")]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// The step.
        doing: &'static str,
        /// The cause.
        source: std::io::Error,
    },
    /// A list of keepers that no registry has.
    #[error("the keepers: {0}")]
    Keepers(String),
    /// No keeper is in the range or file.
    #[error("no keeper at {at}: its log is empty; make it first, or take the file of a keeper")]
    NoKeeper {
        /// Where it was looked for.
        at: PmAddr,
    },
    /// A record whose checksum holds has values that no keeper writes.
    #[error(
        "the log of the keeper at {at} has an intact checksum, but its content is impossible; do not start this keeper \
         from an older copy, which has forgotten votes: the others go on without it while they are a majority"
    )]
    Impossible {
        /// Where the log begins.
        at: PmAddr,
    },
    /// The network.
    #[error("{doing} failed: {source}; check the address, and that no other program has the port")]
    Network {
        /// The step.
        doing: &'static str,
        /// The cause.
        source: std::io::Error,
    },
    /// The consensus core refused.
    #[error("the consensus core refused {doing}: {reason}")]
    Consensus {
        /// The step.
        doing: &'static str,
        /// Its reason.
        reason: String,
    },
}
