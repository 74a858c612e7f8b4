//! Durable data structures on persistent memory, and on ordinary files.
//!
//! A [`Store`] owns a pool, a file (or device) of durable memory, and the objects in it: maps, indexes and
//! transactional memories, each with a name. Every answer of a call survives power loss. On an ordinary file a synced
//! journal guarantees it (group commit), on real persistent memory flushed and fenced lines. [`Domain`] tells which.
//!
//! ```
//! use lodestone::{OrderedMap, PoolOptions, Store};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("orders.pool");
//! // An ordinary file: the block domain. On a file system mounted with -o dax the same line gives the dax domain.
//! let store = Store::create(&path, &PoolOptions::default())?;
//! let orders = OrderedMap::open(&store, "orders")?;
//!
//! orders.insert(b"4711", b"one lamp")?; // durable when this returns
//! orders.insert_relaxed(b"4712", b"two chairs")?; // ordered, not yet durable
//! orders.insert_relaxed(b"4713", b"a table")?;
//! orders.sync()?; // now both are, for one wait
//! drop((orders, store)); // or pull the plug
//!
//! let store = Store::open(&path, &PoolOptions::default())?;
//! let orders = OrderedMap::open(&store, "orders")?;
//! assert_eq!(orders.get(b"4712")?.as_deref(), Some(&b"two chairs"[..]));
//! assert_eq!(orders.len()?, 3);
//! # Ok(())
//! # }
//! ```
//!
//! Several changes that belong together are a transaction on [`Stm`], a memory of typed objects, with the collections
//! of [`collections`]: maps, lists, queues.
//!
//! ```
//! use lodestone::collections::{Bytes, PmHashMap, PmQueue};
//! use lodestone::{PoolOptions, Stm, Store};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("shop.pool");
//! let stm = Stm::open(&Store::open_or_create(&path, &PoolOptions::default())?)?;
//! let stock = PmHashMap::<Bytes, u64>::open(&stm, "stock")?;
//! let parcels = PmQueue::<Bytes>::open(&stm, "parcels")?;
//! stm.update(|tx| stock.insert(tx, b"lamp", &3))?;
//! stm.update(|tx| {
//!     let lamps = stock.get(tx, b"lamp")?.unwrap_or(0);
//!     if lamps == 0 {
//!         return tx.cancel("sold out");
//!     }
//!     stock.insert(tx, b"lamp", &(lamps - 1))?;
//!     parcels.push(tx, b"one lamp")
//! })?; // both or neither, durable when this returns
//! assert_eq!(stm.read(|tx| parcels.len(tx))?, 1);
//! # Ok(())
//! # }
//! ```
//!
//! All of the crates that it is made of are here:
//! - [`pmem`] for pools, flush, fence;
//! - [`heap`] for allocation, failure-atomic actions;
//! - [`index`] for maps;
//! - [`stm`] for transactions;
//! - [`collections`] for maps, lists, queues in transactions;
//! - [`crash`] for the explorer that crashes a structure, ours or yours, at every point.

pub use lodestone_collections as collections;
pub use lodestone_crash as crash;
pub use lodestone_heap as heap;
pub use lodestone_index as index;
pub use lodestone_pmem as pmem;
pub use lodestone_stm as stm;

pub use lodestone_heap::{Heap, HeapOptions};
pub use lodestone_index::{
    Durability, FastFair, IndexKey, OpenIndex, OrderedIndex, OrderedMap, PointIndex, RecordMap, SkipList, Swap,
};
pub use lodestone_pmem::{Domain, DomainChoice, Memory, PmAddr, PmPtr, Pool, PoolOptions};
pub use lodestone_stm::{Stm, StmOptions};
pub use lodestone_store as store;
pub use lodestone_store::{Force, Store, StoreOptions};
