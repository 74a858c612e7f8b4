//! Errors of a probe.

use std::io;
use std::path::PathBuf;

/// Why a probe could not be planned, run or read back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The target holds data, and the caller did not allow overwriting it.
    #[error(
        "{}: {finding} is there, and measuring writes would overwrite it; only read it (--read-only), name a folder for a \
         temporary file, or give it up with --overwrite-data", path.display()
    )]
    HoldsData {
        /// The target.
        path: PathBuf,
        /// The data that was found.
        finding: String,
    },
    /// The target is too small to measure anything.
    #[error("{}: {bytes} bytes are too few to measure, at least {wanted} are needed; give a larger file or more --size", path.display())]
    TooSmall {
        /// The target.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The size needed.
        wanted: u64,
    },
    /// A parameter makes no sense.
    #[error("{what}: {finding}; {hint}")]
    Invalid {
        /// The parameter.
        what: &'static str,
        /// The fault of the parameter.
        finding: String,
        /// The next thing to do.
        hint: String,
    },
    /// A system call failed while measuring.
    #[error("{action} failed while measuring: {source}; check the device, or leave that part out with --sections")]
    Io {
        /// The failed action.
        action: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// A text that should be a probe's result is not one.
    #[error("no result of a probe: {finding}; {hint}")]
    Unreadable {
        /// The fault of the text.
        finding: String,
        /// The next thing to do.
        hint: &'static str,
    },
    /// Opening or mapping the target failed.
    #[error(transparent)]
    Pmem(#[from] lodestone_pmem::Error),
}

/// Result of the probe's operations.
pub type Result<T, E = ProbeError> = std::result::Result<T, E>;
