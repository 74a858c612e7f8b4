//! The simplest engine: a sorted map in DRAM under one lock. No data survives. It tests the runner and shows the cost
//! of the harness itself.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use crate::engine::{Engine, EngineCounters, Environment, Footprint, Result, Session};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A sorted map in DRAM as an [`Engine`].
#[derive(Debug, Default)]
pub struct MemoryEngine {
    map: RwLock<Map>,
}

impl MemoryEngine {
    /// An empty map.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read(BTreeMap::len)
    }

    /// Whether there is no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    // The lock guards no invariant across calls, so a panicked holder leaves a sound map and poisoning is ignored.
    fn read<T>(&self, look: impl FnOnce(&Map) -> T) -> T {
        look(&self.map.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, change: impl FnOnce(&mut Map) -> T) -> T {
        change(&mut self.map.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Engine for MemoryEngine {
    type Session<'a> = MemorySession<'a>;

    fn name(&self) -> &str {
        "memory"
    }

    fn session(&self) -> Result<MemorySession<'_>> {
        Ok(MemorySession { engine: self })
    }

    fn environment(&self) -> Environment {
        Environment { domain: None, media: Some("dram".into()), durability: Some("none".into()) }
    }

    fn counters(&self) -> EngineCounters {
        EngineCounters::default()
    }

    fn footprint(&self) -> Footprint {
        let payload = |map: &Map| map.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        Footprint { pm_bytes: Some(0), dram_bytes: u64::try_from(self.read(payload)).ok() }
    }
}

/// A session of a [`MemoryEngine`].
#[derive(Debug)]
pub struct MemorySession<'a> {
    engine: &'a MemoryEngine,
}

impl Session for MemorySession<'_> {
    fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        Ok(self.engine.read(|map| {
            map.get(key).is_some_and(|found| {
                value.extend_from_slice(found);
                true
            })
        }))
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.engine.write(|map| map.insert(key.into(), value.into()));
        Ok(())
    }

    fn update(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        Ok(self.engine.write(|map| {
            map.get_mut(key).is_some_and(|found| {
                found.clear();
                found.extend_from_slice(value);
                true
            })
        }))
    }

    fn scan(&mut self, start: &[u8], count: usize) -> Result<usize> {
        Ok(self.engine.read(|map| {
            let range = map.range::<[u8], _>((std::ops::Bound::Included(start), std::ops::Bound::Unbounded));
            let touched = range
                .take(count)
                .map(|(key, value)| std::hint::black_box(key.iter().chain(value).fold(0_u8, |a, b| a ^ b)));
            touched.count()
        }))
    }

    fn remove(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.engine.write(|map| map.remove(key).is_some()))
    }
}
