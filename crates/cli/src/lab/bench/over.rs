//! The map over an index as an engine of the workload runner: `lodestone kv put --index fastfair`.
//!
//! A write is durable before it returns, and a read waits until the values that it saw are. So is each record of the
//! load.

use std::ops::{Bound, ControlFlow};

use lodestone_index::{Durability, IndexKind, RecordMap, open_records};
use lodestone_index_bench::lodestone::{counters_of, environment_of};
use lodestone_pmem::Pool;
use lodestone_store::Store;
use lodestone_workload::engine::{self, Engine, EngineCounters, EngineError, Environment, Footprint, Session};

/// Name of the map that benchmarks work on.
const MAP: &str = "bench";

/// A map over an index in an open pool.
pub struct OverEngine {
    map: Box<dyn RecordMap>,
    pool: Pool,
    durability: String,
}

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> EngineError {
    EngineError::new(error)
}

impl OverEngine {
    /// The benchmark's map in `pool`, made if it does not exist. `durability`: for people.
    pub fn open(pool: Pool, kind: IndexKind, durability: String) -> anyhow::Result<Self> {
        let map = open_records(&Store::over(&pool)?, MAP, kind, Durability::Sync)?;
        Ok(Self { map, pool, durability })
    }
}

impl Engine for OverEngine {
    type Session<'a> = OverSession<'a>;

    fn name(&self) -> &str {
        "lodestone-index"
    }

    fn session(&self) -> engine::Result<OverSession<'_>> {
        Ok(OverSession { map: &*self.map })
    }

    fn environment(&self) -> Environment {
        environment_of(&self.pool, self.durability.clone())
    }

    fn counters(&self) -> EngineCounters {
        counters_of(self.pool.memory().domain())
    }

    fn footprint(&self) -> Footprint {
        Footprint { pm_bytes: None, dram_bytes: None }
    }
}

/// A thread's session on the map.
pub struct OverSession<'a> {
    map: &'a dyn RecordMap,
}

impl Session for OverSession<'_> {
    fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> engine::Result<bool> {
        self.map.get_into(key, value).map_err(failed)
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> engine::Result<()> {
        self.map.insert(key, value).map(|_| ()).map_err(failed)
    }

    /// A blind write, as the peers do it. A missing record is made, and reported as missing.
    fn update(&mut self, key: &[u8], value: &[u8]) -> engine::Result<bool> {
        self.map.insert(key, value).map_err(failed)
    }

    fn scan(&mut self, start: &[u8], count: usize) -> engine::Result<usize> {
        let mut seen = 0;
        let mut touch = |key: &[u8], value: &[u8]| {
            std::hint::black_box(key.iter().chain(value).fold(0_u8, |sum, byte| sum ^ byte));
            seen += 1;
            if seen < count { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        self.map.scan(Bound::Included(start), Bound::Unbounded, &mut touch).map_err(failed)?;
        Ok(seen)
    }

    fn remove(&mut self, key: &[u8]) -> engine::Result<bool> {
        self.map.remove(key).map_err(failed)
    }
}
