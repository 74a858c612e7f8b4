//! Durable maps and indexes on persistent memory.
//!
//! Two families. [`OrderedMap`] maps byte strings to byte strings. *Indexes* map keys (`u64` or byte strings) to words,
//! through the traits [`PointIndex`] and [`OrderedIndex`]. Wrappers compose these traits, and one conformance suite
//! tests them.
//!
//! [`OrderedMap`] maps byte strings to byte strings, in order of the keys. Leaves and records are in the pool. The
//! inner directory, locks and tags of keys are in DRAM and are rebuilt on open. So no volatile state is persistent, and
//! a lookup touches the medium once. Records are written out of place and published by one word. Every change,
//! including a split or a merge, is one failure-atomic action of the heap. So each crash state is a map before or after
//! it.
//!
//! Why not the inner nodes in the pool: they would save the walk over the leaves at open (one visit per leaf, about
//! 25,000 for a million records). But they would cost flushes and a recovery protocol at every structure change. Why
//! not sorted leaves: an insert would shift half a leaf through the redo record instead of setting one word.
//!
//! Its files: `layout` (bytes), `medium` (verified reads), `leaf` and `directory` (DRAM), `map` (point operations),
//! `change` (those that depend on the value), `open`, `structure` (split, merge), `scan`, `check`.
//!
//! | structure | on the medium | in DRAM | where |
//! | --- | --- | --- | --- |
//! | [`OrderedMap`]: strings to strings, default of `kv` | leaves, records | directory | see above |
//! | [`FastFair`]: B+-tree | all nodes | hints (a guide) | `fastfair/`, `guide` |
//! | [`FpTree`] | leaves of cell lines | directory | `fptree/`, `cells/` |
//! | [`HashIndex`] | directory, segments | versions | `hash/`, `cells/` |
//! | [`SkipList`] | bottom list | upper levels | `skiplist/` |
//! | [`Hybrid`] | the hash | a tree for ranges | `hybrid/` |
//! | [`HybridPlus`] | a [`FastFair`] | a hash for points | `hybrid_plus/` |
//! | [`Acs`]: cache before any index | - | all of it | `acs/` |
//! | [`IndexedRecords`]: strings to strings over any ordered index | records, intents | locks | `records/` |
//!
//! All share `traits/`, `anchor` (the block by which an index is found), `reclaim` (freed blocks wait until no reader
//! can be in them), `circle` (walks that damage leads in a circle), `salvage/` (records without links), `bulk` and
//! `kinds` (the store's registry). Locks and versions are in DRAM only.
//!
//! Every reported result is durable: see [`Durability`]. Limits: keys up to [`KEY_BYTES_MAX`] bytes (the empty key is
//! one). Values up to [`VALUE_BYTES_MAX`] bytes and up to the size of one block of the heap
//! ([`Heap::block_bytes_max`](lodestone_heap::Heap::block_bytes_max)).

#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod acs;
mod anchor;
mod bulk;
mod cells;
mod change;
mod check;
mod circle;
mod directory;
mod error;
mod fastfair;
mod fold;
mod fptree;
mod guide;
mod hash;
mod hybrid;
mod hybrid_plus;
mod kinds;
mod layout;
mod leaf;
mod map;
mod medium;
mod mistakes;
mod open;
mod reclaim;
mod record_map;
mod records;
mod recovery;
#[cfg(all(test, not(feature = "shuttle")))]
mod reseal;
mod salvage;
mod scan;
mod skiplist;
mod structure;
mod tool_records;
mod traits;

pub use acs::{Acs, AcsOptions, CacheCapacity, CacheMode, CacheOptions, CacheStats};
pub use check::{IndexFinding, IndexReport, MapStats};
pub use error::{Error, Result};
pub use fastfair::{FastFair, FastFairOptions};
pub use fptree::{FpTree, TreeOptions};
pub use hash::{HashIndex, HashOptions, HashStats};
pub use hybrid::{Apply, Hybrid, HybridOptions, HybridStats};
pub use hybrid_plus::{HybridPlus, HybridPlusOptions, HybridPlusStats, WarmUp};
pub use layout::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use map::{Durability, OrderedMap};
pub use open::MapOptions;
pub use record_map::{RecordMap, Visit};
pub use records::{IndexKind, IndexedRecords, RecordIndex, RecordsOptions, open_records};
pub use recovery::Recovery;
pub use scan::{Direction, Records};
pub use skiplist::{SkipList, SkipListOptions};
pub use traits::{IndexKey, OpenIndex, OrderedIndex, PointIndex, Range, Swap};
