//! Blocks of bytes that threads share, and an arena for the many of a cache.
//!
//! A [`Block`] is as an `Arc<[u8]>`: written once, shared without a copy, free when its last owner drops it. Where its
//! memory comes from is chosen when it is made: from the allocator of the program, or from an [`Arena`].
//!
//! A cache with a bound replaces its rows at random, for ever. Allocators for all purposes keep blocks of each size and
//! of each thread apart, so such a cache leaves holes, which no count of its rows shows. An arena has one list of free
//! memory for all sizes, joins neighbors that are free, and takes what fits best (two-level segregated fit). It tells
//! what it took, holes and all: see [`Arena::taken`].
//!
//! | file | idea |
//! | --- | --- |
//! | `block` | the counted block |
//! | `arena` | memory for blocks, in shards |
//!
//! Nothing here is persistent.

#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod arena;
mod block;

pub use arena::Arena;
pub use block::Block;
