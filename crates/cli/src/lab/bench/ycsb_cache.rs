//! The figures of `lodestone bench ycsb --cache`: how often the cache was hit, and the most that hits and the medium
//! allow.
//!
//! After the run the same threads measure more rates in turn, in the same process and on the same file: reads of
//! records that are in the cache, and reads of a page at random places of the file. The median of each counts. An
//! operation costs a hit and, as often as the run missed, a read of a page. So a cache of this size with these hits,
//! which reads pages, would not be faster than `1 / (1 / hits + misses / reads)`. A miss here reads a page, or one row
//! of it.
//!
//! Where the workload only reads, it runs in these turns too, a second each, or until its operations end:
//! `part_in_turns` is the median of what each turn reached of that which the same turn allowed. A processor that others
//! use is not always as fast, and the run as a whole may have had other times than the rates.
//!
//! These hits are the choices of the run that are in the cache after it, in the order in which the run makes them: a
//! cache of tens of megabytes is in DRAM, and a hit waits for it. The rate of a few records, which the caches of the
//! processor hold, is printed too.

use std::cell::Cell;
use std::collections::HashSet;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lodestone_engine::Database;
use lodestone_engine_bench::records::DatabaseRecords;
use lodestone_pmem::FILE_BLOCK_BYTES;
use lodestone_width::const_usize;
use lodestone_workload::engine::{Engine, Session};
use lodestone_workload::keys::KeyChooser;
use lodestone_workload::mix::OperationKind;
use lodestone_workload::random::Random;
use lodestone_workload::result::BenchResult;
use lodestone_workload::ycsb::{Runner, Spec};

use super::ways::median;

/// How often each rate is measured, in turn with the others: the median counts, since a processor that others use too
/// is not always as fast.
const TURNS: usize = 7;
/// How long that is each time.
const TIME: Duration = Duration::from_millis(300);
/// How long the workload runs in each turn.
const RUN_TIME: Duration = Duration::from_secs(1);
/// A read of a random place has the bytes of a page, but no more than so many: a miss reads a record, and larger pages
/// do not lower the rate that the cache is compared with.
const READ_BYTES_MAX: u64 = 8 << 10;
/// Records that are read again and again where the caches of the processor are to hold them.
const FEW_RECORDS: usize = 64;
/// Choices of the run, of which those that are hits are read in turn. So many that few are read twice while a rate is
/// measured: the caches of the processor have no more of them than in the run.
const CHOICES: usize = 1 << 20;

/// Counts of the cache at the begin of the run.
pub struct CacheWatch<'d> {
    database: &'d Database,
    /// Whether it reads pages around the page cache of the system.
    is_around_cache: bool,
    loads: Cell<u64>,
    row_reads: Cell<u64>,
    evictions: Cell<u64>,
}

impl<'d> CacheWatch<'d> {
    /// `is_around_cache`: the database reads its pages around the page cache of the system.
    pub fn new(database: &'d Database, is_around_cache: bool) -> Self {
        let (loads, row_reads, evictions) = Default::default();
        Self { database, is_around_cache, loads, row_reads, evictions }
    }

    /// The run begins.
    pub fn begin(&self) {
        let stats = self.database.stats();
        self.loads.set(stats.cache_loads);
        self.row_reads.set(stats.cache_row_reads);
        self.evictions.set(stats.cache_evictions);
    }

    /// Adds the figures of a run to its result.
    pub fn add_to(&self, result: &mut BenchResult, records: &DatabaseRecords, spec: &Spec, limit: u64) -> Result<()> {
        let stats = self.database.stats();
        let (loads, rows) = (stats.cache_loads - self.loads.get(), stats.cache_row_reads - self.row_reads.get());
        let (anonymous, heap) = (anonymous_bytes()?, crate::allocator::bytes_in_use());
        let misses = (loads + rows) as f64 / result.operations.max(1) as f64;
        let mut keys = Self::keys_in_cache(records, spec, 0)?;
        let hit_records = keys.iter().collect::<HashSet<_>>().len() as u64;
        let only_reads = spec.workload.mix().share(OperationKind::Read) == 100;
        let mut turns = [const { Vec::new() }; 3];
        let (mut rates, mut parts) = (Vec::new(), Vec::new());
        for turn in 0..TURNS {
            let run = if only_reads { Some(self.run_again(records, spec, turn)?) } else { None };
            if run.is_some() {
                // Others are there now.
                keys = Self::keys_in_cache(records, spec, turn as u64)?;
            }
            let hits = hits_per_s(records, spec, &keys, turn)?;
            let few_hits = hits_per_s(records, spec, &few(&keys), turn)?;
            let reads = self.reads_per_s(spec, turn)?;
            if let Some((rate, misses)) = run {
                rates.push(rate);
                parts.push(rate / allowed(hits, reads, misses));
            }
            turns.iter_mut().zip([hits, few_hits, reads]).for_each(|(rates, rate)| rates.push(rate));
        }
        let [hits, few_hits, reads] = turns.map(median);
        let allowed = allowed(hits, reads, misses);
        if only_reads {
            result.set_extra("turn_ops_per_s", median(rates).round());
            result.set_extra("part_in_turns", median(parts));
        }
        result.set_extra("cache_limit_bytes", limit);
        result.set_extra("cache_bytes", stats.cache_bytes);
        result.set_extra("cache_loads", loads);
        result.set_extra("cache_row_reads", rows);
        result.set_extra("cache_evictions", stats.cache_evictions - self.evictions.get());
        result.set_extra("heap_bytes", heap);
        result.set_extra("anonymous_bytes", anonymous);
        result.set_extra("anonymous_to_limit", anonymous as f64 / limit as f64);
        result.set_extra("cache_misses_per_op", misses);
        result.set_extra("hits_per_s", hits.round());
        result.set_extra("hit_records", hit_records);
        result.set_extra("few_hits_per_s", few_hits.round());
        result.set_extra("page_reads_per_s", reads.round());
        result.set_extra("allowed_ops_per_s", allowed.round());
        result.set_extra("part_of_allowed", result.ops_per_s.unwrap_or(0.0) / allowed);
        Ok(())
    }

    /// Runs the workload for a while once more, with other choices. Returns the operations per second, and the misses
    /// of each.
    fn run_again(&self, records: &DatabaseRecords, spec: &Spec, turn: usize) -> Result<(f64, f64)> {
        let spec = Spec { seed: spec.seed.wrapping_add(turn as u64 + 1), ..spec.clone() };
        let misses = || {
            let stats = self.database.stats();
            stats.cache_loads + stats.cache_row_reads
        };
        let before = misses();
        let result = Runner::new(records, &spec).time_limit(RUN_TIME).run()?.result;
        let rate = result.ops_per_s.context("no operation ended in time")?;
        Ok((rate, (misses() - before) as f64 / result.operations.max(1) as f64))
    }

    /// Of the keys that the run chooses, each as often as it does, those whose records are in the cache. Each `stream`
    /// has other choices: to read the same records in each turn would keep them in the cache.
    fn keys_in_cache(records: &DatabaseRecords, spec: &Spec, stream: u64) -> Result<Vec<Vec<u8>>> {
        let codec = spec.codec()?;
        let mut random = Random::for_stream(spec.seed, u64::MAX / 2 + stream);
        let mut chooser = KeyChooser::new(spec.distribution, spec.records, spec.capacity())?;
        let mut keys = Vec::new();
        for _ in 0..CHOICES {
            let key = codec.encode(chooser.choose(&mut random, spec.records));
            // A read of those that are not there would send others away.
            if records.is_in_memory(&key)? {
                keys.push(key);
            }
        }
        anyhow::ensure!(!keys.is_empty(), "no record is in the cache");
        Ok(keys)
    }

    /// Reads of pages per second at random places of the file, of all threads together.
    fn reads_per_s(&self, spec: &Spec, turn: usize) -> Result<f64> {
        const ALIGN: usize = const_usize(FILE_BLOCK_BYTES);
        let page_bytes = self.database.page_stats().page_bytes.min(READ_BYTES_MAX);
        let (memory, is_around_cache) = (self.database.pool().memory(), self.is_around_cache);
        let blocks: Vec<_> =
            self.database.page_blocks().into_iter().filter(|(_, bytes)| *bytes >= 2 * page_bytes).collect();
        anyhow::ensure!(!blocks.is_empty(), "the database has no pages");
        rate(spec.threads, |thread| {
            let mut random = Random::for_stream(spec.seed, u64::MAX - (turn * spec.threads + thread) as u64);
            let (blocks, length) = (&blocks, usize::try_from(page_bytes)?);
            let mut buffer = vec![0; length + ALIGN];
            let whole = buffer.as_ptr().align_offset(ALIGN);
            Ok(move || {
                let (at, bytes) = blocks[random.below(blocks.len() as u64) as usize];
                // A page begins at a multiple of its size, as far as the medium has such pages.
                let grain = memory.direct_unit().min(page_bytes);
                let first = at.offset().next_multiple_of(grain) - at.offset();
                let place = first + random.below((bytes - first - page_bytes) / grain + 1) * grain;
                let page = &mut buffer[whole..][..length];
                if is_around_cache {
                    memory.read_around_cache(at.plus(place), page)?;
                } else {
                    memory.read_directly(at.plus(place), page)?;
                }
                black_box(page);
                Ok(())
            })
        })
    }
}

/// The operations per second of a cache with so many hits per second, for each of whose operations so many pages are
/// read of a medium with these reads per second.
fn allowed(hits: f64, reads: f64, misses: f64) -> f64 {
    1.0 / (1.0 / hits + misses / reads)
}

/// Reads per second of these keys in turn, of all threads together. Each thread, and each turn, begins at another one.
fn hits_per_s(records: &DatabaseRecords, spec: &Spec, keys: &[Vec<u8>], turn: usize) -> Result<f64> {
    rate(spec.threads, |thread| {
        let (mut session, mut value) = (records.session()?, Vec::new());
        let mut next = (turn * spec.threads + thread) * keys.len() / (TURNS * spec.threads);
        Ok(move || {
            session.read(&keys[next], &mut value)?;
            next = (next + 1) % keys.len();
            black_box(&value);
            Ok(())
        })
    })
}

/// Those of the keys that are among the first [`FEW_RECORDS`] of them.
fn few(keys: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut present = HashSet::new();
    let is_present =
        |key: &&Vec<u8>| present.contains(*key) || present.len() < FEW_RECORDS && present.insert((*key).clone());
    keys.iter().filter(is_present).cloned().collect()
}

/// Calls per second of what `make` makes for each thread.
fn rate<W: FnMut() -> Result<()>>(threads: usize, make: impl Fn(usize) -> Result<W> + Sync) -> Result<f64> {
    /// Calls between two looks at the clock.
    const CALLS: u64 = 16;
    let calls = AtomicU64::new(0);
    let make = &make;
    let calls = &calls;
    thread::scope(|scope| {
        let workers = (0..threads).map(|thread| {
            scope.spawn(move || {
                let mut work = make(thread)?;
                let begin = Instant::now();
                while begin.elapsed() < TIME {
                    (0..CALLS).try_for_each(|_| work())?;
                    calls.fetch_add(CALLS, Ordering::Relaxed);
                }
                Ok(begin.elapsed())
            })
        });
        let workers: Vec<_> = workers.collect();
        let times = workers.into_iter().map(|worker| worker.join().expect("no thread panics"));
        let longest = times.collect::<Result<Vec<Duration>>>()?.into_iter().max().unwrap_or(TIME);
        Ok(calls.load(Ordering::Relaxed) as f64 / longest.as_secs_f64())
    })
}

/// Bytes of memory of this process that no file backs, as far as they are resident.
fn anonymous_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("reading /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib: Option<u64> = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
    Ok(kib.context("/proc/self/status has no line `RssAnon`")? << 10)
}
