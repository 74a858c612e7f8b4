//! The interface of maps from byte strings to byte strings, and with it their tests. Indexes have values of eight bytes:
//! see `traits`.

use std::ops::{Bound, ControlFlow};

use crate::check::CheckReport;
use crate::error::Result;
use crate::map::OrderedMap;

/// What a scan shows records to, keys first: it goes on or breaks.
pub type Visit<'v> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'v;

/// An ordered map from byte strings to byte strings that many threads use at once. What it tells is durable.
pub trait RecordMap: Send + Sync {
    /// The value of `key`.
    ///
    /// # Errors
    /// When the medium is damaged where the answer lies, or the pool failed.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Sets `key` to `value`; whether it replaced an older value.
    ///
    /// # Errors
    /// As [`get`](Self::get); when there is no space or a limit is passed, and then nothing changed.
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool>;

    /// Removes `key`; whether it was there.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn remove(&self, key: &[u8]) -> Result<bool>;

    /// Shows `visit` the records from `start` to `end` in ascending order until it breaks; how many it saw.
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

    /// Verifies everything on the medium; call it while nobody changes the map.
    fn check(&self) -> CheckReport;
}

impl RecordMap for OrderedMap {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        OrderedMap::get(self, key)
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

    fn check(&self) -> CheckReport {
        OrderedMap::check(self)
    }
}
