//! The cache: tables that together have as many buckets as it needs, and which bucket a key belongs to.
//!
//! It begins with one table, and doubles: level `n` has as many buckets as all levels below it. At depth `d` a key belongs to the
//! bucket that its hash names among those of the levels 0 to `d`. When the depth grows, each bucket hands the keys of one more bit of
//! the hash to a bucket of the new level; what it has of them is never looked at again, and makes room in time.
//!
//! Growing: 1. the new level is made; 2. all buckets are held until no writer is inside; 3. the depth is stored; 4. the buckets are let
//! go with new versions. Whoever used a bucket looks at the depth again behind it: a writer that entered a bucket of the old depth enters
//! again, a hit of the old depth does not count. A fill of the old depth puts its key where nobody looks for it.

use std::sync::OnceLock;

use lodestone_pmem::sync::atomic::{AtomicUsize, Ordering};
use lodestone_pmem::sync::{Mutex, lock};

use super::key;
use super::policy::WAYS;
use super::table::{After, Bucket, Entered, Probe, Table};
use crate::traits::IndexKey;

/// Most levels; the last ones would not fit any memory.
const LEVELS: usize = 32;
/// First bit of the hash that chooses the level: tags and ghosts use those below.
const LEVEL_SHIFT: u32 = 24;

/// The buckets of all levels.
pub(super) struct Cache<K: IndexKey + ?Sized> {
    levels: [OnceLock<Table<K>>; LEVELS],
    depth: AtomicUsize,
    /// Buckets of level 0.
    base: usize,
    key_words: usize,
    seed: u64,
    /// Held by who makes the cache grow.
    growing: Mutex<()>,
}

/// Where a key belongs.
#[derive(Clone, Copy)]
pub(super) struct At<'c> {
    pub(super) bucket: Bucket<'c>,
    depth: usize,
}

impl<K: IndexKey + ?Sized> Cache<K> {
    /// A cache of at least `entries` entries for keys of up to `key_words` words.
    pub(super) fn new(entries: usize, key_words: usize, seed: u64) -> Self {
        let base = entries.div_ceil(WAYS).max(1);
        let levels: [OnceLock<Table<K>>; LEVELS] = [const { OnceLock::new() }; LEVELS];
        levels[0].get_or_init(|| Table::new(base, key_words, seed));
        Self { levels, depth: AtomicUsize::new(0), base, key_words, seed, growing: Mutex::new(()) }
    }

    /// Entries that fit `bytes` bytes.
    pub(super) fn entries_of(bytes: usize, key_words: usize) -> usize {
        bytes / Table::<K>::bucket_bytes(key_words) * WAYS
    }

    pub(super) fn capacity(&self) -> usize {
        (self.base << self.depth.load(Ordering::Relaxed)) * WAYS
    }

    pub(super) fn bytes(&self) -> usize {
        (self.base << self.depth.load(Ordering::Relaxed)) * Table::<K>::bucket_bytes(self.key_words)
    }

    pub(super) fn key_words(&self) -> usize {
        self.key_words
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    #[inline]
    pub(super) fn hash(&self, words: &[u64]) -> u64 {
        key::hash(self.seed, words)
    }

    /// The level `number`, which is there because a depth names it.
    #[inline]
    fn level(&self, number: usize) -> &Table<K> {
        self.levels[number].get_or_init(|| unreachable!("a level is made before the depth that names it"))
    }

    /// The bucket of level 0 that a key with this hash would belong to: what a sample is chosen by, without touching memory.
    #[inline]
    pub(super) fn base_of(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.base as u128) >> 64) as usize
    }

    /// Where a key with this hash belongs at this moment.
    #[inline]
    pub(super) fn locate(&self, hash: u64) -> At<'_> {
        let depth = self.depth.load(Ordering::Acquire);
        let base = self.base_of(hash);
        let group = (hash >> LEVEL_SHIFT) as usize & ((1 << depth) - 1);
        let bucket = if group == 0 {
            self.level(0).bucket(base)
        } else {
            let below = group.ilog2();
            self.level(below as usize + 1).bucket((group - (1 << below)) * self.base + base)
        };
        At { bucket, depth }
    }

    /// What is cached of the key with these words.
    #[inline]
    pub(super) fn probe(&self, at: At<'_>, words: &[u64], hash: u64) -> Probe {
        match at.bucket.probe(words, hash) {
            Probe::Hit(_) if self.depth.load(Ordering::Acquire) != at.depth => Probe::Changing,
            found => found,
        }
    }

    /// Enters an operation that may change the key in the index; `None` when the caller should look for its cache again and try once more.
    #[inline]
    pub(super) fn enter<'e>(&'e self, words: &'e [u64], hash: u64) -> Option<Entered<'e>> {
        let at = self.locate(hash);
        let entered = at.bucket.enter(words, hash)?;
        if self.depth.load(Ordering::Acquire) != at.depth {
            entered.leave(After::Same);
            return None;
        }
        Some(entered)
    }

    /// Ends the use of the cache: no hit, no fill, and nobody enters from now on; on return, nobody is inside.
    pub(super) fn close(&self) {
        let _growing = lock(&self.growing);
        (0..=self.depth.load(Ordering::Relaxed)).for_each(|level| self.level(level).hold());
    }

    /// Doubles the cache until it has `entries` entries. The caller is not inside an operation. Readers go on meanwhile, with the index;
    /// writers wait for the writers that are inside.
    pub(super) fn grow(&self, entries: usize) {
        let _growing = lock(&self.growing);
        while self.capacity() < entries {
            let depth = self.depth.load(Ordering::Relaxed);
            if depth + 1 == LEVELS {
                return;
            }
            let buckets = self.base << depth;
            self.levels[depth + 1].get_or_init(|| Table::new(buckets, self.key_words, self.seed));
            let tables = || (0..=depth).map(|level| self.level(level));
            tables().for_each(Table::hold);
            self.depth.store(depth + 1, Ordering::Release);
            tables().for_each(Table::release);
        }
    }

    /// The keys that are cached, as words, with their values; nobody may be using the cache.
    pub(super) fn contents(&self) -> Vec<(Vec<u64>, u64)> {
        let depth = self.depth.load(Ordering::Acquire);
        let mut all = Vec::new();
        for bucket in (0..=depth).flat_map(|level| self.level(level).all()) {
            let is_here = |words: &[u64]| self.locate(self.hash(words)).bucket.is(&bucket);
            all.extend(bucket.contents().into_iter().filter(|(words, _)| is_here(words)));
        }
        all
    }
}
