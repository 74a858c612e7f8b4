//! A persistent index as a target of the runner.

use lodestone_heap::Heap;
use lodestone_index::{Durability, IndexKey};
use lodestone_pmem::{Counters, Domain, Pool, process_counters};
use lodestone_store::Store;
use lodestone_workload::engine::{EngineCounters, EngineError, Environment};

use crate::kinds::BenchIndex;
use crate::target::{Result, Session, Target, unordered};

/// Name of a benchmark's index.
pub const ROOT: &str = "bench";

/// An open index.
#[derive(Debug)]
pub struct IndexTarget<I> {
    index: I,
    store: Store,
    name: String,
    durability: String,
}

impl<I: BenchIndex> IndexTarget<I> {
    /// Opens the index in `store`, or creates it. `durability` is the description of its acknowledgements in results.
    ///
    /// # Errors
    /// Those of the index.
    pub fn open(store: &Store, name: &str, options: &I::Options, mode: Durability, durability: &str) -> Result<Self> {
        let index = I::open_index(store, ROOT, options, mode).map_err(EngineError::new)?;
        Ok(Self { index, store: store.clone(), name: name.into(), durability: durability.into() })
    }

    /// The index itself.
    #[must_use]
    pub fn index(&self) -> &I {
        &self.index
    }

    /// Bytes of all blocks of the heap that are allocated.
    #[must_use]
    pub fn pm_bytes(&self) -> u64 {
        heap_bytes(self.store.heap())
    }
}

/// Bytes of all blocks of `heap` that are allocated.
#[must_use]
pub fn heap_bytes(heap: &Heap) -> u64 {
    let mut sum = 0;
    heap.for_each_block(|_, bytes| sum += bytes);
    sum
}

/// The environment of a benchmark of `pool`. `durability` is the description of its acknowledgements in results.
#[must_use]
pub fn environment_of(pool: &Pool, durability: String) -> Environment {
    let info = pool.info();
    Environment { domain: Some(info.domain_label()), media: Some(info.media_label()), durability: Some(durability) }
}

/// The process's persistence events in `domain` so far.
#[must_use]
pub fn counters_of(domain: Domain) -> EngineCounters {
    counters_in(domain, &process_counters())
}

/// Persistence events in `domain`, of a thread or of the process.
#[must_use]
pub fn counters_in(domain: Domain, counters: &Counters) -> EngineCounters {
    EngineCounters {
        fences: Some(counters.fences),
        flushes: Some(counters.flushes),
        pm_bytes: Some(match domain {
            // Bytes written to the device at commit: the lines with their addresses, headers and padding.
            Domain::Block => counters.journal_bytes,
            _ => counters.pm_bytes(),
        }),
        media_blocks: Some(counters.media_blocks),
        syncs: Some(counters.syncs),
        aborts: None,
        commits: None,
    }
}

impl<I: BenchIndex> Target for IndexTarget<I> {
    type Key = I::Key;
    type Session<'t>
        = &'t I
    where
        Self: 't;

    fn name(&self) -> String {
        self.name.clone()
    }

    fn session(&self) -> Result<&I> {
        Ok(&self.index)
    }

    fn finish_load(&self) -> Result<()> {
        self.index.sync().map_err(EngineError::new)
    }

    fn is_ordered(&self) -> bool {
        I::IS_ORDERED
    }

    fn keys_now(&self) -> Result<Option<u64>> {
        self.index.len().map(Some).map_err(EngineError::new)
    }

    fn environment(&self) -> Environment {
        environment_of(self.store.pool(), self.durability.clone())
    }

    fn counters(&self) -> EngineCounters {
        counters_of(self.store.memory().domain())
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        self.index.counts()
    }
}

impl<K: IndexKey + ?Sized, I: BenchIndex<Key = K>> Session for &I {
    type Key = K;

    #[inline]
    fn get(&mut self, key: &K) -> Result<Option<u64>> {
        I::get(self, key).map_err(EngineError::new)
    }

    #[inline]
    fn insert(&mut self, key: &K, value: u64) -> Result<bool> {
        I::insert(self, key, value).map_err(EngineError::new)
    }

    #[inline]
    fn update(&mut self, key: &K, value: u64) -> Result<bool> {
        Ok(I::update(self, key, value).map_err(EngineError::new)?.is_some())
    }

    #[inline]
    fn remove(&mut self, key: &K) -> Result<bool> {
        Ok(I::remove(self, key).map_err(EngineError::new)?.is_some())
    }

    fn scan(&mut self, start: &K, count: u64) -> Result<u64> {
        let seen = self.read_range(start, count).map_err(EngineError::new)?;
        seen.ok_or_else(|| unordered("this index"))
    }
}
