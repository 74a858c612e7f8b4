//! The counts of each thread, and whether the cache pays for itself.
//!
//! Each thread counts in its own slot, with plain loads and stores: a shared counter would cost more than a hit. More
//! threads than slots share some, and then a few counts are lost.
//!
//! *Adaptive*: each slot judges its own reads, a window of [`WINDOW`] probes at a time (of [`SAMPLED_WINDOW`] while it
//! samples).
//!
//! 1. Fewer hits than the break-even: the slot *bypasses* the cache. Its reads go to the index at once, except those of
//!    a *sample*: the keys whose hash is at most a limit, which are those of the first buckets. So a read that bypasses
//!    the cache hashes its key, compares, and counts, but touches no line of the cache. While the cache fills, the
//!    break-even is lowered in proportion to its fill, because few entries can have few hits only. Below [`FULL_MIN`]
//!    no window is judged.
//! 2. The buckets of the sample see all reads of their keys, so they hold what they would hold otherwise, and their
//!    share of hits is that of the whole cache; a sample of reads instead would see each key so much more seldom. The
//!    sample is one bucket of [`SAMPLE`], and half of that after each window that confirms it, down to one of
//!    [`SAMPLE_LEAST`] (and to [`SAMPLE_BUCKETS_MIN`] buckets, where a cache has enough of them).
//! 3. More hits in a window of the sample than the upper threshold: the slot uses the whole cache again, and is not
//!    judged before it has asked twice as often as the cache has entries: its content is of another time.
//!
//! # The thresholds
//!
//! A cache pays if its hits save more than its misses cost. That is so from a share of hits of `m / (m + b - h)`. Here
//! `b` is the time of a read of the index, `h` the time of a hit, and `m` the additional time of a miss over `b`.
//! `cargo run --release -p lodestone-index-bench --example acs -- POOL_FILE 1000000 300 PROFILE` measures the three for
//! each index and prints that share. It was 9 % before a skip list, 25 % before `FastFair` and 30 % before `FpTree` on
//! the emulated `optane`, and half or more before `FastFair` in DRAM. The defaults, 15 and 20 %, are for a medium
//! that is slower than DRAM: a tenth of hits, as uniform reads have with a cache of a tenth, is below them with five
//! standard deviations of a window to spare. They are fixed, not measured at run time: before an index in DRAM, set
//! [`CacheOptions::bypass_below`] and [`CacheOptions::resume_above`] higher.

use crossbeam_utils::CachePadded;
use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_width::{nearest_f64, to_u64, to_usize};

use super::options::{CacheMode, CacheOptions};
use super::table::Fill;

/// Slots.
const SLOTS: usize = 64;
/// Probes after which a slot judges.
const WINDOW: u64 = 1024;
/// The same while it samples. Where a tenth of the reads hit, a window with a fifth of hits comes up once in a million.
const SAMPLED_WINDOW: u64 = WINDOW / 4;
/// Inserts after which a slot asks whether the cache should grow.
const GROWTH: u64 = if cfg!(feature = "shuttle") { 1 } else { 1024 };
/// Of so many buckets one is in the first sample.
const SAMPLE: u64 = 64;
/// Of so many buckets one is in the smallest sample.
const SAMPLE_LEAST: u64 = 1024;
/// Fewest buckets of a sample, where they are no more than one of eight: fewer tell too much about few keys.
const SAMPLE_BUCKETS_MIN: usize = 4;
/// Share of the cache that has to be full before it is judged.
const FULL_MIN: f64 = 1.0 / 16.0;
/// The highest hash there is.
const EVERY_KEY: u64 = u64::MAX;

/// The counts of one thread.
#[derive(Debug)]
pub(super) struct Slot {
    /// Keys with a higher hash are not looked for in the cache.
    hash_max: AtomicU64,
    bypasses: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    fills: AtomicU64,
    dropped: AtomicU64,
    evictions: AtomicU64,
    contended: AtomicU64,
    inserted: AtomicU64,
    removed: AtomicU64,
    /// Probes at the beginning and at the end of the window, and hits at its beginning.
    window_begin: AtomicU64,
    window_end: AtomicU64,
    window_hits: AtomicU64,
    /// While the slot samples: one of so many buckets.
    sample: AtomicU64,
}

#[inline]
fn bump(counter: &AtomicU64) -> u64 {
    let count = counter.load(Ordering::Relaxed) + 1;
    counter.store(count, Ordering::Relaxed);
    count
}

impl Slot {
    fn new(window_end: u64) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            hash_max: AtomicU64::new(EVERY_KEY),
            bypasses: zero(),
            hits: zero(),
            misses: zero(),
            fills: zero(),
            dropped: zero(),
            evictions: zero(),
            contended: zero(),
            inserted: zero(),
            removed: zero(),
            window_begin: zero(),
            window_end: AtomicU64::new(window_end),
            window_hits: zero(),
            sample: zero(),
        }
    }

    /// Whether a read of a key with this hash leaves the cache alone; counts it then.
    #[inline]
    pub(super) fn bypasses(&self, hash: u64) -> bool {
        let bypasses = hash > self.hash_max.load(Ordering::Relaxed);
        if bypasses {
            bump(&self.bypasses);
        }
        bypasses
    }

    /// Counts a hit; whether the window has ended.
    #[inline]
    pub(super) fn hit(&self) -> bool {
        bump(&self.hits) + self.misses.load(Ordering::Relaxed) >= self.window_end.load(Ordering::Relaxed)
    }

    /// Counts a miss; whether the window has ended.
    #[inline]
    pub(super) fn missed(&self) -> bool {
        bump(&self.misses) + self.hits.load(Ordering::Relaxed) >= self.window_end.load(Ordering::Relaxed)
    }

    /// Counts a read that met a change.
    pub(super) fn contended(&self) {
        bump(&self.contended);
    }

    /// Counts a read that does not ask the cache.
    pub(super) fn passed(&self) {
        bump(&self.bypasses);
    }

    /// Counts a new key; now and then, whether it is time to look at the size of the index.
    #[inline]
    pub(super) fn inserted(&self) -> bool {
        bump(&self.inserted).is_multiple_of(GROWTH)
    }

    /// Counts a removed key.
    #[inline]
    pub(super) fn removed(&self) {
        bump(&self.removed);
    }

    /// Counts `count` new keys.
    pub(super) fn loaded(&self, count: u64) {
        self.inserted.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn filled(&self, fill: Fill) {
        match fill {
            Fill::Dropped => bump(&self.dropped),
            Fill::Fresh => bump(&self.fills),
            Fill::Evicted => {
                bump(&self.evictions);
                bump(&self.fills)
            }
        };
    }

    /// Begins a window with this count of probes, which ends `length` later.
    fn begin(&self, probes: u64, length: u64) {
        self.window_begin.store(probes, Ordering::Relaxed);
        self.window_end.store(probes + length, Ordering::Relaxed);
        self.window_hits.store(self.hits.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// All slots, and the thresholds.
pub(super) struct Meter {
    slots: Box<[CachePadded<Slot>]>,
    /// Share of hits below which the cache is bypassed, and from which it is used again.
    thresholds: [f64; 2],
}

/// The data about the cache that a judgement needs.
pub(super) struct Judged<H> {
    /// Entries.
    pub(super) capacity: u64,
    /// Buckets that a sample is taken of.
    pub(super) buckets: usize,
    /// The highest hash of the keys of the first so many buckets.
    pub(super) hash_max: H,
}

/// The counts of a cache since it was opened, all threads together; see [`Acs::stats`](super::Acs::stats).
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// use lodestone_index::{Acs, AcsOptions, CacheMode, CacheOptions, Durability, FastFair, OpenIndex, PointIndex};
///
/// let cache = CacheOptions::default().with_entries(1000).with_mode(CacheMode::Serial);
/// let options = AcsOptions { cache, ..AcsOptions::default() };
/// let index = Acs::<FastFair<u64>>::open_index(&store, "numbers", &options, Durability::Sync)?;
/// index.insert(&7, 49)?;
/// assert_eq!((index.get(&7)?, index.get(&7)?), (Some(49), Some(49)));
/// let stats = index.stats();
/// assert!(stats.hits >= 1 && stats.capacity >= 1000);
/// # Ok::<(), lodestone_index::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Reads that the cache answered.
    pub hits: u64,
    /// Reads that asked the cache in vain.
    pub misses: u64,
    /// Values that misses brought into the cache.
    pub fills: u64,
    /// Values that were not brought in, because something changed meanwhile.
    pub dropped_fills: u64,
    /// Fills that took another key's place.
    pub evictions: u64,
    /// Reads that did not ask the cache.
    pub bypasses: u64,
    /// Reads that went to the index because a key of their bucket was being changed.
    pub contended: u64,
    /// Entries that the cache has room for.
    pub capacity: u64,
    /// Bytes of DRAM that the cache takes.
    pub dram_bytes: u64,
}

impl CacheStats {
    /// Hits of the reads that asked the cache, 0 to 1.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        let probes = self.hits + self.misses + self.contended;
        if probes == 0 { 0.0 } else { nearest_f64(self.hits) / nearest_f64(probes) }
    }
}

// Not inlined: in another crate the thread's variable would be reached by a pointer to a function.
#[cfg(not(feature = "shuttle"))]
#[inline(never)]
fn thread_number() -> usize {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(1);
    std::thread_local! {
        /// 0: the thread has no number yet.
        static NUMBER: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }
    #[cold]
    fn numbered() -> usize {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(number);
        number
    }
    match NUMBER.get() {
        0 => numbered(),
        number => number,
    }
}

#[cfg(feature = "shuttle")]
fn thread_number() -> usize {
    // The scheduler's threads are one thread of the system, which outlives their schedules.
    0
}

impl Meter {
    pub(super) fn new(options: &CacheOptions) -> Self {
        // Shares. Any other number is taken as the nearest share, and no number as none.
        let share_of = |asked: f64| if asked.is_nan() { 0.0 } else { asked.clamp(0.0, 1.0) };
        let [below, above] = [options.bypass_below, options.resume_above].map(share_of);
        let window = if options.mode == CacheMode::Adaptive { WINDOW } else { u64::MAX };
        Self {
            slots: (0..SLOTS).map(|_| CachePadded::new(Slot::new(window))).collect(),
            thresholds: [below, above.max(below)],
        }
    }

    /// Number of the calling thread.
    pub(super) fn thread(&self) -> usize {
        thread_number()
    }

    /// The calling thread's slot.
    #[inline]
    pub(super) fn slot(&self) -> &Slot {
        &self.slots[thread_number() % SLOTS]
    }

    fn sum(&self, count: fn(&Slot) -> &AtomicU64) -> u64 {
        self.slots.iter().map(|slot| count(slot).load(Ordering::Relaxed)).sum()
    }

    /// Keys of an index that had `before` keys at first, a number modulo 2^64 of [`keys_before`](Self::keys_before).
    pub(super) fn keys(&self, before: u64) -> u64 {
        let keys = before.wrapping_add(self.came());
        // Below 0: keys that were removed while they were counted.
        if keys >> 63 == 0 { keys } else { 0 }
    }

    /// Keys at first, modulo 2^64, of an index that has `keys` keys now.
    pub(super) fn keys_before(&self, keys: u64) -> u64 {
        keys.wrapping_sub(self.came())
    }

    /// Keys that came, less those that went, modulo 2^64.
    fn came(&self) -> u64 {
        self.sum(|slot| &slot.inserted).wrapping_sub(self.sum(|slot| &slot.removed))
    }

    /// Bytes of DRAM.
    pub(super) fn bytes(&self) -> u64 {
        to_u64(std::mem::size_of_val(&*self.slots))
    }

    /// Judges the window of `slot` that has ended.
    pub(super) fn judge(&self, slot: &Slot, cache: &Judged<impl Fn(usize) -> u64>) {
        let [below, above] = self.thresholds;
        let hits = slot.hits.load(Ordering::Relaxed);
        let probes = hits + slot.misses.load(Ordering::Relaxed);
        let length = probes.saturating_sub(slot.window_begin.load(Ordering::Relaxed));
        if length == 0 {
            // The period without judgement is over.
            return slot.begin(probes, WINDOW);
        }
        // Of threads that share the slot one may have put back what another had counted.
        let share = nearest_f64(hits.saturating_sub(slot.window_hits.load(Ordering::Relaxed))) / nearest_f64(length);
        if slot.hash_max.load(Ordering::Relaxed) != EVERY_KEY {
            if share < above {
                let next = if share < below { 2 * slot.sample.load(Ordering::Relaxed) } else { 0 };
                return Self::sample(slot, probes, next, cache);
            }
            slot.hash_max.store(EVERY_KEY, Ordering::Relaxed);
            let unjudged = 2 * cache.capacity;
            slot.begin(probes, unjudged);
            return slot.window_begin.store(probes + unjudged, Ordering::Relaxed);
        }
        let fresh = self.sum(|slot| &slot.fills).saturating_sub(self.sum(|slot| &slot.evictions));
        let full = (nearest_f64(fresh) / nearest_f64(cache.capacity)).min(1.0);
        if full >= FULL_MIN && share < below * full {
            Self::sample(slot, probes, SAMPLE, cache);
        } else {
            slot.begin(probes, WINDOW);
        }
    }

    /// Goes on with a sample of one bucket of `sample`; with the same one if that is 0.
    fn sample(slot: &Slot, probes: u64, sample: u64, cache: &Judged<impl Fn(usize) -> u64>) {
        slot.begin(probes, SAMPLED_WINDOW);
        if sample != 0 {
            let sample = sample.min(SAMPLE_LEAST);
            let least = SAMPLE_BUCKETS_MIN.min(cache.buckets / 8).max(1);
            let count = (cache.buckets / to_usize(sample)).max(least);
            slot.sample.store(sample, Ordering::Relaxed);
            slot.hash_max.store((cache.hash_max)(count), Ordering::Relaxed);
        }
    }

    /// The sum of all slots, without what only the table knows.
    pub(super) fn stats(&self) -> CacheStats {
        CacheStats {
            hits: self.sum(|slot| &slot.hits),
            misses: self.sum(|slot| &slot.misses),
            fills: self.sum(|slot| &slot.fills),
            dropped_fills: self.sum(|slot| &slot.dropped),
            evictions: self.sum(|slot| &slot.evictions),
            bypasses: self.sum(|slot| &slot.bypasses),
            contended: self.sum(|slot| &slot.contended),
            ..CacheStats::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: u64 = 2048;
    const BUCKETS: usize = 1 << 14;

    /// A window with this share of hits; the others bring a value.
    fn window(meter: &Meter, length: u64, share: f64, fill: Fill) {
        let hash_max = |count: usize| if count < BUCKETS { (count as u64) << 50 } else { EVERY_KEY };
        let (slot, hits) = (meter.slot(), (share * length as f64) as u64);
        for number in 0..length {
            let has_ended = if number < hits {
                slot.hit()
            } else {
                slot.filled(fill);
                slot.missed()
            };
            assert_eq!(has_ended, number + 1 == length);
        }
        meter.judge(slot, &Judged { capacity: CAPACITY, buckets: BUCKETS, hash_max });
    }

    fn sampled(meter: &Meter) -> u64 {
        meter.slot().hash_max.load(Ordering::Relaxed) >> 50
    }

    #[test]
    fn a_sample_shrinks_while_hits_are_few_and_ends_when_they_are_many() {
        let meter = Meter::new(&CacheOptions::default());
        let slot = meter.slot();
        window(&meter, WINDOW, 0.16, Fill::Fresh);
        window(&meter, WINDOW, 0.16, Fill::Fresh);
        window(&meter, WINDOW, 0.16, Fill::Evicted);
        assert!(!slot.bypasses(u64::MAX));
        window(&meter, WINDOW, 0.12, Fill::Evicted);
        assert!(slot.bypasses(u64::MAX) && slot.bypasses(1 << 63));
        assert!(!slot.bypasses(1 << 57), "the sample goes on");
        assert_eq!(sampled(&meter), BUCKETS as u64 / SAMPLE);
        window(&meter, SAMPLED_WINDOW, 0.19, Fill::Evicted);
        assert_eq!(sampled(&meter), BUCKETS as u64 / SAMPLE, "between the thresholds everything stays as it is");
        (0..20).for_each(|_| window(&meter, SAMPLED_WINDOW, 0.1, Fill::Evicted));
        assert_eq!(sampled(&meter), BUCKETS as u64 / SAMPLE_LEAST);
        window(&meter, SAMPLED_WINDOW, 0.21, Fill::Fresh);
        assert!(!slot.bypasses(u64::MAX));
        window(&meter, 2 * CAPACITY, 0.0, Fill::Evicted);
        window(&meter, WINDOW, 0.2, Fill::Evicted);
        assert!(!slot.bypasses(u64::MAX), "what the cache held when it came back is not judged");
        window(&meter, WINDOW, 0.1, Fill::Evicted);
        assert!(slot.bypasses(u64::MAX));
        assert_eq!(meter.stats().bypasses, 3);
    }

    #[test]
    fn a_cache_that_is_not_full_is_judged_by_what_it_holds() {
        let bypasses = |fills: u64, share: f64| {
            let meter = Meter::new(&CacheOptions::default());
            (0..fills).for_each(|_| meter.slot().filled(Fill::Fresh));
            window(&meter, WINDOW, share, Fill::Evicted);
            meter.slot().bypasses(u64::MAX)
        };
        assert!(!bypasses(CAPACITY / 17, 0.0), "with so few entries nothing can be said");
        assert!(bypasses(CAPACITY / 2, 0.07) && !bypasses(CAPACITY / 2, 0.08));
        assert!(bypasses(CAPACITY, 0.14) && !bypasses(CAPACITY, 0.16));
    }

    /// Two threads share the slot: one loaded the count of hits, the other counted to the end of its window, and the
    /// first one stores its own.
    #[test]
    fn counts_that_go_back_are_judged_as_well() {
        let meter = Meter::new(&CacheOptions::default());
        window(&meter, WINDOW, 1.0, Fill::Fresh);
        meter.slot().hits.store(1, Ordering::Relaxed);
        let has_ended = (0..2 * WINDOW).any(|_| meter.slot().missed());
        assert!(has_ended);
        meter.judge(meter.slot(), &Judged { capacity: CAPACITY, buckets: BUCKETS, hash_max: |_| 0 });
    }

    #[test]
    fn thresholds_are_shares_whatever_is_asked_for() {
        let thresholds = |bypass_below, resume_above| {
            Meter::new(&CacheOptions { bypass_below, resume_above, ..CacheOptions::default() }).thresholds
        };
        assert_eq!(thresholds(0.15, 0.2), [0.15, 0.2]);
        assert_eq!(thresholds(-1.0, 7.0), [0.0, 1.0]);
        assert_eq!(thresholds(0.5, 0.2), [0.5, 0.5]);
        assert_eq!(thresholds(f64::NAN, f64::NAN), [0.0, 0.0]);
        assert_eq!(thresholds(0.1, f64::NAN), [0.1, 0.1]);
    }

    #[test]
    fn serial_never_bypasses() {
        let meter = Meter::new(&CacheOptions::default().with_mode(CacheMode::Serial));
        let ended = (0..4 * WINDOW).filter(|_| meter.slot().missed()).count();
        assert_eq!(ended, 0);
    }
}
