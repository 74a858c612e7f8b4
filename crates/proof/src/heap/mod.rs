//! The heap's targets for the crash explorer.
//!
//! All of them drive one structure ([`Slots`]): root words that point to blocks whose content is stamped. The oracle
//! compares the slots with a plain map, and the blocks that they reach with the allocated ones. After any crash each
//! operation took effect whole or not at all. Nothing has leaked, no block has two owners, and every word of metadata
//! is intact. The targets differ in their scripts:
//!
//! | target | drives |
//! | --- | --- |
//! | `heap-format` | formatting, the first zone and the first slab |
//! | `heap-alloc` | alloc and publish, replace, free, in several size classes |
//! | `heap-order` | frees in and out of order, several blocks of one bitmap word |
//! | `heap-zeroed` | a block that is zeroed when it is allocated, in the place of another one |
//! | `heap-extent` | large extents, freed and cut anew |
//! | `heap-growth` | new slabs and zones until the heap is full, slabs returned |
//! | `heap-grow-pool` | the pool grows under a full heap |
//! | `heap-abort` | actions that are dropped, with blocks returned in between |
//! | `heap-record` | records longer than a line |
//! | `heap-lanes` | lanes in turn, words that change again in the next action and by plain stores |
//! | `heap-single` | actions of one word, which publish what was stored before |
//! | `heap-recover` | a process killed in the middle of a commit, then power failure in and after its recovery |
//!
//! `heap-threads` is not among them. It has two threads and is for schedules.

mod slots;
mod targets;

use lodestone_crash::SiteKey;
pub use slots::{Op, Slots, View};
pub use targets::{heap_targets, heap_threads};

/// Whether `site` belongs to the heap itself (not to its targets).
#[must_use]
pub fn in_heap_layer(site: &SiteKey) -> bool {
    site.file.contains("heap/src/") && !site.file.contains("heap/src/interrupted")
}
