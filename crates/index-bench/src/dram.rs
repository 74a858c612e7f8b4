//! Indexes in DRAM: the cost of the same operations without durability.
//!
//! - `btreemap-lock`: the standard library's B-tree under a reader-writer lock;
//! - `crossbeam-skiplist`: a lock-free skip list. Its insert of an existing key cannot be told from an update, so
//!   updates and inserts look before they write. The runner's threads never change the same record at once.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use crossbeam_skiplist::SkipMap;
use lodestone_index::IndexKey;
use lodestone_workload::engine::Environment;

use crate::target::{Result, Session, Target};

/// Makes an index in DRAM a target: its name, and how many keys it has now. Its sessions are references to it.
macro_rules! target {
    ($index:ident, $name:literal, |$map:ident| $count:expr) => {
        impl<K: IndexKey + ?Sized> Default for $index<K> {
            fn default() -> Self {
                Self { map: Default::default() }
            }
        }

        impl<K: IndexKey + ?Sized> Target for $index<K> {
            type Key = K;
            type Session<'t>
                = &'t Self
            where
                Self: 't;

            fn name(&self) -> String {
                $name.into()
            }

            fn session(&self) -> Result<&Self> {
                Ok(self)
            }

            fn is_ordered(&self) -> bool {
                true
            }

            fn keys_now(&self) -> Result<Option<u64>> {
                let $map = &self.map;
                Ok(Some($count as u64))
            }

            fn environment(&self) -> Environment {
                Environment { domain: None, media: Some("DRAM".into()), durability: Some("none".into()) }
            }
        }
    };
}

/// `BTreeMap` under a lock.
#[derive(Debug)]
pub struct LockedTree<K: IndexKey + ?Sized> {
    map: RwLock<BTreeMap<K::Owned, u64>>,
}

target!(LockedTree, "btreemap-lock", |map| map.read().unwrap_or_else(PoisonError::into_inner).len());

impl<K: IndexKey + ?Sized> Session for &LockedTree<K> {
    type Key = K;

    #[inline]
    fn get(&mut self, key: &K) -> Result<Option<u64>> {
        Ok(self.map.read().unwrap_or_else(PoisonError::into_inner).get(key).copied())
    }

    fn insert(&mut self, key: &K, value: u64) -> Result<bool> {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = !map.contains_key(key);
        if is_new {
            map.insert(key.to_key(), value);
        }
        Ok(is_new)
    }

    fn update(&mut self, key: &K, value: u64) -> Result<bool> {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        Ok(map.get_mut(key).map(|found| *found = value).is_some())
    }

    fn remove(&mut self, key: &K) -> Result<bool> {
        Ok(self.map.write().unwrap_or_else(PoisonError::into_inner).remove(key).is_some())
    }

    fn scan(&mut self, start: &K, count: u64) -> Result<u64> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let range = map.range::<K, _>((Bound::Included(start), Bound::Unbounded));
        let mut seen = 0;
        for (key, value) in range.take(usize::try_from(count).unwrap_or(usize::MAX)) {
            let key: &K = key.borrow();
            black_box(key.order_word() ^ value);
            seen += 1;
        }
        Ok(seen)
    }
}

/// The skip list of `crossbeam-skiplist`.
#[derive(Debug)]
pub struct CrossbeamList<K: IndexKey + ?Sized> {
    /// Values change in place. Otherwise an insert over a key that another thread removes at that moment would bring it
    /// back.
    map: SkipMap<K::Owned, AtomicU64>,
}

target!(CrossbeamList, "crossbeam-skiplist", |map| map.len());

impl<K: IndexKey + ?Sized> Session for &CrossbeamList<K> {
    type Key = K;

    #[inline]
    fn get(&mut self, key: &K) -> Result<Option<u64>> {
        Ok(self.map.get(key).map(|entry| entry.value().load(Ordering::Acquire)))
    }

    fn insert(&mut self, key: &K, value: u64) -> Result<bool> {
        let is_new = !self.map.contains_key(key);
        if is_new {
            self.map.insert(key.to_key(), AtomicU64::new(value));
        }
        Ok(is_new)
    }

    fn update(&mut self, key: &K, value: u64) -> Result<bool> {
        let found = self.map.get(key);
        if let Some(entry) = &found {
            entry.value().store(value, Ordering::Release);
        }
        Ok(found.is_some())
    }

    fn remove(&mut self, key: &K) -> Result<bool> {
        Ok(self.map.remove(key).is_some())
    }

    fn scan(&mut self, start: &K, count: u64) -> Result<u64> {
        let range = self.map.range::<K, _>((Bound::Included(start), Bound::Unbounded));
        let mut seen = 0;
        for entry in range.take(usize::try_from(count).unwrap_or(usize::MAX)) {
            let key: &K = entry.key().borrow();
            black_box(key.order_word() ^ entry.value().load(Ordering::Acquire));
            seen += 1;
        }
        Ok(seen)
    }
}
