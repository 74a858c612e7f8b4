//! Shared parts of the tests of the cache: an index in DRAM that shows the cache's requests.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use lodestone_index::{IndexKey, IndexReport, PointIndex, Result, Swap};

/// A map in DRAM that counts how often it is searched.
pub struct Plain<K: IndexKey + ?Sized> {
    pub map: Mutex<BTreeMap<K::Owned, u64>>,
    pub searches: AtomicU64,
    /// A count of the keys waits until there are so many.
    pub counted_from: u64,
}

impl<K: IndexKey + ?Sized> Plain<K> {
    pub fn new(pairs: impl IntoIterator<Item = (K::Owned, u64)>) -> Self {
        Self { map: Mutex::new(pairs.into_iter().collect()), searches: AtomicU64::new(0), counted_from: 0 }
    }

    fn with<T>(&self, change: impl FnOnce(&mut BTreeMap<K::Owned, u64>) -> T) -> Result<T> {
        Ok(change(&mut self.map.lock().expect("no test panics inside")))
    }
}

impl<K: IndexKey + ?Sized> PointIndex for Plain<K> {
    type Key = K;

    fn get(&self, key: &K) -> Result<Option<u64>> {
        self.searches.fetch_add(1, Ordering::Relaxed);
        self.with(|map| map.get(key).copied())
    }

    fn insert(&self, key: &K, value: u64) -> Result<bool> {
        self.with(|map| {
            let fresh = !map.contains_key(key);
            map.entry(key.to_key()).or_insert(value);
            fresh
        })
    }

    fn update(&self, key: &K, value: u64) -> Result<Option<u64>> {
        self.with(|map| map.get_mut(key).map(|found| std::mem::replace(found, value)))
    }

    fn upsert(&self, key: &K, value: u64) -> Result<Option<u64>> {
        self.with(|map| map.insert(key.to_key(), value))
    }

    fn remove(&self, key: &K) -> Result<Option<u64>> {
        self.with(|map| map.remove(key))
    }

    fn compare_and_swap(&self, key: &K, current: u64, new: u64) -> Result<Swap> {
        self.with(|map| match map.get_mut(key) {
            None => Swap::Absent,
            Some(found) if *found == current => {
                *found = new;
                Swap::Done
            }
            Some(found) => Swap::Differs(*found),
        })
    }

    fn len(&self) -> Result<u64> {
        loop {
            let keys = self.with(|map| map.len() as u64)?;
            if keys >= self.counted_from {
                return Ok(keys);
            }
            std::thread::yield_now();
        }
    }

    fn is_empty(&self) -> Result<bool> {
        self.with(|map| map.is_empty())
    }

    fn key_bytes_max(&self) -> usize {
        1024
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn check(&self) -> IndexReport {
        IndexReport::default()
    }
}
