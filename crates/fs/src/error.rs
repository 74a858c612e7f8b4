//! Errors of a volume: refusals that POSIX names, and failures of the medium.

use std::path::PathBuf;

use rustix::io::Errno;

/// Result of the operations of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation is refused. Nothing has changed then.
///
/// ```
/// use lodestone_fs::{Error, Refusal};
///
/// let error = Error::from(Refusal::NotFound);
/// assert_eq!(error.errno(), 2);
/// assert_eq!(error.to_string(), "no such file or folder");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// `ENOENT`
    #[error("no such file or folder")]
    NotFound,
    /// `EEXIST`
    #[error("the name is in use")]
    Exists,
    /// `ENOTDIR`
    #[error("not a folder")]
    NotFolder,
    /// `EISDIR`
    #[error("it is a folder")]
    IsFolder,
    /// `ENOTEMPTY`
    #[error("the folder is not empty")]
    NotEmpty,
    /// `ENOSPC`
    #[error("no space is left in the volume; remove files, or make a larger volume")]
    NoSpace,
    /// `ENAMETOOLONG`
    #[error("a name has at most 255 bytes, a path 4,095")]
    NameTooLong,
    /// `EACCES`
    #[error("permission denied")]
    Access,
    /// `EPERM`
    #[error("only the owner or root may do this")]
    NotPermitted,
    /// `ELOOP`
    #[error("too many symbolic links")]
    Loop,
    /// `EINVAL`
    #[error("an invalid argument")]
    Invalid,
    /// `EMLINK`
    #[error("too many links to the file")]
    TooManyLinks,
    /// `EFBIG`
    #[error("the file would be larger than 16 TiB")]
    FileTooLarge,
    /// `ENODATA`
    #[error("no such attribute")]
    NoAttribute,
    /// `E2BIG`
    #[error("an attribute has at most 64 KiB")]
    AttributeTooLarge,
    /// `ERANGE`
    #[error("the buffer is too small")]
    Range,
    /// `EOPNOTSUPP`
    #[error("the volume cannot do this")]
    NotSupported,
    /// `ESTALE`
    #[error("the file is gone")]
    Stale,
    /// `ENXIO`
    #[error("beyond the end of the file")]
    Beyond,
    /// `EBUSY`
    #[error("it is in use")]
    Busy,
    /// `EROFS`
    #[error("the volume is open read-only")]
    ReadOnly,
    /// `ENOLCK`
    #[error("the file has too many locks")]
    NoLocks,
    /// `EDEADLK`
    #[error("the owner of the lock waits for this one, so waiting would never end")]
    Deadlock,
}

impl Refusal {
    const ALL: [Self; 23] = [
        Self::NotFound,
        Self::Exists,
        Self::NotFolder,
        Self::IsFolder,
        Self::NotEmpty,
        Self::NoSpace,
        Self::NameTooLong,
        Self::Access,
        Self::NotPermitted,
        Self::Loop,
        Self::Invalid,
        Self::TooManyLinks,
        Self::FileTooLarge,
        Self::NoAttribute,
        Self::AttributeTooLarge,
        Self::Range,
        Self::NotSupported,
        Self::Stale,
        Self::Beyond,
        Self::Busy,
        Self::ReadOnly,
        Self::NoLocks,
        Self::Deadlock,
    ];

    /// The refusal with this number.
    pub(crate) fn of_errno(errno: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| refusal.errno() == errno)
    }

    /// The number of the error.
    #[must_use]
    pub const fn errno(self) -> i32 {
        let errno = match self {
            Self::NotFound => Errno::NOENT,
            Self::Exists => Errno::EXIST,
            Self::NotFolder => Errno::NOTDIR,
            Self::IsFolder => Errno::ISDIR,
            Self::NotEmpty => Errno::NOTEMPTY,
            Self::NoSpace => Errno::NOSPC,
            Self::NameTooLong => Errno::NAMETOOLONG,
            Self::Access => Errno::ACCESS,
            Self::NotPermitted => Errno::PERM,
            Self::Loop => Errno::LOOP,
            Self::Invalid => Errno::INVAL,
            Self::TooManyLinks => Errno::MLINK,
            Self::FileTooLarge => Errno::FBIG,
            Self::NoAttribute => Errno::NODATA,
            Self::AttributeTooLarge => Errno::TOOBIG,
            Self::Range => Errno::RANGE,
            Self::NotSupported => Errno::OPNOTSUPP,
            Self::Stale => Errno::STALE,
            Self::Beyond => Errno::NXIO,
            Self::Busy => Errno::BUSY,
            Self::ReadOnly => Errno::ROFS,
            Self::NoLocks => Errno::NOLCK,
            Self::Deadlock => Errno::DEADLK,
        };
        errno.raw_os_error()
    }
}

/// Why an operation on a volume failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// POSIX names the reason. Nothing has changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A page of a file does not have its checksum.
    #[error(
        "file {ino}: the page at offset {offset} is damaged (page {page} of the volume); restore the file from a copy, \
         or overwrite the page"
    )]
    DamagedPage {
        /// The file.
        ino: u64,
        /// Offset of the page in the file.
        offset: u64,
        /// The page of the volume.
        page: u64,
    },
    /// Metadata that no volume can have.
    #[error("the {what} of the volume is damaged: {finding}; run `lodestone fs fsck`")]
    Damaged {
        /// The structure.
        what: &'static str,
        /// The finding.
        finding: String,
    },
    /// The pool is not a volume.
    #[error("{}: the pool has no volume; make one by `lodestone fs format`", path.display())]
    NotAVolume {
        /// The pool.
        path: PathBuf,
    },
    /// A newer program has formatted the volume.
    #[error("{}: the volume has format {found}, this program knows up to {known}; use a newer program", path.display())]
    TooNew {
        /// The pool.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest known one.
        known: u32,
    },
    /// Options that make no sense.
    #[error("{0}")]
    Options(String),
    /// An earlier failure of the medium: nothing more is acknowledged.
    #[error("an earlier error of the medium ended all changes: {0}; unmount, look at the device, open again")]
    Poisoned(String),
    /// The volume has replicas, and was opened without them.
    #[error(
        "{}: the volume has replicas ({replicas} beside it, or some elsewhere): open it with its nodes, as \
         `lodestone fs mount` does",
        path.display()
    )]
    Replicated {
        /// The pool.
        path: PathBuf,
        /// Replicas of its pages.
        replicas: u16,
    },
    /// Too few replicas or standbys answer.
    #[error(
        "no quorum of the volume's nodes has everything ({missing}); nothing is lost, a later sync may succeed; \
         `lodestone fs status` says who is missing"
    )]
    NoQuorum {
        /// Who is late.
        missing: String,
    },
    /// No replica answers for a page.
    #[error("no replica answers for page {page} of the volume; `lodestone fs status` says who is missing")]
    NoReplica {
        /// The page.
        page: u64,
    },
    /// This node is not the metadata node of the volume any more.
    #[error("this node is not the metadata node of the volume any more; open the volume at the present one")]
    Gone,
    /// No machine of the volume leads.
    #[error("no machine of the volume leads ({reason}); start its machines and its keepers, a later call may succeed")]
    NoLeader {
        /// The answers of the machines.
        reason: String,
    },
    /// The metadata node, on another machine, failed.
    #[error("the metadata node of the volume: {0}")]
    Remote(String),
    /// The metadata node, on another machine, waits for nodes. The call may be made again, and is carried out once.
    #[error("the metadata node of the volume: {0}")]
    NotYet(String),
    /// Who wanted the operation does not want it any more. It waited, and may or may not have happened.
    #[error("the operation was called off while it waited for the volume")]
    CalledOff,
    /// The request was carried out before, and its answer was lost.
    #[error("the request was carried out before")]
    Repeated,
    /// Operations that were answered, but not synced, are lost.
    #[error(
        "{count} operations before the present metadata node took over were never synced and are lost; look at what was \
         written last"
    )]
    Lost {
        /// How many.
        count: u64,
    },
    /// The pool.
    #[error(transparent)]
    Pool(#[from] lodestone_pmem::Error),
    /// The heap.
    #[error(transparent)]
    Heap(#[from] lodestone_heap::Error),
    /// The store.
    #[error(transparent)]
    Store(#[from] lodestone_store::Error),
    /// The image.
    #[error("the image of the volume: {0}")]
    Image(#[from] lodestone_stm::Error),
    /// The log of operations.
    #[error("the log of operations: {0}")]
    Log(#[from] lodestone_fabric::Error),
}

impl Error {
    /// The number that a program sees: of the refusal, or `EIO`.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self {
            Self::Refused(refusal) => refusal.errno(),
            Self::Gone => Errno::NOTCONN.raw_os_error(),
            Self::CalledOff => Errno::INTR.raw_os_error(),
            _ => Errno::IO.raw_os_error(),
        }
    }

    /// Whether it says that the volume waits for nodes: a later call may succeed.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        matches!(self, Self::NoQuorum { .. } | Self::NoReplica { .. } | Self::NoLeader { .. } | Self::NotYet(_))
    }

    /// The refusal, if it is one.
    #[must_use]
    pub const fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Refused(refusal) => Some(*refusal),
            _ => None,
        }
    }
}

/// Damaged metadata.
#[cold]
pub(crate) fn damaged(what: &'static str, finding: impl Into<String>) -> Error {
    Error::Damaged { what, finding: finding.into() }
}
