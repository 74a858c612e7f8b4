//! `--open`: the time of an index to its first answer and to full speed, after a clean end and after a kill.
//!
//! 1. A child process loads the index and goes on changing it. It ends cleanly when its standard input ends, or is
//!    killed.
//! 2. This process opens pool, heap and index and reads one record: the first answer. The first ordered read follows.
//! 3. It reads records at random in windows of [`WINDOW`], until the index reports that it is warm, and for
//!    [`AFTER_WARM`] more. Full speed is the median of the last windows. It was reached at the end of the first window
//!    that had nine tenths of it together with the two windows after it.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lodestone_index::{CacheMode, Durability};
use lodestone_index_bench::key::{KeyMaker, KeyShape, KeysOf, belongs, value_of};
use lodestone_index_bench::kinds::{BenchIndex, Competitor, Setup, Visitor, visit, visit_strings};
use lodestone_index_bench::lodestone::{IndexTarget, ROOT};
use lodestone_index_bench::runner::{LoadOrder, load};
use lodestone_media::TimeMode;
use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
use lodestone_store::Store;
use lodestone_workload::random::Random;
use serde::Serialize;

use super::IndexName;
use super::request::{Request, load_average};
use crate::torture::kill::milliseconds;
use crate::torture::own_binary;
use lodestone_cli::emulation;
use lodestone_cli::interrupt::TempFolder;
use lodestone_cli::output::Output;

/// Time between two looks at the speed.
const WINDOW: Duration = Duration::from_millis(5);
/// Time for which windows go on when the index is warm.
const AFTER_WARM: Duration = Duration::from_millis(300);
/// Longest time until an index must be warm.
const WARM_MAX: Duration = Duration::from_secs(120);

/// The times of one opening.
#[derive(Clone, Debug, Serialize)]
pub struct Reopened {
    bench: &'static str,
    pub engine: String,
    /// `clean` or `kill`: the end of the last life.
    pub after: &'static str,
    pub records: u64,
    key: String,
    seed: u64,
    domain: String,
    media: String,
    pool_open_ms: f64,
    heap_open_ms: f64,
    pub index_open_ms: f64,
    /// From before the pool was opened to the first point read's answer.
    pub first_answer_ms: f64,
    /// To the first ordered read's answer. `None` without an order.
    pub first_range_ms: Option<f64>,
    /// Until the index reports that nothing is built in the background any more.
    pub warm_ms: f64,
    pub full_speed_ms: f64,
    pub reads_per_s: f64,
    load_average: Option<f64>,
}

/// Arguments of the hidden process that loads.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  lodestone bench index-load --index hash --records 1000 --path a.pool \\
    --size 128MiB < /dev/null")]
pub struct LoadArgs {
    #[arg(long)]
    index: Competitor,
    #[arg(long, default_value = "u64")]
    key: KeyShape,
    #[arg(long)]
    records: u64,
    #[arg(long, default_value_t = 1)]
    cache_keys: usize,
    #[arg(long, value_parser = lodestone_cli::size::parse)]
    size: u64,
    #[command(flatten)]
    place: super::Place,
}

/// Loads an index, reports it, and changes the index until standard input ends.
pub fn run_load(args: &LoadArgs, _output: &Output) -> Result<()> {
    let path = args.place.path.as_ref().context("the loader needs --path")?;
    let options = PoolOptions { size_bytes: args.size, domain: args.place.domain_choice()?, ..PoolOptions::default() };
    let pool = Pool::create(path, &options)?;
    let store = Store::over(&pool)?;
    with_kind(args.index, args.key, args.cache_keys, Loader { store: &store, args })
}

fn with_kind<W>(kind: Competitor, key: KeyShape, cache_keys: usize, work: W) -> Result<()>
where
    W: Visitor<u64, Out = Result<()>> + Visitor<[u8], Out = Result<()>>,
{
    let setup = Setup { cache_keys, cache_mode: CacheMode::Adaptive };
    match key {
        KeyShape::Word => visit::<u64, W>(kind, setup, work).context("this index takes strings as keys")?,
        KeyShape::Bytes(_) => visit_strings(kind, setup, work),
    }
}

struct Loader<'a> {
    store: &'a Store,
    args: &'a LoadArgs,
}

impl<K: KeysOf + ?Sized> Visitor<K> for Loader<'_> {
    type Out = Result<()>;

    fn visit<I: BenchIndex<Key = K>>(self, options: &I::Options) -> Result<()> {
        let (mut keys, records) = (K::maker(self.args.key), self.args.records);
        let target = IndexTarget::<I>::open(self.store, self.args.index.name(), options, Durability::Relaxed, "load")?;
        load(&target, &keys, records, 2, LoadOrder::Random)?;
        // A kill must find every record, but in the block domain an ordered write is not durable yet. A thread waits
        // for its own writes, so one of this thread comes after those of the loading threads, which have ended.
        target.index().upsert(keys.key(0), value_of(0, 1))?;
        target.index().sync()?;
        lodestone_cli::output::Output::new(false, true).line("loaded")?;
        let ended = std::thread::spawn(|| std::io::stdin().lock().read_to_end(&mut Vec::new()));
        let mut random = Random::new(1);
        while !ended.is_finished() {
            let record = random.below(records);
            target.index().upsert(keys.key(record), value_of(record, 1))?;
        }
        target.index().sync()?;
        Ok(())
    }
}

/// Measures both kinds of end for the index of `request`.
pub fn measure(request: &Request, _output: &Output, tell: &mut dyn FnMut(Reopened) -> Result<()>) -> Result<()> {
    let IndexName::Persistent(kind) = request.index else {
        bail!("{} is in DRAM: there is nothing to open again; leave it out of --index", request.index)
    };
    for after in ["clean", "kill"] {
        let folder = TempFolder::within(&request.place.folder())?;
        let path = folder.path().join("open.pool");
        let mut loader = start_loader(request, kind, &path)?;
        if after == "kill" {
            loader.kill().context("killing the loader failed")?;
        }
        drop(loader.stdin.take());
        let status = loader.wait().context("waiting for the loader failed")?;
        ensure!(after == "kill" || status.success(), "the loader ended with {status}");
        let mut found = None;
        let work = Opening { request, kind, path: &path, after, found: &mut found };
        with_kind(kind, request.key, request.setup.cache_keys, work)?;
        tell(found.context("nothing was measured")?)?;
    }
    Ok(())
}

/// The command-line word of a domain.
fn domain_name(choice: DomainChoice) -> &'static str {
    match choice {
        DomainChoice::Dax => "dax",
        DomainChoice::Eadr => "eadr",
        DomainChoice::Block => "block",
        DomainChoice::Process => "process",
        DomainChoice::DaxEmulated => "dax-emulated",
        _ => "auto",
    }
}

/// Starts the loader and waits until it has loaded.
fn start_loader(request: &Request, kind: Competitor, path: &Path) -> Result<Child> {
    let mut command = own_binary()?;
    command.args(["bench", "index-load", "--index", kind.name(), "--key", &request.key.to_string()]);
    command.args(["--records", &request.records.to_string(), "--size", &request.pool_bytes.to_string()]);
    command.args(["--cache-keys", &request.setup.cache_keys.to_string()]);
    command.args([
        "--domain",
        domain_name(request.place.domain),
        "--durability",
        &request.place.durability.to_string(),
    ]);
    command.arg("--path").arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().context("starting the loader failed")?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    if line.trim() != "loaded" {
        // It has ended or reports something else. In both cases there is nothing to wait for.
        let _ = child.kill();
        let status = child.wait()?;
        bail!("the loader of {kind} failed ({status}); its message is above");
    }
    Ok(child)
}

struct Opening<'a> {
    request: &'a Request,
    kind: Competitor,
    path: &'a Path,
    after: &'static str,
    found: &'a mut Option<Reopened>,
}

impl<K: KeysOf + ?Sized> Visitor<K> for Opening<'_> {
    type Out = Result<()>;

    fn visit<I: BenchIndex<Key = K>>(self, options: &I::Options) -> Result<()> {
        let Self { request, kind, path, after, found } = self;
        let Request { place, key, records, seed, .. } = request;
        let choice = PoolOptions { domain: place.domain_choice()?, ..PoolOptions::default() };
        let pool_options = emulation::apply(place.profile.as_ref(), TimeMode::Spinning, choice)?;
        let mut keys = K::maker(*key);
        let start = Instant::now();
        let pool = Pool::open(path, &pool_options)?;
        let pool_open_ms = milliseconds(start);
        emulation::place(&pool);
        let store = Store::over(&pool)?;
        let heap_open_ms = milliseconds(start) - pool_open_ms;
        let index = I::open_index(&store, ROOT, options, Durability::Sync)?;
        let index_open_ms = milliseconds(start) - heap_open_ms - pool_open_ms;
        read(&index, &mut keys, 0)?;
        let first_answer_ms = milliseconds(start);
        let first_range_ms = index.read_range(keys.key(1), 10)?.map(|_| milliseconds(start));
        let speed = warm_up(&index, &mut keys, *records, *seed, start)?;
        let info = pool.info();
        *found = Some(Reopened {
            bench: "index-open",
            engine: kind.to_string(),
            after,
            records: *records,
            key: key.to_string(),
            seed: *seed,
            domain: info.domain_label(),
            media: info.media_label(),
            pool_open_ms,
            heap_open_ms,
            index_open_ms,
            first_answer_ms,
            first_range_ms,
            warm_ms: speed.warm_ms,
            full_speed_ms: speed.full_ms,
            reads_per_s: speed.reads_per_s,
            load_average: load_average(),
        });
        Ok(())
    }
}

fn read<I: BenchIndex>(index: &I, keys: &mut impl KeyMaker<Key = I::Key>, record: u64) -> Result<()> {
    match index.get(keys.key(record))? {
        Some(value) if belongs(record, value) => Ok(()),
        found => bail!("record {record} was loaded, and {found:x?} is read after opening again"),
    }
}

struct Speed {
    warm_ms: f64,
    full_ms: f64,
    reads_per_s: f64,
}

fn warm_up<I: BenchIndex>(
    index: &I,
    keys: &mut impl KeyMaker<Key = I::Key>,
    records: u64,
    seed: u64,
    start: Instant,
) -> Result<Speed> {
    let mut random = Random::new(seed);
    let mut windows: Vec<(f64, f64)> = Vec::new();
    let mut warm: Option<Instant> = None;
    while warm.is_none_or(|warm| warm.elapsed() < AFTER_WARM) {
        let (begin, mut reads) = (Instant::now(), 0_u32);
        while begin.elapsed() < WINDOW {
            for _ in 0..16 {
                read(index, keys, random.below(records))?;
            }
            reads += 16;
        }
        windows.push((milliseconds(start), f64::from(reads) / begin.elapsed().as_secs_f64()));
        if warm.is_none() && index.is_warm() {
            warm = Some(Instant::now());
        }
        ensure!(start.elapsed() < WARM_MAX, "the index is not warm {WARM_MAX:?} after opening");
    }
    let warm_ms = warm.map_or(f64::NAN, |warm| (warm.duration_since(start).as_secs_f64() * 1e6).round() / 1e3);
    let last = &windows[windows.len().saturating_sub(40)..];
    let mut rates: Vec<f64> = last.iter().map(|window| window.1).collect();
    rates.sort_by(f64::total_cmp);
    let median = rates[rates.len() / 2];
    let is_full = |windows: &[(f64, f64)]| windows.iter().all(|window| window.1 >= 0.9 * median);
    let full = windows.windows(3).find(|three| is_full(three)).map_or(windows[windows.len() - 1].0, |three| three[0].0);
    Ok(Speed { warm_ms, full_ms: full, reads_per_s: median.round() })
}
