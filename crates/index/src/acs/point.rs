//! The cached index as an index.

use std::ops::{Bound, ControlFlow};

use lodestone_heap::Heap;
use lodestone_pmem::PmAddr;

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
        let (cache, meter) = (&self.cache, &self.meter);
        let slot = meter.slot();
        let hash = cache.hash(words);
        let at = cache.locate(hash);
        if meter.bypasses(slot, at.bucket.number()) {
            return self.index.get(key);
        }
        match cache.probe(at, words, hash) {
            Probe::Hit(value) => {
                meter.hit(slot);
                Ok(Some(value))
            }
            Probe::Miss(version) => {
                let found = self.index.get(key)?;
                meter.missed(slot);
                if let Some(value) = found {
                    meter.filled(slot, at.bucket.fill(words, hash, value, version));
                }
                Ok(found)
            }
            Probe::Changing => {
                meter.contended(slot);
                self.index.get(key)
            }
        }
    }

    /// Does `operate`, which may change `key` in the index; `after` says what it did.
    fn change<T>(&self, key: &I::Key, operate: impl Fn() -> Result<T>, after: impl FnOnce(&T) -> After) -> Result<T> {
        let changed = key::with_words(key, self.cache.key_words(), |words| {
            let entered = self.cache.enter(words, self.cache.hash(words));
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
        key::with_words(key, self.cache.key_words(), |words| self.read(key, words)).unwrap_or_else(|| {
            self.meter.passed(self.meter.slot());
            self.index.get(key)
        })
    }

    fn insert(&self, key: &I::Key, value: u64) -> Result<bool> {
        // Absent keys are not cached, and a value that was read before the key went is dropped: see the module.
        let inserted = self.index.insert(key, value)?;
        if inserted && self.meter.inserted(self.meter.slot()) {
            self.follow_size();
        }
        Ok(inserted)
    }

    fn update(&self, key: &I::Key, value: u64) -> Result<Option<u64>> {
        let after = |before: &Option<u64>| if before.is_some() { After::Value(value) } else { After::Same };
        self.change(key, || self.index.update(key, value), after)
    }

    fn upsert(&self, key: &I::Key, value: u64) -> Result<Option<u64>> {
        let before = self.change(key, || self.index.upsert(key, value), |_| After::Value(value))?;
        if before.is_none() && self.meter.inserted(self.meter.slot()) {
            self.follow_size();
        }
        Ok(before)
    }

    fn remove(&self, key: &I::Key) -> Result<Option<u64>> {
        let after = |before: &Option<u64>| if before.is_some() { After::Unknown } else { After::Same };
        let before = self.change(key, || self.index.remove(key), after)?;
        if before.is_some() {
            self.meter.removed(self.meter.slot());
        }
        Ok(before)
    }

    fn compare_and_swap(&self, key: &I::Key, current: u64, new: u64) -> Result<Swap> {
        let after = |swap: &Swap| if *swap == Swap::Done { After::Value(new) } else { After::Same };
        self.change(key, || self.index.compare_and_swap(key, current, new), after)
    }

    fn len(&self) -> Result<u64> {
        self.index.len()
    }

    fn is_empty(&self) -> Result<bool> {
        self.index.is_empty()
    }

    fn key_bytes_max(&self) -> usize {
        self.index.key_bytes_max()
    }

    fn sync(&self) -> Result<()> {
        self.index.sync()
    }

    /// As the index's; and every value that is cached is the index's.
    fn check(&self) -> CheckReport {
        let mut report = self.index.check();
        for (words, cached) in self.cache.contents() {
            let Some(owned) = key::key_of::<I::Key>(&words) else {
                report.find(PmAddr::NULL, format!("the cache in DRAM holds {words:x?}, which is no key"));
                continue;
            };
            match self.index.get(std::borrow::Borrow::borrow(&owned)) {
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
        self.index.scan(start, end, direction, visit)
    }

    fn outermost(&self, direction: Direction) -> Result<Option<(<I::Key as IndexKey>::Owned, u64)>> {
        self.index.outermost(direction)
    }

    fn bulk_load<S>(&self, sorted: S) -> Result<u64>
    where
        S: IntoIterator<Item = (<I::Key as IndexKey>::Owned, u64)>,
    {
        // The index is empty, so nothing is cached.
        let loaded = self.index.bulk_load(sorted)?;
        self.meter.loaded(self.meter.slot(), loaded);
        self.follow_size();
        Ok(loaded)
    }
}

/// Opens the index, and puts an empty cache in front of it: what the cache held is not persistent, and not missed.
impl<I: OpenIndex> OpenIndex for Acs<I> {
    type Options = AcsOptions<I::Options>;

    fn open_index(heap: &Heap, name: &str, options: &Self::Options, durability: Durability) -> Result<Self> {
        Self::new(I::open_index(heap, name, &options.index, durability)?, &options.cache)
    }
}
