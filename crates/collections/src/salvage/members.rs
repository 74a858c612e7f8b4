//! A collection whatever its items are, for tools: opened by its header, or, where that is damaged, by its nodes.

use lodestone_stm::{Error, FoundRoot, PmAddr, PmPtr, Stm};
use lodestone_store::{KindError, Lost, LostKeys, VisitLost, VisitRecord};

use super::loot::{ItemLoot, Loot, Sink, place_of};
use crate::item::{PmKey, PmValue};
use crate::mark::{Forms, Mark};
use crate::tool_records::{Borrowed, Shown};
use crate::{Bytes, HashHeader, ListHeader, PmBTreeMap, PmHashMap, PmList, PmQueue, QueueHeader, TreeHeader};

/// Puts a record into a new collection.
pub(super) type Put = Box<dyn FnMut(&[u8], &[u8]) -> Result<(), KindError>>;

/// A collection of items that can be shown.
pub(super) trait Member {
    /// Shows the readable records if `wants_all`, and names the others. Returns the number of those shown.
    fn salvage(&self, wants_all: bool, visit: &mut VisitRecord<'_>, lost: &mut VisitLost<'_>) -> u64;

    /// Makes an empty collection of the same items in `stm`.
    fn like_it(&self, stm: &Stm, name: &str) -> Result<Put, KindError>;
}

/// A collection, and the reason why its header or its signature was not believed.
struct Opened<C> {
    stm: Stm,
    collection: C,
    damage: Option<Error>,
}

impl<C> Opened<C> {
    fn tell_damage(&self, lost: &mut VisitLost<'_>) {
        if let Some(error) = &self.damage {
            let (at, reason) = (place_of(error), format!("{error}; its nodes say what it holds"));
            lost(Lost { keys: LostKeys::Unknown, at, is_certain: false, reason });
        }
    }
}

macro_rules! map_member {
    ($map:ident) => {
        impl<K, V> Member for Opened<$map<K, V>>
        where
            K: PmKey + Shown<Owned = <K as PmKey>::Owned>,
            V: PmValue + Shown<Owned = <V as PmValue>::Owned>,
            <K as PmKey>::Owned: Borrowed<K::View>,
            <V as PmValue>::Owned: Borrowed<V::View>,
        {
            fn salvage(&self, wants_all: bool, visit: &mut VisitRecord<'_>, lost: &mut VisitLost<'_>) -> u64 {
                self.tell_damage(lost);
                let mut show = |key: &[u8], value: &[u8]| visit(key, value);
                let mut name = |found: Lost| lost(found);
                let mut loot = Loot::<K, V>::new(Sink::new(wants_all, &mut show, &mut name));
                self.collection.salvage(&self.stm, &mut loot);
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
        impl<T> Member for Opened<$kind<T>>
        where
            T: PmValue + Shown<Owned = <T as PmValue>::Owned>,
            <T as PmValue>::Owned: Borrowed<T::View>,
        {
            fn salvage(&self, wants_all: bool, visit: &mut VisitRecord<'_>, lost: &mut VisitLost<'_>) -> u64 {
                self.tell_damage(lost);
                let mut show = |key: &[u8], value: &[u8]| visit(key, value);
                let mut name = |found: Lost| lost(found);
                let mut loot = ItemLoot::<T>::new(Sink::new(wants_all, &mut show, &mut name));
                self.collection.salvage(&self.stm, &mut loot);
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

/// Returns the collection if its items are of one of these types: by its header, or else by the mark of its nodes.
macro_rules! try_maps {
    ($from:expr, $map:ident, $why:ident, [$($key:ty),+]) => {
        $(try_maps! { $from, $map, $why, $key, [Bytes, u64, i64, u32] };)+
    };
    ($from:expr, $map:ident, $why:ident, $key:ty, [$($value:ty),+]) => {
        $(
            let header = PmPtr::new($from.header);
            match $from.stm.read(|tx| $map::<$key, $value>::at(tx, header)) {
                Ok(map) => return Ok($from.member(map, None)),
                Err(Error::RootType { .. }) => {}
                Err(error) if $from.are(Forms::of_pairs::<$key, $value>()) => {
                    return Ok($from.member($map::<$key, $value>::with_header(header), Some(error)));
                }
                Err(error) => $why = error.to_string(),
            }
        )+
    };
}

macro_rules! try_items {
    ($from:expr, $kind:ident, $why:ident, [$($item:ty),+]) => {
        $(
            let header = PmPtr::new($from.header);
            match $from.stm.read(|tx| $kind::<$item>::at(tx, header)) {
                Ok(items) => return Ok($from.member(items, None)),
                Err(Error::RootType { .. }) => {}
                Err(error) if $from.are(Forms::of_items::<$item>()) => {
                    return Ok($from.member($kind::<$item>::with_header($from.stm, header), Some(error)));
                }
                Err(error) => $why = error.to_string(),
            }
        )+
    };
}

/// The place of a collection.
struct From<'s> {
    stm: &'s Stm,
    header: PmAddr,
    /// The mark of its nodes.
    mark: Option<Mark>,
}

impl From<'_> {
    fn are(&self, forms: Forms) -> bool {
        self.mark.is_some_and(|mark| mark.forms == forms)
    }

    fn member<C>(&self, collection: C, damage: Option<Error>) -> Box<dyn Member>
    where
        Opened<C>: Member + 'static,
    {
        Box::new(Opened { stm: self.stm.clone(), collection, damage })
    }
}

/// The reason why a collection was not opened.
pub(super) enum Unopened {
    /// Only the program that made it can show its items.
    Unknown,
    /// A crash came after its header was made and before it got a signature. There is nothing in it.
    Unsigned,
    /// Its header is damaged.
    Damaged(String),
}

/// Opens the collection with this root. `mark` returns the mark of its nodes.
pub(super) fn open_member(
    stm: &Stm,
    root: &FoundRoot,
    mark: impl FnOnce() -> Option<Mark>,
) -> Result<Box<dyn Member>, Unopened> {
    let mut why = String::new();
    let mut from = From { stm, header: root.object, mark: None };
    match signature_of(stm, root) {
        Ok(found) if found.is_empty() => return Err(Unopened::Unsigned),
        Ok(_) => {}
        // Only damage makes it necessary to look at every object.
        Err(_) => from.mark = mark(),
    }
    match root.kind.as_str() {
        "lodestone.HashMap" => {
            try_maps! { from, PmHashMap, why, [Bytes, u64, i64, u32] };
        }
        "lodestone.BTreeMap" => {
            try_maps! { from, PmBTreeMap, why, [Bytes, u64, i64, u32] };
        }
        "lodestone.Queue" => {
            try_items! { from, PmQueue, why, [Bytes, u64, i64, u32] };
        }
        "lodestone.List" => {
            try_items! { from, PmList, why, [Bytes, u64, i64, u32] };
        }
        _ => {}
    }
    // Nodes of other items are there, even if the header is not.
    let is_unknown = why.is_empty() || from.mark.is_some();
    Err(if is_unknown { Unopened::Unknown } else { Unopened::Damaged(why) })
}

/// Compares the header's type with the memory's list of types, which every open by name reads.
pub(super) fn check_type(stm: &Stm, kind: &str) -> Result<(), Error> {
    match kind {
        "lodestone.HashMap" => stm.check::<HashHeader>(),
        "lodestone.BTreeMap" => stm.check::<TreeHeader>(),
        "lodestone.Queue" => stm.check::<QueueHeader>(),
        "lodestone.List" => stm.check::<ListHeader>(),
        _ => Ok(()),
    }
}

/// The signature in a header, or that of this program's types where they agree.
fn signature_of(stm: &Stm, root: &FoundRoot) -> Result<String, Error> {
    let at = root.object;
    let outcome = match root.kind.as_str() {
        "lodestone.HashMap" => stm.read(|tx| PmHashMap::<u64, u64>::at(tx, PmPtr::new(at)).map(drop)),
        "lodestone.BTreeMap" => stm.read(|tx| PmBTreeMap::<u64, u64>::at(tx, PmPtr::new(at)).map(drop)),
        "lodestone.Queue" => stm.read(|tx| PmQueue::<u64>::at(tx, PmPtr::new(at)).map(drop)),
        "lodestone.List" => stm.read(|tx| PmList::<u64>::at(tx, PmPtr::new(at)).map(drop)),
        _ => Ok(()),
    };
    match outcome {
        Ok(()) => Ok("known".to_owned()),
        Err(Error::RootType { found, .. }) => Ok(found),
        Err(error) => Err(error),
    }
}
