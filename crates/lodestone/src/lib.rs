//! Durable data structures on persistent memory, and on ordinary files.
//!
//! A [`Store`] owns a pool, a file (or device) of durable memory, and the objects in it: maps, indexes and
//! transactional memories, each with a name. Every answer of a call survives power loss. On an ordinary file a synced
//! journal guarantees it (group commit), on real persistent memory flushed and fenced lines. [`Domain`] tells which.
//!
//! ```
//! use lodestone::{OrderedMap, PoolOptions, Store};
//!
//! # fn main() -> lodestone::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
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
//! # fn main() -> lodestone::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
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
//! Rows with a key belong in the tables of a [`Database`]: serializable transactions over them, also over ranges.
//!
//! ```
//! use lodestone::engine::{Schema, Type, row};
//! use lodestone::Database;
//!
//! # fn main() -> lodestone::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("bank.pool");
//! let db = Database::open(&path)?;
//! let schema = Schema::new("accounts").column("id", Type::U64).column("cents", Type::I64);
//! let accounts = db.create_table(&schema.key(["id"]))?;
//! db.update(|tx| {
//!     accounts.insert(tx, &row![1_u64, 500_i64])?;
//!     accounts.insert(tx, &row![2_u64, 0_i64])
//! })?; // both or neither, durable when this returns
//! assert_eq!(db.update(|tx| Ok(accounts.range(tx, ..)?.count()))?, 2);
//! # Ok(())
//! # }
//! ```
//!
//! [`Error`] is the error of all of it, so one `?` serves every floor. [`Error::category`] says which case it is.
//!
//! All of the crates that it is made of are here:
//! - [`pmem`] for pools, flush, fence;
//! - [`heap`] for allocation, failure-atomic actions;
//! - [`index`] for maps;
//! - [`stm`] for transactions;
//! - [`collections`] for maps, lists, queues in transactions;
//! - [`engine`] for tables of typed rows;
//! - [`fs`] for volumes of files;
//! - `crash`, with the feature of that name, for the explorer that crashes a structure, ours or yours, at every point.

mod error;

pub use lodestone_collections as collections;
#[cfg(feature = "crash")]
pub use lodestone_crash as crash;
pub use lodestone_engine as engine;
pub use lodestone_fs as fs;
pub use lodestone_heap as heap;
pub use lodestone_index as index;
pub use lodestone_pmem as pmem;
pub use lodestone_stm as stm;
pub use lodestone_store as store;

pub use error::{Error, ErrorCategory, Result};
pub use lodestone_engine::Database;
pub use lodestone_fs::Volume;
pub use lodestone_heap::{Heap, HeapOptions};
pub use lodestone_index::{
    Durability, FastFair, IndexKey, OpenIndex, OrderedIndex, OrderedMap, PointIndex, RecordMap, SkipList, Swap,
};
pub use lodestone_pmem::{Memory, PmAddr, Pool};
pub use lodestone_stm::Stm;
pub use lodestone_store::{Force, Store, StoreOptions};

/// ```
/// use lodestone::{Domain, PoolOptions, Store};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("shop.pool");
/// let store = Store::create(&path, &PoolOptions::default())?;
/// // Temporary folders are seldom on persistent memory.
/// assert!(matches!(store.memory().domain(), Domain::Block | Domain::Dax | Domain::Eadr));
/// assert!(store.memory().domain().promise().contains("survives power loss"));
/// # Ok::<(), lodestone::Error>(())
/// ```
#[doc(inline)]
pub use lodestone_pmem::Domain;

/// ```
/// use lodestone::{Domain, DomainChoice, PoolOptions, Store};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("test.pool");
/// // For tests: no device is synced. It survives the death of the process only.
/// let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// assert_eq!(Store::create(&path, &options)?.memory().domain(), Domain::Process);
/// assert_eq!("process".parse::<DomainChoice>()?, DomainChoice::Process);
/// # Ok::<(), lodestone::Error>(())
/// ```
#[doc(inline)]
pub use lodestone_pmem::DomainChoice;

/// ```
/// use lodestone::stm::pm_object;
/// use lodestone::{PmPtr, PoolOptions, Stm, Store};
///
/// #[pm_object]
/// struct Account {
///     cents: u64,
///     /// Persistent: a pointer is a field like any other.
///     heir: PmPtr<Account>,
/// }
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("bank.pool");
/// let stm = Stm::open(&Store::create(&path, &PoolOptions::default())?)?;
/// let alice = stm.root::<Account>()?;
/// stm.update(|tx| {
///     let bob = tx.alloc(Account { cents: 50, heir: PmPtr::NULL })?;
///     tx.write(alice)?.heir = bob;
///     Ok(())
/// })?;
/// let heir = stm.read(|tx| Ok(tx.read(alice)?.heir))?;
/// assert_eq!(stm.read(|tx| Ok(tx.read(heir)?.cents))?, 50);
/// # Ok::<(), lodestone::Error>(())
/// ```
#[doc(inline)]
pub use lodestone_pmem::PmPtr;

/// ```
/// use lodestone::{OrderedMap, PoolOptions, Store};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("log.pool");
/// // Small at first. When it is full it grows by itself, up to a gigabyte.
/// let options = PoolOptions { size_bytes: 4 << 20, journal_bytes: 1 << 20, ..PoolOptions::default() };
/// let options = PoolOptions { grow_bytes_max: 1 << 30, ..options };
/// let map = OrderedMap::open(&Store::create(&path, &options)?, "log")?;
/// for number in 0..100_u64 {
///     map.insert_relaxed(&number.to_be_bytes(), &[7; 60_000])?;
/// }
/// map.sync()?;
/// assert_eq!(map.len()?, 100);
/// assert!(std::fs::metadata(&path).unwrap().len() > 4 << 20);
/// # Ok::<(), lodestone::Error>(())
/// ```
#[doc(inline)]
pub use lodestone_pmem::PoolOptions;

/// ```
/// use lodestone::{PoolOptions, Stm, StmOptions, Store};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("bank.pool");
/// let store = Store::create(&path, &PoolOptions::default())?;
/// // Long snapshots beside writers may keep a mebibyte of old versions.
/// let options = StmOptions { side_bytes_max: 1 << 20, ..StmOptions::default() };
/// let stm = Stm::open_with(&store, &options)?;
/// assert_eq!(stm.snapshot(|_| Ok(1 + 1))?, 2);
/// # Ok::<(), lodestone::Error>(())
/// ```
#[doc(inline)]
pub use lodestone_stm::StmOptions;

/// The examples of the README, which must compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
