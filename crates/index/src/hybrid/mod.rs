//! Hybrid: a hash index in persistent memory, and a tree of the same pairs in DRAM (HiKV; paper 2, section 3.1:
//! HybridIndex).
//!
//! *Roles.* The hash is the index: it alone is on the medium, and point operations are its operations. The tree answers
//! ranges. A change does not wait for the tree: it leaves its update in a queue.
//!
//! *Order.* An update's place in the queue is taken before the hash is changed and under a lock of the key's stripe,
//! and all keys of a stripe use one queue. So updates of one key reach the tree in the order in which the hash took
//! them.
//!
//! *Ranges* first wait until every update whose place was taken before they began has been applied (or apply them
//! themselves). A change of the hash that any thread saw earlier had its place by then. So a range never shows less
//! than an earlier point read. And the tree holds only values that the hash held first, so a point read never shows
//! less than an earlier range.
//!
//! *The rebuild.* After an open, threads of the index go through the hash by ranges of hashes, sort, and build the
//! tree. Point reads and changes are answered meanwhile; ranges wait. The last update of each key that arrives
//! meanwhile is kept, and applied to the tree when it is built. The rebuild may have seen an older or a newer state of
//! that key, but any newer update still follows in the queue.
//!
//! *Durability* is the hash's. An update is queued when the hash's change has returned, so with `Durability::Sync` a
//! range returns only data that would survive.
//!
//! *Failures.* If the hash reports an error, its value for the key is read again. If that fails too, or a panic comes
//! in between, the key is noted. Ranges then report the damage instead of leaving the key out. If the rebuild meets
//! damage, ranges report it.
//!
//! *Costs.* A change costs what the hash's does, three short locks and a copy of the key; a thread of the index does
//! the rest. DRAM per `u64` key: 22 to 32 bytes, for a string its bytes and about 50; [`Hybrid::stats`] counts.
//!
//! The medium holds only the hash: an index can be opened as [`HashIndex`](crate::HashIndex) and the other way round.
//!
//! Files: `queue`, `tree`, `index` (operations), `apply` (from the queues into the tree), `rebuild`.

mod apply;
mod index;
mod queue;
mod rebuild;
mod tree;

pub use index::{Apply, Hybrid, HybridOptions, HybridStats};
