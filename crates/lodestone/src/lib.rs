//! Durable data structures on persistent memory, and on ordinary files.
//!
//! A [`Pool`] is a file (or device) of durable memory, a [`Heap`] allocates in it, an [`OrderedMap`] lives on the heap. What
//! a call has told you survives power loss: on an ordinary file because a journal was synced (group commit), on real
//! persistent memory because the lines were flushed and fenced. [`Domain`] says which it is.
//!
//! ```
//! use lodestone::{Heap, HeapOptions, OrderedMap, Pool, PoolOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("orders.pool");
//! // An ordinary file: the block domain. On a file system mounted with -o dax the same line gives the dax domain.
//! let pool = Pool::create(&path, &PoolOptions::default())?;
//! let heap = Heap::open(&pool, &HeapOptions::default())?;
//! let orders = OrderedMap::open(&heap, "orders")?;
//!
//! orders.insert(b"4711", b"one lamp")?; // durable when this returns
//! orders.insert_relaxed(b"4712", b"two chairs")?; // ordered, not yet durable
//! orders.insert_relaxed(b"4713", b"a table")?;
//! orders.sync()?; // now both are, for one wait
//! drop((orders, heap, pool)); // or pull the plug
//!
//! let pool = Pool::open(&path, &PoolOptions::default())?;
//! let heap = Heap::open(&pool, &HeapOptions::default())?;
//! let orders = OrderedMap::open(&heap, "orders")?;
//! assert_eq!(orders.get(b"4712")?.as_deref(), Some(&b"two chairs"[..]));
//! assert_eq!(orders.len()?, 3);
//! # Ok(())
//! # }
//! ```
//!
//! The crates below, whole: [`pmem`] (pools, flush, fence), [`heap`] (allocation, failure-atomic actions), [`index`]
//! (maps), [`crash`] (the explorer that crashes a structure, ours or yours, at every point).

pub use lodestone_crash as crash;
pub use lodestone_heap as heap;
pub use lodestone_index as index;
pub use lodestone_pmem as pmem;

pub use lodestone_heap::{Heap, HeapOptions};
pub use lodestone_index::{Durability, IndexKey, OpenIndex, OrderedIndex, OrderedMap, PointIndex, RecordMap, Swap};
pub use lodestone_pmem::{Domain, DomainChoice, Memory, PmAddr, PmPtr, Pool, PoolOptions};
