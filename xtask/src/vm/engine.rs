//! `cargo xtask vm engine`: databases that work on TPC-C while the power goes, in guests with several NUMA nodes.
//!
//! For each machine (two nodes and four with caches that must be flushed; two with eADR): fresh NVDIMMs. One database
//! has a part on a DAX file system of every node, another one is on a devdax device. Boot, work in both at once, and
//! kill QEMU when both have acknowledged enough. Boot again on the same files: the twelve conditions of TPC-C hold, and
//! every acknowledged order and payment is there. Repeat.
//!
//! In two of three rounds tables and ranges of keys move between the nodes meanwhile. In half of the rounds each record
//! is in the logs of its rows' nodes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use super::checks::Checks;
use super::cuts::Cuts;
use super::guest::{Machine, Platform};
use super::session::{Session, verify_set_up};
use super::share::{Share, build_lodestone};

/// Where databases are: names used by the guest's scripts and for the files of acknowledgements.
const PLACES: [&str; 2] = ["nodes", "devdax"];

/// Options of `cargo xtask vm engine`.
#[derive(Args)]
pub(crate) struct Options {
    /// Print one JSON object per check and line, and nothing else.
    #[arg(long)]
    json: bool,
    /// Machines whose caches must be flushed, by their number of nodes; 0: no such machine.
    #[arg(long, value_delimiter = ',', default_value = "2,4", value_parser = clap::value_parser!(u8).range(0..=4))]
    nodes: Vec<u8>,
    /// Nodes of the machine with eADR; 0: no such machine.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=4))]
    eadr_nodes: u8,
    /// Power cuts of each machine.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Threads of each database.
    #[arg(long, default_value_t = 4)]
    threads: u32,
    /// Orders and payments that each database acknowledges before the power is cut.
    #[arg(long, default_value_t = 300)]
    acknowledged_min: usize,
    /// Seed of the random moments at which the power is cut.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Longest time for one boot, in seconds. Slow machines need more.
    #[arg(long, default_value_t = 1_800)]
    boot_seconds_max: u64,
    /// Use this program instead of building `lodestone`.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
}

pub(super) fn run(root: &Path, options: &Options) -> Result<bool> {
    let cache = root.join("vm/.cache");
    verify_set_up(&cache)?;
    let binary = options.binary.clone().map_or_else(|| build_lodestone(root), Ok)?;
    let share = Share::fill(root, &cache, &binary)?;
    let boot_max = Duration::from_secs(options.boot_seconds_max);
    let mut session = Session { cache: &cache, checks: Checks::new(options.json), boot_max };
    let machines = options.nodes.iter().map(|nodes| (Platform::Dax, *nodes));
    for (platform, nodes) in machines.chain([(Platform::Eadr, options.eadr_nodes)]) {
        if nodes == 0 {
            continue;
        }
        session.checks.note(&format!("-- {nodes} NUMA nodes, {}", platform.domain()));
        let machine = Machine::with_nodes(usize::from(nodes));
        let acknowledged_min = options.acknowledged_min;
        let mut cuts = Cuts { share: &share, machine, places: &PLACES, acknowledged_min, random: options.seed };
        cuts.run(&mut session, platform, options.rounds, &|round, is_last| {
            let variables = [
                ("MODE", "engine".to_owned()),
                ("EXPECTED", platform.domain().to_owned()),
                ("NODES", nodes.to_string()),
                ("ROUND", round.to_string()),
                ("LAST", u8::from(is_last).to_string()),
                ("THREADS", options.threads.to_string()),
            ];
            share.write_job(&variables).context("the guest would not know what to do")
        })?;
    }
    Ok(session.checks.finish())
}
