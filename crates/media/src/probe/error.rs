//! What keeps a probe from measuring.

use std::io;
use std::path::PathBuf;

/// Why a probe could not be planned, run or read back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The target holds data, and nobody said that it may go.
    #[error(
        "{}: {finding} is there, and measuring writes would overwrite it; only read it (--read-only), name a folder for a \
         temporary file, or give it up with --overwrite-data", path.display()
    )]
    HoldsData {
        /// The target.
        path: PathBuf,
        /// What is there.
        finding: String,
    },
    /// The target is too small to measure anything.
    #[error("{}: {bytes} bytes are too few to measure, at least {wanted} are needed; give a larger file or more --size", path.display())]
    TooSmall {
        /// The target.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// What is needed.
        wanted: u64,
    },
    /// A parameter makes no sense.
    #[error("{what}: {finding}; {hint}")]
    Invalid {
        /// The parameter.
        what: &'static str,
        /// What is wrong with it.
        finding: String,
        /// What to do next.
        hint: String,
    },
    /// A system call failed while measuring.
    #[error("{action} failed while measuring: {source}; check the device, or leave that part out with --sections")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Text that should be a result of a probe is none.
    #[error("no result of a probe: {finding}; {hint}")]
    Unreadable {
        /// What is wrong with it.
        finding: String,
        /// What to do next.
        hint: &'static str,
    },
    /// Opening or mapping the target failed.
    #[error(transparent)]
    Pmem(#[from] lodestone_pmem::Error),
}

/// Result of the probe's operations.
pub type Result<T, E = ProbeError> = std::result::Result<T, E>;
