//! Operations on one key, and how an index comes to be.

use lodestone_store::{Object, Store};

use crate::check::IndexReport;
use crate::error::Result;
use crate::layout::KEY_BYTES_MAX;
use crate::map::Durability;
use crate::traits::IndexKey;

/// The result of a compare-and-swap.
///
/// ```
/// use lodestone_index::{Durability, FastFair, PointIndex, Swap};
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::Store;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let store = Store::create(&path, &options)?;
/// let tree = FastFair::<u64>::open(&store, "tree", &Default::default(), Durability::Sync)?;
/// tree.insert(&1, 10)?;
/// assert_eq!(tree.compare_and_swap(&1, 10, 11)?, Swap::Done);
/// assert_eq!(tree.compare_and_swap(&1, 10, 12)?, Swap::Differs(11));
/// assert_eq!(tree.compare_and_swap(&2, 10, 12)?, Swap::Absent);
/// # Ok::<(), lodestone_index::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Swap {
    /// The value was the expected one and is the new one now.
    Done,
    /// The key has this other value; nothing changed.
    Differs(u64),
    /// The key is not in the index; nothing changed.
    Absent,
}

/// An index from keys to words, shared by any number of threads.
///
/// Each operation takes effect at one moment between its call and its return, in an order that all threads agree on
/// (linearizability). A crash keeps a prefix of that order that holds everything that was reported durable (durable
/// linearizability). After an error nothing has changed, unless the error's text says so.
///
/// ```
/// use lodestone_index::{Durability, OpenIndex, OrderedMap, PointIndex, Swap};
/// use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// use lodestone_store::Store;
///
/// fn count<I: PointIndex<Key = [u8]>>(index: &I, word: &[u8]) -> lodestone_index::Result<u64> {
///     let mut seen = index.get(word)?.unwrap_or(0);
///     index.insert(word, 0)?;
///     loop {
///         match index.compare_and_swap(word, seen, seen + 1)? {
///             Swap::Done => return Ok(seen + 1),
///             Swap::Differs(found) => seen = found,
///             Swap::Absent => index.insert(word, seen).map(|_| ())?,
///         }
///     }
/// }
///
/// let folder = tempfile::tempdir()?;
/// let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let pool = Pool::create(folder.path().join("counts.pool"), &options)?;
/// let store = Store::over(&pool)?;
/// let index = OrderedMap::open_index(&store, "counts", &Default::default(), Durability::Sync)?;
/// assert_eq!((count(&index, b"the")?, count(&index, b"the")?), (1, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait PointIndex: Send + Sync {
    /// The type of the keys.
    type Key: IndexKey + ?Sized;

    /// The value of `key`.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged) when the medium is damaged where the answer is stored (never a wrong
    /// answer instead), [`Error::Pool`](crate::Error::Pool) when the pool is poisoned.
    fn get(&self, key: &Self::Key) -> Result<Option<u64>>;

    /// Sets the value of `key` if it has none. Returns whether it did. A key that is there keeps its value.
    ///
    /// # Errors
    /// As [`get`](Self::get); [`Error::TooLong`](crate::Error::TooLong) for a key beyond
    /// [`key_bytes_max`](Self::key_bytes_max); an error for which [`Error::is_full`](crate::Error::is_full) holds when
    /// the pool has no room; [`Error::ReadOnly`](crate::Error::ReadOnly).
    fn insert(&self, key: &Self::Key, value: u64) -> Result<bool>;

    /// Changes the value of `key` if it is there. Returns the former value.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    fn update(&self, key: &Self::Key, value: u64) -> Result<Option<u64>>;

    /// Sets the value of `key`, whether or not it is there. Returns the former value.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    fn upsert(&self, key: &Self::Key, value: u64) -> Result<Option<u64>>;

    /// Removes `key` and returns its value. The index's space for it goes back to the heap when no reader can be there
    /// any more.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    fn remove(&self, key: &Self::Key) -> Result<Option<u64>>;

    /// Changes the value of `key` from `current` to `new`, if it is `current`.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    fn compare_and_swap(&self, key: &Self::Key, current: u64, new: u64) -> Result<Swap>;

    /// Number of keys. May have to visit the whole index. Changes meanwhile may or may not count, so the number is then
    /// approximate. It need not wait until the counted keys are durable: a crash may take back a change that a later
    /// count has seen.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn len(&self) -> Result<u64>;

    /// Whether there is no key.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Bytes of the longest key; at least 1,024 where keys are strings.
    fn key_bytes_max(&self) -> usize {
        if Self::Key::IS_WORD { size_of::<u64>() } else { KEY_BYTES_MAX }
    }

    /// Waits until every change that this thread made would survive power loss. Needed with
    /// [`Durability::Relaxed`] only.
    ///
    /// # Errors
    /// [`Error::Pool`](crate::Error::Pool) when the pool is poisoned: changes since the last success may be lost.
    fn sync(&self) -> Result<()>;

    /// Verifies everything on the medium and lists the blocks that the index owns. Call it while no thread changes the
    /// index. Blocks that wait for readers to leave go back to the heap first.
    fn check(&self) -> IndexReport;
}

/// An index that has a name in a store.
///
/// ```
/// use lodestone_index::{Durability, FastFair, HashIndex, OpenIndex, PointIndex};
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::Store;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let store = Store::create(&path, &options)?;
/// fn squares<I: OpenIndex + PointIndex<Key = u64>>(store: &Store, name: &str) -> lodestone_index::Result<I> {
///     let index = I::open_index(store, name, &I::Options::default(), Durability::Sync)?;
///     for number in 1..=9 {
///         index.insert(&number, number * number)?;
///     }
///     Ok(index)
/// }
///
/// assert_eq!(squares::<FastFair<u64>>(&store, "tree")?.get(&7)?, Some(49));
/// assert_eq!(squares::<HashIndex<u64>>(&store, "hash")?.get(&9)?, Some(81));
/// # Ok::<(), lodestone_index::Error>(())
/// ```
pub trait OpenIndex: PointIndex + Sized {
    /// The options with which an index is made.
    type Options: Clone + Default + Send + Sync;

    /// Opens the index `name`, or creates it. Durable on return; a crash during the creation leaks nothing.
    ///
    /// # Errors
    /// [`Error::AlreadyOpen`](crate::Error::AlreadyOpen), [`Error::WrongKind`](crate::Error::WrongKind),
    /// [`Error::Damaged`](crate::Error::Damaged), and the errors of the heap and the pool.
    /// [`Error::ReadOnly`](crate::Error::ReadOnly) when there is nothing to open and the pool is read-only.
    fn open_index(store: &Store, name: &str, options: &Self::Options, durability: Durability) -> Result<Self>;

    /// Opens an index that was claimed whatever its kind, by [`Store::open_object`]: for tools. The caller knows its
    /// kind.
    ///
    /// # Errors
    /// As [`open_index`](Self::open_index).
    fn open_object(object: Object, options: &Self::Options, durability: Durability) -> Result<Self>;
}
