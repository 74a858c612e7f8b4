//! `lodestone torture writer`: a load that reports its acknowledgements.
//!
//! 1. Open the pool, or create a small one.
//! 2. Each thread writes only its own records, so that the order of one record's writes is known. It puts
//!    self-describing values of changing length, and removes some, alone or in bursts that share one wait for
//!    durability.
//! 3. *start* is printed before a write is passed to the map, *ack* when the map reported it durable.

use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use lodestone_index::OrderedMap;
use lodestone_pmem::{Pool, PoolOptions};
use lodestone_store::Store;
use lodestone_workload::keys::KeyCodec;
use lodestone_workload::kv::WriteKind;
use lodestone_workload::random::Random;
use lodestone_workload::value;

use lodestone_cli::commands::pool::OpenArgs;
use lodestone_cli::output::Output;

use super::report::{self, Event, Line, say};

/// Name of the map under torture.
pub const MAP: &str = "torture";
/// Bytes of a pool that does not exist yet: small, so that a life is cheap.
pub const POOL_BYTES: u64 = 8 << 20;
/// Bytes of its journal: small, so that it wraps.
pub const JOURNAL_BYTES: u64 = 1 << 20;

const AFTER_HELP: &str = "\
Example:
  lodestone torture writer a.pool --seed 7 --threads 4 --ops 10000";

/// Arguments of `lodestone torture writer`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    pub open: OpenArgs,

    /// Seed of the choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// Writing threads
    #[arg(long, default_value_t = 2)]
    pub threads: u64,

    /// Writes of each thread; 0: until killed
    #[arg(long, default_value_t = 0)]
    pub ops: u64,

    /// Number of records
    #[arg(long, default_value_t = 512)]
    pub records: u64,

    /// Longest value in bytes
    #[arg(long, default_value_t = 600)]
    pub value_bytes_max: u64,

    /// Do not report the records at the start: the reader knows them
    #[arg(long)]
    pub known: bool,
}

/// Writes until it is done, or killed.
pub fn run(args: &Args, _output: &Output) -> Result<()> {
    let options = PoolOptions { size_bytes: POOL_BYTES, journal_bytes: JOURNAL_BYTES, ..args.open.options()? };
    let pool = Pool::open_or_create(&args.open.path, &options)?;
    let store = Store::over(&pool)?;
    let map = OrderedMap::open(&store, MAP)?;
    let codec = report::codec()?;
    if !args.known {
        tell_what_is_there(&map, codec)?;
    }
    let writers = args.threads.clamp(1, args.records.max(1));
    let versions = AtomicU64::new(pool.boot() << 32);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..writers)
            .map(|thread| {
                let (map, versions) = (&map, &versions);
                scope.spawn(move || Writer::new(args, thread, writers, map, versions, codec).run(args.ops))
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| anyhow::bail!("a writer panicked")))
    })?;
    Ok(())
}

fn tell_what_is_there(map: &OrderedMap, codec: KeyCodec) -> Result<()> {
    let mut result = Ok(());
    map.scan(Bound::Unbounded, Bound::Unbounded, &mut |key, bytes| {
        let known = codec.decode(key).zip(value::verify(key, bytes).ok());
        result = match known {
            Some((record, version)) => say(&Line { event: Event::Have, record, version }.text()),
            None => {
                Err(anyhow::anyhow!("the pool holds a record that no torture writer wrote; give a pool of its own"))
            }
        };
        if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    result
}

struct Writer<'a> {
    map: &'a OrderedMap,
    versions: &'a AtomicU64,
    codec: KeyCodec,
    random: Random,
    thread: u64,
    threads: u64,
    records: u64,
    value_bytes_max: u64,
}

impl<'a> Writer<'a> {
    fn new(
        args: &Args,
        thread: u64,
        threads: u64,
        map: &'a OrderedMap,
        versions: &'a AtomicU64,
        codec: KeyCodec,
    ) -> Self {
        Self {
            map,
            versions,
            codec,
            random: Random::for_stream(args.seed, thread),
            thread,
            threads,
            records: args.records,
            value_bytes_max: args.value_bytes_max.max(value::VALUE_BYTES_MIN as u64),
        }
    }

    fn run(mut self, ops: u64) -> Result<()> {
        let mut done = 0;
        while ops == 0 || done < ops {
            // One write in four is a burst with one wait at its end.
            let burst = if self.random.below(4) == 0 { 2 + self.random.below(6) } else { 1 };
            done += burst;
            self.write(burst).context("the writer was not killed, it failed")?;
        }
        Ok(())
    }

    fn write(&mut self, burst: u64) -> Result<()> {
        let mut acks = Vec::new();
        for _ in 0..burst {
            let share = self.records.saturating_sub(self.thread).div_ceil(self.threads).max(1);
            let record = self.random.below(share) * self.threads + self.thread;
            let kind = if self.random.below(5) == 0 { WriteKind::Remove } else { WriteKind::Put };
            let version = self.versions.fetch_add(1, Ordering::Relaxed);
            say(&Line { event: Event::Start(kind), record, version }.text())?;
            self.apply(record, kind, version, burst > 1)?;
            acks.push(Line { event: Event::Ack(kind), record, version });
        }
        if burst > 1 {
            self.map.sync()?;
        }
        acks.into_iter().try_for_each(|ack| say(&ack.text()))
    }

    fn apply(&mut self, record: u64, kind: WriteKind, version: u64, relaxed: bool) -> Result<()> {
        let key = self.codec.encode(record);
        if kind == WriteKind::Remove {
            if relaxed {
                self.map.remove_relaxed(&key)?
            } else {
                self.map.remove(&key)?
            };
            return Ok(());
        }
        let min = value::VALUE_BYTES_MIN as u64;
        let length = min + self.random.below(self.value_bytes_max - min + 1);
        let bytes = value::make(&key, version, length as usize);
        if relaxed {
            self.map.insert_relaxed(&key, &bytes)?
        } else {
            self.map.insert(&key, &bytes)?
        };
        Ok(())
    }
}
