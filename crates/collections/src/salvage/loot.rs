//! The receivers of a salvage: they show records, report losses, and count.

use std::collections::HashSet;
use std::ops::ControlFlow;

use lodestone_stm::{Error, PmAddr, Stm};
use lodestone_store::{Lost, LostKeys, VisitLost, VisitRecord};

use crate::item::{PmKey, PmValue};
use crate::tool_records::Shown;

/// Keys from the first, before the second, in the form for tools.
pub(crate) type Range = (Option<Vec<u8>>, Option<Vec<u8>>);

pub(super) fn place_of(error: &Error) -> Option<PmAddr> {
    match error {
        Error::BadPointer { at, .. } | Error::Damaged { at, .. } => Some(*at),
        _ => None,
    }
}

fn lost_at(keys: LostKeys, error: &Error) -> Lost {
    Lost { keys, at: place_of(error), is_certain: true, reason: error.to_string() }
}

/// The common part of both receivers.
pub(super) struct Sink<'l> {
    visit: &'l mut VisitRecord<'l>,
    lost: &'l mut VisitLost<'l>,
    /// Keys that were shown. `None`: only losses are wanted.
    shown: Option<HashSet<Vec<u8>>>,
    pub(super) count: u64,
    is_over: bool,
}

impl<'l> Sink<'l> {
    /// A receiver that wants every record, or only the losses.
    pub(super) fn new(wants_all: bool, visit: &'l mut VisitRecord<'l>, lost: &'l mut VisitLost<'l>) -> Self {
        Self { visit, lost, shown: wants_all.then(HashSet::new), count: 0, is_over: false }
    }

    fn wants_orphans(&self) -> bool {
        self.shown.is_some() && !self.is_over
    }

    /// Whether no record with this key was shown.
    fn is_new(&mut self, key: &[u8]) -> bool {
        self.shown.as_mut().is_none_or(|shown| shown.insert(key.to_vec()))
    }

    fn show(&mut self, key: &[u8], value: &[u8]) {
        if !self.is_over {
            self.count += 1;
            self.is_over = (self.visit)(key, value) == ControlFlow::Break(());
        }
    }
}

/// The salvage of a map from `K` to `V`.
pub(crate) struct Loot<'l, K: PmKey, V: PmValue> {
    pub(super) sink: Sink<'l>,
    show_key: fn(&K::Owned) -> Vec<u8>,
    show_value: fn(&V::Owned) -> Vec<u8>,
}

impl<'l, K, V> Loot<'l, K, V>
where
    K: PmKey + Shown<Owned = <K as PmKey>::Owned>,
    V: PmValue + Shown<Owned = <V as PmValue>::Owned>,
{
    pub(super) fn new(sink: Sink<'l>) -> Self {
        Self { sink, show_key: K::show, show_value: V::show }
    }
}

impl<K: PmKey, V: PmValue> Loot<'_, K, V> {
    /// Whether the receiver wants no more records.
    pub(crate) fn is_over(&self) -> bool {
        self.sink.is_over
    }

    /// Whether the receiver wants the entries of nodes that no link leads to.
    pub(crate) fn wants_orphans(&self) -> bool {
        self.sink.wants_orphans()
    }

    /// A key in the form for tools.
    pub(crate) fn shown(&self, key: &K::Owned) -> Vec<u8> {
        (self.show_key)(key)
    }

    /// Reports that the records with keys in `range` are lost.
    pub(crate) fn lose(&mut self, range: Range, error: &Error) {
        (self.sink.lost)(Self::lost(range, error));
    }

    /// Reports that records with keys in `range` may be lost: a node that leads to them is damaged. Those in nodes that
    /// verify are not.
    pub(crate) fn lose_way(&mut self, range: Range, error: &Error) {
        (self.sink.lost)(Lost { is_certain: false, ..Self::lost(range, error) });
    }

    fn lost((from, to): Range, error: &Error) -> Lost {
        let is_any = from.is_none() && to.is_none();
        lost_at(if is_any { LostKeys::Unknown } else { LostKeys::Between(from, to) }, error)
    }

    /// Shows the entry in these words. Its key is in `range`.
    pub(crate) fn add(&mut self, stm: &Stm, stored: &[u64], range: Range) {
        let (key, value) = stored.split_at(K::WORDS);
        let key = match stm.snapshot(|tx| K::load(tx, key)) {
            Ok(key) => self.shown(&key),
            Err(error) => return self.lose(range, &error),
        };
        if !self.sink.is_new(&key) {
            return;
        }
        match stm.snapshot(|tx| V::load(tx, value)) {
            Ok(value) => self.sink.show(&key, &(self.show_value)(&value)),
            Err(error) => (self.sink.lost)(lost_at(LostKeys::Key(key), &error)),
        }
    }
}

/// The salvage of a queue or list.
pub(crate) struct ItemLoot<'l, T: PmValue> {
    pub(super) sink: Sink<'l>,
    show: fn(&T::Owned) -> Vec<u8>,
}

impl<'l, T: PmValue + Shown<Owned = <T as PmValue>::Owned>> ItemLoot<'l, T> {
    pub(super) fn new(sink: Sink<'l>) -> Self {
        Self { sink, show: T::show }
    }
}

impl<T: PmValue> ItemLoot<'_, T> {
    /// Whether the receiver wants the items of nodes that no link leads to.
    pub(crate) fn wants_orphans(&self) -> bool {
        self.sink.wants_orphans()
    }

    /// Reports that the items from position `from`, before `to`, are lost.
    pub(crate) fn lose(&mut self, range: (u64, Option<u64>), error: &Error) {
        (self.sink.lost)(Self::lost(range, error));
    }

    /// Reports that items from position `from` on, before `to`, may be lost, or are not where they were.
    pub(crate) fn doubt(&mut self, range: (u64, Option<u64>), error: &Error, why: &str) {
        let mut lost = Lost { is_certain: false, ..Self::lost(range, error) };
        lost.reason = format!("{}; {why}", lost.reason);
        (self.sink.lost)(lost);
    }

    fn lost((from, to): (u64, Option<u64>), error: &Error) -> Lost {
        use crate::tool_records::show_position;
        lost_at(LostKeys::Between(Some(show_position(from)), to.map(show_position)), error)
    }

    /// Shows the item in these words.
    pub(crate) fn add(&mut self, stm: &Stm, position: u64, stored: &[u64]) {
        let key = crate::tool_records::show_position(position);
        match stm.snapshot(|tx| T::load(tx, stored)) {
            Ok(item) => self.sink.show(&key, &(self.show)(&item)),
            Err(error) => (self.sink.lost)(lost_at(LostKeys::Key(key), &error)),
        }
    }
}
