//! The index: point operations on the hash, ranges on the tree.

use std::borrow::Borrow;
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;
use lodestone_pmem::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use lodestone_pmem::sync::thread::{self, JoinHandle};
use lodestone_pmem::sync::{Mutex, lock};
use lodestone_pmem::{planted, work};
use lodestone_store::{Object, Store};
use lodestone_width::{to_u64, to_usize};

use crate::cells::with_key;
use crate::check::IndexReport;
use crate::error::{Error, Result};
use crate::hash::{HashIndex, HashOptions};
use crate::hybrid::apply::{Kept, UpdateQueue};
use crate::hybrid::queue::Queue;
use crate::hybrid::rebuild::PARTS;
use crate::hybrid::tree::Tree;
use crate::map::Durability;
use crate::recovery::{Progress, Recovery};
use crate::scan::Direction;
use crate::traits::{IndexKey, OpenIndex, OrderedIndex, PointIndex, Swap};

/// The threads that bring changes into the tree.
///
/// ```
/// use lodestone_index::{Apply, HybridOptions};
///
/// let mut options = HybridOptions::default();
/// options.apply = Apply::Background { threads: 2 };
/// assert_ne!(options.apply, Apply::WithOperations);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apply {
    /// Threads of the index, each with a queue of its own.
    Background {
        /// How many, at least 1.
        threads: usize,
    },
    /// The threads that use the index: a range applies the updates that it waits for, a change the ones that leave it
    /// no room. For processes that want no additional threads.
    WithOperations,
}

/// How to create a hash index, and how its tree in DRAM is made at each opening.
///
/// ```
/// use lodestone_index::{Apply, Durability, Hybrid, HybridOptions, OpenIndex, OrderedIndex, PointIndex};
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::Store;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let store = Store::create(&path, &options)?;
/// // No threads of the index: those that use it do all the work.
/// let mut chosen = HybridOptions::default();
/// chosen.apply = Apply::WithOperations;
/// chosen.rebuild_threads = 0;
/// let index = Hybrid::<u64>::open_index(&store, "orders", &chosen, Durability::Sync)?;
/// index.insert(&8, 800)?;
/// index.insert(&7, 700)?;
/// assert_eq!(index.first()?, Some((7, 700)));
/// # Ok::<(), lodestone_index::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HybridOptions {
    /// The options of the hash. An existing hash keeps its own.
    pub hash: HashOptions,
    /// The threads that bring changes into the tree.
    pub apply: Apply,
    /// Most updates that wait in a queue: a thread that finds it full helps.
    pub queue_updates_max: usize,
    /// Threads of the index that rebuild the tree after opening; 0: the first range does (until then the last change of
    /// each key is kept in DRAM).
    pub rebuild_threads: usize,
    /// Locks that keep changes of one key in order; keys share them by hash.
    pub stripes: usize,
    /// Most pairs of a leaf of the tree, at least 4.
    pub leaf_pairs: usize,
}

impl Default for HybridOptions {
    fn default() -> Self {
        let rebuild_threads = work::processors().min(8);
        Self {
            hash: HashOptions::default(),
            apply: Apply::Background { threads: 1 },
            queue_updates_max: 4096,
            rebuild_threads,
            stripes: 256,
            leaf_pairs: 128,
        }
    }
}

impl HybridOptions {
    /// Segments, leaves and queues so small that a few keys change the structure and fill the queue, without threads.
    /// For tests.
    #[must_use]
    pub fn small() -> Self {
        Self {
            hash: HashOptions::small(),
            apply: Apply::WithOperations,
            queue_updates_max: 2,
            rebuild_threads: 0,
            stripes: 2,
            leaf_pairs: 4,
        }
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
/// use lodestone_index::{Durability, Hybrid, OpenIndex, PointIndex};
///
/// let index = Hybrid::<u64>::open_index(&store, "orders", &Default::default(), Durability::Sync)?;
/// index.insert(&7, 700)?;
/// let stats = index.stats();
/// assert!(stats.keys == 1 && stats.pm_bytes > 0);
/// # Ok::<(), lodestone_index::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HybridStats {
    /// Keys in the hash.
    pub keys: u64,
    /// Keys in the tree: the same number when nothing waits in a queue.
    pub keys_in_dram: u64,
    /// Bytes of the heap's blocks that the hash owns.
    pub pm_bytes: u64,
    /// Bytes of DRAM: the tree, and the state needed to read the hash.
    pub dram_bytes: u64,
}

/// Sorted pairs of the threads that rebuild.
pub(super) struct Runs<K: IndexKey + ?Sized> {
    pub(super) done: Vec<Vec<(K::Owned, u64)>>,
    /// Threads that have not finished.
    pub(super) threads: usize,
    pub(super) has_failed: bool,
}

/// The state that the index and its threads share.
pub(super) struct Shared<K: IndexKey + ?Sized> {
    pub(super) hash: HashIndex<K>,
    pub(super) tree: OnceLock<Tree<K>>,
    pub(super) leaf_pairs: usize,
    pub(super) queues: Vec<UpdateQueue<K>>,
    pub(super) stripes: Box<[CachePadded<Mutex<()>>]>,
    /// Keys for which tree and hash may differ.
    pub(super) suspects: Mutex<Vec<K::Owned>>,
    pub(super) suspects_count: AtomicU64,
    /// Held by the thread that asks the hash about suspects; taken before all other locks.
    pub(super) settling: Mutex<()>,
    pub(super) progress: Progress,
    pub(super) runs: Mutex<Runs<K>>,
    pub(super) next_part: AtomicU64,
    pub(super) stops: AtomicBool,
    /// For a planted bug.
    pub(super) turn: AtomicU64,
}

/// A durable ordered index with constant-time point operations. See the module for the design, [`PointIndex`] and
/// [`OrderedIndex`] for the operations. When it is dropped its threads end first.
///
/// ```
/// use std::ops::Bound;
///
/// use lodestone_index::{Durability, Hybrid, OpenIndex, OrderedIndex, PointIndex};
/// use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// use lodestone_store::Store;
///
/// let folder = tempfile::tempdir()?;
/// let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let pool = Pool::create(folder.path().join("example.pool"), &options)?;
/// let store = Store::over(&pool)?;
/// let index = Hybrid::<u64>::open_index(&store, "orders", &Default::default(), Durability::Sync)?;
/// index.insert(&8, 800)?;
/// index.insert(&7, 700)?;
/// drop(index);
/// // Points are answered at once, ranges when the tree is rebuilt.
/// let index = Hybrid::<u64>::open_index(&store, "orders", &Default::default(), Durability::Sync)?;
/// assert_eq!(index.get(&7)?, Some(700));
/// assert_eq!(index.range(Bound::Unbounded, Bound::Unbounded).count(), 2);
/// assert_eq!(index.recovery().keys_total, Some(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Hybrid<K: IndexKey + ?Sized> {
    pub(super) shared: Arc<Shared<K>>,
    threads: Vec<JoinHandle<()>>,
}

impl<K: IndexKey + ?Sized> std::fmt::Debug for Hybrid<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hybrid").field("hash", &self.shared.hash).finish_non_exhaustive()
    }
}

/// The effect on the tree of a change of the hash.
enum Effect {
    Nothing,
    Became(Option<u64>),
}

impl<K: IndexKey + ?Sized> Shared<K> {
    pub(super) fn stripe_of(&self, key: &K) -> usize {
        let hash = with_key(key, |key| key.hash(self.hash.seed));
        to_usize(hash) % self.stripes.len()
    }

    /// Changes the hash and leaves the update in the queue.
    fn change<T>(
        &self,
        key: &K,
        change: impl FnOnce(&HashIndex<K>) -> Result<T>,
        effect: impl FnOnce(&T) -> Effect,
    ) -> Result<T> {
        let stripe = self.stripe_of(key);
        let held = lock(&self.stripes[stripe]);
        if planted::active("hybrid-queue-behind-hash") {
            // Planted: a range may miss a value that a point read shows.
            let outcome = change(&self.hash)?;
            if let Effect::Became(value) = effect(&outcome) {
                self.begin(key, stripe).became(value);
            }
            return Ok(outcome);
        }
        let pending = self.begin(key, stripe);
        let outcome = change(&self.hash);
        match &outcome {
            Ok(done) => match effect(done) {
                Effect::Nothing => pending.stayed(),
                Effect::Became(value) => pending.became(value),
            },
            // An action that met damage may have taken effect all the same, so the hash is read again and its answer
            // counts.
            Err(_) => match self.hash.get(key) {
                Ok(value) => pending.became(value),
                Err(_) => drop(pending),
            },
        }
        drop(held);
        outcome
    }

    fn compare(&self, report: &mut IndexReport) -> Result<()> {
        let at = self.hash.anchor.at;
        let tree = self.tree()?;
        self.catch_up()?;
        let (mut count, mut outcome) = (0, Ok(()));
        tree.scan(Bound::Unbounded, Bound::Unbounded, Direction::Ascending, |key, value| {
            count += 1;
            match self.hash.get(key) {
                Ok(Some(found)) if found == value => {}
                Ok(found) => report.find(at, format!("{key:?} has {found:?} in the hash and {value} in the tree")),
                Err(error) => {
                    outcome = Err(error);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        outcome?;
        let expected = self.hash.len()?;
        if count != expected {
            report.find(at, format!("the tree holds {count} keys, the hash {expected}"));
        }
        Ok(())
    }
}

impl<K: IndexKey + ?Sized> Hybrid<K> {
    /// Opens the hash `name`, or creates it, and begins to rebuild the tree. Returns when points are answered,
    /// which does not depend on the number of keys.
    ///
    /// # Errors
    /// As [`OpenIndex::open_index`].
    ///
    /// # Panics
    /// When the options ask for no stripe, no thread to apply, leaves of fewer than 4 pairs, or a hash that
    /// [`HashIndex::open_with`] refuses.
    pub fn open(store: &Store, name: &str, options: &HybridOptions, durability: Durability) -> Result<Self> {
        Self::over(|| HashIndex::open_index(store, name, &options.hash, durability), options)
    }

    /// Opens the index over the hash that `hash` opens.
    pub(crate) fn over(hash: impl FnOnce() -> Result<HashIndex<K>>, options: &HybridOptions) -> Result<Self> {
        assert!(options.stripes > 0 && options.leaf_pairs >= 4, "stripes, and leaves of at least 4 pairs");
        let (queues, workers) = match options.apply {
            Apply::Background { threads } => (threads, threads),
            Apply::WithOperations => (1, 0),
        };
        assert!(queues > 0, "at least one thread applies");
        let progress = Progress::new();
        let hash = hash()?;
        let shared = Arc::new(Shared {
            hash,
            tree: OnceLock::new(),
            leaf_pairs: options.leaf_pairs,
            queues: (0..queues).map(|_| Queue::new(options.queue_updates_max, Kept::<K>::new())).collect(),
            stripes: (0..options.stripes).map(|_| CachePadded::new(Mutex::new(()))).collect(),
            suspects: Mutex::new(Vec::new()),
            suspects_count: AtomicU64::new(0),
            settling: Mutex::new(()),
            progress,
            runs: Mutex::new(Runs { done: Vec::new(), threads: options.rebuild_threads, has_failed: false }),
            next_part: AtomicU64::new(0),
            stops: AtomicBool::new(false),
            turn: AtomicU64::new(0),
        });
        shared.progress.set_parts(PARTS);
        shared.progress.points_ready();
        shared.progress.announce(options.rebuild_threads);
        let mut threads = Vec::new();
        for _ in 0..options.rebuild_threads {
            let shared = Arc::clone(&shared);
            threads.push(thread::spawn(move || shared.rebuild_some()));
        }
        for number in 0..workers {
            let shared = Arc::clone(&shared);
            threads.push(thread::spawn(move || shared.work(number)));
        }
        Ok(Self { shared, threads })
    }

    /// The progress of the tree's rebuild, and its time.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        self.shared.progress.recovery()
    }

    /// Waits until ranges are answered.
    ///
    /// # Errors
    /// [`Error::Damaged`] when the hash is damaged somewhere: every range says the same.
    pub fn wait_warm(&self) -> Result<()> {
        self.shared.tree().map(drop)
    }

    /// The space that the index takes. It takes as long as a [`check`](PointIndex::check).
    #[must_use]
    pub fn stats(&self) -> HybridStats {
        let stats = self.shared.hash.stats();
        let (keys_in_dram, tree_bytes) = self.shared.tree.get().map_or((0, 0), Tree::size);
        let stripes = self.shared.stripes.len() * size_of::<CachePadded<Mutex<()>>>();
        HybridStats {
            keys: stats.pairs,
            keys_in_dram,
            pm_bytes: stats.pm_bytes,
            dram_bytes: stats.dram_bytes + tree_bytes + to_u64(stripes),
        }
    }
}

impl<K: IndexKey + ?Sized> Drop for Hybrid<K> {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::Release);
        self.shared.queues.iter().for_each(Queue::close);
        for thread in self.threads.drain(..) {
            // A panic there is not the caller's: the work that the thread left undone was for this index only.
            let _ = thread.join();
        }
    }
}

impl<K: IndexKey + ?Sized> PointIndex for Hybrid<K> {
    type Key = K;

    #[inline]
    fn get(&self, key: &K) -> Result<Option<u64>> {
        self.shared.hash.get(key)
    }

    fn insert(&self, key: &K, value: u64) -> Result<bool> {
        let put = |is_new: &bool| if *is_new { Effect::Became(Some(value)) } else { Effect::Nothing };
        self.shared.change(key, |hash| hash.insert(key, value), put)
    }

    fn update(&self, key: &K, value: u64) -> Result<Option<u64>> {
        let put = |before: &Option<u64>| if before.is_some() { Effect::Became(Some(value)) } else { Effect::Nothing };
        self.shared.change(key, |hash| hash.update(key, value), put)
    }

    fn upsert(&self, key: &K, value: u64) -> Result<Option<u64>> {
        self.shared.change(key, |hash| hash.upsert(key, value), |_| Effect::Became(Some(value)))
    }

    fn remove(&self, key: &K) -> Result<Option<u64>> {
        let gone = |before: &Option<u64>| if before.is_some() { Effect::Became(None) } else { Effect::Nothing };
        self.shared.change(key, |hash| hash.remove(key), gone)
    }

    fn compare_and_swap(&self, key: &K, current: u64, new: u64) -> Result<Swap> {
        let put = |swap: &Swap| if *swap == Swap::Done { Effect::Became(Some(new)) } else { Effect::Nothing };
        self.shared.change(key, |hash| hash.compare_and_swap(key, current, new), put)
    }

    /// The hash's length: exact while no thread changes the index.
    fn len(&self) -> Result<u64> {
        self.shared.hash.len()
    }

    fn is_empty(&self) -> Result<bool> {
        self.shared.hash.is_empty()
    }

    fn sync(&self) -> Result<()> {
        self.shared.hash.sync()
    }

    /// The hash's check, and that both structures agree. Call it while no thread changes the index.
    fn check(&self) -> IndexReport {
        let mut report = self.shared.hash.check();
        if let Err(error) = self.shared.compare(&mut report) {
            report.find_error(self.shared.hash.anchor.at, error);
        }
        report
    }
}

impl<K: IndexKey + ?Sized> OrderedIndex for Hybrid<K> {
    fn scan(
        &self,
        start: Bound<&K>,
        end: Bound<&K>,
        direction: Direction,
        visit: impl FnMut(&K, u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        let tree = self.shared.tree()?;
        self.shared.catch_up()?;
        Ok(tree.scan(start, end, direction, visit))
    }

    /// As of every index; pairs go into the tree at once, not through the queue.
    fn bulk_load<S>(&self, sorted: S) -> Result<u64>
    where
        S: IntoIterator<Item = (K::Owned, u64)>,
    {
        if !self.is_empty()? {
            return Err(Error::NotEmpty);
        }
        let tree = self.shared.tree()?;
        self.shared.drain();
        let mut last: Option<K::Owned> = None;
        let mut count = 0;
        for (key, value) in sorted {
            if last.as_ref().is_some_and(|last| key <= *last) {
                return Err(Error::NotSorted { position: count });
            }
            if let Err(error) = self.shared.hash.insert(key.borrow(), value) {
                self.shared.suspect(key);
                return Err(error);
            }
            tree.put(key.clone(), value);
            last = Some(key);
            count += 1;
        }
        self.sync()?;
        Ok(count)
    }
}

impl<K: IndexKey + ?Sized> OpenIndex for Hybrid<K> {
    type Options = HybridOptions;

    fn open_index(store: &Store, name: &str, options: &HybridOptions, durability: Durability) -> Result<Self> {
        Self::open(store, name, options, durability)
    }

    fn open_object(object: Object, options: &HybridOptions, durability: Durability) -> Result<Self> {
        Self::over(|| HashIndex::open_object(object, &options.hash, durability), options)
    }
}
