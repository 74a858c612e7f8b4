//! The ordered map as an engine of the workload runner.
//!
//! The meaning of an acknowledgement is chosen once:
//! - `sync`: a write is durable before it returns, and a read waits until the values it saw are durable;
//! - `relaxed`: writes are ordered but not waited for, and reads may return values that could still be lost;
//! - `process`: as `sync`, in a domain that survives the death of the process only.
//!
//! The load phase is relaxed in every case. [`Engine::finish_load`] makes all of it durable.

use std::ops::{Bound, ControlFlow};

use lodestone_index::{Direction, OrderedMap};
use lodestone_index_bench::lodestone::{counters_of, environment_of};
use lodestone_pmem::{LINE_BYTES, Pool};
use lodestone_store::Store;
use lodestone_workload::engine::{self, Engine, EngineCounters, EngineError, Environment, Footprint, Session};

use super::place::Durability;

/// Name of the map that benchmarks work on.
const MAP: &str = "bench";

/// A map in an open pool.
pub struct MapEngine {
    map: OrderedMap,
    pool: Pool,
    durability: Durability,
}

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> EngineError {
    EngineError::new(error)
}

impl MapEngine {
    /// The benchmark's map in `pool`, made if it does not exist.
    pub fn open(pool: Pool, durability: Durability) -> anyhow::Result<Self> {
        let store = Store::over(&pool)?;
        let map = OrderedMap::open(&store, MAP)?;
        Ok(Self { map, pool, durability })
    }

    fn map_durability(&self) -> lodestone_index::Durability {
        match self.durability {
            Durability::Sync | Durability::Process => lodestone_index::Durability::Sync,
            Durability::Relaxed => lodestone_index::Durability::Relaxed,
        }
    }
}

impl Engine for MapEngine {
    type Session<'a> = MapSession<'a>;

    fn name(&self) -> &str {
        "lodestone"
    }

    fn session(&self) -> engine::Result<MapSession<'_>> {
        Ok(MapSession { map: &self.map, durability: self.map_durability() })
    }

    fn load_session(&self) -> engine::Result<MapSession<'_>> {
        Ok(MapSession { map: &self.map, durability: lodestone_index::Durability::Relaxed })
    }

    fn finish_load(&self) -> engine::Result<()> {
        let memory = self.pool.memory();
        // Groups become durable in order, so waiting for a line that joins now waits for every earlier line of every
        // thread. The line's content does not matter: it is written back unchanged.
        let (start, _) = self.pool.heap_area(0);
        memory.persist(start, LINE_BYTES);
        memory.durable().map_err(failed)
    }

    fn environment(&self) -> Environment {
        environment_of(&self.pool, self.durability.to_string())
    }

    fn counters(&self) -> EngineCounters {
        counters_of(self.pool.memory().domain())
    }

    fn footprint(&self) -> Footprint {
        let stats = self.map.stats();
        Footprint { pm_bytes: Some(stats.pm_bytes), dram_bytes: Some(stats.dram_bytes) }
    }
}

/// A thread's session on the map.
pub struct MapSession<'a> {
    map: &'a OrderedMap,
    durability: lodestone_index::Durability,
}

impl MapSession<'_> {
    fn put(&self, key: &[u8], value: &[u8]) -> engine::Result<bool> {
        match self.durability {
            lodestone_index::Durability::Sync => self.map.insert(key, value),
            lodestone_index::Durability::Relaxed => self.map.insert_relaxed(key, value),
        }
        .map_err(failed)
    }
}

impl Session for MapSession<'_> {
    fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> engine::Result<bool> {
        self.map.get_with(key, value, self.durability).map_err(failed)
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> engine::Result<()> {
        self.put(key, value).map(|_| ())
    }

    /// A blind write, as the peers do it. A missing record is made, and reported as missing.
    fn update(&mut self, key: &[u8], value: &[u8]) -> engine::Result<bool> {
        self.put(key, value)
    }

    fn scan(&mut self, start: &[u8], count: usize) -> engine::Result<usize> {
        let mut seen = 0;
        let mut touch = |key: &[u8], value: &[u8]| {
            std::hint::black_box(key.iter().chain(value).fold(0_u8, |sum, byte| sum ^ byte));
            seen += 1;
            if seen < count { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let range = (Bound::Included(start), Bound::Unbounded);
        self.map.scan_with(range.0, range.1, Direction::Ascending, self.durability, &mut touch).map_err(failed)?;
        Ok(seen)
    }

    fn remove(&mut self, key: &[u8]) -> engine::Result<bool> {
        match self.durability {
            lodestone_index::Durability::Sync => self.map.remove(key),
            lodestone_index::Durability::Relaxed => self.map.remove_relaxed(key),
        }
        .map_err(failed)
    }
}
