//! The two buckets that a key may be in, of which at most one has it.
//!
//! With one bucket for each key, some buckets get more of the wanted keys than they have entries, while others keep
//! unwanted keys. A fill that has the choice of two takes the emptier one, or the one with the worse entry (`policy`),
//! and the difference almost disappears ("the power of two choices": Azar, Broder, Karlin and Upfal, Balanced
//! Allocations, 1999).
//!
//! *A key is never in both.* A fill takes the latch of its bucket from the version that missed, and then looks whether
//! the other one still has the version that missed. Of two fills of one key into different buckets, the later exchange
//! sees the other's latch, or the version that it left, and that fill is dropped. So a key found in one bucket need not
//! be looked for in the other.

use super::table::{Bucket, Common, Fill, Key, Probe};
use lodestone_pmem::planted;

/// The buckets of a key.
#[derive(Clone, Copy)]
pub(super) struct Pair<'t> {
    pub(super) first: Bucket<'t>,
    /// None: there is only one.
    pub(super) second: Option<Bucket<'t>>,
}

/// The state of the two buckets when the key was in neither.
#[derive(Clone, Copy)]
pub(super) struct Versions {
    first: u64,
    second: u64,
}

impl Pair<'_> {
    /// Whether `bucket` is one of them.
    pub(super) fn has(&self, bucket: &Bucket<'_>) -> bool {
        self.first.is(bucket) || self.second.is_some_and(|second| second.is(bucket))
    }

    /// Tells the processor that the buckets will be asked soon.
    #[inline]
    pub(super) fn prefetch(&self) {
        self.first.prefetch();
        self.prefetch_second();
    }

    #[inline]
    fn prefetch_second(&self) {
        if let Some(second) = &self.second {
            second.prefetch();
        }
    }

    /// The cached value of `key`, at the time `now` of the clock.
    #[inline]
    pub(super) fn probe(&self, key: Key<'_>, now: u64) -> Probe<Versions> {
        // It comes while the first one is looked through; asking for it only after that costs a miss, and a hit there,
        // a wait more.
        self.prefetch_second();
        let first = match self.first.probe(key, now) {
            Probe::Hit(value) => return Probe::Hit(value),
            Probe::Changing => return Probe::Changing,
            Probe::Miss(version) => version,
        };
        match self.second.map(|second| second.probe(key, now)) {
            None => Probe::Miss(Versions { first, second: 0 }),
            Some(Probe::Miss(second)) => Probe::Miss(Versions { first, second }),
            Some(Probe::Hit(value)) => Probe::Hit(value),
            Some(Probe::Changing) => Probe::Changing,
        }
    }

    /// The state of the buckets at this moment.
    pub(super) fn versions(&self) -> Versions {
        Versions { first: self.first.version(), second: self.second.map_or(0, |second| second.version()) }
    }

    /// Caches `value` for `key`, which was in neither bucket in `versions`; dropped if one of them has changed since,
    /// or if `is_current` does not hold under the latch: whether the value is what the index has.
    pub(super) fn fill(
        &self,
        key: Key<'_>,
        value: u64,
        versions: Versions,
        common: &Common,
        is_current: impl Fn() -> bool,
    ) -> Fill {
        let (first, now, by_uses) = (&self.first, common.now(), common.by_uses());
        let here = first.glance(now, by_uses);
        let Some(second) = &self.second else {
            return first.fill(key, value, versions.first, common, (by_uses, here), is_current);
        };
        // Planted: the key may have been cached in the other bucket meanwhile.
        let stands =
            |other: &Bucket<'_>, version| other.version() == version || planted::active("acs-fill-looks-at-one-bucket");
        let there = here.and_then(|_| second.glance(now, by_uses));
        let is_second = here.is_some_and(|here| there.is_none_or(|there| here.yields_to(&there, by_uses)));
        if is_second {
            let is_current = || stands(first, versions.first) && is_current();
            second.fill(key, value, versions.second, common, (by_uses, there), is_current)
        } else {
            let is_current = || stands(second, versions.second) && is_current();
            first.fill(key, value, versions.first, common, (by_uses, here), is_current)
        }
    }

    /// Makes the buckets follow a change of `key` in the index, by a writer that is inside its stripe: if the key is
    /// cached, it gets the value that `value` returns under the latch, or goes if that is none.
    pub(super) fn follow(&self, key: Key<'_>, value: impl Fn() -> Option<u64>) {
        // A fill that looked at the stripe before this writer was inside may be about to put the key into either. Fills
        // that come later see the writer: from here on the key can only leave.
        self.first.wait_for_latch();
        if let Some(second) = &self.second {
            second.wait_for_latch();
        }
        // A glance sees a key of several words also where a fill of another one has come half way, so it does not say
        // that the key is not in the other bucket. A search under the latch does.
        if self.first.has(key) && self.first.change(key, &value) {
            return;
        }
        if let Some(second) = self.second.filter(|second| second.has(key)) {
            second.change(key, &value);
        }
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod schedules {
    use std::sync::Arc;

    use lodestone_pmem::sync::thread;
    use shuttle::Config;
    use shuttle::scheduler::PctScheduler;

    use super::super::table::Table;
    use super::*;

    /// Of one hash, so of one tag. While the third one takes the place of the first, its first word beside the other's
    /// second one is the second key.
    const KEYS: [[u64; 2]; 3] = [[1, 2], [3, 2], [3, 4]];

    fn key(number: usize) -> Key<'static> {
        Key { words: &KEYS[number], hash: 0 }
    }

    fn value(bucket: &Bucket<'_>, number: usize) -> Option<u64> {
        if let Probe::Hit(value) = bucket.probe(key(number), 0) { Some(value) } else { None }
    }

    fn fill(bucket: &Bucket<'_>, number: usize, common: &Common) {
        let room = (true, bucket.glance(common.now(), true));
        assert_ne!(bucket.fill(key(number), 100, bucket.version(), common, room, || true), Fill::Dropped);
    }

    fn change_beside_a_fill() {
        let shared = Arc::new((Table::<[u8]>::new(2, 1, 2, 1), Common::default()));
        let (table, common) = &*shared;
        fill(&table.bucket(0, false), 0, common);
        fill(&table.bucket(1, false), 1, common);
        let its = Arc::clone(&shared);
        let filling = thread::spawn(move || fill(&its.0.bucket(0, false), 2, &its.1));
        let pair = Pair { first: table.bucket(0, false), second: Some(table.bucket(1, false)) };
        pair.follow(key(1), || Some(7));
        filling.join().expect("the fill");
        assert_eq!(value(&table.bucket(0, false), 2), Some(100));
        assert_eq!(value(&table.bucket(1, false), 1), Some(7), "the change is lost");
    }

    #[test]
    fn a_change_reaches_its_key_whatever_is_filled_into_the_other_bucket() {
        let runner = shuttle::Runner::new(PctScheduler::new_from_seed(1, 3, 20_000), Config::new());
        runner.run(change_beside_a_fill);
    }
}
