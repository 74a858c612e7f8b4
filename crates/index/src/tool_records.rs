//! The records of maps and indexes as tools see them: byte strings, whatever the keys and values are.
//!
//! Keys that are numbers, and all values of indexes, are shown and asked for in decimal.

use std::borrow::Borrow;
use std::ops::Bound;

use lodestone_store::{KeyForm, KindError, Records, VisitRecord};

use crate::hash::HashIndex;
use crate::map::Durability;
use crate::record_map::RecordMap;
use crate::scan::Direction;
use crate::traits::{IndexKey, OrderedIndex, PointIndex};

/// Those of a map from byte strings to byte strings.
pub(crate) struct OfMap {
    pub(crate) map: Box<dyn RecordMap>,
    pub(crate) durability: Durability,
}

/// Those of an ordered index.
pub(crate) struct OfIndex<I>(pub(crate) I);

/// Those of a hash index: in no order.
pub(crate) struct OfHash<K: IndexKey + ?Sized>(pub(crate) HashIndex<K>);

fn from(start: Option<&[u8]>) -> Bound<&[u8]> {
    start.map_or(Bound::Unbounded, Bound::Included)
}

impl Records for OfMap {
    fn key_form(&self) -> KeyForm {
        KeyForm::Bytes
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KindError> {
        Ok(self.map.get(key)?)
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool, KindError> {
        match self.durability {
            Durability::Sync => Ok(self.map.insert(key, value)?),
            Durability::Relaxed => Ok(self.map.insert_relaxed(key, value)?),
        }
    }

    fn remove(&self, key: &[u8]) -> Result<bool, KindError> {
        match self.durability {
            Durability::Sync => Ok(self.map.remove(key)?),
            Durability::Relaxed => Ok(self.map.remove_relaxed(key)?),
        }
    }

    fn sync(&self) -> Result<(), KindError> {
        Ok(self.map.sync()?)
    }

    fn scan(&self, start: Option<&[u8]>, visit: &mut VisitRecord<'_>) -> Result<u64, KindError> {
        Ok(self.map.scan(from(start), Bound::Unbounded, visit)?)
    }

    fn len(&self) -> Result<u64, KindError> {
        Ok(self.map.len()?)
    }
}

/// The key that a tool means by `text`.
fn key_from<K: IndexKey + ?Sized>(text: &[u8]) -> Result<K::Owned, KindError> {
    let not_a_number = || format!("the keys are numbers, and `{}` is none", text.escape_ascii());
    if !K::IS_WORD {
        return K::from_bytes(text).ok_or_else(|| "no key".into());
    }
    let number: u64 = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or_else(not_a_number)?;
    K::from_bytes(&number.to_be_bytes()).ok_or_else(|| not_a_number().into())
}

/// A key as a tool shows it.
fn text_of<K: IndexKey + ?Sized>(key: &K) -> Vec<u8> {
    if K::IS_WORD { key.order_word().to_string().into_bytes() } else { key.with_bytes(<[u8]>::to_vec) }
}

fn value_from(text: &[u8]) -> Result<u64, KindError> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("the values are numbers, and `{}` is none", text.escape_ascii()).into())
}

fn form_of<K: IndexKey + ?Sized>() -> KeyForm {
    if K::IS_WORD { KeyForm::Number } else { KeyForm::Bytes }
}

/// Sets `key` to `value`; whether there was an older one.
fn put<I: PointIndex>(index: &I, key: &[u8], value: &[u8]) -> Result<bool, KindError> {
    let (key, value) = (key_from::<I::Key>(key)?, value_from(value)?);
    Ok(index.upsert(key.borrow(), value)?.is_some())
}

fn find<I: PointIndex>(index: &I, key: &[u8]) -> Result<Option<Vec<u8>>, KindError> {
    let value = index.get(key_from::<I::Key>(key)?.borrow())?;
    Ok(value.map(|value| value.to_string().into_bytes()))
}

impl<I: OrderedIndex + Send + Sync> Records for OfIndex<I> {
    fn key_form(&self) -> KeyForm {
        form_of::<I::Key>()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KindError> {
        find(&self.0, key)
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool, KindError> {
        put(&self.0, key, value)
    }

    fn remove(&self, key: &[u8]) -> Result<bool, KindError> {
        Ok(self.0.remove(key_from::<I::Key>(key)?.borrow())?.is_some())
    }

    fn sync(&self) -> Result<(), KindError> {
        Ok(PointIndex::sync(&self.0)?)
    }

    fn scan(&self, start: Option<&[u8]>, visit: &mut VisitRecord<'_>) -> Result<u64, KindError> {
        let start = start.map(key_from::<I::Key>).transpose()?;
        let start = start.as_ref().map_or(Bound::Unbounded, |key| Bound::Included(key.borrow()));
        let mut show = |key: &I::Key, value: u64| visit(&text_of(key), value.to_string().as_bytes());
        Ok(self.0.scan(start, Bound::Unbounded, Direction::Ascending, &mut show)?)
    }

    fn len(&self) -> Result<u64, KindError> {
        Ok(self.0.len()?)
    }
}

impl<K: IndexKey + ?Sized> Records for OfHash<K> {
    fn key_form(&self) -> KeyForm {
        form_of::<K>()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KindError> {
        find(&self.0, key)
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool, KindError> {
        put(&self.0, key, value)
    }

    fn remove(&self, key: &[u8]) -> Result<bool, KindError> {
        Ok(self.0.remove(key_from::<K>(key)?.borrow())?.is_some())
    }

    fn sync(&self) -> Result<(), KindError> {
        Ok(PointIndex::sync(&self.0)?)
    }

    fn scan(&self, start: Option<&[u8]>, visit: &mut VisitRecord<'_>) -> Result<u64, KindError> {
        if start.is_some() {
            return Err("a hash index has no order: no range can be shown, only all of it or one key".into());
        }
        let (mut count, mut done) = (0, false);
        self.0.for_each(|key, value| {
            if !done {
                count += 1;
                done = visit(&text_of(key), value.to_string().as_bytes()).is_break();
            }
        })?;
        Ok(count)
    }

    fn len(&self) -> Result<u64, KindError> {
        Ok(PointIndex::len(&self.0)?)
    }
}
