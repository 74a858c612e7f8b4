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
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;

use super::checks::Checks;
use super::guest::{Guest, Machine, Platform, create_modules};
use super::protocol::Outcome;
use super::session::{Ending, Session, verify_set_up};
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
/// After that, the power is cut at a random moment within this time.
const CUT_DELAY_MS_MAX: u64 = 2_000;

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
    let mut run = Run { session, share: &share, options, random: options.seed };
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
    share: &'a Share,
    options: &'a Options,
    random: u64,
}

impl Run<'_> {
    fn test_boot(&mut self, platform: Platform) -> Result<()> {
        self.session.checks.note(&format!("-- {}: pools, killed processes and test programs", platform.domain()));
        create_modules(self.session.cache, MACHINE)?;
        self.write_job(platform, "test", 1, true)?;
        self.session.run_job(platform, MACHINE, "test-boot")
    }

    /// `rounds` times: load, cut, boot again and verify. One boot verifies the last round and loads the next one.
    fn power_cuts(&mut self, platform: Platform, rounds: u32) -> Result<()> {
        if rounds == 0 {
            return Ok(());
        }
        self.session.checks.note(&format!("-- {}: {rounds} power cuts under load", platform.domain()));
        create_modules(self.session.cache, MACHINE)?;
        for round in 1..=rounds + 1 {
            let last = round > rounds;
            self.write_job(platform, "round", round, last)?;
            let started = Instant::now();
            let guest = Guest::boot(self.session.cache, platform, MACHINE)?;
            let ending = self.session.listen(&guest, platform);
            if last {
                self.session.expect_finished(platform, "last-boot", started, &ending);
            } else if !self.cut_under_load(platform, round, guest, started, &ending)? {
                break;
            }
        }
        Ok(())
    }

    /// Kills the guest in the middle of its writes. Returns false if it never began to write.
    fn cut_under_load(
        &mut self,
        platform: Platform,
        round: u32,
        guest: Guest,
        started: Instant,
        ending: &Ending,
    ) -> Result<bool> {
        let name = "cut";
        let deadline = started + self.session.boot_max;
        if *ending != Ending::Loading {
            self.session.record(platform, name, Outcome::Fail, started, &format!("round {round}: no load; {ending:?}"));
            return Ok(false);
        }
        while PLACES.iter().any(|place| self.share.acknowledgements(place) < ACKNOWLEDGEMENTS_MIN) {
            if Instant::now() > deadline {
                let counts = PLACES.map(|place| format!("{place} {}", self.share.acknowledgements(place))).join(", ");
                let detail = format!("round {round}: too few acknowledgements in time: {counts}");
                self.session.record(platform, name, Outcome::Fail, started, &detail);
                return Ok(false);
            }
            thread::sleep(Duration::from_millis(20));
        }
        let delay = Duration::from_millis(self.next_random() % CUT_DELAY_MS_MAX);
        thread::sleep(delay);
        guest.cut_power()?;
        for place in PLACES {
            self.share.drop_unfinished_line(place)?;
        }
        let counts = PLACES.map(|place| format!("{place} {}", self.share.acknowledgements(place))).join(", ");
        let detail = format!("round {round}: QEMU killed after acknowledgements: {counts}");
        self.session.record(platform, name, Outcome::Pass, started, &detail);
        Ok(true)
    }

    fn write_job(&self, platform: Platform, mode: &str, round: u32, last: bool) -> Result<()> {
        let variables = [
            ("MODE", mode.to_owned()),
            ("EXPECTED", platform.domain().to_owned()),
            ("ROUND", round.to_string()),
            ("LAST", u8::from(last).to_string()),
            ("KILLS", self.options.kills.to_string()),
        ];
        self.share.write_job(&variables).context("the guest would not know what to do")
    }

    /// SplitMix64: enough to spread the moments of the cuts, the same for the same seed.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}
