//! A file system in a pool.
//!
//! A volume is one file (or a device), without a network and without a set-up. Programs use it by [`Volume`], or mount
//! it by `lodestone fs mount`.
//!
//! 1. Every change is an *operation*, a value. It goes to the log with one fence, and is then executed in memory.
//! 2. The *image*, transactional trees, follows in batches. It always is the state after a prefix of operations.
//! 3. Bytes of files are in pages beside both. A write takes new pages; its operation has their checksums.
//! 4. After a crash the operations that the image lacks are executed again. The time is bounded by the log, whatever
//!    the number of files.
//!
//! **Promises.** After [`Volume::sync`] everything before it survives power loss. After any crash the volume is the
//! state after a prefix of the operations, which contains everything that was synced. No read returns bytes whose
//! checksum is wrong: it fails, and the log names file and offset.
//!
//! On media with lines an operation survives as soon as its call returns. In the `block` domain it survives after the
//! next sync, as in a page cache.
//!
//! | file | idea |
//! | --- | --- |
//! | `op`, `bytes` | operations, and their form in the log |
//! | `apply`, `state` | their execution, and the files in memory |
//! | `image`, `batch` | the state at rest, and how it follows the log |
//! | `core`, `volume` | the way of an operation; opening and replay |
//! | `layout`, `data`, `space`, `extents` | pages: where they are, which are free, which file has them |
//! | `names`, `attributes`, `content`, `folders` | what POSIX asks for, by numbers of files |
//! | `path`, `access` | by paths; permissions |
//! | `check` | the check of a whole volume |
//! | `usage` | use of the pool by metadata |
//! | `patience` | how long operations wait for a volume that cannot go on |
//! | `lease` | what mounts elsewhere may keep |

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod access;
mod apply;
mod attributes;
mod batch;
mod bytes;
mod check;
pub mod cluster;
mod content;
mod core;
mod data;
mod error;
mod extents;
mod folders;
mod image;
mod inode;
mod layout;
mod lease;
mod names;
mod op;
#[cfg(feature = "oracle")]
pub mod oracle;
mod path;
mod patience;
mod readers;
mod requests;
#[cfg(test)]
mod requests_damaged;
mod space;
mod state;
mod usage;
mod volume;

pub use access::{Caller, EXECUTE, READ, WRITE};
pub use attributes::{Changes, ExtraMode, NewTime, Room};
pub use check::{CheckFinding, CheckReport, CheckedImage};
pub use content::{Allocation, SeekTo};
pub use core::OpCounts;
pub use error::{Error, Refusal, Result};
pub use folders::FolderEntry;
pub use inode::{
    ATTRIBUTE_BYTES_MAX, Attributes, FILE_BYTES_MAX, FileKind, LINK_BYTES_MAX, NAME_BYTES_MAX, PAGE_BYTES, ROOT, Stamp,
};
pub use layout::{FORMAT_VERSION, VOLUME, VolumeKind};
pub use names::{NewFile, RenameMode};
pub use path::{File, Paths};
pub use patience::Patience;
pub use usage::MetadataUsage;
pub use volume::{Clock, FormatOptions, LAYOUT_NAME, Volume, VolumeOptions, VolumeRecovery};
