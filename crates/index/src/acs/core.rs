//! The index with its cache and counts: what readers, writers and the threads behind them share.
//!
//! A cache whose size is a share of an index that holds something begins with a small *starter*; a thread counts the keys meanwhile and makes
//! the cache of the right size. It closes the starter for ever first, so that no writer is inside and no reader hits there, and
//! publishes the other one then: at no moment two caches say something.

use std::sync::OnceLock;

use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_pmem::sync::spin;

use super::cache::Cache;
use super::meter::Meter;
use super::table::Entered;
use crate::error::Result;
use crate::traits::PointIndex;

/// Fewest entries of a cache whose capacity is a share of the index.
pub(super) const ENTRIES_MIN: usize = if cfg!(feature = "shuttle") { 6 } else { 1 << 10 };
/// The keys have not been counted.
pub(super) const UNKNOWN: u64 = u64::MAX;

/// What all threads of an [`Acs`](super::Acs) share.
pub(super) struct Core<I: PointIndex> {
    pub(super) index: I,
    pub(super) meter: Meter,
    /// The cache until `sized` is there; for ever, if its size is known from the start.
    pub(super) starter: Cache<I::Key>,
    pub(super) sized: OnceLock<Cache<I::Key>>,
    /// Entries of the cache for each key of the index, when the cache follows the index's size.
    pub(super) share: Option<f64>,
    /// Keys that were in the index when the cache was sized, or [`UNKNOWN`].
    pub(super) keys: AtomicU64,
}

/// Entries of a cache of `share` of `keys` keys.
fn entries_for(keys: u64, share: f64) -> usize {
    ((keys as f64 * share.clamp(0.0, 1.0)) as usize).max(ENTRIES_MIN)
}

impl<I: PointIndex> Core<I> {
    /// The cache at this moment.
    #[inline]
    pub(super) fn cache(&self) -> &Cache<I::Key> {
        self.sized.get().unwrap_or(&self.starter)
    }

    /// Enters an operation that may change the key with these words in the index.
    #[inline]
    pub(super) fn enter<'e>(&'e self, words: &'e [u64]) -> Entered<'e> {
        let mut turn = 0;
        loop {
            let cache = self.cache();
            if let Some(entered) = cache.enter(words, cache.hash(words)) {
                return entered;
            }
            turn += 1;
            spin(turn);
        }
    }

    /// Counts the keys and makes the cache of the size that they ask for.
    pub(super) fn size(&self, share: f64) -> Result<()> {
        let keys = self.index.len()?;
        let sized = Cache::new(entries_for(keys, share), self.starter.key_words(), self.starter.seed());
        self.starter.close();
        if self.sized.set(sized).is_err() {
            unreachable!("a cache is sized once");
        }
        self.keys.store(keys, Ordering::Release);
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
        if wanted >= 2 * cache.capacity() {
            cache.grow(wanted / 2 + 1);
        }
    }
}
