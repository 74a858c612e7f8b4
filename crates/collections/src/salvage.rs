//! Salvage: reads everything that is readable in a damaged collection, names the rest, and rebuilds a memory from it.
//!
//! Objects do not say which collection they belong to, so everything below a damaged inner object is lost with it. Each
//! object is read in a separate transaction, so an error of one does not affect the others.

use std::ops::ControlFlow;

use lodestone_stm::{Error, PmAddr, Stm, StmOptions, contents_of};
use lodestone_store::{Contents, Flaw, KindError, Lost, LostKeys, Object, VisitLost, VisitRecord};

use crate::item::{PmKey, PmValue};
use crate::tool_records::{Borrowed, Shown};
use crate::{Bytes, PmBTreeMap, PmHashMap, PmList, PmQueue};

/// Keys from the first, before the second, in the form for tools.
pub(crate) type Range = (Option<Vec<u8>>, Option<Vec<u8>>);

fn place_of(error: &Error) -> Option<PmAddr> {
    match error {
        Error::BadPointer { at, .. } | Error::Damaged { at, .. } => Some(*at),
        _ => None,
    }
}

fn lost_at(keys: LostKeys, error: &Error) -> Lost {
    Lost { keys, at: place_of(error), is_certain: true, reason: error.to_string() }
}

/// The receiver of a salvage: it shows records, reports losses, and counts.
struct Sink<'l> {
    visit: &'l mut VisitRecord<'l>,
    lost: &'l mut VisitLost<'l>,
    count: u64,
    is_over: bool,
}

impl Sink<'_> {
    fn show(&mut self, key: &[u8], value: &[u8]) {
        if !self.is_over {
            self.count += 1;
            self.is_over = (self.visit)(key, value) == ControlFlow::Break(());
        }
    }
}

/// The salvage of a map from `K` to `V`.
pub(crate) struct Loot<'l, K: PmKey, V: PmValue> {
    sink: Sink<'l>,
    show_key: fn(&K::Owned) -> Vec<u8>,
    show_value: fn(&V::Owned) -> Vec<u8>,
}

impl<K: PmKey, V: PmValue> Loot<'_, K, V> {
    /// Whether the receiver wants no more records.
    pub(crate) fn is_over(&self) -> bool {
        self.sink.is_over
    }

    /// A key in the form for tools.
    pub(crate) fn shown(&self, key: &K::Owned) -> Vec<u8> {
        (self.show_key)(key)
    }

    /// Reports that the records with keys in `range` are lost.
    pub(crate) fn lose(&mut self, (from, to): Range, error: &Error) {
        let is_any = from.is_none() && to.is_none();
        let keys = if is_any { LostKeys::Unknown } else { LostKeys::Between(from, to) };
        (self.sink.lost)(lost_at(keys, error));
    }

    /// Shows the entry in these words. Its key is in `range`.
    pub(crate) fn add(&mut self, stm: &Stm, stored: &[u64], range: Range) {
        let (key, value) = stored.split_at(K::WORDS);
        let key = match stm.snapshot(|tx| K::load(tx, key)) {
            Ok(key) => self.shown(&key),
            Err(error) => return self.lose(range, &error),
        };
        match stm.snapshot(|tx| V::load(tx, value)) {
            Ok(value) => self.sink.show(&key, &(self.show_value)(&value)),
            Err(error) => (self.sink.lost)(lost_at(LostKeys::Key(key), &error)),
        }
    }
}

/// The salvage of a queue or list.
pub(crate) struct ItemLoot<'l, T: PmValue> {
    sink: Sink<'l>,
    show: fn(&T::Owned) -> Vec<u8>,
}

impl<T: PmValue> ItemLoot<'_, T> {
    /// Reports that the items from position `from`, before `to`, are lost.
    pub(crate) fn lose(&mut self, (from, to): (u64, Option<u64>), error: &Error) {
        let keys = LostKeys::Between(Some(u64::show(&from)), to.map(|to| u64::show(&to)));
        (self.sink.lost)(lost_at(keys, error));
    }

    /// Shows the item in these words.
    pub(crate) fn add(&mut self, stm: &Stm, position: u64, stored: &[u64]) {
        match stm.snapshot(|tx| T::load(tx, stored)) {
            Ok(item) => self.sink.show(&u64::show(&position), &(self.show)(&item)),
            Err(error) => (self.sink.lost)(lost_at(LostKeys::Key(u64::show(&position)), &error)),
        }
    }
}

/// Puts a record into a new collection.
type Put = Box<dyn FnMut(&[u8], &[u8]) -> Result<(), KindError>>;

/// A collection of items that can be shown.
trait Member {
    fn salvage(&self, visit: &mut VisitRecord<'_>, lost: &mut VisitLost<'_>) -> u64;

    /// Makes an empty collection of the same items in `stm`.
    fn like_it(&self, stm: &Stm, name: &str) -> Result<Put, KindError>;
}

struct MapMember<M>(Stm, M);
struct ItemsMember<M>(Stm, M);

macro_rules! map_member {
    ($map:ident) => {
        impl<K, V> Member for MapMember<$map<K, V>>
        where
            K: PmKey + Shown<Owned = <K as PmKey>::Owned>,
            V: PmValue + Shown<Owned = <V as PmValue>::Owned>,
            <K as PmKey>::Owned: Borrowed<K::View>,
            <V as PmValue>::Owned: Borrowed<V::View>,
        {
            fn salvage(&self, visit: &mut VisitRecord<'_>, lost: &mut VisitLost<'_>) -> u64 {
                let mut show = |key: &[u8], value: &[u8]| visit(key, value);
                let mut name = |found: Lost| lost(found);
                let sink = Sink { visit: &mut show, lost: &mut name, count: 0, is_over: false };
                let mut loot = Loot { sink, show_key: K::show, show_value: V::show };
                self.1.salvage(&self.0, &mut loot);
                loot.sink.count
            }

            fn like_it(&self, stm: &Stm, name: &str) -> Result<Put, KindError> {
                let (map, stm) = ($map::<K, V>::open(stm, name)?, stm.clone());
                Ok(Box::new(move |key, value| {
                    let (key, value) = (K::parse(key)?, V::parse(value)?);
                    stm.update(|tx| map.insert(tx, key.view(), value.view()))?;
                    Ok(())
                }))
            }
        }
    };
}
map_member!(PmHashMap);
map_member!(PmBTreeMap);

macro_rules! items_member {
    ($kind:ident, $push:ident) => {
        impl<T> Member for ItemsMember<$kind<T>>
        where
            T: PmValue + Shown<Owned = <T as PmValue>::Owned>,
            <T as PmValue>::Owned: Borrowed<T::View>,
        {
            fn salvage(&self, visit: &mut VisitRecord<'_>, lost: &mut VisitLost<'_>) -> u64 {
                let mut show = |key: &[u8], value: &[u8]| visit(key, value);
                let mut name = |found: Lost| lost(found);
                let sink = Sink { visit: &mut show, lost: &mut name, count: 0, is_over: false };
                let mut loot = ItemLoot { sink, show: T::show };
                self.1.salvage(&self.0, &mut loot);
                loot.sink.count
            }

            fn like_it(&self, stm: &Stm, name: &str) -> Result<Put, KindError> {
                let (items, stm) = ($kind::<T>::open(stm, name)?, stm.clone());
                Ok(Box::new(move |_, item| {
                    let item = T::parse(item)?;
                    stm.update(|tx| items.$push(tx, item.view()).map(drop))?;
                    Ok(())
                }))
            }
        }
    };
}
items_member!(PmQueue, push);
items_member!(PmList, push_back);

/// The collection if its items are of one of these types. Otherwise an error that says so.
macro_rules! try_maps {
    ($stm:expr, $name:expr, $map:ident, $why:ident, [$($key:ty),+]) => {
        $(try_maps! { $stm, $name, $map, $why, $key, [Bytes, u64, i64, u32] };)+
    };
    ($stm:expr, $name:expr, $map:ident, $why:ident, $key:ty, [$($value:ty),+]) => {
        $(match $map::<$key, $value>::open_existing($stm, $name) {
            Ok(map) => return Ok(Box::new(MapMember($stm.clone(), map))),
            Err(Error::RootType { .. }) => {}
            Err(error) => $why = error.to_string(),
        };)+
    };
}

macro_rules! try_items {
    ($stm:expr, $name:expr, $kind:ident, $why:ident, [$($item:ty),+]) => {
        $(match $kind::<$item>::open_existing($stm, $name) {
            Ok(items) => return Ok(Box::new(ItemsMember($stm.clone(), items))),
            Err(Error::RootType { .. }) => {}
            Err(error) => $why = error.to_string(),
        };)+
    };
}

/// Opens the collection `name` of type `what`.
fn open_member(stm: &Stm, name: &str, what: &str) -> Result<Box<dyn Member>, Unopened> {
    let mut why = String::new();
    match what {
        "lodestone.HashMap" => {
            try_maps! { stm, name, PmHashMap, why, [Bytes, u64, i64, u32] };
        }
        "lodestone.BTreeMap" => {
            try_maps! { stm, name, PmBTreeMap, why, [Bytes, u64, i64, u32] };
        }
        "lodestone.Queue" => {
            try_items! { stm, name, PmQueue, why, [Bytes, u64, i64, u32] };
        }
        "lodestone.List" => {
            try_items! { stm, name, PmList, why, [Bytes, u64, i64, u32] };
        }
        _ => {}
    }
    Err(if why.is_empty() { Unopened::Unknown } else { Unopened::Damaged(why) })
}

/// The reason why a collection was not opened.
enum Unopened {
    /// Only the program that made it can show its items.
    Unknown,
    /// Its header is damaged.
    Damaged(String),
}

fn all_lost(reason: String) -> Lost {
    Lost { keys: LostKeys::Unknown, at: None, is_certain: true, reason }
}

/// Verifies the memory `object`: every object on its own, and every collection of items that can be shown by a walk
/// over all of it. Only the walk notices an object that was lost with its whole cell.
pub(crate) fn examine(object: Object) -> Result<Contents, KindError> {
    let (memory, header) = (object.name(), object.at());
    let stm = Stm::open_object(object, &StmOptions::default())?;
    let mut contents = contents_of(stm.check_all());
    let mut flaws = Vec::new();
    let mut add = |at: Option<PmAddr>, text: String| {
        flaws.push(Flaw { at: at.unwrap_or(header), text, blocks_are_known: true, is_in_heap: false });
    };
    match stm.roots() {
        Ok(members) => {
            for (member, what) in members {
                match open_member(&stm, &member, &what) {
                    Ok(found) => {
                        let mut tell = |lost: Lost| add(lost.at, format!("in `{memory}/{member}`: {lost}"));
                        found.salvage(&mut |_, _| ControlFlow::Continue(()), &mut tell);
                    }
                    Err(Unopened::Damaged(why)) => add(None, format!("`{memory}/{member}`: {why}")),
                    Err(Unopened::Unknown) => {}
                }
            }
        }
        Err(error) => add(place_of(&error), format!("the list of roots: {error}")),
    }
    contents.flaws.extend(flaws);
    Ok(contents)
}

/// Shows the readable records of the collection `member` in the memory `object`. Returns their number.
pub(crate) fn salvage_member(
    object: Object,
    member: &str,
    visit: &mut VisitRecord<'_>,
    lost: &mut VisitLost<'_>,
) -> Result<u64, KindError> {
    let memory = object.name();
    let stm = Stm::open_object(object, &StmOptions::default())?;
    let Some((_, what)) = stm.roots()?.into_iter().find(|(name, _)| name == member) else {
        return Err(format!("`{memory}` holds nothing called `{member}`").into());
    };
    match open_member(&stm, member, &what) {
        Ok(member) => Ok(member.salvage(visit, lost)),
        Err(Unopened::Damaged(why)) => {
            lost(all_lost(format!("all of `{member}`: {why}")));
            Ok(0)
        }
        Err(Unopened::Unknown) => {
            Err(format!("`{member}` is a {what} of items that only the program that made it can show").into())
        }
    }
}

/// Makes the memory `name` from the readable records of the collections in `object`. Returns their number.
pub(crate) fn rebuild(object: Object, name: &str, lost: &mut VisitLost<'_>) -> Result<u64, KindError> {
    let (store, memory) = (object.store().clone(), object.name());
    let old = Stm::open_object(object, &StmOptions::default())?;
    let members = old.roots()?;
    // Before anything is made: a repair must not lose records that no tool can show.
    let mut opened = Vec::new();
    for (member, what) in members {
        match open_member(&old, &member, &what) {
            Ok(found) => opened.push((member, found)),
            Err(Unopened::Damaged(why)) => lost(all_lost(format!("all of `{memory}/{member}`: {why}"))),
            Err(Unopened::Unknown) => {
                let why = format!(
                    "`{memory}` holds `{member}`, a {what} of items that only the program that made it can bring out"
                );
                return Err(why.into());
            }
        }
    }
    let new = Stm::open_named(&store, name, &old.made_with())?;
    let mut count = 0;
    for (member, found) in opened {
        let mut put = found.like_it(&new, &member)?;
        let mut failed = None;
        let mut show = |key: &[u8], value: &[u8]| match put(key, value) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        };
        let mut tell = |mut what: Lost| {
            what.reason = format!("in `{memory}/{member}`: {}", what.reason);
            lost(what);
        };
        count += found.salvage(&mut show, &mut tell);
        failed.map_or(Ok(()), Err)?;
    }
    Ok(count)
}
