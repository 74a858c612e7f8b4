//! `cargo xtask vm numa`: placement, agents and the probe on guests with several real NUMA nodes and an NVDIMM on each.
//!
//! For each machine (two nodes, then four): fresh NVDIMMs, one boot with the job `numa`. The guest makes a DAX file
//! system on every node's NVDIMM and checks how `lodestone` sees them. Then it runs the test programs that ask for
//! nodes.
//!
//! It shows nodes, processors, distances and devices as a kernel reports them, and threads that are really pinned. It
//! cannot show speed: every emulated memory is equally far.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use super::checks::Checks;
use super::guest::{Machine, Platform, create_modules};
use super::session::{Session, verify_set_up};
use super::share::{Share, TestPrograms};

/// A test program that mentions this variable needs the folders of several nodes.
const PROGRAMS: TestPrograms =
    TestPrograms { packages: &["lodestone-heap", "lodestone-numa"], only: None, variable: b"LODESTONE_PM_NODES" };

/// Options of `cargo xtask vm numa`.
#[derive(Args)]
pub(crate) struct Options {
    /// Print one JSON object per check and line, and nothing else.
    #[arg(long)]
    json: bool,
    /// Machines to boot, by their number of nodes.
    #[arg(long, value_delimiter = ',', default_value = "2,4", value_parser = clap::value_parser!(u8).range(2..=4))]
    nodes: Vec<u8>,
    /// Longest time for one boot, in seconds. Slow machines need more.
    #[arg(long, default_value_t = 900)]
    boot_seconds_max: u64,
    /// Longest time for the probe of the media, in seconds.
    #[arg(long, default_value_t = 240)]
    probe_seconds_max: u64,
    /// Use this program instead of building `lodestone`. The test programs are still built.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
}

pub(super) fn run(root: &Path, options: &Options) -> Result<bool> {
    let cache = root.join("vm/.cache");
    verify_set_up(&cache)?;
    let share = match &options.binary {
        Some(binary) => {
            let share = Share::fill(root, &cache, binary)?;
            share.copy_test_programs(root, &PROGRAMS)?;
            share
        }
        None => Share::fill_built(root, &cache, &PROGRAMS)?,
    };
    let boot_max = Duration::from_secs(options.boot_seconds_max);
    let mut session = Session { cache: &cache, checks: Checks::new(options.json), boot_max };
    for &nodes in &options.nodes {
        session.checks.note(&format!("-- {nodes} NUMA nodes, an NVDIMM on each"));
        let machine = Machine::with_nodes(usize::from(nodes));
        create_modules(&cache, machine)?;
        let variables = [
            ("MODE", "numa".to_owned()),
            ("EXPECTED", Platform::Dax.domain().to_owned()),
            ("NODES", nodes.to_string()),
            ("PROBE_SECONDS_MAX", options.probe_seconds_max.to_string()),
        ];
        share.write_job(&variables).context("the guest would not know what to do")?;
        session.run_job(Platform::Dax, machine, "numa-boot")?;
    }
    Ok(session.checks.finish())
}
