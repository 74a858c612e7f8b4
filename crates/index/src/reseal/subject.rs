//! Indexes and maps as the cases see them: keys are bytes, values words.

use std::borrow::Borrow;
use std::ops::{Bound, ControlFlow};

use crate::check::IndexReport;
use crate::error::Result;
use crate::hash::HashIndex;
use crate::record_map::RecordMap;
use crate::scan::Direction;
use crate::traits::{IndexKey, OrderedIndex, PointIndex};

/// Pairs after which a range is taken for endless: the pool has no room for as many.
const PAIRS_MAX: usize = 50_000;

/// The questions of a case.
pub(super) trait Subject {
    fn get(&self, key: &[u8]) -> Result<Option<u64>>;
    fn put(&self, key: &[u8], value: u64) -> Result<()>;
    fn take(&self, key: &[u8]) -> Result<()>;
    /// All pairs, or those from the first key of `between` up to the other one.
    fn list(&self, direction: Direction, between: Option<&(Vec<u8>, Vec<u8>)>) -> Result<Vec<(Vec<u8>, u64)>>;
    fn len(&self) -> Result<u64>;
    fn check(&self) -> IndexReport;
}

/// An index in order.
pub(super) struct Ordered<I>(pub(super) I);

/// A hash.
pub(super) struct Hashed<K: IndexKey + ?Sized>(pub(super) HashIndex<K>);

/// A map of byte strings.
pub(super) struct Mapped<M>(pub(super) M);

fn key_of<K: IndexKey + ?Sized>(bytes: &[u8]) -> K::Owned {
    K::from_bytes(bytes).expect("a key of this kind")
}

fn add(all: &mut Vec<(Vec<u8>, u64)>, key: Vec<u8>, value: u64) -> ControlFlow<()> {
    all.push((key, value));
    assert!(all.len() < PAIRS_MAX, "a range without end");
    ControlFlow::Continue(())
}

impl<I: OrderedIndex> Subject for Ordered<I> {
    fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        self.0.get(key_of::<I::Key>(key).borrow())
    }

    fn put(&self, key: &[u8], value: u64) -> Result<()> {
        self.0.upsert(key_of::<I::Key>(key).borrow(), value).map(drop)
    }

    fn take(&self, key: &[u8]) -> Result<()> {
        self.0.remove(key_of::<I::Key>(key).borrow()).map(drop)
    }

    fn list(&self, direction: Direction, between: Option<&(Vec<u8>, Vec<u8>)>) -> Result<Vec<(Vec<u8>, u64)>> {
        let keys = between.map(|(from, to)| (key_of::<I::Key>(from), key_of::<I::Key>(to)));
        let (start, end) = match &keys {
            Some((from, to)) => (Bound::Included(from.borrow()), Bound::Excluded(to.borrow())),
            None => (Bound::Unbounded, Bound::Unbounded),
        };
        let mut all = Vec::new();
        self.0.scan(start, end, direction, |key, value| key.with_bytes(|key| add(&mut all, key.to_vec(), value)))?;
        Ok(all)
    }

    fn len(&self) -> Result<u64> {
        self.0.len()
    }

    fn check(&self) -> IndexReport {
        self.0.check()
    }
}

impl<K: IndexKey + ?Sized> Subject for Hashed<K> {
    fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        self.0.get(key_of::<K>(key).borrow())
    }

    fn put(&self, key: &[u8], value: u64) -> Result<()> {
        self.0.upsert(key_of::<K>(key).borrow(), value).map(drop)
    }

    fn take(&self, key: &[u8]) -> Result<()> {
        self.0.remove(key_of::<K>(key).borrow()).map(drop)
    }

    fn list(&self, _: Direction, _: Option<&(Vec<u8>, Vec<u8>)>) -> Result<Vec<(Vec<u8>, u64)>> {
        let mut all = Vec::new();
        self.0.for_each(|key, value| {
            let _ = key.with_bytes(|key| add(&mut all, key.to_vec(), value));
        })?;
        Ok(all)
    }

    fn len(&self) -> Result<u64> {
        self.0.len()
    }

    fn check(&self) -> IndexReport {
        self.0.check()
    }
}

/// The word that a map's value of eight bytes is.
fn word_of(value: &[u8]) -> u64 {
    value.first_chunk::<8>().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}

impl<M: RecordMap> Subject for Mapped<M> {
    fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        Ok(self.0.get(key)?.map(|value| word_of(&value)))
    }

    fn put(&self, key: &[u8], value: u64) -> Result<()> {
        self.0.insert(key, &value.to_le_bytes()).map(drop)
    }

    fn take(&self, key: &[u8]) -> Result<()> {
        self.0.remove(key).map(drop)
    }

    fn list(&self, direction: Direction, between: Option<&(Vec<u8>, Vec<u8>)>) -> Result<Vec<(Vec<u8>, u64)>> {
        let (start, end) = match between {
            Some((from, to)) => (Bound::Included(&from[..]), Bound::Excluded(&to[..])),
            None => (Bound::Unbounded, Bound::Unbounded),
        };
        let mut all = Vec::new();
        self.0.scan(start, end, &mut |key, value| add(&mut all, key.to_vec(), word_of(value)))?;
        if direction == Direction::Descending {
            all.reverse();
        }
        Ok(all)
    }

    fn len(&self) -> Result<u64> {
        self.0.len()
    }

    fn check(&self) -> IndexReport {
        self.0.check()
    }
}
