//! `lodestone sim fabric`: clusters of the fabric under seeded faults, with judges of its promises.
//!
//! A long run keeps its sums in a file, and goes on where it was ended.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lodestone_fabric_sim::{Outcome, World, keeper_plan_of, plan_of, volume_plan_of};
use serde::{Deserialize, Serialize};

use lodestone_cli::interrupt;
use lodestone_cli::output::{Output, ProgressUnit, properties};

const AFTER_HELP: &str = "\
Examples:
  lodestone sim fabric --seeds 0-100
  lodestone sim fabric --seeds 0-1000 --operations 2000 --json
  lodestone sim fabric --seeds 42-43 --trace
  lodestone sim fabric --volume --seeds 0-100
  lodestone sim fabric --keepers --seeds 0-20
  lodestone sim fabric --check halves --seeds 0-20
  lodestone sim fabric --seeds 0-20000 --operations 5000 --save run.json

A seed draws members, senders, sizes and faults: lost, repeated, late and damaged packets, cuts, crashes of nodes in the
middle of a store, nodes that are lost for good, takeovers, changes of members, a registry that does not answer. A
violation is printed with the command that runs it again, bit for bit. With --save a run that was ended goes on with the
next seed when it is started again.";

/// Arguments of `lodestone sim fabric`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Seeds: the first one, and the one after the last
    #[arg(long, value_name = "FIRST-END", default_value = "0-100", value_parser = seeds)]
    seeds: (u64, u64),

    /// Records that the clients of a run write
    #[arg(long, value_name = "COUNT", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    operations: u64,

    /// Volumes: operations in a group of their own, and one to three units with their bytes
    #[arg(long)]
    volume: bool,

    /// A registry of keepers, which crash and are cut off too
    #[arg(long, conflicts_with = "volume")]
    keepers: bool,

    /// The checksums that guard the bytes of a packet
    #[arg(long, value_enum, default_value_t = Check::Crc)]
    check: Check,

    /// Print what happened in each run, event by event
    #[arg(long)]
    trace: bool,

    /// Keep the sums of all seeds so far in this file, and go on from there
    #[arg(long, value_name = "FILE", conflicts_with = "trace")]
    save: Option<PathBuf>,
}

/// The checksums that guard the bytes of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Check {
    /// One checksum of head and bytes.
    #[default]
    Crc,
    /// Two halves with a checksum each and their parity, as in paper 5, inside of that.
    Halves,
}

fn seeds(text: &str) -> Result<(u64, u64), String> {
    let range = text.split_once('-').and_then(|(first, end)| Some((first.parse().ok()?, end.parse().ok()?)));
    range.filter(|(first, end)| first < end).ok_or_else(|| "two numbers that rise, such as 0-100".to_owned())
}

/// Sums over all runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Total {
    kind: String,
    seeds: u64,
    violations: u64,
    writes: u64,
    /// First records of terms, which no client wrote.
    begins: u64,
    acknowledged: u64,
    reads: u64,
    /// Files whose reads and writes have an order by a search, and files whose search took too many steps.
    searched: u64,
    unsearched: u64,
    sent: u64,
    sent_bytes: u64,
    resent: u64,
    nacks: u64,
    packets: u64,
    refused: u64,
    rebuilt: u64,
    crashes: u64,
    losses: u64,
    without_quorum: u64,
    takeovers: u64,
    changes: u64,
    events: u64,
    virtual_seconds: f64,
    /// The sum of the runs' median times from submission to acknowledgement.
    told_ns: u64,
    /// Time of the processes that ran so far.
    seconds: f64,
    /// A digest of all digests: the same on every machine.
    digest: u64,
}

impl Total {
    fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.violations += u64::from(outcome.violation.is_some());
        self.writes += outcome.writes;
        self.begins += outcome.takeovers;
        self.acknowledged += outcome.acknowledged;
        self.reads += outcome.reads;
        self.searched += outcome.searched;
        self.unsearched += outcome.unsearched;
        self.sent += outcome.sent;
        self.sent_bytes += outcome.sent_bytes;
        self.resent += outcome.resent;
        self.nacks += outcome.nacks;
        self.packets += outcome.packets;
        self.refused += outcome.refused;
        self.rebuilt += outcome.rebuilt;
        self.crashes += outcome.crashes;
        self.losses += outcome.losses;
        self.without_quorum += u64::from(outcome.without_quorum);
        self.takeovers += outcome.takeovers;
        self.changes += outcome.changes;
        self.events += outcome.events;
        self.virtual_seconds += outcome.time_ns as f64 / 1e9;
        self.told_ns += outcome.told_ns_p50;
        self.digest = (self.digest ^ outcome.digest).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31);
    }
}

/// A run that can go on.
#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    seeds: (u64, u64),
    operations: u64,
    volume: bool,
    keepers: bool,
    check: Check,
    /// The next seed.
    next: u64,
    total: Total,
    violations: Vec<String>,
}

impl Saved {
    fn new(args: &Args) -> Self {
        let total = Total { kind: "total".to_owned(), ..Total::default() };
        let Args { seeds, operations, volume, keepers, check, .. } = *args;
        Self { seeds, operations, volume, keepers, check, next: seeds.0, total, violations: Vec::new() }
    }

    /// The run in a file, or a new one.
    fn open(args: &Args) -> Result<Self> {
        let Some(file) = args.save.as_deref().filter(|file| file.exists()) else { return Ok(Self::new(args)) };
        let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        let saved: Self = serde_json::from_str(&text)
            .with_context(|| format!("{} is not the file of such a run; choose another one", file.display()))?;
        let new = Self::new(args);
        let is_same = (saved.seeds, saved.operations, saved.volume, saved.keepers, saved.check)
            == (new.seeds, new.operations, new.volume, new.keepers, new.check);
        ensure!(is_same, "{} is of a run with other options; choose another file, or remove it", file.display());
        Ok(saved)
    }

    fn write(&self, file: &Path) -> Result<()> {
        // Whole or not at all: the process may be ended at any moment.
        let new = file.with_extension("new");
        fs::write(&new, serde_json::to_string_pretty(self)?).with_context(|| format!("writing {}", new.display()))?;
        fs::rename(&new, file).with_context(|| format!("writing {}", file.display()))
    }
}

const SAVE_EVERY: Duration = Duration::from_secs(5);
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Runs `lodestone sim fabric`. Whether no run violated a promise.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    let (first, end) = args.seeds;
    let mut saved = Saved::open(args)?;
    let (begun, before, started) = (saved.next, saved.total.seconds, Instant::now());
    let (mut kept, mut told) = (started, started);
    let bar = output.progress(Some(end - first), ProgressUnit::Steps).with_prefix("seeds");
    bar.set_position(begun - first);
    for seed in begun..end {
        let total = &mut saved.total;
        interrupt::so_far(format!("{} of {} seeds, {} violations", total.seeds, end - first, total.violations));
        let mut plan = match (args.volume, args.keepers) {
            (true, _) => volume_plan_of(seed, args.operations),
            (false, true) => keeper_plan_of(seed, args.operations),
            (false, false) => plan_of(seed, args.operations),
        };
        plan.halves = args.check == Check::Halves;
        let world = World::new(plan, seed).context("the drawn sizes")?;
        let outcome = if args.trace {
            let (outcome, lines) = world.traced().run_traced();
            bar.suspend(|| lines.iter().try_for_each(|line| output.line(line)))?;
            outcome
        } else {
            world.run()
        };
        total.add(&outcome);
        total.seconds = before + started.elapsed().as_secs_f64();
        saved.next = seed + 1;
        if let Some(violation) = &outcome.violation {
            let said = format!("seed {seed}: {violation}\n  see it again: {}", again(args, seed));
            bar.suspend(|| output.result(&outcome, |_| said.clone()))?;
            saved.violations.push(said);
        } else if output.is_json() && args.save.is_none() {
            output.json(&outcome)?;
        }
        bar.inc(1);
        if let Some(file) = args.save.as_deref().filter(|_| kept.elapsed() > SAVE_EVERY || seed + 1 == end) {
            kept = Instant::now();
            saved.write(file)?;
        }
        if bar.is_hidden() && !output.is_json() && told.elapsed() > TELL_EVERY {
            told = Instant::now();
            let (done, seconds) = (seed + 1 - begun, started.elapsed().as_secs_f64());
            let left = (end - seed - 1) as f64 * seconds / done as f64;
            output.line(&format!(
                "seeds up to {}: {:.1} a second, {left:.0} s left, {} violations",
                seed + 1,
                done as f64 / seconds,
                saved.total.violations
            ))?;
        }
    }
    bar.finish_and_clear();
    tell(&saved.total, output)?;
    Ok(saved.total.violations == 0)
}

/// The command that runs a seed again.
fn again(args: &Args, seed: u64) -> String {
    let keepers = if args.keepers { "--keepers " } else { "" };
    let volume = if args.volume { "--volume " } else { keepers };
    let check = if args.check == Check::Halves { "--check halves " } else { "" };
    let range = format!("{seed}-{}", seed + 1);
    format!("lodestone sim fabric {volume}{check}--seeds {range} --operations {}", args.operations)
}

fn tell(total: &Total, output: &Output) -> Result<()> {
    output.result(total, |total| {
        let runs = total.seeds.max(1) as f64;
        properties([
            ("seeds", total.seeds.to_string()),
            ("violations", total.violations.to_string()),
            ("written by clients, by takeovers", format!("{}, {}", total.writes, total.begins)),
            ("acknowledged of all these", total.acknowledged.to_string()),
            ("told after, in virtual time", format!("{:.0} us (mean of medians)", total.told_ns as f64 / runs / 1e3)),
            ("reads", total.reads.to_string()),
            ("files with an order, searched in vain", format!("{}, {}", total.searched, total.unsearched)),
            ("sent, bytes", format!("{}, {}", total.sent, total.sent_bytes)),
            ("of these sent again, requests", format!("{}, {}", total.resent, total.nacks)),
            ("arrived, refused, made again", format!("{}, {}, {}", total.packets, total.refused, total.rebuilt)),
            ("crashes, takeovers, changes", format!("{}, {}, {}", total.crashes, total.takeovers, total.changes)),
            ("lost for good", total.losses.to_string()),
            ("runs that ended without a quorum", total.without_quorum.to_string()),
            ("virtual time", format!("{:.1} s", total.virtual_seconds)),
            ("time", format!("{:.1} s", total.seconds)),
            ("digest", format!("{:016x}", total.digest)),
        ])
    })
}
