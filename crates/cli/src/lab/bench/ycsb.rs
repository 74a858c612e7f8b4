//! `lodestone bench ycsb`: the workloads of the Yahoo! Cloud Serving Benchmark on a map in a new pool.
//!
//! For each workload and number of threads, in turn:
//! 1. a fresh pool is made and the records are loaded;
//! 2. in the block domain the cost of one bare device sync is measured beside the pool;
//! 3. the operations run. Each is timed, and the primitives themselves count the events.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lodestone_baselines::tl2::{ClockKind, LogKind, Tl2, Tl2Options};
use lodestone_engine::{Database, DatabaseOptions, FlushUnit};
use lodestone_engine_bench::records::DatabaseRecords;
use lodestone_heap::HeapOptions;
use lodestone_index::IndexKind;
use lodestone_pmem::{Domain, Pool};
use lodestone_stm::Mode;
use lodestone_stm_bench::lodestone::Lodestone;
use lodestone_stm_bench::records::Records;
use lodestone_store::Store;
use lodestone_workload::engine::Engine;
use lodestone_workload::keys::Distribution;
use lodestone_workload::result::human_figure;
use lodestone_workload::syncprobe::SyncLatency;
use lodestone_workload::ycsb::{Outcome, Progress, Runner, Spec, Workload};

use lodestone_cli::interrupt;
use lodestone_cli::new_file;
use lodestone_cli::output::{Output, ProgressUnit};
use lodestone_cli::publish::publish;
use lodestone_cli::size;

use super::engine::MapEngine;
use super::over::OverEngine;
use super::place::{Durability, Place};
use super::ycsb_cache::CacheWatch;
use super::ycsb_pages::PageWatch;
use super::{results_table, ycsb_report};

const AFTER_HELP: &str = "\
Examples:
  lodestone bench ycsb --workload a --threads 1,8
  lodestone bench ycsb --workload all --records 1000000 --operations 1000000 \\
    --threads 8
  lodestone bench ycsb --durability process --html ycsb.html
  lodestone bench ycsb --workload e --distribution uniform --json
  lodestone bench ycsb --engine stm --workload a,b,c,d --path /dev/shm \\
    --domain dax-emulated
  lodestone bench ycsb --engine db --distribution uniform --records 1000000 \\
    --flush-unit page,line --log-bytes 8MiB --path /dev/shm \\
    --domain dax-emulated

Durability: `sync` waits for every write, and a read waits until what it saw is durable; `relaxed` orders writes and
does not wait; `process` survives the death of the process only.";

/// Bytes of a pool beside its records and its journal: headers, tables, and slabs that are not full.
const POOL_BYTES_FIXED: u64 = 64 << 20;
/// Room for each record beside key and value: its header, its slot, the leaf around it.
const RECORD_BYTES_EXTRA: u64 = 96;

/// Arguments of `lodestone bench ycsb`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Workloads, a to f, load, or all
    #[arg(long, value_name = "NAMES", default_value = "a", value_delimiter = ',', value_parser = workloads)]
    workload: Vec<Workloads>,

    /// The structure that holds the records: the ordered map, a map over an index, a table of a database, or a
    /// B+-tree over a transactional memory
    #[arg(long, value_enum, default_value = "map")]
    engine: YcsbEngine,

    /// Records loaded before the run
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    records: u64,

    /// Operations, all threads together
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    operations: u64,

    /// Threads; several numbers run one after the other
    #[arg(long, value_name = "COUNTS", default_value = "1", value_delimiter = ',')]
    threads: Vec<usize>,

    /// Bytes of a value; keys have 8
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    value_bytes: usize,

    /// Distribution of the records: zipfian, uniform or latest [default: that of the workload]
    #[arg(long, value_name = "NAME")]
    distribution: Option<String>,

    /// Exponent of the zipfian and latest distributions
    #[arg(long, value_name = "THETA", default_value_t = 0.99)]
    theta: f64,

    /// Bytes of DRAM for rows, with `--engine db`: the others are read from their pages. Each leaf fits a page then
    /// [default: all rows that were used]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    cache: Option<u64>,

    /// With `--cache`, in the block domain: read pages around the page cache of the system
    #[arg(long, requires = "cache")]
    direct_reads: bool,

    /// How much of a page a checkpoint writes, with `--engine db`; several run one after the other
    #[arg(long, value_name = "UNITS", value_enum, default_value = "line", value_delimiter = ',')]
    flush_unit: Vec<Unit>,

    /// Bytes of all logs, with `--engine db`: at half of that a checkpoint is made [default: that of a database]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    log_bytes: Option<u64>,

    /// Bytes of a page of the database, with `--engine db`: a power of two [default: 8KiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_page)]
    page_bytes: Option<u32>,

    /// Run on the records that an earlier call with `--keep` and the same options has loaded into `--path FILE`, with
    /// `--engine db`: the process has its memory and its cache as after a restart
    #[arg(long, requires = "path")]
    loaded: bool,

    /// Publish the figures of the database in this file, for `lodestone db top --file FILE`
    #[arg(long, value_name = "FILE")]
    publish: Option<PathBuf>,

    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// End a run after so many seconds even if operations are left
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,

    /// Check every value that is read
    #[arg(long)]
    verify: bool,

    /// Write a page with plots to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    #[command(flatten)]
    place: Place,
}

/// How much of a page a checkpoint writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Unit {
    /// The lines with rows that changed
    Line,
    /// All rows of a leaf
    Page,
}

/// The structure that holds the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum YcsbEngine {
    /// The durable ordered map
    Map,
    /// A durable map over an index (fastfair)
    Index,
    /// A table of the database engine
    Db,
    /// A B+-tree over Lodestone's transactional memory (mode one-fence, thread clocks)
    Stm,
    /// A B+-tree over TL2 with an undo log and a global clock
    Tl2Undo,
    /// A B+-tree over TL2 with a redo log and a global clock
    Tl2Redo,
}

impl YcsbEngine {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::Index => "index",
            Self::Db => "table",
            Self::Stm => "stm",
            Self::Tl2Undo => "tl2-undo",
            Self::Tl2Redo => "tl2-redo",
        }
    }

    /// Its name, for people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Map => "a durable ordered map",
            Self::Index => "a durable map over an index (fastfair)",
            Self::Db => "a table of the database engine",
            Self::Stm => "a B+-tree over a transactional memory",
            Self::Tl2Undo => "a B+-tree over TL2 with an undo log",
            Self::Tl2Redo => "a B+-tree over TL2 with a redo log",
        }
    }
}

/// One word of `--workload`.
#[derive(Clone, Debug)]
struct Workloads(Vec<Workload>);

fn workloads(text: &str) -> Result<Workloads, String> {
    if text.eq_ignore_ascii_case("all") {
        return Ok(Workloads(Workload::ALL.to_vec()));
    }
    text.parse()
        .map(|workload| Workloads(vec![workload]))
        .map_err(|_| format!("`{text}` is no workload; use a to f, load, or all"))
}

/// The runs, however they were requested.
pub struct Request {
    pub engine: YcsbEngine,
    pub spec: Spec,
    pub place: Place,
    pub time_limit: Option<Duration>,
    pub verify_reads: bool,
    /// Options of a database.
    pub database: DatabaseOptions,
    /// Whether the pool is there, with the records in a database.
    pub loaded: bool,
    /// File for the figures of a database.
    pub publish: Option<PathBuf>,
}

impl Request {
    fn name(&self) -> String {
        format!("ycsb {} x{}", self.spec.workload, self.spec.threads)
    }
}

/// One run with all conditions of its figures.
pub struct Measured {
    pub engine: YcsbEngine,
    pub outcome: Outcome,
    pub sync_latency: Option<SyncLatency>,
}

/// Runs the benchmark.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    if let Some(path) = &args.html {
        new_file::verify_page(path)?;
    }
    let mut all = Vec::new();
    for &workload in args.workload.iter().flat_map(|word| &word.0) {
        for (&threads, &unit) in
            args.threads.iter().flat_map(|threads| args.flush_unit.iter().map(move |unit| (threads, unit)))
        {
            let request = args.request(workload, threads, unit)?;
            interrupt::so_far(format!("{} runs were measured; with --json each figure is printed at once", all.len()));
            let measured = measure(&request, output)?;
            if output.is_json() {
                output.json(&measured.outcome.result)?;
            }
            all.push(measured);
        }
    }
    if !output.is_json() {
        output.line(&text(&all))?;
    }
    if let Some(path) = &args.html {
        new_file::write_page(path, &ycsb_report::page(&all).to_html())?;
        output.note(&format!("the page is {}", path.display()));
    }
    Ok(())
}

impl Args {
    fn request(&self, workload: Workload, threads: usize, unit: Unit) -> Result<Request> {
        let distribution = match &self.distribution {
            None => match workload.distribution() {
                Distribution::Latest { .. } => Distribution::Latest { theta: self.theta },
                _ => Distribution::Zipfian { theta: self.theta },
            },
            Some(name) if matches!(name.as_str(), "zipfian" | "latest") => format!("{name}:{}", self.theta).parse()?,
            Some(name) => name.parse()?,
        };
        let spec = Spec {
            records: self.records,
            operations: self.operations,
            threads,
            value_bytes: self.value_bytes,
            distribution,
            seed: self.seed,
            ..Spec::new(workload)
        };
        spec.validate()?;
        let time_limit = match self.seconds {
            None => None,
            Some(seconds) => Some(Duration::try_from_secs_f64(seconds).context("--seconds needs a positive number")?),
        };
        if self.cache.is_some() && self.engine != YcsbEngine::Db {
            bail!("--cache is for --engine db: the others have all their records in memory, or in the pool");
        }
        let has_choices = self.log_bytes.is_some() || self.page_bytes.is_some() || self.flush_unit != [Unit::Line];
        if has_choices && self.engine != YcsbEngine::Db {
            bail!("--flush-unit, --log-bytes and --page-bytes are for --engine db: the others have no pages and logs");
        }
        if self.loaded && self.engine != YcsbEngine::Db {
            bail!("--loaded is for --engine db: it has a cache, which a load fills");
        }
        if self.publish.is_some() && self.engine != YcsbEngine::Db {
            bail!("--publish is for --engine db: the others publish no figures");
        }
        let flush_unit = match unit {
            Unit::Line => FlushUnit::Line,
            Unit::Page => FlushUnit::Page,
        };
        let mut database = DatabaseOptions {
            cache_bytes: self.cache,
            direct_reads: self.direct_reads,
            flush_unit,
            ..DatabaseOptions::default()
        };
        if let Some(bytes) = self.log_bytes {
            database.log_bytes = bytes;
            database.segment_bytes = database.segment_bytes.min(bytes / 16);
        }
        if let Some(bytes) = self.page_bytes {
            database.page_bytes = bytes;
        }
        let (engine, place) = (self.engine, self.place.clone());
        let (publish, loaded) = (self.publish.clone(), self.loaded);
        Ok(Request { engine, spec, place, time_limit, verify_reads: self.verify, database, loaded, publish })
    }
}

/// Bytes of a pool and of its journal for the records of `spec`, with room to spare.
pub fn pool_bytes(spec: &Spec) -> (u64, u64) {
    let record_bytes = spec.key_bytes as u64 + spec.value_bytes as u64 + RECORD_BYTES_EXTRA;
    let records_bytes = 2 * spec.capacity().saturating_mul(record_bytes);
    let journal_bytes = (records_bytes / 4).next_multiple_of(1 << 20).clamp(16 << 20, 128 << 20);
    let pool_bytes = (records_bytes + journal_bytes + POOL_BYTES_FIXED).next_multiple_of(1 << 20);
    (pool_bytes, journal_bytes)
}

/// Loads and runs.
pub fn measure(request: &Request, output: &Output) -> Result<Measured> {
    let Request { spec, place, .. } = request;
    let (map_bytes, journal_bytes) = pool_bytes(spec);
    // The transactional engines need two versions of each record, or blocks of whole lines and a log, beside the tree.
    let pool_bytes = match request.engine {
        YcsbEngine::Map => map_bytes,
        // Logs, and two images of each leaf.
        YcsbEngine::Db => 2 * map_bytes + 2 * request.database.log_bytes,
        _ => 3 * map_bytes,
    };
    if request.engine != YcsbEngine::Map && place.durability == Durability::Relaxed {
        bail!("--durability relaxed is for --engine map; the others acknowledge what is durable");
    }
    let pool = if request.loaded { place.open()? } else { place.create(pool_bytes, journal_bytes)? };
    let opened = Opened { pool: pool.clone(), pool_bytes, journal_bytes };
    let tl2 = |log| {
        let options = Tl2Options { object_bytes: pool_bytes / 2, ..Tl2Options::new(log, ClockKind::Add) };
        // The area is one block of the heap, so zones are as large as the pool.
        let mut heap_options = HeapOptions::default();
        heap_options.zone_chunks = u32::try_from(pool_bytes >> 16)?.next_power_of_two();
        anyhow::Ok(Records::create(Tl2::open(&pool, &heap_options, &options)?)?)
    };
    match request.engine {
        YcsbEngine::Map => measure_on(&MapEngine::open(pool.clone(), place.durability)?, &opened, request, output),
        YcsbEngine::Index => {
            let engine = OverEngine::open(pool.clone(), IndexKind::FastFair, place.durability.to_string())?;
            measure_on(&engine, &opened, request, output)
        }
        YcsbEngine::Db => {
            let store = Store::over(&pool)?;
            let open = || anyhow::Ok(DatabaseRecords::open(Database::open_in(&store, &request.database)?)?);
            let show = |records: &DatabaseRecords| {
                request.publish.as_deref().map(|file| publish(records.database(), Some(file))).transpose()
            };
            let records = open()?;
            let published = show(&records)?;
            let load = (!request.loaded).then(|| load_into(&records, request, output)).transpose()?;
            let (watch, pages) = (
                CacheWatch::new(records.database(), request.database.direct_reads),
                PageWatch::new(records.database()),
            );
            watch.begin();
            pages.begin()?;
            let mut measured = run_on(&records, &opened, request, output, load.as_ref())?;
            measured.outcome.result.set_extra("loaded_before", request.loaded);
            drop(published);
            pages.add_to(&mut measured.outcome.result, &request.database)?;
            if let Some(limit) = request.database.cache_bytes {
                watch.add_to(&mut measured.outcome.result, &records, spec, limit)?;
            }
            Ok(measured)
        }
        YcsbEngine::Stm => {
            let memory = Lodestone::open(&pool, Mode::OneFence, lodestone_stm::ClockKind::Thread)?;
            measure_on(&Records::create(memory)?, &opened, request, output)
        }
        YcsbEngine::Tl2Undo => measure_on(&tl2(LogKind::Undo)?, &opened, request, output),
        YcsbEngine::Tl2Redo => measure_on(&tl2(LogKind::Redo)?, &opened, request, output),
    }
}

/// The pool of a run.
struct Opened {
    pool: Pool,
    pool_bytes: u64,
    journal_bytes: u64,
}

fn measure_on<E: Engine>(engine: &E, opened: &Opened, request: &Request, output: &Output) -> Result<Measured> {
    let load = load_into(engine, request, output)?;
    run_on(engine, opened, request, output, Some(&load))
}

/// Loads the records.
fn load_into<E: Engine>(engine: &E, request: &Request, output: &Output) -> Result<Outcome> {
    let name = format!("{} load", request.name());
    Ok(with_progress(output, &name, |hook| Runner::new(engine, &request.spec).on_progress(hook).load())?)
}

/// Runs the workload on the records that were loaded.
fn run_on<E: Engine>(
    engine: &E,
    opened: &Opened,
    request: &Request,
    output: &Output,
    load: Option<&Outcome>,
) -> Result<Measured> {
    let Request { spec, place, .. } = request;
    let domain = opened.pool.memory().domain();
    let sync_latency = match domain {
        Domain::Block => Some(place.sync_latency()?),
        _ => None,
    };
    let mut outcome = with_progress(output, &request.name(), |hook| {
        let runner = Runner::new(engine, spec).on_progress(hook).verify_reads(request.verify_reads);
        match request.time_limit {
            Some(limit) => runner.time_limit(limit).run(),
            None => runner.run(),
        }
    })?;
    if outcome.missing > 0 {
        bail!(
            "{} reads or updates found no record; the map lost records that were loaded, or fewer were",
            outcome.missing
        );
    }
    let (flush, stream) = opened.pool.memory().instructions();
    let result = &mut outcome.result;
    result.set_extra("instructions", format!("{flush:?} {stream:?}").to_lowercase());
    result.set_extra("pool_bytes", opened.pool_bytes);
    result.set_extra("journal_bytes", opened.journal_bytes);
    if let Some(load) = load {
        result.set_extra("load_ops_per_s", load.result.ops_per_s);
    }
    if let Some(latency) = &sync_latency {
        latency.add_to(&mut result.extra);
    }
    Ok(Measured { engine: request.engine, outcome, sync_latency })
}

/// Runs `work` with a hook that draws a progress bar.
fn with_progress<T, E>(
    output: &Output,
    name: &str,
    work: impl FnOnce(Box<dyn FnMut(Progress)>) -> Result<T, E>,
) -> Result<T, E> {
    let bar = output.progress(Some(0), ProgressUnit::Steps).with_prefix(name.to_owned());
    let shown = bar.clone();
    let done = work(Box::new(move |progress| {
        shown.set_length(progress.total);
        shown.set_position(progress.done);
    }));
    bar.finish_and_clear();
    done
}

const SPEED: [(&str, &str); 9] = [
    ("workload", "workload"),
    ("threads", "threads"),
    ("ops/s", "ops_per_s"),
    ("p50", "latency_ns_p50"),
    ("p99", "latency_ns_p99"),
    ("p99.9", "latency_ns_p99_9"),
    ("max", "latency_ns_max"),
    ("bare sync p50", "fdatasync_ns_p50"),
    ("load/s", "load_ops_per_s"),
];

const COUNTS: [(&str, &str); 9] = [
    ("workload", "workload"),
    ("threads", "threads"),
    ("fences", "fences_per_op"),
    ("flushes", "flushes_per_op"),
    ("PM bytes", "pm_bytes_per_op"),
    ("media blocks", "media_blocks_per_op"),
    ("syncs", "syncs_per_op"),
    ("PM bytes/record", "pm_bytes_per_record"),
    ("DRAM bytes/record", "dram_bytes_per_record"),
];

const CACHE: [(&str, &str); 11] = [
    ("workload", "workload"),
    ("threads", "threads"),
    ("bytes", "cache_bytes"),
    ("heap", "heap_bytes"),
    ("resident", "anonymous_bytes"),
    ("misses/op", "cache_misses_per_op"),
    ("hits/s", "hits_per_s"),
    ("page reads/s", "page_reads_per_s"),
    ("allowed ops/s", "allowed_ops_per_s"),
    ("part of it", "part_of_allowed"),
    ("part in turns", "part_in_turns"),
];

const PAGES: [(&str, &str); 6] = [
    ("workload", "workload"),
    ("threads", "threads"),
    ("flush unit", "flush_unit"),
    ("checkpoints", "checkpoints"),
    ("page bytes/update", "page_bytes_per_update"),
    ("log", "log_bytes"),
];

/// Speed, then events: two tables, and the origin of the figures.
pub fn text(all: &[Measured]) -> String {
    let shown = |columns: &[_]| results_table(columns, all.iter().map(|measured| &measured.outcome.result));
    let origin = all.first().map(origin).unwrap_or_default();
    let cached = all.iter().any(|measured| measured.outcome.result.extra.contains_key("cache_limit_bytes"));
    let cache = if cached { format!("\nthe cache\n{}", shown(&CACHE)) } else { String::new() };
    let has_pages = all.iter().any(|measured| measured.outcome.result.extra.contains_key("flush_unit"));
    let pages = if has_pages { format!("\nthe pages\n{}", shown(&PAGES)) } else { String::new() };
    format!("{origin}\n{}\nevents for each operation, and space\n{}{cache}{pages}", shown(&SPEED), shown(&COUNTS))
}

/// The conditions of a run's figures, in one line.
pub fn origin(measured: &Measured) -> String {
    let result = &measured.outcome.result;
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".into());
    let extra = |key: &str| match result.extra.get(key) {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => "unknown".into(),
    };
    format!(
        "YCSB on {}: {} records of {} + {} bytes, {}, seed {}\n\
         domain {}, medium {}, durability {}, instructions {}, journal {}",
        measured.engine.title(),
        human_figure(result.records as f64),
        extra("key_bytes"),
        extra("value_bytes"),
        extra("distribution"),
        result.seed,
        known(&result.domain),
        known(&result.media),
        known(&result.durability),
        extra("instructions"),
        result.extra.get("journal_bytes").and_then(serde_json::Value::as_u64).map_or_else(String::new, size::human),
    )
}

impl Request {
    /// Workload A in `folder` as the guided run shows it: durable writes in the default domain, every value checked.
    pub fn guided(folder: &Path, threads: usize, time_limit: Duration, seed: u64) -> Self {
        let spec = Spec { records: 100_000, operations: 5_000_000, threads, seed, ..Spec::new(Workload::A) };
        Self {
            engine: YcsbEngine::Map,
            spec,
            place: Place::in_folder(folder),
            time_limit: Some(time_limit),
            verify_reads: true,
            database: DatabaseOptions::default(),
            loaded: false,
            publish: None,
        }
    }
}
