//! Persistence domains: how the medium of a pool is made durable.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// The events that a pool's memory survives, and at which cost. Chosen at open, shown by `pool info`, printed with
/// every figure.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
/// use lodestone_pmem::Domain;
///
/// let pool = Pool::create(&path, &options)?;
/// assert_eq!(pool.memory().domain(), Domain::Process);
/// assert!(Domain::Block.promise().contains("survives power loss"));
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Domain {
    /// Persistent memory with volatile caches above it (fsdax with `MAP_SYNC`, devdax): flushed lines survive power
    /// loss after a fence.
    Dax,
    /// The instructions of `dax` on memory that keeps nothing (any file, memory of this process), for tests and
    /// measurements: **not durable**.
    DaxEmulated,
    /// Persistent memory whose platform also saves the CPU caches: visible is persistent, after a fence in order.
    Eadr,
    /// An ordinary file: flushed lines travel in checksummed groups through a journal that is synced to the device.
    Block,
    /// The page cache of a file: survives the death of the process, not of the system.
    Process,
    /// The memory of the crash explorer.
    Traced,
}

impl Domain {
    /// The guarantee of `durable` here, in one sentence.
    #[must_use]
    pub const fn promise(self) -> &'static str {
        match self {
            Self::Dax => "survives power loss after every fence (cache lines are flushed)",
            Self::DaxEmulated => "NOT durable: the instructions of dax on a medium that keeps nothing",
            Self::Eadr => "survives power loss after every fence (the platform saves its caches)",
            Self::Block => "survives power loss after durable() (group commit to a synced journal)",
            Self::Process => "survives the death of the process only, not of the system",
            Self::Traced => "a test memory: survives nothing, records everything",
        }
    }
}

impl Domain {
    /// Whether lines are flushed and bulk data is streamed with the instructions of the `dax` domain.
    #[must_use]
    #[inline]
    pub const fn has_dax_instructions(self) -> bool {
        matches!(self, Self::Dax | Self::DaxEmulated)
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dax => "dax",
            Self::DaxEmulated => "dax-emulated",
            Self::Eadr => "eadr",
            Self::Block => "block",
            Self::Process => "process",
            Self::Traced => "traced",
        })
    }
}

/// Which domain to open a pool in.
///
/// ```
/// use lodestone_pmem::DomainChoice;
///
/// assert_eq!("process".parse::<DomainChoice>()?, DomainChoice::Process);
/// assert_eq!(DomainChoice::default(), DomainChoice::Auto, "never less than durable");
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DomainChoice {
    /// `eadr` or `dax` where the file is on persistent memory and the processor can flush its lines, else `block`.
    /// Never less than durable.
    #[default]
    Auto,
    /// The `dax` domain; an error where the kernel refuses `MAP_SYNC` or the processor has no flush instruction.
    Dax,
    /// The `eadr` domain; an error where the platform does not report persistent caches.
    Eadr,
    /// The `block` domain on any file.
    Block,
    /// The `process` domain on any file.
    Process,
    /// The instructions of the `dax` domain on any file, for measurements: **not durable**, and labelled so.
    DaxEmulated,
}

impl FromStr for DomainChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Ok(match text {
            "auto" => Self::Auto,
            "dax" => Self::Dax,
            "eadr" => Self::Eadr,
            "block" => Self::Block,
            "process" => Self::Process,
            "dax-emulated" => Self::DaxEmulated,
            _ => {
                return Err(Error::Invalid {
                    what: "domain",
                    finding: format!("`{text}` is not a persistence domain"),
                    hint: "use auto, dax, eadr, block, process or dax-emulated",
                });
            }
        })
    }
}
