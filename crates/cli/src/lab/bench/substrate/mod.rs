//! `lodestone bench substrate`: the cost of the primitives beside the bare instructions and system calls.
//!
//! 1. `persist(64 B)` is a store, a flush and a fence through [`Memory`]; bare, the same three
//!    as unchecked instructions. `stream(4 KiB)` likewise. Same memory, same lines, same process.
//! 2. `durable()` in the block domain beside a bare durable write of 4 KiB and beside a bare write with `fdatasync`.
//! 3. Both sides of a comparison take turns in short rounds, and the order changes from round to round. A ratio is the
//!    median over the rounds, so that other load of the machine hits both sides alike.

mod compare;
mod device;
mod instructions;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use lodestone_media::TimeMode;
use lodestone_pmem::{Domain, DomainChoice, Memory, Pool, PoolOptions};
use lodestone_workload::result::human_ns;
use serde::Serialize;

use lodestone_cli::emulation::{self, Profile};
use lodestone_cli::output::{Output, table};

use compare::Comparison;

const AFTER_HELP: &str = "\
Examples:
  lodestone bench substrate
  lodestone bench substrate --path /dev/shm/scratch.pool --json
  lodestone bench substrate --assert --no-device
  lodestone bench substrate --profile optane --no-device

The exit code is 0 whatever the figures say; with --assert it is 1 when a primitive costs over 10 % more than its bare
instructions. With --profile, Lodestone's side has the medium's time in it and the bare instructions have not: nothing is judged.";

/// A primitive may cost this many times its bare instructions.
const RATIO_MAX: f64 = 1.10;

/// Bytes of the memory that is written to: more than the caches keep.
const SCRATCH_BYTES: u64 = 256 << 20;

/// Arguments of `lodestone bench substrate`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// A pool file to write to, which must not exist and is removed; on persistent memory, or anywhere with the dax
    /// instructions [default: memory of this process]
    #[arg(long, value_name = "FILE")]
    path: Option<PathBuf>,

    /// Folder on the device whose syncs are measured
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,

    /// Leave the device out
    #[arg(long)]
    no_device: bool,

    /// Rounds of each comparison
    #[arg(long, value_name = "COUNT", default_value_t = 201)]
    rounds: usize,

    /// Seed of the random lines
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// End with exit code 1 when a primitive costs over 10 % more than its bare instructions
    #[arg(long, conflicts_with = "profile")]
    assert: bool,

    /// Emulate a medium by spinning: dram, optane, cxl, or a TOML file (see `lodestone media`)
    #[arg(long, value_name = "NAME|FILE", value_parser = emulation::profile)]
    profile: Option<Profile>,
}

/// One comparison as `--json` prints it.
#[derive(Serialize)]
struct Line<'a> {
    bench: &'static str,
    #[serde(flatten)]
    comparison: &'a Comparison,
    domain: &'a str,
    media: &'a str,
    instructions: &'a str,
    seed: u64,
    ratio_max: Option<f64>,
    holds: Option<bool>,
}

/// Memory to write to, and its description.
struct Scratch {
    memory: Memory,
    domain: String,
    media: String,
    /// Keeps the file open.
    _pool: Option<Pool>,
}

/// Measures and judges.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    let scratch = scratch(args.path.as_deref(), args.profile.as_ref())?;
    let (flush, stream) = scratch.memory.instructions();
    let instructions = format!("{flush:?} {stream:?}").to_lowercase();
    output.note("measuring the instructions ...");
    let bare = instructions::measure(&scratch.memory, args.rounds.max(3), args.seed)?;
    let ratio_max = args.profile.is_none().then_some(RATIO_MAX);
    let holds = ratio_max.map(|ratio_max| bare.iter().all(|comparison| comparison.ratio <= ratio_max));
    let mut device = Vec::new();
    let mut device_media = String::new();
    if !args.no_device {
        output.note("measuring the device ...");
        (device, device_media) = device::measure(&args.folder, args.rounds.max(3), args.profile.as_ref())?;
    }
    if output.is_json() {
        let (domain, media) = (scratch.domain.as_str(), scratch.media.as_str());
        for comparison in &bare {
            let holds = ratio_max.map(|ratio_max| comparison.ratio <= ratio_max);
            let instructions = instructions.as_str();
            let bench = "substrate";
            output.json(&Line { bench, comparison, domain, media, instructions, seed: args.seed, ratio_max, holds })?;
        }
        for comparison in &device {
            output.json(&Line {
                bench: "substrate",
                comparison,
                domain: "block",
                media: &device_media,
                instructions: "",
                seed: args.seed,
                ratio_max: None,
                holds: None,
            })?;
        }
    } else {
        output.line(&text(&scratch, &instructions, &bare, args.rounds, holds))?;
        if !device.is_empty() {
            output.line(&format!(
                "\ndurable() on {device_media} ({}), block domain, one thread",
                args.folder.display()
            ))?;
            output.line(&rows(&device))?;
        }
    }
    Ok(holds != Some(false) || !args.assert)
}

fn text(scratch: &Scratch, instructions: &str, bare: &[Comparison], rounds: usize, holds: Option<bool>) -> String {
    let verdict = match holds {
        Some(true) => "within 10 % of the bare instructions",
        Some(false) => "MORE than 10 % over the bare instructions",
        None => "not judged: only Lodestone's side has the emulated medium's time in it",
    };
    format!(
        "primitives beside bare instructions: domain {}, medium {}, {instructions}, median of {rounds} rounds\n{}\n{verdict}",
        scratch.domain,
        scratch.media,
        rows(bare),
    )
}

fn rows(comparisons: &[Comparison]) -> String {
    let mut table = table(&["operation", "where", "lodestone", "bare", "bare is", "ratio"]);
    for one in comparisons {
        table.add_row([
            one.operation.to_owned(),
            one.pattern.to_owned(),
            nanoseconds(one.latency_ns),
            nanoseconds(one.bare_latency_ns),
            one.bare.to_owned(),
            format!("{:.3}", one.ratio),
        ]);
    }
    table.to_string()
}

fn nanoseconds(value: f64) -> String {
    if value < 1000.0 { format!("{value:.1} ns") } else { human_ns(value as u64) }
}

fn scratch(path: Option<&Path>, profile: Option<&Profile>) -> Result<Scratch> {
    let options = PoolOptions { size_bytes: SCRATCH_BYTES, scratch: true, ..PoolOptions::default() };
    // The wall clock is read, so the model spins for the medium's time.
    let options = emulation::apply(profile, TimeMode::Spinning, options)?;
    let Some(path) = path else {
        let media = match &options.medium {
            Some(medium) => format!("emulated: {} (on DRAM of this process)", medium.label()),
            None => "DRAM of this process".into(),
        };
        return Ok(Scratch {
            memory: Memory::anonymous_with(&[SCRATCH_BYTES], Domain::DaxEmulated, options.medium)?,
            domain: "dax-emulated".into(),
            media,
            _pool: None,
        });
    };
    let options = |domain| PoolOptions { domain, ..options.clone() };
    ensure!(!path.exists(), "{}: exists; a benchmark needs a pool file of its own", path.display());
    let pool = Pool::create(path, &options(DomainChoice::Dax)).or_else(|_| {
        // Not on persistent memory: remove the pool that was formatted before this was known. It may not even exist.
        let _ = std::fs::remove_file(path);
        Pool::create(path, &options(DomainChoice::DaxEmulated))
    })?;
    std::fs::remove_file(path).with_context(|| format!("{}: removing the name failed", path.display()))?;
    let info = pool.info();
    emulation::place(&pool);
    Ok(Scratch {
        memory: pool.memory().clone(),
        domain: info.domain_label(),
        media: info.media_label(),
        _pool: Some(pool),
    })
}
