//! Errors of the logs, each with the next step for its user.

use std::path::PathBuf;

use lodestone_pmem::PmAddr;

/// Result of the operations of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation on a log failed. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pool refused.
    #[error(transparent)]
    Pmem(#[from] lodestone_pmem::Error),
    /// The heap refused.
    #[error(transparent)]
    Heap(#[from] lodestone_heap::Error),
    /// The segments are all in use.
    #[error(
        "{}: the log is full: {needed} more segments are needed, {free} of {total} are free; write a checkpoint and truncate the log, or make it larger",
        path.display()
    )]
    Full {
        /// The pool.
        path: PathBuf,
        /// Segments that the record needs.
        needed: u64,
        /// Segments without live records.
        free: u64,
        /// Segments that the log may have.
        total: u64,
    },
    /// The record would fill more than a quarter of the log.
    #[error(
        "the transaction's record has {bytes} bytes, this log takes at most {limit}; split the transaction, or make the log larger"
    )]
    TransactionTooLarge {
        /// Bytes of the record.
        bytes: u64,
        /// Largest record.
        limit: u64,
    },
    /// A key or value is longer than an entry can hold.
    #[error("{what} of {bytes} bytes in a log entry; the limit is {limit} bytes")]
    EntryTooLarge {
        /// `key` or `value`.
        what: &'static str,
        /// Its bytes.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The tick is not above that of the record before it.
    #[error("tick {tick} follows tick {last} in the log of writer {writer}; the ticks of a log rise")]
    TickNotRising {
        /// The writer.
        writer: u16,
        /// The tick of the new record.
        tick: u64,
        /// The tick of the last one.
        last: u64,
    },
    /// The log of this writer is in use.
    #[error("the log of writer {writer} is open already; a log has one owner")]
    WriterTaken {
        /// The writer.
        writer: u16,
    },
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
    /// The pool is open read-only.
    #[error("{}: the pool is open read-only; open it for writing to append to a log", path.display())]
    ReadOnly {
        /// The pool.
        path: PathBuf,
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

impl Error {
    /// Whether the log, the pool, or the file system under it had no room. Nothing changed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Full { .. } => true,
            Self::Heap(error) => error.is_full(),
            Self::Pmem(error) => error.is_full(),
            _ => false,
        }
    }
}
