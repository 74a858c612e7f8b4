//! The arguments, as a list of runs.

use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, ensure};
use lodestone_index::CacheMode;
use lodestone_index_bench::key::KeyShape;
use lodestone_index_bench::kinds::Setup;
use lodestone_index_bench::runner::{LoadOrder, Spec};
use lodestone_workload::keys::KeyChooser;
use lodestone_workload::mix::OperationKind;
use lodestone_workload::race::{Length, Plan};

use super::{Args, IndexName};
use crate::bench::duration;
use crate::bench::place::Place;

/// Bytes of a pool beside its records: headers, tables, slabs that are not full.
const POOL_BYTES_FIXED: u64 = 96 << 20;
/// Room for each record, the key of a string and its blocks not counted.
const RECORD_BYTES: u64 = 160;
/// Inserts of a thread per second that a pool has room for by default.
const INSERTS_PER_S: f64 = 2e6;
/// Largest default room for inserts.
const INSERTS_MAX: u64 = 20_000_000;
const JOURNAL_BYTES: u64 = 64 << 20;

/// Order of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Load {
    /// By record: scattered over the keys
    Random,
    /// By key
    Sorted,
}

/// When a cache is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Asked {
    /// While enough reads hit
    Adaptive,
    /// Always, before the index
    Serial,
    /// Always, while another thread searches the index
    Parallel,
}

/// Size of a cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CacheSize {
    Percent(f64),
    Keys(usize),
}

impl FromStr for CacheSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}' is no size of a cache; use a share such as 10% or a number of keys");
        match text.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.trim().parse().map_err(|_| bad())?;
                if percent > 0.0 && percent <= 100.0 { Ok(Self::Percent(percent)) } else { Err(bad()) }
            }
            None => text.parse().ok().filter(|keys| *keys > 0).map(Self::Keys).ok_or_else(bad),
        }
    }
}

impl CacheSize {
    /// Keys that it holds.
    pub fn keys(self, records: u64) -> usize {
        match self {
            Self::Percent(percent) => ((records as f64 * percent / 100.0) as usize).max(1),
            Self::Keys(keys) => keys,
        }
    }
}

/// One index and everything that runs on it.
pub struct Request {
    pub index: IndexName,
    pub key: KeyShape,
    pub setup: Setup,
    pub load: LoadOrder,
    pub load_threads: usize,
    pub pool_bytes: u64,
    pub journal_bytes: u64,
    pub place: Place,
    pub records: u64,
    pub seed: u64,
    pub runs: Vec<Spec>,
}

/// The requests in the arguments, each checked.
pub fn requests(args: &Args) -> Result<Vec<Request>> {
    let length = match args.operations {
        Some(count) => Length::Operations(count),
        None => Length::Time(duration(args.seconds, "--seconds")?),
    };
    let warm_up = args.warm_up.unwrap_or(if args.operations.is_some() { 0.0 } else { 0.5 });
    let warm_up = duration(warm_up, "--warm-up")?;
    let mut runs = Vec::new();
    for mix in args.mix.iter().flat_map(|mixes| &mixes.0) {
        let own = [mix.distribution()];
        let distributions = if args.distribution.is_empty() { &own[..] } else { &args.distribution[..] };
        for &distribution in distributions {
            KeyChooser::new(distribution, args.records, args.records)?;
            runs.extend(args.threads.iter().map(|&threads| Spec {
                records: args.records,
                first_new_record: args.records,
                mix: mix.clone(),
                distribution,
                seed: args.seed,
                scan_keys: args.scan_keys.0.clone(),
                plan: Plan {
                    threads: usize::from(threads),
                    warm_up,
                    length,
                    time_one_of: args.time_one_of,
                    sample_interval: Duration::from_millis(args.sample_ms),
                },
            }));
        }
    }
    args.index.iter().map(|&index| request(args, index, &runs)).collect()
}

fn request(args: &Args, index: IndexName, runs: &[Spec]) -> Result<Request> {
    let mut runs = runs.to_vec();
    if let IndexName::Persistent(kind) = index {
        ensure!(
            args.key != KeyShape::Word || kind.takes_words(),
            "{kind} takes strings as keys; say --key bytes:8 or leave it out of --index"
        );
        if !kind.is_ordered() {
            let all = runs.len();
            runs.retain(|run| run.mix.share(OperationKind::Scan) == 0);
            ensure!(
                !runs.is_empty() || all == 0,
                "{kind} keeps no order: it cannot scan; leave it out of --index, or scans out of --mix"
            );
        }
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    let inserts = runs.iter().map(inserts_of).max().unwrap_or(0);
    Ok(Request {
        index,
        key: args.key,
        setup: Setup {
            cache_keys: args.cache.keys(args.records),
            cache_mode: match args.cache_mode {
                Asked::Adaptive => CacheMode::Adaptive,
                Asked::Serial => CacheMode::Serial,
                Asked::Parallel => CacheMode::Parallel,
            },
        },
        load: match args.load {
            Load::Random => LoadOrder::Random,
            Load::Sorted => LoadOrder::Sorted,
        },
        load_threads: args.load_threads.map_or(processors, usize::from),
        pool_bytes: args.pool_size.unwrap_or_else(|| pool_bytes(args, args.records.saturating_add(inserts))),
        journal_bytes: JOURNAL_BYTES,
        place: args.place.clone(),
        records: args.records,
        seed: args.seed,
        runs,
    })
}

/// The load of the machine in the last minute. Figures of a busy machine are worth less.
pub fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// Inserts that a run may do.
fn inserts_of(run: &Spec) -> u64 {
    let share = f64::from(run.mix.share(OperationKind::Insert)) / 100.0;
    let Plan { threads, warm_up, length, .. } = run.plan;
    match length {
        Length::Operations(count) | Length::OperationsWithin(count, _) => (count as f64 * share).ceil() as u64,
        Length::Time(time) => {
            let seconds = (time + warm_up).as_secs_f64();
            ((seconds * share * INSERTS_PER_S * threads as f64) as u64).min(INSERTS_MAX)
        }
    }
}

fn pool_bytes(args: &Args, records: u64) -> u64 {
    let key_bytes = match args.key {
        KeyShape::Word => 0,
        KeyShape::Bytes(bytes) => 3 * bytes as u64 + 96,
    };
    (POOL_BYTES_FIXED + JOURNAL_BYTES + records.saturating_mul(RECORD_BYTES + key_bytes)).next_multiple_of(1 << 20)
}
