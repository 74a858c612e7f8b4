//! The tree as an index.

use std::ops::{Bound, ControlFlow};

use lodestone_store::{Object, Store};

use crate::change::Change;
use crate::check::IndexReport;
use crate::error::Result;
use crate::fastfair::{FastFair, FastFairOptions};
use crate::map::Durability;
use crate::scan::Direction;
use crate::traits::{IndexKey, OpenIndex, OrderedIndex, PointIndex, Swap};

impl<K: IndexKey + ?Sized> PointIndex for FastFair<K> {
    type Key = K;

    crate::change::operations_by_change!();

    fn len(&self) -> Result<u64> {
        self.count()
    }

    fn is_empty(&self) -> Result<bool> {
        Ok(self.outermost(Direction::Ascending)?.is_none())
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
