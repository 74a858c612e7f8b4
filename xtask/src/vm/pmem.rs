//! `cargo xtask vm pmem`: the tests that need persistent memory, in guests.
//!
//! For each platform (`dax`: caches must be flushed; `eadr`: the platform saves them):
//!
//! 1. Fresh NVDIMMs. Boot, and make the places (ext4, XFS, devdax). Check in each place: which domain does a pool have,
//!    does it keep a value, does it survive killed processes, do the test programs pass? Then check the file systems.
//! 2. Fresh NVDIMMs. Boot and write in all places at once. When every writer has acknowledged enough, wait a random
//!    moment and kill QEMU. Boot again on the same files: every acknowledged write must be there. Repeat.
//!
//! A killed guest loses its processes, its kernel, its page cache, and file-system state in memory. It does not lose
//! stores that are still in a CPU cache, because QEMU has no cache model. The crash explorer looks for missing flushes.
//!
//! Every boot has a deadline. A guest that misses it is killed, and the boot counts as a failed check.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use super::checks::Checks;
use super::cuts::Cuts;
use super::guest::{Machine, Platform, create_modules};
use super::session::{Session, verify_set_up};
use super::share::{Share, TestPrograms};

const MACHINE: Machine = Machine::with_nodes(2);
/// Test programs that ask for a place on persistent memory.
const PROGRAMS: TestPrograms = TestPrograms {
    packages: &["lodestone-pmem", "lodestone-heap", "lodestone-index"],
    only: None,
    variable: b"LODESTONE_PM_D",
};

/// Where pools are: names used by the guest's scripts and for the files of acknowledgements.
const PLACES: [&str; 3] = ["ext4", "xfs", "devdax"];
/// Every writer must have acknowledged this many writes before the power is cut.
const ACKNOWLEDGEMENTS_MIN: usize = 50;

/// Options of `cargo xtask vm pmem`.
#[derive(Args)]
pub(crate) struct Options {
    /// Print one JSON object per check and line, and nothing else.
    #[arg(long)]
    json: bool,
    /// Power cuts on the `dax` platform; the `eadr` platform has one.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Killed processes per place and platform.
    #[arg(long, default_value_t = 3)]
    kills: u32,
    /// Seed of the random moments at which the power is cut.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Longest time for one boot, in seconds. Slow machines need more.
    #[arg(long, default_value_t = 1_800)]
    boot_seconds_max: u64,
    /// Use this program instead of building `lodestone`.
    #[arg(long, value_name = "PATH", conflicts_with = "planted")]
    binary: Option<PathBuf>,
    /// Check the checker: run a program that acknowledges too early, and require that one power cut detects it.
    #[arg(long)]
    planted: bool,
}

pub(super) fn run(root: &Path, options: &Options) -> Result<bool> {
    let cache = root.join("vm/.cache");
    verify_set_up(&cache)?;
    let share = match (&options.binary, options.planted) {
        (_, true) => Share::fill_planted(root, &cache)?,
        (Some(binary), false) => Share::fill(root, &cache, binary)?,
        (None, false) => Share::fill_built(root, &cache, &PROGRAMS)?,
    };
    let boot_max = Duration::from_secs(options.boot_seconds_max);
    let session = Session { cache: &cache, checks: Checks::new(options.json), boot_max };
    let cuts = Cuts {
        share: &share,
        machine: MACHINE,
        places: &PLACES,
        acknowledged_min: ACKNOWLEDGEMENTS_MIN,
        random: options.seed,
    };
    let mut run = Run { session, cuts, options };
    if options.planted {
        run.power_cuts(Platform::Dax, 1)?;
        return Ok(run.session.checks.finish_planted("power-cut", PLACES.len()));
    }
    for (platform, rounds) in [(Platform::Dax, options.rounds), (Platform::Eadr, options.rounds.min(1))] {
        run.test_boot(platform)?;
        run.power_cuts(platform, rounds)?;
    }
    Ok(run.session.checks.finish())
}

struct Run<'a> {
    session: Session<'a>,
    cuts: Cuts<'a>,
    options: &'a Options,
}

impl Run<'_> {
    fn test_boot(&mut self, platform: Platform) -> Result<()> {
        self.session.checks.note(&format!("-- {}: pools, killed processes and test programs", platform.domain()));
        create_modules(self.session.cache, MACHINE)?;
        write_job(self.cuts.share, platform, ("test", 1, true), self.options.kills)?;
        self.session.run_job(platform, MACHINE, "test-boot")
    }

    fn power_cuts(&mut self, platform: Platform, rounds: u32) -> Result<()> {
        let (share, kills) = (self.cuts.share, self.options.kills);
        let job = |round, is_last| write_job(share, platform, ("round", round, is_last), kills);
        self.cuts.run(&mut self.session, platform, rounds, &job)
    }
}

fn write_job(share: &Share, platform: Platform, (mode, round, is_last): (&str, u32, bool), kills: u32) -> Result<()> {
    let variables = [
        ("MODE", mode.to_owned()),
        ("EXPECTED", platform.domain().to_owned()),
        ("ROUND", round.to_string()),
        ("LAST", u8::from(is_last).to_string()),
        ("KILLS", kills.to_string()),
    ];
    share.write_job(&variables).context("the guest would not know what to do")
}
