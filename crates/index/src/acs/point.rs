//! The cached index as an index.

use std::ops::{Bound, ControlFlow};

use lodestone_pmem::{PmAddr, planted};
use lodestone_store::{Object, Store};

use super::core::After;
use super::helper::{Helper, Posted};
use super::key;
use super::meter::Slot;
use super::pair::Versions;
use super::table::Probe;
use super::{Acs, AcsOptions};
use crate::check::IndexReport;
use crate::error::Result;
use crate::map::Durability;
use crate::scan::Direction;
use crate::traits::{IndexKey, OpenIndex, OrderedIndex, PointIndex, Swap};

impl<I: PointIndex> Acs<I> {
    /// Reads `key`, whose words these are.
    #[inline]
    fn read(&self, key: &I::Key, words: &[u64]) -> Result<Option<u64>> {
        let core = &*self.core;
        let (hash, slot) = (core.hash(words), core.meter.slot());
        if slot.bypasses(hash) {
            return core.index.get(key);
        }
        self.read_cached(key, words, hash, slot)
    }

    /// As [`read`](Self::read), of a key that the cache is asked for. A function of its own: what bypasses it should be
    /// short.
    #[inline(never)]
    fn read_cached(&self, key: &I::Key, words: &[u64], hash: u64, slot: &Slot) -> Result<Option<u64>> {
        let core = &*self.core;
        // Before anything is read that may be filled in.
        let seen = core.stripes.of(hash).state();
        let (answer, probe, seen) = match &self.helper {
            None => match core.probe(words, hash, seen) {
                Probe::Hit(value) => (Some(value), Probe::Hit(value), seen),
                probe => (core.index.get(key)?, probe, seen),
            },
            Some(helper) => self.read_beside(helper, key, words, hash, seen)?,
        };
        let has_ended = match (probe, answer) {
            (Probe::Hit(_), _) => slot.hit(),
            (Probe::Changing, _) => {
                slot.contended();
                false
            }
            (Probe::Miss(_), None) => slot.missed(),
            (Probe::Miss(versions), Some(value)) => {
                slot.filled(core.fill(words, hash, value, (seen, versions)));
                slot.missed()
            }
        };
        if has_ended {
            core.judge(slot);
        }
        Ok(answer)
    }

    /// As the reading in [`read_cached`](Self::read_cached), while the helper searches the index.
    #[cold]
    fn read_beside(
        &self,
        helper: &Helper,
        key: &I::Key,
        words: &[u64],
        hash: u64,
        seen: u64,
    ) -> Result<(Option<u64>, Probe<Versions>, u64)> {
        // After the look at the stripe: a search that had begun before it might return a value that a change has
        // replaced.
        let posted = helper.post(self.core.meter.thread(), words);
        // Planted: the fill carries a state that may be younger than its value.
        let overtakes = planted::active("acs-search-overtakes-version");
        let seen = if overtakes { self.core.stripes.of(hash).state() } else { seen };
        let probe = self.core.probe(words, hash, seen);
        if let Probe::Hit(value) = probe {
            // A hit decides: see the module.
            posted.into_iter().for_each(Posted::withdraw);
            return Ok((Some(value), Probe::Hit(value), seen));
        }
        let found = match posted.and_then(Posted::answer) {
            Some(found) => found,
            None => self.core.index.get(key)?,
        };
        Ok((found, probe, seen))
    }

    /// Does `operate`, which may change `key` in the index; `after` says what it did.
    #[inline]
    fn change<T>(&self, key: &I::Key, operate: impl Fn() -> Result<T>, after: impl FnOnce(&T) -> After) -> Result<T> {
        let changed = key::with_words(key, self.core.key_words, |words| {
            if planted::active("acs-uncached-unannounced") && !self.core.holds(words) {
                // Planted: the obvious way to spare an update of a key that is not cached what the cache costs.
                return operate();
            }
            let entered = self.core.enter(words);
            let result = operate()?;
            entered.leave(after(&result));
            Ok(result)
        });
        // A key that does not fit is never cached.
        changed.unwrap_or_else(operate)
    }
}

impl<I: PointIndex> PointIndex for Acs<I> {
    type Key = I::Key;

    #[inline]
    fn get(&self, key: &I::Key) -> Result<Option<u64>> {
        if <I::Key as IndexKey>::IS_WORD {
            return self.read(key, &[key.order_word()]);
        }
        let core = &*self.core;
        key::with_words(key, core.key_words, |words| self.read(key, words)).unwrap_or_else(|| {
            core.meter.slot().passed();
            core.index.get(key)
        })
    }

    fn insert(&self, key: &I::Key, value: u64) -> Result<bool> {
        // Absent keys are not cached, and a value that was read before the key went is dropped: see the module.
        let inserted = self.core.index.insert(key, value)?;
        if inserted && self.core.meter.slot().inserted() {
            self.core.follow_size();
        }
        Ok(inserted)
    }

    fn update(&self, key: &I::Key, value: u64) -> Result<Option<u64>> {
        if planted::active("acs-cache-before-index") {
            // Planted: the cache tells the new value before the index has it.
            self.change(key, || Ok(()), |()| After::Value(value))?;
        }
        let after = |before: &Option<u64>| if before.is_some() { After::Value(value) } else { After::Same };
        self.change(key, || self.core.index.update(key, value), after)
    }

    fn upsert(&self, key: &I::Key, value: u64) -> Result<Option<u64>> {
        let before = self.change(key, || self.core.index.upsert(key, value), |_| After::Value(value))?;
        if before.is_none() && self.core.meter.slot().inserted() {
            self.core.follow_size();
        }
        Ok(before)
    }

    fn remove(&self, key: &I::Key) -> Result<Option<u64>> {
        let after = |before: &Option<u64>| if before.is_some() { After::Unknown } else { After::Same };
        let before = self.change(key, || self.core.index.remove(key), after)?;
        if before.is_some() {
            self.core.meter.slot().removed();
        }
        Ok(before)
    }

    fn compare_and_swap(&self, key: &I::Key, current: u64, new: u64) -> Result<Swap> {
        let after = |swap: &Swap| if *swap == Swap::Done { After::Value(new) } else { After::Same };
        self.change(key, || self.core.index.compare_and_swap(key, current, new), after)
    }

    fn len(&self) -> Result<u64> {
        self.core.index.len()
    }

    fn is_empty(&self) -> Result<bool> {
        self.core.index.is_empty()
    }

    fn key_bytes_max(&self) -> usize {
        self.core.index.key_bytes_max()
    }

    fn sync(&self) -> Result<()> {
        self.core.index.sync()
    }

    /// As the index's; and every value that is cached is the index's.
    fn check(&self) -> IndexReport {
        let mut report = self.core.index.check();
        for (words, cached) in self.core.cache().contents(|words| self.core.hash(words)) {
            let Some(owned) = key::key_of::<I::Key>(&words) else {
                report.find(PmAddr::NULL, format!("the cache in DRAM holds {words:x?}, which is no key"));
                continue;
            };
            match self.core.index.get(std::borrow::Borrow::borrow(&owned)) {
                Ok(Some(value)) if value == cached => {}
                Ok(found) => {
                    let text = format!("the cache in DRAM says {cached} for key {owned:?}, the index {found:?}");
                    report.find(PmAddr::NULL, text);
                }
                Err(error) => report.find_error(PmAddr::NULL, error),
            }
        }
        report
    }
}

/// Reading in order goes to the index, and leaves the cache as it is.
impl<I: OrderedIndex> OrderedIndex for Acs<I> {
    fn scan(
        &self,
        start: Bound<&I::Key>,
        end: Bound<&I::Key>,
        direction: Direction,
        visit: impl FnMut(&I::Key, u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        self.core.index.scan(start, end, direction, visit)
    }

    fn outermost(&self, direction: Direction) -> Result<Option<(<I::Key as IndexKey>::Owned, u64)>> {
        self.core.index.outermost(direction)
    }

    fn bulk_load<S>(&self, sorted: S) -> Result<u64>
    where
        S: IntoIterator<Item = (<I::Key as IndexKey>::Owned, u64)>,
    {
        // The index is empty, so nothing is cached.
        let loaded = self.core.index.bulk_load(sorted)?;
        self.core.meter.slot().loaded(loaded);
        self.core.follow_size();
        Ok(loaded)
    }
}

/// Opens the index, and puts an empty cache in front of it: the cache is not persistent, and not missed.
impl<I: OpenIndex + 'static> OpenIndex for Acs<I> {
    type Options = AcsOptions<I::Options>;

    fn open_index(store: &Store, name: &str, options: &Self::Options, durability: Durability) -> Result<Self> {
        Self::new(I::open_index(store, name, &options.index, durability)?, &options.cache)
    }

    fn open_object(object: Object, options: &Self::Options, durability: Durability) -> Result<Self> {
        Self::new(I::open_object(object, &options.index, durability)?, &options.cache)
    }
}
