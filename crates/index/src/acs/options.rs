//! How a cache is made.

use super::key;

/// How reads use the cache.
///
/// ```
/// use lodestone_index::{CacheMode, CacheOptions};
///
/// let always = CacheOptions::default().with_mode(CacheMode::Serial);
/// assert_ne!(always.mode, CacheMode::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CacheMode {
    /// Every read asks the cache, and the index if the cache does not know.
    Serial,
    /// A helper thread searches the index while the reader asks the cache: a miss has waited for nothing. It takes a
    /// processor for that, and handing a search over costs about what asking the cache costs: measure before choosing
    /// it. On a machine with one processor as `Serial`.
    Parallel,
    /// As `Serial` while enough reads hit; else most reads go to the index at once, and a sample of the buckets goes on
    /// to tell whether that is still right.
    #[default]
    Adaptive,
}

/// How many entries a cache has.
///
/// ```
/// use lodestone_index::{CacheCapacity, CacheOptions};
///
/// let mut options = CacheOptions::default();
/// options.capacity = CacheCapacity::Share(0.1); // a tenth of the keys
/// assert_ne!(options.capacity, CacheCapacity::Entries(10));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum CacheCapacity {
    /// At least so many.
    Entries(usize),
    /// As many as fit so many bytes of DRAM; counts and state words beside the entries take about 50 KiB more.
    Bytes(usize),
    /// This share of the keys in the index, 0 to 1.
    Share(f64),
}

impl Default for CacheCapacity {
    fn default() -> Self {
        Self::Share(0.1)
    }
}

/// How a cache is made. Nothing of it is persistent: another choice at the next open is fine.
///
/// ```
/// use lodestone_index::{Acs, AcsOptions, CacheMode, CacheOptions, Durability, FastFair, OpenIndex, PointIndex};
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::Store;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let store = Store::create(&path, &options)?;
/// // A thousand entries, asked before the index.
/// let cache = CacheOptions::default().with_entries(1000).with_mode(CacheMode::Serial);
/// let chosen = AcsOptions { cache, ..AcsOptions::default() };
/// let index = Acs::<FastFair<u64>>::open_index(&store, "numbers", &chosen, Durability::Sync)?;
/// index.insert(&7, 49)?;
/// assert_eq!((index.get(&7)?, index.get(&7)?), (Some(49), Some(49)));
/// assert!(index.stats().hits >= 1);
/// # Ok::<(), lodestone_index::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// How reads use the cache.
    pub mode: CacheMode,
    /// How many entries it has.
    pub capacity: CacheCapacity,
    /// Longest byte string that is cached; longer keys go to the index at once. Every entry takes room for it, so
    /// choose what most keys keep to; at most 127, and rounded up to one less than a multiple of 8. Means nothing for
    /// `u64` keys.
    pub key_bytes: usize,
    /// `Adaptive`: share of hits below which the cache costs more than it saves.
    pub bypass_below: f64,
    /// `Adaptive`: share of hits from which it is used again; larger, so that it does not go to and fro.
    pub resume_above: f64,
    /// Seed of the hash; `None`: a random one, so that an attacker cannot choose keys that crowd one bucket.
    pub seed: Option<u64>,
}

impl CacheMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Serial, Self::Parallel, Self::Adaptive];
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            mode: CacheMode::default(),
            capacity: CacheCapacity::default(),
            key_bytes: key::bytes_max(6),
            bypass_below: 0.15,
            resume_above: 0.2,
            seed: None,
        }
    }
}

impl CacheOptions {
    /// These options with another capacity in entries.
    #[must_use]
    pub fn with_entries(self, entries: usize) -> Self {
        Self { capacity: CacheCapacity::Entries(entries), ..self }
    }

    /// These options with another mode.
    #[must_use]
    pub fn with_mode(self, mode: CacheMode) -> Self {
        Self { mode, ..self }
    }

    /// Words of a cached string.
    pub(super) fn key_words(&self) -> usize {
        self.key_bytes.saturating_add(1).div_ceil(size_of::<u64>()).min(key::WORDS_MAX)
    }
}

/// How to open an index with a cache in front.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// use lodestone_index::{Acs, AcsOptions, CacheOptions, Durability, HashIndex, OpenIndex, PointIndex};
///
/// let options = AcsOptions { cache: CacheOptions::default().with_entries(1000), ..AcsOptions::default() };
/// let index = Acs::<HashIndex<u64>>::open_index(&store, "numbers", &options, Durability::Sync)?;
/// index.insert(&7, 49)?;
/// assert_eq!(index.get(&7)?, Some(49));
/// # Ok::<(), lodestone_index::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct AcsOptions<O> {
    /// How to open the index.
    pub index: O,
    /// How to make the cache.
    pub cache: CacheOptions,
}

impl<O> AcsOptions<O> {
    /// These options for index and cache.
    pub fn new(index: O, cache: CacheOptions) -> Self {
        Self { index, cache }
    }
}
