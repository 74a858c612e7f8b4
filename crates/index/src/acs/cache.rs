//! The cache: tables that together have as many buckets as it needs, and which bucket a key belongs to.
//!
//! A key's second bucket ([`Pair`]) is near its first one, in the same table: their numbers within the level, less a
//! power of two, differ in a few low bits. So the first 4, 8, 16 and 32 buckets, and the first of any multiple of 32,
//! keep to themselves, and a few buckets can be a sample of all (`meter`).
//!
//! It begins with one table, and doubles: level `n` has as many buckets as all levels below it. At depth `d` a key
//! belongs to the bucket that its hash names among those of the levels 0 to `d`. When the depth grows, each bucket
//! It begins with one table, and doubles: level `n` has as many buckets as all levels below it. At depth `d` a key
//! belongs to the bucket that its hash names among those of the levels 0 to `d`. When the depth grows, the keys of each
//! bucket are divided by one more bit of the hash, and half of them belong to a bucket of the new level. Their entries
//! in the old bucket are never looked at again, and make room in time.
//!
//! The depth changes while every thread is kept out of all stripes. A thread loads a stripe's state first, finds it
//! even, and then loads the depth. It then asks the bucket that was right at the first load or at a later one. A fill
//! of the old depth is dropped. If it looked at its stripe before, it puts its key where no thread looks for it.

use std::sync::OnceLock;

use lodestone_pmem::sync::atomic::{AtomicUsize, Ordering};
use lodestone_width::{low_u64, product, to_u64, to_usize};

use super::pair::Pair;
use super::policy::{TICKERS, WAYS};
use super::table::{Common, Table};
use crate::traits::IndexKey;

/// Most levels; the last ones would not fit any memory.
const LEVELS: usize = 32;
/// First bit of the hash that chooses the level: tags, ghosts and stripes use those below.
const LEVEL_SHIFT: u32 = 24;
/// First bit of the hash that chooses the second bucket: those of the ghosts, of which a bucket compares only its own.
const SECOND_SHIFT: u32 = 8;
/// Entries of a bucket: in a test with a scheduler so few that two buckets are soon full.
const ENTRIES: usize = if cfg!(feature = "shuttle") { 2 } else { WAYS };
/// Buckets among which a second one is chosen, but for the first and the last ones.
const NEAR: usize = 32;
/// The same for the first ones, and for the last ones.
const NEAR_FIRST: usize = 4;
const NEAR_LAST: usize = 8;

const _: () = assert!(NEAR.is_power_of_two() && NEAR_FIRST.is_power_of_two() && NEAR_LAST.is_power_of_two());

/// Buckets among which bucket `number` of `base` has its second ones: a power of two, and those with the same number
/// but for the low bits.
#[inline]
fn near(number: usize, base: usize) -> usize {
    if number >= NEAR {
        return if number < base / NEAR * NEAR { NEAR } else { NEAR_LAST };
    }
    // Those from a power of two to the next one, as long as there are so many.
    (1 << number.max(NEAR_FIRST).ilog2()).min(base)
}

/// At least `least` buckets, all of which have second ones as `near` says.
fn whole_buckets(least: usize) -> usize {
    if least < NEAR { least.next_power_of_two() } else { least.next_multiple_of(NEAR_LAST) }
}

/// At most `most` buckets, but at least one, all of which have second ones.
fn whole_buckets_below(most: usize) -> usize {
    if most < NEAR { 1 << most.max(1).ilog2() } else { most / NEAR_LAST * NEAR_LAST }
}

/// The buckets of all levels.
pub(super) struct Cache<K: IndexKey + ?Sized> {
    levels: [OnceLock<Table<K>>; LEVELS],
    depth: AtomicUsize,
    /// Buckets of level 0.
    base: usize,
    /// Entries of a bucket.
    ways: usize,
    key_words: usize,
    seed: u64,
    common: Common,
}

impl<K: IndexKey + ?Sized> Cache<K> {
    /// A cache of at least `entries` entries for keys of up to `key_words` words.
    pub(super) fn new(entries: usize, key_words: usize, seed: u64) -> Self {
        let base = whole_buckets(entries.div_ceil(ENTRIES).max(1));
        let ways = entries.div_ceil(base).max(1);
        let levels: [OnceLock<Table<K>>; LEVELS] = [const { OnceLock::new() }; LEVELS];
        levels[0].get_or_init(|| Table::new(base, ways, key_words, seed));
        Self { levels, depth: AtomicUsize::new(0), base, ways, key_words, seed, common: Common::default() }
    }

    /// Entries that fit `bytes` bytes.
    pub(super) fn entries_of(bytes: usize, key_words: usize) -> usize {
        whole_buckets_below(bytes / Table::<K>::bucket_bytes(key_words)) * ENTRIES
    }

    fn buckets(&self) -> usize {
        self.base << self.depth.load(Ordering::Relaxed)
    }

    pub(super) fn capacity(&self) -> usize {
        self.buckets() * self.ways
    }

    pub(super) fn bytes(&self) -> usize {
        self.buckets() * Table::<K>::bucket_bytes(self.key_words)
    }

    /// The state that all buckets share.
    #[inline]
    pub(super) fn common(&self) -> &Common {
        &self.common
    }

    /// The highest hash of keys that belong to the first `count` buckets of each level, or to some more that these
    /// share keys with; they are the sample.
    pub(super) fn hash_max(&self, count: usize) -> u64 {
        let count = if count < NEAR { count.next_power_of_two().max(NEAR_FIRST) } else { count.next_multiple_of(NEAR) };
        if count >= self.base {
            return u64::MAX;
        }
        // Whose bucket is below `count`: see `base_of`.
        low_u64((u128::from(to_u64(count)) << 64).div_ceil(u128::from(to_u64(self.base)))) - 1
    }

    /// Buckets of the first level.
    pub(super) fn base(&self) -> usize {
        self.base
    }

    /// The level `number`, which is there because a depth names it.
    #[inline]
    fn level(&self, number: usize) -> &Table<K> {
        self.levels[number].get_or_init(|| unreachable!("a level is made before the depth that names it"))
    }

    #[inline]
    fn base_of(&self, hash: u64) -> usize {
        to_usize(product(hash, to_u64(self.base)).1)
    }

    /// The second bucket of a key with this hash whose first one is `first`, both within a level's first multiple of
    /// the base.
    #[inline]
    fn second_of(&self, first: usize, hash: u64) -> Option<usize> {
        let width = near(first, self.base);
        if width == 1 {
            return None;
        }
        let share = hash >> SECOND_SHIFT & 0xFFFF;
        Some(first ^ (1 + ((to_usize(share) * (width - 1)) >> 16)))
    }

    /// The place of a key with this hash at this moment.
    #[inline]
    pub(super) fn locate(&self, hash: u64) -> Pair<'_> {
        let depth = self.depth.load(Ordering::Acquire);
        let first = self.base_of(hash);
        let second = self.second_of(first, hash);
        let group = to_usize(hash >> LEVEL_SHIFT) & ((1 << depth) - 1);
        let (level, before) = match group {
            0 => (self.level(0), 0),
            _ => {
                let below = group.ilog2();
                (self.level(to_usize(below) + 1), (group - (1 << below)) * self.base)
            }
        };
        let bucket = |number: usize| level.bucket(before + number, group == 0 && number < TICKERS);
        Pair { first: bucket(first), second: second.map(bucket) }
    }

    /// Makes a level as large as all others, if there is room for one more. No thread looks there yet.
    pub(super) fn prepare(&self) -> bool {
        let depth = self.depth.load(Ordering::Acquire);
        if depth + 1 == LEVELS {
            return false;
        }
        let buckets = self.base << depth;
        self.levels[depth + 1].get_or_init(|| Table::new(buckets, self.ways, self.key_words, self.seed));
        true
    }

    /// Uses the level that was prepared for this depth. No thread is inside any stripe.
    pub(super) fn deepen(&self) {
        let depth = self.depth.load(Ordering::Acquire);
        if self.levels.get(depth + 1).is_some_and(|level| level.get().is_some()) {
            self.depth.store(depth + 1, Ordering::Release);
        }
    }

    /// The cached keys, as words, with their values. No thread may be using the cache.
    pub(super) fn contents(&self, hash: impl Fn(&[u64]) -> u64) -> Vec<(Vec<u64>, u64)> {
        let depth = self.depth.load(Ordering::Acquire);
        let mut all = Vec::new();
        for bucket in (0..=depth).flat_map(|level| self.level(level).all()) {
            let is_here = |words: &[u64]| self.locate(hash(words)).has(&bucket);
            all.extend(bucket.contents().into_iter().filter(|(words, _)| is_here(words)));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caches() -> impl Iterator<Item = Cache<u64>> {
        [1, 30, 1000, 6000, 7001, 100_000].into_iter().map(|entries| Cache::new(entries, 1, 1))
    }

    #[test]
    fn a_sample_is_whole_buckets() {
        for cache in caches() {
            for count in [1, 2, 3, 20, 33, cache.base / 3, cache.base] {
                let hash_max = cache.hash_max(count.clamp(1, cache.base));
                let last = cache.base_of(hash_max);
                assert!(last + 1 >= count.min(cache.base));
                if hash_max == u64::MAX {
                    continue;
                }
                assert_eq!(cache.base_of(hash_max + 1), last + 1);
                let seconds = |hash: u64| (0..=last).map(move |first| (first, hash << SECOND_SHIFT));
                let mut keys = (0..0xFFFF).step_by(77).flat_map(seconds);
                assert!(keys.all(|(first, hash)| cache.second_of(first, hash).is_none_or(|second| second <= last)));
            }
        }
    }

    #[test]
    fn two_keys_that_share_a_bucket_may_share_both() {
        for cache in caches() {
            for first in 0..cache.base {
                let seconds = (0..=0xFFFF_u64).step_by(31).filter_map(|share| {
                    let second = cache.second_of(first, share << SECOND_SHIFT)?;
                    assert!(second < cache.base && second != first);
                    assert_eq!(cache.second_of(second, share << SECOND_SHIFT), Some(first));
                    Some(second)
                });
                let count = seconds.collect::<std::collections::BTreeSet<usize>>().len();
                assert_eq!(count, near(first, cache.base) - 1, "bucket {first} of {}", cache.base);
            }
        }
    }

    #[test]
    fn buckets_are_whole() {
        for buckets in 1..500 {
            let (up, down) = (whole_buckets(buckets), whole_buckets_below(buckets));
            assert!(down <= buckets && buckets <= up && whole_buckets(down) == down);
        }
    }
}
