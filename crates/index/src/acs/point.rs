//! The cached index as an index.

use std::ops::{Bound, ControlFlow};

use lodestone_heap::Heap;
use lodestone_pmem::{PmAddr, planted};

use super::cache::At;
use super::helper::{Helper, Posted};
use super::key;
use super::table::{After, Probe};
use super::{Acs, AcsOptions};
use crate::check::CheckReport;
use crate::error::Result;
use crate::map::Durability;
use crate::scan::Direction;
use crate::traits::{IndexKey, OpenIndex, OrderedIndex, PointIndex, Swap};

impl<I: PointIndex> Acs<I> {
    /// Reads `key`, whose words these are.
    #[inline]
    fn read(&self, key: &I::Key, words: &[u64]) -> Result<Option<u64>> {
        let (core, cache) = (&*self.core, self.core.cache());
        let slot = core.meter.slot();
        let hash = cache.hash(words);
        if core.meter.bypasses(slot, cache.base_of(hash)) {
            return core.index.get(key);
        }
        let at = cache.locate(hash);
        let (answer, probe) = match &self.helper {
            None => match cache.probe(at, words, hash) {
                Probe::Hit(value) => (Some(value), Probe::Hit(value)),
                probe => (core.index.get(key)?, probe),
            },
            Some(helper) => self.read_beside(helper, key, words, hash, at)?,
        };
        match (probe, answer) {
            (Probe::Hit(_), _) => core.meter.hit(slot),
            (Probe::Changing, _) => core.meter.contended(slot),
            (Probe::Miss(_), None) => core.meter.missed(slot),
            (Probe::Miss(version), Some(value)) => {
                core.meter.missed(slot);
                core.meter.filled(slot, at.bucket.fill(words, hash, value, version));
            }
        }
        Ok(answer)
    }

    /// As the reading behind [`read`](Self::read), while the helper searches the index.
    #[cold]
    fn read_beside(
        &self,
        helper: &Helper,
        key: &I::Key,
        words: &[u64],
        hash: u64,
        at: At<'_>,
    ) -> Result<(Option<u64>, Probe)> {
        // Before the search can begin: it may overtake what is loaded later.
        let version = at.bucket.version();
        let posted = helper.post(self.core.meter.thread(), words);
        let probe = match self.core.cache().probe(at, words, hash) {
            Probe::Hit(value) => {
                // A hit decides: see the module.
                posted.into_iter().for_each(Posted::withdraw);
                return Ok((Some(value), Probe::Hit(value)));
            }
            // Planted: the fill carries a state that is younger than its value.
            Probe::Miss(later) if later == version || planted::active("acs-search-overtakes-version") => {
                Probe::Miss(later)
            }
            // Planted: the key may have been cached all the time, and is cached twice then.
            Probe::Changing if planted::active("acs-fill-without-miss") => Probe::Miss(version),
            // An odd state that is even again says nothing about what was cached meanwhile.
            Probe::Miss(_) | Probe::Changing => Probe::Changing,
        };
        let found = match posted.and_then(Posted::answer) {
            Some(found) => found,
            None => self.core.index.get(key)?,
        };
        Ok((found, probe))
    }

    /// Does `operate`, which may change `key` in the index; `after` says what it did.
    fn change<T>(&self, key: &I::Key, operate: impl Fn() -> Result<T>, after: impl FnOnce(&T) -> After) -> Result<T> {
        let changed = key::with_words(key, self.core.starter.key_words(), |words| {
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
        let core = &*self.core;
        key::with_words(key, core.starter.key_words(), |words| self.read(key, words)).unwrap_or_else(|| {
            core.meter.passed(core.meter.slot());
            core.index.get(key)
        })
    }

    fn insert(&self, key: &I::Key, value: u64) -> Result<bool> {
        // Absent keys are not cached, and a value that was read before the key went is dropped: see the module.
        let inserted = self.core.index.insert(key, value)?;
        if inserted && self.core.meter.inserted(self.core.meter.slot()) {
            self.core.follow_size();
        }
        Ok(inserted)
    }

    fn update(&self, key: &I::Key, value: u64) -> Result<Option<u64>> {
        let after = |before: &Option<u64>| if before.is_some() { After::Value(value) } else { After::Same };
        self.change(key, || self.core.index.update(key, value), after)
    }

    fn upsert(&self, key: &I::Key, value: u64) -> Result<Option<u64>> {
        let before = self.change(key, || self.core.index.upsert(key, value), |_| After::Value(value))?;
        if before.is_none() && self.core.meter.inserted(self.core.meter.slot()) {
            self.core.follow_size();
        }
        Ok(before)
    }

    fn remove(&self, key: &I::Key) -> Result<Option<u64>> {
        let after = |before: &Option<u64>| if before.is_some() { After::Unknown } else { After::Same };
        let before = self.change(key, || self.core.index.remove(key), after)?;
        if before.is_some() {
            self.core.meter.removed(self.core.meter.slot());
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
    fn check(&self) -> CheckReport {
        let mut report = self.core.index.check();
        for (words, cached) in self.core.cache().contents() {
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
        self.core.meter.loaded(self.core.meter.slot(), loaded);
        self.core.follow_size();
        Ok(loaded)
    }
}

/// Opens the index, and puts an empty cache in front of it: what the cache held is not persistent, and not missed.
impl<I: OpenIndex + 'static> OpenIndex for Acs<I> {
    type Options = AcsOptions<I::Options>;

    fn open_index(heap: &Heap, name: &str, options: &Self::Options, durability: Durability) -> Result<Self> {
        Self::new(I::open_index(heap, name, &options.index, durability)?, &options.cache)
    }
}
