//! `lodestone sim fabric`: clusters of the fabric under seeded faults, with judges of its promises.

use std::time::Instant;

use anyhow::{Context, Result};
use lodestone_fabric_sim::{Outcome, World, keeper_plan_of, plan_of, volume_plan_of};
use serde::Serialize;

use lodestone_cli::interrupt;
use lodestone_cli::output::{Output, ProgressUnit, properties};

const AFTER_HELP: &str = "\
Examples:
  lodestone sim fabric --seeds 0-100
  lodestone sim fabric --seeds 0-1000 --operations 2000 --json
  lodestone sim fabric --seeds 42-43 --trace
  lodestone sim fabric --volume --seeds 0-100
  lodestone sim fabric --keepers --seeds 0-20

A seed draws members, senders, sizes and faults: lost, repeated, late and damaged packets, cuts, crashes of nodes in the
middle of a store, takeovers, changes of members, a registry that does not answer. A violation is printed with the
command that runs it again, bit for bit.";

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

    /// Print what happened in each run, event by event
    #[arg(long)]
    trace: bool,
}

fn seeds(text: &str) -> Result<(u64, u64), String> {
    let range = text.split_once('-').and_then(|(first, end)| Some((first.parse().ok()?, end.parse().ok()?)));
    range.filter(|(first, end)| first < end).ok_or_else(|| "two numbers that rise, such as 0-100".to_owned())
}

/// Sums over all runs.
#[derive(Default, Serialize)]
struct Total {
    kind: &'static str,
    seeds: u64,
    violations: u64,
    writes: u64,
    /// First records of terms, which no client wrote.
    begins: u64,
    acknowledged: u64,
    reads: u64,
    packets: u64,
    crashes: u64,
    takeovers: u64,
    changes: u64,
    events: u64,
    virtual_seconds: f64,
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
        self.packets += outcome.packets;
        self.crashes += outcome.crashes;
        self.takeovers += outcome.takeovers;
        self.changes += outcome.changes;
        self.events += outcome.events;
        self.virtual_seconds += outcome.time_ns as f64 / 1e9;
        self.digest = (self.digest ^ outcome.digest).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31);
    }
}

/// Runs `lodestone sim fabric`. Whether no run violated a promise.
pub fn run(args: &Args, output: &Output) -> Result<bool> {
    let (first, end) = args.seeds;
    let started = Instant::now();
    let bar = output.progress(Some(end - first), ProgressUnit::Steps).with_prefix("seeds");
    let mut total = Total { kind: "total", ..Total::default() };
    for seed in first..end {
        interrupt::so_far(format!("{} of {} seeds, {} violations", total.seeds, end - first, total.violations));
        let plan = match (args.volume, args.keepers) {
            (true, _) => volume_plan_of(seed, args.operations),
            (false, true) => keeper_plan_of(seed, args.operations),
            (false, false) => plan_of(seed, args.operations),
        };
        let world = World::new(plan, seed).context("the drawn sizes")?;
        let outcome = if args.trace {
            let (outcome, lines) = world.traced().run_traced();
            bar.suspend(|| lines.iter().try_for_each(|line| output.line(line)))?;
            outcome
        } else {
            world.run()
        };
        if let Some(violation) = &outcome.violation {
            let keepers = if args.keepers { "--keepers " } else { "" };
            let volume = if args.volume { "--volume " } else { keepers };
            let range = format!("{seed}-{}", seed + 1);
            let again = format!("lodestone sim fabric {volume}--seeds {range} --operations {}", args.operations);
            bar.suspend(|| output.result(&outcome, |_| format!("seed {seed}: {violation}\n  see it again: {again}")))?;
        } else if output.is_json() {
            output.json(&outcome)?;
        }
        total.add(&outcome);
        bar.inc(1);
    }
    bar.finish_and_clear();
    output.result(&total, |total| {
        properties([
            ("seeds", total.seeds.to_string()),
            ("violations", total.violations.to_string()),
            ("written by clients, by takeovers", format!("{}, {}", total.writes, total.begins)),
            ("acknowledged of all these", total.acknowledged.to_string()),
            ("reads", total.reads.to_string()),
            ("packets", total.packets.to_string()),
            ("crashes, takeovers, changes", format!("{}, {}, {}", total.crashes, total.takeovers, total.changes)),
            ("virtual time", format!("{:.1} s", total.virtual_seconds)),
            ("time", format!("{:.1} s", started.elapsed().as_secs_f64())),
            ("digest", format!("{:016x}", total.digest)),
        ])
    })?;
    Ok(total.violations == 0)
}
