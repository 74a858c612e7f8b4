//! A persistent heap: blocks that survive crashes, and actions that change several words at once or not at all.
//!
//! - [`Heap`] opens the heap area of a pool, recovers it, and reports, checks and repairs it.
//! - [`Action`] allocates, frees and sets words: all of it is persistent after [`Action::commit`], nothing of it
//!   before.
//!
//! Nothing leaks and nothing is owned twice after any crash: what an action allocates is reserved in DRAM until the
//! commit publishes it together with the word that points to it, and what it frees is available only after the commit
//! is persistent. The `commit` module states the protocol and the reason for each fence.
//!
//! Cost of an action (lines flushed, fences), besides the contents that the caller flushes: one word, 1 and 2; up to
//! three words, 2 lines for the record and one line per word, and 3 fences, or 4 when it
//! allocates.

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
mod usage;

pub use action::{Action, Freed, FreedBlocks};
pub use check::{CheckReport, Finding, FindingKind};
pub use error::{Error, Result};
pub use heap::{Heap, HeapOptions};
pub use layout::ROOT_WORDS;
pub use placement::{Placement, PlacementFunction, PlacementRequest};
pub use recovery::{DamagedLane, RecoveryReport};
pub use repair::RepairReport;
pub use usage::{ClassUsage, PartUsage, Usage};
