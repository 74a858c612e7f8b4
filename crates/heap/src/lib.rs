//! A persistent heap: blocks that survive crashes, and actions that change several words at once or not at all.
//!
//! - [`Heap`] opens the heap area of a pool, recovers it, and reports, checks and repairs it.
//! - [`Action`] allocates, frees and sets words. After [`Action::commit`] all of it is persistent, before it nothing.
//!
//! Nothing leaks and no block has two owners after any crash. A block that an action allocates is reserved in DRAM. The
//! commit publishes it together with the word that points to it. A block that the action frees is available only after
//! the commit is persistent. The `commit` module states the protocol and the reason for each fence.
//!
//! Opening reads the lanes, 8 bytes per chunk and 8 bytes per 48 blocks, never the data. Metadata is in checked words
//! (48 bits and a checksum in eight bytes). A bitmap that changes by atomic stores could not keep a checksum elsewhere
//! in step. An open pool has one heap: a heap that may write holds a claim, and a second open is an error.
//!
//! Cost of an action, besides the contents that the caller flushes:
//!
//! - one word: 1 line and 2 fences;
//! - up to three words: 2 lines for the record, one line per word, and 3 fences (4 when it allocates).
//!
//! Files: `heap`, `format`, `layout` (opening, bytes), `action`, `commit`, `record` (actions and their redo records),
//! `class`, `arena`, `chunks`, `table`, `placement` (which memory is free, and which is taken), `recover` (lanes after
//! a crash), `check`, `repair`, `owners`, `unknown` (damage, and what a complete list of blocks proves), `usage`.

#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod action;
mod arena;
mod check;
mod chunks;
mod class;
mod commit;
mod core;
mod error;
mod format;
mod heap;
#[cfg(feature = "proof")]
mod interrupted;
mod layout;
mod owners;
mod placement;
mod record;
mod recover;
mod recovery;
mod repair;
mod table;
mod unknown;
mod usage;

pub use action::{Action, Freed, FreedBlocks};
pub use check::{FindingKind, HeapFinding, HeapReport};
pub use error::{Error, Result};
pub use heap::{Heap, HeapOptions};
pub use layout::ROOT_WORDS;
pub use placement::{Placement, PlacementFunction, PlacementRequest};
pub use recovery::{DamagedLane, RecoveryReport};
pub use repair::RepairReport;
pub use unknown::UnknownBlocks;
pub use usage::{ClassUsage, PartUsage, Usage};
