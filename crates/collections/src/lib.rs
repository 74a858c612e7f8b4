//! Collections that change inside durable transactions. Several collections, and your own objects, change all or
//! nothing.
//!
//! - [`PmHashMap`] and [`PmBTreeMap`] map keys to values, [`PmList`] is a sequence, [`PmQueue`] hands items from
//!   producers to consumers, [`PmBlob`] is a byte string of any length as a field.
//! - Keys are integers, byte arrays or byte strings ([`Bytes`]); values these, floating-point numbers, and persistent
//!   object types by value ([`Plain`]).
//! - Every operation takes the transaction. Reading ones run in [`Stm::read`](lodestone_stm::Stm::read) and
//!   [`Stm::snapshot`](lodestone_stm::Stm::snapshot) too. A long scan in a snapshot disturbs no other thread.
//!
//! ```
//! use lodestone_collections::{Bytes, PmBTreeMap, PmHashMap};
//! use lodestone_pmem::{DomainChoice, PoolOptions};
//! use lodestone_store::Store;
//! use lodestone_stm::Stm;
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("words.pool");
//! # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
//! let stm = Stm::open(&Store::open_or_create(&path, &options)?)?;
//! let counts = PmHashMap::<Bytes, u64>::open(&stm, "counts")?;
//! let ranking = PmBTreeMap::<u64, Bytes>::open(&stm, "ranking")?;
//! stm.update(|tx| {
//!     let count = counts.get(tx, b"stone")?.unwrap_or(0) + 1;
//!     counts.insert(tx, b"stone", &count)?;
//!     ranking.remove(tx, &(count - 1))?;
//!     ranking.insert(tx, &count, b"stone")?;
//!     Ok(())
//! })?; // both changed and durable, for one fence
//! # Ok::<(), lodestone_stm::Error>(())
//! ```
//!
//! **Errors.** A change of a collection happens whole or ends the transaction. A closure that swallows its error (a
//! full pool's, say) and goes on ends with [`Error::Cancelled`].
//!
//! **Cost.** A transaction makes one fence, whatever it touches, and flushes the lines of its written slots and of its
//! record. Each collection documents how many objects an operation reads and writes, and tests count them. A
//! transaction that removes very much needs room for its record. In a full pool, remove in steps.
//!
//! **Ownership.** A collection is `Copy`: it is the address of a header. Opened by name it has its own root. Made by
//! `create` it belongs to the object where you keep its pointer, and `destroy` frees everything.
//!
//! | file | idea |
//! | --- | --- |
//! | `item` | keys and values as words |
//! | `bytes`, `blob` | byte strings |
//! | `hash_map` | extendible hashing, directory nodes of 64 |
//! | `btree` | B+-tree with copies of separators, empty and sparse nodes are merged |
//! | `list`, `queue` | linked nodes; head and tail as separate objects |
//! | `root` | names, types of items compared at open |
//! | `salvage` | the readable rest of a damaged collection |
//! | `words`, `node` | objects of words, entries in nodes |
//! | `mark` | what a node says of itself: its collection and the types of its items |
//! | `steps` | walks that notice when damage leads them in a circle |

#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod blob;
mod btree;
mod bytes;
mod hash;
mod hash_map;
mod item;
mod kind;
mod list;
mod mark;
mod node;
mod queue;
mod root;
mod salvage;
mod steps;
mod tool_records;
mod words;

pub use blob::PmBlob;
pub use btree::{PmBTreeMap, Range, TreeHeader};
pub use bytes::Bytes;
pub use hash_map::{HashHeader, PmHashMap};
pub use item::{Plain, PmKey, PmValue};
pub use kind::COLLECTIONS;
pub use list::{ListHeader, ListPosition, PmList};
pub use queue::{PmQueue, QueueEnd, QueueHeader};

use lodestone_stm::{Abort, Error, PmAddr};

/// The error for content that a sound pool cannot have.
#[cold]
pub(crate) fn damaged(at: PmAddr, finding: &'static str) -> Abort {
    Error::BadPointer { at, finding }.into()
}
