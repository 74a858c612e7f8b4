//! What each thread counts, and whether the cache pays for it.
//!
//! A thread counts in a slot of its own, with plain loads and stores: a shared counter would cost more than a hit. More threads than
//! slots share some, and then a few counts are lost.
//!
//! *Adaptive*: each slot judges its own reads, a window of [`WINDOW`] probes at a time.
//!
//! 1. Fewer hits than the break-even: the slot *bypasses* the cache, unless the window still filled empty entries (a cache that is not full says
//!    nothing). Its reads go to the index at once, except those of every 64th bucket.
//! 2. These buckets see all reads of their keys, so they hold what they would hold otherwise, and their share of hits is that of the
//!    whole cache; a sample of reads instead would see each key 64 times as seldom.
//! 3. More hits in a window of the sample than the upper threshold: the slot uses the whole cache again.

use crossbeam_utils::CachePadded;
use lodestone_pmem::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::options::{CacheMode, CacheOptions};
use super::table::Fill;

/// Slots.
const SLOTS: usize = 64;
/// Probes after which a slot judges.
const WINDOW: u64 = 1024;
/// Inserts after which a slot asks whether the cache should grow.
const GROWTH: u64 = if cfg!(feature = "shuttle") { 1 } else { 1024 };
/// Of so many buckets one is probed while the cache is bypassed.
const SAMPLE: usize = 64;

/// The counts of one thread.
#[derive(Debug, Default)]
pub(super) struct Slot {
    hits: AtomicU64,
    misses: AtomicU64,
    fills: AtomicU64,
    dropped: AtomicU64,
    evictions: AtomicU64,
    bypasses: AtomicU64,
    contended: AtomicU64,
    inserted: AtomicU64,
    removed: AtomicU64,
    /// Hits, fills and evictions when the window began.
    window: [AtomicU64; 3],
    is_bypassing: AtomicBool,
}

#[inline]
fn bump(counter: &AtomicU64) -> u64 {
    let count = counter.load(Ordering::Relaxed) + 1;
    counter.store(count, Ordering::Relaxed);
    count
}

/// All slots, and the thresholds.
pub(super) struct Meter {
    slots: Box<[CachePadded<Slot>]>,
    adapts: bool,
    /// Hits of a window below which the cache is bypassed, and from which it is used again.
    thresholds: [u64; 2],
}

/// What a cache has done since it was opened, all threads together; see [`Acs::stats`](super::Acs::stats).
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
        if probes == 0 { 0.0 } else { self.hits as f64 / probes as f64 }
    }
}

#[cfg(not(feature = "shuttle"))]
fn thread_number() -> usize {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    std::thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

#[cfg(feature = "shuttle")]
fn thread_number() -> usize {
    // The scheduler's threads are one thread of the system, which outlives their schedules.
    0
}

impl Meter {
    pub(super) fn new(options: &CacheOptions) -> Self {
        // Shares of a window; what is not a share is taken as the nearest one.
        let threshold = |share: f64| (share.clamp(0.0, 1.0) * WINDOW as f64) as u64;
        let below = threshold(options.bypass_below);
        Self {
            slots: (0..SLOTS).map(|_| CachePadded::default()).collect(),
            adapts: options.mode == CacheMode::Adaptive,
            thresholds: [below, threshold(options.resume_above).max(below)],
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

    /// Whether a read of a key in bucket `number` leaves the cache alone.
    #[inline]
    pub(super) fn bypasses(&self, slot: &Slot, number: usize) -> bool {
        let bypasses = slot.is_bypassing.load(Ordering::Relaxed) && !number.is_multiple_of(SAMPLE);
        if bypasses {
            bump(&slot.bypasses);
        }
        bypasses
    }

    #[inline]
    pub(super) fn hit(&self, slot: &Slot) {
        let hits = bump(&slot.hits);
        self.probed(slot, hits + slot.misses.load(Ordering::Relaxed));
    }

    #[inline]
    pub(super) fn missed(&self, slot: &Slot) {
        let misses = bump(&slot.misses);
        self.probed(slot, misses + slot.hits.load(Ordering::Relaxed));
    }

    pub(super) fn contended(&self, slot: &Slot) {
        bump(&slot.contended);
    }

    /// A read that does not ask the cache.
    pub(super) fn passed(&self, slot: &Slot) {
        bump(&slot.bypasses);
    }

    /// Counts a new key; now and then, whether it is time to look at the size of the index.
    #[inline]
    pub(super) fn inserted(&self, slot: &Slot) -> bool {
        bump(&slot.inserted).is_multiple_of(GROWTH)
    }

    /// Counts a removed key.
    #[inline]
    pub(super) fn removed(&self, slot: &Slot) {
        bump(&slot.removed);
    }

    /// Counts `count` new keys.
    pub(super) fn loaded(&self, slot: &Slot, count: u64) {
        slot.inserted.fetch_add(count, Ordering::Relaxed);
    }

    /// Keys of an index that had `before` keys at first.
    pub(super) fn keys(&self, before: u64) -> u64 {
        let sum = |count: fn(&Slot) -> &AtomicU64| -> u64 {
            self.slots.iter().map(|slot| count(slot).load(Ordering::Relaxed)).sum()
        };
        (before + sum(|slot| &slot.inserted)).saturating_sub(sum(|slot| &slot.removed))
    }

    /// Bytes of DRAM.
    pub(super) fn bytes(&self) -> u64 {
        std::mem::size_of_val(&*self.slots) as u64
    }

    pub(super) fn filled(&self, slot: &Slot, fill: Fill) {
        match fill {
            Fill::Dropped => bump(&slot.dropped),
            Fill::Fresh => bump(&slot.fills),
            Fill::Evicted => {
                bump(&slot.evictions);
                bump(&slot.fills)
            }
        };
    }

    #[inline]
    fn probed(&self, slot: &Slot, probes: u64) {
        if self.adapts && probes.is_multiple_of(WINDOW) {
            self.judge(slot);
        }
    }

    #[cold]
    fn judge(&self, slot: &Slot) {
        let now = [&slot.hits, &slot.fills, &slot.evictions].map(|count| count.load(Ordering::Relaxed));
        let mut since = now;
        for (since, (now, begun)) in since.iter_mut().zip(now.iter().zip(&slot.window)) {
            *since = now.saturating_sub(begun.load(Ordering::Relaxed));
            begun.store(*now, Ordering::Relaxed);
        }
        let [hits, fills, evictions] = since;
        let [below, above] = self.thresholds;
        let is_warm = evictions * 2 >= fills;
        let bypassing = slot.is_bypassing.load(Ordering::Relaxed);
        let bypass = if bypassing { hits < above } else { hits < below && is_warm };
        if bypass != bypassing {
            slot.is_bypassing.store(bypass, Ordering::Relaxed);
        }
    }

    /// The sum of all slots, without what only the table knows.
    pub(super) fn stats(&self) -> CacheStats {
        let mut stats = CacheStats::default();
        for slot in &self.slots {
            for (sum, count) in [
                (&mut stats.hits, &slot.hits),
                (&mut stats.misses, &slot.misses),
                (&mut stats.fills, &slot.fills),
                (&mut stats.dropped_fills, &slot.dropped),
                (&mut stats.evictions, &slot.evictions),
                (&mut stats.bypasses, &slot.bypasses),
                (&mut stats.contended, &slot.contended),
            ] {
                *sum += count.load(Ordering::Relaxed);
            }
        }
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(meter: &Meter, hits: u64, fill: Fill) {
        let slot = meter.slot();
        for number in 0..WINDOW {
            if number < hits {
                meter.hit(slot);
            } else {
                meter.filled(slot, fill);
                meter.missed(slot);
            }
        }
    }

    #[test]
    fn the_cache_is_bypassed_when_it_is_full_and_hits_are_few_and_used_again_when_they_are_many() {
        let meter = Meter::new(&CacheOptions::default());
        let slot = meter.slot();
        window(&meter, 0, Fill::Fresh);
        assert!(!meter.bypasses(slot, 1), "it is not full yet");
        window(&meter, WINDOW * 16 / 100, Fill::Evicted);
        assert!(!meter.bypasses(slot, 1));
        window(&meter, WINDOW * 14 / 100, Fill::Evicted);
        assert!(meter.bypasses(slot, 1));
        assert!(!meter.bypasses(slot, SAMPLE), "the sample goes on");
        window(&meter, WINDOW * 19 / 100, Fill::Fresh);
        assert!(meter.bypasses(slot, 1), "the upper threshold counts now");
        window(&meter, WINDOW * 21 / 100, Fill::Evicted);
        assert!(!meter.bypasses(slot, 1));
        assert_eq!(meter.stats().bypasses, 2);
    }

    #[test]
    fn serial_never_bypasses() {
        let meter = Meter::new(&CacheOptions::default().with_mode(CacheMode::Serial));
        window(&meter, 0, Fill::Evicted);
        assert!(!meter.bypasses(meter.slot(), 1));
    }
}
