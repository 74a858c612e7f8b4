//! Errors of the parts of the commit engine.

use lodestone_pmem::PmAddr;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Every thread id is taken.
    #[error(
        "all {threads_max} thread ids are in use; end threads that ran transactions, or format with a larger `threads_max`"
    )]
    TooManyThreads {
        /// Number of ids.
        threads_max: usize,
    },
    /// Both copies of the engine's state are damaged.
    #[error("{what} at {at}: {finding}; restore the pool from a copy")]
    Damaged {
        /// The damaged part.
        what: &'static str,
        /// Its address.
        at: PmAddr,
        /// The finding, in words.
        finding: String,
    },
    /// The table of crashed lives has no room.
    #[error("the table of crashed lives is full; make every loser invalid and renew it")]
    TableFull,
    /// One life used up its range of timestamps.
    #[error("this life of the pool has used all its timestamps; close the pool and open it again")]
    ClockExhausted,
}

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
