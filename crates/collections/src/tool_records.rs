//! The records of collections in the form for tools: byte strings, whatever the items are.
//!
//! A collection's header names the types of its items. Numbers and byte strings can be shown; only the program that
//! made other items can show them. A queue and a list are shown with positions as keys, and take no changes from tools.

use std::marker::PhantomData;
use std::ops::ControlFlow;

use lodestone_stm::{Stm, StmOptions};
use lodestone_store::{KeyForm, KindError, Object, Records, VisitRecord};
use lodestone_width::to_u64;

use crate::{Bytes, PmBTreeMap, PmHashMap, PmKey, PmList, PmQueue, PmValue};

/// An item that has a text form in both directions.
pub(crate) trait Shown: Sized + 'static {
    const FORM: KeyForm;
    type Owned;
    /// The item in the form for tools.
    fn show(owned: &Self::Owned) -> Vec<u8>;
    /// The item that a tool means by `text`.
    fn parse(text: &[u8]) -> Result<Self::Owned, KindError>;
}

impl Shown for Bytes {
    const FORM: KeyForm = KeyForm::Bytes;
    type Owned = Vec<u8>;

    fn show(owned: &Vec<u8>) -> Vec<u8> {
        owned.clone()
    }

    fn parse(text: &[u8]) -> Result<Vec<u8>, KindError> {
        Ok(text.to_vec())
    }
}

macro_rules! shown_number {
    ($($number:ty),+) => { $(
        impl Shown for $number {
            const FORM: KeyForm = KeyForm::Number;
            type Owned = $number;

            fn show(owned: &$number) -> Vec<u8> {
                owned.to_string().into_bytes()
            }

            fn parse(text: &[u8]) -> Result<$number, KindError> {
                let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
                number.ok_or_else(|| format!("`{}` is no {}", text.escape_ascii(), stringify!($number)).into())
            }
        }
    )+ };
}
shown_number!(u64, i64, u32);

/// A position as a key.
pub(crate) fn show_position(position: u64) -> Vec<u8> {
    position.to_string().into_bytes()
}

/// Borrows an owned item in the form that the collections take.
pub(crate) trait Borrowed<View: ?Sized> {
    fn view(&self) -> &View;
}

impl Borrowed<[u8]> for Vec<u8> {
    fn view(&self) -> &[u8] {
        self
    }
}

macro_rules! borrowed_number {
    ($($number:ty),+) => { $(impl Borrowed<$number> for $number { fn view(&self) -> &$number { self } })+ };
}
borrowed_number!(u64, i64, u32);

/// A map in a memory that was opened for it.
struct OfMap<M, K, V> {
    stm: Stm,
    map: M,
    items: PhantomData<fn() -> (K, V)>,
}

macro_rules! records_of_map {
    ($map:ident) => {
        impl<K, V> Records for OfMap<$map<K, V>, K, V>
        where
            K: PmKey + Shown<Owned = <K as PmKey>::Owned>,
            V: PmValue + Shown<Owned = <V as PmValue>::Owned>,
            <K as PmKey>::Owned: Borrowed<K::View> + Ord + Send,
            <V as PmValue>::Owned: Borrowed<V::View> + Send,
        {
            fn key_form(&self) -> KeyForm {
                K::FORM
            }

            fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KindError> {
                let key = K::parse(key)?;
                let found = self.stm.read(|tx| self.map.get(tx, key.view()))?;
                Ok(found.as_ref().map(V::show))
            }

            fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool, KindError> {
                let (key, value) = (K::parse(key)?, V::parse(value)?);
                Ok(self.stm.update(|tx| self.map.insert(tx, key.view(), value.view()))?)
            }

            fn remove(&self, key: &[u8]) -> Result<bool, KindError> {
                let key = K::parse(key)?;
                Ok(self.stm.update(|tx| self.map.remove(tx, key.view()))?)
            }

            fn sync(&self) -> Result<(), KindError> {
                Ok(())
            }

            fn scan(&self, start: Option<&[u8]>, visit: &mut VisitRecord<'_>) -> Result<u64, KindError> {
                let start = start.map(K::parse).transpose()?;
                let mut seen = 0;
                for (key, value) in self.all()? {
                    if start.as_ref().is_some_and(|start| key < *start) {
                        continue;
                    }
                    seen += 1;
                    if visit(&K::show(&key), &V::show(&value)).is_break() {
                        break;
                    }
                }
                Ok(seen)
            }

            fn len(&self) -> Result<u64, KindError> {
                Ok(self.stm.snapshot(|tx| self.map.len(tx))?)
            }
        }
    };
}
records_of_map!(PmHashMap);
records_of_map!(PmBTreeMap);

type Pairs<K, V> = Vec<(<K as PmKey>::Owned, <V as PmValue>::Owned)>;

impl<K, V> OfMap<PmHashMap<K, V>, K, V>
where
    K: PmKey,
    V: PmValue,
    K::Owned: Ord,
{
    /// Every pair at one moment, in order of the keys.
    fn all(&self) -> Result<Pairs<K, V>, KindError> {
        let mut pairs = self.stm.snapshot(|tx| {
            let mut pairs = Vec::new();
            self.map.for_each(tx, |key, value| {
                pairs.push((key, value));
                Ok(ControlFlow::Continue(()))
            })?;
            Ok(pairs)
        })?;
        pairs.sort_by(|left, right| left.0.cmp(&right.0));
        Ok(pairs)
    }
}

impl<K, V> OfMap<PmBTreeMap<K, V>, K, V>
where
    K: PmKey,
    V: PmValue,
{
    fn all(&self) -> Result<Pairs<K, V>, KindError> {
        Ok(self.stm.snapshot(|tx| {
            let mut pairs = Vec::new();
            for pair in self.map.range(tx, std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)? {
                pairs.push(pair?);
            }
            Ok(pairs)
        })?)
    }
}

/// The items of a queue or a list, by position.
struct OfItems(Vec<Vec<u8>>);

fn no_change() -> KindError {
    "a queue or list takes no changes from tools: the program that made it does that".into()
}

impl Records for OfItems {
    fn key_form(&self) -> KeyForm {
        KeyForm::Number
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KindError> {
        let position = u64::parse(key)?;
        Ok(usize::try_from(position).ok().and_then(|position| self.0.get(position).cloned()))
    }

    fn insert(&self, _: &[u8], _: &[u8]) -> Result<bool, KindError> {
        Err(no_change())
    }

    fn remove(&self, _: &[u8]) -> Result<bool, KindError> {
        Err(no_change())
    }

    fn sync(&self) -> Result<(), KindError> {
        Ok(())
    }

    fn scan(&self, start: Option<&[u8]>, visit: &mut VisitRecord<'_>) -> Result<u64, KindError> {
        let start = start.map(u64::parse).transpose()?.unwrap_or(0);
        let mut seen = 0;
        for (position, item) in (0..).zip(&self.0).filter(|(position, _)| *position >= start) {
            seen += 1;
            if visit(&u64::show(&position), item).is_break() {
                break;
            }
        }
        Ok(seen)
    }

    fn len(&self) -> Result<u64, KindError> {
        Ok(to_u64(self.0.len()))
    }
}

/// Tries to open the collection `member` with these items. Returns the records when they are its items.
macro_rules! try_items {
    ($stm:expr, $member:expr, $map:ident, [$($key:ty),+]) => {
        $(try_items! { $stm, $member, $map, $key, [Bytes, u64, i64, u32] })+
    };
    ($stm:expr, $member:expr, $map:ident, $key:ty, [$($value:ty),+]) => {
        $(if let Ok(map) = $map::<$key, $value>::open(&$stm, $member) {
            return Ok(Box::new(OfMap { stm: $stm, map, items: PhantomData::<fn() -> ($key, $value)> }));
        })+
    };
}

macro_rules! try_sequence {
    ($stm:expr, $member:expr, $kind:ident, [$($item:ty),+]) => {
        $(if let Ok(items) = $kind::<$item>::open(&$stm, $member) {
            let items = $stm.snapshot(|tx| items.to_vec(tx))?;
            return Ok(Box::new(OfItems(items.iter().map(<$item>::show).collect())));
        })+
    };
}

/// Opens the records of the collection `member` in the memory `object`.
pub(crate) fn open_records(object: Object, member: &str) -> Result<Box<dyn Records>, KindError> {
    let memory = object.name();
    let stm = Stm::open_object(object, &StmOptions::default())?;
    let Some((_, what)) = stm.roots()?.into_iter().find(|(name, _)| name == member) else {
        return Err(format!("`{memory}` holds nothing called `{member}`").into());
    };
    match what.as_str() {
        "lodestone.HashMap" => {
            try_items! { stm, member, PmHashMap, [Bytes, u64, i64, u32] }
        }
        "lodestone.BTreeMap" => {
            try_items! { stm, member, PmBTreeMap, [Bytes, u64, i64, u32] }
        }
        "lodestone.Queue" => {
            try_sequence! { stm, member, PmQueue, [Bytes, u64, i64, u32] }
        }
        "lodestone.List" => {
            try_sequence! { stm, member, PmList, [Bytes, u64, i64, u32] }
        }
        _ => {}
    }
    Err(format!("`{member}` is a {what} of items that only the program that made it can show").into())
}
