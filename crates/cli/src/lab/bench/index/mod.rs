//! `lodestone bench index`: the same operations on several indexes, in the manner of PIBench.
//!
//! Each index is loaded into a fresh pool (or into DRAM), then every mix, distribution and number of threads runs on
//! it. A mix that inserts or removes gets a fresh index. A run with a wrong answer has no figures, and the command
//! fails.

mod measure;
mod names;
mod reopen;
mod request;

use std::collections::BTreeSet;
use std::str::FromStr;

use anyhow::Result;
use lodestone_index_bench::key::KeyShape;
use lodestone_report::provenance::Provenance;
use lodestone_workload::keys::Distribution;
use lodestone_workload::mix::{Mix, ScanKeys};
use lodestone_workload::result::{BenchResult, human_figure, human_ns};

use lodestone_cli::interrupt;
use lodestone_cli::output::{Output, table};

use super::place::Place;
use super::{results_table, so_far};

pub use names::IndexName;
pub use reopen::{LoadArgs, run_load};

const AFTER_HELP: &str = "\
Examples:
  lodestone bench index --index fastfair,fptree,skiplist,hash --mix search \\
    --threads 1,2 --path /dev/shm --domain dax-emulated
  lodestone bench index --index fastfair,btreemap-lock --mix a,b,c,d,e,f \\
    --records 1000000 --durability process --json
  lodestone bench index --index fptree,hybrid,hybrid-plus --open \\
    --records 1000000 --path /dev/shm --domain dax-emulated
  lodestone bench index --index hash --mix read=50,insert=25,remove=25 \\
    --operations 100000 --profile optane --path /dev/shm \\
    --domain dax-emulated

Presets of --mix: search, insert, update, remove, scan, mixed (half reads, a quarter inserts, a quarter removes), write (half
inserts, half removes), and a to f as in YCSB. Shares are given as read=50,insert=20,update=10,remove=10,scan=10 (also
read-update). Distributions: uniform, zipfian[:THETA], self-similar[:SKEW], latest[:THETA], sequential [default: what the preset
defines, else uniform].

Indexes: fastfair, fptree, skiplist, hash (points only), hybrid, hybrid-plus, acs-NAME (a cache in DRAM before fastfair, fptree, skiplist or
hash), map (strings only). In DRAM for comparison: btreemap-lock, crossbeam-skiplist.

Space: PM bytes are the allocated blocks of the heap; DRAM bytes are what the process has allocated since before the index was
opened (a counting allocator), the heap's own tables included; unknown with --profile, whose model is in DRAM too. Media
blocks are counted with --profile alone.";

/// Arguments about runs and their load. `--open` has no runs and another load, and would ignore them.
const OF_RUNS: [&str; 12] = [
    "mix",
    "distribution",
    "operations",
    "seconds",
    "warm_up",
    "threads",
    "load",
    "load_threads",
    "cache_mode",
    "scan_keys",
    "time_one_of",
    "sample_ms",
];

/// Arguments of `lodestone bench index`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Indexes, separated by commas; see below for their names
    #[arg(long, value_name = "NAMES", default_value = "fastfair,fptree,skiplist,hash", value_delimiter = ',')]
    index: Vec<IndexName>,

    /// Presets separated by commas, or shares; may be given several times
    #[arg(long, value_name = "MIX", default_value = "search", value_parser = mixes)]
    mix: Vec<Mixes>,

    /// Distributions of the touched records
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    distribution: Vec<Distribution>,

    /// Keys: u64, or bytes:N for strings of N bytes
    #[arg(long, value_name = "SHAPE", default_value = "u64")]
    key: KeyShape,

    /// Records that are loaded
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..1 << 40))]
    records: u64,

    /// Measure so many operations of all threads instead of a time. The counts of one thread are then the same in every
    /// run, except for indexes whose hash begins with a random seed
    #[arg(long, value_name = "COUNT", conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    operations: Option<u64>,

    /// Measured time of each run
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    seconds: f64,

    /// Time before it that is not measured [default: 0.5, with --operations 0]
    #[arg(long, value_name = "SECONDS")]
    warm_up: Option<f64>,

    /// Threads; several numbers run one after the other
    #[arg(long, value_name = "COUNTS", default_value = "1", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=512))]
    threads: Vec<u16>,

    /// Order of the load: random or sorted
    #[arg(long, value_enum, default_value = "random")]
    load: request::Load,

    /// Threads of the load [default: one per processor, at most 8]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=512))]
    load_threads: Option<u16>,

    /// Capacity of a cache in DRAM: a share of the records, or a number of keys
    #[arg(long, value_name = "PERCENT%|KEYS", default_value = "10%")]
    cache: request::CacheSize,

    /// When the cache is asked: adaptive (while enough reads hit), serial (always, first), parallel (always, beside the
    /// index)
    #[arg(long, value_enum, default_value = "adaptive")]
    cache_mode: request::Asked,

    /// Scans read 1 to this many keys, or MIN-MAX
    #[arg(long, value_name = "KEYS", default_value = "100")]
    scan_keys: ScanKeys,

    /// Time one of so many operations
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    time_one_of: u64,

    /// Time between two samples of the throughput, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    sample_ms: u64,

    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Size of the pool [default: enough for the records and for the inserts of a run]
    #[arg(long, value_name = "BYTES", value_parser = lodestone_cli::size::parse)]
    pool_size: Option<u64>,

    /// Measure only opening: time to the first answer and to full speed, after a clean end and after a kill
    #[arg(long, conflicts_with_all = OF_RUNS)]
    open: bool,

    #[command(flatten)]
    place: Place,
}

/// One word of `--mix`.
#[derive(Clone, Debug)]
struct Mixes(Vec<Mix>);

fn mixes(text: &str) -> Result<Mixes, String> {
    let one = |text: &str| Mix::from_str(text).map_err(|error| error.to_string());
    if text.contains('=') {
        return one(text).map(|mix| Mixes(vec![mix]));
    }
    text.split(',').map(one).collect::<Result<_, _>>().map(Mixes)
}

/// Runs the benchmark.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    if args.open {
        return run_open(args, output);
    }
    let mut results = Vec::new();
    let requests = request::requests(args)?;
    for (done, request) in requests.iter().enumerate() {
        interrupt::so_far(so_far(done, requests.len()));
        measure::measure(request, output, &mut |result| {
            if output.is_json() {
                output.json(&result)?;
            }
            results.push(result);
            Ok(())
        })?;
    }
    if !output.is_json() {
        output.line(&text(&results))?;
    }
    Ok(())
}

/// Opens each index after a clean end and after a kill.
fn run_open(args: &Args, output: &Output) -> Result<()> {
    let mut shown =
        table(&["index", "after", "opening the index", "first answer", "first range", "warm", "full speed", "reads/s"]);
    for request in request::requests(args)? {
        reopen::measure(&request, output, &mut |found| {
            if output.is_json() {
                return output.json(&found);
            }
            let time = |ms: f64| human_ns((ms * 1e6) as u64);
            shown.add_row([
                found.engine.clone(),
                found.after.to_owned(),
                time(found.index_open_ms),
                time(found.first_answer_ms),
                found.first_range_ms.map_or_else(|| "-".into(), time),
                time(found.warm_ms),
                time(found.full_speed_ms),
                human_figure(found.reads_per_s),
            ]);
            Ok(())
        })?;
    }
    if !output.is_json() {
        output.line(&format!(
            "{shown}\nall from before the pool is opened, but the second column; {} records, seed {}",
            args.records, args.seed
        ))?;
    }
    Ok(())
}

const SPEED: [(&str, &str); 12] = [
    ("index", "engine"),
    ("mix", "workload"),
    ("keys from", "distribution"),
    ("threads", "threads"),
    ("ops/s", "ops_per_s"),
    ("cpu ns/op", "cpu_ns_per_op"),
    ("p50", "latency_ns_p50"),
    ("p99", "latency_ns_p99"),
    ("p99.9", "latency_ns_p99_9"),
    ("p99.99", "latency_ns_p99_99"),
    ("max", "latency_ns_max"),
    ("load/s", "load_ops_per_s"),
];

const COUNTS: [(&str, &str); 11] = [
    ("index", "engine"),
    ("mix", "workload"),
    ("threads", "threads"),
    ("lines/op", "flushes_per_op"),
    ("fences/op", "fences_per_op"),
    ("blocks read/op", "media_blocks_read_per_op"),
    ("blocks written/op", "media_blocks_written_per_op"),
    ("PM bytes/op", "pm_bytes_per_op"),
    ("PM bytes/key", "pm_bytes_per_record"),
    ("DRAM bytes/key", "dram_bytes_per_record"),
    ("hit rate", "cache_hit_rate"),
];

/// Speed, then events and space: two tables, and the origin of the figures.
fn text(results: &[BenchResult]) -> String {
    format!("{}\n{}\n{}", results_table(&SPEED, results), results_table(&COUNTS, results), origin(results))
}

/// The conditions that all figures share.
fn origin(results: &[BenchResult]) -> String {
    let Some(first) = results.first() else { return String::new() };
    let every = |fact: fn(&BenchResult) -> Option<&str>| {
        let found: BTreeSet<&str> = results.iter().filter_map(fact).collect();
        if found.is_empty() { "none".to_owned() } else { Vec::from_iter(found).join("; ") }
    };
    let machine = Provenance::of_this_machine();
    let machine = machine.facts().iter().find(|(name, _)| name == "machine").map_or("unknown", |(_, fact)| fact);
    let fact = |key: &str| first.extra.get(key).map_or_else(String::new, |value| value.to_string().replace('"', ""));
    format!(
        "{} records, keys {}, seed {}; domain {}, medium {}, durability {}\n{machine}; load average {}",
        human_figure(first.records as f64),
        fact("key"),
        first.seed,
        every(|result| result.domain.as_deref()),
        every(|result| result.media.as_deref()),
        every(|result| result.durability.as_deref()),
        fact("load_average"),
    )
}
