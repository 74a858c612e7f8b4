//! The index: point operations through the hash, everything else through the tree.

use std::hash::{BuildHasher, RandomState};
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, TryLockError};

use lodestone_pmem::Domain;
use lodestone_pmem::sync::Mutex;
use lodestone_pmem::sync::atomic::Ordering;
use lodestone_pmem::sync::thread::{self, JoinHandle};
use lodestone_store::{Object, Store};
use lodestone_width::{to_u64, to_usize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::check::IndexReport;
use crate::error::{Error, Result};
use crate::fastfair::{FastFair, FastFairOptions};
use crate::hybrid_plus::rebuild::Rebuild;
use crate::hybrid_plus::stripe::{Known, Stripe};
use crate::map::Durability;
use crate::recovery::{Progress, Recovery};
use crate::scan::Direction;
use crate::traits::{IndexKey, OpenIndex, OrderedIndex, PointIndex, Swap};

/// The threads that fill the hash after an index was opened.
///
/// ```
/// use lodestone_index::{HybridPlusOptions, WarmUp};
///
/// let options = HybridPlusOptions::default().with_warm_up(WarmUp::Background { threads: 1 });
/// assert_eq!(options.warm_up, WarmUp::Background { threads: 1 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmUp {
    /// Threads of the index, which end when they are done.
    Background {
        /// How many.
        threads: usize,
    },
    /// The threads that use the index: each operation fills in up to `keys` pairs besides. For processes that want no
    /// additional threads.
    WithOperations {
        /// Pairs for each operation; 0: only [`HybridPlus::wait_warm`] fills.
        keys: usize,
    },
}

/// How to create a tree, and how its hash in DRAM is made at each opening.
///
/// ```
/// use lodestone_index::{Durability, HybridPlus, HybridPlusOptions, OpenIndex, PointIndex, WarmUp};
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::Store;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let store = Store::create(&path, &options)?;
/// // No threads of the index: each operation fills ten pairs into the hash.
/// let chosen = HybridPlusOptions::default().with_warm_up(WarmUp::WithOperations { keys: 10 });
/// let index = HybridPlus::<u64>::open_index(&store, "orders", &chosen, Durability::Sync)?;
/// index.insert(&7, 700)?;
/// assert_eq!(index.get(&7)?, Some(700));
/// # Ok::<(), lodestone_index::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HybridPlusOptions {
    /// The tree's. An existing one keeps what it was created with.
    pub tree: FastFairOptions,
    /// Stripes of the hash, a power of two: changes of keys in different ones go on at the same time.
    pub stripes: usize,
    /// Who fills the hash.
    pub warm_up: WarmUp,
    /// Start value of the hash; `None`: a random one at each opening, so that an attacker cannot choose keys that crowd
    /// one stripe.
    pub seed: Option<u64>,
}

impl Default for HybridPlusOptions {
    fn default() -> Self {
        let warm_up = WarmUp::Background { threads: 1 };
        Self { tree: FastFairOptions::default(), stripes: 1024, warm_up, seed: None }
    }
}

impl HybridPlusOptions {
    /// With this way to fill the hash.
    #[must_use]
    pub fn with_warm_up(self, warm_up: WarmUp) -> Self {
        Self { warm_up, ..self }
    }

    /// Nodes and stripes so small that a few keys change the structure and meet each other. For tests.
    #[must_use]
    pub fn small() -> Self {
        let warm_up = WarmUp::WithOperations { keys: 1 };
        Self { tree: FastFairOptions::with_lines(2), stripes: 2, warm_up, seed: Some(1) }
    }
}

/// The space that an index takes.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// use lodestone_index::{Durability, HybridPlus, OpenIndex, PointIndex};
///
/// let index = HybridPlus::<u64>::open_index(&store, "orders", &Default::default(), Durability::Sync)?;
/// index.insert(&7, 700)?;
/// let stats = index.stats();
/// assert!(stats.keys == 1 && stats.pm_bytes > 0);
/// # Ok::<(), lodestone_index::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HybridPlusStats {
    /// Keys in the tree.
    pub keys: u64,
    /// Keys in the hash: the same number once it is warm.
    pub keys_in_dram: u64,
    /// Bytes of the heap's blocks that the tree owns.
    pub pm_bytes: u64,
    /// Bytes of DRAM of the hash, free slots included.
    pub dram_bytes: u64,
}

/// The state that the index and the threads that fill its hash share.
pub(super) struct Shared<K: IndexKey + ?Sized> {
    pub(super) tree: FastFair<K>,
    pub(super) stripes: Box<[Stripe]>,
    stripe_shift: u32,
    seed: u64,
    pub(super) progress: Progress,
    pub(super) rebuild: Rebuild<K>,
    pub(super) stops: AtomicBool,
    /// Held by a bulk load.
    loading: Mutex<()>,
}

/// A durable ordered index whose point reads are answered from DRAM. See the module for the design, [`PointIndex`] and
/// [`OrderedIndex`] for the operations. When it is dropped its threads end first.
///
/// ```
/// use std::ops::Bound;
///
/// use lodestone_index::{Durability, HybridPlus, OpenIndex, OrderedIndex, PointIndex};
/// use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// use lodestone_store::Store;
///
/// let folder = tempfile::tempdir()?;
/// let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let pool = Pool::create(folder.path().join("example.pool"), &options)?;
/// let store = Store::over(&pool)?;
/// let index = HybridPlus::<u64>::open_index(&store, "orders", &Default::default(), Durability::Sync)?;
/// index.insert(&8, 800)?;
/// index.insert(&7, 700)?;
/// drop(index);
/// // Answers at once; the hash is filled in the background.
/// let index = HybridPlus::<u64>::open_index(&store, "orders", &Default::default(), Durability::Sync)?;
/// assert_eq!(index.get(&7)?, Some(700));
/// assert_eq!(index.range(Bound::Unbounded, Bound::Unbounded).count(), 2);
/// index.wait_warm()?;
/// assert_eq!(index.recovery().keys_total, Some(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct HybridPlus<K: IndexKey + ?Sized> {
    shared: Arc<Shared<K>>,
    /// Pairs that each operation fills in.
    keys_per_operation: usize,
    threads: Vec<JoinHandle<()>>,
}

impl<K: IndexKey + ?Sized> std::fmt::Debug for HybridPlus<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HybridPlus").field("tree", &self.shared.tree).finish_non_exhaustive()
    }
}

/// The answer of an update or a removal where the key is known to be absent.
fn absent(found: Option<u64>) -> Option<Option<u64>> {
    if found.is_none() { Some(None) } else { None }
}

/// The effect on the hash of a change of the tree.
enum Effect {
    Nothing,
    Put(u64),
    Remove,
}

impl<K: IndexKey + ?Sized> Shared<K> {
    /// The hash of a key: of a word one to one.
    #[inline]
    pub(super) fn hash(&self, key: &K) -> u64 {
        if K::IS_WORD {
            let mixed = (key.order_word() ^ self.seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
            return mixed ^ (mixed >> 29);
        }
        key.with_bytes(|key| xxh3_64_with_seed(key, self.seed))
    }

    #[inline]
    pub(super) fn stripe_number(&self, hash: u64) -> usize {
        to_usize(hash.checked_shr(self.stripe_shift).unwrap_or(0))
    }

    #[inline]
    pub(super) fn stripe(&self, hash: u64) -> &Stripe {
        &self.stripes[self.stripe_number(hash)]
    }

    fn known(&self, key: &K) -> Known {
        let hash = self.hash(key);
        self.stripe(hash).read(hash, key)
    }

    /// Changes the tree, then the hash, with the key's stripe busy meanwhile. `known`: the answer, where DRAM shows
    /// that there is nothing to change.
    fn change<T>(
        &self,
        key: &K,
        known: impl FnOnce(Option<u64>) -> Option<T>,
        change: impl FnOnce(&FastFair<K>) -> Result<T>,
        effect: impl FnOnce(&T) -> Effect,
    ) -> Result<T> {
        let hash = self.hash(key);
        let stripe = self.stripe(hash);
        stripe.expect::<K>(hash);
        // Most changes have something to do: they need not wait for the line before they go to the tree.
        if stripe.is_idle()
            && let Known::Yes(value) = stripe.read(hash, key)
            && let Some(answer) = known(value)
        {
            return Ok(answer);
        }
        let mut writing = stripe.write();
        let outcome = change(&self.tree);
        let effect = match &outcome {
            Ok(done) => effect(done),
            // An action that met damage may have taken effect all the same, so the tree is read again and its answer
            // counts.
            Err(_) => match self.tree.get(key) {
                Ok(Some(value)) => Effect::Put(value),
                Ok(None) => Effect::Remove,
                // Dropped unfinished: the stripe forgets its entries.
                Err(_) => return outcome,
            },
        };
        stripe.set_idle(matches!(effect, Effect::Nothing));
        match effect {
            Effect::Nothing => {}
            Effect::Put(value) => writing.put(hash, key, value),
            Effect::Remove => writing.remove(hash, key),
        }
        writing.finish();
        outcome
    }
}

impl<K: IndexKey + ?Sized> HybridPlus<K> {
    /// Opens the tree `name`, or creates it, and begins to fill the hash. Reads the anchor and the root
    /// only, however large the tree, and answers everything at once.
    ///
    /// # Errors
    /// As [`OpenIndex::open_index`].
    ///
    /// # Panics
    /// When the options ask for stripes that are not a power of two, or for a tree that [`FastFair::open`] refuses.
    pub fn open(store: &Store, name: &str, options: &HybridPlusOptions, durability: Durability) -> Result<Self> {
        Self::over(|| FastFair::open(store, name, &options.tree, durability), options)
    }

    /// Opens the index over the tree that `tree` opens.
    pub(crate) fn over(tree: impl FnOnce() -> Result<FastFair<K>>, options: &HybridPlusOptions) -> Result<Self> {
        assert!(options.stripes.is_power_of_two(), "the number of stripes is a power of two");
        let progress = Progress::new();
        let tree = tree()?;
        // An empty tree needs no rebuild. If it cannot be read, the operation that reads it reports the error.
        let is_empty = tree.is_empty().unwrap_or(false);
        let sleeps = tree.heap.memory().domain() == Domain::Block;
        let shared = Arc::new(Shared {
            tree,
            stripes: Stripe::many::<K>(options.stripes, is_empty, sleeps),
            stripe_shift: u64::BITS - options.stripes.trailing_zeros(),
            seed: options.seed.unwrap_or_else(|| RandomState::new().hash_one(options.stripes)),
            progress,
            rebuild: Rebuild::new(),
            stops: AtomicBool::new(false),
            loading: Mutex::new(()),
        });
        let (threads, keys_per_operation) = match options.warm_up {
            _ if is_empty => (0, 0),
            WarmUp::Background { threads } => (threads, 0),
            WarmUp::WithOperations { keys } => (0, keys),
        };
        if is_empty {
            shared.progress.warm();
        }
        shared.progress.points_ready();
        shared.progress.ranges_ready();
        shared.progress.announce(threads);
        let threads = (0..threads)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.fill_all())
            })
            .collect();
        Ok(Self { shared, keys_per_operation, threads })
    }

    /// The progress of filling the hash, and its time.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        self.shared.progress.recovery()
    }

    /// Waits until the hash holds every key. Fills in the pairs that no other thread fills.
    ///
    /// # Errors
    /// [`Error::Damaged`] when the tree is damaged somewhere: the hash stays as far as it came, and the tree answers
    /// for what it lacks.
    pub fn wait_warm(&self) -> Result<()> {
        while !self.shared.progress.wait() {
            self.shared.fill_rest()?;
        }
        Ok(())
    }

    /// The space that the index takes. It takes as long as a [`check`](PointIndex::check).
    #[must_use]
    pub fn stats(&self) -> HybridPlusStats {
        let shared = &*self.shared;
        let report = shared.tree.check();
        let header = shared.stripes.len() * size_of::<Stripe>();
        HybridPlusStats {
            keys: report.records,
            keys_in_dram: shared.stripes.iter().map(Stripe::count).sum(),
            pm_bytes: report.blocks.iter().filter_map(|&at| shared.tree.heap.block_bytes(at)).sum(),
            dram_bytes: to_u64(header) + shared.stripes.iter().map(Stripe::dram_bytes).sum::<u64>(),
        }
    }

    /// Fills in some pairs, if operations are to do so.
    #[inline]
    fn carry_on(&self) {
        if self.keys_per_operation > 0 && !self.shared.rebuild.is_over() {
            self.shared.fill_some(self.keys_per_operation);
        }
    }
}

impl<K: IndexKey + ?Sized> Drop for HybridPlus<K> {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // A panic there left the hash incomplete, which costs speed only.
            let _ = thread.join();
        }
    }
}

impl<K: IndexKey + ?Sized> PointIndex for HybridPlus<K> {
    type Key = K;

    #[inline]
    fn get(&self, key: &K) -> Result<Option<u64>> {
        self.carry_on();
        match self.shared.known(key) {
            Known::Yes(value) => Ok(value),
            Known::No => self.shared.tree.get(key),
        }
    }

    fn insert(&self, key: &K, value: u64) -> Result<bool> {
        self.carry_on();
        let known = |found: Option<u64>| found.map(|_| false);
        let put = |is_new: &bool| if *is_new { Effect::Put(value) } else { Effect::Nothing };
        self.shared.change(key, known, |tree| tree.insert(key, value), put)
    }

    fn update(&self, key: &K, value: u64) -> Result<Option<u64>> {
        self.carry_on();
        let put = |before: &Option<u64>| if before.is_some() { Effect::Put(value) } else { Effect::Nothing };
        self.shared.change(key, absent, |tree| tree.update(key, value), put)
    }

    fn upsert(&self, key: &K, value: u64) -> Result<Option<u64>> {
        self.carry_on();
        self.shared.change(key, |_| None, |tree| tree.upsert(key, value), |_| Effect::Put(value))
    }

    fn remove(&self, key: &K) -> Result<Option<u64>> {
        self.carry_on();
        let gone = |before: &Option<u64>| if before.is_some() { Effect::Remove } else { Effect::Nothing };
        self.shared.change(key, absent, |tree| tree.remove(key), gone)
    }

    fn compare_and_swap(&self, key: &K, current: u64, new: u64) -> Result<Swap> {
        self.carry_on();
        let known = |found| match found {
            None => Some(Swap::Absent),
            Some(found) if found != current => Some(Swap::Differs(found)),
            Some(_) => None,
        };
        let put = |swap: &Swap| if *swap == Swap::Done { Effect::Put(new) } else { Effect::Nothing };
        self.shared.change(key, known, |tree| tree.compare_and_swap(key, current, new), put)
    }

    /// Counted in DRAM once the hash is warm; before that, a visit of the whole tree.
    fn len(&self) -> Result<u64> {
        if self.shared.stripes.iter().all(Stripe::is_complete) {
            return Ok(self.shared.stripes.iter().map(Stripe::count).sum());
        }
        self.shared.tree.len()
    }

    fn is_empty(&self) -> Result<bool> {
        self.shared.tree.is_empty()
    }

    fn sync(&self) -> Result<()> {
        self.shared.tree.sync()
    }

    /// The tree's check, and that both structures agree. Call it while no thread changes the index.
    fn check(&self) -> IndexReport {
        let mut report = self.shared.tree.check();
        self.shared.compare(&mut report);
        report
    }
}

impl<K: IndexKey + ?Sized> OrderedIndex for HybridPlus<K> {
    fn scan(
        &self,
        start: Bound<&K>,
        end: Bound<&K>,
        direction: Direction,
        visit: impl FnMut(&K, u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        self.carry_on();
        self.shared.tree.scan(start, end, direction, visit)
    }

    /// As of every index: the tree is loaded leaf by leaf, then the hash is filled from it. If `sorted` panics, what
    /// came before is in the index, and misses in DRAM ask the tree until the index is opened again. A load while
    /// another one is under way is told that the index is not empty.
    fn bulk_load<S>(&self, sorted: S) -> Result<u64>
    where
        S: IntoIterator<Item = (K::Owned, u64)>,
    {
        // Whose load ends says that DRAM knows every key, which is not so while another one goes on. Not waited for:
        // `sorted` may ask for a load.
        let _loading = match self.shared.loading.try_lock() {
            Ok(loading) => loading,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(Error::NotEmpty),
        };
        if !self.is_empty()? {
            return Err(Error::NotEmpty);
        }
        // The tree may have been emptied before the rebuild was done.
        self.wait_warm()?;
        self.shared.load(sorted.into_iter())
    }
}

impl<K: IndexKey + ?Sized> OpenIndex for HybridPlus<K> {
    type Options = HybridPlusOptions;

    fn open_index(store: &Store, name: &str, options: &HybridPlusOptions, durability: Durability) -> Result<Self> {
        Self::open(store, name, options, durability)
    }

    fn open_object(object: Object, options: &HybridPlusOptions, durability: Durability) -> Result<Self> {
        Self::over(|| FastFair::open_object(object, durability), options)
    }
}
