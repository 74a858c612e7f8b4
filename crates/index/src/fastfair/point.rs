//! The tree as an index.

use std::ops::{Bound, ControlFlow};

use lodestone_store::{Object, Store};

use crate::change::Change;
use crate::check::IndexReport;
use crate::error::Result;
use crate::fastfair::{FastFair, FastFairOptions};
use crate::layout::KEY_BYTES_MAX;
use crate::map::Durability;
use crate::scan::Direction;
use crate::traits::{IndexKey, OpenIndex, OrderedIndex, PointIndex, Swap};

impl<K: IndexKey + ?Sized> PointIndex for FastFair<K> {
    type Key = K;

    #[inline]
    fn get(&self, key: &K) -> Result<Option<u64>> {
        self.lookup(key)
    }

    fn insert(&self, key: &K, value: u64) -> Result<bool> {
        let put_new = |found: Option<u64>| if found.is_none() { Change::Put } else { Change::Keep };
        Ok(self.change(key, value, put_new)?.is_none())
    }

    fn update(&self, key: &K, value: u64) -> Result<Option<u64>> {
        self.change(key, value, |found| if found.is_some() { Change::Put } else { Change::Keep })
    }

    fn upsert(&self, key: &K, value: u64) -> Result<Option<u64>> {
        self.change(key, value, |_| Change::Put)
    }

    fn remove(&self, key: &K) -> Result<Option<u64>> {
        self.change(key, 0, |found| if found.is_some() { Change::Remove } else { Change::Keep })
    }

    fn compare_and_swap(&self, key: &K, current: u64, new: u64) -> Result<Swap> {
        let swap = |found: Option<u64>| if found == Some(current) { Change::Put } else { Change::Keep };
        Ok(match self.change(key, new, swap)? {
            None => Swap::Absent,
            Some(found) if found == current => Swap::Done,
            Some(found) => Swap::Differs(found),
        })
    }

    fn len(&self) -> Result<u64> {
        self.count()
    }

    fn is_empty(&self) -> Result<bool> {
        Ok(self.outermost(Direction::Ascending)?.is_none())
    }

    fn key_bytes_max(&self) -> usize {
        if K::IS_WORD { size_of::<u64>() } else { KEY_BYTES_MAX }
    }

    fn sync(&self) -> Result<()> {
        Ok(self.heap.memory().durable()?)
    }

    fn check(&self) -> IndexReport {
        self.check_all()
    }
}

impl<K: IndexKey + ?Sized> OrderedIndex for FastFair<K> {
    fn scan(
        &self,
        start: Bound<&K>,
        end: Bound<&K>,
        direction: Direction,
        visit: impl FnMut(&K, u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        self.scan_range(start, end, direction, visit)
    }

    fn bulk_load<S>(&self, sorted: S) -> Result<u64>
    where
        S: IntoIterator<Item = (K::Owned, u64)>,
    {
        self.load_sorted(sorted.into_iter())
    }
}

impl<K: IndexKey + ?Sized> OpenIndex for FastFair<K> {
    type Options = FastFairOptions;

    fn open_index(store: &Store, name: &str, options: &FastFairOptions, durability: Durability) -> Result<Self> {
        Self::open(store, name, options, durability)
    }

    fn open_object(object: Object, _: &FastFairOptions, durability: Durability) -> Result<Self> {
        Self::open_object(object, durability)
    }
}
