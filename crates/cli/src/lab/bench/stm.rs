//! `lodestone bench stm`: the same structure, the same operations, on several transactional memories.
//!
//! Each combination of structure, share of updates, threads and engine runs on a fresh memory: it is loaded, warmed up,
//! measured, and checked. A run whose structure is wrong afterwards has no figures, and the command fails.

use std::collections::BTreeSet;
use std::str::FromStr;

use anyhow::{Result, bail};
use lodestone_baselines::tl2::{ClockKind, LogKind, Tl2, Tl2Options};
use lodestone_heap::HeapOptions;
use lodestone_stm::Mode;
use lodestone_stm_bench::dram::{Dram, DramLock};
use lodestone_stm_bench::driver::MapOn;
use lodestone_stm_bench::lodestone::{Lodestone, mode_name};
use lodestone_stm_bench::runner::{self, Spec};
use lodestone_stm_bench::structures::{BTree, HashTable, Map, SearchTree, SortedList};
use lodestone_stm_bench::tm::TransactionalMemory;
use lodestone_workload::race::{Length, Plan};
use lodestone_workload::result::BenchResult;

use lodestone_cli::interrupt;
use lodestone_cli::output::{Output, ProgressUnit};

use super::place::Place;
use super::{duration, results_table, so_far};

const AFTER_HELP: &str = "\
Examples:
  lodestone bench stm --structure hash --updates 2,20,80 --threads 1,2 \\
    --path /dev/shm --domain dax-emulated
  lodestone bench stm --engine tl2-redo --clock mutex,add,cas \\
    --structure hash --updates 80 --json
  lodestone bench stm --engine dram,dram-lock \\
    --structure hash,tree,list,btree --seconds 2

Without --path and --domain the pools are in memory (/dev/shm, domain dax-emulated): the figures are those of the code, not
of a disk. The domain is printed first.

Keys are drawn from a range of twice the loaded keys, and updates are inserts and removes, half and half: so the
structure keeps its size, and half of the updates find nothing to change.

Engines: `stm` is Lodestone's own, in its modes and with its clocks; `dram` is the plain structure alone on one thread, `dram-lock` the same behind a reader-writer lock; `tl2-undo`
and `tl2-redo` are durable with a global clock and a log. The clock `thread` is for `stm` alone; an engine that has none of
the clocks that were asked for runs with its own (`stm`: thread, TL2: add).";

/// Bytes of a benchmark's pool beside the objects.
const POOL_BYTES: u64 = 192 << 20;
const JOURNAL_BYTES: u64 = 16 << 20;
const DRAM_BYTES: usize = 256 << 20;
const KEYS_LIST: u64 = 256;
const KEYS_OTHER: u64 = 10_000;

/// Arguments of `lodestone bench stm`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Structures: hash, tree, list, btree
    #[arg(long, value_name = "NAMES", default_value = "hash", value_delimiter = ',')]
    structure: Vec<Structure>,

    /// Engines: stm, dram, dram-lock, tl2-undo, tl2-redo
    #[arg(long, value_name = "NAMES", default_value = "stm,dram,tl2-undo,tl2-redo", value_delimiter = ',')]
    engine: Vec<EngineKind>,

    /// Modes of stm: one-fence, address-log, scan
    #[arg(long, value_name = "NAMES", default_value = "one-fence", value_delimiter = ',', value_parser = mode)]
    mode: Vec<Mode>,

    /// Clocks of the engines that have a choice: thread, mutex, add, cas
    #[arg(long, value_name = "NAMES", default_value = "thread", value_delimiter = ',')]
    clock: Vec<Clock>,

    /// Updates in a hundred operations
    #[arg(long, value_name = "PERCENTS", default_value = "20", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(0..=100))]
    updates: Vec<u64>,

    /// Threads; several numbers run one after the other
    #[arg(long, value_name = "COUNTS", default_value = "1", value_delimiter = ',')]
    threads: Vec<usize>,

    /// Keys that are loaded [default: 256 for the list, 10,000 for the others]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    keys: Option<u64>,

    /// Buckets of the hash table
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    buckets: u32,

    /// Measured time of each run
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    seconds: f64,

    /// Time before it that is not measured
    #[arg(long, value_name = "SECONDS", default_value_t = 0.2)]
    warm_up: f64,

    /// Measure so many operations of each thread instead of a time. The counts are then the same in every run
    #[arg(long, value_name = "COUNT")]
    operations: Option<u64>,

    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    place: Place,
}

/// A mode of stm by its name.
pub fn mode(text: &str) -> Result<Mode, String> {
    let known = [Mode::OneFence, Mode::AddressLog, Mode::Scan];
    let found = known.into_iter().find(|mode| mode_name(*mode) == text);
    found.ok_or_else(|| format!("unknown mode '{text}'; use one-fence, address-log or scan"))
}

/// A clock on the command line. Not every engine has every clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    Thread,
    Global(ClockKind),
}

impl FromStr for Clock {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "thread" { Ok(Self::Thread) } else { text.parse().map(Self::Global) }
    }
}

impl Clock {
    /// The clock of `lodestone-stm`.
    pub fn of_stm(self) -> lodestone_stm::ClockKind {
        match self {
            Self::Thread => lodestone_stm::ClockKind::Thread,
            Self::Global(ClockKind::Mutex) => lodestone_stm::ClockKind::GlobalMutex,
            Self::Global(ClockKind::Add) => lodestone_stm::ClockKind::GlobalFetchAdd,
            Self::Global(ClockKind::Cas) => lodestone_stm::ClockKind::GlobalCompareExchange,
        }
    }
}

/// A structure of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    Hash,
    Tree,
    List,
    BTree,
}

impl FromStr for Structure {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "hash" => Self::Hash,
            "tree" => Self::Tree,
            "list" => Self::List,
            "btree" => Self::BTree,
            _ => return Err(format!("unknown structure '{text}'; use hash, tree, list or btree")),
        })
    }
}

/// An engine of the benchmark. Its clock and mode are separate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    Stm,
    Dram,
    DramLock,
    Tl2(LogKind),
}

impl FromStr for EngineKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "stm" => Self::Stm,
            "dram" => Self::Dram,
            "dram-lock" => Self::DramLock,
            "tl2-undo" => Self::Tl2(LogKind::Undo),
            "tl2-redo" => Self::Tl2(LogKind::Redo),
            _ => return Err(format!("unknown engine '{text}'; use stm, dram, dram-lock, tl2-undo or tl2-redo")),
        })
    }
}

/// One run.
#[derive(Clone, Debug)]
pub struct Request {
    pub structure: Structure,
    pub buckets: usize,
    pub engine: EngineKind,
    pub mode: Mode,
    pub clock: Clock,
    pub spec: Spec,
}

/// Runs the command.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    let mut results = Vec::new();
    let (requests, place) = (args.requests()?, args.place.or_memory());
    // First, so that a reader of a figure knows its origin.
    let origin = place.origin()?;
    if !output.is_json() {
        output.line(&origin.to_string())?;
    }
    let bar = output.progress(Some(requests.len() as u64), ProgressUnit::Steps).with_prefix("bench stm");
    for (done, request) in requests.iter().enumerate() {
        bar.set_message(request.name());
        bar.set_position(done as u64);
        interrupt::so_far(so_far(done, requests.len()));
        let result = measure(request, &place)?;
        if output.is_json() {
            output.json(&result)?;
        }
        results.push(result);
    }
    bar.finish_and_clear();
    if !output.is_json() {
        output.line(&text(&results))?;
    }
    Ok(())
}

impl Request {
    /// The name of the run in the progress display.
    fn name(&self) -> String {
        let Spec { updates_percent, plan: Plan { threads, .. }, .. } = self.spec;
        format!("{:?} on {:?}, {updates_percent} % updates, {threads} threads", self.engine, self.structure)
    }
}

impl Args {
    fn requests(&self) -> Result<Vec<Request>> {
        let plan = |threads: usize| -> Result<Plan> {
            if let Some(count) = self.operations {
                return Ok(Plan::new(threads, Length::Operations(count.saturating_mul(threads as u64))));
            }
            let length = Length::Time(duration(self.seconds, "--seconds")?);
            Ok(Plan { warm_up: duration(self.warm_up, "--warm-up")?, ..Plan::new(threads, length) })
        };
        let mut all = Vec::new();
        for &structure in &self.structure {
            for &updates_percent in &self.updates {
                for &threads in &self.threads {
                    let keys = self.keys.unwrap_or(if structure == Structure::List { KEYS_LIST } else { KEYS_OTHER });
                    let spec = Spec { keys, updates_percent, seed: self.seed, plan: plan(threads)? };
                    self.add_engines(structure, &spec, &mut all);
                }
            }
        }
        if all.is_empty() {
            bail!("nothing to run: `dram` has no lock and runs on one thread; use dram-lock");
        }
        Ok(all)
    }

    fn add_engines(&self, structure: Structure, spec: &Spec, all: &mut Vec<Request>) {
        let buckets = self.buckets as usize;
        for &engine in &self.engine {
            let global = self.clock.iter().copied().filter(|clock| *clock != Clock::Thread);
            let (modes, mut clocks) = match engine {
                EngineKind::Dram if spec.plan.threads > 1 => continue,
                EngineKind::Dram | EngineKind::DramLock => (&[Mode::OneFence][..], Vec::new()),
                EngineKind::Stm => (&self.mode[..], self.clock.clone()),
                EngineKind::Tl2(_) => (&[Mode::OneFence][..], global.collect()),
            };
            if clocks.is_empty() {
                clocks.push(Clock::Global(ClockKind::Add));
            }
            for &mode in modes {
                let request = |&clock| Request { structure, buckets, engine, mode, clock, spec: spec.clone() };
                all.extend(clocks.iter().map(request));
            }
        }
    }
}

/// Runs one combination on a fresh memory.
pub fn measure(request: &Request, place: &Place) -> Result<BenchResult> {
    match request.engine {
        EngineKind::Stm => {
            let pool = place.create(POOL_BYTES, JOURNAL_BYTES)?;
            on(&Lodestone::open(&pool, request.mode, request.clock.of_stm())?, request)
        }
        EngineKind::Dram => on(&Dram::new(DRAM_BYTES, DramLock::None), request),
        EngineKind::DramLock => on(&Dram::new(DRAM_BYTES, DramLock::ReaderWriter), request),
        EngineKind::Tl2(log) => {
            let pool = place.create(POOL_BYTES, JOURNAL_BYTES)?;
            let Clock::Global(clock) = request.clock else { bail!("TL2 has global clocks only") };
            let options = Tl2Options { object_bytes: 128 << 20, ..Tl2Options::new(log, clock) };
            on(&Tl2::open(&pool, &HeapOptions::default(), &options)?, request)
        }
    }
}

fn on<M: TransactionalMemory>(memory: &M, request: &Request) -> Result<BenchResult> {
    match request.structure {
        Structure::Hash => measured(memory, HashTable { buckets: request.buckets }, request),
        Structure::Tree => measured(memory, SearchTree, request),
        Structure::List => measured(memory, SortedList, request),
        Structure::BTree => measured(memory, BTree, request),
    }
}

fn measured<M: TransactionalMemory, S: Map>(memory: &M, map: S, request: &Request) -> Result<BenchResult> {
    let driver = MapOn::create(memory, map)?;
    runner::load(&driver, &request.spec)?;
    Ok(runner::run(&driver, &request.spec)?.result(&driver, &request.spec))
}

const COLUMNS: [(&str, &str); 11] = [
    ("structure", "workload"),
    ("updates %", "updates_percent"),
    ("threads", "threads"),
    ("engine", "engine"),
    ("ops/s", "ops_per_s"),
    ("cpu ns/op", "cpu_ns_per_op"),
    ("aborts/commit", "aborts_per_commit"),
    ("fences/change", "fences_per_change"),
    ("lines/change", "flushes_per_change"),
    ("shared RMWs/change", "shared_rmws_per_change"),
    ("domain", "domain"),
];

/// A table for people, and the origin of the figures.
fn text(results: &[BenchResult]) -> String {
    let shown = results_table(&COLUMNS, results);
    let seed = results.first().map_or(0, |result| result.seed);
    let media: BTreeSet<&str> = results.iter().filter_map(|result| result.media.as_deref()).collect();
    let media = if media.is_empty() { "none".into() } else { Vec::from_iter(media).join("; ") };
    format!(
        "{shown}\nmedium {media}\na change is an update that found something to do; seed {seed}; every structure was checked afterwards"
    )
}
