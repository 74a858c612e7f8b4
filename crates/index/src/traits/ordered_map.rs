//! [`OrderedMap`] as an index: values are its byte strings of eight bytes, little-endian.
//!
//! A change that depends on the value that is there is decided under the leaf's lock, in `OrderedMap::change`.

use std::ops::{Bound, ControlFlow};

use lodestone_store::{Object, Store};
use lodestone_width::to_u64;

use crate::change::{Change, Changed};
use crate::check::IndexReport;
use crate::error::{Error, Result};
use crate::map::{Durability, OrderedMap};
use crate::open::MapOptions;
use crate::scan::Direction;
use crate::traits::{OpenIndex, OrderedIndex, PointIndex, Swap};

/// The word that the byte string `value` is.
fn word_of(map: &OrderedMap, value: &[u8]) -> Result<u64> {
    let word = value.try_into().map(u64::from_le_bytes);
    word.map_err(|_| Error::NotAWord { path: map.path().to_owned(), bytes: to_u64(value.len()) })
}

impl OrderedMap {
    fn change_word(&self, key: &[u8], new: u64, decide: impl Fn(Option<u64>) -> Change) -> Result<Option<u64>> {
        let decide = |found: Option<&[u8]>| match found {
            Some(value) => word_of(self, value).map(|word| decide(Some(word))),
            None => Ok(decide(None)),
        };
        let Changed { before, .. } = self.change(key, &new.to_le_bytes(), self.index_durability, decide)?;
        before.map(|value| word_of(self, &value)).transpose()
    }
}

impl PointIndex for OrderedMap {
    type Key = [u8];

    fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        let mut value = Vec::with_capacity(8);
        let found = self.get_with(key, &mut value, self.index_durability)?;
        if found { word_of(self, &value).map(Some) } else { Ok(None) }
    }

    fn insert(&self, key: &[u8], value: u64) -> Result<bool> {
        let put_new = |found: Option<u64>| if found.is_none() { Change::Put } else { Change::Keep };
        Ok(self.change_word(key, value, put_new)?.is_none())
    }

    fn update(&self, key: &[u8], value: u64) -> Result<Option<u64>> {
        self.change_word(key, value, |found| if found.is_some() { Change::Put } else { Change::Keep })
    }

    fn upsert(&self, key: &[u8], value: u64) -> Result<Option<u64>> {
        self.change_word(key, value, |_| Change::Put)
    }

    fn remove(&self, key: &[u8]) -> Result<Option<u64>> {
        self.change_word(key, 0, |found| if found.is_some() { Change::Remove } else { Change::Keep })
    }

    fn compare_and_swap(&self, key: &[u8], current: u64, new: u64) -> Result<Swap> {
        let swap = |found: Option<u64>| if found == Some(current) { Change::Put } else { Change::Keep };
        Ok(match self.change_word(key, new, swap)? {
            None => Swap::Absent,
            Some(found) if found == current => Swap::Done,
            Some(found) => Swap::Differs(found),
        })
    }

    fn len(&self) -> Result<u64> {
        OrderedMap::len(self)
    }

    fn is_empty(&self) -> Result<bool> {
        Ok(self.outermost(Direction::Ascending)?.is_none())
    }

    fn sync(&self) -> Result<()> {
        OrderedMap::sync(self)
    }

    fn check(&self) -> IndexReport {
        OrderedMap::check(self)
    }
}

impl OrderedIndex for OrderedMap {
    fn scan(
        &self,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
        direction: Direction,
        mut visit: impl FnMut(&[u8], u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        let mut outcome = Ok(());
        let mut show = |key: &[u8], value: &[u8]| match word_of(self, value) {
            Ok(word) => visit(key, word),
            Err(error) => {
                outcome = Err(error);
                ControlFlow::Break(())
            }
        };
        let seen = self.scan_with(start, end, direction, self.index_durability, &mut show)?;
        outcome.map(|()| seen)
    }
}

impl OpenIndex for OrderedMap {
    type Options = MapOptions;

    fn open_index(store: &Store, name: &str, options: &MapOptions, durability: Durability) -> Result<Self> {
        let mut map = Self::open_with(store, name, options)?;
        map.index_durability = durability;
        Ok(map)
    }

    fn open_object(object: Object, _: &MapOptions, durability: Durability) -> Result<Self> {
        let mut map = OrderedMap::open_object(object)?;
        map.index_durability = durability;
        Ok(map)
    }
}
