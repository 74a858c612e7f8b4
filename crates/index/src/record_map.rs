//! The interface of maps from byte strings to byte strings, and with it their tests. Indexes have values of eight
//! bytes: see `traits`; a map over one of them: `records`.

use std::ops::{Bound, ControlFlow};

use crate::check::IndexReport;
use crate::error::Result;
use crate::map::OrderedMap;

/// The visitor of a scan. It gets keys and values and says whether to continue or break.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// use std::ops::{Bound, ControlFlow};
///
/// use lodestone_index::{OrderedMap, RecordMap, Visit};
///
/// let map = OrderedMap::open(&store, "map")?;
/// map.insert(b"lamp", b"3")?;
/// let mut values = Vec::new();
/// let visit: &mut Visit<'_> = &mut |_key, value| {
///     values.push(value.to_vec());
///     ControlFlow::Continue(())
/// };
/// RecordMap::scan(&map, Bound::Unbounded, Bound::Unbounded, visit)?;
/// assert_eq!(values, [b"3"]);
/// # Ok::<(), lodestone_index::Error>(())
/// ```
pub type Visit<'v> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'v;

/// An ordered map from byte strings to byte strings that many threads use at once. Every answer is durable.
///
/// ```
/// use lodestone_index::{Durability, IndexKind, OrderedMap, RecordMap, open_records};
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::Store;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let store = Store::create(&path, &options)?;
/// fn rename(map: &dyn RecordMap, old: &[u8], new: &[u8]) -> lodestone_index::Result<bool> {
///     let Some(value) = map.get(old)? else { return Ok(false) };
///     map.insert(new, &value)?;
///     map.remove(old)
/// }
///
/// let plain = OrderedMap::open(&store, "plain")?;
/// let over_tree = open_records(&store, "over-tree", IndexKind::FastFair, Durability::Sync)?;
/// for map in [&plain as &dyn RecordMap, &*over_tree] {
///     map.insert(b"Bombay", b"India")?;
///     assert!(rename(map, b"Bombay", b"Mumbai")?);
///     assert_eq!(map.len()?, 1);
/// }
/// # Ok::<(), lodestone_index::Error>(())
/// ```
pub trait RecordMap: Send + Sync {
    /// The value of `key`.
    ///
    /// # Errors
    /// When the medium is damaged where the answer is stored, or the pool failed.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// As [`get`](Self::get), but the value replaces the content of `out`. Returns whether the key was found; `out` is
    /// empty if not.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn get_into(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let found = self.get(key)?;
        let is_there = found.is_some();
        *out = found.unwrap_or_default();
        Ok(is_there)
    }

    /// Sets `key` to `value`. Returns whether it replaced an older value.
    ///
    /// # Errors
    /// As [`get`](Self::get); when there is no space or a limit is passed, and then nothing changed.
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool>;

    /// Removes `key`. Returns whether it was there.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn remove(&self, key: &[u8]) -> Result<bool>;

    /// Shows `visit` the records from `start` to `end` in ascending order until it breaks. Returns how many it saw.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn scan(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, visit: &mut Visit<'_>) -> Result<u64>;

    /// Number of records.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn len(&self) -> Result<u64>;

    /// Whether there is no record.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// As [`insert`](Self::insert), but it need not be durable before [`sync`](Self::sync) on this thread. A map over
    /// an index waits according to the durability that it was opened with.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    fn insert_relaxed(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.insert(key, value)
    }

    /// As [`remove`](Self::remove), with the choice of [`insert_relaxed`](Self::insert_relaxed).
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    fn remove_relaxed(&self, key: &[u8]) -> Result<bool> {
        self.remove(key)
    }

    /// Waits until every change that this thread made would survive power loss.
    ///
    /// # Errors
    /// When the pool failed: relaxed changes since the last success may be lost.
    fn sync(&self) -> Result<()>;

    /// Bytes of DRAM that the map takes, when it counts them.
    fn dram_bytes(&self) -> Option<u64> {
        None
    }

    /// Verifies everything on the medium. Call it while no thread changes the map.
    fn check(&self) -> IndexReport;
}

impl RecordMap for OrderedMap {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        OrderedMap::get(self, key)
    }

    fn get_into(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        OrderedMap::get_into(self, key, out)
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        OrderedMap::insert(self, key, value)
    }

    fn remove(&self, key: &[u8]) -> Result<bool> {
        OrderedMap::remove(self, key)
    }

    fn scan(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, visit: &mut Visit<'_>) -> Result<u64> {
        OrderedMap::scan(self, start, end, visit)
    }

    fn len(&self) -> Result<u64> {
        OrderedMap::len(self)
    }

    fn is_empty(&self) -> Result<bool> {
        OrderedMap::is_empty(self)
    }

    fn insert_relaxed(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        OrderedMap::insert_relaxed(self, key, value)
    }

    fn remove_relaxed(&self, key: &[u8]) -> Result<bool> {
        OrderedMap::remove_relaxed(self, key)
    }

    fn sync(&self) -> Result<()> {
        OrderedMap::sync(self)
    }

    fn dram_bytes(&self) -> Option<u64> {
        Some(self.stats().dram_bytes)
    }

    fn check(&self) -> IndexReport {
        OrderedMap::check(self)
    }
}
