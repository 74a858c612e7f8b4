//! YCSB on the ordered map alone. Prints one JSON line for the run, and on the way how long the load and a reopen took.
//!
//! ```text
//! cargo run --release -p lodestone-index --example ycsb -- DOMAIN THREADS [WORKLOAD [RECORDS [OPERATIONS]]]
//! ```
//!
//! `DOMAIN` is `process`, `block` or `dax-emulated` (not durable, for measurements), `WORKLOAD` is `A` to `F`.

use std::ops::{Bound, ControlFlow};
use std::time::Instant;

use lodestone_index::OrderedMap;
use lodestone_pmem::{Pool, PoolOptions, process_counters};
use lodestone_store::Store;
use lodestone_workload::engine::{Engine, EngineCounters, EngineError, Environment, Footprint, Result, Session};
use lodestone_workload::runner::Runner;
use lodestone_workload::ycsb::{Spec, Workload};

struct MapEngine {
    map: OrderedMap,
    domain: String,
}

struct MapSession<'a> {
    map: &'a OrderedMap,
    relaxed: bool,
}

impl Engine for MapEngine {
    type Session<'a> = MapSession<'a>;

    fn name(&self) -> &str {
        "lodestone"
    }

    fn session(&self) -> Result<MapSession<'_>> {
        Ok(MapSession { map: &self.map, relaxed: false })
    }

    fn load_session(&self) -> Result<MapSession<'_>> {
        Ok(MapSession { map: &self.map, relaxed: true })
    }

    fn finish_load(&self) -> Result<()> {
        self.map.sync().map_err(EngineError::new)
    }

    fn environment(&self) -> Environment {
        let durability = if self.domain == "block" { "sync" } else { "process" };
        Environment { domain: Some(self.domain.clone()), media: None, durability: Some(durability.into()) }
    }

    fn counters(&self) -> EngineCounters {
        let now = process_counters();
        EngineCounters {
            fences: Some(now.fences),
            flushes: Some(now.flushes),
            pm_bytes: Some(now.pm_bytes()),
            media_blocks: Some(now.media_blocks),
            syncs: Some(now.syncs),
            ..EngineCounters::default()
        }
    }

    fn footprint(&self) -> Footprint {
        let stats = self.map.stats();
        Footprint { pm_bytes: Some(stats.pm_bytes), dram_bytes: Some(stats.dram_bytes) }
    }
}

impl Session for MapSession<'_> {
    fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.map.get_into(key, value).map_err(EngineError::new)
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let insert = if self.relaxed { OrderedMap::insert_relaxed } else { OrderedMap::insert };
        insert(self.map, key, value).map(drop).map_err(EngineError::new)
    }

    fn update(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.map.update(key, value).map_err(EngineError::new)
    }

    fn scan(&mut self, start: &[u8], count: usize) -> Result<usize> {
        let mut seen = 0;
        let visit = &mut |key: &[u8], value: &[u8]| {
            std::hint::black_box(key.iter().chain(value).fold(0_u8, |a, b| a ^ b));
            seen += 1;
            if seen == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        self.map.scan(Bound::Included(start), Bound::Unbounded, visit).map_err(EngineError::new)?;
        Ok(seen)
    }

    fn remove(&mut self, key: &[u8]) -> Result<bool> {
        self.map.remove(key).map_err(EngineError::new)
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let text = |index: usize, default: &'static str| args.get(index).map_or(default, String::as_str).to_owned();
    let domain = text(0, "process");
    let number = |index: usize, default: &'static str| text(index, default).parse::<u64>();
    let spec = Spec {
        threads: usize::try_from(number(1, "1")?)?,
        records: number(3, "1000000")?,
        operations: number(4, "2000000")?,
        ..Spec::new(text(2, "A").parse::<Workload>()?)
    };
    let folder = tempfile::tempdir_in(".")?;
    let path = folder.path().join("ycsb.pool");
    let options = PoolOptions {
        domain: domain.parse()?,
        size_bytes: (64 << 20) + spec.records * 320,
        journal_bytes: 64 << 20,
        ..PoolOptions::default()
    };
    let pool = Pool::create(&path, &options)?;
    let store = Store::over(&pool)?;
    let engine = MapEngine { map: OrderedMap::open(&store, "map")?, domain };
    let started = Instant::now();
    Runner::new(&engine, &spec).load()?;
    let load_ms = started.elapsed().as_millis();
    let outcome = Runner::new(&engine, &spec).run()?;
    println!("{}", outcome.result.to_json_line());
    drop((engine, store, pool));
    let started = Instant::now();
    let pool = Pool::open(&path, &options)?;
    let pool_ms = started.elapsed().as_millis();
    let store = Store::over(&pool)?;
    let heap_ms = started.elapsed().as_millis();
    let map = OrderedMap::open(&store, "map")?;
    let map_ms = started.elapsed().as_millis();
    println!(
        "load {load_ms} ms; reopen {} records: pool {pool_ms} ms, heap {} ms, map {} ms",
        map.len()?,
        heap_ms - pool_ms,
        map_ms - heap_ms
    );
    Ok(())
}
