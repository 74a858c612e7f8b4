//! The index with its cache and counts: the state that readers, writers and background threads share.
//!
//! A cache whose size is a share of a non-empty index begins with a small *starter*. A thread counts the keys meanwhile
//! and makes the cache of the right size. It is published while every thread is kept out of all stripes, so at no
//! moment do two caches answer.

use std::sync::OnceLock;

use lodestone_pmem::planted;
use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_width::{nearest_f64, to_u64, to_usize, whole_u64};

use super::cache::Cache;
use super::key;
use super::meter::{Judged, Meter, Slot};
use super::pair::Versions;
use super::stripes::{Stripe, Stripes};
use super::table::{Fill, Key, Probe};
use super::word;
use crate::error::Result;
use crate::traits::PointIndex;

/// Fewest entries of a cache whose capacity is a share of the index.
pub(super) const ENTRIES_MIN: usize = if cfg!(feature = "shuttle") { 6 } else { 1 << 10 };
/// The keys have not been counted: below any count, as a number with a sign.
pub(super) const UNKNOWN: u64 = 1 << 63;

/// The state that all threads of an [`Acs`](super::Acs) share.
pub(super) struct Core<I: PointIndex> {
    pub(super) index: I,
    pub(super) meter: Meter,
    pub(super) stripes: Stripes,
    /// Seed of the hash.
    pub(super) seed: u64,
    /// Words of a cached key.
    pub(super) key_words: usize,
    /// The cache until `sized` is there; for ever, if its size is known from the start.
    pub(super) starter: Cache<I::Key>,
    pub(super) sized: OnceLock<Cache<I::Key>>,
    /// Entries of the cache for each key of the index, when the cache follows the index's size.
    pub(super) share: Option<f64>,
    /// Keys of the index less those that the meter has counted, modulo 2^64, or [`UNKNOWN`].
    pub(super) keys: AtomicU64,
}

/// The effect of an operation of the index on its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// Nothing.
    Same,
    /// It has this value.
    Value(u64),
    /// It is gone, or its value is unknown.
    Unknown,
}

/// Entries of a cache of `share` of `keys` keys.
fn entries_for(keys: u64, share: f64) -> usize {
    to_usize(whole_u64(nearest_f64(keys) * share.clamp(0.0, 1.0))).max(ENTRIES_MIN)
}

impl<I: PointIndex> Core<I> {
    /// The cache at this moment.
    #[inline]
    pub(super) fn cache(&self) -> &Cache<I::Key> {
        self.sized.get().unwrap_or(&self.starter)
    }

    #[inline]
    pub(super) fn hash(&self, words: &[u64]) -> u64 {
        key::hash(self.seed, words)
    }

    /// The cached value of the key with these words, whose stripe had the state `seen` before.
    #[inline]
    pub(super) fn probe(&self, words: &[u64], hash: u64, seen: u64) -> Probe<Versions> {
        if !word::is_even(seen) && !planted::active("acs-hit-while-changing") {
            return Probe::Changing;
        }
        // Loaded after the state: see `cache`.
        let cache = self.cache();
        cache.locate(hash).probe(Key { words, hash }, cache.common().now())
    }

    /// Caches a value that was read after the key's stripe had the state `seen`, and after its buckets missed in
    /// `versions`.
    pub(super) fn fill(&self, words: &[u64], hash: u64, value: u64, (seen, versions): (u64, Versions)) -> Fill {
        let (cache, stripe) = (self.cache(), self.stripes.of(hash));
        let pair = cache.locate(hash);
        // Planted: another reader may have cached the key since, and it is cached twice then.
        let versions = if planted::active("acs-fill-without-miss") { pair.versions() } else { versions };
        let is_current = || word::is_even(seen) && stripe.state() == seen;
        pair.fill(Key { words, hash }, value, versions, cache.common(), is_current)
    }

    /// Whether the key with these words is cached.
    pub(super) fn holds(&self, words: &[u64]) -> bool {
        let hash = self.hash(words);
        let cache = self.cache();
        matches!(cache.locate(hash).probe(Key { words, hash }, cache.common().now()), Probe::Hit(_))
    }

    /// Enters an operation that may change the key with these words in the index.
    #[inline]
    pub(super) fn enter<'e>(&'e self, words: &'e [u64]) -> Entered<'e, I> {
        let hash = self.hash(words);
        let stripe = self.stripes.of(hash);
        let found = stripe.enter();
        // Needed when the index has changed: it comes from memory meanwhile.
        self.cache().locate(hash).prefetch();
        Entered { core: self, words, hash, stripe, found, after: After::Unknown }
    }

    /// Judges whether the calling thread's reads should ask the cache: at the end of a window.
    #[cold]
    pub(super) fn judge(&self, slot: &Slot) {
        let cache = self.cache();
        let (capacity, buckets) = (to_u64(cache.capacity()), cache.base());
        self.meter.judge(slot, &Judged { capacity, buckets, hash_max: |count| cache.hash_max(count) });
    }

    /// Counts the keys and makes the cache of the size that they ask for.
    pub(super) fn size(&self, share: f64) -> Result<()> {
        let keys = self.index.len()?;
        // Keys that came before the count ended are in it, and in the meter, too.
        let before = self.meter.keys_before(keys);
        let sized = Cache::new(entries_for(keys, share), self.key_words, self.seed);
        let is_first = self.stripes.exclusively(|| self.sized.set(sized).is_ok());
        assert!(is_first, "a cache is sized once");
        self.keys.store(before, Ordering::Release);
        Ok(())
    }

    /// Lets the cache grow if the index has grown to twice what it is sized for. The caller is not inside an operation.
    #[cold]
    pub(super) fn follow_size(&self) {
        let (Some(share), before) = (self.share, self.keys.load(Ordering::Acquire)) else { return };
        if before == UNKNOWN {
            return;
        }
        let (wanted, cache) = (entries_for(self.meter.keys(before), share), self.cache());
        // Several threads may want this at once: the depth is asked for again with everybody kept out.
        while wanted >= 2 * cache.capacity() && cache.prepare() {
            self.stripes.exclusively(|| {
                if wanted >= 2 * cache.capacity() {
                    cache.deepen();
                }
            });
        }
    }
}

/// An operation that may change a key in the index is under way. When this is dropped, the cache follows the index, and
/// the operation has ended; after a panic the key is not cached.
pub(super) struct Entered<'e, I: PointIndex> {
    core: &'e Core<I>,
    words: &'e [u64],
    hash: u64,
    stripe: Stripe<'e>,
    /// The stripe's state before.
    found: u64,
    after: After,
}

impl<I: PointIndex> Entered<'_, I> {
    /// Ends the operation, which did this.
    #[inline]
    pub(super) fn leave(mut self, after: After) {
        self.after = after;
    }
}

impl<I: PointIndex> Drop for Entered<'_, I> {
    #[inline]
    fn drop(&mut self) {
        if self.after == After::Same {
            return self.stripe.leave_unchanged();
        }
        let key = Key { words: self.words, hash: self.hash };
        self.core.cache().locate(self.hash).follow(key, || match self.after {
            // Under the latch: a writer that comes later waits for it.
            After::Value(value)
                if word::is_alone(self.found, self.stripe.state()) || planted::active("acs-last-writer-wins") =>
            {
                Some(value)
            }
            // Of several concurrent operations it is unknown which one the index took last.
            _ => None,
        });
        self.stripe.leave();
    }
}
