//! The cache: tables that together have as many buckets as it needs, and which bucket a key belongs to.
//!
//! It begins with one table, and doubles: level `n` has as many buckets as all levels below it. At depth `d` a key belongs to the
//! bucket that its hash names among those of the levels 0 to `d`. When the depth grows, each bucket hands the keys of one more bit of
//! the hash to a bucket of the new level; what it has of them is never looked at again, and makes room in time.
//!
//! The depth changes while everybody is kept out of all stripes. Whoever loads a stripe's state first and finds it even, and then the depth,
//! asks the bucket that was right at the first load or at a later one; a fill of the old depth is dropped, or, if it looked at its stripe before,
//! puts its key where nobody looks for it.

use std::sync::OnceLock;

use crossbeam_utils::CachePadded;
use lodestone_pmem::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::policy::WAYS;
use super::table::{Bucket, Table};
use crate::traits::IndexKey;

/// Most levels; the last ones would not fit any memory.
const LEVELS: usize = 32;
/// First bit of the hash that chooses the level: tags, ghosts and stripes use those below.
const LEVEL_SHIFT: u32 = 24;

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
    /// Whom of the two experts fills follow, see `policy`.
    balance: CachePadded<AtomicU64>,
}

impl<K: IndexKey + ?Sized> Cache<K> {
    /// A cache of at least `entries` entries for keys of up to `key_words` words.
    pub(super) fn new(entries: usize, key_words: usize, seed: u64) -> Self {
        let base = entries.div_ceil(WAYS).max(1);
        let ways = entries.div_ceil(base).max(1);
        let levels: [OnceLock<Table<K>>; LEVELS] = [const { OnceLock::new() }; LEVELS];
        levels[0].get_or_init(|| Table::new(base, ways, key_words, seed));
        Self { levels, depth: AtomicUsize::new(0), base, ways, key_words, seed, balance: CachePadded::default() }
    }

    /// Entries that fit `bytes` bytes.
    pub(super) fn entries_of(bytes: usize, key_words: usize) -> usize {
        bytes / Table::<K>::bucket_bytes(key_words) * WAYS
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

    pub(super) fn balance(&self) -> &AtomicU64 {
        &self.balance
    }

    /// The highest hash of keys that belong to the first `count` buckets of each level; they are what a sample is.
    pub(super) fn hash_max(&self, count: usize) -> u64 {
        if count >= self.base {
            return u64::MAX;
        }
        // Whose bucket is below `count`: see `base_of`.
        ((count as u128) << 64).div_ceil(self.base as u128) as u64 - 1
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
        ((u128::from(hash) * self.base as u128) >> 64) as usize
    }

    /// Where a key with this hash belongs at this moment.
    #[inline]
    pub(super) fn locate(&self, hash: u64) -> Bucket<'_> {
        let depth = self.depth.load(Ordering::Acquire);
        let base = self.base_of(hash);
        let group = (hash >> LEVEL_SHIFT) as usize & ((1 << depth) - 1);
        if group == 0 {
            self.level(0).bucket(base)
        } else {
            let below = group.ilog2();
            self.level(below as usize + 1).bucket((group - (1 << below)) * self.base + base)
        }
    }

    /// Makes a level as large as all others, if there is room for one more. Nobody looks there yet.
    pub(super) fn prepare(&self) -> bool {
        let depth = self.depth.load(Ordering::Acquire);
        if depth + 1 == LEVELS {
            return false;
        }
        let buckets = self.base << depth;
        self.levels[depth + 1].get_or_init(|| Table::new(buckets, self.ways, self.key_words, self.seed));
        true
    }

    /// Uses the level that was prepared for this depth. Nobody is inside any stripe.
    pub(super) fn deepen(&self) {
        let depth = self.depth.load(Ordering::Acquire);
        if self.levels.get(depth + 1).is_some_and(|level| level.get().is_some()) {
            self.depth.store(depth + 1, Ordering::Release);
        }
    }

    /// The keys that are cached, as words, with their values; nobody may be using the cache.
    pub(super) fn contents(&self, hash: impl Fn(&[u64]) -> u64) -> Vec<(Vec<u64>, u64)> {
        let depth = self.depth.load(Ordering::Acquire);
        let mut all = Vec::new();
        for bucket in (0..=depth).flat_map(|level| self.level(level).all()) {
            let is_here = |words: &[u64]| self.locate(hash(words)).is(&bucket);
            all.extend(bucket.contents().into_iter().filter(|(words, _)| is_here(words)));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_whole_buckets() {
        for entries in [1, 30, 1000, 6000, 100_000] {
            let cache = Cache::<u64>::new(entries, 1, 1);
            for count in
                [1, 2, 3, cache.base / 3, cache.base].into_iter().filter(|count| (1..=cache.base).contains(count))
            {
                let hash_max = cache.hash_max(count);
                assert_eq!(cache.base_of(hash_max), count - 1);
                if count < cache.base {
                    assert_eq!(cache.base_of(hash_max + 1), count);
                }
            }
        }
    }
}
